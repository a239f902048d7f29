"""The commands that ask a finished run: summary, report, reference, predict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

from ..errors import RunError, UsageError
from .app import Json, Overwrite, Quiet, Run, Strict, command, typer
from .show import content_of, exit_strict, show

__all__ = ["predict", "reference", "report", "summary", "verify"]

TABLE_SUFFIXES = (".parquet", ".csv")


@command("sgld summary run/")
def summary(
    run: Run,
    sandwich: Annotated[
        bool,
        typer.Option("--sandwich", help="Spread to what other samples of the rows would give."),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    strict: Strict = False,
) -> None:
    """The table and the verdict of a finished run.

    sd_ratio is the run's sd over the posterior's, as the bias meter predicts it: 1 is right.
    """
    if sandwich:
        from ..models.fit import sandwich_of_run

        found = sandwich_of_run(run).summary()
        typer.echo(json.dumps(found.to_dict()) if as_json else str(found))
        if strict:
            raise typer.Exit(3)  # another law than the posterior's is never `trusted`
        return
    show(run, quiet, as_json)
    exit_strict(run, strict)


@command("sgld verify run/")
def verify(run: Run) -> None:
    """Read every file of a run, finished or not, and hold it against what was written."""
    from ..draws.storage import verify as verified

    files = verified(run)
    for name, size in files.items():
        typer.echo(f"{size:>14,} bytes  {name}")
    typer.echo(f"{run}: {len(files)} files, all as they were written.")


@command("sgld report run/")
def report(run: Run) -> None:
    """Write report.html, one file that needs nothing else, and print its path."""
    content_of(run)  # raises where there is nothing to report
    from ..report.page import write_report

    typer.echo(str(write_report(run)))


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
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Of everything random.")
    ] = 0,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Sample a finished run's posterior by an exact method on all rows, and compare.

    Slow: every step reads every row. Means differ in units of the reference's sd; an sd ratio
    above 1 means that the run is too wide.
    """
    from ..draws.comparison import compare
    from ..draws.run_directory import RunDirectory
    from ..draws.storage import load
    from ..models.fit import model_of_run
    from ..referee.reference import reference as exact
    from ..typing import Method

    done, asked = load(run), RunDirectory(run).begun()
    if asked.get("kind") != "formula":
        raise RunError(f"{run} was not made by `sgld fit`; use sgld.reference and sgld.compare.")
    if (done.temperature != 1).any():
        raise UsageError(
            f"{run} has temperature {float(done.temperature.flat[0]):g}: its law is not the "
            "posterior, which is what a reference samples."
        )
    model = model_of_run(asked)
    truth = exact(
        model.posterior, model.data, method=cast(Method, method), num_chains=chains,
        num_draws=draws, seed=seed, progress=not quiet,
    )  # fmt: skip
    table = str(compare(done, truth))
    typer.echo(table.rsplit("\n", 1)[1] if quiet else table)
    typer.echo(f"reference: {truth.verdict}")


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
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Predict the outcome of each row, in order: mean, sd, lower, upper.

    sd and interval are of the outcome itself, its noise included. A bernoulli run adds
    `probability`.
    """
    from ..draws.files import exists
    from ..models.fit import predict as predicted

    if out.suffix.lower() not in TABLE_SUFFIXES:
        raise UsageError(f"--out must end in {' or '.join(TABLE_SUFFIXES)}. Got {str(out)!r}.")
    if exists(out) and not overwrite:
        raise RunError(f"{out} already exists; choose another file, or overwrite it (--overwrite).")
    columns = predicted(run, data, prob=prob)
    _write_table(columns, out)
    typer.echo(f"{len(columns['mean'])} rows of {', '.join(columns)}: {out}")


def _write_table(columns: dict[str, Any], out: Path) -> None:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    from ..draws.files import written

    parquet = out.suffix.lower() == ".parquet"
    write = pyarrow.parquet.write_table if parquet else pyarrow.csv.write_csv
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out} could not be written: {error.strerror or error}.") from error
    written(out, lambda file: write(pyarrow.table(columns), file))
