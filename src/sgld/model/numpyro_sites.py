"""Runs of a NumPyro model (sites, plates, log densities), its arguments, and refused models.

A model is a function of arrays, sizes, flags and other values. Arrays can be leaves of compiled
functions, so that other values need no compilation; everything else is static. A model that cannot be
sampled raises a message that names the site.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..core.validation import is_number
from ..errors import DataError, SGLDError, UsageError, did_you_mean, need

Site = dict[str, Any]
# all threads share NumPyro's stack of handlers, and this package traces in several threads
_ONE_AT_A_TIME = threading.RLock()
MAX_DISCRETE_VALUES = 64  # values of a discrete site that is summed out


def run(
    model: Callable,
    args: tuple,
    kwargs: Mapping[str, Any],
    values: Mapping[str, Any],
    *,
    rows: frozenset[str] = frozenset(),
    inner: Any = None,
    start: Any = None,
    seen: dict[str, int] | None = None,
) -> dict[str, Site]:
    """Return the sites of one run of the model, by name, with `values` at its latent sites.

    Every plate has all its members, whatever subsample_size it requests, except that plates in `rows` have
    one. `inner` is another handler, applied around the plates and inside all others. `start` gives values to
    latent sites that have none. `seen` receives every plate and its size during the run.
    """
    handlers = need("numpyro.handlers", "numpyro")
    model = _whole_plates(model, rows, seen)
    if inner is not None:
        model = inner(model)
    seeded = handlers.seed(handlers.substitute(model, data=dict(values)), 0)
    if start is not None:
        seeded = handlers.substitute(seeded, substitute_fn=start)
    with _ONE_AT_A_TIME:
        return dict(handlers.trace(seeded).get_trace(*args, **kwargs))


def _whole_plates(model: Callable, rows: frozenset[str], seen: dict[str, int] | None) -> Callable:
    from numpyro.primitives import Messenger

    class WholePlates(Messenger):
        def process_message(self, msg: Site) -> None:
            if msg["type"] != "plate":
                return
            if seen is not None:
                seen[msg["name"]] = int(msg["args"][0])
            size = 1 if msg["name"] in rows else msg["args"][0]
            whole, asked = msg["args"]
            msg["asked"] = asked if asked != whole else None
            msg["value"], msg["args"] = jnp.arange(size), (whole, size)

    return WholePlates(model)


def sample_sites(sites: Mapping[str, Site], *, observed: bool) -> dict[str, Site]:
    """Return the sample sites that are observed, or those that are not."""
    return {
        name: site
        for name, site in sites.items()
        if site["type"] == "sample" and bool(site["is_observed"]) == observed
    }


@dataclass(frozen=True)
class Latents:
    """The latent sites of a model, by treatment.

    Attributes:
      sampled: the continuous sites.
      summed: discrete sites with one value for each member of a plate that holds observed sites, and
        their possible values: they are summed out, row by row.
      dropped: sites that `obs_mask` would impute: nothing else depends on them, so they integrate to 1.
    """

    sampled: dict[str, Site]
    summed: dict[str, np.ndarray]
    dropped: tuple[str, ...]

    @classmethod
    def of(cls, sites: Mapping[str, Site]) -> Latents:
        """Return the latent sites of one run."""
        latent, observed = sample_sites(sites, observed=False), sample_sites(sites, observed=True)
        plates = {f.name for site in observed.values() for f in site["cond_indep_stack"]}
        dropped = [n for n in latent if _partner(n) in observed]
        discrete = {n: s for n, s in latent.items() if _is_discrete(s) and n not in dropped}
        summed = {n: _support(s) for n, s in discrete.items() if _is_of_rows(s, plates)}
        sampled = {n: s for n, s in latent.items() if n not in summed and n not in dropped}
        return cls(sampled, summed, tuple(dropped))


def _partner(name: str) -> str | None:
    """Return the name of the observed part of a site with obs_mask, given that of the other part."""
    base = name.removesuffix("_unobserved")
    return None if base == name else base + "_observed"


def _is_discrete(site: Site) -> bool:
    support = site["fn"].support
    return support is not None and bool(support.is_discrete)


def _is_of_rows(site: Site, plates: set[str]) -> bool:
    """Return whether a discrete site has a value from a small set per member of one of the plates."""
    fn, frames = site["fn"], site["cond_indep_stack"]
    inside = len(frames) == 1 and frames[0].name in plates and fn.event_shape == ()
    if not inside or tuple(fn.batch_shape) != (frames[0].size,) or not fn.has_enumerate_support:
        return False
    return len(_support(site)) <= MAX_DISCRETE_VALUES


def _support(site: Site) -> np.ndarray:
    return np.asarray(site["fn"].enumerate_support(expand=False)).ravel()


def plate_sizes(sites: Mapping[str, Site]) -> dict[str, int]:
    """Return the size that the model gives each plate."""
    return {name: int(site["args"][0]) for name, site in sites.items() if site["type"] == "plate"}


def log_prob(site: Site, sizes: Mapping[str, int], rows: Iterable[str] = ()) -> Array:
    """Return the log density of a site, one number per member of its plates, times its scale.

    A plate of `rows` that holds one of n members would scale its sites by n; this factor is removed.
    """
    value = site["fn"].log_prob(site["value"])
    scale = site["scale"]
    if scale is None:
        return value
    frames = {frame.name for frame in site["cond_indep_stack"]}
    for name in rows:
        if name in frames and sizes[name] != 1:
            scale = scale / sizes[name]
    return value if isinstance(scale, (int, float)) and scale == 1 else scale * value


def first_line(error: Exception) -> str:
    """Return the type of an exception and the first line of its message."""
    text = (str(error).strip() or "no message").splitlines()[0].rstrip(".")
    return f"{type(error).__name__}: {text}"


# -- arguments -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """One argument or a part of it: its name, its value, and the array if it is one."""

    name: str
    value: Any
    array: np.ndarray | None

    @property
    def length(self) -> int | None:
        """The length of the leading axis, or None without one."""
        return self.array.shape[0] if self.array is not None and self.array.ndim else None


@dataclass(frozen=True)
class Arguments:
    """The flattened arguments of one call."""

    leaves: tuple[Leaf, ...]
    treedef: Any

    @classmethod
    def of(cls, model: Callable, args: tuple, kwargs: Mapping[str, Any]) -> Arguments:
        """Return the arguments of `model(*args, **kwargs)`; raise UsageError if they do not fit."""
        positional = _names(model, args, kwargs)
        given = (tuple(args), dict(kwargs))
        flat, treedef = jax.tree_util.tree_flatten_with_path(given, is_leaf=_is_leaf)
        leaves = []
        for (where, key, *rest), value in flat:
            name = positional[key.idx] if where.idx == 0 else key.key
            array = _array(value)
            if array is None and hasattr(value, "item") and np.shape(value) == ():
                value = value.item()  # a size
            leaves.append(Leaf(name + jax.tree_util.keystr(tuple(rest)), value, array))
        return cls(tuple(leaves), treedef)

    def call(self, values: list[Any]) -> tuple[tuple, dict[str, Any]]:
        """Return `(args, kwargs)` with these values in place of the leaves."""
        return jax.tree.unflatten(self.treedef, values)

    @property
    def given(self) -> tuple[tuple, dict[str, Any]]:
        """The original `(args, kwargs)`."""
        return self.call([leaf.value for leaf in self.leaves])

    @property
    def foreign(self) -> bool:
        """Whether some numbers are not in arrays: in a Series or a list."""
        own = (np.ndarray, np.generic, jax.Array)
        return any(
            leaf.array is not None and not isinstance(leaf.value, own) for leaf in self.leaves
        )

    @property
    def as_arrays(self) -> tuple[tuple, dict[str, Any]]:
        """The `(args, kwargs)` with all numbers in arrays."""
        return self.call([leaf.value if leaf.array is None else leaf.array for leaf in self.leaves])


def unwrapped(
    model: Callable, args: tuple, kwargs: Mapping[str, Any]
) -> tuple[Callable, tuple, dict[str, Any]]:
    """Return the model and all its arguments, with those of `partial` and `handlers.condition`."""
    if isinstance(model, partial):
        return unwrapped(model.func, (*model.args, *args), {**model.keywords, **kwargs})
    handlers = need("numpyro.handlers", "numpyro")
    if isinstance(model, handlers.condition) and model.fn is not None and model.data:
        return Conditioned(model.fn), (model.data, *args), dict(kwargs)
    return model, args, dict(kwargs)


@dataclass(frozen=True)
class Conditioned:
    """A model under `handlers.condition` whose conditions are arguments too."""

    model: Callable

    @property
    def __name__(self) -> str:
        return name_of(self.model)

    @property
    def __signature__(self) -> inspect.Signature:
        first = inspect.Parameter("conditions", inspect.Parameter.POSITIONAL_ONLY)
        return inspect.Signature([first, *_parameters(self.model).values()])

    def __call__(self, conditions: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Run the model with some sites held at `conditions`."""
        handlers = need("numpyro.handlers", "numpyro")
        return handlers.condition(self.model, data=conditions)(*args, **kwargs)


def name_of(model: Any) -> str:
    """Return the name of a model for messages."""
    return getattr(model, "__name__", type(model).__name__)


def spread(model: Callable, data: Any) -> tuple[tuple, dict[str, Any]]:
    """Return `(args, kwargs)` from `data=`: a tuple, a dict by parameter names, or one argument."""
    if data is None:
        return (), {}
    if isinstance(data, tuple) and not hasattr(data, "_fields"):
        return data, {}
    takes = _parameters(model)
    if isinstance(data, dict) and data.keys() <= takes.keys():
        return (), data
    if isinstance(data, dict) and data.keys() & takes.keys():
        other = sorted(data.keys() - takes.keys())[0]
        raise UsageError(
            f"the model {name_of(model)!r} takes ({', '.join(takes)}), and data has {other!r} too."
            + did_you_mean(other, takes)
        )
    return (data,), {}


def _parameters(model: Callable) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(model).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return {}


def _names(model: Callable, args: tuple, kwargs: Mapping[str, Any]) -> list[str]:
    """Return one name per positional argument."""
    parameters = _parameters(model)
    try:
        inspect.signature(model).bind(*args, **kwargs)
    except TypeError as error:
        takes = ", ".join(str(p) for p in parameters.values()) or "nothing"
        raise UsageError(
            f"the model {name_of(model)!r} takes ({takes}), and these arguments do not fit: {error}."
        ) from error
    except ValueError:
        pass
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    plain = [name for name, p in parameters.items() if p.kind in kinds]
    rest = next(
        (n for n, p in parameters.items() if p.kind is inspect.Parameter.VAR_POSITIONAL), "arg"
    )
    return [plain[i] if i < len(plain) else f"{rest}[{i - len(plain)}]" for i in range(len(args))]


def _is_leaf(value: Any) -> bool:
    """Return whether a value is one leaf: a list of numbers is one array, a tuple may be a shape."""
    return value is None or (isinstance(value, list) and bool(value) and all(map(is_number, value)))


def _array(value: Any) -> np.ndarray | None:
    """Return the numbers of an argument, or None for flags, names, keys, functions and sizes."""
    table = hasattr(value, "columns")  # several named columns: not an array to slice
    if table or not (isinstance(value, list) or hasattr(value, "__array__")):
        return None
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return None
    array = np.asarray(value)
    number = np.issubdtype(array.dtype, np.number) or array.dtype == bool
    # a single whole number is a size, and must stay static when the model is compiled
    size = array.ndim == 0 and not np.issubdtype(array.dtype, np.floating)
    return None if size or not number else array


# -- refusals ------------------------------------------------------------------------------


MAX_LOCAL_NUMBERS = 20_000  # numbers that a latent site in a plate of observed sites may hold


def traced(model: Callable, arguments: Arguments) -> dict[str, Site]:
    """Return the sites of the model at its prior's median; raise UsageError for any failure.

    Where a median is not finite, the start is uniform in [-2, 2] on the unconstrained scale.
    """
    from numpyro.infer import init_to_median, init_to_uniform

    median = init_to_median(num_samples=15)
    plates: dict[str, int] = {}

    def sites_of(given: tuple[tuple, dict[str, Any]]) -> dict[str, Site]:
        args, kwargs = given
        found: dict[str, Site] = {}
        with contextlib.suppress(Exception):  # an argument of a distribution may be infinite there
            found = run(model, args, kwargs, {}, start=median, seen=plates)
        latent = sample_sites(found, observed=False).values()
        if found and all(np.isfinite(np.asarray(site["value"])).all() for site in latent):
            return found
        try:
            return run(model, args, kwargs, {}, start=init_to_uniform(), seen=plates)
        except Exception:
            return run(model, args, kwargs, {}, start=median, seen=plates)  # what users expect

    try:
        try:
            return sites_of(arguments.given)
        except Exception:  # for example of a Series, which is not an array for JAX
            if not arguments.foreign:
                raise
            return sites_of(arguments.as_arrays)
    except SGLDError:
        raise
    except AssertionError as error:
        twice = "unique names" in str(error)
        why = f"uses a site twice: {error}" if twice else f"fails: {error or 'an assertion'}"
        raise UsageError(
            f"the model {name_of(model)!r} {why}; give every site its own name."
        ) from error
    except Exception as error:  # a user's function may raise any type
        raise UsageError(_failed(model, arguments, plates, error)) from error


def _failed(
    model: Callable, arguments: Arguments, plates: Mapping[str, int], error: Exception
) -> str:
    """Return the message for an exception inside a model."""
    text = first_line(error)
    lengths = {leaf.name: leaf.length for leaf in arguments.leaves if leaf.length is not None}
    for plate, size in plates.items():
        if lengths and "shape" in text and size not in lengths.values():
            listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            return (
                f"plate {plate!r} of the model {name_of(model)!r} has size {size}, and no argument has {size} rows "
                f"({listed}): {text}."
            )
    holes = next(filter(None, map(_not_finite, arguments.leaves)), None)
    if holes is not None:
        return (
            f"the model {name_of(model)!r} fails: argument {holes}; remove that row, or fill it in."
        )
    return f"the model {name_of(model)!r} fails at its prior's median: {text}."


def _not_finite(leaf: Leaf) -> str | None:
    """Describe where an argument holds NaN or infinity; return None if it does not."""
    if leaf.array is None or leaf.array.dtype.kind != "f" or np.isfinite(leaf.array).all():
        return None
    where = tuple(int(i) for i in np.argwhere(~np.isfinite(leaf.array))[0])
    place = f" in row {where[0]} (counted from 0)" if where else ""
    return f"{leaf.name!r} holds {leaf.array[where]}{place}"


def check_sites(model: Callable, sites: Mapping[str, Site]) -> None:
    """Raise UsageError for a model without a posterior, or with one that cannot be sampled."""
    observed = sample_sites(sites, observed=True)
    latent = sample_sites(sites, observed=False)
    if not latent and not observed:
        raise UsageError(
            f"{name_of(model)!r} has no numpyro.sample site; posterior must be an sgld.Posterior or a NumPyro model."
        )
    if not observed:
        raise UsageError(
            f"the model {name_of(model)!r} has no observed site, so its draws would be the prior's: give the outcome "
            "(is it an argument left at None?), or draw from the prior with numpyro.infer.Predictive."
        )
    if not latent:
        raise UsageError(
            f"the model {name_of(model)!r} has no latent site, so it has no parameter to sample."
        )
    latents = Latents.of(sites)
    for name, site in latents.sampled.items():
        _check_latent(name, site)
    _check_local(latents.sampled, observed, sites)
    for name, site in observed.items():
        _check_shape(name, site)
        _check_values(name, site)


def _check_latent(name: str, site: Site) -> None:
    from numpyro.distributions import Delta

    fn = site["fn"]
    if isinstance(fn, Delta):
        raise UsageError(
            f"the latent site {name!r} has a Delta distribution; write numpyro.deterministic({name!r}, value)."
        )
    if fn.support is not None and fn.support.is_discrete:
        raise discrete(name, site)


def discrete(name: str, site: Site) -> UsageError:
    """Return the error for a discrete site that cannot be summed out."""
    return UsageError(
        f"the latent site {name!r} is discrete ({type(site['fn']).__name__}) and has no gradient; sum it out: write "
        "the sites that depend on it with numpyro.distributions.MixtureSameFamily, or add their log density with "
        "numpyro.factor. (Only sites inside the row plate with one of a few values per row are summed out "
        "automatically.)"
    )


def _check_local(
    latent: Mapping[str, Site], observed: Mapping[str, Site], sites: Mapping[str, Site]
) -> None:
    """Raise UsageError for more latent numbers per row than can be sampled."""
    sizes = plate_sizes(sites)
    rows = {frame.name for site in observed.values() for frame in site["cond_indep_stack"]}
    for name, site in latent.items():
        over = [f.name for f in site["cond_indep_stack"] if f.name in rows]
        count = int(np.size(site["value"]))
        if over and count > MAX_LOCAL_NUMBERS:
            raise UsageError(
                f"the latent site {name!r} is in plate {over[0]!r} of {sizes[over[0]]} rows, which gives {count} "
                f"parameters; at most {MAX_LOCAL_NUMBERS} can be sampled. Integrate it out (a Normal effect of each row "
                "adds its variance to the outcome's, a Gamma rate gives GammaPoisson), or share it between rows by group."
            )


def _check_values(name: str, site: Site) -> None:
    """Raise DataError for an observed value outside its distribution that no mask excludes."""
    fn, value = site["fn"], site["value"]
    mask, base = getattr(fn, "_mask", None), getattr(fn, "base_dist", fn)
    base = fn if mask is None else base
    if base.support is None or isinstance(value, jax.core.Tracer):  # pyright: ignore[reportAttributeAccessIssue]
        return
    value = jnp.asarray(value)
    try:
        with warnings.catch_warnings(action="ignore"):  # NumPyro warns of the same values
            bad = ~np.asarray(base.support(value)) & ~np.isfinite(np.asarray(base.log_prob(value)))
    except (TypeError, ValueError):  # parameters in a table's columns: the density is checked later
        return
    if mask is not None:
        bad = bad & np.broadcast_to(np.asarray(mask), bad.shape)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f" in row {where[0]} (counted from 0)" if where else ""
        raise DataError(
            f"the observed site {name!r} is {value[where]}{place}, outside the support of its {type(base).__name__}; "
            "remove that row, or mask it (obs_mask=)."
        )


def _check_shape(name: str, site: Site) -> None:
    """Raise UsageError if an observed site is broadcast against its plates or its distribution."""
    fn, value = site["fn"], site["value"]
    batch = tuple(fn.batch_shape)
    for frame in site["cond_indep_stack"]:
        if batch[frame.dim] != frame.size:
            raise UsageError(
                f"plate {frame.name!r} has size {frame.size}, and the observed site {name!r} has {batch[frame.dim]} "
                "values along it; make the plate's size the number of rows."
            )
    shape = jnp.shape(value)
    try:
        got = np.broadcast_shapes(shape[: len(shape) - fn.event_dim], batch) if shape else batch
    except ValueError:
        raise UsageError(
            f"the observed site {name!r} has values of shape {shape} and a distribution of batch shape {batch}, which "
            "do not match; give both the same shape: as many outcomes as rows."
        ) from None
    if site["cond_indep_stack"] and got != batch:
        raise UsageError(
            f"the observed site {name!r} has values of shape {shape} and a distribution of batch shape {batch}, which "
            f"broadcast to {got}: every value would be compared with every row; give both the same shape."
        )
