"""Rows without which a random choice does not show what all rows do: found, looked at, and no more than needed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation import influential_rows
from sgld.approximation.mode import gaussian_at_mode
from sgld.diagnostics.hidden_mass import check_tails_and_modes
from sgld.inference.tuning.survey import all_modes, survey_posterior
from sgld.model import sums
from sgld.model.prepare import prepare

N, D = 50_000, 4
APART = np.array([0.0, 0.5, -0.5, 1.0, 30.0, 30.5, 29.5, 31.0])


def table(values=APART, seed=5):
    """A level of a few rows, the values of whose outcomes are given."""
    r = np.random.default_rng(seed)
    x, level = r.normal(size=(N, D - 1)), np.zeros(N)
    y = x @ np.linspace(-0.5, 0.5, D - 1) + r.standard_t(4, N)
    rows = r.permutation(N)[: len(values)]
    level[rows], x[rows], y[rows] = 1, 0, values
    return tuple(a.astype(np.float32) for a in (x, level, y)), rows


def robust(b, row):
    x, level, y = row
    return -2.5 * jnp.log1p((y - x @ b[:-1] - level * b[-1]) ** 2 / 4)


def contaminated(b, row):
    """A wide normal for one row in ten: the gradient of an outlier is next to nothing."""
    x, level, y = row
    e = y - x @ b[:-1] - level * b[-1]
    wide = jnp.log(0.1) - jnp.log(30.0) - 0.5 * (e / 30) ** 2
    return jnp.logaddexp(jnp.log(0.9) - 0.5 * e**2, wide)


def logistic(b, row):
    x, y = row
    return y * (x @ b) - jax.nn.softplus(x @ b)


def wide_prior(b):
    return -0.5 * jnp.sum((b / 50) ** 2)


def posed(likelihood, data, d=D, prior=wide_prior):
    problem = prepare(sgld.Posterior(prior, likelihood), data, jnp.zeros(d))
    return problem, gaussian_at_mode(problem)


def users_rows(problem, numbers):
    return set(problem.called(numbers, 0).tolist())


@pytest.mark.parametrize("likelihood", [robust, contaminated])
def test_the_rows_of_a_rare_level_are_taken_whatever_their_gradients(likelihood):
    data, rows = table()
    problem, at = posed(likelihood, data)
    found = influential_rows.find_influential_rows(problem, at.gaussian, 1)
    assert users_rows(problem, found) == set(rows.tolist())


def test_rows_on_disk_are_taken_where_they_lie(tmp_path):
    data, rows = table()
    paths = tuple(tmp_path / f"{name}.npy" for name in ("x", "level", "y"))
    for path, leaf in zip(paths, data, strict=True):
        np.save(path, leaf)
    problem, at = posed(robust, sgld.open(paths, cache=tmp_path, progress=False))
    assert problem.rows_on_disk
    found = influential_rows.find_influential_rows(problem, at.gaussian, 1)
    assert users_rows(problem, found) == set(rows.tolist())
    assert len(all_modes(problem, at, 1, 1.0, None, found)[1]) == 2


def test_both_modes_of_a_rare_level_are_found():
    data, _ = table()
    problem, _ = posed(robust, data)
    known = survey_posterior(problem, 1, 1.0, by_hand=False)
    assert known.other_modes == 1
    np.testing.assert_allclose(np.sort(known.modes.z[:, -1]), [0.4, 30.1], atol=0.3)


def test_without_them_neither_rays_nor_the_search_see_the_other_mode():
    """What the rows are for: the same search on the first ones alone."""
    data, _ = table()
    problem, at = posed(robust, data)
    numbers = influential_rows.find_influential_rows(problem, at.gaussian, 1)
    assert (numbers < influential_rows.MAX_WHOLE_ROWS).sum() < 2
    at_level = lambda places: np.abs(np.asarray(places)[:, -1] - 30.1).min()  # noqa: E731
    rng = np.random.default_rng
    tops = check_tails_and_modes(problem, at.gaussian, rng(0), 1.0, numbers).tops
    assert at_level(tops) < 1
    alone = check_tails_and_modes(problem, at.gaussian, rng(0), 1.0).tops
    assert alone is None or at_level(alone) > 10
    assert len(all_modes(problem, at, 1, 1.0, None, numbers)[1]) == 2


def test_a_level_too_large_to_be_taken_whole_is_sampled_evenly():
    """Of 120 rows about 24, of those far out, whose gradients are small, as many as of those near."""
    values = np.where(np.arange(120) % 2, 30.0, 0.0) + np.random.default_rng(0).normal(size=120)
    data, rows = table(values)
    problem, at = posed(robust, data)
    found = users_rows(problem, influential_rows.find_influential_rows(problem, at.gaussian, 1))
    assert found <= set(rows.tolist()) and 12 <= len(found) <= 40
    far = set(rows[values > 15].tolist())
    assert len(found & far) >= 4 and len(found - far) >= 4


def balanced(levels, d=12, count=30_000):
    r = np.random.default_rng(1)
    x = r.normal(size=(count, d)).astype(np.float32)
    x[:, d - levels :] = 0
    x[np.arange(levels), d - levels + np.arange(levels)] = 1
    return x, (r.random(count) < 0.5).astype(np.float32)


def test_of_a_table_that_any_choice_shows_no_row_is_taken(monkeypatch):
    problem, at = posed(logistic, balanced(0), 12)
    monkeypatch.setattr(influential_rows, "_select_rows", None)  # no pass over all rows
    assert not len(influential_rows.find_influential_rows(problem, at.gaussian, 1))


def test_of_levels_of_one_row_that_row_is_taken():
    prior = lambda b: -0.5 * jnp.sum((b / 3) ** 2)  # noqa: E731
    problem, at = posed(logistic, balanced(5), 12, prior)
    found = influential_rows.find_influential_rows(problem, at.gaussian, 1)
    assert users_rows(problem, found) >= set(range(5)) and len(found) < 100


def test_one_row_is_taken_where_the_prior_makes_the_curvature():
    """An outlier under a contaminated normal: where the prior has the level it tells next to nothing, at 2.3 a mode is its own."""
    data, rows = table(np.array([4.0]))

    def likelihood(b, row):
        x, level, y = row
        e = y - b[-1]
        normal = lambda sd: -0.5 * (e / sd) ** 2 - jnp.log(sd)  # noqa: E731
        own = jnp.logaddexp(jnp.log(0.9) + normal(0.3), jnp.log(0.1) + normal(300.0))
        return jnp.where(level > 0, own, -0.5 * (y - x @ b[:-1]) ** 2)

    prior = lambda b: wide_prior(b[:-1]) - 0.5 * b[-1] ** 2  # noqa: E731
    problem, at = posed(likelihood, data, prior=prior)
    assert abs(at.gaussian.center[-1]) < 0.1
    assert at.gaussian.covariance[-1, -1] == pytest.approx(1.0, abs=0.1)
    assert users_rows(
        problem, influential_rows.find_influential_rows(problem, at.gaussian, 1)
    ) == set(rows.tolist())


def test_of_a_parameter_that_no_row_has_none_is_taken(monkeypatch):
    data, _ = table(np.zeros(0))
    problem, at = posed(robust, data)
    monkeypatch.setattr(influential_rows, "_select_rows", None)
    assert not len(influential_rows.find_influential_rows(problem, at.gaussian, 1))


def test_directions_are_of_unit_length_however_small_the_gradient():
    def likelihood(b, row):
        return 1e-30 * row[0] * b[0] + 1e20 * row[1] * b[1]

    r = np.random.default_rng(0)
    data = np.zeros((40, 2), np.float32)
    data[np.arange(30), np.arange(30) % 2] = r.normal(size=30)
    problem = prepare(sgld.Posterior(wide_prior, likelihood), data, jnp.zeros(2))
    found = sums.directions(problem, problem.array(np.zeros(2)), problem.array(np.eye(2)))
    np.testing.assert_allclose(found, np.diag([15.0, 15.0]), rtol=1e-5)


def test_rows_apart_are_added_once():
    data, _ = table()
    problem, _ = posed(robust, data)
    some = influential_rows.with_influential_rows(problem, 100, np.array([3, 99, 100, 40_000]))
    assert some.num_data == 102
    taken = problem.source.take(jnp.array([100, 40_000]))
    for ours, theirs in zip(some.source.take(jnp.array([100, 101])), taken, strict=True):
        np.testing.assert_array_equal(ours, theirs)
