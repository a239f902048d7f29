"""NumPyro's own code promotes ranks and dtypes: its models run under JAX's own rules."""

import jax
import pytest


@pytest.fixture(autouse=True)
def promotion():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
