"""Compare networks with what else people do with one: at equal gradients, on tables, on images.

    python benchmarks/network_rivals.py --only agreement   six small networks whose posterior is known
    python benchmarks/network_rivals.py --only tables      two tables: log score, coverage
    python benchmarks/network_rivals.py --only images      digits: log score, unknown classes
    ... --splits 10

`sgld.sample` gets nothing but model, data and init; the others get as many gradients of rows as its
sampling, optimisers not counted, has taken, and see the same prior and likelihood:

    SGLD, SGHMC     BlackJAX's: 4 chains from where Adam ends; of five steps the best is kept, against
                    the truth, which no user has, or by the log score at rows held back
    ensemble        where Adam ends from 10 starts (Lakshminarayanan et al. 2017)
    dropout         one network trained with dropout, .1 of hidden units; 300 masks (Gal & Ghahramani 2016)
    last layer      Adam's end, and the Laplace approximation of its last layer (Daxberger et al. 2021)
    mean field      Bayes by Backprop (Blundell et al. 2015), the package's own

agreement   the distance of nets.py, `sd` as a distance from 1; how often the class that is predicted is
            the posterior's. The truth is annealed sequential Monte Carlo.
tables      diabetes (442 x 10), star98 (303 x 20, share of pupils above the median in mathematics; needs
            statsmodels): 10-50-1 tanh, unknown noise, 90% for training; log score in nats a row, share
            of outcomes inside 90% intervals, mean and standard error over splits
images      64-32-8 relu on digits 0 to 7; accuracy and log score of rows held back, and how well the
            entropy of predictions tells 8 and 9, never seen, from them (AUROC)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from scipy.special import logsumexp

import sgld
from harness import command_line, peer, store
from nets import (
    SMALL,
    Net,
    classifier,
    distance,
    mlp,
    net_of,
    normal_prior,
    regression,
    stack_draws,
    truth_of,
)

MEMBERS, CHAINS, KEPT, MASKS, DROPPED, MAX_PASSES, LEARNING_RATE = 10, 4, 200, 300, 0.1, 400, 0.01
STEP_SHARES = (1.0, 0.3, 0.1, 0.03, 0.01)  # of the largest stable step
START_SHARE = 1 / 6  # of the gradients, for where chains begin
SIX = ("absx", "five_rows", "base", "outlier", "deep", "spirals")
TRAIN_SHARE, LEVEL = 0.9, 0.9  # of the rows; of the intervals
OUTCOMES = 10  # drawn for every position
HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))
Scores = dict[str, float]


# -- the rivals ------------------------------------------------------------------------------


class Rivals:
    """The other methods on a network; each yields flat positions [draw, d], equally weighted."""

    def __init__(self, net: Net) -> None:
        self.net, self.density = net, net.density
        self.num_rows, self.start = len(net.data[1]), self.density.start
        self.batch = max(1, min(32, self.num_rows // 5))
        marked = jax.tree.map(
            jnp.zeros_like, eqx.filter(self.density.free(self.start), eqx.is_inexact_array)
        )
        last = lambda tree: jax.tree.leaves(net_of(tree).layers[-1])  # noqa: E731
        marked = eqx.tree_at(last, marked, [jnp.ones_like(leaf) for leaf in last(marked)])
        self.last = np.flatnonzero(np.asarray(ravel_pytree(marked)[0]))

    def fresh(self, key: Any) -> Any:
        """Return a start: weights uniform within 1 / sqrt(fan in), the rest as given."""
        tree = eqx.filter(self.density.free(self.start), eqx.is_inexact_array)
        leaves, form = jax.tree.flatten(tree)
        keys = jax.random.split(key, len(leaves))
        uniform = lambda k, leaf: jax.random.uniform(k, leaf.shape, leaf.dtype, -1.0, 1.0)  # noqa: E731
        drawn = [
            uniform(k, leaf) / jnp.sqrt(leaf.shape[-1]) if leaf.ndim == 2 else leaf
            for k, leaf in zip(keys, leaves, strict=True)
        ]
        return ravel_pytree(jax.tree.unflatten(form, drawn))[0]

    def masked(self, z: Any, key: Any) -> Any:
        """Return z without some inputs of every layer but the first, the others larger for it."""
        tree = eqx.filter(self.density.free(z), eqx.is_inexact_array)
        weights = lambda t: [layer.weight for layer in net_of(t).layers[1:]]  # noqa: E731
        found = []
        for k, weight in zip(jax.random.split(key, len(weights(tree))), weights(tree), strict=True):
            stays = jax.random.bernoulli(k, 1 - DROPPED, weight.shape[-1:])
            found.append(weight * stays / (1 - DROPPED))
        return ravel_pytree(eqx.tree_at(weights, tree, found))[0]

    def rows(self, key: Any) -> Any:
        chosen = jax.random.randint(key, (self.batch,), 0, self.num_rows)
        return jax.tree.map(lambda a: a[chosen], self.density.data)

    def estimate(self, z: Any, rows: Any) -> Any:
        """Return the log density, estimated from some rows."""
        share = self.num_rows / len(rows[1])
        return self.density.log_prior(z) + share * self.density.log_likelihood(z, rows)

    def with_dropout(self, z: Any, rows: Any, key: Any) -> Any:
        """Return the same with a mask for every row."""
        one = lambda row, k: self.density.log_likelihood(  # noqa: E731
            self.masked(z, k), jax.tree.map(lambda a: a[None], row)
        )
        sums = jnp.sum(jax.vmap(one)(rows, jax.random.split(key, len(rows[1]))))
        return self.density.log_prior(z) + self.num_rows / len(rows[1]) * sums

    def adam(self, gradients: float, members: int, objective: Any = None) -> Any:
        """Return where Adam ends [member, d], each with its share of the gradients."""
        steps = int(min(gradients / members, MAX_PASSES * self.num_rows) / self.batch) + 1
        optimiser = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, steps))
        objective = objective or (lambda z, rows, _: self.estimate(z, rows))

        def step(state: Any, key: Any) -> Any:
            z, moments = state
            drawn, more = jax.random.split(key)
            gradient = jax.grad(objective)(z, self.rows(drawn), more)
            change, moments = optimiser.update(-gradient, moments)
            return (optax.apply_updates(z, change), moments), None

        @jax.jit
        def end(key: Any) -> Any:
            first, more = jax.random.split(key)
            z = self.fresh(first)
            return jax.lax.scan(step, (z, optimiser.init(z)), jax.random.split(more, steps))[0][0]

        return jax.vmap(end)(jax.random.split(jax.random.key(0), members))

    def stiffest(self, z: Any) -> float:
        """Return the largest curvature of -log density at z, by power iteration."""
        gradient = jax.grad(lambda q: -self.density(q))
        times = jax.jit(lambda v: jax.jvp(gradient, (z,), (v,))[1])
        v = jax.random.normal(jax.random.key(0), z.shape)
        for _ in range(40):
            v = times(v / jnp.linalg.norm(v))
        return float(jnp.linalg.norm(v))

    def sampled(self, name: str, gradients: float) -> Iterator[Any]:
        """Yield the positions of BlackJAX's sampler at every step size of the grid."""
        starts = self.adam(gradients * START_SHARE, CHAINS)
        algorithm = getattr(blackjax, name)(jax.grad(self.estimate))
        each = CHAINS * self.batch * (10 if name == "sghmc" else 1)  # leapfrog steps
        thin = max(1, int(gradients * (1 - START_SHARE) / each / KEPT / 2))
        largest = 1 / self.stiffest(starts[0])

        @jax.jit
        def run(h: Any, key: Any, start: Any) -> Any:
            def step(state: Any, key: Any) -> Any:
                drawn, noise = jax.random.split(key)
                return algorithm.step(noise, state, self.rows(drawn), h), None

            def some(state: Any, key: Any) -> Any:
                state = jax.lax.scan(step, state, jax.random.split(key, thin))[0]
                return state, state

            keys = jax.random.split(key, 2 * KEPT)
            return jax.lax.scan(some, algorithm.init(start), keys)[1][KEPT:]

        for share in STEP_SHARES:
            h = share * largest if name == "sgld" else np.sqrt(share * largest)
            keys = jax.random.split(jax.random.key(1), CHAINS)
            zs = jax.vmap(partial(run, h))(keys, starts).reshape(-1, starts.shape[1])
            if jnp.isfinite(zs).all():
                yield zs

    def ensemble(self, gradients: float) -> Iterator[Any]:
        yield self.adam(gradients, MEMBERS)

    def dropout(self, gradients: float) -> Iterator[Any]:
        (z,) = self.adam(gradients, 1, self.with_dropout)
        yield jax.vmap(partial(self.masked, z))(jax.random.split(jax.random.key(1), MASKS))

    def last_layer(self, gradients: float) -> Iterator[Any]:
        (z,), last = self.adam(gradients, 1), self.last
        J = -jax.jit(jax.hessian(lambda part: self.density(z.at[last].set(part))))(z[last])
        noise = np.random.default_rng(0).standard_normal((MASKS, len(last)))
        root = np.linalg.cholesky(np.asarray(J, np.float64)).T
        drawn = np.asarray(z[last]) + np.linalg.solve(root, noise.T).T
        yield jax.vmap(lambda part: z.at[last].set(part))(jnp.float32(drawn))

    def mean_field(self, gradients: float) -> Iterator[Any]:
        start = self.density.position(self.adam(gradients * START_SHARE, 1)[0])
        steps = int(min(gradients, MAX_PASSES * self.num_rows * MEMBERS) / self.batch / 2) + 1
        found = sgld.bayes_by_backprop(
            self.net.posterior, self.net.data, start, num_steps=steps, batch_size=self.batch,
            init_sd=0.02, progress=False,
        )  # fmt: skip
        flat = eqx.filter(stack_draws(found.draws(KEPT)), eqx.is_inexact_array)
        yield jax.vmap(lambda tree: ravel_pytree(tree)[0])(flat)

    def methods(self) -> dict[str, Callable[[float], Iterator[Any]]]:
        return {
            "SGLD, BlackJAX": partial(self.sampled, "sgld"), "SGHMC, BlackJAX": partial(self.sampled, "sghmc"),
            "ensemble of 10": self.ensemble, "dropout": self.dropout,
            "last layer, Laplace": self.last_layer, "mean field": self.mean_field,
        }  # fmt: skip


def compared(
    args: argparse.Namespace, task: str, net: Net, score: Callable[[Callable], Scores],
    best: Callable[[Scores], float],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the scores of every method; of several step sizes the best.

    `score` gets a function that maps a function of a position over all positions.
    """

    def row(method: str, found: list[Scores], began: float) -> dict[str, Any]:
        scores = max(found, key=best)
        spent = time.process_time() - began
        text = "  ".join(f"{kind} {value:8.4f}" for kind, value in scores.items())
        print(f"{task:<12} {method:<28} {text}  {spent:6.1f} CPU s", flush=True)
        return {"task": task, "method": method.split(" (")[0], **scores, "cpu": spent}

    limit = {"max_steps": 200, "num_draws": 20} if args.smoke else {}
    began = time.process_time()
    draws = sgld.sample(net.posterior, net.data, net.init, progress=False, **limit)
    setup, positions = draws.plan.setup, stack_draws(draws)
    steps = setup.burn_in + draws.num_draws * setup.thin
    rows = len(net.data[1]) if isinstance(setup.gradient, sgld.Full) else setup.batch_size or 1
    through = lambda f: np.asarray(jax.jit(partial(jax.lax.map, f, batch_size=50))(positions))  # noqa: E731
    yield row(f"sgld.sample ({draws.verdict.word})", [score(through)], began)
    rivals, gradients = Rivals(net), float(draws.num_chains * steps * rows)
    for name, method in rivals.methods().items():
        if args.smoke and name.startswith("SGHMC"):  # the same code as SGLD
            continue
        began, found = time.process_time(), []
        for zs in method(gradients):
            at = lambda f, zs=zs: np.asarray(jax.jit(lambda: jax.lax.map(  # noqa: E731
                lambda z: f(rivals.density.position(z)), zs, batch_size=50))())  # fmt: skip
            found.append(score(at))
        if found:
            yield row(name, found, began)
        else:
            print(f"{task}: {name} did not stay finite at any step")


# -- the tables ------------------------------------------------------------------------------


def agreement(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare predictions with the posterior's on six small networks."""
    rows = []
    for name in SIX[:1] if args.smoke else SIX:
        net = SMALL[name]()
        truth = truth_of(net, *([30] if args.smoke else []))

        def score(through: Callable, net: Net = net, truth: np.ndarray = truth) -> Scores:
            values = through(lambda p: net.predict(p, jnp.asarray(net.compared_rows)))
            found = distance(net, values, truth)
            scores = {"mean": found["mean"], "sd": abs(found["sd_ratio"] - 1)}
            if net.classes:
                top = [np.exp(v).mean(0).argmax(-1) for v in (values, truth)]
                scores["agree"] = float((top[0] == top[1]).mean())
            return scores

        best = lambda found: -found["mean"] - found["sd"] / 10  # noqa: E731
        rows += compared(args, "classes" if net.classes else "means", net, score, best)
    return rows


def load(name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return columns and outcome of a table; None where its library is missing."""
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        return load_diabetes(return_X_y=True)
    datasets = peer("statsmodels.datasets", f"the table {name} of statsmodels")
    if datasets is None:
        return None
    table = datasets.star98.load_pandas()
    above, below = table.endog.to_numpy(float).T
    return table.exog.to_numpy(float), above / (above + below)


def tables(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare log scores and coverage on splits of two tables."""
    rows = []
    for name in ("star98",) if args.smoke else ("diabetes", "star98"):
        table = load(name)
        for split in range(args.splits) if table is not None else ():
            order = np.random.default_rng(split).permutation(len(table[1]))
            train, test = np.split(order, [int(TRAIN_SHARE * len(order))])
            x, y = (((a - a[train].mean(0)) / a[train].std(0)).astype(np.float32) for a in table)
            net = regression(
                name, x[train], y[train], x[test], mlp(x.shape[1], "scalar", 50, 1), normal_prior(),
                log_sd=-0.5,
            )  # fmt: skip
            score = partial(predictive, net, x[test], y[test])
            rows += compared(args, name, net, score, lambda found: found["log score"])
    return rows


def predictive(net: Net, x: np.ndarray, y: np.ndarray, through: Callable) -> Scores:
    """Return log score and coverage at rows held back."""
    one = lambda p: jax.vmap(lambda *row: net.posterior.log_likelihood(p, row))(x, y)  # noqa: E731
    each, means = through(one), through(lambda p: net.predict(p, x)[:, 0])
    sds = np.exp(through(lambda p: p["log_sd"]))[:, None]
    noise = np.random.default_rng(0).standard_normal((OUTCOMES, *means.shape))
    made = (means + sds * noise).reshape(-1, len(y))
    low, high = np.quantile(made, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    score = logsumexp(each, axis=0, b=1 / len(each)) - HALF_LOG_2PI
    coverage = ((low <= y) & (y <= high)).mean()
    return {"log score": float(score.mean()), "coverage": float(coverage)}


def images(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare log scores on digits, and whether unknown digits are recognised."""
    from sklearn.datasets import load_digits
    from sklearn.metrics import roc_auc_score

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = (x[order] / 16).astype(np.float32), y[order]
    x, y, strange = x[y < 8], y[y < 8], x[y >= 8]
    cut = int(0.8 * len(y))
    prior = normal_prior(2.0)
    net = classifier(
        "digits", x[:cut], y[:cut], x[cut:], mlp(64, 8, 32, 1, activation=jax.nn.relu), prior
    )
    both, known = np.concatenate([x[cut:], strange]), y[cut:]

    def score(through: Callable) -> Scores:
        logs = through(lambda p: net.predict(p, both))
        mean = logsumexp(logs, axis=0, b=1 / len(logs))  # [row, class]
        entropy, own = -(np.exp(mean) * mean).sum(-1), mean[: len(known)]
        unknown = np.arange(len(both)) >= len(known)
        return {
            "accuracy": float((own.argmax(-1) == known).mean()),
            "log score": float(own[np.arange(len(known)), known].mean()),
            "auroc": float(roc_auc_score(unknown, entropy)),
        }

    return list(compared(args, "digits", net, score, lambda found: found["log score"]))


def averaged(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a table: means over splits or networks, and their standard errors."""
    kinds = list(dict.fromkeys(k for row in rows for k in row if k not in ("task", "method")))
    lines = [f"{'':<10} {'':<22}" + "".join(f"{kind:>20}" for kind in kinds)]
    for task, method in dict.fromkeys((row["task"], row["method"]) for row in rows):
        own = [row for row in rows if (row["task"], row["method"]) == (task, method)]
        line = f"{task:<10} {method:<22}"
        for kind in kinds:
            values = np.array([row[kind] for row in own if kind in row])
            many = len(values) > 1
            error = f" +- {values.std(ddof=1) / np.sqrt(len(values)):.3f}" if many else ""
            line += f"{f'{values.mean():.3f}{error}' if len(values) else '':>20}"
        lines.append(line.rstrip())
    return lines


TABLES = {"agreement": agreement, "tables": tables, "images": images}


def main() -> None:
    args = command_line(__doc__, TABLES, {"--splits": {"type": int, "default": 10}})
    for name in ("agreement", "tables") if args.smoke else args.only:
        lines = averaged(TABLES[name](args))
        print("\n".join(lines))
        if args.store:
            store("network_rivals", {name: lines})


if __name__ == "__main__":
    main()
