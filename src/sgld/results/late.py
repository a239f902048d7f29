"""Look up functions of higher packages for methods of results, at the first call.

`results` imports nothing from `regression` or `interfaces`. A method such as `Draws.plot` looks up
its function here instead, so that no package imports one above it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

FUNCTIONS = {
    "formula_report": "sgld.interfaces.report.page:formula_check",
    "html": "sgld.interfaces.notebook:view",
    "model_of_run": "sgld.regression.fit:model_of_run",
    "plot": "sgld.interfaces.plots:plot",
    "report": "sgld.interfaces.notebook:report",
    "save": "sgld.results.storage:save",
    "summarise": "sgld.results.summary:summarise",
    "torch_draws": "sgld.torch.sample:draws_of",
    "torch_load": "sgld.torch.sample:ensemble_in",
    "torch_step_halving": "sgld.torch.sample:halved",
    "torch_summary": "sgld.torch.sample:summary_of",
    "report_of": "sgld.interfaces.report.page:report_of",
    "to_arviz": "sgld.interfaces.arviz:to_arviz",
    "to_inferencedata": "sgld.interfaces.arviz:to_inferencedata",
}


def late(name: str) -> Callable[..., Any]:
    """Import and return the function that FUNCTIONS lists under `name`."""
    module, _, function = FUNCTIONS[name].partition(":")
    return getattr(importlib.import_module(module), function)


class Shown:
    """Result that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return late("html")(self)


class Printed(Shown):
    """Result whose representation is its text."""

    def __repr__(self) -> str:
        return str(self)
