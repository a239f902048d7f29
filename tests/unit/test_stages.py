"""Stages: named by whoever works, shown by the outermost call; never complete before the end."""

import io
import re
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from sgld.core import progress
from sgld.core.progress import aside, progress_shown, report_count, stage
from sgld.core.work import Work


class Terminal(io.StringIO):
    """Standard error of a terminal that is 80 columns wide."""

    encoding = "utf-8"

    def isatty(self):
        return True

    def lines(self):
        return [line.rstrip() for line in re.split("[\r\n]", self.getvalue()) if line.strip()]


@pytest.fixture
def terminal(monkeypatch):
    out = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=out, modules={}))
    monkeypatch.setattr(progress._Line, "every", 0.005)
    return out


class Clock:
    """Stages of which the clock is set by hand, and nothing is shown."""

    def __init__(self, monkeypatch, ahead=()):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)
        self.stages = progress._Stages(progress._Line(Terminal(), lambda: 80), ahead)

    def spend(self, name, seconds):
        self.stages.enter(name, False)
        self.now += seconds
        self.stages.leave()

    def text(self):
        return self.stages.text(self.now)

    def left(self):
        found = re.search(r"about ([\d.]+) s left", self.text())
        return None if found is None else float(found[1])


def wait_for(terminal, text):
    end = time.monotonic() + 5
    while text not in terminal.getvalue():
        assert time.monotonic() < end, terminal.getvalue()[-200:]
        time.sleep(0.005)


def test_stages_are_shown_by_name_while_one_long_call_runs(terminal):
    with progress_shown(True, ("mode", "curvature")):
        with stage("mode"):
            wait_for(terminal, "mode")
            shown = len(terminal.lines())
            # one call that says nothing: the time of the stage moves all the same
            end = time.monotonic() + 5
            while len(terminal.lines()) <= shown + 2:
                assert time.monotonic() < end
                time.sleep(0.01)
            time.sleep(0.1)  # the summary leaves out what took no time
        with stage("curvature"):
            wait_for(terminal, "curvature")
    assert re.fullmatch(r"[\d.]+ s: mode [\d.]+ s(, curvature [\d.]+ s)?", terminal.lines()[-1])
    assert threading.active_count() == len(threading.enumerate())
    assert not [t for t in threading.enumerate() if t.name == "sgld-progress"]


def test_nothing_is_complete_before_the_end(terminal):
    with progress_shown(True, ("sampling",)), stage("sampling"):
        report_count(40, 40, "steps", rate=1e6)
        wait_for(terminal, "40 of 40 steps")
    assert "99%" in terminal.getvalue() and "100%" not in terminal.getvalue()


def test_a_line_is_as_long_as_the_terminal_is_wide(terminal, monkeypatch):
    monkeypatch.setattr(progress, "_columns", lambda stream: 30)
    with progress_shown(True, ("mode",)), stage("mode"):
        report_count(1, 2, "steps", said="said " * 50)
        wait_for(terminal, "about")
    lines = [line for line in terminal.lines() if "left" in line or "━" in line or "─" in line]
    assert max(map(len, lines)) == 29


def test_what_is_printed_aside_has_a_line_of_its_own(terminal):
    with progress_shown(True), stage("mode"):
        wait_for(terminal, "mode")
        with aside():
            terminal.write("a plan\n")
            before = terminal.getvalue()
            time.sleep(0.05)
            assert terminal.getvalue() == before  # nothing is written meanwhile
        shown = len(terminal.getvalue())
        end = time.monotonic() + 5
        while len(terminal.getvalue()) == shown:
            assert time.monotonic() < end
    assert re.search(r"\r +\ra plan\n", terminal.getvalue())


def test_silent_where_it_was_asked_and_inside_another_call_one_line(terminal):
    with progress_shown(False), stage("mode"):
        time.sleep(0.05)
    assert terminal.getvalue() == ""
    with progress_shown(True):
        with progress_shown(True), stage("mode"):
            wait_for(terminal, "mode")
        with stage("curvature"), progress_shown(False), stage("hidden"):
            wait_for(terminal, "curvature")
        assert sum(t.name == "sgld-progress" for t in threading.enumerate()) == 1
    assert "hidden" not in terminal.getvalue()


def test_an_error_leaves_an_empty_line_and_no_summary(terminal):
    with pytest.raises(ValueError), progress_shown(True), stage("mode"):
        wait_for(terminal, "mode")
        raise ValueError
    assert re.search(r"\r +\r$", terminal.getvalue())
    assert progress._present.get() is None


def test_what_stages_took_stays_only_where_it_is_asked_for(terminal):
    for summary in (True, False):
        with progress_shown(True, summary=summary), stage("mode"):
            time.sleep(0.06)
        assert (": mode " in terminal.lines()[-1]) is summary


def test_a_line_moves_before_jax_is_there():
    """The import of JAX takes a second or two, in which a terminal is not left alone."""
    code = "import sys, sgld.core.progress, sgld.core.work; print([m for m in ('jax', 'numpy') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_without_a_terminal_a_line_every_ten_seconds_and_none_for_a_short_call(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=out, modules={}))
    assert progress._Lines.every == 10
    with progress_shown(True), stage("mode"):
        pass
    assert out.getvalue() == ""
    monkeypatch.setattr(progress._Lines, "every", 0.02)
    with progress_shown(True, ("mode",)), stage("mode"):
        while out.getvalue().count("\n") < 3:
            time.sleep(0.005)
    *lines, last = out.getvalue().splitlines()
    assert all(re.fullmatch(r"sgld +\d+%  [\d.]+ s, about [\d.]+ s left   mode [\d.]+ s", line)
               for line in lines)  # fmt: skip
    assert last.startswith("sgld 100%")


def test_a_closed_stream_stops_nothing(monkeypatch):
    out = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=out, modules={}))
    monkeypatch.setattr(progress._Line, "every", 0.005)
    with progress_shown(True), stage("mode"):
        out.close()
        time.sleep(0.03)
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=None, modules={}))
    with progress_shown(True), stage("mode"):
        pass


def test_a_whole_stage_keeps_its_name_and_its_count(monkeypatch):
    clock = Clock(monkeypatch)
    clock.stages.enter("other modes", True)
    clock.stages.count(progress._Count(3, 12, "starts", 0.0, "", 1e9))
    clock.stages.enter("mode", False)
    clock.stages.count(progress._Count(1, 5, "steps", 0.0, "", 1e9))
    assert "other modes" in clock.text() and "3 of 12 starts" in clock.text()
    clock.stages.leave()
    clock.stages.leave()


def test_what_is_left_is_in_proportion_to_what_stages_took(monkeypatch):
    ahead = ("mode", "curvature", "sampling")
    usual = [progress.DEMO_STAGE_SECONDS[name] for name in ahead]
    clock = Clock(monkeypatch, ahead)
    clock.spend("mode", 10 * usual[0])  # ten times as slow
    assert clock.left() == pytest.approx(10 * (usual[1] + usual[2]), abs=0.6)
    clock.spend("curvature", 10 * usual[1])
    clock.stages.enter("sampling", False)
    clock.now += 1
    clock.stages.count(progress._Count(250, 1000, "steps", 50.0, "", float("inf")))
    assert clock.left() == pytest.approx(15, abs=0.6)  # counted: 750 at 50 a second
    clock.stages.count(progress._Count(250, 1000, "steps", 50.0, "", clock.now + 4))
    assert clock.left() == pytest.approx(4, abs=0.1)  # max_seconds


def test_what_is_left_goes_down_while_one_piece_of_the_work_is_computed(monkeypatch):
    """An estimate that never moves is worse than none."""
    clock = Clock(monkeypatch)
    clock.stages.enter("sampling", False)
    monkeypatch.setattr(progress, "_present", SimpleNamespace(get=lambda: clock.stages))
    report_count(250, 1000, "steps", rate=50.0)
    assert clock.left() == pytest.approx(15, abs=0.6)
    clock.now += 10
    assert clock.left() == pytest.approx(5, abs=0.1)
    clock.now += 30  # longer than it should
    assert clock.left() == pytest.approx(10, abs=0.6)


def test_the_share_never_goes_back(monkeypatch):
    clock = Clock(monkeypatch, ("mode", "sampling"))
    clock.stages.enter("sampling", False)
    shares = []
    for done, rate in ((10, 100.0), (500, 1000.0), (510, 1.0), (990, 1000.0), (1000, 1000.0)):
        clock.now += 1
        clock.stages.count(progress._Count(done, 1000, "steps", rate, "", float("inf")))
        shares.append(int(re.search(r"(\d+)%", clock.text())[1]))
    assert shares == sorted(shares) and shares[0] < 20 and 80 < shares[-1] < 100


def test_a_stage_that_takes_longer_than_usual_promises_only_what_comes_after_it(monkeypatch):
    """A promise that grows while one waits for it is worse than none; the share still allows for more."""
    clock = Clock(monkeypatch, ("mode", "sampling"))
    clock.stages.enter("mode", False)
    clock.now += 40
    assert " 77%  40 s, about 2.2 s left or more   mode 40 s" in clock.text()
    clock = Clock(monkeypatch, ("mode",))
    clock.stages.enter("mode", False)
    clock.now += 40
    assert " 80%  40 s   mode 40 s" in clock.text()


def test_work_is_a_stage_that_counts_its_units(monkeypatch):
    clock = Clock(monkeypatch)
    token = progress._present.set(clock.stages)
    try:
        with Work("sampling", steps=512) as work:
            texts = []
            for _ in work.pieces(0, 8, most=4):
                texts.append(clock.text())
            texts.append(clock.text())
    finally:
        progress._present.reset(token)
    assert "sampling" in texts[0] and "0 of 4,096 steps" in texts[0]
    assert "4,096 of 4,096 steps" in texts[-1]
    assert not any("of 1 steps" in text for text in texts)
