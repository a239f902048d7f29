"""X4's data, model and exact answer on a grid."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import sgld
from sgld.gallery.data import columns

DATA = columns("tied_means_mixture")["x"]
MODES = ((-0.25118, 1.54618), (1.28627, -1.53668))
PRINTED_END = np.array([-0.2327, 1.5129])  # of the document's SGD
AXES = np.linspace(-2.5, 3.5, 601), np.linspace(-5.5, 5.5, 801)


def log_prior(t):
    """t1 ~ N(0, 10), t2 ~ N(0, 1): variances."""
    return norm.logpdf(t, 0.0, jnp.asarray([10**0.5, 1.0], jnp.float32)).sum()


def log_likelihood(t, x):
    """Log of .5 N(x | t1, 2) + .5 N(x | t1 + t2, 2): a logsumexp."""
    first, second = (norm.logpdf(x, m, jnp.float32(2**0.5)) for m in (t[0], t[0] + t[1]))
    return jnp.logaddexp(first, second) - jnp.log(jnp.float32(2))


def exact() -> tuple[np.ndarray, dict[str, float]]:
    """The density on the grid of AXES, normalised, and what is to be known of it."""
    a, b = np.meshgrid(*AXES, indexing="ij")
    log = -(a**2) / 20 - b**2 / 2 - np.log(2 * np.pi * 10**0.5)
    for x in DATA:
        log += np.logaddexp(-((x - a) ** 2) / 4, -((x - a - b) ** 2) / 4) - np.log(16 * np.pi) / 2
    top, cell = log.max(), np.prod([axis[1] - axis[0] for axis in AXES])
    p = np.exp(log - top)  # the maximum is subtracted before exponentiating
    total = p.sum()
    p /= total
    m1, m2 = (p * a).sum(), (p * b).sum()
    sd1, sd2 = np.sqrt((p * (a - m1) ** 2).sum()), np.sqrt((p * (b - m2) ** 2).sum())
    up = p[:, AXES[1] > 0].sum() + p[:, AXES[1] == 0].sum() / 2
    return p / cell, dict(m1=m1, m2=m2, sd1=sd1, sd2=sd2, up=up, z=top + np.log(total * cell))


def share(draws: sgld.Draws) -> np.ndarray:
    """P(t2 > 0) as each chain has it, weighted."""
    weight = np.exp(draws.log_weight)
    return (weight * (np.asarray(draws.position)[..., 1] > 0)).sum(1) / weight.sum(1)
