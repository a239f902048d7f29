"""What adjusted chains say of themselves: standard errors in closed form, and whether they agree."""

import numpy as np
import pytest

from sgld.metropolis.confirm import _summarised as summarised

CHAINS, DRAWS = 16, 500


@pytest.mark.parametrize(("law", "kurtosis"), [("standard_normal", 3.0), ("random", 1.8)])
def test_independent_draws_have_the_textbooks_standard_errors(law, kurtosis):
    """Of a mean 1 / sqrt(n), of a sd sqrt((kurtosis - 1) / 4n) of it."""
    values = getattr(np.random.default_rng(0), law)((CHAINS, DRAWS, 2))
    found, n = summarised(values), CHAINS * DRAWS
    np.testing.assert_allclose(found.mean_se, 1 / np.sqrt(n), rtol=0.15)
    np.testing.assert_allclose(found.sd_se, np.sqrt((kurtosis - 1) / (4 * n)), rtol=0.15)
    np.testing.assert_allclose(found.sd, values.std((0, 1), ddof=1), rtol=1e-12)
    assert found.mixed


def test_chains_that_stay_at_different_places_have_not_mixed():
    rng = np.random.default_rng(1)
    apart = 0.6 * rng.standard_normal((CHAINS, 1, 1))
    assert not summarised(apart + rng.standard_normal((CHAINS, DRAWS, 1))).mixed


def test_chains_that_agree_with_too_few_draws_have_not_mixed():
    few = np.random.default_rng(1).standard_normal((CHAINS, 12, 1))
    assert not summarised(few).mixed
