"""An ensemble on disk: one .npz of plain arrays, and a JSON text in it; never a pickle."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import DataError, UsageError
from ..results.verdict import Verdict

__all__ = ["as_path", "read", "write"]

_FORMAT = "sgld.torch.Ensemble 1"
_PLAIN = {
    str(t): t
    for t in (
        torch.float16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16,
        torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128,
    )
}  # fmt: skip
_AS_BITS = {str(torch.bfloat16): torch.bfloat16}  # numpy has no such numbers: their 16 bits


def as_path(path: Any) -> Path:
    """UsageError unless it is one."""
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(
            f"path must be that of a file or a run directory, as in Ensemble.load(path, model). Got {type(path).__name__}."
        )
    return Path(path)


def write(
    path: Path, states: list[dict[str, torch.Tensor]], weights: np.ndarray, about: dict[str, Any]
) -> None:
    """One array [draw, ...] per entry of the state_dict, [1, ...] of one that all draws share.

    `about` is JSON-ready. The file appears when it is whole.
    """
    arrays: dict[str, np.ndarray] = {}
    entries = []
    for i, (name, first) in enumerate(states[0].items()):
        dtype = str(first.dtype)
        if dtype not in _PLAIN and dtype not in _AS_BITS:
            raise DataError(f"{name!r} cannot be saved: its dtype is {dtype}.")
        shared = len(states) > 1 and all(state[name] is first for state in states)
        stacked = first[None] if shared else torch.stack([state[name] for state in states])
        arrays[f"entry{i}"] = (stacked.view(torch.int16) if dtype in _AS_BITS else stacked).numpy()
        entries.append({"name": name, "dtype": dtype, **({"shared": True} if shared else {})})
    text = json.dumps({"format": _FORMAT, "entries": entries, **({"run": about} if about else {})})
    arrays["about"] = np.frombuffer(text.encode(), np.uint8)
    if path.is_dir():
        raise UsageError(
            f"path must be that of a file, and {path} is a directory; give {path / 'draws.npz'}."
        )
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            np.savez(file, weights=weights, **arrays)  # pyright: ignore[reportArgumentType]
        beside.replace(path)
    except OSError as error:
        raise DataError(f"{path} could not be written: {error.strerror}.") from error
    finally:
        beside.unlink(missing_ok=True)


def read(path: Path) -> tuple[list[dict[str, torch.Tensor]], np.ndarray, dict[str, Any]]:
    """The states, the weights, and what the run says of itself; DataError for any file that `write` did not make."""
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            about = json.loads(bytes(file["about"]).decode())
            if about["format"] != _FORMAT:
                raise ValueError(f"its format is {about['format']!r}")
            weights = np.asarray(file["weights"], np.float64)
            whole = {
                entry["name"]: _tensor(file[f"entry{i}"], entry["dtype"])
                for i, entry in enumerate(about["entries"])
            }
            shared = {entry["name"] for entry in about["entries"] if entry.get("shared")}
            run = dict(about.get("run", {}))
            if run and (Verdict.from_dict(run["verdict"]).judged, len(weights) % run["chains"]) != (True, 0):  # fmt: skip
                raise ValueError("its draws are not those of so many chains")
    except FileNotFoundError as error:
        raise DataError(
            f"there is no file {path}; give the one that save() wrote, or a run directory of sgld.torch.sample."
        ) from error
    except (ValueError, TypeError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} is not an ensemble that save() wrote ({_first_sentence(error)}); give that file."
        ) from error
    size = weights.shape
    sizes = {name: (1,) if name in shared else size for name in whole}
    if weights.ndim != 1 or not weights.size or any(t.shape[:1] != sizes[name] for name, t in whole.items()):  # fmt: skip
        raise DataError(f"{path} is damaged: its entries have different numbers of draws.")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise DataError(f"{path} is damaged: a weight is negative or not finite.")
    common = {name: whole[name][0].clone() for name in shared}
    states = [
        {k: common[k] if k in shared else v[s].clone() for k, v in whole.items()}
        for s in range(len(weights))
    ]
    return states, weights, run


def _tensor(array: np.ndarray, dtype: Any) -> torch.Tensor:
    if dtype in _AS_BITS:
        return torch.from_numpy(array.astype(np.int16, copy=False)).view(_AS_BITS[dtype])
    if dtype not in _PLAIN:
        raise ValueError(f"dtype {dtype!r} is unknown")
    tensor = torch.from_numpy(array)
    if tensor.dtype != _PLAIN[dtype]:
        raise ValueError(f"an array of {tensor.dtype} is said to be {dtype}")
    return tensor


def _first_sentence(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
