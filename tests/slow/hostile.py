"""A stranger's run directory and data: what could run code, write elsewhere or take the machine, and its sentence.

    python tests/slow/hostile.py

Formulas are tried at `fit` and in a forged run.json at `predict`, links at every door, bombs as files of a run
and as data. Each must be refused in one sentence (a name that only looks hostile may be shown, in plain letters);
nothing outside may change, no process be started, no call take a second of CPU or 200 MiB.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "models"))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import pyarrow
import pyarrow.parquet
from mutated import RUN_BY_CODE, make_runs, said, seal_again
from test_expression import HOSTILE

import sgld
from sgld.core.files import read_arrays, read_json, write_arrays, write_json
from sgld.errors import SGLDError
from sgld.regression.fit import fit, predict

LINKED = ("lock", "draws.npz", "summary.json", "result.json", "run.json", "setup.npz", "report.html", "checkpoint.npz", "chunks")  # fmt: skip
MORE_FORMULAS = (
    "I(x.__getattribute__('a'))", "np.core.multiarray.scalar(x)", "C(g, contr.helmert.__class__)", "Q.__globals__",
    "I(__builtins__)", "I(x) + I((yield x))", "{__import__('os').getpid()}", "log(x, *[1])", "I(print(x))", "np.fromfile('/etc/passwd')",
    "I(globals())", "poly(x, 10**3)", "bs(x, df=10**9)", "I(1e999**1e999)", "I(x**64**64)", "(x + g)**400", "C(g, levels=[0]*10**9)",
)  # fmt: skip
MARK = Path(tempfile.gettempdir()) / "sgld-hostile-mark"
Case = tuple[str, Callable[[Path, dict[str, Path]], object]]


def copied(runs: dict[str, Path], folder: Path, name: str = "formula") -> Path:
    return shutil.copytree(runs[name], folder / "run")


def formulas() -> Iterator[Case]:
    for text in (*HOSTILE, *MORE_FORMULAS):
        term = text.format(mark=str(MARK)) if "{mark}" in text or "{{" in text else text

        def at_fit(folder: Path, runs: dict[str, Path], term: str = term) -> object:
            return fit(
                runs["formula"].parent / "data.csv",
                f"y ~ {term}",
                out=folder / "new",
                progress=False,
            )

        def at_predict(folder: Path, runs: dict[str, Path], term: str = term) -> object:
            path = copied(runs, folder)
            asked = read_json(path / "run.json")
            asked["model"]["design"]["formula"] = f"y ~ {term}"
            write_json(path / "run.json", asked)
            return list(predict(path, runs["formula"].parent / "data.csv"))

        yield f"formula at fit: {text[:50]}", at_fit
        yield f"formula at predict: {text[:50]}", at_predict


def links() -> Iterator[Case]:
    for name in LINKED:
        for door in ("summary", "report", "verify", "resume"):

            def call(
                folder: Path, runs: dict[str, Path], name: str = name, door: str = door
            ) -> object:
                path, outside = copied(runs, folder), folder / "outside"
                outside.write_text("mine")
                (path / name).unlink(missing_ok=True)
                (path / name).symlink_to(outside)
                try:
                    return said(door, path)
                finally:
                    assert outside.read_text() == "mine", "written through"

            yield f"link {name} at {door}", call


def bombs() -> Iterator[Case]:
    def archive(name: str, content: bytes, packed: int = zipfile.ZIP_STORED) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", packed) as file:
            file.writestr(name, content)
        return stream.getvalue()

    def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
        stream = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            stream, {"shape": shape, "fortran_order": False, "descr": descr}
        )
        return stream.getvalue() + bytes(8)

    files = {
        "an archive of a thousandth of its size": archive("json.npy", bytes(2**25), zipfile.ZIP_DEFLATED),
        "an array of 10^12 numbers in a header": archive("json.npy", header((10**12,))),
        "an array of objects": archive("json.npy", header((1,), "|O")),
        "an array of negative length": archive("json.npy", header((-1,))),
        "a header of 10^7 brackets": archive("json.npy", b"\x93NUMPY\x02\x00" + (10**7).to_bytes(4, "little") + b"(" * 10**7),
        "a name with folders": archive("../../evil.npy", header((1,))),
        "no archive": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        "a pipe": b"pipe",
    }  # fmt: skip
    for words, content in files.items():
        for name in ("setup.npz", "draws.npz"):

            def call(
                folder: Path, runs: dict[str, Path], name: str = name, content: bytes = content
            ) -> object:
                path = copied(runs, folder)
                (path / name).unlink()
                if content == b"pipe":
                    os.mkfifo(path / name)
                else:
                    (path / name).write_bytes(content)
                seal = seal_again if content != b"pipe" else (lambda _: None)
                seal(path)
                return sgld.load(path)

            yield f"{words} as {name}", call
    texts = {"10^5 brackets": b"[" * 10**5, "10^6 objects": b'{"a":' * 10**6, "100 MB of spaces": b" " * 10**8,
             "a number of 10^6 digits": b'{"a": ' + b"9" * 10**6 + b"}", "two keys": b'{"seal": 1, "seal": 2}'}  # fmt: skip
    for words, content in texts.items():

        def call(folder: Path, runs: dict[str, Path], content: bytes = content) -> object:
            path = copied(runs, folder)
            (path / "run.json").write_bytes(content)
            return sgld.load(path)

        yield f"{words} as run.json", call


def classes() -> Iterator[Case]:
    for name in ("builtins.object", "os.system", "subprocess.Popen", "pathlib.Path", "sgld.results.run_directory.RunDirectory",
                 "sgld.model.posterior.Constraints", "jax.tree_util.Partial", "sgld.data.memory.InMemory", "..errors.need"):  # fmt: skip

        def call(folder: Path, runs: dict[str, Path], name: str = name) -> object:
            path = copied(runs, folder, "plain")
            head, arrays = read_arrays(path / "setup.npz")
            head["plan"] = json.loads(json.dumps(head["plan"]))
            head["plan"]["fields"]["setup"]["class"] = name
            write_arrays(path / "setup.npz", head, arrays)
            return sgld.load(path)

        yield f"class {name} in setup.npz", call


def letters() -> Iterator[Case]:
    def call(folder: Path, runs: dict[str, Path]) -> object:
        path = copied(runs, folder, "plain")
        result = read_json(path / "result.json")
        result["names"] = ["\x1b]0;owned\x07\x1b[2J", *result["names"][1:]]
        result["verdict"]["reasons"] = ["\x1b[31mtrusted\x1b[0m"]
        write_json(path / "result.json", result)
        (path / "summary.json").unlink()
        seal_again(path)
        text = said("summary", path)
        assert "\x1b]0" not in text and "\x1b[2J" not in text and "\x07" not in text, repr(text)
        return text

    yield "names that a terminal obeys", call

    def header(folder: Path, runs: dict[str, Path]) -> object:
        pyarrow.parquet.write_table(
            pyarrow.table({"\x1b[2J": [1.0, None], "y": [1.0, 2.0]}), folder / "t.parquet"
        )
        return fit(folder / "t.parquet", "y ~ `\x1b[2J`", out=folder / "new", progress=False)

    yield "a column that a terminal obeys", header


def hostile(show: bool = True, every: int = 1) -> tuple[int, list[str]]:
    """How many were tried, and what went wrong."""
    wrong, ran = [], []
    watching = [False]
    sys.addaudithook(
        lambda event, _: (watching[0] and event in RUN_BY_CODE and ran.append(event)) or None
    )
    with tempfile.TemporaryDirectory() as base:
        runs = make_runs(Path(base))
        cases = [*formulas(), *links(), *bombs(), *classes(), *letters()][::every]
        for name, call in cases:
            with tempfile.TemporaryDirectory() as folder:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                began, watching[0] = time.process_time(), True
                try:
                    call(Path(folder), runs)
                    word = "shown in plain letters, or left alone"
                except SGLDError as error:
                    word = str(error)
                    if "\n" in word or "\x1b" in word:
                        wrong.append(f"{name}: {word!r}")
                except BaseException:
                    word = "TRACEBACK"
                    wrong.append(f"{name}: {traceback.format_exc()}")
                watching[0] = False
                took = time.process_time() - began
                more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
                first = name.startswith("formula at fit") or call is cases[0][1]
                if took > (5 if first else 1) or more > 200:
                    wrong.append(f"{name}: {took:.1f} s, {more:.0f} MiB")
                if (Path(folder) / "new").exists() and "Draws" not in word and word[0] != "s":
                    wrong.append(f"{name}: left a directory")
                if show:
                    print(f"{name}\n    {word.splitlines()[0][:200]}")
    if ran:
        wrong.append(f"code was run: {sorted(set(ran))}")
    if MARK.exists():
        wrong.append("a mark was left")
    return len(cases), wrong


def main() -> None:
    began = time.time()
    tried, wrong = hostile()
    print(f"{tried} tried, {len(wrong)} wrong; {time.time() - began:.0f} s")
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
