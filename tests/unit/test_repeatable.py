"""A log density that is not a function of its arguments alone is refused; its kin are not."""

import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.user_code import check_repeatable, digest, trace
from sgld.errors import UsageError
from sgld.model.prepare import prepare

RNG, COUNT = np.random.default_rng(0), itertools.count()
X = np.linspace(-1, 2, 40).astype(np.float32)
NOISE = RNG.standard_normal(3).astype(np.float32)


KEY = jax.random.key(7)


def prior(t):
    return -0.5 * jnp.sum(t**2)


def check(likelihood, log_prior=prior):
    posterior = sgld.Posterior(log_prior, likelihood)
    check_repeatable("log_prior", posterior.log_prior, jnp.ones(3))
    if likelihood is not None:
        check_repeatable("log_likelihood", posterior.log_likelihood, jnp.ones(3), jnp.float32(0.3))


@pytest.mark.parametrize("likelihood", [
    lambda t, x: -0.5 * (x - t[0] - np.float32(RNG.standard_normal())) ** 2,
    lambda t, x: -0.5 * (x - jnp.sum(t * RNG.standard_normal(3).astype(np.float32))) ** 2,
    lambda t, x: -0.5 * (x - t[0]) ** 2 * next(COUNT),
    lambda t, x: -0.5 * (x - t[0]) ** 2 + time.perf_counter_ns() % 10**6,
    lambda t, x: -0.5 * (x - t[0]) ** 2
    + jax.random.normal(jax.random.key(int(RNG.integers(2**30)))),
    lambda t, x: jax.pure_callback(
        lambda a: np.float32(a * RNG.random()), jax.ShapeDtypeStruct((), jnp.float32), t[0] - x
    ),
])  # fmt: skip
def test_what_changes_between_two_calls_is_refused(likelihood):
    with pytest.raises(UsageError, match="log_likelihood is not a function of its arguments alone"):
        check(likelihood)


def test_the_prior_is_asked_too_and_the_call_is_refused():
    noisy = sgld.Posterior(lambda t: -0.5 * t**2 * (1 + np.float32(RNG.random())))
    with pytest.raises(
        UsageError, match=r"log_prior is not a function .* two calls at init return"
    ):
        prepare(noisy, None, np.float32(1.0))


@jax.custom_jvp
def hinge(x):
    return jnp.maximum(x, 0.0)


@hinge.defjvp
def _(primals, tangents):
    return hinge(primals[0]), jnp.where(primals[0] > 0, tangents[0], 0.0)


@pytest.mark.parametrize("likelihood", [
    None,
    lambda t, x: -0.5 * (x - jnp.sum(t * NOISE)) ** 2,
    lambda t, x: -hinge(x - t[0]) - jax.nn.softplus(t[1]),
    jax.jit(lambda t, x: jax.lax.cond(x > 0, lambda a: -(a**2), lambda a: -jnp.abs(a), t[0] - x)),
    lambda t, x: -0.5 * (x - t[0] - jax.random.normal(jax.random.key(3))) ** 2,
    lambda t, x: -0.5 * (x - t[0] - jax.random.normal(KEY)) ** 2,
    lambda t, x: jax.pure_callback(
        lambda a: np.float32(-(a**2)), jax.ShapeDtypeStruct((), jnp.float32), t[0] - x
    ),
    lambda t, x: jnp.log(-1.0 - t[0] ** 2),  # NaN is NaN
])  # fmt: skip
def test_functions_are_not(likelihood):
    check(likelihood)


def in_a_loop(a):
    return jax.jit(lambda t: jax.lax.scan(lambda c, _: (c * a, None), t, None, length=2)[0])


@pytest.mark.parametrize("made", [
    lambda a: lambda t: t * a,
    lambda a: jax.jit(lambda t: t * a),
    lambda a: jax.jit(lambda t: jax.jit(lambda u: u * a)(t) + 1),
    lambda a: jax.vmap(in_a_loop(a[0])),
    lambda a: jax.jit(lambda t: jax.lax.cond(t[0] > 0, lambda u: u * a, jnp.sin, t)),
    lambda a: lambda t: t + jax.random.normal(jax.random.key(a.astype(int)[1]), t.shape),
    lambda a: jax.jit(lambda t: t + jax.random.normal(jax.random.key(a.astype(int)[1]), t.shape)),
], ids=["closed over", "compiled", "twice", "loop", "branch", "key", "compiled key"])  # fmt: skip
def test_a_digest_holds_the_numbers_wherever_they_are_bound(made):
    a, b = np.array([1.0, 2.0, 3.0], np.float32), np.array([1.5, 4.0, 3.0], np.float32)
    once, again, other = (digest(trace(made(c), jnp.ones(3))) for c in (a, a.copy(), b))
    assert once == again != other


@pytest.mark.parametrize("name", ["step_size", "temperature", "keep"])
def test_what_else_a_run_asks_is_a_function_of_its_arguments_too(name):
    noisy = {
        "step_size": lambda t: 1e-2 * (1 + RNG.random()) / (1 + t.astype(float)),
        "temperature": lambda t: 1 + RNG.random() + 0 * t.astype(float),
        "keep": lambda t: t + np.float32(RNG.random()),
    }
    with pytest.raises(UsageError, match=f"{name} is not a function of its arguments alone"):
        sgld.sample(
            sgld.Posterior(prior), None, jnp.zeros(2), progress=False,
            **{"step_size": 0.1, name: noisy[name]},
        )  # fmt: skip


def test_a_chain_that_meets_a_density_of_inf_is_named():
    posterior = sgld.Posterior(lambda t: jnp.where(t > 2.5, jnp.inf, -0.5 * t**2))
    draws = sgld.sample(
        posterior, None, 0.0, step_size=0.5, num_draws=800, burn_in=10, progress=False
    )
    assert draws.verdict.word == "biased"
    assert "a log density of +inf by draw" in draws.verdict.reasons[0]
