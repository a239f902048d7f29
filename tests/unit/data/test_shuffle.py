"""The order of rows: one mix of row number and seed, wherever the rows lie."""

import numpy as np
import pytest
from scipy import stats

from sgld.data.memory import InMemory, keys, shuffled


def python_key(row, seed):
    """The docstring's equation, with Python's own integers."""
    most, g = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & most
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & most
        return x ^ (x >> 31)

    first = mix((seed + g) & most)
    second = mix((first + g) & most)
    return mix(mix((row + first) & most) ^ second)


@pytest.mark.parametrize("seed", [0, 1, 2**63, -1])
def test_keys_are_the_equations(seed):
    rows = np.array([0, 1, 2, 1000, 2**31, 2**40])
    assert keys(rows, seed).tolist() == [python_key(int(r), seed % 2**64) for r in rows]


def test_the_mix_is_splitmix():
    """Vigna's splitmix64.c from the state 0 gives these; here each is mix(k g)."""
    from sgld.data.memory import GAMMA, _mix

    with np.errstate(over="ignore"):
        states = np.arange(1, 4).astype(np.uint64) * GAMMA
    assert [hex(int(x)) for x in _mix(states)] == [
        "0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f",
    ]  # fmt: skip


def test_rows_in_memory_lie_in_the_order_of_their_keys():
    x = np.arange(1000, dtype=np.float32)
    source = InMemory.build(x, 100, "reshuffle", seed=5)
    laid = np.asarray(source.rows)
    order = np.argsort(keys(np.arange(1000), 5))
    np.testing.assert_array_equal(laid, np.append(order, order[:1]))
    np.testing.assert_array_equal(source.original_rows(np.arange(1000), 5), order)


def test_any_piece_of_the_keys_can_be_made_alone():
    whole = keys(np.arange(10_000), 3)
    parts = [keys(np.arange(a, a + 1000), 3) for a in range(0, 10_000, 1000)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_orders_look_random_over_rows_and_seeds():
    """Where rows come to lie: uniform, and rank correlations between rows, seeds and neighbours are none."""
    N, seeds = 4096, range(64)
    place = np.stack([np.argsort(shuffled(N, seed)) for seed in seeds])  # [seed, row]
    for row in (0, 1, 7, N - 1):
        assert stats.kstest((place[:, row] + 0.5) / N, "uniform").pvalue > 1e-4
    bound = 5 / np.sqrt(N)
    for a, b in [(place[0], np.arange(N)), (place[0], place[1]), (place[0][1:], place[0][:-1])]:
        assert abs(np.corrcoef(a, b)[0, 1]) < bound
    # neighbouring seeds, neighbouring rows: no shift of one order is another
    assert abs(np.corrcoef(place[0][:-1], place[1][1:])[0, 1]) < bound
    blocks = np.stack([np.bincount(p[: N // 2] // 64, minlength=64) for p in place])
    expected = N / 128
    chi = ((blocks - expected) ** 2 / expected / (1 - 0.5)).sum()
    assert stats.chi2(blocks.size - len(seeds)).sf(chi) > 1e-4
