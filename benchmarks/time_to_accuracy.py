"""Measure the time to an accurate posterior (W2), against mode and curvature alone and against NUTS.

    python benchmarks/time_to_accuracy.py                 a million rows, some minutes
    python benchmarks/time_to_accuracy.py --rows 200000   the short form

W2 is logistic regression with 50 columns. Accurate: every mean within .1 posterior sd and every sd
within 5%. The baseline is `sgld.find_map` and one pass for the curvature at the mode.

First calls are timed in fresh processes, compilation included; later calls with another seed, in
turn with the baseline's, each ratio within a round. NUTS is not run in full: seconds per gradient are
measured at all rows, and transitions per effective draw and gradients per transition at few, where
the whitened posterior has the same shape.

The truth is in float64 and shares no code with the package: draws of the Gaussian at the mode,
weighted by density over Gaussian, with full gradients g in E[z - g] and E[z z' + I - (z g' + g z')/2]
(Stein's identities under the posterior, z and g whitened): what is left of Monte Carlo error is in
proportion to how far the posterior is from a Gaussian.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size

import sgld
from harness import Table, command_line, fresh_process, paired_rounds, store, wall_seconds
from workloads import Workload, logistic

MAX_MEAN_ERROR, MAX_SD_ERROR = 0.1, 0.05  # posterior sds; share of the sd
TRUTH_DRAWS, PASS_ROWS = 256, 50_000
EFFECTIVE_DRAWS, WARM_UP = 1000, 1000  # of NUTS
FEW_ROWS, GRADIENTS = 20_000, 10
CHECK_EVERY = 25  # draws per chain between two checks of the accuracy


# -- what runs in fresh processes ------------------------------------------------------------


@jax.jit
def curvature(beta: Any, data: Any) -> Any:
    """Return the curvature of the log likelihood of W2, in one pass over the rows."""
    loss = lambda b, rows: jnp.sum(jax.vmap(lambda *r: -logistic_value(b, r))(*rows))  # noqa: E731
    count = len(data[1]) // PASS_ROWS * PASS_ROWS
    blocks = [a[:count].reshape(-1, PASS_ROWS, *a.shape[1:]) for a in data]
    total = jnp.sum(jax.lax.map(lambda rows: jax.hessian(loss)(beta, rows), blocks), axis=0)
    return total + jax.hessian(loss)(beta, [a[count:] for a in data])


def logistic_value(b: Any, row: Any) -> Any:
    x, y = row
    return y * (x @ b) - jax.nn.softplus(x @ b)


def mode_and_curvature(work: Workload, on_device: list[Any]) -> None:
    """Run the baseline; the rows are sent to the device once, by the search."""
    found = sgld.find_map(work.posterior, work.data, work.init)
    jax.block_until_ready(curvature(jnp.asarray(found.position), on_device))


def send_rows(work: Workload) -> list[Any]:
    """Return the rows on the device."""
    return [jax.block_until_ready(jnp.asarray(leaf)) for leaf in work.data]


def sample(work: Workload, seed: int, num_draws: Any = "auto") -> sgld.Draws:
    return sgld.sample(
        work.posterior, work.data, work.init, seed=seed, num_draws=num_draws, progress=False
    )


def first_baseline(rows: int) -> float:
    """Return the seconds of the baseline in a process of its own."""
    work = logistic(rows)
    on_device = send_rows(work)
    return wall_seconds(lambda: mode_and_curvature(work, on_device))


def later_calls(rows: int, rounds: int, num_draws: Any = "auto") -> dict[str, Any]:
    """Return seconds of a first call, and of later calls with their ratio to the baseline's."""
    work, seeds = logistic(rows), iter(range(10**6))
    on_device = send_rows(work)
    first = wall_seconds(lambda: sample(work, next(seeds), num_draws))
    timers = {
        "own": lambda: wall_seconds(lambda: sample(work, next(seeds), num_draws)),
        "baseline": lambda: wall_seconds(lambda: mode_and_curvature(work, on_device)),
    }
    took = paired_rounds(timers, rounds)
    ratio = float(np.median(took["own"] / took["baseline"]))
    medians = {name: median(values) for name, values in took.items()}
    return {"first": first, **medians, "ratio": ratio}


def accuracy(rows: int) -> dict[str, Any]:
    """Return the errors of a default run, and how many draws it needs to be accurate."""
    work = logistic(rows)
    draws, true = sample(work, 1), truth(work)
    values = np.asarray(draws.position, np.float64)
    flat = values.reshape(-1, values.shape[-1])
    return {
        "needed": accurate_from(values, true), "draws": draws.num_draws,
        "errors": errors(flat.mean(0), flat.std(0, ddof=1), true),
        "gaussian": errors(true.mode, true.mode_sd, true), "verdict": draws.verdict.word,
        "truth": (true.mean_error, true.sd_error), "plan": str(draws.plan),
    }  # fmt: skip


def nuts(rows: int) -> dict[str, Any]:
    """Return gradients and effective draws of a transition at few rows, and seconds of a gradient at all."""
    few, work = logistic(min(FEW_ROWS, rows)), logistic(rows)
    warm_up, length = (500, 1000) if rows > FEW_ROWS else (50, 50)
    draws = sgld.reference(
        few.posterior, few.data, few.init, num_warmup=warm_up, num_draws=length, progress=False
    )
    values = np.asarray(draws.position, np.float64)
    sizes = [effective_sample_size(v) for v in (values, (values - values.mean((0, 1))) ** 2)]
    transitions = draws.num_chains * draws.num_draws
    data = send_rows(work)
    slope = jax.jit(jax.grad(work.posterior.log_likelihood_free))
    call = lambda: jax.block_until_ready(slope(jnp.asarray(work.init), data))  # noqa: E731
    call()
    took = median(wall_seconds(call) for _ in range(GRADIENTS))
    tree = draws.info["num_gradients"] / transitions
    return {
        "tree": tree, "ess_per_transition": min(map(np.min, sizes)) / transitions,
        "per_gradient": took, "verdict": draws.verdict.word,
    }  # fmt: skip


# -- the truth -------------------------------------------------------------------------------


class Truth(NamedTuple):
    """Mean and sd of every coefficient, their largest Monte Carlo errors, and the Gaussian's."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: float  # in sds
    sd_error: float  # as a share of the sd
    mode: np.ndarray
    mode_sd: np.ndarray


def truth(work: Workload) -> Truth:
    """Return the posterior of W2 in float64, as described above."""
    X, y = work.data
    d = X.shape[1]
    beta = np.zeros(d)
    for _ in range(30):
        _, gradient, J = _sums(X, y, beta[None], curvature=True)
        move = np.linalg.solve(J, gradient[0])
        beta = beta + move
        if gradient[0] @ move < 1e-12:
            break
    F = np.linalg.inv(np.linalg.cholesky(J)).T
    z = np.random.default_rng(20240603).standard_normal((TRUTH_DRAWS, d))
    value, gradient, _ = _sums(X, y, beta + z @ F.T)
    logs = value + 0.5 * np.sum(z**2, 1)
    w, g = np.exp(logs - logs.max()), -gradient @ F

    def moments(keep: Any) -> tuple[np.ndarray, np.ndarray]:
        share = w[keep] / w[keep].sum()
        mean = share @ (z[keep] - g[keep])
        zg = z[keep].T @ (share[:, None] * g[keep])
        second = z[keep].T @ (share[:, None] * z[keep]) + np.eye(d) - (zg + zg.T) / 2
        cov = second - np.outer(mean, mean)
        return beta + F @ mean, np.sqrt(np.einsum("mi,ij,mj->m", F, cov, F))

    mean, sd = moments(np.arange(TRUTH_DRAWS))
    folds = np.arange(TRUTH_DRAWS) % 16
    left = [moments(folds != k) for k in range(16)]  # jackknife
    error = lambda i: np.sqrt(15 / 16 * sum((part[i] - (mean, sd)[i]) ** 2 for part in left))  # noqa: E731
    worst = [float(np.max(error(i) / sd)) for i in (0, 1)]
    return Truth(mean, sd, *worst, beta, np.sqrt(np.sum(F**2, 1)))


def _sums(
    X: np.ndarray, y: np.ndarray, betas: np.ndarray, curvature: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log density [m], its gradient [m, d] and, at the first position, its curvature."""
    value, gradient = -0.05 * np.sum(betas**2, 1), -0.1 * betas
    J = 0.1 * np.eye(X.shape[1])
    for first in range(0, len(X), PASS_ROWS):
        x, hit = X[first : first + PASS_ROWS].astype(float), y[first : first + PASS_ROWS]
        eta = x @ betas.T
        p = 1 / (1 + np.exp(-eta))
        value = value + hit @ eta - np.logaddexp(0.0, eta).sum(0)
        gradient = gradient + (hit[:, None] - p).T @ x
        if curvature:
            J = J + x.T @ ((p[:, :1] * (1 - p[:, :1])) * x)
    return value, gradient, J


def errors(mean: np.ndarray, sd: np.ndarray, true: Truth) -> tuple[float, float]:
    """Return the error of the worst mean in sds, and of the worst sd as a share."""
    worst_sd = float(np.max(np.abs(sd / true.sd - 1)))
    return float(np.max(np.abs(mean - true.mean) / true.sd)), worst_sd


def accurate_from(draws: np.ndarray, true: Truth) -> int | None:
    """Return the draws per chain from which on every check finds means and sds accurate."""
    needed = None
    for count in range(CHECK_EVERY, draws.shape[1] + 1, CHECK_EVERY):
        flat = draws[:, :count].reshape(-1, draws.shape[-1])
        mean, sd = errors(flat.mean(0), flat.std(0, ddof=1), true)
        if mean > MAX_MEAN_ERROR or sd > MAX_SD_ERROR:
            needed = None
        elif needed is None:
            needed = count
    return needed


# -- the table -------------------------------------------------------------------------------

PARTS = {"first_baseline": first_baseline, "later_calls": later_calls, "accuracy": accuracy, "nuts": nuts}  # fmt: skip


def main() -> None:
    options = {
        "--rows": {"type": int, "default": 10**6, "help": "rows of W2 (default 1,000,000)"},
        "--rounds": {"type": int, "default": 3, "help": "rounds of later calls (default 3)"},
    }
    args = command_line(__doc__, options=options, parts=PARTS)
    rows, rounds = (2000, 1) if args.smoke else (args.rows, args.rounds)

    def fresh(part: str, **given: Any) -> Any:
        if args.smoke and part != "first_baseline":  # a process less
            return PARTS[part](rows=rows, **given)
        first = {"JAX_COMPILATION_CACHE_DIR": None}  # a first call compiles
        return fresh_process(__file__, part, environment=first, rows=rows, **given)

    began = time.perf_counter()
    baseline, own = fresh("first_baseline"), fresh("later_calls", rounds=rounds)
    found, few = fresh("accuracy"), fresh("nuts")
    print(f"W2, {rows:,} rows, 50 columns: seconds, and times mode + curvature")
    table = Table(46, {"seconds": ".2f", "x": ".2f"})
    table.row("mode + curvature, first call", baseline, 1.0)
    table.row("mode + curvature, later calls", own["baseline"], 1.0)
    table.row("sgld.sample, first call", own["first"], own["first"] / baseline)
    table.row("sgld.sample, later calls", own["own"], own["ratio"])
    figures = {
        "first call, x mode + curvature": own["first"] / baseline,
        "later calls, x mode + curvature": own["ratio"],
    }
    if found["needed"] is None:
        print("sgld.sample never became accurate")
    else:
        short = fresh("later_calls", rounds=rounds, num_draws=found["needed"])
        note = f"{found['needed']} of {found['draws']} draws per chain"
        table.row("  stopped when accurate, later calls", short["own"], short["ratio"], note=note)
        name = "later calls, x mode + curvature, stopped when accurate"
        figures[name] = short["ratio"]
    per_transition = few["tree"] * few["per_gradient"]
    drawing = EFFECTIVE_DRAWS / few["ess_per_transition"] * per_transition
    for title, took in (
        (f"NUTS, {EFFECTIVE_DRAWS} effective draws, extrapolated", drawing),
        ("  and its warm-up", drawing + WARM_UP * per_transition),
    ):
        table.row(title, took, took / own["baseline"])
    figures["NUTS over a first call"] = drawing / own["first"]
    figures["NUTS over a later call"] = drawing / own["own"]
    figures["worst mean, sds"], figures["worst sd, share"] = found["errors"]
    print(
        f"NUTS: {few['tree']:.2f} gradients and {few['ess_per_transition']:.2f} effective draws a "
        f"transition ({few['verdict']}), {1e3 * few['per_gradient']:.1f} ms a gradient"
    )
    for name, (mean, sd) in (
        ("sgld.sample", found["errors"]), ("the Gaussian at the mode", found["gaussian"]),
        ("standard error of the truth", found["truth"]),
    ):  # fmt: skip
        print(f"{name}: worst mean {mean:.4f} sds, worst sd {100 * sd:.2f}%")
    print(
        f"verdict: {found['verdict']}; {time.perf_counter() - began:.0f} s in all\n{found['plan']}"
    )
    for name, value in figures.items():
        print(f"{name:<60}{value:10.3g}")
    if args.store:
        store("time_to_accuracy", figures)


if __name__ == "__main__":
    main()
