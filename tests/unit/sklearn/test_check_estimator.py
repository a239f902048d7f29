"""scikit-learn's own contract, `check_estimator`: whole in the slow suite, a sample of it in the fast one."""

from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from sgld import SGLDClassifier, SGLDRegressor

# whose fits have rows enough for the engine, and compile
COMPILING = {
    "check_estimators_partial_fit_n_features",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_regressors_train",
    "check_n_features_in",
    "check_estimator_sparse_tag",
}
# of a classifier, whose every fit compiles: those that fit nothing, or are refused, and weights
FITTING_NOTHING = {
    "check_all_zero_sample_weights_error",
    "check_classifiers_one_label",
    "check_classifiers_one_label_sample_weights",
    "check_classifiers_regression_target",
    "check_complex_data",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_get_tags_default_keys",
    "check_estimator_repr",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_fit2d_1sample",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_set_params",
    "check_valid_tag_types",
}


def run(estimator, chosen):
    """The checks that `chosen` chooses by name; how many ran."""
    ran = 0
    for instance, check in estimator_checks_generator(estimator):
        name = getattr(check, "func", check).__name__
        if not chosen(name):
            continue
        try:
            check(instance)
            ran += 1
        except SkipTest:  # what is not installed
            continue
    return ran


@pytest.mark.filterwarnings("ignore")
@pytest.mark.unchecked
def test_a_sample_of_the_regressors_checks():
    assert run(SGLDRegressor(), lambda name: name not in COMPILING) >= 35


@pytest.mark.filterwarnings("ignore")
@pytest.mark.unchecked
def test_a_sample_of_the_classifiers_checks():
    assert run(SGLDClassifier(), lambda name: name in FITTING_NOTHING) >= 15


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", [SGLDRegressor(), SGLDClassifier()], ids=repr)
def test_check_estimator_passes_whole(estimator):
    found = check_estimator(estimator, on_skip=None)
    assert {check["status"] for check in found} <= {"passed", "skipped"}
    assert not any(check["expected_to_fail"] for check in found)
    assert sum(check["status"] == "passed" for check in found) >= 50
