"""Draws of a network's weights: collect, predict with uncertainty, save and load.

A draw is a copy of the state_dict; its weight is the size of the step taken FROM it (Teh, Thiery
& Vollmer 2016), that is the optimiser's step size when it is collected. Predictions average what
the draws predict, never the weights themselves:

    p(y | x) = sum_s w_s p(y | x, theta_s) / sum_s w_s
    H[p(y | x)] = sum_s w_s H[p(y | x, theta_s)] + mutual information        (nats)
       total    =           aleatoric            +      epistemic

What a draw that is collected from a training loop must be, and what it weighs.

An ensemble on disk: one .npz of plain arrays, and a JSON text in it; never a pickle.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from ..errors import DataError, UsageError
from ..results.late import late
from ..results.verdict import NOT_JUDGED, Verdict
from . import network
from .langevin import Langevin, require
from .monitor import dropout_said, say
from .predictive import Classes, Values, check_values, classes, values

if TYPE_CHECKING:
    from xarray import DataTree

# -- collected -----------------------------------------------------------------------------


def check_entries(state: Mapping[str, Any]) -> None:
    """Raise UsageError unless a state_dict holds finite tensors."""
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(
                f"a draw is made of tensors. Got {type(value).__name__} in the state_dict's "
                f"{name!r}; remove the module's extra state."
            )
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise UsageError(
                f"weights must be finite. Got nan or inf in {name!r}: the run has diverged; "
                "use a smaller step_size."
            )


def step_of(
    optimizer: torch.optim.Optimizer, first: list[float] | None
) -> tuple[float, list[float] | None]:
    """Return the optimiser's step size, and those of its groups when it was first positive.

    UsageError where the groups' steps no longer are to one another as they were then.
    """
    steps = [float(group["lr"]) for group in optimizer.param_groups]
    if first is None:
        return max(steps), steps if max(steps) > 0 else None
    if len(steps) != len(first) or any(
        not math.isclose(a * max(first), b * max(steps), rel_tol=1e-6, abs_tol=0.0)
        for a, b in zip(steps, first, strict=True)
    ):
        raise UsageError(
            f"the step sizes of the groups must keep their proportion, to be one weight. Got "
            f"{steps} after {first}; give weight= instead."
        )
    return max(steps), first


def check_statistics(model: torch.nn.Module, first: Mapping[str, torch.Tensor]) -> None:
    """Raise UsageError for running statistics that still change, or differ from the first ones."""
    found = network.running_statistics(model)
    for name, old in first.items():
        new = found.get(name)
        if new is None or not torch.equal(old, new):
            raise UsageError(
                f"{name} has changed since the Ensemble was made: batch normalisation ran in "
                f"training mode; {network.NORMALISATION_REMEDY}"
            )


def say_where_dropping(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, said: bool
) -> bool:
    """Warn of dropout in training mode, unless a warning was `said`, or one of this module's optimisers saw it.

    Returns: whether it has been looked at by now.
    """
    if said or not isinstance(optimizer, Langevin):
        return said
    where = network.dropping(model)
    if where and not optimizer._watch.dropout:
        say(dropout_said(type(optimizer).__name__, where))
    return True


# -- storage -------------------------------------------------------------------------------


_FORMAT = "sgld.torch.Ensemble 1"
_PLAIN = {
    str(t): t
    for t in (
        torch.float16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16,
        torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128,
    )
}  # fmt: skip
_AS_BITS = {str(torch.bfloat16): torch.bfloat16}  # numpy has no such numbers: their 16 bits


def as_path(path: Any) -> Path:
    """Return a Path; UsageError unless it is one."""
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(
            f"path must be that of a file or a run directory, as in Ensemble.load(path, model). Got {type(path).__name__}."
        )
    return Path(path)


def write(
    path: Path, states: list[dict[str, torch.Tensor]], weights: np.ndarray, about: dict[str, Any]
) -> None:
    """Write one array [draw, ...] per entry of the state_dict, or [1, ...] if all draws share the entry.

    `about` is JSON-ready. The file appears when it is whole.
    """
    arrays: dict[str, np.ndarray] = {}
    entries = []
    for i, (name, first) in enumerate(states[0].items()):
        dtype = str(first.dtype)
        if dtype not in _PLAIN and dtype not in _AS_BITS:
            raise DataError(f"{name!r} cannot be saved: its dtype is {dtype}.")
        shared = len(states) > 1 and all(state[name] is first for state in states)
        stacked = first[None] if shared else torch.stack([state[name] for state in states])
        arrays[f"entry{i}"] = (stacked.view(torch.int16) if dtype in _AS_BITS else stacked).numpy()
        entries.append({"name": name, "dtype": dtype, **({"shared": True} if shared else {})})
    text = json.dumps({"format": _FORMAT, "entries": entries, **({"run": about} if about else {})})
    arrays["about"] = np.frombuffer(text.encode(), np.uint8)
    if path.is_dir():
        raise UsageError(
            f"path must be that of a file, and {path} is a directory; give {path / 'draws.npz'}."
        )
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            np.savez(file, weights=weights, **arrays)  # pyright: ignore[reportArgumentType]
        partial.replace(path)
    except OSError as error:
        raise DataError(f"{path} could not be written: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)


def read(path: Path) -> tuple[list[dict[str, torch.Tensor]], np.ndarray, dict[str, Any]]:
    """Read states, weights, and the description of the run; DataError for a file that `write` did not make."""
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            about = json.loads(bytes(file["about"]).decode())
            if about["format"] != _FORMAT:
                raise ValueError(f"its format is {about['format']!r}")
            weights = np.asarray(file["weights"], np.float64)
            whole = {
                entry["name"]: _tensor(file[f"entry{i}"], entry["dtype"])
                for i, entry in enumerate(about["entries"])
            }
            shared = {entry["name"] for entry in about["entries"] if entry.get("shared")}
            run = dict(about.get("run", {}))
            if run and (Verdict.from_dict(run["verdict"]).judged, len(weights) % run["chains"]) != (True, 0):  # fmt: skip
                raise ValueError("its draws are not those of so many chains")
    except FileNotFoundError as error:
        raise DataError(
            f"there is no file {path}; give the one that save() wrote, or a run directory of sgld.torch.sample."
        ) from error
    except (ValueError, TypeError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} is not an ensemble that save() wrote ({_first_sentence(error)}); give that file."
        ) from error
    size = weights.shape
    sizes = {name: (1,) if name in shared else size for name in whole}
    if weights.ndim != 1 or not weights.size or any(t.shape[:1] != sizes[name] for name, t in whole.items()):  # fmt: skip
        raise DataError(f"{path} is damaged: its entries have different numbers of draws.")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise DataError(f"{path} is damaged: a weight is negative or not finite.")
    common = {name: whole[name][0].clone() for name in shared}
    states = [
        {k: common[k] if k in shared else v[s].clone() for k, v in whole.items()}
        for s in range(len(weights))
    ]
    return states, weights, run


def _tensor(array: np.ndarray, dtype: Any) -> torch.Tensor:
    if dtype in _AS_BITS:
        return torch.from_numpy(array.astype(np.int16, copy=False)).view(_AS_BITS[dtype])
    if dtype not in _PLAIN:
        raise ValueError(f"dtype {dtype!r} is unknown")
    tensor = torch.from_numpy(array)
    if tensor.dtype != _PLAIN[dtype]:
        raise ValueError(f"an array of {tensor.dtype} is said to be {dtype}")
    return tensor


def _first_sentence(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


# -- ensemble ------------------------------------------------------------------------------


class Ensemble:
    """Weighted copies of a network's weights, collected manually or drawn by `sgld.torch.sample`.

    Args:
      model: the network whose weights are copied and which is called to predict; its own
        weights and its training mode are left as they are.

    Attributes:
      verdict: how far to trust the draws; "unknown" for manually collected weights, which nothing judged.
      info: of a run of `sgld.torch.sample`: its lengths, and seconds by stage.

    Raises: UsageError for batch normalisation in training mode, whose running statistics are
    no part of a draw: they come from other weights than the draw's.

    Example:
      >>> import torch, sgld.torch
      >>> model = torch.nn.Linear(1, 2, bias=False)
      >>> ensemble = sgld.torch.Ensemble(model)
      >>> for slope in (0.0, 2.0):
      ...     _ = torch.nn.init.constant_(model.weight, slope)
      ...     with torch.no_grad():
      ...         model.weight[1] = 0.0
      ...     ensemble.collect()
      >>> ensemble
      Ensemble(Linear, 2 draws of 2 weights, effective number 2)
      >>> ensemble.weights  # [draw]
      tensor([1., 1.], dtype=torch.float64)
      >>> ensemble(torch.ones(1, 1)).shape  # [draw, row, output]
      torch.Size([2, 1, 2])
      >>> ensemble.predict_proba(torch.ones(1, 1))
      tensor([[0.6904, 0.3096]], dtype=torch.float64)
    """

    def __init__(self, model: torch.nn.Module) -> None:
        if not isinstance(model, torch.nn.Module):
            raise UsageError(f"Ensemble takes a torch.nn.Module. Got {type(model).__name__}.")
        self.model = model
        self.states: list[dict[str, torch.Tensor]] = []
        self._weights: list[float] = []
        self._steps: list[float] | None = None
        self._statistics = network.running_statistics(model)
        self._dropout_said = False
        self.verdict: Verdict = NOT_JUDGED
        self.info: dict[str, Any] = {}
        self._chains = 1  # the draws are theirs in turn
        self._run: Any = None  # of this session, to go on from

    def __repr__(self) -> str:
        """Show the network, its draws, their effective number, and the verdict."""
        count = sum(p.numel() for p in self.model.parameters())
        draws = "1 draw" if len(self) == 1 else f"{len(self)} draws"
        said = f"{type(self.model).__name__}, {draws} of {count} weights"
        w = self.weights
        if float(w.sum()) > 0:
            said += f", effective number {float(w.sum() ** 2 / (w**2).sum()):.3g}"
        if self.verdict.judged:
            said += f", {self.verdict.word}"
        return f"Ensemble({said})"

    def summary(self) -> str:
        """Summarise every layer, how well predictions mixed, and the verdict, in at most 20 lines.

        Example:
          >>> import torch, sgld.torch
          >>> print(sgld.torch.Ensemble(torch.nn.Linear(3, 2)).summary())
          verdict: unknown: the draws were not judged
        """
        return late("torch_summary")(self.verdict, self.info, len(self))

    def step_halving(self, *, progress: bool = True) -> Verdict:
        """Run again with a halved step from where the chains ended, and compare predictions.

        Args:
          progress: the stages and about how long is left, on standard error.

        Returns: the verdict of both, which becomes the ensemble's; a run that is `biased` or `not mixed`
        keeps that word. Takes twice as long as the sampling.

        Raises: UsageError for draws that `sgld.torch.sample` did not make in this session.

        Example:
          >>> import torch, sgld.torch
          >>> sgld.torch.Ensemble(torch.nn.Linear(3, 2)).step_halving()
          Traceback (most recent call last):
          sgld.errors.UsageError: step_halving needs ...
        """
        self.verdict = late("torch_step_halving")(self.verdict, self._run, progress)
        return self.verdict

    def __call__(self, x: Any, *, batch_size: int | None = None) -> torch.Tensor:
        """Compute each draw's outputs for rows x, [draw, row, ...], as `outputs` does.

        Nothing is averaged: the mean of logits is not the logit of the mean. `predict_proba`,
        `predict_classes` and `predict_values` average what it means.
        """
        return self.outputs(x, batch_size=batch_size)

    def __len__(self) -> int:
        """Return the number of draws."""
        return len(self.states)

    @property
    def weights(self) -> torch.Tensor:
        """Weights [draw] as collected, which need not sum to 1."""
        return torch.tensor(self._weights, dtype=torch.float64)

    def draws_of(self, name: str) -> torch.Tensor:
        """Return one entry of the state_dict in every draw, [draw, ...].

        Args:
          name: as in the state_dict, such as "0.weight".

        Raises: UsageError without draws, or for a name that is not there.

        Example:
          >>> import torch, sgld.torch
          >>> ensemble = sgld.torch.Ensemble(torch.nn.Linear(3, 2))
          >>> ensemble.collect()
          >>> ensemble.draws_of("weight").shape
          torch.Size([1, 2, 3])
        """
        self._some_draws()
        if name not in self.states[0]:
            raise UsageError(f"name must be one of {', '.join(self.states[0])}. Got {name!r}.")
        return torch.stack([state[name] for state in self.states])

    def collect(
        self, optimizer: torch.optim.Optimizer | None = None, *, weight: float = 1.0,
        model: torch.nn.Module | None = None,
    ) -> None:  # fmt: skip
        """Add a copy of the weights as they are now, on the CPU.

        Args:
          optimizer: one of this module's, whose step size becomes the draw's weight; call after
            scheduler.step(), so that it is the size of the next step.
          weight: without an optimiser, the draw's weight.
          model: another network of the same architecture (a deep ensemble's member).

        Raises: UsageError for weights that are not finite, another architecture, running
        statistics that have changed, or groups whose steps have changed their proportion. Warns
        (SGLDWarning), once, where an optimiser of this module trained a network with dropout on.

        Example:
          >>> import torch, sgld.torch
          >>> ensemble = sgld.torch.Ensemble(torch.nn.Linear(3, 2))
          >>> ensemble.collect(weight=0.5)
          >>> len(ensemble), ensemble.weights
          (1, tensor([0.5000], dtype=torch.float64))
        """
        source = self.model if model is None else model
        check_statistics(source, self._statistics if model is None else {})
        state = source.state_dict()
        check_entries(state)
        network.check_shapes(state, self.states[0] if self.states else self.model.state_dict())
        if optimizer is None:
            require("weight", weight, zero=True)
        else:
            weight, self._steps = step_of(optimizer, self._steps)
            self._dropout_said = say_where_dropping(source, optimizer, self._dropout_said)
        self._weights.append(float(weight))
        self.states.append({k: v.detach().to("cpu", copy=True) for k, v in state.items()})

    def outputs(self, x: Any, *, batch_size: int | None = None) -> torch.Tensor:
        """Compute each draw's outputs for rows x, [draw, row, ...], on the CPU.

        Args:
          x: a tensor, or a tuple of tensors (the network's arguments), rows first. Arrays and
            lists become tensors of the network's floating dtype, and so do floating tensors of
            a dtype that no weight has; a tensor of integers (an embedding's) stays one. Or a dict
            of tensors, the arguments by name.
          batch_size: rows at once; None: all.

        Raises: UsageError without draws, or for x that is no such thing.

        Example:
          >>> import torch, sgld.torch
          >>> ensemble = sgld.torch.Ensemble(torch.nn.Linear(3, 2))
          >>> ensemble.collect()
          >>> ensemble.outputs([[1.0, 2.0, 3.0]]).shape
          torch.Size([1, 1, 2])
        """
        return torch.stack(list(self._each(x, batch_size)))

    def predict_proba(self, x: Any, *, batch_size: int | None = None) -> torch.Tensor:
        """Average the probabilities of the classes over the draws: [row, class].

        Args:
          x: as in `outputs`.
          batch_size: rows at once; None: all.

        Raises: as `predict_classes`, which gives their entropies too.

        Example:
          >>> import torch, sgld.torch
          >>> ensemble = sgld.torch.Ensemble(torch.nn.Linear(3, 2))
          >>> ensemble.collect()
          >>> ensemble.predict_proba(torch.zeros(4, 3)).shape
          torch.Size([4, 2])
        """
        return self.predict_classes(x, batch_size=batch_size).probabilities

    def predict_classes(self, x: Any, *, batch_size: int | None = None) -> Classes:
        """Compute mean probabilities and the two parts of their entropy.

        The network's outputs [row, class] are logits; one output is the logit of the second of
        two classes.

        Args:
          x: as in `outputs`.
          batch_size: rows at once; None: all.

        Raises: UsageError without draws, for outputs of another shape, or of a run whose loss takes no logits.

        Example:
          >>> import torch, sgld.torch
          >>> model = torch.nn.Linear(1, 1)
          >>> ensemble = sgld.torch.Ensemble(model)
          >>> for logit in (-3.0, 3.0):  # two draws that are sure, and disagree
          ...     _ = torch.nn.init.constant_(model.bias, logit)
          ...     ensemble.collect()
          >>> found = ensemble.predict_classes([[0.0]])
          >>> found.probabilities
          tensor([[0.5000, 0.5000]], dtype=torch.float64)
          >>> found.aleatoric, found.epistemic
          (tensor([0.1909], dtype=torch.float64), tensor([0.5023], dtype=torch.float64))
        """
        return classes(self._each(x, batch_size), self._normalised(), self.info.get("outputs"))

    def predict_values(
        self, x: Any, *, interval: float = 0.9, noise_sd: Any = 0.0, batch_size: int | None = None
    ) -> Values:
        """Compute mean, sd and central interval of y, whose mean is the network's output.

        Args:
          x: as in `outputs`.
          interval: the probability between `lower` and `upper`.
          noise_sd: the sd of y around the output: a number, one per draw ([draw] or [draw, 1]),
            or [draw, row, ...] like `outputs`, where an axis may be 1; 0 gives the law of the
            output alone.
          batch_size: rows at once; None: all.

        Raises: UsageError without draws, of a run whose loss takes logits, for interval outside (0, 1),
        or for a noise_sd that is negative or has another shape.

        Example:
          >>> import torch, sgld.torch
          >>> model = torch.nn.Linear(1, 1)
          >>> ensemble = sgld.torch.Ensemble(model)
          >>> for level in (1.0, 3.0):
          ...     _ = torch.nn.init.constant_(model.bias, level)
          ...     ensemble.collect()
          >>> found = ensemble.predict_values([[0.0]], noise_sd=1.0)
          >>> found.mean.item(), found.epistemic_sd.item(), found.sd.item()  # sd^2 = 1 + 1
          (2.0, 1.0, 1.414...)
        """
        if not 0 < interval < 1:
            raise UsageError(f"interval must be above 0 and below 1. Got {interval}.")
        check_values(self.info.get("outputs"))
        return values(
            self.outputs(x, batch_size=batch_size), self._normalised(), noise_sd, interval
        )

    def to_arviz(
        self, *, weights: Literal["resample", "keep"] = "resample", seed: int = 0
    ) -> DataTree:
        """Convert the draws to a DataTree for ArviZ with `posterior` and `sample_stats`; one chain, if none are known.

        `posterior` holds each parameter under its name, [chain, draw, ...], tied ones once and
        buffers not at all.

        Args:
          weights: "resample": draws of unequal weights are resampled to equal ones, since ArviZ knows
            no others, and a warning says so; "keep" leaves the weights to `sample_stats`.
          seed: of the resampling.

        Raises: UsageError without draws of positive weight.

        Example:
          >>> import torch, sgld.torch
          >>> ensemble = sgld.torch.Ensemble(torch.nn.Linear(3, 2))
          >>> for _ in range(4):
          ...     ensemble.collect()
          >>> ensemble.to_arviz()["posterior"]["weight"].shape
          (1, 4, 2, 3)
        """
        return late("torch_draws")(self).to_arviz(weights=weights, seed=seed)

    def save(self, path: str | Path) -> None:
        """Save one .npz file of plain arrays and a JSON text; nothing in it is a pickle.

        Args:
          path: of the file, which is replaced where it exists; it appears when it is whole.

        Raises: UsageError without draws; DataError for a dtype that numpy cannot hold, or a file that cannot be written.

        Example:
          >>> import tempfile, torch, sgld.torch
          >>> model = torch.nn.Linear(3, 2)
          >>> ensemble = sgld.torch.Ensemble(model)
          >>> ensemble.collect()
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     ensemble.save(f"{folder}/draws.npz")
          ...     sgld.torch.Ensemble.load(f"{folder}/draws.npz", model)
          Ensemble(Linear, 1 draw of 8 weights, effective number 1)
        """
        self._some_draws()
        judged = {"verdict": self.verdict.to_dict(), "info": self.info, "chains": self._chains}
        about = judged if self.verdict.judged else {}
        write(as_path(path), self.states, np.asarray(self._weights, np.float64), about)

    @classmethod
    def load(cls, path: str | Path, model: torch.nn.Module) -> Ensemble:
        """Load what `save` wrote, for a network of the same architecture, whose weights do not change.

        Args:
          path: of the file; or a run directory of `sgld.torch.sample`, whose draws take what was not sampled
            from `model`.
          model: the network that is called to predict.

        Raises: DataError for no such file, or any other; UsageError for no path, or another architecture.

        Example:
          >>> import torch, sgld.torch
          >>> sgld.torch.Ensemble.load("draws.npz", torch.nn.Linear(3, 2))
          Traceback (most recent call last):
          sgld.errors.DataError: there is no file draws.npz; ...
        """
        path = as_path(path)
        if path.is_dir():
            return late("torch_load")(path, model)
        ensemble = cls(model)
        states, weights, about = read(path)
        if about:
            ensemble.verdict, ensemble.info = Verdict.from_dict(about["verdict"]), about["info"]
            ensemble._chains = about["chains"]
        network.check_shapes(states[0], model.state_dict())
        ensemble.states, ensemble._weights = states, [float(w) for w in weights]
        return ensemble

    def _some_draws(self) -> None:
        if not self.states:
            raise UsageError("the Ensemble has no draws yet; call collect() after the burn-in.")

    def _normalised(self) -> torch.Tensor:
        self._some_draws()
        w = self.weights
        if not float(w.sum()) > 0:
            raise UsageError("every draw has weight 0; collect while the step size is positive.")
        return w / w.sum()

    def _each(self, x: Any, batch_size: int | None) -> Iterator[torch.Tensor]:
        """Yield the outputs of one draw after the other, in float64 on the CPU."""
        self._some_draws()
        if batch_size is not None and batch_size < 1:
            raise UsageError(f"batch_size must be positive. Got {batch_size}.")
        return network.outputs(self.model, self.states, x, batch_size)
