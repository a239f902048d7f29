"""The step on a Gaussian target as an affine map, by its Jacobians in double precision.

`check_needs` tests that a part has the names that its contract requires.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_discrete_lyapunov

from ...core.pytrees import release_mistakable
from ..gradients.full import Estimate
from ..preconditioners.fixed import Scalar

Matrix = Float[np.ndarray, "d d"]
FAR_SDS = 1e4  # sds from the mode at which a step must still be the same map
STEPS_WITH_A_COUNT = 3  # steps after which it must be the same map, if the state counts them


class Affine(NamedTuple):
    """The map state' = A state + B noise + G e + b, e a gradient error; P selects positions."""

    A: np.ndarray
    B: np.ndarray
    G: np.ndarray
    b: np.ndarray
    P: np.ndarray
    is_affine: bool


def stationary_covariance(
    sampler: Any,
    curvature: Any,
    step_size: float,
    *,
    temperature: float = 1.0,
    gradient_noise: Any = 0.0,
    preconditioner: Any = Scalar(1.0),
) -> Matrix:
    """Compute the exact stationary covariance of a sampler's position on a Gaussian.

    Solves S = A S A^T + B B^T + G C G^T, with A, B, G the Jacobians of one step by state,
    noise and gradient. The true covariance is temperature * inverse of the curvature.

    Args:
      sampler: any object of this module's contract whose step is affine on a Gaussian.
      curvature: of -log posterior: a matrix, its diagonal, or one number.
      step_size: as for the step.
      temperature: as for the step.
      gradient_noise: covariance C of an error added to the gradient, independent between
        steps: a matrix, its diagonal, or one number.
      preconditioner: as for the step.

    Raises: ValueError where the step is not affine (thermostats), or is unstable.

    Example:
      >>> import sgld
      >>> S = sgld.testing.stationary_covariance(sgld.SGLD(None), 1.0, 0.5)
      >>> round(float(S[0, 0]), 6)  # 1 / (1 - h/2)
      1.333333
    """
    J = _matrix(curvature)
    C = _matrix(gradient_noise, len(J))
    mean = np.zeros(len(J))
    release_mistakable(sampler)
    step = affine(bound(sampler), J, mean, step_size, temperature, preconditioner)
    if not step.is_affine:
        raise ValueError(f"the step of {name_of(sampler)} is not affine on a Gaussian target.")
    if (radius := spectral_radius(step.A)) >= 1:
        raise ValueError(
            f"{name_of(sampler)} is unstable at step_size {step_size:g}: spectral radius {radius:.4g}."
        )
    S = solve_discrete_lyapunov(step.A, step.B @ step.B.T + step.G @ C @ step.G.T)
    return step.P @ S @ step.P.T


def _matrix(value: Any, dimension: int = 1) -> Matrix:
    value = np.asarray(value, np.float64)
    if value.ndim == 0:
        return float(value) * np.eye(dimension)
    return np.diag(value) if value.ndim == 1 else value


def name_of(thing: Any) -> str:
    """Return the name of the object's class."""
    return type(_unbound(thing)).__name__


def spectral_radius(A: np.ndarray) -> float:
    """Return the largest modulus of an eigenvalue."""
    return float(np.abs(np.linalg.eigvals(A)).max())


def gaussian(J: Any, mean: Any, error: Any = 0.0) -> Estimate:
    """Return the log density of N(mean, J^-1), with `error` added to its gradient."""
    J, mean, error = jnp.asarray(J), jnp.asarray(mean), jnp.asarray(error, jnp.result_type(J))

    def log_density(q: Any) -> Any:
        x = q - mean
        return jnp.sum(error * x) - 0.5 * jnp.dot(x, J @ x)

    return Estimate(log_density)


def noise_shape(sampler: Any, d: int) -> tuple[int, ...]:
    """Return the shape of the standard normals of one step."""
    return (d,) if sampler.num_noises == 1 else (sampler.num_noises, d)


@jax.tree_util.register_static
class _Opaque:
    """A sampler that is not a pytree of numbers, as a constant of compiled code."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler


def bound(sampler: Any) -> Any:
    """Return the sampler as an argument of compiled functions; a pytree compiles only once."""
    if isinstance(sampler, _Opaque):
        return sampler
    leaves = jax.tree.leaves(sampler)
    numbers = all(isinstance(x, (jax.Array, np.ndarray, float, int)) for x in leaves)
    return sampler if numbers else _Opaque(sampler)


def _unbound(sampler: Any) -> Any:
    return sampler.sampler if isinstance(sampler, _Opaque) else sampler


def counts(sampler: Any) -> bool:
    """Return whether the state holds more than floating-point numbers: a count of steps, a key."""
    leaves = jax.tree.leaves(jax.eval_shape(_unbound(sampler).init, jnp.zeros(1)))
    return not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves)


def _flat(state: Any) -> tuple[Any, Callable]:
    """Return the state's floating leaves as a flat vector, and the inverse function."""
    leaves, treedef = jax.tree.flatten(state)
    real = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
    flat, unravel = jax.flatten_util.ravel_pytree(list(itertools.compress(leaves, real)))

    def rebuild(vector):
        parts = iter(unravel(vector))
        return treedef.unflatten(
            [next(parts) if r else leaf for leaf, r in zip(leaves, real, strict=True)]
        )

    return flat, rebuild


@jax.jit
def _jacobians(sampler, J, mean, h, T, D, state, offset, noise, error):
    """Return value and Jacobians of one step, `offset` away from a state."""
    sampler = _unbound(sampler)
    flat, rebuild = _flat(state)
    shape = noise_shape(sampler, len(J))

    def step(vector, noise, error):
        state, grad = rebuild(vector), gaussian(J, mean, error)
        new = sampler.step(state, grad, h, noise.reshape(shape), preconditioner=D, temperature=T)
        leaves = [x for x in jax.tree.leaves(new) if jnp.issubdtype(x.dtype, jnp.floating)]
        return jax.flatten_util.ravel_pytree(leaves)[0]

    at = (flat + offset, noise, error)
    picks = jax.jacfwd(lambda v: rebuild(v).position)(flat)
    return at[0], step(*at), jax.jacfwd(step, (0, 1, 2))(*at), picks


def affine(
    sampler: Any, J: Any, mean: Any, step_size: float, temperature: float, preconditioner: Any
) -> Affine:
    """Compute the Jacobians of one step near the origin, and whether they are the same elsewhere.

    The step is affine where they are equal far away and after some steps.
    """
    with jax.enable_x64(True):
        d, shape = len(J), noise_shape(_unbound(sampler), len(J))
        h, T = np.float64(step_size), np.float64(temperature)
        arguments = (double(sampler), J, mean, h, T, double(preconditioner))
        states = [_unbound(arguments[0]).init(jnp.zeros(d))]
        for _ in range(STEPS_WITH_A_COUNT if counts(sampler) else 0):
            states.append(
                _unbound(arguments[0]).step(
                    states[-1], gaussian(J, mean), h, np.zeros(shape),
                    preconditioner=arguments[-1], temperature=T,
                )
            )  # fmt: skip
        size, count = _flat(states[0])[0].size, math.prod(shape)
        zero = (np.zeros(size), np.zeros(count), np.zeros(d))
        found = _jacobians(*arguments, states[0], *zero)
        flat, value, (A, B, G), P = jax.tree.map(np.asarray, found)
        rng = np.random.default_rng(0)
        far = (FAR_SDS * rng.standard_normal(size), 0.5 + rng.random(count), np.ones(d))
        same = all(
            np.allclose(a, b, rtol=1e-9, atol=1e-12)
            for state in states
            for a, b in zip((A, B, G), _jacobians(*arguments, state, *far)[2], strict=True)
        )
        return Affine(A, B, G, value - A @ flat, P, same)


@jax.jit
def positions(sampler, J, mean, start, noises, h, T, D):
    """Return the positions along a few steps."""
    sampler, grad = _unbound(sampler), gaussian(J, mean)

    def one(state, xi):
        new = sampler.step(state, grad, h, xi, preconditioner=D, temperature=T)
        return new, new.position

    return jax.lax.scan(one, sampler.init(start), noises)[1]


def double(tree: Any) -> Any:
    """Convert floating leaves to double precision."""

    def widen(leaf):
        if isinstance(leaf, (jax.Array, np.ndarray)) and jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(leaf, jnp.float64)
        return leaf

    return jax.tree.map(widen, tree)


# -- needs ---------------------------------------------------------------------------------


def check_needs(kind: str, part: Any, *names: str) -> None:
    """Raise AssertionError unless `part`, for example a sampler, is an object with all `names`."""
    if isinstance(part, type):
        raise AssertionError(f"{part.__name__} is a class; give a {kind}: {part.__name__}(...).")
    for name in names:
        if not hasattr(part, name):
            raise AssertionError(f"{type(part).__name__}: a {kind} needs `{name}`.")
