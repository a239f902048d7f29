"""Draws from the priors of regression models: what `prior` writes as densities, by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from .formula import FormulaModel
from .prior import (
    DISPERSIONS,
    LEAST,
    gamma_of_two,
    half_normal,
    inverse_root,
    laplace,
    normal,
    root,
    student_t,
)

__all__ = ["prior_draws"]

PyTree = Any


def prior_draws(model: FormulaModel, count: int, seed: int) -> PyTree:
    """`count` draws of the prior, on the original scale, leaves [count, ...]; the seed decides them.

    Example:
      >>> import numpy as np
      >>> from sgld.models.formula import FormulaModel
      >>> from sgld.models.prior_draws import prior_draws
      >>> table = {"x": np.arange(50.0), "y": np.arange(50.0) % 7}
      >>> model = FormulaModel.build(table, "y ~ x", "gaussian", "normal(0, 3)")
      >>> found = prior_draws(model, 20_000, seed=0)
      >>> found["coefficients"].shape, [round(float(sd)) for sd in found["coefficients"].std(axis=0)]
      ((20000, 2), [3, 3])
    """
    rng, prior = np.random.default_rng([seed, 7]), model.posterior.log_prior
    args: tuple[Any, ...] = getattr(prior, "args")  # noqa: B009
    *_, scales = args
    start: Any = model.posterior.init
    shape = np.shape(start["coefficients"])
    rest = {name: _dispersion(rng, name, float(scales[name]), count) for name in scales}
    if model.spec["prior"] is None:
        mean, sd = (np.asarray(part, np.float64) for part in args[:2])
        z = mean + sd * rng.standard_normal((count, *shape))
    else:
        size = int(np.prod(shape))
        b = _coefficients(rng, args[0], (count, size))
        matrix, offset = model.matrix[:size, :size], model.offset[:size]
        z = np.linalg.solve(matrix, (b - offset).T).T.reshape(count, *shape)
    return model.to_original({"coefficients": z, **rest})


def _coefficients(
    rng: np.random.Generator, density: Any, shape: tuple[int, ...]
) -> Float[np.ndarray, "count m"]:
    """Draws of the density that `parse_prior` made of the user's text."""
    numbers = [float(value) for value in density.args]
    *df, loc, scale = numbers
    if density.func is normal:
        return rng.normal(loc, scale, shape)
    if density.func is student_t:
        return loc + scale * rng.standard_t(df[0], shape)
    assert density.func is laplace
    return rng.laplace(loc, scale, shape)


def _dispersion(
    rng: np.random.Generator, name: str, scale: float, count: int
) -> Float[np.ndarray, " count"]:
    """Draws of a dispersion's prior, in the sampler's units."""
    law = DISPERSIONS[name].log_density
    if law is half_normal:
        return np.abs(rng.normal(0.0, scale, count))
    if law is root:
        return rng.normal(0.0, scale, count) ** 2.0
    if law is inverse_root:
        return rng.normal(0.0, scale, count) ** -2.0
    assert law is gamma_of_two
    found = rng.gamma(2.0, 1 / scale, count)
    while (low := found <= LEAST[name]).any():
        found[low] = rng.gamma(2.0, 1 / scale, int(low.sum()))
    return found
