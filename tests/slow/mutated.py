"""Run directories that were damaged or forged, thousands of times, at every door.

    python tests/slow/mutated.py [--times 20000] [--seed 0]

Each time a run directory is copied, one thing in it is changed, and one door is opened on it. Damage (flipped
bits, cut, lengthened, exchanged and missing files) must be read to the same content or refused in one sentence.
A forgery (a value or an array replaced and everything sealed anew) is believed by its seals, and must still be
taken or refused in one sentence. Counted: tracebacks, silent changes, code that was run (audit events of
processes and sockets), the longest call, the memory at the end beyond that after the first calls of all doors.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow
import pyarrow.csv
from typer.testing import CliRunner

import sgld
from sgld.core import work
from sgld.core.files import digest_of, read_arrays, read_json, write_arrays, write_json
from sgld.errors import SGLDError, SGLDWarning
from sgld.inference import sink
from sgld.interfaces.cli import app
from sgld.regression import streaming as streamed
from sgld.regression.fit import fit, predict, sandwich_of_run
from sgld.results.run_directory import RunDirectory
from sgld.results.storage import table_of, verify

OF_ROWS = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2), lambda t, y: -0.5 * (y - t[0] - t[1]) ** 2)
POSTERIOR = sgld.Posterior(lambda t: -0.5 * jnp.sum((t - 1) ** 2))
GIVEN = {"step_size": 0.1, "num_draws": 200, "num_chains": 2, "progress": False}
JSON_FILES = ("run.json", "result.json", "confirmation.json", "next.json")
ARRAY_FILES = ("setup.npz", "draws.npz", "checkpoint.npz")
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**30, -1e308, 1e-300, 1e308, "", "x", "x" * 3000, "\x1b]0;owned\x07\n",
    "../../../etc/passwd", "__import__('os').system('true')", [], {}, [[]], [None] * 3, {"": {}}, ["x"] * 500,
    [[[[[[[[[[[[1]]]]]]]]]]]], {"dict": [["a"]]}, {"array": "x"}, "leaf", "1e999", "I(exit())", "y ~ I(x.__class__)",
)  # fmt: skip
RUN_BY_CODE = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "ctypes.dlopen")  # fmt: skip
SHARES = (0.3, 0.25, 0.1, 0.05, 0.15, 0.15)  # of the runs, in the order of DOORS
SLOW = 1.0  # seconds of CPU, or twice what a door takes for its whole run
HUNG = 20  # seconds of the clock


class Stopped(BaseException):
    """In the place of a kill."""


class Hung(BaseException):
    """A door that did not answer."""


def hung(number: int, frame: Any) -> None:
    raise Hung


# -- runs to be damaged ------------------------------------------------------------------------


def make_runs(folder: Path) -> dict[str, Path]:
    """A finished run from Python, with a second verdict, one of a formula, one stopped after two checkpoints, one
    that another is to replace, one of rows in a file, and one of a formula whose design lies on the disk."""
    rng = np.random.default_rng(5)
    x, g = rng.normal(size=120), np.resize(["a", "b", "c"], 120)
    table = pyarrow.table({"x": x, "g": g, "y": 1 + 2 * x + rng.normal(size=120)})
    pyarrow.csv.write_csv(table, folder / "data.csv")
    sgld.sample(POSTERIOR, None, jnp.zeros(2), path=folder / "plain", **GIVEN)
    nuts = sgld.reference(
        POSTERIOR, None, jnp.zeros(2), num_draws=100, num_chains=2, progress=False
    )
    sgld.confirm(folder / "plain", nuts)
    fit(folder / "data.csv", "y ~ center(x) + C(g)", out=folder / "formula", step_size=0.003, num_draws=60,
        num_chains=2, progress=False)  # fmt: skip
    stop(folder / "stopped")
    assert (folder / "stopped" / "checkpoint.npz").exists(), "the run was not stopped"
    shutil.copytree(folder / "plain", folder / "replaced")
    write_json(folder / "replaced/next.json", read_json(folder / "stopped/run.json"))
    os.environ["SGLD_DATA_CACHE"] = str(folder / "cache")
    np.save(folder / "rows.npy", table["y"].to_numpy().astype(np.float32))
    rows = sgld.open(folder / "rows.npy", progress=False)
    sgld.sample(
        OF_ROWS,
        rows,
        jnp.zeros(2),
        path=folder / "rows",
        batch_size=20,
        **{**GIVEN, "step_size": 1e-3},
    )
    with on_disk():
        fit(folder / "data.csv", "y ~ center(x) + C(g)", out=folder / "design", step_size=0.003, num_draws=60,
            num_chains=2, batch_size=20, progress=False)  # fmt: skip
    return {name: folder / name for name in DOORS}


@contextlib.contextmanager
def on_disk() -> Iterator[None]:
    """Tables of any size are larger than memory."""
    large, streamed.MAX_MEMORY_BYTES = streamed.MAX_MEMORY_BYTES, 1
    try:
        yield
    finally:
        streamed.MAX_MEMORY_BYTES = large


def stop(path: Path) -> None:
    """A run with chunks and a checkpoint, as a kill leaves it."""
    write, kept = (
        RunDirectory.write_checkpoint,
        (sink.CHUNK_NUMBERS, sink.MIN_CHUNK_DRAWS, work.PIECE_SECONDS),
    )
    written: list[None] = []

    def write_and_stop(directory: RunDirectory, *given: Any) -> None:
        write(directory, *given)
        written.append(None)
        if len(written) == 2:
            raise Stopped

    RunDirectory.write_checkpoint = write_and_stop  # type: ignore[method-assign]
    sink.CHUNK_NUMBERS, sink.MIN_CHUNK_DRAWS, work.PIECE_SECONDS = 100, 20, 1e-9
    try:
        sgld.sample(
            POSTERIOR,
            None,
            jnp.zeros(2),
            path=path,
            checkpoint_every=0.0,
            **{**GIVEN, "num_draws": 700},
        )
    except Stopped:
        pass
    finally:
        RunDirectory.write_checkpoint = write  # type: ignore[method-assign]
        sink.CHUNK_NUMBERS, sink.MIN_CHUNK_DRAWS, work.PIECE_SECONDS = kept


# -- harm --------------------------------------------------------------------------------------


def files_of(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file())


def damage(path: Path, rng: np.random.Generator) -> str:
    """What a disk or a hand does to one file."""
    files = files_of(path)
    victim = files[rng.integers(len(files))]
    content = bytearray(victim.read_bytes())
    kind, at = int(rng.integers(8)), int(rng.integers(max(1, len(content))))
    if kind == 0 and content:
        content[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del content[at:]
    elif kind == 2:
        content[at : at + 8] = rng.integers(0, 256, 8, dtype=np.uint8).tobytes()
    elif kind == 3:
        content[at:at] = content[: int(rng.integers(1, 200))]
    elif kind == 4:
        content = bytearray(files[rng.integers(len(files))].read_bytes())
    elif kind == 5:
        victim.unlink()
        return f"{victim.name} removed"
    elif kind == 6:
        content = bytearray(rng.integers(0, 256, int(rng.integers(4000)), np.uint8).tobytes())
    elif kind == 7:
        victim.unlink()
        victim.mkdir()
        return f"{victim.name} made a folder"
    victim.write_bytes(bytes(content))
    return f"{victim.name} kind {kind} at {at}"


def forge(path: Path, rng: np.random.Generator) -> str:
    """What somebody does who knows the format: one value, or one array, and all seals anew."""
    names = [n for n in (*JSON_FILES, *ARRAY_FILES) if (path / n).is_file()]
    name = names[rng.integers(len(names))]
    if name in JSON_FILES:
        content = read_json(path / name)
        said = replaced(content, rng)
        write_json(path / name, content)
    else:
        head, arrays = read_arrays(path / name)
        if rng.random() < 0.5 or not arrays:
            said = replaced(head, rng)
        else:
            key = sorted(arrays)[rng.integers(len(arrays))]
            said = other_array(arrays, key, rng)
        write_arrays(path / name, head, arrays)
    seal_again(path)
    return f"{name} {said}"


def replaced(content: Any, rng: np.random.Generator) -> str:
    """One value somewhere below, or a key gone."""
    where, node = "", content
    while True:
        keys = sorted(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return f"{where} was empty"
        key = keys[rng.integers(len(keys))]
        where += f"/{key}"
        if isinstance(node[key], (dict, list)) and node[key] and rng.random() < 0.8:
            node = node[key]
            continue
        if isinstance(node, dict) and rng.random() < 0.15:
            del node[key]
            return f"{where} gone"
        node[key] = json.loads(json.dumps(VALUES[rng.integers(len(VALUES))]))
        return f"{where} = {str(node[key])[:40]!r}"


def other_array(arrays: dict[str, np.ndarray], key: str, rng: np.random.Generator) -> str:
    old = arrays[key]
    others = {
        "empty": np.zeros(0, old.dtype),
        "scalar": np.zeros((), old.dtype),
        "longer": np.concatenate([old.ravel(), old.ravel()]),
        "shorter": old[:1] if old.ndim else old,
        "flat": old.ravel(),
        "whole": old.astype(np.int64) if np.isfinite(np.asarray(old, float)).all() else old * 0,
        "nan": np.full(old.shape, np.nan),
        "huge": np.full(old.shape, 1e308),
        "more axes": old[None, None],
        "bool": old != 0,
        "zeros": np.zeros_like(old),
    }
    if old.dtype.kind == "V":
        return f"{key} left"
    kind = sorted(others)[rng.integers(len(others))]
    arrays[key] = others[kind]
    return f"{key} {kind}"


def seal_again(path: Path) -> None:
    """The manifest of a forged directory, made to agree."""
    if (path / "result.json").is_file():
        result = read_json(path / "result.json")
        if isinstance(result.get("files"), dict):
            for name in ("draws.npz", "summary.json"):
                if (path / name).is_file():
                    result["files"][name] = list(digest_of(path / name))
            write_json(path / "result.json", result)


# -- doors -------------------------------------------------------------------------------------


def said(*arguments: Any) -> str:
    """What a command prints; its sentence as an SGLDError."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code:
        raise SGLDError(result.stderr.strip())
    return result.stdout


def positions(draws: sgld.Draws) -> Any:
    leaves = sgld.results.draws.jax.tree.leaves(draws.position)
    return [np.asarray(leaf).tolist() for leaf in leaves], draws.verdict.to_dict()


def loaded(path: Path) -> Any:
    return positions(sgld.load(path))


def tabled(path: Path) -> Any:
    return table_of(RunDirectory(path))


def verified(path: Path) -> Any:
    return sorted(set(verify(path)) & {"draws.npz"}) and None


def resumed(path: Path) -> Any:
    return positions(sgld.resume(path, POSTERIOR, None, jnp.zeros(2), progress=False))


def resumed_of_rows(path: Path) -> Any:
    rows = sgld.open(path.parent / "rows.npy", progress=False)
    return positions(sgld.resume(path, OF_ROWS, rows, jnp.zeros(2), progress=False))


def streaming(call: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def on(path: Path) -> Any:
        with on_disk():
            return call(path)

    return on


def predicted(path: Path) -> Any:
    return [part.to_pydict() for part in predict(path, path.parent / "data.csv")]


def spread(path: Path) -> Any:
    return positions(sandwich_of_run(path))


def command(*names: str) -> Callable[[Path], Any]:
    def call(path: Path) -> Any:
        text = said(names[0], path, *names[1:])
        return text if names[0] in ("summary",) else None

    return call


DOORS: dict[str, list[tuple[str, int, Callable[[Path], Any]]]] = {
    # of each run: name, how often, call
    "plain": [
        ("load", 30, loaded), ("table", 10, tabled), ("verify", 15, verified), ("summary", 10, command("summary")),
        ("summary --json", 10, command("summary", "--json")), ("report", 1, command("report")), ("resume", 10, resumed),
    ],
    "formula": [
        ("load", 20, loaded), ("predict", 15, predicted), ("summary", 10, command("summary")), ("verify", 10, verified),
        ("resume", 10, command("resume", "--quiet")), ("sandwich", 2, spread),
    ],
    "stopped": [("verify", 30, verified), ("load", 5, loaded), ("resume", 4, resumed)],
    "replaced": [("load", 10, loaded), ("verify", 5, verified), ("summary", 5, command("summary")), ("resume", 2, resumed)],
    "rows": [("load", 20, loaded), ("verify", 10, verified), ("summary", 5, command("summary")), ("resume", 15, resumed_of_rows)],
    "design": [
        ("load", 10, loaded), ("predict", 15, streaming(predicted)), ("verify", 5, verified),
        ("resume", 15, streaming(command("resume", "--quiet"))),
    ],
}  # fmt: skip


def outcome(
    call: Callable[[Path], Any], path: Path, expected: list[Any], forged: bool
) -> tuple[str, str]:
    """How a door answered, and where that is a fault, its text."""
    signal.alarm(HUNG)
    try:
        found = call(path)
    except Hung:
        return "hung", traceback.format_exc()
    except SGLDError as error:
        fault = "\n" in str(error).strip() or not str(error).strip()
        return ("more than a sentence", str(error)) if fault else ("refused", "")
    except Exception:
        return "traceback", traceback.format_exc()
    finally:
        signal.alarm(0)
    if forged:
        return "believed", ""
    # a table that was deleted is made again, or said to be missing
    same = found is None or found in expected
    return ("same", "") if same else ("silent change", str(found)[:300])


def mutate(times: int, seed: int, folder: Path, show: int = 5) -> dict[str, Any]:
    """Damage and forge so many times; what came of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SGLDWarning)  # of a run that another is to replace
        return _mutate(times, seed, folder, show)


def _mutate(times: int, seed: int, folder: Path, show: int) -> dict[str, Any]:
    signal.signal(signal.SIGALRM, hung)
    runs = make_runs(folder)
    shutil.copy(folder / "data.csv", folder / "data0.csv")
    copy, rng = folder / "run", np.random.default_rng(seed)
    expected: dict[tuple[str, str], list[Any]] = {}
    allowed: dict[tuple[str, str], float] = {}
    for run, doors in DOORS.items():
        for door, _, call in doors:
            # without its result a run goes on, to the same draws and the word that it ended with
            for gone in ("nothing", "result.json", "summary.json", "next.json"):
                shutil.copytree(runs[run], copy)
                (copy / gone).unlink(missing_ok=True)
                began = time.process_time()
                with contextlib.suppress(SGLDError):  # of a run that is not finished
                    expected.setdefault((run, door), []).append(call(copy))
                took = time.process_time() - began
                allowed[run, door] = max(allowed.get((run, door), SLOW), 2 * took)
                shutil.rmtree(copy)
    ran: list[str] = []
    watching = [True]
    sys.addaudithook(
        lambda event, _: (watching[0] and event in RUN_BY_CODE and ran.append(event)) or None
    )
    counts: Counter[str] = Counter()
    faults: list[str] = []
    slow: list[str] = []
    longest, before = (0.0, ""), peak()
    for _ in range(times):
        run = list(DOORS)[rng.choice(len(DOORS), p=SHARES)]
        doors = DOORS[run]
        weights = np.array([often for _, often, _ in doors], float)
        door, _, call = doors[rng.choice(len(doors), p=weights / weights.sum())]
        shutil.copytree(runs[run], copy)
        forged = rng.random() < 0.4
        what = forge(copy, rng) if forged else damage(copy, rng)
        began = time.process_time()
        word, fault = outcome(call, copy, expected.get((run, door), []), forged)
        took = time.process_time() - began
        counts[word] += 1
        if fault:
            faults.append(f"{run} {door}, {what}: {word}\n{fault}")
            if len(faults) <= show:
                print(faults[-1], file=sys.stderr, flush=True)
        longest = max(longest, (took, f"{run} {door}, {what}"))
        if took > allowed[run, door]:
            slow.append(f"{run} {door}, {what}: {took:.1f} s")
        shutil.rmtree(copy)
    watching[0] = False
    return {
        **counts,
        "faults": faults,
        "slow": slow,  # no fault where the machine has other work
        "code run": len(ran),
        "longest": longest,
        "memory": peak() - before,
    }


def peak() -> float:
    """MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        found = mutate(given.times, given.seed, Path(folder), show=40)
    seconds, what = found["longest"]
    words = (
        "same",
        "refused",
        "believed",
        "traceback",
        "more than a sentence",
        "silent change",
        "hung",
    )
    print(", ".join(f"{found.get(word, 0):,} {word}" for word in words))
    print(f"{len(found['slow'])} slow", *found["slow"][:40], sep="\n  ")
    print(f"code run {found['code run']}; longest {seconds:.2f} s CPU ({what})")
    print(
        f"memory {found['memory']:.0f} MiB beyond that of the doors' first calls; {time.time() - began:.0f} s"
    )
    sys.exit(bool(found["faults"] or found["slow"] or found["code run"]))


if __name__ == "__main__":
    main()
