"""Bugs in the scikit-learn estimators."""

from .mutant import Mutant

MODELS = "tests/unit/sklearn/test_sklearn_models.py::"
ESTIMATORS = "tests/unit/sklearn/test_sklearn_estimators.py::"

PREDICTOR = "tests/unit/sklearn/test_predictor.py::"

SKLEARN_DOOR = [
    Mutant(
        "predictions: a skewed posterior is taken for a normal one",
        "first = np.logical_and.accumulate(agree).sum()", "first = len(agree)",
        PREDICTOR + "test_a_skewed_posterior_is_averaged_over_draws",
    ),
    Mutant(
        "predictions: the noise's uncertainty has no tails",
        "spread / u**2 * (z**3 - 3 * z) / 8", "0 * spread / u**2 * (z**3 - 3 * z) / 8",
        PREDICTOR + "test_intervals_hold_what_they_say[0.15-0.99]",
    ),
    Mutant(
        "predictions: an outcome has no noise",
        "u = (sd**2 + noise)[:, None]", "u = (sd**2)[:, None]",
        PREDICTOR + "test_intervals_hold_what_they_say[0.02-0.9]",
    ),
    Mutant(
        "sklearn: equal rows count once",
        "np.bincount(number, weights=weight[counts])", "np.ones(len(first))",
        MODELS + "test_a_row_of_weight_two_is_two_rows_whatever_their_order",
    ),
    Mutant(
        "sklearn: rows that fill up the number are copies of the last",
        "    out[: len(values)] = values", "    out[:] = values[-1]\n    out[: len(values)] = values",
        MODELS + "test_padding_changes_no_density",
    ),
    Mutant(
        "sklearn: the weight is left out of the likelihood",
        "return weight * normal(", "return normal(",
        MODELS + "test_padding_changes_no_density",
    ),
    Mutant(
        "sklearn: the penalty's C is an sd",
        'scale = strength**0.5 if self.penalty == "l2" else strength', "scale = strength",
        ESTIMATORS + "test_the_penalty_is_that_of_its_name",
    ),
    Mutant(
        "sklearn: the prior of slopes takes them for standardised",
        'jnp.sum(density(of(position)["coef"]))', 'jnp.sum(density(position["coef"]))',
        MODELS + "test_the_closed_form_has_the_moments_that_the_density_asks_for",
    ),
    Mutant(
        "sklearn: no Jacobian of log sigma in the closed form",
        "(1 - n) * grid", "(-1 - n) * grid",
        MODELS + "test_the_closed_form_has_the_moments_that_the_density_asks_for",
    ),
    Mutant(
        "sklearn: coefficients drawn with half their variance",
        "np.sqrt(d**2 + s2) * xi", "np.sqrt((d**2 + s2) / 2) * xi",
        MODELS + "test_the_closed_form_has_the_moments_that_the_density_asks_for",
    ),
    Mutant(
        "sklearn: the determinant of the curvature is left out of sigma's law",
        "np.log1p(d**2 / s2) + ", "",
        MODELS + "test_the_closed_form_has_the_moments_that_the_density_asks_for",
    ),
    Mutant(
        "sklearn: an outcome without noise is left to chains",
        "residual @ residual < MAX_QUIET_SIGMA_SDS**2 * (root @ root)", "False",
        MODELS + "test_the_closed_form_is_for_few_rows_and_for_outcomes_without_noise",
    ),
    Mutant(
        "sklearn: the sd is that of the mean",
        "np.sqrt(np.concatenate(each) + noise)", "np.sqrt(np.concatenate(each))",
        MODELS + "test_sd_and_interval_are_those_of_the_mixture",
    ),
    Mutant(
        "sklearn: noises in the order of the draws",
        "permutation(self.weight.size)", "permutation(self.weight.size) * 0 + np.argsort(self.position['coef'][:, 0])",
        MODELS + "test_sd_and_interval_are_those_of_the_mixture",
    ),
    Mutant(
        "sklearn: predictions forget the draws' weights",
        "np.tensordot(self.weight, of(eta), 1)", "of(eta).mean(0)",
        MODELS + "test_probabilities_are_averaged_over_draws_a_few_rows_at_a_time",
    ),
    Mutant(
        "sklearn: partial_fit forgets the rows so far",
        "np.concatenate([seen.x, x]),\n        np.concatenate([seen.y, y]),\n        np.concatenate([seen.weight, weight]),",
        "x,\n        y,\n        weight,",
        ESTIMATORS + "test_partial_fit_is_a_fit_on_all_rows_so_far",
    ),
    Mutant(
        "sklearn: a network's outcome stays standardised",
        "eta = self.standard.shift + self.standard.stretch * eta", "pass",
        MODELS + "test_a_network_predicts_what_its_density_sees",
    ),
    Mutant(
        "sklearn: an untrusted fit is silent",
        'if self.verdict_.word != "trusted":', 'if self.verdict_.word == "biased":',
        ESTIMATORS + "test_an_untrusted_fit_warns_once_with_the_verdict",
    ),
    Mutant(
        "sklearn: the plan and its functions are pickled",
        "return replace(draws, info=info, plan=None, origin=None)", "return replace(draws, info=info)",
        ESTIMATORS + "test_draws_are_kept_without_their_plan",
    ),
    Mutant(
        "sklearn: sigma has a floor that noise is below",
        "low, high = np.log(MIN_SIGMA_SDS),", "low, high = np.log(1e3 * MIN_SIGMA_SDS),",
        MODELS + "test_sigma_of_the_closed_form_is_that_of_a_quadrature_however_little_noise",
    ),
    Mutant(
        "sklearn: a floor with a say is not told",
        "if np.quantile(sigma, MAX_FLOORED_SHARE) < 2 * MIN_SIGMA_SDS:", "if False:",
        MODELS + "test_an_outcome_explained_exactly_is_told",
    ),
    Mutant(
        "sklearn: a network's sigma stays in the standardised unit",
        "draws = _unstandardised(draws, form, model.standard.stretch)", "pass",
        "tests/unit/sklearn/test_units.py::test_a_networks_noise_is_in_the_unit_of_y",
    ),
]  # fmt: skip
