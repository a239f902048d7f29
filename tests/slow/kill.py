"""Runs that are killed at random instants, gone on with, and killed again: the draws of an uninterrupted run.

    python tests/slow/kill.py [--times 100] [--seed 0] [--what memory|streamed|formula|conversion|design]

`streamed`: the rows lie in a file, which each process opens, converting it where that was not ended.
`formula`: as `sgld fit` of a folder of Parquet, whose design each process makes on the disk where that was not ended.
`conversion`, `design`: nothing but that, of a larger file or folder; counted are those whose rows have the hash of the
whole.
Every run is a process of its own (a fork of one that has imported everything and computed nothing), ended by
SIGKILL after a random time; so is every second one that goes on with it. Counted: runs whose draws have the
SHA-256 of the whole run's.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import sgld
from sgld.core import files  # imported before the processes part
from sgld.data import cache
from sgld.data.table_source import TableSource
from sgld.inference import sample, sink
from sgld.regression import streaming
from sgld.regression.fit import fit, resume
from sgld.results import codec, storage  # noqa: F401

SEED, DRAWS = 3, 4000


def posterior() -> sgld.Posterior:
    import jax.numpy as jnp

    return sgld.Posterior(
        lambda t: -0.5 * jnp.sum(t**2) / 100, lambda t, x: -0.5 * jnp.sum((x - t) ** 2)
    )


ROWS = 400_000  # of a conversion
STREAMED: list[Path] = []  # the folder of the file, where rows are read from one
FORMULA: list[str] = []  # of a design on the disk


def arguments(path: Path) -> tuple:
    data = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    if STREAMED:
        file = STREAMED[0] / "rows.npy"
        data = sgld.open(file, cache=STREAMED[0] / f"cache-{path.name}", seed=SEED, progress=False)
    return posterior(), data, np.zeros(3, np.float32)


def written(folder: Path, what: str) -> None:
    """The file, or the folder of parts, that is read."""
    rows = ROWS if what in ("conversion", "design") else 400
    data = np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)
    if what not in ("formula", "design"):
        np.save(folder / "rows.npy", data)
        return
    import pyarrow as pa
    from pyarrow import parquet

    (folder / "parts").mkdir()
    town = np.array(["inner", "outer", "rural"])[np.arange(rows) % 3]
    table = pa.table({"x": data[:, 0], "y": data[:, 1], "town": town})
    for k, first in enumerate(range(0, rows, rows // 4)):
        parquet.write_table(table.slice(first, rows // 4), folder / "parts" / f"{k}.parquet")


def as_formula(path: Path) -> None:
    """Every table is large enough for a design on the disk, in a cache of the run's own."""
    os.environ["SGLD_DATA_CACHE"] = str(STREAMED[0] / f"cache-{path.name}")
    streaming.MAX_MEMORY_BYTES = 1


def convert(path: Path) -> None:
    """The larger data, converted; nobody else is at work on it, so that nothing is too young to be removed."""
    cache.STALE_AFTER_SECONDS = -1.0
    if not FORMULA:
        sgld.open(STREAMED[0] / "rows.npy", cache=path / "cache", seed=SEED, progress=False)
        return
    columns = {"weights": None, "trials": None, "missing": "drop"}
    source = TableSource.of(STREAMED[0] / "parts")
    design = streaming.Streamed([source], FORMULA[0], "gaussian", columns, SEED, path / "cache")
    design.kept({**design.estimate(), "prior": None})


def begin(path: Path) -> None:
    """The run; a step by hand, so that its time goes into draws and their files."""
    if FORMULA:
        as_formula(path)
        fit(
            STREAMED[0] / "parts", FORMULA[0], out=path, step_size=1e-4, num_draws=DRAWS, num_chains=3, batch_size=20,
            seed=SEED, checkpoint_every=0.02, progress=False,
        )  # fmt: skip
        return
    sgld.sample(
        *arguments(path), step_size=1e-4, num_draws=DRAWS, num_chains=3, thin=5, batch_size=20, seed=SEED,
        path=path, checkpoint_every=0.02, progress=False,
    )  # fmt: skip


def swept(path: Path) -> None:
    """As by the next conversion, whatever it is of."""
    cache.STALE_AFTER_SECONDS = -1.0
    with cache.Cache(path / "cache").scratch():
        pass


def go_on(path: Path) -> None:
    if not (path / "run.json").exists():
        begin(path)
        return
    if FORMULA:
        as_formula(path)
        resume(path, progress=False, checkpoint_every=0.02)
        return
    sgld.resume(path, *arguments(path), progress=False, checkpoint_every=0.02)


def apart(work: Callable[[], None], seconds: float | None) -> bool:
    """Do some work in a process of its own, killed after some time; whether it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            sink.CHUNK_NUMBERS, sink.MIN_CHUNK_DRAWS = 3000, 100
            work()
            status = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            status = 1
        os._exit(status)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a run ended with an error of its own")
    return os.WIFEXITED(status)


def digest(path: Path) -> str:
    """Of draws.npz' arrays, without JAX: this process computes nothing."""
    head, arrays = files.read_arrays(path / "draws.npz")
    del head
    content = hashlib.sha256()
    for name in sorted(arrays):
        content.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return content.hexdigest()


def kill(times: int, seed: int, folder: Path) -> tuple[int, int, list[str]]:
    """How many came to the same draws, how many kills hit a process at work, what was left behind."""
    rng, same, hit = np.random.default_rng(seed), 0, 0
    apart(lambda: begin(folder / "first"), None)  # compiles into the cache
    began = time.monotonic()
    apart(lambda: begin(folder / "whole"), None)
    whole, took = digest(folder / "whole"), time.monotonic() - began
    left: list[str] = []
    for number in range(times):
        path = folder / f"run{number}"
        ended = apart(lambda path=path: begin(path), float(rng.uniform(0, took)))
        hit += not ended
        while not ended and rng.random() < 0.5:
            ended = apart(lambda path=path: go_on(path), float(rng.uniform(0, took)))
            hit += not ended
        apart(lambda path=path: go_on(path), None)
        same += digest(path) == whole
        left += [p.name for p in path.iterdir() if p.name.startswith(files.SCRATCH_PREFIX)]
    return same, hit, left


def kill_conversions(times: int, seed: int, folder: Path) -> tuple[int, int, list[str]]:
    """As `kill`, of conversions: the folder of rows is whole or not there, and the next call makes it."""
    rng, same, hit = np.random.default_rng(seed), 0, 0

    def found(path: Path) -> list[str]:
        parts = sorted(p for p in path.rglob("*.npy") if p.is_file())
        return [hashlib.sha256(p.read_bytes()).hexdigest() for p in parts]

    began = time.monotonic()
    apart(lambda: convert(folder / "whole"), None)
    whole, took = found(folder / "whole"), time.monotonic() - began
    left: list[str] = []
    for number in range(times):
        path = folder / f"run{number}"
        ended = apart(lambda path=path: convert(path), float(rng.uniform(0, took)))
        hit += not ended
        apart(lambda path=path: convert(path), None)
        same += found(path) == whole
        apart(lambda path=path: swept(path), None)
        left += [str(p.relative_to(path)) for p in path.rglob(f"{files.SCRATCH_PREFIX}*")]
    return same, hit, left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    kinds = ("memory", "streamed", "formula", "conversion", "design")
    parser.add_argument("--what", choices=kinds, default="memory")
    given = parser.parse_args()
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        work = kill_conversions if given.what in ("conversion", "design") else kill
        if given.what != "memory":
            STREAMED.append(Path(folder))
            written(Path(folder), given.what)
        if given.what in ("formula", "design"):
            FORMULA.append("y ~ x + town")
        same, hit, left = work(given.times, given.seed, Path(folder))
    print(
        f"{given.what}: {same}/{given.times} with the draws or rows of the whole; {hit} kills hit a process at work; "
        f"{len(left)} scratch files left; {time.time() - began:.0f} s"
    )
    for name in left[:5]:
        print(f"left: {name}")
    sys.exit(same < given.times or bool(left))


if __name__ == "__main__":
    assert sample is not None
    main()
