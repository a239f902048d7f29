"""In what a newcomer meets at any door: sentences, limits on time, what is said while something works."""

from .mutant import Mutant

FOREIGN = "tests/unit/test_foreign.py::"
LIMITS = "tests/unit/test_limits.py::"

ESTIMATORS = "tests/unit/sklearn/test_sklearn_estimators.py::"

UPDATE = "tests/unit/models/test_update.py::"

SEPARATED = "tests/unit/models/test_separated.py::"
KEPT = "tests/unit/draws/test_kept.py::"

NEWCOMERS = [
    Mutant(
        "separated: the reference level is not looked at",
        "if rest.any():", "if False:", SEPARATED + "test_what_only_the_prior_decides_is_named",
    ),
    Mutant(
        "stages: what is left stands still while a piece is computed",
        "max(0.0, now - self.at)", "0.0",
        "tests/unit/test_stages.py::test_what_is_left_goes_down_while_one_piece_of_the_work_is_computed",
    ),
    Mutant(
        "plan files: rays are not stored",
        'approximation.rays": "Ray"', 'approximation.rays": ""',
        "tests/unit/draws/test_codec.py::test_a_doubt_and_the_ray_it_was_found_on_are_stored",
    ),
    Mutant(
        "kept: pending draws are not counted",
        ' + len(arrays.get("pending_step_size", ()))', "",
        KEPT + "test_ctrl_c_says_what_is_kept_and_how_to_go_on",
    ),
    Mutant(
        "remedies: how to go on stays Python's at the shell",
        '"sgld resume \\2"', '"sgld.resume(\\2)"',
        KEPT + "test_a_sentence_in_the_words_of_the_shell",
    ),
    Mutant(
        "predict: the parts of a table that grew are not looked at",
        "for part in _parts(stored) if", "for part in [stored or {}] if",
        UPDATE + "test_a_file_is_written_as_the_first_of_those_that_a_table_grew_from",
    ),
    Mutant(
        "sklearn: a fit speaks unasked", "if not estimator.verbose:", "if False:",
        ESTIMATORS + "test_nothing_is_said_by_default_and_a_line_for_each_fit_with_verbose",
    ),
    Mutant(
        "sklearn: padded rows are counted",
        "rows.said(note) for note", "note for note",
        ESTIMATORS + "test_notes_count_the_users_rows_and_not_what_fills_them_up",
    ),
    Mutant(
        "sklearn: the first step's names are lost",
        'return called.get(column, column) + bracket + rest', "return name",
        ESTIMATORS + "test_names_that_a_pipeline_gives_are_those_of_its_draws",
    ),
    Mutant(
        "foreign: a near name is not offered",
        "else did_you_mean(name, own)", "else did_you_mean(name, [])",
        FOREIGN + "test_a_name_of_another_library_is_answered_with_ours",
    ),
    Mutant(
        "notes: the remedies of the first verdict stay said",
        '.split("; ")[0].rstrip(".")', '.rstrip(".")',
        "tests/unit/tune/test_exact_chains.py::test_the_note_of_a_second_run_leaves_out_the_remedy_that_it_applies",
    ),
    Mutant(
        "time: steps that are missing are not counted",
        "missing = max(0, _steps_for(self.kernel, ADVISED_DRAWS) - self.step)", "missing = 0",
        LIMITS + "test_the_time_that_is_said_to_do_covers_the_steps_that_are_missing",
    ),
    Mutant(
        "time: what a stage needs still is not counted",
        "whole = (passed + left)", "whole = passed",
        LIMITS + "test_what_a_stage_needs_still_is_asked_for_too",
    ),
]  # fmt: skip
