"""An ensemble of Hamiltonian chains that adapts metric, step size and trajectory length (ChEES).

Many chains at different positions adapt together: the metric is the covariance of all their
positions, the step size is the one that they accept, and the trajectory length is the one that
changes squared distances most (Hoffman, Radul & Sountsov 2021). BlackJAX adapts step and length; a
trajectory is that of samplers/hmc.py, as in the run. The method needs exact gradients of the posterior,
or of a guide for it.

`Around` gives energies relative to a centre, row by row, so that float32 resolves differences. `matched_step`
finds a step for unadjusted dynamics: the h that Metropolis would reject as often as it rejects h = 4b on
a Gaussian, whose sds come out b too wide,

    average(1 - min(1, exp(log ratio(h)))) = r(d),   r(d) that of N(0, I_d) at h = 4b

over the 98% of positions that are rejected least, because the neck of a funnel is not resolved.
`rejection_rate` is the share that Metropolis would reject at a given step size.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...approximation.gradient_noise import TUNING_STREAM
from ...core.pytrees import Layout, as_pytree
from ...core.validation import positive, whole_number
from ...core.work import Work
from ...data.memory import RowsWithValues, each
from ...data.source import generator
from ...errors import UsageError
from ...model import sums
from ...model.posterior import Posterior
from ...model.prepare import prepare
from ...model.problem import Problem, Target
from ...results.draws import Draws
from ...samplers.confined_hmc import Regions
from ...samplers.gradients.control_variates import Guide
from ...samplers.gradients.full import CENTRE_ROWS, Full
from ...samplers.hmc import HMC, At, propose
from ...samplers.preconditioners.fixed import Dense, Scalar, given
from ...typing import Preconditioner

ENSEMBLE_CHAINS = 64
ROUND_TRAJECTORIES = (50, 100, 150)  # trajectories; the metric is estimated again between rounds
FIXED_TRAJECTORIES = 50  # trajectories after these, in which nothing adapts
TRAJECTORIES = sum(ROUND_TRAJECTORIES) + FIXED_TRAJECTORIES
# harmonic mean of the chains' acceptance probabilities that the step aims at
ACCEPTANCE = 0.8
FIRST_STEP_SDS = 0.1  # delta, in sds
# of a trajectory, in sds, at least: while dispersed chains draw together they seem to want shorter ones
# and short ones say little of longer; 1.6 took 1.3 times as many leapfrogs an effective draw, 3.1 1.4
MIN_LENGTH = 2.2
ADAM_RATE = 0.1  # of Adam, which climbs to the best length
MAX_LEAPFROGS = 256  # leapfrogs of a trajectory


class Ensemble(NamedTuple):
    """A factor of the metric, the step size h, the longest trajectory, and the positions of the chains.

    `log_density` is that of zs up to a constant, -inf where a chain never moved. `left` is the share of
    trajectories that were refused for ending in each region, where chains are kept in one. `guide` is the one
    whose density they have settled in, if that is not the posterior itself.
    """

    factor: Float[np.ndarray, "d d"]
    step_size: float
    leapfrogs: float
    zs: Float[np.ndarray, "chain d"]
    log_density: Float[np.ndarray, " chain"]
    left: Float[np.ndarray, " region"] | None = None
    guide: Guide | None = None


class _White(NamedTuple):
    """The metric of a round: D, and u = inverse (z - center), in which its covariance is I."""

    D: Dense
    inverse: Float[Array, "d d"]
    center: Float[Array, " d"]

    def __call__(self, zs: Float[Array, "chain d"]) -> Float[Array, "chain d"]:
        return jnp.matmul(zs - self.center, self.inverse.T, precision="highest")


class _Noise(NamedTuple):
    """The noise of all trajectories, drawn on the host because normals take longest to compile."""

    momentum: Float[Array, "trajectory chain d"]
    log_uniform: Float[Array, "trajectory chain"]


class _Chains(NamedTuple):
    """The positions of the chains, moments of u since the middle of a round, and ChEES's state.

    `left`: chains that would have left for each region since then; None where there are no regions.
    """

    at: At
    count: Float[Array, ""]
    first: Float[Array, " d"]
    second: Float[Array, "d d"]
    adaptation: Any
    left: Float[Array, " region"] | None


def warmed_up(
    problem: Problem,
    gradient: Full | Guide,
    zs: Float[np.ndarray, "chain d"],
    factor: Float[np.ndarray, "d d"],
    seed: int,
    regions: Regions | None = None,
) -> Ensemble:
    """Adapt from the chains' starts zs with a first metric factor factor^T; then run to stationarity.

    With `regions` no chain leaves the one that it starts in.
    """
    d, at = zs.shape[1], 0
    noise, size, length = _noise(problem, zs.shape, seed), FIRST_STEP_SDS, MIN_LENGTH
    places = jax.vmap(At.start)(problem.array(zs))
    zero = lambda *shape: jnp.zeros(shape, problem.layout.dtype)  # noqa: E731

    def after(trajectories: int, *, adapting: bool) -> _Chains:
        white = _white(problem, places.position, factor)
        chains = _Chains(
            places, zero(), zero(d), zero(d, d), _adaptation(size, length, at),
            None if regions is None else zero(int(np.max(regions.group)) + 1),
        )  # fmt: skip
        middle = at + trajectories // 2
        for start, count in work.pieces(at, at + trajectories, of=TRAJECTORIES):
            chains = jax.block_until_ready(_advance(
                problem, gradient, white, noise, chains, regions,
                jnp.int32(start), jnp.int32(count), jnp.int32(middle), jnp.bool_(adapting),
            ))  # fmt: skip
        return chains

    # BlackJAX mixes dtypes and ranks
    lax = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
    with lax[0], lax[1], Work("exact chains", units="trajectories") as work:
        for trajectories in ROUND_TRAJECTORIES:
            chains = after(trajectories, adapting=True)
            places, at = chains.at, at + trajectories
            size = float(jnp.exp(chains.adaptation.log_step_size_moving_average))
            length = float(jnp.exp(chains.adaptation.log_trajectory_length_moving_average))
            if at < sum(ROUND_TRAJECTORIES):
                factor = factor @ _estimated_factor(chains)
        chains = after(FIXED_TRAJECTORIES, adapting=False)
    leapfrogs = float(np.clip(length / size, 1, MAX_LEAPFROGS))
    left = None if regions is None else np.asarray(chains.left) / float(chains.count)
    return Ensemble(
        factor, size**2, leapfrogs, np.asarray(chains.at.position, np.float64),
        np.nan_to_num(np.asarray(chains.at.log_density, np.float64), nan=-np.inf), left,
    )  # fmt: skip


def _noise(problem: Problem, shape: tuple[int, ...], seed: int) -> _Noise:
    rng = generator(seed, TUNING_STREAM, 10)
    momentum = rng.standard_normal((TRAJECTORIES, *shape), np.float32)
    uniform = 1 - rng.random((TRAJECTORIES, shape[0]))
    return _Noise(problem.array(momentum), problem.array(np.log(uniform)))


def _white(problem: Problem, z: Array, factor: Float[np.ndarray, "d d"]) -> _White:
    D = Dense(factor @ factor.T, factor).prepare(problem.layout)
    center = np.mean(np.asarray(z, np.float64), axis=0)
    return _White(D, problem.array(np.linalg.inv(factor)), problem.array(center))


def _chees() -> tuple[Callable, Callable]:
    """Return `init(trajectory number, step size)` and `update(state, ends, momenta, starts, rates, diverged)`."""
    import optax
    from blackjax.adaptation.chees_adaptation import base

    init, update = base(
        HMC.place, lambda number: number + 1, optax.adam(ADAM_RATE), ACCEPTANCE, 0.5, MAX_LEAPFROGS
    )
    if "inverse_mass_matrix" not in inspect.signature(update).parameters:
        return init, update  # before BlackJAX 1.6
    return init, lambda state, ends, *rest: update(state, ends, *rest, jnp.ones_like(ends[0]))


def _leapfrogs(length: Array, step_size: Array) -> Array:
    """Return the number of leapfrogs of a trajectory, at most MAX_LEAPFROGS; rough densities send steps to 0."""
    return jnp.minimum(length / step_size, MAX_LEAPFROGS)


def _adaptation(size: float, length: float, at: int) -> Any:
    """Return BlackJAX's state at trajectory `at`, from a step and a length."""
    init, _ = _chees()
    state = init(at, size)._replace(
        trajectory_length=max(size, length), log_trajectory_length_moving_average=np.log(length)
    )
    return jax.tree.map(_strongly_typed, state)


def _strongly_typed(number: Any) -> Array:
    whole = jnp.issubdtype(jnp.result_type(number), jnp.integer)
    return jnp.asarray(number, jnp.int32 if whole else jnp.result_type(float))


@jax.jit
def _advance(
    problem: Problem, gradient: Full | Guide, white: _White, noise: _Noise, chains: _Chains,
    regions: Regions | None, at: Int[Array, ""], count: Int[Array, ""], middle: Int[Array, ""], adapting: Array,
) -> _Chains:  # fmt: skip
    """Advance every chain by `count` trajectories from trajectory `at` on."""
    grad = gradient.at(problem, None)
    _, update = _chees()

    def trajectory(number: Array, chains: _Chains) -> _Chains:
        at, state = chains.at, chains.adaptation
        length = HMC(_leapfrogs(state.trajectory_length, state.step_size)).length(number)
        one = lambda at, p: propose(grad, at, p, state.step_size, length, white.D)  # noqa: E731
        found = jax.vmap(one)(at, noise.momentum[number])
        accepted = noise.log_uniform[number] <= found.log_ratio
        z, ends = at.position, found.end.position
        counts, left = (number >= middle).astype(z.dtype), chains.left
        if regions is not None and left is not None:
            here, there = jax.vmap(regions.of)(z), jax.vmap(regions.of)(ends)
            leaves = accepted & (here != there)
            left = left.at[there].add(jnp.where(leaves, counts, 0))
            accepted = accepted & (here == there)
        new = jax.vmap(At.unless)(at, accepted, found.end)
        rates = jnp.exp(jnp.minimum(found.log_ratio, 0.0))
        adapted = update(state, white(ends), found.momentum, white(z), rates, found.diverged)
        log_length = jnp.maximum(adapted.log_trajectory_length_moving_average, np.log(MIN_LENGTH))
        adapted = adapted._replace(
            trajectory_length=jnp.maximum(adapted.trajectory_length, MIN_LENGTH),
            log_trajectory_length_moving_average=log_length,
        )
        state = jax.tree.map(
            lambda a, b: jnp.where(adapting, jnp.asarray(a, b.dtype), b), adapted, state
        )
        u = white(new.position)
        return _Chains(
            new, chains.count + counts * len(u), chains.first + counts * jnp.sum(u, axis=0),
            chains.second + counts * (u.T @ u), state, left,
        )  # fmt: skip

    return jax.lax.fori_loop(at, at + count, trajectory, chains)


def _estimated_factor(chains: _Chains) -> Float[np.ndarray, "d d"]:
    """Estimate a factor of the covariance of u, shrunk to its diagonal if draws are few."""
    first, second, n = (
        np.asarray(a, np.float64) for a in (chains.first, chains.second, chains.count)
    )
    covariance = second / n - np.outer(first / n, first / n)
    diagonal = np.diag(np.maximum(np.diag(covariance), 1e-20))
    few = 10 * len(first) / (n / 10 + 10 * len(first))  # a tenth of them count as independent
    return np.linalg.cholesky((1 - few) * covariance + few * diagonal)


# -- energy --------------------------------------------------------------------------------


PyTree = Any


@as_pytree
@dataclass(frozen=True)
class Around:
    """log p(center + F u) - log p(center), row by row, so that float32 can tell energies apart.

    The rows are (datum, log likelihood of the datum at the centre); F None is the identity.
    """

    target: Target
    center: Float[Array, " d"]
    factor: Float[Array, "d d"] | None
    prior: Float[Array, ""]

    @property
    def posterior(self) -> Posterior:
        """The user-supplied posterior."""
        return self.target.posterior

    @property
    def layout(self) -> Layout:
        """Of free positions."""
        return self.target.layout

    def z(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        """Free coordinates."""
        move = u if self.factor is None else jnp.matmul(self.factor, u, precision="highest")
        return self.center + move

    def log_prior(self, u: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log prior relative to the centre's."""
        return self.target.log_prior(self.z(u)) - self.prior

    def log_likelihood(
        self, u: Float[Array, " d"], rows: PyTree, weight: Float[Array, " n"] | None = None
    ) -> Float[Array, ""]:
        """Return the sum of the rows' log likelihoods relative to theirs at the centre."""
        data, base = rows
        posterior = self.target.posterior
        assert posterior.log_likelihood is not None
        values = jax.vmap(posterior.log_likelihood, (None, 0))(
            self.target.position(self.z(u)), data
        )
        if weight is None:
            return jnp.sum(values - base)
        return jnp.sum(jnp.where(weight > 0, weight * (values - base), 0.0))

    def estimated(
        self, u: Float[Array, " d"], rows: PyTree, weight: Float[Array, " n"] | None, scale: Any
    ) -> Float[Array, ""]:
        """Return both, with the rows weighted by `scale`."""
        return self.log_prior(u) + scale * self.log_likelihood(u, rows, weight)


def around(problem: Problem, center: Any, factor: Any = None) -> Problem:
    """Return the problem relative to `center`: its target is an Around, its rows carry their value there."""
    dtype = problem.layout.dtype
    center = jnp.asarray(center, dtype)
    factor = None if factor is None else jnp.asarray(factor, dtype)
    density = Around(problem.target, center, factor, problem.log_prior(center))
    data = (
        RowsWithValues.of(problem.source, _rows_at(problem, center)) if problem.has_rows else None
    )
    return Problem(density, data)


@jax.jit
def _rows_at(problem: Problem, center: Array) -> Array:
    position = problem.target.position(center)
    likelihood = problem.posterior.log_likelihood
    assert likelihood is not None
    return each(problem.source, lambda row: likelihood(position, row), CENTRE_ROWS)


def log_acceptance(
    white: Problem, D: Any, u: Float[Array, " d"], xi: Float[Array, " d"], h: Array
) -> Float[Array, ""]:
    """Return the log of MALA's acceptance ratio of the move that xi proposes, as in `mala_move`."""
    return mala_move(white, D, u, xi, h)[0]


def mala_move(
    white: Problem, D: Any, u: Float[Array, " d"], xi: Float[Array, " d"], h: Array
) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    """Return the log of MALA's acceptance ratio, where NaN is a rejection, and the move that xi proposes.

    One leapfrog of time step delta = sqrt(2h) from momentum xi, with D^{1/2} (D^{1/2})^T = D:

        p = xi + (delta/2) (D^{1/2})^T grad(u)
        u' = u + delta D^{1/2} p                  = u + h D grad(u) + sqrt(2h) D^{1/2} xi
        p' = p + (delta/2) (D^{1/2})^T grad(u')
        log ratio = log pi(u') - |p'|^2/2 - log pi(u) + |xi|^2/2
    """
    delta = jnp.sqrt(2 * h)
    value, gradient = sums.value_and_gradient(white, u)
    p = xi + delta / 2 * D.pullback(gradient)
    new = u + delta * D.noise(p)
    new_value, new_gradient = sums.value_and_gradient(white, new)
    p_new = p + delta / 2 * D.pullback(new_gradient)
    ratio = new_value - value + jnp.sum((xi - p_new) * (xi + p_new)) / 2
    return jnp.where(jnp.isnan(ratio), -jnp.inf, ratio), new


# -- matched -------------------------------------------------------------------------------


COUNTED_SHARE = 0.98  # share of positions, the least rejected, that decide: a neck is not resolved
REJECTION_PROPOSALS = 256


def matched_step(
    problem: Problem, zs: Float[np.ndarray, "n d"], D: Dense, bias: float, seed: int
) -> float:
    """Return the largest step that is rejected at zs no more often than h = 4 bias is on a Gaussian."""
    local = around(problem, zs[0])
    us = problem.array(zs[np.arange(REJECTION_PROPOSALS) % len(zs)]) - local.target.center[None]
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 7), 2**20)
    xi = jax.random.normal(key, us.shape, us.dtype)
    limit = _gaussian_rejection(us.shape[1], 4 * bias)
    low, high = 1e-3 * bias, 4 * bias
    if float(_rejection(local, D, us, xi, us.dtype.type(high))) <= limit:
        return high
    for _ in range(20):
        middle = float(np.sqrt(low * high))
        if float(_rejection(local, D, us, xi, us.dtype.type(middle))) <= limit:
            low = middle
        else:
            high = middle
    return low


@jax.jit
def _rejection(local, D, us, xi, h):
    one = lambda u, x: log_acceptance(local, D, u, x, h)  # noqa: E731
    rejected = jnp.sort(-jnp.expm1(jnp.minimum(jax.vmap(one)(us, xi), 0.0)))
    return jnp.mean(rejected[: int(COUNTED_SHARE * len(rejected))])


def _gaussian_rejection(d: int, h: float) -> float:
    """Return r(d): how often MALA rejects the step h on N(0, I_d)."""
    rng = np.random.default_rng(0)
    u, xi = rng.standard_normal((2, 4096, d))
    new = (1 - h) * u + np.sqrt(2 * h) * xi
    ratio = -h / 4 * np.sum(new**2 - u**2, axis=1)
    rejected = np.sort(-np.expm1(np.minimum(ratio, 0.0)))
    return float(np.mean(rejected[: int(COUNTED_SHARE * len(rejected))]))


# -- rejection -----------------------------------------------------------------------------


@overload
def rejection_rate(
    posterior: Posterior, data: Any, position: Draws | PyTree, step_size: float | None = None, *,
    preconditioner: Preconditioner | None = None, num_proposals: int = 1000, seed: int = 0,
) -> float: ...  # fmt: skip


@overload
def rejection_rate(
    posterior: Posterior, data: Any, position: Draws | PyTree,
    step_size: Sequence[Any] | np.ndarray | Array, *,
    preconditioner: Preconditioner | None = None, num_proposals: int = 1000, seed: int = 0,
) -> np.ndarray: ...  # fmt: skip


def rejection_rate(
    posterior: Posterior,
    data: Any,
    position: Draws | PyTree,
    step_size: float | Sequence[Any] | np.ndarray | Array | None = None,
    *,
    preconditioner: Preconditioner | None = None,
    num_proposals: int = 1000,
    seed: int = 0,
) -> float | np.ndarray:
    """Return how often Metropolis would reject SGLD's move with full gradients (MALA) at `step_size`.

        theta' = theta + h D grad + sqrt(2h) D^{1/2} xi

    It goes to 0 with h, as h^{3/2} on smooth posteriors; a step that is rejected often is too
    large for the unadjusted sampler too (Welling & Teh 2011, fig. 2).

    Args:
      posterior: as for `sgld.sample`.
      data: as for `sgld.sample`.
      position: where to propose from: Draws of this posterior, or one position.
      step_size: h, a number or an array of them, tried with the same xi (None: with draws, the
        last step of their run).
      preconditioner: D, in free coordinates (None: with draws and no step_size that of their run,
        else the identity).
      num_proposals: proposals, spread over the draws.
      seed: of the proposals.

    Returns: the mean rejection probability, a float, or an array of step_size's shape.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> gaussian = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
      >>> small, large = sgld.rejection_rate(gaussian, None, jnp.zeros(2), [0.001, 1.0])
      >>> bool(small < 0.001 < 0.1 < large)
      True
    """
    if step_size is None:
        step_size, preconditioner = _of_run(position, preconditioner)
    positive("step_size", step_size)
    steps = np.asarray(step_size, float)
    whole_number("num_proposals", num_proposals)
    draws = position if isinstance(position, Draws) else None
    if draws is not None:
        if posterior.output is not None:
            raise UsageError(
                "the draws of this posterior are reported on another scale than it is sampled on "
                "(posterior.output); give one position, such as posterior.init."
            )
        flat = jax.tree.map(
            lambda leaf: leaf[draws.healthy].reshape(-1, *leaf.shape[2:]), draws.position
        )
        count = len(jax.tree.leaves(flat)[0])
        at = np.linspace(0, count - 1, min(num_proposals, count)).round().astype(int)
        flat = jax.tree.map(lambda leaf: jnp.asarray(leaf[at]), flat)
        position = jax.tree.map(lambda leaf: leaf[len(at) // 2], flat)
    problem = prepare(posterior, data, position, seed=seed)
    zs = problem.start[None]
    if draws is not None:
        zs = jax.vmap(lambda p: problem.layout.ravel(posterior.unconstrain(p)))(flat)
    D = Scalar(1.0) if preconditioner is None else preconditioner
    if getattr(D, "adapts", True) or not hasattr(D, "pullback"):
        raise UsageError(
            f"preconditioner must be Scalar, Diagonal, Dense or LowRank: a fixed D. Got {D!r}."
        )
    D = given(D, problem.layout)
    local = around(problem, problem.start)
    key = jax.random.fold_in(jax.random.key(seed), 6)
    xi = jax.random.normal(key, (num_proposals, zs.shape[1]), zs.dtype)
    us = zs[np.arange(num_proposals) % len(zs)] - local.target.center[None]
    one = jax.jit(jax.vmap(partial(log_acceptance, local, D), (0, 0, None)))
    rates = [
        float(np.mean(-np.expm1(np.minimum(np.asarray(one(us, xi, zs.dtype.type(h))), 0.0))))
        for h in steps.reshape(-1)
    ]
    return np.array(rates).reshape(steps.shape) if steps.ndim else rates[0]


def _of_run(draws: Any, preconditioner: Any) -> tuple[float, Any]:
    """Return the run's step size at its end, and its D."""
    if not isinstance(draws, Draws):
        raise UsageError("step_size is missing; give one, or the draws of a run.")
    if preconditioner is None:
        if draws.plan is None or draws.plan.setup.preconditioner.adapts:
            raise UsageError(
                "the draws do not hold a fixed preconditioner of their run (an adapted one "
                "has none); pass step_size= and preconditioner=."
            )
        preconditioner = draws.plan.setup.preconditioner
    return float(draws.step_size[draws.healthy[0], -1]), preconditioner
