"""Families of outcomes: the law of one outcome y given its linear predictor eta.

    eta = x . coefficients,     y | eta ~ family(mean(eta), dispersion)

A family is one entry at the end of this file. Its log likelihood is a module-level function
of (position, datum), so that every model of the family shares one compiled step; `position`
is {"coefficients": [p]} plus one scalar per name in `dispersion`, `datum` is (x [p], y).
What runs outside compiled code (`mean`, `sd`, `sample`, `check`) is NumPy in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from ..errors import DataError, UsageError, did_you_mean

__all__ = ["FAMILIES", "Family", "find_family"]

PyTree = Any
LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Family:
    """One family; eta and what follows from it may have any shape.

    Attributes:
      name: what the user types.
      link: the scale of eta, in words.
      log_likelihood: (position, datum) -> scalar, normalising constant included.
      check: (y [N], column name) -> None; DataError with the first data row out of range.
      centre: y [N] -> a typical eta, finite whatever y is; the prior of the intercept sits there.
      mean: eta -> E[y | eta].
      sd: (eta, position) -> sd[y | eta], dispersion entries broadcasting against eta.
      sample: (rng, eta, position) -> draws of y given eta.
      dispersion: names of the positive parameters beside the coefficients.
      location_scale: y and eta may be shifted and scaled together, dispersion scaling along;
        such an outcome is standardised before sampling.
    """

    name: str
    link: str
    log_likelihood: Callable[[PyTree, PyTree], Array]
    check: Callable[[np.ndarray, str], None]
    centre: Callable[[np.ndarray], float]
    mean: Callable[[np.ndarray], np.ndarray]
    sd: Callable[[np.ndarray, PyTree], np.ndarray]
    sample: Callable[[np.random.Generator, np.ndarray, PyTree], np.ndarray]
    dispersion: tuple[str, ...] = ()
    location_scale: bool = False


def find_family(name: str) -> Family:
    """The family called `name`. Raises UsageError, with the nearest name, for an unknown one."""
    if name not in FAMILIES:
        raise UsageError(
            f"family must be one of {', '.join(FAMILIES)}. Got {name!r}."
            + did_you_mean(name, FAMILIES)
        )
    return FAMILIES[name]


def _linear_predictor(position: PyTree, x: Float[Array, " p"]) -> Float[Array, ""]:
    return jnp.dot(x, position["coefficients"])


def gaussian_log_likelihood(position: PyTree, datum: PyTree) -> Float[Array, ""]:
    """log N(y; eta, sigma^2) = -((y - eta) / sigma)^2 / 2 - log sigma - log(2 pi) / 2."""
    x, y = datum
    sigma = position["sigma"]
    residual = (y - _linear_predictor(position, x)) / sigma
    return -0.5 * residual**2 - jnp.log(sigma) - 0.5 * LOG_2PI


def bernoulli_log_likelihood(position: PyTree, datum: PyTree) -> Float[Array, ""]:
    """log P(y) = log sigmoid((2 y - 1) eta), which neither overflows nor cancels."""
    x, y = datum
    return jax.nn.log_sigmoid((2 * y - 1) * _linear_predictor(position, x))


def poisson_log_likelihood(position: PyTree, datum: PyTree) -> Float[Array, ""]:
    """log P(y) = y eta - exp(eta) - log y!"""
    x, y = datum
    eta = _linear_predictor(position, x)
    return y * eta - jnp.exp(eta) - gammaln(y + 1)


def _refuse(bad: np.ndarray, y: np.ndarray, name: str, needed: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"outcome {name!r} is {y[row]:.10g} in data row {row + 1}; {needed}; "
            "mend the rows or choose another family."
        )


def _check_gaussian(y: np.ndarray, name: str) -> None:
    if np.ptp(y) == 0:
        raise DataError(
            f"outcome {name!r} is constant ({y[0]:.10g} in every row); its sd cannot be learnt, "
            "so choose another outcome."
        )


def _check_bernoulli(y: np.ndarray, name: str) -> None:
    _refuse((y != 0) & (y != 1), y, name, "the bernoulli family needs 0 or 1")


def _check_poisson(y: np.ndarray, name: str) -> None:
    _refuse((y < 0) | (y != np.floor(y)), y, name, "the poisson family needs counts 0, 1, 2, ...")
    _refuse(y > 2**24, y, name, "float32 holds counts up to 2^24 exactly")


def _expit(eta: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -eta))


def _bernoulli_centre(y: np.ndarray) -> float:
    probability = (y.sum() + 0.5) / (y.size + 1)
    return float(np.log(probability / (1 - probability)))


def _sample_poisson(rng: np.random.Generator, eta: np.ndarray, position: PyTree) -> np.ndarray:
    # NumPy refuses means above 9.2e18
    return rng.poisson(np.exp(np.minimum(eta, 43.0))).astype(np.float64)


GAUSSIAN = Family(
    "gaussian",
    "the outcome itself",
    gaussian_log_likelihood,
    check=_check_gaussian,
    centre=lambda y: float(y.mean()),
    mean=lambda eta: eta,
    sd=lambda eta, position: np.broadcast_to(position["sigma"], np.shape(eta)),
    sample=lambda rng, eta, position: rng.normal(eta, position["sigma"]),
    dispersion=("sigma",),
    location_scale=True,
)

BERNOULLI = Family(
    "bernoulli",
    "log odds",
    bernoulli_log_likelihood,
    check=_check_bernoulli,
    centre=_bernoulli_centre,
    mean=_expit,
    sd=lambda eta, position: np.exp(-0.5 * (np.logaddexp(0.0, -eta) + np.logaddexp(0.0, eta))),
    sample=lambda rng, eta, position: (rng.random(np.shape(eta)) < _expit(eta)).astype(np.float64),
)

POISSON = Family(
    "poisson",
    "log of the mean",
    poisson_log_likelihood,
    check=_check_poisson,
    centre=lambda y: float(np.log((y.sum() + 0.5) / y.size)),
    mean=np.exp,
    sd=lambda eta, position: np.exp(0.5 * eta),
    sample=_sample_poisson,
)

FAMILIES = {family.name: family for family in (GAUSSIAN, BERNOULLI, POISSON)}
