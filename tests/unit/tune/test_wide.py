"""Tables of many columns: one curvature for several steps, all rows for all chains together, draws of every step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation import mode as search
from sgld.inference import chunk
from sgld.inference.tuning import cost
from sgld.model import sums
from sgld.model.cost import row_cost
from sgld.model.prepare import prepare
from sgld.model.problem import Request
from sgld.samplers.gradients.full import goes_by_tiles

N, D = 3000, 150
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D)).astype(np.float32)
Y = (RNG.random(N) < 1 / (1 + np.exp(-X @ RNG.standard_normal(D) / np.sqrt(D)))).astype(np.float32)
MODEL = sgld.Posterior(
    lambda b: -0.5 * jnp.sum(b**2), lambda b, row: row[1] * (row[0] @ b) - jax.nn.softplus(row[0] @ b)
)  # fmt: skip
PROBLEM = prepare(MODEL, (X, Y), jnp.zeros(D))


def request(**given):
    names = {name: "auto" for name in Request.__dataclass_fields__}
    return Request(
        **{**names, "tolerance": 0.05, "seed": 0, "max_steps": None, "max_seconds": None, **given}
    )


def newton(start, y=Y):
    """The mode and its curvature in float64."""
    b, x = np.asarray(start, float), X.astype(float)
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ b))
        J = (x * (p * (1 - p))[:, None]).T @ x + np.eye(D)
        b = b + np.linalg.solve(J, x.T @ (y - p) - b)
    return b, J


@pytest.fixture
def as_if_large(monkeypatch):
    monkeypatch.setattr("sgld.samplers.gradients.full.MAX_SHARED_NUMBERS", N * D // 4)
    monkeypatch.setattr(sums, "MAX_SHARED_NUMBERS", N * D // 4)


def test_one_curvature_serves_for_several_steps_to_the_same_mode(monkeypatch):
    taken = []
    curvature = search.sums.curvature
    monkeypatch.setattr(
        search.sums, "curvature", lambda *given: taken.append(1) or curvature(*given)
    )
    z, _, steps, converged = search.newton_mode(PROBLEM, PROBLEM.start)
    assert converged and steps == len(taken) < 4
    mode, J = newton(z)
    assert np.sqrt((z - mode) @ J @ (z - mode)) < 0.01


def test_a_curvature_that_no_longer_serves_is_taken_anew(monkeypatch):
    """Of coefficients that decide most rows: at the mode the curvature is a fraction of that at the start."""
    large = RNG.standard_normal(D) * 4 / np.sqrt(D)
    y = (RNG.random(N) < 1 / (1 + np.exp(-X @ large))).astype(np.float32)
    taken = []
    gradient = search.sums.value_and_gradient
    monkeypatch.setattr(
        search.sums, "value_and_gradient", lambda *given: taken.append(1) or gradient(*given)
    )
    problem = prepare(MODEL, (X, y), jnp.zeros(D))
    z, _, steps, converged = search.newton_mode(problem, problem.start)
    assert converged and 3 <= steps <= 5 and len(taken) <= 7 * steps
    mode, J = newton(np.zeros(D), y)
    assert np.sqrt((z - mode) @ J @ (z - mode)) < 0.01


def test_the_search_leaves_a_saddle_alone():
    """On it no damping finds a move, and 200 steps would have been 400 factors."""
    two = sgld.Posterior(
        lambda x: (
            jnp.logaddexp(-0.5 * (x[0] - 6) ** 2, -0.5 * (x[0] + 6) ** 2)
            - 0.5 * jnp.sum(x[1:] ** 2)
        )
    )
    problem = prepare(two, None, jnp.ones(3))
    z, _, steps, converged = search.newton_mode(problem, np.array([0.0, 1e-31, 0.0]), 50)
    assert not converged and steps == 1
    z, _, steps, converged = search.newton_mode(problem, np.array([1e-3, 1e-31, 0.0]), 200)
    assert converged and abs(z[0] - 6) < 1e-3


@pytest.mark.usefixtures("as_if_large")
def test_a_row_of_a_table_that_is_read_together_costs_less():
    own, fetched = row_cost(PROBLEM), cost.FETCH_SECONDS * (D + 1)
    four = cost.together(PROBLEM, request(), 1.0, 0.025)
    assert four.chains == 0 and four.step == cost.MAX_CORRECTED_STEP
    assert four.row == pytest.approx((own + fetched / 4) / (own + fetched))
    assert cost.together(PROBLEM, request(num_chains=2), 1.0, 0.025).row > four.row


@pytest.mark.usefixtures("as_if_large")
@pytest.mark.parametrize("nu, step", [(0.3, 0.3), (0.04, 0.5), (1e-6, 0.8), (0.0, 0.8)])
def test_the_step_of_exact_gradients_leaves_half_of_the_tolerance(nu, step):
    for bias in (0.025, 0.1):
        assert cost.together(PROBLEM, request(), nu, bias).step == pytest.approx(step)


def test_a_dense_curvature_beyond_1000_parameters_is_one_of_seconds(monkeypatch):
    monkeypatch.setattr(search, "MAX_NEWTON_SECONDS", 5.0)
    row = lambda b, x: -0.5 * (x @ b) ** 2  # noqa: E731
    wide = sgld.Posterior(lambda b: -0.5 * jnp.sum(b**2), row)
    few, many = (
        prepare(wide, np.zeros((n, 1500), np.float32), jnp.zeros(1500)) for n in (100, 10**5)
    )
    assert search.dense_pays(few) and not search.dense_pays(many) and search.dense_pays(PROBLEM)
    cubes = sgld.Posterior(lambda b: -jnp.sum(jnp.linalg.cholesky(jnp.outer(b, b) + jnp.eye(1500))))
    assert not search.dense_pays(prepare(cubes, None, jnp.ones(1500)))


@pytest.mark.usefixtures("as_if_large")
def test_many_chains_are_taken_of_what_is_left_open_and_nearly_gaussian():
    def chains(nu=0.1, **given):
        return cost.together(PROBLEM, request(**given), nu, 0.025).chains

    assert chains() == chains(sampler=sgld.SGLD(None)) == cost.SHARING_CHAINS
    assert chains(nu=0.3) == chains(sampler=sgld.BAOA()) == 0
    for name in ("num_chains", "num_draws", "burn_in", "thin", "max_steps", "max_seconds"):
        assert chains(**{name: 10}) == 0, name


@pytest.mark.usefixtures("as_if_large")
def test_by_default_64_chains_take_all_rows_and_every_step_is_a_draw():
    draws = sgld.sample(MODEL, (X, Y), jnp.zeros(D), progress=False)
    setup = draws.plan.setup
    assert isinstance(setup.gradient, sgld.Full)
    assert (setup.num_chains, setup.num_draws, setup.thin) == (64, 62, 1)
    assert 0.7 < draws.info["plan"]["step_size"] < 0.801
    assert draws.plan.notes == (
        "every step uses all 3,000 rows because cheaper batches are too noisy.",
    )
    assert draws.verdict.word == "trusted"
    _, J = newton(np.zeros(D))
    # a Gaussian with its centre at the mode is off by more than a few parts in a hundred of 20 rows a parameter
    ratio = np.asarray(draws.sd()) / np.sqrt(np.diag(np.linalg.inv(J)))
    assert 0.95 < np.median(ratio) < 1.08


@pytest.mark.usefixtures("as_if_large")
def test_chains_and_draws_that_are_asked_for_are_made():
    draws = sgld.sample(
        MODEL, (X, Y), jnp.zeros(D), gradient=sgld.Full(), num_chains=2, num_draws=60, progress=False
    )  # fmt: skip
    assert (draws.num_chains, draws.num_draws) == (2, 60)


@pytest.mark.usefixtures("as_if_large")
def test_all_rows_by_tiles_are_all_rows():
    zs = jnp.asarray(RNG.normal(size=(3, D)), jnp.float32)
    gradient = jax.vmap(lambda z: sgld.Full().at(PROBLEM, None)(z))
    assert goes_by_tiles(sgld.Full(), PROBLEM)
    found = jax.jit(gradient)(zs)
    exact = [X.T.astype(float) @ (Y - 1 / (1 + np.exp(-X.astype(float) @ z))) - z for z in np.asarray(zs, float)]  # fmt: skip
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("as_if_large")
def test_a_run_of_long_steps_is_of_few_blocks_more_than_it_needs():
    kernel = chunk.Kernel(PROBLEM, sgld.Full(), *[None] * 5, None, None, False)
    assert kernel.block == chunk.MAX_LONG_BLOCK_STEPS
    batches = chunk.Kernel(PROBLEM, sgld.Minibatch(), *[None] * 5, None, None, False)
    assert batches.block == chunk.block_steps(D) > chunk.MAX_LONG_BLOCK_STEPS
