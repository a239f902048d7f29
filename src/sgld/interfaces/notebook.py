"""Show draws, tables and plans as HTML in notebooks, and write the report of any run from Python.

The HTML uses the parts of the report. The module also simulates outcomes for any known model, next
to the observed ones; plots and the predictive check use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..core.pytrees import leaf_names
from ..errors import SGLDError, UsageError, first_line
from ..regression.result import Fit
from ..results.draws import Draws
from ..results.plan import Plan, known_of
from ..results.run_directory import RunDirectory
from ..results.statistics import Prediction
from ..results.summary import Comparison, Summary, target_of
from ..results.verdict import Verdict, split_misfit
from .arviz_criteria import Criterion
from .arviz_pointwise import Subject, subject_of
from .arviz_rows import choose
from .report.html import (
    banner,
    chosen_settings,
    framed,
    layers,
    plain_table,
    requested_settings,
    safe,
    table,
)
from .report.page import Checked, facts_of, formula_check, report_of
from .report.predictive_check import Replicated, check

MAX_SHOWN_ROWS = 20  # rows of a table in a notebook
MAX_SUMMARY_ROWS = 400
MAX_TABLE_NAMES = 1000  # parameters up to which a table is computed


def view(thing: Any) -> str:
    """Return the HTML of a result of this package.

    `thing` is a Draws, Fit, Summary, Verdict, Plan, Comparison, Prediction or Criterion.

    Example:
      >>> import numpy as np, sgld
      >>> from sgld.interfaces.notebook import view
      >>> shown = view(sgld.Draws.of({"a": np.zeros((4, 100))}).verdict)
      >>> shown[:7], "the draws were not judged" in shown.lower()
      ('<style>', True)
    """
    return framed(_VIEW_OF[type(thing)](thing))


def _draws(draws: Draws) -> str:
    said = draws.verdict.reasons if draws.verdict.judged else ("The draws were not judged.",)
    said = (*said, *draws.failures) if not draws.verdict.judged else said
    found = draws.verdict.extra
    notes = (draws.info.get("plan") or {}).get("notes", ())
    facts, target = facts_of(draws), target_of(draws)
    top = banner(draws.verdict.word, said, facts, target, notes, "predictions" in found)
    if found.get("layers"):
        return top + layers(found["layers"], found["predictions"])
    if draws.healthy.size == 0 or len(draws.names) > MAX_TABLE_NAMES:
        return top
    return top + _parameters(draws.summary().parameters, MAX_SHOWN_ROWS, draws)


def _parameters(parameters: dict[str, Any], most: int, draws: Draws) -> str:
    """Return the report's table of the first `most` parameters."""
    shown = dict(list(parameters.items())[:most])
    text = table(shown, draws)
    if len(shown) < len(parameters):
        text += f'<p class="note">The first {most} of {len(parameters):,} parameters.</p>'
    return text


def _fit(fit: Fit) -> str:
    asked = requested_settings(fit.asked, fit.draws.info)
    more = f"<details><summary>Requested settings</summary>{asked}</details>"
    return f"<h4>{safe(fit.asked.get('formula'))}</h4>" + _draws(fit.draws) + more


def _summary(found: Summary) -> str:
    facts = f"{found.facts['num_chains']} chains of {found.facts['num_draws']:,} draws"
    target, notes = found.facts.get("target") or "the posterior", found.facts.get("notes") or ()
    judged = bool(found.facts.get("layers"))
    below = banner(found.verdict, found.reasons, facts, target, notes, judged)
    others = split_misfit(found.verdict, notes)[1]
    said = "".join(f'<p class="note">Note: {safe(note)}</p>' for note in others)
    if judged:
        return layers(found.facts["layers"], found.facts["predictions"]) + said + below
    if not found.parameters:
        return below
    chains = Draws.of({"x": np.zeros((found.facts["num_chains"], 1))})  # only for the limits
    return _parameters(found.parameters, MAX_SUMMARY_ROWS, chains) + said + below


def _verdict(verdict: Verdict) -> str:
    judged = "predictions" in verdict.extra
    return banner(verdict.word, verdict.reasons, "", "the posterior", predictions=judged)


def _plan(plan: Plan) -> str:
    chosen = plan.describe()
    info = {"num_data": plan.num_data or None, "predicted": None}
    text = chosen_settings(chosen, info, float(chosen.get("step_size") or 0.0))
    if plan.predicted is not None:
        text += f'<p class="note">Predicted: {safe(plan.predicted)}</p>'
    return "<h4>The plan of a run</h4>" + text


def _comparison(found: Comparison) -> str:
    rows = [
        (
            name,
            f"{found.mean_error[i]:+.3f} ± {found.mean_error_se[i]:.3f}",
            f"{found.sd_ratio[i]:.3f} ± {found.sd_ratio_se[i]:.3f}",
        )
        for i, name in enumerate(found.names[:MAX_SUMMARY_ROWS])
    ]
    worst = str(found).splitlines()[-1]
    head = ("parameter", "mean error, in sd", "sd ratio")
    return plain_table(head, rows) + f'<p class="note">{safe(worst)}</p>'


def _prediction(found: Prediction) -> str:
    rows, count = [], 0
    means, *others = (jax.tree.leaves(part) for part in found)
    for name, mean, *rest in zip(leaf_names(found.mean), means, *others, strict=True):
        mean = np.asarray(mean)
        count += mean.size
        for at in np.ndindex(mean.shape):
            if len(rows) == MAX_SHOWN_ROWS:
                break
            where = f"[{','.join(map(str, at))}]" if at else ""
            own = "" if name == "x" else name
            cells = [f"{np.asarray(part)[at]:.4g}" for part in (mean, *rest)]
            rows.append((own + where or "value", *cells))
    text = plain_table(("", "mean", "sd", "lower", "upper"), rows)
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
    return plain_table(head, rows) + "".join(f"<p>{safe(s)}</p>" for s in (found.lines()[2], last))


_VIEW_OF = {
    Draws: _draws, Fit: _fit, Summary: _summary, Verdict: _verdict, Plan: _plan, Comparison: _comparison,
    Prediction: _prediction, Criterion: _criterion,
}  # fmt: skip


# -- outcomes ------------------------------------------------------------------------------


CHECK_REPLICAS, CHECK_ROWS = 200, 5000


@dataclass(frozen=True)
class Outcomes:
    """Observed and simulated outcomes of rows, from draws with equal weights.

    Attributes:
      name: the name of the outcome.
      observed: [n, ...].
      made: [chain, draw, n, ...], simulated for the same rows.
      levels: [n, level], predicted probabilities of the outcomes 0, 1, ..., if there are few.
      num_data: the number of all rows.
    """

    name: str
    observed: np.ndarray
    made: np.ndarray
    levels: np.ndarray | None
    num_data: int

    @property
    def whole(self) -> bool:
        """Whether outcomes are integers."""
        return bool(np.all(self.observed == np.round(self.observed)))


def outcomes_of(draws: Draws, subject: Subject, seed: int) -> Outcomes:
    """Simulate outcomes for at most CHECK_ROWS random rows.

    Raises UsageError if the model cannot simulate outcomes.
    """
    if subject.replicate is None or not subject.observed or subject.rows is None:
        raise UsageError(
            "a predictive check needs observed outcomes and a model that simulates them: a formula, a NumPyro model, or "
            "outcome= (which of the data) and simulate= (a function of key, position, datum)."
        )
    chosen, count = choose(draws, CHECK_REPLICAS), subject.rows.count
    numbers = np.arange(count)
    if count > CHECK_ROWS:
        numbers = np.sort(
            np.random.default_rng([seed, 10]).choice(count, CHECK_ROWS, replace=False)
        )
    positions = subject.position(chosen.of(draws, draws.position))
    made = subject.replicate(positions, numbers, seed)
    name = next(iter(made))
    observed = np.asarray(subject.observed[name])[numbers]
    there = np.isfinite(observed).reshape(len(observed), -1).all(axis=1)  # NaN was not observed
    values = np.asarray(made[name]).reshape(*chosen.at.shape, *observed.shape)
    levels = None
    if subject.levels is not None:
        levels = subject.levels(positions, numbers).mean(axis=0)[there]
    return Outcomes(name, observed[there], values[:, :, there], levels, count)


def checked(draws: Draws, subject: Subject, seed: int) -> tuple[str, str, Replicated] | None:
    """Return panel, description and outcomes of the report's predictive check.

    The result is None for outcomes with several numbers per row.
    """
    found = outcomes_of(draws, subject, seed)
    observed, mean = found.observed, found.levels
    replicas = found.made.reshape(-1, *observed.shape)
    if observed.ndim != 1 or not len(observed):
        return None
    rows = len(observed)
    if mean is None:
        family = "count" if found.whole and observed.min() >= 0 else "gaussian"
        mean = replicas.mean(axis=0)
    elif mean.shape[1] == 2:
        family, mean = "bernoulli", mean[:, 1]
    else:  # each level against the others, one level after the other
        values = np.arange(mean.shape[1])
        family, mean = "categorical", mean.ravel()
        observed = (observed[:, None] == values).ravel()
        replicas = (replicas[..., None] == values).reshape(len(replicas), -1)
    observed, replicas = observed.astype(float), replicas.astype(float)
    made = Replicated(observed, replicas, mean, found.name, found.num_data, rows)
    return *check(family, made), made


# -- page ----------------------------------------------------------------------------------


def report(
    draws: Draws, path: str | Path, posterior: Any = None, data: Any = None, *, title: str = "",
    **how: Any,
) -> Path:  # fmt: skip
    """Compute `Draws.report`.

    The page holds the settings of the run as far as the draws know them, and a predictive check if
    the model is known.
    """
    origin = draws.origin
    model = None if origin is None else origin.model
    asked: dict[str, Any] = {}
    if origin is not None and origin.path is not None:
        asked = RunDirectory(origin.path).begun()
    elif model is not None:
        asked = {
            "formula": model.spec["design"]["formula"],
            "family": model.family.name,
            "priors": list(model.prior_text),
        }
    if "seed" not in asked and draws.info.get("seed") is not None:
        asked = {**asked, "seed": draws.info["seed"]}
    if posterior is None and (model is not None or asked.get("kind") == "formula"):
        return report_of(draws, path, asked, formula_check(draws, asked, lambda: known_of(origin).model), title)  # fmt: skip
    subject = _known(draws, posterior, data, how)
    seed = int(asked.get("seed", 0))
    return report_of(draws, path, asked, lambda: _checked(draws, subject, seed), title)


def _known(draws: Draws, posterior: Any, data: Any, how: dict[str, Any]) -> Subject | None:
    """Return the model if it simulates outcomes of rows; raise errors only for a given model."""
    origin = draws.origin
    known = origin is not None and origin.posterior is not None and not origin.kept
    if draws.moments is not None or (posterior is None and not known):
        return None
    try:
        subject = subject_of(draws, posterior, data, **how)
    except SGLDError:
        if posterior is not None or how:
            raise
        return None  # for example draws that do not report positions
    made = subject.replicate is not None and subject.observed and subject.rows is not None
    return subject if made else None


def _checked(draws: Draws, subject: Subject | None, seed: int) -> Checked | None:
    """Run the predictive check; raise UsageError if the model's outcomes cannot be drawn."""
    if subject is None:
        return None
    try:
        return checked(draws, subject, seed)
    except SGLDError:
        raise
    except (
        Exception
    ) as error:  # a user-supplied distribution may raise any error when it is sampled
        said = f"{type(error).__name__} ({first_line(error)})"
        raise UsageError(f"the model's outcomes could not be drawn: {said}.") from error
