"""Tables of results: the summary of a run, the comparison of two sets of draws, and network layers.

The summary has one row per parameter, and ends with the verdict. For a network it has one row per
layer, so it stays short however many weights there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..core.text import MAX_LINE_CHARACTERS, columns, paragraph
from ..errors import UsageError
from . import statistics
from .draws import Draws
from .late import Printed
from .statistics import strata_of
from .verdict import Modes, Word, split_misfit

# -- comparison ----------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Comparison(Printed):
    """Differences per parameter, in units of the reference's sd, with their Monte Carlo errors.

    Attributes:
      names: the names of the parameters.
      mean_error: (mean - mean of the reference) / sd of the reference.
      sd_ratio: sd / sd of the reference: above 1 is too wide.
      mean_error_se, sd_ratio_se: Monte Carlo standard errors of the two, from both sets of
        draws together; a difference of less than 2 of them may be chance.
    """

    names: tuple[str, ...]
    mean_error: Float[np.ndarray, " m"]
    sd_ratio: Float[np.ndarray, " m"]
    mean_error_se: Float[np.ndarray, " m"]
    sd_ratio_se: Float[np.ndarray, " m"]

    @property
    def worst_mean(self) -> int | None:
        """Index of the parameter with the largest mean error; None if no draws move."""
        return _largest(np.abs(self.mean_error))

    @property
    def worst_sd(self) -> int | None:
        """Index of the parameter whose sd ratio is furthest from 1; None if no draws move."""
        return _largest(np.abs(np.log(self.sd_ratio)))

    def to_dict(self) -> dict[str, Any]:
        """Return {name: {column: value}} for COMPARISON_COLUMNS; NaN becomes None."""
        return {
            name: {column: _number(getattr(self, column)[i]) for column in COMPARISON_COLUMNS}
            for i, name in enumerate(self.names)
        }

    def __str__(self) -> str:
        head = ["", "mean error", "+-", "sd ratio", "+-"]
        body = [
            [name, *(f"{getattr(self, column)[i]:.3f}" for column in COMPARISON_COLUMNS)]
            for i, name in enumerate(self.names)
        ]
        lines = columns([head, *body])
        mean, sd = self.worst_mean, self.worst_sd
        if mean is None or sd is None:
            return "\n".join([*lines, "worst: unknown, since the draws do not move."])
        lines.append(
            f"worst: mean of {self.names[mean]!r} {self.mean_error[mean]:+.3f} sd of the reference, "
            f"sd of {self.names[sd]!r} x {self.sd_ratio[sd]:.3f}"
        )
        return "\n".join(lines)


COMPARISON_COLUMNS = ("mean_error", "mean_error_se", "sd_ratio", "sd_ratio_se")


def compare(draws: Draws, reference: Draws) -> Comparison:
    """Compare `draws` with `reference`: mean differences in sd, and sd ratios.

    Args:
      draws: the draws of `sgld.sample`, for example; their weights are used.
      reference: the draws of `sgld.reference`, or any draws of parameters with the same names.

    Raises: UsageError if the names differ; their order may.

    Example:
      >>> import numpy as np, sgld
      >>> x = np.random.default_rng(0).normal(size=(4, 500))
      >>> print(sgld.compare(sgld.Draws.of({"a": 1 + 2 * x}), sgld.Draws.of({"a": x})))
         mean error     +-  sd ratio     +-
      a       0.972  0.050     2.000  0.046
      worst: mean of 'a' +0.972 sd of the reference, sd of 'a' x 2.000
    """
    for role, given in (("draws", draws), ("reference", reference)):
        if not isinstance(given, Draws):
            remedy = "; call .draws() on it" if hasattr(given, "draws") else ""
            raise UsageError(
                f"{role} must be Draws, which sgld.sample returns. Got {type(given).__name__}{remedy}."
            )
    for here, there, where in (
        (draws.names, reference.names, "reference"),
        (reference.names, draws.names, "draws"),
    ):
        absent = [name for name in here if name not in there]
        if absent:
            raise UsageError(
                f"the parameters differ: {absent[0]!r} is not in {where}, which has "
                f"{', '.join(there[:5])}{', ...' if len(there) > 5 else ''}."
            )
    order = [reference.names.index(name) for name in draws.names]
    a = statistics.Estimates(draws.flat()[0], draws.weights)
    b = statistics.Estimates(reference.flat()[0][..., order], reference.weights)
    return Comparison(draws.names, *errors_of(a, b))


def errors_of(a: statistics.Estimates, b: statistics.Estimates) -> tuple[np.ndarray, ...]:
    """Return the errors of a against b per parameter, not finite where b does not move.

    These are differences of means in sds of b, ratios of sds, and the standard errors of both.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = a.sd / b.sd
        return (
            (a.mean - b.mean) / b.sd, ratio, np.hypot(a.mean_se, b.mean_se) / b.sd,
            ratio * np.hypot(a.sd_se, b.sd_se),
        )  # fmt: skip


def _largest(values: np.ndarray) -> int | None:
    return None if np.isnan(values).all() else int(np.nanargmax(values))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# -- layers --------------------------------------------------------------------------------


Layer = Mapping[str, Any]
MIN_ROUND_TEMPERATURE = 1000.0  # temperature from which only three digits are printed
LAYER_HEADS = ("layer", "weights", "mean", "sd", "temperature")
MAX_PRINTED_LINES = 15


def layer_rows(layers: Sequence[Layer]) -> list[list[str]]:
    """Return the cells of every layer; many layers are grouped, and the rest is merged.

    Groups have the names of their layers up to a last attribute or index.

    Example:
      >>> one = {"name": "net.weight", "weights": 4, "mean": 0.0, "sd": 1.0, "temperature": 1.0}
      >>> layer_rows([one, {**one, "name": "net.bias", "temperature": None}])
      [['net.weight', '4', '0', '1', '1.000'], ['net.bias', '4', '0', '1', '-']]
    """
    shown = list(layers)
    while len(shown) > MAX_PRINTED_LINES:
        grouped = _grouped(shown)
        if len(grouped) == len(shown):
            break
        shown = grouped
    if len(shown) > MAX_PRINTED_LINES:
        rest = shown[MAX_PRINTED_LINES - 1 :]
        shown = [*shown[: MAX_PRINTED_LINES - 1], _merged(f"{len(rest)} more", rest)]
    return [
        [
            str(layer["name"]), f"{layer['weights']:,}", _layer_text(layer["mean"], ".4g"),
            _layer_text(layer["sd"], ".4g"), _degrees(layer["temperature"]),
        ] for layer in shown
    ]  # fmt: skip


def layer_table(layers: Sequence[Layer]) -> list[str]:
    """Return the table of layers as lines of text."""
    return columns([list(LAYER_HEADS), *layer_rows(layers)])


def predictions_lines(found: Mapping[str, Any]) -> list[str]:
    """Return a line on the mixing of predictions at probe rows, and one on the stiffest directions.

    Example:
      >>> found = {"kind": "means", "rows": 64, "r_hat": 1.01, "max_r_hat": 1.02, "ess": 240.0,
      ...     "variation": None, "temperatures": {"the stiffest directions": [1.02, 0.01]}}
      >>> predictions_lines(found)
      ['predictions (means) at 64 rows: R-hat 1.010 (95%), 1.020 (all), ESS 240',
       'temperature of the stiffest directions: 1.020 +- 0.010']
    """
    text = (
        f"predictions ({found['kind']}) at {found['rows']} rows: R-hat {_layer_text(found['r_hat'], '.3f')} (95%), "
        f"{_layer_text(found['max_r_hat'], '.3f')} (all), ESS {_layer_text(found['ess'], '.0f')}"
    )
    if found.get("variation") is not None:
        text += f", total variation between halves of the chains {found['variation']:.4f}"
    stiff = list(found["temperatures"].items())[-1:]
    return [
        text,
        *(f"temperature of {name}: {_degrees(t)} +- {_degrees(se)}" for name, (t, se) in stiff),
    ]


def _grouped(layers: Sequence[Layer]) -> list[Layer]:
    groups: dict[str, list[Layer]] = {}
    for layer in layers:
        stem = re.sub(r"(\.[^.\[\]]+|\[\d+\])$", "", str(layer["name"]))
        groups.setdefault(stem, []).append(layer)
    return [_merged(name, parts) for name, parts in groups.items()]


def _merged(name: str, parts: Sequence[Layer]) -> Layer:
    """Merge several layers: means by their weights, and the highest temperature."""
    size = np.array([part["weights"] for part in parts], float)
    known = [part["temperature"] for part in parts if part["temperature"] is not None]
    return {
        "name": name,
        "weights": int(size.sum()),
        "mean": float(np.average([part["mean"] for part in parts], weights=size)),
        "sd": float(np.sqrt(np.average([part["sd"] ** 2 for part in parts], weights=size))),
        "temperature": max(known) if known else None,
    }


def _degrees(value: float | None) -> str:
    return _layer_text(value, ".3f" if value is None or value < MIN_ROUND_TEMPERATURE else ".3g")


def _layer_text(value: float | None, form: str) -> str:
    return "-" if value is None or not np.isfinite(value) else format(value, form)


# -- summary -------------------------------------------------------------------------------


SUMMARY_COLUMNS = (
    "mean", "sd", "q05", "q50", "q95", "mcse_mean", "ess_bulk", "ess_tail", "r_hat",
    "sd_ratio", "sd_ratio_se", "r2", "mean_corrected", "sd_corrected",
)  # fmt: skip
UNSTORED_FACTS = ("phase", "target", "notes")  # facts that are printed, not stored in summary.json
MAX_LAYERED_DIM = 1000  # parameters up to which a network has rows per parameter
PRINTED_COLUMNS = ("mean", "sd", "q05", "q50", "q95", "ess_bulk", "r_hat", "sd_ratio")
CORRECTED_COLUMNS = ("mean_corrected", "sd_corrected")
MIN_NAME_CHARACTERS = 20  # characters of a name in a table that is too wide
LEGEND = "sd_ratio: sd of the draws / sd of the posterior, as measured."
CORRECTED_LEGEND = "corrected: without that bias."


@dataclass(frozen=True, repr=False)
class Summary(Printed):
    """Table of a run: `parameters[name][column]` for SUMMARY_COLUMNS, the verdict, and facts."""

    parameters: dict[str, dict[str, float | None]]
    verdict: Word
    reasons: tuple[str, ...]
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `summary.json`."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            **{name: value for name, value in self.facts.items() if name not in UNSTORED_FACTS},
            "parameters": self.parameters,
        }

    def __str__(self) -> str:
        lines = [*self.lines(), f"verdict: {self.verdict}"]
        for reason in self.reasons:
            lines += paragraph(reason, "  ", "    ")
        return "\n".join([*lines, *(paragraph(self.misfit, "", "  ") if self.misfit else [])])

    @property
    def misfit(self) -> str:
        """Sentence on a model that does not fit, shown with the verdict; usually empty."""
        return split_misfit(self.verdict, self.facts.get("notes", ()))[0]

    def lines(self, width: int = MAX_LINE_CHARACTERS) -> list[str]:
        """Return the table, the facts of the run and the notes, without the verdict and `misfit`.

        Args:
          width: the width of the table in characters; medians are left out first, then the
            corrected columns, then the middle of long names.
        """
        lines = self._layers() if self.facts.get("layers") else self._table(width)
        facts = self.facts
        lines.append(
            f"{facts['num_chains']} chains x {facts['num_draws']:,} draws"
            + (f", {facts['num_steps']:,} steps" if facts["num_steps"] is not None else "")
            + (f" over {facts['num_data']:,} rows" if facts["num_data"] else "")
            + (f" ({left_out(facts['num_dropped'])})" if facts.get("num_dropped") else "")
            + (f", {facts['seconds']:.1f} s" if facts["seconds"] is not None else "")
        )
        if facts.get("modes"):
            lines += Modes.from_dict(facts["modes"]).lines()
        for name in ("target", "phase"):
            lines += paragraph(facts[name], f"{name}: ", "  ") if facts.get(name) else []
        for note in split_misfit(self.verdict, facts.get("notes", ()))[1]:
            lines += paragraph(note, "note: ", " " * 6)
        return lines

    def _table(self, width: int) -> list[str]:
        known = [
            column for column in (*PRINTED_COLUMNS, *CORRECTED_COLUMNS)
            if column in PRINTED_COLUMNS or self._has("sd_corrected")
        ]  # fmt: skip
        fewer = [column for column in known if column != "q50"]
        least = [column for column in fewer if column not in CORRECTED_COLUMNS]
        lines: list[str] = []
        for shown, elided in ((known, 0), (fewer, 0), (least, 0), (least, width)):
            lines = self._printed(shown, elided)
            if not lines or len(lines[-1]) <= width:
                break
        if self._has("sd_ratio"):
            both = "sd_corrected" in shown
            lines.append(f"{LEGEND} {CORRECTED_LEGEND}" if both else LEGEND)
        return lines

    def _has(self, column: str) -> bool:
        return any(row[column] is not None for row in self.parameters.values())

    def _printed(self, shown: Sequence[str], width: int) -> list[str]:
        """Return the lines of a table of these columns; `width` above 0 shortens names to fit it."""
        body = [
            [name, *(_text(column, row[column]) for column in shown)]
            for name, row in self.parameters.items()
        ]
        heads = ["", *(column.removesuffix("_corrected") for column in shown)]
        lines = columns([heads, *body])
        if width:
            longest = max(len(name) for name in self.parameters)
            room = max(MIN_NAME_CHARACTERS, longest - (len(lines[-1]) - width))
            lines = columns([heads, *([_elided(name, room), *row] for name, *row in body)])
        if shown[-1] == "sd_corrected":
            lines.insert(0, "corrected".rjust(len(lines[0])))
        return lines

    def _layers(self) -> list[str]:
        """Return the table of layers, and the mixing of predictions."""
        return [*layer_table(self.facts["layers"]), *predictions_lines(self.facts["predictions"])]


def _elided(name: str, size: int) -> str:
    """Return the name, or its two ends if it has more than `size` characters."""
    if len(name) <= size:
        return name
    head = (size - 3) // 2
    return f"{name[:head]}...{name[len(name) - (size - 3 - head) :]}"


def left_out(count: int) -> str:
    """Return the text on rows that a model left out."""
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
    """Return the summary with every column of SUMMARY_COLUMNS for every parameter of `draws`."""
    many = len(draws.names) > MAX_LAYERED_DIM and draws.verdict.extra.get("layers")
    if draws.healthy.size == 0 or many:
        return _summary(draws, {})
    verdict = draws.verdict
    table = _of_moments(draws) if draws.moments is not None else _of_values(draws)
    for column in SUMMARY_COLUMNS[9:]:
        known = None if verdict is None else getattr(verdict, column)
        table[column] = np.full(len(draws.names), np.nan) if known is None else np.asarray(known)
    parameters = {
        name: {c: _number(table[c][i]) for c in SUMMARY_COLUMNS}
        for i, name in enumerate(draws.names)
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
        "mean": statistics.mean(values, w),
        "sd": np.sqrt(statistics.var(values, w)),
        "q05": statistics.quantile(values, w, 0.05),
        "q50": statistics.quantile(values, w, 0.5),
        "q95": statistics.quantile(values, w, 0.95),
    }
    if strata is not None:
        table |= {"mcse_mean": strata.mean_se, "ess_bulk": strata.ess("bulk")}
        return table | {"ess_tail": strata.ess("tail"), "r_hat": strata.r_hat}
    return table | {
        "mcse_mean": statistics.mcse_mean(values, w),
        "ess_bulk": statistics.ess(values, w, "bulk"),
        "ess_tail": statistics.ess(values, w, "tail"),
        "r_hat": statistics.r_hat(values),
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
    if "predictions" in facts:  # without the data for plots
        facts["predictions"] = {k: v for k, v in facts["predictions"].items() if k != "pictured"}
    # a verdict already reports failed chains
    reasons = verdict.reasons if verdict.judged else (*verdict.reasons, *draws.failures)
    return Summary(parameters, verdict.word, reasons, facts)


def _corrected(draws: Draws) -> bool:
    return bool((draws.info.get("plan") or {}).get("noise_correction"))


def target_of(draws: Draws) -> str:
    """Return the name of the distribution that the draws follow."""
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
