"""Where `sgld.sample` spends its time, part by part, and how much of that is compiling."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax

from sgld.approximation import mode
from sgld.inference import execute, judge, loop, sample, sink
from sgld.inference.tuning import gaussian, survey

PARTS = (
    (sample, "prepare", "checks, data sent"),
    (mode, "newton_mode", "mode"),
    (mode, "laplace_at", "curvature"),
    (survey, "at_the_mean", "nu and the mean"),
    (survey, "other_modes", "other modes"),
    (survey, "check_proper", "properness"),
    (gaussian, "row_noise", "noise of a row"),
    (gaussian, "prepared", "centre of control variates"),
    (gaussian, "measure", "noise of the estimator"),
    (gaussian, "priced_choice", "choice of the batch"),
    (execute, "make_plan", "rest of the plan"),
    (execute, "_starts", "starts"),
    (loop, "run", "sampling"),
    (sink, "noise_level", "phase"),
    (execute, "draws_to_go_on_to", "whether more draws are needed"),
    (judge, "assess", "verdict"),
    (execute, "revised", "another attempt's plan"),
)
COMPILING = (
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


class Stopwatch:
    """Seconds of each part of `sgld.sample`, those of parts inside it left out, and of compiling."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.compiling: dict[str, float] = defaultdict(float)
        self._open: list[tuple[str, float]] = []
        for module, name, title in PARTS:
            setattr(module, name, self._timed(getattr(module, name), title))
        jax.monitoring.register_event_duration_secs_listener(self._compiled)

    def _timed(self, function: Callable, title: str) -> Callable:
        def timed(*args: Any, **named: Any) -> Any:
            with_parts = self._enter(title)
            try:
                return jax.block_until_ready(function(*args, **named))
            finally:
                self._leave(with_parts)

        return timed

    def _enter(self, title: str) -> float:
        began = time.perf_counter()
        self._open.append((title, 0.0))
        return began

    def _leave(self, began: float) -> None:
        took = time.perf_counter() - began
        title, inside = self._open.pop()
        self.seconds[title] += took - inside
        if self._open:
            outer, before = self._open[-1]
            self._open[-1] = (outer, before + took)

    def _compiled(self, event: str, duration: float, **_: Any) -> None:
        if event in COMPILING:
            self.compiling[self._open[-1][0] if self._open else "other"] += duration

    def of(self, call: Callable[[], Any]) -> tuple[Any, dict[str, float], dict[str, float]]:
        """The call's result, seconds by part with their "total", and seconds of compiling."""
        self.seconds.clear()
        self.compiling.clear()
        began = time.perf_counter()
        result = call()
        total = time.perf_counter() - began
        parts = dict(self.seconds)
        parts["other"] = total - sum(parts.values())
        return result, {**parts, "total": total}, dict(self.compiling)
