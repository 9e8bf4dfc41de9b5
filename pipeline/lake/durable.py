"""Commits that outlast a power failure: delta-rs leaves it to the system when its files are written to the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote


def sync_versions(table: Path, versions: Iterable[int]) -> None:
    """Waits until some versions of a table in a local folder are on the disk, with the files that they add.

    Otherwise a version could be an empty file after a power failure, and the table unreadable until it is removed.
    The versions are committed already, so a file system that cannot sync, or a file that is gone, is no error.
    """
    log = table / "_delta_log"
    for version in versions:
        commit = log / f"{version:020}.json"
        with suppress(OSError):
            for file in (*_added_files(table, commit), commit, log):
                _sync(file)


def _added_files(table: Path, commit: Path) -> Iterator[Path]:
    for line in commit.read_text("utf-8").splitlines():
        if added := json.loads(line).get("add"):
            yield table / unquote(added["path"])


def _sync(place: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    opened = os.open(place, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
