"""Bind methods of results to functions of packages above them, at the first call.

`results` imports nothing from `regression` or `interfaces`. A method such as `Draws.plot` looks its
function up here instead, so that the ladder of packages has no step upwards.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

FUNCTIONS = {
    "formula_report": "sgld.interfaces.report.page:of_formula",
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
    """Return the function that a name of FUNCTIONS stands for; its module is imported now."""
    module, _, function = FUNCTIONS[name].partition(":")
    return getattr(importlib.import_module(module), function)
