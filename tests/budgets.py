"""Hold the size of src/sgld to the table in tests/budgets.toml.

    python tests/budgets.py           print the table; exit with 1 where an entry is exceeded

A line of code holds more than a comment or a docstring. "root" is the files directly below src/sgld.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

SOURCE, TABLE = Path(__file__).parents[1] / "src" / "sgld", Path(__file__).with_suffix(".toml")
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
REMEDY = "reduce it, or raise the entry and say why in the commit"


def code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines without blank lines, comments and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def constants(tree: ast.Module) -> set[str]:
    """Return the names in capitals that a module assigns at its top level."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    names = [part for node in assigned for part in ast.walk(node) if isinstance(part, ast.Name)]
    stored = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return {name for name in stored if re.fullmatch("_?[A-Z][A-Z0-9_]+", name)}


def builds_verdict(tree: ast.Module) -> bool:
    """Return whether a module calls `Verdict(...)`."""
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(name.rpartition(".")[2] == "Verdict" for name in calls)


def measure(source: Path) -> dict[str, int]:
    """Return {entry: value} of the package at `source`."""
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    found = {"files": 0, "shared constant names": 0, "files that build a Verdict": 0}
    for path in sorted(source.rglob("*.py")):
        text, (package, *below) = path.read_text("utf-8"), path.relative_to(source).parts
        tree = ast.parse(text)
        lines[f"lines of {package if below else 'root'}"] += code_lines(text, tree)
        found["files"] += 1
        found["files that build a Verdict"] += builds_verdict(tree)
        modules.update(constants(tree))
    found["shared constant names"] = sum(count >= 3 for count in modules.values())
    return {**dict(sorted(lines.items())), **found}


def main(source: Path = SOURCE, table: Path = TABLE) -> int:
    """Print the table and return 1 where a value is above its entry, otherwise 0."""
    limits, over = tomllib.loads(table.read_text("utf-8")), []
    for entry, value in measure(source).items():
        limit = limits.get(entry, 0)
        print(f"{entry:28}{value:8,} of {limit:,}")
        if value > limit:
            over.append(f"{entry}: {value:,} is above the limit {limit:,}; {REMEDY}.\n")
    sys.stderr.writelines(over)
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
