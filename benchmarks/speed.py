"""Compare the speed of a step with BlackJAX's, and a first call with the import.

    python benchmarks/speed.py                 all tables, several minutes
    python benchmarks/speed.py --only W1       one of them: W1, W2, W3, first

Absolute times on a shared machine drift by a factor of two, so the figures are ratios: the rows of
a group run in turn, and each ratio is the median of the ratios within a round. `sgld` visits
reshuffled blocks of rows, as is its default; BlackJAX draws them with replacement. C is `baseline.c`, one
chain on one thread. The last row of W3 is a whole `sgld.sample` of 2,000 steps of a smaller network, tuning
and verdict included. `first` runs in processes of their own.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator

import jax
import numpy as np

import sgld
from harness import Table, command_line, fresh_process, paired_rounds, store, wall_seconds
from workloads import (
    Loop,
    Workload,
    blackjax_loop,
    c_loop,
    logistic,
    mixture,
    network,
    own_loop,
)

PEER = "BlackJAX"
START_STEPS, MAX_GROWTH = 200, 50.0


def choose_steps(loop: Loop, seconds: float) -> int:
    """Return the number of steps that take about so many seconds, or the fewest for 0 seconds."""
    steps = START_STEPS
    while seconds:
        loop(steps)  # compiles
        took = loop(steps)
        if took >= 0.7 * seconds:
            return steps
        steps = round(steps * min(MAX_GROWTH, 1.5 * seconds / took))
    return steps


def race(loops: dict[str, tuple[Loop, int]], rounds: int, seconds: float) -> dict[str, np.ndarray]:
    """Return microseconds per chain-step, round by round, of every (loop, number of chains)."""
    steps = {name: choose_steps(loop, seconds) for name, (loop, _) in loops.items()}

    def per_step(name: str) -> float:
        loop, chains = loops[name]
        return 1e6 * loop(steps[name]) / (steps[name] * chains)

    return paired_rounds({name: lambda name=name: per_step(name) for name in loops}, rounds, False)


def compare(
    table: Table, group: str, loops: dict[str, tuple[Loop, int]], rounds: int, seconds: float
) -> float:
    """Print a group of the table; return the speed of its first row over BlackJAX's."""
    took = race(loops, rounds, seconds)
    for name, own in took.items():
        table.row(f"{group}: {name}", float(np.median(own)), float(np.median(took[PEER] / own)))
    return float(np.median(took[PEER] / took["sgld"]))


def workload_loops(work: Workload, chains: int) -> dict[str, tuple[Loop, int]]:
    """Return the rows of a group by name."""
    loops = {"sgld": (own_loop(work, chains), chains)}
    if work.name == "W2":
        loops["sgld, with replacement"] = (own_loop(work, chains, order="replacement"), chains)
    loops[PEER] = (blackjax_loop(work, chains), chains)
    if work.name != "W3" and (in_c := c_loop(work)) is not None:
        loops["C"] = (in_c, 1)
    return loops


def whole_call_over_blackjax(steps: int = 200, rounds: int = 1) -> float:
    """Return BlackJAX's seconds over those of a first `sgld.sample` of so many steps on W3."""
    work, seeds = network(hidden=(50,)), itertools.count()

    def used() -> None:
        sgld.sample(
            work.posterior, work.data, work.init, step_size=work.step_size, burn_in=0, thin=10,
            batch_size=work.batch_size, num_chains=1, num_draws=steps // 10, seed=next(seeds),
            progress=False,
        )  # fmt: skip

    peer = blackjax_loop(work, 1)
    peer(steps)
    if rounds == 1:
        own = wall_seconds(used)
        return peer(steps) / own
    took = paired_rounds({"sgld": lambda: wall_seconds(used), PEER: lambda: peer(steps)}, rounds)
    return float(np.median(took[PEER] / took["sgld"]))


def first_call() -> list[float]:
    """Return seconds of import, of a first call on a small logistic regression and of a second."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 5), np.float32)
    y = (rng.random(20_000) < 1 / (1 + np.exp(-X.sum(1)))).astype(np.float32)
    posterior = sgld.Posterior(
        lambda b: -0.5 * b @ b, lambda b, row: row[1] * (row[0] @ b) - jax.nn.softplus(row[0] @ b)
    )
    call = lambda: sgld.sample(posterior, (X, y), np.zeros(5, np.float32), progress=False)  # noqa: E731
    return [time.process_time(), wall_seconds(call), wall_seconds(call)]


def in_new_processes(rounds: int) -> Iterator[tuple[str, float]]:
    """Yield the rows of the table `first`, each a median over processes."""
    found = np.median([fresh_process(__file__, "first") for _ in range(rounds)], axis=0)
    yield from zip(("import of all (CPU)", "first call", "second call"), found, strict=True)


def main() -> None:
    args = command_line(__doc__, ("W1", "W2", "W3", "first"), parts={"first": first_call})
    rounds, seconds = (1, 0.0) if args.smoke else (7, 0.8)
    figures: dict[str, float] = {}
    print(f"jax {jax.__version__}, {os.cpu_count()} cores, {jax.default_backend()}")
    table = Table(38, {"us a step": ".3f", f"x {PEER}": ".3g"})
    makers = {"W1": lambda: mixture(1), "W2": lambda: logistic(20_000 if args.smoke else 10**6)}
    makers["W3"] = lambda: network(1000, hidden=(50,)) if args.smoke else network()
    for name, counts in {"W1": (1, 8), "W2": (1, 4), "W3": (1,)}.items():
        for chains in (counts[:1] if args.smoke else counts) if name in args.only else ():
            group = f"{name}, {chains} chain{'s' * (chains > 1)}"
            loops = workload_loops(makers[name](), chains)
            figures[f"{group}, x {PEER}"] = compare(table, group, loops, rounds, seconds)
    if "W3" in args.only:
        ratio = whole_call_over_blackjax(20 if args.smoke else 2000, rounds)
        table.row("W3, 50 units: sgld.sample", None, ratio)
        figures[f"W3, sgld.sample, x {PEER}"] = ratio
    if "first" in args.only and not args.smoke:
        for name, took in in_new_processes(rounds=3):
            print(f"{name:<38}{took:9.2f} s")
    if args.store:
        store("speed", figures)


if __name__ == "__main__":
    main()
