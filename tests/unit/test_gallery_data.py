"""Loading one's own data for the gallery's X9, and its Amari distance and natural gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the report extra is not installed")

from sgld.errors import DataError
from sgld.gallery import x9
from sgld.gallery.make import load_table


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_libsvm_file_is_read_with_gaps_as_zeros(tmp_path):
    path = written(tmp_path, "a9a", "-1 1:0.5 3:2\n\n+1 2:-1 # a comment\n-1\n")
    X, y = load_table(path)
    np.testing.assert_array_equal(X, np.array([[0.5, 0, 2], [0, -1, 0], [0, 0, 0]], np.float32))
    np.testing.assert_array_equal(y, [0, 1, 0])
    assert X.dtype == y.dtype == np.float32


def test_a_libsvm_file_may_count_from_0(tmp_path):
    X, _ = load_table(written(tmp_path, "a", "-1 0:0.5 2:2\n+1 1:-1\n"))
    np.testing.assert_array_equal(X, np.array([[0.5, 0, 2], [0, -1, 0]], np.float32))


def test_a_csv_file_has_its_label_last(tmp_path):
    X, y = load_table(written(tmp_path, "own.csv", "a,b,label\n1,0,4\n2,3,9\n"))
    np.testing.assert_array_equal(X, [[1, 0], [2, 3]])
    np.testing.assert_array_equal(y, [0, 1])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a", "+1 1:2\n-1 1:2 x:3\n", "line 2 must be"),
        ("a", "+1 1:2\n\n-1 -1:2\n", "line 3 must be .* from 0 or 1"),
        ("a", "+1 1:2 1:3\n-1 1:2\n", "line 1 must be .* each once"),
        ("a", "+1 1:2\n-1 1:nan\n", "line 2 must be"),
        ("a", "+1 1:2\nspam 1:2\n", "line 2 must be"),
        ("a", "+1 1:2\n-1 1\n", "line 2 must be"),
        ("a", "+1 1:2\n+1 1:3\n", "two labels. Got 1 in 2 rows"),
        ("a.csv", "a,y\n1,0\n2,x\n", "line 3 must hold 2 finite numbers"),
        ("a.csv", "a,y\n1,0\n2,1,1\n", "line 3 must hold 2 finite numbers"),
        ("a.csv", "a,y\n1,0\ninf,1\n", "line 3 must hold 2 finite numbers"),
        ("a.csv", "", "two labels. Got 0"),
    ],
)
def test_a_bad_line_is_named(name, text, said, tmp_path):
    if said.startswith("line"):
        said = f"^{name}: {said}"
    with pytest.raises(DataError, match=said):
        load_table(written(tmp_path, name, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"there is no file .*none"):
        load_table(tmp_path / "none")


def test_the_amari_distance_is_0_for_scaled_permutations_and_1_at_worst():
    A = np.random.default_rng(0).normal(size=(3, 3))
    scaled = np.diag([2.0, -0.1, 30.0])[[2, 0, 1]]
    assert x9.amari(scaled @ np.linalg.inv(A), A) == pytest.approx(0, abs=1e-12)
    assert x9.amari(np.ones((3, 3)) @ np.linalg.inv(A), A) == pytest.approx(1)
    assert x9.amari(np.stack([np.eye(3)] * 2), A).shape == (2,)


def test_the_natural_step_has_the_drift_and_the_divergence_of_its_metric():
    rng = np.random.default_rng(1)
    W, G, xi = (jnp.asarray(rng.normal(size=(3, 3)), jnp.float32) for _ in range(3))
    metric = lambda w: jnp.kron(jnp.eye(3), w.reshape(3, 3).T @ w.reshape(3, 3))  # noqa: E731
    divergence = jnp.einsum("ijj->i", jax.jacobian(metric)(W.ravel()))

    def step(T, xi):
        sampler = x9.NaturalSGLD()
        new = sampler.step(
            sampler.init(W.ravel()), lambda _: G.ravel(), 0.01, xi.ravel(), preconditioner=None,
            temperature=T,
        )  # fmt: skip
        return new.position - W.ravel()

    drift = metric(W.ravel()) @ G.ravel() + 2 * divergence
    np.testing.assert_allclose(step(2.0, 0 * xi), 0.01 * drift, rtol=2e-4, atol=1e-4)
    noise = jax.jacobian(lambda xi: step(2.0, xi))(xi).reshape(9, 9)
    np.testing.assert_allclose(noise @ noise.T, 0.04 * metric(W.ravel()), rtol=2e-3, atol=1e-4)
