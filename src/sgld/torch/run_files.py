"""A run of `sgld.torch.sample` on disk, in a run directory: sealed arrays and JSON, never a pickle.

run.json         what was asked, and SHA-256 of the rows and of what is not sampled
setup.npz        the probe rows, and the weights that chains start around; next-ID.npz until they are tuned
checkpoint.npz   chains, metric, generator, and all that was kept so far
draws.npz        the weights of a finished run's draws, [chain, draw, d]
result.json      its verdict: the run is finished
"""

from __future__ import annotations

import hashlib
import math
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.files import exists, reading
from ..errors import RunError, UsageError
from ..inference.sink import Positions
from ..results.run_directory import RunDirectory, no_run
from ..results.verdict import Verdict
from .chains import Chains, Lengths, Record
from .dynamics import Motion, Order, State
from .monitor import say
from .rows import Inputs, Rows, as_inputs, named_leaves
from .target import Target, Weights
from .tuning import Asked, generator_of

TORCH_KIND = "torch"
RUN_STREAM = 15  # the stream of the rows' order and of the noise of a run
MAX_LOSS_DIFFERENCE = 1e-4  # of a few rows, to rounding on another machine
CHANGED_PARTS = {
    "weights": "other parameters to sample",
    "rest": "other values of the module's other parameters or buffers",
    "rows": "another data set",
}
CHECKPOINT_RATIO = 20  # a checkpoint is written at most once in so many times as it took


@dataclass(frozen=True)
class Found:
    """A finished run: weights [chain, draw, d], their names, the verdict, facts."""

    weights: np.ndarray
    names: tuple[str, ...]
    verdict: Verdict
    info: dict[str, Any]


@dataclass
class Files:
    """Where a run is written to; nowhere without a directory."""

    directory: RunDirectory | None
    every: float
    _due: float = field(default=0.0, init=False)
    _new: bool = field(default=False, init=False)  # whether it began here, and has no setup.npz

    def begin(self, target: Target, asked: Asked, probe: Inputs, overwrite: bool) -> None:
        """Make the directory, hold it, and write what was asked."""
        if self.directory is None:
            return
        self.directory.create(overwrite)
        self.directory.lock()
        self._new = True
        self.directory.begin({
            "kind": TORCH_KIND, "asked": asdict(asked), "checkpoint_every": self.every,
            "prior": target.prior.to_dict(), **_digests(target.likelihood.model, target.weights, target.rows),
        }, _given(target, probe))  # fmt: skip

    def planned(self, chains: Chains) -> None:
        """Write the given arrays and the first checkpoint; only then is a replaced run removed."""
        if self.directory is not None:
            given = _given(chains.motion.target, chains.probe)
            self.directory.write_arrays("setup.npz", {}, given)
            self._new = False
            self.save(chains, True)

    def save(self, chains: Chains, now: bool) -> None:
        """Write a checkpoint if one is due or has to be written `now`."""
        began = time.monotonic()
        if self.directory is None or (began < self._due and not now):
            return
        write_checkpoint(self.directory, chains)
        self._due = began + max(self.every, CHECKPOINT_RATIO * (time.monotonic() - began))

    def finish(self, found: Found) -> None:
        """Write draws, and then the result, which makes it a finished run."""
        if self.directory is None:
            return
        self.directory.write_arrays("draws.npz", {}, {"weights": found.weights})
        result = {
            "names": list(found.names), "verdict": found.verdict.to_dict(), "info": found.info,
        }  # fmt: skip
        self.directory.write("result.json", result)
        self.directory.remove_chunks()

    def close(self, *, failed: bool) -> None:
        """Give the directory back; of a call that failed before there was anything to go on from nothing is left."""
        if self.directory is None:
            return
        if failed and self._new:
            self.directory.discard()
        self.directory.unlock()


def of_torch(directory: RunDirectory) -> dict[str, Any]:
    """Read run.json; RunError if the run is not one of sgld.torch."""
    begun = directory.begun()
    if begun.get("kind") != TORCH_KIND:
        raise RunError(f"{directory.path} is no run of sgld.torch; use sgld.load or sgld.resume.")
    return begun


def finished_run(directory: RunDirectory, model: torch.nn.Module) -> Found:
    """Read what `Files.finish` wrote; RunError for an unfinished run, UsageError for another frozen trunk."""
    if not directory.path.is_dir():
        raise no_run(directory.path)
    begun = of_torch(directory)
    if not directory.finished():
        raise RunError(f"{directory.path} is not finished; {directory.remedy()}")
    said = directory.said_of_next()
    if said is not None:
        say(said)
    result, found = directory.read("result.json"), directory.read_arrays("draws.npz")
    if found is None:
        raise RunError(f"{directory.path / 'draws.npz'} is missing; make the run again.")
    with reading(directory.path):
        ran = Found(
            found[1]["weights"], tuple(result["names"]), Verdict.from_dict(result["verdict"]),
            dict(result["info"]),
        )  # fmt: skip
    if set(ran.names) <= {name for name, _ in model.named_parameters()}:
        _check_same(directory.path, "rest", begun, _rest(model, ran.names))
    return ran


def tidied(directory: RunDirectory) -> Path:
    """Return the path of a finished run, without the files that a killed process left there."""
    if exists(directory.path / "checkpoint.npz"):
        with suppress(RunError, OSError), directory:  # in use, or not to be written
            directory.remove_chunks()
    return directory.path


def check_unchanged(
    path: Path, begun: dict[str, Any], model: torch.nn.Module, weights: Weights, rows: Rows
) -> None:
    """Raise UsageError if model or data set are not those that the run was begun with."""
    for name, value in _digests(model, weights, rows).items():
        _check_same(path, name, begun, value)


def _check_same(path: Path, name: str, begun: dict[str, Any], value: Any) -> None:
    if begun.get(name) != value:
        raise UsageError(f"{path} was begun with {CHANGED_PARTS[name]}; give the same.")


def _digests(model: torch.nn.Module, weights: Weights, rows: Rows) -> dict[str, Any]:
    return {
        "weights": weights.described(),
        "rest": _rest(model, weights.names),
        "rows": rows.digest(),
    }


def _rest(model: torch.nn.Module, names: tuple[str, ...]) -> str:
    """Return the SHA-256 digest of all of the module that is not sampled; a tied parameter has several keys."""
    sampled = {id(p) for name, p in model.named_parameters() if name in names}
    found = hashlib.sha256()
    for key, value in sorted(model.state_dict(keep_vars=True).items()):
        if id(value) in sampled or not isinstance(value, torch.Tensor):
            continue
        bits = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        found.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        found.update(bits.numpy().tobytes())
    return found.hexdigest()


def _given(target: Target, probe: Inputs) -> dict[str, np.ndarray]:
    """Return the arrays that `read_given` reads."""
    leaves = {f"probe.{name}": _array(leaf) for name, leaf in named_leaves(probe).items()}
    return {"start": _array(target.start), **leaves}


def read_given(
    directory: RunDirectory, start: torch.Tensor, probe: Inputs
) -> tuple[torch.Tensor, Inputs]:
    """Read the weights and the probe rows that the run was begun with, in the form of the given ones."""
    found = directory.given()
    if "start" not in found:
        raise _of_another_release(directory)
    named = named_leaves(probe)
    with reading(directory.path):
        leaves = {name: _tensor(found[f"probe.{name}"], leaf) for name, leaf in named.items()}
        start = _tensor(found["start"], start).reshape(start.shape)
    return start, as_inputs(leaves, probe)


def _of_another_release(directory: RunDirectory) -> RunError:
    return RunError(f"{directory.path} was begun by another release of sgld; make the run again.")


def write_checkpoint(directory: RunDirectory, chains: Chains) -> None:
    """Write all that `read_checkpoint` needs to continue bit for bit."""
    motion, record = chains.motion, chains.record
    head = {
        "h": motion.h, "batch_size": motion.order.batch_size, "lengths": asdict(chains.lengths),
        "wanted": chains.wanted, "began": chains.began, "step": chains.step, "tried": chains.tried,
        "every": record.positions.every, "room": record.positions.room,
        "loss": motion.target.loss_at(chains.starts[0]),
    }  # fmt: skip
    arrays = {
        "z": chains.state.z, "p": chains.state.p, "root": motion.root,
        "directions": chains.directions, "starts": chains.starts, "noise": motion.noise.get_state(),
    }  # fmt: skip
    held = record.positions.between(0, record.count)
    kept = {"predicted": record.predicted, "kinetic": record.kinetic}
    kept |= {} if held is None else {"weights": held[1]}
    directory.write_checkpoint(head, {
        **{name: _array(value) for name, value in arrays.items()},
        **{name: np.array(values) for name, values in kept.items() if len(values)},
        "failed_at": record.failed_at,
    })  # fmt: skip


def read_checkpoint(
    directory: RunDirectory, target: Target, asked: Asked, probe: Inputs
) -> Chains | None:
    """Read the chains as they were last written, or None if they never were."""
    found = directory.read_checkpoint()
    if found is None:
        return None
    head, arrays = found
    columns = (len(target.weights.layers.sizes) + 2,)
    if "wanted" not in head or ("kinetic" in arrays and arrays["kinetic"].shape[2:] != columns):
        raise _of_another_release(directory)
    with reading(directory.path / "checkpoint.npz"):
        begun = float(head["loss"])
        there = target.loss_at(torch.from_numpy(arrays["starts"][0].copy()).to(target.prior.scale))
    if not math.isclose(begun, there, rel_tol=MAX_LOSS_DIFFERENCE, abs_tol=MAX_LOSS_DIFFERENCE):
        raise UsageError(
            f"{directory.path} was begun with another loss: of a few rows at the same weights it was {begun:.6g} in all, "
            f"and is {there:.6g}; give the same."
        )
    with reading(directory.path / "checkpoint.npz"):
        place = lambda name: torch.from_numpy(arrays[name].copy()).to(target.prior.scale)  # noqa: E731
        noise = generator_of(asked.seed, RUN_STREAM, target.weights.device)
        noise.set_state(torch.from_numpy(arrays["noise"].copy()))
        order = Order(target.rows, asked.chains, head["batch_size"], asked.seed, RUN_STREAM)
        motion = Motion(target, order, place("root"), float(head["h"]), noise)
        positions = Positions(int(head["room"]))
        positions.every = int(head["every"])
        if "weights" in arrays:
            numbers = np.arange(len(arrays["weights"])) * positions.every
            positions.put_back(numbers, arrays["weights"])
        kept = (
            list(arrays[name].copy()) if name in arrays else [] for name in ("predicted", "kinetic")
        )
        record = Record(positions, arrays["failed_at"].copy(), *kept)
        return Chains(
            motion, State(place("z"), place("p")), probe, place("directions"),
            place("starts"), Lengths(**head["lengths"]), record,
            **{name: int(head[name]) for name in ("wanted", "began", "step", "tried")},
        )  # fmt: skip


def _array(value: torch.Tensor) -> np.ndarray:
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def _tensor(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(array.copy()).to(like.device, like.dtype)
