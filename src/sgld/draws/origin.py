"""What draws were drawn from, as far as this session knows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import reading

__all__ = ["Origin", "formula_at"]


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


def formula_at(path: Path) -> Any:
    """The model of a run directory of `sgld fit`; None of another."""
    from ..models.fit import model_of_run
    from .run_directory import RunDirectory

    with reading(path):
        asked = RunDirectory(path).begun()
        return model_of_run(asked) if asked.get("kind") == "formula" else None
