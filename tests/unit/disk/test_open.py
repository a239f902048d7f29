"""`sgld.open`: files become a source of rows that a run takes as it takes arrays, to the bit."""

import gzip
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from on_disk_rows import MODEL, NAMES, RNG, TABLE, N, X, Y, conversions, rows_of, same

import sgld
from sgld.data import arrays, readers
from sgld.data.memory import InMemory, shuffled
from sgld.data.source import ORDERS
from sgld.testing import check_source


@pytest.fixture
def npy(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    return tmp_path / "x.npy", tmp_path / "y.npy"


@pytest.fixture
def parquet(tmp_path):
    pq.write_table(TABLE, tmp_path / "rows.parquet", row_group_size=700)
    return tmp_path / "rows.parquet"


# -- the rows, and their order ---------------------------------------------------------------


@pytest.mark.parametrize("held", [2**26, 5000], ids=["one piece", "many pieces"])
@pytest.mark.parametrize("seed", [0, 7])
def test_every_kind_of_file_lies_in_the_order_of_memory(opened, npy, tmp_path, held, seed, monkeypatch):  # fmt: skip
    for module in (readers, arrays, readers):
        monkeypatch.setattr(module, "MAX_HELD_BYTES", held)
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=900)
    pa.feather.write_feather(TABLE, tmp_path / "t.arrow", chunksize=500)
    with pa.OSFile(str(tmp_path / "s.arrow"), "wb") as out, pa.ipc.new_stream(out, TABLE.schema) as writer:  # fmt: skip
        writer.write_table(TABLE, 800)
    parts = tmp_path / "parts"
    parts.mkdir()
    for k, begin in enumerate(range(0, N, 1100)):  # columns in another order in each part
        part = TABLE.slice(begin, 1100)
        names = sorted(part.column_names, reverse=bool(k % 2))
        pq.write_table(part.select(names), parts / f"{k}.parquet")
    memory = InMemory.of((X, Y), seed)
    same(opened(npy, seed=seed), memory)
    listed = sorted(parts.iterdir())
    for data in (tmp_path / "t.parquet", tmp_path / "t.arrow", tmp_path / "s.arrow", parts, listed):
        same(opened(data, columns=NAMES, seed=seed), memory)


def test_a_csv_is_the_table_that_was_written(opened, tmp_path):
    pa.csv.write_csv(TABLE, tmp_path / "t.csv")
    same(opened(tmp_path / "t.csv", columns=NAMES), InMemory.of((X, Y), 0))


def test_a_gzipped_text_with_semicolons_and_decimal_points(opened, tmp_path):
    """As tables in memory are read: the separator is found, spaces around names are left out."""
    rows = "\n".join(";".join(map(repr, map(float, (y, *x)))) for x, y in zip(X, Y, strict=True))
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write(" y ;a; b;c\n" + rows + "\n")
    same(opened(path, columns=NAMES), InMemory.of((X, Y), 0))


def test_all_columns_are_a_dict_by_name(opened, parquet):
    data = {name: TABLE[name].to_numpy() for name in TABLE.column_names}
    same(opened(parquet), InMemory.of({**data, "unused": data["unused"].astype(np.int32)}, 0))


def test_double_precision_is_kept_where_it_is_on(opened, tmp_path, x64):
    np.save(tmp_path / "x.npy", X.astype(np.float64) + 1e-12)
    source = opened(tmp_path / "x.npy")
    same(source, InMemory.of(X.astype(np.float64) + 1e-12, 0))
    with jax.enable_x64(False):
        assert rows_of(opened(tmp_path / "x.npy"))[0].dtype == np.float32


def test_a_file_saved_by_columns_and_one_of_big_endian_numbers(opened, tmp_path):
    np.save(tmp_path / "f.npy", np.asfortranarray(X))
    np.save(tmp_path / "b.npy", X.astype(">f4"))
    for name in ("f.npy", "b.npy"):
        same(opened(tmp_path / name), InMemory.of(X, 0))


class Items:
    def __init__(self, fault=None):
        self.fault = fault

    def __len__(self):
        return N

    def __getitem__(self, i):
        if i == 700 and self.fault:
            return self.fault
        return {"x": X[i], "y": float(Y[i])}


def test_anything_with_items_is_opened(opened):
    same(opened(Items()), InMemory.of({"x": X, "y": Y}, 0))
    same(opened(X), InMemory.of(X, 0))  # sliced, not taken row by row
    same(opened(list(range(50))), InMemory.of(np.arange(50, dtype=np.int32), 0))


def test_rows_are_called_by_their_numbers_in_the_file(opened, npy):
    source = opened(npy, seed=3)
    numbers = source.original_rows(np.arange(N), 99)
    np.testing.assert_array_equal(numbers, shuffled(N, 3))
    np.testing.assert_array_equal(rows_of(source)[0][:N], X[numbers])
    some = np.array([17, 3, 2999])
    found = source.rows_called(some, 0)
    np.testing.assert_array_equal(np.sort(numbers[found]), np.sort(some))


def test_compiled_code_reads_the_file_itself(opened, npy):
    """No copy: the arrays' memory is the memory map's."""
    source = opened(npy)
    for leaf, mapped in zip(jax.tree.leaves(source.rows), source.files.leaves, strict=True):
        assert leaf.unsafe_buffer_pointer() == mapped.ctypes.data


# -- what is learned -------------------------------------------------------------------------


def test_columns_are_learned_on_the_way(opened, tmp_path, monkeypatch):
    monkeypatch.setattr("sgld.data.readers.MAX_BATCH_ROWS", 77)
    kinds = np.array(["red", "green", "blue", "äöü"])[RNG.integers(0, 4, N)]
    value = X[:, 0].astype(np.float64) * 5 + 1e4
    value[[5, 900]] = np.nan
    table = pa.table({
        "kind": pa.array([None if i == 8 else k for i, k in enumerate(kinds)]),
        "coded": pa.array(kinds).dictionary_encode(),
        "value": value,
        "count": pa.array([None if i == 2999 else i % 9 for i in range(N)], pa.int64()),
        "flag": Y > 0,
    })  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=400)
    source = opened(tmp_path / "t.parquet", missing="drop")
    stay = np.setdiff1d(np.arange(N), [5, 900, 8, 2999])
    assert (source.num_data, source.num_dropped) == (N - 4, 4)
    numbers = source.original_rows(np.arange(N - 4), 0)
    np.testing.assert_array_equal(numbers, stay[shuffled(N - 4, 0)])
    texts = source.columns["kind"].categories
    assert texts == tuple(sorted(set(kinds))) == source.columns["coded"].categories
    held = {k: np.asarray(v)[:-1] for k, v in source.rows.items()}
    np.testing.assert_array_equal(np.array(texts)[held["kind"]], kinds[numbers])
    np.testing.assert_array_equal(np.array(texts)[held["coded"]], kinds[numbers])
    np.testing.assert_array_equal(held["value"], value[numbers].astype(np.float32))
    np.testing.assert_array_equal(held["count"], numbers % 9)
    np.testing.assert_array_equal(held["flag"], Y[numbers] > 0)
    learned = source.columns["value"]
    assert learned.mean == pytest.approx(value[stay].mean(), rel=1e-13)
    assert learned.sd == pytest.approx(value[stay].std(), rel=1e-10)
    assert (learned.least, learned.most) == (value[stay].min(), value[stay].max())
    assert learned.missing == 2 and source.columns["count"].missing == 1


# -- a run -----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [1, 7, 40])
def test_it_is_certified(opened, tmp_path, order, n):
    np.save(tmp_path / "few.npy", X[:40])
    source = opened(tmp_path / "few.npy").with_batches(n, order)
    assert len(check_source(source).checks) == 6


GIVEN = {"step_size": 1e-4, "num_draws": 60, "num_chains": 2}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {**GIVEN, "batch_size": 70},
        {**GIVEN, "batch_size": 9, "order": "replacement", "gradient": sgld.SAGA()},
        {**GIVEN, "batch_size": 7, "order": "symmetric", "gradient": sgld.ControlVariates()},
        {**GIVEN, "batch_size": 5, "order": "subset", "always_in": [3, 17]},
        {**GIVEN, "gradient": sgld.Full()},
    ],
    ids=["auto", "Minibatch", "SAGA", "ControlVariates", "some in every batch", "Full"],
)
def test_draws_are_those_of_memory_to_the_bit(opened, npy, given):
    memory = sgld.sample(MODEL, (X, Y), jnp.zeros(3), progress=False, **given)
    disk = sgld.sample(MODEL, opened(npy), jnp.zeros(3), progress=False, **given)
    np.testing.assert_array_equal(disk.position, memory.position)
    assert disk.verdict.to_dict() == memory.verdict.to_dict()


def test_rows_on_disk_take_no_memory_in_the_prediction(opened, npy):
    given = {"always_in": [3], "num_draws": 20, "step_size": 1e-4, "progress": False}
    disk, memory = (
        sgld.sample(MODEL, data, jnp.zeros(3), **given).plan.predicted.bytes
        for data in (opened(npy), (X, Y))
    )
    assert memory - disk == 6 * 4 * N * 4  # six times the rows of four numbers


def test_a_run_is_resumed_with_the_same_rows_only(opened, npy, parquet, tmp_path):
    run, init = tmp_path / "run", jnp.zeros(3)
    whole = sgld.sample(MODEL, opened(npy), init, path=run, progress=False, **GIVEN)
    for name in ("result.json", "summary.json", "draws.npz"):
        (run / name).unlink()
    with pytest.raises(sgld.errors.RunError, match="other values of the data"):
        sgld.resume(run, MODEL, opened(npy, seed=1), init, progress=False)
    table = opened(parquet, columns=NAMES)  # the same rows, from another kind of file
    again = sgld.resume(run, MODEL, table, init, progress=False)
    np.testing.assert_array_equal(again.position, whole.position)


# -- the cache -------------------------------------------------------------------------------


def test_a_cache_is_used_again_wherever_the_file_lies(opened, npy, tmp_path, monkeypatch):
    made = conversions(monkeypatch)
    first = opened(npy[0])
    shutil.copy(npy[0], tmp_path / "copy.npy")
    assert opened(npy[0]).hash() == opened(tmp_path / "copy.npy").hash() == first.hash()
    assert len(made) == 1
    opened(npy[0], seed=1)
    assert len(made) == 2


def test_a_file_that_changed_is_converted_anew(opened, npy, monkeypatch):
    made = conversions(monkeypatch)
    before = opened(npy[1])
    changed = Y.copy()
    changed[5] += 1
    np.save(npy[1], changed)
    after = opened(npy[1])
    assert len(made) == 2 and before.hash() != after.hash()
    same(after, InMemory.of(changed, 0))


def test_what_is_remembered_of_a_file_is_no_older_than_it(opened, npy, tmp_path, monkeypatch):
    """Bytes are read once to be known; a file of another time is read again."""
    os.utime(npy[1], ns=(10**18, 10**18))
    opened(npy[1])
    seen = lambda: [*(tmp_path / "cache").glob("seen-*")]  # noqa: E731
    assert not seen()  # it was changed just now, and might again, with the same time
    monkeypatch.setattr("sgld.data.cache.RACY_NS", -1.0)
    before = opened(npy[1])
    (memory,) = seen()
    assert opened(npy[1]).hash() == before.hash()
    assert memory.is_file()
    np.save(npy[1], Y + 1)
    os.utime(npy[1], ns=(10**18 + 1, 10**18 + 1))
    same(opened(npy[1]), InMemory.of(Y + 1, 0))


def test_it_tells_its_size_and_whether_it_was_used_again(npy, tmp_path, capsys):
    for said in ("made in", "used again"):
        sgld.open(npy[0], cache=tmp_path / "c")
        told = capsys.readouterr().err
        assert f"{npy[0]}: 3,000 rows; shuffled in {tmp_path / 'c'}" in told
        assert said in told and "0.0343 MiB" in told


def test_the_folder_is_that_of_the_variable(npy, tmp_path, monkeypatch):
    monkeypatch.setenv("SGLD_DATA_CACHE", str(tmp_path / "named"))
    source = sgld.open(npy[0], progress=False)
    assert os.path.dirname(os.path.dirname(source.files.paths[0])) == str(tmp_path / "named")


@pytest.mark.parametrize("whose", ["the file", "the cache"])
def test_bytes_that_changed_while_size_and_time_stay_are_seen(opened, npy, tmp_path, whose):
    os.utime(npy[1], ns=(10**18, 10**18))
    opened(npy[1])
    path = npy[1]
    if whose == "the cache":
        (path,) = (p for p in (tmp_path / "cache").glob("*/0.npy"))
    found = os.stat(path)
    content = bytearray(path.read_bytes())
    content[-8:] = bytes(8)  # of the last row in the file
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    expected = np.load(npy[1])
    same(opened(npy[1]), InMemory.of(expected, 0))


def test_parts_of_a_folder_come_in_numeric_order(tmp_path):
    names = [f"part-{i}.csv" for i in (1, 2, 10)]
    for name in names:
        (tmp_path / name).write_text("x\n1\n")
    assert [path.name for path in sgld.data.table_files.table_files(tmp_path)] == names
