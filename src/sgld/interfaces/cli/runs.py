"""Commands on a finished run: summary, report, verify, predict, reference, halve.

`reference` and `halve` compare the run with NUTS, or with a run at a halved step size.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ...errors import RunError, UsageError
from .app import (
    DatabaseFile,
    Json,
    Overwrite,
    OwnDecimal,
    Quiet,
    Run,
    Sep,
    Strict,
    TableName,
    at_work,
    command,
    content_of,
    exit_strict,
    show,
    typer,
    write_page,
)

if TYPE_CHECKING:
    from ...inference.step_halving import Halving
    from ...regression.formula import FormulaModel
    from ...results.draws import Draws

PREDICTION_KINDS = ("outcome", "mean", "class")
TABLE_SUFFIXES = (".parquet", ".csv")


@command("sgld summary run/")
def summary(
    run: Run,
    sandwich: Annotated[
        bool, typer.Option("--sandwich", help="Use the spread over other samples of the rows.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    strict: Strict = False,
) -> None:
    """Print the table and the verdict of a finished run, or the progress of one that is running.

    sd_ratio is the run's sd over the posterior's, as the bias meter predicts it: 1 is right.
    """
    if sandwich:
        from ...core.progress import stage

        with at_work(quiet or as_json, "regression.fit") as models, stage("sandwich"):
            found = models.sandwich_of_run(run).summary()
        typer.echo(json.dumps(found.to_dict()) if as_json else str(found))
        if strict:
            raise typer.Exit(3)  # a distribution other than the posterior is never `trusted`
        return
    if _is_running(run):
        from ..report.live import as_lines, read_live

        live = read_live(run)
        typer.echo(json.dumps(live.as_json()) if as_json else live.word() if quiet else as_lines(live))  # fmt: skip
        if strict:
            raise typer.Exit(3)  # there is no verdict yet
        return
    show(run, quiet, as_json)
    exit_strict(run, strict)


def _is_running(run: Path) -> bool:
    """Return whether a process is working on a run that has no verdict yet."""
    from ...results.run_directory import RunDirectory

    directory = RunDirectory(run)
    return directory.path.is_dir() and not directory.finished() and directory.in_use()


@command("sgld verify run/")
def verify(run: Run) -> None:
    """Read every file of a run, finished or not, and compare it with what was written."""
    from ...results.run_directory import RunDirectory, at_the_shell, kept

    with at_work(False, "results.storage") as storage:
        files = storage.verify(run)
    for name, size in files.items():
        typer.echo(f"{size:>14,} bytes  {name}")
    typer.echo(f"{run}: {len(files)} files, all unchanged since they were written.")
    directory = RunDirectory(run)
    if not directory.finished():
        busy = "a process is working on it" if directory.in_use() else kept(directory)
        typer.echo(f"the run is not finished: {at_the_shell(busy, run)}")


@command("sgld report run/")
def report(
    run: Run,
    title: Annotated[
        str, typer.Option("--title", metavar="TEXT", show_default="the formula", help="Heading of the page.")
    ] = "",
) -> None:  # fmt: skip
    """Write report.html, one self-contained file, and print its path."""
    from ...core.progress import stage

    with at_work(False, "interfaces.report.page") as page, stage("report"):
        content_of(run)  # raises if there is nothing to report
        path = page.write_report(run, title=title)
    typer.echo(str(path))


@command("sgld predict run/ new.parquet --out predictions.parquet")
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
    kind: Annotated[
        str,
        typer.Option(
            "--kind", metavar="KIND", autocompletion=lambda: list(PREDICTION_KINDS),
            help="outcome: a new outcome; mean: its expectation; class: the most likely level.",
        ),
    ] = "outcome",
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", metavar="COLUMN", show_default="none",
            help="Column of DATA to copy to the predictions; may be repeated.",
        ),
    ] = None,
    table: TableName = None,
    database: DatabaseFile = None,
    sep: Sep = None,
    decimal: OwnDecimal = None,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Predict the outcome of each row, in order: mean, sd, lower, upper.

    sd and interval describe the outcome itself, noise included (--kind mean: its expectation).
    A bernoulli run adds `probability`. A row with a missing cell, or with a level that
    the fit does not have, has no prediction.
    """
    from ...core.files import exists
    from ...core.progress import stage

    if out.suffix.lower() not in TABLE_SUFFIXES:
        raise UsageError(f"--out must end in {' or '.join(TABLE_SUFFIXES)}. Got {str(out)!r}.")
    if exists(out) and not overwrite:
        raise RunError(f"{out} already exists; choose another file, or overwrite it (--overwrite).")
    with at_work(False, "regression.fit") as models, stage("predicting"):
        tables = models.predict(
            run, data, kind=kind, prob=prob, ids=ids or (), table=table, database=database,
            sep=sep, decimal=decimal,
        )  # fmt: skip
        names, rows, empty = _write_tables(tables, out)
    left = (
        f" ({empty:,} of them empty: a cell they need is missing, or holds a level that the fit does not have)"
        if empty
        else ""
    )
    typer.echo(f"{rows} rows of {', '.join(names)}{left}: {out}")


def _write_tables(tables: Iterator[Any], out: Path) -> tuple[list[str], int, int]:
    """Write tables of one schema as they arrive.

    Returns the columns, the number of rows, and the number of rows without prediction.
    """
    import pyarrow.csv
    import pyarrow.parquet

    from ...core.files import written

    first = next(tables)
    rows = empty = 0
    parquet = out.suffix.lower() == ".parquet"
    nested = [field.name for field in first.schema if pyarrow.types.is_nested(field.type)]
    if nested and not parquet:
        raise UsageError(
            f"column {nested[0]!r} holds several values per cell, which a .csv file cannot store; write --out "
            "as .parquet, or leave it out of --id."
        )
    writer = pyarrow.parquet.ParquetWriter if parquet else pyarrow.csv.CSVWriter
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out} could not be written: {error.strerror or error}.") from error

    def write(file: Any) -> None:
        nonlocal rows, empty
        with writer(file, first.schema) as pages:
            for table in itertools.chain([first], tables):
                pages.write_table(table)
                rows += table.num_rows
                empty += table.column(table.num_columns - 1).null_count

    written(out, write)
    return first.column_names, rows, empty


# -- confirm -------------------------------------------------------------------------------


REPORT_STAGES = ("data", "mode", "curvature", "other modes", "sampling", "verdict", "report")

Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of all random numbers.")]


@command("sgld reference run/")
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
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
    strict: Strict = False,
) -> None:  # fmt: skip
    """Sample a finished run's posterior by an exact method on all rows, and judge the run by it.

    Slow: every step reads every row. Means differ in units of the reference's sd; an sd ratio
    above 1 means that the run is too wide. The verdict is stored with the run.
    """
    from ...results.summary import compare

    silent = quiet or as_json
    with at_work(silent, "inference.reference", REPORT_STAGES) as referee:
        done, model = _finished_fit(run, "sgld.reference")
        if (done.temperature != 1).any():
            raise UsageError(
                f"{run} has temperature {float(done.temperature.flat[0]):g}: its draws do not follow "
                "the posterior, which a reference samples."
            )
        truth = referee.reference(
            model.posterior, model.data, method=method, num_chains=chains, num_draws=draws,
            seed=seed, progress=not silent,
        )  # fmt: skip
        said = f"{compare(done, truth)}\nreference: {truth.verdict}"
        _confirm(run, truth, said, quiet, as_json, strict)


@command("sgld halve run/")
def halve(
    run: Run,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", show_default="the run's plus 1", help="Seed of all random numbers."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    strict: Strict = False,
) -> None:  # fmt: skip
    """Run again with a halved step size, extrapolate to step size 0, and judge the run by it.

    Costs twice the run's steps. It detects what changes with the step size, but neither other modes
    nor heavy tails. The verdict is stored with the run.
    """
    silent = quiet or as_json
    with at_work(silent, "inference.step_halving", REPORT_STAGES) as referee:
        done, model = _finished_fit(run, "sgld.step_halving")
        found = referee.step_halving(
            model.posterior, model.data, done, seed=seed, progress=not silent
        )
        _confirm(run, found, str(found), quiet, as_json, strict)


def _finished_fit(run: Path, function: str) -> tuple[Draws, FormulaModel]:
    """Return draws and model of a finished run of `sgld fit`."""
    from ...core.progress import stage
    from ...regression.fit import model_of_run
    from ...results.run_directory import RunDirectory
    from ...results.storage import load

    with stage("data"):
        done, asked = load(run), RunDirectory(run).begun()
    if asked.get("kind") != "formula":
        raise RunError(
            f"{run} was not made by `sgld fit`, so the command line does not know its model; use {function} "
            f"and sgld.confirm({str(run)!r}, ...)."
        )
    with stage("data"):
        return done, model_of_run(asked)


def _confirm(
    run: Path, found: Draws | Halving, said: Any, quiet: bool, as_json: bool, strict: bool
) -> None:
    """Store the result of a check, and print it with the run's verdict."""
    from ...core.progress import aside, stage
    from ...inference.confirm import confirm

    with stage("verdict"):
        confirm(run, found)
    with aside():
        if not (quiet or as_json):
            typer.echo(f"{said}\n")
        show(run, quiet=not as_json, as_json=as_json)
    write_page(run, silent=quiet or as_json)
    exit_strict(run, strict)
