"""Data larger than memory: what a run on files takes, against the same run on arrays.

    python benchmarks/stream.py                       2e6 rows x 50 columns, float32 (400 MB), about ten minutes
    python benchmarks/stream.py --rows 2e7            4 GB
    python benchmarks/stream.py --only convert,run    some of: convert, run, rate, cold, saved, devices, made
    python benchmarks/stream.py --only made --made 1e9    rows that are made from their number, no file: a billion
    python benchmarks/stream.py --folder DIR          where the files are made, and kept for the next time
    python benchmarks/stream.py --store               the figures into results/stream.json

Logistic regression on generated rows. Every line is a process of its own. Anonymous memory is the most
that /proc/self/status said (RssAnon), looked at every 5 ms; pages of files, which the system takes back
when it needs room, are not in it. Passes are bytes read and written over bytes of the data. Absolute
times drift on a shared machine: ratios are of processor seconds, or of rounds in turn in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = 50
PIECE = 100_000  # rows that are generated together
STEPS, BATCH, ROUNDS = 40_000, 500, 5
CHAINS, THIN, SAVED_EVERY = (
    4,
    100,
    0.25,
)  # of `saved` and `devices`; seconds between its checkpoints
MESHES = {"one device": None, "4 x 1": (4, 1), "2 x 2": (2, 2), "1 x 4": (1, 4)}  # chain x data
NAMES = [f"x{j}" for j in range(COLUMNS)]


# -- data ------------------------------------------------------------------------------------


def generated(rows: int, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows [first, first + PIECE): the same whatever was made before."""
    beta = 0.3 * np.random.default_rng(1).standard_normal(COLUMNS)
    rng = np.random.default_rng([2, first])
    x = rng.standard_normal((min(PIECE, rows - first), COLUMNS), dtype=np.float32)
    return x, (rng.random(len(x)) < 1 / (1 + np.exp(-(x @ beta)))).astype(np.float32)


def make(folder: Path, rows: int) -> None:
    """Both files, in pieces."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    shapes = {"x.npy": (rows, COLUMNS), "y.npy": (rows,)}
    arrays = [
        np.lib.format.open_memmap(folder / f".{name}", "w+", np.float32, shape)
        for name, shape in shapes.items()
    ]
    schema = pa.schema([(name, pa.float32()) for name in [*NAMES, "y"]])
    with pq.ParquetWriter(folder / ".rows.parquet", schema, compression="none") as writer:
        for first in range(0, rows, PIECE):
            x, y = generated(rows, first)
            for array, values in zip(arrays, (x, y), strict=True):
                array[first : first + len(y)] = values
            writer.write_table(pa.table([*x.T, y], schema=schema))
    for name in (*shapes, "rows.parquet"):
        os.rename(folder / f".{name}", folder / name)


# -- jobs, each in a process of its own --------------------------------------------------------


class Watched:
    """The most anonymous memory while it is watched, in MB."""

    def __init__(self) -> None:
        self.most, self._end = 0, threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._end.wait(0.005):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    self.most = max(self.most, int(line.split()[1]) // 1024)


def used() -> float:
    """Processor seconds of this process."""
    now = resource.getrusage(resource.RUSAGE_SELF)
    return now.ru_utime + now.ru_stime


def characters() -> dict[str, int]:
    """Bytes that this process has read and written through the system's calls."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return {k: int(v) for k, v in (line.split(": ") for line in lines)}


def given(folder: Path, kind: str) -> tuple[Any, dict[str, Any]]:
    """What `sgld.open` is given."""
    if kind == "parquet":
        return folder / "rows.parquet", {"columns": (NAMES, "y")}
    return (folder / "x.npy", folder / "y.npy"), {}


def opened(folder: Path, kind: str) -> Any:
    """The rows as a run takes them."""
    import sgld

    if kind == "memory":
        return np.load(folder / "x.npy"), np.load(folder / "y.npy")
    data, named = given(folder, kind)
    return sgld.open(data, cache=folder / "cache", progress=False, **named)


def posterior() -> Any:
    """Logistic regression."""
    import jax.numpy as jnp

    import sgld

    def log_likelihood(b: Any, row: Any) -> Any:
        x, y = row
        return y * (x @ b) - jnp.logaddexp(0.0, x @ b)

    return sgld.Posterior(lambda b: -0.5 * jnp.sum(b**2) / 100, log_likelihood)


def convert(folder: Path, kind: str) -> dict[str, Any]:
    """The conversion alone."""
    import shutil

    import sgld  # noqa: F401  so that what it takes is in neither figure

    shutil.rmtree(folder / "cache", ignore_errors=True)
    watched, began, spent, before = Watched(), time.monotonic(), used(), characters()
    source = opened(folder, kind)
    now, size = characters(), source.files.size
    return {
        "seconds": time.monotonic() - began, "cpu": used() - spent, "anonymous": watched.most,
        "read": (now["rchar"] - before["rchar"]) / size,
        "written": (now["wchar"] - before["wchar"]) / size, "digest": source.hash(),
    }  # fmt: skip


def run(folder: Path, kind: str) -> dict[str, Any]:
    """Tuning, sampling and verdict of `sgld.sample`, nothing given; compiled functions from JAX's cache."""
    import jax.numpy as jnp

    import sgld

    watched, rows = Watched(), opened(folder, kind)
    began, spent = time.monotonic(), used()
    draws = sgld.sample(posterior(), rows, jnp.zeros(COLUMNS), progress=False)
    return {
        "seconds": time.monotonic() - began, "cpu": used() - spent, "anonymous": watched.most,
        "verdict": draws.verdict.word, "sum": float(np.abs(draws.position).sum(dtype=np.float64)),
        "plan": f"{draws.plan.setup.gradient!r}, batch {draws.plan.setup.batch_size}",
    }  # fmt: skip


def rate(folder: Path, kind: str) -> dict[str, Any]:
    """Steps of plain minibatches on both, in turn: processor and wall seconds a step, medians."""
    import jax.numpy as jnp

    import sgld

    def once(rows: Any) -> tuple[float, float, Any]:
        began, spent = time.monotonic(), used()
        draws = sgld.sample(
            posterior(), rows, jnp.zeros(COLUMNS), step_size=1e-7, batch_size=BATCH, num_chains=1,
            num_draws=100, thin=STEPS // 100, progress=False, seed=1,
        )  # fmt: skip
        return time.monotonic() - began, used() - spent, draws.position

    both = {kind: opened(folder, kind) for kind in ("npy", "memory")}
    both["npy"].original_rows(np.arange(2), 0)
    found: dict[str, list] = {kind: [once(rows)] for kind, rows in both.items()}
    for turn in range(ROUNDS):
        for one in list(both)[:: 1 if turn % 2 else -1]:
            found[one].append(once(both[one]))
    wall, cpu = (
        {k: float(np.median([f[i] for f in v[1:]])) / STEPS * 1e6 for k, v in found.items()}
        for i in (0, 1)
    )
    return {"wall": wall, "cpu": cpu, "ratio": wall["memory"] / wall["npy"]}


def looped(rows: Any, batch: int, meshes: Iterable[Any]) -> list[Callable[..., None]]:
    """Of every mesh the loop that `sgld.sample` runs, as a function of the number of draws and of its options."""
    import jax
    import jax.numpy as jnp

    import sgld
    from sgld.core.devices import as_mesh
    from sgld.inference import execute, loop
    from sgld.inference.tuning.plan import make_plan
    from sgld.model.prepare import prepare
    from sgld.model.problem import Request

    ask = Request(
        "auto", 1e-7, 0.05, 1.0, sgld.Minibatch(), sgld.Scalar(1.0), "reshuffle", batch, CHAINS, 1000, 0, THIN, 0,
    )  # fmt: skip
    model, init = posterior(), jnp.zeros(COLUMNS)
    plan = make_plan(prepare(model, rows, init), ask)

    def of(shape: Any) -> Callable[..., None]:
        mesh = None if shape is None else as_mesh(jax.make_mesh(shape, ("chain", "data")))
        problem = prepare(model, rows, init, mesh=mesh).with_batches(batch, "reshuffle")
        kernel = execute.make_kernel(problem, plan, 0)
        starts = np.asarray(execute._starts(problem, plan, ask))

        def run(draws: int, **options: Any) -> None:
            loop.run(kernel, jnp.array(starts), seed=0, num_draws=draws, **options)

        return run

    return [of(shape) for shape in meshes]


def in_turn(calls: dict[str, Callable[[], Any]]) -> dict[str, list[tuple[float, float]]]:
    """Wall and processor seconds of each call, once a round; the first calls, which compile, are not in them."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for turn in range(-1, ROUNDS):
        for name in list(calls)[:: 1 if turn % 2 else -1]:
            began, spent = time.monotonic(), used()
            calls[name]()
            if turn >= 0:
                found[name].append((time.monotonic() - began, used() - spent))
    return found


def saved(folder: Path, kind: str) -> dict[str, Any]:
    """Checkpoints of the loop: seconds each, share of 10 s; and a loop with many of them against one without."""
    from sgld.results.run_directory import RunDirectory

    (run,) = looped(opened(folder, kind), BATCH, [None])
    written: list[float] = []

    def with_checkpoints() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            directory = RunDirectory(Path(place) / "run")
            name, write = "write_checkpoint", directory.write_checkpoint

            def timed(*given: Any) -> None:
                began = time.monotonic()
                write(*given)
                written.append(time.monotonic() - began)

            setattr(directory, name, timed)
            directory.create(False)
            with directory:
                directory.begin({})
                run(STEPS // THIN, directory=directory, checkpoint_every=SAVED_EVERY)

    found = in_turn({"without": lambda: run(STEPS // THIN), "with": with_checkpoints})
    ratio = np.median(np.array(found["with"])[:, 1] / np.array(found["without"])[:, 1])
    return {
        "each": float(np.mean(written)), "percent": 10 * float(np.mean(written)),
        "written": len(written) / (ROUNDS + 1), "ratio": float(ratio),
    }  # fmt: skip


def devices(folder: Path, batch: str) -> dict[str, Any]:
    """Steps a second of the loop on 4 virtual devices over those on one of them."""
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    draws = max(4, STEPS * BATCH // int(batch) // 4 // THIN)
    loops = looped(opened(folder, "npy"), int(batch), MESHES.values())
    found = in_turn({name: partial(run, draws) for name, run in zip(MESHES, loops, strict=True)})
    wall, cpu = ({n: np.array(f)[:, i] for n, f in found.items()} for i in (0, 1))
    ratios, of_cpu = (
        {n: float(np.median(times["one device"] / f)) for n, f in times.items()}
        for times in (wall, cpu)
    )
    us = float(np.median(wall["one device"])) / (draws * THIN) * 1e6
    return {"us": us, "ratios": ratios, "ratios cpu": of_cpu}


def cold(folder: Path, kind: str) -> dict[str, Any]:
    """`run`, the cache's pages dropped before; and one pass over the file, cold too."""
    source = opened(folder, "npy")
    paths, size = source.files.paths, source.files.size
    del source
    _drop(paths)
    began = time.monotonic()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(2**22):
                pass
    one_pass = time.monotonic() - began
    _drop(paths)
    found = run(folder, "npy")
    return {**found, "one pass": one_pass, "rate": size / one_pass / 2**20}


def _drop(paths: tuple[str, ...]) -> None:
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def made(folder: Path, rows: str) -> dict[str, Any]:
    """`sgld.sample` on rows that are made where they are needed: linear regression on 20 columns."""
    import jax.numpy as jnp

    import sgld
    from made_rows import Made

    watched, began, spent = Watched(), time.monotonic(), used()
    model = sgld.Posterior(
        lambda b: -0.5 * jnp.sum(b**2) / 100, lambda b, row: -0.5 * (row["y"] - row["x"] @ b) ** 2
    )
    source = Made(int(rows), int(rows), "reshuffle")
    draws = sgld.sample(model, source, jnp.zeros(20), progress=False)
    return {
        "seconds": time.monotonic() - began, "cpu": used() - spent, "anonymous": watched.most,
        "verdict": draws.verdict.word, "rows": int(rows),
        "plan": f"{draws.plan.setup.gradient!r}, batch {draws.plan.setup.batch_size}",
    }  # fmt: skip


# -- the table ---------------------------------------------------------------------------------

JOBS = {
    "convert": convert, "run": run, "rate": rate, "cold": cold, "saved": saved, "devices": devices, "made": made,
}  # fmt: skip
BATCHES = (BATCH, 20_000)  # rows a step of `devices`


def job(name: str, kind: str, folder: Path) -> dict[str, Any]:
    """One line's figures, from a process of its own."""
    command = [sys.executable, __file__, "--job", name, kind, "--folder", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def told(folder: Path, rows: int, made_rows: int, only: list[str]) -> dict[str, Any]:
    """All figures, printed as they come."""
    table: dict[str, Any] = {"rows": rows, "columns": COLUMNS}
    if only != ["made"]:
        print(f"{rows:,} rows x {COLUMNS} columns, {4 * rows * (COLUMNS + 1) / 1e6:,.0f} MB")
    for kind in ("parquet", "npy") if "convert" in only else ():
        f = table[f"convert {kind}"] = job("convert", kind, folder)
        print(
            f"convert {kind:8} {f['seconds']:6.1f} s ({f['cpu']:.1f} of a core)  anonymous {f['anonymous']:4} MB  "
            f"bytes read {f['read']:.2f} x, written {f['written']:.2f} x the data"
        )
    for kind in ("npy", "memory") if "run" in only else ():
        job("run", kind, folder)  # compiles
        f = table[f"run {kind}"] = job("run", kind, folder)
        print(
            f"run     {kind:8} {f['seconds']:6.1f} s ({f['cpu']:.1f} of a core)  anonymous {f['anonymous']:4} MB  "
            f"{f['verdict']}, {f['plan']}, sum of draws {f['sum']:.9g}"
        )
    if "rate" in only:
        f = table["rate"] = job("rate", "both", folder)
        print(
            f"step    disk {f['wall']['npy']:.1f} us, memory {f['wall']['memory']:.1f} us: "
            f"{f['ratio']:.2f} of the rate in memory (of processor seconds "
            f"{f['cpu']['memory'] / f['cpu']['npy']:.2f})"
        )
    if "cold" in only:
        f = table["cold"] = job("cold", "npy", folder)
        print(
            f"cold    one pass {f['one pass']:.1f} s ({f['rate']:,.0f} MB/s), run {f['seconds']:.1f} s "
            f"({f['cpu']:.1f} of a core)  anonymous {f['anonymous']:4} MB  {f['verdict']}"
        )
    if "saved" in only:
        f = table["saved"] = job("saved", "npy", folder)
        print(
            f"saved   a checkpoint takes {1e3 * f['each']:.1f} ms, every 10 s {f['percent']:.2f}% of a run; with "
            f"{f['written']:.0f} of them a loop took {f['ratio']:.2f} of the processor seconds of one without"
        )
    for batch in BATCHES if "devices" in only else ():
        f = table[f"devices {batch}"] = job("devices", str(batch), folder)
        both = ", ".join(
            f"{name} {f['ratios'][name]:.2f} ({f['ratios cpu'][name]:.2f})"
            for name in list(MESHES)[1:]
        )
        print(
            f"devices {CHAINS} chains, {batch:,} rows a step, {f['us']:,.0f} us on one; of its rate on 4 (of processor "
            f"seconds), chain x data: {both}"
        )
    if "made" in only:
        f = table["made"] = job("made", str(made_rows), folder)
        print(
            f"made    {f['rows']:,} rows x 20 columns, no file: {f['seconds']:.1f} s ({f['cpu']:.1f} of a core)  "
            f"anonymous {f['anonymous']:4} MB  {f['verdict']}, {f['plan']}"
        )
    return table


def figures(table: dict[str, Any]) -> dict[str, Any]:
    """What is stored: every figure of the table by its names."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= {f"{name}: {inner}": one for inner, one in figures(value).items()}
        else:
            found[name] = value
    return found


def main() -> None:
    """The command line."""
    import claims

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=2_000_000)
    parser.add_argument("--made", type=lambda text: int(float(text)), default=2_000_000)
    parser.add_argument("--only", default="convert,run,rate,cold,saved,devices")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--store", action="store_true", help="write the figures to results/stream.json"
    )
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        name, kind = options.job
        print(json.dumps(JOBS[name](options.folder, kind)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "compiled"))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        if options.only != "made" and not (folder / "rows.parquet").exists():
            make(folder, options.rows)
        table = told(folder, options.rows, options.made, options.only.split(","))
        if options.json:
            options.json.write_text(json.dumps(table, indent=2) + "\n")
        if options.store:
            claims.store("stream", figures(table))


if __name__ == "__main__":
    main()
