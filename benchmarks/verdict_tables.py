"""The tables of verdict.py, from its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

MISS, SERIOUS, TUNED_MISS, MEAN_MISS = 0.10, 0.15, 0.12, 0.3
WORDS = ("trusted", "biased", "not mixed", "unknown", "refused")
MIN_ESS = 700  # of theta and theta^2, for judging the meter


def worst(row: dict[str, Any]) -> float:
    """Largest relative error of an sd; infinite where a chain failed."""
    return float(np.max(np.abs(np.array(row["true"]) - 1))) if "true" in row else np.inf


def mean_error(row: dict[str, Any]) -> float:
    return float(np.max(np.abs(row["mean_error"]))) if "true" in row else np.inf


def metered(row: dict[str, Any]) -> str:
    """What the meter alone would have said, without mixing and excess."""
    if row.get("said") is None:
        return "none"
    said, r2, se = (np.array(row[key], float) for key in ("said", "r2", "se"))
    if not np.isfinite(said).all() or r2.min() < 0.5 or not se.max() <= 0.1:
        return "unknown"
    return "biased" if np.abs(said - 1).max() > 0.1 else "trusted"


def by_word(title: str, some: list[dict[str, Any]]) -> str:
    count = Counter(row["word"] for row in some)
    return f"{title:<44}{len(some):>6}" + "".join(f"{count[word]:>11}" for word in WORDS)


def verdicts(some: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{'mistuned runs':<44}{'all':>6}" + "".join(f"{word:>11}" for word in WORDS)
    yield by_word("all", some)
    edges = (0, 0.05, MISS, SERIOUS, 0.3, 1, np.inf)
    for low, high in pairwise(edges):
        part = [row for row in some if low < worst(row) <= high]
        yield by_word(f"worst sd off by {low:.0%} to {high:.0%}", part)
    for limit in (MISS, SERIOUS):
        yield by_word(f"off by more than {limit:.0%}", [r for r in some if worst(r) > limit])
    off = [row for row in some if worst(row) > SERIOUS]
    narrow = [r for r in off if np.min(r.get("true", 1)) < 1 - SERIOUS]
    yield by_word("  of these too narrow", narrow)
    quiet = [r for r in off if r["excess"] is not None and r["excess"] <= 0.1]
    yield by_word("  of these with a predicted excess <= 10%", quiet)
    yield by_word(
        f"a mean off by more than {MEAN_MISS} sd", [r for r in some if mean_error(r) > MEAN_MISS]
    )
    yield by_word("every sd within 5%", [row for row in some if worst(row) <= 0.05])
    for value in dict.fromkeys(row["setting"] for row in off):
        yield by_word(f"    {value}", [row for row in off if row["setting"] == value])
    alone = Counter(metered(row) for row in off)
    yield f"off by more than {SERIOUS:.0%}, by the meter alone: " + ", ".join(
        f"{word} {n}" for word, n in sorted(alone.items())
    )


def pairs(some: list[dict[str, Any]]) -> np.ndarray:
    """[parameter, (said, true, r2, se)] of the runs that mixed, ESS >= 700."""
    found = [
        values
        for row in some if row.get("said") is not None and row["ess"] >= MIN_ESS
        for values in zip(*(row[key] for key in ("said", "true", "r2", "se")), strict=True)
    ]  # fmt: skip
    found = np.array(found, float).reshape(-1, 4)
    return found[np.isfinite(found).all(axis=1)]


def gap_line(
    title: str, some: list[dict[str, Any]], ratio: tuple[float, float] = (0, 1.3),
    se: tuple[float, float] = (0, 0.1),
) -> str:  # fmt: skip
    """How far the prediction is from the truth: count, quantiles, and in standard errors."""
    said, true, r2, error = pairs(some).T
    chosen = (ratio[0] <= true) & (true < ratio[1]) & (se[0] <= error) & (error < se[1])
    text = f"{title:<34}"
    for low, high in ((0.9, np.inf), (0.5, 0.9)):
        at = chosen & (low <= r2) & (r2 < high)
        gap = 100 * np.abs(said - true)[at]
        text += f"{gap.size:>7}"
        if gap.size:
            text += "".join(f"{np.quantile(gap, q):>6.1f}" for q in (0.5, 0.95, 0.99, 1))
            text += f"{np.median(gap / 100 / error[at]) / 0.6745:>6.1f}"
        else:
            text += " " * 30
    return text


def accuracy(some: list[dict[str, Any]]) -> Iterator[str]:
    yield "|predicted - true sd ratio| in points, ESS >= 700, per parameter; z: in standard errors"
    head = "n  50%   95%   99%  most     z"
    yield f"{'':<34}{'r2 >= .9: ' + head:>37}{'r2 .5-.9: ' + head:>37}"
    noisy = [row for row in some if is_noisy(row)]
    exact = [row for row in some if not is_noisy(row)]
    for low, high in ((0, 0.9), (0.9, 1.1), (1.1, 1.3), (1.3, 1.6), (1.6, 2)):
        title = f"exact gradients, true {low:g} to {high:g}"
        yield gap_line(title, exact, (low, high), (0, np.inf))
    for low, high in ((0, 0.015), (0.015, 0.03), (0.03, 0.06), (0.06, 0.1), (0.1, np.inf)):
        title = f"noisy, true < 1.3, se {low:g} to {high:g}"
        yield gap_line(title, noisy, (0, 1.3), (low, high))
    yield "where a verdict can rest on it: true < 1.3, se < .1"
    yield gap_line("all mistuned runs", some)
    for key in ("metric", "setting", "kind"):
        for value in dict.fromkeys(row[key] for row in some):
            title = value if key == "setting" else f"{key} {value}"
            yield gap_line(title, [row for row in some if row[key] == value])


def is_noisy(row: dict[str, Any]) -> bool:
    """Whether the meter used the run's own minibatch gradients."""
    words = row["setting"].split()
    return any(w in words for w in ("independent", "replacement", "subset", "default")) and (
        "full" not in words
    )


def corrected_line(title: str, some: list[dict[str, Any]], low: float, high: float) -> str:
    """Errors of the corrected columns, printed where r2 > .9."""
    sds, means = [], []
    for row in some:
        if row.get("said") is None:
            continue
        said, true, mean = (np.array(row[k], float) for k in ("said", "true", "corrected_mean"))
        at = np.isfinite(mean) & np.isfinite(true / said) & (low <= true) & (true < high)
        sds.append(100 * np.abs(true / said - 1)[at])
        means.append(np.abs(mean)[at])
    sd, mean = (np.concatenate(v) if v else np.zeros(0) for v in (sds, means))
    if not sd.size:
        return f"{title:<44}{0:>7}"
    quantiles = (0.5, 0.95, 0.99)
    return f"{title:<44}{sd.size:>7}" + "".join(
        [f"{np.quantile(sd, q):>7.1f}%" for q in quantiles]
        + [f"{np.quantile(mean, q):>8.3f}" for q in quantiles]
    )


def corrected(some: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{'errors of the corrected columns (r2 > .9)':<44}{'n':>7}{'sd: 50, 95, 99%':>24}{'mean, in sd':>24}"
    for word in ("exact", "noisy"):
        part = [row for row in some if is_noisy(row) == (word == "noisy")]
        for low, high in ((0, 1.1), (1.1, 1.3), (1.3, 1.6), (1.6, 2), (2, np.inf)):
            title = f"{word} gradients, run's sd ratio {low:g} to {high:g}"
            yield corrected_line(title, part, low, high)


def excess_line(title: str, some: list[dict[str, Any]]) -> str:
    """|largest predicted excess - largest true one|, where a law gives one."""
    pairs = [
        (row["excess"], max(row["true"]) - 1, min(row["r2"]))
        for row in some
        if row.get("said") is not None and row["excess"] is not None and row["ess"] >= MIN_ESS
    ]  # fmt: skip
    text = f"{title:<34}"
    for limit in (0.15, 1.0):
        gap = 100 * np.array([abs(p - t) for p, t, r2 in pairs if r2 >= 0.9 and t <= limit])
        text += f"{gap.size:>8}"
        text += (
            "".join(f"{np.quantile(gap, q):>7.2f}" for q in (0.5, 0.95, 0.99))
            if gap.size
            else " " * 21
        )
    return text


def excesses(some: list[dict[str, Any]]) -> Iterator[str]:
    yield "|predicted excess - true| of the widest sd, in points, r2 >= .9 (Monte Carlo of the run"
    yield f"included, about 2 points at one sd){'true <= 15%: 50, 95, 99%':>29}{'true <= 100%':>29}"
    hidden = ("narrow", "wrong")  # runs that were made wrong behind the law's back
    some = [row for row in some if not any(word in row["setting"] for word in hidden)]
    yield excess_line("all with a law", some)
    for value in dict.fromkeys(row["setting"] for row in some):
        yield excess_line(value, [row for row in some if row["setting"] == value])


def alarms(some: list[dict[str, Any]]) -> Iterator[str]:
    def line(title: str, part: list[dict[str, Any]]) -> str:
        trusted = [row for row in part if row["word"] == "trusted"]
        largest = max((worst(row) for row in trusted), default=0.0)
        mean = max((mean_error(row) for row in trusted), default=0.0)
        second = np.median([row["seconds"] for row in part]) if part else np.nan
        again = sum(row["notes"] > 0 for row in part)
        share = 1 - len(trusted) / max(len(part), 1)
        return (
            by_word(title, part)
            + f"{share:>8.2%}{largest:>9.1%}{mean:>8.2f}{again:>7}{second:>7.2f}"
        )

    yield (
        f"{'well-tuned runs':<44}{'all':>6}" + "".join(f"{word:>11}" for word in WORDS)
        + f"{'alarms':>8}{'worst sd':>9}{'mean':>8}{'notes':>7}{'s':>7}"
    )  # fmt: skip
    good = [row for row in some if row["nu"] is not None and row["nu"] < 0.3]
    yield line("nu < .3", good)
    for kind in dict.fromkeys(row["kind"] for row in good):
        part = [row for row in good if row["kind"] == kind]
        yield line(f"  {kind}, nu up to {max(r['nu'] for r in part):.2g}", part)
    rest = [row for row in some if row not in good]
    if rest:
        yield line("nu >= .3", rest)
    yield gap_line("predicted - true, nu < .3", good)


def problem(row: dict[str, Any]) -> str:
    """One run that was wrongly trusted or warned, with all that is needed to make it again."""
    settings = {
        key: row[key]
        for key in ("kind", "data", "setting", "seed", "step_size", "times", "thin", "burn_in")
        if key in row
    }  # fmt: skip
    true = row.get("true", [np.nan])
    at = int(np.argmax(np.abs(np.array(true) - 1)))
    said, r2, se = (row[key][at] if row.get(key) else np.nan for key in ("said", "r2", "se"))
    return (
        f"{row['word']}: {settings}: {row['names'][at]} true {true[at]:.3f} said {said:.3f} +- {se:.3f} "
        f"r2 {r2:.2f} excess {row['excess']} ess {row.get('ess', np.nan):.0f} mean {mean_error(row):.2f} nu {row['nu']}: "
        f"{row['reason']}"
    )


def figures(some: list[dict[str, Any]]) -> dict[str, Any]:
    """What the docs state: counts of words, largest errors, how far the prediction is from the truth."""
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
    said, true, r2, _ = pairs([row for row in off if not is_noisy(row)]).T
    for low, high in ((0.9, 1.1), (1.1, 1.3), (1.3, 1.6)):
        gap = 100 * np.abs(said - true)[(low <= true) & (true < high) & (r2 >= 0.9)]
        for q in (50, 95, 99) if gap.size else ():
            found[f"predicted - true, true {low:g} to {high:g}, {q}%"] = float(
                np.percentile(gap, q)
            )
    return found


def report(some: list[dict[str, Any]]) -> bool:
    """Print everything; whether no run off by more than 15% was trusted."""
    off = [row for row in some if row["part"] == "mistuned"]
    good = [row for row in some if row["part"] == "tuned"]
    for part in (verdicts(off), accuracy(off), corrected(off), excesses(off)) if off else ():
        print("", *part, sep="\n")
    if good:
        print("", *alarms(good), sep="\n")
    trusted = [row for row in some if row["word"] == "trusted"]
    lists = {
        "trusted with an sd off by more than 15%": [r for r in trusted if worst(r) > SERIOUS],
        "trusted with an sd off by 12 to 15%": [
            r for r in trusted if TUNED_MISS < worst(r) <= SERIOUS
        ],
        "trusted with a mean off by more than .3 sd": [
            r for r in trusted if mean_error(r) > MEAN_MISS
        ],
        "well-tuned and not trusted": [row for row in good if row["word"] != "trusted"],
    }
    for title, part in lists.items():
        print(f"\n{title}: {len(part)}", *map(problem, part), sep="\n")
    return not lists["trusted with an sd off by more than 15%"]
