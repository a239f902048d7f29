"""`sgld.from_pymc`: a PyMC model, through the JAX functions that PyTensor compiles it to."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.versions import same_precision
from ..data.validate import Rounding
from ..errors import UsageError, need
from .posterior import Labels, Posterior

FULL_DENSITY_NOTE = (
    "the full density of a PyMC model is evaluated at every step, because its graph contains the rows; for batches of "
    "rows write it for NumPyro (sgld.from_numpyro)."
)


def from_pymc(model: Any) -> tuple[Posterior, dict[str, np.ndarray]]:
    """Convert a PyMC model to a Posterior without rows, and a start.

    The log density is PyMC's own on its free scale, with the Jacobian. Draws report the
    model's variables on their constrained scale, including deterministic ones, under their names.

    Args:
      model: a `pymc.Model` whose free variables are continuous.

    Returns: `(posterior, init)`, for `sgld.sample(posterior)`; `init` is PyMC's own start, a dict by the
    names of the free variables.

    Notes: the density is evaluated in float32 unless `jax_enable_x64` is on. PyTensor's JAX backend
    turns that setting on when it is imported; it is restored here.

    Raises: UsageError for an object that is not a PyMC model, and for discrete variables, by name.
    DataError for observed values that float32 would round away. MissingExtra without PyMC.

    Example:
      >>> import sgld
      >>> with pymc.Model() as model:                               # doctest: +SKIP
      ...     mean = pymc.Normal("mean", 0.0, 10.0)
      ...     pymc.Normal("y", mean, 1.0, observed=[1.2, 0.7, 2.1])
      >>> posterior, init = sgld.from_pymc(model)                   # doctest: +SKIP
      >>> draws = sgld.sample(posterior)                            # doctest: +SKIP
    """
    pymc = need("pymc", "pymc")
    if not isinstance(model, pymc.Model):
        raise UsageError(f"from_pymc takes a pymc.Model. Got {type(model).__name__}.")
    free = [variable.name for variable in model.value_vars]
    for variable in model.value_vars:
        if variable.dtype.startswith(("int", "uint", "bool")):
            raise UsageError(
                f"the variable {variable.name!r} is discrete and has no gradient; sum it out (pymc.Mixture, or "
                "pymc_extras.marginalize)."
            )
    _check_rounding(model)
    with same_precision():
        graph = need("pymc.sampling.jax", "pymc").get_jaxified_graph
    density = graph(inputs=model.value_vars, outputs=[model.logp()])
    default = need("pymc.util", "pymc").get_default_varnames
    reported = default(model.unobserved_value_vars, include_transformed=False)
    names = [v.name for v in reported]
    shown = graph(inputs=model.value_vars, outputs=reported)

    def values(position: dict[str, Any]) -> list[Any]:
        return [jnp.asarray(position[name]) for name in free]

    def log_density(position: dict[str, Any]) -> Any:
        with _single_precision():
            return density(*values(position))[0]

    def output(position: dict[str, Any]) -> dict[str, Any]:
        with _single_precision():
            return dict(zip(names, shown(*values(position)), strict=True))

    start = model.initial_point()
    init = {name: np.asarray(start[name], float) for name in free}
    posterior = Posterior(log_density, init=init, output=output, notes=Labels([FULL_DENSITY_NOTE]))
    return posterior, init


def _check_rounding(model: Any) -> None:
    """Raise DataError if float32 rounds away the differences between rows of the model's data."""
    if jax.config.read("jax_enable_x64"):
        return
    observed = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs}
    for name, variable in {**observed, **{v.name: v for v in model.data_vars}}.items():
        # a constant of the graph, or a pymc.Data container
        held = (
            variable.get_value() if hasattr(variable, "get_value") else getattr(variable, "data", 0)
        )
        values = np.asarray(held)
        if values.dtype.kind == "f" and values.ndim:
            rounding = Rounding(f"the data {name!r}")
            rounding.add(values, values.astype(np.float32))
            rounding.check()


@contextlib.contextmanager
def _single_precision() -> Iterator[None]:
    """Suppress JAX's warning if PyTensor requests float64 and `jax_enable_x64` is off."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Explicitly requested dtype .*64", UserWarning)
        yield
