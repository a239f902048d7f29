"""What a log likelihood must not do: hold the prior, be a mean, or draw at random. Read off its traced expression.

The library adds log_prior once and log_likelihood for every datum. A likelihood with the prior in
it counts the prior N times, one divided by N counts the data once, one with dropout switched on is of one
fixed mask: all give a posterior that looks well and is wrong, and no diagnostic sees it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.versions import bound_constants
from ..errors import UsageError
from ..posterior import Posterior

__all__ = ["check_contract"]

LOOPS = ("scan", "while", "cond")
RANDOM = ("random_bits", "threefry2x32")
DISTINCT = 4  # operations from which an expression is nobody's by chance
PyTree = Any


def check_contract(posterior: Posterior, position: PyTree, datum: PyTree, num_data: int) -> None:
    """UsageError where log_likelihood contains log_prior, divides by the number of rows, or draws random numbers."""
    likelihood = posterior.log_likelihood
    assert likelihood is not None
    prior = jax.make_jaxpr(posterior.log_prior)(position)
    whole = jax.make_jaxpr(likelihood)(position, datum)
    count = len(prior.jaxpr.invars)
    names = [("position", i) for i in range(count)]
    known: dict[Any, int] = {}
    (target,) = _expressions(prior, names, known)
    size = known.get(target, 0)
    seen: dict[Any, int] = {}
    rows = [("datum", i) for i in range(len(whole.jaxpr.invars) - count)]
    drawn: set[Any] = set()
    (output,) = _expressions(whole, names + rows, seen, drawn)
    if output in drawn:
        raise UsageError(
            "log_likelihood draws random numbers, which are the same at every call: one fixed mask of dropout, say. Switch "
            "dropout off (eqx.nn.inference_mode(net), net.eval() in nnx, deterministic=True in linen); what is meant to "
            "stay is drawn once, before, and used as an array."
        )
    if size >= DISTINCT and target in seen:
        raise UsageError(
            "log_likelihood contains log_prior, which the library adds once by itself, and would count "
            f"{num_data} times; leave the prior out of log_likelihood."
        )
    if num_data >= DISTINCT and _divides(output, num_data):
        raise UsageError(
            f"log_likelihood divides by the number of rows, {num_data}; return the log likelihood of "
            "one datum as it is: the library sums over rows (where a mean is meant, as over draws that stand "
            "for an expectation, give its factor as a column of the data)."
        )


def _expressions(
    closed: Any, inputs: list, seen: dict[Any, int], drawn: set[Any] | None = None
) -> list:
    """The outputs as nested tuples; every expression on the way goes into `seen` with its size.

    Those that random numbers go into are put into `drawn`.
    """
    jaxpr = getattr(closed, "jaxpr", closed)
    values: dict[Any, Any] = dict(zip(jaxpr.invars, inputs, strict=True))
    constants = bound_constants(closed)
    values |= {var: _constant(const) for var, const in zip(jaxpr.constvars, constants, strict=True)}

    def read(atom: Any) -> Any:
        return _constant(atom.val) if hasattr(atom, "val") else values[atom]

    for eqn in jaxpr.eqns:
        parts = [read(atom) for atom in eqn.invars]
        inner = _called(eqn)
        name = eqn.primitive.name
        if inner is not None:
            outputs = _expressions(inner, parts, seen, drawn)
        else:
            # hashed, not nested: an expression used twice would double the depth each time
            own = hash((name, str(eqn.params), tuple(parts)))
            outputs = [
                (name, own, k, tuple(_brief(p) for p in parts)) for k in range(len(eqn.outvars))
            ]
            size = 1 + sum(seen.get(part, 0) for part in parts)
            seen.update((output, size) for output in outputs)
            if drawn is not None and (name in RANDOM or not drawn.isdisjoint(parts)):
                drawn.update(outputs)
        values.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _called(eqn: Any) -> Any:
    """Return the expression that an equation evaluates once, of its own arguments; None if there is none.

    Of `jax.checkpoint` it is a `Jaxpr`, of `jax.jit` a `ClosedJaxpr`; since JAX 0.11 the two are one class.
    """
    inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    jaxpr = getattr(inner, "jaxpr", inner)
    if eqn.primitive.name in LOOPS or not hasattr(jaxpr, "eqns"):
        return None
    own, called = (
        [[getattr(v.aval, "shape", None) for v in variables] for variables in both]
        for both in ((eqn.invars, eqn.outvars), (jaxpr.invars, jaxpr.outvars))
    )
    return inner if own == called else None  # a reduction, say, evaluates its own of two numbers


def _brief(part: Any) -> Any:
    """A constant's value; of anything else, what tells it from others."""
    return part if part[0] == "constant" else part[:2]


def _constant(value: Any) -> tuple:
    if jnp.issubdtype(jnp.result_type(value), jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    if array.ndim == 0 and np.issubdtype(array.dtype, np.number):
        return ("constant", float(array))
    return ("constant", hash((array.shape, array.tobytes())))


def _divides(output: Any, num_data: int) -> bool:
    """Whether the last operation is a division by N, or a product with 1/N."""
    if len(output) != 4 or output[0] not in ("div", "mul"):
        return False
    numbers = [part[1] for part in output[3] if part[0] == "constant"]
    wanted = num_data if output[0] == "div" else 1 / num_data
    return any(isinstance(v, float) and abs(v / wanted - 1) < 1e-6 for v in numbers)
