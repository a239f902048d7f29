"""The predictive law from what every draw's network gives, f [draw, row, ...], and weights w that sum to 1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import UsageError


@dataclass(frozen=True, repr=False)
class Classes:
    """Predictive probabilities [row, class] and their entropies [row], in nats.

    entropy = aleatoric + epistemic: what a single network is unsure of, on average, and what
    the networks disagree about.

    Example:
      >>> import torch, sgld.torch
      >>> ensemble = sgld.torch.Ensemble(torch.nn.Linear(3, 2))
      >>> ensemble.collect()  # one draw: nothing to disagree about
      >>> ensemble.predict_classes(torch.zeros(1, 3)).epistemic
      tensor([0.], dtype=torch.float64)
    """

    probabilities: torch.Tensor
    entropy: torch.Tensor
    aleatoric: torch.Tensor
    epistemic: torch.Tensor

    def __repr__(self) -> str:
        """Show how many rows and classes there are, and the mean entropies."""
        rows, count = self.probabilities.shape
        means = (float(part.mean()) for part in (self.entropy, self.aleatoric, self.epistemic))
        return (
            f"Classes({rows} rows x {count} classes; mean entropy {{:.3g}} = aleatoric {{:.3g}} + epistemic {{:.3g}})"
        ).format(*means)


@dataclass(frozen=True)
class Values:
    """Of the predictive law of y, in the shape of one network's output: [row, ...].

    sd^2 = the variance between draws (epistemic_sd^2) + the mean of noise_sd^2; `lower` and `upper`
    are the ends of the central interval that was asked for.

    Example:
      >>> import torch, sgld.torch
      >>> ensemble = sgld.torch.Ensemble(torch.nn.Linear(3, 1))
      >>> ensemble.collect()
      >>> found = ensemble.predict_values(torch.zeros(1, 3), noise_sd=2.0)
      >>> found.sd, (found.upper - found.lower).round(decimals=2)  # 2 x 1.645 sds
      (tensor([[2.]], dtype=torch.float64), tensor([[6.5800]], dtype=torch.float64))
    """

    mean: torch.Tensor
    sd: torch.Tensor
    epistemic_sd: torch.Tensor
    lower: torch.Tensor
    upper: torch.Tensor


def classes(
    outputs: Iterable[torch.Tensor], w: torch.Tensor, meaning: str | None = None
) -> Classes:
    """Average each draw's logits [row, class] in turn, so that one draw's are held at a time.

    Args:
      outputs: of each network, [row, ...].
      w: weights of the networks.
      meaning: what the loss of the run took outputs for (meaning.Meaning); None where that is not known.
    """
    mean, aleatoric = None, None
    for share, out in zip(w.tolist(), outputs, strict=True):
        log_p = _log_probabilities(out, meaning)
        p = log_p.exp() * share
        h = share * torch.special.entr(log_p.exp()).sum(-1)
        mean = p if mean is None else mean + p
        aleatoric = h if aleatoric is None else aleatoric + h
    assert mean is not None and aleatoric is not None
    entropy = torch.special.entr(mean).sum(-1)
    return Classes(mean, entropy, aleatoric, entropy - aleatoric)


def check_values(meaning: str | None) -> None:
    """Raise UsageError if the loss of the run took outputs for logits, which are no values of y."""
    if meaning in ("classes", "odds"):
        raise UsageError(
            "the loss of this run takes logits, so that the outputs are no values of y; use predict_proba or predict_classes "
            "for probabilities, or outputs for each draw's logits."
        )


def values(f: torch.Tensor, w: torch.Tensor, noise_sd: Any, interval: float) -> Values:
    """Compute mean, sd and central interval of y ~ N(f_s, noise_sd_s^2) with probability w_s."""
    w = w.reshape(-1, *[1] * (f.dim() - 1))
    noise = _aligned(torch.as_tensor(noise_sd, dtype=torch.float64, device="cpu"), f)
    if not bool((noise >= 0).all() & torch.isfinite(noise).all()):
        raise UsageError(f"noise_sd must be zero or positive. Got {noise_sd}.")
    mean = (w * f).sum(0)
    between = (w * (f - mean) ** 2).sum(0)
    sd = (between + (w * noise**2).sum(0)).sqrt()
    tails = [_quantile(f, w, noise, q) for q in ((1 - interval) / 2, (1 + interval) / 2)]
    return Values(mean, sd, between.sqrt(), *tails)


def _aligned(noise: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
    """Return noise_sd in axes that broadcast against the outputs f [draw, row, ...]."""
    shape, draws = tuple(noise.shape), len(f)
    if shape == () or (
        len(shape) == f.dim() and all(n in (1, m) for n, m in zip(shape, f.shape, strict=True))
    ):
        return noise
    if shape in ((draws,), (draws, 1)):
        return noise.reshape(draws, *[1] * (f.dim() - 1))
    raise UsageError(
        f"noise_sd must be a number, one per draw ([{draws}] or [{draws}, 1]), or like the outputs "
        f"{tuple(f.shape)}, where an axis may be 1. Got shape {shape}."
    )


def _log_probabilities(logits: torch.Tensor, meaning: str | None) -> torch.Tensor:
    if logits.dim() == 1:  # one number a row: the logit of the second of two classes
        logits = logits[:, None]
    if logits.dim() != 2:
        raise UsageError(
            f"probabilities are of outputs [row, class] or [row]. Got {tuple(logits.shape)}; use outputs()."
        )
    if meaning == "numbers":
        raise UsageError(
            "the loss of this run takes no logits of classes, so that the outputs are none; use predict_values for their "
            "mean, sd and interval, or outputs for each draw's."
        )
    if meaning == "odds" and logits.shape[1] > 1:
        raise UsageError(
            f"each of the {logits.shape[1]} outputs of a row is the logit of an answer of its own, and none of one choice; "
            "use outputs(x).sigmoid().mean(0) for their probabilities."
        )
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    return torch.log_softmax(logits, -1)


def _quantile(f: Any, w: Any, noise: Any, q: float) -> torch.Tensor:
    """Return the quantile of the weighted mixture of N(f_s, noise_s^2) over the leading axis, by bisection.

    Without noise it is the smallest output at which the draws' weight reaches q.
    """
    if not bool((noise > 0).any()):
        order = f.argsort(0)
        total = torch.take_along_dim(w.expand_as(f), order, 0).cumsum(0)
        index = (total < q - 1e-12).sum(0, keepdim=True).clamp(max=len(f) - 1)
        return torch.take_along_dim(torch.take_along_dim(f, order, 0), index, 0)[0]
    wide = 40 * noise
    low, high = (f - wide).amin(0), (f + wide).amax(0)
    for _ in range(80):
        middle = (low + high) / 2
        z = (middle - f) / noise.clamp(min=1e-300)
        below = (w * torch.special.ndtr(z)).sum(0) < q
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2
