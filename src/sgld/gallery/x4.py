"""X4: Keng's tied-means mixture by grid, NUTS, SGD, SGLD with decaying steps, and replica exchange."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.stats import norm
from scipy.ndimage import gaussian_filter

import sgld
from sgld.gallery import Check, Entry, Section
from sgld.gallery.make import columns
from sgld.gallery.page import COLOURS, Panel, histogram, lines

# -- x4 model ------------------------------------------------------------------------------


DATA = columns("tied_means_mixture")["x"]
MODES = ((-0.25118, 1.54618), (1.28627, -1.53668))
PRINTED_END = np.array([-0.2327, 1.5129])  # of the document's SGD
AXES = np.linspace(-2.5, 3.5, 601), np.linspace(-5.5, 5.5, 801)


def log_prior(t):
    """Return the log density of t1 ~ N(0, 10), t2 ~ N(0, 1), given as variances."""
    return norm.logpdf(t, 0.0, jnp.asarray([10**0.5, 1.0], jnp.float32)).sum()


def log_likelihood(t, x):
    """Log of .5 N(x | t1, 2) + .5 N(x | t1 + t2, 2): a logsumexp."""
    first, second = (norm.logpdf(x, m, jnp.float32(2**0.5)) for m in (t[0], t[0] + t[1]))
    return jnp.logaddexp(first, second) - jnp.log(jnp.float32(2))


def exact() -> tuple[np.ndarray, dict[str, float]]:
    """Return the normalised density on the grid of AXES with its modes, moments and shares."""
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
    """Return the weighted share P(t2 > 0) of each chain."""
    weight = np.exp(draws.log_weight)
    return (weight * (np.asarray(draws.position)[..., 1] > 0)).sum(1) / weight.sum(1)


# -- x4 page -------------------------------------------------------------------------------


STUCK = (
    "Steps that fall to .00005 cannot cross between the modes any more: what one chain reports is "
    "how its time, weighted by the steps, happened to be shared, not the posterior's weights."
)
EXACT = ("contrast", "exact, on a grid")
X4_KEY = (("accent", "draws"), EXACT)


def plane(title: str, density: np.ndarray, draws: Any = None, weights: Any = None) -> Panel:
    """Plot level lines of the exact density, with draws [n, 2] as shaded levels."""
    panel = Panel(title, 190, xlabel="θ₁", ylabel="θ₂")
    levels = density.max() * np.array([0.05, 0.2, 0.4, 0.6, 0.8])
    if draws is not None:
        spans = [(axis[0], axis[-1]) for axis in AXES]
        found, x, y = np.histogram2d(
            draws[:, 0], draws[:, 1], [60, 80], spans, density=True, weights=weights
        )
        middles = (x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2
        smooth = gaussian_filter(found, 1.0).T
        for level in levels:  # one colour, darker where denser
            panel.axes.contourf(*middles, smooth, [level, 1e9], colors=COLOURS["accent"], alpha=0.2)
    panel.axes.contour(*(a[::5] for a in AXES), density[::5, ::5].T, levels,
                       colors=COLOURS["contrast"], linewidths=0.9)  # fmt: skip
    panel.axes.set(xlim=(-1.8, 2.8), ylim=(-4.2, 4.2))
    panel.ticks("x")
    panel.ticks("y")
    return panel


def descent(density: np.ndarray, truth: dict[str, float], path: np.ndarray, off: Any) -> Section:
    """Plot the data, the posterior, and gradient descent's `path` with the printed end."""
    likelihood = [lambda x, t=t: np.exp([log_likelihood(jnp.float32(t), jnp.float32(v)) for v in x])
                  for t in MODES]  # fmt: skip
    panel = plane("SGD's path, and where it stopped", density)
    panel.axes.plot(*path[::20].T, color=COLOURS["accent"], linewidth=1.4)
    panel.axes.plot(*PRINTED_END, "x", color=COLOURS["ink"], markersize=8, markeredgewidth=1.6)
    return Section("Data, posterior and SGD", (
        "100 numbers from .5 N(0, 2.56) + .5 N(1, 2.56), modelled as .5 N(θ₁, 2) + .5 N(θ₁ + θ₂, 2) "
        "with θ₁ ~ N(0, 10) and θ₂ ~ N(0, 1). The likelihood does not change under (θ₁, θ₂) → "
        "(θ₁ + θ₂, −θ₂), which exchanges the two parts; only the priors tell the modes apart. The two "
        "fitted densities over the data all but coincide.",
        f"In two dimensions a grid gives everything: P(θ₂ > 0) = {truth['up']:.4f}, log evidence "
        f"{truth['z']:.5f}. The document reads its posterior as too few data for the peak at (0, 1).",
        "Its SGD (batch 100, that is all rows; rate .01; 300 epochs; start (1, 1)) ended at "
        f"(−.2327, 1.5129), “pretty much our first mode”. That point (cross) lies within {off.min():.1g} of "
        f"the path of gradient descent, at time {1e-4 * off.argmin():.2f} in units of step size × steps, "
        f"but {np.linalg.norm(PRINTED_END - MODES[0]):.3f} from the mode: its rate was too small for its "
        "epochs. With h = .01 on the gradient of the whole posterior 300 steps arrive.",
    ), (histogram("The data, and both modes' densities", DATA, likelihood, bins=20, height=190),
        panel), (EXACT,))  # fmt: skip


def decaying(
    density: np.ndarray, truth: dict[str, float], nuts: sgld.Draws, found: dict[int, sgld.Draws],
    updates: int,
) -> Section:  # fmt: skip
    """Plot NUTS, and for each batch size of SGLD the least accurate chain."""
    shares = {m: ", ".join(f"{p:.2f}" for p in share(draws)) for m, draws in found.items()}
    worst = [(m, d, int(np.argmax(np.abs(share(d) - truth["up"])))) for m, d in found.items()]
    kept = found[100]
    traces = [(f"chain {c + 1}", kept.step[::25], kept.position[c, ::25, 1]) for c in range(4)]
    colours = [{"color": COLOURS[f"chain-{c}"], "linewidth": 0.8} for c in range(4)]
    return Section("NUTS, and SGLD as printed", (
        f"NUTS crosses between the modes; its four chains say P(θ₂ > 0) = {share(nuts).mean():.3f}.",
        f"SGLD with h from .005 to .00005 (γ = .55) over {updates:,} updates, averages weighted by the "
        "steps. The document gives .01 and .0001 as “a” and “b”; they are the first and the last ε = 2h "
        "of a (b + t)^{−γ}. It saw one run per batch size, and batch sizes that “prefer” a mode. "
        f"Four chains each show what that is: P(θ₂ > 0) = {shares[1]} at m = 1, {shares[10]} at "
        f"m = 10, {shares[100]} at m = 100, where {truth['up']:.3f} is right. The batch size hardly "
        f"matters (the runs share their injected noise); the chain does; the farthest from "
        f"right is drawn. {STUCK} The document's reading, right shape and wrong weights, is fair.",
    ), (plane("NUTS", density, flat(nuts)), *(
        plane(f"SGLD, m = {m}, chain {c + 1}", density, np.asarray(d.position[c], float),
              np.exp(d.log_weight[c])) for m, d, c in worst),
        lines("θ₂ of four chains, m = 100", traces, styles=colours, xlabel="update",
              legend=None, height=190)), X4_KEY)  # fmt: skip


def exchange(density: np.ndarray, swaps: sgld.Draws, h: float) -> Section:
    """Plot replica exchange."""
    return Section("The same model, well sampled", (
        "Replica exchange: with each chain at T = 1 run two at T = 3 and T = 9, where the valley between "
        "the modes is shallow, and neighbours exchange positions by Metropolis's rule. Energies must be "
        f"exact for that, so gradients are of all 100 rows. {swaps.num_chains} such chains of "
        f"{swaps.info['num_steps']:,} steps with h = {h} say P(θ₂ > 0) = {share(swaps).mean():.4f}.",
        "A constant step widens a direction of curvature λ by about hλ/4 of its sd: here 6% across each "
        "mode (λ = 50), .5% along it (λ = 4).",
    ), (plane("Replica exchange", density, flat(swaps)),), X4_KEY)  # fmt: skip


def flat(draws: sgld.Draws) -> np.ndarray:
    """Return the draws of all chains, [n, 2]."""
    return np.asarray(draws.position, float).reshape(-1, 2)


# -- x4 ------------------------------------------------------------------------------------


TITLE = "A mixture with tied means: two modes, and samplers that see one"
LEAD = (
    "Each mode holds half of the posterior. SGLD with decaying steps ends up reporting whichever "
    "share it happened to see; chains that exchange states with hotter ones report the right one."
)
STALLED = "The document's SGD had stalled: it stopped on its way to the mode."
STATED = (
    ("mean of θ₁", "m1", 0.48999), ("mean of θ₂", "m2", 0.05930), ("sd of θ₁", "sd1", 0.7695),
    ("sd of θ₂", "sd2", 1.5097), ("P(θ₂ > 0)", "up", 0.5185), ("log Z", "z", -198.74766),
)  # fmt: skip
H = 0.005  # of replica exchange
OPTIONS: dict[str, Any] = {"progress": False}


def run(quick: bool = False, seed: int = 0) -> Entry:
    """Compare grid, SGD's path, NUTS, SGLD as printed, and replica exchange."""
    density, truth = exact()
    posterior = sgld.Posterior(log_prior, log_likelihood)
    data, start = DATA.astype(np.float32), jnp.ones(2, jnp.float32)

    def descend(h: float, steps: int) -> sgld.Mode:
        return sgld.find_map(
            posterior, data, start, optimizer=optax.sgd(h), num_steps=steps, record=1
        )

    sgd, slow = descend(0.01, 300), descend(1e-4, 12_000)
    path = np.asarray(slow.path)
    off = np.linalg.norm(path - PRINTED_END, axis=1)
    nuts = sgld.reference(posterior, data, start, num_warmup=1000 if quick else 2000,
                          num_draws=2500 if quick else 5000, seed=seed, **OPTIONS)  # fmt: skip
    updates, found = 100_000 if quick else 1_000_000, {}
    for m in (1, 10, 100):
        found[m] = sgld.sample(
            posterior, data, start, sampler=sgld.SGLD(None), batch_size=m, burn_in=0,
            gradient=sgld.Full() if m == 100 else sgld.Minibatch(), num_chains=4, seed=seed,
            step_size=sgld.polynomial_between(0.005, 0.00005, updates, 0.55),
            thin=updates // 10_000, num_draws=10_000, **OPTIONS,
        )  # fmt: skip
    swaps = sgld.sample(
        posterior, data, start, sampler=sgld.ReplicaExchange((1.0, 3.0, 9.0)), gradient=sgld.Full(),
        step_size=H, num_chains=64, burn_in=2000, thin=20, num_draws=800 if quick else 4000,
        seed=seed, **OPTIONS,
    )  # fmt: skip
    sections = (
        descent(density, truth, path, off),
        decaying(density, truth, nuts, found, updates),
        exchange(density, swaps, H),
    )
    checks = (*of_descent(truth, sgd.position, off), *of_draws(truth, nuts, found, swaps))
    return Entry(TITLE, LEAD, sections, checks)


def of_descent(truth: dict[str, float], end: Any, off: np.ndarray) -> list[Check]:
    """Check the grid's own numbers, to the printed digits, and the end of gradient descent."""
    checks = [Check.in_value(f"grid: {name}", stated, truth[key], 1e-4)
              for name, key, stated in STATED]  # fmt: skip
    for i, name in enumerate(("θ₁", "θ₂")):
        checks += [
            Check.in_value(f"SGD, h = .01, 300 epochs: {name}", MODES[0][i], end[i], 0.001),
            Check.in_value(f"SGD, end as printed: {name}", MODES[0][i], PRINTED_END[i], 0.001, STALLED),
        ]  # fmt: skip
    return [*checks, Check.in_value("printed end: distance to SGD's path", 0, off.min(), 0.001)]


def of_draws(truth: dict[str, float], nuts: sgld.Draws, found: dict[int, sgld.Draws],
             swaps: sgld.Draws) -> list[Check]:  # fmt: skip
    """Check the shares of the modes, and the moments of replica exchange."""
    checks = [Check.in_value("NUTS: P(θ₂ > 0)", truth["up"], share(nuts).mean(), 0.1)]
    for m, draws in found.items():
        worst = max(share(draws), key=lambda p: abs(p - truth["up"]))
        name = f"SGLD, m = {m}: P(θ₂ > 0), farthest chain"
        checks.append(Check.in_value(name, truth["up"], worst, 0.03, STUCK))
    for name, i in (("θ₁", "1"), ("θ₂", "2")):
        x = np.asarray(swaps.position, float)[..., int(i) - 1]
        sd = truth["sd" + i]
        checks += [
            Check.in_sd(f"exchange: mean of {name}", truth["m" + i], x.mean(), sd, 0.06),
            Check.in_ratio(f"exchange: sd of {name}", sd, x.std(), 0.05),
        ]
    return [*checks, Check.in_value("exchange: P(θ₂ > 0)", truth["up"], share(swaps).mean(), 0.03)]
