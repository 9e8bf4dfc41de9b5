"""Commits that outlast a power failure: delta-rs leaves it to the system when its files are written to the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
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
        for file in (*_added_files(table, commit), commit, log):
            _sync(file)


def sync_checkpoint(table: Path, version: int) -> None:
    """Waits until the checkpoint of a version is on the disk, and `_last_checkpoint`, which names it.

    Call it before the commits that the checkpoint replaces are deleted: if they are gone and the checkpoint is an empty
    file after a power failure, the table is lost.
    """
    log = table / "_delta_log"
    for file in (*sorted(log.glob(f"{version:020}.checkpoint*.parquet")), log / "_last_checkpoint", log):
        _sync(file)


def _added_files(table: Path, commit: Path) -> list[Path]:
    try:
        actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
    except OSError:
        return []
    return [table / unquote(action["add"]["path"]) for action in actions if action.get("add")]


def _sync(place: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk, if the file system can say so."""
    with suppress(OSError):
        opened = os.open(place, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
