"""Several modes of a posterior, and their shares of the mass by Laplace's approximation.

At temperature T a mode of log density l and curvature J holds, up to a common factor,

    log mass = l / T - log det J / 2,

the integral of the Gaussian there. A mode whose density is e^10 times lower holds more mass than another
if it is four times as wide in each of eight dimensions.

`exchanges` finds the points that a symmetry of the model maps the mode to: parameters that change places
or sign.

Components of a mixture are the entries of leaves along an axis of one length, including a simplex of their
shares. Two decays may be four numbers with their own names, and three bumps nine entries of a vector. When
the posterior is narrow, a search from wide starts does not find the mode with exchanged components. It is
not needed: the likelihood there equals that of the mode, up to rounding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Float

from ..core.pytrees import Layout
from ..errors import SGLDError
from ..model import sums
from ..model.problem import Problem
from .laplace import Laplace

MIN_SEPARATION_SDS = 3.0  # smallest distance of two modes, in sds of the narrower one
# share of the second moment below which a mode is omitted: an error of .05% in an sd, and of 1% if
# Laplace's mass is wrong by a factor of 20, as with heavy tails
MAX_NEGLIGIBLE_MASS = 1e-3


@runtime_checkable
class GaussianAtMode(Protocol):
    """The Gaussian at a mode, dense or diagonal plus low rank."""

    @property
    def center(self) -> Float[np.ndarray, " d"]:
        """The mode."""
        ...

    @property
    def half_log_det(self) -> float:
        """The log determinant of the covariance, log det J^{-1} / 2; NaN at a saddle."""
        ...

    def whiten(self, z: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """Return F^{-1} (z - center)."""
        ...


@runtime_checkable
class HasMode(Protocol):
    """The Gaussian at a mode and the log density there."""

    @property
    def gaussian(self) -> GaussianAtMode:
        """The Gaussian, with its centre at the mode."""
        ...

    @property
    def log_density(self) -> float:
        """The log density at the mode."""
        ...


@dataclass(frozen=True)
class KnownModes:
    """The modes that were found, the heaviest first, by Laplace's approximation.

    Attributes:
      z: free coordinates [mode, d].
      log_density: [mode], of free coordinates.
      log_mass: [mode], up to a constant.
    """

    z: Float[np.ndarray, "k d"]
    log_density: Float[np.ndarray, " k"]
    log_mass: Float[np.ndarray, " k"]

    def __len__(self) -> int:
        return len(self.z)

    @property
    def mass(self) -> Float[np.ndarray, " k"]:
        """Shares of the total mass, which sum to 1."""
        mass = np.exp(self.log_mass - self.log_mass.max())
        return mass / mass.sum()


def log_mass(at: HasMode, temperature: float) -> float:
    """Return l / T - log det J / 2, or l at T = 0, where the densest mode holds all mass."""
    if temperature == 0:
        return at.log_density
    return at.log_density / temperature + at.gaussian.half_log_det


def apart(one: GaussianAtMode, other: GaussianAtMode) -> float:
    """Return the distance between two modes in sds of the narrower one."""
    between = (np.linalg.norm(a.whiten(b.center)) for a, b in ((one, other), (other, one)))
    return float(max(between))


def known_modes(found: Sequence[HasMode], temperature: float) -> tuple[list[int], KnownModes]:
    """Return the indices of the modes that matter, the heaviest first, and their `KnownModes`.

    A mode counts by its share of the second moment around the heaviest: its mass times its squared
    distance in the heaviest mode's sds, plus its own width. A mode whose curvature gives no mass
    is assumed to be as wide as the widest, and is never the first.
    """
    volumes = np.array([at.gaussian.half_log_det for at in found])
    masses = np.array([log_mass(at, temperature) for at in found])
    flat = np.isnan(volumes)
    densities = np.array([at.log_density for at in found])
    masses[flat] = densities[flat] / (temperature or 1.0) + np.nanmax(volumes)
    order = np.lexsort((-masses, flat))
    heaviest = found[order[0]].gaussian
    share = np.exp(masses - masses.max())
    away = np.array([np.sum(heaviest.whiten(at.gaussian.center) ** 2) for at in found])
    width = np.array([_width(heaviest, at.gaussian) for at in found])
    moment = share * (1 + away / (temperature or 1.0) + width)
    kept = [int(i) for i in order if moment[i] >= MAX_NEGLIGIBLE_MASS or i == order[0]]
    z = np.array([found[i].gaussian.center for i in kept])
    return kept, KnownModes(z, densities[kept], masses[kept])


def _width(heaviest: GaussianAtMode, other: GaussianAtMode) -> float:
    """Return the largest variance of `other` in the heaviest's sds; without a factor, the mean."""
    factor = getattr(other, "factor", None)
    if factor is None:
        wider = np.nan_to_num(other.half_log_det - heaviest.half_log_det)
        return float(np.exp(2 * wider / len(other.center)))
    return float(np.linalg.norm(heaviest.whiten(heaviest.center + factor.T), 2) ** 2)


# -- exchanged -----------------------------------------------------------------------------


PyTree = Any

MAX_COMPONENTS = 4  # components, which have 24 orders
# parts that change places with every sign (160 points), and with no sign (232 points)
MAX_SIGNED_PARTS, MAX_UNSIGNED_PARTS = 4, 7
MAX_PRIOR_LOSS = 20.0  # largest loss of log prior at which a point is still tried
EXTRA_IMAGES_TRIED = 4  # other points that are tried, the densest
# limits for a vector whose blocks change places (208 points)
MAX_PERMUTED_LENGTH, MAX_PERMUTED_BLOCKS = 24, 3


@np.errstate(over="ignore", invalid="ignore")
def exchanges(problem: Problem, mode: Laplace) -> list[Float[np.ndarray, " d"]]:
    """Return points more than `MIN_SEPARATION_SDS` sds from the mode with the same likelihood.

    Without rows they have the same density. The densest of the other pure permutations follow. The cost is
    that of some hundred log densities.
    """
    found: dict[bytes, np.ndarray] = {}
    z = mode.center
    for place in (*_swap_parts(problem, z), *_swap_blocks(problem, z), *_swap_roles(problem, z)):
        if np.isfinite(place).all() and np.linalg.norm(mode.whiten(place)) > MIN_SEPARATION_SDS:
            found.setdefault(problem.on_host(place).tobytes(), place)
    if not found:
        return []
    places = np.array(list(found.values()))
    higher = sums.differences(problem, places, mode.center)
    prior = np.zeros(len(places))
    if problem.has_rows:
        prior = np.asarray(_prior(problem, problem.array(places), problem.array(mode.center)))
    slack = 1e-3 + 1e-6 * abs(float(sums.log_density(problem, problem.array(mode.center))))
    same = (np.abs(higher - prior) <= slack) & (prior >= -MAX_PRIOR_LOSS)
    order = np.argsort(-np.nan_to_num(higher, nan=-np.inf), kind="stable")
    others = [i for i in order if not same[i] and _permuted(places[i], mode.center)]
    return [*places[same], *places[others[:EXTRA_IMAGES_TRIED]]]


def _permuted(place: np.ndarray, z: np.ndarray) -> bool:
    """Return whether these are the same numbers in another order."""
    return bool(np.allclose(np.sort(place), np.sort(z), rtol=1e-6))


@jax.jit
def _prior(problem: Problem, zs: Any, center: Any) -> Any:
    return jax.vmap(problem.log_prior)(zs) - problem.log_prior(center)


def _swap_parts(problem: Problem, z: np.ndarray) -> Iterator[np.ndarray]:
    """Yield pairs of coordinates, or of leaves, exchanged, some of them with changed signs."""
    if problem.dimension <= MAX_UNSIGNED_PARTS:
        shapes, parts = [()] * len(z), np.split(z, len(z))
    else:
        shapes, parts = list(problem.layout.shapes), np.split(z, problem.layout.ends[:-1])
    if len(parts) > MAX_UNSIGNED_PARTS:
        return
    signs = list(product((1.0, -1.0), repeat=len(parts)))
    for order in _involutions(range(len(parts))):
        if any(shapes[i] != shapes[j] for i, j in enumerate(order)):
            continue
        turned = len(parts) <= MAX_SIGNED_PARTS or order == list(range(len(parts)))
        for sign in signs if turned else signs[:1]:
            yield np.concatenate([s * parts[i] for i, s in zip(order, sign, strict=True)])


def _swap_blocks(problem: Problem, z: np.ndarray) -> Iterator[np.ndarray]:
    """Yield permuted blocks of a vector, from its start or up to its end.

    The numbers of one component may be adjacent, or one number of all components.
    """
    for end, shape in zip(problem.layout.ends, problem.layout.shapes, strict=True):
        if len(shape) != 1 or shape[0] > MAX_PERMUTED_LENGTH:
            continue
        for count in range(2, MAX_PERMUTED_BLOCKS + 1):
            for width in range(1, shape[0] // count + 1):
                size = count * width
                for first in {end - shape[0], end - size}:
                    yield from _blocks(z, np.arange(first, first + size), count)


def _blocks(z: np.ndarray, at: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Yield z with the entries `at`, split into `count` components, in other orders.

    A component is a run of neighbours, or every count-th entry.
    """
    for components in (at.reshape(count, -1), at.reshape(-1, count).T):
        for order in list(permutations(range(count)))[1:]:
            place = z.copy()
            place[components] = z[components[list(order)]]
            yield place


def _involutions(items: Sequence[int]) -> Iterator[list[int]]:
    """Yield every way to pair some of 0 ... n - 1, as the item at each position."""

    def of(left: Sequence[int]) -> Iterator[dict[int, int]]:
        if not left:
            yield {}
            return
        first, rest = left[0], left[1:]
        for more in of(rest):
            yield {first: first, **more}
        for other in rest:
            for more in of([i for i in rest if i != other]):
                yield {first: other, other: first, **more}

    for found in of(items):
        yield [found[i] for i in items]


def _swap_roles(problem: Problem, z: np.ndarray) -> Iterator[np.ndarray]:
    """Yield components in other orders: entries along an axis, or leaves with similar names.

    Similar names differ in a number, a letter or a word. The constrained scale is used, where a simplex holds its
    shares. With two components a separate number may be the log odds of the first, and its sign changes. The
    columns of a matrix may change sign.
    """
    leaves, structure = jax.tree.flatten(problem.target.position(problem.array(z)))
    leaves = [np.asarray(leaf) for leaf in leaves]
    for count in range(2, MAX_COMPONENTS + 1):
        axes = [_axis(leaf.shape, count) for leaf in leaves]
        families = _similar_names(problem.layout, count)
        if not any(families) and all(axis is None for axis in axes):
            continue
        for order, groups in product(permutations(range(count)), families):
            moved = [
                leaf if axis is None else np.take(leaf, order, axis)
                for leaf, axis in zip(leaves, axes, strict=True)
            ]
            for group in groups:
                for to, i in enumerate(order):
                    moved[group[to]] = leaves[group[i]]
            place = _free(problem, structure.unflatten(moved))
            if place is not None:
                yield from _with_signs(problem.layout, place, count)


def _axis(shape: tuple[int, ...], count: int) -> int | None:
    """Return the axis of components: the first of their length."""
    return shape.index(count) if count in shape else None


def _similar_names(layout: Layout, count: int) -> list[list[list[int]]]:
    """Return groups of leaves of one shape that change places together, one per component.

    Their names differ only in a last number or letter, or in one word at the same position.
    """
    last: dict[Any, list[int]] = {}
    words: dict[Any, dict[str, int]] = {}
    for i, (name, shape) in enumerate(zip(layout.names, layout.shapes, strict=True)):
        found = re.fullmatch(r"(.*?)(\d+|[A-Ha-h])(\W*)", name)
        if found:
            last.setdefault((found[1], found[3], found[2].isdigit(), shape), []).append(i)
        parts = re.findall(r"[^\W_]+", name)
        for k, word in enumerate(parts if len(parts) > 1 else []):
            words.setdefault((k, *parts[:k], "", *parts[k + 1 :], shape), {})[word] = i
    families: dict[Any, list[list[int]]] = {
        "last": [group for group in last.values() if len(group) == count]
    }
    for key, leaves in words.items():
        if len(leaves) == count:
            families.setdefault((key[0], *sorted(leaves)), []).append(
                [leaves[word] for word in sorted(leaves)]
            )
    return list(families.values())


def _free(problem: Problem, position: PyTree) -> np.ndarray | None:
    """Return the free position, or None where a constraint, such as an order, excludes it."""
    try:
        z = problem.layout.ravel(problem.posterior.unconstrain(position))
    except (SGLDError, ValueError):
        return None
    return np.asarray(z, np.float64)


def _with_signs(layout: Layout, z: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Yield z, z with its scalars negated, and z with columns of its matrices negated."""
    leaves = [
        leaf.reshape(shape)
        for leaf, shape in zip(np.split(z, layout.ends[:-1]), layout.shapes, strict=True)
    ]
    yield z
    if count == 2 and () in layout.shapes:
        yield np.concatenate([np.ravel(-leaf if leaf.ndim == 0 else leaf) for leaf in leaves])
    matrices = [leaf.ndim > 1 and leaf.shape[-1] == count for leaf in leaves]
    if any(matrices):
        for signs in list(product((1.0, -1.0), repeat=count))[1:]:
            turned = [
                np.ravel(leaf * np.array(signs) if matrix else leaf)
                for leaf, matrix in zip(leaves, matrices, strict=True)
            ]
            yield np.concatenate(turned)
