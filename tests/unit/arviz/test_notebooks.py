"""The notebooks of docs/notebooks run in a kernel, and what they show is whole: no empty output, no words lost."""

import os
from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import sgld

FOLDER = Path(__file__).parents[3] / "docs" / "notebooks"


def run(notebook):
    """The notebook with its outputs; the kernel is this Python, which finds this package."""
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}})  # fmt: skip
    here = {"PYTHONPATH": str(Path(sgld.__file__).parents[1])}
    # what one kernel compiles the next ones read
    cached = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    client.execute(env={**os.environ, **here, **cached})
    return notebook


def shown(cell):
    """(kind, text) of every output of a cell."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output.name, output.text
        else:
            data = output.get("data", {})
            yield output.output_type, data.get("text/html") or data.get("image/png") or data.get("text/plain", "")  # fmt: skip


def last(cell):
    return list(shown(cell))[-1][1]


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@cache
def book(name):
    """One of the two, run."""
    return run(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4))


@pytest.mark.slow
def test_every_cell_shows_something_and_nothing_empty():
    names = {path.stem for path in FOLDER.glob("*.ipynb")}
    assert names == {"density", "table"}
    for name in names:
        for cell in code(book(name)):
            outputs = list(shown(cell))
            assert outputs, cell.source
            for kind, text in outputs:
                assert kind != "stderr" and text.strip(), (kind, cell.source)


@pytest.mark.slow
def test_the_progress_line_ends_as_what_each_stage_took():
    """One display, replaced: of the run, then of nothing else."""
    first = code(book("density"))[0]
    kinds = [kind for kind, _ in shown(first)]
    assert kinds == ["display_data", "execute_result"]
    (_, line), _ = shown(first)
    assert "sampling" in line and "verdict" in line and "left" not in line and "<code" in line


@pytest.mark.slow
def test_views_and_figures_stand_in_the_cells():
    table, density = code(book("table")), code(book("density"))
    for cell in (table[0], density[0]):
        assert 'class="sgld"' in last(cell) and "trusted" in last(cell)
    assert "step size h" in last(density[1]) and "upper" in last(density[3])
    for cell in (table[1], table[2], density[2]):
        (picture,) = [o for o in cell.outputs if "image/png" in o.get("data", {})]
        assert len(picture.data["image/png"]) > 5000, cell.source
    assert "elpd_loo" in last(density[5]) and "of 6000 rows" in last(density[4])
    assert last(table[3]).index("negative binomial") < last(table[3]).index("poisson")


def test_a_run_that_fails_says_where_and_leaves_no_empty_output():
    source = """
import time, sgld
from sgld.core.progress import progress_shown, stage
with progress_shown(True), stage("curvature"):
    time.sleep(1.0)
    raise ValueError("planted")"""
    quick = "from sgld.core.progress import progress_shown\nwith progress_shown(True):\n    pass"
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in (quick, source)])
    with pytest.raises(CellExecutionError, match="planted"):
        run(made)
    nothing, failed = made.cells
    assert nothing.outputs == []
    (kind, line), (error, _) = shown(failed)
    assert kind == "display_data" and "stopped: " in line and "curvature" in line
    assert error == "error"
