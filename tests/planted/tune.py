"""Bugs in what the library finds out and chooses: Gaussian, noise, law, step, lengths, modes."""

from .mutant import Mutant

NOISE = "tests/unit/tune/test_noise.py::"
ROWS = "tests/unit/tune/test_row_noise.py::"
GAUSSIAN = "tests/unit/tune/test_gaussian.py::"
FACTOR = GAUSSIAN + "test_covariance_factor_and_whitening_belong_to_the_posterior"
CENTER = "tests/unit/tune/test_center.py::"
LENGTHS = "tests/unit/tune/test_lengths.py::"
EXACT = "tests/unit/tune/test_exact_chains.py::"
LOWRANK = "tests/unit/tune/test_lowrank.py::"
PILOTED = "tests/unit/tune/test_piloted.py::"
LIMITS = "tests/unit/test_limits.py::"
COLUMNS = "tests/unit/models/test_formula.py::"
AT_ONCE = COLUMNS + "test_all_columns_that_cannot_be_told_apart_are_named_at_once"
PROPER = "tests/unit/tune/test_proper.py::"
PREDICT = "tests/unit/tune/test_predicted.py"
LAW = "tests/laws/test_sgld.py::"
AFFINE = "tests/laws/test_momentum.py::"
SANDWICH = "tests/unit/approximate/test_sandwich_of_means.py::"
TOLD = "tests/unit/test_told.py::"
MODES = "tests/unit/tune/test_modes.py::"
WIDE = "tests/unit/tune/test_wide.py::"

FROM_MODES = "tests/unit/tune/test_from_modes.py::"
EXCHANGE = "tests/laws/test_replica_exchange.py::"

CONCAVE = "tests/unit/models/test_log_concave.py::"

GUIDED = "tests/unit/tune/test_guided.py::"

TUNE = [
    Mutant(
        "guided: curvature of all rows with the other sign",
        "curvature=-sums.curvature(problem, center) - curvature", "curvature=sums.curvature(problem, center) - curvature",
        GUIDED + "test_a_guide_has_the_gradient_and_the_curvature_of_all_rows_at_its_centre",
    ),
    Mutant(
        "guided: what some rows miss of the gradient is the gradient",
        "slope = sums.value_and_gradient(problem, center)[1] - gradient",
        "slope = sums.value_and_gradient(problem, center)[1]",
        GUIDED + "test_a_guide_has_the_gradient_and_the_curvature_of_all_rows_at_its_centre",
    ),
    Mutant(
        "guided: what is missed of the curvature twice",
        "0.5 * (self.curvature @ away)", "self.curvature @ away",
        GUIDED + "test_a_guide_has_the_gradient_and_the_curvature_of_all_rows_at_its_centre",
    ),
    Mutant(
        "guided: rows that stand out stand for others",
        "np.append(np.ones(len(apart)), np.full(len(others), share))",
        "np.full(len(apart) + len(others), share)",
        GUIDED + "test_its_rows_count_for_all_and_those_that_stand_out_once",
    ),
    Mutant(
        "guided: a guide that is astray is followed",
        "np.std(away[ended]) < MAX_GUIDE_LOGP_SD and away[dense].max() < MAX_LOGP_ABOVE_GUIDE", "away[dense].max() < MAX_LOGP_ABOVE_GUIDE",
        GUIDED + "test_a_guide_that_is_astray_is_not_followed",
    ),
    Mutant(
        "guided: mass that a guide does not lead to",
        "np.std(away[ended]) < MAX_GUIDE_LOGP_SD and away[dense].max() < MAX_LOGP_ABOVE_GUIDE", "np.std(away[ended]) < MAX_GUIDE_LOGP_SD",
        GUIDED + "test_a_guide_that_misses_mass_where_a_chain_began_is_not_followed",
    ),
    Mutant(
        "guided: the rows that are followed accept",
        "return Estimate(relative, followed=guide)", "return Estimate(guide or relative, followed=guide)",
        GUIDED + "test_all_rows_accept_in_the_run_itself",
    ),
    Mutant(
        "guided: what is to be followed is not",
        "jax.grad(grad.followed or log_density)", "jax.grad(log_density)",
        GUIDED + "test_a_trajectory_goes_back_along_the_way_it_came_whatever_it_follows",
    ),
    Mutant(
        "guided: draws from the first trajectory on",
        "burn_in=SETTLING_TRAJECTORIES if found.guide is not None else 0", "burn_in=0",
        GUIDED + "test_a_guided_run_is_exact_told_and_goes_on_where_it_was_stopped",
    ),
    Mutant(
        "guided: places beside the chains are not looked at",
        "np.concatenate([found.zs, zs, _points_near_ends(found, seed)])", "np.concatenate([found.zs, zs])",
        GUIDED + "test_a_wedge_beside_the_chains_that_the_guide_misses_is_seen",
    ),
    Mutant(
        "guided: of several modes draws from the first trajectory on",
        "burn_in=0 if guide is None else SETTLING_TRAJECTORIES", "burn_in=0",
        GUIDED + "test_what_was_led_settles_before_it_is_kept",
    ),
    Mutant(
        "guided: what leads in one region leads in all",
        "        if led is None:\n            return None", "        if led is None:\n            continue",
        GUIDED + "test_a_guide_that_does_not_lead_in_one_region_leads_in_none",
    ),
    Mutant(
        "guided: the ends of trajectories cost nothing",
        "one *= share + END_GRADIENTS / (5 * dimension**0.25)", "one *= share",
        GUIDED + "test_its_price_is_that_of_the_ends_and_of_the_rows_that_are_followed",
    ),
    Mutant(
        "concave: a function answers for what is bound to it",
        "return all(map(_log_concave, (function.func, *bound)))", "return _log_concave(function.func)",
        CONCAVE + "test_a_function_bound_to_one_that_is_not_makes_it_none",
    ),
    Mutant(
        "concave: constraints change nothing",
        "return self.transform is None and all(map(", "return all(map(",
        CONCAVE + "test_constraints_come_before_what_a_function_says",
    ),
    Mutant(
        "concave: no posterior is looked around",
        """if problem.posterior.log_concave:
        return at, None, ()""", "return at, None, ()",
        CONCAVE + "test_nothing_is_looked_for_where_there_can_be_nothing",
    ),
    Mutant(
        "limits: a search that was cut short has found nothing",
        "return at, None, (NOT_SEARCHED,)", "return at, None, ()",
        LIMITS + "test_where_other_modes_have_had_their_share_of_the_time_draws_come_without_a_promise",
    ),
    Mutant(
        "limits: a search goes on until all the time is up",
        "if limit.shared:", "if False:",
        LIMITS + "test_where_other_modes_have_had_their_share_of_the_time_draws_come_without_a_promise",
    ),
    Mutant(
        "limits: what nobody looked for is somewhere else",
        'any(doubt.kind != "unseen" for doubt in self.doubts)', "bool(self.doubts)",
        LIMITS + "test_the_search_for_other_modes_is_left_in_its_middle",
    ),
    Mutant(
        "price: each chain reads the whole table by itself",
        "own + fetched / chains", "own + fetched",
        WIDE + "test_a_row_of_a_table_that_is_read_together_costs_less",
    ),
    Mutant(
        "price: a corrected step of exact gradients, however far from a Gaussian",
        "np.clip(most, MAX_CORRECTED_STEP, MAX_EXACT_STEP)", "MAX_EXACT_STEP",
        WIDE + "test_the_step_of_exact_gradients_leaves_half_of_the_tolerance",
    ),
    Mutant(
        "mode: one curvature for all steps",
        "if not decrement < last / 4 or", "if",
        WIDE + "test_a_curvature_that_no_longer_serves_is_taken_anew",
    ),
    Mutant(
        "mode: a curvature for each step",
        "if many and plain:", "if False:",
        WIDE + "test_one_curvature_serves_for_several_steps_to_the_same_mode",
    ),
    Mutant(
        "lengths: as many draws of each of 64 chains as of 4",
        "least = 4 * DEFAULT_DRAWS // num_chains if is_auto(ask.num_chains) else DEFAULT_DRAWS",
        "least = DEFAULT_DRAWS",
        WIDE + "test_by_default_64_chains_take_all_rows_and_every_step_is_a_draw",
    ),
    Mutant(
        "run: long steps in blocks of hundreds",
        "return min(most, MAX_LONG_BLOCK_STEPS) if long else most", "return most",
        WIDE + "test_a_run_of_long_steps_is_of_few_blocks_more_than_it_needs",
    ),
    Mutant(
        "bridge: p and q change places",
        "float(np.log(f.mean()) - np.log(g.mean()))", "float(np.log(g.mean()) - np.log(f.mean()))",
        FROM_MODES + "test_an_integral_and_its_error",
    ),
    Mutant(
        "bridge: draws of slow chains count as independent",
        "return float(np.nan_to_num(mixing.ess(g[..., None], \"mean\")[0], nan=1.0))", "return float(g.size)",
        FROM_MODES + "test_an_integral_and_its_error",
    ),
    Mutant(
        "bridge: the error of q's draws is left out",
        "variance = f.var() / (q.size * f.mean() ** 2) + g.var()", "variance = g.var()",
        FROM_MODES + "test_an_integral_and_its_error",
    ),
    Mutant(
        "bridge: a few draws are enough",
        "if not rests_on >= MIN_BRIDGE_ESS:", "if not rests_on >= 0:",
        FROM_MODES + "test_draws_that_do_not_meet_tell_nothing",
    ),
    Mutant(
        "bridge: q's draws outside of the region count",
        "np.where(inside(points), log_ratio(points), -np.inf)", "log_ratio(points)",
        FROM_MODES + "test_the_integral_over_a_region_of_chains",
    ),
    Mutant(
        "bridge: q without its volume",
        "constant = -np.sum(np.log(np.diag(factor))) - d / 2", "constant = -d / 2",
        FROM_MODES + "test_the_integral_over_a_region_of_chains",
    ),
    Mutant(
        "masses: the modes' heights are left out",
        "found.log_z + heights[g]", "found.log_z",
        FROM_MODES + "test_modes_30_sds_apart_are_weighed",
    ),
    Mutant(
        "weights: every region's chains count as those of one",
        "mass / np.maximum(chains, 1)", "mass / mass",
        FROM_MODES + "test_weights_are_those_of_the_regions_and_chains_are_in_both",
    ),
    Mutant(
        "regions: chains may leave theirs",
        "state.inside.at.unless(stays, new.at)", "new.at",
        FROM_MODES + "test_chains_follow_the_density_of_their_region",
    ),
    Mutant(
        "mode: a search stays on a saddle",
        "decrement < 1e-6 * MAX_DECREMENT:", "decrement < -1:",
        "tests/unit/tune/test_wide.py::test_the_search_leaves_a_saddle_alone",
    ),
    Mutant(
        "misfit: what a few rows decide is told or not the wrong way round",
        "found < MIN_FEW_ROWS_MISFIT", "found > MIN_FEW_ROWS_MISFIT",
        "tests/unit/tune/test_misfit.py::test_a_few_rows_that_do_not_belong_are_told_and_a_few_that_decide_are_not",
    ),
    Mutant(
        "columns: those that are told apart are named",
        "num_rows * left < MIN_INFORMATION_ROWS", "num_rows * left > MIN_INFORMATION_ROWS",
        "tests/unit/models/test_formula.py::test_columns_that_the_data_hardly_tell_apart_are_named",
    ),
    Mutant(
        "regions: a gradient in the metric of another region",
        'jnp.einsum("i,kij->kj", g, self.factor)[self.region]', 'jnp.einsum("i,kij->kj", g, self.factor)[0]',
        FROM_MODES + "test_a_step_is_one_of_hmc_in_the_metric_of_its_region",
    ),
    Mutant(
        "regions: the nearest mode, whatever its height",
        "jnp.argmax(self.height - 0.5 *", "jnp.argmax(-0.5 *",
        FROM_MODES + "test_a_region_is_where_a_mode_s_own_approximation_is_the_largest",
    ),
    Mutant(
        "regions: modes that leak stay apart",
        "connected_components(left > MAX_CROSSING_SHARE,", "connected_components(left > 1,",
        FROM_MODES + "test_modes_that_leak_into_one_another_are_one_region",
    ),
    Mutant(
        "exchange: noisy energies are let through",
        "return problem.num_blocks == 1 and problem.source.uses_blocks", "return True",
        EXCHANGE + "test_noisy_energies_are_refused_with_their_variance",
    ),
    Mutant(
        "exchange: the variance of one energy, not of the difference",
        "jax.vmap(energy)(pairs[0]) - jax.vmap(energy)(pairs[1])", "jax.vmap(energy)(pairs[0])",
        EXCHANGE + "test_noisy_energies_are_refused_with_their_variance",
    ),
    Mutant(
        "columns: what a combination is made of includes other combinations",
        "before = np.setdiff1d(np.arange(j), [i for i, _ in found])", "before = np.arange(j)", AT_ONCE,
    ),
    Mutant(
        "max_seconds: a burn-in goes on past it",
        "work.late and self.sink.count < num_draws", "work.late and 0 < self.sink.count < num_draws",
        LIMITS + "test_time_that_is_up_in_the_burn_in_ends_it_and_the_run_can_be_resumed",
    ),
    Mutant(
        "max_seconds: tuning takes what it likes",
        "    check_deadline(name)\n", "",
        LIMITS + "test_time_that_is_up_before_the_first_draw_is_told_with_the_stage",
    ),
    Mutant(
        "max_seconds: nothing is left to the verdict",
        "started + (1 - min(VERDICT_SHARE, wanted)) * seconds", "started + seconds",
        LIMITS + "test_sampling_leaves_a_fifth_of_the_time_to_the_verdict",
    ),
    Mutant(
        "max_seconds: a network's verdict is left a fifth of a long run",
        "if predictions else VERDICT_SHARE", "if seconds < 0 else VERDICT_SHARE",
        LIMITS + "test_a_verdict_on_predictions_is_left_a_twentieth_and_what_compiling_takes",
    ),
    Mutant(
        "columns: the first that cannot be told apart is the only one",
        "found[:MAX_NAMED_COLUMNS] + (", "found[:1] + (", AT_ONCE,
    ),
    Mutant(
        "proper: what is flat at the start is not looked at",
        "vectors[:, np.abs(values).argmin()]", "vectors[:, np.abs(values).argmax()]",
        PROPER + "test_more_columns_than_rows_with_a_flat_prior_are_refused",
    ),
    Mutant(
        "operations: a Cholesky factor is a number like others",
        '"cholesky": 3.5e-11, ', "", "tests/unit/test_operations.py",
    ),
    Mutant(
        "predict: draws take no memory", "rows + draws + chains", "rows + chains", PREDICT,
    ),
    Mutant(
        "predict: a trajectory is one gradient",
        "float(setup.sampler.leapfrogs) / 2 + 1.5", "1.0",
        PREDICT + "::test_a_trajectory_is_as_many_gradients_as_it_has_leapfrogs_on_average",
    ),
    Mutant(
        "again: half the step, however many diverge",
        "0 < diverged <= (SEVERAL_SHARE if energy >= MIN_SWIFT_ENERGY else RARE_SHARE) * of", "0 < diverged",
        EXACT + "test_half_the_step_is_tried_where_very_few_trajectories_diverge",
    ),
    Mutant(
        "again: half the step where energies say that there is a neck",
        "SEVERAL_SHARE if energy >= MIN_SWIFT_ENERGY else RARE_SHARE", "SEVERAL_SHARE",
        EXACT + "test_half_the_step_is_tried_where_very_few_trajectories_diverge",
    ),
    Mutant(
        "operations: a loop is taken once",
        'int(equation.params["length"])', "1",
        "tests/unit/test_operations.py::test_loops_count_their_turns_and_conditions_all_branches",
    ),
    Mutant(
        "exact chains: 64, whatever a gradient costs",
        "_ensemble(problem, known, ask.seed, exact.chains, far)", "_ensemble(problem, known, ask.seed)",
        EXACT + "test_fewer_chains_are_warmed_up_and_go_on",
    ),
    Mutant(
        "noise of blocks: times a block's rows, not times the blocks",
        "    return K * found\n", "    return problem.source.block_size * found\n",
        NOISE + "test_the_noise_of_blocks_is_over_all_of_them",
    ),
    Mutant(
        "noise of an estimator: a difference of two is not halved",
        "    return difference.T @ difference / (2 * count)\n",
        "    return difference.T @ difference / count\n",
        NOISE + "test_the_noise_of_control_variates_is_averaged_over_the_posterior",
    ),
    Mutant(
        "noise of rows: centred by the gradient at the draw itself",
        "return at_center, row_gradient(problem, z, row) - at_center",
        "return at_center, row_gradient(problem, z, row)",
        ROWS + "test_the_noise_of_one_row_plain_and_centred",
    ),
    Mutant(
        "noise of rows: the others count as often as they were drawn",
        "left = (N - M) / (N * len(self.others)) * sum_of(self.others)",
        "left = 1 / len(self.others) * sum_of(self.others)",
        ROWS + "test_the_noise_that_is_left",
    ),
    Mutant(
        "rows in every batch: drawn as well",
        "weight = self._left(batch).astype(dtype)", "weight = jnp.ones_like(self._left(batch), dtype)",
        "tests/contracts/test_source.py::test_rows_that_are_in_every_batch_are_certified",
    ),
    Mutant(
        "rows in every batch: scaled like those drawn",
        "jnp.full(self.numbers.shape, 1 / batch.scale, dtype)",
        "jnp.ones(self.numbers.shape, dtype)",
        "tests/contracts/test_source.py::test_rows_that_are_in_every_batch_are_certified",
    ),
    Mutant(
        "price: rows in every batch cost nothing",
        "rows, chains = n + level.always, 0", "rows, chains = n, 0",
        ROWS + "test_rows_are_put_into_every_batch_where_it_pays",
    ),
    Mutant(
        "Gaussian at the mode: eigenvalues for their roots",
        "factor = vectors / np.sqrt(values) / scale[:, None]",
        "factor = vectors / values / scale[:, None]", FACTOR,
    ),
    Mutant(
        "Gaussian at the mode: the temperature as an sd",
        "factor=self.factor * np.sqrt(temperature)", "factor=self.factor * temperature", FACTOR,
    ),
    Mutant(
        "Gaussian at the mode: factor transposed in its draws",
        "return xi @ self.factor.T", "return xi @ self.factor", FACTOR,
    ),
    Mutant(
        "Gaussian at the mode: gamma of the log posterior, not of minus it",
        "lambda g: -self.pull(g) @ out.T", "lambda g: self.pull(g) @ out.T",
        GAUSSIAN + "test_marginals_are_those_of_the_reported_parameters",
    ),
    Mutant(
        "nu: the Gaussian's own gradient at T = 1",
        "(gaussian.pull(slopes) - gaussian.linear(problem, thetas)) / temperature",
        "gaussian.pull(slopes) / temperature - gaussian.linear(problem, thetas)",
        "tests/unit/tune/test_mode.py::test_nonlinearity_is_0_on_a_gaussian_and_not_on_a_logistic",
    ),
    Mutant(
        "centre: draws twice over, not in antithetic pairs",
        "np.concatenate([xi, -xi])", "np.concatenate([xi, xi])",
        CENTER + "test_on_a_gaussian_nothing_moves",
    ),
    Mutant(
        "centre: the step away from the mean",
        "step = -gaussian.solve(", "step = gaussian.solve(",
        CENTER + "test_the_step_leads_from_the_mode_to_the_mean",
    ),
    Mutant(
        "centre: accepted wherever nu is smaller",
        "if nu <= min(MAX_MOVED_CENTRE_NU, here.nu):", "if nu <= here.nu:",
        CENTER + "test_a_step_that_would_hurt_is_not_taken",
    ),
    Mutant(
        "centre: accepted whatever nu is",
        "if nu <= min(MAX_MOVED_CENTRE_NU, here.nu):", "if nu <= np.inf:",
        CENTER + "test_a_step_that_would_hurt_is_not_taken",
    ),
    Mutant(
        "centre: accepted whatever the density",
        "if not density(there) >= least:", "if not density(there) >= -np.inf:",
        CENTER + "test_a_centre_of_hardly_any_density_is_refused",
    ),
    Mutant(
        "centre: gradients at the draws of T = 1",
        "    gaussian = gaussian.tempered(temperature)\n    count", "    count",
        CENTER + "test_at_a_temperature_it_is_the_mean_of_the_tempered_law",
    ),
    Mutant(
        "centre: also at T = 0",
        "    if T == 0:\n        nu", "    if T < 0:\n        nu",
        CENTER + "test_without_a_temperature_the_centre_is_the_mode",
    ),
    Mutant(
        "low rank: variances that forget the cross term",
        "@ (2 * self.c + self.c**2)", "@ self.c**2",
        LOWRANK + "test_diagonal_plus_rank_five_is_found_exactly",
    ),
    Mutant(
        "low rank: whitened by c, not by c / (1 + c)",
        "(self.c / (1 + self.c))", "self.c",
        LOWRANK + "test_spread_pull_whiten_draws_and_metric_belong_to_one_matrix",
    ),
    Mutant(
        "low rank: narrowed where it must be widened",
        "scale=found.scale / np.sqrt(low)", "scale=found.scale * np.sqrt(low)",
        LOWRANK + "test_a_broad_spectrum_lies_between_1_and_1_plus_departure",
    ),
    Mutant(
        "law: blocks of a pass as independent as rows drawn anew",
        "scale = R / (R - 1)", "scale = (R - 1) / R", LAW + "test_order_of_the_bias",
    ),
    Mutant(
        "law: the posterior's variance at T = 1",
        "self.out, temperature / self.a, self.out", "self.out, 1 / self.a, self.out",
        LENGTHS + "test_the_ratio_of_exact_gradients_is_the_closed_form",
    ),
    Mutant(
        "law: a ratio of variances, not of sds",
        "return np.sqrt(wrong / true)", "return wrong / true",
        LENGTHS + "test_the_ratio_of_exact_gradients_is_the_closed_form",
    ),
    Mutant(
        "law: alpha without the 2 of the injected noise",
        "return h / (2 * temperature)", "return h / temperature",
        LENGTHS + "test_the_noise_ratio_is_of_variances",
    ),
    Mutant(
        "law: the noise left in coordinates that are not turned",
        "basis.T @ noise @ basis", "factor.T @ noise @ factor",
        LAW + "test_independent_batches",
    ),
    Mutant(
        "step: the parameter that is least off decides",
        "np.max(wrong, where=~np.isnan(wrong), initial=0.0)", "np.nanmin(wrong)",
        LAW + "test_largest_step_spends_the_bias_it_was_given",
    ),
    Mutant(
        "law: a step is asked near 0 alone whether it is affine",
        "for s in (1.0, 1.0, 1e4)", "for s in (1.0, 1.0)",
        "tests/unit/tune/test_affine.py::test_a_step_that_is_cut_off_far_out_is_not_affine",
    ),
    Mutant(
        "law of momentum: complex modes not conjugated",
        "np.outer(arrives[:, i], arrives[:, j].conj())", "np.outer(arrives[:, i], arrives[:, j])",
        AFFINE + "test_reshuffled_batches",
    ),
    Mutant(
        "step: all of the tolerance, none left for Monte Carlo error",
        "    bias = ask.tolerance / 2\n", "    bias = ask.tolerance\n",
        LENGTHS + "test_half_of_the_tolerance_is_the_steps",
    ),
    Mutant(
        "batch: as noisy as if all N rows were n of infinitely many",
        "share = 1 / n - 1 / N", "share = 1 / n",
        LOWRANK + "test_the_noise_of_a_plan_at_a_temperature",
    ),
    Mutant(
        "lengths: every chain makes the draws of all",
        "(1 + decay) / (1 - decay) / num_chains", "(1 + decay) / (1 - decay)",
        LENGTHS + "test_all_chains_together_make_the_draws_that_a_tolerance_needs",
    ),
    Mutant(
        "lengths: burn-in of one time constant",
        "_whole(6 / rate)", "_whole(1 / rate)",
        LENGTHS + "test_what_is_left_of_the_start_after_burn_in_is_nothing",
    ),
    Mutant(
        "modes: density for mass",
        "at.log_density / temperature + at.gaussian.half_log_det", "at.log_density / temperature",
        MODES + "test_the_mode_of_most_mass_is_the_one_that_a_run_is_built_on",
    ),
    Mutant(
        "modes: the determinant of the covariance, not its root",
        "float(np.linalg.slogdet(self.factor)[1])", "2 * float(np.linalg.slogdet(self.factor)[1])",
        MODES + "test_the_mode_of_most_mass_is_the_one_that_a_run_is_built_on",
    ),
    Mutant(
        "modes: masses of the law at T = 1",
        "at.log_density / temperature + at", "at.log_density + at",
        MODES + "test_masses_are_those_of_the_law_at_its_temperature",
    ),
    Mutant(
        "modes: a run is built on the first that is found",
        "np.lexsort((-masses, flat))", "np.lexsort((flat,))",
        MODES + "test_the_mode_of_most_mass_is_the_one_that_a_run_is_built_on",
    ),
    Mutant(
        "modes: a far one counts by its mass alone",
        "share * (1 + away / (temperature or 1.0) + width)", "share * np.ones(len(found))",
        MODES + "test_a_mode_matters_by_what_it_does_to_the_second_moment",
    ),
    Mutant(
        "modes: apart in the wider one's sds",
        "float(max(between))", "float(min(between))",
        MODES + "test_a_narrow_mode_inside_a_wide_one_is_another",
    ),
    Mutant(
        "modes: both starts of a pair lie on one side",
        "[near.center + away, near.center - away]", "[near.center + away, near.center + away]",
        TOLD + "test_starts_of_the_search_are_the_mirror_the_exchange_and_both_sides",
    ),
    Mutant(
        "modes: a search that is all but there is given up",
        "newton_mode(some, z, MAX_LAST_STEPS, back)", "newton_mode(some, z, 1, back)",
        MODES + "test_a_mode_is_found_that_newtons_first_steps_do_not_reach",
    ),
    Mutant(
        "modes: nothing climbs where Newton's steps lead nowhere",
        "            z = _climb(some, near, start)\n            value", "            value",
        MODES + "test_a_mode_is_found_that_newtons_first_steps_do_not_reach",
    ),
    Mutant(
        "Newton: a factor is multiplied with, not solved",
        "cho_solve(cho_factor(damped), g)", "cho_factor(damped)[0] @ g",
        GAUSSIAN + "test_newton_needs_one_step_on_any_gaussian",
    ),
    Mutant(
        "resolution: a posterior sd as its own inverse",
        "apart * np.sqrt(np.diag(curvature)", "apart / np.sqrt(np.diag(curvature)",
        "tests/unit/tune/test_proper.py::test_an_sd_is_resolved_by_two_numbers_or_more",
    ),
    Mutant(
        "matched step: the energy of a Gaussian's proposals taken twice",
        "ratio = -h / 4 * np.sum", "ratio = -h / 2 * np.sum",
        LENGTHS + "test_how_often_a_step_is_rejected_on_a_gaussian",
    ),
    Mutant(
        "step: none is small enough, and one is taken",
        "if off(law, h, T) <= bias:", "if h > 0:",
        "tests/unit/test_own_parts.py::test_a_class_derived_from_SGLD_keeps_its_own_step",
    ),
    Mutant(
        "ensemble: the covariance of u for that of z",
        "factor = factor @ _estimated_factor(chains)", "factor = _estimated_factor(chains)",
        EXACT + "test_an_ensemble_finds_a_gaussians_covariance_and_settles_there",
    ),
    Mutant(
        "ensemble: proposals are taken where they should be refused",
        "noise.log_uniform[number] <= found.log_ratio", "noise.log_uniform[number] <= 0.0",
        EXACT + "test_chains_stay_where_there_is_density_while_they_adapt",
    ),
    Mutant(
        "exact chains: groups that hold chains of every mode",
        "np.lexsort((found.log_density, nearest, np.arange(chains) >= chains - begun.far))", "np.random.default_rng(0).permutation(ENSEMBLE_CHAINS)",
        EXACT + "test_groups_of_chains_are_of_modes_and_of_densities",
    ),
    Mutant(
        "exact chains: values at a centre of rows in another order",
        "return self if self.base is None else replace(self, base=Full.around(problem, center).base)",
        "return self",
        EXACT + "test_rows_keep_their_values_at_a_centre_in_the_order_they_have",
    ),
    Mutant(
        "sandwich: spread by a covariance, not by its root",
        "(turn * np.sqrt(np.maximum(values, 0))) @ turn.T",
        "(turn * np.maximum(values, 0)) @ turn.T",
        SANDWICH + "test_the_covariance_is_that_of_the_rows_over_their_number",
    ),
    Mutant(
        "sandwich: scores of one row for those of all",
        "@ np.cov(found, rowvar=False)", "@ np.cov(found, rowvar=False) / len(found)",
        SANDWICH + "test_the_covariance_is_that_of_the_rows_over_their_number",
    ),
    Mutant(
        "sandwich: around the mean of unweighted draws",
        'mean = statistics.mean(z, draws.weights)', "mean = z.mean((0, 1))",
        SANDWICH + "test_nothing_but_the_spread_moves_whatever_the_weights",
    ),
]  # fmt: skip
