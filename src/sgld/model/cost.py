"""What a gradient of the log posterior costs, counted in its jaxpr: no clock is read.

    seconds of k gradients at once = shared + k each

`each` sums over the primitives how many numbers they make, multiply or factorise, times a constant
of the primitive; `shared` is what k chains do together: to begin an equation, or a turn of a loop.
The constants were measured once in batches of 64, on one core of a server of 2024, and are kept
here: the same model has the same price everywhere, and on another machine all prices are off by
about the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

from .problem import Problem

# seconds
# of an equation and of a turn of a loop, for all chains together
EQUATION_SECONDS, TURN_SECONDS = 2e-8, 1e-7
# of a number that addition, exp, a comparison or a sum makes or reads, fused as they are
NUMBER_SECONDS = 1e-10
PRODUCT_SECONDS = 2.5e-11  # of a multiplication and addition in a product of matrices
CONVOLUTION_SECONDS = 1.2e-10  # of one in a convolution, whose kernels differ from chain to chain
WINDOW_SECONDS, WINDOW_MAX_SECONDS = (
    1e-9,
    1.5e-8,
)  # of a number in a window that is pooled, and on the way back from its largest
LAPACK_CALL_SECONDS = 5e-7  # of a call of LAPACK
LOOP_TURNS = 10  # of a loop whose end depends on its numbers
FUNCTION_SECONDS = {  # of the functions that take long, and of what does not run through memory
    "cos": 4e-9, "cumlogsumexp": 8e-9, "cummax": 4e-9, "cummin": 4e-9, "cumprod": 4e-9, "cumsum": 4e-9,
    "digamma": 1e-8, "erf_inv": 3e-9, "exp": 6e-10, "exp2": 6e-10, "expm1": 6e-10, "gather": 5e-10,
    "igamma": 1e-7, "igammac": 1e-7, "lgamma": 1e-8, "log": 6e-10, "log1p": 6e-10, "log2": 6e-10,
    "logistic": 6e-10,
    "pow": 4e-9, "regularized_incomplete_beta": 2e-7, "sin": 4e-9, "tan": 8e-9, "tanh": 6e-10,
}  # fmt: skip
MULTIPLIED_POWERS = (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0)  # powers that XLA makes products of
SCATTER_SECONDS = 1e-9  # a number added somewhere else
COMPARISON_SECONDS = 1.2e-8  # a comparison of a sort
# of a matrix's n^3; a Cholesky factor takes a third of the multiplications
FACTORISATION_SECONDS = {
    "cholesky": 3.5e-11, "eig": 1e-8, "eigh": 1.3e-9, "hessenberg": 1e-9, "householder_product": 2e-10,
    "geqrf": 1.6e-10, "lu": 1.5e-10, "qr": 1.6e-10, "schur": 1e-8, "svd": 2e-9,
}  # fmt: skip
# of a triangular matrix's n^2, and of each column besides
SOLVE_SECONDS, SOLVE_COLUMN_SECONDS = 1e-9, 6e-11
# what XLA makes no kernel for, or moves inside another
FREE_OPERATIONS = frozenset({
    "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p", "dynamic_slice",
    "expand_dims", "iota", "pad", "reshape", "rev", "slice", "squeeze", "stop_gradient", "transpose",
    "random_wrap", "random_unwrap",
})  # fmt: skip


class Price(NamedTuple):
    """Predicted seconds: of each evaluation, and of what many at once share."""

    each: float
    shared: float

    def seconds(self, count: float) -> float:
        """Of `count` evaluations at once."""
        return self.shared + count * self.each


def gradient_price(problem: Problem) -> Price:
    """Of the log posterior density and its gradient over all rows."""
    return _of_traced(_posterior, problem.as_one_batch())


def row_price(problem: Problem) -> float:
    """Of one row's part of it."""
    prior = _of_traced(_prior, problem).each
    return max(0.0, gradient_price(problem).each - prior) / max(1, problem.num_data)


@jax.jit
def _posterior(problem: Problem, z: Any) -> Any:
    """Log density and gradient, the rows in one batch; only traced."""

    def log_density(z: Any) -> Any:
        if not problem.has_rows:
            return problem.log_prior(z)
        batch = problem.source.fetch(jax.numpy.int32(0))
        return problem.log_prior(z) + problem.log_likelihood(z, batch.rows, batch.weight)

    return jax.value_and_grad(log_density)(z)


@jax.jit
def _prior(problem: Problem, z: Any) -> Any:
    return jax.value_and_grad(problem.log_prior)(z)


def _of_traced(function: Any, problem: Problem) -> Price:
    """Of a jitted function of the problem and z: its trace is kept, and serves other numbers too."""
    jaxpr = function.trace(problem, _free(problem)).jaxpr.jaxpr
    return _priced(jaxpr, [False] * (len(jaxpr.invars) - 1) + [True])


def _free(problem: Problem) -> Any:
    return jax.ShapeDtypeStruct((problem.dimension,), problem.layout.dtype)


def priced(function: Callable[..., Any], *shapes: Any) -> Price:
    """Of calling `function`; nothing is computed or compiled.

    What does not depend on its arguments is left out: XLA takes it out of the loop that calls it.
    """
    jaxpr = jax.make_jaxpr(function)(*shapes).jaxpr
    return _priced(jaxpr, [True] * len(jaxpr.invars))


def _priced(jaxpr: Any, moving: Sequence[bool]) -> Price:
    """`moving`: which of its arguments change from call to call."""
    each = shared = 0.0
    changes = {id(v) for v, m in zip(jaxpr.invars, moving, strict=True) if m}
    for equation in jaxpr.eqns:
        given = [id(v) in changes for v in equation.invars]
        if not any(given):
            continue
        changes |= {id(v) for v in equation.outvars}
        own = _own(equation)
        if own is not None:
            count = _stands_for(equation)
            each, shared = each + count * own, shared + count * EQUATION_SECONDS
            continue
        turns = _turns(equation)
        for one in _inside(equation):
            same = turns == 1 and len(one.invars) == len(given)
            price = _priced(one, given if same else [True] * len(one.invars))
            each, shared = each + turns * price.each, shared + turns * price.shared
        shared += turns * TURN_SECONDS if turns > 1 else 0.0
    return Price(each, shared)


def _turns(equation: Any) -> int:
    name = equation.primitive.name
    return (
        int(equation.params["length"]) if name == "scan" else LOOP_TURNS if name == "while" else 1
    )


def _inside(equation: Any) -> Iterator[Any]:
    """The jaxprs that an equation evaluates; of a condition all branches, as many chains do."""
    params = equation.params
    if equation.primitive.name == "custom_linear_solve":
        params = {"solve": params["jaxprs"].solve}
    for value in params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            one = getattr(one, "jaxpr", one)
            if hasattr(one, "eqns"):
                yield one


def _stands_for(equation: Any) -> int:
    """Return how many equations JAX 0.10 has for this one: a model has one price with every version."""
    name = equation.primitive.name
    if name == "one_minus_square":  # in the derivative of tanh: (1 - x) g + x (1 - x) g
        return 3
    if name == "polynomial":  # a product and a sum for each coefficient
        return 2 * (len(equation.invars) - 1)
    return 1


def _own(equation: Any) -> float | None:
    """Seconds of a primitive; None of one that evaluates others."""
    name = equation.primitive.name
    ins, outs = _shapes(equation.invars), _shapes(equation.outvars)
    made = sum(math.prod(shape) for shape in outs)
    if name in FREE_OPERATIONS:
        return 0.0
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return PRODUCT_SECONDS * made * math.prod(ins[0][axis] for axis in contracted)
    if name == "conv_general_dilated":
        features = equation.params["dimension_numbers"].rhs_spec[0]
        return CONVOLUTION_SECONDS * made * math.prod(ins[1]) / max(1, ins[1][features])
    if name.startswith("reduce_window"):
        return WINDOW_SECONDS * made * math.prod(equation.params["window_dimensions"])
    if name.startswith("select_and"):  # _scatter_add, _gather_add
        return (
            WINDOW_MAX_SECONDS * math.prod(ins[0]) * math.prod(equation.params["window_dimensions"])
        )
    if name in FACTORISATION_SECONDS:
        *many, m, n = ins[0]
        return math.prod(many) * (
            LAPACK_CALL_SECONDS + FACTORISATION_SECONDS[name] * m * n * min(m, n)
        )
    if name == "triangular_solve":
        *many, n, _ = ins[0]
        count = math.prod(many)
        columns = math.prod(ins[1]) / max(1, n * count)
        return count * (
            LAPACK_CALL_SECONDS + n**2 * (SOLVE_SECONDS + SOLVE_COLUMN_SECONDS * columns)
        )
    if name.startswith("scatter"):
        return SCATTER_SECONDS * math.prod(ins[2])
    if name == "sort":
        along = ins[0][equation.params["dimension"]]
        return COMPARISON_SECONDS * math.prod(ins[0]) * math.log2(max(2, along))
    if name == "pow" and getattr(equation.invars[1], "val", None) in MULTIPLIED_POWERS:
        return NUMBER_SECONDS * made
    if name.startswith("reduce") or next(_inside(equation), None) is None:
        return FUNCTION_SECONDS.get(name, NUMBER_SECONDS) * max(made, *map(math.prod, ins), 0)
    return None


def _shapes(variables: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(getattr(v.aval, "shape", ())) for v in variables]
