"""A likelihood that holds the prior, or is a mean, is refused before step 1; its kin are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import sgld
from sgld.errors import UsageError
from sgld.model.prepare import check_contract

X = np.linspace(-1, 2, 40).astype(np.float32)


def log_prior(t):
    return jnp.sum(norm.logpdf(t["a"], 0.0, 2.0)) - 0.5 * jnp.log1p(t["b"] ** 2)


def one(t, x):
    return norm.logpdf(x, t["a"], 1.0) + 0.1 * t["b"] * x


START = {"a": jnp.float32(0.1), "b": jnp.float32(0.2)}


def check(likelihood, prior=log_prior):
    check_contract(sgld.Posterior(prior, likelihood), START, jnp.float32(0.3), len(X))


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda t, x: one(t, x) + log_prior(t),
        lambda t, x: log_prior(t) + one(t, x) - 1.0,
        lambda t, x: jnp.where(x > 0, one(t, x) + log_prior(t), 0.0),
        jax.jit(lambda t, x: one(t, x) + log_prior(t)),
        jax.checkpoint(lambda t, x: one(t, x) + log_prior(t)),
    ],
)
def test_a_likelihood_with_the_prior_in_it(likelihood):
    with pytest.raises(UsageError, match=r"contains log_prior.*count 40 times"):
        check(likelihood)


@pytest.mark.parametrize(
    "likelihood", [lambda t, x: one(t, x) / 40, lambda t, x: (1 / 40) * one(t, x)]
)
def test_a_mean_likelihood(likelihood):
    with pytest.raises(UsageError, match="divides by the number of rows, 40"):
        check(likelihood)


def test_what_is_allowed():
    check(one)
    check(lambda t, x: one(t, x) / 3)
    summed = lambda a: jax.lax.reduce(a, 0.0, lambda a, b: a + b + 0.0, (0,))  # noqa: E731
    check(lambda t, x: summed(one(t, x)[None]))  # its own expression is of two numbers
    check(lambda t, x: norm.logpdf(x, t["a"], 2.0))  # the prior's density, of another thing
    # an exponential family's own -t^2/2 is not the prior's, though it reads the same
    check(lambda t, x: -0.5 * t["a"] ** 2 + x * t["a"], lambda t: -0.5 * t["a"] ** 2)
    check(one, lambda t: jnp.zeros(()))


def test_the_door(tmp_path):
    posterior = sgld.Posterior(log_prior, lambda t, x: one(t, x) + log_prior(t))
    with pytest.raises(UsageError, match="contains log_prior"):
        sgld.sample(posterior, X, START, path=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


KEY = jax.random.key(0)
MASK = jax.random.normal(KEY, (1,))


def dropped(key):
    return jnp.where(jax.random.bernoulli(key, 0.5), 1.0, 0.0)


@pytest.mark.parametrize("key", [lambda: KEY, lambda: jax.random.key(1), lambda: jax.random.PRNGKey(2)])  # fmt: skip
def test_one_that_draws_random_numbers(key):
    """Dropout in training mode: of a key that does not change it is one mask, and no diagnostic sees it."""
    with pytest.raises(UsageError, match=r"log_likelihood draws random numbers.*inference_mode"):
        check(lambda q, x: -((x - dropped(key()) * q["a"]) ** 2))


def test_what_is_drawn_before_or_not_used_may_stay():
    check(lambda q, x: -((x - MASK[0] * q["a"]) ** 2))

    def unused(q, x):
        dropped(KEY)
        return -((x - q["a"]) ** 2)

    check(unused)
