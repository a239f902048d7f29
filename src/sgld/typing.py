"""Types of public arguments: literals, and protocols of the parts that can be replaced.

    def pilot(sampler: sgld.typing.Sampler, order: sgld.typing.Order) -> sgld.Draws: ...

Literals let a type checker refuse `order="reshufle"` before anything runs. The parts are protocols: a
user-supplied object fits by its methods, without inheriting anything. `sgld.testing` certifies its
behaviour.
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
    "Noise",
    "Number",
    "Optimizer",
    "Order",
    "PlotKind",
    "Preconditioner",
    "PredictionKind",
    "Sampler",
    "Schedule",
    "VariationalFamily",
]

Order = Literal["reshuffle", "symmetric", "independent", "replacement", "subset"]
Noise = Literal["normal", "binomial"]
Method = Literal["nuts", "hmc", "mala", "metropolis"]
FamilyName = Literal[
    "gaussian", "student-t", "bernoulli", "binomial", "categorical", "poisson", "negative-binomial",
    "gamma", "lognormal",
    # aliases
    "normal", "linear", "ols", "lm", "robust", "student", "t", "logistic", "logit", "binary", "multinomial", "multiclass",
    "softmax", "count", "negbin", "negbinomial", "nb", "log-normal", "nbinom", "nbinom2",
]  # fmt: skip
PlotKind = Literal["forest", "trace", "marginal", "pair", "ppc", "verdict"]
PredictionKind = Literal["outcome", "mean", "class"]
Centre = Literal["mode", "mean"]
VariationalFamily = Literal["gaussian", "full-rank"]
KLWeights = Literal["uniform", "geometric"]

Number = ScalarLike
Schedule = Callable[[Any], Any]


@runtime_checkable
class Sampler(Protocol):
    """A deterministic step from state to state; `sgld.testing` documents the full contract.

    A sampler whose state holds more than a position needs one more method for `sgld.ReplicaExchange`:
    `exchanged(state, position, change, step_size, preconditioner)`, the state at another position,
    where the gradient is larger by `change` [d].

    Example:
      >>> import sgld
      >>> isinstance(sgld.SGLD(), sgld.typing.Sampler)
      True
    """

    def init(self, position: Any, /) -> Any:
        """Return the state at a flat `position` [d]: a pytree with `.position`."""
        ...

    def step(
        self, state: Any, grad: Any, step_size: Any, noise: Any, /, *, preconditioner: Any,
        temperature: Any,
    ) -> Any:  # fmt: skip
        """Return the next state, with the shapes and dtypes of the previous one.

        Args:
          state: the state from `init` or from the previous step.
          grad: the gradient [d] of the full-data log posterior, as a function of a position [d].
          step_size: h, a scalar, the coefficient of that gradient.
          noise: standard normals [d], or [num_noises, d] if the sampler has `num_noises`.
          preconditioner: D, with `drift`, `noise` and `pullback`.
          temperature: T, a scalar; 0 turns the noise off.
        """
        ...


@runtime_checkable
class Estimator(Protocol):
    """An estimator of the gradient of the full-data log posterior.

    An estimator with a memory along a chain has `remembers = True` and two more methods. `start(problem, z)` returns
    the memory at the chain's start z [d]; `after(problem, x, memory, z, step)` returns that after a step
    that began at z. `sgld.samplers.gradients` documents the contract, `sgld.testing.check_gradient` tests it.

    Example:
      >>> import sgld
      >>> isinstance(sgld.SAGA(), sgld.typing.Estimator)
      True
    """

    def prepare(self, problem: Any, center: Any, /) -> Any:
        """Return the estimator with its numbers filled in; called once, on the host.

        Args:
          problem: the target and its rows.
          center: the centre of the posterior [d], or None.

        Raises: UsageError if it cannot be used for this problem.
        """
        ...

    def at(self, problem: Any, x: Any, memory: Any, /) -> Any:
        """Return the estimate for entry x of the data order: position [d] -> gradient [d].

        Args:
          problem: the target and its rows.
          x: an entry of the data order, which `problem.source.fetch` converts to rows.
          memory: the memory of this chain, or None.
        """
        ...


@runtime_checkable
class Preconditioner(Protocol):
    """A matrix D, constant or adapted during burn-in.

    A matrix has `drift(g)` = D g, `noise(xi)` = D^{1/2} xi and `pullback(g)` = (D^{1/2})^T g. An adaptive one
    has `adapts = True`, `start(z)`, the memory at a chain's start z [d], `after(memory, g)` with
    g [d] the gradient of the mean log density, and `at(memory)`, the matrix. `sgld.samplers.preconditioners`
    documents the contract, `sgld.testing.check_preconditioner` tests it.

    Example:
      >>> import sgld
      >>> isinstance(sgld.RMSprop(), sgld.typing.Preconditioner)
      True
    """

    def prepare(self, layout: Any, /) -> Any:
        """Return the preconditioner, checked against the position's `layout` (names, shapes, d).

        Args:
          layout: the layout of the position.

        Raises: UsageError if its shapes differ, or it is not positive definite.
        """
        ...


@runtime_checkable
class Optimizer(Protocol):
    """An optax transformation.

    Example:
      >>> import optax, sgld
      >>> sgd = optax.sgd(0.1)
      >>> isinstance(sgd, sgld.typing.Optimizer), callable(sgd.init), callable(sgd.update)
      (True, True, True)
    """

    @property
    def init(self) -> Callable[[Any], Any]:
        """The function that returns the state at the parameters."""
        ...

    @property
    def update(self) -> Callable[..., tuple[Any, Any]]:
        """The function from gradients, state and parameters to (updates, state)."""
        ...
