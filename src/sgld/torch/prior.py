"""The prior of a module's weights: normal, with learnt scales, Laplace, Student t; a scale per parameter.

    -grad log p     normal  theta / s^2            learnt     (nu + d) theta / (nu s^2 + |theta|^2)
                    laplace sign(theta) / s        student t  (nu + 1) theta / (nu s^2 + theta^2)

|theta|^2 over the d entries of a parameter; of a single entry nothing is learnt. The laws are those of
`sgld.networks.normal_prior`, `laplace_prior` and `student_t_prior`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from ..core.validation import is_number
from ..errors import UsageError

if TYPE_CHECKING:
    from .target import Weights

__all__ = ["Prior", "prior_of"]

PriorKind = Literal["normal", "learnt", "laplace", "student t"]
LEAST = 1e-6  # of a curvature that is gone by


@dataclass(frozen=True)
class Prior:
    """Of flat vectors, [chain, d].

    Attributes:
      scale: s of every entry, [d].
      sizes: entries of every parameter.
      degrees: nu, of "learnt" and "student t".
    """

    kind: PriorKind
    scale: torch.Tensor
    sizes: tuple[int, ...]
    degrees: float = math.inf

    def slope(self, z: torch.Tensor) -> torch.Tensor:
        """-grad log p: the equations above."""
        if self.kind == "laplace":
            return z.sign() / self.scale
        if self.kind == "student t":
            return (self.degrees + 1) * z / (self.degrees * self.scale**2 + z**2)
        return self.precision(z) * z

    def precision(self, z: torch.Tensor) -> torch.Tensor:
        """How narrow it is where the chains are, [chain, d]: its curvature, where it has one to go by."""
        if self.kind == "student t":
            width = self.degrees * self.scale**2
            curvature = (self.degrees + 1) * (width - z**2) / (width + z**2) ** 2
            return torch.where(curvature > LEAST, curvature, self.slope(z) ** 2)
        if self.kind != "learnt":
            return (1 / self.scale**2).expand_as(z)
        parts = []
        for w, s in zip(z.split(self.sizes, -1), self.scale.split(self.sizes), strict=True):
            nu, d = (self.degrees, w.shape[-1]) if w.shape[-1] > 1 else (1.0, 0)
            square = nu * s**2 + (w**2).sum(-1, keepdim=True) * (d > 0)
            parts.append((nu + d) / square)
        return torch.cat(parts, -1)

    def narrowness(self, z: torch.Tensor) -> torch.Tensor:
        """The precision that a metric goes by: no less than at the prior's own scale, however far out in a tail z is.

        A tail is wider the further out chains are, and steps of its own width there take them further still.
        """
        return torch.maximum(self.precision(z), self.scale**-2)

    def as_normal(self) -> Prior:
        """With sds that are learnt at what they are held to be: integrated out, they make a peak at 0."""
        return replace(self, kind="normal") if self.kind == "learnt" else self

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """log p but for a constant, [chain]."""
        if self.kind == "laplace":
            return -(z / self.scale).abs().sum(-1)
        nu = self.degrees
        if self.kind == "student t":
            return -0.5 * (nu + 1) * (z**2 / (nu * self.scale**2)).log1p().sum(-1)
        if self.kind == "normal":
            return -0.5 * (z / self.scale).square().sum(-1)
        found = torch.zeros_like(z[..., 0])
        for w, s in zip(z.split(self.sizes, -1), self.scale.split(self.sizes), strict=True):
            square, d = (w / s[0]).square().sum(-1), w.shape[-1]
            found -= 0.5 * ((nu + d) * (square / nu).log1p() if d > 1 else square)
        return found

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        degrees = self.degrees if math.isfinite(self.degrees) else None
        scales = [float(part[0]) for part in self.scale.split(self.sizes)]
        return {"kind": self.kind, "scales": scales, "sizes": list(self.sizes), "degrees": degrees}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], like: torch.Tensor) -> Prior:
        """The inverse of `to_dict`, in the dtype and on the device of `like`."""
        sizes = tuple(int(size) for size in stored["sizes"])
        parts = [torch.full((n,), s).to(like) for n, s in zip(sizes, stored["scales"], strict=True)]
        degrees = math.inf if stored["degrees"] is None else float(stored["degrees"])
        return cls(stored["kind"], torch.cat(parts), sizes, degrees)


def prior_of(prior: Any, prior_sd: Any, prior_precision: Any, weights: Weights) -> Prior:
    """The one of three that was given.

    Args:
      prior: one of `sgld.networks`.
      prior_sd: a number, or {pattern: sd}.
      prior_precision: a number.
    """
    from ..model.network_priors import (
        LaplacePrior,
        LearntPrior,
        NormalPrior,
        StudentTPrior,
        named_scales,
        normal_prior,
    )

    if sum(given is not None for given in (prior, prior_sd, prior_precision)) != 1:
        raise UsageError(
            "give prior_sd= (the sd of every weight a priori, or {pattern: sd}), or else prior_precision=, or "
            "prior=sgld.networks.normal_prior(...), one of the three."
        )
    if prior_precision is not None:
        if not is_number(prior_precision) or not 0 < prior_precision < math.inf:
            raise UsageError(f"prior_precision must be positive. Got {prior_precision!r}.")
        prior_sd = float(prior_precision) ** -0.5
    if prior is None:
        if not is_number(prior_sd) and not isinstance(prior_sd, Mapping):
            raise UsageError(
                f"prior_sd must be a number, or {{pattern: sd}}. Got {type(prior_sd).__name__}."
            )
        prior = normal_prior(prior_sd)
    kinds: dict[type, PriorKind] = {
        NormalPrior: "normal", LearntPrior: "learnt", LaplacePrior: "laplace", StudentTPrior: "student t",
    }  # fmt: skip
    if type(prior) not in kinds:
        raise UsageError(
            "prior must be one of sgld.networks: normal_prior(...), laplace_prior(...), student_t_prior(...). "
            f"Got {type(prior).__name__}."
        )
    shapes = zip(weights.names, weights.shapes, strict=True)
    named = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes}
    found = named_scales(named, prior.scales, prior.patterns, fan_in=prior.fan_in)
    layers = weights.layers
    scale = torch.cat([
        torch.full((size,), found[name], dtype=weights.dtype, device=weights.device)
        for name, size in zip(layers.names, layers.sizes, strict=True)
    ])  # fmt: skip
    degrees = float(getattr(prior, "degrees", math.inf))
    return Prior(kinds[type(prior)], scale, layers.sizes, degrees)
