"""Bugs in what is said about draws: weighted statistics, tables, comparisons, what is stored."""

from .mutant import Mutant

DRAWS_TEST = "tests/unit/draws/test_draws.py::"
WEIGHTED = "tests/unit/draws/test_weighted.py::"
AUTOREGRESSION = WEIGHTED + "test_the_ess_of_an_autoregression"
ARVIZ = "tests/unit/draws/test_mixing.py::test_the_definitions_are_those_of_arviz"
SUMMARY = WEIGHTED + "test_a_row_of_the_summary_is_the_law_of_its_draws"
COMPARISON = "tests/unit/draws/test_comparison.py::"
STORED = "tests/unit/draws/test_stored_order.py::"

DRAWS = [
    Mutant(
        "weighted variance: the divisor of equal weights", "draws/weighted.py",
        "share = (weights**2).sum() / weights.sum() ** 2", "share = 1 / weights.size",
        DRAWS_TEST + "test_moments_equal_those_of_replicated_draws",
    ),
    Mutant(
        "weighted quantile: a draw's own weight lies below it", "draws/weighted.py",
        "below = np.cumsum(w, axis=0) - w", "below = np.cumsum(w, axis=0)",
        WEIGHTED + "test_a_quantile_of_nearly_equal_weights_is_that_of_equal_ones",
    ),
    Mutant(
        "ESS: unequal weights cost nothing", "draws/weighted.py",
        "mixing.ess(values, method) * weight_share(weights)", "mixing.ess(values, method)",
        DRAWS_TEST + "test_unequal_weights_cost_effective_draws",
    ),
    Mutant(
        "ESS and R-hat: the last chain's halves are one", "draws/mixing.py",
        "x[..., :half], x[..., -half:]", "x[..., :half], x[..., :half]", ARVIZ,
    ),
    Mutant(
        "ESS and R-hat: equal values have ranks of their own", "draws/mixing.py",
        "first % size + last % size, count", "2 * (first % size), count", ARVIZ,
    ),
    Mutant(
        "ESS: the pair that ends the sequence does not count", "draws/mixing.py",
        "np.maximum(-1 + 2 * whole + half,", "np.maximum(-1 + 2 * whole,", ARVIZ,
    ),
    Mutant(
        "ESS: what lies between chains is no variance", "draws/mixing.py",
        "for variance in (total, alone)", "for variance in (alone, alone)", ARVIZ,
    ),
    Mutant(
        "ESS: sums of pairs may rise again", "draws/mixing.py",
        "np.minimum.accumulate(pairs, axis=1)", "pairs", ARVIZ,
    ),
    Mutant(
        "MCSE: a variance for an error", "draws/weighted.py",
        'np.sqrt(var(values, weights) / ess(values, weights, "mean"))',
        'var(values, weights) / ess(values, weights, "mean")', AUTOREGRESSION,
    ),
    Mutant(
        "intervals: all of what is left out on one side", "draws/draws.py",
        "self.quantile((1 - prob) / 2, h)", "self.quantile(1 - prob, h)",
        DRAWS_TEST + "test_weighted_quantile_of_many_draws",
    ),
    Mutant(
        "weights: of failed chains too", "draws/draws.py",
        "log_weight = self.log_weight[self.healthy]", "log_weight = self.log_weight",
        DRAWS_TEST + "test_failed_chains_are_left_out",
    ),
    Mutant(
        "summary: a variance in the column of sds", "draws/summary.py",
        '"sd": np.sqrt(weighted.var(values, w))', '"sd": weighted.var(values, w)', SUMMARY,
    ),
    Mutant(
        "summary: the bulk's ESS in the tail's column", "draws/summary.py",
        'weighted.ess(values, w, "tail")', 'weighted.ess(values, w, "bulk")',
        WEIGHTED + "test_the_tails_mix_apart_from_the_bulk",
    ),
    Mutant(
        "summary: cold and tempered change places", "draws/summary.py",
        '"cold" if temperature[0] < 1', '"cold" if temperature[0] > 1',
        WEIGHTED + "test_the_summary_names_the_law_of_a_temperature",
    ),
    Mutant(
        "comparison: names matched the other way round", "draws/comparison.py",
        "[reference.names.index(name) for name in draws.names]",
        "[draws.names.index(name) for name in reference.names]",
        COMPARISON + "test_names_that_have_gone_round_are_matched",
    ),
    Mutant(
        "comparison: a sd's error is its square's", "draws/comparison.py",
        "ratio * np.hypot(a.sd_se, b.sd_se)", "ratio * 2 * np.hypot(a.sd_se, b.sd_se)",
        "tests/unit/test_reference.py::test_compare_finds_known_shifts",
    ),
    Mutant(
        "comparison: in units of the draws' own sd", "draws/comparison.py",
        "(a.mean - b.mean) / b.sd", "(a.mean - b.mean) / a.sd",
        COMPARISON + "test_the_unit_is_the_sd_of_the_reference",
    ),
    Mutant(
        "storage: the leaves of every dict in the order of their names", "draws/storage.py",
        "list(tree) if isinstance(tree, OrderedDict) else sorted(tree)", "sorted(tree)",
        STORED + "test_every_leaf_keeps_its_name",
    ),
    Mutant(
        "storage: a number that is not finite becomes 0", "draws/verdict.py",
        "[np.nan if v is None else v for v in stored[name]]",
        "[0.0 if v is None else v for v in stored[name]]",
        STORED + "test_weights_status_and_verdict_come_back",
    ),
]  # fmt: skip
