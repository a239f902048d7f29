"""What one process alone may be refused is said by all of them (with real ones: end_to_end/test_mesh.py)."""

import contextlib
import contextvars
import threading

import jax
import numpy as np
import pytest

from sgld.core import devices
from sgld.data.validate import as_source
from sgld.errors import DataError, RunError, UsageError


def each(monkeypatch, bodies, around=devices.raise_together):
    """What every `process` raises, a thread each, whose collective is a barrier."""
    mine, said, found = threading.local(), [None] * len(bodies), [None] * len(bodies)
    barrier = threading.Barrier(len(bodies), timeout=10)

    def gather(value):
        said[mine.rank] = np.asarray(value)
        barrier.wait()
        everything = np.stack(said)
        barrier.wait()
        return everything

    monkeypatch.setattr("jax.experimental.multihost_utils.process_allgather", gather)
    monkeypatch.setattr(jax, "process_index", lambda: mine.rank)

    def run(rank):
        mine.rank = rank
        devices._together.set(True)
        try:
            with around():
                bodies[rank]()
        except Exception as error:
            found[rank] = error

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, rank))
        for rank in range(len(bodies))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def fails(error):
    def body():
        raise error

    return body


def test_nothing_is_raised_where_nothing_failed(monkeypatch):
    assert each(monkeypatch, [lambda: None] * 3) == [None] * 3


@pytest.mark.parametrize("kind", [RunError, UsageError])
def test_a_refusal_of_one_is_that_of_all(monkeypatch, kind):
    found = each(monkeypatch, [fails(kind("ü is in use.")), lambda: None, lambda: None])
    assert [type(error) for error in found] == [kind] * 3
    assert {str(error) for error in found} == {"ü is in use."}


def test_where_several_fail_all_say_what_the_first_says(monkeypatch):
    found = each(monkeypatch, [lambda: None, fails(RunError("one.")), fails(RunError("two."))])
    assert [str(error) for error in found] == ["one."] * 3


def test_what_the_rows_of_one_may_not_be_is_said_by_all(monkeypatch):
    one = devices.as_mesh(jax.make_mesh((1, 1), ("chain", "data")))
    tables = [np.array([1.0, 2.0]), np.array([1.0, np.nan])]
    bodies = [lambda rows=rows: as_source(rows, 0, one) for rows in tables]
    found = each(monkeypatch, bodies, around=contextlib.nullcontext)
    assert [type(error) for error in found] == [DataError] * 2 and "holds nan" in str(found[0])


def test_an_error_of_another_kind_is_named(monkeypatch):
    found = each(monkeypatch, [lambda: None, fails(KeyError("x"))])
    assert isinstance(found[0], RunError) and str(found[0]) == "process 1 ended with KeyError: 'x'"
    assert isinstance(found[1], KeyError)


def test_a_process_alone_raises_what_it_raised():
    with pytest.raises(KeyError), devices.raise_together():
        raise KeyError("x")
