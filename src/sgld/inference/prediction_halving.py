"""Step halving of a network: how its predictions change when the step is halved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..diagnostics.function_space.predictions import Predictions, predictions_of
from ..diagnostics.function_space.verdict import Change, compared
from ..errors import UsageError
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Target
from ..results.draws import Draws
from ..results.verdict import Verdict
from ..samplers.sgld import SGLD
from .function_space import not_looked_for
from .sample import sample


@dataclass(frozen=True)
class HalvedPredictions(Change):
    """Changes of predictions at probe rows when the step is halved.

    Attributes:
      sd_ratio: of every number that is predicted (centred logits, or means), sd at h over sd at h/2.
      sd_ratio_se: Monte Carlo error of it.
      mean_shift: of their means, in sds.
      variation: total variation between mean probabilities, averaged over rows; None of means.
      draws: the run with the halved step.
      first: the run itself.

    Example:
      >>> import numpy as np, sgld
      >>> run = sgld.Draws.of({"b": np.zeros((4, 100))})
      >>> found = sgld.networks.HalvedPredictions(
      ...     np.array([1.2, 1.3]), np.array([0.01, 0.01]), np.zeros(2), None, run, run)
      >>> found.agrees, found.verdict.word
      (False, 'biased')
    """

    draws: Draws
    first: Draws

    @property
    def agrees(self) -> bool:
        """Report whether sds agree within 5%, and probabilities within .01 or means within .15 sd, up to noise.

        The check uses the median ratio of sds, whose noise is small, for an effect on all of them. It uses the
        largest ratio, beyond its noise, for an effect on one.
        """
        return super().agrees and not self.draws.failures

    @property
    def verdict(self) -> Verdict:
        """Return the run's verdict if it is worse than `unknown`, otherwise that of step halving."""
        return self.judge(self.first.verdict, failed=bool(self.draws.failures))

    def __str__(self) -> str:
        return str(self.verdict)


def step_halving(
    posterior: Posterior,
    data: Any,
    draws: Draws,
    *,
    seed: int | None = None,
    progress: bool = False,
) -> HalvedPredictions:
    """Run a network again with a halved step, and compare predictions at probe rows.

    Every chain goes on alone from where it ended, so that each stays among its modes. Of a sampler with
    momentum it is the step in time, sqrt(h), that is halved: the heat of noisy gradients goes as that.

    Args:
      posterior: that of the run.
      data: those of the run.
      draws: a run of this session that is judged by predictions, whose plan is run again.
      seed: of the second run (None: the first one's plus 1).
      progress: as for `sgld.sample`.

    Raises: UsageError for draws without a plan, of a run that is judged by its parameters, or whose draws
    are no positions (keep=, or a posterior with output=).

    Example:
      >>> import jax.numpy as jnp, numpy as np, sgld
      >>> x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
      >>> posterior = sgld.Posterior(
      ...     lambda b: -0.5 * jnp.sum(b**2), lambda b, row: -0.5 * (row @ b) ** 2,
      ...     predict=lambda b, row: row @ b)
      >>> how = {"step_size": 2e-3, "thin": 20, "num_draws": 400, "sampler": sgld.BAOA(),
      ...     "gradient": sgld.Full(), "burn_in": 200, "progress": False}
      >>> draws = sgld.sample(posterior, x, jnp.zeros(2), **how)
      >>> sgld.networks.step_halving(posterior, x, draws).agrees
      True
    """
    if draws.plan is None:
        raise UsageError("these draws hold no plan; run sgld.sample again.")
    if not draws.plan.setup.predictions:
        raise UsageError("these draws are judged by their parameters; use sgld.step_halving.")
    kept = draws.origin is not None and draws.origin.kept
    if kept or posterior.output is not None:
        raise UsageError(
            f"these draws are {'what keep= returned' if kept else 'what output= of the posterior reports'}, from which "
            f"no chain can go on; sample without {'keep=' if kept else 'output='}, then halve the step."
        )
    first = int(draws.info["seed"]) + 1 if seed is None else seed
    arguments, setup = draws.plan.arguments(), draws.plan.setup
    old, ends, values = arguments["step_size"], [], []
    arguments |= {
        # with momentum the heat of noisy gradients goes as sqrt(h)
        "step_size": lambda t: old(t // 2) / (2 if isinstance(setup.sampler, SGLD) else 4),
        "thin": 2 * setup.thin,
        "burn_in": max(2 * setup.burn_in // 3, 1), "num_draws": draws.num_draws, "num_chains": 1,
    }  # fmt: skip
    for chain in draws.healthy:
        start = jax.tree.map(lambda leaf, chain=chain: leaf[chain, -1], draws.position)
        ends.append(start)
        with not_looked_for():
            half = sample(
                posterior, data, start, progress=progress, seed=first + int(chain), **arguments
            )
        values.append(half)
    joined = _joined(values)
    problem = prepare(posterior, data, ends[0])
    found = predictions_of(problem)
    one, two = (_at(found, problem.target, run) for run in (draws, joined))
    change = compared(found.kind, one, two, draws.weights, joined.weights)
    return HalvedPredictions(**vars(change), draws=joined, first=draws)


def _joined(runs: list[Draws]) -> Draws:
    together = lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])  # noqa: E731
    position = jax.tree.map(together, *(run.position for run in runs))
    status = tuple(status for run in runs for status in run.status)
    return Draws.of(position, names=runs[0].names, status=status)


def _at(found: Predictions, target: Target, draws: Draws) -> Float[np.ndarray, "chain draw m k"]:
    healthy = jax.tree.map(lambda leaf: leaf[draws.healthy], draws.position)
    return np.asarray(_predicted(found, target, healthy))


@jax.jit
def _predicted(found: Predictions, target: Target, positions: Any) -> Any:
    one = lambda position: found.of_position(target, position)  # noqa: E731
    return jax.lax.map(lambda chain: jax.lax.map(one, chain), positions)
