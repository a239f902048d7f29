"""Bugs in what a run says about itself: the bias meter, the rule, exact chains, the phase."""

from .mutant import Mutant

VERDICT = "tests/unit/diagnose/test_verdict.py::"
RULES = VERDICT + "test_rules"
STEIN = "tests/unit/diagnose/test_stein.py::"
EXACT = STEIN + "test_full_gradients_give_the_truth_exactly"
WITHIN_ERROR = STEIN + "test_noisy_gradients_give_it_within_their_standard_error"
RUNS = "tests/unit/diagnose/test_judged_runs.py::"
MIXING = "tests/unit/draws/test_mixing.py::"
EXACT_RULE = "tests/unit/diagnose/test_exact.py::"
WEIGHTED = "tests/unit/draws/test_weighted.py::"
PHASE = "tests/unit/diagnose/test_phase.py::"

FROM_MODES = "tests/unit/tune/test_from_modes.py::"

DIAGNOSE = [
    Mutant(
        "several: doubts are not asked of runs kept in several modes",
        "            \"doubts\": doubts,\n        }  # fmt: skip\n        return judge_several(",
        "        }  # fmt: skip\n        return judge_several(",
        FROM_MODES + "test_doubts_stand_for_runs_kept_in_several_modes_too",
    ),
    Mutant(
        "modes: errors of masses carry nothing over",
        "return np.einsum(\"gm,gh,hm->m\", apart, part, apart).clip(0)",
        "return 0 * np.einsum(\"gm,gh,hm->m\", apart, part, apart).clip(0)",
        FROM_MODES + "test_estimates_of_strata_and_their_errors",
    ),
    Mutant(
        "modes: every region has the same share",
        "share = self.mass[list(self.each)]", "share = np.ones(len(self.each))",
        FROM_MODES + "test_estimates_of_strata_and_their_errors",
    ),
    Mutant(
        "modes: trajectories need not come back",
        "np.argwhere(flow > MAX_CROSSING_RATIO * flow.T)", "np.argwhere(flow > np.inf * flow.T)",
        FROM_MODES + "test_trajectories_that_do_not_come_back_tell_of_mass_that_no_chain_sees",
    ),
    Mutant(
        "modes: a mass of any error will do",
        "MAX_MASS_SE = 0.015", "MAX_MASS_SE = 1.0",
        FROM_MODES + "test_a_mass_that_is_not_known_is_named_with_its_error",
    ),
    Mutant(
        "modes: energies of regions are pooled",
        "min(part.energy for part in parts)", "cls.of(state.inside, dimension).energy",
        FROM_MODES + "test_energies_are_judged_region_by_region",
    ),
    Mutant(
        "mixing: a chain that drifts stands in a group",
        "np.where(free, apart, 0.0)", "np.where(free | True, apart, 0.0)",
        MIXING + "test_a_chain_that_drifts_stands_in_no_group",
    ),
    Mutant(
        "meter: the corrected variance without its mean's square",
        "second / weight + variance - mean**2", "second / weight + variance",
        STEIN + "test_a_mode_that_is_a_little_off_changes_no_sd",
    ),
    Mutant(
        "meter: the Gaussian's variance at T = 1 in a tempered run",
        "mean, second = _moments(total, temperature * variance)",
        "mean, second = _moments(total, variance)", EXACT,
    ),
    Mutant(
        "meter: the mean is shifted away from the truth",
        "mean - run[0], sd)", "run[0] - mean, sd)", EXACT,
    ),
    Mutant(
        "meter: sums over weighted draws divided by the number of draws",
        "return w.sum(), w @", "return float(len(w)), w @",
        STEIN + "test_a_mode_that_is_a_little_off_changes_no_sd",
    ),
    Mutant(
        "meter: the jackknife's variance is a mean and not a sum",
        "(count - 1) / count * np.sum(centred**2, axis=0)",
        "(count - 1) / count * np.mean(centred**2, axis=0)", WITHIN_ERROR,
    ),
    Mutant(
        "meter: the jackknife does not leave its segment out",
        "tuple(t - p for t, p in zip(total, part, strict=True))", "part", WITHIN_ERROR,
    ),
    Mutant(
        "meter: r2 from one gradient taken twice",
        "(t - t.mean(0)) * (u - u.mean(0))", "(t - t.mean(0)) ** 2",
        STEIN + "test_explained_is_1_on_a_gaussian_and_less_away_from_it",
    ),
    Mutant(
        "evidence: ESS of theta where that of theta^2 belongs",
        "sd=found.sd,\n        **found.mixing._asdict(),",
        "sd=found.sd,\n        **found.mixing._replace(ess_square=found.mixing.ess)._asdict(),",
        RUNS + "test_draws_that_alternate_count_by_their_squares",
    ),
    Mutant(
        "evidence: the meter's own run without its weights",
        'run = (statistics.mean(phi, weights), statistics.var(phi, weights))',
        "run = (phi.mean((0, 1)), phi.var((0, 1)))",
        RUNS + "test_the_meter_measures_the_weighted_draws",
    ),
    Mutant(
        "evidence: a tempered run held against the posterior",
        "weights, T, seed)",
        "weights, 1.0, seed)",
        RUNS + "test_a_tempered_run_is_held_against_the_tempered_law",
    ),
    Mutant(
        "evidence: a temperature that changes is refused only where it is 0 too",
        "np.ptp(temperature) > 0 or temperature.flat[0] <= 0",
        "np.ptp(temperature) > 0 and temperature.flat[0] <= 0",
        RUNS + "test_draws_at_several_temperatures_follow_no_single_law",
    ),
    Mutant(
        "evidence: the excess of a variance, not of an sd",
        "np.sqrt(1 + wrong / true) - 1", "wrong / true",
        RUNS + "test_the_excess_of_a_step_by_hand_is_the_closed_form",
    ),
    Mutant(
        "evidence: the second gradient of r2 is the run's own again",
        "second = _fresh_gradients(problem, estimator, z[:, at].reshape(-1, d), seed)",
        "second = first",
        RUNS + "test_a_runs_own_gradients_explain_where_all_rows_were_looked_at",
    ),
    Mutant(
        "evidence: the two gradients of r2 are at different draws",
        "np.repeat(z, 2, axis=0)", "np.tile(z, (2, 1))",
        RUNS + "test_noisy_gradients_explain_a_gaussian_as_well_as_exact_ones",
    ),
    Mutant(
        "rule: R-hat's limit for one chain",
        "1 + 2 * M / np.asarray", "1 + 2 / np.asarray",
        VERDICT + "test_r_hat_allows_for_the_draws_at_hand",
    ),
    Mutant(
        "rule: R-hat's limit is of one parameter, however many there are",
        "chance / max(1, num_parameters)", "chance", MIXING + "test_the_limit_of_r_hat_is_a_quantile_for_the_worst_of_d_parameters",
    ),
    Mutant(
        "rule: R-hat's limit counts chains, not their halves",
        "/ (2 * M - 1)", "/ M", MIXING + "test_the_limit_of_r_hat_is_a_quantile_for_the_worst_of_d_parameters",
    ),
    Mutant(
        "R-hat: a group's second half is another group's",
        "for begin in (0, chains)", "for begin in (0, 1)",
        MIXING + "test_many_short_chains_are_compared_in_groups",
    ),
    Mutant(
        "rule: R-hat's limit by an ESS that falls as chains part",
        "if self.ess_alone is None else self.ess_alone", "if True else self.ess_alone",
        MIXING + "test_half_of_the_chains_off_by_half_an_sd_are_found_among_many_parameters",
    ),
    Mutant(
        "rule: slow chains are taken for modes",
        "settled & (gap > MIN_GROUP_SDS)", "(gap > MIN_GROUP_SDS)", MIXING + "test_several_modes_are_spoken_of_where_chains_are_in_groups_alone",
    ),
    Mutant(
        "lengths: R-hat does not count",
        "np.where(m.r_hat > limit, ", "np.where(m.r_hat > 9, ",
        MIXING + "test_chains_that_disagree_are_prolonged_by_as_much_as_r_hat_asks",
    ),
    Mutant(
        "lengths: chains that stay apart are prolonged",
        "where=free & np.isfinite(share)", "where=np.isfinite(share)", MIXING + "test_several_modes_are_spoken_of_where_chains_are_in_groups_alone",
    ),
    Mutant(
        "rule: squares need no effective draws",
        "ess = np.fmin(e.ess, e.ess_square)", "ess = e.ess", RULES,
    ),
    Mutant(
        "rule: an excess that is not a number passes",
        "not np.max(e.excess) <= MAX_EXCESS", "np.max(e.excess) > MAX_EXCESS",
        VERDICT + "test_what_is_not_a_number_is_never_trusted",
    ),
    Mutant(
        "rule: biased only where sd and mean are both off",
        "np.max(error) > MAX_RATIO_ERROR or np.max(mean_error) > MAX_MEAN_ERROR",
        "np.max(error) > MAX_RATIO_ERROR and np.max(mean_error) > MAX_MEAN_ERROR", RULES,
    ),
    Mutant(
        "rule: a mean's error in sds of the run, not of the posterior",
        "np.abs(e.mean_shift) / (e.sd / e.sd_ratio)", "np.abs(e.mean_shift) / e.sd", RULES,
    ),
    Mutant(
        "rule: the doubt about a second mode is dropped",
        "if e.other_modes:\n        return (", "if e.other_modes > 1:\n        return (", RULES,
    ),
    Mutant(
        "rule: the best explained parameter speaks for all",
        "worst = int(np.argmin(e.r2))", "worst = int(np.argmax(e.r2))", RULES,
    ),
    Mutant(
        "rule: Monte Carlo error as a variance",
        "3 / np.sqrt(2 * e.ess_square[worst])", "3 / (2 * e.ess_square[worst])", RULES,
    ),
    Mutant(
        "rule: Monte Carlo error excuses a law that is known to be too wide",
        "np.max(e.excess) < e.tolerance", "np.max(e.excess) < MAX_EXCESS", RULES,
    ),
    Mutant(
        "corrected columns: the sd is corrected the wrong way",
        "np.divide(e.sd, e.sd_ratio,", "np.multiply(e.sd, e.sd_ratio,", VERDICT + "test_trusted",
    ),
    Mutant(
        "corrected columns: shown for any one of the reasons",
        "(e.r2 > MIN_PRINTED_R2) & (e.ess >= MIN_CORRECTED_ESS)",
        "(e.r2 > MIN_PRINTED_R2) | (e.ess >= MIN_CORRECTED_ESS)",
        VERDICT + "test_corrected_columns_need_effective_draws_and_a_meter_that_is_sure",
    ),
    Mutant(
        "a promise rounded down",
        "int(np.ceil(100 * np.max(error) - 1e-9))", "int(100 * np.max(error) - 1e-9)",
        VERDICT + "test_trusted",
    ),
    Mutant(
        "a sd's error that forgets the - 1 of the kurtosis",
        "np.sqrt((self.kurtosis - 1) / (4 * self.ess_sd))",
        "np.sqrt(self.kurtosis / (4 * self.ess_sd))",
        WEIGHTED + "test_independent_draws_have_the_textbooks_standard_errors",
    ),
    Mutant(
        "exact chains: many need no more effective draws than few",
        "max(MIN_ESS, MIN_ESS_PER_CHAIN * num_chains)", "MIN_ESS", EXACT_RULE + "test_the_rule",
    ),
    Mutant(
        "exact chains: divergences count for nothing",
        "if trajectories.divergences:", "if trajectories.divergences > 100:", EXACT_RULE + "test_the_rule",
    ),
    Mutant(
        "exact chains: energies of each chain about its own mean alone",
        "float(np.mean(within) + np.var(mean))", "float(np.mean(within))",
        EXACT_RULE + "test_energies_of_a_gaussian_and_of_one_with_a_slow_direction",
    ),
    Mutant(
        "phase: alpha without the 2 of the injected noise",
        "h[:, None] * level / (2 * T[:, None])", "h[:, None] * level / T[:, None]",
        PHASE + "test_the_crossing",
    ),
    Mutant(
        "phase: rows without replacement counted as with it",
        'n if problem.source.order == "replacement"', 'n if problem.source.order != "replacement"',
        PHASE + "test_the_level_is_the_largest_eigenvalue_over_all_batches",
    ),
    Mutant(
        "phase: the metric's factor transposed",
        "white = jax.vmap(D.pullback)(half)", "white = jax.vmap(D.noise)(half)",
        PHASE + "test_statistics_of_per_datum_gradients",
    ),
    Mutant(
        "phase: every row has the whole prior",
        "(z) / problem.num_data", "(z) / 1",
        PHASE + "test_statistics_of_per_datum_gradients "
        "tests/unit/tune/test_noise.py::test_per_datum_statistics_give_the_noise_of_every_batch",
    ),
    Mutant(
        "rule: the meter's figures stand where mass was found elsewhere",
        "elsewhere = e.other_modes > 0 or any(", "elsewhere = e.other_modes > 0 and any(",
        VERDICT + "test_where_the_meter_is_no_guide_its_column_is_empty",
    ),
    Mutant(
        "rule: the meter's figures stand where it is no guide",
        "nowhere = e.why_not is not None or elsewhere or far", "nowhere = False",
        VERDICT + "test_where_the_meter_is_no_guide_its_column_is_empty",
    ),
    Mutant(
        "rule: 'a smaller step_size' to those who gave none",
        "smaller if e.by_hand else SMALLER_TOLERANCE}", "smaller}",
        VERDICT + "test_nobody_who_gave_no_step_size_is_told_to_make_it_smaller",
    ),
    Mutant(
        "check_sampler: too narrow is called too wide",
        'side = "wide" if worst > 1 else "narrow"', 'side = "narrow" if worst > 1 else "wide"',
        "tests/contracts/test_sampler.py::test_slips_are_caught",
    ),
    Mutant(
        "check_sampler: a simulation may be off by what it was",
        "MAX_SIMULATION_ERROR = 0.01", "MAX_SIMULATION_ERROR = 0.05",
        "tests/contracts/test_sampler.py::test_what_one_step_near_the_mode_does_not_show_is_caught",
    ),
    Mutant(
        "check_sampler: one step stands for those of a sampler that counts",
        "(not affine or counts(sampler))", "not affine",
        "tests/contracts/test_sampler.py::test_what_one_step_near_the_mode_does_not_show_is_caught",
    ),
    Mutant(
        "check_source: a batch may start anywhere",
        "placed = batch.numbers == batch.start + jnp.arange(m)", "placed = jnp.ones(m, bool)",
        "tests/contracts/test_source.py::test_slips_are_caught",
    ),
    Mutant(
        "report: the spread of some rows is that of all",
        "if totals.num_rows < made.num_data:", "if False:",
        "tests/unit/report/test_page.py::test_the_spread_fits_where_all_rows_say_so",
    ),
]  # fmt: skip
