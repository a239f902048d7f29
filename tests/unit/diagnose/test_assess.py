"""The meter's gradients where a run's own do not serve."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.diagnostics import evidence


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [sgld.SVRG(), sgld.SAGA()], ids=["SVRG", "SAGA"])
def test_estimators_with_a_memory_are_judged_on_large_tables(gradient, monkeypatch):
    monkeypatch.setattr(evidence, "MAX_R2_GRADIENTS", 1000)  # as if exact gradients cost too much
    x = np.random.default_rng(0).standard_normal(3000).astype(np.float32)
    posterior = sgld.Posterior(lambda t: -0.5 * (t / 10) ** 2, lambda t, x: -0.5 * (x - t) ** 2)
    draws = sgld.sample(posterior, jnp.asarray(x), 0.0, gradient=gradient, progress=False)
    assert draws.verdict.word == "trusted"
