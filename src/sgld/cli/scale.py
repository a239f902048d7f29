"""The commands of large data: plan."""

from __future__ import annotations

from typing import Annotated

from ..errors import UsageError
from .app import command, typer

__all__ = ["plan"]


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
    from ..tune.scaling import scaled

    try:
        count = float(rows)
    except ValueError:
        count = 0.5
    if not count.is_integer():
        raise UsageError(f"--rows must be a whole number, such as 1e9. Got {rows!r}.")
    typer.echo(str(scaled(int(count), columns, devices, device)))
