"""The pages: one per entry, and the index, in the report's style; they need nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..interfaces.report.figures import WIDTH
from ..interfaces.report.html import PAGE, says
from .entry import Check, Entry, Section

if TYPE_CHECKING:
    from .make import Result

__all__ = ["entry_page", "index_page"]

INDEX = re.compile(r"(\b\w|\))([_^])(\{[^{}]*\}|\w(?!\w))")
MINUS = re.compile(r"(?<![\w.)-])-(?=\.?\d)")
WRAP = 'style="white-space: normal"'  # so that a phone shows more columns
CELL = 'style="white-space: normal; min-width: 7.5rem"'


def entry_page(result: Result, entry: Entry, sources: Mapping[str, str]) -> str:
    """The page of one entry; `sources` are the files that made it, by name, its own first."""
    code = "".join(
        f"<details><summary>Show <code>{says(file)}</code></summary>"
        f'<div class="scroll" tabindex="0"><pre><code>{says_lines(text)}</code></pre></div></details>'
        for file, text in sources.items()
    )
    where = '<p class="note"><a href="index.html">Gallery</a></p>'
    parts = [
        where,
        f"<h1>{says(result.name)}: {says(entry.title)}</h1>",
        _banner(result, entry),
        *(_section(section) for section in entry.sections),
        f'<section id="checks"><h2>Checks</h2>\n{_table(entry.checks)}\n</section>',
        "<section><h2>The code</h2>\n<p>All of it, but for the figures' style: this page is an "
        f"example.</p>\n{code}</section>",
        where,
    ]
    return PAGE.substitute(
        title=f"{says(result.name)}: {says(entry.title)}",
        content="\n".join(parts),
        footer=_facts(result),
    )


def index_page(results: Sequence[Result]) -> str:
    """The index: a row per entry with the count of its checks."""
    head = "".join(
        f'<th scope="col">{words}</th>' for words in ("entry", "passed", "missed", "as printed")
    )
    rows = []
    for result in results:
        title = f"{says(result.name)}: {says(result.title)}"
        if result.lacks is not None:
            counts = [f'<td class="none" colspan="3" {CELL}>not made: {says(result.lacks)}</td>']
        elif result.error is None:
            title = f'<a href="{says(result.name.lower())}.html">{title}</a>'
            counts = [f"<td>{result.count('pass')}</td>"]
            missed = result.count("miss")
            mark = ' class="miss"' if missed else ""
            counts.append(f"<td{mark}>{missed}</td>")
            counts.append(f"<td>{result.count('as printed')}</td>")
        else:
            counts = [f'<td class="miss" colspan="3" {CELL}>{says(result.error)}</td>']
        size = "quick size" if result.quick else "full size"
        took = f'<p class="note" style="font-weight: 400">{size}, {result.seconds:.1f}&nbsp;s</p>'
        took = "" if result.lacks else took
        rows.append(f'<tr><th scope="row" {CELL}>{title}{took}</th>{"".join(counts)}</tr>')
    content = (
        "<h1>Gallery</h1>\n<p>The experiments of five documents on Langevin dynamics and Bayesian "
        "learning, each as printed, with what is wrong with it, beside the exact answer and beside "
        "what this package makes of the same budget. A row counts its checks: those that passed, "
        "those that missed, and numbers computed <em>as printed</em>, which miss the truth for a "
        "reason that their page gives.</p>\n"
        f'<div class="scroll" tabindex="0"><table id="index"><thead><tr>{head}</tr></thead>\n'
        "<tbody>" + "\n".join(rows) + "</tbody></table></div>"
    )
    footer = "Made by <code>sgld gallery</code>."
    return PAGE.substitute(title="Gallery", content=content, footer=footer)


def says_lines(text: str) -> str:
    """Several lines fit for <pre>: `says` alone would replace the ends of lines."""
    return "\n".join(says(line) for line in text.splitlines())


def _banner(result: Result, entry: Entry) -> str:
    missed, printed = result.count("miss"), result.count("as printed")
    word = "As expected" if printed else "All checks pass"
    if missed:
        word = f"{missed} of {len(entry.checks)} checks missed"
    facts = f"{result.count('pass')} of {len(entry.checks)} numbers are right"
    if printed:
        miss = "misses" if printed == 1 else "miss"
        facts += f"; {printed} computed as printed {miss} the truth, as explained below"
    kind = "biased" if missed else "trusted"
    return (
        f'<section class="banner {kind}" id="verdict">\n<p class="word">{word}</p>\n'
        f"<p>{_prose(entry.lead)}</p>\n"
        f'<p class="note">{facts}. <a href="#checks">The table of checks</a></p>\n</section>'
    )


def _section(section: Section) -> str:
    parts = [f"<section><h2>{says(section.heading)}</h2>"]
    parts += [f"<p>{_prose(paragraph)}</p>" for paragraph in section.text]
    if section.key:
        keys = (
            '<span style="display: inline-block"><span class="key" '
            f'style="background: var(--{colour})"></span>{says(words)}</span>'
            for colour, words in section.key
        )
        parts.append(f'<p class="note">{"&emsp; ".join(keys)}</p>')
    if section.figures:
        svgs = "\n".join(f"<div>{panel.svg()}</div>" for panel in section.figures)
        wide = max(panel.figure.get_figwidth() for panel in section.figures) * 72 > WIDTH + 1
        parts.append(f'<div class="panels{" wide" if wide else ""}">{svgs}</div>')
    return "\n".join(parts) + "</section>"


def _prose(text: str) -> str:
    """A paragraph: `code` between backticks, and s_i, D^{1/2} of single letters set as indices."""
    parts = says(" ".join(text.split())).split("`")
    plain = (MINUS.sub("\N{MINUS SIGN}", part) for part in parts[0::2])
    parts[0::2] = [INDEX.sub(_index, part) for part in plain]
    parts[1::2] = [f"<code>{part}</code>" for part in parts[1::2]]
    return "".join(parts)


def _index(found: re.Match) -> str:
    tag = "sub" if found[2] == "_" else "sup"
    return f"{found[1]}<{tag}>{found[3].strip('{}')}</{tag}>"


def _table(checks: Sequence[Check]) -> str:
    head = "".join(
        f'<th scope="col">{words}</th>'
        for words in ("quantity", "result", "truth", "ours", "error", "limit")
    )
    reasons = list(
        dict.fromkeys(c.expected_miss for c in checks if c.word == "as printed" and c.expected_miss)
    )
    body = []
    for check in checks:
        mark = "" if check.passed else ' class="miss"' if check.word == "miss" else ' class="none"'
        word = check.word
        if word == "as printed" and check.expected_miss:
            word += f" ({reasons.index(check.expected_miss) + 1})"
        cells = [_number(check.truth), _number(check.ours), _error(check), _limit(check)]
        body.append(
            f'<tr><th scope="row" {CELL}>{_prose(check.quantity)}</th>'
            + f"<td{mark} {WRAP}>{says(word)}</td>"  # second, so that a phone shows it
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + "</tr>"
        )
    table = (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of checks"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>" + "\n".join(body) + "</tbody></table></div>"
    )
    if reasons:
        notes = "".join(f"<li>{_prose(reason)}</li>" for reason in reasons)
        table += f'\n<div class="note"><p>As printed:</p><ol>{notes}</ol></div>'
    return table


def _number(value: float) -> str:
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}")


def _error(check: Check) -> str:
    if check.unit == "ratio":
        return f"× {check.error:.3f}" if check.error < 100 else f"× {check.error:.0f}"
    unit = " sd" if check.unit == "sd" else ""
    return f"{check.error:+.2g}{unit}".replace("-", "\N{MINUS SIGN}")


def _limit(check: Check) -> str:
    if check.unit == "ratio":
        return f"× {1 / (1 + check.limit):.3g} to {1 + check.limit:.3g}"
    return f"± {check.limit:.3g}" + (" sd" if check.unit == "sd" else "")


def _facts(result: Result) -> str:
    size = "the quick size" if result.quick else "full size"
    return f"Seed {result.seed}, {size}, {result.seconds:.1f} s."
