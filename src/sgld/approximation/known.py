"""Facts about a posterior from the searches before sampling, and doubts about its Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float

from .laplace import Laplace
from .low_rank import LowRankLaplace
from .modes import KnownModes
from .rays import Ray

Kind = Literal["gradient", "random", "infinite", "tails", "unseen"]


@dataclass(frozen=True)
class Doubt:
    """A reason to distrust the Gaussian and any meter that is based on it.

    Attributes:
      kind: "gradient", the gradient belongs to another function than the log density; "random", the density
        is not a function of the position alone; "infinite", a density of +inf somewhere; "tails", mass far
        outside the Gaussian; "unseen", no search was made.
      sentence: the finding, without a full stop.
      share: of the second moment beyond 4 sds, for tails; along `toward` on the side of `at`.
      at: free position z [d] of that mass, or of that infinity.
      toward: covector w [d]: w (z - center) is the distance of z in sds of the Gaussian, for tails along a ray.
      ray: the ray on which it was found, for tails along one parameter.
      modes: intervals of t on that ray where known modes explain the mass.
      start: free position z [d] on that ray, bent or not, from which chains can test whether the mass exists;
        None for one parameter, whose ray is the density itself.
      edge: whitened distance from the centre beyond which the mass lies, for tails on all sides; the sds along
        `toward`, for mass behind a valley.
    """

    kind: Kind
    sentence: str
    share: float = 0.0
    at: Float[np.ndarray, " d"] | None = None
    toward: Float[np.ndarray, " d"] | None = None
    ray: Ray | None = None
    modes: tuple[tuple[float, float], ...] = ()
    start: Float[np.ndarray, " d"] | None = None
    edge: float | None = None

    def valley(self, modes: Float[np.ndarray, "k d"]) -> float:
        """Return the fall of the log density on the way from the first of `modes` to the mass.

        It is infinite where no path is known, or no other mode lies on it at least half as far out.
        """
        if self.ray is None or self.at is None or self.toward is None:
            return np.inf
        center, others = modes[0], modes[1:]
        far = float(self.toward @ (self.at - center))
        if not np.any((others - center) @ self.toward / far >= 0.5):
            return np.inf
        way = self.ray.value[(self.ray.t * far >= 0) & (np.abs(self.ray.t) <= abs(far))]
        return float(-way.min(initial=0.0))


NOT_SEARCHED = Doubt(
    "unseen",
    "the time limit (max_seconds) stopped the search for other modes and for mass far from this one",
)


# -- far -----------------------------------------------------------------------------------


def describe_departure(nu: float) -> str:
    """Return the phrase for a posterior that is far from Gaussian with this nu.

    The verdict adds the advice, because it knows the result of the run.

    Example:
      >>> from sgld.approximation.known import describe_departure
      >>> describe_departure(1.62)
      'far from Gaussian (nu = 1.6)'
    """
    if math.isfinite(nu):
        return f"far from Gaussian (nu = {nu:.2g})"
    return "far from Gaussian (gradients at draws of the Gaussian at its centre are not finite)"


# -- Known ---------------------------------------------------------------------------------


# nu below which the Gaussian at the mode is sufficient; at .05 a mild banana takes 2.5 times the steps
MAX_GAUSSIAN_NU = 0.1


NOT_CONVERGED = "the search for the mode did not converge; start closer, or rescale."


MIN_UNUSABLE_NU = 1.0  # nu above which the Gaussian is not a guide


MAX_PRINTED_MASSES = 6  # masses in a sentence


MAX_PRINTED_DOUBTS = 3  # doubts in the notes


@dataclass(frozen=True)
class Known:
    """Facts about a posterior from the searches before sampling.

    Attributes:
      gaussian: with the curvature at the mode, dense or diagonal plus low rank, and its centre at
        the mean, or at the mode where that is better; None where none was computed. Not
        positive definite at a saddle.
      log_density: at the mode.
      nu: distance from a Gaussian, 0 for one (`low_rank.at_the_mean`), at the Gaussian's centre; None
        without a Gaussian.
      nu_at_mode: the same at the mode.
      modes: all modes that were found, starting with the one of most mass, at which the Gaussian is;
        None for a single mode.
      doubts: reasons against the Gaussian and against meters that are based on it.
      notes: sentences for the user.
    """

    gaussian: Laplace | LowRankLaplace | None = None
    log_density: float = float("nan")
    nu: float | None = None
    nu_at_mode: float | None = None
    modes: KnownModes | None = None
    doubts: tuple[Doubt, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether there is a Gaussian with a positive definite curvature."""
        return self.gaussian is not None and self.gaussian.positive_definite

    @property
    def other_modes(self) -> int:
        """The number of modes besides the first."""
        return 0 if self.modes is None else len(self.modes) - 1

    def telling(self, *notes: str) -> Known:
        """Return a copy with `notes` and the sentences about doubts, other modes and nu."""
        printed = [f"{doubt.sentence}." for doubt in self.doubts[:MAX_PRINTED_DOUBTS]]
        left = self.doubts[MAX_PRINTED_DOUBTS:]
        if left:
            printed.append(
                f"{len(left)} more finding{'s' if len(left) > 1 else ''} of this kind {'were' if len(left) > 1 else 'was'} made."
            )
        notes = (*notes, *printed, *_modes_note(self.modes), *_nonlinear_note(self.nu))
        return replace(self, notes=notes)

    @property
    def elsewhere(self) -> bool:
        """Whether mass exists, or may exist, that the Gaussian does not represent."""
        return self.modes is not None or any(doubt.kind != "unseen" for doubt in self.doubts)

    @property
    def hopeless(self) -> bool:
        """Whether the Gaussian is useless as a guide: nu is unknown, or too large."""
        return self.nu is None or not self.nu <= MIN_UNUSABLE_NU


def _modes_note(modes: KnownModes | None) -> tuple[str, ...]:
    if modes is None:
        return ()
    shares = ", ".join(f"{share:.2g}" for share in modes.mass[:MAX_PRINTED_MASSES])
    more = ", ..." if len(modes) > MAX_PRINTED_MASSES else ""
    return (
        f"the posterior has at least {len(modes)} modes, which hold {shares}{more} of its mass by Laplace's "
        "approximation.",
    )


def _nonlinear_note(nu: float | None) -> tuple[str, ...]:
    if nu is None or nu <= MIN_UNUSABLE_NU:
        return ()
    return (
        f"the posterior is {describe_departure(nu)}: the Gaussian at its centre does not describe it.",
    )
