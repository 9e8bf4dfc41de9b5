"""How long former versions of a table can be read: for a week or longer, whatever the table's properties say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import ceil
from pathlib import Path

from deltalake import DeltaTable

from pipeline.common.errors import LakeError

LEAST_HOURS = 7 * 24
MOST_COMMITS = 10
"""Commits since the newest checkpoint from which on another one is written. Each reader reads all of these commits."""
FILES_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
LOG_CLEANUP = "delta.enableExpiredLogCleanup"
KEPT_FOR_A_WEEK = f"'{FILES_RETENTION}' = 'interval {LEAST_HOURS} hours'"
"""The property in SQL."""
_HOURS = {"week": 168.0, "day": 24.0, "hour": 1.0, "minute": 1 / 60, "second": 1 / 3600}
_PART = re.compile(r"(\d+) (week|day|hour|minute|second)s?")


def retention_hours(properties: Mapping[str, str]) -> int:
    """How long files are kept that the newest version does not need: as the table's property says, but at least a week.

    Raises LakeError for a property that is not an interval, because the table's owner may want to keep more.
    """
    return max(LEAST_HOURS, ceil(_hours(properties, FILES_RETENTION)))


def keeps_too_little(properties: Mapping[str, str]) -> bool:
    """Whether VACUUM would delete files that a version of the last week needs."""
    return FILES_RETENTION in properties and _hours(properties, FILES_RETENTION) < LEAST_HOURS


def _hours(properties: Mapping[str, str], name: str) -> float:
    """The hours of a property such as `interval 30 days`; 0 if it is not set."""
    text = properties.get(name, "")
    parts = re.sub("^interval ", "", " ".join(text.lower().split()))
    if _PART.sub("", parts).strip():
        raise LakeError(f"{name} is `{text}`, which is not an interval such as `interval 30 days`")
    return sum(int(number) * _HOURS[unit] for number, unit in _PART.findall(parts))


def delete_unused(found: DeltaTable, folder: Path) -> int:
    """Deletes the files of a table in a local folder that no version within the retention needs; returns their number.

    The files are deleted here, because delta-rs would also delete checksum files that are in use.
    """
    hours = retention_hours(found.metadata().configuration)
    unused = found.vacuum(retention_hours=hours, dry_run=True, full=True)
    files = [folder / name for name in unused if not name.endswith(".crc")]
    for file in files:
        file.unlink(missing_ok=True)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return len(files)


def write_checkpoint(found: DeltaTable, folder: Path) -> bool:
    """Writes a checkpoint if the last one is old; returns whether it did."""
    if found.version() - last_checkpoint(folder) < MOST_COMMITS:
        return False
    found.create_checkpoint()
    return True


def delete_expired(found: DeltaTable) -> None:
    """Deletes expired files of the log, which a checkpoint has replaced that is on the disk.

    These files stay if the table's properties say so, and if they say to keep the log for less than a week: former
    versions need them.
    """
    properties = found.metadata().configuration
    is_wanted = properties.get(LOG_CLEANUP, "true").lower() != "false"
    if is_wanted and (LOG_RETENTION not in properties or _hours(properties, LOG_RETENTION) >= LEAST_HOURS):
        found.cleanup_metadata()


def last_checkpoint(folder: Path) -> int:
    """The version of the newest checkpoint; -1 if there is none."""
    try:
        return int(json.loads((folder / "_delta_log" / "_last_checkpoint").read_text())["version"])
    except (OSError, ValueError, KeyError):
        return -1
