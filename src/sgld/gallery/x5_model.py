"""X5's data and model, and its whole posterior sampled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

import sgld
from sgld.errors import need
from sgld.gallery.data import columns

RETURNS = np.diff(np.log(columns("sp500_close")["close"]))  # r_1 ... r_2905
DAYS = len(RETURNS) + 1  # the latents s_0 ... s_2905
INFORMATION = 1.5  # of one return about its s_i: 2 nu / (nu + 3), near enough
EVERY = 5  # days between those that are drawn and stored
WAVES = 4 * np.sin(np.pi * np.arange(DAYS) / (2 * DAYS)) ** 2  # of s_i - s_{i-1}, per cosine


def log_student_t(r, nu, s):
    """log StudentT(r | nu, 0, exp(s))."""
    z2 = (r * jnp.exp(-s)) ** 2
    constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu * jnp.float32(np.pi))
    return constant - s - (nu + 1) / 2 * jnp.log1p(z2 / nu)


def scales(sigma):
    """About the posterior sd of each cosine coefficient of s, given sigma."""
    return sigma / jnp.sqrt(jnp.asarray(WAVES, jnp.float32) + INFORMATION * sigma**2)


def latents(p: Any) -> Any:
    """s_0 ... s_n from standardised cosine coefficients: an orthonormal change of coordinates."""
    return jax.scipy.fft.idct(p["z"] * scales(p["sigma"]), norm="ortho")


def log_density(p):
    """Of (z, sigma, nu): the model's, with the Jacobian of s -> z."""
    sigma, s = p["sigma"], latents(p)
    walk = -0.5 * jnp.sum((jnp.diff(s) / sigma) ** 2) - (DAYS - 1) * jnp.log(sigma)
    priors = -0.5 * (s[0] / 100) ** 2 - 10 * sigma - 0.1 * p["nu"]
    returns = log_student_t(jnp.asarray(RETURNS, jnp.float32), p["nu"], s[1:])
    return walk + priors + jnp.sum(returns) + jnp.sum(jnp.log(scales(sigma)))


def problem() -> tuple[sgld.Posterior, dict[str, Any]]:
    """The posterior, and a start: s constant at log sd of the returns, priors' means."""
    positive = need("numpyro.distributions.constraints", "numpyro").positive
    posterior = sgld.Posterior(
        log_density, constraints={"nu": positive, "sigma": positive, "z": None}
    )
    sigma, z = jnp.float32(0.1), np.zeros(DAYS)
    z[0] = np.log(RETURNS.std()) * np.sqrt(DAYS * INFORMATION)
    return posterior, {"nu": jnp.float32(10.0), "sigma": sigma, "z": jnp.asarray(z, jnp.float32)}


def sample_nuts(draws: int, seed: int) -> sgld.Draws:
    """NUTS with log sigma and log nu in units of about their posterior sds, as z is already.

    Chains start dispersed by 1: in log sigma that is ten sds, and those that begin at a sigma of
    .01 are drawn on towards 0, where float32 no longer resolves the steps of the walk.
    """
    _, init = problem()

    def position(q):
        sigma, nu = init["sigma"] * jnp.exp(0.1 * q["sigma"]), init["nu"] * jnp.exp(0.25 * q["nu"])
        return {"nu": nu, "sigma": sigma, "z": q["z"]}

    def density(q):
        p = position(q)
        return log_density(p) + jnp.log(p["sigma"]) + jnp.log(p["nu"])

    start = {"nu": jnp.float32(0), "sigma": jnp.float32(0), "z": init["z"]}
    found = sgld.reference(sgld.Posterior(density), None, start, num_chains=2, num_warmup=draws,
                           num_draws=draws, seed=seed, progress=False)  # fmt: skip
    return replace(found, position=jax.vmap(jax.vmap(position))(found.position))


def sample_latents(draws: int, seed: int) -> sgld.Draws:
    """All latents as parameters: BAOA with D the squared posterior scales, a step by hand."""
    posterior, init = problem()
    # of log nu, log sigma
    D = {"nu": jnp.float32(0.06), "sigma": jnp.float32(0.01), "z": jnp.ones(DAYS)}
    return sgld.sample(
        posterior, None, init, sampler=sgld.BAOA(friction=0.5), preconditioner=sgld.Diagonal(D),
        step_size=0.1, burn_in=1000, thin=10, num_draws=draws, seed=seed, progress=False,
    )  # fmt: skip


def latent_paths(draws: sgld.Draws, days: np.ndarray) -> np.ndarray:
    """s on `days` of what `full` returns, [chain, draw, day]."""
    count = len(draws.position["nu"])
    chains = (jax.tree.map(lambda leaf, c=c: leaf[c], draws.position) for c in range(count))
    return np.concatenate([np.asarray(jax.lax.map(latents, chain, batch_size=100))[None][..., days]
                           for chain in chains])  # fmt: skip
