"""Priors of network weights: normal, heavy-tailed, or with estimated scales; a scale per layer.

Independent normal priors:

    log p(theta) = sum over entries j of  -theta_j^2 / (2 s_j^2) - log s_j - log(2 pi) / 2

s_j is the sd of the pattern that matches the leaf's name, divided by sqrt(fan in) for weights
if `fan_in` is True (Neal 1996, ch. 2: the variance of a unit's input then does not grow
with the width of the layer below).

Priors with heavier tails than the normal, with most weights near 0 and a few far away:

    Laplace     log p(theta) = sum_j -|theta_j| / b_j - log(2 b_j)
    Student t   log p(theta) = sum_j -((nu + 1) / 2) log(1 + theta_j^2 / (nu s_j^2)) + constant

b_j and s_j are scales as above. Trained networks have such weights (Fortuin et al. 2022).

A normal prior whose scale per layer is estimated and integrated out. A layer w of d weights has an
unknown sd s, of the order of s_0 (nu degrees of freedom):

    w | s ~ N(0, s^2),    s^2 ~ inverse gamma(nu / 2, nu s_0^2 / 2)

    p(w) = integral over s = multivariate t of nu degrees, shape s_0^2
    log p(w) = log Gamma((nu + d) / 2) - log Gamma(nu / 2) - (d / 2) log(nu pi s_0^2)
               - ((nu + d) / 2) log(1 + |w|^2 / (nu s_0^2))

No parameter is added and no funnel arises: sampling the weights samples the hierarchy. The weights
estimate s by E[s^2 | w] = (nu s_0^2 + |w|^2) / (nu + d - 2).
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy import stats
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from ..core.pytrees import as_pytree, leaf_names
from ..core.validation import positive_number
from ..errors import UsageError, did_you_mean
from .modules import seal

# -- scales --------------------------------------------------------------------------------


# names of weights [out, in, ...] in Equinox and PyTorch other than "weight"
RECURRENT_WEIGHTS = ("weight_ih", "weight_hh", "weight_hr")
PROJECTION_WEIGHTS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


class Layer(NamedTuple):
    """A leaf of a position, the prior's scale of its entries, and the origin of that scale.

    `scale` is the number of the pattern `which`, divided by sqrt(inputs).
    """

    name: str
    leaf: Array
    scale: Array
    which: int
    inputs: int


def layers(
    position: Any, scales: tuple[Any, ...], patterns: tuple[str, ...], *, fan_in: bool
) -> list[Layer]:
    """Return every leaf with the scale of the first matching pattern, in the widest leaf dtype.

    Raises UsageError for a leaf that no pattern matches, and for a pattern without a leaf.
    """
    position = seal(position)
    names = leaf_names(position)
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(position)]
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*leaves)
    found = []
    for name, leaf, which in zip(names, leaves, _matches(names, patterns), strict=True):
        size = _fan_in(name, leaf.shape) if fan_in else 1
        scale = jnp.asarray(scales[which]).astype(dtype) / math.sqrt(size)
        found.append(Layer(name, leaf.astype(dtype), scale, which, size))
    return found


def summed(
    prior: Any, position: Any, density: Callable[[Array, Array], Float[Array, ""]]
) -> Float[Array, ""]:
    """Return the log density of a position, summed over leaves; raise as `layers`."""
    found = layers(position, prior.scales, prior.patterns, fan_in=prior.fan_in)
    total = jnp.zeros((), found[0].leaf.dtype)
    for layer in found:
        total += density(layer.leaf, layer.scale)
    return total


def named_scales(
    position: Any, scales: tuple[Any, ...], patterns: tuple[str, ...], *, fan_in: bool
) -> dict[str, float]:
    """Return the scale of every leaf by name."""
    return {
        layer.name: float(scales[layer.which]) / math.sqrt(layer.inputs)
        for layer in layers(position, scales, patterns, fan_in=fan_in)
    }


def checked_scales(scales: Any) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Return numbers and patterns of a number or {pattern: number}; raise UsageError otherwise."""
    given = scales if isinstance(scales, Mapping) else {"*": scales}
    if not given:
        raise UsageError("scales is empty; give one sd, or {pattern: sd}.")
    for pattern, scale in given.items():
        if not isinstance(pattern, str):
            raise UsageError(f"scales' keys must be patterns of names. Got {pattern!r}.")
        try:
            positive = math.isfinite(float(scale)) and float(scale) > 0
        except (TypeError, ValueError):
            positive = False
        if not positive:
            where = f"[{pattern!r}]" if isinstance(scales, Mapping) else ""
            raise UsageError(f"scales{where} must be a positive number. Got {scale!r}.")
    return tuple(float(scale) for scale in given.values()), tuple(given)


def _matches(names: list[str], patterns: tuple[str, ...]) -> list[int]:
    """Return the index of the first matching pattern for every leaf."""
    for pattern in patterns:
        if not any(_match(name, pattern) for name in names):
            raise UsageError(
                f"scales has the pattern {pattern!r}, which matches no parameter; the parameters are "
                f"{_listed(names)}." + did_you_mean(pattern, names)
            )
    found = []
    for name in names:
        hits = [i for i, pattern in enumerate(patterns) if _match(name, pattern)]
        if not hits:
            raise UsageError(
                f"scales has no sd for {name!r}; add it, or add the pattern '*' last "
                "for all other parameters."
            )
        found.append(hits[0])
    return found


def _match(name: str, pattern: str) -> bool:
    # brackets in names are indices, not fnmatch's character classes
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def _fan_in(name: str, shape: tuple[int, ...]) -> int:
    """Return the inputs of a unit; 1 for vectors and scalars, whose sd is not divided."""
    kind = name.rsplit(".", 1)[-1]
    if len(shape) < 2 or kind == "bias":  # Equinox's convolutions have a bias [out, 1, 1]
        return 1
    if kind == "kernel":
        return math.prod(shape[:-1])
    if kind == "weight" or kind.startswith(RECURRENT_WEIGHTS) or kind in PROJECTION_WEIGHTS:
        return math.prod(shape[1:])
    raise UsageError(
        f"the fan in of {name!r} {list(shape)} is not known, because it is inferred only for the names 'weight' "
        "and 'kernel'; rename it, or leave fan_in out and give its sd divided by sqrt(fan in)."
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


# -- heavy ---------------------------------------------------------------------------------


PyTree = Any


@as_pytree
@dataclass(frozen=True)
class LaplacePrior:
    """A Laplace log prior: `prior(position)` is a normalised log density, a scalar.

    Attributes:
      scales: one b per pattern.
      patterns: patterns of leaf names.
      fan_in: whether scales of weights are divided by sqrt(fan in).

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.laplace_prior(2.0)
      >>> prior({"w": jnp.zeros(3)}).round(4)  # -3 log 4
      Array(-4.1589, dtype=float32)
    """

    scales: tuple[Any, ...]
    patterns: tuple[str, ...] = field(metadata={"static": True})
    fan_in: bool = field(default=False, metadata={"static": True})

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """Return the log density of a position; raise as `normal_prior`."""
        return summed(self, position, lambda leaf, b: jnp.sum(stats.laplace.logpdf(leaf, 0, b)))

    def sd(self, position: PyTree) -> dict[str, float]:
        """Return the sd of every leaf of a position by name: sqrt(2) b.

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> sgld.networks.laplace_prior(1.0).sd({"w": jnp.zeros(3)})
          {'w': 1.414...}
        """
        found = named_scales(position, self.scales, self.patterns, fan_in=self.fan_in)
        return {name: math.sqrt(2) * scale for name, scale in found.items()}


@as_pytree
@dataclass(frozen=True)
class StudentTPrior:
    """A Student t log prior: `prior(position)` is a normalised log density, a scalar.

    Attributes:
      scales: one s per pattern.
      patterns: patterns of leaf names.
      fan_in: whether scales of weights are divided by sqrt(fan in).
      degrees: nu; 1 is the Cauchy, infinity the normal distribution.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.student_t_prior(1.0, degrees=1.0)
      >>> prior({"w": jnp.zeros(3)})  # -3 log pi
      Array(-3.4341..., dtype=float32)
    """

    scales: tuple[Any, ...]
    patterns: tuple[str, ...] = field(metadata={"static": True})
    fan_in: bool = field(default=False, metadata={"static": True})
    degrees: Any = 4.0

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """Return the log density of a position; raise as `normal_prior`."""

        def density(leaf: Array, s: Array) -> Float[Array, ""]:
            nu = jnp.asarray(self.degrees, leaf.dtype)
            return jnp.sum(stats.t.logpdf(leaf, nu, 0, s))

        return summed(self, position, density)

    def sd(self, position: PyTree) -> dict[str, float]:
        """Return the sd of a position's leaves by name: s sqrt(nu / (nu - 2)), infinite for nu <= 2.

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> sgld.networks.student_t_prior(1.0, degrees=4.0).sd({"w": jnp.zeros(3)})
          {'w': 1.414...}
        """
        found = named_scales(position, self.scales, self.patterns, fan_in=self.fan_in)
        nu = float(self.degrees)
        wider = math.sqrt(nu / (nu - 2)) if nu > 2 else math.inf
        return {name: wider * scale for name, scale in found.items()}


def laplace_prior(scales: float | Mapping[str, float], *, fan_in: bool = False) -> LaplacePrior:
    """Return a Laplace log prior with mean 0 and a scale per layer: sparse, most weights near 0.

        log p(theta) = sum_j -|theta_j| / b_j - log(2 b_j)

    Args:
      scales: b, for every entry or {pattern: b}, as in `normal_prior`; the sd is sqrt(2) b.
      fan_in: divide b of weights by sqrt(inputs of a unit).

    Raises: as `normal_prior`.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.laplace_prior({"out*": 0.5, "*": 1.0})
      >>> round(float(prior({"hidden": jnp.ones(2), "out": jnp.zeros(1)})), 4)  # -2 - 2 log 2 - log 1
      -3.3863
    """
    numbers, patterns = checked_scales(scales)
    return LaplacePrior(numbers, patterns, bool(fan_in))


def student_t_prior(
    scales: float | Mapping[str, float], *, degrees: float = 4.0, fan_in: bool = False
) -> StudentTPrior:
    """Return a Student t log prior with mean 0 and a scale per layer: a few weights may be large.

        log p(theta) = sum_j -((nu + 1) / 2) log(1 + theta_j^2 / (nu s_j^2)) + constant

    Args:
      scales: s, for every entry or {pattern: s}, as in `normal_prior`.
      degrees: nu.
      fan_in: divide s of weights by sqrt(inputs of a unit).

    Raises: as `normal_prior`; UsageError for degrees that are not positive.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> far = {"w": jnp.array([8.0])}
      >>> bool(sgld.networks.student_t_prior(1.0)(far) > sgld.networks.normal_prior(1.0)(far))
      True
    """
    positive_number("degrees", degrees)
    numbers, patterns = checked_scales(scales)
    return StudentTPrior(numbers, patterns, bool(fan_in), float(degrees))


# -- estimated scales ----------------------------------------------------------------------


DEFAULT_DEGREES = 2.0


@as_pytree
@dataclass(frozen=True)
class LearntPrior:
    """A log prior with estimated scales, from `normal_prior(..., learnt=True)`.

    `prior(position)` is a normalised log density. Each leaf with two or more entries has its own sd. A
    single number does not determine a scale, and its prior is the normal one.

    Attributes:
      scales: s_0, one per pattern: the prior scale of an sd. With 2 degrees, the sd is
        between half and three times as much in 7 of 8 cases.
      patterns: patterns of leaf names.
      fan_in: whether s_0 of weights is divided by sqrt(fan in).
      degrees: nu: the larger, the more weight s_0 has.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.normal_prior({"*": 1.0}, learnt=True)
      >>> large = {"w": jnp.full(100, 30.0)}
      >>> round(prior.sd(large)["w"], 1)  # the estimate from these weights
      30.0
      >>> bool(prior(large) > sgld.networks.normal_prior(1.0)(large))
      True
    """

    scales: tuple[Any, ...]
    patterns: tuple[str, ...] = field(metadata={"static": True})
    fan_in: bool = field(default=False, metadata={"static": True})
    degrees: Any = DEFAULT_DEGREES

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """Return the log density of a position; raise as `normal_prior`."""

        def density(leaf: Array, scale: Array) -> Float[Array, ""]:
            if leaf.size < 2:
                return normal_density(leaf, scale)
            return t_density(leaf, scale, self.degrees)

        return summed(self, position, density)

    def sd(self, position: PyTree) -> dict[str, float]:
        """Return the estimate of every leaf's sd from the weights of a position: sqrt(E[s^2 | w]).

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> prior = sgld.networks.normal_prior(1.0, learnt=True)
          >>> prior.sd({"b": jnp.array(3.0), "w": jnp.full(400, 0.1)})
          {'b': 1.0, 'w': 0.122...}
        """
        found = {}
        for layer in layers(position, self.scales, self.patterns, fan_in=self.fan_in):
            square, d, nu = float(layer.scale) ** 2, layer.leaf.size, float(self.degrees)
            if d > 1:
                square = (nu * square + float(jnp.sum(layer.leaf**2))) / (nu + d - 2)
            found[layer.name] = math.sqrt(square)
        return found


def t_density(leaf: Array, scale: Array, degrees: Any) -> Float[Array, ""]:
    """Return the log density of the multivariate t (the equation of the module)."""
    nu, d = jnp.asarray(degrees, leaf.dtype), leaf.size
    constant = (
        gammaln((nu + d) / 2) - gammaln(nu / 2) - d * (jnp.log(nu * math.pi) / 2 + jnp.log(scale))
    )
    return constant - (nu + d) / 2 * jnp.log1p(jnp.sum((leaf / scale) ** 2) / nu)


def normal_density(leaf: Array, sd: Array) -> Float[Array, ""]:
    """Return log N(leaf | 0, sd^2), summed over the entries."""
    constant = leaf.size * (jnp.log(sd) + math.log(2 * math.pi) / 2)
    return -(jnp.sum((leaf / sd) ** 2) / 2 + constant)


# -- prior ---------------------------------------------------------------------------------


@as_pytree
@dataclass(frozen=True)
class NormalPrior:
    """A normal log prior: `prior(position)` is a normalised log density, a scalar.

    Attributes:
      scales: one sd per pattern; leaves of the pytree, so that other numbers need no compilation.
      patterns: patterns of leaf names.
      fan_in: whether sds of weights are divided by sqrt(fan in).

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.normal_prior({"*": 2.0})
      >>> prior({"w": jnp.zeros(3)}).round(4)  # 3 log N(0 | 0, 2)
      Array(-4.8363, dtype=float32)
    """

    scales: tuple[Any, ...]
    patterns: tuple[str, ...] = field(metadata={"static": True})
    fan_in: bool = field(default=False, metadata={"static": True})

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """Return the log density of a position.

        Raises UsageError for a leaf that no pattern matches, and for a pattern without a leaf.
        """
        return summed(self, position, normal_density)

    def sd(self, position: PyTree) -> dict[str, float]:
        """Return the sd of every leaf of a position by name, for inspection.

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> prior = sgld.networks.normal_prior({"*weight": 2.0, "*": 1.0}, fan_in=True)
          >>> prior.sd({"a": {"weight": jnp.zeros((3, 16)), "bias": jnp.zeros(3)}})
          {'a.bias': 1.0, 'a.weight': 0.5}
        """
        return named_scales(position, self.scales, self.patterns, fan_in=self.fan_in)


def normal_prior(
    scales: float | Mapping[str, float] = 1.0, *, fan_in: bool = False, learnt: bool = False
) -> NormalPrior | LearntPrior:
    """Return a normal log prior with mean 0 and an sd per layer.

        log p(theta) = sum_j -theta_j^2 / (2 s_j^2) - log s_j - log(2 pi) / 2

    Args:
      scales: one sd for every entry, or {pattern: sd}. Patterns are matched to the names of the
        position's leaves, those of the summary's table without the index: "layers[0].weight",
        "params.Dense_0.kernel". `*` matches any text and `?` one character. The first
        matching pattern is used, so the most general one comes last.
      fan_in: divide the sd of weights, leaves of two or more axes, by sqrt(inputs of a unit):
        of "kernel" [..., in, out] as in Flax, of "weight" ("weight_ih") [out, in, ...] as in Equinox and
        PyTorch. Layers stacked along a leading axis are not recognised: set their sd manually.
      learnt: each layer's sd is unknown, of the order of its value in `scales`, and is estimated
        together with the weights (`LearntPrior`).

    Raises: UsageError for an sd that is not positive; and, before the first step of a run, for a
    pattern that matches no leaf, a leaf that no pattern matches, and a leaf whose fan in is
    not known.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.normal_prior({"out*": 0.5, "*": 1.0})
      >>> net = {"hidden": {"w": jnp.zeros((2, 3))}, "out": {"w": jnp.ones(3)}}
      >>> prior.sd(net)
      {'hidden.w': 1.0, 'out.w': 0.5}
      >>> round(float(prior(net)), 4)
      -12.191
    """
    numbers, patterns = checked_scales(scales)
    kind = LearntPrior if learnt else NormalPrior
    return kind(numbers, patterns, bool(fan_in))
