"""Regression by formula: a table and a formula become a Posterior and its data.

Sampling uses standardised columns and, in families whose outcome may be shifted and
scaled (the gaussian), a standardised outcome, so that float32 can hold both years and incomes:

    with an intercept     x_j -> (x_j - mean_j) / sd_j,     y -> (y - mean) / sd
    without one           x_j -> x_j / rms_j,               y -> y / rms

A standardised position is {"coefficients": z [p], "sigma": scalar}; for a family with levels z is
[levels - 1, p]. Users see an exact affine map of it, on the flat vector in the order of
`names`: original = matrix @ flat + offset. The priors are described on that original scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int

from ..core.devices import sent
from ..data.mapped import OnDisk
from ..data.tables import as_table, check_named
from ..errors import need
from ..model.posterior import Labels, Posterior
from ..typing import PredictionKind
from . import design as designs
from .columns import mean_and_sd, release_memory, standardised
from .design import OtherColumns, learn_again
from .families import Family, check_trials, find_family
from .identifiability import (
    check_columns,
    check_magnitudes,
    check_names,
    near_collinear,
    offset_notes,
    separation_notes,
)
from .predictive import predict_rows
from .priors import (
    DEFAULT_PRIOR_SDS,
    DISPERSIONS,
    Positive,
    default_log_prior,
    original_log_prior,
    parse_prior,
)
from .rows import Rows, rows_of, trials_of

if TYPE_CHECKING:
    import pyarrow

# -- original ------------------------------------------------------------------------------


def affine(
    spec: dict, center: np.ndarray, scale: np.ndarray, index: int | None, family: Family
) -> tuple[np.ndarray, np.ndarray]:
    """Return matrix [d, d] and offset [d] of the map to the original scale.

    slope_j = s z_j / scale_j with s the outcome's scale, the intercept takes the rest, and sigma becomes
    s sigma. For a family with levels the map is the same for each level but the first.
    """
    stretch, size = spec["outcome_scale"], len(scale)
    matrix, offset = np.diag(stretch / scale), np.zeros(size)
    if index is not None:
        slopes = np.arange(size) != index
        matrix[index][slopes] = -(stretch * center / scale)[slopes]
        offset[index] = spec["outcome_center"]
    if family.levels:
        count = len(spec["levels"]) - 1
        matrix, offset = np.kron(np.eye(count), matrix), np.tile(offset, count)
    own = [stretch if name == "sigma" else 1.0 for name in family.dispersion]
    if own:
        matrix = np.asarray(scipy.linalg.block_diag(matrix, np.diag(own)))
    return matrix, np.concatenate([offset, np.zeros(len(own))])


def prior_text(spec: dict, family: Family, unit: np.ndarray, index: int | None) -> tuple[str, ...]:
    """Return one line per prior, on the original scale.

    `unit` [p] is the original value of one unit of the sampler's coefficients.
    """
    lines, each = [], ", of each level" if family.levels else ""
    if spec["prior"] is not None:
        lines.append(f"every coefficient, intercept included ~ {spec['prior']}")
    else:
        for j, name in enumerate(spec["design"]["names"]):
            sd = DEFAULT_PRIOR_SDS * unit[j]
            if j == index:
                mean = spec["outcome_center"] + np.asarray(spec["prior_center"])
                means = ", ".join(f"{value:.4g}" for value in np.atleast_1d(mean))
                lines.append(f"{name}, at the predictors' means{each} ~ normal({means}, {sd:.4g})")
            else:
                lines.append(f"{name}{each} ~ normal(0, {sd:.4g})")
    dispersions = [DISPERSIONS[name] for name in family.dispersion]
    lines += [
        d.text.format(spec["outcome_sd"] if d.scale is None else d.scale) for d in dispersions
    ]
    return tuple(lines)


# -- formula -------------------------------------------------------------------------------


PyTree = Any


@dataclass(frozen=True, repr=False)
class FormulaModel:
    """A generalised linear model, made by `build` from training data or `from_spec` from JSON.

    Attributes:
      posterior: of standardised positions {"coefficients": [p]} plus the dispersions.
      data: (X float32 [N, p] standardised, y float32 [N]), and as a third entry the rows' other
        data, {"offset", "weight", "trials"} float32 [N]; or such rows on disk; None without a table.
      names: of the flat position's entries on the original scale: formula columns, `sigma`.
      prior_text: one line per prior, on the original scale.
      matrix, offset: [d, d] and [d], original = matrix @ flat + offset.
      center, scale: [p], of the columns; 0 and 1 for the intercept.
      num_dropped: rows of the table that were dropped because of a missing cell.
      row_numbers: [N], the rows of the table that the data are, from 0; None for all.
      intercept_index: the intercept's column, or None.
      spec: everything needed to rebuild the model, JSON-serialisable.
    """

    family: Family
    posterior: Posterior
    data: Any
    names: tuple[str, ...]
    prior_text: tuple[str, ...]
    matrix: Float[np.ndarray, "d d"]
    offset: Float[np.ndarray, " d"]
    center: Float[np.ndarray, " p"]
    scale: Float[np.ndarray, " p"]
    intercept_index: int | None
    spec: dict[str, Any]
    num_dropped: int = 0
    row_numbers: Int[np.ndarray, " N"] | None = None

    @classmethod
    def build(
        cls,
        table: Any,
        formula: str,
        family: str = "gaussian",
        prior: str | None = None,
        *,
        weights: str | None = None,
        trials: str | None = None,
        missing: str = "error",
    ) -> FormulaModel:
        """Build the model of `formula` on a pyarrow.Table, DataFrame or dict of columns.

        Args:
          table: the table, or a function that reads it, which avoids a second copy in memory.
          formula: "outcome ~ predictors".
          family: the name of the family.
          prior: "normal(mean, sd)", "student_t(df, loc, scale)" or "laplace(loc, scale)" for every
            coefficient, intercept included, on the original scale. Default: independent normals
            with sd 2.5 times the outcome's sd (gaussian, student-t; else 2.5) per sd of the column, the
            intercept's about a typical outcome at the columns' means.
          weights: the column of weights, not negative: a row of weight 2 counts as two rows.
          trials: the column of the numbers of trials, for the binomial family.
          missing: "drop" drops rows with a missing cell in a used column, "error" raises.

        Raises:
          UsageError: the formula, the family, the prior or `missing` cannot be read; trials are
            missing, or the family has none.
          DataError: a column is unknown, constant, a duplicate, collinear, not of numbers, or has a
            null, NaN or infinite cell; an outcome is out of the family's range.
        """
        kind = find_family(family)
        if prior is not None:
            parse_prior(prior)
        check_trials(kind, trials)
        columns = {"weights": weights, "trials": trials, "missing": missing}
        rows = rows_of(as_table(table() if callable(table) else table), formula, kind, columns)
        (state, x, y, _), extra = rows.design, rows.extra
        notes = _notes(kind, rows)
        release_memory(x)
        check_names((*state["names"], *kind.dispersion))
        check_magnitudes(np.column_stack([y]), [state["outcome"]])
        check_magnitudes(x, state["names"])
        notes += check_columns(x, state["names"])
        intercept = "Intercept" in state["names"]
        center, scale = mean_and_sd(x, about_mean=intercept)
        if intercept:
            index = state["names"].index("Intercept")
            center[index], scale[index] = 0.0, 1.0
        left = kind.bare(y, extra)
        shift = float(left.mean()) if kind.location_scale and intercept else 0.0
        stretch = float(np.sqrt(np.mean((left - shift) ** 2))) if kind.location_scale else 1.0
        spec = {
            "family": kind.name,
            "prior": prior,
            "design": state,
            "center": center.tolist(),
            "scale": scale.tolist(),
            "outcome_center": shift,
            "outcome_scale": stretch,
            "outcome_sd": float(left.std()),
            "prior_center": 0.0 if kind.location_scale else _typical(kind, left, extra),
            **columns,
            **({"levels" if kind.levels else "words": rows.levels} if rows.levels else {}),
        }
        data = _standardise(spec, x, y, extra)
        return replace(
            cls._assemble(spec, data, notes), num_dropped=rows.num_dropped, row_numbers=rows.numbers
        )

    @classmethod
    def from_spec(cls, spec: dict[str, Any], table: Any = None) -> FormulaModel:
        """Rebuild the model, bit for bit given the training table, or without it to predict only.

        Raises DataError as `design` does, and where an outcome is out of the family's range.
        """
        if table is None:
            return cls._assemble(spec, None)
        kind = find_family(spec["family"])
        columns = {name: spec.get(name) for name in ("weights", "trials", "missing")}
        columns["levels"] = spec.get("levels") or spec.get("words")
        formula = spec["design"]["formula"]
        again = partial(
            learn_again, spec["design"], np.asarray(spec["center"]), np.asarray(spec["scale"])
        )
        rows = rows_of(
            as_table(table() if callable(table) else table), formula, kind, columns, again
        )
        state, x, y, _ = rows.design
        if state["names"] != spec["design"]["names"]:
            raise OtherColumns(state["names"], spec["design"]["names"])
        notes = _notes(kind, rows)
        notes += near_collinear(
            x, state["names"], np.asarray(spec["center"]), np.asarray(spec["scale"])
        )
        model = cls._assemble(spec, _standardise(spec, x, y, rows.extra), notes)
        return replace(model, num_dropped=rows.num_dropped, row_numbers=rows.numbers)

    @classmethod
    def on_rows(cls, spec: dict[str, Any], source: OnDisk) -> FormulaModel:
        """Build the model of a known spec on standardised, shuffled rows on disk."""
        return replace(cls._assemble(spec, source), num_dropped=source.num_dropped)

    @property
    def num_data(self) -> int:
        """The number of rows; 0 without a table."""
        if self.data is None:
            return 0
        return self.data.num_data if isinstance(self.data, OnDisk) else len(self.data[1])

    def leaves(self) -> tuple[Any, ...]:
        """Return the rows as NumPy arrays, [N, ...] each; rows on disk in their shuffled order."""
        if isinstance(self.data, OnDisk):
            return jax.tree.map(lambda leaf: np.asarray(leaf)[: self.num_data], self.data.rows)
        return jax.tree.map(np.asarray, self.data)

    @classmethod
    def _assemble(cls, spec: dict[str, Any], data: Any, notes: Any = ()) -> FormulaModel:
        family = find_family(spec["family"])
        columns = spec["design"]["names"]
        center, scale = np.asarray(spec["center"]), np.asarray(spec["scale"])
        index = columns.index("Intercept") if "Intercept" in columns else None
        levels = spec.get("levels") or []
        matrix, offset = affine(spec, center, scale, index, family)
        shape = (len(levels) - 1, len(columns)) if levels else (len(columns),)
        size = int(np.prod(shape))
        dispersions = {name: DISPERSIONS[name] for name in family.dispersion}
        # outcome sd in the units the sampler sees
        unit = spec["outcome_sd"] / spec["outcome_scale"]
        dispersion = {
            name: jnp.float32(unit if entry.scale is None else entry.scale)
            for name, entry in dispersions.items()
        }
        begin = {
            name: jnp.float32(unit if entry.start is None else entry.start)
            for name, entry in dispersions.items()
        }
        start = np.zeros(shape)
        if index is not None:
            start[..., index] = spec["prior_center"]
        coefficients = (
            [f"{level}: {name}" for level in levels[1:] for name in columns] if levels else columns
        )
        names = (*coefficients, *family.dispersion)
        mean = sent(start, np.float32)
        if spec["prior"] is None:
            sd = sent(np.full(shape, DEFAULT_PRIOR_SDS), np.float32)
            log_prior = Partial(default_log_prior, mean, sd, dispersion)
        else:
            log_det = jnp.float32(np.linalg.slogdet(matrix[:size, :size])[1])
            log_prior = Partial(
                original_log_prior,
                parse_prior(spec["prior"]),
                sent(matrix[:size, :size], np.float32),
                sent(offset[:size], np.float32),
                log_det,
                dispersion,
            )
        posterior = Posterior(
            log_prior,
            family.log_likelihood,
            transform=Positive(family.dispersion) if family.dispersion else None,
            init={"coefficients": mean, **begin},
            output=Partial(_original, matrix, offset),
            names=Labels(names),
            notes=notes,
        )
        return cls(
            family,
            posterior,
            data,
            names,
            prior_text(spec, family, np.diag(matrix)[: len(columns)], index),
            matrix,
            offset,
            center,
            scale,
            index,
            spec,
        )

    def __repr__(self) -> str:
        rows = "no rows" if self.data is None else f"{self.num_data} rows"
        what = f"{self.spec['design']['formula']!r}, {self.family.name}"
        return f"FormulaModel({what}, {len(self.names)} parameters, {rows})"

    def flat(self, position: PyTree) -> Float[np.ndarray, "*batch d"]:
        """Return a position's entries in the order of `names`, float64, leading axes kept."""
        z = np.asarray(position["coefficients"], np.float64)
        if self.family.levels:
            z = z.reshape(*z.shape[:-2], -1)
        rest = [np.asarray(position[name], np.float64) for name in self.family.dispersion]
        return np.concatenate([z, *(value[..., None] for value in rest)], axis=-1)

    def to_original(self, position: PyTree) -> PyTree:
        """Return the position on the original scale, float64: matrix @ flat + offset."""
        return self._tree(self.flat(position) @ self.matrix.T + self.offset)

    def to_standardised(self, position: PyTree) -> PyTree:
        """Invert `to_original`."""
        difference = self.flat(position) - self.offset
        return self._tree(np.linalg.solve(self.matrix, difference[..., None])[..., 0])

    def _tree(self, flat: np.ndarray) -> PyTree:
        size = flat.shape[-1] - len(self.family.dispersion)
        rest = {name: flat[..., size + i] for i, name in enumerate(self.family.dispersion)}
        z = flat[..., :size]
        if self.family.levels:
            z = z.reshape(*z.shape[:-1], -1, len(self.center))
        return {"coefficients": z, **rest}

    def design(self, table: Any) -> Float[np.ndarray, "N p"]:
        """Return standardised columns, float64, of other rows; the outcome may be absent.

        Raises DataError for a missing column, a null, NaN or infinite cell, an unknown level.
        """
        return self.rows(table)[0]

    @property
    def uses(self) -> list[str]:
        """The columns of the training table that `rows` needs."""
        design = self.spec["design"]
        empty = need("pyarrow", "tables").table({name: [] for name in design["columns"]})
        return self.predictors(empty)

    def predictors(self, table: pyarrow.Table) -> list[str]:
        """Return the columns that `rows` needs. Raises DataError where one is missing."""
        names, trials = designs.predictors(self.spec["design"], table), self.spec.get("trials")
        if trials:
            check_named(table, trials)
        return [*names, *([trials] if trials else [])]

    def rows(self, table: Any) -> tuple[Float[np.ndarray, "N p"], dict[str, np.ndarray]]:
        """Return `design`, and the rows' offset in the sampler's units and trials, float64 [N]."""
        table = as_table(table)
        x, offset = designs.apply(self.spec["design"], table)
        extra = {} if offset is None else {"offset": offset / self.spec["outcome_scale"]}
        if self.spec.get("trials"):
            extra["trials"] = trials_of(table, self.spec["trials"])
        return (x - self.center) / self.scale, extra

    def predict(
        self,
        position: PyTree,
        table: Any,
        *,
        kind: PredictionKind = "outcome",
        prob: float = 0.9,
        weights: np.ndarray | None = None,
        seed: int = 0,
        max_draws: int = 4000,
    ) -> dict[str, np.ndarray]:
        """Predict the rows of a table from STANDARDISED draws: see `predict_rows`.

        Args:
          position: the posterior's own positions, any leading axes: "coefficients" [..., p].
          table: the rows.
          kind: "outcome", "mean" or "class".
          prob: of the interval, which is central.
          weights: [...], of the draws; any positive multiple of probabilities.
          seed: of the simulated outcomes.
          max_draws: the largest number of draws used; more are resampled to this number.

        Raises UsageError as `predict_rows` does, DataError as `design` does.
        """
        x, extra = self.rows(table)
        return predict_rows(
            self.family, self.spec, position, x, extra,
            kind=kind, prob=prob, weights=weights, seed=seed, max_draws=max_draws,
        )  # fmt: skip


def _notes(kind: Family, rows: Rows) -> tuple[str, ...]:
    """Return what users should know of the rows before they read a result."""
    state, x, y, offset = rows.design
    notes = separation_notes(kind.name, rows.levels or (), x, y, state, rows.extra)
    return notes + (offset_notes(state["formula"], offset) if kind.has_log_mean else ())


def _typical(kind: Family, y: np.ndarray, extra: dict[str, np.ndarray]) -> Any:
    """Return a typical linear predictor without offset: the centre of the intercept's prior."""
    centre = kind.centre(y)
    if kind.log_outcome or "offset" not in extra:
        return centre
    offset = extra["offset"]
    if kind.has_log_mean:  # the log of the mean over the mean of exp(offset)
        top = offset.max()
        return centre - float(top + np.log(np.mean(np.exp(offset - top))))
    return (np.asarray(centre) - offset.mean()).tolist()


def _standardise(
    spec: dict, x: np.ndarray, y: np.ndarray, extra: dict[str, np.ndarray]
) -> tuple[Any, ...]:
    if x.dtype != np.float32:  # else it is standardised already
        x = standardised(x, np.asarray(spec["center"]), np.asarray(spec["scale"]))
    y = (y - spec["outcome_center"]) / spec["outcome_scale"]
    data = (sent(x, owned=True), sent(y, np.float32))
    if not extra:
        return data
    unit = {"offset": spec["outcome_scale"]}
    return (*data, {name: sent(v / unit.get(name, 1.0), np.float32) for name, v in extra.items()})


def _original(matrix: Array | np.ndarray, offset: Array | np.ndarray, position: PyTree) -> PyTree:
    """Return the position on the original scale for the draws, as `FormulaModel.to_original`."""
    shape, size = position["coefficients"].shape, position["coefficients"].size
    rest = sorted(name for name in position if name != "coefficients")
    z = position["coefficients"].reshape(-1)
    flat = jnp.concatenate([z, *(position[name][None] for name in rest)])
    # in float64 where x64 is on, as when draws are made: a distant intercept cancels
    matrix, offset = jnp.asarray(matrix), jnp.asarray(offset)
    flat = flat.astype(matrix.dtype)
    flat = jnp.matmul(matrix, flat, precision="highest") + offset
    found = {name: flat[size + i] for i, name in enumerate(rest)}
    return {"coefficients": flat[:size].reshape(shape), **found}
