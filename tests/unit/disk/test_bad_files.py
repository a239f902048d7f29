"""What a disk can hold that is wrong: each is one sentence, and nothing is left behind."""

import errno
import gzip
import os
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from on_disk_rows import MODEL, NAMES, TABLE, N, X, Y, conversions, same

import sgld
from sgld.data import cache as caches
from sgld.data import convert as converting
from sgld.data import open as opening
from sgld.data import readers
from sgld.data.memory import InMemory
from sgld.errors import DataError, UsageError


def left(tmp_path):
    """The folders that a call left in the cache, hidden ones too."""
    return [p.name for p in (tmp_path / "cache").iterdir() if p.is_dir()]


@pytest.fixture
def folder(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    for k in range(3):
        pq.write_table(TABLE.slice(k * 1000, 1000), parts / f"{k}.parquet")
    return parts


def rewritten(path, column, values):
    table = pq.read_table(path)
    at = table.column_names.index(column)
    new = table.remove_column(at) if values is None else table.set_column(at, column, values(table))
    pq.write_table(new, path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "1.parquet lacks the column 'c' that .*0.parquet has; add it there"),
        (
            lambda t: pa.array(["x"] * 1000),
            "the column 'c' has type string in .*1.parquet, and float in .*0.parquet; write it with one type",
        ),
        (lambda t: pa.array([True] * 1000), "the column 'c' has type bool in .*1.parquet"),
    ],
)
def test_parts_that_do_not_agree(opened, folder, tmp_path, values, message):
    rewritten(folder / "1.parquet", "c", values)
    with pytest.raises(DataError, match=message):
        opened(folder, columns=NAMES)
    assert left(tmp_path) == []
    assert opened(folder, columns=["a", "b"]).num_data == N  # the other columns can be read


def test_parts_may_hold_numbers_of_other_sizes(opened, folder):
    rewritten(folder / "1.parquet", "c", lambda t: t["c"].cast(pa.float64()))
    rewritten(folder / "2.parquet", "unused", lambda t: t["unused"].cast(pa.float32()))
    same(opened(folder, columns=NAMES), InMemory.of((X, Y), 0))
    unused = opened(folder, columns="unused")
    same(unused, InMemory.of(np.arange(N, dtype=np.float32), 0))
    assert unused.columns["unused"].kind == "number"


def test_files_that_were_cut_short(opened, folder, tmp_path):
    feather, npy = tmp_path / "t.arrow", tmp_path / "x.npy"
    pa.feather.write_feather(TABLE, feather, compression="uncompressed")
    np.save(npy, X)
    for path, keep, message in [
        (folder / "2.parquet", 0.5, "2.parquet is a truncated Parquet file"),
        (feather, 0.5, "t.arrow cannot be read as ipc"),
        (npy, 0.5, r"x.npy is truncated: it has \d\d,\d\d\d bytes of 36,128; copy it again"),
        (npy, 0.0, "x.npy cannot be read as .npy"),
    ]:
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * keep)])
        data = folder if path.suffix == ".parquet" else path
        with pytest.raises(DataError, match=message):
            opened(data, **({} if path.suffix == ".npy" else {"columns": NAMES}))
    assert left(tmp_path) == []


def test_a_parquet_file_whose_middle_is_damaged(opened, folder, tmp_path):
    path = folder / "1.parquet"
    content = bytearray(path.read_bytes())
    content[2000:6000] = os.urandom(4000)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"1.parquet cannot be read as parquet: .* write it again"):
        opened(folder, columns=NAMES)
    assert left(tmp_path) == []


def test_csv_rows_that_are_ragged_and_types_that_do_not_last(opened, tmp_path, monkeypatch):
    monkeypatch.setattr("sgld.data.delimited.CSV_BLOCK_BYTES", 500)
    path = tmp_path / "t.csv"
    lines = [f"{i},{i}" for i in range(500)]
    path.write_text("a,b\n" + "\n".join(lines) + "\n1,2,3\n")
    with pytest.raises(DataError, match="line 502 has 3 cells, and the header has 2"):
        opened(path)
    lines[400] = "400.5,x"  # far behind the first block: a becomes floating point, b text
    path.write_text("a,b\n" + "\n".join(lines) + "\n")
    source = opened(path)
    assert source.columns["a"].most == 499 and source.columns["a"].kind == "number"
    assert source.columns["b"].kind == "text" and "x" in source.columns["b"].categories


CELLS = [
    (pa.array([1.0, None, 3.0]), "has an empty cell .* in data row 2; fill it in, or .*missing='drop'"),
    (pa.array([1.0, 2.0, np.nan]), "has an empty cell .*row 3"),
    (pa.array([1.0, np.inf, 2.0]), "column 'x' of .* is inf in data row 2"),
    (pa.array([1.0, 1e300, 2.0]), "column 'x' of .* is 1e\\+300 in data row 2, .*float32"),
    (pa.array([1, 2, 2**24 + 1]), "column 'x' of .* is 16777217 in data row 3, above 2"),
    (pa.array([b"\xff", b"a", b"b"]), "column 'x' of .* holds binary values"),
    (pa.nulls(3), "column 'x' of .* holds no values at all"),
]  # fmt: skip


@pytest.mark.parametrize(("cells", "message"), CELLS)
def test_cells_that_no_run_can_take(opened, tmp_path, cells, message):
    pq.write_table(pa.table({"x": cells}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=message):
        opened(tmp_path / "t.parquet")
    assert left(tmp_path) == []


def test_rows_without_a_whole_one_and_without_any(opened, tmp_path):
    pq.write_table(pa.table({"x": pa.array([None, None], pa.float64())}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"every one of the 2 rows of .* has an empty cell"):
        opened(tmp_path / "t.parquet", missing="drop")
    pq.write_table(pa.table({"x": pa.array([], pa.float64())}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="has no row"):
        opened(tmp_path / "t.parquet")
    np.save(tmp_path / "x.npy", X[:0])
    with pytest.raises(DataError, match="has 0 rows"):
        opened(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.float64(3), "is a single number"),
        (np.array(["a"]), "has dtype <U1; encode it as real numbers"),
        (np.array([1 + 2j]), "has dtype complex128"),
        (np.array([1.0, np.nan]), r"holds nan at row 1 \(counted from 0\)"),
    ],
)
def test_arrays_that_no_run_can_take(opened, tmp_path, array, message):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DataError, match=message):
        opened(tmp_path / "x.npy")


def test_a_bad_number_far_inside_is_named_by_its_row(opened, tmp_path, monkeypatch):
    monkeypatch.setattr("sgld.data.arrays.MAX_HELD_BYTES", 1000)
    x = X.copy()
    x[2345, 1] = np.inf
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(DataError, match=r"holds inf at row 2345, column \(1,\)"):
        opened(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("data", "given", "message"),
    [
        (5, {}, "Got int"),
        ({"x": 3}, {}, "Got dict"),
        ({"x": X}, {}, "a dict of arrays cannot be opened"),
        (["x.npy", "y.npy"], {}, r"x\.npy is an array; give \.npy files in a tuple or dict"),
        (X, {"columns": "a"}, "items are used unchanged"),
        (X, {"missing": "keep"}, "missing must be one of error, drop"),
        (X, {"seed": -1.5}, "seed"),
        (X, {"sep": 3}, "sep and decimal must be text. Got 3"),
    ],
)
def test_arguments_that_cannot_be_meant(opened, data, given, message):
    with pytest.raises(UsageError, match=message):
        opened(data, **given)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, X[:, 0]), r"a tuple of arrays cannot be opened: .* sgld\.sample\(posterior, \(x, y\)"),
        (pa.table({"x": [1.0]}), "a Table is in memory already"),
        (pa.table({"x": [1.0]}).to_pandas(), "a DataFrame is in memory already"),
    ],
)
def test_what_is_in_memory_is_given_elsewhere(opened, data, message):
    with pytest.raises(UsageError, match=message):
        opened(data)


def test_items_may_have_columns_of_their_own(opened):
    class Rows:
        columns = ("a", "b", "c")

        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return X[i]

    assert opened(Rows()).num_data == len(X)


def test_numbers_that_a_parquet_file_holds_as_text_are_not_of_its_spelling(opened, tmp_path):
    pq.write_table(pa.table({"x": ["1,5", "2,5"], "y": [1.0, 2.0]}), tmp_path / "x.parquet")
    with pytest.raises(
        DataError, match=r"a decimal comma.*; convert them to numbers in a query, or"
    ):
        opened(tmp_path / "x.parquet")


def test_a_query_whose_column_is_empty_has_rows(opened):
    pytest.importorskip("duckdb")
    with pytest.raises(DataError, match=r"column 'x' of .* holds no values at all"):
        opened("select null as x, 1.0 as y from range(10)")
    with pytest.raises(DataError, match="has no row"):
        opened("select null as x from range(0)")


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_text_is_read_as_it_is_written(opened, tmp_path, ending):
    path, content = tmp_path / f"t.{ending}", "x;y\n1,5;a\n2,5;b\n"
    path.write_bytes(gzip.compress(content.encode()) if ending.endswith("gz") else content.encode())
    with pytest.raises(DataError, match=r"'x' holds numbers with a decimal comma.*decimal=','"):
        opened(path)
    rows = opened(path, decimal=",", columns="x")
    assert sorted(np.asarray(rows.take(np.arange(2))).tolist()) == [1.5, 2.5]
    path.write_bytes(path.read_bytes().replace(b";", b"#"))
    if ending == "csv":
        assert opened(path, sep="#", decimal=",").columns["x"].mean == 2.0
    with pytest.raises(UsageError, match="sep and decimal are only for text files"):
        opened((X,), decimal=",")


def test_a_gzip_file_that_was_cut_short(opened, tmp_path):
    content = gzip.compress(b"x,y\n" + b"1.25,2.5\n" * 10_000)
    for size in (len(content) // 2, len(content) - 4):
        (tmp_path / "t.csv.gz").write_bytes(content[:size])
        with pytest.raises(
            DataError, match=r"t\.csv\.gz (is a damaged gzip file|cannot be read as csv)"
        ):
            opened(tmp_path / "t.csv.gz")


def test_a_pattern_of_names_is_answered_with_what_to_write(opened, folder, tmp_path):
    with pytest.raises(
        DataError, match=r"patterns are not expanded; give the folder .* or a query"
    ):
        opened(folder / "*.parquet")


def test_names_that_are_not_there(opened, folder, tmp_path):
    with pytest.raises(DataError, match="there is no column 'A'; the columns are"):
        opened(folder, columns="A")
    with pytest.raises(UsageError, match="columns must be names"):
        opened(folder, columns=("a", 5))
    with pytest.raises(DataError, match="there is no file"):
        opened(tmp_path / "none.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="is a folder without a table"):
        opened(tmp_path / "empty")
    np.save(tmp_path / "y.npy", Y[:5])
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(DataError, match="differ in their number of rows"):
        opened((tmp_path / "x.npy", tmp_path / "y.npy"))


def test_items_that_are_not_alike(opened):
    class Items(list):
        pass

    items = Items([{"x": 1.0}, {"x": 2.0}, {"y": 1.0}])
    with pytest.raises(
        DataError, match="item 2 of a Items has the leaves y, and item 0 has x; all"
    ):
        opened(items)
    with pytest.raises(DataError, match=r"'x' of item 1 of a Items has shape \(2,\)"):
        opened(Items([{"x": 1.0}, {"x": np.ones(2)}]))


# -- files that change -----------------------------------------------------------------------


def test_a_file_that_changes_while_it_is_read(opened, folder, tmp_path, monkeypatch):
    convert = opening.convert

    def meanwhile(*given):
        found = convert(*given)
        rewritten(folder / "2.parquet", "c", lambda t: t["a"])
        return found

    monkeypatch.setattr(opening, "convert", meanwhile)
    with pytest.raises(DataError, match=r"2.parquet changed while it was read; open it again"):
        opened(folder, columns=NAMES)
    assert left(tmp_path) == []


def test_an_array_that_is_cut_short_while_it_is_read(opened, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr("sgld.data.arrays.MAX_HELD_BYTES", 12000)
    told = opening.report_rows

    def meanwhile(done, total):
        os.truncate(tmp_path / "x.npy", 20_000)
        told(done, total)

    monkeypatch.setattr(opening, "report_rows", meanwhile)
    with pytest.raises(DataError, match=r"x.npy was cut short while it was read"):
        opened(tmp_path / "x.npy")
    assert left(tmp_path) == []


def test_a_cache_that_is_written_to_during_a_run(opened, tmp_path):
    np.save(tmp_path / "x.npy", X)
    source = opened(tmp_path / "x.npy").with_batches(10, "reshuffle")
    source.chunk((0, 0), 0, 5)
    with open(source.files.paths[0], "r+b") as file:
        file.seek(200)
        file.write(b"other")
    with pytest.raises(DataError, match="was changed while it was read; delete it"):
        source.chunk((0, 0), 5, 5)


# -- caches that do not hold what they should ------------------------------------------------


def flip(path):
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a byte of a leaf": lambda cache: flip(cache / "0.npy"),
    "a byte of the order": lambda cache: flip(cache / "order.npy"),
    "a leaf cut short": lambda cache: os.truncate(cache / "1.npy", 500),
    "a leaf with more behind it": lambda cache: (cache / "1.npy").open("ab").write(b"more"),
    "no leaf": lambda cache: (cache / "1.npy").unlink(),
    "no manifest": lambda cache: (cache / "rows.json").unlink(),
    "an edited manifest": lambda cache: (cache / "rows.json").write_text(
        (cache / "rows.json").read_text().replace("3000", "2999")
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_damaged_cache_is_made_anew(opened, tmp_path, damage, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    data = (tmp_path / "x.npy", tmp_path / "y.npy")
    cache = Path(opened(data).files.paths[0]).parent
    DAMAGE[damage](cache)
    made = conversions(monkeypatch)
    same(opened(data), InMemory.of((X, Y), 0))
    assert made == [1]


def test_a_cache_that_was_copied_is_looked_at_once_and_used(opened, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    cache = Path(opened(tmp_path / "x.npy").files.paths[0]).parent
    for path in cache.iterdir():
        os.utime(path, ns=(1, 1))
    made, looked = conversions(monkeypatch), []
    whole = caches.Cache._is_whole
    monkeypatch.setattr(caches.Cache, "_is_whole", lambda *given: looked.append(1) or whole(*given))
    for _ in range(2):
        same(opened(tmp_path / "x.npy"), InMemory.of(X, 0))
    assert not made and looked == [1]


# -- disks that fill up, and conversions that are stopped ------------------------------------


class Full:
    """A disk with room for so many writes."""

    def __init__(self, room):
        self.room = room

    def of(self, write):
        def limited(*given):
            self.room -= 1
            if self.room < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*given)

        return limited


def test_a_disk_that_is_full_at_any_write(opened, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr(readers, "MAX_HELD_BYTES", 9000)
    monkeypatch.setattr("sgld.data.arrays.MAX_HELD_BYTES", 9000)
    room = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            disk = Full(room)
            patch.setattr(caches.Writer, "write", disk.of(caches.Writer.write))
            patch.setattr(readers.Spill, "add", disk.of(readers.Spill.add))
            try:
                source = opened(tmp_path / "x.npy")
            except DataError as error:
                assert "is full: the shuffled rows need twice their size" in str(error)
                assert "cache=" in str(error) and left(tmp_path) == []
                room += 1
                continue
        break
    assert room > 8
    same(source, InMemory.of(X, 0))


KILLED = """
import os, signal, sys
import numpy as np, sgld
from sgld.data import arrays, cache, open as opening, readers as spill
arrays.MAX_HELD_BYTES = spill.MAX_HELD_BYTES = 9000
where, count = sys.argv[2], int(sys.argv[3])
def killing(function):
    def called(*given):
        global count
        count -= 1
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given)
    return called
if where == "rows":
    opening.report_rows = killing(opening.report_rows)
else:
    os.fsync = killing(os.fsync)
    os.rename = killing(os.rename)
sgld.open(sys.argv[1] + "/x.npy", cache=sys.argv[1] + "/cache", progress=False)
"""


@pytest.mark.parametrize(
    ("where", "count"), [("rows", 1), ("rows", 6), ("sync", 0), ("sync", 2), ("sync", 7)]
)
def test_a_conversion_that_is_killed_is_made_anew(opened, tmp_path, where, count, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), where, str(count)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -9, done.stderr
    made = conversions(monkeypatch)
    same(opened(tmp_path / "x.npy"), InMemory.of(X, 0))
    assert [name for name in left(tmp_path) if name.startswith(".")] == []
    assert len(made) == 1 or (where, count) == ("sync", 7)


def test_a_conversion_at_work_is_left_alone(tmp_path):
    cache = caches.Cache(tmp_path)
    with cache.scratch() as first:
        (first / "rows").write_text("at work")
        with cache.scratch():
            assert (first / "rows").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_lost_its_lock_long_ago_is_removed(tmp_path):
    for name, age in {".partial-old": 100, ".partial-new": 0}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows").write_text("what a kill left of what was being removed")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    with caches.Cache(tmp_path).scratch():
        assert not (tmp_path / ".partial-old").exists()
        assert (tmp_path / ".partial-new" / "rows").exists()


def test_half_a_file_that_is_old_is_removed(tmp_path):
    for name, age in {".partial-old": 100, ".partial-new": 0}.items():
        (tmp_path / name).write_text("{")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    with caches.Cache(tmp_path).scratch():
        pass
    assert [path.name for path in tmp_path.iterdir()] == [".partial-new"]


def test_two_conversions_of_one_file_at_once(opened, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    convert = opening.convert

    def meanwhile(*given):
        monkeypatch.setattr(opening, "convert", convert)
        opened(tmp_path / "x.npy")  # another process is the first
        return convert(*given)

    monkeypatch.setattr(opening, "convert", meanwhile)
    same(opened(tmp_path / "x.npy"), InMemory.of(X, 0))
    assert len(left(tmp_path)) == 1


def test_a_cache_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="could not be created for the cache"):
        sgld.open(X, cache=tmp_path / "file" / "cache", progress=False)


def test_more_rows_than_can_be_numbered(opened, monkeypatch):
    monkeypatch.setattr(converting, "MAX_INT32_ROWS", 2999)
    with pytest.raises(DataError, match="has 3,000 rows, and at most 2,999 are supported"):
        opened(X)


def test_a_run_goes_on_without_the_file_that_was_opened(opened, tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    source = opened((tmp_path / "x.npy", tmp_path / "y.npy"))
    (tmp_path / "x.npy").unlink()
    given = {"step_size": 1e-4, "num_draws": 40, "num_chains": 2, "progress": False}
    draws = sgld.sample(MODEL, source, jnp.zeros(3), **given)
    memory = sgld.sample(MODEL, (X, Y), jnp.zeros(3), **given)
    np.testing.assert_array_equal(draws.position, memory.position)
