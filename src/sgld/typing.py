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
    # their other names
    "normal", "linear", "ols", "lm", "robust", "student", "t", "logistic", "logit", "binary", "multinomial", "multiclass",
    "softmax", "count", "negbin", "negbinomial", "nb", "log-normal",
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
    """A deterministic step from state to state; `sgld.testing` has the contract in full.

    One whose state holds more than a position needs, to be exchanged by `sgld.ReplicaExchange`,
    `exchanged(state, position, change, step_size, preconditioner)`: the state at another position,
    where the gradient is larger by `change` [d].

    Example:
      >>> import sgld
      >>> isinstance(sgld.SGLD(), sgld.typing.Sampler)
      True
    """

    def init(self, position: Any, /) -> Any:
        """The state at a flat `position` [d]: a pytree with `.position`."""
        ...

    def step(
        self, state: Any, grad: Any, step_size: Any, noise: Any, /, *, preconditioner: Any,
        temperature: Any,
    ) -> Any:  # fmt: skip
        """The next state, which has the shapes and dtypes of the one before.

        Args:
          state: of `init`, or of the step before.
          grad: the gradient [d] of the full-data log posterior, as a function of a position [d].
          step_size: h, a scalar, of that log posterior.
          noise: standard normals [d], or [num_noises, d] where the sampler says `num_noises`.
          preconditioner: D, with `drift`, `noise` and `pullback`.
          temperature: T, a scalar; 0 for none of the noise.
        """
        ...


@runtime_checkable
class Estimator(Protocol):
    """An estimator of the gradient of the full-data log posterior.

    One that learns along a chain has `remembers = True`, `start(problem, z)`, which gives the memory at
    the chain's start z [d], and `after(problem, x, memory, z, step)`, which gives that after a step
    that began at z. `sgld.samplers.gradients` has the contract, `sgld.testing.check_gradient` holds it.

    Example:
      >>> import sgld
      >>> isinstance(sgld.SAGA(), sgld.typing.Estimator)
      True
    """

    def prepare(self, problem: Any, center: Any, /) -> Any:
        """The estimator with its numbers filled in, on the host, once.

        Args:
          problem: the target and its rows.
          center: where the posterior was found to lie [d], or None.

        Raises: UsageError where it cannot serve this problem.
        """
        ...

    def at(self, problem: Any, x: Any, memory: Any, /) -> Any:
        """The estimate on entry x of the data order: position [d] -> gradient [d].

        Args:
          problem: the target and its rows.
          x: an entry of the data order, which `problem.source.fetch` turns into rows.
          memory: of this chain, or None.
        """
        ...


@runtime_checkable
class Preconditioner(Protocol):
    """A matrix D, constant or learnt in the burn-in.

    A matrix has `drift(g)` = D g, `noise(xi)` = D^{1/2} xi and `pullback(g)` = (D^{1/2})^T g. One
    that learns has `adapts = True`, `start(z)`, the memory at a chain's start z [d], `after(memory, g)` with
    g [d] the gradient of the mean log density, and `at(memory)`, the matrix. `sgld.samplers.preconditioners` has
    the contract, `sgld.testing.check_preconditioner` holds it.

    Example:
      >>> import sgld
      >>> isinstance(sgld.RMSprop(), sgld.typing.Preconditioner)
      True
    """

    def prepare(self, layout: Any, /) -> Any:
        """The preconditioner, checked against the `layout` of the position: its names, shapes and d.

        Raises: UsageError where it has other shapes, or is not positive definite.
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
        """The state at the parameters."""
        ...

    @property
    def update(self) -> Callable[..., tuple[Any, Any]]:
        """(updates, state) from gradients, state and parameters."""
        ...
