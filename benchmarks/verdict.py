"""Count how often the verdict is wrong, on problems it was not tuned on.

    python benchmarks/verdict.py                     everything, about twenty minutes
    python benchmarks/verdict.py --scale 0.1         a tenth of the runs
    python benchmarks/verdict.py --only tuned        one half: mistuned, tuned
    python benchmarks/verdict.py --kinds poisson,linear --json rows.json
    python benchmarks/verdict.py --from a.json b.json        the tables of stored rows

mistuned    step, estimator, order, sampler and metric set manually, the step 1 to 30 times the
            largest that keeps the bias under 2.5%, or noise taken away until the draws are too narrow
tuned       `sgld.sample` with nothing given but model, data and init

Problems and truths are those of fresh.py. `true` is sd of the run / true sd: the meter predicts
that number, the run's own Monte Carlo error included, so nothing is subtracted. The exit status
is 1 where a run off by more than 15% in some sd was trusted.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size

import sgld
from densities import flat_numbers
from fresh import FRESH, KINDS, Case, case
from harness import Table, command_line, store, timed

PARTS = ("mistuned", "tuned")
GOOD_BIAS, MAX_FACTOR = 0.025, 30.0  # of the step that counts as good; what it is multiplied by
MIN_RATE = 1e-3  # of mixing, a step
DRAWS, CHAINS = 500, 4
MISS, SERIOUS = 0.10, 0.15  # relative errors of an sd
MIN_ESS = 700  # of theta and theta^2, for judging the meter
WORDS = ("trusted", "biased", "not mixed", "unknown", "refused")


# -- mistuned runs ---------------------------------------------------------------------------


class Setting(NamedTuple):
    """What is set manually. `narrow`: noise is taken away instead of the step enlarged."""

    sampler: Any
    gradient: Any
    order: str
    metric: str
    batch: int
    narrow: bool = False
    max_thin: int = 100


_PLAIN, _CENTRED, _FULL = sgld.Minibatch(), sgld.ControlVariates(), sgld.Full()
_SGLD = sgld.SGLD(None)
SETTINGS = {
    "SGLD reshuffle": Setting(_SGLD, _PLAIN, "reshuffle", "dense", 50),
    "SGLD independent": Setting(_SGLD, _PLAIN, "independent", "dense", 50),
    "SGLD replacement": Setting(_SGLD, _PLAIN, "replacement", "dense", 20),
    "SGLD symmetric": Setting(_SGLD, _PLAIN, "symmetric", "dense", 50),
    "SGLD subset": Setting(_SGLD, _PLAIN, "subset", "dense", 200, max_thin=30),
    "SGLD cv independent": Setting(_SGLD, _CENTRED, "independent", "dense", 10),
    "SGLD cv reshuffle": Setting(_SGLD, _CENTRED, "reshuffle", "dense", 10),
    "SGLD cv symmetric": Setting(_SGLD, _CENTRED, "symmetric", "dense", 10),
    "SGLD svrg reshuffle": Setting(_SGLD, sgld.SVRG(50), "reshuffle", "dense", 10),
    "SGLD full": Setting(_SGLD, _FULL, "independent", "dense", 0),
    "SGLD narrow full": Setting(_SGLD, _FULL, "independent", "dense", 0, True),
    "SGLD reshuffle diagonal": Setting(_SGLD, _PLAIN, "reshuffle", "diagonal", 50),
    "SGLD cv independent diagonal": Setting(_SGLD, _CENTRED, "independent", "diagonal", 20),
    "SGLD symmetric diagonal": Setting(_SGLD, _PLAIN, "symmetric", "diagonal", 50),
    "SGLD reshuffle scalar": Setting(_SGLD, _PLAIN, "reshuffle", "scalar", 50),
    "SGLD full scalar": Setting(_SGLD, _FULL, "independent", "scalar", 0),
    "SGLD reshuffle RMSprop": Setting(_SGLD, _PLAIN, "reshuffle", "RMSprop", 50),
    "BAOA reshuffle": Setting(sgld.BAOA(), _PLAIN, "reshuffle", "dense", 50),
    "BAOA cv independent": Setting(sgld.BAOA(), _CENTRED, "independent", "dense", 20),
    "BAOA replacement diagonal": Setting(sgld.BAOA(), _PLAIN, "replacement", "diagonal", 100),
    "SGHMC independent": Setting(sgld.SGHMC(0.3), _PLAIN, "independent", "dense", 50),
    "SGHMC reshuffle diagonal": Setting(sgld.SGHMC(0.3), _PLAIN, "reshuffle", "diagonal", 50),
    "SGHMC narrow full": Setting(sgld.SGHMC(0.3), _FULL, "independent", "dense", 0, True),
    "UBU reshuffle": Setting(sgld.UBU(), _PLAIN, "reshuffle", "dense", 50),
    "SGNHT independent": Setting(sgld.SGNHT(), _PLAIN, "independent", "dense", 50),
    "SGNHT replacement": Setting(sgld.SGNHT(), _PLAIN, "replacement", "dense", 20),
    # a run that claims to be corrected and is not: only the meter can find it
    "SGLD wrong correction": Setting(sgld.SGLD(0.0), _PLAIN, "independent", "dense", 50),
}


def settings_of(name: str) -> list[str]:
    """Return three in eight of the settings, so that each meets three kinds and few are compiled."""
    at = list(KINDS).index(name)
    return [s for i, s in enumerate(SETTINGS) if (i + at) % 8 in (0, 2, 3)]


def metrics(name: str, J: np.ndarray, noise: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return a preconditioner and its matrix, of RMSprop about where it settles."""
    if name == "dense":
        return sgld.Dense(np.linalg.inv(J)), np.linalg.inv(J)
    diagonal = {
        "diagonal": 1 / np.diag(J),
        "scalar": np.full(len(J), 1 / np.mean(np.diag(J))),
        "RMSprop": 1 / np.sqrt(np.diag(J) + np.diag(noise)),
    }[name]
    D = {"scalar": sgld.Scalar(diagonal[0]), "RMSprop": sgld.RMSprop()}
    return D.get(name, sgld.Diagonal(diagonal)), np.diag(diagonal)


def mistuned(name: str, which: str, k: int, seed: int, share: float, draws: int) -> dict[str, Any]:
    """Make one run; `share` in (0, 1) says how bad it is."""
    setting, problem = SETTINGS[which], case(name, k)
    noise = np.zeros_like(problem.curvature)
    if setting.batch:
        per_row = problem.plain if setting.gradient == _PLAIN else problem.centred
        left = 0 if setting.order == "replacement" else 1 / len(problem.data[1])
        noise = per_row * (1 / setting.batch - left)
    D, matrix = metrics(setting.metric, problem.curvature, noise)
    scales = np.linalg.eigvals(matrix @ problem.curvature).real
    sampler, factor = setting.sampler, MAX_FACTOR**share
    simple = isinstance(sampler, sgld.SGLD)
    # of SGLD an sd is too large by (h / 4) (curvature + gradient noise) to first order
    good = 4 * GOOD_BIAS / (scales.max() + np.linalg.eigvals(matrix @ noise).real.max())
    stable = (1.9 if simple else 1.0) / scales.max()
    if setting.narrow:
        factor, d = 0.95 * share, problem.center.size
        h = 0.3 if simple else 0.1
        sampler = (
            sgld.SGLD(jnp.full(d, factor * (2 - h) / h)) if isinstance(sampler, sgld.SGLD)
            else sgld.SGHMC(jnp.float32(0.3), jnp.float32(0.3 * factor))
        )  # fmt: skip
    else:
        h = min(good * factor, stable)
    slowest = h * scales.min()
    rate = max(slowest if simple else min(0.15, np.sqrt(slowest) / 3), MIN_RATE)
    thin = int(np.clip(np.ceil(1.3 / rate), 1, setting.max_thin))
    burn_in = max(int(np.ceil(6 / rate)), 1000 if setting.metric == "RMSprop" else 0)
    row = {
        "part": "mistuned", "kind": name, "setting": which, "data": k, "seed": seed,
        "times": factor, "step_size": float(h), "thin": thin, "burn_in": burn_in,
    }  # fmt: skip
    # from the mode, so that a large step is seen and not a far start
    return judge_run(row, problem, lambda: sgld.sample(
        KINDS[name].posterior, problem.data, problem.density.position(jnp.float32(problem.center)),
        sampler=sampler, step_size=float(h), gradient=setting.gradient, order=setting.order,
        preconditioner=D, batch_size=setting.batch or "auto", num_chains=CHAINS, num_draws=draws,
        burn_in=burn_in, thin=thin, seed=seed, progress=False,
    ))  # fmt: skip


def tuned(name: str, k: int, seed: int) -> dict[str, Any]:
    """Make one run at default arguments."""
    kind, problem = KINDS[name], case(name, k)
    row = {"part": "tuned", "kind": name, "setting": "default", "data": k, "seed": seed}
    return judge_run(row, problem, lambda: sgld.sample(
        kind.posterior, problem.data, kind.init, seed=seed, progress=False
    ))  # fmt: skip


def judge_run(row: dict[str, Any], problem: Case, run: Callable[[], sgld.Draws]) -> dict[str, Any]:
    """Return the row with the verdict on the run and its true errors."""
    try:
        draws, row["seconds"], _ = timed(run)
    except sgld.errors.SGLDError as error:  # every chain overflowed before its first draw
        return {**row, "word": "refused", "reason": str(error), "nu": None}
    verdict = draws.verdict
    row |= {"word": verdict.word, "reason": verdict.reasons[0], "nu": draws.info["plan"]["nu"]}
    if not draws.healthy.size:
        return row
    values = np.asarray(draws.flat()[0], np.float64)
    mean, sd = (flat_numbers(part) for part in (draws.mean(), draws.sd()))
    sizes = [effective_sample_size(v) for v in (values, (values - mean) ** 2)]
    row |= {
        "true": (sd / problem.sd).tolist(), "ess": float(np.nanmin(sizes)),
        "mean_error": ((mean - problem.mean) / problem.sd).tolist(),
    }  # fmt: skip
    for key, value in (("said", verdict.sd_ratio), ("r2", verdict.r2)):
        row[key] = None if value is None else np.asarray(value, float).tolist()
    return row


def rows(
    kinds: list[str], parts: tuple[str, ...], scale: float, draws: int = DRAWS
) -> Iterator[dict[str, Any]]:
    """Yield the runs kind by kind, so that what is compiled is used up before the next."""
    sets, repeats = max(2, round(8 * scale**0.5)), max(2, round(20 * scale**0.5))
    per_setting = max(2, round(22 * scale))
    if scale == 0:  # the fewest
        sets = repeats = per_setting = 1
    for name in kinds:
        cases = [case(name, k) for k in range(sets)]
        print(
            f"{name:<20}{sets} data sets; truth: importance draws effective "
            f"{min(c.effective for c in cases):.0%} or more, error of an sd at most "
            f"{max(c.error for c in cases):.2%}", file=sys.stderr, flush=True,
        )  # fmt: skip
        rng = np.random.default_rng([FRESH, 1, list(KINDS).index(name)])
        chosen = settings_of(name)[: None if scale else 2] if "mistuned" in parts else []
        for which in chosen:
            # a stratified sample of how bad, denser where it is bad
            shares = (np.arange(per_setting) + rng.random(per_setting)) / per_setting
            for i, share in enumerate(shares**0.7):
                seed = int(rng.integers(2**31))
                yield mistuned(name, which, i % sets, seed, float(share), draws)
        for i in range(sets * repeats if "tuned" in parts else 0):
            yield tuned(name, i % sets, int(rng.integers(2**31)))


# -- the tables ------------------------------------------------------------------------------


def worst(row: dict[str, Any]) -> float:
    """Return the largest relative error of an sd; infinite where a chain failed."""
    return float(np.max(np.abs(np.array(row["true"]) - 1))) if "true" in row else np.inf


def is_noisy(row: dict[str, Any]) -> bool:
    """Return whether the meter used the run's own minibatch gradients."""
    words = row["setting"].split()
    noisy = ("independent", "replacement", "subset", "default", "correction")
    return any(word in words for word in noisy) and "full" not in words


def figures(some: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the docs: counts of verdicts, largest errors, errors of the prediction."""
    off = [row for row in some if row["part"] == "mistuned"]
    good = [row for row in some if row["part"] == "tuned"]
    found: dict[str, Any] = {"mistuned": len(off), "tuned": len(good)}
    parts = {
        "off by more than 15%": [row for row in off if worst(row) > SERIOUS],
        "off by 10% to 15%": [row for row in off if MISS < worst(row) <= SERIOUS],
        "nu below .3": [row for row in good if row["nu"] is not None and row["nu"] < 0.3],
    }
    for name, part in parts.items():
        found[name] = len(part)
        for word in WORDS:
            found[f"{name}, {word}"] = sum(row["word"] == word for row in part)
    trusted = [worst(row) for row in off if row["word"] == "trusted"]
    found["trusted, worst error of an sd"] = max(trusted, default=0.0)
    found["nu below .3, worst error of an sd"] = max(map(worst, parts["nu below .3"]), default=0.0)
    said, true, r2 = _pairs([row for row in off if not is_noisy(row)]).T
    for low, high in ((0.9, 1.1), (1.1, 1.3), (1.3, 1.6)):
        gap = 100 * np.abs(said - true)[(low <= true) & (true < high) & (r2 >= 0.9)]
        for q in (50, 95, 99) if gap.size else ():
            name = f"predicted - true, true {low:g} to {high:g}, {q}%"
            found[name] = float(np.percentile(gap, q))
    return found


def _pairs(some: list[dict[str, Any]]) -> np.ndarray:
    """Return [parameter, (said, true, r2)] of the runs with ESS >= 700."""
    found = [
        values
        for row in some if row.get("said") is not None and row["ess"] >= MIN_ESS
        for values in zip(row["said"], row["true"], row["r2"], strict=True)
    ]  # fmt: skip
    array = np.array(found, float).reshape(-1, 3)
    return array[np.isfinite(array).all(axis=1)]


def report(some: list[dict[str, Any]]) -> bool:
    """Print the verdicts by error and by setting; return whether no run off by 15% was trusted."""
    off = [row for row in some if row["part"] == "mistuned"]
    good = [row for row in some if row["part"] == "tuned"]
    table = Table(44, dict.fromkeys(("all", *WORDS), "d"))

    def by_word(title: str, part: list[dict[str, Any]]) -> None:
        count = Counter(row["word"] for row in part)
        table.row(title, len(part), *(count[word] for word in WORDS))

    by_word("mistuned", off)
    for low, high in pairwise((0, 0.05, MISS, SERIOUS, 0.3, 1, np.inf)):
        part = [row for row in off if low < worst(row) <= high]
        by_word(f"  worst sd off by {low:.0%} to {high:.0%}", part)
    serious = [row for row in off if worst(row) > SERIOUS]
    for value in dict.fromkeys(row["setting"] for row in serious):
        by_word(f"  off by 15%: {value}", [row for row in serious if row["setting"] == value])
    by_word("tuned", good)
    for kind in dict.fromkeys(row["kind"] for row in good):
        by_word(f"  {kind}", [row for row in good if row["kind"] == kind])
    silent = [row for row in some if row["word"] == "trusted" and worst(row) > SERIOUS]
    alarms = [row for row in good if row["word"] != "trusted"]
    for title, part in (
        ("trusted, an sd off by more than 15%", silent),
        ("tuned, not trusted", alarms),
    ):
        print(f"\n{title}: {len(part)}", *part, sep="\n")
    return not silent


def main() -> None:
    options = {
        "--scale": {"type": float, "default": 1.0, "help": "share of the runs (default 1)"},
        "--kinds": {"default": "", "help": f"some of {', '.join(KINDS)}"},
        "--json": {"help": "write the rows here"},
        "--from": {"dest": "stored", "nargs": "+", "default": [], "help": "rows written before"},
    }
    args = command_line(__doc__, PARTS, options)
    began, found = time.perf_counter(), []
    for path in args.stored:
        with open(path) as file:
            found += json.load(file)
    if not args.stored:
        kinds = args.kinds.split(",") if args.kinds else list(KINDS)
        kinds, scale, draws = (["rate"], 0.0, 60) if args.smoke else (kinds, args.scale, DRAWS)
        found = list(rows(kinds, args.only, scale, draws))
        print(f"{len(found)} runs in {time.perf_counter() - began:.0f} s")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(found, file)
    if args.store:
        store("verdict", figures(found))
    sys.exit(0 if report(found) else 1)


if __name__ == "__main__":
    main()
