"""A run while it goes on: read from its directory, and shown as a page or in lines.

Nothing of the run is disturbed: its files are read as they stand, whole ones that appear at once. What a
run directory says is only numbers and names; names are shown escaped, as in the report.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.flatten_util
import numpy as np
from jaxtyping import Float

from ..columns import columns as in_columns
from ..draws import weighted
from ..draws.plan import in_seconds
from ..draws.plan_file import plan_of
from ..draws.run_directory import RunDirectory
from ..errors import RunError, plain
from ..files import reading
from ..layout import Layout
from ..models.formula import FormulaModel
from .canvas import shorten
from .style import PAGE
from .text import says

__all__ = ["Live", "as_lines", "as_page", "read_live"]

FEWEST = 8  # draws of a chain that say anything
WANTED = 400.0  # effective draws, of which the verdict asks
LOOKED_AT = 4000  # draws of a chain
POINTS = 12  # at which R-hat and ESS are shown
SHOWN, TRACED, DOTS = 40, 6, 300
AGAIN = 3  # times that a directory is read whose run writes meanwhile
EVERY = 3  # seconds between pages


@dataclass(frozen=True)
class Live:
    """What there is of a run that goes on.

    Attributes:
      draws: [chain, draw, parameter]: reported ones of formula runs, free coordinates of others.
      names: of the parameters.
      wanted: draws of a chain that the plan asks for; 0 before there is a plan.
      step: of each chain, at the last checkpoint.
      age: seconds since the plan was made, and `seen` since the last checkpoint.
      finished: whether the verdict has been given.
    """

    draws: Float[np.ndarray, "chain draw parameter"]
    names: tuple[str, ...]
    wanted: int
    step: int
    steps: int
    age: float
    seen: float
    attempt: int
    finished: bool

    @property
    def count(self) -> int:
        """Draws of a chain."""
        return self.draws.shape[1]

    @property
    def left(self) -> float | None:
        """Seconds until the wanted draws are there, at the rate so far."""
        done = max(self.age - self.seen, 1e-3)
        return None if not self.step else max(0.0, done * (self.steps - self.step) / self.step)

    def mixing(self, count: int) -> tuple[float, float, float]:
        """Of the first `count` draws, of many some: the worst R-hat, its limit, and the least ESS."""
        part = self.draws[:, : count : -(-count // LOOKED_AT)]
        alike = np.ones(part.shape[:2])
        ess = weighted.ess(part, alike)
        r_hat = weighted.r_hat(part)
        worst = int(np.nanargmax(r_hat)) if np.isfinite(r_hat).any() else 0
        limit = weighted.max_r_hat(max(float(ess[worst]), 1.0), len(part), part.shape[2])
        return float(r_hat[worst]), float(limit), float(np.min(ess))

    def history(self) -> Iterator[tuple[int, float, float, float]]:
        """Draws, and what `mixing` says of them, along the run."""
        if self.count < FEWEST:
            return
        for count in sorted(set(np.linspace(FEWEST, self.count, POINTS).astype(int).tolist())):
            yield count, *self.mixing(count)

    def as_json(self) -> dict[str, Any]:
        """What `sgld summary --json` says of a run without a verdict."""
        rows = {name: {"mean": float(m), "sd": float(s)} for name, m, s in _rows(self)}
        counts = {"num_chains": len(self.draws), "num_draws": self.count, "num_steps": self.step}
        reasons = ["the run goes on", self.word()]
        return {"verdict": "unknown", "reasons": reasons, **counts, "parameters": rows}

    def word(self) -> str:
        """What can be said before the verdict."""
        if self.finished:
            return "finished: the verdict is in sgld summary"
        if self.count < FEWEST:
            return "no draws yet"
        r_hat, limit, ess = self.mixing(self.count)
        if r_hat <= limit and ess >= WANTED:
            return f"mixed so far: R-hat {r_hat:.3f} (limit {limit:.3f}), least ESS {ess:.0f}"
        return f"not mixed yet: R-hat {r_hat:.3f} (limit {limit:.3f}), least ESS {ess:.0f} of {WANTED:.0f}"

    def facts(self) -> str:
        """Where it stands."""
        if not self.wanted:
            return "the plan is being made"
        attempt = f"attempt {self.attempt + 1}, " if self.attempt else ""
        left = "" if self.finished or self.left is None else f", about {in_seconds(self.left)} left"
        return f"{attempt}{self.count:,} of {self.wanted:,} draws of {len(self.draws)} chains, step {self.step:,} of {self.steps:,}{left}"


def read_live(run: str | Path) -> Live:
    """A run's draws so far. Raises RunError where it is none, or is damaged."""
    for _ in range(AGAIN):
        try:
            return _read(run)
        except RunError:
            time.sleep(0.2)  # its run may have gone on between two files
    return _read(run)


def _read(run: str | Path) -> Live:
    directory = RunDirectory(run)
    asked = directory.begun()
    finished = directory.finished()
    with reading(run):
        again = asked.get("again") or []
        directory.attempt = len(again)
        plan = plan_of(directory) if (directory.path / "setup.npz").exists() else None
        found = None if finished else directory.read_checkpoint()
        z, step = np.zeros((0, 1, 0), np.float32), 0
        if finished:
            from ..draws.storage import load

            draws = load(run)
            values, names = draws.flat()[0], draws.names
        else:
            if found is not None:
                z, step = _draws(directory, *found)
            values, names = _reported(asked, z)
    wanted = steps = 0
    if plan is not None:
        setup = plan.setup
        wanted = max(setup.num_draws, values.shape[1])
        steps = max(step, setup.burn_in + setup.thin * (wanted - 1) + 1)
    began = _changed(directory.path / "setup.npz")
    last = _changed(directory.path / "checkpoint.npz")
    now = time.time()
    return Live(
        np.asarray(values, np.float64), tuple(names), wanted, steps if finished else step, steps,
        now - began, max(0.0, now - last), directory.attempt, finished,
    )  # fmt: skip


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return time.time()


def _draws(
    directory: RunDirectory, head: dict[str, Any], arrays: dict[str, np.ndarray]
) -> tuple[Float[np.ndarray, "draw chain d"], int]:
    """The kept positions that the checkpoint counts on, and its step."""
    parts = [directory.read_chunk(int(first), int(end)) for first, end in head["chunks"]]
    if "pending_z" in arrays:
        parts.append({"z": arrays["pending_z"]})
    zs = [part["z"] for part in parts if "z" in part]
    scalars = [a for name, a in arrays.items() if name.startswith("carry") and a.shape == ()]
    step = int(scalars[0]) if scalars else 0
    return (np.concatenate(zs) if zs else np.zeros((0, 1, 0), np.float32)), step


def _reported(
    asked: dict[str, Any], z: Float[np.ndarray, "draw chain d"]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """What draws of a formula run report, or the free coordinates, [chain, draw, parameter]."""
    z = np.moveaxis(z, 0, 1)
    if asked.get("kind") != "formula" or not z.size:
        return z, tuple(f"z[{i}]" for i in range(z.shape[2]))
    model = FormulaModel.from_spec(asked["model"])
    posterior = model.posterior
    layout = Layout.of(posterior.unconstrain(posterior.init))

    def one(q: Any) -> Any:
        position = posterior.constrain(layout.unravel(q))
        out = position if posterior.output is None else posterior.output(position)
        return jax.flatten_util.ravel_pytree(out)[0]

    return np.asarray(jax.vmap(jax.vmap(one))(z)), tuple(posterior.names or model.names)


def _rows(live: Live) -> list[tuple[str, float, float]]:
    """Name, mean and sd of some parameters."""
    if not live.count:
        return []
    mean, sd = live.draws.mean((0, 1)), live.draws.std((0, 1))
    return [(live.names[i], mean[i], sd[i]) for i in range(min(SHOWN, len(live.names)))]


def as_lines(live: Live) -> str:
    """For a terminal; names without letters that it would obey."""
    lines = [live.facts(), live.word()]
    rows = [[shorten(name, 40), f"{m:.4g}", f"{s:.3g}"] for name, m, s in _rows(live)]
    if rows:
        lines += ["", *in_columns([["", "mean", "sd"], *rows])]
    if len(live.names) > SHOWN:
        lines.append(f"and {len(live.names) - SHOWN} more parameters")
    return plain("\n".join(lines))


def as_page(live: Live, name: str) -> str:
    """One page without scripts, which asks for itself again while the run goes on."""
    rows = "".join(
        f'<tr><th scope="row">{says(shorten(n, 60))}</th><td>{m:.4g}</td><td>{s:.3g}</td></tr>'
        for n, m, s in _rows(live)
    )
    past = list(live.history())
    figures = [
        _figure("R-hat, the worst", [[(c, r) for c, r, _, _ in past], [(c, most) for c, _, most, _ in past]], "draws of a chain; the second line is its limit"),
        _figure("ESS, the least", [[(c, e) for c, _, _, e in past]], "draws of a chain"),
    ]  # fmt: skip
    every = max(1, live.count // DOTS)
    for i in range(min(TRACED, len(live.names)) if live.count else 0):
        chains = [list(enumerate(chain[::every, i])) for chain in live.draws[:6]]
        figures.append(_figure(shorten(live.names[i], 40), chains, f"every {every}. draw" if every > 1 else "draws"))  # fmt: skip
    body = (
        f'<section class="banner unknown" id="verdict"><p class="word">{says("finished" if live.finished else "running")}</p>'
        f'<p class="only">{says(live.word())}</p><p class="note">{says(live.facts())}</p></section>\n'
        f"<table><thead><tr><th></th><th>mean</th><th>sd</th></tr></thead><tbody>{rows}</tbody></table>\n"
        + "\n".join(figures)
    )
    page = PAGE.substitute(title=says(name), content=body, footer=f"Run <code>{says(name)}</code>.")
    refresh = "" if live.finished else f'<meta http-equiv="refresh" content="{EVERY}">'
    return page.replace("<head>", f"<head>{refresh}", 1)


def _figure(title: str, lines: Sequence[Sequence[tuple[float, float]]], below: str) -> str:
    """Lines in one frame, as SVG of numbers alone."""
    points = np.array([p for line in lines for p in line if np.isfinite(p[1])], np.float64)
    if len(points) < 2:
        return ""
    low, high = points.min(0), points.max(0)
    span = np.where(high > low, high - low, 1.0)
    drawn = []
    for k, line in enumerate(lines):
        at = [(40 + 540 * (x - low[0]) / span[0], 130 - 120 * (y - low[1]) / span[1]) for x, y in line if np.isfinite(y)]  # fmt: skip
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="var(--chain-{k % 6})" stroke-width="1"/>')  # fmt: skip
    return (
        f'<figure><figcaption>{says(title)}: {low[1]:.4g} to {high[1]:.4g} <span class="note">({says(below)})</span></figcaption>'
        f'<svg viewBox="0 0 600 140" role="img" aria-label="{says(title)}" style="width:100%;max-width:600px">{"".join(drawn)}</svg></figure>'
    )
