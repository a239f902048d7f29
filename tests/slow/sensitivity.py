"""What depends on the numbers that decide: each is halved and doubled, and what changes is printed.

    python tests/slow/sensitivity.py                       all constants, all of SAMPLE
    python tests/slow/sensitivity.py --seconds 600         the same, as far as the time goes
    python tests/slow/sensitivity.py --only MAX_GAUSSIAN_NU,MODE_SEARCH_SDS --problems log_gamma,tied_means
    python tests/slow/sensitivity.py --show                the stored table, nothing run

A constant is a number, or a tuple of numbers, that a module of sgld gives a name in capitals. It is found
by that name (module.NAME where several share it), so that the table outlives a move. A loader puts a look-up in the
place of every reading of it: that tells which constants a run reads at all, and which of them while a
function is compiled (then compiled functions are forgotten before it is varied). Those read while a
module is imported (defaults of arguments) are varied in a process of their own.

A share above a half is varied in its distance from 1: .9 to .8 and .95. Printed is what differs from the
run with the value as it stands: choices, words, numbers that moved by more than 2%, and the errors where
there is a truth. What is stored in sensitivity.json is kept for constants that are not asked for.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STORED = HERE / "sensitivity.json"
PACKAGE = Path(os.environ.get("SGLD_SOURCE", ROOT / "src")) / "sgld"
sys.path.append(str(ROOT / "benchmarks"))  # the reference problems
ELSEWHERE = {
    "cli",
    "gallery",
    "report",
    "networks",
    "torch",
    "testing",
    "diffusion",
}  # decide no run
MOVED = 0.02  # a number that moved by less is no change

# numbers that decide nothing: streams of a seed, sizes of pieces and buffers, how often to look up
INDIFFERENT = {
    "OPTIMISATION_STREAM", "PRIOR_START_STREAM", "REFERENCE_STREAMS", "STARTS_STREAM",
    "TUNING_STREAM", "PHASE_STREAM", "MAX_CALL_STEPS", "MAX_CALL_TRANSITIONS", "BLOCK_NUMBERS",
    "HASH_BLOCK_BYTES", "MAX_READ_NUMBERS", "MAX_BLOCK_NUMBERS", "MAX_NEW_NUMBERS",
    "MAX_CALL_NUMBERS", "MAX_DRAW_NUMBERS", "MAX_EXACT_NUMBERS", "MAX_GLANCE_NUMBERS",
    "MAX_PHASE_NUMBERS", "MAX_TAIL_NUMBERS", "GRADIENT_NUMBERS", "CHECKED_NUMBERS",
    "MAX_FLOAT64_NUMBERS", "MAX_POINT_NUMBERS", "MAX_WHOLE_NUMBERS", "MIN_FLOATS_PER_UNIT",
    "MAX_VALLEY_SECONDS", "PIECE_SECONDS", "GRADIENT_GROUP", "ENTRIES_AT_ONCE", "CELLS_AT_ONCE",
    "REPORTED_NUMBERS", "ROW_GRADIENT_NUMBERS", "PHASE_PIECE_NUMBERS", "MAX_PIECE_NUMBERS",
    "FILE_ROWS_AT_ONCE", "MAX_SCAN_NUMBERS", "MAX_PATH_NUMBERS", "ORDER_BLOCK_STEPS",
    "MAX_BLOCK_STEPS", "MAX_BLOCK_NORMALS", "MAX_RUN_GROWTH", "MAX_PIECE_GROWTH",
    "MAX_ENTRY_NUMBERS", "MAX_SLOT_NUMBERS", "MAX_LONG_SLOTS", "MAX_LONG_NUMBERS", "CHUNK_NUMBERS",
    "CHUNK_CELLS", "PREDICTED_ROWS", "PLATE_ROWS", "HALF_LOG_2PI", "MAX_STEP", "MAX_TABLE_BYTES",
    "MAX_JACOBIAN", "_ORDER_STREAM", "MAX_LIVE_PARAMETERS", "MAX_NAMED_COLUMNS", "FIRST_ROWS",
    "MAX_QUERY_CHARS", "MAX_NAMED_PARAMETERS", "MAX_WHOLE_ROWS",
}  # fmt: skip

# name: arguments of sgld.sample; small problems, one for each way through the tuner and the verdict.
# CONSTANTS are set for that problem, so that a small one goes where large ones go.
CONSTANTS = "constants"
HAND = {"burn_in": 50, "thin": 5}
SAMPLE: dict[str, dict[str, Any]] = {
    "linear200": {},
    "rand_poisson": {},
    "banana_mild": {},
    "log_gamma": {},
    "beta_rare": {},
    "student_density": {"max_steps": 3000},
    "logistic_small": {},
    "tied_means": {"max_steps": 3000},
    "eight_schools_noncentred": {"max_steps": 3000},
    "linear200, 40 draws": {"num_draws": 40},
    "linear200, ess": {"num_draws": 50, "ess": 2000},
    "log_gamma, step .12": {"step_size": 0.12, **HAND},
    "log_gamma, step .2": {"step_size": 0.2, **HAND},
    "logistic_small, step by hand": {"step_size": 2e-3, **HAND},
    "logistic_small, RMSprop": {"preconditioner": "RMSprop", "max_steps": 5000},
    "rand_poisson, low rank": {CONSTANTS: {"MAX_NEWTON_DIM": 4}},
    "eight_schools_noncentred, optimised": {
        "max_steps": 2000,
        CONSTANTS: {"MAX_GUIDED_DIM": 2},
    },
}
QUICK = (
    "linear200",
    "rand_poisson",
    "log_gamma",
    "logistic_small",
    "log_gamma, step .2",
    "linear200, 40 draws",
)

Value = Any  # a number or a tuple of numbers


# -- the constants ---------------------------------------------------------------------------


def number(node: ast.expr) -> Value:
    """The value of an expression of numbers alone, as 10**5 or (1, 2); ValueError otherwise."""
    allowed = (ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)
    if not all(isinstance(part, allowed) for part in ast.walk(node)):
        raise ValueError
    value = eval(compile(ast.Expression(node), "constant", "eval"))
    parts = value if isinstance(value, tuple) else (value,)
    if not parts or any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in parts):
        raise ValueError
    return value


def of_module(tree: ast.Module) -> Iterator[tuple[str, Value]]:
    """NAME = number and NAME, OTHER = number, number, at the top of a module."""
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        names, value = statement.targets[0], statement.value
        if isinstance(names, ast.Name):
            pairs = [(names, value)]
        elif isinstance(names, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(names.elts, value.elts, strict=True))
        else:
            continue
        for name, part in pairs:
            if isinstance(name, ast.Name) and name.id.isupper():
                try:
                    yield name.id, number(part)
                except ValueError:
                    continue


def found(package: Path = PACKAGE) -> dict[str, dict[str, Value]]:
    """{module: {NAME: value}} of all modules that may decide something."""
    constants = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if len(parts) > 1 and parts[1] in ELSEWHERE:
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        constants[name] = dict(of_module(ast.parse(path.read_text())))
    return {name: own for name, own in constants.items() if own}


def keys(constants: dict[str, dict[str, Value]]) -> dict[tuple[str, str], str]:
    """Return what the table calls each: its name, with as many words of its module as set it apart."""
    labels = {
        (module, name): [".".join([*module.split(".")[-words:], name]) for words in range(3)]
        for module, own in constants.items() for name in own
    }  # fmt: skip
    for labels_of in labels.values():
        labels_of[0] = labels_of[0].rpartition(".")[2]
    count = Counter(label for each in labels.values() for label in each)
    return {key: next(one for one in each if count[one] == 1) for key, each in labels.items()}


def varied(value: Value, factor: float) -> Value:
    """Twice or half as much; a share above a half in its distance from 1."""
    if isinstance(value, tuple):
        return tuple(varied(part, factor) for part in value)
    if isinstance(value, float) and 0.5 < value < 1:
        return 1 - (1 - value) / factor
    return (
        type(value)(value * factor) if isinstance(value, float) else max(1, round(value * factor))
    )


# -- reading them ----------------------------------------------------------------------------


class Readings:
    """Gives every reading of a constant its value, and remembers that it was read."""

    def __init__(self) -> None:
        self.changed: dict[str, Value] = {}
        self.importing = 0
        self.read: dict[str, set[str]] = {}

    def __call__(self, name: str, value: Value) -> Value:
        from jax._src.core import trace_state_clean

        how = "import" if self.importing else "run" if trace_state_clean() else "trace"
        self.read.setdefault(name, set()).add(how)
        return self.changed.get(name, value)


class Instrumented(ast.NodeTransformer):
    """NAME becomes read("module.NAME", NAME), also where it was imported, or is read as module.NAME."""

    def __init__(self, module: str, is_package: bool, constants: dict[str, dict[str, Value]]):
        self.base = module if is_package else module.rpartition(".")[0]
        self.constants, self.keys = constants, keys(constants)
        self.names = {name: self.keys[module, name] for name in constants.get(module, {})}
        self.modules: dict[str, str] = {}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        source = importlib.util.resolve_name("." * node.level + (node.module or ""), self.base)
        for alias in node.names:
            own = alias.asname or alias.name
            if alias.name in self.constants.get(source, {}):
                self.names[own] = self.keys[source, alias.name]
            elif f"{source}.{alias.name}" in self.constants:
                self.modules[own] = f"{source}.{alias.name}"
        return node

    def _reading(self, key: str, node: ast.expr) -> ast.expr:
        call = ast.Call(ast.Name("__read_constant__", ast.Load()), [ast.Constant(key), node], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.names:
            return self._reading(self.names[node.id], node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        module = self.modules.get(node.value.id, "") if isinstance(node.value, ast.Name) else ""
        if isinstance(node.ctx, ast.Load) and (module, node.attr) in self.keys:
            return self._reading(self.keys[module, node.attr], node)
        return self.generic_visit(node)


class Loader(importlib.machinery.SourceFileLoader):
    """Reads the source of a module, never its stored bytecode."""

    constants: dict[str, dict[str, Value]]
    readings: Readings

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        transform = Instrumented(fullname, path.endswith("__init__.py"), self.constants)
        return compile(
            transform.visit(ast.parse(self.get_data(path))), path, "exec", dont_inherit=True
        )

    def exec_module(self, module: Any) -> None:
        module.__dict__["__read_constant__"] = self.readings
        self.readings.importing += 1
        try:
            super().exec_module(module)
        finally:
            self.readings.importing -= 1


class Finder(importlib.abc.MetaPathFinder):
    """All modules of sgld go through Loader."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.partition(".")[0] != "sgld":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path or [str(PACKAGE.parent)])
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def instrument(changed: dict[str, Value]) -> Readings:
    """From here on, sgld is imported with its constants looked up."""
    Loader.constants, Loader.readings = found(), Readings()
    Loader.readings.changed = changed
    sys.meta_path.insert(0, Finder())
    return Loader.readings


# -- what a run says -------------------------------------------------------------------------


def facts(problem: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Choices, words and errors of one run."""
    import sgld
    from problems import truth_of

    given = {key: value for key, value in given.items() if key != CONSTANTS}
    if "preconditioner" in given:
        given["preconditioner"] = getattr(sgld, given["preconditioner"])()
    began = time.process_time()
    try:
        draws = sgld.sample(problem.posterior, problem.data, problem.init, progress=False, **given)
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {str(error)[:80]}"}
    plan, verdict = draws.info["plan"], draws.verdict
    parts = (
        "sampler",
        "gradient",
        "preconditioner",
        "order",
        "batch_size",
        "step_size",
        "thin",
        "nu",
    )
    said = {part: plan[part] for part in parts}
    said["corrected"], said["notes"] = plan["noise_correction"], len(plan["notes"])
    said["steps"], said["draws"] = draws.info["num_steps"], draws.num_draws
    said["word"] = None if verdict is None else verdict.word
    if verdict is not None:
        said["reason"] = re.sub(r"[\d.]+", "#", verdict.reasons[0])[:30]
        corrected = verdict.mean_corrected
        said["corrected columns"] = 0 if corrected is None else int(np.isfinite(corrected).sum())
    truth = truth_of(problem)
    if truth is not None and draws.healthy.size:
        mean, sd = (
            np.concatenate([np.ravel(x) for x in jax.tree.leaves(v)])
            for v in (draws.mean(), draws.sd())
        )
        said["mean error"] = float(np.abs((mean - truth.mean) / truth.sd).max())
        said["sd error"] = float(np.abs(sd / truth.sd - 1).max())
    said["seconds"] = time.process_time() - began
    return said


def change(was: dict[str, Any], now: dict[str, Any]) -> dict[str, list[Any]]:
    """{what: [was, is]} of all that differs; errors by more than .01, seconds by more than half."""
    differs = {}
    for key in dict.fromkeys([*was, *now]):
        a, b = was.get(key), now.get(key)
        if a == b:
            continue
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            apart = abs(a - b)
            size = max(abs(a), abs(b))
            if key.endswith("error"):
                small = apart < 0.01
            elif key == "seconds":
                small = apart < 0.5 * size + 0.5
            else:
                small = apart < MOVED * size or (key == "nu" and size < 1e-6)
            if small:
                continue
        differs[key] = [a, b]
    return differs


def text(differs: dict[str, list[Any]]) -> str:
    def shown(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{key} {shown(a)} -> {shown(b)}" for key, (a, b) in differs.items())


class Bench:
    """The problems, built once, and their runs with the constants as they stand."""

    def __init__(self, names: list[str], readings: Readings):
        from problems import PROBLEMS

        self.readings = readings
        known = set(keys(Loader.constants).values())
        for name in names:
            if gone := set(SAMPLE[name].get(CONSTANTS, {})) - known:
                raise ValueError(f"{name} sets {', '.join(gone)}, which is no constant")
        self.problems = {name: PROBLEMS[name.partition(",")[0]]() for name in names}
        self.base = self.runs()
        self.base = self.runs()  # the same, with the seconds of a second call
        how = {name: set(how) for name, how in readings.read.items()}
        self.imported = {name for name in how if "import" in how[name]}
        self.reads = {name: how[name] for name in how if how[name] - {"import"}}

    def runs(self) -> dict[str, dict[str, Any]]:
        varied, said = self.readings.changed, {}
        for name, problem in self.problems.items():
            self.readings.changed = {**SAMPLE[name].get(CONSTANTS, {}), **varied}
            said[name] = facts(problem, SAMPLE[name])
        self.readings.changed = varied
        return said

    def changes(self, name: str, value: Value) -> dict[str, dict[str, list[Any]]]:
        """{problem: what differs} with one constant at another value."""
        compiled = "trace" in self.reads[name]
        if compiled:
            jax.clear_caches()
        self.readings.changed = {name: value}
        now = self.runs()
        self.readings.changed = {}
        if compiled:
            jax.clear_caches()
        differs = {}
        for problem, was in self.base.items():
            differs[problem] = change(was, now[problem])
            if compiled or set(differs[problem]) == {"seconds"}:
                differs[problem].pop("seconds", None)
        return {problem: found for problem, found in differs.items() if found}


# -- the table -------------------------------------------------------------------------------


def apart(name: str, value: Value, problems: list[str]) -> dict[str, Any]:
    """The same in a process of its own, for constants that are read while modules are imported."""
    request = json.dumps({"changed": {name: value}, "problems": problems})
    done = subprocess.run(
        [sys.executable, __file__, "--apart", request], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def measure(
    names: list[str], problems: list[str], seconds: float, say: Callable[[str], None]
) -> dict[str, Any]:
    """Rows of the table: constants in the order given, until the time is up."""
    began = time.monotonic()
    readings = instrument({})
    values = {key: Loader.constants[m][n] for (m, n), key in keys(Loader.constants).items()}
    bench = Bench(problems, readings)
    rows: dict[str, Any] = {}
    base_apart = None
    # what compiles again, or needs a process of its own, comes last
    names = sorted(names, key=lambda n: n in bench.imported or "trace" in bench.reads.get(n, ()))
    for name in names:
        if time.monotonic() - began > seconds:
            say(f"the time is up: {len(names) - len(rows)} constants not varied")
            break
        row: dict[str, Any] = {"value": values[name]}
        if name not in bench.reads and name not in bench.imported:
            rows[name] = {**row, "read": False}
            continue
        row["read"], row["varied"] = True, {}
        for factor in (0.5, 2.0):
            value = varied(values[name], factor)
            if value == values[name]:
                continue
            if name not in bench.imported:
                differs = bench.changes(name, value)
            else:
                base_apart = base_apart or apart("", 0, problems)
                now = apart(name, value, problems)
                differs = {p: d for p in problems if (d := change(base_apart[p], now[p]))}
            row["varied"][json.dumps(value)] = differs
            for problem, what in differs.items():
                say(f"{name} {values[name]} -> {value}: {problem}: {text(what)}")
            if not differs:
                say(f"{name} {values[name]} -> {value}: nothing changes")
        rows[name] = row
    return rows


def report(rows: dict[str, Any]) -> None:
    """What nothing depended on, and what was not read."""
    idle = [n for n, row in rows.items() if row["read"] and not any(row["varied"].values())]
    unread = [name for name, row in rows.items() if not row["read"]]
    active = len(rows) - len(idle) - len(unread)
    print(f"\n{active} constants decide something over the sample")
    print(f"{len(idle)} are read, and nothing depends on them: {', '.join(idle) or 'none'}")
    print(f"{len(unread)} are not read by the sample: {', '.join(unread) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time budget")
    parser.add_argument(
        "--only", default="", help="some constants: NAME or module.NAME, comma between"
    )
    parser.add_argument(
        "--problems", default="", help="some of SAMPLE, ; between; 'quick' for QUICK"
    )
    parser.add_argument("--show", action="store_true", help="print the stored table")
    parser.add_argument("--apart", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.apart:
        request = json.loads(args.apart)
        readings = instrument({k: _tuples(v) for k, v in request["changed"].items()})
        print(json.dumps(Bench(request["problems"], readings).base))
        return
    stored = json.loads(STORED.read_text()) if STORED.exists() else {"rows": {}}
    if not args.show:
        every = [key for (_, name), key in keys(found()).items() if name not in INDIFFERENT]
        names = [
            n
            for n in every
            if not args.only or {n, n.rpartition(".")[2]} & set(args.only.split(","))
        ]
        if not names:
            parser.error(f"no constant {args.only!r}; there are {', '.join(every)}")
        # the oldest first, so that repeated runs on a budget come round
        names.sort(key=lambda name: stored["rows"].get(name, {}).get("date", ""))
        problems = (
            list(QUICK)
            if args.problems == "quick"
            else args.problems.split(";")
            if args.problems
            else list(SAMPLE)
        )
        rows = measure(names, problems, args.seconds, lambda line: print(line, flush=True))
        from harness import commit

        mark = {"commit": commit(), "date": time.strftime("%Y-%m-%d"), "problems": problems}
        stored["rows"] = {
            name: {**rows[name], **mark} if name in rows else stored["rows"].get(name)
            for name in every if name in rows or name in stored["rows"]
        }  # fmt: skip
        STORED.parent.mkdir(exist_ok=True)
        STORED.write_text(json.dumps(stored, indent=1) + "\n")
    else:
        for name, row in stored["rows"].items():
            for value, differs in row.get("varied", {}).items():
                for problem, what in differs.items():
                    print(f"{name} {row['value']} -> {value}: {problem}: {text(what)}")
    report(stored["rows"])


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    main()
