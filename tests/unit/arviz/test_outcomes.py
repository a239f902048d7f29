"""The predictive check of a NumPyro model: what its outcomes are is seen, and what does not fit is said."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sgld
from sgld.errors import UsageError
from sgld.interfaces.arviz_pointwise import subject_of
from sgld.interfaces.notebook import checked

N = 600
X = np.random.default_rng(0).normal(size=N).astype(np.float32)


@pytest.fixture(autouse=True)
def promoted():
    """As NumPyro is used: its distributions mix dtypes."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def law(kind, slope, x):
    if kind == "binary":
        return dist.Bernoulli(logits=slope * x)
    if kind == "counts":
        return dist.Poisson(jnp.exp(slope * x))
    if kind == "levels":
        return dist.Categorical(logits=jnp.stack([slope * x, -slope * x, 0.0 * x], axis=-1))
    return dist.Normal(slope * x, 1.0)


def model(kind, x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", law(kind, slope, x), obs=y)


def draws_near(slope):
    spread = 0.01 * np.random.default_rng(1).normal(size=(4, 100))
    return sgld.Draws.of({"slope": (slope + spread).astype(np.float32)})


def outcomes(kind):
    y = np.random.default_rng(2)
    logits = np.stack([X, -X, 0 * X], axis=-1)
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    return {
        "binary": (y.random(N) < 1 / (1 + np.exp(-X))).astype(np.float32),
        "counts": y.poisson(np.exp(X)),
        "levels": np.array([y.choice(3, p=row) for row in p]),
        "values": (X + y.normal(size=N)).astype(np.float32),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "other", "fits", "fault"),
    [
        ("binary", -2.0, "the probabilities are calibrated", "are not calibrated"),
        ("counts", 0.0, "the spread fits", "the counts are overdispersed"),
        ("levels", -1.0, "the probabilities are calibrated", "are not calibrated"),
        (
            "values",
            6.0,
            "Skewness and tails of y agree",
            "of 40 bins; about 4 would by chance. y has",
        ),
    ],
)
def test_a_model_that_fits_is_told_from_one_that_does_not(kind, other, fits, fault, tmp_path):
    posterior, _ = sgld.from_numpyro(model, kind, X, y=outcomes(kind))
    page = draws_near(1.0).report(tmp_path / "page.html", posterior).read_text()
    assert "Does the model fit?" in page and fits in page and "200 data sets" in page
    page = draws_near(other).report(tmp_path / "other.html", posterior).read_text()
    assert fault in page


@pytest.mark.parametrize("plate", [True, False])
def test_probabilities_are_those_of_the_model(plate):
    """Of rows by themselves, and of the members of a site in no plate: 1 / (1 + exp(-slope x))."""

    def alone(x, y):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Bernoulli(logits=slope * x), obs=y)

    y, draws = outcomes("binary"), draws_near(1.0)
    args = ("binary", X, y) if plate else (X, y)
    posterior, _ = sgld.from_numpyro(model if plate else alone, *args)
    subject = subject_of(draws, posterior)
    at, slope = np.array([3, 0, 17]), draws.position["slope"].ravel()
    found = subject.levels({"slope": slope}, at)
    p = 1 / (1 + np.exp(-slope[:, None] * X[at]))
    np.testing.assert_allclose(found, np.stack([1 - p, p], axis=-1), rtol=1e-5)
    _, _, made = checked(draws, subject, 0)
    mean = 1 / (1 + np.exp(-slope[:, None] * X))
    np.testing.assert_allclose(made.mean, mean.mean(axis=0), atol=1e-3)
    np.testing.assert_array_equal(made.observed, y)


def test_several_numbers_a_row_have_no_panel(tmp_path):
    def pairs(x, y):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(slope * x, 1.0).to_event(1), obs=y)

    x = np.stack([X, X], axis=1)
    draws = draws_near(1.0)
    page = draws.report(tmp_path / "page.html", pairs, (x, x)).read_text()
    assert "Does the model fit?" not in page
    with pytest.raises(UsageError, match="posterior= and data="):
        draws.plot("ppc")


class Undrawn(dist.Normal):
    def sample(self, key, sample_shape=()):
        raise NotImplementedError("no sampler was written")


def test_a_distribution_without_a_sampler_costs_the_check_and_not_the_page(tmp_path):
    def undrawn(x, y):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", Undrawn(slope * x, 1.0), obs=y)

    page = draws_near(1.0).report(tmp_path / "page.html", undrawn, (X, X)).read_text()
    assert "No predictive check was made: the model" in page and "no sampler was written" in page
