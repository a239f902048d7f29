"""What X1, X2 and X3 share: the handout's regression, its exact answer, and the law of its runs.

y_i ~ N(b0 + b1 x_i, sigma^2),  beta | sigma^2 ~ N(0, 100 sigma^2 I),  sigma^2 ~ IG(1, 1)
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import stats

import sgld
from sgld.gallery.data import columns
from sgld.models.nig import NIG, nig

H, STEPS = 1e-5, 1000  # the author's code: a constant step, and the second half kept
NAMES = ("b0", "b1", "σ²")
KEY = (("accent-soft", "draws"), ("contrast", "exact: Student-t, inverse gamma"))
SETTINGS = (
    "The data are the handout's own: 10,000 pairs, slope .9, noise variance .19. As in its "
    "author's code the step is constant, h = 0.00001; 1,000 steps start at (b0, b1, log σ²) = "
    "(1.1, −2, 0), and each takes a fresh subset of m rows without replacement."
)
HALF = (
    "The update is printed with noise √(η τ) ε. With η = h that is the temperature τ/2, half of "
    "what is meant: the handout's own stochastic differential equation has √(2τ), and so have the "
    "author's later editions. As printed, τ = 1 is T = 1/2."
)
TOO_LARGE = (
    "At h = 0.00001 what spreads is the noise of the batches, not the posterior: var = [2hT + h² "
    "(N²/m)(1 − m/N) s²] / [1 − (1 − hλ)²] predicts the sd."
)


@cache
def problem() -> tuple[Any, NIG]:
    """The data (X [N, 2], y [N]), float32, and the exact posterior law."""
    table = columns("handout_regression")
    X = np.stack([np.ones_like(table["x"]), table["x"]], axis=1)
    data = (X.astype(np.float32), table["y"].astype(np.float32))
    return data, nig(2).condition(X, table["y"])


def start() -> dict[str, Any]:
    """The position that the author's code starts from."""
    return {"beta": jnp.array([1.1, -2.0], jnp.float32), "log_sigma2": jnp.float32(0.0)}


def exact(temperature: float = 1.0) -> dict[str, Any]:
    """The exact marginals of b0, b1 (Student-t) and sigma^2 (inverse gamma) as scipy laws."""
    law = problem()[1].tempered(temperature)
    scale = np.sqrt(law.psi / law.phi * np.diag(law.V))
    b0, b1 = (stats.t(2 * law.phi, m, s) for m, s in zip(law.mu, scale, strict=True))
    return {"b0": b0, "b1": b1, "σ²": law.sigma2}


def flat(draws: sgld.Draws) -> dict[str, np.ndarray]:
    """b0, b1, sigma^2, each [chain, draw], float64."""
    beta = np.asarray(draws.position["beta"], np.float64)
    sigma2 = np.exp(np.asarray(draws.position["log_sigma2"], np.float64))
    return {"b0": beta[..., 0], "b1": beta[..., 1], "σ²": sigma2}


def run_of(m: int, T: float, chains: int, seed: int) -> dict[str, np.ndarray]:
    """The handout's run, [chain, STEPS], with batches of m at temperature T; T = 0 is SGD."""
    draws = sgld.sample(
        nig(2).model(), problem()[0], start(), sampler=sgld.SGLD(None), batch_size=m,
        gradient=sgld.Minibatch(), order="subset", step_size=H, temperature=T, num_chains=chains,
        num_draws=STEPS, burn_in=0, thin=1, seed=seed, progress=False,
    )  # fmt: skip
    return flat(draws)


def predicted(m: int, T: float, name: str = "b1") -> Any:
    """The Gaussian law of b0 or b1 that the formula of TOO_LARGE predicts for `run_of`."""
    (X, y), law = problem()
    X, N, j = X.astype(np.float64), len(y), NAMES.index(name)
    sigma2 = np.exp(law.mode["log_sigma2"])
    curvature = (X[:, j] @ X[:, j] + 1 / 100) / sigma2
    s2 = np.var(X[:, j] * (y - X @ law.mu) / sigma2)  # of the gradients of single rows
    noise = H**2 * N**2 / m * (1 - m / N) * s2
    variance = (2 * H * T + noise) / (1 - (1 - H * curvature) ** 2)
    return stats.norm(law.mu[j], np.sqrt(variance))


def well_spent(temperature: float, seed: int) -> tuple[dict[str, np.ndarray], sgld.Draws, int]:
    """`sgld.sample`, told nothing but a temperature and 4,000 draws a chain; passes it took."""
    data, _ = problem()
    draws = sgld.sample(
        nig(2).model(), data, start(), temperature=temperature, num_draws=4000, seed=seed,
        progress=False,
    )  # fmt: skip
    plan = draws.info["plan"]
    # control variates take two gradients of every row
    rows = 2 * plan["num_chains"] * draws.info["num_steps"] * plan["batch_size"]
    return flat(draws), draws, round(rows / len(data[1]))
