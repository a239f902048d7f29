"""Welling & Teh's alpha: against enumeration, closed forms, and along runs."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core import work
from sgld.core.pytrees import Layout
from sgld.data.memory import InMemory
from sgld.diagnostics import gradient_noise
from sgld.diagnostics.gradient_noise import noise_level, rows_for
from sgld.inference import chunk, sink
from sgld.model.problem import Problem, Target
from sgld.results.verdict import Phase

ROWS = 6
X = np.random.default_rng(3).normal(size=(ROWS, 2)).astype(np.float32)
MATRIX = jnp.array([[0.5, 0.2], [0.2, 0.3]])


def log_likelihood(t, x):
    return -0.5 * jnp.sum(jnp.array([1.0, 4.0]) * (x - t) ** 2) - 0.1 * jnp.sum((t * x) ** 2)


POSTERIOR = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2), log_likelihood)


def setting(batch_size, order):
    target = Target(POSTERIOR, Layout.of(jnp.zeros(2)))
    return Problem(target, InMemory.build(X, batch_size, order))


def by_enumeration(problem, gradient, memory, z, n):
    """Covariance over all batches of n rows: with replacement where the order has it."""
    whole = problem.with_batches(n, "replacement")
    batches = itertools.combinations(range(ROWS), n)
    if problem.source.order == "replacement":
        batches = itertools.product(range(ROWS), repeat=n)
    values = [gradient.at(whole, jnp.array(rows, jnp.int32), memory)(z) for rows in batches]
    return np.cov(np.array(values, np.float64), rowvar=False, bias=True)


@pytest.mark.parametrize("order", ["subset", "replacement"])
@pytest.mark.parametrize(
    "gradient", [sgld.Minibatch(), sgld.ControlVariates(jnp.array([0.3, 0.1])), sgld.SVRG(), sgld.SAGA()],
    ids=lambda g: type(g).__name__,
)  # fmt: skip
def test_the_level_is_the_largest_eigenvalue_over_all_batches(gradient, order):
    problem = setting(2, order)
    gradient = gradient.prepare(problem, jnp.zeros(2))
    memory = None
    if gradient.remembers:
        memory = gradient.start(problem, jnp.array([0.4, -0.2]))
    z = jnp.array([-0.5, 0.7])
    covariance = by_enumeration(problem, gradient, memory, z, 2)
    if order == "replacement":  # the level is taken with the divisor m - 1, unbiased for a sample
        covariance *= ROWS / (ROWS - 1)
    P = np.linalg.cholesky(MATRIX)
    expected = np.linalg.eigvalsh(P.T @ covariance @ P)[-1]
    D = sgld.Dense(MATRIX).prepare(problem.layout)
    add = None if memory is None else type(memory)(*(leaf[None] for leaf in memory))
    rows = rows_for(problem, 0, 0)
    level = noise_level(problem, gradient, D, z[None], add, None, jnp.asarray(rows))
    assert level[0] == pytest.approx(expected, rel=2e-4)


def test_the_level_from_a_sample_is_not_inflated():
    # d = 50 equal eigenvalues on 1024 of 20,000 rows: the sample's own largest is 1.5 times too large
    d, N = 50, 20_000
    rows = np.random.default_rng(0).normal(size=(N, d)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2)
    )
    target = Target(posterior, Layout.of(jnp.zeros(d)))
    problem = Problem(target, InMemory.build(rows, 100, "reshuffle"))
    at = jnp.asarray(rows_for(problem, 0, 0))
    D = sgld.Scalar(1.0).prepare(problem.layout)
    level = noise_level(problem, sgld.Minibatch(), D, jnp.zeros((1, d)), None, None, at)
    assert level[0] / (N**2 * (1 / 100 - 1 / N)) == pytest.approx(1.0, abs=0.12)


def test_few_long_rows_are_compressed_to_the_same_level():
    """Few rows of many numbers go by their products with one another: the same eigenvalue."""
    rng = np.random.default_rng(0)
    white = (rng.normal(size=(16, 500)) + 3 * rng.normal(size=500)).astype(np.float32)
    short = gradient_noise._compressed(white)
    assert short.shape == (16, 16)
    for everything in (True, False):
        whole = gradient_noise._largest(white, everything=everything)
        assert float(gradient_noise._largest(short, everything=everything)) == pytest.approx(
            float(whole),
            rel=5e-3,  # the least eigenvalue is rounding, and its root is not small
        )
    assert float(gradient_noise._largest(short, everything=True)) == pytest.approx(
        np.linalg.eigvalsh(np.cov(white, rowvar=False))[-1], rel=5e-3
    )


@pytest.mark.parametrize(
    ("d", "steps", "probes"), [(2, 1000, 16), (50, 100_000, 16), (478_410, 3000, 6), (478_410, 10, 1)]
)  # fmt: skip
def test_probes_cost_a_small_share_of_the_runs_gradients(d, steps, probes):
    source = InMemory.build(np.zeros((50_000, 1), np.float32), 100, "reshuffle")
    zeros = lambda z: jnp.zeros(())  # noqa: E731
    layout = Layout.of(np.zeros(d, np.float32))
    kernel = chunk.Kernel(
        problem := Problem(Target(sgld.Posterior(zeros), layout), source), sgld.Minibatch(), None, None, None, None, None,
        jnp.int32(0), jnp.int32(1), record_gradient=False,
    )  # fmt: skip
    found = sink.Phases(kernel, 0, steps)
    assert found.probes == probes
    cost = found.probes * gradient_noise.probe_cost(problem) * d
    assert found.probes == 1 or cost <= sink.PROBE_SHARE * steps * 100 * d + sink.FREE_PROBE_WORK
    at, step = [], 0
    while step < steps:
        at.append(step)
        step = found.next_after(step)
    assert len(at) <= probes + 2


def test_statistics_of_per_datum_gradients():
    found = sgld.gradient_statistics(POSTERIOR, X, jnp.array([0.1, 0.2]))
    t = np.array([0.1, 0.2])
    scores = np.array([1.0, 4.0]) * (X - t) - 0.2 * t * X**2 - t / ROWS
    np.testing.assert_allclose(found.mean, scores.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.covariance, np.cov(scores, rowvar=False), rtol=1e-4)
    h, n, T = 0.01, 3, 2.0
    largest = np.linalg.eigvals(MATRIX @ found.covariance).real.max()
    D = sgld.Dense(MATRIX).prepare(Layout.of(jnp.zeros(2)))
    alpha = found.alpha(h, n, temperature=T, preconditioner=D)
    eps = 2 * h  # Welling & Teh's
    assert alpha == pytest.approx(eps * ROWS**2 / (4 * n) * largest / T, rel=1e-5)
    assert found.alpha(h, ROWS, replacement=False) == 0
    with pytest.raises(
        sgld.errors.UsageError, match="num_rows must be at most the number of rows, 6"
    ):
        sgld.gradient_statistics(POSTERIOR, X, jnp.zeros(2), num_rows=7)


def test_the_crossing():
    level = np.array([[100.0, 50.0], [100.0, 50.0], [100.0, 50.0]])
    h = np.array([0.2, 0.02, 0.002])
    phase = Phase(np.array([0, 100, 200]), h, np.ones(3), level)
    np.testing.assert_allclose(phase.alpha[:, 0], [10, 1, 0.1])
    # chains' mean: 7.5, .75, .075, which is 1 at the share log 7.5 / log 10 of the way
    assert phase.crossing == 88
    assert "optimisation to step 88, then sampling" in phase.sentence()
    assert "reduced to compensate" in phase.sentence(corrected=True)
    assert Phase(phase.step, h, np.zeros(3), level).crossing is None
    assert Phase(phase.step, h / 1000, np.ones(3), level).crossing == 0
    failed = np.where([[False, True]] * 3, np.nan, level)
    assert Phase(phase.step, h, np.ones(3), failed).crossing == 100  # the other chain's own
    again = Phase.from_dict(Phase(phase.step, h, np.ones(3), failed).to_dict())
    np.testing.assert_array_equal(again.level, failed)


@pytest.mark.parametrize(
    ("sampler", "D"),
    [
        (sgld.SGLD(), sgld.RMSprop()), (sgld.BAOA(), sgld.Scalar(0.1)),
        (sgld.SGHMC(), sgld.Diagonal([0.1, 0.3])), (sgld.SGNHT(), sgld.Scalar(1e-3)),
        (sgld.ReplicaExchange((1.0, 3.0), energy_noise=130.0), sgld.Dense(0.1 * MATRIX)),
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_every_sampler_and_preconditioner_is_recorded_per_chain(sampler, D, monkeypatch):
    h = sgld.polynomial_between(0.1, 1e-4, 4000, 0.55)
    settings = dict(
        step_size=h, sampler=sampler, preconditioner=D, batch_size=2, num_chains=3,
        num_draws=4000, burn_in=500, progress=False, seed=2,
    )  # fmt: skip
    draws = sgld.sample(POSTERIOR, X, jnp.ones(2), **settings)
    phase = draws.phase
    assert phase.level.shape == (len(phase.step), 3) and np.isfinite(phase.level).all()
    assert phase.step[0] == 0 and len(phase.step) >= 8
    np.testing.assert_allclose(phase.step_size[phase.step <= 500], 0.1, rtol=1e-6)
    assert phase.alpha[0].max() > 10 * phase.alpha[-1].max()
    assert "phase: " in str(draws.summary())
    monkeypatch.setattr(work, "PIECE_SECONDS", 1e-9)  # chunks of one block
    again = sgld.sample(POSTERIOR, X, jnp.ones(2), **settings).phase
    np.testing.assert_array_equal(again.level, phase.level)


def test_exact_gradients_have_no_phase():
    draws = sgld.sample(
        POSTERIOR,
        X,
        jnp.ones(2),
        step_size=0.01,
        gradient=sgld.Full(),
        num_draws=10,
        progress=False,
    )
    assert draws.phase is None and "phase" not in str(draws.summary())
