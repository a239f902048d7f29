"""The rule of exact samplers: mixing of many chains, divergences, energies, tails."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from sgld.diagnostics.exact_rule import Trajectories, judge_exact
from sgld.diagnostics.rule import Evidence, judge, least_ess
from sgld.results import statistics

FINE = Trajectories(12_800, 0, 0.9)
EVIDENCE = Evidence(
    names=("a", "b"), mean=np.zeros(2), sd=np.ones(2), ess=np.full(2, 3000.0),
    ess_square=np.full(2, 2000.0), r_hat=np.full(2, 1.002), num_chains=64, nu=30.0,
)  # fmt: skip
FEW = {"ess_square": np.array([1200.0, 3000.0])}


def judged(trajectories=FINE, sd_se=0.01, tail=0.0, **change):
    return judge_exact(
        replace(EVIDENCE, **change), trajectories, np.array([0.01, sd_se]), np.array([0.0, tail])
    )


@pytest.mark.parametrize(
    ("change", "word", "says"),
    [
        ({}, "trusted", "exact sampler (HMC)"),
        ({}, "trusted", "ESS at least 2000, R-hat at most 1.002"),
        (FEW, "not mixed", "too few effective draws: 1200 for 'a' where 1280 are needed"),
        ({**FEW, "num_chains": 8}, "trusted", ""),
        ({"r_hat": np.array([1.0, 1.03])}, "not mixed", "R-hat of 'b' is 1.030"),
        ({"trajectories": replace(FINE, divergences=3)}, "not mixed", "3 of 12800 trajectories"),
        ({"trajectories": replace(FINE, energy=0.2)}, "not mixed", "E-BFMI 0.20 where 0.3"),
        ({"trajectories": replace(FINE, energy=np.nan)}, "not mixed", "E-BFMI nan"),
        ({"tail": 0.3}, "unknown", "the tails of 'b' are too heavy"),
        ({"tail": np.nan}, "trusted", ""),
        (
            {"doubts": ("a halo",)},
            "unknown",
            "exact sampler (HMC), but a halo, which the chains do not confirm",
        ),
        ({"sd_se": 0.06}, "not mixed", "the sd of 'b' is known within 6% only"),
        ({"failures": ("chain 3 became non-finite",)}, "biased", "chain 3"),
    ],
)
def test_the_rule(change, word, says):
    verdict = judged(**change)
    assert verdict.word == word and says in verdict.reasons[0], verdict


def test_all_that_is_wrong_with_the_energies_is_told():
    verdict = judged(replace(FINE, divergences=1, energy=0.1), ess=np.full(2, 90.0))
    assert [word in reason for word, reason in zip(("few", "diverged", "slowly"), verdict.reasons, strict=True)]  # fmt: skip
    assert verdict.extra["divergences"] == 1 and verdict.extra["e_bfmi"] == 0.1


@pytest.mark.parametrize(("chains", "least"), [(1, 400), (8, 400), (9, 400), (21, 420), (64, 1280)])
def test_many_chains_need_20_effective_draws_each(chains, least):
    assert least_ess(chains) == least
    short = replace(EVIDENCE, num_chains=chains, ess=np.full(2, least - 1.0), why_not="no meter")
    assert judge(short).word == "not mixed"


def test_energies_of_a_gaussian_and_of_one_with_a_slow_direction():
    """Var(U) is d / 2 for a Gaussian: E-BFMI 1."""
    d, chains, count = 6, 32, 500
    rng = np.random.default_rng(0)
    U = 0.5 * np.sum(rng.standard_normal((chains, count, d)) ** 2, axis=-1)

    def of(U):
        mean = U.mean(1)
        squares = np.sum((U - mean[:, None]) ** 2, axis=1)
        counts = np.full(chains, count)
        return Trajectories.of(
            SimpleNamespace(count=counts, divergences=np.arange(chains), mean=mean, squares=squares), d
        )  # fmt: skip

    found = of(U)
    assert found.energy == pytest.approx(1, abs=0.04)
    assert found.num == chains * count and found.divergences == sum(range(chains))
    # chains at different levels differ between themselves, not within
    levels = 5 * rng.standard_normal((chains, 1))
    expected = d / (d / 2 + np.var(levels) + d / 2)
    assert of(U + levels).energy == pytest.approx(expected, rel=0.1)


def test_groups_of_many_chains_are_compared_not_chains():
    """20 draws a chain: single chains differ by chance; a shift of one group of four does not."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal((64, 20, 3))
    one_by_one = np.concatenate([statistics.r_hat(values[i : i + 8]) for i in range(0, 64, 8)])
    assert np.max(one_by_one) > 1.03 and np.max(statistics.r_hat(values)) < 1.01
    values[16:32, :, 1] += 0.5
    found = statistics.r_hat(values)
    assert found[1] > 1.01 > max(found[0], found[2])


def test_the_limit_is_that_of_the_groups():
    assert statistics.max_r_hat(400.0, 64) == statistics.max_r_hat(400.0, 4)
    assert statistics.max_r_hat(400.0, 8) > statistics.max_r_hat(400.0, 9)


@pytest.mark.parametrize("change", [{"doubts": ("a halo",)}, {"tail": 0.3}])
def test_doubts_about_tails_are_kept_with_the_verdict(change):
    assert judged(**change).extra["doubts"] and "doubts" not in judged().extra
