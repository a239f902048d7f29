"""The Python door behind `sgld fit`: what run.json remembers, and predictions of a run."""

import json

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

import sgld
from sgld.data.tables import read_table
from sgld.errors import DataError, RunError, UsageError
from sgld.regression import result
from sgld.regression.fit import fit, model_of_run, predict


def rows(seed=3, size=120):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=size)
    return {"x": x, "y": 3 - x + rng.normal(size=size)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    pyarrow.csv.write_csv(pyarrow.table(rows()), folder / "rows.csv")
    seen = []
    draws = fit(
        folder / "rows.csv", "y ~ x", out=folder / "run", num_draws=300, progress=False,
        on_model=seen.append, on_plan=seen.append,
    ).draws  # fmt: skip
    return folder, draws, seen


def asked(folder):
    return json.loads((folder / "run" / "run.json").read_text())


def test_draws_have_the_formulas_names_and_the_callbacks_were_called(finished):
    _, draws, (model, plan) = finished
    assert draws.names == ("Intercept", "x", "sigma") == model.names
    assert plan.setup.num_draws == draws.num_draws == 300


def test_run_json_makes_the_model_again(finished):
    folder, _, (model, _) = finished
    content = asked(folder)
    assert content["kind"] == "formula"
    assert content["family"] == "gaussian" and content["prior"] is None
    assert content["priors"] == list(model.prior_text)
    again = model_of_run(content)
    assert again.spec == model.spec
    for new, old in zip(again.data, model.data, strict=True):
        assert np.array_equal(new, old)


def test_changed_or_missing_data_are_refused(finished, tmp_path):
    content = asked(finished[0])
    (tmp_path / "rows.csv").write_bytes((finished[0] / "rows.csv").read_bytes() + b"0,1\n")
    there = {"path": "rows.csv", "absolute": str(tmp_path / "rows.csv")}
    with pytest.raises(RunError, match=r"rows\.csv has changed"):
        model_of_run({**content, "data": {**content["data"], **there}})
    gone = {"path": "gone.csv", "absolute": str(tmp_path / "gone.csv")}
    with pytest.raises(RunError, match=r"gone\.csv is missing"):
        model_of_run({**content, "data": {**content["data"], **gone}})


def test_data_that_moved_with_the_folder_are_found(finished, tmp_path, monkeypatch):
    content = asked(finished[0])
    (tmp_path / "rows.csv").write_bytes((finished[0] / "rows.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    moved = {**content["data"], "path": "rows.csv", "absolute": str(tmp_path / "old" / "rows.csv")}
    assert model_of_run({**content, "data": moved}).names == ("Intercept", "x", "sigma")


@pytest.mark.parametrize(
    "damage", [{"data": 3}, {"data": {"path": "rows.csv"}}, {"model": {}}, {"model": 3}]
)
def test_a_damaged_run_json_is_a_sentence(finished, damage):
    with pytest.raises(RunError, match="damaged"):
        model_of_run({**asked(finished[0]), **damage})


def test_a_table_in_memory_runs_but_cannot_be_resumed(tmp_path):
    draws = fit(
        rows(), "y ~ x", num_draws=20, num_chains=2, progress=False, out=tmp_path / "run"
    ).draws
    assert draws.num_draws == 20
    content = json.loads((tmp_path / "run" / "run.json").read_text())
    with pytest.raises(RunError, match="table in memory"):
        model_of_run(content)
    assert sgld.resume(tmp_path / "run").num_draws == 20  # finished, so only read


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sampler": "sgdl"}, "Did you mean 'sgld'"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"temperature": float("nan")}, "temperature must be positive"),
        ({"checkpoint_every": -1.0}, "checkpoint_every must be positive"),
        ({"batch_size": 121}, "batch_size"),
    ],
)
def test_refused_before_anything_is_written(tmp_path, options, said):
    with pytest.raises(UsageError, match=said):
        fit(rows(), "y ~ x", out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def predictions(run, data, **how):
    """As a dict of arrays."""
    table = pyarrow.concat_tables(predict(run, data, **how))
    return {name: table.column(name).to_numpy() for name in table.column_names}


def test_predictions_do_not_depend_on_how_many_rows_are_taken_at_once(finished, monkeypatch):
    folder, draws, _ = finished
    whole = predictions(folder / "run", rows(4))
    monkeypatch.setattr(result, "PREDICTED_ROWS", 50)
    parts = predictions(folder / "run", rows(4))
    assert list(whole) == ["mean", "sd", "lower", "upper"]
    for name in ("mean", "sd"):
        assert np.allclose(whole[name], parts[name], rtol=1e-12, atol=0)
    for name in ("lower", "upper"):  # sampled: another stream per chunk of rows
        assert np.allclose(whole[name], parts[name], atol=0.3)
    mean = draws.mean()["coefficients"]
    assert np.allclose(whole["mean"], mean[0] + mean[1] * rows(4)["x"], atol=1e-5)


def test_a_file_is_predicted_in_pieces_to_the_same_bits_as_its_table(
    finished, monkeypatch, tmp_path
):
    folder, _, _ = finished
    new = {"name": [f"r{i}" for i in range(120)], **rows(4)}
    new["x"][:50] = np.nan  # the whole first piece, and the last row
    new["x"][-1] = np.nan
    table = pyarrow.table(new)
    monkeypatch.setattr(result, "PREDICTED_ROWS", 50)
    expected = predictions(folder / "run", table, ids=["name"])
    assert np.isnan(expected["mean"]).sum() == 51 and np.isfinite(expected["lower"][50:-1]).all()
    parts = tmp_path / "parts"
    parts.mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "new.parquet", row_group_size=7)
    pyarrow.parquet.write_table(table.slice(0, 63), parts / "1.parquet")
    pyarrow.parquet.write_table(table.slice(63), parts / "2.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "new.csv")
    query = f"SELECT name, x FROM '{tmp_path / 'new.parquet'}'"
    pytest.importorskip("duckdb")
    for data in (tmp_path / "new.parquet", parts, tmp_path / "new.csv", query):
        pieces = list(predict(folder / "run", data, ids=["name"]))
        assert [piece.num_rows for piece in pieces] == [50, 50, 20], data
        assert len({piece.schema for piece in pieces}) == 1
        found = predictions(folder / "run", data, ids=["name"])
        for name, values in expected.items():
            assert np.array_equal(values, found[name], equal_nan=name != "name"), (data, name)


def test_pieces_without_any_whole_row_are_refused_and_files_that_change_too(
    finished, monkeypatch, tmp_path
):
    monkeypatch.setattr(result, "PREDICTED_ROWS", 50)
    new = rows(4)
    path = tmp_path / "new.parquet"
    pyarrow.parquet.write_table(pyarrow.table(new), path)
    pieces = predict(finished[0] / "run", path)
    next(pieces)
    pyarrow.parquet.write_table(pyarrow.table(new).slice(0, 100), path)
    with pytest.raises(DataError, match="changed while it was read"):
        list(pieces)
    new["x"][:] = np.nan
    pyarrow.parquet.write_table(pyarrow.table(new), path)
    with pytest.raises(DataError, match="'x' is "):
        list(predict(finished[0] / "run", path))
    pyarrow.parquet.write_table(pyarrow.table(new).slice(0, 0), path)
    with pytest.raises(DataError, match="no row"):
        list(predict(finished[0] / "run", path))


def test_a_bad_row_is_counted_from_the_start_of_the_table(finished, monkeypatch):
    monkeypatch.setattr(result, "PREDICTED_ROWS", 50)
    bad = rows(4)
    bad["x"][110] = np.inf
    with pytest.raises(DataError, match="row 111"):
        list(predict(finished[0] / "run", bad))


def test_predict_needs_a_formula_run(finished, tmp_path):
    finished[1].save(tmp_path / "saved")
    with pytest.raises(RunError, match=r"was not made by sgld\.fit"):
        next(predict(tmp_path / "saved", read_table(finished[0] / "rows.csv")))


@pytest.fixture(scope="module")
def successes(tmp_path_factory):
    """A run of binomial outcomes, and rows like its own."""
    rng = np.random.default_rng(1)
    x, n = rng.normal(size=120), rng.integers(1, 9, 120)
    y = rng.binomial(n, 0.5)
    folder = tmp_path_factory.mktemp("successes")
    asked = {"family": "binomial", "trials": "n", "num_draws": 60, "progress": False}
    fit({"x": x, "n": n, "y": y}, "y ~ x", out=folder / "run", **asked)
    return folder / "run", {"x": x[:4], "n": n[:4].astype(float)}


@pytest.mark.parametrize("trials", [2.5, 0.0, -3.0])
def test_trials_of_new_rows_are_whole_numbers(successes, trials):
    run, new = successes
    new = {**new, "n": np.array([3.0, trials, 2.0, 1.0])}
    with pytest.raises(DataError, match=f"'n' is {trials:g} in data row 2; trials must be whole"):
        list(predict(run, new))


def test_what_is_handed_on_stays_as_it_is_written(finished, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text(
        "id,when,x\n007,2024-01-01 00:00:00+01:00,0.5\n012,2024-02-01 00:00:00+01:00,1\n"
    )
    table = pyarrow.concat_tables(predict(finished[0] / "run", path, ids=["id", "when"]))
    assert table["id"].to_pylist() == ["007", "012"]
    assert table["when"].to_pylist()[0] == "2024-01-01 00:00:00+01:00"
    again = pyarrow.concat_tables(predict(finished[0] / "run", path, ids=["x"]))
    assert again["x"].to_pylist() == [0.5, 1.0]  # what predicts is a number
    assert np.array_equal(again["mean"], table["mean"])


def test_a_header_alone_has_no_row(finished, tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("x\n")
    with pytest.raises(DataError, match=r"empty\.csv has no row"):
        list(predict(finished[0] / "run", path))


def test_a_column_that_later_rows_make_text_is_told_so(finished, monkeypatch, tmp_path):
    monkeypatch.setattr(result, "PREDICTED_ROWS", 50)
    path = tmp_path / "late.csv"
    path.write_text("x\n" + "1\n" * 60 + "old\n")
    with pytest.raises(DataError, match="holds numbers such as '1' in data row 1, and words in"):
        list(predict(finished[0] / "run", path))


def test_of_many_draws_some_stand_for_all(finished):
    """Of 40,000 draws 4,000, spread evenly: means within .06 sds."""
    model, rng = finished[2][0], np.random.default_rng(5)
    many = model.to_standardised(
        {
            "coefficients": rng.normal([1.0, 2.0], 0.1, (4, 10_000, 2)).astype(np.float32),
            "sigma": rng.uniform(0.9, 1.1, (4, 10_000)).astype(np.float32),
        }
    )
    whole = model.predict(many, rows(4), max_draws=40_000, kind="mean")
    some = model.predict(many, rows(4), kind="mean")
    assert 0 < np.abs((some["mean"] - whole["mean"]) / whole["sd"]).max() < 0.06
    assert np.allclose(some["sd"], whole["sd"], rtol=0.06)
