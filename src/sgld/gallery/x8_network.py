"""X8's data and network: in JAX for NUTS, and in a PyTorch training loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgld
from sgld.errors import need

H, BATCH, EVERY = 1e-3, 100, 50  # step size; rows a step; steps between kept draws
CENTRES, EACH, UNITS = np.array([[0.0, 0.0], [3.0, 3.0], [-3.0, 3.0]]), 100, 16
POINT = np.array([[2.0, 2.0]])
X1, X2 = np.linspace(-8, 8, 25), np.linspace(-5, 8, 21)
GRID = np.stack(np.meshgrid(X1, X2), axis=-1).reshape(-1, 2)
LABELS = np.repeat(np.arange(3), EACH)
ROWS = CENTRES[LABELS] + np.random.default_rng(8).standard_normal((3 * EACH, 2))


def logits(w: Any, x: Any) -> Any:
    """The network, 2-16-3 with tanh."""
    return jnp.tanh(x @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]


def problem() -> tuple[sgld.Posterior, Any, dict[str, Any]]:
    """The network's posterior in JAX, data and a start, for NUTS: the truth."""
    shapes = {"b1": (UNITS,), "b2": (3,), "w1": (2, UNITS), "w2": (UNITS, 3)}
    keys = jax.random.split(jax.random.key(8), len(shapes))
    init = {
        name: 0.5 * jax.random.normal(key, shape, jnp.float32)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    posterior = sgld.Posterior(
        lambda w: -0.5 * jax.tree.reduce(jnp.add, jax.tree.map(lambda leaf: jnp.sum(leaf**2), w)),
        lambda w, row: jax.nn.log_softmax(logits(w, row[0]))[row[1]],
    )
    return posterior, (ROWS.astype(np.float32), LABELS.astype(np.int32)), init


def train(temperature: float, chains: int, steps: int, seed: int) -> Any:
    """An Ensemble of what `chains` training loops visit after their first fifth."""
    torch, optim = need("torch", "torch"), sgld.torch
    x, y = torch.tensor(ROWS, dtype=torch.float32), torch.tensor(LABELS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        nets = [
            torch.nn.Sequential(
                torch.nn.Linear(2, UNITS), torch.nn.Tanh(), torch.nn.Linear(UNITS, 3)
            )
            for _ in range(chains)
        ]
        ensemble = optim.Ensemble(nets[0])
        for chain, net in enumerate(nets):
            optimizer = optim.SGLD(
                net.parameters(), step_size=H, num_data=len(y), prior_precision=1.0,
                temperature=temperature, seed=1000 * seed + chain,
            )  # fmt: skip
            step = 0
            while step < steps:
                for rows in torch.randperm(len(y)).split(BATCH):  # a pass over the data
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
                    optimizer.step()
                    step += 1
                    if step > steps / 5 and step % EVERY == 0:
                        ensemble.collect(optimizer, model=net)
    return ensemble


def predict(ensemble: Any) -> dict[str, np.ndarray]:
    """Probabilities and epistemic uncertainty at the point and on the map; the point's, per draw."""
    torch = need("torch", "torch")
    places = torch.tensor(np.concatenate([POINT, GRID]), dtype=torch.float32)
    found = ensemble.predict_classes(places)
    return {
        "p": found.probabilities.numpy(), "epistemic": found.epistemic.numpy(),
        "point": ensemble.outputs(places[:1])[:, 0].softmax(-1).numpy(),
    }  # fmt: skip
