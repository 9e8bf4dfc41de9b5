"""Locations of files: paths and URIs, local or in an object store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from pipeline.errors import ConfigError

FAILURES = (OSError, pa.ArrowException)
"""The exceptions that a file system raises."""


@cache
def open_filesystem(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path in it. Raises ConfigError for a URI that pyarrow does not know."""
    if not is_uri(location):
        return fs.LocalFileSystem(), str(Path(location).absolute())
    try:
        files, path = fs.FileSystem.from_uri(location)
    except FAILURES:  # its message may contain a password
        raise ConfigError(f"{redacted(location)!r} is not a path, and not a URI that pyarrow can open") from None
    return files, path


def is_uri(location: str) -> bool:
    """Whether a location is a URI and not a path in the local file system."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", location))


def redacted(location: str) -> str:
    """A location without the parts of a URI that may be secret: user, password and query."""
    # Keys of stores may contain slashes. Digits after the colon are a port, not a password.
    user_info = r"[^/?#]*:[^/?#]*@|[^/:@]*:(?!\d+(?:[/?#]|$))[^@]*@"
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
