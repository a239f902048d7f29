"""Diagonal plus low rank curvature: exact where that is all there is, and never below it elsewhere."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import sgld
from sgld.approximation import low_rank
from sgld.approximation.gradient_noise import Level, marginal_levels, row_noise
from sgld.approximation.known import Known
from sgld.approximation.laplace import laplace_at
from sgld.approximation.low_rank import LowRankLaplace, departure, lowrank_laplace, lowrank_mode
from sgld.core.pytrees import Layout
from sgld.data.memory import InMemory
from sgld.inference.tuning.cost import cheapest_choice
from sgld.inference.tuning.gaussian import from_lowrank
from sgld.model.problem import Problem, Request, Target

D = 1200


def diagonal_and_columns(diagonal, columns, z):
    return -0.5 * jnp.sum(diagonal * z**2) - 0.5 * jnp.sum((z @ columns) ** 2)


def reflected(axis, spectrum, z):
    return -0.5 * jnp.sum(spectrum * (z - 2 * axis * (z @ axis)) ** 2)


def problem_of(log_density, *numbers, d=D):
    numbers = [jnp.asarray(number, jnp.float32) for number in numbers]
    return Problem(Target(sgld.Posterior(Partial(log_density, *numbers)), Layout.of(jnp.zeros(d))))


def white(laplace: LowRankLaplace, J):
    """Eigenvalues of D^{1/2} J D^{1/2}."""
    root = laplace.spread(np.eye(len(J))).T
    return np.linalg.eigvalsh(root.T @ J @ root)


@pytest.fixture(scope="module")
def five():
    """(problem, J, Laplace) of curvature diagonal + rank 5."""
    rng = np.random.default_rng(0)
    diagonal = rng.uniform(0.5, 4, D).astype(np.float32)
    columns = (rng.normal(size=(D, 5)) * [1.4, 0.7, 0.4, 0.3, 0.15]).astype(np.float32)
    problem = problem_of(diagonal_and_columns, diagonal, columns)
    J = np.diag(diagonal.astype(float)) + columns.astype(float) @ columns.T
    mode = rng.normal(size=D) / 10
    return problem, J, lowrank_laplace(problem, mode, 3 * diagonal, rng)


def test_diagonal_plus_rank_five_is_found_exactly(five):
    problem, J, laplace = five
    assert laplace.positive_definite and laplace.departure < 0.01
    np.testing.assert_allclose(white(laplace, J), 1, atol=0.01)
    np.testing.assert_allclose(
        laplace.marginals(problem).variance, np.diag(np.linalg.inv(J)), rtol=0.01
    )
    assert 5 <= laplace.c.size <= 32


def test_spread_pull_whiten_draws_and_metric_belong_to_one_matrix(five, rng):
    problem, J, laplace = five
    v, w = rng.normal(size=(2, 3, D))
    np.testing.assert_allclose(laplace.whiten(laplace.center + laplace.spread(v)), v, atol=1e-8)
    np.testing.assert_allclose(np.sum(laplace.spread(v) * w), np.sum(v * laplace.pull(w)))
    straight = laplace.linear(problem, laplace.center + w)
    np.testing.assert_allclose(straight, laplace.pull(w @ J), atol=2e-3)
    metric = laplace.metric.prepare(problem.layout)
    f32 = lambda x: jnp.asarray(x, jnp.float32)  # noqa: E731
    np.testing.assert_allclose(jax.vmap(metric.noise)(f32(v)), laplace.spread(v), atol=1e-4)
    np.testing.assert_allclose(jax.vmap(metric.pullback)(f32(w)), laplace.pull(w), atol=1e-4)
    np.testing.assert_allclose(
        laplace.tempered(4.0).marginals(problem).variance, 4 * laplace.marginals(problem).variance
    )
    gamma = laplace.marginals(problem).gamma(w)
    np.testing.assert_allclose(gamma, -laplace.spread(laplace.pull(w)))


def test_reported_outputs_have_the_same_marginals(five, rng):
    problem, J, laplace = five
    A = rng.normal(size=(4, D)).astype(np.float32)
    output = Partial(lambda A, z: A @ z, jnp.asarray(A))
    posterior = replace(problem.posterior, output=output)
    reported = replace(problem, target=replace(problem.target, posterior=posterior))
    found, w = laplace.marginals(reported), rng.normal(size=(3, D))
    np.testing.assert_allclose(
        found.variance, np.diag(A @ np.linalg.inv(J) @ A.T.astype(float)), rtol=0.01
    )
    plain = laplace.marginals(problem)
    np.testing.assert_allclose(found.phi(w), plain.phi(w) @ A.T, atol=1e-8)
    np.testing.assert_allclose(found.gamma(w), plain.gamma(w) @ A.T, atol=1e-8)


@pytest.mark.parametrize("power", [1.5, 1.0])
def test_a_broad_spectrum_lies_between_1_and_1_plus_departure(monkeypatch, power):
    monkeypatch.setattr(low_rank, "MAX_LANCZOS_STEPS", 64)
    D, rng = 600, np.random.default_rng(2)
    axis = rng.normal(size=D)
    axis /= np.linalg.norm(axis)
    spectrum = 1 + 1e3 * np.arange(1.0, D + 1) ** -power
    turn = np.eye(D) - 2 * np.outer(axis, axis)
    problem = problem_of(reflected, axis, spectrum, d=D)
    laplace = lowrank_laplace(problem, np.zeros(D), np.ones(D), rng)
    values = white(laplace, turn * spectrum @ turn)
    assert laplace.departure > 0.3  # there is more than low rank
    assert values[0] > 1 - 0.05 and values[-1] < 1 + laplace.departure + 0.05
    assert values[-1] > 0.8 * (1 + laplace.departure)  # and it does not cry wolf
    assert np.all(laplace.marginals(problem).variance > 0.95 * (turn / spectrum @ turn).diagonal())


def test_an_indefinite_curvature_is_found_with_its_direction():
    rng = np.random.default_rng(3)
    axis = rng.normal(size=D)
    axis /= np.linalg.norm(axis)
    spectrum = np.r_[-2.0, rng.uniform(1, 3, D - 1)]
    laplace = lowrank_laplace(problem_of(reflected, axis, spectrum), np.zeros(D), np.ones(D), rng)
    down = np.eye(D)[0] - 2 * axis[0] * axis
    assert not laplace.positive_definite and laplace.departure == np.inf
    assert laplace.smallest == pytest.approx(-2, rel=0.02)
    assert abs(laplace.flattest @ down) > 0.95


def quartic(bend, z):
    return -0.5 * jnp.sum(z**2) - bend * jnp.sum(z**4)


def test_nu_is_0_on_a_gaussian_alone():
    numbers = []
    for bend in (0.0, 0.02):
        problem = problem_of(quartic, bend)
        laplace = lowrank_laplace(problem, np.zeros(D), np.ones(D), np.random.default_rng(1))
        numbers.append(departure(problem, laplace, np.random.default_rng(0)).nu)
    assert numbers[0] < 1e-6
    # (4 b z^3)^2 has mean 16 b^2 15 = .096; the largest of 1200 averages of 128 lies above
    assert 0.096 < numbers[1] < 1.5


N, SMALL = 60, 8
RNG = np.random.default_rng(4)
ROWS = RNG.normal(size=(N, SMALL)).astype(np.float32)
Y = (ROWS @ RNG.normal(size=SMALL) + RNG.normal(size=N)).astype(np.float32)
REGRESSION = sgld.Posterior(
    lambda b: -0.5 * jnp.sum(b**2), lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2
)
SOURCE = InMemory.build((ROWS, Y), N, "reshuffle")
PROBLEM = Problem(Target(REGRESSION, Layout.of(jnp.zeros(SMALL))), SOURCE, jnp.zeros(SMALL))


def both():
    """The dense and the low rank Gaussian of the same small regression."""
    J = np.eye(SMALL) + ROWS.T.astype(float) @ ROWS
    mode = np.linalg.solve(J, ROWS.T.astype(float) @ Y)
    found = lowrank_laplace(PROBLEM, mode, np.diag(J).copy(), np.random.default_rng(0))
    return laplace_at(PROBLEM, mode), found


def test_lowrank_mode_is_the_least_squares_solution():
    mode, value, converged = lowrank_mode(PROBLEM, np.full(SMALL, 3.0))
    dense, _ = both()
    assert converged
    assert np.abs(dense.whiten(mode)).max() < 0.05
    residual = Y - ROWS @ dense.center
    assert value == pytest.approx(
        -0.5 * (residual @ residual + dense.center @ dense.center), rel=1e-5
    )


def first_levels(laplace):
    """The noise of plain and of centred gradients, no row being in every batch."""
    kinds = marginal_levels(PROBLEM, row_noise(PROBLEM, laplace, 0), laplace, 1.0)
    return [next(kind()) for kind in kinds]


def test_the_marginal_noise_is_that_of_the_rows():
    dense, found = both()
    plain, centred = first_levels(found)
    S = dense.covariance
    rows = ROWS.astype(float)
    g = N * rows * (Y - rows @ dense.center)[:, None]
    gamma = S @ np.cov(g, rowvar=False) @ S
    assert plain.variance == pytest.approx(np.max(np.diag(gamma) / np.diag(S)), rel=0.1)
    H = N * rows[:, :, None] * rows[:, None, :] - rows.T @ rows
    spread = np.einsum("nij,jk,nkl->il", H, S, H) / N
    worst = np.max(np.diag(S @ spread @ S) / np.diag(S))
    assert centred.variance == pytest.approx(worst, rel=0.2)
    assert centred.curved == pytest.approx(np.sqrt(np.trace(S @ spread)), rel=0.1)
    assert plain.curved == centred.curved


NO_LIMITS = {"max_steps": None, "max_seconds": None}


def request(**given):
    names = {name: "auto" for name in Request.__dataclass_fields__}
    return Request(**{**names, "tolerance": 0.05, "num_chains": 4, "seed": 0, **NO_LIMITS, **given})


@pytest.mark.parametrize(
    ("gradient", "power"), [(sgld.Minibatch(), 0), (sgld.ControlVariates(), 1)]
)
def test_the_noise_of_a_plan_at_a_temperature(gradient, power):
    """At the mode it does not know the temperature; centred, it is proportional to it."""
    _, found = both()
    levels = list(marginal_levels(PROBLEM, row_noise(PROBLEM, found, 0), found, 1.0)[power]())
    ask = request(gradient=gradient, order="independent", batch_size=15)
    for T in (0.25, 1.0, 4.0):
        plan = from_lowrank(PROBLEM, ask, Known(found, nu=0.0), T)
        level = {level.always: level for level in levels}[
            0 if plan.setup.always is None else len(plan.setup.always)
        ]
        one = level.variance * (1 / 15 - 1 / N)
        assert float(plan.law.noise[0, 0]) == pytest.approx(T**power * one, rel=1e-3)


def curved_by(curved):
    """The levels of rows without noise."""
    return lambda: iter([Level(curved=curved)])


def test_a_step_never_outruns_one_batchs_own_curvature():
    """On h times the curvature of N / n times n rows above 2 the steps diverge, whatever the law."""
    for curved, n in ((100.0, 1), (100.0, 10), (3000.0, 10)):
        levels = (curved_by(curved),) * 2
        choice = cheapest_choice(SOURCE, levels, request(batch_size=n), False, 0.025, 1.0)
        assert choice.longest * curved * (1 / n - 1 / N) <= 1
    given = dict(ask=request(), correctable=False, bias=0.025, T=1.0)
    calm, wild = ((curved_by(curved),) * 2 for curved in (0.0, 300.0))
    assert cheapest_choice(SOURCE, calm, **given).batch_size == 1
    assert cheapest_choice(SOURCE, wild, **given).batch_size > 1


@pytest.mark.slow
def test_a_regression_on_more_columns_than_rows():
    rng, num_data = np.random.default_rng(0), 300
    X = rng.normal(size=(num_data, D)).astype(np.float32)
    y = (X @ rng.normal(size=D) + rng.normal(size=num_data)).astype(np.float32)
    draws = sgld.sample(REGRESSION, (X, y), jnp.zeros(D), progress=False)
    J = np.eye(D) + X.T.astype(float) @ X
    S = np.linalg.inv(J)
    mean, sd = S @ (X.T.astype(float) @ y), np.sqrt(np.diag(S))
    assert draws.verdict.word != "biased"
    np.testing.assert_allclose(draws.sd() / sd, 1, atol=0.07)
    np.testing.assert_allclose((draws.mean() - mean) / sd, 0, atol=0.25)


def test_a_curvature_that_is_not_finite_is_not_definite():
    kink = sgld.Posterior(lambda x: -jnp.sum(jnp.abs(x) ** 1.5) - jnp.sum(x**2) / 2)
    zero = np.zeros(1100)
    problem = Problem(Target(kink, Layout.of(jnp.zeros(1100))))
    found = lowrank_laplace(problem, zero, np.ones(1100), np.random.default_rng(0))
    assert not found.positive_definite and found.smallest == -np.inf


@pytest.mark.slow
def test_a_preconditioner_given_by_hand_is_kept():
    gaussian = sgld.Posterior(lambda x: -jnp.sum(x**2) / 2)
    given = sgld.Diagonal(jnp.full(1100, 0.5))
    draws = sgld.sample(
        gaussian, None, jnp.zeros(1100), preconditioner=given, max_steps=200, progress=False
    )
    np.testing.assert_allclose(draws.plan.setup.preconditioner.array, 0.5)


@pytest.mark.slow
def test_a_second_mode_among_many_parameters_is_noticed():
    def density(x):  # modes at +-6 along the first axis
        return (
            jnp.logaddexp(-0.5 * (x[0] - 6) ** 2, -0.5 * (x[0] + 6) ** 2) - jnp.sum(x[1:] ** 2) / 2
        )

    draws = sgld.sample(
        sgld.Posterior(density),
        None,
        jnp.zeros(1100).at[0].set(5.0),
        max_steps=2000,
        progress=False,
    )
    assert draws.verdict.word != "trusted"
