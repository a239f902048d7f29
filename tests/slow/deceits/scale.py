"""The scale that is read, and temperatures on it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from scipy import special, stats

import sgld

from .case import Case, bound, moments


def log_normal(s, x):
    return jnp.sum(-0.5 * (jnp.log(x) / s) ** 2 - jnp.log(x))


def normal(center, s, z):
    return -0.5 * jnp.sum(((z - center) / s) ** 2)


def read(z):
    """Three ways of reading one number each."""
    return {"exp": jnp.exp(z[0]), "share": jax.nn.sigmoid(z[1]), "square": z[2] ** 2}


def by_hand(h: float, sd: np.ndarray) -> dict:
    """A step h in sds of the free coordinates."""
    return {
        "preconditioner": sgld.Diagonal(jnp.asarray(sd**2, jnp.float32)),
        "step_size": h,
        "num_draws": 20_000,
        "thin": max(1, round(1 / h)),
        "burn_in": round(20 / h),
    }


def reported_scale(rng: np.random.Generator, deceit: bool) -> Case:
    """Log-normals of sd .6 to 2, or numbers that `output=` bends; the twin's bend little."""
    s, bent, step = rng.uniform(0.6, 2.0, 3), rng.random() < 0.5, float(rng.uniform(0.1, 0.4))
    s = s if deceit else rng.uniform(0.03, 0.2, 3)
    options = {} if rng.random() < 0.6 else by_hand(step if deceit else 0.05, s)
    label = f"sd {s.min():.2g} to {s.max():.2g}{f', step {step:.2g}' if options else ''}"
    if not bent:
        mean = np.exp(s**2 / 2)
        posterior = sgld.Posterior(bound(log_normal, s), constraints=constraints.positive)
        return Case(
            f"log-normal, {label}",
            posterior,
            None,
            jnp.ones(3),
            mean,
            mean * np.sqrt(np.expm1(s**2)),
            options,
        )
    center = np.array([0.0, 1.0, 0.3 if deceit else 2.0])
    posterior = sgld.Posterior(bound(normal, center, s), output=read, init=jnp.zeros(3))
    mean = np.exp(s[0] ** 2 / 2)
    z = np.linspace(-10, 10, 20_001)
    share = special.expit(center[1] + s[1] * z)
    w = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    middle = float(w @ share)
    found = {
        "exp": (mean, mean * np.sqrt(np.expm1(s[0] ** 2))),
        "share": (middle, np.sqrt(w @ (share - middle) ** 2)),
        "square": (
            center[2] ** 2 + s[2] ** 2,
            np.sqrt(4 * center[2] ** 2 * s[2] ** 2 + 2 * s[2] ** 4),
        ),
    }
    each = np.array([found[name] for name in sorted(found)])
    return Case(f"output, {label}", posterior, None, jnp.zeros(3), each[:, 0], each[:, 1], options)


def gamma(shape, x):
    return jnp.sum((shape - 1) * jnp.log(x) - x)


def beta(shape, other, x):
    return jnp.sum((shape - 1) * jnp.log(x) + (other - 1) * jnp.log1p(-x))


def tempered(rng: np.random.Generator, deceit: bool) -> Case:
    """Gamma and beta laws at T other than 1: p^(1/T) on their own scale; the twin's T is 1."""
    a, b = rng.uniform(3, 30, 2), rng.uniform(3, 30, 2)
    T = float(np.exp(rng.uniform(np.log(0.1), np.log(8)))) if deceit else 1.0
    if rng.random() < 0.5:
        shape = (a - 1) / T + 1
        law, init = stats.gamma(shape, scale=T), jnp.asarray(a, jnp.float32)
        posterior = sgld.Posterior(bound(gamma, a), constraints=constraints.positive)
        label = "gamma"
    else:
        law, init = stats.beta((a - 1) / T + 1, (b - 1) / T + 1), jnp.full(2, 0.5)
        posterior = sgld.Posterior(bound(beta, a, b), constraints=constraints.unit_interval)
        label = "beta"
    return Case(
        f"{label}, T {T:.2g}", posterior, None, init, law.mean(), law.std(), {"temperature": T}
    )


def bounded(rng: np.random.Generator, deceit: bool) -> Case:
    """A normal prior cut off at a bound by a constraint, two sds inside or far beyond it."""
    center = rng.uniform(-2.0, 0.5, 2) if deceit else rng.uniform(6, 9, 2)
    x = np.linspace(1e-6, 25, 200_001)
    found = np.array([moments(x, -0.5 * (x - c) ** 2) for c in center])
    posterior = sgld.Posterior(bound(normal, center, np.ones(2)), constraints=constraints.positive)
    return Case(
        f"cut {-center.max():.2g} sds off", posterior, None, jnp.ones(2), found[:, 0], found[:, 1]
    )


def rare_value(rng: np.random.Generator, deceit: bool) -> Case:
    """An output that jumps where few draws come, and holds most of its variance there."""
    d, at = int(rng.choice([1, 4])), float(rng.uniform(2.9, 3.7) if deceit else 0.0)
    ratio = float(rng.uniform(1, 20))  # of the variance the jump makes to the rest
    height = np.sqrt(ratio / (stats.norm.sf(at) * stats.norm.cdf(at)))
    z = np.linspace(-12, 12, 2_000_001)
    w = np.exp(-0.5 * z**2)
    value = z + height * special.expit(20 * (z - at))
    mean = np.average(value, weights=w)
    sd = np.sqrt(np.average((value - mean) ** 2, weights=w))
    posterior = sgld.Posterior(
        bound(normal, np.zeros(d), np.ones(d)), output=bound(jump, at, height), init=jnp.zeros(d)
    )
    label = f"d={d}, a jump of {height:.3g} at {at:.2g} sds"
    return Case(label, posterior, None, jnp.zeros(d), np.array([mean]), np.array([sd]))


def jump(at, height, z):
    return z[0] + height * jax.nn.sigmoid(20 * (z[0] - at))


def symmetric_beta(a, p):
    return (a - 1) * jnp.sum(jnp.log(p) + jnp.log1p(-p))


def on_a_bound(rng: np.random.Generator, deceit: bool) -> Case:
    """A share whose prior has its mass where float32 has no numbers below 1; the twin's has none there."""
    a = float(rng.uniform(0.02, 0.06) if deceit else rng.uniform(0.4, 3.0))
    law = stats.beta(a, a)
    posterior = sgld.Posterior(bound(symmetric_beta, a), constraints=constraints.unit_interval)
    init = jnp.float32(rng.uniform(0.2, 0.8))
    return Case(
        f"beta({a:.2g}, {a:.2g})", posterior, None, init, np.array([0.5]), np.array([law.std()])
    )
