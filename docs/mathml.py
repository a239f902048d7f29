"""Set equations as MathML, which browsers draw without a script and without a network."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def inline(translator: Any, node: nodes.math) -> None:
    """Write an equation within a line."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed(translator: Any, node: nodes.math_block) -> None:
    """Write an equation on a line of its own, which scrolls if the screen is narrow."""
    equation = convert(node.astext(), display="block")
    translator.body.append(f'<div class="equation">{equation}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer with Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
