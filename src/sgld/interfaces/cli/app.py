"""The command-line application, shared options, error handling, and printed output."""

from __future__ import annotations

import functools
import importlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ...errors import MissingExtra, SGLDError, need, plain

if TYPE_CHECKING:
    from ...regression.formula import FormulaModel
    from ...results.plan import Plan

try:
    typer: Any = need("typer", "cli")
except MissingExtra as error:  # the console script imports this module
    print(error, file=sys.stderr)
    sys.exit(2)


app = typer.Typer(
    name="sgld",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Bayesian regression at the cost of stochastic gradient descent, with a verdict on every "
    "run.\n\nTry it: [bold]sgld demo[/bold]",
)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the verdict line only.")]
Json = Annotated[bool, typer.Option("--json", help="Print summary.json and nothing else.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 3 when the verdict is not `trusted`.")
]
Sep = Annotated[
    str | None,
    typer.Option(
        "--sep", metavar="SIGN", show_default="as the file shows",
        help="Separator of a text file: a character, or comma, semicolon, tab, bar, space.",
    ),
]  # fmt: skip
TableName = Annotated[
    str | None,
    typer.Option(
        "--table", metavar="NAME", show_default="the only one", help="Table of a database file."
    ),
]
DatabaseFile = Annotated[
    Path | None,
    typer.Option(
        "--database", metavar="FILE", show_default="none",
        help="DuckDB or SQLite file on which a query runs.",
    ),
]  # fmt: skip
Decimal = Annotated[
    str, typer.Option("--decimal", metavar="SIGN", help="Decimal point of a text file, . or ,")
]
OwnDecimal = Annotated[
    str | None,
    typer.Option(
        "--decimal", metavar="SIGN", show_default="the run's, if the file has the same suffix",
        help="Decimal point of a text file, . or ,",
    ),
]  # fmt: skip
CheckpointEvery = Annotated[
    float, typer.Option("--checkpoint-every", metavar="SECONDS", help="Checkpoint interval.")
]


def main() -> None:
    """Run the console script."""
    warnings.formatwarning = lambda message, *_: f"{plain(_shell_spelling(str(message), {}))}\n"
    app(prog_name="sgld")


def command(example: str, makes: str | None = None) -> Callable:
    """Register a command with an example in its help; errors are printed as sentences.

    `makes` is the argument that names the run that the command creates or continues.
    """

    def register(function: Callable) -> Callable:
        @functools.wraps(function)
        def answered(**arguments: Any) -> None:
            from ...compilation import use_cache

            use_cache()
            try:
                function(**arguments)
            except SGLDError as error:
                typer.echo(_shell_spelling(str(error), arguments), err=True)
                raise typer.Exit(2) from None
            except (OSError, MemoryError) as error:
                if isinstance(error, BrokenPipeError):
                    raise  # the reader of the output closed it
                typer.echo(_system_error(error), err=True)
                raise typer.Exit(2) from None
            except KeyboardInterrupt as error:
                run = None if makes is None else arguments[makes]
                said = _shell_spelling(_stored_part(error, run), arguments)
                typer.echo(f"interrupted{said}", err=True)
                raise typer.Exit(130) from None

        text = f"[dim]Example:[/dim]  {example}"
        app.command(function.__name__, epilog=text.replace("\n", "\n\n"))(answered)
        return answered

    return register


def _system_error(error: OSError | MemoryError) -> str:
    """Return a sentence that says what the operating system refused."""
    if isinstance(error, MemoryError):
        return "there is not enough memory; use fewer rows, columns, chains or draws."
    return plain(f"{error.filename or 'a file'} cannot be used: {error.strerror or error}.")


def _shell_spelling(sentence: str, arguments: dict[str, Any]) -> str:
    """Translate a message of the package into the spelling of the command line."""
    from ...results.run_directory import at_the_shell

    return at_the_shell(sentence, arguments.get("run") or arguments.get("out") or "RUN")


def _stored_part(error: KeyboardInterrupt, run: Path | None) -> str:
    """Return the sentence on what an interrupted run keeps."""
    notes = getattr(error, "__notes__", None)
    if notes:
        return f"; {notes[-1]}"
    if run is None:
        return "."
    from ...results.run_directory import RunDirectory, kept

    return f"; {kept(RunDirectory(run))}"


# -- show ----------------------------------------------------------------------------------


VERDICT_COLOURS = {"trusted": "green", "biased": "red", "not mixed": "yellow", "unknown": "yellow"}
MAX_PRIORS = 20


@contextmanager
def at_work(silent: bool, module: str, ahead: Sequence[str] = ()) -> Iterator[Any]:
    """Show a stage line while `module` of this package and JAX are imported, and then used.

    The line appears after the first second. Ctrl-C in the middle of an import of JAX would kill the
    process, or be lost, so `Work` handles it afterwards. With stages `ahead`, the duration of each
    stage stays on the screen.
    """
    from ...core.progress import progress_shown
    from ...core.work import Work

    with progress_shown(not silent, ahead, summary=bool(ahead)):
        with Work("data") as work:
            found = importlib.import_module(f"sgld.{module}")
            work.check()
        yield found


def print_model(data: str | Path, model: FormulaModel) -> None:
    """Print the formula, the family, the rows and the priors."""
    typer.echo(f"{model.spec['design']['formula']}")
    what = f"{model.family.name} ({model.family.link}), {model.num_data} rows of {data}"
    if model.num_dropped:
        from ...results.summary import left_out

        what += f" ({left_out(model.num_dropped)})"
    typer.echo(what)
    if model.spec.get("words"):
        from ...regression.rows import as_numbers

        typer.echo(f"{model.spec['design']['outcome']}: {as_numbers(model.spec['words'])}")
    priors = [line.split(" ~ ", 1) for line in model.prior_text[:MAX_PRIORS]]
    from ...core.text import columns

    lines = columns([[name, f"~ {prior}"] for name, prior in priors], left=(0, 1))
    left = len(model.prior_text) - len(priors)
    _print_block("priors", [*lines, *([f"and {left} more in run.json"] if left else [])])
    if model.posterior.notes:  # printed before the search, which may be slow because of them
        _print_block("note", model.posterior.notes)


def print_plan(run: Path, plan: Plan) -> None:
    """Print the sampler, the step size and the chains of a plan."""
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
        "Kronecker": "in units of the gradients' common scale (Kronecker preconditioner)",
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
    _print_block("plan", lines)  # its notes stand with the verdict


def _print_block(title: str, lines: Any) -> None:
    typer.echo("")
    for i, line in enumerate(lines):
        typer.echo(f"{title if i == 0 else '':<8}{line}")


def finish(run: Path, quiet: bool, as_json: bool, model: FormulaModel | None = None) -> None:
    """Print the table and the verdict of a run, and write its report."""
    from ...core.progress import aside

    with aside():
        if not (quiet or as_json):
            typer.echo("")
        show(run, quiet, as_json)
    write_page(run, quiet or as_json, model)


def write_page(run: Path, silent: bool, model: FormulaModel | None = None) -> None:
    """Write the report and print its path; a failure loses nothing.

    `model` is the model with its rows, if they were read.
    """
    from ...core.progress import aside, stage

    try:
        with stage("report"):
            from ..report.page import write_report

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
    """Return summary.json of a finished run; without parameters if every chain failed."""
    from ...results.run_directory import RunDirectory
    from ...results.storage import load, table_of

    directory = RunDirectory(run)
    content = table_of(directory) if directory.finished() else None
    if content is not None:
        return content
    draws = load(run)  # raises if there is no finished run
    if draws.healthy.size:
        return draws.summary().to_dict()
    word, reasons = draws.verdict.word, draws.verdict.reasons
    facts = {name: draws.info.get(name) for name in ("num_data", "num_steps", "seconds")}
    counts = {"num_chains": draws.num_chains, "num_draws": draws.num_draws}
    return {"verdict": word, "reasons": list(reasons), **facts, **counts, "parameters": {}}


def show(run: Path, quiet: bool, as_json: bool) -> None:
    """Print the table and the verdict, the verdict alone, or summary.json."""
    from ...core.files import reading

    with reading(run):
        _show(run, quiet, as_json)


def _show(run: Path, quiet: bool, as_json: bool) -> None:
    from ...results.run_directory import at_the_shell
    from ...results.verdict import split_misfit

    content = content_of(run)
    if as_json:
        typer.echo(json.dumps(content, indent=2))
        return
    facts = _unstored_facts(run)
    if not quiet and (content["parameters"] or content.get("layers")):
        typer.echo(plain(_table(content, facts)) + "\n")
    word = content["verdict"]
    typer.secho(plain(f"verdict: {word}"), fg=VERDICT_COLOURS.get(word), bold=True, nl=False)
    between = " " if quiet else "\n" + " " * len("verdict: ")
    reasons = between.join(at_the_shell(reason, run) for reason in content["reasons"])
    misfit, _ = split_misfit(word, facts["notes"])
    typer.echo(plain(" - " + reasons), nl=not (quiet and misfit))
    if misfit:
        typer.secho(plain(" " * quiet + misfit), fg="yellow", bold=True)


def _unstored_facts(run: Path) -> dict[str, Any]:
    """Return target, phase and notes, which the table shows and summary.json does not hold."""
    from ...results.run_directory import RunDirectory, at_the_shell

    directory = RunDirectory(run)
    unstored = directory.read("result.json").get("told", {}) if directory.finished() else {}
    notes = [at_the_shell(note, run) for note in unstored.get("notes") or ()]
    said = directory.said_of_next()
    return {**unstored, "notes": notes if said is None else [said, *notes]}


def _table(content: dict[str, Any], unstored: dict[str, Any]) -> str:
    """Return the summary's text without its verdict; fewer columns if the terminal is narrow."""
    import shutil

    from ...core.text import MAX_LINE_CHARACTERS
    from ...results.summary import Summary

    facts = {k: v for k, v in content.items() if k not in ("verdict", "reasons", "parameters")}
    facts |= unstored
    rows = content["parameters"]
    width = MAX_LINE_CHARACTERS
    if sys.stdout.isatty():
        width = min(width, shutil.get_terminal_size().columns)
    return "\n".join(Summary(rows, content["verdict"], (), facts).lines(width))


def exit_strict(run: Path, strict: bool) -> None:
    """Exit with status 3 with --strict, unless the verdict is `trusted`."""
    if strict and content_of(run)["verdict"] != "trusted":
        raise typer.Exit(3)
