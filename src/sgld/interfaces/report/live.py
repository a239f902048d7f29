"""Read a run while it is running, and show its progress by the verdict's own rules.

The progress is shown as lines in a terminal or as a page; names are escaped.

Reading does not disturb the run: files are read whole, as they appear, and no lock is taken. Memory
is bounded, however long or wide the run is: only every 2^k-th draw is used, and only some of many
parameters. A chunk of draws never changes, so it is read once.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.flatten_util
import numpy as np
from jaxtyping import Float, Int

from ...core.files import reading
from ...core.pytrees import Layout
from ...core.text import columns as in_columns
from ...diagnostics.function_space.predictions import CLASSES, MEANS
from ...diagnostics.function_space.temperature import Layers
from ...diagnostics.function_space.verdict import MAX_R_HAT, MAX_USUAL_R_HAT, MIN_ESS, Seen, mixed
from ...diagnostics.rule import Evidence, least_ess, unmixed
from ...errors import RunError, plain
from ...inference.judge import moments_of
from ...inference.kept import MAX_HISTOGRAMS, MOMENTS, BatchMoments, Bins
from ...inference.tuning.network_rules import EARLY_STEP_SHARE
from ...regression.formula import FormulaModel
from ...results import statistics
from ...results.codec import plan_of
from ...results.plan import in_seconds
from ...results.run_directory import RunDirectory, at_the_shell
from ...results.statistics import Moments
from .figures import shorten
from .html import PAGE, ordinal, plain_table, safe

State = Literal["running", "stopped", "finished"]

MIN_LIVE_DRAWS = 8  # least draws per chain for a judgement
MAX_LIVE_PARAMETERS = 40  # parameters shown; the worst if there are more
DIAGNOSTIC_POINTS = 12  # points of the curves of R-hat and ESS


class Agreement(NamedTuple):
    """Agreement of chains: worst R-hat and its limit, least ESS and its limit, and the result."""

    r_hat: float
    limit: float
    ess: float
    wanted: float
    mixed: bool

    def __str__(self) -> str:
        least = f"least ESS {self.ess:.0f}" + ("" if self.mixed else f" of {self.wanted:.0f}")
        return f"R-hat {self.r_hat:.3f} (limit {self.limit:.3f}), {least}"


@dataclass(frozen=True)
class Live:
    """Progress of a run that may still be running.

    Attributes:
      draws: [chain, draw, parameter], the draws that are used: reported values of formula runs,
        kept values, or free coordinates.
      weights: the weights of these draws.
      names: the names of these parameters, out of `width`.
      count: draws per chain so far; every `every`-th is used.
      wanted: draws per chain that the plan requests; 0 before there is a plan.
      step: the step of each chain at the last checkpoint, out of `steps`.
      age: seconds since the plan was made, and `seen` since the last checkpoint.
      state: "running" if a process is working on the run; "stopped" if none is and there is no
        verdict.
      remedy: for a stopped run, how to continue it, in the spelling of the command line.
      verdict: for a finished run, its verdict as text.
      by_predictions: whether the verdict will judge predictions, not parameters.
      predicted: [chain, draw, row, number] at the draws that are used, if predictions are kept.
      moments: the moments of a run that keeps nothing else.
    """

    draws: Float[np.ndarray, "chain draw parameter"] = field(default_factory=lambda: np.zeros((1, 0, 0)))  # fmt: skip
    weights: Float[np.ndarray, "chain draw"] = field(default_factory=lambda: np.zeros((1, 0)))
    names: tuple[str, ...] = ()
    width: int = 0
    count: int = 0
    every: int = 1
    wanted: int = 0
    step: int = 0
    steps: int = 0
    age: float = 0.0
    seen: float = 0.0
    attempt: int = 0
    state: State = "running"
    remedy: str = ""
    verdict: str = ""
    by_predictions: bool = False
    predicted: Float[np.ndarray, "chain draw row k"] | None = None
    moments: Moments | None = None

    @property
    def finished(self) -> bool:
        """Whether the run has a verdict."""
        return self.state == "finished"

    @property
    def num_chains(self) -> int:
        """Number of chains of the run."""
        return len(self.draws) if self.moments is None else len(self.moments.chain_mean)

    @property
    def left(self) -> float | None:
        """Seconds until the requested draws are complete, at the rate so far."""
        done = max(self.age - self.seen, 1e-3)
        return None if not self.step else max(0.0, done * (self.steps - self.step) / self.step)

    @cached_property
    def healthy(self) -> Int[np.ndarray, " ok"]:
        """Chains whose numbers are all finite."""
        values = self.draws if self.moments is None else self.moments.chain_mean
        return np.flatnonzero(np.isfinite(values).reshape(len(values), -1).all(axis=1))

    @cached_property
    def totals(self) -> tuple[Float[np.ndarray, " parameter"], Float[np.ndarray, " parameter"]]:
        """Mean and sd of the parameters that are used."""
        if self.moments is not None:
            return self.moments.mean(self.healthy), np.sqrt(self.moments.var(self.healthy))
        found = statistics.Estimates(self.draws[self.healthy], self.weights[self.healthy])
        return found.mean, found.sd

    @cached_property
    def evidence(self) -> Evidence:
        """Evidence on each parameter, as the rule for the verdict needs it."""
        return self._evidence(self.draws.shape[1])

    def _evidence(self, count: int) -> Evidence:
        if self.moments is not None:
            mean, sd = self.totals
            ess = self.moments.ess(self.healthy)
            r_hat = self.moments.r_hat(self.healthy)
            return Evidence(self.names, mean, sd, ess, ess, r_hat, len(self.healthy))
        values, weights = (a[self.healthy, :count] for a in (self.draws, self.weights))
        found = statistics.Estimates(values, weights)
        return Evidence(
            self.names, found.mean, found.sd, **found.mixing._asdict(), num_chains=len(values)
        )

    @cached_property
    def worst(self) -> Int[np.ndarray, " shown"]:
        """Parameters to show: all, or those with the largest R-hat relative to its limit."""
        if len(self.names) <= MAX_LIVE_PARAMETERS or not len(self.healthy):
            return np.arange(min(MAX_LIVE_PARAMETERS, len(self.names)))
        over = np.nan_to_num(self.evidence.r_hat / self.evidence.most_r_hat, nan=-1.0)
        return np.sort(np.argsort(-over, kind="stable")[:MAX_LIVE_PARAMETERS])

    @cached_property
    def agreement(self) -> Agreement | None:
        """Agreement of all draws so far.

        None if there are too few draws, or if predictions are judged but not kept.
        """
        return self._agreement(self.draws.shape[1])

    def _agreement(self, count: int) -> Agreement | None:
        if not len(self.healthy) or (self.by_predictions and self.predicted is None):
            return None
        looked_at = count if self.moments is None else self.count
        if looked_at < MIN_LIVE_DRAWS:
            return None
        if self.predicted is not None:
            return self._of_predictions(
                self.predicted[self.healthy, int(EARLY_STEP_SHARE * count) : count]
            )
        e = self.evidence if count == self.draws.shape[1] else self._evidence(count)
        limit, ess = e.most_r_hat, np.fmin(e.ess, e.ess_square)
        over = np.nan_to_num(e.r_hat / limit, nan=-1.0)
        worst = int(np.argmax(over))
        if np.isnan(ess).all():
            return None
        return Agreement(
            float(e.r_hat[worst]), float(limit[worst]), float(np.nanmin(ess)), least_ess(e.num_chains),
            not unmixed(e),
        )  # fmt: skip

    def _of_predictions(self, predicted: Float[np.ndarray, "ok draw row k"]) -> Agreement | None:
        if predicted.shape[1] < MIN_LIVE_DRAWS or not np.isfinite(predicted).all():
            return None
        total = np.exp(predicted.astype(np.float64)).sum(axis=-1)
        kind = CLASSES if predicted.shape[-1] > 1 and np.allclose(total, 1, atol=1e-3) else MEANS
        alike = np.full(predicted.shape[:2], 1 / np.prod(predicted.shape[:2]))
        found = mixed(Seen(kind, predicted, None, alike, Layers((), ())))
        if not np.isfinite(found.ess):
            return None
        most = found.max_r_hat > MAX_R_HAT and found.r_hat <= MAX_USUAL_R_HAT
        r_hat, limit = (found.max_r_hat, MAX_R_HAT) if most else (found.r_hat, MAX_USUAL_R_HAT)
        return Agreement(r_hat, limit, found.ess, MIN_ESS, not found.reasons)

    def history(self) -> Iterator[tuple[int, Agreement]]:
        """Yield (draws per chain, agreement up to them) along the run, for the shown parameters."""
        there = self.draws.shape[1]
        if self.moments is not None or there < MIN_LIVE_DRAWS:
            return
        shown = replace(
            self, draws=self.draws[..., self.worst], names=tuple(self.names[i] for i in self.worst),
        )  # fmt: skip
        for count in sorted(
            set(np.linspace(MIN_LIVE_DRAWS, there, DIAGNOSTIC_POINTS).astype(int).tolist())
        ):
            found = shown._agreement(count)
            if found is not None:
                yield count * self.every, found

    def rows(self) -> list[tuple[str, float, float]]:
        """Return name, mean and sd of the parameters shown."""
        if not self.count or not len(self.healthy):
            return []
        mean, sd = self.totals
        return [(self.names[i], float(mean[i]), float(sd[i])) for i in self.worst]

    def as_json(self) -> dict[str, Any]:
        """Return what `sgld summary --json` prints for a run without a verdict."""
        rows = {name: {"mean": mean, "sd": sd} for name, mean, sd in self.rows()}
        counts = {"num_chains": self.num_chains, "num_draws": self.count, "num_steps": self.step}
        reasons = ["the run is not finished", self.word()]
        return {"verdict": "unknown", "reasons": reasons, **counts, "parameters": rows}

    def word(self) -> str:
        """Return a preliminary judgement, or the verdict of a finished run."""
        if self.finished:
            return f"finished: {self.verdict}"
        lost = self.num_chains - len(self.healthy)
        if self.count and lost:
            return f"{lost} of {self.num_chains} chains became non-finite"
        if self.count < MIN_LIVE_DRAWS:
            return "no draws yet"
        of = "predictions " if self.by_predictions else ""
        if self.agreement is None:
            return "predictions are judged at the end" if of else "the draws have not moved yet"
        return (
            f"{of}{'mixed so far' if self.agreement.mixed else 'not mixed yet'}: {self.agreement}"
        )

    def facts(self) -> str:
        """Return the progress: draws, chains, steps and time left."""
        stopped = ""
        if self.state == "stopped":
            stopped = f"; no process is working on it; {self.remedy.rstrip('.')}"
        if not self.wanted:
            return f"the run has no plan yet{stopped}" if stopped else "the plan is being made"
        attempt = f"attempt {self.attempt + 1}, " if self.attempt else ""
        going_on = self.state == "running" and self.left is not None
        left = f", about {in_seconds(self.left or 0.0)} left" if going_on else stopped
        return (
            f"{attempt}{self.count:,} of {self.wanted:,} draws of {self.num_chains} chains, step {self.step:,} of "
            f"{self.steps:,}{left}"
        )


# -- live page -----------------------------------------------------------------------------


MAX_LIVE_TRACES, MAX_TRACE_DOTS = 6, 300
REFRESH_SECONDS = 3  # seconds after which a page reloads itself


def as_lines(live: Live) -> str:
    """Return the progress for a terminal, without control characters in names."""
    lines = [live.facts(), live.word()]
    rows = [[shorten(name, 40), f"{m:.4g}", f"{s:.3g}"] for name, m, s in live.rows()]
    if rows:
        lines += ["", *in_columns([["", "mean", "sd"], *rows])]
        lines += [note for note in [_left_out(live, len(rows))] if note]
    return plain("\n".join(lines))


def _left_out(live: Live, shown: int) -> str:
    """Return a note that says which parameters are shown, unless all are."""
    if shown == live.width:
        return ""
    of = f"{len(live.names):,} evenly spaced of {live.width:,}" if len(live.names) < live.width else f"{live.width:,}"  # fmt: skip
    return f"the {shown} parameters that agree least, of {of}"


def as_page(live: Live, name: str) -> str:
    """Return a page without scripts that reloads itself until the run is finished."""
    rows = [(shorten(name, 60), f"{m:.4g}", f"{s:.3g}") for name, m, s in live.rows()]
    past = list(live.history())
    over = "predictions" if live.by_predictions else "the parameters below"
    figures = [
        _figure("R-hat, the worst", [[(c, a.r_hat) for c, a in past], [(c, a.limit) for c, a in past]], f"by draws per chain; for {over}; the second line is the limit"),
        _figure("ESS, the least", [[(c, a.ess) for c, a in past]], f"by draws per chain; for {over}"),
    ]  # fmt: skip
    every = max(1, live.draws.shape[1] // MAX_TRACE_DOTS)
    for i in live.worst[:MAX_LIVE_TRACES] if live.draws.shape[1] else []:
        chains = [list(enumerate(chain[::every, i])) for chain in live.draws[:6]]
        apart = every * live.every
        figures.append(_figure(shorten(live.names[i], 40), chains, f"every {ordinal(apart)}draw"))  # fmt: skip
    note = _left_out(live, len(rows)) if rows else ""
    body = (
        _box(live.state, live.word(), live.facts())
        + (plain_table(("", "mean", "sd"), rows) if rows else "")
        + (f'<p class="note">{safe(note)}</p>\n' if note else "")
        + "\n".join(figures)
    )
    return _page(body, name, refresh=not live.finished)


def as_error_page(sentence: str, name: str) -> str:
    """Return a page that shows an error and reloads itself.

    The run may continue, or start again.
    """
    return _page(_box("not readable", sentence), name, refresh=True)


def _box(word: str, sentence: str, facts: str = "") -> str:
    note = f'<p class="note">{safe(facts)}</p>' if facts else ""
    return (
        f'<section class="banner unknown" id="verdict"><p class="word">{safe(word)}</p>'
        f'<p class="only">{safe(sentence)}</p>{note}</section>\n'
    )


def _page(body: str, name: str, *, refresh: bool) -> str:
    page = PAGE.substitute(title=safe(name), content=body, footer=f"Run <code>{safe(name)}</code>.")
    again = f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">' if refresh else ""
    return page.replace("<head>", f"<head>{again}", 1)


def _figure(title: str, lines: Sequence[Sequence[tuple[float, float]]], below: str) -> str:
    """Draw lines in one frame, as SVG that contains only numbers."""
    points = np.array([p for line in lines for p in line if np.isfinite(p[1])], np.float64)
    if len(points) < 2:
        return ""
    low, high = points.min(0), points.max(0)
    span = np.where(high > low, high - low, 1.0)
    drawn = []
    for k, line in enumerate(lines):
        at = [(40 + 540 * (x - low[0]) / span[0], 130 - 120 * (y - low[1]) / span[1]) for x, y in line if np.isfinite(y)]  # fmt: skip
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="var(--chain-{k % 6})" stroke-width="1"/>')  # fmt: skip
    return (
        f'<figure><figcaption>{safe(title)}: {low[1]:.4g} to {high[1]:.4g} <span class="note">({safe(below)})</span></figcaption>'
        f'<svg viewBox="0 0 600 140" role="img" aria-label="{safe(title)}" style="width:100%;max-width:600px">{"".join(drawn)}</svg></figure>'
    )


# -- live read -----------------------------------------------------------------------------


MAX_LIVE_DRAWS = 4000  # draws per chain that are used
MAX_READ_PARAMETERS = 256  # parameters that are used
MAX_READ_NUMBERS = 2**21  # numbers of all chains that are used
MAX_REREADS = 3  # attempts to read a directory while its run writes

LiveSeen = dict[
    tuple[str, str], tuple[int, dict[str, np.ndarray]]
]  # by run and chunk: the stride of the used draws, and these draws


def read_live(run: str | Path) -> Live:
    """Return a run's draws so far. Raise RunError unless the directory is an intact run."""
    return Reader(run).read()


class Reader:
    """Reader that reads a run repeatedly, and keeps the used draws of the chunks it has read."""

    def __init__(self, run: str | Path) -> None:
        self.run = run
        self._seen: LiveSeen = {}

    def read(self) -> Live:
        """Return the present state. Raise RunError unless the directory is an intact run."""
        for _ in range(MAX_REREADS):
            try:
                return self._read()
            except RunError:
                time.sleep(0.2)  # the run may have written between two reads
        return self._read()

    def _read(self) -> Live:
        directory = RunDirectory(self.run)
        asked = directory.begun()
        going_on = directory.in_use()
        if directory.finished():
            with reading(self.run):
                return _finished(directory)
        with reading(self.run):
            directory.attempt = len(asked.get("again") or [])
            plan = plan_of(directory) if (directory.path / "setup.npz").exists() else None
            found = directory.read_checkpoint()
            live = Live(
                state="running" if going_on else "stopped", attempt=directory.attempt,
                remedy=at_the_shell(directory.remedy(), self.run),
            )  # fmt: skip
            if found is not None:
                by_predictions = plan is not None and plan.setup.predictions
                live = self._with_draws(replace(live, by_predictions=by_predictions), directory, asked, *found)  # fmt: skip
        if plan is not None:
            wanted = max(plan.setup.num_draws, live.count)
            steps = max(live.step, plan.setup.steps(wanted))
            live = replace(live, wanted=wanted, steps=steps)
        now = time.time()
        began, last = (_changed(directory.path / name) for name in ("setup.npz", "checkpoint.npz"))
        return replace(live, age=now - began, seen=max(0.0, now - last))

    def _with_draws(
        self, live: Live, directory: RunDirectory, asked: dict[str, Any], head: dict[str, Any],
        arrays: dict[str, np.ndarray],
    ) -> Live:  # fmt: skip
        carry = [arrays[f"carry{i}"] for i in range(sum(name.startswith("carry") for name in arrays))]  # fmt: skip
        step = next((int(leaf) for leaf in carry if leaf.shape == ()), 0)
        pending = {k[len("pending_") :]: v for k, v in arrays.items() if k.startswith("pending_")}
        chunks = [(int(first), int(end)) for first, end in head["chunks"]]
        if not pending:
            return replace(live, step=step)
        flushed = chunks[-1][1] if chunks else 0
        count = flushed + len(pending["step_size"])
        kept = asked.get("keep") or {}
        if kept.get("kind") == MOMENTS:
            moments, names = _moments(carry, kept, count), _element_names(kept)
            return replace(live, step=step, count=count, moments=moments, names=names, width=len(names))  # fmt: skip
        if (
            int(head.get("every", 1)) > 1
        ):  # few positions are kept, and predictions are judged, so positions are not shown
            pending.pop("z", None)
        look = _Selection.at(asked, pending, count)
        before, self._seen = self._seen, {}
        parts = [self._chunk(directory, first, end, look, before) for first, end in chunks]
        parts.append(look.of(pending, flushed))
        rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if (rows["temperature"] > 0).any():  # draws of steps at temperature 0 explore
            rows = {name: values[rows["temperature"] > 0] for name, values in rows.items()}
        values = np.moveaxis(rows["shown"], 0, 1)
        weights = np.broadcast_to(rows["step_size"], values.shape[:2]).astype(np.float64)
        predicted = np.moveaxis(rows["predicted"], 0, 1) if "predicted" in rows else None
        values, names = _reported(asked, values, look.names)
        return replace(
            live, step=step, count=count, every=look.every, predicted=predicted, weights=weights,
            **_some(np.asarray(values, np.float64), names, max(look.width, len(names))),
        )  # fmt: skip

    def _chunk(
        self, directory: RunDirectory, first: int, end: int, look: _Selection, before: LiveSeen
    ) -> dict[str, np.ndarray]:
        """Return the used draws of a chunk, from memory or from its file."""
        key = (directory.id, f"{directory.attempt}-{first}-{end}-{len(look.source)}")
        every, rows = before.get(key, (0, {}))
        if not every or look.every % every:
            rows = look.of(directory.read_chunk(first, end), first)
        elif every < look.every:
            places = np.arange(-first % every, end - first, every) + first
            rows = {name: values[places % look.every == 0] for name, values in rows.items()}
        self._seen[key] = look.every, rows
        return rows


@dataclass(frozen=True)
class _Selection:
    """Selection of the draws of a run, and of their numbers."""

    source: tuple[str, ...]  # the arrays that hold the shown values
    columns: Int[np.ndarray, " m"]
    names: tuple[str, ...]
    width: int
    every: int

    @classmethod
    def at(cls, asked: dict[str, Any], rows: dict[str, np.ndarray], count: int) -> _Selection:
        """Choose the selection for `count` draws like these rows."""
        kept = asked.get("keep") or {}
        source = tuple(sorted((n for n in rows if n.startswith("value")), key=lambda n: int(n[5:])))
        names = _element_names(kept) if source else ()
        source = source or (("z",) if "z" in rows else ())
        width = sum(math.prod(rows[name].shape[2:]) for name in source)
        whole = asked.get("kind") == "formula"  # the reported values depend on all coordinates
        columns = np.arange(width) if whole else _evenly(width)
        names = tuple(names[i] if names else f"z[{i}]" for i in columns)
        chains = max([rows[name].shape[1] for name in (*source, "predicted") if name in rows], default=1)  # fmt: skip
        wide = max(len(columns), math.prod(rows["predicted"].shape[2:]) if "predicted" in rows else 1)  # fmt: skip
        over = max(count / MAX_LIVE_DRAWS, count * chains * wide / MAX_READ_NUMBERS, 1.0)
        return cls(source, columns, names, width, 2 ** math.ceil(math.log2(over)))

    def of(self, rows: dict[str, np.ndarray], first: int) -> dict[str, np.ndarray]:
        """Select from rows [draw, chain, ...] that begin with draw number `first`."""
        at = slice(-first % self.every, None, self.every)
        found = {name: rows[name][at] for name in ("step_size", "temperature")}
        if "predicted" in rows:
            found["predicted"] = rows["predicted"][at]
        parts = [rows[name][at] for name in self.source]
        flat = [part.reshape(*part.shape[:2], math.prod(part.shape[2:])) for part in parts]
        empty = np.zeros((len(found["step_size"]), _chains(rows), 0), np.float32)
        together = flat[0] if len(flat) == 1 else np.concatenate([empty, *flat], axis=2)
        return found | {"shown": together[..., self.columns]}


def _chains(rows: dict[str, np.ndarray]) -> int:
    return max((values.shape[1] for values in rows.values() if values.ndim > 1), default=1)


def _evenly(width: int) -> Int[np.ndarray, " m"]:
    """Return all of `width` indices, or MAX_READ_PARAMETERS of them, evenly spaced."""
    return np.unique(np.linspace(0, width - 1, min(width, MAX_READ_PARAMETERS)).round().astype(int))


def _some(values: np.ndarray, names: tuple[str, ...], width: int) -> dict[str, Any]:
    """Return `draws`, `names` and `width` of a Live, for the parameters that are used."""
    at = _evenly(len(names))
    return {"draws": values[..., at], "names": tuple(names[i] for i in at), "width": width}


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return time.time()


def _element_names(kept: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the values of `keep`, or of the parameters whose moments are kept."""
    names, shapes, dtypes = zip(*kept["leaves"], strict=True)
    layout = Layout(jax.tree.structure([0] * len(names)), tuple(map(tuple, shapes)), dtypes, names)
    return tuple(layout.element_names())


def _moments(carry: list[np.ndarray], kept: dict[str, Any], count: int) -> Moments:
    """Return the moments from the last leaves of a checkpoint's carry."""
    n, bins = len(kept["leaves"]), None
    if sum(math.prod(shape) for _, shape, _ in kept["leaves"]) <= MAX_HISTOGRAMS:
        carry, bins = carry[:-3], Bins._make(carry[-3:])
    leaves = carry[-(4 * n + 5) :]
    trees = [leaves[i * n : (i + 1) * n] for i in range(4)]
    return moments_of(BatchMoments._make([*trees, *leaves[4 * n :], bins]), count)


def _finished(directory: RunDirectory) -> Live:
    """Return the selected draws of a finished run."""
    from ...results.storage import load

    draws = load(directory.path)
    step = 0 if not draws.step.size else int(draws.step[-1]) + 1
    live = Live(
        state="finished", verdict=str(draws.verdict), count=draws.num_draws, wanted=draws.num_draws,
        step=step, steps=step,
    )  # fmt: skip
    if draws.moments is not None:
        count = draws.moments.num_draws
        return replace(live, moments=draws.moments, names=draws.names, width=len(draws.names), count=count, wanted=count)  # fmt: skip
    if not draws.healthy.size:
        return live
    values = draws.flat()[0]
    over = max(draws.num_draws / MAX_LIVE_DRAWS, values.shape[1] * len(values) * min(values.shape[2], MAX_READ_PARAMETERS) / MAX_READ_NUMBERS, 1.0)  # fmt: skip
    every = 2 ** math.ceil(math.log2(over))
    return replace(
        live, every=every, weights=draws.weights[:, ::every],
        **_some(np.asarray(values[:, ::every], np.float64), draws.names, len(draws.names)),
    )  # fmt: skip


def _reported(
    asked: dict[str, Any], z: Float[np.ndarray, "chain draw d"], names: tuple[str, ...]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the reported values of a formula run's draws; for other runs, the draws unchanged."""
    if asked.get("kind") != "formula" or not z.size:
        return z, names
    function, names = _reporter(json.dumps(asked["model"]))
    flat = z.reshape(-1, z.shape[-1])
    room = np.concatenate([flat, np.zeros((2 ** (len(flat) - 1).bit_length() - len(flat), flat.shape[1]), flat.dtype)])  # fmt: skip
    return np.asarray(function(room))[: len(flat)].reshape(*z.shape[:2], -1), names


@lru_cache(maxsize=4)
def _reporter(spec: str) -> tuple[Any, tuple[str, ...]]:
    """Return a compiled function that reports free coordinates of a formula, and the names."""
    model = FormulaModel.from_spec(json.loads(spec))
    posterior = model.posterior
    layout = Layout.of(posterior.unconstrain(posterior.init))

    def one(q: Any) -> Any:
        position = posterior.constrain(layout.unravel(q))
        out = position if posterior.output is None else posterior.output(position)
        return jax.flatten_util.ravel_pytree(out)[0]

    return jax.jit(jax.vmap(one)), tuple(posterior.names or model.names)
