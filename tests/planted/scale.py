"""In runs on several devices, plans of them, data that grow, and runs that are watched."""

from .mutant import Mutant

SHARDED = "tests/unit/data/test_sharded.py::"
MESH = "tests/end_to_end/test_mesh.py::"

SCALE = [
    Mutant(
        "mesh: a block's last rows are left out where it does not begin on the first device",
        "data/sharded.py", "min((size + D - 2) // D + 1, held)", "min(-(-size // D), held)",
        SHARDED + "test_a_block_holds_the_rows_of_the_block_in_memory",
    ),
    Mutant(
        "mesh: what fills a block up counts", "data/sharded.py",
        "(numbers >= start) & (numbers < end)", "(numbers >= start) & (numbers >= 0)",
        SHARDED + "test_a_block_holds_the_rows_of_the_block_in_memory",
    ),
    Mutant(
        "mesh: a row is taken from every device that has one at its place", "data/sharded.py",
        "found = jnp.where(mine.reshape", "found = jnp.where(True | mine.reshape",
        SHARDED + "test_the_contract_holds_over_any_number_of_devices",
    ),
    Mutant(
        "mesh: rows in every batch count again where they fill up", "data/always.py",
        "weight=join(weight, own, fill=0.0)", "weight=join(weight, own)",
        SHARDED + "test_a_block_holds_the_rows_of_the_block_in_memory",
    ),
    Mutant(
        "mesh: every device holds all rows", "data/sharded.py",
        "return NamedSharding(mesh, PartitionSpec(DATA))", "return NamedSharding(mesh, PartitionSpec())",
        MESH + "test_every_device_holds_its_part_of_the_rows",
    ),
    Mutant(
        "mesh: processes with different tables go on", "data/sharded.py",
        "if word != said[0]), None)\n    if other is None", "if False), None)\n    if other is None",
        MESH + "test_processes_with_different_rows_are_told_so",
    ),
    Mutant(
        "lengths: the last bit of a rate decides", "tune/lengths.py",
        "math.ceil(steps * (1 - 1e-6))", "math.ceil(steps)",
        MESH + "test_four_devices_draw_what_one_draws",
    ),
    Mutant(
        "plan: passes are not divided among devices", "tune/scaling.py",
        "local = -(-rows // devices)", "local = rows",
        "tests/unit/tune/test_scaling.py::test_passes_are_divided_and_steps_are_not",
    ),
    Mutant(
        "plan: the look at all rows is forgotten", "tune/scaling.py",
        "+ SEARCHED + TABLED + SURVEYED", "+ TABLED",
        "tests/unit/tune/test_scaling.py::test_passes_are_those_of_a_run",
    ),
    Mutant(
        "update: rows that came do not move the centre", "models/update.py",
        "for sign, rows in ((1.0, changed.came), (-1.0, changed.went)):",
        "for sign, rows in ((0.0, changed.came), (-1.0, changed.went)):",
        "tests/unit/models/test_update.py::test_appended_rows_give_the_posterior_of_all",
    ),
    Mutant(
        "update: rows that went come again", "models/update.py",
        "(-1.0, changed.went)", "(1.0, changed.went)",
        "tests/unit/models/test_update.py::test_what_was_dropped_is_forgotten",
    ),
    Mutant(
        "update: whatever the rows say is believed", "models/update.py",
        "if not size <= FAR:", "if False:",
        "tests/unit/models/test_update.py::test_rows_that_say_something_else_are_searched_anew",
    ),
    Mutant(
        "update: dropped rows are read again", "disk/grown.py",
        "left[rows] = False", "left[rows] = True",
        "tests/unit/models/test_update.py::test_what_was_dropped_is_forgotten",
    ),
]  # fmt: skip
