"""X5's hybrid, as the document has it: SGLD with the latents replaced by a Gaussian walk."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import sgld
from sgld.errors import need
from sgld.gallery.x5_model import DAYS, RETURNS, log_student_t

UNDER = (
    "The document's family of laws, a random walk with steps N(μ_i, σ²), has a spread i σ² that no return "
    "can narrow. Wide laws are punished by the days they call too quiet: the means of late s_i rise, σ "
    "shrinks for as long as the run lasts, and σ and ν come out far too narrow, as variational "
    "approximations do."
)


def hybrid(replicates: int, steps: int, seed: int) -> sgld.Draws:
    """The document's: SGLD over sigma, nu, s_0, mu with s_i = s_{i-1} + mu_i + sigma eps_i.

    The rows are walks eps, of which each step takes some: the mean over walks stands for E_q.
    """
    bank, days = 1000, DAYS - 1
    eps = np.random.default_rng(seed).standard_normal((bank, days), np.float32)
    walks = {"eps": eps, "share": np.full(bank, 1 / bank, np.float32)}
    returns = jnp.asarray(RETURNS, jnp.float32)

    def log_prior(p):  # with E_q[log p(s | sigma) - log q(s)] = -sum mu^2 / (2 sigma^2)
        kl = 0.5 * jnp.sum((p["mu"] / p["sigma"]) ** 2)
        return -kl - 0.5 * (p["s0"] / 100) ** 2 - 10 * p["sigma"] - 0.1 * p["nu"]

    def log_likelihood(p, row):
        s = p["s0"] + jnp.cumsum(p["mu"] + p["sigma"] * row["eps"])
        return row["share"] * jnp.sum(log_student_t(returns, p["nu"], s))

    positive = need("numpyro.distributions.constraints", "numpyro").positive
    constraints = {"mu": None, "nu": positive, "s0": None, "sigma": positive}
    init = {"mu": jnp.zeros(days), "nu": 10.0, "s0": np.log(RETURNS[:60].std()), "sigma": 0.1}
    # the walks' mean is the loss: RMSprop sees gradients divided by `bank`, and D is that much larger
    return sgld.sample(
        sgld.Posterior(log_prior, log_likelihood, constraints=constraints), walks,
        jax.tree.map(jnp.float32, init), sampler=sgld.SGLD(None), gradient=sgld.Minibatch(),
        preconditioner=sgld.RMSprop(epsilon=1e-5 / bank, freeze=False), batch_size=replicates,
        step_size=sgld.polynomial_between(0.0005 / bank, 0.00005 / bank, steps, 0.55),
        order="replacement", burn_in=500, thin=10, num_draws=steps // 10, num_chains=1, seed=seed,
        progress=False,
    )  # fmt: skip


def paths(draws: sgld.Draws, days: np.ndarray) -> np.ndarray:
    """E s on `days` of what `hybrid` returns, [chain, draw, day]."""
    return (draws.position["s0"][..., None] + np.cumsum(draws.position["mu"], -1))[..., days - 1]
