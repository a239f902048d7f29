"""Convert the docstrings of the package to reStructuredText for Sphinx.

A docstring is text with backticks around code, blocks that are indented further (equations), and
sections (`Args:`, `Attributes:`, `Returns:`, `Raises:`, `Example:`) whose items are `name: what it is`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Example|Examples|Source):$")
OPENING = re.compile(
    r"(Args|Attributes|Returns|Raises|Warns|Source)((?:,[^:]*| \([^:]*\))?:) (?=\S)"
)
ITEM = re.compile(r"\*{0,2}\w+(?:(?:, ?| and )\*{0,2}\w+)*,?$")


def text(line: str) -> str:
    """Return a line of prose with code in double backticks and other characters escaped."""
    parts = re.split(r"(`[^`]+`)", line)
    return "".join(
        f"`{part}`" if part.startswith("`") else re.sub(r"([\\*|_<>])", r"\\\1", part)
        for part in parts
    )


def indent_of(line: str) -> int:
    """Count the spaces at the start of a line."""
    return len(line) - len(line.lstrip())


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield paragraphs: lines between empty ones."""
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def items(body: list[str], base: int) -> Iterator[str]:
    """Yield the items of a section as bullets, and text without a name as prose."""
    for block in blocks(body):
        for line in block:
            name, colon, rest = line.strip().partition(":")
            if indent_of(line) == base and colon and ITEM.match(name):
                yield from ("", f"* ``{name}``: {text(rest.strip())}")
            elif indent_of(line) == base:
                yield from (("", text(line.strip())) if line is block[0] else (text(line.strip()),))
            else:
                yield f"  {text(line.strip())}"
    yield ""


def prose(block: list[str]) -> Iterator[str]:
    """Yield a paragraph, or an indented block such as an equation unchanged."""
    yield ""
    if indent_of(block[0]) >= 4:
        yield from ("::", "", *(f"    {line.strip()}" for line in block))
    else:
        first, *rest = (line.strip() for line in block)
        found = OPENING.match(first)
        if found:
            yield f"**{found[1]}{found[2]}** {text(first[found.end() :])}"
        else:
            yield text(first)
        yield from map(text, rest)
    yield ""


def rendered(lines: list[str]) -> list[str]:
    """Convert the lines of a docstring to reStructuredText."""
    out: list[str] = []
    at = 0
    while at < len(lines):
        section, end = SECTION.match(lines[at]), at + 1
        if not lines[at].strip():
            at = end
            continue
        if section is None:
            while end < len(lines) and lines[end].strip() and not SECTION.match(lines[end]):
                end += 1
            out += prose(lines[at:end])
            at = end
            continue
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith(" ")):
            end += 1
        body = lines[at + 1 : end]
        base = min((indent_of(line) for line in body if line.strip()), default=0)
        out += ["", f"**{section[1]}**", ""]
        if section[1].startswith("Example"):
            out += [".. code-block:: pycon", "", *(f"    {line[base:]}".rstrip() for line in body)]
        else:
            out += items(body, base)
        out.append("")
        at = end
    return out


def process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Convert a docstring in place; autodoc calls this for each one."""
    lines[:] = rendered(list(lines))


def signature(*about: Any) -> tuple[str, str] | None:
    """Replace defaults that are objects by their names; autodoc calls this for each signature."""
    given, returned = about[-2:]
    if given is None:
        return None
    return re.sub(r"=Verdict\(.*?judged=False\)", "=NOT_JUDGED", given), returned


def setup(app: Any) -> dict[str, bool]:
    """Connect the two functions to autodoc."""
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
