"""Run directories that an older version wrote load, print the same table, and resume to the same bits."""

import ast
import hashlib
import inspect
import json
import re
import shutil
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
import pytest

import sgld
from sgld.core.files import read_arrays
from sgld.errors import RunError
from sgld.inference.record import has_digest, own_digest
from sgld.results import tags

FOLDER = Path(__file__).parents[2] / "fixtures" / "runs_0de9404"
sys.path.insert(0, str(FOLDER))
import write_runs  # noqa: E402

SUMMARIES = json.loads((FOLDER / "summaries.json").read_text())
JAX = json.loads((FOLDER / "auto" / "run.json").read_text())["versions"]["jax"]
SAME_NUMBERS = 1e-3  # of the draws, on a machine or a version of JAX whose rounding differs


def copied(name, tmp_path):
    """Return a copy of a stored run, which the test may change."""
    return Path(shutil.copytree(FOLDER / name, tmp_path / name))


def resumed(name, path):
    """Return what a run resumes to; skip where another JAX reads the user's functions as others."""
    try:
        return write_runs.resume(name, path)
    except RunError as error:
        if jax.__version__ == JAX:
            raise
        pytest.skip(f"the run was begun with jax {JAX}, and this is {jax.__version__}: {error}")


def table(printed):
    """Return {parameter: {column: cell}} of a table that 0de9404 printed."""
    heads, *lines = printed.split("\n2 chains")[0].split("\n4 chains")[0].splitlines()
    cells = {line.split()[0]: line.split()[1:] for line in lines}
    return {name: dict(zip(heads.split(), row, strict=True)) for name, row in cells.items()}


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_finished_run_loads_and_has_the_table_that_it_printed(tmp_path, name):
    draws = sgld.load(copied(name, tmp_path))
    found = draws.summary().parameters
    stored = table(SUMMARIES[name])
    assert stored.keys() == found.keys()
    for parameter, row in stored.items():
        for column, cell in row.items():
            value = found[parameter][column]
            assert (value is None) == (cell == "-")
            digits = (
                0 if column.startswith("ess") else 3 if column in ("r_hat", "sd_ratio") else None
            )
            shown = (
                cell
                if value is None
                else f"{value:.4g}"
                if digits is None
                else f"{value:.{digits}f}"
            )
            assert shown == cell, (parameter, column)
    assert f"verdict: {draws.verdict.word}" in SUMMARIES[name]
    assert (draws.plan is None) == (name == "own")  # parts of a user's own are not stored


@pytest.mark.long  # the runs were compiled with optimisation, which decides their last bits
@pytest.mark.parametrize("name", SUMMARIES)
def test_an_interrupted_run_resumes_to_the_bits_of_the_uninterrupted_run(
    tmp_path, monkeypatch, name
):
    """A machine whose rounding differs from that of the older run resumes to nearly the same numbers."""
    monkeypatch.chdir(FOLDER)  # where the table of the formula is
    before = numbers(sgld.load(copied(name, tmp_path)))
    after = numbers(resumed(name, copied(f"{name}_interrupted", tmp_path)))
    if all(map(np.array_equal, before, after)):
        return
    run = write_runs.fit if name in write_runs.FITTED else write_runs.sample
    fresh = numbers(run(name, tmp_path / "fresh"))
    assert not all(map(np.array_equal, before, fresh)), "this machine does compute the same bits"
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other, one, rtol=SAME_NUMBERS, atol=SAME_NUMBERS)


def numbers(draws):
    """Return the arrays of all that a run keeps of its draws."""
    position = draws.position if isinstance(draws.position, dict) else {"": draws.position}
    moments = draws.moments
    totals = [] if moments is None else [moments.chain_mean, moments.chain_square, moments.between]
    return [np.asarray(array) for array in (*position.values(), draws.step_size, *totals)]


@pytest.mark.parametrize("path", (FOLDER / "class_paths.txt").read_text().split())
def test_a_class_is_found_by_the_path_that_the_older_version_wrote(path):
    kind = tags.class_of(path)
    assert kind is tags.class_of(path.rpartition(".")[2])
    assert isinstance(kind, type) and kind.__name__ == path.rpartition(".")[2]


def test_a_part_that_is_given_again_is_recognised_after_the_modules_have_moved(
    tmp_path, monkeypatch
):
    """The digests of the older version name the modules of the classes that a user's part derives from."""
    for kind in (sgld.SGLD, sgld.Scalar):
        monkeypatch.setattr(kind, "__module__", "sgld.elsewhere")
    assert resumed("own", copied("own_interrupted", tmp_path)).num_draws == 200


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Holding(sgld.SGLD):
    """A sampler that holds a class of the library as structure."""

    noise_correction: None = field(default=None, metadata={"static": True})
    inner: type = field(default=sgld.BAOA, metadata={"static": True})


def former_digest(part):
    """Return the digest that commit 0de9404 gave a part that has no numbers and cannot be traced."""
    kind = type(part)
    path = f"{kind.__module__}.{kind.__qualname__}"
    text = ast.unparse(ast.parse(inspect.getsource(kind)))
    here, then = f"{sgld.BAOA.__module__}.BAOA", "sgld.sampler.baoa.BAOA"
    structure = str(jax.tree.structure(part)).replace(here, then)
    said = [structure, path + text, "sgld.sampler.sgld.SGLD", "builtins.object"]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def test_the_digest_of_a_part_names_no_module(monkeypatch):
    now, former = own_digest(None, "", Holding()), former_digest(Holding())
    assert now != former
    elsewhere = types.ModuleType("sgld.elsewhere")
    monkeypatch.setitem(sys.modules, "sgld.elsewhere", elsewhere)
    for kind in (sgld.SGLD, sgld.BAOA):
        monkeypatch.setattr(kind, "__module__", "sgld.elsewhere")
        setattr(elsewhere, kind.__name__, kind)
    assert own_digest(None, "", Holding()) == now
    assert has_digest(None, "", Holding(), now) and has_digest(None, "", Holding(), former)
    assert not has_digest(None, "", Holding(inner=sgld.UBU), former)


def test_a_new_run_names_no_module(tmp_path):
    write_runs.sample("by_hand", tmp_path / "run")
    head, _ = read_arrays(tmp_path / "run" / "setup.npz")
    text = (tmp_path / "run" / "run.json").read_text() + json.dumps(head)
    found = re.findall(r'"class": "([^"]*)"', text)
    assert len(found) > 8 and set(found) <= tags.CLASS_OF_TAG.keys()
    assert re.findall(r"sgld\.\w+\.\w+", text) == []


@pytest.mark.skipif(jax.__version__ != JAX, reason="the functions of the run are read as others")
def test_a_part_that_differs_from_that_of_the_older_run_is_refused(tmp_path):
    path = copied("own_interrupted", tmp_path)
    again = {**write_runs.OWN_AGAIN, "sampler": write_runs.own_parts.Damped(None, 0.25)}
    with pytest.raises(RunError, match="sampler differs from the sampler"):
        sgld.resume(
            path, write_runs.POSTERIOR, (write_runs.X, write_runs.Y), write_runs.START,
            progress=False, **again,
        )  # fmt: skip
