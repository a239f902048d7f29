"""The types of what public functions take: words, and the contracts of the parts that can be swapped.

    def pilot(sampler: sgld.typing.Sampler, order: sgld.typing.Order) -> sgld.Draws: ...

Words are Literals, so that a type checker refuses `order="reshufle"` before anything runs. The
parts are protocols: an object of one's own fits by what it does, without inheriting anything; how
it must behave is certified by `sgld.testing`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable

from jaxtyping import ScalarLike

__all__ = [
    "Centre",
    "Estimator",
    "FamilyName",
    "KLWeights",
    "Method",
    "Number",
    "Optimizer",
    "Order",
    "Preconditioner",
    "PredictionKind",
    "Sampler",
    "Schedule",
    "VariationalFamily",
]

Order = Literal["reshuffle", "symmetric", "independent", "replacement", "subset"]
Method = Literal["nuts", "hmc", "mala", "metropolis"]
FamilyName = Literal[
    "gaussian", "student-t", "bernoulli", "binomial", "categorical", "poisson", "negative-binomial",
    "gamma",
]  # fmt: skip
PredictionKind = Literal["outcome", "mean", "class"]
Centre = Literal["mode", "mean"]
VariationalFamily = Literal["gaussian", "full-rank"]
KLWeights = Literal["uniform", "geometric"]

Number = ScalarLike
Schedule = Callable[[Any], Any]


@runtime_checkable
class Sampler(Protocol):
    """A deterministic step from state to state; `sgld.testing` has the contract in full."""

    def init(self, position: Any, /) -> Any:
        """The state at a flat position [d]: a pytree with `.position`."""
        ...

    def step(
        self, state: Any, grad: Any, step_size: Any, noise: Any, /, *, preconditioner: Any,
        temperature: Any,
    ) -> Any:  # fmt: skip
        """The next state."""
        ...


@runtime_checkable
class Estimator(Protocol):
    """An estimator of the gradient of the full-data log posterior; `sgld.gradient` has the contract."""

    def prepare(self, problem: Any, center: Any, /) -> Any:
        """The estimator with its numbers filled in, on the host, once."""
        ...

    def at(self, problem: Any, x: Any, memory: Any, /) -> Any:
        """The estimate on entry x of the data order."""
        ...


@runtime_checkable
class Preconditioner(Protocol):
    """A matrix D, constant or learnt in the burn-in; `sgld.preconditioner` has the contract."""

    def prepare(self, layout: Any, /) -> Any:
        """The preconditioner, checked against the position."""
        ...


@runtime_checkable
class Optimizer(Protocol):
    """An optax transformation."""

    @property
    def init(self) -> Callable[[Any], Any]:
        """The state at the parameters."""
        ...

    @property
    def update(self) -> Callable[..., tuple[Any, Any]]:
        """(updates, state) from gradients, state and parameters."""
        ...
