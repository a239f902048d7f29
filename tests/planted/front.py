"""Bugs in what a user sees of a computation while it runs."""

from .mutant import Mutant

STAGES = "tests/unit/test_stages.py::"

FRONT = [
    Mutant(
        "stages: the bar is full when the last count is",
        "min(0.99, elapsed / max(elapsed + left, 1e-9))", "elapsed / max(elapsed + left, 1e-9)",
        STAGES + "test_nothing_is_complete_before_the_end",
    ),
    Mutant(
        "stages: the bar goes back with the estimate",
        "self._share = max(self._share, min(", "self._share = max(0.0, min(",
        STAGES + "test_the_share_never_goes_back",
    ),
    Mutant(
        "stages: those to come take what they take on another problem",
        "later = slower * sum(DEMO_STAGE_SECONDS", "later = sum(DEMO_STAGE_SECONDS",
        STAGES + "test_what_is_left_is_in_proportion_to_what_stages_took",
    ),
    Mutant(
        "stages: a stage inside a whole one takes its name",
        "self._open[-1] if inside_a_whole else _Open(name, whole)", "_Open(name, whole)",
        STAGES + "test_a_whole_stage_keeps_its_name_and_its_count",
    ),
    Mutant(
        "stages: what is printed stands behind the line",
        "            self._out.clear()\n            yield", "            yield",
        STAGES + "test_what_is_printed_aside_has_a_line_of_its_own",
    ),
    Mutant(
        "start: of many weights the densities of the last rows are not looked at",
        "value = sums.value(problem, z)", "value = sums.value(problem.first(FIRST_ROWS), z)",
        "tests/laws/test_refusals.py::test_rows_at_a_large_position_are_looked_at_before_the_first_step",
    ),
    Mutant(
        "start: of many weights no gradient is looked at",
        "sums.value_and_gradient(problem.first(FIRST_ROWS), z)[1]", "z",
        "tests/laws/test_refusals.py::test_rows_at_a_large_position_are_looked_at_before_the_first_step",
    ),
]  # fmt: skip
