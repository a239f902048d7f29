"""The contract suite of gradient estimators."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..core.pytrees import Layout, tell_apart
from ..data.validate import as_source
from ..model.posterior import Posterior
from ..model.problem import Problem, Target
from .needs import check_needs

__all__ = ["GradientReport", "check_gradient"]

Matrix = Float[np.ndarray, "d d"]

STEPS = 12  # after which an estimator with a memory is looked at


@dataclass(frozen=True)
class GradientReport:
    """What `check_gradient` found: per order and batch size, the noise of the estimate.

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
    """Certify a gradient estimator: unbiased over ALL batches, whatever N and n.

    An estimator has `prepare(problem, center) -> estimator`, called once, and
    `at(problem, x) -> (position -> gradient)`, called inside compiled code. Every
    block, every subset and every n-tuple of rows is enumerated.

    One with `remembers = True` has `start(problem, z) -> memory` and
    `after(problem, x, memory, z, step) -> memory` besides, and `at` takes the memory as
    a fourth argument. It must be unbiased given what it remembers: at the start, and after each
    of a dozen steps that began at other positions.

    Args:
      gradient: the estimator.
      posterior, data, position: the problem; by default a Poisson regression of 7 rows with
        two leaves and a prior that counts. Give few rows: N over n subsets are visited. A Source
        as data is asked for its own batches, rows that are in every one included.
      rtol: of the mean against the full gradient, relative to its largest entry.

    Returns: GradientReport. Raises AssertionError, in a sentence, at the first failure.

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
    tell_apart(gradient)
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
    """The gradients at z of all batches, given each memory that a few steps leave."""
    if not getattr(prepared, "remembers", False):
        one = jax.jit(jax.vmap(lambda x: prepared.at(problem, x)(z)))
        yield "", np.asarray(one(jnp.asarray(entries)), np.float64)
        return
    rng = np.random.default_rng(4)
    visited = jnp.asarray(entries[rng.integers(len(entries), size=STEPS)])
    moves = jnp.asarray(0.2 * rng.standard_normal((STEPS, z.size)), z.dtype)

    def given(memory: Any) -> Any:
        return jax.vmap(lambda x: prepared.at(problem, x, memory)(z))(jnp.asarray(entries))

    def step(memory: Any, inputs: Any) -> tuple[Any, Any]:
        x, move, k = inputs
        memory = prepared.after(problem, x, memory, center + move, k)
        return memory, given(memory)

    @jax.jit
    def run() -> tuple[Any, Any]:
        memory, steps = prepared.start(problem, center), jnp.arange(STEPS, dtype=jnp.int32)
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
