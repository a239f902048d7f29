"""What else people do with a network, at a given number of gradients: each gives positions, as draws do.

Every method takes a `Task` and how many gradients of single rows it may take, and gives positions whose arrays
are [draw, ...], equally weighted. All of them see the same prior and likelihood.

    SGLD, SGHMC     BlackJAX's own, plain: 4 chains from where Adam ends; of five steps the best is kept
                    against the truth, which no user has, or the one of the best log score at rows held back
    ensemble        where Adam ends from 10 starts (Lakshminarayanan et al. 2017)
    dropout         one network trained with dropout, .1 of hidden units; 300 masks (Gal & Ghahramani 2016)
    last layer      Adam's end, and the Laplace approximation of its last layer (Daxberger et al. 2021)
    mean field      Bayes by Backprop (Blundell et al. 2015), the package's own
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import sgld
from sgld.model.prepare import prepare

MEMBERS, CHAINS, KEPT, MASKS, DROPPED, MOST_PASSES, ADAM = 10, 4, 200, 300, 0.1, 400, 0.01
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01)  # of the largest stable step
SIXTH = 6  # of the gradients, for where chains begin


class Task(NamedTuple):
    """A posterior of a multilayer perceptron, rows to learn from, and a start; `classes`, or means with a log_sd or without."""

    name: str
    posterior: sgld.Posterior
    data: tuple[np.ndarray, np.ndarray]
    init: Any
    classes: bool

    @property
    def num_rows(self) -> int:
        return len(self.data[1])

    @property
    def batch(self) -> int:
        """Rows of a step: 32, a fifth of a small table."""
        return max(1, min(32, self.num_rows // 5))

    def predict(self, position: Any, x: Any) -> Any:
        """Log probabilities, or means, [row, k]."""
        found = jax.vmap(sgld.networks.as_module(_net(position)))(x)
        return jax.nn.log_softmax(found) if self.classes else found.reshape(len(x), -1)


def _net(position: Any) -> Any:
    return position["net"] if isinstance(position, dict) else position


class Work:
    """The flat position of a task, its density, and what its layers are there."""

    def __init__(self, task: Task) -> None:
        self.task = task
        problem = prepare(task.posterior, task.data, task.init)
        self.position = problem.target.position
        self.prior, self.likelihood = problem.log_prior, problem.log_likelihood
        self.data = jax.tree.map(jnp.asarray, task.data)
        self.start, self._unravel = ravel_pytree(eqx.filter(task.init, eqx.is_inexact_array))
        again = ravel_pytree(eqx.filter(self.position(self.start), eqx.is_inexact_array))[0]
        assert (again == self.start).all()  # flat positions are what ravel_pytree makes of them
        self.last = np.flatnonzero(self._marked(lambda net: net.layers[-1:]))

    def _marked(self, layers: Callable[[Any], Any], value: float = 1.0) -> np.ndarray:
        """One in the numbers of these layers, else 0."""
        zero = jax.tree.map(jnp.zeros_like, self._unravel(self.start))
        where = lambda tree: jax.tree.leaves(layers(_net(tree)))  # noqa: E731
        marked = eqx.tree_at(where, zero, [jnp.full_like(leaf, value) for leaf in where(zero)])
        return np.asarray(ravel_pytree(marked)[0])

    def fresh(self, key: jax.Array) -> jax.Array:
        """A start of its own: weights uniform within 1 / sqrt(fan in), the rest as given."""
        tree = self._unravel(self.start)
        leaves, form = jax.tree.flatten(tree)
        keys = jax.random.split(key, len(leaves))
        drawn = [
            jax.random.uniform(k, leaf.shape, leaf.dtype, -1.0, 1.0) / jnp.sqrt(leaf.shape[-1])
            if leaf.ndim == 2
            else leaf
            for k, leaf in zip(keys, leaves, strict=True)
        ]
        return ravel_pytree(jax.tree.unflatten(form, drawn))[0]

    def masked(self, z: jax.Array, key: jax.Array) -> jax.Array:
        """With some inputs of every layer but the first left out, the others larger for it."""
        tree = self._unravel(z)
        weights = lambda t: [layer.weight for layer in _net(t).layers[1:]]  # noqa: E731
        found = []
        for k, weight in zip(jax.random.split(key, len(weights(tree))), weights(tree), strict=True):
            stays = jax.random.bernoulli(k, 1 - DROPPED, weight.shape[-1:])
            found.append(weight * stays / (1 - DROPPED))
        return ravel_pytree(eqx.tree_at(weights, tree, found))[0]

    def rows(self, key: jax.Array) -> Any:
        chosen = jax.random.randint(key, (self.task.batch,), 0, self.task.num_rows)
        return jax.tree.map(lambda a: a[chosen], self.data)

    def density(self, z: jax.Array, rows: Any) -> jax.Array:
        """Log density, estimated from some rows."""
        share = self.task.num_rows / len(rows[1])
        return self.prior(z) + share * self.likelihood(z, rows)

    def dropped(self, z: jax.Array, rows: Any, key: jax.Array) -> jax.Array:
        """The same with a mask for every row."""
        one = lambda row, k: self.task.posterior.log_likelihood(  # noqa: E731
            self.position(self.masked(z, k)), row
        )
        count = len(rows[1])
        sums = jnp.sum(jax.vmap(one)(rows, jax.random.split(key, count)))
        return self.prior(z) + self.task.num_rows / count * sums

    def adam(self, gradients: float, members: int, seed: int, density: Any = None) -> jax.Array:
        """Where Adam ends, [member, d]: each with its share of the gradients, 400 passes at most."""
        task = self.task
        steps = int(min(gradients / members, MOST_PASSES * task.num_rows) / task.batch) + 1
        optimiser = optax.adam(optax.cosine_decay_schedule(ADAM, steps))
        objective = density or (lambda z, rows, _: self.density(z, rows))

        def step(state: Any, key: jax.Array) -> Any:
            z, moments = state
            drawn, more = jax.random.split(key)
            gradient = jax.grad(objective)(z, self.rows(drawn), more)
            change, moments = optimiser.update(-gradient, moments)
            return (optax.apply_updates(z, change), moments), None

        @jax.jit
        def end(key: jax.Array) -> jax.Array:
            first, more = jax.random.split(key)
            z = self.fresh(first)
            return jax.lax.scan(step, (z, optimiser.init(z)), jax.random.split(more, steps))[0][0]

        return jax.vmap(end)(jax.random.split(jax.random.key(seed), members))

    def stiffest(self, z: jax.Array) -> float:
        """The largest curvature of -log density there, by power iteration."""
        gradient = jax.grad(lambda q: -self.density(q, self.data))
        times = jax.jit(lambda v: jax.jvp(gradient, (z,), (v,))[1])
        v = jax.random.normal(jax.random.key(0), z.shape)
        for _ in range(40):
            v = times(v / jnp.linalg.norm(v))
        return float(jnp.linalg.norm(v))

    def positions(self, zs: jax.Array) -> Any:
        return jax.vmap(self.position)(zs)


def _sampled(name: str, work: Work, gradients: float, seed: int) -> Iterator[Any]:
    """BlackJAX's sampler at every step size of the grid."""
    starts = work.adam(gradients / SIXTH, CHAINS, seed)
    gradient = jax.grad(work.density)
    algorithm = getattr(blackjax, name)(gradient)
    leapfrogs = 10 if name == "sghmc" else 1
    each = CHAINS * work.task.batch * leapfrogs
    thin = max(1, int(gradients * (1 - 1 / SIXTH) / each / KEPT / 2))
    largest = 1 / work.stiffest(starts[0])

    @jax.jit
    def run(h: Any, key: jax.Array, start: jax.Array) -> jax.Array:
        def step(state: Any, key: jax.Array) -> Any:
            drawn, noise = jax.random.split(key)
            return algorithm.step(noise, state, work.rows(drawn), h), None

        def some(state: Any, key: jax.Array) -> Any:
            state = jax.lax.scan(step, state, jax.random.split(key, thin))[0]
            return state, state

        return jax.lax.scan(some, algorithm.init(start), jax.random.split(key, 2 * KEPT))[1][KEPT:]

    for share in SHARES:
        h = share * largest if name == "sgld" else np.sqrt(share * largest)
        keys = jax.random.split(jax.random.key(seed + 1), CHAINS)
        zs = jax.vmap(partial(run, h))(keys, starts).reshape(-1, starts.shape[1])
        if jnp.isfinite(zs).all():
            yield work.positions(zs)


def sgld_of_blackjax(work: Work, gradients: float, seed: int) -> Iterator[Any]:
    yield from _sampled("sgld", work, gradients, seed)


def sghmc_of_blackjax(work: Work, gradients: float, seed: int) -> Iterator[Any]:
    yield from _sampled("sghmc", work, gradients, seed)


def ensemble(work: Work, gradients: float, seed: int) -> Iterator[Any]:
    yield work.positions(work.adam(gradients, MEMBERS, seed))


def dropout(work: Work, gradients: float, seed: int) -> Iterator[Any]:
    (z,) = work.adam(gradients, 1, seed, density=work.dropped)
    keys = jax.random.split(jax.random.key(seed + 1), MASKS)
    yield work.positions(jax.vmap(partial(work.masked, z))(keys))


def last_layer(work: Work, gradients: float, seed: int) -> Iterator[Any]:
    (z,), last = work.adam(gradients, 1, seed), work.last
    minus = lambda part: -work.density(z.at[last].set(part), work.data)  # noqa: E731
    J = np.asarray(jax.jit(jax.hessian(minus))(z[last]), np.float64)
    noise = np.random.default_rng(seed).standard_normal((MASKS, len(last)))
    drawn = np.asarray(z[last]) + np.linalg.solve(np.linalg.cholesky(J).T, noise.T).T
    yield work.positions(jax.vmap(lambda part: z.at[last].set(part))(jnp.float32(drawn)))


def mean_field(work: Work, gradients: float, seed: int) -> Iterator[Any]:
    task = work.task
    start = work.position(work.adam(gradients / SIXTH, 1, seed)[0])
    steps = int(min(gradients, MOST_PASSES * task.num_rows * MEMBERS) / task.batch / 2) + 1
    found = sgld.bayes_by_backprop(
        task.posterior, task.data, start, num_steps=steps, batch_size=task.batch, init_sd=0.02,
        seed=seed, progress=False,
    )  # fmt: skip
    draws = found.draws(KEPT)
    yield jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), draws.position)


RIVALS: dict[str, Callable[[Work, float, int], Iterator[Any]]] = {
    "SGLD, BlackJAX": sgld_of_blackjax, "SGHMC, BlackJAX": sghmc_of_blackjax, "ensemble of 10": ensemble,
    "dropout": dropout, "last layer, Laplace": last_layer, "mean field": mean_field,
}  # fmt: skip
