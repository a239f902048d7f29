"""Levels without an event are named before the search, for only the prior decides their coefficient."""

import numpy as np
import pytest

from sgld.interfaces.cli.app import print_model
from sgld.regression.formula import FormulaModel

G = np.repeat(["a", "b", "c"], 20)
MIXED = np.tile([0.0, 1.0], 10)
X = np.linspace(-1, 1, 60)


def notes(y, formula="y ~ x + g", family="bernoulli", g=G, **more):
    columns = {name: value for name, value in more.items() if not isinstance(value, str)}
    named = {name: value for name, value in more.items() if isinstance(value, str)}
    table = {"x": X, "g": g, "y": y, **columns}
    return FormulaModel.build(table, formula, family, **named).posterior.notes


NONE = np.r_[MIXED, MIXED, np.zeros(20)]
CASES = {
    "no event": (NONE, {}, ["level 'c' of 'g' (20 rows) has no event: only the prior decides its coefficient."]),
    "all events": (1 - NONE, {}, ["level 'c' of 'g' (20 rows) has nothing but events: only the prior"]),
    "a function": (NONE, {"formula": "y ~ x + C(g)"}, ["level 'c' of 'C(g)' (20 rows) has no event"]),
    "no intercept": (NONE, {"formula": "y ~ x + g - 1"}, ["level 'c' of 'g' (20 rows) has no event"]),
    "the reference": (
        NONE[::-1], {}, ["the reference level 'a' of 'g' (20 rows) has no event: only the prior decides how"],
    ),
    "counts": (NONE * 3, {"family": "poisson"}, ["level 'c' of 'g' (20 rows) has only zeros"]),
    "a column": (NONE, {"formula": "y ~ x + d", "d": (G == "c") * 3.0}, ["'d' (20 rows) has no event"]),
    "trials": (
        NONE * 5, {"family": "binomial", "n": np.full(60, 5), "trials": "n"},
        ["level 'c' of 'g' (20 rows) has no event"],
    ),
    "levels": (
        np.r_[np.tile(["u", "v", "w", "v"], 10), np.tile(["u", "w"], 10)], {"family": "categorical"},
        ["level 'c' of 'g' (20 rows) has no 'v'"],
    ),
    "weight 0": (
        np.r_[MIXED, MIXED, 1.0, np.zeros(19)],
        {"w": np.r_[np.ones(40), 0.0, np.ones(19)], "weights": "w"}, ["level 'c' of 'g' (19 rows) has no event"],
    ),
    "nothing": (np.tile(MIXED, 3), {}, []),
    "other families": (NONE, {"family": "gaussian"}, []),
    "one row": (
        np.r_[1.0, np.zeros(19), MIXED, MIXED], {"g": np.r_[["z"], G[1:]]},
        ["the reference level 'a' of 'g' (19 rows)", "level 'z' of 'g' (1 row) has nothing but events"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_only_the_prior_decides_is_named(case):
    y, how, expected = CASES[case]
    found = sorted(notes(y, **how))
    assert len(found) == len(expected)
    for note, part in zip(found, sorted(expected), strict=True):
        assert part in note


@pytest.mark.parametrize(
    ("y", "family", "what"),
    [
        (np.zeros(60), "bernoulli", "no event"),
        (np.ones(60), "bernoulli", "nothing but events"),
        (np.zeros(60), "poisson", "only zeros"),
    ],
)
def test_a_table_without_an_event_is_named_once(y, family, what):
    (note,) = notes(y, family=family)
    assert what in note and "outcome 'y'" in note


EXPOSURE = np.linspace(0.5, 2, 60)


@pytest.mark.parametrize(
    ("term", "values", "noted"),
    [
        ("offset(e)", EXPOSURE, True),
        ("offset(log(e))", EXPOSURE, False),
        ("offset(e)", np.log(EXPOSURE), False),
        ("offset(log_e)", EXPOSURE, False),
    ],
)
def test_an_offset_that_seems_to_be_an_exposure_is_noted(term, values, noted):
    found = notes(np.tile(MIXED, 3), f"y ~ x + {term}", "poisson", e=values, log_e=values)
    assert any("offset(log(e))" in note for note in found) is noted


def test_many_levels_are_counted():
    levels = np.repeat([f"g{k:02}" for k in range(12)], 5)
    found = notes(np.r_[np.zeros(45), np.tile([0.0, 1.0, 1.0], 5)], g=levels)
    assert len(found) == 6 and found[-1] == "the same holds for 4 more levels."


def test_the_shell_says_it_with_the_model_and_before_the_search(capsys):
    rows = {"x": X, "g": G, "y": NONE}
    model = FormulaModel.build(rows, "y ~ x + g", "bernoulli")
    print_model("rows.csv", model)
    assert "note    level 'c' of 'g' (20 rows) has no event" in capsys.readouterr().out
    again = FormulaModel.from_spec(model.spec, rows)
    assert tuple(again.posterior.notes) == tuple(model.posterior.notes) != ()
