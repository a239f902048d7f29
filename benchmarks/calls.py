"""Measure what calls take: CPU seconds, compiled functions, silences, and what the plan predicted.

    python benchmarks/calls.py --only sessions        five sessions as a reader starts them
    python benchmarks/calls.py --only predicted       ten problems: what the plan predicted, and what was taken
    python benchmarks/calls.py --only growth          default runs by rows, columns and influential rows
    python benchmarks/calls.py --only warm            CPU seconds of `sgld demo` from a warm cache, over the least
    ... --source PATH                                 with the package of another tree

Each case runs in a process of its own, which compiles everything, once with progress shown and once again.

first, second  CPU seconds on all cores of the first call, compiling included, and of the second
compiled       functions that XLA compiled in the first call
to 1st         seconds from the start of the process to the first byte that the call writes
silence        the longest time in which nothing was written, from the start of the process to the end
after 100%     seconds from the first "100%" to the end
predicted      CPU seconds of sampling and verdict, by the plan; `taken` is a later call with the plan
               given, so that nothing is tuned; `each` is per gradient, taken over predicted
MiB            peak resident memory, predicted and taken
ratio          seconds of the second call over those of find_map + laplace, on their second call too
sd             largest error of an sd, as a ratio to the sds of `laplace(centre="mean")`
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import resource
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sgld
from harness import Table, command_line, fresh_process, package_path, store, timed
from problems import PROBLEMS, STRUCTURED
from workloads import logistic

PRIOR_SD = 2.5
COMPILED = "/jax/core/compile/backend_compile_duration"
MAX_LAPLACE_COLUMNS = 1000
PREDICTED = (
    "gauss50", "logistic_small", "linear10000", "poisson", "breast_cancer", "eight_schools_noncentred",
    "softmax", "gp_marginal", "radon", "lasso_many",
)  # fmt: skip
SESSIONS = (
    "softmax on digits", "table of 50,000 rows", "eight schools", "9 events", "demo", "100,000 x 50",
    "three parameters",
)  # fmt: skip
LEAST = """
import jax, pathlib, sgld
from pyarrow import csv
jax.device_put(0.0).block_until_ready()
csv.read_csv(pathlib.Path(sgld.__file__).parent / "data" / "bundled" / "randhie.csv")
"""
WARM = {  # commands that find what they compile in a cache; the second is the least that one can cost
    "demo": ["-m", "sgld", "demo", "--out", "run", "--overwrite", "--quiet"],
    "import jax, read the file": ["-c", LEAST],
}
GROWTH = (
    *(f"{N} x 20" for N in (10**4, 10**5, 10**6, 4 * 10**6)),
    *(f"20000 x {d}" for d in (2, 10, 50, 200, 500, 1000, 2000)),
    "normal", "log-normal 1", "log-normal 2", "log-normal 2.5", "log-normal 3", "Cauchy", "level of 1 row",
    "level of 3 rows", "3 positives", "log-normal 3 in 1000000", "level of 1 row in 1000000",
)  # fmt: skip


class Model(NamedTuple):
    posterior: Any
    data: Any
    init: Any

    def sample(self, **given: Any) -> sgld.Draws:
        return sgld.sample(*self, **given)


# -- the cases -------------------------------------------------------------------------------


def softmax_on_digits() -> Model:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = np.concatenate([X / 16, np.ones((len(X), 1))], 1).astype(np.float32)
    log_likelihood = lambda W, row: jax.nn.log_softmax(row[0] @ W)[row[1]]  # noqa: E731
    posterior = sgld.Posterior(lambda W: -0.5 * jnp.sum(W**2), log_likelihood)
    return Model(posterior, (X, y.astype(np.int32)), jnp.zeros((65, 10)))


def of_growth(name: str) -> Model:
    """Return a regression: a logistic one of N rows and d columns, or one with extreme rows."""
    kind, _, count = name.partition(" in ")
    size = [int(part) for part in name.split(" x ")] if " x " in name else [int(count or 10**5), 4]
    rng = np.random.default_rng(len(size))
    X = rng.standard_normal(size, np.float32)
    X[:, 0] = 1
    b = (
        np.array([-0.5, 0.5, -0.3, 0.4])
        if size[1] == 4
        else rng.standard_normal(size[1]) / size[1] ** 0.5
    )
    if kind.startswith("level"):
        X[:, 3] = 0
        X[rng.choice(len(X), int(kind.split()[2]), replace=False), 3] = 1
    elif kind.startswith("log-normal"):
        X[:, 3] = np.exp(float(kind.split()[1]) * X[:, 3])
    elif kind == "Cauchy":
        X[:, 3] = rng.standard_cauchy(len(X))
    binary = " x " in name or kind == "3 positives" or kind.startswith("level")
    eta = X.astype(np.float64) @ b
    y = eta + (rng.logistic(size=len(X)) if binary else rng.standard_normal(len(X)))
    if kind == "3 positives":
        y = np.isin(np.arange(len(X)), rng.choice(len(X), 3, replace=False)) - 0.5
    y = (y > 0 if binary else y).astype(np.float32)

    def log_likelihood(b: Any, row: Any) -> Any:
        eta = row[0] @ b
        return row[1] * eta - jax.nn.softplus(eta) if binary else -0.5 * (row[1] - eta) ** 2

    posterior = sgld.Posterior(lambda b: -0.5 * jnp.sum((b / PRIOR_SD) ** 2), log_likelihood)
    return Model(posterior, (X, y), jnp.zeros(X.shape[1]))


def shell(*words: str) -> Callable[[], None]:
    """Return a call of the command line in this process."""

    def call() -> None:
        sys.argv = ["sgld", *words, "--out", "run", "--overwrite"]
        with contextlib.suppress(SystemExit):
            runpy.run_module("sgld", run_name="__main__")

    return call


def fit_of_table(rows: int, columns: int, events: int | None = None) -> Callable[[], None]:
    """Return a call of `sgld fit` on a table with a numeric outcome, or with so many events."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((rows, columns))
    y = x @ rng.normal(0, 0.5, columns) + rng.standard_normal(rows)
    if events is not None:
        y = (np.argsort(np.argsort(-y)) < events).astype(float)
    names = [f"x{i}" for i in range(columns)]
    header = ",".join([*names, "y"])
    np.savetxt("t.csv", np.column_stack([x, y]), "%.7g", delimiter=",", header=header, comments="")
    family = [] if events is None else ["--family", "bernoulli"]
    return shell("fit", "t.csv", f"y ~ {' + '.join(names)}", *family)


def case(name: str) -> Model | Callable[[], None]:
    """Return the model, or the command, of a case."""
    if name in GROWTH or name == "500 x 2":
        return of_growth(name)
    if name in PROBLEMS | STRUCTURED or name == "eight schools":
        problem = (PROBLEMS | STRUCTURED)[
            name.replace("eight schools", "eight_schools_noncentred")
        ]()
        return Model(problem.posterior, problem.data, problem.init)
    if name in ("100,000 x 50", "three parameters"):
        work = logistic(100_000) if name == "100,000 x 50" else logistic(500, 3)
        return Model(work.posterior, work.data, work.init)
    if name == "softmax on digits":
        return softmax_on_digits()
    if name == "demo":
        return shell("demo")
    return fit_of_table(400, 2, events=9) if name == "9 events" else fit_of_table(50_000, 8)


# -- one case, in its own process ------------------------------------------------------------


class Terminal(io.StringIO):
    """A standard error that claims to be a terminal, and records when it was written to."""

    def __init__(self, began: float) -> None:
        super().__init__()
        self.times, self.complete = [began], 0.0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.times.append(time.time())
        if not self.complete and re.search(r"(?<!\d)100%", text):
            self.complete = time.time()
        return len(text)


def measured(name: str, began: float) -> dict[str, Any]:
    """Return everything that a row needs; `began` is when the process was started."""
    compiled: list[float] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(seconds) if event == COMPILED else None
    )
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        found = case(name)
        call = found.sample if isinstance(found, Model) else found
        terminal = Terminal(began)
        with contextlib.redirect_stderr(terminal), contextlib.redirect_stdout(terminal):
            draws, _, first = timed(call)
            ended, count = time.time(), len(compiled)
            _, _, second = timed(call)
    times = np.array([t for t in terminal.times if t <= ended] + [ended])
    row = {
        "first": first, "second": second, "compiled": count, "to 1st": times[1] - began,
        "silence": np.diff(times).max(),
        "after 100%": ended - terminal.complete if terminal.complete else None,
    }  # fmt: skip
    return row if draws is None else row | of_draws(found, draws)


def of_draws(model: Model, draws: sgld.Draws) -> dict[str, Any]:
    """Return what the plan predicted, what was taken, and a comparison with the Gaussian."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    predicted, setup = draws.plan.predicted, draws.plan.setup
    again = lambda: model.sample(  # noqa: E731
        progress=False, **{**draws.plan.arguments(), "num_draws": draws.num_draws}
    )
    again()
    taken = timed(again)[2]
    more = draws.info["num_steps"] / setup.steps()
    row = {
        "steps": draws.info["num_steps"], "word": draws.verdict.word, "gradients": predicted.gradients,
        "predicted": predicted.seconds, "taken": taken, "each": taken / predicted.seconds / more,
        "MiB": predicted.bytes / 2**20, "MiB taken": peak,
    }  # fmt: skip
    if len(draws.names) <= MAX_LAPLACE_COLUMNS and model.data is not None:
        with contextlib.suppress(sgld.errors.SGLDError):
            gaussian = lambda: sgld.laplace(*model[:2], sgld.find_map(*model), centre="mean")  # noqa: E731
            ratio = np.ravel(draws.sd()) / np.ravel(gaussian().sd())
            row["sd"] = float(ratio[np.argmax(np.abs(ratio - 1))])
            row["ratio"] = row["taken"] / timed(gaussian)[2]
    return row


def warm(args: argparse.Namespace, environment: dict[str, str | None]) -> list[str]:
    """Print CPU seconds of commands that find what they compile in a cache."""
    table, found = Table(28, {"CPU s": ".2f"}), []
    variables = {"PYTHONPATH": package_path(), **environment}
    with tempfile.TemporaryDirectory() as folder:
        variables["JAX_COMPILATION_CACHE_DIR"] = folder
        variables["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        env = {k: v for k, v in {**os.environ, **variables}.items() if v is not None}
        for name, words in list(WARM.items())[1 if args.smoke else 0 :]:
            for _ in range(2):  # the first call fills the cache
                before = os.times()
                command = [sys.executable, *words]
                subprocess.run(command, env=env, cwd=folder, check=True, capture_output=True)
                now = os.times()
                cpu = now.children_user - before.children_user
                cpu += now.children_system - before.children_system
            table.row(name, cpu)
            found.append(cpu)
    print(f"demo: {found[0] / found[-1]:.1f} times the least")
    return table.lines


TABLES = {"sessions": SESSIONS, "predicted": PREDICTED, "growth": GROWTH, "warm": tuple(WARM)}
FORMATS = {
    "first": ".1f", "second": ".1f", "compiled": "d", "to 1st": ".1f", "silence": ".1f", "after 100%": ".1f",
    "gradients": ".2g", "predicted": ".2f", "taken": ".2f", "each": ".2f", "MiB": ".0f", "MiB taken": ".0f",
    "ratio": ".1f", "steps": "d", "sd": ".2f",
}  # fmt: skip
COLUMNS = {
    "sessions": list(FORMATS)[:6],
    "predicted": list(FORMATS)[6:12],
    "growth": ["first", "second", "ratio", "steps", "sd"],
}


def main() -> None:
    options = {
        "--limit": {"type": float, "default": 600.0, "help": "seconds of a case"},
        "--source": {"type": Path, "help": "the package of another tree"},
    }
    args = command_line(__doc__, TABLES, options, parts={"measured": measured})
    environment: dict[str, str | None] = {"SGLD_COMPILATION_CACHE": "off"}
    if not args.smoke:
        environment["JAX_COMPILATION_CACHE_DIR"] = None
    if args.source is not None:
        environment["PYTHONPATH"] = str(args.source)
    for which in ["sessions", "growth", "warm"] if args.smoke else args.only:
        if which == "warm":
            lines = warm(args, environment)
            if args.store:
                store("calls", {which: lines})
            continue
        table = Table(28, {column: FORMATS[column] for column in COLUMNS[which]})
        smoke = {"sessions": ["9 events"], "growth": ["500 x 2"]}
        for name in smoke[which] if args.smoke else TABLES[which]:
            try:
                row = fresh_process(
                    __file__, "measured", environment=environment, timeout=args.limit, name=name,
                    began=time.time(),
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                row = {"word": f"stopped after {args.limit:.0f} s"}
            cells = (row.get(column) for column in COLUMNS[which])
            table.row(name, *cells, note=row.get("word", ""))
            if args.store:
                store("calls", {f"{which}: {name}": json.dumps(row)})


if __name__ == "__main__":
    main()
