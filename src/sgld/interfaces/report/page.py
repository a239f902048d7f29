"""Write the report of a finished run directory as one self-contained page.

The sections answer a reader's questions in order: is the run reliable, what was run, what are the
results, what do they look like, did the chains mix, was the noise small, does the model fit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ...core.files import reading, write_atomic
from ...errors import SGLDError
from ...regression.formula import FormulaModel
from ...results import statistics
from ...results.draws import Draws
from ...results.run_directory import RunDirectory, at_the_shell
from ...results.storage import load, table_of
from ...results.summary import target_of
from ...results.verdict import Phase, split_misfit
from . import figures, predictive_check
from .html import PAGE, banner, chosen_settings, layers, requested_settings, safe, table
from .predictive_check import Replicated, replicate

Checked = tuple[str, str, Replicated]

MAX_INTERVALS, MAX_MARGINALS, MAX_TRACES = 60, 24, 12
MAX_MODE_DIRECTIONS = 5  # directions from the largest mode to another
PANEL_ROWS = 15


def write_report(run_path: Path | str, model: FormulaModel | None = None, title: str = "") -> Path:
    """Write `report.html` into the finished run directory `run_path`; return its path.

    Args:
      run_path: the run directory.
      model: the run's model with its rows, if they are in memory; by default they are read again.
      title: the heading of the page; by default the formula or the name of the run.

    Raises:
      RunError: there is no run directory, the run is unfinished, or the page cannot be written.
      MissingExtra: matplotlib is not installed.
    """
    run = RunDirectory(run_path)
    draws = load(run.path)
    asked = run.begun()
    path = run.path / "report.html"
    with reading(run.path):
        name = run.path.resolve().name
        find = _model_of(asked) if model is None else lambda: model
        check = formula_check(draws, asked, find)
        made = _page(name, draws, asked, table_of(run), check, run.path, title)
    write_atomic(path, made.encode("utf-8"))
    return path


def report_of(
    draws: Draws,
    path: Path | str,
    asked: dict[str, Any],
    find: Callable[[], Checked | None] = lambda: None,
    title: str = "",
) -> Path:
    """Write the page of `draws` to the file `path`; return the path.

    Args:
      draws: the draws.
      path: the file to write.
      asked: the content of run.json, as far as it is known.
      find: a function that returns the predictive check (panel, description and outcomes), or None.
      title: the heading of the page; by default the formula or the name of the file.

    Raises:
      RunError: the page cannot be written.
      MissingExtra: matplotlib is not installed.
    """
    path = Path(path)
    made = _page(path.stem, draws, asked, None, find, None, title)
    write_atomic(path, made.encode("utf-8"))
    return path


def formula_check(
    draws: Draws, asked: dict[str, Any], find: Callable[[], FormulaModel | None]
) -> Callable[[], Checked | None]:
    """Return a function that finds a formula's model and runs its predictive check."""

    def found() -> Checked | None:
        model = find()
        if model is None:
            return None
        made = replicate(model, draws, int(asked.get("seed", 0)))
        return *predictive_check.check(model.family.name, made), made

    return found


def _model_of(asked: dict[str, Any]) -> Callable[[], FormulaModel | None]:
    from ...regression.fit import model_of_run

    return lambda: model_of_run(asked) if asked.get("kind") == "formula" else None


def _page(
    name: str,
    draws: Draws,
    asked: dict[str, Any],
    summary: dict[str, Any] | None,
    find: Callable[[], Checked | None],
    run: Path | None,
    title: str,
) -> str:
    info, plan = draws.info, draws.info.get("plan") or {}
    word, reasons, notes = draws.verdict.word, draws.verdict.reasons, plan.get("notes") or ()
    if run is not None and asked.get("kind") == "formula":  # a run of the command line
        reasons = tuple(at_the_shell(reason, run) for reason in reasons)
        notes = [at_the_shell(note, run) for note in notes]
    plan = plan and {**plan, "notes": split_misfit(word, notes)[1]}
    parts = [
        f"<h1>{safe(title or asked.get('formula') or name)}</h1>",
        banner(
            word,
            reasons,
            facts_of(draws),
            target_of(draws),
            notes,
            "predictions" in draws.verdict.extra,
        ),
        _failures(draws, reasons),
        '<div class="pair"><section><h2>Requested settings</h2>',
        requested_settings(asked, info),
        "</section><section><h2>Chosen settings</h2>",
        chosen_settings(plan, info, float(draws.step_size[:, -1].max())),
        "</section></div>",
    ]
    if draws.healthy.size:
        parts += _results(draws, summary or draws.summary().to_dict(), _check(find))
    else:
        parts.append(
            _section("Parameters", "<p>Every chain failed, so this page has no table.</p>")
        )
    versions = ", ".join(f"{k} {v}" for k, v in (asked.get("versions") or {}).items())
    return PAGE.substitute(
        title=f"{safe(word)}: {safe(title or name)}",
        content="\n".join(part for part in parts if part),
        footer=f"Run <code>{safe(name)}</code>{', made with ' + safe(versions) if versions else ''}.",
    )


def _results(draws: Draws, summary: dict[str, Any], checked: str) -> list[str]:
    """Return the sections that need a chain that did not fail."""
    found, parts = draws.verdict.extra, []
    if found.get("layers"):
        parts = [
            _section("Layers", layers(found["layers"], found["predictions"])),
            _predictions(found["predictions"].get("pictured")),
        ]
        if len(draws.names) > MAX_INTERVALS:
            return [*parts, checked]
    parameters = summary["parameters"]
    values, _ = draws.flat()
    ess = np.array([parameters[name]["ess_bulk"] or 0.0 for name in draws.names])
    return [
        *parts,
        _section("Parameters", table(parameters, draws)),
        _modes(draws, values),
        _intervals(draws, values),
        checked,
        _marginals(draws, values, ess),
        _traces(draws, ess),
        _noise(draws),
    ]


def _predictions(found: dict[str, Any] | None) -> str:
    """Return the section on a network's predictions at the probe rows.

    The section is empty for runs of older versions, which do not store it.
    """
    if not found:
        return ""
    wide, traces, lead = predictive_check.pictures(found)
    lead += (
        " The traces show the rows that mixed worst: class probabilities or predictions of each chain over its "
        "draws. Chains that mixed look alike."
    )
    panels = (_panels(wide, "panels wide") if wide else "") + _panels(traces)
    return _section("Predictions at the probe rows", panels, lead.strip())


def facts_of(draws: Draws) -> str:
    """Return the size of the run: chains, steps, rows, parameters and seconds."""
    info = draws.info
    facts = [f"{draws.num_chains} chains of {draws.num_draws:,} draws"]
    if info.get("num_steps"):
        facts.append(f"{info['num_steps']:,} steps each")
    if info.get("num_data"):
        facts.append(f"{info['num_data']:,} rows")
    facts.append(f"{len(draws.names):,} parameter{'s' if len(draws.names) > 1 else ''}")
    if info.get("seconds") is not None:
        facts.append(f"{info['seconds']:.1f} s")
    return " · ".join(facts)


def _failures(draws: Draws, reasons: tuple[str, ...]) -> str:
    """List the failed chains, unless the verdict names them already."""
    failed = [status for status in draws.status if status != "ok"]
    if not failed:
        return ""
    reported = set(failed) <= set(reasons)
    lines = "" if reported else "<ul>" + "".join(f"<li>{safe(s)}</li>" for s in failed) + "</ul>"
    text = f"{len(failed)} of {draws.num_chains} chains failed"
    if len(failed) < draws.num_chains:
        text += f"; only the traces include {'them' if len(failed) > 1 else 'it'}"
    return f"<p><b>{text}.</b></p>{lines}"


def _section(title: str, body: str, lead: str = "") -> str:
    lead = f"<p>{lead}</p>" if lead else ""
    return f"<section><h2>{title}</h2>\n{lead}\n{body}\n</section>"


def _panels(svgs: list[str], kind: str = "panels") -> str:
    return f'<div class="{kind}">' + "\n".join(f"<div>{svg}</div>" for svg in svgs) + "</div>"


def _modes(draws: Draws, values: Float[np.ndarray, "chain draw m"]) -> str:
    """Return the section on modes: masses, and draws between the largest mode and others."""
    found = draws.modes
    if found is None:
        return ""
    svgs = [figures.masses(found)]
    if found.names == draws.names:
        flat, weights = values.reshape(-1, values.shape[-1]), draws.weights.ravel()
        for other in range(1, min(len(found), 1 + MAX_MODE_DIRECTIONS)):
            x, places = figures.separating(found, flat, 0, other)
            svgs.append(figures.along(x, weights, places, 0, other))
    lead = (
        f"The posterior has at least {len(found)} modes. Their masses are "
        + ("measured from exact chains, ± a standard error." if found.measured else
           "Laplace approximations: the share of draws in each mode may differ from its mass.")
        + " The other plots show the draws along the direction that separates two modes."
    )  # fmt: skip
    return _section("Modes", _panels(svgs, "panels wide"), lead)


def _intervals(draws: Draws, values: Float[np.ndarray, "chain draw m"]) -> str:
    """Return points and intervals on the original scale.

    Parameters of similar size share an axis.
    """
    w = draws.weights
    chosen, cut = np.arange(len(draws.names)), ""
    if len(chosen) > MAX_INTERVALS:
        sd = np.sqrt(statistics.var(values, w))
        size = np.abs(statistics.mean(values, w)) / np.where(sd > 0, sd, np.inf)
        chosen = np.sort(np.argsort(-size, kind="stable")[:MAX_INTERVALS])
        cut = (
            f" {MAX_INTERVALS} of {len(draws.names):,} parameters are shown: those with the largest "
            "|mean| / sd."
        )
    shown, probabilities = values[..., chosen], (0.05, 0.25, 0.5, 0.75, 0.95)
    quantiles = np.array([statistics.quantile(shown, w, q) for q in probabilities])
    groups = figures.by_scale(quantiles[0], quantiles[4])
    svgs = []
    for group in groups:
        span = (quantiles[0, group].min(), quantiles[4, group].max())
        for at in np.array_split(group, -(-len(group) // PANEL_ROWS)):
            names = [draws.names[i] for i in chosen[at]]
            outer, inner = quantiles[[0, 4]][:, at], quantiles[[1, 3]][:, at]
            svgs.append(figures.forest(names, outer, inner, quantiles[2, at], span))
    lead = "Median, 50% interval (thick) and 90% interval (thin), on the original scale."
    if len(groups) > 1:
        lead += " Parameters of similar size share an axis; each axis has its own scale."
    return _section("Intervals", _panels(svgs, "panels wide"), lead + cut)


def _marginals(draws: Draws, values: np.ndarray, ess: np.ndarray) -> str:
    weights = draws.weights.ravel()
    laplace = draws.info.get("laplace")
    temperature = draws.temperature[draws.healthy]
    if laplace is not None and np.ptp(temperature) > 0:
        laplace = None
    chosen, cut = _chosen(ess, MAX_MARGINALS)
    found = draws.modes
    places = found.position if found is not None and found.names == draws.names else None
    if found is not None and found.chain is not None:
        laplace = None  # it describes only one mode
    svgs = []
    for i in chosen:
        gaussian = None
        if laplace is not None and None not in (laplace["mean"][i], laplace["sd"][i]):
            scale = float(np.sqrt(temperature.flat[0]))
            gaussian = (laplace["mean"][i], scale * laplace["sd"][i])
        marks = None if places is None else places[:, i]
        svgs.append(
            figures.marginal(draws.names[i], values[..., i].ravel(), weights, gaussian, marks)
        )
    lead = '<span class="key" style="background: var(--accent-soft)"></span>draws, weighted'
    if laplace is not None:
        lead += (
            '&emsp;<span class="key" style="background: var(--contrast); height: .2em; '
            'vertical-align: .25em"></span>the Gaussian with the curvature at the mode, around the mean (Laplace approximation). '
            "A histogram much wider than the curve suggests bias; one of another shape suggests "
            "a posterior that is not Gaussian."
        )
    if places is not None:
        lead += " Lines mark the modes."
    return _section("Marginals", _panels(svgs), lead + cut)


def _traces(draws: Draws, ess: np.ndarray) -> str:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(draws.position)]
    shape = draws.log_weight.shape
    every = np.concatenate([a.reshape(*shape, -1) for a in leaves if a.size], axis=-1)
    chosen, cut = _chosen(ess, MAX_TRACES)
    # lowest ESS first, so that problems appear in the first panels
    chosen = chosen[np.argsort(ess[chosen], kind="stable")]
    svgs = [figures.trace(draws.names[i], draws.step, every[..., i]) for i in chosen]
    lead = (
        "Every chain over the steps, thinned for display, the lowest ESS first. Chains that mixed "
        "look alike and show no drift."
    )
    if draws.num_chains > figures.MAX_TRACED_CHAINS:
        lead += f" The first {figures.MAX_TRACED_CHAINS} of {draws.num_chains} chains are drawn."
    return _section("Traces", _panels(svgs), lead + cut)


def _chosen(ess: np.ndarray, most: int) -> tuple[np.ndarray, str]:
    """Return at most `most` parameters, those with the lowest ESS, and a sentence on them."""
    if len(ess) <= most:
        return np.arange(len(ess)), ""
    chosen = np.sort(np.argsort(ess, kind="stable")[:most])
    return chosen, f" {most} of {len(ess):,} parameters are shown: those with the lowest ESS."


def _noise(draws: Draws) -> str:
    """Return plots of step size, Welling & Teh's alpha, and the temperature if it changes."""
    burn_in = int((draws.info.get("plan") or {}).get("burn_in", 0))
    if not draws.info.get("plan"):
        return ""
    h = draws.step_size[draws.healthy].mean(axis=0)
    temperature = draws.temperature[draws.healthy].mean(axis=0)
    svgs = [figures.over_steps("Step size h", draws.step, h, burn_in)]
    phase = draws.phase
    if phase is None:
        lead = "The gradients have no noise, so every step is in the sampling phase."
    else:
        steps = np.concatenate([phase.step[phase.step < draws.step[0]], draws.step])
        early = len(steps) - len(draws.step)
        h_all = np.append(phase.step_size[:early], h)
        alpha = phase.along(steps, h_all, np.append(phase.temperature[:early], temperature))
        corrected = bool(draws.info["plan"].get("noise_correction"))
        crossing = int(phase.step[0]) if corrected else phase.crossing
        svgs.append(figures.noise_phase(steps, alpha, crossing))
        lead = _phase(phase, draws.info["plan"])
    if np.ptp(temperature) > 0:
        svgs.append(figures.over_steps("Temperature T", draws.step, temperature, burn_in))
    return _section("Step size and noise", _panels(svgs, "panels wide"), lead)


def _phase(phase: Phase, plan: dict[str, Any]) -> str:
    lead = (
        "α is the variance of the gradient noise over that of the injected noise, in the worst "
        "direction (Welling &amp; Teh 2011, section 4), measured along the run in every chain. Above 1 "
        f"the run optimises, below 1 it samples. This run: {safe(phase.sentence(bool(plan.get('noise_correction'))))}"
    )
    if plan.get("noise_correction"):
        return lead + "; noise correction subtracts the gradient noise from the injected noise."
    if plan.get("order") in ("reshuffle", "symmetric"):
        return lead + (
            ". α uses the noise of single batches; part of it cancels over a whole pass of the data, "
            "which α ignores."
        )
    return lead + "; far below 1 the gradient noise is negligible."


def _check(find: Callable[[], Checked | None]) -> str:
    """Return the predictive check, or a sentence that says why there is none."""
    title = "Does the model fit?"
    try:
        found = find()
    except SGLDError as error:
        return _section(title, f"<p>No predictive check was made: {safe(error)}</p>")
    if found is None:
        return ""
    svg, reading, made = found
    count, rows = len(made.replicas), made.num_rows
    part = (
        f"{rows:,} of the {made.num_data:,} rows" if rows < made.num_data else f"all {rows:,} rows"
    )
    lead = f"Posterior predictive check: {count} data sets drawn from the model for {part}."
    if made.totals is not None and made.totals.num_rows == made.num_data:
        lead += " Statements on single numbers use all rows."
    return _section(
        title,
        f'<div class="pair check">{_panels([svg], "panels wide")}<p>{safe(reading)}</p></div>',
        lead,
    )
