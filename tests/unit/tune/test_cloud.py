"""Modes between the rays: what a cloud of points sees in few parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation.mode import gaussian_at_mode
from sgld.diagnostics.mass_detectors import MAX_CLOUD_DIM, MAX_GRID_DIM, tops_of_cloud
from sgld.model.prepare import prepare


def of(log_density, d):
    problem = prepare(sgld.Posterior(log_density), None, np.zeros(d, np.float32))
    return problem, gaussian_at_mode(problem).gaussian


def two(place, sd, weight=0.5):
    """N(0, I) and a narrower one at `place`, by their weights."""
    place = jnp.asarray(place, jnp.float32)

    def log_density(x):
        near = jnp.log(1 - weight) - jnp.sum(x**2) / 2
        far = jnp.log(weight) - x.size * jnp.log(sd) - jnp.sum((x - place) ** 2) / (2 * sd**2)
        return jnp.logaddexp(near, far)

    return log_density


PLACES = [
    ([5.0], 0.02),
    ([2.5], 0.03),
    ([-90.0], 0.2),
    ([3.5, 3.5], 0.1),
    ([-6.0, 13.0], 0.1),
    ([3, -3, 3], 0.2),
]


@pytest.mark.parametrize(("place", "sd"), PLACES)
def test_a_narrow_mode_between_the_rays_is_near_a_top(place, sd):
    tops = tops_of_cloud(*of(two(place, sd), len(place)))
    assert min(np.linalg.norm(np.subtract(z, place)) for _, z in tops) < 4 * sd * len(place) ** 0.5


@pytest.mark.parametrize("d", range(1, MAX_GRID_DIM + 1))
def test_what_falls_outwards_has_no_top(d):
    assert tops_of_cloud(*of(lambda x: -0.5 * jnp.sum(x**2), d)) == []
    assert tops_of_cloud(*of(lambda x: -3.0 * jnp.log1p(jnp.sum(x**2) / 5), d)) == []


def test_of_more_parameters_a_wide_part_is_seen_off_the_axes():
    place = np.full(10, 12 / 10**0.5)
    tops = tops_of_cloud(*of(two(place, 0.7), 10))
    ways = np.array([z for _, z in tops]) @ place / 12
    cosines = ways / np.linalg.norm([z for _, z in tops], axis=1)
    assert len(tops) and cosines.min() > 0.6
    assert tops_of_cloud(*of(lambda x: -0.5 * jnp.sum(x**2), 10)) == []


def test_of_more_parameters_space_is_too_large():
    assert tops_of_cloud(*of(two([3.0] * (MAX_CLOUD_DIM + 1), 0.9), MAX_CLOUD_DIM + 1)) == []


def test_tops_are_told_densest_first_at_every_temperature():
    log_density = lambda x: jnp.logaddexp(two([6.0], 0.05)(x), two([-9.0], 0.05, 0.3)(x))  # noqa: E731
    for temperature in (0.5, 1.0, 2.0):
        tops = tops_of_cloud(*of(log_density, 1), temperature)
        assert [round(z[0]) for _, z in tops[:2]] == [6, -9]
        assert tops[0][0] > tops[1][0]


def test_many_rows_are_met_by_fewer_points():
    """Rows x points are bounded, and both modes are seen still."""
    N = 4000
    posterior = sgld.Posterior(
        lambda x: two([5.0], 0.1)(x[0]), lambda x, row: -0.0 * jax.nn.softplus(x[0] * row)
    )
    problem = prepare(posterior, np.ones(N, np.float32), np.zeros(1, np.float32))
    tops = tops_of_cloud(problem, gaussian_at_mode(problem).gaussian)
    assert abs(tops[0][1][0] - 5) < 0.3


def test_a_needle_that_holds_half_the_mass_is_measured():
    draws = sgld.sample(sgld.Posterior(two([3.5, 3.5], 0.1)), None, jnp.zeros(2), progress=False)
    assert draws.verdict.word == "trusted"
    assert draws.modes is not None and np.allclose(draws.modes.mass, 0.5, atol=0.03)
