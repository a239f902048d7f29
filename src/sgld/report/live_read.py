"""A run's directory, read while the run goes on.

Nothing of the run is disturbed: its files are read whole, as they appear, and no lock is taken. What is
held of a run is bounded, however long or wide it is: every 2^k-th draw, of some parameters where they
are many; and a chunk of draws, which never changes, is read once.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.flatten_util
import numpy as np
from jaxtyping import Float, Int

from ..core.files import reading
from ..core.pytrees import Layout
from ..errors import RunError
from ..inference.judge import moments_of
from ..inference.kept import MOMENTS, MOST, BatchMoments, Bins
from ..regression.formula import FormulaModel
from ..results.codec import plan_of
from ..results.run_directory import RunDirectory, at_the_shell
from ..results.statistics import Moments
from .live import Live

__all__ = ["Reader", "read_live"]

LOOKED_AT = 4000  # draws of a chain
PARAMETERS = 256  # that are looked at, where there are more
NUMBERS = 2**21  # of all chains, that are looked at
AGAIN = 3  # times that a directory is read whose run writes meanwhile

LiveSeen = dict[
    tuple[str, str], tuple[int, dict[str, np.ndarray]]
]  # by run and chunk: every which draw, and those


def read_live(run: str | Path) -> Live:
    """A run's draws so far. Raises RunError where it is none, or is damaged."""
    return Reader(run).read()


class Reader:
    """Reads a run again and again: of chunks that it has seen, what it looks at is kept."""

    def __init__(self, run: str | Path) -> None:
        self.run = run
        self._seen: LiveSeen = {}

    def read(self) -> Live:
        """What there is now. Raises RunError where it is no run, or is damaged."""
        for _ in range(AGAIN):
            try:
                return self._read()
            except RunError:
                time.sleep(0.2)  # its run may have gone on between two files
        return self._read()

    def _read(self) -> Live:
        directory = RunDirectory(self.run)
        asked = directory.begun()
        going_on = directory.in_use()
        if directory.finished():
            with reading(self.run):
                return _finished(directory)
        with reading(self.run):
            directory.attempt = len(asked.get("again") or [])
            plan = plan_of(directory) if (directory.path / "setup.npz").exists() else None
            found = directory.read_checkpoint()
            live = Live(
                state="running" if going_on else "stopped", attempt=directory.attempt,
                remedy=at_the_shell(directory.remedy(), self.run),
            )  # fmt: skip
            if found is not None:
                by_predictions = plan is not None and plan.setup.predictions
                live = self._with_draws(replace(live, by_predictions=by_predictions), directory, asked, *found)  # fmt: skip
        if plan is not None:
            wanted = max(plan.setup.num_draws, live.count)
            steps = max(live.step, plan.setup.steps(wanted))
            live = replace(live, wanted=wanted, steps=steps)
        now = time.time()
        began, last = (_changed(directory.path / name) for name in ("setup.npz", "checkpoint.npz"))
        return replace(live, age=now - began, seen=max(0.0, now - last))

    def _with_draws(
        self, live: Live, directory: RunDirectory, asked: dict[str, Any], head: dict[str, Any],
        arrays: dict[str, np.ndarray],
    ) -> Live:  # fmt: skip
        carry = [arrays[f"carry{i}"] for i in range(sum(name.startswith("carry") for name in arrays))]  # fmt: skip
        step = next((int(leaf) for leaf in carry if leaf.shape == ()), 0)
        pending = {k[len("pending_") :]: v for k, v in arrays.items() if k.startswith("pending_")}
        chunks = [(int(first), int(end)) for first, end in head["chunks"]]
        if not pending:
            return replace(live, step=step)
        flushed = chunks[-1][1] if chunks else 0
        count = flushed + len(pending["step_size"])
        kept = asked.get("keep") or {}
        if kept.get("kind") == MOMENTS:
            moments, names = _moments(carry, kept, count), _element_names(kept)
            return replace(live, step=step, count=count, moments=moments, names=names, width=len(names))  # fmt: skip
        if (
            int(head.get("every", 1)) > 1
        ):  # of few positions nothing is shown: predictions are what is judged
            pending.pop("z", None)
        look = _Look.at(asked, pending, count)
        before, self._seen = self._seen, {}
        parts = [self._chunk(directory, first, end, look, before) for first, end in chunks]
        parts.append(look.of(pending, flushed))
        rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if (rows["temperature"] > 0).any():  # draws of steps at temperature 0 explore
            rows = {name: values[rows["temperature"] > 0] for name, values in rows.items()}
        values = np.moveaxis(rows["shown"], 0, 1)
        weights = np.broadcast_to(rows["step_size"], values.shape[:2]).astype(np.float64)
        predicted = np.moveaxis(rows["predicted"], 0, 1) if "predicted" in rows else None
        values, names = _reported(asked, values, look.names)
        return replace(
            live, step=step, count=count, every=look.every, predicted=predicted, weights=weights,
            **_some(np.asarray(values, np.float64), names, max(look.width, len(names))),
        )  # fmt: skip

    def _chunk(
        self, directory: RunDirectory, first: int, end: int, look: _Look, before: LiveSeen
    ) -> dict[str, np.ndarray]:
        """What is looked at of a chunk, as it was seen before or from its file."""
        key = (directory.id, f"{directory.attempt}-{first}-{end}-{len(look.source)}")
        every, rows = before.get(key, (0, {}))
        if not every or look.every % every:
            rows = look.of(directory.read_chunk(first, end), first)
        elif every < look.every:
            places = np.arange(-first % every, end - first, every) + first
            rows = {name: values[places % look.every == 0] for name, values in rows.items()}
        self._seen[key] = look.every, rows
        return rows


@dataclass(frozen=True)
class _Look:
    """Which draws of a run are looked at, and which of their numbers."""

    source: tuple[str, ...]  # the arrays that hold what is shown of a draw
    columns: Int[np.ndarray, " m"]
    names: tuple[str, ...]
    width: int
    every: int

    @classmethod
    def at(cls, asked: dict[str, Any], rows: dict[str, np.ndarray], count: int) -> _Look:
        """For `count` draws like these rows."""
        kept = asked.get("keep") or {}
        source = tuple(sorted((n for n in rows if n.startswith("value")), key=lambda n: int(n[5:])))
        names = _element_names(kept) if source else ()
        source = source or (("z",) if "z" in rows else ())
        width = sum(math.prod(rows[name].shape[2:]) for name in source)
        whole = asked.get("kind") == "formula"  # what is reported takes all of them
        columns = np.arange(width) if whole else _evenly(width)
        names = tuple(names[i] if names else f"z[{i}]" for i in columns)
        chains = max([rows[name].shape[1] for name in (*source, "predicted") if name in rows], default=1)  # fmt: skip
        wide = max(len(columns), math.prod(rows["predicted"].shape[2:]) if "predicted" in rows else 1)  # fmt: skip
        over = max(count / LOOKED_AT, count * chains * wide / NUMBERS, 1.0)
        return cls(source, columns, names, width, 2 ** math.ceil(math.log2(over)))

    def of(self, rows: dict[str, np.ndarray], first: int) -> dict[str, np.ndarray]:
        """Of rows [draw, chain, ...], the draws from number `first` on."""
        at = slice(-first % self.every, None, self.every)
        found = {name: rows[name][at] for name in ("step_size", "temperature")}
        if "predicted" in rows:
            found["predicted"] = rows["predicted"][at]
        parts = [rows[name][at] for name in self.source]
        flat = [part.reshape(*part.shape[:2], math.prod(part.shape[2:])) for part in parts]
        empty = np.zeros((len(found["step_size"]), _chains(rows), 0), np.float32)
        together = flat[0] if len(flat) == 1 else np.concatenate([empty, *flat], axis=2)
        return found | {"shown": together[..., self.columns]}


def _chains(rows: dict[str, np.ndarray]) -> int:
    return max((values.shape[1] for values in rows.values() if values.ndim > 1), default=1)


def _evenly(width: int) -> Int[np.ndarray, " m"]:
    """All of `width` numbers, or PARAMETERS of them."""
    return np.unique(np.linspace(0, width - 1, min(width, PARAMETERS)).round().astype(int))


def _some(values: np.ndarray, names: tuple[str, ...], width: int) -> dict[str, Any]:
    """`draws`, `names` and `width` of a Live, of so many parameters as are looked at."""
    at = _evenly(len(names))
    return {"draws": values[..., at], "names": tuple(names[i] for i in at), "width": width}


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return time.time()


def _element_names(kept: dict[str, Any]) -> tuple[str, ...]:
    """Of what `keep` returns, or of the parameters whose moments are kept."""
    names, shapes, dtypes = zip(*kept["leaves"], strict=True)
    layout = Layout(jax.tree.structure([0] * len(names)), tuple(map(tuple, shapes)), dtypes, names)
    return tuple(layout.element_names())


def _moments(carry: list[np.ndarray], kept: dict[str, Any], count: int) -> Moments:
    """From a checkpoint's carry, whose last leaves they are."""
    n, bins = len(kept["leaves"]), None
    if sum(math.prod(shape) for _, shape, _ in kept["leaves"]) <= MOST:
        carry, bins = carry[:-3], Bins._make(carry[-3:])
    leaves = carry[-(4 * n + 5) :]
    trees = [leaves[i * n : (i + 1) * n] for i in range(4)]
    return moments_of(BatchMoments._make([*trees, *leaves[4 * n :], bins]), count)


def _finished(directory: RunDirectory) -> Live:
    """The draws of a run that is over, as far as they are looked at."""
    from ..results.storage import load

    draws = load(directory.path)
    step = 0 if not draws.step.size else int(draws.step[-1]) + 1
    live = Live(
        state="finished", verdict=str(draws.verdict), count=draws.num_draws, wanted=draws.num_draws,
        step=step, steps=step,
    )  # fmt: skip
    if draws.moments is not None:
        count = draws.moments.num_draws
        return replace(live, moments=draws.moments, names=draws.names, width=len(draws.names), count=count, wanted=count)  # fmt: skip
    if not draws.healthy.size:
        return live
    values = draws.flat()[0]
    over = max(draws.num_draws / LOOKED_AT, values.shape[1] * len(values) * min(values.shape[2], PARAMETERS) / NUMBERS, 1.0)  # fmt: skip
    every = 2 ** math.ceil(math.log2(over))
    return replace(
        live, every=every, weights=draws.weights[:, ::every],
        **_some(np.asarray(values[:, ::every], np.float64), draws.names, len(draws.names)),
    )  # fmt: skip


def _reported(
    asked: dict[str, Any], z: Float[np.ndarray, "chain draw d"], names: tuple[str, ...]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """What draws of a formula run report; what other runs hold, as it is."""
    if asked.get("kind") != "formula" or not z.size:
        return z, names
    function, names = _reporter(json.dumps(asked["model"]))
    flat = z.reshape(-1, z.shape[-1])
    room = np.concatenate([flat, np.zeros((2 ** (len(flat) - 1).bit_length() - len(flat), flat.shape[1]), flat.dtype)])  # fmt: skip
    return np.asarray(function(room))[: len(flat)].reshape(*z.shape[:2], -1), names


@lru_cache(maxsize=4)
def _reporter(spec: str) -> tuple[Any, tuple[str, ...]]:
    """From free coordinates to what a formula reports, compiled for few lengths; and its names."""
    model = FormulaModel.from_spec(json.loads(spec))
    posterior = model.posterior
    layout = Layout.of(posterior.unconstrain(posterior.init))

    def one(q: Any) -> Any:
        position = posterior.constrain(layout.unravel(q))
        out = position if posterior.output is None else posterior.output(position)
        return jax.flatten_util.ravel_pytree(out)[0]

    return jax.jit(jax.vmap(one)), tuple(posterior.names or model.names)
