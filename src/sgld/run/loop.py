"""The loop around the compiled chunk: entries, timing, storage, stopping.

Everything here happens between chunks. Chunks are sized by time, and no bit of the draws
depends on their size, on how often a checkpoint is written, or on where a run was killed.
"""

from __future__ import annotations

import hashlib
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..draws.storage import ROWS_PER_CHUNK, RunDirectory
from ..errors import RunError
from .chunk import Carry, Kept, Kernel, run_chunk, start
from .progress import Progress

__all__ = ["Raw", "run"]

SECONDS_PER_CHUNK = 0.25
ENTRY_NUMBERS = 2**22  # numbers of the data order sent at once
SLOT_NUMBERS = 2**21  # numbers of kept draws returned at once


@dataclass(frozen=True)
class Raw:
    """Kept draws in free coordinates: leading axis draw, then chain."""

    z: np.ndarray
    gradient: np.ndarray | None
    step_size: np.ndarray
    temperature: np.ndarray
    failed_at: np.ndarray
    num_steps: int


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
        whole = (self.count - self.flushed) // ROWS_PER_CHUNK * ROWS_PER_CHUNK
        if whole:
            merged = _concatenate(self.pending)
            self.directory.append({k: v[:whole] for k, v in merged.items()}, self.flushed)
            self.flushed += whole
            self.pending = [{k: v[whole:] for k, v in merged.items()}]

    def arrays(self) -> dict[str, np.ndarray]:
        """All draws."""
        return _concatenate(self.parts)


def _concatenate(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def run(
    kernel: Kernel,
    starts: Any,
    *,
    seed: int,
    num_draws: int,
    directory: RunDirectory | None = None,
    checkpoint_every: float = 10.0,
    progress: bool = False,
    carry: Carry | None = None,
    earlier: Raw | None = None,
) -> Raw:
    """Run every chain until `num_draws` draws are kept (with `earlier`: that many in all)."""
    burn_in, thin = int(kernel.burn_in), int(kernel.thin)
    total = burn_in + thin * (num_draws - 1) + 1
    chains = len(starts)
    sink = Sink(directory)
    if carry is None:
        carry = start(kernel, starts)
    if earlier is not None:
        sink.append(_rows_of(earlier))
    digest = kernel_digest(kernel, starts)
    if directory is not None and earlier is None:
        carry = _restore(directory, carry, sink, digest)
    block = kernel.block
    width = chains * int(np.prod(kernel.source.entry_shape)) if kernel.source is not None else 1
    max_blocks = max(1, ENTRY_NUMBERS // (block * width))
    slots = max(block, SLOT_NUMBERS // (chains * kernel.target.layout.dimension))
    max_blocks = min(max_blocks, max(1, (slots - 1) * thin // block))
    visits = _visits_data(kernel)
    done, blocks, rate = int(carry.step), 1, 0.0
    last_checkpoint = time.monotonic()
    with Progress(progress, total, chains) as bar, _interrupt_flag() as interrupted:
        while done < total:
            blocks = min(blocks, -(-(total - done) // block))
            entries = None
            if visits:
                entries = _entries(kernel, seed, chains, done, blocks * block, max_blocks * block)
            began = time.monotonic()
            first = max(0, -(-(done - burn_in) // thin))
            carry, kept = run_chunk(
                kernel, carry, entries, jnp.int32(blocks), jnp.int32(first), slots=slots
            )
            jax.block_until_ready(carry.failed_at)
            done += blocks * block
            upto = min(num_draws, max(0, -(-(done - burn_in) // thin)))
            sink.append(_rows(kept, upto - first, kernel.record_gradient))
            took = max(time.monotonic() - began, 1e-6)
            rate = blocks * block / took
            bar.update(done, rate, float(kernel.step_size(max(0, done - burn_in))))
            blocks = max(1, min(max_blocks, round(SECONDS_PER_CHUNK * rate / block), 4 * blocks))
            due = time.monotonic() - last_checkpoint >= checkpoint_every
            if directory is not None and (due or interrupted.is_set()):
                _checkpoint(directory, carry, sink, digest)
                last_checkpoint = time.monotonic()
            if interrupted.is_set():
                raise KeyboardInterrupt
            if bool(np.all(np.asarray(carry.failed_at) >= 0)):
                break
    arrays = sink.arrays()
    return Raw(
        arrays["z"], arrays.get("gradient"), arrays["step_size"], arrays["temperature"],
        np.asarray(carry.failed_at), done,
    ), carry  # fmt: skip


def _visits_data(kernel: Kernel) -> bool:
    from ..gradient.full import Full

    return kernel.source is not None and not isinstance(kernel.gradient, Full)


def _entries(kernel: Kernel, seed: int, chains: int, step: int, n: int, capacity: int) -> Any:
    """The data order of every chain for n steps, padded to the compiled shape."""
    assert kernel.source is not None
    out = np.zeros((capacity, chains, *kernel.source.entry_shape), np.int32)
    for chain in range(chains):
        out[:n, chain] = kernel.source.chunk((seed, chain), step, n)
    return jnp.asarray(out)


def _rows(kept: Kept, count: int, gradient: bool) -> dict[str, np.ndarray]:
    count = max(0, count)
    rows = {
        "z": np.array(kept.z[:count]),
        "step_size": np.array(kept.step_size[:count]),
        "temperature": np.array(kept.temperature[:count]),
    }
    if gradient:
        assert kept.gradient is not None
        rows["gradient"] = np.array(kept.gradient[:count])
    return rows


def _rows_of(raw: Raw) -> dict[str, np.ndarray]:
    rows = {"z": raw.z, "step_size": raw.step_size, "temperature": raw.temperature}
    if raw.gradient is not None:
        rows["gradient"] = raw.gradient
    return rows


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


def _checkpoint(directory: RunDirectory, carry: Carry, sink: Sink, digest: str) -> None:
    leaves = jax.tree.leaves(carry)
    arrays = {f"carry{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    if sink.pending:
        arrays |= {f"pending_{k}": v for k, v in _concatenate(sink.pending).items()}
    arrays["flushed"] = np.asarray(sink.flushed)
    arrays["digest"] = np.frombuffer(digest.encode(), np.uint8)
    directory.write_checkpoint(arrays)


def _restore(directory: RunDirectory, carry: Carry, sink: Sink, digest: str) -> Carry:
    """The carry and the draws of the last checkpoint, or the fresh carry where there is none."""
    arrays = directory.read_checkpoint()
    if arrays is None:
        return carry
    if bytes(arrays["digest"]).decode() != digest:
        raise RunError(
            f"{directory.path} was begun with other numbers (step size, preconditioner or starts) than "
            "this machine and these versions give, so it cannot go on to the same bits; run it again."
        )
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
