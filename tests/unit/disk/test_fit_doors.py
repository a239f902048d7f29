"""`sgld.fit` on what `sgld.open` reads tables of: folders, databases, queries; the run knows them again."""

import json
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sgld
from sgld.errors import DataError, RunError, UsageError

RNG = np.random.default_rng(5)
N = 300
TABLE = pa.table({
    "x": RNG.normal(size=N),
    "town": np.array(["inner", "outer"])[RNG.integers(0, 2, N)],
    "y": RNG.poisson(1.0, N),
})  # fmt: skip
QUICK = {"step_size": 1e-3, "num_draws": 60, "num_chains": 2, "progress": False}


def fitted(data, **given):
    return sgld.fit(data, "y ~ x + C(town)", family="poisson", **{**QUICK, **given})


@pytest.fixture(scope="module")
def expected():
    return fitted(TABLE).draws.position["coefficients"]


@pytest.fixture
def folder(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    for k in range(3):
        part = TABLE.slice(100 * k, 100)
        pq.write_table(
            part.select(sorted(part.column_names, reverse=k == 1)), parts / f"{k}.parquet"
        )
    return parts


@pytest.fixture
def sqlite(tmp_path):
    with sqlite3.connect(tmp_path / "rows.sqlite") as connection:
        connection.execute("create table visits (x real, town text, y integer)")
        rows = zip(*(TABLE[name].to_pylist() for name in TABLE.column_names), strict=True)
        connection.executemany("insert into visits values (?, ?, ?)", rows)
    connection.close()
    return tmp_path / "rows.sqlite"


def unfinished(run):
    """As a run that was killed before its result."""
    for name in ("result.json", "summary.json", "draws.npz"):
        (run / name).unlink()


def test_a_folder_of_parquet(folder, expected, tmp_path):
    fit = fitted(folder, out=tmp_path / "run")
    np.testing.assert_array_equal(fit.draws.position["coefficients"], expected)
    unfinished(tmp_path / "run")
    again = sgld.resume(tmp_path / "run", progress=False)
    np.testing.assert_array_equal(again.position["coefficients"], expected)
    assert fit.predict(folder).num_rows == N
    unfinished(tmp_path / "run")
    pq.write_table(TABLE.slice(0, 50), folder / "3.parquet")
    with pytest.raises(RunError, match="parts has changed since the run"):
        sgld.resume(tmp_path / "run", progress=False)


def test_a_table_of_a_database(sqlite, expected, tmp_path):
    fit = fitted(sqlite, out=tmp_path / "run")
    np.testing.assert_array_equal(fit.draws.position["coefficients"], expected)
    unfinished(tmp_path / "run")
    sgld.resume(tmp_path / "run", progress=False)
    unfinished(tmp_path / "run")
    moved = sqlite.rename(sqlite.with_name("moved"))
    with pytest.raises(RunError, match=r"data file .*rows.sqlite is missing; restore it"):
        sgld.resume(tmp_path / "run", progress=False)
    moved.rename(sqlite)
    with sqlite3.connect(sqlite) as connection:
        connection.execute("update visits set y = y + 1")
    connection.close()
    with pytest.raises(RunError, match="has changed since"):
        sgld.resume(tmp_path / "run", progress=False)


def test_a_query_on_a_database(sqlite, expected, tmp_path):
    query = "select y, town, x from visits where x > 0"
    fit = fitted(query, database=sqlite, out=tmp_path / "run")
    keep = TABLE.filter(pa.array(TABLE["x"].to_numpy() > 0))
    same = fitted(keep.select(["y", "town", "x"])).draws.position["coefficients"]
    np.testing.assert_array_equal(fit.draws.position["coefficients"], same)
    unfinished(tmp_path / "run")
    again = sgld.resume(tmp_path / "run", progress=False)
    np.testing.assert_array_equal(again.position["coefficients"], same)


def test_duckdb_files_and_queries_on_files(folder, expected, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
        connection.register("given", TABLE)
        connection.execute("create table visits as select * from given")
    fit = fitted(tmp_path / "rows.duckdb")
    np.testing.assert_array_equal(fit.draws.position["coefficients"], expected)
    query = f"select * from read_parquet('{folder}/*.parquet', union_by_name = true)"
    fit = fitted(query, out=tmp_path / "run")
    np.testing.assert_array_equal(fit.draws.position["coefficients"], expected)
    unfinished(tmp_path / "run")
    with pytest.raises(
        RunError, match="started from a query that reads files, and such a query is not repeated"
    ):
        sgld.resume(tmp_path / "run", progress=False)


def test_a_forged_run_reads_no_file_by_a_query(tmp_path):
    """A run directory is another's word: what it says may not make this process read files."""
    pytest.importorskip("duckdb")
    from sgld.regression.fit import model_of_run

    data = {"path": "select * from read_text('/etc/hostname')", "sha256": "0"}
    with pytest.raises(RunError, match="not repeated"):
        model_of_run({"data": data, "model": {}})
    assert json.dumps(data)


def test_what_means_nothing_is_refused(sqlite, tmp_path):
    with pytest.raises(UsageError, match="database must be used"):
        fitted(sqlite, database=sqlite)
    with pytest.raises(UsageError, match="table must be"):
        fitted("select 1", table="x")
    with pytest.raises(UsageError, match="table and database apply to database files"):
        fitted(TABLE, table="x")
    with pytest.raises(DataError, match="has no table 'visit'"):
        fitted(sqlite, table="visit")
    with pytest.raises(DataError, match="has no row"):
        fitted("select * from visits where x > 1e9", database=sqlite)
