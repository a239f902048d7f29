"""Provide the three large networks of nets.py as PyTorch modules with their losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Module(NamedTuple):
    """A module, its loss, the outcomes as the loss takes them, and the predictions from its outputs."""

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    outcomes: torch.dtype
    predicted: Callable[[Tensor], Tensor]


class WithNoise(nn.Module):
    """Return means, each with the log of a noise sd that is a parameter of the module."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.log_sd = net, nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.net(x)
        return torch.cat([mean, (self.log_sd - 1).expand_as(mean)], -1)


def minus_log_likelihood(outputs: Tensor, y: Tensor) -> Tensor:
    """Return that of every row."""
    mean, log_sd = outputs[..., 0], outputs[..., 1]
    return 0.5 * ((y - mean) / log_sd.exp()) ** 2 + log_sd


def _classes(model: nn.Module) -> Module:
    return Module(
        model, nn.functional.cross_entropy, torch.int64, lambda o: torch.log_softmax(o, -1)
    )


def a() -> Module:
    return _classes(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))


def b() -> Module:
    net = nn.Sequential(nn.Linear(10, 50), nn.Tanh(), nn.Linear(50, 1))
    return Module(WithNoise(net), minus_log_likelihood, torch.float32, lambda o: o[..., :1])


def c() -> Module:
    layers: list[Any] = [nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU()]
    return _classes(nn.Sequential(*layers, nn.Linear(200, 10)))


MODULES = {"a": a, "b": b, "c": c}
