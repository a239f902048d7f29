"""What draws of a classifier say of new rows: mean probabilities, and why they are unsure.

    p(y | x) = sum_s w_s p(y | x, theta_s) / sum_s w_s
    H[p(y | x)] = sum_s w_s H[p(y | x, theta_s)] + mutual information        (nats)
       total    =           aleatoric            +      epistemic

(Depeweg et al. 2018, eq. 3.) The same meaning as `sgld.torch.Ensemble.predict_classes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import special

from ..core.validation import positive
from ..errors import UsageError
from ..model.modules import as_module
from ..results.draws import Draws
from ..results.statistics import calling

__all__ = ["Classes", "classes"]

PyTree = Any
NUMBERS_AT_ONCE = 2**21  # logits held at a time, over draws


@dataclass(frozen=True, repr=False)
class Classes:
    """Predictive probabilities [row, class] and their entropies [row], in nats.

    entropy = aleatoric + epistemic: what a single network is unsure of, on average, and what
    the networks disagree about.

    Example:
      >>> import numpy as np, sgld
      >>> draws = sgld.Draws.of({"b": np.array([[-3.0, 3.0]])})  # both sure, and of the opposite
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
    """Mean probabilities of the classes and the two parts of their entropy.

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
    """Weighted sums over draws of probabilities [row, class] and of entropies [row]."""
    mean: Any = 0.0
    aleatoric: Any = 0.0
    for weights, logits in _logits(draws, run, x):
        log_p = special.log_softmax(logits, axis=-1)
        p = np.exp(log_p)
        mean = mean + np.einsum("s,src->rc", weights, p)
        aleatoric = aleatoric + np.einsum("s,src->r", weights, special.entr(p))
    return mean, aleatoric


def _logits(draws: Draws, run: Callable, x: PyTree) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Weights [draw] and logits [draw, row, class] in float64, some draws at a time."""
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
    count = int(np.clip(NUMBERS_AT_ONCE // max(1, out.size), 1, weights.size))
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
