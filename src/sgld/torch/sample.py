"""`sgld.torch.sample`: the posterior of a module's weights in one call, judged by its predictions.

`Ensemble.step_halving`: repeat with a halved step, and the verdict of the comparison.

An ensemble of what a run drew, and what it says of itself in at most 20 lines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.files import reading
from ..core.progress import MIN_DEADLINE_SECONDS, deadline, progress_shown, stage
from ..core.user_code import FOREIGN_ARGUMENTS, check_argument_names
from ..core.validation import (
    check_interval,
    check_seed,
    check_tolerance,
    positive_number,
    whole_number,
)
from ..core.work import Work
from ..diagnostics.function_space.predictions import (
    MAX_PROBE_NUMBERS,
    MAX_PROBE_ROWS,
    MIN_PROBE_ROWS,
)
from ..diagnostics.function_space.verdict import HALF_STEP, SMALLER_STEP_REMEDY, Change
from ..errors import DataError, RunError, UsageError
from ..inference.execute import MAX_ATTEMPTS
from ..inference.tuning import network_rules as rule
from ..inference.tuning.network_backend import tuned
from ..results.draws import Draws
from ..results.run_directory import RunDirectory, no_run, noting_stored_part
from ..results.summary import layer_table, predictions_lines
from ..results.verdict import Verdict
from . import network
from .chains import MAX_KEPT_DRAWS, Chains, Record, lengths, num_directions
from .dynamics import Motion, Order, State
from .ensemble import Ensemble
from .likelihood import checked
from .monitor import say
from .rows import Inputs, probe_inputs, read_rows
from .run_files import (
    RUN_STREAM,
    Files,
    Found,
    check_unchanged,
    finished_run,
    of_torch,
    read_checkpoint,
    read_given,
    tidied,
)
from .target import Prior, Target, Weights, prior_of
from .tuning import Asked, generator_of, optimised_chains, price, stiffest
from .verdict import draws_wanted, first_draw, half_the_step, judged, looked_further, smaller

# -- result --------------------------------------------------------------------------------


def ensemble_of(model: torch.nn.Module, found: Found) -> Ensemble:
    """Return the draws of a run as copies of the module's state_dict; all share what was not sampled."""
    ensemble = Ensemble(model)
    held = model.state_dict(keep_vars=True)
    named = {id(p): name for name, p in model.named_parameters()}
    places = {key: named.get(id(value)) for key, value in held.items()}
    kept = {
        key: value.detach().to("cpu", copy=True)
        for key, value in held.items()
        if places[key] not in found.names
    }
    parameters = dict(model.named_parameters())
    sampled = [parameters[name] for name in found.names if name in parameters]
    fits = found.weights.shape[-1] == sum(p.numel() for p in sampled)
    if len(sampled) != len(found.names) or not fits:
        raise UsageError(
            f"the run drew {found.weights.shape[-1]} weights, which are not the model's; give a model of the same "
            "architecture."
        )
    shapes, dtypes = tuple(p.shape for p in sampled), tuple(p.dtype for p in sampled)
    weights = Weights(found.names, shapes, dtypes, torch.device("cpu"))
    for draw in torch.from_numpy(np.array(found.weights)).flatten(0, 1):
        own = {name: value.clone() for name, value in weights.named(draw).items()}
        state = {key: kept[key] if key in kept else own[str(places[key])] for key in held}
        ensemble.states.append(state)
        ensemble._weights.append(1.0)
    ensemble._chains = found.weights.shape[0]
    ensemble.verdict, ensemble.info = found.verdict, found.info
    return ensemble


def ensemble_in(path: str | Path, model: torch.nn.Module) -> Ensemble:
    """Return the draws of a finished run directory; UsageError for a model with other values of what was not sampled."""
    return ensemble_of(model, finished_run(RunDirectory(path), model))


def summary_of(verdict: Verdict, info: dict[str, Any], kept: int) -> str:
    """Summarise layers, how well predictions mixed, lengths and seconds, and the verdict."""
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
    """Return each parameter under its name, [chain, draw, ...], tied ones once and buffers not at all."""
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


# -- sample --------------------------------------------------------------------------------


TORCH_STAGES = ("data", "sampling", "verdict")  # stages
VERDICT_SHARE = 0.1  # of max_seconds, which sampling leaves
MIN_TIME_SHARE_LEFT = 0.4  # share of max_seconds that another attempt needs
_STEP = "left out, the step is chosen; a learning rate of the mean loss is step_size = lr / (rows in all the data)"
_PASSES = "what a run may take is max_seconds, or num_draws and thin; by itself it goes on until predictions have mixed"
OTHER_ARGUMENTS = {
    "lr": _STEP,
    "learning_rate": _STEP,
    "weight_decay": "the prior is prior_sd or prior_precision; a decay of the mean loss is prior_precision = "
    "weight_decay * (rows in all the data), and each weight is N(0, 1 / prior_precision) a priori",
    "momentum": "the sampler has momentum of its own, and its friction is chosen; leave it out",
    "friction": "it is chosen; leave it out",
    "num_data": "it is the number of rows of the data set",
    "temperature": "it is 1, the posterior's; sgld.torch.SGLD in a training loop takes another",
    **dict.fromkeys(("epochs", "num_epochs", "num_steps", "n_steps", "max_steps"), _PASSES),
    "where": "what is not to be sampled is frozen before: parameter.requires_grad_(False)",
    "keep": "an Ensemble keeps the weights, and its outputs(x) are what each draw gives",
}  # what training loops take, and this call does not


@check_argument_names(
    {**FOREIGN_ARGUMENTS, "num_chains": "chains", "n_chains": "chains", "lr": "step_size"},
    OTHER_ARGUMENTS,
)
def sample(
    model: torch.nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    dataset: Any,
    *,
    prior_sd: Any = None,
    prior_precision: float | None = None,
    prior: Any = None,
    chains: int = 4,
    max_seconds: float | None = None,
    probe: Any = None,
    seed: int = 0,
    path: str | Path | None = None,
    overwrite: bool = False,
    tolerance: float = 0.05,
    step_size: float | None = None,
    batch_size: int | None = None,
    num_draws: int | None = None,
    burn_in: int | None = None,
    thin: int | None = None,
    checkpoint_every: float = 10.0,
    progress: bool = True,
) -> Ensemble:
    """Draw a module's weights from their posterior, and say how far to trust what they predict.

        log p(theta | data) = - sum over rows of loss + log prior(theta)

    Each chain starts where an Adam of its own ended; metric and step of BAOA follow from Fisher
    information, curvature and gradient noise there, as in `sgld.sample` of a network; rows come in
    reshuffled batches, or all at every step where that is cheap. The run goes on until predictions at
    the probe rows have mixed, up to about half a minute by counted operations, or until max_seconds.
    Nothing but the parameters that require a gradient is sampled: a frozen trunk stays as it is.

    Args:
      model: called as model(*inputs), or model(**inputs) where rows are dicts; returns outputs [row, ...]
        or an object whose `logits` they are. Its own weights, which chains start around, do not change.
      loss: (outputs, target) -> minus the log likelihood of each row (reduction="none"; several numbers of
        a row are added up), or its mean over the rows.
      dataset: (inputs, target) as tensors or arrays, a dict of them with "labels", a Dataset, or a
        DataLoader, of which batch size and order are not looked at. Its rows are read once, as they are
        then: random transforms of them are frozen.
      prior_sd: every weight is normal a priori with mean 0 and this sd: a number, or {pattern of names: sd}.
      prior_precision: 1 / sd^2, instead of prior_sd.
      prior: instead of both, `sgld.networks.normal_prior(..., fan_in=True, learnt=True)`, `laplace_prior` or
        `student_t_prior`.
      chains: independent ones.
      max_seconds: of everything. Optimisers are given a sixth of it at most; sampling ends with the
        draws there are. RunError where there are fewer than 20 of each chain.
      probe: inputs of the rows whose predictions are judged (None: 64 of the data set's).
      seed: of everything random.
      path: a run directory; a killed run goes on with `sgld.torch.resume`.
      overwrite: replace a run directory that exists.
      tolerance: half of the excess temperature that gradient noise may add, in (0, .5].
      step_size: h = delta^2; None: chosen. A given value is never changed, only judged.
      batch_size: rows per step of a chain; None: 100, or all.
      num_draws: draws of a chain; None: chosen from step size and cost, and extended. A third of the
        whole run is dropped as burn-in.
      burn_in: steps before the first draw; None: chosen.
      thin: steps per draw; None: chosen.
      checkpoint_every: seconds, with `path`.
      progress: the stages and about how long is left, on standard error.

    Returns: Ensemble of at most 200 draws of each chain, with `.verdict` and `summary()`.

    Raises: UsageError for a model, loss or argument that is wrong (batch normalisation or dropout in
    training mode, a loss that is a sum, labels that the model has no output for, probe rows of another
    shape); DataError for rows, or first outputs, that are not finite; RunError for `path`. Warns
    (SGLDWarning) of weights in half precision, of which copies in float32 are sampled.

    Example:
      >>> import torch, sgld.torch
      >>> x = torch.linspace(-1, 1, 50)[:, None]
      >>> half = lambda outputs, y: 0.5 * (outputs - y) ** 2  # y ~ N(outputs, 1)
      >>> ensemble = sgld.torch.sample(
      ...     torch.nn.Linear(1, 1), half, (x, 2 * x), prior_sd=1.0, num_draws=200, thin=2, burn_in=50,
      ...     progress=False)
      >>> ensemble.verdict.judged, len(ensemble)
      (True, 800)
      >>> found = ensemble.predict_values([[1.0]], noise_sd=1.0)  # of y at x = 1
      >>> bool(abs(found.mean - 2) < 1), bool(found.sd > 1)
      (True, True)
    """
    began = time.monotonic()
    asked = Asked(
        chains, seed, tolerance, max_seconds, step_size, batch_size, num_draws, burn_in, thin
    )
    _check(asked, checkpoint_every)
    with progress_shown(progress, TORCH_STAGES):
        with stage("data"):
            weights = Weights.of(model)
            law = prior_of(prior, prior_sd, prior_precision, weights)
            rows = read_rows(dataset, weights.device, seed, network.floating(model))
            inputs = None if probe is None else probe_inputs(probe, rows)
            target = Target(checked(model, loss, rows), rows, weights, law)
            inputs = _probe(target) if inputs is None else _usable(target, inputs)
            _say_narrow(weights)
        files = Files(None if path is None else RunDirectory(path), checkpoint_every)
        with _held(files):
            files.begin(target, asked, inputs, overwrite)
            with few_threads(target, asked):
                return _Run(target, asked, inputs, files, began).ensemble(None)


def resume(
    path: str | Path,
    model: torch.nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    dataset: Any,
    *,
    progress: bool = True,
) -> Ensemble:
    """Go on with a run of `sgld.torch.sample` that was stopped, from its last checkpoint, or its beginning.

    On the same device and version of torch the draws are those of a run that was not stopped, bit for
    bit; max_seconds starts again. Of a finished run, what it drew.

    Args:
      path: its run directory.
      model: the same model; the sampled weights may differ.
      loss: the same loss.
      dataset: the same data set; None is accepted for a finished run, and is not checked.
      progress: as for `sample`.

    Raises: RunError where `path` is no run of this function or is damaged; UsageError where model, loss
    or data set have changed.

    Example:
      >>> import torch, sgld.torch
      >>> sgld.torch.resume("runs/nowhere", torch.nn.Linear(1, 1), torch.nn.functional.mse_loss, None)
      Traceback (most recent call last):
      sgld.errors.RunError: there is no run directory runs/nowhere; check the path.
    """
    began, directory = time.monotonic(), RunDirectory(path)
    if not directory.path.is_dir():
        raise no_run(path)
    directory.take_up()
    begun = of_torch(directory)
    if directory.finished() and dataset is None:
        return Ensemble.load(tidied(directory), model)
    with reading(directory.path):
        asked, every = Asked(**begun["asked"]), float(begun["checkpoint_every"])
    with progress_shown(progress, TORCH_STAGES):
        with stage("data"):
            weights = Weights.of(model)
            rows = read_rows(dataset, weights.device, asked.seed, network.floating(model))
            check_unchanged(directory.path, begun, model, weights, rows)
        if directory.finished():
            return Ensemble.load(tidied(directory), model)
        with stage("data"):
            start, inputs = read_given(directory, weights.flat(model), rows.inputs)
            with reading(directory.path):
                law = Prior.from_dict(begun["prior"], start)
            target = Target(checked(model, loss, rows), rows, weights, law, start)
        files = Files(directory, every)
        with _held(files):
            directory.lock()
            chains = read_checkpoint(directory, target, asked, inputs)
            with few_threads(target, asked):
                return _Run(target, asked, inputs, files, began).ensemble(chains)


def few_threads(target: Target, asked: Asked) -> AbstractContextManager[None]:
    """Use one thread if a step is too little work to share."""
    rows = min(asked.batch_size or target.num_data, target.num_data)
    return network.alone(asked.chains * target.dimension * rows, target.weights.device)


@contextmanager
def _held(files: Files) -> Iterator[None]:
    failed = True
    with noting_stored_part(files.directory):  # of what is there when all is closed
        try:
            yield
            failed = False
        finally:
            files.close(failed=failed)


@dataclass
class _Run:
    """From a target to judged draws.

    Attributes:
      began: the time (of time.monotonic) from which max_seconds counts.
      took: seconds of each stage.
    """

    target: Target
    asked: Asked
    probe: Inputs
    files: Files
    began: float
    took: dict[str, float] = field(default_factory=dict)

    def ensemble(self, chains: Chains | None) -> Ensemble:
        """Tune, unless there are chains to go on with; sample, again where the momentum is too warm; judge."""
        with stage("data"):
            least = self._least() if chains is None else 0.0  # a run that goes on is tuned
        self.took["data"] = time.monotonic() - self.began
        allowed = math.inf if self.asked.max_seconds is None else self.asked.max_seconds
        until = self.began + (1 - VERDICT_SHARE) * allowed
        if chains is None:
            with deadline(self.asked.max_seconds, until, least), self._timed("tuning"):
                chains = self._tuned(self.began + rule.TUNING_CLOCK_SHARE * allowed)
        while True:
            with self._timed("sampling"):
                chains.run(
                    lambda run: draws_wanted(run, self.asked), until, self.files.save, allowed
                )
            with stage("verdict"), self._timed("verdict"):
                verdict = judged(chains, self.asked)
            early = allowed == math.inf or time.monotonic() < until - MIN_TIME_SHARE_LEFT * allowed
            h = smaller(chains, verdict)
            if chains.tried == MAX_ATTEMPTS or h is None or not (self._left_open and early):
                break
            planned = lengths(self.target, self.asked, h, chains.motion.order.batch_size)
            chains = chains.again(planned, h)
            self.files.save(chains, True)
        with Work("verdict") as work, self._timed("verdict"):  # Ctrl-C is heard when all is written
            verdict = looked_further(chains, self.asked, verdict, self.began + allowed)
            found = self._found(chains, verdict)
            self.files.finish(found)
            work.check()
        ensemble = ensemble_of(self.target.likelihood.model, found)
        ensemble._run = chains, self.asked
        return ensemble

    def _least(self) -> float:
        """Predict the least max_seconds of a run, of which half is for what goes before sampling."""
        steps = 2 * rule.MIN_RUN_STEPS  # optimisers are cut short, and few steps are sampled
        each = price(self.target, self.asked.chains, self.asked.batch_size or rule.BATCH_SIZE)
        return max(
            MIN_DEADLINE_SECONDS, steps * each / (1 - rule.TUNING_CLOCK_SHARE - VERDICT_SHARE)
        )

    @property
    def _left_open(self) -> bool:
        asked = self.asked
        return asked.step_size is None and asked.num_draws is None and asked.burn_in is None

    def _tuned(self, until: float) -> Chains:
        target, asked = self.target, self.asked
        backend, z = optimised_chains(target, asked, until)
        with stage("step size"):
            z, root, h = tuned(backend, z, until, asked.step_size)
            planned = lengths(target, asked, h, backend.batch_size)
            count = num_directions(target, backend.batch_size, planned)
            directions, _ = stiffest(target, root, z, count)
        order = Order(target.rows, asked.chains, backend.batch_size, asked.seed, RUN_STREAM)
        noise = generator_of(asked.seed, RUN_STREAM, target.weights.device)
        record = Record.of(asked.chains, target.dimension)
        state, motion = State(z, torch.zeros_like(z)), Motion(target, order, root, h, noise)
        chains = Chains(
            motion, state, self.probe, directions, z, planned, record, planned.num_draws
        )
        self.files.planned(chains)
        return chains

    def _found(self, chains: Chains, verdict: Any) -> Found:
        first = first_draw(chains, self.asked)
        healthy = chains.healthy
        if not healthy.size:
            raise RunError(
                f"every chain ran away, beyond a million scales of its prior, the first by step {chains.record.failed_at.min()}; use "
                f"{SMALLER_STEP_REMEDY[self.asked.step_size is not None]}."
            )
        _, weights = chains.record.kept_from(first, MAX_KEPT_DRAWS)
        order, seconds = chains.motion.order, time.monotonic() - self.began
        before = {name: took for name, took in self.took.items() if name != "verdict"}
        info = {
            "chains": len(healthy), "draws": chains.record.count - first, "steps": chains.step,
            "rows": self.target.num_data, "batch_size": order.batch_size or self.target.num_data,
            "outputs": self.target.likelihood.meaning, "step_size": chains.motion.h, "seconds": seconds,
            "took": {**before, "verdict": seconds - sum(before.values())},
        }  # fmt: skip
        return Found(weights[healthy], self.target.weights.names, verdict, info)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.took[name] = self.took.get(name, 0.0) + time.monotonic() - began


def _check(asked: Asked, checkpoint_every: float) -> None:
    whole_number("chains", asked.chains)
    check_seed(asked.seed)
    for name in ("max_seconds", "step_size"):
        if getattr(asked, name) is not None:
            positive_number(name, getattr(asked, name))
    for name, least in (("batch_size", 1), ("num_draws", 4), ("burn_in", 0), ("thin", 1)):
        if getattr(asked, name) is not None:
            whole_number(name, getattr(asked, name), least)
    check_tolerance(asked.tolerance)
    check_interval(checkpoint_every)


def _probe(target: Target) -> Inputs:
    """Return inputs of some of the data set's rows, fewer if each predicts many numbers."""
    width = target.predicted(target.start[None], target.rows.first(1).inputs).shape[2]
    fewer = max(MIN_PROBE_ROWS, MAX_PROBE_NUMBERS // max(1, width))
    return target.rows.first(min(MAX_PROBE_ROWS, fewer)).inputs


def _usable(target: Target, inputs: Inputs) -> Inputs:
    """Return the user's probe rows; DataError if the module's first outputs for them are not finite."""
    found = target.predicted(target.start[None], inputs)
    bad = ~torch.isfinite(found[0]).all(1)
    if bool(bad.any()):
        raise DataError(f"the model's output for probe row {int(bad.int().argmax())} is not finite.")  # fmt: skip
    return inputs


def _say_narrow(weights: Weights) -> None:
    if weights.narrow:
        dtype = weights.dtypes[weights.names.index(weights.narrow[0])]
        say(
            f"{len(weights.narrow)} parameters are {str(dtype).removeprefix('torch.')}: copies of them in float32 are "
            "sampled, and rounded for every evaluation and in what is kept."
        )


# -- halving -------------------------------------------------------------------------------


HALVING_STAGES = ("sampling", "verdict")


def halved(first: Verdict, run: Any, progress: bool) -> Verdict:
    """Return the verdict of a run and of one with half its step.

    Args:
      first: the run's own.
      run: its chains and its request; None if it was made in another session.
      progress: whether to show progress.
    """
    if run is None:
        raise UsageError(
            "step_halving needs a run of sgld.torch.sample that was made in this session; run it again."
        )
    chains, asked = run
    with progress_shown(progress, HALVING_STAGES), few_threads(chains.motion.target, asked):
        change, failed = half_the_step(chains, asked)
        with stage("verdict"):
            return _verdict(first, change, failed)


def _verdict(first: Verdict, change: Change, failed: bool) -> Verdict:
    """Return `Change.judge`'s verdict; an unchanged one gets a reason that says what the halved step changed."""
    found = change.judge(first, failed=failed)
    if found is not first:
        return found
    return first.with_comparison(HALF_STEP, f"{change.said}, which leaves it {first.word}.")
