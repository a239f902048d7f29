"""The examples of README.md and of every page of docs run, and print what the pages say.

Those of docs/pytorch.md run beside the torch door, those of docs/networks.md and docs/tables.md in slow tests.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import re
import shlex
from importlib import resources
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import sgld
from sgld.interfaces.cli import app

ROOT = Path(__file__).parents[2]
PAGES = {page.name: page.read_text() for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"))}
ELSEWHERE = {"arviz.md", "keep.md", "notebooks.md", "numpyro.md", "pytorch.md", "networks.md"}
ELSEWHERE |= {"network-tutorial.md"}  # drawn by the build


def indented(text):
    """The blocks of four spaces, fences and lists left out, without those spaces."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"(?:^\n|\A)((?:^(?: {4}.*)?\n)+)", text, re.MULTILINE)
    return [re.sub(r"^ {4}", "", block, flags=re.MULTILINE).strip("\n") for block in blocks]


def fenced(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def python_of(name):
    """The Python of a page, in its order; an indented block may end with what it prints."""
    found = fenced(PAGES[name], "python")
    for block in indented(PAGES[name]):
        if re.search(r"\bsgld\.[a-z]\w*\(", block):
            code = re.split(r"\n\n(?= )", block)[0]  # a printed table begins with spaces
            found.append(code)
    return found


def execute(name, **names):
    names["__name__"] = "page"
    for block in python_of(name):
        exec(compile(block, name, "exec"), names)
    return names


def rows(text):
    """The lines of a table of parameters: name -> the numbers of its first two columns."""
    lines = re.findall(r"^\s*(\S+)\s+(-?[\d.]+)\s+(-?[\d.]+) .*[\d-]$", text, re.MULTILINE)
    return {name: (float(mean), float(sd)) for name, mean, sd in lines}


def agree(printed, page, parameters):
    """The page's rows of these parameters are the printed ones, up to Monte Carlo error."""
    said, found = rows(page), rows(printed)
    assert said.keys() >= set(parameters)
    for name in parameters:
        (mean, sd), (page_mean, page_sd) = found[name], said[name]
        assert abs(mean - page_mean) < 0.15 * sd, name
        assert abs(sd / page_sd - 1) < 0.07, name


def worded(text):
    """Without the percent that an sd is known within, which Monte Carlo error moves from machine to machine."""
    return re.sub(r"within \d+%", "within N%", text)


# -- what runs, page by page -----------------------------------------------------------------


def test_no_page_has_python_that_is_not_run():
    run = {
        "README.md", "data.md", "density.md", "new-sampler.md", "new-source.md", "scikit-learn.md", "start.md",
        "tables.md", "variational.md", "verdict.md",
    }  # fmt: skip
    assert {name for name in PAGES if python_of(name)} == run | ELSEWHERE


def test_the_python_of_the_readme(capsys):
    names = execute("README.md")
    printed = capsys.readouterr().out
    agree(printed, PAGES["README.md"], [f"x[{i}]" for i in range(5)])
    assert names["draws"].verdict.word == "trusted"
    verdict = str(names["model"].verdict_)
    assert verdict in printed and worded(verdict) in worded(PAGES["README.md"])
    for line in (
        "target: the posterior",
        "verdict: trusted",
        "  sd within 2% on all 5 parameters.",
    ):
        assert worded(line) in worded(printed) and line in PAGES["README.md"]


def test_the_shell_of_the_readme(tmp_path, monkeypatch):
    bundled = (resources.files("sgld.data.bundled") / "randhie.csv").read_text()
    (tmp_path / "visits.csv").write_text(bundled)
    (tmp_path / "new.csv").write_text("".join(bundled.splitlines(keepends=True)[:51]))
    monkeypatch.chdir(tmp_path)
    text = PAGES["README.md"]
    (fit,) = re.findall(r"^ {4}\$ sgld ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    (predict,) = re.findall(r"`sgld (predict [^`]*)`", text)
    fitted = CliRunner().invoke(app, shlex.split(fit.replace("\\\n", "")))
    assert fitted.exit_code == 0, fitted.output
    agree(fitted.stdout, text, ["Intercept", "lncoins", "hlthp"])
    verdict = "verdict: trusted - sd within 3% on all 10 parameters.\n"
    for line in (
        verdict,
        "report: runs/visits/report.html\n",
        "note: the model looks misspecified",
    ):
        assert worded(line) in worded(fitted.stdout) and line in text
    predicted = CliRunner().invoke(app, shlex.split(predict))
    assert predicted.exit_code == 0, predicted.output
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 51


def test_the_session_from_unknown_to_a_confirmed_word(tmp_path, monkeypatch):
    """As typed: the same commands, words and parameters, and numbers up to Monte Carlo error."""
    rows = "".join(f"{i / 3:.2f},{int(i == 11)}\n" for i in range(12))
    (tmp_path / "few.csv").write_text("dose,ill\n" + rows)
    monkeypatch.chdir(tmp_path)
    (block,) = [b for b in indented(PAGES["verdict.md"]) if b.startswith("$ sgld fit few.csv")]
    sessions = re.split(r"^\$ sgld ", block, flags=re.MULTILINE)[1:]
    for session in sessions:
        command, *said = session.strip().splitlines()
        done = CliRunner().invoke(app, shlex.split(command))
        assert done.exit_code == 0, done.output
        agree(
            done.stdout, session, [name for name in ("Intercept", "dose") if name in rows_of(said)]
        )
        printed = without_worst(done.stdout)
        for line in said:
            assert line == "..." or without_worst(line) in printed, line
    assert [s.split()[0] for s in sessions] == ["fit", "reference", "summary"]


def rows_of(lines):
    """The parameters whose means and sds a session shows."""
    return [] if not any("ess_bulk" in line for line in lines) else list(rows("\n".join(lines)))


def without_worst(text):
    """The words, whichever parameter is the worst: other code of the same functions rounds otherwise."""
    unnamed = lambda line: re.sub(r"'\w+'", "one", line[0])  # noqa: E731
    return without_numbers(re.sub(r"worst: .*", unnamed, text))


def without_numbers(text):
    """The words, single spaces between them."""
    return " ".join(re.sub(r"[-+]?\d[\d.]*|(?<= )-(?=$|\n)", "#", text).split())


ROWS = np.random.default_rng(0).normal(1.0, 1.0, 200).astype(np.float32)
MODEL = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
GIVEN = {"posterior": MODEL, "data": ROWS, "init": jnp.zeros(1), "sgld": sgld}


def said_alike(printed, page):
    """The page's first printed block is what was printed: words, and numbers up to Monte Carlo error."""
    said = fenced(page, "text")[0]
    agree(printed, said, rows(said))
    for line in said.splitlines():
        assert without_numbers(line) in without_numbers(printed), line


def test_five_minutes(capsys):
    names = execute("start.md")
    said_alike(capsys.readouterr().out, PAGES["start.md"])
    table = names["fit"].summary().parameters
    for name, value in {"Intercept": -1.0, "dose": 0.8, "age": 0.0}.items():
        assert abs(table[name]["mean"] - value) < 3 * table[name]["sd"]
    assert names["fit"].verdict.word == "trusted"
    assert names["odds"] == pytest.approx(np.exp(0.8), rel=0.1)


def test_the_page_on_densities(capsys):
    names = execute("density.md")
    printed = capsys.readouterr().out
    said_alike(printed.split("mean error")[0], PAGES["density.md"])
    worst = re.search(
        r"worst: mean of \S+ ([+-][\d.]+) sd of the reference, sd of \S+ x ([\d.]+)", printed
    )
    assert abs(float(worst[1])) < 0.1 and abs(float(worst[2]) - 1) < 0.1
    assert names["half_life"] == pytest.approx(np.log(2) / 0.7, rel=0.05)
    assert names["lower"] < names["half_life"] < names["upper"]
    assert names["curve"].mean.shape == (5,)


@pytest.mark.slow
def test_the_page_on_tables(capsys):
    names = execute("tables.md")
    fit, printed = names["fit"], capsys.readouterr().out
    assert "19998 rows (2 more left out: a cell they need is missing)" in printed
    assert fit.verdict.word == "trusted", fit.verdict
    truth = {
        "age": -0.01,
        "C(town)[T.outer]": -0.4,
        "C(town)[T.rural]": -0.4,
        "overdispersion": 0.5,
    }
    table = fit.summary().parameters
    for name, value in truth.items():
        assert abs(table[name]["mean"] - value) < 4 * table[name]["sd"], name
    found = fit.predict(names["new"])
    assert list(found.columns) == ["mean", "sd", "lower", "upper"] and (found["sd"] > 0).all()


def test_the_page_on_data_on_disk(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SGLD_DATA_CACHE", str(tmp_path / "cache"))
    names = execute("data.md")
    printed = capsys.readouterr().out
    assert printed.startswith("10000 ('inner', 'outer', 'rural')\ntrusted")
    mean = names["draws"].mean()
    assert abs(mean["town"][0] - mean["town"][1] - 1) < 0.1
    assert abs(mean["age"] / names["age"].sd - 0.05) < 0.005


def test_the_page_on_scikit_learn(capsys):
    names = execute("scikit-learn.md")
    printed, said = capsys.readouterr().out, fenced(PAGES["scikit-learn.md"], "text")[0]
    agree(printed, said, ["age", "sigma"])
    for line in (*said.splitlines()[:2], "trusted\n"):
        assert worded(line) in worded(printed)
    assert names["proba"].shape == (569, 2)


def test_the_page_on_variational_inference():
    q = sgld.sample(MODEL, ROWS, jnp.zeros(1), progress=False)
    names = execute("variational.md", **GIVEN, reference=q)
    np.testing.assert_allclose(names["q"].mean, ROWS.sum() / 201, atol=0.02)
    np.testing.assert_allclose(names["q"].sd, 201**-0.5, rtol=0.05)


def test_the_page_on_the_verdict(capsys):
    draws = sgld.sample(MODEL, ROWS, jnp.zeros(1), progress=False)
    names = execute("verdict.md", **GIVEN, draws=draws)
    assert names["found"].verdict.word == "trusted"
    assert str(names["found"].verdict) in capsys.readouterr().out


def test_a_sampler_of_your_own(capsys):
    assert len(python_of("new-sampler.md")) == 5
    names = execute("new-sampler.md")
    printed = capsys.readouterr().out
    (report,) = fenced(PAGES["new-sampler.md"], "text")
    assert report in printed
    assert "Slipped: variances at temperature 0.5 are off by" in printed
    draws, rows = names["draws"], names["rows"]
    assert draws.verdict.word == "trusted"
    exact = rows.astype(float).sum() / 1001
    np.testing.assert_allclose(draws.mean()["mean"], exact, atol=0.1 / np.sqrt(1001))


def test_a_source_of_your_own(capsys):
    names = execute("new-source.md")
    (report,) = fenced(PAGES["new-source.md"], "text")
    assert report in capsys.readouterr().out
    draws, sites = names["draws"], np.asarray(names["sites"], float)
    assert draws.verdict.word == "trusted"
    x, y = np.meshgrid(sites, sites)
    others = ~np.eye(60, dtype=bool)
    precision = 1 + np.sum(x[others] ** 2)
    np.testing.assert_allclose(
        draws.mean(), np.sum((x * y)[others]) / precision, atol=0.1 / precision**0.5
    )
    np.testing.assert_allclose(draws.sd(), precision**-0.5, rtol=0.07)


# -- what is named ---------------------------------------------------------------------------


def resolves(dotted):
    """Whether `sgld.a.b` is a module or an attribute; sgld.torch is left to the torch door."""
    if dotted.startswith("sgld.torch"):
        return True
    thing = sgld
    for depth, part in enumerate(dotted.split(".")[1:], 2):
        thing = getattr(thing, part, None)
        if thing is None:
            try:
                thing = importlib.import_module(".".join(dotted.split(".")[:depth]))
            except ImportError:
                return False
    return True


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_is_there(name):
    text = PAGES[name]
    dotted = set(re.findall(r"(?<![\w/.-])sgld(?:\.[A-Za-z]\w*)+", text))
    assert [d for d in sorted(dotted) if not resolves(d)] == []
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert set(re.findall(r"[`$] ?sgld ([a-z]+)", text)) <= commands
    folder = ROOT if name == "README.md" else ROOT / "docs"
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    there = lambda link: link.startswith("images/drawn/") or (folder / link).exists()  # noqa: E731
    assert [
        link for link in links if not there(link)
    ] == []  # the drawn ones: networks/test_tutorial.py
    programs = re.findall(r"(?:python |`)((?:benchmarks|tests|src)/[\w/.-]+\w)", text)
    programs += re.findall(r"(?<=[ ,|])(tests/[\w/]+(?:\.py)?)", text)
    missing = {p for p in programs if not (ROOT / p).exists()} - {"src/sgld/samplers/NAME.py"}
    assert missing == set()


def public_names():
    """Every public function and class by its dotted name."""
    for name in dir(sgld):
        if name in ("__version__", "typing", "torch"):
            continue
        thing = getattr(sgld, name)
        inner = getattr(thing, "__all__", None) if inspect.ismodule(thing) else None
        for dotted in [name] if inner is None else [f"{name}.{n}" for n in inner]:
            if inspect.isroutine(found := resolve(f"sgld.{dotted}")) or inspect.isclass(found):
                yield dotted


def resolve(dotted):
    return functools.reduce(getattr, dotted.split(".")[1:], sgld)


def test_the_reference_has_every_public_name():
    directives = re.findall(r"^\.\. auto\w+:: sgld\.([\w.]+)", PAGES["api.md"], re.MULTILINE)
    assert len(directives) == len(set(directives))
    listed = {*directives}
    things = {
        id(resolve(f"sgld.{name}"))
        for name in directives
        if not name.startswith(("torch", "draws"))
    }
    assert {name for name in public_names() if id(resolve(f"sgld.{name}")) not in things} == set()
    door = (ROOT / "src" / "sgld" / "torch" / "__init__.py").read_text()
    names = re.findall(r'"(\w+)"', door.split("__all__")[1])
    assert {f"torch.{name}" for name in names} <= listed


def test_every_page_of_the_site_is_reached_from_the_first():
    text = PAGES["index.md"]
    listed = {line for tree in re.findall(r"```{toctree}\n(.*?)```", text, re.DOTALL)
              for line in tree.splitlines() if line and not line.startswith(":")}  # fmt: skip
    assert listed == {name.removesuffix(".md") for name in PAGES} - {"index", "README"}


@pytest.mark.parametrize("name", PAGES)
def test_no_table_says_a_thing_twice(name):
    """Two people's rows of one table, both kept by a merge."""
    for table in re.findall(r"(?:^\|.*\n)+", PAGES[name], re.MULTILINE):
        lines = table.splitlines()
        assert len(set(lines)) == len(lines)
        if name in ("index.md", "rooms.md"):
            first = [line.split("|")[1] for line in lines]
            assert len(set(first)) == len(first)


def rooms():
    """The rooms of each row of the list, in its order."""
    table = re.findall(r"^\| (`.*?`) \|", PAGES["rooms.md"], re.MULTILINE)
    return [re.findall(r"`(\w+)`", row) for row in table]


def test_every_room_stands_once_in_the_list():
    source = ROOT / "src" / "sgld"
    there = {path.stem for path in source.iterdir() if path.suffix == ".py" or path.is_dir()}
    named = [name for row in rooms() for name in row]
    assert sorted(named) == sorted(there - {"__init__", "__pycache__"})


def imported_rooms(path, source):
    """The rooms that a file imports when it is imported."""
    above = ("sgld", *path.relative_to(source).parts[:-1])
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            home = [*above[: len(above) - node.level + 1], *(node.module or "").split(".")]
            names = [alias.name for alias in node.names]
            yield from [part for part in home if part][1:2] or names


def test_a_room_imports_from_rooms_above_it():
    source = ROOT / "src" / "sgld"
    height = {name: row for row, names in enumerate(rooms()) for name in names}
    found = {
        (path.relative_to(source).parts[0].removesuffix(".py"), room)
        for path in source.rglob("*.py")
        for room in imported_rooms(path, source)
    }
    found = {(room, other) for room, other in found if room in height and other in height}
    assert len(found) > 80
    assert {(room, other) for room, other in found if height[other] > height[room]} == set()


def test_docstrings_are_laid_out_for_the_site():
    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "docs" / "docstrings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = inspect.getdoc(sgld.SGHMC).splitlines()
    found = module.rendered(lines)
    assert (
        "* ``friction``: alpha, the share of the velocity that a step takes away, in (0, 1)."
        in found
    )
    start = found.index(".. code-block:: pycon")
    assert found[start + 2].startswith("    >>> import jax")
    laid = module.rendered(
        ["A *star*, `code_` and x_.", "", "    theta' = theta + h_1", "", "Raises: UsageError."]
    )
    words = [line for line in laid if line]
    assert words == [
        r"A \*star\*, ``code_`` and x\_.",
        "::",
        "    theta' = theta + h_1",
        "**Raises:** UsageError.",
    ]


def test_the_makefile_has_every_target_that_is_named():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for text in (*PAGES.values(), (ROOT / "CONTRIBUTING.md").read_text()):
        named = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, re.MULTILINE)
        assert set(named) <= targets
