"""`keep=` of `sgld.sample`: a function of the position that replaces it, or moments alone.

The bias meter needs positions. If they are few numbers, they are held in addition to the kept
values, and the run is judged as usual. Otherwise the verdict judges mixing alone.

Moments come with histograms whose bins widen as draws fall outside. They give quantiles in constant
memory. Every number of every chain has HISTOGRAM_BINS bins of one width, a power of 2, starting
from `low`. The first width is a few roundings of the number. A draw outside doubles the width: two
bins become one, and the free half lies on the side of the draw, until it is inside. No draw is left
out or moved. The final bins are no wider than about 4 / HISTOGRAM_BINS of the range of the draws.

Weighted mean and variance are updated batch by batch, in constant memory. Every chain's draws
x_1, x_2, ... of weights w_i fall into batches of equal number. Within a batch and, over whole
batches, for the batches' means, the updates are West's (1979):

    W' = W + w,   mean' = mean + (w / W') (x - mean),   M2' = M2 + w (x - mean)(x - mean')

The sum of squares around the common mean is that within batches plus that between them. Batch means
therefore give the standard error without another pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int

from ..core.devices import check_memory
from ..core.pytrees import Layout, leaf_names, release_mistakable
from ..core.user_code import check_repeatable
from ..errors import UsageError, did_you_mean
from ..model.modules import as_module, seal
from ..model.problem import Problem, Request
from ..results.plan import Setup

# -- histogram -----------------------------------------------------------------------------


HISTOGRAM_BINS = 256
MAX_HISTOGRAMS = 2**14  # numbers of a draw up to which histograms are kept: 16 MB a chain
# first width of bins, relative to the number: 8 roundings of single precision
RELATIVE_BIN_WIDTH = 2.0**-20
MIN_BIN_WIDTH = 1e-30  # first width at 0


class Bins(NamedTuple):
    """Histograms of all numbers of a draw, in one row."""

    low: Float[Array, "chain m"]
    width: Float[Array, "chain m"]  # 0 before the first draw
    weight: Float[Array, "chain m bin"]


def begin_bins(chains: int, numbers: int, dtype: Any) -> Bins:
    """Return empty histograms."""
    zeros = jnp.zeros((chains, numbers), dtype)
    return Bins(zeros, zeros, jnp.zeros((chains, numbers, HISTOGRAM_BINS), dtype))


def with_values(bins: Bins, x: Float[Array, "chain m"], w: Float[Array, ""]) -> Bins:
    """Return the histograms with one more draw of every chain, of weight w.

    Values that are not finite or have no weight are left out.
    """
    counts = jnp.isfinite(x) & (w > 0)
    first = counts & (bins.width == 0)
    exponent = jnp.frexp(jnp.maximum(jnp.abs(x) * RELATIVE_BIN_WIDTH, MIN_BIN_WIDTH))[1]
    width = jnp.where(first, jnp.ldexp(jnp.ones_like(x), exponent), bins.width)
    low = jnp.where(first, x - HISTOGRAM_BINS // 2 * width, bins.low)
    beyond = lambda b: counts & ((x < b.low) | (x >= b.low + HISTOGRAM_BINS * b.width))  # noqa: E731
    bins = jax.lax.while_loop(
        lambda b: jnp.any(beyond(b)),
        lambda b: _widened(b, beyond(b), x < b.low),
        Bins(low, width, bins.weight),
    )
    at = jnp.where(counts, (x - bins.low) / jnp.where(bins.width > 0, bins.width, 1), 0)
    at = jnp.clip(at.astype(jnp.int32), 0, HISTOGRAM_BINS - 1)  # x / width may be rounded up
    chain, number = jnp.indices(x.shape)
    added = jnp.where(counts, w.astype(x.dtype), 0)
    return bins._replace(weight=bins.weight.at[chain, number, at].add(added))


def _widened(bins: Bins, which: Array, below: Array) -> Bins:
    """Return the histograms with twice the width where `which`, with room `below` or above."""
    pairs = bins.weight.reshape(*bins.low.shape, HISTOGRAM_BINS // 2, 2).sum(axis=-1)
    free = jnp.zeros_like(pairs)
    up, down = jnp.concatenate([pairs, free], -1), jnp.concatenate([free, pairs], -1)
    moved = jnp.where(below[..., None], down, up)
    return Bins(
        jnp.where(which & below, bins.low - HISTOGRAM_BINS * bins.width, bins.low),
        jnp.where(which, 2 * bins.width, bins.width),
        jnp.where(which[..., None], moved, bins.weight),
    )


# -- moments -------------------------------------------------------------------------------


PyTree = Any


class Batches(NamedTuple):
    """Number of draws per batch, and planned number of draws of each chain."""

    size: Int[Array, ""]
    draws: Int[Array, ""]


class BatchMoments(NamedTuple):
    """Sums over a run's draws; the leaves of the pytrees are [chain, ...]."""

    batch: PyTree  # mean of the draws of the unfinished batch
    within: PyTree  # sum over all draws of w (x - the mean of its batch)^2
    center: PyTree  # mean over whole batches
    between: PyTree  # sum over whole batches of their weight times (mean - center)^2
    batch_weight: Float[Array, ""]
    weight: Float[Array, ""]  # of whole batches
    squared_weights: Float[Array, ""]  # sum of w^2 over all draws
    batch_draws: Int[Array, ""]
    num_batches: Int[Array, ""]
    bins: Bins | None = None  # histograms of all numbers, if quantiles are kept too


def begin_moments(shapes: PyTree) -> BatchMoments:
    """Return moments without a draw, for values [chain, ...] of these shapes and dtypes."""
    row = jax.eval_shape(_row, shapes)
    chains, m = row.shape
    zeros = lambda: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)  # noqa: E731
    number = lambda: jnp.zeros((), jnp.result_type(float))  # noqa: E731
    return BatchMoments(
        zeros(), zeros(), zeros(), zeros(), number(), number(), number(), jnp.int32(0), jnp.int32(0),
        begin_bins(chains, m, row.dtype) if m <= MAX_HISTOGRAMS else None,
    )  # fmt: skip


def _row(value: PyTree) -> Float[Array, "chain m"]:
    """Return all numbers of each chain's draw."""
    leaves = jax.tree.leaves(value)
    return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def with_draw(
    moments: BatchMoments, value: PyTree, weight: Float[Array, ""], size: Int[Array, ""]
) -> BatchMoments:
    """Return the moments with one more draw of every chain; a batch has `size` draws."""
    m, w = moments, weight.astype(moments.weight.dtype)
    total = m.batch_weight + w
    batch, within = _updated(m.batch, m.within, value, w, total)
    m = m._replace(
        batch=batch, within=within, batch_weight=total, batch_draws=m.batch_draws + 1,
        squared_weights=m.squared_weights + w * w,
        bins=None if m.bins is None else with_values(m.bins, _row(value), w),
    )  # fmt: skip
    return jax.lax.cond(m.batch_draws >= size, _close_batch, lambda m: m, m)


def _close_batch(m: BatchMoments) -> BatchMoments:
    """Return the moments with the finished batch added to the others, and an empty one begun."""
    total = m.weight + m.batch_weight
    center, between = _updated(m.center, m.between, m.batch, m.batch_weight, total)
    zero = jnp.zeros_like(m.batch_weight)
    return BatchMoments(
        jax.tree.map(jnp.zeros_like, m.batch), m.within, center, between, zero, total,
        m.squared_weights, jnp.zeros_like(m.batch_draws), m.num_batches + 1, m.bins,
    )  # fmt: skip


def _updated(mean: PyTree, squares: PyTree, value: PyTree, w: Array, total: Array) -> tuple:
    """Return mean and sum of squares with one more value of weight w; `total` counts it."""
    share = w / jnp.where(total > 0, total, 1)
    new = jax.tree.map(lambda a, x: a + share.astype(x.dtype) * (x - a), mean, value)
    add = lambda s, a, b, x: s + w.astype(x.dtype) * (x - a) * (x - b)  # noqa: E731
    return new, jax.tree.map(add, squares, mean, new, value)


# -- kept ----------------------------------------------------------------------------------


MOMENTS = "moments"
# numbers of all positions of a run up to which they are held for the bias meter
MAX_METER_NUMBERS = 2**22
MIN_NUMBER_BYTES = 1000.0  # bytes per kept number: its name, and about a hundred draws
MOMENT_BATCHES = 20  # batches of a chain's draws, whose means give the standard error of moments


@dataclass(frozen=True)
class Keep:
    """What is kept of a draw: `function` of what draws would report, or its moments."""

    function: Any
    layout: Layout
    names: tuple[str, ...]
    moments: bool = False

    def holds_positions(self, setup: Setup, dimension: int) -> bool:
        """Return whether positions are held in addition, for the verdict."""
        return (
            not self.moments and setup.num_draws * setup.num_chains * dimension <= MAX_METER_NUMBERS
        )

    @property
    def width(self) -> int:
        """Numbers that a draw adds."""
        return 0 if self.moments else self.layout.dimension

    def numbers(self, setup: Setup, dimension: int) -> int:
        """Return how many numbers are held per draw."""
        held = dimension if self.holds_positions(setup, dimension) else 0
        return held if self.moments else held + self.layout.dimension

    def batches(self, setup: Setup) -> Batches | None:
        """Return the batches of draws, if only moments are kept."""
        if not self.moments:
            return None
        return Batches(
            jnp.int32(max(1, setup.num_draws // MOMENT_BATCHES)), jnp.int32(setup.num_draws)
        )

    def describe(self) -> dict[str, Any]:
        """Return the entry of run.json: the result's structure, as functions are not stored."""
        leaves = zip(self.layout.names, self.layout.shapes, self.layout.dtypes, strict=True)
        return {
            "kind": MOMENTS if self.moments else "function",
            "leaves": [[name, list(shape), dtype] for name, shape, dtype in leaves],
        }


def as_keep(keep: Any, problem: Problem) -> Keep | None:
    """Return `keep` of `sgld.sample` as a Keep, traced on the shapes of a position.

    Raises UsageError if `keep` is not usable.
    """
    if keep is None:
        return None
    if isinstance(keep, str) and keep == MOMENTS:
        layout = _layout(_traced(_itself, problem))
        names = tuple(problem.posterior.names or layout.element_names())
        return Keep(Partial(_itself), layout, names, moments=True)
    if isinstance(keep, str) or not callable(keep):
        raise UsageError(
            f"keep must be a function of a position, {MOMENTS!r} or None. Got {keep!r}."
            + (did_you_mean(keep, (MOMENTS,)) if isinstance(keep, str) else "")
        )
    release_mistakable(keep)
    function = Partial(keep) if jax.tree_util.all_leaves([keep]) else keep
    function = Partial(_of_module, function)
    first, second = (_traced(function, problem) for _ in range(2))
    if _shapes(first) != _shapes(second):
        raise UsageError(
            "keep must return arrays of the same shape at every call. It returned "
            f"{_shapes(first)[1]}, then {_shapes(second)[1]}."
        )
    layout = _layout(first)
    check_repeatable("keep", lambda z: function(problem.target.reported(z)), problem.start)
    numbers = sum(math.prod(shape) for shape in layout.shapes)
    check_memory(
        MIN_NUMBER_BYTES * numbers,
        f"the {numbers:,} numbers that keep returns, of every draw,",
        "keep fewer",
    )
    return Keep(function, layout, tuple(layout.element_names()))


def check_moments(keep: Keep | None, ask: Request, ess: Any) -> None:
    """Raise UsageError for settings that moments alone do not support."""
    if keep is None or not keep.moments:
        return
    if ess is not None:
        raise UsageError(
            "ess cannot be combined with keep='moments', which knows the effective draws only at the end of a run "
            "of given length; give num_draws, or keep a function."
        )
    if isinstance(ask.temperature, (int, float)) and ask.temperature == 0:
        raise UsageError("temperature must be positive with keep='moments': at 0 it has no draws.")


def _itself(position: Any) -> Any:
    return position


def _of_module(function: Any, position: Any) -> Any:
    return jax.tree.map(_in_single, seal(function(as_module(position))))


def _in_single(x: Any) -> Any:
    """Cast a number of a dtype that NumPy lacks (bfloat16, float8) to float32, as files need."""
    short = jnp.issubdtype(jnp.result_type(x), jnp.floating) and x.dtype.kind == "V"
    return x.astype(jnp.float32) if short else x


def _traced(function: Any, problem: Problem) -> Any:
    """Return the shapes of keep's result by tracing it, again at each call."""
    try:
        return jax.eval_shape(lambda z: function(problem.target.reported(z)), problem.start)
    except Exception as error:
        cause = (str(error).strip().splitlines() or [""])[0]
        raise UsageError(
            f"keep raised {type(error).__name__} when it was called with a position ({cause}). It is compiled "
            "with the run: write it with jax.numpy, for one position, with results whose shape does "
            "not depend on values."
        ) from error


def _shapes(result: Any) -> tuple:
    leaves, treedef = jax.tree.flatten(result)
    return treedef, [(leaf.shape, str(leaf.dtype)) for leaf in leaves]


def _layout(result: Any) -> Layout:
    """Return names, shapes and dtypes of keep's result.

    Raises UsageError if they are not numbers.
    """
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
