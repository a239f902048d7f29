"""The cache of shuffled rows: folders that are whole or not there.

    CACHE/KEY/rows.json      what is in it, sealed: shapes, columns, hashes of every block of every file
    CACHE/KEY/0.npy ...      the leaves, [N + 1, ...], in the order of the shuffle
    CACHE/KEY/order.npy      which row is which; dropped.npy, the rows that were left out
    CACHE/KEY/looked.json    sizes and times of these when their hashes were last found right
    CACHE/seen-FILE.json     size, time and SHA-256 of a file of the user's, so that it is not read again to know it
    CACHE/.partial-*/        a conversion at work, locked; or what a stopped one left, which the next one removes

KEY is the SHA-256 of all that decides the rows: the bytes of the files, columns, seed, precision.
A conversion writes its own scratch folder, flushes everything, and renames it: what is stopped at any
instant leaves no KEY, and is made anew. Files whose size or time is not what it was when they were
looked at are read once more, and what does not have its hashes is removed and made anew.
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

CACHE_FORMAT = 1  # of the folders
HASH_BLOCK_BYTES = 2**24  # bytes that have a hash of their own
DATA_CACHE_VARIABLE = "SGLD_DATA_CACHE"
STALE_AFTER_SECONDS = 60.0  # seconds, after which half a file is nobody's
RACY_NS = 2e9  # nanoseconds: a file that is no older may change again and keep its time

Told = Callable[[int, int], Any]


def key_of(asked: dict[str, Any]) -> str:
    """The name of what is asked for."""
    words = json.dumps({**asked, "format": CACHE_FORMAT}, sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()[:32]


class Writer:
    """A file of a cache while it is written: its blocks are hashed on the way."""

    def __init__(self, path: Path) -> None:
        self.path, self.blocks = path, list[str]()
        self._file = open(path, "xb")  # noqa: SIM115  closed by `__exit__`
        self._found, self._in_block = hashlib.sha256(), 0

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, content: Any) -> None:
        """Bytes, or an array's."""
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
        """The file is on the disk; the hashes of its blocks."""
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
    """A folder of caches. Raises DataError where it cannot be made or read."""

    def __init__(self, folder: str | Path | None) -> None:
        chosen = folder if folder is not None else os.environ.get(DATA_CACHE_VARIABLE)
        self.folder = Path(chosen) if chosen is not None else user_folder() / "data"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{self.folder} could not be made for the cache of shuffled rows ({error.strerror}); name "
                f"another folder with cache=, or in {DATA_CACHE_VARIABLE}."
            ) from error

    # -- what stands there -----------------------------------------------------------------

    def found(self, key: str, told: Told) -> dict[str, Any] | None:
        """The manifest of a cache, its files found whole; None where there is none, or a damaged one was removed."""
        folder = self.folder / key
        if not folder.is_dir():
            return None
        try:
            manifest = read_json(folder / "rows.json")
            if self._looked_at(folder, manifest) or self._is_whole(folder, manifest, told):
                return manifest
        except (OSError, RunError, KeyError, TypeError):
            pass
        shutil.rmtree(folder, ignore_errors=True)
        return None

    def _looked_at(self, folder: Path, manifest: dict[str, Any]) -> bool:
        """Whether every file is as it was when its hashes were last right."""
        try:
            before = read_json(folder / "looked.json")
        except (OSError, RunError):
            return False
        return before == _stamps(folder, manifest)

    def _is_whole(self, folder: Path, manifest: dict[str, Any], told: Told) -> bool:
        """Whether every block has its hash: one pass over the files."""
        done, size = 0, sum(stamp[0] for stamp in _stamps(folder, manifest).values())
        for name, blocks in manifest["blocks"].items():
            with open(folder / name, "rb") as file:
                for block in blocks:
                    part = file.read(HASH_BLOCK_BYTES)
                    if hashlib.sha256(part).hexdigest() != block:
                        return False
                    done += len(part)
                    told(done, size)
                if file.read(1):
                    return False
        with contextlib.suppress(RunError):  # of a cache that cannot be written to: looked at again
            write_json(folder / "looked.json", _stamps(folder, manifest))
        return True

    # -- making ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder of one's own to write to, gone at the end unless `keep` moved it."""
        self._sweep()
        path, lock = self._own()
        try:
            yield path
        finally:
            os.close(lock)
            shutil.rmtree(path, ignore_errors=True)

    def _own(self) -> tuple[Path, int]:
        """A new folder, and its lock, held."""
        while True:
            path = self.folder / f"{SCRATCH_PREFIX}{secrets.token_hex(8)}"
            path.mkdir()
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_EXCL)
            # another process may have swept it away between these two lines
            if (_locked(lock) or fcntl is None) and (path / "lock").exists():
                return path, lock
            os.close(lock)

    def keep(self, scratch: Path, key: str, manifest: dict[str, Any]) -> None:
        """What was written to `scratch` is the cache of this key from now on."""
        write_json(scratch / "rows.json", manifest)
        write_json(scratch / "looked.json", _stamps(scratch, manifest))
        flush_folder(scratch)
        with contextlib.suppress(FileExistsError, OSError):
            os.rename(scratch, self.folder / key)
        if not (self.folder / key / "rows.json").exists():
            raise DataError(f"{self.folder / key} could not be written; name another cache=.")
        remove(self.folder / key / "lock")  # not before: a scratch folder without one is nobody's
        flush_folder(self.folder)

    def _sweep(self) -> None:
        """Remove what stopped conversions left: nobody holds their locks."""
        for path in self.folder.glob(f"{SCRATCH_PREFIX}*"):
            if not path.is_dir():  # a small file, written in an instant
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > STALE_AFTER_SECONDS:
                        path.unlink()
                continue
            try:
                lock = os.open(path / "lock", os.O_RDWR)
            except FileNotFoundError:  # just begun, or just ended; or ended there long ago
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > STALE_AFTER_SECONDS:
                        shutil.rmtree(path, ignore_errors=True)
                continue
            except OSError:  # no right to look, or no file more may be opened: it may be at work
                continue
            with contextlib.suppress(OSError):
                if _locked(lock):
                    shutil.rmtree(path, ignore_errors=True)
            os.close(lock)

    # -- files of the user's ---------------------------------------------------------------

    def content(self, path: Path, told: Told) -> str:
        """SHA-256 of a file's bytes; remembered while its size, time and place on the disk stay."""
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
                told(done, began.st_size)
        digest = found.hexdigest()
        if stamp_of(path) == before and _now(memory.parent) - max(before[1], before[3]) > RACY_NS:
            with contextlib.suppress(RunError):
                write_json(memory, {"stamp": before, "sha256": digest})
        return digest


def stamp_of(path: Path) -> list[int]:
    """What changes when a file is written to: size, time, place on the disk, and the time that nobody can set back."""
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns]


def _stamps(folder: Path, manifest: dict[str, Any]) -> dict[str, list[int]]:
    return {name: stamp_of(folder / name) for name in manifest["blocks"]}


def _now(folder: Path) -> int:
    """The clock that the files' own times are of."""
    path = folder / f"{SCRATCH_PREFIX}{secrets.token_hex(8)}-now"
    try:
        path.touch(exist_ok=False)
        return path.stat().st_mtime_ns
    except OSError:
        return 0
    finally:
        path.unlink(missing_ok=True)


def _locked(handle: int) -> bool:
    """Whether the lock is ours now."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
