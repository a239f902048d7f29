"""Samplers, orders and steps by hand: the twin's step is good, the deceptive one up to 30 times as long."""

from __future__ import annotations

import numpy as np

import sgld

from .case import Case, bound
from .rows import gaussian, prior

ROWS, BATCH, DRAWS = 400, 40, 1000
SETTINGS = {
    "SGLD reshuffle": (sgld.SGLD(None), sgld.Minibatch(), "reshuffle"),
    "SGLD independent": (sgld.SGLD(None), sgld.Minibatch(), "independent"),
    "SGLD replacement": (sgld.SGLD(None), sgld.Minibatch(), "replacement"),
    "SGLD symmetric": (sgld.SGLD(None), sgld.Minibatch(), "symmetric"),
    "SGLD full": (sgld.SGLD(None), sgld.Full(), "independent"),
    "SGLD control variates": (sgld.SGLD(None), sgld.ControlVariates(), "independent"),
    "SGHMC independent": (sgld.SGHMC(0.3), sgld.Minibatch(), "independent"),
    "BAOA reshuffle": (sgld.BAOA(), sgld.Minibatch(), "reshuffle"),
    "BAOA full": (sgld.BAOA(), sgld.Full(), "independent"),
    "UBU independent": (sgld.UBU(), sgld.Minibatch(), "independent"),
    "SGNHT independent": (sgld.SGNHT(), sgld.Minibatch(), "independent"),
}


def by_hand(rng: np.random.Generator, deceit: bool) -> Case:
    """A linear regression of known noise, in the metric of its exact covariance."""
    which = str(rng.choice(list(SETTINGS)))
    sampler, gradient, order = SETTINGS[which]
    X = np.c_[np.ones(ROWS), rng.standard_normal((ROWS, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])]
    X = X.astype(np.float32)
    y = (X @ rng.standard_normal(3) + rng.standard_normal(ROWS)).astype(np.float32)
    exact = X.astype(float)
    covariance = np.linalg.inv(exact.T @ exact + np.eye(3) / 100)
    times = float(np.exp(rng.uniform(np.log(6), np.log(30)))) if deceit else 1.0
    # of gradient noise alone: independent batches add h V / 2 to the variance, V about N / n
    h = 0.03 * BATCH / ROWS if isinstance(gradient, sgld.Minibatch) else 0.03
    if isinstance(sampler, sgld.UBU | sgld.SGNHT | sgld.BAOA):
        h /= 5  # friction 1: more of the noise stays
    if isinstance(sampler, sgld.BAOA) and isinstance(gradient, sgld.Full):
        h = 0.3  # without gradient noise exact on a Gaussian: twins, both of them
        times = min(times, 4.0)
    h = min(h * times, 1.2)
    thin = int(np.clip(round(1.3 / h), 2, 150))
    options = {
        "sampler": sampler, "gradient": gradient, "order": order, "batch_size": BATCH, "step_size": h,
        "preconditioner": sgld.Dense(covariance), "thin": thin, "num_draws": DRAWS, "num_chains": 4,
        "burn_in": max(50, round(6 / h)),
    }  # fmt: skip
    if isinstance(gradient, sgld.Full):
        del options["batch_size"], options["order"]
    posterior = sgld.Posterior(bound(prior, np.full(3, 10.0)), gaussian)
    mean = covariance @ exact.T @ y
    label = f"{which}, step {h:.3g}"
    return Case(
        label,
        posterior,
        (X, y),
        mean.astype(np.float32),
        mean,
        np.sqrt(np.diag(covariance)),
        options,
    )
