"""How far from Gaussian a posterior is, in words."""

from __future__ import annotations

import math

__all__ = ["far"]


def far(nu: float) -> str:
    """That a posterior of this nu is far from Gaussian. What is to be done is for the verdict to say, which knows what came of it.

    Example:
      >>> from sgld.gaussian.far import far
      >>> far(1.62)
      'far from Gaussian (nu = 1.6)'
    """
    if math.isfinite(nu):
        return f"far from Gaussian (nu = {nu:.2g})"
    return "far from Gaussian (gradients at draws of the Gaussian at its centre are not finite)"
