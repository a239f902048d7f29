"""Which transitions of the reference's chains are kept, and how they are counted."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.results import statistics

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))


def run(**given):
    settings = {"method": "metropolis", "num_warmup": 200, "seed": 3, "progress": False}
    return sgld.reference(GAUSSIAN, None, np.zeros(2, np.float32), **{**settings, **given})


def test_thinned_chains_are_every_so_many_transitions():
    """Metropolis at 30% forgets itself in about ten: with thin = 20 draws are nearly independent."""
    dense, thinned = run(num_draws=2000), run(num_draws=2000, thin=20)
    share = [statistics.ess(d.position, d.weights).min() / 8000 for d in (dense, thinned)]
    assert share[0] < 0.3 and share[1] > 0.7
    assert thinned.info["num_gradients"] == 20 * 8000
    np.testing.assert_array_equal(thinned.step[:3], [220, 240, 260])
    assert thinned.info["acceptance_rate"] == pytest.approx(dense.info["acceptance_rate"], abs=0.1)
