"""The line of a long computation in a notebook, without a kernel: what is displayed, and when."""

import sys
import time
import types

import pytest

from sgld.core.progress import in_a_notebook, progress_shown, stage


@pytest.fixture
def shown(monkeypatch):
    """A notebook that notes what it is given: every display a list of the texts it had."""
    displays = []

    class Handle:
        def __init__(self, data):
            self.texts = [data["text/plain"]]

        def update(self, data, raw):
            assert raw and "<code" in data["text/html"]
            self.texts.append(data["text/plain"])

    def display(data, raw, display_id):
        assert raw and display_id
        handle = Handle(data)
        displays.append(handle.texts)
        return handle

    shell = types.SimpleNamespace(kernel=object())
    notebook = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    monkeypatch.setattr("sgld.core.progress.Cell.every", 0.02)
    assert in_a_notebook()
    return displays


def test_one_display_is_replaced(shown, capsys):
    with progress_shown(True, ("data", "mode")):
        for name in ("data", "mode"):
            with stage(name):
                time.sleep(0.12)
    (texts,) = shown
    assert len(texts) > 3 and "data" in texts[0] and "%" in texts[-2]
    assert "data 0.1 s, mode 0.1 s" in texts[-1] and capsys.readouterr().err == ""


def test_a_run_that_fails_says_where(shown):
    with pytest.raises(ValueError), progress_shown(True), stage("curvature"):
        time.sleep(0.1)
        raise ValueError
    (texts,) = shown
    assert texts[-1].startswith("stopped: ") and "curvature" in texts[-1]


def test_a_call_that_is_over_at_once_leaves_nothing(shown, monkeypatch):
    monkeypatch.setattr("sgld.core.progress.Cell.every", 5.0)
    with progress_shown(True), stage("data"):
        pass
    assert shown == []


def test_a_terminal_with_ipython_is_no_notebook(shown, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert not in_a_notebook()
