"""Predictive scores of sets of draws of a network, and a Kronecker preconditioner.

`classes` averages probabilities over draws and splits their entropy,

    p(y | x) = sum_s w_s p(y | x, theta_s) / sum_s w_s
    H[p(y | x)] = sum_s w_s H[p(y | x, theta_s)] + mutual information        (nats)
       total    =           aleatoric            +      epistemic

(Depeweg et al. 2018, eq. 3), as `sgld.torch.Ensemble.predict_classes` does. `scores` compares sets of
draws. `held_back` tests the prior on held-out rows by

    log score of a row = log mean over draws of p(y | x, theta)

of the posterior's draws, and of an ensemble of optimised networks: the ends of Adam from independent
starts, with a hundredth of the prior's weight (a normal prior ten times as wide). A posterior whose
prior and likelihood generated the data predicts at least as well. `kronecker` builds a
preconditioner from a posterior and a position.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import special
from scipy.special import logsumexp

from ..core.text import columns
from ..core.validation import check_seed, positive, whole_number
from ..diagnostics.function_space.predictions import check_labels
from ..errors import SGLDWarning, UsageError
from ..model.modules import as_module
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Request, Target
from ..results.draws import Draws
from ..results.statistics import calling
from ..samplers.preconditioners.kronecker import Kronecker
from .tuning.network import optimiser_ends, prior_curvature
from .tuning.network_rules import MAX_FISHER_ROWS
from .tuning.parts import estimate_factors

# -- entropy -------------------------------------------------------------------------------


PyTree = Any
LOGITS_AT_ONCE = 2**21  # logits held at a time, over draws


@dataclass(frozen=True, repr=False)
class Classes:
    """Predictive probabilities [row, class] and their entropies [row], in nats.

    entropy = aleatoric + epistemic: the mean uncertainty of a single network, plus the disagreement
    between networks.

    Example:
      >>> import numpy as np, sgld
      >>> draws = sgld.Draws.of({"b": np.array([[-3.0, 3.0]])})  # both certain, of opposite classes
      >>> found = sgld.networks.classes(draws, lambda p, x: p["b"] * x, np.ones((1, 1)))
      >>> found.entropy.round(2), found.aleatoric.round(2), found.epistemic.round(2)
      (array([0.69]), array([0.19]), array([0.5]))
      >>> found
      1 row, 2 classes; entropy 0.693 nats on average: aleatoric 0.191, epistemic 0.502
    """

    probabilities: Float[np.ndarray, "row class"]
    entropy: Float[np.ndarray, " row"]
    aleatoric: Float[np.ndarray, " row"]
    epistemic: Float[np.ndarray, " row"]

    def __repr__(self) -> str:
        rows, count = self.probabilities.shape
        head = f"{rows:,} row{'s' * (rows != 1)}, {count:,} classes"
        if not rows:
            return head
        parts = ", ".join(
            f"{name} {getattr(self, name).mean():.3f}" for name in ("aleatoric", "epistemic")
        )
        return f"{head}; entropy {self.entropy.mean():.3f} nats on average: {parts}"


def classes(
    draws: Draws, f: Callable[[PyTree, PyTree], Any], x: PyTree, *, batch_size: int | None = None
) -> Classes:
    """Compute mean probabilities of the classes and the two parts of their entropy.

    The draws' weights are used; chains that failed are left out.

    Args:
      draws: of `sgld.sample` and the like.
      f: `f(position, x) -> logits [row, class]`; one column is the logit of the second of two
        classes. A module given as `init` comes back as itself.
      x: a pytree of arrays, rows first.
      batch_size: rows at once; None: all. Draws are taken a few at a time in any case.

    Raises: UsageError for other shapes, for probabilities, and for logits that are not finite; RunError of a run
    that kept moments alone.

    Example:
      >>> import numpy as np, sgld
      >>> draws = sgld.Draws.of({"b": np.array([[0.0, 2.0]])})
      >>> found = sgld.networks.classes(draws, lambda p, x: p["b"] * x, np.ones((1, 1)))
      >>> found.probabilities.round(4)
      array([[0.3096, 0.6904]])
      >>> found.entropy.round(4), (found.aleatoric + found.epistemic).round(4)
      (array([0.6188]), array([0.6188]))
    """
    if not isinstance(draws, Draws):
        raise UsageError(f"draws must be Draws. Got {type(draws).__name__}.")
    draws.check_kept()
    if batch_size is not None:
        positive("batch_size", batch_size)
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(x)]
    if len({shape[:1] for shape in shapes}) != 1 or () in shapes:
        raise UsageError(f"x must hold arrays with rows along the first axis. Got shapes {shapes}.")
    rows = shapes[0][0]
    size = batch_size or max(rows, 1)
    run = jax.jit(jax.vmap(partial(_one, f), (0, None)))
    parts = [
        _parts(draws, run, jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i : i + size]), x))
        for i in range(0, max(rows, 1), size)
    ]
    mean, aleatoric = (np.concatenate(part) for part in zip(*parts, strict=True))
    entropy = special.entr(mean).sum(-1)
    return Classes(mean, entropy, aleatoric, entropy - aleatoric)


def _parts(draws: Draws, run: Callable, x: PyTree) -> tuple[np.ndarray, np.ndarray]:
    """Compute weighted sums over draws of probabilities [row, class] and of entropies [row]."""
    mean: Any = 0.0
    aleatoric: Any = 0.0
    for weights, logits in _logits(draws, run, x):
        log_p = special.log_softmax(logits, axis=-1)
        p = np.exp(log_p)
        mean = mean + np.einsum("s,src->rc", weights, p)
        aleatoric = aleatoric + np.einsum("s,src->r", weights, special.entr(p))
    return mean, aleatoric


def _logits(draws: Draws, run: Callable, x: PyTree) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield weights [draw] and logits [draw, row, class] in float64, some draws at a time."""
    weights = draws.weights.ravel()
    healthy = draws.healthy
    flat = jax.tree.map(
        lambda leaf: np.asarray(leaf)[healthy].reshape(weights.size, *leaf.shape[2:]),
        draws.position,
    )
    rows = np.shape(jax.tree.leaves(x)[0])[0]
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf[:1]), flat)
    with calling(draws, x):
        out = jax.eval_shape(run, one, x)
    if len(getattr(out, "shape", ())) != 3 or out.shape[1] != rows:
        shapes = [part.shape[1:] for part in jax.tree.leaves(out)]
        raise UsageError(
            f"f must return logits [row, class] for {rows} rows. Got {', '.join(map(str, shapes))}; "
            "vmap a network of one row."
        )
    count = int(np.clip(LOGITS_AT_ONCE // max(1, out.size), 1, weights.size))
    for i in range(0, weights.size, count):
        # the last piece is filled up with the last draw, so that there is one compilation
        at = np.minimum(np.arange(i, i + count), weights.size - 1)
        found = run(jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[at]), flat), x)
        logits = np.asarray(found, np.float64)[: weights.size - i]
        if not np.isfinite(logits).all():
            bad = int(np.argwhere(~np.isfinite(logits))[0, 1])
            raise UsageError(f"f gives logits that are not finite for row {bad}; look at that row.")
        if i == 0 and _are_probabilities(logits):
            raise UsageError(
                "f must return logits, and its outputs are probabilities: none is negative, and each row's add up to 1; "
                "leave the softmax out, or take its logarithm."
            )
        if logits.shape[-1] == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=-1)
        yield weights[i : i + count], logits


def _are_probabilities(outputs: np.ndarray) -> bool:
    if outputs.shape[-1] < 2 or not outputs.size:
        return False
    return bool(outputs.min() >= 0 and np.abs(outputs.sum(axis=-1) - 1).max() < 1e-3)


def _one(f: Callable, position: PyTree, x: PyTree) -> Any:
    return f(as_module(position), x)


# -- scoring -------------------------------------------------------------------------------


SCORE_COLUMNS = ("accuracy", "log_score", "log_score_se", "brier", "ece")
SCORE_HEADS = ("accuracy", "log score", "+-", "Brier", "ECE")


@dataclass(frozen=True)
class Scores:
    """One row per set of draws.

    Attributes:
      names, targets, verdicts: of each set: its name, the law that its draws follow, and what
        the run said of itself.
      accuracy: share of rows whose most probable class is right.
      log_score: mean over rows of log p(y), in nats: the higher the better.
      log_score_se: its standard error over rows.
      brier: mean over rows of sum_k (p_k - [y = k])^2: from 0, the best, to 2.
      ece: expected calibration error: sum over bins of share of rows x
        |accuracy - mean probability of the class named|, in bins of equal width of the latter.

    Example:
      >>> import numpy as np, sgld
      >>> draws = sgld.Draws.of({"b": np.ones((4, 100))})
      >>> x = np.array([[-2.0], [2.0]])
      >>> found = sgld.networks.scores({"one": draws}, lambda p, x: p["b"] * x, x, [0, 1])
      >>> found.accuracy, round(found.to_dict()["one"]["log_score"], 3)
      (array([1.]), -0.127)
    """

    names: tuple[str, ...]
    targets: tuple[str, ...]
    verdicts: tuple[str, ...]
    accuracy: Float[np.ndarray, " m"]
    log_score: Float[np.ndarray, " m"]
    log_score_se: Float[np.ndarray, " m"]
    brier: Float[np.ndarray, " m"]
    ece: Float[np.ndarray, " m"]

    def to_dict(self) -> dict[str, Any]:
        """Return {name: {"target", "verdict", "accuracy", "log_score", ...}}."""
        return {
            name: {
                "target": self.targets[i],
                "verdict": self.verdicts[i],
                **{column: float(getattr(self, column)[i]) for column in SCORE_COLUMNS},
            }
            for i, name in enumerate(self.names)
        }

    def __str__(self) -> str:
        head = ["", "target", *SCORE_HEADS, "verdict"]
        body = [
            [
                name, self.targets[i],
                *(f"{getattr(self, column)[i]:.4f}" for column in SCORE_COLUMNS),
                self.verdicts[i],
            ]
            for i, name in enumerate(self.names)
        ]  # fmt: skip
        return "\n".join(columns([head, *body], left=(0, 1, len(head) - 1)))

    def __repr__(self) -> str:
        return str(self)


def scores(
    sets: Mapping[str, Draws], f: Callable[[PyTree, PyTree], Any], x: PyTree, y: Any, *,
    bins: int = 15, batch_size: int | None = None,
) -> Scores:  # fmt: skip
    """Score how well sets of draws predict classes, each row labelled with its target distribution.

    Draws at T < 1 often predict better than the posterior (Wenzel et al. 2020): they follow
    p(theta | data)^(1/T), which is not the posterior, so no interval of theirs is a credible
    interval. The table says which is which.

    Args:
      sets: {name: draws}, of the same network.
      f: as for `classes`.
      x: as for `classes`.
      y: the classes [row], whole numbers from 0.
      bins: number of bins of the calibration error.
      batch_size: as for `classes`.

    Raises: UsageError for y of another length, kind or range.

    Example:
      >>> import numpy as np, sgld
      >>> warm = np.random.default_rng(0).normal(1.0, 0.5, (4, 250))
      >>> cold = sgld.Draws.of({"b": 1 + (warm - 1) / 10}, temperature=np.full((4, 250), 0.01))
      >>> x = np.array([[-2.0], [-1.0], [1.0], [2.0]])
      >>> sets = {"warm": sgld.Draws.of({"b": warm}), "cold": cold}
      >>> print(sgld.networks.scores(sets, lambda p, x: p["b"] * x, x, [0, 1, 1, 1]))
            target                             accuracy  log score      +-   Brier     ECE  verdict
      warm  posterior, T = 1                     0.7500    -0.4851  0.2612  0.3222  0.1878  not judged
      cold  cold, T = 0.01: not the posterior    0.7500    -0.4703  0.2837  0.3175  0.1753  not judged
    """
    if not isinstance(sets, Mapping) or not sets:
        raise UsageError("sets must be a dict {name: draws} with at least one entry.")
    whole_number("bins", bins)
    found = {}
    for name, draws in sets.items():
        if not isinstance(draws, Draws):
            raise UsageError(f"{name!r} must be Draws. Got {type(draws).__name__}.")
        p = classes(draws, f, x, batch_size=batch_size).probabilities
        found[str(name)] = _scores(p, _labels(y, *p.shape), bins)
    columns = {
        column: np.array([row[column] for row in found.values()]) for column in SCORE_COLUMNS
    }
    return Scores(
        tuple(found),
        tuple(map(_target, sets.values())),
        tuple(d.verdict.word if d.verdict.judged else "not judged" for d in sets.values()),
        **columns,
    )


def _labels(y: Any, rows: int, count: int) -> Int[np.ndarray, " row"]:
    labels = np.asarray(y)
    if labels.shape != (rows,):
        raise UsageError(f"y must be one class per row, [{rows}]. Got shape {labels.shape}.")
    if not rows:
        raise UsageError("x has no rows, of which there is no score; give one row at least.")
    if not np.issubdtype(labels.dtype, np.integer):
        raise UsageError(f"y must be whole numbers from 0. Got dtype {labels.dtype}.")
    bad = (labels < 0) | (labels >= count)
    if bad.any():
        row = int(np.argmax(bad))
        raise UsageError(
            f"y must lie between 0 and {count - 1}, the classes that f has. Got {labels[row]} in "
            f"row {row}."
        )
    return labels


def _scores(
    p: Float[np.ndarray, "row class"], y: Int[np.ndarray, " row"], bins: int
) -> dict[str, float]:
    each = np.arange(len(y))
    with np.errstate(divide="ignore"):
        log_p = np.log(p[each, y])
    named, sure = p.argmax(1), p.max(1)
    right = (named == y).astype(float)
    hit = np.zeros_like(p)
    hit[each, y] = 1
    place = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = np.bincount(place, right - sure, bins)
    spread = log_p.std(ddof=1) if len(y) > 1 and np.isfinite(log_p).all() else np.nan
    return {
        "accuracy": right.mean(),
        "log_score": log_p.mean(),
        "log_score_se": spread / np.sqrt(len(y)),
        "brier": ((p - hit) ** 2).sum(1).mean(),
        "ece": np.abs(gaps).sum() / len(y),
    }


def _target(draws: Draws) -> str:
    """Describe the target distribution of the draws in a few words."""
    info = draws.info
    if info.get("target") == "sandwich":
        return "sandwich: not the posterior"
    method = {
        "laplace": "Laplace approximation",
        "bayes_by_backprop": "variational approximation",
    }.get(info.get("method", ""))
    temperature = np.unique(draws.temperature[draws.healthy])
    if temperature.size != 1:
        return "temperature changes: not the posterior"
    if temperature[0] == 1:
        return method or "posterior, T = 1"
    kind = "cold" if temperature[0] < 1 else "tempered"
    return f"{kind}, T = {temperature[0]:g}: not the posterior"


# -- held back -----------------------------------------------------------------------------


TRIED_PRIOR_SHARE = 0.01  # of the prior, that optimisers see
MIN_REPORTED_SES = 3.0  # standard errors beyond which it is said


@dataclass(frozen=True)
class HeldBack:
    """Log scores of held-out rows, in nats a row, up to constants that the likelihood omits.

    Attributes:
      posterior: of every row, log mean likelihood over the draws.
      optimisers: the same over the optimisers' ends.
      networks: how many of these.

    Example:
      >>> import numpy as np, sgld
      >>> found = sgld.networks.HeldBack(np.array([-0.2, -0.3, -0.1]), np.array([-0.1, -0.1, 0.0]), 5)
      >>> round(found.difference, 3), round(found.difference_se, 3), found.warning is None
      (0.133, 0.033, False)
    """

    posterior: Float[np.ndarray, " row"]
    optimisers: Float[np.ndarray, " row"]
    networks: int

    @property
    def difference(self) -> float:
        """The mean log score of the optimised networks minus that of the posterior."""
        return float(np.mean(self.optimisers - self.posterior))

    @property
    def difference_se(self) -> float:
        """The standard error of `difference` over rows."""
        each = self.optimisers - self.posterior
        return float(np.std(each, ddof=1) / np.sqrt(len(each)))

    @property
    def warning(self) -> str | None:
        """What to change, if the difference is beyond 3 standard errors."""
        if not self.difference > MIN_REPORTED_SES * self.difference_se:
            return None
        return (
            f"where {self.networks} optimisers end predicts rows held back better than the posterior does, by "
            f"{self.difference:.3g} +- {self.difference_se:.2g} nats a row: the prior holds the network back; use a "
            "wider one (three times the sd), or one whose scale per layer is estimated, "
            "sgld.networks.normal_prior(..., learnt=True)."
        )

    def __str__(self) -> str:
        rows = [["", "log score", "+-"]]
        for name, scores in (("posterior", self.posterior), ("optimisers", self.optimisers)):
            se = np.std(scores, ddof=1) / np.sqrt(len(scores))
            rows.append([name, f"{np.mean(scores):.4f}", f"{se:.4f}"])
        rows.append(["difference", f"{self.difference:.4f}", f"{self.difference_se:.4f}"])
        return "\n".join([*columns(rows), *filter(None, [self.warning])])


def held_back(
    posterior: Posterior,
    data: PyTree,
    init: PyTree,
    draws: Draws,
    rows: PyTree,
    *,
    networks: int = 5,
    seed: int = 0,
) -> HeldBack:
    """Compare the log score of held-out rows between the posterior and an ensemble of optimised networks.

    Args:
      posterior: as given to `sgld.sample`.
      data: as given to `sgld.sample`.
      init: as given to `sgld.sample`.
      draws: what it returned.
      rows: held-out rows, in the form of `data`.
      networks: number of optimisers, each from an independent start, with a hundredth of the prior's weight.
      seed: of their starts and batches.

    Warns (SGLDWarning) where the ends predict better by more than 3 standard errors.

    Raises: UsageError for fewer than two rows, or a posterior without a likelihood of rows.

    Example:
      >>> import jax.numpy as jnp, numpy as np, sgld
      >>> rng = np.random.default_rng(0)
      >>> x = rng.normal(size=(200, 3)).astype(np.float32)
      >>> y = (x @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=200)).astype(np.float32)
      >>> posterior = sgld.Posterior(
      ...     sgld.networks.normal_prior(1.0), lambda w, row: -0.5 * (row[1] - row[0] @ w) ** 2)
      >>> known, new = (x[:100], y[:100]), (x[100:], y[100:])
      >>> draws = sgld.sample(posterior, known, jnp.zeros(3), progress=False)
      >>> found = sgld.networks.held_back(posterior, known, jnp.zeros(3), draws, new)
      >>> found.warning is None
      True
    """
    whole_number("networks", networks)
    check_seed(seed)
    draws.check_kept()
    if posterior.log_likelihood is None:
        raise UsageError(
            "rows can be held back only where the posterior has a log likelihood of rows."
        )
    problem, others = prepare(posterior, data, init, seed=seed), prepare(posterior, rows, init)
    if others.num_data < 2:
        raise UsageError(f"rows must be two at least. Got {others.num_data}.")
    check_labels(others, 0)
    prior = posterior.log_prior
    light = replace(posterior, log_prior=lambda position: TRIED_PRIOR_SHARE * prior(position))
    ends = optimiser_ends(prepare(light, data, init, seed=seed), _request(networks, seed))
    positions = jax.vmap(problem.target.position)(problem.array(ends))
    new = others.source.take(jnp.arange(others.num_data, dtype=jnp.int32))
    healthy = jax.tree.map(
        lambda leaf: jnp.asarray(leaf[draws.healthy]).reshape(-1, *leaf.shape[2:]), draws.position
    )
    scores = [
        logsumexp(
            np.asarray(_log_likelihoods(problem.target, some, new), np.float64),
            axis=0,
            b=w[:, None],
        )
        for some, w in (
            (healthy, (draws.weights / draws.weights.sum()).reshape(-1)),
            (positions, np.full(networks, 1 / networks)),
        )
    ]
    found = HeldBack(np.asarray(scores[0]), np.asarray(scores[1]), networks)
    if found.warning is not None:
        warnings.warn(found.warning, SGLDWarning, stacklevel=2)
    return found


def _request(networks: int, seed: int) -> Request:
    """Return a request that fixes only the number of chains."""
    auto = "auto"
    return Request(
        auto, auto, 0.05, 1.0, auto, auto, auto, auto, networks, auto, auto, auto, seed
    )  # fmt: skip


@jax.jit
def _log_likelihoods(target: Target, positions: PyTree, rows: PyTree) -> Float[Array, "draw row"]:
    likelihood = target.posterior.log_likelihood
    assert likelihood is not None
    one = lambda position: jax.vmap(lambda row: jnp.reshape(likelihood(position, row), ()))(rows)  # noqa: E731
    return jax.lax.map(one, positions)


# -- kronecker -----------------------------------------------------------------------------


def kronecker(
    posterior: Posterior,
    data: PyTree,
    position: PyTree,
    *,
    num_rows: int = MAX_FISHER_ROWS,
    seed: int = 0,
) -> Kronecker:
    """Build D at a position: the inverse of the rows' Fisher information plus the prior's curvature.

    For every leaf W [m, n] with a row's gradient G, U and V are the eigenvectors of E G G^T and E G^T G, and

        D W = U ((U^T W V) * s) V^T,    s = 1 / (N E (U^T G V)^2 + prior's curvature)

    A leaf of one axis, or with a side over 2,048, has a diagonal.

    Args:
      posterior: as for `sgld.sample`.
      data: as for `sgld.sample`.
      position: a pytree or a network, for example a trained one.
      num_rows: number of random rows whose gradients are used.
      seed: of that choice.

    Raises: UsageError for a wrong argument, DataError for wrong data.

    Source: Martens & Grosse 2015; George et al. 2018.

    Example:
      >>> import jax.numpy as jnp, numpy as np, sgld
      >>> x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
      >>> posterior = sgld.Posterior(
      ...     lambda W: -0.5 * jnp.sum(W**2), lambda W, x: -0.5 * jnp.sum((W @ x) ** 2))
      >>> D = sgld.networks.kronecker(posterior, x, jnp.ones((2, 3)))
      >>> [part[0].shape for part in (D.left, D.right, D.scale)]
      [(2, 2), (3, 3), (2, 3)]
    """
    whole_number("num_rows", num_rows, 1)
    problem = prepare(posterior, data, position, seed=seed)
    if not problem.has_rows:
        raise UsageError("kronecker needs data; a log density alone has no rows.")
    prior = np.asarray(prior_curvature(problem, problem.start), np.float64)
    return estimate_factors(problem, problem.start[None], prior, num_rows)
