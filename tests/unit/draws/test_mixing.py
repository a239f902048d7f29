"""ESS, R-hat and Pareto k of all parameters at once: ArviZ's, to the last digits, and what chance allows."""

import warnings

import numpy as np
import pytest
from arviz_stats.base.array import array_stats

from sgld.diagnostics.rule import Evidence, unmixed
from sgld.inference.execute import draws_needed
from sgld.results import mixing, statistics
from sgld.results.mixing import pareto_k


def autoregressions(rho, rng, chains=4, draws=1000, count=1):
    x = rng.standard_normal((chains, draws, count))
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
    return x


def of_all_kinds(rng, chains, draws):
    """Alternating, independent and slow; separate chains; heavy tails; ties; hardly moving."""
    shape = (chains, draws, 2)
    kinds = [
        *(autoregressions(rho, rng, *shape) for rho in (-0.9, 0.0, 0.5, 0.95, 0.999)),
        autoregressions(0.5, rng, *shape) + 3 * np.arange(chains)[:, None, None],
        rng.standard_cauchy(shape),
        rng.integers(0, 2, shape).astype(float),
        np.round(autoregressions(0.9, rng, *shape), 1),
        (np.arange(draws) == draws // 2)[None, :, None] * np.ones((chains, 1, 1)),
    ]
    return np.concatenate(kinds, axis=-1)


def by_arviz(function, values, **how):
    out = np.full(values.shape[-1], np.nan)
    moving = np.ptp(values, axis=(0, 1)) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out[moving] = function(values[..., moving], chain_axis=0, draw_axis=1, **how)
    return out


@pytest.mark.parametrize("chains", [1, 2, 5])
@pytest.mark.parametrize("draws", [4, 5, 6, 7, 11, 64, 301])
def test_the_definitions_are_those_of_arviz(rng, chains, draws, monkeypatch):
    monkeypatch.setattr(mixing, "BLOCK_NUMBERS", 5 * chains * draws)  # five parameters at a time
    values = of_all_kinds(rng, chains, draws)
    for method, how in (("bulk", {}), ("mean", {}), ("tail", {"prob": (0.05, 0.95)})):
        expected = by_arviz(array_stats.ess, values, method=method, **how)
        np.testing.assert_allclose(mixing.ess(values, method), expected, rtol=1e-10)
    r_hat = by_arviz(array_stats.rhat, values, method="rank")
    np.testing.assert_allclose(mixing.r_hat(values), r_hat, rtol=1e-10)
    center = values.mean(axis=(0, 1))
    found = mixing.mixing(values, center)
    np.testing.assert_array_equal(found.ess, mixing.ess(values, "bulk"))
    np.testing.assert_array_equal(found.r_hat, mixing.r_hat(values))
    square = by_arviz(array_stats.ess, (values - center) ** 2, method="bulk")
    moving = np.isfinite(square) & np.isfinite(found.ess)
    np.testing.assert_allclose(found.ess_square[moving], square[moving], rtol=1e-10)


@pytest.mark.parametrize(("chains", "draws"), [(1, 25), (4, 20), (5, 301), (2, 3001)])
def test_pareto_k_is_that_of_arviz(rng, chains, draws, monkeypatch):
    monkeypatch.setattr(mixing, "BLOCK_NUMBERS", 5 * chains * draws)
    values = np.concatenate(
        [
            autoregressions(0.5, rng, chains, draws, 3),
            autoregressions(0.95, rng, chains, draws, 3),
            rng.standard_cauchy((chains, draws, 3)),
            rng.standard_t(3.0, (chains, draws, 3)) * [1e-30, 1.0, 1e30],
        ],
        axis=-1,
    )
    expected = by_arviz(array_stats.pareto_khat, values)
    found = pareto_k(values)
    if chains * draws < 100:  # arviz-stats 1.3 refuses so short tails, 0.8 does not
        assert np.isfinite(found).all()
        found = np.where(np.isnan(expected), np.nan, found)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_a_tail_that_rounding_ends_leaves_k_to_the_other(rng):
    """A correlation that is 1 in single precision, say: ArviZ refuses all parameters for one."""
    values = rng.standard_t(1.5, (4, 500, 3))
    values[..., 1] = np.minimum(values[..., 1], -0.5)
    values[..., 2] = np.clip(values[..., 2], -0.5, 0.5)
    k = pareto_k(values)
    assert k[1] == pytest.approx(0.67, abs=0.25) and np.isnan(k[2])
    np.testing.assert_array_equal(k[:1], pareto_k(values[..., :1]))
    assert np.isnan(pareto_k(values[:, :6])).all()


def test_what_does_not_move_or_is_no_number_has_none(rng):
    values = rng.standard_normal((2, 20, 3))
    values[..., 0] = 1.0
    values[0, 3, 1] = np.nan
    for found in (mixing.ess(values, "bulk"), mixing.r_hat(values)):
        np.testing.assert_array_equal(np.isnan(found), [True, True, False])
    assert np.isnan(mixing.ess(values[:, :3], "bulk")).all()


def test_the_ess_of_chains_by_themselves_is_blind_to_what_lies_between_them(rng):
    x = autoregressions(0.5, rng, count=2)
    x[:2, :, 1] += 1.0
    found = mixing.mixing(x, x.mean(axis=(0, 1)))
    assert found.ess[1] < 50 and found.ess_alone[1] > 800
    assert found.ess_alone[0] == pytest.approx(min(found.ess[0], found.ess_square[0]), rel=0.1)
    assert found.gap[0] < 0.5 and found.gap[1] == pytest.approx(1.0, abs=0.3)


def test_the_limit_of_r_hat_is_a_quantile_for_the_worst_of_d_parameters():
    """Of 1 + (2 M / ESS) chi^2_{2M-1} / (2M-1): against independent draws, at a chance of 5%."""
    rng, d = np.random.default_rng(1), 20
    r_hat = mixing.r_hat(rng.standard_normal((4, 100, 40_000))).reshape(-1, d).max(axis=1)
    # R-hat^2 has 1 / n less, n = 50 draws of half a chain, which counts where draws are independent
    over = np.mean(np.sqrt(r_hat**2 + 1 / 50) > statistics.max_r_hat(400, 4, d, chance=0.05))
    assert 0.06 < over < 0.12  # of the bulk and of the distances from the median, twice 5% at most
    assert statistics.max_r_hat(1e9, 4, d) == 1.01  # what is that small matters to nobody


def test_many_short_chains_are_compared_in_groups(rng):
    """64 chains of 40 draws that mix differ by chance, groups of them do not."""
    good = autoregressions(0.5, rng, 66, 40, 50)
    found = mixing.mixing(good, good.mean(axis=(0, 1)))
    assert np.all(found.r_hat <= statistics.max_r_hat(found.ess_alone, 66, 50))
    first, second = good[:64, :20], good[:64, 20:]
    halves = [part.reshape(4, 16 * 20, 50) for part in (first, second)]
    one = mixing.r_hat(np.concatenate(halves, axis=1))
    np.testing.assert_allclose(mixing.r_hat(good[:64]), one, rtol=1e-12)
    assert statistics.max_r_hat(400, 64) == statistics.max_r_hat(400, 4)
    apart = good + np.where(np.arange(66) < 32, 0.5, 0.0)[:, None, None]
    found = mixing.mixing(apart, apart.mean(axis=(0, 1)))
    assert np.all(found.r_hat > statistics.max_r_hat(found.ess_alone, 66, 50))


def said_of(values):
    found = statistics.Estimates(values, np.full(values.shape[:2], 1 / values[..., 0].size))
    names = tuple(f"x{i}" for i in range(values.shape[-1]))
    return unmixed(
        Evidence(names, found.mean, found.sd, **found.mixing._asdict(), num_chains=len(values))
    ), draws_needed(found, 0.05, values.shape[1])


@pytest.mark.parametrize("parameters", [1, 3000])
def test_half_of_the_chains_off_by_half_an_sd_are_found_among_many_parameters(rng, parameters):
    good = autoregressions(0.5, rng, count=parameters)
    assert said_of(good) == ([], 1000)
    good[:2, :, -1] += 0.5
    (reason,), longer = said_of(good)
    assert "the chains disagree" in reason and f"'x{parameters - 1}'" in reason
    assert "modes" not in reason and longer > 1000


def test_several_modes_are_spoken_of_where_chains_are_in_groups_alone(rng):
    x = autoregressions(0.5, rng, count=2)
    x[0, :, 1] += 8.0
    (reason,), draws = said_of(x)
    assert "several modes" in reason and "'x1'" in reason and "8 sds" in reason
    assert draws == 1000  # more draws of where each is say nothing
    slow = autoregressions(0.99995, rng, count=2)  # narrow, and far from each other
    assert mixing.mixing(slow, slow.mean((0, 1))).gap.max() > 2
    (reason,), draws = said_of(slow)
    assert "too few effective draws" in reason and draws > 1000


def test_chains_that_disagree_are_prolonged_by_as_much_as_r_hat_asks():
    rng = np.random.default_rng(3)
    x = autoregressions(0.5, rng)
    shifted = [x + np.array([0, 0, shift, shift])[:, None, None] for shift in (0.0, 0.35, 0.7)]
    none, some, most = (said_of(values)[1] for values in shifted)
    assert none == 1000 < some < most <= 4000
    (reason,), _ = said_of(shifted[2])
    assert "the chains disagree" in reason


def test_a_chain_that_drifts_stands_in_no_group(rng):
    """Its halves are 6 sds apart, as those of two groups would be; groups hold whole chains."""
    drifting = rng.standard_normal((4, 400, 1))
    drifting[0, 200:] += 6
    apart = rng.standard_normal((4, 400, 1))
    apart[0] += 6
    gaps = [float(mixing.mixing(x, np.zeros(1)).gap[0]) for x in (drifting, apart)]
    assert gaps[0] < 1 < 5 < gaps[1]
