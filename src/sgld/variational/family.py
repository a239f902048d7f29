"""Approximating families q(z; params) over free coordinates, with reparameterised draws.

A family draws z = g(params, eps) with eps free of params, so that a gradient passes through the
draw (Kingma & Welling 2014), and returns log q(z; params) beside it:

    mean-field  z = c + s (mu + softplus(rho) eps)      Blundell et al. 2015, sec. 3.2, per weight
    full rank   z = c + F (mu + L eps)                  L lower triangular, softplus on its diagonal
    any other   NumPyro's `rsample` and `log_prob`

c, s and F are fixed numbers that give the optimiser coordinates of unit scale; where none are
known they are 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from ..core.pytrees import Layout, as_pytree
from ..errors import UsageError, need
from ..model.problem import Problem

__all__ = [
    "Family",
    "FullRank",
    "MeanField",
    "Reparameterised",
    "find_distributions",
    "inverse_softplus",
    "relaxed",
]

PyTree = Any
HALF_LOG_2PI = 0.9189385332046727


@runtime_checkable
class Family(Protocol):
    """What a variational family does; itself a pytree, its parameters another."""

    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def caution(self) -> str: ...  # noqa: D102
    def draw(self, problem: Problem, params: PyTree, key: Array) -> tuple[Array, Array]: ...  # noqa: D102


def inverse_softplus(sd: Any) -> np.ndarray | np.floating:
    """rho with softplus(rho) = log(1 + e^rho) = sd, on the host in float64."""
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
        """Parameters of N(center, (scale sd)^2)."""
        rho = jnp.full_like(self.center, float(inverse_softplus(sd)))
        return {"mean": jnp.zeros_like(self.center), "rho": rho}

    def draw(self, problem: Problem, params: PyTree, key: Array) -> tuple[Array, Array]:
        """One draw z [d] of q with these `params`, by `key`, and log q(z); `problem` has the position's shapes."""
        return self.place(params, jax.random.normal(key, self.center.shape, self.center.dtype))

    def place(self, params: PyTree, eps: Array) -> tuple[Array, Array]:
        """z [d] and log q(z) of standard normal eps [d], q having these `params`."""
        sd = jax.nn.softplus(params["rho"])
        z = self.center + self.scale * (params["mean"] + sd * eps)
        log_q = -0.5 * eps**2 - HALF_LOG_2PI - jnp.log(sd) - jnp.log(self.scale)
        return z, jnp.sum(log_q)

    def moments(self, params: PyTree) -> tuple[np.ndarray, np.ndarray]:
        """Mean and sd of z [d], float64, q having these `params`."""
        mean, rho, center, scale = (
            np.asarray(a, np.float64)
            for a in (params["mean"], params["rho"], self.center, self.scale)
        )
        return center + scale * mean, scale * np.logaddexp(0, rho)

    def covariance(self, params: PyTree) -> np.ndarray:
        """Covariance of z, [d, d], float64, q having these `params`."""
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
    log_det: Float[Array, ""]  # of the factor
    title = "full-rank Gaussian"
    caution = "underestimates variance where the posterior is not Gaussian"

    @classmethod
    def around(cls, center: Array, factor: np.ndarray) -> FullRank:
        """The family in the coordinates of a square `factor` [d, d] about a `center` [d]."""
        log_det = np.linalg.slogdet(factor)[1]
        as_array = lambda a: jnp.asarray(np.asarray(a, center.dtype))  # noqa: E731
        return cls(center, as_array(factor), as_array(log_det))

    def start(self, sd: float) -> PyTree:
        """Parameters of N(center, sd^2 factor factor^T)."""
        d, rho = self.center.size, float(inverse_softplus(sd))
        return {
            "mean": jnp.zeros_like(self.center),
            "rho": jnp.full_like(self.center, rho),
            "lower": jnp.zeros((d, d), self.center.dtype),
        }

    def draw(self, problem: Problem, params: PyTree, key: Array) -> tuple[Array, Array]:
        """One draw z [d] of q with these `params`, by `key`, and log q(z); `problem` has the position's shapes."""
        return self.place(params, jax.random.normal(key, self.center.shape, self.center.dtype))

    def place(self, params: PyTree, eps: Array) -> tuple[Array, Array]:
        """z [d] and log q(z) of standard normal eps [d], q having these `params`."""
        sd = jax.nn.softplus(params["rho"])
        times = lambda A, x: jnp.matmul(A, x, precision="highest")  # noqa: E731
        u = params["mean"] + sd * eps + times(jnp.tril(params["lower"], -1), eps)
        log_q = jnp.sum(-0.5 * eps**2 - HALF_LOG_2PI - jnp.log(sd)) - self.log_det
        return self.center + times(self.factor, u), log_q

    def moments(self, params: PyTree) -> tuple[np.ndarray, np.ndarray]:
        """Mean and sd of z [d], float64, q having these `params`."""
        mean, center, factor = (
            np.asarray(a, np.float64) for a in (params["mean"], self.center, self.factor)
        )
        return center + factor @ mean, np.sqrt(np.diag(self.covariance(params)))

    def covariance(self, params: PyTree) -> np.ndarray:
        """Covariance of z, [d, d], float64, q having these `params`."""
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
      params: where the optimiser starts: a pytree of unconstrained floating-point arrays.
      over: "free": a law of the free coordinates (for unconstrained positions the position
        itself). "position": a law of the constrained position, whose support must lie within
        the constraints; Gamma or Exponential for a positive parameter, say.

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
        """One draw z [d] of q with these `params`, by `key`, and log q(z); `problem` has the position's shapes."""
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
        """Raises UsageError where `make` does not give what `draw` needs for this `problem`."""
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
                    "draws; use one that has, such as Normal, StudentT, Gamma or LogNormal."
                )
            whole = len(made) == 1 and one.shape() == (layout.dimension,)
            single = len(made) == 1 and len(layout.shapes) > 1
            if not whole and (single or one.shape() != shape):
                expected = (layout.dimension,) if single else shape
                raise UsageError(f"{name} has shape {one.shape()}; expected {expected}.")
            if self.over == "free" and problem.posterior.transform is not None and not _real(one):
                raise UsageError(
                    f"{name} does not cover the real line, and the posterior is constrained; say "
                    "over='position' for a law of the position itself."
                )

    def _layout(self, problem: Problem) -> Layout:
        if self.over == "free" or problem.posterior.transform is None:
            return problem.layout
        z = jax.ShapeDtypeStruct((problem.dimension,), problem.layout.dtype)
        shapes = jax.eval_shape(problem.target.position, z)
        return Layout.of(jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes))


@contextmanager
def relaxed() -> Iterator[None]:
    """NumPyro and optax mix dtypes and ranks."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def find_distributions(made: Any) -> tuple[list[Any], Any]:
    """The NumPyro distributions in a pytree of them, and its structure.

    Raises: UsageError where a leaf is none, and where there is no leaf.
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
