"""Families: densities, gradients through the draw, laws over pytrees and positions."""

import math
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.tree_util import Partial
from numpyro.distributions import constraints
from regression_in_closed_form import run, stats_normal
from scipy import stats

import sgld
from sgld.inference import variational
from sgld.inference.variational_family import inverse_softplus
from sgld.model.problem import Problem
from sgld.variational import FullRank, MeanField, Reparameterised, scale_mixture_prior


def no_events():
    likelihood = lambda r, y: y * jnp.log(r) - r  # noqa: E731
    posterior = sgld.Posterior(lambda r: -r, likelihood, constraints=constraints.positive)
    return posterior, np.zeros(4, np.float32)


def test_a_family_over_the_position():
    """No events in four counts: the posterior of the rate is Exponential(5), and so is q."""
    posterior, counts = no_events()
    family = Reparameterised(lambda p: dist.Exponential(jnp.exp(p)), 0.0, over="position")
    q = run(posterior, counts, 1.0, family=family, num_samples=8, num_steps=2000)
    assert math.exp(q.params) == pytest.approx(5, rel=0.03)
    assert q.elbo == pytest.approx(-math.log(5), abs=0.01)  # the evidence is 1/5
    assert q.elbo_se < 0.01
    assert float(q.mean) == pytest.approx(1 / 5, rel=0.05)
    assert float(q.sd) == pytest.approx(1 / 5, rel=0.06)
    assert np.asarray(q.draws(10).position).min() > 0


@pytest.mark.slow
def test_a_gaussian_of_a_log_rate():
    """z = log r ~ N(m, s^2): ELBO = m - 5 e^{m + s^2/2} + log s + (1 + log 2 pi)/2, best at s = 1."""
    posterior, counts = no_events()
    q = run(posterior, counts, 1.0, num_samples=8)
    m, sd = (float(part[0]) for part in q.family.moments(q.params))
    assert m == pytest.approx(-math.log(5) - 0.5, abs=0.03)
    assert sd == pytest.approx(1.0, abs=0.03)
    best = -math.log(5) - 1.5 + 0.5 * (1 + math.log(2 * math.pi))
    assert q.elbo == pytest.approx(best, abs=4 * q.elbo_se)
    assert q.elbo_se < 0.1


@pytest.mark.parametrize("full", [False, True])
def test_log_q_is_the_density_of_the_draws(full, x64):
    rng = np.random.default_rng(3)
    center, factor = jnp.asarray(rng.normal(size=3)), rng.normal(size=(3, 3))
    if full:
        family = FullRank.around(center, factor)
        params = family.start(0.3) | {"lower": jnp.asarray(rng.normal(size=(3, 3)))}
    else:
        family = MeanField(center, jnp.abs(jnp.asarray(factor[0])))
        params = family.start(0.3)
    params |= {"mean": jnp.asarray(rng.normal(size=3))}
    law = stats.multivariate_normal(family.moments(params)[0], family.covariance(params))
    keys = jax.random.split(jax.random.key(0), 20_000)
    z, log_q = jax.vmap(lambda key: family.draw(Mock(spec=Problem), params, key))(keys)
    np.testing.assert_allclose(log_q[:50], law.logpdf(z[:50]), rtol=1e-9)
    sd = family.moments(params)[1]
    np.testing.assert_allclose(
        np.cov(z.T) / np.outer(sd, sd), law.cov / np.outer(sd, sd), atol=0.05
    )


@pytest.mark.parametrize("full", [False, True])
def test_gradients_pass_through_the_draw(full, x64):
    """z ~ N(c + s mu, (s softplus(rho))^2), by quadrature: d E z^2 and d E log q, exactly."""
    c, s, mu, rho = 0.3, 2.0, 0.5, -0.4
    center = jnp.array([c])
    family = FullRank.around(center, np.eye(1) * s) if full else MeanField(center, jnp.array([s]))
    eps, weights = np.polynomial.hermite_e.hermegauss(10)

    def moments(params):
        z, log_q = jax.vmap(lambda e: family.place(params, e))(eps[:, None])
        return jnp.stack([jnp.sum(weights * a) for a in (z[:, 0] ** 2, log_q)]) / weights.sum()

    params = family.start(1.0) | {"mean": jnp.array([mu]), "rho": jnp.array([rho])}
    found = jax.jacobian(moments)(params)
    sd, slope = np.log1p(np.exp(rho)), 1 / (1 + np.exp(-rho))
    np.testing.assert_allclose(found["mean"][:, 0], [2 * (c + s * mu) * s, 0], atol=1e-12)
    np.testing.assert_allclose(found["rho"][:, 0], [2 * s**2 * sd * slope, -slope / sd], rtol=1e-12)


def test_draws_of_a_step_come_in_pairs():
    """eps and -eps: a batch's slope g at the mean leaves the average of g eps, and so rho, alone."""
    family = MeanField(jnp.array([0.5, -1.0]), jnp.array([2.0, 1.0]))
    for n in (4, 3):
        z, _ = variational._draws(None, family, family.start(0.3), jax.random.key(0), n)
        assert z.shape == (n, 2)
        off = np.asarray(z) - np.asarray(family.center)
        np.testing.assert_allclose(off[2:], -off[: n - 2], atol=1e-6)
        assert np.abs(off).min() > 1e-3 and not np.allclose(off[0], off[1])


def test_softplus_and_its_inverse():
    for sd in (1e-8, 0.1, 1.0, 500.0):
        assert float(np.logaddexp(0, inverse_softplus(sd))) == pytest.approx(sd, rel=1e-6)


@pytest.mark.slow
def test_any_family_over_a_pytree():
    """A Normal for one leaf, Laplace laws for the other: the posterior itself."""

    def log_density(t):
        double = -jnp.abs(t["b"] + 1) / 0.2 - math.log(0.4)
        return stats_normal(t["a"], 1.0, 0.5) + jnp.sum(double)

    posterior = sgld.Posterior(log_density)
    init = {"a": np.float32(0), "b": np.zeros(2, np.float32)}

    def make(p):
        return {
            "a": dist.Normal(p["loc"]["a"], jax.nn.softplus(p["rho"]["a"])),
            "b": dist.Laplace(p["loc"]["b"], jax.nn.softplus(p["rho"]["b"])),
        }

    family = Reparameterised(make, {"loc": init, "rho": init})
    q = run(posterior, None, init, family=family, num_samples=8, num_steps=3000)
    np.testing.assert_allclose(q.mean["a"], 1.0, atol=0.05)
    np.testing.assert_allclose(q.mean["b"], [-1, -1], atol=0.03)
    np.testing.assert_allclose(q.sd["a"], 0.5, rtol=0.06)
    np.testing.assert_allclose(q.sd["b"], 0.2 * 2**0.5, rtol=0.08)
    assert q.elbo == pytest.approx(0, abs=0.02)  # the density is normalised
    assert q.draws(5).position["b"].shape == (4, 5, 2)
    flat = Reparameterised(lambda p: dist.Normal(p, 0.3).to_event(1), np.zeros(3, np.float32))
    assert run(posterior, None, init, family=flat, num_steps=50).draws(2).names == q.draws(2).names


def test_scale_mixture_prior_against_numpy():
    w = {"w": np.array([[0.0, 0.5], [-3.0, 1e-3]], np.float32), "b": np.float32(0.2)}
    x = np.concatenate([w["w"].ravel(), [w["b"]]]).astype(np.float64)
    prior = jax.jit(scale_mixture_prior)
    for s, a, b in ((0.25, 1.0, 0.01), (0.5, 2.0, 0.1), (1.0, 0.7, 0.1), (0.0, 1.0, 0.7)):
        parts = s * stats.norm(0, a).pdf(x) + (1 - s) * stats.norm(0, b).pdf(x)
        assert float(prior(w, s, a, b)) == pytest.approx(np.log(parts).sum(), rel=1e-5)
    gradient = jax.grad(lambda w: scale_mixture_prior(w, 0.5, 1.0, 0.01))(30.0 * w["w"])
    assert np.isfinite(gradient).all()  # far out the narrow part underflows
    model = sgld.Posterior(Partial(scale_mixture_prior, share=0.5, sd1=1.0, sd2=0.1))
    assert len(jax.tree.leaves(model)) == 3  # its numbers are leaves
