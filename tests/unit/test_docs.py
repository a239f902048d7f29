"""The examples of README.md and of every page of docs run, and print what the pages say.

Those of docs/pytorch.md run beside the torch door, those of docs/networks.md in its own slow test.
"""

import importlib
import re
import shlex
from importlib import resources
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import sgld
from sgld.cli import app

ROOT = Path(__file__).parents[2]
PAGES = {page.name: page.read_text() for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"))}
ELSEWHERE = {"arviz.md", "keep.md", "notebooks.md", "numpyro.md", "pytorch.md", "networks.md"}


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


# -- what runs, page by page -----------------------------------------------------------------


def test_no_page_has_python_that_is_not_run():
    run = {
        "README.md", "new-sampler.md", "new-source.md", "scikit-learn.md", "tables.md", "variational.md",
        "verdict.md",
    }  # fmt: skip
    assert {name for name in PAGES if python_of(name)} == run | ELSEWHERE


def test_the_python_of_the_readme(capsys):
    names = execute("README.md")
    printed = capsys.readouterr().out
    agree(printed, PAGES["README.md"], [f"x[{i}]" for i in range(5)])
    assert names["draws"].verdict.word == "trusted"
    assert (
        str(names["model"].verdict_) in printed
        and str(names["model"].verdict_) in PAGES["README.md"]
    )
    for line in (
        "target: the posterior",
        "verdict: trusted",
        "  sd within 4% on all 5 parameters.",
    ):
        assert line in printed and line in PAGES["README.md"]


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
        assert line in fitted.stdout and line in text
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
        printed = without_numbers(done.stdout)
        for line in said:
            assert line == "..." or without_numbers(line) in printed, line
    assert [s.split()[0] for s in sessions] == ["fit", "reference", "summary"]


def rows_of(lines):
    """The parameters whose means and sds a session shows."""
    return [] if not any("ess_bulk" in line for line in lines) else list(rows("\n".join(lines)))


def without_numbers(text):
    """The words, single spaces between them."""
    return " ".join(re.sub(r"[-+]?\d[\d.]*|(?<= )-(?=$|\n)", "#", text).split())


ROWS = np.random.default_rng(0).normal(1.0, 1.0, 200).astype(np.float32)
MODEL = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
GIVEN = {"posterior": MODEL, "data": ROWS, "init": jnp.zeros(1), "sgld": sgld}


def test_the_page_on_tables(capsys):
    names = execute("tables.md")
    fit, printed = names["fit"], capsys.readouterr().out
    assert "19998 rows (2 more left out: a cell they need is missing)" in printed
    assert fit.verdict.word == "trusted", fit.verdict
    truth = {"age": -0.01, "C(town)[T.outer]": -0.4, "C(town)[T.rural]": -0.4, "concentration": 2.0}
    table = fit.summary().parameters
    for name, value in truth.items():
        assert abs(table[name]["mean"] - value) < 4 * table[name]["sd"], name
    found = fit.predict(names["new"])
    assert list(found.columns) == ["mean", "sd", "lower", "upper"] and (found["sd"] > 0).all()


def test_the_page_on_scikit_learn(capsys):
    names = execute("scikit-learn.md")
    printed, said = capsys.readouterr().out, fenced(PAGES["scikit-learn.md"], "text")[0]
    agree(printed, said, ["age", "sigma"])
    for line in (*said.splitlines()[:2], "trusted\n"):
        assert line in printed
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
    assert [link for link in links if not (folder / link).exists()] == []
    programs = re.findall(r"(?:python |`)((?:benchmarks|tests|src)/[\w/.-]+\w)", text)
    programs += re.findall(r"(?<=[ ,|])(tests/[\w/]+(?:\.py)?)", text)
    missing = {p for p in programs if not (ROOT / p).exists()} - {"src/sgld/sampler/NAME.py"}
    assert missing == set()


def test_the_makefile_has_every_target_that_is_named():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for text in (*PAGES.values(), (ROOT / "CONTRIBUTING.md").read_text()):
        named = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, re.MULTILINE)
        assert set(named) <= targets
