"""Parts of a step: sampler, batches, gradient estimator, its noise, stationary distribution.

The module also gives preconditioners as matrices, and estimates the factors of a Kronecker
preconditioner from gradients of single rows.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...approximation import gradient_noise
from ...approximation.gradient_noise import ROW_GRADIENT_NUMBERS
from ...approximation.laplace import Laplace
from ...core.devices import sent
from ...core.pytrees import check_compiled
from ...errors import UsageError
from ...model.problem import Problem, Request, is_auto
from ...model.sums import row_gradient
from ...samplers.gradients.control_variates import ControlVariates
from ...samplers.gradients.full import Full, Minibatch
from ...samplers.preconditioners.kronecker import Kronecker, matrix_of
from ...samplers.sgld import SGLD
from ...samplers.stationary import AffineLaw, Law, largest_step, of_sampler, off

DEFAULT_BATCH_ROWS = 100
# share of the longest stable step at which the error reports sds that no step makes right
UNSTABLE_STEP_SHARE = 1e-4
# differences of two batches' gradients from which their covariance is measured
MAX_DIFFERENCES = 10_000


def sampler_of(ask: Request, correction: Any = None) -> Any:
    """Return the requested sampler, with `correction` for an SGLD whose correction was left open.

    A class derived from SGLD gets no correction.
    """
    sampler = SGLD() if is_auto(ask.sampler) else ask.sampler
    if isinstance(sampler, SGLD) and is_auto(sampler.noise_correction):
        own = type(sampler) is not SGLD  # a derived class has another step
        sampler = dataclasses.replace(sampler, noise_correction=None if own else correction)
    return sampler


def allows_correction(ask: Request) -> bool:
    """Return whether the injected noise may be corrected for the gradient noise."""
    sampler = SGLD() if is_auto(ask.sampler) else ask.sampler
    return type(sampler) is SGLD and is_auto(sampler.noise_correction)


def no_step(ask: Request) -> UsageError:
    """Return the error for a sampler without a stationary distribution to choose a step from."""
    name = type(ask.sampler).__name__
    return UsageError(
        f"step_size must be given with {name}: its stationary distribution has no closed form to choose one from; "
        f"try step_size=0.01 with preconditioner=sgld.Dense(posterior covariance), or sgld.BAOA()."
    )


def largest_within(law: Any, bias: float, T: float, ask: Request) -> float:
    """Return the largest step whose sds are within `bias`.

    Raises UsageError if there is none, however small.
    """
    h = largest_step(law, bias, T)
    if off(law, h, T) <= bias:
        return h
    ratio = law.ratio(UNSTABLE_STEP_SHARE * law.longest / law.a.max(), T)
    worst = float(ratio[np.nanargmax(np.abs(ratio - 1))])
    name = type(sampler_of(ask)).__name__
    raise UsageError(
        f"no step size makes {name} follow the posterior: on its Gaussian an sd is {worst:.3g} times the right one "
        "however small the step; fix its drift or its noise (sgld.testing.check_sampler says which), or give "
        "step_size=."
    )


def finite(noise: Any) -> Any:
    """Return the noise unchanged.

    Raises UsageError if it is not finite, because no step is small enough for it.
    """
    if np.isfinite(noise).all():
        return noise
    raise UsageError(
        "no step size is small enough for the gradient noise at the mode: the log likelihood of some row, or its "
        "gradient, is not finite there in the run's precision; write it in a stable form (jax.nn.log_sigmoid, "
        "jnp.logaddexp), leave that row out, or take all rows in every step: gradient=sgld.Full()."
    )


def in_batches(problem: Problem, size: Any, order: str, gradient: Any) -> Problem:
    """Return the problem with rows in batches of `size`, or in one batch for exact gradients."""
    everything = isinstance(gradient, Full) and is_auto(size)
    return problem.with_batches(problem.num_data if everything else size, order)


def plain_batches(problem: Problem, ask: Request) -> tuple[Any, Problem]:
    """Return the textbook estimator and batches where left open: some rows, reshuffled."""
    gradient: Any = ask.gradient
    if is_auto(gradient):
        gradient = Minibatch() if problem.has_rows else Full()
    if not problem.has_rows:
        return gradient, problem
    size = min(DEFAULT_BATCH_ROWS, problem.num_data) if is_auto(ask.batch_size) else ask.batch_size
    order = "reshuffle" if is_auto(ask.order) else ask.order
    return gradient, in_batches(problem, size, order, gradient)


def prepared(gradient: Any, problem: Problem, center: Any) -> Any:
    """Return the estimator with what it keeps at `center`.

    Raises UsageError if it needs data and there are none.
    """
    if not problem.has_rows and not isinstance(gradient, Full):
        raise UsageError(
            f"{type(gradient).__name__} needs data; with data=None use gradient=Full()."
        )
    found = gradient.prepare(problem, None if center is None else problem.array(center))
    check_compiled(f"the gradient {type(gradient).__name__}", found)
    return found


def measure(
    problem: Problem, gradient: Any, laplace: Laplace, T: float, seed: int
) -> Float[np.ndarray, "d d"]:
    """Return the covariance of the gradient estimate; zero for the exact gradient."""
    d = laplace.center.size
    if not problem.has_rows or isinstance(gradient, Full):
        return np.zeros((d, d))
    if gradient.remembers:
        # control variates centred at the mode; the centre here is itself a draw, so that the squared
        # distance to it is twice as large
        centred = prepared(ControlVariates(), problem, laplace.center)
        return 2 * measure(problem, centred, laplace, T, seed)
    source = problem.source
    if source.num_blocks == 1 and source.uses_blocks:
        return np.zeros((d, d))
    if isinstance(gradient, Minibatch) and source.uses_blocks:
        return gradient_noise.block_noise(problem, laplace.center)
    count = max(512, min(10 * d, MAX_DIFFERENCES), min(2048, 2**16 // d))
    return gradient_noise.estimator_noise(
        problem, gradient, laplace.tempered(T or 1.0), seed, count
    )


def stationary_law(
    problem: Problem,
    laplace: Laplace,
    factor: Float[np.ndarray, "d d"],
    measured: Float[np.ndarray, "d d"],
    sampler: Any,
) -> Law | AffineLaw | None:
    """Return the run's stationary distribution of reported parameters on the known Gaussian."""
    out = problem.target.jacobian(laplace.center)
    law = Law.of(laplace.curvature, factor, measured, period=shuffled_period(problem), out=out)
    return of_sampler(law, sampler)


def shuffled_period(problem: Problem) -> int:
    """Return the blocks of a reshuffled pass, 1 if batches are independent."""
    independent = problem.has_rows and problem.source.is_independent
    return 1 if independent else problem.num_blocks


# -- metric --------------------------------------------------------------------------------


ADAPTATION_GRADIENTS = 100  # gradients after which an adaptive preconditioner has settled


def factor_of(D: Any, problem: Problem) -> Float[np.ndarray, "d d"]:
    """Return P with D = P P^T, in float64."""
    eye = jnp.eye(problem.dimension, dtype=problem.layout.dtype)
    return np.asarray(jax.vmap(D.noise, in_axes=1, out_axes=1)(eye), np.float64)


def settled(D: Any, problem: Problem, z: Any) -> Any:
    """Return the matrix itself; for an adaptive preconditioner, its state near z."""
    return _adapted_matrix(D, problem, problem.array(z)) if D.adapts else D


@jax.jit
def _adapted_matrix(D: Any, problem: Problem, z: Any) -> Any:
    """Return an adaptive preconditioner after ADAPTATION_GRADIENTS gradients at z."""
    estimator: Any = Minibatch() if problem.has_rows else Full()
    count = max(1, problem.num_data)
    blocks = problem.num_blocks

    def learn(memory, k):
        g = estimator.at(problem, k % blocks)(z)
        return D.after(memory, g / count), None

    return D.at(
        jax.lax.scan(learn, D.start(z), jnp.arange(ADAPTATION_GRADIENTS, dtype=jnp.int32))[0]
    )


# -- kronecker -----------------------------------------------------------------------------


MAX_ROTATED_SIDE = 2048  # longest side of a rotated matrix, whose eigenvectors take seconds

Shapes = tuple[tuple[int, int] | None, ...]


def estimate_factors(
    problem: Problem, zs: Float[Array, "chain d"], prior: Float[np.ndarray, " d"], rows: int
) -> Kronecker:
    """Return the inverse of the rows' Fisher information plus the prior's curvature.

    It is diagonal in the eigenbasis of the rows' gradients, estimated on `rows` rows, which the zs
    share. For a leaf W with row gradients G:

        U, V   eigenvectors of E G G^T and E G^T G
        s      1 / (N E (U^T G V)^2 + prior's curvature), averaged over the leaf for another basis
    """
    shapes = tuple(matrix_of(shape, MAX_ROTATED_SIDE) for shape in problem.layout.shapes)
    turns = tuple(
        None if pair is None else tuple(_eigenvectors(problem, moment) for moment in pair)
        for pair in _mean(problem, zs, rows, None, shapes)
    )
    squares = _mean(problem, zs, rows, turns, shapes)
    scale = []
    for square, own, shape in zip(
        squares, np.split(prior, problem.layout.ends[:-1]), shapes, strict=True
    ):
        curvature = own if shape is None else own.mean()
        scale.append(1 / np.maximum(problem.num_data * np.asarray(square) + curvature, 1e-8))
    left, right = zip(*((None, None) if pair is None else pair for pair in turns), strict=True)
    return Kronecker(left, right, tuple(scale)).prepare(problem.layout)


def _eigenvectors(problem: Problem, moment: Array) -> Array:
    found = np.asarray(moment, np.float64)
    if not np.isfinite(found).all():
        raise UsageError(
            "the rows' gradients are so large that their squares are not finite; scale inputs and outcomes to sds near 1."
        )
    return problem.array(np.linalg.eigh(found)[1])


def _mean(problem: Problem, zs: Array, rows: int, turns: Any, shapes: Shapes) -> list[Any]:
    """Return per leaf the moments of row gradients, or their squares in the basis `turns`.

    Each z uses its own rows.
    """
    share = max(1, -(-min(rows, problem.num_data) // len(zs)))
    together = max(1, min(share, ROW_GRADIENT_NUMBERS // problem.dimension))
    total, count = None, 0
    for k, z in enumerate(zs):
        for begin in range(0, share, together):
            numbers = (k * share + begin + np.arange(together)) % problem.num_data
            found = _summed(problem, z, sent(numbers, np.int32), turns, shapes=shapes)
            total = found if total is None else jax.tree.map(jnp.add, total, found)
            count += together
    return jax.tree.map(lambda part: part / count, total)


@partial(jax.jit, static_argnames=("shapes",))
def _summed(problem: Problem, z: Array, numbers: Array, turns: Any, *, shapes: Shapes) -> list[Any]:
    g = jax.vmap(lambda row: row_gradient(problem, z, row))(numbers)
    found: list[Any] = []
    for k, (G, shape) in enumerate(
        zip(jnp.split(g, problem.layout.ends[:-1], axis=1), shapes, strict=True)
    ):
        if shape is None:
            found.append(None if turns is None else jnp.sum(G**2, axis=0))
            continue
        G = G.reshape(-1, *shape)
        if turns is None:
            found.append((jnp.einsum("rij,rkj->ik", G, G), jnp.einsum("rij,rik->jk", G, G)))
        else:
            U, V = turns[k]
            turned = jnp.einsum("ik,rij,jl->rkl", U, G, V, optimize=True)
            found.append(jnp.sum(turned**2, axis=0))
    return found
