"""The style of a view: the report's colours, for one output among others, light or dark as its page is.

JupyterLab, VS Code and Colab say on the page which theme they show; elsewhere the reader's system says.
Where a page strips styles, as GitHub does, a view is plain text and tables.
"""

from __future__ import annotations

from ..report.canvas import COLOURS
from ..report.style import DARK, DARK_WORDS, LIGHT_WORDS

__all__ = ["framed"]

USED = ("ink", "muted", "line", "accent", "shade", "paper")
DARK_PAGES = (
    '[data-jp-theme-light="false"] .sgld',
    ".vscode-dark .sgld",
    ".vscode-high-contrast .sgld",
    "html[theme=dark] .sgld",
)
LIGHT_PAGES = (
    '[data-jp-theme-light="true"] .sgld',
    ".vscode-light .sgld",
    "html[theme=light] .sgld",
)


def _variables(colours: dict[str, str], words: str) -> str:
    return " ".join(f"--{name}: {colours[name]};" for name in USED) + " " + words


_LIGHT, _DARK = _variables(COLOURS, LIGHT_WORDS), _variables(DARK, DARK_WORDS)
_RULES = {
    "": "background: var(--paper); color: var(--ink); padding: .6rem .9rem; border-radius: .4rem;"
    " font: 14px/1.45 system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; max-width: 64rem;",
    " p": "margin: .25rem 0; color: var(--ink);",
    " p.note": "color: var(--muted); font-size: .86em;",
    " p.narrow": "display: none;",
    " h4": "margin: .5rem 0 .2rem; font-size: 1em; font-weight: 600; color: var(--ink);",
    " .banner": "border-left: .4rem solid var(--word); background: var(--shade); padding: .4rem .8rem;"
    " margin: 0 0 .5rem; border-radius: .3rem;",
    " .banner p.word": "color: var(--word); font-size: 1.5em; font-weight: 700; margin: 0;",
    " .banner ul": "margin: .2rem 0; padding-left: 1.1rem;",
    " .trusted": "--word: var(--good);",
    " .biased": "--word: var(--bad);",
    " .not-mixed": "--word: var(--warn);",
    " .unknown": "--word: var(--doubt);",
    " .scroll": "overflow-x: auto;",
    " table": "border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9em; margin: .3rem 0;"
    " color: var(--ink); background: var(--paper);",
    " tr, tr:nth-child(odd), tr:hover": "background: var(--paper);",
    " th, td": "text-align: right; padding: .15rem .36rem; white-space: nowrap; border: 0;"
    " border-bottom: 1px solid var(--line);",
    " thead th": "color: var(--muted); font-weight: 600; white-space: normal; vertical-align: bottom;",
    " tbody th, thead th:first-child": "text-align: left; font-weight: 600;",
    " td.miss": "background: var(--miss); font-weight: 700;",
    " td.none": "color: var(--muted);",
    " details": "margin-top: .3rem;",
    " summary": "color: var(--accent); cursor: pointer;",
    " dl": "display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .1rem .9rem; margin: 0;",
    " dt": "color: var(--muted); font-weight: 400; width: auto; float: none; white-space: nowrap;",
    " dd": "margin: 0; padding: 0; width: auto; float: none;",
    " dd ul": "margin: 0; padding: 0; list-style: none;",
}


def _rule(parts: str, rule: str) -> str:
    """A rule that counts for more than those of the page, which style every table of theirs."""
    return ", ".join(f".sgld.sgld.sgld{part}" for part in parts.split(",")) + f" {{ {rule} }}"


_SHEET = "\n".join(
    [
        f".sgld {{ {_LIGHT} }}",
        f"@media (prefers-color-scheme: dark) {{ .sgld {{ {_DARK} }} }}",
        f"{', '.join(LIGHT_PAGES)} {{ {_LIGHT} }}",
        f"{', '.join(DARK_PAGES)} {{ {_DARK} }}",
        *(_rule(part, rule) for part, rule in _RULES.items()),
    ]
)


def framed(content: str) -> str:
    """`content` as an output of its own, with its style."""
    return f'<style>{_SHEET}</style>\n<div class="sgld">{content}</div>'
