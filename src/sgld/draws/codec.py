"""Objects of numbers as JSON and arrays, and back: no code is named that is not this package's own data.

    None, truth values, numbers, words      as they are
    a list, a tuple                         {"list": [...]}, {"tuple": [...]}
    an array                                {"array": name}, the array itself beside the JSON
    a dataclass that has a tag (tags.py)    {"class": "BAOA", "fields": {...}}
    anything else a user gave               {"own": the argument's name, "digest": ...}: given again

A stranger's file can therefore make objects of this package out of numbers, and nothing else.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import jax
import numpy as np

from ..core.devices import sent
from ..errors import RunError
from .tags import class_of, tag_of

__all__ = ["decode", "encode", "encode_fields", "from_text", "to_text"]

DEEPEST = 12  # levels of objects in objects


class _Own(Exception):
    """The value holds something that is not stored."""


def encode(
    value: Any, arrays: dict[str, np.ndarray], digests: Mapping[str, str] | None = None
) -> Any:
    """`value` as JSON; its arrays go into `arrays` under names of their own.

    `digests`: of what a user gave, by the argument's name. A field of such a name that cannot be
    stored is to be given again.
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
    """Every value under its name; one that cannot be stored is to be given again."""

    def one(name: str, value: Any) -> Any:
        try:
            return encode(value, arrays)
        except _Own:
            return {"own": name, "digest": digests[name]}

    return {name: one(name, value) for name, value in values.items()}


def to_text(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays inside JSON: dtype, shape and bytes in base64."""
    return {
        name: [
            str(a.dtype),
            list(a.shape),
            base64.b64encode(np.ascontiguousarray(a).tobytes()).decode(),
        ]
        for name, a in arrays.items()
    }


def from_text(stored: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The inverse. Raises RunError for a dtype that is no number's."""
    found = {}
    for name, (dtype, shape, content) in stored.items():
        kind = np.dtype(str(dtype))
        if kind.kind not in "biuf":
            raise RunError(f"an array of dtype {kind} is nothing that is stored.")
        found[name] = np.frombuffer(base64.b64decode(content), kind).reshape(shape)
    return found


def decode(stored: Any, arrays: Mapping[str, np.ndarray], given: Callable[[str, str], Any]) -> Any:
    """The inverse; `given(name, digest)` is what a user gives again for an argument.

    Raises RunError for anything that `encode` does not write.
    """

    def one(part: Any, depth: int) -> Any:
        if depth > DEEPEST:
            raise RunError("objects are nested too deep.")
        if part is None or isinstance(part, (bool, int, float, str)):
            return part
        if not isinstance(part, dict):
            raise RunError(f"{type(part).__name__} is nothing that is stored.")
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
        since = (known[name].default for name in known.keys() - written)  # an older version
        if written - known.keys() or any(value is MISSING for value in since):
            raise RunError(f"{part['class']} has other fields in this version of sgld.")
        return kind(**{key: one(value, depth + 1) for key, value in part["fields"].items()})

    return one(stored, 0)
