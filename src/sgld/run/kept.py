"""`keep=`: a function of the position that is kept instead of it, or moments alone.

The bias meter needs positions. Where they are few numbers they are held beside what is kept, and
the run is judged as ever; where they are not, the verdict says no more than it can know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from ..core.devices import check_memory
from ..core.pytrees import Layout, leaf_names, tell_apart
from ..core.user_code import check_repeatable
from ..errors import UsageError, did_you_mean
from ..model.modules import as_module, seal
from ..model.problem import Problem, Request
from ..results.plan import Setup
from .moments import Batches

__all__ = ["MOMENTS", "Keep", "as_keep", "check_moments"]

MOMENTS = "moments"
HELD = 2**22  # numbers of all positions of a run, up to which they are held for the meter
LEAST_BYTES = 1000.0  # of a number that is kept: its name, and a hundred draws or so
BATCHES = 20  # of a chain's draws, whose means give the standard error of moments


@dataclass(frozen=True)
class Keep:
    """What is kept of a draw: `function` of what draws would report, or the moments of that."""

    function: Any
    layout: Layout
    names: tuple[str, ...]
    moments: bool = False

    def holds_positions(self, setup: Setup, dimension: int) -> bool:
        """Whether the positions are held too, for the verdict."""
        return not self.moments and setup.num_draws * setup.num_chains * dimension <= HELD

    @property
    def width(self) -> int:
        """Numbers that a draw adds."""
        return 0 if self.moments else self.layout.dimension

    def numbers(self, setup: Setup, dimension: int) -> int:
        """How many are held of a draw."""
        held = dimension if self.holds_positions(setup, dimension) else 0
        return held if self.moments else held + self.layout.dimension

    def batches(self, setup: Setup) -> Batches | None:
        """The batches of draws, where moments alone are kept."""
        if not self.moments:
            return None
        return Batches(jnp.int32(max(1, setup.num_draws // BATCHES)), jnp.int32(setup.num_draws))

    def describe(self) -> dict[str, Any]:
        """What run.json remembers: a function cannot be stored, its result's structure can."""
        leaves = zip(self.layout.names, self.layout.shapes, self.layout.dtypes, strict=True)
        return {
            "kind": MOMENTS if self.moments else "function",
            "leaves": [[name, list(shape), dtype] for name, shape, dtype in leaves],
        }


def as_keep(keep: Any, problem: Problem) -> Keep | None:
    """`keep` of `sgld.sample`, tried on the shapes of a position. Raises UsageError."""
    if keep is None:
        return None
    if isinstance(keep, str) and keep == MOMENTS:
        layout = _layout(_tried(_itself, problem))
        names = tuple(problem.posterior.names or layout.element_names())
        return Keep(Partial(_itself), layout, names, moments=True)
    if isinstance(keep, str) or not callable(keep):
        raise UsageError(
            f"keep must be a function of a position, {MOMENTS!r} or None. Got {keep!r}."
            + (did_you_mean(keep, (MOMENTS,)) if isinstance(keep, str) else "")
        )
    tell_apart(keep)
    function = Partial(keep) if jax.tree_util.all_leaves([keep]) else keep
    function = Partial(_of_module, function)
    first, second = (_tried(function, problem) for _ in range(2))
    if _shapes(first) != _shapes(second):
        raise UsageError(
            "keep must return arrays of the same shape at every call. It returned "
            f"{_shapes(first)[1]}, then {_shapes(second)[1]}."
        )
    layout = _layout(first)
    check_repeatable("keep", lambda z: function(problem.target.reported(z)), problem.start)
    numbers = sum(math.prod(shape) for shape in layout.shapes)
    check_memory(
        LEAST_BYTES * numbers,
        f"the {numbers:,} numbers that keep returns, of every draw,",
        "keep fewer",
    )
    return Keep(function, layout, tuple(layout.element_names()))


def check_moments(keep: Keep | None, ask: Request, ess: Any) -> None:
    """UsageError for what moments alone cannot do."""
    if keep is None or not keep.moments:
        return
    if ess is not None:
        raise UsageError(
            "ess goes on until there are so many effective draws, which keep='moments' knows only at the "
            "end of a run of given length; give num_draws, or keep a function."
        )
    if isinstance(ask.temperature, (int, float)) and ask.temperature == 0:
        raise UsageError("temperature is 0, where there are no draws for keep='moments' to sum up.")


def _itself(position: Any) -> Any:
    return position


def _of_module(function: Any, position: Any) -> Any:
    return jax.tree.map(_in_single, seal(function(as_module(position))))


def _in_single(x: Any) -> Any:
    """A number of a type that NumPy has not, bfloat16 or float8, as float32: files hold NumPy's alone."""
    short = jnp.issubdtype(jnp.result_type(x), jnp.floating) and x.dtype.kind == "V"
    return x.astype(jnp.float32) if short else x


def _tried(function: Any, problem: Problem) -> Any:
    """The shapes of keep's result, from tracing it (anew each time)."""
    try:
        return jax.eval_shape(lambda z: function(problem.target.reported(z)), problem.start)
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        raise UsageError(
            f"keep raised {type(error).__name__} when it was tried on a position ({said}). It is compiled "
            "with the run: write it with jax.numpy, for one position, with results whose shape does "
            "not depend on values."
        ) from error


def _shapes(result: Any) -> tuple:
    leaves, treedef = jax.tree.flatten(result)
    return treedef, [(leaf.shape, str(leaf.dtype)) for leaf in leaves]


def _layout(result: Any) -> Layout:
    """Names, shapes and dtypes of keep's result. Raises UsageError where they are no numbers."""
    leaves, treedef = jax.tree.flatten(result)
    names = tuple(leaf_names(result))
    if not leaves or not any(np.prod(leaf.shape) for leaf in leaves):
        raise UsageError("keep returned no numbers; return at least one array of them.")
    for name, leaf in zip(names, leaves, strict=True):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise UsageError(
                f"keep's {name!r} has dtype {leaf.dtype}; draws are real numbers, so return "
                f"{'its real and imaginary parts' if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else '.astype(float)'}."
            )
    shapes = tuple(leaf.shape for leaf in leaves)
    return Layout(treedef, shapes, tuple(str(leaf.dtype) for leaf in leaves), names)
