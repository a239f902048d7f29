"""Priors of regression models, their text, and the transform of their dispersions.

The user's prior, `normal(mean, sd)`, `student_t(df, loc, scale)` or
`laplace(loc, scale)`, applies to every coefficient b on the scale of the user's columns. The
sampler uses standardised coefficients z, b = A z + c, so the density of z is

    log p(z) = sum_j log p_b((A z + c)_j) + log |det A|

The default prior consists of independent normals on z itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import gammaln
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float

from ..core.pytrees import as_pytree
from ..errors import UsageError, did_you_mean

DEFAULT_PRIOR_SDS = 2.5  # sds of the outcome per sd of a column, as in rstanarm

PyTree = Any
MAX_PRIOR_NUMBER = 1e18  # largest number in a prior


def normal(mean: ArrayLike, sd: ArrayLike, x: Array) -> Array:
    """Return log N(x; mean, sd^2), elementwise."""
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * math.log(2 * math.pi)


def student_t(df: Array, loc: Array, scale: Array, x: Array) -> Array:
    """Return the log density of Student's t with `df` degrees of freedom, elementwise."""
    constant = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * jnp.log(df * math.pi)
    return constant - jnp.log(scale) - (df + 1) / 2 * jnp.log1p(((x - loc) / scale) ** 2 / df)


def laplace(loc: Array, scale: Array, x: Array) -> Array:
    """Return the log density of the double exponential, elementwise."""
    return -jnp.abs(x - loc) / scale - jnp.log(2 * scale)


# the density, its numbers in order, and which of them must be positive
PRIOR_FORMS: dict[str, tuple[Callable, tuple[str, ...], tuple[str, ...]]] = {
    "normal": (normal, ("mean", "sd"), ("sd",)),
    "student_t": (student_t, ("df", "loc", "scale"), ("df", "scale")),
    "laplace": (laplace, ("loc", "scale"), ("scale",)),
}


def parse_prior(text: str) -> Partial:
    """Return the log density x -> log p(x) of a text such as "normal(0, 2.5)".

    Its numbers are pytree leaves. Raises UsageError, with the valid forms, where the text does not
    parse, a scale is not positive, or a number is not finite.
    """
    written = ", ".join(f"{name}({', '.join(args)})" for name, (_, args, _) in PRIOR_FORMS.items())
    match = re.fullmatch(r"\s*([\w-]+)\s*\(([^()]*)\)\s*", text) if isinstance(text, str) else None
    if match is None:
        raise UsageError(f"prior must be one of {written}. Got {text!r}.")
    name, numbers = match[1].replace("-", "_"), match[2].split(",")
    if name not in PRIOR_FORMS:
        raise UsageError(
            f"prior must be one of {written}. Got {text!r}.{did_you_mean(name, PRIOR_FORMS)}"
        )
    density, arguments, positive = PRIOR_FORMS[name]
    form = f"{name}({', '.join(arguments)})"
    try:
        values = [float(number) for number in numbers]
    except ValueError:
        raise UsageError(f"prior {form} takes numbers only. Got {text!r}.") from None
    if len(values) != len(arguments):
        raise UsageError(f"prior {form} takes {len(arguments)} numbers. Got {text!r}.")
    for argument, value in zip(arguments, values, strict=True):
        if not math.isfinite(value):
            raise UsageError(f"prior {form}: {argument} must be finite. Got {value}.")
        if argument in positive and value <= 0:
            raise UsageError(f"prior {form}: {argument} must be positive. Got {value:g}.")
        if abs(value) > MAX_PRIOR_NUMBER or (argument in positive and value < 1 / MAX_PRIOR_NUMBER):
            raise UsageError(
                f"prior {form}: {argument} is {value:g}, whose square exceeds the range of float32; "
                "give the column in another unit."
            )
    return Partial(density, *(jnp.float32(value) for value in values))


def half_normal(scale: ArrayLike, x: Array) -> Array:
    """Return the log density log 2 + log N(x; 0, scale^2) of x > 0."""
    return normal(0.0, scale, x) + math.log(2)


def root(scale: ArrayLike, x: Array) -> Array:
    """Return the log density of x where x^(1/2) is half normal."""
    return half_normal(scale, x**0.5) + math.log(0.5) - 0.5 * jnp.log(x)


def inverse_root(scale: ArrayLike, x: Array) -> Array:
    """Return the log density of x where x^(-1/2), the relative spread, is half normal."""
    return half_normal(scale, x**-0.5) + math.log(0.5) - 1.5 * jnp.log(x)


def gamma_of_two(rate: ArrayLike, x: Array) -> Array:
    """Return the log density of gamma(2, rate) above 1 (Juarez & Steel 2010, for df).

    With degrees of freedom nearer to 0, sigma could go to 0 at a value that a third of the outcomes share:
    the posterior would be improper.
    """
    return 2 * jnp.log(rate) + jnp.log(x) - rate * x + rate - jnp.log1p(rate)


class Dispersion(NamedTuple):
    """Prior of a dispersion: log density (scale, x), its scale and the start of x.

    None represents the outcome's sd. `text` receives the scale.
    """

    log_density: Callable[[Array, Array], Array]
    text: str
    scale: float | None
    start: float | None


DISPERSIONS = {
    "sigma": Dispersion(half_normal, "sigma ~ half-normal({:.4g})", None, None),
    # and not the concentration 1/x, whose mean is infinite where the data may be Poisson
    "overdispersion": Dispersion(root, "sqrt(overdispersion) ~ half-normal({:g})", 1.0, 1.0),
    "shape": Dispersion(inverse_root, "1/sqrt(shape) ~ half-normal({:g})", 1.0, 1.0),
    "df": Dispersion(gamma_of_two, "df ~ gamma(2, {:g}) above 1", 0.1, 10.0),
}
MIN_OF_DISPERSION = {"df": 1.0}  # lower bound of a dispersion; 0 for the others


def _log_prior_dispersions(scale: PyTree, position: PyTree) -> Float[Array, ""]:
    """Sum the log priors of the dispersions, each by its name in `DISPERSIONS`."""
    parts = [DISPERSIONS[name].log_density(scale[name], position[name]) for name in scale]
    return sum(parts, start=jnp.zeros(()))


def default_log_prior(mean: Array, sd: Array, dispersion: PyTree, position: PyTree) -> Array:
    """Return independent normals on the standardised z, plus the dispersions' own priors."""
    coefficients = jnp.sum(normal(mean, sd, position["coefficients"]))
    return coefficients + _log_prior_dispersions(dispersion, position)


def original_log_prior(
    density: Partial,
    matrix: Array,
    offset: Array,
    log_det: Array,
    dispersion: PyTree,
    position: PyTree,
) -> Array:
    """Return one density on every original coefficient A z + c, as a density of z.

    z is [p] or [levels, p].
    """
    original = jnp.dot(matrix, position["coefficients"].reshape(-1), precision="highest") + offset
    return jnp.sum(density(original)) + log_det + _log_prior_dispersions(dispersion, position)


# log-concave in the coefficients, given a log-concave density; dispersions have a transform of their own
for _function in (normal, laplace, default_log_prior, original_log_prior):
    _function.log_concave = True


@as_pytree
@dataclass(frozen=True)
class Positive:
    """The transform MIN_OF_DISPERSION + exp of the named leaves; other entries are unchanged."""

    names: tuple[str, ...] = field(metadata={"static": True})

    def forward(self, free: PyTree) -> PyTree:
        """Transform named leaves to s = exp(free), df = 1 + exp(free)."""
        return {
            **free,
            **{name: MIN_OF_DISPERSION.get(name, 0.0) + jnp.exp(free[name]) for name in self.names},
        }

    def inverse(self, position: PyTree) -> PyTree:
        """Transform named leaves to log s, log(df - 1).

        Raises UsageError where one is not above its lower bound.
        """
        above = {name: position[name] - MIN_OF_DISPERSION.get(name, 0.0) for name in self.names}
        for name, value in above.items():
            if not isinstance(value, Tracer) and not bool(jnp.all(jnp.asarray(value) > 0)):
                least = (
                    f"above {MIN_OF_DISPERSION[name]:g}"
                    if name in MIN_OF_DISPERSION
                    else "positive"
                )
                raise UsageError(f"the start of {name!r} must be {least}. Got {position[name]}.")
        return {**position, **{name: jnp.log(value) for name, value in above.items()}}

    def log_det(self, free: PyTree) -> Float[Array, ""]:
        """Return log |d s / d free| = free, summed over the named leaves."""
        return sum((jnp.sum(free[name]) for name in self.names), start=jnp.zeros(()))
