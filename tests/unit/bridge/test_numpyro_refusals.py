"""What a NumPyro model cannot be, and what is done where one row at a time says something else."""

import re
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import sgld
from sgld.errors import DataError, MissingExtra, UsageError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=99), RNG.normal(size=99)


def outcome(mean, y, size=None, scale=1.0):
    with numpyro.plate("data", len(y) if size is None else size):
        numpyro.sample("y", dist.Normal(mean, scale), obs=y)


def slope():
    return numpyro.sample("slope", dist.Normal(0.0, 1.0))


def model(x, y):
    outcome(slope() * x, y)


def wrong_size(x, y):
    outcome(slope() * x, y, size=100)


def size_one(x, y):
    outcome(slope() * x, y, size=1)


def twice(x, y):
    outcome((slope() + slope()) * x, y)


def unobserved(x, y=None):
    numpyro.sample("y", dist.Normal(slope() * x, 1.0), obs=y)


def discrete(x, y):
    outcome(slope() * x + numpyro.sample("which", dist.Bernoulli(0.5)), y)


def sphere(x, y):
    outcome(numpyro.sample("on", dist.ProjectedNormal(jnp.ones(2)))[0] * x, y)


def looping(x, y):
    outcome(jax.lax.while_loop(lambda c: c < 0.0, lambda c: c + 1, slope()) * x, y)


def one_each(x, y):
    with numpyro.plate("data", len(y)):
        each = numpyro.sample("each", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(each, 1.0), obs=y)


def imputed(x, y):
    mean = slope()
    with numpyro.plate("data", len(y)):
        filled = numpyro.sample("x", dist.Normal(mean, 1.0), obs=x, obs_mask=x > 0)
        numpyro.sample("y", dist.Normal(filled, 1.0), obs=y)


def nothing(x, y):
    return x


def known(x, y):
    outcome(x, y)


def plated(x, y):
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Poisson(jnp.exp(slope() * x)), obs=y)


REFUSED = [
    (
        wrong_size,
        (X, Y),
        r"plate 'data' .* has size 100, and no argument .* \(x has 99, y has 99\)",
    ),
    (size_one, (X, Y), "plate 'data' has size 1, and the observed site 'y' has 99"),
    (twice, (X, Y), "uses a site twice.*'?slope"),
    (unobserved, (X,), "no observed site.*left at None"),
    (discrete, (X, Y), "'which' is discrete.*sum it out"),
    (sphere, (X, Y), "sphere.*'on'.*ProjectedNormalReparam"),
    (looping, (X, Y), "has no gradient"),
    (one_each, (np.zeros(30_000), np.zeros(30_000)), "'each' is in plate 'data' of 30000 rows"),
    (imputed, (X, Y), "'x_unobserved', which obs_mask imputes"),
    (nothing, (X, Y), "no numpyro.sample site"),
    (known, (X, Y), "no latent site"),
    (model, (X, Y[:, None]), r"'y' has values of shape \(99, 1\).*\(99, 99\)"),
    (plated, (X, Y[:-1]), r"'y' has values of shape \(98,\).*as many outcomes as rows"),
    (model, (X,), r"takes \(x, y\).*missing a required argument: 'y'"),
    (model, (X, Y[:98]), "fails at its prior's median"),
]


@pytest.mark.parametrize(("model", "args", "says"), REFUSED, ids=[m[0].__name__ for m in REFUSED])
def test_refusals_name_the_site(model, args, says):
    with pytest.raises(UsageError, match=f"(?s){says}"):
        sgld.from_numpyro(model, *args)


# -- the full density, and why ------------------------------------------------------------------


def no_plate(x, y):
    numpyro.sample("y", dist.Normal(slope() * x, 1.0), obs=y)


def standardised(x, y):
    outcome(slope() * (x - x.mean()) / x.std(), y)


def counted(x, y):
    with numpyro.plate("groups", len(np.unique(x > 0))):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    outcome(level[(x > 0).astype(int)], y)


def neighbours(x, y):
    outcome(slope() * jnp.concatenate([jnp.zeros(1), x[1:] - x[:-1]]), y)


def frame(table):
    outcome(slope() * table["x"].values, table["y"].values)


FULL = [
    (no_plate, (X, Y), "no observed site is inside a plate"),
    (standardised, (X, Y), "the log density of row 0 differs"),
    (neighbours, (X, Y), r"the log density of row \d+ differs"),
    (counted, (X, Y), "np.unique.*a number of groups"),
    (one_each, (X, Y), "plate 'data' holds the latent site 'each'"),
    (frame, (pd.DataFrame({"x": X, "y": Y}),), "no argument of the model has 99 rows"),
]


@pytest.mark.parametrize(("model", "args", "why"), FULL, ids=[m[0].__name__ for m in FULL])
def test_the_full_density_where_rows_are_not_alone(model, args, why):
    posterior, init = sgld.from_numpyro(model, *args)
    assert posterior.log_likelihood is None and posterior.data is None
    (note,) = posterior.notes
    assert note.startswith("the full density of the model is evaluated at every step: ")
    assert re.search(why, note)
    expected, _ = numpyro.infer.util.log_density(model, args, {}, init)
    np.testing.assert_allclose(posterior.log_prior(init), expected, rtol=1e-5)


# -- what is done for the user --------------------------------------------------------------------


def test_every_way_to_give_the_arguments():
    def sites(posterior):
        return sorted(posterior.data), posterior.log_likelihood is not None

    def converts(x, y):
        model(jnp.asarray(x), jnp.asarray(y))

    several = {
        "kwargs": sgld.from_numpyro(model, x=X, y=Y),
        "lists": sgld.from_numpyro(converts, X.tolist(), Y.tolist()),
        "series": sgld.from_numpyro(model, pd.Series(X), pd.Series(Y)),
        "partial": sgld.from_numpyro(partial(model, y=Y), X),
    }
    for name, (posterior, _) in several.items():
        assert sites(posterior) == (["x", "y"], True), name
    conditioned = numpyro.handlers.condition(partial(unobserved), {"y": Y})
    assert sgld.from_numpyro(conditioned, X)[0].log_likelihood is None  # no plate


def test_conditions_are_rows():
    def generates(x):
        outcome_of = numpyro.plate("data", len(x))
        mean = slope() * x
        with outcome_of:
            numpyro.sample("y", dist.Normal(mean, 1.0))

    posterior, _ = sgld.from_numpyro(numpyro.handlers.condition(generates, {"y": Y}), X)
    assert sorted(posterior.data) == ["conditions['y']", "x"]


def test_subsamples_and_params_are_told():
    def asks(x, y):
        b, shift = slope(), numpyro.param("shift", 0.3)
        with numpyro.plate("data", len(x), subsample_size=10) as rows:
            numpyro.sample("y", dist.Normal(b * x[rows] + shift, 1.0), obs=y[rows])

    posterior, _ = sgld.from_numpyro(asks, X, Y)
    assert posterior.log_likelihood is not None
    (plate, param) = sorted(posterior.notes, reverse=True)
    assert "plate 'data' requests subsamples of 10" in plate and "batch_size=" in plate
    assert "numpyro.param 'shift' keeps its initial value" in param


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(MissingExtra, match=r"pip install 'sgld\[numpyro\]'"):
        sgld.from_numpyro(model, X, Y)


# -- summed out, dropped, reported ----------------------------------------------------------------


def mixture(y):
    weight = numpyro.sample("weight", dist.Beta(2.0, 2.0))
    means = numpyro.sample("means", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    with numpyro.plate("data", len(y)):
        which = numpyro.sample("which", dist.Bernoulli(weight))
        numpyro.sample("y", dist.Normal(means[which], 1.0), obs=y)


def test_discrete_sites_of_rows_are_summed_out(x64):
    posterior, init = sgld.from_numpyro(mixture, Y.copy())
    assert sorted(init) == ["means", "weight"]
    w, m = float(init["weight"]), np.asarray(init["means"])
    normal = lambda at: np.exp(-0.5 * (Y - at) ** 2) / np.sqrt(2 * np.pi)  # noqa: E731
    expected = np.log((1 - w) * normal(m[0]) + w * normal(m[1]))
    found = [posterior.log_likelihood(init, {"y": y}) for y in Y[:20]]
    np.testing.assert_allclose(found, expected[:20], rtol=1e-9)


def test_obs_mask_takes_nothing_in_and_needs_no_parameters(x64):
    def masked(x, y, seen):
        mean = slope() * x
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y, obs_mask=seen)

    posterior, init = sgld.from_numpyro(
        masked, X.copy(), Y.copy(), X > 0
    )  # JAX keeps one precision of an array
    assert list(init) == ["slope"]
    row = {"x": X[0], "y": Y[0]}
    expected = dist.Normal(init["slope"] * X[0], 1.0).log_prob(Y[0])
    np.testing.assert_allclose(posterior.log_likelihood(init, {**row, "seen": True}), expected)
    assert posterior.log_likelihood(init, {**row, "seen": False}) == 0.0


def test_a_model_may_ask_where_nothing_was_measured():
    def asks(x, y):
        b, measured = slope(), ~jnp.isnan(y)
        with numpyro.plate("data", len(x)), numpyro.handlers.mask(mask=measured):
            numpyro.sample("y", dist.Normal(b * x, 1.0), obs=y)

    y = np.where(X > 0, Y, np.nan)
    posterior, init = sgld.from_numpyro(asks, X, y)
    rows = jax.tree.map(jnp.asarray, posterior.data)
    assert all(np.isfinite(leaf).all() for leaf in rows.values())
    found = posterior.log_likelihood_free(posterior.unconstrain(init), rows)
    seen = X > 0
    expected = dist.Normal(init["slope"] * X[seen], 1.0).log_prob(Y[seen]).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_deterministic_sites_are_reported_where_no_row_has_a_share():
    def deterministic(x, y):
        b = numpyro.deterministic("double", 2.0 * slope())
        mean = numpyro.deterministic("mean", b * x)
        outcome(mean, y)

    posterior, init = sgld.from_numpyro(deterministic, X, Y)
    reported = posterior.output(init)
    assert sorted(reported) == ["double", "slope"]
    assert reported["double"] == 2 * init["slope"]
    assert "'mean': deterministic and not reported" in posterior.notes[0]


def test_a_second_reading_compiles_nothing():
    first, _ = sgld.from_numpyro(model, X, Y)
    second, _ = sgld.from_numpyro(model, X + 1, Y)
    assert jax.tree.structure(first) == jax.tree.structure(second)


def test_sample_takes_the_model_itself():
    draws = sgld.sample(model, {"x": X, "y": Y}, progress=False)
    precision = 1 + np.sum(X**2)
    np.testing.assert_allclose(draws.mean()["slope"], X @ Y / precision, atol=0.1 / precision**0.5)
    np.testing.assert_allclose(draws.sd()["slope"], precision**-0.5, rtol=0.07)
    assert draws.info["num_data"] == 99 and draws.verdict.word == "trusted"


def counts(x, y):
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(slope() * x)), obs=y)


def changed(values, row, value):
    return np.where(np.arange(len(values)) == row, value, values)


@pytest.mark.parametrize(
    "model, args, says",
    [
        (
            model,
            (X, changed(Y, 7, np.nan)),
            r"observed site 'y' is nan in row 7 .*outside the support of its Normal",
        ),
        (model, (X, changed(Y, 7, np.inf)), r"observed site 'y' is inf in row 7"),
        (
            counts,
            (X, changed(np.ones(99, int), 5, -2)),
            r"is -2 in row 5 .*outside the support of its Poisson",
        ),
        (model, (changed(X, 3, np.nan), Y), r"argument 'x' holds nan in row 3"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_row(model, args, says):
    with pytest.raises((DataError, UsageError), match=says):
        sgld.from_numpyro(model, *args)


def test_a_name_that_the_model_does_not_take_is_named():
    with pytest.raises(
        UsageError, match=r"takes \(x, y\), and data has 'X' too\. Did you mean 'x'"
    ):
        sgld.sample(model, {"X": X, "y": Y})


def test_what_is_masked_may_be_any_number():
    def masked(x, y, seen):
        with numpyro.plate("data", len(y)), numpyro.handlers.mask(mask=seen):
            numpyro.sample("y", dist.Poisson(jnp.exp(slope() * x)), obs=y)

    sgld.from_numpyro(masked, X, changed(np.ones(99, int), 5, -2), np.arange(99) != 5)


def test_columns_of_a_table_are_arrays_to_obs_mask():
    """JAX takes a Series for no array; and what obs_mask makes of the outcome is nothing that is not reported."""
    frame = pd.DataFrame({"x": X, "y": np.where(X > 0, X, np.nan), "seen": X > 0})

    def holes(x, y, seen):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(mean * x, 1.0), obs=y, obs_mask=seen)

    posterior, init = sgld.from_numpyro(holes, frame.x, frame.y, seen=frame.seen)
    assert list(init) == ["mean"] and not posterior.notes
    assert posterior.data["x"].shape == X.shape
