"""The contract suite of samplers.

Samplers whose step is not affine are checked by long simulations on a Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.pytrees import release_mistakable
from ..gradients.full import Estimate
from ..preconditioners.fixed import Dense, Diagonal, Scalar
from .affine import (
    affine,
    bound,
    check_needs,
    counts,
    double,
    gaussian,
    name_of,
    noise_shape,
    positions,
    spectral_radius,
    stationary_covariance,
)

# -- simulated -----------------------------------------------------------------------------


# SIMULATED_TIME is steps times step size
SIMULATED_CHAINS, SIMULATED_TIME, FINE_STEP = 1024, 8.0, 0.0005
# largest error of a simulation at step size 0, as a share of an sd and of a variance
MAX_SIMULATION_ERROR = 0.01


def simulated(sampler: Any) -> tuple[str | None, float]:
    """Check mean and variances of long simulations on a Gaussian, extrapolated to step size 0.

    Returns a sentence about the error, if there is one, and the smallest detectable error of a variance.
    """
    J, seen = np.array([1.0, 2.0]), 0.0
    for T in (1.0, 2.0):
        truth = np.concatenate([np.zeros(2), T / J])
        scale = np.concatenate([np.sqrt(T / J), T / J])
        (coarse, se), (fine, finer) = (
            _simulate(sampler, J, h, T) for h in (4 * FINE_STEP, FINE_STEP)
        )
        limit = 2 * fine - coarse  # removes errors of order sqrt(h); those of order h are small
        tolerance = MAX_SIMULATION_ERROR * scale + 4.5 * np.hypot(2 * finer, se)
        if not (np.abs(limit - truth) <= tolerance).all():
            return (
                f"simulations at step sizes {4 * FINE_STEP:g} and {FINE_STEP:g} and temperature {T:g} tend to mean errors "
                f"{np.round(limit[:2], 4)} and variances {np.round(limit[2:], 4)}, where the truth is 0 and {truth[2:]}.",
                seen,
            )
        seen = max(seen, float((tolerance / scale)[2:].max()))
    return None, seen


def _simulate(sampler: Any, J: Any, h: Any, T: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return mean errors, variances and their standard errors, from the chains' second half.

    SGLD, whose stationary distribution is known, uses the same noise as a control variate.
    """
    mean = jnp.asarray([1.0, -1.0], jnp.float32)
    shape, steps = noise_shape(sampler, 2), round(SIMULATED_TIME / h)
    exact = T / (J * (1 - h * J / 2))
    rows = math.prod(shape) // 2
    key = jax.random.split(jax.random.key(0), SIMULATED_CHAINS)
    grad = gaussian(np.diag(J).astype(np.float32), mean)
    a, start, h, T = (jnp.asarray(x, jnp.float32) for x in (J, np.sqrt(exact), h, T))
    D = Scalar(jnp.float32(1.0))

    def one(carry, i):
        state, known, key, total = carry
        xi = jax.random.normal(jax.random.fold_in(key, i), shape, jnp.float32)
        state = sampler.step(state, grad, h, xi, preconditioner=D, temperature=T)
        known = known - h * a[None] * known + jnp.sqrt(2 * h * T) * xi.reshape(rows, 2)
        x = jnp.concatenate([(state.position - mean)[None], known])
        return (
            state,
            known,
            key,
            total + jnp.where(i >= steps // 2, jnp.stack([x, x * x]), 0.0),
        ), None

    @jax.jit
    def run(key):
        first, key = jax.random.split(key)
        x = start * jax.random.normal(first, (2,))
        carry = (sampler.init(mean + x), jnp.tile(x, (rows, 1)), key, jnp.zeros((2, rows + 1, 2)))
        carry = jax.lax.scan(one, carry, jnp.arange(steps, dtype=jnp.int32))[0]
        return carry[3] / (steps - steps // 2)

    moments = np.asarray(jax.vmap(run)(key), np.float64)
    chance = moments[:, :, 1:] - np.array([np.zeros(2), exact])[:, None]
    X = np.column_stack([np.ones(SIMULATED_CHAINS), chance.reshape(SIMULATED_CHAINS, -1)])
    Y = moments[:, :, 0].reshape(SIMULATED_CHAINS, 4)
    fitted = np.linalg.pinv(X) @ Y
    left = np.sum((Y - X @ fitted) ** 2, 0) / (SIMULATED_CHAINS - X.shape[1])
    return fitted[0], np.sqrt(left * np.linalg.pinv(X.T @ X)[0, 0])


# -- sampler -------------------------------------------------------------------------------


LARGE_GRADIENT = 1e8  # largest gradient at which a step is tested


@dataclass(frozen=True)
class SamplerReport:
    """The result of `check_sampler`.

    Attributes:
      sampler: its class's name.
      is_affine: whether a step on a Gaussian target is affine, so that the checks are exact.
      step_sizes: in units of 1 / largest curvature.
      errors: largest relative error of a variance at each of them.
      slope: d log error / d log step size at the small ones (None: no error to measure).
      stable_to: largest step size times largest curvature at which the step is stable.
      checks: sentences, one per property that held.

    Example:
      >>> import sgld
      >>> report = sgld.testing.check_sampler(sgld.SGLD())
      >>> report.sampler, report.is_affine, round(report.slope)  # the bias is of the first order
      ('SGLD', True, 1)
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
      slope_tolerance: largest difference between measured and stated order.
      stable_to: the largest h times curvature at which the step must be stable.
      response: the displacement of one tiny step from rest, in units of h D gradient:
        the step-size convention. 1 for SGLD; .5 for schemes that move by half a kick.
      temperatures: the temperatures at which the stationary distribution must be correct.
      simulate: whether to check the distribution by simulation. None: only where the step is not affine, or
        the state holds a count or a key, on which later steps may depend.

    Returns: SamplerReport. Raises AssertionError, with a sentence, at the first failure.

    Example:
      >>> import sgld
      >>> report = sgld.testing.check_sampler(sgld.SGLD(None))
      >>> report.is_affine, round(report.slope, 1)
      (True, 1.0)
    """
    check_needs("sampler", sampler, "num_noises", "init", "step")
    release_mistakable(sampler)
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
    if simulate or (simulate is None and (not affine or counts(sampler))):
        checks.append(suite.simulation())
    steps = suite.STEPS if affine else ()
    return SamplerReport(suite.name, affine, steps, errors, slope, stable_to, tuple(checks))


class _SamplerSuite:
    """The checks; each returns a sentence about the property that holds."""

    # h times largest curvature
    STEPS = (0.02, 0.01, 0.005, 0.0025)

    def __init__(self, sampler: Any) -> None:
        self.sampler, self.name = sampler, name_of(sampler)
        self.bound = bound(sampler)
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
        shape = noise_shape(self.sampler, d)
        return np.random.default_rng(2).standard_normal((count, *shape))

    def _path(self, J, mean, start, noises, h, T, D) -> np.ndarray:
        """Return positions along a few steps in double precision."""
        with jax.enable_x64(True):
            h, T = np.float64(h), np.float64(T)
            return np.asarray(
                positions(double(self.bound), J, mean, np.asarray(start), noises, h, T, double(D))
            )

    def interface(self) -> str:
        """Check that the contract's names exist and a step keeps shapes."""
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
        grad = gaussian(self.J.astype(np.float32), self.mean_.astype(np.float32))
        return self.sampler.step(state, grad, h, xi, preconditioner=D, temperature=T)

    def purity(self) -> str:
        """Check that equal arguments give equal results, compiled or not, alone or in a batch."""
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
        """Check that a step's state has init's structure, shapes and dtypes, in each precision."""
        for wide in (False, True):
            with jax.enable_x64(wide):
                dtype = jnp.float64 if wide else jnp.float32
                sampler = double(self.sampler) if wide else self.sampler
                state = sampler.init(jnp.zeros(3, dtype))
                xi = jnp.zeros(noise_shape(sampler, 3), dtype)
                step = lambda s, x: sampler.step(  # noqa: B023, E731
                    s, Estimate(lambda q: -0.5 * jnp.sum(q**2)), dtype(0.1), x,  # noqa: B023
                    preconditioner=Scalar(dtype(1.0)), temperature=dtype(1.0),  # noqa: B023
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
        """Check at T = 0 that no bit depends on the noise and the steps climb to the mode."""
        zero = np.zeros_like(self._noises(400))
        paths = [
            self._path(self.J, self.mean_, np.zeros(3), xi, 0.2, 0.0, Dense(self.L @ self.L.T))
            for xi in (self._noises(400), zero)
        ]
        if not np.array_equal(paths[0], paths[1]):
            raise self._fail("at temperature 0 the noise still moves the position.")
        if not np.abs(paths[0][-1] - self.mean_).max() < 0.05:
            raise self._fail(
                "at temperature 0 it does not climb to the mode: after 400 steps it is "
                f"{np.abs(paths[0][-1] - self.mean_).max():.3g} away."
            )
        return "temperature 0 is an optimiser: no noise, bit for bit"

    def coordinates(self) -> str:
        """Check for theta = L z that D = L L^T in theta takes the same steps as D = I in z."""
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
        """Check that one tiny step from rest moves the position by response * h * D * gradient.

        The relation must hold for large gradients too.
        """
        h, D, rest = 1e-12, _dense(self.L), np.zeros_like(self._noises(1))
        for size in (1.0, 1e4, LARGE_GRADIENT):
            ways = size * np.eye(3)
            means = np.linalg.solve(self.J, ways).T  # the gradient at the origin is then `ways`
            moved = [
                self._path(self.J, mean, np.zeros(3), rest, h, 1.0, D)[0] / h for mean in means
            ]
            wanted = ways @ self.L @ self.L.T
            if not np.allclose(moved, response * wanted, rtol=1e-2, atol=1e-2 * size):
                scale = float(np.sum(moved * wanted) / np.sum(wanted**2))
                raise self._fail(
                    f"a step moves the position by {scale:.3g} h D gradient, not {response:g}, where the gradient is "
                    f"{size:g}: the step size must be the coefficient of the gradient of the full-data log posterior."
                )
        return f"the step size is the coefficient of the gradient (times {response:g}), of gradients up to {LARGE_GRADIENT:g}"

    def is_affine(self) -> bool:
        """Return whether the Jacobians are the same everywhere."""
        return affine(self.bound, self.J, self.mean_, 0.1, 1.0, Scalar(1.0)).is_affine

    def stability(self, stable_to: float) -> str:
        """Check that the spectral radius of the step is below 1 up to the stated step size."""
        for share in (0.01, 0.1, 0.25, 0.5, 0.75, 1.0):
            h = share * stable_to / self.top
            A = affine(self.bound, self.J, self.mean_, h, 1.0, Scalar(1.0)).A
            if (radius := spectral_radius(A)) >= 1:
                raise self._fail(
                    f"unstable at step size {share * stable_to:g} / curvature (spectral radius "
                    f"{radius:.4g}), though stated to be stable to {stable_to:g}."
                )
        return f"stable to step size {stable_to:g} / curvature"

    def mean(self) -> str:
        """Check that the stationary mean is the mode."""
        step = affine(self.bound, self.J, self.mean_, 0.3 / self.top, 1.0, Scalar(1.0))
        mean = step.P @ np.linalg.solve(np.eye(len(step.A)) - step.A, step.b)
        if not np.allclose(mean, self.mean_, rtol=1e-8, atol=1e-8):
            raise self._fail(f"the stationary mean is {mean}, the posterior's {self.mean_}.")
        return "the stationary mean is exact on a Gaussian"

    def _ratios(self, h: float, T: float, D: Any) -> np.ndarray:
        """Return variances over T / curvature, in the directions of extreme ratios."""
        S = stationary_covariance(self.bound, self.J, h, temperature=T, preconditioner=D)
        root = np.linalg.cholesky(self.J)
        white = root.T @ S @ root / T
        return np.linalg.eigvalsh((white + white.T) / 2)

    def _error(self, h: float, T: float, D: Any) -> float:
        return float(np.abs(self._ratios(h, T, D) - 1).max())

    def _off(self, h: float, T: float, D: Any) -> str:
        """Describe the largest error of a variance, with its sign."""
        ratios = self._ratios(h, T, D)
        worst = float(ratios[np.argmax(np.abs(ratios - 1))])
        side = "wide" if worst > 1 else "narrow"
        return f"off by {worst - 1:+.3g} (too {side}: {worst:.3g} times the correct ones)"

    def _slip(self, D: Any) -> str:
        """Name a known mistake that explains such variances at three temperatures, if any."""
        h, hot = self.STEPS[-1] / self.top, (0.5, 1.0, 4.0)
        scalar = np.array([self._ratios(h, T, Scalar(1.0)) for T in hot])
        near = lambda found, wanted: np.allclose(found, wanted, rtol=0.1)  # noqa: E731
        if not isinstance(D, Scalar) and near(scalar, 1.0):
            return "; D is missing from the noise, or its root is transposed"
        slips = (
            ([[0.5]], "the noise is sqrt(h T) xi where sqrt(2 h T) xi belongs, or the drift is doubled"),
            ([[2.0]], "the noise is 2 sqrt(h T) xi where sqrt(2 h T) xi belongs, or the drift is halved"),
            ([[T] for T in hot], "the temperature is squared: it was used as an sd"),
            ([[T**-0.5] for T in hot], "the noise has the fourth root of the temperature, not the square root"),
        )  # fmt: skip
        for wanted, cause in slips:
            if near(scalar, wanted):
                return f"; {cause}"
        if np.all(scalar < 0.2):
            return "; the noise is of order h where it is of order sqrt(h)"
        return ""

    def bias(
        self, order: float | None, tolerance: float, temperatures: tuple[float, ...]
    ) -> tuple[tuple[float, ...], float | None, str]:
        """Check that the stationary variance tends to T / curvature, at the stated order."""
        for T in temperatures:
            for D, top in ((Scalar(1.0), self.top), (_dense(self.L), self._top(self.L))):
                errors = tuple(self._error(share / top, T, D) for share in self.STEPS)
                if order is None:
                    if max(errors) > 1e-6:
                        raise self._fail(
                            f"variances at temperature {T:g} are {self._off(self.STEPS[int(np.argmax(errors))] / top, T, D)}, though "
                            f"stated to be exact on Gaussians{self._slip(D)}."
                        )
                    continue
                if errors[-1] > max(0.05, 5 * self.STEPS[-1] ** order):
                    raise self._fail(
                        f"variances at temperature {T:g} are {self._off(self.STEPS[-1] / top, T, D)} at "
                        f"step size {self.STEPS[-1]:g} / curvature: the distribution does not tend to the posterior "
                        f"({name_of(D)} preconditioner){self._slip(D)}."
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
        """Check that the excess variance from gradient noise vanishes with the step size."""
        noise = 0.5 * self.J
        trace = lambda h, C: np.trace(  # noqa: E731
            stationary_covariance(self.bound, self.J, h, gradient_noise=C)
        )
        excess = [trace(h, noise) - trace(h, 0.0) for h in (0.1, 0.01, 0.001)]
        if not (excess[0] > excess[1] > excess[2] > 0 and excess[2] < 0.2 * excess[0]):
            raise self._fail(
                f"gradient noise increases the variance by {excess[0]:.3g}, {excess[1]:.3g}, {excess[2]:.3g} at "
                "step sizes .1, .01, .001: this increase must vanish with the step size."
            )
        return "gradient noise vanishes with the step size"

    def simulation(self) -> str:
        """Check by simulation that mean and variances are correct if the step is not affine."""
        wrong, seen = simulated(self.sampler)
        if wrong is not None:
            raise self._fail(wrong)
        return f"mean and variances of simulations tend to the correct ones: errors of {seen:.1%} would be seen"


def _dense(L: np.ndarray) -> Dense:
    return Dense(L @ L.T, L)


def _equal(a: Any, b: Any) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y), a, b))


def _close(a: Any, b: Any, rtol: float) -> bool:
    one = lambda x, y: np.allclose(x, y, rtol=rtol, atol=rtol)  # noqa: E731
    return jax.tree.all(jax.tree.map(one, a, b))
