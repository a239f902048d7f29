"""Which noise a run injects: normals, or counts of bits where drawing normals is much of a step's price.

Counts have the normals' mean and variance, and tails that are too thin where a step is long. So
they are chosen for large positions alone, and where the stiffest direction at the starts is left with
an excess kurtosis of at most MOST_EXCESS; never for moves that are accepted or refused.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from ..diagnostics.function_space.temperature import stiffest
from ..errors import UsageError, did_you_mean
from ..model.problem import Problem, Request, is_auto
from ..results.plan import Plan
from ..samplers.baoa import BAOA
from ..samplers.confined_hmc import ConfinedHMC
from ..samplers.hmc import HMC
from ..samplers.noise import BITS, LAWS, excess_kurtosis
from ..samplers.replica_exchange import ReplicaExchange
from ..samplers.sgld import SGLD
from .metric import settled
from .network_price import batch_price
from .network_rule import curvature_rows
from .predict import NORMAL

__all__ = ["check_noise", "with_noise"]

LARGE = 2**16  # numbers of a position: fewer are drawn many steps at once, and cost little
SHARE = 0.25  # of a gradient's price, that normals must cost
# of the stiffest direction: SGLD has it at h l = .13, BAOA at .1, where of what normals leave beyond 2, 3 and
# 4 sds there are .99, .83 and .46
MOST_EXCESS = 0.07
TOLD = (
    f"each injected number is a count of {BITS} random bits, of a normal's mean and variance and faster drawn; "
    'tails beyond 2 sds are thinner, the more the longer the step (noise="normal" draws normals).'
)


def check_noise(ask: Request) -> None:
    """UsageError for a law that there is not, and for counts where moves are accepted by normals."""
    if ask.noise not in ("auto", *LAWS):
        raise UsageError(
            f"noise must be 'auto' or one of {', '.join(LAWS)}. Got {ask.noise!r}."
            + did_you_mean(ask.noise, LAWS)
        )
    if ask.noise == "binomial" and isinstance(ask.sampler, (HMC, ConfinedHMC, ReplicaExchange)):
        raise UsageError(
            f"noise must be 'normal' with {type(ask.sampler).__name__}, which accepts and refuses moves by it. "
            "Got 'binomial'."
        )


def with_noise(plan: Plan, problem: Problem, ask: Request) -> Plan:
    """The plan with what was asked for, or with counts of bits where they pay; `problem` holds all rows."""
    if ask.noise == "normal":
        return plan
    if is_auto(ask.noise):
        large = problem.dimension >= LARGE
        if not (large and _are_much(plan, problem) and _are_close(plan, problem)):
            return plan
    return replace(plan, setup=replace(plan.setup, noise="binomial")).noted(TOLD)


def _are_much(plan: Plan, problem: Problem) -> bool:
    """Whether normals cost a good part of a step."""
    price = batch_price(problem, plan.setup.gradient, plan.setup.batch_size)
    return NORMAL * problem.dimension >= SHARE * price


def _are_close(plan: Plan, problem: Problem) -> bool:
    """Whether counts leave the stiffest direction nearly normal, by a sampler whose step is linear."""
    setup = plan.setup
    if type(setup.sampler) not in (BAOA, SGLD) or setup.corrected:
        return False
    starts = problem.start[None] if setup.starts is None else problem.array(setup.starts)
    D = settled(setup.preconditioner, problem, starts[0])
    if (
        setup.batch_size is not None and setup.order is not None
    ):  # as the step was found: nothing is compiled anew
        problem = problem.with_batches(setup.batch_size, setup.order)
    rows = curvature_rows(problem.num_data, problem.dimension)
    _, stiff = stiffest(problem, D, starts, count=2, rows=rows)
    curvature, h = jnp.max(stiff), problem.array(setup.step_size(0))
    found = float(excess_kurtosis(setup.sampler, h, curvature))
    return bool(np.isfinite(found)) and -found <= MOST_EXCESS
