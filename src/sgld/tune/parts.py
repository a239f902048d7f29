"""The pieces that plans are made of: sampler, batches, estimator, its noise, and the law."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.source import Source
from ..errors import UsageError
from ..gaussian import noise
from ..gaussian.dense import Laplace
from ..gradient.control_variates import ControlVariates
from ..gradient.full import Full
from ..gradient.minibatch import Minibatch
from ..law.affine import AffineLaw, is_affine
from ..law.overdamped import Law
from ..problem import sums
from ..problem.request import Request, is_auto
from ..problem.target import Target
from ..sampler.replica_exchange import ReplicaExchange
from ..sampler.sgld import SGLD

__all__ = [
    "DEFAULT_BATCH",
    "allows_correction",
    "batches",
    "law",
    "matrix",
    "measure",
    "memoryless",
    "misfit",
    "no_step",
    "of_sampler",
    "prepared",
    "sampler",
]


DEFAULT_BATCH = 100
FEWEST_EACH = 5  # rows for each parameter that they determine, to judge the model by
MISFIT_ERROR = 0.15  # largest standard error of a misfit that is told, as a share


def sampler(ask: Request, correction: Any = None) -> Any:
    """The sampler asked for, SGLD with `correction` where it was left open."""
    sampler = SGLD() if is_auto(ask.sampler) else ask.sampler
    if isinstance(sampler, SGLD) and is_auto(sampler.noise_correction):
        sampler = SGLD(correction)
    return sampler


def allows_correction(ask: Request) -> bool:
    """Whether the injected noise may be corrected for the gradient's."""
    sampler = SGLD() if is_auto(ask.sampler) else ask.sampler
    return isinstance(sampler, SGLD) and is_auto(sampler.noise_correction)


def no_step(ask: Request) -> UsageError:
    """What is said where a sampler has no law to choose a step from."""
    name = type(ask.sampler).__name__
    return UsageError(
        f"step_size must be given with {name}: its law has no closed form to choose one from; "
        f"try step_size=0.01 with preconditioner=sgld.Dense(posterior covariance), or sgld.BAOA()."
    )


def batches(source: Source, size: Any, order: str, gradient: Any) -> Source:
    """The rows in batches of `size`, all of them for exact gradients."""
    size = source.num_data if isinstance(gradient, Full) and is_auto(size) else size
    return source.with_batches(size, order)


def prepared(gradient: Any, target: Target, source: Source | None, center: Any) -> Any:
    """The estimator with what it keeps at `center`. Raises UsageError without data."""
    if source is None and not isinstance(gradient, Full):
        raise UsageError(
            f"{type(gradient).__name__} needs data; with data=None use gradient=Full()."
        )
    center = None if center is None else target.layout.array(center)
    return gradient.prepare(target, source, center)


def memoryless(gradient: Any, target: Target, source: Source, laplace: Laplace) -> Any:
    """The estimator itself, or for one that learns along the run its kin with the mode as centre."""
    if not gradient.remembers:
        return gradient
    return prepared(ControlVariates(), target, source, laplace.mode)


def matrix(D: Any, target: Target) -> np.ndarray:
    """A factor P of a preconditioner, in float64: D = P P^T."""
    eye = jnp.eye(target.layout.dimension, dtype=target.layout.dtype)
    return np.asarray(jax.vmap(D.noise, in_axes=1, out_axes=1)(eye), np.float64)


def measure(target, source, gradient, laplace, T, seed) -> Float[np.ndarray, "d d"]:
    """Covariance of the gradient estimate; zero for the exact gradient."""
    d = laplace.mode.size
    if source is None or isinstance(gradient, Full):
        return np.zeros((d, d))
    if gradient.remembers:
        # its centre is itself a draw, so that the distance to it is twice as large in the square
        kin = memoryless(gradient, target, source, laplace)
        return 2 * measure(target, source, kin, laplace, T, seed)
    if source.num_blocks == 1 and source.uses_blocks:
        return np.zeros((d, d))
    if isinstance(gradient, Minibatch) and source.uses_blocks:
        return noise.block_noise(target, source, laplace.mode)
    count = max(512, 10 * d, min(2048, 2**16 // d))
    return noise.estimator_noise(target, source, gradient, laplace.tempered(T or 1.0), seed, count)


def misfit(
    target: Target, laplace: Laplace, at_mode: Float[np.ndarray, "count d"], num_data: int
) -> float | None:
    """tr F^T (N V_S) F over tr F^T J_lik F, from N times rows' scores: about 1 in a well-specified model.

    The denominator is the number of parameters that the data determine; fitting them takes so many
    of N squared scores. None where too few rows are left, or a few of them decide.
    """
    prior = np.asarray(sums.curvature(target, None, target.layout.array(laplace.mode)), np.float64)
    determined = float(np.trace(laplace.pull(laplace.pull(laplace.curvature - prior).T)))
    if not 0 < FEWEST_EACH * determined < num_data:
        return None
    size = np.sum(laplace.pull(at_mode - at_mode.mean(0)) ** 2, axis=1) / num_data
    spread = float(np.mean(size))
    if np.var(size) > min(num_data, len(size)) * (MISFIT_ERROR * spread) ** 2:
        return None
    return spread / determined / (1 - determined / num_data)


def law(target, source, laplace, factor, measured, sampler) -> Law | AffineLaw | None:
    """The run's stationary law on the Gaussian at the mode, for the reported parameters."""
    period = 1 if source is None or source.is_independent else source.num_blocks
    out = target.jacobian(laplace.mode)
    law = Law.of(laplace.curvature, factor, measured, period=max(1, period), out=out)
    return of_sampler(law, sampler)


def of_sampler(law: Law, sampler: Any) -> Law | AffineLaw | None:
    """The law of a sampler's steps; None where it has no closed form."""
    if isinstance(sampler, ReplicaExchange):
        sampler = sampler.sampler  # exchanges leave the cold chain's law as it is
    if isinstance(sampler, SGLD):
        return law
    return AffineLaw(law, sampler) if is_affine(sampler) else None
