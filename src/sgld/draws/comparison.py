"""Two sets of draws of one posterior, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..core.text import columns
from ..errors import UsageError
from . import weighted
from .draws import Draws

__all__ = ["Comparison", "compare", "errors_of"]


@dataclass(frozen=True)
class Comparison:
    """Differences per parameter, in units of the reference's sd, with their Monte Carlo errors.

    Attributes:
      names: of the parameters.
      mean_error: (mean - mean of the reference) / sd of the reference.
      sd_ratio: sd / sd of the reference: above 1 is too wide.
      mean_error_se, sd_ratio_se: Monte Carlo standard errors of the two, those of both sets of
        draws together: a difference of less than 2 of them may be chance.
    """

    names: tuple[str, ...]
    mean_error: Float[np.ndarray, " m"]
    sd_ratio: Float[np.ndarray, " m"]
    mean_error_se: Float[np.ndarray, " m"]
    sd_ratio_se: Float[np.ndarray, " m"]

    @property
    def worst_mean(self) -> int | None:
        """The parameter whose mean is furthest off; None where no draws move."""
        return _largest(np.abs(self.mean_error))

    @property
    def worst_sd(self) -> int | None:
        """The parameter whose sd ratio is furthest from 1; None where no draws move."""
        return _largest(np.abs(np.log(self.sd_ratio)))

    def to_dict(self) -> dict[str, Any]:
        """{name: {"mean_error", "sd_ratio", "mean_error_se", "sd_ratio_se"}}; NaN becomes None."""
        return {
            name: {column: _number(getattr(self, column)[i]) for column in COMPARISON_COLUMNS}
            for i, name in enumerate(self.names)
        }

    def __str__(self) -> str:
        head = ["", "mean error", "+-", "sd ratio", "+-"]
        body = [
            [name, *(f"{getattr(self, column)[i]:.3f}" for column in COMPARISON_COLUMNS)]
            for i, name in enumerate(self.names)
        ]
        lines = columns([head, *body])
        mean, sd = self.worst_mean, self.worst_sd
        if mean is None or sd is None:
            return "\n".join([*lines, "worst: unknown, the draws do not move."])
        lines.append(
            f"worst: mean of {self.names[mean]!r} {self.mean_error[mean]:+.3f} sd of the reference, "
            f"sd of {self.names[sd]!r} x {self.sd_ratio[sd]:.3f}"
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from ..notebook.views import view

        return view(self)


COMPARISON_COLUMNS = ("mean_error", "mean_error_se", "sd_ratio", "sd_ratio_se")


def compare(draws: Draws, reference: Draws) -> Comparison:
    """How far `draws` are from `reference`: mean differences in sd, and sd ratios.

    Args:
      draws: of `sgld.sample`, say; its weights are used.
      reference: of `sgld.reference`, or any draws of parameters with the same names.

    Raises UsageError where the names differ; their order may.

    Example:
      >>> import numpy as np, sgld
      >>> x = np.random.default_rng(0).normal(size=(4, 500))
      >>> print(sgld.compare(sgld.Draws.of({"a": 1 + 2 * x}), sgld.Draws.of({"a": x})))
         mean error     +-  sd ratio     +-
      a       0.972  0.050     2.000  0.046
      worst: mean of 'a' +0.972 sd of the reference, sd of 'a' x 2.000
    """
    for role, given in (("draws", draws), ("reference", reference)):
        if not isinstance(given, Draws):
            remedy = "; call .draws() on it" if hasattr(given, "draws") else ""
            raise UsageError(f"{role} must be Draws. Got {type(given).__name__}{remedy}.")
    for here, there, where in (
        (draws.names, reference.names, "reference"),
        (reference.names, draws.names, "draws"),
    ):
        absent = [name for name in here if name not in there]
        if absent:
            raise UsageError(
                f"the parameters differ: {absent[0]!r} is not in {where}, which has "
                f"{', '.join(there[:5])}{', ...' if len(there) > 5 else ''}."
            )
    order = [reference.names.index(name) for name in draws.names]
    a = weighted.Estimates(draws.flat()[0], draws.weights)
    b = weighted.Estimates(reference.flat()[0][..., order], reference.weights)
    return Comparison(draws.names, *errors_of(a, b))


def errors_of(a: weighted.Estimates, b: weighted.Estimates) -> tuple[np.ndarray, ...]:
    """Of a against b, per parameter, not finite where b does not move.

    Differences of means in sds of b, ratios of sds, and the standard errors of both.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = a.sd / b.sd
        return (
            (a.mean - b.mean) / b.sd, ratio, np.hypot(a.mean_se, b.mean_se) / b.sd,
            ratio * np.hypot(a.sd_se, b.sd_se),
        )  # fmt: skip


def _largest(values: np.ndarray) -> int | None:
    return None if np.isnan(values).all() else int(np.nanargmax(values))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
