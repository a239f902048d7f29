"""What a newcomer types first, and what is answered: separators, names, dates, words, ids, other programs' habits."""

import gzip
import json

import numpy as np
import pandas
import pyarrow.csv
import pytest
from typer.testing import CliRunner

from sgld.interfaces.cli import app
from sgld.interfaces.cli.fit import FAMILY_NAMES as COMPLETED
from sgld.regression.families import FAMILIES

N = 120
LATIN = "größe,y\n" + "".join(f"{i},{i % 7}\n" for i in range(30))


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def frame():
    """A table with the columns that people have."""
    rng = np.random.default_rng(2)
    mass = rng.normal(25, 4, N).round(1)
    table = pandas.DataFrame(
        {
            "policy": 4_000_000_000_000_001 + np.arange(N),
            "body mass": mass,
            "class": rng.integers(1, 4, N),
            "region": rng.choice(["North East", "Wales"], N),
            "cost": (5 + 0.03 * mass + 0.5 * rng.normal(size=N)).round(2),
            "ill": np.where(rng.random(N) < 0.4, "yes", "no"),
            "claims": rng.poisson(2.0, N),
            "share": [f"{v}%" for v in rng.integers(0, 100, N)],
            "paid": [f"${v:,}.50" for v in rng.integers(900, 9000, N)],
            "seen": [f"2020-01-{1 + i % 28:02}" for i in range(N)],
            "us_date": [f"{1 + i % 12}/{1 + i % 28}/2020" for i in range(N)],
            "coarse": rng.choice([0.5, 1.5, 2.5], N),
        }
    )
    table.loc[[3, 7], "body mass"] = np.nan
    table.loc[5, "claims"] = np.nan
    return table


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    """The table as several programs write it, and as some should not."""
    path = tmp_path_factory.mktemp("manners")
    frame.to_csv(path / "rows.csv", index=False)
    frame.to_csv(path / "german.csv", index=False, sep=";", decimal=",")
    frame.to_csv(path / "bars.txt", index=False, sep="|")
    frame.to_csv(path / "spaces.txt", index=False, sep=" ")
    frame.to_csv(path / "numbers.csv", index=False, header=False)
    frame.assign(mass=frame["body mass"].astype(object).fillna("?")).to_csv(
        path / "marks.csv", index=False
    )
    (path / "latin.csv").write_bytes(LATIN.encode("latin-1"))
    (path / "cells.csv").write_bytes(("y,g\n" + "1,ä\n2,b\n3,b\n" * 9).encode("latin-1"))
    (path / "excel.csv").write_bytes(frame.to_csv(index=False, sep="\t").encode("utf-16"))
    (path / "book.csv").write_bytes(b"PK\x03\x04" + bytes(50))
    (path / "book.xlsx").write_bytes(b"PK\x03\x04" + bytes(50))
    (path / "rows.parquet.gz").write_bytes(gzip.compress(b"PAR1"))
    (path / "cut.csv.gz").write_bytes(gzip.compress((path / "rows.csv").read_bytes())[:-200])
    return path


def test_families_are_completed_as_they_are():
    assert tuple(FAMILIES) == COMPLETED


def test_the_shell_can_complete():
    assert "--install-completion" in run("--help").output
    asked = {
        "_SGLD_COMPLETE": "complete_bash",
        "COMP_WORDS": "sgld fit --family p",
        "COMP_CWORD": "3",
    }
    answered = CliRunner().invoke(app, [], env=asked, prog_name="sgld")
    assert answered.output.split() == ["poisson"]


# formula, other arguments, and what the answer holds
ANSWERED = {
    "=": ("rows.csv", "cost = claims", (), ["'cost ~ claims'", "'~' separates"]),
    "<-": ("rows.csv", "cost <- claims", (), ["'cost ~ claims'"]),
    "a name with a space": ("rows.csv", "cost ~ body mass", (), ["'cost ~ `body mass`'", "single quotes"]),
    "what the shell took": ("rows.csv", "cost ~ ", (), ["nothing right of '~'", "single quotes"]),
    "a keyword": ("rows.csv", "cost ~ log(class)", (), ["log(`class`)"]),
    "commas": ("rows.csv", "cost ~ claims, region", (), ["'cost ~ claims + region'"]),
    "factor()": ("rows.csv", "cost ~ factor(region)", (), ["'cost ~ C(region)'"]),
    "(1 | group)": ("rows.csv", "cost ~ claims + (1 | region)", (), ["NumPyro"]),
    "a square": ("rows.csv", "cost ~ claims^2", (), ["claims alone", "I(claims**2)"]),
    "capitals": ("rows.csv", "Cost ~ claims", (), ["Did you mean 'cost'?"]),
    "several unknown": ("rows.csv", "cost ~ foo + bar", (), ["'bar', 'foo', which are not columns"]),
    "a date": ("rows.csv", "cost ~ seen", (), ["dates", "days since the first"]),
    "a date as text": ("rows.csv", "cost ~ us_date", (), ["dates", "days since the first"]),
    "percentages": ("rows.csv", "cost ~ share", (), ["percentages", "remove the sign"]),
    "money": ("rows.csv", "paid ~ claims", (), ["money", "remove the currency"]),
    "16 digits": ("rows.csv", "cost ~ policy", (), ["as ids do", "take it out"]),
    "all at once": (
        "rows.csv", "cost ~ `body mass` + claims + share", ("--missing", "error"),
        ["3 columns", "'body mass' is null (empty) in data row 4 and 1 more", "'claims' is null", "'share'"],
    ),
    "a word": ("rows.csv", "ill ~ claims", (), ["words ('no', 'yes')", "choose the family bernoulli"]),
    "single trials": ("rows.csv", "ill ~ claims", ("--family", "binomial"), ["bernoulli"]),
    "a date for an outcome": ("rows.csv", "seen ~ claims", ("--family", "bernoulli"), ["dates"]),
    "decimal commas": ("german.csv", "cost ~ claims", (), ["decimal comma", "--decimal ','"]),
    "few decimal commas": ("german.csv", "class ~ coarse", (), ["decimal comma"]),
    "spaces": ("spaces.txt", "cost ~ claims", (), ["separated by spaces", "--sep space"]),
    "no header": ("numbers.csv", "cost ~ claims", (), ["names of the columns"]),
    "question marks": ("marks.csv", "cost ~ mass", (), ["'?' in data row 4 and 1 more", "leave it empty"]),
    "Latin-1 names": ("latin.csv", "y ~ größe", (), ["0xf6", "'ö' in Latin-1", "iconv"]),
    "Latin-1 cells": ("cells.csv", "y ~ g", (), ["0xe4", "'ä' in Latin-1", "data row 1"]),
    "UTF-16": ("excel.csv", "cost ~ claims", (), ["UTF-16", "CSV UTF-8"]),
    "Excel": ("book.xlsx", "cost ~ claims", (), ["CSV UTF-8", "pandas.read_excel"]),
    "Excel by another name": ("book.csv", "cost ~ claims", (), ["an Excel workbook"]),
    "packed": ("rows.parquet.gz", "cost ~ claims", (), ["unpack it"]),
    "cut off": ("cut.csv.gz", "cost ~ claims", (), ["damaged gzip file", "copy it again"]),
    "sep": ("rows.csv", "cost ~ claims", ("--sep", "semicolonn"), ["Did you mean 'semicolon'?"]),
    "sep and decimal": ("rows.csv", "cost ~ claims", ("--sep", ",", "--decimal", ","), ["both ','"]),
    "decimal": ("rows.csv", "cost ~ claims", ("--decimal", "x"), ["decimal must be '.' or ','"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERED)
def test_a_wrong_guess_is_answered_with_the_right_one(folder, case):
    data, formula, options, said = ANSWERED[case]
    result = run("fit", folder / data, formula, "--out", folder / "new", *options)
    assert result.exit_code == 2, result.output
    told = [line for line in result.stderr.splitlines() if line and not line.startswith("sgld  ")]
    assert result.stdout == "" and len(told) == 1  # the others are told every ten seconds
    for words in said:
        assert words in result.stderr
    assert not (folder / "new").exists()


@pytest.fixture(scope="module")
def packed(frame, tmp_path_factory):
    """A run on a gzipped table of semicolons and decimal commas, with words for an outcome."""
    path = tmp_path_factory.mktemp("packed")
    frame.to_csv(path / "rows.csv.gz", index=False, sep=";", decimal=",")
    arguments = ("--family", "logistic", "--decimal", ",", "--draws", "200")
    formula = "ill ~ `body mass` + region"
    return path, run("fit", path / "rows.csv.gz", formula, "--out", path / "run", *arguments)


def test_missing_cells_are_counted_wherever_rows_are(packed):
    path, fitted = packed
    assert fitted.exit_code == 0, fitted.output
    left_out = (
        f"{N - 2} rows of {path / 'rows.csv.gz'} (2 more left out: a cell they need is missing)"
    )
    assert left_out in fitted.stdout
    assert f"over {N - 2} rows (2 more left out" in fitted.stdout  # below the table
    assert "ill: 'no' is 0, 'yes' is 1" in fitted.stdout
    assert json.loads((path / "run" / "summary.json").read_text())["num_dropped"] == 2
    page = (path / "run" / "report.html").read_text()
    assert "2 more left out" in page and "&#x27;yes&#x27; is 1" in page and "num_chains" not in page


def test_a_run_remembers_how_its_table_is_written(packed):
    path, _ = packed
    assert json.loads((path / "run" / "run.json").read_text())["data"]["decimal"] == ","
    (path / "run" / "report.html").unlink()
    assert run("report", path / "run").exit_code == 0  # the check reads the table again
    assert "Does the model fit?" in (path / "run" / "report.html").read_text()


def test_predictions_carry_ids_and_are_of_the_kind_asked(packed, frame):
    path, _ = packed
    new = (
        frame[frame.columns[::-1]].drop(columns="ill").head(6)
    )  # in another order, another dialect
    new.to_csv(path / "new.tsv", index=False, sep="\t")

    def predicted(*options):
        out = path / "p.csv"
        done = run("predict", path / "run", path / "new.tsv", "--out", out, "--overwrite", *options)
        assert done.exit_code == 0, done.output
        return done.stdout, pyarrow.csv.read_csv(out).to_pandas()

    said, table = predicted("--id", "policy", "--id", "region")
    assert "1 of them empty: a cell they need is missing" in said
    assert list(table) == [
        "policy", "region", "mean", "sd", "lower", "upper", "probability",
    ]  # fmt: skip
    assert list(table["policy"]) == list(frame["policy"].head(6))
    assert list(table["mean"].isna()) == [False, False, False, True, False, False]
    _, mean = predicted("--kind", "mean")
    assert list(mean) == ["mean", "sd", "lower", "upper"]
    np.testing.assert_allclose(mean["mean"], table["mean"])
    here = mean["mean"].notna()
    assert (mean["sd"] < 0.5 * table["sd"])[here].all()  # of the probability, not of yes and no
    assert ((mean["lower"] < mean["mean"]) & (mean["mean"] < mean["upper"]))[here].all()
    _, likeliest = predicted("--kind", "class")
    assert list(likeliest) == ["class", "probability"]
    expected = np.where(mean["mean"] > 0.5, "yes", "no")
    assert list(likeliest["class"][here]) == list(expected[here])
    own = np.maximum(mean["mean"], 1 - mean["mean"])  # its own probability, whichever it is
    np.testing.assert_allclose(likeliest["probability"][here], own[here])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--kind", "clas"), "Did you mean 'class'?"),
        (("--id", "polcy"), "Did you mean 'policy'?"),
        (("--decimal", "."), "decimal comma"),
        (("--id", "sd", "--decimal", ","), "rename the table's column"),
    ],
)
@pytest.mark.unchecked
def test_predictions_that_cannot_be(packed, frame, options, said):
    path, _ = packed
    frame.assign(sd=1).to_csv(path / "old.csv", index=False, sep=";", decimal=",")
    answer = run("predict", path / "run", path / "old.csv", "--out", path / "no.csv", *options)
    assert answer.exit_code == 2 and said in answer.stderr and not (path / "no.csv").exists()


def test_new_rows_are_read_as_the_run_s_own_were(packed, frame):
    path, _ = packed
    frame.to_csv(path / "like.csv", index=False, sep=";", decimal=",")
    said = [
        run("predict", path / "run", path / "like.csv", "--out", path / f"like{k}.csv", *options)
        for k, options in enumerate([(), ("--decimal", ",")])
    ]
    assert [answer.exit_code for answer in said] == [0, 0], said[0].stderr
    assert (path / "like0.csv").read_bytes() == (path / "like1.csv").read_bytes()
    more = run("update", path / "run", path / "like.csv", "--out", path / "grown", "--quiet")
    assert more.exit_code == 0, more.stderr
