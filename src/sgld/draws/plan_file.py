"""The plan of a run on disk, setup.npz: what `resume` goes on with, so that nothing is tuned twice.

One file, written at once: the plan as JSON (codec.py), its arrays, where the chains start, and of which
attempt it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import RunError, SGLDError
from ..samplers.gradients.control_variates import ControlVariates
from .codec import decode, encode
from .plan import Plan
from .run_directory import RunDirectory

__all__ = [
    "StoredPlan",
    "is_planned",
    "must_be_given",
    "not_the_same",
    "plan_of",
    "read_plan",
    "write_plan",
]

NAME = "setup.npz"


@dataclass(frozen=True)
class StoredPlan:
    """A plan, where its chains start, and which attempt it is: 0 for the first."""

    plan: Plan
    starts: np.ndarray
    attempt: int


def write_plan(directory: RunDirectory, stored: StoredPlan, digests: Mapping[str, str]) -> None:
    """Write it. `digests`: of what may be the user's own, by the argument's name."""
    arrays: dict[str, np.ndarray] = {}
    content = encode(_bare(stored.plan), arrays, digests)
    arrays["starts"] = np.asarray(stored.starts)
    directory.write_arrays(NAME, {"plan": content, "attempt": stored.attempt}, arrays)


def is_planned(directory: RunDirectory) -> bool:
    """Whether what runs has been written: it samples, or has ended."""
    return directory.read_arrays(NAME) is not None


def read_plan(directory: RunDirectory, given: Callable[[str, str], Any]) -> StoredPlan | None:
    """The stored plan, or None where there is none yet.

    `given(name, digest)` answers for what a user gives again. Raises RunError where the file is
    damaged, was edited, or belongs to another run.
    """
    found = directory.read_arrays(NAME)
    if found is None:
        return None
    head, arrays = found
    try:
        plan = decode(head["plan"], arrays, given)
        if not isinstance(plan, Plan):
            raise RunError("it holds no plan.")
        return StoredPlan(plan, arrays["starts"], int(head["attempt"]))
    except _GivenAgain:
        raise
    except SGLDError as error:
        raise RunError(f"{directory.path / NAME} cannot be used: {error}") from error
    except (
        Exception
    ) as error:  # of numbers that do not belong together, classes raise what they please
        raise RunError(f"{directory.path / NAME} is damaged: {error!r}.") from error


def plan_of(directory: RunDirectory) -> Plan | None:
    """The plan of a finished run; None where it has none, or parts of it were the user's own."""

    def refuse(name: str, digest: str) -> Any:
        raise must_be_given(name)

    try:
        stored = read_plan(directory, refuse)
    except _GivenAgain:
        return None
    return None if stored is None else stored.plan


class _GivenAgain(RunError):
    """What a user has to give again, in a sentence that is complete."""


def must_be_given(name: str) -> RunError:
    """The error of an argument that was not given again."""
    argument = "schedule" if name == "step_size" else name
    return _GivenAgain(
        f"the run was begun with a {name} of your own, which is not stored; give it again: "
        f"sgld.resume(path, posterior, data, init, {argument}=...)."
    )


def not_the_same(name: str) -> RunError:
    """The error of an argument that was given again and differs."""
    argument = "schedule" if name == "step_size" else name
    return _GivenAgain(
        f"{argument} is not the {name} that the run was begun with; resume it with the same."
    )


def _bare(plan: Plan) -> Plan:
    """Without what control variates keep of every block: it is made again at their centre."""
    gradient = plan.setup.gradient
    if not isinstance(gradient, ControlVariates):
        return plan
    return replace(plan, setup=replace(plan.setup, gradient=ControlVariates(gradient.center)))
