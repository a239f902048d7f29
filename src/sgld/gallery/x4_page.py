"""X4's text and figures."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.ndimage import gaussian_filter

import sgld
from sgld.gallery import Section
from sgld.gallery.draw import COLOURS, Panel, histogram, lines
from sgld.gallery.x4_model import AXES, DATA, MODES, PRINTED_END, log_likelihood, share

STUCK = (
    "Steps that fall to .00005 cannot cross between the modes any more: what one chain reports is "
    "how its time, weighted by the steps, happened to be shared, not the posterior's weights."
)
EXACT = ("contrast", "exact, on a grid")
KEY = (("accent", "draws"), EXACT)


def plane(title: str, density: np.ndarray, draws: Any = None, weights: Any = None) -> Panel:
    """Level lines of the exact density, over draws [n, 2] as shaded levels."""
    panel = Panel(title, 190, xlabel="θ₁", ylabel="θ₂")
    levels = density.max() * np.array([0.05, 0.2, 0.4, 0.6, 0.8])
    if draws is not None:
        spans = [(axis[0], axis[-1]) for axis in AXES]
        found, x, y = np.histogram2d(
            draws[:, 0], draws[:, 1], [60, 80], spans, density=True, weights=weights
        )
        middles = (x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2
        smooth = gaussian_filter(found, 1.0).T
        for level in levels:  # one colour, darker where denser
            panel.axes.contourf(*middles, smooth, [level, 1e9], colors=COLOURS["accent"], alpha=0.2)
    panel.axes.contour(*(a[::5] for a in AXES), density[::5, ::5].T, levels,
                       colors=COLOURS["contrast"], linewidths=0.9)  # fmt: skip
    panel.axes.set(xlim=(-1.8, 2.8), ylim=(-4.2, 4.2))
    panel.ticks("x")
    panel.ticks("y")
    return panel


def descent(density: np.ndarray, truth: dict[str, float], path: np.ndarray, off: Any) -> Section:
    """The data, the posterior, and gradient descent's `path` beside the printed end."""
    likelihood = [lambda x, t=t: np.exp([log_likelihood(jnp.float32(t), jnp.float32(v)) for v in x])
                  for t in MODES]  # fmt: skip
    panel = plane("SGD's path, and where it stopped", density)
    panel.axes.plot(*path[::20].T, color=COLOURS["accent"], linewidth=1.4)
    panel.axes.plot(*PRINTED_END, "x", color=COLOURS["ink"], markersize=8, markeredgewidth=1.6)
    return Section("Data, posterior and SGD", (
        "100 numbers from .5 N(0, 2.56) + .5 N(1, 2.56), modelled as .5 N(θ₁, 2) + .5 N(θ₁ + θ₂, 2) "
        "with θ₁ ~ N(0, 10) and θ₂ ~ N(0, 1). The likelihood does not change under (θ₁, θ₂) → "
        "(θ₁ + θ₂, −θ₂), which exchanges the two parts; only the priors tell the modes apart. The two "
        "fitted densities over the data all but coincide.",
        f"In two dimensions a grid gives everything: P(θ₂ > 0) = {truth['up']:.4f}, log evidence "
        f"{truth['z']:.5f}. The document reads its posterior as too few data for the peak at (0, 1).",
        "Its SGD (batch 100, that is all rows; rate .01; 300 epochs; start (1, 1)) ended at "
        f"(−.2327, 1.5129), “pretty much our first mode”. That point (cross) lies within {off.min():.1g} of "
        f"the path of gradient descent, at time {1e-4 * off.argmin():.2f} in units of step size × steps, "
        f"but {np.linalg.norm(PRINTED_END - MODES[0]):.3f} from the mode: its rate was too small for its "
        "epochs. With h = .01 on the gradient of the whole posterior 300 steps arrive.",
    ), (histogram("The data, and both modes' densities", DATA, likelihood, bins=20, height=190),
        panel), (EXACT,))  # fmt: skip


def decaying(
    density: np.ndarray, truth: dict[str, float], nuts: sgld.Draws, found: dict[int, sgld.Draws],
    updates: int,
) -> Section:  # fmt: skip
    """NUTS, and of SGLD at each batch size the chain farthest from right."""
    shares = {m: ", ".join(f"{p:.2f}" for p in share(draws)) for m, draws in found.items()}
    worst = [(m, d, int(np.argmax(np.abs(share(d) - truth["up"])))) for m, d in found.items()]
    kept = found[100]
    traces = [(f"chain {c + 1}", kept.step[::25], kept.position[c, ::25, 1]) for c in range(4)]
    colours = [{"color": COLOURS[f"chain-{c}"], "linewidth": 0.8} for c in range(4)]
    return Section("NUTS, and SGLD as printed", (
        f"NUTS crosses between the modes; its four chains say P(θ₂ > 0) = {share(nuts).mean():.3f}.",
        f"SGLD with h from .005 to .00005 (γ = .55) over {updates:,} updates, averages weighted by the "
        "steps. The document gives .01 and .0001 as “a” and “b”; they are the first and the last ε = 2h "
        "of a (b + t)^{−γ}. It saw one run per batch size, and batch sizes that “prefer” a mode. "
        f"Four chains each show what that is: P(θ₂ > 0) = {shares[1]} at m = 1, {shares[10]} at "
        f"m = 10, {shares[100]} at m = 100, where {truth['up']:.3f} is right. The batch size hardly "
        f"matters (the runs share their injected noise); the chain does; the farthest from "
        f"right is drawn. {STUCK} The document's reading, right shape and wrong weights, is fair.",
    ), (plane("NUTS", density, flat(nuts)), *(
        plane(f"SGLD, m = {m}, chain {c + 1}", density, np.asarray(d.position[c], float),
              np.exp(d.log_weight[c])) for m, d, c in worst),
        lines("θ₂ of four chains, m = 100", traces, styles=colours, xlabel="update",
              legend=None, height=190)), KEY)  # fmt: skip


def exchange(density: np.ndarray, swaps: sgld.Draws, h: float) -> Section:
    """Replica exchange."""
    return Section("The same model, well sampled", (
        "Replica exchange: beside each chain at T = 1 run two at T = 3 and T = 9, where the valley between "
        "the modes is shallow, and neighbours exchange positions by Metropolis's rule. Energies must be "
        f"exact for that, so gradients are of all 100 rows. {swaps.num_chains} such chains of "
        f"{swaps.info['num_steps']:,} steps with h = {h} say P(θ₂ > 0) = {share(swaps).mean():.4f}.",
        "A constant step widens a direction of curvature λ by about hλ/4 of its sd: here 6% across each "
        "mode (λ = 50), .5% along it (λ = 4).",
    ), (plane("Replica exchange", density, flat(swaps)),), KEY)  # fmt: skip


def flat(draws: sgld.Draws) -> np.ndarray:
    """All chains' draws, [n, 2]."""
    return np.asarray(draws.position, float).reshape(-1, 2)
