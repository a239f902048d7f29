"""What is answered to a model that cannot be sampled: each in a sentence that names the site."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import DataError, SGLDError, UsageError
from .arguments import Arguments, Leaf, name_of
from .sites import Latents, Site, first_line, plate_sizes, run, sample_sites

__all__ = ["check_sites", "discrete", "traced"]

MOST_LOCAL = 20_000  # numbers that latent sites among the observed ones may hold


def traced(model: Callable, arguments: Arguments) -> dict[str, Site]:
    """The sites of the model at its prior's median. Raises UsageError for whatever goes wrong in it."""
    from numpyro.infer import init_to_median

    plates: dict[str, int] = {}

    def sites_of(given: tuple[tuple, dict[str, Any]]) -> dict[str, Site]:
        args, kwargs = given
        return run(model, args, kwargs, {}, start=init_to_median(num_samples=15), seen=plates)

    try:
        try:
            return sites_of(arguments.given)
        except Exception:  # of a Series, say, which JAX takes for no array
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
    except Exception as error:  # whatever a user's function raises
        raise UsageError(_failed(model, arguments, plates, error)) from error


def _failed(
    model: Callable, arguments: Arguments, plates: Mapping[str, int], error: Exception
) -> str:
    """The sentence for an exception inside a model."""
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
            f"the model {name_of(model)!r} fails: argument {holes}; leave that row out, or fill it."
        )
    return f"the model {name_of(model)!r} fails at its prior's median: {text}."


def _not_finite(leaf: Leaf) -> str | None:
    """Where an argument holds NaN or infinity, in words."""
    if leaf.array is None or leaf.array.dtype.kind != "f" or np.isfinite(leaf.array).all():
        return None
    where = tuple(int(i) for i in np.argwhere(~np.isfinite(leaf.array))[0])
    place = f" in row {where[0]} (counted from 0)" if where else ""
    return f"{leaf.name!r} holds {leaf.array[where]}{place}"


def check_sites(model: Callable, sites: Mapping[str, Site]) -> None:
    """UsageError for a model that has no posterior, or none that can be sampled."""
    observed = sample_sites(sites, observed=True)
    latent = sample_sites(sites, observed=False)
    if not latent and not observed:
        raise UsageError(
            f"{name_of(model)!r} has no numpyro.sample site; posterior must be an sgld.Posterior or a NumPyro model."
        )
    if not observed:
        raise UsageError(
            f"the model {name_of(model)!r} has no observed site, so that its draws would be the prior's: give the "
            "outcome (is it an argument left at None?), or draw from the prior with numpyro.infer.Predictive."
        )
    if not latent:
        raise UsageError(
            f"the model {name_of(model)!r} has no latent site: nothing is to be learnt."
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
    """The sentence for a discrete site that cannot be summed out."""
    return UsageError(
        f"the latent site {name!r} is discrete ({type(site['fn']).__name__}) and has no gradient; sum it out: write "
        "the sites that depend on it with numpyro.distributions.MixtureSameFamily, or add their log density with "
        "numpyro.factor. (Summed out here are sites with one number of a few for each row, inside the row plate.)"
    )


def _check_local(
    latent: Mapping[str, Site], observed: Mapping[str, Site], sites: Mapping[str, Site]
) -> None:
    """UsageError for more latent numbers, one for each row, than can be sampled."""
    sizes = plate_sizes(sites)
    rows = {frame.name for site in observed.values() for frame in site["cond_indep_stack"]}
    for name, site in latent.items():
        over = [f.name for f in site["cond_indep_stack"] if f.name in rows]
        count = int(np.size(site["value"]))
        if over and count > MOST_LOCAL:
            raise UsageError(
                f"the latent site {name!r} stands in plate {over[0]!r} of {sizes[over[0]]} rows, which makes {count} "
                f"parameters; up to {MOST_LOCAL} are sampled. Integrate it out (a Normal effect of each row adds its "
                "variance to the outcome's, a Gamma rate makes GammaPoisson), or let rows share it by group."
            )


def _check_values(name: str, site: Site) -> None:
    """DataError for an observed value that its distribution cannot have, and no mask leaves out."""
    fn, value = site["fn"], site["value"]
    mask, base = getattr(fn, "_mask", None), getattr(fn, "base_dist", fn)
    base = fn if mask is None else base
    if base.support is None or isinstance(value, jax.core.Tracer):  # pyright: ignore[reportAttributeAccessIssue]
        return
    value = jnp.asarray(value)
    try:
        with warnings.catch_warnings(action="ignore"):  # NumPyro's own, of the same values
            bad = ~np.asarray(base.support(value)) & ~np.isfinite(np.asarray(base.log_prob(value)))
    except (
        TypeError,
        ValueError,
    ):  # parameters that are a table's columns: the density is looked at later
        return
    if mask is not None:
        bad = bad & np.broadcast_to(np.asarray(mask), bad.shape)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f" in row {where[0]} (counted from 0)" if where else ""
        raise DataError(
            f"the observed site {name!r} is {value[where]}{place}, which its {type(base).__name__} cannot be; leave that "
            "row out, or mask it (obs_mask=)."
        )


def _check_shape(name: str, site: Site) -> None:
    """UsageError where an observed site is broadcast against its plates or its distribution."""
    fn, value = site["fn"], site["value"]
    batch = tuple(fn.batch_shape)
    for frame in site["cond_indep_stack"]:
        if batch[frame.dim] != frame.size:
            raise UsageError(
                f"plate {frame.name!r} has size {frame.size}, and the observed site {name!r} has {batch[frame.dim]} "
                "numbers along it; give the plate the number of rows."
            )
    shape = jnp.shape(value)
    try:
        got = np.broadcast_shapes(shape[: len(shape) - fn.event_dim], batch) if shape else batch
    except ValueError:
        raise UsageError(
            f"the observed site {name!r} has values of shape {shape} and a distribution of batch shape {batch}, which "
            "do not go together; give both one shape: as many outcomes as rows."
        ) from None
    if site["cond_indep_stack"] and got != batch:
        raise UsageError(
            f"the observed site {name!r} has values of shape {shape} and a distribution of batch shape {batch}, which "
            f"together make {got}: every value would be compared with every row; give both one shape."
        )
