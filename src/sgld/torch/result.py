"""An ensemble of what a run drew, and what it says of itself in at most 20 lines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import UsageError
from ..results.draws import Draws
from ..results.run_directory import RunDirectory
from ..results.summary import layer_table, predictions_lines
from ..results.verdict import Verdict
from . import network
from .ensemble import Ensemble
from .run_files import Found, finished_run

__all__ = ["draws_of", "ensemble_in", "ensemble_of", "summary_of"]


def ensemble_of(model: torch.nn.Module, found: Found) -> Ensemble:
    """The draws of a run as copies of the module's state_dict; what was not sampled is shared by all."""
    ensemble = Ensemble(model)
    held = model.state_dict(keep_vars=True)
    named = {id(p): name for name, p in model.named_parameters()}
    places = {key: named.get(id(value)) for key, value in held.items()}
    kept = {
        key: value.detach().to("cpu", copy=True)
        for key, value in held.items()
        if places[key] not in found.names
    }
    sizes = {name: dict(model.named_parameters()).get(name) for name in found.names}
    if any(p is None for p in sizes.values()) or found.weights.shape[-1] != sum(
        p.numel() for p in sizes.values() if p is not None
    ):
        raise UsageError(
            f"the run drew {found.weights.shape[-1]} weights, which are not the model's; give a model of the same "
            "architecture."
        )
    flat = torch.from_numpy(np.array(found.weights)).flatten(0, 1)
    for draw in flat:
        own, begin = {}, 0
        for name, p in sizes.items():
            assert p is not None
            own[name] = draw[begin : begin + p.numel()].reshape(p.shape).to(p.dtype, copy=True)
            begin += p.numel()
        state = {key: kept[key] if key in kept else own[str(places[key])] for key in held}
        ensemble.states.append(state)
        ensemble._weights.append(1.0)
    ensemble._chains = found.weights.shape[0]
    ensemble.verdict, ensemble.info = found.verdict, found.info
    return ensemble


def ensemble_in(path: str | Path, model: torch.nn.Module) -> Ensemble:
    """The draws of a finished run directory; UsageError for a model that is another where it was not sampled."""
    return ensemble_of(model, finished_run(RunDirectory(path), model))


def summary_of(verdict: Verdict, info: dict[str, Any], kept: int) -> str:
    """A table of layers, how well predictions mixed, lengths and seconds, the verdict."""
    extra = verdict.extra
    lines = layer_table(extra["layers"]) if "layers" in extra else []
    lines += predictions_lines(extra["predictions"]) if "predictions" in extra else []
    if info:
        took = ", ".join(f"{name} {seconds:.1f}" for name, seconds in info["took"].items())
        lines.append(
            f"{info['chains']} chains x {info['draws']} draws (weights of {kept} kept), {info['steps']:,} steps of "
            f"{info['batch_size']:,} of {info['rows']:,} rows, delta {math.sqrt(info['step_size']):.3g}; "
            f"{info['seconds']:.1f} s: {took}"
        )
    return "\n".join([*lines, f"verdict: {verdict}"])


def draws_of(ensemble: Ensemble) -> Draws:
    """Each parameter under its name, [chain, draw, ...], tied ones once and buffers not at all."""
    of_chains = (ensemble._chains, -1)
    log_weight = ensemble._normalised().log().numpy().reshape(of_chains)
    position = {
        name: ensemble.draws_of(name)
        .to(network.exportable(p.dtype))
        .unflatten(0, of_chains)
        .numpy()
        for name, p in ensemble.model.named_parameters()
    }
    return Draws.of(position, log_weight=log_weight, verdict=ensemble.verdict)
