"""The rows of a data set as tensors, in an order of their own, on the device of the model."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from ..data.source import generator
from ..errors import DataError, UsageError, first_line
from .monitor import say
from .network import as_known

Inputs = tuple[torch.Tensor, ...] | dict[str, torch.Tensor]
TARGET_KEYS = ("labels", "label")  # the key of the target, where rows are dicts
ROWS_READ_AT_ONCE = 256  # rows that are read at once
ROWS_READ_TWICE = 8  # rows that are read twice
ROW_ORDER_STREAM = 10  # the stream of the host's generator that the rows' order uses


class Batch(NamedTuple):
    """Rows for every chain: leaves [chain, n, ...], or [n, ...] where all chains share them."""

    inputs: Inputs
    target: torch.Tensor
    shared: bool


@dataclass(frozen=True)
class Rows:
    """All rows; `order` is a permutation, so that the first ones are a random sample.

    Attributes:
      inputs: the model's arguments by place or by name, leaves [num_data, ...].
      target: [num_data, ...].
      order: [num_data].
    """

    inputs: Inputs
    target: torch.Tensor
    order: torch.Tensor

    @property
    def num_data(self) -> int:
        """The number of rows."""
        return len(self.target)

    def at(self, numbers: torch.Tensor) -> Batch:
        """Return rows by their numbers in the order, [chain, n] or [n]."""
        places = self.order[numbers]
        inputs = mapped(lambda leaf: leaf[places], self.inputs)
        return Batch(inputs, self.target[places], numbers.dim() == 1)

    def first(self, count: int) -> Batch:
        """Return the first rows, for all chains."""
        count = min(count, self.num_data)
        return self.at(torch.arange(count, device=self.order.device))

    def digest(self) -> str:
        """Return the SHA-256 digest of the rows."""
        found = hashlib.sha256()
        for name, leaf in (*named_leaves(self.inputs).items(), ("target", self.target)):
            array = leaf.detach().cpu()
            found.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
            found.update(array.contiguous().view(torch.uint8).numpy().tobytes() if array.numel() else b"")  # fmt: skip
        return found.hexdigest()


def mapped(f: Callable[[torch.Tensor], torch.Tensor], inputs: Inputs) -> Inputs:
    """Apply `f` to every tensor."""
    if isinstance(inputs, dict):
        return {name: f(leaf) for name, leaf in inputs.items()}
    return tuple(f(leaf) for leaf in inputs)


def as_inputs(leaves: dict[Any, torch.Tensor], like: Inputs) -> Inputs:
    """Return leaves by name or by place in the form of other inputs."""
    return leaves if isinstance(like, dict) else tuple(leaves.values())


def num_rows(inputs: Inputs) -> int:
    """Return the number of rows of inputs."""
    return len(next(iter(named_leaves(inputs).values())))


def read_rows(
    dataset: Any, device: torch.device, seed: int, dtypes: Collection[torch.dtype] = ()
) -> Rows:
    """Read the rows of a tuple or dict of tensors, of a Dataset, or of a DataLoader.

    Args:
      dataset: as for `sgld.torch.sample`.
      device: where the rows are held.
      seed: of the order of the rows.
      dtypes: the network's floating ones: inputs become one of them, and a target of double precision single
        where none of them is double.

    Raises: UsageError for anything else; DataError for rows that are no tensors of one shape, of
    different numbers, or not finite.
    """
    inputs, target = _split(_whole(dataset))
    inputs = mapped(lambda leaf: as_known(leaf, set(dtypes)), inputs)
    if target.dtype == torch.float64 and dtypes and torch.float64 not in dtypes:
        target = target.float()
    named = named_leaves(inputs)
    leaves = {"the target": target, **{f"input {name!r}": leaf for name, leaf in named.items()}}
    for name, leaf in leaves.items():
        if leaf.dim() == 0 or len(leaf) != len(target):
            raise DataError(
                f"{name} must have a row for each of the target's {len(target)}. Got shape {tuple(leaf.shape)}."
            )
        bad = ~torch.isfinite(leaf.reshape(len(leaf), -1)).all(1) if leaf.numel() else torch.zeros(0)  # fmt: skip
        if bool(bad.any()):
            raise DataError(f"row {int(bad.int().argmax())} of {name} is not finite; leave it out.")
    if len(target) < 2:
        raise DataError(f"the data set must have at least two rows. Got {len(target)}.")
    order = generator(seed, ROW_ORDER_STREAM, 0).permutation(len(target))
    return Rows(
        mapped(lambda leaf: leaf.to(device), inputs),
        target.to(device),
        torch.from_numpy(order).to(device),
    )


def probe_inputs(probe: Any, rows: Rows) -> Inputs:
    """Return the inputs of probe rows, in the shapes of the data set's own.

    Raises: UsageError for another number of inputs, or another shape of one.
    """
    given, like = named_leaves(_tensors(probe)), named_leaves(rows.inputs)
    given = {name: leaf for name, leaf in given.items() if name in like or name not in TARGET_KEYS}
    if given.keys() != like.keys():
        raise UsageError(
            f"probe must hold the inputs of some rows as the data set does ({_said(like)}), without the target. "
            f"Got {_said(given)}."
        )
    counts = {leaf.shape[:1] for leaf in given.values()}
    alike = all(given[name].shape[1:] == like[name].shape[1:] for name in like)
    if not alike or len(counts) > 1 or counts & {torch.Size(()), torch.Size((0,))}:
        raise UsageError(
            f"probe rows must have the shape of the data set's ({_said(like)}, rows first). Got {_said(given)}."
        )
    return as_inputs(
        {name: given[name].to(leaf.device, leaf.dtype) for name, leaf in like.items()}, rows.inputs
    )


def named_leaves(inputs: Any) -> dict[Any, torch.Tensor]:
    """Return the tensors of inputs by name or by place."""
    if isinstance(inputs, torch.Tensor):
        return {0: inputs}
    return dict(inputs) if isinstance(inputs, dict) else dict(enumerate(inputs))


def _said(inputs: dict[Any, torch.Tensor]) -> str:
    return ", ".join(f"{name}: {list(leaf.shape)}" for name, leaf in inputs.items())


def _whole(dataset: Any) -> Any:
    """Return a tuple or dict of tensors that hold all rows."""
    if isinstance(dataset, TensorDataset):
        return tuple(dataset.tensors)
    if isinstance(dataset, (DataLoader, Dataset)):
        loader = _loader(dataset)
        whole = _read(loader)
        _say_random(loader, whole)
        return whole
    if isinstance(dataset, (tuple, list, Mapping)):
        return _tensors(dataset)
    order = "; the order is sample(model, loss, dataset)" if callable(dataset) else ""
    raise UsageError(
        "dataset must be a tuple (inputs, target) of tensors or arrays, a dict of them with 'labels', a torch "
        f"Dataset or a DataLoader. Got {type(dataset).__name__}{order}."
    )


def _loader(dataset: Any) -> DataLoader:
    """Return a loader of every row once, in the data set's order."""
    if not isinstance(dataset, DataLoader):
        return DataLoader(dataset, batch_size=ROWS_READ_AT_ONCE)
    if isinstance(dataset.dataset, IterableDataset) or dataset.batch_size is None:
        return dataset
    return DataLoader(
        dataset.dataset,
        batch_size=dataset.batch_size,
        collate_fn=dataset.collate_fn,
        num_workers=dataset.num_workers,
    )


def _read(loader: DataLoader) -> Any:
    parts = [_tensors(batch) for batch in loader]
    if not parts:
        raise DataError("the data set has no rows.")
    first = parts[0]
    try:
        if isinstance(first, dict):
            return {name: torch.cat([part[name] for part in parts]) for name in first}
        if isinstance(first, torch.Tensor):
            return (torch.cat(parts),)
        return tuple(torch.cat(leaves) for leaves in zip(*parts, strict=True))
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"the rows of the data set must all have one shape ({first_line(error)}); pad or cut them to one."
        ) from error


def _say_random(loader: DataLoader, whole: Any) -> None:
    """Warn if a few rows differ when they are read again; generators of random numbers are restored."""
    if loader.batch_size is None or isinstance(loader.dataset, IterableDataset):
        return
    count = len(loader.dataset)  # pyright: ignore[reportArgumentType]
    places = sorted({*np.linspace(0, count - 1, ROWS_READ_TWICE).astype(int).tolist()})
    with _generators_kept():
        try:
            batch = loader.collate_fn([loader.dataset[i] for i in places])
            again = named_leaves(_tensors(batch))
        except Exception:  # of a data set that is read only once, or only in a worker
            return
    for name, leaf in named_leaves(whole).items():
        one, other = leaf[places], again.get(name)
        if other is None or other.shape != one.shape:  # padded to the longest of other rows
            continue
        if bool(((one != other) & ((one == one) | (other == other))).any()):  # nan is not itself
            where = "the target" if name in (*TARGET_KEYS, len(again) - 1) else f"input {name!r}"
            say(
                f"the data set gives other numbers when a row is read again ({where}): rows are read once, and random "
                "transforms stay as they were then; give the rows without them."
            )
            return


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Restore the generators that transforms draw from: Python's, NumPy's and torch's."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _tensors(batch: Any) -> Any:
    """Convert what may hold arrays to a tensor, or a tuple or dict of tensors."""
    if isinstance(batch, Mapping):
        return {str(name): _tensor(leaf) for name, leaf in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(_tensor(leaf) for leaf in batch)
    return _tensor(batch)


def _tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach()
    try:
        array = np.asarray(leaf)
        # what numpy makes of a list of numbers is double; a network's weights hardly ever are
        return torch.as_tensor(array if isinstance(leaf, np.ndarray) else array.astype(_single(array)))  # fmt: skip
    except (TypeError, ValueError) as error:
        raise DataError(
            f"rows must be made of tensors or arrays of numbers. Got {type(leaf).__name__}."
        ) from error


def _single(array: np.ndarray) -> Any:
    return np.float32 if array.dtype == np.float64 else array.dtype


def _split(whole: Any) -> tuple[Inputs, torch.Tensor]:
    """Split rows into inputs and target: the last of a tuple, "labels" of a dict."""
    if isinstance(whole, dict):
        key = next((key for key in TARGET_KEYS if key in whole), None)
        if key is None or len(whole) < 2:
            raise UsageError(
                f"rows that are dicts must hold inputs and 'labels'. Got {', '.join(whole)}."
            )
        return {name: leaf for name, leaf in whole.items() if name != key}, whole[key]
    if len(whole) < 2:
        raise UsageError(
            "rows must be tuples of the model's inputs and, last, the target. Got one tensor a row."
        )
    return whole[:-1], whole[-1]
