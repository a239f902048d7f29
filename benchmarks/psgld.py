"""pSGLD against SGLD on N(0, diag(.16, 1)): the figure of Li, Chen, Carlson & Carin (2016).

    python benchmarks/psgld.py [--draws 20000] [--chains 50]

Gradients carry normal noise of sd .1; h = .3 x .8^k, k = 0..4; RMSprop with decay .9999 and
lambda 1e-4. Printed: the mean absolute entry of the error of the covariance, and the largest
integrated autocorrelation time of the two coordinates, published beside measured.

The published h is the coefficient of the gradient (our convention, eps = 2h in Welling & Teh's):
`closed_form` of it gives the published SGLD errors, and half of it does not. The published pSGLD
errors are about twice those of the law: `bare`, an RMSprop whose v starts at 0 without correction,
comes near them, because D is then enormous at first and too large for the first 10,000 steps.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgld
from sgld.results import statistics

COVARIANCE = np.diag([0.16, 1.0])
NOISE_SD, DECAY, EPSILON = 0.1, 0.9999, 1e-4
UNCORRECTED = 1e7  # gradients that v is said to hold: its start at 0 is then taken as it is
STEPS = 0.3 * 0.8 ** np.arange(5)
PUBLISHED_SGLD = (0.628, 0.151, 0.083, 0.055, 0.045)
PUBLISHED_PSGLD = (0.112, 0.084, 0.058, 0.038, 0.039)


def covariance_error(covariance: np.ndarray) -> float:
    """The mean absolute entry."""
    return float(np.abs(covariance - COVARIANCE).mean())


def stationary_variances(D: np.ndarray, h: float, noise: float = NOISE_SD) -> np.ndarray:
    """Of theta' = theta + h D (grad + noise) + sqrt(2 h D) xi, by coordinate; D is a diagonal."""
    curvature = 1 / np.diag(COVARIANCE)
    return (2 * h * D + (h * D * noise) ** 2) / (1 - (1 - h * D * curvature) ** 2)


def closed_form(h: float, noise: float = NOISE_SD) -> float:
    """SGLD's error; without gradient noise the variances are 1 / (l (1 - h l / 2))."""
    return covariance_error(np.diag(stationary_variances(np.ones(2), h, noise)))


def fixed_point(h: float) -> np.ndarray:
    """RMSprop's D where it has settled: sqrt v = sqrt of the mean square of the noisy gradient.

    With a decay this close to 1 v hardly moves, so that Gamma is nearly zero.
    """
    curvature, D = 1 / np.diag(COVARIANCE), np.sqrt(np.diag(COVARIANCE))
    for _ in range(500):
        v = curvature**2 * stationary_variances(D, h) + NOISE_SD**2
        D = np.sqrt(D / (EPSILON + np.sqrt(v)))
    return D


@partial(jax.jit, static_argnames=("draws",))
def simulate(key: Any, h: Any, D: Any, count: Any, start: Any, *, draws: int) -> Any:
    """[draw, 2]: the package's sampler, and the RMSprop memory going on while recording.

    `count` is the number of gradients that v is said to hold at its start.
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
    """(error of one run of `draws`, error of all runs pooled, autocorrelation time).

    The first is what the publication shows: the mean over `chains` runs, each from its own start.
    """
    keys = jax.random.split(jax.random.key(1), chains)
    starts = jax.random.normal(jax.random.key(2), (chains, 2)) * np.sqrt(np.diag(COVARIANCE))
    run = jax.vmap(partial(simulate, draws=draws), (0, None, None, None, 0))
    x = np.asarray(run(keys, h, D, jnp.float32(count), starts), np.float64)
    second = np.einsum("cdi,cdj->cij", x, x) / draws
    alone = float(np.mean([covariance_error(one) for one in second]))
    ess = statistics.ess(x[:4], np.ones(x[:4].shape[:2]), "mean")
    return alone, covariance_error(second.mean(0)), float(4 * draws / ess.min())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--chains", type=int, default=50)
    parser.add_argument(
        "--store", action="store_true", help="write the table to results/psgld.json"
    )
    args = parser.parse_args()
    import claims

    with claims.table_printed() as lines:
        table(args)
    if args.store:
        claims.store("psgld", {"table": lines})


def table(args: argparse.Namespace) -> None:
    rms = sgld.RMSprop(decay=DECAY, epsilon=EPSILON)
    print("Mean absolute entry of the covariance error; `run`: mean over runs of")
    print(f"{args.draws} draws; `pooled`: {args.chains} runs together; tau: autocorrelation time;")
    print(
        "`settled`: the law with v at its fixed point; `bare`: v = 0 at the start, not corrected.\n"
    )
    print("            SGLD                                        pSGLD")
    print(
        "     h   published  exact    run  pooled    tau"
        "    published  settled    run  pooled    tau    bare"
    )
    for h, sgld_error, psgld_error in zip(STEPS, PUBLISHED_SGLD, PUBLISHED_PSGLD, strict=True):
        plain = measure(float(h), sgld.Scalar(jnp.float32(1.0)), args.draws, args.chains)
        adapted = measure(float(h), rms, args.draws, args.chains)
        bare = measure(float(h), rms, args.draws, args.chains, count=UNCORRECTED)
        settled = covariance_error(np.diag(stationary_variances(fixed_point(h), h)))
        print(
            f"{h:.4f}{sgld_error:10.3f}{closed_form(h):9.3f}{plain[0]:7.3f}{plain[1]:8.3f}"
            f"{plain[2]:7.1f}{psgld_error:12.3f}{settled:10.3f}{adapted[0]:8.3f}{adapted[1]:8.3f}"
            f"{adapted[2]:7.1f}{bare[0]:8.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
