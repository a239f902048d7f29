"""Provide neural networks as posteriors, and their predictions by long runs of other methods.

`LARGE`: a: digits, 64-32-10 relu, 2,410 weights, 1,500 rows; b: Friedman's regression, 10-50-1 tanh and
an unknown noise, 602, 500 rows; c: 784-200-200-10, 199,210 weights, 6,000 rows. `SMALL`: eight networks
of 13 to 114 weights, one to three layers deep, tanh and relu, classes and regression, among them five
rows, one positive among 300, an outlier with an unknown noise, rows that contradict each other.

The truth of the large ones is Metropolis-adjusted HMC with full gradients from the points where
optimisers end; of the small ones annealed sequential Monte Carlo from the prior: 2 x 600 particles, 60%
of them effective at every temperature, moved by Hamiltonian trajectories. It does not know where a
run's chains began, and weighs modes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import sgld
from densities import FlatDensity

TRAJECTORIES = {"a": 1200, "b": 2500}  # of each of 8 HMC chains; the first third is left out
BLOCK = 50  # trajectories between two changes of the step size
PARTICLES, LEAPFROGS, MOVES, LAST_MOVES, EFFECTIVE = 600, 12, 3, 12, 0.6
MIN_CLASS_SD = 0.01  # of a probability, below which its sd is not compared
MAX_SD_ERROR, MAX_TOTAL_VARIATION, MAX_MEAN_ERROR = 0.15, 0.02, 0.3  # beyond: the run is off
COMPARED_ROWS = 64  # of the rows that a small network was trained on


class Net(NamedTuple):
    """A posterior of a network, its rows, a start, and rows that are held back.

    Attributes:
      prior: of the weights.
      prior_sds: standard deviations of a normal distribution to anneal from, by flat coordinate.
      seen: rows of the training set at which predictions are compared, besides those held back.
    """

    name: str
    posterior: sgld.Posterior
    data: tuple[np.ndarray, np.ndarray]
    init: Any
    held_back: np.ndarray
    classes: bool
    prior: Any
    prior_sds: np.ndarray
    seen: int = 0

    def predict(self, position: Any, x: Any) -> Any:
        """Return log probabilities, or means, [row, k]."""
        found = jax.vmap(sgld.networks.as_module(net_of(position)))(x)
        return jax.nn.log_softmax(found) if self.classes else found.reshape(len(x), -1)

    def predictions(self, positions: Any, x: Any = None) -> np.ndarray:
        """Return those of every position of a stack, [position, row, k]; at the compared rows."""
        x = self.compared_rows if x is None else x
        one = lambda p: self.predict(p, jnp.asarray(x))  # noqa: E731
        return np.asarray(jax.jit(lambda ps: jax.lax.map(one, ps, batch_size=50))(positions))

    @property
    def compared_rows(self) -> np.ndarray:
        return np.concatenate([self.data[0][: self.seen], self.held_back])

    @property
    def density(self) -> FlatDensity:
        return FlatDensity(self.posterior, self.data, self.init)


def net_of(position: Any) -> Any:
    """Return the network of a position."""
    return position["net"] if isinstance(position, dict) else position


def stack_draws(draws: sgld.Draws) -> Any:
    """Return the positions of all chains behind one another."""
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), draws.position)


def mlp(*sizes: Any, activation: Callable = jnp.tanh) -> Any:
    """Return a multilayer perceptron: inputs, outputs, width, depth."""
    return eqx.nn.MLP(*sizes, activation=activation, key=jax.random.key(0))


def normal_prior(weight: float = 1.4, bias: float = 1.0) -> Any:
    return sgld.networks.normal_prior({"*weight": weight, "*": bias}, fan_in=True)


def _sds(prior: Any, net: Any) -> np.ndarray:
    arrays = jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array))
    each = zip(jax.tree.leaves(prior.sd(net)), arrays, strict=True)
    return np.concatenate([np.full(array.size, float(np.max(sd))) for sd, array in each])


def classifier(name: str, x: Any, y: Any, held_back: Any, net: Any, prior: Any, seen: int = 0) -> Net:  # fmt: skip
    """Return a network whose outputs are the logits of classes."""
    posterior = sgld.Posterior(prior, lambda n, row: jax.nn.log_softmax(n(row[0]))[row[1]])
    data = (np.asarray(x, np.float32), np.asarray(y, np.int32))
    held_back = np.asarray(held_back, np.float32)
    return Net(name, posterior, data, net, held_back, True, prior, _sds(prior, net), seen)


def regression(
    name: str, x: Any, y: Any, held_back: Any, net: Any, prior: Any, sd: float | None = None,
    log_sd: float = 0.0, width: float = 1.0, seen: int = 0,
) -> Net:  # fmt: skip
    """Return a network whose output is a mean; without `sd` the noise is log-normal a priori."""
    data = (np.asarray(x, np.float32), np.asarray(y, np.float32))
    held_back, sds, init = np.asarray(held_back, np.float32), _sds(prior, net), net
    if sd is not None:
        posterior = sgld.Posterior(prior, lambda n, row: -0.5 * ((row[1] - n(row[0])) / sd) ** 2)
    else:
        posterior = sgld.Posterior(
            lambda p: prior(p["net"]) - 0.5 * ((p["log_sd"] - log_sd) / width) ** 2, _outcome
        )
        init, sds = {"log_sd": jnp.array(log_sd), "net": net}, np.append(width, sds)
    return Net(name, posterior, data, init, held_back, False, prior, sds, seen)


def _outcome(p: Any, row: Any) -> Any:
    return -0.5 * ((row[1] - p["net"](row[0])) / jnp.exp(p["log_sd"])) ** 2 - p["log_sd"]


# -- the networks ----------------------------------------------------------------------------


def a() -> Net:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order] / 16, y[order]
    net = mlp(64, 10, 32, 1, activation=jax.nn.relu)
    return classifier("a", x[:1500], y[:1500], x[1500:], net, normal_prior())


def b(hidden: int = 50) -> Net:
    from sklearn.datasets import make_friedman1

    x, y = make_friedman1(1000, n_features=10, noise=1.0, random_state=0)
    x, y = (x - 0.5) * np.sqrt(12), (y - y[:500].mean()) / y[:500].std()
    net = mlp(10, "scalar", hidden, 1)
    return regression("b", x[:500], y[:500], x[500:], net, normal_prior(), log_sd=-1.0)


def c() -> Net:
    from sklearn.datasets import make_classification

    x, y = make_classification(
        6300, 784, n_informative=40, n_redundant=60, n_classes=10, n_clusters_per_class=1,
        class_sep=2.0, random_state=0,
    )  # fmt: skip
    net = mlp(784, 10, 200, 2, activation=jax.nn.relu)
    return classifier("c", x[:6000] / x.std(), y[:6000], x[6000:] / x.std(), net, normal_prior())


def _wide(rng: np.random.Generator, count: int, columns: int, most: float = 2.0) -> np.ndarray:
    return rng.uniform(-most, most, (count, columns))


def absx(rng: np.random.Generator) -> Any:
    x = _wide(rng, 12, 1)
    y = np.abs(x[:, 0]) + 0.1 * rng.normal(size=12)
    return x, y, _wide(rng, 40, 1), mlp(1, "scalar", 4, 1), normal_prior(2, 2), {"sd": 0.1}


def five_rows(rng: np.random.Generator) -> Any:
    x = _wide(rng, 5, 1)
    y = np.sin(2 * x[:, 0])
    return x, y, _wide(rng, 40, 1), mlp(1, "scalar", 20, 1), normal_prior(3, 3), {"sd": 0.1}


def base(rng: np.random.Generator) -> Any:
    x = rng.normal(size=(300, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 1] > rng.normal(size=300) * 0.5
    return x, y, rng.normal(size=(60, 3)), mlp(3, 2, 8, 1), normal_prior()


def outlier(rng: np.random.Generator) -> Any:
    x = _wide(rng, 100, 1)
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=100)
    y[17] = 30
    return x, y, _wide(rng, 40, 1), mlp(1, "scalar", 8, 1), normal_prior(2, 2), {"width": 2.0}


def contradict(rng: np.random.Generator) -> Any:
    x, y = np.repeat(_wide(rng, 10, 1), 2, 0), np.tile([1.0, -1.0], 10)
    return x, y, _wide(rng, 40, 1), mlp(1, "scalar", 6, 1), normal_prior(2, 2), {}


def deep(rng: np.random.Generator) -> Any:
    x = rng.normal(size=(60, 2))
    net = mlp(2, 2, 4, 3, activation=jax.nn.relu)
    return x, np.hypot(*x.T) > 1.2, rng.normal(size=(60, 2)), net, normal_prior(2.0)


def spirals(rng: np.random.Generator) -> Any:
    t, y = rng.uniform(0, 3, 40), np.arange(40) % 2
    x = np.c_[t * np.cos(2 * t + np.pi * y), t * np.sin(2 * t + np.pi * y)] / 2
    return x, y, _wide(rng, 40, 2, 1.5), mlp(2, 2, 8, 2), normal_prior(2.5, 1.5)


def one_positive_net(rng: np.random.Generator) -> Any:
    x, y = rng.normal(size=(300, 2)), np.arange(300) == 3
    return x, y, rng.normal(size=(60, 2)), mlp(2, 2, 8, 1), normal_prior(3, 3)


def small(seed: int, make: Callable) -> Net:
    """Build a small network: a regression where the settings of its noise are given."""
    *parts, last = make(np.random.default_rng(seed))
    if isinstance(last, dict):
        return regression(make.__name__, *parts, **last, seen=COMPARED_ROWS)
    return classifier(make.__name__, *parts, last, seen=COMPARED_ROWS)


LARGE = {"a": a, "b": b, "c": c}
SMALL = {
    make.__name__: partial(small, seed, make)
    for seed, make in (
        (4, absx), (8, five_rows), (17, base), (10, outlier), (19, contradict), (15, deep),
        (16, spirals), (2, one_positive_net),
    )
}  # fmt: skip


# -- the truth -------------------------------------------------------------------------------


def trajectory(density: Callable, leapfrogs: int, key: Any, z: Any, step: Any, scale: Any) -> Any:
    """Return z after one Metropolis-adjusted trajectory, and its probability of acceptance."""
    gradient = jax.grad(density)
    k1, k2, k3 = jax.random.split(key, 3)
    p = jax.random.normal(k1, z.shape)
    e = step * scale * jax.random.uniform(k3, minval=0.6, maxval=1.2)

    def leap(_, state):
        q, p = state
        p = p + 0.5 * e * gradient(q)
        q = q + e * p
        return q, p + 0.5 * e * gradient(q)

    q, r = jax.lax.fori_loop(0, leapfrogs, leap, (z, p))
    log_ratio = density(q) - density(z) + 0.5 * (p @ p - r @ r)
    log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)
    taken = jnp.log(jax.random.uniform(k2)) < log_ratio
    return jnp.where(taken, q, z), jnp.minimum(1.0, jnp.exp(log_ratio))


def long_hmc(net: Net, draws: sgld.Draws, trajectories: int, seed: int = 1) -> np.ndarray:
    """Return predictions [chain, draw, row, k] of 8 chains from the starts of a run, in its scales."""
    density, x = net.density, jnp.asarray(net.compared_rows)
    sds = ravel_pytree(eqx.filter(draws.sd(), eqx.is_inexact_array))[0]
    assert draws.plan is not None
    starts = draws.plan.setup.starts
    starts = np.tile(density.start, (4, 1)) if starts is None else starts
    zs = jnp.asarray(np.repeat(starts, 2, axis=0), jnp.float32)

    @jax.jit
    def block(zs, keys, steps):
        def one(zs, keys):
            zs, accepted = jax.vmap(partial(trajectory, density, 2 * LEAPFROGS), (0, 0, 0, None))(
                keys, zs, steps, sds
            )
            values = jax.vmap(lambda z: net.predict(density.position(z), x))(zs)
            return zs, (values, accepted)

        return jax.lax.scan(one, zs, keys)

    kept, steps = [], jnp.full(len(zs), 0.3)
    for number in range(-(-trajectories // BLOCK)):
        keys = jax.random.split(jax.random.key(seed + 1000 * number), (BLOCK, len(zs)))
        zs, (values, accepted) = block(zs, keys, steps)
        if number * BLOCK < trajectories // 3:  # the step of every chain, by its acceptances
            steps = steps * jnp.clip(jnp.exp(accepted.mean(0) - 0.8), 0.7, 1.2)
        else:
            kept.append(np.asarray(values))
    return np.moveaxis(np.concatenate(kept), 0, 1)


def anneal(net: Net, seed: int, particles: int = PARTICLES) -> np.ndarray:
    """Return predictions [particle, row, k] of sequential Monte Carlo."""
    last, sds = net.density, jnp.asarray(net.prior_sds, jnp.float32)
    first = lambda z: -0.5 * jnp.sum((z / sds) ** 2)  # noqa: E731

    @jax.jit
    def moves(key, zs, b, scale, step):
        mixed = lambda z: (1 - b) * first(z) + b * last(z)  # noqa: E731
        move = jax.vmap(partial(trajectory, mixed, LEAPFROGS), (0, 0, None, None))
        return move(jax.random.split(key, len(zs)), zs, step, scale)

    ratio = jax.jit(jax.vmap(lambda z: last(z) - first(z)))
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    zs = sds * jnp.asarray(rng.standard_normal((particles, len(sds))), jnp.float32)
    b, step = 0.0, 0.3
    while b < 1:
        log_ratio = np.asarray(ratio(zs), np.float64)
        log_ratio[~np.isfinite(log_ratio)] = -np.inf
        more = longest_step(log_ratio, 1 - b)
        weight = np.exp(more * (log_ratio - log_ratio.max()))
        at = (rng.random() + np.arange(particles)) / particles
        chosen = np.searchsorted(np.cumsum(weight / weight.sum()), at)
        zs, b = zs[chosen.clip(0, particles - 1)], min(1.0, b + more)
        scale = jnp.maximum(jnp.std(zs, axis=0), 1e-3 * sds)
        for _ in range(LAST_MOVES if b >= 1 else MOVES):
            key, own = jax.random.split(key)
            zs, accepted = moves(own, zs, b, scale, step)
            step = float(np.clip(step * np.exp(0.6 * (float(accepted.mean()) - 0.8)), 1e-4, 1.0))
    x = jnp.asarray(net.compared_rows)
    return np.asarray(jax.jit(jax.vmap(lambda z: net.predict(last.position(z), x)))(zs))


def longest_step(log_ratio: np.ndarray, most: float) -> float:
    """Return the longest step in 1/T after which EFFECTIVE of the particles are effective."""

    def effective(more: float) -> float:
        weight = np.exp(more * (log_ratio - log_ratio.max()))
        return weight.sum() ** 2 / (weight**2).sum() / len(log_ratio)

    low, high = 0.0, 2 * most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) > EFFECTIVE else (low, middle)
        if low >= most:
            return most
    return max(low, 1e-9)


def truth_of(net: Net, particles: int = PARTICLES) -> np.ndarray:
    """Return the predictions of a small network by two annealed runs together."""
    return np.concatenate([anneal(net, seed, particles) for seed in (0, 1)])


# -- how far a run is from the truth -------------------------------------------------------


def distance(net: Net, found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Compare predictions [..., row, k], at the worse of the rows seen and those held back.

    Returns: `mean`, the total variation between mean probabilities or the distance of means in sds,
    averaged over rows, and `sd_ratio`, the median ratio of predictive sds.
    """
    moments = []
    for values in (found, truth):
        flat = np.asarray(values, np.float64).reshape(-1, *values.shape[-2:])
        flat = np.exp(flat) if net.classes else flat
        moments.append((flat.mean(0), flat.std(0)))
    (mean, sd), (true_mean, true_sd) = moments
    seen, means, ratios = len(net.data[0][: net.seen]), [], []
    for part in (slice(seen), slice(seen, None)) if seen else (slice(None),):
        clear = true_sd[part] > (MIN_CLASS_SD if net.classes else 0.0)
        ratio = sd[part][clear] / true_sd[part][clear]
        shift = np.abs(mean[part] - true_mean[part])
        shift = 0.5 * shift.sum(1) if net.classes else shift / true_sd[part]
        means.append(float(shift.mean()))
        ratios.append(float(np.median(ratio)) if ratio.size else 1.0)
    return {"mean": max(means), "sd_ratio": max(ratios, key=lambda ratio: abs(ratio - 1))}


def is_off(net: Net, found: dict[str, float]) -> bool:
    """Return whether a run at this distance is wrong if it is `trusted`."""
    most = MAX_TOTAL_VARIATION if net.classes else MAX_MEAN_ERROR
    return not (abs(found["sd_ratio"] - 1) <= MAX_SD_ERROR and found["mean"] <= most)
