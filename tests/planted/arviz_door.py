"""Bugs in what ArviZ is given and finds: rows, weights, subsamples, the model behind draws."""

from .mutant import Mutant

CRITERIA = "tests/unit/arviz/test_criteria.py::"
GROUPS = "tests/unit/arviz/test_groups.py::"
PLOTS, VIEWS = "tests/unit/arviz/test_plots.py::", "tests/unit/arviz/test_views.py::"
CELL = "tests/unit/arviz/test_cell.py::"
EXACT = CRITERIA + "test_loo_is_the_predictive_density_of_a_row_left_out"
DIFFERENCE = CRITERIA + "test_the_difference_estimator_is_that_of_arviz"

ARVIZ_DOOR = [
    Mutant(
        "predictive check: probabilities are of the rows in order",
        "return found.reshape(len(found), -1)[:, numbers].T", "return found.reshape(len(found), -1)[:, : len(numbers)].T",
        "tests/unit/arviz/test_outcomes.py::test_probabilities_are_those_of_the_model",
    ),
    Mutant(
        "predictive check: the mean of a binary outcome is that of the other level",
        'family, mean = "bernoulli", mean[:, 1]', 'family, mean = "bernoulli", mean[:, 0]',
        "tests/unit/arviz/test_outcomes.py::test_probabilities_are_those_of_the_model",
    ),
    Mutant(
        "loo: rows of the last block are those of the first",
        "out[start : start + len(here)] =", "out[: len(here)] =",
        CRITERIA + "test_rows_that_are_taken_block_by_block_are_the_same",
    ),
    Mutant(
        "waic: the variance is added", "lpd - variance", "lpd + variance", EXACT,
    ),
    Mutant(
        "waic: a sum over draws, not their mean",
        "np.asarray(logsumexp(values, axis=1)) - np.log(values.shape[1])", "np.asarray(logsumexp(values, axis=1))", EXACT,
    ),
    Mutant(
        "the subsample's rows scaled by m/N",
        "scaled = total * gap.mean()", "scaled = m * gap.mean()", DIFFERENCE,
    ),
    Mutant(
        "subsampling: no finite-population correction",
        "total**2 * (1 - m / total) * gap", "total**2 * gap", DIFFERENCE,
    ),
    Mutant(
        "the approximation is that of other rows",
        "difference(every.elpd, about[numbers], about)", "difference(every.elpd, about[: len(numbers)], about)",
        CRITERIA + "test_a_subsample_says_how_far_off_it_is",
    ),
    Mutant(
        "the approximation is always that at the mean",
        "both[int(np.argmin(", "both[0 * int(np.argmin(",
        CRITERIA + "test_where_a_mean_is_none_a_few_draws_approximate",
    ),
    Mutant(
        "weights are not looked at",
        "if not weights or equal_weights(w).all():", "if True:", CRITERIA + "test_weights_count",
    ),
    Mutant(
        "chains of unlike mass are resampled apart",
        "np.allclose(totals, totals[0], rtol=MAX_WEIGHT_ROUNDING)", "True",
        CRITERIA + "test_systematic_resampling_keeps_weights_and_chains",
    ),
    Mutant(
        "rows that were dropped are not counted",
        "model.posterior.log_likelihood, model.data, called=model.row_numbers", "model.posterior.log_likelihood, model.data",
        CRITERIA + "test_rows_of_a_table_are_named_as_the_table_numbers_them",
    ),
    Mutant(
        "the outcome's predictions stay standardised",
        'spec["outcome_scale"] * made + spec["outcome_center"]', "made", GROUPS + "test_a_formula_fills_every_group",
    ),
    Mutant(
        "observed data of all rows beside a subsample's",
        "{n: v[numbers] for n, v in arrays.items()}", "{n: v[: len(numbers)] for n, v in arrays.items()}",
        GROUPS + "test_more_than_max_bytes_is_a_subsample_that_is_named",
    ),
    Mutant(
        "every row's outcome is drawn with one key",
        "return jax.vmap(row)(own, rows)", "return jax.vmap(row, (None, 0))(own[0], rows)",
        GROUPS + "test_a_numpyro_model_fills_every_group",
    ),
    Mutant(
        "a prior's text is of the standardised coefficients",
        "np.linalg.solve(matrix, (b - offset).T).T.reshape", "b.reshape", GROUPS + "test_draws_of_the_prior_have_its_law",
    ),
    Mutant(
        "a forest of all draws alike, whatever they weigh",
        'tree = _tree(draws, parameters, choose(draws, MAX_PLOTTED_DRAWS))\n    figure',
        'tree = _tree(draws, parameters, choose(draws, MAX_PLOTTED_DRAWS, weights=False))\n    figure',
        PLOTS + "test_a_forest_stands_where_the_weighted_draws_are",
    ),
    Mutant(
        "the parameters that mix best are shown",
        "np.argsort(np.nan_to_num(ess), kind", "np.argsort(-np.nan_to_num(ess), kind",
        PLOTS + "test_many_parameters_are_those_that_mix_worst",
    ),
    Mutant(
        "pyplot keeps the figures", 'figure = made.viz["figure"].item()\n        plt.close(figure)', 'figure = made.viz["figure"].item()\n        plt.figure(figure)',
        PLOTS + "test_every_kind_is_a_figure_that_names_its_parameters",
    ),
    Mutant(
        "the observed outcomes of other rows",
        "np.asarray(subject.observed[name])[numbers]", "np.asarray(subject.observed[name])[numbers][::-1]",
        PLOTS + "test_the_predictive_check_fits_the_outcome",
    ),
    Mutant(
        "names are put into a view as they are",
        '<tr><th scope="row">{_name(name)}</th>', '<tr><th scope="row">{name}</th>',
        VIEWS + "test_comparison_and_prediction",
    ),
    Mutant(
        "an empty output where a run fails",
        'self.write(f"stopped: {self._text}" if summary is None else summary)', 'self.write(summary or "")',
        CELL + "test_a_run_that_fails_says_where",
    ),
    Mutant(
        "a display for every writing", "if self._handle is None:", "if True:",
        CELL + "test_one_display_is_replaced",
    ),
    Mutant(
        "a call that showed nothing leaves a line",
        "        if self._handle is not None:\n            self.write", "        if True:\n            self.write",
        CELL + "test_a_call_that_is_over_at_once_leaves_nothing",
    ),
    Mutant(
        "draws of a cold posterior have a loo",
        "    check_target(draws, kind)\n", "", CRITERIA + "test_what_has_no_loo_is_told_why",
    ),
    Mutant(
        "what keep made of positions is taken for positions",
        "        with _discard_on_failure(directory), noting_stored_part(directory, argument):\n            draws = execute(problem, ask, ess, host)\n        return replace(draws, origin=Origin(posterior, data, kept=kept is not None))",
        "        with _discard_on_failure(directory), noting_stored_part(directory, argument):\n            draws = execute(problem, ask, ess, host)\n        return replace(draws, origin=Origin(posterior, data))",
        "tests/unit/arviz/test_criteria.py::test_what_keep_made_has_no_loo",
    ),
    Mutant(
        "loo: a row that says nothing is smoothed",
        "says = np.ptp(values, axis=1) > 0", "says = np.ones(len(values), bool)",
        CRITERIA + "test_rows_that_say_nothing_add_nothing",
    ),
    Mutant(
        "arviz: placeholders of a mask were observed",
        "return np.where(there, value, np.nan)", "return value",
        GROUPS + "test_what_a_mask_leaves_out_was_not_observed",
    ),
    Mutant(
        "plots: placeholders of a mask are checked",
        "return Outcomes(name, observed[there], values[:, :, there],", "return Outcomes(name, np.nan_to_num(observed, nan=-99.0), values,",
        GROUPS + "test_what_a_mask_leaves_out_was_not_observed",
    ),
]  # fmt: skip
