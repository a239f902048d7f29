"""The plan of a run on many rows and devices: its counts are those of a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation import gradient_noise
from sgld.errors import UsageError
from sgld.inference.tuning.scaling import scaled
from sgld.model import sums


def test_passes_are_those_of_a_run(rng, monkeypatch):
    rows, counted = 100_001, {"gradients": 0, "curvature": 0}

    def count(module, name, kind, of):
        real = getattr(module, name)

        def counting(problem, *args, **named):
            if problem.has_rows and problem.num_data == rows:
                counted[kind] += of(*args)
            return real(problem, *args, **named)

        monkeypatch.setattr(module, name, counting)

    for name in ("value_and_gradient", "likelihood_gradient", "block_gradients"):
        count(sums, name, "gradients", lambda *_: 1)
    count(sums, "_gradients", "gradients", lambda zs: len(zs))
    count(sums, "curvature", "curvature", lambda *_: 1)
    # rows that matter: the centre and every draw
    real = gradient_noise.each_row

    def each_row(look, problem, given, width):
        counted["gradients"] += len(given[0]) + 1
        return real(look, problem, given, width)

    monkeypatch.setattr(gradient_noise, "each_row", each_row)
    x = rng.standard_normal((rows, 2)).astype(np.float32)
    y = (rng.random(rows) < 0.4).astype(np.float32)
    posterior = sgld.Posterior(
        lambda b: -0.5 * jnp.sum(b**2),
        lambda b, row: row[1] * (row[0] @ b) - jax.nn.softplus(row[0] @ b),
    )
    draws = sgld.sample(posterior, (x, y), jnp.zeros(2), progress=False)
    assert draws.verdict.word == "trusted"
    plan = scaled(rows, 2, 1)
    assert abs(counted["gradients"] - plan.passes) <= 4, counted
    assert abs(counted["curvature"] - plan.curvatures) <= 2, counted
    assert draws.plan.setup.batch_size <= 64


def test_passes_are_divided_and_steps_are_not():
    one, many = scaled(10**9, 100, 1), scaled(10**9, 100, 64)
    assert one.table == many.table == 4 * 101 * 10**9
    assert 60 < one.on_device / many.on_device <= 64
    assert 40 < one.seconds / many.seconds < 64  # collectives take what is missing
    assert one.collectives == 0 < many.collectives
    assert scaled(10**9, 100, 64, "accelerator").seconds < many.seconds
    assert "1e9" not in str(many) and "376 GiB" in str(many)


@pytest.mark.parametrize(
    "asked", [(0, 1, 1), (2**31, 1, 1), (10, 0, 1), (10, 1, 11), (10, 1001, 1), (10, 1, 1, "abacus")]
)  # fmt: skip
def test_numbers_that_cannot_be_meant(asked):
    with pytest.raises(UsageError, match=r"must lie between|is one of core, accelerator\. Got 'abacus'"):  # fmt: skip
        scaled(*asked)
