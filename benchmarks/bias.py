"""Compare bias and cost of every sampler in three tables.

    python benchmarks/bias.py [--only gaussian,regression,order] [--chains 1000] [--seed 0]

gaussian    variance on N(0, I), d = 10, with exact gradients, compared with BlackJAX and posteriors
regression  bias and cost at the tuner's own step on a Poisson regression, N = 5000, d = 5
order       reshuffled against independent rows at h R = .5, R the number of batches of a pass
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size

import sgld
import workloads
from harness import Table, command_line, paired_rounds, peer, store, timed

DIMENSION = 10
STEPS, DELTAS = (0.01, 0.05, 0.2), (0.05, 0.1, 0.2, 0.4)
ROWS, COLUMNS, CORRELATION = 5000, 5, 0.8
FRICTION = 0.01  # of BlackJAX's and posteriors' SGHMC, per unit of time
DIVERGED = 100.0  # a variance above this


# -- the variance on N(0, I) -----------------------------------------------------------------


@partial(jax.jit, static_argnames=("steps", "every"))
def ours(sampler: Any, h: Any, key: Any, start: Any, *, steps: int, every: int) -> Any:
    """Return E[theta^2] over the last three quarters of a chain."""
    shape = (DIMENSION,) if sampler.num_noises == 1 else (sampler.num_noises, DIMENSION)

    def step(state, key):
        state = sampler.step(state, lambda q: -q, h, jax.random.normal(key, shape))
        return state, state.position

    q = jax.lax.scan(step, sampler.init(start), jax.random.split(key, steps))[1]
    return jnp.mean(q[steps // 4 :: every] ** 2)


def theirs(name: str) -> Callable:
    """Return the same function for a BlackJAX sampler at its default arguments."""
    import blackjax

    algorithm = getattr(blackjax, name)(lambda q, _: -q)

    @partial(jax.jit, static_argnames=("steps", "every"))
    def run(h: Any, key: Any, start: Any, *, steps: int, every: int) -> Any:
        first, key = jax.random.split(key)
        state = algorithm.init(start, first) if name == "sgnht" else algorithm.init(start)

        def step(state, key):
            state = algorithm.step(key, state, None, h)
            return state, state.position if name == "sgnht" else state

        q = jax.lax.scan(step, state, jax.random.split(key, steps))[1]
        return jnp.mean(q[steps // 4 :: every] ** 2)

    return run


def euler_variance(delta: float, resampled_after: int = 0) -> float | None:
    """Return the stationary variance of explicit Euler SGHMC on N(0, 1); None if unstable.

    q' = q + delta m, m' = m - delta q - friction delta m + N(0, 2 friction delta). BlackJAX draws
    the momentum again after 10 steps; posteriors never does, and is stable for delta < friction.
    """
    A = np.array([[1.0, delta], [-delta, 1 - FRICTION * delta]])
    Q = np.diag([0.0, 2 * FRICTION * delta])
    if not resampled_after:
        if np.max(np.abs(np.linalg.eigvals(A))) >= 1:
            return None
        return float(np.linalg.solve(np.eye(4) - np.kron(A, A), Q.ravel())[0])
    whole, spread = np.eye(2), np.zeros((2, 2))
    for _ in range(resampled_after):
        whole, spread = A @ whole, A @ spread @ A.T + Q
    variance = (whole[0, 1] ** 2 + spread[0, 0]) / (1 - whole[0, 0] ** 2)
    return variance if np.isfinite(variance) and variance > 0 else None


def posteriors_moments(
    name: str, lr: float, starts: np.ndarray, steps: int, every: int = 4
) -> np.ndarray:
    """Return E[theta^2] of each chain [chain] of a sampler of posteriors at its default arguments."""
    import torch
    from posteriors import sgmcmc

    density = lambda q, _: (-0.5 * torch.sum(q**2), torch.zeros(0))  # noqa: E731
    sampler = getattr(sgmcmc, name).build(density, lr=lr)
    # vmap, and not one position of all chains: sgnht has one thermostat for a whole position
    state = torch.func.vmap(sampler.init, randomness="different")(torch.from_numpy(starts))
    step = torch.func.vmap(lambda s: sampler.update(s, None)[0], randomness="different")
    moments = []
    for i in range(steps):
        state = step(state)
        if i >= steps // 4 and i % every == 0:
            moments.append(torch.mean(state.params**2, dim=1).numpy())
    return np.mean(moments, axis=0)


def posteriors_rows(
    starts: np.ndarray, steps: tuple, deltas: tuple, share: float
) -> Iterator[tuple]:
    """Yield (name, step size, exact variance, values); without posteriors say so.

    Its lr is h in sgld and sglrw, and delta = sqrt(h) in sghmc, baoa and sgnht.
    """
    with warnings.catch_warnings():
        # its state classes share defaults, of which newer versions of tensordict warn at length
        warnings.simplefilter("ignore", FutureWarning)
        if peer("posteriors", "rows of posteriors") is None:
            return
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)  # positions are small
    for h in steps:
        for name, exact in (("sgld", 1 / (1 - h / 2)), ("sglrw", None)):
            yield name, h, exact, posteriors_moments(name, h, starts, round(4000 * share))
    for delta in deltas:
        # energies forget their start in 1 / friction = 100 units of time
        length = round(12 / FRICTION / delta * share)
        exact = {"sghmc": euler_variance(delta), "baoa": 1.0, "sgnht": None}
        for name, variance in exact.items():
            count = length // 4 if name == "sghmc" else length
            yield name, delta, variance, posteriors_moments(name, delta, starts, count)


def gaussian(args: argparse.Namespace) -> list[str]:
    """Print the variances of all samplers."""
    chains, share = (4, 0.02) if args.smoke else (args.chains, 1.0)
    step_sizes, deltas = (STEPS[:1], DELTAS[:1]) if args.smoke else (STEPS, DELTAS)
    print(f"""
Variance on N(0, I), d = {DIMENSION}, exact gradients; 1 is right. h multiplies the gradient, delta = sqrt(h)
is the time step; BlackJAX's step_size is h in sgld and delta in sghmc and sgnht. `exact`: of the
stationary distribution; `measured`: mean over {chains} chains; `diverges`: above {DIVERGED:g}.
""")
    table = Table(34, {"step_size": "", "exact": ".4f", "measured": ".4f", "+-": ".4f"})
    keys = jax.random.split(jax.random.key(args.seed), chains)
    starts = jax.random.normal(jax.random.key(args.seed + 1), (chains, DIMENSION))

    def line(name: str, step: str, exact: float | None, values: np.ndarray) -> None:
        mean, error = float(values.mean()), float(values.std() / np.sqrt(len(values)))
        found = (mean, error) if mean < DIVERGED else ("diverges", "")
        table.row(name, step, "" if exact is None else exact, *found)

    def show(name: str, step: str, exact: float | None, run: Callable, steps: float) -> None:
        run = partial(run, steps=max(8, round(steps * share)), every=4)
        line(name, step, exact, np.asarray(jax.vmap(run)(keys, starts), np.float64))

    peers = {name: theirs(name) for name in ("sgld", "sghmc", "sgnht")}
    for h in step_sizes:
        exact = 1 / (1 - h / 2)
        show("SGLD(None)", f"h {h:g}", exact, partial(ours, sgld.SGLD(None), h), 4000)
        show("BlackJAX sgld", f"{h:g}", exact, partial(peers["sgld"], h), 4000)
    for delta in deltas:
        h, steps = delta**2, max(2000, round(300 / delta))
        for sampler in (sgld.SGHMC(), sgld.BAOA(), sgld.UBU()):
            exact = float(sgld.testing.stationary_covariance(sampler, np.eye(1), h)[0, 0])
            show(repr(sampler), f"delta {delta:g}", exact, partial(ours, sampler, h), steps)
        show("SGNHT()", f"delta {delta:g}", None, partial(ours, sgld.SGNHT(), h), steps)
        exact = euler_variance(delta, resampled_after=10)
        show("BlackJAX sghmc", f"{delta:g}", exact, partial(peers["sghmc"], delta), steps / 2)
        show("BlackJAX sgnht", f"{delta:g}", None, partial(peers["sgnht"], delta), 2 * steps)
    for name, step, exact, values in posteriors_rows(np.asarray(starts), step_sizes, deltas, share):
        line(f"posteriors {name}", f"{step:g}", exact, values)
    return table.lines


# -- bias and cost at the tuner's step -------------------------------------------------------


def poisson() -> tuple[sgld.Posterior, Any]:
    """Return a regression with correlated columns and a mean count of about 1."""
    rng = np.random.default_rng(20240603)
    shared = rng.standard_normal((ROWS, 1))
    own = rng.standard_normal((ROWS, COLUMNS - 1))
    X = np.sqrt(CORRELATION) * shared + np.sqrt(1 - CORRELATION) * own
    X = np.hstack([np.ones((ROWS, 1)), X]).astype(np.float32)
    beta = np.array([0.0, 0.3, -0.2, 0.1, 0.2])
    y = rng.poisson(np.exp(X @ beta)).astype(np.float32)

    def log_likelihood(b, row):
        x, count = row
        return count * (x @ b) - jnp.exp(x @ b)

    return sgld.Posterior(lambda b: -0.5 * jnp.sum(b**2), log_likelihood), (X, y)


def choices(covariance: np.ndarray) -> dict[str, dict[str, Any]]:
    """Return the arguments of `sgld.sample` of every row of the table."""
    cv, plain = {"gradient": sgld.ControlVariates()}, {"gradient": sgld.Minibatch()}
    diagonal = sgld.Diagonal(np.diag(covariance).astype(np.float32))
    dense = sgld.Dense(covariance.astype(np.float32))
    rms = {"preconditioner": sgld.RMSprop()}
    found: dict[str, dict[str, Any]] = {
        "default": {},
        "SGLD, full gradients": {"gradient": sgld.Full()},
        "SGLD(None), CV": {"sampler": sgld.SGLD(None), **cv},
        "SGLD, CV, diagonal D": {"preconditioner": diagonal, **cv},
        "SGLD, Minibatch 100, RMSprop": {"batch_size": 100, **plain, **rms},
        "SGLD, CV, RMSprop": {**cv, **rms},
        "SGLD, CV, D = I": {"preconditioner": sgld.Scalar(1.0), **cv},
    }
    for order in ("reshuffle", "symmetric", "replacement"):
        found[f"SGLD, Minibatch, {order}"] = {"order": order, **plain}
    for gradient in (sgld.SVRG(), sgld.SAGA()):
        found[f"SGLD, {type(gradient).__name__}"] = {"gradient": gradient}
    for sampler in (sgld.BAOA(), sgld.UBU(), sgld.SGHMC()):
        found[f"{type(sampler).__name__}, CV"] = {"sampler": sampler, **cv}
    found["SGNHT, CV, h = .01"] = {
        "sampler": sgld.SGNHT(), "preconditioner": dense, "step_size": 0.01, "thin": 10,
        "num_draws": 4000, "burn_in": 1000, **cv,
    }  # fmt: skip
    for sampler in (sgld.BAOA(), sgld.UBU()):
        for order in ("reshuffle", "symmetric"):
            name = f"{type(sampler).__name__}, Minibatch, {order}"
            found[name] = {"sampler": sampler, "order": order, **plain}
    return found


@cache
def nuts(num_draws: int = 4000) -> Any:
    posterior, data = poisson()
    init = np.zeros(COLUMNS, np.float32)
    return sgld.reference(
        posterior, data, init, num_warmup=num_draws // 4, num_draws=num_draws, progress=False
    )


def steps_per_effective_draw(draws: sgld.Draws) -> tuple[float, float]:
    """Return steps per effective draw of the worst coefficient, and of its worst square."""
    x = np.asarray(draws.flat()[0], np.float64)
    steps = x.shape[0] * x.shape[1] * draws.info["plan"]["thin"]
    sizes = (effective_sample_size(v) for v in (x, (x - x.mean((0, 1))) ** 2))
    first, second = (float(steps / np.min(size)) for size in sizes)
    return first, second


def regression(args: argparse.Namespace) -> list[str]:
    """Print bias and cost of every choice on the Poisson regression."""
    posterior, data = poisson()
    truth = nuts(100 if args.smoke else 4000)
    # a given step size starts the chains at init: SGNHT does not survive a start far away
    init = np.asarray(sgld.find_map(posterior, data, np.zeros(COLUMNS, np.float32)).position)
    covariance = np.cov(np.concatenate(list(np.asarray(truth.flat()[0], np.float64))).T)
    print(f"""
Poisson regression, {ROWS} rows, {COLUMNS} coefficients (columns correlated {CORRELATION}), tolerance .05. Stein, NUTS:
the sd ratio farthest from 1, by the verdict and against NUTS; mean: largest error, in sd. Steps and
epochs (N row gradients) per effective draw: of the worst coefficient.
""")
    columns = {
        "batch": "d", "h": ".2g", "Stein": ".3f", "+-": ".3f", "NUTS": ".3f", "mean": ".3f",
        "steps": ".1f", "of x^2": ".1f", "epochs": ".2f", "s": ".1f",
    }  # fmt: skip
    table = Table(30, columns)
    every = choices(covariance)
    for name in list(every)[: 1 if args.smoke else None]:
        draws, took, _ = timed(lambda: sgld.sample(
            posterior, data, init, seed=args.seed, progress=False, **every[name]  # noqa: B023
        ))  # fmt: skip
        plan, verdict, against = draws.info["plan"], draws.verdict, sgld.compare(draws, truth)
        each, square = steps_per_effective_draw(draws)
        # gradients of a row in the batch; SVRG takes a pass besides every other pass
        gradients = {"SVRG": 3, "SAGA": 2}.get(plan["gradient"], 1)
        worst = against.sd_ratio[np.argmax(np.abs(against.sd_ratio - 1))]
        at = int(np.argmax(np.abs(verdict.sd_ratio - 1)))
        table.row(
            name, plan["batch_size"], plan["step_size"], verdict.sd_ratio[at], verdict.sd_ratio_se[at],
            worst, np.abs(against.mean_error).max(), each, square,
            max(each, square) * plan["batch_size"] * gradients / ROWS, took, note=verdict.word,
        )  # fmt: skip
    return table.lines


# -- the order of the data -------------------------------------------------------------------


def order_variance(h: float, noise: float, R: int) -> float:
    """Return the stationary variance on N(0, 1) of SGLD steps over reshuffled batches.

    `noise` is the variance of the gradient of an independent batch. The errors of the R batches of
    a pass sum to zero; R = 1 stands for independent batches.
    """
    a = 1 - h
    E = noise * (np.eye(R) - (np.ones((R, R)) / R if R > 1 else 0))
    k = np.arange(1, R + 1)
    weights = h * np.tril(a ** np.maximum(k[:, None] - k, 0))
    own = np.einsum("ki,ij,kj->k", weights, E, weights) + 2 * h * (1 - a ** (2 * k)) / (1 - a**2)
    start = own[-1] / (1 - a ** (2 * R))
    return float(np.mean(start * a ** (2 * k) + own))


def batch_noise(posterior: Any, data: Any, covariance: np.ndarray, batch: int) -> float:
    """Return the mean variance of the minibatch gradient in units of the posterior."""
    mode = sgld.find_map(posterior, data, np.zeros(COLUMNS, np.float32)).position
    V = sgld.gradient_statistics(posterior, data, mode).covariance
    return float(np.trace(V @ covariance)) / COLUMNS * ROWS**2 / batch


def order(args: argparse.Namespace) -> list[str]:
    """Print the variance by data order, and the speed of two orders."""
    posterior, data = poisson()
    init, batch = np.zeros(COLUMNS, np.float32), 100
    R = ROWS // batch
    h = 0.5 / R
    draws, burn_in, truth = (50, 10, nuts(100)) if args.smoke else (4000, 2000, nuts())
    laplace = sgld.laplace(posterior, data, init)
    covariance = np.cov(np.concatenate(list(np.asarray(laplace.flat()[0], np.float64))).T)
    D = sgld.Dense(covariance.astype(np.float32))
    print(f"""
Order of the data, the same regression: plain minibatches of {batch}, R = {R} a pass, D the posterior
covariance, h R = .5 (h = {h:g}). Variance over the posterior's, - 1, mean over the coefficients: of the
stationary distribution on the Gaussian at the mode, by Stein's corrected moments and against NUTS.
A draw every 49 steps sees all parts of a pass, one every 50 only the ends.
""")
    columns = {"exact": ".3f", "Stein": ".3f", "+-": ".3f", "NUTS": ".3f", "+- ": ".3f"}
    table, V = Table(26, columns), batch_noise(posterior, data, covariance, batch)
    runs = (("reshuffle", 49), ("reshuffle", 50), ("symmetric", 49), ("replacement", 49))
    # symmetric sweeps and the ends of passes have no closed form here
    exact = {runs[0]: order_variance(h, V, R) - 1, runs[3]: order_variance(h, V, 1) - 1}
    for name, thin in runs[: 1 if args.smoke else None]:
        found = sgld.sample(
            posterior, data, init, step_size=h, preconditioner=D, batch_size=batch, order=name,
            gradient=sgld.Minibatch(), num_draws=draws, thin=thin, burn_in=burn_in, seed=args.seed,
            progress=False,
        )  # fmt: skip
        cells = [exact.get((name, thin), "")]
        for by in (found.verdict, sgld.compare(found, truth)):
            cells += [np.mean(by.sd_ratio**2) - 1, 2 * np.mean(by.sd_ratio_se)]
        table.row(f"{name}, a draw in {thin}", *cells)
    work = workloads.logistic(num_data=2000 if args.smoke else 100_000, d=20, batch_size=100)
    steps = 200 if args.smoke else 20_000
    loops = {name: workloads.own_loop(work, 1, order=name) for name in ("reshuffle", "replacement")}
    took = paired_rounds(
        {name: partial(loop, steps) for name, loop in loops.items()}, 1 if args.smoke else 10
    )
    ratio = np.median(took["replacement"] / took["reshuffle"])
    print(f"\nSpeed of reshuffled over replacement: {ratio:.2f} (at least .98)")
    return table.lines


TABLES = {"gaussian": gaussian, "regression": regression, "order": order}


def main() -> None:
    options = {
        "--chains": {"type": int, "default": 1000, "help": "of the first table"},
        "--seed": {"type": int, "default": 0},
    }
    args = command_line(__doc__, TABLES, options)
    for name in args.only:
        lines = TABLES[name](args)
        if args.store:
            store("bias", {name: lines})


if __name__ == "__main__":
    main()
