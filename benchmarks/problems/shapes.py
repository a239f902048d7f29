"""Posteriors of awkward shape: several modes, funnels, bananas, heavy tails, a small network."""

from __future__ import annotations

import jax.flatten_util
import jax.numpy as jnp
import jax.scipy.stats as jss
import numpy as np
import numpyro.distributions as dist
from scipy import special, stats

import sgld

from .truth import QUANTILES, Marginal, Problem, bundled, grid, law, mixture, truth


def tied_means() -> Problem:
    """The mixture .5 N(t1, 2) + .5 N(t1 + t2, 2) of the bundled 100 numbers: two modes."""
    x = bundled("tied_means_mixture.csv")
    root = np.sqrt(2.0)

    def log_likelihood(t, x):
        parts = jnp.stack([jss.norm.logpdf(x, t[0], root), jss.norm.logpdf(x, t[0] + t[1], root)])
        return jnp.log(0.5) + jnp.logaddexp(parts[0], parts[1])

    posterior = sgld.Posterior(
        lambda t: jss.norm.logpdf(t, 0.0, jnp.array([10.0**0.5, 1.0])).sum(), log_likelihood
    )
    t1, t2 = np.linspace(-4, 5, 601), np.linspace(-6, 6, 601)
    a, b = np.meshgrid(t1, t2, indexing="ij")
    log = -(a**2) / 20 - b**2 / 2
    for value in x:
        log += np.logaddexp(-((value - a) ** 2) / 4, -((value - a - b) ** 2) / 4)
    density = np.exp(log - log.max())
    exact = [grid(t1, density.sum(1)), grid(t2, density.sum(0))]
    return Problem(
        "tied_means", posterior, x.astype(np.float32), jnp.zeros(2), truth(exact, "grid")
    )


def funnel(d: int) -> Problem:
    """Neal's: v ~ N(0, 3^2), x_i ~ N(0, exp(v))."""

    def log_density(p):
        inner = dist.Normal(0.0, jnp.exp(p["v"] / 2)).log_prob(p["x"]).sum()
        return dist.Normal(0.0, 3.0).log_prob(p["v"]) + inner

    v = np.linspace(-30, 36, 20001)
    x = mixture(np.exp(-(v**2) / 18), np.zeros_like(v), np.exp(v / 2))
    exact = {"v": law(stats.norm(0, 3)), "x": [x] * (d - 1)}
    init = {"v": jnp.zeros(()), "x": jnp.zeros(d - 1)}
    return Problem(f"funnel{d}", sgld.Posterior(log_density), None, init, truth(exact, "exact"))


def funnel2() -> Problem:
    return funnel(2)


def funnel10() -> Problem:
    return funnel(10)


def bent(name: str, sd: float, bend: float) -> Problem:
    """x0 ~ N(0, sd^2), x1 ~ N(bend (x0^2 - sd^2), 1)."""

    def log_density(x):
        return jss.norm.logpdf(x[0], 0.0, sd) + jss.norm.logpdf(x[1], bend * (x[0] ** 2 - sd**2))

    x0 = np.linspace(-9 * sd, 9 * sd, 20001)
    x1 = mixture(np.exp(-0.5 * (x0 / sd) ** 2), bend * (x0**2 - sd**2), np.ones_like(x0))
    exact = truth([law(stats.norm(0, sd)), x1], "exact")
    return Problem(name, sgld.Posterior(log_density), None, jnp.zeros(2), exact)


def banana() -> Problem:
    """Haario, Saksman & Tamminen's (1999) with bend .03."""
    return bent("banana", 10.0, 0.03)


def banana_mild() -> Problem:
    return bent("banana_mild", 1.0, 0.15)


def cauchy_location() -> Problem:
    """The location of eight numbers in two heaps, Cauchy errors: two modes."""
    y = np.array([-3.4, -3.1, -2.8, -2.2, 2.6, 3.0, 3.3, 3.9])
    posterior = sgld.Posterior(
        lambda m: dist.Normal(0.0, 10.0).log_prob(m), lambda m, x: dist.Cauchy(m).log_prob(x)
    )
    m = np.linspace(-40, 40, 80001)
    log = -(m**2) / 200 - np.log1p((y[:, None] - m) ** 2).sum(0)
    exact = truth(grid(m, np.exp(log - log.max())), "grid")
    return Problem("cauchy_location", posterior, y.astype(np.float32), jnp.zeros(()), exact)


def student_density() -> Problem:
    """Three independent Student's t with 5 degrees of freedom."""
    posterior = sgld.Posterior(lambda x: dist.StudentT(5.0).log_prob(x).sum())
    exact = truth([law(stats.t(5))] * 3, "exact")
    return Problem("student_density", posterior, None, jnp.ones(3), exact)


def log_gamma() -> Problem:
    """x = log of Gamma(2, 1): one skewed number."""
    marginal = Marginal(
        special.digamma(2.0), np.sqrt(special.polygamma(1, 2.0)),
        *np.log(stats.gamma(2.0).ppf(QUANTILES)),
    )  # fmt: skip
    posterior = sgld.Posterior(lambda x: 2 * x - jnp.exp(x))
    return Problem("log_gamma", posterior, None, jnp.zeros(()), truth(marginal, "exact"))


def net(p, x):
    return jnp.tanh(x * p["w"] + p["b"]) @ p["v"] + p["c"]


def network_of(name: str, output) -> Problem:
    """One input, five tanh units, N(0, 1) on every weight, noise sd .2, 100 rows."""
    rng = np.random.default_rng(41)
    x = rng.uniform(-2, 2, 100).astype(np.float32)
    y = (np.sin(2 * x) + 0.2 * rng.standard_normal(100)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda p: jss.norm.logpdf(jax.flatten_util.ravel_pytree(p)[0]).sum(),
        lambda p, row: dist.Normal(net(p, row[0]), 0.2).log_prob(row[1]),
        output=output,
    )
    start = rng.standard_normal((3, 5)).astype(np.float32)
    init = {
        "w": jnp.asarray(start[0]), "b": jnp.asarray(start[1]), "v": jnp.asarray(start[2]),
        "c": jnp.zeros(()),
    }  # fmt: skip
    return Problem(name, posterior, (x, y), init, None)


def network() -> Problem:
    """Its weights: 2^5 5! copies of every mode; the stored truth is made symmetric."""
    return network_of("network", None)


def network_output() -> Problem:
    """What it predicts at seven inputs, two of them outside the data."""
    at = jnp.linspace(-3.0, 3.0, 7)
    return network_of("network_output", lambda p: jnp.stack([net(p, x) for x in at]))
