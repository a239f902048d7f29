"""Speed against peers and against the limit: one table of ratios.

    python benchmarks/speed.py [--quick] [--only W1,W2,W3,run,first] [--json FILE]

Times on a shared machine drift by a factor of two, so every figure is a ratio: the rows of a
group run in turn, forwards and backwards, and each ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import claims
import sgld
import workloads
from sgld.core.progress import told
from sgld.diagnostics.evidence import assess
from sgld.inference import execute, loop, outcome
from sgld.inference.chunk import Kernel, run_chunk, start
from sgld.inference.tuning.plan import make_plan
from sgld.model import prepare as problems
from sgld.model.problem import Request
from sgld.results.run_directory import RunDirectory
from workloads import THIN, Workload

PEER, LIMIT, QUIET = "BlackJAX", "C", "no noise"


@dataclass(frozen=True)
class Row:
    """One line of the table; `ratios` are against the named rows of the same group."""

    group: str
    name: str
    microseconds: float | None = None  # per chain-step, for orientation only
    ratios: dict[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Target:
    """What a ratio should reach, and whether it does."""

    text: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool:
        least = -np.inf if self.least is None else self.least
        return least <= self.value <= (np.inf if self.most is None else self.most)


# -- timing ----------------------------------------------------------------------------------


@dataclass
class Contender:
    """A loop of a given number of steps, sized to last about `seconds`."""

    name: str
    of_length: workloads.Timed
    chains: int = 1
    again: bool = False  # a second call right behind the first, whose memory the process still has

    def size(self, seconds: float, shortest: int) -> None:
        steps = shortest
        while True:
            self.call = self.of_length(steps)
            self.call()  # compiles
            took = _seconds(self.call)
            if took >= 0.7 * seconds or steps >= 10**8:
                return
            grown = steps * min(50.0, seconds / max(took, 1e-6))
            steps = max(steps + 1, round(grown))

    def per_chain_step(self) -> float:
        if self.again:
            self.call()
        return _seconds(self.call) / (self.call.steps * self.chains)


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def race(group: str, contenders: list[Contender], rounds: int, seconds: float) -> list[Row]:
    """Run all in turn, forwards and backwards, and compare them round by round."""
    for contender in contenders:
        contender.size(seconds, THIN)
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    for number in range(rounds):
        for contender in contenders[:: 1 if number % 2 == 0 else -1]:
            times[contender.name].append(contender.per_chain_step())
    rows = []
    for contender in contenders:
        own = times[contender.name]
        ratios = {
            other: median(b / a for a, b in zip(own, times[other], strict=True))
            for other in (PEER, LIMIT, QUIET)
            if other in times and other != contender.name
        }
        rows.append(Row(group, contender.name, 1e6 * median(own), ratios))
    return rows


# -- the package's own loop ------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """What `sgld.sample` has in hand when its loop begins, and the seconds of its parts."""

    kernel: Kernel
    starts: Any
    seconds: dict[str, float]


def request(
    work: Workload, chains: int, draws: int, order: str, sampler: Any = "auto", noise: str = "auto"
) -> Request:
    """Everything by hand, but for the noise."""
    return Request(
        sampler, work.step_size, 0.05, 1.0, sgld.Minibatch(), sgld.Scalar(1.0), order,
        work.batch_size, chains, draws, 0, THIN, 0, noise=noise,
    )  # fmt: skip


def prepare(
    work: Workload, chains: int, order: str = "reshuffle", draws: int = 1000, judge: bool = False,
    sampler: Any = "auto", noise: str = "auto",
) -> Prepared:  # fmt: skip
    """The steps of `sgld.sample` in their order, each with its seconds."""
    seconds: dict[str, float] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = call()
        seconds[name] = time.perf_counter() - began
        return result

    ask = request(work, chains, draws, order, sampler, noise)
    posterior = sgld.Posterior(work.log_prior, work.log_likelihood)
    ready = timed("check", lambda: problems.prepare(posterior, work.data, work.init))
    plan = timed("tune", lambda: make_plan(ready, ask))
    running = ready.with_batches(work.batch_size, order)
    kernel = execute.make_kernel(running, plan, ask.seed)
    # a copy on the host: the compiled chunk takes over the buffers of the starts it is given
    starts = np.asarray(execute._starts(running, plan, ask))
    if judge:
        raw = timed("loop", lambda: loop.run(kernel, jnp.array(starts), seed=0, num_draws=draws))
        drawn = outcome.reported_draws(running, plan, raw, ask.seed)
        z = np.moveaxis(raw.z, 0, 1)
        own = None if raw.gradient is None else np.moveaxis(raw.gradient, 0, 1)
        timed("verdict", lambda: assess(running, plan, drawn, z, own, 0.05, 0))
    return Prepared(kernel, starts, seconds)


def own_loop(prepared: Prepared, **options: Any) -> workloads.Timed:
    """`sgld.inference.loop.run` as `sgld.sample` calls it."""

    def of_length(steps: int) -> Callable[[], Any]:
        draws = max(2, round(steps / THIN))

        def call():
            call.seed += 1
            key = jax.random.key(call.seed)
            kernel = replace(prepared.kernel, key=key)
            return loop.run(
                kernel, jnp.array(prepared.starts), seed=call.seed, num_draws=draws, **options
            )  # fmt: skip

        call.seed, call.steps = 0, (draws - 1) * THIN + 1
        return call

    return of_length


def whole_call(work: Workload, steps: int = 2000) -> workloads.Timed:
    """`sgld.sample` as a user types it, of so many steps whatever is asked: tuning, loop, verdict."""

    def of_length(_: int) -> Callable[[], Any]:
        def call():
            sgld.sample(
                sgld.Posterior(work.log_prior, work.log_likelihood), work.data, work.init,
                step_size=work.step_size, batch_size=work.batch_size, num_chains=1, burn_in=0, thin=THIN,
                num_draws=steps // THIN, progress=False,
            )  # fmt: skip

        call.steps = steps
        return call

    return of_length


@dataclass(frozen=True)
class Noiseless:
    """The drift of SGLD alone: the same loop, without drawing or adding normals."""

    num_noises = 0

    def init(self, position: Any) -> Any:
        return sgld.SGLD().init(position)

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        drift = preconditioner.drift(grad(state.position))
        return state._replace(position=state.position + step_size * drift)


jax.tree_util.register_dataclass(Noiseless, data_fields=[], meta_fields=[])


# -- the groups ------------------------------------------------------------------------------


def race_w1(library: Any, rounds: int, seconds: float) -> Iterator[tuple[list[Row], list[Target]]]:
    for batch_size in (1, 10):
        work = workloads.mixture(batch_size)
        for chains in (1, 8):
            group = f"W1 batch {batch_size}, {chains} chain{'s' * (chains > 1)}"
            contenders = [
                Contender("sgld", own_loop(prepare(work, chains)), chains),
                Contender(PEER, workloads.blackjax_scan(work, chains), chains),
                Contender("naive scan", workloads.naive_scan(work, chains), chains),
            ]
            if library is not None:
                contenders.append(Contender(LIMIT, workloads.c_loop(library, work)))
            rows = race(group, contenders, rounds, seconds)
            targets = []
            if batch_size == 1:
                least = 30 if chains == 1 else 50
                ratio = rows[0].ratios[PEER]
                if chains == 1:
                    targets.append(Target(f"{group}: first bound, x BlackJAX", ratio, 15))
                targets.append(Target(f"{group}: x BlackJAX", ratio, least))
                if chains == 1 and library is not None:
                    slower = 1 / rows[0].ratios[LIMIT]
                    targets.append(Target(f"{group}: times slower than C", slower, None, 6))
            yield rows, targets


def race_w2(
    work: Workload, library: Any, rounds: int, seconds: float
) -> Iterator[tuple[list[Row], list[Target]]]:
    for chains in (1, 4):
        group = f"W2, {chains} chain{'s' * (chains > 1)}"
        contenders = [
            Contender("sgld", own_loop(prepare(work, chains)), chains),
            Contender(
                "sgld, with replacement", own_loop(prepare(work, chains, "replacement")), chains
            ),
            Contender(PEER, workloads.blackjax_scan(work, chains), chains),
            Contender("naive scan", workloads.naive_scan(work, chains), chains),
        ]
        if library is not None:
            contenders.append(Contender(LIMIT, workloads.c_loop(library, work)))
            if chains == 1:
                rows_at_random = workloads.c_loop(library, work, random_rows=True)
                contenders.append(Contender("C, random rows", rows_at_random))
        rows = race(group, contenders, rounds, seconds)
        targets = []
        if chains == 1:
            targets.append(Target(f"{group}: first bound, x BlackJAX", rows[0].ratios[PEER], 3))
            targets.append(Target(f"{group}: x BlackJAX", rows[0].ratios[PEER], 4))
            if library is not None:
                slower = 1 / rows[0].ratios[LIMIT]
                targets.append(Target(f"{group}: times slower than C", slower, None, 2))
        yield rows, targets


def race_w3(rounds: int, seconds: float) -> Iterator[tuple[list[Row], list[Target]]]:
    work, group = workloads.network(), "W3, 1 chain"
    contenders = [
        Contender("sgld", own_loop(prepare(work, 1))),
        Contender("sgld, normals", own_loop(prepare(work, 1, noise="normal"))),
        Contender("sgld.sample", whole_call(work)),
        Contender("sgld.sample, again", whole_call(work), again=True),
        Contender(QUIET, own_loop(prepare(work, 1, sampler=Noiseless()))),
        Contender(PEER, workloads.blackjax_scan(work, 1)),
        Contender("naive scan", workloads.naive_scan(work, 1)),
    ]
    rows = race(group, contenders, rounds, seconds)
    slower = 1 / rows[0].ratios[QUIET]
    yield (
        rows,
        [
            Target(f"{group}: x BlackJAX", rows[0].ratios[PEER], 2.5),
            Target(f"{group}: times slower than without noise", slower, None, 1.5),
            Target(f"{group}: a second sgld.sample, x BlackJAX", rows[3].ratios[PEER], 1.3),
            Target(f"{group}: share of the rate without noise", rows[0].ratios[QUIET], 0.7),
        ],
    )


def parts(work: Workload, group: str, chains: int, draws: int) -> list[Row]:
    """Where a whole `sgld.sample` spends its time, on a first call and on a second."""
    rows = []
    for call in ("first call", "second call"):
        prepared = prepare(work, chains, draws=draws, judge=True)
        total = sum(prepared.seconds.values())
        shares = {name: value / total for name, value in prepared.seconds.items()}
        note = " ".join(f"{name} {100 * share:.0f}%" for name, share in shares.items())
        rows.append(Row(group, f"sgld.sample, {call}", None, {}, f"{total:.2f} s: {note}"))
    return rows


class Terminal(io.StringIO):
    """A standard error that claims to be a terminal, so that the progress bar is drawn."""

    def isatty(self) -> bool:
        return True


@contextmanager
def on_terminal() -> Iterator[None]:
    with redirect_stderr(Terminal()):
        yield


def chunking(rounds: int, steps: int) -> tuple[list[Row], list[Target]]:
    """Chunks, progress bar and checkpoints against ONE call of the compiled function."""
    work, group = workloads.mixture(1), "W1 batch 1, whole run"
    prepared = prepare(work, 1)
    kernel, draws = prepared.kernel, steps // THIN
    steps = (draws - 1) * THIN + 1
    blocks = -(-steps // kernel.block)

    def bare():
        entries = (jnp.asarray(order()), jnp.int32(0))
        carry = start(kernel, jnp.array(prepared.starts))
        _, kept = run_chunk(
            kernel, carry, entries, jnp.int32(blocks), jnp.int32(0), slots=draws + 1
        )
        return np.asarray(kept.z)

    def chunks():
        return loop.run(kernel, jnp.array(prepared.starts), seed=0, num_draws=draws)

    def everything():
        with tempfile.TemporaryDirectory() as folder, on_terminal(), told(True):
            directory = RunDirectory(Path(folder) / "run")
            directory.create(False)
            with directory:
                directory.begin({})
                return loop.run(
                    kernel, jnp.array(prepared.starts), seed=0, num_draws=draws, directory=directory,
                    checkpoint_every=1.0,
                )  # fmt: skip

    def order():
        return kernel.problem.source.chunk((0, 0), 0, blocks * kernel.block)[:, None]

    calls = {"one compiled call": bare, "chunks": chunks, "all on": everything, "order": order}
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in list(calls)[:: 1 if number % 2 == 0 else -1]:
            times[name].append(_seconds(calls[name]))
    base = times["one compiled call"]
    over = {n: median(a / b for a, b in zip(times[n], base, strict=True)) for n in calls}
    labels = {
        "one compiled call": "one call of the compiled function",
        "chunks": "the loop: chunks sized by time",
        "all on": "with progress bar and a checkpoint a second",
        "order": "of which drawing and sending the data order",
    }
    rows = [
        Row(group, labels[n], 1e6 * median(times[n]) / steps, {}, f"{100 * over[n]:.1f}% of one call")
        for n in calls
    ]  # fmt: skip
    return rows, [
        Target(f"{group}: % over one call, all on", 100 * (over["all on"] - 1), None, 5.0)
    ]


def many_chains(rounds: int, seconds: float) -> tuple[list[Row], list[Target]]:
    work, group = workloads.mixture(1), "W1 batch 1, 64 chains"
    contenders = [
        Contender("1 chain", own_loop(prepare(work, 1))),
        Contender("64 chains", own_loop(prepare(work, 64)), 64),
    ]
    for contender in contenders:
        contender.size(seconds, THIN)
    times = [[c.per_chain_step() for c in contenders] for _ in range(rounds)]
    ratio = median(one / many for one, many in times)
    rows = [Row(group, c.name, 1e6 * median(t[i] for t in times)) for i, c in enumerate(contenders)]
    return rows, [Target(f"{group}: x one chain's throughput", ratio, 20)]


# -- fresh processes -------------------------------------------------------------------------

MEMORY = """
import resource, sys
from pathlib import Path
from dataclasses import replace
import jax.numpy as jnp
import speed, workloads
from sgld.inference import loop
ready = speed.prepare(workloads.mixture(1), 1)
thin, draws = int(sys.argv[1]), 1000
raw = loop.run(replace(ready.kernel, thin=jnp.int32(thin)), jnp.array(ready.starts), seed=0, num_draws=draws)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
status = Path("/proc/self/status")
if status.exists():  # ru_maxrss counts the parent's pages at the fork, VmHWM does not
    peak = next(int(l.split()[1]) for l in status.read_text().splitlines() if "VmHWM" in l)
print(raw.num_steps, peak / 1024)
"""

FIRST = """
import time
began = time.perf_counter()
import jax, numpy as np, sgld
sgld.sample
imported = time.perf_counter()
rng = np.random.default_rng(0)
X = rng.standard_normal((20_000, 5), np.float32)
y = (rng.random(20_000) < 1 / (1 + np.exp(-X.sum(1)))).astype(np.float32)
posterior = sgld.Posterior(
    lambda b: -0.5 * b @ b,
    lambda b, row: row[1] * (row[0] @ b) - jax.nn.softplus(row[0] @ b))
def call():
    before = time.perf_counter()
    sgld.sample(posterior, (X, y), np.zeros(5, np.float32), progress=False)
    return time.perf_counter() - before
print(imported - began, call(), call())
"""


def _fresh(code: str, *arguments: str) -> list[float]:
    here = Path(__file__).resolve().parent
    source = Path(sgld.__file__).resolve().parents[1]
    path = os.pathsep.join([str(here), str(source), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=here,
        env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [float(word) for word in done.stdout.split()[-3:]]


def memory(longest: int) -> tuple[list[Row], list[Target]]:
    """Peak resident memory of a short and of a long run with the same number of draws."""
    group, rows, peaks = "W1 batch 1, memory", [], []
    for steps in (10**5, longest):
        ran, peak = _fresh(MEMORY, str(steps // 1000))[-2:]
        peaks.append(peak)
        rows.append(Row(group, f"{ran:,.0f} steps", None, {}, f"peak resident {peak:.0f} MiB"))
    ratio = peaks[1] / peaks[0]
    return rows, [Target(f"{group}: long run's peak over the short one's", ratio, None, 1.05)]


def first_sample(rounds: int) -> tuple[list[Row], list[Target]]:
    """A small logistic regression (N = 20,000, d = 5), everything automatic."""
    group = "first sample"
    results = [_fresh(FIRST) for _ in range(rounds)]
    imported, first, second = (median(column) for column in zip(*results, strict=True))
    rows = [
        Row(group, "import sgld, sample included", None, {}, f"{imported:.2f} s"),
        Row(group, "first call after import", None, {}, f"{first:.2f} s"),
        Row(group, "second call", None, {}, f"{second:.2f} s"),
    ]
    targets = [Target("first sample of a small model, s", first, None, 2.0)]
    if (Path(sgld.__file__).parent / "cli.py").exists():
        command = [sys.executable, "-c", "import sys; sys.argv = ['sgld', '--help'];"
                   "from sgld.interfaces.cli import main; main()"]  # fmt: skip
        took = [
            _seconds(lambda: subprocess.run(command, capture_output=True, check=True))
            for _ in range(5)
        ]
        rows.append(Row(group, "sgld --help", None, {}, f"{median(took):.2f} s"))
        targets.append(Target("sgld --help, s", median(took), None, 0.5))
    return rows, targets


# -- the table -------------------------------------------------------------------------------


def show(rows: list[Row]) -> None:
    group = None
    for row in rows:
        if row.group != group:
            group = row.group
            print(f"\n{group}")
        time_text = "" if row.microseconds is None else f"{row.microseconds:10.3f}"
        ratios = "".join(f"  {value:8.3g} x {other}" for other, value in row.ratios.items())
        print(f"  {row.name:46}{time_text:>11}{ratios}{'  ' if row.note else ''}{row.note}")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Speed against peers and the limit, as ratios.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, no W3")
    parser.add_argument("--only", default="", help="comma-separated: W1, W2, W3, run, first")
    parser.add_argument("--json", metavar="FILE", help="write rows and targets there")
    parser.add_argument(
        "--store", action="store_true", help="write the ratios to results/speed.json"
    )
    given = parser.parse_args(arguments)
    groups = given.only.split(",") if given.only else ["W1", "W2", "run", "first"]
    if not given.only and not given.quick:
        groups.insert(2, "W3")
    rounds, seconds = (3, 0.4) if given.quick else (7, 0.8)
    rows: list[Row] = []
    targets: list[Target] = []

    def add(new: list[Row], goals: list[Target]) -> None:
        rows.extend(new)
        targets.extend(goals)
        show(new)

    with tempfile.TemporaryDirectory() as folder:
        library, how = workloads.compile_c(Path(folder))
        print(f"jax {jax.__version__}, {os.cpu_count()} cores, {jax.default_backend()}")
        print(f"C: {how}" if library is not None else f"C: skipped, {how}")
        print("microseconds per chain-step, then speed relative to other rows of the group")
        if "W1" in groups:
            add(parts(workloads.mixture(1), "W1 batch 1, 4 chains, 1000 draws", 4, 1000), [])
            for part in race_w1(library, rounds, seconds):
                add(*part)
        if "W2" in groups:
            work = workloads.logistic()
            add(parts(work, "W2, 4 chains, 100 draws", 4, 100), [])
            for part in race_w2(work, library, rounds, seconds):
                add(*part)
        if "W3" in groups:
            for part in race_w3(max(3, rounds // 2), 2 * seconds):
                add(*part)
        if "run" in groups:
            add(*chunking(rounds, 4 * 10**6 if given.quick else 2 * 10**7))
            add(*many_chains(rounds, seconds))
            add(*memory(10**6 if given.quick else 10**7))
        if "first" in groups:
            add(*first_sample(1 if given.quick else 3))
    print("\ntargets")
    for target in targets:
        bound = f">= {target.least}" if target.least is not None else f"<= {target.most}"
        print(
            f"  {target.text:58}{target.value:8.3g}  {bound:9}  {'met' if target.met else 'MISSED'}"
        )
    if given.json:
        table = {
            "rows": [asdict(row) for row in rows],
            "targets": [{**asdict(target), "met": bool(target.met)} for target in targets],
            "versions": {"jax": jax.__version__, "sgld": sgld.__version__},
        }
        Path(given.json).write_text(json.dumps(table, indent=2) + "\n")
    if given.store:
        ratios = {
            f"{row.group.replace(' batch 1,', ',')}, x {PEER}": row.ratios[PEER]
            for row in rows if row.name == "sgld" and PEER in row.ratios
        }  # fmt: skip
        claims.store("speed", ratios)
    return 0


if __name__ == "__main__":
    sys.exit(main())
