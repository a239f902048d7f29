"""Rows over several devices: the batches are those of memory (that they stay apart: end_to_end/test_mesh.py)."""

import itertools

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh

from sgld.core.devices import as_mesh, check_chains
from sgld.data.mapped import Files, OnDisk
from sgld.data.memory import AlwaysIn, InMemory
from sgld.data.sharded import Names, Sharded, _taken_from, over_data
from sgld.data.source import ORDERS
from sgld.errors import DataError, UsageError
from sgld.testing import check_source


def dealt(source: InMemory, shards: int) -> Sharded:
    """As over so many devices, on one."""
    count = source.num_data
    local = -(-count // shards)
    at = np.stack([np.arange(j, j + local * shards, shards) % count for j in range(shards)])
    rows = jax.tree.map(lambda leaf: leaf[at], source.rows)
    names = Names(source.original_rows, source.hash)
    return Sharded(rows, count, source.batch_size, source.order, names)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("rows", "n", "shards"), [(23, 5, 4), (24, 6, 3), (24, 8, 4), (9, 8, 2), (7, 1, 7)])  # fmt: skip
def test_the_contract_holds_over_any_number_of_devices(order, rows, n, shards):
    data = {"x": np.arange(rows, dtype=np.float32), "y": np.arange(rows) % 3}
    source = dealt(InMemory.build(data, n, order, seed=3), shards)
    assert len(check_source(source, seed=3).checks) == 6


@pytest.mark.parametrize(("rows", "n", "shards"), [(23, 5, 4), (24, 8, 4), (30, 7, 3), (28, 7, 4)])
@pytest.mark.parametrize("always", [(), (2, 11, 19)])
def test_a_block_holds_the_rows_of_the_block_in_memory(rows, n, shards, always):
    plain = InMemory.build(np.arange(float(rows)), n, "reshuffle", seed=1)
    laid = dealt(plain, shards)
    if always:
        plain, laid = AlwaysIn.of(plain, always), AlwaysIn.of(laid, always)

    def counted(batch):
        weight = np.ones(len(batch.rows)) if batch.weight is None else np.asarray(batch.weight)
        pairs = zip(np.asarray(batch.rows).tolist(), weight.tolist(), strict=True)
        return sorted(pair for pair in pairs if pair[1] > 0)

    for k in range(plain.num_blocks):
        assert counted(plain.fetch(np.int32(k))) == counted(laid.fetch(np.int32(k)))


def test_a_mesh_of_one_device_holds_what_memory_holds():
    mesh = as_mesh(jax.make_mesh((1, 1), ("chain", "data")))
    data = np.arange(10.0, dtype=np.float32)
    source, plain = Sharded.of(data, mesh, seed=5), InMemory.of(data, seed=5)
    assert source.hash() == plain.hash()
    np.testing.assert_array_equal(source.take(np.arange(10)), plain.take(np.arange(10)))
    np.testing.assert_array_equal(source.original_rows(np.arange(10), 5), plain.original_rows(np.arange(10), 5))  # fmt: skip


def test_each_of_four_devices_holds_a_fourth_of_the_rows():
    assert over_data(AbstractMesh((2, 4), ("chain", "data"))).shard_shape((8, 3)) == (2, 3)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("differ", "told"),
    [(0, r"\(here \(10,\)\); give all"), (1, r"\(here \(10,\) with other values\)")],
)
def test_processes_with_other_rows_are_told_so(monkeypatch, differ, told):
    asked = itertools.count()  # first the shapes, then the digests
    gather_digests = lambda word: [word, b"other" if next(asked) == differ else word]  # noqa: E731
    monkeypatch.setattr("sgld.data.sharded.spans_processes", lambda mesh: True)
    monkeypatch.setattr("sgld.core.devices.gather_digests", gather_digests)
    mesh = as_mesh(jax.make_mesh((1, 1), ("chain", "data")))
    with pytest.raises(DataError, match="processes 0 and 1 were given different rows " + told):
        Sharded.of(np.arange(10.0, dtype=np.float32), mesh)


@pytest.mark.unchecked
def test_chains_that_a_mesh_does_not_divide():
    class Three:
        shape = {"chain": 3, "data": 1}  # noqa: RUF012

    with pytest.raises(UsageError, match="4 chains is not a multiple of 3; give num_chains=3"):
        check_chains(Three(), 4)
    check_chains(Three(), 6)


def test_rows_of_a_file_are_its_own_pages_or_copied_once(tmp_path):
    """Over devices each must have its rows together, in memory that XLA takes as it is."""
    rows = np.arange(46.0, dtype=np.float32).reshape(23, 2)
    np.save(tmp_path / "rows.npy", rows[np.r_[:23, 0]])
    files = Files((str(tmp_path / "rows.npy"),), np.arange(23), np.zeros(0, int), "a" * 64, "", {})
    mesh = as_mesh(jax.make_mesh((1, 1), ("chain", "data")))
    source = Sharded.of_files(OnDisk.of(files, jax.tree.structure(0)), mesh)
    np.testing.assert_array_equal(source.rows[0], rows)
    assert source.rows.unsafe_buffer_pointer() == files.leaves[0].ctypes.data
    for at in (np.array([7]), np.arange(1, 23, 4), np.arange(3, 24, 4) % 23):
        own = _taken_from(files.leaves[0], at)
        np.testing.assert_array_equal(own, rows[at])
        assert own.ctypes.data % 64 == 0 and type(own) is np.ndarray
