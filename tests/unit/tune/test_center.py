"""The Gaussian's centre: the mean where the step there makes it a better Gaussian, else the mode."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy.special import digamma

import sgld
from sgld.approximation.laplace import Laplace, laplace_at
from sgld.approximation.low_rank import MAX_MOVED_CENTRE_NU, at_the_mean, lowrank_laplace
from sgld.core.pytrees import Layout
from sgld.errors import UsageError
from sgld.model.problem import Problem, Target


def problem_of(log_density, *numbers, d):
    numbers = [jnp.asarray(number, jnp.float32) for number in numbers]
    return Problem(Target(sgld.Posterior(Partial(log_density, *numbers)), Layout.of(jnp.zeros(d))))


def log_gamma(shape, x):
    """Each coordinate the log of a Gamma(shape) variable: mode log(shape), mean digamma(shape)."""
    return jnp.sum(shape * x - jnp.exp(x))


def quadratic(precision, z):
    return -0.5 * z @ precision @ z


def moved(problem, mode, T=1.0, seed=0):
    at_mode = laplace_at(problem, np.asarray(mode, float))
    found, nu, nu_at_mode = at_the_mean(problem, at_mode, np.random.default_rng(seed), T)
    return at_mode, found, nu, nu_at_mode


@pytest.mark.parametrize("d", [1, 50])
def test_on_a_gaussian_nothing_moves(d):
    # 128 plain draws would move it by .09 sd in each direction
    rng = np.random.default_rng(0)
    A = rng.normal(size=(d, 80))
    problem = problem_of(quadratic, A @ A.T / 80 + np.eye(d), d=d)
    at_mode, found, nu, _ = moved(problem, np.zeros(d))
    assert np.abs(at_mode.whiten(found.center)).max() < 1e-4 and nu < 1e-8


@pytest.mark.parametrize("shape", [3.0, 10.0])
def test_the_step_leads_from_the_mode_to_the_mean(shape):
    """Nine tenths of the way and more; nu falls by more than half."""
    d = 20
    at_mode, found, nu, nu_at_mode = moved(
        problem_of(log_gamma, shape, d=d), np.full(d, np.log(shape))
    )
    way = digamma(shape) - np.log(shape)
    assert abs(np.mean(found.center - np.log(shape)) / way - 1) < 0.1
    assert nu < 0.5 * nu_at_mode and nu <= MAX_MOVED_CENTRE_NU
    np.testing.assert_array_equal(found.curvature, at_mode.curvature)


@pytest.mark.parametrize("shape", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_step_that_would_hurt_is_not_taken(shape, seed):
    """The whole step from log .1 is to -29 or so, where the mean is at -10, and there nu is 1 (flat)."""
    mode, mean = np.log(shape), digamma(shape)
    _, found, nu, nu_at_mode = moved(problem_of(log_gamma, shape, d=1), [mode], seed=seed)
    assert abs(found.center[0] - mean) <= abs(mode - mean)
    assert nu <= nu_at_mode
    if found.center[0] != mode:
        assert nu <= MAX_MOVED_CENTRE_NU


def far_mode(x):
    """A quartic well around 0, and e^-60 times as dense a Gaussian one 20 away."""
    return jnp.logaddexp(-0.5 * x @ x - 0.02 * jnp.sum(x**4), -60 - 0.5 * jnp.sum((x - 20) ** 2))


class Misled(Laplace):
    """A step straight to the far mode."""

    def solve(self, problem, g):
        return np.full(4, -20.0)


def test_a_centre_of_hardly_any_density_is_refused():
    """There nu is 0: the density decides."""
    problem = problem_of(far_mode, d=4)
    misled = Misled(**vars(laplace_at(problem, np.zeros(4))))
    found, nu, nu_at_mode = at_the_mean(problem, misled, np.random.default_rng(0), 1.0)
    assert found is misled and nu == nu_at_mode > 0.01


@pytest.mark.parametrize("T", [0.25, 4.0])
def test_at_a_temperature_it_is_the_mean_of_the_tempered_law(T):
    """p^(1/T) of a log-gamma(a) is one of shape a / T, moved by log(1 / T): its mean is known."""
    shape, d = 12.0, 20
    _, found, *_ = moved(problem_of(log_gamma, shape, d=d), np.full(d, np.log(shape)), T)
    mean = digamma(shape / T) + np.log(T)
    assert np.mean(found.center) == pytest.approx(mean, abs=0.1 * (np.log(shape) - mean))


def test_low_rank_finds_the_same_centre():
    rng = np.random.default_rng(2)
    d, shape = 60, 6.0
    problem = problem_of(log_gamma, shape, d=d)
    mode = np.full(d, np.log(shape))
    dense, *_ = at_the_mean(problem, laplace_at(problem, mode), np.random.default_rng(0), 1.0)
    rough = lowrank_laplace(problem, mode, np.linspace(2, 9, d), rng)
    found, *_ = at_the_mean(problem, rough, np.random.default_rng(0), 1.0)
    g = rng.normal(size=d)
    np.testing.assert_allclose(rough.solve(problem, g), g / shape, rtol=0.05, atol=0.01)
    way = mode - dense.center
    assert np.linalg.norm(found.center - dense.center) < 0.15 * np.linalg.norm(way)


# a regression with unknown sd: log sigma's mean lies far from the joint mode
N, D = 1000, 60
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = (X @ RNG.normal(size=D) / 8 + RNG.normal(size=N)).astype(np.float32)
REGRESSION = sgld.Posterior(
    lambda p: -0.5 * jnp.sum(p["b"] ** 2) * 1e-4,
    lambda p, r: -0.5 * ((r[1] - r[0] @ p["b"]) * jnp.exp(-p["log_sd"])) ** 2 - p["log_sd"],
)
INIT = {"b": jnp.zeros(D), "log_sd": jnp.array(0.0)}


def log_sd_mean():
    """With flat priors (N - D) s^2 / sigma^2 is chi-squared of N - D degrees."""
    residual = Y - X @ np.linalg.lstsq(X, Y, rcond=None)[0]
    rest = float(np.sum(residual.astype(float) ** 2))
    return 0.5 * (np.log(rest) - np.log(2) - digamma((N - D) / 2)), np.sqrt(0.5 / (N - D))


def test_sample_and_laplace_stand_at_the_mean():
    mean, sd = log_sd_mean()
    draws = sgld.sample(REGRESSION, (X, Y), INIT, progress=False)
    known = draws.plan.known
    assert known.nu_at_mode > 0.5 and known.nu < 0.1 and draws.verdict.word == "trusted"
    at_mode = sgld.find_map(REGRESSION, (X, Y), INIT)
    assert (
        float(at_mode.position["log_sd"]) < mean - sd
    )  # the mode, not the mean, is what it returns
    assert float(draws.mean()["log_sd"]) == pytest.approx(mean, abs=0.15 * sd)
    off = {
        centre: abs(
            float(
                sgld.laplace(REGRESSION, (X, Y), at_mode, centre=centre).mean()["log_sd"]
            ) - mean
        ) / sd
        for centre in ("mode", "mean")
    }  # fmt: skip
    assert off["mean"] < 0.2 < 1 < off["mode"]


def test_laplace_says_where_it_stands_and_refuses_another_word():
    at_mean = sgld.laplace(REGRESSION, (X, Y), INIT, centre="mean", num_draws=50)
    assert at_mean.info["centre"] == "mean"
    assert "Gaussian at the mean" in str(at_mean.verdict.reasons[0])
    flat = sgld.Posterior(lambda x: 0.1 * x - jnp.exp(x))
    stayed = sgld.laplace(flat, None, -2.0, centre="mean", num_draws=50)
    assert "stays at the mode" in " ".join(stayed.verdict.reasons)
    with pytest.raises(UsageError, match=r"centre must be .* Got .median."):
        sgld.laplace(REGRESSION, (X, Y), INIT, centre="median")


def test_without_a_temperature_the_centre_is_the_mode():
    draws = sgld.sample(
        sgld.Posterior(lambda x: jnp.sum(3 * x - jnp.exp(x))), None, jnp.zeros(3),
        temperature=0.0, step_size=0.01, num_draws=50, progress=False,
    )  # fmt: skip
    np.testing.assert_allclose(draws.plan.known.gaussian.center, np.log(3), atol=1e-3)
