"""Conjugate models, in closed form: regressions, counts and scales through constraints."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from scipy import special, stats

import sgld

from .truth import QUANTILES, Marginal, Problem, bundled, law, normals, truth


def linear(num_data: int, d: int) -> Problem:
    """y ~ N(X b, .7^2), b ~ N(0, 2^2 I), columns correlated .8."""
    rng = np.random.default_rng(num_data)
    X = np.sqrt(0.8) * rng.standard_normal((num_data, 1)) + np.sqrt(0.2) * rng.standard_normal(
        (num_data, d)
    )
    X[:, 0] = 1.0
    X = X.astype(np.float32)
    y = (X @ rng.standard_normal(d) + 0.7 * rng.standard_normal(num_data)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda b: dist.Normal(0.0, 2.0).log_prob(b).sum(),
        lambda b, row: dist.Normal(row[0] @ b, 0.7).log_prob(row[1]),
    )
    A = X.astype(float)
    S = np.linalg.inv(np.eye(d) / 4 + A.T @ A / 0.49)
    exact = normals(S @ (A.T @ y) / 0.49, S)
    return Problem(f"linear{num_data}", posterior, (X, y), jnp.zeros(d), exact)


def linear200() -> Problem:
    return linear(200, 5)


def linear10000() -> Problem:
    return linear(10_000, 10)


def inverse_gamma(X, y, V, phi, psi):
    """The posterior (mu, V, phi, psi) of beta ~ N(0, sigma2 V I), sigma2 ~ IG(phi, psi)."""
    precision = np.eye(X.shape[1]) / V + X.T @ X
    mu = np.linalg.solve(precision, X.T @ y)
    psi = psi + 0.5 * (y @ y - mu @ precision @ mu)
    return mu, np.linalg.inv(precision), phi + len(y) / 2, psi


def handout() -> Problem:
    """The handout's line and its 10,000 pairs, w = (beta, log sigma2)."""
    x, y = bundled("handout_regression.csv").T
    X = np.column_stack([np.ones_like(x), x])

    def log_prior(w):
        variance = jnp.exp(w["log_sigma2"])
        return (
            dist.Normal(0.0, 10 * jnp.sqrt(variance)).log_prob(w["beta"]).sum()
            + dist.InverseGamma(1.0, 1.0).log_prob(variance)
            + w["log_sigma2"]  # the Jacobian
        )

    def log_likelihood(w, row):
        features, outcome = row
        return dist.Normal(features @ w["beta"], jnp.exp(w["log_sigma2"] / 2)).log_prob(outcome)

    mu, V, phi, psi = inverse_gamma(X, y, 100.0, 1.0, 1.0)
    scale = np.sqrt(np.diag(V) * psi / phi)
    log_sigma2 = Marginal(
        np.log(psi) - special.digamma(phi), np.sqrt(special.polygamma(1, phi)),
        *np.log(stats.invgamma(phi, scale=psi).ppf(QUANTILES)),
    )  # fmt: skip
    exact = {
        "beta": [law(stats.t(2 * phi, m, s)) for m, s in zip(mu, scale, strict=True)],
        "log_sigma2": log_sigma2,
    }
    data = (X.astype(np.float32), y.astype(np.float32))
    init = {"beta": jnp.zeros(2), "log_sigma2": jnp.zeros(())}
    posterior = sgld.Posterior(log_prior, log_likelihood)
    return Problem("handout", posterior, data, init, truth(exact, "closed form"))


def normal_small() -> Problem:
    """Mean and variance of 12 numbers: heavy tails and a skewed variance."""
    y = np.random.default_rng(5).normal(3.0, 2.0, 12)
    posterior = sgld.Posterior(
        lambda p: (
            dist.Normal(0.0, jnp.sqrt(100 * p["variance"])).log_prob(p["mean"])
            + dist.InverseGamma(2.0, 4.0).log_prob(p["variance"])
        ),
        lambda p, x: dist.Normal(p["mean"], jnp.sqrt(p["variance"])).log_prob(x),
        constraints={"mean": constraints.real, "variance": constraints.positive},
    )
    (mu,), V, phi, psi = inverse_gamma(np.ones((12, 1)), y, 100.0, 2.0, 4.0)
    exact = {
        "mean": law(stats.t(2 * phi, mu, np.sqrt(V[0, 0] * psi / phi))),
        "variance": law(stats.invgamma(phi, scale=psi)),
    }
    init = {"mean": jnp.zeros(()), "variance": jnp.ones(())}
    return Problem(
        "normal_small", posterior, y.astype(np.float32), init, truth(exact, "closed form")
    )


def gamma_exponential() -> Problem:
    """The rate of 50 waiting times, prior Gamma(2, 1)."""
    y = np.random.default_rng(6).exponential(1 / 1.5, 50).astype(np.float32)
    posterior = sgld.Posterior(
        lambda rate: dist.Gamma(2.0, 1.0).log_prob(rate),
        lambda rate, x: dist.Exponential(rate).log_prob(x),
        constraints=constraints.positive,
    )
    exact = law(stats.gamma(52, scale=1 / (1 + y.astype(float).sum())))
    return Problem("gamma_exponential", posterior, y, jnp.ones(()), truth(exact, "closed form"))


def bernoulli(name: str, a: float, b: float, successes: int, num_data: int) -> Problem:
    y = np.zeros(num_data, np.float32)
    y[:successes] = 1.0
    posterior = sgld.Posterior(
        lambda p: dist.Beta(a, b).log_prob(p),
        lambda p, x: dist.Bernoulli(probs=p).log_prob(x),
        constraints=constraints.unit_interval,
    )
    exact = law(stats.beta(a + successes, b + num_data - successes))
    return Problem(name, posterior, y, jnp.float32(0.5), truth(exact, "closed form"))


def beta_bernoulli() -> Problem:
    return bernoulli("beta_bernoulli", 2.0, 2.0, 63, 100)


def beta_rare() -> Problem:
    """Two successes of sixty: a skewed posterior."""
    return bernoulli("beta_rare", 1.0, 9.0, 2, 60)
