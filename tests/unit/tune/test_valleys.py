"""Mass behind a valley: steps across several parameters, and steps that no search by gradients stays on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sgld
from sgld.approximation.mode import gaussian_at_mode
from sgld.approximation.rays import Ray
from sgld.diagnostics import mass_detectors
from sgld.diagnostics.hidden_mass import remaining_doubts
from sgld.inference.tuning.survey import survey_posterior
from sgld.model import sums
from sgld.model.prepare import prepare

AT, UP, DOWN = 3.3, 6.2, 4.5


def step(u, at=AT, up=UP):
    return lambda x: -0.5 * np.sum(x**2, 1) + up * (x @ u > at)


def unit(d, seed=0):
    u = np.random.default_rng(seed).normal(size=d)
    return u / np.linalg.norm(u)


@pytest.mark.parametrize("d", [2, 30, 100])
def test_a_step_in_any_direction_is_turned_to(d):
    u = unit(d)
    for seed in range(3):
        (found,) = mass_detectors.directions(step(u), d, np.random.default_rng(seed))
        assert found @ u > 0.95


def test_steps_on_both_sides_are_one_direction_and_across_each_other_two():
    u, v = np.eye(20)[3], np.eye(20)[7]
    both = lambda x: step(u)(x) + UP * (x @ u < -AT)  # noqa: E731
    (found,) = mass_detectors.directions(both, 20, np.random.default_rng(0))
    assert abs(found @ u) > 0.9
    across = lambda x: step(u)(x) + UP * (x @ v < -AT)  # noqa: E731
    found = np.array(mass_detectors.directions(across, 20, np.random.default_rng(0)))
    assert (found @ u).max() > 0.9
    assert (found @ v).min() < -0.9


@pytest.mark.parametrize("d", [2, 30, 200])
@pytest.mark.parametrize(
    "density",
    [
        lambda x: -0.5 * np.sum(x**2, 1),
        lambda x: np.sum(stats.t.logpdf(x, 4), 1),
        lambda x: np.sum(x - np.exp(x), 1),
        lambda x: -np.sum(np.abs(x), 1),
        lambda x: np.where(x[:, 0] > 2, np.nan, -0.5 * np.sum(x**2, 1)),
        lambda x: np.where(x[:, 0] > 1, -np.inf, -0.5 * np.sum(x**2, 1)),
    ],
    ids=["gaussian", "student-t", "gumbel", "laplace", "nan", "edge"],
)
def test_where_every_ray_falls_there_is_no_direction(d, density):
    assert mass_detectors.directions(density, d, np.random.default_rng(0)) == []


def ray(value):
    t = np.concatenate([-np.arange(0, 12, 0.01)[:0:-1], np.arange(0, 12, 0.01)])
    return Ray(0, np.ones(1), t, value(t))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_share_behind_a_valley_is_the_integral_there(sign):
    (found,) = mass_detectors.behind(ray(lambda t: -(t**2) / 2 + 4.6 * (sign * t > 2.9)))
    far = np.exp(4.6) * (2.9 * stats.norm.pdf(2.9) + stats.norm.sf(2.9))
    near = 1 - (2.9 * stats.norm.pdf(2.9) + stats.norm.sf(2.9))
    assert found.share == pytest.approx(far / (far + near), abs=0.01)
    assert found.edge == pytest.approx(2.9, abs=0.02)
    assert sign * found.place > 2.9


def test_what_falls_rises_by_little_or_holds_little_is_no_valley():
    assert mass_detectors.behind(ray(lambda t: -(t**2) / 2)) == []
    assert mass_detectors.behind(ray(lambda t: -(t**2) / 2 + 2.0 * (t > 3))) == []  # 2% of it
    assert mass_detectors.behind(ray(lambda t: -(t**2) / 8 + 0.5 * np.cos(6 * t))) == []
    assert mass_detectors.behind(ray(lambda t: -2 * np.log1p(t**2 / 3))) == []


def test_the_prior_with_the_likelihoods_gaussian_is_the_density_where_that_is_one():
    x = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    quartic = sgld.Posterior(
        lambda t: -jnp.sum((20 * (t - 0.05)) ** 4 + t), lambda t, x: -0.5 * jnp.sum((x - t) ** 2)
    )
    problem = prepare(quartic, x, jnp.zeros(3))
    gaussian = gaussian_at_mode(problem).gaussian
    points = np.random.default_rng(1).normal(size=(40, 3))
    for temperature in (1.0, 4.0):
        away = gaussian.tempered(temperature).spread(points)
        exact = sums.differences(problem, gaussian.center + away, gaussian.center) / temperature
        found = mass_detectors.of_prior(problem, gaussian, temperature)(points)
        np.testing.assert_allclose(found, exact, atol=0.02, rtol=2e-3)


def stepping(N, d, u, width):
    """A prior that steps up, and down again, within the posterior of N rows: to a hundredth of them it is a needle."""
    x = np.random.default_rng(7).normal(size=(N, d)).astype(np.float32)
    center, size = jnp.asarray(x.mean(0)), jnp.float32(np.sqrt(N))
    u = jnp.asarray(u, jnp.float32)
    v = lambda t: jnp.dot(u, t - center) * size  # noqa: E731
    on = lambda t, at: jax.nn.sigmoid((v(t) - at) / width)  # noqa: E731
    up = lambda t: UP * (on(t, AT) - on(t, DOWN))  # noqa: E731
    return prepare(sgld.Posterior(up, lambda t, x: -0.5 * jnp.sum((x - t) ** 2)), x, jnp.zeros(d))


@pytest.mark.parametrize(("N", "d"), [(200_000, 6), (3000, 20)])
def test_a_step_across_two_parameters_is_doubted_until_draws_have_been_there(N, d):
    u = np.zeros(d)
    u[[1, 4]] = 0.5**0.5
    known = survey_posterior(stepping(N, d, u, 1e-3), 0, 1.0, by_hand=False)
    (doubt,) = known.doubts
    assert "'x[1]'" in doubt.sentence and "'x[4]'" in doubt.sentence
    assert "beyond a valley 3.3 sds from the mode" in doubt.sentence
    rng = np.random.default_rng(0)
    z = known.gaussian.draw(rng, 4000)
    assert remaining_doubts(known, z.reshape(4, 1000, d), exact=True) == (doubt.sentence,)
    # of the law itself as many draws are beyond the step as it says
    size = np.sqrt(N)
    behind = stats.norm.sf(AT) * np.exp(UP)
    there = rng.random(4000) < behind / (behind + stats.norm.cdf(AT))
    along = stats.norm.isf(stats.norm.sf(AT) * rng.random(4000))
    v = (z - known.gaussian.center) @ u * size
    moved = z + np.where(there, along - v, 0.0)[:, None] * u / size
    assert remaining_doubts(known, moved.reshape(4, 1000, d), exact=True) == ()
    assert remaining_doubts(known, moved.reshape(4, 1000, d), exact=False) == (doubt.sentence,)
