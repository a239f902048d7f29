"""A preconditioner whose noise is not that of its drift samples another law: refused, whatever judges the run."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.pytrees import Layout
from sgld.errors import UsageError
from sgld.samplers.preconditioners.fixed import given

RNG = np.random.default_rng(0)
LAYOUT = Layout.of(jnp.zeros((2, 3)))
ROOT = np.linalg.cholesky(np.cov(RNG.standard_normal((6, 40)))).astype(np.float32)
Q = np.linalg.qr(RNG.standard_normal((6, 2)))[0]
S = np.full((2, 3), 0.5)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Own:
    """D = A A^T with a noise and a pullback that are given."""

    noise_by: Any
    pullback_by: Any
    adapts: ClassVar[bool] = False

    def prepare(self, layout):
        return self

    def drift(self, g):
        return ROOT @ (ROOT.T @ g)

    def noise(self, xi):
        return self.noise_by @ xi

    def pullback(self, g):
        return self.pullback_by @ g


@pytest.mark.parametrize(
    "wrong",
    [
        sgld.Kronecker((1.2 * np.eye(2),), (np.eye(3),), (S,)),
        sgld.LowRank(np.ones(6), Q=1.2 * Q, c=np.ones(2)),
        Own(1.1 * ROOT, ROOT.T),
        Own(ROOT, ROOT),
        Own(2 * ROOT, ROOT.T / 2),
        Own(ROOT @ Q @ Q.T, (ROOT @ Q @ Q.T).T),
    ],
    ids=["Kronecker", "LowRank", "wide", "not transposed", "twice as wide", "a part"],
)
def test_what_is_not_one_matrix_is_refused(wrong):
    posterior = sgld.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -0.5 * jnp.sum((w @ x) ** 2),
        predict=lambda w, x: w @ x,
    )  # fmt: skip
    x = RNG.standard_normal((50, 3)).astype(np.float32)
    with pytest.raises(UsageError, match=r"noise .* drift: .* differ by [0-9]+%"):
        sgld.sample(
            posterior, x, np.ones((2, 3)), step_size=1e-3, preconditioner=wrong, progress=False
        )


@pytest.mark.parametrize(
    "right",
    [
        sgld.Scalar(2.0),
        sgld.Diagonal(np.array([1e-8, 1e-4, 1, 1, 1e4, 1e8])),
        sgld.Dense(ROOT @ ROOT.T),
        sgld.LowRank(np.ones(6), Q=Q, c=np.ones(2)),
        sgld.Kronecker(
            (np.linalg.qr(RNG.standard_normal((2, 2)))[0],),
            (np.linalg.qr(RNG.standard_normal((3, 3)))[0],),
            (S,),
        ),
        sgld.RMSprop(),
        Own(ROOT, ROOT.T),
    ],
    ids=lambda right: type(right).__name__,
)
def test_what_is_one_is_taken(right):
    assert given(right, LAYOUT) is not None


def test_a_flat_diagonal_of_a_matrix_is_taken_as_it_is():
    np.testing.assert_array_equal(
        sgld.Diagonal(np.arange(1.0, 7)).prepare(LAYOUT).array, np.arange(1.0, 7)
    )
    D = sgld.Diagonal(np.arange(1.0, 7).reshape(2, 3)).prepare(LAYOUT)
    np.testing.assert_array_equal(D.array, np.arange(1.0, 7))
