"""Bugs in the path of networks and in their verdict in function space."""

from .mutant import Mutant

BEGINNING = "tests/unit/networks/test_beginning.py::"
AGAIN = "tests/unit/networks/test_looked_again.py::"
SEEN_BESIDE = (
    "tests/unit/diagnose/test_predictions.py::test_rules_of_what_is_seen_beside_the_probe_rows"
)
OTHER = "tests/unit/diagnose/test_other_starts.py::"
PATH = "tests/unit/tune/test_from_network.py::"
KRONECKER = "tests/unit/preconditioner/test_kronecker.py::"
RULE = "tests/unit/diagnose/test_predictions.py::"
PART = "tests/unit/networks/test_part.py::"
HALF = "tests/unit/networks/test_networks_halving.py::"

PICTURED = "tests/unit/diagnose/test_pictured.py::"
LABELS = "tests/unit/networks/test_labels.py::"
INJECTED = "tests/unit/sampler/test_injected.py::"
THREEFRY = "tests/unit/sampler/test_threefry.py::"

NETWORKS = [
    Mutant(
        "kronecker: the mean of the rows in the place of their sum",
        "problem.num_data * np.asarray(square) + curvature", "np.asarray(square) + curvature",
        KRONECKER + "test_of_outcomes_that_go_together_it_is_the_posterior_covariance",
    ),
    Mutant(
        "kronecker: noise of D and not of its root",
        "tuple(jnp.sqrt(s) for s in self.scale)", "self.scale", KRONECKER + "test_it_keeps_the_contract",
    ),
    Mutant(
        "predictions: sds are known as well as logits",
        "        if self.sd_error > MAX_SD_ERROR:", "        if False:",
        RULE + "test_sds_that_a_few_draws_make_up_are_not_promised_at_the_ess_of_logits",
    ),
    Mutant(
        "predictions: the error of sds is that of log probabilities",
        'estimates = statistics.Estimates(p[..., clear], seen.weights)', "pass",
        RULE + "test_sds_that_a_few_draws_make_up_are_not_promised_at_the_ess_of_logits",
    ),
    Mutant(
        "predictions: sds of what is promised anyway are waited for",
        "> MIN_PROBABILITY_SD", "> 0.0",
        RULE + "test_sds_of_probabilities_that_are_promised_anyway_are_not_waited_for",
    ),
    Mutant(
        "networks: layers known by their names are no network",
        "for place, _, name in matrices) > 1", "for place, _, name in matrices) > 9",
        PATH + "test_layers_by_their_names_are_a_network_and_the_plan_asks_what_it_predicts",
    ),
    Mutant(
        "networks: where chains ended is taken for draws",
        "    draws.check_kept()\n    if batch_size", "    if batch_size",
        "tests/unit/networks/test_said.py::test_where_each_chain_ended_is_no_set_of_draws",
    ),
    Mutant(
        "networks: probabilities are logits",
        "if i == 0 and _are_probabilities(logits):", "if False:",
        "tests/unit/networks/test_said.py::test_probabilities_are_no_logits",
    ),
    Mutant(
        "contract: a log likelihood may draw at random",
        "not drawn.isdisjoint(parts)", "False",
        "tests/unit/test_contract.py::test_one_that_draws_random_numbers",
    ),
    Mutant(
        "networks: a part's draws fit any trunk",
        "    if None not in (before, now) and before != now:\n", "    if False:\n",
        "tests/unit/networks/test_part.py::test_draws_of_a_part_are_not_put_onto_another_trunk",
    ),
    Mutant(
        "networks: a finished run of a part is resumed with any trunk",
        "        if HELD_DIGEST_KEY in draws.info:\n            raise\n", "",
        "tests/unit/networks/test_part.py::test_a_finished_run_of_a_part_is_not_resumed_with_another_trunk",
    ),
    Mutant(
        "networks: what predict raises is JAX's",
        "        jax.eval_shape(jax.vmap(jax.vmap(of_x)), draws.position)", "        pass",
        "tests/unit/networks/test_said.py::test_rows_of_another_width_are_told_with_the_users_line",
    ),
    Mutant(
        "predictions: the rows that were given are not looked at",
        "    if given is None:\n", "    if True:\n",
        "tests/unit/networks/test_probe_rows.py::test_predictions_are_judged_at_the_rows_that_were_given",
    ),
    Mutant(
        "other starts: what is predicted is found out inside compiled code",
        "    return jax.vmap(lambda z: found.at(problem.target, z))(zs)",
        "    found = predictions_of(problem)\n    return jax.vmap(lambda z: found.at(problem.target, z))(zs)",
        KRONECKER + "test_a_network_learns_its_factors_and_goes_on_with_them",
    ),
    Mutant(
        "growth: draws that memory dropped were never made",
        "MAX_ESS_GROWTH * setup.num_draws // raw.every", "MAX_ESS_GROWTH * setup.num_draws",
        "tests/unit/tune/test_exact_chains.py::test_draws_that_memory_dropped_count_towards_the_most_that_are_gone_on_to",
    ),
    Mutant(
        "labels: the class after the last is one",
        "= (found < 0) | (found >= count)", "= (found < 0) | (found > count)",
        LABELS + "test_one_that_the_network_has_no_class_for_is_told_with_its_row",
    ),
    Mutant(
        "labels: numbers of rows are those of the shuffle",
        "problem.source.original_rows(numbers[bad], seed)", "numbers[bad]",
        LABELS + "test_one_that_the_network_has_no_class_for_is_told_with_its_row",
    ),
    Mutant(
        "labels: what is no log probability of a class runs",
        "elif said.mistake is not None:", "elif False:",
        LABELS + "test_what_is_no_log_probability_of_a_class_is_told_before_the_first_step",
    ),
    Mutant(
        "labels: whatever grows with its class's output is taken for a logit",
        "if not self.is_label and self._are(self.outputs):", "if np.ptp(self.found - self.log_p, axis=1).max() < LOGIT_ERROR:",
        LABELS + "test_other_laws_of_whole_numbers_are_left_alone",
    ),
    Mutant(
        "networks: a start that arrived counts by what it passed",
        "np.where(home[:, None, None], looks[-1], np.mean(looks, axis=0))", "np.mean(looks, axis=0)",
        OTHER + "test_a_start_that_was_long_on_its_way_and_arrived_is_no_other_function",
    ),
    Mutant(
        "labels: logits that predict gives are means",
        " or any(said.is_label for said in said_of(given, target, z))", "",
        LABELS + "test_logits_that_predict_gives_are_classes_and_rows_held_back_have_them_too",
    ),
    Mutant(
        "labels: rows held back may have any",
        "    check_labels(others, 0)\n", "",
        LABELS + "test_logits_that_predict_gives_are_classes_and_rows_held_back_have_them_too",
    ),
    Mutant(
        "labels: where all classes are alike any number is one",
        "z + START_DISTURBANCE * jax.random.normal(jax.random.key(seed), z.shape, z.dtype)", "z",
        LABELS + "test_one_that_the_network_has_no_class_for_is_told_with_its_row",
    ),
    Mutant(
        "moments: a run that keeps them goes on beyond its batches",
        "if keep is not None and keep.moments:", "if False:",
        "tests/unit/networks/test_summed_up.py::test_what_is_summed_up_in_batches_of_the_planned_draws_is_not_prolonged",
    ),
    Mutant(
        "moments: of all draws, the last two thirds judged",
        "    if is_auto(ask.num_draws) and not summed:", "    if is_auto(ask.num_draws):",
        "tests/unit/networks/test_summed_up.py::test_of_what_is_summed_up_all_draws_are_judged",
    ),
    Mutant(
        "injected: numbers that share a bit",
        "shifts = jnp.arange(0, 32, NOISE_BITS, dtype=jnp.uint32)", "shifts = 3 * jnp.arange(8, dtype=jnp.uint32)",
        INJECTED + "test_every_bit_of_a_word_is_in_one_number",
    ),
    Mutant(
        "injected: a round of the generator is left out",
        "for rotation in ROTATIONS[turn % 2]:", "for rotation in ROTATIONS[turn % 2][: 4 - turn // 4]:",
        THREEFRY + "test_words_and_normals_are_jax_s_to_the_bit",
    ),
    Mutant(
        "injected: a number is made anew for each that reads it",
        "return jax.lax.cond(block >= 0, make, lambda _: jnp.zeros(like.shape, like.dtype), keys)", "return make(keys)",
        THREEFRY + "test_numbers_are_made_once_whoever_reads_them",
    ),
    Mutant(
        "injected: one chain's numbers for all",
        "first, second = jax.random.key_data(key)", "first, second = jax.random.key_data(key)[0], jnp.uint32(7)",
        THREEFRY + "test_words_and_normals_are_jax_s_to_the_bit",
    ),
    Mutant(
        "injected: counts however long the step",
        "-found <= MAX_STIFF_EXCESS", "-found <= 1",
        INJECTED + "test_counts_are_chosen_for_many_parameters_and_short_steps_and_told",
    ),
    Mutant(
        "chunk: of steps that are blocks no draw is due",
        "return jax.lax.cond(end > due(step), partial", "return jax.lax.cond(end > due(step) + 1, partial",
        INJECTED + "test_of_so_many_numbers_that_steps_are_blocks_every_due_draw_is_kept",
    ),
    Mutant(
        "networks: an optimiser goes on past its time",
        "path.append(np.array(positions[: (done + count) // record - done // record]))\n            if work.late:", "path.append(np.array(positions[: (done + count) // record - done // record]))\n            if False:",
        PATH + "test_an_optimiser_past_its_time_is_cut_short_and_says_after_how_many_steps",
    ),
    Mutant(
        "networks: stages go on past half of the time",
        "return limit.until - (1 - VERDICT_SHARE - of) * limit.seconds", "return limit.until",
        PATH + "test_stages_are_left_out_past_half_of_the_time",
    ),
    Mutant(
        "injected: exact chains accept by counts",
        'open_ and ask.noise != "binomial" and dense_pays', "open_ and dense_pays",
        INJECTED + "test_exact_chains_are_not_chosen_where_counts_are_asked_for",
    ),
    Mutant(
        "injected: the run draws normals all the same",
        "make_probe(problem, setup, starts), positions, setup.noise,", "make_probe(problem, setup, starts), positions,",
        INJECTED + "test_the_law_of_a_run_has_the_variance_of_normals_and_the_kurtosis_of_the_formula",
    ),
    Mutant(
        "pictured: what draws disagree about is left out",
        "each = -np.sum(np.exp(predicted) * predicted, axis=-1)",
        "each = np.broadcast_to(-np.sum(p * np.log(p), axis=-1), predicted.shape[:3])",
        PICTURED + "test_entropy_and_what_of_it_single_networks_have",
    ),
    Mutant(
        "pictured: the traces of the rows that mixed best",
        "np.argsort(ess.min(axis=1), kind", "np.argsort(-ess.min(axis=1), kind",
        PICTURED + "test_the_worst_row_is_the_first_trace",
    ),
    Mutant(
        "choice: anything is one",
        "if not same.any(axis=1).all():", "if False:",
        PICTURED + "test_a_regression_or_a_part_of_a_likelihood_is_no_choice",
    ),
    Mutant(
        "choice: classes drawn by the wrong side",
        "(u[..., None] > np.cumsum(p, axis=-1)[..., :-1])", "(u[..., None] < np.cumsum(p, axis=-1)[..., :-1])",
        PICTURED + "test_labels_are_found_without_being_told",
    ),
    Mutant(
        "networks: the speed of predictions without the metric",
        "slope = D.pullback(jax.grad(predicted)(z, *row_and_key))", "slope = jax.grad(predicted)(z, *row_and_key)",
        PATH + "test_of_many_weights_predictions_take_turns_and_every_row_has_its_turn",
    ),
    Mutant(
        "networks: of many weights the temperature of two predictions alone",
        "jax.random.fold_in(jax.random.key(1), draw)", "jax.random.key(1)",
        PATH + "test_of_many_weights_predictions_take_turns_and_every_row_has_its_turn",
    ),
    Mutant(
        "networks: what is measured at a draw of many weights is free",
        "    if SPEED_ROWS * d <= SPEED_NUMBERS:", "    if True:",
        PATH + "test_draws_of_many_weights_are_few_enough_to_cost_little",
    ),
    Mutant(
        "networks: batches may warm predictions",
        "if heat > rule.MIN_REPORTED_NOISE else ()", "if heat > 1e3 else ()",
        PATH + "test_batches_that_will_warm_predictions_are_told",
    ),
    Mutant(
        "networks: the heat of predictions by the batch's mean",
        "D.pullback(g[0] - g[1])", "D.pullback(g[0])",
        PATH + "test_the_heat_of_predictions_is_their_gradients_share_of_the_batches_variance",
    ),
    Mutant(
        "networks: of max_steps nothing is left for draws",
        "thin = min(thin, max(1, span // least))", "thin = max(thin, max(1, span // least))",
        PATH + "test_max_steps_leaves_draws_enough_of_many_weights",
    ),
    Mutant(
        "networks: a damaged directory's positions are taken",
        "        if wrong or few or", "        if False and wrong or few or",
        "tests/unit/run/test_positions.py::test_a_directory_that_holds_other_positions_is_damaged",
    ),
    Mutant(
        "networks: predictions may be as warm as they like",
        "[True] * len(others)", "[True] + [False] * (len(others) - 1)",
        RULE + "test_every_rule",
    ),
    Mutant(
        "networks: other starts count wherever an optimiser was caught",
        "predicted) & self.matters)", "predicted))",
        OTHER + "test_starts_that_are_apart_and_matter_are_counted",
    ),
    Mutant(
        "networks: other starts must be apart at every row",
        ".mean(axis=1) > share", ".mean(axis=1) > 1 - share",
        OTHER + "test_starts_that_are_apart_and_matter_are_counted",
    ),
    Mutant(
        "networks: other starts are left before they predict what the run does",
        "MIN_UNLIKE_SDS / 2, MIN_UNLIKE_PROB / 2).any()", "MIN_UNLIKE_SDS / 2, MIN_UNLIKE_PROB / 2).all()",
        OTHER + "test_starts_are_followed_on_until_they_predict_what_the_run_does",
    ),
    Mutant(
        "networks: other starts are all near init",
        "    if elsewhere:", "    if False:",
        OTHER + "test_a_wall_of_the_priors_own_does_not_hide_what_is_behind_it",
    ),
    Mutant(
        "networks: no start on the other side of 0",
        "near[k] if kind[k] == 1 else -near[k]", "near[k]",
        OTHER + "test_of_three_starts_two_are_the_priors_one_of_them_from_the_other_side_of_0",
    ),
    Mutant(
        "networks: starts are left early where following them is cheap",
        "return not to_the_end and looks[-2:] == [True, True]", "return looks[-2:] == [True, True]",
        OTHER + "test_two_looks_in_a_row_that_find_nothing_new_end_it_and_not_one",
    ),
    Mutant(
        "networks: no more starts where they are cheap",
        "max(USUAL_OTHER_STARTS, min(cheap, MAX_OTHER_STARTS))", "USUAL_OTHER_STARTS",
        OTHER + "test_few_rows_of_a_limit_on_time_leave_no_other_starts",
    ),
    Mutant(
        "networks: one look is enough for other starts",
        "        return not to_the_end and looks[-2:] == [True, True]", "        return not to_the_end and looks[-1]",
        OTHER + "test_two_looks_in_a_row_that_find_nothing_new_end_it_and_not_one",
    ),
    Mutant(
        "networks: other starts are not followed whatever they predict",
        "looks.append(met(run.kind, backend.predicted(z), run.predicted))", "looks.append(True)",
        OTHER + "test_two_looks_in_a_row_that_find_nothing_new_end_it_and_not_one",
    ),
    Mutant(
        "networks: nobody looks for other starts",
        "    if verdict.word not in CONFIRMED_VERDICTS:\n        return", "    if verdict.word:\n        return",
        OTHER + "test_chains_that_began_at_one_of_two_functions",
    ),
    Mutant(
        "networks: gradients of another function are not looked for",
        "misses = partial(misses_of_gradients, problem, z, until)", "misses = float",
        AGAIN + "test_a_run_by_another_functions_gradients_is_not_trusted",
    ),
    Mutant(
        "networks: another function's gradients are trusted",
        'seen.misses > hidden_mass.MAX_GRADIENT_MISFIT:', "seen.misses < 0:",
        SEEN_BESIDE,
    ),
    Mutant(
        "networks: many kinks are taken for jumps",
        "MAX_KINK_SHARE = 0.01", "MAX_KINK_SHARE = 0.0",
        AGAIN + "test_gradients_of_networks_belong_to_their_densities",
    ),
    Mutant(
        "networks: other rows are those that are probed",
        "others(len(jax.tree.leaves(found.rows)[0]), problem.num_data, gradients)",
        "np.arange(len(jax.tree.leaves(found.rows)[0]))",
        AGAIN + "test_a_few_rows_without_a_probe_row_in_which_chains_stand_apart_are_seen",
    ),
    Mutant(
        "networks: the rows furthest apart are not those looked at again",
        "np.argsort(-each, kind=\"stable\")", "np.argsort(each, kind=\"stable\")",
        "tests/unit/diagnose/test_other_rows.py",
    ),
    Mutant(
        "networks: other starts may be unlike at one row",
        "return max(unlike, seen.rows_unlike)", "return unlike",
        SEEN_BESIDE,
    ),
    Mutant(
        "networks: chains that began at one place are trusted by themselves",
        "if seen.one_place and seen.others is None:", "if False:",
        "tests/unit/diagnose/test_predictions.py::test_chains_that_began_at_one_place_are_trusted_where_others_were_looked_for",
    ),
    Mutant(
        "networks: half the step settles what it does not look for",
        "        if unseen is not None:  #", "        if False:  #",
        "tests/unit/diagnose/test_predictions.py::test_half_the_step_settles_a_doubt_and_nothing_that_nobody_looked_for",
    ),
    Mutant(
        "networks: no time to see what gradients are is trust in them",
        "    return GRADIENTS_UNCHECKED if", "    return None if", SEEN_BESIDE,
    ),
    Mutant(
        "networks: few draws at other rows are held against what many are",
        "        return max(MAX_R_HAT, ", "        return min(MAX_R_HAT, ",
        "tests/unit/diagnose/test_other_rows.py::test_of_few_draws_more_is_left_to_chance",
    ),
    Mutant(
        "networks: half precision is looked at as if it were not",
        'if "f16[" in str(', 'if "f17[" in str(',
        AGAIN + "test_the_rounding_of_half_precision_is_not_taken_for_a_jump",
    ),
    Mutant(
        "networks: torch: a run to come takes what the one before was begun with",
        "                    remove(self.path / self._given)\n",
        "                    [remove(p) for p in self.path.iterdir() if CHECKPOINT.fullmatch(p.name)]\n",
        "tests/unit/torch_door/test_torch_resume.py::test_a_run_that_was_to_replace_one_killed_while_it_tuned_takes_nothing_of_it",
    ),
    Mutant(
        "networks: a weight alone begins at one place in all chains",
        "np.where(spread > 0, spread, least)", "np.where(spread > 0, spread, 0.0)",
        OTHER + "test_starts_differ_where_a_layer_is_one_weight_or_begins_at_zero",
    ),
    Mutant(
        "networks: the draws given back do not end with the last",
        "    begin += (len(numbers) - 1 - begin) % every\n", "",
        BEGINNING + "test_the_last_two_thirds_are_given_back_up_to_the_last_draw",
    ),
    Mutant(
        "networks: burn-in is given back where few positions are held",
        "where_held(raw, first, every)", "where_held(raw, 0, every)",
        BEGINNING + "test_of_draws_whose_positions_are_not_all_held_those_that_are_are_given_back",
    ),
    Mutant(
        "networks: few positions beside the step sizes of the first draws",
        "only(raw, at if raw.held is None else rows)", "only(raw, at)",
        BEGINNING + "test_of_draws_whose_positions_are_not_all_held_those_that_are_are_given_back",
    ),
    Mutant(
        "networks: as many positions as predictions",
        "        most_positions=most_positions,\n", "",
        "tests/laws/test_network_run.py::test_few_positions_are_those_of_the_same_run_wherever_it_is_stopped",
    ),
    Mutant(
        "networks: a checkpoint forgets which positions are held",
        '"every": self.positions.every}', '"every": 1}',
        "tests/laws/test_network_run.py::test_few_positions_are_those_of_the_same_run_wherever_it_is_stopped",
    ),
    Mutant(
        "networks: positions that are no longer held come back",
        "left = numbers % self.every == 0", "left = numbers >= 0",
        "tests/unit/run/test_positions.py::test_parts_that_are_put_back_are_the_whole",
    ),
    Mutant(
        "networks: a position is taken with its piece, not with its number",
        "begin := self.count * self.every - first", "begin := max(0, self.count * self.every - first) // 2 * 2",
        "tests/unit/run/test_positions.py::test_every_so_many_th_is_held_whatever_the_pieces",
    ),
    Mutant(
        "networks: the beginning of a run is judged, too",
        "only(raw, slice(first, None))", "only(raw, slice(0, None))",
        BEGINNING + "test_the_last_two_thirds_are_given_back_up_to_the_last_draw",
    ),
    Mutant(
        "networks: the support is looked at before the last draw",
        "np.linspace(0, z.shape[1] - 1, count)", "np.linspace(0, z.shape[1] - 2, count)",
        BEGINNING + "test_of_many_weights_the_last_draw_is_looked_at_for_the_support",
    ),
    Mutant(
        "networks: memory ends a run whose time is not up",
        "return max(\n        MIN_HELD_DRAWS, 2 * MAX_KEPT_NUMBERS //", 'return max(MIN_HELD_DRAWS, MAX_KEPT_NUMBERS // 50 //',
        PATH + "test_with_max_seconds_time_ends_a_run_and_not_memory",
    ),
    Mutant(
        "networks: positions are left out that were asked for",
        "    if not is_auto(ask.num_draws):\n        return math.inf\n", "",
        PATH + "test_positions_are_held_as_memory_allows_and_all_where_their_number_was_given",
    ),
    Mutant(
        "networks: a stage takes chains along that it lost",
        "z = backend.restored(lost, z, new)", "z = new",
        OTHER + "test_a_stage_in_which_chains_fail_goes_for_nothing",
    ),
    Mutant(
        "networks: a chunk has room for as many predictions as for numbers that are kept",
        "for leaf in jax.tree.leaves(one))", "for leaf in jax.tree.leaves((one.value, one.z, one.gradient)))",
        PATH + "test_a_chunk_has_room_for_what_is_predicted_too",
    ),
    Mutant(
        "networks: a chain that ran away is kept as long as it is finite",
        "return ~(after >= before - rule.most_fallen(backend.problem.dimension, backend.temperature))",
        "return ~np.isfinite(after)",
        PATH + "test_a_chain_whose_density_fell_further_than_noise_takes_it_is_lost",
    ),
    Mutant(
        "networks: the metric forgets how many rows there are",
        "return prior + squares * (problem.num_data / rows)", "return prior + squares",
        PATH + "test_the_metric_is_that_of_the_rows_and_the_prior",
    ),
    Mutant(
        "networks: every chain's rows are the first ones",
        "numbers = (first + places) % problem.num_data", "numbers = places % problem.num_data",
        PATH + "test_the_metric_is_that_of_the_rows_and_the_prior",
    ),
    Mutant(
        "networks: the noise of batches around 0",
        "squares - len(entries) * mean**2", "squares",
        PATH + "test_the_noise_of_a_layer_is_its_batches_variance_in_the_metric",
    ),
    Mutant(
        "networks: delta in the place of delta squared",
        "(2 * friction * excess / max(V, 1e-12)) ** 2", "(2 * friction * excess / max(V, 1e-12))",
        PATH + "test_else_the_step_is_the_largest_that_the_noise_allows",
    ),
    Mutant(
        "networks: the curvature without the metric",
        "-D.pullback(products(D.noise(v)))", "-products(v)",
        PATH + "test_the_stiffest_directions_are_eigenvectors_in_the_metric",
    ),
    Mutant(
        "networks: a small layer's temperature is looked at",
        "tuple(size >= least for size in self.sizes)", "tuple(True for size in self.sizes)",
        RULE + "test_every_rule",
    ),
    Mutant(
        "networks: half the step where a temperature is not known",
        'within {worst.se:.2f} only",\n            None,', 'within {worst.se:.2f} only",\n            worst,',
        RULE + "test_the_step_is_halved_where_a_temperature_is_too_high_and_nowhere_else",
    ),
    Mutant(
        "networks: half the step from what keep returned",
        "if kept or posterior.output is not None:", "if posterior.output is not None:",
        HALF + "test_draws_that_are_no_positions_are_no_starts",
    ),
    Mutant(
        "networks: what is held goes to the host at every call",
        "if self._of_array is None:", "if True:",
        "tests/unit/networks/test_module.py::test_what_is_held_is_brought_to_the_host_once",
    ),
    Mutant(
        "networks: hot runs are mixed, and no more is asked",
        "lambda t: t.value - HOT_TEMPERATURE", "lambda t: t.value - 100 * HOT_TEMPERATURE",
        RULE + "test_every_rule",
    ),
    Mutant(
        "networks: a burn-in that is not over passes",
        "lambda t: COLD_TEMPERATURE - t.value", "lambda t: 0 * COLD_TEMPERATURE - t.value",
        RULE + "test_every_rule",
    ),
    Mutant(
        "networks: draws count as independent in temperatures' errors",
        "min(TEMPERATURE_BATCHES, values.shape[1])", "values.shape[1]",
        RULE + "test_standard_errors_are_of_means_of_batches",
    ),
    Mutant(
        "networks: log probabilities are averaged, not probabilities",
        "each = np.exp(np.asarray(seen.predicted, np.float64))", "each = np.asarray(seen.predicted, np.float64)",
        RULE + "test_probabilities_that_differ_between_halves_of_the_chains",
    ),
    Mutant(
        "networks: whatever a module returns are logits",
        "if one_vector and _are_classes(", "if one_vector or _are_classes(",
        RULE + "test_a_module_beside_a_scale_predicts_means",
    ),
    Mutant(
        "networks: what is frozen moves, what moves is frozen",
        "None if is_one else Held(leaf) for leaf, is_one in pairs), last)", "Held(leaf) if is_one else None for leaf, is_one in pairs), last)",
        PART + "test_the_leaves_that_are_sampled",
    ),
    Mutant(
        "networks: half the step is the step",
        "old(t // 2) / (2 if isinstance(setup.sampler, SGLD) else 4)", "old(t // 2)",
        HALF + "test_a_step_whose_sds_are_too_wide_does_not",
    ),
    Mutant(
        "networks: the temperature of the step without its half",
        "return 1 + 0.5 * h * squares / T", "return 1 + 0.005 * h * squares / T",
        HALF + "test_a_step_whose_sds_are_too_wide_does_not",
    ),
    Mutant(
        "networks: a learnt scale counts the layer's entries once too few",
        "- (nu + d) / 2 * jnp.log1p(", "- (nu + d - 1) / 2 * jnp.log1p(",
        "tests/unit/networks/test_learnt_prior.py::test_a_learnt_scale_is_integrated_out",
    ),
    Mutant(
        "networks: a learnt scale is that of one number too",
        "if leaf.size < 2:", "if leaf.size < 1:",
        "tests/unit/networks/test_learnt_prior.py::test_a_learnt_scale_is_integrated_out",
    ),
    Mutant(
        "networks: the Laplace scale taken for the sd",
        "name: math.sqrt(2) * scale", "name: scale",
        "tests/unit/networks/test_learnt_prior.py::test_heavy_tails_are_numpyros",
    ),
    Mutant(
        "networks: a tail without curvature is taken for one without an end",
        "found = jnp.where(-change > 1e-6, -change, slope**2)", "found = -change",
        "tests/unit/networks/test_learnt_prior.py::test_the_metric_of_a_network_knows_how_wide_heavy_tails_are",
    ),
    Mutant(
        "networks: rows held back scored by the mean of log likelihoods",
        "scores = [\n        logsumexp(", "scores = [\n        (lambda a, axis, b: (a * b).sum(axis))(",
        "tests/unit/networks/test_held_back.py::test_log_scores_are_the_closed_form",
    ),
    Mutant(
        "networks: half of what is allowed is said to hold a network back",
        "MIN_REPORTED_SES = 3.0", "MIN_REPORTED_SES = 1.5",
        "tests/unit/networks/test_held_back.py::test_three_standard_errors_are_the_limit",
    ),
    Mutant(
        "given: a noise that is not of the drift's matrix is taken",
        "apart > MAX_MATRIX_ROUNDING or", "False or",
        "tests/unit/preconditioner/test_given.py::test_what_is_not_one_matrix_is_refused",
    ),
    Mutant(
        "given: a pullback that is not the noise's transpose is taken",
        "or turned > MAX_MATRIX_ROUNDING", "or False",
        "tests/unit/preconditioner/test_given.py::test_what_is_not_one_matrix_is_refused",
    ),
    Mutant(
        "networks: draws that were asked for are dropped for those that ess= adds",
        "return max(plan.setup.num_draws, most)", "return most",
        "tests/laws/test_network_run.py::test_draws_that_were_asked_for_are_not_dropped_where_more_are_wanted",
    ),
    Mutant(
        "networks: max_seconds that is left is not used",
        "if ask.max_seconds is None:", "if True:",
        "tests/unit/tune/test_from_network.py::test_a_run_with_max_seconds_goes_on_until_they_are_over",
    ),
    Mutant(
        "predictions: a class is one",
        "if odd or not width:", "if not width:",
        "tests/unit/networks/test_probe_rows.py::test_predictions_that_are_none_are_refused_before_the_first_step",
    ),
    Mutant(
        "labels: any that says nothing stays",
        "y >= 0 or not silent(y)", "not silent(y)",
        "tests/unit/networks/test_labels.py::test_rows_of_a_negative_label_may_say_nothing",
    ),
    Mutant(
        "labels: every negative one stays",
        "y >= 0 or not silent(y)", "y >= 0",
        "tests/unit/networks/test_labels.py::test_one_that_the_network_has_no_class_for_is_told_with_its_row",
    ),
]  # fmt: skip
