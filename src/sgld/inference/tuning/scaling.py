"""Predicted cost of a run on many rows and several devices, before there are rows: `sgld plan`.

It is counted for a regression with one coefficient per column, by the library's own costs of
operations (`model.cost`); nothing is run and no clock is read. A run passes over all rows to find
mode, curvature, influential rows and the distance from a Gaussian. Its steps use a few rows each,
whatever N is (control variates). Passes are divided among devices, steps are not.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ...approximation.low_rank import MAX_NU_DRAWS
from ...core.pytrees import Layout
from ...core.text import columns as in_columns
from ...data.memory import InMemory
from ...errors import UsageError
from ...model.cost import cost_of, row_cost
from ...model.posterior import Posterior
from ...model.problem import Problem, Target
from ...model.sums import MAX_PIECE_NUMBERS
from ...results.plan import in_bytes, in_count, in_seconds

SEARCH_GRADIENTS = 6  # gradients of all rows in the search from the mode of some rows
SEARCH_HESSIANS = 5  # Hessians of all rows in the same search
SURVEY_GRADIENTS = 5  # gradients of every row, at the centre and at draws
TABLE_GRADIENTS = 1
DEFAULT_PLAN_STEPS, DEFAULT_PLAN_CHAINS, DEFAULT_PLAN_BATCH = (
    4020,
    4,
    64,
)  # default plan with control variates; a batch has at most this many rows
MAX_PREDICTED_ROWS, MAX_PREDICTED_COLUMNS = 2**31 - 2, 1000
PRICED_ROWS = 64  # rows whose cost is counted


@dataclass(frozen=True)
class Devices:
    """Assumed performance of one device: a core of the reference server, or an accelerator.

    Attributes:
      speed: multiple of a core's speed.
      bandwidth: bytes a second from the memory that holds the rows.
      collective: seconds of a sum of few numbers among all devices.
      link: bytes a second between devices.
    """

    speed: float
    bandwidth: float
    collective: float
    link: float


DEVICES_OF_KIND = {
    "core": Devices(1.0, 1e10, 2e-5, 1e9),
    "accelerator": Devices(1e3, 1e12, 3e-5, 2e10),
}


@dataclass(frozen=True)
class Scaled:
    """Predicted cost of a run on several devices.

    Attributes:
      rows, columns, devices: the requested numbers.
      table: bytes of all rows, float32.
      on_device: bytes on a device: its rows, and temporary arrays.
      passes: gradients of all rows, and `curvatures` Hessians.
      collectives: in all passes together; a step has one.
      of_a_step: bytes that a step's sum moves.
      passing, stepping: seconds of passes and of steps, with passes divided among the devices.
    """

    rows: int
    columns: int
    devices: int
    kind: str
    table: int
    on_device: int
    passes: int
    curvatures: int
    collectives: int
    of_a_step: int
    passing: float
    stepping: float

    @property
    def seconds(self) -> float:
        """Seconds of passes and steps."""
        return self.passing + self.stepping

    def __str__(self) -> str:
        few = sorted({1, max(1, self.devices // 8), self.devices, 8 * self.devices})
        others = [scaled(self.rows, self.columns, d, self.kind) for d in few if d <= self.rows]
        alone = others[0].seconds
        header = ["devices", "bytes a device", "passes", "steps", "in all", "speed-up"]
        table = in_columns([header, *(
            [str(o.devices), in_bytes(o.on_device), in_seconds(o.passing), in_seconds(o.stepping),
             in_seconds(o.seconds), f"{alone / o.seconds:.3g}"] for o in others
        )])  # fmt: skip
        return "\n".join([
            f"{self.rows:,} rows x {self.columns} columns, float32: {in_bytes(self.table)}",
            f"mesh: jax.make_mesh((1, {self.devices}), (\"chain\", \"data\")), each device one {self.kind}",
            f"passes over all rows: {self.passes} gradients and {self.curvatures} Hessians, "
            f"{in_count(self.collectives)} collectives together",
            f"steps: {DEFAULT_PLAN_STEPS:,} of {DEFAULT_PLAN_CHAINS} chains, at most {DEFAULT_PLAN_BATCH} rows each for any table; 1 collective a step "
            f"of {in_bytes(self.of_a_step)}",
            "",
            *table,
            "",
            f"total: {in_seconds(self.seconds * self.devices)} of one {self.kind}'s time, without reading, compiling and the "
            "verdict.",
        ])  # fmt: skip


def scaled(rows: int, columns: int, devices: int, kind: str = "core") -> Scaled:
    """Predict the cost of a regression of this size, with its rows spread over the devices.

    Raises UsageError for numbers out of range.

    Example:
      >>> from sgld.inference.tuning.scaling import scaled
      >>> scaled(10**9, 100, 64).passes
      44
    """
    _check(rows, columns, devices, kind)
    device, d = DEVICES_OF_KIND[kind], columns + 1
    local = -(-rows // devices)
    gradient, hessian = _prices(columns)
    passes = MAX_NU_DRAWS // 4 + SEARCH_GRADIENTS + TABLE_GRADIENTS + SURVEY_GRADIENTS
    width = 4 * max(d, columns + 1)
    pieces = -(-rows * width // (MAX_PIECE_NUMBERS * devices))
    collectives = (passes + SEARCH_HESSIANS) * pieces if devices > 1 else 0
    computed = local * (passes * gradient + SEARCH_HESSIANS * hessian) / device.speed
    read = (passes + SEARCH_HESSIANS) * local * 4.0 * (columns + 1) / device.bandwidth
    sums = 4 * pieces * (passes * d + SEARCH_HESSIANS * d * d) / device.link
    waited = collectives * device.collective + (sums if devices > 1 else 0.0)
    of_a_step = 4 * 2 * DEFAULT_PLAN_CHAINS * d
    # a step uses few rows, so that more devices do not reduce the work of each
    step = DEFAULT_PLAN_CHAINS * 2 * DEFAULT_PLAN_BATCH * gradient / device.speed
    step += device.collective + of_a_step / device.link if devices > 1 else 0.0
    table = 4 * rows * (columns + 1)
    at_work = 4 * (4 * MAX_PIECE_NUMBERS + 3 * d * d)
    return Scaled(
        rows, columns, devices, kind, table, 4 * local * (columns + 1) + at_work, passes, SEARCH_HESSIANS,
        collectives, of_a_step, max(computed, read) + waited, DEFAULT_PLAN_STEPS * step,
    )  # fmt: skip


def _check(rows: int, columns: int, devices: int, kind: str) -> None:
    for name, value, most in (("rows", rows, MAX_PREDICTED_ROWS), ("columns", columns, MAX_PREDICTED_COLUMNS), ("devices", devices, rows)):  # fmt: skip
        if not 1 <= value <= most:
            raise UsageError(f"{name} must lie between 1 and {most:,}. Got {value:,}.")
    if kind not in DEVICES_OF_KIND:
        raise UsageError(f"a device is one of {', '.join(DEVICES_OF_KIND)}. Got {kind!r}.")


def _prices(columns: int) -> tuple[float, float]:
    """Return seconds of one core for a row's gradient and Hessian in a logistic regression."""
    rows = (np.zeros((PRICED_ROWS, columns), np.float32), np.zeros(PRICED_ROWS, np.float32))
    posterior = Posterior(_log_prior, _log_likelihood)
    start = np.zeros(columns + 1, np.float32)
    layout = Layout.of(start)
    target = Target(posterior, layout, layout.array(1.0))
    problem = Problem(target, InMemory.of(rows), layout.array(start))
    batch = problem.source.fetch(jnp.int32(0))
    hessian = jax.hessian(lambda z: problem.log_likelihood(z, batch.rows, batch.weight))
    whole = cost_of(hessian, jax.ShapeDtypeStruct(start.shape, start.dtype)).each
    return row_cost(problem), whole / PRICED_ROWS


def _log_prior(b: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(b**2)


def _log_likelihood(b: jax.Array, row: tuple[jax.Array, jax.Array]) -> jax.Array:
    linear = b[0] + row[0] @ b[1:]
    return row[1] * linear - jax.nn.softplus(linear)
