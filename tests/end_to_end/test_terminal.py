"""What a terminal sees of a fit: every stage by name, no long silence, nothing complete before the end."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

ORDER = ["data", "mode", "other modes", "rows", "sampling", "verdict", "writing", "report"]
AGAIN = {"plan", "curvature"}  # around others, before and after them
STAGE = re.compile(r"[\d.]+ s(?:, about [^\r]*? left(?: or more)?)?   ([a-z ]+?) [\d.]+ s")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("terminal") / "rows.csv"
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3000, 2))
    y = x @ [1.0, -0.5] + rng.normal(size=3000)
    np.savetxt(path, np.column_stack([x, y]), delimiter=",", header="a,b,y", comments="")
    return path


# python -m sgld; a shell that put this suite behind has Ctrl-C ignored in all that it starts
HEARD = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("sgld", run_name="__main__")
"""


def begin(table, stdout=None, command=()):
    """A command whose standard output and error are one terminal, and this side of it; by default a fit."""
    ours, theirs = pty.openpty()
    fit = ("fit", table, "y ~ a + b", "--overwrite", "--out", table.parent / "run")
    process = subprocess.Popen(
        [sys.executable, "-c", HEARD, *(command or fit)],
        stdin=theirs, stdout=theirs if stdout is None else stdout, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    return process, ours


def read(ours, until=None):
    """What is written, up to the end or a text, and the seconds between two writings."""
    text, gaps, last = b"", [], time.monotonic()
    while until is None or until not in text:
        ready, _, _ = select.select([ours], [], [], 60)
        assert ready, text[-500:]
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side was closed
            break
        if not part:
            break
        text += part
        gaps.append(time.monotonic() - last)
        last = time.monotonic()
    return text.decode(), gaps


def test_a_terminal_sees_every_stage_in_order_and_is_never_left_alone(table):
    process, ours = begin(table)
    text, gaps = read(ours)
    os.close(ours)
    assert process.wait() == 0
    assert "100%" not in text and "of 1 steps" not in text
    stages = STAGE.findall(text)
    # of a machine that is quick it is not the first of those that come again that is seen
    seen = [name for name in dict.fromkeys(stages) if name not in AGAIN]
    assert {"data", "sampling"} <= set(seen)
    assert seen == [name for name in ORDER if name in seen]
    assert "curvature" not in stages[stages.index("sampling") :]
    told = re.findall(r"\n[\d.]+ s: (data [^\r\n]*)", text)
    assert len(told) == 1  # the summary, once, at the end
    assert "report" in told[0] and "verdict: " in text.rsplit(told[0], 1)[0]
    assert len(gaps) > 8 and max(gaps) < 15  # 3 s are promised; a machine may be busy


@pytest.mark.parametrize("command", ["predict", "update", "report"])
def test_other_commands_say_what_they_do_from_the_first_second_on(table, command):
    """On the run that the fit above has made."""
    run = table.parent / "run"
    more = {
        "predict": (table, "--out", table.parent / "p.csv", "--overwrite"),
        "update": ("--drop", "3", "--out", table.parent / "less", "--overwrite"),
        "report": (),
    }
    process, ours = begin(table, command=(command, run, *more[command]))
    text, gaps = read(ours)
    os.close(ours)
    assert process.wait() == 0, text
    seen = {"predict": "data", "update": "sampling", "report": "report"}[command]
    assert STAGE.findall(text)[0] == "data" and text.startswith("\r")  # before anything else
    assert seen in STAGE.findall(text) and max(gaps) < 15
    assert (": data" in text.strip().splitlines()[-1]) is (
        command == "update"
    )  # what stages took stays


def test_what_is_piped_away_holds_no_progress(table):
    process, ours = begin(table, stdout=subprocess.PIPE)
    shown, _ = read(ours)
    os.close(ours)
    out = process.communicate()[0].decode()
    assert process.returncode == 0
    assert "left" in shown and "verdict" in out
    assert "\r" not in out and "left" not in out


@pytest.mark.parametrize("when", [b"priors", b"sampling"])
def test_ctrl_c_in_any_stage_leaves_a_sentence_and_no_traceback(table, when):
    process, ours = begin(table)
    read(ours, until=when)
    process.send_signal(signal.SIGINT)
    text, _ = read(ours)
    os.close(ours)
    assert process.wait() == 130
    assert "interrupted" in text and "Traceback" not in text
