"""What is loaded is what was saved, leaf by leaf, whatever the order in which it was written."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import sgld
from sgld.results.verdict import Verdict

Pair = namedtuple("Pair", "late early")


def leaves(rng):
    return rng.normal(size=(2, 9, 3)), rng.normal(size=(2, 9))


@pytest.mark.parametrize(
    "tree", [lambda a, b: {"late": a, "early": b}, lambda a, b: OrderedDict(late=a, early=b), Pair]
)
def test_every_leaf_keeps_its_name(rng, tmp_path, tree):
    late, early = leaves(rng)
    draws = sgld.Draws.of(tree(late, early))
    again = sgld.load(draws.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.position["late"], late)
    np.testing.assert_array_equal(again.position["early"], early)
    assert again.names == draws.names


def test_weights_status_and_verdict_come_back(rng, tmp_path):
    late, _ = leaves(rng)
    verdict = Verdict(
        "biased", ("sd of 'x[0]' is off.",), np.array([1.3, 0.9, np.nan]), np.full(3, 0.01)
    )
    draws = sgld.Draws.of(
        late, log_weight=rng.normal(size=(2, 9)), status=("ok", "chain 1 failed at step 3"),
        step=np.arange(5, 50, 5), verdict=verdict,
    )  # fmt: skip
    again = sgld.load(draws.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.log_weight, draws.log_weight)
    np.testing.assert_array_equal(again.step, draws.step)
    np.testing.assert_array_equal(again.verdict.sd_ratio, verdict.sd_ratio)
    assert again.status == draws.status and again.verdict.word == "biased"
    np.testing.assert_allclose(again.mean(), draws.mean())
