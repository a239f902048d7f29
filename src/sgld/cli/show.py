"""What commands print: the question, the plan, the table and the verdict."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import plain
from .app import typer

if TYPE_CHECKING:
    from ..regression.formula import FormulaModel
    from ..results.plan import Plan

__all__ = [
    "at_work",
    "content_of",
    "exit_strict",
    "finish",
    "say_model",
    "say_plan",
    "show",
    "write_page",
]

COLOURS = {"trusted": "green", "biased": "red", "not mixed": "yellow", "unknown": "yellow"}
MOST_PRIORS = 20


@contextmanager
def at_work(silent: bool, module: str, ahead: Sequence[str] = ()) -> Iterator[Any]:
    """A stage line from the first second on, while `module` of this package is imported, JAX with it, and then used.

    Ctrl-C in the middle of an import of JAX would kill, or be lost: `Work` hears it after. What each stage took
    stays where stages are `ahead`.
    """
    from ..core.progress import told
    from ..core.work import Work

    with told(not silent, ahead, summary=bool(ahead)):
        with Work("data") as work:
            found = importlib.import_module(f"..{module}", __package__)
            work.check()
        yield found


def say_model(data: str | Path, model: FormulaModel) -> None:
    """The formula, the family, the rows and the priors."""
    typer.echo(f"{model.spec['design']['formula']}")
    what = f"{model.family.name} ({model.family.link}), {model.num_data} rows of {data}"
    if model.num_dropped:
        from ..results.summary import left_out

        what += f" ({left_out(model.num_dropped)})"
    typer.echo(what)
    if model.spec.get("words"):
        from ..regression.rows import as_numbers

        typer.echo(f"{model.spec['design']['outcome']}: {as_numbers(model.spec['words'])}")
    priors = [line.split(" ~ ", 1) for line in model.prior_text[:MOST_PRIORS]]
    from ..core.text import columns

    lines = columns([[name, f"~ {law}"] for name, law in priors], left=(0, 1))
    left = len(model.prior_text) - len(priors)
    _say("priors", [*lines, *([f"and {left} more in run.json"] if left else [])])
    if model.posterior.notes:  # before the search, which may take its time because of them
        _say("note", model.posterior.notes)


def say_plan(run: Path, plan: Plan) -> None:
    """What was chosen: sampler, step size, chains."""
    p = plan.describe()
    kind = {
        "ControlVariates": "control variates around the mode",
        "Minibatch": "plain minibatches",
        "Full": "full gradients",
    }.get(p["gradient"], p["gradient"])
    rows = p["batch_size"]
    batches = "" if p["gradient"] == "Full" or rows is None else f", {rows} rows a step"
    scale = {
        "Dense": "in units of the posterior (dense preconditioner)",
        "Diagonal": "times a diagonal preconditioner",
        "Kronecker": "in units of what rows' gradients share (Kronecker preconditioner)",
        "LowRank": "in units of the posterior (diagonal plus low rank preconditioner)",
        "Scalar": "without a preconditioner",
    }.get(p["preconditioner"], p["preconditioner"])
    correction = ", noise corrected" if p["noise_correction"] else ""
    every = "every step" if p["thin"] == 1 else f"every {p['thin']} steps"
    chains = "chain" if p["num_chains"] == 1 else "chains"
    lines = [
        f"{p['sampler']}, {kind}{batches}{correction}",
        f"step size {p['step_size']:.3g} {scale}",
        f"{p['num_chains']} {chains} of {plan.setup.steps():,} steps: {p['burn_in']:,} of burn-in, "
        f"then {p['num_draws']:,} draws, one {every}",
    ]
    if plan.predicted is not None:
        lines.append(f"predicted: {plan.predicted}")
    from ..results.run_directory import at_the_shell

    _say("plan", [*lines, *(f"note: {at_the_shell(note, run)}" for note in p["notes"])])


def _say(title: str, lines: Any) -> None:
    typer.echo("")
    for i, line in enumerate(lines):
        typer.echo(f"{title if i == 0 else '':<8}{line}")


def finish(run: Path, quiet: bool, as_json: bool, model: FormulaModel | None = None) -> None:
    """What a run ends with: the table, the verdict, and the report."""
    from ..core.progress import aside

    with aside():
        if not (quiet or as_json):
            typer.echo("")
        show(run, quiet, as_json)
    write_page(run, quiet or as_json, model)


def write_page(run: Path, silent: bool, model: FormulaModel | None = None) -> None:
    """Write the report and say where it is; its failure loses nothing. `model`: with its rows, where read."""
    from ..core.progress import aside, stage

    try:
        with stage("report"):
            from ..interfaces.report.page import write_report

            path = write_report(run, model)
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        with aside():
            typer.echo(
                f"the report could not be written ({reason}); the run is complete, and "
                f"`sgld report {run}` tries again.",
                err=True,
            )
    else:
        if not silent:
            with aside():
                typer.echo(f"report: {path}")


def content_of(run: Path) -> dict[str, Any]:
    """summary.json of a finished run; without parameters where every chain failed."""
    from ..results.run_directory import RunDirectory
    from ..results.storage import load, table_of

    directory = RunDirectory(run)
    content = table_of(directory) if directory.finished() else None
    if content is not None:
        return content
    draws = load(run)  # raises where the run is unfinished or none
    if draws.healthy.size:
        return draws.summary().to_dict()
    word, reasons = draws.verdict.word, draws.verdict.reasons
    facts = {name: draws.info.get(name) for name in ("num_data", "num_steps", "seconds")}
    counts = {"num_chains": draws.num_chains, "num_draws": draws.num_draws}
    return {"verdict": word, "reasons": list(reasons), **facts, **counts, "parameters": {}}


def show(run: Path, quiet: bool, as_json: bool) -> None:
    """The table and the verdict, the verdict alone, or summary.json."""
    from ..core.files import reading

    with reading(run):
        _show(run, quiet, as_json)


def _show(run: Path, quiet: bool, as_json: bool) -> None:
    from ..results.run_directory import at_the_shell

    content = content_of(run)
    if as_json:
        typer.echo(json.dumps(content, indent=2))
        return
    if not quiet and (content["parameters"] or content.get("layers")):
        typer.echo(plain(_table(content, _told(run))) + "\n")
    word = content["verdict"]
    typer.secho(plain(f"verdict: {word}"), fg=COLOURS.get(word), bold=True, nl=False)
    between = " " if quiet else "\n" + " " * len("verdict: ")
    reasons = between.join(at_the_shell(reason, run) for reason in content["reasons"])
    typer.echo(plain(" - " + reasons))


def _told(run: Path) -> dict[str, Any]:
    """Target, phase and notes, which the table says and summary.json leaves out."""
    from ..results.run_directory import RunDirectory, at_the_shell

    directory = RunDirectory(run)
    told = directory.read("result.json").get("told", {}) if directory.finished() else {}
    notes = [at_the_shell(note, run) for note in told.get("notes") or ()]
    said = directory.said_of_next()
    return {**told, "notes": notes if said is None else [said, *notes]}


def _table(content: dict[str, Any], told: dict[str, Any]) -> str:
    """The summary's text without its verdict; fewer columns where the terminal is narrow."""
    import shutil

    from ..results.summary import Summary

    facts = {k: v for k, v in content.items() if k not in ("verdict", "reasons", "parameters")}
    facts |= told
    rows = content["parameters"]
    text = str(Summary(rows, content["verdict"], (), facts))
    if sys.stdout.isatty() and len(text.split("\n")[0]) > shutil.get_terminal_size().columns:
        narrow = {"mean_corrected": None, "sd_corrected": None}
        rows = {name: {**row, **narrow} for name, row in rows.items()}
        text = str(Summary(rows, content["verdict"], (), facts))
    return text.rsplit("\n", 1)[0]


def exit_strict(run: Path, strict: bool) -> None:
    """With --strict, exit status 3 unless the verdict is `trusted`."""
    if strict and content_of(run)["verdict"] != "trusted":
        raise typer.Exit(3)
