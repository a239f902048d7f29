"""X11: why latent volatilities need parameters: Var(s_i) = i sigma^2 without them."""

from __future__ import annotations

import jax
import numpy as np
from scipy import stats

import sgld
from sgld.gallery import Check, Entry, Section
from sgld.gallery.page import COLOURS, Panel
from sgld.interfaces.report.figures import WIDE_WIDTH

TITLE = "Why latent volatilities need parameters of their own"
SIGMA, DAYS = 0.1, 2905  # sigma as in X5's posterior, and as many days as its returns
AT = np.append(np.arange(0, DAYS, 5), DAYS)
SHOWN_DAYS = (100, 400, 1600, DAYS)


def run(quick: bool = False, seed: int = 0) -> Entry:
    """Simulate the walk that X5's model puts before its volatilities; its band in closed form."""
    paths = 4_000 if quick else 40_000
    motion = sgld.diffusion.brownian_motion(AT, key=jax.random.key(seed), num_paths=paths)
    s = SIGMA * np.asarray(motion, np.float64)
    limit = 4.5 * np.sqrt(2 / paths)  # the relative sd of a variance from so many paths
    checks = [
        Check.in_ratio(f"Var(s) at day {day}", day * SIGMA**2, s[:, day == AT].var(), limit)
        for day in SHOWN_DAYS
    ]
    early, late = s[:, AT == 400].ravel(), s[:, AT == 1600].ravel()
    correlation = np.corrcoef(early, late)[0, 1]
    checks.append(
        Check.in_value("correlation of days 400 and 1600", 0.5, correlation, 3.4 / np.sqrt(paths))
    )
    inside = np.mean(np.abs(s[:, -1]) < stats.norm.ppf(0.95) * SIGMA * np.sqrt(DAYS))
    checks.append(
        Check.in_value("share of paths inside the 90% band on the last day", 0.9, inside,
                       4.5 * np.sqrt(0.09 / paths))
    )  # fmt: skip
    sd, times = SIGMA * np.sqrt(DAYS), np.exp(2 * 1.645 * SIGMA * np.sqrt(DAYS))
    return Entry(
        TITLE,
        "Drawn from its prior alone, a log volatility wanders off as a random walk does. Only "
        "parameters per day, moved by the data, can hold it near the volatilities that were.",
        (
            Section(
                "The walk",
                (
                    "The stochastic volatility model of X5 has log volatilities s_i ~ N(s_{i−1}, "
                    "σ²). If a sampler draws them afresh from this law at every step, from s_0 on, "
                    "then s_i is s_0 plus i independent steps, and Var(s_i) = i σ².",
                    f"With σ = {SIGMA} the sd after {DAYS} days is {sd:.2f}: the 90% band of the "
                    f"volatility exp(s) spans a factor of {times:,.0f}. The returns can move nothing "
                    "but σ and ν: no path stays where they want it, because nothing remembers it.",
                    "The thin lines of the first figure are twelve single paths; the shaded band "
                    "holds the middle 90% of all simulated paths on each day.",
                    "The remedy is a parameter per day. The document takes s_i = s_{i−1} + μ_i + σ ε "
                    "and samples the μ_i: the mean of s then follows the returns. Its spread around "
                    "that mean is still i σ², which only a small σ makes harmless: X5 shows what "
                    "comes of it, next to a sampler whose positions hold the s_i themselves.",
                ),
                (_band(s, paths), _variance(s)),
                (("chain-0", "simulated"), ("contrast", "closed form, i σ²")),
            ),
        ),
        tuple(checks),
    )


def _band(s: np.ndarray, paths: int) -> Panel:
    """Plot some paths, the simulated 90% band (shaded), and the exact one."""
    panel = Panel(f"s, 90% band of {paths:,} paths", 210, width=WIDE_WIDTH, xlabel="day")
    low, high = np.quantile(s, [0.05, 0.95], axis=0)
    panel.axes.fill_between(AT, low, high, color=COLOURS["accent-soft"], linewidth=0)
    panel.axes.plot(AT, s[:12].T, color=COLOURS["chain-0"], linewidth=0.5, alpha=0.8)
    edge = stats.norm.ppf(0.95) * SIGMA * np.sqrt(AT)
    for side in (-edge, edge):
        panel.axes.plot(AT, side, color=COLOURS["contrast"], linewidth=1.4)
    panel.axes.set_xlim(0, DAYS)
    panel.ticks("x")
    panel.ticks("y")
    return panel


def _variance(s: np.ndarray) -> Panel:
    """Plot the simulated variance over the exact straight line."""
    panel = Panel("Var(s)", 210, width=WIDE_WIDTH, xlabel="day")
    panel.axes.plot(AT, s.var(0), color=COLOURS["chain-0"], linewidth=2.2)
    panel.axes.plot(AT, AT * SIGMA**2, color=COLOURS["contrast"], linewidth=1.2)
    panel.axes.set(xlim=(0, DAYS), ylim=(0, None))
    panel.ticks("x")
    panel.ticks("y")
    return panel
