"""X8's text and figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from sgld.gallery import Section
from sgld.gallery.draw import COLOURS, Panel, histogram
from sgld.gallery.x8_network import BATCH, EVERY, LABELS, POINT, ROWS, X1, X2, H

COLD = (
    "At temperature .01 the law is the posterior to the power of 100: the networks all but agree, "
    "and where there are no data they agree with a confidence that the posterior does not have."
)
NAMES = ("NUTS", "SGLD optimiser, T = 1", "cold, T = .01")
CLASSES = tuple((f"chain-{k}", f"class {k}") for k in range(3))


def ground(title: str) -> Panel:
    """The plane of the data, with the cross."""
    panel = Panel(title, 190)
    panel.axes.plot(*POINT[0], "x", color=COLOURS["ink"], markersize=7, markeredgewidth=1.6)
    panel.axes.set(xlim=X1[[0, -1]], ylim=X2[[0, -1]])
    panel.ticks("x")
    panel.ticks("y")
    return panel


def shade(panel: Panel, values: Any, levels: Any, colour: str) -> None:
    """Darker where `values`, on the map, are above more levels."""
    values = np.reshape(values, (len(X2), len(X1)))
    for level in levels:
        panel.axes.contourf(X1, X2, values, [level, 2], colors=COLOURS[colour], alpha=0.22)


def loop(truth: Any, warm: Any, cold: Any, chains: int, steps: int) -> Section:
    """The data, and what the networks say at the point."""
    data, point = ground("The data; the cross is (2, 2)"), truth["point"]["mean"]
    for k in range(3):
        data.axes.plot(*ROWS[k == LABELS].T, ".", color=COLOURS[f"chain-{k}"], markersize=3)
    at = [histogram(f"P(class 1 at (2, 2)), {name}", f["point"][:, 1], span=(0.6, 1), height=190)
          for name, f in (("T = 1", warm), ("T = .01", cold))]  # fmt: skip
    for panel in at:
        panel.axes.axvline(point[1], color=COLOURS["contrast"], linewidth=1.6)
    return Section("The network, in a training loop", (
        "Three clusters of 100 points, sd 1, around (0, 0), (3, 3) and (−3, 3); a network 2-16-3 with tanh; "
        "each weight and bias N(0, 1) a priori. The document shows an optimiser class that adds noise to "
        "SGD's step, and gives no numbers. The scale of that noise is all that matters: PyTorch's loss is a "
        "mean over rows, and steps of lr along its gradient with noise √(2 lr) have the law p^{1/N}, far too "
        "wide; noise divided by N gives a cold law. `sgld.torch.SGLD` is told N and makes the "
        "posterior's.",
        f"{chains} loops of {steps:,} steps, h = {H}, batches of {BATCH}, reshuffled each pass, first fifth "
        f"left out, every {EVERY}th network kept. At (2, 2), on the edge of cluster 1, the mean prediction is "
        f"{warm['p'][0, 1]:.3f} for class 1 and {warm['p'][0, 0]:.3f} for class 0; NUTS has {point[1]:.3f} and "
        f"{point[0]:.3f}. The networks do not agree: the histogram is of their probabilities.",
    ), (data, *at), (*CLASSES, ("accent-soft", "networks kept"), ("contrast", "mean of NUTS")))  # fmt: skip


def predictions(truth: Any, warm: Any, cold: Any) -> Section:
    """Maps of the classes' probabilities."""
    panels = []
    for name, p in zip(NAMES, (np.array(truth["map"]["mean"]), warm["p"][1:], cold["p"][1:]),
                       strict=True):  # fmt: skip
        panels.append(ground(name))
        for k in range(3):
            shade(panels[-1], p[:, k], (0.5, 0.7, 0.9), f"chain-{k}")
    return Section("The predictive distribution as a map", (
        f"NUTS: {truth['settings']['num_chains']} chains of {truth['settings']['num_draws']:,} draws, "
        f"{truth['num_gradients']:,} gradients of all rows; ESS of the predictions {truth['map']['ess']:,} or "
        "more. Shades begin at probability .5, .7 and .9.",
    ), tuple(panels), CLASSES)  # fmt: skip


def disagreement(truth: Any, warm: Any, cold: Any) -> Section:
    """Maps of the epistemic uncertainty."""
    panels, levels = [], (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
    found = (truth["map"]["epistemic"], warm["epistemic"][1:], cold["epistemic"][1:])
    for name, values in zip(NAMES, found, strict=True):
        panels.append(ground(name))
        shade(panels[-1], values, levels, "accent")
    return Section("Where the networks disagree", (
        "Epistemic uncertainty: the entropy of the mean prediction less the mean entropy of the networks, in "
        "nats, shaded from .05 in steps of .05. It is large between the clusters' far sides, where there are "
        f"no data, and small within them. {COLD}",
    ), tuple(panels))  # fmt: skip
