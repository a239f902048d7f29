"""The plan of a run on disk, setup.npz: what `resume` goes on with, so that nothing is tuned twice.

One file, written at once: the plan as JSON (codec.py), its arrays, where the chains start, of which
attempt it is, and the digest of all that with the run it belongs to.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import RunError, SGLDError
from ..gradient.control_variates import ControlVariates
from .codec import decode, encode
from .plan import Plan
from .storage import RunDirectory

__all__ = ["StoredPlan", "must_be_given", "not_the_same", "plan_of", "read_plan", "write_plan"]

NAME = "setup.npz"
MOST_NUMBERS = 2**31  # in one stored array


@dataclass(frozen=True)
class StoredPlan:
    """A plan, where its chains start, and which attempt it is: 0 for the first."""

    plan: Plan
    starts: np.ndarray
    attempt: int


def write_plan(
    directory: RunDirectory, stored: StoredPlan, digests: Mapping[str, str], owner: str
) -> None:
    """Write it. `owner` names the run: the hashes of its model, its data and its request."""
    arrays: dict[str, np.ndarray] = {}
    content = encode(_bare(stored.plan), arrays, digests)
    arrays["starts"] = np.asarray(stored.starts)
    head = {"plan": content, "attempt": stored.attempt, "owner": owner}
    arrays["json"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    arrays["digest"] = np.frombuffer(_digest(arrays).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    directory.write_bytes(NAME, buffer.getvalue())


def read_plan(
    directory: RunDirectory, given: Callable[[str, str], Any], owner: str | None = None
) -> StoredPlan | None:
    """The stored plan, or None where there is none yet.

    `given(name, digest)` answers for what a user gives again. Raises RunError where the file is
    damaged, was edited, or belongs to another run.
    """
    path = directory.path / NAME
    if not path.exists():
        return None
    try:
        content = io.BytesIO(path.read_bytes())  # of a broken archive, NumPy leaves a file open
        with np.load(content, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if any(math.prod(a.shape) > MOST_NUMBERS for a in arrays.values()):
            raise RunError("an array is too large.")
        digest = bytes(arrays.pop("digest")).decode()
        if _digest(arrays) != digest:
            raise RunError("its content is not what was written.")
        head = json.loads(bytes(arrays["json"]))
        if owner is not None and head["owner"] != owner:
            raise RunError("it belongs to another run.")
        plan = decode(head["plan"], arrays, given)
        if not isinstance(plan, Plan):
            raise RunError("it holds no plan.")
        return StoredPlan(plan, arrays["starts"], int(head["attempt"]))
    except _GivenAgain:
        raise
    except SGLDError as error:
        raise RunError(f"{path} cannot be used: {error}") from error
    except Exception as error:  # of a damaged archive, NumPy and zipfile raise what they please
        raise RunError(f"{path} is damaged: {error!r}.") from error


def plan_of(directory: RunDirectory) -> Plan | None:
    """The plan of a finished run; None where it has none, or parts of it were the user's own."""

    def refuse(name: str, digest: str) -> Any:
        raise must_be_given(name)

    try:
        stored = read_plan(directory, refuse)
    except _GivenAgain:
        return None
    return None if stored is None else stored.plan


class _GivenAgain(RunError):
    """What a user has to give again, in a sentence that is complete."""


def must_be_given(name: str) -> RunError:
    """The error of an argument that was not given again."""
    argument = "schedule" if name == "step_size" else name
    return _GivenAgain(
        f"the run was begun with a {name} of your own, which is not stored; give it again: "
        f"sgld.resume(path, posterior, data, init, {argument}=...)."
    )


def not_the_same(name: str) -> RunError:
    """The error of an argument that was given again and differs."""
    argument = "schedule" if name == "step_size" else name
    return _GivenAgain(
        f"{argument} is not the {name} that the run was begun with; resume it with the same."
    )


def _bare(plan: Plan) -> Plan:
    """Without what control variates keep of every block: it is made again at their centre."""
    gradient = plan.setup.gradient
    if not isinstance(gradient, ControlVariates):
        return plan
    return replace(plan, setup=replace(plan.setup, gradient=ControlVariates(gradient.center)))


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()
