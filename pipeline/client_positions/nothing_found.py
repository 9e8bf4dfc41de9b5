"""Why an endpoint or a file that was read has no position: silence would look like an application that has ended."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.common.epoch import utc_text

Entry = tuple[str, str | None, str, int]
"""An error of a snapshot: the table, where it was, the error, and how often."""

POSITIONS_MISSING = "positions_missing"
"""The warning of a snapshot that counts the rows with a reason in UNDERSTOOD."""
EMPTY = "is empty"
NO_READER = "has requests, but no consumer's FETCH: no client has read from this broker"
_OF_SOURCE = {
    "kafka_client_metrics": (
        "has no consumer's metric under a name that laglake knows: set `names` if the agent gives them others"
    ),
    "librdkafka_statistics": "has no consumer's statistics: those of producers have no position",
}
_OF_LINES = "has consumers, but none with a partition"
REASONS = (EMPTY, _OF_LINES, *_OF_SOURCE.values())
UNDERSTOOD = (NO_READER, _OF_LINES, _OF_SOURCE["librdkafka_statistics"])
"""The reasons of what was read and understood as a whole, and holds no consumer's position: there is none to be missed.

Such a location may be so for good. With the others, a consumer may be there that laglake does not see.
"""


def why_nothing(source: str, text: str) -> str:
    """The reason, for a text that was understood and has no position."""
    if not text.strip():
        return EMPTY
    is_reporter = source == "kafka_client_metrics" and text.lstrip().startswith("{")
    return _OF_LINES if is_reporter and '"mbean"' not in text else _OF_SOURCE.get(source, "has no position")


def nothing_newer(newest_ms: int) -> str:
    """The reason, for a text all of whose values are too old to be used; the newest was true at that time, epoch ms."""
    return f"has nothing newer than {utc_text(newest_ms)}, which is longer ago than positions_max_age"


def without_understood(errors: Iterable[Entry]) -> tuple[list[Entry], int]:
    """The errors of rows of `client_positions` without those in UNDERSTOOD, and how many rows these have."""
    failed: list[Entry] = []
    understood = 0
    for entry in errors:
        _, _, error, count = entry
        if error in UNDERSTOOD:
            understood += count
        else:
            failed.append(entry)
    return failed, understood
