"""Chains that start where mass is suspected decide how much there is, by detailed balance."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation.known import Doubt, Known
from sgld.approximation.laplace import Laplace
from sgld.diagnostics.escapes import left_standing, trajectories_like
from sgld.model.prepare import prepare

PLACE = np.array([8.0, 0.0])
STANDARD = Known(Laplace(np.zeros(2), np.eye(2), np.eye(2), 1.0, np.zeros(2)))
DOUBT = Doubt("tails", "more there", 0.9, PLACE, np.array([1.0, 0.0]), start=PLACE)
NORMAL = np.random.default_rng(0).standard_normal((16, 500, 2))


def normal(t):
    return -0.5 * jnp.sum(t**2)


def two_modes(t):
    """70% of the mass around 0, and 30% around the place of the doubt."""
    return jnp.logaddexp(jnp.log(0.7) + normal(t), jnp.log(0.3) + normal(t - jnp.asarray(PLACE)))


def left(density, z=NORMAL, doubt=DOUBT):
    problem = prepare(sgld.Posterior(density), None, jnp.zeros(2))
    setup = trajectories_like(problem, NORMAL, thin=1)
    return left_standing(problem, setup, STANDARD, (doubt,), z, seed=0)


def test_a_place_that_chains_leave_at_once_and_never_enter_holds_no_mass():
    assert left(normal) == ()


def test_a_mode_that_no_chain_leaves_may_hold_mass_although_no_draw_is_there():
    assert left(two_modes) == (DOUBT,)


def test_a_mode_that_some_chains_do_not_leave_may_hold_mass():
    """From the valley half of the chains fall into the mode that a long run has not visited."""
    between = np.array([4.2, 0.0])
    doubt = Doubt("tails", "", 0.9, between, np.array([1.0, 0.0]), start=between, edge=3.0)
    assert left(two_modes, np.tile(NORMAL, (1, 25, 1)), doubt) == (doubt,)


@pytest.mark.parametrize(("entries", "stands"), [(1, False), (200, True)])
def test_a_place_that_is_entered_often_holds_mass_however_soon_chains_leave(entries, stands):
    z = NORMAL.copy()
    z.reshape(-1, 2)[:entries, 0] = 8.5
    assert (left(normal, z) == (DOUBT,)) is stands


def test_a_doubt_without_a_place_to_start_from_stands():
    doubt = Doubt("tails", "more there", 0.9, PLACE, np.array([1.0, 0.0]))
    assert left(normal, doubt=doubt) == (doubt,)


@pytest.mark.long
def test_twelve_small_groups_are_trusted_and_right():
    """A ray along one group's effect, from a mode with a small scale, is no reason against mixed chains.

    The truth is a sum over a grid of mean and scale, with the effects integrated in closed form.
    """
    rng = np.random.default_rng(2)
    y = rng.normal(0, 0.5, 12)[:, None] + rng.normal(0, 1, (12, 10))
    means = y.mean(1).astype(np.float32)

    def density(p):
        off = means - p["mu"] - jnp.exp(p["log_tau"]) * p["z"]
        prior = -0.5 * (p["mu"] / 5) ** 2 - 0.5 * jnp.exp(2 * p["log_tau"]) + p["log_tau"]
        return prior - 0.5 * jnp.sum(p["z"] ** 2) - 5 * jnp.sum(off**2)

    init = {"mu": jnp.zeros(()), "log_tau": jnp.zeros(()), "z": jnp.zeros(12)}
    draws = sgld.sample(sgld.Posterior(density), None, init, progress=False)
    assert draws.verdict.word == "trusted", draws.verdict
    mu, log_tau = np.meshgrid(np.linspace(-2, 2, 401), np.linspace(-12, 2, 1401), indexing="ij")
    variance = np.exp(2 * log_tau) + 0.1
    fit = sum(-((m - mu) ** 2) / variance - np.log(variance) for m in means) / 2
    log_p = fit - 0.5 * (mu / 5) ** 2 - 0.5 * np.exp(2 * log_tau) + log_tau
    p = np.exp(log_p - log_p.max())
    tau = np.exp(log_tau)
    mean = np.average(tau, weights=p)
    sd = np.sqrt(np.average((tau - mean) ** 2, weights=p))
    found = np.exp(draws.position["log_tau"])
    assert abs(found.mean() - mean) < 0.1 * sd and abs(found.std() / sd - 1) < 0.07
