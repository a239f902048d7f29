"""Two sets of draws side by side: parameters are matched by name."""

import numpy as np

import sgld


def test_names_that_have_gone_round_are_matched(rng):
    """Of three, in an order that is not its own inverse."""
    scales = np.array([1.0, 5.0, 30.0])
    x = scales * rng.standard_normal((2, 300, 3)) + scales
    draws = sgld.Draws.of(x, names=("p", "q", "r"))
    turned = sgld.Draws.of(x[..., [2, 0, 1]], names=("r", "p", "q"))
    for table in (sgld.compare(draws, turned), sgld.compare(turned, draws)):
        np.testing.assert_allclose(table.mean_error, 0, atol=1e-12)
        np.testing.assert_allclose(table.sd_ratio, 1, rtol=1e-12)


def test_the_unit_is_the_sd_of_the_reference(rng):
    x = rng.standard_normal((4, 1000, 1))
    table = sgld.compare(sgld.Draws.of(3 * x + 2, names=("a",)), sgld.Draws.of(x * 2, names=("a",)))
    np.testing.assert_allclose(table.sd_ratio, 1.5, rtol=1e-12)
    np.testing.assert_allclose(table.mean_error, (x.mean() + 2) / (2 * x.std(ddof=1)), rtol=1e-12)
