"""The loop around the compiled chunk: entries, timing, storage, stopping.

Everything here happens between chunks. Chunks are sized by time, and no bit of the draws
depends on their size, on how often a checkpoint is written, or on where a run was killed.
"""

from __future__ import annotations

import hashlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..draws.phase import Phase
from ..draws.storage import RunDirectory, chunk_rows
from ..errors import RunError
from ..gradient.full import Full
from .chunk import Carry, Kept, Kernel, run_chunk, start
from .phases import Phases
from .progress import Progress

__all__ = ["Raw", "run"]

SECONDS_PER_CHUNK = 0.25
ENTRY_NUMBERS = 2**19  # numbers of the data order sent at once
SLOT_NUMBERS = 2**18  # numbers of kept draws returned at once
FEWEST_DRAWS = 20  # of a run that is out of time


@dataclass(frozen=True)
class Raw:
    """Kept draws in free coordinates: leading axis draw, then chain."""

    z: np.ndarray
    step_size: np.ndarray
    temperature: np.ndarray
    failed_at: np.ndarray
    num_steps: int
    gradient: np.ndarray | None = None
    phase: Phase | None = None
    out_of_time: bool = False


class Sink:
    """Kept draws in memory, in whole chunks on disk, and the rest in the checkpoint."""

    def __init__(self, directory: RunDirectory | None) -> None:
        self.directory = directory
        self.parts: list[dict[str, np.ndarray]] = []
        self.count = 0
        self.flushed = 0
        self.pending: list[dict[str, np.ndarray]] = []

    def append(self, rows: dict[str, np.ndarray]) -> None:
        """Take draws [draw, chain, ...]; whole chunks go to disk."""
        size = len(rows["step_size"])
        if not size:
            return
        self.parts.append(rows)
        self.count += size
        if self.directory is None:
            return
        self.pending.append(rows)
        per_chunk = chunk_rows(rows["z"].shape[1:])
        whole = (self.count - self.flushed) // per_chunk * per_chunk
        if whole:
            merged = _concatenate(self.pending)
            self.directory.append(
                {k: v[:whole] for k, v in merged.items()}, self.flushed, per_chunk
            )
            self.flushed += whole
            self.pending = [{k: v[whole:] for k, v in merged.items()}]

    def raw(self, num_draws: int, carry: Carry, num_steps: int) -> Raw:
        """The first `num_draws` draws."""
        merged = _concatenate(self.parts)
        self.parts = [merged]
        rows: dict[str, Any] = {name: values[:num_draws] for name, values in merged.items()}
        return Raw(**rows, failed_at=np.asarray(carry.failed_at), num_steps=num_steps)


def _concatenate(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def run(
    kernel: Kernel,
    starts: Any,
    *,
    seed: int,
    num_draws: int,
    more: Callable[[Raw], int] | None = None,
    directory: RunDirectory | None = None,
    checkpoint_every: float = 10.0,
    progress: bool = False,
    until: float = math.inf,
) -> Raw:
    """Run every chain until `num_draws` draws are kept, or as many as `more(raw)` asks for then.

    Past the time `until` (of time.monotonic) the run ends with the draws it has, at least
    FEWEST_DRAWS. With a directory the run goes on from its checkpoint, if it holds one.
    """
    carry, sink, digest = start(kernel, starts), Sink(directory), kernel_digest(kernel, starts)
    phases = Phases(kernel, seed, _steps_for(kernel, num_draws))
    if directory is not None:
        carry = _restore(directory, carry, sink, phases, digest)
    phases.visit(carry, int(carry.step))
    pace = _Pace(kernel, len(starts), phases)
    done, saved_at, ready = int(carry.step), time.monotonic(), None
    with _interrupt_flag() as interrupted, Progress(progress, len(starts)) as bar:
        while True:
            total = _steps_for(kernel, num_draws)
            if done >= total:
                raw = sink.raw(num_draws, carry, total)
                wanted = num_draws if more is None else more(raw)
                if wanted <= num_draws:
                    return replace(raw, phase=phases.ended(carry, done))
                num_draws = wanted
                continue
            began = time.monotonic()
            blocks, entries = ready or pace.next(kernel, seed, done, total)
            first = _draws_before(kernel, done)
            carry, kept = run_chunk(
                kernel, carry, entries, jnp.int32(blocks), jnp.int32(first), slots=pace.slots
            )
            done += blocks * kernel.block
            # the data order of the next chunk is drawn while this one computes
            ready = pace.next(kernel, seed, done, total) if done < total else None
            sink.append(_rows(kept, _draws_before(kernel, done) - first))
            pace.took(blocks, time.monotonic() - began)
            phases.visit(carry, done)
            bar.update(done, total, pace.rate, np.asarray(kept.step_size))
            if directory is not None and (
                time.monotonic() - saved_at >= checkpoint_every or interrupted.is_set()
            ):
                _checkpoint(directory, carry, sink, phases, digest)
                saved_at = time.monotonic()
            if interrupted.is_set():
                raise KeyboardInterrupt
            if bool(np.all(np.asarray(carry.failed_at) >= 0)):
                if not sink.count:
                    raise RunError(
                        f"every chain became non-finite, the first at step {int(carry.failed_at.min())}, "
                        "before the burn-in was over; use a smaller step_size."
                    )
                return replace(sink.raw(num_draws, carry, done), phase=phases.ended(carry, done))
            if time.monotonic() > until and FEWEST_DRAWS <= sink.count < num_draws:
                raw = sink.raw(sink.count, carry, done)
                return replace(raw, phase=phases.ended(carry, done), out_of_time=True)


def _steps_for(kernel: Kernel, num_draws: int) -> int:
    """Steps until `num_draws` draws are kept: a draw is the position before its step."""
    return int(kernel.burn_in) + int(kernel.thin) * (num_draws - 1) + 1


def _draws_before(kernel: Kernel, step: int) -> int:
    """Draws kept at steps before `step`."""
    return max(0, -(-(step - int(kernel.burn_in)) // int(kernel.thin)))


class _Pace:
    """How many blocks the next chunk has: by time, within what one call can take and return."""

    def __init__(self, kernel: Kernel, chains: int, phases: Phases) -> None:
        self.phases = phases
        block = kernel.block
        width = chains
        if kernel.problem.has_rows:
            width *= math.prod(kernel.problem.source.entry_shape)
        self.block, self.chains = block, chains
        self.slots = max(block, SLOT_NUMBERS // (chains * kernel.problem.dimension))
        room = max(1, (self.slots - 1) * int(kernel.thin) // block)
        self.max_blocks = max(1, ENTRY_NUMBERS // (block * width))
        self._limit = min(self.max_blocks, room)
        self._next = 1
        self.rate = 0.0  # steps per second of every chain

    def next(self, kernel: Kernel, seed: int, step: int, total: int) -> tuple[int, Any]:
        """The next chunk's number of blocks, at most to the next probe, and its data order."""
        until = min(total, self.phases.next_after(step)) - step
        blocks = max(1, min(self._next, self._limit, -(-until // self.block)))
        return blocks, _entries(kernel, seed, self.chains, step, blocks, self.max_blocks)

    def took(self, blocks: int, seconds: float) -> None:
        """Learn from a chunk; the first ones compile, so growth is gradual."""
        self.rate = blocks * self.block / max(seconds, 1e-6)
        by_time = round(SECONDS_PER_CHUNK * self.rate / self.block)
        self._next = max(1, min(by_time, 8 * blocks))


def _entries(
    kernel: Kernel, seed: int, chains: int, step: int, blocks: int, max_blocks: int
) -> Any:
    """The data order of every chain for some blocks of steps, padded to the compiled shape."""
    if not kernel.problem.has_rows or isinstance(kernel.gradient, Full):
        return None
    source = kernel.problem.source
    n = blocks * kernel.block
    out = np.zeros((max_blocks * kernel.block, chains, *source.entry_shape), np.int32)
    for chain in range(chains):
        out[:n, chain] = source.chunk((seed, chain), step, n)
    return jnp.asarray(out)


def _rows(kept: Kept, count: int) -> dict[str, np.ndarray]:
    """The first `count` kept draws, copied out of the compiled function's buffers."""
    return {
        name: np.array(np.asarray(values)[:count])
        for name, values in kept._asdict().items()
        if values is not None
    }


@contextmanager
def _interrupt_flag() -> Iterator[threading.Event]:
    """Ctrl-C sets a flag that is read between chunks, so that a chunk is never lost."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    previous = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: Any) -> None:
        if flag.is_set():  # a second Ctrl-C does not wait
            raise KeyboardInterrupt
        flag.set()

    signal.signal(signal.SIGINT, handle)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, previous)


def kernel_digest(kernel: Kernel, starts: Any) -> str:
    """SHA-256 of every number a run depends on, the data left out (they have their own)."""
    digest = hashlib.sha256()
    numbers = (
        kernel.gradient, kernel.preconditioner, kernel.sampler, kernel.step_size,
        kernel.temperature, jax.random.key_data(kernel.key), kernel.burn_in, kernel.thin, starts,
    )  # fmt: skip
    for leaf in jax.tree.leaves(numbers):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _checkpoint(
    directory: RunDirectory, carry: Carry, sink: Sink, phases: Phases, digest: str
) -> None:
    leaves = jax.tree.leaves(carry)
    arrays = {f"carry{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    if sink.pending:
        arrays |= {f"pending_{k}": v for k, v in _concatenate(sink.pending).items()}
    arrays["flushed"] = np.asarray(sink.flushed)
    arrays |= phases.arrays()
    arrays["digest"] = np.frombuffer(digest.encode(), np.uint8)
    directory.write_checkpoint(arrays)


def _restore(
    directory: RunDirectory, carry: Carry, sink: Sink, phases: Phases, digest: str
) -> Carry:
    """The carry and the draws of the last checkpoint, or the fresh carry where there is none."""
    arrays = directory.read_checkpoint()
    if arrays is None:
        return carry
    if bytes(arrays["digest"]).decode() != digest:
        raise RunError(
            f"{directory.path} was begun with other numbers (step size, preconditioner or starts) than "
            "this machine and these versions give, so it cannot go on to the same bits; run it again."
        )
    phases.restore(arrays)
    flushed = int(arrays["flushed"])
    if flushed:
        stored = directory.stored(flushed)
        sink.parts.append(stored)
        sink.count = sink.flushed = flushed
    pending = {k[8:]: v for k, v in arrays.items() if k.startswith("pending_")}
    if pending and len(pending["step_size"]):
        sink.parts.append(pending)
        sink.pending = [pending]
        sink.count += len(pending["step_size"])
    leaves, treedef = jax.tree.flatten(carry)
    found = [arrays[f"carry{i}"] for i in range(len(leaves))]
    for new, old in zip(found, leaves, strict=True):
        if new.shape != old.shape or new.dtype != old.dtype:
            raise RunError(
                f"{directory.path} was begun with {new.shape} {new.dtype} where this run has "
                f"{old.shape} {old.dtype}; resume with the model and chains it was begun with."
            )
    return treedef.unflatten([jnp.asarray(leaf) for leaf in found])
