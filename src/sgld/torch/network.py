"""What an ensemble asks of a network: its entries, its inputs, layers that no draw determines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from ..errors import UsageError, first_line

MAX_WORK_PER_THREAD = 2**24  # networks x weights x rows that one thread takes
ROW_NORMALISATIONS = nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d
DROPOUT_LAYERS = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
NORMALISATION_REMEDY = (
    "use GroupNorm or LayerNorm, whose output depends on the row alone, or train with the layer "
    "in eval() mode, so that its statistics are constants."
)


def dropping(model: torch.nn.Module) -> str | None:
    """Return the first layer with dropout in training mode."""
    for name, module in model.named_modules():
        share = getattr(module, "p" if isinstance(module, DROPOUT_LAYERS) else "dropout", 0)
        if module.training and isinstance(share, (int, float)) and share > 0:
            return layer(name, module)
    return None


def padding_rows(model: torch.nn.Module) -> dict[str, int]:
    """Return the padding row of each embedding's parameter, which training does not change."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        names[id(module.weight)]: module.padding_idx
        for module in model.modules()
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag))
        and module.padding_idx is not None
        and id(module.weight) in names
    }


def layer(name: str, module: torch.nn.Module) -> str:
    """Describe a module by its kind and its place; those of a Sequential are called 0, 1, 2."""
    kind = type(module).__name__
    return f"the {kind} at {name!r}" if name else f"the model, a {kind}"


def floating(model: torch.nn.Module) -> set[torch.dtype]:
    """Return the floating dtypes of the model's weights and buffers."""
    return {v.dtype for v in model.state_dict().values() if v.is_floating_point()}


def as_known(x: torch.Tensor, dtypes: set[torch.dtype]) -> torch.Tensor:
    """Convert a floating tensor to a network's widest floating dtype, unless it has one of them already."""
    known = not x.is_floating_point() or x.dtype in dtypes or not dtypes
    return x if known else x.to(max(dtypes, key=lambda dtype: torch.finfo(dtype).bits))


def as_floats(given: Iterable[torch.Tensor]) -> str:
    """Return advice if inputs are integers, which only an embedding takes."""
    kinds = {a.dtype for a in given if not a.is_floating_point() and a.dtype != torch.bool}
    return "integers are taken by embeddings alone, x.float() by other layers; " if kinds else ""


def exportable(dtype: torch.dtype) -> torch.dtype:
    """Return a dtype that numpy has; it has no bfloat16."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def output_of(found: Any) -> torch.Tensor:
    """Return the tensor in a module's output: itself, its `logits` (an attribute or a key), or the first of a tuple.

    Raises: UsageError where there is none.
    """
    if isinstance(found, torch.Tensor):
        return found
    logits = found.get("logits") if isinstance(found, Mapping) else getattr(found, "logits", None)
    if isinstance(logits, torch.Tensor):
        return logits
    if isinstance(found, (tuple, list)) and found and isinstance(found[0], torch.Tensor):
        return found[0]
    raise UsageError(
        f"the model must return a tensor, or an object with logits. Got {type(found).__name__}."
    )


@contextmanager
def alone(work: int, device: torch.device) -> Iterator[None]:
    """Use one thread for little work: on a busy core several threads wait 30 to 100 times as long for each other.

    Args:
      work: networks x weights x rows.
      device: where the network runs.
    """
    if device.type != "cpu" or work >= MAX_WORK_PER_THREAD:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def outputs(
    model: torch.nn.Module, states: list[dict[str, torch.Tensor]], x: Any, batch_size: int | None
) -> Iterator[torch.Tensor]:
    """Yield the network's outputs with one draw's entries after the other, in float64 on the CPU."""
    anchor = next(iter(model.state_dict().values()))
    dtypes = {v.dtype for v in states[0].values() if v.is_floating_point()}
    by_name = isinstance(x, Mapping) and all(isinstance(a, torch.Tensor) for a in x.values())
    as_input = lambda a: _as_input(a, dtypes).to(anchor.device)  # noqa: E731
    named = {name: as_input(a) for name, a in x.items()} if by_name else {}
    arguments = () if by_name else tuple(as_input(a) for a in (x if isinstance(x, tuple) else (x,)))
    rows = len(next(iter((*arguments, *named.values()))))
    size = batch_size or max(rows, 1)
    names = _places(model)
    work = min(size, rows) * sum(v.numel() for v in states[0].values())
    for state in states:
        with _evaluating(model), torch.no_grad(), alone(work, anchor.device):
            held = {k: v.to(anchor.device) for k, v in state.items() if k in names}
            parts = []
            for i in range(0, max(rows, 1), size):
                part = tuple(a[i : i + size] for a in arguments)
                by = {name: a[i : i + size] for name, a in named.items()}
                parts.append(_called(model, held, part, by).to("cpu", torch.float64))
        yield torch.cat(parts)


def _called(
    model: torch.nn.Module, held: dict[str, torch.Tensor], x: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor],
) -> torch.Tensor:  # fmt: skip
    """Call the network for some rows; UsageError if it does not take them, or returns no output for each."""
    given = [*x, *named.values()]
    said = ", ".join(f"{list(a.shape)} of {str(a.dtype).removeprefix('torch.')}" for a in given)
    try:
        found = torch.func.functional_call(model, held, x, named, tie_weights=False)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        raise UsageError(
            f"the network could not be called with x, {said} ({first_line(error)}); {as_floats(given)}give rows first, each "
            "like the rows that it was trained on."
        ) from error
    found = output_of(found)
    if found.dim() == 0 or len(found) != len(given[0]):
        raise UsageError(
            f"the network must give one output per row of x, rows first. Got shape {list(found.shape)} for x, {said}; a "
            "single row is x[None]."
        )
    return found


def _places(model: torch.nn.Module) -> set[str]:
    """Return the names of parameters and buffers, each place once.

    functional_call leaves weights of a draw behind in a module that is named twice.
    """
    entries = (*_own(model, "named_parameters"), *_own(model, "named_buffers"))
    return {place for place, _ in entries}


def _own(model: torch.nn.Module, kind: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what each module holds itself under its place, an entry with two names twice."""
    for path, module in model.named_modules():
        for key, value in getattr(module, kind)(recurse=False, remove_duplicate=False):
            yield f"{path}.{key}" if path else key, value


def in_every_place(
    model: torch.nn.Module, weights: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Map weights, given by the names of `named_parameters`, to each place that holds one of them."""
    names = {id(p): name for name, p in model.named_parameters()}
    places = ((place, names[id(p)]) for place, p in _own(model, "named_parameters"))
    return {place: weights[name] for place, name in places if name in weights}


def running_statistics(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copy the running statistics by name; UsageError if they would still change."""
    kept = {}
    for name, module in model.named_modules():
        per_row = isinstance(module, ROW_NORMALISATIONS)
        if not (hasattr(module, "running_mean") and hasattr(module, "track_running_stats")):
            continue
        tracked = module.running_mean is not None
        if not tracked and per_row:
            continue
        if module.training or not tracked:
            raise UsageError(
                f"{layer(name, module)}{'' if name else ','} normalises by statistics of the "
                f"batch, which a draw of the weights does not determine; {NORMALISATION_REMEDY}"
            )
        for key in ("running_mean", "running_var"):
            kept[f"{name}.{key}"] = getattr(module, key).detach().clone()
    return kept


def check_shapes(state: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raise UsageError unless a draw has the entries of the model, in its shapes."""
    for name in expected.keys() | state.keys():
        one, other = expected.get(name), state.get(name)
        if one is None or other is None or one.shape != other.shape:
            shapes = [None if t is None else tuple(t.shape) for t in (other, one)]
            raise UsageError(
                f"the draw must have the model's entries. Got shape {shapes[0]} for {name!r}, "
                f"where the model has {shapes[1]}; give a model of the same architecture."
            )


def _as_input(x: Any, dtypes: set[torch.dtype]) -> torch.Tensor:
    """Return a tensor in one of the network's floating dtypes, from a tensor, an array or a list."""
    try:
        if isinstance(x, Dataset):  # of some of which NumPy makes an array of one more axis
            raise TypeError
        given = x if isinstance(x, torch.Tensor) else torch.as_tensor(np.array(x, np.float64))
    except (TypeError, ValueError):
        given = None
    if given is None or given.dim() == 0:
        raise UsageError(
            "x must be a tensor, an array or a list of numbers with rows first, a tuple of these, the "
            f"network's arguments, or a dict of tensors by their names. Got {type(x).__name__}."
        )
    return as_known(given, dtypes or {torch.float32})


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Switch dropout off, and restore every module's mode afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
