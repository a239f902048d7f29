"""What is kept of a run that is stopped, and that every sentence speaks the language of its door."""

import ast
import os
import re
import signal
from contextlib import nullcontext
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import RunError
from sgld.inference import execute, loop
from sgld.results.run_directory import RunDirectory, at_the_shell, kept
from sgld.results.storage import verify

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
GIVEN = {"step_size": 0.3, "burn_in": 10, "num_draws": 3000, "progress": False}
SOURCE = Path(sgld.__file__).parent


def run(path=None):
    return sgld.sample(GAUSSIAN, None, jnp.zeros(2), path=path, **GIVEN)


def stopped(monkeypatch, path, where, name, *, after=False):
    """A run in which Ctrl-C is pressed where `name` is called; the note that comes with it."""
    inner = getattr(where, name)

    def pressed(*args, **how):
        if after:
            inner(*args, **how)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as error:
        patch.setattr(where, name, pressed)
        run(path)
    return error.value.__notes__[-1]


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(tmp_path, monkeypatch):
    path = tmp_path / "run"
    call = re.escape(f"resume it: sgld.resume({str(path)!r}, posterior, data, init)")
    note = stopped(monkeypatch, None, execute, "_attempt")
    assert "nothing is stored" in note and "path=" in note
    note = stopped(monkeypatch, tmp_path / "early", execute, "_begun")
    assert re.search("nothing is sampled yet; resume it", note)
    assert re.fullmatch(
        f"the plan is stored, but no draws yet; {call}", stopped(monkeypatch, path, loop, "run")
    )
    directory = RunDirectory(path)
    chunk = loop.run_chunk

    def pressed(*given, **how):
        os.kill(os.getpid(), signal.SIGINT)
        return chunk(*given, **how)

    with pytest.raises(KeyboardInterrupt) as error, monkeypatch.context() as patch:
        patch.setattr(loop, "run_chunk", pressed)
        patch.setattr(loop, "compiling", lambda *given, **how: nullcontext())
        sgld.resume(path, GAUSSIAN, None, jnp.zeros(2), progress=False)
    (note,) = error.value.__notes__
    count = int(re.fullmatch(f"([0-9]+) draws per chain are stored; {call}", note)[1])
    assert count > 0 and note == kept(directory)
    whole = sgld.resume(path, GAUSSIAN, None, jnp.zeros(2), progress=False)
    np.testing.assert_array_equal(whole.position, run().position)
    assert "is finished and stored completely; read it: sgld.load(" in kept(directory)


def test_ctrl_c_while_all_is_written_loses_nothing(tmp_path, monkeypatch):
    """It is heard once the run is finished."""
    path, inner = tmp_path / "run", execute.write_result

    def pressed(*given):
        os.kill(os.getpid(), signal.SIGINT)
        inner(*given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as error:
        patch.setattr(execute, "write_result", pressed)
        run(path)
    assert "is finished and stored completely" in error.value.__notes__[-1]
    np.testing.assert_array_equal(sgld.load(path).position, run().position)


def test_errors_at_the_python_door_speak_python_and_at_the_shell_its_words(tmp_path, monkeypatch):
    path = tmp_path / "run"
    stopped(monkeypatch, path, loop, "run")
    with pytest.raises(RunError, match=r"overwrite=True, or resume it: sgld\.resume\(") as error:
        run(path)
    assert "--" not in str(error.value)
    with pytest.raises(RunError, match=r"is not finished; resume it: sgld\.resume\("):
        sgld.load(path)
    assert set(verify(path)) == {"run.json", "setup.npz"}


@pytest.mark.parametrize("holds", [".DS_Store", "chunks", "run.json"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_run_is_never_called_one(tmp_path, holds, overwrite):
    (tmp_path / "run").mkdir()
    if holds == "chunks":
        (tmp_path / "run" / holds).mkdir()
    else:
        (tmp_path / "run" / holds).write_text('{"epochs": 3}')
    with pytest.raises(
        RunError, match=f"run is not a run directory, and holds '{holds}'; choose another"
    ):
        RunDirectory(tmp_path / "run").create(overwrite)
    assert (tmp_path / "run" / holds).exists()


def test_a_damaged_checkpoint_says_what_to_delete(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create(False)
    directory.begin({})
    directory.write_checkpoint({}, {"z": np.ones(99)})
    assert directory.read_checkpoint() is not None
    file = tmp_path / "run" / "checkpoint.npz"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(RunError, match=r"cannot be read: .* You may delete .*checkpoint\.npz to"):
        directory.read_checkpoint()


def test_a_finished_run_whose_plan_is_gone_is_not_as_it_was_written(tmp_path):
    run(tmp_path / "run")
    assert "setup.npz" in verify(tmp_path / "run")
    (tmp_path / "run" / "setup.npz").unlink()
    with pytest.raises(RunError, match=r"is damaged: setup\.npz is missing; restore it"):
        verify(tmp_path / "run")


SHELL = {
    "overwrite it with overwrite=True, or resume it: sgld.resume('a/b c')":
        "overwrite it (--overwrite), or resume it: sgld resume a/b c",
    "sgld.resume('a', posterior, data, init)": "sgld.resume('a', posterior, data, init)",  # it has no other
    "stored completely; read it: sgld.load('a')": "stored completely; read it: sgld summary a",
    "give sep=' ' where": "give --sep space where",
    "read the file with decimal=',', or": "read the file with --decimal ',', or",
    "name one with table=: a, b.": "name one with --table: a, b.",
    "leave them out with missing='drop'.": "leave them out with --missing drop.",
    "tolerance must lie in (0, .5]": "--tolerance must lie in (0, .5]",
    "num_draws must be positive": "--draws must be positive",
    "step_size must be positive": "--step-size must be positive",
    "max_seconds = 30 should do": "--max-seconds 30 should do",
    "the column 'num_draws' of sep=x": "the column 'num_draws' of --sep x",
    "a/b was not made by sgld.fit; so": "a/b was not made by `sgld fit`; so",
}  # fmt: skip


@pytest.mark.parametrize("sentence", SHELL)
def test_a_sentence_in_the_words_of_the_shell(sentence):
    assert at_the_shell(sentence, "RUN") == SHELL[sentence]


def spoken(path):
    """The texts of a file that are no docstrings."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    return [
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]  # fmt: skip


# live.py is what `sgld watch` shows, remedies.py the dictionary, the gallery has a page and one command of its own
ITS_OWN = ("interfaces/cli/", "interfaces/report/live.py", "results/run_directory.py", "gallery/", "interfaces/report/html.py",
           "interfaces/report/page.py", "core/progress.py")  # fmt: skip
WORDS = re.compile(
    r"(?<![\w-])--[a-z]|\bsgld (?:fit|resume|predict|update|summary|reference|halve|report)\b"
)


def test_no_sentence_outside_the_command_line_has_its_words():
    found = [
        (str(path.relative_to(SOURCE)), text)
        for path in sorted(SOURCE.rglob("*.py"))
        if not str(path.relative_to(SOURCE)).startswith(ITS_OWN)
        for text in spoken(path)
        if WORDS.search(text)
    ]
    assert not found
