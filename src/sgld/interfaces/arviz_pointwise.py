"""Describe the model of some draws: its rows, outcome, predictions and prior.

For a formula, the description holds outcome, columns, levels, predictions and draws of the prior.
For a NumPyro model, it holds observed sites, plates, predictions and draws of the prior.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..core.pytrees import leaf_names
from ..data.mapped import OnDisk
from ..errors import UsageError
from ..model.modules import with_modules
from ..model.numpyro import resolve_model
from ..model.numpyro_plates import Density, Prior, Program, Report
from ..model.numpyro_sites import Site, log_prob, plate_sizes, sample_sites
from ..model.posterior import Posterior
from ..regression.formula import FormulaModel
from ..regression.result import prior_draws
from ..results.draws import Draws
from ..results.plan import known_of
from ..results.summary import target_of
from .arviz_rows import MAX_HELD_CELLS, MAX_PROB_LEVELS, Choice, Rows

PyTree = Any
ROW_DIMENSION = "row"


@runtime_checkable
class Pointwise(Protocol):
    """Log likelihoods of single rows."""

    @property
    def count(self) -> int: ...  # noqa: D102
    def names(self, numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]: ...  # noqa: D102
    def block(self, draws: int) -> int: ...  # noqa: D102
    def values(  # noqa: D102
        self, positions: PyTree, numbers: Int[np.ndarray, " n"]
    ) -> Float[np.ndarray, "n S"]: ...


@dataclass(frozen=True)
class Subject:
    """A model with its rows, as far as it is known.

    Attributes:
      rows: log likelihoods of rows; None without rows.
      position: a function from reported values to positions of log likelihoods; it keeps leading
        axes [S].
      outcome: the name of the outcome.
      observed, constant: arrays [N, ...] by name: outcomes, and the other values of the rows.
      dims, coords: of parameters whose axes the model names.
      replicate: (positions [S, ...], rows [n], seed) -> outcomes [S, n, ...] by name.
      levels: for an outcome with few values, (positions [S, ...], rows [n]) -> their probabilities
        [S, n, level]; the values are 0, 1, ...
      prior: (count, seed) -> reported positions [count, ...] from the prior.
    """

    rows: Pointwise | None
    position: Callable[[PyTree], PyTree]
    outcome: str = "outcome"
    observed: dict[str, np.ndarray] = field(default_factory=dict)
    constant: dict[str, np.ndarray] = field(default_factory=dict)
    dims: dict[str, list[str]] = field(default_factory=dict)
    coords: dict[str, Any] = field(default_factory=dict)
    replicate: Callable[[PyTree, Any, int], dict[str, np.ndarray]] | None = None
    levels: Callable[[PyTree, Any], np.ndarray] | None = None
    prior: Callable[[int, int], PyTree] | None = None

    def needed_rows(self, what: str) -> Pointwise:
        """Return the rows. Raise UsageError if there are none."""
        if self.rows is None:
            raise UsageError(
                f"{what} needs the log likelihoods of single rows, but this posterior is one log density. Pass "
                "log_likelihood, the function of one row, to sgld.Posterior, and the rows as data."
            )
        return self.rows


def subject_of(
    draws: Draws, posterior: Any = None, data: Any = None, *, outcome: Any = None,
    simulate: Callable | None = None,
) -> Subject:  # fmt: skip
    """Describe the model of `draws`: the given posterior and data, or those that the draws know.

    Raises UsageError if the draws know no posterior, or hold something else than positions.
    """

    origin = draws.origin
    if draws.moments is not None or (origin is not None and origin.kept):
        raise UsageError(
            "these draws are values of keep=, but log likelihoods need the positions; sample without keep."
        )
    if posterior is None:
        known = known_of(origin)
        if known.model is not None:
            return subject_of_formula(known.model)
        posterior, data = known.posterior, known.data
    if posterior is None:
        raise UsageError(
            "these draws do not know their posterior (they were loaded, copied or made elsewhere). Pass it with its rows "
            "as posterior= and data=; for a NumPyro model, pass posterior=model and its arguments as data."
        )
    posterior, data, _ = resolve_model(posterior, data, None)
    if not isinstance(posterior, Posterior):
        raise UsageError(f"posterior must be an sgld.Posterior. Got {type(posterior).__name__}.")
    posterior = with_modules(posterior, draws.position)
    seed = int(draws.info.get("seed") or 0)
    written = subject_of_program(posterior, data, seed)
    if written is not None:
        return written
    chain = int(draws.healthy[0]) if draws.healthy.size else 0
    last = jax.tree.map(lambda leaf: np.asarray(leaf)[chain, -1], draws.position)
    return _plain(posterior, data, seed, outcome, simulate, last)


def check_target(draws: Draws, what: str) -> None:
    """Raise UsageError if the draws follow another distribution than the posterior."""
    target, method = target_of(draws), draws.info.get("method")
    if target != "the posterior" or method == "laplace":
        target = "a Gaussian approximation" if method == "laplace" else target
        raise UsageError(
            f"{what} needs draws of the posterior itself. These are draws of {target}; use sgld.sample or sgld.reference."
        )


def _plain(
    posterior: Posterior,
    data: Any,
    seed: int,
    outcome: Any,
    simulate: Callable | None,
    one_draw: PyTree,
) -> Subject:
    """Describe a posterior of two functions; `outcome` says which data are the outcome."""
    position = _positions(posterior)
    if posterior.log_likelihood is None or data is None:
        return Subject(None, position)
    rows = Rows.of(posterior.log_likelihood, data, seed=seed)
    if rows.source is not None:  # its rows may not fit into memory
        return Subject(rows, position)
    names = [f"data{name}" if name.startswith("[") else name for name in leaf_names(rows.data)]
    arrays = dict(zip(names, jax.tree.leaves(rows.data), strict=True))
    if outcome is None and simulate is None and posterior.predict is not None:
        choice = Choice.of(posterior.predict, rows, position(one_draw))
        if choice is not None:
            return Subject(
                rows, position, observed={"outcome": choice.labels}, constant=arrays,
                replicate=choice.replicate, levels=choice.levels,
            )  # fmt: skip
    called = f"data[{outcome}]" if isinstance(outcome, int) else outcome
    if called is not None and called not in arrays:
        raise UsageError(f"outcome must be one of the data, {', '.join(names)}. Got {outcome!r}.")
    name = called or "outcome"
    return Subject(
        rows, position, name,
        observed={} if called is None else {called: arrays.pop(called)},
        constant=arrays,
        replicate=None if simulate is None else _Simulated(simulate, rows, name),
    )  # fmt: skip


def _positions(posterior: Posterior) -> Callable[[PyTree], PyTree]:
    """Return the inverse of the function that reports positions."""
    output = posterior.output
    if output is None:
        return lambda reported: reported
    if isinstance(output, Report):
        added = set(output.names)
        return lambda reported: {n: v for n, v in reported.items() if n not in added}
    if isinstance(posterior.log_prior, Density):
        return lambda reported: reported

    def refuse(reported: PyTree) -> PyTree:
        raise UsageError(
            "draws of this posterior report its output, from which positions cannot be recovered; log likelihoods need a "
            "posterior without output."
        )

    return refuse


@dataclass(frozen=True)
class _Simulated:
    """Outcomes from the user-supplied function of (key, position, datum)."""

    simulate: Callable
    rows: Rows
    name: str

    def __call__(self, positions: PyTree, numbers: Any, seed: int) -> dict[str, np.ndarray]:
        draws = len(jax.tree.leaves(positions)[0])
        keys = jax.random.split(jax.random.key(seed), (draws, len(numbers)))
        taken = self.rows.take(numbers)
        every = jax.vmap(self.simulate, (0, None, 0))
        one = jax.jit(lambda key, position: every(key, position, taken))
        found = jax.lax.map(lambda given: one(*given), (keys, positions))
        return {self.name: np.asarray(found)}


# -- formulas ------------------------------------------------------------------------------


FLOAT32_DIGITS = 6  # digits of a column, in sds, that float32 holds


def subject_of_formula(model: FormulaModel) -> Subject:
    """Describe the model of a formula on the original scale."""
    assert model.data is not None and model.posterior.log_likelihood is not None
    x, y, *more = model.leaves()
    spec, extra = model.spec, {n: np.asarray(v, np.float64) for n, v in (more or [{}])[0].items()}
    outcome, columns = spec["design"]["outcome"], list(spec["design"]["names"])
    stretch, shift = spec["outcome_scale"], spec["outcome_center"]
    observed = _rounded(stretch * np.asarray(y, np.float64) + shift, stretch)
    if "offset" in extra:
        extra["offset"] = stretch * extra["offset"]
    large = isinstance(model.data, OnDisk)  # its columns are not held in memory
    constant = {
        name: _rounded(
            x[:, j].astype(np.float64) * model.scale[j] + model.center[j], model.scale[j]
        )
        for j, name in enumerate(columns)
        if j != model.intercept_index and not large
    }
    dims: dict[str, list[str]] = {}
    coords: dict[str, Any] = {}
    if model.family.levels:
        coords = {"level": [str(level) for level in spec["levels"][1:]], "term": columns}
        dims = {"coefficients": ["level", "term"]}
    return Subject(
        Rows.of(model.posterior.log_likelihood, model.data, called=model.row_numbers),
        model.to_standardised, outcome, {outcome: observed}, {**constant, **extra}, dims, coords,
        replicate=_Replicas(model), prior=partial(prior_draws, model),
    )  # fmt: skip


def _rounded(values: np.ndarray, scale: float) -> np.ndarray:
    """Round away the digits that standardising in float32 adds."""
    return np.round(values, FLOAT32_DIGITS - int(np.floor(np.log10(scale)))) + 0.0


@dataclass(frozen=True)
class _Replicas:
    """Outcomes that the model simulates for its own rows."""

    model: FormulaModel

    def __call__(self, positions: PyTree, numbers: Any, seed: int) -> dict[str, np.ndarray]:
        model, rng = self.model, np.random.default_rng([seed, 6])
        assert model.data is not None
        x, _, *more = model.leaves()
        x = x[numbers].astype(np.float64)
        given = {n: np.asarray(positions[n])[:, None] for n in model.family.dispersion}
        given |= {n: np.asarray(v, np.float64)[numbers] for n, v in (more or [{}])[0].items()}
        eta = np.einsum("s...p,np->sn...", positions["coefficients"], x)
        if "offset" in given:
            eta = eta + given["offset"].reshape(-1, *([1] * (eta.ndim - 2)))
        made = np.asarray(model.family.sample(rng, eta, given))
        spec = model.spec
        return {spec["design"]["outcome"]: spec["outcome_scale"] * made + spec["outcome_center"]}


# -- programs ------------------------------------------------------------------------------


def subject_of_program(posterior: Posterior, data: Any, seed: int) -> Subject | None:
    """Describe a NumPyro model; return None for any other posterior."""
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
    """Return whether an outcome is a single number with values 0, 1, ... of a common small set."""
    fn = site["fn"]
    if fn.event_shape != () or not fn.has_enumerate_support:
        return False
    try:
        support = np.asarray(fn.enumerate_support(expand=False)).ravel()
    except (NotImplementedError, ValueError, jax.errors.ConcretizationTypeError):
        return False  # NumPyro raises it for a binomial whose numbers of trials differ between rows
    return len(support) <= MAX_PROB_LEVELS and np.array_equal(support, np.arange(len(support)))


def _probabilities(site: Site) -> Any:
    """Return the probabilities of the values 0, 1, ..., [level, ...]."""
    support = site["fn"].enumerate_support(expand=False)
    return jnp.exp(site["fn"].log_prob(support.astype(site["value"].dtype)))


def _seen(site: Site, value: np.ndarray) -> np.ndarray:
    """Return the observed values, with NaN where a mask excludes them."""
    mask = getattr(site["fn"], "_mask", None)
    if mask is None or np.all(mask):
        return value
    there = np.broadcast_to(np.asarray(mask), value.shape[: value.ndim - site["fn"].event_dim])
    there = there.reshape(*there.shape, *[1] * (value.ndim - there.ndim))
    return np.where(there, value, np.nan)


def _joined(sites: Mapping[str, Site]) -> str:
    """Return the name of the observed site; for several sites in a row, the names joined by "+"."""
    return "+".join(sites)


def _whole(program: Program, observed: dict[str, Site], common: dict[str, Any]) -> Subject:
    """Describe a model that is one density: a row is one member of an observed site."""
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
    """Log densities of the members of the observed sites, one site after the other."""

    program: Program
    sites: tuple[str, ...]
    count: int
    plates: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(cls, program: Program, observed: dict[str, Site]) -> _Members:
        shapes = [s["fn"].log_prob(s["value"]).shape for s in observed.values()]
        return cls(program, tuple(observed), sum(int(np.prod(shape)) for shape in shapes))

    def names(self, numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Return the members' names, which are their indices."""
        return numbers

    def block(self, draws: int) -> int:
        """Return how many members are in memory together at this many draws."""
        return max(1, min(self.count, MAX_HELD_CELLS // draws))

    def values(self, positions: PyTree, numbers: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n S"]:
        """Return the members' log densities at positions [S, ...], in float64."""
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
    """Name the axes of sites that are plates after the plates; ArviZ names the other axes."""
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
    """Return a handler that draws observed sites, and latent sites without a value, again."""
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
    """Draw the latent sites, and the reported deterministic ones, from the prior, [count, ...].

    NumPyro raises NotImplementedError if a prior is improper, since it cannot be sampled.
    """
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.tree.map(np.asarray, _from_prior(program, keys, names=(*names, *added)))


@partial(jax.jit, static_argnames="names")
def _from_prior(program: Program, keys: Any, *, names: tuple[str, ...]) -> PyTree:
    from numpyro import handlers

    def one(key: Any) -> PyTree:  # observed sites keep their values, since drawing outcomes is slow
        sites = program.at({}, inner=lambda model: handlers.seed(model, key))
        return {name: sites[name]["value"] for name in names}

    return jax.vmap(one)(keys)


def _replicated_rows(
    program: Program, rows: Rows, names: tuple[str, ...], positions: PyTree, numbers: Any, seed: int
) -> dict[str, np.ndarray]:
    """Draw outcomes for rows, [S, n, ...], one row at a time, each with its own key."""
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
    """Draw outcomes for members of the single observed site, [S, n, ...]."""
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
    """Return probabilities of a row's outcomes; values that are summed out or imputed are drawn."""
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
    """Return the probabilities of the members' outcomes."""

    def one(position: PyTree) -> Any:
        found = _probabilities(program.at(position)[name])
        return found.reshape(len(found), -1)[:, numbers].T

    return np.asarray(jax.jit(lambda given: jax.lax.map(one, given))(positions))
