"""The plan of a run: everything that was left to the library, chosen and explained.

A plan is a function of data, model, seed and versions, never of the clock. Values given
by hand are never changed. A step size given by hand means the textbook algorithm in
whatever else is left open (D = I, plain minibatches, reshuffled, no noise correction),
because a step size has a meaning only together with its preconditioner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.source import Source, generator
from ..errors import UsageError
from ..gradient.control_variates import ControlVariates
from ..gradient.full import Full
from ..gradient.minibatch import Minibatch
from ..posterior import Target
from ..preconditioner.fixed import Dense, Diagonal, Scalar
from ..sampler.replica_exchange import ReplicaExchange
from ..sampler.sgld import SGLD
from ..schedule import as_schedule
from . import noise
from .affine import AffineLaw, is_affine
from .curvature import Laplace, laplace_at, nonlinearity
from .law import Law, largest_step
from .mode import NEWTON_LIMIT, newton_mode, other_modes
from .noise import TUNING

__all__ = ["Plan", "Request", "is_auto", "make_plan", "memoryless", "settled"]

STEP_OVERHEAD = 32  # rows whose gradients cost as much as a step's fixed part
CORRECTED_STEP = 0.3  # largest step under noise correction, in units of the posterior
CORRECTABLE, HOPELESS = 0.3, 1.0  # thresholds of nu
DEFAULT_BATCH = 100
DEFAULT_DRAWS = 1000
_UNIT = Law(np.ones(1), np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1)))
SHORT, LONG = 10**5, 10**8  # most steps of a chain that the library takes by itself
MOST_DRAWS = 10**5  # and most draws
ADAPTING = 1000  # least burn-in of an adaptive preconditioner


@dataclass(frozen=True)
class Request:
    """What the user asked for; "auto" where it was left open."""

    sampler: Any
    step_size: Any
    tolerance: float
    temperature: Any
    gradient: Any
    preconditioner: Any
    order: str
    batch_size: int | str
    num_chains: int
    num_draws: int | str
    burn_in: int | str
    thin: int | str
    seed: int


@dataclass(frozen=True)
class Plan:
    """What will be run, and what was measured to choose it."""

    sampler: Any
    gradient: Any
    preconditioner: Any
    source: Source | None
    step_size: Any
    temperature: Any
    burn_in: int
    thin: int
    num_draws: int
    num_chains: int
    laplace: Laplace | None
    log_density: float
    nu: float | None
    noise: Float[np.ndarray, "d d"] | None
    law: Law | AffineLaw | None
    notes: tuple[str, ...]
    other_modes: int = 0

    @property
    def corrected(self) -> bool:
        """Whether the injected noise is corrected for the gradient's."""
        correction = getattr(self.sampler, "noise_correction", None)
        return correction is not None and not isinstance(correction, str)

    def describe(self) -> dict[str, Any]:
        """The plan in words and numbers, for printing and for run.json."""
        h = float(self.step_size(0))
        return {
            "sampler": type(self.sampler).__name__,
            "noise_correction": self.corrected,
            "gradient": type(self.gradient).__name__,
            "preconditioner": type(self.preconditioner).__name__,
            "order": self.source.order if self.source is not None else None,
            "batch_size": self.source.batch_size if self.source is not None else None,
            "step_size": h,
            "temperature": float(self.temperature(0)),
            "burn_in": self.burn_in,
            "thin": self.thin,
            "num_draws": self.num_draws,
            "num_chains": self.num_chains,
            "nu": self.nu,
            "notes": list(self.notes),
        }


def make_plan(
    target: Target, source: Source | None, z0: Float[np.ndarray, " d"], ask: Request
) -> Plan:
    """Mode, curvature, noise, then step size and lengths. `source` holds all rows as one batch."""
    notes: list[str] = []
    laplace, value, nu, others = None, float("nan"), None, 0
    temperature = as_schedule(ask.temperature, "temperature", zero=True)
    T = float(temperature(0))
    if target.layout.dimension <= NEWTON_LIMIT:
        mode, value, _, converged = newton_mode(target, source, jnp.asarray(z0))
        laplace = laplace_at(target, source, mode)
        if not converged:
            notes.append("the search for the mode did not converge; start closer, or rescale.")
        if laplace.positive_definite:
            nu = nonlinearity(target, source, laplace, generator(ask.seed, TUNING, 2), T or 1.0)
            # a mode e^-10 times less dense than another matters to nobody
            found = other_modes(target, source, laplace, generator(ask.seed, TUNING, 3))
            others = sum(density > value - 10 * (T or 1.0) for _, density in found)
        else:
            notes.append(
                "the curvature at the mode is not positive definite (smallest relative eigenvalue "
                f"{laplace.smallest:.2g}); NUTS is the better tool here: sgld reference."
            )
        if others:
            notes.append(
                f"the posterior has at least {others + 1} modes; how often the chains visit each need not "
                "be its weight: compare with sgld.reference, or use sgld.ReplicaExchange()."
            )
        if nu is not None and nu > HOPELESS:
            notes.append(
                f"the posterior is far from Gaussian (nu = {nu:.2g}); NUTS is the better tool where "
                "it is affordable: sgld.reference, or sgld reference RUN."
            )
    else:
        notes.append(
            f"{target.layout.dimension} parameters are more than {NEWTON_LIMIT}: "
            "no dense curvature, so no promise about the sd."
        )
    if not is_auto(ask.step_size):
        plan = _by_hand(target, source, ask, laplace, T)
    elif laplace is not None and nu is not None and T > 0:
        plan = _from_curvature(target, source, ask, laplace, nu, T)
    else:
        plan = _without_curvature(target, source, ask, z0 if laplace is None else laplace.mode)
    plan = replace(
        plan, temperature=temperature, laplace=laplace, log_density=value, nu=nu,
        notes=plan.notes + tuple(notes), other_modes=others,
    )  # fmt: skip
    return _with_lengths(plan, ask)


def is_auto(value: Any) -> bool:
    """Whether an argument was left to the library."""
    return isinstance(value, str) and value == "auto"


def _draft(**parts: Any) -> Plan:
    blank = dict(
        temperature=None, burn_in=0, thin=1, num_draws=0, num_chains=0, laplace=None,
        log_density=float("nan"), nu=None, noise=None, law=None, notes=(),
    )  # fmt: skip
    return Plan(**{**blank, **parts})


def _sampler(ask: Request, correction: Any = None) -> Any:
    sampler = SGLD() if is_auto(ask.sampler) else ask.sampler
    if isinstance(sampler, SGLD) and is_auto(sampler.noise_correction):
        sampler = SGLD(correction)
    return sampler


def _allows_correction(ask: Request) -> bool:
    sampler = SGLD() if is_auto(ask.sampler) else ask.sampler
    return isinstance(sampler, SGLD) and is_auto(sampler.noise_correction)


def _no_step(ask: Request) -> UsageError:
    name = type(ask.sampler).__name__
    return UsageError(
        f"step_size must be given with {name}: its law has no closed form to choose one from; "
        f"try step_size=0.01 with preconditioner=sgld.Dense(posterior covariance), or sgld.BAOA()."
    )


def _by_hand(
    target: Target, source: Source | None, ask: Request, laplace: Laplace | None, T: float
) -> Plan:
    """The textbook algorithm around a step size given by hand."""
    D = Scalar(1.0) if is_auto(ask.preconditioner) else ask.preconditioner
    D = D.prepare(target.layout)
    gradient: Any = ask.gradient
    if is_auto(gradient):
        gradient = Full() if source is None else Minibatch()
    if source is not None:
        size = min(DEFAULT_BATCH, source.num_data) if is_auto(ask.batch_size) else ask.batch_size
        order = "reshuffle" if is_auto(ask.order) else ask.order
        source = _batches(source, size, order, gradient)
    center = None if laplace is None else laplace.mode
    gradient = _prepared(gradient, target, source, center)
    measured, law = None, None
    if laplace is not None and laplace.positive_definite:
        measured = _measure(target, source, gradient, laplace, T, ask.seed)
        matrix = settled(D, target, source, laplace.mode)
        law = _law(target, source, laplace, _matrix(matrix, target), measured, _sampler(ask))
    return _draft(
        sampler=_sampler(ask), gradient=gradient, preconditioner=D, source=source,
        step_size=as_schedule(ask.step_size, "step_size"), noise=measured, law=law,
    )  # fmt: skip


def _batches(source: Source, size: Any, order: str, gradient: Any) -> Source:
    size = source.num_data if isinstance(gradient, Full) and is_auto(size) else size
    return source.with_batches(size, order)


def _prepared(gradient: Any, target: Target, source: Source | None, center: Any) -> Any:
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
    return _prepared(ControlVariates(), target, source, laplace.mode)


def _matrix(D: Any, target: Target) -> np.ndarray:
    """A factor P of a preconditioner, in float64: D = P P^T."""
    eye = jnp.eye(target.layout.dimension, dtype=target.layout.dtype)
    return np.asarray(jax.vmap(D.noise, in_axes=1, out_axes=1)(eye), np.float64)


def _measure(target, source, gradient, laplace, T, seed) -> Float[np.ndarray, "d d"]:
    """Covariance of the gradient estimate; zero for the exact gradient."""
    d = laplace.mode.size
    if source is None or isinstance(gradient, Full):
        return np.zeros((d, d))
    if gradient.remembers:
        # its centre is itself a draw, so that the distance to it is twice as large in the square
        kin = memoryless(gradient, target, source, laplace)
        return 2 * _measure(target, source, kin, laplace, T, seed)
    if source.num_blocks == 1 and source.uses_blocks:
        return np.zeros((d, d))
    if isinstance(gradient, Minibatch) and source.uses_blocks:
        return noise.block_noise(target, source, laplace.mode)
    count = max(512, 10 * d, min(2048, 2**16 // d))
    return noise.estimator_noise(target, source, gradient, laplace.tempered(T or 1.0), seed, count)


def _law(target, source, laplace, factor, measured, sampler) -> Law | AffineLaw | None:
    """The run's stationary law on the Gaussian at the mode, for the reported parameters."""
    period = 1 if source is None or source.is_independent else source.num_blocks
    out = target.jacobian(laplace.mode)
    law = Law.of(laplace.curvature, factor, measured, period=max(1, period), out=out)
    return _of_sampler(law, sampler)


def _of_sampler(law: Law, sampler: Any) -> Law | AffineLaw | None:
    """The law of a sampler's steps; None where it has no closed form."""
    if isinstance(sampler, ReplicaExchange):
        sampler = sampler.sampler  # exchanges leave the cold chain's law as it is
    if isinstance(sampler, SGLD):
        return law
    return AffineLaw(law, sampler) if is_affine(sampler) else None


@dataclass(frozen=True)
class _Choice:
    gradient: Any
    batch_size: int
    order: str
    corrected: bool
    cost: float


def _from_curvature(
    target: Target, source: Source | None, ask: Request, laplace: Laplace, nu: float, T: float
) -> Plan:
    """Estimator, batch, order and step by their predicted cost per effective draw."""
    if _of_sampler(_UNIT, _sampler(ask)) is None:
        raise _no_step(ask)
    dense = is_auto(ask.preconditioner)
    D = None if dense else ask.preconditioner.prepare(target.layout)
    if dense:
        factor = laplace.factor
    else:
        small = (
            None
            if source is None
            else source.with_batches(min(DEFAULT_BATCH, source.num_data), "reshuffle")
        )
        factor = _matrix(settled(D, target, small, laplace.mode), target)
    bias = ask.tolerance / 2
    correctable = dense and nu < CORRECTABLE and _allows_correction(ask)
    correctable = correctable and (is_auto(ask.gradient) or not ask.gradient.remembers)
    if source is None:
        gradient = Full() if is_auto(ask.gradient) else ask.gradient
        choice = _Choice(gradient, 0, "independent", correctable, 0.0)
    else:
        choice = _choose(target, source, ask, laplace, factor, correctable, bias, T)
        source = _batches(source, choice.batch_size, choice.order, choice.gradient)
    gradient = _prepared(choice.gradient, target, source, laplace.mode)
    measured = _measure(target, source, gradient, laplace, T, ask.seed)
    assert factor is not None
    white = factor.T @ measured @ factor
    values, turn = np.linalg.eigh(white)
    correction = None
    if choice.corrected:
        values = np.maximum(values, 0.0)
        h = _corrected_step(values[-1], T)
        factor, correction = factor @ turn, target.layout.array(values)
    law = _law(target, source, laplace, factor, measured, _sampler(ask))
    if not choice.corrected:
        h = largest_step(law, bias, T)
        if nu >= CORRECTABLE:
            h /= 1 + nu / CORRECTABLE
    if dense:
        D = Dense(laplace.covariance, factor).prepare(target.layout)
    return _draft(
        sampler=_sampler(ask, correction), gradient=gradient, preconditioner=D, source=source,
        step_size=as_schedule(h, "step_size"), noise=measured, law=law,
    )  # fmt: skip


def _corrected_step(largest_noise: float, T: float) -> float:
    return min(CORRECTED_STEP, 0.8 * T / (T + largest_noise))


def _choose(target, source, ask, laplace, factor, correctable, bias, T) -> _Choice:
    """The cheapest of control variates, plain minibatches and full gradients, per draw."""
    N, sampler = source.num_data, _sampler(ask)
    wide = laplace.tempered(T)
    given = None if is_auto(ask.gradient) else ask.gradient
    plain = cv = 0.0
    centred = isinstance(given, ControlVariates) or (given is not None and given.remembers)
    if not isinstance(given, Full):
        plain, cv = (
            _largest(factor, covariance)
            for covariance in noise.row_noise(target, source, wide, ask.seed)
        )
    if isinstance(given, Full):
        sizes = [N]
    elif is_auto(ask.batch_size):
        sizes = [2**k for k in range(N.bit_length()) if 2**k < N] + [N]
    else:
        sizes = [ask.batch_size]
    choices = []
    for n in sizes:
        left = 1 / n - 1 / N
        if isinstance(given, Full) or (given is None and n == N):
            choices.append(
                _priced(
                    Full() if given is None else given,
                    n,
                    "reshuffle",
                    0,
                    1,
                    correctable,
                    bias,
                    T,
                    sampler,
                )
            )
            continue
        if given is None or centred:
            order = "independent" if is_auto(ask.order) else ask.order
            period = -(-N // n) if order in ("reshuffle", "symmetric") else 1
            estimator = ControlVariates() if given is None else given
            choices.append(
                _priced(estimator, n, order, cv * left, period, correctable, bias, T, sampler)
            )
        if given is None or not centred:
            order = "reshuffle" if is_auto(ask.order) else ask.order
            period = -(-N // n) if order in ("reshuffle", "symmetric") else 1
            estimator = Minibatch() if given is None else given
            choices.append(
                _priced(estimator, n, order, plain * left, period, False, bias, T, sampler)
            )
    return min(choices, key=lambda choice: choice.cost)


def _priced(gradient, n, order, V, period, correctable, bias, T, sampler) -> _Choice:
    """Rows per effective draw, on a one-dimensional whitened target with gradient variance V."""
    corrected = correctable and (period == 1)
    if corrected:
        rate = h = _corrected_step(V, T)
    else:
        one = np.ones((1, 1))
        law = _of_sampler(Law(np.ones(1), one, V * one, one, period), sampler)
        assert law is not None  # a sampler without one was refused
        h = largest_step(law, bias, T)
        rate = law.rate(h)
    return _Choice(gradient, n, order, corrected, (n + STEP_OVERHEAD) * (2 - rate) / rate)


def _largest(factor: np.ndarray, covariance: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(factor.T @ covariance @ factor)[-1])


def _without_curvature(target: Target, source: Source | None, ask: Request, mode: Any) -> Plan:
    """No usable curvature: a diagonal metric from squared gradients, a cautious step."""
    z = target.layout.array(mode)
    gradient: Any = ask.gradient
    if is_auto(gradient):
        gradient = Full() if source is None else Minibatch()
    if is_auto(ask.preconditioner):
        D = Diagonal(1 / (_squared_gradients(target, source, z) + 1e-8)).prepare(target.layout)
    else:
        D = ask.preconditioner.prepare(target.layout)
    if source is not None:
        size = min(DEFAULT_BATCH, source.num_data) if is_auto(ask.batch_size) else ask.batch_size
        order = "reshuffle" if is_auto(ask.order) else ask.order
        source = _batches(source, size, order, gradient)
    matrix = settled(D, target, source, mode)
    h = ask.tolerance / max(1e-12, float(_stiffness(target, source, matrix, z)))
    return _draft(
        sampler=_sampler(ask), gradient=_prepared(gradient, target, source, mode),
        preconditioner=D, source=source, step_size=as_schedule(h, "step_size"),
    )  # fmt: skip


def settled(D: Any, target: Target, source: Source | None, mode: Any) -> Any:
    """The matrix itself; of an adaptive preconditioner, what it will be near the mode."""
    return _learnt(D, target, source, target.layout.array(mode)) if D.adapts else D


@jax.jit
def _learnt(D: Any, target: Target, source: Source | None, z: Any) -> Any:
    """What an adaptive preconditioner would be after 100 gradients at z."""
    estimator: Any = Full() if source is None else Minibatch()
    count = 1 if source is None else source.num_data
    blocks = 1 if source is None else source.num_blocks

    def learn(memory, k):
        g = estimator.at(target, source, k % blocks)(z)
        return D.after(memory, g / count), None

    return D.at(jax.lax.scan(learn, D.start(z), jnp.arange(100, dtype=jnp.int32))[0])


@jax.jit
def _squared_gradients(target, source, z):
    """Diagonal of the empirical Fisher information plus the prior's curvature along each axis."""
    prior = -jax.jvp(jax.grad(target.log_prior), (z,), (jnp.ones_like(z),))[1]
    prior = jnp.maximum(prior, 1e-6)
    if source is None:
        return jnp.maximum(prior, 1e-2 * jnp.max(prior))
    count = min(source.num_data, max(16, 2**22 // z.size))
    rows = jax.tree.map(lambda leaf: leaf[:count], source.rows)

    def one(row):
        return jax.grad(target.log_likelihood)(z, jax.tree.map(lambda leaf: leaf[None], row)) ** 2

    squares = jnp.sum(jax.lax.map(one, rows, batch_size=max(1, 2**20 // z.size)), 0)
    return prior + squares * (source.num_data / count)


@jax.jit
def _stiffness(target, source, D, z):
    """lambda_max of D^{1/2}^T J D^{1/2} by power iteration on a few thousand rows."""
    gradient = jax.grad(target.log_prior)
    if source is not None:
        count = min(source.num_data, 4096)
        rows = jax.tree.map(lambda leaf: leaf[:count], source.rows)
        scale = source.num_data / count
        gradient = jax.grad(lambda q: target.log_prior(q) + scale * target.log_likelihood(q, rows))
    times = lambda v: -D.pullback(jax.jvp(gradient, (z,), (D.noise(v),))[1])  # noqa: E731

    def iterate(v, _):
        v = times(v)
        size = jnp.linalg.norm(v)
        return v / jnp.maximum(size, 1e-30), size

    start = jax.random.normal(jax.random.key(0), z.shape, z.dtype)
    return jax.lax.scan(iterate, start / jnp.linalg.norm(start), length=30)[1][-1]


def _with_lengths(plan: Plan, ask: Request) -> Plan:
    """Burn-in, thinning and number of draws."""
    h = float(plan.step_size(0))
    # without a law the step is `tolerance` of the stiffest direction's time scale
    rate = ask.tolerance / 10 if plan.law is None else max(plan.law.rate(h), 1e-12)
    # where nothing is promised anyway, nobody waits for billions of steps
    longest = SHORT if plan.nu is None or plan.nu > HOPELESS else LONG
    burn_in = min(longest, int(np.ceil(6 / rate))) if is_auto(ask.burn_in) else int(ask.burn_in)
    if is_auto(ask.burn_in) and plan.preconditioner.adapts:
        burn_in = max(burn_in, ADAPTING)
    if not is_auto(ask.thin):
        thin = int(ask.thin)
    elif is_auto(ask.step_size):
        thin = max(1, min(longest // DEFAULT_DRAWS, math.ceil(1 / rate)))
    else:
        thin = 1
    num_draws = ask.num_draws
    if is_auto(num_draws):
        decay = (1 - min(rate, 1.0)) ** (2 * thin)
        needed = 2 / ask.tolerance**2 * (1 + decay) / (1 - decay) / ask.num_chains
        num_draws = max(DEFAULT_DRAWS, math.ceil(min(1.25 * needed, MOST_DRAWS)))
        num_draws = DEFAULT_DRAWS if not is_auto(ask.step_size) else num_draws
    return replace(
        plan, burn_in=burn_in, thin=thin, num_draws=int(num_draws), num_chains=ask.num_chains
    )
