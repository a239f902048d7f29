"""The noise of rows over all of them, and the rows that are put into every batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation import gradient_noise as of_rows
from sgld.approximation.gradient_noise import Level, dense_levels, row_noise
from sgld.approximation.laplace import laplace_at
from sgld.core.pytrees import Layout
from sgld.data.memory import AlwaysIn, InMemory
from sgld.diagnostics import evidence
from sgld.diagnostics.gradient_noise import noise_level
from sgld.errors import UsageError
from sgld.inference.tuning.cost import cheapest_choice
from sgld.model import sums as rows_of_a_problem
from sgld.model.problem import Problem, Request, Target

N, D, PRIOR = 60, 2, 4.0
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D)) @ np.array([[1.0, 0.7], [0.0, 0.5]])
Y = X @ [1.0, -0.5] + 2 * RNG.normal(size=N)
POSTERIOR = sgld.Posterior(
    lambda b: -0.5 * PRIOR * jnp.sum(b**2), lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2
)


def problem_of(X, Y):
    source = InMemory.of((X.astype(np.float32), Y.astype(np.float32)))
    return Problem(Target(POSTERIOR, Layout.of(jnp.zeros(X.shape[1]))), source)


def rows_of(problem):
    return [np.asarray(leaf, float) for leaf in problem.source.take(np.arange(problem.num_data))]


def mode_of(X, Y):
    return np.linalg.solve(X.T @ X + PRIOR * np.eye(X.shape[1]), X.T @ Y)


PROBLEM, MODE = problem_of(X, Y), mode_of(X, Y)
LAPLACE = laplace_at(PROBLEM, MODE)


def outer(g):
    return g.T @ g


def test_the_noise_of_one_row_plain_and_centred():
    survey = row_noise(PROBLEM, LAPLACE, 0)
    g = N * X * (Y - X @ MODE)[:, None]
    plain, centred = (next(kind.without(outer))[2] for kind in survey[:2])
    exact = g.T @ g / N
    np.testing.assert_allclose(plain, exact, rtol=0.1, atol=0.05 * np.trace(exact))
    H = N * X[:, :, None] * X[:, None, :] - X.T @ X
    exact = np.einsum("nij,jk,nlk->il", H, LAPLACE.covariance, H) / N
    np.testing.assert_allclose(centred, exact, rtol=0.15, atol=0.05 * np.trace(exact))
    sizes = np.linalg.norm(g @ LAPLACE.factor, axis=1)
    np.testing.assert_allclose(survey.at_center, [np.mean(sizes**2), np.var(sizes**2)], rtol=1e-3)
    count = len(survey.plain.numbers)
    np.testing.assert_allclose(survey.plain.size, -np.sort(-sizes)[: count + 1], rtol=1e-3)


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_rows_are_looked_at_in_pieces_of_any_size(rows, monkeypatch):
    """A last piece is short, a last group too: every row is looked at once."""
    whole = row_noise(PROBLEM, LAPLACE, 0)
    monkeypatch.setattr(rows_of_a_problem, "GRADIENT_NUMBERS", rows * 4 * 3)
    monkeypatch.setattr(rows_of_a_problem, "HOST_ROWS_AT_ONCE", 5 * rows)
    found = row_noise(PROBLEM, LAPLACE, 0)
    np.testing.assert_allclose(found.at_center, whole.at_center, rtol=1e-5)
    for kind in (0, 1):
        np.testing.assert_allclose(found[kind].size, whole[kind].size, rtol=1e-4)
        assert len(set(found[kind].numbers)) == len(found[kind].numbers)


@pytest.fixture(scope="module")
def heavy():
    """400 rows whose first covariate has a heavy tail, and their survey."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.exp(2 * rng.standard_normal(400)), rng.standard_normal((400, 2))])
    Y = X @ [0.5, 1.0, -1.0] + rng.standard_normal(400)
    problem = problem_of(X, Y)
    laplace = laplace_at(problem, mode_of(X, Y))
    return problem, laplace, row_noise(problem, laplace, 0)


def test_the_noise_that_is_left(heavy):
    """Without the m rows of the largest gradients, against all the others."""
    problem, laplace, survey = heavy
    X, Y = rows_of(problem)
    g = 400 * X * (Y - X @ laplace.center)[:, None]
    size = np.linalg.norm(g @ laplace.factor, axis=1)
    order = np.argsort(-size)
    np.testing.assert_array_equal(survey.plain.numbers[:16], order[:16])
    for m, largest, found in survey.plain.without(outer):
        left = order[m:]
        assert largest == pytest.approx(size[left[0]], rel=1e-3)
        exact = outer(g[left]) / 400
        np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-3 * np.trace(exact))
    counts = [m for m, *_ in survey.plain.without(outer)]
    assert counts == [0, 1, 2, 4, 8, 16, 32, 64]


def test_a_projection_ranks_the_rows_of_many_parameters(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 40)) * rng.permutation(np.geomspace(0.1, 10, 300))[:, None]
    problem = problem_of(X, X @ np.ones(40) + rng.standard_normal(300))
    laplace = laplace_at(problem, np.ones(40))
    found = row_noise(problem, laplace, 0)
    monkeypatch.setattr(of_rows, "MAX_PROJECTED_DIM", 40)
    whole = row_noise(problem, laplace, 0)
    shared = set(found.centred.numbers[:30]) & set(whole.centred.numbers[:50])
    assert len(shared) > 24
    assert found.at_center[0] == pytest.approx(whole.at_center[0], rel=0.2)


def request(**given):
    names = {name: "auto" for name in Request.__dataclass_fields__}
    return Request(**{**names, "tolerance": 0.05, "num_chains": 4, "seed": 0, **given})


def chosen(levels, **given):
    source = InMemory.of(np.zeros(100_000, np.float32))
    kinds = (lambda: iter([Level(variance=1e9)]), lambda: iter(levels))
    return cheapest_choice(source, kinds, request(**given), True, 0.025, 1.0)


def test_rows_are_put_into_every_batch_where_it_pays():
    # a row that holds all that is known of a parameter has the variance N; the rest 10
    tame = Level(variance=10.0)
    rare = [Level(variance=1e5), Level(1, 10.0), Level(2, 10.0), Level(4, 9.9)]
    assert chosen([tame, Level(1, 9.9), Level(2, 9.8)]).always == 0
    choice = chosen(rare)
    assert choice.always == 1 and choice.batch_size < 100
    assert choice.cost < chosen(rare[:1]).cost / 3
    # and costs a row a step
    ratio = chosen(rare, batch_size=8).cost / chosen([tame], batch_size=8).cost
    assert ratio == pytest.approx((8 + 1 + 32) / (8 + 32), rel=1e-6)
    # each halving of the noise by as many rows again: until they cost as much as those drawn
    tail = [Level(variance=4e5)] + [Level(2**k, 4e5 / 4**k) for k in range(11)]
    choice = chosen(tail)
    assert 64 <= choice.always <= 512 and choice.batch_size <= 4 * choice.always
    assert chosen(tail, batch_size=300).batch_size == 300


def test_a_row_that_may_throw_a_chain_shortens_its_steps_or_is_always_in():
    throwing = [Level(variance=1.0, size=5e4), Level(1, 1.0, 10.0)]
    assert chosen(throwing).always == 1
    alone = chosen(throwing[:1], batch_size=100)
    assert alone.longest * 5e4 / 100 == pytest.approx(3.0)


def test_where_all_rows_matter_every_step_takes_them():
    even = [Level(2**k, 1e8) for k in range(14)]
    assert isinstance(chosen([Level(variance=1e8), *even]).gradient, sgld.Full)


def test_levels_in_many_dimensions_are_the_same_eigenvalues(monkeypatch, heavy):
    _, laplace, survey = heavy
    one = [level.variance for level in dense_levels(survey.centred, laplace.factor, 1.0)]
    monkeypatch.setattr("sgld.approximation.gradient_noise.MAX_SPECTRUM_DIM", 1)
    two = [level.variance for level in dense_levels(survey.centred, laplace.factor, 1.0)]
    np.testing.assert_allclose(one, two, rtol=1e-6)
    assert one == sorted(one, reverse=True) and one[0] > 20 * one[-1]


@pytest.mark.parametrize(
    "gradient", [sgld.Minibatch(), sgld.ControlVariates(), sgld.SVRG(), sgld.SAGA()],
    ids=lambda g: type(g).__name__,
)  # fmt: skip
def test_the_noise_along_a_run_is_that_of_the_rows_left_to_chance(gradient):
    few = problem_of(X[:6] * [[1], [1], [30], [1], [1], [1]], Y[:6])
    problem = few.with_batches(1, "replacement").with_always([1, 3], 0)
    estimator = gradient.prepare(problem, jnp.asarray(MODE, jnp.float32))
    memory = None
    if estimator.remembers:
        memory = estimator.start(problem, jnp.array([0.4, -0.2]))
    z = jnp.array([-0.5, 0.7])
    rows = jnp.arange(6, dtype=jnp.int32)
    values = [estimator.at(problem, row[None], memory)(z) for row in rows]
    exact = np.linalg.eigvalsh(np.cov(np.array(values, float), rowvar=False))[-1]
    D = sgld.Scalar(1.0).prepare(problem.layout)
    add = None if memory is None else jax.tree.map(lambda leaf: leaf[None], memory)
    level = noise_level(problem, estimator, D, z[None], add, None, rows)
    assert level[0] == pytest.approx(exact, rel=1e-3)


def rare(rows):
    """A table with one row in a level, and the exact posterior."""
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.standard_normal(rows), np.arange(rows) == rows // 3])
    Y = X @ [1.0, 2.0] + rng.standard_normal(rows)
    precision = X.T @ X + PRIOR * np.eye(2)
    return X, Y, mode_of(X, Y), np.sqrt(np.diag(np.linalg.inv(precision)))


def test_a_level_with_one_row_has_it_in_every_batch():
    X, Y, mean, sd = rare(20_000)
    data = (X.astype(np.float32), Y.astype(np.float32))
    draws = sgld.sample(POSTERIOR, data, jnp.zeros(2), progress=False)
    setup = draws.plan.setup
    assert draws.info["plan"]["always_in"] == len(setup.always) == 1
    np.testing.assert_array_equal(setup.always, [20_000 // 3])
    assert draws.verdict.word == "trusted"
    np.testing.assert_allclose(draws.sd() / sd, 1, atol=0.07)
    np.testing.assert_allclose((draws.mean() - mean) / sd, 0, atol=0.1)
    assert draws.info["num_steps"] < 5000

    note = "1 of 20,000 rows is used in every batch because it carries 20% of the information on 'x[1]'."
    assert note in draws.plan.notes
    again = sgld.sample(
        POSTERIOR, data, jnp.zeros(2), progress=False, **{**draws.plan.arguments(), "seed": 5}
    )
    np.testing.assert_array_equal(again.plan.setup.always, setup.always)
    np.testing.assert_allclose(again.sd() / sd, 1, atol=0.07)


def test_a_killed_run_goes_on_with_the_same_rows_in_every_batch(tmp_path, monkeypatch):
    X, Y, *_ = rare(3000)
    data = (X.astype(np.float32), Y.astype(np.float32))
    given = {"step_size": 1e-4, "batch_size": 10, "num_draws": 40, "num_chains": 2}
    given |= {"always_in": [1000, 7], "progress": False}
    whole = sgld.sample(POSTERIOR, data, jnp.zeros(2), **given)

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sgld.inference.execute.loop.run", stop)
        with pytest.raises(KeyboardInterrupt):
            sgld.sample(POSTERIOR, data, jnp.zeros(2), path=tmp_path / "run", **given)
    again = sgld.resume(tmp_path / "run", POSTERIOR, data, jnp.zeros(2), progress=False)
    np.testing.assert_array_equal(again.position, whole.position)
    np.testing.assert_array_equal(again.plan.setup.always, [7, 1000])
    plain = sgld.sample(POSTERIOR, data, jnp.zeros(2), **{**given, "always_in": "auto"})
    assert not np.array_equal(plain.position, whole.position)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"always_in": [3]}, "always_in must be 'auto'"),
        ({"always_in": [3, 3], "step_size": 0.1}, "distinct row numbers"),
        ({"always_in": [0.5], "step_size": 0.1}, "distinct row numbers"),
        ({"always_in": [3, 60], "step_size": 0.1}, "from 0 to 59. Got 60"),
    ],
)
def test_numbers_of_no_rows_are_refused(given, message):
    data = (X.astype(np.float32), Y.astype(np.float32))
    with pytest.raises(UsageError, match=message):
        sgld.sample(POSTERIOR, data, jnp.zeros(2), progress=False, **given)


def test_a_meter_has_the_rows_that_batches_never_see(monkeypatch):
    """By hand, on plain batches that hold the row once in 200 steps: told, and not trusted."""
    monkeypatch.setattr(evidence, "MAX_R2_GRADIENTS", 1000)  # as if exact gradients cost too much
    X, Y, mean, sd = rare(20_000)
    data = (X.astype(np.float32), Y.astype(np.float32))
    matrix = sgld.Dense(np.diag(sd**2).astype(np.float32))
    for order in ("independent", "reshuffle"):
        draws = sgld.sample(
            POSTERIOR, data, mean, step_size=0.3, preconditioner=matrix, order=order,
            gradient=sgld.ControlVariates(), batch_size=2, burn_in=20, num_draws=300, progress=False,
        )  # fmt: skip
        ratio = draws.sd() / sd
        assert abs(ratio[1] - 1) > 0.1 and draws.verdict.word != "trusted"
        np.testing.assert_allclose(draws.verdict.sd_ratio, ratio, rtol=0.1)


def test_rows_in_every_batch_of_a_slice_and_of_a_gather():
    source = InMemory.build(np.arange(11.0), 4, "reshuffle")
    for order, entry in (("reshuffle", 1), ("subset", [0, 5, 9, 10])):
        batch = AlwaysIn.of(source, np.array([5, 9])).with_batches(4, order).fetch(jnp.array(entry))
        rows = np.asarray(batch.rows)
        np.testing.assert_array_equal(rows, np.asarray(source.take(batch.numbers)))
        drawn = np.asarray(batch.numbers)[:-2]
        np.testing.assert_array_equal(batch.weight[:-2][np.isin(drawn, [5, 9])], 0)
        np.testing.assert_allclose(batch.weight[-2:] * batch.scale, 1)


def test_noise_without_end_is_told_and_not_taken_for_a_step():
    """log(1 - p) of a row that p = 1 rounds away; no step_size was given, so none is complained of."""

    def log_likelihood(b, row):
        p = jax.nn.sigmoid(b * row[0])
        return jnp.where(row[1] > 0, jnp.log(p), jnp.log(1 - p))

    rng = np.random.default_rng(0)
    x = np.append(rng.standard_normal(2000), np.full(4, 8.0)).astype(np.float32)
    y = (rng.random(2004) < 1 / (1 + np.exp(-3 * x))).astype(np.float32)
    y[-4:] = 0
    posterior = sgld.Posterior(lambda b: -0.005 * b**2, log_likelihood)
    with pytest.raises(UsageError, match=r"no step size is small enough.*jax\.nn\.log_sigmoid"):
        sgld.sample(posterior, (x, y), jnp.array(0.5), progress=False)
