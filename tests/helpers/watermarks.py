"""Writes records, and reads the rows of `kafka_watermarks` about them."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.kafka.watermarks import WatermarksSource
from tests.helpers.kafka import Row, read

LIST_OFFSETS, DESCRIBE_LOG_DIRS = 2, 35
LADDER = ("log_start_offset", "local_log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset")
REST = (
    *("max_timestamp_ms", "max_timestamp_offset", "log_bytes", "log_bytes_error"),
    *("offsets_retention_ms", "cleanup_policy", "timestamp_type", "retention_ms", "retention_bytes"),
)
WEEK_MS = 7 * 86_400_000
SETTINGS = (WEEK_MS, "delete", "CreateTime", WEEK_MS, -1)
"""Of the broker, and of the topic."""
HOUR_AGO_MS = int(time.time() * 1000) - 3_600_000
"""Not older, because the broker deletes records after a week."""


def write(producer: Any, topic: str, timestamps_ms: Sequence[int] = (HOUR_AGO_MS,), value: bytes = b"x") -> None:
    """Appends one record per timestamp to partition 0, each in its own batch."""
    for timestamp_ms in timestamps_ms:
        producer.send(topic, value, partition=0, timestamp_ms=timestamp_ms).get(timeout=10)


def watermarks(kafka: EmbeddedKafka, topic: str, **options: str) -> dict[int, Row]:
    """The rows of one topic by partition."""
    rows = read(WatermarksSource, kafka.bootstrap_servers, topics_allow=f"^{topic}$", **options)
    assert {row["topic"] for row in rows} == {topic}
    found = {row["partition"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def ladder(row: Row) -> tuple[int | None, ...]:
    """Log start, local log start, LSO, HW, log end."""
    return tuple(row[name] for name in LADDER)


def size_of_logs(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.log"))
