"""The command line: it asks, prints and exits; the work is done elsewhere.

Exit status 0 done, 2 wrong use or data (one sentence on standard error), 3 with --strict when
the verdict is not `trusted` or a check of the gallery missed, 130 interrupted. Only typer is imported here, so that help is quick.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .errors import MissingExtra, RunError, SGLDError, UsageError, need

try:
    typer: Any = need("typer", "cli")
except MissingExtra as error:  # the console script imports this module
    print(error, file=sys.stderr)
    sys.exit(2)

if TYPE_CHECKING:
    from .models.formula import FormulaModel
    from .tune.request import Plan

__all__ = ["app", "main"]

COLOURS = {"trusted": "green", "biased": "red", "not mixed": "yellow", "unknown": "yellow"}
DEMO = "mdvis ~ lncoins + idp + lpi + fmde + physlm + disea + hlthg + hlthf + hlthp"
MOST_PRIORS = 20
TABLE_SUFFIXES = (".parquet", ".csv")

app = typer.Typer(
    name="sgld",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Bayesian regression at the cost of stochastic gradient descent, with a verdict on every "
    "run.\n\nTry it: [bold]sgld demo[/bold]",
)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what stands there.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the verdict line only.")]
Json = Annotated[bool, typer.Option("--json", help="Print summary.json and nothing else.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 3 when the verdict is not `trusted`.")
]
CheckpointEvery = Annotated[
    float, typer.Option("--checkpoint-every", metavar="SECONDS", help="Between checkpoints.")
]


def main() -> None:
    """The console script."""
    app(prog_name="sgld")


def _command(example: str) -> Callable:
    """A command with an example in its help, whose errors are sentences."""

    def register(function: Callable) -> Callable:
        @functools.wraps(function)
        def answered(**arguments: Any) -> None:
            try:
                function(**arguments)
            except SGLDError as error:
                typer.echo(str(error), err=True)
                raise typer.Exit(2) from None
            except KeyboardInterrupt:
                run = (
                    arguments.get("out")
                    if function.__name__ not in ("predict", "gallery")
                    else None
                )
                _say_how_to_resume(run or arguments.get("run"))
                raise typer.Exit(130) from None

        text = f"[dim]Example:[/dim]  {example}"
        app.command(function.__name__, epilog=text.replace("\n", "\n\n"))(answered)
        return answered

    return register


def _say_how_to_resume(run: Path | None) -> None:
    # run.json is the first file of a run and result.json the last
    begun = run is not None and (run / "run.json").exists() and not (run / "result.json").exists()
    hint = f"; go on with it: sgld resume {run}" if begun else "."
    typer.echo(f"interrupted{hint}", err=True)


@_command("sgld demo")
def demo(
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="The run directory to make.")
    ] = Path("runs/demo"),
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: Json = False,
    strict: Strict = False,
) -> None:
    """Fit the data that come with the package, end to end.

    RAND health insurance experiment: visits to a doctor in 20190 person-years, Poisson. A demo
    that stands at --out already is made again.
    """
    from .data.table import bundled

    path = bundled("randhie")
    arguments = {"family": "poisson", "overwrite": overwrite or _is_demo(out, path)}
    _fit(path, DEMO, out, arguments, quiet, as_json)
    if not (quiet or as_json):
        typer.echo("\nnext: your own table, sgld fit DATA FORMULA --out RUN (sgld fit --help)")
    _exit(out, strict)


def _is_demo(run: Path, path: Path) -> bool:
    from .draws.storage import RunDirectory

    try:
        asked = RunDirectory(run).read("run.json")
    except RunError:
        return False
    source = asked.get("data") or {}
    return asked.get("formula") == DEMO and source.get("absolute") == str(path.absolute())


@_command(
    'sgld fit visits.parquet "mdvis ~ lncoins + physlm + C(hlthg)" --family poisson --out run/'
)
def fit(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A .csv, .parquet or .arrow file.")
    ],
    formula: Annotated[
        str, typer.Argument(metavar="FORMULA", help='"outcome ~ predictors"; C(x) is a category.')
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="The run directory to make.")
    ],
    family: Annotated[
        str, typer.Option("--family", metavar="F", help="gaussian, bernoulli or poisson.")
    ] = "gaussian",
    prior: Annotated[
        str | None,
        typer.Option(
            "--prior", metavar="PRIOR", show_default="scaled from the data",
            help='Of every coefficient, original scale: "normal(mean, sd)", '
            '"student_t(df, loc, scale)" or "laplace(loc, scale)".',
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", metavar="X", help="Acceptable relative error of the sd."),
    ] = 0.05,
    draws: Annotated[
        int | None,
        typer.Option("--draws", metavar="N", show_default="auto", help="Kept draws per chain."),
    ] = None,
    chains: Annotated[
        int, typer.Option("--chains", metavar="N", help="Independent chains.")
    ] = 4,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", metavar="N", show_default="auto", help="Rows per step."),
    ] = None,
    step_size: Annotated[
        float | None,
        typer.Option(
            "--step-size", metavar="H", show_default="auto",
            help="Multiplies the gradient of the full-data log posterior, standardised columns.",
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option("--temperature", metavar="T", help="The law is posterior^(1/T)."),
    ] = 1.0,
    sampler: Annotated[
        str, typer.Option("--sampler", metavar="NAME", help="auto or sgld.")
    ] = "auto",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Of everything random.")
    ] = 0,
    checkpoint_every: CheckpointEvery = 10.0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: Json = False,
    strict: Strict = False,
) -> None:  # fmt: skip
    """Fit a regression to a table: draws, table, verdict and report."""
    arguments = {
        "family": family,
        "prior": prior,
        "tolerance": tolerance,
        "num_draws": "auto" if draws is None else draws,
        "num_chains": chains,
        "batch_size": "auto" if batch_size is None else batch_size,
        "step_size": "auto" if step_size is None else step_size,
        "temperature": temperature,
        "sampler": sampler,
        "seed": seed,
        "checkpoint_every": checkpoint_every,
        "overwrite": overwrite,
    }
    _fit(data, formula, out, arguments, quiet, as_json)
    _exit(out, strict)


def _fit(
    data: Path, formula: str, out: Path, arguments: dict[str, Any], quiet: bool, as_json: bool
) -> None:
    from .models.fit import fit as run

    silent = quiet or as_json
    say = {} if silent else {"on_model": functools.partial(_say_model, data), "on_plan": _say_plan}
    run(data, formula, out=out, progress=not silent, **arguments, **say)
    _finish(out, quiet, as_json)


@_command("sgld resume run/")
def resume(
    run: Run,
    checkpoint_every: CheckpointEvery = 10.0,
    quiet: Quiet = False,
    as_json: Json = False,
    strict: Strict = False,
) -> None:
    """Go on with a killed or interrupted run, to the same draws as an uninterrupted one."""
    from .run.sample import resume as go_on

    if not checkpoint_every > 0:
        raise UsageError(f"checkpoint_every must be positive, in seconds. Got {checkpoint_every}.")
    silent = quiet or as_json
    go_on(run, progress=not silent, checkpoint_every=checkpoint_every)
    _finish(run, quiet, as_json)
    _exit(run, strict)


@_command("sgld summary run/")
def summary(run: Run, quiet: Quiet = False, as_json: Json = False, strict: Strict = False) -> None:
    """The table and the verdict of a finished run.

    sd_ratio is the run's sd over the posterior's, as the bias meter predicts it: 1 is right.
    """
    _show(run, quiet, as_json)
    _exit(run, strict)


@_command("sgld report run/")
def report(run: Run) -> None:
    """Write report.html, one file that needs nothing else, and print its path."""
    _content(run)  # raises where there is nothing to report
    from .report.page import write_report

    typer.echo(str(write_report(run)))


@_command("sgld reference run/")
def reference(
    run: Run,
    draws: Annotated[
        int, typer.Option("--draws", metavar="N", help="Draws per chain.")
    ] = 1000,
    chains: Annotated[
        int, typer.Option("--chains", metavar="N", help="Independent chains.")
    ] = 4,
    method: Annotated[
        str, typer.Option("--method", metavar="NAME", help="nuts, hmc, mala or metropolis.")
    ] = "nuts",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Of everything random.")
    ] = 0,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Sample a finished run's posterior by an exact method on all rows, and compare.

    Slow: every step reads every row. Means differ in units of the reference's sd; an sd ratio
    above 1 means that the run is too wide.
    """
    from .draws.comparison import compare
    from .draws.storage import RunDirectory, load
    from .models.fit import model_of_run
    from .referee.reference import reference as exact

    done, asked = load(run), RunDirectory(run).read("run.json")
    if asked.get("kind") != "formula":
        raise RunError(f"{run} was not made by `sgld fit`; use sgld.reference and sgld.compare.")
    if (done.temperature != 1).any():
        raise UsageError(
            f"{run} has temperature {float(done.temperature.flat[0]):g}: its law is not the "
            "posterior, which is what a reference samples."
        )
    model = model_of_run(asked)
    truth = exact(
        model.posterior, model.data, method=method, num_chains=chains, num_draws=draws, seed=seed,
        progress=not quiet,
    )  # fmt: skip
    table = str(compare(done, truth))
    typer.echo(table.rsplit("\n", 1)[1] if quiet else table)
    typer.echo(f"reference: {truth.verdict}")


@_command("sgld gallery X1 X6 --out gallery --quick")
def gallery(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="X1 to X11; none: all.", show_default=False),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write pages to.")
    ] = Path("gallery"),
    quick: Annotated[bool, typer.Option("--quick", help="Smaller runs: minutes for all.")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of everything random.")] = 0,
) -> None:
    """Run the documented experiments against their exact answers, and write their pages."""
    from .gallery import make

    results = make(
        names or (), out, quick=quick, seed=seed, on_result=lambda result: typer.echo(str(result))
    )
    typer.echo(f"gallery: {out / 'index.html'}")
    if any(result.missed for result in results):
        raise typer.Exit(3)


@_command("sgld predict run/ new.parquet --out predictions.parquet")
def predict(
    run: Run,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Rows with the predictors' columns.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="P", help="The .parquet or .csv file to write.")
    ],
    prob: Annotated[
        float, typer.Option("--prob", metavar="P", help="Probability of the interval.")
    ] = 0.9,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Predict the outcome of each row, in order: mean, sd, lower, upper.

    sd and interval are of the outcome itself, its noise included. A bernoulli run adds
    `probability`.
    """
    from .models.fit import predict as predicted

    if out.suffix.lower() not in TABLE_SUFFIXES:
        raise UsageError(f"--out must end in {' or '.join(TABLE_SUFFIXES)}. Got {str(out)!r}.")
    if out.exists() and not overwrite:
        raise RunError(f"{out} already exists; choose another file, or overwrite it (--overwrite).")
    columns = predicted(run, data, prob=prob)
    _write_table(columns, out)
    typer.echo(f"{len(columns['mean'])} rows of {', '.join(columns)}: {out}")


def _write_table(columns: dict[str, Any], out: Path) -> None:
    import os

    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    scratch = out.with_name(out.name + ".partial")
    parquet = out.suffix.lower() == ".parquet"
    write = pyarrow.parquet.write_table if parquet else pyarrow.csv.write_csv
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write(pyarrow.table(columns), scratch)
        os.replace(scratch, out)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise RunError(f"{out} could not be written: {error.strerror or error}.") from error


# -- what is printed ------------------------------------------------------------------------


def _say_model(data: Path, model: FormulaModel) -> None:
    assert model.data is not None
    rows = len(model.data[1])
    typer.echo(f"{model.spec['design']['formula']}")
    typer.echo(f"{model.family.name} ({model.family.link}), {rows} rows of {data}")
    priors = [line.split(" ~ ", 1) for line in model.prior_text[:MOST_PRIORS]]
    width = max(len(name) for name, _ in priors)
    lines = [f"{name:<{width}}  ~ {law}" for name, law in priors]
    left = len(model.prior_text) - len(priors)
    _say("priors", [*lines, *([f"and {left} more in run.json"] if left else [])])


def _say_plan(plan: Plan) -> None:
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
        "Scalar": "without a preconditioner",
    }.get(p["preconditioner"], p["preconditioner"])
    correction = ", noise corrected" if p["noise_correction"] else ""
    steps = p["burn_in"] + p["thin"] * (p["num_draws"] - 1) + 1
    every = "every step" if p["thin"] == 1 else f"every {p['thin']} steps"
    chains = "chain" if p["num_chains"] == 1 else "chains"
    lines = [
        f"{p['sampler']}, {kind}{batches}{correction}",
        f"step size {p['step_size']:.3g} {scale}",
        f"{p['num_chains']} {chains} of {steps:,} steps: {p['burn_in']:,} of burn-in, "
        f"then {p['num_draws']:,} draws, one {every}",
    ]
    _say("plan", [*lines, *(f"note: {note}" for note in p["notes"])])


def _say(title: str, lines: Any) -> None:
    typer.echo("")
    for i, line in enumerate(lines):
        typer.echo(f"{title if i == 0 else '':<8}{line}")


def _finish(run: Path, quiet: bool, as_json: bool) -> None:
    """What a run ends with: the table, the verdict, and the report, whose failure loses nothing."""
    if not (quiet or as_json):
        typer.echo("")
    _show(run, quiet, as_json)
    try:
        from .report.page import write_report

        path = write_report(run)
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        typer.echo(
            f"the report could not be written ({reason}); the run is complete, and "
            f"`sgld report {run}` tries again.",
            err=True,
        )
    else:
        if not (quiet or as_json):
            typer.echo(f"report: {path}")


def _content(run: Path) -> dict[str, Any]:
    """summary.json of a finished run; without parameters where every chain failed."""
    from .draws.storage import RunDirectory, load

    directory = RunDirectory(run)
    if directory.finished() and (run / "summary.json").exists():
        return directory.read("summary.json")
    draws = load(run)  # raises where the run is unfinished or none
    word, reasons = ("unknown", ("the draws were not judged",))
    if draws.verdict is not None:
        word, reasons = draws.verdict.word, draws.verdict.reasons
    facts = {name: draws.info.get(name) for name in ("num_data", "num_steps", "seconds")}
    counts = {"num_chains": draws.num_chains, "num_draws": draws.num_draws}
    return {"verdict": word, "reasons": list(reasons), **facts, **counts, "parameters": {}}


def _show(run: Path, quiet: bool, as_json: bool) -> None:
    content = _content(run)
    if as_json:
        typer.echo(json.dumps(content, indent=2))
        return
    if not quiet and content["parameters"]:
        typer.echo(_table(content, _told(run)) + "\n")
    word = content["verdict"]
    typer.secho(f"verdict: {word}", fg=COLOURS.get(word), bold=True, nl=False)
    between = " " if quiet else "\n" + " " * len("verdict: ")
    typer.echo(" - " + between.join(content["reasons"]))


def _told(run: Path) -> dict[str, Any]:
    """Target, phase and notes, which the table says and summary.json leaves out."""
    from .draws.storage import RunDirectory

    directory = RunDirectory(run)
    return directory.read("result.json").get("told", {}) if directory.finished() else {}


def _table(content: dict[str, Any], told: dict[str, Any]) -> str:
    """The summary's text without its verdict; fewer columns where the terminal is narrow."""
    import shutil

    from .draws.summary import Summary

    facts = {k: v for k, v in content.items() if k not in ("verdict", "reasons", "parameters")}
    facts |= told
    rows = content["parameters"]
    text = str(Summary(rows, "", (), facts))
    if sys.stdout.isatty() and len(text.split("\n")[0]) > shutil.get_terminal_size().columns:
        narrow = {"mean_corrected": None, "sd_corrected": None}
        rows = {name: {**row, **narrow} for name, row in rows.items()}
        text = str(Summary(rows, "", (), facts))
    return text.rsplit("\n", 1)[0]


def _exit(run: Path, strict: bool) -> None:
    if strict and _content(run)["verdict"] != "trusted":
        raise typer.Exit(3)


if __name__ == "__main__":
    main()
