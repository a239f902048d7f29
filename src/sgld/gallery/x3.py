"""X3: the handout's figure 4.3: SGLD with batches of 100 at tau = .01, 1, 10."""

from __future__ import annotations

from typing import Any

import numpy as np

from sgld.gallery import Check, Entry, Section, handout
from sgld.gallery.page import histogram

TITLE = "Three temperatures that look the same, and how they should"
TAUS = (0.01, 1.0, 10.0)
X3_BATCH_ROWS = 100
SPANS = {"b0": (-0.11, 0.11), "b1": (0.8, 1.02), "σ²": (0.165, 0.215)}
X3_REASON = (
    "At m = 100 and h = 0.00001 the noise of the batches drowns the injected noise: from τ = .01 "
    "to 1 the sd of b1 moves by a few percent, where that of the tempered posterior grows tenfold."
)


def run(quick: bool = False, seed: int = 0) -> Entry:
    """Reproduce the figure as printed (T = tau/2), then sample the tempered posterior itself."""
    chains, half = 8 if quick else 40, handout.HANDOUT_STEPS // 2
    checks, printed, sampled, spent = [], [], [], []
    for tau in TAUS:
        found = {
            k: v[:, half:] for k, v in handout.run_of(X3_BATCH_ROWS, tau / 2, chains, seed).items()
        }
        sd, law = found["b1"].std(), handout.exact(tau)
        formula = handout.predicted(X3_BATCH_ROWS, tau / 2)
        checks += [
            Check.in_ratio(f"as printed, τ = {tau:g}: sd of b1, against the formula",
                           formula.std(), sd, 0.1),
            Check.in_ratio(f"as printed, τ = {tau:g}: sd of b1", law["b1"].std(), sd, 0.1,
                           f"{X3_REASON} {handout.HALF_NOTE}"),
        ]  # fmt: skip
        for name in handout.HANDOUT_NAMES:
            curves: list[Any] = [handout.exact(1.0)[name].pdf]
            if name != "σ²":
                curves.append(handout.predicted(X3_BATCH_ROWS, tau / 2, name).pdf)
            printed.append(
                histogram(f"{name}, τ = {tau:g}", found[name], curves, span=SPANS[name], height=120)
            )
        values, draws, passes = handout.well_spent(tau, seed)
        spent.append(passes)
        for name in handout.HANDOUT_NAMES:
            truth = law[name].std()
            checks.append(
                Check.in_ratio(f"sgld.sample, T = {tau:g}: sd of {name}", truth,
                               values[name].std(), 0.07)
            )  # fmt: skip
        title = f"b1, T = {tau:g}: {draws.verdict.word}"
        sampled.append(histogram(title, values["b1"], [law["b1"].pdf]))
    sds = [f"{handout.predicted(X3_BATCH_ROWS, tau / 2).std():.3f}" for tau in TAUS]
    truths = [f"{handout.exact(tau)['b1'].std():.5f}" for tau in TAUS]
    return Entry(
        TITLE,
        "Raising the temperature should widen the law by its square root. In the handout's figure "
        "the first two temperatures cannot be distinguished: batches make nearly all the noise.",
        (
            Section(
                "Figure 4.3, as printed",
                (
                    handout.HANDOUT_SETTINGS
                    + f" The second half is kept, of {chains} chains instead of "
                    f"one; m = {X3_BATCH_ROWS} throughout.",
                    handout.HALF_NOTE,
                    f"The formula (see X2) predicts an sd of b1 of {', '.join(sds)} for τ = .01, "
                    "1, 10. The orange curve, the exact posterior, is far narrower than even the "
                    "coldest of these runs.",
                ),
                tuple(np.array(printed, object).reshape(3, 3).T.ravel()),
                (*handout.HANDOUT_KEY, ("ink", "dashed: the formula's prediction")),
            ),
            Section(
                "The exact answer, and the same budget well spent",
                (
                    "The law at temperature T is proportional to (likelihood × prior)^{1/T}. (It "
                    "is printed as exp{L f / τ}, where the exponent must hold the logarithm of L f.) "
                    "In the model's own coordinates (b0, b1, log σ²) it is again normal-inverse-gamma, so the exact "
                    f"curves are at hand: the sd of b1 is {', '.join(truths)} at T = .01, 1, 10.",
                    f"`sgld.sample(posterior, data, start, temperature=T)` chooses the rest: "
                    f"{max(spent)} passes' worth of row gradients each time, where the handout's "
                    "m = 1000 took 100, and the temperatures are what they say. (Each panel has its "
                    "own scale.)",
                ),
                tuple(sampled),
                (("accent-soft", "draws"), ("contrast", "exact, at that temperature")),
            ),
        ),
        tuple(checks),
    )
