"""X5's text and figures."""

from __future__ import annotations

from typing import Any

import numpy as np

import sgld
from sgld.gallery import Section
from sgld.gallery.data import columns
from sgld.gallery.draw import COLOURS, WIDE, Panel, lines, log_axis
from sgld.gallery.x5_hybrid import UNDER

YEAR = np.array([int(day[:4]) + (int(day[5:7]) - 1) / 12 + int(day[8:]) / 366
                 for day in columns("sp500_close")["date"]])  # fmt: skip
KEY = (("accent-soft", "90% band"), ("accent", "median"), ("contrast", "median of NUTS"))


def band(title: str, days: np.ndarray, quantiles: Any, exact: Any = None) -> Panel:
    """A 90% band of the volatility exp(s), with its median, and NUTS's median."""
    panel, (low, middle, high) = Panel(title, 200, width=WIDE), quantiles
    panel.axes.fill_between(YEAR[days], low, high, color=COLOURS["accent-soft"], linewidth=0)
    panel.axes.plot(YEAR[days], middle, color=COLOURS["accent"], linewidth=1)
    if exact is not None:
        panel.axes.plot(YEAR[days], exact, color=COLOURS["contrast"], linewidth=0.9)
    panel.axes.set_xlim(2008, 2020)
    panel.ticks("x", 6)
    if np.max(high) > 0.07:  # the hybrid's, which rises by orders of magnitude
        log_axis(panel, "y")
    else:
        panel.axes.set_ylim(0, 0.07)
        panel.ticks("y")
    return panel


def volatility(title: str, nuts: Any, s: np.ndarray) -> Panel:
    """The band of draws s [chain, draw, day] beside NUTS's median."""
    quantiles = np.exp(np.quantile(s.astype(float), [0.05, 0.5, 0.95], axis=(0, 1)))
    return band(title, np.array(nuts["days"]), quantiles, nuts["q50"])


def model(nuts: Any, full: sgld.Draws, vi: sgld.Draws) -> Section:
    """The model, NUTS's answer, and the laws of sigma and nu by all three."""
    styles = [{"color": COLOURS[c], "linewidth": 1.5} for c in ("contrast", "accent", "chain-2")]
    p = np.arange(1, 100) / 100
    laws = [
        lines(f"{sign}: distribution function", [
            ("NUTS", nuts[name]["quantiles"], p),
            ("BAOA", np.quantile(full.position[name], p), p),
            ("hybrid", np.quantile(vi.position[name], p), p),
        ], styles=styles, ylim=(0, 1), width=WIDE, height=200) for name, sign in (("sigma", "σ"), ("nu", "ν"))
    ]  # fmt: skip
    quantiles = [nuts[q] for q in ("q05", "q50", "q95")]
    return Section("Model and NUTS", (
        "2,905 daily log returns, May 2008 to November 2019: r_i ~ StudentT(ν, 0, exp(s_i)), s_i ~ N(s_{i−1}, "
        "σ²), s_0 ~ N(0, 100²), σ ~ Exp(10), ν ~ Exp(.1). In the document exp(−2s) is a precision and exp(s) a "
        "scale; σ near .1 and ν near 10 are posterior values themselves, not inverses of such.",
        "The latents enter as standardised cosine coefficients. The cosines make the walk's increments "
        "independent; each coefficient is divided by (1/σ² × its prior curvature + 1.5)^{−1/2}, about its "
        "posterior sd: smooth waves, which the returns determine, keep their scale, and rough ones, which only "
        "the prior knows, scale with σ. It is a change of coordinates: its Jacobian is in the density.",
        f"NUTS, stored: {nuts['settings']['num_chains']} chains of {nuts['settings']['num_draws']:,} draws, "
        f"{nuts['num_gradients']:,} gradients, {nuts['seconds']} s. σ is {nuts['sigma']['mean']:.4f} ± "
        f"{nuts['sigma']['sd']:.4f} with an ESS of {nuts['sigma']['ess']:,}, ν {nuts['nu']['mean']:.1f} ± "
        f"{nuts['nu']['sd']:.1f}. Volatility peaks in autumn 2008, where the band is widest too.",
    ), (band("Volatility exp(s), NUTS", np.array(nuts["days"]), quantiles), *laws), KEY[:2])  # fmt: skip


def printed_section(
    nuts: Any, vi: sgld.Draws, s: np.ndarray, replicates: int, steps: int
) -> Section:
    """The hybrid."""
    sigma = np.asarray(vi.position["sigma"])[0]
    return Section("As printed: SGLD with reparameterised latents", (
        "The document samples σ, ν, s_0 and μ_i, with s_i = s_{i−1} + μ_i + σ ε_i drawn afresh: for given "
        "parameters the ELBO of a walk with steps N(μ_i, σ²). Its notebook left out log p(s_i | s_{i−1}, σ) and "
        "the prior of s_0, and divided the other priors by the replicates, so its σ = .0256 is no target. Here "
        "the ELBO is whole: E_q[log p − log q] = −Σ μ_{i}² / (2σ²). RMSprop as preconditioner, ε = 2h = .001 for "
        f"a burn-in of 500, then polynomial decay (γ = .55) to a tenth over {steps:,} steps, {replicates} "
        "replicates a step.",
        f"σ falls from {sigma[0]:.3f} to {sigma[-1]:.3f} during the run and has not arrived: the document's "
        f"“σ continually shrinking”. {UNDER} Each step costs {replicates} gradients of the whole series, "
        f"{replicates * (steps + 500):,} in all.",
    ), (volatility("Volatility exp(E s), hybrid", nuts, s),
        lines("σ along the run", [("", vi.step, sigma)], styles=[{"color": COLOURS["accent"]}],
              level=nuts["sigma"]["mean"], xlabel="step", width=WIDE, height=200)), KEY)  # fmt: skip


def whole_section(nuts: Any, full: sgld.Draws, s: np.ndarray) -> Section:
    """All latents sampled."""
    rows = full.summary().to_dict()["parameters"]
    gradients = full.num_chains * full.info["num_steps"]
    return Section("All latents as parameters", (
        "The document found no way to sample s_i, σ and ν together, because s_i “loses its dependence on σ”. It "
        "need not: log p(s | σ) is part of the density, and its gradient couples them. What hurts is the scale: "
        "smooth and rough waves of s differ by thousands in curvature. In the coordinates above D is nearly the "
        "identity (.1² for log σ, .25² for log ν), and h = .1 serves all 2,908 directions.",
        f"BAOA, a momentum sampler without bias on Gaussians: {full.num_chains} chains of "
        f"{full.info['num_steps']:,} steps, {gradients:,} gradients of the whole series; ESS of σ "
        f"{rows['sigma']['ess_bulk']:.0f}, of ν {rows['nu']['ess_bulk']:.0f}. Its σ is "
        f"{rows['sigma']['mean']:.4f} ± {rows['sigma']['sd']:.4f}, its ν {rows['nu']['mean']:.1f} ± "
        f"{rows['nu']['sd']:.1f}. Per thousand gradients: {1e3 * rows['sigma']['ess_bulk'] / gradients:.0f} "
        f"effective draws of σ, NUTS {1e3 * nuts['sigma']['ess'] / nuts['num_gradients']:.0f}.",
        f"Its verdict: {full.verdict.word}; {'; '.join(full.verdict.reasons)}",
    ), (volatility("Volatility exp(s), BAOA", nuts, s),), KEY)  # fmt: skip
