"""`draws.report(path)`: the report of any run from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..arviz.subject import Subject, subject_of
from ..errors import SGLDError, UsageError, first_line
from ..report.page import Checked, of_formula, report_of
from ..results.draws import Draws
from ..results.plan import known_of
from ..results.run_directory import RunDirectory
from .outcomes import checked

__all__ = ["report"]


def report(
    draws: Draws, path: str | Path, posterior: Any = None, data: Any = None, **how: Any
) -> Path:
    """`Draws.report`: with what was asked, as far as the draws know it, and the predictive check of a model that is known."""
    origin = draws.origin
    model = None if origin is None else origin.model
    asked: dict[str, Any] = {}
    if origin is not None and origin.path is not None:
        asked = RunDirectory(origin.path).begun()
    elif model is not None:
        asked = {
            "formula": model.spec["design"]["formula"],
            "family": model.family.name,
            "priors": list(model.prior_text),
        }
    if "seed" not in asked and draws.info.get("seed") is not None:
        asked = {**asked, "seed": draws.info["seed"]}
    if posterior is None and (model is not None or asked.get("kind") == "formula"):
        return report_of(draws, path, asked, of_formula(draws, asked, lambda: known_of(origin).model))  # fmt: skip
    subject = _known(draws, posterior, data, how)
    seed = int(asked.get("seed", 0))
    return report_of(draws, path, asked, lambda: _checked(draws, subject, seed))


def _known(draws: Draws, posterior: Any, data: Any, how: dict[str, Any]) -> Subject | None:
    """The model, where it makes outcomes of rows. Raises as `subject_of` where it is given."""
    origin = draws.origin
    known = origin is not None and origin.posterior is not None and not origin.kept
    if draws.moments is not None or (posterior is None and not known):
        return None
    try:
        subject = subject_of(draws, posterior, data, **how)
    except SGLDError:
        if posterior is not None or how:
            raise
        return None  # of draws that report something else than positions, say
    made = subject.replicate is not None and subject.observed and subject.rows is not None
    return subject if made else None


def _checked(draws: Draws, subject: Subject | None, seed: int) -> Checked | None:
    """The check; UsageError where the model's outcomes cannot be drawn."""
    if subject is None:
        return None
    try:
        return checked(draws, subject, seed)
    except SGLDError:
        raise
    except (
        Exception
    ) as error:  # whatever a user's distribution does when outcomes are drawn from it
        said = f"{type(error).__name__} ({first_line(error)})"
        raise UsageError(f"the model's outcomes could not be drawn: {said}.") from error
