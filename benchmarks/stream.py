"""Compare a run on files with the same run on arrays, for data larger than memory.

    python benchmarks/stream.py                       2e6 rows x 50 columns, float32 (400 MB), about ten minutes
    python benchmarks/stream.py --rows 2e7            4 GB
    python benchmarks/stream.py --only convert,run    some of: convert, run, rate, saved, devices
    python benchmarks/stream.py --folder DIR          where the files are made, and kept for the next time

Logistic regression on generated rows. Every line is a process of its own. Anonymous memory is the largest
RssAnon of /proc/self/status, read every 5 ms; pages of files, which the system takes back when it needs
room, are not in it. Absolute times drift on a shared machine: ratios are of processor seconds, or of
rounds in turn in one process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sgld
from harness import Figure, command_line, fresh_process, paired_rounds, store, timed

COLUMNS, CHAINS, SAVED_EVERY = 50, 4, 0.05  # seconds between the checkpoints of `saved`
PIECE = 100_000  # rows that are generated together
STEPS, BATCH, ROUNDS = 40_000, 500, 5
BATCHES = (BATCH, 20_000)  # rows a step of `devices`
MESHES = {"one device": None, "4 x 1": (4, 1), "2 x 2": (2, 2), "1 x 4": (1, 4)}  # chain x data
NAMES = [f"x{j}" for j in range(COLUMNS)]
CHECKPOINT_INTERVAL = 10.0  # seconds, of a run left to the library


# -- data ------------------------------------------------------------------------------------


def generate_rows(rows: int, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows [first, first + PIECE): the same whatever was made before."""
    beta = 0.3 * np.random.default_rng(1).standard_normal(COLUMNS)
    rng = np.random.default_rng([2, first])
    x = rng.standard_normal((min(PIECE, rows - first), COLUMNS), dtype=np.float32)
    return x, (rng.random(len(x)) < 1 / (1 + np.exp(-(x @ beta)))).astype(np.float32)


def make(folder: Path, rows: int) -> None:
    """Write the rows as NumPy's files and as Parquet, in pieces."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    shapes = {"x.npy": (rows, COLUMNS), "y.npy": (rows,)}
    arrays = [
        np.lib.format.open_memmap(folder / name, "w+", np.float32, shape)
        for name, shape in shapes.items()
    ]
    schema = pa.schema([(name, pa.float32()) for name in [*NAMES, "y"]])
    with pq.ParquetWriter(folder / "rows.parquet", schema, compression="none") as writer:
        for first in range(0, rows, PIECE):
            x, y = generate_rows(rows, first)
            for array, values in zip(arrays, (x, y), strict=True):
                array[first : first + len(y)] = values
            writer.write_table(pa.table([*x.T, y], schema=schema))


def open_rows(folder: str, kind: str) -> Any:
    """Return the rows as a run takes them."""
    path = Path(folder)
    x, y = path / "x.npy", path / "y.npy"
    if kind == "memory":
        return np.load(x), np.load(y)
    if kind == "npy":
        return sgld.open((x, y), cache=path / "cache", progress=False)
    columns = (NAMES, "y")
    return sgld.open(path / "rows.parquet", columns=columns, cache=path / "cache", progress=False)


def posterior() -> sgld.Posterior:
    """Return the logistic regression."""
    import jax.numpy as jnp

    def log_likelihood(b: Any, row: Any) -> Any:
        x, y = row
        return y * (x @ b) - jnp.logaddexp(0.0, x @ b)

    return sgld.Posterior(lambda b: -0.5 * jnp.sum(b**2) / 100, log_likelihood)


# -- parts, each in a process of its own -------------------------------------------------------


class Watched:
    """The largest anonymous memory since it was made, in MB."""

    def __init__(self) -> None:
        self.most = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    self.most = max(self.most, int(line.split()[1]) // 1024)
            time.sleep(0.005)


def convert(folder: str, kind: str) -> dict[str, Any]:
    """Measure the conversion alone."""
    shutil.rmtree(Path(folder) / "cache", ignore_errors=True)
    watched = Watched()
    _, seconds, cpu = timed(lambda: open_rows(folder, kind))
    return {"seconds": seconds, "cpu": cpu, "anonymous": watched.most}


def run(folder: str, kind: str) -> dict[str, Any]:
    """Measure `sgld.sample` with nothing given, its functions compiled before."""
    watched, rows = Watched(), open_rows(folder, kind)
    draws, seconds, cpu = timed(
        lambda: sgld.sample(posterior(), rows, np.zeros(COLUMNS, np.float32), progress=False)
    )
    total = float(np.abs(draws.position).sum(dtype=np.float64))
    return {
        "seconds": seconds, "cpu": cpu, "anonymous": watched.most, "verdict": draws.verdict.word,
        "sum": total,
    }  # fmt: skip


def steps(rows: Any, count: int, chains: int, batch: int, **given: Any) -> np.ndarray:
    """Return wall and CPU seconds of a run of so many plain steps."""
    thin = max(1, count // 100)
    return np.array(timed(lambda: sgld.sample(
        posterior(), rows, np.zeros(COLUMNS, np.float32), step_size=1e-7, batch_size=batch,
        num_chains=chains, num_draws=100, thin=thin, progress=False, seed=1, **given,
    ))[1:])  # fmt: skip


def rate(folder: str, count: int, rounds: int) -> dict[str, Any]:
    """Compare steps of plain minibatches on files and in memory: microseconds a step, medians."""
    both = {kind: open_rows(folder, kind) for kind in ("npy", "memory")}
    took = paired_rounds({k: partial(steps, v, count, 1, BATCH) for k, v in both.items()}, rounds)
    wall = {kind: float(np.median(v[:, 0])) / count * 1e6 for kind, v in took.items()}
    return {"wall": wall, "ratio": wall["memory"] / wall["npy"]}


def saved(folder: str, count: int, rounds: int) -> dict[str, Any]:
    """Measure checkpoints: seconds each, and their share of a run that writes one every 10 s."""
    rows = open_rows(folder, "npy")

    def written(every: float) -> float:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            given = {"path": Path(place) / "run", "checkpoint_every": every}
            return steps(rows, count, CHAINS, BATCH, **given)[0]

    timers = {"without": partial(written, 1e6), "with": partial(written, SAVED_EVERY)}
    took = paired_rounds(timers, rounds)
    number = np.maximum(1.0, took["without"] / SAVED_EVERY)
    each = max(0.0, float(np.median((took["with"] - took["without"]) / number)))
    return {"each": each, "percent": 100 * each / CHECKPOINT_INTERVAL}


def devices(folder: str, count: int, rounds: int, batch: int) -> dict[str, Any]:
    """Compare the rate on 4 virtual devices with that on one of them."""
    import jax

    rows, count = open_rows(folder, "npy"), max(200, count * BATCH // batch // 4)

    def more(shape: tuple[int, int] | None) -> np.ndarray:
        mesh = None if shape is None else jax.make_mesh(shape, ("chain", "data"))
        run = partial(steps, rows, chains=CHAINS, batch=batch, mesh=mesh)
        # the difference of two lengths is steps alone
        return np.maximum(run(count=2 * count) - run(count=count), 1e-9)

    took = paired_rounds({name: partial(more, shape) for name, shape in MESHES.items()}, rounds)
    ratios = {name: np.median(took["one device"] / v, axis=0) for name, v in took.items()}
    return {
        "us": float(np.median(took["one device"][:, 0])) / count * 1e6,
        "ratios": {name: float(v[0]) for name, v in ratios.items()},
        "ratios cpu": {name: float(v[1]) for name, v in ratios.items()},
    }


# -- the table ---------------------------------------------------------------------------------

PARTS = {"convert": convert, "run": run, "rate": rate, "saved": saved, "devices": devices}


def measure(folder: str, args: argparse.Namespace) -> dict[str, Any]:
    """Print all figures as they come, and return them."""
    table: dict[str, Any] = {"rows": args.rows, "columns": COLUMNS}
    part = partial(fresh_process, __file__, folder=folder)
    lengths = {"count": 400, "rounds": 1} if args.smoke else {"count": STEPS, "rounds": ROUNDS}
    print(f"{args.rows:,} rows x {COLUMNS} columns, {4 * args.rows * (COLUMNS + 1) / 1e6:,.0f} MB")
    for kind in ("parquet", "npy")[: 1 if args.smoke else None] if "convert" in args.only else ():
        table[f"convert {kind}"] = part("convert", kind=kind)
    for kind in ("npy", "memory")[: 1 if args.smoke else None] if "run" in args.only else ():
        if not args.smoke:
            part("run", kind=kind)  # compiles
        table[f"run {kind}"] = part("run", kind=kind)
    for name in ("rate", "saved"):
        if name in args.only:
            table[name] = part(name, **lengths)
    for batch in BATCHES if "devices" in args.only else ():
        four = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
        table[f"devices {batch}"] = part("devices", environment=four, batch=batch, **lengths)
    for name, value in figures(table).items():
        print(f"{name:<40}{value if isinstance(value, str) else format(value, '.6g')}")
    return table


def figures(table: dict[str, Any]) -> dict[str, Figure]:
    """Return every figure of the table by its names."""
    found: dict[str, Figure] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= {f"{name}: {inner}": one for inner, one in figures(value).items()}
        else:
            found[name] = value
    return found


def main() -> None:
    number = lambda text: int(float(text))  # noqa: E731
    options = {
        "--rows": {"type": number, "default": 2_000_000},
        "--folder": {"type": Path, "help": "where the files are made and kept"},
    }
    args = command_line(__doc__, PARTS, options, PARTS)
    if args.smoke:
        args.rows, args.only = 20_000, ["convert", "run", "saved"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "compiled"))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        if not (folder / "rows.parquet").exists():
            make(folder, args.rows)
        table = measure(str(folder), args)
        if args.store:
            store("stream", figures(table))


if __name__ == "__main__":
    main()
