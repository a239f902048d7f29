"""A run directory: arrays and JSON, nothing that runs code.

run.json         what was asked, versions, seed, hashes of data and model
setup.npz        the plan: what is known of the posterior, what runs, where the chains start; atomic
draws.zarr       the draws, chunk by chunk while the run goes on
checkpoint.npz   the carry and the draws that do not fill a chunk yet; fsynced, atomic
result.json      the verdict and the shape of a finished run
summary.json     the table
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np

from ..errors import RunError
from ..layout import leaf_names
from .draws import Draws
from .moments import Moments
from .summary import TOLD
from .verdict import NOT_JUDGED, Verdict

__all__ = ["RunDirectory", "load", "save"]

FORMAT = 2  # of a run directory; 1 had no setup.npz
OF_CHAINS = ("chain_mean", "chain_square", "between")  # of Moments, by what they are of
OF_RUN = ("weight", "squared_weights", "num_batches", "num_draws")
NUMBERS_PER_CHUNK = 2**16  # about, of a chunk on disk; of long draws more:
FEWEST_PER_CHUNK, MOST_NUMBERS = 256, 2**22  # so many draws, but of no more numbers than that


def chunk_rows(shape: tuple[int, ...]) -> int:
    """Draws per chunk on disk, of arrays whose draws have this shape."""
    width = max(1, math.prod(shape))
    few = min(FEWEST_PER_CHUNK, MOST_NUMBERS // width)
    return max(1, few, NUMBERS_PER_CHUNK // width)


def write_atomic(path: Path, content: bytes) -> None:
    """Write, fsync, rename, fsync the folder: a reader sees the old content or the new."""
    scratch = path.with_name(path.name + ".partial")
    try:
        with open(scratch, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise RunError(
            f"{path} could not be written ({len(content)} bytes): {error.strerror}."
        ) from error


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


class RunDirectory:
    """The files of one run. Holding the object open holds the directory's lock."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: IO[str] | None = None

    def create(self, overwrite: bool) -> None:
        """Make the directory. Raises RunError where something already stands there."""
        if self.path.exists():
            if self.path.is_dir() and not any(self.path.iterdir()):
                return
            if not overwrite:
                raise RunError(
                    f"{self.path} already exists; choose another directory, overwrite it "
                    "(--overwrite), or go on with it (sgld resume)."
                )
            if not self.path.is_dir() or not (self.path / "run.json").exists():
                raise RunError(f"{self.path} is not a run directory, so it is not overwritten.")
            self.lock()
            self.clear()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{self.path} could not be made: {error.strerror}.") from error

    def clear(self) -> None:
        """Remove what an earlier run left, run.json included."""
        import shutil

        for name in (
            "run.json",
            "setup.npz",
            "checkpoint.npz",
            "result.json",
            "summary.json",
            "report.html",
        ):
            with contextlib.suppress(FileNotFoundError):
                (self.path / name).unlink()
        shutil.rmtree(self.path / "draws.zarr", ignore_errors=True)

    def begin_again(self, attempts: list[dict[str, str]]) -> None:
        """Drop draws and checkpoint for another attempt, which run.json names."""
        import shutil

        # run.json first: draws of an attempt that it does not name would be another's
        self.write("run.json", {**self.read("run.json"), "again": attempts})
        with contextlib.suppress(FileNotFoundError):
            (self.path / "checkpoint.npz").unlink()
        shutil.rmtree(self.path / "draws.zarr", ignore_errors=True)

    def add_plan(self, plan: dict[str, Any]) -> None:
        """Add what was chosen to run.json."""
        self.write("run.json", {**self.read("run.json"), "plan": _jsonable(plan)})

    def lock(self) -> None:
        """Hold the directory alone. Raises RunError where another process holds it."""
        if self._lock is not None:
            return
        try:
            import fcntl
        except ImportError:  # no advisory locks on this platform
            return
        self._lock = open(self.path / "lock", "w")  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock = None
            raise RunError(
                f"{self.path} is in use by another process; wait for it to end."
            ) from error

    def unlock(self) -> None:
        """Give the directory back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of the directory. Raises RunError where it is absent or broken."""
        try:
            content = json.loads((self.path / name).read_text())
        except FileNotFoundError as error:
            raise RunError(f"{self.path} holds no {name}, so it is not a run directory.") from error
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / name} cannot be read: {error}.") from error
        if not isinstance(content, dict):
            raise RunError(f"{self.path / name} cannot be read: it holds no object.")
        return content

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write a JSON file, atomically."""
        write_atomic(self.path / name, _json_bytes(value))

    def begun(self) -> dict[str, Any]:
        """run.json. Raises RunError where it is of another format."""
        asked = self.read("run.json")
        check_format(self, asked)
        return asked

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a file, atomically."""
        write_atomic(self.path / name, content)

    def finished(self) -> bool:
        """Whether the run's draws are complete."""
        return (self.path / "result.json").exists()

    # -- the running part -----------------------------------------------------------------

    def append(self, rows: dict[str, np.ndarray], start: int, per_chunk: int) -> None:
        """Write whole chunks of `per_chunk` draws [draw, ...], beginning at draw `start`."""
        import zarr

        try:
            group = zarr.open_group(str(self.path / "draws.zarr"), mode="a", zarr_format=3)
            for name, values in rows.items():
                if name not in group:
                    chunks = (per_chunk, *values.shape[1:])
                    group.create_array(
                        name, shape=(0, *values.shape[1:]), chunks=chunks, dtype=values.dtype
                    )
                array = group[name]
                array.resize((start + len(values), *values.shape[1:]))  # type: ignore[union-attr]
                array[start:] = values  # type: ignore[index]
        except OSError as error:
            size = sum(values.nbytes for values in rows.values())
            raise RunError(
                f"{self.path / 'draws.zarr'} could not be written ({size} bytes): {error.strerror}."
            ) from error

    def stored(self, count: int) -> dict[str, np.ndarray]:
        """The first `count` draws that `append` wrote."""
        if count == 0:
            return {}
        import zarr

        try:
            # format 2 would let a stranger's directory name a codec that unpickles
            group = zarr.open_group(str(self.path / "draws.zarr"), mode="r", zarr_format=3)
            return {name: np.asarray(array[:count]) for name, array in group.arrays()}
        except (OSError, ValueError, KeyError) as error:
            raise RunError(f"{self.path / 'draws.zarr'} cannot be read: {error}.") from error

    def write_checkpoint(self, arrays: dict[str, np.ndarray]) -> None:
        """The carry and the unflushed draws, atomically."""
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        write_atomic(self.path / "checkpoint.npz", buffer.getvalue())

    def read_checkpoint(self) -> dict[str, np.ndarray] | None:
        """The last checkpoint, or None. Raises RunError where it is broken."""
        path = self.path / "checkpoint.npz"
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except Exception as error:
            raise RunError(f"{path} cannot be read: {error}.") from error


def check_format(run: RunDirectory, asked: Mapping[str, Any]) -> None:
    """RunError for a run directory that another version of sgld wrote."""
    if asked.get("format") != FORMAT:
        raise RunError(
            f"{run.path} was written by another version of sgld (format {asked.get('format', 1)}, this one reads "
            f"{FORMAT}); make the run again."
        )


def save(draws: Draws, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write `draws` as a finished run directory."""
    run = RunDirectory(path)
    run.create(overwrite)
    run.write("run.json", {"format": FORMAT, "kind": "saved", "info": _jsonable(draws.info)})
    write_result(run, draws)
    return run.path


def write_result(run: RunDirectory, draws: Draws) -> None:
    """The reported draws, then result.json and summary.json: the last makes it a finished run."""
    leaves = jax.tree.leaves(draws.position)
    rows = {f"position{i}": np.moveaxis(np.asarray(leaf), 1, 0) for i, leaf in enumerate(leaves)}
    rows |= {
        f"draw_{name}": np.moveaxis(np.asarray(getattr(draws, name)), 1, 0)
        for name in ("log_weight", "step_size", "temperature")
    }
    rows["draw_step"] = np.asarray(draws.step)
    moments = draws.moments
    if moments is not None:
        rows |= {f"moments_{name}": getattr(moments, name)[None] for name in OF_CHAINS}
    widest = max((values.shape[1:] for values in rows.values()), key=math.prod)
    run.append(rows, 0, chunk_rows(widest))
    summary = draws.summary()
    run.write("summary.json", summary.to_dict())
    run.write(
        "result.json",
        {
            "tree": _describe(draws.position),
            "leaves": [[list(leaf.shape[2:]), str(np.asarray(leaf).dtype)] for leaf in leaves],
            "names": list(draws.names),
            "status": list(draws.status),
            "verdict": draws.verdict.to_dict() if draws.verdict.judged else None,
            "info": _jsonable(draws.info),
            "num_draws": draws.num_draws,
            "moments": None if moments is None else {n: getattr(moments, n) for n in OF_RUN},
            "told": _jsonable({name: summary.facts[name] for name in TOLD}),
        },
    )


def load(path: str | Path) -> Draws:
    """The draws of a finished run directory.

    Raises RunError where `path` is no run directory, is unfinished, or is damaged.

    Example:
      >>> import sgld
      >>> sgld.load("runs/nowhere")
      Traceback (most recent call last):
      sgld.errors.RunError: runs/nowhere is not a directory.
    """
    from .plan_file import plan_of

    run = RunDirectory(path)
    if not run.path.is_dir():
        raise RunError(f"{path} is not a directory.")
    if not run.finished():
        if (run.path / "run.json").exists():
            raise RunError(f"{path} is not finished; go on with it: sgld resume {path}")
        raise RunError(f"{path} holds no run.json, so it is not a run directory.")
    run.begun()
    result = run.read("result.json")
    plan = plan_of(run)
    try:
        rows = run.stored(int(result["num_draws"]))
        count = len(result["leaves"])
        leaves = [np.moveaxis(rows[f"position{i}"], 0, 1) for i in range(count)]
        per_draw: dict[str, Any] = {
            name: np.moveaxis(rows[f"draw_{name}"], 0, 1)
            for name in ("log_weight", "step_size", "temperature")
        }
        verdict, totals = result["verdict"], result.get("moments")
        moments = None
        if totals is not None:
            moments = Moments(**{n: rows[f"moments_{n}"][0] for n in OF_CHAINS}, **totals)
        return Draws(
            position=_rebuild(result["tree"], iter(leaves)),
            **per_draw,
            step=rows["draw_step"],
            status=tuple(result["status"]),
            names=tuple(result["names"]),
            verdict=NOT_JUDGED if verdict is None else Verdict.from_dict(verdict),
            info=result["info"],
            plan=plan,
            moments=moments,
        )
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise RunError(f"{path} is damaged: {error!r}.") from error


def _describe(tree: Any) -> Any:
    """The shape of a pytree of dicts, lists and tuples in JSON; others become a dict by name."""
    if isinstance(tree, dict) or type(tree).__name__ == "FrozenDict":
        # in the order of the leaves, which is sorted but for an OrderedDict
        keys = list(tree) if isinstance(tree, OrderedDict) else sorted(tree)
        return {"dict": {str(key): _describe(tree[key]) for key in keys}}
    names = getattr(tree, "_fields", None)
    if isinstance(tree, tuple) and names is not None:
        return {"dict": {name: _describe(getattr(tree, name)) for name in names}}
    if isinstance(tree, (list, tuple)):
        return {type(tree).__name__: [_describe(part) for part in tree]}
    if jax.tree_util.all_leaves([tree]):
        return "leaf"
    return {"dict": dict.fromkeys(leaf_names(tree), "leaf")}


def _rebuild(shape: Any, leaves: Any) -> Any:
    if shape == "leaf":
        return next(leaves)
    kind, parts = next(iter(shape.items()))
    if kind == "dict":
        return {name: _rebuild(part, leaves) for name, part in parts.items()}
    built = [_rebuild(part, leaves) for part in parts]
    return tuple(built) if kind == "tuple" else built


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _jsonable(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(part) for part in value]
    if isinstance(value, (np.ndarray, jax.Array)):
        return _jsonable(np.asarray(value).tolist())
    if isinstance(value, (np.floating, float)):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value if value is None or isinstance(value, (str, int, bool)) else repr(value)
