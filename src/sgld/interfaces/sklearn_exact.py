"""Linear regression with a normal prior of its coefficients: independent draws from the posterior.

    y_i | beta, sigma ~ N(x_i' beta, sigma^2 / w_i),     M beta ~ N(m, diag(s^2)),     sigma ~ half-normal

Given sigma the coefficients are normal, and the density of sigma, a single number, is known.
With beta = b0 + L u, u ~ N(0, I) a priori, and the singular values d of W^{1/2} X L = U diag(d) V',
a = U' W^{1/2} (y - X b0):

    u | sigma, y ~ V (d a + sigma sqrt(d^2 + sigma^2) xi) / (d^2 + sigma^2),     xi ~ N(0, I)
    log p(sigma | y) = log p(sigma) - n log sigma - sum_j log(1 + d_j^2 / sigma^2) / 2
                       - RSS / (2 sigma^2) - sum_j a_j^2 / (d_j^2 + sigma^2) / 2,     n = sum_i w_i

This method is used for few rows, and for outcomes that the columns explain exactly. In the latter
case sigma has no lower end above 0 that chains could find. It is bounded below by MIN_SIGMA_SDS sds
of the outcome, and the verdict says so if the bound affects the draws.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from ..regression.formula import DEFAULT_PRIOR_SDS
from ..regression.priors import normal
from ..results.draws import Draws
from ..results.verdict import Verdict
from .sklearn_models import Model, Rows

# lower bound of sigma, in sds of the outcome; rounding of float32 X and y gives about 1e-8
MIN_SIGMA_SDS = 1e-6
MAX_QUIET_SIGMA_SDS = 0.01  # sds of the outcome; smaller noise counts as almost none
# rows per coefficient below which the posterior is far from Gaussian
MIN_COEFFICIENT_ROWS = 10
EXACT_CHAINS, CHAIN_DRAWS = 4, 1000
SIGMA_GRID_POINTS = 4001
MAX_FLOORED_SHARE = 0.01  # share of draws at the lower bound above which the verdict reports it
EXACT_VERDICT = Verdict(
    "trusted", ("independent draws from the posterior itself, in closed form.",)
)


def is_for(model: Model, rows: Rows) -> bool:
    """Return whether this method applies: a normal prior, and few rows or almost no noise."""
    form = model.form
    known = form.density is None or form.density.func is normal
    if form.kind != "gaussian" or form.hidden or not known:
        return False
    if len(rows.y) < MIN_COEFFICIENT_ROWS * (len(form.names) + form.intercept):
        return True
    x, y, root = _whitened(model, rows)
    residual = y - x @ np.linalg.lstsq(x.T @ x, x.T @ y, rcond=None)[0]
    return bool(residual @ residual < MAX_QUIET_SIGMA_SDS**2 * (root @ root))


def _whitened(model: Model, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return W^{1/2} X with the intercept's column last, W^{1/2} y, and W^{1/2}, standardised."""
    root = np.sqrt(rows.weight)
    x = model.standard.columns(rows.x)
    if model.form.intercept:
        x = np.column_stack([x, np.ones(len(x))])
    return root[:, None] * x, root * model.standard.outcome(rows.y), root


def exact_draws(model: Model, rows: Rows, seed: int) -> Draws:
    """Return independent draws from the posterior of a regression, as four chains."""
    rng = np.random.default_rng(seed)
    x, y, _ = _whitened(model, rows)
    b0, L = _prior(model)
    # with fewer rows than columns, V's other columns span the directions without information
    U, d, Vt = np.linalg.svd(x @ L, full_matrices=len(x) < len(b0))
    rank, p = len(d), len(b0)
    r = y - x @ b0
    a = U[:, :rank].T @ r
    rss = float(np.sum((r - U[:, :rank] @ a) ** 2))
    sigma = _sigma(d, a, rss, float(rows.weight.sum()), rng.random(EXACT_CHAINS * CHAIN_DRAWS))
    d, a = (np.append(v, np.zeros(p - rank)) for v in (d, a))
    s2 = sigma[:, None] ** 2
    xi = rng.standard_normal((len(sigma), p))
    u = (d * a + sigma[:, None] * np.sqrt(d**2 + s2) * xi) / (d**2 + s2)
    beta = b0 + u @ Vt @ L.T
    position, verdict = _reported(model, beta, sigma), EXACT_VERDICT
    if np.quantile(sigma, MAX_FLOORED_SHARE) < 2 * MIN_SIGMA_SDS:
        verdict = replace(verdict, reasons=(*verdict.reasons, _held(model)))
    info = {"method": "exact", "num_data": len(rows.y), "num_steps": 0, "seed": seed}
    return Draws.of(position, names=model.form.parameters(), verdict=verdict, info=info)


def _held(model: Model) -> str:
    least = f"{MIN_SIGMA_SDS * model.standard.stretch:.2g}"
    return f"the columns explain the outcome exactly: sigma has no lower limit above 0 and was bounded below by {least}."


def _prior(model: Model) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, "p p"]]:
    """Return b0 and L of beta = b0 + L u, standardised."""
    form, at = model.form, model.standard
    p, intercept = len(form.names), int(form.intercept)
    center, sd = np.zeros(p + intercept), np.full(p + intercept, DEFAULT_PRIOR_SDS)
    if form.density is None:
        return center, np.diag(sd)
    m, s = (float(number) for number in form.density.args)
    to_slopes = at.stretch / at.scale  # original = matrix @ beta + offset
    matrix = np.diag(np.append(to_slopes, [at.stretch] * intercept))
    offset = np.zeros(p + intercept)
    center[:p], sd[:p] = m, s
    if intercept and form.slopes:
        matrix[p, p] = 1.0
    elif intercept:
        matrix[p, :p], offset[p] = -at.center * to_slopes, at.shift
        center[p], sd[p] = m, s
    inverse = np.linalg.inv(matrix)
    return inverse @ (center - offset), inverse * sd


def _sigma(
    d: np.ndarray, a: np.ndarray, rss: float, n: float, uniform: np.ndarray
) -> Float[np.ndarray, " S"]:
    """Draw sigma by inverting its distribution function on a grid of log sigma."""
    low, high = np.log(MIN_SIGMA_SDS), np.log(30.0)
    for _ in range(2):  # first locate the mass, then refine the grid there
        grid = np.linspace(low, high, SIGMA_GRID_POINTS)
        s2 = np.exp(2 * grid)[:, None]
        logs = (1 - n) * grid - 0.5 * (s2[:, 0] + rss / s2[:, 0])  # 1 is from d sigma / d log sigma
        logs -= 0.5 * np.sum(np.log1p(d**2 / s2) + a**2 / (d**2 + s2), axis=1)
        inside = np.flatnonzero(logs > logs.max() - 40)
        low, high = grid[max(inside[0] - 1, 0)], grid[min(inside[-1] + 1, SIGMA_GRID_POINTS - 1)]
    density = np.exp(logs - logs.max())
    area = np.append(0.0, np.cumsum(density[1:] + density[:-1]))
    return np.exp(np.interp(uniform, area / area[-1], grid))


def _reported(model: Model, beta: np.ndarray, sigma: np.ndarray) -> dict[str, np.ndarray]:
    at, p = model.standard, len(model.form.names)
    position = {"coef": at.stretch * beta[:, :p] / at.scale}
    if model.form.intercept:
        position["intercept"] = at.shift + at.stretch * beta[:, p] - position["coef"] @ at.center
    position["sigma"] = at.stretch * sigma
    return {
        name: v.reshape(EXACT_CHAINS, CHAIN_DRAWS, *v.shape[1:]) for name, v in position.items()
    }
