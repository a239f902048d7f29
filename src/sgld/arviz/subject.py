"""What is known of the model that some draws are of: its rows, outcome, predictions and prior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Float, Int

from ..core.pytrees import leaf_names
from ..errors import UsageError
from ..model.modules import for_modules
from ..model.numpyro import opened
from ..model.numpyro_plates import Density, Report
from ..model.posterior import Posterior
from ..results.draws import Draws
from ..results.plan import known_of
from ..results.summary import target_of
from .choice import Choice
from .rows import Rows

__all__ = ["Pointwise", "Subject", "check_target", "subject_of"]

PyTree = Any
ROW = "row"


@runtime_checkable
class Pointwise(Protocol):
    """Log likelihoods of single rows."""

    @property
    def count(self) -> int: ...  # noqa: D102
    def names(self, numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]: ...  # noqa: D102
    def block(self, draws: int) -> int: ...  # noqa: D102
    def values(  # noqa: D102
        self, positions: PyTree, numbers: Int[np.ndarray, " n"]
    ) -> Float[np.ndarray, "n S"]: ...


@dataclass(frozen=True)
class Subject:
    """A model with its rows, as far as it is known.

    Attributes:
      rows: log likelihoods of rows; None without rows.
      position: what draws report -> what log likelihoods take, leading axes [S] kept.
      outcome: the name of the outcome.
      observed, constant: arrays [N, ...] by name: outcomes, and what else rows hold.
      dims, coords: of parameters whose axes the model names.
      replicate: (positions [S, ...], rows [n], seed) -> outcomes [S, n, ...] by name.
      levels: of an outcome with few values, (positions [S, ...], rows [n]) -> their probabilities
        [S, n, level]; the values are 0, 1, ...
      prior: (count, seed) -> reported positions [count, ...] from the prior.
    """

    rows: Pointwise | None
    position: Callable[[PyTree], PyTree]
    outcome: str = "outcome"
    observed: dict[str, np.ndarray] = field(default_factory=dict)
    constant: dict[str, np.ndarray] = field(default_factory=dict)
    dims: dict[str, list[str]] = field(default_factory=dict)
    coords: dict[str, Any] = field(default_factory=dict)
    replicate: Callable[[PyTree, Any, int], dict[str, np.ndarray]] | None = None
    levels: Callable[[PyTree, Any], np.ndarray] | None = None
    prior: Callable[[int, int], PyTree] | None = None

    def needed_rows(self, what: str) -> Pointwise:
        """The rows. Raises UsageError where there are none."""
        if self.rows is None:
            raise UsageError(
                f"{what} needs the log likelihoods of single rows, and this posterior is one log density; give "
                "sgld.Posterior its log_likelihood of one row, and the rows as data."
            )
        return self.rows


def subject_of(
    draws: Draws, posterior: Any = None, data: Any = None, *, outcome: Any = None,
    simulate: Callable | None = None,
) -> Subject:  # fmt: skip
    """The model of `draws`: the given posterior and data, or those that the draws know.

    Raises UsageError where they know none, or hold something else than positions.
    """
    from .formulas import subject_of_formula
    from .programs import subject_of_program

    origin = draws.origin
    if draws.moments is not None or (origin is not None and origin.kept):
        raise UsageError(
            "these draws are what keep= made of positions, and log likelihoods need the positions; sample without keep."
        )
    if posterior is None:
        known = known_of(origin)
        if known.model is not None:
            return subject_of_formula(known.model)
        posterior, data = known.posterior, known.data
    if posterior is None:
        raise UsageError(
            "these draws do not know their posterior (they were loaded, copied or made elsewhere); give it with its rows, "
            "posterior= and data=; of a NumPyro model, posterior=model and its arguments as data."
        )
    posterior, data, _ = opened(posterior, data, None)
    if not isinstance(posterior, Posterior):
        raise UsageError(f"posterior must be an sgld.Posterior. Got {type(posterior).__name__}.")
    posterior = for_modules(posterior, draws.position)
    seed = int(draws.info.get("seed") or 0)
    written = subject_of_program(posterior, data, seed)
    if written is not None:
        return written
    chain = int(draws.healthy[0]) if draws.healthy.size else 0
    last = jax.tree.map(lambda leaf: np.asarray(leaf)[chain, -1], draws.position)
    return _plain(posterior, data, seed, outcome, simulate, last)


def check_target(draws: Draws, what: str) -> None:
    """UsageError where the draws follow another law than the posterior."""
    law, method = target_of(draws), draws.info.get("method")
    if law != "the posterior" or method == "laplace":
        law = "a Gaussian approximation" if method == "laplace" else law
        raise UsageError(
            f"{what} is of draws of the posterior itself. These are of {law}; use sgld.sample or sgld.reference."
        )


def _plain(
    posterior: Posterior,
    data: Any,
    seed: int,
    outcome: Any,
    simulate: Callable | None,
    one_draw: PyTree,
) -> Subject:
    """A posterior of two functions: nobody says which part of a row is the outcome, but for `outcome`."""
    position = _positions(posterior)
    if posterior.log_likelihood is None or data is None:
        return Subject(None, position)
    rows = Rows.of(posterior.log_likelihood, data, seed=seed)
    if rows.source is not None:  # its rows may not fit into memory
        return Subject(rows, position)
    names = [f"data{name}" if name.startswith("[") else name for name in leaf_names(rows.data)]
    arrays = dict(zip(names, jax.tree.leaves(rows.data), strict=True))
    if outcome is None and simulate is None and posterior.predict is not None:
        choice = Choice.of(posterior.predict, rows, position(one_draw))
        if choice is not None:
            return Subject(
                rows, position, observed={"outcome": choice.labels}, constant=arrays,
                replicate=choice.replicate, levels=choice.levels,
            )  # fmt: skip
    called = f"data[{outcome}]" if isinstance(outcome, int) else outcome
    if called is not None and called not in arrays:
        raise UsageError(f"outcome must be one of the data, {', '.join(names)}. Got {outcome!r}.")
    name = called or "outcome"
    return Subject(
        rows, position, name,
        observed={} if called is None else {called: arrays.pop(called)},
        constant=arrays,
        replicate=None if simulate is None else _Simulated(simulate, rows, name),
    )  # fmt: skip


def _positions(posterior: Posterior) -> Callable[[PyTree], PyTree]:
    """The inverse of what draws report."""
    output = posterior.output
    if output is None:
        return lambda reported: reported
    if isinstance(output, Report):
        added = set(output.names)
        return lambda reported: {n: v for n, v in reported.items() if n not in added}
    if isinstance(posterior.log_prior, Density):
        return lambda reported: reported

    def refuse(reported: PyTree) -> PyTree:
        raise UsageError(
            "draws of this posterior report its output, from which positions cannot be had back; log likelihoods need a "
            "posterior without output."
        )

    return refuse


@dataclass(frozen=True)
class _Simulated:
    """Outcomes by the user's function of (key, position, datum)."""

    simulate: Callable
    rows: Rows
    name: str

    def __call__(self, positions: PyTree, numbers: Any, seed: int) -> dict[str, np.ndarray]:
        draws = len(jax.tree.leaves(positions)[0])
        keys = jax.random.split(jax.random.key(seed), (draws, len(numbers)))
        taken = self.rows.take(numbers)
        every = jax.vmap(self.simulate, (0, None, 0))
        one = jax.jit(lambda key, position: every(key, position, taken))
        found = jax.lax.map(lambda given: one(*given), (keys, positions))
        return {self.name: np.asarray(found)}
