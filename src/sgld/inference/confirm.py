"""`sgld.confirm`: the verdict of a run compared with an exact method, or with step halving.

Errors are the sds of the run over those found, and differences of means in units of the sds found.
Standard errors include both sets of draws. The first case that applies decides the verdict:

    the reference cannot be trusted, or the run's chains failed                   the run's own
    verdict an sd off by more than 10% or a mean by more than .25 sd, and 3 se            `biased`
    a tail too heavy for an sd to be known                                        the run's own
    verdict a standard error above 4% of an sd or .10 sd of a mean, or at the limit       the run's
    own verdict a doubt about modes that is not resolved                                      the
    run's own verdict else
    `trusted`

An exact method resolves doubts about modes if its chains began around several and still mixed. Step
halving resolves none (`step_halving.Halving.verdict`), and no draws determine the sd of a tail
without a fourth moment.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import jax
import numpy as np

from ..diagnostics.exact_rule import heavy_tail
from ..diagnostics.function_space.verdict import HALF_STEP
from ..diagnostics.rule import beyond_limits
from ..errors import UsageError
from ..results import statistics
from ..results.draws import Draws
from ..results.run_directory import RunDirectory
from ..results.storage import load, write_confirmation
from ..results.summary import Comparison, compare
from ..results.verdict import MODES, Verdict
from .reference import METHOD_TITLES, draws_of
from .step_halving import Halving, classify_errors

if TYPE_CHECKING:
    from ..regression.result import Fit


@overload
def confirm(run: Fit, by: Draws | Halving) -> Fit: ...
@overload
def confirm(run: Draws | str | Path, by: Draws | Halving) -> Draws: ...
def confirm(run: Any, by: Draws | Halving) -> Any:
    """Return the run with the verdict of a comparison with an exact method, or with step halving.

    The verdict is `trusted` if every sd is within 10% and every mean within .25 sd of what was
    found, and `biased` if one certainly is not. If neither is certain, the run keeps its verdict,
    and a reason says why. `verdict.sd_ratio` is then the sd of the run over the one found.
    `mean_corrected` and `sd_corrected` are what was found, and the summary shows them next to the
    run's own values.

    Args:
      run: draws, a fit of `sgld.fit`, or the directory of a finished run. The verdict is stored in
        the directory, and `sgld.load`, summary and report show it.
      by: `sgld.reference` of the same posterior and data, or `sgld.step_halving` of these draws.

    Returns: the run's draws, or the fit, with the verdict.

    Raises: UsageError if `run` is none of these, or `by` has other parameters, rows or draws, or
    the run's temperature is not 1 (exact methods sample the posterior); RunError if the directory
    holds no finished run, or is in use.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> gaussian = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
      >>> wide = sgld.sample(
      ...     gaussian, None, jnp.zeros(2), step_size=0.9, num_draws=3000, progress=False)
      >>> nuts = sgld.reference(wide, progress=False)  # or of (gaussian, None, jnp.zeros(2))
      >>> sgld.confirm(wide, nuts).verdict.word
      'biased'
    """
    if isinstance(run, Draws):
        return _compared(run, by)
    if not isinstance(run, (str, Path)):
        own = draws_of(run)
        if own is None:
            raise UsageError(
                f"run must be draws, a fit or the directory of a run. Got {type(run).__name__}."
            )
        return replace(run, draws=_compared(own, by))
    directory = RunDirectory(run)
    if not (directory.path.is_dir() and directory.finished()):
        load(directory.path)  # raises, as the run is unfinished or not a run
    with directory:
        draws = _compared(load(directory.path), by)
        write_confirmation(directory, draws)
    return draws


def _compared(draws: Draws, by: Draws | Halving) -> Draws:
    if isinstance(by, Halving):
        return draws.with_verdict(_by_step_halving(draws, by))
    if isinstance(by, Draws):
        return draws.with_verdict(_by_reference(draws, by))
    raise UsageError(
        f"by must be what sgld.reference or sgld.step_halving returned. Got {type(by).__name__}."
    )


def _by_step_halving(draws: Draws, by: Halving) -> Verdict:
    if by.first is None or not _same(draws, by.first):
        raise UsageError("by has other draws; call sgld.step_halving with the draws of this run.")
    found, own = by.verdict, draws.verdict
    if found.word == "trusted":
        return _replaced(
            own,
            HALF_STEP,
            replace(found, reasons=_confirmed(HALF_STEP, found.reasons[0])),
            by.mean,
            by.sd,
        )
    if found.word == "biased" and own.word != "biased":
        return _replaced(own, HALF_STEP, found, by.mean, by.sd)
    return _inconclusive(own, HALF_STEP, f"{found.word}, {found.reasons[0]}")


def _same(a: Draws, b: Draws) -> bool:
    return a.names == b.names and np.array_equal(a.flat()[0], b.flat()[0])


def _confirmed(by: str, said: str) -> tuple[str]:
    return (f"confirmed by {by}: {said.removeprefix(f'by {HALF_STEP} ')}",)


def _by_reference(draws: Draws, by: Draws) -> Verdict:
    method = METHOD_TITLES.get(str(by.info.get("method")))
    if method is None:
        raise UsageError("by must be draws of sgld.reference. These come from elsewhere.")
    if (draws.temperature != 1).any():
        raise UsageError(
            f"the run has temperature {float(draws.temperature.flat[0]):g}, so that it does not sample the posterior, "
            "which a reference samples; run it again with temperature=1.0."
        )
    here, there = draws.info.get("num_data"), by.info.get("num_data")
    if here != there:
        raise UsageError(f"the run has {here} rows, and the reference {there}; use the same data.")
    if _other_rows(draws, by):
        raise UsageError(
            "the reference uses as many rows as the run, but other values; call sgld.reference with the run's draws."
        )
    table, own = compare(draws, by), draws.verdict
    found = _from_errors(draws, by, table, method)
    if isinstance(found, str):
        return _inconclusive(own, method, found)
    return _replaced(own, method, found, *_moments(draws.names, by))


def _other_rows(draws: Draws, by: Draws) -> bool:
    """Return whether both sets of draws know their rows, and these have different values."""
    one, other = (
        None if d.origin is None else (d.origin.model or d.origin).data for d in (draws, by)
    )
    if one is None or other is None or one is other:
        return False
    here, there = jax.tree.leaves(one), jax.tree.leaves(other)
    if len(here) != len(there) or any(not hasattr(leaf, "dtype") for leaf in (*here, *there)):
        return False
    return any(not _alike(a, b) for a, b in zip(here, there, strict=True))


def _alike(a: Any, b: Any) -> bool:
    """Return whether two arrays hold the same numbers in single precision."""
    one, other = np.asarray(a), np.asarray(b)
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-6, atol=0.0, equal_nan=True)


def _from_errors(draws: Draws, by: Draws, table: Comparison, method: str) -> Verdict | str:
    """Return a verdict, or a sentence that says why there is none."""
    if by.verdict.word != "trusted":
        return f"itself {by.verdict.word}: {by.verdict.reasons[0]}"
    if draws.failures:
        return "it cannot replace chains that failed."
    off, mean_off = np.abs(table.sd_ratio - 1), np.abs(table.mean_error)
    sd_se, mean_se = table.sd_ratio_se, table.mean_error_se
    if not all(np.isfinite(a).all() for a in (off, mean_off, sd_se, mean_se)):
        return "at least one parameter does not move."
    errors = f"an sd is {100 * off.max():.0f}% and a mean {mean_off.max():.2f} sd off at most"
    decided = classify_errors(off, mean_off, sd_se, mean_se)
    if decided == "off":
        worst = beyond_limits(draws.names, table.sd_ratio, mean_off)
        reasons = tuple(f"compared with {method}: {what}." for what in worst if what is not None)
        return Verdict("biased", reasons, table.sd_ratio, sd_se)
    heavy = heavy_tail(by)
    if heavy is not None:  # more draws would not resolve it
        return f"{errors}, but {heavy}."
    if decided != "right":
        return f"{errors}, {decided}; use more draws."
    if MODES in draws.verdict.doubts and by.info.get("num_modes", 1) < 2:
        return f"{errors}, but its chains all started from one mode."
    return Verdict("trusted", _confirmed(method, f"{errors}."), table.sd_ratio, sd_se)


def _moments(names: tuple[str, ...], by: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and sd of the reference, in the run's order of parameters."""
    values = by.flat()[0][..., [by.names.index(name) for name in names]]
    return statistics.mean(values, by.weights), np.sqrt(statistics.var(values, by.weights))


def _replaced(own: Verdict, by: str, found: Verdict, mean: np.ndarray, sd: np.ndarray) -> Verdict:
    """Return the verdict found in place of the run's own, which is stored in its `extra`."""
    before = own.extra.get("by_itself", {"word": own.word, "reasons": list(own.reasons)})
    doubts = [] if found.word == "trusted" else list(own.doubts)
    extra = {**own.extra, "confirmed_by": by, "by_itself": before, "doubts": doubts}
    return replace(
        found, r2=None, mean_corrected=mean, sd_corrected=sd, noise_ratio=own.noise_ratio,
        extra=extra,
    )  # fmt: skip


def _inconclusive(own: Verdict, by: str, why: str) -> Verdict:
    """Return the run's own verdict, with a note on the inconclusive comparison."""
    return own.with_comparison(by, f"compared with {by}: {why}")
