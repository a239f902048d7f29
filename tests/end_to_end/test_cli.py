"""The command line as a user meets it: statuses, sentences, files, kills."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import signal
import subprocess
import sys
import types

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import sgld
from sgld.interfaces.cli import app
from sgld.regression.families import FAMILIES

COLUMNS = {
    "mean", "sd", "q05", "q50", "q95", "mcse_mean", "ess_bulk", "ess_tail", "r_hat", "sd_ratio",
    "sd_ratio_se", "r2", "mean_corrected", "sd_corrected",
}  # fmt: skip
KEYS = {
    "verdict", "reasons", "num_data", "num_steps", "num_chains", "num_draws", "seconds",
    "parameters",
}  # fmt: skip
COMMANDS = (
    "demo", "fit", "resume", "summary", "verify", "report", "predict", "reference", "halve", "gallery",
    "plan", "update", "watch",
)  # fmt: skip
# a step by hand, so that no time goes into tuning, and a checkpoint after every chunk of draws
LONG = ("--step-size", "0.0003", "--draws", "60000", "--chains", "2", "--checkpoint-every", "1e-9")


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def spawn(*arguments, command=(sys.executable, "-m", "sgld"), **options):
    options = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([*command, *(str(a) for a in arguments)], **options)


def read_terminal(ours):
    """Everything written to the other side, until that is closed."""
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    return shown


def digest(path):
    draws = sgld.load(path)
    content = hashlib.sha256()
    for name in sorted(draws.position):
        content.update(np.ascontiguousarray(draws.position[name]).tobytes())
    content.update(np.ascontiguousarray(draws.log_weight).tobytes())
    return content.hexdigest()


def lines(text):
    """Those that are not told every ten seconds, of which a slow machine sees some."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith("sgld  ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table in CSV and Parquet, and what can be wrong with one."""
    path = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(5)
    x, z = rng.normal(size=200), rng.normal(2000, 3, size=200)
    table = pyarrow.table(
        {
            "x": x,
            "z": z,
            "y": 1 + 2 * x - 0.5 * (z - 2000) + rng.normal(size=200),
            "hit": (rng.random(200) < 1 / (1 + np.exp(-x))).astype(int),
            "one": np.ones(200),
        }
    )
    pyarrow.csv.write_csv(table, path / "rows.csv")
    pyarrow.parquet.write_table(table, path / "rows.parquet")
    text = (path / "rows.csv").read_text().splitlines()

    def write(name, rows):
        (path / name).write_text("\n".join(rows) + "\n")

    def cell(row, value):
        cells = text[row].split(",")
        return [*text[:row], ",".join([value, *cells[1:]]), *text[row + 1 :]]

    write("no_rows.csv", text[:1])
    (path / "zero_bytes.csv").write_bytes(b"")
    write("ragged.csv", [*text[:4], text[4] + ",1", *text[5:]])
    write("named.parquet", text)
    write("nan.csv", cell(7, "nan"))
    write("inf.csv", cell(9, "inf"))
    return path


@pytest.fixture(scope="module")
def finished(folder):
    """A gaussian run from CSV and what was printed."""
    out = folder / "runs" / "gaussian"
    return out, run("fit", folder / "rows.csv", "y ~ x + z", "--out", out)


# -- help -----------------------------------------------------------------------------------


def test_help_is_quick_because_it_imports_nothing_but_typer():
    code = (
        "import sys, typer, typer.testing as t; a = typer.Typer(); a.command()(lambda: None);"
        "assert t.CliRunner().invoke(a, ['--help']).exit_code == 0; before = set(sys.modules);"
        "from sgld.interfaces.cli import app; r = t.CliRunner().invoke(app, ['--help']);"
        "assert r.exit_code == 0; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    packages = {name.split(".")[0] for name in done.stdout.split()}
    assert packages - set(sys.stdlib_module_names) == {"sgld"}
    own = {name for name in done.stdout.split() if name.startswith("sgld.")}
    own -= {"sgld.errors", "sgld.interfaces"}
    assert own and all(n.startswith("sgld.interfaces.cli") for n in own)
    help_ = spawn("--help")
    assert "fit" in help_.communicate()[0] and help_.returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example:  sgld {command}" in result.output


def test_fit_help_names_every_option_and_family():
    text = run("fit", "--help").output
    for option in (
        "family", "prior", "tolerance", "draws", "chains", "batch-size", "step-size",
        "temperature", "sampler", "seed", "checkpoint-every", "overwrite", "quiet", "json",
        "strict", "out",
    ):  # fmt: skip
        assert f"--{option}" in text
    for family in FAMILIES:
        assert family in text


# -- refusals -------------------------------------------------------------------------------

REFUSED = {
    "missing file": ("row.csv", "y ~ x", (), ["row.csv", "Did you mean 'rows.csv'?"]),
    "unknown column": ("rows.csv", "y ~ xx", (), ["'xx'", "Did you mean 'x'?"]),
    "unknown outcome": ("rows.csv", "yy ~ x", (), ["'yy'", "Did you mean 'y'?"]),
    "bad formula": ("rows.csv", "y x", (), ["'y x' cannot be read"]),
    "unknown family": (
        "rows.csv", "y ~ x", ("--family", "posson"), ["family", "Did you mean 'poisson'?"],
    ),
    "no rows": ("no_rows.csv", "y ~ x", (), ["no rows"]),
    "zero bytes": ("zero_bytes.csv", "y ~ x", (), ["empty"]),
    "ragged": ("ragged.csv", "y ~ x", (), ["line 5", "6 cells"]),
    "not parquet": ("named.parquet", "y ~ x", (), ["Parquet"]),
    "nan cell": ("nan.csv", "y ~ x", ("--missing", "error"), ["'x'", "row 7"]),
    "inf cell": ("inf.csv", "y ~ x", (), ["'x' is inf", "row 9"]),
    "label out of range": ("rows.csv", "y ~ x", ("--family", "bernoulli"), ["0 or 1", "'y'"]),
    "count out of range": ("rows.csv", "y ~ x", ("--family", "poisson"), ["'y'", "row"]),
    "constant column": ("rows.csv", "y ~ x + one", (), ["'one' is constant"]),
    "batch above N": ("rows.csv", "y ~ x", ("--batch-size", 201), ["200", "201"]),
    "step 0": ("rows.csv", "y ~ x", ("--step-size", 0), ["--step-size must be positive", "0"]),
    "step -1": ("rows.csv", "y ~ x", ("--step-size", -1), ["--step-size must be positive", "-1"]),
    "step nan": ("rows.csv", "y ~ x", ("--step-size", "nan"), ["--step-size must be finite"]),
    "temperature 0": ("rows.csv", "y ~ x", ("--temperature", 0), ["temperature must be positive"]),
    "temperature -1": (
        "rows.csv", "y ~ x", ("--temperature", -1), ["temperature must be positive"],
    ),
    "prior": ("rows.csv", "y ~ x", ("--prior", "norml(0, 1)"), ["Did you mean 'normal'?"]),
    "prior sd": ("rows.csv", "y ~ x", ("--prior", "normal(0, -1)"), ["sd must be positive"]),
    "sampler": ("rows.csv", "y ~ x", ("--sampler", "sgdl"), ["Did you mean 'sgld'?"]),
    "tolerance": ("rows.csv", "y ~ x", ("--tolerance", 2), ["tolerance must lie in (0, 0.5]"]),
    "chains": ("rows.csv", "y ~ x", ("--chains", 0), ["--chains must be"]),
    "draws": ("rows.csv", "y ~ x", ("--draws", 0), ["--draws must be"]),
    "seed": ("rows.csv", "y ~ x", ("--seed", -1), ["seed"]),
    "checkpoints": ("rows.csv", "y ~ x", ("--checkpoint-every", 0), ["--checkpoint-every must be"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence_and_nothing_written(folder, case):
    data, formula, options, said = REFUSED[case]
    before = sorted(folder.rglob("*"))
    result = run("fit", folder / data, formula, "--out", folder / "new" / "run", *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(lines(result.stderr)) == 1
    for words in said:
        assert words in result.stderr
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("options", [("--draws", "many"), ("--drows", "3")])
def test_usage_errors_exit_2(folder, options):
    result = run("fit", folder / "rows.csv", "y ~ x", "--out", folder / "new", *options)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert not (folder / "new").exists()


def test_refused_in_a_process_of_its_own(folder):
    done = spawn("fit", folder / "inf.csv", "y ~ x", "--out", folder / "new")
    out, err = done.communicate()
    assert (done.returncode, out, len(lines(err))) == (2, "", 1)
    assert "Traceback" not in err
    assert not (folder / "new").exists()


@pytest.mark.parametrize("command", ["resume", "summary", "report", "predict"])
def test_no_run_there(folder, command):
    extra = ("rows.csv", "--out", folder / "p.csv") if command == "predict" else ()
    result = run(command, folder / "nowhere", *extra)
    assert result.exit_code == 2
    assert len(lines(result.stderr)) == 1 and "nowhere" in result.stderr


# -- a run, and what can be asked of it -----------------------------------------------------


def test_fit_prints_the_question_priors_plan_table_and_verdict(finished):
    out, result = finished
    assert result.exit_code == 0, result.output
    for words in ("y ~ x + z", "gaussian", "200 rows", "priors", "half-normal", "plan", "SGLD"):
        assert words in result.stdout
    for name in ("Intercept", "x", "z", "sigma"):
        assert any(line.startswith(name) for line in lines(result.stdout))
    assert "verdict: trusted - " in result.stdout
    assert "\x1b[" not in result.stdout
    asked = json.loads((out / "run.json").read_text())
    assert asked["kind"] == "formula" and asked["formula"] == "y ~ x + z"
    assert asked["seed"] == 0 and asked["versions"]["sgld"] == sgld.__version__


def test_summary_json_has_the_published_keys(finished):
    out, _ = finished
    stored = json.loads((out / "summary.json").read_text())
    assert set(stored) == KEYS
    assert list(stored["parameters"]) == ["Intercept", "x", "z", "sigma"]
    for row in stored["parameters"].values():
        assert set(row) == COLUMNS
        assert (row["mean_corrected"] is None) == (row["r2"] <= 0.9)
    assert stored["num_data"] == 200
    assert abs(stored["parameters"]["x"]["mean"] - 2) < 0.3


def test_summary_repeats_table_and_verdict(finished):
    out, printed = finished
    result = run("summary", out)
    assert result.exit_code == 0
    assert result.stdout.strip() in printed.stdout
    assert json.loads(run("summary", out, "--json").stdout) == json.loads(
        (out / "summary.json").read_text()
    )
    assert run("summary", out, "--quiet").stdout.startswith("verdict: trusted")


def test_sandwich_intervals_name_their_target_and_are_not_trusted(finished):
    result = run("summary", finished[0], "--sandwich")
    assert result.exit_code == 0 and "sandwich-calibrated" in result.stdout
    content = json.loads(run("summary", finished[0], "--sandwich", "--json").stdout)
    assert list(content["parameters"]) == ["Intercept", "x", "z", "sigma"]
    assert run("summary", finished[0], "--sandwich", "--strict").exit_code == 3


@pytest.mark.slow
def test_max_steps_is_kept_and_asked_again(folder):
    out = folder / "runs" / "limited"
    result = run("fit", folder / "rows.csv", "y ~ x", "--out", out, "--max-steps", "300", "--quiet")
    assert result.exit_code == 0, result.output
    assert json.loads((out / "summary.json").read_text())["num_steps"] <= 300
    assert json.loads((out / "run.json").read_text())["request"]["max_steps"] == 300
    assert (
        run("fit", folder / "rows.csv", "y ~ x", "--out", out, "--max-seconds", "0").exit_code == 2
    )


def test_the_verdict_is_coloured_on_a_terminal(finished):
    ours, theirs = pty.openpty()
    process = spawn("summary", finished[0], stdout=theirs)
    os.close(theirs)
    shown = read_terminal(ours)
    assert process.wait() == 0 and process.communicate()[1] == ""
    assert b"\x1b[32m\x1b[1mverdict: trusted" in shown


def test_resuming_a_finished_run_is_no_error(finished):
    before = digest(finished[0])
    result = run("resume", finished[0], "--quiet")
    assert result.exit_code == 0
    assert digest(finished[0]) == before


def test_an_existing_run_is_overwritten_only_when_asked(folder, finished):
    out, _ = finished
    before = digest(out)
    result = run("fit", folder / "rows.csv", "y ~ x", "--out", out)
    assert result.exit_code == 2 and "--overwrite" in result.stderr
    assert digest(out) == before
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / "thesis.txt").write_text("years of work")
    again = run("fit", folder / "rows.csv", "y ~ x", "--out", folder / "mine", "--overwrite")
    assert again.exit_code == 2
    assert [p.name for p in (folder / "mine").iterdir()] == ["thesis.txt"]


def test_parquet_gives_the_draws_of_csv(folder, finished):
    out = folder / "runs" / "parquet"
    result = run("fit", folder / "rows.parquet", "y ~ x + z", "--out", out, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json.loads((out / "summary.json").read_text())
    assert digest(out) == digest(finished[0])
    # what stands there goes only when the new call has passed
    other = run("fit", folder / "inf.csv", "y ~ x", "--out", out, "--overwrite")
    assert other.exit_code == 2 and digest(out) == digest(finished[0])


def test_strict_exits_3_unless_trusted(folder, finished):
    assert run("summary", finished[0], "--strict").exit_code == 0
    few = ("--draws", "20", "--quiet", "--strict")
    out = folder / "runs" / "few"
    result = run("fit", folder / "rows.csv", "y ~ x + z", "--out", out, *few)
    assert result.exit_code == 3
    assert lines(result.stdout) == [result.stdout.strip()]
    assert result.stdout.startswith("verdict: not mixed - ")


def test_a_step_too_large_is_a_verdict_not_a_crash(folder):
    out = folder / "runs" / "wild"
    options = ("--step-size", "10", "--strict")
    result = run("fit", folder / "rows.csv", "y ~ x + z", "--out", out, *options)
    assert result.exit_code == 3, result.output
    assert "verdict: biased - all 4 chains failed; chain 0 became non-finite" in result.stdout


def write_nothing(run_path, model):
    raise RuntimeError("no room left.")


def test_a_failing_report_does_not_lose_the_run(finished, monkeypatch):
    page = types.SimpleNamespace(write_report=write_nothing)
    monkeypatch.setitem(sys.modules, "sgld.interfaces.report.page", page)
    result = run("resume", finished[0], "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["verdict"] == "trusted"
    assert len(lines(result.stderr)) == 1
    assert "no room left" in result.stderr and "sgld report" in result.stderr


def test_report(finished):
    pytest.importorskip("sgld.interfaces.report.page")
    out, printed = finished
    assert f"report: {out / 'report.html'}" in printed.stdout
    (out / "report.html").unlink()
    result = run("report", out)
    assert result.exit_code == 0 and result.stdout.strip() == str(out / "report.html")
    assert (out / "report.html").stat().st_size > 1000


@pytest.fixture
def unknown(tmp_path):
    """One case in twelve, and a step given by hand: too far from Gaussian for the meter."""
    path, out = tmp_path / "few.csv", tmp_path / "run"
    path.write_text("dose,ill\n" + "".join(f"{i / 3:.2f},{int(i == 11)}\n" for i in range(12)))
    given = ("--step-size", 0.1, "--draws", 20_000, "--batch-size", 12)
    return out, run("fit", path, "ill ~ dose", "--family", "bernoulli", "--out", out, *given)


def test_from_unknown_to_a_confirmed_word(unknown):
    out, fitted = unknown
    assert fitted.exit_code == 0, fitted.output
    assert "verdict: unknown" in fitted.stdout
    assert f"sgld halve {out}, or with NUTS: sgld reference {out}." in fitted.stdout
    page = (out / "report.html").read_text()
    assert f"sgld reference {out}" in page and "sgld.reference" not in page
    found = run("reference", out, "--strict")
    assert found.exit_code == 0, found.output
    assert "worst: mean of" in found.stdout and "reference: trusted" in found.stdout
    assert "verdict: trusted - confirmed by NUTS: an sd is" in found.stdout
    for said in (run("summary", out).stdout, (out / "report.html").read_text()):
        assert "onfirmed by NUTS" in said
    assert json.loads((out / "summary.json").read_text())["verdict"] == "trusted"
    assert "confirmation.json" in run("verify", out).stdout
    assert json.loads(run("reference", out, "--json").stdout)["verdict"] == "trusted"


def test_half_the_step_at_the_command_line(unknown):
    out, _ = unknown
    found = run("halve", out)
    assert found.exit_code == 0, found.output
    assert "sd(h)/sd(h/2)" in found.stdout and "half the step" in found.stdout
    told = sgld.load(out).verdict
    assert told.confirmed_by == "half the step" or "compared with half the step" in str(told)


def test_a_run_of_python_is_confirmed_in_python(tmp_path):
    path = sgld.Draws.of({"x": np.random.default_rng(0).normal(size=(4, 500))}).save(tmp_path / "r")
    for command in ("reference", "halve"):
        found = run(command, path)
        assert found.exit_code == 2 and "sgld.confirm(" in found.stderr


def test_predict_gaussian(folder, finished):
    out = folder / "p.csv"
    result = run("predict", finished[0], folder / "rows.parquet", "--out", out)
    assert result.exit_code == 0, result.output
    answer = pyarrow.csv.read_csv(out)
    assert answer.column_names == ["mean", "sd", "lower", "upper"]
    y = pyarrow.parquet.read_table(folder / "rows.parquet")["y"].to_numpy()
    mean, lower, upper = (answer[name].to_numpy() for name in ("mean", "lower", "upper"))
    assert np.corrcoef(mean, y)[0, 1] > 0.9
    assert 0.82 < np.mean((lower <= y) & (y <= upper)) < 0.98
    again = run("predict", finished[0], folder / "rows.parquet", "--out", out)
    assert again.exit_code == 2 and "--overwrite" in again.stderr
    half = run(
        "predict", finished[0], folder / "rows.csv", "--out", out, "--overwrite", "--prob", ".5"
    )
    assert half.exit_code == 0
    narrow = pyarrow.csv.read_csv(out)
    assert np.all(narrow["upper"].to_numpy() < upper)


def test_predict_bernoulli_adds_the_probability(folder):
    run_path, out = folder / "runs" / "bernoulli", folder / "p.parquet"
    prior = ("--prior", "normal(0, 2)")
    fitted = run(
        "fit", folder / "rows.csv", "hit ~ x", "--family", "bernoulli", *prior, "--out", run_path
    )
    assert fitted.exit_code == 0 and "normal(0, 2)" in fitted.stdout
    assert run("predict", run_path, folder / "rows.csv", "--out", out).exit_code == 0
    answer = pyarrow.parquet.read_table(out)
    assert answer.column_names == ["mean", "sd", "lower", "upper", "probability"]
    assert answer.num_rows == 200
    assert np.all((answer["probability"].to_numpy() > 0) & (answer["probability"].to_numpy() < 1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("rows.csv", "--out", "q.xlsx"), ".parquet or .csv"),
        (("rows.csv", "--out", "q.csv", "--prob", "1"), "prob must lie between 0 and 1"),
        (("none.csv", "--out", "q.csv"), "no file"),
    ],
)
def test_predict_refuses(folder, finished, options, said):
    data, _, out, *rest = options
    result = run("predict", finished[0], folder / data, "--out", folder / out, *rest)
    assert result.exit_code == 2
    assert len(lines(result.stderr)) == 1 and said in result.stderr
    assert not (folder / out).exists()


# -- killed, interrupted --------------------------------------------------------------------


# what the process sends itself as it writes its third checkpoint: nobody waits, and it has not ended
SIGNALLED = """
import signal, sys
from sgld.interfaces.cli import main
from sgld.results.run_directory import RunDirectory
number, write, written = signal.Signals[sys.argv.pop(1)], RunDirectory.write_checkpoint, []
def write_and_signal(directory, *given):
    written.append(None)
    if len(written) == 3:
        signal.raise_signal(number)
    write(directory, *given)
RunDirectory.write_checkpoint = write_and_signal
main()
"""


@pytest.fixture(scope="module")
def stopped(folder):
    """Two long runs, one killed and one interrupted at their third checkpoint, and a whole one."""
    arguments = ("fit", folder / "rows.csv", "y ~ x + z", *LONG)
    paths = {name: folder / "runs" / name for name in ("whole", "killed", "interrupted")}
    begin = (sys.executable, "-c", SIGNALLED)
    killed = spawn("SIGKILL", *arguments, "--quiet", "--out", paths["killed"], command=begin)
    ours, theirs = pty.openpty()  # standard error a terminal: with progress
    interrupted = spawn(
        "SIGINT", *arguments, "--out", paths["interrupted"], command=begin, stderr=theirs
    )
    os.close(theirs)
    shown = read_terminal(ours).decode()
    out, _ = interrupted.communicate()
    ends = {"killed": killed.communicate(), "interrupted": (out, shown)}
    for name in ends:
        assert (paths[name] / "checkpoint.npz").exists(), ends[name]
        assert not (paths[name] / "result.json").exists(), name
    assert run(*arguments, "--quiet", "--out", paths["whole"]).exit_code == 0
    return paths, ends, {"killed": killed.returncode, "interrupted": interrupted.returncode}


def test_killed_then_resumed_is_the_uninterrupted_run(stopped):
    paths, _, statuses = stopped
    assert statuses["killed"] == -signal.SIGKILL
    unfinished = run("summary", paths["killed"])
    assert unfinished.exit_code == 2 and f"sgld resume {paths['killed']}" in unfinished.stderr
    checked = run("verify", paths["killed"]).stdout
    assert "not finished: " in checked and "draws per chain are stored; resume it: " in checked
    assert f"sgld resume {paths['killed']}\n" in checked
    result = run("resume", paths["killed"], "--quiet")
    assert result.exit_code == 0, result.output
    assert digest(paths["killed"]) == digest(paths["whole"])


def test_interrupted_exits_130_says_how_to_go_on_and_does(stopped):
    paths, ends, statuses = stopped
    out, err = ends["interrupted"]
    assert statuses["interrupted"] == 130
    assert "plan" in out and "trusted" not in out
    assert "sampling" in err  # the progress line
    assert "interrupted" in err and "are stored" in err
    assert f"sgld resume {paths['interrupted']}" in err and "Traceback" not in err
    assert run("resume", paths["interrupted"], "--quiet").exit_code == 0
    assert digest(paths["interrupted"]) == digest(paths["whole"])


def test_a_run_begun_but_not_started_resumes_from_the_start(folder, finished):
    out = folder / "runs" / "begun"
    out.mkdir(parents=True)
    (out / "run.json").write_bytes((finished[0] / "run.json").read_bytes())
    assert run("resume", out, "--quiet").exit_code == 0
    assert digest(out) == digest(finished[0])


# -- the demo -------------------------------------------------------------------------------


def test_demo(tmp_path):
    result = run("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    assert "20190 rows" in result.stdout
    assert "verdict: trusted" in result.stdout
    stored = json.loads((tmp_path / "demo" / "summary.json").read_text())["parameters"]
    # physlm of the maximum likelihood fit, of which the posterior mean is .01 sd off
    assert abs(stored["physlm"]["mean"] - 0.2718) < 0.2 * 0.0123


@pytest.mark.parametrize("quiet", [True, False])
def test_a_model_that_does_not_fit_is_printed_with_the_verdict(
    tmp_path, monkeypatch, capsys, quiet
):
    from sgld.inference.tuning.gaussian import misfit_notes

    shell = sys.modules["sgld.interfaces.cli.app"]
    content = {"verdict": "trusted", "reasons": ["a reason."], "parameters": {}}
    monkeypatch.setattr(shell, "content_of", lambda run: content)
    monkeypatch.setattr(shell, "_unstored_facts", lambda run: {"notes": misfit_notes(2.0, 1000)})
    shell.show(tmp_path, quiet, False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (1 if quiet else 2)
    assert "can be trusted" in lines[-1] and "does not fit" in lines[-1]
