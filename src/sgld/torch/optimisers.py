"""SGLD, pSGLD and SGHMC on PyTorch parameters: the steps of sgld.SGLD, sgld.RMSprop, sgld.SGHMC.

In the notation of the rest of the package, with U = grad(loss) + (lambda / N) theta, where loss is
the mean negative log likelihood of the batch, N = num_data and lambda = prior_precision:

    grad log p(theta | data) = -N U

SGD's weight_decay is lambda / N, and its learning rate h N: at T = 0 SGLD is torch.optim.SGD.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..errors import UsageError
from .langevin import Langevin, by_name, gradient_of_the_mean, position, require, write

Moving = list[tuple[dict[str, Any], torch.Tensor]]


class SGLD(Langevin):
    """Stochastic gradient Langevin dynamics (Welling & Teh 2011, eq. 4, with h = eps/2); as SGD.

        theta' = theta - h N U + sqrt(2 h T) xi

    Args:
      params: tensors, (name, tensor) pairs, or dicts with "params" and numbers of their own.
      step_size: h, of the full-data log posterior: a learning rate of the mean loss over
        num_data. It is `param_groups[i]["lr"]`, which torch's schedulers scale.
      num_data: N, rows in all the data.
      temperature: T; 1 is the posterior, 0 none of the noise, between them a cold posterior.
      prior_precision: lambda of the prior N(0, 1 / lambda) of each weight; 0 is flat.
      seed: of the optimiser's own generator; two chains need two seeds.
      check_loss: refuse, at the first step, a loss that looks like a sum over the batch.

    Raises: UsageError for a number out of range, a parameter given twice or not floating-point.

    Example:
      >>> import torch, sgld.torch
      >>> w = torch.nn.Parameter(torch.tensor([2.0]))
      >>> optimizer = sgld.torch.SGLD([w], step_size=0.01, num_data=10, temperature=0.0)
      >>> (0.5 * w**2).mean().backward()
      >>> optimizer.step()
      >>> w.data  # 2 - .01 * 10 * 2
      tensor([1.8000])
    """

    @by_name
    def __init__(
        self, params: Any, *, step_size: float, num_data: int, temperature: float = 1.0,
        prior_precision: float = 0.0, seed: int = 0, check_loss: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            params, {}, step_size=step_size, num_data=num_data, temperature=temperature,
            prior_precision=prior_precision, seed=seed, check_loss=check_loss,
        )  # fmt: skip

    def _check(self, group: dict[str, Any]) -> None:
        pass  # no numbers of its own

    def _advance(self, moving: Moving) -> None:
        for group, p in moving:
            h, T, theta = float(group["lr"]), float(group["temperature"]), position(p)
            U = gradient_of_the_mean(p, theta, group)
            if self._meter:
                self._meter.see(p, U, group)
            theta.add_(U, alpha=-h * group["num_data"])
            if T:
                theta.add_(self._noise(p).to(theta.dtype), alpha=math.sqrt(2 * h * T))
            write(p, theta)


class PSGLD(Langevin):
    """SGLD in the metric of RMSprop (Li, Chen, Carlson & Carin 2016, eq. 8-9); as RMSprop.

        v = a v + (1 - a) U^2,     D = diag 1 / (epsilon + sqrt(v / (1 - a^count)))
        theta' = theta - h D N U + sqrt(2 h T) D^{1/2} xi

    The contract is that of sgld.RMSprop: v is corrected for its start at 0, a coordinate without
    any gradient yet takes the mean of the others, there is no Gamma. While D adapts the law is
    off by the missing Gamma; after `freeze` (or freeze_after steps) D is constant.

    Args:
      params, step_size, num_data, temperature, prior_precision, seed, check_loss: as in SGLD.
      decay: a, the share of v that a step keeps.
      epsilon: added to sqrt v, in units of the mean gradient U.
      freeze_after: steps after which D stays as it is; None: it goes on adapting.

    Example:
      >>> import torch, sgld.torch
      >>> w = torch.nn.Parameter(torch.tensor([2.0]))
      >>> optimizer = sgld.torch.PSGLD([w], step_size=0.01, num_data=10, temperature=0.0)
      >>> (0.5 * w**2).mean().backward()
      >>> optimizer.step()
      >>> w.data  # 2 - .01 * 10 * 2 / (1e-5 + 2)
      tensor([1.9000])
    """

    @by_name
    def __init__(
        self, params: Any, *, step_size: float, num_data: int, temperature: float = 1.0,
        prior_precision: float = 0.0, decay: float = 0.99, epsilon: float = 1e-5,
        freeze_after: int | None = None, seed: int = 0, check_loss: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            params, {"decay": decay, "epsilon": epsilon, "freeze_after": freeze_after},
            step_size=step_size, num_data=num_data, temperature=temperature,
            prior_precision=prior_precision, seed=seed, check_loss=check_loss,
        )  # fmt: skip

    def freeze(self) -> None:
        """Stop adapting: from the next step on D is constant, at what it is now.

        Example:
          >>> import torch, sgld.torch
          >>> w = torch.nn.Parameter(torch.tensor([2.0]))
          >>> optimizer = sgld.torch.PSGLD([w], step_size=0.01, num_data=10)
          >>> optimizer.freeze()
          >>> optimizer.param_groups[0]["freeze_after"]
          0
        """
        for group in self.param_groups:
            group["freeze_after"] = 0

    def _check(self, group: dict[str, Any]) -> None:
        decay, last = group["decay"], group["freeze_after"]
        require("PSGLD's decay", decay, zero=True)
        if decay >= 1:
            raise UsageError(f"PSGLD's decay must lie in [0, 1). Got {decay}.")
        require("PSGLD's epsilon", group["epsilon"])
        if last is not None:
            require("PSGLD's freeze_after", last, zero=True)

    def _advance(self, moving: Moving) -> None:
        gradients, corrected = [], []
        for group, p in moving:
            theta = position(p)
            U = gradient_of_the_mean(p, theta, group)
            gradients.append((theta, U))
            corrected.append(self._corrected(group, p, U))
        mean = _mean_of_seen(self._all_corrected(moving, corrected))
        for (group, p), (theta, U), v in zip(moving, gradients, corrected, strict=True):
            h, T = float(group["lr"]), float(group["temperature"])
            v = torch.where(v > 0, v, mean.to(v.device, v.dtype))
            D = 1 / (group["epsilon"] + v.sqrt())
            if self._meter:
                self._meter.see(p, U, group, metric=D)
            if T:
                xi = self._noise(p).to(theta.dtype)
                theta.add_(D.sqrt().mul_(xi), alpha=math.sqrt(2 * h * T))
            theta.add_(D.mul_(U), alpha=-h * group["num_data"])
            write(p, theta)

    def _corrected(self, group: dict[str, Any], p: torch.Tensor, U: Any) -> torch.Tensor:
        """Return v / (1 - a^count), updated by this step's gradient U if there is one and D adapts."""
        state, a = self.state[p], float(group["decay"])
        if not state:
            state["v"], state["count"] = torch.zeros_like(position(p)), 0
        last = group["freeze_after"]
        if U is not None and (last is None or state["count"] < last):
            state["v"].mul_(a).addcmul_(U, U, value=1 - a)
            state["count"] += 1
        share = -math.expm1(state["count"] * math.log(max(a, 1e-30)))
        return state["v"] / max(share, 1e-30)

    def _all_corrected(self, moving: Moving, corrected: list[Any]) -> list[torch.Tensor]:
        """Add the parameters that have no gradient in this step, since the mean is over all."""
        moved = {id(p) for _, p in moving}
        resting = [
            self._corrected(group, p, None)
            for group in self.param_groups
            for p in group["params"]
            if p in self.state and id(p) not in moved
        ]
        return corrected + resting


class SGHMC(Langevin):
    """SGD with momentum and noise (Chen, Fox & Guestrin 2014, eq. 15, eta = h).

        v' = (1 - alpha) v - h N U + sqrt(2 (alpha - beta) h T) xi,     theta' = theta + v'

    At T = 0 and constant h it is torch.optim.SGD with momentum 1 - alpha, v being -lr times its
    buffer.

    Args:
      params, step_size, num_data, temperature, prior_precision, seed, check_loss: as in SGLD.
      friction: alpha, the share of the velocity that a step takes away, in (0, 1).
      noise_estimate: beta, h / 2 times the variance of the gradient estimate, in [0, friction).

    Example:
      >>> import torch, sgld.torch
      >>> w = torch.nn.Parameter(torch.tensor([2.0]))
      >>> optimizer = sgld.torch.SGHMC([w], step_size=0.01, num_data=10, temperature=0.0)
      >>> (0.5 * w**2).mean().backward()
      >>> optimizer.step()
      >>> w.data
      tensor([1.8000])
    """

    @by_name
    def __init__(
        self, params: Any, *, step_size: float, num_data: int, temperature: float = 1.0,
        prior_precision: float = 0.0, friction: float = 0.1, noise_estimate: float = 0.0,
        seed: int = 0, check_loss: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            params, {"friction": friction, "noise_estimate": noise_estimate},
            step_size=step_size, num_data=num_data, temperature=temperature,
            prior_precision=prior_precision, seed=seed, check_loss=check_loss,
        )  # fmt: skip

    def _check(self, group: dict[str, Any]) -> None:
        alpha, beta = group["friction"], group["noise_estimate"]
        require("SGHMC's friction", alpha)
        require("SGHMC's noise_estimate", beta, zero=True)
        if not alpha < 1:
            raise UsageError(f"SGHMC's friction must be above 0 and below 1. Got {alpha}.")
        if not beta < alpha:
            raise UsageError(
                f"SGHMC's noise_estimate must be below its friction {alpha}. Got {beta}."
            )

    def _advance(self, moving: Moving) -> None:
        for group, p in moving:
            h, T, theta = float(group["lr"]), float(group["temperature"]), position(p)
            alpha, beta = group["friction"], group["noise_estimate"]
            U = gradient_of_the_mean(p, theta, group)
            if self._meter:
                self._meter.see(p, U, group, friction=alpha, known=beta)
            state = self.state[p]
            if not state:
                state["velocity"] = torch.zeros_like(theta)
            v = state["velocity"].mul_(1 - alpha).add_(U, alpha=-h * group["num_data"])
            if T:
                sd = math.sqrt(2 * (alpha - beta) * h * T)
                v.add_(self._noise(p).to(theta.dtype), alpha=sd)
            theta.add_(v)
            write(p, theta)


def _mean_of_seen(values: list[torch.Tensor]) -> torch.Tensor:
    """Return the mean of the positive entries of all tensors, or 1 without any."""
    device, wide = values[0].device, torch.float32
    if any(v.dtype == torch.float64 for v in values):
        wide = torch.float64
    total = torch.stack([v.sum().to(device, wide) for v in values]).sum()
    seen = torch.stack([(v > 0).sum().to(device, wide) for v in values]).sum()
    mean = total / seen.clamp(min=1)
    return torch.where(mean > 0, mean, torch.ones_like(mean))
