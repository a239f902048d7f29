"""The model of a formula, for ArviZ: outcome, columns, levels, predictions and draws of the prior."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..data.mapped import OnDisk
from ..regression.formula import FormulaModel
from ..regression.result import prior_draws
from .rows import Rows
from .subject import Subject

__all__ = ["subject_of_formula"]

PyTree = Any
DIGITS = 6  # of a column's sd, that float32 holds


def subject_of_formula(model: FormulaModel) -> Subject:
    """All that a formula's model knows of itself, on the original scale."""
    assert model.data is not None and model.posterior.log_likelihood is not None
    x, y, *more = model.leaves()
    spec, extra = model.spec, {n: np.asarray(v, np.float64) for n, v in (more or [{}])[0].items()}
    outcome, columns = spec["design"]["outcome"], list(spec["design"]["names"])
    stretch, shift = spec["outcome_scale"], spec["outcome_center"]
    observed = _rounded(stretch * np.asarray(y, np.float64) + shift, stretch)
    if "offset" in extra:
        extra["offset"] = stretch * extra["offset"]
    large = isinstance(model.data, OnDisk)  # whose columns are not held
    constant = {
        name: _rounded(
            x[:, j].astype(np.float64) * model.scale[j] + model.center[j], model.scale[j]
        )
        for j, name in enumerate(columns)
        if j != model.intercept_index and not large
    }
    dims: dict[str, list[str]] = {}
    coords: dict[str, Any] = {}
    if model.family.levels:
        coords = {"level": [str(level) for level in spec["levels"][1:]], "term": columns}
        dims = {"coefficients": ["level", "term"]}
    return Subject(
        Rows.of(model.posterior.log_likelihood, model.data, called=model.row_numbers),
        model.to_standardised, outcome, {outcome: observed}, {**constant, **extra}, dims, coords,
        replicate=_Replicas(model), prior=partial(prior_draws, model),
    )  # fmt: skip


def _rounded(values: np.ndarray, scale: float) -> np.ndarray:
    """Without the digits that standardising in float32 has left behind."""
    return np.round(values, DIGITS - int(np.floor(np.log10(scale)))) + 0.0


@dataclass(frozen=True)
class _Replicas:
    """Outcomes that the model would make for its own rows."""

    model: FormulaModel

    def __call__(self, positions: PyTree, numbers: Any, seed: int) -> dict[str, np.ndarray]:
        model, rng = self.model, np.random.default_rng([seed, 6])
        assert model.data is not None
        x, _, *more = model.leaves()
        x = x[numbers].astype(np.float64)
        given = {n: np.asarray(positions[n])[:, None] for n in model.family.dispersion}
        given |= {n: np.asarray(v, np.float64)[numbers] for n, v in (more or [{}])[0].items()}
        eta = np.einsum("s...p,np->sn...", positions["coefficients"], x)
        if "offset" in given:
            eta = eta + given["offset"].reshape(-1, *([1] * (eta.ndim - 2)))
        made = np.asarray(model.family.sample(rng, eta, given))
        spec = model.spec
        return {spec["design"]["outcome"]: spec["outcome_scale"] * made + spec["outcome_center"]}
