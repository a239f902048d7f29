"""Where kept draws go: one array each in memory, chunks of bounded bytes on disk, the checkpoint.

Positions of a run's draws, as many as there is room for.

The phase of every chain, measured along a run at fixed steps between chunks.

A probe takes gradients of single rows and the largest eigenvalue of their covariance. How many a
run has follows from counted operations, never from the clock: all of MAX_PROBES where they cost
nothing to speak of, else as many as take a small share of the run's own gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..core.devices import differing, like, on_host, sent, together
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


RESERVE_FACTOR = 4  # times what is expected, which there is room for: a prolonged run copies none


def with_room(
    held: np.ndarray | None, count: int, end: int, like: np.ndarray, most: float = math.inf
) -> np.ndarray:
    """`held`, or where `end` rows are too many for it an array for more, `most` at most, that begins with its first `count`.

    Memory is the operating system's to give, and it gives what is written to.
    """
    if held is not None and end <= len(held):
        return held
    ahead = max(end, int(min(RESERVE_FACTOR * end, most)))
    try:
        larger = np.empty((ahead, *like.shape[1:]), like.dtype)
    except MemoryError:  # where it gives no more than there is
        larger = np.empty((end, *like.shape[1:]), like.dtype)
    if held is not None:
        larger[:count] = held[:count]
    return larger


def halve(values: np.ndarray, count: int) -> int:
    """Move every second of `count` rows to the front, from the first on; how many those are.

    In pieces that do not overlap, which NumPy would copy.
    """
    left, begin = -(-count // 2), 1
    while begin < left:
        end = min(2 * begin, left)
        values[begin:end] = values[2 * begin : 2 * end - 1 : 2]
        begin = end
    return left


class Positions:
    """Those of all draws until there is no more room, then of every second one, and so on.

    Attributes:
      room: for those of so many draws, at least 2.
      every: draws from one that is held to the next, a power of 2; the first draw is held.
      count: how many are held.
    """

    def __init__(self, room: float) -> None:
        self.room, self.every, self.count = room, 1, 0
        self._values: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of a draw's, None before there is one."""
        return None if self._values is None else self._values.shape[1:]

    def take(self, first: int, z: np.ndarray, expected: int = 0) -> None:
        """Positions [draw, ...] of the draws `first`, `first` + 1, ...; so many are `expected` in all."""
        while (begin := self.count * self.every - first) < len(z):
            if self.count >= self.room:
                self._thin_out()
                continue
            due = z[begin :: self.every]
            self._put(due[: int(min(len(due), self.room - self.count))], expected)

    def put_back(self, numbers: np.ndarray, z: np.ndarray, expected: int = 0) -> None:
        """Those of draws with these numbers that were held, as far as they still are. Raises ValueError for others."""
        left = numbers % self.every == 0
        due = (self.count + np.arange(int(left.sum()))) * self.every
        if len(numbers) != len(z) or not np.array_equal(numbers[left], due):
            raise ValueError(
                f"positions of the draws {numbers.tolist()[:3]}..., not of {due.tolist()[:3]}..."
            )
        self._put(z[left], expected)

    def check(self, draws: int) -> None:
        """Raises ValueError unless those of so many draws are held as `take` would hold them."""
        few = self.every > 1 and self.count < 8  # half of the least room are there
        wrong = self._values is not None and self.count != -(-draws // self.every)
        if wrong or few or self.every & (self.every - 1):
            raise ValueError(f"{self.count} positions of {draws} draws, every {self.every}-th")

    def drop_draws(self) -> None:
        """Every second draw is gone, and those that are left are counted anew."""
        if self.every > 1:
            self.every //= 2
        elif self._values is not None:
            self.count = halve(self._values, self.count)

    def between(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Numbers of the draws from `first` up to `end` whose positions are held, and those."""
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


MAX_PROBES = 16  # of a run of the planned length, at most; a longer one has some more
PROBE_SHARE = 0.03  # of the run's own row gradients, that the probes of each chain may cost
# row gradients x parameters that they may cost in any case: a fraction of a second
FREE_PROBE_WORK = 2**26


class Phases:
    """Gradient noise at steps that depend on the plan alone, never on where chunks end."""

    def __init__(self, kernel: Kernel, seed: int, num_steps: int) -> None:
        self.kernel, self.seed = kernel, seed
        # of networks the probe knows more, and gradients of single rows are too dear
        exact = not kernel.problem.has_rows or isinstance(kernel.gradient, Full)
        self.silent = exact or kernel.probe is not None
        self.probes = 1 if self.silent else _affordable(kernel, num_steps)
        self.every = max(1, -(-num_steps // kernel.block) // self.probes) * kernel.block
        self.steps: list[int] = []
        self.levels: list[np.ndarray] = []

    def next_after(self, step: int) -> int:
        """The first step after `step` that is measured; rarer as a run outgrows its plan."""
        if self.silent:
            return 2**62
        block, growth = self.kernel.block, 1 + step // (2 * self.probes * self.every)
        spacing = self.every * growth
        return max(step + block, (step // spacing + 1) * spacing)

    def visit(self, carry: Carry, step: int) -> None:
        """Measure, where `step` is one of the steps to be measured."""
        due = not self.steps or self.next_after(self.steps[-1]) <= step
        if due and not self.silent:
            self._measure(carry, step)

    def ended(self, carry: Carry, step: int) -> Phase | None:
        """The whole record, the run's last step included."""
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
        """What a checkpoint keeps."""
        if self.silent:
            return {}
        return {"phase_step": np.asarray(self.steps), "phase_level": np.stack(self.levels)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a checkpoint."""
        if not self.silent:
            self.steps = arrays["phase_step"].tolist()
            self.levels = list(arrays["phase_level"])


def _affordable(kernel: Kernel, num_steps: int) -> int:
    """Probes of a run of so many steps, the two at its ends not counted."""
    d = kernel.problem.dimension
    own = num_steps * kernel.problem.source.batch_size
    return int(
        np.clip(
            (PROBE_SHARE * own + FREE_PROBE_WORK / d) / probe_cost(kernel.problem), 1, MAX_PROBES
        )
    )


# -- sink ----------------------------------------------------------------------------------


CHUNK_NUMBERS = 2**16  # about, of a chunk on disk; of long draws more:
MIN_CHUNK_DRAWS, MAX_CHUNK_NUMBERS = 256, 2**22  # so many draws, but of no more numbers than that
VALUE_PREFIX = "value"  # what begins the names of the leaves of a kept function's result
HELD_KEY = "held"  # numbers of the draws whose positions are


def chunk_rows(shape: tuple[int, ...]) -> int:
    """Draws per chunk on disk, of arrays whose draws have this shape."""
    width = max(1, math.prod(shape))
    few = min(MIN_CHUNK_DRAWS, MAX_CHUNK_NUMBERS // width)
    return max(1, few, CHUNK_NUMBERS // width)


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
        z, numbers = rows.pop("z", None), rows.pop(HELD_KEY, None)
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
            rows[HELD_KEY], rows["z"] = found
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
    """The first `count` draws of a chunk, as the compiled function's buffers hold them."""
    rows = {
        name: on_host(values)[:count]
        for name, values in kept._asdict().items()
        if values is not None and name != VALUE_PREFIX
    }
    leaves = jax.tree.leaves(kept.value)
    return rows | {f"{VALUE_PREFIX}{i}": on_host(leaf)[:count] for i, leaf in enumerate(leaves)}


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
