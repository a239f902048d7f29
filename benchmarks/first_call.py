"""What a first call costs: compiled functions and CPU seconds, with a cold and a warm cache.

    python benchmarks/first_call.py [--source OTHER/src] [--only NAME] [--names] [--json FILE]

Three sessions, each in a fresh process: a model of three parameters, logistic regression (100,000
rows, 50 columns), and `sgld demo`, report included. Compiled functions are XLA's compilations of the
process, those found in the persistent cache not counted; CPU seconds are the process's own, user and
system. The last session imports JAX and reads the demo's file, the least a command can cost, over which
the demo's warm call is given. --names lists what was compiled; --source runs another version.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import sgld

MODEL = """
import jax.numpy as jnp, numpy as np, sgld
rng = np.random.default_rng(0)
x = rng.standard_normal((500, 2)).astype(np.float32)
y = (x @ np.array([1.0, -0.5]) + 0.3 + rng.standard_normal(500)).astype(np.float32)
posterior = sgld.Posterior(
    lambda p: -0.5 * jnp.sum(p**2) / 100,
    lambda p, row: -0.5 * (row[1] - p[0] - row[0] @ p[1:]) ** 2,
)
draws = sgld.sample(posterior, (x, y), jnp.zeros(3), progress=False)
draws.summary()
"""
LOGISTIC = """
import jax, jax.numpy as jnp, numpy as np, sgld
rng = np.random.default_rng(0)
X = rng.standard_normal((100_000, 50), np.float32)
y = (rng.random(100_000) < 1 / (1 + np.exp(-X @ rng.normal(0, 0.5, 50)))).astype(np.float32)
posterior = sgld.Posterior(
    lambda b: -0.05 * jnp.sum(b**2),
    lambda b, row: row[1] * (row[0] @ b) - jax.nn.softplus(row[0] @ b),
)
draws = sgld.sample(posterior, (X, y), jnp.zeros(50), progress=False)
draws.summary()
"""
DEMO = """
import sys
from sgld.interfaces.cli import main
sys.argv = ["sgld", "demo", "--out", "{out}/run", "--overwrite", "--quiet"]
main()
"""
LEAST = """
import jax
jax.device_put(0.0).block_until_ready()
from sgld.data.tables import bundled, read_table
read_table(bundled("randhie"))
"""
SESSIONS = {"three parameters": MODEL, "100,000 x 50": LOGISTIC, "demo": DEMO, "least": LEAST}
COMPILED = re.compile(r"Finished XLA compilation of (?:jit\((.*?)\)|(\S+)) in")
HIT = re.compile(r"Persistent compilation cache hit for '(?:jit_)?(.*?)'")
TOLD = """
import atexit, json, logging, resource, sys
import os
class Told(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
lines = []
for name in ("jax._src.dispatch", "jax._src.compiler", "jax._src.interpreters.pxla"):
    logger = logging.getLogger(name)
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Told())
    logger.propagate = False
def tell():
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open(os.environ["TOLD"], "w") as file:
        json.dump({"cpu": used.ru_utime + used.ru_stime, "lines": lines}, file)
atexit.register(tell)
"""


def session(name: str, out: Path, cache: Path | None, source: Path) -> dict[str, Any]:
    """CPU seconds and compiled functions of a session in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")}
    environment["PYTHONPATH"] = str(source)
    environment["TOLD"] = str(out / "told.json")
    environment["SGLD_COMPILATION_CACHE"] = "off"
    if cache is not None:
        environment["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        environment["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    code = TOLD + SESSIONS[name].replace("{out}", str(out))
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    told = json.loads((out / "told.json").read_text())
    found = Counter(m[1] or m[2] for line in told["lines"] if (m := COMPILED.search(line)))
    hits = Counter(m[1] for line in told["lines"] if (m := HIT.search(line)))
    return {"cpu": told["cpu"], "compiled": found, "hits": hits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=Path(sgld.__file__).resolve().parents[1])
    parser.add_argument("--only", choices=list(SESSIONS))
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--json", type=Path)
    ask = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in SESSIONS if ask.only is None else (ask.only,):
            cache = Path(folder) / "cache"
            for how, where in (("no cache", None), ("cold", cache), ("warm", cache)):
                found = session(name, Path(folder), where, ask.source)
                rows[f"{name}, {how}"] = found
                total, hits = sum(found["compiled"].values()), sum(found["hits"].values())
                print(
                    f"{name:18s}{how:10s}{found['cpu']:7.2f} s{total:5d} compiled{hits:5d} found",
                    flush=True,
                )
                if ask.names:
                    print("   ", dict(found["compiled"].most_common()))
    if ask.only is None:
        ratio = rows["demo, warm"]["cpu"] / rows["least, warm"]["cpu"]
        print(f"the demo from a warm cache: {ratio:.1f} times the least")
    if ask.json:
        ask.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
