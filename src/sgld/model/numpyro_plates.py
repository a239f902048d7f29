"""A NumPyro model as functions of a position: log prior, log likelihood of one row, full density.

    log p(theta, y) = sum over sites outside the row plates  log p(site | theta)
                    + sum over rows i, over sites inside      log p(site_i | theta)

The first sum is the log prior, the second the log likelihoods of rows: the model is run with ONE row
of every argument that has one per row, and its row plates have one member.

Free numbers are mapped to constrained sites and back. If the support of a site consists of numbers,
NumPyro's bijection is used. If it depends on other sites or on data, the bijection is read from a run of
the model.

A plate is over rows if sites inside it are observed, none inside is latent, and arguments of the
model have its size as leading axis. All other properties of a model are found by running it at several
positions, in double precision. Every row alone must have the log density that it has among all rows. The
sites outside must not change when the other rows are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from ..errors import UsageError
from .modules import Held
from .numpyro_sites import (
    Arguments,
    Latents,
    Site,
    first_line,
    log_prob,
    plate_sizes,
    run,
    sample_sites,
)
from .posterior import Constraints, Transform

PyTree = Any
NAN_SUFFIX = " is NaN"  # appended to the name of a row leaf that contains NaN


def row_name(name: str) -> str:
    """Return the name of the leaf that marks which of a row's numbers are NaN."""
    return name + NAN_SUFFIX


@dataclass(frozen=True)
class Form:
    """The static part of a program.

    Attributes:
      model: the user's model.
      treedef: the structure of its arguments.
      slots: the content of each argument's leaf: ("row", name), a leaf of the data;
        ("number", k), an array; ("held", value), not an array, or one that must be concrete.
      plates: the row plates.
      blank: shape and dtype of each row leaf, for all rows, if no site outside the row plates
        uses their values; None if one does, and they are numbers too.
      dropped: latent sites that are neither sampled nor counted (`Latents`).
      summed: discrete latent sites of the rows, and their possible values.
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
    """A model with its arguments, which can be run at any position.

    Attributes:
      numbers: the arrays among the arguments, except for rows.
      whole: all rows, by name, if a site outside the row plates uses them; else empty.
    """

    numbers: tuple[Any, ...]
    whole: dict[str, Any]
    form: Form = field(metadata={"static": True})

    @classmethod
    def of(
        cls, model: Callable, arguments: Arguments, latents: Latents, *, rows: tuple[str, ...] = (),
        plates: frozenset[str] = frozenset(), concrete: bool = False,
    ) -> Program:  # fmt: skip
        """Return a program whose arguments `rows` are rows; `concrete` makes its numbers static."""
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
        """Return the model's sites at a position: with `one` for the single row `rows`, else all.

        Without `rows`, the program's own rows are used, or zeros if no site depends on them.
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
        """Return the sample sites in the row plates."""
        return {n: s for n, s in self._counted(sites).items() if self._row_frames(s)}

    def outside(self, sites: Mapping[str, Site]) -> dict[str, Site]:
        """Return all other sample sites."""
        return {n: s for n, s in self._counted(sites).items() if not self._row_frames(s)}

    def _counted(self, sites: Mapping[str, Site]) -> dict[str, Site]:
        every = {**sample_sites(sites, observed=True), **sample_sites(sites, observed=False)}
        return {name: site for name, site in every.items() if name not in self.form.dropped}

    def _row_frames(self, site: Site) -> set[str]:
        return {frame.name for frame in site["cond_indep_stack"]} & self.form.plates

    def log_prior(self, sites: Mapping[str, Site]) -> Float[Array, ""]:
        """Return the sum of the log densities of the sites outside the row plates."""
        sizes = plate_sizes(sites)
        return _sum(log_prob(site, sizes) for site in self.outside(sites).values())

    def log_likelihood(self, sites: Mapping[str, Site]) -> Float[Array, ""]:
        """Return the sum of the log densities of the sites inside the row plates."""
        sizes = plate_sizes(sites)
        inside = self.inside(sites).values()
        return _sum(log_prob(site, sizes, self.form.plates) for site in inside)

    def by_row(self, sites: Mapping[str, Site]) -> Float[Array, " N"]:
        """Return the log densities inside the row plates, summed by row, of a run with all rows."""
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
    """The log_prior of a Posterior: all sites outside the row plates."""

    program: Program

    def __call__(self, position: PyTree) -> Float[Array, ""]:  # noqa: D102
        return self.program.log_prior(self.program.at(position))


@as_pytree
@dataclass(frozen=True)
class Likelihood:
    """The log_likelihood of a Posterior: the sites of one row, with discrete ones summed out."""

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
    """The log density of a Posterior without rows: all sites."""

    program: Program

    def __call__(self, position: PyTree) -> Float[Array, ""]:  # noqa: D102
        sites = self.program.at(position)
        return self.program.log_prior(sites) + self.program.log_likelihood(sites)


@as_pytree
@dataclass(frozen=True)
class Report:
    """The output of a Posterior: the position and deterministic sites."""

    program: Program
    names: tuple[str, ...] = field(metadata={"static": True})

    def __call__(self, position: PyTree) -> PyTree:  # noqa: D102
        sites = self.program.at(position)
        return {**position, **{name: sites[name]["value"] for name in self.names}}


# -- constrained ---------------------------------------------------------------------------


def transform_of(latent: Mapping[str, Site], program: Program) -> Transform | None:
    """Return the transform of a model's latent sites, or None if all are unconstrained."""
    from numpyro.distributions import biject_to, constraints

    supports = {name: site["fn"].support for name, site in latent.items()}
    for name, support in supports.items():
        try:
            biject_to(support)
        except NotImplementedError as error:  # NumPyro has no bijection for this support
            raise UsageError(
                f"the latent site {name!r} has the support {support}, and NumPyro has no bijection from free numbers "
                "to it; use another distribution, or numpyro.handlers.reparam (ProjectedNormalReparam for a sphere)."
            ) from error
    if all(support is constraints.real for support in supports.values()):
        return None
    numbers = (int, float)
    if all(isinstance(x, numbers) for s in supports.values() for x in jax.tree.leaves(s)):
        return Constraints.build(supports)
    return Supported(program, tuple(sorted(supports)))


@as_pytree
@dataclass(frozen=True)
class Supported:
    """Each site's bijection onto its support, at the values of the sites before it."""

    program: Program
    names: tuple[str, ...] = field(metadata={"static": True})

    def forward(self, free: PyTree) -> PyTree:
        """Return constrained values."""
        return self._walk(free, lambda t, x: (t(x), t(x)))[0]

    def inverse(self, position: PyTree) -> PyTree:
        """Return free values."""
        return self._walk(position, lambda t, y: (y, t._inverse(jnp.asarray(y))))[0]

    def log_det(self, free: PyTree) -> Float[Array, ""]:
        """Return the sum over sites of log |d position / d free|."""

        def one(t: Any, x: Any) -> tuple[Any, Any]:
            y = t(x)
            return y, jnp.sum(t.log_abs_det_jacobian(x, y))

        return sum(self._walk(free, one)[0].values(), start=jnp.zeros(()))

    def _walk(self, given: PyTree, step: Callable) -> tuple[dict[str, Any], Any]:
        """Apply `step(bijection, given value) -> (site value, kept value)` at every latent site."""
        from numpyro.distributions import biject_to
        from numpyro.primitives import Messenger

        kept: dict[str, Any] = {}

        class Walk(Messenger):
            def process_message(self, msg: Site) -> None:
                if msg["type"] == "sample" and msg["name"] in given and not msg["is_observed"]:
                    bijection = biject_to(msg["fn"].support)
                    msg["value"], kept[msg["name"]] = step(bijection, given[msg["name"]])

        sites = self.program.at({}, inner=Walk)
        return {name: kept[name] for name in self.names}, sites


# -- rows ----------------------------------------------------------------------------------


COMPARED_POINTS = 3
PLATE_ROWS = 4096
MAX_ROW_ERROR = 1e-4  # relative, of a row's log density, for models in single precision
TOTAL_ERROR = 1e-2  # nats of the log density of all rows: negligible in a posterior
# relative, of all rows' log densities, without double precision
FLOAT32_ERROR = 1e-6


@dataclass(frozen=True)
class RowPlates:
    """Plates over the same rows, their size, and the arguments with one row per member."""

    plates: frozenset[str]
    size: int
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A verified program by rows, or the reason why there is none."""

    program: Program | None = None
    reason: str = ""
    deterministic: tuple[str, ...] = ()  # sites that do not change with the rows


def find_rows(arguments: Arguments, sites: Mapping[str, Site]) -> RowPlates | str:
    """Return the largest row plates of a model, or the reason why there are none."""
    sampled = Latents.of(sites).sampled
    held = {f.name: name for name, site in sampled.items() for f in site["cond_indep_stack"]}
    sizes = plate_sizes(sites)
    observed = sample_sites(sites, observed=True).values()
    over = list(dict.fromkeys(f.name for site in observed for f in site["cond_indep_stack"]))
    if not over:
        return (
            "no observed site is inside a plate; put the observed sites into numpyro.plate(name, number of rows) and "
            "pass the data as arguments of the model"
        )
    free = [name for name in over if name not in held]
    if not free:
        return f"plate {over[0]!r} holds the latent site {held[over[0]]!r} in addition to observed ones"
    lengths = {leaf.length for leaf in arguments.leaves}
    known = [name for name in free if sizes[name] in lengths]
    if not known:
        return (
            f"no argument of the model has {sizes[free[0]]} rows, the size of plate {free[0]!r}; pass the data as "
            "arrays among its arguments"
        )
    size = max(sizes[name] for name in known)
    rows = tuple(leaf.name for leaf in arguments.leaves if leaf.length == size)
    return RowPlates(frozenset(n for n in free if sizes[n] == size), size, rows)


def packed(arguments: Arguments, rows: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return the rows as data by argument name, with masks of NaN where there are any."""
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
    """Return the program that runs the model one row at a time, checked at every row.

    The result holds the reason if there is no such program.
    """
    program = Program.of(model, arguments, latents, rows=found.rows, plates=found.plates)
    data = packed(arguments, found.rows)
    given = (program, data, latents, transform, init)
    try:
        # JAX fixes the precision of arrays in the model's closure at the first trace, as long as a
        # reference to that trace exists
        held = _both.trace(*_doubled(*given))
        try:
            with jax.enable_x64(True):
                whole, alone = _compared(*given)
        except (ValueError, RuntimeError, TypeError):
            whole, alone = _compared(*given)
        del held
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
        return Found(
            reason="it uses values of its arguments (np.unique or int() of an array, say), which is not possible "
            "with one row at a time; pass the derived value, such as a number of groups, as an argument"
        )
    except Exception as error:  # a model may raise any type with one row instead of all
        return Found(reason=f"it fails when run with one row at a time: {first_line(error)}")
    differs = _differing(whole["rows"], alone["rows"])
    if differs is not None:
        return Found(
            reason=f"the log density of row {differs} differs alone and among all rows: rows depend on one another, "
            "or on values computed from all rows; compute those outside the model and pass them as arguments"
        )
    if _differing(whole["prior"][:, None], alone["prior"][:, None]) is not None:
        # a site outside the plates depends on the rows, such as a prior scaled by the outcome's mean
        form = replace(program.form, blank=None)
        program = replace(program, whole=data, form=form)
    same = [n for n in whole["sites"] if _differing(whole["sites"][n], alone["sites"][n]) is None]
    return Found(program, deterministic=tuple(same))


def _compared(
    program: Program, data: dict[str, np.ndarray], latents: Latents,
    transform: Transform | None, init: PyTree,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Return log densities and deterministic sites of the whole model, and of one row at a time."""
    return jax.tree.map(np.asarray, _both(*_doubled(program, data, latents, transform, init)))


def _doubled(
    program: Program, data: dict[str, np.ndarray], latents: Latents,
    transform: Transform | None, init: PyTree,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the arguments of `_both`, in double precision if that is enabled."""
    double = lambda x: x.astype(np.float64) if np.issubdtype(x.dtype, np.floating) else x  # noqa: E731
    program, data, init = jax.tree.map(lambda x: double(np.asarray(x)), (program, data, init))
    form = program.form
    blank = tuple((n, s, str(data[n].dtype)) for n, s, _ in form.blank or ())
    program = replace(program, form=replace(form, blank=blank))
    free = init if transform is None else transform.inverse(init)
    rng = np.random.default_rng(0)
    points = jax.tree.map(
        lambda x: x + rng.uniform(-1.0, 1.0, (COMPARED_POINTS, *np.shape(x))), free
    )
    size = len(jax.tree.leaves(data)[0])
    summed = {name: rng.choice(values, size) for name, values in latents.summed.items()}
    return program, data, summed, transform, points


@jax.jit
def _both(
    program: Program, data: PyTree, summed: PyTree, transform: Transform | None, points: PyTree
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return results at every point: of a run with all rows, and of runs of each row and of none."""

    def summarise(sites: Mapping[str, Site], rows: Any) -> dict[str, Any]:
        fixed = {n: jnp.ravel(s["value"]) for n, s in sites.items() if s["type"] == "deterministic"}
        return {"rows": rows, "prior": program.log_prior(sites), "sites": fixed}

    def one(free: PyTree) -> tuple[dict[str, Any], dict[str, Any]]:
        position = free if transform is None else transform.forward(free)

        def row(given: tuple[PyTree, PyTree]) -> Any:
            own = {name: value[None] for name, value in given[1].items()}
            return program.log_likelihood(program.at({**position, **own}, given[0], one=True))

        everywhere = {**position, **summed}
        sites = program.at(everywhere, data)
        each = jax.lax.map(row, (data, summed), batch_size=PLATE_ROWS)
        return summarise(sites, program.by_row(sites)), summarise(program.at(everywhere), each)

    return jax.lax.map(one, points)


def _differing(whole: np.ndarray, alone: np.ndarray) -> int | None:
    """Return the first column of [point, column] that differs, or None if all agree."""
    if whole.shape != alone.shape:
        return 0
    same = (whole == alone) | (np.isnan(whole) & np.isnan(alone))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(whole - alone))
        wrong = ~(apart <= MAX_ROW_ERROR * (1 + np.abs(whole)))
    if wrong.any():
        return int(np.argmax(wrong.any(axis=0)))
    total = np.abs(np.sum(np.where(same, 0.0, whole - alone), axis=1))
    exact = whole.dtype == np.float64
    allowed = (
        TOTAL_ERROR
        if exact
        else TOTAL_ERROR + FLOAT32_ERROR * np.sum(np.where(same, 0.0, np.abs(whole)), axis=1)
    )
    return int(np.argmax(apart.max(axis=0))) if (total > allowed).any() else None
