"""Weighted samples of rows that represent all: their posterior, and a `Guide` for trajectories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int

from ...approximation.gradient_noise import TUNING_STREAM, row_noise
from ...approximation.known import Known
from ...approximation.laplace import Laplace
from ...data.memory import InMemory
from ...data.source import generator
from ...model import sums
from ...model.problem import Problem
from ...samplers.confined_hmc import Regions
from ...samplers.gradients.control_variates import Guide
from .ensemble import Ensemble, warmed_up

MAX_GUIDE_ROWS = 2000  # rows that represent all, if all are too many
MAX_GUIDED_DIM = 200  # parameters up to which they do
# share of all rows in a guide: a trajectory's few leapfrogs then cost less than the density at its end
GUIDE_SHARE, MIN_GUIDE_ROWS = 1 / 20, 4000
SETTLING_TRAJECTORIES = 20  # trajectories from the density of a guide to that of all rows
# sd over chains of log p minus the guide's log density, above which too few ends are accepted
MAX_GUIDE_LOGP_SD = 0.5
# nats by which log p may exceed the guide's at starts, or near ends, of equal density: mass that the guide misses
MAX_LOGP_ABOVE_GUIDE = 2.0
# points checked around each chain's end, and their distance in sds
POINTS_AROUND_END, AROUND_END_SDS = 16, 1.5
MIN_GUIDE_RATIO = 5  # all rows over the guide's rows, from which a guide pays


class _Sample(NamedTuple):
    """Numbers of rows, and how many rows each represents."""

    numbers: Int[np.ndarray, " m"]
    weight: Float[np.ndarray, " m"]


def on_sample(problem: Problem, apart: Int[np.ndarray, " m"]) -> Problem:
    """Return the problem on a weighted sample of rows; rows in `apart` count once."""
    taken = _take_sample(problem, apart, MAX_GUIDE_ROWS)
    some = InMemory.some(problem.source, taken.numbers)
    weight = np.append(taken.weight, taken.weight[-1])  # one spare weight for padding
    some = replace(some, rows=(some.rows, problem.array(weight)))
    likelihood = Partial(_weighted, problem.posterior.log_likelihood)
    posterior = replace(problem.posterior, log_likelihood=likelihood)
    return replace(problem, data=some, target=replace(problem.target, posterior=posterior))


def _take_sample(problem: Problem, apart: Int[np.ndarray, " m"], count: int) -> _Sample:
    few = np.arange(min(problem.num_data, count + len(apart)))
    others = np.setdiff1d(few, apart)[: count - len(apart)]
    share = (problem.num_data - len(apart)) / len(others)
    weight = np.append(np.ones(len(apart)), np.full(len(others), share))
    return _Sample(np.append(apart, others), weight)


def _weighted(log_likelihood: Any, position: Any, datum: Any) -> Any:
    row, weight = datum
    return weight * log_likelihood(position, row)


def influential_rows(problem: Problem, known: Known, seed: int) -> Int[np.ndarray, " m"]:
    """Return the rows of the largest gradients or differences, which no sample represents."""
    gaussian = known.gaussian
    if not isinstance(gaussian, Laplace) or not gaussian.positive_definite:
        return np.zeros(0, np.int64)
    survey = row_noise(problem, gaussian, seed)
    return np.union1d(*(rows.numbers[: MAX_GUIDE_ROWS // 8] for rows in survey[:2]))


def guide_rows(problem: Problem) -> int | None:
    """Return the number of rows of a guide; None if it does not pay or rows are on disk."""
    if problem.dimension > MAX_GUIDED_DIM or problem.mesh is not None:
        return None
    if type(problem.data) is not InMemory:
        return None
    count = max(MIN_GUIDE_ROWS, int(GUIDE_SHARE * problem.num_data))
    return count if problem.num_data >= MIN_GUIDE_RATIO * count else None


def make_guide(problem: Problem, known: Known, seed: int) -> Guide | None:
    """Return a guide around the Gaussian's centre, or None if it does not pay."""
    count, gaussian = guide_rows(problem), known.gaussian
    if count is None or gaussian is None:
        return None
    taken = _take_sample(problem, influential_rows(problem, known, seed), count)
    d, array = problem.dimension, problem.array
    center = array(gaussian.center)
    numbers = jnp.asarray(taken.numbers, jnp.int32)
    bare = Guide(
        numbers, array(taken.weight), center, jnp.zeros_like(center), array(np.zeros((d, d)))
    )
    gradient, curvature = _at_its_center(problem, bare)
    slope = sums.value_and_gradient(problem, center)[1] - gradient
    return replace(bare, slope=slope, curvature=-sums.curvature(problem, center) - curvature)


def follow_guide(
    problem: Problem,
    guide: Guide,
    zs: Float[np.ndarray, "chain d"],
    factor: Float[np.ndarray, "d d"],
    seed: int,
    regions: Regions | None = None,
) -> Ensemble | None:
    """Return chains that have settled in the guide's density; None if the guide is inaccurate."""
    found = warmed_up(problem, guide, zs, factor, seed, regions)
    if not np.isfinite(found.zs).all():
        return None
    places = np.concatenate([found.zs, zs, _points_near_ends(found, seed)])
    ended = np.arange(len(places)) < len(zs)
    by_guide = np.asarray(_guide_values(problem, guide, problem.array(places)), np.float64)
    value = sums.differences(problem, places, np.asarray(guide.center, np.float64))
    astray, dense = value - by_guide, value >= value[ended].min()
    away = astray - np.median(astray[ended])
    leads = np.std(away[ended]) < MAX_GUIDE_LOGP_SD and away[dense].max() < MAX_LOGP_ABOVE_GUIDE
    return found._replace(guide=guide) if leads else None


def _points_near_ends(found: Ensemble, seed: int) -> Float[np.ndarray, "n d"]:
    """Return points around the ends of chains; half of them deviate in two directions only.

    A row that has no influence at the chains may form a ridge next to them, to which no gradient
    leads.
    """
    chains, d = found.zs.shape
    rng = generator(seed, TUNING_STREAM, 15)
    xi = AROUND_END_SDS * rng.standard_normal((POINTS_AROUND_END, chains, d))
    planes = rng.permuted(np.broadcast_to(np.arange(d), xi.shape), axis=-1) < 2
    xi[: POINTS_AROUND_END // 2] *= planes[: POINTS_AROUND_END // 2]
    return (found.zs + xi @ found.factor.T).reshape(-1, d)


@jax.jit
def _guide_values(
    problem: Problem, guide: Guide, zs: Float[Array, "chain d"]
) -> Float[Array, " chain"]:
    return jax.lax.map(guide.log_density(problem), zs)


def guide_note(problem: Problem, guide: Guide | None) -> tuple[str, ...]:
    """Return a note on the rows that trajectories follow, if these are not all rows."""
    if guide is None:
        return ()
    return (
        f"trajectories follow {len(guide.numbers):,} of {problem.num_data:,} rows, weighted to represent all; "
        "all rows decide whether their ends are accepted, which makes the draws exact.",
    )


@jax.jit
def _at_its_center(
    problem: Problem, guide: Guide
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Return gradient and Hessian of log p~, one Hessian-vector product at a time."""
    slope = jax.grad(guide.log_density(problem))
    along = lambda v: jax.jvp(slope, (guide.center,), (v,))[1]  # noqa: E731
    return slope(guide.center), jax.lax.map(
        along, jnp.eye(guide.center.size, dtype=guide.center.dtype)
    )
