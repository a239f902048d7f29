"""Every preconditioner passes its contract suite; and the suite fails those that are wrong."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.testing import check_preconditioner

MATRIX = jnp.array([[4.0, 1.0, 0.5], [1.0, 2.0, -0.3], [0.5, -0.3, 1.0]])
UNITS = jnp.array([1e-4, 1.0, 1e4])
POSITION = {"b": jnp.zeros(2), "a": jnp.float32(0.0)}


@pytest.mark.parametrize(
    "given",
    [
        sgld.Scalar(4.0),
        sgld.Diagonal(jnp.array([0.01, 1.0, 100.0])),
        sgld.Diagonal({"a": jnp.float32(2.0), "b": jnp.array([1.0, 3.0])}),
        sgld.Dense(MATRIX),
        sgld.Dense(MATRIX * UNITS[:, None] * UNITS[None]),
        sgld.LowRank(jnp.array([1.0, 2.0, 3.0]), jnp.array([[1.0], [2.0], [-1.0]])),
    ],
    ids=["scalar", "diagonal", "pytree", "dense", "units", "low rank"],
)
def test_constant_matrices(given):
    report = check_preconditioner(given, POSITION)
    assert not report.adapts and len(report.checks) == 7
    assert repr(report).startswith(f"{type(given).__name__}: 7 checks passed")


@pytest.mark.parametrize("kind", [sgld.RMSprop, sgld.AdaGrad])
def test_matrices_that_adapt(kind):
    assert len(check_preconditioner(kind(), POSITION).checks) == 7
    assert "Gamma" in repr(check_preconditioner(kind(gamma=True), POSITION))


@dataclass(frozen=True)
class Slipped:
    """A dense matrix by its factor; `slip` plants a mistake."""

    P: Any
    slip: str = ""
    adapts = False

    def prepare(self, layout):
        return replace(self, P=2 * self.P) if self.slip == "prepare" else self

    def scaled(self, share):
        return replace(self, P=self.P * (share if self.slip == "scaled" else jnp.sqrt(share)))

    def drift(self, g):
        match self.slip:
            case "offset":
                return self.P @ (g @ self.P) + 1e-3
            case "factor for D":
                return self.P @ g
            case "negative":
                return self.P @ ((g @ self.P) * jnp.array([1.0, 1.0, -0.1]))
            case "double":
                return np.asarray(self.P @ (g @ self.P), np.float64)
        return self.P @ (g @ self.P)

    def noise(self, xi):
        if self.slip == "small coordinate":
            return (self.P @ xi) * jnp.array([1.01, 1.0, 1.0])
        return self.drift(xi) if self.slip == "D for factor" else self.P @ xi

    def pullback(self, g):
        return self.P @ g if self.slip == "transpose" else g @ self.P


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ("offset", "drift is not linear"),
        ("factor for D", "drift is not symmetric"),
        ("negative", "not positive definite"),
        ("D for factor", "not a square root"),
        ("small coordinate", "not a square root"),
        ("transpose", "not the transpose"),
        ("scaled", r"scaled\(2.5\) is not 2.5 D"),
        ("prepare", "second prepare"),
    ],
)
def test_slips_of_constant_matrices_are_caught(slip, message):
    factor = jnp.linalg.cholesky(MATRIX) * jnp.array([1e-3, 1.0, 1.0])[:, None]
    check_preconditioner(Slipped(factor))
    with pytest.raises(AssertionError, match=f"Slipped: .*{message}"):
        check_preconditioner(Slipped(factor, slip))


def test_a_matrix_without_a_square_root_is_no_preconditioner():
    class Half:
        adapts = False

        def prepare(self, layout):
            return self

        def drift(self, g):
            return g

    with pytest.raises(AssertionError, match="needs `noise`"):
        check_preconditioner(Half())


class Memory(NamedTuple):
    v: Any
    count: Any


class Learns:
    """D = diag 1 / (1 + sum of squares); `slip` plants a mistake."""

    adapts, freeze, gamma = True, True, True

    def __init__(self, slip=""):
        self.slip, self.seen = slip, 0
        if slip == "gamma is no bool":
            self.gamma = 1

    def prepare(self, layout):
        return self

    def start(self, z):
        return Memory(jnp.zeros_like(z), jnp.int32(0))

    def after(self, memory, g):
        self.seen += 1
        v = memory.v + (0.0 if self.slip == "learns nothing" else 1.0) * g**2
        if self.slip == "keeps a tally":
            v = v + self.seen
        count = memory.count + 1
        if self.slip == "dtype":
            count = jnp.asarray(count, float)
        return Memory(v, count) if self.slip != "structure" else (v, count)

    def at(self, memory):
        v = jax.lax.stop_gradient(memory.v) if self.slip == "no derivative" else memory.v
        matrix = sgld.Diagonal(1 / (1 + v))
        return sgld.Scalar(jnp.float32(2.0)) if self.slip == "no diagonal" else matrix


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ("gamma is no bool", "gamma must be True or False"),
        ("learns nothing", "does not adapt"),
        ("keeps a tally", "stores something else"),
        ("dtype", "turns a leaf of the memory"),
        ("structure", "another structure"),
        ("no derivative", "by finite differences"),
        ("no diagonal", "does not adapt"),
    ],
)
def test_slips_of_matrices_that_adapt_are_caught(slip, message):
    check_preconditioner(Learns())
    with pytest.raises(AssertionError, match=f"Learns: .*{message}"):
        check_preconditioner(Learns(slip))
