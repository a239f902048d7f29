"""The commands of large and growing data: plan, update."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ...errors import UsageError
from .app import (
    CheckpointEvery,
    Json,
    Overwrite,
    OwnDecimal,
    Quiet,
    Run,
    Sep,
    Strict,
    at_work,
    command,
    exit_strict,
    finish,
    typer,
)


@command("sgld plan --rows 1e9 --columns 100 --devices 64")
def plan(
    rows: Annotated[
        str, typer.Option("--rows", metavar="N", help="Of the table; 1e9 is understood.")
    ],
    columns: Annotated[int, typer.Option("--columns", metavar="P", help="Numbers of a row.")],
    devices: Annotated[
        int, typer.Option("--devices", metavar="D", help="That rows are laid over.")
    ] = 1,
    device: Annotated[
        str, typer.Option("--device", metavar="KIND", help="core or accelerator.")
    ] = "core",
) -> None:
    """What a run would take: bytes a device, collectives, time and scaling, by counted operations.

    Nothing is run. docs/cluster.md says how such a run is begun.
    """
    from ...inference.tuning.scaling import scaled

    try:
        count = float(rows)
    except ValueError:
        count = 0.5
    if not count.is_integer():
        raise UsageError(f"--rows must be a whole number, such as 1e9. Got {rows!r}.")
    typer.echo(str(scaled(int(count), columns, devices, device)))


@command("sgld update run/ new.parquet --out run2/")
def update(
    run: Run,
    new: Annotated[
        str | None, typer.Argument(metavar="[NEW]", help="A file of more rows.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="RUN", show_default="RUN-updated", help="The run directory to make."
        ),
    ] = None,
    drop: Annotated[
        str,
        typer.Option(
            "--drop",
            metavar="ROWS",
            help="Numbers of rows to forget, from 0: 3,17 or a file of them.",
        ),
    ] = "",
    sep: Sep = None,
    decimal: OwnDecimal = None,
    overwrite: Overwrite = False,
    checkpoint_every: CheckpointEvery = 10.0,
    quiet: Quiet = False,
    as_json: Json = False,
    strict: Strict = False,
) -> None:
    """A finished run again on data that have grown, or without some of its rows.

    Centre and metric are the run's, moved by what the rows that came or went say; prior and
    standardisation are those of the first fit. The verdict is measured as ever.
    """
    from ...core.progress import SAMPLING_STAGES

    made, silent = _beside(run) if out is None else out, quiet or as_json
    with at_work(silent, "regression.update", (*SAMPLING_STAGES, "report")) as models:
        models.update(
            run, new, out=made, drop=_rows(drop), sep=sep, decimal=decimal, overwrite=overwrite,
            checkpoint_every=checkpoint_every, progress=not silent,
        )  # fmt: skip
        finish(made, quiet, as_json)
    exit_strict(made, strict)


def _beside(run: Path) -> Path:
    """RUN-updated; of "." and the like by the folder's own name."""
    named = run if run.name not in ("", "..") else run.resolve()
    if not named.name:
        raise UsageError(f"{run} has no name to make another of; give --out.")
    return named.with_name(f"{named.name}-updated")


def _rows(text: str) -> list[int]:
    """Numbers between commas, or one to a line of a file."""
    words = text.replace(",", " ").split()
    if words and not all(word.isdigit() for word in words) and Path(text).is_file():
        words = Path(text).read_text(errors="replace").replace(",", " ").split()
    wrong = next((word for word in words if not word.isdigit()), None)
    if wrong is not None:
        raise UsageError(f"--drop must be numbers of rows, or a file of them. Got {wrong[:40]!r}.")
    return [int(word) for word in words]
