"""Bugs in the PyTorch door: optimisers, the check of the loss, ensembles and their predictions."""

from .mutant import Mutant

ITERATES = (
    "tests/unit/torch_door/test_torch_optimisers.py::test_the_same_noise_gives_the_iterates_of_jax"
)
STATIONARY = (
    "tests/unit/torch_door/test_torch_optimisers.py::test_stationary_variance_is_the_closed_form"
)
LOSS = "tests/unit/torch_door/test_torch_loss.py::"
ENSEMBLE = "tests/unit/torch_door/test_torch_ensemble.py::"
ENTROPIES = ENSEMBLE + "test_entropies_add_up"
VALUES = ENSEMBLE + "test_values_are_those_of_the_mixture"

SAMPLE = "tests/unit/torch_door/test_torch_sample.py::"
FILES = "tests/unit/torch_door/test_torch_sample_files.py::"
RESUME = "tests/unit/torch_door/test_torch_resume.py::"
INPUT = "tests/unit/torch_door/test_torch_sample_input.py::"

NOTICED = "tests/unit/torch_door/test_torch_noticed.py::"
MEANING = "tests/unit/torch_door/test_torch_meaning.py::"
ROWS = "tests/unit/torch_door/test_torch_rows.py::"

TIED = FILES + "test_a_tied_parameter_that_is_sampled_is_no_part_of_the_rest"
HEAD = INPUT + "test_a_frozen_trunk_with_a_bayesian_head"

PADDING = "tests/unit/torch_door/test_torch_padding.py::"

TORCH_DOOR = [
    Mutant(
        "networks: torch: rows of padding move",
        "torch.where(self.padding[0], self.padding[1], z)", "z",
        PADDING + "test_the_gradient_is_that_of_the_density[False]",
    ),
    Mutant(
        "networks: torch: a finished run is loaded onto any trunk",
        "        _check_same(directory.path, \"rest\", begun, _rest(model, ran.names))\n", "        pass\n", HEAD,
    ),
    Mutant(
        "networks: torch: a tied parameter that is sampled is of the trunk",
        "        if id(value) in sampled or", "        if key in names or", TIED,
    ),
    Mutant(
        "torch SGLD: noise of half the variance",
        "theta.add_(self._noise(p).to(theta.dtype), alpha=math.sqrt(2 * h * T))",
        "theta.add_(self._noise(p).to(theta.dtype), alpha=math.sqrt(h * T))", ITERATES,
    ),
    Mutant(
        "torch pSGLD: the metric, not its root, in the noise",
        "D.sqrt().mul_(xi)", "D.mul(xi)", STATIONARY,
    ),
    Mutant(
        "torch pSGLD: started at 0 without correction",
        'return state["v"] / max(share, 1e-30)', 'return state["v"] / 1.0', ITERATES,
    ),
    Mutant(
        "torch SGHMC: the noise of the gradients not taken off",
        "math.sqrt(2 * (alpha - beta) * h * T)", "math.sqrt(2 * alpha * h * T)", ITERATES,
    ),
    Mutant(
        "torch: the prior counts once a row",
        'group["prior_precision"] / group["num_data"]', 'group["prior_precision"] / 1', ITERATES,
    ),
    Mutant(
        "torch loss: a sum over one row is refused",
        'r.kind == "sum" and r.rows > 1', 'r.kind == "sum" and r.rows >= 1',
        LOSS + "test_one_row_is_both",
    ),
    Mutant(
        "torch loss: more rows in all than in the batch are refused",
        "if rows > num_data:", "if rows < num_data:", LOSS + "test_more_rows_than_data",
    ),
    Mutant(
        "torch loss: a mean over outputs taken for one over rows",
        "any(d % len(_sizes(below)) == 0 for d in dims)",
        "any(d % len(_sizes(below)) >= 0 for d in dims)", LOSS + "test_a_sum_is_explained",
    ),
    Mutant(
        "torch ensemble: draws weigh the same",
        "        return w / w.sum()", "        return torch.ones_like(w) / len(w)",
        ENTROPIES,
    ),
    Mutant(
        "torch ensemble: dropout stays on",
        "    model.eval()\n", "    model.train()\n",
        ENSEMBLE + "test_draws_are_copies_and_the_model_is_left_as_it_is",
    ),
    Mutant(
        "torch ensemble: a draw's weight is the smallest step",
        "return max(steps), first", "return min(steps), first",
        ENSEMBLE + "test_weights_are_the_steps_taken_from_the_draws",
    ),
    Mutant(
        "torch predictions: the entropy of one draw counts in full",
        "h = share * torch.special.entr", "h = torch.special.entr", ENTROPIES,
    ),
    Mutant(
        "torch predictions: a single logit is the first class's",
        "torch.cat([torch.zeros_like(logits), logits], 1)",
        "torch.cat([logits, torch.zeros_like(logits)], 1)", ENTROPIES,
    ),
    Mutant(
        "torch predictions: sds of the noise added to variances",
        "(w * noise**2).sum(0)", "(w * noise).sum(0)", VALUES,
    ),
    Mutant(
        "torch predictions: the interval leaves out twice as much",
        "for q in ((1 - interval) / 2, (1 + interval) / 2)", "for q in (1 - interval, interval)",
        VALUES,
    ),
    Mutant(
        "torch: a rise of the loss is never far enough",
        "if mean - first > slack", "if mean - first > 1e30 * slack",
        NOTICED + "test_a_learning_rate_given_as_step_size_is_noticed",
    ),
    Mutant(
        "torch: the losses are compared with nothing",
        "slack = max(1.0, abs(first)) * (1 + 4 / math.sqrt(self.rows)) + noise", "slack = -1.0",
        NOTICED + "test_a_run_that_goes_well_is_silent",
    ),
    Mutant(
        "torch: a loss of nan is let pass",
        "if not math.isfinite(mean):", "if math.isinf(mean):",
        NOTICED + "test_a_loss_of_nan_ends_the_run",
    ),
    Mutant(
        "torch: a pass ends before its shorter batch",
        "total = sum(self.sizes)\n", "total = sum(self.sizes[:-1])\n",
        NOTICED + "test_num_data_is_held_against_the_rows_of_a_pass",
    ),
    Mutant(
        "torch: batches of any size make a pass",
        "if rows > full or (short and rows < full)", "if False",
        NOTICED + "test_irregular_batches_tell_nothing",
    ),
    Mutant(
        "torch: rows in every batch are counted in a pass",
        "weighted=_weighted_below(node),", "weighted=False,",
        NOTICED + "test_rows_with_weights_are_left_to_batches",
    ),
    Mutant(
        "torch loss: a classifier's mean times num_data passes",
        "if low * num_data <= logs <= high * num_data and logs >= _MAX_MEAN_LOSS:",
        "if logs > 1e30:", NOTICED + "test_a_loss_times_num_data_is_refused",
    ),
    Mutant(
        "torch loss: any large factor is num_data",
        "<= logs <= high * num_data and", "<= logs and",
        NOTICED + "test_another_factor_is_its_users",
    ),
    Mutant(
        "torch loss: the factor of a scaler is taken for the user's",
        "first.dim() == 0 and not scaled", "first.dim() == 0",
        NOTICED + "test_the_factor_of_a_scaler_is_taken_out_by_it",
    ),
    Mutant(
        "torch: batch normalisation in eval mode is said",
        'if "BatchNorm" in node.name() and training:', 'if "BatchNorm" in node.name():',
        NOTICED + "test_batch_normalisation_is_said_at_the_first_step",
    ),
    Mutant(
        "torch: dropout of share 0 is said",
        "isinstance(share, (int, float)) and share > 0:", "isinstance(share, (int, float)):",
        NOTICED + "test_dropout_that_is_off_or_not_ours_is_not_said",
    ),
    Mutant(
        "torch pass: the whole square of differences is the variance",
        "mul_(0.5 * (h * N) ** 2)", "mul_((h * N) ** 2)",
        NOTICED + "test_the_line_of_a_pass_has_the_laws_numbers",
    ),
    Mutant(
        "torch pass: SGHMC's temperature without its friction",
        "share = (injected + gradient) / (2 * friction * h * D)",
        "share = (injected + gradient) / (2 * h * D)",
        NOTICED + "test_the_line_of_a_pass_has_the_laws_numbers",
    ),
    Mutant(
        "torch: weight_decay divided by num_data",
        "_computed(lambda: value * num_data)", "_computed(lambda: value / num_data)",
        NOTICED + "test_what_other_libraries_call_it",
    ),
    Mutant(
        "torch ensemble: a tied weight is exported twice",
        "for name, p in ensemble.model.named_parameters()",
        "for name, p in ensemble.model.named_parameters(remove_duplicate=False)",
        ENSEMBLE + "test_arviz_gets_each_parameter_once_and_the_weights",
    ),
    Mutant(
        "torch ensemble: the export forgets the weights",
        "Draws.of(position, log_weight=log_weight, ", "Draws.of(position, ",
        ENSEMBLE + "test_arviz_gets_each_parameter_once_and_the_weights",
    ),
    Mutant(
        "torch sample: the second half of the drift by the old momentum",
        "root, kicked + p, value=0.5 * delta", "root, kicked + kicked, value=0.5 * delta",
        SAMPLE + "test_a_step_is_that_of_the_jax_sampler",
    ),
    Mutant(
        "torch sample: a batch counts as all rows",
        "return self.rows.num_data / self.size", "return 1.0",
        SAMPLE + "test_minibatches_have_the_law_too",
    ),
    Mutant(
        "torch sample: every pass in the same order",
        "generator(self.seed, self.stream, number, chain).permutation",
        "generator(self.seed, self.stream, 0, chain).permutation",
        SAMPLE + "test_a_pass_visits_rows_once_and_resumes_anywhere",
    ),
    Mutant(
        "torch sample: the temperature after the O step alone",
        "return (A + (A - (1 - decay)) / decay) / 2", "return A",
        SAMPLE + "test_the_kinetic_temperature_is_one_where_the_momentum_has_its_law",
    ),
    Mutant(
        "torch sample: the metric without the prior",
        "(squares + target.prior.narrowness(z)).cpu()", "squares.cpu()",
        SAMPLE + "test_metric_and_stiffest_direction_are_those_of_the_hessian",
    ),
    Mutant(
        "torch sample: differences of gradients over half their length",
        "(behind - ahead) / (2 * length)", "(behind - ahead) / length",
        SAMPLE + "test_metric_and_stiffest_direction_are_those_of_the_hessian",
    ),
    Mutant(
        "torch sample: the prior left out of the gradient",
        "torch.add(self.prior.slope(z.detach()), g, alpha=scale).neg()", "-scale * g",
        SAMPLE + "test_a_step_is_that_of_the_jax_sampler",
    ),
    Mutant(
        "torch sample: all chains see the first one's labels",
        "target = target[chain]", "target = target[0]",
        SAMPLE + "test_chain_by_chain_and_together_are_the_same",
    ),
    Mutant(
        "torch sample: heat is not looked at",
        "kinetic.astype(np.float64) if len(kinetic) else None", "np.ones_like(kinetic, np.float64)",
        SAMPLE + "test_a_step_that_is_too_large_is_not_trusted",
    ),
    Mutant(
        "torch sample: half the step where a reason speaks of a temperature",
        'None if found["too_warm"] is None else', 'None if "temperature" not in verdict.reasons[0] else',
        SAMPLE + "test_the_step_is_halved_where_a_temperature_is_too_high_and_nowhere_else",
    ),
    Mutant(
        "torch sample: the noise of a resumed run begins anew",
        "noise.set_state(", "torch.Generator().set_state(",
        FILES + "test_a_killed_run_goes_on_bit_for_bit",
    ),
    Mutant(
        "torch sample: a resumed run decides at the draws it was stopped with",
        "        self._paced = self.step,", "        self.wanted = max(self.lengths.num_draws, self.record.count)\n        self._paced = self.step,",
        RESUME + "test_lengths_left_open_end_where_they_would_have[open]",
    ),
    Mutant(
        "torch sample: a resumed run tries as many steps again",
        '("wanted", "began", "step", "tried")', '("wanted", "began", "step")',
        RESUME + "test_lengths_left_open_end_where_they_would_have[open]",
    ),
    Mutant(
        "torch sample: chains that all failed go on to the end of a piece",
        "while self.step < end and self.healthy.size:", "while self.step < end:",
        RESUME + "test_lengths_left_open_end_where_they_would_have[failed]",
    ),
    Mutant(
        "torch sample: a run killed while it tuned starts around other weights",
        "rows, weights, law, start)", "rows, weights, law)",
        RESUME + "test_a_run_killed_while_it_tunes_tunes_anew",
    ),
    Mutant(
        "torch sample: what a run was begun with goes with the run that it replaces",
        "folder is self.path and not self.replacing and CHECKPOINT", "folder is self.path and CHECKPOINT",
        RESUME + "test_a_run_killed_before_its_first_draw_begins_anew",
    ),
    Mutant(
        "torch sample: a checkpoint of another release is read",
        '("kinetic" in arrays and arrays["kinetic"].shape[2:] != columns)', "not columns",
        RESUME + "test_a_run_of_another_release_is_refused",
    ),
    Mutant(
        "torch sample: a run goes on with other rows",
        "if begun.get(name) != value:", 'if name != "rows" and begun.get(name) != value:',
        FILES + "test_other_rows_or_another_trunk_do_not_go_on",
    ),
    Mutant(
        "torch sample: what stands in a directory goes with a call that is refused",
        "if failed and self._new:", "if failed:",
        FILES + "test_what_is_not_that_run_is_refused",
    ),
    Mutant(
        "torch sample: half the step is the step",
        "chains.motion.h / 4", "chains.motion.h",
        SAMPLE + "test_half_the_step_halves_the_heat",
    ),
    Mutant(
        "torch sample: a loss times the number of rows passes",
        "if total < MIN_PROBABILITY_SUM:", "if False:", INPUT + "test_a_loss_times_the_number_of_rows_is_told",
    ),
    Mutant(
        "torch sample: a sum is taken for a mean",
        "    if close(whole, total / len(outputs)):",
        "    if close(whole, total / len(outputs)) or close(whole, total):",
        INPUT + "test_a_loss_is_one_number_per_row_or_their_mean",
    ),
    Mutant(
        "torch sample: a mean loss of a batch counts once",
        "found * len(outputs)", "found", INPUT + "test_the_two_kinds_of_loss_are_one_posterior",
    ),
    Mutant(
        "torch sample: frozen entries are copied for every draw",
        "kept[key] if key in kept else", "kept[key].clone() if key in kept else",
        INPUT + "test_a_frozen_trunk_with_a_bayesian_head",
    ),
    Mutant(
        "torch sample: masters as narrow as the weights",
        "torch.float64 if torch.float64 in self.dtypes else torch.float32",
        "self.dtypes[0]", INPUT + "test_half_precision_is_sampled_in_single",
    ),
    Mutant(
        "torch sample: a run without a limit is never made again",
        "early = allowed == math.inf or ", "early = ",
        SAMPLE + "test_a_run_whose_chains_fail_is_made_again_from_its_starts",
    ),
    Mutant(
        "torch sample: chains that were lost in a stage stay lost",
        "to(old.device)[:, None], old, new)", "to(old.device)[:, None], new, new)",
        SAMPLE + "test_stages_that_diverge_are_taken_back_with_a_smaller_step",
    ),
    Mutant(
        "torch sample: Adam's moments as they are",
        "moment / (1 - decay ** (step + 1))", "moment", SAMPLE + "test_chains_begin_where_adam_ends",
    ),
    Mutant(
        "torch sample: a learnt scale sees one chain",
        "(w**2).sum(-1, keepdim=True)", "(w**2).sum()",
        SAMPLE + "test_priors_are_those_of_jax",
    ),
    Mutant(
        "torch: a stopped run goes on with another loss",
        "if not math.isclose(begun, there, rel_tol=MAX_LOSS_DIFFERENCE, abs_tol=MAX_LOSS_DIFFERENCE):", "if False:",
        "tests/unit/torch_door/test_torch_sample_files.py::test_other_rows_or_another_trunk_do_not_go_on",
    ),
    Mutant(
        "torch: predictions share little work among threads",
        "torch.no_grad(), alone(work, anchor.device):", "torch.no_grad():",
        "tests/unit/torch_door/test_torch_ensemble.py::test_small_networks_predict_on_one_thread",
    ),
    Mutant(
        "torch: a regression has probabilities",
        'if meaning == "numbers":', 'if meaning == "number":',
        MEANING + "test_a_regression_has_no_probabilities",
    ),
    Mutant(
        "torch: answers of their own are one choice",
        'if meaning == "odds" and logits.shape[1] > 1:', 'if meaning == "odd":',
        MEANING + "test_classes_and_single_log_odds_have_probabilities_and_several_answers_none",
    ),
    Mutant(
        "torch: a regression towards 0 and 1 is one of log odds",
        "other - one > 0.5 * torch.maximum", "other - one > 0.01 * torch.maximum",
        MEANING + "test_what_a_loss_takes_outputs_for",
    ),
    Mutant(
        "torch sample: rows in double precision stay so",
        "as_known(leaf, set(dtypes)), inputs)", "leaf, inputs)",
        ROWS + "test_rows_have_a_dtype_of_the_network",
    ),
    Mutant(
        "torch: outputs for something else than rows are taken",
        "if found.dim() == 0 or len(found) != len(given[0]):", "if found.dim() == 0:",
        ROWS + "test_rows_that_a_network_does_not_take_when_it_predicts",
    ),
    Mutant(
        "torch sample: any outputs that are not negative are probabilities",
        "((sums - 1).abs() < MAX_REL_ERROR).all()", "(sums > 0).all()",
        MEANING + "test_probabilities_in_the_place_of_logits",
    ),
    Mutant(
        "torch sample: a sigmoid whose shape was changed is not seen",
        "while node is not None and node.name().startswith(RESHAPING_NODES)", "while node is None",
        MEANING + "test_probabilities_in_the_place_of_logits",
    ),
    Mutant(
        "torch sample: rows that are read again come from the transforms' own stream",
        "with _generators_kept():", "with torch.no_grad():",
        ROWS + "test_random_transforms_are_told_and_change_no_stream",
    ),
    Mutant(
        "torch sample: padding to the longest row is a random transform",
        "other.shape != one.shape:", "len(other) != len(one):",
        ROWS + "test_what_is_the_same_when_it_is_read_again_is_not_told",
    ),
    Mutant(
        "torch sample: weights of classes are looked for in the rows as they are",
        "logits[:, 0] = LOGIT_SHIFT", "logits[:, 0] = 0.0",
        MEANING + "test_weights_of_classes_are_always_seen",
    ),
    Mutant(
        "torch sample: half the step on all threads",
        'progress_shown(progress, HALVING_STAGES), few_threads(chains.motion.target, asked):', 'progress_shown(progress, HALVING_STAGES):',
        SAMPLE + "test_half_the_step_is_told_and_says_what_it_found",
    ),
    Mutant(
        "torch sample: what half the step changes is not said of a run that keeps its word",
        "if found is not first:", "if found is first or found is not first:",
        SAMPLE + "test_half_the_step_is_told_and_says_what_it_found",
    ),
    Mutant(
        "torch sample: a module under two names is swapped twice",
        "torch.func.functional_call(model, held, arguments, named, tie_weights=False)",
        "torch.func.functional_call(model, weights, arguments, named)",
        "tests/unit/torch_door/test_torch_sample_input.py::test_weights_in_several_places_are_one_and_the_model_is_left_as_it_is",
    ),
]  # fmt: skip
