"""From what the loop returned to Draws: weights, reported positions, what became of each chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..draws.draws import Draws
from ..draws.plan import Plan
from ..draws.setup import Setup
from ..gaussian.known import Known
from ..gradient.full import Full
from ..layout import Layout
from ..problem.problem import Problem
from . import loop

__all__ = ["laplace_facts", "reported_draws", "sampling_only", "within_support"]

LOOKED_AT = 64  # draws of a chain, for the support
LEFT_SUPPORT = "left the support"


def sampling_only(raw: loop.Raw) -> tuple[loop.Raw, np.ndarray]:
    """Without the draws of steps at temperature 0, and which are left.

    Where a schedule turns the temperature off (cycles that explore), only the rest are draws.
    """
    rows = np.arange(len(raw.z))
    sampling = raw.temperature > 0
    if sampling.all() or not sampling.any():
        return raw, rows
    rows = rows[sampling]
    gradient = None if raw.gradient is None else raw.gradient[rows]
    return replace(
        raw, z=raw.z[rows], step_size=raw.step_size[rows], temperature=raw.temperature[rows],
        gradient=gradient,
    ), rows  # fmt: skip


def reported_draws(problem: Problem, plan: Plan, raw: loop.Raw, seed: int) -> Draws:
    """Reported draws [chain, draw, ...] with their weights."""
    raw, rows = sampling_only(raw)
    count, chains = raw.z.shape[:2]
    z = jnp.asarray(np.moveaxis(raw.z, 0, 1))
    with jax.enable_x64(problem.posterior.output is not None):
        position = problem.reported(z)
    step_size = np.broadcast_to(raw.step_size, (chains, count)).astype(np.float64)
    temperature = np.broadcast_to(raw.temperature, (chains, count)).astype(np.float64)
    one = jax.tree.map(lambda leaf: np.asarray(leaf[0, 0], np.float32), position)
    names = tuple(problem.posterior.names or Layout.of(one).element_names())
    status = tuple(_status(problem, plan.setup, raw, chain, seed) for chain in range(chains))
    steps = plan.setup.burn_in + plan.setup.thin * rows
    return Draws(
        position=position, log_weight=np.log(np.maximum(step_size, 1e-300)), step_size=step_size,
        temperature=temperature, step=steps, status=status, names=names,
    )  # fmt: skip


def _status(problem: Problem, setup: Setup, raw: loop.Raw, chain: int, seed: int) -> str:
    """ "ok", or at which step, in which leaf and after which rows the chain failed."""
    step = int(raw.failed_at[chain])
    if not 0 <= step < raw.num_steps:  # what happened after the last draw is nobody's concern
        return "ok"
    bad = ~np.isfinite(raw.z[:, chain])
    where, rows_named = "", ""
    if bad.any():
        first = int(np.argmax(bad.any(axis=1)))
        where = f" in leaf {problem.layout.locate(int(np.argmax(bad[first])))!r}"
    if problem.has_rows and step > 0 and not isinstance(setup.gradient, Full):
        entry = jnp.asarray(problem.source.chunk((seed, chain), step - 1, 1)[0])
        drawn = problem.source.fetch(entry).drawn()
        rows = np.sort(problem.source.original_rows(drawn, seed))
        listed = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        where += f", after a batch of rows {listed}"
        rows_named = ", or look at those rows"
    h = float(setup.step_size(max(0, step - setup.burn_in)))
    return (
        f"chain {chain} became non-finite at step {step}{where}; use a smaller step_size than "
        f"{h:.3g}{rows_named}."
    )


def within_support(problem: Problem, draws: Draws, z: Any) -> Draws:
    """The draws, with a failure named where a chain [chain, draw, d] went where the density is 0.

    Seen at some draws and one row: where there is no density there is no gradient to lead back.
    """
    some = np.unique(np.linspace(0, z.shape[1] - 1, LOOKED_AT).round().astype(int))
    inside = np.asarray(_inside(problem, problem.array(z[:, some])))
    status = list(draws.status)
    for chain in draws.healthy:
        if not inside[chain].all():
            first = some[int(np.argmin(inside[chain]))]
            status[chain] = (
                f"chain {chain} {LEFT_SUPPORT} (log density -inf) by draw {first}; give a bounded parameter its "
                "support with constraints= of sgld.Posterior, or use a smaller step_size."
            )
    return replace(draws, status=tuple(status))


@jax.jit
def _inside(problem: Problem, z: Any) -> Any:
    def one(q):
        value = problem.log_prior(q)
        if problem.has_rows:
            value += problem.log_likelihood(q, problem.source.take(jnp.arange(1)))
        return value > -jnp.inf

    return jax.lax.map(jax.vmap(one), z)


def laplace_facts(problem: Problem, known: Known) -> dict[str, Any] | None:
    """Mean and sd of the Gaussian at the mode, per reported parameter, for the report."""
    laplace = known.gaussian
    if laplace is None or not known.usable:
        return None
    sd = np.sqrt(laplace.marginals(problem).variance)
    mode = problem.array(laplace.mode)
    return {"mean": np.asarray(problem.target.flat_reported(mode)).tolist(), "sd": sd.tolist()}
