"""MALA's two acceptance formulas, detailed balance, and the rejection rate's order in the step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.inference.tuning.ensemble import around, log_acceptance
from sgld.model.prepare import prepare

D = 3
MATRIX = np.array([[1.0, 0.3, 0.0], [0.3, 0.5, -0.1], [0.0, -0.1, 0.8]])
PRECONDITIONERS = {
    "scalar": lambda: sgld.Scalar(0.7),
    "diagonal": lambda: sgld.Diagonal(np.array([0.5, 1.0, 2.0])),
    "dense": lambda: sgld.Dense(MATRIX),
    "low rank": lambda: sgld.LowRank(np.array([0.5, 1.0, 2.0]), np.array([[1.0], [-0.5], [0.3]])),
}
ROWS = np.random.default_rng(1).normal(size=(20, D))


def log_prior(t):
    return -0.25 * jnp.sum(t**4) + jnp.sum(jnp.sin(t))


def log_likelihood(t, x):
    return -0.05 * jnp.log1p(jnp.sum((x - t) ** 2))


POSTERIOR = sgld.Posterior(log_prior, log_likelihood)


def log_p(t):
    return log_prior(t) + jnp.sum(jax.vmap(log_likelihood, (None, 0))(t, jnp.asarray(ROWS)))


def matrix_of(preconditioner):
    return np.stack([np.asarray(preconditioner.drift(e)) for e in jnp.eye(D)])


def both_formulas(preconditioner, h, theta, xi):
    """(proposal, log MH ratio from the two normal densities, log ratio from one leapfrog)."""
    matrix = matrix_of(preconditioner)
    gradient = jax.grad(log_p)
    drift = lambda q: q + h * matrix @ gradient(q)  # noqa: E731
    new = drift(theta) + jnp.sqrt(2 * h) * preconditioner.noise(xi)

    def log_proposal(there, here):
        away = there - drift(here)
        return -away @ np.linalg.solve(matrix, away) / (4 * h)

    ratio = log_p(new) + log_proposal(theta, new) - log_p(theta) - log_proposal(new, theta)
    center = np.full(D, 0.1)
    local = around(prepare(POSTERIOR, ROWS, np.zeros(D)), center)
    leapfrog = log_acceptance(local, preconditioner, theta - center, xi, jnp.asarray(h))
    return np.asarray(new), float(ratio), float(leapfrog)


@pytest.mark.parametrize("name", PRECONDITIONERS)
@pytest.mark.parametrize("h", [0.01, 0.3])
def test_one_leapfrog_of_step_sqrt_2h_is_the_metropolis_hastings_ratio(x64, rng, name, h):
    problem = prepare(POSTERIOR, ROWS, np.zeros(D))
    preconditioner = PRECONDITIONERS[name]().prepare(problem.layout)
    for _ in range(3):
        theta, xi = jnp.asarray(rng.normal(size=D)), jnp.asarray(rng.normal(size=D))
        _, ratio, leapfrog = both_formulas(preconditioner, h, theta, xi)
        assert abs(ratio - leapfrog) < 1e-10


def test_detailed_balance(x64, rng):
    """pi(a) q(b|a) min(1, r(a, b)) = pi(b) q(a|b) min(1, r(b, a)), with r of the leapfrog form."""
    problem = prepare(POSTERIOR, ROWS, np.zeros(D))
    preconditioner = PRECONDITIONERS["dense"]().prepare(problem.layout)
    h, matrix = 0.2, MATRIX
    root = np.asarray(preconditioner.factor)
    for _ in range(5):
        a, xi = jnp.asarray(rng.normal(size=D)), jnp.asarray(rng.normal(size=D))
        b, _, forward = both_formulas(preconditioner, h, a, xi)
        back = (a - b - h * matrix @ jax.grad(log_p)(jnp.asarray(b))) / np.sqrt(2 * h)
        eta = jnp.asarray(np.linalg.solve(root, back))
        home, _, backward = both_formulas(preconditioner, h, jnp.asarray(b), eta)
        np.testing.assert_allclose(home, a, atol=1e-12)
        left = log_p(a) - xi @ xi / 2 + min(0.0, forward)
        right = log_p(jnp.asarray(b)) - eta @ eta / 2 + min(0.0, backward)
        assert abs(float(left - right)) < 1e-10
        assert abs(forward + backward) < 1e-10


def test_rejections_vanish_as_the_step_to_the_power_3_2():
    gaussian = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    x = np.random.default_rng(0).normal(size=(4, 500, 2)).astype(np.float32)
    draws = sgld.Draws.of(x, names=("a", "b"))
    h = np.array([0.01, 0.02, 0.04, 0.08])
    rate = sgld.rejection_rate(gaussian, None, draws, h, num_proposals=2000)
    assert (np.diff(rate) > 0).all() and rate[0] < 0.001 < 0.005 < rate[-1]
    slope = np.polyfit(np.log(h), np.log(rate), 1)[0]
    assert abs(slope - 1.5) < 0.15, slope


def test_rejections_of_a_gaussian_by_quadrature():
    """At h, one dimension: the average over theta and xi of 1 - min(1, exp(-dH)), on a grid."""
    h = 0.5
    grid = np.linspace(-8, 8, 801)
    q, p = np.meshgrid(grid, grid)
    delta = np.sqrt(2 * h)
    half = p - delta / 2 * q
    new = q + delta * half
    last = half - delta / 2 * new
    log_ratio = (q**2 + p**2 - new**2 - last**2) / 2
    density = np.exp(-(q**2 + p**2) / 2)
    exact = (density * -np.expm1(np.minimum(log_ratio, 0))).sum() / density.sum()
    x = np.random.default_rng(0).normal(size=(1, 40_000)).astype(np.float32)
    gaussian = sgld.Posterior(lambda t: -0.5 * t**2)
    rate = sgld.rejection_rate(gaussian, None, sgld.Draws.of(x), h, num_proposals=40_000)
    assert abs(rate - exact) < 4.5 * np.sqrt(exact / 40_000), (rate, exact)


def test_small_differences_of_large_energies_survive_single_precision():
    """N = 1e5 rows whose log likelihoods sum to -1e6: the rate at a tiny step is still small."""
    x = (np.random.default_rng(0).normal(size=100_000) + 3).astype(np.float32)
    posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, x: -10.0 - 0.5 * (x - t) ** 2)
    at = np.float32(x.mean())
    rate = sgld.rejection_rate(posterior, x, at, 1e-8, num_proposals=500)
    assert rate < 0.002


def test_units_do_not_matter_where_the_preconditioner_carries_them():
    wide = sgld.Posterior(lambda t: -0.5 * jnp.sum((t / 100) ** 2))
    unit = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    a = sgld.rejection_rate(
        wide, None, np.full(2, 100.0, np.float32), 0.3, preconditioner=sgld.Scalar(1e4)
    )
    b = sgld.rejection_rate(unit, None, np.ones(2, np.float32), 0.3)
    assert a == pytest.approx(b, rel=1e-4)


def test_one_number_gives_one_number_and_an_array_an_array():
    unit = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    assert isinstance(sgld.rejection_rate(unit, None, np.ones(2, np.float32), 0.3), float)
    assert sgld.rejection_rate(unit, None, np.ones(2, np.float32), [[0.3, 0.1]]).shape == (1, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step_size": 0.0}, "step_size must be positive. Got 0.0"),
        ({"step_size": [0.1, -1.0]}, "step_size must be positive"),
        ({"num_proposals": 0}, "num_proposals"),
        ({"preconditioner": sgld.RMSprop()}, "a fixed D"),
        ({"preconditioner": np.eye(2)}, "Scalar, Diagonal, Dense or LowRank"),
        ({"preconditioner": sgld.Diagonal(np.ones(5))}, "shape"),
    ],
)
def test_wrong_arguments(change, words):
    unit = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    given = {"position": np.ones(2, np.float32), "step_size": 0.1, **change}
    with pytest.raises(sgld.errors.UsageError, match=words):
        sgld.rejection_rate(unit, None, **given)


def test_draws_on_another_scale_are_refused():
    moved = sgld.Posterior(lambda t: -0.5 * t**2, output=lambda t: 2 * t)
    draws = sgld.Draws.of(np.zeros((1, 10), np.float32))
    with pytest.raises(sgld.errors.UsageError, match="another scale"):
        sgld.rejection_rate(moved, None, draws, 0.1)
