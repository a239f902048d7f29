"""The plans of the reference cases, and short runs of them, are those that are stored.

A change of inner parts changes none of this. A change of what is chosen is made on purpose:
`python tests/golden/make.py --write` writes plans.json anew, and its diff is read.
"""

import copy
import json

import cases
import pytest

STORED = json.loads(cases.PLANS.read_text())


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in cases.FAST else pytest.mark.slow) for n in cases.CASES],
)
def test_the_plan_is_the_stored_one(name):
    compare = cases.compared_roughly if cases.CASES[name].unsteady else cases.compared
    assert compare(name, STORED[name], cases.made(name)) == []


def test_every_case_is_stored_and_every_choice_is_met():
    assert set(STORED) == set(cases.CASES) and set(cases.CASES) > cases.FAST
    met = {
        part: {case["plan"][part] for case in STORED.values()}
        for part in ("sampler", "gradient", "preconditioner", "order", "noise_correction")
    }
    assert met == {
        "sampler": {
            "SGLD",
            "HMC",
            "ConfinedHMC",
            "BAOA",
            "UBU",
            "SGHMC",
            "SGNHT",
            "ReplicaExchange",
        },
        "gradient": {"Full", "Minibatch", "ControlVariates", "SVRG", "SAGA"},
        "preconditioner": {"Scalar", "Diagonal", "Dense", "LowRank", "RMSprop", "AdaGrad"},
        "order": {None, "reshuffle", "symmetric", "independent", "replacement", "subset"},
        "noise_correction": {True, False},
    }
    found = {case["run"]["word"] for case in STORED.values()}
    assert found == {"trusted", "biased", "not mixed", "unknown"}


def test_a_difference_is_seen():
    stored = {"a": 1, "b": [1.0, "word"], "c": 3.0}
    assert cases.differences("x", stored, {"a": 1, "b": [1.00005, "word"], "c": 3.0}) == []
    assert cases.differences("x", stored, {"a": 2, "b": [1.0002, "other"], "d": None}) == [
        "x: a was 1, is 2", "x: b[0] was 1.0, is 1.0002", "x: b[1] was word, is other",
        "x: c was 3.0, is None",
    ]  # fmt: skip
    assert cases.differences("x", 0.0, 1e-3) and not cases.differences("x", 0.0, 1e-3, scale=20.0)
    assert cases.differences("x", float("nan"), float("nan")) == []
    assert cases.differences("x", 1, 1.0) == ["x was 1, is 1.0"]
    assert cases.words(
        "sd within 3% of the posterior's on all 10 parameters, 1,024 of 2.5e-3."
    ) == ("sd within # of the posterior's on all # parameters, # of #.")


@pytest.mark.parametrize("name", ["linear200", "funnel2", "visits_gaussian"])
@pytest.mark.parametrize("kind, key, value", [
    ("plan", "batch_size", 77), ("plan", "notes", ["another note."]), ("plan", "nu", 5.0),
    ("run", "word", "biased"), ("run", "reasons", ["another reason."]),
])  # fmt: skip
def test_a_planted_difference_is_found_in_steady_and_unsteady_cases(name, kind, key, value):
    compare = cases.compared_roughly if cases.CASES[name].unsteady else cases.compared
    now = copy.deepcopy(STORED[name])
    assert compare(name, STORED[name], now) == []
    now[kind][key] = value
    assert any(key in line for line in compare(name, STORED[name], now))
