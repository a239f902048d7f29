"""Commands for large and growing data: plan, update."""

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
        str, typer.Option("--rows", metavar="N", help="Rows of the table, such as 1e9.")
    ],
    columns: Annotated[int, typer.Option("--columns", metavar="P", help="Numbers per row.")],
    devices: Annotated[
        int, typer.Option("--devices", metavar="D", help="Devices that share the rows.")
    ] = 1,
    device: Annotated[
        str, typer.Option("--device", metavar="KIND", help="core or accelerator.")
    ] = "core",
) -> None:
    """Predict the cost of a run: bytes per device, collectives, time and scaling.

    The prediction counts operations; nothing is run. docs/cluster.md explains how to start such a run.
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
            help="Numbers of rows to remove, from 0: 3,17 or a file of them.",
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
    """Update a finished run for data that have grown, or without some of its rows.

    Centre and metric are those of the run, adjusted for the added or removed rows; prior and
    standardisation are those of the first fit. The verdict is measured as for any run.
    """
    from ...core.progress import SAMPLING_STAGES

    made, silent = _default_out(run) if out is None else out, quiet or as_json
    with at_work(silent, "regression.update", (*SAMPLING_STAGES, "report")) as models:
        models.update(
            run, new, out=made, drop=_rows(drop), sep=sep, decimal=decimal, overwrite=overwrite,
            checkpoint_every=checkpoint_every, progress=not silent,
        )  # fmt: skip
        finish(made, quiet, as_json)
    exit_strict(made, strict)


def _default_out(run: Path) -> Path:
    """Return RUN-updated; for "." and similar paths the folder's own name is used."""
    named = run if run.name not in ("", "..") else run.resolve()
    if not named.name:
        raise UsageError(f"{run} has no name to derive a new name from; give --out.")
    return named.with_name(f"{named.name}-updated")


def _rows(text: str) -> list[int]:
    """Parse row numbers separated by commas, or read them from a file."""
    words = text.replace(",", " ").split()
    if words and not all(word.isdigit() for word in words) and Path(text).is_file():
        words = Path(text).read_text(errors="replace").replace(",", " ").split()
    wrong = next((word for word in words if not word.isdigit()), None)
    if wrong is not None:
        raise UsageError(f"--drop must be row numbers, or a file of them. Got {wrong[:40]!r}.")
    return [int(word) for word in words]
