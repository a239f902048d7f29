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
]  # fmt: skip
