"""Rows that no probe row stands for: chains apart at a few of thousands, and other starts at one of them."""

import numpy as np
import pytest

from sgld.diagnostics.function_space.other_chains import MAX_R_HAT, OtherRows, others
from sgld.diagnostics.function_space.predictions import CLASSES, MEANS

RNG = np.random.default_rng(0)
ROWS = np.arange(64, 3000)
EVEN = np.full((4, 200), 1 / 800)


def predict(z, rows):
    """Row 1234 and two beside it are of a kind of their own: the second number, which is all that tells them."""
    own = (rows >= 1234) & (rows < 1237)
    mean = np.where(own, z[..., 1:2], z[..., :1] * np.sin(rows))
    return np.stack([mean, -mean], axis=-1)


def of(z, rows=ROWS, kind=MEANS):
    return OtherRows.of(kind, predict, z, rows)


@pytest.mark.parametrize("kind", [MEANS, CLASSES])
def test_three_rows_of_thousands_in_which_one_chain_stands_elsewhere(kind):
    z = RNG.normal(size=(4, 200, 2))
    assert of(z, kind=kind).r_hat(EVEN) < 1.05
    z[2, :, 1] += 8
    assert of(z, kind=kind).r_hat(EVEN) > MAX_R_HAT
    assert of(z, ROWS[ROWS < 1234], kind).r_hat(EVEN) < 1.05


@pytest.mark.parametrize(("draws", "most"), [(12, 1.5), (20, 1.3), (200, MAX_R_HAT)])
def test_of_few_draws_more_is_left_to_chance(draws, most):
    """A limit of 1.2 at twelve draws was passed by most runs of independent ones."""
    even, rng = np.full((4, draws), 1 / (4 * draws)), np.random.default_rng(1)
    slopes = rng.normal(size=(100, 1500))
    for _ in range(10):
        z = rng.normal(size=(4, draws, 100))
        found = OtherRows.of(
            MEANS, lambda z, rows: (z @ slopes[:, rows])[..., None], z, np.arange(1500)
        )
        assert found.r_hat(even) <= found.allowed <= most


def test_chains_from_other_starts_are_unlike_where_a_quarter_is_at_one_row():
    z = RNG.normal(size=(4, 200, 2))
    there = RNG.normal(size=(12, 2))
    found = of(z)
    assert found.unlike(there) == 0
    there[:3, 1] -= 8
    assert found.unlike(there) == 3
    assert found.unlike(there[1:]) == 0  # two of them: an optimiser may have been caught
    assert found.unlike(np.repeat(there, 2, axis=0)[1:]) == 0  # 5 of 23
    assert found.unlike(there[:0]) == 0
    z[0, 7, 1] = -20  # a draw that glances do not hold has been there and further
    assert of(z).unlike(there) == 0


def test_nothing_is_said_where_there_is_too_little_to_tell():
    z = RNG.normal(size=(4, 200, 2))
    assert of(z, ROWS[:0]) is None
    assert of(z[:1]) is None
    assert of(z[:, :7]) is None
    assert of(np.repeat(z[:, :1], 200, axis=1)[:1].repeat(4, axis=0)).r_hat(EVEN) is None


def test_of_wide_predictions_fewer_rows_are_looked_at(monkeypatch):
    monkeypatch.setattr(
        "sgld.diagnostics.function_space.other_chains.MAX_GLANCE_NUMBERS", 8 * 4 * 2 * 50
    )
    assert len(of(RNG.normal(size=(4, 200, 2))).rows) == 50


def test_as_many_rows_are_looked_at_as_a_share_of_the_run_pays_for():
    assert list(others(64, 70, 10**9)) == list(range(64, 70))
    assert others(64, 10**6, 10**9)[[0, -1]].tolist() == [64, 64 + 4096 - 1]
    assert (
        len(others(64, 10**6, 200_000)) == 1500
    )  # of 200,000 gradients a fiftieth is 12,000 predictions, 8 a row
    assert len(others(64, 10**6, 0)) == 256
