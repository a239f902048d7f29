"""The commands that hold a finished run against NUTS or half its step: reference, halve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..errors import RunError, UsageError
from .app import Json, Quiet, Run, Strict, command, typer
from .show import at_work, exit_strict, show, write_page

if TYPE_CHECKING:
    from ..inference.step_halving import Halving
    from ..regression.formula import FormulaModel
    from ..results.draws import Draws

__all__ = ["halve", "reference"]

AHEAD = ("data", "mode", "curvature", "other modes", "sampling", "verdict", "report")

Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of everything random.")]


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
    """Sample a finished run's posterior by an exact method on all rows, compare, and judge the run by it.

    Slow: every step reads every row. Means differ in units of the reference's sd; an sd ratio
    above 1 means that the run is too wide. The verdict is stored with the run.
    """
    from ..results.summary import compare

    silent = quiet or as_json
    with at_work(silent, "inference.reference", AHEAD) as referee:
        done, model = _asked(run, "sgld.reference")
        if (done.temperature != 1).any():
            raise UsageError(
                f"{run} has temperature {float(done.temperature.flat[0]):g}: its law is not the "
                "posterior, which is what a reference samples."
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
        typer.Option("--seed", metavar="N", show_default="the run's plus 1", help="Of everything random."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    strict: Strict = False,
) -> None:  # fmt: skip
    """Run again with half the step, extrapolate to step 0, and judge the run by it.

    Costs twice the run's steps. It sees what changes with the step, and neither other modes nor heavy
    tails. The verdict is stored with the run.
    """
    silent = quiet or as_json
    with at_work(silent, "inference.step_halving", AHEAD) as referee:
        done, model = _asked(run, "sgld.step_halving")
        found = referee.step_halving(
            model.posterior, model.data, done, seed=seed, progress=not silent
        )
        _confirm(run, found, str(found), quiet, as_json, strict)


def _asked(run: Path, function: str) -> tuple[Draws, FormulaModel]:
    """Draws and model of a finished run of `sgld fit`."""
    from ..core.progress import stage
    from ..regression.fit import model_of_run
    from ..results.run_directory import RunDirectory
    from ..results.storage import load

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
    """Store what was found, and print what is said of it, and the run's verdict."""
    from ..core.progress import aside, stage
    from ..inference.confirm import confirm

    with stage("verdict"):
        confirm(run, found)
    with aside():
        if not (quiet or as_json):
            typer.echo(f"{said}\n")
        show(run, quiet=not as_json, as_json=as_json)
    write_page(run, silent=quiet or as_json)
    exit_strict(run, strict)
