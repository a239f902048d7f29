"""One test per branch of the rule, in the order of the rule."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sgld.approximation.known import NOT_SEARCHED
from sgld.diagnostics.rule import Evidence, judge
from sgld.results.verdict import Verdict

GOOD = Evidence(
    names=("a", "b"), mean=np.array([1.0, 2.0]), sd=np.array([0.5, 2.0]),
    ess=np.array([900.0, 2000.0]), ess_square=np.array([800.0, 1500.0]),
    r_hat=np.array([1.001, 1.002]), num_chains=4, sd_ratio=np.array([1.02, 0.97]),
    sd_ratio_se=np.array([0.01, 0.01]), r2=np.array([0.99, 0.95]),
    mean_shift=np.array([0.01, -0.05]), excess=np.array([0.02, 0.01]), noise_ratio=0.3, nu=0.01,
)  # fmt: skip


def judged(**changes):
    changes = {k: np.asarray(v, float) if isinstance(v, list) else v for k, v in changes.items()}
    return judge(replace(GOOD, **changes))


def test_trusted():
    verdict = judged()
    assert verdict.word == "trusted" and verdict.reasons == (
        "sd within 3% of the posterior's on all 2 parameters.",
    )
    np.testing.assert_allclose(verdict.mean_corrected, [1.01, 1.95])
    np.testing.assert_allclose(verdict.sd_corrected, [0.5 / 1.02, 2 / 0.97])
    assert str(verdict).startswith("trusted: sd within 3%")


@pytest.mark.parametrize(
    ("changes", "word", "part"),
    [
        ({"failures": ("chain 3 became non-finite",)}, "biased", "chain 3"),
        ({"ess": [150, 900]}, "not mixed", "too few effective draws: 150 for 'a'"),
        ({"ess_square": [900, 399]}, "not mixed", "399 for 'b'"),
        ({"ess": [np.nan] * 2, "ess_square": [np.nan] * 2}, "not mixed", "do not move"),
        ({"r_hat": [1.0, 1.2]}, "not mixed", "R-hat of 'b' is 1.200"),
        ({"excess": [0.11, 0.0], "sd_ratio": [0.99, 1.0]}, "biased", "'a' is about 11% too wide: gradient noise is 0.3"),
        ({"excess": [0.11, 0.0], "sd_ratio": [1.15, 1.0]}, "biased", "'a' is about 15% too wide"),
        ({"excess": [0.11, 0.0], "noise_ratio": 0.01}, "biased", "the step size is too large"),
        ({"why_not": "there is no curvature."}, "unknown", "no curvature"),
        ({"sd_ratio": None}, "unknown", "no finite answer"),
        ({"sd_ratio": [np.nan, 1.0]}, "unknown", "no finite answer"),
        ({"nu": 1.5}, "unknown", "nu = 1.5"),
        ({"other_modes": 1}, "unknown", "at least 2 modes"),
        ({"doubts": ("the gradient is another's",)}, "unknown", "the gradient is another's; compare with NUTS"),
        ({"r2": [0.4, 0.99]}, "unknown", "r2 = 0.40"),
        # a meter that sees 70% of the bias reads 8% of 11%; of one towards narrowness 6% of 12%
        ({"sd_ratio": [1.08, 1.0], "r2": [0.7, 0.99]}, "biased", "'a' is about 11% too wide"),
        ({"sd_ratio": [1.06, 1.0], "r2": [0.7, 0.99]}, "trusted", "sd within 9%"),
        ({"sd_ratio": [0.94, 1.0], "r2": [0.7, 0.99]}, "biased", "'a' is about 12% too narrow"),
        ({"sd_ratio": [1.08, 1.0], "r2": [0.9, 0.99]}, "trusted", "sd within 8%"),
        ({"sd_se": [0.01, 0.06]}, "not mixed", "the sd of 'b' is known within 6% only"),
        ({"sd_se": [0.01, 0.05]}, "trusted", "sd within 3%"),
        ({"tail": [0.0, 0.4]}, "unknown", "the tails of 'b' are too heavy for its sd to be estimated from draws (Pareto k = 0.40)"),
        ({"tail": [0.0, 0.0]}, "trusted", "sd within 3%"),
        ({"sd_ratio_se": [0.0, 0.2]}, "unknown", "uncertain by 20% on 'b'"),
        ({"sd_ratio": [1.2, 1.0], "excess": [0.09, 0.0]}, "biased", "'a' is about 20% too wide"),
        ({"sd_ratio": [0.8, 1.0]}, "biased", "'a' is about 20% too narrow"),
        ({"sd_ratio": [1.12, 1.0], "ess_square": [401, 900]}, "biased", None),
        ({"sd_ratio": [1.105, 1.0], "ess_square": [401, 900]}, "not mixed", "too few draws: sd of 'a'"),
        ({"sd_ratio": [1.105, 1.0], "ess_square": [401, 900], "excess": [0.06, 0.0]}, "biased", "'a' is about 10% too wide"),
        ({"mean_shift": [0.2, 0.0]}, "biased", "mean of 'a' is about 0.41 sd off"),
        # of the true sd, .5 / .92: .24 off, which is .26 of the run's
        ({"mean_shift": [0.13, 0.0], "sd_ratio": [0.92, 1.0]}, "trusted", "sd within 8%"),
    ],
)  # fmt: skip
def test_rules(changes, word, part):
    if part is None:  # 12% is more than 3 standard errors of the sd at this ESS
        assert judged(**changes).word == ("biased" if 3 / np.sqrt(802) <= 0.12 else "not mixed")
        return
    verdict = judged(**changes)
    assert verdict.word == word and part in " ".join(verdict.reasons)


def test_the_first_rule_that_applies():
    everything = {
        "failures": ("chain 0 became non-finite",), "ess": [10, 10], "excess": [1.0, 1.0],
        "why_not": "no curvature.", "sd_ratio": [2.0, 2.0],
    }  # fmt: skip
    for rule, word in [
        ("failures", "biased"), ("ess", "not mixed"), ("excess", "biased"),
        ("why_not", "unknown"), ("sd_ratio", "biased"),
    ]:  # fmt: skip
        assert judged(**everything).word == word
        del everything[rule]
    assert judged(**everything).word == "trusted"


def test_r_hat_allows_for_the_draws_at_hand():
    # sqrt(1 + 8/405 q), q the 1 - .005/2 quantile of chi2_7 / 7: 3.15
    assert judged(ess=[405, 2000], r_hat=[1.029, 1.0]).word == "trusted"
    assert judged(ess=[405, 2000], r_hat=[1.032, 1.0]).word == "not mixed"
    assert judged(ess=[405, 2000], r_hat=[1.029, 1.0], ess_alone=[900, 2000]).word == "not mixed"


def test_corrected_columns_only_where_r2_allows():
    verdict = judged(r2=[0.99, 0.8])
    assert np.isfinite(verdict.sd_corrected[0]) and np.isnan(verdict.sd_corrected[1])


def test_corrected_columns_need_effective_draws_and_a_meter_that_is_sure():
    for changes in (
        {"ess": [99, 900]}, {"sd_ratio_se": [0.04, 0.01]}, {"sd_ratio": [1.31, 1.0]},
        {"sd_ratio": [-1.0, 1.0]},
    ):  # fmt: skip
        verdict = judged(**changes)
        assert np.isnan(verdict.sd_corrected[0]) and np.isnan(verdict.mean_corrected[0])
        assert np.isfinite(verdict.sd_corrected[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"nu": 1.5}, {"other_modes": 1}, {"why_not": "there is no curvature."},
        {"doubts": ("possible hidden mass: along 'x'",)},
    ],
)  # fmt: skip
def test_where_the_meter_is_no_guide_its_column_is_empty(changes):
    verdict = judged(**changes)
    assert np.isnan(verdict.sd_ratio).all()
    assert np.isnan(verdict.mean_corrected).all() and np.isnan(verdict.sd_corrected).all()
    late = judged(doubts=(NOT_SEARCHED.sentence,))  # nothing was searched, and nothing found
    assert np.isfinite(late.sd_ratio).all() and np.isfinite(late.sd_corrected).all()
    partly = judged(r2=[0.4, 0.99]).sd_ratio
    assert np.isnan(partly[0]) and partly[1] == 0.97
    assert judged(other_modes=1).doubts == ("modes",) and judged().doubts == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"excess": [0.11, 0.0]}, {"excess": [0.11, 0.0], "noise_ratio": 0.01}, {"excess": [np.nan, 0.0]},
        {"sd_ratio": [1.2, 1.0], "excess": [0.09, 0.0]}, {"sd_ratio": [0.8, 1.0]},
    ],
)  # fmt: skip
def test_nobody_who_gave_no_step_size_is_told_to_make_it_smaller(changes):
    for by_hand in (True, False):
        verdict = judged(**changes, by_hand=by_hand)
        assert verdict.word == "biased"
        said = " ".join(verdict.reasons)
        assert ("step_size" in said or "divide it" in said) == by_hand
        assert ("smaller tolerance, or NUTS: sgld.reference" in said) != by_hand


def test_round_trip_through_json():
    verdict = judged(r2=[0.99, 0.8])
    again = Verdict.from_dict(json.loads(json.dumps(verdict.to_dict())))
    assert again.word == verdict.word and again.reasons == verdict.reasons
    np.testing.assert_array_equal(again.sd_corrected, verdict.sd_corrected)
    np.testing.assert_array_equal(again.sd_ratio, verdict.sd_ratio)


@pytest.mark.parametrize("name", ["sd_ratio", "sd_ratio_se", "r2", "mean_shift", "excess", "nu"])
def test_what_is_not_a_number_is_never_trusted(name):
    bad = np.nan if name == "nu" else np.where(np.arange(2) == 1, np.nan, getattr(GOOD, name))
    assert judged(**{name: bad}).word in ("unknown", "biased")


def test_a_ratio_beyond_two_is_said_in_times():
    assert "15 times as wide as it should be" in judged(sd_ratio=np.array([1.0, 15.2])).reasons[0]


def test_doubts_that_no_run_of_the_same_kind_settles_are_kept_with_the_verdict():
    told = judged(doubts=("mass far out",), tail=[0.4, 0.0]).extra["doubts"]
    assert told[0] == "mass far out" and "the tails of 'a'" in told[1]
    assert "doubts" not in judged().extra


def test_nu_that_is_not_finite_is_said_in_words():
    (reason,) = judged(nu=float("inf")).reasons[:1]
    assert "far from Gaussian (gradients" in reason and "inf)" not in reason
