"""`draws.report(path)`: the report of any run from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..draws.draws import Draws
from ..draws.run_directory import RunDirectory
from ..report.page import report_of

__all__ = ["report"]


def report(draws: Draws, path: str | Path) -> Path:
    """`Draws.report`: with what was asked, as far as the draws know it, and the predictive check of a formula."""
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
    if model is None and asked.get("kind") == "formula":
        from ..models.fit import model_of_run

        model = model_of_run(asked)
    return report_of(draws, path, asked, model)
