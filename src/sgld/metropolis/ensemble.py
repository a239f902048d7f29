"""An ensemble of Hamiltonian chains, from dispersed starts to a metric, a step and a length (ChEES).

Chains at many places at once learn from one another: the metric is the covariance of where all of
them have been, the step size that at which they accept, and the length of trajectories the one that
changes squared distances most (Hoffman, Radul & Sountsov 2021). Step and length are adapted by
BlackJAX; a trajectory is that of `sampler.hmc`, as in the run. Needs exact gradients, of the posterior or of
what a guide has for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..approximation.gradient_noise import TUNING
from ..core.work import Work
from ..data.source import generator
from ..model.problem import Problem
from ..samplers.confined_hmc import Regions
from ..samplers.gradients.control_variates import Guide
from ..samplers.gradients.full import Full
from ..samplers.hmc import HMC, At, propose
from ..samplers.preconditioners.fixed import Dense

__all__ = ["CHAINS", "TRAJECTORIES", "Ensemble", "warmed_up"]

CHAINS = 64
ROUNDS = (50, 100, 150)  # trajectories; the metric is learnt anew between two rounds
SETTLED = 50  # trajectories after these, in which nothing adapts
TRAJECTORIES = sum(ROUNDS) + SETTLED
ACCEPTED = 0.8  # harmonic mean of the chains' acceptance probabilities that the step aims at
FIRST_STEP = 0.1  # delta, in sds
# of a trajectory, in sds, at least: while dispersed chains draw together they seem to want shorter ones
# and short ones say little of longer; 1.6 took 1.3 times as many leapfrogs an effective draw, 3.1 1.4
SHORTEST = 2.2
RATE = 0.1  # of Adam, which climbs to the best length
LONGEST = 256  # leapfrogs of a trajectory


class Ensemble(NamedTuple):
    """A factor of the metric, step size h and longest trajectory in it, and where the chains are.

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
    """Of all trajectories: drawn on the host, for what draws normals takes longest to compile."""

    momentum: Float[Array, "trajectory chain d"]
    log_uniform: Float[Array, "trajectory chain"]


class _Chains(NamedTuple):
    """Where the chains are; moments of u since the middle of a round; ChEES's state.

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
    """Adapt from the chains' starts zs, in a first metric factor factor^T; then let them settle.

    With `regions` no chain leaves the one that it starts in.
    """
    d, at = zs.shape[1], 0
    noise, size, length = _noise(problem, zs.shape, seed), FIRST_STEP, SHORTEST
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
        for trajectories in ROUNDS:
            chains = after(trajectories, adapting=True)
            places, at = chains.at, at + trajectories
            size = float(jnp.exp(chains.adaptation.log_step_size_moving_average))
            length = float(jnp.exp(chains.adaptation.log_trajectory_length_moving_average))
            if at < sum(ROUNDS):
                factor = factor @ _learnt(chains)
        chains = after(SETTLED, adapting=False)
    leapfrogs = float(np.clip(length / size, 1, LONGEST))
    left = None if regions is None else np.asarray(chains.left) / float(chains.count)
    return Ensemble(
        factor, size**2, leapfrogs, np.asarray(chains.at.position, np.float64),
        np.nan_to_num(np.asarray(chains.at.log_density, np.float64), nan=-np.inf), left,
    )  # fmt: skip


def _noise(problem: Problem, shape: tuple[int, ...], seed: int) -> _Noise:
    rng = generator(seed, TUNING, 10)
    momentum = rng.standard_normal((TRAJECTORIES, *shape), np.float32)
    uniform = 1 - rng.random((TRAJECTORIES, shape[0]))
    return _Noise(problem.array(momentum), problem.array(np.log(uniform)))


def _white(problem: Problem, z: Array, factor: Float[np.ndarray, "d d"]) -> _White:
    D = Dense(factor @ factor.T, factor).prepare(problem.layout)
    center = np.mean(np.asarray(z, np.float64), axis=0)
    return _White(D, problem.array(np.linalg.inv(factor)), problem.array(center))


def _chees() -> tuple[Callable, Callable]:
    """`init(trajectory number, step size)` and `update(state, ends, momenta, starts, rates, diverged)`."""
    import optax
    from blackjax.adaptation.chees_adaptation import base

    init, update = base(
        HMC.place, lambda number: number + 1, optax.adam(RATE), ACCEPTED, 0.5, LONGEST
    )
    if "inverse_mass_matrix" not in inspect.signature(update).parameters:
        return init, update  # before BlackJAX 1.6
    return init, lambda state, ends, *rest: update(state, ends, *rest, jnp.ones_like(ends[0]))


def _leapfrogs(length: Array, step_size: Array) -> Array:
    """Of a trajectory, at most LONGEST: where a density is rough at every step, steps go to 0."""
    return jnp.minimum(length / step_size, LONGEST)


def _adaptation(size: float, length: float, at: int) -> Any:
    """BlackJAX's state at trajectory `at`, from a step and a length."""
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
    """`count` trajectories of every chain from trajectory `at` on."""
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
        learnt = update(state, white(ends), found.momentum, white(z), rates, found.diverged)
        log_length = jnp.maximum(learnt.log_trajectory_length_moving_average, np.log(SHORTEST))
        learnt = learnt._replace(
            trajectory_length=jnp.maximum(learnt.trajectory_length, SHORTEST),
            log_trajectory_length_moving_average=log_length,
        )
        state = jax.tree.map(
            lambda a, b: jnp.where(adapting, jnp.asarray(a, b.dtype), b), learnt, state
        )
        u = white(new.position)
        return _Chains(
            new, chains.count + counts * len(u), chains.first + counts * jnp.sum(u, axis=0),
            chains.second + counts * (u.T @ u), state, left,
        )  # fmt: skip

    return jax.lax.fori_loop(at, at + count, trajectory, chains)


def _learnt(chains: _Chains) -> Float[np.ndarray, "d d"]:
    """A factor of the covariance of u, drawn towards its diagonal where draws are few."""
    first, second, n = (
        np.asarray(a, np.float64) for a in (chains.first, chains.second, chains.count)
    )
    covariance = second / n - np.outer(first / n, first / n)
    diagonal = np.diag(np.maximum(np.diag(covariance), 1e-20))
    few = 10 * len(first) / (n / 10 + 10 * len(first))  # a tenth of them count as independent
    return np.linalg.cholesky((1 - few) * covariance + few * diagonal)
