"""What is no part at all is told so before anything is done with it."""

import pytest

import sgld
from sgld import testing


@pytest.mark.parametrize(
    ("check", "kind", "one", "needed"),
    [
        (testing.check_sampler, "sampler", sgld.SGHMC, "num_noises"),
        (testing.check_preconditioner, "preconditioner", sgld.Diagonal, "prepare"),
        (testing.check_gradient, "gradient estimator", sgld.SAGA, "prepare"),
    ],
)
def test_a_class_and_another_thing_are_refused(check, kind, one, needed):
    with pytest.raises(AssertionError, match=rf"{one.__name__} is a class; give a {kind}: "):
        check(one)
    with pytest.raises(AssertionError, match=f"NoneType: a {kind} needs `{needed}`"):
        check(None)
