"""A run that is stopped before any single thing it does to the disk: resumable or finished, always.

The disk is the real one, and every call that changes it goes through a layer that counts, and at its
turn stops the process as kill -9 would, or the machine as a power cut would: what was renamed and not
flushed is then as it was before, and what was written and not flushed is empty.
"""

import os
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core import files
from sgld.core import files as lock
from sgld.core import work as pace
from sgld.errors import RunError
from sgld.inference import sink
from sgld.results import run_directory, storage
from sgld.results.verdict import Verdict

POSTERIOR = sgld.Posterior(lambda t: -0.5 * jnp.sum((t - 1) ** 2))
INIT = jnp.zeros(3)
GIVEN = {"step_size": 0.1, "num_draws": 700, "num_chains": 2, "checkpoint_every": 0.0, "progress": False}  # fmt: skip


class Stopped(BaseException):
    """The process is dead: nothing after it happens."""


class Disk:
    """`os`, as the storage module sees it, until call number `last` that changes the disk."""

    def __init__(self, last=None):
        self.last, self.calls, self.dead = last, [], False
        self.names, self.unsafe, self.renamed = {}, set(), []

    def __getattr__(self, name):
        return getattr(os, name)

    def _about(self, what):
        if self.dead or len(self.calls) == self.last:
            self.dead = True
            raise Stopped(what)
        self.calls.append(what)

    def open(self, path, flags, mode=0o777):
        if flags & os.O_CREAT:
            self._about(f"open {Path(path).name}")
        handle = os.open(path, flags, mode)
        self.names[handle] = Path(path)
        if flags & os.O_EXCL:
            self.unsafe.add(Path(path))
        return handle

    def fsync(self, handle):
        path = self.names[handle]
        self._about(f"flush {path.name}")
        os.fsync(handle)
        self.unsafe.discard(path)
        self.renamed = [item for item in self.renamed if item[0].parent != path]

    def replace(self, old, new):
        self._about(f"rename to {new.name}")
        before = new.read_bytes() if new.exists() else None
        empty = Path(old) in self.unsafe
        os.replace(old, new)
        self.renamed.append((Path(new), before, empty))

    def cut(self):
        """What a power cut leaves of renames and contents that were not flushed."""
        for path, before, empty in reversed(self.renamed):
            if before is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(before)
            if empty and path.exists():
                path.write_bytes(b"")


def run_on(disk, path, work):
    """`work()` on that disk; whether it came to its end."""

    def remove(path):
        disk._about(f"remove {path.name}")
        path.unlink(missing_ok=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "os", disk)
        patch.setattr(run_directory, "os", disk)
        patch.setattr(lock, "os", disk)
        patch.setattr(run_directory, "remove", remove)
        patch.setattr(sink, "CHUNK_NUMBERS", 600)
        patch.setattr(sink, "MIN_CHUNK_DRAWS", 100)
        patch.setattr(pace, "PIECE_SECONDS", 1e-9)
        try:
            work()
        except Stopped:
            return False
        return True


def begin(path, overwrite=False):
    sgld.sample(POSTERIOR, None, INIT, path=path, overwrite=overwrite, **GIVEN)


def go_on(path):
    """What a user does with what a stop left."""
    if not ((path / "run.json").exists() or (path / "next.json").exists()):
        begin(path)  # nothing was begun
        return
    sgld.resume(path, POSTERIOR, None, INIT, progress=False, checkpoint_every=0.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    disk = Disk()
    assert run_on(disk, path, lambda: begin(path))
    return sgld.load(path), disk.calls


def check(tmp_path, whole, last, power, before=None):
    """`before`: makes a run that this one replaces."""
    path, (draws, calls) = tmp_path / f"run{last}{power}", whole
    old = None if before is None else before(path)
    disk = Disk(last)
    assert not run_on(disk, path, lambda: begin(path, old is not None)), "it was to be stopped"
    if power:
        disk.cut()
    begun = old is None or check_read(path, old, draws)
    after = Disk()
    assert run_on(after, path, lambda: go_on(path) if begun else begin(path, True))
    again = jax.tree.leaves(sgld.load(path).position)
    for one, other in zip(again, jax.tree.leaves(draws.position), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=f"before {calls[last]}")
    if "rename to result.json" not in calls[:last]:  # of a finished run what is left over may stay
        left = sorted(p.name for p in path.iterdir())
        assert left == ["draws.npz", "lock", "result.json", "run.json", "setup.npz", "summary.json"]


def other(path):
    """A finished run of other draws."""
    return sgld.sample(POSTERIOR, None, INIT + 1, path=path, **GIVEN)


def check_read(path, old, new):
    """The run that is replaced, with a word about the next; or the new one; or a sentence. Never a mixture.

    Whether the next has begun.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = sgld.load(path)
        except RunError as error:
            assert "sgld.resume(" in str(error), error
            return True
    of_next = any("another run is to replace" in str(w.message) for w in said)
    if not of_next and np.array_equal(found.position, new.position):
        return True
    assert of_next == (path / "next.json").exists()
    np.testing.assert_array_equal(found.position, old.position)
    return of_next


def test_a_run_writes_chunks_checkpoints_and_a_result(whole):
    _, calls = whole
    for name, least in (
        ("0-0.npz", 1),
        ("0-600.npz", 1),
        ("checkpoint.npz", 2),
        ("result.json", 1),
    ):
        assert calls.count(f"rename to {name}") >= least, calls
    # what is written is flushed before it has its name, and its name before anything else is done
    for at, call in enumerate(calls):
        if call.startswith("rename"):
            assert calls[at - 1].startswith("flush .partial-") and calls[at + 1].startswith("flush")


@pytest.mark.parametrize("power", [False, True])
def test_stopped_before_every_eleventh_call(tmp_path, whole, power):
    for last in range(2 * power, len(whole[1]), 11):
        check(tmp_path, whole, last, power)


@pytest.mark.parametrize("power", [False, True])
def test_stopped_before_each_of_the_last_calls(tmp_path, whole, power):
    """From the draws' file on: where a run was lost for ever."""
    calls = whole[1]
    first = calls.index("rename to draws.npz") - 3
    for last in range(first, len(calls)):
        check(tmp_path, whole, last, power)


@pytest.fixture(scope="module")
def replacing(tmp_path_factory):
    path = tmp_path_factory.mktemp("replacing") / "run"
    other(path)
    disk = Disk()
    assert run_on(disk, path, lambda: begin(path, True))
    return sgld.load(path), disk.calls


@pytest.mark.parametrize("power", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_that_replaces_another_stopped_before_its_first_calls(tmp_path, replacing, power):
    """Either of the two is there, and resume goes on with the next: until its plan is on the disk."""
    calls = replacing[1]
    for last in range(calls.index("rename to setup.npz") + 3):
        check(tmp_path, replacing, last, power, other)


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
def test_stopped_before_every_call(tmp_path, whole, power):
    for last in range(len(whole[1])):
        check(tmp_path, whole, last, power)


def stopped_late(tmp_path, whole):
    path = tmp_path / "run"
    last = whole[1].index("rename to draws.npz") - 1
    run_on(Disk(last), path, lambda: begin(path))
    return path


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda path: (path / "chunks/0-100.npz").unlink(), "0-100.npz is missing; delete .*checkpoint"),
        (lambda path: flip(path / "chunks/0-100.npz"), "0-100.npz (cannot be read|.*was damaged)"),
        (lambda path: swap(path / "chunks/0-100.npz", path / "chunks/0-200.npz"), "holds other draws"),
        (lambda path: cut(path / "checkpoint.npz"), "checkpoint.npz cannot be read"),
    ],
)  # fmt: skip
def test_what_a_checkpoint_counts_on_is_held_against_it(tmp_path, whole, harm, sentence):
    path = stopped_late(tmp_path, whole)
    harm(path)
    with pytest.raises(RunError, match=sentence):
        go_on(path)
    (path / "checkpoint.npz").unlink()  # as the sentence says
    go_on(path)
    np.testing.assert_array_equal(sgld.load(path).position, whole[0].position)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def swap(one, other):
    a, b = one.read_bytes(), other.read_bytes()
    one.write_bytes(b)
    other.write_bytes(a)


@pytest.mark.parametrize("power", [False, True])
def test_a_confirmation_stopped_before_any_call_is_there_or_is_not(tmp_path, power):
    """The verdict and its table never disagree, whichever of the two files was reached."""
    given = {"info": {"method": "nuts"}, "verdict": Verdict("trusted", ("exact.",))}
    x = np.random.default_rng(0).standard_normal((4, 1000, 3)).astype(np.float32)
    run = sgld.Draws.of({"x": x + 0.01}).with_verdict(Verdict("unknown", ("it cannot tell.",)))
    first, second = (sgld.Draws.of({"x": x + shift}, **given) for shift in (0.0, 1.0))
    seen, last = set(), 0
    while True:
        path = run.save(tmp_path / f"run{last}")
        sgld.confirm(path, second)  # which leaves a table of its own
        disk = Disk(last)
        done = run_on(disk, path, lambda: sgld.confirm(path, first))  # noqa: B023
        if not done and power:
            disk.cut()
        word = sgld.load(path).verdict.word
        assert storage.table_of(run_directory.RunDirectory(path))["verdict"] == word
        storage.verify(path)
        seen.add(word)
        sgld.confirm(path, first)
        assert sgld.load(path).verdict.word == "trusted"
        if done:
            break
        last += 1
    assert seen == {"biased", "trusted"} and last > 6


def test_another_attempt_leaves_the_draws_of_the_one_before_aside(tmp_path, whole):
    """Stopped between run.json, which names the attempt, and the removal of what does not count."""
    path = stopped_late(tmp_path, whole)
    directory = run_directory.RunDirectory(path)
    assert directory.read_checkpoint() is not None
    directory.attempt = 1
    assert directory.read_checkpoint() is None
    assert storage.load is sgld.load
