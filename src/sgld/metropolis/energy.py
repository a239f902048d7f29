"""Energies relative to a centre, row by row, and what Metropolis says of a move by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.pytrees import Layout, as_pytree
from ..data.memory import Beside, each
from ..model import sums
from ..model.posterior import Posterior
from ..model.problem import Problem, Target

__all__ = ["Around", "around", "log_acceptance", "mala_move"]

ROWS = 2**16  # rows evaluated at once at the centre

PyTree = Any


@as_pytree
@dataclass(frozen=True)
class Around:
    """log p(center + F u) - log p(center), row by row, so that float32 can tell energies apart.

    The rows are (datum, log likelihood of the datum at the centre); F None is the identity.
    """

    target: Target
    center: Float[Array, " d"]
    factor: Float[Array, "d d"] | None
    prior: Float[Array, ""]

    @property
    def posterior(self) -> Posterior:
        """The user's."""
        return self.target.posterior

    @property
    def layout(self) -> Layout:
        """Of free positions."""
        return self.target.layout

    def z(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        """Free coordinates."""
        move = u if self.factor is None else jnp.matmul(self.factor, u, precision="highest")
        return self.center + move

    def log_prior(self, u: Float[Array, " d"]) -> Float[Array, ""]:
        """Relative to the centre's."""
        return self.target.log_prior(self.z(u)) - self.prior

    def log_likelihood(
        self, u: Float[Array, " d"], rows: PyTree, weight: Float[Array, " n"] | None = None
    ) -> Float[Array, ""]:
        """Sum of the rows' log likelihoods relative to theirs at the centre."""
        data, base = rows
        posterior = self.target.posterior
        assert posterior.log_likelihood is not None
        values = jax.vmap(posterior.log_likelihood, (None, 0))(
            self.target.position(self.z(u)), data
        )
        if weight is None:
            return jnp.sum(values - base)
        return jnp.sum(jnp.where(weight > 0, weight * (values - base), 0.0))

    def estimated(
        self, u: Float[Array, " d"], rows: PyTree, weight: Float[Array, " n"] | None, scale: Any
    ) -> Float[Array, ""]:
        """Both, the rows' `scale` times."""
        return self.log_prior(u) + scale * self.log_likelihood(u, rows, weight)


def around(problem: Problem, center: Any, factor: Any = None) -> Problem:
    """The same problem around `center`: its target is an Around, its rows carry their value there."""
    dtype = problem.layout.dtype
    center = jnp.asarray(center, dtype)
    factor = None if factor is None else jnp.asarray(factor, dtype)
    density = Around(problem.target, center, factor, problem.log_prior(center))
    data = Beside.of(problem.source, _rows_at(problem, center)) if problem.has_rows else None
    return Problem(density, data)


@jax.jit
def _rows_at(problem: Problem, center: Array) -> Array:
    position = problem.target.position(center)
    likelihood = problem.posterior.log_likelihood
    assert likelihood is not None
    return each(problem.source, lambda row: likelihood(position, row), ROWS)


def log_acceptance(
    white: Problem, D: Any, u: Float[Array, " d"], xi: Float[Array, " d"], h: Array
) -> Float[Array, ""]:
    """The log of MALA's acceptance ratio of the move that xi proposes: `mala_move`'s first."""
    return mala_move(white, D, u, xi, h)[0]


def mala_move(
    white: Problem, D: Any, u: Float[Array, " d"], xi: Float[Array, " d"], h: Array
) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    """The log of MALA's acceptance ratio, NaN being a rejection, and the move that xi proposes.

    One leapfrog of time step delta = sqrt(2h) from momentum xi, with D^{1/2} (D^{1/2})^T = D:

        p = xi + (delta/2) (D^{1/2})^T grad(u)
        u' = u + delta D^{1/2} p                  = u + h D grad(u) + sqrt(2h) D^{1/2} xi
        p' = p + (delta/2) (D^{1/2})^T grad(u')
        log ratio = log pi(u') - |p'|^2/2 - log pi(u) + |xi|^2/2
    """
    delta = jnp.sqrt(2 * h)
    value, gradient = sums.value_and_gradient(white, u)
    p = xi + delta / 2 * D.pullback(gradient)
    new = u + delta * D.noise(p)
    new_value, new_gradient = sums.value_and_gradient(white, new)
    p_new = p + delta / 2 * D.pullback(new_gradient)
    ratio = new_value - value + jnp.sum((xi - p_new) * (xi + p_new)) / 2
    return jnp.where(jnp.isnan(ratio), -jnp.inf, ratio), new
