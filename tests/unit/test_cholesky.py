"""A Cholesky factor inside the model that is not finite: the parameter is named, and what to do."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.model.prepare import prepare, without_a_factor

X = np.linspace(0, 1, 30).astype(np.float32)


def process(p):
    """A Gaussian process, whose matrix is singular in float32 without noise on its diagonal."""
    near = jnp.exp(-0.5 * (X[:, None] - X[None]) ** 2 / jnp.exp(2 * p["length"]))
    L = jnp.linalg.cholesky(near + jnp.exp(2 * p["noise"]) * jnp.eye(30, dtype=jnp.float32))
    return -jnp.sum(jnp.log(jnp.diag(L))) - 0.5 * (
        p["mean"] ** 2 + p["length"] ** 2 + p["noise"] ** 2
    )


def start(noise):
    return {"length": jnp.float32(0), "mean": jnp.float32(0), "noise": jnp.float32(noise)}


def test_at_the_start():
    with pytest.raises(sgld.errors.UsageError) as raised:
        sgld.sample(sgld.Posterior(process), None, start(-8.0), progress=False)
    said = str(raised.value)
    assert said.startswith("the log density at init is nan: the model takes a Cholesky factor")
    assert re.search(r"finite with .noise. moved by [12]\)", said) and "jax_enable_x64" in said
    assert said.endswith("choose a start with finite density.")


def test_a_density_without_a_factor_is_not_accused():
    with pytest.raises(sgld.errors.UsageError) as raised:
        sgld.sample(sgld.Posterior(lambda t: jnp.log(t)), None, -1.0, progress=False)
    assert (
        str(raised.value) == "the log density at init is nan; choose a start with finite density."
    )


@pytest.mark.parametrize(
    ("at_fault", "start", "prior", "likelihood"),
    [
        ("init leaf", np.nan, lambda t: -(t**2), lambda t, y: t * y),
        ("log_prior", -1.0, jnp.log, lambda t, y: t * y),
        ("log_likelihood", -1.0, lambda t: -(t**2), lambda t, y: jnp.log(t) * y),
    ],
)
def test_the_part_that_is_not_finite_is_named(at_fault, start, prior, likelihood):
    with pytest.raises(sgld.errors.UsageError, match=f"nan: {at_fault}"):
        sgld.sample(sgld.Posterior(prior, likelihood), np.ones(20, np.float32), start)


@pytest.mark.slow
def test_in_a_chain(capsys):
    """A step by hand that throws the noise to where the matrix is singular."""
    draws = sgld.sample(
        sgld.Posterior(process), None, start(-2.0), step_size=0.9, num_draws=200, burn_in=0,
        thin=1, num_chains=2, progress=False, seed=3,
    )  # fmt: skip
    failed = [status for status in draws.status if status != "ok"]
    assert failed
    for status in failed:
        assert "became non-finite at step" in status and "Here the model takes a Cholesky" in status
        assert re.search(r"finite with .noise. moved by \d+ sd of its draws", status)


def test_the_parameter_that_is_nearest_is_named():
    problem = prepare(sgld.Posterior(process), None, start(-2.0))
    names = problem.layout.element_names()
    z = np.asarray(problem.start, np.float64)
    said = without_a_factor(problem, z, np.where(np.array(names) == "noise", 3.0, 0.1), " sds")
    assert "'noise' moved by 4 sds" in said or "'noise' moved by 2 sds" in said
    far = without_a_factor(problem, z, np.full(3, 1e-3), " sds")
    assert "Cholesky" in far and "moved" not in far
