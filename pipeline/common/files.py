"""Locations of files: paths and URIs, local or in an object store."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from pipeline.common.errors import ConfigError

FAILURES = (OSError, pa.ArrowException)
"""The exceptions that a file system raises."""
PACKED = {"gz": "gzip", "bz2": "bz2", "lz4": "lz4", "zst": "zstd"}
"""How a file is compressed, by how its name ends."""
_OPEN = os.O_RDONLY | os.O_NONBLOCK
"""To open a pipe without waiting for its writer."""


class NotAFileError(OSError):
    """A link, a pipe, a device or a folder is where a file should be."""


@lru_cache(10_000)
def open_filesystem(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path in it. Raises ConfigError for a URI that pyarrow does not know."""
    if not is_uri(location):
        return fs.LocalFileSystem(), str(Path(location).absolute())
    try:
        files, path = fs.FileSystem.from_uri(location)
    except FAILURES:  # its message may contain a password
        raise ConfigError(f"{redacted(location)!r} is not a path, and not a URI that pyarrow can open") from None
    return files, path


def open_file(files: fs.FileSystem, path: str, folder: str | None = None) -> pa.NativeFile:
    """Opens a file for reading. Raises one of FAILURES.

    If the file was found in a `folder`, no link below the folder is followed: otherwise, anyone who may write there
    could name any file that this process may read.
    """
    if not isinstance(files, fs.LocalFileSystem):
        return files.open_input_file(path)
    descriptor = os.open(path, _OPEN) if folder is None else _open_below(folder, path.removeprefix(folder).lstrip("/"))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotAFileError("not a regular file")
        return pa.PythonFile(os.fdopen(descriptor, "rb", buffering=0), "r")
    except OSError:
        os.close(descriptor)
        raise


def open_unpacked(files: fs.FileSystem, path: str, folder: str | None = None) -> pa.NativeFile:
    """The same, but as a stream that unpacks a file whose name ends in one of PACKED."""
    file = open_file(files, path, folder)
    codec = PACKED.get(path.rpartition(".")[2])
    return pa.CompressedInputStream(file, codec) if codec else file


def _open_below(folder: str, path: str) -> int:
    # Each folder on the way is opened in the one before: a path could lead elsewhere as soon as it has been checked.
    *inner, name = path.split("/")
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in inner:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        if error.errno == errno.ELOOP:  # the name of a link
            raise NotAFileError("not a regular file") from None
        raise
    finally:
        os.close(at)


def is_uri(location: str) -> bool:
    """Whether a location is a URI and not a path in the local file system."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", location))


def redacted(location: str) -> str:
    """A location without the parts of a URI that may be secret: user, password and query."""
    # Keys of stores may contain slashes. Digits after the colon are a port, not a password.
    user_info = r"[^/?#]*:[^/?#]*@|[^/:@]*:(?!\d+(?:,[^/?#@,:]+(?::\d+)?)*(?:[/?#]|$))[^@]*@"
    # Without a colon, this part is the container of a store; or a token for an endpoint, or what follows a user if the
    # scheme is missing.
    alone = r"(?<=http://)[^/?#]*@|(?<=https://)[^/?#]*@|(?<=:)[^/?#]*@"
    uri = re.match(rf"([A-Za-z][A-Za-z0-9+.-]+:/*)(?:{user_info}|{alone})?([^?]*)", location, re.IGNORECASE)
    return f"{uri[1]}{uri[2]}" if uri else location


def entries(infos: Iterable[fs.FileInfo], kind: fs.FileType) -> dict[str, fs.FileInfo]:
    """Entries of one kind by name. Names that are not UTF-8 are left out, because Kafka writes no such names."""
    named: dict[str, fs.FileInfo] = {}
    for info in infos:
        if info.type == kind:
            try:
                named[info.base_name] = info
            except UnicodeDecodeError:
                continue
    return named
