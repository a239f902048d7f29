"""Laws of the models behind the scikit-learn estimators: their rows, densities and closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_iris, make_regression
from sklearn.linear_model import LogisticRegression

import sgld
from sgld.interfaces.sklearn_exact import exact_draws, is_for
from sgld.interfaces.sklearn_models import Form, Rows, distinct, model_of, rounded
from sgld.interfaces.sklearn_predictor import Predictor
from sgld.regression.priors import parse_prior

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def regression():
    X, y = make_regression(25, 3, noise=30.0, random_state=0)
    weight = np.random.default_rng(0).integers(1, 4, 25).astype(float)
    return distinct(10 + 3 * X, 100 + y, weight)


# -- rows ------------------------------------------------------------------------------------


def test_a_row_of_weight_two_is_two_rows_whatever_their_order(rng):
    x, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    weight = np.array([2.0, 0.0, 1.0, 3.0, 1.0, 1.0])
    order = rng.permutation(8)
    rows = np.repeat(np.arange(6), weight.astype(int))[order]
    one, other = distinct(x, y, weight), distinct(x[rows], y[rows], np.ones(8))
    for name in ("x", "y", "weight"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert len(one.y) == 5 and one.weight.sum() == 8
    assert (one.count, other.count) == (5, 8)  # of the user's rows, those of weight 0 left out


def test_minus_zero_is_zero():
    assert len(distinct(np.array([[0.0], [-0.0]]), np.zeros(2), np.ones(2)).y) == 1


def test_few_rows_are_rounded_up_to_a_power_of_two_and_many_by_a_quarter_at_most():
    counts = np.arange(64, 20_000)
    found = np.array([rounded(int(n)) for n in counts])
    few = counts <= 4096
    assert (found >= counts).all() and (found[~few] <= 1.25 * counts[~few]).all()
    assert (found[few] < 2 * counts[few]).all() and (np.log2(found[few]) % 1 == 0).all()
    assert len(np.unique(found)) < 20 and rounded(3) == rounded(64) == 64 and rounded(65) == 128
    assert rounded(800) == rounded(1000), "a table and its folds"


def test_padding_changes_no_density(regression):
    model = model_of(regression, Form("gaussian", NAMES), 0)
    x, y, weight = model.data
    assert len(y) == 64 and weight[25:].sum() == 0
    free = model.posterior.unconstrain(model.posterior.init)
    whole, part = (
        model.posterior.log_likelihood_free(free, (x[:n], y[:n], weight[:n])) for n in (64, 25)
    )
    assert float(whole) == pytest.approx(float(part), rel=1e-6)


# -- the closed form, held against the density that chains sample ------------------------------


PRIORS = {
    "default": (None, False),
    "of all": ("normal(2, 5)", False),
    "of slopes": ("normal(2, 5)", True),
}


def standardised(model, draws):
    """(coef, intercept, log sigma) of draws, flat: the sampler's own coordinates."""
    at, position = model.standard, {k: v.reshape(4000, -1) for k, v in draws.position.items()}
    coef, parts = position["coef"], [position["coef"] * at.scale / at.stretch]
    if "intercept" in position:
        mean = position["intercept"][:, 0] + coef @ at.center
        parts.append(((mean - at.shift) / at.stretch)[:, None])
    return np.concatenate([*parts, np.log(position["sigma"] / at.stretch)], axis=1)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("prior", PRIORS)
def test_the_closed_form_has_the_moments_that_the_density_asks_for(regression, prior, intercept):
    """Stein: E[g] = 0 and E[z g'] = -I, with g the gradient of the log density at draws z."""
    text, slopes = PRIORS[prior]
    density = None if text is None else parse_prior(text)
    form = Form("gaussian", NAMES, intercept=intercept, density=density, slopes=slopes)
    model = model_of(regression, form, 0)
    z = standardised(model, exact_draws(model, regression, 1))

    def log_density(flat):
        free = {"coef": flat[:3], "sigma": flat[-1]}
        free |= {"intercept": flat[3]} if intercept else {}
        rows = jax.tree.map(jnp.asarray, model.data)
        posterior = model.posterior
        return posterior.log_prior_free(free) + posterior.log_likelihood_free(
            free, rows[:2] + rows[2:]
        )

    g = np.asarray(jax.vmap(jax.grad(log_density))(jnp.asarray(z, jnp.float32)), float)
    scale = z.std(0)
    np.testing.assert_allclose(g.mean(0) * scale, 0, atol=0.1)
    second = (z - z.mean(0)).T @ g / len(z) * scale / scale[:, None]
    np.testing.assert_allclose(second, -np.eye(len(scale)), atol=0.2)


def test_the_closed_form_is_for_few_rows_and_for_outcomes_without_noise(rng):
    x = rng.normal(size=(200, 3))
    noisy, exact = x @ [1.0, 2.0, 3.0] + rng.normal(size=200), x @ [1.0, 2.0, 3.0]
    laplace = Form("gaussian", NAMES, density=parse_prior("laplace(0, 1)"))

    def says(y, count=200, form=None):
        rows = distinct(x[:count], y[:count], np.ones(count))
        return is_for(model_of(rows, form or Form("gaussian", NAMES), 0), rows)

    assert not says(noisy) and says(exact) and says(noisy, 39)
    assert not says(noisy, 40) and not says(exact, 39, laplace)


@pytest.mark.parametrize("noise", [1e-4, 0.01, 0.3])
def test_sigma_of_the_closed_form_is_that_of_a_quadrature_however_little_noise(rng, noise):
    x = rng.normal(size=(20, 2))
    y = x @ [1.0, 2.0] + noise * rng.normal(size=20)
    rows = distinct(x, y, np.ones(20))
    form = Form("gaussian", NAMES[:2], density=parse_prior("normal(0, 5)"), intercept=False)
    model = model_of(rows, form, 0)
    found = np.asarray(exact_draws(model, rows, 0).position["sigma"], float)
    log_sigma = np.linspace(-25, 4, 20_001)
    s2 = np.exp(2 * log_sigma)[:, None] * y.std() ** 2
    U, d, _ = np.linalg.svd(x)
    a = U[:, :2].T @ y
    rss = np.sum((y - U[:, :2] @ a) ** 2)
    variance = s2 + 25 * d**2
    logs = -18 * log_sigma - 0.5 * (rss / s2[:, 0] + s2[:, 0] / y.std() ** 2) + log_sigma
    logs -= 0.5 * np.sum(np.log(variance) + a**2 / variance, axis=1)
    weight = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    sigma = np.exp(log_sigma) * y.std()
    mean = weight @ sigma
    sd = np.sqrt(weight @ (sigma - mean) ** 2)
    assert abs(found.mean() - mean) < 0.08 * sd and abs(found.std() / sd - 1) < 0.08


def test_an_outcome_explained_exactly_is_told(rng):
    x = rng.normal(size=(30, 2))
    for noise, told in ((0.0, True), (1e-4, False)):
        rows = distinct(x, x @ [1.0, 2.0] + noise * rng.normal(size=30), np.ones(30))
        verdict = exact_draws(model_of(rows, Form("gaussian", NAMES[:2]), 0), rows, 0).verdict
        assert ("bounded below" in str(verdict)) == told


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 30), (30, 2)])
def test_degenerate_regressions_have_finite_draws(rng, shape):
    x = rng.normal(size=shape)
    for y in (x[:, 0], np.full(len(x), 7.0)):
        rows = Rows(x, y, np.ones(len(x)))
        draws = exact_draws(model_of(rows, Form("gaussian", tuple("x" * shape[1])), 0), rows, 0)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(draws.position))


# -- priors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
def test_the_mode_under_the_l2_penalty_is_that_of_scikit_learn(classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < classes], y[y < classes]
    labels = () if classes == 2 else ("0", "1", "2")
    form = Form(
        "bernoulli" if classes == 2 else "categorical", ("a", "b", "c", "d"), labels,
        intercept=False, density=parse_prior("normal(0, 0.5)"), slopes=True,
    )  # fmt: skip
    model = model_of(distinct(X, y, np.ones(len(y))), form, 0)
    mode = sgld.find_map(model.posterior, model.data)
    theirs = LogisticRegression(C=0.25, fit_intercept=False, tol=1e-8, max_iter=2000).fit(X, y)
    found = np.atleast_2d(np.asarray(mode.position["coef"]).T)
    np.testing.assert_allclose(found, theirs.coef_, atol=2e-3)


def test_the_intercepts_prior_sits_at_the_shares_of_the_classes():
    rows = Rows(np.arange(4.0)[:, None], np.array([0.0, 1, 1, 1]), np.array([2.0, 1, 1, 6]))
    two = model_of(rows, Form("bernoulli", ("a",)), 0)
    three = model_of(rows, Form("categorical", ("a",), ("u", "v", "w")), 0)
    assert two.center == pytest.approx(np.log(8.5 / 2.5))
    shares = np.exp(three.center) / np.exp(three.center).sum()
    np.testing.assert_allclose(shares, np.array([2.5, 8.5, 0.5]) / 11.5)


# -- predictions -----------------------------------------------------------------------------


def test_sd_and_interval_are_those_of_the_mixture(rng):
    S, weight = 3000, rng.random(3000)
    weight /= weight.sum()
    position = {
        "coef": rng.normal(1.0, 0.5, (S, 1)),
        "intercept": rng.normal(size=S),
        "sigma": rng.uniform(0.5, 2.0, S),
    }
    predictor = Predictor("gaussian", position, weight, None)
    x = np.array([[0.0], [3.0]])
    eta = position["intercept"] + x * position["coef"].T
    lower, upper = predictor.interval(x, 0.8).T
    for end, q in ((lower, 0.1), (upper, 0.9)):
        below = stats.norm.cdf((end[:, None] - eta) / position["sigma"]) @ weight
        np.testing.assert_allclose(below, q, atol=0.005)
    mean = eta @ weight
    np.testing.assert_allclose(predictor.mean(x), mean)
    second = (eta**2 + position["sigma"] ** 2) @ weight
    np.testing.assert_allclose(predictor.sd(x), np.sqrt(second - mean**2))


def test_probabilities_are_averaged_over_draws_a_few_rows_at_a_time(rng, monkeypatch):
    monkeypatch.setattr("sgld.interfaces.sklearn_predictor.PREDICTED_NUMBERS", 50)
    x, weight = rng.normal(size=(7, 2)), np.array([0.2, 0.3, 0.5])
    position = {"coef": rng.normal(size=(3, 2, 4)), "intercept": rng.normal(size=(3, 4))}
    found = Predictor("categorical", position, weight, None).probabilities(x)
    each = [jax.nn.softmax(x @ c + b) for c, b in zip(position["coef"], position["intercept"])]  # noqa: B905
    np.testing.assert_allclose(found, np.tensordot(weight, np.array(each), 1), rtol=1e-5)
    two = {name: leaf[..., 0] for name, leaf in position.items()}
    found = Predictor("bernoulli", two, weight, None).probabilities(x)
    np.testing.assert_allclose(found.sum(1), 1)
    p = 1 / (1 + np.exp(-(x @ two["coef"].T + two["intercept"])))
    np.testing.assert_allclose(found[:, 1], p @ weight)


def test_a_network_predicts_what_its_density_sees(rng):
    rows = distinct(rng.normal(3.0, 2.0, (20, 2)), rng.normal(size=20), np.ones(20))
    model = model_of(rows, Form("gaussian", ("a", "b"), hidden=(4, 3)), 0)
    from sgld.interfaces.sklearn_models import linear_predictor

    init = model.posterior.init
    position = jax.tree.map(lambda leaf: np.asarray(leaf)[None], init)
    predictor = Predictor("gaussian", position, np.ones(1), model.standard)
    eta = [linear_predictor(init, jnp.asarray(row)) for row in model.data[0][:20]]
    expected = model.standard.shift + model.standard.stretch * np.array(eta)
    np.testing.assert_allclose(predictor.mean(rows.x), expected, rtol=1e-4)
