"""What is kept for pictures of predictions: entropy and its parts, intervals, the traces that mixed worst."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import entropy

import sgld
from sgld.diagnostics.function_space.temperature import Layers
from sgld.diagnostics.function_space.verdict import Seen, judge_predictions, pictured, with_details
from sgld.interfaces import arviz_rows as choice_of
from sgld.interfaces.arviz_rows import Choice, Rows
from sgld.interfaces.report.predictive_check import pictures
from sgld.model.modules import seal, with_modules
from sgld.results.verdict import Verdict

LAYERS = Layers(("a",), (1,))


def seen(kind, predicted, rng):
    weights = rng.gamma(2.0, size=predicted.shape[:2])
    return Seen(kind, predicted, None, weights / weights.sum(), LAYERS)


def test_entropy_and_what_of_it_single_networks_have(rng):
    p = rng.dirichlet(np.ones(3), size=(2, 50, 7))
    found = pictured(given := seen("classes", np.log(p), rng))
    flat, w = p.reshape(100, 7, 3), given.weights.ravel()
    np.testing.assert_allclose(
        found["entropy"], entropy(np.tensordot(w, flat, 1), axis=-1), rtol=1e-4
    )
    np.testing.assert_allclose(found["aleatoric"], w @ entropy(flat, axis=-1), rtol=1e-4)
    assert all(e > a for e, a in zip(found["entropy"], found["aleatoric"], strict=True))


def test_intervals_are_the_weighted_draws(rng):
    predicted = rng.normal(size=(2, 400, 5, 2)) + np.arange(5)[:, None]
    found = pictured(given := seen("means", predicted, rng))
    w = given.weights[..., None]
    np.testing.assert_allclose(found["mean"], (w * predicted[..., 0]).sum((0, 1)), rtol=1e-4)
    share = (w * (predicted[..., 0] < found["low"])).sum((0, 1))
    np.testing.assert_allclose(share, 0.05, atol=0.01)
    share = (w * (predicted[..., 0] > found["high"])).sum((0, 1))
    np.testing.assert_allclose(share, 0.05, atol=0.01)


def test_the_worst_row_is_the_first_trace(rng):
    predicted = rng.normal(size=(2, 100, 9, 1))
    predicted[:, :, 4] = np.cumsum(predicted[:, :, 4], axis=1)
    found = pictured(seen("means", predicted, rng))["traces"]
    assert found[0]["row"] == 4 and len(found) == 6
    np.testing.assert_allclose(found[0]["values"], predicted[:, :, 4, 0], rtol=1e-4)


def test_pictures_are_drawn_and_stored(rng):
    given = seen("classes", np.log(rng.dirichlet(np.ones(3), size=(2, 50, 7))), rng)
    verdict = with_details(judge_predictions(given), given, None)
    again = Verdict.from_dict(verdict.to_dict()).extra["predictions"]["pictured"]
    wide, traces, said = pictures(again)
    assert len(wide) == 1 and len(traces) == 6 and "epistemic" in said
    alone = pictures(pictured(seen("log likelihoods", -rng.random((2, 50, 7, 1)), rng)))
    assert alone[0] == [] and len(alone[1]) == 6 and alone[2] == ""


def net(key=0):
    return eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(key))


@pytest.mark.parametrize("at_once", [4096, 7])
def test_labels_are_found_without_being_told(rng, monkeypatch, at_once):
    """The class of a row is the one whose log probability its log likelihood is, in pieces too."""
    monkeypatch.setattr(choice_of, "NETWORK_ROWS", at_once)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    y = rng.integers(0, 3, 40).astype(np.int32)
    posterior = sgld.Posterior(
        sgld.networks.normal_prior(1.0), lambda net, row: jax.nn.log_softmax(net(row[0]))[row[1]]
    )
    known = with_modules(posterior, seal(net()))
    rows = Rows.of(known.log_likelihood, (x, y))
    choice = Choice.of(known.predict, rows, seal(net()))
    np.testing.assert_array_equal(choice.labels, y)
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), seal(net()), seal(net(1)))
    at = np.array([7, 3, 11])
    p = choice.levels(both, at)
    expected = [jax.vmap(lambda r, n=n: jax.nn.softmax(n(r)))(x[at]) for n in (net(), net(1))]
    np.testing.assert_allclose(p, expected, rtol=1e-5)
    many = jax.tree.map(lambda a: jnp.broadcast_to(a, (4000, *a.shape)), seal(net()))
    made = choice.replicate(many, at, 0)["outcome"]
    for row, probabilities in enumerate(p[0]):
        shares = np.bincount(made[:, row], minlength=3) / 4000
        np.testing.assert_allclose(shares, probabilities, atol=0.03)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_regression_or_a_part_of_a_likelihood_is_no_choice(rng, scale):
    x = rng.normal(size=(40, 2)).astype(np.float32)

    def log_likelihood(net, row):
        found = jax.nn.log_softmax(net(row[0]))
        return -((found[0] - row[1]) ** 2) if scale == 1.0 else scale * found[0]

    posterior = sgld.Posterior(sgld.networks.normal_prior(1.0), log_likelihood)
    known = with_modules(posterior, seal(net()))
    rows = Rows.of(known.log_likelihood, (x, x[:, 0]))
    assert Choice.of(known.predict, rows, seal(net())) is None


def test_many_classes_are_not_looked_at_one_by_one(rng):
    wide = eqx.nn.MLP(2, choice_of.MAX_PROB_LEVELS + 1, 4, 1, key=jax.random.key(0))
    posterior = sgld.Posterior(
        sgld.networks.normal_prior(1.0), lambda net, row: jax.nn.log_softmax(net(row[0]))[row[1]]
    )
    known = with_modules(posterior, seal(wide))
    data = (rng.normal(size=(9, 2)).astype(np.float32), np.zeros(9, np.int32))
    assert Choice.of(known.predict, Rows.of(known.log_likelihood, data), seal(wide)) is None


@pytest.mark.slow
def test_the_page_of_a_network_shows_its_predictions(tmp_path, rng):
    x = rng.normal(size=(40, 2)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    posterior = sgld.Posterior(
        sgld.networks.normal_prior(1.0), lambda net, row: jax.nn.log_softmax(net(row[0]))[row[1]]
    )
    draws = sgld.sample(
        posterior, (x, y), net(), step_size=0.01, num_draws=40, burn_in=10, thin=1, progress=False,
        path=tmp_path / "run",
    )  # fmt: skip
    page = draws.report(tmp_path / "page.html").read_text()
    assert "Entropy of predictions" in page and "Calibration of outcome" in page
    assert "pictured" not in str(draws.summary().to_dict())
    assert {"observed_data", "constant_data"} <= set(draws.to_arviz(progress=False).children)
    page = sgld.load(tmp_path / "run").report(tmp_path / "again.html").read_text()
    assert "Entropy of predictions" in page and "Calibration of outcome" not in page
