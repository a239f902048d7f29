"""`sgld.sample` from outside: every step by hand, and what must not change a bit."""

import itertools
from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core import work
from sgld.core.pytrees import Layout
from sgld.data.memory import InMemory
from sgld.inference import chunk, loop, sink
from sgld.model.problem import Problem, Target
from sgld.results.run_directory import RunDirectory

N = 23
ROWS = np.random.default_rng(5).normal(size=(N, 2)).astype(np.float32)
MEAN, PRECISION = np.array([0.5, -1.0]), np.array([3.0, 1.5])


def log_prior(t):
    return -0.5 * jnp.sum(
        jnp.asarray(PRECISION, jnp.float32) * (t - jnp.asarray(MEAN, jnp.float32)) ** 2
    )


def log_likelihood(t, x):
    return -0.5 * jnp.sum((x - t) ** 2)


POSTERIOR = sgld.Posterior(log_prior, log_likelihood)
START = np.array([0.3, 0.2], np.float32)


def run(posterior=POSTERIOR, data=ROWS, init=START, **kwargs):
    given = {"step_size": 0.01, "num_chains": 2, "num_draws": 600, "burn_in": 0, "thin": 1}
    return sgld.sample(posterior, data, init, progress=False, **{**given, **kwargs})


def same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


# -- every step by hand ----------------------------------------------------------------------


def by_hand(order, n, h, T, root, draws, chain, seed=0, center=None):
    """The trajectory in double precision from the paper's formula, rows in the source's order."""
    source = InMemory.build(ROWS, n, order, seed)
    rows = np.asarray(source.rows, np.float64)
    entries = source.chunk((seed, chain), 0, draws)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 0), chain)
    block = chunk.block_steps(2)
    blocks = [
        np.asarray(jax.random.normal(jax.random.fold_in(key, b), (block, 2)), np.float64)
        for b in range(-(-draws // block))
    ]
    xi = np.concatenate(blocks)
    sizes = [N // source.num_blocks + (k < N % source.num_blocks) for k in range(source.num_blocks)]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    q, path = START.astype(np.float64), []
    for k in range(draws):
        path.append(q)
        if order in ("reshuffle", "symmetric", "independent"):
            batch, scale = rows[starts[entries[k]] : starts[entries[k] + 1]], source.num_blocks
        else:
            batch, scale = rows[entries[k]], N / n
        if center is None:
            likelihood = scale * np.sum(batch - q, axis=0)
        else:
            full = np.sum(rows[:N] - center, axis=0)
            likelihood = full + scale * np.sum((batch - q) - (batch - center), axis=0)
        g = -PRECISION * (q - MEAN) + likelihood
        q = q + h(k) * root @ root.T @ g + np.sqrt(2 * h(k) * T(k)) * root @ xi[k]
    return np.array(path)


DENSE = np.array([[1.5, 0.0], [0.6, 0.8]])


@pytest.mark.parametrize(
    "order", ["reshuffle", "symmetric", "independent", "replacement", "subset"]
)
def test_every_step_by_hand(order):
    """N/n, prior, noise, preconditioner, temperature, short batches, order: all in one."""
    draws = run(
        order=order,
        batch_size=5,
        temperature=2.5,
        preconditioner=sgld.Dense(DENSE @ DENSE.T, DENSE),
    )
    for chain in range(2):
        exact = by_hand(order, 5, lambda k: 0.01, lambda k: 2.5, DENSE, 600, chain)
        np.testing.assert_allclose(draws.position[chain], exact, atol=2e-4)


def test_every_step_by_hand_with_control_variates_and_a_cholesky_factor():
    center, D = np.array([1.0, 0.0]), np.array([[1.0, 0.4], [0.4, 0.5]])
    draws = run(
        gradient=sgld.ControlVariates(jnp.asarray(center, jnp.float32)), batch_size=4,
        order="subset", preconditioner=sgld.Dense(D), num_draws=100,
    )  # fmt: skip
    root = np.linalg.cholesky(D)
    exact = by_hand("subset", 4, lambda k: 0.01, lambda k: 1.0, root, 100, 0, center=center)
    np.testing.assert_allclose(draws.position[0], exact, atol=2e-4)


def test_schedules_start_after_burn_in_and_a_weight_is_the_step_taken_from_its_draw():
    h, T = sgld.polynomial(0.02, 1.0, 0.5), sgld.polynomial(3.0, 1.0, 1.0)
    burn_in, thin = 7, 3
    draws = run(
        step_size=h, temperature=T, burn_in=burn_in, thin=thin, num_draws=30, batch_size=5,
        order="reshuffle",
    )  # fmt: skip
    after = lambda k: max(0, k - burn_in)  # noqa: E731
    hs, Ts = np.asarray(h(np.arange(200))), np.asarray(T(np.arange(200)))
    exact = by_hand(
        "reshuffle", 5, lambda k: hs[after(k)], lambda k: Ts[after(k)], np.eye(2), 100, 0
    )
    kept = burn_in + thin * np.arange(30)
    np.testing.assert_allclose(draws.position[0], exact[kept], atol=2e-4)
    np.testing.assert_array_equal(draws.step, kept)
    steps = hs[thin * np.arange(30)]
    np.testing.assert_allclose(draws.step_size, np.broadcast_to(steps, (2, 30)), rtol=1e-6)
    np.testing.assert_allclose(np.exp(draws.log_weight), draws.step_size, rtol=1e-6)
    np.testing.assert_allclose(draws.temperature[1], Ts[thin * np.arange(30)], rtol=1e-6)


def test_the_weight_is_read_off_the_move():
    """T = 0 and one batch: (theta' - theta) / gradient is the step that the draw was given."""
    draws = run(
        step_size=sgld.polynomial(0.02, 1.0, 0.9), temperature=0.0, batch_size=N, num_chains=1,
        num_draws=12,
    )  # fmt: skip
    q = draws.position[0].astype(float)
    gradient = -PRECISION * (q - MEAN) + np.sum(ROWS[None] - q[:, None], axis=1)
    moved = np.diff(q, axis=0) / gradient[:-1]
    np.testing.assert_allclose(moved.mean(1)[:8], np.exp(draws.log_weight[0, :8]), rtol=1e-2)


def kernel_of_a_prior():
    layout = Layout.of(START)
    return chunk.Kernel(
        Problem(Target(sgld.Posterior(log_prior), layout)), sgld.Full(), sgld.Scalar(jnp.float32(1.0)),
        sgld.SGLD(None), sgld.constant(0.01), sgld.constant(1.0), jax.random.key(0), jnp.int32(3),
        jnp.int32(2), record_gradient=True,
    )  # fmt: skip


def test_a_recorded_gradient_is_the_one_at_its_draw():
    raw = loop.run(kernel_of_a_prior(), jnp.asarray(START)[None], seed=0, num_draws=40)
    np.testing.assert_allclose(raw.gradient, -PRECISION * (raw.z - MEAN), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("most", [64, 50, 33])
def test_a_run_that_outgrows_its_memory_keeps_every_second_draw_of_the_same_chain(most):
    """Wherever chunks end: 50 and 33 draws are no whole number of halvings of what a block holds."""
    start, wanted = jnp.asarray(START)[None], iter([100, 100, 130, 0])
    thin = loop.run(
        kernel_of_a_prior(), start, seed=0, num_draws=25, more=lambda raw: next(wanted), most=most
    )
    whole = loop.run(kernel_of_a_prior(), start, seed=0, num_draws=thin.every * thin.num_draws)
    assert thin.every > 1 and thin.num_draws <= most
    np.testing.assert_array_equal(thin.z, whole.z[:: thin.every])
    np.testing.assert_array_equal(thin.gradient, whole.gradient[:: thin.every])
    assert thin.num_steps == 3 + 2 * thin.every * (thin.num_draws - 1) + 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_chain_is_lost_with_its_first_entry_that_is_not_finite(bad, steps):
    z = np.full((steps, 2, 5), 1e38, np.float32)  # finite, though no sum of them is
    z[-1, 1, 3] = bad
    expected = np.zeros((steps, 2), bool)
    expected[-1, 1] = True
    np.testing.assert_array_equal(chunk._lost(jnp.asarray(z)), expected)


def test_of_a_run_with_a_directory_no_draw_is_dropped(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create(False)
    with directory:
        directory.begin({})
        raw = loop.run(
            kernel_of_a_prior(), jnp.asarray(START)[None], seed=0, num_draws=20,
            more=lambda raw: 100 if raw.every == 1 else 0, most=60, directory=directory,
        )  # fmt: skip
    assert (raw.every, raw.num_draws) == (1, 60)


def test_no_noise_is_used_twice():
    """The standard normals read off a run of a nearly flat density: all different, uncorrelated."""
    flat = sgld.Posterior(lambda t: -0.5e-12 * jnp.sum(t**2))
    steps = 3 * chunk.block_steps(2)
    draws = run(flat, None, np.zeros(2, np.float32), num_draws=steps, num_chains=3, step_size=0.5)
    xi = np.diff(draws.position.astype(np.float64), axis=1)  # [chain, steps - 1, 2]
    block = chunk.block_steps(2)
    blocks = xi[:, : 2 * block].reshape(-1, 2 * block)  # two whole blocks of every chain
    z = np.sqrt(2 * block) * (np.corrcoef(blocks) - np.eye(len(blocks)))
    assert len(blocks) == 6 and np.abs(z).max() < 4.5, "two blocks or chains share noise"
    for lag in (1, 2, block, 2 * block):
        z = np.sqrt(xi[:, lag:].size) * np.mean(xi[:, lag:] * xi[:, :-lag])
        assert abs(z) < 4.5, f"noise is correlated at lag {lag}"
    z = np.sqrt(xi[..., 0].size) * np.mean(xi[..., 0] * xi[..., 1])
    assert abs(z) < 4.5, "coordinates share noise"
    assert abs(np.mean(xi**2) - 1) < 4.5 * np.sqrt(2 / xi.size)


# -- what must not change a bit --------------------------------------------------------------

DESIGNS = [
    {"order": "reshuffle", "batch_size": 5},
    {
        "order": "subset",
        "batch_size": 3,
        "gradient": sgld.ControlVariates(),
        "thin": 3,
        "burn_in": 50,
    },
]


@pytest.fixture
def chunks(monkeypatch):
    """The number of blocks of every chunk of a run, by what a chunk is limited to."""

    def of(design, **limits):
        sizes = []

        def counted(kernel, carry, entries, num_blocks, *rest, **options):
            sizes.append(int(num_blocks))
            return chunk.run_chunk(kernel, carry, entries, num_blocks, *rest, **options)

        with monkeypatch.context() as patched:
            patched.setattr(loop, "run_chunk", counted)
            for name, value in limits.items():
                patched.setattr(work if name == "PIECE_SECONDS" else loop, name, value)
            # long enough that probes of the phase leave several blocks to a chunk
            return run(**design, num_draws=30_000), sizes

    return of


@pytest.mark.parametrize("design", DESIGNS, ids=["reshuffle", "control variates"])
def test_the_length_of_a_chunk_changes_no_bit(design, chunks):
    whole, sizes = chunks(design, PIECE_SECONDS=1e9)
    assert max(sizes) > 1
    for limits in ({"PIECE_SECONDS": 1e-9}, {"MAX_ENTRY_NUMBERS": 1, "MAX_SLOT_NUMBERS": 1}):
        other, sizes = chunks(design, **limits)
        assert set(sizes) == {1}
        same(whole.position, other.position)
        same(whole.step_size, other.step_size)


def test_long_draws_are_written_when_they_are_due_whatever_the_chunk(monkeypatch):
    """One step to a block of noise, one draw to a chunk: the same bits, every thin-th position."""
    d = 3000
    monkeypatch.setattr(chunk, "MAX_BLOCK_NORMALS", d)
    assert chunk.block_steps(d) == 1
    density = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    how = dict(data=None, init=np.ones(d, np.float32), burn_in=5, num_draws=4)
    whole, every = run(density, **how, thin=7), run(density, **{**how, "num_draws": 22})
    same(whole.position, every.position[:, ::7])
    monkeypatch.setattr(work, "PIECE_SECONDS", 1e-9)
    monkeypatch.setattr(loop, "MAX_LONG_NUMBERS", 1)
    same(whole.position, run(density, **how, thin=7).position)


def test_nothing_is_copied_out_where_no_draw_was_kept(monkeypatch):
    taken, steps = [], []
    append, advance = loop.Sink.append, loop.run_chunk
    monkeypatch.setattr(
        loop.Sink, "append", lambda self, rows: (taken.append(len(rows["z"])), append(self, rows))
    )
    monkeypatch.setattr(
        loop, "run_chunk", lambda *args, **how: (steps.append(1), advance(*args, **how))[1]
    )
    monkeypatch.setattr(work, "PIECE_SECONDS", 1e-9)  # every chunk one block of 512 steps
    run(num_draws=4, thin=3000)
    assert len(steps) == 1 + 9001 // 512 and taken == [1, 1, 1, 1]


def test_chunks_on_disk_are_of_bounded_size():
    for width in (1, 2, 8, 400, 10**4, 10**5, 4 * 10**6):
        rows = sink.chunk_rows((width,))
        assert rows == 1 or rows * width <= 2**22  # 16 MiB of single precision
        assert rows * width >= min(2**16, width * 256) // 2


def test_checkpoints_change_no_bit(tmp_path, monkeypatch):
    never = run(num_draws=2000)
    monkeypatch.setattr(work, "PIECE_SECONDS", 1e-9)
    written, write = [], RunDirectory.write_checkpoint
    monkeypatch.setattr(
        RunDirectory, "write_checkpoint", lambda *given: (written.append(1), write(*given))
    )
    often = run(num_draws=2000, path=tmp_path / "often", checkpoint_every=0.0)
    assert len(written) == -(-2000 // chunk.block_steps(2))
    same(never.position, often.position)
    same(never.position, sgld.load(tmp_path / "often").position)


def test_the_number_of_chains_changes_nothing():
    one, four = run(num_chains=1), run(num_chains=4)
    same(one.position[0], four.position[0])
    assert not np.allclose(four.position[0], four.position[1], atol=1e-3)


def test_more_draws_begin_with_the_same_ones():
    short, long = run(num_draws=100), run(num_draws=1500)
    same(short.position, long.position[:, :100])


def test_two_samplers_interleaved_equal_the_two_alone():
    def walk(seed):
        sampler, source = sgld.SGLD(None), InMemory.build(ROWS, 5, "reshuffle", seed)
        state = sampler.init(jnp.asarray(START))
        for k in range(20):
            rows = np.asarray(source.fetch(jnp.asarray(source.chunk((seed, 0), k, 1)[0])).rows)
            xi = jax.random.normal(jax.random.fold_in(jax.random.key(seed), k), (2,))
            state = sampler.step(state, lambda q: -q + rows.mean(0), 0.1, xi)  # noqa: B023
            yield np.asarray(state.position)

    alone = [list(walk(seed)) for seed in (0, 1)]
    together = list(zip(walk(0), walk(1), strict=True))
    same(alone, [list(part) for part in zip(*together, strict=True)])
    a, b = run(seed=1), run(seed=2, temperature=2.0)
    same((run(seed=1).position, run(seed=2, temperature=2.0).position), (a.position, b.position))


def test_a_pytree_equals_the_flat_vector():
    tree = sgld.Posterior(
        lambda t: log_prior(jnp.concatenate([t["a"][None], t["b"]])),
        lambda t, x: log_likelihood(jnp.concatenate([t["a"][None], t["b"]]), x),
    )
    flat = run(batch_size=5)
    parts = run(tree, init={"a": jnp.float32(START[0]), "b": jnp.asarray(START[1:])}, batch_size=5)
    assert parts.names == ("a", "b[0]")
    joined = np.concatenate([parts.position["a"][..., None], parts.position["b"]], -1)
    np.testing.assert_allclose(joined, flat.position, atol=1e-5)


def test_twice_the_data_equals_twice_the_likelihood():
    twice = sgld.Posterior(log_prior, lambda t, x: 2 * log_likelihood(t, x))
    a = run(data=np.concatenate([ROWS, ROWS]), gradient=sgld.Full())
    b = run(twice, gradient=sgld.Full())
    np.testing.assert_allclose(a.position, b.position, atol=2e-4)


def test_temperature_0_is_gradient_ascent_bit_for_bit():
    draws = run(temperature=0.0, gradient=sgld.Full(), num_draws=50)
    same(draws.position[0], draws.position[1])
    other = run(temperature=0.0, gradient=sgld.Full(), num_draws=50, seed=9)
    # another seed shuffles the rows, whose sum is then rounded otherwise
    np.testing.assert_allclose(draws.position, other.position, atol=1e-6)
    q = START.astype(np.float64)
    for k in range(50):
        np.testing.assert_allclose(draws.position[0, k], q, atol=1e-5)
        q = q + 0.01 * (-PRECISION * (q - MEAN) + np.sum(ROWS - q, axis=0))


# -- compilation and failures ----------------------------------------------------------------


@pytest.mark.usefixtures("nothing_compiled")
def test_new_numbers_compile_nothing():
    run(temperature=1.0)
    before = chunk.run_chunk._cache_size()
    run(temperature=1.0, step_size=0.02, seed=4, burn_in=11, thin=2, num_draws=700)
    run(temperature=3.0, data=ROWS + 1)
    assert chunk.run_chunk._cache_size() == before


def poisoned(t):
    # the gradient of leaf `z` is lost beyond 2.8; that of `a` one step later, through the product
    lost = jnp.where(t["z"][1] > 2.8, jnp.nan, 1.0)
    pair = 1e-3 * t["a"][0] * t["z"][1]
    return pair - 0.5 * jnp.sum(t["a"] ** 2) - 0.5 * lost * jnp.sum(t["z"] ** 2)


def poisoned_run():
    init = {"z": jnp.zeros(2), "a": jnp.zeros(1)}
    return run(sgld.Posterior(poisoned), None, init, num_draws=512, step_size=0.2, num_chains=8)


def test_a_poisoned_gradient_stops_only_its_chain():
    draws = poisoned_run()
    failed = [i for i, status in enumerate(draws.status) if status != "ok"]
    assert 0 < len(failed) < 8
    for chain in failed:
        path = draws.position["z"][chain, :, 1]
        step = int(np.argmax(~np.isfinite(path)))
        assert path[step - 1] > 2.8
        assert f"chain {chain} became non-finite at step {step} in leaf" in draws.status[chain]
    for chain in draws.healthy:
        assert np.isfinite(draws.position["a"][chain]).all()
    assert draws.verdict.word == "biased" and "non-finite" in draws.verdict.reasons[0]
    assert np.isfinite(draws.mean()["a"]).all()


def test_the_leaf_that_failed_first_is_named():
    draws = poisoned_run()
    assert all("leaf 'z'" in status for status in draws.status if status != "ok")


# -- Monte Carlo, the last line --------------------------------------------------------------


@pytest.mark.parametrize(
    "design",
    [
        {"order": "reshuffle", "batch_size": 3},
        {"order": "replacement", "batch_size": 3, "temperature": 0.5},
        {
            "order": "subset",
            "batch_size": 10,
            "preconditioner": sgld.Diagonal(np.array([2.0, 0.5])),
        },
    ],
    ids=["reshuffle", "replacement", "subset"],
)
def test_variances_of_a_run_follow_the_law(design):
    from sgld.samplers.stationary import Law

    n, order, T = design["batch_size"], design["order"], design.get("temperature", 1.0)
    D = np.diag(design["preconditioner"].array) if "preconditioner" in design else np.eye(2)
    h, R = 0.008, -(-N // n)
    J = np.diag(PRECISION + N)
    S = np.cov(ROWS, rowvar=False, bias=True)
    if order == "reshuffle":
        rows = np.asarray(InMemory.build(ROWS, n, order, 0).take(np.arange(len(ROWS))), np.float64)
        sums = np.array([part.sum(0) for part in np.split(rows, _edges(n))])
        sizes = np.array([len(part) for part in np.split(rows, _edges(n))])
        # blocks of unequal size have unequal curvature too: close to the law, not on it
        C = np.cov(R * (sums - sizes[:, None] * rows.mean(0)), rowvar=False, bias=True)
    else:
        C = N**2 / n * S * ((N - n) / (N - 1) if order == "subset" else 1.0)
    law = Law.of(J, np.sqrt(D), C, period=R if order == "reshuffle" else 1)
    exact = np.diag(law.basis @ law.covariance(h, T) @ law.basis.T)
    draws = run(**design, step_size=h, num_chains=64, num_draws=3000, burn_in=100, thin=2)
    values = draws.position.astype(np.float64)
    mode = (PRECISION * MEAN + ROWS.sum(0)) / np.diag(J)
    squares = ((values - mode) ** 2).mean(1)
    z = (squares.mean(0) - exact) / (squares.std(0) / 8)
    assert np.abs(z).max() < 4.5, z
    assert np.abs(squares.mean(0) / exact - 1).max() < 0.03
    mean = mean_of_passes(sums, sizes, h) if order == "reshuffle" else mode
    shift = (values.mean((0, 1)) - mean) / (values.mean(1).std(0) / 8)
    assert np.abs(shift).max() < 4.5


def mean_of_passes(sums, sizes, h):
    """Of all steps, over all orders of the blocks: of unequal size they move it by a hundredth of an sd."""
    K = len(sizes)
    steps = np.array(list(itertools.permutations(range(K))))
    scale = 1 - h * (PRECISION + K * sizes[:, None])
    push = h * (PRECISION * MEAN + K * sums)
    # theta before each step is slope theta_0 + offset, averaged over the orders
    slope, offset = np.ones((len(steps), 2)), np.zeros((len(steps), 2))
    slopes, offsets = [], []
    for k in range(K):
        slopes.append(slope.mean(0))
        offsets.append(offset.mean(0))
        a, b = scale[steps[:, k]], push[steps[:, k]]
        slope, offset = a * slope, a * offset + b
    first = offset.mean(0) / (1 - slope.mean(0))
    return np.mean(slopes, 0) * first + np.mean(offsets, 0)


def _edges(n):
    count = -(-N // n)
    sizes = [N // count + (k < N % count) for k in range(count)]
    return np.cumsum(sizes)[:-1]


MIXTURE_MEAN, MIXTURE_SD = np.array([0.4899, 0.0593]), np.array([0.7695, 1.5097])  # by a grid


def mixture(**options):
    """The tied-means mixture of Welling & Teh (2011), whose posterior has two modes."""
    file = resources.files("sgld.data.bundled") / "tied_means_mixture.csv"
    x = np.loadtxt(file.read_text().splitlines(), skiprows=1)
    posterior = sgld.Posterior(
        lambda t: -(t[0] ** 2) / 20 - t[1] ** 2 / 2,
        lambda t, x: jnp.logaddexp(-((x - t[0]) ** 2) / 4, -((x - t[0] - t[1]) ** 2) / 4),
    )
    draws = sgld.sample(posterior, x, jnp.array([1.0, 1.0]), progress=False, **options)
    assert any("2 modes" in note for note in draws.info["plan"]["notes"])
    return draws


@pytest.mark.slow
def test_two_modes_are_weighed_where_the_run_is_trusted():
    draws = mixture()
    assert draws.verdict.word == "trusted"
    np.testing.assert_allclose((draws.mean() - MIXTURE_MEAN) / MIXTURE_SD, 0, atol=0.1)
    np.testing.assert_allclose(draws.sd(), MIXTURE_SD, rtol=0.07)


def test_a_second_mode_is_never_trusted_while_wrong():
    draws = mixture(step_size=0.002)  # 1000 steps that seldom cross
    assert np.abs(draws.sd() / MIXTURE_SD - 1).max() > 0.15
    assert np.abs((draws.mean() - MIXTURE_MEAN) / MIXTURE_SD).max() > 0.4
    assert draws.verdict.word == "not mixed"
