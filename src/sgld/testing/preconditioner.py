"""The contract suite of preconditioners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..core.pytrees import Layout, tell_apart
from .affine import double, name_of
from .needs import check_needs

__all__ = ["PreconditionerReport", "check_preconditioner"]

Matrix = Float[np.ndarray, "d d"]
HISTORY = 5  # gradients that one which adapts is shown
SHARE = 2.5  # by which a constant one is scaled


@dataclass(frozen=True)
class PreconditionerReport:
    """What `check_preconditioner` found.

    Attributes:
      preconditioner: its class's name.
      adapts: whether it learns from gradients.
      matrix: D [d, d]; of one that adapts, after a few gradients.
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
    """Certify a preconditioner: one matrix D behind `drift`, `noise` and `pullback`.

    A matrix has `drift(g)` = D g, `noise(xi)` = P xi and `pullback(g)` = P^T g with P P^T = D,
    symmetric positive definite. One that adapts has `start(z)`, `after(memory, g)` and
    `at(memory)`, which gives such a matrix whatever was learnt. Entry (i, j) of a matrix is held to
    `rtol` sqrt(D_ii D_jj), so that the unit of a coordinate changes nothing in what is certified.

    Args:
      preconditioner: an object of the contract in `sgld.samplers.preconditioners`, as a user gives it.
      position: what it is prepared for: a pytree, by default three parameters.
      rtol: of an entry, in the position's precision.

    Returns: PreconditionerReport. Raises AssertionError, in a sentence, at the first failure.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> D = sgld.Dense(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
      >>> report = sgld.testing.check_preconditioner(D, jnp.zeros(2))
      >>> len(report.checks), report.matrix.tolist()
      (7, [[4.0, 2.0], [2.0, 2.0]])
    """
    check_needs("preconditioner", preconditioner, "prepare")
    tell_apart(preconditioner)
    suite = _PreconditionerSuite(
        preconditioner, jnp.zeros(3) if position is None else position, rtol
    )
    checks = [suite.interface()]
    if suite.prepared.adapts:
        checks += [suite.memory(), suite.learns()]
        if suite.prepared.gamma:
            checks.append(suite.gamma())
        D = suite.learnt()
        checks += suite.matrix(D)
        suite.matrix(suite.prepared.at(suite.prepared.start(suite.z)))  # before the first gradient
    else:
        D = suite.prepared
        checks += [*suite.matrix(D), suite.twice(), suite.scaled()]
    found = suite.columns(D.drift)
    return PreconditionerReport(suite.name, suite.prepared.adapts, found, tuple(checks))


class _PreconditionerSuite:
    """The checks, each of which returns the sentence of what held."""

    def __init__(self, preconditioner: Any, position: Any, rtol: float) -> None:
        self.given, self.name, self.rtol = preconditioner, name_of(preconditioner), rtol
        self.layout = Layout.of(position)
        self.z = self.layout.ravel(position)
        self.prepared = preconditioner.prepare(self.layout)
        rng = np.random.default_rng(3)
        shape = (HISTORY, self.layout.dimension)
        self.gradients = jnp.asarray(rng.standard_normal(shape), self.layout.dtype)

    def _fail(self, sentence: str) -> AssertionError:
        return AssertionError(f"{self.name}: {sentence}")

    def interface(self) -> str:
        """The contract's names are there."""
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
        """The matrix of a linear function."""
        eye = jnp.eye(self.layout.dimension, dtype=self.layout.dtype)
        return np.asarray(jax.vmap(function, out_axes=1)(eye), np.float64)

    def matrix(self, D: Any) -> list[str]:
        """`drift`, `noise` and `pullback` are D, P and P^T with P P^T = D."""
        check_needs("preconditioner", D, "drift", "noise", "pullback")
        functions = {"drift": D.drift, "noise": D.noise, "pullback": D.pullback}
        checks = [self._linear(functions)]
        drift, noise, pullback = (self.columns(function) for function in functions.values())
        if not np.diag(drift).min() > 0:
            raise self._fail(
                f"drift has {np.diag(drift).min():.3g} on its diagonal; D is positive."
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
            raise self._fail("noise is no square root of drift: its P has P P^T other than D.")
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
                raise self._fail(f"{name} is not linear: it is not what it does to unit vectors.")
            if not self._close(np.asarray(compiled), np.asarray(value), scale):
                raise self._fail(f"{name} compiled differs from {name} itself.")
        return "drift, noise and pullback are linear, compiled or not, one vector or many"

    def twice(self) -> str:
        """What was prepared is prepared."""
        again = self.prepared.prepare(self.layout)
        for name in ("drift", "noise", "pullback"):
            first, second = (self.columns(getattr(D, name)) for D in (self.prepared, again))
            if not np.array_equal(first, second):
                raise self._fail(f"prepared again, {name} is another matrix.")
        return "preparing twice changes nothing"

    def scaled(self) -> str:
        """`scaled(share)` is share * D in all three."""
        scaled = self.prepared.scaled(SHARE)
        self.matrix(scaled)
        D, larger = self.columns(self.prepared.drift), self.columns(scaled.drift)
        if not self._close(larger, SHARE * D, SHARE * np.sqrt(np.outer(np.diag(D), np.diag(D)))):
            raise self._fail(f"scaled({SHARE:g}) is not {SHARE:g} D.")
        return "scaled(share) is share * D, its noise and pullback too"

    def learnt(self, gradients: Any = None) -> Any:
        """The matrix after a few gradients."""
        memory = self.prepared.start(self.z)
        for g in self.gradients if gradients is None else gradients:
            memory = self.prepared.after(memory, g)
        return self.prepared.at(memory)

    def memory(self) -> str:
        """`after` is a function of its arguments, and keeps structure, shapes and dtypes."""
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
                "after is no function of memory and gradient: it keeps something else."
            )
        near = lambda a, b: np.allclose(a, b, rtol=self.rtol, atol=0.0)  # noqa: E731
        batch = jax.jit(jax.vmap(D.after, (None, 0)))(start, g)
        loop = jax.tree.map(lambda *parts: np.stack(parts), *(D.after(start, one) for one in g))
        if not jax.tree.all(jax.tree.map(near, batch, loop)):
            raise self._fail("after differs compiled, or under vmap.")
        return "after is a function of memory and gradient, and keeps shapes and dtypes"

    def learns(self) -> str:
        """D follows from the gradients that were seen, and from nothing else."""
        D, again, other = (
            self.columns(self.learnt(g).drift)
            for g in (self.gradients, self.gradients, 3 * self.gradients)
        )
        if not np.array_equal(D, again):
            raise self._fail("the same gradients gave two matrices.")
        if np.array_equal(D, other):
            raise self._fail("three times the gradients gave the same matrix: it does not adapt.")
        return "it adapts: other gradients, another D"

    def gamma(self) -> str:
        """The derivative that Gamma is made of agrees with finite differences."""
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
