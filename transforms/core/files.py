"""Files on a local file system: sources read whole, outputs that appear only when complete."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

import google_crc32c

from transforms.core.errors import DataError, PlaceError

MAX_SOURCE_BYTES = 1 << 30
"""A source above this is rejected: an Example, a protobuf, can't exceed 2 GiB."""

TEMP_DIR = ".pairshard-tmp"
"""Unfinished outputs stand in this folder of the data set, which no reader's glob sees."""

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
_INT64 = 1 << 63
_CANT_READ = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
_IOV_MAX = 1024
_MEND = "Mend the manifest or the file's permissions, or drop the row"
_attempts = itertools.count()


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells a changed source from an unchanged one without reading it.

    Attributes:
      size_bytes: its size.
      mtime_ns: its time of change, in nanoseconds since 1970.
      crc32c: of its bytes; None where it was not read.
    """

    size_bytes: int
    mtime_ns: int
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A source file, read whole."""

    data: bytes
    fingerprint: Fingerprint


def read_source(
    root: str,
    path: str,
    *,
    inside_root: bool = True,
    admit: Callable[[int], None] = lambda size_bytes: None,
) -> Source:
    """Reads one source file.

    Args:
      root: the source root, an absolute folder.
      path: as a `Row` names it.
      inside_root: whether a symbolic link that leaves the root is refused.
      admit: called with the file's size before it is read; it may wait.

    Raises:
      DataError: missing_file, not_readable, empty_file, path_outside_root.
      PlaceError: the root has vanished, or the disk or network failed.
    """
    with open_source(root, path, inside_root=inside_root) as (descriptor, status):
        admit(status.st_size)
        data = _read_all(descriptor, status.st_size)
    if not data:
        message = f"{path}: has no bytes; a picture was expected. Fetch or export it again"
        raise DataError("empty_file", f"{message}, or drop the row", path=path)
    crc: int = google_crc32c.value(data)
    return Source(data, Fingerprint(len(data), _mtime_of(status), crc))


@contextmanager
def open_source(
    root: str, path: str, *, inside_root: bool = True
) -> Iterator[tuple[int, os.stat_result]]:
    """Opens one source file, a regular file that fits into a record; never waits for a pipe.

    Arguments and errors are `read_source`'s, those of reading in the block as well.

    Yields:
      Its descriptor and its status.
    """
    full = os.path.join(root, path)
    try:
        if inside_root:
            _check_inside(root, full, path)
        descriptor = os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            _check_regular(status, path)
            yield descriptor, status
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _source_error(error, root, path) from error


def find_fault(root: str, path: str, *, inside_root: bool = True) -> DataError | None:
    """Returns why a source can't be opened, or None where it can; nothing of it is read."""
    try:
        with open_source(root, path, inside_root=inside_root):
            return None
    except DataError as error:
        return error


def stat_source(root: str, path: str) -> Fingerprint | None:
    """Returns a source's size and mtime, or None where it can't be had now.

    Raises:
      PlaceError: the root has vanished.
    """
    try:
        status = os.stat(os.path.join(root, path))
    except (OSError, ValueError) as error:
        if not os.path.isdir(root):
            raise PlaceError(_root_gone(root)) from error
        return None
    return Fingerprint(status.st_size, _mtime_of(status))


def forget_folders() -> None:
    """Lets folders be resolved anew, whose links may have changed since an earlier build."""
    _resolve_folder.cache_clear()


def _mtime_of(status: os.stat_result) -> int:
    """Clamped to what the index's int64 holds: a broken clock may date a file in 2300."""
    return max(-_INT64, min(status.st_mtime_ns, _INT64 - 1))


def _check_inside(root: str, full: str, path: str) -> None:
    """Refuses a path that a symbolic link leads out of the root."""
    folder, inside = _resolve_folder(root, os.path.dirname(full))
    if os.path.islink(full):
        real = os.path.realpath(os.path.join(folder, os.path.basename(full)))
        inside = _is_below(os.path.realpath(root), real)
    if not inside:
        raise DataError(
            "path_outside_root",
            f"{path}: a symbolic link leads out of the source root; copy the file into it, "
            "or give --allow-outside-root",
            path=path,
        )


@lru_cache(maxsize=4096)  # resolving a folder anew for each of its files costs more than reading
def _resolve_folder(root: str, folder: str) -> tuple[str, bool]:
    """Returns a folder without its symbolic links, and whether it lies in the root."""
    real = os.path.realpath(folder)
    return real, _is_below(os.path.realpath(root), real)


def _is_below(root: str, path: str) -> bool:
    return os.path.commonpath([root, path]) == root


def _check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise DataError(
            "not_readable", f"{path}: is {kind}; a file was expected. {_MEND}", path=path
        )
    if status.st_size > MAX_SOURCE_BYTES:
        raise DataError(
            "not_readable",
            f"{path}: has {status.st_size} bytes; at most {MAX_SOURCE_BYTES} fit into a record",
            path=path,
        )


def _read_all(descriptor: int, size: int) -> bytes:
    """Reads to the end: one call where the size holds, more where the file grows meanwhile."""
    data = os.read(descriptor, size + 1)
    while piece := os.read(descriptor, 1 << 20) if data and len(data) != size else b"":
        data += piece
    return data


def _source_error(error: OSError, root: str, path: str) -> Exception:
    if not os.path.isdir(root):
        return PlaceError(_root_gone(root))
    if error.errno in _NOT_THERE:
        return DataError(
            "missing_file",
            f"{path}: there is no such file below the source root; mend the manifest, "
            "or see --source-root and --replace-prefix",
            path=path,
        )
    if error.errno in _CANT_READ:
        reason = os.strerror(error.errno)
        return DataError("not_readable", f"{path}: can't be read: {reason}. {_MEND}", path=path)
    return PlaceError(f"reading {os.path.join(root, path)} failed: {error.strerror or error}")


def _root_gone(root: str) -> str:
    return (
        f"the source root {root} is not there any more; nothing was published. "
        "Bring it back (a mount, a network drive?) and run the same command again"
    )


class OutputFile:
    """A file that appears under its name only when it is complete.

    It is written under a temporary name in `TEMP_DIR` of the same folder tree, and renamed.

    Args:
      root: the data set's folder.
      name: of the file below it, with '/'.
    """

    def __init__(self, root: str, name: str) -> None:
        self.size_bytes = 0
        self._final = os.path.join(root, name)
        self._temp = _temp_path(root, name)
        with place_errors(self._final):
            os.makedirs(os.path.dirname(self._temp), exist_ok=True)
            os.makedirs(os.path.dirname(self._final), exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self._temp, flags, 0o666)

    def write(self, pieces: Sequence[bytes]) -> None:
        """Writes pieces one after another, without joining them."""
        expected = sum(map(len, pieces))
        with place_errors(self._final):
            written = os.writev(self._descriptor, pieces[:_IOV_MAX])
            if written != expected:
                self._write_rest(pieces, written)
        self.size_bytes += expected

    def _write_rest(self, pieces: Sequence[bytes], written: int) -> None:
        """Ends what a short write left: at 2 GiB, at a signal, or before a full disk says so."""
        rest = memoryview(b"".join(pieces))[written:]
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def publish(self) -> None:
        """Closes the file and gives it its name, in the place of one that had it."""
        with place_errors(self._final):
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
            os.replace(self._temp, self._final)

    def abort(self) -> None:
        """Removes what was written; harmless after `publish`."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        remove_file(self._temp)


@contextmanager
def create_file(root: str, name: str) -> Iterator[OutputFile]:
    """Opens an `OutputFile`; it is published at the end of the block, removed on an error."""
    file = OutputFile(root, name)
    try:
        yield file
        file.publish()
    except BaseException:
        file.abort()
        raise


def write_file(root: str, name: str, data: bytes) -> None:
    """Writes a small file so that a reader sees the old one or the new one, never a half."""
    with create_file(root, name) as file:
        file.write([data])


def read_file(path: str) -> bytes | None:
    """Returns a file's bytes, or None where there is no such file."""
    with place_errors(path, "reading"):
        try:
            with open(path, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading.

    Raises:
      FileNotFoundError: there is none.
      PlaceError: it is there and can't be read.
    """
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PlaceError(f"reading {path} failed: {error.strerror}") from error


def file_size(path: str) -> int | None:
    """Returns a file's size in bytes, or None where there is no such file."""
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def sha256_of_file(path: str) -> str:
    """Returns the sha256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with place_errors(path, "reading"), open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def crc32c_of_file(path: str) -> int:
    """Returns the CRC-32C of a file's bytes, read a mebibyte at a time."""
    crc = 0
    with place_errors(path, "reading"), open(path, "rb") as file:
        while piece := file.read(1 << 20):
            crc = google_crc32c.extend(crc, piece)
    return crc


def list_files(root: str) -> list[str]:
    """Returns the names of all files below a folder, with '/', sorted; [] where it is missing."""
    found: list[str] = []
    for folder, _, names in os.walk(root):
        relative = os.path.relpath(folder, root)
        found += [os.path.normpath(os.path.join(relative, name)) for name in names]
    return sorted(found)


def remove_file(path: str) -> None:
    """Removes a file, if it is there."""
    with place_errors(path, "removing"):
        try:
            os.unlink(path)
        except FileNotFoundError:
            return


def remove_tree(path: str) -> None:
    """Removes a folder of ours with all that is in it, if it is there."""
    with place_errors(path, "removing"):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return


def sync_file(path: str) -> None:
    """Waits until a file's bytes, or a folder's names, would survive a loss of power."""
    with place_errors(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def clear_temporary(root: str) -> None:
    """Removes what attempts that have ended left in `TEMP_DIR`."""
    remove_tree(os.path.join(root, TEMP_DIR))


@contextmanager
def place_errors(path: str, doing: str = "writing") -> Iterator[None]:
    """Turns an OSError into a PlaceError that says what was being done to which file."""
    try:
        yield
    except OSError as error:
        raise PlaceError(f"{doing} {path} failed: {error.strerror or error}") from error


def _temp_path(root: str, name: str) -> str:
    """A name of its own for each attempt, so that two of them can't write into one file."""
    attempt = f"{socket.gethostname()}-{os.getpid()}-{next(_attempts)}"
    return os.path.join(root, TEMP_DIR, f"{name.replace('/', '~')}.{attempt}")


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Makes a folder outside of any data set, and removes it with all that is in it."""
    with tempfile.TemporaryDirectory(prefix="pairshard-") as folder:
        yield folder
