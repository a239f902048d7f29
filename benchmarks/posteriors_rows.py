"""posteriors' samplers on N(0, I) at their default arguments: rows of the first table of bias.py.

The learning rate, lr, in our convention theta' = theta + h grad + sqrt(2 h) xi:

sgld, sglrw         h itself
sghmc, baoa, sgnht  delta = sqrt(h), the time step: the mass sigma^2 is 1, and a step adds
                    lr grad to the momentum and lr momentum to the position. Friction alpha = .01
                    is per unit of time, ours is per step
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

STEPS = (0.01, 0.05, 0.2)
DELTAS = (0.05, 0.1, 0.2, 0.4)
FRICTION = 0.01


def explicit_euler(delta: float, friction: float = FRICTION) -> float | None:
    """The stationary variance of sghmc on N(0, 1), or None: steps are stable below `friction`.

    q' = q + delta m, m' = m - delta q - friction delta m + N(0, 2 friction delta), so that the
    covariance S of (q, m) solves S = A S A^T + Q.
    """
    A = np.array([[1.0, delta], [-delta, 1 - friction * delta]])
    if np.max(np.abs(np.linalg.eigvals(A))) >= 1:
        return None
    Q = np.diag([0.0, 2 * friction * delta]).ravel()
    return float(np.linalg.solve(np.eye(4) - np.kron(A, A), Q)[0])


def second_moments(
    name: str, lr: float, starts: np.ndarray, *, steps: int, every: int = 4
) -> np.ndarray:
    """E[theta^2] of each chain over its last three quarters; starts: (chains, dimension)."""
    import torch
    from posteriors import sgmcmc

    def log_posterior(q: Any, _: Any) -> Any:
        return -0.5 * torch.sum(q**2), torch.zeros(0)

    sampler = getattr(sgmcmc, name).build(log_posterior, lr=lr)
    # vmap, and not one position of all chains: sgnht has one thermostat for a whole position
    state = torch.func.vmap(sampler.init, randomness="different")(torch.from_numpy(starts))
    step = torch.func.vmap(lambda s: sampler.update(s, None)[0], randomness="different")
    total, count = torch.zeros(len(starts), dtype=torch.float64), 0
    for i in range(steps):
        state = step(state)
        if i >= steps // 4 and i % every == 0:
            total += torch.mean(state.params**2, dim=1)
            count += 1
    return (total / count).numpy()


def rows(chains: int, dimension: int, seed: int) -> Iterator[tuple]:
    """(name, step, exact or None, the second moment of each chain). ImportError without it."""
    import torch

    with warnings.catch_warnings():
        # its state classes share defaults, of which newer versions of tensordict warn at length
        warnings.simplefilter("ignore", FutureWarning)
        import posteriors  # noqa: F401

    torch.manual_seed(seed)
    torch.set_num_threads(1)  # positions are small
    rng = np.random.default_rng(seed)
    starts = rng.standard_normal((chains, dimension)).astype(np.float32)

    def row(name: str, lr: float, exact: float | None, step: str, steps: int) -> tuple:
        values = second_moments(name, lr, starts, steps=steps)
        return f"posteriors {name}", step, exact, values

    for h in STEPS:
        yield row("sgld", h, 1 / (1 - h / 2), f"{h:g}", 4000)
        # steps of +-sqrt(2 h) with the right mean: exact but for clipped probabilities
        yield row("sglrw", h, None, f"{h:g}", 4000)
    for delta in DELTAS:
        # energies forget their start in 1 / alpha = 100 units of time
        long = round(12 / FRICTION / delta)
        yield row("sghmc", delta, explicit_euler(delta), f"{delta:g}", long // 4)
        yield row("baoa", delta, 1.0, f"{delta:g}", long)
        yield row("sgnht", delta, None, f"{delta:g}", long)
