"""The persistent cache of compiled functions: where it is, when there is none, how large it grows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sgld import compilation
from sgld.compilation import use_cache

CALL = """
import sys
from sgld.compilation import use_cache
print(use_cache())
assert "jax" not in sys.modules
import jax, logging
print(jax.config.jax_compilation_cache_dir)
jax.jit(lambda x: x + 1)(1.0)
"""


def clean(**given):
    """An environment without any cache."""
    drop = ("JAX_", "SGLD_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
    return {**kept, **{name: str(value) for name, value in given.items()}}


def called(**given):
    done = subprocess.run(
        [sys.executable, "-c", CALL], env=clean(**given), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def alone(monkeypatch):
    """No cache of JAX's; settings are noted and not made."""
    noted = {}
    monkeypatch.setattr(compilation, "_has_one", lambda: False)
    monkeypatch.setattr(compilation, "_set", noted.__setitem__)
    monkeypatch.delenv("SGLD_COMPILATION_CACHE", raising=False)
    return noted


def test_the_command_lines_functions_are_kept_in_the_users_cache_folder(tmp_path):
    used, set_ = called(XDG_CACHE_HOME=tmp_path)
    folder = Path(used)
    assert used == set_ and folder.parent == tmp_path / "sgld"
    kept = list(folder.glob("*-cache"))
    assert kept and folder.stat().st_mode & 0o077 == 0
    before = {path: path.stat().st_mtime_ns for path in kept}
    called(XDG_CACHE_HOME=tmp_path)  # a second run compiles nothing
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*-cache")} == before


def test_it_is_switched_off_by_a_word_and_by_a_cache_of_the_users_own(tmp_path):
    assert called(XDG_CACHE_HOME=tmp_path, SGLD_COMPILATION_CACHE="off") == ["None", "None"]
    own = tmp_path / "own"
    assert called(XDG_CACHE_HOME=tmp_path, JAX_COMPILATION_CACHE_DIR=own) == ["None", str(own)]
    assert not (tmp_path / "sgld").exists()


@pytest.mark.parametrize("own", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_stops_nothing(tmp_path, own):
    (tmp_path / "file").write_text("")
    assert called(XDG_CACHE_HOME=tmp_path / own) == ["None", "None"]


def test_a_folder_that_cannot_be_written_to_is_left_alone(tmp_path, alone, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert use_cache(tmp_path) is None and not alone


def test_places_by_platform(monkeypatch, alone, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says its specification
    for name, place in (("linux", ".cache/sgld"), ("darwin", "Library/Caches/sgld")):
        monkeypatch.setattr(sys, "platform", name)
        assert use_cache().parent == tmp_path / place
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert use_cache().parent == tmp_path / "Local/sgld/Cache"
    monkeypatch.setenv("SGLD_COMPILATION_CACHE", str(tmp_path / "named"))
    assert use_cache().parent == tmp_path / "named"
    assert use_cache(tmp_path / "given").parent == tmp_path / "given"


def test_nobody_at_home(monkeypatch, alone):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert use_cache() is None


def test_a_folder_that_grew_loses_what_was_used_longest_ago(tmp_path, alone, monkeypatch):
    monkeypatch.setattr(compilation, "MAX_CACHE_BYTES", 1000)
    path = use_cache(tmp_path)
    for age in range(10):
        (path / f"{age}-cache").write_bytes(bytes(100))
        os.utime(path / f"{age}-cache", (10**9 - age, 10**9 - age))
    use_cache(tmp_path)
    assert len(list(path.iterdir())) == 10  # all of it may be there
    (path / "new-cache").write_bytes(bytes(100))
    use_cache(tmp_path)
    assert {entry.name for entry in path.iterdir()} == {
        "new-cache",
        *(f"{i}-cache" for i in range(4)),
    }
