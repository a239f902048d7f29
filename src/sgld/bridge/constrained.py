"""From free numbers to a model's constrained sites, and back.

Where the support of a site is made of numbers, NumPyro's bijection of it serves. Where it is made of
other sites, or of data, the bijection is read off a run of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from ..errors import UsageError
from ..posterior import Constraints, Transform
from .program import Program
from .sites import Site

__all__ = ["Supported", "transform_of"]

PyTree = Any


def transform_of(latent: Mapping[str, Site], program: Program) -> Transform | None:
    """The transform of a model's latent sites; None where all are unconstrained."""
    from numpyro.distributions import biject_to, constraints

    supports = {name: site["fn"].support for name, site in latent.items()}
    for name, support in supports.items():
        try:
            biject_to(support)
        except NotImplementedError as error:  # what NumPyro raises where it knows no bijection
            raise UsageError(
                f"the latent site {name!r} has the support {support}, to which there is no bijection from free "
                "numbers; write it with another distribution, or with numpyro.handlers.reparam "
                "(ProjectedNormalReparam for a sphere)."
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
    """Each site's bijection onto its support at the values of the sites before it."""

    program: Program
    names: tuple[str, ...] = field(metadata={"static": True})

    def forward(self, free: PyTree) -> PyTree:
        """Constrained values."""
        return self._walk(free, lambda t, x: (t(x), t(x)))[0]

    def inverse(self, position: PyTree) -> PyTree:
        """Free values."""
        return self._walk(position, lambda t, y: (y, t._inverse(jnp.asarray(y))))[0]

    def log_det(self, free: PyTree) -> Float[Array, ""]:
        """The sum over sites of log |d position / d free|."""

        def one(t: Any, x: Any) -> tuple[Any, Any]:
            y = t(x)
            return y, jnp.sum(t.log_abs_det_jacobian(x, y))

        return sum(self._walk(free, one)[0].values(), start=jnp.zeros(()))

    def _walk(self, given: PyTree, step: Callable) -> tuple[dict[str, Any], Any]:
        """`step(bijection, given value) -> (the site's value, what is kept)` at every latent site."""
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
