"""The gate where PyTorch cannot be had: `make test-torch` says so and passes, `.ci/run` fails, but on Python 3.12."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOOR = ROOT / "tests" / "torch_door.sh"


@pytest.fixture
def with_make(tmp_path):
    """Runs a command where `make` and the Python it is given are scripts of these texts."""

    def run(*command, make, version="3.11"):
        for name, text in {"make": make, "python": f"echo {version}"}.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        environment = {
            **os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": "python",
        }  # fmt: skip
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    return run


def test_the_command_decides_where_pytorch_is_had(with_make):
    assert with_make(DOOR, "tested", "echo", "ran", make="exit 0") == (0, "ran\n")
    assert with_make(DOOR, "tested", "false", make="exit 0") == (1, "")


def test_where_pip_finds_no_pytorch_one_line_says_so(with_make):
    make = "echo Collecting; echo 'ERROR: No matching distribution found for torch' >&2; exit 2"
    said = "torch door: not tested (ERROR: No matching distribution found for torch)\n"
    assert with_make(DOOR, "tested", "false", make=make) == (0, said)


def test_a_python_without_the_pinned_pytorch_is_named(with_make):
    said = "torch door: not checked (PyTorch is pinned for Python 3.11. This is 3.12)\n"
    assert with_make(DOOR, "checked", "false", make="exit 0", version="3.12") == (0, said)


@pytest.mark.parametrize(
    ("make", "status"),
    [
        ("echo $1", 0),
        ("test $1 != check", 1),
        ("test $1 != test", 1),
        ("test $1 != test-long", 1),
        ("test $1 != test-torch", 1),
        ("test $1 != smoke", 1),
        ("test $1 != test-latest", 1),
        ("echo 'latest: not tested (no python3.12)'", 1),
        ("echo 'torch door: not tested (ERROR: no network)'", 1),
        ("echo 'torch door: not tested (PyTorch is pinned for Python 3.11. This is 3.13)'", 1),
        ("echo 'torch door: not tested (PyTorch is pinned for Python 3.11. This is 3.12)'", 0),
    ],
)
def test_ci_fails_where_a_part_failed_or_was_left_out(with_make, make, status):
    assert (with_make(ROOT / ".ci" / "run", make=make)[0] != 0) == (status != 0)
