"""Runs on several devices and processes: the draws of one, and one run directory."""

import fcntl
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sgld

PROGRAM = Path(__file__).with_name("on_mesh.py")


def begun(*arguments):
    environment = {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *map(str, arguments)],
        env={**environment, "JAX_PLATFORMS": "cpu"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process):
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said[-3000:]


def once(tmp_path_factory, kind, runs):
    """The folder that programs write to, which run once for all workers of the suite."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "mesh"
    shared.mkdir(exist_ok=True)
    with open(shared / f"{kind}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / f"{kind}.done").exists():
            for process in [begun(kind, shared, *more) for more in runs]:
                ended(process)
            (shared / f"{kind}.done").touch()
    return shared


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return once(tmp_path_factory, "devices", [()])


@pytest.fixture(scope="module")
def both(folder, tmp_path_factory):
    """With what two processes wrote, too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return once(tmp_path_factory, "processes", [(port, 0), (port, 1)])


def apart(one, other):
    """The largest difference, in sds."""
    return float((np.abs(one - other) / one.std((0, 1))).max())


@pytest.mark.parametrize("kind", ["plain", "by_hand", "always", "rows"])
def test_four_devices_draw_what_one_draws(folder, kind):
    found = np.load(folder / "devices.npz")
    name = "four" if kind == "plain" else f"four_{kind}"
    assert found[kind].shape == found[name].shape
    assert apart(found[kind], found[name]) < 1e-6  # in float64; a sum's order is all that differs


@pytest.mark.slow
def test_two_processes_draw_what_one_device_draws_and_write_one_directory(both):
    one = np.load(both / "devices.npz")["by_hand"]
    for rank in (0, 1):
        assert apart(one, np.load(both / f"process{rank}.npz")["two"]) < 1e-6
    assert np.array_equal(sgld.load(both / "shared").position, np.load(both / "process0.npz")["two"])  # fmt: skip


def test_a_run_begun_on_four_devices_goes_on_on_one(folder):
    found = np.load(folder / "devices.npz")
    assert apart(found["four_by_hand"], found["resumed"]) < 1e-6


def test_a_step_moves_gradients_and_no_rows(folder):
    counted = json.loads((folder / "devices.json").read_text())["collectives"]
    assert counted.pop("all-reduce") >= 1
    assert not any(counted.values()), counted


def test_every_device_holds_its_part_of_the_rows(folder):
    assert json.loads((folder / "devices.json").read_text())["parts"] == [[1, 251, 2], [1, 251]]


def test_arrays_that_lie_over_the_mesh_already_are_drawn_from(folder):
    found = np.load(folder / "devices.npz")
    mean = found["by_hand"].mean((0, 1)) - found["laid"].mean((0, 1))  # other blocks, the same law
    assert np.all(np.abs(mean) < 0.5 * found["by_hand"].std((0, 1)))


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("axes", "UsageError: mesh must have the axes 'chain' and 'data'. Got 'chains', 'rows'"),
        ("kind", "UsageError: mesh must be a jax.sharding.Mesh. Got int"),
        ("chains", "6 chains is not a multiple of 4; give num_chains=8"),
        ("rows", "4 devices on its axis 'data', more than the 3 rows"),
        ("nan", "DataError: data leaf '[0]' holds NaN or infinity"),
    ],
)
def test_a_mesh_that_does_not_fit_is_answered_in_a_sentence(folder, what, sentence):
    assert sentence in json.loads((folder / "devices.json").read_text())["said"][what]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["fewer", "other"])
def test_processes_with_different_rows_are_told_so(both, what):
    for rank in (0, 1):
        said = json.loads((both / f"process{rank}.json").read_text())[what]
        assert said.startswith("DataError: processes 0 and 1 were given different rows"), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("exists", "already exists; choose another directory, overwrite it"),
        ("path", "UsageError: only one of the processes 0 and 1 got a path"),
        ("full", "RunError: the disk is full."),
        ("nan", "DataError: data"),
        ("batch", "UsageError: batch_size must be at most the number of rows, 502"),
        ("tolerance", "UsageError: tolerance must lie in (0, 0.5]"),
    ],
)
def test_what_one_process_is_refused_ends_all_with_the_same_sentence(both, what, sentence):
    """The others would wait for it at the next sum until the runtime ends them."""
    said = [json.loads((both / f"process{rank}.json").read_text())[what] for rank in (0, 1)]
    assert sentence in said[0] == said[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "sentence"), [("steps", "different states of"), ("runs", "different runs at")]
)
def test_processes_that_find_different_checkpoints_go_nowhere(both, what, sentence):
    for rank in (0, 1):
        said = json.loads((both / f"process{rank}.json").read_text())[what]
        assert said.startswith(f"RunError: processes 0 and 1 found {sentence}"), said
