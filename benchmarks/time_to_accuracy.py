"""From nothing to an accurate posterior (W2), against mode and curvature alone and against NUTS.

    python benchmarks/time_to_accuracy.py [--rows N] [--rounds K] [--json FILE]

W2 is logistic regression, a million rows, 50 columns. Accurate: every mean within .1 posterior sd
and every sd within 5%. Targets: `sgld.sample` at its defaults takes at most 1.3 times the search
for the mode plus one curvature pass, and is 100 times as fast as NUTS.

First calls are timed in fresh processes, compilation included; second calls with another seed, in
turn with the mode's, each ratio within a round. NUTS is not run in full: seconds per gradient are
measured at all rows, and transitions per effective draw and gradients per transition at few, where
the whitened posterior has the same shape.

The truth is in float64 and shares no code with the package: draws of the Gaussian at the mode,
weighted by density over Gaussian, with full gradients g in E[z - g] and E[z z' + I - (z g' + g z')/2]
(Stein's identities under the posterior, z and g whitened): what is left of Monte Carlo error is in
proportion to how far the posterior is from a Gaussian.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import claims
import sgld
import workloads
from sgld.approximation import laplace, mode
from sgld.inference import reference
from sgld.inference.reference import _centers
from sgld.model.prepare import prepare
from sgld.results import statistics
from stopwatch import Stopwatch

MEAN, SD = 0.1, 0.05  # posterior sds; share of the sd
BASELINE, PEER = 1.3, 100  # the targets
TRUTH_DRAWS, TRUTH_ROWS = 256, 50_000
EFFECTIVE = 1000  # draws that NUTS is asked for
FEW_ROWS, TRANSITIONS = 20_000, 10
EVERY = 25  # draws per chain between two looks at the accuracy


def seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def model(work: workloads.Workload) -> sgld.Posterior:
    return sgld.Posterior(work.log_prior, work.log_likelihood)


# -- what runs in a fresh process ------------------------------------------------------------


def mode_and_curvature(work: workloads.Workload) -> dict[str, float]:
    """The library's own checks, search and one curvature pass."""
    began = time.perf_counter()
    ready = prepare(model(work), work.data, work.init)
    jax.block_until_ready(ready.data)
    checked = time.perf_counter()
    found, _, steps, _ = mode.newton_mode(ready, ready.start)
    searched = time.perf_counter()
    laplace.laplace_at(ready, found)
    ended = time.perf_counter()
    return {
        "checks": checked - began, "mode": searched - checked, "curvature": ended - searched,
        "steps": steps, "total": ended - began,
    }  # fmt: skip


def part_mode(work: workloads.Workload, rounds: int, out: Path) -> dict[str, Any]:
    return {"first": mode_and_curvature(work), "second": mode_and_curvature(work)}


def part_sample(work: workloads.Workload, rounds: int, out: Path) -> dict[str, Any]:
    """First call, second call by parts, then rounds against the mode's; draws go to `out`."""
    watch, posterior = Stopwatch(), model(work)

    def call(seed: int, num_draws: Any = "auto") -> sgld.Draws:
        return sgld.sample(
            posterior, work.data, work.init, seed=seed, num_draws=num_draws, progress=False
        )

    _, first, compiling = watch.of(lambda: call(0))
    draws, second, _ = watch.of(lambda: call(1))
    mode_and_curvature(work)
    races = []
    for number in range(rounds):
        both = [lambda: call(number), lambda: mode_and_curvature(work)]  # noqa: B023
        order = (0, 1) if number % 2 == 0 else (1, 0)
        took = {which: seconds(both[which]) for which in order}
        races.append((took[0], took[1]))
    np.savez(out, draws=np.asarray(draws.position, np.float64))
    return {
        "first": first, "compiling": compiling, "second": second, "races": races,
        "plan": draws.plan.describe(), "word": draws.verdict.word, "num_steps": draws.info["num_steps"],
    }  # fmt: skip


def part_short(work: workloads.Workload, num_draws: int, out: Path) -> dict[str, Any]:
    """Calls that stop at `num_draws` draws per chain against the mode's, after some that compile."""
    posterior = model(work)

    def call() -> None:
        sgld.sample(posterior, work.data, work.init, seed=1, num_draws=num_draws, progress=False)

    call()
    mode_and_curvature(work)
    races = [(seconds(call), seconds(lambda: mode_and_curvature(work))) for _ in range(3)]
    return {"races": races}


def part_nuts(work: workloads.Workload, rounds: int, out: Path) -> dict[str, Any]:
    """Trees and effective draws at few rows, seconds per gradient at all."""
    import blackjax

    few = workloads.logistic(min(FEW_ROWS, work.num_data))
    draws = sgld.reference(model(few), few.data, few.init, num_warmup=500, progress=False)
    transitions = draws.num_chains * draws.num_draws
    tree = draws.info["num_gradients"] / transitions
    values, _ = draws.flat()
    squares = (values - statistics.mean(values, draws.weights)) ** 2
    least = min(float(np.min(statistics.ess(x, draws.weights))) for x in (values, squares))
    local, _ = _centers(prepare(model(work), work.data, work.init), seed=0)
    lax = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
    with lax[0], lax[1]:
        step = float(np.median(draws.info["step_size"]))
        kernel = blackjax.nuts.build_kernel()

        @jax.jit
        def advance(local, state, key):
            one = reference._density(local)
            state, info = kernel(key, state, one, step, jnp.ones(len(work.init)))
            return state, info.num_integration_steps

        start = jax.jit(lambda local, u: blackjax.nuts.init(u, reference._density(local)))
        state = start(local, jnp.zeros(len(work.init)))
        state, _ = jax.block_until_ready(advance(local, state, jax.random.key(0)))
        began, gradients = time.perf_counter(), 0
        for number in range(1, TRANSITIONS + 1):
            state, count = advance(local, state, jax.random.key(number))
            gradients += int(count)
        took = time.perf_counter() - began
    return {
        "tree": tree, "ess_per_transition": least / transitions, "per_gradient": took / gradients,
        "tree_here": gradients / TRANSITIONS, "rows": few.num_data, "word": draws.verdict.word,
    }  # fmt: skip


CALLS = {"mode": part_mode, "sample": part_sample, "short": part_short, "nuts": part_nuts}


def fresh(part: str, rows: int, number: int, out: Path) -> dict[str, Any]:
    """A part in a process of its own."""
    source = Path(sgld.__file__).resolve().parents[1]
    environment = {**os.environ}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # a first call compiles
    environment["PYTHONPATH"] = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, __file__, "--part", part, "--rows", str(rows), "--rounds", str(number),
         "--out", str(out)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


# -- the truth -------------------------------------------------------------------------------


class Truth(NamedTuple):
    """Of every coefficient, with what is left of Monte Carlo error; and of the Gaussian at the mode."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: float  # the largest, in sds
    sd_error: float  # the largest, as a share of the sd
    ess: float  # of the weights
    laplace_mean: np.ndarray
    laplace_sd: np.ndarray


def truth(work: workloads.Workload) -> Truth:
    """The posterior of W2 in float64: see above."""
    X, y = work.data
    d = X.shape[1]
    beta = np.zeros(d)
    for _ in range(30):
        value, gradient, J = _sums(X, y, beta[None], curvature=True)
        move = np.linalg.solve(J, gradient[0])
        beta = beta + move
        if gradient[0] @ move < 1e-12:
            break
    _, _, J = _sums(X, y, beta[None], curvature=True)
    F = np.linalg.inv(np.linalg.cholesky(J)).T
    z = np.random.default_rng(20240603).standard_normal((TRUTH_DRAWS, d))
    value, gradient, _ = _sums(X, y, beta + z @ F.T)
    logs = value + 0.5 * np.sum(z**2, 1)
    w = np.exp(logs - logs.max())
    g = -gradient @ F

    def moments(keep: Any) -> tuple[np.ndarray, np.ndarray]:
        share = w[keep] / w[keep].sum()
        mean = share @ (z[keep] - g[keep])
        zg = z[keep].T @ (share[:, None] * g[keep])
        second = z[keep].T @ (share[:, None] * z[keep]) + np.eye(d) - (zg + zg.T) / 2
        cov = second - np.outer(mean, mean)
        return beta + F @ mean, np.sqrt(np.einsum("mi,ij,mj->m", F, cov, F))

    mean, sd = moments(np.arange(TRUTH_DRAWS))
    folds = np.arange(TRUTH_DRAWS) % 16
    left = [moments(folds != k) for k in range(16)]
    error = lambda i: np.sqrt(15 / 16 * sum((part[i] - (mean, sd)[i]) ** 2 for part in left))  # noqa: E731
    return Truth(
        mean, sd, float(np.max(error(0) / sd)), float(np.max(error(1) / sd)),
        float(w.sum() ** 2 / (w @ w)), beta, np.sqrt(np.sum(F**2, 1)),
    )  # fmt: skip


def _sums(
    X: np.ndarray, y: np.ndarray, betas: np.ndarray, curvature: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log posterior density [m], its gradient [m, d] and, at the first position, its curvature."""
    value, gradient = -0.05 * np.sum(betas**2, 1), -0.1 * betas
    J = 0.1 * np.eye(X.shape[1])
    for first in range(0, len(X), TRUTH_ROWS):
        x, hit = X[first : first + TRUTH_ROWS].astype(float), y[first : first + TRUTH_ROWS]
        eta = x @ betas.T
        p = 1 / (1 + np.exp(-eta))
        value = value + hit @ eta - np.logaddexp(0.0, eta).sum(0)
        gradient = gradient + (hit[:, None] - p).T @ x
        if curvature:
            J = J + x.T @ ((p[:, :1] * (1 - p[:, :1])) * x)
    return value, gradient, J


def errors(mean: np.ndarray, sd: np.ndarray, true: Truth) -> tuple[float, float]:
    """The worst mean in sds, the worst sd as a share."""
    return float(np.max(np.abs(mean - true.mean) / true.sd)), float(
        np.max(np.abs(sd / true.sd - 1))
    )


def accurate_from(draws: np.ndarray, true: Truth) -> int | None:
    """Draws per chain from which on every look finds means and sds accurate."""
    needed = None
    for count in range(EVERY, draws.shape[1] + 1, EVERY):
        flat = draws[:, :count].reshape(-1, draws.shape[-1])
        mean, sd = errors(flat.mean(0), flat.std(0, ddof=1), true)
        if mean > MEAN or sd > SD:
            needed = None
        elif needed is None:
            needed = count
    return needed


# -- the table -------------------------------------------------------------------------------


def measure(rows: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "draws.npz"
        found: dict[str, Any] = {"mode": fresh("mode", rows, 1, out)}
        found["sample"] = fresh("sample", rows, rounds, out)
        draws = np.load(out)["draws"]
        true = truth(workloads.logistic(rows))
        found["needed"] = accurate_from(draws, true)
        if found["needed"] is not None:
            found["short"] = fresh("short", rows, found["needed"], out)
        found["nuts"] = fresh("nuts", rows, 1, out)
    flat = draws.reshape(-1, draws.shape[-1])
    found["errors"] = errors(flat.mean(0), flat.std(0, ddof=1), true)
    found["laplace_errors"] = errors(true.laplace_mean, true.laplace_sd, true)
    found["truth"] = {"mean": true.mean_error, "sd": true.sd_error, "ess": true.ess}
    found["shape"] = draws.shape
    return found


def show(found: dict[str, Any], rows: int) -> list[tuple[str, float, str, bool]]:
    """Print everything; (target, value, bound, whether met)."""
    base, own, nuts = found["mode"], found["sample"], found["nuts"]
    first, second = base["first"]["total"], base["second"]["total"]
    warm = median(a for a, _ in own["races"])
    ratio = median(a / b for a, b in own["races"])
    line = lambda name, s, over, note="": print(f"  {name:44}{s:10.2f} s  {over:>8}  {note}")  # noqa: E731
    print(f"\nW2, {rows:,} rows, 50 columns: seconds, times mode + curvature")
    steps = f"{base['first']['steps']} Newton steps"
    line("mode + curvature, first call", first, "1", steps)
    line("mode + curvature, second call", second, "1")
    line("sgld.sample, first call", own["first"]["total"], f"{own['first']['total'] / first:.2f}")
    line("sgld.sample, later calls", warm, f"{ratio:.2f}", f"median of {len(own['races'])}")
    if found["needed"] is None:
        print("  sgld.sample never became accurate")
    else:
        short, count = found["short"], found["needed"]
        note = f"{count} of {found['shape'][1]} draws per chain"
        stopped = median(a for a, _ in short["races"])
        over = median(a / b for a, b in short["races"])
        line("  stopped when accurate, later calls", stopped, f"{over:.2f}", note)
    draws_only = EFFECTIVE / nuts["ess_per_transition"] * nuts["tree"] * nuts["per_gradient"]
    warmup = 1000 * nuts["tree"] * nuts["per_gradient"]
    line(f"NUTS, {EFFECTIVE} effective draws, extrapolated", draws_only, f"{draws_only / second:.0f}",
         "without compiling")  # fmt: skip
    line(
        "  and 1000 transitions of warm-up",
        draws_only + warmup,
        f"{(draws_only + warmup) / second:.0f}",
    )
    print(
        f"\nNUTS in the metric of the Laplace approximation: {nuts['tree']:.2f} gradients a transition "
        f"({nuts['tree_here']:.1f} in {TRANSITIONS} here), {nuts['ess_per_transition']:.2f} effective draws "
        f"a transition (the least of theta and theta^2, {nuts['rows']:,} rows, {nuts['word']}), "
        f"{1e3 * nuts['per_gradient']:.1f} ms a gradient"
    )
    print("\naccuracy: the worst mean in sds, the worst sd in %")
    for name, (mean, sd) in (("sgld.sample", found["errors"]), ("Gaussian at the mode", found["laplace_errors"])):  # fmt: skip
        print(f"  {name:44}{mean:10.4f}  {100 * sd:8.2f}")
    left = found["truth"]
    print(
        f"  the truth's own standard error {left['mean']:.1e} sds, {100 * left['sd']:.1e} %; its weights are worth "
        f"{left['ess']:.0f} of {TRUTH_DRAWS} draws"
    )
    print(f"\nplan: {', '.join(f'{k} {v}' for k, v in own['plan'].items() if v not in (None, []))}")
    print(f"verdict: {own['word']}; {own['num_steps']} steps a chain")
    print("\nseconds of sgld.sample:              first call   compiling  second call")
    parts = sorted(own["first"], key=lambda part: (part == "total", -own["first"][part]))
    for part in parts:
        compiling = (
            sum(own["compiling"].values()) if part == "total" else own["compiling"].get(part, 0)
        )
        print(
            f"  {part:36}{own['first'][part]:9.2f}{compiling:12.2f}{own['second'].get(part, 0):13.2f}"
        )
    mean, sd = found["errors"]
    return [
        ("first call, x mode + curvature", own["first"]["total"] / first, f"<= {BASELINE}",
         own["first"]["total"] <= BASELINE * first),
        ("later calls, x mode + curvature", ratio, f"<= {BASELINE}", ratio <= BASELINE),
        ("NUTS over a first call", draws_only / own["first"]["total"], f">= {PEER}",
         draws_only >= PEER * own["first"]["total"]),
        ("NUTS over a later call", draws_only / warm, f">= {PEER}", draws_only >= PEER * warm),
        ("worst mean, sds", mean, f"<= {MEAN}", mean <= MEAN),
        ("worst sd, share", sd, f"<= {SD}", sd <= SD),
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Time to an accurate posterior on W2.")
    parser.add_argument("--rows", type=int, default=10**6, help="rows of W2 (default 1,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of later calls (default 3)")
    parser.add_argument("--json", metavar="FILE", help="write all measurements there")
    parser.add_argument(
        "--store", action="store_true", help="write the ratios to results/time_to_accuracy.json"
    )
    parser.add_argument("--part", choices=CALLS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.part:
        found = CALLS[given.part](workloads.logistic(given.rows), given.rounds, given.out)
        print(json.dumps(found))
        return 0
    print(f"jax {jax.__version__}, {os.cpu_count()} cores, {jax.default_backend()}")
    found = measure(given.rows, given.rounds)
    targets = show(found, given.rows)
    print("\ntargets")
    for text, value, bound, met in targets:
        print(f"  {text:44}{value:10.3g}  {bound:9}  {'met' if met else 'MISSED'}")
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=2) + "\n")
    if given.store:
        ratios = {text: float(value) for text, value, _, _ in targets}
        if found["needed"] is not None:
            name = "later calls, x mode + curvature, stopped when accurate"
            ratios[name] = median(a / b for a, b in found["short"]["races"])
        claims.store("time_to_accuracy", ratios)
    return 0


if __name__ == "__main__":
    sys.exit(main())
