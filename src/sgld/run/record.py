"""What a run directory remembers of a run: what was asked, in JSON, and what must not change."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..data.contract import fingerprint
from ..device import sent
from ..draws.codec import decode, encode_fields, from_text, to_text
from ..draws.plan_file import must_be_given, not_the_same
from ..draws.run_directory import RunDirectory
from ..errors import RunError
from ..preconditioner.fixed import Scalar
from ..problem.problem import Problem
from ..problem.request import Request
from ..release import tell_apart
from ..schedule import as_schedule
from .kept import MOMENTS, Keep

__all__ = [
    "Given",
    "asked_again",
    "check_unchanged",
    "elsewhere",
    "keep_again",
    "own_digests",
    "record",
]


def record(
    problem: Problem, ask: Request, ess: int | None, keep: Keep | None = None
) -> dict[str, Any]:
    """What was asked, in JSON, with versions and the hashes of data and model."""
    import jaxlib.version

    from .. import __version__

    arrays: dict[str, np.ndarray] = {}
    values = {name: getattr(ask, name) for name in Request.__dataclass_fields__}
    return {
        "request": encode_fields(values, arrays, own_digests(problem, ask)),
        "arrays": to_text(arrays),
        "given": {
            name: repr(getattr(ask, name))
            for name in Request.__dataclass_fields__
            if not isinstance(getattr(ask, name), (int, float, str, type(None)))
        },
        "ess": ess,
        "keep": None if keep is None else {**keep.describe(), "hash": _keep_hash(keep, problem)},
        "versions": {
            "sgld": __version__,
            "jax": jax.__version__,
            "jaxlib": jaxlib.version.__version__,
            "numpy": np.__version__,
        },
        "machine": f"{platform.machine()} {jax.devices()[0].device_kind}",
        "seed": int(ask.seed),
        "data_hash": None if problem.data is None else fingerprint(problem.data),
        "model_hash": _model_hash(problem),
        "x64": bool(jax.config.read("jax_enable_x64")),
    }


def asked_again(directory: RunDirectory, asked: Mapping[str, Any], given: Given) -> Request:
    """The Request of a run.json, with what was given again. Raises RunError where it is damaged."""
    try:
        stored, arrays = asked["request"], from_text(asked["arrays"])
        return Request(**{
            name: decode(stored[name], arrays, given.raw) for name in Request.__dataclass_fields__
        })  # fmt: skip
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunError(f"{directory.path / 'run.json'} is damaged: {error!r}.") from error


@dataclass(frozen=True)
class Given:
    """What a user gives again, because it was of his own: by the name of `sgld.sample`'s argument."""

    values: Mapping[str, Any]
    problem: Problem | None = None

    def raw(self, name: str, digest: str) -> Any:
        """As it was given."""
        value = self.values.get(name)
        if value is None:
            raise must_be_given(name)
        return value

    def checked(self, name: str, digest: str) -> Any:
        """As a setup holds it. Raises RunError unless it is the one that the run was begun with."""
        value = self.raw(name, digest)
        assert self.problem is not None
        if own_digest(self.problem, name, value) != digest:
            raise not_the_same(name)
        tell_apart(value)
        if name in ("step_size", "temperature"):
            return as_schedule(value, name, zero=name == "temperature")
        return value.prepare(self.problem.layout) if name == "preconditioner" else value


OWN = ("sampler", "step_size", "temperature", "gradient", "preconditioner")


def own_digests(problem: Problem, ask: Request) -> dict[str, str]:
    """Of every part that may be of the user's own."""
    values = {name: getattr(ask, name) for name in OWN}
    return {
        name: own_digest(problem, name, value)
        for name, value in values.items()
        if not isinstance(value, (str, int, float))
    }


def own_digest(problem: Problem, name: str, value: Any) -> str:
    """SHA-256 of its type, its numbers, and of what it does where that can be traced."""
    digest = hashlib.sha256(f"{type(value).__module__}.{type(value).__qualname__}".encode())
    for leaf in jax.tree.leaves(value):
        if not callable(leaf):
            digest.update(np.asarray(leaf).tobytes())
    with contextlib.suppress(TypeError, ValueError, AttributeError):  # cannot be traced by itself
        traced = _traced(problem, name, value)
        digest.update(str(traced.jaxpr).encode())
        for leaf in traced.consts:
            digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _traced(problem: Problem, name: str, value: Any) -> Any:
    """A schedule's value at a step; a sampler's step on a Gaussian."""
    if name in ("step_size", "temperature"):
        return jax.make_jaxpr(value)(jnp.int32(0))
    if name != "sampler":
        raise TypeError(name)
    d, count = problem.dimension, value.num_noises
    z = jnp.zeros(d, problem.layout.dtype)
    noise = jnp.zeros((d,) if count == 1 else (count, d), problem.layout.dtype)

    def step(z: Any, noise: Any) -> Any:
        return value.step(
            value.init(z), lambda q: -q, 0.1, noise, preconditioner=Scalar(1.0), temperature=1.0
        )

    return jax.make_jaxpr(step)(z, noise)


def elsewhere(asked: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """A sentence where a run goes on under other versions or on another kind of machine."""
    before, here = ({"machine": r.get("machine"), **r.get("versions", {})} for r in (asked, now))
    changed = [f"{name} {before.get(name)} before, {here[name]} now" for name in here if before.get(name) != here[name]]  # fmt: skip
    if not changed:
        return None
    return (
        f"the run went on elsewhere ({'; '.join(changed)}): its draws are as good, and not to the last bit those "
        "of an uninterrupted run."
    )


def _model_hash(problem: Problem) -> str:
    """SHA-256 of the traced log density and of the numbers bound to it."""
    target, z0 = problem.target, problem.start
    row = problem.source.take(sent([0], np.int32)) if problem.has_rows else None

    def density(target, z, row):
        value = target.log_prior(z)
        return value if row is None else value + target.log_likelihood(z, row)

    traced = jax.make_jaxpr(density)(target, z0, row)
    digest = hashlib.sha256(str(traced.jaxpr).encode())
    for leaf in jax.tree.leaves((target, z0)):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _keep_hash(keep: Keep, problem: Problem) -> str:
    """SHA-256 of the traced function and of the numbers bound to it."""

    def kept(function, z):
        return function(problem.target.reported(z))

    traced = jax.make_jaxpr(kept)(keep.function, problem.start)
    digest = hashlib.sha256(str(traced.jaxpr).encode())
    for leaf in [*traced.consts, *jax.tree.leaves(keep.function)]:
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def keep_again(directory: RunDirectory, asked: Mapping[str, Any], keep: Any) -> Any:
    """What a resumed run keeps. Raises RunError where it was a function, and is not given again."""
    before = (asked.get("keep") or {}).get("kind")
    if before is None and keep is not None:
        raise RunError(
            f"{directory.path} was begun without keep; resume it without, or begin another run."
        )
    if before == "function" and keep is None:
        raise RunError(
            f"{directory.path} was begun with keep=, a function, which is not stored; give it again: "
            "sgld.resume(path, posterior, data, init, keep=function)."
        )
    return MOMENTS if before == MOMENTS and keep is None else keep


def _check_keep(directory: RunDirectory, before: Any, now: Any) -> None:
    if before == now:
        return
    listed = lambda kept: ", ".join(  # noqa: E731
        f"{name} {tuple(shape)} {dtype}" for name, shape, dtype in kept["leaves"]
    )
    if before["kind"] != now["kind"] or before["leaves"] != now["leaves"]:
        raise RunError(
            f"{directory.path} was begun with a keep that returned {listed(before)}, and this one returns "
            f"{listed(now)}; resume it with the same function."
        )
    raise RunError(
        f"{directory.path} was begun with another keep, of the same shapes; resume it with the same."
    )


def check_unchanged(directory: RunDirectory, asked: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise RunError naming what changed since the run was begun."""
    words = {"data_hash": "the data", "model_hash": "the model", "x64": "jax_enable_x64"}
    for name, word in words.items():
        if asked.get(name) != now[name]:
            raise RunError(
                f"{directory.path} was begun with other values of {word}; resume it with the same."
            )
    _check_keep(directory, asked.get("keep"), now["keep"])
    for package, version in now["versions"].items():
        before = str(asked.get("versions", {}).get(package))
        if before.split(".")[0] != version.split(".")[0]:
            raise RunError(
                f"{directory.path} was begun with {package} {before}, and this is {version}; "
                "a run goes on only under the same major version."
            )
