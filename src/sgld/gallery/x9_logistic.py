"""X9's second part: logistic regression with a Laplace prior, on a real table or a reader's own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgld
from sgld.gallery import Check, Section
from sgld.gallery.data import Table, cancer
from sgld.gallery.draw import COLOURS, WIDE, lines

BATCH, SWEEPS, STEPS = 10, 60, 46  # rows a step, at least; steps of a sweep, at most


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
    X, varies = np.asarray(X, np.float64), np.ptp(X[~test], axis=0) > 0
    X = (X - X[~test].mean(0)) / np.where(varies, X[~test].std(0), 1)
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
    flat = jax.lax.map(one, w.reshape(-1, w.shape[-1]), batch_size=64)
    return flat.reshape(w.shape[:-1])


def chances(w: np.ndarray, X: np.ndarray) -> np.ndarray:
    """P(y = 1) of each row [..., N] for w [..., d]."""
    return 1 / (1 + np.exp(-np.clip(w.astype(float) @ X.T, -500, 500)))


def logistic_regression(truth: Any, own: Table | None, seed: int) -> tuple[list[Check], Section]:
    """Log joint and accuracy against sweeps, four chains; `truth` is NUTS's."""
    name, *table = own or ("scikit-learn's breast cancer data", *cancer())
    train, (X, y) = split(*table)
    rows, h = len(train[1]), truth.get("h", 0.005)
    batch = max(BATCH, -(-rows // STEPS))
    sweep = -(-rows // batch)
    draws = sgld.sample(
        logistic(), train, jnp.zeros(X.shape[1], jnp.float32), sampler=sgld.SGLD(None), burn_in=0,
        step_size=sgld.polynomial_between(h, h / 10, SWEEPS * sweep, 0.55), batch_size=batch,
        gradient=sgld.Minibatch(), thin=1, num_draws=SWEEPS * sweep, seed=seed, progress=False,
    )  # fmt: skip
    w = np.asarray(draws.position)
    joint = np.asarray(log_joint(w, train), float).reshape(4, SWEEPS, sweep).mean((0, 2))
    p = chances(w[:, ::sweep], X)  # one draw a sweep
    seen = np.cumsum(p, axis=1) / np.arange(1, SWEEPS + 1)[:, None]
    right = ((seen > 0.5) == y).mean((0, 2))
    exact, sd = truth["log_joint"]["mean"], truth["log_joint"]["sd"]
    checks = [
        Check.in_sd("logistic: log joint, sweeps 8 to 10", exact, joint[7:10].mean(), sd, 1.25),
        Check.in_sd("logistic: sweeps 8 to 10 against the last 10", joint[-10:].mean(), joint[7:10].mean(), sd, 1),
        Check.in_value("logistic: accuracy held out", truth["accuracy"], right[-1], max(0.03, 2 / len(y))),
    ]  # fmt: skip
    sweeps, blue = np.arange(1, SWEEPS + 1), [{"color": COLOURS["accent"]}]
    figures = (
        lines("Log joint, mean of each sweep", [("", sweeps, joint)], styles=blue, level=exact,
              xlabel="sweep", width=WIDE),
        lines("Accuracy on the rows held out", [("", sweeps, right)], styles=blue, width=WIDE,
              level=truth["accuracy"], xlabel="sweep", ylim=(0.9, 1) if own is None else None),
    )  # fmt: skip
    holds = checks[0].passed and checks[1].passed
    text = (
        f"The paper uses a9a (32,561 rows); here {name}, standardised, {rows:,} rows and {len(y):,} held out, "
        f"batches of {batch}, each coefficient Laplace(0, 1), h from {h:.2g} to {h / 10:.2g}. The paper's claim, "
        f"that the log joint converges within 10 sweeps, {'holds' if holds else 'does not hold here'}: "
        f"sweeps 8 to 10 have {joint[7:10].mean():.1f}, the last ten {joint[-10:].mean():.1f}, the posterior "
        f"{exact:.1f} ± {sd:.1f} (NUTS). Settled is not sampled: {SWEEPS} sweeps are few correlation times of the "
        "flat directions.",
        "`sgld gallery X9 --data FILE` takes a table of one's own, libsvm or CSV.",
    )
    key, heading = (
        (("accent", "SGLD"), ("contrast", "NUTS")),
        "Logistic regression with a Laplace prior",
    )
    return checks, Section(heading, text, figures, key)
