"""In what a user of tables meets first: how files are read, what is answered, and the report page."""

from .mutant import Mutant

PAGE_TESTS = "tests/unit/report/test_page.py::"
FIGURE_TESTS = "tests/unit/report/test_figures.py::"

MANNERS = [
    Mutant(
        "report: single numbers are of the rows pictured", "report/replicated.py",
        "if len(rows) < num_data:", "if False:",
        PAGE_TESTS + "test_single_numbers_are_of_all_rows",
    ),
    Mutant(
        "report: one piece of the rows stands for all", "report/replicated.py",
        "piece = rows[start : start + step]", "piece = rows[:step]",
        PAGE_TESTS + "test_single_numbers_are_of_all_rows",
    ),
    Mutant(
        "report: few replicas are taken for their law", "report/totals.py",
        "if len(replicas) >= FEW:", "if len(replicas) >= 2:",
        FIGURE_TESTS + "test_one_data_set_more_is_beyond_the_band_once_in_a_hundred_times",
    ),
    Mutant(
        "report: numbers cross the axes", "report/figures.py",
        '"muted", 1.02, "left")', '"muted", 0.7, "left")',
        FIGURE_TESTS + "test_names_and_numbers_stand_beside_their_bar_and_outside_the_axes",
    ),
]  # fmt: skip
