"""Plans from chains on some rows that stand for all; and those from optimisers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation import mode
from sgld.approximation.known import Known
from sgld.approximation.laplace import laplace_at
from sgld.approximation.mode import newton_mode
from sgld.core.pytrees import Layout
from sgld.data.memory import InMemory
from sgld.inference.tuning import survey
from sgld.inference.tuning.ensemble import matched_step
from sgld.inference.tuning.exact_chains import MAX_GUIDE_ROWS, from_chains
from sgld.inference.tuning.network import from_optimisers
from sgld.inference.tuning.plan import make_plan
from sgld.inference.tuning.surrogate import on_sample as some_rows
from sgld.model.problem import Problem, Request, Target

N, D = 4000, 2
RNG = np.random.default_rng(6)
X = (RNG.normal(size=(N, D)) @ np.array([[1.0, 0.8], [0.0, 0.6]])).astype(np.float32)
Y = (X @ [1.0, -0.5] + RNG.normal(size=N)).astype(np.float32)
POSTERIOR = sgld.Posterior(
    lambda b: -0.5 * jnp.sum(b**2) / 100, lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2
)
TARGET = Target(POSTERIOR, Layout.of(jnp.zeros(D)))
SOURCE = InMemory.build((X, Y), N, "reshuffle")
PRECISION = X.T.astype(float) @ X + np.eye(D) / 100
MEAN, SD = (
    np.linalg.solve(PRECISION, X.T.astype(float) @ Y),
    np.sqrt(np.diag(np.linalg.inv(PRECISION))),
)
PROBLEM = Problem(TARGET, SOURCE, MEAN)


NO_LIMITS = {"max_steps": None, "max_seconds": None}


def request(**given):
    names = {name: "auto" for name in Request.__dataclass_fields__}
    return Request(**{**names, "tolerance": 0.05, "num_chains": 4, "seed": 0, **NO_LIMITS, **given})


@pytest.fixture(scope="module")
def on_sample():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sgld.inference.tuning.exact_chains.EXACT_SECONDS", 0.0)
        return some_plan()


def some_plan():
    plan = from_chains(PROBLEM, request(), Known(), 1.0, first=True)
    assert plan is not None
    return plan


def test_some_rows_stand_for_all(on_sample):
    matrix = np.asarray(on_sample.setup.preconditioner.matrix, float)
    np.testing.assert_allclose(np.sqrt(np.diag(matrix)) / SD, 1, atol=0.25)
    correlation = -PRECISION[0, 1] / np.sqrt(PRECISION[0, 0] * PRECISION[1, 1])
    assert matrix[0, 1] / np.sqrt(matrix[0, 0] * matrix[1, 1]) == pytest.approx(
        correlation, abs=0.15
    )
    assert "2000 of 4000 rows" in on_sample.notes[0]
    # the centre of half of the rows is about one sd off
    np.testing.assert_allclose((on_sample.setup.starts.mean(0) - MEAN) / SD, 0, atol=4)
    assert on_sample.num_data == N and on_sample.setup.order == "independent"
    assert isinstance(on_sample.setup.gradient, sgld.ControlVariates)
    assert 0 < float(on_sample.setup.step_size(0)) <= 0.1 + 1e-6


def test_some_rows_only_at_first_and_nothing_given_by_hand(monkeypatch):
    for ask, T in ((request(sampler=sgld.SGLD()), 1.0), (request(), 2.0)):
        assert from_chains(PROBLEM, ask, Known(), T, first=True) is None
    monkeypatch.setattr("sgld.inference.tuning.exact_chains.EXACT_SECONDS", 0.0)
    assert from_chains(PROBLEM, request(), Known(), 1.0, first=False) is None


def test_scaled_rows_have_the_scaled_density_and_compile_once():
    apart = np.array([5, 3000])
    some, z = some_rows(PROBLEM, apart), jnp.array([0.3, -0.2])
    (x, y), weight = some.source.take(np.arange(some.num_data))
    each = -0.5 * (y - x @ z) ** 2
    assert len(y) == MAX_GUIDE_ROWS
    share = (N - 2) / (MAX_GUIDE_ROWS - 2)
    np.testing.assert_allclose(weight, [1, 1, *[share] * (MAX_GUIDE_ROWS - 2)], rtol=1e-6)
    np.testing.assert_array_equal(y[:2], PROBLEM.source.take(apart)[1])
    assert len(np.unique(y)) == len(y)
    found = some.log_likelihood(z, some.source.take(np.arange(some.num_data)))
    expected = float(each[:2].sum() + share * each[2:].sum())
    assert float(found) == pytest.approx(expected, rel=1e-5)
    traces = []

    @jax.jit
    def density(problem, z):
        traces.append(1)
        return problem.log_likelihood(z, problem.source.take(jnp.arange(problem.num_data)))

    longer = InMemory.build((np.tile(X, (2, 1)), np.tile(Y, 2)), 2 * N, "reshuffle")
    values = [
        float(density(some_rows(problem, apart), z))
        for problem in (PROBLEM, Problem(TARGET, longer, MEAN))
    ]
    assert values[1] == pytest.approx(2 * values[0], rel=0.2)
    assert len(traces) == 1


def test_a_step_that_is_rejected_as_a_gaussians_is():
    """On a Gaussian 4 b itself, half of it for half the bias; less where the scale changes."""
    few = PROBLEM.first(50)
    factor = np.linalg.cholesky(np.linalg.inv(PRECISION * 50 / N))
    D = sgld.Dense(factor @ factor.T, factor).prepare(PROBLEM.layout)
    rng = np.random.default_rng(0)
    mode = newton_mode(few, MEAN)[0]
    zs = mode + rng.standard_normal((256, D.matrix.shape[0])) @ factor.T
    steps = [matched_step(few, zs, D, bias, 0) for bias in (0.025, 0.0125)]
    np.testing.assert_allclose(steps, [0.1, 0.05], rtol=0.25)
    assert max(steps) <= 0.1
    v = 3 * rng.standard_normal(256)
    neck = np.stack([v, np.exp(v / 2) * rng.standard_normal(256)], axis=1)
    funnel = lambda z: -(z[0] ** 2) / 18 - 0.5 * z[1] ** 2 * jnp.exp(-z[0]) - z[0] / 2  # noqa: E731
    neal = Problem(Target(sgld.Posterior(funnel), Layout.of(jnp.zeros(2))))
    unit = sgld.Dense(np.eye(2)).prepare(neal.layout)
    assert matched_step(neal, neck, unit, 0.025, 0) < 0.02


def test_every_chain_is_optimised_from_a_start_of_its_own(monkeypatch):
    monkeypatch.setattr("sgld.inference.tuning.network.MIN_OPTIMISER_STEPS", 20)
    wells = Problem(
        Target(
            sgld.Posterior(lambda t: -jnp.sum((t["w"] ** 2 - 1) ** 2)),
            Layout.of({"w": jnp.zeros(4)}),
        ),
        start=np.array([0.9, -1.1, 1.0, -0.8]),
    )
    one, same, other = (
        from_optimisers(wells, request(seed=seed), Known()).setup.starts for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(one, same)
    assert one.shape == (4, 4) and len(np.unique(one.round(4), axis=0)) == 4
    np.testing.assert_array_equal(one[0], other[0])  # the first chain begins where it was told to
    assert not np.allclose(one[1:], other[1:])


def test_many_rows_are_searched_from_the_mode_of_some(monkeypatch):
    monkeypatch.setattr(survey, "PILOT_ROWS", 300)
    seen = []

    def watched(problem, start, *rest):
        seen.append((problem.num_data, np.asarray(start)))
        return newton_mode(problem, start, *rest)

    for module in (survey, mode):
        monkeypatch.setattr(module, "newton_mode", watched)
    far = Problem(TARGET, SOURCE, np.full(D, 30.0))
    plan = make_plan(far, request(temperature=1.0))
    assert [rows for rows, _ in seen][:2] == [300, N]
    np.testing.assert_array_equal(seen[0][1], 30)
    half = laplace_at(PROBLEM.first(300), seen[1][1])
    assert np.abs(half.whiten(MEAN)).max() < 5
    np.testing.assert_allclose((plan.known.gaussian.center - MEAN) / SD, 0, atol=0.01)
