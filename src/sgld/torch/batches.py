"""Batches of rows and their weights, with some rows in every one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from ..core.validation import check_seed, whole_number
from ..errors import UsageError

__all__ = ["Batches"]


class Batches:
    """Row numbers and weights of reshuffled batches, the rows of `always_in` in every one.

    The loss of a batch is the weighted mean of its rows' negative log likelihoods,

        loss = (weight * loss_of_rows).mean()

    whose average over a pass is the mean over all rows, whatever rows are chosen: with N rows, m of
    them in every one of K batches, the b rows of a batch weigh b K / N where they were drawn and b / N
    where they are always in. A row that holds much of what is known of a weight (the only one of a
    level, say) belongs there: seen once in K steps, it throws the chain or is not felt.

    Args:
      num_data: N, rows in all the data.
      batch_size: most rows of a batch beside those that are always in.
      always_in: numbers of rows, such as `draws.plan.setup.always` of a default run.
      seed: of the order. Every pass has a fresh one.

    Raises: UsageError for impossible numbers.

    Example:
      >>> import sgld.torch
      >>> batches = sgld.torch.Batches(num_data=7, batch_size=2, always_in=[3])
      >>> [(len(rows), float(weight.mean())) for rows, weight in batches]
      [(3, 1.0), (3, 1.0), (3, 1.0)]
    """

    def __init__(
        self, num_data: int, batch_size: int, *, always_in: Sequence[int] = (), seed: int = 0
    ) -> None:
        whole_number("num_data", num_data, 1)
        whole_number("batch_size", batch_size, 1)
        check_seed(seed)
        always = np.asarray(always_in, dtype=np.int64)
        inside = (always >= 0) & (always < num_data)
        if always.ndim != 1 or len(np.unique(always)) != len(always) or not inside.all():
            raise UsageError(
                f"always_in must be numbers of rows from 0 to {num_data - 1}, no two the same. Got {always_in!r}."
            )
        self.num_data, self.always_in = num_data, always
        self._others = np.setdiff1d(np.arange(num_data), always)
        self._count = max(1, -(-len(self._others) // batch_size))
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        """K, the batches of a pass."""
        return self._count

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """One pass: row numbers [b] and weights [b] of each batch, both on the CPU."""
        order = self._rng.permutation(self._others)
        for drawn in np.array_split(order, self._count):
            rows = np.concatenate([drawn, self.always_in])
            share = len(rows) / self.num_data
            weight = np.full(len(rows), share)
            weight[: len(drawn)] *= self._count
            yield torch.from_numpy(rows), torch.from_numpy(weight).to(torch.get_default_dtype())
