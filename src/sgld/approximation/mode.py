"""The posterior mode by Newton's method or an optax optimiser; other modes from wide starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve

from ..core.progress import report_count, stage
from ..core.pytrees import check_compiled, release_mistakable
from ..core.validation import whole_number
from ..core.work import Work
from ..errors import UsageError
from ..model import sums
from ..model.cost import gradient_cost
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Problem
from ..samplers.gradients.full import Full, Minibatch
from ..typing import Estimator, Optimizer, Order
from .influential_rows import MODE_SEARCH_ROWS, with_influential_rows
from .laplace import Laplace, laplace_at
from .modes import MIN_SEPARATION_SDS, exchanges
from .modes import apart as sds_between

MAX_NEWTON_STEPS = 50
# further steps where the density is similar to that of draws near the mode: in a robust regression with 16
# coefficients, 50 steps nearly reached a second mode that lies 37 sds away and is as dense as the first
MAX_LAST_STEPS = 200
# distances of the starts, in sds: with two similar modes g sds apart in d parameters, a start leads to the other mode
# if it lies more than g / 2 in that direction, which is about d^(-1/2) of its distance
MODE_SEARCH_SDS = (3.0, 6.0, 12.0, 25.0, 50.0, 400.0, 3000.0)
MAX_CLIMB_STEPS = 200  # steps of L-BFGS before Newton's, with more than MAX_SCALES_DIM parameters
SAME_MODE_SDS = 0.3  # sds within which a search has returned to a known mode
MAX_SCALES_DIM = 100  # parameters up to which all of these scales are searched
MAX_DECREMENT = 1e-6  # largest Newton decrement at a mode
MAX_CHORD_STEPS = 20  # largest number of steps with one curvature
MAX_INDEFINITE_STEPS = 25  # a state-space model with 103 states needed 18 such steps
NO_ROWS = np.zeros(0, np.int64)
MAX_NEWTON_DIM = 2000  # parameters up to which a dense curvature is formed
# above the first limit, a dense curvature is the default only within the predicted seconds: 2,000 parameters and
# 20,000 rows take 4 to 6 s, depending on the family; a whole run took 97 s, and 178 s with low rank
USUAL_NEWTON_DIM, MAX_NEWTON_SECONDS = 1000, 20.0


def dense_pays(problem: Problem) -> bool:
    """Return whether a dense curvature is computed by default."""
    d = problem.dimension
    return d <= USUAL_NEWTON_DIM or (
        d <= MAX_NEWTON_DIM and d * gradient_cost(problem).each <= MAX_NEWTON_SECONDS
    )


@stage("mode")
@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # far starts, rejected steps
def newton_mode(
    problem: Problem,
    start: Any,
    max_steps: int = 100,
    arrived: Callable[[Float[np.ndarray, " d"]], bool] = lambda z: False,
) -> tuple[Float[np.ndarray, " d"], float, int, bool]:
    """Return (z, log density, steps, converged) of a damped Newton ascent.

    The search has converged when the Newton decrement g^T J^{-1} g is below 1e-6: the mode is then within .001
    posterior sd. It also ends when a step has `arrived` at a point that the caller knows. Where the curvature J
    is not positive definite, or a step does not raise the density, J + mu diag|J| is used with growing mu.

    With rows and many parameters, as in a network, MAX_INDEFINITE_STEPS indefinite curvatures in a row mean a
    saddle, and the search stops. A definite curvature is reused for further steps as long as they are good,
    because it costs d gradients. `steps` counts the steps with a new curvature; the last decrement may use an
    older one.
    """
    array = problem.on_host
    at = lambda q: _Point(q, *sums.value_and_gradient(problem, array(q)))  # noqa: E731
    here = at(np.asarray(start, np.float64))
    damping, last, indefinite = 0.0, np.inf, 0
    many = problem.has_rows and here.z.size > MAX_SCALES_DIM
    undamped = None
    for step in range(max_steps):
        J = np.asarray(sums.curvature(problem, array(here.z)), np.float64)
        if many:
            undamped = _damped_solve(J, np.asarray(here.gradient, np.float64), 0.0)
            indefinite = indefinite + 1 if undamped is None else 0
            if indefinite > MAX_INDEFINITE_STEPS:
                return here.z, float(here.value), step, False
        for _ in range(30):
            if damping > 0 or not many:
                move = _damped_solve(J, np.asarray(here.gradient, np.float64), damping)
            else:
                move = undamped
            there = None if move is None else at(here.z + move)
            if there is not None and there.improves(here):
                break
            damping = max(10 * damping, 1e-3)
        else:
            return here.z, float(here.value), step, False
        decrement = float(np.asarray(here.gradient, np.float64) @ (there.z - here.z))
        here, plain = there, damping == 0.0
        if not plain and decrement < 1e-6 * MAX_DECREMENT:  # stuck at a saddle
            return here.z, float(here.value), step + 1, False
        damping = 0.0 if damping < 1e-2 else damping / 10
        # in float32 the decrement stops falling before it is tiny
        still = plain and (
            decrement < MAX_DECREMENT or (decrement < 1e-3 and decrement > 0.3 * last)
        )
        if still or arrived(here.z):
            return here.z, float(here.value), step + 1, True
        last = decrement if plain else np.inf
        if many and plain:
            here, last = _chord_steps(at, J, here, last)
            if last < MAX_DECREMENT:
                return here.z, float(here.value), step + 1, True
    return here.z, float(here.value), max_steps, False


def _chord_steps(
    at: Callable[[np.ndarray], _Point], J: np.ndarray, here: _Point, last: float
) -> tuple[_Point, float]:
    """Take steps with an old curvature while each quarters the decrement: (point, decrement)."""
    factor = cho_factor(J)
    for _ in range(MAX_CHORD_STEPS):
        g = np.asarray(here.gradient, np.float64)
        move = cho_solve(factor, g)
        decrement = float(g @ move)
        if not decrement < last / 4 or not (there := at(here.z + move)).improves(here):
            break
        here, last = there, decrement
        if last < MAX_DECREMENT:
            break
    return here, last


class AtMode(NamedTuple):
    """The end of a search: the Gaussian there, the log density, whether the search converged."""

    gaussian: Laplace
    log_density: float
    converged: bool


def gaussian_at_mode(problem: Problem, start: Any = None) -> AtMode:
    """Find the mode by Newton's method from `start`, or `problem.start`, and the curvature."""
    mode, value, _, converged = newton_mode(problem, problem.start if start is None else start)
    return AtMode(laplace_at(problem, mode), value, converged)


@stage("other modes", whole=True)
def other_modes(
    problem: Problem,
    base: AtMode,
    rng: np.random.Generator,
    known: Sequence[AtMode] = (),
    tops: Float[np.ndarray, "k d"] | None = None,
    apart: Int[np.ndarray, " m"] = NO_ROWS,
) -> list[AtMode]:
    """Find by Newton's method, from wide starts, modes other than `base` and those `known`.

    Starts lie 3 to 3000 sds of the Gaussian at the mode away, on both sides. Two more are the mode with
    its sign changed, and the mode with the entries of each leaf shifted by one, for nearly exchangeable
    components. Its exchanges (`modes.exchanges`) are starts too, and so are `tops`. With many rows the
    search uses a sample of them that includes those `apart` (`influential_rows.unshown_rows`), and only
    its results are refined on all rows.
    """

    def starts(some: Problem, near: Laplace) -> list[np.ndarray]:
        given = [] if tops is None else list(tops)
        return [*_wide_starts(problem, near, rng), *exchanges(some, near), *given]

    return _search(problem, base, starts, known, apart)


@stage("other modes", whole=True)
def more_modes(
    problem: Problem,
    base: AtMode,
    rng: np.random.Generator,
    known: Sequence[AtMode],
    places: Float[np.ndarray, "k d"],
    apart: Int[np.ndarray, " m"] = NO_ROWS,
) -> list[AtMode]:
    """Find modes besides those `known`, given several at `places`, the first of them `base`.

    Modes occur in lattices (a phase, an angle) and as mirror images. The starts are every mode moved to both
    sides by the shortest difference between two, and every mode's image in the first and the first's in every
    one. A new round of wide starts follows.
    """
    ways = places[1:] - places[0]
    lengths = np.linalg.norm(base.gaussian.whiten(places[1:]), axis=1)
    step = ways[int(np.argmin(lengths))]
    moved = [*(places + step), *(places - step), *(places[0] - ways), *(places[1:] + ways)]

    def starts(_: Problem, near: Laplace) -> list[np.ndarray]:
        fresh = [
            z for z in moved if min(_sds_to(o.gaussian, z, near) for o in known) > SAME_MODE_SDS
        ]
        return [*fresh, *_wide_starts(problem, near, rng)[2:]]

    return _search(problem, base, starts, known, apart)


def _search(
    problem: Problem,
    base: AtMode,
    starts: Callable[[Problem, Laplace], Sequence[np.ndarray]],
    known: Sequence[AtMode],
    apart: Int[np.ndarray, " m"],
) -> list[AtMode]:
    """Return the ends of Newton's method from each start that are new modes.

    Starts are built from the Gaussian of the rows that the search uses.
    """
    near, some, dense = base.gaussian, problem, base.log_density
    if problem.num_data > MODE_SEARCH_ROWS:
        some = with_influential_rows(problem, MODE_SEARCH_ROWS, apart)
        near, dense, converged = gaussian_at_mode(some, near.center)
        if not (converged and near.positive_definite):
            return []
    assert near.factor is not None
    found: list[AtMode] = []
    back = lambda z: bool(np.linalg.norm(near.whiten(z)) <= SAME_MODE_SDS)  # noqa: E731
    places, many = starts(some, near), problem.dimension > MAX_SCALES_DIM
    for tried, start in enumerate(places):
        report_count(tried, len(places), "starts")
        if many:
            start = _climb(some, near, start)
            if back(start):
                continue
        z, value, _, converged = newton_mode(some, start, MAX_NEWTON_STEPS, back)
        if not converged and not many and value < dense - 4 * z.size - 10:
            z = _climb(some, near, start)
            value = sums.value_and_gradient(some, some.on_host(z))[0]
        if not converged and value >= dense - 4 * z.size - 10:
            z, value, _, converged = newton_mode(some, z, MAX_LAST_STEPS, back)
        if not converged or back(z):
            continue
        if some is not problem:
            z, value, _, converged = newton_mode(problem, z, MAX_NEWTON_STEPS)
        others = (base, *known, *found)
        if converged and all(_sds_to(other.gaussian, z, near) > SAME_MODE_SDS for other in others):
            there = AtMode(laplace_at(problem, z), value, True)
            if all(_separate(there.gaussian, other.gaussian, near) for other in others):
                found.append(there)
    return found


@np.errstate(over="ignore", invalid="ignore")  # far starts
def _climb(problem: Problem, near: Laplace, start: np.ndarray) -> np.ndarray:
    """Climb by gradients alone, in units of the Gaussian, because a curvature costs d of them."""

    from scipy.optimize import minimize

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = near.center + near.spread(x)
        value, slope = sums.value_and_gradient(problem, problem.on_host(z))
        return -float(value), -near.pull(np.asarray(slope, np.float64))

    def arrived(x: np.ndarray) -> None:
        if np.linalg.norm(x) <= SAME_MODE_SDS:
            raise StopIteration

    x = near.whiten(start)
    if not np.isfinite(loss(x)[0]):
        return start
    options = {"maxiter": MAX_CLIMB_STEPS, "maxcor": 20, "ftol": 1e-9, "gtol": 0.0}
    found = minimize(loss, x, jac=True, method="L-BFGS-B", callback=arrived, options=options)
    return near.center + near.spread(found.x) if np.isfinite(found.fun) else start


def _sds_to(one: Laplace, z: np.ndarray, near: Laplace) -> float:
    """Return the distance of z from a mode, in its sds, or else in those of `near`."""
    measure = one if one.positive_definite else near.moved(one.center - near.center)
    return float(np.linalg.norm(measure.whiten(z)))


def _separate(one: Laplace, other: Laplace, near: Laplace) -> bool:
    if one.positive_definite and other.positive_definite:
        return sds_between(one, other) > MIN_SEPARATION_SDS
    return _sds_to(other, one.center, near) > MIN_SEPARATION_SDS


def _wide_starts(
    problem: Problem, near: Laplace, rng: np.random.Generator
) -> list[Float[np.ndarray, " d"]]:
    d = near.center.size
    starts = [-near.center]
    starts.append(
        np.concatenate(
            [np.roll(leaf, 1) for leaf in np.split(near.center, problem.layout.ends[:-1])]
        )
    )
    for scale in MODE_SEARCH_SDS if d <= MAX_SCALES_DIM else MODE_SEARCH_SDS[:1]:
        xi = rng.standard_normal(d)
        away = near.spread(scale * np.sqrt(d) / np.linalg.norm(xi) * xi)
        starts += [near.center + away, near.center - away]
    return starts


class _Point(NamedTuple):
    z: np.ndarray
    value: Any
    gradient: Any

    def improves(self, before: _Point) -> bool:
        """Return whether the value is finite and at most rounding below that of `before`."""
        slack = 1e-6 * max(1.0, abs(float(before.value)))
        finite = np.isfinite(self.value) and np.isfinite(np.asarray(self.gradient)).all()
        return bool(finite and float(self.value) >= float(before.value) - slack)


def _damped_solve(J: np.ndarray, g: np.ndarray, damping: float) -> np.ndarray | None:
    """Return (J + damping diag|J|)^{-1} g, or None where that matrix is not positive definite."""
    floor = max(1e-8 * float(np.abs(np.diag(J)).max()), 1e-12)
    damped = J + damping * np.diag(np.maximum(np.abs(np.diag(J)), floor))
    try:
        return cho_solve(cho_factor(damped), g)
    except (np.linalg.LinAlgError, ValueError):  # not positive definite, or not finite
        return None


# -- find map ------------------------------------------------------------------------------


MAX_SCAN_NUMBERS = 2**16  # numbers of the data order sent to the optimiser at once
MAX_PATH_NUMBERS = 2**22  # numbers of recorded positions returned at once

PyTree = Any


@dataclass(frozen=True)
class Mode:
    """A maximum of the posterior density, over the free coordinates (Jacobian included).

    Attributes:
      position: the position.
      log_density: log posterior density there, up to the constants that the model omits.
      num_steps: the number of steps.
      converged: whether the stopping rule was met.
      path: positions along the way (every `record`-th step), or None.
      z: the position in free coordinates, flat [d].

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> peak = sgld.Posterior(lambda p: -0.5 * (p["a"] - 3.0) ** 2)
      >>> mode = sgld.find_map(peak, None, {"a": jnp.array(0.0)})
      >>> float(mode.position["a"]), mode.converged
      (3.0, True)
    """

    position: PyTree
    log_density: float
    num_steps: int
    converged: bool
    path: PyTree | None = None
    z: Float[np.ndarray, " d"] | None = field(default=None, repr=False)


def find_map(
    posterior: Posterior,
    data: Any,
    init: Any = None,
    *,
    optimizer: Optimizer | None = None,
    gradient: Estimator | None = None,
    batch_size: int | None = None,
    order: Order = "reshuffle",
    num_steps: int | None = None,
    record: int | None = None,
    seed: int = 0,
) -> Mode:
    """Maximise the log posterior: w' = w + eta * gradient of the full-data log posterior.

    The density is that of the free coordinates: with constraints log p + log |J|, whose mode is not that of
    p on the constrained scale (`sgld.sample(..., step_size=h, temperature=0.0)` climbs to that one).

    Args:
      posterior: as for `sgld.sample`.
      data: as for `sgld.sample`.
      init: as for `sgld.sample`.
      optimizer: an optax transformation, such as optax.sgd(1e-5). It receives the gradient of
        -log posterior of ALL the data, so that optax.sgd(h) is the handout's eq. (2.2) and (2.3).
        None: Newton's method with the full batch up to 1000 parameters, or 2000 where rows are
        few, else optax.adam.
      gradient: the estimator, as for `sgld.sample`: SVRG(), SAGA(), ControlVariates() (its centre
        `init`, where none is given). None: Minibatch() with a batch_size, else Full().
      batch_size: rows per step (None: all); the rest of the likelihood is scaled up by N/n.
      order: "reshuffle", "symmetric", "independent", "replacement" or "subset".
      num_steps: steps (default: until converged for Newton; 50 passes, at least 2000, else).
      record: keep every record-th position in `.path`.
      seed: of the data order.

    Returns: Mode. Raises UsageError and DataError for wrong arguments.

    Example:
      >>> import jax.numpy as jnp, optax, sgld
      >>> posterior = sgld.Posterior(
      ...     lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
      >>> mode = sgld.find_map(posterior, jnp.arange(4.0), 0.0)
      >>> round(float(mode.position), 4)
      1.2

      Variance-reduced gradients; momentum and the average of the last half; a preconditioned
      step; a step projected onto a set (of the free coordinates):

      >>> data, start = jnp.arange(4.0), jnp.zeros(1)
      >>> posterior = sgld.Posterior(
      ...     lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
      >>> def end(optimizer, **how):
      ...     mode = sgld.find_map(posterior, data, start, optimizer=optimizer, batch_size=1,
      ...                          num_steps=2000, record=1, **how)
      ...     return mode.position, mode.path[1000:].mean(0)
      >>> end(optax.sgd(0.05), gradient=sgld.SVRG())[0].round(3)
      array([1.2], dtype=float32)
      >>> end(optax.sgd(0.01, momentum=0.9))[1].round(1)
      array([1.2], dtype=float32)
      >>> step = optax.chain(optax.stateless(lambda g, q: 0.2 * g), optax.sgd(0.2))
      >>> end(step, gradient=sgld.SAGA())[0].round(3)
      array([1.2], dtype=float32)
      >>> onto = lambda q: optax.projections.projection_box(q, 2.0, 3.0)
      >>> into = optax.stateless(lambda update, q: onto(q + update) - q)
      >>> end(optax.chain(optax.sgd(0.01), into))[0]
      array([2.], dtype=float32)
    """
    for name, value in (("batch_size", batch_size), ("num_steps", num_steps), ("record", record)):
        if value is not None:
            whole_number(name, value)
    problem = prepare(posterior, data, init, seed=seed)
    if batch_size is not None:
        problem = problem.with_batches(batch_size, order)
    z = problem.start
    plain = optimizer is None and gradient is None and batch_size is None
    if plain and dense_pays(problem):
        found, value, steps, converged = newton_mode(problem, z, num_steps or 100)
        path = None
    else:
        release_mistakable(gradient)
        if gradient is None:
            gradient = Minibatch() if batch_size is not None and problem.has_rows else Full()
        elif not problem.has_rows and not isinstance(gradient, Full):
            name = type(gradient).__name__
            raise UsageError(f"{name} needs data; with data=None leave gradient out.")
        found, value, steps, path = optimise(
            problem, z, optimizer, gradient, num_steps, record, seed
        )
        converged = bool(np.isfinite(value))
    reported = problem.target.reported
    position = jax.tree.map(np.asarray, reported(jnp.asarray(found, problem.layout.dtype)))
    if path is not None:
        path = jax.tree.map(np.asarray, jax.vmap(reported)(path))
    return Mode(position, value, steps, converged, path, np.asarray(found, np.float64))


def optimise(
    problem: Problem, z: Any, optimizer: Any, gradient: Any,
    num_steps: int | None, record: int | None, seed: int, until: float = math.inf,
) -> tuple[Any, float, int, Any]:  # fmt: skip
    """Run optax over minibatches (or all rows): (z, log density, steps, path).

    The run stops early after the time `until` (of time.monotonic); the steps returned are those taken.
    """
    import optax

    optimizer = optax.adam(1e-2) if optimizer is None else optimizer
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise UsageError(
            f"optimizer must be an optax transformation, such as optax.adam(1e-2). Got {optimizer!r}."
        )
    estimator: Any = gradient.prepare(problem, z)
    check_compiled(f"the gradient {type(gradient).__name__}", estimator)
    memory = estimator.start(problem, z) if estimator.remembers else None
    rows = None if isinstance(estimator, Full) else problem.data
    if num_steps is None:
        num_steps = max(2000, 50 * (1 if rows is None else rows.num_blocks))

    carry, path = (z, optimizer.init(z), memory), [np.asarray(z)[None]]
    width = 1 if rows is None else math.prod(rows.entry_shape)
    most, slots = max(1, MAX_SCAN_NUMBERS // width), 0
    if record:
        slots = max(1, min(most // record, MAX_PATH_NUMBERS // z.size))
        most = min(most, slots * record)
    with Work("optimising", until=until) as work:
        for done, count in work.pieces(0, num_steps, most=most):
            entries = None
            if rows is not None:  # padded to one shape, which is compiled once
                entries = np.zeros((most, *rows.entry_shape), np.int32)
                entries[:count] = rows.chunk((seed, 0), done, count)
            carry, positions = jax.block_until_ready(_advance(
                problem, estimator, carry, entries, jnp.int32(done), jnp.int32(count),
                jnp.int32(record or 1), optimizer=optimizer, slots=slots,
            ))  # fmt: skip
            if record:
                path.append(np.array(positions[: (done + count) // record - done // record]))
            if work.late:
                num_steps = done + count
                break
    value = float(sums.log_density(problem, carry[0]))
    return carry[0], value, num_steps, jnp.asarray(np.concatenate(path)) if record else None


@partial(jax.jit, static_argnames=("optimizer", "slots"))
def _advance(
    problem, estimator, carry, entries, first, count, record, *, optimizer, slots
):  # fmt: skip
    """Take `count` steps from step `first`, and record the position after every record-th step."""
    import optax

    def one(i, both):
        (z, state, memory), path = both
        step, x = first + i, None if entries is None else entries[i]
        g = estimator.at(problem, x, memory)(z)
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to whole powers
            updates, state = optimizer.update(-g, state, z)
        if estimator.remembers:
            memory = estimator.after(problem, x, memory, z, step)
        z = optax.apply_updates(z, updates)
        if slots:
            slot = (step + 1) // record - first // record - 1
            write = lambda path: path.at[slot].set(z)  # noqa: E731
            path = jax.lax.cond((step + 1) % record == 0, write, lambda path: path, path)
        return (z, state, memory), path

    path = jnp.zeros((slots, carry[0].size), carry[0].dtype)
    return jax.lax.fori_loop(0, count, one, (carry, path))
