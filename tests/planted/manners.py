"""In what a user of tables meets first: how files are read, what is answered, and the report page."""

from .mutant import Mutant

PAGE_TESTS = "tests/unit/report/test_page.py::"
TYPED = "tests/end_to_end/test_manners.py::test_a_wrong_guess_is_answered_with_the_right_one"
READ = "tests/unit/data/test_table.py::"
TABLES_TESTS = "tests/unit/models/test_tables.py::"
PIECES = "tests/unit/models/test_fit.py::"
FORMULA_TESTS = "tests/unit/models/test_formula.py::"
MASKED = "tests/unit/data/test_masked.py::"
OWN_PARTS = "tests/unit/test_own_parts.py::"
FIGURE_TESTS = "tests/unit/report/test_figures.py::"

MANNERS = [
    Mutant(
        "report: single numbers are of the rows pictured",
        "if len(rows) < num_data:", "if False:",
        PAGE_TESTS + "test_single_numbers_are_of_all_rows",
    ),
    Mutant(
        "report: one piece of the rows stands for all",
        "piece = rows[start : start + step]", "piece = rows[:step]",
        PAGE_TESTS + "test_single_numbers_are_of_all_rows",
    ),
    Mutant(
        "report: few replicas are taken for their law",
        "if len(replicas) >= MIN_REPLICAS:", "if len(replicas) >= 2:",
        FIGURE_TESTS + "test_one_data_set_more_is_beyond_the_band_once_in_a_hundred_times",
    ),
    Mutant(
        "report: numbers cross the axes",
        '"muted", 1.02, "left")', '"muted", 0.7, "left")',
        FIGURE_TESTS + "test_names_and_numbers_stand_beside_their_bar_and_outside_the_axes",
    ),
    Mutant(
        "text: the separator of most cells, whole rows or not",
        "best = max(whole or SEPARATORS,", "best = max(SEPARATORS,",
        READ + "test_commas_in_cells_are_no_separators",
    ),
    Mutant(
        "text: a declared separator is a row",
        "skip = int(declared is not None)", "skip = 0",
        READ + "test_text_is_read_as_it_is_written",
    ),
    Mutant(
        "cells: the first column in trouble alone",
        "found = [trouble for trouble in troubles if trouble is not None]",
        "found = [trouble for trouble in troubles if trouble is not None][:1]",
        TYPED,
    ),
    Mutant(
        "cells: few decimal commas are a category",
        "        if found is not None:\n            return found\n    levels",
        "        if found is not None and len(column.unique()) > MAX_TEXT_LEVELS:\n            return found\n    levels",
        TYPED,
    ),
    Mutant(
        "cells: rows are numbered without those left out",
        "raise (error if numbers is None else renumbered(error, numbers))", "raise error",
        TABLES_TESTS + "test_rows_are_numbered_as_the_table_has_them",
    ),
    Mutant(
        "predictions: rows of a later piece are numbered from its start",
        "renumbered(error, first + np.flatnonzero(keep))", "renumbered(error, np.flatnonzero(keep))",
        PIECES + "test_a_bad_row_is_counted_from_the_start_of_the_table",
    ),
    Mutant(
        "predictions: the rows of a file that fill no piece are left out",
        "        if held:\n            yield", "        if not read:\n            yield",
        PIECES + "test_a_file_is_predicted_in_pieces_to_the_same_bits_as_its_table",
    ),
    Mutant(
        "predictions: a file may change while it is read",
        "if self._stamps() != self._before:", "if False:",
        PIECES + "test_pieces_without_any_whole_row_are_refused_and_files_that_change_too",
    ),
    Mutant(
        "predictions: an interval's upper end is the value above",
        "math.ceil(count * tail - 1e-9) - 1)", "math.ceil(count * tail - 1e-9))",
        FORMULA_TESTS + "test_ends_of_intervals_are_quantiles",
    ),
    Mutant(
        "words: the likeliest class by its number turned round",
        'second = found["mean"] > 0.5', 'second = found["mean"] < 0.5',
        TABLES_TESTS + "test_two_words_are_the_bernoulli_of_their_order",
    ),
    Mutant(
        "predictions: the sd of a mean has the noise of outcomes",
        "if noise else 0.0", "",
        TABLES_TESTS + "test_the_mean_is_predicted_without_the_noise_of_outcomes",
    ),
    Mutant(
        "ids: long ones are constants",
        "ids = [j for j in still if facts.span[j] >= 1", "ids = [j for j in still if facts.span[j] < 1",
        "tests/unit/models/test_formula.py::test_long_ids_are_no_constants",
    ),
    Mutant(
        "spelling: signs of equality in brackets count",
        "found = EQUALS_SIGN.search(flat)", "found = EQUALS_SIGN.search(formula)",
        "tests/unit/models/test_spelling.py",
    ),
    Mutant(
        "handed over: what stands under a mask is data",
        "isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value)", "False",
        MASKED + "test_a_masked_cell_is_refused",
    ),
    Mutant(
        "handed over: numbers wider than any of JAX keep their type",
        'wide = dtype.kind == "f" and dtype.itemsize > 8', "wide = False",
        MASKED + "test_numbers_wider_than_any_of_jax_are_rounded",
    ),
    Mutant(
        "handed over: a leaf that is no array goes on to the compiler",
        "jax.eval_shape(lambda _: None, leaf)", "pass",
        OWN_PARTS + "test_what_cannot_run_destroys_nothing",
    ),
    Mutant(
        "handed over: parts of no tree go on to the compiler",
        "if jax.tree_util.all_leaves([value]):", "if False:",
        OWN_PARTS + "test_what_cannot_run_destroys_nothing",
    ),
    Mutant(
        "handed over: words in a part are leaves",
        "words = tuple((name, part) for name, part in held.items() if type(part) is str)", "words = ()",
        OWN_PARTS + "test_what_can_run_runs",
    ),
    Mutant(
        "handed over: a class derived from SGLD is SGLD",
        "sampler = dataclasses.replace(sampler, noise_correction=None if own else correction)", "sampler = SGLD(correction)",
        OWN_PARTS + "test_a_class_derived_from_SGLD_keeps_its_own_step",
    ),
    Mutant(
        "resume: a part of the user's own is passed over before there is a plan",
        'has_digest(problem, name, value, written["digest"])', "True",
        OWN_PARTS + "test_a_part_of_the_users_own_is_the_same_by_what_it_holds",
    ),
    Mutant(
        "resume: what an object holds is not looked at",
        "yield from _numbers(part, depth + 1)", "pass",
        OWN_PARTS + "test_a_part_of_the_users_own_is_the_same_by_what_it_holds",
    ),
    Mutant(
        "resume: a stored part given anew is passed over",
        "same = _same(stored, value)", "same = True",
        OWN_PARTS + "test_a_stored_part_that_is_given_again_is_the_same",
    ),
    Mutant(
        "resume: a part in other words is another",
        "if all(isinstance(x, (list, tuple)) for x in (one, other)):", "if False:",
        OWN_PARTS + "test_a_list_by_leaves_comes_back_as_a_list",
    ),
    Mutant(
        "resume: parts of one type are the same",
        "return np.array_equal(np.asarray(one, np.float32), np.asarray(other, np.float32))", "return True",
        OWN_PARTS + "test_a_stored_part_that_is_given_again_is_the_same",
    ),
]  # fmt: skip
