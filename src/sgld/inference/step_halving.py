"""`sgld.step_halving`: the same run with step h/2, and extrapolation of both runs to step 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from jaxtyping import Float

from ..core.text import columns
from ..diagnostics.exact_rule import heavy_tail
from ..diagnostics.rule import MAX_MEAN_ERROR, MAX_RATIO_ERROR, MAX_SE, MAX_SE_ALONE
from ..errors import UsageError
from ..model.posterior import Posterior
from ..results import statistics
from ..results.draws import Draws
from ..results.summary import errors_of
from ..results.verdict import MODES, TAILS, Verdict, Word
from .reference import draws_of, resolve_target

if TYPE_CHECKING:
    from ..regression.result import Fit

MAX_HALVING_ERROR = 0.05  # relative change of an sd from h to h/2, besides Monte Carlo error
DOUBTS_LEFT = {  # doubts that step halving does not resolve
    MODES: "the weight of a known second mode may be wrong",
    TAILS: "the tails are too heavy to estimate an sd from draws",
}


def classify_errors(
    off: np.ndarray, mean_off: np.ndarray, sd_se: np.ndarray, mean_se: np.ndarray
) -> Literal["off", "too uncertain to tell", "at the limit", "right"]:
    """Classify errors of sds and means, with their standard errors, by the limits of a verdict."""
    finite = all(np.isfinite(a).all() for a in (off, mean_off, sd_se, mean_se))
    if finite and (
        np.any(off > MAX_RATIO_ERROR + 3 * sd_se) or np.any(mean_off > MAX_MEAN_ERROR + 3 * mean_se)
    ):
        return "off"
    if not finite or sd_se.max() > MAX_SE_ALONE or mean_se.max() > MAX_SE:
        return "too uncertain to tell"
    if off.max() > MAX_RATIO_ERROR or mean_off.max() > MAX_MEAN_ERROR:
        return "at the limit"
    return "right"


@dataclass(frozen=True)
class Halving:
    """Changes of each reported parameter when the step is halved.

    Attributes:
      names: names of the parameters.
      sd_ratio, sd_ratio_se: sd at h over sd at h/2, and its Monte Carlo error.
      mean_shift, mean_shift_se: mean at h/2 minus mean at h, in sds.
      mean, sd: extrapolated to step 0.
      draws: the run with step h/2; first: the run itself.
      factor: the error of the run over its distance from the run with h/2: 2, or 4/3 reshuffled.
    """

    names: tuple[str, ...]
    sd_ratio: Float[np.ndarray, " m"]
    sd_ratio_se: Float[np.ndarray, " m"]
    mean_shift: Float[np.ndarray, " m"]
    mean_shift_se: Float[np.ndarray, " m"]
    mean: Float[np.ndarray, " m"]
    sd: Float[np.ndarray, " m"]
    draws: Draws
    factor: float = 2.0
    first: Draws | None = None

    @property
    def agrees(self) -> bool:
        """Whether no sd changes by over 5% and no mean by over .1 sd, apart from noise."""
        sds = np.abs(self.sd_ratio - 1) <= MAX_HALVING_ERROR + 3 * self.sd_ratio_se
        means = np.abs(self.mean_shift) <= 2 * MAX_HALVING_ERROR + 3 * self.mean_shift_se
        return bool(np.all(sds & means))

    @property
    def verdict(self) -> Verdict:
        """Verdict of the run, compared with mean and sd extrapolated to step 0.

        The limits are those of every verdict: an sd within 10%, a mean within .25 sd. Halving the
        step does not change other modes, nor tails whose sd the draws do not determine: those
          doubts stay.
        """
        ratio, mean_error = self.errors
        sd_se, mean_se = self.factor * self.sd_ratio_se, self.factor * self.mean_shift_se
        off, mean_off = np.abs(ratio - 1), np.abs(mean_error)
        change = "the halved step changes an sd by more than can be extrapolated"
        if np.isfinite(off).all() and np.isfinite(mean_off).all():
            change = f"with a halved step an sd is {100 * np.max(off):.0f}% and a mean {np.max(mean_off):.2f} sd off at most"
        runs = [run for run in (self.first, self.draws) if run is not None]
        found = {run.verdict.word: run.verdict.reasons for run in runs}
        word: Word
        doubts, smaller = self.doubts(), "a smaller step_size"
        if self.first is not None and self.first.plan is not None:
            smaller = self.first.plan.smaller_step
        if "biased" in found or "not mixed" in found:
            word = "biased" if "biased" in found else "not mixed"
            return Verdict(word, found[word], ratio, sd_se)
        decided = classify_errors(off, mean_off, sd_se, mean_se)
        if decided == "off":
            word, reason = "biased", f"{change}; use {smaller}."
        elif doubts:
            word, reason = "unknown", f"{change}, but {' and '.join(doubts.values())}."
        elif decided != "right":
            also = f", or {smaller}" if decided == "at the limit" else ""
            word, reason = "unknown", f"{change}, {decided}; use more draws{also}."
        else:
            word, reason = "trusted", f"{change}."
        return Verdict(word, (reason,), ratio, sd_se, extra={"doubts": list(doubts)})

    def doubts(self) -> dict[str, str]:
        """Return the doubts that step halving does not resolve, each with the end of a sentence.

        They come from the verdicts of both runs, and from heavy tails.
        """
        runs = [run for run in (self.first, self.draws) if run is not None]
        found = {d: DOUBTS_LEFT.get(d, d) for run in runs for d in run.verdict.doubts}
        if any(run.plan is not None and run.plan.known.other_modes for run in runs):
            found[MODES] = DOUBTS_LEFT[MODES]
        for run in runs:
            heavy = heavy_tail(run)
            if heavy is not None:
                found[TAILS] = heavy
        return found

    @property
    def errors(self) -> tuple[np.ndarray, np.ndarray]:
        """sd at h over that at step 0, and mean at h minus that at step 0, in sds.

        Both are not finite if the extrapolated sd is 0.
        """
        sd = self.sd_ratio * self._half_sd
        with np.errstate(divide="ignore", invalid="ignore"):  # the extrapolated sd may be 0
            return sd / self.sd, -self.factor * self.mean_shift * self._half_sd / self.sd

    @property
    def _half_sd(self) -> np.ndarray:
        values, _ = self.draws.flat()
        return np.sqrt(statistics.var(values, self.draws.weights))

    def __str__(self) -> str:
        changes = (self.sd_ratio, self.sd_ratio_se, self.mean_shift, self.mean_shift_se)
        head = ["", "sd(h)/sd(h/2)", "+-", "mean shift", "+-", "mean", "sd"]
        body = [
            [name, *(f"{a[i]:.3f}" for a in changes), f"{self.mean[i]:.4g}", f"{self.sd[i]:.4g}"]
            for i, name in enumerate(self.names)
        ]
        foot = ["mean and sd are extrapolated to step 0", f"{self.verdict}"]
        return "\n".join([*columns([head, *body]), *foot])


def step_halving(
    posterior: Posterior | Draws | Fit | Any,
    data: Any = None,
    draws: Draws | Fit | None = None,
    *,
    seed: int | None = None,
    progress: bool = False,
) -> Halving:
    """Run again with a halved step and twice the thinning, and compare: a check without a model.

        E(0) = 2 E(h/2) - E(h)              independent batches, full gradients: bias of order h
        E(0) = (4 E(h/2) - E(h)) / 3        reshuffled: of order h^2

    for the mean and the second moment (Richardson). The check detects errors that change with h,
    and costs twice as much as the run. It misses bias that changes slowly with h, as in a funnel's
    neck.

    Args:
      posterior: the posterior of the run; or, alone, draws or a fit, which know all three.
      data: the data of the run.
      draws: a run of this session, whose plan is run again.
      seed: seed of the second run (None: the first one's plus 1).
      progress: as for `sgld.sample`.

    Returns: Halving, with `.verdict`.

    Raises: UsageError for draws without a plan (of another library, or loaded from a run with
    user-supplied parts), and for a network (`sgld.networks.step_halving`).

    Source: Richardson (1911); for SGLD, Durmus, Simsekli, Moulines, Badeau & Richard (2016).

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> gaussian = sgld.Posterior(lambda t: -0.5 * t**2)
      >>> draws = sgld.sample(
      ...     gaussian, None, 0.0, step_size=0.4, thin=5, num_draws=4000, progress=False)
      >>> found = sgld.step_halving(gaussian, None, draws)     # sd 1.118 at h, 1.054 at h/2
      >>> bool(abs(found.sd[0] - 1) < 0.05)
      True
    """
    draws = draws_of(posterior if draws is None else draws)
    if draws is None:
        raise UsageError("draws must be those of a run: sgld.step_halving(posterior, data, draws).")
    target, rows, _ = resolve_target(posterior, data, None, "step_halving")
    plan = draws.plan
    if plan is None:
        raise UsageError("these draws hold no plan; run sgld.sample again.")
    if plan.setup.exact:
        raise UsageError(
            "these draws are from an exact sampler (HMC), whose step size causes no bias that step halving could "
            "show; compare with NUTS: sgld.reference."
        )
    if plan.setup.predictions:
        raise UsageError(
            "these draws are judged by predictions, not by single parameters; use sgld.networks.step_halving."
        )
    from .sample import sample

    arguments = plan.arguments()
    old = arguments["step_size"]
    start = jax.tree.map(lambda a: a[draws.healthy[0], -1], draws.position)
    if target.output is not None:
        start = target.init
    arguments |= {
        "step_size": lambda t: old(t // 2) / 2,
        "thin": 2 * plan.setup.thin,
        "burn_in": 2 * max(plan.setup.burn_in, 1),
        "num_draws": draws.num_draws,
        "seed": draws.info["seed"] + 1 if seed is None else seed,
    }
    half = sample(target, rows, start, progress=progress, **arguments)
    first, second = (statistics.Estimates(run.flat()[0], run.weights) for run in (draws, half))
    reshuffled = plan.setup.order in ("reshuffle", "symmetric")
    squared = reshuffled and not plan.setup.corrected
    extrapolate = (lambda a, b: (4 * b - a) / 3) if squared else (lambda a, b: 2 * b - a)
    mean = extrapolate(first.mean, second.mean)
    square = extrapolate(first.sd**2 + first.mean**2, second.sd**2 + second.mean**2)
    shift, ratio, shift_se, ratio_se = errors_of(first, second)
    return Halving(
        draws.names, ratio, ratio_se, -shift, shift_se, mean, np.sqrt(np.maximum(square - mean**2, 0)), half,
        4 / 3 if squared else 2.0, draws,
    )  # fmt: skip
