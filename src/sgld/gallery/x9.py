"""X9: Welling & Teh (2011).

The entry has three parts: the two noises with the rejection rate that Metropolis would have,
logistic regression with a Laplace prior on a bundled or user-supplied table, and independent
components by natural-gradient SGLD. NUTS gives the truth.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sgld
from sgld.gallery import Check, Entry, Section, x4
from sgld.gallery.make import Table, cancer, columns
from sgld.gallery.page import COLOURS, Panel, lines
from sgld.interfaces.report.figures import WIDE_WIDTH

from ..core.pytrees import as_pytree

# -- x9 ica --------------------------------------------------------------------------------


class State(NamedTuple):
    """The matrix W, flattened."""

    position: Any


@as_pytree
@dataclass(frozen=True)
class NaturalSGLD:
    """SGLD in the metric of the natural gradient: D = W^T W, from the right.

    W' = W + h (G W^T W + T (d + 1) W) + sqrt(2 h T) Xi W,   G = grad log p at W [d, d]
    (Welling & Teh 2011, sec. 5.3; Gamma = (d + 1) W, the divergence of D, keeps the law right.)
    """

    num_noises: ClassVar[int] = 1

    def init(self, position: Any) -> State:
        """Return the state at a position."""
        return State(position)

    def step(self, state: State, grad: Any, step_size: Any, noise: Any, *, preconditioner: Any,
             temperature: Any) -> State:  # fmt: skip
        """Take one step of the equation above."""
        d = round(state.position.size**0.5)
        h, T, W = step_size, temperature, state.position.reshape(-1, d)
        G, xi = grad(state.position).reshape(W.shape), noise.reshape(W.shape)
        # rows of Xi W need a square root of W^T W: where W is square, W itself is one
        noisy = xi[:, :d] @ (W if W.shape[0] == d else jnp.linalg.cholesky(W.T @ W).T)
        drift = G @ W.T @ W + T * (d + 1) * W
        return State((W + h * drift + jnp.sqrt(2 * h * T) * noisy).ravel())


def log_source(W, x):
    """Return log p(x | W): log |det W| and sources of density 1 / (4 cosh^2(y / 2)), y = W x."""
    y = W @ x
    return jnp.linalg.slogdet(W)[1] - jnp.sum(jax.nn.softplus(y) + jax.nn.softplus(-y))


def ica() -> sgld.Posterior:
    """Build the posterior of W, whose entries are N(0, 100) a priori."""
    return sgld.Posterior(lambda W: -0.005 * jnp.sum(W**2), log_source)


def amari(W: np.ndarray, A: np.ndarray) -> Any:
    """Return the Amari distance of W [..., d, d] to the inverse of A; 0 if W A permutes and scales."""
    P, d = np.abs(np.asarray(W, float) @ A), len(A)
    rows, down = ((P.sum(axis) / P.max(axis) - 1).sum(-1) for axis in (-1, -2))
    return (rows + down) / (2 * d * (d - 1))


def mixtures() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return x [N, 3], float32, and the mixing matrix A [3, 3] of both mixtures."""
    rng = np.random.default_rng(3)
    returns = np.diff(np.log(columns("sp500_close")["close"]))[:2904].reshape(3, 968).T
    out = {}
    for name, sources in (("artificial", rng.laplace(size=(1000, 3))), ("S&P 500", returns)):
        A = rng.normal(size=(3, 3))
        out[name] = ((sources / sources.std(0)) @ A.T).astype(np.float32), A
    return out


def unmix(x: np.ndarray, steps: int, seed: int) -> sgld.Draws:
    """Run natural-gradient SGLD with batches of 50 and h from .2 / N down to .02 / N."""
    N = len(x)
    h = sgld.polynomial_between(0.2 / N, 0.02 / N, steps, 0.55)
    return sgld.sample(
        ica(), x, jnp.eye(3, dtype=jnp.float32), sampler=NaturalSGLD(), gradient=sgld.Minibatch(),
        batch_size=50, step_size=h, burn_in=1000, thin=10, num_draws=steps // 10, seed=seed,
        progress=False,
    )  # fmt: skip


def independent_components(exact: Any, steps: int, seed: int) -> tuple[list[Check], Section]:
    """Separate both mixtures; `exact` has NUTS's Amari distances."""
    checks, distances, panels = [], {}, []
    for name, (x, A) in mixtures().items():
        draws, truth = unmix(x, steps, seed), exact[name]["mean"]
        found = amari(draws.position, A)
        distances[name] = float((found * draws.weights).sum())
        checks.append(
            Check.in_ratio(f"ICA, {name}: mean Amari distance", truth, distances[name], 0.3)
        )
        panels.append(lines(f"Amari distance, {name}", [("", draws.step, found[0])], level=truth,
                            styles=[{"color": COLOURS["accent"], "linewidth": 0.8}], xlabel="step",
                            ylim=(0, 0.2), width=WIDE_WIDTH))  # fmt: skip
    before = ", ".join(f"{amari(np.eye(3), A):.2f}" for _, A in mixtures().values())
    return checks, Section("Independent components by natural-gradient SGLD", (
        "x = A y for three sources; W, the unmixing, has log p(x | W) = log |det W| − Σ log 4 cosh²(y_i / 2). "
        "The natural gradient takes D = W^T W from the right. It depends on W, so the law is right only with "
        "the drift T (d + 1) W, the divergence of D. The sampler is the class "
        "`NaturalSGLD` in the code below; as (W^T W)^{1/2} its noise takes W itself.",
        "Two data sets: 1,000 draws of three Laplace sources, and three stretches of 968 daily returns of the "
        "S&P 500 taken for sources: real signals, mixed by us with a random matrix. The paper has a recording "
        "of brain waves, which has no known mixing. The Amari distance to the true mixing is 0 where W A "
        f"permutes and scales; at the start it is {before}. Its posterior mean is "
        f"{exact['artificial']['mean']:.3f} and {exact['S&P 500']['mean']:.3f} by NUTS, "
        f"{distances['artificial']:.3f} and {distances['S&P 500']:.3f} by four chains of SGLD.",
    ), tuple(panels), (("accent", "SGLD, one chain"), ("contrast", "mean of NUTS")))  # fmt: skip


# -- x9 logistic ---------------------------------------------------------------------------


# rows a step, at least; steps of a sweep, at most
X9_BATCH_ROWS, MIN_SWEEPS, MAX_STEPS_OF_SWEEP = 10, 60, 46


def log_laplace(w):
    """Return the log prior: each coefficient is Laplace(0, 1), as in the paper."""
    return -jnp.sum(jnp.abs(w))


def log_bernoulli(w, row):
    """Return log p(y | x, w)."""
    x, y = row
    return jax.nn.log_sigmoid((2 * y - 1) * (x @ w))


def split(X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """Standardise the columns, add an intercept, hold out a fifth of the rows: (train, test)."""
    test = np.random.default_rng(0).permutation(len(y)) < len(y) // 5
    X, varies = np.asarray(X, np.float64), np.ptp(X[~test], axis=0) > 0
    X = (X - X[~test].mean(0)) / np.where(varies, X[~test].std(0), 1)
    X = np.column_stack([np.ones(len(X)), X])
    parts = [(X[part].astype(np.float32), y[part].astype(np.float32)) for part in (~test, test)]
    return parts[0], parts[1]


def logistic() -> sgld.Posterior:
    """Build the model of both experiments: Laplace prior, Bernoulli outcomes."""
    return sgld.Posterior(log_laplace, log_bernoulli)


@jax.jit
def log_joint(w: Any, data: Any) -> Any:
    """Return log p(w, data) for w [..., d]."""
    one = lambda w: log_laplace(w) + jnp.sum(jax.vmap(log_bernoulli, (None, 0))(w, data))  # noqa: E731
    flat = jax.lax.map(one, w.reshape(-1, w.shape[-1]), batch_size=64)
    return flat.reshape(w.shape[:-1])


def chances(w: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return P(y = 1) of each row [..., N] for w [..., d]."""
    return 1 / (1 + np.exp(-np.clip(w.astype(float) @ X.T, -500, 500)))


def logistic_regression(truth: Any, own: Table | None, seed: int) -> tuple[list[Check], Section]:
    """Log joint and accuracy against sweeps, four chains; `truth` is NUTS's."""
    name, *table = own or ("scikit-learn's breast cancer data", *cancer())
    train, (X, y) = split(*table)
    rows, h = len(train[1]), truth.get("h", 0.005)
    batch = max(X9_BATCH_ROWS, -(-rows // MAX_STEPS_OF_SWEEP))
    sweep = -(-rows // batch)
    draws = sgld.sample(
        logistic(), train, jnp.zeros(X.shape[1], jnp.float32), sampler=sgld.SGLD(None), burn_in=0,
        step_size=sgld.polynomial_between(h, h / 10, MIN_SWEEPS * sweep, 0.55), batch_size=batch,
        gradient=sgld.Minibatch(), thin=1, num_draws=MIN_SWEEPS * sweep, seed=seed, progress=False,
    )  # fmt: skip
    w = np.asarray(draws.position)
    joint = np.asarray(log_joint(w, train), float).reshape(4, MIN_SWEEPS, sweep).mean((0, 2))
    p = chances(w[:, ::sweep], X)  # one draw a sweep
    seen = np.cumsum(p, axis=1) / np.arange(1, MIN_SWEEPS + 1)[:, None]
    right = ((seen > 0.5) == y).mean((0, 2))
    exact, sd = truth["log_joint"]["mean"], truth["log_joint"]["sd"]
    checks = [
        Check.in_sd("logistic: log joint, sweeps 8 to 10", exact, joint[7:10].mean(), sd, 1.25),
        Check.in_sd("logistic: sweeps 8 to 10 against the last 10", joint[-10:].mean(), joint[7:10].mean(), sd, 1),
        Check.in_value("logistic: accuracy held out", truth["accuracy"], right[-1], max(0.03, 2 / len(y))),
    ]  # fmt: skip
    sweeps, blue = np.arange(1, MIN_SWEEPS + 1), [{"color": COLOURS["accent"]}]
    figures = (
        lines("Log joint, mean of each sweep", [("", sweeps, joint)], styles=blue, level=exact,
              xlabel="sweep", width=WIDE_WIDTH),
        lines("Accuracy on the rows held out", [("", sweeps, right)], styles=blue, width=WIDE_WIDTH,
              level=truth["accuracy"], xlabel="sweep", ylim=(0.9, 1) if own is None else None),
    )  # fmt: skip
    holds = checks[0].passed and checks[1].passed
    text = (
        f"The paper uses a9a (32,561 rows); here {name}, standardised, {rows:,} rows and {len(y):,} held out, "
        f"batches of {batch}, each coefficient Laplace(0, 1), h from {h:.2g} to {h / 10:.2g}. The paper's claim, "
        f"that the log joint converges within 10 sweeps, {'holds' if holds else 'does not hold here'}: "
        f"sweeps 8 to 10 have {joint[7:10].mean():.1f}, the last ten {joint[-10:].mean():.1f}, the posterior "
        f"{exact:.1f} ± {sd:.1f} (NUTS). Settled is not sampled: {MIN_SWEEPS} sweeps are few correlation times of the "
        "flat directions.",
        "`sgld gallery X9 --data FILE` takes a table of one's own, libsvm or CSV.",
    )
    key = (("accent", "SGLD"), ("contrast", "NUTS"))
    heading = "Logistic regression with a Laplace prior"
    return checks, Section(heading, text, figures, key)


# -- x9 noise ------------------------------------------------------------------------------


def noise_crossing(updates: int, seed: int) -> tuple[list[Check], Section]:
    """Run the mixture of X4 with batches of 1: both noises along the run, and the rejection rate."""
    posterior = sgld.Posterior(x4.log_prior, x4.log_likelihood)
    data = x4.DATA.astype(np.float32)
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
    """Plot the injected variance, and each chain's gradient noise, along the run."""
    at, step = phase.step_size, phase.step + 1
    curves = [("injected, 2h", step, 2 * at)]
    curves += [("gradient, four chains" if c == 0 else "", step, at**2 * level)
               for c, level in enumerate(phase.level.T)]  # fmt: skip
    styles = [{"color": COLOURS["contrast"]}, *[{"color": COLOURS["accent"], "linewidth": 0.8}] * 4]
    return lines(
        "Variance of the noises", curves, styles=styles, log="xy", xlabel="update", width=WIDE_WIDTH
    )


def rejections(sizes: np.ndarray, rates: np.ndarray) -> Panel:
    """Plot the share of steps of each size that Metropolis would reject."""
    styles = [{"color": COLOURS["accent"], "marker": "o", "markersize": 3}]
    return lines("Share of moves Metropolis would reject", [("", sizes, rates)], styles=styles,
                 log="xy", xlabel="step size h", width=WIDE_WIDTH)  # fmt: skip


# -- x9 referee ----------------------------------------------------------------------------


def mode(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find Newton's mode w [d] under N(0, I), near that under the Laplace prior, and X^T V X there."""
    w = np.zeros(X.shape[1])
    for _ in range(20):
        p = chances(w, X)
        curvature = (X * (p * (1 - p))[:, None]).T @ X
        w = w + np.linalg.solve(curvature + np.eye(len(w)), X.T @ (y - p) - w)
    return w, curvature


def referee(own: Table, num_draws: int, seed: int) -> dict[str, Any]:
    """Compute what `x9_nuts.json` holds for the cancer data, and a step size h.

    NUTS has u with w = center + L u, where L L^T is about the posterior's covariance: without it
    columns that all but sum to a constant, as those of a9a do, make long trajectories.
    """
    train, (X, y) = split(own.X, own.y)
    w, curvature = mode(*(part.astype(np.float64) for part in train))
    scale = np.linalg.inv(np.linalg.cholesky(curvature + np.eye(len(w)))).T
    center, L = jnp.asarray(w, jnp.float32), jnp.asarray(scale, jnp.float32)
    posterior = sgld.Posterior(
        lambda u: log_laplace(center + L @ u), lambda u, row: log_bernoulli(center + L @ u, row)
    )
    draws = sgld.reference(posterior, train, jnp.zeros_like(center), num_warmup=num_draws,
                           num_draws=num_draws, seed=seed, progress=False)  # fmt: skip
    found = np.asarray(draws.position) @ scale.T.astype(np.float32) + w.astype(np.float32)
    joint = np.asarray(log_joint(found, train), float)
    return {
        "log_joint": {"mean": joint.mean(), "sd": joint.std()},
        "accuracy": np.mean((chances(found, X).mean((0, 1)) > 0.5) == y),
        "h": 1 / (4 * np.linalg.eigvalsh(curvature)[-1]),
    }


# -- x9 ------------------------------------------------------------------------------------


TITLE = "Welling & Teh: crossing noises, logistic regression, independent components"
LEAD = (
    "The three experiments that introduced SGLD: when gradient noise sinks below the injected, how "
    "fast a logistic regression settles, and independent components by a natural gradient."
)
NEEDS = ("sklearn",)  # the cancer data


def run(quick: bool = False, seed: int = 0, data: Table | None = None) -> Entry:
    """Run the three experiments; the regression uses `data` if given."""
    truth = json.loads((Path(__file__).parent / "x9_nuts.json").read_text())
    noises, crossing = noise_crossing(50_000 if quick else 1_000_000, seed)
    known = truth if data is None else referee(data, 150 if quick else 400, seed)
    joints, regression = logistic_regression(known, data, seed)
    distances, components = independent_components(truth["amari"], 5_000 if quick else 50_000, seed)
    checks = (*noises, *joints, *distances)
    return Entry(TITLE, LEAD, (crossing, regression, components), checks)
