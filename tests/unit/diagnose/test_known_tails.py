"""Heavy tails whose fourth moment draws have mostly seen: known by the density, not by draws alone."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sgld
from sgld.diagnostics.tails import known_tails
from sgld.inference.tuning.survey import survey_posterior
from sgld.model.prepare import prepare


def student(nu, d=1):
    def density(x):
        return -0.5 * (nu + 1) * jnp.sum(jnp.log1p(x**2 / nu))

    problem = prepare(sgld.Posterior(density), None, np.zeros(d, np.float32))
    return problem, survey_posterior(problem, 0, 1.0, by_hand=False)


def quantiles(nu, number=51_200):
    """Draws as even as there can be: none of them is farther out than chance would have it."""
    grid = np.arange(0.5, number) / number
    return stats.t(nu).ppf(grid).reshape(64, -1, 1)


@pytest.mark.parametrize("nu", [4.8, 5.0, 7.0])
def test_a_tail_with_a_fourth_moment_is_known(nu):
    problem, known = student(nu)
    assert known_tails(problem, known, quantiles(nu), np.array([True]), 1.0).tolist() == [True]
    assert known_tails(problem, known, quantiles(nu), np.array([False]), 1.0).tolist() == [False]


@pytest.mark.parametrize("nu", [2.5, 3.0, 4.0])
def test_a_tail_without_a_fourth_moment_is_never_known(nu):
    """However long it is watched: 3 million draws."""
    problem, known = student(nu)
    for number in (51_200, 3_200_000):
        assert not known_tails(problem, known, quantiles(nu, number), np.array([True]), 1.0).any()


def test_a_tail_that_no_ray_explains_is_not_known():
    """As of a funnel, whose rays are Gaussian where its marginal is not."""
    problem, known = student(200.0)
    assert not known_tails(problem, known, quantiles(5.0), np.array([True]), 1.0).any()
    lighter = quantiles(200.0)
    heavy, of_heavy = student(5.0)
    assert not known_tails(heavy, of_heavy, lighter, np.array([True]), 1.0).any()


def test_on_another_scale_nothing_is_known():
    problem, known = student(5.0)
    bent = prepare(
        sgld.Posterior(lambda x: -3 * jnp.sum(jnp.log1p(x**2 / 5)), output=lambda x: x**3),
        None, np.zeros(1, np.float32),
    )  # fmt: skip
    z = quantiles(5.0)
    assert known_tails(problem, known, z, np.array([True]), 1.0).all()
    assert not known_tails(bent, known, z, np.array([True]), 1.0).any()
