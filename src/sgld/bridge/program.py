"""A NumPyro model as functions of a position: log prior, log likelihood of one row, full density.

    log p(theta, y) = sum over sites outside the row plates  log p(site | theta)
                    + sum over rows i, over sites inside      log p(site_i | theta)

The first sum is the log prior, the second the rows' log likelihoods: the model is run with ONE row
of every argument that has one per row, and its row plates hold one member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from ..module import Held
from .arguments import Arguments
from .sites import Latents, Site, log_prob, plate_sizes, run, sample_sites

__all__ = ["Density", "Form", "Likelihood", "Prior", "Program", "Report", "row_name"]

PyTree = Any
MISSING = " is NaN"  # beside the name of a row leaf that holds some


def row_name(name: str) -> str:
    """The name of the leaf that says which of a row's numbers are NaN."""
    return name + MISSING


@dataclass(frozen=True)
class Form:
    """What is static of a program.

    Attributes:
      model: the user's.
      treedef: of its arguments.
      slots: for each argument's leaf, what stands there: ("row", name), a leaf of the data;
        ("number", k), an array; ("held", value), what is no array, or one that must be concrete.
      plates: the row plates.
      blank: shape and dtype of each row leaf, all rows of it, where no site outside the row plates
        looks at their values; None where one does, and they are numbers too.
      dropped: latent sites that are neither sampled nor counted (`Latents`).
      summed: discrete latent sites of the rows, and the values they can take.
    """

    model: Callable
    treedef: Any
    slots: tuple[tuple[str, Any], ...]
    plates: frozenset[str] = frozenset()
    blank: tuple[tuple[str, tuple[int, ...], str], ...] | None = ()
    dropped: tuple[str, ...] = ()
    summed: tuple[tuple[str, tuple[float, ...]], ...] = ()


@as_pytree
@dataclass(frozen=True)
class Program:
    """A model with its arguments, ready to be run at any position.

    Attributes:
      numbers: the arrays among the arguments, but for rows.
      whole: all rows, by name, where a site outside the row plates looks at them; else nothing.
    """

    numbers: tuple[Any, ...]
    whole: dict[str, Any]
    form: Form = field(metadata={"static": True})

    @classmethod
    def of(
        cls, model: Callable, arguments: Arguments, latents: Latents, *, rows: tuple[str, ...] = (),
        plates: frozenset[str] = frozenset(), concrete: bool = False,
    ) -> Program:  # fmt: skip
        """A program whose arguments of names `rows` are rows; with `concrete`, its numbers are static."""
        slots, numbers, blank = [], [], []
        for leaf in arguments.leaves:
            if leaf.name in rows:
                assert leaf.array is not None
                slots.append(("row", leaf.name))
                blank.append((leaf.name, leaf.array.shape, str(leaf.array.dtype)))
            elif leaf.array is None or concrete:
                slots.append(("held", Held(leaf.value)))
            else:
                slots.append(("number", len(numbers)))
                numbers.append(leaf.array)
        summed = tuple((name, tuple(values.tolist())) for name, values in latents.summed.items())
        form = Form(
            model, arguments.treedef, tuple(slots), plates, tuple(blank), latents.dropped, summed
        )
        return cls(tuple(numbers), {}, form)

    def at(
        self, position: Mapping[str, Any], rows: Mapping[str, Any] | None = None, *,
        one: bool = False, inner: Any = None,
    ) -> dict[str, Site]:  # fmt: skip
        """The model's sites at a position: with `one`, of one row `rows`, else of all.

        Without `rows` those that the program holds are taken, or zeros where nobody looks.
        """
        if rows is None:
            rows = self.whole or self._blank()
        values = []
        for kind, what in self.form.slots:
            if kind == "held":
                values.append(what.value)
            elif kind == "number":
                values.append(jnp.asarray(self.numbers[what]))
            else:
                row = _restored(rows, what)
                values.append(row[None] if one else row)
        args, kwargs = jax.tree.unflatten(self.form.treedef, values)
        plates = self.form.plates if one else frozenset()
        position = {name: jnp.asarray(value) for name, value in position.items()}
        return run(self.form.model, args, kwargs, position, rows=plates, inner=inner)

    def _blank(self) -> dict[str, Array]:
        return {
            name: jnp.zeros(shape, _canonical(dtype))
            for name, shape, dtype in self.form.blank or ()
        }

    def inside(self, sites: Mapping[str, Site]) -> dict[str, Site]:
        """The sample sites in the row plates."""
        return {n: s for n, s in self._counted(sites).items() if self._row_frames(s)}

    def outside(self, sites: Mapping[str, Site]) -> dict[str, Site]:
        """All other sample sites."""
        return {n: s for n, s in self._counted(sites).items() if not self._row_frames(s)}

    def _counted(self, sites: Mapping[str, Site]) -> dict[str, Site]:
        every = {**sample_sites(sites, observed=True), **sample_sites(sites, observed=False)}
        return {name: site for name, site in every.items() if name not in self.form.dropped}

    def _row_frames(self, site: Site) -> set[str]:
        return {frame.name for frame in site["cond_indep_stack"]} & self.form.plates

    def log_prior(self, sites: Mapping[str, Site]) -> Float[Array, ""]:
        """The sum of the log densities of the sites outside the row plates."""
        sizes = plate_sizes(sites)
        return _sum(log_prob(site, sizes) for site in self.outside(sites).values())

    def log_likelihood(self, sites: Mapping[str, Site]) -> Float[Array, ""]:
        """The sum of the log densities of the sites inside the row plates."""
        sizes = plate_sizes(sites)
        inside = self.inside(sites).values()
        return _sum(log_prob(site, sizes, self.form.plates) for site in inside)

    def by_row(self, sites: Mapping[str, Site]) -> Float[Array, " N"]:
        """The log densities inside the row plates, summed for each row; of a run with all rows."""
        sizes = plate_sizes(sites)
        total: Any = 0.0
        for site in self.inside(sites).values():
            value = log_prob(site, sizes)
            (frame,) = [f for f in site["cond_indep_stack"] if f.name in self.form.plates]
            axis = value.ndim + frame.dim
            others = tuple(k for k in range(value.ndim) if k != axis)
            total = total + jnp.sum(value, axis=others)
        return total


def _restored(rows: Mapping[str, Any], name: str) -> Array:
    value = jnp.asarray(rows[name])
    missing = rows.get(row_name(name))
    return value if missing is None else jnp.where(missing, jnp.nan, value)


def _canonical(dtype: str) -> Any:
    return jax.dtypes.canonicalize_dtype(np.dtype(dtype))


def _sum(values: Any) -> Float[Array, ""]:
    return sum((jnp.sum(value) for value in values), start=jnp.zeros(()))


@as_pytree
@dataclass(frozen=True)
class Prior:
    """log_prior of a Posterior: all sites outside the row plates."""

    program: Program

    def __call__(self, position: PyTree) -> Float[Array, ""]:  # noqa: D102
        return self.program.log_prior(self.program.at(position))


@as_pytree
@dataclass(frozen=True)
class Likelihood:
    """log_likelihood of a Posterior: the sites inside the row plates, of one row, discrete ones summed out."""

    program: Program

    def __call__(self, position: PyTree, datum: PyTree) -> Float[Array, ""]:  # noqa: D102
        summed = self.program.form.summed

        def at(values: Mapping[str, Array]) -> Float[Array, ""]:
            sites = self.program.at({**position, **values}, datum, one=True)
            return self.program.log_likelihood(sites)

        if not summed:
            return at({})
        grid = np.meshgrid(*(np.array(values) for _, values in summed), indexing="ij")
        combined = {
            name: jnp.asarray(g.reshape(-1, 1)) for (name, _), g in zip(summed, grid, strict=True)
        }
        return jax.nn.logsumexp(jax.vmap(at)(combined))


@as_pytree
@dataclass(frozen=True)
class Density:
    """Log density of a Posterior without rows: all sites."""

    program: Program

    def __call__(self, position: PyTree) -> Float[Array, ""]:  # noqa: D102
        sites = self.program.at(position)
        return self.program.log_prior(sites) + self.program.log_likelihood(sites)


@as_pytree
@dataclass(frozen=True)
class Report:
    """output of a Posterior: the position and deterministic sites."""

    program: Program
    names: tuple[str, ...] = field(metadata={"static": True})

    def __call__(self, position: PyTree) -> PyTree:  # noqa: D102
        sites = self.program.at(position)
        return {**position, **{name: sites[name]["value"] for name in self.names}}
