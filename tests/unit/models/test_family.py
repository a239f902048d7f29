import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sgld.errors import DataError, UsageError
from sgld.regression.families import (
    BERNOULLI,
    FAMILIES,
    GAUSSIAN,
    LOGNORMAL,
    POISSON,
    find_family,
    negative_binomial,
)

X = np.array([1.0, -0.5, 2.0], np.float32)
POSITION = {
    "coefficients": np.array([0.3, 1.2, -0.4], np.float32),
    "sigma": np.float32(0.7),
    "df": np.float32(5.0),
    "overdispersion": np.float32(1 / 1.5),
    "shape": np.float32(2.5),
}
EXTRA = {"trials": np.float32(7.0)}
GIVEN = {**POSITION, **EXTRA}
ETA = float(X @ POSITION["coefficients"])
MU = np.exp(ETA)
LAWS = {
    "gaussian": scipy.stats.norm(ETA, 0.7),
    "student-t": scipy.stats.t(5.0, ETA, 0.7),
    "bernoulli": scipy.stats.bernoulli(1 / (1 + np.exp(-ETA))),
    "binomial": scipy.stats.binom(7, 1 / (1 + np.exp(-ETA))),
    "poisson": scipy.stats.poisson(MU),
    "negative-binomial": scipy.stats.nbinom(1.5, 1.5 / (1.5 + MU)),
    "gamma": scipy.stats.gamma(2.5, scale=MU / 2.5),
    "lognormal": scipy.stats.lognorm(0.7, scale=MU),
}
OUTCOMES = {
    "gaussian": [-3.0, 0.2, 5.0],
    "student-t": [-3.0, 0.2, 50.0],
    "bernoulli": [0.0, 1.0],
    "binomial": [0.0, 3.0, 7.0],
    "poisson": [0.0, 1.0, 17.0],
    "negative-binomial": [0.0, 1.0, 17.0],
    "gamma": [0.01, 1.0, 9.0],
    "lognormal": [0.01, 1.0, 9.0],
}
NUMBERS = [name for name in FAMILIES if name != "categorical"]


def test_every_family_is_here():
    assert {*LAWS, "categorical"} == set(FAMILIES)


@pytest.mark.parametrize("name", NUMBERS)
def test_log_likelihood_is_scipys(name):
    law = LAWS[name]
    for y in OUTCOMES[name]:
        value = FAMILIES[name].log_likelihood(POSITION, (jnp.asarray(X), jnp.float32(y), EXTRA))
        expected = law.logpmf(y) if hasattr(law.dist, "logpmf") else law.logpdf(y)
        assert value.shape == ()
        np.testing.assert_allclose(value, expected, rtol=5e-6)


@pytest.mark.parametrize("y", [0.0, 1.0, 4.0, 300.0])
@pytest.mark.parametrize("overdispersion", [1e-3, 0.25, 1.0, 30.0])
def test_the_negative_binomials_curvature_is_scipys(overdispersion, y):
    # k = 1 / overdispersion = y + 1 is among them, where the beta function's is another
    def scipys(phi):
        return scipy.stats.nbinom(1 / phi, 1 / (1 + phi * 2)).logpmf(y)

    h = 0.03 * overdispersion
    expected = (
        scipys(overdispersion + h) - 2 * scipys(overdispersion) + scipys(overdispersion - h)
    ) / h**2
    found = jax.grad(
        jax.grad(lambda phi: negative_binomial(jnp.log(2.0), y, {"overdispersion": phi}, {}))
    )(jnp.float32(overdispersion))
    scale = overdispersion**2  # of the logarithm, in which it is sampled
    np.testing.assert_allclose(found * scale, expected * scale, rtol=5e-3, atol=1e-6)


@pytest.mark.parametrize("name", NUMBERS)
def test_gradient_is_the_finite_difference(name):
    family, step = FAMILIES[name], 1e-5
    with jax.enable_x64(True):
        position = {k: jnp.asarray(v, jnp.float64) for k, v in POSITION.items()}
        extra = {"trials": jnp.float64(7.0), "offset": jnp.float64(0.3), "weight": jnp.float64(2.0)}
        datum = (jnp.asarray(X, jnp.float64), jnp.float64(1.0), extra)
        flat, unravel = jax.flatten_util.ravel_pytree(position)

        def f(z):
            return family.log_likelihood(unravel(z), datum)

        numeric = [
            (f(flat + step * e) - f(flat - step * e)) / (2 * step) for e in jnp.eye(flat.size)
        ]
        np.testing.assert_allclose(jax.grad(f)(flat), jnp.stack(numeric), atol=1e-8)


@pytest.mark.parametrize("name", NUMBERS)
def test_mean_sd_and_sample_agree_with_the_law(name):
    family, law = FAMILIES[name], LAWS[name]
    np.testing.assert_allclose(family.mean(np.asarray([ETA]), GIVEN), law.mean(), rtol=1e-6)
    np.testing.assert_allclose(family.sd(np.asarray([ETA]), GIVEN), law.std(), rtol=1e-6)
    y = family.sample(np.random.default_rng(0), np.full(40_000, ETA), GIVEN)
    assert abs(y.mean() - law.mean()) < 5 * law.std() / 200
    np.testing.assert_allclose(y.std(), law.std(), rtol=0.05)


@pytest.mark.parametrize("name", NUMBERS)
def test_an_offset_moves_the_predictor_and_a_weight_counts_rows(name):
    family, y = FAMILIES[name], jnp.float32(OUTCOMES[name][1])
    moved = {**POSITION, "coefficients": POSITION["coefficients"] + np.float32([0.4, 0, 0])}
    offset = {**EXTRA, "offset": jnp.float32(0.4), "weight": jnp.float32(3.0)}
    with_offset = family.log_likelihood(POSITION, (jnp.asarray(X), y, offset))
    without = family.log_likelihood(moved, (jnp.asarray(X), y, EXTRA))
    np.testing.assert_allclose(with_offset, 3 * without, rtol=1e-5)


def test_categorical_is_the_softmax():
    family = FAMILIES["categorical"]
    coefficients = np.float32([[0.3, 1.2, -0.4], [-0.2, 0.1, 0.5]])
    logits = np.concatenate([[0.0], coefficients @ X])
    expected = np.exp(logits) / np.exp(logits).sum()
    for level in range(3):
        value = family.log_likelihood(
            {"coefficients": jnp.asarray(coefficients)}, (jnp.asarray(X), jnp.float32(level))
        )
        np.testing.assert_allclose(value, np.log(expected[level]), rtol=1e-5)
    eta = np.broadcast_to(logits[1:], (50_000, 2))
    np.testing.assert_allclose(family.mean(eta[:1], {})[0], expected, rtol=1e-6)
    shares = np.bincount(family.sample(np.random.default_rng(0), eta, {}).astype(int)) / 50_000
    np.testing.assert_allclose(shares, expected, atol=0.01)
    # the prior's centre gives back the shares
    y = np.repeat([0.0, 1.0, 2.0], [500, 300, 200])
    np.testing.assert_allclose(
        family.mean(np.array([family.centre(y)]), {})[0], [0.5, 0.3, 0.2], atol=2e-3
    )


@pytest.mark.parametrize(
    ("name", "family"),
    [("logistic", "bernoulli"), ("negbin", "negative-binomial"), ("Normal", "gaussian"),
     ("negative_binomial", "negative-binomial"), ("student_t", "student-t"),
     ("log_normal", "lognormal")],
)  # fmt: skip
def test_families_are_known_by_their_common_names(name, family):
    assert find_family(name).name == family


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
        (
            LOGNORMAL,
            [2, 0, 1],
            "'y' is 0 in data row 2; the lognormal family needs positive numbers",
        ),
        (LOGNORMAL, [2, 1, -3], "'y' is -3 in data row 3"),
        (LOGNORMAL, [2, 1e-40], "'y' is 1e-40 in data row 2; float32 holds positive numbers from"),
        (LOGNORMAL, [4.0, 4.0], r"'y' is constant \(4 in every row\)"),
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


@pytest.mark.parametrize("log_overdispersion", [-9.0, -30.0, -69.0])
def test_without_overdispersion_counts_are_poisson(log_overdispersion):
    """Density, slope and curvature, in single precision and beside the overdispersion's own."""
    datum = (jnp.ones(1), jnp.float32(3.0), {})

    def log_density(name):
        def of(z):
            position = {"coefficients": z[:1], "overdispersion": jnp.exp(z[1])}
            return FAMILIES[name].log_likelihood(position, datum)

        return of

    z = jnp.array([0.4, log_overdispersion], jnp.float32)
    for order in (lambda f: f(z), lambda f: jax.grad(f)(z)[0], lambda f: jax.hessian(f)(z)[0, 0]):
        found, poisson = (order(log_density(name)) for name in ("negative-binomial", "poisson"))
        np.testing.assert_allclose(found, poisson, rtol=2e-3)
