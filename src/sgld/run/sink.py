"""Where kept draws go: one array each in memory, chunks of bounded bytes on disk, the checkpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..core.devices import differing, like, on_host, together
from ..diagnostics.exact_rule import Trajectories
from ..diagnostics.function_space.predictions import Kind
from ..errors import RunError
from ..results.run_directory import RunDirectory
from ..results.verdict import Phase
from ..samplers.confined_hmc import State as Confined
from ..samplers.hmc import State as Hamiltonian
from .chunk import Carry, Kept
from .moments import BatchMoments
from .phases import Phases
from .positions import Positions, halve, with_room

__all__ = ["Raw", "Sink", "restore", "rows_of"]

NUMBERS_PER_CHUNK = 2**16  # about, of a chunk on disk; of long draws more:
FEWEST_PER_CHUNK, MOST_NUMBERS = 256, 2**22  # so many draws, but of no more numbers than that
VALUE = "value"  # what begins the names of the leaves of a kept function's result
HELD = "held"  # numbers of the draws whose positions are


def chunk_rows(shape: tuple[int, ...]) -> int:
    """Draws per chunk on disk, of arrays whose draws have this shape."""
    width = max(1, math.prod(shape))
    few = min(FEWEST_PER_CHUNK, MOST_NUMBERS // width)
    return max(1, few, NUMBERS_PER_CHUNK // width)


@dataclass(frozen=True)
class Raw:
    """Kept draws: leading axis draw, then chain; None for what was not kept.

    Attributes:
      z, gradient: in free coordinates; z of the draws with the numbers `held` alone, where it is not None.
      value: the leaves of what `keep` returned.
      predicted, kinetic: of runs that are judged by predictions (diagnostics/function_space/temperature.py); kind: what those are.
      last: [chain, d], where the chains are now.
      moments: of the draws, where they alone were kept.
      trajectories: what those of Hamiltonian Monte Carlo say of their energies.
      every: times the planned thinning, which lie between draws.
    """

    z: np.ndarray | None
    step_size: np.ndarray
    temperature: np.ndarray
    failed_at: np.ndarray
    num_steps: int
    gradient: np.ndarray | None = None
    value: tuple[np.ndarray, ...] = ()
    predicted: np.ndarray | None = None
    kinetic: np.ndarray | None = None
    kind: Kind | None = None
    last: np.ndarray | None = None
    moments: BatchMoments | None = None
    phase: Phase | None = None
    out_of_time: bool = False
    trajectories: Trajectories | None = None
    every: int = 1
    held: np.ndarray | None = None

    @property
    def num_draws(self) -> int:
        """Draws of each chain."""
        return len(self.step_size)


class Sink:
    """The draws so far, in arrays with room for those to come: a draw is copied once.

    Of their positions those of `most_positions` draws at most.
    """

    def __init__(
        self, directory: RunDirectory | None, kind: Kind | None, most_positions: float = math.inf
    ) -> None:
        self.directory = directory
        self.positions = Positions(most_positions)
        self.kind: Kind | None = kind
        self.room = 0  # for so many draws
        self.rows: dict[str, np.ndarray] = {}
        self.count = 0
        self.every = 1  # draws that one of them stands for
        self.flushed = 0
        self.chunks: list[list[int]] = []  # on disk: [first draw, end]

    def append(self, rows: dict[str, np.ndarray]) -> None:
        """Take draws [draw, chain, ...]; whole chunks go to disk."""
        self._take(rows)
        if self.directory is None:
            return
        per_chunk = self._per_chunk()
        if self.count - self.flushed >= per_chunk:
            with together():
                self._flush(self.directory, per_chunk)

    def _flush(self, directory: RunDirectory, per_chunk: int) -> None:
        while self.count - self.flushed >= per_chunk:
            end = self.flushed + per_chunk
            directory.write_chunk(self.flushed, end, self._between(self.flushed, end))
            self.chunks.append([self.flushed, end])
            self.flushed = end

    def _take(self, rows: dict[str, np.ndarray]) -> None:
        end = self.count + len(rows["step_size"])
        for name, values in rows.items():
            if name == "z":
                self.positions.take(self.count, values, self.room)
                continue
            held = with_room(self.rows.get(name), self.count, max(end, self.room), values)
            self.rows[name] = held
            held[self.count : end] = values
        self.count = end

    def take_back(self, first: int, rows: dict[str, np.ndarray]) -> None:
        """Draws from `first` on, as `_between` gave them."""
        z, numbers = rows.pop("z", None), rows.pop(HELD, None)
        self._take(rows)
        if z is not None:
            numbers = np.arange(first, self.count) if numbers is None else numbers
            self.positions.put_back(numbers, z, self.room)

    def halve(self) -> None:
        """Keep every second draw, from the first on."""
        for values in self.rows.values():
            halve(values, self.count)
        self.positions.drop_draws()
        self.count, self.every = -(-self.count // 2), 2 * self.every

    def _between(self, first: int, end: int) -> dict[str, np.ndarray]:
        rows = {name: values[first:end] for name, values in self.rows.items()}
        found = self.positions.between(first, end)
        if found is not None:
            rows[HELD], rows["z"] = found
        return rows

    def _per_chunk(self) -> int:
        """Draws of a chunk, each with its position, or those with so many of them without."""
        few = [chunk_rows(values.shape[1:]) for values in self.rows.values()]
        width = self.positions.shape
        if width is not None:
            few.append(self.positions.every * chunk_rows(width))
        return min(few)

    def checkpoint(self, carry: Carry, phases: Phases, digest: str) -> None:
        """Write the carry, and the draws that fill no chunk yet."""
        assert self.directory is not None
        arrays = {f"carry{i}": on_host(leaf) for i, leaf in enumerate(jax.tree.leaves(carry))}
        pending = self._between(self.flushed, self.count)
        arrays |= {f"pending_{name}": values for name, values in pending.items()}
        head = {"kernel": digest, "chunks": self.chunks, "every": self.positions.every}
        with together():
            self.directory.write_checkpoint(head, {**arrays, **phases.arrays()})

    def raw(self, num_draws: int, carry: Carry, num_steps: int) -> Raw:
        """The first `num_draws` draws."""
        rows: dict[str, Any] = self._between(0, num_draws)
        leaves = sorted(
            (n for n in rows if n.startswith(VALUE)), key=lambda n: int(n[len(VALUE) :])
        )
        value = tuple(rows.pop(name) for name in leaves)
        held, z = rows.pop(HELD, None), rows.pop("z", None)
        state = jax.tree.map(on_host, carry.state)
        return Raw(
            z, **rows, held=None if self.positions.every == 1 else held,
            failed_at=on_host(carry.failed_at), num_steps=num_steps, value=value,
            last=np.array(state.position), moments=jax.tree.map(on_host, carry.moments),
            trajectories=_trajectories(state), every=self.every, kind=self.kind,
        )  # fmt: skip


def _trajectories(state: Any) -> Trajectories | None:
    if isinstance(state, Confined):
        return Trajectories.within(state, state.position.shape[1])
    if not isinstance(state, Hamiltonian):
        return None
    return Trajectories.of(state, state.position.shape[1])


def rows_of(kept: Kept, count: int) -> dict[str, np.ndarray]:
    """The first `count` draws of a chunk, as the compiled function's buffers hold them."""
    rows = {
        name: on_host(values)[:count]
        for name, values in kept._asdict().items()
        if values is not None and name != VALUE
    }
    leaves = jax.tree.leaves(kept.value)
    return rows | {f"{VALUE}{i}": on_host(leaf)[:count] for i, leaf in enumerate(leaves)}


def restore(sink: Sink, carry: Carry, phases: Phases, digest: str) -> Carry:
    """The carry and the draws of the last checkpoint, or the fresh carry where there is none.

    RunError unless all processes find the same: they would step on apart, or wait for ever.
    """
    directory = sink.directory
    if directory is None:
        return carry
    with together():
        found = directory.read_checkpoint()
        if found is not None:
            carry = _restored(sink, carry, phases, digest, directory, *found)
        step, run = int(carry.step), directory.id
    other = differing(f"{run} {directory.attempt} {step} {sink.count}")
    if other is not None:
        raise RunError(
            f"processes 0 and {other} found different states of {directory.path} (here attempt "
            f"{directory.attempt + 1}, step {step:,}); give all the same directory, on a file system that all see."
        )
    return carry


def _restored(
    sink: Sink, carry: Carry, phases: Phases, digest: str, directory: RunDirectory,
    head: dict[str, Any], arrays: dict[str, np.ndarray],
) -> Carry:  # fmt: skip
    # other versions round otherwise: the same plan gives the same numbers up to that
    if head.get("kernel") != digest and not directory.elsewhere:
        raise RunError(
            f"{directory.path} was begun with other numbers (step size, preconditioner or starts) than "
            "this machine and these versions give, so it cannot go on to the same bits; run it again."
        )
    try:
        restored = _carry(carry, arrays, directory)
        phases.restore(arrays)
        sink.positions.every = max(1, int(head.get("every", 1)))
        for first, end in head["chunks"]:
            sink.take_back(first, directory.read_chunk(first, end))
            sink.chunks.append([first, end])
        sink.flushed = sink.count
        pending = {k[len("pending_") :]: v for k, v in arrays.items() if k.startswith("pending_")}
        if pending:
            sink.take_back(sink.count, pending)
        sink.positions.check(sink.count)
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{directory.path / 'checkpoint.npz'} is damaged: {error!r}; delete it to sample again from "
            "the first step."
        ) from error
    return restored


def _carry(carry: Carry, arrays: dict[str, np.ndarray], directory: RunDirectory) -> Carry:
    leaves, treedef = jax.tree.flatten(carry)
    found = [arrays[f"carry{i}"] for i in range(len(leaves))]
    for new, old in zip(found, leaves, strict=True):
        if new.shape != old.shape or new.dtype != old.dtype:
            raise RunError(
                f"{directory.path} was begun with {new.shape} {new.dtype} where this run has "
                f"{old.shape} {old.dtype}; resume with the model and chains it was begun with."
            )
    return treedef.unflatten([like(new, old) for new, old in zip(found, leaves, strict=True)])
