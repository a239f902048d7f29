"""Every order has a row here; and the suite fails sources that are wrong."""

import functools
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgld
from sgld.data import memory, validate
from sgld.data.memory import AlwaysIn, InMemory
from sgld.data.source import ORDERS, Source
from sgld.data.validate import check_contract, fingerprint
from sgld.errors import DataError, RunError, UsageError
from sgld.inference.record import check_unchanged
from sgld.results.run_directory import RunDirectory
from sgld.samplers.certify.parts import _poisson as poisson
from sgld.testing import check_gradient, check_source


def static():
    """A field that compiled code knows the value of."""
    return field(metadata={"static": True})


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("rows", "n"), [(23, 5), (24, 6), (7, 7), (9, 8), (5, 1)])
def test_source(order, rows, n):
    data = {"x": np.arange(rows, dtype=np.float32), "y": np.arange(rows) % 3}
    report = check_source(InMemory.build(data, n, order, seed=3), seed=3)
    assert len(report.checks) == 6 and order in repr(report)


@settings(max_examples=60, deadline=None)
@given(
    order=st.sampled_from(ORDERS), rows=st.integers(1, 40), data=st.data(),
    step=st.integers(0, 10**6), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_any_cut_of_the_order_agrees(order, rows, data, step, seed):
    n = data.draw(st.integers(1, rows))
    source = InMemory.build(np.arange(rows), n, order)
    first, second = data.draw(st.integers(0, 300)), data.draw(st.integers(0, 300))
    whole = source.chunk((seed, 2), step, first + second)
    parts = [source.chunk((seed, 2), step, first), source.chunk((seed, 2), step + first, second)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert whole.shape == (first + second, *source.entry_shape) and whole.dtype == np.int32


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 60), data=st.data())
def test_blocks_differ_by_at_most_one_row(rows, data):
    n = data.draw(st.integers(1, rows))
    source = InMemory.build(np.arange(rows), n, "reshuffle")
    starts = [int(source.block_start(np.int32(k))) for k in range(source.num_blocks)] + [rows]
    sizes = np.diff(starts)
    assert starts[0] == 0 and sizes.min() >= 1 and np.ptp(sizes) <= 1 and sizes.max() <= n


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Slipped(Source):
    """A source with a slip."""

    _source: Source
    _slip: str = static()
    num_data: int = static()
    batch_size: int = static()
    order: str = static()

    @classmethod
    def of(cls, source, slip):
        return cls(source, slip, source.num_data, source.batch_size, source.order)

    def with_batches(self, batch_size, order):
        if self._slip == "these batches":
            return self
        return Slipped.of(self._source.with_batches(batch_size, order), self._slip)

    def take(self, rows):
        if self._slip == "another row":
            rows = rows % (self.num_data - 1)
        return self._source.take(rows)

    def hash(self):
        if self._slip == "hash of the batches":
            return f"{self.batch_size}{self.order}"
        return self._source.hash()

    def chunk(self, key, step, n):
        seed, chain = key
        if self._slip == "shared order":
            chain = 0
        if self._slip == "forgets its place":
            return self._source.chunk(key, 0, n)
        if self._slip == "one order":
            count = self._source.num_blocks
            return self._source.chunk((seed, chain), 0, count)[(step + np.arange(n)) % count]
        entries = self._source.chunk((seed, chain), step, n)
        if self._slip == "never the first row" and not self.uses_blocks:
            return np.maximum(entries, 1)
        if self._slip == "random blocks" and self.order in ("reshuffle", "symmetric"):
            blocks = self._source.with_batches(self.batch_size, "independent")
            return blocks.chunk(key, step, n)
        if self._slip == "always the first":
            return np.zeros_like(entries)
        if self._slip == "one half" and self.is_independent:
            return entries // 2
        if self._slip == "beyond the last":
            return entries + 1
        if self._slip == "drawn anew":
            return np.random.default_rng().integers(
                0, self._source.num_blocks, entries.shape, np.int32
            )
        if self._slip == "repeats" and not self.uses_blocks:
            entries = entries.copy()
            entries[..., -1] = entries[..., 0]
        return entries

    def fetch(self, x):
        batch = self._source.fetch(x)
        if self._slip == "N/n":
            return replace(batch, scale=np.float32(self.num_data / self.batch_size))
        if self._slip == "short batch at full weight":
            return replace(batch, weight=None)
        if self._slip == "numbers of others":
            return replace(batch, numbers=(batch.numbers + 1) % self.num_data)
        if self._slip == "rows drawn weigh too much" and not self.uses_blocks:
            return replace(batch, scale=batch.scale * 1.1)
        if self._slip == "starts elsewhere" and self.uses_blocks:
            return replace(batch, start=jnp.int32(0))
        if self._slip == "rows drawn start somewhere" and not self.uses_blocks:
            return replace(batch, start=batch.numbers[0])
        if self._slip == "no Batch":
            return batch.rows
        if self._slip == "NaN":
            return replace(
                batch, rows=jax.tree.map(lambda x: jnp.where(x == 3, jnp.nan, x), batch.rows)
            )
        if self._slip == "too many weights":
            return replace(batch, weight=jnp.ones(len(batch.numbers) + 1))
        return batch


@pytest.mark.parametrize(
    ("slip", "order", "message"),
    [
        ("shared order", "reshuffle", "same order"),
        ("forgets its place", "reshuffle", "computed alone"),
        ("one order", "reshuffle", "repeat one order"),
        ("random blocks", "reshuffle", "exactly once"),
        ("random blocks", "symmetric", "exactly once"),
        ("never the first row", "replacement", "equally often"),
        ("repeats", "subset", "twice"),
        ("N/n", "reshuffle", "scale must be"),
        ("short batch at full weight", "reshuffle", "counts 2 times in a pass"),
        ("another row", "reshuffle", "row 22 differs between fetch and take"),
        ("numbers of others", "subset", "counts 0 times in a pass|differs between fetch"),
        ("rows drawn weigh too much", "reshuffle", "biased with order 'replacement'"),
        ("hash of the batches", "reshuffle", "depend on the rows alone"),
        ("no Batch", "reshuffle", "fetch must return a Batch"),
        ("NaN", "reshuffle", "holds NaN"),
        ("too many weights", "reshuffle", "leading axes"),
        ("starts elsewhere", "subset", "is not at the position that"),
        ("rows drawn start somewhere", "reshuffle", "is not at the position that"),
        ("never the first row", "reshuffle", "order='replacement'.* equally often"),
        ("repeats", "reshuffle", "order='subset'.* twice"),
    ],
)
def test_slips_are_caught(slip, order, message):
    source = InMemory.build(np.arange(23.0), 5, order)
    with pytest.raises(AssertionError, match=message):
        check_source(Slipped.of(source, slip))


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ("always the first", "with order 'reshuffle' .* every block exactly once in a pass"),
        ("one half", "with order 'independent' .* only one half of the blocks"),
        ("beyond the last", "chunk returned block .*; they go from 0 to"),
        ("drawn anew", r"steps \[1, \d+\) of chunk differ"),
        (
            "these batches",
            r"with_batches\(1, 'replacement'\) returns a Slipped with num_data 23, batch_size 5",
        ),
    ],
)
def test_a_run_itself_refuses_what_its_order_cannot_be(slip, message):
    source = InMemory.build({"x": np.arange(23.0)}, 5, "reshuffle")
    with pytest.raises(UsageError, match=f"data, a Slipped: .*{message}"):
        sgld.sample(MODEL, Slipped.of(source, slip), 0.0, progress=False)


@pytest.mark.parametrize("method", ["take", "hash", "chunk", "fetch", "with_batches"])
def test_what_a_method_raises_is_told_with_its_name(method):
    def fails(*arguments):
        raise KeyError("the third shard")

    kind = type("Mine", (Made,), {method: fails})
    jax.tree_util.register_dataclass(kind, [], ["num_data", "batch_size", "order"])
    said = rf"data, a Mine: (with .*, )?{method} raised KeyError \('the third shard'\)"
    with pytest.raises(UsageError, match=said):
        check_contract(kind(7, 7, "reshuffle"))


def test_a_chain_has_its_own_order_in_a_run():
    source = InMemory.build(np.arange(64), 4, "reshuffle")
    orders = {tuple(source.chunk((0, chain), 0, 16)) for chain in range(8)}
    assert len(orders) == 8
    assert sgld.testing.check_source is check_source


# -- a source of one's own -------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Made(Source):
    """Rows made from their number: no array is held."""

    num_data: int = static()
    batch_size: int = static()
    order: str = static()

    def take(self, rows):
        return {"x": (jnp.asarray(rows) * 37 % 64).astype(jnp.float32) / 32 - 0.5}

    def hash(self):
        return f"37 i mod 64, {self.num_data} of them"


def in_memory(source, seed=0):
    """The same rows as arrays, in the order that the shuffle undoes."""
    rows = np.asarray(source.take(np.arange(source.num_data))["x"])
    data = np.empty_like(rows)
    data[InMemory.of(rows).original_rows(np.arange(source.num_data), seed)] = rows
    return {"x": data}


MODEL = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, row: -0.5 * (row["x"] - t) ** 2)
MADE = Made(300, 300, "reshuffle")


@pytest.mark.parametrize("order", ORDERS)
def test_a_source_of_ones_own(order):
    assert len(check_source(Made(23, 5, order)).checks) == 6


GIVEN = {"step_size": 1e-3, "num_draws": 60, "num_chains": 2, "progress": False}


@pytest.mark.parametrize(
    "given",
    [
        {**GIVEN, "batch_size": 7},
        pytest.param(
            {**GIVEN, "batch_size": 5, "order": "subset", "gradient": sgld.SVRG()},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {**GIVEN, "batch_size": 9, "order": "replacement", "gradient": sgld.SAGA()},
            marks=pytest.mark.slow,
        ),
        {**GIVEN, "batch_size": 7, "order": "symmetric", "gradient": sgld.ControlVariates()},
        {**GIVEN, "gradient": sgld.Full()},
        {"progress": False},
    ],
    ids=["Minibatch", "SVRG", "SAGA", "ControlVariates", "Full", "auto"],
)
def test_the_draws_are_those_of_the_same_rows_in_memory(given):
    own = sgld.sample(MODEL, MADE, 0.0, **given)
    same = sgld.sample(MODEL, in_memory(MADE), 0.0, **given)
    np.testing.assert_allclose(own.position, same.position, rtol=0, atol=1e-6)
    assert own.verdict.word == same.verdict.word


DOORS = {
    "find_map": lambda data: sgld.find_map(MODEL, data, 0.0).position,
    "laplace": lambda data: sgld.laplace(MODEL, data, 0.0).sd(),
    "sandwich": lambda data: sgld.sandwich(MODEL, data, drawn()).sd(),
    "reference": lambda data: sgld.reference(MODEL, data, 0.0, num_draws=300, progress=False).sd(),
    "bayes_by_backprop": lambda data: (
        sgld.bayes_by_backprop(MODEL, data, 0.0, num_steps=50, progress=False).sd
    ),
    "gradient_statistics": lambda data: sgld.gradient_statistics(MODEL, data, 0.0).covariance,
}


@functools.cache
def drawn():
    return sgld.sample(MODEL, MADE, 0.0, **GIVEN, batch_size=7)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n == "reference" else n for n in DOORS],
)
def test_every_door_takes_a_source(name):
    door = DOORS[name]
    np.testing.assert_allclose(door(MADE), door(in_memory(MADE)), rtol=1e-5)


ESTIMATORS = {
    "Full": sgld.Full(),
    "Minibatch": sgld.Minibatch(),
    "ControlVariates": sgld.ControlVariates(),
    "SVRG": sgld.SVRG(period=2),
    "SAGA": sgld.SAGA(),
    "SAGA on features": sgld.SAGA(lambda row: jnp.concatenate([jnp.ones(1), row["x"]])),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if " on " in n or n == "SVRG" else n
        for n in ESTIMATORS
    ],
)
def test_estimators_are_unbiased_with_rows_that_are_in_every_batch(name):
    """Over all batches, of every order and size, and after whatever was remembered."""
    posterior, data, position = poisson()
    source = AlwaysIn.of(InMemory.of(data), [1, 4])
    report = check_gradient(ESTIMATORS[name], posterior, source, position)
    assert len(report.noise) == 11


@pytest.mark.parametrize(
    "few",
    [pytest.param(2**24, id="few rows", marks=pytest.mark.slow), pytest.param(4, id="many rows")],
)
@pytest.mark.parametrize("order", ORDERS)
def test_rows_that_are_in_every_batch_are_certified(order, few, monkeypatch):
    """Of more rows than are counted one by one, too, and of more than have a mark each."""
    monkeypatch.setattr(validate, "MAX_COUNTED_ROWS", few)
    monkeypatch.setattr(validate, "MAX_COUNTED_ROWS", few)
    monkeypatch.setattr(memory, "MAX_MARKED_ROWS", few)
    source = AlwaysIn.of(InMemory.build({"x": np.arange(11.0)}, 3, order), [2, 9])
    assert len(check_source(source).checks) == 6


def test_of_many_rows_it_is_still_seen_that_each_counts_once(monkeypatch):
    monkeypatch.setattr(validate, "MAX_COUNTED_ROWS", 4)
    monkeypatch.setattr(validate, "MAX_COUNTED_ROWS", 4)
    check_contract(InMemory.build(np.arange(23.0), 5, "reshuffle"))
    for slip in ("short batch at full weight", "numbers of others"):
        source = Slipped.of(InMemory.build(np.arange(23.0), 5, "reshuffle"), slip)
        with pytest.raises(DataError, match=r"not every row counts once|differs between fetch"):
            check_contract(source)
    with pytest.raises(DataError, match=r"row .* holds NaN"):
        check_contract(Slipped.of(InMemory.build(np.arange(23.0), 5, "reshuffle"), "NaN"))


@pytest.mark.parametrize("num_data", [11, 2**22])
def test_what_a_look_at_many_rows_holds_does_not_grow_with_them(num_data, monkeypatch):
    """A permutation of a billion rows would be 4 GB; of few rows single ones and the whole are batches too."""
    monkeypatch.setattr(validate, "_whole_pass", lambda source: None)
    looked, look = [], validate._batches
    monkeypatch.setattr(validate, "_batches", lambda source: looked.append(source) or look(source))
    check_contract(Made(num_data, num_data, "reshuffle"))
    assert {source.order for source in looked} == set(ORDERS)
    sizes = {source.batch_size for source in looked}
    most = max(max(source.batch_size, source.num_blocks) for source in looked)
    assert sizes == {1, 2, 11} if num_data == 11 else most <= 2**20


# -- what is refused -------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Held(Source):
    """Rows of an array, of which `num_data` may lie."""

    x: jax.Array
    name: str = static()
    num_data: int = static()
    batch_size: int = static()
    order: str = static()

    def take(self, rows):
        return {"x": self.x[rows]}

    def hash(self):
        return self.name


class Bare:
    """What lacks nearly everything."""

    num_data, batch_size, order = 3, 3, "reshuffle"

    def take(self, rows):
        return jnp.asarray(rows)


@dataclass(frozen=True)
class Unregistered(Source):
    num_data: int = 3
    batch_size: int = 3
    order: str = "reshuffle"

    def take(self, rows):
        return jnp.asarray(rows, jnp.float32)

    def hash(self):
        return "three"


X = jnp.linspace(0.0, 1.0, 50)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (Bare(), UsageError, "Bare, lacks hash, chunk, fetch, with_batches"),
        (Unregistered(), UsageError, "is not a pytree"),
        (
            Unregistered,
            UsageError,
            r"data is the class Unregistered; give a source: Unregistered\(",
        ),
        (Held(X, "x", 51, 51, "reshuffle"), DataError, "num_data is 51, but there are fewer"),
        (Held(X, "x", 0, 1, "reshuffle"), UsageError, "num_data must be a static whole number"),
        (Held(X, "", 50, 5, "reshuffle"), UsageError, "hash\\(\\) must return"),
        (Held("rows", "x", 50, 5, "reshuffle"), UsageError, "its leaves must be arrays"),
        (Held(X.at[7].set(jnp.nan), "x", 50, 5, "reshuffle"), DataError, "row 7 holds NaN"),
        (Held(X, "x", 50, 5, "reshufle"), UsageError, "Did you mean 'reshuffle'"),
    ],
)
def test_a_source_that_is_none_is_refused_before_the_first_step(source, error, message):
    with pytest.raises(error, match=message):
        sgld.sample(MODEL, source, 0.0, progress=False)
    with pytest.raises(AssertionError, match=message):
        check_source(source)


def test_a_source_without_its_two_methods_cannot_be_made():
    class Half(Source):
        num_data, batch_size, order = 3, 3, "reshuffle"

    with pytest.raises(TypeError, match=r"hash.*take"):
        Half()


def test_what_a_run_directory_knows_the_rows_by():
    """Another hash, other rows whatever the hash says, another length; not other batches."""
    held = Held(X, "x", 50, 5, "reshuffle")
    for other in (
        Held(X, "y", 50, 5, "reshuffle"),
        Held(X + 1, "x", 50, 5, "reshuffle"),
        Held(X, "x", 49, 5, "reshuffle"),
    ):
        assert fingerprint(other) != fingerprint(held)
    assert fingerprint(Held(X + 0, "x", 50, 2, "subset")) == fingerprint(held)


def killed(path):
    """A run on MADE that ends as if killed before its first step."""

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sgld.inference.execute.loop.run", stop)
        with pytest.raises(KeyboardInterrupt):
            sgld.sample(MODEL, MADE, 0.0, **GIVEN, batch_size=5, path=path)


def test_a_killed_run_goes_on_with_its_own_source_only(tmp_path):
    killed(tmp_path / "run")
    again = sgld.resume(tmp_path / "run", MODEL, Made(300, 7, "subset"), 0.0, progress=False)
    whole = sgld.sample(MODEL, MADE, 0.0, **GIVEN, batch_size=5)
    np.testing.assert_array_equal(again.position, whole.position)
    directory = RunDirectory(tmp_path / "run")
    asked = directory.read("run.json")
    check_unchanged(directory, asked, {**asked, "data_hash": fingerprint(MADE)})
    others = {**asked, "data_hash": fingerprint(Made(299, 5, "reshuffle"))}
    with pytest.raises(RunError, match="other values of the data"):
        check_unchanged(directory, asked, others)
