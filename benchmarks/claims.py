"""Compare the figures of README's speed table with stored and with measured ones.

    python benchmarks/claims.py [--only W1,W3 ...]   short versions of the benchmarks; name what moved
    python benchmarks/claims.py --store              the same, and store what was found
    python benchmarks/claims.py --text               compare the table in README with what is stored
    python benchmarks/claims.py --write              write the table from what is stored

`results/NAME.json` holds what `benchmarks/NAME.py --store` found: figures by name, each with its
command, commit and date. `origin` says if a figure was stated in the text before tables were
stored. README's table under the heading "Speed" is made of the rows in `SPEED`.

`results/short.json` holds the figures of the short versions. A figure has moved if it is now a third
larger or smaller than stored there (an error: by more than .03 in addition), or another word; the exit
status is then 1. Each short version takes seconds to two minutes, in a process of its own.
"""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import harness
from harness import ROOT, Figure, command_line, fresh_process, store, stored, timed

README = ROOT / "README.md"
TABLE = re.compile(r"(^## Speed\n(?:(?!^## ).*\n)*?)((?:\|.*\n)+)", re.MULTILINE)
HEADER = ("Task", "Compared with", "Result")
# task, what it is compared with, (results/NAME.json, figure), how the figure is written
SPEED = (
    (
        "SGLD steps, mixture with 2 parameters, batch 1", "BlackJAX, steps per second",
        ("speed", "W1, 1 chain, x BlackJAX"), "{:.0f} times",
    ),
    (
        "SGLD steps, logistic regression, 1,000,000 x 50, batch 500", "BlackJAX, steps per second",
        ("speed", "W2, 1 chain, x BlackJAX"), "{:.2g} times",
    ),
    (
        "Accurate posterior of that regression, compilation included", "NUTS, seconds",
        ("time_to_accuracy", "NUTS over a first call"), "{:.2g} times faster",
    ),
    (
        "The same, compiled", "NUTS, seconds",
        ("time_to_accuracy", "NUTS over a later call"), "{:.2g} times faster",
    ),
    (
        "The same, compiled", "mode search and one Hessian, seconds",
        ("time_to_accuracy", "later calls, x mode + curvature"), "{:.2g} times slower",
    ),
)  # fmt: skip
MAX_MOVE, MAX_ERROR_MOVE = 1 / 3, 0.03  # share of the stored figure; of an error, besides
ACCURACY_PROBLEMS = (
    "gauss10", "logistic_correlated", "rand_poisson", "log_gamma", "beta_rare", "ordinal",
)  # fmt: skip


# -- the table in README ---------------------------------------------------------------------


def speed_table(table: Callable[[str], dict[str, Any]] = stored) -> list[str]:
    """Return the lines of the speed table. KeyError for a figure that is not stored."""
    rows = [HEADER, ("---",) * len(HEADER)]
    for task, peer, (name, figure), how in SPEED:
        value = table(name)["figures"][figure]["value"]
        if isinstance(value, str):  # a range of several rounds
            how = re.sub(r"{.*?}", "{}", how)
        rows.append((task, peer, how.format(value)))
    return [f"| {' | '.join(row)} |" for row in rows]


def rewritten(text: str, table: Callable[[str], dict[str, Any]] = stored) -> str:
    """Return the text of README with the speed table as stored. ValueError if it has no table."""
    lines = "\n".join(speed_table(table)) + "\n"
    found, count = TABLE.subn(lambda match: match[1] + lines, text)
    if count != 1:
        raise ValueError(f"README needs one table under the heading '## Speed'; found {count}.")
    return found


def differing(page: Path = README) -> list[str]:
    """Return a sentence for every line of the speed table that differs from what is stored."""
    match = TABLE.search(page.read_text())
    stated = match[2].splitlines() if match else []
    return [
        f"{page.name} says {now!r}; stored is {wanted!r}"
        for now, wanted in itertools.zip_longest(stated, speed_table())
        if now != wanted
    ]


# -- the short versions ----------------------------------------------------------------------


def over_blackjax(work: Any, seconds: float) -> dict[str, Figure]:
    """Measure the package's loop over BlackJAX's, one chain."""
    import speed

    loops = speed.workload_loops(work, 1)
    took = speed.race({name: loops[name] for name in ("sgld", speed.PEER)}, 5, seconds)
    return {"x BlackJAX": float(np.median(took[speed.PEER] / took["sgld"]))}


def w1() -> dict[str, Figure]:
    import workloads

    return over_blackjax(workloads.mixture(1), 0.3)


def w2() -> dict[str, Figure]:
    import workloads

    return over_blackjax(workloads.logistic(200_000), 0.5)


def w3() -> dict[str, Figure]:
    """Measure a first call as a user makes it: compilation, tuning and verdict are in it."""
    import speed

    return {"sgld.sample, 50 units, x BlackJAX": speed.whole_call_over_blackjax()}


def first() -> dict[str, Figure]:
    """Measure a first call on a small model in a fresh process, over that process's import."""
    import speed

    (_, imported), (_, call), (_, again) = speed.in_new_processes(rounds=1)
    return {"first call / import": call / imported, "second call / import": again / imported}


def accuracy(names: tuple[str, ...] = ACCURACY_PROBLEMS) -> dict[str, Figure]:
    """Compare default runs of a few reference problems with their truths."""
    import accuracy as bench
    from problems import PROBLEMS, truth_of

    found: dict[str, Figure] = {}
    for name in names:
        problem = PROBLEMS[name]()
        truth = truth_of(problem)
        assert truth is not None
        row = bench.run(problem, truth, 0)
        sd, mean = bench.error(row)
        found |= {f"{name}: word": row["word"], f"{name}: sd error": sd}
        found[f"{name}: mean error"] = mean
    return found


def verdict() -> dict[str, Figure]:
    """Count the verdicts of mistuned and well tuned runs of one kind."""
    import verdict as bench

    found = bench.figures(list(bench.rows(["logistic_few"], bench.PARTS, 0.05)))
    kept = ("off by more than 15%", "nu below .3", "trusted, worst error of an sd")
    return {name: value for name, value in found.items() if name.startswith(kept)}


def bias() -> dict[str, Figure]:
    """Measure the tuner's own step on the Poisson regression of docs/how-to-choose.md."""
    import bias as bench
    import sgld

    posterior, data = bench.poisson()
    init = np.zeros(bench.COLUMNS, np.float32)
    found: dict[str, Figure] = {}
    choices = {
        "default": {},
        "BAOA": {"sampler": sgld.BAOA()},
        "reshuffle": {"gradient": sgld.Minibatch()},
    }
    for name, given in choices.items():
        draws = sgld.sample(posterior, data, init, progress=False, **given)
        found[f"{name}: steps per effective draw"] = bench.steps_per_effective_draw(draws)[0]
        found[f"{name}: sd error"] = float(abs(draws.verdict.sd_ratio - 1).max())
    return found


def time_to_accuracy() -> dict[str, Figure]:
    """Measure a later call of `sgld.sample` over mode and curvature, on 200,000 rows of W2."""
    import time_to_accuracy as bench

    ratio = bench.later_calls(200_000, rounds=3)["ratio"]
    return {"later calls, x mode + curvature": ratio}


SHORT = {
    "W1": w1, "W2": w2, "W3": w3, "first": first, "accuracy": accuracy, "verdict": verdict,
    "bias": bias, "time_to_accuracy": time_to_accuracy,
}  # fmt: skip


def moved(name: str, was: Figure, now: Figure) -> bool:
    """Return whether a figure differs by more than it may; a word may not differ at all."""
    if isinstance(was, (str, list)) or isinstance(now, (str, list)):
        return was != now
    return abs(now - was) > max(
        MAX_ERROR_MOVE if name.endswith("error") else 0.0, MAX_MOVE * abs(was)
    )


def short(name: str) -> dict[str, Figure]:
    """Run a short version in a process of its own."""
    return fresh_process(__file__, name)


def measure(names: list[str], keep: bool) -> int:
    """Run the short versions, compare, print; return how many figures moved."""
    known, count = stored("short")["figures"], 0
    for name in names:
        found, seconds, _ = timed(lambda: short(name))  # noqa: B023
        figures = {f"{name}: {figure}": value for figure, value in found.items()}
        for figure, now in figures.items():
            was = known.get(figure)
            line = f"{figure:<48}{_short(now):>12}"
            if was is not None:
                line += f"   stored {_short(was['value'])} ({was['commit']})"
                if moved(figure, was["value"], now):
                    line, count = line + "   MOVED", count + 1
            print(line)
        print(f"{name}: {seconds:.0f} s", flush=True)
        if keep:
            store("short", figures, f"python benchmarks/claims.py --only {name} --store")
    return count


def _short(value: Figure) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def smoke() -> None:
    """Compare the table, and run one short version in a small form."""
    known = stored("short")["figures"]
    for name, value in accuracy(("gauss10",)).items():
        was = known.get(f"accuracy: {name}", {"value": value})["value"]
        print(name, _short(value), "MOVED" if moved(name, was, value) else "")
    sys.exit(bool(differing()))


def main() -> None:
    options = {
        "--text": {"action": "store_true", "help": "compare README's table with what is stored"},
        "--write": {"action": "store_true", "help": "write README's table from what is stored"},
    }
    results = harness.RESULTS
    args = command_line(__doc__, SHORT, options, parts=SHORT)
    if args.smoke:
        harness.RESULTS = results
        smoke()
    if args.write:
        README.write_text(rewritten(README.read_text()))
    if args.text or args.write:
        lines = differing()
        print("\n".join(lines) or "README states what is stored")
        sys.exit(bool(lines))
    began = time.monotonic()
    count = measure(args.only, args.store)
    print(f"{count or 'no'} figures moved by more than a third; {time.monotonic() - began:.0f} s")
    sys.exit(bool(count) and not args.store)


if __name__ == "__main__":
    main()
