"""Hierarchies and latent paths. Eight schools are exact: Gaussian given tau, tau on a grid."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

import sgld

from .truth import Problem, Truth, grid, mixture, truth

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SCHOOLS = tuple(a.astype(np.float32) for a in (np.arange(8), EFFECT, ERROR))


def eight_schools_truth(centred: bool) -> Truth:
    """mu ~ N(0, 5^2), tau ~ HalfCauchy(5), theta = mu + tau eta, eta ~ N(0, 1), y ~ N(theta, s^2).

    (mu, eta) given tau is Gaussian; the evidence of tau is that of y = mu + tau eta + s e.
    """
    tau = np.geomspace(1e-4, 5000.0, 6000)
    prior = np.diag([25.0, *np.ones(8)])
    density, means, sds = np.empty(len(tau)), np.empty((len(tau), 9)), np.empty((len(tau), 9))
    for k, t in enumerate(tau):
        A = np.hstack([np.ones((8, 1)), t * np.eye(8)])
        marginal = A @ prior @ A.T + np.diag(ERROR**2)
        log_evidence = -0.5 * (
            np.linalg.slogdet(marginal)[1] + EFFECT @ np.linalg.solve(marginal, EFFECT)
        )
        density[k] = np.exp(log_evidence) / (1 + (t / 5) ** 2)
        covariance = np.linalg.inv(np.linalg.inv(prior) + (A.T / ERROR**2) @ A)
        mean = covariance @ (A.T @ (EFFECT / ERROR**2))
        L = np.vstack([np.eye(9)[0], A if centred else np.eye(9)[1:]])
        means[k], sds[k] = L @ mean, np.sqrt(np.diag(L @ covariance @ L.T))
    weight = density * np.gradient(tau)
    schools = [mixture(weight, means[:, j], sds[:, j]) for j in range(1, 9)]
    names = ("mu", "tau", "theta") if centred else ("eta", "mu", "tau")
    found = {"mu": mixture(weight, means[:, 0], sds[:, 0]), "tau": grid(tau, density)}
    return truth({**found, names[2] if centred else names[0]: schools}, "grid")


def hyper_prior(p):
    return dist.Normal(0.0, 5.0).log_prob(p["mu"]) + dist.HalfCauchy(5.0).log_prob(p["tau"])


def pick(values, index):
    return values[index.astype(jnp.int32)]


def eight_schools_centred() -> Problem:
    """A funnel in (tau, theta): no sampler without a rescaled tau sees its neck."""
    posterior = sgld.Posterior(
        lambda p: hyper_prior(p) + dist.Normal(p["mu"], p["tau"]).log_prob(p["theta"]).sum(),
        lambda p, row: dist.Normal(pick(p["theta"], row[0]), row[2]).log_prob(row[1]),
        constraints={"mu": None, "tau": constraints.positive, "theta": None},
    )
    init = {"mu": jnp.zeros(()), "tau": jnp.ones(()), "theta": jnp.zeros(8)}
    return Problem("eight_schools_centred", posterior, SCHOOLS, init, eight_schools_truth(True))


def eight_schools_noncentred() -> Problem:
    def log_likelihood(p, row):
        school, effect, error = row
        return dist.Normal(p["mu"] + p["tau"] * pick(p["eta"], school), error).log_prob(effect)

    posterior = sgld.Posterior(
        lambda p: hyper_prior(p) + dist.Normal(0.0, 1.0).log_prob(p["eta"]).sum(),
        log_likelihood,
        constraints={"eta": None, "mu": None, "tau": constraints.positive},
    )
    init = {"eta": jnp.zeros(8), "mu": jnp.zeros(()), "tau": jnp.ones(())}
    return Problem("eight_schools_noncentred", posterior, SCHOOLS, init, eight_schools_truth(False))


def radon() -> Problem:
    """Varying intercepts as in Gelman & Hill's radon model, on generated houses of 40 counties."""
    rng = np.random.default_rng(31)
    size = 4 + rng.poisson(16, 40)
    county = np.repeat(np.arange(40), size)
    floor = (rng.random(len(county)) < 0.17).astype(np.float32)
    level = rng.normal(1.5, 0.35, 40)
    y = (level[county] - 0.7 * floor + rng.normal(0, 0.75, len(county))).astype(np.float32)

    def log_prior(p):
        return (
            dist.Normal(0.0, 5.0).log_prob(p["mu"])
            + dist.Normal(0.0, 2.0).log_prob(p["floor"])
            + dist.HalfNormal(1.0).log_prob(p["sigma_county"])
            + dist.HalfNormal(2.0).log_prob(p["sigma"])
            + dist.Normal(p["mu"], p["sigma_county"]).log_prob(p["county"]).sum()
        )

    def log_likelihood(p, row):
        where, basement, value = row
        return dist.Normal(p["county"][where] + p["floor"] * basement, p["sigma"]).log_prob(value)

    positive = dict.fromkeys(("sigma", "sigma_county"), constraints.positive)
    posterior = sgld.Posterior(
        log_prior, log_likelihood,
        constraints={"county": None, "floor": None, "mu": None, **positive},
    )  # fmt: skip
    zero, one = jnp.zeros(()), jnp.ones(())
    init = {"county": jnp.zeros(40), "floor": zero, "mu": zero, "sigma": one, "sigma_county": one}
    return Problem("radon", posterior, (county.astype(np.int32), floor, y), init, None)


def stochastic_volatility() -> Problem:
    """100 returns, log variance an AR(1) process with standard normal innovations z."""
    rng = np.random.default_rng(32)
    h, path = 0.0, []
    for _ in range(100):
        h = 0.9 * h + 0.4 * rng.standard_normal()
        path.append(h)
    returns = jnp.asarray(np.exp(np.array(path) / 2) * rng.standard_normal(100), jnp.float32)

    def log_density(p):
        def step(h, z):
            h = p["phi"] * h + p["sigma"] * z
            return h, h

        h = p["mu"] + jax.lax.scan(step, jnp.zeros(()), p["z"])[1]
        return (
            dist.Normal(0.0, 2.0).log_prob(p["mu"])
            + dist.Beta(20.0, 4.0).log_prob((1 + p["phi"]) / 2)
            + dist.LogNormal(-1.2, 0.5).log_prob(p["sigma"])
            + dist.Normal(0.0, 1.0).log_prob(p["z"]).sum()
            + dist.Normal(0.0, jnp.exp(h / 2)).log_prob(returns).sum()
        )

    posterior = sgld.Posterior(
        log_density,
        constraints={
            "mu": None, "phi": constraints.interval(-1.0, 1.0), "sigma": constraints.positive,
            "z": None,
        },
    )  # fmt: skip
    init = {
        "mu": jnp.zeros(()), "phi": jnp.float32(0.8), "sigma": jnp.float32(0.3),
        "z": jnp.zeros(100),
    }  # fmt: skip
    return Problem("stochastic_volatility", posterior, None, init, None)
