"""The contract suite of sources of rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.pytrees import release_mistakable
from ...core.validation import check_seed, whole_number
from ...data.source import ORDERS
from ...data.validate import check_contract, in_batches, look, wrong_row
from ...errors import SGLDError

MAX_BATCHES = 4000  # batches that are enumerated at most


@dataclass(frozen=True)
class SourceReport:
    """The result of `check_source`.

    Attributes:
      source: its class's name and size.
      checks: sentences, one per property that held.

    Example:
      >>> import numpy as np, sgld
      >>> from sgld.data.memory import InMemory
      >>> report = sgld.testing.check_source(InMemory.build(np.arange(10.0), 5, "reshuffle"))
      >>> report.source
      "InMemory(order='reshuffle', 5 of 10 rows)"
    """

    source: str
    checks: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join([f"{self.source}: {len(self.checks)} checks passed", *self.checks])


def check_source(source: Any, *, seed: int = 0, steps: int | None = None) -> SourceReport:
    """Certify that a source of rows fulfils the contract of `sgld.data.source.Source`.

    A source defines `num_data`, `batch_size` and `order` (static), `take(rows)` and `hash()`. It inherits
    or defines `chunk((seed, chain), step, n)` on the host, `fetch(entry) -> Batch` inside compiled code and
    `with_batches(batch_size, order)`. `sgld.sample` itself checks a source before the first step: whether it
    is complete, and whether a pass over all blocks gives every row once, as `take` gives it. This function
    also enumerates all batches of every order, where sum_j scale weight_j must be 1 for every row on average,
    and tests every order over many steps.

    Args:
      source: a small source, because every row is tested, in batches of many sizes.
      seed: of the order.
      steps: the number of tested steps (default: 6 passes, at least 64).

    Returns: SourceReport. Raises AssertionError, with a sentence, at the first failure.

    Example:
      >>> import numpy as np, sgld
      >>> from sgld.data.memory import InMemory
      >>> source = InMemory.build(np.arange(10.0), 3, "reshuffle")
      >>> len(sgld.testing.check_source(source).checks)
      6
    """
    check_seed(seed)
    if steps is not None:
        whole_number("steps", steps)
    try:
        check_contract(source)
        orders = [in_batches(source, source.batch_size, order) for order in ORDERS]
    except SGLDError as error:
        raise AssertionError(str(error)) from error
    release_mistakable(source)
    suite = _SourceSuite(source, seed, steps)
    checks = [
        "  complete: a pass over its blocks gives every row once",
        suite.batches(),
        suite.unbiased(),
    ]
    checks += suite.visits()
    for other in orders:
        _SourceSuite(other, seed, steps).visits()
    return SourceReport(suite.name, tuple(checks))


class _SourceSuite:
    def __init__(self, source: Any, seed: int, steps: int | None) -> None:
        batches = f"{source.batch_size} of {source.num_data} rows"
        self.name = f"{type(source).__name__}(order={source.order!r}, {batches})"
        self.source, self.seed, self.steps = source, seed, steps or max(64, 6 * source.period)
        self.entries = np.asarray(source.chunk((seed, 0), 0, self.steps))
        if len(self.entries) != self.steps:
            raise self._fail(f"chunk gave {len(self.entries)} entries for {self.steps} steps.")

    def _fail(self, sentence: str) -> AssertionError:
        return AssertionError(f"{self.name}: {sentence}")

    def visits(self) -> list[str]:
        """Check the properties that the order's name promises."""
        return [self.cuts(), self.chains(), getattr(self, self.source.order)()]

    def batches(self) -> str:
        """Check that the batches hold the right rows, equally weighted over all batches."""
        source = self.source
        rows = source.take(jnp.arange(source.num_data, dtype=jnp.int32))
        everything = _row_bytes(rows, source.num_data)
        kinds, of_row = np.unique(everything, axis=0, return_inverse=True)
        every = np.bincount(of_row.reshape(-1), minlength=len(kinds)).astype(float)
        entries = self.entries
        if source.uses_blocks:
            entries = np.arange(source.num_blocks, dtype=np.int32)
        total, sizes, plain = np.zeros(len(kinds)), [], True
        for entry in entries:
            batch = source.fetch(jnp.asarray(entry))
            count = len(jax.tree.leaves(batch.rows)[0])
            weight = np.ones(count) if batch.weight is None else np.asarray(batch.weight, float)
            rows = _row_bytes(batch.rows, count)
            kind = [_index(kinds, row, self._fail) for row in rows]
            np.add.at(total, kind, weight * float(batch.scale))
            sizes.append(weight.sum())
            plain &= bool(np.isin(weight, (0, 1)).all())  # no row is in every batch
        if source.uses_blocks:
            if plain and max(sizes) - min(sizes) > 1:
                raise self._fail(f"block sizes differ by more than one: {sorted(set(sizes))}.")
            if not np.allclose(total / len(entries), every, rtol=1e-6):
                raise self._fail(
                    "the scaled batches do not add up to the rows, each counted once on average."
                )
            return "  blocks differ by at most one row and add up to the data"
        if plain and set(sizes) != {float(source.batch_size)}:
            raise self._fail(f"batches have {sorted(set(sizes))} rows, not {source.batch_size}.")
        if plain and not np.isclose(total.sum() / len(entries), source.num_data, rtol=1e-6):
            raise self._fail("the scale of a batch is not N / n.")
        return "  every batch has n rows, scaled by N / n"

    def unbiased(self) -> str:
        """Check that every row counts once on average over all batches, in every order."""
        size = self.source.num_data
        for order in ORDERS:
            for n in sorted({1, 2, size // 2, size} & set(range(1, size + 1))):
                source = self.source.with_batches(n, order)
                entries = _all_entries(source)
                if entries is None:
                    continue
                seen = _look(source, jnp.asarray(entries))
                if (wrong := wrong_row(seen)) is not None:
                    raise self._fail(f"with order {order!r} and batches of {n}, {wrong}")
                counts = np.asarray(seen.scale, float)[:, None] * np.asarray(seen.weight, float)
                total = np.bincount(np.ravel(seen.numbers), counts.ravel(), size) / len(entries)
                if not np.allclose(total, 1, rtol=1e-5):
                    row = int(np.argmax(np.abs(total - 1)))
                    raise self._fail(
                        f"biased with order {order!r} and batches of {n}: over all {len(entries)} batches row "
                        f"{row} counts {total[row]:.6g} times on average, not once."
                    )
        return "  every row counts once on average over all batches, in every order"

    def cuts(self) -> str:
        """Check that any stretch of the order can be recomputed alone, wherever it lies."""
        rng = np.random.default_rng(self.seed)
        for _ in range(12):
            a, b = sorted(int(i) for i in rng.integers(0, self.steps + 1, 2))
            part = np.asarray(self.source.chunk((self.seed, 0), a, b - a))
            if not np.array_equal(part, self.entries[a:b]):
                raise self._fail(f"the stretch [{a}, {b}) differs when it is computed alone.")
        far = 2**31 - 100
        one = np.asarray(self.source.chunk((self.seed, 0), far, 8))
        if not np.array_equal(np.asarray(self.source.chunk((self.seed, 0), far + 3, 5)), one[3:]):
            raise self._fail(f"the stretch at step {far} differs when it is computed alone.")
        return "  any stretch of the order can be recomputed alone"

    def chains(self) -> str:
        """Check that chains and seeds have different orders."""
        if self.source.uses_blocks and self.source.num_blocks < 4:
            return "  chains and seeds: too few blocks to tell"
        if not self.source.uses_blocks and self.source.num_data == self.source.batch_size:
            return "  chains and seeds: one batch holds all rows"
        for key, what in (((self.seed, 1), "chains 0 and 1"), ((self.seed + 1, 0), "two seeds")):
            if np.array_equal(np.asarray(self.source.chunk(key, 0, self.steps)), self.entries):
                raise self._fail(f"{what} visit the data in the same order.")
        return "  chains and seeds have different orders"

    def _passes(self, length: int) -> np.ndarray:
        whole = self.steps // length * length
        return self.entries[:whole].reshape(-1, length)

    def reshuffle(self) -> str:
        """Check that every pass visits every block once, in a new order."""
        count = self.source.num_blocks
        passes = self._passes(count)
        if not (np.sort(passes, axis=1) == np.arange(count)[None]).all():
            raise self._fail("a pass does not visit every block exactly once.")
        if count >= 4 and (passes[1:] == passes[:-1]).all():
            raise self._fail("the passes repeat one order.")
        return "  every pass visits every row once, in a new order"

    def symmetric(self) -> str:
        """Check that every sweep is a pass followed by the same pass backwards."""
        count = self.source.num_blocks
        sweeps = self._passes(2 * count)
        if not (np.sort(sweeps[:, :count], axis=1) == np.arange(count)[None]).all():
            raise self._fail("a forward sweep does not visit every block exactly once.")
        if not np.array_equal(sweeps, sweeps[:, ::-1]):
            raise self._fail("a sweep is not a palindrome.")
        if count >= 4 and (sweeps[1:] == sweeps[:-1]).all():
            raise self._fail("the sweeps repeat one order.")
        return "  every sweep is a palindrome that visits every row twice"

    def independent(self) -> str:
        """Check that blocks are drawn at random."""
        return self._uniform(self.source.num_blocks, 1, "blocks")

    def replacement(self) -> str:
        """Check that rows are drawn at random, repeats allowed."""
        return self._uniform(self.source.num_data, self.source.batch_size, "rows")

    def subset(self) -> str:
        """Check that rows are drawn at random, without repeats in a batch."""
        batches = np.sort(self.entries, axis=1)
        if (batches[:, 1:] == batches[:, :-1]).any():
            raise self._fail("a batch holds a row twice.")
        return self._uniform(self.source.num_data, self.source.batch_size, "rows")

    def _uniform(self, count: int, size: int, what: str) -> str:
        steps = max(self.steps, 100 * count // size)
        entries = np.asarray(self.source.chunk((self.seed, 0), 0, steps))
        if entries.min() < 0 or entries.max() >= count:
            raise self._fail(f"an entry lies outside 0 ... {count - 1}.")
        seen = np.bincount(entries.reshape(-1), minlength=count)
        expected = steps * size / count
        # chi-square, its excess over the degrees of freedom in sds; smaller for subsets
        excess = (np.sum((seen - expected) ** 2) / expected - (count - 1)) / np.sqrt(2 * count)
        if excess > 6:
            raise self._fail(
                f"the {what} are not visited equally often (chi-square z {excess:.1f})."
            )
        return f"  {what} are visited equally often"


_look = jax.jit(look)


def _all_entries(source: Any) -> np.ndarray | None:
    """Return every possible entry of the order, or None where they are too many."""
    size, n = source.num_data, source.batch_size
    if source.uses_blocks:
        return np.arange(source.num_blocks, dtype=np.int32)
    count = size**n if source.order == "replacement" else math.comb(size, n)
    if count > MAX_BATCHES:
        return None
    if source.order == "replacement":
        return np.array(list(itertools.product(range(size), repeat=n)), np.int32)
    return np.array(list(itertools.combinations(range(size), n)), np.int32)


def _row_bytes(rows: Any, count: int) -> np.ndarray:
    parts = [np.asarray(leaf, np.float64).reshape(count, -1) for leaf in jax.tree.leaves(rows)]
    return np.concatenate(parts, axis=1)


def _index(kinds: np.ndarray, row: np.ndarray, fail: Callable) -> int:
    found = np.flatnonzero((kinds == row[None]).all(1))
    if not len(found):
        raise fail("a batch holds a row that is not in the data.")
    return int(found[0])
