"""Mass where the Gaussian at the mode shows none: halos, feet, shoulders, heavy tails."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import sgld

from .case import Case, bound, moments, normal_mixture
from .modes import normals


def halo(rng: np.random.Generator, deceit: bool) -> Case:
    """A share of a normal law five to thirty times as wide, in 1 to 10 dimensions."""
    d, w = int(rng.choice([1, 3, 10])), float(np.exp(rng.uniform(np.log(0.005), np.log(0.1))))
    wide = float(np.exp(rng.uniform(np.log(5), np.log(30)))) if deceit else 1.0
    center, sd = np.zeros((2, d)), np.array([1.0, wide])
    return normals(
        f"d={d}, {100 * w:.2g}% {wide:.2g} times as wide", [1 - w, w], center, sd, np.full(d, 0.2)
    )


def part_halo(rng: np.random.Generator, deceit: bool) -> Case:
    """A halo in some of the parameters: none of the axes, nor a direction at random, leads into it."""
    d = int(rng.choice([4, 10]))
    k, w = int(rng.integers(2, d)), float(rng.uniform(0.01, 0.1))
    wide = float(rng.uniform(6, 15))
    spread = np.where(np.arange(d) < k, wide if deceit else 1.0, 1.0)
    sd = np.stack([np.ones(d), spread])
    mean, own = normal_mixture(np.array([1 - w, w]), np.zeros((2, d)), sd**2)
    posterior = sgld.Posterior(bound(two_widths, np.log1p(-w), np.log(w), spread))
    label = f"{100 * w:.2g}% {wide:.2g} times as wide in {k} of {d}"
    return Case(label, posterior, None, jnp.full(d, 0.2, jnp.float32), mean, own)


def two_widths(log_rest, log_share, spread, x):
    """(1 - w) N(0, I) + w N(0, spread^2)."""
    far = log_share - jnp.sum(jnp.log(spread)) - 0.5 * jnp.sum((x / spread) ** 2)
    return jnp.logaddexp(log_rest - 0.5 * jnp.sum(x**2), far)


def stepped(rng: np.random.Generator, deceit: bool) -> Case:
    """Rows whose probability steps up some sds out, by as much as the prior falls there, or nearly."""
    d, c, slope = int(rng.choice([1, 3])), float(rng.uniform(4, 8)), float(rng.uniform(5, 30))
    low, gain = float(rng.uniform(0.1, 0.4)), float(rng.uniform(-1, 3))
    count = max(2, round((c**2 / 2 + gain) / -np.log(low / 0.95)))
    slope = slope if deceit else 0.0
    x = np.linspace(-12, 20, 800_001)
    step = 1 / (1 + np.exp(-np.clip(slope * (x - c), -80, 80)))
    mean, sd = moments(x, -0.5 * x**2 + count * np.log(low + (0.95 - low) * step))
    means, sds = np.append(mean, np.zeros(d - 1)), np.append(sd, np.ones(d - 1))
    posterior = sgld.Posterior(bound(normal_prior, 1.0), bound(stepped_row, c, slope, low))
    label = f"d={d}, {count} rows from {low:.2g} at {c:.2g} sds, slope {slope:.2g}"
    return Case(label, posterior, np.ones(count, np.float32), jnp.zeros(d), means, sds)


def normal_prior(sd, x):
    return -0.5 * jnp.sum((x / sd) ** 2)


def stepped_row(c, slope, low, x, row):
    return row * jnp.log(low + (0.95 - low) * jax.nn.sigmoid(slope * (x[0] - c)))


def foot(rng: np.random.Generator, deceit: bool) -> Case:
    """A peak off the middle of a foot that holds most of the mass, or a good part of it."""
    d, w = int(rng.choice([1, 2])), float(rng.uniform(0.05, 0.9))
    wide = float(np.exp(rng.uniform(np.log(15), np.log(200)))) if deceit else 1.0
    away = wide * rng.uniform(-1, 1, d) * (1.0 if deceit else 0.0)
    center = np.stack([np.zeros(d), away])
    label = f"d={d}, {100 * w:.2g}% in a foot of {wide:.3g} sds, {np.linalg.norm(away):.3g} sds off"
    return normals(label, [1 - w, w], center, np.array([1.0, wide]), np.full(d, 0.2))


def flat(log_rest, log_share, length, x, np_=jnp):
    """(1 - w) N(0, 1) + w on -length to length, with edges an sd wide; the other coordinates N(0, 1)."""
    edges = np_.logaddexp(0.0, x[0] - length) + np_.logaddexp(0.0, -x[0] - length)
    tail = log_share - np_.log(2 * length) - edges
    peak = log_rest - 0.5 * x[0] ** 2 - 0.5 * np.log(2 * np.pi)
    return np_.logaddexp(peak, tail) - 0.5 * np_.sum(x[1:] ** 2, axis=0)


def flat_foot(rng: np.random.Generator, deceit: bool) -> Case:
    """A peak on a foot without any slope, 10 to 3000 sds wide."""
    d, w = int(rng.choice([1, 3])), float(np.exp(rng.uniform(np.log(0.003), np.log(0.9))))
    length = float(np.exp(rng.uniform(np.log(10), np.log(3000)))) if deceit else 1.0
    x = np.linspace(-length - 40, length + 40, 800_001)
    numbers = np.log1p(-w), np.log(w), length
    found = moments(x, flat(*numbers, x[None], np))
    posterior = sgld.Posterior(bound(flat, *numbers))
    mean, sd = np.zeros(d), np.array([found[1], *np.ones(d - 1)])
    label = f"d={d}, {100 * w:.2g}% within {length:.3g} sds"
    return Case(label, posterior, None, jnp.full(d, 0.2), mean, sd)


def location_prior(sd, m):
    return -0.5 * (m / sd) ** 2


def contaminated_row(log_share, wide, m, y):
    bad = log_share - jnp.log(wide) - 0.5 * ((y - m) / wide) ** 2
    return jnp.logaddexp(jnp.log1p(-jnp.exp(log_share)) - 0.5 * (y - m) ** 2, bad)


def contaminated(rng: np.random.Generator, deceit: bool) -> Case:
    """A location from a few numbers, any of which may be an outlier; of the twin none may."""
    count, wide = 5, float(np.exp(rng.uniform(np.log(10), np.log(300))))
    share, outliers = (
        float(np.exp(rng.uniform(np.log(0.001), np.log(0.2)))),
        int(rng.integers(1, 4)),
    )
    y = rng.standard_normal(count)
    if deceit:
        y[:outliers] += wide * rng.standard_normal(outliers)
    y = y.astype(np.float32)
    log_share = np.log(share) if deceit else -60.0
    prior = 3 * wide
    x = np.unique(np.concatenate([np.linspace(-6 * prior, 6 * prior, 100_001), *(
        v + np.linspace(-9, 9, 4001) for v in y.astype(float)
    )]))  # fmt: skip
    log = -0.5 * (x / prior) ** 2
    for v in y.astype(float):
        bad = log_share - np.log(wide) - 0.5 * ((v - x) / wide) ** 2
        log = log + np.logaddexp(np.log1p(-np.exp(log_share)) - 0.5 * (v - x) ** 2, bad)
    mean, sd = moments(x, log)
    posterior = sgld.Posterior(
        bound(location_prior, prior), bound(contaminated_row, log_share, wide)
    )
    label = f"{outliers} of {count} off by {wide:.3g} sds, share {share:.2g}"
    return Case(
        label, posterior, y, jnp.asarray(0.5, jnp.float32), np.array([mean]), np.array([sd])
    )


def shoulders(log_rest, log_share, length, x, np_=jnp):
    """(1 - w) N(0, 1) + w Exponential(length), smooth at 0; the other coordinates N(0, 1)."""
    smooth = np_.logaddexp(0.0, -4 * x[0])
    tail = log_share - np_.log(length) - x[0] / length - smooth
    peak = log_rest - 0.5 * x[0] ** 2 - 0.5 * np.log(2 * np.pi)
    return np_.logaddexp(peak, tail) - 0.5 * np_.sum(x[1:] ** 2, axis=0)


def shoulder(rng: np.random.Generator, deceit: bool) -> Case:
    d, w = int(rng.choice([1, 4])), float(np.exp(rng.uniform(np.log(0.01), np.log(0.2))))
    length = float(np.exp(rng.uniform(np.log(8), np.log(100)))) if deceit else 0.5
    x = np.concatenate(
        [np.linspace(-12, 12, 40_001), np.geomspace(12, 60 * max(length, 1), 40_001)[1:]]
    )
    numbers = np.log1p(-w), np.log(w), length
    found = moments(x, shoulders(*numbers, x[None], np))
    posterior = sgld.Posterior(bound(shoulders, *numbers))
    mean, sd = np.array([found[0], *np.zeros(d - 1)]), np.array([found[1], *np.ones(d - 1)])
    return Case(
        f"d={d}, {100 * w:.2g}% of length {length:.3g}", posterior, None, jnp.full(d, 0.2), mean, sd
    )


def student(df, x):
    return -0.5 * (df + 1) * jnp.sum(jnp.log1p(x**2 / df))


def spherical_student(df, x):
    return -0.5 * (df + x.size) * jnp.log1p(jnp.sum(x**2) / df)


def heavy_tails(rng: np.random.Generator, deceit: bool) -> Case:
    """Student-t of 2.2 to 5 degrees, independent or spherical, at defaults or with a step by hand."""
    d, df = int(rng.choice([1, 4])), float(rng.uniform(2.2, 5))
    df, together = (df if deceit else 40.0), rng.random() < 0.5
    how, draw = rng.random(), float(rng.uniform(0.1, 0.9))
    sd = np.full(d, np.sqrt(df / (df - 2)))
    posterior = sgld.Posterior(bound(spherical_student if together else student, df))
    label, options = f"d={d}, {df:.2g} degrees{', spherical' if together else ''}", {}
    if how > 0.5:
        h = 0.3 + draw if deceit else 0.05
        options = {
            "step_size": h, "num_draws": 5000, "thin": max(2, round(1.3 / h)), "burn_in": round(60 / h),
            "preconditioner": sgld.Scalar(1.0), "gradient": sgld.Full(), "sampler": sgld.SGLD(None),
        }  # fmt: skip
        if how > 0.75 and deceit:  # noise taken away: too narrow
            options["sampler"] = sgld.SGLD(jnp.full(d, 0.4 * draw * (2 - h) / h))
        label += f", step {h:.2g}{' and too little noise' if how > 0.75 and deceit else ''}"
    return Case(label, posterior, None, jnp.zeros(d), np.zeros(d), sd, options)


def halved(rng: np.random.Generator, deceit: bool) -> Case:
    """Tails that half the step does not see: a halo or a Student-t, confirmed by `step_halving`."""
    d = 2
    options = {
        "step_size": 0.1,
        "num_draws": 2000,
        "thin": 20,
        "burn_in": 300,
        "preconditioner": sgld.Scalar(1.0),
    }
    if rng.random() < 0.5:
        w, wide = float(rng.uniform(0.005, 0.05)), float(rng.uniform(6, 25)) if deceit else 1.0
        center, sd = np.zeros((2, d)), np.array([1.0, wide])
        case = normals(
            f"halo, {100 * w:.2g}% {wide:.2g} times as wide", [1 - w, w], center, sd, np.zeros(d)
        )
    else:
        df = float(rng.uniform(2.2, 4)) if deceit else 40.0
        posterior = sgld.Posterior(bound(student, df))
        sd = np.full(d, np.sqrt(df / (df - 2)))
        case = Case(f"Student-t, {df:.2g} degrees", posterior, None, jnp.zeros(d), np.zeros(d), sd)
    return case._replace(options=options, halved=True)
