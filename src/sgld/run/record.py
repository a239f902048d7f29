"""What a run directory remembers of a run: what was asked, in JSON, and what must not change."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..data.contract import fingerprint
from ..draws.storage import RunDirectory
from ..errors import RunError
from ..problem.problem import Problem
from ..problem.request import Request

__all__ = ["asked_again", "check_unchanged", "record"]


# where objects given by hand may come from: a run.json is data, and names no other code
_MODULES = frozenset(
    f"sgld.{name}"
    for name in (
        "schedule",
        "gradient.full", "gradient.minibatch", "gradient.control_variates", "gradient.svrg", "gradient.saga",
        "preconditioner.fixed", "preconditioner.adaptive",
        "sampler.sgld", "sampler.sghmc", "sampler.baoa", "sampler.ubu", "sampler.sgnht",
        "sampler.replica_exchange",
    )
)  # fmt: skip


def record(problem: Problem, ask: Request, ess: int | None) -> dict[str, Any]:
    """What was asked, in JSON, with versions and the hashes of data and model."""
    import jaxlib.version

    from .. import __version__

    return {
        "request": {name: _encoded(getattr(ask, name)) for name in Request.__dataclass_fields__},
        "given": {
            name: repr(getattr(ask, name))
            for name in Request.__dataclass_fields__
            if not isinstance(getattr(ask, name), (int, float, str, type(None)))
        },
        "ess": ess,
        "versions": {
            "sgld": __version__,
            "jax": jax.__version__,
            "jaxlib": jaxlib.version.__version__,
            "numpy": np.__version__,
        },
        "seed": int(ask.seed),
        "data_hash": None if problem.data is None else fingerprint(problem.data),
        "model_hash": _model_hash(problem),
        "x64": bool(jax.config.read("jax_enable_x64")),
    }


def asked_again(directory: RunDirectory, asked: Mapping[str, Any]) -> Request:
    """The Request of a run.json. Raises RunError where it holds something JSON cannot."""
    try:
        stored = asked["request"]
        return Request(
            **{name: _decoded(name, stored[name]) for name in Request.__dataclass_fields__}
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{directory.path / 'run.json'} is damaged: {error!r}.") from error


def _encoded(value: Any) -> Any:
    """A number, a word, or one of this package's objects of numbers; else its repr."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, (np.generic, np.ndarray, jax.Array)) and np.ndim(value) == 0:
        return np.asarray(value).item()
    if isinstance(value, (list, tuple)):
        return [_encoded(part) for part in value]
    kind = type(value)
    if is_dataclass(value) and kind.__module__.startswith("sgld."):
        parts = {
            part.name: _encoded(getattr(value, part.name)) for part in fields(value) if part.init
        }
        if not any(isinstance(part, dict) and "repr" in part for part in parts.values()):
            return {"module": kind.__module__, "class": kind.__qualname__, "fields": parts}
    return {"repr": repr(value)}


def _decoded(name: str, stored: Any) -> Any:
    if isinstance(stored, list):
        return tuple(_decoded(name, part) for part in stored)
    if not isinstance(stored, dict):
        return stored
    if "repr" in stored:
        raise RunError(
            f"the run was begun with {name}={stored['repr']}, which is an object of Python that was "
            "not stored; repeat the call of sgld.sample instead of resuming it."
        )
    module, kind = str(stored["module"]), str(stored["class"])
    if module not in _MODULES or not kind.isidentifier():
        raise RunError(f"run.json names {module}.{kind}, which this version does not know.")
    parts = {part: _decoded(name, value) for part, value in stored["fields"].items()}
    return getattr(importlib.import_module(module), kind)(**parts)


def _model_hash(problem: Problem) -> str:
    """SHA-256 of the traced log density and of the numbers bound to it."""
    target, z0 = problem.target, problem.start
    row = problem.source.take(jnp.arange(1)) if problem.has_rows else None

    def density(target, z, row):
        value = target.log_prior(z)
        return value if row is None else value + target.log_likelihood(z, row)

    traced = jax.make_jaxpr(density)(target, z0, row)
    digest = hashlib.sha256(str(traced.jaxpr).encode())
    for leaf in jax.tree.leaves((target, z0)):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def check_unchanged(directory: RunDirectory, asked: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise RunError naming what changed since the run was begun."""
    words = {"data_hash": "the data", "model_hash": "the model", "x64": "jax_enable_x64"}
    for name, word in words.items():
        if asked.get(name) != now[name]:
            raise RunError(
                f"{directory.path} was begun with other values of {word}; resume it with the same."
            )
    for package, version in now["versions"].items():
        before = str(asked.get("versions", {}).get(package))
        if before.split(".")[0] != version.split(".")[0]:
            raise RunError(
                f"{directory.path} was begun with {package} {before}, and this is {version}; "
                "a run goes on only under the same major version."
            )
