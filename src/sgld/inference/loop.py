"""The loop around the compiled chunk: data order, storage and stopping.

Everything here happens between chunks. Time decides the size of chunks, but no bit of the draws
depends on their size, on how often a checkpoint is written, or on where a run was killed.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..core.devices import CHAIN, across, agreed, compiling, on_host
from ..core.progress import VERDICT_SHARE, enough
from ..core.work import Work
from ..data.memory import AlwaysIn
from ..errors import RunError
from ..results.run_directory import RunDirectory
from ..samplers.gradients.full import Full
from .chunk import Carry, Kernel, room, run_chunk, start
from .sink import Phases, Raw, Sink, restore, rows_of

MAX_ENTRY_NUMBERS = 2**19  # numbers of the data order sent at once
MAX_SLOT_NUMBERS = 2**18  # numbers of kept draws returned at once
MAX_LONG_SLOTS, MAX_LONG_NUMBERS = 64, 2**22  # long draws returned at once, and their numbers
MIN_DRAWS_IN_TIME = 4  # draws per chain of a run that is out of time
ADVISED_DRAWS = 20  # draws per chain for which the error of such a run suggests max_seconds
# share of the seconds of a first chunk that its steps may have taken; the rest is compilation
STEPPING_SHARE = 0.1


def run(
    kernel: Kernel,
    starts: Any,
    *,
    seed: int,
    num_draws: int,
    more: Callable[[Raw], int] | None = None,
    most: float = math.inf,
    most_positions: float = math.inf,
    directory: RunDirectory | None = None,
    checkpoint_every: float = 10.0,
    until: float = math.inf,
    max_seconds: float = math.inf,
) -> Raw:
    """Run every chain until `num_draws` draws are kept, then as many as `more(raw)` asks for.

    If more than `most` draws are requested, which is the limit of memory, every second draw is
    dropped and the thinning doubles, repeatedly if necessary. A run with a directory drops none,
    because its draws are already on disk. If there is room for the positions of only
    `most_positions` draws, every second position is dropped in either case.

    Past the time `until` (of time.monotonic), which `max_seconds` determines, the run ends with the
    draws it has; RunError if those are fewer than MIN_DRAWS_IN_TIME. With a directory the run
    continues from its checkpoint, if there is one.
    """
    with Work("sampling", steps=kernel.block, until=until) as work:
        probe = kernel.probe
        sink = Sink(directory, None if probe is None else probe.predictions.kind, most_positions)
        chains = _Chains(kernel, starts, seed, num_draws, sink, checkpoint_every)
        while True:
            total = _steps_for(chains.kernel, num_draws)
            if not chains.advance(work, total, num_draws):
                return chains.stopped(num_draws, max_seconds)
            raw = chains.sink.raw(num_draws, chains.carry, total)
            wanted = num_draws if more is None else more(raw)
            if wanted > most and directory is not None:
                wanted = int(most)
            if wanted <= num_draws:
                return replace(raw, phase=chains.phases.ended(chains.carry, chains.step))
            while wanted > most:
                chains.thin_out()
                wanted = -(-wanted // 2)
            num_draws = wanted
            chains.expect(num_draws)


class _Chains:
    """All chains of a run, their draws so far, and the measurements along the run."""

    def __init__(
        self, kernel: Kernel, starts: Any, seed: int, num_draws: int, sink: Sink,
        checkpoint_every: float,
    ) -> None:  # fmt: skip
        self.kernel, self.sink, self.checkpoint_every = kernel, sink, checkpoint_every
        starts = across(on_host(starts), kernel.problem.mesh, CHAIN)
        self.digest = kernel_digest(kernel, starts)
        carry = start(kernel, starts)
        self.slots = _slots(kernel, carry)
        self.expect(num_draws)
        self.phases = Phases(kernel, seed, _steps_for(kernel, num_draws))
        self.carry = restore(self.sink, carry, self.phases, self.digest)
        self.step, self.saved_at = int(self.carry.step), time.monotonic()
        self.began = self.step, time.monotonic()
        self.warm: tuple[int, float] | None = (
            None  # step and time from which on everything is compiled
        )
        self.order = _Order(kernel, seed, len(starts))
        compiles: AbstractContextManager[None] = nullcontext()
        if self.step < _steps_for(kernel, num_draws):
            self.order.ready(self.step, _steps_for(kernel, num_draws))
            compiles = compiling(run_chunk, *self._arguments(1), slots=self.slots)
        with compiles:  # a probe of the phase compiles, too
            self.phases.visit(self.carry, self.step)

    def expect(self, num_draws: int) -> None:
        """Reserve room: chunks end with a block, so draws may follow the last requested one."""
        self.sink.room = num_draws + -(-self.kernel.block // int(self.kernel.thin))

    def thin_out(self) -> None:
        """Drop every second draw, and continue with half as many."""
        self.sink.halve()
        self.kernel = replace(self.kernel, thin=2 * self.kernel.thin)

    def advance(self, work: Work, total: int, num_draws: int) -> bool:
        """Continue to step `total`; return False if all chains fail or time runs out first."""
        kernel, B = self.kernel, self.kernel.block
        most = max(1, self.slots * int(kernel.thin) // B)
        while self.step < total:
            stop = min(total, self.phases.next_after(self.step), self.order.ready(self.step, total))
            pieces = work.pieces(self.step // B, -(-stop // B), most=most, of=-(-total // B))
            for _, blocks in pieces:
                self._chunk(work, blocks, total)
                if self.failed or (work.late and self.sink.count < num_draws):
                    return False
        return True

    def _chunk(self, work: Work, blocks: int, total: int) -> None:
        kernel, first = self.kernel, _draws_before(self.kernel, self.step)
        carry, kept = run_chunk(*self._arguments(blocks), slots=self.slots)
        self.step += blocks * kernel.block
        self.order.prepare(self.step, total)  # while the chunk computes
        self.order.ahead(self.step, blocks * kernel.block)
        self.carry = jax.block_until_ready(carry)
        self.warm = self.warm or (self.step, time.monotonic())
        count = _draws_before(kernel, self.step) - first
        if count:
            rows = rows_of(kept, count)
            self.sink.append(rows)
            work.said = f"h {float(rows['step_size'][-1]):.3g}"
        self.phases.visit(self.carry, self.step)
        due = agreed(time.monotonic() - self.saved_at >= self.checkpoint_every)
        if self.sink.directory is not None and (due or work.interrupted):
            self.sink.checkpoint(self.carry, self.phases, self.digest)
            self.saved_at = time.monotonic()

    def _arguments(self, blocks: int) -> tuple[Any, ...]:
        """Return the arguments of `run_chunk` for `blocks` blocks from the present step on."""
        entries = self.order.entries
        if entries is not None:  # entries of the window, from this step on
            entries = (entries, np.int32(self.step - self.order.first))
        first = _draws_before(self.kernel, self.step)
        return self.kernel, self.carry, entries, np.int32(blocks), np.int32(first)

    @property
    def failed(self) -> bool:
        """Whether no chain is finite any more."""
        return bool(np.all(on_host(self.carry.failed_at) >= 0))

    def stopped(self, num_draws: int, max_seconds: float) -> Raw:
        """Return the draws so far of a run that ended early."""
        if self.failed and not self.sink.count:
            raise RunError(
                f"every chain became non-finite, the first at step {on_host(self.carry.failed_at).min()}, "
                "before the end of burn-in; use a smaller step_size, if you gave one, or another start."
            )
        count = min(num_draws, self.sink.count)
        if count < MIN_DRAWS_IN_TIME and not self.failed:
            more = ""
            if self.sink.directory is not None:
                self.sink.checkpoint(self.carry, self.phases, self.digest)
                more = f" The draws so far are stored; {self.sink.directory.remedy()}"
            raise RunError(
                f"the time of max_seconds = {max_seconds:g} was up at step {self.step:,}, when each chain had {count} draws "
                f"of at least {MIN_DRAWS_IN_TIME}; {enough(max_seconds + self._more_seconds())}, or give a shorter "
                f"burn_in, or less thinning.{more}"
            )
        phase = self.phases.ended(self.carry, self.step)
        raw = self.sink.raw(count, self.carry, self.step)
        return replace(raw, phase=phase, out_of_time=not self.failed)

    def _more_seconds(self) -> float:
        """Return the further seconds of max_seconds until draws suffice, at the pace so far."""
        step, time_then = self.began if self.warm is None else self.warm
        share = 1.0
        if step == self.step:  # only one chunk ran, and most of its time was compilation
            (step, time_then), share = self.began, STEPPING_SHARE
        each = share * (time.monotonic() - time_then) / max(1, self.step - step)
        missing = max(0, _steps_for(self.kernel, ADVISED_DRAWS) - self.step)
        return each * missing / (1 - VERDICT_SHARE)


def _slots(kernel: Kernel, carry: Carry) -> int:
    """Return the draws that one chunk may return: at least a block's, of bounded size in total."""
    one = jax.eval_shape(lambda kernel, carry: room(kernel, carry, 1), kernel, carry)
    width = sum(leaf.size for leaf in jax.tree.leaves(one))
    long = min(MAX_LONG_SLOTS, MAX_LONG_NUMBERS // width)
    return max(-(-kernel.block // int(kernel.thin)), MAX_SLOT_NUMBERS // width, long, 1)


def _steps_for(kernel: Kernel, num_draws: int) -> int:
    """Return the steps until `num_draws` draws are kept; a draw is the position before a step."""
    return int(kernel.burn_in) + int(kernel.thin) * (num_draws - 1) + 1


def _draws_before(kernel: Kernel, step: int) -> int:
    """Return the number of draws kept at steps before `step`."""
    return max(0, -(-(step - int(kernel.burn_in)) // int(kernel.thin)))


class _Order:
    """Data order of all chains on the device, a window of steps at a time.

    The next window is drawn while the last chunk of the present one computes.
    """

    def __init__(self, kernel: Kernel, seed: int, chains: int) -> None:
        exact = isinstance(kernel.gradient, Full) or not kernel.problem.has_rows
        self.source = None if exact else kernel.problem.source
        self.seed, self.chains, self.block = seed, chains, kernel.block
        self.mesh = kernel.problem.mesh
        self.first, self._end, self.entries, self._next = -1, 0, None, None
        self._drawn: np.ndarray | None = None  # the entries, on the host
        if self.source is not None:
            width = chains * math.prod(self.source.entry_shape)
            self.steps = max(1, MAX_ENTRY_NUMBERS // (self.block * width)) * self.block

    def ready(self, step: int, total: int) -> int:
        """Ensure that the window of `step` is on the device, and return where it ends."""
        if self.source is None:
            return total
        first = step // self.steps * self.steps
        if self.first != first or self._end < min(total, first + self.steps):
            self.prepare(first, total)
            assert self._next is not None
            (self.first, self._end, self._drawn), self._next = self._next, None
            self.entries = across(self._drawn, self.mesh, None, CHAIN)
        return self.first + self.steps

    def prepare(self, step: int, total: int) -> None:
        """Draw the window that begins with `step`, if a window begins there and is needed."""
        if self.source is None or step >= total or step % self.steps:
            return
        end = min(step + self.steps, -(-total // self.block) * self.block)
        if self._next is not None and self._next[:2] == (step, end):
            return
        drawn = np.zeros((self.steps, self.chains, *self.source.entry_shape), np.int32)
        for chain in range(self.chains):
            drawn[: end - step, chain] = self.source.chunk((self.seed, chain), step, end - step)
        self._next = step, end, drawn

    def ahead(self, step: int, steps: int) -> None:
        """Request the drawn batches of the next `steps` steps from the source."""
        if self.source is not None and self._drawn is not None:
            begin = step - self.first
            self.source.ahead(self._drawn[begin : begin + steps])


def kernel_digest(kernel: Kernel, starts: Any) -> str:
    """Return the SHA-256 of every number a run depends on, except the data, which has its own."""
    digest = hashlib.sha256()
    numbers = (
        kernel.gradient, kernel.preconditioner, kernel.sampler, kernel.step_size,
        kernel.temperature, jax.random.key_data(kernel.key), kernel.burn_in, kernel.thin, starts,
        kernel.keep, kernel.batches,
    )  # fmt: skip
    data = kernel.problem.data
    always = data.numbers if isinstance(data, AlwaysIn) else None
    for leaf in jax.tree.leaves((numbers, always)):
        digest.update(on_host(leaf).tobytes())
    return digest.hexdigest()
