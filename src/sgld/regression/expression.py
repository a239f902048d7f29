"""The functions, operators and names allowed in a formula, checked before evaluation.

Formulas also come from files of strangers, and formulaic evaluates a factor such as `I(x + 1)` as
Python, with all of Python's builtins. Each factor is therefore parsed as formulaic parses it, and
rejected unless it is arithmetic on columns, numbers and the functions listed here.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from ..errors import UsageError

FUNCTIONS = frozenset({
    "C", "I", "Q", "abs", "bs", "cc", "center", "cr", "cs", "exp", "exp10", "exp2", "hashed", "lag", "log", "log10",
    "log2", "offset", "poly", "scale", "sqrt", "standardize", "Diff", "Helmert", "Poly", "Sum", "Treatment",
})  # fmt: skip
NUMPY = frozenset({
    "abs", "absolute", "arccos", "arcsin", "arctan", "arctan2", "cbrt", "ceil", "clip", "cos", "cosh", "e", "exp",
    "exp2", "expm1", "fabs", "floor", "hypot", "log", "log10", "log1p", "log2", "maximum", "minimum", "pi", "power",
    "rint", "round", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "where",
})  # fmt: skip
CONTRASTS = frozenset({"diff", "helmert", "poly", "sas", "sum", "treatment"})
MEMBERS = {"np": NUMPY, "contr": CONTRASTS}
BASES = frozenset(
    {"bs", "cc", "cr", "cs", "hashed", "lag", "poly"}
)  # functions whose whole-number arguments are sizes
OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.UAdd, ast.USub, ast.Invert,
    ast.Not, ast.And, ast.Or, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip
MAX_POWER, MAX_BASIS_SIZE = 64, 1000
MAX_FACTOR_CHARS = 2000  # characters of a factor
MAX_DEPTH = 40


def check_expression(expression: str, columns: Collection[str]) -> set[str]:
    """Return the names in a factor that should be columns.

    Raises UsageError unless the factor is arithmetic on them alone.
    """
    from formulaic.utils.code import sanitize_variable_names

    if len(expression) > MAX_FACTOR_CHARS:
        raise UsageError(
            f"a term of the formula has {len(expression)} characters (at most {MAX_FACTOR_CHARS}); store it as a column."
        )
    aliases: dict[str, str] = {}
    try:
        tree = ast.parse(sanitize_variable_names(expression, {}, aliases), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"the formula's term {expression!r} cannot be read: {error}.") from error
    checker = _Checker(expression, {name: aliases.get(name, name) for name in {*columns, *aliases}})
    checker.check(tree)
    return checker.used


class _Checker:
    def __init__(self, expression: str, names: dict[str, str]) -> None:
        self.expression, self.names, self.used = expression, names, set[str]()

    def refuse(self, what: str, hint: str = "") -> UsageError:
        return UsageError(
            f"the formula's term {self.expression!r} uses {what}, which is not allowed. A formula may use columns, "
            f"numbers, arithmetic, and functions such as log, center, poly, bs, C and np.sqrt.{hint}"
        )

    def check(self, node: ast.expr, depth: int = 0) -> None:
        """Raise UsageError unless the node, and all below it, is of the kinds listed."""
        if depth > MAX_DEPTH:
            raise self.refuse(f"more than {MAX_DEPTH} nested brackets")
        below: list[ast.expr] = []
        if isinstance(node, ast.Constant):
            self.constant(node.value)
        elif isinstance(node, ast.Name):
            self.used.add(self.names.get(node.id, node.id))
        elif isinstance(node, ast.Attribute):
            self.member(node)
        elif isinstance(node, ast.Call):
            self.function(node.func)
            below = [*node.args, *(keyword.value for keyword in node.keywords)]
            self.arguments(node)
        elif isinstance(node, ast.BinOp):
            self.operator(node.op, node)
            below = [node.left, node.right]
        elif isinstance(node, ast.UnaryOp):
            self.operator(node.op, node)
            below = [node.operand]
        elif isinstance(node, ast.BoolOp):
            self.operator(node.op, node)
            below = node.values
        elif isinstance(node, ast.Compare):
            for op in node.ops:
                self.operator(op, node)
            below = [node.left, *node.comparators]
        else:
            raise self.refuse(f"{ast.unparse(node)[:60]!r}")
        for part in below:
            # lists are allowed as arguments only: a list times a number can exhaust memory
            if isinstance(node, ast.Call) and isinstance(part, (ast.List, ast.Tuple)):
                for item in part.elts:
                    self.check(item, depth + 1)
                continue
            text = isinstance(part, ast.Constant) and isinstance(part.value, str)
            if text and not isinstance(node, (ast.Call, ast.Compare)):
                raise self.refuse("arithmetic on text")
            self.check(part, depth + 1)

    def constant(self, value: object) -> None:
        """Check a constant: a number, truth value, None, or text that cannot end a quotation."""
        if isinstance(value, str):
            if any(letter in "\"'\\`" or not letter.isprintable() for letter in value):
                raise self.refuse(f"the text {value[:40]!r}")
        elif isinstance(value, bool) or value is None or isinstance(value, float):
            pass
        elif not isinstance(value, int) or abs(value) > 10**15:
            raise self.refuse(f"{str(value)[:40]}")

    def function(self, node: ast.expr) -> None:
        if isinstance(node, ast.Attribute):
            self.member(node)
        elif not isinstance(node, ast.Name) or node.id in self.names:
            raise self.refuse(f"{ast.unparse(node)[:60]!r} as a function")
        elif node.id not in FUNCTIONS:
            self.used.add(node.id)

    def member(self, node: ast.Attribute) -> None:
        module = node.value.id if isinstance(node.value, ast.Name) else ""
        if node.attr not in MEMBERS.get(module, ()):
            raise self.refuse(f"{ast.unparse(node)[:60]!r}")

    def arguments(self, node: ast.Call) -> None:
        """Reject ** of a dict, and a size that needs too much memory."""
        if any(keyword.arg is None or keyword.arg.startswith("_") for keyword in node.keywords):
            raise self.refuse("an argument without a name of its own")
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "Q":
            self.used |= {str(a.value) for a in node.args if isinstance(a, ast.Constant)}
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        for value in values:
            if isinstance(value, ast.UnaryOp):
                value = value.operand
            size = value.value if isinstance(value, ast.Constant) else 0
            if name in BASES and type(size) is int and size > MAX_BASIS_SIZE:
                raise self.refuse(f"{name} of size {size}, at most {MAX_BASIS_SIZE}")

    def operator(self, op: ast.AST, node: ast.expr) -> None:
        if isinstance(op, ast.Pow) and isinstance(node, ast.BinOp):
            power = node.right.operand if isinstance(node.right, ast.UnaryOp) else node.right
            small = (
                isinstance(power, ast.Constant)
                and isinstance(power.value, (int, float))
                and abs(power.value) <= MAX_POWER
            )
            if small and not isinstance(node.left, ast.Constant):
                return
            raise self.refuse(f"{ast.unparse(node)[:60]!r} (a power is a number up to {MAX_POWER})")
        if isinstance(op, ast.BitXor):
            raise self.refuse(f"{ast.unparse(node)[:60]!r}", " Write a power as **.")
        if not isinstance(op, OPERATORS):
            raise self.refuse(f"{ast.unparse(node)[:60]!r}")
