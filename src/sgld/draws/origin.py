"""What draws were drawn from, as far as this session knows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.files import reading

__all__ = ["Origin", "known_of"]


@dataclass(frozen=True, repr=False)
class Origin:
    """The posterior of some draws, its rows, and the run directory; each where it is known.

    It holds functions and refers to the user's data, so it is not stored, and what is pickled or
    copied deeply has None in its place.

    Attributes:
      posterior: an `sgld.Posterior`.
      data: its rows, as they were given.
      model: the model of a formula that both belong to.
      path: the run directory that the draws were read from.
      kept: whether `keep` was given, so that draws are no positions.
    """

    posterior: Any = None
    data: Any = None
    model: Any = None
    path: Path | None = None
    kept: bool = False

    def __reduce__(self) -> Any:
        return _nothing, ()


def _nothing() -> None:
    return None


def known_of(origin: Origin | None) -> Origin:
    """All that is known: of a run directory of `sgld fit` its model, too, read anew."""
    if origin is None:
        return Origin()
    if origin.path is None or origin.posterior is not None or origin.model is not None:
        return origin
    from ..models.fit import model_of_run
    from .run_directory import RunDirectory

    with reading(origin.path):
        asked = RunDirectory(origin.path).begun()
        formula = asked.get("kind") == "formula"
        return replace(origin, model=model_of_run(asked)) if formula else origin
