"""Databases and queries: SQLite by Python's own reader, DuckDB by DuckDB."""

import sqlite3
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from test_open import NAMES, TABLE, N, X, Y, conversions, same

import sgld
from sgld.data import databases
from sgld.data.memory import InMemory
from sgld.errors import DataError, MissingExtra, UsageError


@pytest.fixture
def sqlite(tmp_path):
    with sqlite3.connect(tmp_path / "rows.sqlite") as connection:
        connection.execute("create table visits (y real, a real, b real, c real, kind text)")
        kinds = ["odd" if i % 2 else "even" for i in range(N)]
        rows = zip(Y.tolist(), *X.T.tolist(), kinds, strict=True)
        connection.executemany("insert into visits values (?, ?, ?, ?, ?)", rows)
    connection.close()
    return tmp_path / "rows.sqlite"


@pytest.fixture
def duck(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
        connection.register("given", TABLE)
        connection.execute("create table visits as select * from given")
    return tmp_path / "rows.duckdb"


def test_a_table_of_sqlite(opened, sqlite, monkeypatch):
    made = conversions(monkeypatch)
    source = opened(sqlite, columns=NAMES)
    same(source, InMemory.of((X, Y), 0))
    opened(sqlite, columns=NAMES)
    assert len(made) == 1
    kinds = opened(sqlite, columns="kind")
    assert kinds.columns["kind"].categories == ("even", "odd")


def test_a_query_on_sqlite(opened, sqlite):
    query = "select a, b, c, y from visits where kind = 'odd'"
    same(opened(query, database=sqlite, columns=NAMES), InMemory.of((X[1::2], Y[1::2]), 0))


def test_sqlite_cells_of_several_types_are_refused(opened, sqlite):
    with sqlite3.connect(sqlite) as connection:
        connection.execute("update visits set a = 'x' where rowid = 5")
    connection.close()
    with pytest.raises(DataError, match=r"column 'a' of visits .* several types \(real, text\)"):
        opened(sqlite, columns=NAMES)


def test_a_table_of_duckdb_and_a_query(opened, duck, monkeypatch):
    made = conversions(monkeypatch)
    same(opened(duck, columns=NAMES), InMemory.of((X, Y), 0))
    opened(duck, columns=NAMES)
    assert len(made) == 1
    query = "select a, b, c, y from visits where unused % 2 = 1"
    same(opened(query, database=duck, columns=NAMES), InMemory.of((X[1::2], Y[1::2]), 0))


def test_a_query_on_files_is_run_again_and_its_rows_found(opened, tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    for k in range(2):
        pq.write_table(TABLE.slice(k * N // 2, N // 2), tmp_path / f"{k}.parquet")
    made = conversions(monkeypatch)
    query = f"select * from '{tmp_path}/*.parquet' order by unused"
    sources = [opened(query, columns=NAMES) for _ in range(2)]
    same(sources[0], InMemory.of((X, Y), 0))
    assert len(made) == 2 and sources[0].files.paths == sources[1].files.paths
    pq.write_table(TABLE.slice(N // 2, 100), tmp_path / "1.parquet")
    assert opened(query, columns=NAMES).num_data == N // 2 + 100


def test_enums_and_decimals_of_duckdb(opened, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "e.duckdb")) as connection:
        connection.execute("create type kind as enum ('b', 'a', 'unused')")
        connection.execute(
            "create table t as select ['a', 'b'][1 + i % 2]::kind k, (i / 4)::decimal(8, 2) v, i % 3 = 0 f "
            "from range(100) s(i)"
        )
    source = opened(tmp_path / "e.duckdb")
    at = source.original_rows(np.arange(100), 0)
    held = {name: np.asarray(leaf)[:-1] for name, leaf in source.rows.items()}
    assert source.columns["k"].categories == ("a", "b")
    np.testing.assert_array_equal(held["k"], at % 2)
    np.testing.assert_array_equal(held["v"], (at / 4).astype(np.float32))
    np.testing.assert_array_equal(held["f"], at % 3 == 0)


def test_a_query_on_a_database_reads_nothing_else(opened, duck, tmp_path):
    pq.write_table(TABLE, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"cannot be read by DuckDB: .*disabled"):
        opened(f"select * from '{tmp_path}/t.parquet'", database=duck)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("select 1.0 as x where false",), r"the query 'select 1.0 as x where false' has no row"),
        (("select nothing from nowhere",), "cannot be read by DuckDB: Catalog Error"),
        (("select date '2020-01-01' as day",), "column 'day' of the query .* holds date32"),
    ],
)
def test_queries_that_give_no_rows_are_refused(opened, given, message):
    pytest.importorskip("duckdb")
    with pytest.raises(DataError, match=message):
        opened(*given)


def test_a_table_must_be_named_where_there_are_several(opened, sqlite):
    with sqlite3.connect(sqlite) as connection:
        connection.execute("create table other (x real)")
        connection.execute("insert into other values (1.5)")
    connection.close()
    with pytest.raises(UsageError, match="name one with table=: the tables are other, visits"):
        opened(sqlite)
    with pytest.raises(DataError, match=r"no table 'visit'.* Did you mean 'visits'?"):
        opened(sqlite, table="visit")
    assert opened(sqlite, table="other").num_data == 1
    with pytest.raises(UsageError, match="table must be"):
        opened("select 1", table="x")
    with pytest.raises(UsageError, match="are only for database files"):
        opened(X, table="x")


def test_what_is_no_database_is_refused(opened, tmp_path):
    (tmp_path / "x.duckdb").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="not a DuckDB or SQLite database"):
        opened("select 1", database=tmp_path / "x.duckdb")
    with pytest.raises(DataError, match=r"has the extension '\.duckdb'"):
        opened(tmp_path / "x.duckdb")


def test_without_duckdb_one_sentence_says_what_to_install(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtra, match=r"pip install 'sgld\[duckdb\]'"):
        opened("select 1 as x")


def test_a_log_beside_a_database_belongs_to_it(sqlite):
    log = sqlite.with_name(sqlite.name + "-wal")
    assert databases.database_files(sqlite) == [sqlite]
    log.write_bytes(b"more")
    assert databases.database_files(sqlite) == [sqlite, log]


def test_a_run_on_a_query(opened, sqlite):
    posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, y: -0.5 * (y - t) ** 2)
    source = opened("select y from visits", database=sqlite, columns="y")
    draws = sgld.sample(posterior, source, 0.0, progress=False)
    assert draws.verdict.word == "trusted"
    assert abs(float(draws.mean()) - Y.sum() / (N + 1)) < 0.2 / np.sqrt(N)


@pytest.mark.parametrize("sample", ["using sample 10", "tablesample bernoulli(10%)"])
def test_a_sample_without_a_seed_is_refused(opened, duck, sample):
    with pytest.raises(UsageError, match=r"other rows each time.* repeatable"):
        opened(f"select y from visits {sample}", database=duck)


@pytest.mark.parametrize("sample", ["using sample 20 rows (reservoir, 7)", "tablesample reservoir(20) repeatable (7)"])  # fmt: skip
def test_a_sample_with_a_seed_is_the_same_each_time(opened, duck, sample):
    query = f"select y from visits {sample}"
    assert opened(query, database=duck).hash() == opened(query, database=duck).hash()
