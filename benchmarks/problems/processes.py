"""Densities with work of their own inside: Gaussian processes, paths in time, a lasso of many rows.

A gradient of these costs far more than its rows say: a Cholesky factor of 50 points, a scan over time.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

import sgld

from .truth import Problem

POINTS = 50
JITTER = 1e-5  # of the kernel's diagonal, times its amplitude squared: float32


def _distances(rng: np.random.Generator) -> np.ndarray:
    """Of points spread over [0, 10], squared."""
    x = np.sort(rng.uniform(0, 10, POINTS))
    return np.subtract.outer(x, x) ** 2


def _kernel(squares, amplitude, length):
    shape = jnp.exp(-0.5 * squares / length**2) + JITTER * jnp.eye(POINTS)
    return amplitude**2 * shape


def _hyper_prior(p):
    return (
        dist.LogNormal(0.0, 0.7).log_prob(p["amplitude"])
        + dist.InverseGamma(5.0, 5.0).log_prob(p["length"])
    )  # fmt: skip


def gp_marginal() -> Problem:
    """Gaussian-process regression, the function integrated out: three hyperparameters."""
    rng = np.random.default_rng(41)
    squares = _distances(rng)
    K = np.exp(-0.5 * squares / 1.2**2) + 0.3**2 * np.eye(POINTS)
    y = jnp.asarray(np.linalg.cholesky(K) @ rng.standard_normal(POINTS), jnp.float32)
    squares = jnp.asarray(squares, jnp.float32)

    def log_density(p):
        K = _kernel(squares, p["amplitude"], p["length"]) + p["noise"] ** 2 * jnp.eye(POINTS)
        L = jnp.linalg.cholesky(K)
        white = jax.scipy.linalg.solve_triangular(L, y, lower=True)
        fit = -0.5 * white @ white - jnp.sum(jnp.log(jnp.diag(L)))
        return fit + _hyper_prior(p) + dist.HalfNormal(1.0).log_prob(p["noise"])

    names = ("amplitude", "length", "noise")
    posterior = sgld.Posterior(log_density, constraints=dict.fromkeys(names, constraints.positive))
    return Problem("gp_marginal", posterior, None, dict.fromkeys(names, jnp.ones(())), None)


def gp_latent() -> Problem:
    """Counts whose log rate is a Gaussian process: 50 whitened values, amplitude, length and level."""
    rng = np.random.default_rng(42)
    squares = _distances(rng)
    K = np.exp(-0.5 * squares / 1.5**2) + 1e-8 * np.eye(POINTS)
    rate = np.exp(1.0 + 0.8 * np.linalg.cholesky(K) @ rng.standard_normal(POINTS))
    counts = jnp.asarray(rng.poisson(rate), jnp.float32)
    squares = jnp.asarray(squares, jnp.float32)

    def log_density(p):
        L = jnp.linalg.cholesky(_kernel(squares, p["amplitude"], p["length"]))
        log_rate = p["level"] + L @ p["z"]
        return (
            _hyper_prior(p)
            + dist.Normal(0.0, 2.0).log_prob(p["level"])
            + dist.Normal(0.0, 1.0).log_prob(p["z"]).sum()
            + jnp.sum(counts * log_rate - jnp.exp(log_rate))
        )

    positive = dict.fromkeys(("amplitude", "length"), constraints.positive)
    posterior = sgld.Posterior(log_density, constraints={**positive, "level": None, "z": None})
    one, zero = jnp.ones(()), jnp.zeros(())
    init = {"amplitude": one, "length": one, "level": zero, "z": jnp.zeros(POINTS)}
    return Problem("gp_latent", posterior, None, init, None)


def lasso_many() -> Problem:
    """40 coefficients of 10,000 rows, 30 of them 0, under Laplace priors whose scale is sampled."""
    rng = np.random.default_rng(43)
    N, d = 10_000, 40
    X = rng.standard_normal((N, d), np.float32)
    X[:, 1:] = 0.6 * X[:, :-1] + 0.8 * X[:, 1:]
    b = np.where(np.arange(d) % 4 == 0, rng.normal(0, 0.2, d), 0.0)
    y = (X @ b + 2 * rng.standard_normal(N)).astype(np.float32)

    def log_prior(p):
        return (
            dist.HalfNormal(1.0).log_prob(p["scale"])
            + dist.HalfNormal(5.0).log_prob(p["sigma"])
            + dist.Laplace(0.0, p["scale"]).log_prob(p["b"]).sum()
        )

    posterior = sgld.Posterior(
        log_prior,
        lambda p, row: dist.Normal(row[0] @ p["b"], p["sigma"]).log_prob(row[1]),
        constraints={"b": None, "scale": constraints.positive, "sigma": constraints.positive},
    )
    init = {"b": jnp.zeros(d), "scale": jnp.ones(()), "sigma": jnp.ones(())}
    return Problem("lasso_many", posterior, (X, y), init, None)


def local_level() -> Problem:
    """120 noisy values of a random walk, its steps standard normal: a state-space model."""
    rng = np.random.default_rng(44)
    T = 120
    walk = np.cumsum(0.4 * rng.standard_normal(T))
    y = jnp.asarray(walk + rng.standard_normal(T), jnp.float32)

    def log_density(p):
        level = p["first"] + p["walk"] * jnp.cumsum(p["z"])
        return (
            dist.Normal(0.0, 5.0).log_prob(p["first"])
            + dist.HalfNormal(1.0).log_prob(p["walk"])
            + dist.HalfNormal(2.0).log_prob(p["noise"])
            + dist.Normal(0.0, 1.0).log_prob(p["z"]).sum()
            + dist.Normal(level, p["noise"]).log_prob(y).sum()
        )

    positive = dict.fromkeys(("noise", "walk"), constraints.positive)
    posterior = sgld.Posterior(log_density, constraints={"first": None, **positive, "z": None})
    one = jnp.ones(())
    init = {"first": jnp.zeros(()), "noise": one, "walk": one, "z": jnp.zeros(T)}
    return Problem("local_level", posterior, None, init, None)


def autoregression() -> Problem:
    """A series of 200 by its two values before: a row each, stationary coefficients left to the data."""
    rng = np.random.default_rng(45)
    y = [0.0, 0.0]
    for _ in range(200):
        y.append(0.5 + 0.6 * y[-1] - 0.2 * y[-2] + 0.7 * rng.standard_normal())
    y = np.array(y, np.float32)
    rows = (np.stack([np.ones(200), y[1:-1], y[:-2]], axis=1).astype(np.float32), y[2:])
    posterior = sgld.Posterior(
        lambda p: (
            dist.Normal(0.0, 1.0).log_prob(p["b"]).sum() + dist.HalfNormal(2.0).log_prob(p["sigma"])
        ),
        lambda p, row: dist.Normal(row[0] @ p["b"], p["sigma"]).log_prob(row[1]),
        constraints={"b": None, "sigma": constraints.positive},
    )
    return Problem(
        "autoregression", posterior, rows, {"b": jnp.zeros(3), "sigma": jnp.ones(())}, None
    )


def ar_errors() -> Problem:
    """A trend with errors that follow an AR(1), the errors' path by a scan over time."""
    rng = np.random.default_rng(46)
    T = 150
    t = np.linspace(-1, 1, T)
    error, path = 0.0, []
    for _ in range(T):
        error = 0.7 * error + 0.5 * rng.standard_normal()
        path.append(error)
    y = jnp.asarray(1.0 + 0.8 * t + np.array(path), jnp.float32)
    t = jnp.asarray(t, jnp.float32)

    def log_density(p):
        def step(before, now):
            y, trend = now
            error = y - trend
            return error, dist.Normal(p["phi"] * before, p["sigma"]).log_prob(error)

        trend = p["b"][0] + p["b"][1] * t
        return (
            dist.Normal(0.0, 2.0).log_prob(p["b"]).sum()
            + dist.Uniform(-1.0, 1.0).log_prob(p["phi"])
            + dist.HalfNormal(1.0).log_prob(p["sigma"])
            + jax.lax.scan(step, jnp.zeros(()), (y, trend))[1].sum()
        )

    posterior = sgld.Posterior(
        log_density,
        constraints={
            "b": None, "phi": constraints.interval(-1.0, 1.0), "sigma": constraints.positive,
        },
    )  # fmt: skip
    init = {"b": jnp.zeros(2), "phi": jnp.zeros(()), "sigma": jnp.ones(())}
    return Problem("ar_errors", posterior, None, init, None)


def radon85() -> Problem:
    """85 groups with 900 rows, some groups of one or two: centred varying intercepts."""
    rng = np.random.default_rng(47)
    share = rng.dirichlet(np.full(85, 0.8))
    group = np.sort(np.concatenate([np.arange(85), rng.choice(85, 815, p=share)]))
    floor = (rng.random(900) < 0.17).astype(np.float32)
    level = rng.normal(1.3, 0.33, 85)
    y = (level[group] - 0.7 * floor + rng.normal(0, 0.75, 900)).astype(np.float32)

    def log_prior(p):
        return (
            dist.Normal(0.0, 5.0).log_prob(p["mu"])
            + dist.Normal(0.0, 2.0).log_prob(p["floor"])
            + dist.HalfNormal(1.0).log_prob(p["sigma_group"])
            + dist.HalfNormal(2.0).log_prob(p["sigma"])
            + dist.Normal(p["mu"], p["sigma_group"]).log_prob(p["group"]).sum()
        )

    def log_likelihood(p, row):
        where, basement, value = row
        return dist.Normal(p["group"][where] + p["floor"] * basement, p["sigma"]).log_prob(value)

    positive = dict.fromkeys(("sigma", "sigma_group"), constraints.positive)
    posterior = sgld.Posterior(
        log_prior, log_likelihood,
        constraints={"floor": None, "group": None, "mu": None, **positive},
    )  # fmt: skip
    zero, one = jnp.zeros(()), jnp.ones(())
    init = {"floor": zero, "group": jnp.zeros(85), "mu": zero, "sigma": one, "sigma_group": one}
    return Problem("radon85", posterior, (group.astype(np.int32), floor, y), init, None)
