"""Every order has a row here; and the suite fails sources that are wrong."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgld
from sgld.data.source import ORDERS, Source
from sgld.testing import check_source


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("rows", "n"), [(23, 5), (24, 6), (7, 7), (9, 8), (5, 1)])
def test_source(order, rows, n):
    data = {"x": np.arange(rows, dtype=np.float32), "y": np.arange(rows) % 3}
    report = check_source(Source.build(data, n, order, seed=3), seed=3)
    assert len(report.checks) == 4 and order in repr(report)


@settings(max_examples=60, deadline=None)
@given(
    order=st.sampled_from(ORDERS), rows=st.integers(1, 40), data=st.data(),
    step=st.integers(0, 10**6), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_any_cut_of_the_order_agrees(order, rows, data, step, seed):
    n = data.draw(st.integers(1, rows))
    source = Source.build(np.arange(rows), n, order)
    first, second = data.draw(st.integers(0, 300)), data.draw(st.integers(0, 300))
    whole = source.chunk((seed, 2), step, first + second)
    parts = [source.chunk((seed, 2), step, first), source.chunk((seed, 2), step + first, second)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert whole.shape == (first + second, *source.entry_shape) and whole.dtype == np.int32


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 60), data=st.data())
def test_blocks_differ_by_at_most_one_row(rows, data):
    n = data.draw(st.integers(1, rows))
    source = Source.build(np.arange(rows), n, "reshuffle")
    starts = [int(source.block_start(np.int32(k))) for k in range(source.num_blocks)] + [rows]
    sizes = np.diff(starts)
    assert starts[0] == 0 and sizes.min() >= 1 and np.ptp(sizes) <= 1 and sizes.max() <= n


class Slipped:
    """A source with a slip."""

    def __init__(self, source, slip):
        self._source, self._slip = source, slip

    def __getattr__(self, name):
        return getattr(self._source, name)

    def chunk(self, key, step, n):
        seed, chain = key
        if self._slip == "shared order":
            chain = 0
        if self._slip == "forgets its place":
            return self._source.chunk(key, 0, n)
        if self._slip == "one order":
            count = self._source.num_blocks
            return self._source.chunk((seed, chain), 0, count)[(step + np.arange(n)) % count]
        entries = self._source.chunk((seed, chain), step, n)
        if self._slip == "never the first row":
            return np.maximum(entries, 1)
        if self._slip == "random blocks":
            return self._source.with_batches(self._source.batch_size, "independent").chunk(
                key, step, n
            )
        if self._slip == "repeats":
            entries = entries.copy()
            entries[..., -1] = entries[..., 0]
        return entries

    def fetch(self, x):
        batch = self._source.fetch(x)
        if self._slip == "N/n":
            return replace(batch, scale=np.float32(self.num_data / self.batch_size))
        if self._slip == "short batch at full weight":
            return replace(batch, weight=None)
        return batch


@pytest.mark.parametrize(
    ("slip", "order", "message"),
    [
        ("shared order", "reshuffle", "same order"),
        ("forgets its place", "reshuffle", "made alone"),
        ("one order", "reshuffle", "repeat one order"),
        ("random blocks", "reshuffle", "exactly once"),
        ("random blocks", "symmetric", "exactly once"),
        ("never the first row", "replacement", "equally often"),
        ("repeats", "subset", "twice"),
        ("N/n", "reshuffle", "add up to the rows"),
        ("short batch at full weight", "reshuffle", "add up to the rows"),
    ],
)
def test_slips_are_caught(slip, order, message):
    source = Source.build(np.arange(23.0), 5, order)
    with pytest.raises(AssertionError, match=message):
        check_source(Slipped(source, slip))


def test_a_chain_has_its_own_order_in_a_run():
    source = Source.build(np.arange(64), 4, "reshuffle")
    orders = {tuple(source.chunk((0, chain), 0, 16)) for chain in range(8)}
    assert len(orders) == 8
    assert sgld.testing.check_source is check_source
