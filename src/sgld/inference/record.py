"""Record of a run in run.json: what was asked, and hashes of what must not change."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import inspect
import platform
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.devices import sent
from ..core.pytrees import release_mistakable
from ..core.user_code import digest, trace, without_addresses
from ..data.validate import fingerprint
from ..errors import RunError
from ..model.problem import Problem, Request
from ..results.codec import (
    MAX_OBJECT_DEPTH,
    decode,
    encode_fields,
    from_text,
    must_be_given,
    not_the_same,
    to_text,
)
from ..results.run_directory import RunDirectory
from ..results.tags import former_name, stable_name
from ..samplers.gradients.full import Estimate
from ..samplers.preconditioners.fixed import Scalar
from ..samplers.schedules import as_schedule
from .kept import MOMENTS, Keep


def record(
    problem: Problem, ask: Request, ess: int | None, keep: Keep | None = None
) -> dict[str, Any]:
    """Return what was asked, in JSON, with versions and the hashes of data and model."""
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
        "keep": None
        if keep is None
        else {
            **keep.describe(),
            "hash": _keep_hash(keep, problem),
            "values": _keep_values(keep, problem),
        },
        "versions": {
            "sgld": __version__,
            "jax": jax.__version__,
            "jaxlib": jaxlib.version.__version__,
            "numpy": np.__version__,
        },
        "machine": f"{platform.machine()} {jax.devices()[0].device_kind}",
        "seed": int(ask.seed),
        "data_hash": None if problem.data is None else fingerprint(problem.data),
        "init_hash": hashlib.sha256(np.asarray(problem.start).tobytes()).hexdigest(),
        "model_hash": _model_hash(problem),
        "model_values": _model_values(problem),
        "x64": bool(jax.config.read("jax_enable_x64")),
    }


def stored_request(directory: RunDirectory, asked: Mapping[str, Any], given: Given) -> Request:
    """Return the Request of a run.json, with the parts given again.

    Raises RunError if run.json is damaged.
    """
    try:
        stored, arrays = asked["request"], from_text(asked["arrays"])
        return Request(**{
            name: decode(stored[name], arrays, given.raw) for name in Request.__dataclass_fields__
        })  # fmt: skip
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunError(f"{directory.path / 'run.json'} is damaged: {error!r}.") from error


@dataclass(frozen=True)
class Given:
    """Parts that a user gives again, by the name of `sgld.sample`'s argument.

    `comparable`: whether digests of functions can be compared, which needs one version of JAX.
    """

    values: Mapping[str, Any]
    problem: Problem | None = None
    comparable: bool = True

    def raw(self, name: str, digest: str) -> Any:
        """Return the part as it was given."""
        value = self.values.get(name)
        if value is None:
            raise must_be_given(name)
        return value

    def checked(self, name: str, digest: str) -> Any:
        """Return the part as a setup holds it.

        Raises RunError unless it is the part with which the run was begun.
        """
        value = self.raw(name, digest)
        assert self.problem is not None
        if self.comparable and not has_digest(self.problem, name, value, digest):
            raise not_the_same(name)
        release_mistakable(value)
        if name in ("step_size", "temperature"):
            return as_schedule(value, name, zero=name == "temperature")
        return value.prepare(self.problem.layout) if name == "preconditioner" else value


def check_given(
    problem: Problem, asked: Mapping[str, Any], ask: Request, given: Mapping[str, Any]
) -> None:
    """Raise RunError if a part in run.json is given again and differs."""
    for name, value in given.items():
        stored, written = getattr(ask, name), asked["request"][name]
        if value is None:
            continue
        if isinstance(written, dict) and "own" in written:
            same = not same_jax(asked) or has_digest(problem, name, value, written["digest"])
        elif name in ("step_size", "temperature"):
            zero = name == "temperature"
            same = _same(*(x if isinstance(x, str) else as_schedule(x, name, zero=zero) for x in (stored, value)))  # fmt: skip
        else:
            same = _same(stored, value)
        if not same:
            raise not_the_same(name)


def _same(one: Any, other: Any) -> bool:
    """Return whether two parts have the same type, strings and numbers.

    Numbers are compared in single precision, and a list equals a tuple of the same elements.
    """
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return type(one) is type(other) and all(
            _same(getattr(one, name), getattr(other, name)) for name in names
        )
    if any(x is None or isinstance(x, str) for x in (one, other)):
        return type(one) is type(other) and one == other
    if all(isinstance(x, (list, tuple)) for x in (one, other)):
        return len(one) == len(other) and all(map(_same, one, other))
    try:
        return np.array_equal(np.asarray(one, np.float32), np.asarray(other, np.float32))
    except (TypeError, ValueError):  # not numbers
        return False


COMPARED_ROWS = 256
MAX_COMPARED_DIM = 1000  # parameters up to which all of these rows are compared
COMPARISON_RADIUS = 0.5  # how far from the start the values of a model are compared
# relative difference of values in single precision between versions of JAX
MAX_ROUNDING_ERROR = 1e-4
PACKAGE = __name__.partition(".")[0]
OUR_CLASS = re.compile(rf"<class '({PACKAGE}\.[\w.]+)\.(\w+)'>")
# packages whose classes are not user-supplied either
FOREIGN_PACKAGES = ("builtins", "typing", "abc", "jax", "functools")
SETTING_ARGUMENTS = ("sampler", "step_size", "temperature", "gradient", "preconditioner")


def own_digests(problem: Problem, ask: Request) -> dict[str, str]:
    """Return the digest of every part that may be user-supplied."""
    values = {name: getattr(ask, name) for name in SETTING_ARGUMENTS}
    return {
        name: own_digest(problem, name, value)
        for name, value in values.items()
        if not isinstance(value, (str, int, float))
    }


def own_digest(problem: Problem, name: str, value: Any) -> str:
    """Return the SHA-256 of a part's code, of its numbers, and of its trace if JAX traces it."""
    return _digest_named(problem, name, value, stable_name)


def has_digest(problem: Problem, name: str, value: Any, digest: str) -> bool:
    """Return whether a part has a stored digest, in the form of this version or an older one."""
    forms = (stable_name, former_name)
    return any(_digest_named(problem, name, value, form) == digest for form in forms)


def _digest_named(problem: Problem, name: str, value: Any, name_of: Callable[[type], str]) -> str:
    """Return the digest of a part in which `name_of` names the classes of this library."""
    structure = _without_modules(without_addresses(jax.tree.structure(value)), name_of)
    said = [structure, *(_code(kind, name_of) for kind in type(value).__mro__)]
    with contextlib.suppress(TypeError, ValueError, AttributeError):  # cannot be traced by itself
        said.append(digest(_traced(problem, name, value)))
    found = hashlib.sha256("\n".join(said).encode())
    for number in _numbers(value):
        found.update(number.tobytes())
    return found.hexdigest()


def _without_modules(text: str, name_of: Callable[[type], str]) -> str:
    """Return a printed structure in which `name_of` names the classes of this library."""

    def renamed(found: re.Match[str]) -> str:
        kind = getattr(sys.modules.get(found[1]), found[2], None)
        return f"<class '{name_of(kind)}'>" if isinstance(kind, type) else found[0]

    return OUR_CLASS.sub(renamed, text)


def _numbers(value: Any, depth: int = 0) -> Iterator[np.ndarray]:
    """Yield the numbers and strings of a tree's leaves, and of the attributes of other objects."""
    for leaf in jax.tree.leaves(value):
        if callable(leaf) or depth > MAX_OBJECT_DEPTH:
            continue
        array = np.asarray(leaf)
        if array.dtype != object:
            yield array
        for name, part in sorted(getattr(leaf, "__dict__", {}).items()):
            yield np.asarray(name)
            yield from _numbers(part, depth + 1)


def _code(kind: type, name_of: Callable[[type], str]) -> str:
    """Return the name of a class, and for a user's class its source without comments."""
    library = kind.__module__.partition(".")[0]
    if library == PACKAGE:
        return name_of(kind)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if library in FOREIGN_PACKAGES:
        return name
    with contextlib.suppress(OSError, TypeError, SyntaxError):  # written at a prompt
        return name + ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(kind))))
    return name


def _traced(problem: Problem, name: str, value: Any) -> Any:
    """Trace a schedule's value at a step, or a sampler's step on a Gaussian."""
    if name in ("step_size", "temperature"):
        return trace(value, jnp.int32(0))
    if name != "sampler":
        raise TypeError(name)
    d, count = problem.dimension, value.num_noises
    one = jnp.ones((), problem.layout.dtype)
    noise = jnp.zeros((d,) if count == 1 else (count, d), problem.layout.dtype)

    def step(z: Any, h: Any, noise: Any, D: Any, T: Any) -> Any:
        grad = Estimate(lambda q: -0.5 * jnp.sum(q**2))
        return value.step(value.init(z), grad, h, noise, preconditioner=Scalar(D), temperature=T)

    return trace(step, jnp.zeros(d, problem.layout.dtype), one, noise, one, one)


def elsewhere(asked: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return a sentence if a run continues under other versions or on another kind of machine."""
    before, here = ({"machine": r.get("machine"), **r.get("versions", {})} for r in (asked, now))
    changed = [f"{name} {before.get(name)} before, {here[name]} now" for name in here if before.get(name) != here[name]]  # fmt: skip
    if not changed:
        return None
    return (
        f"the run continued elsewhere ({'; '.join(changed)}): its draws are equally valid, but they differ from those "
        "of an uninterrupted run by rounding."
    )


def _model_hash(problem: Problem) -> str:
    """Return the SHA-256 of the traced log density and predictions, and of their bound numbers."""
    target, z0 = problem.target, problem.start
    row = problem.source.take(sent([0], np.int32)) if problem.has_rows else None

    def model(target: Any, z: Any, row: Any) -> Any:
        if row is None:
            return target.log_prior(z)
        density = target.log_prior(z) + target.log_likelihood(z, row)
        predict = target.posterior.predict
        if predict is None:
            return density
        return density, predict(target.position(z), jax.tree.map(lambda leaf: leaf[0], row))

    return digest(trace(model, target, z0, row), *jax.tree.leaves(target))


def _model_values(problem: Problem) -> list[float] | None:
    """Return values of the log prior, rows' log likelihoods and predictions near the start.

    None for a formula's model. What JAX prints of a model differs between its versions; its values
    differ by rounding alone. The rows are spread over the data.
    """
    if problem.posterior.names is not None:  # run.json holds the whole model
        return None
    rows = None
    if problem.has_rows:
        most = COMPARED_ROWS if problem.dimension <= MAX_COMPARED_DIM else COMPARED_ROWS // 8
        numbers = np.linspace(0, problem.num_data - 1, min(most, problem.num_data))
        rows = problem.source.take(sent(numbers.astype(np.int32)))
    return _numbers_of(_values_at(problem.target, _near_start(problem), rows))


def _near_start(problem: Problem) -> np.ndarray:
    """Return two positions around the start, [2, d]."""
    k = np.arange(problem.dimension, dtype=np.float32)
    return np.asarray(problem.start) + COMPARISON_RADIUS * np.stack([np.cos(k), -np.cos(2 * k + 1)])


def _numbers_of(values: Any) -> list[float]:
    return [float(x) for leaf in jax.tree.leaves(values) for x in np.ravel(np.asarray(leaf))]


@jax.jit
def _values_at(target: Any, zs: Any, rows: Any) -> Any:
    predict = target.posterior.predict

    def of_row(z: Any, row: Any) -> Any:
        alone = jax.tree.map(lambda leaf: leaf[None], row)
        found = [jnp.sum(target.log_likelihood(z, alone))]
        if predict is not None:
            predicted = jax.tree.leaves(predict(target.position(z), row))
            found += [jnp.sum(jnp.asarray(leaf, found[0].dtype)) for leaf in predicted]
        return found

    def at(z: Any) -> Any:
        each = None if rows is None else jax.vmap(lambda row: of_row(z, row))(rows)
        return target.log_prior(z), each

    return jax.lax.map(at, jnp.asarray(zs, target.layout.dtype))


def _keep_values(keep: Keep, problem: Problem) -> list[float]:
    """Return what a function keeps at two positions around the start."""
    zs = jnp.asarray(_near_start(problem), problem.layout.dtype)
    at = jax.jit(lambda z: keep.function(problem.target.reported(z)))
    return _numbers_of([at(z) for z in zs])


def _keep_hash(keep: Keep, problem: Problem) -> str:
    """Return the SHA-256 of the traced function and of its bound numbers."""

    def kept(function: Any, z: Any) -> Any:
        return function(problem.target.reported(z))

    return digest(trace(kept, keep.function, problem.start), *jax.tree.leaves(keep.function))


def saved_keep(directory: RunDirectory, asked: Mapping[str, Any], keep: Any) -> Any:
    """Return what a resumed run keeps.

    Raises RunError if the run kept a function and it is not given again.
    """
    before = (asked.get("keep") or {}).get("kind")
    if before is None and keep is not None:
        raise RunError(
            f"{directory.path} was begun without keep; resume it without keep, or begin another run."
        )
    if before == "function" and keep is None:
        raise RunError(
            f"{directory.path} was begun with keep=, a function, which is not stored; give it again: "
            "sgld.resume(path, posterior, data, init, keep=function)."
        )
    return MOMENTS if before == MOMENTS and keep is None else keep


def same_jax(asked: Mapping[str, Any]) -> bool:
    """Return whether a run was begun under this version of JAX, as others trace differently."""
    return asked.get("versions", {}).get("jax") == jax.__version__


def _same_values(before: list[float] | None, now: list[float] | None) -> bool:
    """Return whether a model has the values that were stored, up to rounding."""
    if before is None or now is None or len(before) != len(now):
        return False
    return np.allclose(
        before, now, rtol=MAX_ROUNDING_ERROR, atol=MAX_ROUNDING_ERROR, equal_nan=True
    )


def _without(kept: Any, *names: str) -> dict[str, Any]:
    return {name: value for name, value in (kept or {}).items() if name not in names}


def _same_keep(before: Any, now: Any, same: bool) -> bool:
    """Return whether `keep` is the same: by hash, or by values if JAX is another version."""
    if _without(before, "values") == _without(now, "values"):
        return True
    return (
        not same
        and _without(before, "hash", "values") == _without(now, "hash", "values")
        and _same_values(before.get("values"), now.get("values"))
    )


def _check_keep(directory: RunDirectory, before: Any, now: Any, same: bool) -> None:
    if _same_keep(before, now, same):
        return
    if before["kind"] != now["kind"]:
        kinds = {MOMENTS: f"keep={MOMENTS!r}", "function": "a function as keep"}
        one, other = kinds[before["kind"]], kinds[now["kind"]]
        raise RunError(
            f"{directory.path} was begun with {one}, and now got {other}; resume it with the original keep."
        )
    if before["leaves"] != now["leaves"]:
        one, other = (
            ", ".join(f"{name} {tuple(shape)} {dtype}" for name, shape, dtype in kept["leaves"])
            for kept in (before, now)
        )
        raise RunError(
            f"{directory.path} was begun with a keep that returned {one}, and this keep returns "
            f"{other}; resume it with the original function."
        )
    raise RunError(
        f"{directory.path} was begun with another keep of the same shapes; resume it with the original keep."
    )


def check_unchanged(directory: RunDirectory, asked: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise RunError that names what changed since the run was begun."""
    words = {
        "x64": "jax_enable_x64",
        "data_hash": "the data",
        "init_hash": "init",
        "model_hash": "the model",
    }
    for name, word in words.items():
        same = asked.get(name) == now[name]
        if name == "model_hash" and not same_jax(asked):
            same = same or _same_values(asked.get("model_values"), now["model_values"])
        if not same:
            part = ", which is sgld.networks.part(init, where)" if asked.get("part") else ""
            raise RunError(
                f"{directory.path} was begun with other values of {word}; resume it with the same"
                f"{part if word == 'init' else ''}."
            )
    _check_keep(directory, asked.get("keep"), now["keep"], same_jax(asked))
    for package, version in now["versions"].items():
        before = str(asked.get("versions", {}).get(package))
        if before.split(".")[0] != version.split(".")[0]:
            raise RunError(
                f"{directory.path} was begun with {package} {before}, and this is {version}; "
                "resume the run under the same major version."
            )
