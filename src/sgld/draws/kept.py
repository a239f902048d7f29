"""What a run directory keeps of a run that was stopped, and how to go on, in a sentence.

    with saying_what_is_kept(directory):
        ...  # Ctrl-C in here says it: in the traceback's last line, and at the command line

A sentence speaks Python; `remedies.at_the_shell` says it in the words of the command line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core.files import exists
from ..errors import SGLDError
from .run_directory import RunDirectory

__all__ = ["kept", "saying_what_is_kept"]


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
    """Of each chain, that a checkpoint counts on (run/sink.py, torch/run_files.py)."""
    if "kernel" not in head:
        return len(arrays.get("predicted", ()))
    chunks = head["chunks"]
    return int(chunks[-1][1] if chunks else 0) + len(arrays.get("pending_step_size", ()))
