"""X8: three Gaussian clusters, a small network sampled by the PyTorch optimiser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from sgld.errors import need
from sgld.gallery import Check, Entry, x8_page
from sgld.gallery.x8_network import GRID, POINT, logits, predict, problem, train

__all__ = ["GRID", "POINT", "logits", "problem", "run"]  # what the stored NUTS run was made with

TITLE = "A small network sampled by a PyTorch optimiser"
LEAD = (
    "An ordinary training loop with `sgld.torch.SGLD` gives the predictive distribution of a long "
    "NUTS run of the same network, and its map of where the networks disagree. A cold one does not."
)
NEEDS = ("torch",)


def run(quick: bool = False, seed: int = 0) -> Entry:
    """The posterior and a cold one by the optimiser, beside long NUTS."""
    chains, steps = (2, 15_000) if quick else (4, 60_000)
    torch = need("torch", "torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a network of 99 weights only waits for more
    try:
        warm, cold = (
            predict(train(T, chains, n, seed)) for T, n in ((1.0, steps), (0.01, steps // 3))
        )
    finally:
        torch.set_num_threads(threads)
    truth = json.loads((Path(__file__).parent / "x8_nuts.json").read_text())
    checks = (*compare("T = 1", truth, warm), *compare("cold, T = .01", truth, cold, x8_page.COLD))
    sections = (
        x8_page.loop(truth, warm, cold, chains, steps),
        x8_page.predictions(truth, warm, cold),
        x8_page.disagreement(truth, warm, cold),
    )
    return Entry(TITLE, LEAD, sections, checks)


def compare(name: str, truth: Any, found: Any, reason: str | None = None) -> list[Check]:
    """Predictions at the point and on the map, against NUTS's."""
    point = truth["point"]["mean"]
    mean, epistemic = (np.array(truth["map"][key]) for key in ("mean", "epistemic"))
    rms = np.sqrt(np.mean((found["p"][1:] - mean) ** 2))
    return [
        *(Check.in_value(f"{name}: P(class {k} at (2, 2))", point[k], found["p"][0, k], 0.03, reason)
          for k in (0, 1)),
        Check.in_value(f"{name}: map of probabilities, rms difference", 0, rms, 0.045, reason),
        Check.in_ratio(f"{name}: epistemic uncertainty, mean of the map", epistemic.mean(),
                       found["epistemic"][1:].mean(), 0.25, reason),
    ]  # fmt: skip
