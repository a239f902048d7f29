"""drift is D g, noise is D^{1/2} xi, pullback is its transpose; and wrong ones are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.pytrees import Layout
from sgld.errors import UsageError

MATRIX = np.array([[4.0, 2.0, 0.0], [2.0, 3.0, 1.0], [0.0, 1.0, 2.0]])
LAYOUT = Layout.of({"a": jnp.zeros(()), "b": jnp.zeros(2)})
CASES = [
    (sgld.Scalar(2.5), 2.5 * np.eye(3)),
    (sgld.Diagonal(np.array([1.0, 4.0, 0.25])), np.diag([1.0, 4.0, 0.25])),
    (sgld.Diagonal({"a": jnp.float32(3.0), "b": jnp.array([1.0, 2.0])}), np.diag([3.0, 1.0, 2.0])),
    (sgld.Dense(MATRIX), MATRIX),
    (sgld.Dense(MATRIX, np.linalg.cholesky(MATRIX) @ np.linalg.qr(MATRIX)[0]), MATRIX),
    (sgld.Dense(np.array([[4, 2, 0], [2, 3, 1], [0, 1, 2]])), MATRIX),
]


@pytest.mark.parametrize(("D", "matrix"), CASES)
def test_contract(D, matrix):
    D = D.prepare(LAYOUT)
    eye = jnp.eye(3)
    columns = lambda f: np.asarray(jax.vmap(f, in_axes=1, out_axes=1)(eye))  # noqa: E731
    root = columns(D.noise)
    np.testing.assert_allclose(columns(D.drift), matrix, atol=1e-5)
    np.testing.assert_allclose(root @ root.T, matrix, atol=1e-5)
    np.testing.assert_allclose(columns(D.pullback), root.T, atol=1e-6)
    assert {leaf.dtype for leaf in jax.tree.leaves(D)} == {np.dtype("float32")}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sgld.Scalar(0.0), "positive and finite. Got 0"),
        (lambda: sgld.Scalar(np.ones(3)), "use Diagonal or Dense"),
        (lambda: sgld.Diagonal(np.array([1.0, -1.0, 1.0])), r"Got -1 at b\[0\]"),
        (lambda: sgld.Diagonal(np.array([1.0, np.nan, 1.0])), "nan at"),
        (lambda: sgld.Diagonal(np.ones(2)), r"expected \(3,\)"),
        (lambda: sgld.Dense(np.eye(2)), r"\(3, 3\)"),
        (lambda: sgld.Dense(np.ones((2, 3))), "square"),
        (lambda: sgld.Dense(np.triu(np.ones((3, 3)))), "symmetric"),
        (lambda: sgld.Dense(np.ones((3, 3))), "positive definite"),
    ],
)  # fmt: skip
def test_refusals(make, message):
    with pytest.raises(UsageError, match=message):
        make().prepare(LAYOUT)


def test_a_dense_matrix_may_be_traced():
    root = jax.jit(lambda m: sgld.Dense(m, jnp.linalg.cholesky(m)).noise(jnp.ones(3)))
    expected = np.linalg.cholesky(MATRIX).sum(1)
    np.testing.assert_allclose(root(jnp.asarray(MATRIX, jnp.float32)), expected, rtol=1e-5)


ORTHONORMAL = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 2)))[0]
DIAGONAL = np.array([0.5, 1.0, 4.0])


@pytest.mark.parametrize("c", [[-0.9, -0.2], [-0.5, 3.0], [0.4, 2.0]])
def test_low_rank_of_a_square_root(c):
    c = np.array(c)
    root = np.sqrt(DIAGONAL)[:, None] * (np.eye(3) + ORTHONORMAL * c @ ORTHONORMAL.T)
    D = sgld.LowRank(DIAGONAL, Q=ORTHONORMAL, c=c)
    test_contract(D, root @ root.T)
    test_contract(D.scaled(0.3), 0.3 * root @ root.T)
    eye = jnp.eye(3)
    noise = jax.vmap(D.prepare(LAYOUT).noise, in_axes=1, out_axes=1)(eye)
    np.testing.assert_allclose(noise, root, atol=1e-6)


@pytest.mark.parametrize("share", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("make", [case[0] for case in CASES[:2] + CASES[3:]])
def test_scaled_is_that_share_of_the_matrix(make, share):
    matrix = np.asarray(jax.vmap(make.prepare(LAYOUT).drift, in_axes=1, out_axes=1)(jnp.eye(3)))
    test_contract(make.scaled(share), share * matrix)


def test_low_rank_of_columns_is_the_one_of_their_square_root():
    U = np.array([[1.0, 0.5], [-0.5, 0.2], [0.3, 2.0]])
    given = sgld.LowRank(DIAGONAL, U)
    test_contract(given, np.diag(DIAGONAL) + U @ U.T)
    test_contract(given.scaled(2.0), 2 * (np.diag(DIAGONAL) + U @ U.T))
    same = sgld.LowRank(DIAGONAL, Q=given.Q, c=given.c).prepare(LAYOUT)
    xi = jnp.array([0.3, -1.0, 2.0])
    np.testing.assert_array_equal(given.prepare(LAYOUT).noise(xi), same.noise(xi))
    assert np.all(np.asarray(given.c) > 0)
