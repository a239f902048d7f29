"""Command that makes the gallery."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from .app import command, typer


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
