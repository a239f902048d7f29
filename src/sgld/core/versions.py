"""Code that differs between the supported versions of other libraries.

Every other module uses only what all supported versions share. Each entry here names the versions it
was tested with; `tests/unit/test_versions.py` holds one test for each.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra, SGLDWarning, version_numbers

if TYPE_CHECKING:
    from arviz_stats.utils import ELPDData

SLOW_SCATTER = ("0.10.2", "0.11.0")  # of jaxlib, on CUDA devices
SLOW_LOOPS = ("0.11.1",)  # of jaxlib, on a CPU


# -- JAX 0.8 to 0.12 -----------------------------------------------------------------------------


def bound_constants(jaxpr: Any) -> tuple[Any, ...]:
    """Return the constants that an expression holds by itself.

    Before JAX 0.11 a `Jaxpr` has none and a `ClosedJaxpr` has them; since then the two are one class.
    """
    return tuple(getattr(jaxpr, "consts", ()))


@contextlib.contextmanager
def same_precision() -> Iterator[None]:
    """Restore `jax_enable_x64` on exit: importing PyTensor's JAX backend turns it on for all code."""
    import jax

    before = jax.config.read("jax_enable_x64")
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


@functools.cache
def warn_of_slow_versions() -> None:
    """Warn once if the installed jaxlib is known to be slow on this device.

    With jaxlib 0.10.2 and 0.11.0 a CUDA device adds float32 values at repeated indices in a
    compare-and-swap loop: 100 to 2,000 times slower (https://github.com/jax-ml/jax/issues/38806).
    The gradient of `a[group]` is such a sum. With jaxlib 0.11.1 a CPU copies all that a loop has
    stored whenever it stores a small array: a scan of n steps takes time in n^2.
    """
    from importlib import metadata

    import jax

    version, platform = metadata.version("jaxlib"), jax.devices()[0].platform
    slow = None
    if version in SLOW_SCATTER and platform in ("gpu", "cuda"):
        slow = (
            "adds values at repeated indices slowly on CUDA devices (up to 2,000 times), as models with group effects "
            "such as a[group] do. Install jax and jaxlib 0.10.1 or 0.11.2"
        )
    elif version in SLOW_LOOPS and platform == "cpu":
        slow = "runs long loops slowly on a CPU (7 times for 100,000 draws). Install jax and jaxlib 0.11.0 or 0.11.2"
    if slow is not None:
        warnings.warn(f"jaxlib {version} {slow} or newer.", SGLDWarning, stacklevel=2)


# -- arviz-stats 0.8 and 1.3, arviz before 1.0 -----------------------------------------------------


def elpd_data(kind: str, subsample: Mapping[str, Any] | None, **fields: Any) -> ELPDData:
    """Return ArviZ's container of a criterion.

    Args:
      kind: "loo" or "waic".
      subsample: the fields of a criterion that was computed at some rows; None at all rows.
      fields: those of every criterion.

    Raises: MissingExtra for an arviz-stats with another container.
    """
    from arviz_stats import utils

    given: dict[str, Any] = {**fields, **(subsample or {})}
    try:
        if hasattr(utils, "ELPDDataLOOSubsample"):  # 1.3: a class for each criterion, none for WAIC
            name = "ELPDDataLOOSubsample" if subsample else "ELPDDataLOO"
            return getattr(utils, name if kind == "loo" else "ELPDData")(
                **(given if kind == "loo" else fields)
            )
        return utils.ELPDData(kind=kind, **given)
    except TypeError as error:
        raise _untried("arviz-stats", "0.8 to 1.3") from error


def compare_weights(criteria: Mapping[str, ELPDData], method: str) -> Any:
    """Return the weight of each model by ArviZ's `compare`, a pandas Series by name, not rounded."""
    from arviz_stats.loo import compare

    exact = {"round_to": "none"} if "round_to" in inspect.signature(compare).parameters else {}
    with warnings.catch_warnings():  # ArviZ calls deprecated functions of pandas
        warnings.simplefilter("ignore", DeprecationWarning)
        return compare(dict(criteria), method=method, **exact)["weight"]


def legacy_inference_data() -> Any:
    """Return the class `InferenceData` of ArviZ before 1.0.

    Raises: MissingExtra where no such ArviZ is installed, with what to use instead.
    """
    try:
        import arviz  # pyright: ignore[reportMissingImports]

        version = getattr(arviz, "__version__", "0")
    except ImportError:
        version = None
    if version is None or version_numbers(version) >= (1,):
        found = "none is installed" if version is None else f"{version} is installed"
        raise MissingExtra(
            f"to_inferencedata is for ArviZ before 1.0; {found}. Use draws.to_arviz() with ArviZ 1.0 or newer, or "
            "install an older one: pip install 'arviz<1'."
        )
    return arviz.InferenceData  # pyright: ignore[reportPossiblyUnboundVariable]


def _untried(name: str, tried: str) -> MissingExtra:
    from importlib import metadata

    version = metadata.version(name)
    newest = tried.split()[-1]
    return MissingExtra(
        f"{name} {version} is installed, and this part of sgld is tested with {tried}: "
        f"pip install '{name}=={newest}.*'"
    )
