"""Files: arrays and JSON, written so that a stop at any instant loses nothing.

Every file is written under a scratch name of its own, flushed to the disk, renamed, and its folder
flushed: under its name stands the old content or the new, never a part. Every file is sealed: it
holds the SHA-256 of all else that it holds. Reading trusts nothing: no symbolic link is followed,
no array is made that is larger than the file that holds it, nothing is unpickled, and whatever is
wrong is a RunError in one sentence.

The lock of a run directory: a file that one process holds, and that says who and until when to be believed.
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

# what begins the scratch names, so that those of a killed process are known
SCRATCH_PREFIX = ".partial-"
# the key of the SHA-256, and the array that holds the JSON object
SEAL_KEY, JSON_KEY = "seal", "json"
MAX_JSON_BYTES = 2**26  # bytes
MAX_ARRAYS = 100_000  # in one file
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


# -- writing ---------------------------------------------------------------------------------


def write_atomic(path: Path, content: bytes) -> None:
    """`content` under `path`: a reader sees the old content or the new."""
    written(path, lambda file: file.write(content))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON object, sealed, atomically."""
    write_atomic(path, as_json({**value, SEAL_KEY: _seal_of(value, {})}))


def as_json(value: Mapping[str, Any]) -> bytes:
    """A JSON object for people to read as well."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def write_arrays(path: Path, head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """A JSON object and arrays by name as an uncompressed .npz, sealed, atomically."""
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
    """What `write` writes to a file under `path`: a reader sees the old content or the new."""
    scratch = path.with_name(f"{SCRATCH_PREFIX}{secrets.token_hex(8)}")
    try:
        # exclusively: whatever stands under that name, a link too, is not ours to write through
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
        with contextlib.suppress(OSError):  # of a name that was renamed there is nothing left
            scratch.unlink()


def flush_folder(path: Path) -> None:
    """See to it that renames and removals in a folder are on the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove(path: Path) -> None:
    """Remove a file, where it is there. Raises RunError where that is not allowed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"{path} cannot be removed: {_why(path, error)}.") from error


def _why(path: Path, error: OSError) -> str:
    if not path.parent.is_dir():
        return f"{path.parent} is no longer there"
    return error.strerror or str(error)


def exists(path: Path) -> bool:
    """Whether anything stands there, a link too. RunError where that cannot be known."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:  # no permission, a name too long, or with a zero byte
        raise RunError(
            f"{path} cannot be looked at: {getattr(error, 'strerror', None) or error}."
        ) from error
    return True


# -- reading ---------------------------------------------------------------------------------


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """What only content of a run directory can raise, which seals alone do not vouch for, as a RunError.

    Whoever seals a directory anew can put any value anywhere: no list of errors is complete.
    """
    try:
        yield
    except (SGLDError, OSError, MemoryError):
        raise
    except Exception as error:
        raise RunError(f"{path} is damaged: {_brief(error)}.") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """A regular file, open for reading. Raises RunError otherwise, FileNotFoundError where absent."""
    if exists(path) and path.is_symlink():
        raise RunError(f"{path} is a symbolic link, which no file of a run directory may be.")
    try:
        # without O_NONBLOCK opening a named pipe would wait for a writer
        handle = os.open(path, os.O_RDONLY | NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise RunError(f"{path} cannot be read: it is no regular file.")
    with os.fdopen(handle, "rb") as file:
        yield file


def digest_of(path: Path) -> tuple[int, str]:
    """(bytes, SHA-256) of a file."""
    with _opened(path) as file:
        found = hashlib.sha256()
        while part := file.read(2**20):
            found.update(part)
        return os.fstat(file.fileno()).st_size, found.hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote. Raises RunError where it is not that, FileNotFoundError where absent."""
    with _opened(path) as file:
        content = file.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        raise RunError(f"{path} cannot be read: it has more than {MAX_JSON_BYTES} bytes.")
    return _unsealed(path, content, {})


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write_arrays` wrote; the arrays are read-only, and take no more memory than the file.

    Raises RunError where the file is not that, FileNotFoundError where it is absent.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            arrays = dict(_members(file, size))
            content = arrays.pop(JSON_KEY).tobytes()
        except RunError as error:
            raise RunError(f"{path} cannot be read: {error}") from error
        except Exception as error:  # of a broken archive, zipfile and NumPy raise what they please
            raise RunError(f"{path} cannot be read: {_brief(error)}.") from error
    return _unsealed(path, content, arrays), arrays


def _unsealed(path: Path, content: bytes, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    try:
        head = json.loads(content)
        if not isinstance(head, dict):
            raise RunError(f"{path} cannot be read: it holds no object.")
        if SEAL_KEY not in head:
            raise RunError(
                f"{path} has no seal: it was written by another version of sgld, or not by it; make the run again."
            )
        seal = head.pop(SEAL_KEY)
        sealed = _seal_of(head, arrays)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {_brief(error)}.") from error
    if seal != sealed:
        raise RunError(
            f"{path} is not what was written: it was damaged, or edited; bring back a copy of it, or sample anew."
        )
    return head


def _members(file: IO[bytes], size: int) -> Iterator[tuple[str, np.ndarray]]:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > MAX_ARRAYS or sum(member.file_size for member in members) > size:
            raise RunError("its parts are larger than it is.")
        if len({member.filename for member in members}) < len(members):
            raise RunError("two of its arrays have one name.")
        for member in members:
            name, dot, ending = member.filename.rpartition(".")
            if dot + ending != ".npy" or member.compress_type != zipfile.ZIP_STORED:
                raise RunError(f"{member.filename[:80]!r} is no plain array.")
            yield name, _array(archive.read(member))


def _array(content: bytes) -> np.ndarray:
    """An array of a .npy file's bytes; its numbers are not copied."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, by_column, dtype = header(stream)
    if dtype.kind not in "biufV" or dtype.hasobject or dtype.names is not None:
        raise RunError(f"an array is of dtype {dtype}, not of numbers.")
    if 0 in shape:
        return np.zeros(shape, dtype)
    array = np.frombuffer(content, dtype, offset=stream.tell())
    return array.reshape(shape, order="F" if by_column else "C")


def _brief(error: Exception) -> str:
    return f"{type(error).__name__} {first_line(error)}".rstrip()


# -- lock ----------------------------------------------------------------------------------


class Lock:
    """Of the run directory `run`.

    An advisory lock, which dies with its process; and within it a sign of life, for hosts that see each other's
    locks through no network file system.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.path = run, run / "lock"
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Hold it alone, where this process does not yet. Raises RunError where another process holds it."""
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
        """Whether a process holds it, by the sign of life that it left.

        No lock is tried to find out: for an instant that would refuse it to a run that begins.
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
            time.sleep(0.02)  # it may be about to say so
        return False

    def alive(self, seconds: float) -> None:
        """Say who holds it, where this process does, and that it may be believed for so long."""
        if self._file is not None:
            until = time.time() + seconds
            self._say(
                json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "until": until})
            )

    def give_back(self) -> None:
        """Let another process have it."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # of a disk without space
                self._say("")
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _say(self, text: str) -> None:
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()


def _holder(text: str) -> dict[str, Any] | None:
    """Who a lock says holds it; None where it says nothing that can be read."""
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
    """Whether a process of this machine lives, and has the file open where that can be seen.

    Its number alone would not do: of a process that was killed another may have it now.
    """
    if os.name == "nt":  # where locks are not written, and signal 0 is one
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:  # another user's
        return True
    except (OSError, OverflowError):
        return False
    try:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if os.path.samestat(handle.stat(), file):
                    return True
        return False
    except OSError:  # no such folder, or not ours to read
        return True
