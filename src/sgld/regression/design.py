"""Design matrices of formulas, with the quantities estimated from the training data as JSON.

`learn` evaluates a formula on a table. `apply` builds the same columns for other rows from the
state that `learn` returned: levels of categories, and the numbers inside transforms such as
center(x), poly(x, 2) or bs(x, df=4). formulaic evaluates formulas, as Python, after
`expression` has checked that they hold nothing but arithmetic on columns.

`learn_again` rebuilds the design of a run on its table, or on one that has grown, with known columns.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..data.delimited import is_number, warn_of_ids
from ..errors import DataError, UsageError, did_you_mean, first_line, need
from .columns import DESIGN_ROWS_AT_ONCE, blocks, check_cells, check_columns_fit, check_terms, meant
from .expression import FUNCTIONS, check_expression

if TYPE_CHECKING:
    import pandas
    import pyarrow

OFFSET_CALL = "offset("
# transforms whose columns depend on numbers estimated from all rows, besides the levels of categories
TRANSFORMS = re.compile(r"(?<![\w.`])(bs|cc|center|cr|cs|lag|poly|scale|standardize)\s*\(")


class Design(NamedTuple):
    """A formula on its training rows: its state (JSON), design, outcome, and the offsets' sum."""

    state: dict[str, Any]
    x: Float[np.ndarray, "N p"]
    y: Float[np.ndarray, " N"]
    offset: Float[np.ndarray, " N"] | None


def learn(table: pyarrow.Table, formula: str, numbers: Collection[str] = ()) -> Design:
    """Evaluate a formula on the rows of a table, and estimate the state of its terms.

    A term offset(...) is added to the linear predictor unchanged, without a coefficient.

    Args:
      table: the training rows.
      formula: "outcome ~ predictors".
      numbers: columns besides the formula's that must hold numbers.

    Raises:
      UsageError: the formula does not parse, has no outcome or several, or no predictors.
      DataError: an unknown column, a null or non-finite cell, text where numbers are needed.
    """
    parsed = parse(formula, table.column_names)
    outcome = str(next(iter(parsed.lhs)))
    used = used_columns(formula, [*parsed.lhs, *parsed.rhs], table)
    _check_meant(formula, outcome, parsed.rhs)
    numbers = {*numbers, *([outcome] if outcome in table.column_names else [])}
    check_cells(parsed.rhs, table, {*used, *numbers}, numbers)
    frame = _frame(table, used)
    check_columns_fit(parsed.rhs, table)
    evaluator = _evaluator(frame)
    lhs, rhs, spec = _matrices(evaluator, frame, parsed, formula)
    names = [str(name) for name in spec.column_names]
    state = {
        "formula": formula,
        "outcome": outcome,
        "columns": list(table.column_names),
        "names": names,
        "factors": {
            expression: {
                "kind": kind.value,
                "state": _to_json({k: v for k, v in estimated.items() if k != "contrasts"}),
            }
            for expression, (kind, estimated) in spec.encoder_state.items()
        },
        "transforms": _to_json(spec.transform_state),
    }
    if not names:
        raise UsageError(f"formula {formula!r} has no predictors; 'y ~ 1' fits an intercept alone.")
    if lhs.shape[1] != 1:
        raise DataError(f"outcome {outcome!r} is not one column of numbers; convert it to numbers.")
    warn_of_ids(table, (n for n, f in state["factors"].items() if f["kind"] == "numerical"))
    _check_levels(evaluator, state)
    y = _finite(lhs, [outcome])[:, 0]
    x, offset = _split(_finite(rhs, names), names, state)
    state["names"] = [name for name in names if not name.startswith(OFFSET_CALL)]
    if not state["names"]:
        raise UsageError(f"formula {formula!r} has no predictors except its offset; add '1'.")
    return Design(state, x, y, offset)


def columns_of(formula: str, table: pyarrow.Table) -> tuple[str, list[str]]:
    """Return the outcome as written, and every column that the formula uses. Raises as `learn`."""
    parsed = parse(formula, table.column_names)
    return str(next(iter(parsed.lhs))), used_columns(formula, [*parsed.lhs, *parsed.rhs], table)


def predictors(state: dict[str, Any], table: pyarrow.Table) -> list[str]:
    """Return the columns of another table that `apply` needs; DataError if one is missing."""
    parsed = parse(state["formula"], state["columns"])
    return used_columns(state["formula"], parsed.rhs, table)


def apply(
    state: dict[str, Any], table: pyarrow.Table
) -> tuple[Float[np.ndarray, "N p"], Float[np.ndarray, " N"] | None]:
    """Return the columns of `state["names"]` for other rows, and the sum of the offsets.

    The rows need no outcome. Raises DataError for a missing column, a bad cell, or a level that the training
    data did not have.
    """
    from formulaic import ModelSpec
    from formulaic.materializers.types import NAAction
    from formulaic.parser.types import Factor

    parsed = parse(state["formula"], state["columns"])
    spec = ModelSpec(
        formula=parsed.rhs,
        na_action=NAAction.IGNORE,
        transform_state=_from_json(state["transforms"]),
        encoder_state={
            expression: (Factor.Kind(factor["kind"]), _from_json(factor["state"]))
            for expression, factor in state["factors"].items()
        },
    )
    used = used_columns(state["formula"], parsed.rhs, table)
    numbers = {name for name in used if state["factors"].get(name, {}).get("kind") == "numerical"}
    check_cells(parsed.rhs, table, used, numbers)
    evaluator = _evaluator(_frame(table, used))
    matrix = _evaluate(evaluator, spec, state["formula"])
    names = [str(name) for name in matrix.model_spec.column_names]
    if [name for name in names if not name.startswith(OFFSET_CALL)] != state["names"]:
        raise DataError(
            f"these rows give the columns {names}, but the training data gave "
            f"{state['names']}; give each column the type it had in training."
        )
    _check_levels(evaluator, state)
    return _split(_finite(matrix, names), names, state)


def apply_with_outcome(
    state: dict[str, Any], table: pyarrow.Table, formula: str, numbers: Collection[str] = ()
) -> Design:
    """Evaluate, as `learn`, some of the rows of `state`'s training, or more of their kind."""
    x, offset = apply(state, table)
    parsed = parse(formula, table.column_names)
    outcome = str(next(iter(parsed.lhs)))
    used = used_columns(formula, parsed.lhs, table)
    check_cells(parsed.lhs, table, {*used, *numbers}, {*numbers, *({outcome} & {*used})})
    y = _evaluate(_evaluator(_frame(table, used)), parsed.lhs, formula)
    if y.shape[1] != 1:
        raise DataError(f"outcome {outcome!r} is not one column of numbers; convert it to numbers.")
    return Design(state, x, _finite(y, [outcome])[:, 0], offset)


def _split(
    values: np.ndarray, names: list[str], state: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the columns with coefficients, and the sum of the offsets, None without one."""
    offsets = np.array([name.startswith(OFFSET_CALL) for name in names])
    for name, is_offset in zip(names, offsets, strict=True):
        kind = state["factors"].get(name, {}).get("kind")
        if (is_offset and kind != "numerical") or (not is_offset and OFFSET_CALL in name):
            raise UsageError(
                f"formula {state['formula']!r} has an offset in {name!r}; an offset is a term of its "
                "own, of numbers: offset(log(exposure))."
            )
    if not offsets.any():
        return values, None
    return values[:, ~offsets], values[:, offsets].sum(axis=1)


def parse(formula: str, columns: list[str]) -> Any:
    """Parse a formula into outcome and terms. Raises UsageError for an invalid formula."""
    formulaic = need("formulaic", "tables")
    need("pyarrow", "tables")
    context = {"__formulaic_variables_available__": columns}
    if not isinstance(formula, str):
        raise UsageError(f"formula must be text, 'outcome ~ predictors'. Got {formula!r}.")
    try:
        check_terms(formula, columns)
        parsed = formulaic.Formula.from_spec(formula, context=context)
    except UsageError:
        raise
    # formulaic's parser raises any kind of error for an invalid formula
    except Exception as error:
        reason = first_line(error).replace("insuffient", "insufficient")
        hint = meant(formula, columns)
        raise UsageError(f"formula {formula!r} cannot be read: {reason}.{hint}") from error
    left = getattr(parsed, "lhs", ())
    if not isinstance(left, tuple) and all(
        factor.eval_method.value == "literal" for term in left for factor in term.factors
    ):
        left = ()
    if not left:
        hint = meant(formula, columns) or " Write 'outcome ~ predictors'."
        raise UsageError(f"formula {formula!r} has no outcome.{hint}")
    if len(left) != 1:
        raise UsageError(f"formula {formula!r} has several outcomes; name one left of '~'.")
    if not formula.rpartition("~")[2].strip():
        hint = meant(formula, columns)
        raise UsageError(
            f"formula {formula!r} has nothing right of '~'; 'y ~ 1' fits an intercept alone.{hint}"
        )
    if isinstance(parsed.rhs, tuple):
        raise UsageError(f"formula {formula!r} has a '|'; write one set of predictors.")
    return parsed


def used_columns(formula: str, terms: Iterable[Any], table: pyarrow.Table) -> list[str]:
    """Return the columns that the terms name, after a check of each term's expression."""
    columns, used = table.column_names, set()
    for factor in (factor for term in terms for factor in term.factors):
        if factor.eval_method.value == "lookup":
            used.add(factor.expr)
        elif factor.eval_method.value == "python":
            try:
                used |= check_expression(factor.expr, columns)
            except UsageError as error:
                raise UsageError(f"{error}{meant(formula, columns)}") from error
    unknown = sorted(used - set(columns))
    if unknown:
        which = "is not a column" if len(unknown) == 1 else "are not columns"
        cased = [name for name in columns if name.casefold() == unknown[0].casefold()]
        called = re.search(rf"\b{re.escape(unknown[0])}\s*\(", formula)
        nearest = did_you_mean(unknown[0], [*columns, *(FUNCTIONS if called else ())])
        if cased:
            nearest = f" Did you mean {cased[0]!r}?"
        raise DataError(
            f"formula {formula!r} names {', '.join(map(repr, unknown))}, which {which} of the table "
            f"({', '.join(columns[:12])}{', ...' * (len(columns) > 12)})."
            + (meant(formula, columns) or _without_header(columns) or nearest)
        )
    return sorted(used)


def _without_header(columns: list[str]) -> str:
    """Return a sentence for a file whose header seems to be a row of numbers."""
    if 3 * sum(map(is_number, columns)) < len(columns):
        return ""
    return " The first line seems to be a data row; add a line with the names of the columns before it."


def _frame(table: pyarrow.Table, used: list[str]) -> pandas.DataFrame:
    """Return the used columns as a pandas frame, with types that a formula accepts."""
    arrow = need("pyarrow", "tables")
    types = arrow.types
    columns = {}
    for name in used:
        column = table.column(name)
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        if types.is_decimal(kind):
            column = column.cast(arrow.float64())
        columns[name] = column.to_pandas()
        if types.is_dictionary(column.type):
            columns[name] = columns[name].cat.remove_unused_categories()
    return need("pandas", "tables").DataFrame(columns, index=range(table.num_rows), copy=False)


def _check_meant(formula: str, outcome: str, terms: Iterable[Any]) -> None:
    """Raise UsageError if the outcome predicts itself, DataError for a column named Intercept."""
    for factor in (factor for term in terms for factor in term.factors):
        if factor.expr == outcome:
            raise UsageError(
                f"formula {formula!r} has its outcome {outcome!r} among the predictors; remove it there."
            )
        if factor.expr == "Intercept" and factor.eval_method.value == "lookup":
            raise DataError("column 'Intercept' has the reserved name of the intercept; rename it.")


def _evaluator(frame: pandas.DataFrame) -> Any:
    from formulaic.materializers import PandasMaterializer

    return PandasMaterializer(frame, context={"offset": lambda values: values, "sqrt": np.sqrt})


def _matrices(
    evaluator: Any, frame: pandas.DataFrame, parsed: Any, formula: str
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return outcome, predictors and the spec with the estimated state.

    Unchanged columns estimate nothing. If there are many rows, they are evaluated a block at a time, where
    formulaic would hold every column three times.
    """
    factors = [
        factor for side in (parsed.lhs, parsed.rhs) for term in side for factor in term.factors
    ]
    as_they_are = all(factor.eval_method.value in ("lookup", "literal") for factor in factors)
    numbers = all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in frame.dtypes)
    if len(frame) <= DESIGN_ROWS_AT_ONCE or not (as_they_are and numbers):
        whole = _evaluate(evaluator, parsed, formula)
        return np.asarray(whole.lhs), np.asarray(whole.rhs), whole.rhs.model_spec
    head = _evaluate(_evaluator(frame.iloc[:1]), parsed, formula)
    parts = [np.empty((len(frame), part.shape[1])) for part in (head.lhs, head.rhs)]
    for rows in blocks(frame):
        piece = _evaluate(_evaluator(frame.iloc[rows]), head.model_spec, formula)
        parts[0][rows], parts[1][rows] = piece.lhs, piece.rhs
    return parts[0], parts[1], head.rhs.model_spec


def _evaluate(evaluator: Any, spec: Any, formula: str) -> Any:
    from formulaic.errors import DataMismatchWarning

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", DataMismatchWarning)  # _check_levels raises instead
            warnings.filterwarnings("ignore", "Constructing a Categorical")  # pandas 3
            return evaluator.get_model_matrix(spec, na_action="ignore", output="numpy")
    # a function may raise any kind of error for arguments that it does not accept
    except Exception as error:
        reason = first_line(error)
        raise DataError(
            f"formula {formula!r} cannot be evaluated on the table: {reason}."
        ) from error


class UnknownLevelError(DataError):
    """Rows have a level that the training data did not have; `rows` is their mask."""

    def __init__(self, message: str, rows: np.ndarray) -> None:
        super().__init__(message)
        self.rows = rows


def _check_levels(evaluator: Any, state: dict[str, Any]) -> None:
    pandas = need("pandas", "tables")
    for expression, factor in state["factors"].items():
        levels = _from_json(factor["state"]).get("categories")
        if factor["kind"] != "categorical" or levels is None:
            continue
        values = evaluator.factor_cache[expression].values.__wrapped__
        bad = ~pandas.Series(np.asarray(values)).isin(levels).to_numpy()
        if bad.any():
            row = int(np.argmax(bad))
            shown = ", ".join(map(repr, levels[:12])) + (", ..." if len(levels) > 12 else "")
            message = (
                f"{expression} is {np.asarray(values)[row]!s} in data row {row + 1}, a level "
                f"outside {shown}; drop such rows or recode them."
            )
            raise UnknownLevelError(message, bad)
        if len(levels) == 1:  # formulaic gives it no column
            raise DataError(
                f"{expression} is constant ({levels[0]!r} in every row); remove it from the formula."
            )


def _finite(matrix: Any, names: list[str]) -> Float[np.ndarray, "N p"]:
    try:
        values = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the formula's columns are not all numbers: {first_line(error)}."
        ) from error
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        others = np.count_nonzero(bad[:, column]) - 1
        raise DataError(
            f"{names[column]!r} is {values[row, column]} in data row {row + 1}"
            f"{f' and {others:,} more' if others else ''}; "
            "change the formula there, or drop such rows."
        )
    return values


def _to_json(value: Any) -> Any:
    """Convert to JSON: scalars and lists unchanged, dicts (any keys) and arrays tagged."""
    if isinstance(value, dict):
        return {"dict": [[_to_json(k), _to_json(v)] for k, v in value.items()]}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise DataError(
        f"the formula estimates {value!r} from the data, which cannot be stored as JSON; "
        "convert its column to numbers or text."
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if "array" in value:
            return np.asarray(value["array"])
        return {_from_json(k): _from_json(v) for k, v in value["dict"]}
    return [_from_json(item) for item in value] if isinstance(value, list) else value


# -- again ---------------------------------------------------------------------------------


class OtherColumns(DataError):
    """The formula has other columns on a table than those of the run: `lost` and `gained`."""

    def __init__(self, now: list[str], before: list[str]) -> None:
        self.lost = [name for name in before if name not in now]
        self.gained = [name for name in now if name not in before]
        super().__init__(
            f"the table gives the columns {now}, but the run has {before}; give the data that the run was fitted to."
        )


def learn_again(
    state: dict[str, Any], center: Float[np.ndarray, " p"], scale: Float[np.ndarray, " p"],
    table: pyarrow.Table, formula: str, numbers: Collection[str] = (), *,
    other: Callable[..., Design] | None = None, dtype: Any = np.float32,
) -> Design:  # fmt: skip
    """Evaluate a formula whose state is known; for unchanged columns x is (x - center) / scale.

    That x is in single precision and equals formulaic's result bit for bit; formulaic holds each number twice
    more and takes three times as long. For other columns `other` computes x, in double precision and not
    standardised.
    """
    parsed = parse(formula, table.column_names)
    outcome = str(next(iter(parsed.lhs)))
    if not _as_they_are(state["names"], parsed, table):
        return (other or learn)(table, formula, numbers)
    used = used_columns(formula, [*parsed.lhs, *parsed.rhs], table)
    check_cells(parsed.rhs, table, {*used, *numbers, outcome}, {*numbers, outcome})
    whole = {name: table.column(name).to_numpy() for name in {*state["names"], outcome} - {"Intercept"}}  # fmt: skip
    x = np.empty((table.num_rows, len(state["names"])), dtype)
    for rows in blocks(x):
        for j, name in enumerate(state["names"]):
            values = 1.0 if name == "Intercept" else whole[name][rows]
            x[rows, j] = (values - center[j]) / scale[j]
    return Design(state, x, whole[outcome].astype(np.float64), None)


def _as_they_are(names: list[str], parsed: Any, table: pyarrow.Table) -> bool:
    """Return whether outcome and predictors are unchanged numeric columns of the table."""
    types = need("pyarrow", "tables").types
    factors = [f for side in (parsed.lhs, parsed.rhs) for term in side for f in term.factors]
    if not all(factor.eval_method.value in ("lookup", "literal") for factor in factors):
        return False
    columns = {*names, str(next(iter(parsed.lhs)))} - {"Intercept"}
    if not columns <= set(table.column_names):  # products, levels
        return False
    kinds = [table.schema.field(name).type for name in columns]
    return all(types.is_integer(kind) or types.is_floating(kind) for kind in kinds)
