"""Contract suites of gradient estimators, preconditioners and schedules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...core.pytrees import Layout, release_mistakable
from ...data.validate import as_source
from ...errors import UsageError
from ...model.posterior import Posterior
from ...model.problem import Problem, Target
from ..schedules import check_values
from .affine import check_needs, double, name_of

Matrix = Float[np.ndarray, "d d"]

MEMORY_STEPS = 12  # steps after which an estimator with a memory is tested


@dataclass(frozen=True)
class GradientReport:
    """The result of `check_gradient`: the noise of the estimate, per order and batch size.

    Attributes:
      gradient: the class's name.
      noise: {(order, batch size): covariance [d, d]} over all equally likely batches (given the last
        memory, for estimators with one).

    Example:
      >>> import numpy as np, sgld
      >>> report = sgld.testing.check_gradient(sgld.Full())
      >>> report.gradient, all(np.allclose(noise, 0.0, atol=1e-6) for noise in report.noise.values())
      ('Full', True)
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
    """Certify that a gradient estimator is unbiased over ALL batches, whatever N and n.

    An estimator has `prepare(problem, center) -> estimator`, called once, and
    `at(problem, x) -> (position -> gradient)`, called inside compiled code. Every
    block, every subset and every n-tuple of rows is enumerated.

    An estimator with `remembers = True` also has `start(problem, z) -> memory` and
    `after(problem, x, memory, z, step) -> memory`, and `at` takes the memory as
    a fourth argument. It must be unbiased given its memory, at the start and after each
    of a dozen steps that began at other positions.

    Args:
      gradient: the estimator.
      posterior: the model; by default a Poisson regression of 7 rows with two leaves and an informative
        prior.
      data: few rows, because N over n subsets are visited. A Source is tested with its own batches,
        including rows that are in every batch.
      position: a position of the model.
      rtol: of the mean against the full gradient, relative to its largest entry.

    Returns: GradientReport. Raises AssertionError, with a sentence, at the first failure.

    Example:
      >>> import sgld
      >>> report = sgld.testing.check_gradient(sgld.Minibatch())
      >>> bool(report.noise["reshuffle", 7].max() < 1e-6)
      True
    """
    check_needs("gradient estimator", gradient, "prepare", "at")
    name = type(gradient).__name__
    if posterior is None:
        posterior, data, position = _poisson()
    layout = Layout.of(position)
    target = Target(posterior, layout)
    z = layout.ravel(position)
    source = as_source(data, 0)
    size = source.num_data
    rows = source.take(jnp.arange(size, dtype=jnp.int32))
    exact = np.asarray(
        jax.grad(lambda q: target.log_prior(q) + target.log_likelihood(q, rows))(z), np.float64
    )
    release_mistakable(gradient)
    center = z + 0.1
    noise = {}
    for order, n in _designs(size):
        entries = _all_entries(order, size, n)
        problem = Problem(target, source.with_batches(n, order), z)
        if order in ("reshuffle", "independent"):
            entries = np.arange(problem.source.num_blocks, dtype=np.int32)
        prepared = gradient.prepare(problem, center)
        for when, values in _values(prepared, problem, entries, z, center):
            design = f"{when}with order {order!r}, {n} of {size} rows"
            _unbiased(name, design, values, exact, layout, rtol)
        noise[order, n] = np.cov(values, rowvar=False, bias=True).reshape(z.size, z.size)
    return GradientReport(name, noise)


def _values(
    prepared: Any, problem: Problem, entries: np.ndarray, z: Any, center: Any
) -> Iterator[tuple[str, Float[np.ndarray, "batch d"]]]:
    """Yield the gradients at z of all batches, given each memory that a few steps leave."""
    if not getattr(prepared, "remembers", False):
        one = jax.jit(jax.vmap(lambda x: prepared.at(problem, x)(z)))
        yield "", np.asarray(one(jnp.asarray(entries)), np.float64)
        return
    rng = np.random.default_rng(4)
    visited = jnp.asarray(entries[rng.integers(len(entries), size=MEMORY_STEPS)])
    moves = jnp.asarray(0.2 * rng.standard_normal((MEMORY_STEPS, z.size)), z.dtype)

    def given(memory: Any) -> Any:
        return jax.vmap(lambda x: prepared.at(problem, x, memory)(z))(jnp.asarray(entries))

    def step(memory: Any, inputs: Any) -> tuple[Any, Any]:
        x, move, k = inputs
        memory = prepared.after(problem, x, memory, center + move, k)
        return memory, given(memory)

    @jax.jit
    def run() -> tuple[Any, Any]:
        memory, steps = prepared.start(problem, center), jnp.arange(MEMORY_STEPS, dtype=jnp.int32)
        return given(memory), jax.lax.scan(step, memory, (visited, moves, steps))[1]

    first, later = run()
    yield "at the start ", np.asarray(first, np.float64)
    for k, values in enumerate(np.asarray(later, np.float64)):
        yield f"after {k + 1} steps ", values


def _unbiased(name: str, design: str, values: Any, exact: Any, layout: Layout, rtol: float) -> None:
    if values.shape[1:] != (layout.dimension,):
        raise AssertionError(
            f"{name}: a gradient has shape {values.shape[1:]}, not {(layout.dimension,)}."
        )
    scale = np.abs(values).max() + np.abs(exact).max()
    error = np.abs(values.mean(0) - exact)
    if not error.max() <= rtol * scale:
        worst = int(np.argmax(error))
        raise AssertionError(
            f"{name}: biased {design}: the mean over all {len(values)} batches is "
            f"{values.mean(0)[worst]:.6g} in leaf {layout.locate(worst)!r}, the full gradient "
            f"{exact[worst]:.6g}."
        )


def _designs(size: int) -> list[tuple[str, int]]:
    """Return orders and batch sizes, including sizes that do not divide the number of rows."""
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


# -- preconditioner ------------------------------------------------------------------------


ADAPTED_GRADIENTS = 5  # gradients given to an adaptive preconditioner
SCALING_FACTOR = 2.5  # factor by which a constant preconditioner is scaled


@dataclass(frozen=True)
class PreconditionerReport:
    """The result of `check_preconditioner`.

    Attributes:
      preconditioner: its class's name.
      adapts: whether it adapts to gradients.
      matrix: D [d, d]; after a few gradients, if it adapts.
      checks: sentences, one per property that held.

    Example:
      >>> import sgld
      >>> report = sgld.testing.check_preconditioner(sgld.Scalar(4.0))
      >>> report.adapts, report.matrix[0].tolist()
      (False, [4.0, 0.0, 0.0])
    """

    preconditioner: str
    adapts: bool
    matrix: Matrix
    checks: tuple[str, ...]

    def __repr__(self) -> str:
        lines = [f"{self.preconditioner}: {len(self.checks)} checks passed"]
        return "\n".join([*lines, *(f"  {check}" for check in self.checks)])


def check_preconditioner(
    preconditioner: Any, position: Any = None, *, rtol: float = 1e-5
) -> PreconditionerReport:
    """Certify that `drift`, `noise` and `pullback` of a preconditioner use one matrix D.

    A matrix has `drift(g)` = D g, `noise(xi)` = P xi and `pullback(g)` = P^T g with P P^T = D,
    symmetric positive definite. An adaptive one has `start(z)`, `after(memory, g)` and
    `at(memory)`, which gives such a matrix for any memory. The tolerance of entry (i, j) is
    `rtol` sqrt(D_ii D_jj), so that the units of the coordinates do not matter.

    Args:
      preconditioner: an object of the contract in `sgld.samplers.preconditioners`, as a user gives it.
      position: the position that it is prepared for: a pytree, by default three parameters.
      rtol: of an entry, in the position's precision.

    Returns: PreconditionerReport. Raises AssertionError, with a sentence, at the first failure.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> D = sgld.Dense(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
      >>> report = sgld.testing.check_preconditioner(D, jnp.zeros(2))
      >>> len(report.checks), report.matrix.tolist()
      (7, [[4.0, 2.0], [2.0, 2.0]])
    """
    check_needs("preconditioner", preconditioner, "prepare")
    release_mistakable(preconditioner)
    suite = _PreconditionerSuite(
        preconditioner, jnp.zeros(3) if position is None else position, rtol
    )
    checks = [suite.interface()]
    if suite.prepared.adapts:
        checks += [suite.memory(), suite.learns()]
        if suite.prepared.gamma:
            checks.append(suite.gamma())
        D = suite.adapted()
        checks += suite.matrix(D)
        suite.matrix(suite.prepared.at(suite.prepared.start(suite.z)))  # before the first gradient
    else:
        D = suite.prepared
        checks += [*suite.matrix(D), suite.twice(), suite.scaled()]
    found = suite.columns(D.drift)
    return PreconditionerReport(suite.name, suite.prepared.adapts, found, tuple(checks))


class _PreconditionerSuite:
    """The checks; each returns a sentence about the property that holds."""

    def __init__(self, preconditioner: Any, position: Any, rtol: float) -> None:
        self.given, self.name, self.rtol = preconditioner, name_of(preconditioner), rtol
        self.layout = Layout.of(position)
        self.z = self.layout.ravel(position)
        self.prepared = preconditioner.prepare(self.layout)
        rng = np.random.default_rng(3)
        shape = (ADAPTED_GRADIENTS, self.layout.dimension)
        self.gradients = jnp.asarray(rng.standard_normal(shape), self.layout.dtype)

    def _fail(self, sentence: str) -> AssertionError:
        return AssertionError(f"{self.name}: {sentence}")

    def interface(self) -> str:
        """Check that the preconditioner has the contract's names."""
        check_needs("preconditioner", self.prepared, "adapts")
        if self.prepared.adapts:
            needed = ("start", "after", "at", "freeze", "gamma")
            check_needs("preconditioner", self.prepared, *needed)
            for name in ("freeze", "gamma"):
                if not isinstance(value := getattr(self.prepared, name), bool):
                    raise self._fail(f"{name} must be True or False. Got {value!r}.")
        else:
            check_needs("preconditioner", self.prepared, "drift", "noise", "pullback", "scaled")
        return "the contract's names are there"

    def columns(self, function: Callable) -> Matrix:
        """Return the matrix of a linear function."""
        eye = jnp.eye(self.layout.dimension, dtype=self.layout.dtype)
        return np.asarray(jax.vmap(function, out_axes=1)(eye), np.float64)

    def matrix(self, D: Any) -> list[str]:
        """Check that `drift`, `noise` and `pullback` are D, P and P^T with P P^T = D."""
        check_needs("preconditioner", D, "drift", "noise", "pullback")
        functions = {"drift": D.drift, "noise": D.noise, "pullback": D.pullback}
        checks = [self._linear(functions)]
        drift, noise, pullback = (self.columns(function) for function in functions.values())
        if not np.diag(drift).min() > 0:
            raise self._fail(
                f"drift has {np.diag(drift).min():.3g} on its diagonal; D must be positive."
            )
        sd = np.sqrt(np.diag(drift))
        both = sd[:, None] * sd[None]
        if not self._close(drift, drift.T, both):
            raise self._fail("drift is not symmetric: D g with a D that differs from D^T.")
        if not (least := np.linalg.eigvalsh((drift + drift.T) / (2 * both))[0]) > 0:
            raise self._fail(
                f"drift is not positive definite: scaled, an eigenvalue is {least:.3g}."
            )
        checks.append("drift is symmetric positive definite")
        if not self._close(noise @ noise.T, drift, both):
            raise self._fail("noise is not a square root of drift: its P has P P^T other than D.")
        checks.append("noise is a square root of drift")
        if not self._close(pullback.T, noise, sd[:, None]):
            raise self._fail("pullback is not the transpose of noise: it must be P^T g, not P g.")
        return [*checks, "pullback is the transpose of noise"]

    def _close(self, a: np.ndarray, b: np.ndarray, scale: np.ndarray) -> bool:
        return bool(np.all(np.abs(a - b) <= self.rtol * scale))

    def _linear(self, functions: dict[str, Callable]) -> str:
        x = self.gradients[0]
        for name, function in functions.items():
            value, compiled = function(x), jax.jit(function)(x)
            if (value.shape, value.dtype) != (x.shape, x.dtype):
                raise self._fail(
                    f"{name} turns {x.dtype}{list(x.shape)} into {value.dtype}{list(value.shape)}."
                )
            M = self.columns(function)
            if not np.isfinite(M).all():
                raise self._fail(f"{name} is not finite.")
            scale = np.abs(M) @ np.abs(np.asarray(x, np.float64))
            if not self._close(np.asarray(value), M @ np.asarray(x, np.float64), scale):
                raise self._fail(f"{name} is not linear: unit vectors imply another result.")
            if not self._close(np.asarray(compiled), np.asarray(value), scale):
                raise self._fail(f"{name} compiled differs from {name} itself.")
        return "drift, noise and pullback are linear, compiled or not, one vector or many"

    def twice(self) -> str:
        """Check that preparing twice changes nothing."""
        again = self.prepared.prepare(self.layout)
        for name in ("drift", "noise", "pullback"):
            first, second = (self.columns(getattr(D, name)) for D in (self.prepared, again))
            if not np.array_equal(first, second):
                raise self._fail(f"after a second prepare, {name} is another matrix.")
        return "preparing twice changes nothing"

    def scaled(self) -> str:
        """Check that `scaled(share)` is share * D in all three functions."""
        scaled = self.prepared.scaled(SCALING_FACTOR)
        self.matrix(scaled)
        D, larger = self.columns(self.prepared.drift), self.columns(scaled.drift)
        if not self._close(
            larger, SCALING_FACTOR * D, SCALING_FACTOR * np.sqrt(np.outer(np.diag(D), np.diag(D)))
        ):
            raise self._fail(f"scaled({SCALING_FACTOR:g}) is not {SCALING_FACTOR:g} D.")
        return "scaled(share) is share * D, its noise and pullback too"

    def adapted(self, gradients: Any = None) -> Any:
        """Return the matrix after a few gradients."""
        memory = self.prepared.start(self.z)
        for g in self.gradients if gradients is None else gradients:
            memory = self.prepared.after(memory, g)
        return self.prepared.at(memory)

    def memory(self) -> str:
        """Check that `after` depends on its arguments only and keeps structure and dtypes."""
        D, g = self.prepared, self.gradients
        start = D.start(self.z)
        before = jax.tree.map(np.array, start)
        first, second = D.after(start, g[0]), D.after(start, g[0])
        same = lambda a, b: jax.tree.all(jax.tree.map(np.array_equal, a, b))  # noqa: E731
        if jax.tree.structure(first) != jax.tree.structure(start):
            raise self._fail("after returns a memory of another structure than start's.")
        for a, b in zip(*map(jax.tree.leaves, jax.eval_shape(lambda: (start, first))), strict=True):
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                raise self._fail(f"after turns a leaf of the memory, {a}, into {b}.")
        if not (same(first, second) and same(before, start)):
            raise self._fail(
                "after is not a function of memory and gradient alone: it stores something else."
            )
        near = lambda a, b: np.allclose(a, b, rtol=self.rtol, atol=0.0)  # noqa: E731
        batch = jax.jit(jax.vmap(D.after, (None, 0)))(start, g)
        loop = jax.tree.map(lambda *parts: np.stack(parts), *(D.after(start, one) for one in g))
        if not jax.tree.all(jax.tree.map(near, batch, loop)):
            raise self._fail("after differs compiled, or under vmap.")
        return "after is a function of memory and gradient, and keeps shapes and dtypes"

    def learns(self) -> str:
        """Check that D depends on the gradients, and on nothing else."""
        D, again, other = (
            self.columns(self.adapted(g).drift)
            for g in (self.gradients, self.gradients, 3 * self.gradients)
        )
        if not np.array_equal(D, again):
            raise self._fail("the same gradients gave two matrices.")
        if np.array_equal(D, other):
            raise self._fail("three times the gradients gave the same matrix: it does not adapt.")
        return "it adapts: other gradients, another D"

    def gamma(self) -> str:
        """Check the derivative in Gamma against finite differences."""
        with jax.enable_x64(True):
            D = double(self.prepared)
            z, g = (np.asarray(a, np.float64) for a in (self.z, self.gradients))
            memory = D.start(jnp.asarray(z))
            for one in g:
                memory = D.after(memory, jnp.asarray(one))
            curvature = jnp.asarray(1.0 + np.arange(z.size))
            at = lambda q: D.at(D.after(memory, g[0] - curvature * (q - z) - (q - z) ** 3))  # noqa: E731
            if not hasattr(at(z), "array") or np.shape(at(z).array) != z.shape:
                raise self._fail(
                    "gamma is for diagonal matrices: `at` must give one with `.array`."
                )
            gamma = np.diag(np.asarray(jax.jacfwd(lambda q: at(q).array)(jnp.asarray(z))))
            small, eye = 1e-5, jnp.eye(z.size)
            moved = [[at(z + s * small * e).drift(e) for s in (1, -1)] for e in eye]
            exact = np.array([(up - down)[i] for i, (up, down) in enumerate(moved)]) / (2 * small)
        if not np.allclose(gamma, exact, rtol=1e-4, atol=1e-7 * np.abs(exact).max()):
            raise self._fail(
                f"Gamma is {gamma}, by finite differences {exact}: `at` and `after` must be "
                "differentiable, with `.array` the diagonal of drift."
            )
        return "Gamma agrees with finite differences"


# -- schedule ------------------------------------------------------------------------------


COMPARED_STEPS = 24  # steps at which single calls are compared
MAX_CALL_DIFFERENCE = 2e-6  # relative, between ways to call it: compilers may fuse operations


@dataclass(frozen=True)
class ScheduleReport:
    """The result of `check_schedule`.

    Attributes:
      schedule: the name of its class, or of the function.
      num_steps: the last step of the certified range.
      first, last: its values at step 0 and at step num_steps.
      checks: sentences, one per property that held.

    Example:
      >>> import sgld
      >>> report = sgld.testing.check_schedule(sgld.constant(0.5), num_steps=10)
      >>> report.first, report.last
      (0.5, 0.5)
    """

    schedule: str
    num_steps: int
    first: float
    last: float
    checks: tuple[str, ...]

    def __repr__(self) -> str:
        head = f"{self.schedule}: {len(self.checks)} checks passed"
        ends = f"  {self.first:g} at step 0, {self.last:g} at step {self.num_steps:,}"
        return "\n".join([head, *(f"  {check}" for check in self.checks), ends])


def check_schedule(schedule: Any, *, num_steps: int = 10_000) -> ScheduleReport:
    """Certify that a schedule is a function of the step alone, counted from 0.

    A schedule gives one finite, nonnegative number for every step, a step size or a temperature. JAX
    can trace it. It has no memory, so that resumed runs, other chunks and several chains get the
    same values.

    Args:
      schedule: a function of the step, from `sgld.samplers.schedules`, optax, or user-supplied.
      num_steps: the last step of the range.

    Returns: ScheduleReport. Raises AssertionError, with a sentence, at the first failure.

    Example:
      >>> import sgld
      >>> report = sgld.testing.check_schedule(sgld.power(0.1, 0.33), num_steps=1000)
      >>> report.first > report.last, len(report.checks)
      (True, 3)
    """
    name = getattr(schedule, "__name__", type(schedule).__name__)
    check_needs("schedule", schedule)
    if not callable(schedule):
        raise AssertionError(f"{name}: a schedule is a function of the step.")
    release_mistakable(schedule)
    suite = _ScheduleSuite(schedule, name, num_steps)
    checks = (suite.values(), suite.stateless(), suite.compiled())
    return ScheduleReport(name, num_steps, suite.single[0], suite.single[num_steps], checks)


class _ScheduleSuite:
    """The checks; each returns a sentence about the property that holds."""

    def __init__(self, schedule: Any, name: str, num_steps: int) -> None:
        self.schedule, self.name, self.num_steps = schedule, name, num_steps
        spread = np.geomspace(1, num_steps + 1, COMPARED_STEPS) - 1
        self.steps = np.unique([*spread.astype(np.int32), 0, num_steps])
        self.single: dict[int, float] = {}

    def _fail(self, sentence: str) -> AssertionError:
        return AssertionError(f"{self.name}: {sentence}")

    def values(self) -> str:
        """Check, under a tracer, for one finite, nonnegative number at every step."""
        try:
            check_values(self.schedule, self.num_steps, "the value")
        except UsageError as error:
            raise self._fail(f"{error}") from error
        return f"it can be traced, and is finite and not negative from step 0 to {self.num_steps:,}"

    def stateless(self) -> str:
        """Check that the order and the number of calls do not change the values."""
        forward = [float(self.schedule(int(step))) for step in self.steps]
        backward = [float(self.schedule(int(step))) for step in self.steps[::-1]][::-1]
        if forward != backward:
            step = self.steps[np.argmax(np.array(forward) != np.array(backward))]
            raise self._fail(
                f"called again, step {step} has another value: a schedule must have no memory and no randomness."
            )
        self.single = dict(zip(self.steps.tolist(), forward, strict=True))
        return "it has no memory: the same step gives the same value"

    def compiled(self) -> str:
        """Check that a plain call, a compiled one and a vmap agree."""
        plain, steps = np.array(list(self.single.values())), jnp.asarray(self.steps)
        one = jax.jit(lambda step: jnp.asarray(self.schedule(step)))
        found = {
            "compiled": np.array([float(one(step)) for step in steps]),
            "under vmap": np.asarray(jax.vmap(one)(steps), np.float64),
        }
        for how, values in found.items():
            wrong = ~np.isclose(
                values, plain, rtol=MAX_CALL_DIFFERENCE, atol=MAX_CALL_DIFFERENCE * plain.max()
            )
            if wrong.any():
                i = int(np.argmax(wrong))
                raise self._fail(
                    f"at step {self.steps[i]} it is {values[i]:g} {how}, and {plain[i]:g} called "
                    "with the number itself."
                )
        return "compiled, under vmap and called with a number it gives the same value"
