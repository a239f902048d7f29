"""Families q(z; params) over free coordinates with reparameterised draws, and the ELBO.

A family draws z = g(params, eps) with eps independent of params, so that a gradient passes through
the draw (Kingma & Welling 2014), and also returns log q(z; params):

    mean-field  z = c + s (mu + softplus(rho) eps)      Blundell et al. 2015, sec. 3.2, per weight
    full rank   z = c + F (mu + L eps)                  L lower triangular, softplus on its diagonal
    any other   NumPyro's `rsample` and `log_prob`

c, s and F are fixed numbers that give the optimiser coordinates of unit scale; if they are unknown,
they are 0 and 1.

The module also provides the evidence lower bound, its estimators and its gradient:

    ELBO = E_q[log p(data, z) - log q(z)] = log p(data) - KL(q || posterior)

to be MAXIMISED. Its negative is the variational free energy, which Bayes by Backprop minimises
block by block (Blundell et al. 2015, eq. 2, 8 and 9):

    F_b = E_q[pi_b (log q(z) - log prior(z)) - log likelihood(block b)],    sum_b pi_b = 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int

from ..core.pytrees import Layout, as_pytree
from ..core.validation import fraction, positive, whole_number
from ..data.source import Batch
from ..errors import UsageError, need
from ..model import sums
from ..model.problem import Problem, Target
from ..typing import KLWeights, Number

PyTree = Any
HALF_LOG_2PI = 0.9189385332046727


@runtime_checkable
class Family(Protocol):
    """Interface of a variational family; it is a pytree, and its parameters are another."""

    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def caution(self) -> str: ...  # noqa: D102
    def draw(self, problem: Problem, params: PyTree, key: Array) -> tuple[Array, Array]: ...  # noqa: D102


def inverse_softplus(sd: Any) -> np.ndarray | np.floating:
    """Return rho with softplus(rho) = log(1 + e^rho) = sd, on the host in float64."""
    sd = np.asarray(sd, np.float64)
    return sd + np.log(-np.expm1(-sd))


@as_pytree
@dataclass(frozen=True)
class MeanField:
    """Independent Gaussians: z = center + scale (mean + softplus(rho) eps).

    Args:
      center, scale: [d], fixed numbers that give the optimiser coordinates of unit scale.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> family = sgld.variational.MeanField(jnp.zeros(2), jnp.array([1.0, 3.0]))
      >>> params = family.start(0.5)
      >>> mean, sd = family.moments(params)
      >>> mean, sd.round(4)
      (array([0., 0.]), array([0.5, 1.5]))
      >>> family.covariance(params).round(4)
      array([[0.25, 0.  ],
             [0.  , 2.25]])
      >>> z, log_q = family.place(params, jnp.array([1.0, -1.0]))
      >>> z.round(4)
      Array([ 0.5, -1.5], dtype=float32)
    """

    center: Float[Array, " d"]
    scale: Float[Array, " d"]
    title = "mean-field Gaussian"
    caution = "underestimates variance wherever parameters are correlated"

    def start(self, sd: float) -> PyTree:
        """Return the parameters of N(center, (scale sd)^2)."""
        rho = jnp.full_like(self.center, float(inverse_softplus(sd)))
        return {"mean": jnp.zeros_like(self.center), "rho": rho}

    def draw(self, problem: Problem, params: PyTree, key: Array) -> tuple[Array, Array]:
        """Draw one z [d] of q by `key`, and return it with log q(z).

        Args:
          problem: unused here; it has the position's shapes.
          params: the parameters of q.
          key: a random key.
        """
        return self.place(params, jax.random.normal(key, self.center.shape, self.center.dtype))

    def place(self, params: PyTree, eps: Array) -> tuple[Array, Array]:
        """Return z [d] and log q(z) for standard normal eps [d] and these `params` of q."""
        sd = jax.nn.softplus(params["rho"])
        z = self.center + self.scale * (params["mean"] + sd * eps)
        log_q = -0.5 * eps**2 - HALF_LOG_2PI - jnp.log(sd) - jnp.log(self.scale)
        return z, jnp.sum(log_q)

    def moments(self, params: PyTree) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd of z [d], float64, for these `params` of q."""
        mean, rho, center, scale = (
            np.asarray(a, np.float64)
            for a in (params["mean"], params["rho"], self.center, self.scale)
        )
        return center + scale * mean, scale * np.logaddexp(0, rho)

    def covariance(self, params: PyTree) -> np.ndarray:
        """Return the covariance of z, [d, d], float64, for these `params` of q."""
        return np.diag(self.moments(params)[1] ** 2)


@as_pytree
@dataclass(frozen=True)
class FullRank:
    """One Gaussian with all correlations: z = center + factor (mean + L eps).

    Args:
      center: [d].
      factor: [d, d], square: fixed numbers that give the optimiser coordinates of unit scale.
      log_det: log |det factor|; `around` computes it.

    Example:
      >>> import jax.numpy as jnp, numpy as np, sgld
      >>> factor = np.array([[2.0, 0.0], [1.0, 1.0]])
      >>> family = sgld.variational.FullRank.around(jnp.zeros(2), factor)
      >>> params = family.start(1.0)
      >>> family.covariance(params).round(4)
      array([[4., 2.],
             [2., 2.]])
      >>> mean, sd = family.moments(params)
      >>> sd.round(4)
      array([2.    , 1.4142])
      >>> family.place(params, jnp.array([1.0, 0.0]))[0].round(4)
      Array([2., 1.], dtype=float32)
    """

    center: Float[Array, " d"]
    factor: Float[Array, "d d"]
    log_det: Float[Array, ""]  # log |det factor|
    title = "full-rank Gaussian"
    caution = "underestimates variance where the posterior is not Gaussian"

    @classmethod
    def around(cls, center: Array, factor: np.ndarray) -> FullRank:
        """Return the family in the coordinates of a square `factor` [d, d] around `center` [d]."""
        log_det = np.linalg.slogdet(factor)[1]
        as_array = lambda a: jnp.asarray(np.asarray(a, center.dtype))  # noqa: E731
        return cls(center, as_array(factor), as_array(log_det))

    def start(self, sd: float) -> PyTree:
        """Return the parameters of N(center, sd^2 factor factor^T)."""
        d, rho = self.center.size, float(inverse_softplus(sd))
        return {
            "mean": jnp.zeros_like(self.center),
            "rho": jnp.full_like(self.center, rho),
            "lower": jnp.zeros((d, d), self.center.dtype),
        }

    def draw(self, problem: Problem, params: PyTree, key: Array) -> tuple[Array, Array]:
        """Draw one z [d] of q by `key`, and return it with log q(z).

        Args:
          problem: unused here; it has the position's shapes.
          params: the parameters of q.
          key: a random key.
        """
        return self.place(params, jax.random.normal(key, self.center.shape, self.center.dtype))

    def place(self, params: PyTree, eps: Array) -> tuple[Array, Array]:
        """Return z [d] and log q(z) for standard normal eps [d] and these `params` of q."""
        sd = jax.nn.softplus(params["rho"])
        times = lambda A, x: jnp.matmul(A, x, precision="highest")  # noqa: E731
        u = params["mean"] + sd * eps + times(jnp.tril(params["lower"], -1), eps)
        log_q = jnp.sum(-0.5 * eps**2 - HALF_LOG_2PI - jnp.log(sd)) - self.log_det
        return self.center + times(self.factor, u), log_q

    def moments(self, params: PyTree) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd of z [d], float64, for these `params` of q."""
        mean, center, factor = (
            np.asarray(a, np.float64) for a in (params["mean"], self.center, self.factor)
        )
        return center + factor @ mean, np.sqrt(np.diag(self.covariance(params)))

    def covariance(self, params: PyTree) -> np.ndarray:
        """Return the covariance of z, [d, d], float64, for these `params` of q."""
        rho, lower, factor = (
            np.asarray(a, np.float64) for a in (params["rho"], params["lower"], self.factor)
        )
        root = factor @ (np.tril(lower, -1) + np.diag(np.logaddexp(0, rho)))
        return root @ root.T


@as_pytree
@dataclass(frozen=True)
class Reparameterised:
    """Any NumPyro distribution with a reparameterised sampler.

    Args:
      make: `make(params)` returns a distribution, or a pytree of them like the position, one per
        leaf; a single one covers all entries: of the leaf's shape, or [d].
      params: start of the optimiser: a pytree of unconstrained floating-point arrays.
      over: "free": a distribution over the free coordinates (for unconstrained positions the
        position itself). "position": one over the constrained position, whose support must lie
        within the constraints, such as Gamma or Exponential for a positive parameter.

    Example:
      >>> import jax.numpy as jnp, numpyro.distributions as dist, sgld
      >>> posterior = sgld.Posterior(lambda t: -3 * t)                     # Exponential(3)
      >>> family = sgld.variational.Reparameterised(
      ...     lambda p: dist.Exponential(jnp.exp(p)), 0.0)
      >>> q = sgld.bayes_by_backprop(posterior, None, 1.0, family=family, num_samples=8)
      >>> round(float(jnp.exp(q.params)), 1)
      3.0
    """

    make: Callable[[PyTree], Any]
    params: PyTree
    over: Literal["free", "position"] = field(default="free", metadata={"static": True})
    title = "reparameterised family"
    caution = "underestimates variance where the family does not hold the posterior"

    def __post_init__(self) -> None:
        if self.over not in ("free", "position"):
            raise UsageError(f"over must be 'free' or 'position'. Got {self.over!r}.")
        if callable(self.make) and jax.tree_util.all_leaves([self.make]):
            object.__setattr__(self, "make", Partial(self.make))

    def draw(self, problem: Problem, params: PyTree, key: Array) -> tuple[Array, Array]:
        """Draw one z [d] of q by `key`, and return it with log q(z).

        Args:
          problem: the problem with the position's shapes.
          params: the parameters of q.
          key: a random key.
        """
        layout = self._layout(problem)
        with relaxed():
            made, treedef = find_distributions(self.make(params))
            keys = jax.random.split(key, len(made))
            parts = [one.rsample(keys[i]) for i, one in enumerate(made)]
            log_q = sum(jnp.sum(one.log_prob(x)) for one, x in zip(made, parts, strict=True))
            log_q = jnp.asarray(log_q, problem.layout.dtype)
        if len(made) == 1:
            tree = layout.unravel(jnp.ravel(parts[0]).astype(layout.dtype))
        else:
            tree = jax.tree.unflatten(treedef, parts)
        transform = problem.posterior.transform
        if self.over == "free" or transform is None:
            return problem.layout.ravel(tree), log_q
        free = transform.inverse(tree)
        return problem.layout.ravel(free), log_q + transform.log_det(free)

    def check(self, problem: Problem) -> None:
        """Raise UsageError if `make` does not return what `draw` needs for this `problem`."""
        if not callable(self.make):
            raise UsageError(f"make must be a function of params. Got {self.make!r}.")
        layout = self._layout(problem)
        with relaxed():
            made, treedef = find_distributions(self.make(self.params))
        shapes = layout.shapes if len(made) > 1 else layout.shapes[:1]
        if len(made) > 1 and treedef != layout.treedef:
            raise UsageError(
                f"make returned distributions in the structure {treedef}; the position's is "
                f"{layout.treedef}."
            )
        for one, shape in zip(made, shapes, strict=True):
            name = type(one).__name__
            if not one.has_rsample:
                raise UsageError(
                    f"{name} has no reparameterised sampler, so that no gradient passes through its "
                    "draws; use a distribution with one, such as Normal, StudentT, Gamma or LogNormal."
                )
            whole = len(made) == 1 and one.shape() == (layout.dimension,)
            single = len(made) == 1 and len(layout.shapes) > 1
            if not whole and (single or one.shape() != shape):
                expected = (layout.dimension,) if single else shape
                raise UsageError(f"{name} has shape {one.shape()}; expected {expected}.")
            if self.over == "free" and problem.posterior.transform is not None and not _real(one):
                raise UsageError(
                    f"{name} does not cover the real line, and the posterior is constrained; use "
                    "over='position' for a distribution of the position itself."
                )

    def _layout(self, problem: Problem) -> Layout:
        if self.over == "free" or problem.posterior.transform is None:
            return problem.layout
        z = jax.ShapeDtypeStruct((problem.dimension,), problem.layout.dtype)
        shapes = jax.eval_shape(problem.target.position, z)
        return Layout.of(jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes))


@contextmanager
def relaxed() -> Iterator[None]:
    """Allow mixed dtypes and ranks, which NumPyro and optax use."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def find_distributions(made: Any) -> tuple[list[Any], Any]:
    """Return the NumPyro distributions in a pytree of them, and its structure.

    Raises: UsageError if a leaf is not a distribution, and if there is no leaf.
    """
    kind = need("numpyro.distributions", "numpyro").Distribution
    leaves, treedef = jax.tree.flatten(made, is_leaf=lambda node: isinstance(node, kind))
    for leaf in leaves:
        if not isinstance(leaf, kind):
            raise UsageError(
                "make must return distributions of numpyro.distributions. "
                f"Got {type(leaf).__name__}."
            )
    if not leaves:
        raise UsageError("make returned no distribution; return at least one.")
    return leaves, treedef


def _real(distribution: Any) -> bool:
    constraints = need("numpyro.distributions", "numpyro").constraints
    support = distribution.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return isinstance(support, type(constraints.real))


# -- objective -----------------------------------------------------------------------------


KL_WEIGHTS: tuple[KLWeights, ...] = get_args(KLWeights)
ELBO_STREAM = 9  # random stream of the seed for draws at which the ELBO is measured


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
    """Return pi_b of the b-th block of a pass, b = 0 ... K - 1; the weights sum to 1.

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
    # numerator and denominator are divided by 2^K, so that any K is representable
    return jnp.exp2(-1.0 - jnp.asarray(b, float)) / -np.expm1(-num_blocks * np.log(2.0))


def block_objective(
    problem: Problem | Target, batch: Batch | None, weight: Array, z: Array, log_q: Array
) -> tuple[Array, Array]:
    """Return F_b of one draw, and an unbiased estimate of the ELBO from the same numbers."""
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
    problem: Problem, family: Family, params: PyTree, num_samples: int, seed: int
) -> Elbo:
    """Return log p(data, z) - log q(z) at `num_samples` draws of q, on all rows."""
    key = jax.random.fold_in(jax.random.key(seed), ELBO_STREAM)
    joint, log_q = _values(problem, family, params, key, num_samples=num_samples)
    values = np.asarray(joint, np.float64) - np.asarray(log_q, np.float64)
    se = values.std(ddof=1) / np.sqrt(num_samples) if num_samples > 1 else np.nan
    return Elbo(float(values.mean()), float(se), values)


def reparameterised_gradient(
    f: Callable[[Any], Array],
    make: Callable[[PyTree], Any],
    params: PyTree,
    *,
    num_samples: int = 1000,
    seed: int = 0,
) -> ReparameterisedGradient:
    """Estimate d/dparams of E_{x ~ make(params)}[f(x)] through the draws of x.

    The estimator is E_eps[grad f(g(params, eps))], Kingma & Welling 2014, sec. 2.4: x = mu + sigma
    eps for a Gaussian, x = -log(u) / rate for an exponential distribution.

    Args:
      f: function of one draw; returns a scalar.
      make: `make(params)` returns a NumPyro distribution with a reparameterised sampler.
      params: pytree of floating-point arrays.
      num_samples: draws of x.
      seed: another seed gives other draws.

    Raises: UsageError for a distribution without such a sampler.

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
            "through its draws; use a distribution with one, such as Normal or Exponential."
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
    """Return the sum over entries of log[share N(0, sd1^2) + (1 - share) N(0, sd2^2)].

    Blundell et al. 2015, eq. 7. Bind its numbers with `jax.tree_util.Partial`, so that other
    numbers do not compile it again.

    Args:
      position: a pytree of arrays, all of whose entries have this prior.
      share: weight of the first normal.
      sd1: sd of the first normal.
      sd2: sd of the second normal.

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
