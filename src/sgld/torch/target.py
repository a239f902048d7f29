"""The posterior of a module's weights, for several chains at once.

    log p(theta | data) = - sum over rows of loss + log prior(theta)

theta is one flat vector for each chain, [chain, d], of the parameters that require a gradient, in
their order; all else of the module stays as it is. One call of the module under `torch.func.vmap`
serves all chains, and one backward pass; a module that vmap cannot take is called chain by chain.

The prior of a module's weights: normal, with estimated scales, Laplace, Student t; a scale per parameter.

    -grad log p     normal  theta / s^2            learnt     (nu + d) theta / (nu s^2 + |theta|^2)
                    laplace sign(theta) / s        student t  (nu + 1) theta / (nu s^2 + theta^2)

|theta|^2 over the d entries of a parameter; a single entry estimates nothing. The laws are those of
`sgld.networks.normal_prior`, `laplace_prior` and `student_t_prior`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch

from ..approximation.gradient_noise import ROW_GRADIENT_NUMBERS
from ..core.validation import is_number
from ..diagnostics.function_space.predictions import CLASSES, MEANS, Kind
from ..diagnostics.function_space.temperature import Layers
from ..errors import UsageError
from .likelihood import Likelihood, in_half_precision
from .network import padding_rows
from .rows import Batch, Inputs, Rows, mapped

# -- prior ---------------------------------------------------------------------------------


PriorKind = Literal["normal", "learnt", "laplace", "student t"]
MIN_CURVATURE = 1e-6  # of a curvature that is gone by


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
        """Return -grad log p by the equations above."""
        if self.kind == "laplace":
            return z.sign() / self.scale
        if self.kind == "student t":
            return (self.degrees + 1) * z / (self.degrees * self.scale**2 + z**2)
        return self.precision(z) * z

    def precision(self, z: torch.Tensor) -> torch.Tensor:
        """Return the precision at the chains' positions, [chain, d]: the curvature, where the prior has a positive one."""
        if self.kind == "student t":
            width = self.degrees * self.scale**2
            curvature = (self.degrees + 1) * (width - z**2) / (width + z**2) ** 2
            return torch.where(curvature > MIN_CURVATURE, curvature, self.slope(z) ** 2)
        if self.kind != "learnt":
            return (1 / self.scale**2).expand_as(z)
        parts = []
        for w, s in zip(z.split(self.sizes, -1), self.scale.split(self.sizes), strict=True):
            nu, d, square = self.degrees, w.shape[-1], (w**2).sum(-1, keepdim=True)
            parts.append((nu + d) / (nu * s**2 + square) if d > 1 else (s**-2).expand_as(w))
        return torch.cat(parts, -1)

    def narrowness(self, z: torch.Tensor) -> torch.Tensor:
        """Return the precision for a metric: no less than at the prior's scale, however far out in a tail z is.

        A tail is wider the further out chains are, and steps of its own width there take them further still.
        """
        return torch.maximum(self.precision(z), self.scale**-2)

    def as_normal(self) -> Prior:
        """Fix estimated sds at their nominal values: integrated out, they make a peak at 0."""
        return replace(self, kind="normal") if self.kind == "learnt" else self

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return log p up to a constant, [chain]."""
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
        """Return a dict that JSON can hold."""
        degrees = self.degrees if math.isfinite(self.degrees) else None
        scales = [float(part[0]) for part in self.scale.split(self.sizes)]
        return {"kind": self.kind, "scales": scales, "sizes": list(self.sizes), "degrees": degrees}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], like: torch.Tensor) -> Prior:
        """Invert `to_dict`, in the dtype and on the device of `like`."""
        sizes = tuple(int(size) for size in stored["sizes"])
        parts = [torch.full((n,), s).to(like) for n, s in zip(sizes, stored["scales"], strict=True)]
        degrees = math.inf if stored["degrees"] is None else float(stored["degrees"])
        return cls(stored["kind"], torch.cat(parts), sizes, degrees)


def prior_of(prior: Any, prior_sd: Any, prior_precision: Any, weights: Weights) -> Prior:
    """Return the prior from the one of three arguments that was given.

    Args:
      prior: one of `sgld.networks`.
      prior_sd: a number, or {pattern: sd}.
      prior_precision: a number.
      weights: names and shapes of the sampled weights.
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


# -- target --------------------------------------------------------------------------------


MAX_GRADIENT_ERROR = 1e-2  # of gradients, vmapped and not, relative to their size
MAX_PRIOR_SCALES = 1e6  # scales of the prior
LOSS_CHECK_ROWS = 64  # rows that tell one loss from another
DIFFERENCE_SDS = 1e-2  # of a difference of gradients, in sds


@dataclass(frozen=True)
class Weights:
    """The parameters that are sampled, as stretches of a flat vector.

    Attributes:
      names, shapes, dtypes: of each.
      dtype: of the vector: float64 where a parameter is, else float32.
      padding: entries of an embedding's row of padding, [d], and the module's own, which they keep: no
        gradient comes to them, and what is drawn for them is the prior's and is seen by nobody. None without.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    dtypes: tuple[torch.dtype, ...]
    device: torch.device
    padding: tuple[torch.Tensor, torch.Tensor] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, model: Any) -> Weights:
        """Return those of a module that require a gradient; UsageError if it is no module or has none."""
        if not isinstance(model, torch.nn.Module):
            raise UsageError(f"model must be a torch.nn.Module. Got {type(model).__name__}.")
        found = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not found:
            raise UsageError(
                "the model has no parameter that requires a gradient; set requires_grad of those to sample."
            )
        devices = {p.device for p in found.values()}
        if len(devices) > 1:
            raise UsageError(
                f"all parameters must be on one device. Got {', '.join(map(str, devices))}."
            )
        for name, p in found.items():
            if not p.is_floating_point():
                raise UsageError(f"parameters must be real numbers. Got {p.dtype} for {name!r}.")
            if not bool(torch.isfinite(p).all()):
                raise UsageError(f"weights must be finite. Got nan or inf in {name!r}.")
        parts = found.values()
        own = cls(
            tuple(found),
            tuple(p.shape for p in parts),
            tuple(p.dtype for p in parts),
            devices.pop(),
        )
        rows = padding_rows(model)
        if not rows.keys() & found.keys():
            return own
        still = {name: torch.zeros_like(p, dtype=torch.bool) for name, p in found.items()}
        for name in rows.keys() & found.keys():
            still[name][rows[name]] = True
        mask = torch.cat([part.reshape(-1) for part in still.values()])
        return replace(own, padding=(mask, own.flat(model)))

    @property
    def dtype(self) -> torch.dtype:
        """Of the flat vector."""
        return torch.float64 if torch.float64 in self.dtypes else torch.float32

    @property
    def narrow(self) -> tuple[str, ...]:
        """Names of those that are held in fewer bits than the vector's."""
        return tuple(
            name
            for name, dtype in zip(self.names, self.dtypes, strict=True)
            if torch.finfo(dtype).bits < 32
        )

    @property
    def layers(self) -> Layers:
        """Names and sizes; a parameter without entries is left out."""
        sizes = [math.prod(shape) for shape in self.shapes]
        kept = [(name, size) for name, size in zip(self.names, sizes, strict=True) if size]
        return Layers(tuple(name for name, _ in kept), tuple(size for _, size in kept))

    def flat(self, model: torch.nn.Module) -> torch.Tensor:
        """Return the module's own parameters, [d]."""
        held = dict(model.named_parameters())
        return torch.cat([held[name].detach().reshape(-1).to(self.dtype) for name in self.names])

    def described(self) -> list[list[object]]:
        """Name, shape and dtype of each, JSON-ready."""
        each = zip(self.names, self.shapes, self.dtypes, strict=True)
        return [[name, list(shape), str(dtype)] for name, shape, dtype in each]

    def starting(self, start: torch.Tensor) -> Weights:
        """Set rows of padding to the values of [d]: those of a resumed run, whatever the module has now."""
        return self if self.padding is None else replace(self, padding=(self.padding[0], start))

    def placed(self, z: torch.Tensor) -> torch.Tensor:
        """Return [..., d] with the module's rows of padding."""
        return z if self.padding is None else torch.where(self.padding[0], self.padding[1], z)

    def named(self, z: torch.Tensor) -> dict[str, torch.Tensor]:
        """Split [..., d] into tensors [..., *shape] by name, in the dtypes of the module."""
        parts = self.placed(z).split([math.prod(shape) for shape in self.shapes], -1)
        return {
            name: part.reshape(*z.shape[:-1], *shape).to(dtype)
            for name, part, shape, dtype in zip(
                self.names, parts, self.shapes, self.dtypes, strict=True
            )
        }


class Target:
    """Gradients, curvature and predictions of chains.

    Attributes:
      prior: of the flat vectors.
      start: the weights that chains start around, [d]: the module's own, unless it is given.
      together: whether all chains are in one call of the module.
      exact: whether second derivatives are those of autograd; else differences of gradients.
    """

    def __init__(
        self, likelihood: Likelihood, rows: Rows, weights: Weights, prior: Prior,
        start: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        self.likelihood, self.rows, self.prior = likelihood, rows, prior
        self.start = weights.flat(likelihood.model) if start is None else start
        self.weights = weights.starting(self.start)
        self.together, self.exact = True, True
        self.together = self._vmap_is_right()

    @property
    def num_data(self) -> int:
        """The number of rows."""
        return self.rows.num_data

    @property
    def dimension(self) -> int:
        """The number of parameters, d."""
        return len(self.prior.scale)

    @property
    def kind(self) -> Kind:
        """Of the predictions."""
        return CLASSES if self.likelihood.classes else MEANS

    @property
    def narrow(self) -> bool:
        """Whether the module computes in half precision."""
        named = self.weights.named(self.start)
        return in_half_precision(self.likelihood.model, named, self.rows.first(1).inputs)

    def lost(self, z: torch.Tensor) -> torch.Tensor:
        """Return which chains are not finite, or a million scales of the prior away, [chain]."""
        return ~((z / self.prior.scale).abs() < MAX_PRIOR_SCALES).all(1)  # nan is not

    def gradient(self, z: torch.Tensor, batch: Batch, scale: float) -> torch.Tensor:
        """Return the gradient of the log posterior, [chain, d]; the rows of the batch count `scale` times."""
        z = z.detach().requires_grad_(True)
        (g,) = torch.autograd.grad(self._totals(z, batch).sum(), z)
        return torch.add(self.prior.slope(z.detach()), g, alpha=scale).neg()

    def value(self, z: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the log density of the prior and of a batch's rows, [chain], whose `gradient` has scale 1."""
        with torch.no_grad():
            return self.prior.log_density(z) - self._totals(z, batch)

    def log_density(self, z: torch.Tensor, rows: int | None = None) -> torch.Tensor:
        """Return the log posterior density up to a constant, [chain], from so many rows, scaled up, or from all."""
        count = rows or self.rows.num_data
        with torch.no_grad():
            total = self._totals(z, self.rows.first(count)) * (self.rows.num_data / count)
            return self.prior.log_density(z) - total

    def loss_at(self, z: torch.Tensor) -> float:
        """Return minus the log likelihood of a few rows at z [d], which differs between losses."""
        with torch.no_grad():
            return float(self._totals(z[None], self.rows.first(LOSS_CHECK_ROWS))[0])

    def curvature(
        self, z: torch.Tensor, batch: Batch, scale: float, root: torch.Tensor
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return v -> D^{1/2} J D^{1/2} v, [chain, d], with J minus the Hessian at z; `root` is D^{1/2}, [d]."""
        if self.exact:
            at = z.detach().requires_grad_(True)
            try:
                (g,) = torch.autograd.grad(self._totals(at, batch).sum(), at, create_graph=True)
                g = scale * g + self.prior.slope(at)

                def product(v: torch.Tensor) -> torch.Tensor:
                    (moved,) = torch.autograd.grad((g * root * v).sum(), at, retain_graph=True)
                    return root * moved

                product(torch.ones_like(z))
            except RuntimeError:  # of an operation without a second derivative
                self.exact = False
            else:
                return product

        def difference(v: torch.Tensor) -> torch.Tensor:
            length = DIFFERENCE_SDS / v.norm(dim=1, keepdim=True).clamp(min=1e-30)
            ahead, behind = (
                self.gradient(z + sign * length * root * v, batch, scale) for sign in (1, -1)
            )
            return root * (behind - ahead) / (2 * length)

        return difference

    def squares(self, z: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Sum over some rows of the squares of single rows' gradients at z [d]."""
        found = torch.zeros_like(z)
        together = max(1, ROW_GRADIENT_NUMBERS // max(1, len(z)))
        for part in numbers.split(together):
            many = z.expand(len(part), -1)
            g = self.gradient(many, self.rows.at(part[:, None]), 1.0) + self.prior.slope(many)
            found += (g**2).sum(0)
        return found

    def predicted(self, z: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """Predict log probabilities or means at rows that all chains share, [chain, row, k]."""
        with torch.no_grad():
            return self._predicted(z, Batch(inputs, torch.empty(0), shared=True))

    def slopes(self, z: torch.Tensor, inputs: Inputs, weights: torch.Tensor) -> torch.Tensor:
        """Return gradients [row, chain, d] of every chain's predictions at some rows times `weights` [row, k]."""
        rows, chains = len(weights), len(z)
        many = z.detach().repeat(rows, 1).requires_grad_(True)
        own = mapped(lambda leaf: leaf.repeat_interleave(chains, 0)[:, None], inputs)
        found = self._predicted(many, Batch(own, torch.zeros(rows * chains), shared=False))
        total = (found.reshape(rows, chains, -1) * weights[:, None]).sum()
        return torch.autograd.grad(total, many)[0].reshape(rows, chains, -1)

    def _predicted(self, z: torch.Tensor, batch: Batch) -> torch.Tensor:
        found = self._each(lambda weights, rows, _: self.likelihood.outputs(weights, rows), z, batch)  # fmt: skip
        found = found.reshape(*found.shape[:2], -1).to(self.weights.dtype)
        return torch.log_softmax(found, -1) if self.likelihood.classes else found

    def _totals(self, z: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return minus the log likelihood of the batch, [chain]."""

        def total(weights: dict[str, torch.Tensor], inputs: Inputs, target: Any) -> torch.Tensor:
            outputs = self.likelihood.outputs(weights, inputs)
            return self.likelihood.total(outputs, target).to(self.weights.dtype)

        return self._each(total, z, batch)

    def _each(self, f: Callable[..., torch.Tensor], z: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Stack f(weights, inputs, target) of every chain."""
        named, own = self.weights.named(z), not batch.shared
        if self.together:
            where = 0 if own else None
            return torch.func.vmap(f, in_dims=(0, where, where))(named, batch.inputs, batch.target)
        found = []
        for chain in range(len(z)):
            inputs, target = batch.inputs, batch.target
            if own:
                inputs = mapped(lambda leaf, chain=chain: leaf[chain], inputs)
                target = target[chain]
            found.append(f({name: value[chain] for name, value in named.items()}, inputs, target))
        return torch.stack(found)

    def _vmap_is_right(self) -> bool:
        """Return whether the module can be called for all chains at once with the same result."""
        z = torch.stack([self.start, 0.9 * self.start])
        n = min(4, self.rows.num_data // 2)
        numbers = torch.arange(2 * n, device=z.device).reshape(2, n)
        found = []
        for self.together in (False, True):
            try:
                with (
                    warnings.catch_warnings()
                ):  # once each, of operations that vmap takes one by one
                    warnings.filterwarnings("ignore", "There is a performance drop")
                    found.append(self.gradient(z, self.rows.at(numbers), 1.0))
                    self.predicted(z, self.rows.first(1).inputs)
            except Exception:  # whatever a module does that vmap has no rule for
                if not self.together:
                    raise
                return False
        alone, together = found
        size = alone.abs().max().clamp(min=1e-30)
        return bool(((alone - together).abs().max() / size) < MAX_GRADIENT_ERROR)
