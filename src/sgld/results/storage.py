"""Save, load and verify finished runs on disk, and restore a module from stored draws."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.files import as_json, digest_of, exists, reading, remove, write_atomic
from ..core.pytrees import leaf_names
from ..errors import RunError, SGLDWarning, UsageError, first_line
from ..model.modules import Network, Part, seal
from .draws import Draws
from .plan import Origin
from .run_directory import RunDirectory, no_run
from .statistics import Histogram, Moments
from .summary import UNSTORED_FACTS
from .verdict import NOT_JUDGED, Verdict

# -- stored --------------------------------------------------------------------------------


HELD_DIGEST_KEY = "held"  # in the info of stored draws: the digest of the fixed arrays


def digest_of_held(position: Any) -> str | None:
    """Return the SHA-256 of the arrays that a part of a network holds fixed.

    The arrays are hashed in single precision. The result is None for any other position.
    """
    if not isinstance(position, Network) or not isinstance(position._build, Part):
        return None
    found = hashlib.sha256()
    values = (held.value for held in position._build.held if held is not None)
    for value in values:
        if isinstance(value, (np.ndarray, jax.Array)) and jnp.issubdtype(value.dtype, jnp.inexact):
            complex_too = jnp.issubdtype(value.dtype, jnp.complexfloating)
            array = np.asarray(value, np.complex64 if complex_too else np.float32)
            found.update(str(array.shape).encode() + array.tobytes())
    return found.hexdigest()


def restore(draws: Draws, like: Any) -> Draws:
    """Return the same draws with their position in the form of `like`.

    A run directory holds arrays and JSON, never code, so `sgld.load` returns a module's arrays as a
    dict by name. This function puts them into the module again.

    Args:
      draws: the draws of `sgld.load`.
      like: what was passed as `init`: a module, or any pytree of the same parameters.

    Raises: UsageError if names or shapes differ from those of `like`, or if the draws belong to a
    part of a network whose fixed parameters had other values.

    Example:
      >>> import numpy as np, sgld
      >>> loaded = sgld.Draws.of({"a": np.zeros((4, 10, 3))})
      >>> from collections import namedtuple
      >>> restore(loaded, namedtuple("Weights", "a")(np.zeros(3))).position.a.shape
      (4, 10, 3)
    """
    if not isinstance(draws, Draws):
        raise UsageError(f"draws must be Draws. Got {type(draws).__name__}.")
    like = seal(like)
    names, treedef = leaf_names(like), jax.tree.structure(like)
    stored = dict(zip(leaf_names(draws.position), jax.tree.leaves(draws.position), strict=True))
    odd = [name for name in (*names, *stored) if (name in names) != (name in stored)]
    if odd:
        where = "the draws do not hold" if odd[0] in names else "like does not hold"
        given = "the object that was passed to sgld.sample as init"
        if HELD_DIGEST_KEY in draws.info:
            given = "sgld.networks.part(init, where) of the init and the where of the run"
        raise UsageError(f"{where} the parameter {odd[0]!r}; give {given}.")
    for name, leaf in zip(names, jax.tree.leaves(like), strict=True):
        if stored[name].shape[2:] != np.shape(leaf):
            raise UsageError(
                f"the draws of {name!r} have shape {stored[name].shape[2:]}, but its shape in like is "
                f"{np.shape(leaf)}; give the object that was passed to sgld.sample as init."
            )
    before, now = draws.info.get(HELD_DIGEST_KEY), digest_of_held(like)
    if None not in (before, now) and before != now:
        raise UsageError(
            "the parameters that were not sampled have other values in like than in the run, so its predictions "
            "would differ; give the part of the network that was passed to sgld.sample."
        )
    return replace(draws, position=treedef.unflatten([stored[name] for name in names]))


# -- storage -------------------------------------------------------------------------------


CHAIN_MOMENT_FIELDS = ("chain_mean", "chain_square", "between")  # per chain, in Moments
HISTOGRAM_FIELDS = ("low", "width", "weight")  # in Histogram
RUN_MOMENT_FIELDS = ("weight", "squared_weights", "num_batches", "num_draws")
PER_DRAW_FIELDS = ("log_weight", "step_size", "temperature")
CONFIRMATION_FILE = "confirmation.json"


def save(draws: Draws, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write `draws` as a finished run directory."""
    run = RunDirectory(path)
    run.create(overwrite)
    with run:
        run.begin({"kind": "saved", "info": jsonable(draws.info)})
        write_result(run, draws)
    return run.path


def write_result(run: RunDirectory, draws: Draws) -> None:
    """Write the reported draws and the table, then result.json, which marks the run as finished."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(draws.position)]
    arrays = {f"position{i}": leaf for i, leaf in enumerate(leaves)}
    arrays |= {name: np.asarray(getattr(draws, name)) for name in (*PER_DRAW_FIELDS, "step")}
    moments = draws.moments
    if moments is not None:
        arrays |= {f"moments_{name}": getattr(moments, name) for name in CHAIN_MOMENT_FIELDS}
        if moments.histogram is not None:
            arrays |= {
                f"bins_{name}": getattr(moments.histogram, name) for name in HISTOGRAM_FIELDS
            }
    summary, held = draws.summary(), digest_of_held(draws.position)
    result = {
        "tree": _describe(draws.position),
        "names": list(draws.names),
        "status": list(draws.status),
        "verdict": draws.verdict.to_dict() if draws.verdict.judged else None,
        "info": jsonable(draws.info if held is None else {**draws.info, HELD_DIGEST_KEY: held}),
        "moments": None if moments is None else {n: getattr(moments, n) for n in RUN_MOMENT_FIELDS},
        "told": jsonable({name: summary.facts[name] for name in UNSTORED_FACTS}),
    }
    remove(run.path / CONFIRMATION_FILE)  # it may belong to other draws
    run.write_arrays("draws.npz", {}, arrays)
    write_atomic(run.path / "summary.json", as_json(summary.to_dict()))
    # digests of both files, so that a file of another run is not accepted as this run's
    manifest = {name: digest_of(run.path / name) for name in ("draws.npz", "summary.json")}
    run.write("result.json", {**result, "files": manifest})
    run.remove_chunks()


def write_confirmation(run: RunDirectory, draws: Draws) -> None:
    """Write another verdict on the run's own draws, and keep the verdict that the run ended with.

    The verdict is written first, then the table with it. The earlier table stays known as the run's
    own, so a process that stops between the two leaves a valid run.
    """
    table_of(run)  # raises unless the present table belongs to the run; its digest is kept too
    table = as_json(draws.summary().to_dict())
    tables = [(len(table), hashlib.sha256(table).hexdigest())]
    if exists(run.path / "summary.json"):
        tables.append(digest_of(run.path / "summary.json"))
    content = {"verdict": draws.verdict.to_dict(), "draws": digest_of(run.path / "draws.npz")}
    run.write(CONFIRMATION_FILE, {**jsonable(content), "tables": jsonable(tables)})
    write_atomic(run.path / "summary.json", table)


def _confirmation(run: RunDirectory, result: dict[str, Any]) -> dict[str, Any] | None:
    """Return confirmation.json if it belongs to the draws that result.json was written with."""
    if not exists(run.path / CONFIRMATION_FILE):
        return None
    found, files = run.read(CONFIRMATION_FILE), result.get("files")
    whole = isinstance(found.get("verdict"), dict) and isinstance(found.get("tables"), list)
    if not whole or not found["tables"]:
        raise RunError(
            f"{run.path / CONFIRMATION_FILE} is damaged: the verdict or the digest of its table is missing."
        )
    fits = isinstance(files, dict) and found.get("draws") == files.get("draws.npz")
    return found if fits else None


def check_kind(run: RunDirectory) -> None:
    """Raise RunError for a run of `sgld.torch`, which only `sgld.torch` can read."""
    if run.begun().get("kind") == "torch":
        raise RunError(
            f"{run.path} is a run of sgld.torch.sample; use sgld.torch.Ensemble.load(path, model), or "
            "sgld.torch.resume(path, model, loss, dataset) if it is not finished."
        )


def load(path: str | Path) -> Draws:
    """Return the draws of a finished run directory.

    Args:
      path: the run directory.

    Raises: RunError if `path` is not a run directory, is unfinished, or is damaged.

    Example:
      >>> import sgld
      >>> sgld.load("runs/nowhere")
      Traceback (most recent call last):
      sgld.errors.RunError: there is no run directory runs/nowhere; check the path.
    """
    from .codec import plan_of

    run = RunDirectory(path)
    if not run.path.is_dir():
        raise no_run(path)
    kept = run.begun().get("keep") is not None
    if not run.finished():
        raise RunError(f"{path} is not finished; {run.remedy()}")
    said = run.said_of_next()
    if said is not None:
        warnings.warn(said, SGLDWarning, stacklevel=2)
    check_kind(run)
    result = run.read("result.json")
    plan = plan_of(run)
    _check(run, result, "draws.npz")
    found = run.read_arrays("draws.npz")
    assert found is not None
    with reading(path):
        confirmation = _confirmation(run, result)
        if confirmation is not None:
            result["verdict"] = confirmation["verdict"]
        elif exists(run.path / "summary.json"):  # a table whose verdict is lost differs
            _check(run, result, "summary.json")
        return replace(_draws(result, found[1]), plan=plan, origin=Origin(path=run.path, kept=kept))


def table_of(run: RunDirectory) -> dict[str, Any] | None:
    """Return summary.json of a finished run; None if it was deleted.

    Raises RunError if the file belongs to another run or was edited.
    """
    if not exists(run.path / "summary.json"):
        return None
    run.begun()
    result = run.read("result.json")
    confirmation = _confirmation(run, result)
    if confirmation is None:
        _check(run, result, "summary.json")
        return _table(run.path / "summary.json")
    with reading(run.path):
        now, *before = confirmation["tables"]
    found = list(digest_of(run.path / "summary.json"))
    if found == now:
        return _table(run.path / "summary.json")
    if found in before:  # the process stopped between writing the verdict and its table
        return load(run.path).summary().to_dict()
    raise _not_as_written(run.path / "summary.json")


def _table(path: Path) -> dict[str, Any]:
    """Return the JSON object of a table. Raise RunError if the file does not hold one."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {first_line(error)}.") from error
    if not isinstance(found, dict):
        raise RunError(f"{path} cannot be read: it does not hold a JSON object.")
    return found


def _missing(run: RunDirectory, name: str) -> RunError:
    return RunError(
        f"{run.path} is damaged: {name} is missing; restore it from a copy, or sample again."
    )


def _check(run: RunDirectory, result: dict[str, Any], name: str) -> None:
    """Raise RunError unless a file is the one that result.json was written with."""
    try:
        found = list(digest_of(run.path / name))
    except FileNotFoundError:
        raise _missing(run, name) from None
    files = result.get("files")
    if not isinstance(files, dict) or files.get(name) != found:
        raise _not_as_written(run.path / name)


def _not_as_written(path: Path) -> RunError:
    return RunError(
        f"{path} is not what was written: it was damaged or edited; restore it from a copy, or sample again."
    )


def verify(path: str | Path) -> dict[str, int]:
    """Read every file of a run directory, finished or not, and return the bytes of each file.

    Every file must be as it was written. Runs of `sgld.torch` are verified too.

    Args:
      path: the run directory.

    Raises: RunError for the first file that is missing, damaged, edited, or of another run.

    Example:
      >>> import tempfile, jax.numpy as jnp, sgld
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     draws = sgld.sample(
      ...         sgld.Posterior(lambda t: -0.5 * t**2), None, 0.0, path=folder + "/run", progress=False)
      ...     list(sgld.results.storage.verify(folder + "/run"))
      ['run.json', 'setup.npz', 'result.json', 'draws.npz', 'summary.json']
    """
    run = RunDirectory(path)
    if not run.path.is_dir():
        raise no_run(path)
    asked = run.begun()
    names = ["run.json", "setup.npz"]
    # the text of the plan is added to run.json after setup.npz is written
    if run.read_arrays("setup.npz") is None and "plan" in asked:
        raise _missing(run, "setup.npz")
    if run.finished() and asked.get("kind") == "torch":
        with reading(path):
            Verdict.from_dict(run.read("result.json")["verdict"])
        if run.read_arrays("draws.npz") is None:
            raise _missing(run, "draws.npz")
        names += ["result.json", "draws.npz"]
    elif run.finished():
        load(path)
        table_of(run)
        names += ["result.json", "draws.npz", "summary.json", CONFIRMATION_FILE]
    else:
        with reading(path):
            run.attempt = len(asked.get("again", []))
        found = run.read_checkpoint()
        if found is not None:
            with reading(path):
                chunks = [(int(first), int(end)) for first, end in found[0].get("chunks", [])]
            for first, end in chunks:
                run.read_chunk(first, end)
                names.append(f"chunks/{run.attempt}-{first}.npz")
            names.append("checkpoint.npz")
    return {name: (run.path / name).stat().st_size for name in names if exists(run.path / name)}


def _draws(result: dict[str, Any], arrays: dict[str, np.ndarray]) -> Draws:
    """Build Draws from stored parts. Raise ValueError if they do not belong together."""
    chains, count = arrays["step_size"].shape
    leaves = []
    while f"position{len(leaves)}" in arrays:
        leaves.append(arrays[f"position{len(leaves)}"])
    numbers = sum(math.prod(leaf.shape[2:]) for leaf in leaves)
    short = any(leaf.shape[:2] != (chains, count) for leaf in leaves)
    short |= any(arrays[name].shape != (chains, count) for name in PER_DRAW_FIELDS)
    if (
        short
        or arrays["step"].shape != (count,)
        or len(result["status"]) != chains
        or len(result["names"]) != numbers
    ):
        raise ValueError("names, chains and draws do not belong together")
    totals, moments = result["moments"], None
    if totals is not None:
        moments = Moments(
            **{n: arrays[f"moments_{n}"] for n in CHAIN_MOMENT_FIELDS}, **totals, histogram=_bins(arrays, chains, numbers)
        )  # fmt: skip
    verdict = result["verdict"]
    per_draw: dict[str, Any] = {name: arrays[name] for name in (*PER_DRAW_FIELDS, "step")}
    return Draws(
        position=_rebuild(result["tree"], iter(leaves)),
        **per_draw,
        status=tuple(result["status"]),
        names=tuple(result["names"]),
        verdict=NOT_JUDGED if verdict is None else Verdict.from_dict(verdict),
        info=result["info"],
        moments=moments,
    )


def _bins(arrays: dict[str, np.ndarray], chains: int, numbers: int) -> Histogram | None:
    """Build the stored histogram. Raise ValueError if it does not fit chains and parameters."""
    if "bins_low" not in arrays:
        return None
    found = Histogram(**{name: arrays[f"bins_{name}"] for name in HISTOGRAM_FIELDS})
    if found.low.shape != (chains, numbers):
        raise ValueError("histograms do not belong to these chains")
    return found


def _describe(tree: Any) -> Any:
    """Describe a pytree of dicts, lists and tuples in JSON.

    Any other node becomes a dict of its leaves by name.
    """
    if isinstance(tree, dict) or type(tree).__name__ == "FrozenDict":
        # in the order of the leaves: sorted, except for an OrderedDict
        keys = list(tree) if isinstance(tree, OrderedDict) else sorted(tree)
        return {"dict": {str(key): _describe(tree[key]) for key in keys}}
    names = getattr(tree, "_fields", None)
    if isinstance(tree, tuple) and names is not None:
        return {"dict": {name: _describe(getattr(tree, name)) for name in names}}
    if isinstance(tree, (list, tuple)):
        return {type(tree).__name__: [_describe(part) for part in tree]}
    if jax.tree_util.all_leaves([tree]):
        return "leaf"
    return {"dict": dict.fromkeys(leaf_names(tree), "leaf")}


def _rebuild(shape: Any, leaves: Any) -> Any:
    if shape == "leaf":
        leaf = next(leaves, None)
        if leaf is None:
            raise ValueError("the tree has more leaves than positions are stored")
        return leaf
    ((kind, parts),) = shape.items()
    if kind == "dict":
        return {name: _rebuild(part, leaves) for name, part in parts.items()}
    built = [_rebuild(part, leaves) for part in parts]
    return tuple(built) if kind == "tuple" else built


def jsonable(value: Any) -> Any:
    """Convert a value to JSON types: null for non-finite numbers, repr() for other objects."""
    if isinstance(value, dict):
        return {str(key): jsonable(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(part) for part in value]
    if isinstance(value, (np.ndarray, jax.Array)):
        return jsonable(np.asarray(value).tolist())
    if isinstance(value, (np.floating, float)):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value if value is None or isinstance(value, (str, int, bool)) else repr(value)
