"""Where floating-point numbers are too few for a posterior: in a spike, and on a bound."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

import sgld
from sgld.approximation.propriety import rounded, unresolved
from sgld.model.prepare import prepare

RNG = np.random.default_rng(0)


def of(draws, **constraints_):
    """The sentence on draws of the free coordinate."""
    keys = {"constraints": {"p": constraints_["p"]}} if constraints_ else {}
    posterior = sgld.Posterior(lambda x: -jnp.sum(x["p"] ** 2), **keys)
    problem = prepare(posterior, None, {"p": jnp.float32(0.5)})
    return unresolved(problem, np.asarray(draws, np.float32).reshape(4, -1, 1))


def test_draws_on_a_bound_are_told_and_by_name():
    """Of logistic(z) a share beyond 13.8 has at most 16 numbers more before it is 1."""
    z = np.where(np.arange(4000) % 25 == 0, 15.0, RNG.standard_normal(4000))
    told = of(z, p=constraints.unit_interval)
    assert told.startswith("4% of the draws of 'p' lie so near to 1 that float32 rounds")


@pytest.mark.parametrize(
    "z",
    [
        np.where(
            np.arange(4000) % 25 == 0, -15.0, RNG.standard_normal(4000)
        ),  # numbers near 0 are many
        np.where(np.arange(4000) % 25 == 0, 10.0, RNG.standard_normal(4000)),
        np.where(np.arange(4000) % 200 == 0, 15.0, RNG.standard_normal(4000)),  # and few draws
    ],
)
def test_what_has_numbers_enough_is_not_told(z):
    assert of(z, p=constraints.unit_interval) is None


def test_a_spike_between_neighbouring_numbers_is_told():
    assert "float32 numbers are" in of(1000 + 1e-5 * RNG.standard_normal(4000))
    assert of(1000 + 1e-2 * RNG.standard_normal(4000)) is None


def test_without_constraints_nothing_is_rounded():
    problem = prepare(sgld.Posterior(lambda x: -jnp.sum(x**2)), None, jnp.float32(0.5))
    assert rounded(problem, np.full((4, 10, 1), 15.0)) is None


def test_an_entry_that_never_moves_is_none_of_it():
    """The first of a correlation's Cholesky factor is 1."""
    posterior = sgld.Posterior(
        lambda x: -jnp.sum(x["L"] ** 2), constraints={"L": constraints.corr_cholesky}
    )
    problem = prepare(posterior, None, {"L": jnp.eye(3)})
    assert rounded(problem, RNG.standard_normal((4, 100, 3))) is None


@pytest.mark.parametrize("a", [0.04, 0.5])
def test_a_share_that_its_prior_pushes_to_one_is_not_trusted(a):
    posterior = sgld.Posterior(
        lambda p: (a - 1) * (jnp.log(p) + jnp.log1p(-p)), constraints=constraints.unit_interval
    )
    draws = sgld.sample(posterior, None, jnp.float32(0.4), progress=False)
    assert (draws.verdict.word == "trusted") == (a == 0.5)
