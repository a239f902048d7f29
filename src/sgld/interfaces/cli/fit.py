"""Commands that make or continue runs: demo, fit, resume, gallery."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

from ...errors import RunError
from .app import (
    CheckpointEvery,
    DatabaseFile,
    Decimal,
    Json,
    Overwrite,
    Quiet,
    Run,
    Sep,
    Strict,
    TableName,
    at_work,
    command,
    exit_strict,
    finish,
    print_model,
    print_plan,
    typer,
)  # fmt: skip

# names for shell completion, which must not import JAX
FAMILY_NAMES = (
    "gaussian", "student-t", "bernoulli", "binomial", "categorical", "poisson", "negative-binomial", "gamma",
    "lognormal",
)  # fmt: skip
DEMO_FORMULA = "mdvis ~ lncoins + idp + lpi + fmde + physlm + disea + hlthg + hlthf + hlthp"


@command("sgld demo", makes="out")
def demo(
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="The run directory to make.")
    ] = Path("runs/demo"),
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: Json = False,
    strict: Strict = False,
) -> None:
    """Fit the example data of the package, end to end.

    RAND health insurance experiment: visits to a doctor in 20190 person-years, Poisson. An existing
    demo at --out is replaced.
    """
    from ...data.tables import bundled

    path = bundled("randhie")
    arguments = {"family": "poisson", "overwrite": overwrite or _is_demo(out, path)}
    _fit(path, DEMO_FORMULA, out, arguments, quiet, as_json)
    if not (quiet or as_json):
        typer.echo("\nnext: your own table, sgld fit DATA FORMULA --out RUN (sgld fit --help)")
    exit_strict(out, strict)


def _is_demo(run: Path, path: Path) -> bool:
    from ...results.run_directory import RunDirectory

    try:
        asked = RunDirectory(run).begun()
    except RunError:
        return False
    source = asked.get("data") or {}
    return asked.get("formula") == DEMO_FORMULA and source.get("absolute") == str(path.absolute())


@command(
    'sgld fit visits.parquet "mdvis ~ lncoins + physlm + C(hlthg)" --family poisson --out run/',
    makes="out",
)
def fit(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A .csv (.csv.gz, .tsv, .txt), .parquet or .arrow file, a folder of them, a DuckDB or SQLite file, or a SQL query.",
        ),
    ],
    formula: Annotated[
        str, typer.Argument(metavar="FORMULA", help='"outcome ~ predictors"; C(x) is a category, offset(log(x)) an offset. In single quotes: \'cost ~ `body mass` + age\'.')
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="The run directory to make.")
    ],
    family: Annotated[
        str,
        typer.Option(
            "--family", metavar="F", autocompletion=lambda: list(FAMILY_NAMES),
            help="gaussian, student-t (the outcome itself); bernoulli, binomial, categorical (log odds); "
            "poisson, negative-binomial, gamma (log of the mean); lognormal (log of the median).",
        ),
    ] = "gaussian",
    prior: Annotated[
        str | None,
        typer.Option(
            "--prior", metavar="PRIOR", show_default="scaled from the data",
            help='Prior of every coefficient, on the original scale: "normal(mean, sd)", '
            '"student_t(df, loc, scale)" or "laplace(loc, scale)".',
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option("--weights", metavar="COLUMN", show_default="1", help="Weight of each row."),
    ] = None,
    trials: Annotated[
        str | None,
        typer.Option(
            "--trials", metavar="COLUMN", show_default="none", help="Trials of a binomial outcome."
        ),
    ] = None,
    missing: Annotated[
        str,
        typer.Option(
            "--missing", metavar="HOW", autocompletion=lambda: ["drop", "error"],
            help="drop: leave out rows with a missing cell; error: stop.",
        ),
    ] = "drop",
    table: TableName = None,
    database: DatabaseFile = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", metavar="X", help="Acceptable relative error of the sd."),
    ] = 0.05,
    draws: Annotated[
        int | None,
        typer.Option("--draws", metavar="N", show_default="auto", help="Kept draws per chain."),
    ] = None,
    chains: Annotated[
        int | None,
        typer.Option("--chains", metavar="N", show_default="auto", help="Independent chains."),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", metavar="N", show_default="auto", help="Rows per step."),
    ] = None,
    step_size: Annotated[
        float | None,
        typer.Option(
            "--step-size", metavar="H", show_default="auto",
            help="Factor of the gradient of the full-data log posterior, for standardised columns.",
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option("--temperature", metavar="T", help="Sample posterior^(1/T)."),
    ] = 1.0,
    sampler: Annotated[
        str, typer.Option("--sampler", metavar="NAME", help="auto or sgld.")
    ] = "auto",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed of all random numbers.")
    ] = 0,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", metavar="S", show_default="none", help="Time limit of tuning, sampling and verdict."),
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option("--max-steps", metavar="N", show_default="none", help="Step limit of one chain."),
    ] = None,
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
        "weights": weights,
        "trials": trials,
        "missing": missing,
        "table": table,
        "database": database,
        "sep": sep,
        "decimal": decimal,
        "tolerance": tolerance,
        "num_draws": "auto" if draws is None else draws,
        "num_chains": "auto" if chains is None else chains,
        "batch_size": "auto" if batch_size is None else batch_size,
        "step_size": "auto" if step_size is None else step_size,
        "temperature": temperature,
        "sampler": sampler,
        "seed": seed,
        "max_steps": max_steps,
        "max_seconds": max_seconds,
        "checkpoint_every": checkpoint_every,
        "overwrite": overwrite,
    }
    _fit(data, formula, out, arguments, quiet, as_json)
    exit_strict(out, strict)


def _fit(
    data: str | Path, formula: str, out: Path, arguments: dict[str, Any], quiet: bool, as_json: bool
) -> None:
    from ...core.progress import SAMPLING_STAGES

    silent = quiet or as_json
    say: dict[str, Any] = {}
    if not silent:
        say = {
            "on_model": functools.partial(print_model, data),
            "on_plan": functools.partial(print_plan, out),
        }
    with at_work(silent, "regression.fit", (*SAMPLING_STAGES, "report")) as models:
        fit = models.fit(data, formula, out=out, progress=not silent, **arguments, **say)
        finish(out, quiet, as_json, fit.model)


@command("sgld resume run/", makes="run")
def resume(
    run: Run,
    checkpoint_every: CheckpointEvery = 10.0,
    quiet: Quiet = False,
    as_json: Json = False,
    strict: Strict = False,
) -> None:
    """Continue a killed or interrupted run, to the same draws as an uninterrupted one."""
    from ...core.progress import SAMPLING_STAGES

    silent = quiet or as_json
    with at_work(silent, "regression.fit", (*SAMPLING_STAGES, "report")) as models:
        from ...core.validation import positive

        positive("checkpoint_every", checkpoint_every, ", in seconds")
        models.resume(run, progress=not silent, checkpoint_every=checkpoint_every)
        finish(run, quiet, as_json)
    exit_strict(run, strict)


@command(
    "sgld gallery X1 X6 --out gallery --quick\nsgld gallery X9 --data a9a    [dim](your own table)[/dim]"
)
def gallery(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="X1 to X11; by default all.", show_default=False),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write pages to.")
    ] = Path("gallery"),
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="FILE", show_default="breast cancer data",
            help="For X9: your own table with two labels, such as -1 and +1 or 0 and 1. A .csv "
            "has a line of names, then numbers, with the label in the last column; any other file is "
            "read as libsvm: label index:value ...",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller runs: minutes in total.")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of all random numbers.")] = 0,
) -> None:  # fmt: skip
    """Run the documented experiments, compare them with exact answers, and write their pages."""
    import sgld

    results = sgld.gallery.make(
        names or (), out, quick=quick, seed=seed, data=data,
        on_result=lambda result: typer.echo(str(result)),
    )  # fmt: skip
    typer.echo(f"gallery: {out / 'index.html'}")
    if any(result.missed for result in results):
        raise typer.Exit(3)
