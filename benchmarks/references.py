"""Make the stored truths: long NUTS runs of the problems that have neither closed form nor grid.

    python benchmarks/references.py                     those missing from references.json
    python benchmarks/references.py --only softmax      again, one or several (comma)
    python benchmarks/references.py --check             every problem: finite at init, its truth
                                                        plausible and of this model

A run is made again with twice the draws (at most twice) until the ESS of theta and of theta^2
reaches `--ess`; what it reached is stored, and its seconds: the first run's include compilation. Each is written as soon as it is done. A run that has not
mixed, a divergence included, is stored with NUTS's word, and accuracy.py says so. The seconds of
the stored runs are those of a machine shared with others: an order of magnitude.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

import sgld
from problems import PROBLEMS, STRUCTURED, Problem, fingerprint, stored, truth_of
from problems.truth import STORED
from sgld.results import statistics

EVERY = PROBLEMS | STRUCTURED
CHAINS, WARMUP, DRAWS = 4, 1000, 5000
GROWTHS = 2
MORE = {  # where the usual settings leave divergences
    "logistic_separated": {"target_acceptance": 0.9},
    "stochastic_volatility": {"target_acceptance": 0.9},
}


def moments(name: str, draws: sgld.Draws) -> dict[str, list[float]]:
    """Mean, sd and quantiles per reported parameter."""
    x = np.concatenate(list(draws.flat()[0]))
    if name == "network":
        return symmetric(x)
    q05, q50, q95 = np.quantile(x, [0.05, 0.5, 0.95], axis=0)
    columns = {"mean": x.mean(0), "sd": x.std(0, ddof=1), "q05": q05, "q50": q50, "q95": q95}
    return {key: value.tolist() for key, value in columns.items()}


def symmetric(x: np.ndarray) -> dict[str, list[float]]:
    """Of the network's weights: units may be exchanged, and (w, b, v) of a unit change sign, so
    that five units and both signs are draws of one law. Leaves in order: b[5], c, v[5], w[5]."""
    unit = {0: x[:, :5], 6: x[:, 6:11], 11: x[:, 11:16]}
    out: dict[str, list[float]] = {}
    columns = [x[:, 5]] * 16
    for start, values in unit.items():
        both = np.concatenate([values.ravel(), -values.ravel()])
        columns[start : start + 5] = [both] * 5
    out["mean"] = [float(c.mean()) for c in columns]
    out["sd"] = [float(c.std()) for c in columns]
    for key, q in (("q05", 0.05), ("q50", 0.5), ("q95", 0.95)):
        out[key] = [float(np.quantile(c, q)) for c in columns]
    return out


def unchanged(p: Any) -> Any:
    return {"c": p["c"], **{key: jnp.sum(p[key] ** 2) for key in "wbv"}}


def quality(name: str, draws: sgld.Draws) -> tuple[float, float, float]:
    """Smallest ESS of theta and of theta^2, largest R-hat; of the network's weights, of what its
    symmetries leave alone, since which copy of a mode a chain is in does not matter."""
    x, w = draws.flat(unchanged if name == "network" else None)[0], draws.weights
    square = (x - statistics.mean(x, w)) ** 2
    ess = [float(np.min(statistics.ess(v, w))) for v in (x, square)]
    return ess[0], ess[1], float(np.max(statistics.r_hat(x)))


def reference(problem: Problem, aim: float, most_seconds: float) -> dict[str, Any]:
    """One entry of references.json."""
    num_draws, name = DRAWS, problem.name
    for growth in range(GROWTHS + 1):
        began = time.perf_counter()
        settings: dict[str, Any] = dict(
            num_chains=CHAINS, num_warmup=WARMUP, num_draws=num_draws, seed=1
        )
        settings |= MORE.get(name, {})
        draws = sgld.reference(
            problem.posterior, problem.data, problem.init, method="nuts", progress=False, **settings
        )
        seconds = time.perf_counter() - began
        word = draws.verdict.word
        ess, square, r_hat = quality(name, draws)
        print(
            f"{name:<26}{seconds:>7.1f} s  ESS {ess:.0f}, of squares {square:.0f}, R-hat {r_hat:.4f}, "
            f"{draws.info['divergences']} divergences, {word}",
            flush=True,
        )
        if min(ess, square) >= aim or growth == GROWTHS or 2 * seconds > most_seconds:
            break
        num_draws *= 2
    return {
        "names": list(draws.names), **moments(name, draws), "ess": ess, "ess_square": square,
        "r_hat": r_hat, "divergences": draws.info["divergences"], "word": word,
        "settings": {"method": "nuts", **settings}, "seconds": seconds,
        "fingerprint": fingerprint(problem),
    }  # fmt: skip


def check(names: list[str]) -> list[str]:
    """What is wrong, a line each."""
    wrong = []
    for name in names:
        problem = EVERY[name]()
        faults = [] if problem.name == name else [f"calls itself {problem.name}"]
        free = problem.posterior.unconstrain(problem.init)

        def log_density(free, problem=problem):
            p = problem.posterior
            value = p.log_prior_free(free)
            return value if problem.data is None else value + p.log_likelihood_free(
                free, problem.data
            )  # fmt: skip

        value, gradient = jax.jit(jax.value_and_grad(log_density))(free)
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((value, gradient))):
            faults.append("log density or gradient is not finite at init")
        truth = truth_of(problem)
        report = problem.posterior.output or (lambda position: position)
        size = jax.flatten_util.ravel_pytree(report(problem.init))[0].size
        if truth is None:
            faults.append("no truth: run references.py")
        elif not all(a.shape[-1] == size for a in truth[:3]):
            faults.append(f"truth of {truth.mean.size} parameters for {size}")
        elif not _plausible(truth):
            faults.append("quantiles out of order, or an sd that they contradict")
        print(
            f"{name:<26}{truth.origin if truth else '-':<12}{'; '.join(faults) or 'ok'}", flush=True
        )
        wrong += [f"{name}: {fault}" for fault in faults]
    return wrong


def _plausible(truth: Any) -> bool:
    """Ordered quantiles; by Cantelli's inequality the median is within one sd of the mean, the
    5 % and 95 % points within sqrt(19) of them."""
    low, middle, high = truth.quantiles
    sd = truth.sd
    return bool(
        np.all(truth.sd > 0)
        and np.all((low < middle) & (middle < high))
        and np.all(np.abs(middle - truth.mean) <= sd)
        and np.all(np.maximum(truth.mean - low, high - truth.mean) <= np.sqrt(19) * sd)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names, comma between")
    parser.add_argument("--ess", type=float, default=4000)
    parser.add_argument("--most-seconds", type=float, default=60, help="of one run")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(EVERY)
    if args.check:
        wrong = check(names)
        print(*wrong, sep="\n")
        sys.exit(1 if wrong else 0)
    for name in names:
        problem = EVERY[name]()
        if problem.truth is not None or (not args.only and name in stored()):
            continue
        entry = reference(problem, args.ess, args.most_seconds)
        everything = {**stored(), name: entry}
        STORED.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
