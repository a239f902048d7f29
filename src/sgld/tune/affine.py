"""The exact stationary law on a Gaussian of any sampler whose step is affine there.

In the eigenbasis of A = P^T J P a step of SGHMC, BAOA, UBU or the like is, in every direction
i apart, s_i' = A_i s_i + B_i xi_i + G_i e_i, with s_i = (position, momentum, ...) and e_i the
gradient's error; A_i, B_i and G_i are Jacobians of `sampler.step` itself. With A_i = V L V^{-1}
and l_ia its eigenvalues, each of which decays like SGLD's r_i,

    S_ij = C_ij sum_ab w_ia w_jb* accumulated(l_ia, l_jb*) + delta_ij (the same for B_i, once a step)

where w_ia is what of G_i arrives in the position through mode a. Order of the minibatches
included: `accumulated` is that of tune/law.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..preconditioner.fixed import Scalar
from .law import Law, accumulated

__all__ = ["AffineLaw", "is_affine"]

Matrix = Float[np.ndarray, "d d"]


@dataclass(frozen=True)
class AffineLaw(Law):
    """A Law whose steps are a sampler's, instead of SGLD's."""
