"""Runs on data that have grown, or lost rows: the posterior of a fresh run, at a part of its cost."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sgld
from sgld.approximation.laplace import Laplace
from sgld.data.table_source import TableSource, parts_record
from sgld.errors import DataError, RunError, UsageError
from sgld.inference.tuning import survey
from sgld.interfaces.cli.plan import _default_out
from sgld.model.prepare import prepare
from sgld.regression.fit import predict
from sgld.regression.update import _influential_rows, update
from sgld.results.codec import plan_of
from sgld.results.run_directory import RunDirectory

N, MORE = 4000, 400
FORMULA = "y ~ x + z"


def table(rows, seed):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=rows), rng.normal(size=rows)
    y = (rng.random(rows) < 1 / (1 + np.exp(0.2 - 0.8 * x + 0.3 * z))).astype(int)
    return pa.table({"x": x, "z": z, "y": y, "id": np.arange(rows)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grown")
    old, new = table(N, 0), table(MORE, 1)
    pq.write_table(old, folder / "old.parquet")
    pq.write_table(new, folder / "new.parquet")
    pq.write_table(pa.concat_tables([old, new]), folder / "all.parquet")
    fit(folder, "old")
    return folder


def fit(folder, name, **asked):
    return sgld.fit(
        folder / f"{name}.parquet", FORMULA, family="bernoulli", prior="normal(0, 5)",
        out=folder / name, progress=False, **asked,
    )  # fmt: skip


def apart(one, other):
    """Means in sds, and the ratio of sds, at their worst."""
    a, b = (f.draws.position["coefficients"].astype(float) for f in (one, other))
    mean = np.abs(a.mean((0, 1)) - b.mean((0, 1))) / b.std((0, 1))
    return mean.max(), np.abs(np.log(a.std((0, 1)) / b.std((0, 1)))).max()


@pytest.fixture(scope="module")
def updated(folder):
    counted = []
    real = survey.survey_posterior

    def survey_posterior(*args, **named):
        counted.append(args)
        return real(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sgld.inference.tuning.plan.survey_posterior", survey_posterior)
        made = update(folder / "old", folder / "new.parquet", out=folder / "up", progress=False)
    assert not counted  # nothing was searched for
    return made


def test_appended_rows_give_the_posterior_of_all(folder, updated):
    fresh, before = fit(folder, "all"), sgld.load(folder / "old")
    assert updated.verdict.word == fresh.verdict.word == "trusted"
    mean, sd = apart(updated, fresh)
    assert mean < 0.12 and sd < 0.08
    moved = np.abs(before.mean()["coefficients"] - fresh.draws.mean()["coefficients"])
    assert (moved / fresh.draws.sd()["coefficients"]).max() > 0.3  # they said something
    assert updated.draws.info["num_data"] == N + MORE
    moved_by = updated.draws.info["plan"]["notes"][0].split("moved by ")[1].split(" sds")[0]
    assert float(moved_by) > 0.1


def test_what_was_dropped_is_forgotten(folder, updated):
    less = update(folder / "up", drop=range(N, N + MORE), out=folder / "less", progress=False)
    assert less.verdict.word == "trusted"
    old = sgld.load(folder / "old")
    for name in ("mean", "sd"):
        there, back = (getattr(d, name)()["coefficients"] for d in (old, less.draws))
        assert (np.abs(there - back) / old.sd()["coefficients"]).max() < 0.01
    again = RunDirectory(folder / "less").begun()["data"]
    assert again["dropped"] == list(range(N, N + MORE))


def test_an_updated_run_is_resumed_and_reported_as_any(folder, updated):
    path = folder / "up"
    wanted = sgld.load(path).position["coefficients"]
    (path / "result.json").unlink()
    np.testing.assert_array_equal(sgld.resume(path, progress=False).position["coefficients"], wanted)  # fmt: skip
    page = updated.report(folder / "page.html")
    assert "old.parquet + new.parquet" in page.read_text().replace(f"{folder}/", "")


@pytest.mark.slow
def test_rows_that_say_something_else_are_searched_anew(folder):
    strange = table(1500, 2)
    turned = strange.set_column(2, "y", pa.array(1 - strange["y"].to_numpy()))
    pq.write_table(turned, folder / "turned.parquet")
    far = update(folder / "old", folder / "turned.parquet", out=folder / "far", progress=False)
    assert not any("centre and metric" in note for note in far.draws.info["plan"]["notes"])
    assert far.verdict.word == "trusted"


@pytest.mark.parametrize(
    ("error", "sentence", "asked"),
    [
        (UsageError, "nothing to update with", {}),
        (UsageError, "rows from 0 to 3999. Got 4000", {"drop": [4000]}),
        (UsageError, "not repeat a row", {"drop": [7, 7]}),
        (UsageError, r"whole row numbers. Got \['a'\]", {"drop": ["a"]}),
        (UsageError, r"whole row numbers. Got \[1.5\]", {"drop": [1.5]}),
        (DataError, "has no column 'z'", {"new": "lacks.parquet"}),
        (DataError, "cells of other types", {"new": "words.parquet"}),
    ],
)
def test_what_does_not_fit_is_answered_and_writes_nothing(folder, error, sentence, asked):
    new = table(10, 3)
    pq.write_table(new.drop_columns("z"), folder / "lacks.parquet")
    pq.write_table(new.set_column(1, "z", pa.array(["a"] * 10)), folder / "words.parquet")
    if "new" in asked:
        asked = {"new": folder / asked["new"]}
    with pytest.raises(error, match=sentence):
        update(folder / "old", out=folder / "refused", progress=False, **asked)
    assert not (folder / "refused").exists()


def test_a_run_of_functions_is_not_updated(tmp_path):
    gaussian = sgld.Posterior(lambda t: -0.5 * t**2)
    sgld.sample(gaussian, None, jnp.float32(0.0), path=tmp_path / "run", progress=False, num_draws=100)  # fmt: skip
    with pytest.raises(RunError, match=r"not a finished sgld\.fit run"):
        update(tmp_path / "run", drop=[0], out=tmp_path / "up")


def test_a_forged_list_of_parts_is_damage(folder, tmp_path):
    asked = json.loads((folder / "old" / "run.json").read_text())
    from sgld.data.table_source import stored_table

    for parts in ([], [asked["data"]] * 3, "x"):
        with pytest.raises(RunError, match="damaged"):
            stored_table({"path": "a", "parts": parts, "dropped": []})


@pytest.mark.parametrize(
    ("formula", "named"),
    [
        ("y ~ center(x)", "center"),
        pytest.param("y ~ x + poly(z, 2)", "poly", marks=pytest.mark.slow),
        pytest.param("y ~ bs(x, df=4)", "bs", marks=pytest.mark.slow),
    ],
)
def test_columns_that_all_rows_decide_are_not_updated(tmp_path, folder, formula, named):
    """Every row's column would be another one, and the run's coefficients those of other columns."""
    small = pq.read_table(folder / "old.parquet").slice(0, 300)
    pq.write_table(small, tmp_path / "small.parquet")
    how = {"family": "bernoulli", "num_draws": 100, "progress": False}
    sgld.fit(tmp_path / "small.parquet", formula, out=tmp_path / "run", **how)
    with pytest.raises(UsageError, match=rf"has {named}\(\.\.\.\), whose numbers are estimated"):
        update(tmp_path / "run", drop=[3], out=tmp_path / "less", progress=False)
    assert not (tmp_path / "less").exists()


def levels(rows, seed, of):
    rng = np.random.default_rng(seed)
    g = rng.choice(of, rows)
    return pa.table({"g": pa.array(g), "y": rng.normal(size=rows) + (g == "b")})


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    """400 rows in three levels, the last of which has three."""
    folder = tmp_path_factory.mktemp("grouped")
    pq.write_table(pa.concat_tables([levels(397, 0, ["a", "b"]), levels(3, 1, ["c"])]), folder / "t.parquet")  # fmt: skip
    sgld.fit(folder / "t.parquet", "y ~ C(g)", out=folder / "run", progress=False)
    return folder


def test_the_last_row_of_a_level_is_not_dropped_in_silence(grouped, tmp_path):
    with pytest.raises(DataError, match=r"loses the column 'C\(g\)\[T.c\]'.*another model"):
        update(grouped / "run", drop=[397, 398, 399], out=tmp_path / "less", progress=False)
    pq.write_table(levels(5, 2, ["d"]), tmp_path / "more.parquet")
    with pytest.raises(DataError, match=r"gains the column 'C\(g\)\[T.d\]'"):
        update(grouped / "run", tmp_path / "more.parquet", out=tmp_path / "up", progress=False)
    assert not (tmp_path / "less").exists() and not (tmp_path / "up").exists()


def test_new_rows_of_text_are_read_as_they_are_written(grouped, tmp_path):
    (tmp_path / "more.csv").write_text("g;y\na;0,5\nb;1,25\n")
    how = {"out": tmp_path / "up", "progress": False, "sep": ";", "decimal": ","}
    up = update(grouped / "run", tmp_path / "more.csv", **how)
    assert up.draws.info["num_data"] == 402
    np.testing.assert_allclose(up.model.data[1][-2:], (np.array([0.5, 1.25]) - up.model.spec["outcome_center"]) / up.model.spec["outcome_scale"], rtol=1e-6)  # fmt: skip
    told = RunDirectory(tmp_path / "up").begun()["data"]["parts"][1]
    assert (told["sep"], told["decimal"]) == (";", ",")
    (tmp_path / "like.csv").write_text(
        "g;y\na;0,5\n"
    )  # whose name ends as that of the rows that came
    assert sum(len(part) for part in predict(tmp_path / "up", tmp_path / "like.csv")) == 1
    with pytest.raises(UsageError, match="sep and decimal apply"):
        update(grouped / "run", drop=[0], out=tmp_path / "no", sep=";")


def test_a_file_is_written_as_the_first_of_those_that_a_table_grew_from():
    own, later = {"path": "a.csv", "decimal": ","}, {"path": "b.csv", "sep": "|"}
    grown = parts_record(parts_record(own, None, np.array([3])), later, np.array([1]))
    assert TableSource.like(grown, "new.csv.gz", None, None) == TableSource(
        "new.csv.gz", decimal=","
    )
    assert TableSource.like(grown, "new.csv", None, ".").decimal == "."  # as it was asked
    assert TableSource.like(grown, "new.tsv", None, None) == TableSource("new.tsv")
    later = {**later, "path": "b.tsv"}
    assert (
        TableSource.like(parts_record(own, later, np.array([1])), "new.tsv", None, None).sep == "|"
    )
    assert TableSource.like(None, "new.csv", None, None) == TableSource("new.csv")


def test_what_the_first_plan_had_to_say_stays_said(grouped, tmp_path):
    directory = RunDirectory(grouped / "run")
    noted = plan_of(directory).with_notes("this table is odd.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sgld.regression.update.plan_of", lambda directory: noted)
        one = update(directory.path, drop=[0], out=tmp_path / "one", progress=False)
    two = update(tmp_path / "one", drop=[0], out=tmp_path / "two", progress=False)
    for made in (one, two):
        notes = made.draws.info["plan"]["notes"]
        assert sum("centre and metric" in note for note in notes) == 1
        assert "this table is odd." in notes


def test_a_strong_prior_makes_no_row_stand_out(tmp_path):
    """Gradients of the few rows that came are of their likelihood: the prior is not theirs to share."""
    pq.write_table(table(2000, 0), tmp_path / "old.parquet")
    pq.write_table(table(3, 5), tmp_path / "new.parquet")
    sgld.fit(
        tmp_path / "old.parquet", FORMULA, family="bernoulli", prior="normal(3, 0.1)",
        out=tmp_path / "run", progress=False,
    )  # fmt: skip
    up = update(tmp_path / "run", tmp_path / "new.parquet", out=tmp_path / "up", progress=False)
    assert "centre and metric" in up.draws.info["plan"]["notes"][0]
    always = up.draws.plan.setup.always
    assert always is None or not np.isin([2000, 2001, 2002], always).any()


def test_where_many_rows_matter_all_are_weighed_anew(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("sgld.regression.update.MIN_MOVE_SDS", 0.0)
    up = update(folder / "old", folder / "new.parquet", out=tmp_path / "up", progress=False)
    assert not any("centre and metric" in note for note in up.draws.info["plan"]["notes"])


@pytest.mark.parametrize(
    ("run", "made"),
    [("runs/a", "runs/a-updated"), (".", "{here}-updated"), ("sub/..", "{here}-updated")],
)
def test_what_is_made_lies_beside_the_run(tmp_path, monkeypatch, run, made):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    assert str(_default_out(Path(run))) == made.format(here=tmp_path)
    with pytest.raises(UsageError, match="give --out"):
        _default_out(Path("/"))


@pytest.mark.slow
def test_a_second_row_of_a_level_is_weighed_with_all_rows_anew(tmp_path):
    """It says what the first says, so it moves no centre, but halves the variance there."""
    one = levels(1, 1, ["c"])
    whole = pa.concat_tables([levels(1999, 0, ["a", "b"]), one])
    pq.write_table(whole, tmp_path / "t.parquet")
    before = sgld.fit(tmp_path / "t.parquet", "y ~ C(g)", out=tmp_path / "run", progress=False)
    assert list(before.draws.plan.setup.always) == [1999]
    pq.write_table(pa.concat_tables([levels(30, 3, ["a", "b"]), one]), tmp_path / "more.parquet")
    up = update(tmp_path / "run", tmp_path / "more.parquet", out=tmp_path / "up", progress=False)
    notes = " ".join(up.draws.plan.notes)
    assert up.verdict.word == "trusted" and "not enough" not in notes and "those of" not in notes
    ratio = np.std(up.draws["C(g)[T.c]"]) / np.std(before.draws["C(g)[T.c]"])
    assert ratio == pytest.approx(0.5**0.5, rel=0.1)


def test_a_row_that_holds_a_third_of_a_direction_turns_the_gaussian():
    posterior = sgld.Posterior(
        lambda b: -0.5 * jnp.sum(b**2) / 1e6, lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2
    )
    precision = np.diag([100.0, 1.0])  # the second is known from one row
    wider = Laplace(np.zeros(2), precision, np.diag([0.1, 1.0]), 1.0, np.zeros(2))
    for row, outcome, found in (([0, 1], 0, None), ([1, 0], 0, []), ([1, 0], 9, [0])):
        part = prepare(
            posterior, (np.array([row], float), np.array([float(outcome)])), jnp.zeros(2)
        )
        numbers = _influential_rows(part, wider, 0)
        assert (numbers if found is None else list(numbers)) == found


def test_an_update_that_was_stopped_before_its_plan_is_made_again_not_resumed(folder, monkeypatch):
    """A plan from the start would give other draws than the update's."""

    class Stopped(BaseException):
        pass

    def stop(*_):
        raise Stopped

    whole = update(folder / "old", folder / "new.parquet", out=folder / "whole", progress=False)
    with monkeypatch.context() as patched:
        patched.setattr("sgld.regression.update._moved", stop)
        with pytest.raises(Stopped):
            update(folder / "old", folder / "new.parquet", out=folder / "stopped", progress=False)
    with pytest.raises(
        RunError, match=r"an update of .*old that was stopped .*has no draws; .*overwrite=True"
    ):
        sgld.resume(folder / "stopped")
    with pytest.raises(RunError, match=r"not finished; update .*old with the same rows again"):
        sgld.load(folder / "stopped")
    again = update(
        folder / "old",
        folder / "new.parquet",
        out=folder / "stopped",
        overwrite=True,
        progress=False,
    )
    one, other = (fit.draws.position["coefficients"] for fit in (whole, again))
    np.testing.assert_array_equal(one, other)
