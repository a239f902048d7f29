"""A run directory: arrays and JSON, nothing that runs code, and nothing lost at any instant.

    run.json           what was asked, versions, seed, hashes of data and model, the run's id
    setup.npz          the plan: what is known of the posterior, what runs, where the chains start
    chunks/A-N.npz     draws of attempt A from draw N on, while the run goes on
    checkpoint.npz     the carry, the draws that fill no chunk yet, and the chunks that it counts on
    draws.npz          the draws of a finished run, as they are reported
    summary.json       the table
    result.json        the verdict, and the seals of draws and table: the run is finished
    confirmation.json  another verdict on the same draws, from NUTS or half the step, and the seal of its table
    next.json          what was asked of a run that is to replace this one, until that has a plan
    next-ID.npz        what the run of this id, PyTorch's, was begun with, until it is in its setup.npz
    report.html, lock  a page for people; who is at work on the run

Every file appears at once, whole and on the disk (`files`), and carries the id of its run. What a
process that is stopped at any instant leaves behind is one of these states, and the next process
does what stands beside it:

    no run.json                          no run: the directory was made, and nothing else
    run.json                             begins anew (with next-ID.npz, which is written before it)
    + setup.npz                          samples from the first step, and tunes nothing
    + chunks                             the same: no checkpoint counts on them; they are written again
    + checkpoint.npz                     goes on from it; chunks that it does not count on are written again
    run.json names another attempt       what setup, checkpoint and chunks hold of the one before is left aside:
                                         the next plan is made from the stored one, as it would have been
    + draws.npz, + summary.json          goes on from the checkpoint, and writes them again
    + result.json                        finished; a checkpoint and chunks still there are removed at leisure
    + confirmation.json                  finished, with another verdict; summary.json may still be the one before,
                                         and is then made again from the draws whenever it is read
    + next.json, of another id           any of the above, which stands until the next run has a plan: it is what is
                                         read, with a word about the next one; `resume` goes on with that, from its
                                         beginning
    next.json, no run.json               the run that was replaced is on its way out: the next one begins anew
    + next.json, of the same id          any of the above; next.json is removed at leisure

What a run directory keeps of a run that was stopped, and how to go on, in a sentence.

    with saying_what_is_kept(directory):
        ...  # Ctrl-C in here says it: in the traceback's last line, and at the command line

A sentence speaks Python; `remedies.at_the_shell` says it in the words of the command line.

Remedies in the language of the door they are read at.

All sentences of this package, errors too, speak Python, which is what `sgld.load` and summary.json hand on. At the
command line, and in the report of a run that was begun there, the same sentence names commands and options as they
are spelled there, and leaves out what has none. What is somebody's own, in quotation marks, stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..core.files import (
    SCRATCH_PREFIX,
    Lock,
    exists,
    flush_folder,
    read_arrays,
    read_json,
    remove,
    write_arrays,
    write_json,
)
from ..errors import RunError, SGLDError, UsageError

RUN_FORMAT = 3  # of a run directory; 1 had no setup.npz, 2 kept its draws in zarr
RUN_FILES = (
    "run.json",
    "setup.npz",
    "checkpoint.npz",
    "draws.npz",
    "summary.json",
    "result.json",
    "confirmation.json",
    "report.html",
)
NEXT_CHECKPOINT, CHECKPOINT = "next.json", re.compile(r"next-[0-9a-f]{16}\.npz")
CHUNK_FILE = re.compile(r"\d{1,9}-\d{1,18}\.npz")
# seconds beyond three checkpoints without a sign of life, after which a lock is stale
MIN_SILENT_SECONDS = 60.0


class RunDirectory:
    """The files of one run. `with directory:` holds it alone.

    Attributes:
      attempt: of the run, counted from 0; chunks and checkpoints of another one do not count.
      replacing: whether a run stands there that goes once the new one has something to put in its place.
      writes: False of a process that runs in step with the one that does: it reads, and changes nothing.
    """

    def __init__(self, path: str | Path, *, writes: bool = True) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise UsageError(f"path must be that of a run directory, text or a Path. Got {path!r}.")
        self.path, self.writes = Path(path), writes
        exists(self.path)  # or says why that cannot be known
        self.attempt = 0
        self.elsewhere = False  # whether other versions, or another machine, resume it
        self.checkpoint_every = 10.0
        self._lock = Lock(self.path)
        self._id: str | None = None
        self._made: list[Path] = []  # folders, the outermost first
        self.replacing = False
        self._asked: dict[str, Any] = {}  # run.json, while it is not written: next.json is

    # -- making, replacing, locking ------------------------------------------------------

    def create(self, overwrite: bool) -> None:
        """Make the directory. Raises RunError where something already stands there."""
        if not self.writes:
            return
        try:
            if self.path.is_dir():
                # a lock alone, or half a file, is what a process left that was stopped at once
                names = sorted({path.name for path in self.path.iterdir()} - {"lock"})
                names = [
                    n
                    for n in names
                    if not n.startswith(SCRATCH_PREFIX) and not CHECKPOINT.fullmatch(n)
                ]
                if names:
                    self._replace(overwrite, names[0])
            elif self.path.exists() or self.path.is_symlink():
                raise RunError(f"{self.path} exists and is no directory; choose another.")
            else:
                self._make()
        except OSError as error:
            raise RunError(f"{self.path} could not be made: {error.strerror}.") from error

    def _make(self) -> None:
        missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            self._made.append(path)

    def discard(self) -> None:
        """Remove what this call began, folders that it made included: of a call that was refused nothing stays."""
        if not self.writes:
            return
        with contextlib.suppress(
            OSError, RunError
        ):  # the sentence that follows says what was wrong first
            if self.replacing and exists(self.path / "run.json"):
                remove(self.path / NEXT_CHECKPOINT)
                if self._id is not None:
                    remove(self.path / self._given)
                return
            self.replacing = False
            self.clear()
            remove(self.path / "lock")
            for path in reversed(self._made):
                path.rmdir()

    def _replace(self, overwrite: bool, holds: str) -> None:
        """`holds`: the name of something in it."""
        if not any(
            {"format", "id"} <= self._told(name).keys() for name in ("run.json", NEXT_CHECKPOINT)
        ):
            raise RunError(
                f"{self.path} is not a run directory, and holds {holds!r}; choose another directory, or empty this one."
            )
        if not overwrite:
            raise RunError(
                f"{self.path} already exists; choose another directory, overwrite it with overwrite=True, or "
                f"{self.remedy()}"
            )
        self.lock()
        self.replacing = True

    def _told(self, name: str) -> dict[str, Any]:
        """A JSON file, empty where it is absent or broken."""
        try:
            return read_json(self.path / name)
        except (FileNotFoundError, RunError):
            return {}

    def call(self) -> str:
        """The call that reads the run where it is finished, and goes on with it or with its next where it is not."""
        asked, path = self.next() or self._told("run.json"), str(self.path)
        done = self.finished() and not self.next()
        if asked.get("kind") == "torch":
            return (
                f"sgld.torch.Ensemble.load({path!r}, model)"
                if done
                else f"sgld.torch.resume({path!r}, model, loss, dataset)"
            )
        if done:
            return f"sgld.load({path!r})"
        model = "" if asked.get("kind") == "formula" else ", posterior, data, init"
        return f"sgld.resume({path!r}{model})"

    def remedy(self) -> str:
        """What to do with a run that stands here, in words that end a sentence."""
        asked = self.next() or self._told("run.json")
        if self.finished() and not self.next():
            return f"read it: {self.call()}"
        if asked.get("kind") == "formula" and not asked.get("data"):
            return "fit its table again, which was in memory and is not stored."
        if asked.get("updates") and (self.next() or not exists(self.path / "setup.npz")):
            return f"update {asked['updates']} with the same rows again: nothing is drawn yet."
        return f"go on with it: {self.call()}"

    def next(self) -> dict[str, Any]:
        """What was asked of a run that is to replace this one and has no plan yet; empty where none is."""
        if not exists(self.path / NEXT_CHECKPOINT):
            return {}
        asked = read_json(self.path / NEXT_CHECKPOINT)
        return {} if asked.get("id") == self._told("run.json").get("id") else asked

    def said_of_next(self) -> str | None:
        """A sentence for whoever reads a run that is to be replaced."""
        if not self.next():
            return None
        what = f"another run is to replace the one in {self.path}, and has no plan yet: this is the one before"
        if self.next().get("updates"):
            return f"{what}; the next is an update, which is made again."
        return f"{what}, and {self.call()} goes on with the next."

    def take_up(self) -> None:
        """Go on with the next run, where one is to replace this one."""
        asked = self.next()
        if asked and self.writes:
            self.replacing, self._asked, self._id = True, asked, None

    def settle(self) -> None:
        """The run that is replaced goes, and run.json is written: before anything else of the new one is."""
        if self.replacing and self._asked:
            if self.next().get("id") != self.id:
                raise RunError(
                    f"{self.path} was changed by another process meanwhile; resume it again."
                )
            self.clear()
            self.replacing = False
            write_json(self.path / "run.json", self._asked)
            remove(self.path / NEXT_CHECKPOINT)

    def clear(self) -> None:
        """Remove what an earlier run wrote, and nothing else. Raises RunError, before anything goes, for what it did not."""
        for name in RUN_FILES:
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                raise RunError(f"{path} is a folder, which no file of a run is; remove it.")
        remove(self.path / "run.json")  # first: without it nothing else counts
        self.remove_chunks()
        for name in RUN_FILES:
            remove(self.path / name)

    def remove_chunks(self) -> None:
        """Remove the checkpoint, all chunks, and what killed processes left half-written."""
        if not self.writes:
            return
        if not self.replacing:
            remove(self.path / NEXT_CHECKPOINT)
        remove(self.path / "checkpoint.npz")
        chunks = self.path / "chunks"
        real = chunks.is_dir() and not chunks.is_symlink()
        for folder in (self.path, chunks) if real else (self.path,):
            for path in folder.iterdir():
                chunk = folder is chunks and CHUNK_FILE.fullmatch(path.name)
                given = (
                    folder is self.path and not self.replacing and CHECKPOINT.fullmatch(path.name)
                )
                if chunk or given or path.name.startswith(SCRATCH_PREFIX):
                    remove(path)
        if real:
            with contextlib.suppress(OSError):  # of somebody else's file in it
                chunks.rmdir()

    def __enter__(self) -> RunDirectory:
        self.lock()
        return self

    def __exit__(self, *error: object) -> None:
        self.unlock()

    def lock(self) -> None:
        """Hold the directory alone. Raises RunError where another process holds it."""
        if self.writes:
            self._lock.take()
            self.alive()

    def in_use(self) -> bool:
        """Whether a process holds it."""
        return self._lock.in_use()

    def alive(self) -> None:
        """Say that whoever holds it is at work, for three checkpoints and a minute."""
        self._lock.alive(3 * self.checkpoint_every + MIN_SILENT_SECONDS)

    def unlock(self) -> None:
        """Give the directory back."""
        self._lock.give_back()

    # -- JSON ------------------------------------------------------------------------------

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of the run. Raises RunError where it is absent, broken or of another run."""
        try:
            content = read_json(self.path / name)
        except FileNotFoundError as error:
            if name == "run.json" and self.next():
                raise RunError(
                    f"{self.path} was left while one run replaced another; {self.remedy()}"
                ) from error
            raise RunError(f"{self.path} holds no {name}, so it is not a run directory.") from error
        if name != "run.json":
            self._of_this_run(name, content)
            del content["run"]
        return content

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file of the run, atomically."""
        if self.writes:
            self.settle()
            write_json(self.path / name, {**value, "run": self.id})

    def begin(
        self, asked: Mapping[str, Any], given: Mapping[str, np.ndarray] | None = None
    ) -> None:
        """Write run.json, with an id of the run's own; arrays `given` that it takes to begin anew, too."""
        if not self.writes:
            return
        self._id = secrets.token_hex(8)
        if given is not None:  # first: where run.json is, they are
            write_arrays(self.path / self._given, {"run": self._id}, given)
        self._asked = {**asked, "format": RUN_FORMAT, "id": self._id}
        write_json(self.path / (NEXT_CHECKPOINT if self.replacing else "run.json"), self._asked)

    def begun(self) -> dict[str, Any]:
        """run.json. Raises RunError where it is of another format."""
        asked = self._asked if self.replacing else self.read("run.json")
        if asked.get("format") != RUN_FORMAT:
            raise RunError(
                f"{self.path} was written by another version of sgld (format {asked.get('format', 1)}, this one "
                f"reads {RUN_FORMAT}); make the run again."
            )
        return asked

    @property
    def id(self) -> str:
        """Of the run."""
        found = self._id or str(self.begun().get("id"))
        self._id = found
        return found

    def add(self, **more: Any) -> None:
        """Add to run.json."""
        if self.writes:
            self.settle()
            write_json(self.path / "run.json", {**self.begun(), **more})

    def begin_again(self, attempts: list[dict[str, str]]) -> None:
        """Another attempt, which run.json names: what the one before left no longer counts."""
        self.add(again=attempts)
        self.attempt = len(attempts)
        self.remove_chunks()

    def finished(self) -> bool:
        """Whether the run has its result."""
        return not self.replacing and exists(self.path / "result.json")

    # -- arrays ----------------------------------------------------------------------------

    def write_arrays(
        self, name: str, head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Write a file of arrays, atomically."""
        if self.writes:
            self.settle()
            write_arrays(self.path / name, {**head, "run": self.id}, arrays)

    def given(self) -> dict[str, np.ndarray]:
        """What `begin` was given, which is in setup.npz once there is one."""
        found = self.read_arrays("setup.npz") or self.read_arrays(self._given)
        if found is None:
            raise RunError(f"{self.path / 'setup.npz'} is missing; make the run again.")
        return found[1]

    def read_arrays(self, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """Such a file, None where it is absent. Raises RunError where it is broken or another run's."""
        if self.replacing and name != self._given:
            return None
        try:
            head, arrays = read_arrays(self.path / name)
        except FileNotFoundError:
            return None
        self._of_this_run(name, head)
        return head, arrays

    def _of_this_run(self, name: str, head: Mapping[str, Any]) -> None:
        if head.get("run") != self.id:
            raise RunError(f"{self.path / name} belongs to another run.")

    def write_chunk(self, first: int, end: int, rows: Mapping[str, np.ndarray]) -> None:
        """Draws [draw, ...] from `first` up to `end`."""
        if not self.writes:
            return
        folder = self._chunks()
        try:
            folder.mkdir(exist_ok=True)
            flush_folder(self.path)
        except OSError as error:
            if not self.path.exists():
                raise RunError(
                    f"{self.path} is gone: it was moved or deleted while the run wrote to it. Where it is now "
                    "the run can be resumed from its last checkpoint."
                ) from error
            raise RunError(f"{folder} could not be made: {error.strerror}.") from error
        head = {"attempt": self.attempt, "first": first, "end": end}
        self.write_arrays(self._chunk(first), head, rows)

    def read_chunk(self, first: int, end: int) -> dict[str, np.ndarray]:
        """What `write_chunk` wrote. Raises RunError where it is missing, or is not that."""
        self._chunks()
        name = self._chunk(first)
        again = self._again
        try:
            found = self.read_arrays(name)
        except RunError as error:
            raise RunError(f"{error} You may {again}.") from error
        if found is None:
            raise RunError(f"{self.path / name} is missing; {again}.")
        head, rows = found
        asked = {"attempt": self.attempt, "first": first, "end": end}
        if any(head.get(key) != value for key, value in asked.items()):
            raise RunError(f"{self.path / name} holds other draws than it should; {again}.")
        return rows

    def _chunks(self) -> Path:
        folder = self.path / "chunks"
        if folder.is_symlink():
            raise RunError(f"{folder} is a symbolic link, which no folder of a run may be.")
        return folder

    @property
    def _given(self) -> str:
        name = f"next-{self.id}.npz"
        if not CHECKPOINT.fullmatch(name):  # run.json may be a stranger's
            raise RunError(f"{self.path / 'run.json'} names no id of a run; make the run again.")
        return name

    @property
    def _again(self) -> str:
        return f"delete {self.path / 'checkpoint.npz'} to sample again from the first step"

    def _chunk(self, first: int) -> str:
        return f"chunks/{self.attempt}-{first}.npz"

    def write_checkpoint(self, head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """The state of a run, atomically; all chunks that it counts on are on the disk."""
        self.write_arrays("checkpoint.npz", {**head, "attempt": self.attempt}, arrays)
        self.alive()

    def read_checkpoint(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """The last checkpoint of this attempt, or None."""
        try:
            found = self.read_arrays("checkpoint.npz")
        except RunError as error:
            raise RunError(f"{error} You may {self._again}.") from error
        return None if found is None or found[0].get("attempt") != self.attempt else found


# -- kept ----------------------------------------------------------------------------------


@contextmanager
def saying_what_is_kept(directory: RunDirectory | None, argument: str = "path") -> Iterator[None]:
    """KeyboardInterrupt from inside with a note: what of the run is kept. `argument` names the directory's."""
    try:
        yield
    except KeyboardInterrupt as error:
        if directory is None:
            note = f"nothing is kept of a run without a directory; one with {argument}= can go on."
        else:
            note = kept(directory)
        error.add_note(note)
        raise


def kept(directory: RunDirectory) -> str:
    """The sentence on what there is of a run that is not at work."""
    try:
        return _kept(directory)
    except (
        SGLDError,
        OSError,
        LookupError,
    ) as error:  # damaged: how to go on is said when it is tried
        return f"what is kept of the run in {directory.path} cannot be told: {error}"


def _kept(directory: RunDirectory) -> str:
    path = directory.path
    if not exists(path / "run.json") and not exists(path / "next.json"):
        return "nothing was kept yet; begin it again."
    if directory.next():
        return (
            "of the new run nothing is sampled yet, and the one that it is to replace stands; begin it again: "
            f"{directory.call()}"
        )
    if directory.finished():
        return f"the run in {path} is finished, and all of it is kept; {directory.remedy()}"
    found = directory.read_checkpoint()
    if found is None:
        planned = exists(path / "setup.npz")
        what = "the plan is kept, and no draw yet" if planned else "nothing is sampled yet"
        return f"{what}; {directory.remedy()}"
    count = _draws(*found)
    what = (
        f"{count:,} draws of a chain are kept" if count else "the chains are kept, with no draw yet"
    )
    return f"{what}; {directory.remedy()}"


def _draws(head: dict[str, Any], arrays: dict[str, Any]) -> int:
    """Of each chain, that a checkpoint counts on (inference/sink.py, torch/run_files.py)."""
    if "kernel" not in head:
        return len(arrays.get("predicted", ()))
    chunks = head["chunks"]
    return int(chunks[-1][1] if chunks else 0) + len(arrays.get("pending_step_size", ()))


# -- remedies ------------------------------------------------------------------------------


# arguments that are options of the same name
OPTION_ARGUMENTS = "|".join((
    "tolerance", "temperature", "prior", "family", "weights", "trials", "missing", "table", "database", "sep",
    "decimal", "sampler", "seed", "method", "kind", "prob", "drop", "out", "batch_size", "step_size",
    "max_steps", "max_seconds", "checkpoint_every", "num_draws", "num_chains",
))  # fmt: skip
QUOTES = "'\\[\"`/"  # before a name that is somebody's own: a column, a path
SHELL_SPELLINGS = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r", or use sgld\.ReplicaExchange\(\)", ""),
        (r"sgld\.resume\((['\"])([^'\"]*)\1\)", r"sgld resume \2"),
        (r"read it: sgld\.load\((['\"])([^'\"]*)\1\)", r"read it: sgld summary \2"),
        (r"made by sgld\.fit\b", "made by `sgld fit`"),
        (r"run of sgld\.fit\b", "run of `sgld fit`"),
        (r"\boverwrite it with overwrite=True", "overwrite it (--overwrite)"),
        (rf"(?<![-\w{QUOTES}])({OPTION_ARGUMENTS})=' '", r"--\1 space"),
        (rf"(?<![-\w{QUOTES}])({OPTION_ARGUMENTS})='(\w+)'", r"--\1 \2"),
        (rf"(?<![-\w{QUOTES}])({OPTION_ARGUMENTS})=(?=[\s:;.,)]|$)", r"--\1"),
        (rf"(?<![-\w{QUOTES}])({OPTION_ARGUMENTS})(=| = (?=[\d.]))", r"--\1 "),
        (
            rf"^({OPTION_ARGUMENTS})(?= must | is of | is what | and ({OPTION_ARGUMENTS}) are )",
            r"--\1",
        ),
        (r"(?<=^--sep and )(decimal)(?= are )", r"--\1"),
        (r"sgld\.sandwich", "sgld summary {run} --sandwich"),
        (r"sgld\.step_halving", "sgld halve {run}"),
        (r"sgld\.reference", "sgld reference {run}"),
        (
            r"gradient=ControlVariates\(\), or leave step_size to the library",
            "or leave --step-size out",
        ),
        (r"use a longer burn_in, and more steps", "use more steps"),
        (r"use a longer burn_in or more draws", "use more --draws"),
        (r"num_draws or thin", "--draws"),
        (r"use more draws", "use more --draws"),
        (rf"(?<![-\w{QUOTES}])num_draws", "--draws"),
        (rf"(?<![-\w{QUOTES}])num_chains", "--chains"),
        (rf"(?<![-\w{QUOTES}])step_size", "--step-size"),
        (rf"(?<![-\w{QUOTES}])batch_size", "--batch-size"),
        (rf"(?<![-\w{QUOTES}])max_steps", "--max-steps"),
        (rf"(?<![-\w{QUOTES}])max_seconds", "--max-seconds"),
        (r"use a smaller tolerance", "use a smaller --tolerance"),
        (r"--num_(draws|chains)", r"--\1"),
        (r"--(batch|step|max|checkpoint)_(size|steps|seconds|every)", r"--\1-\2"),
    )
)


def at_the_shell(sentence: str, run: str | Path) -> str:
    """The sentence for somebody at the command line, whose run lies at `run`.

    Example:
      >>> from sgld.results.run_directory import at_the_shell
      >>> at_the_shell("confirm by sgld.step_halving, or with NUTS: sgld.reference.", "runs/visits")
      'confirm by sgld halve runs/visits, or with NUTS: sgld reference runs/visits.'
      >>> at_the_shell("use a smaller step_size or a larger batch_size.", "run")
      'use a smaller --step-size or a larger --batch-size.'
      >>> at_the_shell("runs/a is not finished; go on with it: sgld.resume('runs/a')", "RUN")
      'runs/a is not finished; go on with it: sgld resume runs/a'
    """
    for pattern, text in SHELL_SPELLINGS:
        sentence = pattern.sub(text.replace("{run}", str(run).replace("\\", r"\\")), sentence)
    return sentence
