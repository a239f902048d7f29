"""How a default run grows: with rows, with parameters, and with rows that hold much of what is known.

    python benchmarks/growth.py                         every case, each in a process of its own
    python benchmarks/growth.py --only rows             one of rows, parameters, extreme
    python benchmarks/growth.py --src PATH --as before  with the package of another tree
    python benchmarks/growth.py --store --plot          the table into docs/performance.md, and the plot

first, second  CPU seconds on all cores of `sgld.sample` in a fresh process, compiling included, and again
ratio          seconds of the second call over those of find_map + laplace, on their second call too
steps, word    of the second call
sd, mean       largest error of an sd (ratio to the truth's) and of a mean (in sds); the truth is the
               posterior's own in closed form (linear), or by importance sampling from its Gaussian (logistic);
               - where a Gaussian in float64 is no truth (more than 200 parameters)

The cases: logistic regressions of 20 columns against rows, of 20,000 rows against columns, and tables
of 100,000 rows (one of a million) whose columns have extreme or rare rows. A case that takes longer
than --limit seconds is stopped and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
PLOT = HERE.parent / "docs" / "images" / "growth.png"
ROWS = (10**4, 10**5, 10**6, 4 * 10**6)
PARAMETERS = (2, 10, 50, 200, 500, 1000, 2000)
MOST_FOR_TRUTH = 200
EXTREME = (
    "normal", "log-normal 1", "log-normal 2", "log-normal 2.5", "log-normal 3", "Cauchy",
    "level of 1 row", "level of 3 rows", "3 positives",
    "log-normal 3 in 1000000", "level of 1 row in 1000000",
)  # fmt: skip
HEAD = f"{'case':<28}{'first':>8}{'second':>8}{'ratio':>7}{'steps':>9}{'sd':>7}{'mean':>7}  word"
Table = tuple[np.ndarray, np.ndarray, str]


# -- the cases -------------------------------------------------------------------------------


def cases() -> dict[str, tuple[str, Callable[[], Table]]]:
    """Name -> (sweep, its table: columns, outcome, family)."""
    found: dict[str, tuple[str, Callable[[], Table]]] = {}
    for N in ROWS:
        found[f"{N} x 20"] = ("rows", lambda N=N: logistic(N, 20))
    for d in PARAMETERS:
        found[f"20000 x {d}"] = ("parameters", lambda d=d: logistic(20_000, d))
    for name in EXTREME:
        found[name] = ("extreme", lambda name=name: extreme(name))
    return found


def logistic(N: int, d: int) -> Table:
    """An intercept and standard normal columns; coefficients of norm 1."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, d), np.float32)
    X[:, 0] = 1
    b = rng.standard_normal(d) / np.sqrt(d)
    p = 1 / (1 + np.exp(-X @ b))
    return X, (rng.random(N) < p).astype(np.float32), "logistic"


def extreme(name: str) -> Table:
    """An intercept, two normal columns, and one that is extreme, or 1 in a few rows alone."""
    kind, _, count = name.partition(" in ")
    N = int(count or 10**5)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, 4), np.float32)
    X[:, 0] = 1
    b = np.array([-0.5, 0.5, -0.3, 0.4])
    if kind == "3 positives":
        y = np.zeros(N, np.float32)
        y[rng.choice(N, 3, replace=False)] = 1
        return X, y, "logistic"
    if kind.startswith("level"):
        X[:, 3] = 0
        X[rng.choice(N, int(kind.split()[2]), replace=False), 3] = 1
        y = (rng.random(N) < 1 / (1 + np.exp(-X @ b))).astype(np.float32)
        return X, y, "logistic"
    if kind.startswith("log-normal"):
        X[:, 3] = np.exp(float(kind.split()[1]) * X[:, 3])
    if kind == "Cauchy":
        X[:, 3] = rng.standard_cauchy(N)
    y = X.astype(np.float64) @ b + rng.standard_normal(N)
    return X, y.astype(np.float32), "linear"


# -- the truth, in float64 -------------------------------------------------------------------


def truth(X: np.ndarray, y: np.ndarray, family: str) -> tuple[np.ndarray, np.ndarray] | None:
    """(mean, sd) of the coefficients under N(0, 2.5^2) priors."""
    X, y = X.astype(np.float64), y.astype(np.float64)
    d = X.shape[1]
    prior = np.eye(d) / 2.5**2
    if family == "linear":
        V = np.linalg.inv(X.T @ X + prior)
        return V @ (X.T @ y), np.sqrt(np.diag(V))
    if d > MOST_FOR_TRUTH:
        return None
    b = np.zeros(d)
    for _ in range(30):
        p = 1 / (1 + np.exp(-X @ b))
        J = (X * (p * (1 - p))[:, None]).T @ X + prior
        b = b + np.linalg.solve(J, X.T @ (y - p) - prior @ b)
    if d > 4:  # of so many rows the Gaussian is the truth to a part in a thousand
        return b, np.sqrt(np.diag(np.linalg.inv(J)))
    rng = np.random.default_rng(2)
    F = np.linalg.cholesky(np.linalg.inv(J))
    t = rng.standard_t(5, (4000 if X.shape[0] <= 10**5 else 1000, d))
    zs = b + t @ F.T
    log_p = _log_densities(X, y, b, J - prior, zs) - np.einsum("ki,ij,kj->k", zs, prior, zs) / 2
    log_w = log_p + 3 * np.log1p(t**2 / 5).sum(1)
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    mean = w @ zs
    return mean, np.sqrt(w @ (zs - mean) ** 2)


def _log_densities(X: Any, y: Any, b: Any, H: Any, zs: Any) -> np.ndarray:
    """Log likelihoods at zs. Of more than 100,000 rows those that move little are one parabola.

    A row moves little where its curvature is under a hundredth of what is known in its direction.
    """
    p = 1 / (1 + np.exp(-X @ b))
    left = np.ones(len(y), bool)
    if len(y) > 10**5:
        left = p * (1 - p) * np.einsum("ni,ij,nj->n", X, np.linalg.inv(H), X) > 0.01
    own = X[left]
    H = H - (own * (p * (1 - p))[left, None]).T @ own
    slope = X[~left].T @ (y - p)[~left]
    moved = zs - b
    bulk = moved @ slope - np.einsum("ki,ij,kj->k", moved, H, moved) / 2
    return bulk + np.array([y[left] @ (own @ z) - np.logaddexp(0, own @ z).sum() for z in zs])


# -- one case, in its own process ------------------------------------------------------------


def measured(name: str) -> dict[str, Any]:
    """Everything that a row needs."""
    import jax
    import jax.numpy as jnp

    import sgld

    X, y, family = cases()[name][1]()
    log_prior = lambda b: -0.5 * jnp.sum((b / 2.5) ** 2)  # noqa: E731
    if family == "logistic":
        model = sgld.Posterior(
            log_prior, lambda b, row: row[1] * (row[0] @ b) - jax.nn.softplus(row[0] @ b)
        )
    else:
        model = sgld.Posterior(log_prior, lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2)
    data, init = (X, y), jnp.zeros(X.shape[1])
    row: dict[str, Any] = {}
    for call in ("first", "second"):
        began = time.process_time()
        try:
            draws = sgld.sample(model, data, init, progress=False)
        except sgld.errors.SGLDError as error:
            return {**row, "word": "refused", "why": str(error)}
        row[call] = time.process_time() - began
        row |= {
            "steps": draws.info["num_steps"], "word": draws.verdict.word,
            "why": " ".join(draws.verdict.reasons),
        }  # fmt: skip
    if X.shape[1] <= 1000:
        for _ in range(2):
            began = time.process_time()
            sgld.laplace(model, data, sgld.find_map(model, data, init))
            row["gaussian"] = time.process_time() - began
    true = truth(X, y, family)
    if true is not None and draws.healthy.size:
        mean, sd = np.asarray(draws.mean(), float), np.asarray(draws.sd(), float)
        ratio = sd / true[1]
        row["sd"] = float(ratio[np.argmax(np.abs(ratio - 1))])
        row["mean"] = float(np.max(np.abs(mean - true[0]) / true[1]))
    return row


def case(name: str, src: Path, limit: float) -> dict[str, Any]:
    """`measured` in a fresh process, with the package of `src`."""
    env = {**os.environ, "PYTHONPATH": str(src)}
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, __file__, "--case", name]
    try:
        out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"word": f"stopped after {limit:.0f} s"}
    if out.returncode:
        return {"word": f"crashed: {out.stderr.strip().splitlines()[-1][:80]}"}
    return json.loads(out.stdout.splitlines()[-1])


def line(name: str, row: dict[str, Any]) -> str:
    """One row of the table."""
    ratio = row["second"] / row["gaussian"] if {"second", "gaussian"} <= row.keys() else None
    cells = [
        (row.get("first"), ".1f", 8), (row.get("second"), ".1f", 8), (ratio, ".1f", 7),
        (row.get("steps"), "d", 9), (row.get("sd"), ".2f", 7), (row.get("mean"), ".2f", 7),
    ]  # fmt: skip
    text = "".join(f"{'-' if v is None else format(v, how):>{width}}" for v, how, width in cells)
    why = (
        f": {row['why'][:60]}"
        if row["word"] in ("refused", "unknown", "biased", "not mixed")
        else ""
    )
    return f"{name:<28}{text}  {row['word']}{why}"


# -- the plot --------------------------------------------------------------------------------


def plot(tables: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    """CPU seconds of a second call against rows and against parameters, before and after."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for ax, sweep, xs, of in (
        (axes[0], "rows, 20 columns", ROWS, "{} x 20"),
        (axes[1], "columns, 20,000 rows", PARAMETERS, "20000 x {}"),
    ):
        for label, table in tables.items():
            rows = [(x, table.get(of.format(x), {})) for x in xs]
            known = [(x, row) for x, row in rows if "second" in row]
            (drawn,) = ax.plot(
                *zip(*((x, r["second"]) for x, r in known), strict=True), label=label
            )
            for x, row in known:
                trusted = row["word"] == "trusted"
                face = drawn.get_color() if trusted else "white"
                ax.plot(x, row["second"], "o", color=drawn.get_color(), markerfacecolor=face)
        ax.set(xscale="log", yscale="log", xlabel=sweep, ylabel="CPU seconds, second call")
        ax.legend(frameon=False, title="filled: trusted")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows, parameters, extreme, or names of cases")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of a case")
    parser.add_argument("--src", type=Path, default=HERE.parent / "src")
    parser.add_argument(
        "--as", dest="label", default="after", help="name of the table that is stored"
    )
    parser.add_argument("--store", action="store_true", help="into results/growth.json")
    parser.add_argument("--plot", action="store_true", help=f"into {PLOT.relative_to(HERE.parent)}")
    parser.add_argument("--case", default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measured(args.case)))
        return
    import claims

    words = [word.strip() for word in args.only.split(",") if word.strip()]
    rows, lines = {}, [HEAD]
    print(HEAD)
    for name, (sweep, _) in cases().items():
        if words and sweep not in words and name not in words:
            continue
        rows[name] = case(name, args.src, args.limit)
        lines.append(line(name, rows[name]))
        print(lines[-1], flush=True)
    if args.store:
        figures = {f"{args.label}: {name}": json.dumps(row) for name, row in rows.items()}
        claims.store("growth", {**figures, args.label: lines})
    if args.plot:
        tables: dict[str, dict[str, Any]] = {"before": {}, "after": {}}
        for figure, entry in claims.stored("growth")["figures"].items():
            label, _, name = figure.partition(": ")
            if name:
                tables.setdefault(label, {})[name] = json.loads(entry["value"])
        plot({label: table for label, table in tables.items() if table}, PLOT)


if __name__ == "__main__":
    main()
