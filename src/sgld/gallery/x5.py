"""X5: stochastic volatility of the S&P 500."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

import sgld
from sgld.errors import need
from sgld.gallery import Check, Entry, Section
from sgld.gallery.data import columns
from sgld.gallery.draw import COLOURS, WIDE, Panel, lines

TITLE = "Stochastic volatility of the S&P 500"
LEAD = (
    "2,906 latent volatilities and two parameters. Sampled as parameters they give NUTS's answer; "
    "replaced by a Gaussian walk inside SGLD, as the document does it, they do not."
)

RETURNS = np.diff(np.log(columns("sp500_close")["close"]))  # r_1 ... r_2905
DAYS = len(RETURNS) + 1  # the latents s_0 ... s_2905
INFORMATION = 1.5  # of one return about its s_i: 2 nu / (nu + 3), near enough
EVERY = 5  # days between those that are drawn and stored
WAVES = 4 * np.sin(np.pi * np.arange(DAYS) / (2 * DAYS)) ** 2  # of s_i - s_{i-1}, per cosine
YEAR = np.array([int(day[:4]) + (int(day[5:7]) - 1) / 12 + int(day[8:]) / 366
                 for day in columns("sp500_close")["date"]])  # fmt: skip
UNDER = (
    "The document's family of laws, a random walk with steps N(μ_i, σ²), has a spread i σ² that no return "
    "can narrow. Wide laws are punished by the days they call too quiet: the means of late s_i rise, σ "
    "shrinks for as long as the run lasts, and σ and ν come out far too narrow, as variational "
    "approximations do."
)


def log_student_t(r, nu, s):
    """log StudentT(r | nu, 0, exp(s))."""
    z2 = (r * jnp.exp(-s)) ** 2
    constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu * jnp.float32(np.pi))
    return constant - s - (nu + 1) / 2 * jnp.log1p(z2 / nu)


def scales(sigma):
    """About the posterior sd of each cosine coefficient of s, given sigma."""
    return sigma / jnp.sqrt(jnp.asarray(WAVES, jnp.float32) + INFORMATION * sigma**2)


def latents(p: Any) -> Any:
    """s_0 ... s_n from standardised cosine coefficients: an orthonormal change of coordinates."""
    return jax.scipy.fft.idct(p["z"] * scales(p["sigma"]), norm="ortho")


def log_density(p):
    """Of (z, sigma, nu): the model's, with the Jacobian of s -> z."""
    sigma, s = p["sigma"], latents(p)
    walk = -0.5 * jnp.sum((jnp.diff(s) / sigma) ** 2) - (DAYS - 1) * jnp.log(sigma)
    priors = -0.5 * (s[0] / 100) ** 2 - 10 * sigma - 0.1 * p["nu"]
    returns = log_student_t(jnp.asarray(RETURNS, jnp.float32), p["nu"], s[1:])
    return walk + priors + jnp.sum(returns) + jnp.sum(jnp.log(scales(sigma)))


def problem() -> tuple[sgld.Posterior, dict[str, Any]]:
    """The posterior, and a start: s constant at log sd of the returns, priors' means."""
    positive = need("numpyro.distributions.constraints", "numpyro").positive
    posterior = sgld.Posterior(
        log_density, constraints={"nu": positive, "sigma": positive, "z": None}
    )
    sigma, z = jnp.float32(0.1), np.zeros(DAYS)
    z[0] = np.log(RETURNS.std()) * np.sqrt(DAYS * INFORMATION)
    return posterior, {"nu": jnp.float32(10.0), "sigma": sigma, "z": jnp.asarray(z, jnp.float32)}


def hybrid(replicates: int, steps: int, seed: int) -> sgld.Draws:
    """The document's: SGLD over sigma, nu, s_0, mu with s_i = s_{i-1} + mu_i + sigma eps_i.

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


def full(draws: int, seed: int) -> sgld.Draws:
    """All latents as parameters: BAOA with D the squared posterior scales, a step by hand."""
    posterior, init = problem()
    D = {
        "nu": jnp.float32(0.06),
        "sigma": jnp.float32(0.01),
        "z": jnp.ones(DAYS),
    }  # of log nu, log sigma
    return sgld.sample(
        posterior, None, init, sampler=sgld.BAOA(friction=0.5), preconditioner=sgld.Diagonal(D),
        step_size=0.1, burn_in=1000, thin=10, num_draws=draws, seed=seed, progress=False,
    )  # fmt: skip


def run(quick: bool = False, seed: int = 0) -> Entry:
    """The hybrid as printed and the whole posterior, against long NUTS."""
    nuts = json.loads((Path(__file__).parent / "x5_nuts.json").read_text())
    days = np.array(nuts["days"])
    replicates, steps = (20, 2_000) if quick else (100, 5_000)
    vi, all_of_it = hybrid(replicates, steps, seed), full(400 if quick else 2_000, seed)
    paths = {
        "hybrid": (vi.position["s0"][..., None] + np.cumsum(vi.position["mu"], -1))[..., days - 1],
        "full": np.concatenate([np.asarray(jax.lax.map(latents, chunk, batch_size=100))[None][..., days]
                                for chunk in chains(all_of_it.position)]),
    }  # fmt: skip
    truth_mean, truth_sd = (np.array(nuts["s"][key]) for key in ("mean", "sd"))
    wide = 0.3 if quick else 0.15
    checks = [
        Check.in_value("NUTS: mean of σ, the document's .09 to .10", 0.095, nuts["sigma"]["mean"], 0.005),
        Check.in_value("NUTS: median of ν, the document's 9 to 10", 9.5, nuts["nu"]["quantiles"][49], 1.0),
    ]  # fmt: skip
    for title, draws, reason in (("BAOA", all_of_it, None), ("hybrid, as printed", vi, UNDER)):
        for name, sign in (("sigma", "σ"), ("nu", "ν")):
            row, x = nuts[name], np.asarray(draws.position[name], float)
            checks += [
                Check.in_sd(f"{title}: mean of {sign}", row["mean"], draws.mean()[name], row["sd"],
                            wide, reason),
                Check.in_ratio(f"{title}: sd of {sign}", row["sd"], x.std(), 0.25, reason),
            ]  # fmt: skip
        s = paths["full" if draws is all_of_it else "hybrid"].reshape(-1, len(days)).astype(float)
        off = np.sqrt(np.mean(((s.mean(0) - truth_mean) / truth_sd) ** 2))
        checks += [
            Check.in_value(f"{title}: means of s_i, rms error in sd", 0, off, 0.2, reason),
            Check.in_ratio(f"{title}: sd of s_i, mean over days", 1, np.mean(s.std(0) / truth_sd), 0.1,
                           reason),
        ]  # fmt: skip
    if not quick:
        posterior, init = problem()
        again = sgld.reference(posterior, None, init, num_chains=2, num_warmup=300, num_draws=300,
                               seed=seed, progress=False)  # fmt: skip
        checks += [
            Check.in_sd(f"NUTS again, short: mean of {name}", nuts[name]["mean"], again.mean()[name],
                        nuts[name]["sd"], 0.4) for name in ("sigma", "nu")
        ]  # fmt: skip
    return Entry(TITLE, LEAD, pages(nuts, vi, all_of_it, paths, replicates, steps), tuple(checks))


def chains(position: Any) -> list[Any]:
    """Each chain's draws."""
    return [jax.tree.map(lambda leaf, c=c: leaf[c], position) for c in range(len(position["nu"]))]


def band(title: str, days: np.ndarray, quantiles: Any, exact: Any = None) -> Panel:
    """A 90% band of the volatility exp(s), with its median, and NUTS's median."""
    panel, (low, middle, high) = Panel(title, 200, width=WIDE), quantiles
    panel.axes.fill_between(YEAR[days], low, high, color=COLOURS["accent-soft"], linewidth=0)
    panel.axes.plot(YEAR[days], middle, color=COLOURS["accent"], linewidth=1)
    if exact is not None:
        panel.axes.plot(YEAR[days], exact, color=COLOURS["contrast"], linewidth=0.9)
    panel.axes.set(xlim=(2008, 2020), ylim=(0, 0.07))
    panel.ticks("x", 6)
    panel.ticks("y")
    return panel


def pages(nuts, vi, all_of_it, paths, replicates, steps) -> tuple[Section, ...]:
    """The text and the figures."""
    days, p = np.array(nuts["days"]), np.arange(1, 100) / 100
    bands = {name: np.exp(np.quantile(s.astype(float), [0.05, 0.5, 0.95], axis=(0, 1)))
             for name, s in paths.items()}  # fmt: skip
    styles = [{"color": COLOURS[c], "linewidth": 1.5} for c in ("contrast", "accent", "chain-2")]
    laws = [
        lines(f"{sign}: distribution function", [
            ("NUTS", nuts[name]["quantiles"], p),
            ("BAOA", np.quantile(all_of_it.position[name], p), p),
            ("hybrid", np.quantile(vi.position[name], p), p),
        ], styles=styles, ylim=(0, 1), width=WIDE, height=200) for name, sign in (("sigma", "σ"), ("nu", "ν"))
    ]  # fmt: skip
    rows = all_of_it.summary().to_dict()["parameters"]
    gradients = all_of_it.num_chains * all_of_it.info["num_steps"]
    sigma = np.asarray(vi.position["sigma"])[0]
    key = (("accent-soft", "90% band"), ("accent", "median"), ("contrast", "median of NUTS"))
    assert all_of_it.verdict is not None
    return (
        Section("Model and NUTS", (
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
        ), (band("Volatility exp(s), NUTS", days, [nuts[q] for q in ("q05", "q50", "q95")]), *laws), key[:2]),
        Section("As printed: SGLD with reparameterised latents", (
            "The document samples σ, ν, s_0 and μ_i, with s_i = s_{i−1} + μ_i + σ ε_i drawn afresh: for given "
            "parameters the ELBO of a walk with steps N(μ_i, σ²). Its notebook left out log p(s_i | s_{i−1}, σ) and "
            "the prior of s_0, and divided the other priors by the replicates, so its σ = .0256 is no target. Here "
            "the ELBO is whole: E_q[log p − log q] = −Σ μ_{i}² / (2σ²). RMSprop as preconditioner, ε = 2h = .001 for "
            f"a burn-in of 500, then polynomial decay (γ = .55) to a tenth over {steps:,} steps, {replicates} "
            "replicates a step.",
            f"σ falls from {sigma[0]:.3f} to {sigma[-1]:.3f} during the run and has not arrived: the document's "
            f"“σ continually shrinking”. {UNDER} Each step costs {replicates} gradients of the whole series, "
            f"{replicates * (steps + 500):,} in all.",
        ), (band("Volatility exp(E s), hybrid", days, bands["hybrid"], nuts["q50"]),
            lines("σ along the run", [("", vi.step, sigma)], styles=[{"color": COLOURS["accent"]}],
                  level=nuts["sigma"]["mean"], xlabel="step", width=WIDE, height=200)), key),
        Section("All latents as parameters", (
            "The document found no way to sample s_i, σ and ν together, because s_i “loses its dependence on σ”. It "
            "need not: log p(s | σ) is part of the density, and its gradient couples them. What hurts is the scale: "
            "smooth and rough waves of s differ by thousands in curvature. In the coordinates above D is nearly the "
            "identity (.1² for log σ, .25² for log ν), and h = .1 serves all 2,908 directions.",
            f"BAOA, a momentum sampler without bias on Gaussians: {all_of_it.num_chains} chains of "
            f"{all_of_it.info['num_steps']:,} steps, {gradients:,} gradients of the whole series; ESS of σ "
            f"{rows['sigma']['ess_bulk']:.0f}, of ν {rows['nu']['ess_bulk']:.0f}. Its σ is "
            f"{rows['sigma']['mean']:.4f} ± {rows['sigma']['sd']:.4f}, its ν {rows['nu']['mean']:.1f} ± "
            f"{rows['nu']['sd']:.1f}. Per thousand gradients: {1e3 * rows['sigma']['ess_bulk'] / gradients:.0f} "
            f"effective draws of σ, NUTS {1e3 * nuts['sigma']['ess'] / nuts['num_gradients']:.0f}.",
            f"Its verdict: {all_of_it.verdict.word}; {'; '.join(all_of_it.verdict.reasons)}",
        ), (band("Volatility exp(s), BAOA", days, bands["full"], nuts["q50"]),), key),
    )  # fmt: skip
