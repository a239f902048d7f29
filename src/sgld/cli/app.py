"""The application, the options that commands share, and how a command answers a mistake."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from ..errors import MissingExtra, SGLDError, need, plain

try:
    typer: Any = need("typer", "cli")
except MissingExtra as error:  # the console script imports this module
    print(error, file=sys.stderr)
    sys.exit(2)

__all__ = [
    "CheckpointEvery",
    "Decimal",
    "Json",
    "OfDatabase",
    "OfTable",
    "Overwrite",
    "OwnDecimal",
    "Quiet",
    "Run",
    "Sep",
    "Strict",
    "app",
    "command",
    "main",
    "typer",
]

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
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what stands there.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the verdict line only.")]
Json = Annotated[bool, typer.Option("--json", help="Print summary.json and nothing else.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 3 when the verdict is not `trusted`.")
]
Sep = Annotated[
    str | None,
    typer.Option(
        "--sep", metavar="SIGN", show_default="as the file shows",
        help="Between the cells of a file of text: a sign, or comma, semicolon, tab, bar, space.",
    ),
]  # fmt: skip
OfTable = Annotated[
    str | None,
    typer.Option(
        "--table", metavar="NAME", show_default="the only one", help="Of a database file."
    ),
]
OfDatabase = Annotated[
    Path | None,
    typer.Option(
        "--database", metavar="FILE", show_default="none",
        help="DuckDB or SQLite, that a query is asked of.",
    ),
]  # fmt: skip
Decimal = Annotated[
    str, typer.Option("--decimal", metavar="SIGN", help="Decimal point of a file of text, . or ,")
]
OwnDecimal = Annotated[
    str | None,
    typer.Option(
        "--decimal", metavar="SIGN", show_default="the run's, of a file that ends in the same letters",
        help="Decimal point of a file of text, . or ,",
    ),
]  # fmt: skip
CheckpointEvery = Annotated[
    float, typer.Option("--checkpoint-every", metavar="SECONDS", help="Between checkpoints.")
]


def main() -> None:
    """The console script."""
    warnings.formatwarning = lambda message, *_: f"{plain(_in_our_words(str(message), {}))}\n"
    app(prog_name="sgld")


def command(example: str, makes: str | None = None) -> Callable:
    """A command with an example in its help, whose errors are sentences.

    `makes` is its argument that names the run it makes or goes on with.
    """

    def register(function: Callable) -> Callable:
        @functools.wraps(function)
        def answered(**arguments: Any) -> None:
            from ..core.compilation import use_cache

            use_cache()
            try:
                function(**arguments)
            except SGLDError as error:
                typer.echo(_in_our_words(str(error), arguments), err=True)
                raise typer.Exit(2) from None
            except (OSError, MemoryError) as error:
                if isinstance(error, BrokenPipeError):
                    raise  # whoever read the output has seen enough
                typer.echo(_of_the_machine(error), err=True)
                raise typer.Exit(2) from None
            except KeyboardInterrupt as error:
                run = None if makes is None else arguments[makes]
                said = _in_our_words(_what_is_kept(error, run), arguments)
                typer.echo(f"interrupted{said}", err=True)
                raise typer.Exit(130) from None

        text = f"[dim]Example:[/dim]  {example}"
        app.command(function.__name__, epilog=text.replace("\n", "\n\n"))(answered)
        return answered

    return register


def _of_the_machine(error: OSError | MemoryError) -> str:
    """What the operating system refused, in a sentence."""
    if isinstance(error, MemoryError):
        return "there is not enough memory for this; give fewer rows, columns, chains or draws."
    return plain(f"{error.filename or 'a file'} cannot be used: {error.strerror or error}.")


def _in_our_words(sentence: str, arguments: dict[str, Any]) -> str:
    """What the package says, in the words of the command line."""
    from ..results.run_directory import at_the_shell

    return at_the_shell(sentence, arguments.get("run") or arguments.get("out") or "RUN")


def _what_is_kept(error: KeyboardInterrupt, run: Path | None) -> str:
    """The sentence that comes with Ctrl-C, or is made here of the run that is at work."""
    notes = getattr(error, "__notes__", None)
    if notes:
        return f"; {notes[-1]}"
    if run is None:
        return "."
    from ..results.run_directory import RunDirectory, kept

    return f"; {kept(RunDirectory(run))}"
