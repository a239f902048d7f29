"""Which plates are over rows, and whether one row at a time says the same as all of them.

A plate is over rows where sites inside it are observed, none inside is latent, and arguments of the
model have its size as leading axis. Everything else about a model is found by running it: at several
positions, in double precision, every row by itself must have the log density that it has among all,
and the sites outside must not see that the other rows are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..posterior import Transform
from .arguments import Arguments
from .program import Program, row_name
from .sites import Latents, Site, first_line, plate_sizes, sample_sites

__all__ = ["Found", "RowPlates", "by_rows", "find_rows", "packed"]

POINTS = 3
ROWS_AT_ONCE = 4096
EACH = 1e-4  # of a row's log density, where a model computes in single precision
ALL = 1e-2  # of the log density of all rows, in nats: nobody sees it in a posterior
ROUNDING = 1e-6  # of all rows' log densities, where nothing is computed in double precision
PyTree = Any


@dataclass(frozen=True)
class RowPlates:
    """Plates over the same rows, their size, and the arguments that have a row for each member."""

    plates: frozenset[str]
    size: int
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A program by rows that was found right, or why there is none."""

    program: Program | None = None
    reason: str = ""
    deterministic: tuple[str, ...] = ()  # sites that do not change with the rows


def find_rows(arguments: Arguments, sites: Mapping[str, Site]) -> RowPlates | str:
    """The row plates of a model, the largest ones; or a sentence's end that says why there are none."""
    sampled = Latents.of(sites).sampled
    held = {f.name: name for name, site in sampled.items() for f in site["cond_indep_stack"]}
    sizes = plate_sizes(sites)
    observed = sample_sites(sites, observed=True).values()
    over = list(dict.fromkeys(f.name for site in observed for f in site["cond_indep_stack"]))
    if not over:
        return (
            "no observed site is inside a plate; put them into numpyro.plate(name, number of rows) and give "
            "the data as arguments of the model"
        )
    free = [name for name in over if name not in held]
    if not free:
        return f"plate {over[0]!r} holds the latent site {held[over[0]]!r} beside observed ones"
    lengths = {leaf.length for leaf in arguments.leaves}
    known = [name for name in free if sizes[name] in lengths]
    if not known:
        return (
            f"no argument of the model has {sizes[free[0]]} rows, the size of plate {free[0]!r}; give the data as "
            "arrays among its arguments"
        )
    size = max(sizes[name] for name in known)
    rows = tuple(leaf.name for leaf in arguments.leaves if leaf.length == size)
    return RowPlates(frozenset(n for n in free if sizes[n] == size), size, rows)


def packed(arguments: Arguments, rows: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The rows as data: by the names of the arguments; of those with NaN, where they are."""
    data: dict[str, np.ndarray] = {}
    for leaf in arguments.leaves:
        if leaf.name not in rows:
            continue
        assert leaf.array is not None
        missing = np.isnan(leaf.array) if np.issubdtype(leaf.array.dtype, np.floating) else None
        data[leaf.name] = leaf.array
        if missing is not None and missing.any():
            data[leaf.name] = np.where(missing, 0.0, leaf.array).astype(leaf.array.dtype)
            data[row_name(leaf.name)] = missing
    return data


def by_rows(
    model: Any, arguments: Arguments, latents: Latents, found: RowPlates,
    transform: Transform | None, init: PyTree,
) -> Found:  # fmt: skip
    """The program that runs the model one row at a time, checked at every row; or why there is none."""
    program = Program.of(model, arguments, latents, rows=found.rows, plates=found.plates)
    data = packed(arguments, found.rows)
    given = (program, data, latents, transform, init)
    try:
        # of arrays that the model closes over JAX keeps the precision in which it meets them, as long as
        # anybody holds what was made of them
        held = _both.trace(*_doubled(*given))
        try:
            with jax.enable_x64(True):
                whole, alone = _compared(*given)
        except (ValueError, RuntimeError, TypeError):
            whole, alone = _compared(*given)
        del held
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
        return Found(
            reason="it looks at values of its arguments (np.unique or int() of an array, say), which is not possible "
            "with one row at a time; give what it makes of them, a number of groups, as an argument"
        )
    except Exception as error:  # whatever a model does with one row instead of all
        return Found(reason=f"run with one row at a time it fails: {first_line(error)}")
    differs = _differing(whole["rows"], alone["rows"])
    if differs is not None:
        return Found(
            reason=f"row {differs} has another log density alone than among all: rows depend on one another, "
            "or on numbers made of all rows; make those outside the model and give them as arguments"
        )
    if _differing(whole["prior"][:, None], alone["prior"][:, None]) is not None:
        # a site outside the plates looks at the rows, as a prior scaled by the outcome's mean does
        form = replace(program.form, blank=None)
        program = replace(program, whole=data, form=form)
    same = [n for n in whole["sites"] if _differing(whole["sites"][n], alone["sites"][n]) is None]
    return Found(program, deterministic=tuple(same))


def _compared(
    program: Program, data: dict[str, np.ndarray], latents: Latents,
    transform: Transform | None, init: PyTree,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Log densities of rows and of the rest, and deterministic sites: of the whole model, of one row alone."""
    return jax.tree.map(np.asarray, _both(*_doubled(program, data, latents, transform, init)))


def _doubled(
    program: Program, data: dict[str, np.ndarray], latents: Latents,
    transform: Transform | None, init: PyTree,
) -> tuple[Any, ...]:  # fmt: skip
    """What `_both` is given, in double precision where that is on."""
    double = lambda x: x.astype(np.float64) if np.issubdtype(x.dtype, np.floating) else x  # noqa: E731
    program, data, init = jax.tree.map(lambda x: double(np.asarray(x)), (program, data, init))
    form = program.form
    blank = tuple((n, s, str(data[n].dtype)) for n, s, _ in form.blank or ())
    program = replace(program, form=replace(form, blank=blank))
    free = init if transform is None else transform.inverse(init)
    rng = np.random.default_rng(0)
    points = jax.tree.map(lambda x: x + rng.uniform(-1.0, 1.0, (POINTS, *np.shape(x))), free)
    size = len(jax.tree.leaves(data)[0])
    summed = {name: rng.choice(values, size) for name, values in latents.summed.items()}
    return program, data, summed, transform, points


@jax.jit
def _both(
    program: Program, data: PyTree, summed: PyTree, transform: Transform | None, points: PyTree
) -> tuple[dict[str, Any], dict[str, Any]]:
    """At every point: of a run of all rows; and of each row's own run, and one without rows."""

    def told(sites: Mapping[str, Site], rows: Any) -> dict[str, Any]:
        fixed = {n: jnp.ravel(s["value"]) for n, s in sites.items() if s["type"] == "deterministic"}
        return {"rows": rows, "prior": program.log_prior(sites), "sites": fixed}

    def one(free: PyTree) -> tuple[dict[str, Any], dict[str, Any]]:
        position = free if transform is None else transform.forward(free)

        def row(given: tuple[PyTree, PyTree]) -> Any:
            own = {name: value[None] for name, value in given[1].items()}
            return program.log_likelihood(program.at({**position, **own}, given[0], one=True))

        everywhere = {**position, **summed}
        sites = program.at(everywhere, data)
        each = jax.lax.map(row, (data, summed), batch_size=ROWS_AT_ONCE)
        return told(sites, program.by_row(sites)), told(program.at(everywhere), each)

    return jax.lax.map(one, points)


def _differing(whole: np.ndarray, alone: np.ndarray) -> int | None:
    """The first column [point, column] that differs, None where all are the same."""
    if whole.shape != alone.shape:
        return 0
    same = (whole == alone) | (np.isnan(whole) & np.isnan(alone))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(whole - alone))
        wrong = ~(apart <= EACH * (1 + np.abs(whole)))
    if wrong.any():
        return int(np.argmax(wrong.any(axis=0)))
    total = np.abs(np.sum(np.where(same, 0.0, whole - alone), axis=1))
    exact = whole.dtype == np.float64
    allowed = ALL if exact else ALL + ROUNDING * np.sum(np.where(same, 0.0, np.abs(whole)), axis=1)
    return int(np.argmax(apart.max(axis=0))) if (total > allowed).any() else None
