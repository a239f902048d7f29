"""One run of a NumPyro model: its sites, their plates and their log densities."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ..errors import need

__all__ = ["first_line", "log_prob", "plate_sizes", "run", "sample_sites"]

Site = dict[str, Any]
# NumPyro's handlers stand on one stack for all threads, and this package traces in several
_ONE_AT_A_TIME = threading.RLock()


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
    """The sites of one run of the model, by name, with `values` at its latent ones.

    Every plate holds all its members, whatever subsample_size it asks for, but those of `rows` hold
    one. `inner` is another handler, around the plates and inside all else; `start` gives values to
    latent sites that have none. `seen` is told every plate and its size on the way.
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
    """The sample sites that are observed, or those that are not."""
    return {
        name: site
        for name, site in sites.items()
        if site["type"] == "sample" and bool(site["is_observed"]) == observed
    }


def plate_sizes(sites: Mapping[str, Site]) -> dict[str, int]:
    """The size that the model gives each plate."""
    return {name: int(site["args"][0]) for name, site in sites.items() if site["type"] == "plate"}


def log_prob(site: Site, sizes: Mapping[str, int], rows: Iterable[str] = ()) -> Array:
    """The log density of a site, one number per member of its plates, times its scale.

    A plate of `rows` that holds one of n members would scale its sites by n, which is taken off.
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
    """The kind of an exception and the first line of what it says."""
    return f"{type(error).__name__}: {(str(error).strip() or 'without a word').splitlines()[0]}"
