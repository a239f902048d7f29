"""What a plan will take, predicted: gradients, seconds, bytes."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.inference import sample as runs
from sgld.inference.tuning import cost
from sgld.inference.tuning.cost import predicted_bytes
from sgld.model.prepare import prepare
from sgld.model.problem import Request
from sgld.results.plan import Setup, in_bytes, in_count, in_seconds
from sgld.samplers.hmc import HMC

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
DATA = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * (x[0] @ t - x[1]) ** 2)


def request(**given):
    names = {name: "auto" for name in Request.__dataclass_fields__}
    fixed = {
        "tolerance": 0.05,
        "temperature": 1.0,
        "seed": 0,
        "max_steps": None,
        "max_seconds": None,
    }
    return Request(**{**names, **fixed, **given})


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


def test_gradients_are_chains_times_steps_times_rows():
    rows = np.zeros((10_000, 2), np.float32), np.zeros(10_000, np.float32)
    table = prepare(DATA, rows, jnp.zeros(2))
    setup = replace(SETUP, burn_in=20, thin=3, order="independent", batch_size=100)
    steps = 20 + 3 * 999 + 1
    of = lambda gradient: cost.predicted(table, replace(setup, gradient=gradient))  # noqa: E731
    plain, centred = of(sgld.Minibatch()), of(sgld.ControlVariates())
    assert plain.gradients == 4 * steps * 100 and centred.gradients == 2 * plain.gradients
    assert of(sgld.Full()).gradients == 4 * steps * 10_000
    assert plain.seconds < centred.seconds < of(sgld.Full()).seconds / 5
    longer = cost.predicted(table, replace(setup, thin=30))
    assert longer.seconds > 5 * centred.seconds


def test_a_trajectory_is_as_many_gradients_as_it_has_leapfrogs_on_average():
    problem = prepare(GAUSSIAN, None, jnp.zeros(2))
    found = cost.predicted(problem, replace(SETUP, sampler=HMC(20.0)))
    assert found.gradients == 4 * 1000 * 11.5


def test_the_prediction_is_printed_with_the_plan_and_goes_with_the_draws():
    told = []
    draws = runs.begin(
        GAUSSIAN, None, jnp.zeros(2), request(num_draws=200), None, {}, path=None, overwrite=False,
        progress=False, checkpoint_every=10.0, on_plan=told.append,
    )  # fmt: skip
    predicted = told[0].predicted
    steps = draws.info["num_steps"]
    assert predicted.gradients == pytest.approx(draws.num_chains * steps)
    assert f"predicted         {predicted}" in str(told[0])
    assert str(predicted).endswith(
        "under a second on one core without compilation; 380 MiB of memory"
    )
    assert draws.info["predicted"]["seconds"] == predicted.seconds
