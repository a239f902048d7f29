"""The Kronecker preconditioner: the formula, what it knows of a model whose information is a product, and its errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.pytrees import Layout
from sgld.errors import UsageError
from sgld.testing import check_preconditioner

RNG = np.random.default_rng(0)
MIXED = np.array([[1.0, 0.9, 0.0], [0.0, 0.5, 0.0], [0.0, 0.4, 2.0]])
X = (RNG.standard_normal((4000, 3)) @ MIXED).astype(np.float32)
COVARIANCE = np.array([[1.0, 0.8], [0.8, 1.0]])  # of the outcomes' noise
PRECISION = np.linalg.inv(COVARIANCE)
W = np.array([[1.0, -1.0, 0.5], [0.0, 2.0, 1.0]])
Y = (X @ W.T + RNG.multivariate_normal(np.zeros(2), COVARIANCE, 4000)).astype(np.float32)


def log_likelihood(p, row):
    x, y = row
    left = y - p["W"] @ x - p["b"]
    return -0.5 * left @ jnp.asarray(PRECISION, jnp.float32) @ left


POSTERIOR = sgld.Posterior(
    lambda p: -0.5 * (jnp.sum(p["W"] ** 2) + p["b"] @ p["b"]), log_likelihood
)
AT = {"W": jnp.asarray(W, jnp.float32), "b": jnp.zeros(2)}


def factors(seed=0):
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (2, 3))
    return sgld.Kronecker((U, None), (V, None), (np.exp(rng.standard_normal((2, 3))), np.full(2, 3.0)))  # fmt: skip


def dense(D):
    eye = jnp.eye(8)
    return np.asarray(jax.vmap(D.drift)(eye), np.float64).T


def test_it_keeps_the_contract():
    assert len(check_preconditioner(factors(), AT).checks) == 7


def test_it_is_the_product_that_it_says():
    given = factors()
    U, V, s = given.left[0], given.right[0], given.scale[0]
    Q = np.kron(U, V)
    expected = np.zeros((8, 8))
    expected[:6, :6], expected[6:, 6:] = Q @ np.diag(s.ravel()) @ Q.T, 3 * np.eye(2)
    D = given.prepare(Layout.of(AT))
    np.testing.assert_allclose(dense(D), expected, atol=1e-5)
    np.testing.assert_allclose(dense(D.scaled(4.0)), 4 * expected, atol=1e-5)


def test_of_outcomes_that_go_together_it_is_the_posterior_covariance():
    """Rows' information is a product here, of the noise's precision and the inputs' second moments."""
    D = sgld.networks.kronecker(POSTERIOR, (X, Y), AT, num_rows=4000)
    information = np.kron(PRECISION, X.T.astype(float) @ X) + np.eye(6)
    found = dense(D)[:6, :6] @ information
    np.testing.assert_allclose(np.linalg.eigvals(found).real, 1.0, atol=0.12)
    one = 1 / np.diag(information)  # a diagonal does not know which way
    assert np.linalg.eigvals(np.diag(one) @ information).real.max() > 1.7


def test_rows_are_drawn_once_and_counted_as_many():
    """Half of the rows say the same but for chance; N of them are N times as much as their mean."""
    whole, half = (
        dense(sgld.networks.kronecker(POSTERIOR, (X, Y), AT, num_rows=n)) for n in (4000, 2000)
    )
    np.testing.assert_allclose(half, whole, atol=0.2 * np.abs(whole).max())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (sgld.Kronecker(), "has no factors"),
        (sgld.Kronecker((None,), (None,), (np.ones(6),)), "2 leaves"),
        (sgld.Kronecker(scale=(np.ones(6), np.ones(2))), "2 leaves"),
        (sgld.Kronecker((np.eye(2), None), (np.eye(3), None), (np.ones(6), np.ones(2))), "leaf 'W'"),
        (sgld.Kronecker((np.eye(3), None), (np.eye(3), None), (np.ones((2, 3)), np.ones(2))), "leaf 'W'"),
        (sgld.Kronecker((None, None), (None, None), (np.ones(6), np.zeros(2))), "scale of leaf 'b' must be positive"),
    ],
)  # fmt: skip
def test_factors_that_do_not_fit_are_refused(given, words):
    with pytest.raises(UsageError, match=words):
        sgld.sample(POSTERIOR, (X, Y), AT, step_size=1e-4, preconditioner=given, progress=False)


def test_gradients_whose_squares_are_not_finite_are_told():
    with pytest.raises(UsageError, match="scale inputs and outcomes"):
        sgld.networks.kronecker(POSTERIOR, (1e12 * X, 1e12 * Y), AT)


def test_a_network_learns_its_factors_and_goes_on_with_them(tmp_path):
    posterior = sgld.Posterior(
        POSTERIOR.log_prior, POSTERIOR.log_likelihood, predict=lambda p, row: p["W"] @ row[0] + p["b"]
    )  # fmt: skip
    data, given = (X[:300], Y[:300]), {"progress": False, "max_steps": 1500}
    draws = sgld.sample(
        posterior, data, AT, preconditioner=sgld.Kronecker(), path=tmp_path / "run", **given
    )
    D = draws.plan.setup.preconditioner
    assert D.known and draws.plan.describe()["preconditioner"] == "Kronecker"
    information = np.kron(PRECISION, data[0].T.astype(float) @ data[0]) + np.eye(6)
    assert np.linalg.eigvals(dense(D)[:6, :6] @ information).real.max() < 2
    (tmp_path / "run" / "result.json").unlink()
    again = sgld.resume(tmp_path / "run", posterior, data, AT, progress=False)
    np.testing.assert_array_equal(again.position["W"], draws.position["W"])
