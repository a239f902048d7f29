"""The host's loop: pieces that make up the whole, sized by time; Ctrl-C between two of them."""

import signal
import threading

import pytest

from sgld.core import work as pace
from sgld.core.work import Work


class Clock:
    """A computation whose units take so many seconds, and a call some more."""

    def __init__(self, monkeypatch, unit, call=0.0):
        self.now, self.unit, self.call = 0.0, unit, call
        monkeypatch.setattr(pace.time, "perf_counter", lambda: self.now)

    def run(self, work, end, **how):
        counts = []
        for first, count in work.pieces(0, end, **how):
            assert first == sum(counts)
            self.now += self.call + count * self.unit
            counts.append(count)
        return counts


def test_pieces_make_up_the_whole_and_take_about_so_long(monkeypatch):
    clock = Clock(monkeypatch, 0.001)
    counts = clock.run(Work("testing"), 5000)
    assert sum(counts) == 5000
    assert counts[:3] == [1, 8, 64] and counts[-1] < 500
    assert set(counts[3:-1]) <= {499, 500}


def test_slow_units_are_done_one_by_one_and_no_piece_is_beyond_the_most(monkeypatch):
    assert Clock(monkeypatch, 2.0).run(Work("testing"), 4) == [1, 1, 1, 1]
    assert max(Clock(monkeypatch, 1e-6).run(Work("testing"), 5000, most=100)) == 100


def test_a_piece_cut_short_says_nothing_against_longer_ones(monkeypatch):
    clock, work = Clock(monkeypatch, 0.001, call=0.01), Work("testing")
    clock.run(work, 5000)
    before = work._size
    assert clock.run(work, 3) == [3] and work._size == before
    clock.unit = 0.1  # it became slow: one long piece, and it is noticed
    assert clock.run(work, 5000)[1] <= 5


def test_ctrl_c_ends_the_work_between_two_pieces_and_is_given_back():
    before, done = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), Work("testing") as work:
        for first, _ in work.pieces(0, 10, most=1):
            if first == 3:
                signal.raise_signal(signal.SIGINT)
                assert work.interrupted
            done.append(first)
    assert done == [0, 1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_does_not_wait():
    with pytest.raises(KeyboardInterrupt), Work("testing"):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second was not heard")


def test_work_in_another_thread_leaves_signals_alone():
    seen = []

    def work():
        with Work("testing") as here:
            seen.extend(here.pieces(0, 2, most=1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(0, 1), (1, 1)]


def test_late_from_its_time_on(monkeypatch):
    monkeypatch.setattr(pace.time, "monotonic", lambda: 5.0)
    assert Work("testing", until=4.0).late and not Work("testing", until=6.0).late
