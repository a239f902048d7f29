"""Handwritten digits (scikit-learn's 1797 images of 8 x 8) in a PyTorch loop, at equal epochs.

    python benchmarks/torch_digits.py [--epochs 200] [--seeds 3] [--hidden 64]

Needs `pip install 'sgld[torch,sklearn]'`. One fixed split, one network (a hidden layer of tanh
units; the prior of a weight is normal with variance 1 / inputs of its unit), batches of 64. Samplers collect one draw an epoch over the
last half; Adam and the deep ensemble maximise the same posterior, the ensemble training five
networks for all the epochs each, so at five times the cost. Test rows only:

    accuracy, log score (mean log probability of the right class, in nats; higher is better),
    ECE (expected calibration error, 15 equal bins of the largest probability; lower is better),
    epistemic (mean mutual information between label and weights, in nats)

T = 1 is the posterior; rows with T below 1 are COLD posteriors, sharper than Bayes' rule.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import sgld.torch

BATCH, PRIOR_PRECISION, TRAIN = 64, 1.0, 1000


@dataclass(frozen=True)
class Digits:
    """Pixels scaled to mean 0 and sd 1 of the training rows together."""

    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor


def digits() -> Digits:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    train, test = order[:TRAIN], order[TRAIN:]
    x = (pixels - pixels[train].mean()) / pixels[train].std()
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(labels)
    return Digits(x[train], y[train], x[test], y[test])


def network(hidden: int, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(64, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 10)
    )


def train(
    data: Digits, model: Any, optimizer: Any, epochs: int, seed: int,
    scheduler: Any = None, after: Callable[[int], None] = lambda epoch: None,
) -> None:  # fmt: skip
    order = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        for rows in torch.randperm(TRAIN, generator=order).split(BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(data.x[rows]), data.y[rows])
            loss.backward()
            optimizer.step()
        if scheduler is not None:
            scheduler.step()
        after(epoch)


def sampled(
    kind: Any, data: Digits, hidden: int, epochs: int, seed: int, *, cool: bool = True, **numbers: Any
) -> sgld.torch.Ensemble:  # fmt: skip
    """Burn in for half of the epochs, then a draw at the end of each."""
    model = network(hidden, seed)
    optimizer = kind(
        model.parameters(), num_data=TRAIN, prior_precision=PRIOR_PRECISION, seed=seed, **numbers
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, _decay(epochs)) if cool else None
    ensemble = sgld.torch.Ensemble(model)

    def after(epoch: int) -> None:
        if epoch + 1 == epochs // 2 and isinstance(optimizer, sgld.torch.PSGLD):
            optimizer.freeze()
        if epoch >= epochs // 2:
            ensemble.collect(optimizer)

    train(data, model, optimizer, epochs, seed, scheduler, after)
    return ensemble


def _decay(epochs: int) -> Callable[[int], float]:
    """Constant in the burn-in, then (1 + t)^-.33 of it in units of an eighth of the epochs."""
    return lambda epoch: (1 + max(0, epoch - epochs // 2) / (epochs / 8)) ** -0.33


def optimised(
    data: Digits, hidden: int, epochs: int, seed: int, members: int
) -> sgld.torch.Ensemble:
    """Adam's modes; weight decay in the gradient is the prior's, so the target is the same."""
    ensemble = sgld.torch.Ensemble(network(hidden, seed))
    for member in range(members):
        model = network(hidden, 1000 * member + seed)
        adam = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=PRIOR_PRECISION / TRAIN)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(adam, epochs)
        train(data, model, adam, epochs, 1000 * member + seed, scheduler)
        ensemble.collect(model=model)
    return ensemble


def scores(ensemble: sgld.torch.Ensemble, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """Accuracy, log score, ECE, epistemic."""
    found = ensemble.predict_classes(x)
    confidence, label = found.probabilities.max(1)
    right = (label == y).double()
    bins = (confidence * 15).long().clamp(max=14)
    gaps = [
        float((right - confidence)[bins == b].sum().abs()) for b in range(15) if (bins == b).any()
    ]
    log_score = found.probabilities[torch.arange(len(y)), y].log().mean()
    return np.array(
        [float(right.mean()), float(log_score), sum(gaps) / len(y), float(found.epistemic.mean())]
    )


METHODS: dict[str, tuple[int, Callable[..., sgld.torch.Ensemble]]] = {
    "SGLD, T = 1 (posterior)": (
        1, lambda *a: sampled(sgld.torch.SGLD, *a, step_size=3e-4)),
    "SGLD, T = 0.1 (cold posterior)": (
        1, lambda *a: sampled(sgld.torch.SGLD, *a, step_size=3e-4, temperature=0.1)),
    "SGLD, T = 0.01 (cold posterior)": (
        1, lambda *a: sampled(sgld.torch.SGLD, *a, step_size=3e-4, temperature=0.01)),
    "PSGLD, T = 1 (posterior)": (
        1, lambda *a: sampled(sgld.torch.PSGLD, *a, step_size=2e-6, epsilon=1e-3)),
    "SGHMC, T = 1 (posterior)": (
        1, lambda *a: sampled(sgld.torch.SGHMC, *a, step_size=3e-5, friction=0.1)),
    "Adam, one network": (1, lambda *a: optimised(*a, members=1)),
    "deep ensemble, 5 x Adam": (5, lambda *a: optimised(*a, members=5)),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--only", default="", help="methods whose name contains this")
    args = parser.parse_args()
    torch.set_num_threads(1)  # tensors are small
    data = digits()
    print(
        f"{TRAIN} rows to train, {len(data.y_test)} to test, {args.epochs} epochs, mean over "
        f"{args.seeds} seeds (+- sd of the log score between them)\n"
    )
    print(
        f"{'':34s}{'cost':>5s}{'accuracy':>10s}{'log score':>11s}{'+-':>7s}{'ECE':>8s}{'epistemic':>11s}{'seconds':>9s}"
    )
    for name, (cost, method) in METHODS.items():
        if args.only not in name:
            continue
        began, rows = time.monotonic(), []
        for seed in range(args.seeds):
            ensemble = method(data, args.hidden, args.epochs, seed)
            rows.append(scores(ensemble, data.x_test, data.y_test))
        seconds = (time.monotonic() - began) / args.seeds
        (accuracy, log_score, ece, epistemic), sd = np.mean(rows, 0), np.std(rows, 0)[1]
        print(
            f"{name:34s}{cost:4d}x{accuracy:10.4f}{log_score:11.4f}{sd:7.4f}{ece:8.4f}{epistemic:11.4f}{seconds:9.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
