"""Whether a network's prior holds it back: rows held back, under the posterior and under optimisers' ends.

    log score of a row = log mean over draws of p(y | x, theta)

of the posterior's draws, and of an ensemble of networks as they are trained otherwise: where Adam ends, from
starts of its own, with a hundredth of the prior's weight (a normal prior ten times as wide). A posterior
whose prior and likelihood are what the data came from predicts at least as well.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import logsumexp

from ..core.text import columns
from ..core.validation import check_seed, whole_number
from ..diagnostics.function_space.predictions import check_labels
from ..errors import SGLDWarning, UsageError
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Request, Target
from ..results.draws import Draws
from ..tune.from_network import optimiser_ends

__all__ = ["HeldBack", "held_back"]

PyTree = Any
LIGHT = 0.01  # of the prior, that optimisers see
MANY_ERRORS = 3.0  # standard errors beyond which it is said


@dataclass(frozen=True)
class HeldBack:
    """Log scores of rows that were not learnt from, in nats a row, up to the constants the likelihood leaves out.

    Attributes:
      posterior: of every row, log mean likelihood over the draws.
      optimisers: the same over the optimisers' ends.
      networks: how many of these.

    Example:
      >>> import numpy as np, sgld
      >>> found = sgld.networks.HeldBack(np.array([-0.2, -0.3, -0.1]), np.array([-0.1, -0.1, 0.0]), 5)
      >>> round(found.difference, 3), round(found.difference_se, 3), found.warning is None
      (0.133, 0.033, False)
    """

    posterior: Float[np.ndarray, " row"]
    optimisers: Float[np.ndarray, " row"]
    networks: int

    @property
    def difference(self) -> float:
        """By how much the optimisers' ends predict a row better, on average."""
        return float(np.mean(self.optimisers - self.posterior))

    @property
    def difference_se(self) -> float:
        """Its standard error over rows."""
        each = self.optimisers - self.posterior
        return float(np.std(each, ddof=1) / np.sqrt(len(each)))

    @property
    def warning(self) -> str | None:
        """What to change, where the difference is beyond 3 standard errors."""
        if not self.difference > MANY_ERRORS * self.difference_se:
            return None
        return (
            f"where {self.networks} optimisers end predicts rows held back better than the posterior does, by "
            f"{self.difference:.3g} +- {self.difference_se:.2g} nats a row: the prior holds the network back; use a "
            "wider one (three times the sd), or one whose scale per layer is learnt, "
            "sgld.networks.normal_prior(..., learnt=True)."
        )

    def __str__(self) -> str:
        rows = [["", "log score", "+-"]]
        for name, scores in (("posterior", self.posterior), ("optimisers", self.optimisers)):
            se = np.std(scores, ddof=1) / np.sqrt(len(scores))
            rows.append([name, f"{np.mean(scores):.4f}", f"{se:.4f}"])
        rows.append(["difference", f"{self.difference:.4f}", f"{self.difference_se:.4f}"])
        return "\n".join([*columns(rows), *filter(None, [self.warning])])


def held_back(
    posterior: Posterior,
    data: PyTree,
    init: PyTree,
    draws: Draws,
    rows: PyTree,
    *,
    networks: int = 5,
    seed: int = 0,
) -> HeldBack:
    """The log score of rows held back: of the posterior, beside that of an ensemble of optimisers' ends.

    Args:
      posterior, data, init: as given to `sgld.sample`.
      draws: what it returned.
      rows: as `data`, not learnt from.
      networks: how many optimisers, each from a start of its own, with a hundredth of the prior's weight.
      seed: of their starts and batches.

    Warns (SGLDWarning) where the ends predict better by more than 3 standard errors.

    Raises: UsageError for fewer than two rows, or a posterior without a likelihood of rows.

    Example:
      >>> import jax.numpy as jnp, numpy as np, sgld
      >>> rng = np.random.default_rng(0)
      >>> x = rng.normal(size=(200, 3)).astype(np.float32)
      >>> y = (x @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=200)).astype(np.float32)
      >>> posterior = sgld.Posterior(
      ...     sgld.networks.normal_prior(1.0), lambda w, row: -0.5 * (row[1] - row[0] @ w) ** 2)
      >>> known, new = (x[:100], y[:100]), (x[100:], y[100:])
      >>> draws = sgld.sample(posterior, known, jnp.zeros(3), progress=False)
      >>> found = sgld.networks.held_back(posterior, known, jnp.zeros(3), draws, new)
      >>> found.warning is None
      True
    """
    whole_number("networks", networks)
    check_seed(seed)
    draws.check_kept()
    if posterior.log_likelihood is None:
        raise UsageError(
            "rows can be held back only where the posterior has a log likelihood of rows."
        )
    problem, others = prepare(posterior, data, init, seed=seed), prepare(posterior, rows, init)
    if others.num_data < 2:
        raise UsageError(f"rows must be two at least. Got {others.num_data}.")
    check_labels(others, 0)
    prior = posterior.log_prior
    light = replace(posterior, log_prior=lambda position: LIGHT * prior(position))
    ends = optimiser_ends(prepare(light, data, init, seed=seed), _request(networks, seed))
    positions = jax.vmap(problem.target.position)(problem.array(ends))
    new = others.source.take(jnp.arange(others.num_data, dtype=jnp.int32))
    healthy = jax.tree.map(
        lambda leaf: jnp.asarray(leaf[draws.healthy]).reshape(-1, *leaf.shape[2:]), draws.position
    )
    scores = [
        logsumexp(
            np.asarray(_log_likelihoods(problem.target, some, new), np.float64),
            axis=0,
            b=w[:, None],
        )
        for some, w in (
            (healthy, (draws.weights / draws.weights.sum()).reshape(-1)),
            (positions, np.full(networks, 1 / networks)),
        )
    ]
    found = HeldBack(scores[0], scores[1], networks)
    if found.warning is not None:
        warnings.warn(found.warning, SGLDWarning, stacklevel=2)
    return found


def _request(networks: int, seed: int) -> Request:
    """With everything left open but the number of chains."""
    auto = "auto"
    return Request(
        auto, auto, 0.05, 1.0, auto, auto, auto, auto, networks, auto, auto, auto, seed
    )  # fmt: skip


@jax.jit
def _log_likelihoods(target: Target, positions: PyTree, rows: PyTree) -> Float[Array, "draw row"]:
    likelihood = target.posterior.log_likelihood
    assert likelihood is not None
    one = lambda position: jax.vmap(lambda row: jnp.reshape(likelihood(position, row), ()))(rows)  # noqa: E731
    return jax.lax.map(one, positions)
