"""Checks of the columns that a formula uses, of the size of its design, and of its spelling.

It also computes sums over the rows of a design in blocks, so that the design is held in memory only once.
"""

from __future__ import annotations

import ast
import gc
import keyword
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..core.devices import check_memory
from ..data.delimited import Trouble, missing_cells, raise_all, trouble_of, written_number
from ..errors import DataError, UsageError, need

if TYPE_CHECKING:
    import pandas
    import pyarrow

# -- blocks --------------------------------------------------------------------------------


DESIGN_ROWS_AT_ONCE = 65_536
MIN_LARGE_BYTES = 2**25  # bytes of a design from which a tenth of a second of collection pays


def release_memory(x: Float[np.ndarray, "N p"]) -> None:
    """Free the memory of the table of a large design, because formulaic's caches are cyclic."""
    if x.nbytes >= MIN_LARGE_BYTES:
        gc.collect()
        need("pyarrow", "tables").default_memory_pool().release_unused()


def blocks(x: Sized) -> Iterator[slice]:
    """Return slices of the rows, DESIGN_ROWS_AT_ONCE at a time."""
    return (slice(at, at + DESIGN_ROWS_AT_ONCE) for at in range(0, len(x), DESIGN_ROWS_AT_ONCE))


def mean_and_sd(
    x: Float[np.ndarray, "N p"], about_mean: bool = True
) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
    """Return mean and sd of every column; `about_mean=False`: 0 and the root mean square.

    Differences to the first row are used, so that a constant column has an sd of 0.

    Example:
      >>> import numpy as np
      >>> from sgld.regression.columns import mean_and_sd
      >>> mean_and_sd(np.array([[1.0, 5.0], [3.0, 5.0]]))
      (array([2., 5.]), array([1., 0.]))
    """
    mean = np.zeros(x.shape[1])
    if about_mean:
        mean = x[0] + sum((x[rows] - x[0]).sum(axis=0) for rows in blocks(x)) / len(x)
    squares = sum(((x[rows] - mean) ** 2).sum(axis=0) for rows in blocks(x))
    return mean, np.sqrt(squares / len(x))


def standardised(
    x: Float[np.ndarray, "N p"], center: Float[np.ndarray, " p"], scale: Float[np.ndarray, " p"]
) -> Float[np.ndarray, "N p"]:
    """Return (x - center) / scale in single precision, computed in double precision."""
    z = np.empty(x.shape, np.float32)
    for rows in blocks(x):
        z[rows] = (x[rows] - center) / scale
    return z


def gram(
    x: Float[np.ndarray, "N p"],
    columns: Sequence[int],
    center: Float[np.ndarray, " p"],
    scale: Float[np.ndarray, " p"],
) -> Float[np.ndarray, "k k"]:
    """Return the correlations of some columns: z^T z / N of z = (x - center) / scale."""
    total = np.zeros((len(columns), len(columns)))
    for rows in blocks(x):
        z = (x[rows][:, columns] - center[columns]) / scale[columns]
        total += z.T @ z
    return total / len(x)


# -- size ----------------------------------------------------------------------------------


MAX_FORMULA_CHARS = 20_000  # characters of a formula
MAX_TERMS = 5000
MAX_CATEGORY_LEVELS = 1000  # levels of a category
# matrices of the design's size in memory at once: pandas', NumPy's, standardised, stored
DESIGN_COPIES_HELD = 6
BASIS_SIZES = {
    "poly": "degree",
    "bs": "df",
    "cc": "df",
    "cr": "df",
    "hashed": "levels",
}  # the argument that sets the number of columns


def check_terms(formula: str, columns: Collection[str]) -> None:
    """Raise UsageError where a formula is too long, or expands into too many terms.

    Terms are counted on the tree of operators, before any is built: (a + b)**9999 is one line.
    """
    if len(formula) > MAX_FORMULA_CHARS:
        raise UsageError(
            f"the formula has {len(formula):,} characters (at most {MAX_FORMULA_CHARS:,}); store its terms as columns."
        )
    from formulaic.parser import DefaultFormulaParser

    tree = DefaultFormulaParser().get_ast(
        formula, context={"__formulaic_variables_available__": list(columns)}
    )
    _check_powers(tree)
    if _counted(tree, len(columns)) > MAX_TERMS:
        raise UsageError(
            f"formula {formula[:200]!r} expands into more than {MAX_TERMS:,} terms; list the terms that you need."
        )


def _check_powers(tree: Any) -> None:
    """Raise UsageError for x^2, which formulas read as x: a power expands terms."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        below = getattr(node, "args", ())
        if below and node.operator.symbol in ("**", "^") and not hasattr(below[0], "operator"):
            base, power = below
            raise UsageError(
                f"the formula's {base}{node.operator.symbol}{power} means {base} alone, because powers expand terms; "
                f"write I({base}**{power}), or poly({base}, {power})."
            )
        waiting.extend(below)


def _counted(tree: Any, columns: int) -> float:
    """Return an upper bound on the terms of a formula's tree, children before parents."""
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
        # the parser reports an exponent that is not a number
        return _power(below[0], int(power[:6])) if power.isdecimal() else below[0]
    if symbol == ":" or symbol == "in":
        return math.prod(below)
    if symbol in ("*", "/"):
        return math.prod(count + 1 for count in below)
    return sum(below)


def _power(count: float, power: int) -> float:
    try:
        return max(count, 2.0 if power > MAX_TERMS else 1.0) ** power
    except OverflowError:
        return math.inf


def check_columns_fit(terms: Any, table: pyarrow.Table) -> None:
    """Raise DataError for too many levels of a category, UsageError for a design beyond memory."""
    widths = {factor.expr: _width(factor, table) for term in terms for factor in term.factors}
    total = sum(math.prod(widths[factor.expr] for factor in term.factors) for term in terms)
    check_memory(
        8.0 * DESIGN_COPIES_HELD * table.num_rows * total,
        f"the formula's columns, up to {total:,} of {table.num_rows:,} rows,",
        "leave terms out, or group levels of categories",
    )


def _width(factor: Any, table: pyarrow.Table) -> int:
    """Return an upper bound on the columns of a factor."""
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
    if called in BASIS_SIZES and isinstance(node, ast.Call):
        sizes = [part for part in node.args[1:2]] + [
            keyword.value
            for keyword in node.keywords
            if keyword.arg in (BASIS_SIZES[called], "knots")
        ]
        return max(3, *(_size(part) for part in sizes)) if sizes else 3
    return 1


def _size(node: ast.expr) -> int:
    if isinstance(node, (ast.List, ast.Tuple)):
        return len(node.elts) + 4
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else 1


def is_text(kind: Any, *, dictionary: bool = True) -> bool:
    """Return whether a column of this type is text or, with `dictionary`, a category."""
    types = need("pyarrow", "tables").types
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return text or (dictionary and types.is_dictionary(kind))


def _levels(expression: str, name: str, table: pyarrow.Table) -> int:
    """Count a column's distinct values. Raises DataError for more than a category may have."""
    levels = len(table.column(name).unique())
    if levels > MAX_CATEGORY_LEVELS:
        raise DataError(
            f"{expression} is a category with {levels:,} levels (at most {MAX_CATEGORY_LEVELS:,}); group them, use it as "
            "a number where it is one, or remove it from the formula."
        )
    return levels


# -- usable --------------------------------------------------------------------------------


MAX_TEXT_LEVELS = 20  # levels up to which any text is a category


def check_cells(
    terms: Iterable[Any], table: pyarrow.Table, used: Iterable[str], numbers: Collection[str]
) -> None:
    """Raise DataError with the name of every column whose cells a formula cannot use.

    Args:
      terms: the formula's terms.
      table: the table.
      used: the columns that the formula uses.
      numbers: columns that must hold numbers; text in others is a category.
    """
    factors = [factor for term in terms for factor in term.factors]
    alone = {factor.expr for factor in factors if factor.eval_method.value == "lookup"}
    named = " ".join(factor.expr for factor in factors if "C(" in factor.expr)

    def trouble(name: str) -> Trouble | None:
        kind = table.schema.field(name).type
        made = need("pyarrow", "tables").types.is_dictionary(
            kind
        )  # the table itself declares a category
        if name in numbers or not is_text(kind.value_type if made else kind, dictionary=False):
            return trouble_of(table, name)
        names = made or name in named
        return missing_cells(table, name) or _category_trouble(table, name, name in alone, names)

    raise_all(trouble(name) for name in sorted(used))


def _category_trouble(table: pyarrow.Table, name: str, alone: bool, named: bool) -> Trouble | None:
    """Return the reason why text is not a category, or None.

    The text means numbers, has an error among numbers, or has too many levels.

    Args:
      table: the table.
      name: the column.
      alone: the column is a term by itself, which formulaic treats as a category.
      named: it is an argument of C(...), or a category of the table: its numbers are names.
    """
    column = table.column(name)
    if is_text(column.type) and not is_text(column.type, dictionary=False):
        column = column.cast(column.type.value_type)
    if not named:
        found = written_number(name, column)
        if found is not None:
            return found
    levels = column.unique().to_pandas()
    if len(levels) <= MAX_TEXT_LEVELS:
        return None
    bad = _not_numbers(levels)
    if alone and not named and not bad.any():
        return Trouble(
            name,
            f"is text, with numbers in every row ({levels[0]!r} in data row 1) and {len(levels):,} levels",
            f"convert it to numbers, or write C({name}) where they are names",
        )
    if 0 < bad.sum() < len(levels) / 2:
        return trouble_of(table, name)  # reports the cell with the error
    if len(levels) > MAX_CATEGORY_LEVELS:
        return Trouble(
            name,
            f"is text with {len(levels)} levels (at most {MAX_CATEGORY_LEVELS})",
            "group them, or remove it from the formula",
        )
    return None


def _not_numbers(text: pandas.Series) -> np.ndarray:
    return need("pandas", "tables").to_numeric(text, errors="coerce").isna().to_numpy()


# -- spelling ------------------------------------------------------------------------------


QUOTED = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"")
BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
EQUALS_SIGN = re.compile(r":=|<-|<~|==?")
GROUP_TERM = re.compile(r"\([^()|]*\|[^()]*\)")  # (1 | town)
MISSING_OPERAND = re.compile(r"[~+*:/-]\s*([+*:/)]|$)")  # an operator without an operand
PLAIN_NAME = re.compile(r"[^\W\d]\w*")  # a name that needs no backticks
R_FUNCTIONS = {  # functions of R and its packages
    "factor": "C", "as.factor": "C", "ordered": "C", "ln": "log", "log1p": "np.log1p", "ns": "cr",
}  # fmt: skip
SURVIVAL = "Censored outcomes are not supported; docs/recipes.md has them as a NumPyro model."
UNSUPPORTED_TERMS = {  # terms of other packages, and what to do instead
    "Surv": SURVIVAL, "cens": SURVIVAL,
    "cbind": "Give the successes as the outcome, and the numbers of trials as trials.",
    "cut": "Add the intervals as a column of the table, for example with pandas.cut.",
    "s": "Use cr(x, df=5), a spline with a fixed number of coefficients.",
    "te": "Use cr(x, df=4):cr(z, df=4).",
    "mo": "Use C(x), or x if its levels are equally spaced.",
}  # fmt: skip


def meant(formula: str, columns: Collection[str]) -> str:
    """Return a sentence that follows an error and suggests a correct formula, or an empty text.

    Example:
      >>> from sgld.regression.columns import meant
      >>> print(meant("cost = age + factor(town)", ["cost", "age", "town"]))
       Write 'cost ~ age + C(town)': '~' separates outcome and predictors; factor is C here.
    """
    if GROUP_TERM.search(_bare(formula)):
        return " Group terms such as (1 | town) are not supported; docs/recipes.md has them as a NumPyro model."
    for name, remedy in UNSUPPORTED_TERMS.items():
        if name not in columns and re.search(rf"(?<![\w.]){name}(?=\s*\()", _bare(formula)):
            return f" {remedy}"
    written, reasons = formula, []
    for change in (_tilde, _pluses, _functions, _backticks):
        changed, reason = change(written, columns)
        if changed != written:
            written = changed
            reasons.append(reason)
    if reasons:
        return f" Write {written!r}: {'; '.join(reasons)}."
    if MISSING_OPERAND.search(formula.replace("**", "^").strip()):
        return (
            " Something is missing there: at the shell, quote a formula with backticks by single quotes, because in "
            "double quotes the shell runs the text in backticks as a command."
        )
    return ""


def _bare(formula: str) -> str:
    """Return the formula, at equal length, with x for everything in quotes."""
    return QUOTED.sub(lambda found: "x" * len(found[0]), formula)


def _flat(formula: str) -> str:
    """Return the formula, at equal length, with x for everything in quotes or brackets."""
    bare = _bare(formula)
    while (flat := BRACKETS.sub(lambda found: "x" * len(found[0]), bare)) != bare:
        bare = flat
    return bare


def _tilde(formula: str, columns: Collection[str]) -> tuple[str, str]:
    """Replace an equals sign or arrow by '~'."""
    flat = _flat(formula)
    found = EQUALS_SIGN.search(flat)
    if found is not None and "~" not in EQUALS_SIGN.sub("", flat):
        formula = f"{formula[: found.start()].rstrip()} ~ {formula[found.end() :].lstrip()}"
    return formula, "'~' separates outcome and predictors"


def _pluses(formula: str, columns: Collection[str]) -> tuple[str, str]:
    """Replace commas between predictors by pluses."""
    flat = _flat(formula)
    right = flat.find("~")
    commas = [i for i, character in enumerate(flat) if character == "," and 0 <= right < i]
    for i in reversed(commas):
        formula = f"{formula[:i].rstrip()} + {formula[i + 1 :].lstrip()}"
    return formula, "predictors are joined by '+'"


def _functions(formula: str, columns: Collection[str]) -> tuple[str, str]:
    """Replace R's function names by the names used here."""
    bare, used = _bare(formula), []
    for name, here in R_FUNCTIONS.items():
        calls = list(re.finditer(rf"(?<![\w.]){re.escape(name)}(?=\s*\()", bare))
        for call in reversed(calls):
            formula = formula[: call.start()] + here + formula[call.end() :]
        if calls:
            bare = _bare(formula)
            used.append(f"{name} is {here} here")
    return formula, "; ".join(used)


def _backticks(formula: str, columns: Collection[str]) -> tuple[str, str]:
    """Add backticks around every column name that needs them."""
    reason = "quote column names that contain spaces or signs with backticks, and at the shell the formula with single quotes"
    odd = [
        c
        for c in columns
        if c.strip("0123456789. ") and (keyword.iskeyword(c) or not PLAIN_NAME.fullmatch(c))
    ]
    if not odd:
        return formula, reason
    longest_first = "|".join(re.escape(name) for name in sorted(odd, key=len, reverse=True))
    name = re.compile(rf"(?<![\w.])(?:{longest_first})(?![\w.])")
    pieces, end = [], 0
    for quoted in QUOTED.finditer(formula):
        pieces += [name.sub(r"`\g<0>`", formula[end : quoted.start()]), quoted[0]]
        end = quoted.end()
    return "".join([*pieces, name.sub(r"`\g<0>`", formula[end:])]), reason
