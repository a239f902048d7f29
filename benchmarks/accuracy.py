"""Measure how right `sgld.sample` is with nothing given but model, data and init: a row per problem.

    python benchmarks/accuracy.py                          all of problems/, several minutes
    python benchmarks/accuracy.py --structured             Gaussian processes, series, groups, a lasso
    python benchmarks/accuracy.py --problems radon,softmax some, of either kind
    python benchmarks/accuracy.py --seeds 1 2 3 --json accuracy.json

mean        largest error of a mean, in sd of the truth; `corr` of the corrected means, where given
sd ratio    smallest and largest sd of the run / true sd; `worst` the one farther from 1, `said`
            what the verdict predicted for that parameter, r2 and nu the meter's own quality
at mode     nu before the Gaussian's centre moved from the mode to the mean
epochs      steps of one chain x batch size / N (1 step = 1 epoch with data=None)
cpu         seconds of `sgld.sample` on all cores, compilation included; `NUTS` its seconds where a
            long run of it is the truth; then the verdict and what ran

An error that the package explains is a row, and counts as flagged. Any other exception is printed in
full at the end, and the exit status is then 1.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import numpy as np

import sgld
from densities import flat_numbers
from harness import command_line, store, timed
from problems import PROBLEMS, STRUCTURED, Problem, Truth, truth_of

MAX_CPU_SECONDS = 60
GOOD_SD, GOOD_MEAN = 0.07, 0.1
MISS_SD, MISS_MEAN = 0.12, 0.3  # trusted and beyond: a silent miss
HEAD = (
    f"{'':<26}{'mean':>6}{'corr':>6} {'sd ratio':>12}{'worst':>7}{'said':>7}{'r2':>7}{'at mode':>9}{'nu':>9}"
    f"{'steps':>9}{'epochs':>12}{'cpu':>7}{'NUTS':>7}  verdict"
)


def run(problem: Problem, truth: Truth, seed: int, **given: Any) -> dict[str, Any]:
    """Return everything that a row needs, JSON-ready."""
    row: dict[str, Any] = {"name": problem.name, "seed": seed, "truth": truth.origin}
    row["nuts_seconds"] = truth.seconds
    try:
        draws, _, row["seconds"] = timed(lambda: sgld.sample(
            problem.posterior, problem.data, problem.init, seed=seed, progress=False, **given
        ))  # fmt: skip
    except sgld.errors.SGLDError as error:
        return {**row, "word": "refused", "reason": str(error), "seconds": 0.0}
    verdict, plan, num_data = draws.verdict, draws.info["plan"], draws.info["num_data"]
    row |= {
        "word": verdict.word, "reason": " ".join(verdict.reasons), "nu": plan["nu"], "nu_at_mode": plan["nu_at_mode"],
        "steps": draws.info["num_steps"], "plan": plan, "names": list(draws.names),
        "epochs": draws.info["num_steps"] * (plan["batch_size"] or 1) / (num_data or 1),
    }  # fmt: skip
    if not draws.healthy.size:
        return row
    mean, sd = (flat_numbers(part) for part in (draws.mean(), draws.sd()))
    row["mean_error"] = ((mean - truth.mean) / truth.sd).tolist()
    row["sd_ratio"] = (sd / truth.sd).tolist()
    if verdict.sd_ratio is not None:
        row["said"], row["r2"] = verdict.sd_ratio.tolist(), np.asarray(verdict.r2).tolist()
    if verdict.mean_corrected is not None:
        row["corrected_error"] = ((verdict.mean_corrected - truth.mean) / truth.sd).tolist()
    return row


def line(row: dict[str, Any]) -> str:
    """Format one row of the table."""
    nuts = f"{row['nuts_seconds']:7.0f}" if row["nuts_seconds"] else f"{'':>7}"
    slow = f" OVER {MAX_CPU_SECONDS} s" if row["seconds"] > MAX_CPU_SECONDS else ""
    if "not mixed" in row.get("truth", ""):
        slow += " (so was NUTS)" if row["word"] == "not mixed" else " (NUTS not mixed)"
    if "sd_ratio" not in row:
        short = f"{row['word']}{slow}: {row['reason'][:90]}"
        return f"{_name(row):<26}{row['seconds']:>96.1f}{nuts}  {short}"
    ratio = np.array(row["sd_ratio"])
    at = int(np.argmax(np.abs(ratio - 1)))
    known = np.abs([e for e in row.get("corrected_error", []) if np.isfinite(e)])
    cells = (
        (np.abs(row["mean_error"]).max(), 2, 6), (known.max() if known.size else None, 2, 6),
        (ratio.min(), 3, 7), (ratio.max(), 3, 6), (ratio[at], 3, 7),
        (row["said"][at] if "said" in row else None, 3, 7),
        (min(row["r2"]) if row.get("r2") else None, 2, 7),
    )  # fmt: skip
    nus = "".join(f"{np.nan if v is None else v:9.2g}" for v in (row["nu_at_mode"], row["nu"]))
    ran = " ".join(str(row["plan"][part]).split("(")[0] for part in ("sampler", "gradient"))
    return (
        f"{_name(row):<26}{''.join(_short(*cell) for cell in cells)}{nus}{row['steps']:>9}"
        f"{row['epochs']:>12.1f}{row['seconds']:>7.1f}{nuts}  {row['word']}{slow} {ran}"
    )


def _name(row: dict[str, Any]) -> str:
    return row["name"] + (f" #{row['seed']}" if row["seed"] else "")


def _short(value: float | None, digits: int, width: int) -> str:
    """Format a number for its column, whatever its size."""
    if value is None:
        return " " * width
    text = f"{value:.{digits}f}"
    return f"{text if len(text) < width else f'{value:.0e}':>{width}}"


def error(row: dict[str, Any]) -> tuple[float, float]:
    """Return the largest error of an sd ratio and of a mean (inf where the run has none)."""
    if "sd_ratio" not in row:
        return np.inf, np.inf
    ratio, mean = np.abs(np.array(row["sd_ratio"]) - 1).max(), np.abs(row["mean_error"]).max()
    return float(np.nan_to_num(ratio, nan=np.inf)), float(np.nan_to_num(mean, nan=np.inf))


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the counts that the table is read for, in sentences."""
    return counted(rows)[0]


def counted(rows: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return the counts in sentences and by name."""
    good, off, near, missed, slight, flagged, lost = ([] for _ in range(7))
    for row in rows:
        sd, mean = error(row)
        right, trusted = sd <= GOOD_SD and mean <= GOOD_MEAN, row["word"] == "trusted"
        (good if right else off).append(row)
        if sd <= 0.05:
            near.append(row)
            lost += [] if trusted else [row]
        if trusted and (sd > MISS_SD or mean > MISS_MEAN):
            missed.append(row)
        elif not right:
            (slight if trusted else flagged).append(row)
    pairs = [
        (said, ratio)
        for row in rows if "said" in row
        for said, ratio, r2 in zip(row["said"] or (), row["sd_ratio"], row["r2"] or (), strict=False)
        if r2 >= 0.9
    ]  # fmt: skip
    gap = np.abs([said - ratio for said, ratio in pairs])
    names = lambda some: ", ".join(map(_name, some)) or "none"  # noqa: E731
    right_trusted = sum(row["word"] == "trusted" for row in good)
    lines = [
        f"{len(good)} of {len(rows)} right: every sd within {GOOD_SD:.0%}, every mean within "
        f"{GOOD_MEAN} sd; {right_trusted} of these trusted",
        f"{len(off)} off: {len(flagged)} of these flagged, or refused",
        f"  trusted, and between that and a miss: {names(slight)}",
        f"silent misses (trusted, an sd off by over {MISS_SD:.0%} or a mean by over {MISS_MEAN} sd): "
        + names(missed),
        f"{len(near) - len(lost)} of {len(near)} with every sd within 5% are trusted; not: {names(lost)}",
    ]
    found = {
        "problems": len(rows), "right": len(good), "off, flagged": len(flagged),
        "right, trusted": right_trusted, "silent misses": names(missed), "sds within 5%": len(near),
        "sds within 5%, trusted": len(near) - len(lost), "parameters": int(gap.size),
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
    options = {
        "--problems": {"default": "", "help": "names, with commas"},
        "--structured": {"action": "store_true", "help": "those of problems/processes.py"},
        "--seeds": {"type": int, "nargs": "+", "default": [0]},
        "--json": {"help": "write the rows here"},
    }
    args = command_line(__doc__, options=options)
    every = PROBLEMS | STRUCTURED
    names = args.problems.split(",") if args.problems else list(STRUCTURED if args.structured else PROBLEMS)  # fmt: skip
    names = ["gauss10", "beta_rare"] if args.smoke else names
    if unknown := set(names) - set(every):
        sys.exit(f"no problem {', '.join(unknown)}; there are {', '.join(every)}")
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
                rows.append(run(problem, truth, seed, **({"num_draws": 50} if args.smoke else {})))
                print(line(rows[-1]), flush=True)
            except Exception:
                crashes.append(f"{name}, seed {seed}:\n{traceback.format_exc()}")
                print(f"{name:<26}CRASH, see the end", flush=True)
    text, figures = counted(rows)
    print(text)
    for row in rows:
        if row["word"] != "trusted":
            print(f"{_name(row)}: {row['word']}: {row['reason']}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1, default=str)
    if args.store and not (args.problems or args.structured):
        store("accuracy", figures)
    print(*crashes, sep="\n")
    sys.exit(1 if crashes else 0)


if __name__ == "__main__":
    main()
