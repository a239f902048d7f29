"""What Bayes by Backprop found: q, its ELBO, its moments, and draws of it on demand."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..approximation.laplace import Laplace
from ..core.validation import check_seed, whole_number
from ..diagnostics import stein
from ..diagnostics.rule import MAX_EXCESS, MAX_MEAN_ERROR, MIN_R2
from ..model import sums
from ..model.problem import Problem
from ..results.draws import Draws
from ..results.summary import Summary
from ..results.verdict import Verdict, Word
from .family import Family, FullRank, MeanField
from .objective import Elbo

__all__ = ["Variational", "judge"]

MOMENT_DRAWS = 20_000  # for moments that have no closed form: 1% of an sd, .5% of the sd
METER_CHAINS, METER_DRAWS = 4, 64  # draws at which full gradients are taken
DRAWS_STREAM = 8  # of the seed: draws of q
DRAWS_BLOCK, NUMBERS = (
    1024,
    1 << 22,
)  # draws, and numbers, that one call of the compiled function gives

PyTree = Any


@dataclass(frozen=True, repr=False)
class Variational:
    """An approximation q of the posterior: `.draws(n)`, `.mean`, `.sd`, `.elbo`.

    Attributes:
      family, params: q: the family and its parameters.
      elbo, elbo_se: the ELBO in nats on all rows at the end, and its Monte Carlo standard error.
      elbo_trace: [step], the noisy estimate of the ELBO at each step, for plots.
      verdict: `biased` or `unknown`, never `trusted`; its draws carry it too.
      info: num_data, num_steps, seconds and how q was fitted.
      problem: the posterior and the rows that q was fitted to.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
      >>> q = sgld.bayes_by_backprop(posterior, jnp.array([1.0, 2.0, 3.0]), 0.0)
      >>> round(float(q.mean), 1), round(float(q.sd), 1), q.z.round(1)
      (1.5, 0.5, array([1.5]))
      >>> q.draws(100).num_draws, round(q.summary().parameters["x"]["sd"], 1)
      (100, 0.5)
    """

    family: Family
    params: PyTree
    elbo: float
    elbo_se: float
    elbo_trace: Float[np.ndarray, " step"]
    verdict: Verdict
    info: dict[str, Any]
    problem: Problem = field(repr=False)

    def draws(self, num_draws: int = 1000, *, num_chains: int = 4, seed: int = 0) -> Draws:
        """Independent draws of q as Draws [num_chains, num_draws]; chains are only a shape here.

        Args:
          num_draws, num_chains: how many.
          seed: another seed gives other draws.

        Raises: UsageError for numbers that are not whole and positive.
        """
        whole_number("num_draws", num_draws)
        whole_number("num_chains", num_chains)
        z = draw_many(self.problem, self.family, self.params, (num_chains, num_draws), seed)
        info = {**self.info, "elbo": self.elbo, "elbo_se": self.elbo_se}
        return Draws.at(self.problem, z, verdict=self.verdict, info=info)

    @property
    def mean(self) -> PyTree:
        """Mean of q, a pytree like the position: exact for Gaussians on unconstrained positions.

        Elsewhere the mean of 20,000 draws.
        """
        return self._moments[0]

    @property
    def sd(self) -> PyTree:
        """Standard deviation of q, as `mean`."""
        return self._moments[1]

    def summary(self) -> Summary:
        """The table of 4000 draws of q, ending with the verdict."""
        return self.draws().summary()

    @property
    def z(self) -> Float[np.ndarray, " d"]:
        """The centre of q in free coordinates: its mean, or for other families that of draws."""
        if isinstance(self.family, MeanField | FullRank):
            return self.family.moments(self.params)[0]
        z = draw_many(self.problem, self.family, self.params, (1, 1000), 1)
        return np.asarray(z, np.float64)[0].mean(0)

    @cached_property
    def _moments(self) -> tuple[PyTree, PyTree]:
        plain = self.problem.posterior.transform is None and self.problem.posterior.output is None
        if plain and isinstance(self.family, MeanField | FullRank):
            array, unravel = self.problem.array, self.problem.layout.unravel
            parts = (unravel(array(part)) for part in self.family.moments(self.params))
            mean, sd = (jax.tree.map(np.asarray, part) for part in parts)
            return mean, sd
        draws = self.draws(MOMENT_DRAWS, num_chains=1, seed=1)
        return draws.mean(), draws.sd()

    def __repr__(self) -> str:
        return (
            f"Variational({self.family.title} of {self.problem.dimension} parameters, "
            f"ELBO {self.elbo:.2f} +- {self.elbo_se:.2g}, {self.verdict.word})"
        )


def draw_many(
    problem: Problem, family: Family, params: PyTree, shape: tuple[int, int], seed: int
) -> Float[Array, "chain draw d"]:
    """Draws of q in free coordinates."""
    check_seed(seed)
    d, total = problem.dimension, shape[0] * shape[1]
    key = jax.random.fold_in(jax.random.key(seed), DRAWS_STREAM)
    block = int(np.clip(NUMBERS // d, 1, DRAWS_BLOCK))
    parts = [
        np.asarray(_draw(problem, family, params, key, jnp.int32(first), block=block))
        for first in range(0, total, block)
    ]
    return jnp.asarray(np.concatenate(parts)[:total].reshape(*shape, d))


@partial(jax.jit, static_argnames=("block",))
def _draw(problem, family, params, key, first, *, block):
    """Draws number `first` ... `first + block - 1`; any number of draws is one compilation."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, first + jnp.arange(block, dtype=jnp.int32))
    return jax.vmap(lambda key: family.draw(problem, params, key)[0])(keys)


def judge(
    problem: Problem, family: Any, params: PyTree, laplace: Laplace | None,
    elbo: Elbo, seed: int,
) -> Verdict:  # fmt: skip
    """What is known of q: how much narrower than the posterior it is, where that can be measured.

    By the bias meter of every run, Stein-corrected moments, at draws of q.
    """
    reasons = [
        f"these are draws of a {family.title} fitted by minimising KL(q || posterior), which "
        f"{family.caution}; confirm with sgld.sample or sgld.reference."
    ]
    extra = {"elbo": elbo.value, "elbo_se": elbo.se}
    if laplace is None or not laplace.positive_definite:
        reasons.append("there is no curvature at a mode to measure by how much.")
        return Verdict("unknown", tuple(reasons), extra=extra)
    assert laplace.factor is not None
    gaussian = isinstance(family, MeanField | FullRank)
    count = METER_DRAWS if gaussian else 64 * METER_DRAWS
    z = np.asarray(draw_many(problem, family, params, (METER_CHAINS, count), seed), np.float64)
    of = laplace.marginals(problem)
    phi = of.phi(z)
    if gaussian:
        mean, covariance = family.moments(params)[0], family.covariance(params)
        out = problem.target.jacobian(laplace.center)
        moments = of.phi(mean), np.einsum("mi,ij,mj->m", out, covariance, out)
    else:
        flat = phi.reshape(-1, phi.shape[-1])
        moments = flat.mean(0), flat.var(0, ddof=1)
    at = z[:, :METER_DRAWS]
    gradient = sums.gradients(problem, at.reshape(-1, z.shape[-1])).reshape(at.shape)
    weights = np.full(at.shape[:2], 1 / (METER_CHAINS * METER_DRAWS))
    gamma = of.gamma(gradient)
    found = stein.corrected_moments(phi[:, :METER_DRAWS], gamma, of.variance, weights, 1.0, moments)
    flat, slope = (a.reshape(-1, a.shape[-1]) for a in (phi[:, :METER_DRAWS], gamma))
    r2 = stein.explained(flat, slope, slope)
    names = Draws.at(problem, problem.array(z[:1, :1])).names
    word: Word = "unknown"
    if np.isfinite(found.ratio).all() and np.min(r2) >= MIN_R2:
        word = _measured(names, found, reasons)
    else:
        reasons.append(
            "the bias meter cannot tell by how much: the posterior is far from Gaussian."
        )
    return Verdict(word, tuple(reasons), found.ratio, found.ratio_se, r2, extra=extra)


def _measured(names: tuple[str, ...], found: stein.Corrected, reasons: list[str]) -> Word:
    """Append what the meter says; the word."""
    worst = int(np.argmax(np.abs(np.log(found.ratio))))
    ratio, away = found.ratio[worst], np.abs(found.mean_shift) / found.sd
    reasons.append(
        f"by Stein-corrected moments its sd is {ratio:.2f} of the posterior's for {names[worst]!r}, "
        "the parameter furthest off."
    )
    wrong = np.abs(found.ratio - 1).max() > MAX_EXCESS
    if away.max() > MAX_MEAN_ERROR:
        shifted = int(np.argmax(away))
        reasons.append(
            f"the mean of {names[shifted]!r} is about {away[shifted]:.2f} sd off; use more steps, or "
            "a smaller learning rate."
        )
        wrong = True
    return "biased" if wrong else "unknown"
