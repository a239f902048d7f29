"""Positions that are held of a run: of every draw, or of every 2^k-th, wherever chunks begin and end."""

import numpy as np
import pytest

from sgld.inference.sink import RESERVE_FACTOR, Positions, with_room


def of(first, end):
    """Positions of the draws from `first` up to `end`, whose one number is which they are."""
    return np.arange(first, end, dtype=np.float32).reshape(-1, 1, 1)


def taken(room, pieces):
    found, first = Positions(room), 0
    for size in pieces:
        found.take(first, of(first, first + size))
        first += size
    return found, first


@pytest.mark.parametrize("room", [2, 3, 7, 32, 1000])
@pytest.mark.parametrize("pieces", [[200], [1] * 200, [3, 90, 7, 100]])
def test_every_so_many_th_is_held_whatever_the_pieces(room, pieces):
    found, count = taken(room, pieces)
    numbers, z = found.between(0, count)
    np.testing.assert_array_equal(numbers, np.arange(0, count, found.every))
    np.testing.assert_array_equal(z[:, 0, 0], numbers)
    assert len(numbers) <= room < 2 * len(numbers) + 2 or found.every == 1


def test_a_part_is_of_the_draws_in_it():
    found, _ = taken(8, [100])
    assert found.every == 16
    numbers, z = found.between(17, 80)
    assert numbers.tolist() == z[:, 0, 0].tolist() == [32, 48, 64]
    assert len(found.between(17, 32)[0]) == 0


def test_parts_that_are_put_back_are_the_whole():
    """As from chunks of a run directory, the first of which were written when more was held."""
    few, _ = taken(16, [30])
    early = tuple(part.copy() for part in few.between(0, 30))  # they move as others come
    few.take(30, of(30, 100))
    back = Positions(16)
    back.every = few.every
    back.put_back(*early)
    back.put_back(*few.between(30, 100))
    back.take(100, of(100, 130))
    few.take(100, of(100, 130))
    for one, other in zip(few.between(0, 130), back.between(0, 130), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="positions of the draws"):
        back.put_back(np.array([0, 16]), of(0, 2))
    with pytest.raises(ValueError, match="positions of the draws"):
        back.put_back(few.between(0, 130)[0], of(0, 1))


def test_a_directory_that_holds_other_positions_is_damaged():
    found, count = taken(32, [100])
    found.check(count)
    for every, held in ((2**40, 1), (3, 34), (4, 24), (4, 26)):
        found.every, found.count = every, held
        with pytest.raises(ValueError, match="positions of 100 draws"):
            found.check(count)
    Positions(32).check(count)  # of a run that holds none


@pytest.mark.parametrize("room", [8, 1000])
def test_where_every_second_draw_is_dropped_those_left_are_counted_anew(room):
    found, _ = taken(room, [100])
    every = found.every
    found.drop_draws()
    numbers, z = found.between(0, 50)
    assert found.every == max(1, every // 2)
    np.testing.assert_array_equal(z[:, 0, 0], 2 * numbers)
    found.take(50, of(50, 60))
    assert found.between(0, 60)[0][-1] == 59 // found.every * found.every


def test_room_is_made_ahead_and_no_more_than_there_may_be(monkeypatch):
    like = np.zeros((1, 3), np.float32)
    held = with_room(None, 0, 10, like)
    assert held.shape == (RESERVE_FACTOR * 10, 3) and with_room(held, 5, 40, like) is held
    assert len(with_room(None, 0, 10, like, 15)) == 15
    held[:5] = 1
    assert with_room(held, 5, 41, like)[:5].min() == 1
    real = np.empty
    few = lambda shape, dtype: real(shape, dtype) if shape[0] == 10 else _none()  # noqa: E731
    monkeypatch.setattr(np, "empty", few)
    assert len(with_room(None, 0, 10, like)) == 10


def _none():
    raise MemoryError
