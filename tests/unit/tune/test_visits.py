"""Doubts about mass far out that chains settle by visits, and what they need to know of it."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from test_beyond import saturating

import sgld
from sgld.approximation.known import Doubt, Known
from sgld.approximation.laplace import Laplace
from sgld.approximation.mode import gaussian_at_mode
from sgld.diagnostics import hidden_mass
from sgld.diagnostics.hidden_mass import remaining_doubts
from sgld.inference.execute import draws_for_tails
from sgld.inference.tuning import exact_chains
from sgld.inference.tuning.ensemble import Ensemble
from sgld.inference.tuning.survey import survey_posterior
from sgld.model.prepare import prepare
from sgld.results.statistics import Estimates

PLACE = np.array([6.0, 0.0])


def promised(start: np.ndarray | None = PLACE) -> Known:
    """A standard normal, and a ray that puts 90% of the second moment around 6 sds of the first parameter."""
    one = np.eye(2)
    gaussian = Laplace(np.zeros(2), one, one, 1.0, np.zeros(2))
    doubt = Doubt("tails", "more above", 0.9, PLACE, np.array([1.0, 0.0]), start=start)
    return Known(gaussian, doubts=(doubt,))


def chains(share: float, number: int = 64) -> np.ndarray:
    """Normal draws, of which a share of `number` chains is beyond that place."""
    rng = np.random.default_rng(0)
    z = np.clip(rng.standard_normal((64, 800, 2)), -5, 5)
    far = rng.random((64, 800)) < share
    far[number:] = False
    z[far, 0] = 6.5
    return z


def once(number: int) -> np.ndarray:
    """Normal draws, of which one of each of `number` chains is beyond that place."""
    z = chains(0.0)
    z[np.arange(number), 7 * np.arange(number), 0] = 6.5
    return z


@pytest.mark.parametrize(
    ("z", "settled"),
    [(chains(0.02), True), (once(40), False), (chains(0.02, 31), False), (chains(0.02, 40), True)],
)
def test_a_doubt_is_settled_where_most_chains_have_been_often_enough(z, settled):
    """40 visits are too few; and where less than half of the chains have all of many, what keeps the others out?"""
    assert (remaining_doubts(promised(), z, exact=True, began_there=True) == ()) is settled


def test_only_chains_some_of_which_began_there_settle_it_so():
    z = chains(0.02)
    assert remaining_doubts(promised(), z, exact=True) == ("more above",)
    assert remaining_doubts(promised(), z, exact=False, began_there=True) == ("more above",)
    assert remaining_doubts(promised(None), z, exact=True, began_there=True) == ("more above",)
    assert remaining_doubts(promised(), -z, exact=True, began_there=True) == ("more above",)


def test_visits_that_are_one_long_stay_are_few():
    """6% of all draws, but 40 chains have been there once, and the others never."""
    z = chains(0.0)
    z[:40, 300:380, 0] = 6.5
    assert remaining_doubts(promised(), z, exact=True, began_there=True) == ("more above",)


def student(x):
    return -1.8 * jnp.sum(jnp.log1p(x**2 / 2.6))


def test_of_one_parameter_draws_must_hold_what_the_density_says():
    """Student's t with 2.6 degrees, of which draws held 66% of the variance: trusted, with an sd of .81."""
    problem = prepare(sgld.Posterior(student), None, np.zeros(1, np.float32))
    known = survey_posterior(problem, 0, 1.0, by_hand=False)
    above, below = known.doubts
    assert above.start is None is below.start and above.share + below.share > 0.3
    grid = np.arange(0.5, 51_200) / 51_200
    quantiles = stats.t(2.6).ppf(grid).reshape(64, 800, 1)
    assert remaining_doubts(known, quantiles, exact=True) == ()
    short = np.clip(quantiles, -14, 14)  # an sd of .85
    assert remaining_doubts(known, short, exact=True) == (above.sentence, below.sentence)
    one_side = np.clip(quantiles, -14, None)
    assert len(remaining_doubts(known, one_side, exact=True)) == 1
    thin = quantiles.copy()  # three of five draws far out, on both sides and however far
    far = np.argwhere(np.abs(thin[..., 0]) > 4 * np.sqrt(known.gaussian.variance[0]))
    out = far[np.isin(np.arange(len(far)) % 5, (1, 3))]
    thin[out[:, 0], out[:, 1]] = 0.0
    assert remaining_doubts(known, thin, exact=True) == (above.sentence, below.sentence)


def square(x):
    return -0.5 * jnp.sum(x**2)


def test_chains_begin_on_the_ray_where_it_bends():
    problem = prepare(sgld.Posterior(saturating), None, np.array([1.0, 0.0], np.float32))
    gaussian = gaussian_at_mode(problem).gaussian
    doubts = hidden_mass.check_tails_and_modes(
        problem, gaussian, np.random.default_rng(0), 1.0
    ).doubts
    (doubt,) = (d for d in doubts if d.ray is not None and d.ray.parameter == 1)
    assert doubt.ray.bent is not None
    bent, straight = (float(saturating(jnp.asarray(z))) for z in (doubt.start, doubt.at))
    assert bent > float(saturating(jnp.asarray(gaussian.center))) - 10 > straight
    away = (doubt.start - gaussian.center) @ doubt.toward
    assert away == pytest.approx(doubt.ray.sides()[0].place, rel=0.2)


def test_the_last_group_of_chains_begins_there_and_stays_the_last(monkeypatch):
    problem = prepare(sgld.Posterior(square), None, np.zeros(2, np.float32))

    def as_they_start(problem, gradient, zs, factor, seed):
        return Ensemble(factor, 1.0, 8.0, zs, np.arange(len(zs), 0.0, -1), None)

    monkeypatch.setattr(exact_chains, "warmed_up", as_they_start)
    known = survey_posterior(problem, 0, 1.0, by_hand=False)
    for number in (64, 16):
        zs = exact_chains._ensemble(problem, known, 0, number, [PLACE]).zs
        there = np.all(zs == PLACE, axis=1)
        assert there[-number // 4 :].all() and not there[: -number // 4].any()
    assert not np.all(exact_chains._ensemble(problem, known, 0).zs == PLACE, axis=1).any()


def funnel_of_means(p):
    """Two normal means with scales of their own and one of both: their funnel opens to one side only."""
    size = jnp.abs(p["log_local"])
    cosh = size + jnp.log1p(jnp.exp(-2 * size)) - jnp.log(2.0)
    prior = -40 * jnp.sum(cosh) + square(p["z"]) - 0.5 * p["log_all"] ** 2
    effect = jnp.exp(p["log_all"] + p["log_local"]) * p["z"]
    return prior + square(jnp.array([1.2, 1.9, 1.1, 1.6, 1.4]) - effect)


def test_what_a_profile_overstates_is_settled_by_a_run():
    """.38 of the second moment of a z by the profile, .08 by the draws, which are right."""
    init = {"log_all": jnp.zeros(()), "log_local": jnp.zeros(5), "z": jnp.zeros(5)}
    draws = sgld.sample(sgld.Posterior(funnel_of_means), None, init, seed=0, progress=False)
    known = draws.plan.known
    assert known.doubts and all(doubt.ray.bent is not None for doubt in known.doubts)
    z = draws.flat()[0].astype(float)  # no constraints: free coordinates, in the same order
    assert remaining_doubts(known, z, exact=True)  # though some of them are
    assert draws.verdict.word == "trusted"


def test_a_run_with_a_doubt_on_a_ray_is_stored(tmp_path):
    def halo(x):
        return jnp.logaddexp(-0.5 * x**2, -3.0 - 0.5 * (x / 12) ** 2)

    posterior = sgld.Posterior(halo)
    draws = sgld.sample(posterior, None, 0.1, path=tmp_path / "run", progress=False)
    found, loaded = (d.plan.known.doubts for d in (draws, sgld.load(tmp_path / "run")))
    for doubt, stored in zip(found, loaded, strict=True):
        assert doubt.ray is not None
        assert stored.sentence == doubt.sentence
        np.testing.assert_array_equal(stored.ray.t, doubt.ray.t)


def flat_foot(x, share=0.0064, length=171.0):
    edges = jnp.logaddexp(0.0, x - length) + jnp.logaddexp(0.0, -x - length)
    peak = jnp.log(1 - share) - 0.5 * x**2 - 0.5 * jnp.log(2 * jnp.pi)
    return jnp.logaddexp(peak, jnp.log(share / (2 * length)) - edges)


def test_a_plateau_is_no_mode_however_wide():
    """Where rounding makes a curvature of 1e-31, Laplace's approximation makes a mass above all."""
    problem = prepare(sgld.Posterior(flat_foot), None, np.float32(0.2))
    known = survey_posterior(problem, 0, 1.0, by_hand=False)
    assert abs(known.gaussian.center[0]) < 1e-3 and known.modes is None
    assert [doubt.kind for doubt in known.doubts] == ["tails", "tails"]  # above and below


def excursions(rng, draws=2000):
    """64 chains of independent normal draws that now and then stay far out for 25."""
    z = rng.standard_normal((64, draws))
    for chain in range(64):
        for begin in np.flatnonzero(rng.random(draws) < 2.5e-4):
            z[chain, begin : begin + 25] += 15
    return z[..., None]


def test_the_error_of_an_sd_counts_long_stays_in_the_tail():
    """By their ranks squares of such draws are nearly independent; their mean is that of a few stays."""
    rng = np.random.default_rng(3)
    found = [Estimates(excursions(rng), np.ones((64, 2000))) for _ in range(30)]
    true = np.std([own.sd[0] for own in found]) / np.mean([own.sd[0] for own in found])
    said = np.mean([own.sd_se[0] for own in found])
    assert found[0].ess_square[0] > 5 * found[0].ess_sd[0]
    assert said == pytest.approx(true, rel=0.5)


def test_light_tails_keep_the_error_that_they_had():
    found = Estimates(np.random.default_rng(0).standard_normal((4, 500, 3)), np.ones((4, 500)))
    np.testing.assert_array_equal(found.ess_sd, found.ess_square)


@pytest.mark.parametrize(("degrees", "done", "wanted"), [
    (5.0, 800, 3200), (5.0, 3200, 3200), (2.2, 800, 800), (200.0, 800, 800),
])  # fmt: skip
def test_tails_that_may_only_seem_too_heavy_are_watched_for_longer(degrees, done, wanted):
    """k of 5 degrees is .2; that of 2.2 is .45, of which no run learns more."""
    z = np.random.default_rng(4).standard_t(degrees, (64, done, 1))
    assert draws_for_tails(Estimates(z, np.ones(z.shape[:2])), 800) == wanted
