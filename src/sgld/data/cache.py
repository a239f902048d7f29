"""The cache of shuffled rows: folders that are either complete or absent.

    CACHE/KEY/rows.json      the sealed manifest: shapes, columns, hashes of every block of every file
    CACHE/KEY/0.npy ...      the leaves, [N + 1, ...], in shuffled order
    CACHE/KEY/order.npy      the original number of each row; dropped.npy, the rows that were left out
    CACHE/KEY/looked.json    sizes and times of these files when their hashes were last verified
    CACHE/seen-FILE.json     size, time and SHA-256 of a user's file, which saves reading it again
    CACHE/.partial-*/        a running conversion, locked, or a stopped one, which the next one removes

KEY is the SHA-256 of everything that determines the rows: the bytes of the files, columns, seed,
precision. A conversion writes its own temporary folder, flushes everything, and renames it. A conversion
that is stopped leaves no KEY and is repeated. Files whose size or time has changed since the last
verification are read again; files with wrong hashes are removed and created again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # no advisory locks on this platform
    fcntl = None

from ..compilation import user_folder
from ..core.files import SCRATCH_PREFIX, flush_folder, read_json, remove, write_json
from ..errors import DataError, RunError

CACHE_FORMAT = 1  # the version of the folder layout
HASH_BLOCK_BYTES = 2**24  # bytes of a block, which has its own hash
DATA_CACHE_VARIABLE = "SGLD_DATA_CACHE"
STALE_AFTER_SECONDS = 60.0  # seconds after which a partial file is abandoned
RACY_NS = 2e9  # nanoseconds: a younger file may change again and keep its time

Tick = Callable[[int, int], Any]


def key_of(asked: dict[str, Any]) -> str:
    """Return the cache key of a request."""
    words = json.dumps({**asked, "format": CACHE_FORMAT}, sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()[:32]


class Writer:
    """A cache file that hashes its blocks while it is written."""

    def __init__(self, path: Path) -> None:
        self.path, self.blocks = path, list[str]()
        self._file = open(path, "xb")  # noqa: SIM115  closed by `__exit__`
        self._found, self._in_block = hashlib.sha256(), 0

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, content: Any) -> None:
        """Write bytes, or those of an array."""
        view = memoryview(content).cast("B")
        self._file.write(view)
        while len(view):
            part = view[: HASH_BLOCK_BYTES - self._in_block]
            self._found.update(part)
            self._in_block += len(part)
            view = view[len(part) :]
            if self._in_block == HASH_BLOCK_BYTES:
                self._end_block()

    def close(self) -> list[str]:
        """Flush the file to the disk, close it, and return the hashes of its blocks."""
        if self._in_block:
            self._end_block()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self.blocks

    def _end_block(self) -> None:
        self.blocks.append(self._found.hexdigest())
        self._found, self._in_block = hashlib.sha256(), 0


class Cache:
    """A folder of caches; DataError is raised if it cannot be created or read."""

    def __init__(self, folder: str | Path | None) -> None:
        chosen = folder if folder is not None else os.environ.get(DATA_CACHE_VARIABLE)
        self.folder = Path(chosen) if chosen is not None else user_folder() / "data"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{self.folder} could not be created for the cache of shuffled rows ({error.strerror}); give another "
                f"folder with cache=, or in {DATA_CACHE_VARIABLE}."
            ) from error

    # -- existing caches -------------------------------------------------------------------

    def found(self, key: str, tick: Tick) -> dict[str, Any] | None:
        """Return the manifest of a complete cache, or None; a damaged cache is removed."""
        folder = self.folder / key
        if not folder.is_dir():
            return None
        try:
            manifest = read_json(folder / "rows.json")
            if self._looked_at(folder, manifest) or self._is_whole(folder, manifest, tick):
                return manifest
        except (OSError, RunError, KeyError, TypeError):
            pass
        shutil.rmtree(folder, ignore_errors=True)
        return None

    def _looked_at(self, folder: Path, manifest: dict[str, Any]) -> bool:
        """Return whether all files have the size and time of their last verification."""
        try:
            before = read_json(folder / "looked.json")
        except (OSError, RunError):
            return False
        return before == _stamps(folder, manifest)

    def _is_whole(self, folder: Path, manifest: dict[str, Any], tick: Tick) -> bool:
        """Return whether all blocks have their hashes, in one pass over the files."""
        done, size = 0, sum(stamp[0] for stamp in _stamps(folder, manifest).values())
        for name, blocks in manifest["blocks"].items():
            with open(folder / name, "rb") as file:
                for block in blocks:
                    part = file.read(HASH_BLOCK_BYTES)
                    if hashlib.sha256(part).hexdigest() != block:
                        return False
                    done += len(part)
                    tick(done, size)
                if file.read(1):
                    return False
        with contextlib.suppress(RunError):  # a read-only cache is verified again the next time
            write_json(folder / "looked.json", _stamps(folder, manifest))
        return True

    # -- new caches ------------------------------------------------------------------------

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Provide an own temporary folder, which is removed at the end unless `keep` moved it."""
        self._sweep()
        path, lock = self._own()
        try:
            yield path
        finally:
            os.close(lock)
            shutil.rmtree(path, ignore_errors=True)

    def _own(self) -> tuple[Path, int]:
        """Create a folder and return it with its lock, which is held."""
        while True:
            path = self.folder / f"{SCRATCH_PREFIX}{secrets.token_hex(8)}"
            path.mkdir()
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_EXCL)
            # another process may have removed it between these two lines
            if (_locked(lock) or fcntl is None) and (path / "lock").exists():
                return path, lock
            os.close(lock)

    def keep(self, scratch: Path, key: str, manifest: dict[str, Any]) -> None:
        """Move the temporary folder to the cache under this key."""
        write_json(scratch / "rows.json", manifest)
        write_json(scratch / "looked.json", _stamps(scratch, manifest))
        flush_folder(scratch)
        with contextlib.suppress(FileExistsError, OSError):
            os.rename(scratch, self.folder / key)
        if not (self.folder / key / "rows.json").exists():
            raise DataError(f"{self.folder / key} could not be written; name another cache=.")
        remove(self.folder / key / "lock")  # last: without a lock, the folder counts as abandoned
        flush_folder(self.folder)

    def _sweep(self) -> None:
        """Remove the folders of stopped conversions, whose locks no process holds."""
        for path in self.folder.glob(f"{SCRATCH_PREFIX}*"):
            try:
                lock = os.open(path / "lock", os.O_RDWR)
            except (FileNotFoundError, NotADirectoryError):  # just begun or ended, or a small file
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > STALE_AFTER_SECONDS:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                continue
            except OSError:  # no permission, or too many open files: it may be running
                continue
            with contextlib.suppress(OSError):
                if _locked(lock):
                    shutil.rmtree(path, ignore_errors=True)
            os.close(lock)

    # -- user's files ----------------------------------------------------------------------

    def content(self, path: Path, tick: Tick) -> str:
        """Return the SHA-256 of a file, remembered while its size, times and inode stay the same."""
        name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:32]
        memory = self.folder / f"seen-{name}.json"
        before = stamp_of(path)
        with contextlib.suppress(OSError, RunError, KeyError):
            seen = read_json(memory)
            if seen["stamp"] == before:
                return str(seen["sha256"])
        found, done = hashlib.sha256(), 0
        with open(path, "rb") as file:
            began = os.fstat(file.fileno())
            while part := file.read(HASH_BLOCK_BYTES):
                found.update(part)
                done += len(part)
                tick(done, began.st_size)
        digest = found.hexdigest()
        if stamp_of(path) == before and _now(memory.parent) - max(before[1], before[3]) > RACY_NS:
            with contextlib.suppress(RunError):
                write_json(memory, {"stamp": before, "sha256": digest})
        return digest


def stamp_of(path: Path) -> list[int]:
    """Return the size, modification time, inode and change time of a file.

    Each write to the file changes them, and the change time cannot be set back.
    """
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns]


def _stamps(folder: Path, manifest: dict[str, Any]) -> dict[str, list[int]]:
    return {name: stamp_of(folder / name) for name in manifest["blocks"]}


def _now(folder: Path) -> int:
    """Return the current time on the clock of the file system."""
    path = folder / f"{SCRATCH_PREFIX}{secrets.token_hex(8)}-now"
    try:
        path.touch(exist_ok=False)
        return path.stat().st_mtime_ns
    except OSError:
        return 0
    finally:
        path.unlink(missing_ok=True)


def _locked(handle: int) -> bool:
    """Try to take the lock and return whether this process holds it."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
