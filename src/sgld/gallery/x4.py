"""X4: Keng's tied-means mixture: grid, NUTS, SGD, SGLD with decaying steps, replica exchange."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import sgld
from sgld.gallery import Check, Entry, x4_model, x4_page
from sgld.gallery.x4_model import MODES, PRINTED_END, share

TITLE = "A mixture with tied means: two modes, and samplers that see one"
LEAD = (
    "Each mode holds half of the posterior. SGLD with decaying steps ends up reporting whichever "
    "share it happened to see; chains that exchange states with hotter ones report the right one."
)
STALLED = "The document's SGD had stalled: it stopped on its way to the mode."
STATED = (
    ("mean of θ₁", "m1", 0.48999), ("mean of θ₂", "m2", 0.05930), ("sd of θ₁", "sd1", 0.7695),
    ("sd of θ₂", "sd2", 1.5097), ("P(θ₂ > 0)", "up", 0.5185), ("log Z", "z", -198.74766),
)  # fmt: skip
H = 0.005  # of replica exchange
OPTIONS: dict[str, Any] = {"progress": False}


def run(quick: bool = False, seed: int = 0) -> Entry:
    """Grid, SGD's path, NUTS, SGLD as printed, and replica exchange."""
    density, truth = x4_model.exact()
    posterior = sgld.Posterior(x4_model.log_prior, x4_model.log_likelihood)
    data, start = x4_model.DATA.astype(np.float32), jnp.ones(2, jnp.float32)

    def descend(h: float, steps: int) -> sgld.Mode:
        return sgld.find_map(
            posterior, data, start, optimizer=optax.sgd(h), num_steps=steps, record=1
        )

    sgd, slow = descend(0.01, 300), descend(1e-4, 12_000)
    path = np.asarray(slow.path)
    off = np.linalg.norm(path - PRINTED_END, axis=1)
    nuts = sgld.reference(posterior, data, start, num_warmup=1000 if quick else 2000,
                          num_draws=2500 if quick else 5000, seed=seed, **OPTIONS)  # fmt: skip
    updates, found = 100_000 if quick else 1_000_000, {}
    for m in (1, 10, 100):
        found[m] = sgld.sample(
            posterior, data, start, sampler=sgld.SGLD(None), batch_size=m, burn_in=0,
            gradient=sgld.Full() if m == 100 else sgld.Minibatch(), num_chains=4, seed=seed,
            step_size=sgld.polynomial_between(0.005, 0.00005, updates, 0.55),
            thin=updates // 10_000, num_draws=10_000, **OPTIONS,
        )  # fmt: skip
    swaps = sgld.sample(
        posterior, data, start, sampler=sgld.ReplicaExchange((1.0, 3.0, 9.0)), gradient=sgld.Full(),
        step_size=H, num_chains=64, burn_in=2000, thin=20, num_draws=800 if quick else 4000,
        seed=seed, **OPTIONS,
    )  # fmt: skip
    sections = (
        x4_page.descent(density, truth, path, off),
        x4_page.decaying(density, truth, nuts, found, updates),
        x4_page.exchange(density, swaps, H),
    )
    checks = (*of_descent(truth, sgd.position, off), *of_draws(truth, nuts, found, swaps))
    return Entry(TITLE, LEAD, sections, checks)


def of_descent(truth: dict[str, float], end: Any, off: np.ndarray) -> list[Check]:
    """The grid's own numbers, to the places stated, and where gradient descent ends."""
    checks = [Check.in_value(f"grid: {name}", stated, truth[key], 1e-4)
              for name, key, stated in STATED]  # fmt: skip
    for i, name in enumerate(("θ₁", "θ₂")):
        checks += [
            Check.in_value(f"SGD, h = .01, 300 epochs: {name}", MODES[0][i], end[i], 0.001),
            Check.in_value(f"SGD, end as printed: {name}", MODES[0][i], PRINTED_END[i], 0.001, STALLED),
        ]  # fmt: skip
    return [*checks, Check.in_value("printed end: distance to SGD's path", 0, off.min(), 0.001)]


def of_draws(truth: dict[str, float], nuts: sgld.Draws, found: dict[int, sgld.Draws],
             swaps: sgld.Draws) -> list[Check]:  # fmt: skip
    """The modes' shares, and the moments of replica exchange."""
    checks = [Check.in_value("NUTS: P(θ₂ > 0)", truth["up"], share(nuts).mean(), 0.1)]
    for m, draws in found.items():
        worst = max(share(draws), key=lambda p: abs(p - truth["up"]))
        name = f"SGLD, m = {m}: P(θ₂ > 0), farthest chain"
        checks.append(Check.in_value(name, truth["up"], worst, 0.03, x4_page.STUCK))
    for name, i in (("θ₁", "1"), ("θ₂", "2")):
        x = np.asarray(swaps.position, float)[..., int(i) - 1]
        sd = truth["sd" + i]
        checks += [
            Check.in_sd(f"exchange: mean of {name}", truth["m" + i], x.mean(), sd, 0.06),
            Check.in_ratio(f"exchange: sd of {name}", sd, x.std(), 0.05),
        ]
    return [*checks, Check.in_value("exchange: P(θ₂ > 0)", truth["up"], share(swaps).mean(), 0.03)]
