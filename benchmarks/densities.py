"""Provide the log density of a posterior at a flat vector of free coordinates.

The truths of several benchmarks are computed with it, apart from the package's own samplers.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import sgld


class FlatDensity:
    """A posterior and its data as a function of z [d].

    Attributes:
      start: z of the position given.
      data: the rows, on the device.
    """

    def __init__(self, posterior: sgld.Posterior, data: Any, init: Any) -> None:
        self.posterior, self.data = posterior, jax.tree.map(jnp.asarray, data)
        numbers, self._rest = eqx.partition(posterior.unconstrain(init), eqx.is_inexact_array)
        self.start, self._unravel = ravel_pytree(jax.tree.map(jnp.asarray, numbers))

    def free(self, z: Any) -> Any:
        """Return the free coordinates as a pytree like the position."""
        return eqx.combine(self._unravel(z), self._rest)

    def position(self, z: Any) -> Any:
        """Return the position as the prior and the likelihood see it."""
        return self.posterior.constrain(self.free(z))

    def log_prior(self, z: Any) -> Any:
        """Return the log prior density of the free coordinates."""
        return self.posterior.log_prior_free(self.free(z))

    def log_likelihood(self, z: Any, rows: Any) -> Any:
        """Return the log likelihood, summed over some rows."""
        return self.posterior.log_likelihood_free(self.free(z), rows)

    def __call__(self, z: Any) -> Any:
        """Return the log posterior density."""
        return self.log_prior(z) + self.log_likelihood(z, self.data)

    def mode(self) -> np.ndarray:
        """Return z of the mode, by `sgld.find_map`."""
        found = sgld.find_map(self.posterior, self.data, self.position(self.start))
        numbers, _ = eqx.partition(self.posterior.unconstrain(found.position), eqx.is_inexact_array)
        return np.asarray(ravel_pytree(numbers)[0], np.float64)

    def curvature(self, z: np.ndarray) -> np.ndarray:
        """Return minus the second derivatives at z."""
        return -np.asarray(jax.jit(jax.hessian(self))(jnp.float32(z)), np.float64)

    def row_gradients(self, z: np.ndarray) -> np.ndarray:
        """Return the gradient of every row's log likelihood at z, [row, d]."""
        one = lambda row: jax.grad(self.log_likelihood)(  # noqa: E731
            jnp.float32(z), jax.tree.map(lambda leaf: leaf[None], row)
        )
        return np.asarray(jax.jit(jax.vmap(one))(self.data), np.float64)


def flat_numbers(tree: Any) -> np.ndarray:
    """Return all numbers of a pytree, in double precision."""
    return np.concatenate(
        [np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)]
    )
