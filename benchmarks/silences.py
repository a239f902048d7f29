"""The longest silences of five sessions at a terminal.

    python benchmarks/silences.py [--source OTHER/src] [--only NAME] [--json FILE]

Each session runs in a process of its own with a pseudo-terminal of 120 columns, as a reader would
start it: softmax regression on the digits and eight schools from Python, `sgld fit` on 50,000 rows
and on 400 rows with 9 events, and `sgld demo`. A silence is a time in which nothing was written:
from the start to the first byte, between two, and from the last to the end. After 100% is the time
from the first "100%" to the end. --source runs the same with another version of the package.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import sgld

COLUMNS = 120
COMPLETE = re.compile(rb"(?<!\d)100%")
STEPS_OF_ONE = re.compile(rb"of 1 steps")
SOFTMAX = """
import jax, jax.numpy as jnp, numpy as np, sgld
from sklearn.datasets import load_digits
X, y = load_digits(return_X_y=True)
X = np.concatenate([X / 16, np.ones((len(X), 1))], 1).astype(np.float32)
def log_likelihood(W, row):
    x, k = row
    return jax.nn.log_softmax(x @ W)[k]
posterior = sgld.Posterior(lambda W: -0.5 * jnp.sum(W**2), log_likelihood)
draws = sgld.sample(posterior, (X, y.astype(np.int32)), jnp.zeros((65, 10)))
print(draws.verdict)
"""
SCHOOLS = """
import jax.numpy as jnp, numpy as np, sgld
y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], np.float32)
s = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], np.float32)
def log_density(p):
    tau = jnp.exp(p["log_tau"])
    theta = p["mu"] + tau * p["eta"]
    prior = -0.5 * (p["mu"] / 5) ** 2 - 0.5 * jnp.sum(p["eta"] ** 2)
    prior += p["log_tau"] - jnp.log1p((tau / 5) ** 2)
    return prior - 0.5 * jnp.sum(((y - theta) / s) ** 2)
init = {"mu": jnp.zeros(()), "log_tau": jnp.zeros(()), "eta": jnp.zeros(8)}
draws = sgld.sample(sgld.Posterior(log_density), None, init)
print(draws.verdict)
"""
SESSIONS = ("softmax on digits", "table of 50,000 rows", "eight schools", "9 events", "demo")


class Heard(NamedTuple):
    """What a session wrote, and when, in seconds since its start."""

    times: list[float]
    text: bytes
    after_complete: float  # seconds from the first "100%" to the end
    cpu: float


def tables(folder: Path) -> None:
    """The two tables that sessions read."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((50_000, 8))
    y = x @ rng.normal(0, 0.5, 8) + rng.standard_normal(50_000)
    _write(folder / "many.csv", x, y)
    x = rng.standard_normal((400, 2))
    y = np.zeros(400)
    y[np.argsort(x[:, 0] + rng.gumbel(size=400))[-9:]] = 1
    _write(folder / "events.csv", x, y)


def _write(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    names = [f"x{i}" for i in range(x.shape[1])]
    table = np.column_stack([x, y])
    np.savetxt(path, table, "%.7g", delimiter=",", header=",".join([*names, "y"]), comments="")


def command(name: str, folder: Path) -> list[str]:
    """What a session runs."""
    shell = [sys.executable, "-m", "sgld"]
    run = ["--out", str(folder / "run"), "--overwrite"]
    if name == "softmax on digits":
        return [sys.executable, "-c", SOFTMAX]
    if name == "eight schools":
        return [sys.executable, "-c", SCHOOLS]
    if name == "demo":
        return [*shell, "demo", *run]
    if name == "9 events":
        table = folder / "events.csv"
        return [*shell, "fit", str(table), "y ~ x0 + x1", "--family", "bernoulli", *run]
    predictors = " + ".join(f"x{i}" for i in range(8))
    return [*shell, "fit", str(folder / "many.csv"), f"y ~ {predictors}", *run]


def heard(arguments: list[str], source: Path) -> Heard:
    """Run a session under a pseudo-terminal, and note when it wrote."""
    import fcntl
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    drop = ("JAX_COMPILATION", "COLUMNS", "LINES")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    environment |= {"PYTHONPATH": str(source), "TERM": "xterm-256color"}
    environment["SGLD_COMPILATION_CACHE"] = "off"  # every session compiles, as a first one does
    began = time.perf_counter()
    process = subprocess.Popen(
        arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    times, text, complete = [0.0], b"", None
    while True:
        ready, _, _ = select.select([ours], [], [], 0.5)
        if not ready and process.poll() is not None:
            break
        if not ready:
            continue
        try:
            written = os.read(ours, 65536)
        except OSError:  # the other end was closed
            break
        if not written:
            break
        times.append(time.perf_counter() - began)
        text += written
        if complete is None and COMPLETE.search(text):
            complete = times[-1]
    _, status, used = os.wait4(process.pid, 0)
    times.append(time.perf_counter() - began)
    if status:
        raise RuntimeError(text.decode(errors="replace"))
    after = 0.0 if complete is None else times[-1] - complete
    return Heard(times, text, after, used.ru_utime + used.ru_stime)


def row(name: str, found: Heard) -> dict[str, float]:
    """The figures of a session."""
    gaps = np.diff(found.times)
    longest = np.sort(gaps)[::-1][:3]
    return {
        "seconds": found.times[-1],
        "cpu": found.cpu,
        "first": float(gaps[0]),
        "longest": float(longest[0]),
        "second": float(longest[1]),
        "third": float(longest[2]),
        "silent": float(gaps[gaps > 1].sum() / found.times[-1]),
        "after 100%": found.after_complete,
        "of 1 steps": len(STEPS_OF_ONE.findall(found.text)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=Path(sgld.__file__).resolve().parents[1])
    parser.add_argument("--only", choices=SESSIONS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="a folder for what the sessions wrote")
    ask = parser.parse_args()
    rows = {}
    print(
        f"{'':22s}{'whole':>8s}{'to 1st':>8s}{'longest silences':>22s}{'silent':>8s}{'after 100%':>12s}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables(folder)
        for session in SESSIONS if ask.only is None else (ask.only,):
            found = heard(command(session, folder), ask.source)
            r = rows[session] = row(session, found)
            if ask.keep is not None:
                ask.keep.mkdir(parents=True, exist_ok=True)
                (ask.keep / f"{session}.txt").write_bytes(found.text)
            print(
                f"{session:22s}{r['seconds']:6.1f} s{r['first']:6.1f} s"
                f"{r['longest']:10.1f}{r['second']:6.1f}{r['third']:6.1f}{100 * r['silent']:7.0f}%"
                f"{r['after 100%']:10.1f} s", flush=True,
            )  # fmt: skip
    if ask.json:
        ask.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
