"""The table of a run: one row per parameter, the verdict last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.text import columns
from . import weighted
from .layers import layer_table, predictions_lines
from .modes import Modes
from .strata import strata_of
from .verdict import Word

if TYPE_CHECKING:
    from .draws import Draws

__all__ = ["COLUMNS", "TOLD", "Summary", "left_out", "summarise", "target_of"]

COLUMNS = (
    "mean", "sd", "q05", "q50", "q95", "mcse_mean", "ess_bulk", "ess_tail", "r_hat",
    "sd_ratio", "sd_ratio_se", "r2", "mean_corrected", "sd_corrected",
)  # fmt: skip
TOLD = ("phase", "target", "notes")  # facts that are said and not stored in summary.json
MOST_OF_LAYERS = 1000  # parameters that have rows of their own where layers are looked at
SHOWN = ("mean", "sd", "q05", "q50", "q95", "ess_bulk", "r_hat", "sd_ratio")


@dataclass(frozen=True)
class Summary:
    """`parameters[name][column]` for every column of COLUMNS, and the run's own facts."""

    parameters: dict[str, dict[str, float | None]]
    verdict: Word
    reasons: tuple[str, ...]
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """What `summary.json` holds."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            **{name: value for name, value in self.facts.items() if name not in TOLD},
            "parameters": self.parameters,
        }

    def __str__(self) -> str:
        lines = self._layers() if self.facts.get("layers") else self._table()
        facts = self.facts
        lines.append(
            f"{facts['num_chains']} chains x {facts['num_draws']} draws, {facts['num_steps']} steps"
            + (f" over {facts['num_data']} rows" if facts["num_data"] else "")
            + (f" ({left_out(facts['num_dropped'])})" if facts.get("num_dropped") else "")
            + (f", {facts['seconds']:.1f} s" if facts["seconds"] is not None else "")
        )
        if facts.get("modes"):
            lines += Modes.from_dict(facts["modes"]).lines()
        lines += [f"{name}: {facts[name]}" for name in ("target", "phase") if facts.get(name)]
        lines += [f"note: {note}" for note in facts.get("notes", ())]
        lines += [f"verdict: {self.verdict}", *(f"  {reason}" for reason in self.reasons)]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        shown = list(SHOWN)
        if any(row["sd_corrected"] is not None for row in self.parameters.values()):
            shown += ["mean_corrected", "sd_corrected"]
        body = [
            [name, *(_text(column, row[column]) for column in shown)]
            for name, row in self.parameters.items()
        ]
        return columns([["", *shown], *body])

    def _layers(self) -> list[str]:
        """The layers, and how well predictions have mixed."""
        return [*layer_table(self.facts["layers"]), *predictions_lines(self.facts["predictions"])]

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from ..notebook.views import view

        return view(self)


def left_out(count: int) -> str:
    """Rows that a model did not take, in words."""
    return f"{count:,} more left out: a cell they need is missing"


def _text(column: str, value: float | None) -> str:
    if value is None or not np.isfinite(value):
        return "-"
    if column.startswith("ess"):
        return f"{value:.0f}"
    if column in ("r_hat", "sd_ratio", "r2"):
        return f"{value:.3f}"
    return f"{value:.4g}"


def summarise(draws: Draws) -> Summary:
    """Every column of COLUMNS for every parameter of `draws`."""
    many = len(draws.names) > MOST_OF_LAYERS and draws.verdict.extra.get("layers")
    if draws.healthy.size == 0 or many:
        return _summary(draws, {})
    verdict = draws.verdict
    table = _of_moments(draws) if draws.moments is not None else _of_values(draws)
    for column in COLUMNS[9:]:
        known = None if verdict is None else getattr(verdict, column)
        table[column] = np.full(len(draws.names), np.nan) if known is None else np.asarray(known)
    parameters = {
        name: {c: _json_number(table[c][i]) for c in COLUMNS} for i, name in enumerate(draws.names)
    }
    return _summary(draws, parameters)


def _of_moments(draws: Draws) -> dict[str, np.ndarray]:
    moments, chains = draws.moments, draws.healthy
    assert moments is not None
    table = {
        "mean": moments.mean(chains),
        "sd": np.sqrt(moments.var(chains)),
        "mcse_mean": moments.mcse(chains),
        "ess_bulk": moments.ess(chains),
        "r_hat": moments.r_hat(chains),
    }
    nothing = np.full(len(draws.names), np.nan)
    table |= dict.fromkeys(("q05", "q50", "q95", "ess_tail"), nothing)
    if moments.histogram is not None:
        for column, q in (("q05", 0.05), ("q50", 0.5), ("q95", 0.95)):
            table[column] = moments.histogram.quantile(q, chains)
    return table


def _of_values(draws: Draws) -> dict[str, np.ndarray]:
    values, _ = draws.flat()
    w, strata = draws.weights, strata_of(draws, values)
    table = {
        "mean": weighted.mean(values, w),
        "sd": np.sqrt(weighted.var(values, w)),
        "q05": weighted.quantile(values, w, 0.05),
        "q50": weighted.quantile(values, w, 0.5),
        "q95": weighted.quantile(values, w, 0.95),
    }
    if strata is not None:
        table |= {"mcse_mean": strata.mean_se, "ess_bulk": strata.ess("bulk")}
        return table | {"ess_tail": strata.ess("tail"), "r_hat": strata.r_hat}
    return table | {
        "mcse_mean": weighted.mcse_mean(values, w),
        "ess_bulk": weighted.ess(values, w, "bulk"),
        "ess_tail": weighted.ess(values, w, "tail"),
        "r_hat": weighted.r_hat(values),
    }


def _summary(draws: Draws, parameters: dict[str, dict[str, float | None]]) -> Summary:
    facts = {
        "num_data": draws.info.get("num_data"),
        "num_steps": draws.info.get("num_steps"),
        "num_chains": draws.num_chains,
        "num_draws": draws.num_draws if draws.moments is None else draws.moments.num_draws,
        "seconds": draws.info.get("seconds"),
        "phase": None if draws.phase is None else draws.phase.sentence(_corrected(draws)),
        "target": target_of(draws),
        "notes": (draws.info.get("plan") or {}).get("notes", ()),
    }
    facts |= {name: draws.info[name] for name in ("modes", "num_dropped") if draws.info.get(name)}
    verdict = draws.verdict
    facts |= {
        name: verdict.extra[name] for name in ("layers", "predictions") if verdict.extra.get(name)
    }
    if "predictions" in facts:  # without what is for pictures
        facts["predictions"] = {k: v for k, v in facts["predictions"].items() if k != "pictured"}
    # a verdict knows of chains that failed
    reasons = verdict.reasons if verdict.judged else (*verdict.reasons, *draws.failures)
    return Summary(parameters, verdict.word, reasons, facts)


def _corrected(draws: Draws) -> bool:
    return bool((draws.info.get("plan") or {}).get("noise_correction"))


def target_of(draws: Draws) -> str:
    """Whose law the draws follow."""
    if draws.info.get("target") == "sandwich":
        return "sandwich-calibrated intervals, for a misspecified model"
    if draws.info.get("method") == "bayes_by_backprop":
        return f"q, a variational approximation of the posterior ({draws.info['family']})"
    temperature = np.unique(
        draws.temperature[draws.healthy] if draws.healthy.size else draws.temperature
    )
    if temperature.size == 1 and temperature[0] == 1:
        return "the posterior"
    if temperature.size == 1:
        kind = "cold" if temperature[0] < 1 else "tempered"
        return f"the {kind} posterior, p(theta | data)^(1/T) at T = {temperature[0]:g}"
    return "a posterior whose temperature changes along the run"


def _json_number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
