"""Bad tables, formulas, options and functions at every door: one sentence each, and no file left.

    python tests/slow/dirty.py [WORDS]      all of them, or those whose name holds all the words

A command must end with status 2 and one sentence on standard error; a call from Python must raise one of
the package's own errors, in one sentence. Either way nothing in the folder may have changed: no run
directory, no lock, no scratch file. Nothing may take longer than a few seconds or much memory.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from typer.testing import CliRunner

import sgld
from sgld.errors import SGLDError
from sgld.interfaces.cli import app
from sgld.regression.fit import fit

ROWS = 200
LIMIT = 30  # seconds that a refusal may take, its imports and a first compilation included
NOBODY = 65534


@dataclass(frozen=True)
class Case:
    """What is wrong, what the sentence must say (a regular expression), and the call."""

    name: str
    said: str
    call: Callable[[Path], Any]


CASES: list[Case] = []


def case(name: str, said: str) -> Callable:
    """Adds a function of the folder to the cases."""

    def register(call: Callable[[Path], Any]) -> Callable[[Path], Any]:
        CASES.append(Case(name, said, call))
        return call

    return register


class Refused(Exception):
    """A command's sentence, with its status."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


def command(*arguments: Any) -> None:
    """Run a command; Refused where it ends with another status than 0."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code:
        raise Refused(result.exit_code, result.stderr)


# -- what is refused ---------------------------------------------------------------------------


def rows(**more: Any) -> dict[str, np.ndarray]:
    """A table that can be fitted, and what makes it dirty."""
    rng = np.random.default_rng(5)
    x, z = rng.normal(size=ROWS), rng.normal(size=ROWS)
    y = 1 + 2 * x - 0.5 * z + rng.normal(size=ROWS)
    return {"x": x, "z": z, "y": y, "g": np.resize(["a", "b", "c"], ROWS), **more}


def option(name: str, said: str, *options: Any, formula: str = "y ~ x + z") -> None:
    """`sgld fit` with options."""
    fitted(
        f"option {name}",
        said,
        lambda path: path.write_bytes(csv(rows())),
        formula,
        *options,
    )


def formula(text: str, said: str, **more: Any) -> None:
    """`sgld fit` with a formula, on columns of the table's own."""
    fitted(f"formula {text[:60]}", said, lambda path: path.write_bytes(csv(rows(**more))), text)


def content(
    name: str, said: str, written: bytes, formula: str = "y ~ x", suffix: str = ".csv"
) -> None:
    """`sgld fit` of a file with these bytes."""
    fitted(f"file {name}", said, lambda path: path.write_bytes(written), formula, suffix=suffix)


def fitted(
    name: str, said: str, write: Callable, formula: str, *options: Any, suffix: str = ".csv"
) -> None:
    """`sgld fit`, of a file that is written before."""

    @case(name, said)
    def call(folder: Path) -> None:
        data = folder / f"data{suffix}"
        write(data)
        with unchanged(folder):
            command("fit", data, formula, "--out", folder / "run", "--quiet", *options)


@contextlib.contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """AssertionError where a call that is refused leaves something behind."""
    before = listing(folder)
    try:
        yield
    except BaseException:
        assert listing(folder) == before, f"left {listing(folder) ^ before}"
        raise


def listing(folder: Path) -> set[tuple[str, int]]:
    return {(str(p.relative_to(folder)), p.lstat().st_size) for p in folder.rglob("*")}


def csv(columns: dict[str, Any]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.csv.write_csv(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


def parquet(columns: dict[str, Any]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


def ipc(columns: dict[str, Any]) -> bytes:
    sink, table = pyarrow.BufferOutputStream(), pyarrow.table(columns)
    with pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


JUNK = np.random.default_rng(0).integers(0, 256, 5000, np.uint8).tobytes()

content("header of a million letters", "characters", b"x" * 10**6 + b",y\n1,2\n3,4\n", "y ~ x")
content(
    "header of a million letters quoted",
    "characters",
    b'"' + b"x" * 10**6 + b'",y\n1,2\n3,4\n',
    "y ~ x",
)
content(
    "a million columns",
    "first line",
    b",".join(b"c%d" % i for i in range(10**6)) + b"\n" + b",".join([b"1"] * 10**6) + b"\n",
    "c1 ~ c2",
)
content(
    "one cell of ten million letters",
    "4,194,304 characters",
    b"x,y\n" + b"1" * 10**7 + b",2\n3,4\n",
)
content("one row", ".", b"x,y\n1,2\n")
content("no rows", "no rows", b"x,y\n")
content("only a newline", ".", b"\n")
content("a byte order mark alone", ".", b"\xef\xbb\xbf")
content("binary", ".", JUNK)
content("zeros", ".", bytes(10_000))
content("zeros after the header", ".", b"x,y\n" + bytes(10_000))
content("utf-16", ".", csv(rows()).decode().encode("utf-16"))
content("latin-1 header", "not UTF-8", "größe,y\n1,2\n3,5\n".encode("latin-1"), "y ~ größe")
content("latin-1 cell", "not UTF-8", "x,y,g\n1,2,ä\n3,5,b\n2,7,b\n".encode("latin-1"), "y ~ g")
content("an open quote", ".", b'x,y\n1,2\n"3,4\n5,6\n')
content(
    "semicolons and decimal commas",
    "--decimal",
    csv(rows()).replace(b",", b";").replace(b".", b","),
)
content("junk with the mark of gzip", "gzip", b"\x1f\x8b\x08\0" + JUNK, suffix=".csv.gz")
content("a cut gzip file", "gzip", gzip.compress(csv(rows()))[:-99], suffix=".csv.gz")
content("a workbook named csv", "Excel", b"PK\x03\x04" + JUNK)
content("separators of every kind", ".", b"a,b;c\td|e\n" * 50)
content("ragged", "line 3", b"x,y\n1,2\n3,4,5\n")
content("column named Intercept", "Intercept", csv(rows(Intercept=rows()["z"])), "y ~ Intercept")
content(
    "column named Intercept, quoted",
    "Intercept",
    csv(rows(Intercept=rows()["z"])),
    "y ~ x + `Intercept`",
)
content("column named sigma", "sigma", csv(rows(sigma=rows()["z"])), "y ~ x + sigma")
content("column twice", "twice", b"x,x,y\n1,2,3\n4,5,6\n")
content("a csv named parquet", "Parquet", csv(rows()), suffix=".parquet")
content("a truncated parquet", "Parquet", parquet(rows())[:-20], suffix=".parquet")
content(
    "a parquet without its middle",
    ".",
    parquet(rows())[:500] + parquet(rows())[-900:],
    suffix=".parquet",
)
content("a parquet of marks", ".", b"PAR1" + JUNK + b"PAR1", suffix=".parquet")
content("a truncated arrow file", ".", ipc(rows())[:-200], suffix=".arrow")
content("junk named arrow", ".", JUNK, suffix=".arrow")
content("junk with the mark of arrow", ".", b"ARROW1\0\0" + JUNK, suffix=".arrow")
content("junk with the mark of feather", ".", b"FEA1" + JUNK, suffix=".feather")
content("another extension", "extension", csv(rows()), suffix=".xlsx")
content(
    "text in a column of numbers", ".", csv(rows(s=[*map(str, range(ROWS - 1)), "12,5"])), "y ~ s"
)
content(
    "numbers that are text",
    "convert it to numbers",
    parquet(rows(s=[f"{v:.6f}" for v in rows()["x"]])),
    "y ~ s",
    ".parquet",
)
content("lists in a cell", ".", parquet(rows(s=[[1.0, 2.0]] * ROWS)), "y ~ s", ".parquet")
content("structs in a cell", ".", parquet(rows(s=[{"a": 1}] * ROWS)), "y ~ s", ".parquet")
content("bytes in a cell", ".", parquet(rows(s=[b"\xff"] * ROWS)), "y ~ s", ".parquet")
content(
    "times in a cell",
    ".",
    parquet(rows(s=np.arange(ROWS).astype("datetime64[s]"))),
    "y ~ s",
    ".parquet",
)
content("nulls alone", ".", parquet(rows(s=pyarrow.nulls(ROWS))), "y ~ s", ".parquet")
content("empty text", "is constant", csv(rows(s=[""] * ROWS)), "y ~ s")
content("1e400 in a cell", ".", csv(rows()) + b'1e400,1,1,"a"\n')
content("numbers near the largest", "ordinary", csv(rows(s=rows()["x"] * 1e307)), "y ~ s")
content("numbers near the smallest", "ordinary", csv(rows(s=rows()["x"] * 1e-310)), "y ~ s")
content(
    "an outcome of numbers near the largest", "ordinary", csv(rows(s=rows()["x"] * 1e300)), "s ~ x"
)
content(
    "whole numbers beyond 64 bits",
    ".",
    b"x,y\n" + b"".join(b"%d,%d\n" % (10**30 + i, i) for i in range(30)),
    "y ~ x",
)
content(
    "5,000 levels of a whole number",
    "5,000 levels",
    csv({"y": np.random.default_rng(0).normal(size=20_000), "k": np.arange(20_000) % 5000}),
    "y ~ C(k)",
)
content(
    "a level of its own per row",
    "levels",
    csv({"y": np.arange(3000.0) % 7, "k": np.arange(3000)}),
    "y ~ C(k)",
)
content(
    "categories by categories",
    "GiB of memory",
    csv(
        {
            "y": np.random.default_rng(0).normal(size=20_000),
            "k": np.arange(20_000) % 900,
            "m": np.arange(20_000) % 901,
        }
    ),
    "y ~ C(k) * C(m)",
)
content(
    "text of numbers",
    "levels",
    parquet(
        {
            "y": np.random.default_rng(0).normal(size=2000),
            "k": [f"{i * 0.37:.3f}" for i in range(2000)],
        }
    ),
    "y ~ k",
    ".parquet",
)

for text in (
    "",
    "~",
    "y",
    "y ~ ~ x",
    "y ~ x ~ z",
    "y ~ x +",
    "y ~ (x",
    "y ~ x)",
    "y ~ x y",
    "y ~ 0",
    "y ~ y",
    "y ~ -1",
    "y ~ x |",
    "y ~ x[0]",
    "y ~ x.shape",
    "y ~ 'text'",
    "y ~ 3",
    "y ~ I(1)",
    "y ~ I()",
    "y ~ log()",
    "y ~ log(-abs(x))",
    "y ~ 1/0",
    "y ~ x**x",
    "y ~ (x + z)**9999",
    "y ~ C(q)",
    "y ~ lag(x)",
    "y ~ bs(x, df=900)",
    "y ~ bs(x, df=2)",
    "y ~ bs(x, degree=-1)",
    "y ~ hashed(g, levels=1000)",
    "y ~ scale(g)",
    "y ~ np.log(g)",
    "y ~ \x00",
    "y ~ x\ny ~ z",
    "y ~ `x",
    "y ~ {exit()}",
    "y ~ " + "+".join(["x"] * 20_000),
    "y ~ " + "*".join(f"np.sin({i}*x)" for i in range(1, 25)),
    "y ~ a%in%",
    "y ~ ...",
    "C(g) ~ x",
    "g ~ x",
    "y + z ~ x",
    "y ~ C(g, levels=[])",
    "y ~ C(g, levels=['q'])",
    "y ~ C(g, 3)",
    "y ~ C(g, contr.treatment('nobody'))",
    "y ~ Treatment(g)",
    "y ~ np.where(x)",
    "y ~ I(x > 'a')",
    "y ~ I(g + x)",
    "y ~ np.clip(x, 1, 0, 3, 4)",
    "y ~ np.pi",
    "y ~ cr(x, df=3) + cc(x, df=1)",
    "y ~ Q('nowhere')",
    "y ~ Q(x)",
    "y ~ π",
    "y ~ 𝑥",
    "y ~ x\u202e",
):
    formula(text, ".")

option("chains 1e9", "GiB of memory", "--chains", 10**9)
option("draws 1e12", "GiB of memory", "--draws", 10**12)
option("draws 1e9", "GiB of memory", "--draws", 10**9)
option("draws 10^30", "GiB of memory", "--draws", 10**30)
option("step size 1e-300", "range of float32", "--step-size", "1e-300")
option("step size 1e-30", "burn-in alone would take", "--step-size", "1e-30")
option("step size 1e300", "float32 holds", "--step-size", "1e300")
option("max-seconds inf", "positive number. Got inf", "--max-seconds", "inf")
option("max-seconds nan", "Got nan", "--max-seconds", "nan")
option("max-seconds negative", "Got -1", "--max-seconds", -1)
option("max-seconds 1e-9", "before the first draw", "--max-seconds", 1e-9)
option("max-steps 1", ".", "--max-steps", 1)
option("temperature 1e30", "at most 1e.09", "--temperature", "1e30")
option("temperature 1e-30", ".", "--temperature", "1e-30")
option("temperature inf", ".", "--temperature", "inf")
option("temperature nan", ".", "--temperature", "nan")
option("tolerance nan", ".", "--tolerance", "nan")
option("checkpoint-every inf", ".", "--checkpoint-every", "inf")
option("checkpoint-every nan", ".", "--checkpoint-every", "nan")
option("seed 10^30", ".", "--seed", 10**30)
option("batch 10^12", "number of rows", "--batch-size", 10**12)
option("prior of nothing", ".", "--prior", "")
option("prior normal(0, 1e300)", ".", "--prior", "normal(0, 1e300)")
option("prior normal(0, 1e-300)", ".", "--prior", "normal(0, 1e-300)")
option("prior normal(1e300, 1)", ".", "--prior", "normal(1e300, 1)")
option("prior that runs", ".", "--prior", "__import__('os').system('true')")
option("prior student_t(1e-300, 0, 1)", ".", "--prior", "student_t(1e-300, 0, 1)")
option("prior of brackets", ".", "--prior", "normal(" * 10_000)
option("family of a million letters", ".", "--family", "p" * 10**6)
option("sampler of a million letters", ".", "--sampler", "p" * 10**6)

# -- from Python, and the other commands -------------------------------------------------------


def sampled(name: str, wanted: str, log_prior: Any, likelihood: Any = None, **given: Any) -> None:
    """`sgld.sample` with a directory."""

    @case(f"sample {name}", wanted)
    def call(folder: Path) -> None:
        posterior = sgld.Posterior(log_prior, likelihood)
        data, out = None if likelihood is None else DATA, folder / "new" / "run"
        with unchanged(folder):
            sgld.sample(posterior, data, 0.5, path=out, progress=False, **given)


def broken(t: Any, x: Any) -> Any:
    raise KeyError("mine")


def square(t: Any) -> Any:
    return -(t**2)


DATA = np.linspace(-1, 1, 30, dtype=np.float32)
sampled("a prior of 0", "return 0.0", lambda t: 0)
sampled("a likelihood of 3", "floating-point", square, lambda t, x: 3)
sampled("a likelihood of several", "one number", square, lambda t, x: x * t * jnp.ones(3))
sampled("a likelihood of nothing", "Got nothing", square, lambda t, x: None)
sampled("a likelihood that raises", "KeyError.*raise KeyError", square, broken)
sampled("a prior in NumPy", "log_prior raised .* np.log", lambda t: np.log(t))
sampled("a prior with an if", "log_prior raised", lambda t: t if t > 0 else -t)
sampled("a prior of no arguments", "log_prior must be a function", lambda: 0.0)
sampled("a prior of nan", "is nan", lambda t: t * jnp.nan)
sampled("a billion chains", "GiB of memory", square, num_chains=10**9)
sampled("10^12 draws of a function", "GiB of memory", square, num_draws=10**12, keep=lambda t: t)
sampled("checkpoints never", "checkpoint_every", square, checkpoint_every=float("nan"))
sampled("a bool for chains", "num_chains", square, num_chains=True)
sampled("infinite seconds", "max_seconds", square, max_seconds=float("inf"))


@functools.cache
def import_all() -> None:
    """What commands import when they are called, which nobody may not be allowed to read."""
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Refused):
        (Path(folder) / "data.csv").write_bytes(csv(rows()))
        command("fit", f"{folder}/data.csv", "y ~ x", "--out", f"{folder}/run", "--draws", 10**12)


def as_nobody(name: str, wanted: str, *arguments: str) -> None:
    """A command of a user who may not: root may do everything, and is nobody meanwhile.

    `@x` is x in the folder, which holds data.csv, an empty file, and a folder and a file that are closed.
    """

    @case(name, wanted)
    def call(folder: Path) -> None:
        (folder / "data.csv").write_bytes(csv(rows()))
        (folder / "closed").mkdir()
        for path in ("closed/data.csv", "secret.csv", "file"):
            (folder / path).write_text("x,y")
        os.chmod(folder, 0o777)
        for path in ("closed", "secret.csv"):
            os.chmod(folder / path, 0)
        root = os.geteuid() == 0
        if root:
            import_all()
        try:
            if root:
                os.seteuid(NOBODY)
            command(*(f"{folder}/{a[1:]}" if a[:1] == "@" else a for a in arguments))
        finally:
            if root:
                os.seteuid(0)
            os.chmod(folder / "closed", 0o700)


LONG = "n" * 300
FIT = ("y ~ x", "--out")
as_nobody("no permission for the data", "Permission denied", "fit", "@secret.csv", *FIT, "@run")
as_nobody(
    "no permission for its folder", "Permission denied", "fit", "@closed/data.csv", *FIT, "@run"
)
as_nobody("no permission for the run", "Permission denied", "fit", "@data.csv", *FIT, "@closed/run")
as_nobody("out below a file", "Not a directory|could not", "fit", "@data.csv", *FIT, "@file/run")
as_nobody("out is a file", "no directory", "fit", "@data.csv", *FIT, "@file")
as_nobody("out with a name too long", "too long", "fit", "@data.csv", *FIT, f"@{LONG}")
as_nobody(
    "out is a folder of somebody's", "not a run", "fit", "@data.csv", *FIT, "@", "--overwrite"
)
as_nobody("data with a name too long", "too long", "fit", f"@{LONG}.csv", *FIT, "@run")
as_nobody(
    "a folder with a file that may not be read", "Permission denied", "fit", "@", *FIT, "@run"
)
for door in ("summary", "report", "verify", "resume", "reference"):
    as_nobody(f"{door} without permission", "Permission denied", door, "@closed/run")
    as_nobody(f"{door} of a file", "not a|no run", door, "@file")
    as_nobody(f"{door} of a name too long", "too long", door, f"@{LONG}")
as_nobody("predict of nothing", "not a dir", "predict", "@run", "@data.csv", "--out", "@p.csv")
as_nobody(
    "predict to a long name", "too long", "predict", "@run", "@data.csv", "--out", f"@{LONG}.csv"
)
as_nobody("gallery to a file", "folder", "gallery", "X1", "--out", "@file")
as_nobody("gallery of nobody", "X99", "gallery", "X99", "--out", "@g")


@case("out with a zero byte", "null|zero byte")
def with_a_zero_byte(folder: Path) -> None:
    fit(rows(), "y ~ x", out=f"{folder}/a\0b", progress=False)


@case("pandas missing", "pandas is needed")
def without_pandas(folder: Path) -> None:
    kept = {
        name: sys.modules[name]
        for name in sys.modules
        if name.split(".")[0] in ("pandas", "formulaic")
    }
    for name in kept:
        del sys.modules[name]
    sys.modules["pandas"] = None  # type: ignore[assignment]  # as Python marks what is not there
    try:
        fit(rows(), "y ~ x", out=folder / "run", progress=False)
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] in ("pandas", "formulaic")]:
            del sys.modules[name]
        sys.modules.update(kept)


# -- trying them -------------------------------------------------------------------------------


def tried(one: Case, folder: Path) -> str:
    """The sentence of a case. AssertionError where it is none, or not the one wanted, or something is left."""
    try:
        one.call(folder)
    except Refused as refused:
        assert refused.status == 2, refused.status
        sentence = str(refused).rstrip("\n")
    except SGLDError as error:
        sentence = str(error)
    else:
        raise AssertionError("it was taken")
    assert sentence and "\n" not in sentence, f"more than a sentence: {sentence}"
    assert sentence.isprintable() and len(sentence) < 2100, sentence
    assert re.search(one.said, sentence), f"another sentence: {sentence}"
    assert not (folder / "run").exists() and not (folder / "new").exists(), "a directory is left"
    return sentence


def main() -> None:
    words, began, wrong, longest, count = sys.argv[1:], time.time(), [], 0.0, 0
    for one in CASES:
        if not all(word in one.name for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            at = time.process_time()
            try:
                text = tried(one, Path(folder))
            except Exception as error:
                text = f"WRONG: {error!r}"[:600]
                wrong.append(one.name)
            took = time.process_time() - at
        if took > LIMIT:
            wrong.append(f"{one.name}: {took:.0f} s")
        longest, count = max(longest, took), count + 1
        print(f"{one.name}\n    {text if text.startswith('WRONG') else text[:200]}", flush=True)
    print(
        f"{count} tried, {len(wrong)} wrong; longest {longest:.1f} s CPU; {time.time() - began:.0f} s"
    )
    for name in wrong:
        print(f"wrong: {name}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
