"""Encode and decode objects as JSON and arrays, and store the plan of a run in setup.npz.

    None, truth values, numbers, text       unchanged
    a list, a tuple                         {"list": [...]}, {"tuple": [...]}
    an array                                {"array": name}; the array itself is stored separately
    a dataclass that has a tag (tags.py)    {"class": "BAOA", "fields": {...}}
    any other user-supplied object          {"own": the argument's name, "digest": ...}; given again

A file from an untrusted source can therefore create objects of this package from numbers, and
nothing else: it cannot name any other code.

setup.npz holds the plan that `resume` continues with, so that nothing is tuned twice. It is one
file, written at once: the plan as JSON, its arrays, the start points of the chains, and the
attempt's number.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any

import jax
import numpy as np

from ..core.devices import sent
from ..errors import RunError, SGLDError
from ..samplers.gradients.control_variates import ControlVariates
from .plan import Plan
from .run_directory import RunDirectory
from .tags import class_of, tag_of

MAX_OBJECT_DEPTH = 12  # levels of objects in objects


class _Own(Exception):
    """Raised for a value that holds something that cannot be stored."""


def encode(
    value: Any, arrays: dict[str, np.ndarray], digests: Mapping[str, str] | None = None
) -> Any:
    """Return `value` as JSON, and add its arrays to `arrays` under new names.

    `digests` holds the digests of user-supplied objects by the argument's name. A field of such a
    name that cannot be stored must be given again when the run is resumed.
    """
    digests = {} if digests is None else digests

    def field_of(name: str, part: Any) -> Any:
        try:
            return one(part)
        except _Own:
            if name not in digests:
                raise
            return {"own": name, "digest": digests[name]}

    def one(part: Any) -> Any:
        if part is None or isinstance(part, (bool, int, str)):
            return part
        if isinstance(part, float):
            return part if np.isfinite(part) else {"float": repr(part)}
        if isinstance(part, (np.ndarray, np.generic, jax.Array)):
            array = np.asarray(part)
            if array.dtype.kind not in "biuf":
                raise _Own
            name = f"a{len(arrays)}"
            arrays[name] = array
            return {"array": name, "host": isinstance(part, (np.ndarray, np.generic))}
        if type(part) in (list, tuple):
            return {type(part).__name__: [one(item) for item in part]}
        kind = type(part)
        tag = tag_of(kind) if is_dataclass(part) else None
        if tag is not None:
            parts = {f.name: field_of(f.name, getattr(part, f.name)) for f in fields(part)}
            return {"class": tag, "fields": parts}
        raise _Own(f"{kind.__module__}.{kind.__qualname__}")

    return one(value)


def encode_fields(
    values: Mapping[str, Any], arrays: dict[str, np.ndarray], digests: Mapping[str, str]
) -> dict[str, Any]:
    """Encode every value under its name; a value that cannot be stored must be given again."""

    def one(name: str, value: Any) -> Any:
        try:
            return encode(value, arrays)
        except _Own:
            return {"own": name, "digest": digests[name]}

    return {name: one(name, value) for name, value in values.items()}


def to_text(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Encode arrays in JSON: dtype, shape and the bytes in base64."""
    return {
        name: [
            str(a.dtype),
            list(a.shape),
            base64.b64encode(np.ascontiguousarray(a).tobytes()).decode(),
        ]
        for name, a in arrays.items()
    }


def from_text(stored: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Decode the arrays of `to_text`. Raise RunError for a dtype that is not numeric."""
    found = {}
    for name, (dtype, shape, content) in stored.items():
        kind = np.dtype(str(dtype))
        if kind.kind not in "biuf":
            raise RunError(f"an array of dtype {kind} is not a stored type.")
        found[name] = np.frombuffer(base64.b64decode(content), kind).reshape(shape)
    return found


def decode(stored: Any, arrays: Mapping[str, np.ndarray], given: Callable[[str, str], Any]) -> Any:
    """Decode the JSON of `encode`; `given(name, digest)` returns what a user supplies again.

    Raises RunError for anything that `encode` does not write.
    """

    def one(part: Any, depth: int) -> Any:
        if depth > MAX_OBJECT_DEPTH:
            raise RunError("objects are nested too deep.")
        if part is None or isinstance(part, (bool, int, float, str)):
            return part
        if not isinstance(part, dict):
            raise RunError(f"{type(part).__name__} is not a stored type.")
        if "array" in part:
            array = arrays[part["array"]]
            return array[()] if part["host"] else sent(array)
        if "float" in part:
            return float(part["float"])
        if "tuple" in part:
            return tuple(one(item, depth + 1) for item in part["tuple"])
        if "list" in part:
            return [one(item, depth + 1) for item in part["list"]]
        if "own" in part:
            return given(str(part["own"]), str(part["digest"]))
        kind = class_of(str(part["class"]))
        if kind is None:
            raise RunError(f"{part['class']} is not known to this version of sgld.")
        known, written = {f.name: f for f in fields(kind)}, set(part["fields"])
        since = (known[name].default for name in known.keys() - written)  # not in an older file
        if written - known.keys() or any(value is MISSING for value in since):
            raise RunError(f"{part['class']} has other fields in this version of sgld.")
        return kind(**{key: one(value, depth + 1) for key, value in part["fields"].items()})

    return one(stored, 0)


# -- plan file -----------------------------------------------------------------------------


SETUP_FILE = "setup.npz"


@dataclass(frozen=True)
class StoredPlan:
    """A plan, the start points of its chains, and the number of its attempt (0 for the first)."""

    plan: Plan
    starts: np.ndarray
    attempt: int


def write_plan(directory: RunDirectory, stored: StoredPlan, digests: Mapping[str, str]) -> None:
    """Write the plan to setup.npz; `digests` names the arguments that may be user-supplied."""
    arrays: dict[str, np.ndarray] = {}
    content = encode(_bare(stored.plan), arrays, digests)
    arrays["starts"] = np.asarray(stored.starts)
    directory.write_arrays(SETUP_FILE, {"plan": content, "attempt": stored.attempt}, arrays)


def is_planned(directory: RunDirectory) -> bool:
    """Return whether the directory holds a plan: the run is sampling, or is finished."""
    return directory.read_arrays(SETUP_FILE) is not None


def read_plan(directory: RunDirectory, given: Callable[[str, str], Any]) -> StoredPlan | None:
    """Return the stored plan, or None if there is none yet.

    `given(name, digest)` returns what a user supplies again. Raises RunError if the file is
    damaged, was edited, or belongs to another run.
    """
    found = directory.read_arrays(SETUP_FILE)
    if found is None:
        return None
    head, arrays = found
    try:
        plan = decode(head["plan"], arrays, given)
        if not isinstance(plan, Plan):
            raise RunError("it does not hold a plan.")
        return StoredPlan(plan, arrays["starts"], int(head["attempt"]))
    except _GivenAgain:
        raise
    except SGLDError as error:
        raise RunError(f"{directory.path / SETUP_FILE} cannot be used: {error}") from error
    except Exception as error:  # classes raise errors of any type for inconsistent numbers
        raise RunError(f"{directory.path / SETUP_FILE} is damaged: {error!r}.") from error


def plan_of(directory: RunDirectory) -> Plan | None:
    """Return the plan of a finished run; None if it has none or holds user-supplied objects."""

    def refuse(name: str, digest: str) -> Any:
        raise must_be_given(name)

    try:
        stored = read_plan(directory, refuse)
    except _GivenAgain:
        return None
    return None if stored is None else stored.plan


class _GivenAgain(RunError):
    """Error for an argument that the user must give again; its sentence is complete."""


def must_be_given(name: str) -> RunError:
    """Return the error for an argument that was not given again."""
    argument = "schedule" if name == "step_size" else name
    return _GivenAgain(
        f"the run was started with a user-supplied {name}, which is not stored; give it again: "
        f"sgld.resume(path, posterior, data, init, {argument}=...)."
    )


def not_the_same(name: str) -> RunError:
    """Return the error for an argument that was given again and differs."""
    argument = "schedule" if name == "step_size" else name
    return _GivenAgain(
        f"{argument} differs from the {name} that the run was started with; resume it with the same one."
    )


def _bare(plan: Plan) -> Plan:
    """Return the plan without the per-block state of control variates.

    It is recomputed at their center when the plan is read.
    """
    gradient = plan.setup.gradient
    if not isinstance(gradient, ControlVariates):
        return plan
    return replace(plan, setup=replace(plan.setup, gradient=ControlVariates(gradient.center)))
