"""Checks of a call's arguments before any computation, and its Problem.

The log likelihood must not contain the prior, be a mean over rows, or draw random numbers; this is read
from its traced expression. The library adds log_prior once and log_likelihood for every datum. A likelihood
that contains the prior counts the prior N times. One that divides by N counts the data once. One with active
dropout has a single fixed mask. All of these give a plausible but wrong posterior, and no diagnostic detects
it.

Other checks concern the values that user functions return, the user's rows for predictions, and a Cholesky
factor inside the model that is not finite. In float32 a nearly singular matrix has no factor, and JAX then
returns NaN in every parameter. The responsible parameter is found by moving one at a time.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.devices import check_device, raise_together
from ..core.pytrees import Layout, count_posterior, leaf_names
from ..core.user_code import check_repeatable, user_errors
from ..core.validation import check_seed, unmasked
from ..core.versions import bound_constants, warn_of_slow_versions
from ..data.validate import as_source
from ..errors import DataError, SGLDWarning, UsageError
from . import sums
from .modules import refuse_statistics, seal, with_modules
from .numpyro import resolve_model
from .posterior import Posterior
from .problem import Problem, Target

# -- contract ------------------------------------------------------------------------------


LOOP_PRIMITIVES = ("scan", "while", "cond")
RANDOM_PRIMITIVES = ("random_bits", "threefry2x32")
MIN_OPERATIONS = 4  # the least operations of an expression that does not recur by chance
PyTree = Any


def check_contract(posterior: Posterior, position: PyTree, datum: PyTree, num_data: int) -> None:
    """Raise UsageError if log_likelihood contains log_prior, divides by N, or is random."""
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
            "log_likelihood draws random numbers, which are the same at every call (one fixed mask of dropout, say). Turn "
            "dropout off (eqx.nn.inference_mode(net), net.eval() in nnx, deterministic=True in linen); to keep random "
            "numbers, draw them once before the run and use them as an array."
        )
    if size >= MIN_OPERATIONS and target in seen:
        raise UsageError(
            f"log_likelihood contains log_prior, which would then count {num_data} times; the library adds the prior "
            "once, so leave it out of log_likelihood."
        )
    if num_data >= MIN_OPERATIONS and _divides(output, num_data):
        raise UsageError(
            f"log_likelihood divides by the number of rows, {num_data}; return the log likelihood of "
            "one datum without that factor: the library sums over rows (if a mean is intended, as over draws that "
            "represent an expectation, give its factor as a column of the data)."
        )


def _expressions(
    closed: Any, inputs: list, seen: dict[Any, int], drawn: set[Any] | None = None
) -> list:
    """Return the outputs as nested tuples, and add every subexpression with its size to `seen`.

    Subexpressions that depend on random numbers are added to `drawn`.
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
            # hashed, because nesting would double the size with each repeated use
            own = hash((name, str(eqn.params), tuple(parts)))
            outputs = [
                (name, own, k, tuple(_brief(p) for p in parts)) for k in range(len(eqn.outvars))
            ]
            size = 1 + sum(seen.get(part, 0) for part in parts)
            seen.update((output, size) for output in outputs)
            if drawn is not None and (name in RANDOM_PRIMITIVES or not drawn.isdisjoint(parts)):
                drawn.update(outputs)
        values.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _called(eqn: Any) -> Any:
    """Return the expression that an equation evaluates once, with its own arguments, or None.

    For `jax.checkpoint` it is a `Jaxpr`, for `jax.jit` a `ClosedJaxpr`; since JAX 0.11 these are one class.
    """
    inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    jaxpr = getattr(inner, "jaxpr", inner)
    if eqn.primitive.name in LOOP_PRIMITIVES or not hasattr(jaxpr, "eqns"):
        return None
    own, called = (
        [[getattr(v.aval, "shape", None) for v in variables] for variables in both]
        for both in ((eqn.invars, eqn.outvars), (jaxpr.invars, jaxpr.outvars))
    )
    return inner if own == called else None  # a reduction has an inner function of two numbers


def _brief(part: Any) -> Any:
    """Return a constant's value, or the identifying part of any other expression."""
    return part if part[0] == "constant" else part[:2]


def _constant(value: Any) -> tuple:
    if jnp.issubdtype(jnp.result_type(value), jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    if array.ndim == 0 and np.issubdtype(array.dtype, np.number):
        return ("constant", float(array))
    return ("constant", hash((array.shape, array.tobytes())))


def _divides(output: Any, num_data: int) -> bool:
    """Return whether the last operation is a division by N, or a product with 1/N."""
    if len(output) != 4 or output[0] not in ("div", "mul"):
        return False
    numbers = [part[1] for part in output[3] if part[0] == "constant"]
    wanted = num_data if output[0] == "div" else 1 / num_data
    return any(isinstance(v, float) and abs(v / wanted - 1) < 1e-6 for v in numbers)


# -- functions -----------------------------------------------------------------------------


SUM_REMEDIES = {
    "log_prior": "; sum it.",
    "log_likelihood": "; it takes ONE datum, and the library sums over rows.",
}


TAKES = {"log_prior": "(position)", "log_likelihood": "(position, datum)"}


def _check_takes(name: str, function: Callable, arguments: tuple) -> None:
    """Raise UsageError if a function does not take these arguments, as far as its signature says."""
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:  # a function without a signature
        return
    except TypeError as error:
        raise UsageError(f"{name} must be a function of {TAKES[name]}: {error}.") from None


def check_scalar(name: str, function: Callable, *arguments: Any) -> None:
    """Raise UsageError unless a function returns one floating-point number, without computing it."""
    _check_takes(name, function, arguments)
    with user_errors(name):
        found = jax.eval_shape(function, *arguments)
    shape, dtype = getattr(found, "shape", None), getattr(found, "dtype", None)
    if shape is None or dtype is None:
        raise UsageError(
            f"{name} must return one number. Got {_kind(found)}; return an array without axes."
        )
    if shape != ():
        raise UsageError(
            f"{name} must return one number. Got an array of shape {shape}{SUM_REMEDIES[name]}"
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise UsageError(
            f"{name} must return a floating-point number. Got {dtype}; return 0.0 instead of 0, or convert it."
        )


def _kind(found: Any) -> str:
    return "nothing" if found is None else f"a {type(found).__name__}"


# -- probe rows ----------------------------------------------------------------------------


def with_probe_rows(posterior: Posterior, datum: Any) -> Posterior:
    """Return the posterior with `predict_at` as arrays like the data, of which `datum` is one row.

    Raises UsageError if the rows differ in form from the data, or the run is not judged by predictions; DataError
    if they hold a value that is not finite.
    """
    if posterior.predict_at is None:
        return posterior
    if datum is None or posterior.predict is None:
        raise UsageError(
            "predict_at holds rows for judging predictions, but this run is judged by its parameters; give predict= too, "
            "or leave predict_at out."
        )
    given, structure = jax.tree.flatten(posterior.predict_at)
    own, expected = jax.tree.flatten(datum)
    if structure != expected:
        raise UsageError(
            f"predict_at must be rows like the data's, with every array of a datum: {expected}. Got {structure}."
        )
    names, rows, lengths = leaf_names(posterior.predict_at), [], set()
    for name, leaf, one in zip(names, given, own, strict=True):
        array = np.asarray(unmasked(f"predict_at leaf {name!r}", leaf))
        if array.shape[1:] != one.shape or not array.ndim:
            raise UsageError(
                f"predict_at leaf {name!r} must have rows of shape {one.shape}, as the data have. Got an array of "
                f"shape {array.shape}."
            )
        if array.dtype.kind not in "biuf":
            raise UsageError(f"predict_at leaf {name!r} must hold numbers. Got {array.dtype}.")
        lengths.add(len(array))
        with np.errstate(invalid="ignore", over="ignore"):  # numbers beyond the range of the dtype
            rows.append(array.astype(one.dtype))
        if not (np.isfinite(array).all() and np.isfinite(rows[-1]).all()):
            raise DataError(f"predict_at leaf {name!r} holds a number that is not finite.")
        if np.issubdtype(one.dtype, np.integer) and (rows[-1] != array).any():
            raise UsageError(f"predict_at leaf {name!r} must hold whole numbers, as the data do.")
    if len(lengths) > 1 or 0 in lengths:
        raise UsageError(
            f"the arrays of predict_at must have the same number of rows, at least 1. Got {sorted(lengths)}."
        )
    return replace(posterior, predict_at=structure.unflatten(rows))


# -- cholesky ------------------------------------------------------------------------------


MOVE_SCALES = (1.0, 2.0, 4.0, 8.0, 16.0)  # multiples of the scale, in both directions
MAX_MOVED_SINGLY = 200  # the most parameters that are moved one by one


def without_a_factor(
    problem: Problem, z: Float[np.ndarray, " d"], scale: Float[np.ndarray, " d"], unit: str
) -> str:
    """Return the message for a Cholesky factor that is not finite near z; "" if none is used.

    It names the parameter that, moved alone by the fewest scales, makes the density finite if it is
    not, or not finite if it is.
    """
    if not _uses_cholesky(problem):
        return ""
    name = ""
    if z.size <= MAX_MOVED_SINGLY:
        name = _responsible_parameter(problem, np.asarray(z, np.float64), scale, unit)
    return (
        f"the model takes a Cholesky factor, which is not finite in {problem.layout.dtype} if the matrix is "
        f"nearly singular{name}; add to the matrix's diagonal, or set jax_enable_x64"
    )


def _uses_cholesky(problem: Problem) -> bool:
    return "cholesky" in str(jax.make_jaxpr(sums.log_density)(problem, problem.start))


def _responsible_parameter(problem: Problem, z: np.ndarray, scale: np.ndarray, unit: str) -> str:
    finite = bool(_finite(problem, problem.array(z[None]))[0])
    for size in MOVE_SCALES:
        away = size * np.diag(scale)
        changed = _finite(problem, problem.array(z + np.concatenate([away, -away]))) != finite
        if changed.any():
            name = problem.layout.element_names()[int(np.argmax(changed)) % z.size]
            becomes = "no longer finite" if finite else "finite"
            return f" (it is {becomes} with {name!r} moved by {size:g}{unit})"
    return ""


def _finite(problem: Problem, zs: Float[Array, "m d"]) -> np.ndarray:
    return np.isfinite(np.asarray(_values(problem, zs)))


@jax.jit
def _values(problem: Problem, zs: Any) -> Any:
    return jax.lax.map(lambda z: sums.log_density(problem, z), zs)


# -- prepare -------------------------------------------------------------------------------


# from this dimension on, the gradient at the start uses only the first FIRST_ROWS rows: with all rows it took a tenth of
# a run of 2,000 steps with 478,410 weights, and the density a twentieth
FIRST_ROWS_DIM, FIRST_ROWS = 2**16, 4096


def prepare(
    posterior: Posterior, data: Any, init: Any, *, seed: int = 0, mesh: Any = None
) -> Problem:
    """Return the checked problem of a call, all rows in one batch; raise UsageError or DataError."""
    with raise_together():  # an error of one process must not leave the others waiting for its rows
        posterior, data, layout, free = _given(posterior, data, init, seed)
    source = None if data is None else as_source(data, seed, mesh)
    posterior = with_probe_rows(posterior, None if source is None else source.take(0))
    problem = Problem(
        Target(posterior, layout, layout.array(1.0)), source, layout.ravel(free), mesh
    )
    count_posterior(problem)
    _check_model(problem)
    return problem


def _given(posterior: Any, data: Any, init: Any, seed: int) -> tuple[Posterior, Any, Layout, Any]:
    """Return posterior, data, and the free position at which a search begins."""
    check_seed(seed)
    check_device()
    warn_of_slow_versions()
    posterior, data, init = resolve_model(posterior, data, init)
    if not isinstance(posterior, Posterior):
        raise UsageError(
            f"posterior must be an sgld.Posterior, as from sgld.Posterior(log_prior, log_likelihood). Got "
            f"{type(posterior).__name__}."
        )
    if (data is None) != (posterior.log_likelihood is None):
        raise UsageError(
            "data is None, but the posterior has a log_likelihood; pass the data."
            if data is None
            else "data was given, but the posterior has no log_likelihood; pass data=None, or give one."
        )
    init = posterior.init if init is None else init
    if init is None:
        raise UsageError("init is missing: give a position (a pytree of arrays) to start from.")
    refuse_statistics(init)
    init = seal(init)
    posterior = with_modules(posterior, init)
    free = posterior.unconstrain(jax.tree_util.tree_map_with_path(_inexact, _in_single(init)))
    layout = Layout.of(free)
    return posterior, data, layout, free


def _inexact(path: Any, leaf: Any) -> Any:
    if isinstance(leaf, np.ma.MaskedArray):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "x"
        leaf = np.asarray(unmasked(f"init leaf {name!r}", leaf))
    if (
        isinstance(leaf, np.ndarray)
        and leaf.dtype == np.float64
        and not jax.config.read("jax_enable_x64")
    ):
        return leaf.astype(np.float32)
    return leaf


def _in_single(init: Any) -> Any:
    """Return half-precision parameters as float32 copies, with a warning.

    Steps are smaller than the resolution of half precision.
    """
    narrow = lambda leaf: str(getattr(leaf, "dtype", "")) in ("float16", "bfloat16")  # noqa: E731
    found = [leaf for leaf in jax.tree.leaves(init) if narrow(leaf)]
    if not found:
        return init
    said = f"{len(found)} arrays of init are {found[0].dtype}: they are converted to float32 for sampling, and the draws are float32."
    warnings.warn(said, SGLDWarning, stacklevel=2)
    return jax.tree.map(lambda leaf: leaf.astype(np.float32) if narrow(leaf) else leaf, init)


def _not_finite(problem: Problem, position: PyTree) -> str:
    """Return which part makes the log density at `position` not finite; "" if there is one part."""
    for name, leaf in zip(leaf_names(position), jax.tree.leaves(position), strict=True):
        if not np.isfinite(np.asarray(leaf)).all():
            return f"init leaf {name!r} is not finite"
    if not problem.has_rows:
        return ""
    finite_prior = np.isfinite(float(problem.posterior.log_prior(position)))
    return f"{'log_likelihood' if finite_prior else 'log_prior'} is not finite"


def _check_model(problem: Problem) -> None:
    """Check that functions return scalars and that density and gradient are finite at the start."""
    posterior, z = problem.posterior, problem.start
    position, own = problem.target.position(z), posterior.names is None  # formula models are ours
    check_scalar("log_prior", posterior.log_prior, position)
    if own:
        check_repeatable("log_prior", posterior.log_prior, position)
    if problem.has_rows:
        row, likelihood = problem.source.take(0), posterior.log_likelihood
        assert likelihood is not None
        check_scalar("log_likelihood", likelihood, position, row)
        if own:
            check_repeatable("log_likelihood", likelihood, position, row)
            check_contract(posterior, position, row, problem.num_data)
    with user_errors("the gradient of the log density"):
        if (
            problem.has_rows
            and problem.dimension >= FIRST_ROWS_DIM
            and problem.num_data > FIRST_ROWS
        ):
            value = sums.value(problem, z)
            gradient = sums.value_and_gradient(problem.first(FIRST_ROWS), z)[1]
        else:
            value, gradient = sums.value_and_gradient(problem, z)
    if not np.isfinite(float(value)):
        reason = without_a_factor(problem, np.asarray(z), np.ones(z.size), "") or _not_finite(
            problem, position
        )
        raise UsageError(
            f"the log density at init is {float(value)}{reason and ': ' + reason}; "
            "choose a start with finite density."
        )
    bad = ~np.isfinite(np.asarray(gradient))
    if bad.any():
        leaf = problem.layout.locate(int(np.argmax(bad)))
        raise UsageError(
            f"the gradient of the log density at init is not finite in leaf {leaf!r}; choose another "
            "start, or make the log density differentiable there."
        )
