"""X9: Welling & Teh (2011): noise crossing, rejection rates, logistic regression, natural ICA."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sgld
from sgld.errors import DataError, need
from sgld.gallery import Check, Entry, Section, x4
from sgld.gallery.data import columns
from sgld.gallery.draw import COLOURS, WIDE, Panel, lines

TITLE = "Welling & Teh: crossing noises, logistic regression, independent components"
LEAD = (
    "The three experiments that introduced SGLD: when gradient noise sinks below the injected, how "
    "fast a logistic regression settles, and independent components by a natural gradient."
)
BATCH, SWEEPS = 10, 60
QUIET: dict[str, Any] = {"progress": False}


# -- logistic regression ----------------------------------------------------------------------


def load_table(path: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """X [N, d] and y [N] (0 or 1) of one's own data: a libsvm file (.csv: a head, label last).

    The larger of the two labels is 1. Raises DataError, naming the line, for one it cannot read.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}; give a .csv or a libsvm file.")
    with open(path, newline="", encoding="utf-8") as file:
        read = _csv_rows if path.suffix.lower() == ".csv" else _libsvm_rows
        rows = read(file)
    width = max((max(row, default=0) for _, row in rows), default=0)
    labels = np.unique([label for label, _ in rows])
    if len(labels) != 2:
        raise DataError(f"{path.name} must hold two labels. Got {len(labels)} in {len(rows)} rows.")
    X = np.zeros((len(rows), width), np.float32)
    for i, (_, row) in enumerate(rows):
        for j, value in row.items():
            X[i, j - 1] = value
    return X, np.array([label == labels[1] for label, _ in rows], np.float32)


def _libsvm_rows(file: Any) -> list[tuple[float, dict[int, float]]]:
    rows = []
    for number, line in enumerate(file, 1):
        cells = line.split("#")[0].split()
        if not cells:
            continue
        try:
            pairs = [cell.split(":") for cell in cells[1:]]
            row = {int(j): float(value) for j, value in pairs}
            good = min(row, default=1) >= 1 and np.isfinite([float(cells[0]), *row.values()]).all()
        except ValueError:
            good, row = False, {}
        if not good or len(row) < len(cells) - 1:
            raise DataError(
                f"line {number} must be `label index:value ...` with indices from 1, each once. "
                f"Got {line.strip()[:60]!r}."
            )
        rows.append((float(cells[0]), row))
    return rows


def _csv_rows(file: Any) -> list[tuple[float, dict[int, float]]]:
    reader, rows = csv.reader(file), []
    head = next(reader, [])
    for cells in reader:
        if not cells:
            continue
        try:
            values = [float(cell) for cell in cells]
        except ValueError:
            values = [np.nan]
        if len(values) != len(head) or not np.isfinite(values).all():
            raise DataError(
                f"line {reader.line_num} must hold {len(head)} finite numbers. Got {cells[:6]}."
            )
        rows.append((values[-1], dict(enumerate(values[:-1], 1))))
    return rows


def cancer() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's breast cancer data: X [569, 30], y [569]."""
    return need("sklearn.datasets", "sklearn").load_breast_cancer(return_X_y=True)


def log_laplace(w):
    """Each coefficient Laplace(0, 1), as in the paper."""
    return -jnp.sum(jnp.abs(w))


def log_bernoulli(w, row):
    """log p(y | x, w)."""
    x, y = row
    return jax.nn.log_sigmoid((2 * y - 1) * (x @ w))


def split(X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """Standardised with an intercept; a fifth of the rows held out: (train, test)."""
    test = np.random.default_rng(0).permutation(len(y)) < len(y) // 5
    X = (X - X[~test].mean(0)) / np.maximum(X[~test].std(0), 1e-12)
    X = np.column_stack([np.ones(len(X)), X])
    parts = [(X[part].astype(np.float32), y[part].astype(np.float32)) for part in (~test, test)]
    return parts[0], parts[1]


def logistic() -> sgld.Posterior:
    """The model of both: Laplace prior, Bernoulli outcomes."""
    return sgld.Posterior(log_laplace, log_bernoulli)


@jax.jit
def log_joint(w: Any, data: Any) -> Any:
    """log p(w, data) for w [..., d]."""
    one = lambda w: log_laplace(w) + jnp.sum(jax.vmap(log_bernoulli, (None, 0))(w, data))  # noqa: E731
    return jax.lax.map(one, w.reshape(-1, w.shape[-1])).reshape(w.shape[:-1])


# -- independent components -------------------------------------------------------------------


class State(NamedTuple):
    """W, flat."""

    position: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NaturalSGLD:
    """SGLD in the metric of the natural gradient: D = W^T W, from the right.

    W' = W + h (G W^T W + T (d + 1) W) + sqrt(2 h T) Xi W,   G = grad log p at W [d, d]
    (Welling & Teh 2011, sec. 5.3; Gamma = (d + 1) W, the divergence of D, keeps the law right.)
    """

    num_noises: ClassVar[int] = 1

    def init(self, position: Any) -> State:
        """The state at a position."""
        return State(position)

    def step(self, state: State, grad: Any, step_size: Any, noise: Any, *, preconditioner: Any,
             temperature: Any) -> State:  # fmt: skip
        """The equation above."""
        d = round(state.position.size**0.5)
        h, T, W = step_size, temperature, state.position.reshape(-1, d)
        G, xi = grad(state.position).reshape(W.shape), noise.reshape(W.shape)
        # rows of Xi W need a square root of W^T W: where W is square, W itself is one
        noisy = xi[:, :d] @ (W if W.shape[0] == d else jnp.linalg.cholesky(W.T @ W).T)
        drift = G @ W.T @ W + T * (d + 1) * W
        return State((W + h * drift + jnp.sqrt(2 * h * T) * noisy).ravel())


def log_source(W, x):
    """log p(x | W): log |det W| and sources of density 1 / (4 cosh^2(y / 2)), y = W x."""
    y = W @ x
    return jnp.linalg.slogdet(W)[1] - jnp.sum(jax.nn.softplus(y) + jax.nn.softplus(-y))


def ica() -> sgld.Posterior:
    """Entries of W are N(0, 100) a priori."""
    return sgld.Posterior(lambda W: -0.005 * jnp.sum(W**2), log_source)


def amari(W: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Of W [..., d, d] to the inverse of the mixing A: 0 where W A permutes and scales, at most 1."""
    P, d = np.abs(np.asarray(W, float) @ A), len(A)
    rows, down = ((P.sum(axis) / P.max(axis) - 1).sum(-1) for axis in (-1, -2))
    return (rows + down) / (2 * d * (d - 1))


def mixtures() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Of each: x [N, 3], float32, and the mixing A [3, 3]."""
    rng = np.random.default_rng(3)
    returns = np.diff(np.log(columns("sp500_close")["close"]))[:2904].reshape(3, 968).T
    out = {}
    for name, sources in (("artificial", rng.laplace(size=(1000, 3))), ("S&P 500", returns)):
        A = rng.normal(size=(3, 3))
        out[name] = ((sources / sources.std(0)) @ A.T).astype(np.float32), A
    return out


def unmix(x: np.ndarray, steps: int, seed: int) -> sgld.Draws:
    """Natural-gradient SGLD, batches of 50, h falling from .2 / N to .02 / N."""
    N = len(x)
    h = sgld.polynomial_between(0.2 / N, 0.02 / N, steps, 0.55)
    return sgld.sample(
        ica(), x, jnp.eye(3, dtype=jnp.float32), sampler=NaturalSGLD(), gradient=sgld.Minibatch(),
        batch_size=50, step_size=h, burn_in=1000, thin=10, num_draws=steps // 10, seed=seed, **QUIET,
    )  # fmt: skip


# -- the page ---------------------------------------------------------------------------------


def crossing(updates: int, seed: int) -> tuple[list[Check], tuple[Panel, ...], Any]:
    """The mixture of X4 with batches of 1: both noises along the run, and the rejection rate."""
    posterior, data = sgld.Posterior(x4.log_prior, x4.log_likelihood), x4.DATA.astype(np.float32)
    h = sgld.polynomial_between(0.005, 0.00005, updates, 0.55)
    draws = sgld.sample(
        posterior, data, jnp.ones(2, jnp.float32), sampler=sgld.SGLD(None), batch_size=1, step_size=h,
        gradient=sgld.Minibatch(), burn_in=0, thin=updates // 2000, num_draws=2000, seed=seed, **QUIET,
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
    at, step = phase.step_size, phase.step + 1
    noises = [("injected, 2h", step, 2 * at)]
    noises += [("gradient, four chains" if c == 0 else "", step, at**2 * level)
               for c, level in enumerate(phase.level.T)]  # fmt: skip
    styles = [
        {"color": COLOURS["contrast"]},
        *({"color": COLOURS["accent"], "linewidth": 0.8},) * 4,
    ]
    figures = (
        lines("Variance of the noises", noises, styles=styles, log="xy", xlabel="update", width=WIDE),
        lines("Share of moves Metropolis would reject", [("", sizes, rates)], log="xy", width=WIDE,
              styles=[{"color": COLOURS["accent"], "marker": "o", "markersize": 3}], xlabel="step size h"),
    )  # fmt: skip
    return checks, figures, phase


def regression(truth: Any, seed: int) -> tuple[list[Check], tuple[Panel, ...], Any]:
    """Log joint and accuracy against sweeps, four chains."""
    train, (X, y) = split(*cancer())
    sweep = -(-len(train[1]) // BATCH)
    draws = sgld.sample(
        logistic(), train, jnp.zeros(X.shape[1], jnp.float32), sampler=sgld.SGLD(None), burn_in=0,
        step_size=sgld.polynomial_between(0.005, 0.0005, SWEEPS * sweep, 0.55), batch_size=BATCH,
        gradient=sgld.Minibatch(), thin=1, num_draws=SWEEPS * sweep, seed=seed, **QUIET,
    )  # fmt: skip
    w = np.asarray(draws.position)
    joint = np.asarray(log_joint(w, train), float).reshape(4, SWEEPS, sweep).mean((0, 2))
    p = 1 / (1 + np.exp(-w[:, ::sweep].astype(float) @ X.T))  # one draw a sweep
    seen = np.cumsum(p, axis=1) / np.arange(1, SWEEPS + 1)[:, None]
    right = ((seen > 0.5) == y).mean((0, 2))
    exact, sd = truth["log_joint"]["mean"], truth["log_joint"]["sd"]
    checks = [
        Check.in_sd("logistic: log joint, sweeps 8 to 10", exact, joint[7:10].mean(), sd, 1.25),
        Check.in_sd("logistic: sweeps 8 to 10 against the last 10", joint[-10:].mean(), joint[7:10].mean(), sd, 1),
        Check.in_value("logistic: accuracy held out", truth["accuracy"], right[-1], 0.03),
    ]  # fmt: skip
    sweeps, blue = np.arange(1, SWEEPS + 1), [{"color": COLOURS["accent"]}]
    figures = (
        lines("Log joint, mean of each sweep", [("", sweeps, joint)], styles=blue, level=exact,
              xlabel="sweep", width=WIDE),
        lines("Accuracy on the rows held out", [("", sweeps, right)], styles=blue, width=WIDE,
              level=truth["accuracy"], xlabel="sweep", ylim=(0.9, 1)),
    )  # fmt: skip
    return checks, figures, (len(train[1]), len(y), joint)


def run(quick: bool = False, seed: int = 0) -> Entry:
    """The three experiments."""
    truth = json.loads((Path(__file__).parent / "x9_nuts.json").read_text())
    checks, noises, phase = crossing(50_000 if quick else 1_000_000, seed)
    more, joints, (rows, held, joint) = regression(truth, seed)
    checks += more
    distances, panels = {}, []
    for name, (x, A) in mixtures().items():
        draws, exact = unmix(x, 5_000 if quick else 50_000, seed), truth["amari"][name]["mean"]
        found = amari(draws.position, A)
        distances[name] = float((found * draws.weights).sum())
        checks.append(
            Check.in_ratio(f"ICA, {name}: mean Amari distance", exact, distances[name], 0.3)
        )
        panels.append(lines(f"Amari distance, {name}", [("", draws.step, found[0])], level=exact,
                            styles=[{"color": COLOURS["accent"], "linewidth": 0.8}], xlabel="step",
                            ylim=(0, 0.2), width=WIDE))  # fmt: skip
    before = ", ".join(f"{amari(np.eye(3), A):.2f}" for _, A in mixtures().values())
    return Entry(TITLE, LEAD, (
        Section("Two noises, and when they cross", (
            "The mixture of X4, batches of 1, ε = 2h from .01 to .0001. A step adds injected noise of variance 2h "
            "and gradient noise of variance up to h² λ_{max}, λ_{max} of the gradient's covariance N² V_S / n. The "
            "first falls as h, the second as h²: they cross, and α = h λ_{max} / 2, their ratio, tells the phase. "
            f"`draws.phase` measures it in every run: {phase.sentence()}.",
            "The paper's second plot counts how often Metropolis would reject such a step (with exact gradients). "
            "It falls as h^{3/2}, which is why small steps need no rejection.",
        ), noises),
        Section("Logistic regression with a Laplace prior", (
            f"The paper uses a9a (32,561 rows); here scikit-learn's breast cancer data, standardised, {rows} rows "
            f"and {held} held out, batches of {BATCH}, each coefficient Laplace(0, 1), h from .005 to .0005. The "
            "paper's claim, that the log joint converges within 10 sweeps, holds: sweeps 8 to 10 have "
            f"{joint[7:10].mean():.1f}, the last ten {joint[-10:].mean():.1f}, the posterior "
            f"{truth['log_joint']['mean']:.1f} ± {truth['log_joint']['sd']:.1f} (NUTS). Settled is not sampled: "
            "60 sweeps are few correlation times of the flat directions.",
            "For data of one's own, `load_table(path)` reads a libsvm or CSV file and `split` standardises it.",
        ), joints, (("accent", "SGLD"), ("contrast", "NUTS"))),
        Section("Independent components by natural-gradient SGLD", (
            "x = A y for three sources; W, the unmixing, has log p(x | W) = log |det W| − Σ log 4 cosh²(y_i / 2). "
            "The natural gradient takes D = W^T W from the right. It depends on W, so the law is right only with "
            "the drift T (d + 1) W, the divergence of D. The sampler is the class "
            "`NaturalSGLD` in the code below; as (W^T W)^{1/2} its noise takes W itself.",
            "Two data sets: 1,000 draws of three Laplace sources, and three stretches of 968 daily returns of the "
            "S&P 500 taken for sources: real signals, mixed by us with a random matrix. The paper has a recording "
            "of brain waves, which has no known mixing. The Amari distance to the true mixing is 0 where W A "
            f"permutes and scales; at the start it is {before}. Its posterior mean is "
            f"{truth['amari']['artificial']['mean']:.3f} and {truth['amari']['S&P 500']['mean']:.3f} by NUTS, "
            f"{distances['artificial']:.3f} and {distances['S&P 500']:.3f} by four chains of SGLD.",
        ), tuple(panels), (("accent", "SGLD, one chain"), ("contrast", "mean of NUTS"))),
    ), tuple(checks))  # fmt: skip
