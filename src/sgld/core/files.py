"""Atomic, sealed files of arrays and JSON, and the lock of a run directory.

A file is written under a temporary name, flushed to the disk and renamed, and its folder is flushed. A
reader therefore sees the old content or the new content, never a part of it. Every file is sealed: it
holds the SHA-256 of the rest of its content.

Reading trusts nothing. It follows no symbolic link, makes no array larger than its file, and unpickles
nothing. Any defect raises a RunError with one sentence.

The lock of a run directory is a file that one process holds. It records the process and the time until
which the record is valid.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
import socket
import stat
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import RunError, SGLDError, first_line

# the prefix of temporary names, which identifies the files of a killed process
SCRATCH_PREFIX = ".partial-"
# the key of the SHA-256, and the name of the array that holds the JSON object
SEAL_KEY, JSON_KEY = "seal", "json"
MAX_JSON_BYTES = 2**26  # bytes
MAX_ARRAYS = 100_000  # in one file
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


# -- writing ---------------------------------------------------------------------------------


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically: a reader sees the old content or the new content."""
    written(path, lambda file: file.write(content))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object with its seal, atomically."""
    write_atomic(path, as_json({**value, SEAL_KEY: _seal_of(value, {})}))


def as_json(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object as indented text in bytes."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def write_arrays(path: Path, head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a JSON object and named arrays as an uncompressed .npz file with a seal, atomically."""
    content = json.dumps({**head, SEAL_KEY: _seal_of(head, arrays)}, allow_nan=False).encode()
    parts = {JSON_KEY: np.frombuffer(content, np.uint8), **arrays}
    written(path, lambda file: np.savez(file, **parts))  # type: ignore[arg-type]


def _seal_of(head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256(json.dumps(head, sort_keys=True, allow_nan=False).encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def written(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file with the function `write`, atomically: a reader sees old or new content."""
    scratch = path.with_name(f"{SCRATCH_PREFIX}{secrets.token_hex(8)}")
    try:
        # O_EXCL: never write through an existing file or link of that name
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o666)
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
        flush_folder(path.parent)
    except OSError as error:
        raise RunError(f"{path} could not be written: {_why(path, error)}.") from error
    finally:
        with contextlib.suppress(OSError):  # after the rename, the temporary name does not exist
            scratch.unlink()


def flush_folder(path: Path) -> None:
    """Flush the renames and removals in a folder to the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove(path: Path) -> None:
    """Remove a file if it exists; raise RunError if the removal is not permitted."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"{path} cannot be removed: {_why(path, error)}.") from error


def _why(path: Path, error: OSError) -> str:
    if not path.parent.is_dir():
        return f"{path.parent} no longer exists"
    return error.strerror or str(error)


def exists(path: Path) -> bool:
    """Return whether a file or a link exists; raise RunError if that cannot be determined."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:  # no permission, a name too long, or with a zero byte
        raise RunError(
            f"{path} cannot be accessed: {getattr(error, 'strerror', None) or error}."
        ) from error
    return True


# -- reading ---------------------------------------------------------------------------------


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Raise a RunError for any error that the content of a run directory causes inside the block.

    A valid seal does not guarantee valid content: anybody can edit a run directory and seal it again. No
    list of exception types is complete, so every other exception is converted.
    """
    try:
        yield
    except (SGLDError, OSError, MemoryError):
        raise
    except Exception as error:
        raise RunError(f"{path} is damaged: {_brief(error)}.") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading; raise FileNotFoundError if absent, RunError otherwise."""
    if exists(path) and path.is_symlink():
        raise RunError(f"{path} is a symbolic link, which a run directory must not contain.")
    try:
        # without O_NONBLOCK, opening a named pipe would wait for a writer
        handle = os.open(path, os.O_RDONLY | NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise RunError(f"{path} cannot be read: it is not a regular file.")
    with os.fdopen(handle, "rb") as file:
        yield file


def digest_of(path: Path) -> tuple[int, str]:
    """Return (bytes, SHA-256) of a file."""
    with _opened(path) as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()  # pyright: ignore[reportArgumentType]
        return os.fstat(file.fileno()).st_size, found


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of `write_json`; raise RunError if it is not one, FileNotFoundError if absent."""
    with _opened(path) as file:
        content = file.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        raise RunError(f"{path} cannot be read: it has more than {MAX_JSON_BYTES} bytes.")
    return _unsealed(path, content, {})


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file of `write_arrays` as read-only arrays that need no more memory than the file.

    Raises RunError if the file is not one of `write_arrays`, FileNotFoundError if it is absent.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            arrays = dict(_members(file, size))
            content = arrays.pop(JSON_KEY).tobytes()
        except RunError as error:
            raise RunError(f"{path} cannot be read: {error}") from error
        except Exception as error:  # zipfile and NumPy raise many types for a broken archive
            raise RunError(f"{path} cannot be read: {_brief(error)}.") from error
    return _unsealed(path, content, arrays), arrays


def _unsealed(path: Path, content: bytes, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    try:
        head = json.loads(content)
        if not isinstance(head, dict):
            raise RunError(f"{path} cannot be read: it does not hold a JSON object.")
        if SEAL_KEY not in head:
            raise RunError(
                f"{path} has no seal: it was written by another version of sgld, or by another program; sample again."
            )
        seal = head.pop(SEAL_KEY)
        sealed = _seal_of(head, arrays)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {_brief(error)}.") from error
    if seal != sealed:
        raise RunError(
            f"{path} does not match its seal: it was damaged or edited; restore a copy of it, or sample again."
        )
    return head


def _members(file: IO[bytes], size: int) -> Iterator[tuple[str, np.ndarray]]:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > MAX_ARRAYS or sum(member.file_size for member in members) > size:
            raise RunError("its parts are larger than the file.")
        if len({member.filename for member in members}) < len(members):
            raise RunError("two of its arrays have the same name.")
        for member in members:
            name, dot, ending = member.filename.rpartition(".")
            if dot + ending != ".npy" or member.compress_type != zipfile.ZIP_STORED:
                raise RunError(f"{member.filename[:80]!r} is not an uncompressed .npy array.")
            yield name, _array(archive.read(member))


def read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, order (True: by column) and dtype of a .npy file; KeyError for a new version."""
    kinds = np.lib.format
    read = {(1, 0): kinds.read_array_header_1_0, (2, 0): kinds.read_array_header_2_0}
    return read[kinds.read_magic(file)](file)


def _array(content: bytes) -> np.ndarray:
    """Return the array of a .npy file's bytes without copying its numbers."""
    stream = io.BytesIO(content)
    shape, by_column, dtype = read_npy_header(stream)
    if dtype.kind not in "biufV" or dtype.hasobject or dtype.names is not None:
        raise RunError(f"an array has dtype {dtype}, which is not numeric.")
    if 0 in shape:
        return np.zeros(shape, dtype)
    array = np.frombuffer(content, dtype, offset=stream.tell())
    return array.reshape(shape, order="F" if by_column else "C")


def _brief(error: Exception) -> str:
    return f"{type(error).__name__} {first_line(error)}".rstrip()


# -- lock ----------------------------------------------------------------------------------


class Lock:
    """The lock of the run directory `run`.

    It is an advisory lock, which ends with its process. Its file also holds a record of the holder, for
    hosts that do not see each other's locks on a network file system.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.path = run, run / "lock"
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Acquire the lock unless this process holds it; raise RunError if another one does."""
        if self._file is not None:
            return
        try:
            import fcntl
        except ImportError:  # no advisory locks on this platform
            return
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o666)
        except OSError as error:
            raise RunError(f"{self.path} could not be opened: {error.strerror}.") from error
        file = os.fdopen(handle, "r+", errors="replace")
        holder = _holder(file.read(1000))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            by = f", process {holder['pid']} on {holder['host']}" if holder else ""
            raise RunError(
                f"{self.run} is in use by another process{by}; wait for it to end."
            ) from error
        if holder and holder["host"] != socket.gethostname() and time.time() < holder["until"]:
            file.close()
            raise RunError(
                f"{self.run} is in use by another process, {holder['pid']} on {holder['host']}; wait for it "
                f"to end, or, if it is dead, delete {self.path}."
            )
        self._file = file

    def in_use(self) -> bool:
        """Return whether a process holds the lock, according to the record in its file.

        The check does not try the lock itself: that would briefly refuse the lock to a run that starts.
        """
        for _ in range(2):
            try:
                handle = os.open(self.path, os.O_RDONLY | NO_FOLLOW)
            except OSError:
                return False
            with os.fdopen(handle, errors="replace") as file:
                holder, found = _holder(file.read(1000)), os.fstat(file.fileno())
            if holder is not None:
                here = holder["host"] == socket.gethostname()
                return opened_by(holder["pid"], found) if here else time.time() < holder["until"]
            time.sleep(0.02)  # the holder may be about to write its record
        return False

    def alive(self, seconds: float) -> None:
        """Record this process as the holder for the next `seconds`, if it holds the lock."""
        if self._file is not None:
            until = time.time() + seconds
            self._write_record(
                json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "until": until})
            )

    def give_back(self) -> None:
        """Release the lock."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # the disk may be full
                self._write_record("")
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _write_record(self, text: str) -> None:
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()


def _holder(text: str) -> dict[str, Any] | None:
    """Parse the record of a lock file; return None if it is not readable."""
    try:
        said = json.loads(text)
        return {
            "host": str(said["host"])[:80],
            "pid": int(said["pid"]),
            "until": float(said["until"]),
        }
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def opened_by(pid: int, file: os.stat_result) -> bool:
    """Return whether process `pid` runs on this machine and, if visible, has the file open.

    The process id alone is not enough: it may now belong to another process.
    """
    if os.name == "nt":  # no locks are written on Windows, and signal 0 would be sent
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:  # a process of another user
        return True
    except (OSError, OverflowError):
        return False
    try:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed in the meantime
                if os.path.samestat(handle.stat(), file):
                    return True
        return False
    except OSError:  # no such folder, or no permission to read it
        return True
