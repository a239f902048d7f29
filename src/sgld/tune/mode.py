"""The posterior mode: Newton's method for small d, optax otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.source import Source, check_data
from ..errors import UsageError
from ..gradient import sums
from ..gradient.full import Full
from ..gradient.minibatch import Minibatch
from ..layout import Layout
from ..module import for_modules, refuse_statistics, seal
from ..pace import Work
from ..posterior import Posterior, Target
from .curvature import Laplace, laplace_at

__all__ = ["NEWTON_LIMIT", "Mode", "find_map", "newton_mode", "optimise", "other_modes"]

SEARCH_ROWS = 10_000  # rows on which other modes are looked for
SEARCH_SCALES, SEARCH_STEPS = (3.0, 6.0, 12.0, 25.0, 50.0), 50
FEW = 100  # parameters up to which all of these scales are searched
MAX_SCAN = 2**16  # numbers of the data order sent to the optimiser at once
MAX_PATH = 2**22  # numbers of recorded positions returned at once
NEWTON_LIMIT = 1000  # parameters up to which a dense curvature is formed


@dataclass(frozen=True)
class Mode:
    """A maximum of the posterior density, over the free coordinates (Jacobian included).

    Attributes:
      position: the position.
      log_density: log posterior density there, up to the constants the model leaves out.
      num_steps: steps taken.
      converged: whether the stopping rule was met.
      path: positions along the way (every `record`-th step), or None.
    """

    position: Any
    log_density: float
    num_steps: int
    converged: bool
    path: Any = None
    z: Float[np.ndarray, " d"] | None = field(default=None, repr=False)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # far starts, and steps refused
def newton_mode(
    target: Target, source: Source | None, start: Any, max_steps: int = 100
) -> tuple[Float[np.ndarray, " d"], float, int, bool]:
    """Damped Newton ascent: (z, log density, steps, converged).

    Converged when the Newton decrement g^T J^{-1} g is below 1e-6: the mode is then
    within .001 posterior sd. Where the curvature J is not positive definite, or a step
    does not raise the density, J + mu diag|J| is used with growing mu.
    """
    array = target.layout.array
    at = lambda q: _Point(q, *sums.value_and_gradient(target, source, array(q)))  # noqa: E731
    here = at(np.asarray(start, np.float64))
    damping, last = 0.0, np.inf
    for step in range(max_steps):
        J = np.asarray(sums.curvature(target, source, array(here.z)), np.float64)
        for _ in range(30):
            move = _damped_solve(J, np.asarray(here.gradient, np.float64), damping)
            there = None if move is None else at(here.z + move)
            if there is not None and there.improves(here):
                break
            damping = max(10 * damping, 1e-3)
        else:
            return here.z, float(here.value), step, False
        decrement = float(np.asarray(here.gradient, np.float64) @ (there.z - here.z))
        here, plain = there, damping == 0.0
        damping = 0.0 if damping < 1e-2 else damping / 10
        # in float32 the decrement stops falling before it is tiny
        if plain and (decrement < 1e-6 or (decrement < 1e-3 and decrement > 0.3 * last)):
            return here.z, float(here.value), step + 1, True
        last = decrement if plain else np.inf
    return here.z, float(here.value), max_steps, False


def other_modes(
    target: Target, source: Source | None, laplace: Laplace, rng: np.random.Generator
) -> list[tuple[Float[np.ndarray, " d"], float]]:
    """Modes other than `laplace.mode` that Newton finds from wide starts: (z, log density).

    Starts lie 3 to 50 sds of the Gaussian at the mode away, on both sides; two more are the mode
    with its sign turned and with the entries of each leaf moved on by one, as exchangeable
    components are. With many rows the search is made on some of them, and only what it finds is
    taken to all rows.
    """
    near, rows = laplace, source
    if source is not None and source.num_data > SEARCH_ROWS:
        rows = source.first(SEARCH_ROWS)
        mode, _, _, converged = newton_mode(target, rows, laplace.mode)
        near = laplace_at(target, rows, mode)
        if not (converged and near.positive_definite):
            return []
    assert near.factor is not None
    found: list[tuple[np.ndarray, float]] = []
    for start in _wide_starts(target, near, rng):
        z, value, _, converged = newton_mode(target, rows, start, SEARCH_STEPS)
        if not converged or np.linalg.norm(near.whiten(z)) <= 3:
            continue
        if rows is not source:
            z, value, _, converged = newton_mode(target, source, z, SEARCH_STEPS)
        known = [laplace.mode, *(mode for mode, _ in found)]
        apart = min(float(np.linalg.norm(laplace.whiten(z) - laplace.whiten(m))) for m in known)
        if converged and apart > 3:
            found.append((z, value))
    return found


def _wide_starts(
    target: Target, near: Laplace, rng: np.random.Generator
) -> list[Float[np.ndarray, " d"]]:
    d = near.mode.size
    starts = [-near.mode]
    ends = np.cumsum([math.prod(shape) for shape in target.layout.shapes])[:-1]
    starts.append(np.concatenate([np.roll(leaf, 1) for leaf in np.split(near.mode, ends)]))
    for scale in SEARCH_SCALES if d <= FEW else SEARCH_SCALES[:1]:
        xi = rng.standard_normal(d)
        away = near.spread(scale * np.sqrt(d) / np.linalg.norm(xi) * xi)
        starts += [near.mode + away, near.mode - away]
    return starts


class _Point(NamedTuple):
    z: np.ndarray
    value: Any
    gradient: Any

    def improves(self, before: _Point) -> bool:
        """Finite, and not below by more than rounding."""
        slack = 1e-6 * max(1.0, abs(float(before.value)))
        finite = np.isfinite(self.value) and np.isfinite(np.asarray(self.gradient)).all()
        return bool(finite and float(self.value) >= float(before.value) - slack)


def _damped_solve(J: np.ndarray, g: np.ndarray, damping: float) -> np.ndarray | None:
    """(J + damping diag|J|)^{-1} g, or None where that matrix is not positive definite."""
    floor = max(1e-8 * float(np.abs(np.diag(J)).max()), 1e-12)
    try:
        factor = np.linalg.cholesky(J + damping * np.diag(np.maximum(np.abs(np.diag(J)), floor)))
    except np.linalg.LinAlgError:
        return None
    return np.linalg.solve(factor.T, np.linalg.solve(factor, g))


def find_map(
    posterior: Posterior,
    data: Any,
    init: Any = None,
    *,
    optimizer: Any = None,
    gradient: Any = None,
    batch_size: int | None = None,
    order: str = "reshuffle",
    num_steps: int | None = None,
    record: int | None = None,
    seed: int = 0,
) -> Mode:
    """Maximise the log posterior: w' = w + eta * gradient of the full-data log posterior.

    Args:
      posterior, data, init: as for `sgld.sample`.
      optimizer: an optax transformation (or one of its names, "sgd" with the learning rate
        as in optax.sgd(1e-5)); it sees the gradient of -log posterior of ALL the data,
        so that optax.sgd(h) is the handout's eq. (2.2) and (2.3). None: Newton's method
        with the full batch up to 1000 parameters, else optax.adam.
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
    init = posterior.init if init is None else init
    if init is None:
        raise UsageError("init is missing: give a position to start the optimiser from.")
    refuse_statistics(init)
    init = seal(init)
    posterior = for_modules(posterior, init)
    free = posterior.unconstrain(jax.tree.map(jnp.asarray, init))
    layout = Layout.of(free)
    target = Target(posterior, layout)
    source = None
    if data is not None:
        checked = check_data(data)
        rows = int(np.shape(jax.tree.leaves(checked)[0])[0])
        source = Source.build(checked, rows, order, seed)
        if batch_size is not None:
            source = source.with_batches(batch_size, order)
    z = layout.ravel(free)
    if (
        optimizer is None
        and gradient is None
        and batch_size is None
        and layout.dimension <= NEWTON_LIMIT
    ):
        found, value, steps, converged = newton_mode(target, source, z, num_steps or 100)
        path = None
    else:
        if gradient is None:
            gradient = Full() if batch_size is None or source is None else Minibatch()
        elif source is None and not isinstance(gradient, Full):
            name = type(gradient).__name__
            raise UsageError(f"{name} needs data; with data=None leave gradient out.")
        found, value, steps, path = optimise(
            target, source, z, optimizer, gradient, num_steps, record, seed
        )
        converged = bool(np.isfinite(value))
    position = jax.tree.map(np.asarray, target.reported(jnp.asarray(found, layout.dtype)))
    if path is not None:
        path = jax.tree.map(np.asarray, jax.vmap(target.reported)(path))
    return Mode(position, value, steps, converged, path, np.asarray(found, np.float64))


def optimise(
    target: Target, source: Source | None, z: Any, optimizer: Any, gradient: Any,
    num_steps: int | None, record: int | None, seed: int,
) -> tuple[Any, float, int, Any]:  # fmt: skip
    """Optax over minibatches (or all rows): (z, log density, steps, path)."""
    import optax

    optimizer = optax.adam(1e-2) if optimizer is None else optimizer
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise UsageError(
            f"optimizer must be an optax transformation, such as optax.adam(1e-2). Got {optimizer!r}."
        )
    estimator: Any = gradient.prepare(target, source, z)
    memory = estimator.start(target, source, z) if estimator.remembers else None
    rows = None if isinstance(estimator, Full) else source
    if num_steps is None:
        num_steps = max(2000, 50 * (1 if rows is None else rows.num_blocks))

    carry, path = (z, optimizer.init(z), memory), [np.asarray(z)[None]]
    width = 1 if rows is None else math.prod(rows.entry_shape)
    most, slots = max(1, MAX_SCAN // width), 0
    if record:
        slots = max(1, min(most // record, MAX_PATH // z.size))
        most = min(most, slots * record)
    with Work("optimising") as work:
        for done, count in work.pieces(0, num_steps, most=most):
            entries = None
            if rows is not None:  # padded to one shape, which is compiled once
                entries = np.zeros((most, *rows.entry_shape), np.int32)
                entries[:count] = rows.chunk((seed, 0), done, count)
            carry, positions = jax.block_until_ready(_advance(
                target, source, estimator, carry, entries, jnp.int32(done), jnp.int32(count),
                jnp.int32(record or 1), optimizer=optimizer, slots=slots,
            ))  # fmt: skip
            if record:
                path.append(np.array(positions[: (done + count) // record - done // record]))
    value = float(sums.log_density(target, source, carry[0]))
    return carry[0], value, num_steps, jnp.asarray(np.concatenate(path)) if record else None


@partial(jax.jit, static_argnames=("optimizer", "slots"))
def _advance(
    target, source, estimator, carry, entries, first, count, record, *, optimizer, slots
):  # fmt: skip
    """`count` steps from step `first`, and the position after every record-th step of all."""
    import optax

    def one(i, both):
        (z, state, memory), path = both
        step, x = first + i, None if entries is None else entries[i]
        g = estimator.at(target, source, x, memory)(z)
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to whole powers
            updates, state = optimizer.update(-g, state, z)
        if estimator.remembers:
            memory = estimator.after(target, source, x, memory, z, step)
        z = optax.apply_updates(z, updates)
        if slots:
            slot = (step + 1) // record - first // record - 1
            write = lambda path: path.at[slot].set(z)  # noqa: E731
            path = jax.lax.cond((step + 1) % record == 0, write, lambda path: path, path)
        return (z, state, memory), path

    path = jnp.zeros((slots, carry[0].size), carry[0].dtype)
    return jax.lax.fori_loop(0, count, one, (carry, path))
