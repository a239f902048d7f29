"""HTML parts of the report and of notebook views: verdict, tables, page template and style.

All text that comes from the user is escaped here. The page uses nothing from elsewhere.

A notebook view has the report's colours, light or dark as its page is. JupyterLab, VS Code and
Colab mark their theme on the page; elsewhere the reader's system decides. Where a page strips
styles, as GitHub does, a view is plain text and tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from string import Template
from typing import Any

import numpy as np

from ...diagnostics import rule as limits
from ...regression.rows import as_numbers
from ...results import statistics
from ...results.draws import Draws
from ...results.plan import Predicted
from ...results.summary import LAYER_HEADS, layer_rows, left_out, predictions_lines
from ...results.verdict import split_misfit
from .figures import COLOURS, printable

MAX_TABLE_ROWS = 400

HOW_TO_READ = {
    "trusted": "this run measured that every sd is within {ratio:.0f}% of the posterior's and every mean "
    "within {mean:g} sd of it. Whether the model fits the data is another question.",
    "biased": "the draws do not follow the posterior: an sd or a mean is wrong by more "
    "than {ratio:.0f}% or {mean:g} sd, or a chain failed. More draws of the same kind do not help.",
    "not mixed": "the draws are too few, or the chains disagree; the numbers would change in a "
    "longer run. Whether they are also biased was not judged.",
    "unknown": "the distance of the draws from the posterior could not be measured. They may be right; "
    "confirm them before use.",
}
OF_PREDICTIONS = {
    "trusted": "the predictions are within the limits above of the posterior's, by the agreement of "
    "the chains and the temperature of their momenta. Neither single weights nor the fit to the data are "
    "judged.",
    "biased": "the predictions spread further than the posterior's, or a chain failed. More draws of the same "
    "kind do not help.",
}

TABLE_COLUMNS = (
    "mean", "sd", "q05", "q50", "q95", "ess_bulk", "ess_tail", "r_hat", "sd_ratio", "r2",
    "mean_corrected", "sd_corrected",
)  # fmt: skip


def safe(value: Any) -> str:
    """Escape a user's text or a value for HTML."""
    return escape(printable(str(value)), quote=True)


def banner(
    word: str,
    reasons: tuple[str, ...],
    facts: str,
    target: str,
    notes: Sequence[str] = (),
    predictions: bool = False,
) -> str:
    """Return the banner: verdict, reasons, explanation, target distribution and size of the run.

    Of the plan's `notes`, a misfit that makes sds too small is shown. `predictions` says whether
    predictions are judged.
    """
    how = HOW_TO_READ | (OF_PREDICTIONS if predictions else {})
    reading = how.get(word, how["unknown"]).format(
        ratio=100 * limits.MAX_RATIO_ERROR, mean=limits.MAX_MEAN_ERROR
    )
    sentences = [safe(_sentence(reason)) for reason in reasons]
    if len(sentences) > 1:
        why = "<ul>" + "".join(f"<li>{s}</li>" for s in sentences) + "</ul>"
    else:
        why = f'<p class="only">{"".join(sentences)}</p>'
    other = ""
    if target != "the posterior":
        other = f'<p class="note"><b>Target</b>: {safe(target)}. On this page, "posterior" means this target.</p>\n'
    misfit, _ = split_misfit(word, notes)
    if misfit:
        why += f'\n<p class="word misfit">The model does not fit</p>\n<p class="only">{safe(misfit)}</p>'
    kind = word.replace(" ", "-") if word in HOW_TO_READ else "unknown"
    return (
        f'<section class="banner {kind}" id="verdict">\n<p class="word">{safe(word)}</p>\n{why}\n'
        f'<p class="note"><b>{safe(word)}</b> means: {reading}</p>\n{other}'
        f'<p class="note">{facts}</p>\n</section>'
    )


def _sentence(reason: str) -> str:
    reason = reason.strip()
    start = reason[:1].upper() + reason[1:]
    return start if start.endswith((".", "!", "?")) else start + "."


def definitions(pairs: list[tuple[str, str | None]]) -> str:
    """Return a list of terms; values are HTML already, and missing ones are left out."""
    rows = "".join(f"<dt>{term}</dt><dd>{value}</dd>" for term, value in pairs if value)
    return f"<dl>{rows}</dl>"


def requested_settings(asked: dict[str, Any], info: dict[str, Any]) -> str:
    """List formula, family, priors, data, seed, tolerance and all settings made manually."""
    request = asked.get("request") or {}
    source = asked.get("data") or {}
    formula, family = asked.get("formula"), asked.get("family")
    rows, dropped = info.get("num_data"), info.get("num_dropped")
    count = f"{rows:,}" if rows else "none: only a log density" if request else None
    if count and dropped:
        count += f" ({left_out(dropped)})"
    return definitions(
        [
            ("formula", f"<code>{safe(formula)}</code>" if formula else None),
            ("model", None if formula else "log density from Python"),
            ("family", safe(family) if family else None),
            ("outcome", _coded((asked.get("model") or {}).get("words"))),
            ("priors", _lines(asked.get("priors"))),
            ("data", f"<code>{safe(source['path'])}</code>" if source.get("path") else None),
            ("rows", count),
            ("weights", _code(asked.get("weights"))),
            ("trials", _code(asked.get("trials"))),
            ("tolerance", _tolerance(request.get("tolerance"))),
            ("seed", safe(asked["seed"]) if "seed" in asked else None),
            ("effective draws", safe(asked["ess"]) if asked.get("ess") else None),
            ("set manually", _lines(_manual_settings(asked))),
        ]
    )


def _coded(words: list[str] | None) -> str | None:
    return safe(as_numbers(words)) if words else None


def _code(value: Any) -> str | None:
    return f"<code>{safe(value)}</code>" if value else None


def _tolerance(value: Any) -> str | None:
    return None if value is None else f"{100 * float(value):g}% of each sd"


def _lines(lines: list[str] | None) -> str | None:
    if not lines:
        return None
    return "<ul>" + "".join(f"<li><code>{safe(line)}</code></li>" for line in lines) + "</ul>"


def _manual_settings(asked: dict[str, Any]) -> list[str]:
    """Return `name = value` for every setting that differs from the default of `sgld.sample`."""
    usual = {"temperature": 1.0}
    apart = ("seed", "tolerance")
    lines = []
    for name, value in (asked.get("request") or {}).items():
        if (
            not isinstance(value, (dict, list))
            and name not in apart
            and value not in (None, usual.get(name, "auto"))
        ):
            lines.append(f"{name} = {value}")
    return lines + [f"{name} = {value}" for name, value in (asked.get("given") or {}).items()]


def chosen_settings(plan: dict[str, Any], info: dict[str, Any], last_step_size: float) -> str:
    """List the plan: settings chosen by the library or set manually."""
    if not plan:
        return "<p>There is no plan, since the draws come from elsewhere.</p>"
    corrected = " with noise correction" if plan.get("noise_correction") else ""
    batch, rows, steps = plan.get("batch_size"), info.get("num_data"), info.get("num_steps")
    passes = (
        f" ({batch * steps / rows:.3g} passes over the rows)" if batch and rows and steps else ""
    )
    seconds = info.get("seconds")
    return definitions(
        [
            ("sampler", safe(plan.get("sampler")) + corrected),
            ("gradient", safe(plan.get("gradient"))),
            ("batch", f"{batch:,} rows" if batch else "all rows" if rows else None),
            ("order", safe(plan["order"]) if plan.get("order") else None),
            ("step size h", _step_size(plan.get("step_size"), last_step_size)),
            ("temperature", f"{plan['temperature']:g}" if "temperature" in plan else None),
            ("preconditioner", safe(plan.get("preconditioner"))),
            ("burn-in", f"{plan.get('burn_in', 0):,} steps"),
            ("thinning", f"a draw every {ordinal(plan.get('thin', 1))}step"),
            ("steps", f"{steps:,} a chain{passes}" if steps else None),
            ("distance from Gaussian", _nu(plan.get("nu"))),
            ("predicted", _predicted(info.get("predicted"))),
            ("time", f"{seconds:.1f} s" if seconds is not None else None),
            ("notes", _plain_lines(plan.get("notes"))),
        ]
    )


def _predicted(found: dict[str, Any] | None) -> str | None:
    return None if found is None else safe(Predicted(**found))


def _step_size(first: float | None, last: float) -> str | None:
    if first is None:
        return None
    text = f"{first:.4g}" if abs(last / first - 1) < 1e-3 else f"{first:.4g}, at the end {last:.4g}"
    return text.replace("e-0", "e\N{MINUS SIGN}")


def ordinal(thin: int) -> str:
    """Return "3rd " for 3, to precede a noun, and nothing for 1."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    end = "th" if thin % 100 in (11, 12, 13) else ends.get(thin % 10, "th")
    return "" if thin == 1 else f"{thin}{end} "


def _nu(nu: float | None) -> str | None:
    if nu is None or not np.isfinite(nu):  # the notes explain it
        return None
    return f"ν = {nu:.2g} " + (
        "(near-Gaussian)" if nu < 0.05 else "(moderate)" if nu < limits.MAX_NU else "(far)"
    )


def _plain_lines(notes: list[str] | None) -> str | None:
    if not notes:
        return None
    return "<ul>" + "".join(f"<li>{safe(_sentence(note))}</li>" for note in notes) + "</ul>"


def table(parameters: dict[str, dict[str, float | None]], draws: Draws) -> str:
    """Return a row per parameter; cells that miss the verdict's limit are marked."""
    names, highest = list(parameters), _highest(draws, set(parameters))
    marked = {name: _missed(row, highest.get(name)) for name, row in parameters.items()}
    if len(names) > MAX_TABLE_ROWS:
        names = sorted(names, key=lambda name: -len(marked[name]))[:MAX_TABLE_ROWS]
        names = [name for name in parameters if name in set(names)]
    columns = [c for c in TABLE_COLUMNS if any(r.get(c) is not None for r in parameters.values())]
    head = "".join(f'<th scope="col">{name.replace("_", "_<wbr>")}</th>' for name in columns)
    body = []
    for name in names:
        row = parameters[name]
        cells = "".join(_cell(c, row, marked[name].get(c)) for c in columns)
        body.append(f'<tr><th scope="row" title="{safe(name)}">{_name(name)}</th>{cells}</tr>')
    text = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table of parameters"><table>'
        f'<thead><tr><th scope="col">parameter</th>{head}</tr></thead>\n<tbody>'
        + "\n".join(body)
        + '</tbody></table></div><p class="note narrow">Scroll the table to the right for more columns.</p>'
    )
    if len(names) < len(parameters):
        text += (
            f'<p class="note">{len(names)} of {len(parameters):,} parameters, those with most marks '
            "first; the others are in summary.json.</p>"
        )
    any_marked = any(marked.values())
    return text + f'<p class="note">{_legend(any_marked, columns)}</p>'


def layers(found: Sequence[Mapping[str, Any]], predictions: Mapping[str, Any]) -> str:
    """Return a row per layer of a network, and how well its predictions have mixed."""
    said = "".join(f"<p>{safe(line)}</p>" for line in predictions_lines(predictions))
    return plain_table(LAYER_HEADS, layer_rows(found), "Table of layers") + said


def plain_table(head: Sequence[str], rows: Iterable[Sequence[str]], label: str = "Table") -> str:
    """Return a table of texts, whose first column holds the names."""
    top = "".join(f'<th scope="col">{safe(title)}</th>' for title in head)
    body = "\n".join(
        f'<tr><th scope="row">{_name(name)}</th>'
        + "".join(f"<td>{safe(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><thead><tr>{top}'
        f"</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _name(name: str) -> str:
    """Return a name that may break where its terms and brackets begin."""
    return "<wbr>".join(map(safe, re.split(r"(?<!^)(?=[:\[(])", name)))


def _highest(draws: Draws, shown: set[str]) -> dict[str, float]:
    """Return the R-hat limit of each parameter; an empty dict without draws."""
    if draws.moments is not None or draws.healthy.size == 0:
        return {}
    at = [i for i, name in enumerate(draws.names) if name in shown]
    found = statistics.Estimates(draws.flat()[0][..., at], draws.weights).mixing
    most = statistics.max_r_hat(found.ess_alone, draws.healthy.size, len(draws.names))
    return {draws.names[i]: float(limit) for i, limit in zip(at, most, strict=True)}


def _missed(row: dict[str, float | None], highest: float | None) -> dict[str, str]:
    """Return a dict from column to the limit that the row misses."""
    missed: dict[str, str] = {}

    def value(name: str) -> float:
        number = row.get(name)
        return np.nan if number is None else number

    for name in ("ess_bulk", "ess_tail"):
        if not value(name) >= limits.MIN_ESS:
            missed[name] = f"at least {limits.MIN_ESS}"
    highest = statistics.MIN_R_HAT_LIMIT if highest is None else highest
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = abs(value("mean") - value("mean_corrected")) / np.float64(value("sd_corrected"))
    if value("r_hat") > highest:
        missed["r_hat"] = f"at most {highest:.3f}"
    if abs(value("sd_ratio") - 1) > limits.MAX_RATIO_ERROR or value("sd_ratio_se") > limits.MAX_SE:
        missed["sd_ratio"] = f"within {limits.MAX_RATIO_ERROR:g} of 1, standard error as small"
    if row.get("sd_ratio") is None and row.get("r2") is not None:
        missed["sd_ratio"] = "a finite number"
    if value("r2") < limits.MIN_R2:
        missed["r2"] = f"at least {limits.MIN_R2:g}"
    if shift > limits.MAX_MEAN_ERROR:
        missed["mean"] = f"within {limits.MAX_MEAN_ERROR:g} sd of the corrected mean"
    return missed


def _cell(column: str, row: dict[str, float | None], limit: str | None) -> str:
    number = row.get(column)
    decimals = _decimals(row.get("sd_corrected" if column.endswith("corrected") else "sd"))
    if number is None:
        text = "–"
    elif column.startswith("ess"):
        text = f"{number:,.0f}"
    elif column == "sd_ratio":
        text = f"{number:.3f}" if number < 10 else f"{number:.1f}"
        if row.get("sd_ratio_se") is not None:
            text += f" ± {row['sd_ratio_se']:.3f}"
    elif column in ("r_hat", "r2"):
        text = f"{number:.3f}" if abs(number) < 1000 else f"{number:.2g}"
    else:
        text = f"{number:.4g}" if decimals is None else f"{number:.{decimals}f}"
    text = text.replace("-", "\N{MINUS SIGN}")
    kind = ' class="none"' if number is None else ""
    if limit is not None:
        kind = f' class="miss" title="limit: {safe(limit)}"'
    return f"<td{kind}>{text}</td>"


def _decimals(sd: float | None) -> int | None:
    """Return the decimals that show three digits of the sd; None if plain decimals do not suit."""
    if sd is None or not 1e-6 < sd < 1e6:
        return None
    return max(0, 2 - int(np.floor(np.log10(sd))))


def _legend(any_marked: bool, shown: list[str]) -> str:
    text = (
        ("Marked cells miss their limit: " if any_marked else "No cell misses its limit: ")
        + f"ess_bulk and ess_tail at least {limits.MIN_ESS} (for the verdict also the ESS of squares), r_hat at most {statistics.MIN_R_HAT_LIMIT:g} (more if the ESS is small)"
    )
    if "sd_ratio" in shown:
        text += f", sd_ratio within {limits.MAX_RATIO_ERROR:g} of 1, r2 at least {limits.MIN_R2:g}"
    text += ". "
    if "sd_ratio" in shown:
        text += (
            "sd_ratio is the sd of the run over the posterior's, as predicted from gradients at "
            "the draws (above 1: too wide), ± its standard error; r2 is the share that the prediction "
            "explains. "
        )
    if "sd_corrected" in shown:
        text += "The corrected columns are this prediction for the posterior itself. "
    return text


# -- style ---------------------------------------------------------------------------------


DARK = {
    "ink": "#e4e9ef",
    "muted": "#9aa7b5",
    "line": "#35404d",
    "accent": "#6fb0f2",
    "accent-soft": "#35597f",
    "contrast": "#ff9a5c",
    "shade": "#222b36",
    "paper": "#161c24",
    "chain-0": "#6fb0f2",
    "chain-1": "#f0965a",
    "chain-2": "#6cc293",
    "chain-3": "#d38fcb",
    "chain-4": "#e3b95a",
    "chain-5": "#86c0cf",
}
# colours of the verdicts; the same names are classes of the banner
LIGHT_WORDS = {
    "good": "#1b7a43", "bad": "#b3261e", "warn": "#9a5b00", "doubt": "#4a5a8a", "miss": "#fde2d4",
}  # fmt: skip
DARK_WORDS = {
    "good": "#6fd399", "bad": "#ff8a80", "warn": "#f5bf5b", "doubt": "#a9b8ea", "miss": "#5a2f1c",
}  # fmt: skip


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


_LIGHT, _DARK = _variables(COLOURS | LIGHT_WORDS), _variables(DARK | DARK_WORDS)

_STYLE = f"""
:root {{ {_LIGHT} color-scheme: light; }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} color-scheme: dark; }} }}
""" + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1.25rem clamp(.9rem, 3vw, 2rem) 3rem; max-width: 1160px;
  background: var(--paper); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.15rem; font-weight: 600; margin: 0 0 .9rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .4rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; }
p.note, footer, figcaption { color: var(--muted); font-size: .875rem; }
code { font: .92em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.banner { border: 1px solid var(--line); border-left: .5rem solid var(--word); border-radius: .5rem;
  padding: .9rem 1.2rem 1rem; background: var(--shade); }
.banner .word { color: var(--word); font-size: clamp(2rem, 7vw, 3rem); font-weight: 700;
  line-height: 1.1; margin: 0 0 .4rem; }
.banner .misfit { color: var(--warn); margin-top: .7rem; }
.banner ul { margin: .3rem 0; padding-left: 1.2rem; max-width: 46rem; }
.banner p.only { font-size: 1.05rem; }
.trusted { --word: var(--good); } .biased { --word: var(--bad); }
.not-mixed { --word: var(--warn); } .unknown { --word: var(--doubt); }
.pair { display: grid; gap: 1.2rem 2.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .15rem 1rem; margin: 0; }
dt { color: var(--muted); } dd { margin: 0; }
dd ul { margin: 0; padding: 0; list-style: none; }
.scroll { overflow-x: auto; margin: .6rem 0; overflow-wrap: normal; }
/* a shade at the right edge while columns are hidden there: the cover scrolls along, the shade does not */
.scroll { background: linear-gradient(to left, var(--paper) 50%, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--line), transparent) right / 1rem 100% no-repeat scroll; }
p.narrow { display: none; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; width: 100%; }
th, td { text-align: right; padding: .26rem .42rem; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { white-space: normal; color: var(--muted); font-weight: 600; vertical-align: bottom; border-bottom: 2px solid var(--line); }
tbody th, thead th:first-child { text-align: left; font-weight: 600; position: sticky; left: 0;
  background: var(--paper); max-width: 15rem; overflow: hidden; text-overflow: ellipsis; white-space: normal; }
td.miss { background: var(--miss); font-weight: 700; }
td.miss::after { content: "\\2009!"; }
td.none { color: var(--muted); }
.panels { display: grid; gap: .9rem 1.4rem; margin-top: .7rem; justify-content: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 19.5rem), 1fr)); }
.panels.wide { grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
.panels svg { width: 100%; max-width: 27rem; height: auto; display: block; }
.panels.wide svg { max-width: 29rem; }
svg text { font-family: inherit; }
img { max-width: 100%; }
.key { display: inline-block; width: 1.1em; height: .7em; margin-right: .25em; vertical-align: baseline; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: .7rem; }
@media (max-width: 480px) { body { font-size: 15px; } h2 { margin-top: 1.8rem; }
  dl { grid-template-columns: 7.6rem minmax(0, 1fr); gap: .15rem .7rem; }
  tbody th { min-width: 7.5rem; max-width: 8rem; } }
@media screen and (max-width: 900px) { p.narrow { display: block; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } .scroll { overflow: visible; }
  table { font-size: 7pt; } th, td { padding: .1rem .25rem; }
  .panels { grid-template-columns: repeat(3, 1fr); } .panels.wide { grid-template-columns: repeat(2, 1fr); }
  svg, tr, .banner { break-inside: avoid; } h2 { break-after: avoid; }
  .banner, td.miss, .key, svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""  # fmt: skip

PAGE = Template(
    f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>{_STYLE.replace("$", "$$")}</style>
</head>
<body>
<main>
$content
</main>
<footer>$footer</footer>
</body>
</html>
"""
)


# -- style ---------------------------------------------------------------------------------


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
    " .banner p.misfit": "color: var(--warn);",
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
    """Return a CSS rule with a higher specificity than the page's own table styles."""
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
    """Return `content` as a separate output with its style."""
    return f'<style>{_SHEET}</style>\n<div class="sgld">{content}</div>'
