"""X9: Welling & Teh (2011): noise crossing, rejection rates, logistic regression, natural ICA."""

from __future__ import annotations

import json
from pathlib import Path

from sgld.gallery import Entry, x9_ica, x9_logistic, x9_noise, x9_referee
from sgld.gallery.data import Table, cancer, load_table
from sgld.gallery.x9_ica import NaturalSGLD, amari, ica, mixtures
from sgld.gallery.x9_logistic import log_joint, logistic, split

__all__ = [  # what the stored NUTS runs were made with, and `run`
    "NaturalSGLD", "amari", "cancer", "ica", "load_table", "log_joint", "logistic", "mixtures",
    "run", "split",
]  # fmt: skip

TITLE = "Welling & Teh: crossing noises, logistic regression, independent components"
LEAD = (
    "The three experiments that introduced SGLD: when gradient noise sinks below the injected, how "
    "fast a logistic regression settles, and independent components by a natural gradient."
)
NEEDS = ("sklearn",)  # the cancer data


def run(quick: bool = False, seed: int = 0, data: Table | None = None) -> Entry:
    """The three experiments; the regression on `data` where given."""
    truth = json.loads((Path(__file__).parent / "x9_nuts.json").read_text())
    noises, crossing = x9_noise.noise_crossing(50_000 if quick else 1_000_000, seed)
    known = truth if data is None else x9_referee.referee(data, 150 if quick else 400, seed)
    joints, regression = x9_logistic.logistic_regression(known, data, seed)
    distances, components = x9_ica.independent_components(
        truth["amari"], 5_000 if quick else 50_000, seed
    )
    checks = (*noises, *joints, *distances)
    return Entry(TITLE, LEAD, (crossing, regression, components), checks)
