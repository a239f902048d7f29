"""Draw the pictures of docs/verdict.md: four runs next to the posterior they should follow.

    python docs/pictures.py [FOLDER]     write the PNG files, by default to docs/images

Every posterior here is known in closed form, so that a picture can show the truth. A run that you make has no
such curve: the verdict stands in for it. Only the public interface of sgld is used.
"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import sgld

TRACE_DRAWS = 200  # of each chain in the panel on the left
COLOURS = {"trusted": "#2e7d32", "biased": "#b3261e", "not mixed": "#a15c00", "unknown": "#5b4b9a"}


def regression() -> tuple[sgld.Posterior, Any, float, float]:
    """Return a linear regression with two slopes, its data, and the exact mean and sd of the first slope."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 2)).astype(np.float32)
    y = (x @ np.array([1.0, -0.5]) + rng.normal(size=2000)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda b: -0.5 * jnp.sum(b**2), lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2
    )
    covariance = np.linalg.inv(np.eye(2) + x.T @ x)
    return posterior, (x, y), float((covariance @ x.T @ y)[0]), float(np.sqrt(covariance[0, 0]))


def two_modes() -> sgld.Posterior:
    """Return 0.7 N(0, 1) + 0.3 N(12, 1)."""
    return sgld.Posterior(
        lambda t: jnp.logaddexp(jnp.log(0.7) - 0.5 * t**2, jnp.log(0.3) - 0.5 * (t - 12.0) ** 2)
    )


def normal(x: np.ndarray, mean: float, sd: float) -> np.ndarray:
    """Return the density of N(mean, sd^2)."""
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))


def picture(draws: sgld.Draws, values: np.ndarray, x: np.ndarray, density: np.ndarray) -> Figure:
    """Return traces of the chains on the left, and all draws next to the posterior on the right.

    Args:
      draws: the run, for its verdict and the numbers in the title.
      values: [chain, draw], one parameter of it.
      x, density: [point], the exact posterior of that parameter.
    """
    colour = COLOURS[draws.verdict.word]
    figure = Figure((7.2, 2.5), layout="constrained")
    trace, marginal = figure.subplots(1, 2, width_ratios=(1.2, 1))
    every = max(1, values.shape[1] // TRACE_DRAWS)
    for chain in values[:4]:
        trace.plot(np.arange(0, values.shape[1], every), chain[::every], lw=0.6)
    trace.set(xlabel="draw of each chain", ylabel="parameter")
    marginal.hist(
        values.ravel(),
        bins=60,
        density=True,
        color=colour,
        alpha=0.4,
        label="draws",
        range=(x[0], x[-1]),
    )
    marginal.plot(x, density, color="black", lw=1.2, label="posterior")
    marginal.set(xlabel="parameter", yticks=[])
    marginal.legend(fontsize=8, frameon=False)
    row = next(iter(draws.summary().parameters.values()))
    ratio = "-" if row["sd_ratio"] is None else f"{row['sd_ratio']:.2f}"
    figure.suptitle(
        f"{draws.verdict.word}:  R-hat {row['r_hat']:.2f},  ESS {row['ess_bulk']:,.0f},  sd_ratio {ratio}",
        color=colour, fontsize=11,
    )  # fmt: skip
    return figure


def pictures() -> dict[str, Figure]:
    """Return the four pictures by the name of their file."""
    posterior, data, mean, sd = regression()
    settings = {
        "verdict-trusted": {},
        "verdict-biased": {"step_size": 1e-4, "num_draws": 4000},
        "verdict-not-mixed": {"step_size": 1e-7, "num_draws": 2000},
    }
    found = {}
    for name, given in settings.items():
        draws = sgld.sample(posterior, data, jnp.zeros(2), progress=False, **given)
        values = np.asarray(draws.position)[..., 0]
        x = np.linspace(mean - 5 * sd, mean + 5 * sd, 400)
        found[name] = picture(draws, values, x, normal(x, mean, sd))
    draws = sgld.sample(two_modes(), None, jnp.array(0.0), sampler=sgld.SGLD(), progress=False)
    x = np.linspace(-5.0, 17.0, 600)
    density = 0.7 * normal(x, 0.0, 1.0) + 0.3 * normal(x, 12.0, 1.0)
    found["verdict-hidden-mass"] = picture(draws, np.asarray(draws.position), x, density)
    return found


def main(folder: Path) -> None:
    """Write the pictures to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures().items():
        drawn = BytesIO()
        figure.savefig(drawn, dpi=100)
        few_colours = Image.open(drawn).convert("RGB").quantize(64)  # a third of the bytes
        few_colours.save(folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images")
