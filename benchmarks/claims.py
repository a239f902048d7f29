"""The figures that README and the docs state: stored, written into the text, measured again in short.

    python benchmarks/claims.py [--only W1,W3 ...]   short versions of the benchmarks; names what moved
    python benchmarks/claims.py --store              the same, and what was found is stored
    python benchmarks/claims.py --text               whether the text states what is stored
    python benchmarks/claims.py --write              writes it into the text

`results/NAME.json` holds what `benchmarks/NAME.py --store` found: the command, the commit, and figures by
name. Where the text stated a figure before tables were stored, `origin` says so, and `commit` is the one
that stated it. In the Markdown a figure stands between marks,

    <!--=speed/W1/.0f-->18<!--/-->             figure W1 of results/speed.json, in this format
    <!--=bias/regression/lines-->  ...  <!--/-->   lines of a table, as they were printed

`results/short.json` holds the figures of the short versions. One that is now a third larger or smaller
than stored there (an error: by more than .03 besides), or another word, has moved; the exit status is
then 1. Each short version takes seconds to two minutes, and runs in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT, RESULTS = HERE.parent, HERE / "results"
PAGES = (ROOT / "README.md", HERE / "README.md", *sorted((ROOT / "docs").glob("*.md")))
MARK = re.compile(r"<!--=([\w-]+)/([^/>]+)/([^>]*?)-->(.*?)<!--/-->", re.DOTALL)
THIRD, ERROR = 1 / 3, 0.03
Figure = float | int | str | list[str]


# -- storing ---------------------------------------------------------------------------------


def commit() -> str:
    """The commit of the tree, with a + where something in src or benchmarks is not committed."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "benchmarks/*.py")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + "+" * bool(changed)


def stored(name: str) -> dict[str, Any]:
    """What results/NAME.json holds."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"figures": {}}


def store(name: str, figures: dict[str, Figure], command: str | None = None) -> None:
    """Write figures as measured now; others of the table stay, with the commit they came from."""
    table = stored(name)
    mark = {"commit": commit(), "date": time.strftime("%Y-%m-%d"), "origin": "measured"}
    command = command or " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *_asked()])
    for figure, value in figures.items():
        table["figures"][figure] = {"value": value, "command": command, **mark}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(table, indent=1) + "\n")


def _asked() -> list[str]:
    """The options of this run, without a folder of this machine."""
    kept: list[str] = []
    for word in sys.argv[1:]:
        if Path(word).is_absolute():
            kept.pop()
        else:
            kept.append(word)
    return kept


class _Both(io.StringIO):
    """What is written is printed as well."""

    def __init__(self, out: Any) -> None:
        super().__init__()
        self.out = out

    def write(self, text: str) -> int:
        self.out.write(text)
        return super().write(text)


@contextlib.contextmanager
def table_printed() -> Iterator[list[str]]:
    """The lines of the table that is printed meanwhile: the longest stretch without an empty line."""
    lines: list[str] = []
    both = _Both(sys.stdout)
    with contextlib.redirect_stdout(both):
        yield lines
    stretches = [part.splitlines() for part in both.getvalue().split("\n\n")]
    lines += max(stretches, key=len)


# -- the text --------------------------------------------------------------------------------


def shown(value: Figure, how: str) -> str:
    """A figure as the text states it: lines indented, a share below 1 without its 0."""
    if how == "lines":
        assert isinstance(value, list)
        return "\n\n" + "\n".join(f"    {line}".rstrip() for line in value) + "\n\n"
    if isinstance(value, str):
        return value
    return re.sub(r"\b0\.", ".", format(value, how))


def rewritten(text: str, table: Callable[[str], dict[str, Any]] = stored) -> str:
    """The text with every marked figure as stored. KeyError where there is none of that name."""

    def put(mark: re.Match[str]) -> str:
        name, figure, how, _ = mark.groups()
        value = table(name)["figures"][figure]["value"]
        return f"<!--={name}/{figure}/{how}-->{shown(value, how)}<!--/-->"

    return MARK.sub(put, text)


def differing(pages: tuple[Path, ...] = PAGES) -> list[str]:
    """Sentences: where a page states something else than what is stored."""
    lines = []
    for page in pages:
        for mark in MARK.finditer(text := page.read_text()):
            name, figure, _, now = mark.groups()
            put = MARK.fullmatch(rewritten(mark.group()))
            assert put is not None
            if put.group(4) != now:
                line = text.count("\n", 0, mark.start()) + 1
                lines.append(
                    f"{page.relative_to(ROOT)}:{line}: {name}/{figure} is stored as "
                    f"{put.group(4).strip()}, the text says {now.strip()}"
                )
    return lines


# -- the short versions ----------------------------------------------------------------------


def over_blackjax(work: Any, rounds: int, seconds: float) -> float:
    """Steps per second of the package's loop over BlackJAX's, one chain."""
    import speed
    import workloads

    contenders = [
        speed.Contender("sgld", speed.own_loop(speed.prepare(work, 1))),
        speed.Contender(speed.PEER, workloads.blackjax_scan(work, 1)),
    ]
    return speed.race(work.name, contenders, rounds, seconds)[0].ratios[speed.PEER]


def w1() -> dict[str, Figure]:
    import workloads

    return {"x BlackJAX": over_blackjax(workloads.mixture(1), 5, 0.3)}


def w2() -> dict[str, Figure]:
    import workloads

    return {"x BlackJAX": over_blackjax(workloads.logistic(200_000), 5, 0.5)}


def w3() -> dict[str, Figure]:
    """A first call of `sgld.sample` as a user makes it, of 200 steps: compilation, tuning, probes and
    verdict included. This fell from .6 to .017 unseen, while the loop alone did not. It has 50 hidden
    units: with W3's 478,410 weights the verdict takes minutes."""
    import sgld
    import speed
    import workloads

    work, steps = workloads.network(hidden=(50,)), 200
    posterior = sgld.Posterior(work.log_prior, work.log_likelihood)
    blackjax = workloads.blackjax_scan(work, 1)(steps)

    def used() -> None:
        sgld.sample(
            posterior, work.data, work.init, step_size=work.step_size, batch_size=work.batch_size,
            num_chains=1, burn_in=0, thin=10, num_draws=steps // 10, progress=False,
        )  # fmt: skip

    mine, theirs = speed._seconds(used), speed._seconds(blackjax)
    return {"sgld.sample, 50 units, x BlackJAX": theirs / mine}


def first() -> dict[str, Figure]:
    """A first call on a small model, in a fresh process, over that process's import."""
    import speed

    imported, call, again = speed._fresh(speed.FIRST)
    return {"first call / import": call / imported, "second call / import": again / imported}


def accuracy() -> dict[str, Figure]:
    import accuracy as bench
    from problems import PROBLEMS, truth_of

    found: dict[str, Figure] = {}
    for name in (
        "gauss10",
        "logistic_correlated",
        "rand_poisson",
        "log_gamma",
        "beta_rare",
        "ordinal",
    ):
        problem = PROBLEMS[name]()
        truth = truth_of(problem)
        assert truth is not None
        row = bench.run(problem, truth, 0)
        sd, mean = bench.error(row)
        found |= {
            f"{name}: word": row["word"],
            f"{name}: sd error": sd,
            f"{name}: mean error": mean,
        }
    return found


def verdict() -> dict[str, Figure]:
    """Runs mistuned and well tuned of one kind: the words they get."""
    import verdict as bench
    import verdict_tables

    with contextlib.redirect_stdout(sys.stderr):
        rows = list(bench.rows(["logistic_few"], None, 0.05))
    found = verdict_tables.figures(rows)
    kept = ("off by more than 15%", "nu below .3", "trusted, worst error of an sd")
    return {name: value for name, value in found.items() if name.startswith(kept)}


def bias() -> dict[str, Figure]:
    """The tuner's own step on the Poisson regression of docs/how-to-choose.md."""
    import numpy as np

    import bias as bench
    import sgld
    from sgld.results import statistics

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
        x, w = draws.flat()[0], draws.weights
        each = w.size * draws.info["plan"]["thin"] / min(statistics.ess(x, w))
        found[f"{name}: steps per effective draw"] = float(each)
        found[f"{name}: sd error"] = float(abs(draws.verdict.sd_ratio - 1).max())
    return found


def time_to_accuracy() -> dict[str, Figure]:
    """W2 with 200,000 rows: a later call of `sgld.sample` over mode and curvature."""
    import sgld
    import speed
    import time_to_accuracy as bench
    import workloads

    work = workloads.logistic(200_000)
    posterior = bench.model(work)
    call = lambda seed: sgld.sample(posterior, work.data, work.init, seed=seed, progress=False)  # noqa: E731
    call(0), bench.mode_and_curvature(work)
    ratios = [
        speed._seconds(lambda: call(seed)) / bench.mode_and_curvature(work)["total"]  # noqa: B023
        for seed in (1, 2, 3)
    ]
    return {"later calls, x mode + curvature": sorted(ratios)[1]}


SHORT = {
    "W1": w1, "W2": w2, "W3": w3, "first": first, "accuracy": accuracy, "verdict": verdict,
    "bias": bias, "time_to_accuracy": time_to_accuracy,
}  # fmt: skip


def moved(name: str, was: Figure, now: Figure) -> bool:
    """By more than a third of what was stored; an error by more than .03 besides; a word at all."""
    if isinstance(was, (str, list)) or isinstance(now, (str, list)):
        return was != now
    return abs(now - was) > max(ERROR if name.endswith("error") else 0.0, THIRD * abs(was))


def short(name: str) -> dict[str, Figure]:
    """A short version in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--part", name], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name} failed")
    return json.loads(done.stdout.splitlines()[-1])


def measure(names: list[str], keep: bool) -> int:
    """Run, compare, print; how many figures moved."""
    known, count = stored("short")["figures"], 0
    for name in names:
        began = time.monotonic()
        figures = {f"{name}: {figure}": value for figure, value in short(name).items()}
        for figure, now in figures.items():
            was = known.get(figure)
            line = f"{figure:<48}{_short(now):>12}"
            if was is not None:
                line += f"   stored {_short(was['value'])} ({was['commit']})"
                if moved(figure, was["value"], now):
                    line, count = line + "   MOVED", count + 1
            print(line)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
        if keep:
            store("short", figures, f"python benchmarks/claims.py --only {name} --store")
    return count


def _short(value: Figure) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default=",".join(SHORT), help=f"some of {', '.join(SHORT)}")
    parser.add_argument("--store", action="store_true", help="store what was found")
    parser.add_argument("--text", action="store_true", help="compare the text with what is stored")
    parser.add_argument("--write", action="store_true", help="write what is stored into the text")
    parser.add_argument("--part", choices=SHORT, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        print(json.dumps(SHORT[args.part]()))
        return
    if args.write:
        for page in PAGES:
            page.write_text(rewritten(page.read_text()))
    if args.text or args.write:
        lines = differing()
        print("\n".join(lines) or "the text states what is stored")
        sys.exit(bool(lines))
    names = args.only.split(",")
    if unknown := set(names) - set(SHORT):
        parser.error(f"--only takes {', '.join(SHORT)}. Got {', '.join(sorted(unknown))}.")
    count = measure(names, args.store)
    print(
        f"{count} figures moved by more than a third"
        if count
        else "no figure moved by more than a third"
    )
    sys.exit(bool(count) and not args.store)


if __name__ == "__main__":
    main()
