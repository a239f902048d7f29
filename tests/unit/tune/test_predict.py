"""What a plan will take, predicted: bytes, and a refusal where the machine has fewer."""

from dataclasses import replace
from unittest.mock import Mock

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.draws.plan import in_bytes, in_count, in_seconds
from sgld.draws.setup import Setup
from sgld.errors import UsageError
from sgld.problem.prepare import prepare
from sgld.tune import predict
from sgld.tune.predict import machine_bytes, predicted_bytes

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
DATA = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * (x[0] @ t - x[1]) ** 2)
SETUP = Setup(None, sgld.Full(), None, None, num_chains=4, num_draws=1000)


def test_bytes_grow_with_draws_chains_parameters_and_rows():
    small, large = (prepare(GAUSSIAN, None, jnp.zeros(d)) for d in (2, 200))
    base = predicted_bytes(small, SETUP)
    more = predicted_bytes(small, replace(SETUP, num_draws=10**6)) - base
    assert more == 112 * 4 * (10**6 - 1000) * 2
    assert predicted_bytes(large, SETUP) - base > 112 * 4 * 1000 * 198
    many = replace(SETUP, num_chains=10**9, num_draws=1)
    assert predicted_bytes(small, many) > 10**9 * 2 * (112 + 16 * 512)
    assert predicted_bytes(small, SETUP, kept=0) == base - 112 * 4 * 1000 * 2
    rows = np.zeros((10_000, 2), np.float32), np.zeros(10_000, np.float32)
    table = prepare(DATA, rows, jnp.zeros(2))
    one_batch = predicted_bytes(table, SETUP) - base
    assert one_batch == 6 * 10_000 * 3 * 4 + 4 * 32 * 10_000
    batches = replace(SETUP, gradient=sgld.Minibatch(), batch_size=100)
    assert predicted_bytes(table, SETUP) - predicted_bytes(table, batches) == 4 * 32 * 9_900
    saga = replace(batches, gradient=sgld.SAGA())
    assert predicted_bytes(table, saga) - predicted_bytes(table, batches) == 4 * 4 * 10_000 * 2


@pytest.mark.parametrize(
    "given", [{"num_chains": 10**9}, {"num_draws": 10**8, "num_chains": 10_000}]
)
def test_a_run_that_the_machine_has_no_room_for_is_refused_with_the_number(given):
    with pytest.raises(UsageError, match=r"about \d+ TiB of memory, and this machine has .* GiB"):
        sgld.sample(GAUSSIAN, None, jnp.zeros(2), progress=False, **given)


def test_what_is_kept_decides_what_is_refused(monkeypatch):
    monkeypatch.setattr(predict, "machine_bytes", lambda: 2**31)
    given = {"num_draws": 10**7, "num_chains": 1, "progress": False}
    with pytest.raises(
        UsageError, match=r"2\.5 GiB of memory, and this machine has 2 GiB: 1 chains of 10,0"
    ):
        sgld.sample(GAUSSIAN, None, jnp.zeros(2), **given)
    monkeypatch.setattr(predict, "machine_bytes", lambda: None)
    predict.check_memory(prepare(GAUSSIAN, None, jnp.zeros(2)), replace(SETUP, num_draws=10**12))


def test_memory_of_a_container_counts_where_it_is_less(monkeypatch):
    found = machine_bytes()
    assert found is None or found > 2**28
    monkeypatch.setattr(predict, "CGROUP", Mock(read_text=lambda: "1048576\n"))
    monkeypatch.setattr("os.sysconf", lambda name: 2**12)
    assert machine_bytes() == 2**20
    monkeypatch.setattr(predict, "CGROUP", Mock(read_text=lambda: "max\n"))
    assert machine_bytes() == 2**24


def test_numbers_in_words():
    sizes = (5 * 2**10, 12 * 2**20, 3.4 * 2**30, 220 * 2**30, 2.0**63)
    assert [in_bytes(s) for s in sizes] == [
        "5 KiB",
        "12 MiB",
        "3.4 GiB",
        "220 GiB",
        "8 EiB",
    ]
    counts = (830, 12_345, 1.44e6, 2.5e9, 3e15)
    assert [in_count(n) for n in counts] == [
        "830", "12 thousand", "1.4 million", "2.5 billion", "3,000 trillion",
    ]  # fmt: skip
    spans = (0.2, 1.0, 61.0, 150.0, 4000.0, 2e6)
    assert [in_seconds(s) for s in spans] == [
        "under a second", "1 s", "61 s", "2.5 minutes", "1.1 hours", "23 days",
    ]  # fmt: skip
