import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sgld.errors import DataError, UsageError
from sgld.models.family import BERNOULLI, FAMILIES, GAUSSIAN, POISSON, find_family

X = np.array([1.0, -0.5, 2.0], np.float32)
POSITION = {"coefficients": np.array([0.3, 1.2, -0.4], np.float32), "sigma": np.float32(0.7)}
ETA = float(X @ POSITION["coefficients"])
LAWS = {
    "gaussian": scipy.stats.norm(ETA, 0.7),
    "bernoulli": scipy.stats.bernoulli(1 / (1 + np.exp(-ETA))),
    "poisson": scipy.stats.poisson(np.exp(ETA)),
}
OUTCOMES = {"gaussian": [-3.0, 0.2, 5.0], "bernoulli": [0.0, 1.0], "poisson": [0.0, 1.0, 17.0]}


@pytest.mark.parametrize("name", FAMILIES)
def test_log_likelihood_is_scipys(name):
    law = LAWS[name]
    for y in OUTCOMES[name]:
        value = FAMILIES[name].log_likelihood(POSITION, (jnp.asarray(X), jnp.float32(y)))
        expected = law.logpdf(y) if name == "gaussian" else law.logpmf(y)
        assert value.shape == ()
        np.testing.assert_allclose(value, expected, rtol=2e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_is_the_finite_difference(name):
    family, step = FAMILIES[name], 1e-5
    with jax.enable_x64(True):
        position = {k: jnp.asarray(v, jnp.float64) for k, v in POSITION.items()}
        datum = (jnp.asarray(X, jnp.float64), jnp.float64(1.0))
        flat, unravel = jax.flatten_util.ravel_pytree(position)

        def f(z):
            return family.log_likelihood(unravel(z), datum)

        numeric = [(f(flat + step * e) - f(flat - step * e)) / (2 * step) for e in jnp.eye(4)]
        np.testing.assert_allclose(jax.grad(f)(flat), jnp.stack(numeric), atol=1e-8)


@pytest.mark.parametrize("name", FAMILIES)
def test_mean_sd_and_sample_agree_with_the_law(name):
    family, law = FAMILIES[name], LAWS[name]
    np.testing.assert_allclose(family.mean(np.asarray([ETA])), law.mean(), rtol=1e-6)
    np.testing.assert_allclose(family.sd(np.asarray([ETA]), POSITION), law.std(), rtol=1e-6)
    y = family.sample(np.random.default_rng(0), np.full(40_000, ETA), POSITION)
    assert abs(y.mean() - law.mean()) < 5 * law.std() / 200
    np.testing.assert_allclose(y.std(), law.std(), rtol=0.03)


def test_bernoulli_is_stable_far_out():
    position = {"coefficients": jnp.float32([100.0])}
    for x, y, expected in [(1.0, 0.0, -100.0), (-1.0, 1.0, -100.0), (1.0, 1.0, 0.0)]:
        datum = (jnp.float32([x]), jnp.float32(y))
        value, grad = jax.value_and_grad(BERNOULLI.log_likelihood)(position, datum)
        np.testing.assert_allclose(value, expected, atol=1e-30)
        assert np.isfinite(grad["coefficients"]).all()
    assert BERNOULLI.sd(np.array([-2000.0]), {}) == 0.0


@pytest.mark.parametrize(
    ("family", "values", "message"),
    [
        (BERNOULLI, [0, 1, 2], "'y' is 2 in data row 3; the bernoulli family needs 0 or 1"),
        (POISSON, [0, -1, 3], "'y' is -1 in data row 2; the poisson family needs counts"),
        (POISSON, [0, 1, 1.5], "'y' is 1.5 in data row 3"),
        (POISSON, [2**24 + 2], r"'y' is 16777218 in data row 1; float32 holds counts up to 2\^24"),
        (GAUSSIAN, [4.0, 4.0], r"'y' is constant \(4 in every row\)"),
    ],
)
def test_outcomes_out_of_range(family, values, message):
    with pytest.raises(DataError, match=message):
        family.check(np.asarray(values, np.float64), "y")


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_centre_is_finite_where_the_outcome_is_constant(name, value):
    assert np.isfinite(FAMILIES[name].centre(np.full(10, value)))


def test_unknown_family():
    with pytest.raises(UsageError, match=r"Got 'poison'. Did you mean 'poisson'"):
        find_family("poison")
