"""In tables from Python: weights, offsets, missing cells; and the warm-up that a table once hung in."""

from .mutant import Mutant

TABLES_TESTS = "tests/unit/models/test_tables.py::"

BLOCKS = "tests/unit/models/test_blocks.py::"

TABLES = [
    Mutant(
        "predict: a new file is read with a decimal point, whatever the run's own was read with",
        "if _ends(part.get(\"path\")) == _ends(data)]", "if _ends(part.get(\"path\")) != _ends(data)]",
        "tests/end_to_end/test_manners.py::test_new_rows_are_read_as_the_run_s_own_were",
    ),
    Mutant(
        "tables: transforms are learnt block by block",
        '= all(factor.eval_method.value in ("lookup", "literal") for factor in factors', "= all(True for factor in factors",
        BLOCKS + "test_a_design_in_pieces_is_the_design",
    ),
    Mutant(
        "tables: the last block of a design is left out",
        "for at in range(0, len(x), DESIGN_ROWS_AT_ONCE)", "for at in range(0, len(x) - DESIGN_ROWS_AT_ONCE, DESIGN_ROWS_AT_ONCE)",
        BLOCKS + "test_sums_in_blocks",
    ),
    Mutant(
        "tables: weights are not counted",
        'return extra["weight"] * value if "weight" in extra else value', "return value",
        TABLES_TESTS + "test_a_weight_of_two_is_the_row_twice",
    ),
    Mutant(
        "lognormal: a density of log y, not of y",
        "return gaussian(eta, log_y, position, extra) - log_y", "return gaussian(eta, log_y, position, extra)",
        "tests/unit/models/test_family.py::test_log_likelihood_is_scipys",
    ),
    Mutant(
        "tables: the offset is forgotten",
        'eta = eta + extra["offset"]\n        value = density(eta, y, position, extra)', "eta = eta\n        value = density(eta, y, position, extra)",
        TABLES_TESTS + "test_the_offset_is_in_the_predictor_of_every_row",
    ),
    Mutant(
        "tables: rows with a missing cell stay",
        "keep &= ~_missing(table, name)", "pass",
        TABLES_TESTS + "test_rows_with_missing_cells_are_left_out_and_counted",
    ),
    Mutant(
        "ensemble: a trajectory as long as its step is short",
        "return jnp.minimum(length / step_size, MAX_LEAPFROGS)", "return length / step_size",
        "tests/unit/tune/test_exact_chains.py::test_a_step_that_goes_to_nothing_does_not_make_a_trajectory_without_an_end",
    ),
]  # fmt: skip
