"""Mass on all sides of the Gaussian: shells, and what a doubt about them takes to be settled."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sgld
from sgld.approximation.known import Doubt
from sgld.approximation.laplace import laplace_at
from sgld.approximation.mode import gaussian_at_mode
from sgld.approximation.modes import KnownModes
from sgld.approximation.rays import Ray, rays
from sgld.diagnostics import hidden_mass, mass_detectors
from sgld.diagnostics.hidden_mass import remaining_doubts
from sgld.inference.tuning import survey as known_room
from sgld.inference.tuning.several_modes import too_many_modes
from sgld.inference.tuning.survey import survey_posterior
from sgld.model.prepare import prepare


def of(log_density, d):
    problem = prepare(sgld.Posterior(log_density), None, np.zeros(d, np.float32))
    return problem, gaussian_at_mode(problem).gaussian


def square(x):
    return -0.5 * jnp.sum(x**2)


def halo(x, w=0.02, wide=10.0):
    far = jnp.log(w) - x.size * jnp.log(wide) - 0.5 * jnp.sum(x**2) / wide**2
    return jnp.logaddexp(jnp.log(1 - w) + square(x), far)


def share(log_density, d, temperature=1.0):
    return mass_detectors.shells(*of(log_density, d), np.random.default_rng(0), temperature).share


def of_shells(doubts):
    """The one that shells have, among them."""
    (found,) = (doubt for doubt in doubts if doubt.edge is not None)
    return found


def beyond_edge(d, wide=1.0):
    """E[r^2; r > edge] of N(0, wide^2 I)."""
    return d * wide**2 * stats.chi2.sf((np.sqrt(d) + 4) ** 2 / wide**2, d + 2)


@pytest.mark.parametrize("d", [2, 5, 30])
def test_the_share_of_a_halo_is_its_integral(d):
    truth = 0.02 * beyond_edge(d, 10.0) / (d * (0.98 + 0.02 * 100))
    assert share(halo, d) == pytest.approx(truth, abs=0.02)


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
def test_a_gaussian_has_its_share_at_every_temperature(temperature):
    assert share(square, 3, temperature) == pytest.approx(beyond_edge(3) / 3, rel=0.5)


def test_the_share_of_a_spherical_student_t_is_its_integral():
    d, df = 4, 5.0
    unit = np.sqrt(df / (df + d))  # the sd of the Gaussian at its mode; r^2 / d is F(d, df)
    r = np.linspace(0, 3000, 3_000_001)
    moment = r**2 * stats.f.pdf(r**2 / d, d, df) * 2 * r / d
    truth = moment[r > 6 * unit].sum() / moment.sum()
    log_density = lambda x: -(df + d) / 2 * jnp.log1p(jnp.sum(x**2) / df)  # noqa: E731
    assert share(log_density, d) == pytest.approx(truth, abs=0.04)


def test_a_wide_mass_along_one_parameter_is_left_to_its_ray():
    def ridge(x):
        tail = jnp.log(0.03 / 30) - 0.5 * (x[0] / 30) ** 2
        return square(x[1:]) + jnp.logaddexp(-0.5 * x[0] ** 2, tail)

    problem, gaussian = of(ridge, 10)
    assert (
        mass_detectors.shells(problem, gaussian, np.random.default_rng(0)).share
        < mass_detectors.MIN_SHELL_SHARE
    )
    assert max(ray.share for ray in rays(problem, gaussian, np.random.default_rng(0))) > 0.9


def test_a_ray_in_a_ridge_is_left_out():
    """Some direction in sixteen holds nearly all, and says little."""
    turned = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    mixed = jnp.asarray(turned, jnp.float32)

    def ridge(x):
        y = mixed @ x
        tail = jnp.log(0.05 / 10) - 0.5 * (y[0] / 10) ** 2
        return square(y[1:]) + jnp.logaddexp(-0.5 * y[0] ** 2, tail)

    assert share(ridge, 3) < mass_detectors.MIN_SHELL_SHARE / 2


def test_a_narrower_mode_between_the_axes_is_risen_to():
    u = np.array([1.0, -0.7, 0.5, 0.9, -1.1])
    there = jnp.asarray(13 * u / np.linalg.norm(u), jnp.float32)

    def two(x):
        other = -0.36 - 5 * jnp.log(0.84) - 0.5 * jnp.sum((x - there) ** 2) / 0.84**2
        return jnp.logaddexp(square(x), other)

    problem, _ = of(two, 5)
    known = survey_posterior(problem, 0, 1.0, by_hand=False)
    assert known.modes is not None
    np.testing.assert_allclose(known.modes.z[1], there, atol=0.1)


def test_correlation_and_scale_change_nothing():
    rng = np.random.default_rng(2)
    A = (np.eye(5) + 0.3 * rng.standard_normal((5, 5))) * np.geomspace(0.1, 10, 5)[:, None]
    inverse = jnp.asarray(np.linalg.inv(A), jnp.float32)
    assert share(lambda x: halo(inverse @ x), 5) == pytest.approx(share(halo, 5), abs=0.02)


def test_a_halo_in_ten_dimensions_that_no_ray_sees_is_doubted():
    problem, gaussian = of(halo, 10)
    assert max(ray.share for ray in rays(problem, gaussian, np.random.default_rng(0))) < 0.01
    known = survey_posterior(problem, 0, 1.0, by_hand=False)
    doubt = of_shells(known.doubts)
    assert doubt.kind == "tails" and "in all directions" in doubt.sentence and doubt.share > 0.5
    told = tuple(doubt.sentence for doubt in known.doubts)  # profiles see how wide it is, too
    rng = np.random.default_rng(0)
    wide = rng.random((64, 800, 1)) < 0.02
    right = rng.standard_normal((64, 800, 10)) * np.where(wide, 10, 1)
    stuck = rng.standard_normal((64, 800, 10))
    assert remaining_doubts(known, right, exact=True) == ()
    assert remaining_doubts(known, right, exact=False) == remaining_doubts(known, stuck, exact=True)
    assert remaining_doubts(known, stuck, exact=True) == told


def test_draws_settle_a_doubt_by_their_weights():
    problem, _ = of(halo, 10)
    known = survey_posterior(problem, 0, 1.0, by_hand=False)
    z = np.random.default_rng(0).standard_normal((64, 800, 10))
    z[:32] *= 10
    light = np.where(np.arange(64)[:, None] < 32, 1e-9, 1.0) * np.ones((1, 800))
    assert remaining_doubts(known, z, exact=True) == ()
    told = tuple(doubt.sentence for doubt in known.doubts)
    assert remaining_doubts(known, z, exact=True, weights=light) == told and of_shells(known.doubts)


def test_what_a_known_mode_explains_is_not_doubted():
    problem, gaussian = of(halo, 10)
    doubt = of_shells(
        hidden_mass.check_tails_and_modes(problem, gaussian, np.random.default_rng(0), 1.0).doubts
    )
    # some way out the halo curves downwards: as a mode there would
    assert laplace_at(problem, doubt.at).positive_definite
    for place, left in ((doubt.at, ()), (doubt.at + 1000, (doubt,))):
        modes = KnownModes(np.array([gaussian.center, place]), np.zeros(2), np.zeros(2))
        assert hidden_mass.unexplained(problem, (doubt,), modes, 1.0) == left


def lattice(x, sd=2.8):
    return jnp.sum(40 * jnp.cos(x) - 0.5 * (x / sd) ** 2)


def test_a_search_among_several_modes_goes_on_until_it_finds_no_other(monkeypatch):
    """The first search, which rays lead to all five, is made to find one of them alone."""
    first = known_room.other_modes
    monkeypatch.setattr(known_room, "other_modes", lambda *given: first(*given)[:1])
    problem, _ = of(lattice, 1)
    modes = survey_posterior(problem, 0, 1.0, by_hand=False).modes
    assert modes is not None
    assert sorted(np.round(modes.z[:, 0] / (2 * np.pi))) == [-2, -1, 0, 1, 2]


def test_no_chains_are_kept_in_more_modes_than_can_have_them():
    posterior = sgld.Posterior(lambda x: lattice(x, 30.0))
    draws = sgld.sample(posterior, None, 0.0, seed=0, progress=False)
    assert not draws.plan.setup.exact
    assert draws.verdict.word == "unknown" and "modes" in draws.verdict.reasons[0]
    problem = prepare(posterior, None, np.float32(0))
    known = survey_posterior(problem, 0, 1.0, by_hand=False)
    assert too_many_modes(problem, known)
    # mass that goes on far beyond a mode without a valley: the sds there tell nothing, chains move through it
    ray = Ray(0, np.ones(1), np.arange(0.0, 9.0), np.full(9, -3.0))
    far = Doubt("tails", "there is mass far out", 0.5, known.gaussian.center + 8, np.ones(1), ray)
    assert far.valley(known.modes.z) == 3.0
    assert not too_many_modes(problem, replace(known, doubts=(far,)))
    # not so mass that no other mode is on the way to, as in the tails of another parameter
    aside = replace(far, at=known.modes.z[0] + 3 * np.ptp(known.modes.z))
    assert aside.valley(known.modes.z) == np.inf
    assert too_many_modes(problem, replace(known, doubts=(aside,)))
