"""R-hat of the moments of many short chains: of groups, as they differ one by one by chance."""

import numpy as np
import pytest

from sgld.results.statistics import Moments, max_r_hat


def moments(x):
    mean, square = x.mean(1), x.var(1)
    return Moments(mean, square, np.zeros_like(mean), 62.0, 62.0, 20, 62)


@pytest.mark.parametrize("apart, agree", [(0.0, True), (2.0, False)])
def test_chains_that_mix_agree_and_those_apart_do_not(apart, agree):
    x = np.random.default_rng(0).standard_normal((64, 62, 1000))
    x[:16] += apart
    found = moments(x).r_hat(np.arange(64))
    limit = max_r_hat(np.full(1000, 3968.0), 64, 1000)
    assert (found <= limit).all() == agree
