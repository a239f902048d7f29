"""X7: a one-dimensional Gaussian mixture sampled from its log density alone."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from scipy import stats

import sgld
from sgld.gallery import Check, Entry, Section
from sgld.gallery.page import histogram, lines

TITLE = "A mixture of Gaussians from its log density alone"
WEIGHTS, MEANS, SDS = np.array([0.3, 0.7]), np.array([-2.0, 2.0]), np.array([0.5, 1.0])
DENSITY_GRID = np.linspace(-12, 14, 26_001)
SHOWN_SPAN = (-5.0, 6.5)


def log_density(x):
    """Return log sum_i w_i N(x | m_i, s_i^2): a logsumexp, never a weighted mean of logs."""
    w, m, s = (jnp.asarray(a, jnp.float32) for a in (WEIGHTS, MEANS, SDS))
    return logsumexp(jnp.log(w) - jnp.log(s) - 0.5 * ((x - m) / s) ** 2)


def density(x) -> np.ndarray:
    """Return the density of the mixture, [n]."""
    return stats.norm.pdf(np.asarray(x)[..., None], MEANS, SDS) @ WEIGHTS


def tempered(temperature: float):
    """Return (density, cdf) of the distribution proportional to density^(1/T), by quadrature."""
    p = density(DENSITY_GRID) ** (1 / temperature)
    p /= np.trapezoid(p, DENSITY_GRID)
    cdf = np.append(0.0, np.cumsum((p[1:] + p[:-1]) / 2 * np.diff(DENSITY_GRID)))
    return lambda x: np.interp(x, DENSITY_GRID, p), lambda x: np.interp(x, DENSITY_GRID, cdf)


def draw(dt: float, beta: float, temperature: float, steps: int, seed: int):
    """Run 1,024 chains of x' = x + (dt / beta) grad log p + sqrt(2 T dt / beta) xi, so h is dt / beta."""
    return sgld.sample(
        sgld.Posterior(log_density), None, 0.0, step_size=dt / beta, temperature=temperature,
        num_chains=1024, num_draws=400, thin=steps // 400, burn_in=8_000, seed=seed, progress=False,
    )  # fmt: skip


def run(quick: bool = False, seed: int = 0) -> Entry:
    """Compare three runs with chosen steps with their exact distribution functions, and a run at defaults."""
    dt, steps = 0.02, 24_000 if quick else 96_000
    runs = {
        "β = 1": draw(dt, 1.0, 1.0, steps, seed),
        "β = 2, the same p": draw(dt, 2.0, 1.0, 2 * steps, seed),
        "T = 2, another law": draw(dt, 1.0, 2.0, steps, seed),
    }
    free = sgld.sample(sgld.Posterior(log_density), None, 0.0, seed=seed, progress=False)
    laws = [tempered(1.0), tempered(1.0), tempered(2.0)]
    checks, figures = [], []
    for (name, draws), (pdf, cdf) in zip(runs.items(), laws, strict=True):
        x = draws.position.ravel()
        distance = stats.kstest(x, cdf).statistic
        checks.append(Check.in_value(f"{name}: Kolmogorov-Smirnov distance", 0, distance, 0.02))
        figures.append(histogram(name, x, [pdf], span=SHOWN_SPAN))
    x = runs["β = 1"].position.ravel()
    left = laws[0][1](0.0)
    checks.append(Check.in_value("β = 1: share left of 0", left, np.mean(x < 0), 0.02))
    # a weighted mean of logs is the log density of one Gaussian
    precision = np.sum(WEIGHTS / SDS**2)
    mean = np.sum(WEIGHTS * MEANS / SDS**2) / precision
    one = stats.norm.cdf(DENSITY_GRID, mean, precision**-0.5)
    checks.append(
        Check.in_value(
            "weighted mean of logs: distance", 0, np.abs(one - laws[0][1](DENSITY_GRID)).max(), 0.02,
            "A weighted mean of log densities, Σ w_i log N_i, is the log density of a single "
            "Gaussian, which is not the mixture; the logarithm of the sum is needed.",
        )
    )  # fmt: skip
    found, weights = free.position.ravel(), np.ravel(free.weights)
    share = float(np.sum(weights * (found < 0)) / np.sum(weights))
    checks.append(Check.in_value("defaults: share left of 0", left, share, 0.03))
    return Entry(
        TITLE,
        "Autodiff turns any log density into a sampler: no data, no normalising constant. "
        "The draws match the exact distribution function.",
        (
            Section(
                "From the log density",
                (
                    ".3 N(−2, .5²) + .7 N(2, 1), given as `sgld.Posterior(log_density)` and "
                    f"`data=None`. The document's rule x' = x + (dt/β) ∂log p + √(2 dt/β) ξ is our "
                    f"step with h = dt/β; here dt = {dt}, 1,024 chains of {steps:,} steps after a "
                    "burn-in of 8,000, set manually: a valley lies between the modes, and a "
                    "chain needs some 10 units of time to forget on which side it was.",
                    "β is no temperature. Drift and noise variance both carry 1/β, so every β > 0 "
                    "has the law p, and a larger one only takes more steps (twice as many in the "
                    "second panel). A temperature T multiplies the noise alone; its law is "
                    "p^{1/T}, in the third panel.",
                    "The log density is a logsumexp. The dashed curve below is what a weighted mean "
                    "of the logs would be: one Gaussian.",
                ),
                (*figures, lines("Mixture, and a mean of logs", [
                    ("mixture", DENSITY_GRID, density(DENSITY_GRID)), ("mean of logs", DENSITY_GRID, np.gradient(one, DENSITY_GRID)),
                ], xlim=SHOWN_SPAN, height=140)),
                (("accent-soft", "draws"), ("contrast", "exact")),
            ),
            Section(
                "What the verdict says",
                (
                    f"Of the run with chosen settings, which is right: {runs['β = 1'].verdict.word}; "
                    f"{'; '.join(runs['β = 1'].verdict.reasons)} The meter predicts the posterior "
                    "from gradients by a Gaussian law, which can say little of two modes.",
                    f"`sgld.sample` left to itself: {free.num_chains} chains of "
                    f"{free.info['num_steps']:,} steps hold {share:.3f} of their weight "
                    f"left of 0, where the exact share is {left:.3f}. Its verdict: "
                    f"{free.verdict.word}; {'; '.join(free.verdict.reasons)}",
                ),
                (histogram("sgld.sample, defaults", found, [density], span=SHOWN_SPAN, weights=weights),),
            ),
        ),
        tuple(checks),
    )  # fmt: skip
