"""A run while it goes on: what can be said of it before its verdict, by the verdict's own rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..diagnostics.function_space.predictions import CLASSES, MEANS
from ..diagnostics.function_space.temperature import Layers
from ..diagnostics.function_space.verdict import MAX_R_HAT, MIN_ESS, R_HAT, Seen, mixed
from ..diagnostics.rule import Evidence, least_ess, unmixed
from ..inference.tuning.network_rules import EARLY
from ..results import statistics
from ..results.plan import in_seconds
from ..results.statistics import Moments

__all__ = ["Agreement", "Live", "State"]

State = Literal["running", "stopped", "finished"]

FEWEST = 8  # draws of a chain that say anything
SHOWN = 40  # parameters, the worst where there are more
POINTS = 12  # at which R-hat and ESS are shown


class Agreement(NamedTuple):
    """How well chains agree: R-hat where it is the worst against its limit, the least ESS, and whether that will do."""

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
    """What there is of a run that goes on.

    Attributes:
      draws: [chain, draw, parameter], those looked at: reported ones of formula runs, what was kept,
        or free coordinates.
      weights: of these draws.
      names: of these parameters, of `width` in all.
      count: draws of a chain so far, of which each `every`-th is looked at.
      wanted: draws of a chain that the plan asks for; 0 before there is a plan.
      step: of each chain, at the last checkpoint; of `steps`.
      age: seconds since the plan was made, and `seen` since the last checkpoint.
      state: "running" where a process is at work on it, "stopped" where none is and there is no verdict.
      remedy: of a stopped run: how to go on with it, in the words of the command line.
      verdict: of a finished run, in words.
      by_predictions: whether the verdict will be of predictions, not of parameters.
      predicted: [chain, draw, row, number] at the draws looked at, where they are kept.
      moments: of a run that keeps nothing else.
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
        """Whether the verdict has been given."""
        return self.state == "finished"

    @property
    def num_chains(self) -> int:
        """Of the run."""
        return len(self.draws) if self.moments is None else len(self.moments.chain_mean)

    @property
    def left(self) -> float | None:
        """Seconds until the wanted draws are there, at the rate so far."""
        done = max(self.age - self.seen, 1e-3)
        return None if not self.step else max(0.0, done * (self.steps - self.step) / self.step)

    @cached_property
    def healthy(self) -> Int[np.ndarray, " ok"]:
        """The chains whose numbers are all finite."""
        values = self.draws if self.moments is None else self.moments.chain_mean
        return np.flatnonzero(np.isfinite(values).reshape(len(values), -1).all(axis=1))

    @cached_property
    def totals(self) -> tuple[Float[np.ndarray, " parameter"], Float[np.ndarray, " parameter"]]:
        """Mean and sd of what is looked at."""
        if self.moments is not None:
            return self.moments.mean(self.healthy), np.sqrt(self.moments.var(self.healthy))
        found = statistics.Estimates(self.draws[self.healthy], self.weights[self.healthy])
        return found.mean, found.sd

    @cached_property
    def evidence(self) -> Evidence:
        """What the draws show of each parameter, as the verdict's rule asks it."""
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
        """The parameters to show: all where they are few, else those of the largest R-hat for its limit."""
        if len(self.names) <= SHOWN or not len(self.healthy):
            return np.arange(min(SHOWN, len(self.names)))
        over = np.nan_to_num(self.evidence.r_hat / self.evidence.most_r_hat, nan=-1.0)
        return np.sort(np.argsort(-over, kind="stable")[:SHOWN])

    @cached_property
    def agreement(self) -> Agreement | None:
        """Of all draws so far; None where they are too few, or predictions are judged that are not kept."""
        return self._agreement(self.draws.shape[1])

    def _agreement(self, count: int) -> Agreement | None:
        if not len(self.healthy) or (self.by_predictions and self.predicted is None):
            return None
        looked_at = count if self.moments is None else self.count
        if looked_at < FEWEST:
            return None
        if self.predicted is not None:
            return self._of_predictions(self.predicted[self.healthy, int(EARLY * count) : count])
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
        if predicted.shape[1] < FEWEST or not np.isfinite(predicted).all():
            return None
        total = np.exp(predicted.astype(np.float64)).sum(axis=-1)
        kind = CLASSES if predicted.shape[-1] > 1 and np.allclose(total, 1, atol=1e-3) else MEANS
        alike = np.full(predicted.shape[:2], 1 / np.prod(predicted.shape[:2]))
        found = mixed(Seen(kind, predicted, None, alike, Layers((), ())))
        if not np.isfinite(found.ess):
            return None
        most = found.max_r_hat > MAX_R_HAT and found.r_hat <= R_HAT
        r_hat, limit = (found.max_r_hat, MAX_R_HAT) if most else (found.r_hat, R_HAT)
        return Agreement(r_hat, limit, found.ess, MIN_ESS, not found.reasons)

    def history(self) -> Iterator[tuple[int, Agreement]]:
        """Draws of a chain, and how well they agreed, along the run: of the parameters shown."""
        there = self.draws.shape[1]
        if self.moments is not None or there < FEWEST:
            return
        shown = replace(
            self, draws=self.draws[..., self.worst], names=tuple(self.names[i] for i in self.worst),
        )  # fmt: skip
        for count in sorted(set(np.linspace(FEWEST, there, POINTS).astype(int).tolist())):
            found = shown._agreement(count)
            if found is not None:
                yield count * self.every, found

    def rows(self) -> list[tuple[str, float, float]]:
        """Name, mean and sd of the parameters shown."""
        if not self.count or not len(self.healthy):
            return []
        mean, sd = self.totals
        return [(self.names[i], float(mean[i]), float(sd[i])) for i in self.worst]

    def as_json(self) -> dict[str, Any]:
        """What `sgld summary --json` says of a run without a verdict."""
        rows = {name: {"mean": mean, "sd": sd} for name, mean, sd in self.rows()}
        counts = {"num_chains": self.num_chains, "num_draws": self.count, "num_steps": self.step}
        reasons = ["the run goes on", self.word()]
        return {"verdict": "unknown", "reasons": reasons, **counts, "parameters": rows}

    def word(self) -> str:
        """What can be said before the verdict, and the verdict."""
        if self.finished:
            return f"finished: {self.verdict}"
        lost = self.num_chains - len(self.healthy)
        if self.count and lost:
            return f"{lost} of {self.num_chains} chains became non-finite"
        if self.count < FEWEST:
            return "no draws yet"
        of = "predictions " if self.by_predictions else ""
        if self.agreement is None:
            return "predictions are judged at the end" if of else "the draws do not move yet"
        return (
            f"{of}{'mixed so far' if self.agreement.mixed else 'not mixed yet'}: {self.agreement}"
        )

    def facts(self) -> str:
        """Where it stands."""
        stopped = ""
        if self.state == "stopped":
            stopped = f"; no process is at work on it; {self.remedy.rstrip('.')}"
        if not self.wanted:
            return f"the plan was not made yet{stopped}" if stopped else "the plan is being made"
        attempt = f"attempt {self.attempt + 1}, " if self.attempt else ""
        going_on = self.state == "running" and self.left is not None
        left = f", about {in_seconds(self.left or 0.0)} left" if going_on else stopped
        return (
            f"{attempt}{self.count:,} of {self.wanted:,} draws of {self.num_chains} chains, step {self.step:,} of "
            f"{self.steps:,}{left}"
        )
