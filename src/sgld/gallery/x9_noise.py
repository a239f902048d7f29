"""X9's first part: Welling & Teh's two noises, and what Metropolis would reject."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import sgld
from sgld.gallery import Check, Section, x4_model
from sgld.gallery.draw import COLOURS, WIDE, Panel, lines


def noise_crossing(updates: int, seed: int) -> tuple[list[Check], Section]:
    """The mixture of X4 with batches of 1: both noises along the run, and the rejection rate."""
    posterior = sgld.Posterior(x4_model.log_prior, x4_model.log_likelihood)
    data = x4_model.DATA.astype(np.float32)
    h = sgld.polynomial_between(0.005, 0.00005, updates, 0.55)
    draws = sgld.sample(
        posterior, data, jnp.ones(2, jnp.float32), sampler=sgld.SGLD(None), batch_size=1, step_size=h,
        gradient=sgld.Minibatch(), burn_in=0, thin=updates // 2000, num_draws=2000, seed=seed,
        progress=False,
    )  # fmt: skip
    phase = draws.phase
    assert phase is not None
    ends = [
        sgld.gradient_statistics(posterior, data, jnp.asarray(w)) for w in draws.position[:, -1]
    ]
    formula = np.mean([s.alpha(phase.step_size[-1], 1, replacement=False) for s in ends])
    sizes = np.geomspace(1e-3, 0.2, 10)
    rates = sgld.rejection_rate(posterior, data, draws, sizes, num_proposals=4000, seed=seed)
    slope = np.polyfit(np.log(sizes[:4]), np.log(rates[:4]), 1)[0]
    checks = [
        Check.in_ratio("mixture: α at the end, against W&T's formula", formula, phase.alpha[-1].mean(), 0.1),
        Check.in_value("mixture: α ends below 1", 0, phase.alpha[-1].max(), 1),
        Check.in_value("mixture: rejection rate, power of h", 1.5, slope, 0.25),
    ]  # fmt: skip
    text = (
        "The mixture of X4, batches of 1, ε = 2h from .01 to .0001. A step adds injected noise of variance 2h "
        "and gradient noise of variance up to h² λ_{max}, λ_{max} of the gradient's covariance N² V_S / n. The "
        "first falls as h, the second as h²: they cross, and α = h λ_{max} / 2, their ratio, tells the phase. "
        f"`draws.phase` measures it in every run: {phase.sentence()}.",
        "The paper's second plot counts how often Metropolis would reject such a step (with exact gradients). "
        "It falls as h^{3/2}, which is why small steps need no rejection.",
    )
    figures = (noises(phase), rejections(sizes, rates))
    return checks, Section("Two noises, and when they cross", text, figures)


def noises(phase: Any) -> Panel:
    """Injected variance, and each chain's gradient noise, along the run."""
    at, step = phase.step_size, phase.step + 1
    curves = [("injected, 2h", step, 2 * at)]
    curves += [("gradient, four chains" if c == 0 else "", step, at**2 * level)
               for c, level in enumerate(phase.level.T)]  # fmt: skip
    styles = [{"color": COLOURS["contrast"]}, *[{"color": COLOURS["accent"], "linewidth": 0.8}] * 4]
    return lines(
        "Variance of the noises", curves, styles=styles, log="xy", xlabel="update", width=WIDE
    )


def rejections(sizes: np.ndarray, rates: np.ndarray) -> Panel:
    """The share of steps of each size that Metropolis would reject."""
    styles = [{"color": COLOURS["accent"], "marker": "o", "markersize": 3}]
    return lines("Share of moves Metropolis would reject", [("", sizes, rates)], styles=styles,
                 log="xy", xlabel="step size h", width=WIDE)  # fmt: skip
