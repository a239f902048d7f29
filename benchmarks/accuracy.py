"""How right `sgld.sample` is when it is told nothing but model, data and init: a row per problem.

    python benchmarks/accuracy.py                          all of problems/, several minutes
    python benchmarks/accuracy.py --structured             Gaussian processes, series, many groups, a lasso
    python benchmarks/accuracy.py --only radon,softmax     some, of either kind
    python benchmarks/accuracy.py --seeds 1 2 3 --json accuracy.json

mean        largest error of a mean, in sd of the truth; `corr` of the corrected means, where given
sd ratio    smallest and largest sd of the run / true sd; `worst` the one farther from 1, `said`
            what the verdict predicted for that parameter, r2 and nu the meter's own quality
at mode     nu before the Gaussian's centre moved from the mode to the mean
epochs      steps of one chain x batch size / N (1 step = 1 epoch with data=None)
cpu         seconds of `sgld.sample` on all cores, compilation included; `NUTS` its seconds where a long
            run of it is the truth; then what ran

A refusal in a sentence is a row, and counts as flagged. Anything else that is raised is printed in
full at the end, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from typing import Any

import numpy as np

import sgld
from problems import PROBLEMS, STRUCTURED, Problem, Truth, truth_of
from sgld.errors import SGLDError

SLOW = 60  # CPU seconds
GOOD_SD, GOOD_MEAN = 0.07, 0.1
MISS_SD, MISS_MEAN = 0.12, 0.3  # trusted and beyond: a silent miss
HEAD = (
    f"{'':<26}{'mean':>6}{'corr':>6} {'sd ratio':>12}{'worst':>7}{'said':>7}{'r2':>7}{'at mode':>9}{'nu':>9}"
    f"{'steps':>9}{'epochs':>12}{'cpu':>7}{'NUTS':>7}  verdict"
)


def run(problem: Problem, truth: Truth, seed: int) -> dict[str, Any]:
    """Everything that a row needs, JSON-ready."""
    row: dict[str, Any] = {
        "name": problem.name, "seed": seed, "truth": truth.origin, "nuts_seconds": truth.seconds,
    }  # fmt: skip
    began = time.process_time()
    try:
        draws = sgld.sample(
            problem.posterior, problem.data, problem.init, seed=seed, progress=False
        )
    except SGLDError as error:
        refused = {"word": "refused", "reason": str(error)}
        return {**row, **refused, "seconds": time.process_time() - began}
    row["seconds"] = time.process_time() - began
    verdict, plan, num_data = draws.verdict, draws.info["plan"], draws.info["num_data"]
    row |= {
        "word": verdict.word, "reason": " ".join(verdict.reasons), "nu": plan["nu"], "nu_at_mode": plan["nu_at_mode"],
        "steps": draws.info["num_steps"], "plan": plan, "names": list(draws.names),
        "epochs": draws.info["num_steps"] * (plan["batch_size"] or 1) / (num_data or 1),
    }  # fmt: skip
    if not draws.healthy.size:
        return row
    mean, sd = (_flat(draws, statistic) for statistic in ("mean", "sd"))
    row["mean_error"] = ((mean - truth.mean) / truth.sd).tolist()
    row["sd_ratio"] = (sd / truth.sd).tolist()
    row["quantile_error"] = [
        float(np.max(np.abs(_flat(draws, "quantile", q) - value) / truth.sd))
        for q, value in zip((0.05, 0.5, 0.95), truth.quantiles, strict=True)
    ]
    if verdict.sd_ratio is not None:
        row["said"], row["r2"] = verdict.sd_ratio.tolist(), np.asarray(verdict.r2).tolist()
    if verdict.mean_corrected is not None:
        row["corrected_error"] = ((verdict.mean_corrected - truth.mean) / truth.sd).tolist()
    return row


def _flat(draws: sgld.Draws, statistic: str, *args: float) -> np.ndarray:
    import jax

    leaves = jax.tree.leaves(getattr(draws, statistic)(*args))
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    name = row["name"] + (f" #{row['seed']}" if row["seed"] else "")
    nuts = f"{row['nuts_seconds']:7.0f}" if row["nuts_seconds"] else f"{'':>7}"
    slow = f" OVER {SLOW} s" if row["seconds"] > SLOW else ""
    if "not mixed" in row.get("truth", ""):
        slow += " (so was NUTS)" if row["word"] == "not mixed" else " (NUTS not mixed)"
    if "sd_ratio" not in row:
        return f"{name:<26}{row['seconds']:>96.1f}{nuts}  {row['word']}{slow}: {row['reason'][:90]}"
    ratio = np.array(row["sd_ratio"])
    at = int(np.argmax(np.abs(ratio - 1)))
    known = np.abs([e for e in row.get("corrected_error", []) if np.isfinite(e)])
    return (
        f"{name:<26}{_short(np.abs(row['mean_error']).max(), 2, 6)}"
        f"{_short(known.max() if known.size else None, 2, 6)} "
        f"{_short(ratio.min(), 3, 6)}{_short(ratio.max(), 3, 6)}{_short(ratio[at], 3, 7)}"
        f"{_short(row['said'][at] if 'said' in row else None, 3, 7)}"
        f"{_short(min(row['r2']) if row.get('r2') else None, 2, 7)}"
        f"{_or_nan(row['nu_at_mode']):9.2g}{_or_nan(row['nu']):9.2g}{row['steps']:>9}"
        f"{row['epochs']:>12.1f}{row['seconds']:>7.1f}{nuts}  {row['word']}{slow} {_what(row['plan'])}"
    )


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def _what(plan: dict[str, Any]) -> str:
    """Sampler and gradient, in brief."""
    return " ".join(str(plan[part]).split("(")[0] for part in ("sampler", "gradient"))


def _short(value: float | None, digits: int, width: int) -> str:
    """A number in its column, whatever its size."""
    if value is None:
        return " " * width
    text = f"{value:.{digits}f}"
    return f"{text if len(text) < width else f'{value:.0e}':>{width}}"


def error(row: dict[str, Any]) -> tuple[float, float]:
    """Largest error of an sd ratio and of a mean (inf where there is none)."""
    if "sd_ratio" not in row:
        return np.inf, np.inf
    ratio, mean = np.abs(np.array(row["sd_ratio"]) - 1).max(), np.abs(row["mean_error"]).max()
    return float(np.nan_to_num(ratio, nan=np.inf)), float(np.nan_to_num(mean, nan=np.inf))


def summary(rows: list[dict[str, Any]]) -> str:
    """The counts that the table is read for, in words."""
    return judged(rows)[0]


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The same counts by name."""
    return judged(rows)[1]


def judged(rows: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Both."""
    trusted = {id(row) for row in rows if row["word"] == "trusted"}
    errors = {id(row): error(row) for row in rows}
    good = [r for r in rows if errors[id(r)][0] <= GOOD_SD and errors[id(r)][1] <= GOOD_MEAN]
    off = [row for row in rows if row not in good]
    near = [row for row in rows if errors[id(row)][0] <= 0.05]
    missed = [
        row for row in rows
        if id(row) in trusted and (errors[id(row)][0] > MISS_SD or errors[id(row)][1] > MISS_MEAN)
    ]  # fmt: skip
    slight = [row for row in off if id(row) in trusted and row not in missed]
    pairs = [
        (said, ratio)
        for row in rows if "said" in row
        for said, ratio, r2 in zip(row["said"] or (), row["sd_ratio"], row["r2"] or (), strict=False)
        if r2 >= 0.9
    ]  # fmt: skip
    gap = np.abs([said - ratio for said, ratio in pairs])

    def names(some: list[dict[str, Any]]) -> str:
        found = (r["name"] + (f" #{r['seed']}" if r["seed"] else "") for r in some)
        return ", ".join(found) or "none"

    flagged = [row for row in off if id(row) not in trusted]
    lost = [row for row in near if id(row) not in trusted]
    lines = [
        f"{len(good)} of {len(rows)} right: every sd within {GOOD_SD:.0%}, every mean within "
        f"{GOOD_MEAN} sd; {sum(id(row) in trusted for row in good)} of these trusted",
        f"{len(off)} off: {len(flagged)} of these flagged, or refused",
        f"  trusted, and between that and a miss: {names(slight)}",
        f"silent misses (trusted, an sd off by over {MISS_SD:.0%} or a mean by over {MISS_MEAN} sd): "
        + names(missed),
        f"{len(near) - len(lost)} of {len(near)} with every sd within 5% are trusted; not: {names(lost)}",
    ]
    found = {
        "problems": len(rows), "right": len(good), "off, flagged": len(flagged),
        "right, trusted": sum(id(row) in trusted for row in good), "silent misses": names(missed),
        "sds within 5%": len(near), "sds within 5%, trusted": len(near) - len(lost),
        "parameters": int(gap.size),
    }  # fmt: skip
    if gap.size:
        found["predicted - true, 99%"] = 100 * float(np.quantile(gap, 0.99))
        lines.append(
            f"predicted - true sd ratio at r2 >= .9: median {np.median(gap):.4f}, 99% "
            f"{np.quantile(gap, 0.99):.3f} of {gap.size} parameters (Monte Carlo error of the run "
            "and of the truth included)"
        )
    return "\n".join(lines), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names, comma between")
    parser.add_argument("--structured", action="store_true", help="those of problems/processes.py")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--json", default=None, help="write the rows here")
    parser.add_argument(
        "--store", action="store_true", help="write the counts to results/accuracy.json"
    )
    args = parser.parse_args()
    every = PROBLEMS | STRUCTURED
    names = args.only.split(",") if args.only else list(STRUCTURED if args.structured else PROBLEMS)
    unknown = [name for name in names if name not in every]
    if unknown:
        parser.error(f"no problem {unknown[0]!r}; there are {', '.join(every)}")
    rows, crashes = [], []
    print(HEAD)
    for name in names:
        problem = every[name]()
        truth = truth_of(problem)
        if truth is None:
            print(f"{name:<26}no truth: run benchmarks/references.py", flush=True)
            continue
        for seed in args.seeds:
            try:
                rows.append(run(problem, truth, seed))
                print(line(rows[-1]), flush=True)
            except Exception:
                crashes.append(f"{name}, seed {seed}:\n{traceback.format_exc()}")
                print(f"{name:<26}CRASH, see the end", flush=True)
    if rows:
        print("\n" + summary(rows))
        for row in rows:
            if row["word"] != "trusted":
                print(f"{row['name']} #{row['seed']}: {row['word']}: {row['reason']}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1, default=str)
    if args.store and not (args.only or args.structured):
        import claims

        claims.store("accuracy", figures(rows))
    print(*crashes, sep="\n")
    sys.exit(1 if crashes else 0)


if __name__ == "__main__":
    main()
