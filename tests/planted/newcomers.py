"""In what a newcomer meets at any door: sentences, limits on time, what is said while something works."""

from .mutant import Mutant

FOREIGN = "tests/unit/test_foreign.py::"
FAR = "tests/unit/tune/test_mode.py::test_the_plan_of_a_posterior_far_from_gaussian_recommends_nothing"
LIMITS = "tests/unit/test_limits.py::"

NEWCOMERS = [
    Mutant(
        "foreign: a near name is not offered", "foreign.py",
        "did_you_mean(name, own)", 'did_you_mean(name, [])',
        FOREIGN + "test_a_name_of_another_library_is_answered_with_ours",
    ),
    Mutant(
        "notes: the remedies of the first verdict stay said", "run/again.py",
        '.split("; ")[0].rstrip(".")', '.rstrip(".")', FAR,
    ),
    Mutant(
        "time: steps that are missing are not counted", "run/loop.py",
        "missing = max(0, _steps_for(self.kernel, FEWEST_DRAWS) - self.step)", "missing = 0",
        LIMITS + "test_the_time_that_is_said_to_do_covers_the_steps_that_are_missing",
    ),
    Mutant(
        "time: what a stage needs still is not counted", "deadline.py",
        "whole = (passed + left)", "whole = passed",
        LIMITS + "test_what_a_stage_needs_still_is_asked_for_too",
    ),
]  # fmt: skip
