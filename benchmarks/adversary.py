"""Whether the verdict can be fooled: posteriors drawn at random from families built to deceive it.

    python benchmarks/adversary.py --seed 1                   all families, at most 45 minutes
    python benchmarks/adversary.py --sample 6 --limit 20      six configurations of a fresh seed
    python benchmarks/adversary.py --family halo,foot --json rows.json
    python benchmarks/adversary.py --from a.json b.json       the tables of stored rows

Each configuration is run with its twin, the same but for what deceives (problems/deceits). A run is off
where an sd is wrong by more than 15%, or a mean by more than .3 sd of the truth, which is a closed form, a grid
or an enumeration. Then

silent      off and `trusted`
flagged     off, and anything else than `trusted`, or refused in a sentence
trusted     right, and said so
refused     right, and another word; and whatever took more than `--limit` CPU seconds, or was not
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
from typing import Any

import numpy as np

import claims
import sgld
from problems.deceits import FAMILIES, Case
from sgld.errors import SGLDError
from sgld.results.mixing import pareto_k

OFF_SD, OFF_MEAN = 0.15, 0.3
OUTCOMES = ("silent", "flagged", "trusted", "refused")


class TooLong(BaseException):
    """A case that is over its limit; no error that a library would handle."""


def _stop(*_: Any) -> None:
    raise TooLong


def configuration(name: str, number: int, seed: int, deceit: bool) -> Case:
    """The same numbers for both; whatever the twin does not need is drawn and left."""
    rng = np.random.default_rng([seed, list(FAMILIES).index(name), number])
    return FAMILIES[name].build(rng, deceit)


def run(name: str, number: int, seed: int, deceit: bool, limit: float) -> dict[str, Any]:
    """One row, JSON-ready."""
    case = configuration(name, number, seed, deceit)
    row = {"family": name, "number": number, "seed": seed, "deceit": deceit, "label": case.label}
    began, clock = time.process_time(), time.perf_counter()
    signal.signal(signal.SIGPROF, _stop)  # the processor's seconds: others work on the machine
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        found = _sampled(case, seed + number)
    except TooLong:
        found = {"word": "too long", "reason": f"more than {limit:.0f} CPU seconds"}
    except SGLDError as error:
        found = {"word": "an error", "reason": str(error)}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    row |= found | {"cpu": time.process_time() - began, "seconds": time.perf_counter() - clock}
    return row | {"outcome": outcome(row)}


def _sampled(case: Case, seed: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draws = sgld.sample(
            case.posterior, case.data, case.init, seed=seed, progress=False, **case.options
        )
        verdict = draws.verdict
        if case.halved and not draws.plan.setup.exact:
            verdict = sgld.step_halving(case.posterior, case.data, draws).verdict
    values = draws.flat()[0].astype(float)
    weight = draws.weights / draws.weights.sum()
    if not values.size:
        return {"word": verdict.word, "reason": verdict.reasons[0]}
    mean = np.einsum("cdp,cd->p", values, weight)
    sd = np.sqrt(np.einsum("cdp,cd->p", (values - mean) ** 2, weight))
    ratio, error = sd / case.sd, (mean - case.mean) / case.sd
    return {
        "word": verdict.word, "reason": verdict.reasons[0], "sampler": str(draws.plan.setup.sampler).split("(")[0],
        "ratio": float(ratio[np.argmax(np.abs(np.log(np.maximum(ratio, 1e-9))))]),
        "error": float(np.max(np.abs(error))),
        "tail": float(np.nanmax(pareto_k(values), initial=-1.0)),
    }  # fmt: skip


def outcome(row: dict[str, Any]) -> str:
    """One of OUTCOMES."""
    if row["word"] in ("too long", "not reached"):
        return "refused"
    if "ratio" not in row:  # no draws: nothing wrong was told
        return "flagged" if row["deceit"] else "refused"
    # NaN is off
    off = not (abs(row["ratio"] - 1) <= OFF_SD and row["error"] <= OFF_MEAN)
    trusted = row["word"] == "trusted"
    return ("silent" if trusted else "flagged") if off else ("trusted" if trusted else "refused")


def chosen(args: argparse.Namespace) -> list[tuple[str, int]]:
    """(family, number), family by family, so that what was compiled serves the next."""
    names = [n for n in FAMILIES if not args.family or n in args.family.split(",")]
    counts = {name: args.each or FAMILIES[name].count for name in names}
    every = [(name, k) for name in names for k in range(counts[name])]
    if args.sample is None:
        return every
    rng = np.random.default_rng([args.seed, 1])
    return [every[i] for i in np.sort(rng.permutation(len(every))[: args.sample])]


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    began = time.perf_counter()
    for name, number in chosen(args):
        for deceit in (True, False):
            if time.perf_counter() - began > 60 * args.minutes:
                yield {
                    "family": name, "number": number, "seed": args.seed, "deceit": deceit, "label": "",
                    "word": "not reached", "reason": "", "cpu": 0.0, "seconds": 0.0, "outcome": "refused",
                }  # fmt: skip
                continue
            row = run(name, number, args.seed, deceit, args.limit)
            if args.lines or row["outcome"] == "silent":
                print(line(row), flush=True)
            yield row


def line(row: dict[str, Any]) -> str:
    """One run."""
    which = f"{row['family']} {row['seed']}.{row['number']}{'' if row['deceit'] else ' twin'}"
    found = f"sd x{row['ratio']:.3g} mean {row['error']:.2f}" if "ratio" in row else ""
    return (
        f"{row['outcome']:<8}{which:<28}{row['cpu']:5.1f} s {found:<24}{row['word']}: {row['reason'][:110]} "
        f"[{row['label']}]"
    )


def table(found: list[dict[str, Any]]) -> str:
    """A row per family: the deceptive configurations, then their twins."""
    head = "".join(f"{word:>9}" for word in OUTCOMES)
    lines = [f"{'':<18}{'class':<22}{'deceptive':<9}{head}  {'twins':<5}{head}{'cpu':>8}"]
    names = [name for name in FAMILIES if any(row["family"] == name for row in found)]
    for name in [*names, "all"]:
        own = [row for row in found if name in ("all", row["family"])]
        counts = [[row["outcome"] for row in own if row["deceit"] == d] for d in (True, False)]
        kind = FAMILIES[name].kind if name != "all" else ""
        each = ["".join(f"{c.count(word):>9}" for word in OUTCOMES) for c in counts]
        cpu = sum(row["cpu"] for row in own)
        lines.append(
            f"{name:<18}{kind:<22}{len(counts[0]):>9}{each[0]}  {len(counts[1]):>5}{each[1]}{cpu:8.0f}"
        )
    return "\n".join(lines)


def figures(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What the text states."""
    deceptive, twins = ([row for row in found if row["deceit"] == d] for d in (True, False))
    count = {
        f"{what}, {word}": sum(row["outcome"] == word for row in some)
        for what, some in (("deceptive", deceptive), ("twins", twins)) for word in OUTCOMES
    }  # fmt: skip
    return {
        "families": len({row["family"] for row in found}),
        "seeds": len({row["seed"] for row in found}), "deceptive": len(deceptive), "twins": len(twins), **count,
        "twins, share trusted": count["twins, trusted"] / max(1, len(twins)),
        "table": table(found).splitlines(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=None, help="(default: a fresh one, printed)")
    parser.add_argument(
        "--sample", type=int, default=None, help="so many configurations, at random"
    )
    parser.add_argument("--family", default="", help=f"some of {', '.join(FAMILIES)}")
    parser.add_argument("--each", type=int, default=None, help="so many of each family")
    parser.add_argument("--minutes", type=float, default=45.0)
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds a run")
    parser.add_argument(
        "--lines", action="store_true", help="print every run, not the silent ones alone"
    )
    parser.add_argument("--json", default=None, help="write the rows here")
    parser.add_argument(
        "--store", action="store_true", help="write the counts to results/adversary.json"
    )
    parser.add_argument("--from", dest="stored", nargs="+", default=[], help="rows written before")
    args = parser.parse_args()
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
        seeds = sorted({row["seed"] for row in found})
        command = f"python benchmarks/adversary.py --seed {' and '.join(map(str, seeds))}"
        claims.store("adversary", figures(found), command)
    sys.exit(any(row["outcome"] == "silent" for row in found))


if __name__ == "__main__":
    main()
