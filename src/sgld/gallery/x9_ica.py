"""X9's third part: independent components by natural-gradient SGLD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sgld
from sgld.gallery import Check, Section
from sgld.gallery.data import columns
from sgld.gallery.draw import COLOURS, WIDE, lines

from ..core.pytrees import as_pytree


class State(NamedTuple):
    """W, flat."""

    position: Any


@as_pytree
@dataclass(frozen=True)
class NaturalSGLD:
    """SGLD in the metric of the natural gradient: D = W^T W, from the right.

    W' = W + h (G W^T W + T (d + 1) W) + sqrt(2 h T) Xi W,   G = grad log p at W [d, d]
    (Welling & Teh 2011, sec. 5.3; Gamma = (d + 1) W, the divergence of D, keeps the law right.)
    """

    num_noises: ClassVar[int] = 1

    def init(self, position: Any) -> State:
        """The state at a position."""
        return State(position)

    def step(self, state: State, grad: Any, step_size: Any, noise: Any, *, preconditioner: Any,
             temperature: Any) -> State:  # fmt: skip
        """The equation above."""
        d = round(state.position.size**0.5)
        h, T, W = step_size, temperature, state.position.reshape(-1, d)
        G, xi = grad(state.position).reshape(W.shape), noise.reshape(W.shape)
        # rows of Xi W need a square root of W^T W: where W is square, W itself is one
        noisy = xi[:, :d] @ (W if W.shape[0] == d else jnp.linalg.cholesky(W.T @ W).T)
        drift = G @ W.T @ W + T * (d + 1) * W
        return State((W + h * drift + jnp.sqrt(2 * h * T) * noisy).ravel())


def log_source(W, x):
    """log p(x | W): log |det W| and sources of density 1 / (4 cosh^2(y / 2)), y = W x."""
    y = W @ x
    return jnp.linalg.slogdet(W)[1] - jnp.sum(jax.nn.softplus(y) + jax.nn.softplus(-y))


def ica() -> sgld.Posterior:
    """Entries of W are N(0, 100) a priori."""
    return sgld.Posterior(lambda W: -0.005 * jnp.sum(W**2), log_source)


def amari(W: np.ndarray, A: np.ndarray) -> Any:
    """Of W [..., d, d] to the inverse of the mixing A: 0 where W A permutes and scales, at most 1."""
    P, d = np.abs(np.asarray(W, float) @ A), len(A)
    rows, down = ((P.sum(axis) / P.max(axis) - 1).sum(-1) for axis in (-1, -2))
    return (rows + down) / (2 * d * (d - 1))


def mixtures() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Of each: x [N, 3], float32, and the mixing A [3, 3]."""
    rng = np.random.default_rng(3)
    returns = np.diff(np.log(columns("sp500_close")["close"]))[:2904].reshape(3, 968).T
    out = {}
    for name, sources in (("artificial", rng.laplace(size=(1000, 3))), ("S&P 500", returns)):
        A = rng.normal(size=(3, 3))
        out[name] = ((sources / sources.std(0)) @ A.T).astype(np.float32), A
    return out


def unmix(x: np.ndarray, steps: int, seed: int) -> sgld.Draws:
    """Natural-gradient SGLD, batches of 50, h falling from .2 / N to .02 / N."""
    N = len(x)
    h = sgld.polynomial_between(0.2 / N, 0.02 / N, steps, 0.55)
    return sgld.sample(
        ica(), x, jnp.eye(3, dtype=jnp.float32), sampler=NaturalSGLD(), gradient=sgld.Minibatch(),
        batch_size=50, step_size=h, burn_in=1000, thin=10, num_draws=steps // 10, seed=seed,
        progress=False,
    )  # fmt: skip


def independent_components(exact: Any, steps: int, seed: int) -> tuple[list[Check], Section]:
    """Both mixtures; `exact` has NUTS's Amari distances."""
    checks, distances, panels = [], {}, []
    for name, (x, A) in mixtures().items():
        draws, truth = unmix(x, steps, seed), exact[name]["mean"]
        found = amari(draws.position, A)
        distances[name] = float((found * draws.weights).sum())
        checks.append(
            Check.in_ratio(f"ICA, {name}: mean Amari distance", truth, distances[name], 0.3)
        )
        panels.append(lines(f"Amari distance, {name}", [("", draws.step, found[0])], level=truth,
                            styles=[{"color": COLOURS["accent"], "linewidth": 0.8}], xlabel="step",
                            ylim=(0, 0.2), width=WIDE))  # fmt: skip
    before = ", ".join(f"{amari(np.eye(3), A):.2f}" for _, A in mixtures().values())
    return checks, Section("Independent components by natural-gradient SGLD", (
        "x = A y for three sources; W, the unmixing, has log p(x | W) = log |det W| − Σ log 4 cosh²(y_i / 2). "
        "The natural gradient takes D = W^T W from the right. It depends on W, so the law is right only with "
        "the drift T (d + 1) W, the divergence of D. The sampler is the class "
        "`NaturalSGLD` in the code below; as (W^T W)^{1/2} its noise takes W itself.",
        "Two data sets: 1,000 draws of three Laplace sources, and three stretches of 968 daily returns of the "
        "S&P 500 taken for sources: real signals, mixed by us with a random matrix. The paper has a recording "
        "of brain waves, which has no known mixing. The Amari distance to the true mixing is 0 where W A "
        f"permutes and scales; at the start it is {before}. Its posterior mean is "
        f"{exact['artificial']['mean']:.3f} and {exact['S&P 500']['mean']:.3f} by NUTS, "
        f"{distances['artificial']:.3f} and {distances['S&P 500']:.3f} by four chains of SGLD.",
    ), tuple(panels), (("accent", "SGLD, one chain"), ("contrast", "mean of NUTS")))  # fmt: skip
