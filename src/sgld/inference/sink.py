"""Storage of kept draws, and measurement of the phase along a run.

Kept draws are one array each in memory, chunks of bounded bytes on disk, and the checkpoint.
Positions are held for as many draws as there is room for.

The phase of every chain is measured along a run at fixed steps between chunks. A probe takes
gradients of single rows and the largest eigenvalue of their covariance. The number of probes of a
run follows from counted operations, never from the clock: MAX_PROBES if their cost is negligible,
otherwise as many as take a small share of the run's own gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..core.devices import first_differing_process, like, on_host, raise_together, sent
from ..diagnostics.exact_rule import Trajectories
from ..diagnostics.function_space.predictions import Kind
from ..diagnostics.gradient_noise import noise_level, probe_cost, rows_for
from ..errors import RunError
from ..results.run_directory import RunDirectory
from ..results.verdict import Phase
from ..samplers.confined_hmc import State as Confined
from ..samplers.gradients.full import Full
from ..samplers.hmc import State as Hamiltonian
from .chunk import Carry, Kept, Kernel
from .kept import BatchMoments

# -- positions -----------------------------------------------------------------------------


RESERVE_FACTOR = 4  # room per expected draw, so that a prolonged run copies nothing


def with_room(
    held: np.ndarray | None, count: int, end: int, like: np.ndarray, most: float = math.inf
) -> np.ndarray:
    """Return `held`, or a larger copy with its first `count` rows if `end` rows do not fit.

    The copy has room for at most `most` rows. The operating system commits memory only when it is
    written to.
    """
    if held is not None and end <= len(held):
        return held
    ahead = max(end, int(min(RESERVE_FACTOR * end, most)))
    try:
        larger = np.empty((ahead, *like.shape[1:]), like.dtype)
    except MemoryError:  # some systems grant no more than they have
        larger = np.empty((end, *like.shape[1:]), like.dtype)
    if held is not None:
        larger[:count] = held[:count]
    return larger


def halve(values: np.ndarray, count: int) -> int:
    """Move every second of `count` rows to the front, from the first on, and return their number.

    The rows move in pieces that do not overlap, because NumPy would copy overlapping ones.
    """
    left, begin = -(-count // 2), 1
    while begin < left:
        end = min(2 * begin, left)
        values[begin:end] = values[2 * begin : 2 * end - 1 : 2]
        begin = end
    return left


class Positions:
    """Positions of all draws until room runs out, then of every second draw, and so on.

    Attributes:
      room: number of draws whose positions fit, at least 2.
      every: draws from one held position to the next, a power of 2; the first draw is held.
      count: number of held positions.
    """

    def __init__(self, room: float) -> None:
        self.room, self.every, self.count = room, 1, 0
        self._values: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the position of one draw, or None if there is none yet."""
        return None if self._values is None else self._values.shape[1:]

    def take(self, first: int, z: np.ndarray, expected: int = 0) -> None:
        """Append positions [draw, ...] of draws from number `first` on; `expected` in all."""
        while (begin := self.count * self.every - first) < len(z):
            if self.count >= self.room:
                self._thin_out()
                continue
            due = z[begin :: self.every]
            self._put(due[: int(min(len(due), self.room - self.count))], expected)

    def put_back(self, numbers: np.ndarray, z: np.ndarray, expected: int = 0) -> None:
        """Restore held positions of the draws with these numbers, as far as they are still held.

        Raises ValueError for other draws.
        """
        left = numbers % self.every == 0
        due = (self.count + np.arange(int(left.sum()))) * self.every
        if len(numbers) != len(z) or not np.array_equal(numbers[left], due):
            raise ValueError(
                f"positions of the draws {numbers.tolist()[:3]}..., not of {due.tolist()[:3]}..."
            )
        self._put(z[left], expected)

    def check(self, draws: int) -> None:
        """Raise ValueError unless the positions are those that `take` holds of so many draws."""
        few = self.every > 1 and self.count < 8  # less than half of the smallest room
        wrong = self._values is not None and self.count != -(-draws // self.every)
        if wrong or few or self.every & (self.every - 1):
            raise ValueError(f"{self.count} positions of {draws} draws, every {self.every}-th")

    def drop_draws(self) -> None:
        """Adapt to the removal of every second draw: the remaining draws are numbered from 0."""
        if self.every > 1:
            self.every //= 2
        elif self._values is not None:
            self.count = halve(self._values, self.count)

    def between(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return numbers and positions of the held draws from `first` up to `end`."""
        if self._values is None:
            return None
        begin, stop = (min(self.count, -(-draw // self.every)) for draw in (first, end))
        return np.arange(begin, stop) * self.every, self._values[begin:stop]

    def _put(self, z: np.ndarray, expected: int) -> None:
        end = self.count + len(z)
        sure = max(end, int(min(expected, self.room)))
        self._values = with_room(self._values, self.count, sure, z, self.room)
        self._values[self.count : end] = z
        self.count = end

    def _thin_out(self) -> None:
        assert self._values is not None
        self.count, self.every = halve(self._values, self.count), 2 * self.every


# -- phases --------------------------------------------------------------------------------


MAX_PROBES = 16  # probes of a run of the planned length; a longer run has some more
PROBE_SHARE = 0.03  # share of the run's own row gradients that the probes of each chain may cost
# row gradients x parameters that probes may cost in any case: a fraction of a second
FREE_PROBE_WORK = 2**26


class Phases:
    """Gradient noise at steps that depend on the plan alone, never on where chunks end."""

    def __init__(self, kernel: Kernel, seed: int, num_steps: int) -> None:
        self.kernel, self.seed = kernel, seed
        # for networks the probe measures more, and gradients of single rows cost too much
        exact = not kernel.problem.has_rows or isinstance(kernel.gradient, Full)
        self.silent = exact or kernel.probe is not None
        self.probes = 1 if self.silent else _affordable(kernel, num_steps)
        self.every = max(1, -(-num_steps // kernel.block) // self.probes) * kernel.block
        self.steps: list[int] = []
        self.levels: list[np.ndarray] = []

    def next_after(self, step: int) -> int:
        """Return the first step after `step` to measure; rarer beyond the planned length."""
        if self.silent:
            return 2**62
        block, growth = self.kernel.block, 1 + step // (2 * self.probes * self.every)
        spacing = self.every * growth
        return max(step + block, (step // spacing + 1) * spacing)

    def visit(self, carry: Carry, step: int) -> None:
        """Measure the gradient noise if it is due at `step`."""
        due = not self.steps or self.next_after(self.steps[-1]) <= step
        if due and not self.silent:
            self._measure(carry, step)

    def ended(self, carry: Carry, step: int) -> Phase | None:
        """Return the whole record, with the run's last step."""
        if self.silent:
            return None
        if self.steps[-1] != step:
            self._measure(carry, step)
        kernel = self.kernel
        steps = np.asarray(self.steps, np.int64)
        after = np.maximum(steps - int(kernel.burn_in), 0)
        h, T = (
            np.array([float(schedule(sent(t, np.int32))) for t in after])
            for schedule in (kernel.step_size, kernel.temperature)
        )
        return Phase(steps, h, T, np.stack(self.levels))

    def _measure(self, carry: Carry, step: int) -> None:
        kernel = self.kernel
        rows = rows_for(kernel.problem, self.seed, step)
        level = noise_level(
            kernel.problem, kernel.gradient, kernel.preconditioner,
            carry.state.position, carry.gradient, carry.metric, sent(rows),
        )  # fmt: skip
        self.steps.append(step)
        self.levels.append(np.asarray(level, np.float64))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that a checkpoint keeps."""
        if self.silent:
            return {}
        return {"phase_step": np.asarray(self.steps), "phase_level": np.stack(self.levels)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Restore the record of a checkpoint."""
        if not self.silent:
            self.steps = arrays["phase_step"].tolist()
            self.levels = list(arrays["phase_level"])


def _affordable(kernel: Kernel, num_steps: int) -> int:
    """Return the number of probes of a run of `num_steps` steps, without the two at its ends."""
    d = kernel.problem.dimension
    own = num_steps * kernel.problem.source.batch_size
    return int(
        np.clip(
            (PROBE_SHARE * own + FREE_PROBE_WORK / d) / probe_cost(kernel.problem), 1, MAX_PROBES
        )
    )


# -- sink ----------------------------------------------------------------------------------


CHUNK_NUMBERS = 2**16  # approximate numbers of a chunk on disk
MIN_CHUNK_DRAWS, MAX_CHUNK_NUMBERS = 256, 2**22  # draws of a chunk of long draws, and its numbers
VALUE_PREFIX = "value"  # prefix of the names of the leaves of a kept function's result
HELD_KEY = "held"  # numbers of the draws whose positions are held


def chunk_rows(shape: tuple[int, ...]) -> int:
    """Return the number of draws per chunk on disk, for arrays whose draws have this shape."""
    width = max(1, math.prod(shape))
    few = min(MIN_CHUNK_DRAWS, MAX_CHUNK_NUMBERS // width)
    return max(1, few, CHUNK_NUMBERS // width)


@dataclass(frozen=True)
class Raw:
    """Kept draws: leading axis draw, then chain; None for what was not kept.

    Attributes:
      z, gradient: in free coordinates; if `held` is not None, z covers only the draws it numbers.
      value: the leaves of what `keep` returned.
      predicted, kinetic: for runs judged by predictions
        (diagnostics/function_space/temperature.py); kind: their kind.
      last: [chain, d], the present positions of the chains.
      moments: moments of the draws, if only moments were kept.
      trajectories: energy statistics of the trajectories of Hamiltonian Monte Carlo.
      every: multiple of the planned thinning that lies between draws.
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
    """Draws so far, in arrays with room for those to come, so that a draw is copied once.

    Positions are held for at most `most_positions` draws.
    """

    def __init__(
        self, directory: RunDirectory | None, kind: Kind | None, most_positions: float = math.inf
    ) -> None:
        self.directory = directory
        self.positions = Positions(most_positions)
        self.kind: Kind | None = kind
        self.room = 0  # draws
        self.rows: dict[str, np.ndarray] = {}
        self.count = 0
        self.every = 1  # original draws per kept draw
        self.flushed = 0
        self.chunks: list[list[int]] = []  # on disk: [first draw, end]

    def append(self, rows: dict[str, np.ndarray]) -> None:
        """Append draws [draw, chain, ...]; whole chunks go to disk."""
        self._take(rows)
        if self.directory is None:
            return
        per_chunk = self._per_chunk()
        if self.count - self.flushed >= per_chunk:
            with raise_together():
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

    def restore_draws(self, first: int, rows: dict[str, np.ndarray]) -> None:
        """Restore draws from `first` on, in the form that `_between` returns."""
        z, numbers = rows.pop("z", None), rows.pop(HELD_KEY, None)
        self._take(rows)
        if z is not None:
            numbers = np.arange(first, self.count) if numbers is None else numbers
            self.positions.put_back(numbers, z, self.room)

    def halve(self) -> None:
        """Keep every second draw, starting with the first."""
        for values in self.rows.values():
            halve(values, self.count)
        self.positions.drop_draws()
        self.count, self.every = -(-self.count // 2), 2 * self.every

    def _between(self, first: int, end: int) -> dict[str, np.ndarray]:
        rows = {name: values[first:end] for name, values in self.rows.items()}
        found = self.positions.between(first, end)
        if found is not None:
            rows[HELD_KEY], rows["z"] = found
        return rows

    def _per_chunk(self) -> int:
        """Return the draws of a chunk, limited by the positions that it holds."""
        few = [chunk_rows(values.shape[1:]) for values in self.rows.values()]
        width = self.positions.shape
        if width is not None:
            few.append(self.positions.every * chunk_rows(width))
        return min(few)

    def checkpoint(self, carry: Carry, phases: Phases, digest: str) -> None:
        """Write the carry, and the draws that do not fill a chunk yet."""
        assert self.directory is not None
        arrays = {f"carry{i}": on_host(leaf) for i, leaf in enumerate(jax.tree.leaves(carry))}
        pending = self._between(self.flushed, self.count)
        arrays |= {f"pending_{name}": values for name, values in pending.items()}
        head = {"kernel": digest, "chunks": self.chunks, "every": self.positions.every}
        with raise_together():
            self.directory.write_checkpoint(head, {**arrays, **phases.arrays()})

    def raw(self, num_draws: int, carry: Carry, num_steps: int) -> Raw:
        """Return the first `num_draws` draws."""
        rows: dict[str, Any] = self._between(0, num_draws)
        leaves = sorted(
            (n for n in rows if n.startswith(VALUE_PREFIX)),
            key=lambda n: int(n[len(VALUE_PREFIX) :]),
        )
        value = tuple(rows.pop(name) for name in leaves)
        held, z = rows.pop(HELD_KEY, None), rows.pop("z", None)
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
    """Return the first `count` draws of a chunk from the buffers of the compiled function."""
    rows = {
        name: on_host(values)[:count]
        for name, values in kept._asdict().items()
        if values is not None and name != VALUE_PREFIX
    }
    leaves = jax.tree.leaves(kept.value)
    return rows | {f"{VALUE_PREFIX}{i}": on_host(leaf)[:count] for i, leaf in enumerate(leaves)}


def restore(sink: Sink, carry: Carry, phases: Phases, digest: str) -> Carry:
    """Return the carry of the last checkpoint and restore its draws; without one, return `carry`.

    Raises RunError unless all processes find the same state. Otherwise they would diverge or wait
    forever.
    """
    directory = sink.directory
    if directory is None:
        return carry
    with raise_together():
        found = directory.read_checkpoint()
        if found is not None:
            carry = _restored(sink, carry, phases, digest, directory, *found)
        step, run = int(carry.step), directory.id
    other = first_differing_process(f"{run} {directory.attempt} {step} {sink.count}")
    if other is not None:
        raise RunError(
            f"processes 0 and {other} found different states of {directory.path} (here attempt "
            f"{directory.attempt + 1}, step {step:,}); give all processes the same directory on a shared file system."
        )
    return carry


def _restored(
    sink: Sink, carry: Carry, phases: Phases, digest: str, directory: RunDirectory,
    head: dict[str, Any], arrays: dict[str, np.ndarray],
) -> Carry:  # fmt: skip
    # other versions round differently: the same plan gives the same numbers up to rounding
    if head.get("kernel") != digest and not directory.elsewhere:
        raise RunError(
            f"{directory.path} was begun with other numbers (step size, preconditioner or starts) than "
            "this machine and these versions compute, so it cannot continue bit for bit; run it again."
        )
    try:
        restored = _carry(carry, arrays, directory)
        phases.restore(arrays)
        sink.positions.every = max(1, int(head.get("every", 1)))
        for first, end in head["chunks"]:
            sink.restore_draws(first, directory.read_chunk(first, end))
            sink.chunks.append([first, end])
        sink.flushed = sink.count
        pending = {k[len("pending_") :]: v for k, v in arrays.items() if k.startswith("pending_")}
        if pending:
            sink.restore_draws(sink.count, pending)
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
                f"{directory.path} was begun with {new.shape} {new.dtype}, and this run has "
                f"{old.shape} {old.dtype}; resume with the original model and chains."
            )
    return treedef.unflatten([like(new, old) for new, old in zip(found, leaves, strict=True)])
