"""Why an endpoint or a file that was read has no position: silence would look like an application that has ended."""

from __future__ import annotations

from pipeline.common.epoch import utc_text

EMPTY = "is empty"
_OF_SOURCE = {
    "kafka_client_metrics": (
        "has no consumer's metric under a name that laglake knows: set `names` if the agent gives them others"
    ),
    "librdkafka_statistics": "has no consumer's statistics: those of producers have no position",
}
_OF_LINES = "has consumers, but none with a partition"
REASONS = (EMPTY, _OF_LINES, *_OF_SOURCE.values())


def why_nothing(source: str, text: str) -> str:
    """The reason, for a text that was understood and has no position."""
    if not text.strip():
        return EMPTY
    is_reporter = source == "kafka_client_metrics" and text.lstrip().startswith("{")
    return _OF_LINES if is_reporter and '"mbean"' not in text else _OF_SOURCE.get(source, "has no position")


def nothing_newer(newest_ms: int) -> str:
    """The reason, for a text all of whose values are too old to be used; the newest was true at that time, epoch ms."""
    return f"has nothing newer than {utc_text(newest_ms)}, which is longer ago than positions_max_age"
