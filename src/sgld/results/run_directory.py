"""Run directory: arrays and JSON that hold a run, contain no code, and survive interruption.

    run.json           the request, versions, seed, hashes of data and model, the run's id
    setup.npz          the plan: knowledge of the posterior, sampler settings, start points
    chunks/A-N.npz     draws of attempt A from draw N on, while the run continues
    checkpoint.npz     the carry, the draws that fill no chunk yet, and the chunks that it refers to
    draws.npz          the draws of a finished run, as they are reported
    summary.json       the table
    result.json        the verdict, and the digests of draws and table: the run is finished
    confirmation.json  another verdict on the same draws, from NUTS or step halving, with its table's digest
    next.json          the request of a run that will replace this one, until that run has a plan
    next-ID.npz        the inputs of the PyTorch run with this id, until they are in its setup.npz
    report.html, lock  a page for people; the process that works on the run

Every file appears at once, complete and flushed to disk (`core.files`), and holds the id of its
run. A process that stops at any instant leaves one of these states, and the next process acts as
listed:

    no run.json                     no run: the directory was made, and nothing else
    run.json                        starts again (with next-ID.npz, which is written before it)
    + setup.npz                     samples from the first step, and tunes nothing
    + chunks                        the same: no checkpoint refers to them; they are written again
    + checkpoint.npz                continues from it; chunks that it does not refer to are written again
    run.json names another attempt  setup, checkpoint and chunks of the earlier attempt are ignored: the
                                    next plan is made from the stored one, as it would have been
    + draws.npz, + summary.json     continues from the checkpoint, and writes them again
    + result.json                   finished; a remaining checkpoint and chunks are removed later
    + confirmation.json             finished, with another verdict; summary.json may still be the earlier
                                    one, and is then recomputed from the draws when it is read
    + next.json, of another id      any of the above, valid until the next run has a plan: readers get
                                    it, with a warning; `resume` starts the next run
    next.json, no run.json          the replaced run is being removed: the next run starts again
    + next.json, of the same id     any of the above; next.json is removed later

`saying_what_is_kept` adds to an interruption what the directory stores of the run, and how to
continue:

    with saying_what_is_kept(directory):
        ...  # Ctrl-C in here adds a note, to the traceback's last line, and at the command line

All messages of this package, errors too, use Python's spelling; `sgld.load` and summary.json pass
them on. `at_the_shell` translates a message for the command line and for the report of a run that
was started there: commands and options get their spelling, and remedies without a command are left
out. A user's own names, in quotation marks, are unchanged.
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

RUN_FORMAT = 3  # format of a run directory; 1 had no setup.npz, 2 stored its draws in zarr
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
# seconds after three checkpoints without a renewal, after which a lock is stale
MIN_SILENT_SECONDS = 60.0


def no_run(path: str | Path) -> RunError:
    """Return the error that `path` is no run directory, because it is a file or missing."""
    if Path(path).is_file():
        return RunError(f"{path} is a file; give the run directory that --out or path= named.")
    return RunError(f"there is no run directory {path}; check the path.")


class RunDirectory:
    """Files of one run. `with directory:` locks it.

    Attributes:
      attempt: the attempt's number, from 0; chunks and checkpoints of other attempts are ignored.
      replacing: whether a run exists there that is removed once the new run has a plan.
      writes: False in a process that runs in parallel with the writing one: it reads, and changes
        nothing.
    """

    def __init__(self, path: str | Path, *, writes: bool = True) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise UsageError(f"path must be a run directory, as a str or a Path. Got {path!r}.")
        self.path, self.writes = Path(path), writes
        exists(self.path)  # raises if that cannot be determined
        self.attempt = 0
        self.elsewhere = False  # whether other versions, or another machine, may resume it
        self.checkpoint_every = 10.0
        self._lock = Lock(self.path)
        self._id: str | None = None
        self._made: list[Path] = []  # folders that were created, the outermost first
        self.replacing = False
        self._asked: dict[str, Any] = {}  # content of run.json, while it is stored in next.json

    # -- making, replacing, locking ------------------------------------------------------

    def create(self, overwrite: bool) -> None:
        """Create the directory. Raise RunError if a run or another file exists there."""
        if not self.writes:
            return
        try:
            if self.path.is_dir():
                # a process that was stopped at once leaves only a lock, or half a file
                names = sorted({path.name for path in self.path.iterdir()} - {"lock"})
                names = [
                    n
                    for n in names
                    if not n.startswith(SCRATCH_PREFIX) and not CHECKPOINT.fullmatch(n)
                ]
                if names:
                    self._replace(overwrite, names[0])
            elif self.path.exists() or self.path.is_symlink():
                raise RunError(f"{self.path} exists and is not a directory; choose another.")
            else:
                self._make()
        except OSError as error:
            raise RunError(f"{self.path} could not be created: {error.strerror}.") from error

    def _make(self) -> None:
        missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            self._made.append(path)

    def discard(self) -> None:
        """Remove what this call created, so that nothing of a refused call remains."""
        if not self.writes:
            return
        with contextlib.suppress(OSError, RunError):  # the error that follows is more important
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
        """Lock the existing run for replacement, or raise RunError.

        `holds` is the name of a file in the directory.
        """
        if not any(
            {"format", "id"} <= self._json_or_empty(name).keys()
            for name in ("run.json", NEXT_CHECKPOINT)
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

    def _json_or_empty(self, name: str) -> dict[str, Any]:
        """Return a JSON file; an empty dict if it is absent or broken."""
        try:
            return read_json(self.path / name)
        except (FileNotFoundError, RunError):
            return {}

    def call(self) -> str:
        """Return the call that reads a finished run, or continues the run or its successor."""
        asked, path = self.next() or self._json_or_empty("run.json"), str(self.path)
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
        """Return what to do with the run that exists here, as the end of a sentence."""
        asked = self.next() or self._json_or_empty("run.json")
        if self.finished() and not self.next():
            return f"read it: {self.call()}"
        if asked.get("kind") == "formula" and not asked.get("data"):
            return "its table was in memory and is not stored; fit it again."
        if asked.get("updates") and (self.next() or not exists(self.path / "setup.npz")):
            return f"update {asked['updates']} with the same rows again, since no draws are stored yet."
        return f"resume it: {self.call()}"

    def next(self) -> dict[str, Any]:
        """Return the request of a run that will replace this one and has no plan yet; else {}."""
        if not exists(self.path / NEXT_CHECKPOINT):
            return {}
        asked = read_json(self.path / NEXT_CHECKPOINT)
        return {} if asked.get("id") == self._json_or_empty("run.json").get("id") else asked

    def said_of_next(self) -> str | None:
        """Return a sentence for readers of a run that will be replaced."""
        if not self.next():
            return None
        what = f"another run is to replace the one in {self.path} but has no plan yet, so this is the earlier run"
        if self.next().get("updates"):
            return f"{what}; the next run is an update, so run the update again."
        return f"{what}; {self.call()} continues with the next run."

    def take_up(self) -> None:
        """Continue with the next run, if one will replace this one."""
        asked = self.next()
        if asked and self.writes:
            self.replacing, self._asked, self._id = True, asked, None

    def settle(self) -> None:
        """Remove the replaced run and write run.json, before any other file of the new run."""
        if self.replacing and self._asked:
            if self.next().get("id") != self.id:
                raise RunError(
                    f"{self.path} was changed by another process in the meantime; resume it again."
                )
            self.clear()
            self.replacing = False
            write_json(self.path / "run.json", self._asked)
            remove(self.path / NEXT_CHECKPOINT)

    def clear(self) -> None:
        """Remove what an earlier run wrote, and nothing else.

        Raises RunError before anything is removed, if the directory holds other things.
        """
        for name in RUN_FILES:
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                raise RunError(f"{path} is a folder, but must be a file of a run; remove it.")
        remove(self.path / "run.json")  # first: without it the other files are ignored
        self.remove_chunks()
        for name in RUN_FILES:
            remove(self.path / name)

    def remove_chunks(self) -> None:
        """Remove the checkpoint, all chunks, and half-written files of killed processes."""
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
            with contextlib.suppress(OSError):  # it may hold a file that the run did not write
                chunks.rmdir()

    def __enter__(self) -> RunDirectory:
        self.lock()
        return self

    def __exit__(self, *error: object) -> None:
        self.unlock()

    def lock(self) -> None:
        """Lock the directory. Raise RunError if another process holds the lock."""
        if self.writes:
            self._lock.take()
            self.alive()

    def in_use(self) -> bool:
        """Return whether a process holds the lock."""
        return self._lock.in_use()

    def alive(self) -> None:
        """Renew the lock for three checkpoints and a minute."""
        self._lock.alive(3 * self.checkpoint_every + MIN_SILENT_SECONDS)

    def unlock(self) -> None:
        """Release the lock."""
        self._lock.give_back()

    # -- JSON ------------------------------------------------------------------------------

    def read(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the run. Raise RunError if it is absent, broken or of another run."""
        try:
            content = read_json(self.path / name)
        except FileNotFoundError as error:
            if name == "run.json" and self.next():
                raise RunError(
                    f"{self.path} was left in the middle of replacing one run by another; {self.remedy()}"
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
        """Write run.json with a new id, and the arrays `given` that a new start needs."""
        if not self.writes:
            return
        self._id = secrets.token_hex(8)
        if given is not None:  # first: if run.json exists, they must exist too
            write_arrays(self.path / self._given, {"run": self._id}, given)
        self._asked = {**asked, "format": RUN_FORMAT, "id": self._id}
        write_json(self.path / (NEXT_CHECKPOINT if self.replacing else "run.json"), self._asked)

    def begun(self) -> dict[str, Any]:
        """Return run.json. Raise RunError if it has another format."""
        asked = self._asked if self.replacing else self.read("run.json")
        if asked.get("format") != RUN_FORMAT:
            raise RunError(
                f"{self.path} was written by another version of sgld (format {asked.get('format', 1)}; this version "
                f"reads {RUN_FORMAT}); run it again."
            )
        return asked

    @property
    def id(self) -> str:
        """Id of the run."""
        found = self._id or str(self.begun().get("id"))
        self._id = found
        return found

    def add(self, **more: Any) -> None:
        """Add entries to run.json."""
        if self.writes:
            self.settle()
            write_json(self.path / "run.json", {**self.begun(), **more})

    def begin_again(self, attempts: list[dict[str, str]]) -> None:
        """Start another attempt and store it in run.json; ignore files of the earlier attempt."""
        self.add(again=attempts)
        self.attempt = len(attempts)
        self.remove_chunks()

    def finished(self) -> bool:
        """Return whether the run has its result."""
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
        """Return the arrays that `begin` received; they are in setup.npz once it exists."""
        found = self.read_arrays("setup.npz") or self.read_arrays(self._given)
        if found is None:
            raise RunError(f"{self.path / 'setup.npz'} is missing; start the run again.")
        return found[1]

    def read_arrays(self, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """Read a file of arrays; return None if it is absent. Raise RunError if it is damaged.

        A file of another run raises RunError too.
        """
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
        """Write draws [draw, ...] from `first` up to `end`."""
        if not self.writes:
            return
        folder = self._chunks()
        try:
            folder.mkdir(exist_ok=True)
            flush_folder(self.path)
        except OSError as error:
            if not self.path.exists():
                raise RunError(
                    f"{self.path} was moved or deleted while the run wrote to it. If it was moved, resume the run "
                    "at its new path, from the last checkpoint."
                ) from error
            raise RunError(f"{folder} could not be created: {error.strerror}.") from error
        head = {"attempt": self.attempt, "first": first, "end": end}
        self.write_arrays(self._chunk(first), head, rows)

    def read_chunk(self, first: int, end: int) -> dict[str, np.ndarray]:
        """Read a chunk. Raise RunError if it is missing, or is not what `write_chunk` wrote."""
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
            raise RunError(f"{folder} is a symbolic link, which a run directory must not contain.")
        return folder

    @property
    def _given(self) -> str:
        name = f"next-{self.id}.npz"
        if not CHECKPOINT.fullmatch(name):  # run.json may come from an untrusted source
            raise RunError(f"{self.path / 'run.json'} holds no valid id; start the run again.")
        return name

    @property
    def _again(self) -> str:
        return f"delete {self.path / 'checkpoint.npz'} to sample again from the first step"

    def _chunk(self, first: int) -> str:
        return f"chunks/{self.attempt}-{first}.npz"

    def write_checkpoint(self, head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write the state of a run, atomically, after all chunks that it refers to are on disk."""
        self.write_arrays("checkpoint.npz", {**head, "attempt": self.attempt}, arrays)
        self.alive()

    def read_checkpoint(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """Return the last checkpoint of this attempt, or None."""
        try:
            found = self.read_arrays("checkpoint.npz")
        except RunError as error:
            raise RunError(f"{error} You may {self._again}.") from error
        return None if found is None or found[0].get("attempt") != self.attempt else found


# -- kept ----------------------------------------------------------------------------------


@contextmanager
def noting_stored_part(directory: RunDirectory | None, argument: str = "path") -> Iterator[None]:
    """Add a note to a KeyboardInterrupt that says what is stored of the run.

    `argument` is the name of the argument for the directory.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        if directory is None:
            note = f"nothing is stored without a directory; with {argument}= a run can be resumed."
        else:
            note = kept(directory)
        error.add_note(note)
        raise


def kept(directory: RunDirectory) -> str:
    """Return the sentence that says what is stored of a run on which no process works."""
    try:
        return _kept(directory)
    except (
        SGLDError,
        OSError,
        LookupError,
    ) as error:  # damaged: resuming raises an error with the remedy
        return f"the stored part of the run in {directory.path} cannot be read: {error}"


def _kept(directory: RunDirectory) -> str:
    path = directory.path
    if not exists(path / "run.json") and not exists(path / "next.json"):
        return "nothing is stored yet; start the run again."
    if directory.next():
        return (
            "the new run has no draws yet, and the run that it is to replace is unchanged; start it again: "
            f"{directory.call()}"
        )
    if directory.finished():
        return f"the run in {path} is finished and stored completely; {directory.remedy()}"
    found = directory.read_checkpoint()
    if found is None:
        planned = exists(path / "setup.npz")
        what = "the plan is stored, but no draws yet" if planned else "nothing is sampled yet"
        return f"{what}; {directory.remedy()}"
    count = _draws(*found)
    what = (
        f"{count:,} draws per chain are stored" if count else "the chains are stored, but no draws"
    )
    return f"{what}; {directory.remedy()}"


def _draws(head: dict[str, Any], arrays: dict[str, Any]) -> int:
    """Return the draws per chain that a checkpoint refers to.

    The formats are those of inference/sink.py and torch/run_files.py.
    """
    if "kernel" not in head:
        return len(arrays.get("predicted", ()))
    chunks = head["chunks"]
    return int(chunks[-1][1] if chunks else 0) + len(arrays.get("pending_step_size", ()))


# -- remedies ------------------------------------------------------------------------------


# arguments that have an option of the same name
OPTION_ARGUMENTS = "|".join((
    "tolerance", "temperature", "prior", "family", "weights", "trials", "missing", "table", "database", "sep",
    "decimal", "sampler", "seed", "method", "kind", "prob", "drop", "out", "batch_size", "step_size",
    "max_steps", "max_seconds", "checkpoint_every", "num_draws", "num_chains",
))  # fmt: skip
QUOTES = "'\\[\"`/"  # characters before a user's own name: a column, a path
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
    """Translate a sentence to the spelling of the command line, for the run at `run`.

    Example:
      >>> from sgld.results.run_directory import at_the_shell
      >>> at_the_shell("confirm by sgld.step_halving, or with NUTS: sgld.reference.", "runs/visits")
      'confirm by sgld halve runs/visits, or with NUTS: sgld reference runs/visits.'
      >>> at_the_shell("use a smaller step_size or a larger batch_size.", "run")
      'use a smaller --step-size or a larger --batch-size.'
      >>> at_the_shell("runs/a is not finished; resume it: sgld.resume('runs/a')", "RUN")
      'runs/a is not finished; resume it: sgld resume runs/a'
    """
    for pattern, text in SHELL_SPELLINGS:
        sentence = pattern.sub(text.replace("{run}", str(run).replace("\\", r"\\")), sentence)
    return sentence
