"""A cache of compiled functions on disk, which saves compilation in later runs.

The command line uses it by default, in the user's cache folder. From Python it is one line, before
anything is compiled:

    import sgld.compilation; sgld.compilation.use_cache()

The environment variable SGLD_COMPILATION_CACHE gives another folder, or is `off`. If JAX already has a
persistent cache (JAX_COMPILATION_CACHE_DIR), that one is used, unchanged.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from pathlib import Path

__all__ = ["use_cache", "user_folder"]

CACHE_VARIABLE, JAX_CACHE_VARIABLE = "SGLD_COMPILATION_CACHE", "JAX_COMPILATION_CACHE_DIR"
OFF_VALUES = ("off", "no", "false", "0")
MAX_CACHE_BYTES = 256 * 2**20  # bytes; `sgld demo` uses less than 1 MiB
JAX_CACHE_SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0,  # ours take 0.05 to 1 s each
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def use_cache(folder: str | Path | None = None) -> Path | None:
    """Store the functions that JAX compiles in a folder, and load those compiled before.

    Call it before anything is compiled; JAX itself need not be imported yet. The least recently used files are
    deleted if the folder holds more than 256 MiB.

    Args:
      folder: the folder (None: the folder in SGLD_COMPILATION_CACHE, or else `sgld` in the user's
        cache folder: XDG_CACHE_HOME, ~/.cache, on macOS ~/Library/Caches, on Windows LOCALAPPDATA).

    Returns: the folder in use, one for each kind of processor; None if the variable is `off`,
    if JAX has a cache already, and if the folder is not writable.

    Example:
      >>> import os
      >>> os.environ["SGLD_COMPILATION_CACHE"] = "off"
      >>> print(use_cache())
      None
    """
    named = os.environ.get(CACHE_VARIABLE, "")
    if named.lower() in OFF_VALUES or _has_one():
        return None
    try:
        path = Path(folder or named or user_folder()).expanduser() / _machine()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # cannot be created, or no home directory
        return None
    if not os.access(path, os.W_OK | os.X_OK):
        return None
    _shorten(path, MAX_CACHE_BYTES)
    for name, value in {"jax_compilation_cache_dir": str(path), **JAX_CACHE_SETTINGS}.items():
        _set(name, value)
    return path


def _has_one() -> bool:
    jax = sys.modules.get("jax")
    own = None if jax is None else jax.config.jax_compilation_cache_dir
    return bool(own or os.environ.get(JAX_CACHE_VARIABLE))


def _set(name: str, value: str | int) -> None:
    """Set a JAX option without importing JAX, which takes half a second."""
    if "jax" in sys.modules:
        sys.modules["jax"].config.update(name, value)
    else:
        os.environ.setdefault(name.upper(), str(value))


def user_folder() -> Path:
    """Return the user's folder for files that can be created again."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():
        return given / "sgld"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "sgld"
    if sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        return Path(os.environ["LOCALAPPDATA"]) / "sgld" / "Cache"
    return Path.home() / ".cache" / "sgld"


def _machine() -> str:
    """Return a folder name for this kind of processor, because several may share a home directory.

    JAX's own keys hold versions, but not the instruction sets of a processor.
    """
    described = f"{platform.machine()} {platform.processor()}"
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        described += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"compiled-{hashlib.sha256(described.encode()).hexdigest()[:12]}"


def _shorten(path: Path, most: int) -> None:
    """Delete the least recently used files until half of `most` is left, if there are more bytes."""
    found = []
    for entry in os.scandir(path):
        with contextlib.suppress(OSError):  # another process may have deleted it
            about = entry.stat()
            found.append((max(about.st_atime, about.st_mtime), about.st_size, entry.path))
    size = sum(entry[1] for entry in found)
    if size <= most:
        return
    for _, bytes_, name in sorted(found):
        if size <= most // 2:
            break
        with contextlib.suppress(OSError):
            os.remove(name)
        size -= bytes_
