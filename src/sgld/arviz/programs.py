"""A NumPyro model, for ArviZ: its observed sites, plates, predictions and draws of the prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..model.numpyro_plates import Density, Prior, Program, Report
from ..model.numpyro_sites import Site, log_prob, plate_sizes, sample_sites
from ..model.posterior import Posterior
from .choice import MOST_LEVELS
from .rows import CELLS, Rows
from .subject import Subject

__all__ = ["subject_of_program"]

PyTree = Any


def subject_of_program(posterior: Posterior, data: Any, seed: int) -> Subject | None:
    """What a NumPyro model knows of itself; None of a posterior that is none."""
    prior = posterior.log_prior
    if not isinstance(prior, (Prior, Density)):
        return None
    program = prior.program
    output = posterior.output
    added = output.names if isinstance(output, Report) else ()
    start: Any = posterior.init
    sites = program.at(start, data)
    observed = sample_sites(sites, observed=True)
    dims, coords = _dims(sites, [*start, *added])
    common = {
        "position": lambda reported: {name: reported[name] for name in start},
        "dims": dims,
        "coords": coords,
        "prior": partial(_prior, program, tuple(start), added),
    }
    if isinstance(prior, Density):
        return _whole(program, observed, common)
    assert posterior.log_likelihood is not None
    rows = Rows.of(posterior.log_likelihood, data, seed=seed)
    inside = {n: s for n, s in observed.items() if n in program.inside(sites)}
    values = {name: np.asarray(site["value"]) for name, site in inside.items()}
    flat = {n: _seen(inside[n], v) for n, v in values.items() if v.shape[:1] == (rows.count,)}
    constant = {
        name: leaf
        for name, leaf in rows.data.items()
        if leaf.dtype != bool and not any(np.array_equal(leaf, value) for value in values.values())
    }
    replicate = partial(_replicated_rows, program, rows, tuple(flat))
    few = len(flat) == 1 and _has_levels(inside[next(iter(flat))])
    return Subject(
        rows, outcome=_joined(inside), observed=flat, constant=constant,
        replicate=replicate if flat else None,
        levels=partial(_levels_of_rows, program, rows, *flat) if few else None, **common,
    )  # fmt: skip


def _has_levels(site: Site) -> bool:
    """Whether an outcome is a single number that takes the values 0, 1, ... of the same few."""
    fn = site["fn"]
    if fn.event_shape != () or not fn.has_enumerate_support:
        return False
    try:
        support = np.asarray(fn.enumerate_support(expand=False)).ravel()
    except (NotImplementedError, ValueError, jax.errors.ConcretizationTypeError):
        return False  # NumPyro's, of a binomial whose numbers of trials differ: rows have no levels in common
    return len(support) <= MOST_LEVELS and np.array_equal(support, np.arange(len(support)))


def _probabilities(site: Site) -> Any:
    """Of the values 0, 1, ..., [level, ...]."""
    support = site["fn"].enumerate_support(expand=False)
    return jnp.exp(site["fn"].log_prob(support.astype(site["value"].dtype)))


def _seen(site: Site, value: np.ndarray) -> np.ndarray:
    """What was observed, NaN where a mask says that nothing was: what stands there may be any number."""
    mask = getattr(site["fn"], "_mask", None)
    if mask is None or np.all(mask):
        return value
    there = np.broadcast_to(np.asarray(mask), value.shape[: value.ndim - site["fn"].event_dim])
    there = there.reshape(*there.shape, *[1] * (value.ndim - there.ndim))
    return np.where(there, value, np.nan)


def _joined(sites: Mapping[str, Site]) -> str:
    """The name of what is observed; of several sites in a row, of their sum."""
    return "+".join(sites)


def _whole(program: Program, observed: dict[str, Site], common: dict[str, Any]) -> Subject:
    """Of a model that is one density: a row is one member of an observed site."""
    members = _Members.of(program, observed)
    if len(observed) > 1:
        return Subject(members, outcome=_joined(observed), **common)
    ((name, site),) = observed.items()
    event = np.shape(site["value"])[np.ndim(site["value"]) - site["fn"].event_dim :]
    value = _seen(site, np.asarray(site["value"])).reshape(members.count, *event)
    replicate = partial(_replicated_members, program, name, value.shape)
    levels = partial(_levels_of_members, program, name) if _has_levels(site) else None
    return Subject(
        members, outcome=name, observed={name: value}, replicate=replicate, levels=levels, **common
    )


@dataclass(frozen=True)
class _Members:
    """Log densities of the members of the observed sites, one after the other."""

    program: Program
    sites: tuple[str, ...]
    count: int
    plates: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(cls, program: Program, observed: dict[str, Site]) -> _Members:
        shapes = [s["fn"].log_prob(s["value"]).shape for s in observed.values()]
        return cls(program, tuple(observed), sum(int(np.prod(shape)) for shape in shapes))

    def names(self, numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The members are called by their places."""
        return numbers

    def block(self, draws: int) -> int:
        """How many are held together at so many draws."""
        return max(1, min(self.count, CELLS // draws))

    def values(self, positions: PyTree, numbers: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n S"]:
        """The members' log densities at positions [S, ...], float64."""
        return np.asarray(_members(self.program, positions, numbers, sites=self.sites), float).T


@partial(jax.jit, static_argnames="sites")
def _members(program: Program, positions: PyTree, numbers: Any, *, sites: tuple[str, ...]) -> Any:
    def one(position: PyTree) -> Any:
        found = program.at(position)
        sizes = plate_sizes(found)
        return jnp.concatenate([jnp.ravel(log_prob(found[n], sizes)) for n in sites])[numbers]

    return jax.lax.map(one, positions)


def _dims(
    sites: Mapping[str, Site], names: list[str]
) -> tuple[dict[str, list[str]], dict[str, list[int]]]:
    """Axes of sites that are plates, under the plates' names; the others are left to ArviZ."""
    dims, coords = {}, {}
    sizes = plate_sizes(sites)
    for name in names:
        site = sites[name]
        shape = np.shape(site["value"])
        event = site["fn"].event_dim if site["type"] == "sample" else 0
        axes = [f"{name}_dim_{k}" for k in range(len(shape))]
        for frame in site.get("cond_indep_stack", ()):
            axis = len(shape) - event + frame.dim
            if 0 <= axis < len(shape) and shape[axis] == sizes[frame.name]:
                axes[axis] = frame.name
                coords[frame.name] = list(range(sizes[frame.name]))
        if shape and any(not axis.startswith(f"{name}_dim_") for axis in axes):
            dims[name] = axes
    return dims, coords


def _free(key: Any) -> Callable[[Callable], Callable]:
    """A handler that lets observed sites, and latent ones without a value, be drawn anew."""
    from numpyro import handlers
    from numpyro.primitives import Messenger

    class Unobserved(Messenger):
        def process_message(self, msg: Site) -> None:
            if msg["type"] == "sample" and msg["is_observed"]:
                msg["is_observed"], msg["value"] = False, None

    return lambda model: handlers.seed(Unobserved(model), key)


def _prior(
    program: Program, names: tuple[str, ...], added: tuple[str, ...], count: int, seed: int
) -> PyTree:
    """Draws of the latent sites from the prior, [count, ...], and of the deterministic ones reported.

    NumPyro raises NotImplementedError where a prior is improper: there is nothing to draw from.
    """
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.tree.map(np.asarray, _from_prior(program, keys, names=(*names, *added)))


@partial(jax.jit, static_argnames="names")
def _from_prior(program: Program, keys: Any, *, names: tuple[str, ...]) -> PyTree:
    from numpyro import handlers

    def one(
        key: Any,
    ) -> PyTree:  # what is observed stays: nobody looks, and outcomes are slow to draw
        sites = program.at({}, inner=lambda model: handlers.seed(model, key))
        return {name: sites[name]["value"] for name in names}

    return jax.vmap(one)(keys)


def _replicated_rows(
    program: Program, rows: Rows, names: tuple[str, ...], positions: PyTree, numbers: Any, seed: int
) -> dict[str, np.ndarray]:
    """Outcomes drawn for rows, [S, n, ...]: one row at a time, each with a key of its own."""
    draws = len(jax.tree.leaves(positions)[0])
    keys = jax.random.split(jax.random.key(seed), (draws, len(numbers)))
    taken = jax.tree.map(jnp.asarray, rows.take(numbers))
    return jax.tree.map(np.asarray, _outcomes(program, taken, positions, keys, names=names))


@partial(jax.jit, static_argnames="names")
def _outcomes(
    program: Program, rows: PyTree, positions: PyTree, keys: Any, *, names: tuple[str, ...]
) -> PyTree:
    def one(given: Any) -> PyTree:
        position, own = given

        def row(key: Any, datum: PyTree) -> PyTree:
            sites = program.at(position, datum, one=True, inner=_free(key))
            return {name: sites[name]["value"][0] for name in names}

        return jax.vmap(row)(own, rows)

    return jax.lax.map(one, (positions, keys))


def _replicated_members(
    program: Program, name: str, shape: tuple[int, ...], positions: PyTree, numbers: Any, seed: int
) -> dict[str, np.ndarray]:
    """Outcomes drawn for members of the one observed site, [S, n, ...]."""
    draws = len(jax.tree.leaves(positions)[0])
    keys = jax.random.split(jax.random.key(seed), draws)

    def one(given: Any) -> Any:
        position, key = given
        return program.at(position, inner=_free(key))[name]["value"].reshape(shape)[numbers]

    found = jax.jit(lambda *given: jax.lax.map(one, given))(positions, keys)
    return {name: np.asarray(found)}


def _levels_of_rows(
    program: Program, rows: Rows, name: str, positions: PyTree, numbers: Any
) -> Float[np.ndarray, "S n level"]:
    """Probabilities of a row's outcomes; what is summed out over, or imputed, is drawn."""
    taken = jax.tree.map(jnp.asarray, rows.take(numbers))
    return np.asarray(_levels(program, taken, positions, name=name))


@partial(jax.jit, static_argnames="name")
def _levels(program: Program, rows: PyTree, positions: PyTree, *, name: str) -> Any:
    keys = jax.random.split(jax.random.key(0), len(jax.tree.leaves(rows)[0]))

    def one(position: PyTree) -> Any:
        def row(key: Any, datum: PyTree) -> Any:
            return _probabilities(program.at(position, datum, one=True, inner=_free(key))[name])[
                :, 0
            ]

        return jax.vmap(row)(keys, rows)

    return jax.lax.map(one, positions)


def _levels_of_members(
    program: Program, name: str, positions: PyTree, numbers: Any
) -> Float[np.ndarray, "S n level"]:
    """Probabilities of the members' outcomes."""

    def one(position: PyTree) -> Any:
        found = _probabilities(program.at(position)[name])
        return found.reshape(len(found), -1)[:, numbers].T

    return np.asarray(jax.jit(lambda given: jax.lax.map(one, given))(positions))
