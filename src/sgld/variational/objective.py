"""The evidence lower bound, its estimators and its gradient.

    ELBO = E_q[log p(data, z) - log q(z)] = log p(data) - KL(q || posterior)

to be MAXIMISED; its negative is the variational free energy, which Bayes by Backprop minimises
block by block (Blundell et al. 2015, eq. 2, 8 and 9):

    F_b = E_q[pi_b (log q(z) - log prior(z)) - log likelihood(block b)],    sum_b pi_b = 1
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from ..core.validation import fraction, positive, whole_number
from ..data.source import Batch
from ..errors import UsageError, need
from ..model import sums
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Problem, Target
from ..typing import KLWeights, Number
from .family import Family, Reparameterised, find_distributions, relaxed

__all__ = [
    "KL_WEIGHTS",
    "Elbo",
    "ReparameterisedGradient",
    "block_objective",
    "elbo",
    "elbo_values",
    "kl_weight",
    "reparameterised_gradient",
    "scale_mixture_prior",
]

KL_WEIGHTS: tuple[KLWeights, ...] = get_args(KLWeights)
ELBO_STREAM = 9  # of the seed: draws at which the ELBO is measured

PyTree = Any


class Elbo(NamedTuple):
    """The ELBO in nats, its Monte Carlo standard error, and log p(data, z) - log q(z) per draw.

    Example:
      >>> import jax.numpy as jnp, numpyro.distributions as dist, sgld
      >>> posterior = sgld.Posterior(lambda t: dist.Normal(0.0, 1.0).log_prob(t))
      >>> found = sgld.variational.elbo(posterior, None, dist.Normal(0.0, 1.0))  # q is exact
      >>> round(abs(found.value), 4), round(found.se, 4), found.values.ndim
      (0.0, 0.0, 1)
    """

    value: float
    se: float
    values: Float[np.ndarray, " n"]


class ReparameterisedGradient(NamedTuple):
    """Gradient of E_q[f] with respect to q's parameters, and its standard error: pytrees."""

    mean: PyTree
    se: PyTree


def kl_weight(kind: KLWeights, b: Int[Array, ""] | int, num_blocks: int) -> Float[Array, ""]:
    """pi_b of the b-th block of a pass, b = 0 ... K - 1; they sum to 1.

    "uniform": 1/K. "geometric": 2^{K-1-b} / (2^K - 1), Blundell et al. 2015, sec. 3.4 with their
    i = b + 1: the prior matters early in a pass, the data late.

    Args:
      kind: "uniform" or "geometric".
      b: the block, counted from 0.
      num_blocks: K.

    Example:
      >>> import sgld
      >>> [round(float(sgld.variational.kl_weight("geometric", b, 3)), 4) for b in range(3)]
      [0.5714, 0.2857, 0.1429]
    """
    if kind == "uniform":
        return jnp.full((), 1.0 / num_blocks)
    # divided by 2^K above and below, so that any K is representable
    return jnp.exp2(-1.0 - jnp.asarray(b, float)) / -np.expm1(-num_blocks * np.log(2.0))


def block_objective(
    problem: Problem | Target, batch: Batch | None, weight: Array, z: Array, log_q: Array
) -> tuple[Array, Array]:
    """F_b of one draw, and an unbiased estimate of the ELBO from the same numbers."""
    complexity = log_q - problem.log_prior(z)
    if batch is None:
        return weight * complexity, -complexity
    fit = problem.log_likelihood(z, batch.rows, batch.weight)
    return weight * complexity - fit, batch.scale * fit - complexity


@partial(jax.jit, static_argnames=("num_samples",))
def _values(problem, family, params, key, *, num_samples):
    def one(key):
        z, log_q = family.draw(problem, params, key)
        return sums.log_density(problem, z), log_q

    return jax.lax.map(one, jax.random.split(key, num_samples))


def elbo_values(
    problem: Problem,
    family: Family,
    params: PyTree,
    num_samples: int,
    seed: int,
) -> Elbo:
    """log p(data, z) - log q(z) at `num_samples` draws of q, on all rows."""
    key = jax.random.fold_in(jax.random.key(seed), ELBO_STREAM)
    joint, log_q = _values(problem, family, params, key, num_samples=num_samples)
    values = np.asarray(joint, np.float64) - np.asarray(log_q, np.float64)
    se = values.std(ddof=1) / np.sqrt(num_samples) if num_samples > 1 else np.nan
    return Elbo(float(values.mean()), float(se), values)


def elbo(
    posterior: Posterior, data: PyTree, q: Any, *, num_samples: int = 1000, seed: int = 0
) -> Elbo:
    """The evidence lower bound of any q, by draws of it, on all rows.

    It is a bound of the log evidence where log_prior and log_likelihood are normalised
    densities; constants that they leave out are left out here. Where q is the posterior every
    draw gives the log evidence itself.

    Args:
      posterior, data: as for `sgld.sample`.
      q: what `sgld.bayes_by_backprop` returned, or a NumPyro distribution of the position (a
        pytree of them for a position that is one).
      num_samples: draws of q.
      seed: another seed gives other draws.

    Raises: UsageError and DataError for wrong arguments.

    Example:
      >>> import numpyro.distributions as dist, jax.numpy as jnp, sgld
      >>> prior = lambda t: dist.Normal(0.0, 1.0).log_prob(t)
      >>> posterior = sgld.Posterior(prior, lambda t, x: dist.Normal(t, 1.0).log_prob(x))
      >>> q = dist.Normal(1.0, 2**-0.5)                          # the posterior, given one x = 2
      >>> value, se, _ = sgld.variational.elbo(posterior, jnp.array([2.0]), q)
      >>> evidence = dist.Normal(0.0, 2**0.5).log_prob(2.0)
      >>> round(value, 4), round(float(evidence), 4), se < 1e-6
      (-2.2655, -2.2655, True)
    """
    from .result import Variational

    whole_number("num_samples", num_samples)
    if isinstance(q, Variational):
        init, family, params = q.problem.target.position(jnp.asarray(q.z)), q.family, q.params
    else:
        need("numpyro.distributions", "numpyro")
        made, treedef = find_distributions(q)
        with relaxed():
            at = [one.sample(jax.random.key(i)) for i, one in enumerate(made)]
        init = jax.tree.unflatten(treedef, at)
        # the distribution is its own parameters: NumPyro's are pytrees
        family, params = Reparameterised(_itself, q, "position"), q
    problem = prepare(posterior, data, init, seed=seed)
    if isinstance(family, Reparameterised):
        family.check(problem)
    return elbo_values(problem, family, params, num_samples, seed)


def _itself(q: Any) -> Any:
    return q


def reparameterised_gradient(
    f: Callable[[Any], Array],
    make: Callable[[PyTree], Any],
    params: PyTree,
    *,
    num_samples: int = 1000,
    seed: int = 0,
) -> ReparameterisedGradient:
    """d/dparams of E_{x ~ make(params)}[f(x)], through the draws: E_eps[grad f(g(params, eps))].

    Kingma & Welling 2014, sec. 2.4: x = mu + sigma eps for a Gaussian, x = -log(u) / rate for
    an exponential law.

    Args:
      f: of one draw; returns a scalar.
      make: `make(params)` returns a NumPyro distribution with a reparameterised sampler.
      params: pytree of floating-point arrays.
      num_samples, seed: draws of x, and what they are drawn by.

    Raises: UsageError for a law without such a sampler.

    Example:
      >>> import numpyro.distributions as dist, sgld
      >>> found = sgld.variational.reparameterised_gradient(
      ...     lambda x: x**2, lambda p: dist.Exponential(p), 2.0, num_samples=100_000)
      >>> round(float(found.mean), 1)                                  # d/dr 2/r^2 = -4/r^3
      -0.5
    """
    whole_number("num_samples", num_samples)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), params)
    with relaxed():
        made, _ = find_distributions(make(params))
    if len(made) != 1:
        raise UsageError(f"make must return one distribution. Got {len(made)}.")
    if not made[0].has_rsample:
        raise UsageError(
            f"{type(made[0]).__name__} has no reparameterised sampler, so that no gradient passes "
            "through its draws; use one that has, such as Normal or Exponential."
        )

    def value(params: PyTree, key: Array) -> Array:
        with relaxed():
            return f(make(params).rsample(key))

    keys = jax.random.split(jax.random.key(seed), num_samples)
    each = jax.jit(jax.vmap(jax.grad(value), (None, 0)))(params, keys)
    each = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), each)
    mean = jax.tree.map(lambda leaf: leaf.mean(0), each)
    ddof = min(1, num_samples - 1)
    se = jax.tree.map(lambda leaf: leaf.std(0, ddof=ddof) / np.sqrt(num_samples), each)
    return ReparameterisedGradient(mean, se)


def scale_mixture_prior(
    position: PyTree, share: Number = 0.5, sd1: Number = 1.0, sd2: Number = 0.01
) -> Float[Array, ""]:
    """sum over entries of log[share N(0, sd1^2) + (1 - share) N(0, sd2^2)].

    Blundell et al. 2015, eq. 7. Bind its numbers with `jax.tree_util.Partial`, so that other
    numbers compile nothing.

    Args:
      position: a pytree of arrays, all of whose entries have this prior.
      share, sd1, sd2: of the first normal, and the sds of both.

    Raises: UsageError for a share outside [0, 1] and an sd that is not positive.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> from jax.tree_util import Partial
      >>> prior = Partial(sgld.variational.scale_mixture_prior, share=0.5, sd1=1.0, sd2=0.1)
      >>> round(float(prior({"w": jnp.zeros(1)})), 3)                  # log(.5 * 11 / sqrt(2 pi))
      0.786
    """
    numbers = {"share": share, "sd1": sd1, "sd2": sd2}
    for name, number in numbers.items():
        if isinstance(number, Tracer):
            continue
        if np.ndim(number) != 0:
            raise UsageError(f"{name} must be one number. Got shape {np.shape(number)}.")
        value = float(np.asarray(number))
        if name == "share":
            fraction(name, value, ends=True)
        else:
            positive(name, value)

    def leaf_sum(x: Array) -> Array:
        x = jnp.asarray(x)
        s, a, b = (jnp.asarray(number, x.dtype) for number in numbers.values())
        normal = lambda sd: -0.5 * (x / sd) ** 2 - jnp.log(sd) - 0.5 * np.log(2 * np.pi)  # noqa: E731
        return jnp.sum(jnp.logaddexp(jnp.log(s) + normal(a), jnp.log1p(-s) + normal(b)))

    leaves = [leaf_sum(leaf) for leaf in jax.tree.leaves(position)]
    return sum(leaves[1:], start=leaves[0])
