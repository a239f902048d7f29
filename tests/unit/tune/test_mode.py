"""The mode, and how far from Gaussian the posterior is."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize

import sgld
from sgld.approximation.known import NOT_CONVERGED, Known
from sgld.approximation.laplace import laplace_at
from sgld.approximation.low_rank import departure
from sgld.core.pytrees import Layout
from sgld.data.memory import InMemory
from sgld.data.source import ORDERS
from sgld.errors import UsageError
from sgld.inference.tuning.plan import _of_matter
from sgld.model.problem import Problem, Target
from sgld.results.plan import Plan, Setup
from sgld.samplers.gradients.full import Full
from sgld.samplers.hmc import HMC

X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
Y = (np.random.default_rng(1).random(60) < 1 / (1 + np.exp(-X[:, 0]))).astype(np.float32)
QUADRATIC = sgld.Posterior(
    lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2)
)
TRUTH = X.astype(float).sum(0) / 61


def log_likelihood(t, row):
    x, y = row
    eta = jnp.dot(x, t)
    return y * eta - jnp.logaddexp(0.0, eta)


LOGISTIC = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2), log_likelihood)


def test_full_batch_sgd_is_gradient_descent():
    start, h = np.array([1.0, -1.0], np.float32), 0.003
    mode = sgld.find_map(QUADRATIC, X, start, optimizer=optax.sgd(h), num_steps=40, record=1)
    path = TRUTH + (1 - 61 * h) ** np.arange(41)[:, None] * (start - TRUTH)
    np.testing.assert_allclose(mode.path, path, atol=1e-5)
    assert mode.num_steps == 40


@pytest.mark.parametrize("order", ORDERS)
def test_minibatch_sgd_ends_near_the_mode(order):
    schedule = optax.exponential_decay(0.01, 500, 0.2)
    mode = sgld.find_map(
        QUADRATIC, X, np.zeros(2, np.float32), optimizer=optax.sgd(schedule), batch_size=7,
        order=order, num_steps=3000,
    )  # fmt: skip
    np.testing.assert_allclose(mode.position, TRUTH, atol=0.02)


def test_minibatch_steps_follow_the_order():
    h, start = 0.002, np.zeros(2, np.float32)
    mode = sgld.find_map(
        QUADRATIC, X, start, optimizer=optax.sgd(h), batch_size=7, order="reshuffle",
        num_steps=30, record=1, seed=4,
    )  # fmt: skip
    source = InMemory.build(X, 7, "reshuffle", 4)
    q = start.astype(float)
    for k, entry in enumerate(source.chunk((4, 0), 0, 30)):
        np.testing.assert_allclose(mode.path[k], q, atol=1e-5)
        batch = source.fetch(jnp.asarray(entry))
        w = np.ones(source.block_size) if batch.weight is None else np.asarray(batch.weight)
        q = q + h * (-q + source.num_blocks * (w[:, None] * (np.asarray(batch.rows) - q)).sum(0))


def test_newton_finds_scipys_mode():
    def loss(t):
        eta = X.astype(float) @ t
        return 0.5 * t @ t - np.sum(Y * eta - np.logaddexp(0, eta))

    exact = scipy.optimize.minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-10})
    mode = sgld.find_map(LOGISTIC, (X, Y), np.array([3.0, -3.0], np.float32))
    assert mode.converged and mode.num_steps < 15
    np.testing.assert_allclose(mode.position, exact.x, atol=1e-4)
    assert mode.log_density == pytest.approx(-exact.fun, rel=1e-5)


def test_newton_takes_one_step_on_a_quadratic():
    mode = sgld.find_map(QUADRATIC, X, np.array([30.0, -10.0], np.float32))
    assert mode.converged and mode.num_steps <= 3
    np.testing.assert_allclose(mode.position, TRUTH, atol=1e-5)


def test_wrong_arguments():
    with pytest.raises(UsageError, match="optax"):
        sgld.find_map(QUADRATIC, X, jnp.zeros(2), optimizer="sgd")
    with pytest.raises(UsageError, match="init is missing"):
        sgld.find_map(QUADRATIC, X)
    with pytest.raises(UsageError, match="batch_size"):
        sgld.find_map(QUADRATIC, X, jnp.zeros(2), batch_size=61)


@pytest.mark.parametrize("T", [0.5, 1.0, 4.0])
def test_nonlinearity_is_0_on_a_gaussian_and_not_on_a_logistic(T):
    numbers = []
    for posterior, data in ((QUADRATIC, X), (LOGISTIC, (X, Y))):
        target = Target(posterior, Layout.of(jnp.zeros(2)))
        source = InMemory.build(data, 60, "reshuffle")
        mode = sgld.find_map(posterior, data, jnp.zeros(2)).z
        laplace = laplace_at(Problem(target, source), mode)
        found = departure(Problem(target, source), laplace, np.random.default_rng(0), T)
        numbers.append(found.nu)
    assert numbers[0] < 1e-6 and 1e-3 < numbers[1] < 1


def test_laplace_of_a_gaussian():
    target = Target(QUADRATIC, Layout.of(jnp.zeros(2)))
    laplace = laplace_at(Problem(target, InMemory.build(X, 60, "reshuffle")), TRUTH)
    np.testing.assert_allclose(laplace.curvature, 61 * np.eye(2), rtol=1e-5)
    np.testing.assert_allclose(laplace.covariance, np.eye(2) / 61, rtol=1e-5)
    saddle = sgld.Posterior(lambda t: t[0] ** 2 - t[1] ** 2)
    problem = Problem(Target(saddle, Layout.of(jnp.zeros(2))))
    assert not laplace_at(problem, np.zeros(2)).positive_definite


@pytest.mark.parametrize(
    ("nu", "exact", "told"), [(0.5, False, True), (0.01, False, False), (0.5, True, False)]
)
def test_a_search_that_did_not_converge_is_told_where_the_run_goes_by_it(nu, exact, told):
    known = Known(nu=nu, notes=(NOT_CONVERGED, "another."))
    sampler, gradient = (HMC(), Full()) if exact else (sgld.SGLD(None), Full())
    plan = Plan(Setup(sampler, gradient, sgld.Scalar(1.0), sgld.constant(0.1)), known)
    assert _of_matter(known, plan) == ((NOT_CONVERGED,) if told else ()) + ("another.",)


def test_the_plan_of_a_posterior_far_from_gaussian_recommends_nothing():
    """Exact chains may be run then, and be `trusted`; remedies are the verdict's, which knows."""
    banana = sgld.Posterior(lambda t: -0.5 * t[0] ** 2 / 9 - 0.5 * (t[1] - t[0] ** 2) ** 2)
    draws = sgld.sample(banana, None, jnp.zeros(2), progress=False)
    told = " ".join(draws.plan.notes)
    assert draws.verdict.word == "trusted"
    assert "far from Gaussian" in told or "curvature at the mode" in told
    assert "NUTS" not in told and "sgld.reference" not in told and "inf" not in told


def test_nu_that_is_not_finite_is_said_in_words():
    (note,) = Known(nu=float("inf")).telling().notes
    assert "are not finite" in note and "inf)" not in note
