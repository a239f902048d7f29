"""What was meant by a formula that cannot be read as it is written, and how to write it here."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection

__all__ = ["meant"]

QUOTED = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"")
BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
EQUALS = re.compile(r":=|<-|<~|==?")
GROUP = re.compile(r"\([^()|]*\|[^()]*\)")  # (1 | town)
MISSING = re.compile(r"[~+*:/-]\s*([+*:/)]|$)")  # an operator, and nothing for it
PLAIN = re.compile(r"[^\W\d]\w*")  # a name that needs no backticks
ELSEWHERE = {  # functions of R and its packages
    "factor": "C", "as.factor": "C", "ordered": "C", "ln": "log", "log1p": "np.log1p", "ns": "cr",
}  # fmt: skip


def meant(formula: str, columns: Collection[str]) -> str:
    """A sentence to stand behind a refusal: what to write instead; empty where nothing is known.

    Example:
      >>> from sgld.models.spelling import meant
      >>> print(meant("cost = age + factor(town)", ["cost", "age", "town"]))
       Write 'cost ~ age + C(town)': '~' stands between outcome and predictors; factor is C here.
    """
    if GROUP.search(_bare(formula)):
        return " Group terms such as (1 | town) are not there; a NumPyro model has them (docs/numpyro.md)."
    written, reasons = formula, []
    for change in (_tilde, _pluses, _functions, _backticks):
        changed, reason = change(written, columns)
        if changed != written:
            written = changed
            reasons.append(reason)
    if reasons:
        return f" Write {written!r}: {'; '.join(reasons)}."
    if MISSING.search(formula.replace("**", "^").strip()):
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
    found = EQUALS.search(flat)
    if found is not None and "~" not in EQUALS.sub("", flat):
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
    for name, here in ELSEWHERE.items():
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
        if c.strip("0123456789. ") and (keyword.iskeyword(c) or not PLAIN.fullmatch(c))
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
