"""The words and the table of the page. Everything that comes from the user is escaped here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ..diagnostics import rule as limits
from ..regression.rows import as_numbers
from ..results import statistics
from ..results.draws import Draws
from ..results.plan import Predicted
from ..results.summary import HEADS, layer_rows, left_out, predictions_lines
from .canvas import printable

__all__ = [
    "banner",
    "definitions",
    "layers",
    "ordinal",
    "says",
    "table",
    "what_was_asked",
    "what_was_chosen",
]

MOST_ROWS = 400

HOW_TO_READ = {
    "trusted": "every sd is within {ratio:.0f}% of the posterior's and every mean within {mean:g} "
    "sd of it, and this run measured it. Whether the model fits the data is another question.",
    "biased": "the draws follow another law than the posterior: an sd or a mean is wrong by more "
    "than {ratio:.0f}% or {mean:g} sd, or a chain failed. More draws of the same kind do not help.",
    "not mixed": "the draws are too few, or the chains disagree; the numbers would change in a "
    "longer run. Whether they are biased besides was not judged.",
    "unknown": "how far the draws are from the posterior could not be measured. They may be right; "
    "confirm them before they are used.",
}
OF_PREDICTIONS = {
    "trusted": "what the network predicts is within what is said above of the posterior's, by the agreement of "
    "the chains and the temperature of their momenta. Weights by themselves are not judged, nor whether the "
    "network fits the data.",
    "biased": "the predictions spread further than the posterior's, or a chain failed. More draws of the same "
    "kind do not help.",
}

COLUMNS = (
    ("mean", "mean"), ("sd", "sd"), ("q05", "5%"), ("q50", "50%"), ("q95", "95%"),
    ("ess_bulk", "ESS bulk"), ("ess_tail", "ESS tail"), ("r_hat", "R\N{NON-BREAKING HYPHEN}hat"),
    ("sd_ratio", "sd ratio"), ("r2", "r²"), ("mean_corrected", "corrected mean"),
    ("sd_corrected", "corrected sd"),
)  # fmt: skip


def says(value: Any) -> str:
    """A user's text or a value, fit for HTML."""
    return escape(printable(str(value)), quote=True)


def banner(
    word: str, reasons: tuple[str, ...], facts: str, target: str, *, predictions: bool = False
) -> str:
    """The verdict: the word, the reasons, how to read it, whose law, the size of the run; `predictions`: are judged."""
    how = HOW_TO_READ | (OF_PREDICTIONS if predictions else {})
    reading = how.get(word, how["unknown"]).format(
        ratio=100 * limits.MAX_RATIO_ERROR, mean=limits.MAX_MEAN_ERROR
    )
    sentences = [says(_sentence(reason)) for reason in reasons]
    if len(sentences) > 1:
        why = "<ul>" + "".join(f"<li>{s}</li>" for s in sentences) + "</ul>"
    else:
        why = f'<p class="only">{"".join(sentences)}</p>'
    other = ""
    if target != "the posterior":
        other = f'<p class="note"><b>Target</b>: {says(target)}. It stands wherever this page says posterior.</p>\n'
    kind = word.replace(" ", "-") if word in HOW_TO_READ else "unknown"
    return (
        f'<section class="banner {kind}" id="verdict">\n<p class="word">{says(word)}</p>\n{why}\n'
        f'<p class="note"><b>{says(word)}</b> means: {reading}</p>\n{other}'
        f'<p class="note">{facts}</p>\n</section>'
    )


def _sentence(reason: str) -> str:
    reason = reason.strip()
    start = reason[:1].upper() + reason[1:]
    return start if start.endswith((".", "!", "?")) else start + "."


def definitions(pairs: list[tuple[str, str | None]]) -> str:
    """A list of terms; values are HTML already, and absent ones are left out."""
    rows = "".join(f"<dt>{term}</dt><dd>{value}</dd>" for term, value in pairs if value)
    return f"<dl>{rows}</dl>"


def what_was_asked(asked: dict[str, Any], info: dict[str, Any]) -> str:
    """Formula, family, priors, data, seed, tolerance and everything given by hand."""
    request = asked.get("request") or {}
    source = asked.get("data") or {}
    formula, family = asked.get("formula"), asked.get("family")
    rows, dropped = info.get("num_data"), info.get("num_dropped")
    count = f"{rows:,}" if rows else "none: the log density alone" if request else None
    if count and dropped:
        count += f" ({left_out(dropped)})"
    return definitions(
        [
            ("formula", f"<code>{says(formula)}</code>" if formula else None),
            ("model", None if formula else "log density from Python"),
            ("family", says(family) if family else None),
            ("outcome", _coded((asked.get("model") or {}).get("words"))),
            ("priors", _lines(asked.get("priors"))),
            ("data", f"<code>{says(source['path'])}</code>" if source.get("path") else None),
            ("rows", count),
            ("weights", _code(asked.get("weights"))),
            ("trials", _code(asked.get("trials"))),
            ("tolerance", _tolerance(request.get("tolerance"))),
            ("seed", says(asked["seed"]) if "seed" in asked else None),
            ("effective draws", says(asked["ess"]) if asked.get("ess") else None),
            ("given by hand", _lines(_by_hand(asked))),
        ]
    )


def _coded(words: list[str] | None) -> str | None:
    return says(as_numbers(words)) if words else None


def _code(value: Any) -> str | None:
    return f"<code>{says(value)}</code>" if value else None


def _tolerance(value: Any) -> str | None:
    return None if value is None else f"{100 * float(value):g}% of each sd"


def _lines(lines: list[str] | None) -> str | None:
    if not lines:
        return None
    return "<ul>" + "".join(f"<li><code>{says(line)}</code></li>" for line in lines) + "</ul>"


def _by_hand(asked: dict[str, Any]) -> list[str]:
    """`name = value` for everything that differs from what `sgld.sample` takes by itself."""
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


def what_was_chosen(plan: dict[str, Any], info: dict[str, Any], last_step_size: float) -> str:
    """The plan: by the library where it was left open, by hand otherwise."""
    if not plan:
        return "<p>The run has no plan: its draws come from elsewhere.</p>"
    corrected = " with noise correction" if plan.get("noise_correction") else ""
    batch, rows, steps = plan.get("batch_size"), info.get("num_data"), info.get("num_steps")
    passes = (
        f" ({batch * steps / rows:.3g} passes over the rows)" if batch and rows and steps else ""
    )
    seconds = info.get("seconds")
    return definitions(
        [
            ("sampler", says(plan.get("sampler")) + corrected),
            ("gradient", says(plan.get("gradient"))),
            ("batch", f"{batch:,} rows" if batch else "all rows" if rows else None),
            ("order", says(plan["order"]) if plan.get("order") else None),
            ("step size h", _step_size(plan.get("step_size"), last_step_size)),
            ("temperature", f"{plan['temperature']:g}" if "temperature" in plan else None),
            ("preconditioner", says(plan.get("preconditioner"))),
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
    return None if found is None else says(Predicted(**found))


def _step_size(first: float | None, last: float) -> str | None:
    if first is None:
        return None
    text = f"{first:.4g}" if abs(last / first - 1) < 1e-3 else f"{first:.4g}, at the end {last:.4g}"
    return text.replace("e-0", "e\N{MINUS SIGN}")


def ordinal(thin: int) -> str:
    """Before the word that is counted: "3rd ", and nothing for 1."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    end = "th" if thin % 100 in (11, 12, 13) else ends.get(thin % 10, "th")
    return "" if thin == 1 else f"{thin}{end} "


def _nu(nu: float | None) -> str | None:
    if nu is None or not np.isfinite(nu):  # the notes say what that is
        return None
    return f"ν = {nu:.2g} " + (
        "(near-Gaussian)" if nu < 0.05 else "(moderate)" if nu < limits.MAX_NU else "(far)"
    )


def _plain_lines(notes: list[str] | None) -> str | None:
    if not notes:
        return None
    return "<ul>" + "".join(f"<li>{says(_sentence(note))}</li>" for note in notes) + "</ul>"


def table(parameters: dict[str, dict[str, float | None]], draws: Draws) -> str:
    """A row per parameter; cells that miss the verdict's limit are marked."""
    names, highest = list(parameters), _highest(draws, set(parameters))
    marked = {name: _missed(row, highest.get(name)) for name, row in parameters.items()}
    if len(names) > MOST_ROWS:
        names = sorted(names, key=lambda name: -len(marked[name]))[:MOST_ROWS]
        names = [name for name in parameters if name in set(names)]
    columns = [c for c in COLUMNS if any(r.get(c[0]) is not None for r in parameters.values())]
    head = "".join(f'<th scope="col">{title}</th>' for _, title in columns)
    body = []
    for name in names:
        row = parameters[name]
        cells = "".join(_cell(c, row, marked[name].get(c)) for c, _ in columns)
        body.append(f'<tr><th scope="row" title="{says(name)}">{_name(name)}</th>{cells}</tr>')
    text = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table of parameters"><table>'
        f'<thead><tr><th scope="col">parameter</th>{head}</tr></thead>\n<tbody>'
        + "\n".join(body)
        + '</tbody></table></div><p class="note narrow">The table goes on to the right: scroll it.</p>'
    )
    if len(names) < len(parameters):
        text += (
            f'<p class="note">{len(names)} of {len(parameters):,} parameters, those with most marks '
            "first; the others are in summary.json.</p>"
        )
    any_marked = any(marked.values())
    return text + f'<p class="note">{_legend(any_marked, columns)}</p>'


def layers(found: Sequence[Mapping[str, Any]], predictions: Mapping[str, Any]) -> str:
    """A row per layer of a network, and how well what it predicts has mixed."""
    head = "".join(f'<th scope="col">{says(title)}</th>' for title in HEADS)
    body = "\n".join(
        f'<tr><th scope="row">{_name(name)}</th>'
        + "".join(f"<td>{says(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in layer_rows(found)
    )
    said = "".join(f"<p>{says(line)}</p>" for line in predictions_lines(predictions))
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of layers"><table><thead><tr>'
        f"{head}</tr></thead>\n<tbody>{body}</tbody></table></div>{said}"
    )


def _name(name: str) -> str:
    """A name, which may be broken where its terms and brackets begin."""
    return "<wbr>".join(map(says, re.split(r"(?<!^)(?=[:\[(])", name)))


def _highest(draws: Draws, shown: set[str]) -> dict[str, float]:
    """The R-hat up to which the verdict takes a parameter's chains for one; nothing without draws."""
    if draws.moments is not None or draws.healthy.size == 0:
        return {}
    at = [i for i, name in enumerate(draws.names) if name in shown]
    found = statistics.Estimates(draws.flat()[0][..., at], draws.weights).mixing
    most = statistics.max_r_hat(found.ess_alone, draws.healthy.size, len(draws.names))
    return {draws.names[i]: float(limit) for i, limit in zip(at, most, strict=True)}


def _missed(row: dict[str, float | None], highest: float | None) -> dict[str, str]:
    """Column -> the limit it misses."""
    missed: dict[str, str] = {}

    def value(name: str) -> float:
        number = row.get(name)
        return np.nan if number is None else number

    for name in ("ess_bulk", "ess_tail"):
        if not value(name) >= limits.MIN_ESS:
            missed[name] = f"at least {limits.MIN_ESS}"
    highest = statistics.LEAST_R_HAT if highest is None else highest
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
        kind = f' class="miss" title="limit: {says(limit)}"'
    return f"<td{kind}>{text}</td>"


def _decimals(sd: float | None) -> int | None:
    """Decimals that show three digits of the sd; None where plain decimals do not suit."""
    if sd is None or not 1e-6 < sd < 1e6:
        return None
    return max(0, 2 - int(np.floor(np.log10(sd))))


def _legend(any_marked: bool, columns: list[tuple[str, str]]) -> str:
    shown = {name for name, _ in columns}
    text = (
        ("Marked cells miss their limit: " if any_marked else "No cell misses its limit: ")
        + f"ESS at least {limits.MIN_ESS} (for the verdict that of squares too), R-hat at most {statistics.LEAST_R_HAT:g} (more where the ESS is small)"
    )
    if "sd_ratio" in shown:
        text += f", sd ratio within {limits.MAX_RATIO_ERROR:g} of 1, r² at least {limits.MIN_R2:g}"
    text += ". "
    if "sd_ratio" in shown:
        text += (
            "The sd ratio is the sd of the run over the posterior's, as predicted from gradients at "
            "the draws (above 1: too wide), ± its standard error; r² says how much the prediction "
            "explains. "
        )
    if "sd_corrected" in shown:
        text += "The corrected columns are that prediction of the posterior itself. "
    return text
