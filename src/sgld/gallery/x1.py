"""X1: the handout's figure 4.1: SGD traces of b0, b1 and sigma^2 for batches of 10, 100, 1000."""

from __future__ import annotations

import numpy as np

import sgld
from sgld.gallery import Check, Entry, Section, handout
from sgld.gallery.page import COLOURS, lines

TITLE = "SGD on the handout's regression, batches of 10, 100 and 1000"
BATCHES = (10, 100, 1000)
LEAST_SQUARES = 0.189455803  # the maximum likelihood estimate of sigma^2
STYLE = ({"color": COLOURS["accent"], "linewidth": 0.8},)


def run(quick: bool = False, seed: int = 0) -> Entry:
    """Show that SGD is SGLD at temperature 0 and ends around the mode, in the noise of its batches."""
    data, law = handout.problem()
    mode = {"b0": law.mode["beta"][0], "b1": law.mode["beta"][1]}
    mode["σ²"] = np.exp(law.mode["log_sigma2"])
    found = {m: handout.run_of(m, 0.0, 8 if quick else 40, seed) for m in BATCHES}
    checks = []
    for m in BATCHES:
        b1 = found[m]["b1"][:, handout.HANDOUT_STEPS // 2 :]
        sd = handout.predicted(m, 0.0).std()
        checks += [
            Check.in_ratio(f"SGD, m = {m}: sd of b1, against the formula", sd, b1.std(), 0.1),
            Check.in_sd(f"SGD, m = {m}: mean of b1, in that sd", mode["b1"], b1.mean(), sd, 0.15),
            Check.in_ratio(
                f"SGD, m = {m}: sd of b1, against the posterior's", law.beta.std()[1], b1.std(),
                0.1, "SGD has no posterior: its spread is that of its batches, and shrinks with "
                "m and with h.",
            ),
        ]  # fmt: skip
    best = sgld.find_map(handout.nig(2).model(), data, handout.start())
    ours = {"b0": best.position["beta"][0], "b1": best.position["beta"][1]}
    ours["σ²"] = np.exp(np.float64(best.position["log_sigma2"]))
    sds = {name: marginal.std() for name, marginal in handout.exact().items()}
    checks += [
        Check.in_sd(f"find_map: {name}, in posterior sd", mode[name], ours[name], sds[name], 0.01)
        for name in handout.HANDOUT_NAMES
    ]
    formula = ", ".join(f"{handout.predicted(m, 0.0).std():.4f}" for m in BATCHES)
    return Entry(
        TITLE,
        "Stochastic gradient descent finds the posterior mode and then circles it at a distance "
        "that the batch size sets. That distance says nothing about the posterior.",
        (
            Section(
                "Figure 4.1, as printed",
                (
                    handout.HANDOUT_SETTINGS,
                    "The handout compares SGD with the maximum likelihood estimate. It ascends the "
                    "posterior, prior included, so it goes to the mode (orange). With 10,000 rows "
                    f"the two hardly differ: σ² is {LEAST_SQUARES:.5f} at the maximum of the "
                    f"likelihood and {mode['σ²']:.5f} at the mode.",
                    "Its oscillation is the noise of the batches. A step of h around a mode of "
                    "curvature λ, with gradients of sd s per row, has var = h² (N²/m)(1 − m/N) s² / "
                    f"[1 − (1 − hλ)²]: an sd of b1 of {formula} for the three batches. The "
                    f"posterior's is {sds['b1']:.4f}.",
                ),
                tuple(
                    lines(
                        f"{name}, m = {m}", [("", np.arange(handout.HANDOUT_STEPS), found[m][name][0])],
                        styles=STYLE, level=mode[name], height=130,
                        ylim=_span([found[k][name][0] for k in BATCHES]),
                    )
                    for name in handout.HANDOUT_NAMES for m in BATCHES
                ),
                (("accent", "SGD"), ("contrast", "posterior mode")),
            ),
            Section(
                "Once it has arrived",
                ("The second half of the same runs, b1 alone, on one scale.",),
                tuple(
                    lines(
                        f"b1, m = {m}, steps 500 to 1000",
                        [("", np.arange(500, 1000), found[m]["b1"][0, 500:])],
                        styles=STYLE, level=mode["b1"], height=130, ylim=(0.6, 1.2),
                    )
                    for m in BATCHES
                ),
                (("accent", "SGD"), ("contrast", "posterior mode")),
            ),
            Section(
                "The same budget, well spent",
                (
                    "m = 1000 reads the data 100 times and still misses the mode. "
                    "`sgld.find_map(posterior, data, start)` with nothing chosen is Newton's "
                    f"method on all rows: {best.num_steps} steps, to within a hundredth of a "
                    "posterior sd. X2 turns to the posterior itself.",
                ),
            ),
        ),
        tuple(checks),
    )  # fmt: skip


def _span(traces: list[np.ndarray]) -> tuple[float, float]:
    low, high = np.min(traces), np.max(traces)
    return float(low - 0.05 * (high - low)), float(high + 0.05 * (high - low))
