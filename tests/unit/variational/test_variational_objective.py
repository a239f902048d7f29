"""The ELBO and the gradients through its draws against closed forms."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from regression_in_closed_form import (
    REGRESSION,
    START,
    columns,
    log_likelihood,
    log_prior,
    stats_normal,
)
from scipy import stats

import sgld
from sgld.inference.variational_family import block_objective
from sgld.variational import elbo, kl_weight, reparameterised_gradient


def test_blocks_give_the_same_optimum_as_their_sum():
    """sum_b F_b at one draw is the free energy, whatever the weights, whatever n divides."""
    x, y = columns()
    source = sgld.data.memory.InMemory.build((x, y), 25, "reshuffle")
    K = source.num_blocks
    assert K == 5
    layout = sgld.core.pytrees.Layout.of(START)
    target = sgld.model.problem.Target(REGRESSION, layout)
    z, log_q = jnp.array([0.3, -0.2, 1.0]), jnp.float32(1.7)
    likelihoods = jax.vmap(log_likelihood, (None, 0))(z, (jnp.asarray(x), jnp.asarray(y)))
    free = float(log_q - log_prior(z)) - float(likelihoods.sum())
    for kind in ("uniform", "geometric"):
        total = 0.0
        estimates = []
        for b in range(K):
            batch = source.fetch(jnp.int32(b))
            energy, bound = block_objective(target, batch, kl_weight(kind, b, K), z, log_q)
            total += float(energy)
            estimates.append(float(bound))
        assert total == pytest.approx(free, rel=1e-5)
        # the ELBO is MINUS the free energy (not the other way round)
        assert np.mean(estimates) == pytest.approx(-free, rel=1e-5)


def test_kl_weights_sum_to_one():
    for K in (1, 2, 5, 200, 5000):
        for kind in ("uniform", "geometric"):
            weights = np.array([float(kl_weight(kind, b, K)) for b in range(min(K, 300))])
            if K <= 300:
                assert weights.sum() == pytest.approx(1, rel=1e-5)
            if kind == "geometric" and K > 1:
                np.testing.assert_allclose(weights[:5][1:] / weights[:5][:-1], 0.5, rtol=1e-6)
    exactly = [2.0 ** (5 - i) / (2.0**5 - 1) for i in range(1, 6)]
    np.testing.assert_allclose([kl_weight("geometric", b, 5) for b in range(5)], exactly, rtol=1e-6)


def test_the_elbo_is_the_log_evidence_at_the_posterior(x64):
    """Every draw gives the same number: the estimator's variance is zero."""
    x = np.random.default_rng(2).normal(1.0, 1.0, 20)
    posterior = sgld.Posterior(
        lambda t: stats_normal(t, 0.0, 2.0), lambda t, x: stats_normal(x, t, 1.0)
    )
    precision = 20 + 0.25
    mean, sd = x.sum() / precision, precision**-0.5
    evidence = stats.multivariate_normal(np.zeros(20), np.eye(20) + 4).logpdf(x)
    found = elbo(posterior, x, dist.Normal(mean, sd), num_samples=100)
    np.testing.assert_allclose(found.values, evidence, rtol=1e-11)
    assert found.se < 1e-10
    # any other q is below, by its KL
    wide = elbo(posterior, x, dist.Normal(mean, 2 * sd), num_samples=4000)
    kl = -math.log(2) + 0.5 * (4 - 1)
    assert wide.value == pytest.approx(evidence - kl, abs=4 * wide.se)
    assert 0 < wide.se < 0.05


def test_the_jacobian_is_counted_once(x64):
    """Exp(1) prior on a positive rate, Poisson counts: q = the gamma posterior, on its own scale."""
    counts = np.array([2.0, 0.0, 3.0, 1.0])
    posterior = sgld.Posterior(
        lambda r: -r,
        lambda r, y: y * jnp.log(r) - r - jax.lax.lgamma(y + 1),
        constraints=constraints.positive,
    )
    # log of the integral of r^6 e^{-5 r} / (2! 3!)
    evidence = math.lgamma(7) - 7 * math.log(5) - math.log(2) - math.log(6)
    found = elbo(posterior, counts, dist.Gamma(7.0, 5.0), num_samples=50)
    np.testing.assert_allclose(found.values, evidence, rtol=1e-8)


# -- gradients through the draws -------------------------------------------------------------------


def within(found, truth):
    for got, se, right in zip(
        jax.tree.leaves(found.mean), jax.tree.leaves(found.se), truth, strict=True
    ):
        assert abs(got - right) < 4 * se
        assert se < 0.05 * abs(right)


def test_gradients_of_gaussian_expectations():
    normal = lambda p: dist.Normal(p["m"], p["s"])  # noqa: E731
    params = {"m": 0.7, "s": 0.4}
    many = 40_000
    found = reparameterised_gradient(lambda x: x**2, normal, params, num_samples=many)
    within(found, [1.4, 0.8])
    found = reparameterised_gradient(jnp.sin, normal, params, num_samples=many)
    damped = math.exp(-0.08)  # E sin x = sin(m) exp(-s^2 / 2)
    within(found, [math.cos(0.7) * damped, -0.4 * math.sin(0.7) * damped])


def test_gradients_of_exponential_expectations():
    for f, truth in (
        (lambda x: x, -1 / 4),
        (lambda x: x**2, -4 / 8),
        (lambda x: jnp.exp(-x), 1 / 9),
    ):
        # E x = 1/r, E x^2 = 2/r^2, E e^-x = r/(r+1); at r = 2
        within(reparameterised_gradient(f, dist.Exponential, 2.0, num_samples=40_000), [truth])
