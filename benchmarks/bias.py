"""Bias and cost of every sampler: what to choose, in three tables.

    python benchmarks/bias.py [--only gaussian,regression,order] [--chains 1000] [--seed 0]

gaussian    variance on N(0, I), d = 10, with exact gradients, beside BlackJAX's and posteriors'
regression  bias and cost at the tuner's own step on a Poisson regression, N = 5000, d = 5
order       reshuffled against fresh rows at h R = .5, R the number of batches of a pass
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import claims
import posteriors_rows
import sgld
import speed
import workloads
from sgld.results import statistics
from sgld.samplers.stationary import Law
from sgld.testing import stationary_covariance

DIMENSION = 10
ROWS, COLUMNS, CORRELATION = 5000, 5, 0.8


# -- the variance on N(0, I) -----------------------------------------------------------------


def minus_position(q):
    return -q


@partial(jax.jit, static_argnames=("steps", "every"))
def ours(sampler: Any, h: Any, key: Any, start: Any, *, steps: int, every: int) -> Any:
    """E[theta^2] over the last three quarters of a chain."""
    shape = (DIMENSION,) if sampler.num_noises == 1 else (sampler.num_noises, DIMENSION)

    def step(state, key):
        noise = jax.random.normal(key, shape)
        state = sampler.step(state, minus_position, h, noise)
        return state, state.position

    q = jax.lax.scan(step, sampler.init(start), jax.random.split(key, steps))[1]
    return jnp.mean(q[steps // 4 :: every] ** 2)


def theirs(name: str) -> Callable:
    """The same of a BlackJAX sampler at its default arguments."""
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


def resampled_euler(delta: float, alpha: float = 0.01, count: int = 10) -> float:
    """BlackJAX's sghmc on N(0, 1): `count` explicit Euler steps from a fresh momentum."""
    step = np.array([[1.0, delta], [-delta, 1 - alpha * delta]])
    whole, spread = np.eye(2), np.zeros((2, 2))
    for _ in range(count):
        whole, spread = step @ whole, step @ spread @ step.T
        spread[1, 1] += 2 * alpha * delta
    return (whole[0, 1] ** 2 + spread[0, 0]) / (1 - whole[0, 0] ** 2)


def _line(name: str, step: str, exact: float | None, values: np.ndarray) -> None:
    law = f"{exact:9.4f}" if exact is not None else f"{'':>9}"
    mean, error = values.mean(), values.std() / np.sqrt(len(values))
    # an unstable step may end the run before it overflows
    measured = f"{mean:10.4f}{error:8.4f}" if mean < 100 else f"{'diverges':>10}"
    print(f"{name:<34}{step:>11}{law}{measured}", flush=True)


def gaussian(chains: int, seed: int) -> None:
    print(f"Variance on N(0, I), d = {DIMENSION}, exact gradients, where 1 is right. h is the")
    print("coefficient of the gradient, delta = sqrt(h) the integrator's time step; BlackJAX's")
    print(
        "step_size is h in its sgld and delta in its sghmc and sgnht; so is posteriors' lr, which"
    )
    print(f"is h in its sglrw too, and delta in its baoa. Each figure is the mean over {chains}")
    print("chains; `exact` is the stationary law of the steps, `diverges` a variance above 100.\n")
    print(f"{'':<34}{'step_size':>11}{'exact':>9}{'measured':>10}{'+-':>8}")
    keys = jax.random.split(jax.random.key(seed), chains)
    starts = jax.random.normal(jax.random.key(seed + 1), (chains, DIMENSION))

    def show(name: str, step: str, exact: float | None, run: Callable, steps: int) -> None:
        values = np.asarray(jax.vmap(partial(run, steps=steps, every=4))(keys, starts), np.float64)
        _line(name, step, exact, values)

    peers = {name: theirs(name) for name in ("sgld", "sghmc", "sgnht")}
    one = np.eye(1)
    for h in (0.01, 0.05, 0.2):
        exact = 1 / (1 - h / 2)
        show("SGLD(None)", f"h {h:g}", exact, partial(ours, sgld.SGLD(None), h), 4000)
        show("BlackJAX sgld", f"{h:g}", exact, partial(peers["sgld"], h), 4000)
    for delta in (0.05, 0.1, 0.2, 0.4):
        h = delta**2
        steps = max(2000, round(300 / delta))
        for sampler in (sgld.SGHMC(), sgld.BAOA(), sgld.UBU()):
            exact = float(stationary_covariance(sampler, one, h)[0, 0])
            show(repr(sampler), f"delta {delta:g}", exact, partial(ours, sampler, h), steps)
        show("SGNHT()", f"delta {delta:g}", None, partial(ours, sgld.SGNHT(), h), steps)
        exact = resampled_euler(delta)
        exact = exact if np.isfinite(exact) and exact > 0 else None
        show("BlackJAX sghmc", f"{delta:g}", exact, partial(peers["sghmc"], delta), steps // 2)
        show("BlackJAX sgnht", f"{delta:g}", None, partial(peers["sgnht"], delta), 2 * steps)
    try:
        for row in posteriors_rows.rows(chains, DIMENSION, seed):
            _line(*row)
    except ImportError as error:
        print(f"posteriors rows skipped: {error}")


# -- bias and cost at the tuner's step -------------------------------------------------------


def poisson() -> tuple[sgld.Posterior, Any]:
    """Correlated columns, mean count about 1."""
    rng = np.random.default_rng(20240603)
    shared = rng.standard_normal((ROWS, 1))
    X = np.sqrt(CORRELATION) * shared + np.sqrt(1 - CORRELATION) * rng.standard_normal(
        (ROWS, COLUMNS - 1)
    )
    X = np.hstack([np.ones((ROWS, 1)), X]).astype(np.float32)
    beta = np.array([0.0, 0.3, -0.2, 0.1, 0.2])
    y = rng.poisson(np.exp(X @ beta)).astype(np.float32)

    def log_likelihood(b, row):
        x, count = row
        eta = x @ b
        return count * eta - jnp.exp(eta)

    return sgld.Posterior(lambda b: -0.5 * jnp.sum(b**2), log_likelihood), (X, y)


def choices(covariance: np.ndarray) -> Iterator[tuple[str, dict[str, Any], float]]:
    """(name, arguments of sgld.sample, gradients per row of a batch)."""
    cv, plain = sgld.ControlVariates(), sgld.Minibatch()
    diagonal = sgld.Diagonal(np.diag(covariance).astype(np.float32))
    dense = sgld.Dense(covariance.astype(np.float32))
    yield "default", {}, 1
    yield "SGLD, full gradients", dict(gradient=sgld.Full()), 1
    yield "SGLD(None), CV", dict(sampler=sgld.SGLD(None), gradient=cv), 1
    yield "SGLD, CV, diagonal D", dict(gradient=cv, preconditioner=diagonal), 1
    rms = sgld.RMSprop()
    yield (
        "SGLD, Minibatch 100, RMSprop",
        dict(gradient=plain, preconditioner=rms, batch_size=100),
        1,
    )
    yield "SGLD, CV, RMSprop", dict(gradient=cv, preconditioner=rms), 1
    yield "SGLD, CV, D = I", dict(gradient=cv, preconditioner=sgld.Scalar(1.0)), 1
    for order in ("reshuffle", "symmetric", "replacement"):
        yield f"SGLD, Minibatch, {order}", dict(gradient=plain, order=order), 1
    yield "SGLD, SVRG", dict(gradient=sgld.SVRG()), 2
    yield "SGLD, SAGA", dict(gradient=sgld.SAGA()), 2
    yield "BAOA, CV", dict(sampler=sgld.BAOA(), gradient=cv), 1
    yield "UBU, CV", dict(sampler=sgld.UBU(), gradient=cv), 1
    yield "SGHMC, CV", dict(sampler=sgld.SGHMC(), gradient=cv), 1
    yield (
        "SGNHT, CV, h = .01 by hand",
        dict(
            sampler=sgld.SGNHT(), gradient=cv, preconditioner=dense, step_size=0.01, thin=10,
            num_draws=4000, burn_in=1000,
        ),
        1,
    )  # fmt: skip
    for sampler in (sgld.BAOA(), sgld.UBU()):
        for order in ("reshuffle", "symmetric"):
            name = f"{type(sampler).__name__}, Minibatch, {order}"
            yield name, dict(sampler=sampler, gradient=plain, order=order), 1


@cache
def nuts() -> Any:
    posterior, data = poisson()
    init = np.zeros(COLUMNS, np.float32)
    return sgld.reference(posterior, data, init, num_draws=4000, progress=False)


def regression(seed: int) -> None:
    posterior, data = poisson()
    truth = nuts()
    # a step size by hand starts the chains at init: SGNHT does not survive a start far away
    init = np.asarray(sgld.find_map(posterior, data, np.zeros(COLUMNS, np.float32)).position)
    values = np.concatenate(list(np.asarray(truth.flat()[0], np.float64)))
    covariance = np.cov(values.T)
    print(
        f"\nPoisson regression, {ROWS} rows, {COLUMNS} coefficients (columns correlated {CORRELATION})"
    )
    print("at tolerance .05: the step size is the tuner's. sd ratio: farthest from 1 over the")
    print(
        "coefficients, by the verdict (Stein) and against NUTS; mean: largest error, in sd, against"
    )
    print(
        "NUTS. Steps and epochs (N row gradients) per effective draw: of the worst coefficient.\n"
    )
    head = ("batch", "h", "", "Stein", "+-", "NUTS", "mean", "steps", "of x^2", "epochs", "s")
    print(f"{'':<30}{head[0]:>6}{head[1]:>9}" + "".join(f"{x:>8}" for x in head[3:]) + "  verdict")
    for name, arguments, gradients in choices(covariance):
        began = time.perf_counter()
        draws = sgld.sample(posterior, data, init, seed=seed, progress=False, **arguments)
        took = time.perf_counter() - began
        print(_row(name, draws, truth, gradients, took), flush=True)


def _row(name: str, draws: Any, truth: Any, gradients: float, took: float) -> str:
    plan, verdict = draws.info["plan"], draws.verdict
    x, w = draws.flat()[0], draws.weights
    centred = (x - statistics.mean(x, w)) ** 2
    steps = w.size * plan["thin"]
    each, square = (steps / np.min(statistics.ess(v, w)) for v in (x, centred))
    epochs = max(each, square) * plan["batch_size"] * gradients / ROWS
    if plan["gradient"] == "SVRG":  # a pass every pass
        epochs *= 1.5
    against = sgld.compare(draws, truth)
    worst = against.sd_ratio[np.argmax(np.abs(against.sd_ratio - 1))]
    at = int(np.argmax(np.abs(verdict.sd_ratio - 1)))
    return (
        f"{name:<30}{plan['batch_size']:>6}{plan['step_size']:>9.2g}{verdict.sd_ratio[at]:>8.3f}"
        f"{verdict.sd_ratio_se[at]:>8.3f}{worst:>8.3f}{np.abs(against.mean_error).max():>8.3f}"
        f"{each:>8.1f}{square:>8.1f}{epochs:>8.2f}{took:>8.1f}  {verdict.word}"
    )


# -- the order of the data -------------------------------------------------------------------


def order(seed: int) -> None:
    posterior, data = poisson()
    init, batch = np.zeros(COLUMNS, np.float32), 100
    R = ROWS // batch
    h = 0.5 / R
    laplace = sgld.laplace(posterior, data, init)
    covariance = np.cov(np.concatenate(list(np.asarray(laplace.flat()[0], np.float64))).T)
    D = sgld.Dense(covariance.astype(np.float32))
    print(
        f"\nOrder of the data, the same regression: plain minibatches of {batch}, R = {R} a pass,"
    )
    print(
        f"D the posterior covariance, h R = .5 (h = {h:g}). Variance over the posterior's, - 1, mean"
    )
    print("over the coefficients: of the law on the Gaussian at the mode, by Stein's corrected")
    print("moments, and against NUTS. A draw every 49 steps sees all parts of a pass, one every 50")
    print("only the ends.\n")
    print(f"{'':<26}{'law':>8}{'Stein':>9}{'+-':>8}{'NUTS':>9}{'+-':>8}")
    V = _noise(posterior, data, covariance, batch)
    one = np.ones((1, 1))
    for name, thin in (
        ("reshuffle", 49), ("reshuffle", 50), ("symmetric", 49), ("replacement", 49),
    ):  # fmt: skip
        draws = sgld.sample(
            posterior, data, init, step_size=h, preconditioner=D, batch_size=batch, order=name,
            gradient=sgld.Minibatch(), num_draws=4000, thin=thin, burn_in=2000, seed=seed,
            progress=False,
        )  # fmt: skip
        law = Law(np.ones(1), one, V * one, one, 1 if name == "replacement" else R)
        # symmetric sweeps have no closed form here, and the ends of passes another one
        known = name == "replacement" or (name, thin) == ("reshuffle", 49)
        text = f"{law.ratio(h)[0] ** 2 - 1:8.3f}" if known else f"{'':>8}"
        verdict, against = draws.verdict, sgld.compare(draws, nuts())
        figures = "".join(
            f"{np.mean(ratio**2) - 1:9.3f}{2 * np.mean(se):8.3f}"
            for ratio, se in (
                (verdict.sd_ratio, verdict.sd_ratio_se), (against.sd_ratio, against.sd_ratio_se)
            )
        )  # fmt: skip
        print(f"{name + f', a draw in {thin}':<26}{text}{figures}", flush=True)
    work = workloads.logistic(num_data=100_000, d=20, batch_size=100)
    rows = speed.race(
        "order of the data",
        [
            speed.Contender("reshuffle", speed.own_loop(speed.prepare(work, 1))),
            speed.Contender(speed.PEER, speed.own_loop(speed.prepare(work, 1, "replacement"))),
        ],
        10,
        0.4,
    )
    print(
        f"\nSpeed of reshuffled over replacement: {rows[0].ratios[speed.PEER]:.2f} (at least .98)"
    )


def _noise(posterior: Any, data: Any, covariance: np.ndarray, batch: int) -> float:
    """Mean variance of the minibatch gradient in units of the posterior, with replacement."""
    mode = sgld.find_map(posterior, data, np.zeros(COLUMNS, np.float32)).position
    one = lambda x, y: jax.grad(posterior.log_likelihood)(jnp.asarray(mode), (x, y))  # noqa: E731
    g = np.asarray(jax.vmap(one)(*map(jnp.asarray, data)), np.float64)
    return float(np.trace(np.cov(g.T) @ covariance)) / COLUMNS * ROWS**2 / batch


TABLES = ("gaussian", "regression", "order")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(TABLES), help="some of " + ", ".join(TABLES))
    parser.add_argument("--chains", type=int, default=1000, help="of the first table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--store", action="store_true", help="write the tables to results/bias.json"
    )
    args = parser.parse_args()
    wanted = args.only.split(",")
    if unknown := set(wanted) - set(TABLES):
        parser.error(f"--only takes {', '.join(TABLES)}. Got {', '.join(sorted(unknown))}.")
    calls = {"gaussian": partial(gaussian, args.chains), "regression": regression, "order": order}
    for name in wanted:
        with claims.table_printed() as lines:
            calls[name](args.seed)
        if args.store:
            claims.store("bias", {name: lines})


if __name__ == "__main__":
    main()
