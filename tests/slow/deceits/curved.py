"""Posteriors that bend: phases, plateaus, funnels, horseshoes, change points, separated data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

import sgld

from .case import Case, bound, moments, normal_mixture


def normal_prior(center, sd, p):
    return -0.5 * jnp.sum(((p - center) / sd) ** 2)


def wave(omega, noise, p, row):
    return -0.5 * ((row[1] - jnp.sin(omega * row[0] + p)) / noise) ** 2


def phase(rng: np.random.Generator, deceit: bool) -> Case:
    """The phase of a wave under a prior many turns wide; the twin's prior knows the turn."""
    omega, true, noise = rng.uniform(0.5, 3), rng.uniform(0, 6), rng.uniform(0.2, 1.0)
    t = np.linspace(0, 20, 500).astype(np.float32)
    y = (np.sin(omega * t + true) + noise * rng.standard_normal(t.size)).astype(np.float32)
    center, sd = (0.0, float(rng.uniform(5, 30))) if deceit else (true, 0.3)
    x = np.linspace(center - 8 * sd, center + 8 * sd, 800_001 if deceit else 20_001)
    s, c = np.sin(omega * t.astype(float)), np.cos(omega * t.astype(float))
    ys, yc, ss, cc, sc = y @ s, y @ c, s @ s, c @ c, s @ c
    cos, sin = np.cos(x), np.sin(x)
    square = cos**2 * ss + sin**2 * cc + 2 * sin * cos * sc
    log = -0.5 * ((x - center) / sd) ** 2 + (cos * ys + sin * yc - square / 2) / noise**2
    mean, own = moments(x, log)
    posterior = sgld.Posterior(bound(normal_prior, center, sd), bound(wave, omega, noise))
    init = jnp.asarray(true + 0.2, jnp.float32)
    label = f"prior sd {sd:.2g}, noise {noise:.2g}"
    return Case(label, posterior, (t, y), init, np.array([mean]), np.array([own]))


def saturating(noise, p, row):
    curve = p[0] * -jnp.expm1(-jnp.exp(jnp.minimum(p[1], 50.0)) * row[0])
    return -0.5 * ((row[1] - curve) / noise) ** 2


def plateau(rng: np.random.Generator, deceit: bool) -> Case:
    """a (1 - exp(-e^r x)) from points where it has levelled off; the twin's see it rise."""
    rate, noise = float(rng.uniform(1.0, 2.5)), 0.1
    xs = rng.uniform(0.5, 3, 12) if deceit else rng.uniform(0.05, 1.5, 60)
    xs = np.resize(xs, 60) if deceit else xs
    kept = 12 if deceit else 60
    sd = np.array([10.0, float(np.exp(rng.uniform(np.log(3), np.log(100)))) if deceit else 1.0])
    ys = 1 - np.exp(-rate * xs) + noise * rng.standard_normal(60)
    rows = (xs[:kept].astype(np.float32), ys[:kept].astype(np.float32))
    r = np.concatenate([np.linspace(-14, 6, 20_001), np.linspace(6, max(7.0, 8 * sd[1]), 4001)[1:]])
    f = -np.expm1(-np.exp(np.minimum(r, 50.0))[:, None] * rows[0].astype(float))
    precision = (f**2).sum(1) / noise**2 + 1 / sd[0] ** 2
    a = f @ rows[1] / noise**2 / precision
    log = -0.5 * (r / sd[1]) ** 2 + a**2 * precision / 2 - np.log(precision) / 2
    weight = np.exp(log - log.max()) * np.gradient(r)
    means, variances = np.c_[a, r], np.c_[1 / precision, 0 * r]
    mean, own = normal_mixture(weight, means, variances)
    posterior = sgld.Posterior(bound(normal_prior, np.zeros(2), sd), bound(saturating, noise))
    init = jnp.asarray([1.0, 0.2], jnp.float32)
    return Case(f"rate {rate:.2g}, prior sd {sd[1]:.2g}", posterior, rows, init, mean, own)


def groups_prior(spread, p):
    mean, log_sd = p["mean"], p["log_sd"]
    level = -0.5 * jnp.sum(((p["level"] - mean) * jnp.exp(-log_sd)) ** 2) - p["level"].size * log_sd
    return level - 0.5 * (mean / 5) ** 2 - 0.5 * (log_sd / spread) ** 2


def groups_row(p, row):
    group, y, error = row
    level = jnp.sum(jnp.where(jnp.arange(p["level"].size) == group, p["level"], 0.0))
    return -0.5 * ((y - level) / error) ** 2


def groups(rng: np.random.Generator, deceit: bool) -> Case:
    """Centred group means: a funnel where they are hardly measured; the twin's are measured well."""
    count, spread = 8, float(rng.uniform(0.8, 1.5))
    error = rng.uniform(1, 4, count) * (1.0 if deceit else 0.03)
    y = rng.standard_normal(count) + error * rng.standard_normal(count)
    log_sd = np.linspace(-7 * spread, 7 * spread, 3001)
    weight, means, variances = np.empty(3001), np.empty((3001, 10)), np.empty((3001, 10))
    for k, ell in enumerate(log_sd):
        # level given mean: precision weighted; the mean has a prior N(0, 25)
        total = error**2 + np.exp(2 * ell)
        precision = np.sum(1 / total) + 1 / 25
        center = np.sum(y / total) / precision
        share = np.exp(2 * ell) / total
        weight[k] = (
            -0.5 * (ell / spread) ** 2 - 0.5 * np.sum(np.log(total) + y**2 / total)
            + 0.5 * center**2 * precision - 0.5 * np.log(precision)
        )  # fmt: skip
        means[k] = [*(share * y + (1 - share) * center), ell, center]
        variances[k] = [*(share * error**2 + (1 - share) ** 2 / precision), 0.0, 1 / precision]
    mean, own = normal_mixture(np.exp(weight - weight.max()), means, variances)
    posterior = sgld.Posterior(bound(groups_prior, spread), groups_row)
    rows = tuple(np.asarray(a, np.float32) for a in (np.arange(count), y, error))
    init = {"level": jnp.asarray(y, jnp.float32), "log_sd": jnp.zeros(()), "mean": jnp.zeros(())}
    return Case(f"errors {error.min():.2g} to {error.max():.2g}", posterior, rows, init, mean, own)


def horseshoe_prior(sharp, p):
    size = jnp.abs(p["log_local"])
    log_cosh = size + jnp.log1p(jnp.exp(-2 * size)) - jnp.log(2.0)
    return -sharp * jnp.sum(log_cosh) - 0.5 * jnp.sum(p["z"] ** 2) - 0.5 * p["log_all"] ** 2


def horseshoe_row(p, row):
    which, y = row
    effect = jnp.exp(p["log_all"] + p["log_local"]) * p["z"]
    return -0.5 * (y - jnp.sum(jnp.where(jnp.arange(effect.size) == which, effect, 0.0))) ** 2


def horseshoe(rng: np.random.Generator, deceit: bool) -> Case:
    """Normal means y_i ~ N(tau lambda_i z_i, 1), lambda_i half-Cauchy; the twin's are near 1.

    Of log lambda the half-Cauchy's density is sech; the twin's is its 40th power. lambda_i is summed out on a
    grid given tau, tau then too.
    """
    count, sharp = 5, 1.0 if deceit else 40.0
    y = (
        np.array([rng.uniform(3, 8), *rng.standard_normal(count - 1)])
        if deceit
        else rng.uniform(1, 2, count)
    )
    ell, log_tau = (
        np.linspace(-16, 16, 4001) if deceit else np.linspace(-2, 2, 1001),
        np.linspace(-5, 5, 201),
    )
    log_prior = -sharp * (np.abs(ell) + np.log1p(np.exp(-2 * np.abs(ell))))
    inner = np.zeros((201, count))
    local, z = np.zeros((201, count, 2)), np.zeros((201, count, 2))
    for k, t in enumerate(log_tau):
        s = np.exp(t + ell)
        for i in range(count):
            log = log_prior - 0.5 * np.log1p(s**2) - 0.5 * y[i] ** 2 / (1 + s**2)
            w = np.exp(log - log.max())
            inner[k, i] = log.max() + np.log(w.sum())
            w /= w.sum()
            local[k, i] = w @ ell, w @ ell**2
            m = s * y[i] / (1 + s**2)
            z[k, i] = w @ m, w @ (m**2 + 1 / (1 + s**2))
    log = inner.sum(1) - 0.5 * log_tau**2
    w = np.exp(log - log.max())
    w /= w.sum()
    first = np.array([w @ log_tau, *(w @ local[:, :, 0]), *(w @ z[:, :, 0])])
    second = np.array([w @ log_tau**2, *(w @ local[:, :, 1]), *(w @ z[:, :, 1])])
    posterior = sgld.Posterior(bound(horseshoe_prior, sharp), horseshoe_row)
    rows = (np.arange(count, dtype=np.float32), y.astype(np.float32))
    init = {"log_all": jnp.zeros(()), "log_local": jnp.zeros(count), "z": jnp.zeros(count)}
    return Case(f"largest {y.max():.2g}", posterior, rows, init, first, np.sqrt(second - first**2))


def broken(noise, width, p, row):
    """One level before `at`, another after it, over `width`."""
    after = jax.nn.sigmoid((row[0] - p["at"]) / width)
    return -0.5 * ((row[1] - p["level"][0] - p["level"][1] * after) / noise) ** 2


def broken_prior(p):
    return -0.5 * jnp.sum((p["level"] / 5) ** 2) - 0.5 * (p["at"] / 5) ** 2


def change_point(rng: np.random.Generator, deceit: bool) -> Case:
    """A level that changes within a hundredth of the space between rows; the twin's takes its time."""
    count, rise = 40, float(rng.uniform(1.0, 4.0))
    t = np.sort(rng.uniform(-10, 10, count))
    width = float(rng.uniform(0.005, 0.1)) if deceit else 2.0
    rise, noise = (rise, 1.0) if deceit else (rise, 0.3)
    true = float(rng.uniform(-5, 5))
    y = 1 + rise * special.expit((t - true) / width) + noise * rng.standard_normal(count)
    rows = (t.astype(np.float32), y.astype(np.float32))
    t, y = (a.astype(float) for a in rows)
    at = np.linspace(-30, 30, 60_001)
    weight, means, variances = [], [], []
    for part in np.array_split(at, 60):
        f = special.expit((t - part[:, None]) / width)
        A = np.zeros((len(part), 2, 2))
        A[:, 0, 0], A[:, 1, 1] = count / noise**2 + 1 / 25, (f**2).sum(1) / noise**2 + 1 / 25
        A[:, 0, 1] = A[:, 1, 0] = f.sum(1) / noise**2
        b = np.stack([np.full(len(part), y.sum()), f @ y], 1) / noise**2
        V = np.linalg.inv(A)
        m = np.einsum("kij,kj->ki", V, b)
        weight.append(
            -0.5 * (part / 5) ** 2
            + 0.5 * np.einsum("ki,ki->k", m, b)
            + 0.5 * np.linalg.slogdet(V)[1]
        )
        means.append(np.c_[part, m])
        variances.append(np.c_[0 * part, V[:, 0, 0], V[:, 1, 1]])
    log = np.concatenate(weight)
    mean, own = normal_mixture(
        np.exp(log - log.max()), np.concatenate(means), np.concatenate(variances)
    )
    posterior = sgld.Posterior(broken_prior, bound(broken, noise, width))
    init = {"at": jnp.asarray(true, jnp.float32), "level": jnp.asarray([1.0, rise], jnp.float32)}
    return Case(f"rise {rise / noise:.2g} sds within {width:.2g}", posterior, rows, init, mean, own)


def logit_row(p, row):
    eta = p[0] + p[1] * row[0]
    return row[1] * eta - jax.nn.softplus(eta)


def separated(rng: np.random.Generator, deceit: bool) -> Case:
    """Twenty rows that a threshold separates, under a prior of sd 10 to 100; the twin's overlap."""
    count, sd = 20, float(np.exp(rng.uniform(np.log(10), np.log(100)))) if deceit else 2.5
    x = np.sort(rng.standard_normal(count))
    y = x > 0.2 if deceit else rng.random(count) < special.expit(x)
    rows = (x.astype(np.float32), y.astype(np.float32))
    x, y = (a.astype(float) for a in rows)
    # slope on a grid, and intercept = -slope times threshold where it is steep
    slope = np.concatenate([-np.geomspace(8 * sd, 1e-3, 700), np.geomspace(1e-3, 8 * sd, 1400)])
    q = np.linspace(-1, 1, 1201)
    total, first, second = [], [], []
    for b in slope:
        middle = -b * np.median(x)
        a = middle + 8 * sd * np.sign(q) * np.abs(q) ** 3
        if abs(b) > 1:  # dense where the threshold lies between rows
            a = np.sort(np.concatenate([a, -b * np.linspace(x[0], x[-1], 801)]))
        log = -0.5 * (a**2 + b**2) / sd**2
        eta = a[:, None] + b * x
        log = log + (eta * y - np.logaddexp(0, eta)).sum(1)
        w = np.exp(log) * np.gradient(a)
        total.append(w.sum())
        first.append(w @ a)
        second.append(w @ a**2)
    w = np.array(total) * np.gradient(slope)
    steep = np.gradient(slope) / w.sum()
    mean = np.array([np.array(first) @ steep, w @ slope / w.sum()])
    square = np.array([np.array(second) @ steep, w @ slope**2 / w.sum()])
    posterior = sgld.Posterior(bound(normal_prior, np.zeros(2), sd), logit_row)
    label = f"prior sd {sd:.2g}"
    return Case(label, posterior, rows, jnp.zeros(2), mean, np.sqrt(square - mean**2))


def product_density(center, sd, noise, p):
    z = jnp.stack([p["gain"], p["signal"]])
    far = (1.0 - p["gain"] * p["signal"]) / noise
    return -0.5 * jnp.sum(((z - center) / sd) ** 2) - 0.5 * far**2


def product(rng: np.random.Generator, deceit: bool) -> Case:
    """Of two numbers the product alone is known, and (a, b) is (-a, -b); the twin's prior says which."""
    noise = float(np.exp(rng.uniform(np.log(0.03), np.log(0.3))))
    center, sd = (0.0, float(rng.uniform(1.5, 3.5))) if deceit else (1.0, 0.25)
    # given a, b is normal; the law of a by quadrature, fine around 0
    a = np.sinh(np.linspace(-1, 1, 200_001) * np.arcsinh(abs(center) + 8 * sd))
    variance = noise**2 + (sd * a) ** 2
    log = -0.5 * ((1 - a * center) ** 2 / variance + np.log(variance) + ((a - center) / sd) ** 2)
    weight = np.exp(log - log.max()) * np.gradient(a)
    weight /= weight.sum()
    mean = weight @ a
    own = np.sqrt(weight @ (a - mean) ** 2)
    init = {name: jnp.float32(rng.uniform(0.8, 1.2)) for name in ("gain", "signal")}
    label = f"noise {noise:.2g}, prior sd {sd:.2g}"
    posterior = sgld.Posterior(bound(product_density, center, sd, noise))
    return Case(label, posterior, None, init, np.full(2, mean), np.full(2, own))
