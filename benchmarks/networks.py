"""Three networks as a user types them: seconds by stage, the word, and what HMC says of the predictions.

    python benchmarks/networks.py [a] [b] [c]            sample, and compare with long HMC (a and b)
    python benchmarks/networks.py --mistuned [a] [b]     runs that are wrong on purpose: how many are `trusted`
    python benchmarks/networks.py --tuned, --mistuned NAMES of small_networks.py, or "small" [--seconds S] [--truths DIR]
    python benchmarks/networks.py --orders [a] [b]       samplers and data orders at one step and batch
    python benchmarks/networks.py --torch [a] [b] [c]    through sgld.torch.sample, where PyTorch is
    python benchmarks/networks.py --sample               both in little: b, and six mistuned runs of it

a: digits, 64-32-10 relu, 2,410 weights, 1,500 rows; b: Friedman's regression, 10-50-1 tanh and an unknown
noise, 602, 500 rows; c: 784-200-200-10, 199,210 weights, 6,000 rows, with max_seconds=120. The truth is
Metropolis-adjusted HMC with full gradients from the places where optimisers end, its predictions at rows
that were not learnt from. Of classes the total variation between mean probabilities, averaged over
rows, is printed; of means their distance in sds; and the ratio of predictive sds, its median over rows
and the root mean square of its distance from 1.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import claims
import sgld
from small_networks import SMALL, counted, tuned
from small_networks import mistuned as mistuned_small


class Network(NamedTuple):
    """A posterior, its rows, a start, and rows that are held back."""

    name: str
    posterior: sgld.Posterior
    data: tuple[Any, Any]
    init: Any
    held_back: Any
    classes: bool

    def predict(self, position: Any, x: Any) -> Any:
        """Log probabilities, or means, of some rows."""
        net = position if self.classes else position["net"]
        found = jax.vmap(sgld.networks.as_module(net))(x)
        return jax.nn.log_softmax(found) if self.classes else found[:, None]


def _prior() -> Callable:
    return sgld.networks.normal_prior({"*weight": 1.4, "*": 1.0}, fan_in=True)


def _class(net: Any, datum: Any) -> Any:
    return jax.nn.log_softmax(net(datum[0]))[datum[1]]


def _outcome(p: Any, datum: Any) -> Any:
    return -0.5 * ((datum[1] - p["net"](datum[0])) / jnp.exp(p["log_sd"])) ** 2 - p["log_sd"]


def a() -> Network:
    """Digits."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = (x[order] / 16).astype(np.float32), y[order].astype(np.int32)
    net = eqx.nn.MLP(64, 10, 32, 1, activation=jax.nn.relu, key=jax.random.key(0))
    data = (x[:1500], y[:1500])
    return Network("a", sgld.Posterior(_prior(), _class), data, net, x[1500:], True)


def b() -> Network:
    """Friedman's function, with a noise sd that is not known."""
    from sklearn.datasets import make_friedman1

    x, y = make_friedman1(1000, n_features=10, noise=1.0, random_state=0)
    x = ((x - 0.5) * np.sqrt(12)).astype(np.float32)
    y = ((y - y[:500].mean()) / y[:500].std()).astype(np.float32)
    net = eqx.nn.MLP(10, "scalar", 50, 1, activation=jnp.tanh, key=jax.random.key(0))
    prior = _prior()
    posterior = sgld.Posterior(lambda p: prior(p["net"]) - 0.5 * (p["log_sd"] + 1) ** 2, _outcome)
    init = {"net": net, "log_sd": jnp.array(-1.0)}
    return Network("b", posterior, (x[:500], y[:500]), init, x[500:], False)


def c() -> Network:
    """Ten classes of 784 made numbers."""
    from sklearn.datasets import make_classification

    x, y = make_classification(
        6300, 784, n_informative=40, n_redundant=60, n_classes=10, n_clusters_per_class=1,
        class_sep=2.0, random_state=0,
    )  # fmt: skip
    x, y = (x / x.std()).astype(np.float32), y.astype(np.int32)
    net = eqx.nn.MLP(784, 10, 200, 2, activation=jax.nn.relu, key=jax.random.key(0))
    data = (x[:6000], y[:6000])
    return Network("c", sgld.Posterior(_prior(), _class), data, net, x[6000:], True)


NETWORKS = {"a": a, "b": b, "c": c}
TRAJECTORIES = {"a": 1200, "b": 2500}  # of each of 8 chains of HMC, the first third not counted


class Predicted(NamedTuple):
    """Mean and sd of what is predicted, [row, k]: probabilities' means, and sds of log odds or means."""

    mean: np.ndarray
    sd: np.ndarray


def moments(values: np.ndarray, classes: bool) -> Predicted:
    """Of predictions [..., row, k]."""
    flat = np.asarray(values, np.float64).reshape(-1, *values.shape[-2:])
    if not classes:
        return Predicted(flat.mean(0), flat.std(0))
    p = np.exp(flat)
    return Predicted(p.mean(0), p.std(0))


def against(found: Predicted, truth: Predicted, classes: bool) -> dict[str, float]:
    """How far a run is from the truth."""
    clear = truth.sd > (0.005 if classes else 0.0)
    ratio = found.sd[clear] / truth.sd[clear]
    off = {
        "sd_ratio": float(np.median(ratio)),
        "sd_rms": float(np.sqrt(np.mean((ratio - 1) ** 2))),
    }
    if classes:
        return {
            "total_variation": float(0.5 * np.abs(found.mean - truth.mean).sum(1).mean()),
            **off,
        }
    shift = np.abs(found.mean - truth.mean) / truth.sd
    return {"mean_in_sd": float(np.mean(shift)), "mean_in_sd_max": float(shift.max()), **off}


def predictions(network: Network, draws: sgld.Draws) -> np.ndarray:
    """Of every draw, at the rows held back, [chain, draw, row, k]."""
    one = lambda p: network.predict(p, network.held_back)  # noqa: E731
    return np.asarray(jax.jit(lambda ps: jax.lax.map(jax.vmap(one), ps))(draws.position))


# -- the truth: HMC that is written out here ---------------------------------------------------


def hmc(network: Network, draws: sgld.Draws, trajectories: int, seed: int = 1) -> np.ndarray:
    """Predictions of Metropolis-adjusted HMC of 8 chains from optimisers' ends, in the run's metric."""
    from sgld.model.prepare import prepare

    problem = prepare(network.posterior, network.data, network.init)
    rows = problem.source.take(jnp.arange(problem.num_data))
    density = lambda z: problem.log_prior(z) + problem.log_likelihood(z, rows)  # noqa: E731
    assert draws.plan is not None
    D = np.asarray(draws.plan.setup.preconditioner.array)
    starts = np.repeat(np.asarray(draws.plan.setup.starts), 2, axis=0)
    root, x = jnp.sqrt(jnp.asarray(D)), jnp.asarray(network.held_back)
    value_and_gradient = jax.value_and_grad(density)
    step, leapfrogs = float(np.sqrt(draws.plan.setup.step_size(0))) * 1.1, 24

    def trajectory(state, key):
        z, value, gradient, step = state
        k1, k2, k3 = jax.random.split(key, 3)
        p = jax.random.normal(k1, z.shape)
        length = step * jax.random.uniform(k3, minval=0.8, maxval=1.2)

        def leap(_, s):
            q, p, _, g = s
            p = p + 0.5 * length * root * g
            q = q + length * root * p
            v, g = value_and_gradient(q)
            return q, p + 0.5 * length * root * g, v, g

        q, r, v, g = jax.lax.fori_loop(0, leapfrogs, leap, (z, p, value, gradient))
        log_ratio = v - value + 0.5 * (jnp.sum(p**2) - jnp.sum(r**2))
        take = jnp.log(jax.random.uniform(k2)) < log_ratio
        keep = lambda new, old: jnp.where(take, new, old)  # noqa: E731
        return (keep(q, z), keep(v, value), keep(g, gradient), step), jnp.minimum(
            1.0, jnp.exp(jnp.nan_to_num(log_ratio, nan=-jnp.inf))
        )

    @jax.jit
    def some(states, keys):
        def one(state, key):
            state, accepted = jax.vmap(trajectory)(state, key)
            place = jax.vmap(lambda z: network.predict(problem.target.position(z), x))(state[0])
            return state, (place, accepted)

        return jax.lax.scan(one, states, keys)

    zs = jnp.asarray(starts, jnp.float32)
    value, gradient = jax.vmap(value_and_gradient)(zs)
    states = (zs, value, gradient, jnp.full(len(zs), step))
    kept, burn = [], trajectories // 3
    for block in range(-(-trajectories // 50)):
        keys = jax.random.split(jax.random.key(seed + 1000 * block), (50, len(zs)))
        states, (places, accepted) = some(states, keys)
        if block * 50 < burn:  # the step of every chain, by its acceptances
            rate = np.asarray(accepted).mean(0)
            scale = np.clip(np.exp(rate - 0.8), 0.7, 1.2)
            states = (*states[:3], states[3] * jnp.asarray(scale, jnp.float32))
        else:
            kept.append(np.asarray(places))
    return np.moveaxis(np.concatenate(kept), 0, 1)


def truth_of(network: Network, draws: sgld.Draws, share: float = 1.0) -> Predicted:
    """Of long HMC; said with how far its own halves of chains are apart."""
    began = time.perf_counter()
    values = hmc(network, draws, int(TRAJECTORIES[network.name] * share))
    halves = [moments(values[k::2], network.classes) for k in (0, 1)]
    print(f"{network.name}: HMC {time.perf_counter() - began:.0f} s; its halves:", _text(against(*halves, network.classes)))  # fmt: skip
    return moments(values, network.classes)


# -- runs ---------------------------------------------------------------------------------------


def run(network: Network, **given: Any) -> tuple[sgld.Draws, float, float]:
    """Draws, wall seconds and CPU seconds."""
    began, before = time.perf_counter(), _cpu()
    draws = sgld.sample(network.posterior, network.data, network.init, **given)
    return draws, time.perf_counter() - began, _cpu() - before


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _text(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in found.items())


def typed(names: list[str], share: float = 1.0) -> dict[str, Any]:
    """Every network as a user types it."""
    table = {}
    for name in names:
        network = NETWORKS[name]()
        draws, wall, cpu = run(network, **({"max_seconds": 120} if name == "c" else {}))
        print(f"{name}: {wall:.1f} s of wall, {cpu:.1f} s of CPU; {draws.verdict}")
        print(draws.summary())
        row = {"wall": wall, "cpu": cpu, "word": draws.verdict.word}
        if name in TRAJECTORIES:
            truth = truth_of(network, draws, share)
            row |= against(moments(predictions(network, draws), network.classes), truth, network.classes)  # fmt: skip
            print(f"{name}: against HMC:", _text({k: v for k, v in row.items() if k[:2] in ("to", "me", "sd")}))  # fmt: skip
        table[name] = row
    return table


def mistuned(names: list[str], share: float = 1.0) -> dict[str, Any]:
    """Runs that are hot, that collapsed, and that are not mixed: words, and how far they are off."""
    table = {}
    for name in names:
        network = NETWORKS[name]()
        well, *_ = run(network, progress=False)
        truth = truth_of(network, well, share)
        assert well.plan is not None
        setup, rows = well.plan.setup, []
        h, thin = float(setup.step_size(0)), setup.thin
        common = {"sampler": sgld.BAOA(), "preconditioner": setup.preconditioner, "progress": False}
        for scale in (0.002, 0.02, 0.2, 1.0) if share < 1 else (0.002, 0.02, 0.1, 0.2, 0.5, 1.0):
            for batch in (20,) if share < 1 else (20, 100):
                draws, *_ = run(
                    network, **common, step_size=h * scale, batch_size=batch,
                    gradient=sgld.Minibatch(), burn_in=setup.burn_in, thin=thin,
                    num_draws=setup.num_draws, seed=1,
                )  # fmt: skip
                rows.append(_judged(network, draws, truth, scale, batch))
        table[name] = rows
        off = [r for r in rows if abs(r["sd_ratio"] - 1) > 0.15]
        wrong = sum(r["word"] == "trusted" for r in off)
        print(
            f"{name}: {len(off)} of {len(rows)} runs are off by over 15% in predictive sd; `trusted`: {wrong}"
        )
    return table


def orders(names: list[str]) -> dict[str, Any]:
    """BAOA, UBU and SGLD by data order, as many gradients for all: how hot plain batches of 50 rows leave predictions."""
    table = {}
    for name in names:
        network = NETWORKS[name]()
        well, *_ = run(network, progress=False)
        truth, table[name] = truth_of(network, well), []
        assert well.plan is not None
        setup = well.plan.setup
        for sampler in (sgld.BAOA(), sgld.UBU(), sgld.SGLD(noise_correction=None)):
            for order in ("reshuffle", "symmetric", "independent", "replacement"):
                draws, wall, _ = run(
                    network, sampler=sampler, order=order, preconditioner=setup.preconditioner,
                    step_size=0.1 * float(setup.step_size(0)), batch_size=50, gradient=sgld.Minibatch(),
                    burn_in=4000, thin=100, num_draws=300, seed=1, progress=False,
                )  # fmt: skip
                found = against(moments(predictions(network, draws), network.classes), truth, network.classes)  # fmt: skip
                kind = type(sampler).__name__
                print(f"  {kind:5} {order:12} {wall:5.1f} s, {draws.verdict.word}, {_text(found)}", flush=True)  # fmt: skip
                table[name].append({"sampler": kind, "order": order, "wall": wall, "word": draws.verdict.word, **found})  # fmt: skip
    return table


def _judged(
    network: Network, draws: sgld.Draws, truth: Predicted, scale: float, batch: int
) -> dict[str, Any]:
    found = against(moments(predictions(network, draws), network.classes), truth, network.classes)
    heat = draws.verdict.extra["predictions"]["temperatures"]
    warmest = max(value for value, _ in heat.values())
    print(
        f"  h x {scale}, batch {batch}: {draws.verdict.word}, warmest {warmest:.3f}, {_text(found)}"
    )
    return {"scale": scale, "batch": batch, "word": draws.verdict.word, "warmest": warmest, **found}


def by_torch(names: list[str]) -> dict[str, Any]:
    """The same through `sgld.torch.sample`, against the same truth."""
    import torch

    from torch_networks import MODULES

    table = {}
    for name in names:
        network = NETWORKS[name]()
        (x, y), held_back = network.data, torch.from_numpy(network.held_back)
        torch.manual_seed(0)
        module = MODULES[name]()
        limit = {"max_seconds": 120} if name == "c" else {}
        began, before = time.perf_counter(), _cpu()
        ensemble = sgld.torch.sample(
            module.model, module.loss, (torch.from_numpy(x), torch.from_numpy(y).to(module.outcomes)),
            prior=_prior(), **limit,
        )  # fmt: skip
        wall, cpu = time.perf_counter() - began, _cpu() - before
        print(f"{name}, PyTorch: {wall:.1f} s of wall, {cpu:.1f} s of CPU; {ensemble.verdict}")
        print(ensemble.summary())
        table[name] = {"wall": wall, "cpu": cpu, "word": ensemble.verdict.word}
        if name in TRAJECTORIES:
            well, *_ = run(network, progress=False)
            found = moments(module.predicted(ensemble(held_back)).numpy(), network.classes)
            row = against(found, truth_of(network, well), network.classes)
            print(f"{name}, PyTorch: against HMC:", _text(row))
            table[name] |= row
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mistuned", action="store_true")
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--orders", action="store_true")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--truths", type=Path)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--sample", action="store_true")
    asked = parser.parse_args()
    names = list(SMALL) if asked.names == ["small"] else asked.names
    if (asked.tuned or asked.mistuned) and names and set(names) <= set(SMALL):
        kind, runs = ("tuned", tuned) if asked.tuned else ("mistuned", mistuned_small)
        found = counted(kind, list(runs(names, asked.truths, asked.seconds)))
        claims.store("networks", found)
        return
    if asked.sample:
        found = {"typed": typed(["b"], 0.2), "mistuned": mistuned(["b"], 0.2)}
    elif asked.torch:
        found = {"torch": by_torch(asked.names or ["a", "b", "c"])}
    elif asked.orders:
        found = {"orders": orders(asked.names or ["b"])}
    elif asked.mistuned:
        found = {"mistuned": mistuned(asked.names or ["a", "b"])}
    else:
        found = {"typed": typed(asked.names or ["a", "b", "c"])}
    if not asked.sample:  # a figure is a kind and a problem
        claims.store(
            "networks", {f"{k}/{n}": row for k, table in found.items() for n, row in table.items()}
        )


if __name__ == "__main__":
    main()
