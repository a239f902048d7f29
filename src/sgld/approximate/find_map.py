"""The posterior mode: Newton's method for small d, optax otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..core.pytrees import check_compiled, tell_apart
from ..core.validation import whole_number
from ..core.work import Work
from ..errors import UsageError
from ..gaussian.mode import dense_pays, newton_mode
from ..model import sums
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Problem
from ..samplers.gradients.full import Full, Minibatch
from ..typing import Estimator, Optimizer, Order

__all__ = ["Mode", "find_map", "optimise"]

MAX_SCAN = 2**16  # numbers of the data order sent to the optimiser at once
MAX_PATH = 2**22  # numbers of recorded positions returned at once

PyTree = Any


@dataclass(frozen=True)
class Mode:
    """A maximum of the posterior density, over the free coordinates (Jacobian included).

    Attributes:
      position: the position.
      log_density: log posterior density there, up to the constants the model leaves out.
      num_steps: steps taken.
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

    That of the free coordinates: with constraints log p + log |J|, whose mode is not that of p on the
    constrained scale (`sgld.sample(..., step_size=h, temperature=0.0)` climbs to that one).

    Args:
      posterior, data, init: as for `sgld.sample`.
      optimizer: an optax transformation (or one of its names, "sgd" with the learning rate
        as in optax.sgd(1e-5)); it sees the gradient of -log posterior of ALL the data,
        so that optax.sgd(h) is the handout's eq. (2.2) and (2.3). None: Newton's method
        with the full batch up to 1000 parameters, or 2000 where rows are few, else optax.adam.
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
        tell_apart(gradient)
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
    """Optax over minibatches (or all rows): (z, log density, steps, path).

    Past the time `until` (of time.monotonic) it is cut short; the steps returned are those taken.
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
    most, slots = max(1, MAX_SCAN // width), 0
    if record:
        slots = max(1, min(most // record, MAX_PATH // z.size))
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
    """`count` steps from step `first`, and the position after every record-th step of all."""
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
