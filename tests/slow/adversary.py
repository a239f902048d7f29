"""Try to deceive the verdict with posteriors drawn at random from families built for it.

    python tests/slow/adversary.py --seed 1                   all families, at most 45 minutes
    python tests/slow/adversary.py --sample 6 --limit 20      six configurations of a fresh seed
    python tests/slow/adversary.py --family halo,foot --json rows.json
    python tests/slow/adversary.py --from a.json b.json       the tables of stored rows

Each configuration is run with its control, the same but for what deceives (tests/slow/deceits). A run
is off where an sd is wrong by more than 15%, or a mean by more than .3 sd of the truth, which is a
closed form, a grid or an enumeration. Then

silent      off and `trusted`
flagged     off and any other verdict, or refused with an explanation
trusted     right, and `trusted`
refused     right, and another verdict; and whatever took more than `--limit` CPU seconds, or was not
            reached in `--minutes`

The exit status is 1 where a run was silent.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from deceits import FAMILIES, Case

import sgld

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from harness import command_line, store

OFF_SD, OFF_MEAN = 0.15, 0.3
OUTCOMES = ("silent", "flagged", "trusted", "refused")


class TooLong(BaseException):
    """A case took longer than its limit; not an error that a library would handle."""


def _stop(*_: Any) -> None:
    raise TooLong


def run(name: str, number: int, seed: int, deceit: bool, limit: float) -> dict[str, Any]:
    """Return one row, JSON-ready. The control draws the same numbers."""
    rng = np.random.default_rng([seed, list(FAMILIES).index(name), number])
    case = FAMILIES[name].build(rng, deceit)
    row = {"family": name, "number": number, "seed": seed, "deceit": deceit, "label": case.label}
    began = time.process_time()
    signal.signal(signal.SIGPROF, _stop)  # CPU seconds: others work on the machine
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        row |= sampled(case, seed + number)
    except TooLong:
        row |= {"word": "too long", "reason": f"more than {limit:.0f} CPU seconds"}
    except sgld.errors.SGLDError as error:
        row |= {"word": "an error", "reason": str(error)}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    row["cpu"] = time.process_time() - began
    return row | {"outcome": outcome(row)}


def sampled(case: Case, seed: int) -> dict[str, Any]:
    """Return the verdict of a run, and its largest errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draws = sgld.sample(
            case.posterior, case.data, case.init, seed=seed, progress=False, **case.options
        )
        verdict = draws.verdict
        if case.halved and not draws.plan.setup.exact:
            verdict = sgld.step_halving(case.posterior, case.data, draws).verdict
    found = {"word": verdict.word, "reason": verdict.reasons[0]}
    values = draws.flat()[0].astype(float)
    if not values.size:
        return found
    weight = draws.weights / draws.weights.sum()
    mean = np.einsum("cdp,cd->p", values, weight)
    sd = np.sqrt(np.einsum("cdp,cd->p", (values - mean) ** 2, weight))
    ratio = sd / case.sd
    worst = np.argmax(np.abs(np.log(np.maximum(ratio, 1e-9))))
    error = float(np.max(np.abs(mean - case.mean) / case.sd))
    return {**found, "ratio": float(ratio[worst]), "error": error}


def outcome(row: dict[str, Any]) -> str:
    """Return one of OUTCOMES."""
    if row["word"] in ("too long", "not reached"):
        return "refused"
    if "ratio" not in row:  # no draws: nothing wrong was reported
        return "flagged" if row["deceit"] else "refused"
    # NaN is off
    off = not (abs(row["ratio"] - 1) <= OFF_SD and row["error"] <= OFF_MEAN)
    trusted = row["word"] == "trusted"
    return ("silent" if trusted else "flagged") if off else ("trusted" if trusted else "refused")


def chosen(args: argparse.Namespace) -> list[tuple[str, int]]:
    """Return (family, number), family by family, so that what was compiled serves the next."""
    names = [n for n in FAMILIES if not args.family or n in args.family.split(",")]
    every = [(name, k) for name in names for k in range(args.each or FAMILIES[name].count)]
    if args.sample is None:
        return every
    rng = np.random.default_rng([args.seed, 1])
    return [every[i] for i in np.sort(rng.permutation(len(every))[: args.sample])]


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield every run and its control."""
    began = time.perf_counter()
    for name, number in chosen(args):
        for deceit in (True, False):
            if time.perf_counter() - began > 60 * args.minutes:
                row = {"family": name, "number": number, "seed": args.seed, "deceit": deceit}
                yield row | {"word": "not reached", "reason": "", "cpu": 0.0, "outcome": "refused"}
                continue
            row = run(name, number, args.seed, deceit, args.limit)
            if args.lines or row["outcome"] == "silent":
                which = f"{name} {args.seed}.{number}{'' if deceit else ' twin'}"
                errors = f"sd x{row['ratio']:.3g} mean {row['error']:.2f}" if "ratio" in row else ""
                print(
                    f"{row['outcome']:<8}{which:<28}{row['cpu']:5.1f} s {errors:<24}{row['word']}: "
                    f"{row['reason'][:110]} [{row['label']}]", flush=True,
                )  # fmt: skip
            yield row


def table(found: list[dict[str, Any]]) -> str:
    """Return a line per family: the deceptive configurations, then their controls."""
    head = "".join(f"{word:>9}" for word in OUTCOMES)
    lines = [f"{'':<18}{'class':<22}{'deceptive':<9}{head}  {'twins':<5}{head}{'cpu':>8}"]
    names = [name for name in FAMILIES if any(row["family"] == name for row in found)]
    for name in [*names, "all"]:
        own = [row for row in found if name in ("all", row["family"])]
        line = f"{name:<18}{FAMILIES[name].kind if name != 'all' else '':<22}"
        for deceit, width in ((True, 9), (False, 7)):
            some = [row["outcome"] for row in own if row["deceit"] == deceit]
            line += f"{len(some):>{width}}" + "".join(f"{some.count(o):>9}" for o in OUTCOMES)
        lines.append(line + f"{sum(row['cpu'] for row in own):8.0f}")
    return "\n".join(lines)


def figures(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures that the text states."""
    counts: dict[str, Any] = {
        "families": len({row["family"] for row in found}),
        "seeds": len({row["seed"] for row in found}),
    }
    for name, deceit in (("deceptive", True), ("twins", False)):
        some = [row["outcome"] for row in found if row["deceit"] == deceit]
        counts |= {name: len(some), **{f"{name}, {word}": some.count(word) for word in OUTCOMES}}
    share = counts["twins, trusted"] / max(1, counts["twins"])
    return {**counts, "twins, share trusted": share, "table": table(found).splitlines()}


def main() -> None:
    options = {
        "--seed": {"type": int, "help": "(default: a fresh one, printed)"},
        "--sample": {"type": int, "help": "so many configurations, at random"},
        "--family": {"default": "", "help": f"some of {', '.join(FAMILIES)}"},
        "--each": {"type": int, "help": "so many of each family"},
        "--minutes": {"type": float, "default": 45.0},
        "--limit": {"type": float, "default": 60.0, "help": "CPU seconds of a run"},
        "--lines": {"action": "store_true", "help": "print every run, not only the silent ones"},
        "--json": {"help": "write the rows here"},
        "--from": {"dest": "stored", "nargs": "+", "default": [], "help": "rows written before"},
    }
    args = command_line(__doc__, options=options)
    if args.smoke:
        args.seed, args.family, args.each, args.lines = 1, "halo", 1, True
    args.seed = secrets.randbelow(10**6) if args.seed is None else args.seed
    found: list[dict[str, Any]] = []
    for path in args.stored:
        with open(path) as file:
            found += json.load(file)
    if not args.stored:
        print(f"seed {args.seed}", flush=True)
        try:
            for row in rows(args):
                found.append(row)
        except KeyboardInterrupt:
            print("stopped")
    print(table(found))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(found, file)
    if args.store:
        seeds = " and ".join(str(seed) for seed in sorted({row["seed"] for row in found}))
        store("adversary", figures(found), f"python tests/slow/adversary.py --seed {seeds}")
    sys.exit(any(row["outcome"] == "silent" for row in found))


if __name__ == "__main__":
    main()
