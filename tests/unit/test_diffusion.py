"""Diffusions against closed forms: moments, orders, densities, chains and roots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from sgld.diffusion import (
    brownian_motion,
    euler_maruyama,
    fokker_planck,
    fokker_planck_residual,
    markov_evolve,
    markov_path,
    newton,
    robbins_monro_root,
    stationary_distribution,
)
from sgld.errors import UsageError
from sgld.samplers.schedules import constant, polynomial, power


def new_key():
    return jax.random.key(0)


def pull(x, t):
    return -x


def root_two(x, t):
    return 2**0.5


# --- stochastic differential equations


def test_one_step_map_for_each_kind_of_diffusion():
    """X_1 = X_0 + f dt + sigma dW, written out, at a time that is not 0."""
    x0, dt = np.array([1.0, -2.0]), 0.25
    M = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, -1.0]])
    drift = lambda x, t: t * x**2  # noqa: E731
    f = 3.0 * x0**2
    for diffusion, factor, m in [
        (lambda x, t: t, 3.0 * np.eye(2), 2),
        (lambda x, t: t * x, np.diag(3.0 * x0), 2),
        (lambda x, t: t * jnp.asarray(M), 3.0 * M, 3),
    ]:
        dW = np.random.default_rng(0).normal(size=(1, m))
        run = dict(step=dt, num_steps=1, start=3.0)
        times, x = euler_maruyama(drift, diffusion, x0, increments=jnp.asarray(dW), **run)
        np.testing.assert_allclose(x[1], x0 + f * dt + factor @ dW[0], rtol=1e-5)
        np.testing.assert_allclose(times, [3.0, 3.25])
        assert euler_maruyama(drift, diffusion, x0, key=new_key(), num_paths=5, **run)[1].shape == (
            5,
            2,
            2,
        )


def test_paths_are_the_single_paths():
    dW = 0.1 * jax.random.normal(new_key(), (3, 10, 2))
    run = dict(step=0.01, num_steps=10)
    x0 = jnp.array([1.0, 2.0])
    together = euler_maruyama(pull, root_two, x0, increments=dW, num_paths=3, **run).values
    for path, increments in zip(together, dW, strict=True):
        alone = euler_maruyama(pull, root_two, x0, increments=increments, **run).values
        np.testing.assert_allclose(path, alone, rtol=1e-6)


@pytest.mark.parametrize("T", [0.5, 4.0])
def test_ornstein_uhlenbeck_moments(T):
    """dX = -X dt + sqrt(2 T) dW: mean x0 exp(-t), variance T (1 - exp(-2 t))."""
    paths = 20_000
    sigma = lambda x, t: (2 * T) ** 0.5  # noqa: E731
    times, x = euler_maruyama(
        pull, sigma, 3.0, step=0.01, num_steps=200, key=new_key(), num_paths=paths
    )
    for k in (50, 100, 200):
        t, sd = float(times[k]), np.std(x[:, k])
        mean, variance = 3 * np.exp(-t), T * (1 - np.exp(-2 * t))
        assert abs(np.mean(x[:, k]) - mean) < 4.5 * sd / paths**0.5 + 0.01 * mean
        assert abs(sd**2 / variance - 1) < 4.5 * (2 / paths) ** 0.5 + 0.01
    # independent paths: no correlation between neighbours
    assert abs(np.corrcoef(x[:-1, -1], x[1:, -1])[0, 1]) < 4.5 / paths**0.5


def test_law_of_the_slides_equation():
    """dX = -grad U dt + sigma dW has law exp(-2 U / sigma^2): U = x^4 / 4, sigma = 1."""
    x = euler_maruyama(
        lambda x, t: -(x**3),
        lambda x, t: 1.0,
        0.0,
        step=0.02,
        num_steps=300,
        key=new_key(),
        num_paths=8000,
    ).values[:, -1]
    grid = np.linspace(-4, 4, 2001)
    density = np.exp(-(grid**4) / 2)
    exact = (grid**2 * density).sum() / density.sum()
    assert abs(np.mean(x**2) / exact - 1) < 4.5 * np.std(x**2) / exact / 8000**0.5 + 0.02


def geometric(levels, paths):
    """Ends of dX = (X / 2) dW at dt = 2^-level, and the exact ones, on the same paths."""
    fine = 2 ** max(levels)
    dW = jax.random.normal(new_key(), (paths, fine)) / fine**0.5
    exact = np.exp(0.5 * np.asarray(dW.sum(axis=1), float) - 0.125)
    ends = []
    for n in (2**level for level in levels):
        coarse = dW.reshape(paths, n, fine // n).sum(axis=2)
        x = euler_maruyama(
            lambda x, t: 0.0, lambda x, t: 0.5 * x, 1.0, step=1 / n, num_steps=n,
            increments=coarse, num_paths=paths,
        ).values  # fmt: skip
        ends.append(np.asarray(x[:, -1], float))
    return ends, exact


def test_strong_order_one_half():
    levels = [4, 5, 6, 7]
    ends, exact = geometric(levels, 2000)
    error = [np.sqrt(np.mean((x - exact) ** 2)) for x in ends]
    slope = np.polyfit(-np.array(levels) * np.log(2), np.log(error), 1)[0]
    assert abs(slope - 0.5) < 0.07


def test_strong_order_one_for_additive_noise():
    levels, fine = [3, 4, 5], 512
    dW = jax.random.normal(new_key(), (500, fine)) / fine**0.5

    def end(n):
        coarse = dW.reshape(500, n, fine // n).sum(axis=2)
        x = euler_maruyama(
            lambda x, t: jnp.sin(x), lambda x, t: 1.0, 1.0,
            step=1 / n, num_steps=n, increments=coarse, num_paths=500,
        )  # fmt: skip
        return np.asarray(x.values[:, -1], float)

    best = end(fine)
    error = [np.sqrt(np.mean((end(2**level) - best) ** 2)) for level in levels]
    slope = np.polyfit(-np.array(levels) * np.log(2), np.log(error), 1)[0]
    assert abs(slope - 1.0) < 0.1


def test_weak_order_one_without_sampling():
    """OU with two-point increments +-sqrt(dt): all paths enumerated, E[X^2] and E[X^4] exact."""
    errors = []
    for n in (4, 8, 12):
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        x = euler_maruyama(
            pull, lambda x, t: 1.0 + 0.5 * t, 1.0, step=1 / n, num_steps=n,
            increments=jnp.asarray(signs / n**0.5, float), num_paths=2**n,
        ).values[:, -1]  # fmt: skip
        # Var X(1) = int_0^1 exp(-2 (1 - s)) (1 + s / 2)^2 ds
        s = (np.arange(10_000) + 0.5) / 10_000
        exact = np.exp(-2.0) + np.mean(np.exp(-2 * (1 - s)) * (1 + s / 2) ** 2)
        errors.append(abs(np.mean(np.asarray(x, float) ** 2) - exact))
    slope = np.polyfit(np.log([1 / 4, 1 / 8, 1 / 12]), np.log(errors), 1)[0]
    assert abs(slope - 1) < 0.15


def test_brownian_covariance_is_the_minimum():
    times = np.array([0.0, 0.1, 0.5, 2.0, 2.0, 7.0])
    paths = 40_000
    W = np.asarray(brownian_motion(times, key=new_key(), shape=(2,), num_paths=paths))
    assert W.shape == (paths, 6, 2)
    for i in (0, 1):
        W_i = W[:, :, i]
        exact = np.minimum.outer(times, times)
        error = np.abs(W_i.T @ W_i / paths - exact)
        sd = np.sqrt((np.outer(times, times) + exact**2) / paths)
        assert (error <= 4.5 * sd + 1e-12).all()
    assert (W[:, 0] == 0).all() and (W[:, 3] == W[:, 4]).all()
    cross = W[:, -1, 0] @ W[:, -1, 1] / paths
    assert abs(cross) < 4.5 * 7 / paths**0.5
    # increments independent of the past, not only uncorrelated: squares too
    assert abs(np.corrcoef(W[:, 1, 0] ** 2, (W[:, 3, 0] - W[:, 1, 0]) ** 2)[0, 1]) < 0.025
    assert brownian_motion([1.0], key=new_key()).shape == (1,)


# --- densities


def test_residual_tells_stationary_densities():
    x = jnp.linspace(-2.5, 2.5, 41)
    cauchy = lambda x: 1 / (1 + x**2)  # noqa: E731
    beside = lambda x: norm.pdf(x, 0.0, 1.1)  # noqa: E731
    # dX = -x dt + sqrt(1 + x^2) dW: 0 = x p + ((1 + x^2) p)' / 2 gives p = (1 + x^2)^-2
    sigma = lambda x, t: jnp.sqrt(1 + x**2)  # noqa: E731
    for drift, diffusion, density, stationary in [
        (pull, root_two, norm.pdf, True),
        (pull, root_two, beside, False),
        (pull, sigma, lambda x: (1 + x**2) ** -2.0, True),
        (pull, sigma, cauchy, False),
        (pull, lambda x, t: 1.0, lambda x: jnp.exp(-(x**2)), True),  # exp(-2 U / sigma^2)
        (pull, lambda x, t: 1.0, norm.pdf, False),
    ]:
        size = float(jnp.abs(fokker_planck_residual(drift, diffusion, density, x)).max())
        assert (size < 5e-6) if stationary else (size > 0.02)
    for beta in (0.5, 3.0):  # Calvin's beta only rescales time
        drift, diffusion = (lambda x, t, b=beta: -x / b), (lambda x, t, b=beta: (2 / b) ** 0.5)
        assert jnp.abs(fokker_planck_residual(drift, diffusion, norm.pdf, x)).max() < 5e-6


def test_residual_value():
    """For p = N(0, s^2) and the OU process: p + x p' + p'', at chosen points."""
    s, x = 1.5, np.array([-1.0, 0.0, 0.5, 2.0])
    p = np.exp(-0.5 * (x / s) ** 2) / (s * np.sqrt(2 * np.pi))
    exact = p + x * (-x / s**2) * p + (x**2 / s**4 - 1 / s**2) * p
    mine = fokker_planck_residual(pull, root_two, lambda x: norm.pdf(x, 0.0, s), x.reshape(2, 2))
    np.testing.assert_allclose(mine, exact.reshape(2, 2), atol=1e-6)


def test_evolution_to_the_closed_form_gaussian():
    """OU from N(1, .3^2): N(exp(-t), 1 + (.09 - 1) exp(-2 t)) at every time."""
    x = np.linspace(-5, 5, 401)
    gaussian = lambda m, v: np.exp(-0.5 * (x - m) ** 2 / v) / np.sqrt(2 * np.pi * v)  # noqa: E731
    error = {}
    for step in (0.004, 0.002):
        times, p = fokker_planck(
            pull, root_two, x, gaussian(1.0, 0.09), step=step, num_steps=round(1 / step)
        )
        assert p.shape == (round(1 / step) + 1, 401) and times[-1] == pytest.approx(1.0)
        np.testing.assert_allclose(p.sum(axis=1), p[0].sum(), rtol=1e-12)
        assert p.min() >= 0
        k = round(0.5 / step)
        exact = gaussian(np.exp(-0.5), 1 - 0.91 * np.exp(-1.0))
        error[step] = np.abs(p[k] - exact).max() / exact.max()
    assert error[0.002] < 4e-3
    assert error[0.004] / error[0.002] == pytest.approx(2.0, rel=0.15)  # first order in time


def test_evolution_reaches_the_stationary_law_of_a_varying_diffusion():
    """dX = -x dt + sqrt(1 + x^2) dW: p proportional to (1 + x^2)^-2; second order in space."""
    error = []
    for n in (101, 201):
        x = np.linspace(-6, 6, n)
        p0 = np.full(n, 1 / n / (x[1] - x[0]))
        p = fokker_planck(pull, lambda x, t: jnp.sqrt(1 + x**2), x, p0, step=5.0, num_steps=40)[1][
            -1
        ]
        exact = (1 + x**2) ** -2.0
        exact /= exact.sum() * (x[1] - x[0])
        error.append(np.abs(p - exact).max())
        assert p.sum() * (x[1] - x[0]) == pytest.approx(1.0, rel=1e-12)
    assert error[1] < 1e-3 and error[0] / error[1] == pytest.approx(4.0, rel=0.1)


def test_evolution_with_time_and_strong_drift():
    """dX = 3 t dt + .5 dW: the mean moves by 1.5 t^2, the variance by .25 t, without wiggles."""
    x = np.linspace(-2, 5, 701)
    p0 = np.exp(-0.5 * x**2 / 0.04)
    p0 /= p0.sum() * 0.01
    _, p = fokker_planck(lambda x, t: 3 * t, lambda x, t: 0.5, x, p0, step=0.002, num_steps=500)
    mean = (p[-1] * x).sum() * 0.01
    assert mean == pytest.approx(1.5, abs=0.01)
    assert (p[-1] * (x - mean) ** 2).sum() * 0.01 == pytest.approx(0.04 + 0.25, rel=0.03)
    # convection only (cell Peclet number 2e4): the mean still moves by f t
    p = fokker_planck(lambda x, t: 100.0, lambda x, t: 0.01, x, p0, step=1e-4, num_steps=100)[1]
    assert (p[-1] * x).sum() * 0.01 == pytest.approx(1.0, abs=1e-3)
    assert p.min() >= 0
    np.testing.assert_allclose(p.sum(axis=1) * 0.01, 1.0, rtol=1e-12)


# --- chains


def random_chain(n, seed=0):
    A = np.random.default_rng(seed).uniform(size=(n, n)) ** 4
    return A / A.sum(axis=1, keepdims=True)


def test_stationary_distribution_is_the_eigenvector_and_the_limit():
    A = random_chain(12)
    pi = stationary_distribution(A)
    values, vectors = np.linalg.eig(A.T)
    first = np.real(vectors[:, np.argmax(np.real(values))])
    np.testing.assert_allclose(pi, first / first.sum(), rtol=1e-9)
    x = np.zeros(12)
    x[3] = 1.0
    np.testing.assert_allclose(markov_evolve(A, x, 200), pi, rtol=1e-9)
    assert abs(markov_evolve(A.T / A.T.sum(axis=1, keepdims=True), x, 200) - pi).max() > 0.01


def test_orientation():
    """From 0 to 1 surely, from 1 to 0 half the time: pi = (1/3, 2/3)."""
    A = [[0.0, 1.0], [0.5, 0.5]]
    np.testing.assert_allclose(stationary_distribution(A), [1 / 3, 2 / 3])
    np.testing.assert_allclose(markov_evolve(A, [1.0, 0.0], 1), [0.0, 1.0])
    np.testing.assert_allclose(markov_evolve(A, np.eye(2), 2), np.linalg.matrix_power(A, 2))


def test_tiny_probabilities_keep_their_relative_accuracy():
    """A birth-death chain has pi_i A_{i,i+1} = pi_{i+1} A_{i+1,i}."""
    up = 1e-9
    A = np.diag([1 - up, 0.5 - up, 0.5]) + np.diag([up] * 2, 1) + np.diag([0.5] * 2, -1)
    pi = stationary_distribution(A)
    np.testing.assert_allclose(pi[1:] / pi[:-1], 2 * up, rtol=1e-12)


def test_transient_states_get_nothing():
    A = [[0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [0.0, 0.6, 0.4]]
    np.testing.assert_allclose(stationary_distribution(A), [0.0, 0.6 / 1.4, 0.8 / 1.4])


def test_ergodic_averages():
    A = random_chain(4, seed=1)
    path = np.asarray(markov_path(A, 2, num_steps=100_000, key=new_key()))
    assert path[0] == 2 and path.shape == (100_001,)
    share = np.bincount(path, minlength=4) / path.size
    np.testing.assert_allclose(share, stationary_distribution(A), atol=0.01)
    moves = np.zeros((4, 4))
    np.add.at(moves, (path[:-1], path[1:]), 1)
    np.testing.assert_allclose(moves / moves.sum(axis=1, keepdims=True), A, atol=0.02)


def test_periodic_chain():
    A = [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5], [1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    with pytest.raises(UsageError, match="periodic with period 3"):
        stationary_distribution(A)
    pi = stationary_distribution(A, periodic=True)
    np.testing.assert_allclose(pi, [1 / 3, 1 / 3, 1 / 6, 1 / 6])
    average = np.mean([markov_evolve(A, [1.0, 0, 0, 0], t) for t in range(300)], axis=0)
    np.testing.assert_allclose(average, pi, atol=1e-12)


@pytest.mark.parametrize(
    "A, message",
    [
        (np.eye(2), "2 recurrent classes (states 0 and 1 never reach each other)"),
        ([[0.2, 0.4, 0.4], [0, 1, 0], [0, 0, 1]], "2 recurrent classes (states 1 and 2"),
        ([[0.0, 1.0], [1.0, 0.0]], "periodic with period 2"),
        ([[0.5, 0.2], [0.5, 0.8]], "Row 0 sums to 0.7; the columns do: transpose A."),
        ([[0.5, 0.6], [0.5, 0.5]], "Row 0 sums to 1.1."),
        ([[1.5, -0.5], [0.5, 0.5]], "Got -0.5 at [0, 1]."),
        ([[np.nan, 1.0], [0.5, 0.5]], "Got nan at [0, 0]."),
        ([1.0, 0.0], "Got shape (2,)."),
    ],
)
def test_chains_that_cannot_be_answered(A, message):
    with pytest.raises(UsageError) as caught:
        stationary_distribution(A)
    assert message in str(caught.value)


# --- roots


def test_newton_converges_quadratically():
    """e_{n+1} / e_n^2 -> g'' / (2 g') at the root."""
    x = np.asarray(newton(lambda x: jnp.exp(x) - 2, 1.5, num_steps=8).iterates, float)
    error = np.abs(x - np.log(2))
    ratio = error[1:4] / error[:3] ** 2
    assert ratio[2] == pytest.approx(0.5, rel=0.05)
    assert error[3] > 1e-4 and error[5] < 1e-6 and error[8] < 1e-6


def test_newton_on_a_vector():
    """A circle and a parabola meet at x = y^2 = (sqrt 5 - 1) / 2."""
    g = lambda z: jnp.array([z[0] ** 2 + z[1] ** 2 - 1, z[0] - z[1] ** 2])  # noqa: E731
    root, iterates = newton(g, [1.0, 1.0], num_steps=8)
    x = (np.sqrt(5) - 1) / 2
    np.testing.assert_allclose(root, [x, np.sqrt(x)], rtol=1e-6)
    assert iterates.shape == (9, 2)
    one_step = newton(
        lambda z: jnp.array([[2.0, 1.0], [0.0, 3.0]]) @ z - 1.0, [7.0, -3.0], num_steps=1
    )
    np.testing.assert_allclose(one_step.root, [1 / 3, 1 / 3], rtol=1e-5)


def test_newton_stays_at_an_exact_root_and_reports_a_singular_one():
    assert newton(lambda x: x**3, 0.0, num_steps=3).root == 0.0
    with pytest.raises(UsageError, match="at step 1: the Jacobian is singular"):
        newton(lambda x: x**2 - 1, 0.0)
    assert jax.vmap(lambda x: newton(lambda x: x**2 - 2, x).root)(jnp.array([1.0, -1.0])).shape == (
        2,
    )


def test_robbins_monro_with_harmonic_steps_is_the_mean():
    """g(x) = x - 1 with h_n = 1 / (n + 1): x_n is exactly the mean of the x_k - y_k."""
    noisy = lambda x, key: x - 1 + jax.random.normal(key)  # noqa: E731
    search = robbins_monro_root(noisy, 5.0, power(1.0, 1.0), num_steps=20_000, key=new_key())
    samples = np.asarray(search.iterates[:-1] - search.observations, float)
    assert search.root == pytest.approx(samples.mean(), abs=1e-5)
    assert abs(search.root - 1) < 4.5 / 20_000**0.5
    assert (
        abs(samples.std() - 1) < 0.03 and abs(np.corrcoef(samples[1:], samples[:-1])[0, 1]) < 0.03
    )
    assert search.iterates.shape == (20_001,) and search.schedule.hold is True
    assert (search.bounded, search.nondecreasing, search.positive_slope) == (None, None, None)


def test_robbins_monro_error_falls_only_where_the_conditions_hold():
    noisy = lambda x, key: x - 1 + jax.random.normal(key)  # noqa: E731

    def spread(schedule):
        run = lambda key: robbins_monro_root(noisy, 1.0, schedule, num_steps=4000, key=key).root  # noqa: E731
        return float(jnp.sqrt(jnp.mean((jax.vmap(run)(jax.random.split(new_key(), 400)) - 1) ** 2)))

    assert spread(polynomial(1.0, 1.0, 0.9)) < 0.05
    # constant h: stationary variance h / (2 - h)
    assert spread(constant(0.2)) == pytest.approx((0.2 / 1.8) ** 0.5, rel=0.15)


def test_conditions_of_the_slides():
    noisy = lambda x, key: jnp.sin(x) + 0.1 * jax.random.normal(key)  # noqa: E731
    run = dict(num_steps=500, key=new_key())
    near = robbins_monro_root(noisy, 1.0, power(1.0, 1.0), g=jnp.sin, **run)
    far = robbins_monro_root(noisy, 3.0, power(1.0, 1.0), g=jnp.sin, **run)
    assert (near.bounded, near.nondecreasing, near.positive_slope) == (None, True, True)
    assert far.nondecreasing is False
    vector = lambda x, key: x - jnp.array([1.0, 2.0]) + jax.random.normal(key, (2,))  # noqa: E731
    search = robbins_monro_root(vector, [0.0, 0.0], power(1.0, 1.0), num_steps=5000, key=new_key())
    np.testing.assert_allclose(search.root, [1.0, 2.0], atol=4.5 / 5000**0.5)


# --- mistakes


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: euler_maruyama(pull, root_two, 0.0, step=0.0, num_steps=1, key=new_key()),
            "step must be",
        ),
        (
            lambda: euler_maruyama(pull, root_two, 0.0, step=0.1, num_steps=0, key=new_key()),
            "num_steps",
        ),
        (
            lambda: euler_maruyama(pull, root_two, 0.0, step=0.1, num_steps=1.5, key=new_key()),
            "num_steps",
        ),
        (lambda: euler_maruyama(pull, root_two, 0.0, step=0.1, num_steps=1), "exactly one of key"),
        (
            lambda: euler_maruyama(
                pull, root_two, 0.0, step=0.1, num_steps=3, increments=jnp.zeros(2)
            ),
            "increments must have shape (3,). Got (2,).",
        ),
        (
            lambda: euler_maruyama(
                pull, lambda x, t: jnp.ones(3), jnp.zeros(2), step=0.1, num_steps=1, key=new_key()
            ),
            "diffusion must return a scalar, a vector (2,)",
        ),
        (
            lambda: euler_maruyama(
                pull, root_two, jnp.zeros((4, 2)), step=0.1, num_steps=1, key=new_key()
            ),
            "use num_paths for several paths",
        ),
        (lambda: brownian_motion([0.5, 0.2], key=new_key()), "ascending order"),
        (lambda: brownian_motion([-0.5, 0.2], key=new_key()), "without negative"),
        (
            lambda: fokker_planck(pull, root_two, [0, 1, 3], np.ones(3), step=0.1, num_steps=1),
            "equally spaced",
        ),
        (
            lambda: fokker_planck(pull, root_two, [0, 1, 2], np.ones(4), step=0.1, num_steps=1),
            "Got (3,) and (4,)",
        ),
        (
            lambda: fokker_planck(
                pull, lambda x, t: x, [-1, 0, 1], np.ones(3), step=0.1, num_steps=1
            ),
            "not 0 on the grid",
        ),
        (lambda: newton(lambda x: jnp.array([x, x]), 1.0), "g must map a scalar to a scalar"),
        (
            lambda: robbins_monro_root(lambda x, k: x, 0.0, -1.0, num_steps=5, key=new_key()),
            "schedule must be positive. Got -1.",
        ),
    ],
)
def test_mistakes_are_answered(call, message):
    with pytest.raises(UsageError) as caught:
        call()
    assert message in str(caught.value)
