"""Whether the verdict can be believed: its misses and alarms on problems it was not tuned on.

    python benchmarks/verdict.py                     everything, about twenty minutes
    python benchmarks/verdict.py --quick             a tenth of the runs
    python benchmarks/verdict.py --part tuned        one half: mistuned, tuned
    python benchmarks/verdict.py --kinds poisson,linear --json rows.json
    python benchmarks/verdict.py --from a.json b.json        the tables of stored rows

mistuned    step, estimator, order, sampler and metric by hand, the step 1 to 30 times the largest
            that keeps the bias under 2.5%, or noise taken away until the draws are too narrow
tuned       `sgld.sample` told nothing but model, data and init

Problems and truths are those of fresh.py. `true` is sd of the run / true sd: the meter predicts
that number, the run's own Monte Carlo error included, so nothing is subtracted. The exit status
is 1 where a run off by more than 15% in some sd was trusted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import claims
import sgld
from fresh import FRESH, KINDS, Case, case
from sgld.errors import SGLDError
from sgld.inference.tuning.parts import factor_of, settled, shuffled_period
from sgld.results import statistics
from sgld.samplers.stationary import Law, largest_step, of_sampler
from verdict_tables import figures, report

GOOD_BIAS, WORST = 0.025, 30.0  # of the step that counts as good; what it is multiplied by
DRAWS, CHAINS = 500, 4


# -- mistuned runs ---------------------------------------------------------------------------


class Setting(NamedTuple):
    """What is given by hand. `narrow`: noise is taken away instead of the step enlarged."""

    sampler: Any
    gradient: Any
    order: str
    metric: str
    batch: int
    narrow: bool = False
    most_thin: int = 100


_PLAIN, _CENTRED, _FULL = sgld.Minibatch(), sgld.ControlVariates(), sgld.Full()
SETTINGS = {
    "SGLD reshuffle": Setting(sgld.SGLD(None), _PLAIN, "reshuffle", "dense", 50),
    "SGLD independent": Setting(sgld.SGLD(None), _PLAIN, "independent", "dense", 50),
    "SGLD replacement": Setting(sgld.SGLD(None), _PLAIN, "replacement", "dense", 20),
    "SGLD symmetric": Setting(sgld.SGLD(None), _PLAIN, "symmetric", "dense", 50),
    "SGLD subset": Setting(sgld.SGLD(None), _PLAIN, "subset", "dense", 200, most_thin=30),
    "SGLD cv independent": Setting(sgld.SGLD(None), _CENTRED, "independent", "dense", 10),
    "SGLD cv reshuffle": Setting(sgld.SGLD(None), _CENTRED, "reshuffle", "dense", 10),
    "SGLD cv symmetric": Setting(sgld.SGLD(None), _CENTRED, "symmetric", "dense", 10),
    "SGLD svrg reshuffle": Setting(sgld.SGLD(None), sgld.SVRG(50), "reshuffle", "dense", 10),
    "SGLD full": Setting(sgld.SGLD(None), _FULL, "independent", "dense", 0),
    "SGLD narrow full": Setting(sgld.SGLD(None), _FULL, "independent", "dense", 0, True),
    "SGLD reshuffle diagonal": Setting(sgld.SGLD(None), _PLAIN, "reshuffle", "diagonal", 50),
    "SGLD cv independent diagonal": Setting(
        sgld.SGLD(None), _CENTRED, "independent", "diagonal", 20
    ),
    "SGLD symmetric diagonal": Setting(sgld.SGLD(None), _PLAIN, "symmetric", "diagonal", 50),
    "SGLD reshuffle scalar": Setting(sgld.SGLD(None), _PLAIN, "reshuffle", "scalar", 50),
    "SGLD full scalar": Setting(sgld.SGLD(None), _FULL, "independent", "scalar", 0),
    "SGLD reshuffle RMSprop": Setting(sgld.SGLD(None), _PLAIN, "reshuffle", "RMSprop", 50),
    "BAOA reshuffle": Setting(sgld.BAOA(), _PLAIN, "reshuffle", "dense", 50),
    "BAOA cv independent": Setting(sgld.BAOA(), _CENTRED, "independent", "dense", 20),
    "BAOA replacement diagonal": Setting(sgld.BAOA(), _PLAIN, "replacement", "diagonal", 100),
    "SGHMC independent": Setting(sgld.SGHMC(0.3), _PLAIN, "independent", "dense", 50),
    "SGHMC reshuffle diagonal": Setting(sgld.SGHMC(0.3), _PLAIN, "reshuffle", "diagonal", 50),
    "SGHMC narrow full": Setting(sgld.SGHMC(0.3), _FULL, "independent", "dense", 0, True),
    "UBU reshuffle": Setting(sgld.UBU(), _PLAIN, "reshuffle", "dense", 50),
    "SGNHT independent": Setting(sgld.SGNHT(), _PLAIN, "independent", "dense", 50),
    "SGNHT replacement": Setting(sgld.SGNHT(), _PLAIN, "replacement", "dense", 20),
    # a run that says it is corrected and is not: no law tells, only the meter
    "SGLD wrong correction independent": Setting(
        sgld.SGLD(0.0), _PLAIN, "independent", "dense", 50
    ),
}


def settings_of(name: str) -> list[str]:
    """Three in eight of the settings, so that each meets three kinds and few are compiled."""
    at = list(KINDS).index(name)
    return [s for i, s in enumerate(SETTINGS) if (i + at) % 8 in (0, 2, 3)]


def metric(name: str, problem: Case) -> Any:
    J = problem.laplace.curvature
    D = {
        "dense": sgld.Dense(np.linalg.inv(J)),
        "diagonal": sgld.Diagonal(1 / np.diag(J)),
        "scalar": sgld.Scalar(1 / np.mean(np.diag(J))),
        "RMSprop": sgld.RMSprop(),
    }[name]  # fmt: skip
    return D.prepare(problem.posed.layout)


def law_of(setting: Setting, problem: Case, D: Any) -> Any:
    """What the steps come to on the Gaussian at the mode: for choosing the good step only."""
    posed, d = problem.posed, problem.laplace.center.size
    covariance, period = np.zeros((d, d)), 1
    if setting.batch:
        posed = posed.with_batches(setting.batch, setting.order)
        period = shuffled_period(posed)
        share = 1 / setting.batch
        share -= 0 if setting.order == "replacement" else 1 / posed.num_data
        covariance = problem.rows[0 if setting.gradient == _PLAIN else 1] * share
    matrix = factor_of(settled(D, posed, problem.laplace.center), posed)
    sampler = sgld.SGLD(None) if isinstance(setting.sampler, sgld.SGNHT) else setting.sampler
    out = posed.target.jacobian(problem.laplace.center)
    law = of_sampler(
        Law.of(problem.laplace.curvature, matrix, covariance, period=period, out=out), sampler
    )
    assert law is not None
    return law


def mistuned(name: str, which: str, k: int, seed: int, share: float) -> dict[str, Any]:
    """One run; `share` in (0, 1) says how bad."""
    setting, problem = SETTINGS[which], case(name, k)
    D = metric(setting.metric, problem)
    law = law_of(setting, problem, D)
    factor, sampler = WORST**share, setting.sampler
    if setting.narrow:
        factor = 0.95 * share
        h = 0.3 if isinstance(sampler, sgld.SGLD) else 0.1
        if isinstance(sampler, sgld.SGLD):
            sampler = sgld.SGLD(jnp.full(problem.laplace.center.size, factor * (2 - h) / h))
        else:
            sampler = sgld.SGHMC(jnp.float32(0.3), jnp.float32(0.3 * factor))
    else:
        h = largest_step(law, GOOD_BIAS) * factor
        while not law.stable(1.05 * h):
            h /= 1.1
    rate = max(law.rate(h), 1e-3)
    thin = int(np.clip(np.ceil(1.3 / rate), 1, setting.most_thin))
    burn_in = int(np.ceil(6 / rate))
    row = {
        "part": "mistuned", "kind": name, "setting": which, "data": k, "seed": seed,
        "metric": setting.metric, "times": factor, "step_size": float(h), "thin": thin,
        "burn_in": max(burn_in, 1000) if setting.metric == "RMSprop" else burn_in,
    }  # fmt: skip
    return judged(row, problem, lambda: sgld.sample(
        KINDS[name].posterior, problem.data, _start(problem),
        sampler=sampler, step_size=float(h), gradient=setting.gradient, order=setting.order,
        preconditioner=D, batch_size=setting.batch or "auto", num_chains=CHAINS,
        num_draws=DRAWS, burn_in=row["burn_in"], thin=thin, seed=seed, progress=False,
    ))  # fmt: skip


def _start(problem: Case) -> Any:
    """The mode: what burn-in begins from, so that a large step is seen and not a far start."""
    posed = problem.posed
    return posed.target.position(posed.array(problem.laplace.center))


def tuned(name: str, k: int, seed: int) -> dict[str, Any]:
    """One run at default arguments."""
    kind, problem = KINDS[name], case(name, k)
    row = {"part": "tuned", "kind": name, "setting": "default", "data": k, "seed": seed}
    return judged(row, problem, lambda: sgld.sample(
        kind.posterior, problem.data, kind.init, seed=seed, progress=False
    ))  # fmt: skip


def judged(row: dict[str, Any], problem: Case, run: Callable[[], sgld.Draws]) -> dict[str, Any]:
    """The row with what the run said of itself and what is true of it."""
    began = time.perf_counter()
    try:
        draws = run()
    except SGLDError as error:  # every chain overflowed before its first draw
        refused = {"word": "refused", "reason": str(error), "nu": None, "excess": None, "notes": 0}
        return {**row, **refused, "names": [""], "seconds": time.perf_counter() - began}
    row["seconds"] = time.perf_counter() - began
    verdict, plan = draws.verdict, draws.info["plan"]
    row |= {
        "word": verdict.word, "reason": verdict.reasons[0], "nu": plan["nu"],
        "steps": draws.info["num_steps"], "names": list(draws.names),
        "notes": len(plan["notes"]), "excess": verdict.extra.get("excess"),
        "truth_error": problem.error,
    }  # fmt: skip
    if not draws.healthy.size:
        return row
    values, _ = draws.flat()
    mean = statistics.mean(values, draws.weights)
    sd = np.sqrt(statistics.var(values, draws.weights))
    with np.errstate(over="ignore", invalid="ignore"):
        squares = statistics.ess((values - mean) ** 2, draws.weights)
        row["ess"] = float(np.fmin(statistics.ess(values, draws.weights), squares).min())
    row |= {
        "true": (sd / problem.sd).tolist(),
        "mean_error": ((mean - problem.mean) / problem.sd).tolist(),
    }
    for key, value in (
        ("said", verdict.sd_ratio), ("r2", verdict.r2), ("se", verdict.sd_ratio_se),
        ("corrected_mean", verdict.mean_corrected),
    ):  # fmt: skip
        row[key] = None if value is None else np.asarray(value, float).tolist()
    if row["corrected_mean"] is not None:
        row["corrected_mean"] = ((verdict.mean_corrected - problem.mean) / problem.sd).tolist()
    return row


def rows(kinds: list[str], part: str | None, scale: float) -> Iterator[dict[str, Any]]:
    """Kind by kind, so that what is compiled is used up before the next."""
    sets, repeats = max(2, round(8 * scale**0.5)), max(2, round(20 * scale**0.5))
    per_setting = max(2, round(22 * scale))
    for name in kinds:
        began, effective, errors = time.perf_counter(), [], []
        for k in range(sets):
            effective.append(case(name, k).effective)
            errors.append(case(name, k).error)
        print(
            f"{name:<20}{sets} data sets; truth: importance draws effective "
            f"{min(effective):.0%} or more, error of an sd at most {max(errors):.2%}; "
            f"{time.perf_counter() - began:.0f} s", flush=True,
        )  # fmt: skip
        rng = np.random.default_rng([FRESH, 1, list(KINDS).index(name)])
        for which in settings_of(name) if part != "tuned" else []:
            # a stratified sample of how bad, denser where it is bad
            shares = (np.arange(per_setting) + rng.random(per_setting)) / per_setting
            for i, share in enumerate(shares**0.7):
                yield mistuned(name, which, i % sets, int(rng.integers(2**31)), float(share))
        if part != "mistuned":
            for i in range(sets * repeats):
                yield tuned(name, i % sets, int(rng.integers(2**31)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--part", choices=("mistuned", "tuned"), default=None)
    parser.add_argument("--kinds", default="", help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--json", default=None, help="write the rows here")
    parser.add_argument(
        "--store", action="store_true", help="write the counts to results/verdict.json"
    )
    parser.add_argument("--from", dest="stored", nargs="+", default=[], help="rows written before")
    args = parser.parse_args()
    began = time.perf_counter()
    found: list[dict[str, Any]] = []
    for path in args.stored:
        with open(path) as file:
            found += json.load(file)
    if not args.stored:
        kinds = args.kinds.split(",") if args.kinds else list(KINDS)
        found = list(rows(kinds, args.part, 0.1 if args.quick else 1.0))
        print(f"{len(found)} runs in {time.perf_counter() - began:.0f} s")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(found, file)
    if args.store:
        claims.store("verdict", figures(found))
    sys.exit(0 if report(found) else 1)


if __name__ == "__main__":
    main()
