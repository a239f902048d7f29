"""The modes that a run found: where they are, how dense, how much of the mass each holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..core.text import columns

__all__ = ["Modes"]

MOST_PLACES = 6  # parameters whose places are printed


@dataclass(frozen=True)
class Modes:
    """All modes that were found of a posterior, the heaviest by Laplace's approximation first.

    Attributes:
      names: of the parameters.
      position: [mode, parameter], each mode on the reported scale.
      log_density: [mode], of free coordinates.
      mass: [mode], shares of the posterior, which sum to 1.
      covariance: [mode, mode], of the masses' errors, where they were measured from exact chains in
        each mode; None where they are Laplace's approximation, exp(log density) (det J)^{-1/2}.
      group: [mode], the number of the region that it lies in; modes that chains move between share
        one. None where chains were free.
      chain: [chain], the region that each chain was kept in; None where chains were free.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> posterior = sgld.Posterior(
      ...     lambda t: jnp.logaddexp(-0.5 * t**2, -2.0 - 0.5 * (t - 9.0) ** 2))
      >>> draws = sgld.sample(posterior, None, 0.0, num_draws=50, progress=False)
      >>> draws.modes.position.round(2).tolist()
      [[0.0], [9.0]]
    """

    names: tuple[str, ...]
    position: Float[np.ndarray, "mode parameter"]
    log_density: Float[np.ndarray, " mode"]
    mass: Float[np.ndarray, " mode"]
    covariance: Float[np.ndarray, "mode mode"] | None = None
    group: Int[np.ndarray, " mode"] | None = None
    chain: Int[np.ndarray, " chain"] | None = None

    def __len__(self) -> int:
        return len(self.mass)

    @property
    def measured(self) -> bool:
        """Whether the masses were measured."""
        return self.covariance is not None

    @property
    def mass_se(self) -> Float[np.ndarray, " mode"] | None:
        """[mode], standard errors of the masses; None where they were not measured."""
        return None if self.covariance is None else np.sqrt(np.diag(self.covariance))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "names": list(self.names),
            **{
                name: None if (value := getattr(self, name)) is None else np.asarray(value).tolist()
                for name in _MODE_ARRAYS
            },
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Modes:
        """The inverse of `to_dict`; what is not finite was stored as null."""
        arrays: dict[str, Any] = {
            name: None if stored[name] is None else np.array(stored[name], kind)
            for name, kind in _MODE_ARRAYS.items()
        }
        return cls(tuple(stored["names"]), **arrays)

    def __str__(self) -> str:
        """A table: masses, log densities, and where the modes are."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Of the table, its title first."""
        shown = self.names[:MOST_PLACES]
        errors = self.mass_se
        head = ["", "mass", *([] if errors is None else ["se"]), "log_density", *shown]
        rows = []
        for k in range(len(self)):
            error = [] if errors is None else [f"{errors[k]:.2g}"]
            places = [f"{value:.4g}" for value in self.position[k, : len(shown)]]
            density = f"{self.log_density[k]:.4g}"
            rows.append([f"mode {k + 1}", f"{self.mass[k]:.4g}", *error, density, *places])
        how = "measured from exact chains" if self.measured else "by Laplace's approximation"
        more = len(self.names) - len(shown)
        beside = f"; {more} more parameters in draws.modes" if more else ""
        return [f"{len(self)} modes, masses {how}{beside}", *columns([head, *rows])]


_MODE_ARRAYS: dict[str, Any] = {
    "position": float, "log_density": float, "mass": float, "covariance": float, "group": int, "chain": int,
}  # fmt: skip
