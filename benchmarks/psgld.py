"""Compare pSGLD with SGLD on N(0, diag(.16, 1)), as the figure of Li, Chen, Carlson & Carin (2016).

    python benchmarks/psgld.py [--draws 20000] [--chains 50]

Gradients carry normal noise of sd .1; h = .3 x .8^k, k = 0..4; RMSprop with decay .9999 and
lambda 1e-4. Printed: the mean absolute entry of the error of the covariance, and the largest
integrated autocorrelation time of the two coordinates, published and measured.

The published h is the coefficient of the gradient (our convention, eps = 2h in Welling & Teh's):
`closed_form` of it gives the published SGLD errors, and half of it does not. The published pSGLD
errors are about twice those of the stationary distribution: `bare`, an RMSprop whose v starts at 0 without correction,
comes near them, because D is then enormous at first and too large for the first 10,000 steps.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size

import sgld
from harness import Table, command_line, store

COVARIANCE = np.diag([0.16, 1.0])
NOISE_SD, DECAY, EPSILON = 0.1, 0.9999, 1e-4
UNCORRECTED = 1e7  # gradients that v holds at its start: 0 is then taken as it is
STEPS = 0.3 * 0.8 ** np.arange(5)
PUBLISHED_SGLD = (0.628, 0.151, 0.083, 0.055, 0.045)
PUBLISHED_PSGLD = (0.112, 0.084, 0.058, 0.038, 0.039)


def covariance_error(covariance: np.ndarray) -> float:
    """Return the mean absolute entry of the error."""
    return float(np.abs(covariance - COVARIANCE).mean())


def stationary_variances(D: np.ndarray, h: float, noise: float = NOISE_SD) -> np.ndarray:
    """Return those of theta' = theta + h D (grad + noise) + sqrt(2 h D) xi; D is a diagonal."""
    curvature = 1 / np.diag(COVARIANCE)
    return (2 * h * D + (h * D * noise) ** 2) / (1 - (1 - h * D * curvature) ** 2)


def closed_form(h: float, noise: float = NOISE_SD) -> float:
    """Return SGLD's error; without gradient noise the variances are 1 / (l (1 - h l / 2))."""
    return covariance_error(np.diag(stationary_variances(np.ones(2), h, noise)))


def fixed_point(h: float) -> np.ndarray:
    """Return RMSprop's stationary D: sqrt v is the root mean square of the noisy gradient.

    With a decay this close to 1 v hardly moves, so that Gamma is nearly zero.
    """
    curvature, D = 1 / np.diag(COVARIANCE), np.sqrt(np.diag(COVARIANCE))
    for _ in range(500):
        v = curvature**2 * stationary_variances(D, h) + NOISE_SD**2
        D = np.sqrt(D / (EPSILON + np.sqrt(v)))
    return D


@partial(jax.jit, static_argnames=("draws",))
def simulate(key: Any, h: Any, D: Any, count: Any, start: Any, *, draws: int) -> Any:
    """Return positions [draw, 2] of the package's sampler; RMSprop adapts while they are recorded.

    `count` is the number of gradients that v holds at its start.
    """
    precision = jnp.asarray(1 / np.diag(COVARIANCE), jnp.float32)
    sampler = sgld.SGLD(None)
    memory = D.start(start)._replace(count=count) if D.adapts else None

    def step(carry, key):
        state, memory = carry
        noise = jax.random.normal(key, (2, 2))
        g = -precision * state.position + NOISE_SD * noise[0]
        matrix = D
        if D.adapts:
            memory = D.after(memory, g)
            matrix = D.at(memory)
        new = sampler.step(state, lambda _: g, h, noise[1], preconditioner=matrix)
        return (new, memory), state.position

    carry = (sampler.init(start), memory)
    return jax.lax.scan(step, carry, jax.random.split(key, draws))[1]


def measure(
    h: float, D: Any, draws: int, chains: int, count: float = 0.0
) -> tuple[float, float, float]:
    """Return the error of one run of `draws`, that of all runs pooled, and the autocorrelation time.

    The first is what the publication shows: the mean over `chains` runs, each from its own start.
    """
    keys = jax.random.split(jax.random.key(1), chains)
    starts = jax.random.normal(jax.random.key(2), (chains, 2)) * np.sqrt(np.diag(COVARIANCE))
    run = jax.vmap(partial(simulate, draws=draws), (0, None, None, None, 0))
    x = np.asarray(run(keys, h, D, jnp.float32(count), starts), np.float64)
    second = np.einsum("cdi,cdj->cij", x, x) / draws
    alone = float(np.mean([covariance_error(one) for one in second]))
    ess = effective_sample_size(x[:4]).min()
    return alone, covariance_error(second.mean(0)), float(len(x[:4]) * draws / ess)


def main() -> None:
    options = {
        "--draws": {"type": int, "default": 20_000},
        "--chains": {"type": int, "default": 50},
    }
    args = command_line(__doc__, options=options)
    draws, chains = (100, 4) if args.smoke else (args.draws, args.chains)
    rms = sgld.RMSprop(decay=DECAY, epsilon=EPSILON)
    print(
        "Mean absolute entry of the covariance error, of SGLD and pSGLD (p). `published`, then `exact`:"
    )
    print(
        "the stationary distribution, of pSGLD with v at its fixed point; `run`: mean over runs of"
    )
    print(
        f"{draws} draws; `pooled`: {chains} runs together; tau: autocorrelation time; `bare`: v = 0 at"
    )
    print("the start, not corrected.")
    columns = ("published", "exact", "run", "pooled", "tau")
    columns = [*columns, *(f"p {name}" for name in columns), "p bare"]
    table = Table(8, {name: ".1f" if name.endswith("tau") else ".3f" for name in columns})
    for h, *published in zip(STEPS, PUBLISHED_SGLD, PUBLISHED_PSGLD, strict=True):
        h = float(h)
        plain = measure(h, sgld.Scalar(jnp.float32(1.0)), draws, chains)
        adapted = measure(h, rms, draws, chains)
        bare = measure(h, rms, draws, chains, count=UNCORRECTED)
        settled = covariance_error(np.diag(stationary_variances(fixed_point(h), h)))
        cells = (published[0], closed_form(h), *plain, published[1], settled, *adapted, bare[0])
        table.row(f"{h:.4f}", *cells)
    if args.store:
        store("psgld", {"table": table.lines})


if __name__ == "__main__":
    main()
