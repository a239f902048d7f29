"""The cost of a gradient of the log posterior, counted in its jaxpr without any timing.

    seconds of k gradients at once = shared + k each

`each` sums, over the primitives, the numbers that they produce, multiply or factorise, times a constant
of the primitive. `shared` is the work that k chains share: the start of an equation or of a loop iteration.
The constants were measured once in batches of 64, on one core of a server of 2024, and are fixed
here. A model therefore has the same cost on every machine, and another machine changes all costs by
about the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

from .problem import Problem

# all constants are seconds
# an equation, and an iteration of a loop, for all chains together
EQUATION_SECONDS, TURN_SECONDS = 2e-8, 1e-7
# a number that a fused addition, exp, comparison or sum produces or reads
NUMBER_SECONDS = 1e-10
PRODUCT_SECONDS = 2.5e-11  # a multiplication and addition in a matrix product
CONVOLUTION_SECONDS = 1.2e-10  # the same in a convolution, whose kernels differ between chains
# a number in a pooling window, and in the gradient of max pooling
WINDOW_SECONDS, WINDOW_MAX_SECONDS = 1e-9, 1.5e-8
LAPACK_CALL_SECONDS = 5e-7  # a call of LAPACK
LOOP_TURNS = 10  # the assumed iterations of a loop whose end depends on its values
FUNCTION_SECONDS = {  # slow functions, and functions that do not read memory in order
    "cos": 4e-9, "cumlogsumexp": 8e-9, "cummax": 4e-9, "cummin": 4e-9, "cumprod": 4e-9, "cumsum": 4e-9,
    "digamma": 1e-8, "erf_inv": 3e-9, "exp": 6e-10, "exp2": 6e-10, "expm1": 6e-10, "gather": 5e-10,
    "igamma": 1e-7, "igammac": 1e-7, "lgamma": 1e-8, "log": 6e-10, "log1p": 6e-10, "log2": 6e-10,
    "logistic": 6e-10,
    "pow": 4e-9, "regularized_incomplete_beta": 2e-7, "sin": 4e-9, "tan": 8e-9, "tanh": 6e-10,
}  # fmt: skip
MULTIPLIED_POWERS = (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0)  # powers that XLA computes as products
SCATTER_SECONDS = 1e-9  # a number added at an index
COMPARISON_SECONDS = 1.2e-8  # a comparison of a sort
# per n^3 of a matrix; a Cholesky factor takes a third of the multiplications
FACTORISATION_SECONDS = {
    "cholesky": 3.5e-11, "eig": 1e-8, "eigh": 1.3e-9, "hessenberg": 1e-9, "householder_product": 2e-10,
    "geqrf": 1.6e-10, "lu": 1.5e-10, "qr": 1.6e-10, "schur": 1e-8, "svd": 2e-9,
}  # fmt: skip
# per n^2 of a triangular matrix, and the addition for each column
SOLVE_SECONDS, SOLVE_COLUMN_SECONDS = 1e-9, 6e-11
# operations for which XLA makes no kernel, or that it fuses into another
FREE_OPERATIONS = frozenset({
    "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p", "dynamic_slice",
    "expand_dims", "iota", "pad", "reshape", "rev", "slice", "squeeze", "stop_gradient", "transpose",
    "random_wrap", "random_unwrap",
})  # fmt: skip


class Cost(NamedTuple):
    """Predicted seconds: of each evaluation, and shared by many at once."""

    each: float
    shared: float

    def seconds(self, count: float) -> float:
        """Return the seconds of `count` evaluations at once."""
        return self.shared + count * self.each


def gradient_cost(problem: Problem) -> Cost:
    """Return the cost of the log posterior density and its gradient over all rows."""
    return _traced_cost(_posterior, problem.as_one_batch())


def row_cost(problem: Problem) -> float:
    """Return the part of that cost that one row adds."""
    prior = _traced_cost(_prior, problem).each
    return max(0.0, gradient_cost(problem).each - prior) / max(1, problem.num_data)


@jax.jit
def _posterior(problem: Problem, z: Any) -> Any:
    """Return log density and gradient with the rows in one batch; this function is only traced."""

    def log_density(z: Any) -> Any:
        if not problem.has_rows:
            return problem.log_prior(z)
        batch = problem.source.fetch(jax.numpy.int32(0))
        return problem.log_prior(z) + problem.log_likelihood(z, batch.rows, batch.weight)

    return jax.value_and_grad(log_density)(z)


@jax.jit
def _prior(problem: Problem, z: Any) -> Any:
    return jax.value_and_grad(problem.log_prior)(z)


def _traced_cost(function: Any, problem: Problem) -> Cost:
    """Return the cost of a jitted function of the problem and z, from its cached trace."""
    jaxpr = function.trace(problem, _free(problem)).jaxpr.jaxpr
    return _jaxpr_cost(jaxpr, [False] * (len(jaxpr.invars) - 1) + [True])


def _free(problem: Problem) -> Any:
    return jax.ShapeDtypeStruct((problem.dimension,), problem.layout.dtype)


def cost_of(function: Callable[..., Any], *shapes: Any) -> Cost:
    """Return the cost of calling `function`, without computing or compiling anything.

    Work that does not depend on its arguments is left out: XLA moves it out of the calling loop.
    """
    jaxpr = jax.make_jaxpr(function)(*shapes).jaxpr
    return _jaxpr_cost(jaxpr, [True] * len(jaxpr.invars))


def _jaxpr_cost(jaxpr: Any, moving: Sequence[bool]) -> Cost:
    """Return the cost of a jaxpr; `moving` marks the arguments that change between calls."""
    each = shared = 0.0
    changes = {id(v) for v, m in zip(jaxpr.invars, moving, strict=True) if m}
    for equation in jaxpr.eqns:
        given = [id(v) in changes for v in equation.invars]
        if not any(given):
            continue
        changes |= {id(v) for v in equation.outvars}
        own = _primitive_seconds(equation)
        if own is not None:
            count = _num_equations(equation)
            each, shared = each + count * own, shared + count * EQUATION_SECONDS
            continue
        turns = _turns(equation)
        for one in _inner_jaxprs(equation):
            same = turns == 1 and len(one.invars) == len(given)
            price = _jaxpr_cost(one, given if same else [True] * len(one.invars))
            each, shared = each + turns * price.each, shared + turns * price.shared
        shared += turns * TURN_SECONDS if turns > 1 else 0.0
    return Cost(each, shared)


def _turns(equation: Any) -> int:
    name = equation.primitive.name
    return (
        int(equation.params["length"]) if name == "scan" else LOOP_TURNS if name == "while" else 1
    )


def _inner_jaxprs(equation: Any) -> Iterator[Any]:
    """Yield the jaxprs that an equation evaluates; all branches of a condition, as chains differ."""
    params = equation.params
    if equation.primitive.name == "custom_linear_solve":
        params = {"solve": params["jaxprs"].solve}
    for value in params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            one = getattr(one, "jaxpr", one)
            if hasattr(one, "eqns"):
                yield one


def _num_equations(equation: Any) -> int:
    """Return how many equations JAX 0.10 has for this one, so that all versions give one cost."""
    name = equation.primitive.name
    if name == "one_minus_square":  # in the derivative of tanh: (1 - x) g + x (1 - x) g
        return 3
    if name == "polynomial":  # a product and a sum for each coefficient
        return 2 * (len(equation.invars) - 1)
    return 1


def _primitive_seconds(equation: Any) -> float | None:
    """Return the seconds of a primitive, or None if it evaluates other jaxprs."""
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
    if name.startswith("reduce") or next(_inner_jaxprs(equation), None) is None:
        return FUNCTION_SECONDS.get(name, NUMBER_SECONDS) * max(made, *map(math.prod, ins), 0)
    return None


def _shapes(variables: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(getattr(v.aval, "shape", ())) for v in variables]
