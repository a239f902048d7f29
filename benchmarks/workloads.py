"""The three workloads, and the loops of others that the package is compared with.

W1  tied-means Gaussian mixture, N = 100: bound by the overhead of a step
W2  Bayesian logistic regression, N = 1e6, d = 50, batches of 500: bound by memory traffic
W3  network 784-400-400-10, N = 60,000, batches of 100: bound by products and normals

Every loop draws its batches and its noise inside the timed call and takes the data as arguments.
"""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

THIN = 100  # steps per kept draw, in every row of the table


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


# -- the loops of others ---------------------------------------------------------------------

Timed = Callable[[int], Callable[[], Any]]  # steps -> a call that runs them and blocks


def blackjax_scan(work: Workload, chains: int) -> Timed:
    """BlackJAX's sgld as its documentation shows it: a scan over one key per step."""
    import blackjax

    gradient = blackjax.sgmcmc.gradients.grad_estimator(
        work.log_prior, work.log_likelihood, work.num_data
    )
    algorithm = blackjax.sgld(gradient)

    def one_step(data, position, key):
        batch_key, step_key = jax.random.split(key)
        index = jax.random.randint(batch_key, (work.batch_size,), 0, work.num_data)
        batch = jax.tree.map(lambda leaf: leaf[index], data)
        return algorithm.step(step_key, position, batch, work.step_size), None

    def chain(data, position, key, draws):
        def draw(position, key):
            keys = jax.random.split(key, THIN)
            return jax.lax.scan(partial(one_step, data), position, keys)[0], position

        return jax.lax.scan(draw, position, jax.random.split(key, draws))

    return _timed(work, chain, chains)


def naive_scan(work: Workload, chains: int) -> Timed:
    """The loop one writes first: a key in the carry, split at every step."""

    def density(position, batch):
        values = jax.vmap(work.log_likelihood, (None, 0))(position, batch)
        return work.log_prior(position) + work.num_data / work.batch_size * jnp.sum(values)

    def one_step(data, carry, _):
        position, key = carry
        key, batch_key, noise_key = jax.random.split(key, 3)
        index = jax.random.randint(batch_key, (work.batch_size,), 0, work.num_data)
        batch = jax.tree.map(lambda leaf: leaf[index], data)
        gradient = jax.grad(density)(position, batch)
        leaves, treedef = jax.tree.flatten(position)
        keys = treedef.unflatten(list(jax.random.split(noise_key, len(leaves))))
        h = work.step_size
        new = jax.tree.map(
            lambda p, g, k: p + h * g + jnp.sqrt(2 * h) * jax.random.normal(k, p.shape, p.dtype),
            position, gradient, keys,
        )  # fmt: skip
        return (new, key), None

    def chain(data, position, key, draws):
        def draw(carry, _):
            return jax.lax.scan(partial(one_step, data), carry, length=THIN)[0], carry[0]

        return jax.lax.scan(draw, (position, key), length=draws)

    return _timed(work, chain, chains)


def _timed(work: Workload, chain: Callable, chains: int) -> Timed:
    """`chain(data, position, key, draws)`, vmapped for several chains, compiled per length."""
    data = jax.tree.map(jnp.asarray, work.data)
    init = jax.tree.map(jnp.asarray, work.init)
    if chains > 1:
        init = jax.tree.map(lambda leaf: jnp.stack([leaf] * chains), init)
    counter = iter(range(2**31))

    @partial(jax.jit, static_argnames=("draws",))
    def run(data, init, key, draws):
        if chains == 1:
            return chain(data, init, key, draws)
        keys = jax.random.split(key, chains)
        return jax.vmap(lambda p, k: chain(data, p, k, draws))(init, keys)

    def of_length(steps: int) -> Callable[[], Any]:
        draws = max(1, round(steps / THIN))

        def call():
            return jax.block_until_ready(run(data, init, jax.random.key(next(counter)), draws))

        call.steps = draws * THIN
        return call

    return of_length


# -- the limit: C ----------------------------------------------------------------------------


def compile_c(folder: Path) -> tuple[ctypes.CDLL | None, str]:
    """baseline.c compiled into `folder`: (library, command), or (None, the reason)."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), "")
    if not compiler:
        return None, "no C compiler on the path"
    source, target = Path(__file__).with_name("baseline.c"), folder / "baseline.so"
    flags = ["-O3", "-shared", "-fPIC"]
    # never -ffast-math: a shared object built so changes the floating-point mode of the process
    command = [compiler, *flags, str(source), "-o", str(target), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, f"{Path(compiler).name} failed: {done.stderr.strip().splitlines()[-1]}"
    return ctypes.CDLL(str(target)), " ".join([Path(compiler).name, *flags])


def c_loop(library: ctypes.CDLL, work: Workload, *, random_rows: bool = False) -> Timed:
    """W1 or W2 in C, one chain."""
    arrays = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(work.data)]
    pointer = lambda a: a.ctypes.data_as(ctypes.c_void_p)  # noqa: E731
    counter = iter(range(1, 2**31))
    h, n = ctypes.c_float(work.step_size), work.batch_size

    def of_length(steps: int) -> Callable[[], Any]:
        out = np.zeros((-(-steps // THIN), len(work.init)), np.float32)

        def call():
            position = work.init.copy()
            head = (ctypes.c_uint64(next(counter)), ctypes.c_long(steps), THIN)
            data = tuple(pointer(a) for a in arrays)
            if work.name == "W1":
                library.mixture(*head, *data, work.num_data, n, h, pointer(position), pointer(out))
            else:
                library.logistic(
                    *head, *data, work.num_data, len(position), n, int(random_rows), h,
                    pointer(position), pointer(out),
                )  # fmt: skip
            return out

        call.steps = steps
        return call

    return of_length
