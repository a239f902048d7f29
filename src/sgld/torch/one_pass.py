"""What moved the weights in a pass over the data: noise put in, noise of the gradients, temperature.

A step moves a weight by the noise that it draws, of variance 2 (alpha - beta) h T D, and by that of
its gradient, of variance (h N D)^2 Var(U); at temperature 1 the two together are to be 2 alpha h D
(alpha = 1 and beta = 0 but for SGHMC, D = 1 but for PSGLD). So

    temperature = average over weights of (both variances) / (2 alpha h D)

(Welling & Teh 2011, sec. 4.2, whose threshold alpha is the gradients' part.) Var(U) is half the mean
square of the differences of gradients that follow one another, which needs neither a mean over all
rows nor weights that rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["Meter", "line"]


@dataclass
class Meter:
    """Sums over the steps and weights of a pass: both variances, and the temperature."""

    sums: dict[torch.device, torch.Tensor] = field(default_factory=dict)  # there until read
    count: int = 0
    previous: dict[torch.Tensor, torch.Tensor] = field(default_factory=dict, repr=False)

    def see(
        self, p: torch.Tensor, U: torch.Tensor, group: dict[str, Any], *,
        metric: torch.Tensor | None = None, friction: float = 1.0, known: float = 0.0,
    ) -> None:  # fmt: skip
        """One parameter's step along the mean gradient U, in the metric D.

        Args:
          metric: D, elementwise; None: 1.
          friction: alpha, the share of the velocity that a step takes away.
          known: beta, the noise of the gradients that the optimiser takes off.
        """
        before, self.previous[p] = self.previous.get(p), U.clone()
        h, T, N = (float(group[name]) for name in ("lr", "temperature", "num_data"))
        if before is None or not h:
            return
        D = torch.ones_like(U) if metric is None else metric
        injected = 2 * (friction - known) * h * T * D
        gradient = (U - before).square_().mul_(0.5 * (h * N) ** 2).mul_(D).mul_(D)
        share = (injected + gradient) / (2 * friction * h * D)
        found = torch.stack([x.sum(dtype=torch.float32) for x in (injected, gradient, share)])
        sums = self.sums.get(p.device)
        self.sums[p.device] = found if sums is None else sums + found
        self.count += p.numel()


def line(number: int, meter: Meter, loss: float | None) -> str:
    """The line of a pass.

    Example:
      >>> sums = {torch.device("cpu"): torch.tensor([0.08, 0.02, 10.0])}
      >>> line(3, Meter(sums, count=8), 0.5)
      "pass 3: loss 0.5; a step's noise in a weight: injected 0.1, gradient 0.05; temperature 1.25"
    """
    said = "" if loss is None else f" loss {loss:.4g};"
    if not meter.count:
        return f"pass {number}:{said} the noise of the gradients takes two steps to be seen"
    totals = torch.stack([found.to("cpu", torch.float64) for found in meter.sums.values()]).sum(0)
    injected, gradient, temperature = (totals / meter.count).tolist()
    return (
        f"pass {number}:{said} a step's noise in a weight: injected {math.sqrt(injected):.3g}, "
        f"gradient {math.sqrt(gradient):.3g}; temperature {temperature:.3g}"
    )
