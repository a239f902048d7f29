"""The handout's regression: closed form against its published numbers, JAX, and quadrature."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import sgld.errors
from sgld.errors import DataError, UsageError
from sgld.gallery.handout import NIG, nig

BUNDLED = Path(sgld.errors.__file__).parent / "data" / "bundled" / "handout_regression.csv"


@pytest.fixture(scope="module")
def handout():
    x, y = np.loadtxt(BUNDLED, delimiter=",", skiprows=1).T
    return np.column_stack([np.ones_like(x), x]), y


@pytest.fixture(scope="module")
def small():
    """Three features, a correlated prior with a mean, seven rows."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 3))
    prior = nig(3, mu=[0.5, -1.0, 2.0], V=root @ root.T + np.eye(3), phi=1.7, psi=0.6)
    X = rng.normal(size=(7, 3))
    return prior, X, X @ [1.0, 0.0, -1.0] + 0.3 * rng.normal(size=7)


def test_published_values(handout):
    posterior = nig(2).condition(*handout)
    np.testing.assert_allclose(posterior.mu, [5.10337437e-4, 0.908609692], rtol=2e-9)
    assert posterior.phi == 5001
    assert posterior.psi == pytest.approx(948.2831416, abs=5e-8)
    np.testing.assert_allclose(posterior.beta.std(), [0.00435496, 0.00430862], atol=5e-9)
    assert posterior.sigma2.mean() == pytest.approx(0.18965663, abs=5e-9)
    assert posterior.sigma2.std() == pytest.approx(0.00268242, abs=5e-9)


def test_data_in_two_parts_equal_data_at_once(small):
    prior, X, y = small
    once, twice = prior.condition(X, y), prior.condition(X[:2], y[:2]).condition(X[2:], y[2:])
    for name in ("mu", "V", "phi", "psi"):
        np.testing.assert_allclose(getattr(once, name), getattr(twice, name), rtol=1e-10)


def test_textbook_form_of_psi(small):
    prior, X, y = small
    post = prior.condition(X, y)
    inverse = np.linalg.inv
    np.testing.assert_allclose(
        post.mu, post.V @ (inverse(prior.V) @ prior.mu + X.T @ y), rtol=1e-10
    )
    square = y @ y + prior.mu @ inverse(prior.V) @ prior.mu - post.mu @ inverse(post.V) @ post.mu
    assert post.psi == pytest.approx(prior.psi + square / 2, rel=1e-10)


def test_model_is_the_closed_form_up_to_the_evidence(small):
    """log prior is the NIG density of w; prior x likelihood / posterior is constant."""
    prior, X, y = small
    model, posterior = prior.model(), prior.condition(X, y)
    rng = np.random.default_rng(2)
    gap = []
    for _ in range(20):
        beta, gamma = rng.normal(size=3), rng.normal()
        w = {"beta": jnp.asarray(beta, float), "log_sigma2": jnp.asarray(gamma, float)}
        log_prior = model.log_prior_free(w)
        np.testing.assert_allclose(log_prior, prior.logpdf(beta, gamma), rtol=2e-5)
        log_likelihood = model.log_likelihood_free(
            w, (jnp.asarray(X, float), jnp.asarray(y, float))
        )
        exact = stats.norm(X @ beta, np.exp(gamma / 2)).logpdf(y).sum()
        np.testing.assert_allclose(log_likelihood, exact, rtol=2e-5)
        gap.append(prior.logpdf(beta, gamma) + exact - posterior.logpdf(beta, gamma))
    np.testing.assert_allclose(gap, gap[0], rtol=1e-9)


def test_gradient_is_the_corrected_equation_4_2(small):
    """The handout's (4.2) with -d/2 for its d/2."""
    prior, _, _ = small
    beta, gamma = np.array([0.1, 0.2, -0.3]), 0.4
    w = {"beta": jnp.asarray(beta, float), "log_sigma2": jnp.asarray(gamma, float)}
    gradient = jax.grad(prior.model().log_prior_free)(w)
    away = np.linalg.solve(prior.V, beta - prior.mu)
    np.testing.assert_allclose(gradient["beta"], -np.exp(-gamma) * away, rtol=1e-5)
    by_gamma = -1.5 + 0.5 * np.exp(-gamma) * (beta - prior.mu) @ away
    by_gamma += -(prior.phi + 1) + prior.psi * np.exp(-gamma) + 1
    assert gradient["log_sigma2"] == pytest.approx(by_gamma, rel=1e-5)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 1.5])
def test_tempered_law_by_quadrature(temperature):
    """p(w)^(1/T) for one coefficient, w = (beta, log sigma2), integrated on a grid."""
    law = nig(1, V=2.0, phi=2.0, psi=1.5).condition(np.ones((3, 1)), np.array([0.2, 1.0, 2.0]))
    tempered = law.tempered(temperature)
    spread = tempered.beta.std()[0]
    beta = np.linspace(law.mu[0] - 60 * spread, law.mu[0] + 60 * spread, 3001)
    gamma = np.linspace(-9.0, 9.0, 1201)
    weight = np.exp(law.logpdf(beta[:, None, None], gamma) / temperature)
    weight /= (total := _integral(weight, beta, gamma))

    density = np.exp(tempered.logpdf(beta[:, None, None], gamma))
    np.testing.assert_allclose(density, weight, atol=1e-4 * weight.max())
    assert total > 0
    sigma2 = np.exp(gamma)
    for mine, function in [
        (tempered.mean["beta"][0], beta[:, None]),
        (tempered.sd["beta"][0] ** 2, (beta[:, None] - law.mu[0]) ** 2),
        (tempered.mean["log_sigma2"], gamma),
        (tempered.sd["log_sigma2"] ** 2, (gamma - tempered.mean["log_sigma2"]) ** 2),
        (tempered.sigma2.mean(), sigma2),
    ]:
        assert mine == pytest.approx(_integral(weight * function, beta, gamma), rel=2e-3)
    middle = np.searchsorted(beta, law.mu[0] + spread)
    marginal = integrate.simpson(weight[middle], gamma)
    assert tempered.beta.logpdf(beta[middle])[0] == pytest.approx(np.log(marginal), abs=1e-4)


def _integral(values, beta, gamma):
    return integrate.simpson(integrate.simpson(values, gamma), beta)


def test_tempering_composes_and_ends_where_the_law_does(small):
    law = small[0]
    there_and_back = law.tempered(1.4).tempered(1 / 1.4)
    for name in ("mu", "V", "phi", "psi"):
        np.testing.assert_allclose(getattr(there_and_back, name), getattr(law, name), rtol=1e-12)
    with pytest.raises(UsageError, match="improper"):
        law.tempered(1 + 2 * law.phi / 3)
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(UsageError, match="temperature must be positive"):
            law.tempered(wrong)


def test_mode_moments_and_predictive(small):
    prior, X, y = small
    law = prior.condition(X, y)
    mode = law.mode
    best = law.logpdf(mode["beta"], mode["log_sigma2"])
    for step in np.vstack([np.eye(4), -np.eye(4)]) * 1e-3:
        assert law.logpdf(mode["beta"] + step[:3], mode["log_sigma2"] + step[3]) < best
    rng = np.random.default_rng(3)
    s2 = stats.invgamma(law.phi, scale=law.psi).rvs(200_000, random_state=rng)
    beta = law.mu + np.sqrt(s2)[:, None] * (
        rng.normal(size=(200_000, 3)) @ np.linalg.cholesky(law.V).T
    )
    np.testing.assert_allclose(np.log(s2).mean(), law.mean["log_sigma2"], atol=0.01)
    np.testing.assert_allclose(np.log(s2).std(), law.sd["log_sigma2"], rtol=0.01)
    np.testing.assert_allclose(beta.std(axis=0), law.sd["beta"], rtol=0.02)
    new = beta @ X[0] + np.sqrt(s2) * rng.normal(size=200_000)
    q = [0.05, 0.5, 0.95]
    np.testing.assert_allclose(law.predictive(X[:1]).cdf(np.quantile(new, q)), q, atol=0.005)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_features": 0}, "num_features must be at least 1"),
        ({"num_features": 2, "mu": [1.0]}, "mu must be a number or"),
        ({"num_features": 2, "V": [1.0, 2.0, 3.0]}, "V must be a number,"),
        ({"num_features": 2, "V": [1.0, -1.0]}, "V must be symmetric positive definite"),
        ({"num_features": 2, "V": [[1.0, 0.9], [0.0, 1.0]]}, "V must be symmetric"),
        ({"num_features": 2, "phi": 0.0}, "phi must be positive. Got 0.0."),
        ({"num_features": 2, "psi": np.nan}, "psi must be positive. Got nan."),
    ],
)
def test_mistakes_are_answered(arguments, message):
    with pytest.raises(UsageError) as caught:
        nig(**arguments)
    assert message in str(caught.value)


def test_data_mistakes_are_answered():
    with pytest.raises(DataError, match=r"Got shapes \(3, 1\) and \(3,\)"):
        nig(2).condition(np.ones((3, 1)), np.ones(3))
    with pytest.raises(DataError, match="Row 1 is not"):
        nig(1).condition(np.ones((3, 1)), np.array([1.0, np.nan, 1.0]))


def test_numbers_are_leaves():
    count = 0

    @jax.jit
    def value(model, w):
        nonlocal count
        count += 1
        return model.log_prior_free(w)

    w = {"beta": jnp.zeros(2), "log_sigma2": jnp.zeros(())}
    values = [float(value(nig(2, psi=psi).model(), w)) for psi in (1.0, 2.0)]
    assert count == 1 and values[0] != values[1]
    assert isinstance(nig(2), NIG)
