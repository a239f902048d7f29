"""`sgld.from_numpyro`: a NumPyro model with its arguments as a posterior and a start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..errors import UsageError, need
from .numpyro_plates import (
    Density,
    Found,
    Likelihood,
    Prior,
    Program,
    Report,
    by_rows,
    find_rows,
    packed,
    transform_of,
)
from .numpyro_sites import (
    Arguments,
    Latents,
    Site,
    check_sites,
    discrete,
    first_line,
    name_of,
    spread,
    traced,
    unwrapped,
)
from .posterior import Labels, Posterior

MAX_REPORTED_NUMBERS = 1000  # numbers of deterministic sites that are reported with every draw


def from_numpyro(
    model: Callable, /, *args: Any, **kwargs: Any
) -> tuple[Posterior, dict[str, np.ndarray]]:
    """Convert a NumPyro model and its arguments to a Posterior that holds its data, and a start.

    Plates over rows become likelihoods of single rows, so that batches of rows can be drawn: arguments whose
    leading axis has the plate's size are the rows. Every row is checked at several positions: run with one row at
    a time, the model must give the same log densities. If it does not, or has no such plate, the full density is
    used, and the posterior's notes give the reason. Constrained sites are sampled in free coordinates, with the
    Jacobian counted once. Draws are on the constrained scale with the names and shapes of the sites, and include
    deterministic sites that do not depend on rows.

    Args:
      model: a function with NumPyro's primitives, as for `numpyro.infer.MCMC`; handlers around it
        (`mask`, `scale`, `condition`, `reparam`) apply. A plate's `subsample_size` is ignored:
        `sgld.sample` chooses its own batches of all rows.
      *args: its positional arguments, data included.
      **kwargs: its keyword arguments, data included.

    Returns: `(posterior, init)`: `posterior.data` holds the rows, so that `sgld.sample(posterior)` needs
    no data; `init` is the prior's median, a dict by site.

    Raises: UsageError if the model has no observed site, a discrete latent site that cannot be summed
    out, a repeated site, arguments that do not fit, or a plate whose size is not that of the data.
    MissingExtra without NumPyro.

    Example:
      >>> import numpy as np, numpyro, numpyro.distributions as dist, sgld
      >>> def model(x, y=None):
      ...     slope = numpyro.sample("slope", dist.Normal(0.0, 10.0))
      ...     sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
      ...     with numpyro.plate("rows", len(x)):
      ...         numpyro.sample("y", dist.Normal(slope * x, sigma), obs=y)
      >>> x = np.linspace(-1.0, 1.0, 200)
      >>> y = 2.0 * x + 0.3 * np.random.default_rng(0).normal(size=200)
      >>> posterior, init = sgld.from_numpyro(model, x, y=y)
      >>> posterior
      Posterior(log prior + sum of log likelihoods, constrained)
      >>> sorted(init), sorted(posterior.data)
      (['sigma', 'slope'], ['x', 'y'])
      >>> draws = sgld.sample(posterior, progress=False)
      >>> print(draws.verdict.word, round(float(draws.mean()["slope"]), 1))
      trusted 2.0
    """
    need("numpyro", "numpyro")
    model, args, kwargs = unwrapped(model, args, kwargs)
    arguments = Arguments.of(model, args, kwargs)
    sites = traced(model, arguments)
    check_sites(model, sites)
    latents = Latents.of(sites)
    init = {name: np.asarray(site["value"]) for name, site in latents.sampled.items()}
    whole = _whole(model, arguments, latents, init)
    transform = transform_of(latents.sampled, whole)
    over, notes = find_rows(arguments, sites), _notes(sites)
    if isinstance(over, str):
        found = Found(reason=over)
    else:
        found = by_rows(model, arguments, latents, over, transform, init)
    program, data = found.program, None
    if program is None:
        _check_whole(sites, latents, whole, init, found.reason)
        notes.append(f"the full density of the model is evaluated at every step: {found.reason}.")
        names = [name for name, site in sites.items() if site["type"] == "deterministic"]
        log_prior, log_likelihood = Density(whole), None
    else:
        assert not isinstance(over, str)
        names, data = found.deterministic, packed(arguments, over.rows)
        log_prior, log_likelihood = Prior(program), Likelihood(program)
    imputed = {name.removesuffix("_unobserved") for name in latents.dropped}
    sites = {name: site for name, site in sites.items() if name not in imputed}
    reported, left = _reported(sites, [name for name in names if name not in imputed])
    if left:
        notes.append(
            f"{left}: deterministic and not reported; numpyro.infer.Predictive computes them."
        )
    output = Report(program or whole, reported) if reported else None
    posterior = Posterior(
        log_prior, log_likelihood, transform=transform, init=init, output=output, data=data, notes=Labels(notes),
    )  # fmt: skip
    return posterior, init


def resolve_model(posterior: Any, data: Any, init: Any) -> tuple[Any, Any, Any]:
    """Return the arguments of `sgld.sample` with a NumPyro model converted and held data explicit."""
    if not isinstance(posterior, Posterior):
        # a model can only come from a library that is loaded
        if "numpyro" not in sys.modules or not callable(posterior) or isinstance(posterior, type):
            return posterior, data, init
        args, kwargs = spread(posterior, data)
        (posterior, _), data = from_numpyro(posterior, *args, **kwargs), None
    if posterior.data is not None:
        data = posterior.data if data is None else data
        posterior = replace(posterior, data=None)
    return posterior, data, init


def _whole(
    model: Callable, arguments: Arguments, latents: Latents, init: dict[str, Any]
) -> Program:
    """Return the program of all arguments; these are static if the model must see their values."""
    gradient = jax.grad(lambda position, program: Density(program)(position))
    program = Program.of(model, arguments, latents)
    try:
        jax.eval_shape(gradient, init, program)
    except Exception:  # functions of NumPy, for example, do not accept tracers
        program = Program.of(model, arguments, latents, concrete=True)
    try:
        jax.eval_shape(gradient, init, program)
    except Exception as error:
        raise UsageError(
            f"the density of the model {name_of(model)!r} has no gradient: {first_line(error)}."
        ) from error
    return program


def _check_whole(
    sites: Mapping[str, Site], latents: Latents, whole: Program, init: dict[str, Any], reason: str
) -> None:
    """Raise UsageError if summing out or dropping a site is valid only for single rows."""
    for name in latents.summed:
        error = discrete(name, sites[name])
        raise UsageError(f"{error} Rows cannot be evaluated one by one: {reason}.")
    density = Density(whole)
    for name in latents.dropped:
        other = {**init, name: np.asarray(sites[name]["value"])[::-1]}
        if not np.allclose(density(init), density(other)):
            raise UsageError(
                f"other sites depend on {name!r}, which obs_mask imputes where values are missing; write the missing "
                "values as a separate latent site."
            )


def _notes(sites: Mapping[str, Site]) -> list[str]:
    """Return notes on parts of the model that its author may have meant otherwise."""
    notes = []
    for name, site in sites.items():
        if site["type"] == "plate" and site["asked"] is not None:
            notes.append(
                f"plate {name!r} requests subsamples of {site['asked']}; all its members are used, and sgld.sample "
                "chooses the batches (batch_size=)."
            )
        if site["type"] == "param":
            notes.append(
                f"numpyro.param {name!r} keeps its initial value; give it a prior to sample it."
            )
    return notes


def _reported(sites: Mapping[str, Site], names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the deterministic sites that are reported, and a list of those that are left out."""
    kept, total = [], 0
    for name in sorted(names, key=lambda name: np.size(sites[name]["value"])):
        total += np.size(sites[name]["value"])
        if total <= MAX_REPORTED_NUMBERS:
            kept.append(name)
    every = [name for name, site in sites.items() if site["type"] == "deterministic"]
    left = [repr(name) for name in every if name not in kept]
    return tuple(kept), ", ".join(left)
