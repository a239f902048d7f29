"""Provide the three workloads of the speed tables, and the loops that the package is compared with.

W1  tied-means Gaussian mixture, N = 100: bound by the overhead of a step
W2  Bayesian logistic regression, N = 1e6, d = 50, batches of 500: bound by memory traffic
W3  network 784-400-400-10, N = 60,000, batches of 100: bound by matrix products and normals

A loop is a function of a number of steps that returns the seconds of those steps. Every loop draws
its batches and its noise inside the timed call and takes the data as arguments.
"""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgld
from harness import wall_seconds

THIN = 100  # steps per kept draw
KEPT_DRAWS = 100  # of the package's runs
KEPT_NETWORKS = 5  # of W3, whose verdict is the longer the more draws are kept
Loop = Callable[[int], float]


@dataclass(frozen=True)
class Workload:
    """A posterior, its data and a step size that keeps the chain near its target."""

    name: str
    log_prior: Callable
    log_likelihood: Callable
    data: Any
    init: Any
    batch_size: int
    step_size: float

    @property
    def num_data(self) -> int:
        return len(jax.tree.leaves(self.data)[0])

    @property
    def posterior(self) -> sgld.Posterior:
        return sgld.Posterior(self.log_prior, self.log_likelihood)


# -- the models ------------------------------------------------------------------------------


def mixture_log_prior(theta):
    return -(theta[0] ** 2) / 20 - theta[1] ** 2 / 2


def mixture_log_likelihood(theta, x):
    a, b = x - theta[0], x - theta[0] - theta[1]
    return jnp.logaddexp(-a * a / 4, -b * b / 4)


def mixture(batch_size: int) -> Workload:
    """W1: the 100 numbers that the package ships."""
    file = resources.files("sgld.data.bundled") / "tied_means_mixture.csv"
    x = np.loadtxt(file.read_text().splitlines(), skiprows=1, dtype=np.float32)
    init = np.ones(2, np.float32)
    return Workload("W1", mixture_log_prior, mixture_log_likelihood, x, init, batch_size, 1e-4)


def logistic_log_prior(beta):
    return -0.05 * jnp.sum(beta**2)


def logistic_log_likelihood(beta, row):
    x, y = row
    eta = x @ beta
    return y * eta - jax.nn.softplus(eta)


def logistic(num_data: int = 10**6, d: int = 50, batch_size: int = 500) -> Workload:
    """W2: standard normal columns, coefficients of size 1/2, a fixed seed."""
    rng = np.random.default_rng(20240601)
    X = rng.standard_normal((num_data, d), np.float32)
    beta = (0.5 * rng.standard_normal(d)).astype(np.float32)
    y = (rng.random(num_data) < 1 / (1 + np.exp(-(X @ beta)))).astype(np.float32)
    return Workload(
        "W2", logistic_log_prior, logistic_log_likelihood, (X, y), np.zeros(d, np.float32),
        batch_size, 0.1 / num_data,
    )  # fmt: skip


def network_log_prior(weights):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(weights))


def network_log_likelihood(weights, row):
    x, label = row
    for w, b in weights[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = weights[-1]
    return jax.nn.log_softmax(x @ w + b)[label]


def network(
    num_data: int = 60_000, batch_size: int = 100, hidden: tuple[int, ...] = (400, 400)
) -> Workload:
    """W3: synthetic images of ten classes, a fixed seed."""
    rng = np.random.default_rng(20240602)
    sizes = (784, *hidden, 10)
    label = rng.integers(0, 10, num_data).astype(np.int32)
    centers = rng.standard_normal((10, 784), np.float32)
    x = 0.3 * centers[label] + rng.standard_normal((num_data, 784), np.float32)
    weights = [
        (rng.standard_normal((m, n), np.float32) / np.float32(m**0.5), np.zeros(n, np.float32))
        for m, n in itertools.pairwise(sizes)
    ]
    return Workload(
        "W3", network_log_prior, network_log_likelihood, (x, label), weights, batch_size, 1e-7
    )


# -- the loops -------------------------------------------------------------------------------


def own_loop(work: Workload, chains: int, **given: Any) -> Loop:
    """Return the loop of `sgld.sample` with everything set manually.

    The same draws are kept from a long and from a short run, so that their difference is steps
    alone: tuning, the choice of the plan and the verdict are in both.
    """
    posterior, seeds = work.posterior, itertools.count()
    kept = KEPT_NETWORKS if work.name == "W3" else KEPT_DRAWS
    given = {"order": "reshuffle", "gradient": sgld.Minibatch(), **given}

    def call(thin: int) -> None:
        sgld.sample(
            posterior, work.data, work.init, step_size=work.step_size, batch_size=work.batch_size,
            preconditioner=sgld.Scalar(1.0), num_chains=chains, num_draws=kept, burn_in=0,
            thin=thin, seed=next(seeds), progress=False, **given,
        )  # fmt: skip

    def loop(steps: int) -> float:
        more = max(1, round(steps / (kept - 1)))
        long, short = (wall_seconds(partial(call, thin)) for thin in (1 + more, 1))
        return max(long - short, 1e-9) * steps / (more * (kept - 1))

    return loop


def blackjax_loop(work: Workload, chains: int) -> Loop:
    """Return BlackJAX's sgld as its documentation shows it: a scan over one key per step."""
    import blackjax

    gradient = blackjax.sgmcmc.gradients.grad_estimator(
        work.log_prior, work.log_likelihood, work.num_data
    )
    algorithm = blackjax.sgld(gradient)
    data = jax.tree.map(jnp.asarray, work.data)
    starts = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * chains), work.init)
    seeds = itertools.count()

    def step(data, position, key):
        batch_key, step_key = jax.random.split(key)
        index = jax.random.randint(batch_key, (work.batch_size,), 0, work.num_data)
        batch = jax.tree.map(lambda leaf: leaf[index], data)
        return algorithm.step(step_key, position, batch, work.step_size), None

    def chain(data, draws, position, key):
        def draw(position, key):
            keys = jax.random.split(key, THIN)
            return jax.lax.scan(partial(step, data), position, keys)[0], position

        return jax.lax.scan(draw, position, jax.random.split(key, draws))

    @partial(jax.jit, static_argnames=("draws",))
    def run(data, starts, key, draws):
        if chains == 1:
            return chain(data, draws, jax.tree.map(lambda leaf: leaf[0], starts), key)
        return jax.vmap(partial(chain, data, draws))(starts, jax.random.split(key, chains))

    def loop(steps: int) -> float:
        draws = max(1, round(steps / THIN))
        key = jax.random.key(next(seeds))
        call = lambda: jax.block_until_ready(run(data, starts, key, draws))  # noqa: E731
        return wall_seconds(call) * steps / (draws * THIN)

    return loop


@cache
def c_library() -> ctypes.CDLL | None:
    """Return baseline.c compiled, or None (and print it) without a C compiler.

    Never with -ffast-math: such a library changes the floating-point mode of the whole process.
    """
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        print("C: left out (no C compiler)")
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(__file__).with_name("baseline.c"), Path(folder) / "baseline.so"
        flags = ["-O3", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, str(source), "-o", str(target), "-lm"], check=True)
        return ctypes.CDLL(str(target))


def c_loop(work: Workload) -> Loop | None:
    """Return W1 or W2 in C: one chain, one thread, a gradient written out, rows in contiguous blocks."""
    library, seeds = c_library(), itertools.count(1)
    if library is None:
        return None
    arrays = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(work.data)]
    pointer = lambda a: a.ctypes.data_as(ctypes.c_void_p)  # noqa: E731

    def loop(steps: int) -> float:
        position = work.init.copy()
        out = np.zeros((-(-steps // THIN), position.size), np.float32)
        head = (ctypes.c_uint64(next(seeds)), ctypes.c_long(steps), THIN, *map(pointer, arrays))
        h, ends = ctypes.c_float(work.step_size), (pointer(position), pointer(out))
        if work.name == "W1":
            call = lambda: library.mixture(*head, work.num_data, work.batch_size, h, *ends)  # noqa: E731
        else:
            sizes = (work.num_data, position.size, work.batch_size, 0)
            call = lambda: library.logistic(*head, *sizes, h, *ends)  # noqa: E731
        return wall_seconds(call)

    return loop
