"""X8: three Gaussian clusters, a small network sampled by the PyTorch optimiser.

The network is written twice: in JAX for NUTS, and in a PyTorch training loop.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgld
from sgld.errors import need
from sgld.gallery import Check, Entry, Section
from sgld.gallery.page import COLOURS, Panel, histogram

# -- x8 network ----------------------------------------------------------------------------


# step size; rows a step; steps between kept draws
H, X8_BATCH_ROWS, STEPS_BETWEEN_KEPT = 1e-3, 100, 50
CENTRES, POINTS_PER_CLASS, UNITS = np.array([[0.0, 0.0], [3.0, 3.0], [-3.0, 3.0]]), 100, 16
POINT = np.array([[2.0, 2.0]])
X1, X2 = np.linspace(-8, 8, 25), np.linspace(-5, 8, 21)
PREDICTION_GRID = np.stack(np.meshgrid(X1, X2), axis=-1).reshape(-1, 2)
LABELS = np.repeat(np.arange(3), POINTS_PER_CLASS)
POINTS = CENTRES[LABELS] + np.random.default_rng(8).standard_normal((3 * POINTS_PER_CLASS, 2))


def logits(w: Any, x: Any) -> Any:
    """Evaluate the network, 2-16-3 with tanh."""
    return jnp.tanh(x @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]


def problem() -> tuple[sgld.Posterior, Any, dict[str, Any]]:
    """Return the network's posterior in JAX, data and a start, for NUTS: the truth."""
    shapes = {"b1": (UNITS,), "b2": (3,), "w1": (2, UNITS), "w2": (UNITS, 3)}
    keys = jax.random.split(jax.random.key(8), len(shapes))
    init = {
        name: 0.5 * jax.random.normal(key, shape, jnp.float32)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    posterior = sgld.Posterior(
        lambda w: -0.5 * jax.tree.reduce(jnp.add, jax.tree.map(lambda leaf: jnp.sum(leaf**2), w)),
        lambda w, row: jax.nn.log_softmax(logits(w, row[0]))[row[1]],
    )
    return posterior, (POINTS.astype(np.float32), LABELS.astype(np.int32)), init


def train(temperature: float, chains: int, steps: int, seed: int) -> Any:
    """Collect an Ensemble from `chains` training loops after their first fifth."""
    torch, optim = need("torch", "torch"), sgld.torch
    x, y = torch.tensor(POINTS, dtype=torch.float32), torch.tensor(LABELS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        nets = [
            torch.nn.Sequential(
                torch.nn.Linear(2, UNITS), torch.nn.Tanh(), torch.nn.Linear(UNITS, 3)
            )
            for _ in range(chains)
        ]
        ensemble = optim.Ensemble(nets[0])
        for chain, net in enumerate(nets):
            optimizer = optim.SGLD(
                net.parameters(), step_size=H, num_data=len(y), prior_precision=1.0,
                temperature=temperature, seed=1000 * seed + chain,
            )  # fmt: skip
            step = 0
            while step < steps:
                for rows in torch.randperm(len(y)).split(X8_BATCH_ROWS):  # a pass over the data
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
                    optimizer.step()
                    step += 1
                    if step > steps / 5 and step % STEPS_BETWEEN_KEPT == 0:
                        ensemble.collect(optimizer, model=net)
    return ensemble


def predict(ensemble: Any) -> dict[str, np.ndarray]:
    """Return probabilities and epistemic uncertainty at the point, per draw, and on the map."""
    torch = need("torch", "torch")
    places = torch.tensor(np.concatenate([POINT, PREDICTION_GRID]), dtype=torch.float32)
    found = ensemble.predict_classes(places)
    return {
        "p": found.probabilities.numpy(), "epistemic": found.epistemic.numpy(),
        "point": ensemble.outputs(places[:1])[:, 0].softmax(-1).numpy(),
    }  # fmt: skip


# -- x8 page -------------------------------------------------------------------------------


COLD = (
    "At temperature .01 the law is the posterior to the power of 100: the networks all but agree, "
    "and where there are no data they agree with a confidence that the posterior does not have."
)
SAMPLER_NAMES = ("NUTS", "SGLD optimiser, T = 1", "cold, T = .01")
CLASS_LABELS = tuple((f"chain-{k}", f"class {k}") for k in range(3))


def ground(title: str) -> Panel:
    """Plot the plane of the data, with the cross."""
    panel = Panel(title, 190)
    panel.axes.plot(*POINT[0], "x", color=COLOURS["ink"], markersize=7, markeredgewidth=1.6)
    panel.axes.set(xlim=X1[[0, -1]], ylim=X2[[0, -1]])
    panel.ticks("x")
    panel.ticks("y")
    return panel


def shade(panel: Panel, values: Any, levels: Any, colour: str) -> None:
    """Shade the map darker the more levels `values` exceeds."""
    values = np.reshape(values, (len(X2), len(X1)))
    for level in levels:
        panel.axes.contourf(X1, X2, values, [level, 2], colors=COLOURS[colour], alpha=0.22)


def loop(truth: Any, warm: Any, cold: Any, chains: int, steps: int) -> Section:
    """Plot the data, and the predictions of the networks at the point."""
    data, point = ground("The data; the cross is (2, 2)"), truth["point"]["mean"]
    for k in range(3):
        data.axes.plot(*POINTS[k == LABELS].T, ".", color=COLOURS[f"chain-{k}"], markersize=3)
    at = [histogram(f"P(class 1 at (2, 2)), {name}", f["point"][:, 1], span=(0.6, 1), height=190)
          for name, f in (("T = 1", warm), ("T = .01", cold))]  # fmt: skip
    for panel in at:
        panel.axes.axvline(point[1], color=COLOURS["contrast"], linewidth=1.6)
    return Section("The network, in a training loop", (
        "Three clusters of 100 points, sd 1, around (0, 0), (3, 3) and (−3, 3); a network 2-16-3 with tanh; "
        "each weight and bias N(0, 1) a priori. The document shows an optimiser class that adds noise to "
        "SGD's step, and gives no numbers. The scale of that noise is all that matters: PyTorch's loss is a "
        "mean over rows, and steps of lr along its gradient with noise √(2 lr) have the law p^{1/N}, far too "
        "wide; noise divided by N gives a cold law. `sgld.torch.SGLD` gets N and makes the "
        "posterior's.",
        f"{chains} loops of {steps:,} steps, h = {H}, batches of {X8_BATCH_ROWS}, reshuffled each pass, first fifth "
        f"left out, every {STEPS_BETWEEN_KEPT}th network kept. At (2, 2), on the edge of cluster 1, the mean prediction is "
        f"{warm['p'][0, 1]:.3f} for class 1 and {warm['p'][0, 0]:.3f} for class 0; NUTS has {point[1]:.3f} and "
        f"{point[0]:.3f}. The networks do not agree: the histogram is of their probabilities.",
    ), (data, *at), (*CLASS_LABELS, ("accent-soft", "networks kept"), ("contrast", "mean of NUTS")))  # fmt: skip


def predictions(truth: Any, warm: Any, cold: Any) -> Section:
    """Plot maps of the probabilities of the classes."""
    panels = []
    for name, p in zip(SAMPLER_NAMES, (np.array(truth["map"]["mean"]), warm["p"][1:], cold["p"][1:]),
                       strict=True):  # fmt: skip
        panels.append(ground(name))
        for k in range(3):
            shade(panels[-1], p[:, k], (0.5, 0.7, 0.9), f"chain-{k}")
    return Section("The predictive distribution as a map", (
        f"NUTS: {truth['settings']['num_chains']} chains of {truth['settings']['num_draws']:,} draws, "
        f"{truth['num_gradients']:,} gradients of all rows; ESS of the predictions {truth['map']['ess']:,} or "
        "more. Shades begin at probability .5, .7 and .9.",
    ), tuple(panels), CLASS_LABELS)  # fmt: skip


def disagreement(truth: Any, warm: Any, cold: Any) -> Section:
    """Plot maps of the epistemic uncertainty."""
    panels, levels = [], (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
    found = (truth["map"]["epistemic"], warm["epistemic"][1:], cold["epistemic"][1:])
    for name, values in zip(SAMPLER_NAMES, found, strict=True):
        panels.append(ground(name))
        shade(panels[-1], values, levels, "accent")
    return Section("Where the networks disagree", (
        "Epistemic uncertainty: the entropy of the mean prediction less the mean entropy of the networks, in "
        "nats, shaded from .05 in steps of .05. It is large between the clusters' far sides, where there are "
        f"no data, and small within them. {COLD}",
    ), tuple(panels))  # fmt: skip


# -- x8 ------------------------------------------------------------------------------------


TITLE = "A small network sampled by a PyTorch optimiser"
LEAD = (
    "An ordinary training loop with `sgld.torch.SGLD` gives the predictive distribution of a long "
    "NUTS run of the same network, and its map of where the networks disagree. A cold one does not."
)
NEEDS = ("torch",)


def run(quick: bool = False, seed: int = 0) -> Entry:
    """Compare the posterior and a cold one, sampled by the optimiser, with long NUTS."""
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
    checks = (*compare("T = 1", truth, warm), *compare("cold, T = .01", truth, cold, COLD))
    sections = (
        loop(truth, warm, cold, chains, steps),
        predictions(truth, warm, cold),
        disagreement(truth, warm, cold),
    )
    return Entry(TITLE, LEAD, sections, checks)


def compare(name: str, truth: Any, found: Any, reason: str | None = None) -> list[Check]:
    """Check predictions at the point and on the map against NUTS."""
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
