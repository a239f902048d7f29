"""How large the design of a formula will be, before it is made: its terms, columns and bytes."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ..core.devices import check_memory
from ..errors import DataError, UsageError, need

if TYPE_CHECKING:
    import pyarrow

__all__ = ["MOST_LEVELS", "check_columns_fit", "check_terms", "is_text"]

LONGEST = 20_000  # letters of a formula
MOST_TERMS = 5000
MOST_LEVELS = 1000  # of a category
# matrices of the design's size that are held at once: pandas', NumPy's, standardised, kept
HELD = 6
BASES = {
    "poly": "degree",
    "bs": "df",
    "cc": "df",
    "cr": "df",
    "hashed": "levels",
}  # whose argument is the columns'


def check_terms(formula: str, columns: Collection[str]) -> None:
    """UsageError where a formula is longer, or multiplies out into more terms, than can be meant.

    Counted on the tree of its operators, before any term is made: (a + b)**9999 is one line.
    """
    if len(formula) > LONGEST:
        raise UsageError(
            f"the formula has {len(formula):,} letters, and may have {LONGEST:,}; make columns of its terms."
        )
    from formulaic.parser import DefaultFormulaParser

    tree = DefaultFormulaParser().get_ast(
        formula, context={"__formulaic_variables_available__": list(columns)}
    )
    _check_powers(tree)
    if _counted(tree, len(columns)) > MOST_TERMS:
        raise UsageError(
            f"formula {formula[:200]!r} multiplies out into more than {MOST_TERMS:,} terms; write those that you mean."
        )


def _check_powers(tree: Any) -> None:
    """UsageError for x^2, which in formulas is x: a power multiplies terms out, and has one to multiply."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        below = getattr(node, "args", ())
        if below and node.operator.symbol in ("**", "^") and not hasattr(below[0], "operator"):
            base, power = below
            raise UsageError(
                f"the formula's {base}{node.operator.symbol}{power} means {base} alone, as powers multiply terms out; "
                f"write I({base}**{power}), or poly({base}, {power})."
            )
        waiting.extend(below)


def _counted(tree: Any, columns: int) -> float:
    """Terms of a formula's tree, or more: what its operators go through, children before parents."""
    order, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting.extend(getattr(node, "args", ()))
    counts: dict[int, float] = {}
    for node in reversed(order):
        below = [counts[id(part)] for part in getattr(node, "args", ())]
        counts[id(node)] = _terms(node, below, columns)
    return counts[id(tree)]


def _terms(node: Any, below: list[float], columns: int) -> float:
    if not hasattr(node, "operator"):
        return float(columns if str(node) == "." else 1)
    symbol = node.operator.symbol
    if symbol in ("**", "^"):
        power = str(node.args[1])
        # of an exponent that is no number the parser speaks
        return _power(below[0], int(power[:6])) if power.isdecimal() else below[0]
    if symbol == ":" or symbol == "in":
        return math.prod(below)
    if symbol in ("*", "/"):
        return math.prod(count + 1 for count in below)
    return sum(below)


def _power(count: float, power: int) -> float:
    try:
        return max(count, 2.0 if power > MOST_TERMS else 1.0) ** power
    except OverflowError:
        return math.inf


def check_columns_fit(terms: Any, table: pyarrow.Table) -> None:
    """DataError for a category of more than MOST_LEVELS levels, UsageError for a design beyond memory."""
    widths = {factor.expr: _width(factor, table) for term in terms for factor in term.factors}
    total = sum(math.prod(widths[factor.expr] for factor in term.factors) for term in terms)
    check_memory(
        8.0 * HELD * table.num_rows * total,
        f"the formula's columns, up to {total:,} of {table.num_rows:,} rows,",
        "leave terms out, or group levels of categories",
    )


def _width(factor: Any, table: pyarrow.Table) -> int:
    """The columns that a factor makes, or more."""
    kind = factor.eval_method.value
    if kind == "lookup":
        return (
            len(table.column(factor.expr).unique())
            if is_text(table.schema.field(factor.expr).type)
            else 1
        )
    if kind != "python":
        return 1
    from formulaic.utils.code import sanitize_variable_names

    aliases: dict[str, str] = {}
    node = ast.parse(sanitize_variable_names(factor.expr, {}, aliases), mode="eval").body
    called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    if called == "C":
        first = node.args[0] if isinstance(node, ast.Call) and node.args else None
        name = aliases.get(first.id, first.id) if isinstance(first, ast.Name) else ""
        return _levels(factor.expr, name, table) if name in table.column_names else 1
    if called in BASES and isinstance(node, ast.Call):
        sizes = [part for part in node.args[1:2]] + [
            keyword.value for keyword in node.keywords if keyword.arg in (BASES[called], "knots")
        ]
        return max(3, *(_size(part) for part in sizes)) if sizes else 3
    return 1


def _size(node: ast.expr) -> int:
    if isinstance(node, (ast.List, ast.Tuple)):
        return len(node.elts) + 4
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else 1


def is_text(kind: Any, *, dictionary: bool = True) -> bool:
    """Whether a column of this type is text, or, with `dictionary`, a category."""
    types = need("pyarrow", "tables").types
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return text or (dictionary and types.is_dictionary(kind))


def _levels(expression: str, name: str, table: pyarrow.Table) -> int:
    """Distinct values of a column. Raises DataError where they are more than a category may have."""
    levels = len(table.column(name).unique())
    if levels > MOST_LEVELS:
        raise DataError(
            f"{expression} is a category with {levels:,} levels (at most {MOST_LEVELS:,}); group them, take it as "
            "a number where it is one, or take it out of the formula."
        )
    return levels
