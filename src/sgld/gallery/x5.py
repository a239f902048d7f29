"""X5: stochastic volatility of the S&P 500.

The document replaces the latents of SGLD by a Gaussian walk (`hybrid`); this entry also samples the
whole posterior (`sample_latents`), and compares both with long NUTS.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

import sgld
from sgld.errors import need
from sgld.gallery import Check, Entry, Section
from sgld.gallery.make import columns
from sgld.gallery.page import COLOURS, Panel, lines, log_axis
from sgld.interfaces.report.figures import WIDE_WIDTH

# -- x5 model ------------------------------------------------------------------------------


RETURNS = np.diff(np.log(columns("sp500_close")["close"]))  # r_1 ... r_2905
DAYS = len(RETURNS) + 1  # the latents s_0 ... s_2905
INFORMATION = 1.5  # of one return about its s_i: 2 nu / (nu + 3), near enough
DAYS_BETWEEN_SHOWN = 5  # days between those that are drawn and stored
WAVES = 4 * np.sin(np.pi * np.arange(DAYS) / (2 * DAYS)) ** 2  # of s_i - s_{i-1}, per cosine


def log_student_t(r, nu, s):
    """Return log StudentT(r | nu, 0, exp(s))."""
    z2 = (r * jnp.exp(-s)) ** 2
    constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu * jnp.float32(np.pi))
    return constant - s - (nu + 1) / 2 * jnp.log1p(z2 / nu)


def scales(sigma):
    """Return approximate posterior sds of the cosine coefficients of s, given sigma."""
    return sigma / jnp.sqrt(jnp.asarray(WAVES, jnp.float32) + INFORMATION * sigma**2)


def latents(p: Any) -> Any:
    """Map standardised cosine coefficients to s_0 ... s_n by an orthonormal change of coordinates."""
    return jax.scipy.fft.idct(p["z"] * scales(p["sigma"]), norm="ortho")


def log_density(p):
    """Return the model's log density of (z, sigma, nu), with the Jacobian of s -> z."""
    sigma, s = p["sigma"], latents(p)
    walk = -0.5 * jnp.sum((jnp.diff(s) / sigma) ** 2) - (DAYS - 1) * jnp.log(sigma)
    priors = -0.5 * (s[0] / 100) ** 2 - 10 * sigma - 0.1 * p["nu"]
    returns = log_student_t(jnp.asarray(RETURNS, jnp.float32), p["nu"], s[1:])
    return walk + priors + jnp.sum(returns) + jnp.sum(jnp.log(scales(sigma)))


def problem() -> tuple[sgld.Posterior, dict[str, Any]]:
    """Return the posterior and a start: s constant at log sd of the returns, prior means elsewhere."""
    positive = need("numpyro.distributions.constraints", "numpyro").positive
    posterior = sgld.Posterior(
        log_density, constraints={"nu": positive, "sigma": positive, "z": None}
    )
    sigma, z = jnp.float32(0.1), np.zeros(DAYS)
    z[0] = np.log(RETURNS.std()) * np.sqrt(DAYS * INFORMATION)
    return posterior, {"nu": jnp.float32(10.0), "sigma": sigma, "z": jnp.asarray(z, jnp.float32)}


def sample_nuts(draws: int, seed: int) -> sgld.Draws:
    """Run NUTS with log sigma and log nu in units of about their posterior sds; z already has unit sds.

    Chains start dispersed by 1: in log sigma that is ten sds, and those that begin at a sigma of
    .01 are drawn on towards 0, where float32 no longer resolves the steps of the walk.
    """
    _, init = problem()

    def position(q):
        sigma, nu = init["sigma"] * jnp.exp(0.1 * q["sigma"]), init["nu"] * jnp.exp(0.25 * q["nu"])
        return {"nu": nu, "sigma": sigma, "z": q["z"]}

    def density(q):
        p = position(q)
        return log_density(p) + jnp.log(p["sigma"]) + jnp.log(p["nu"])

    start = {"nu": jnp.float32(0), "sigma": jnp.float32(0), "z": init["z"]}
    found = sgld.reference(sgld.Posterior(density), None, start, num_chains=2, num_warmup=draws,
                           num_draws=draws, seed=seed, progress=False)  # fmt: skip
    return replace(found, position=jax.vmap(jax.vmap(position))(found.position))


def sample_latents(draws: int, seed: int) -> sgld.Draws:
    """Sample all latents as parameters by BAOA, with D the squared posterior scales and a given step."""
    posterior, init = problem()
    # of log nu, log sigma
    D = {"nu": jnp.float32(0.06), "sigma": jnp.float32(0.01), "z": jnp.ones(DAYS)}
    return sgld.sample(
        posterior, None, init, sampler=sgld.BAOA(friction=0.5), preconditioner=sgld.Diagonal(D),
        step_size=0.1, burn_in=1000, thin=10, num_draws=draws, seed=seed, progress=False,
    )  # fmt: skip


def latent_paths(draws: sgld.Draws, days: np.ndarray) -> np.ndarray:
    """Return s on `days` of the result of `full`, [chain, draw, day]."""
    count = len(draws.position["nu"])
    chains = (jax.tree.map(lambda leaf, c=c: leaf[c], draws.position) for c in range(count))
    return np.concatenate([np.asarray(jax.lax.map(latents, chain, batch_size=100))[None][..., days]
                           for chain in chains])  # fmt: skip


# -- x5 hybrid -----------------------------------------------------------------------------


UNDER = (
    "The document's family of laws, a random walk with steps N(μ_i, σ²), has a spread i σ² that no return "
    "can narrow. Wide laws are punished by the days they call too quiet: the means of late s_i rise, σ "
    "shrinks for as long as the run lasts, and σ and ν come out far too narrow, as variational "
    "approximations do."
)


def hybrid(replicates: int, steps: int, seed: int) -> sgld.Draws:
    """Run the document's SGLD over sigma, nu, s_0, mu with s_i = s_{i-1} + mu_i + sigma eps_i.

    The rows are walks eps, of which each step takes some: the mean over walks stands for E_q.
    """
    bank, days = 1000, DAYS - 1
    eps = np.random.default_rng(seed).standard_normal((bank, days), np.float32)
    walks = {"eps": eps, "share": np.full(bank, 1 / bank, np.float32)}
    returns = jnp.asarray(RETURNS, jnp.float32)

    def log_prior(p):  # with E_q[log p(s | sigma) - log q(s)] = -sum mu^2 / (2 sigma^2)
        kl = 0.5 * jnp.sum((p["mu"] / p["sigma"]) ** 2)
        return -kl - 0.5 * (p["s0"] / 100) ** 2 - 10 * p["sigma"] - 0.1 * p["nu"]

    def log_likelihood(p, row):
        s = p["s0"] + jnp.cumsum(p["mu"] + p["sigma"] * row["eps"])
        return row["share"] * jnp.sum(log_student_t(returns, p["nu"], s))

    positive = need("numpyro.distributions.constraints", "numpyro").positive
    constraints = {"mu": None, "nu": positive, "s0": None, "sigma": positive}
    init = {"mu": jnp.zeros(days), "nu": 10.0, "s0": np.log(RETURNS[:60].std()), "sigma": 0.1}
    # the walks' mean is the loss: RMSprop sees gradients divided by `bank`, and D is that much larger
    return sgld.sample(
        sgld.Posterior(log_prior, log_likelihood, constraints=constraints), walks,
        jax.tree.map(jnp.float32, init), sampler=sgld.SGLD(None), gradient=sgld.Minibatch(),
        preconditioner=sgld.RMSprop(epsilon=1e-5 / bank, freeze=False), batch_size=replicates,
        step_size=sgld.polynomial_between(0.0005 / bank, 0.00005 / bank, steps, 0.55),
        order="replacement", burn_in=500, thin=10, num_draws=steps // 10, num_chains=1, seed=seed,
        progress=False,
    )  # fmt: skip


def paths(draws: sgld.Draws, days: np.ndarray) -> np.ndarray:
    """Return E s on `days` of the result of `hybrid`, [chain, draw, day]."""
    return (draws.position["s0"][..., None] + np.cumsum(draws.position["mu"], -1))[..., days - 1]


# -- x5 page -------------------------------------------------------------------------------


YEAR = np.array([int(day[:4]) + (int(day[5:7]) - 1) / 12 + int(day[8:]) / 366
                 for day in columns("sp500_close")["date"]])  # fmt: skip
X5_KEY = (("accent-soft", "90% band"), ("accent", "median"), ("contrast", "median of NUTS"))


def band(title: str, days: np.ndarray, quantiles: Any, exact: Any = None) -> Panel:
    """Plot a 90% band of the volatility exp(s) with its median, and NUTS's median."""
    panel, (low, middle, high) = Panel(title, 200, width=WIDE_WIDTH), quantiles
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
    """Plot the band of draws s [chain, draw, day] with NUTS's median."""
    quantiles = np.exp(np.quantile(s.astype(float), [0.05, 0.5, 0.95], axis=(0, 1)))
    return band(title, np.array(nuts["days"]), quantiles, nuts["q50"])


def model(nuts: Any, full: sgld.Draws, vi: sgld.Draws) -> Section:
    """Write the section on the model, NUTS's answer, and the distributions of sigma and nu."""
    styles = [{"color": COLOURS[c], "linewidth": 1.5} for c in ("contrast", "accent", "chain-2")]
    p = np.arange(1, 100) / 100
    laws = [
        lines(f"{sign}: distribution function", [
            ("NUTS", nuts[name]["quantiles"], p),
            ("BAOA", np.quantile(full.position[name], p), p),
            ("hybrid", np.quantile(vi.position[name], p), p),
        ], styles=styles, ylim=(0, 1), width=WIDE_WIDTH, height=200) for name, sign in (("sigma", "σ"), ("nu", "ν"))
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
    ), (band("Volatility exp(s), NUTS", np.array(nuts["days"]), quantiles), *laws), X5_KEY[:2])  # fmt: skip


def printed_section(
    nuts: Any, vi: sgld.Draws, s: np.ndarray, replicates: int, steps: int
) -> Section:
    """Write the section on the hybrid as printed."""
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
              level=nuts["sigma"]["mean"], xlabel="step", width=WIDE_WIDTH, height=200)), X5_KEY)  # fmt: skip


def whole_section(nuts: Any, full: sgld.Draws, s: np.ndarray) -> Section:
    """Write the section on sampling all latents."""
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
    ), (volatility("Volatility exp(s), BAOA", nuts, s),), X5_KEY)  # fmt: skip


# -- x5 ------------------------------------------------------------------------------------


TITLE = "Stochastic volatility of the S&P 500"
LEAD = (
    "2,906 latent volatilities and two parameters. Sampled as parameters they give NUTS's answer; "
    "replaced by a Gaussian walk inside SGLD, as the document does it, they do not."
)
NEEDS = ("numpyro",)  # constraints


def run(quick: bool = False, seed: int = 0) -> Entry:
    """Compare the hybrid as printed and the whole posterior with long NUTS."""
    nuts = json.loads((Path(__file__).parent / "x5_nuts.json").read_text())
    days, (replicates, steps) = np.array(nuts["days"]), (20, 2_000) if quick else (100, 5_000)
    vi = hybrid(replicates, steps, seed)
    full = sample_latents(400 if quick else 2_000, seed)
    printed, whole = paths(vi, days), latent_paths(full, days)
    checks = [
        Check.in_value("NUTS: mean of σ, the document's .09 to .10", 0.095, nuts["sigma"]["mean"], 0.005),
        Check.in_value("NUTS: median of ν, the document's 9 to 10", 9.5, nuts["nu"]["quantiles"][49], 1.0),
        *compare("BAOA", nuts, full, whole, quick),
        *compare("hybrid, as printed", nuts, vi, printed, quick, UNDER),
    ]  # fmt: skip
    again = sample_nuts(150 if quick else 300, seed)
    checks += [
        Check.in_sd(f"NUTS here, short: mean of {sign}", nuts[name]["mean"], again.mean()[name],
                    nuts[name]["sd"], 0.4) for name, sign in (("sigma", "σ"), ("nu", "ν"))
    ]  # fmt: skip
    sections = (
        model(nuts, full, vi),
        printed_section(nuts, vi, printed, replicates, steps),
        whole_section(nuts, full, whole),
    )
    return Entry(TITLE, LEAD, sections, tuple(checks))


def compare(
    title: str, nuts: Any, draws: sgld.Draws, s: np.ndarray, quick: bool, reason: str | None = None
) -> list[Check]:
    """Check moments of sigma, nu and of s [chain, draw, day] against NUTS."""
    checks, wide = [], 0.3 if quick else 0.15
    for name, sign in (("sigma", "σ"), ("nu", "ν")):
        row, x = nuts[name], np.asarray(draws.position[name], float)
        checks += [
            Check.in_sd(f"{title}: mean of {sign}", row["mean"], draws.mean()[name], row["sd"],
                        wide, reason),
            Check.in_ratio(f"{title}: sd of {sign}", row["sd"], x.std(), 0.25, reason),
        ]  # fmt: skip
    mean, sd = (np.array(nuts["s"][key]) for key in ("mean", "sd"))
    s = s.reshape(-1, s.shape[-1]).astype(float)
    off = np.sqrt(np.mean(((s.mean(0) - mean) / sd) ** 2))
    return [
        *checks,
        Check.in_value(f"{title}: means of s_i, rms error in sd", 0, off, 0.2, reason),
        Check.in_ratio(f"{title}: sd of s_i, mean over days", 1, np.mean(s.std(0) / sd), 0.1, reason),
    ]  # fmt: skip
