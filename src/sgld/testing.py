"""Public contract suites: certify a sampler, a source of rows or a gradient estimator of your own.

    from sgld.testing import check_sampler
    print(check_sampler(MySampler()))          # a report, or an AssertionError in a sentence

A sampler is any object with

    num_noises                                  standard normals per coordinate and step
    init(position) -> state                     a pytree with `.position`; the same shapes for ever
    step(state, grad, step_size, noise, *, preconditioner, temperature) -> state

where `grad` is a function of position (the gradient of the log posterior), `noise` has the
position's shape ([num_noises, d] where num_noises > 1), D = preconditioner has `drift(g)` = D g
and `noise(xi)` = D^{1/2} xi, and `step_size` h is the coefficient of the gradient of the
full-data log posterior. Nothing is sampled where that can be avoided: on a Gaussian target
a step is an affine map of state and noise, so its Jacobians give the stationary law exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .data.source import Source
from .layout import Layout
from .posterior import Posterior, Target
from .preconditioner.fixed import Dense, Diagonal, Scalar

__all__ = [
    "GradientReport",
    "SamplerReport",
    "SourceReport",
    "check_gradient",
    "check_sampler",
    "check_source",
    "stationary_covariance",
]

Matrix = Float[np.ndarray, "d d"]


# -- the step on a Gaussian target, as an affine map ---------------------------------------


class _Affine(NamedTuple):
    """state' = A state + B noise + G e + b, e an error added to the gradient; P picks positions."""

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
    """The exact covariance of the position under a sampler's stationary law on a Gaussian.

    Solves S = A S A^T + B B^T + G C G^T, with A, B, G the Jacobians of one step by state,
    noise and gradient; the truth is temperature * inverse of the curvature.

    Args:
      sampler: any object of this module's contract whose step is affine on a Gaussian.
      curvature: of -log posterior: a matrix, its diagonal, or one number.
      step_size, temperature, preconditioner: as for the step.
      gradient_noise: covariance C of an error added to the gradient, independent between
        steps: a matrix, its diagonal, or one number.

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
    step = _affine(_bound(sampler), J, mean, step_size, temperature, preconditioner)
    if not step.is_affine:
        raise ValueError(f"the step of {_name(sampler)} is not affine on a Gaussian target.")
    if (radius := _radius(step.A)) >= 1:
        raise ValueError(
            f"{_name(sampler)} is unstable at step_size {step_size:g}: spectral radius {radius:.4g}."
        )
    S = _lyapunov(step.A, step.B @ step.B.T + step.G @ C @ step.G.T)
    return step.P @ S @ step.P.T


def _matrix(value: Any, dimension: int = 1) -> Matrix:
    value = np.asarray(value, np.float64)
    if value.ndim == 0:
        return float(value) * np.eye(dimension)
    return np.diag(value) if value.ndim == 1 else value


def _name(thing: Any) -> str:
    return type(_unbound(thing)).__name__


def _radius(A: np.ndarray) -> float:
    return float(np.abs(np.linalg.eigvals(A)).max())


def _lyapunov(A: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """S = A S A^T + Q by doubling: the partial sums of A^k Q A^k^T, twice as many each time."""
    S = Q
    for _ in range(64):
        new = S + A @ S @ A.T
        A = A @ A
        if np.abs(new - S).max() <= 1e-17 * np.abs(new).max():
            break
        S = new
    return S


def _target_gradient(J: np.ndarray, mean: np.ndarray) -> Callable:
    J, mean = jnp.asarray(J), jnp.asarray(mean)
    return lambda q: -(J @ (q - mean))


def _noise_shape(sampler: Any, d: int) -> tuple[int, ...]:
    return (d,) if sampler.num_noises == 1 else (sampler.num_noises, d)


@jax.tree_util.register_static
class _Opaque:
    """A sampler that is no pytree of numbers, as a constant of compiled code."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler


def _bound(sampler: Any) -> Any:
    """The sampler as an argument of compiled functions; one that is a pytree compiles once."""
    if isinstance(sampler, _Opaque):
        return sampler
    leaves = jax.tree.leaves(sampler)
    numbers = all(isinstance(x, (jax.Array, np.ndarray, float, int)) for x in leaves)
    return sampler if numbers else _Opaque(sampler)


def _unbound(sampler: Any) -> Any:
    return sampler.sampler if isinstance(sampler, _Opaque) else sampler


def _flat_state(sampler: Any, d: int) -> tuple[Any, Callable]:
    """The state at the origin as a flat vector of its floating leaves, and the way back."""
    leaves, treedef = jax.tree.flatten(sampler.init(jnp.zeros(d)))
    real = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
    flat, unravel = jax.flatten_util.ravel_pytree(list(itertools.compress(leaves, real)))

    def rebuild(vector):
        parts = iter(unravel(vector))
        return treedef.unflatten(
            [next(parts) if r else leaf for leaf, r in zip(leaves, real, strict=True)]
        )

    return flat, rebuild


@jax.jit
def _jacobians(sampler, J, mean, h, T, D, offset, noise, error):
    """Value and Jacobians of one step, `offset` away from the state at the origin."""
    sampler = _unbound(sampler)
    flat, rebuild = _flat_state(sampler, len(J))
    grad = _target_gradient(J, mean)
    shape = _noise_shape(sampler, len(J))

    def step(vector, noise, error):
        state, slope = rebuild(vector), lambda q: grad(q) + error
        new = sampler.step(state, slope, h, noise.reshape(shape), preconditioner=D, temperature=T)
        leaves = [x for x in jax.tree.leaves(new) if jnp.issubdtype(x.dtype, jnp.floating)]
        return jax.flatten_util.ravel_pytree(leaves)[0]

    at = (flat + offset, noise, error)
    picks = jax.jacfwd(lambda v: rebuild(v).position)(flat)
    return at[0], step(*at), jax.jacfwd(step, (0, 1, 2))(*at), picks


def _affine(sampler, J, mean, step_size, temperature, preconditioner) -> _Affine:
    """Jacobians of one step at two states; equal where the step is affine."""
    with jax.enable_x64(True):
        d, count = len(J), int(np.prod(_noise_shape(_unbound(sampler), len(J))))
        h, T = np.float64(step_size), np.float64(temperature)
        arguments = (_double(sampler), J, mean, h, T, _double(preconditioner))
        size = jax.eval_shape(lambda: _flat_state(_unbound(sampler), d)[0]).size
        zero = (np.zeros(size), np.zeros(count), np.zeros(d))
        flat, value, (A, B, G), P = jax.tree.map(np.asarray, _jacobians(*arguments, *zero))
        rng = np.random.default_rng(0)
        other = (rng.standard_normal(size), 0.5 + rng.random(count), np.ones(d))
        there = _jacobians(*arguments, *other)[2]
        same = all(
            np.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip((A, B, G), there, strict=True)
        )
        return _Affine(A, B, G, value - A @ flat, P, same)


@jax.jit
def _positions(sampler, J, mean, start, noises, h, T, D):
    """Positions along a few steps."""
    sampler, grad = _unbound(sampler), _target_gradient(J, mean)

    def one(state, xi):
        new = sampler.step(state, grad, h, xi, preconditioner=D, temperature=T)
        return new, new.position

    return jax.lax.scan(one, sampler.init(start), noises)[1]


def _double(tree: Any) -> Any:
    """Floating leaves in double precision."""

    def widen(leaf):
        if isinstance(leaf, (jax.Array, np.ndarray)) and jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(leaf, jnp.float64)
        return leaf

    return jax.tree.map(widen, tree)


# -- samplers -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SamplerReport:
    """What `check_sampler` found.

    Attributes:
      sampler: its class's name.
      is_affine: whether a step on a Gaussian target is affine, so that laws are exact.
      step_sizes: in units of 1 / largest curvature.
      errors: largest relative error of a variance at each of them.
      slope: d log error / d log step size at the small ones (None: no error to measure).
      stable_to: step size times largest curvature up to which the step is stable.
      checks: sentences, one per property that held.
    """

    sampler: str
    is_affine: bool
    step_sizes: tuple[float, ...]
    errors: tuple[float, ...]
    slope: float | None
    stable_to: float
    checks: tuple[str, ...]

    def __repr__(self) -> str:
        lines = [f"{self.sampler}: {len(self.checks)} checks passed"]
        lines += [f"  {check}" for check in self.checks]
        pairs = zip(self.step_sizes, self.errors, strict=True)
        lines += [f"  step size {h:.4g}: variance off by {error:.3g}" for h, error in pairs]
        return "\n".join(lines)


def check_sampler(
    sampler: Any,
    *,
    order: float | None = 1.0,
    slope_tolerance: float = 0.15,
    stable_to: float = 1.0,
    response: float = 1.0,
    temperatures: tuple[float, ...] = (0.5, 1.0, 4.0),
    simulate: bool | None = None,
) -> SamplerReport:
    """Certify a sampler, in a few seconds.

    Args:
      sampler: an object of this module's contract.
      order: of the relative error of variances on a Gaussian, in the step size h (so half
        the order in the integrator's time step sqrt(h)); None where they are exact.
      slope_tolerance: by how much the measured order may differ.
      stable_to: the largest h times curvature at which the step must be stable.
      response: how far one tiny step from rest moves the position, in units of h D gradient:
        the step-size convention. 1 for SGLD; .5 for schemes that move by half a kick.
      temperatures: at which the law must be right.
      simulate: check the law by simulation. None: only where the step is not affine.

    Returns: SamplerReport. Raises AssertionError, in a sentence, at the first failure.

    Example:
      >>> import sgld
      >>> report = sgld.testing.check_sampler(sgld.SGLD(None))
      >>> report.is_affine, round(report.slope, 1)
      (True, 1.0)
    """
    suite = _SamplerSuite(sampler)
    checks = [suite.interface(), suite.purity(), suite.scan_ready(), suite.cold()]
    checks += [suite.coordinates(), suite.convention(response)]
    affine = suite.is_affine()
    errors, slope = (), None
    if affine:
        checks.append(suite.stability(stable_to))
        checks.append(suite.mean())
        errors, slope, sentence = suite.bias(order, slope_tolerance, temperatures)
        checks += [sentence, suite.gradient_noise()]
    if simulate or (simulate is None and not affine):
        checks.append(suite.simulation())
    steps = suite.STEPS if affine else ()
    return SamplerReport(suite.name, affine, steps, errors, slope, stable_to, tuple(checks))


class _SamplerSuite:
    """The checks, each of which returns the sentence of what held."""

    # h times largest curvature
    STEPS = (0.02, 0.01, 0.005, 0.0025)

    def __init__(self, sampler: Any) -> None:
        self.sampler, self.name = sampler, _name(sampler)
        self.bound = _bound(sampler)
        rng = np.random.default_rng(1)
        turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        self.J = turn @ np.diag([0.4, 1.0, 2.0]) @ turn.T
        self.top = 2.0
        self.mean_ = np.array([0.5, -1.0, 2.0])
        self.L = np.array([[1.2, 0.0, 0.0], [0.5, 0.7, 0.0], [-0.3, 0.2, 1.1]])
        self.turn = turn

    def _fail(self, sentence: str) -> AssertionError:
        return AssertionError(f"{self.name}: {sentence}")

    def _noises(self, count: int, d: int = 3) -> np.ndarray:
        shape = _noise_shape(self.sampler, d)
        return np.random.default_rng(2).standard_normal((count, *shape))

    def _path(self, J, mean, start, noises, h, T, D) -> np.ndarray:
        """Positions along a few steps in double precision."""
        with jax.enable_x64(True):
            h, T = np.float64(h), np.float64(T)
            return np.asarray(
                _positions(
                    _double(self.bound), J, mean, np.asarray(start), noises, h, T, _double(D)
                )
            )

    def interface(self) -> str:
        """The contract's names are there and a step keeps shapes."""
        for name in ("num_noises", "init", "step"):
            if not hasattr(self.sampler, name):
                raise self._fail(f"a sampler needs `{name}`.")
        if not (isinstance(self.sampler.num_noises, int) and self.sampler.num_noises >= 0):
            raise self._fail(f"num_noises must be a whole number. Got {self.sampler.num_noises!r}.")
        position = jnp.arange(3.0)
        state = self.sampler.init(position)
        if not hasattr(state, "position"):
            raise self._fail("the state of init has no `.position`.")
        if not np.array_equal(state.position, position):
            raise self._fail("init(position).position is not the position.")
        return "init and step keep the contract"

    def _call(self, state, xi, h=0.1, T=1.0, D=Scalar(1.0)):
        grad = _target_gradient(self.J.astype(np.float32), self.mean_.astype(np.float32))
        return self.sampler.step(state, grad, h, xi, preconditioner=D, temperature=T)

    def purity(self) -> str:
        """Equal arguments give equal results, compiled or not, alone or in a batch."""
        position = jnp.asarray([0.3, -0.2, 0.9])
        xis = jnp.asarray(self._noises(4), jnp.float32)
        state = self._call(self.sampler.init(position), xis[0])
        before = jax.tree.map(np.array, state)
        first, second = self._call(state, xis[1]), self._call(state, xis[1])
        if not _equal(first, second):
            raise self._fail("the same arguments gave different results; step must draw nothing.")
        if not _equal(before, state):
            raise self._fail("step changed the state it was given.")
        close = lambda a, b: _close(a, b, 2e-6)  # noqa: E731
        if not close(jax.jit(self._call)(state, xis[1]), first):
            raise self._fail("the compiled step differs from the step itself.")
        batch = jax.vmap(lambda xi: self._call(state, xi))(xis)
        loop = [self._call(state, xi) for xi in xis]
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *loop)
        if not close(batch, stacked):
            raise self._fail("a vmap over steps differs from a loop over them.")
        return "step is a function: same arguments, same result; jit and vmap change nothing"

    def scan_ready(self) -> str:
        """A step's state has the structure, shapes and dtypes of init's, in both precisions."""
        for wide in (False, True):
            with jax.enable_x64(wide):
                dtype = jnp.float64 if wide else jnp.float32
                sampler = _double(self.sampler) if wide else self.sampler
                state = sampler.init(jnp.zeros(3, dtype))
                xi = jnp.zeros(_noise_shape(sampler, 3), dtype)
                step = lambda s, x: sampler.step(  # noqa: B023, E731
                    s, lambda q: -q, dtype(0.1), x, preconditioner=Scalar(dtype(1.0)),  # noqa: B023
                    temperature=dtype(1.0),  # noqa: B023
                )  # fmt: skip
                before, after = jax.eval_shape(lambda s: s, state), jax.eval_shape(step, state, xi)
                if jax.tree.structure(before) != jax.tree.structure(after):
                    raise self._fail("step returns a state of another structure than init's.")
                for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
                    if (a.shape, a.dtype, a.weak_type) != (b.shape, b.dtype, b.weak_type):
                        raise self._fail(
                            f"step turns a state leaf {a} into {b}; type every leaf strongly in init."
                        )
        return "the state keeps its structure, shapes and dtypes"

    def cold(self) -> str:
        """T = 0: no bit depends on the noise, and the steps climb to the mode."""
        zero = np.zeros_like(self._noises(400))
        paths = [
            self._path(self.J, self.mean_, np.zeros(3), xi, 0.2, 0.0, Dense(self.L @ self.L.T))
            for xi in (self._noises(400), zero)
        ]
        if not np.array_equal(*paths):
            raise self._fail("at temperature 0 the noise still moves the position.")
        if not np.abs(paths[0][-1] - self.mean_).max() < 0.05:
            raise self._fail(
                "at temperature 0 it does not climb to the mode: after 400 steps it is "
                f"{np.abs(paths[0][-1] - self.mean_).max():.3g} away."
            )
        return "temperature 0 is an optimiser: no noise, bit for bit"

    def coordinates(self) -> str:
        """theta = L z: D = L L^T in theta takes the steps that D = I takes in z."""
        noises, start = self._noises(8), np.array([1.0, 0.5, -0.5])
        diagonal = np.array([0.25, 1.0, 9.0])
        cases: list[tuple[str, Any, np.ndarray]] = [
            ("a scalar preconditioner", Scalar(4.0), 2.0 * np.eye(3)),
            ("a diagonal preconditioner", Diagonal(diagonal), np.diag(np.sqrt(diagonal))),
            ("a dense preconditioner", _dense(self.L), self.L),
            ("a rotated factor", _dense(self.L @ self.turn), self.L @ self.turn),
        ]
        for what, D, L in cases:
            J, mean = L.T @ self.J @ L, np.linalg.solve(L, self.mean_)
            h = 0.3 / np.linalg.eigvalsh(J)[-1]
            white = self._path(J, mean, np.linalg.solve(L, start), noises, h, 0.7, Scalar(1.0))
            theta = self._path(self.J, self.mean_, start, noises, h, 0.7, D)
            if not np.allclose(theta, white @ L.T, rtol=1e-6, atol=1e-6):
                raise self._fail(
                    f"{what} is not a change of coordinates: with D = L L^T the steps differ from "
                    "those of D = I in the coordinates of L."
                )
        return "a preconditioner is a change of coordinates"

    def convention(self, response: float) -> str:
        """One tiny step from rest moves the position by response * h * D * gradient."""
        h, D = 1e-8, _dense(self.L)
        step = _affine(self.bound, self.J, self.mean_, h, 1.0, D)
        moved = step.P @ step.G / h
        scale = float(np.sum(moved * (self.L @ self.L.T)) / np.sum((self.L @ self.L.T) ** 2))
        if not np.allclose(moved, response * self.L @ self.L.T, rtol=1e-2, atol=1e-2):
            raise self._fail(
                f"a step moves the position by {scale:.3g} h D gradient, not {response:g}: the step "
                "size must be the coefficient of the gradient of the full-data log posterior."
            )
        return f"the step size is the coefficient of the gradient (times {response:g})"

    def is_affine(self) -> bool:
        """Whether the Jacobians are the same everywhere."""
        return _affine(self.bound, self.J, self.mean_, 0.1, 1.0, Scalar(1.0)).is_affine

    def stability(self, stable_to: float) -> str:
        """The spectral radius of the step is below 1 up to the stated step size."""
        for share in (0.01, 0.1, 0.25, 0.5, 0.75, 1.0):
            h = share * stable_to / self.top
            A = _affine(self.bound, self.J, self.mean_, h, 1.0, Scalar(1.0)).A
            if (radius := _radius(A)) >= 1:
                raise self._fail(
                    f"unstable at step size {share * stable_to:g} / curvature (spectral radius "
                    f"{radius:.4g}), though stated to be stable to {stable_to:g}."
                )
        return f"stable to step size {stable_to:g} / curvature"

    def mean(self) -> str:
        """The stationary mean is the mode."""
        step = _affine(self.bound, self.J, self.mean_, 0.3 / self.top, 1.0, Scalar(1.0))
        mean = step.P @ np.linalg.solve(np.eye(len(step.A)) - step.A, step.b)
        if not np.allclose(mean, self.mean_, rtol=1e-8, atol=1e-8):
            raise self._fail(f"the stationary mean is {mean}, the posterior's {self.mean_}.")
        return "the stationary mean is exact on a Gaussian"

    def _error(self, h: float, T: float, D: Any) -> float:
        S = stationary_covariance(self.bound, self.J, h, temperature=T, preconditioner=D)
        root = np.linalg.cholesky(self.J)
        white = root.T @ S @ root / T - np.eye(3)
        return float(np.abs(np.linalg.eigvalsh((white + white.T) / 2)).max())

    def bias(
        self, order: float | None, tolerance: float, temperatures: tuple[float, ...]
    ) -> tuple[tuple[float, ...], float | None, str]:
        """The stationary variance tends to T / curvature, at the stated order."""
        for T in temperatures:
            for D, top in ((Scalar(1.0), self.top), (_dense(self.L), self._top(self.L))):
                errors = tuple(self._error(share / top, T, D) for share in self.STEPS)
                if order is None:
                    if max(errors) > 1e-6:
                        raise self._fail(
                            f"variances at temperature {T:g} are off by {max(errors):.3g}, though "
                            "stated to be exact on Gaussians."
                        )
                    continue
                if errors[-1] > max(0.05, 5 * self.STEPS[-1] ** order):
                    raise self._fail(
                        f"variances at temperature {T:g} are off by {errors[-1]:.3g} at step size "
                        f"{self.STEPS[-1]:g} / curvature: the law does not tend to the posterior "
                        f"({_name(D)} preconditioner)."
                    )
                slope = float(np.polyfit(np.log(self.STEPS), np.log(errors), 1)[0])
                if abs(slope - order) > tolerance:
                    raise self._fail(
                        f"the bias of variances has order {slope:.3g} in the step size at temperature "
                        f"{T:g}, stated {order:g}."
                    )
        if order is None:
            return errors, None, "variances are exact on a Gaussian"
        return errors, slope, f"the bias of variances has order {slope:.2f} in the step size"

    def _top(self, L: np.ndarray) -> float:
        return float(np.linalg.eigvalsh(L.T @ self.J @ L)[-1])

    def gradient_noise(self) -> str:
        """Gradient noise widens the law, by less and less as the step size goes to 0."""
        noise = 0.5 * self.J
        trace = lambda h, C: np.trace(  # noqa: E731
            stationary_covariance(self.bound, self.J, h, gradient_noise=C)
        )
        excess = [trace(h, noise) - trace(h, 0.0) for h in (0.1, 0.01, 0.001)]
        if not (excess[0] > excess[1] > excess[2] > 0 and excess[2] < 0.2 * excess[0]):
            raise self._fail(
                f"gradient noise widens the law by {excess[0]:.3g}, {excess[1]:.3g}, {excess[2]:.3g} at "
                "step sizes .1, .01, .001: it must vanish with the step size."
            )
        return "gradient noise vanishes with the step size"

    def simulation(self) -> str:
        """Mean and variances of a long simulation on a Gaussian: the fallback."""
        chains, steps, h = 512, 4000, 0.002
        J, mean = np.diag([1.0, 2.0]), np.array([1.0, -1.0])
        for T in (1.0, 2.0):
            second = self._simulate(J, mean, h, T, chains, steps)
            # per chain: mean and mean square of the last half
            truth = np.concatenate([np.zeros(2), T / np.diag(J)])
            estimate = second.mean(0)
            se = second.std(0) / np.sqrt(chains)
            scale = np.concatenate([np.sqrt(T / np.diag(J)), T / np.diag(J)])
            wrong = (np.abs(estimate - truth) > 4.5 * se + 0.05 * scale).any()
            if wrong or not np.isfinite(estimate).all():
                raise self._fail(
                    f"a simulation at step size {h:g} and temperature {T:g} gives mean errors "
                    f"{estimate[:2]} and variances {estimate[2:]}, where the truth is 0 and {truth[2:]}."
                )
        return "mean and variances of a simulation are right within 5%"

    def _simulate(self, J, mean, h, T, chains, steps) -> np.ndarray:
        grad = _target_gradient(J.astype(np.float32), mean.astype(np.float32))
        shape = _noise_shape(self.sampler, 2)
        scale = jnp.asarray(np.sqrt(T / np.diag(J)), jnp.float32)
        h, T = jnp.float32(h), jnp.float32(T)
        D = Scalar(jnp.float32(1.0))

        def one(carry, i):
            state, key, total = carry
            xi = jax.random.normal(jax.random.fold_in(key, i), shape, jnp.float32)
            state = self.sampler.step(state, grad, h, xi, preconditioner=D, temperature=T)
            x = state.position - jnp.asarray(mean, jnp.float32)
            total = total + jnp.where(i >= steps // 2, jnp.concatenate([x, x * x]), 0.0)
            return (state, key, total), None

        @jax.jit
        def run(key):
            first, key = jax.random.split(key)
            start = jnp.asarray(mean, jnp.float32) + scale * jax.random.normal(first, (2,))
            carry = (self.sampler.init(start), key, jnp.zeros(4))
            carry = jax.lax.scan(one, carry, jnp.arange(steps, dtype=jnp.int32))[0]
            return carry[2] / (steps - steps // 2)

        return np.asarray(jax.vmap(run)(jax.random.split(jax.random.key(0), chains)), np.float64)


def _dense(L: np.ndarray) -> Dense:
    return Dense(L @ L.T, L)


def _equal(a: Any, b: Any) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y), a, b))


def _close(a: Any, b: Any, rtol: float) -> bool:
    one = lambda x, y: np.allclose(x, y, rtol=rtol, atol=rtol)  # noqa: E731
    return jax.tree.all(jax.tree.map(one, a, b))


# -- gradients ------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientReport:
    """What `check_gradient` found: per order and batch size, sd of the noise over the gradient.

    `noise[(order, batch_size)]` is the covariance over all equally likely batches.
    """

    gradient: str
    noise: dict[tuple[str, int], Matrix]

    def __repr__(self) -> str:
        lines = [f"{self.gradient}: unbiased over all batches of {len(self.noise)} designs"]
        for (order, size), covariance in self.noise.items():
            lines.append(
                f"  {order}, batches of {size}: noise sd {np.sqrt(np.trace(covariance)):.3g}"
            )
        return "\n".join(lines)


def check_gradient(
    gradient: Any,
    posterior: Posterior | None = None,
    data: Any = None,
    position: Any = None,
    *,
    rtol: float = 2e-5,
) -> GradientReport:
    """Certify a gradient estimator: unbiased over ALL batches, whatever N and n.

    An estimator has `prepare(target, source, center) -> estimator`, called once, and
    `at(target, source, x) -> (position -> gradient)`, called inside compiled code. Every
    block, every subset and every n-tuple of rows is enumerated.

    Args:
      gradient: the estimator.
      posterior, data, position: the problem; by default a Poisson regression of 7 rows with
        two leaves and a prior that counts. Give few rows: N over n subsets are visited.
      rtol: of the mean against the full gradient, relative to its largest entry.

    Returns: GradientReport. Raises AssertionError, in a sentence, at the first failure.

    Example:
      >>> import sgld
      >>> report = sgld.testing.check_gradient(sgld.Minibatch())
      >>> bool(report.noise["reshuffle", 7].max() < 1e-6)
      True
    """
    name = _name(gradient)
    if posterior is None:
        posterior, data, position = _poisson()
    layout = Layout.of(position)
    target = Target(posterior, layout)
    z = layout.ravel(position)
    size = int(np.shape(jax.tree.leaves(data)[0])[0])
    exact = np.asarray(
        jax.grad(lambda q: target.log_prior(q) + target.log_likelihood(q, data))(z), np.float64
    )
    center = z + 0.1
    noise = {}
    for order, n in _designs(size):
        entries = _all_entries(order, size, n)
        source = Source.build(data, n, order)
        if order in ("reshuffle", "independent"):
            entries = np.arange(source.num_blocks, dtype=np.int32)
        prepared = gradient.prepare(target, source, center)
        one = jax.jit(jax.vmap(lambda x: prepared.at(target, source, x)(z)))  # noqa: B023
        values = np.asarray(one(jnp.asarray(entries)), np.float64)
        if values.shape != (len(entries), layout.dimension):
            raise AssertionError(
                f"{name}: a gradient has shape {values.shape[1:]}, not {(layout.dimension,)}."
            )
        scale = np.abs(values).max() + np.abs(exact).max()
        error = np.abs(values.mean(0) - exact)
        if not error.max() <= rtol * scale:
            worst = int(np.argmax(error))
            raise AssertionError(
                f"{name}: biased with order {order!r}, {n} of {size} rows: the mean over all "
                f"{len(values)} batches is {values.mean(0)[worst]:.6g} in leaf "
                f"{layout.locate(worst)!r}, the full gradient {exact[worst]:.6g}."
            )
        noise[order, n] = np.cov(values, rowvar=False, bias=True).reshape(z.size, z.size)
    return GradientReport(name, noise)


def _designs(size: int) -> list[tuple[str, int]]:
    """Orders and batch sizes, those that do not divide the number of rows included."""
    blocks = [("reshuffle", n) for n in sorted({1, 2, 3, size - 1, size}) if 1 <= n <= size]
    rows = [("subset", n) for n in sorted({1, 3, size - 1}) if 1 <= n <= size]
    tuples = [("replacement", n) for n in (1, 3) if size**n <= 1000]
    return [*blocks, ("independent", min(3, size)), *rows, *tuples]


def _all_entries(order: str, size: int, n: int) -> np.ndarray:
    if order == "subset":
        return np.array(list(itertools.combinations(range(size), n)), np.int32)
    if order == "replacement":
        return np.array(list(itertools.product(range(size), repeat=n)), np.int32)
    return np.zeros(0, np.int32)


def _poisson() -> tuple[Posterior, Any, Any]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((7, 2)).astype(np.float32)
    y = rng.poisson(2.0, 7).astype(np.float32)

    def log_prior(theta):
        return -2.0 * jnp.sum((theta["slope"] - 1.0) ** 2) - 3.0 * (theta["level"] + 0.5) ** 2

    def log_likelihood(theta, datum):
        rate = theta["level"] + jnp.dot(datum["x"], theta["slope"])
        return datum["y"] * rate - jnp.exp(rate)

    position = {"level": jnp.float32(0.3), "slope": jnp.asarray([0.2, -0.4], jnp.float32)}
    return Posterior(log_prior, log_likelihood), {"x": x, "y": y}, position


# -- sources --------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceReport:
    """What `check_source` found, one sentence per property that held."""

    source: str
    checks: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join([f"{self.source}: {len(self.checks)} checks passed", *self.checks])


def check_source(source: Any, *, seed: int = 0, steps: int | None = None) -> SourceReport:
    """Certify a source of rows: its order, its batches and that any stretch can be made again.

    A source has `num_data`, `batch_size`, `order`, `num_blocks`, `period`, `uses_blocks`,
    `chunk((seed, chain), step, n)` on the host, `fetch(entry) -> Batch` in compiled code and
    `everything()`.

    Args:
      source: small: every row is looked at.
      seed: of the order.
      steps: how many steps to look at (default: 6 passes, at least 64).

    Returns: SourceReport. Raises AssertionError, in a sentence, at the first failure.

    Example:
      >>> import numpy as np, sgld
      >>> from sgld.data.source import Source
      >>> source = Source.build(np.arange(10.0), 3, "reshuffle")
      >>> len(sgld.testing.check_source(source).checks)
      4
    """
    name = f"{_name(source)}(order={source.order!r}, {source.batch_size} of {source.num_data} rows)"
    steps = steps or max(64, 6 * source.period)
    suite = _SourceSuite(source, name, seed, steps)
    checks = [suite.batches(), suite.cuts(), suite.chains()]
    order = getattr(suite, source.order, None)
    if order is not None:
        checks.append(order())
    return SourceReport(name, tuple(checks))


class _SourceSuite:
    def __init__(self, source: Any, name: str, seed: int, steps: int) -> None:
        self.source, self.name, self.seed, self.steps = source, name, seed, steps
        self.entries = np.asarray(source.chunk((seed, 0), 0, steps))
        if len(self.entries) != steps:
            raise self._fail(f"chunk gave {len(self.entries)} entries for {steps} steps.")

    def _fail(self, sentence: str) -> AssertionError:
        return AssertionError(f"{self.name}: {sentence}")

    def batches(self) -> str:
        """The batches hold the rows they should, equally weighted in all."""
        source = self.source
        everything = _row_bytes(source.everything(), source.num_data)
        kinds, of_row = np.unique(everything, axis=0, return_inverse=True)
        every = np.bincount(of_row.reshape(-1), minlength=len(kinds)).astype(float)
        entries = self.entries
        if source.uses_blocks:
            entries = np.arange(source.num_blocks, dtype=np.int32)
        total, sizes = np.zeros(len(kinds)), []
        for entry in entries:
            batch = source.fetch(jnp.asarray(entry))
            count = len(jax.tree.leaves(batch.rows)[0])
            weight = np.ones(count) if batch.weight is None else np.asarray(batch.weight, float)
            rows = _row_bytes(batch.rows, count)
            kind = [_index(kinds, row, self._fail) for row in rows]
            np.add.at(total, kind, weight * float(batch.scale))
            sizes.append(weight.sum())
        if source.uses_blocks:
            if max(sizes) - min(sizes) > 1:
                raise self._fail(f"block sizes differ by more than one: {sorted(set(sizes))}.")
            if not np.allclose(total / len(entries), every, rtol=1e-6):
                raise self._fail(
                    "the scaled batches do not add up to the rows, each counted once on average."
                )
            return "  blocks differ by at most one row and add up to the data"
        if set(sizes) != {float(source.batch_size)}:
            raise self._fail(f"batches have {sorted(set(sizes))} rows, not {source.batch_size}.")
        if not np.isclose(total.sum() / len(entries), source.num_data, rtol=1e-6):
            raise self._fail("the scale of a batch is not N / n.")
        return "  every batch has n rows, scaled by N / n"

    def cuts(self) -> str:
        """Any stretch of the order can be made again, alone, wherever it lies."""
        rng = np.random.default_rng(self.seed)
        for _ in range(12):
            a, b = sorted(int(i) for i in rng.integers(0, self.steps + 1, 2))
            part = np.asarray(self.source.chunk((self.seed, 0), a, b - a))
            if not np.array_equal(part, self.entries[a:b]):
                raise self._fail(f"the stretch [{a}, {b}) differs when it is made alone.")
        far = 2**31 - 100
        one = np.asarray(self.source.chunk((self.seed, 0), far, 8))
        if not np.array_equal(np.asarray(self.source.chunk((self.seed, 0), far + 3, 5)), one[3:]):
            raise self._fail(f"the stretch at step {far} differs when it is made alone.")
        return "  any stretch of the order can be made again"

    def chains(self) -> str:
        """Chains and seeds have orders of their own."""
        if self.source.uses_blocks and self.source.num_blocks < 4:
            return "  chains and seeds: too few blocks to tell"
        if not self.source.uses_blocks and self.source.num_data == self.source.batch_size:
            return "  chains and seeds: one batch holds everything"
        for key, what in (((self.seed, 1), "chains 0 and 1"), ((self.seed + 1, 0), "two seeds")):
            if np.array_equal(np.asarray(self.source.chunk(key, 0, self.steps)), self.entries):
                raise self._fail(f"{what} visit the data in the same order.")
        return "  chains and seeds have orders of their own"

    def _passes(self, length: int) -> np.ndarray:
        whole = self.steps // length * length
        return self.entries[:whole].reshape(-1, length)

    def reshuffle(self) -> str:
        """Every pass visits every block once, in a fresh order."""
        count = self.source.num_blocks
        passes = self._passes(count)
        if not (np.sort(passes, axis=1) == np.arange(count)[None]).all():
            raise self._fail("a pass does not visit every block exactly once.")
        if count >= 4 and (passes[1:] == passes[:-1]).all():
            raise self._fail("the passes repeat one order.")
        return "  every pass visits every row once, in a fresh order"

    def symmetric(self) -> str:
        """A pass and the same pass backwards."""
        count = self.source.num_blocks
        sweeps = self._passes(2 * count)
        if not (np.sort(sweeps[:, :count], axis=1) == np.arange(count)[None]).all():
            raise self._fail("a forward sweep does not visit every block exactly once.")
        if not np.array_equal(sweeps, sweeps[:, ::-1]):
            raise self._fail("a sweep is not a palindrome.")
        if count >= 4 and (sweeps[1:] == sweeps[:-1]).all():
            raise self._fail("the sweeps repeat one order.")
        return "  every sweep is a palindrome that visits every row twice"

    def independent(self) -> str:
        """Blocks at random."""
        return self._uniform(self.source.num_blocks, 1, "blocks")

    def replacement(self) -> str:
        """Rows at random, repeats allowed."""
        return self._uniform(self.source.num_data, self.source.batch_size, "rows")

    def subset(self) -> str:
        """Rows at random, without repeats in a batch."""
        batches = np.sort(self.entries, axis=1)
        if (batches[:, 1:] == batches[:, :-1]).any():
            raise self._fail("a batch holds a row twice.")
        return self._uniform(self.source.num_data, self.source.batch_size, "rows")

    def _uniform(self, count: int, size: int, what: str) -> str:
        steps = max(self.steps, 100 * count // size)
        entries = np.asarray(self.source.chunk((self.seed, 0), 0, steps))
        if entries.min() < 0 or entries.max() >= count:
            raise self._fail(f"an entry lies outside 0 ... {count - 1}.")
        seen = np.bincount(entries.reshape(-1), minlength=count)
        expected = steps * size / count
        # chi-square, its excess over the degrees of freedom in sds; smaller for subsets
        excess = (np.sum((seen - expected) ** 2) / expected - (count - 1)) / np.sqrt(2 * count)
        if excess > 6:
            raise self._fail(
                f"the {what} are not visited equally often (chi-square z {excess:.1f})."
            )
        return f"  {what} are visited equally often"


def _row_bytes(rows: Any, count: int) -> np.ndarray:
    parts = [np.asarray(leaf, np.float64).reshape(count, -1) for leaf in jax.tree.leaves(rows)]
    return np.concatenate(parts, axis=1)


def _index(kinds: np.ndarray, row: np.ndarray, fail: Callable) -> int:
    found = np.flatnonzero((kinds == row[None]).all(1))
    if not len(found):
        raise fail("a batch holds a row that is not in the data.")
    return int(found[0])
