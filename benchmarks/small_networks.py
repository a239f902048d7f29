"""Small networks whose posterior is known, and how often the verdict on them is right.

    python benchmarks/networks.py --tuned [names]      runs left to the library: how many are `trusted`
    python benchmarks/networks.py --mistuned [names]   steps, batches and lengths that are wrong on purpose

Eight networks of 13 to 114 weights, one to three layers deep, tanh and relu, classes and regression, among
them five rows, one positive among 300, an outlier with an unknown noise, rows that contradict each
other. The truth is annealed sequential Monte Carlo from the prior: 2 x 600 particles, a ladder whose
every rung keeps 60% effective, moves by Hamiltonian trajectories; it knows nothing of where a run's
chains began, and weighs modes. A run is off where predictive sds are by over 15% (their median
over rows), mean probabilities by over .02 in total variation, or means by over .3 sd, at the
first 64 rows or at rows held back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sgld
from sgld.model.prepare import prepare

PARTICLES, LEAPFROGS, MOVES, LAST_MOVES, EFFECTIVE = 600, 12, 3, 12, 0.6


class Small(NamedTuple):
    """A posterior, its rows, a start, rows held back, and sds of a normal law to anneal from."""

    name: str
    posterior: sgld.Posterior
    data: tuple[np.ndarray, np.ndarray]
    init: Any
    held_back: np.ndarray
    classes: bool
    sds: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """Where predictions are compared."""
        return np.concatenate([self.data[0][:64], self.held_back])

    def predict(self, position: Any, x: Any) -> Any:
        """Log probabilities, or means, [row, k]."""
        net = position["net"] if isinstance(position, dict) else position
        found = jax.vmap(sgld.networks.as_module(net))(x)
        return jax.nn.log_softmax(found) if self.classes else found[:, None]


def _net(sizes: tuple[int, Any, int, int], activation: Callable = jnp.tanh) -> Any:
    return eqx.nn.MLP(*sizes, activation=activation, key=jax.random.key(0))


def _prior(weight: float = 1.4, bias: float = 1.0, fan_in: bool = True) -> Any:
    return sgld.networks.normal_prior({"*weight": weight, "*": bias}, fan_in=fan_in)


def _sds(prior: Any, net: Any) -> np.ndarray:
    arrays = jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array))
    each = zip(jax.tree.leaves(prior.sd(net)), arrays, strict=True)
    return np.concatenate([np.full(array.size, float(np.max(sd))) for sd, array in each])


def _classes(name: str, x: Any, y: Any, held_back: Any, net: Any, prior: Any) -> Small:
    posterior = sgld.Posterior(prior, lambda n, row: jax.nn.log_softmax(n(row[0]))[row[1]])
    data = (x.astype(np.float32), y.astype(np.int32))
    return Small(name, posterior, data, net, held_back.astype(np.float32), True, _sds(prior, net))


def _means(name: str, x: Any, y: Any, held_back: Any, net: Any, prior: Any, sd: float) -> Small:
    posterior = sgld.Posterior(prior, lambda n, row: -0.5 * ((row[1] - n(row[0])) / sd) ** 2)
    data = (x.astype(np.float32), y.astype(np.float32))
    return Small(name, posterior, data, net, held_back.astype(np.float32), False, _sds(prior, net))


def _unknown(
    name: str, x: Any, y: Any, held_back: Any, net: Any, prior: Any, width: float
) -> Small:
    """With a noise sd that is not known, log-normal of this width."""
    posterior = sgld.Posterior(
        lambda p: prior(p["net"]) - 0.5 * (p["log_sd"] / width) ** 2,
        lambda p, row: (
            -0.5 * ((row[1] - p["net"](row[0])) / jnp.exp(p["log_sd"])) ** 2 - p["log_sd"]
        ),
    )
    data, sds = (x.astype(np.float32), y.astype(np.float32)), np.append(width, _sds(prior, net))
    init = {"log_sd": jnp.array(0.0), "net": net}
    return Small(name, posterior, data, init, held_back.astype(np.float32), False, sds)


def _wide(rng: np.random.Generator, count: int, columns: int, most: float = 2.0) -> np.ndarray:
    return rng.uniform(-most, most, (count, columns))


def absx() -> Small:
    rng = np.random.default_rng(4)
    x = _wide(rng, 12, 1)
    y = np.abs(x[:, 0]) + 0.1 * rng.normal(size=12)
    return _means("absx", x, y, _wide(rng, 40, 1), _net((1, "scalar", 4, 1)), _prior(2, 2), 0.1)


def five_rows() -> Small:
    rng = np.random.default_rng(8)
    x = _wide(rng, 5, 1)
    y = np.sin(2 * x[:, 0])
    return _means(
        "five_rows", x, y, _wide(rng, 40, 1), _net((1, "scalar", 20, 1)), _prior(3, 3), 0.1
    )


def base() -> Small:
    rng = np.random.default_rng(17)
    x = rng.normal(size=(300, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 1] > rng.normal(size=300) * 0.5
    return _classes("base", x, y, rng.normal(size=(60, 3)), _net((3, 2, 8, 1)), _prior())


def outlier() -> Small:
    rng = np.random.default_rng(10)
    x = _wide(rng, 100, 1)
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=100)
    y[17] = 30
    return _unknown(
        "outlier", x, y, _wide(rng, 40, 1), _net((1, "scalar", 8, 1)), _prior(2, 2), 2.0
    )


def contradict() -> Small:
    rng = np.random.default_rng(19)
    x, y = np.repeat(_wide(rng, 10, 1), 2, 0), np.tile([1.0, -1.0], 10)
    return _unknown(
        "contradict", x, y, _wide(rng, 40, 1), _net((1, "scalar", 6, 1)), _prior(2, 2), 1.0
    )


def deep() -> Small:
    rng = np.random.default_rng(15)
    x = rng.normal(size=(60, 2))
    net = _net((2, 2, 4, 3), jax.nn.relu)
    return _classes(
        "deep", x, np.hypot(*x.T) > 1.2, rng.normal(size=(60, 2)), net, _prior(2.0, 1.0)
    )


def spirals() -> Small:
    rng = np.random.default_rng(16)
    t, y = rng.uniform(0, 3, 40), np.arange(40) % 2
    x = np.c_[t * np.cos(2 * t + np.pi * y), t * np.sin(2 * t + np.pi * y)] / 2
    return _classes("spirals", x, y, _wide(rng, 40, 2, 1.5), _net((2, 2, 8, 2)), _prior(2.5, 1.5))


def one_positive_net() -> Small:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(300, 2)), np.arange(300) == 3
    return _classes(
        "one_positive_net", x, y, rng.normal(size=(60, 2)), _net((2, 2, 8, 1)), _prior(3, 3)
    )


SMALL = {
    make.__name__: make
    for make in (absx, five_rows, base, outlier, contradict, deep, spirals, one_positive_net)
}


# -- the truth: annealed sequential Monte Carlo -------------------------------------------------


def annealed(small: Small, seed: int) -> np.ndarray:
    """Predictions of particles, [particle, row, k]."""
    problem = prepare(small.posterior, small.data, small.init)
    rows, d = problem.source.take(jnp.arange(problem.num_data)), problem.dimension
    sds = jnp.asarray(small.sds, jnp.float32)
    first = lambda z: -0.5 * jnp.sum((z / sds) ** 2)  # noqa: E731
    last = lambda z: problem.log_prior(z) + problem.log_likelihood(z, rows)  # noqa: E731

    @jax.jit
    def moved(key, zs, b, scale, step):
        density = lambda z: (1 - b) * first(z) + b * last(z)  # noqa: E731
        gradient = jax.grad(density)

        def one(key, z):
            k1, k2, k3 = jax.random.split(key, 3)
            p = jax.random.normal(k1, (d,))
            e = step * jax.random.uniform(k3, minval=0.5, maxval=1.2)

            def leap(_, s):
                q, p = s
                p = p + 0.5 * e * scale * gradient(q)
                q = q + e * scale * p
                return q, p + 0.5 * e * scale * gradient(q)

            q, r = jax.lax.fori_loop(0, LEAPFROGS, leap, (z, p))
            log_ratio = density(q) - density(z) + 0.5 * (p @ p - r @ r)
            log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)
            taken = jnp.log(jax.random.uniform(k2)) < log_ratio
            return jnp.where(taken, q, z), jnp.minimum(1.0, jnp.exp(log_ratio))

        return jax.vmap(one)(jax.random.split(key, len(zs)), zs)

    ratio = jax.jit(jax.vmap(lambda z: last(z) - first(z)))
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    zs = sds * jnp.asarray(rng.standard_normal((PARTICLES, d)), jnp.float32)
    b, step = 0.0, 0.3
    while b < 1:
        log_ratio = np.asarray(ratio(zs), np.float64)
        log_ratio[~np.isfinite(log_ratio)] = -np.inf
        more = _rung(log_ratio, 1 - b)
        weight = np.exp(more * (log_ratio - log_ratio.max()))
        places = (rng.random() + np.arange(PARTICLES)) / PARTICLES
        chosen = np.searchsorted(np.cumsum(weight / weight.sum()), places)
        zs, b = zs[chosen.clip(0, PARTICLES - 1)], min(1.0, b + more)
        scale = jnp.maximum(jnp.std(zs, axis=0), 1e-3 * sds)
        for _ in range(LAST_MOVES if b >= 1 else MOVES):
            key, own = jax.random.split(key)
            zs, accepted = moved(own, zs, b, scale, step)
            step = float(np.clip(step * np.exp(0.6 * (float(accepted.mean()) - 0.8)), 1e-4, 1.0))
    rows = jnp.asarray(small.rows)
    return np.asarray(
        jax.jit(jax.vmap(lambda z: small.predict(problem.target.position(z), rows)))(zs)
    )


def _rung(log_ratio: np.ndarray, most: float) -> float:
    """The longest step in 1/T that keeps so many particles effective."""

    def effective(more: float) -> float:
        weight = np.exp(more * (log_ratio - log_ratio.max()))
        return weight.sum() ** 2 / (weight**2).sum() / len(log_ratio)

    if effective(most) >= EFFECTIVE:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) > EFFECTIVE else (low, middle)
    return max(low, 1e-9)


def truth_of(small: Small, kept: Path | None) -> np.ndarray:
    """Of two runs together; read from `kept`, where it is there."""
    path = None if kept is None else kept / f"truth_{small.name}.npz"
    if path is not None and path.exists():
        found = np.load(path)
        return np.concatenate([found["a"], found["b"]])
    both = [annealed(small, seed) for seed in (0, 1)]
    if path is not None:
        np.savez(path, a=both[0], b=both[1])
    return np.concatenate(both)


# -- runs ---------------------------------------------------------------------------------------


class Off(NamedTuple):
    """How far predictions are from the truth: the worse of the first rows and the rows held back."""

    sd: float  # median of the ratio of sds, as its distance from 1
    mean: float  # total variation, or sds

    def beyond(self, classes: bool) -> bool:
        """Whether a run that is `trusted` is wrong."""
        return not (self.sd <= 0.15 and self.mean <= (0.02 if classes else 0.3))


def off(small: Small, found: np.ndarray, truth: np.ndarray) -> Off:
    """Predictions [..., row, k] against those of the truth."""
    values = []
    for v in (found, truth):
        flat = np.asarray(v, np.float64).reshape(-1, *v.shape[-2:])
        flat = np.exp(flat) if small.classes else flat
        values.append((flat.mean(0), flat.std(0)))
    (mean, sd), (true_mean, true_sd) = values
    first, each = len(small.data[0][:64]), []
    for part in (slice(first), slice(first, None)):
        clear = true_sd[part] > (0.01 if small.classes else 0.0)
        ratio = (sd[part] / np.maximum(true_sd[part], 1e-12))[clear]
        shift = np.abs(mean[part] - true_mean[part])
        shift = 0.5 * shift.sum(1) if small.classes else shift / true_sd[part]
        width = abs(float(np.median(ratio)) - 1) if ratio.size else 0.0
        each.append((width, float(shift.mean())))
    return Off(*(float(x) for x in np.max(each, axis=0)))


BY_HAND: tuple[dict[str, Any], ...] = tuple(
    {"scale": scale, "batch": batch, "sampler": sampler, "num_draws": num_draws}
    for scale, batch, sampler, num_draws in (
        (0.5, 10, "BAOA", 600), (0.1, 10, "BAOA", 600), (0.02, 10, "BAOA", 600),
        (4.0, None, "BAOA", 600), (2.0, None, "BAOA", 600), (1e-4, None, "BAOA", 600),
        (0.2, None, "BAOA", 60), (0.5, 10, "SGLD", 600), (0.05, 10, "SGLD", 600),
        (1.0, None, "SGLD", 600),
        (8.0, None, "BAOA", 600), (1.0, 5, "BAOA", 600), (0.2, 20, "BAOA", 600), (0.05, 5, "BAOA", 600),
        (1e-3, None, "BAOA", 600), (0.5, None, "BAOA", 60), (0.1, 50, "BAOA", 200), (1.0, 100, "BAOA", 600),
        (4.0, None, "SGLD", 600), (2.0, None, "SGLD", 600), (0.2, None, "SGLD", 600), (1.0, 20, "SGLD", 600),
        (0.2, 5, "SGLD", 600), (0.02, 10, "SGLD", 600),
    )
)  # fmt: skip


def _by_hand(small: Small, plan: Any, how: dict[str, Any], seed: int) -> sgld.Draws:
    """A run with this step, batch and sampler, in the metric of a plan, every chain from the start."""
    setup = plan.setup
    sampler = sgld.BAOA() if how["sampler"] == "BAOA" else sgld.SGLD(noise_correction=None)
    rows: dict[str, Any] = {"gradient": sgld.Full()} if how["batch"] is None else {
        "gradient": sgld.Minibatch(), "batch_size": min(how["batch"], len(small.data[1]) // 2),
    }  # fmt: skip
    return sgld.sample(
        small.posterior, small.data, small.init, sampler=sampler, preconditioner=setup.preconditioner,
        step_size=float(setup.step_size(0)) * how["scale"], burn_in=500, thin=20,
        num_draws=how["num_draws"], seed=seed, progress=False, **rows,
    )  # fmt: skip


def _judged(small: Small, draws: sgld.Draws, truth: np.ndarray) -> tuple[Off, bool]:
    one = lambda position: small.predict(position, jnp.asarray(small.rows))  # noqa: E731
    found = jax.jit(lambda positions: jax.lax.map(jax.vmap(one), positions))(draws.position)
    apart = off(small, np.asarray(found), truth)
    return apart, apart.beyond(small.classes)


def tuned(names: list[str], kept: Path | None, seconds: float) -> Iterator[dict[str, Any]]:
    """Runs left to the library; it stops where the time is up."""
    yield from _runs(names, kept, seconds, [None])


def mistuned(names: list[str], kept: Path | None, seconds: float) -> Iterator[dict[str, Any]]:
    """Runs by hand, every network in turn, in the metric of a short run of the library's."""
    yield from _runs(names, kept, seconds, list(BY_HAND))


def _runs(
    names: list[str], kept: Path | None, seconds: float, how: list[dict[str, Any] | None]
) -> Iterator[dict[str, Any]]:
    began, plans = time.monotonic(), {}
    for number, given in enumerate(how):
        for name in names:
            if time.monotonic() - began > seconds:
                return
            small = SMALL[name]()
            truth = truth_of(small, kept)
            if given is None:
                draws = sgld.sample(small.posterior, small.data, small.init, progress=False)
            else:
                if name not in plans:
                    plans[name] = sgld.sample(
                        small.posterior, small.data, small.init, max_steps=200, num_draws=20,
                        progress=False,
                    ).plan  # fmt: skip
                draws = _by_hand(small, plans[name], given, seed=number)
            apart, wrong = _judged(small, draws, truth)
            word = draws.verdict.word if draws.verdict is not None else ""
            print(
                f"{name} {given or 'as it comes'}: {word}, sd off by {apart.sd:.3f}, mean by {apart.mean:.4f}"
                f"{', off' * wrong}{': MISS' * (wrong and word == 'trusted')}",
                flush=True,
            )
            yield {"name": name, "word": word, "off": wrong, "sd": apart.sd, "mean": apart.mean}


def counted(kind: str, runs: list[dict[str, Any]]) -> dict[str, int]:
    """Figures: of runs, of those that are off, of misses; of those that are right, how many are `trusted`."""
    wrong = [run for run in runs if run["off"]]
    right = [run for run in runs if not run["off"]]
    trusted = lambda some: sum(run["word"] == "trusted" for run in some)  # noqa: E731
    found = {
        f"{kind} runs": len(runs), f"{kind} networks": len({run["name"] for run in runs}),
        f"{kind} off": len(wrong), f"{kind} misses": trusted(wrong),
        f"{kind} right": len(right), f"{kind} right trusted": trusted(right),
    }  # fmt: skip
    print(", ".join(f"{name}: {value}" for name, value in found.items()))
    return found
