"""X2: the handout's figure 4.2: SGLD histograms at T = 1 for batches of 10, 100, 1000."""

from __future__ import annotations

import numpy as np
from scipy import stats

from sgld.gallery import Check, Entry, Section, handout
from sgld.gallery.page import Panel, histogram

TITLE = "SGLD on the handout's regression: the noise of batches is not a posterior"
BATCHES = (10, 100, 1000)
SPANS = {"b0": (-0.3, 0.3), "b1": (0.6, 1.2), "σ²": (0.16, 0.25)}


def run(quick: bool = False, seed: int = 0) -> Entry:
    """Reproduce the figure as printed (T = 1/2), corrected (T = 1), and with a well-chosen step size."""
    chains, exact = 8 if quick else 40, handout.exact()
    printed = {m: handout.run_of(m, 0.5, chains, seed) for m in BATCHES}
    right = {m: handout.run_of(m, 1.0, chains, seed + 1) for m in BATCHES}
    checks = []
    for T, runs, name in ((0.5, printed, "as printed, T = 1/2"), (1.0, right, "T = 1")):
        for m in BATCHES:
            sd = kept(runs[m]["b1"]).std()
            predicted = handout.predicted(m, T).std()
            reason = handout.STEP_TOO_LARGE_NOTE + (" " + handout.HALF_NOTE if T < 1 else "")
            checks += [
                Check.in_ratio(f"{name}, m = {m}: sd of b1, against the formula", predicted, sd,
                               0.1),
                Check.in_ratio(f"{name}, m = {m}: sd of b1", exact["b1"].std(), sd, 0.1, reason),
            ]  # fmt: skip
    spent, draws, passes = handout.well_spent(1.0, seed)
    for name, law in exact.items():
        values = spent[name]
        checks += [
            Check.in_sd(f"sgld.sample: mean of {name}", law.mean(), values.mean(), law.std(), 0.1),
            Check.in_ratio(f"sgld.sample: sd of {name}", law.std(), values.std(), 0.07),
            Check.in_value(f"sgld.sample: distance of {name} from the exact law", 0,
                           stats.kstest(values.ravel(), law.cdf).statistic, 0.05),
        ]  # fmt: skip
    plan = draws.info["plan"]
    sds = {T: ", ".join(f"{handout.predicted(m, T).std():.2g}" for m in BATCHES) for T in (0.5, 1)}
    figures = [_panel(name, m, 0.5, printed[m]) for name in handout.HANDOUT_NAMES for m in BATCHES]
    key = (*handout.HANDOUT_KEY, ("ink", "dashed: the formula's prediction"))
    return Entry(
        TITLE,
        "With the handout's constant step the histograms show how noisy batches are, up to 20 "
        "times wider than the posterior. The same budget, spent otherwise, gives the posterior.",
        (
            Section(
                "Figure 4.2, as printed",
                (
                    handout.HANDOUT_SETTINGS
                    + f" The second half is kept; {chains} chains instead of one "
                    "make the histograms smooth.",
                    handout.HALF_NOTE,
                    handout.STEP_TOO_LARGE_NOTE
                    + f" For b1 at m = 10, 100, 1000: {sds[0.5]}. The truth is "
                    f"{exact['b1'].std():.4f}. The handout reads the figure as “closer to the "
                    "exact posterior when the batch is bigger”; closer it is, but at m = 1000 "
                    "still twice too wide.",
                ),
                tuple(figures),
                key,
            ),
            Section(
                "With the temperature corrected",
                (
                    f"At T = 1 the formula gives {sds[1]}: hardly another figure, because the "
                    "injected noise was the smaller part. No temperature corrects a step that is too "
                    "large.",
                ),
                tuple(_panel("b1", m, 1.0, right[m]) for m in BATCHES),
                key,
            ),
            Section(
                "The same budget, well spent",
                (
                    "m = 1000 reads the data 100 times. `sgld.sample(posterior, data, start)` "
                    "finds the mode, takes the curvature there for a preconditioner, and steps "
                    f"with control variates on batches of {plan['batch_size']}, taking the "
                    f"gradients' noise off the injected noise: {draws.num_chains} chains of "
                    f"{draws.info['num_steps']:,} steps, {passes} passes' worth of row gradients "
                    "besides the search for the mode.",
                    f"Its verdict: {draws.verdict.word}; {'; '.join(draws.verdict.reasons)}",
                ),
                tuple(histogram(name, spent[name], [exact[name].pdf]) for name in exact),
                handout.HANDOUT_KEY,
            ),
        ),
        tuple(checks),
    )


def kept(values: np.ndarray) -> np.ndarray:
    """Return the second half of every chain."""
    return values[:, handout.HANDOUT_STEPS // 2 :]


def _panel(name: str, m: int, T: float, found: dict[str, np.ndarray]) -> Panel:
    """Plot the exact curve and the formula's Gaussian over the kept draws."""
    curves = [handout.exact()[name].pdf]
    if name != "σ²":
        curves.append(handout.predicted(m, T, name).pdf)
    values = kept(found[name])
    return histogram(f"{name}, m = {m}", values, curves, span=SPANS[name], bins=60, height=120)
