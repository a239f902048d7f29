"""What is known about a posterior: mean, sd and the 5, 50 and 95 % quantiles of every parameter.

From a law of scipy, a density on a grid, a mixture of normals (a posterior that is normal given
one parameter), or a stored long NUTS run (`benchmarks/references.json`, made by references.py).
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import special

QUANTILES = (0.05, 0.5, 0.95)
STORED = Path(__file__).parents[1] / "references.json"


class Marginal(NamedTuple):
    """One parameter's."""

    mean: float
    sd: float
    q05: float
    q50: float
    q95: float


class Truth(NamedTuple):
    """Arrays over the reported parameters in the order of `draws.names`; where they come from;
    the seconds that it took, where that is known."""

    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray  # [3, m]
    origin: str
    seconds: float | None = None


class Problem(NamedTuple):
    """What `sgld.sample` takes, and the truth (None: a stored NUTS run, see `truth_of`)."""

    name: str
    posterior: Any
    data: Any
    init: Any
    truth: Truth | None


def bundled(name: str) -> np.ndarray:
    """The numbers of a csv file of the package."""
    with (resources.files("sgld.data.bundled") / name).open() as file:
        return np.loadtxt(file, delimiter=",", skiprows=1)


def truth(marginals: Any, origin: str) -> Truth:
    """From a pytree of Marginal like the position."""
    leaves = jax.tree.leaves(marginals, is_leaf=lambda node: isinstance(node, Marginal))
    table = np.array(leaves, float)
    return Truth(table[:, 0], table[:, 1], table[:, 2:].T, origin)


def law(frozen: Any) -> Marginal:
    """Of a frozen law of scipy.stats."""
    return Marginal(
        float(frozen.mean()), float(frozen.std()), *(float(q) for q in frozen.ppf(QUANTILES))
    )


def normals(mean: np.ndarray, covariance: np.ndarray) -> Truth:
    """A Gaussian posterior, in closed form."""
    sd = np.sqrt(np.diag(covariance))
    quantiles = mean + special.ndtri(QUANTILES)[:, None] * sd
    return Truth(np.asarray(mean, float), sd, quantiles, "closed form")


def grid(x: np.ndarray, density: np.ndarray) -> Marginal:
    """A density, of any scale, at increasing points x, by the trapezium rule."""
    cells = 0.5 * (density[1:] + density[:-1]) * np.diff(x)
    total = cells.sum()
    mean = np.trapezoid(x * density, x) / total
    variance = np.trapezoid((x - mean) ** 2 * density, x) / total
    below = np.concatenate([[0.0], np.cumsum(cells)]) / total
    return Marginal(mean, np.sqrt(variance), *np.interp(QUANTILES, below, x))


def mixture(weight: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> Marginal:
    """sum_k weight_k N(mean_k, sd_k^2): the marginal of what is normal given a grid's parameter."""
    weight = weight / weight.sum()
    middle = float(weight @ mean)
    spread = float(np.sqrt(weight @ (sd**2 + (mean - middle) ** 2)))
    found = []
    for q in QUANTILES:
        low, high = middle - 50 * spread, middle + 50 * spread
        for _ in range(60):  # bisection: 100 spreads / 2^60
            x = 0.5 * (low + high)
            if weight @ special.ndtr((x - mean) / sd) < q:
                low = x
            else:
                high = x
        found.append(x)
    return Marginal(middle, spread, *found)


def fingerprint(problem: Problem) -> float:
    """The log posterior at init: a stored truth of another model or other data is refused."""
    p = problem.posterior
    value = p.log_prior(problem.init)
    if problem.data is not None:
        value = value + jax.vmap(p.log_likelihood, (None, 0))(problem.init, problem.data).sum()
    return float(value)


def stored() -> dict[str, Any]:
    """references.json; empty where there is none yet."""
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def truth_of(problem: Problem) -> Truth | None:
    """The problem's own, or the stored NUTS run; None where it has not been run.

    Raises ValueError where the stored one is of another model.
    """
    if problem.truth is not None:
        return problem.truth
    found = stored().get(problem.name)
    if found is None:
        return None
    now = fingerprint(problem)
    if not np.isclose(now, found["fingerprint"], rtol=1e-3):
        raise ValueError(
            f"the stored reference of {problem.name!r} is of another model or other data (log "
            f"posterior at init {found['fingerprint']:.6g}, now {now:.6g}); run "
            f"`python benchmarks/references.py --only {problem.name}`."
        )
    quantiles = np.array([found["q05"], found["q50"], found["q95"]])
    origin = "NUTS" if found["word"] == "trusted" else f"NUTS, {found['word']}"
    return Truth(
        np.array(found["mean"]), np.array(found["sd"]), quantiles, origin, found["seconds"]
    )
