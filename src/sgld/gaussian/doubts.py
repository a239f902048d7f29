"""What the Gaussian at the mode does not show and was found elsewhere: by kind, with a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from .rays import Ray

__all__ = ["UNSEEN", "Doubt"]

Kind = Literal["gradient", "random", "infinite", "tails", "unseen"]


@dataclass(frozen=True)
class Doubt:
    """A reason not to go by the Gaussian, nor by a meter that is built on it.

    Attributes:
      kind: "gradient", that of another function than the log density; "random", a density that is no
        function of the position alone; "infinite", a density of +inf somewhere; "tails", mass far
        outside the Gaussian; "unseen", nobody looked.
      sentence: what was found, without an end.
      share: of the second moment beyond 4 sds, for tails; along `toward` on the side of `at`.
      at: free position z [d] where that mass, or that infinity, is.
      toward: covector w [d]: w (z - center) are the sds of the Gaussian by which z is off, for tails along a ray.
      ray: on which it was found, for tails along one parameter.
      modes: intervals of t on that ray where known modes explain what is there.
      start: free position z [d] on that ray, bent or not, from which chains may tell whether the mass is there;
        none of one parameter, whose ray is the density itself.
      edge: whitened distance from the centre beyond which that mass is, for tails on all sides; the sds along
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
        """By how much the log density falls on the way from the first of `modes` to that mass.

        Infinite where no way is known, or none of the other modes lies on it, at least half as far.
        """
        if self.ray is None or self.at is None or self.toward is None:
            return np.inf
        center, others = modes[0], modes[1:]
        far = float(self.toward @ (self.at - center))
        if not np.any((others - center) @ self.toward / far >= 0.5):
            return np.inf
        way = self.ray.value[(self.ray.t * far >= 0) & (np.abs(self.ray.t) <= abs(far))]
        return float(-way.min(initial=0.0))


UNSEEN = Doubt(
    "unseen",
    "for want of time (max_seconds) other modes, and what lies far from this one, were not looked for to the end",
)
