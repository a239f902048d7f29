"""Whether the cells of the columns that a formula uses are what it can take.

Sums over the rows of a design, a block at a time: a design is held once, not two or three times.

How large the design of a formula will be, before it is made: its terms, columns and bytes.

What was meant by a formula that cannot be read as it is written, and how to write it here.
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
MIN_LARGE_BYTES = 2**25  # bytes, which are worth a tenth of a second


def give_back(x: Float[np.ndarray, "N p"]) -> None:
    """What the table took that a large design was made of: formulaic's caches refer to one another."""
    if x.nbytes >= MIN_LARGE_BYTES:
        gc.collect()
        need("pyarrow", "tables").default_memory_pool().release_unused()


def blocks(x: Sized) -> Iterator[slice]:
    """The rows, so many at a time."""
    return (slice(at, at + DESIGN_ROWS_AT_ONCE) for at in range(0, len(x), DESIGN_ROWS_AT_ONCE))


def mean_and_sd(
    x: Float[np.ndarray, "N p"], about_mean: bool = True
) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
    """Of every column; `about_mean=False`: mean 0 and the root mean square.

    Of differences to the first row, so that a constant column has an sd of 0.

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
    """(x - center) / scale, taken in double precision, in single."""
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
    """The correlations of some columns: z^T z / N of z = (x - center) / scale."""
    total = np.zeros((len(columns), len(columns)))
    for rows in blocks(x):
        z = (x[rows][:, columns] - center[columns]) / scale[columns]
        total += z.T @ z
    return total / len(x)


# -- size ----------------------------------------------------------------------------------


MAX_FORMULA_CHARS = 20_000  # letters of a formula
MAX_TERMS = 5000
MAX_CATEGORY_LEVELS = 1000  # of a category
# matrices of the design's size that are held at once: pandas', NumPy's, standardised, kept
DESIGN_COPIES_HELD = 6
BASIS_SIZES = {
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
    if len(formula) > MAX_FORMULA_CHARS:
        raise UsageError(
            f"the formula has {len(formula):,} letters, and may have {MAX_FORMULA_CHARS:,}; make columns of its terms."
        )
    from formulaic.parser import DefaultFormulaParser

    tree = DefaultFormulaParser().get_ast(
        formula, context={"__formulaic_variables_available__": list(columns)}
    )
    _check_powers(tree)
    if _counted(tree, len(columns)) > MAX_TERMS:
        raise UsageError(
            f"formula {formula[:200]!r} multiplies out into more than {MAX_TERMS:,} terms; write those that you mean."
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
        return max(count, 2.0 if power > MAX_TERMS else 1.0) ** power
    except OverflowError:
        return math.inf


def check_columns_fit(terms: Any, table: pyarrow.Table) -> None:
    """DataError for a category of more than MAX_CATEGORY_LEVELS levels, UsageError for a design beyond memory."""
    widths = {factor.expr: _width(factor, table) for term in terms for factor in term.factors}
    total = sum(math.prod(widths[factor.expr] for factor in term.factors) for term in terms)
    check_memory(
        8.0 * DESIGN_COPIES_HELD * table.num_rows * total,
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
    """Whether a column of this type is text, or, with `dictionary`, a category."""
    types = need("pyarrow", "tables").types
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return text or (dictionary and types.is_dictionary(kind))


def _levels(expression: str, name: str, table: pyarrow.Table) -> int:
    """Distinct values of a column. Raises DataError where they are more than a category may have."""
    levels = len(table.column(name).unique())
    if levels > MAX_CATEGORY_LEVELS:
        raise DataError(
            f"{expression} is a category with {levels:,} levels (at most {MAX_CATEGORY_LEVELS:,}); group them, take it as "
            "a number where it is one, or take it out of the formula."
        )
    return levels


# -- usable --------------------------------------------------------------------------------


MAX_TEXT_LEVELS = 20  # up to so many, text is a category whatever it looks like


def check_cells(
    terms: Iterable[Any], table: pyarrow.Table, used: Iterable[str], numbers: Collection[str]
) -> None:
    """DataError that names every column whose cells are not what a formula can take.

    Args:
      numbers: columns that have to be of numbers; text in others is a category.
    """
    factors = [factor for term in terms for factor in term.factors]
    alone = {factor.expr for factor in factors if factor.eval_method.value == "lookup"}
    named = " ".join(factor.expr for factor in factors if "C(" in factor.expr)

    def trouble(name: str) -> Trouble | None:
        kind = table.schema.field(name).type
        made = need("pyarrow", "tables").types.is_dictionary(
            kind
        )  # a category by who made the table
        if name in numbers or not is_text(kind.value_type if made else kind, dictionary=False):
            return trouble_of(table, name)
        names = made or name in named
        return missing_cells(table, name) or _of_category(table, name, name in alone, names)

    raise_all(trouble(name) for name in sorted(used))


def _of_category(table: pyarrow.Table, name: str, alone: bool, named: bool) -> Trouble | None:
    """Why text is no category: it means numbers, has a slip among numbers, or too many levels.

    Args:
      alone: the column is a term by itself, which formulaic makes a category.
      named: it stands inside C(...), or is a category of the table: its numbers are names.
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
    bad = _no_numbers(levels)
    if alone and not named and not bad.any():
        return Trouble(
            name,
            f"is text, with numbers in every row ({levels[0]!r} in data row 1) and {len(levels):,} levels",
            f"convert it to numbers, or write C({name}) where they are names",
        )
    if 0 < bad.sum() < len(levels) / 2:
        return trouble_of(table, name)  # which names the slip
    if len(levels) > MAX_CATEGORY_LEVELS:
        return Trouble(
            name,
            f"is text with {len(levels)} levels (at most {MAX_CATEGORY_LEVELS})",
            "group them, or take it out of the formula",
        )
    return None


def _no_numbers(text: pandas.Series) -> np.ndarray:
    return need("pandas", "tables").to_numeric(text, errors="coerce").isna().to_numpy()


# -- spelling ------------------------------------------------------------------------------


QUOTED = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"")
BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
EQUALS_SIGN = re.compile(r":=|<-|<~|==?")
GROUP_TERM = re.compile(r"\([^()|]*\|[^()]*\)")  # (1 | town)
MISSING_OPERAND = re.compile(r"[~+*:/-]\s*([+*:/)]|$)")  # an operator, and nothing for it
PLAIN_NAME = re.compile(r"[^\W\d]\w*")  # a name that needs no backticks
R_FUNCTIONS = {  # functions of R and its packages
    "factor": "C", "as.factor": "C", "ordered": "C", "ln": "log", "log1p": "np.log1p", "ns": "cr",
}  # fmt: skip


def meant(formula: str, columns: Collection[str]) -> str:
    """A sentence to stand behind a refusal: what to write instead; empty where nothing is known.

    Example:
      >>> from sgld.regression.columns import meant
      >>> print(meant("cost = age + factor(town)", ["cost", "age", "town"]))
       Write 'cost ~ age + C(town)': '~' stands between outcome and predictors; factor is C here.
    """
    if GROUP_TERM.search(_bare(formula)):
        return " Group terms such as (1 | town) are not there; a NumPyro model has them (docs/numpyro.md)."
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
            " Something is missing there: at the shell a formula with backticks stands in single quotes, since in "
            "double quotes the shell takes what is in backticks for a command."
        )
    return ""


def _bare(formula: str) -> str:
    """The formula, as long as it was, with x for everything in quotes."""
    return QUOTED.sub(lambda found: "x" * len(found[0]), formula)


def _flat(formula: str) -> str:
    """The same with x for everything in brackets."""
    bare = _bare(formula)
    while (flat := BRACKETS.sub(lambda found: "x" * len(found[0]), bare)) != bare:
        bare = flat
    return bare


def _tilde(formula: str, columns: Collection[str]) -> tuple[str, str]:
    """'~' for the sign that stands in its place."""
    flat = _flat(formula)
    found = EQUALS_SIGN.search(flat)
    if found is not None and "~" not in EQUALS_SIGN.sub("", flat):
        formula = f"{formula[: found.start()].rstrip()} ~ {formula[found.end() :].lstrip()}"
    return formula, "'~' stands between outcome and predictors"


def _pluses(formula: str, columns: Collection[str]) -> tuple[str, str]:
    """Pluses for commas."""
    flat = _flat(formula)
    right = flat.find("~")
    commas = [i for i, letter in enumerate(flat) if letter == "," and 0 <= right < i]
    for i in reversed(commas):
        formula = f"{formula[:i].rstrip()} + {formula[i + 1 :].lstrip()}"
    return formula, "predictors are joined by '+'"


def _functions(formula: str, columns: Collection[str]) -> tuple[str, str]:
    """The names that functions have here."""
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
    """Backticks around every column's name that needs them and has none."""
    reason = "names with spaces or signs stand in backticks, and at the shell the formula in single quotes"
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
