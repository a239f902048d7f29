"""X5: stochastic volatility of the S&P 500."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import sgld
from sgld.gallery import Check, Entry, x5_hybrid, x5_model, x5_page
from sgld.gallery.x5_model import DAYS, EVERY, latents, problem

__all__ = ["DAYS", "EVERY", "latents", "problem", "run"]  # what the stored NUTS run was made with

TITLE = "Stochastic volatility of the S&P 500"
LEAD = (
    "2,906 latent volatilities and two parameters. Sampled as parameters they give NUTS's answer; "
    "replaced by a Gaussian walk inside SGLD, as the document does it, they do not."
)
NEEDS = ("numpyro",)  # constraints


def run(quick: bool = False, seed: int = 0) -> Entry:
    """The hybrid as printed and the whole posterior, against long NUTS."""
    nuts = json.loads((Path(__file__).parent / "x5_nuts.json").read_text())
    days, (replicates, steps) = np.array(nuts["days"]), (20, 2_000) if quick else (100, 5_000)
    vi = x5_hybrid.hybrid(replicates, steps, seed)
    full = x5_model.sample_latents(400 if quick else 2_000, seed)
    printed, whole = x5_hybrid.paths(vi, days), x5_model.latent_paths(full, days)
    checks = [
        Check.in_value("NUTS: mean of σ, the document's .09 to .10", 0.095, nuts["sigma"]["mean"], 0.005),
        Check.in_value("NUTS: median of ν, the document's 9 to 10", 9.5, nuts["nu"]["quantiles"][49], 1.0),
        *compare("BAOA", nuts, full, whole, quick),
        *compare("hybrid, as printed", nuts, vi, printed, quick, x5_hybrid.UNDER),
    ]  # fmt: skip
    again = x5_model.sample_nuts(150 if quick else 300, seed)
    checks += [
        Check.in_sd(f"NUTS here, short: mean of {sign}", nuts[name]["mean"], again.mean()[name],
                    nuts[name]["sd"], 0.4) for name, sign in (("sigma", "σ"), ("nu", "ν"))
    ]  # fmt: skip
    sections = (
        x5_page.model(nuts, full, vi),
        x5_page.printed_section(nuts, vi, printed, replicates, steps),
        x5_page.whole_section(nuts, full, whole),
    )
    return Entry(TITLE, LEAD, sections, tuple(checks))


def compare(
    title: str, nuts: Any, draws: sgld.Draws, s: np.ndarray, quick: bool, reason: str | None = None
) -> list[Check]:
    """Moments of sigma, nu and of s [chain, draw, day] against NUTS's."""
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
