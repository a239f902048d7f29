"""Make the stored truths: long NUTS runs of the problems that have neither closed form nor grid.

    python benchmarks/references.py                     those missing from references.json
    python benchmarks/references.py --problems softmax  again, one or several (comma)
    python benchmarks/references.py --check             every problem: finite at init, its truth
                                                        plausible and of this model

A run is repeated with twice the draws (at most twice) until the ESS of theta and of theta^2 reaches
4,000; what it reached is stored, and its seconds, which include compilation. A run that has not mixed,
a divergence included, is stored with NUTS's verdict, and accuracy.py prints it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

import sgld
from densities import FlatDensity
from harness import command_line, timed
from problems import PROBLEMS, STRUCTURED, Problem, fingerprint, stored, truth_of
from problems.truth import STORED

EVERY = PROBLEMS | STRUCTURED
SETTINGS = {"num_chains": 4, "num_warmup": 1000, "seed": 1}
DRAWS, DOUBLINGS, MIN_ESS, MAX_SECONDS = 5000, 2, 4000, 60
MORE = {  # where the usual settings leave divergences
    "logistic_separated": {"target_acceptance": 0.9},
    "stochastic_volatility": {"target_acceptance": 0.9},
}


def moments(name: str, draws: sgld.Draws) -> dict[str, list[float]]:
    """Return mean, sd and quantiles of every reported parameter."""
    x = np.concatenate(list(np.asarray(draws.flat()[0], np.float64)))
    if name == "network":
        # units may be exchanged, and (w, b, v) of a unit change sign, so that five units and both
        # signs are draws of one distribution. Leaves in order: b[5], c, v[5], w[5]
        both = [
            np.concatenate([x[:, i : i + 5].ravel(), -x[:, i : i + 5].ravel()]) for i in (0, 6, 11)
        ]
        columns = [*[both[0]] * 5, x[:, 5], *[both[1]] * 5, *[both[2]] * 5]
    else:
        columns = list(x.T)
    found = {"mean": [c.mean() for c in columns], "sd": [c.std() for c in columns]}
    for key, q in (("q05", 0.05), ("q50", 0.5), ("q95", 0.95)):
        found[key] = [np.quantile(c, q) for c in columns]
    return {key: [float(value) for value in values] for key, values in found.items()}


def quality(name: str, draws: sgld.Draws) -> tuple[float, float, float]:
    """Return the smallest ESS of theta and of theta^2, and the largest R-hat.

    Of the network's weights: of what its symmetries leave alone, since it does not matter which
    copy of a mode a chain is in.
    """
    invariant = lambda p: {"c": p["c"], **{key: jnp.sum(p[key] ** 2) for key in "wbv"}}  # noqa: E731
    x = np.asarray(draws.flat(invariant if name == "network" else None)[0], np.float64)
    ess = [float(np.min(effective_sample_size(v))) for v in (x, (x - x.mean((0, 1))) ** 2)]
    return ess[0], ess[1], float(np.max(split_gelman_rubin(x)))


def reference(problem: Problem, num_draws: int = DRAWS) -> dict[str, Any]:
    """Return one entry of references.json."""
    name = problem.name
    settings = {**SETTINGS, **MORE.get(name, {})}
    for doubling in range(DOUBLINGS + 1):
        settings["num_draws"] = num_draws * 2**doubling
        draws, seconds, _ = timed(lambda: sgld.reference(
            problem.posterior, problem.data, problem.init, method="nuts", progress=False, **settings
        ))  # fmt: skip
        ess, square, r_hat = quality(name, draws)
        word, divergences = draws.verdict.word, draws.info["divergences"]
        print(
            f"{name:<26}{seconds:>7.1f} s  ESS {ess:.0f}, of squares {square:.0f}, R-hat {r_hat:.4f}, "
            f"{divergences} divergences, {word}", flush=True,
        )  # fmt: skip
        if min(ess, square) >= MIN_ESS or 2 * seconds > MAX_SECONDS or num_draws < DRAWS:
            break
    return {
        "names": list(draws.names), **moments(name, draws), "ess": ess, "ess_square": square,
        "r_hat": r_hat, "divergences": divergences, "word": word,
        "settings": {"method": "nuts", **settings}, "seconds": seconds,
        "fingerprint": fingerprint(problem),
    }  # fmt: skip


def faults(name: str) -> list[str]:
    """Return what is wrong with a problem and its truth."""
    problem = EVERY[name]()
    found = [] if problem.name == name else [f"calls itself {problem.name}"]
    density = FlatDensity(problem.posterior, problem.data, problem.init)
    if not all(np.isfinite(v).all() for v in jax.jit(jax.value_and_grad(density))(density.start)):
        found.append("log density or gradient is not finite at init")
    truth = truth_of(problem)
    report = problem.posterior.output or (lambda position: position)
    size = ravel_pytree(report(problem.init))[0].size
    if truth is None:
        found.append("no truth: run references.py")
    elif not all(a.shape[-1] == size for a in truth[:3]):
        found.append(f"truth of {truth.mean.size} parameters for {size}")
    else:
        # by Cantelli's inequality the median is within one sd of the mean, the 5% and 95% points
        # within sqrt(19) of them
        low, middle, high = truth.quantiles
        apart = np.maximum(truth.mean - low, high - truth.mean) / truth.sd
        near = np.abs(middle - truth.mean) <= truth.sd
        if not np.all(
            (truth.sd > 0) & (low < middle) & (middle < high) & near & (apart <= 19**0.5)
        ):
            found.append("quantiles out of order, or an sd that they contradict")
    print(f"{name:<26}{truth.origin if truth else '-':<12}{'; '.join(found) or 'ok'}", flush=True)
    return [f"{name}: {fault}" for fault in found]


def main() -> None:
    options = {
        "--problems": {"default": "", "help": "names, with commas"},
        "--check": {"action": "store_true"},
    }
    args = command_line(__doc__, options=options)
    names = args.problems.split(",") if args.problems else list(EVERY)
    if args.check or args.smoke:
        wrong = [
            fault
            for name in (["logistic_small"] if args.smoke else names)
            for fault in faults(name)
        ]
        print(*wrong, sep="\n")
        if args.smoke:
            json.dumps(reference(EVERY["logistic_small"](), num_draws=100))
        sys.exit(bool(wrong))
    for name in names:
        problem = EVERY[name]()
        if problem.truth is None and (args.problems or name not in stored()):
            everything = {**stored(), name: reference(problem)}
            STORED.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
