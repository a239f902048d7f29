"""Convert draws to ArviZ: `draws.to_arviz()`, and `to_inferencedata()` for ArviZ before 1.0."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from jaxtyping import Int

from ..core.progress import progress_shown, stage
from ..core.pytrees import leaf_names
from ..core.validation import check_seed, whole_number
from ..core.versions import legacy_inference_data
from ..errors import RunError, SGLDWarning, UsageError
from ..results.draws import Draws
from .arviz_pointwise import ROW_DIMENSION, Subject, subject_of
from .arviz_rows import Chosen, choose

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

NUMBER_BYTES = 8  # bytes
PRIOR_DRAWS = 1000  # draws
MAX_OUTCOMES = 2**20  # predicted outcomes; JAX takes 3 microseconds for a Poisson outcome
RESAMPLED_NOTE = (
    "the draws have unequal weights, which ArviZ does not support; they are resampled to equal weights "
    '(weights="keep" keeps the draws and stores their weights in sample_stats).'
)


def to_arviz(draws: Draws, posterior: Any = None, data: Any = None, **how: Any) -> DataTree:
    """Compute `Draws.to_arviz`."""
    with progress_shown(how.pop("progress", True), summary=False):
        with stage("loading ArviZ"):
            from xarray import DataTree

        found = groups(draws, posterior, data, **how)
        return DataTree.from_dict({f"/{name}": dataset for name, dataset in found.items()})


def to_inferencedata(draws: Draws, posterior: Any = None, data: Any = None, **how: Any) -> Any:
    """Compute `Draws.to_inferencedata`."""
    container = legacy_inference_data()
    with progress_shown(how.pop("progress", True), summary=False):
        return container(**groups(draws, posterior, data, **how))


def groups(
    draws: Draws,
    posterior: Any = None,
    data: Any = None,
    *,
    outcome: Any = None,
    simulate: Callable | None = None,
    max_bytes: int = 2**28,
    weights: Literal["resample", "keep"] = "resample",
    seed: int = 0,
) -> dict[str, Dataset]:
    """Return the available ArviZ groups by name, as for `Draws.to_arviz`."""
    whole_number("max_bytes", max_bytes)
    check_seed(seed)
    if weights not in ("resample", "keep"):
        raise UsageError(f'weights must be "resample" or "keep". Got {weights!r}.')
    if draws.moments is not None:
        raise RunError(
            "this run kept only moments, not draws, so it cannot be converted to ArviZ; sample without keep."
        )
    chosen = choose(draws, weights=weights == "resample")
    if chosen.resampled:
        warnings.warn(RESAMPLED_NOTE, SGLDWarning, stacklevel=4)
    with stage("data"):
        subject = _known(draws, posterior, data, outcome, simulate)
        found = {
            "posterior": _parameters(draws, draws.position, chosen, subject),
            "sample_stats": _stats(draws, chosen),
        }
    if subject is not None:
        with stage("log likelihoods and predictions"):
            found |= _of_rows(draws, subject, chosen, max_bytes, seed)
        with stage("prior"):
            found |= _prior(draws, subject, seed)
    facts = {"inference_library": "sgld", "verdict": draws.verdict.word}
    found["posterior"].attrs |= facts | ({"resampled": RESAMPLED_NOTE} if chosen.resampled else {})
    return found


def _known(
    draws: Draws, posterior: Any, data: Any, outcome: Any, simulate: Callable | None
) -> Subject | None:
    """Return the given model or the one that the draws know; None if there is neither."""
    origin = draws.origin
    if posterior is None:
        if origin is None or origin.kept:
            return None
        if origin.path is not None and origin.posterior is None and origin.model is None:
            from ..results.run_directory import RunDirectory

            if RunDirectory(origin.path).begun().get("kind") != "formula":
                return None
    return subject_of(draws, posterior, data, outcome=outcome, simulate=simulate)


def _dataset(values: dict[str, Any], dims: dict[str, Any], coords: Any, sample: bool) -> Dataset:
    from arviz_base import dict_to_dataset

    sample_dims = ["chain", "draw"] if sample else []
    with warnings.catch_warnings():  # many chains of few draws are intended
        warnings.filterwarnings("ignore", message="Found chain dimension to be longer")
        return dict_to_dataset(
            values, dims={n: list(d) for n, d in dims.items() if n in values}, coords=coords,
            sample_dims=sample_dims, skip_event_dims=True,
        )  # fmt: skip


def _parameters(
    draws: Draws, position: Any, chosen: Chosen | None, subject: Subject | None
) -> Dataset:
    """Build a dataset of parameters [chain, draw, ...] with axes from names and model."""
    names, leaves = leaf_names(position), jax.tree.leaves(position)
    values, coords, dims, start = {}, {}, {}, 0
    own = {} if subject is None else subject.dims
    for name, leaf in zip(names, leaves, strict=True):
        leaf = np.asarray(leaf)
        shape = leaf.shape[2:]
        values[name] = leaf
        if chosen is not None:
            values[name] = chosen.leaf(draws, leaf).reshape(*chosen.at.shape, *shape)
        size = int(np.prod(shape))
        if name in own:
            dims[name] = own[name]
        elif len(shape) == 1:
            labels = [_inside(name, text) for text in draws.names[start : start + size]]
            dims[name], coords[f"{name}_dim"] = [f"{name}_dim"], labels
        start += size
    if subject is not None:
        used = {axis for name in values for axis in own.get(name, ())}
        coords |= {axis: labels for axis, labels in subject.coords.items() if axis in used}
    return _dataset(values, dims, coords, sample=True)


def _inside(leaf: str, name: str) -> Any:
    """Return 3 for `beta[3]` of leaf `beta`, and any other name unchanged."""
    if name.startswith(leaf + "[") and name.endswith("]"):
        return int(name[len(leaf) + 1 : -1])
    return name


def _stats(draws: Draws, chosen: Chosen) -> Dataset:
    shape = chosen.at.shape
    stats = {
        name: chosen.leaf(draws, getattr(draws, name)).reshape(shape)
        for name in ("log_weight", "step_size", "temperature")
    }
    if chosen.resampled:  # all weights are equal
        stats["log_weight"] = np.zeros(shape)
    return _dataset(stats, {}, {}, sample=True)


def _of_rows(
    draws: Draws, subject: Subject, chosen: Chosen, max_bytes: int, seed: int
) -> dict[str, Dataset]:
    """Build the groups of rows: log likelihoods, predictions, outcomes and constants.

    There are as many rows as `max_bytes` allows.
    """
    rows = subject.rows
    if rows is None:
        return {}
    most = max(1, max_bytes // (NUMBER_BYTES * chosen.count))
    numbers = _some(rows.count, most, seed)
    positions = subject.position(chosen.of(draws, draws.position))
    shape, coords = chosen.at.shape, {ROW_DIMENSION: np.asarray(rows.names(numbers))}

    def dataset(values: dict[str, Any], sample: bool, every: int = 1) -> Dataset:
        lead = 2 if sample else 0
        dims = {
            name: [ROW_DIMENSION, *(f"{name}_dim_{k}" for k in range(1, np.ndim(value) - lead))]
            for name, value in values.items()
        }
        some = {"draw": np.arange(0, shape[1], every)} if every > 1 else {}
        made = _dataset(values, dims, coords | some, sample)
        if every > 1:
            made.attrs["draws"] = (
                f"one of {every} draws of each chain, since all give more than {MAX_OUTCOMES} outcomes."
            )
        if len(numbers) < rows.count:
            made.attrs["subsample"] = (
                f"{len(numbers)} of {rows.count} rows, drawn without replacement with seed {seed}, since "
                f"all rows take more than max_bytes = {max_bytes}."
            )
        return made

    values = rows.values(positions, numbers).T.reshape(*shape, len(numbers))
    found = {"log_likelihood": dataset({subject.outcome: values}, True)}
    if subject.replicate is not None:
        every = min(shape[1], -(-chosen.count * len(numbers) // MAX_OUTCOMES))
        fewer = Chosen(chosen.at[:, ::every], chosen.resampled)
        positions = subject.position(fewer.of(draws, draws.position))
        made = subject.replicate(positions, numbers, seed)
        made = {n: v.reshape(*fewer.at.shape, *v.shape[1:]) for n, v in made.items()}
        found["posterior_predictive"] = dataset(made, True, every)
    for group, arrays in (("observed_data", subject.observed), ("constant_data", subject.constant)):
        if arrays:
            found[group] = dataset({n: v[numbers] for n, v in arrays.items()}, False)
    return found


def _some(count: int, most: int, seed: int) -> Int[np.ndarray, " n"]:
    """Return all of `count` rows, or a sorted random sample of `most` of them."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng([seed, 9]).choice(count, most, replace=False))


def _prior(draws: Draws, subject: Subject, seed: int) -> dict[str, Dataset]:
    """Return the group of prior draws, if the prior can be sampled."""
    if subject.prior is None:
        return {}
    try:
        found = subject.prior(PRIOR_DRAWS, seed)
    except NotImplementedError:  # raised by NumPyro for an improper prior
        return {}
    one_chain = jax.tree.map(lambda leaf: np.asarray(leaf)[None], found)
    return {"prior": _parameters(draws, one_chain, None, subject)}
