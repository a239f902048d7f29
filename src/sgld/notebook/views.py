"""Draws, tables and plans as HTML, of the report's own parts: what a notebook shows in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..arviz.result import Criterion
from ..core.pytrees import leaf_names
from ..regression.result import Fit
from ..report.text import banner, layers, says, table, what_was_asked, what_was_chosen
from ..results.draws import Draws
from ..results.plan import Plan
from ..results.statistics import Prediction
from ..results.summary import Comparison, Summary, target_of
from ..results.verdict import Verdict
from .style import framed

__all__ = ["view"]

MOST = 20  # rows of a table
OF_SUMMARY = 400
MOST_PARAMETERS = 1000  # whose table is made at all


def view(thing: Any) -> str:
    """The HTML of what this package returns: Draws, Fit, Summary, Verdict, Plan, Comparison, Prediction, Criterion.

    Example:
      >>> import numpy as np, sgld
      >>> from sgld.notebook.views import view
      >>> shown = view(sgld.Draws.of({"a": np.zeros((4, 100))}).verdict)
      >>> shown[:7], "the draws were not judged" in shown.lower()
      ('<style>', True)
    """
    return framed(_OF[type(thing)](thing))


def _draws(draws: Draws) -> str:
    facts = [f"{draws.num_chains} chains of {draws.num_draws:,} draws", _counted(draws)]
    info = draws.info
    facts += [f"{info['num_data']:,} rows"] if info.get("num_data") else []
    facts += [f"{info['seconds']:.1f} s"] if info.get("seconds") is not None else []
    said = draws.verdict.reasons if draws.verdict.judged else ("The draws were not judged.",)
    said = (*said, *draws.failures) if not draws.verdict.judged else said
    found = draws.verdict.extra
    top = banner(
        draws.verdict.word,
        said,
        " · ".join(facts),
        target_of(draws),
        predictions="predictions" in found,
    )
    if found.get("layers"):
        return top + layers(found["layers"], found["predictions"])
    if draws.healthy.size == 0 or len(draws.names) > MOST_PARAMETERS:
        return top
    return top + _parameters(draws.summary().parameters, MOST, draws)


def _counted(draws: Draws) -> str:
    return f"{len(draws.names):,} parameter{'s' if len(draws.names) > 1 else ''}"


def _parameters(parameters: dict[str, Any], most: int, draws: Draws) -> str:
    """The report's table of the first `most`."""
    shown = dict(list(parameters.items())[:most])
    text = table(shown, draws)
    if len(shown) < len(parameters):
        text += f'<p class="note">The first {most} of {len(parameters):,} parameters.</p>'
    return text


def _fit(fit: Fit) -> str:
    asked = what_was_asked(fit.asked, fit.draws.info)
    more = f"<details><summary>What was asked</summary>{asked}</details>"
    return f"<h4>{says(fit.asked.get('formula'))}</h4>" + _draws(fit.draws) + more


def _summary(found: Summary) -> str:
    facts = f"{found.facts['num_chains']} chains of {found.facts['num_draws']:,} draws"
    target = found.facts.get("target") or "the posterior"
    notes = "".join(f'<p class="note">Note: {says(n)}</p>' for n in found.facts.get("notes") or ())
    if found.facts.get("layers"):
        top = layers(found.facts["layers"], found.facts["predictions"]) + notes
        return top + banner(found.verdict, found.reasons, facts, target, predictions=True)
    if not found.parameters:
        return banner(found.verdict, found.reasons, facts, target)
    chains = Draws.of({"x": np.zeros((found.facts["num_chains"], 1))})  # for the limits alone
    top = _parameters(found.parameters, OF_SUMMARY, chains) + notes
    return top + banner(found.verdict, found.reasons, facts, target)


def _verdict(verdict: Verdict) -> str:
    judged = "predictions" in verdict.extra
    return banner(verdict.word, verdict.reasons, "", "the posterior", predictions=judged)


def _plan(plan: Plan) -> str:
    told = plan.describe()
    info = {"num_data": plan.num_data or None, "predicted": None}
    text = what_was_chosen(told, info, float(told.get("step_size") or 0.0))
    if plan.predicted is not None:
        text += f'<p class="note">Predicted: {says(plan.predicted)}</p>'
    return "<h4>The plan of a run</h4>" + text


def _comparison(found: Comparison) -> str:
    rows = [
        (
            name,
            f"{found.mean_error[i]:+.3f} ± {found.mean_error_se[i]:.3f}",
            f"{found.sd_ratio[i]:.3f} ± {found.sd_ratio_se[i]:.3f}",
        )
        for i, name in enumerate(found.names[:OF_SUMMARY])
    ]
    worst = str(found).splitlines()[-1]
    head = ("parameter", "mean error, in sd", "sd ratio")
    return _table(head, rows) + f'<p class="note">{says(worst)}</p>'


def _prediction(found: Prediction) -> str:
    rows, count = [], 0
    means, *others = (jax.tree.leaves(part) for part in found)
    for name, mean, *rest in zip(leaf_names(found.mean), means, *others, strict=True):
        mean = np.asarray(mean)
        count += mean.size
        for at in np.ndindex(mean.shape):
            if len(rows) == MOST:
                break
            where = f"[{','.join(map(str, at))}]" if at else ""
            own = "" if name == "x" else name
            cells = [f"{np.asarray(part)[at]:.4g}" for part in (mean, *rest)]
            rows.append((own + where or "value", *cells))
    text = _table(("", "mean", "sd", "lower", "upper"), rows)
    if count > len(rows):
        text += f'<p class="note">The first {len(rows)} of {count:,}.</p>'
    return text


def _criterion(found: Criterion) -> str:
    *_, last = found.lines()
    head = ("", "estimate", "standard error")
    error = f"{found.se:,.1f}"
    if found.approximation is not None:
        error += f", of the subsample {found.subsampling_se:,.2g}"
    rows = [(f"elpd_{found.kind}", f"{found.elpd:,.1f}", error), (f"p_{found.kind}", f"{found.p:,.1f}", "")]  # fmt: skip
    return _table(head, rows) + "".join(f"<p>{says(s)}</p>" for s in (found.lines()[2], last))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{says(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{says(name)}</th>'
        + "".join(f"<td>{says(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


_OF = {
    Draws: _draws, Fit: _fit, Summary: _summary, Verdict: _verdict, Plan: _plan, Comparison: _comparison,
    Prediction: _prediction, Criterion: _criterion,
}  # fmt: skip
