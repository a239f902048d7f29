"""Places of a mode's exchanges: what the model does not tell apart, or all but."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

import sgld
from sgld.approximation.mode import gaussian_at_mode, other_modes
from sgld.approximation.modes import exchanges
from sgld.inference.tuning.survey import all_modes
from sgld.model.prepare import prepare


def two_decays(n, noise, far=0.0):
    """y = up exp(-e^fast t) + on exp(-e^slow t): four numbers that are called nothing alike; priors `far` apart."""
    rng = np.random.default_rng(3)
    t = rng.uniform(0, 5, n)
    y = 2 * np.exp(-0.4 * t) + np.exp(-3 * t) + noise * rng.standard_normal(n)

    def log_prior(p):
        means = {"up": 1.0, "on": 1.0, "fast": 0.5 * far, "slow": -0.5 * far}
        return -0.5 * sum((p[name] - mean) ** 2 for name, mean in means.items()) / 4

    def log_likelihood(p, row):
        first = p["up"] * jnp.exp(-jnp.exp(p["fast"]) * row[0])
        second = p["on"] * jnp.exp(-jnp.exp(p["slow"]) * row[0])
        return -0.5 * ((row[1] - first - second) / noise) ** 2

    data = tuple(a.astype(np.float32) for a in (t, y))
    init = {"up": 0.5, "on": 1.5, "fast": 1.0, "slow": -1.0}
    return prepare(sgld.Posterior(log_prior, log_likelihood), data, jax.tree.map(jnp.float32, init))


def exchanged(problem):
    mode = gaussian_at_mode(problem).gaussian
    return mode.center, exchanges(problem, mode)


@pytest.mark.parametrize("far", [0.0, 1.0])
def test_numbers_with_names_of_their_own_change_places(far):
    z, places = exchanged(two_decays(3000, 0.05, far))
    np.testing.assert_allclose(places[0], z[[2, 3, 0, 1]], rtol=1e-5)  # of fast, on, slow, up


def test_the_search_begins_there(monkeypatch):
    monkeypatch.setattr("sgld.approximation.mode._wide_starts", lambda *given: [])
    problem = two_decays(3000, 0.05)
    base = gaussian_at_mode(problem)
    (other,) = other_modes(problem, base, np.random.default_rng(0))
    np.testing.assert_allclose(other.gaussian.center, base.gaussian.center[[2, 3, 0, 1]], rtol=1e-3)


def test_a_sign_that_the_likelihood_does_not_see_is_turned_where_the_prior_has_one():
    y = (2 + 0.1 * np.random.default_rng(0).standard_normal(200)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda p: -0.5 * (p["a"] - 1) ** 2 - 0.5 * p["b"] ** 2,
        lambda p, y: -50 * (y - p["a"] ** 2 - p["b"]) ** 2,
    )
    z, places = exchanged(prepare(posterior, y, {"a": jnp.float32(1.4), "b": jnp.float32(0.1)}))
    np.testing.assert_allclose(places[0], [-z[0], z[1]], rtol=1e-5)


def bumps(form):
    """Three bumps on a level: ten numbers of a vector, one bump after the other or by kind, or nine by names of words."""
    rng = np.random.default_rng(9)
    x = rng.uniform(-4, 4, 300)
    truth = np.array([[1.0, 1.5, 0.7], [-2.0, 0.2, 2.2], np.log([0.5, 0.6, 0.4])])
    where = ("left", "middle", "right")

    def mean(level, height, place, width, x):
        z = (x - place) * jnp.exp(-width)
        return level + jnp.sum(height * jnp.exp(-0.5 * z**2))

    def parts(p):
        if form == "words":
            return p["level"], *(jnp.stack([p[f"{kind}_{w}"] for w in where]) for kind in ("height", "place", "width"))  # fmt: skip
        kinds = p[1:].reshape(3, 3)
        return p[0], *(kinds if form == "kinds" else kinds.T)

    y = jax.vmap(lambda x: mean(0.2, *truth, x))(x) + 0.1 * rng.standard_normal(300)
    posterior = sgld.Posterior(
        lambda p: -sum(jnp.sum(part**2) for part in parts(p)) / 18,
        lambda p, row: -50 * (row[1] - mean(*parts(p), row[0])) ** 2,
    )
    init = jnp.append(jnp.float32(0.2), jnp.float32(truth if form == "kinds" else truth.T))
    if form == "words":
        names = [f"{kind}_{w}" for kind in ("height", "place", "width") for w in where]
        init = {"level": init[0], **dict(zip(names, jnp.float32(truth).ravel(), strict=True))}
    problem = prepare(posterior, tuple(np.asarray(a, np.float32) for a in (x, y)), init)
    return problem, parts


@pytest.mark.parametrize("form", ["kinds", "bumps", "words"])
def test_what_changes_places_may_be_entries_of_one_vector_or_be_called_by_words(form):
    problem, parts = bumps(form)
    z, places = exchanged(problem)
    at = lambda free: np.array(parts(problem.target.position(problem.array(free)))[2])  # noqa: E731
    orders = {tuple(np.argsort(at(place))) for place in places[:5]}
    assert len(orders | {tuple(np.argsort(at(z)))}) == 6


def test_the_image_of_a_bent_mode_is_kept():
    # the product of two numbers alone is known: an sd along the bend is far off it, at both
    posterior = sgld.Posterior(
        lambda p: -0.5 * jnp.sum((p / 3) ** 2) - 0.5 * ((1 - p[0] * p[1]) / 0.05) ** 2
    )
    problem = prepare(posterior, None, jnp.array([1.0, 1.0]))
    base = gaussian_at_mode(problem)
    _, modes = all_modes(problem, base, 0, 1.0)
    np.testing.assert_allclose(modes.z[0], -modes.z[1], rtol=1e-3)


def test_what_has_no_exchange_has_few_places_to_try():
    problem = two_decays(300, 0.05)
    posterior = sgld.Posterior(lambda z: -0.5 * jnp.sum((z - jnp.arange(1.0, 6.0)) ** 2 / 0.01))
    assert len(exchanged(prepare(posterior, None, jnp.zeros(5)))[1]) <= 4
    assert len(exchanged(problem)[1]) <= 1 + 4


def test_three_components_change_places_with_their_shares_on_a_simplex():
    rng = np.random.default_rng(0)
    y = rng.normal([-6, 0, 6], 1, (300, 3)).ravel()[: 3 * 150 + 200].astype(np.float32)

    def log_likelihood(p, row):
        return jax.scipy.special.logsumexp(jnp.log(p["shares"]) - 0.5 * (row - p["mu"]) ** 2)

    posterior = sgld.Posterior(
        lambda p: -0.5 * jnp.sum(p["mu"] ** 2) / 100,
        log_likelihood,
        constraints={"mu": constraints.real, "shares": constraints.simplex},
    )
    init = {"mu": jnp.array([-6.0, 0.0, 6.0]), "shares": jnp.array([0.3, 0.3, 0.4])}
    z, places = exchanged(prepare(posterior, y, init))
    orders = {tuple(np.argsort(place[:3])) for place in places[:5]}
    assert len(orders) == 5 and tuple(np.argsort(z[:3])) not in orders


def test_rates_whose_exchange_a_volume_makes_up_for_are_found():
    """Flip-flop kinetics: ka and ke change places where V is V ke / ka."""
    rng = np.random.default_rng(4)
    t = rng.uniform(0.1, 12, 2000)
    true = {"ka": np.log(1.2), "ke": np.log(0.25), "V": np.log(5.0)}

    def level(p, t, of):
        ka, ke, V = of.exp(p["ka"]), of.exp(p["ke"]), of.exp(p["V"])
        return 10 * ka / (V * (ka - ke)) * (of.exp(-ke * t) - of.exp(-ka * t))

    y = level(true, t, np) + 0.05 * rng.standard_normal(2000)
    posterior = sgld.Posterior(
        lambda p: -0.5 * (p["ka"] ** 2 + (p["ke"] + 0.7) ** 2 + (p["V"] - 1) ** 2),
        lambda p, row: -0.5 * ((row[1] - level(p, row[0], jnp)) / 0.05) ** 2,
    )
    data = tuple(a.astype(np.float32) for a in (t, y))
    init = jax.tree.map(jnp.float32, {"ka": 0.0, "ke": -1.0, "V": 1.0})
    problem = prepare(posterior, data, init)
    base = gaussian_at_mode(problem)
    others = other_modes(problem, base, np.random.default_rng(0))
    turned = base.gaussian.center[[0, 2, 1]] + [
        base.gaussian.center[2] - base.gaussian.center[1],
        0,
        0,
    ]
    assert any(np.abs(other.gaussian.center - turned).max() < 0.3 for other in others)
