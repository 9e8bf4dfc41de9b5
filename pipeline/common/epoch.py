"""Converts instants between Kafka's milliseconds since 1970 (epoch ms) and UTC datetimes, dates and texts."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def now_ms() -> int:
    """The time by this machine's clock, epoch ms."""
    return int(time.time() * 1000)


def to_epoch_ms(instant: datetime) -> int:
    """An aware datetime in epoch ms, rounded."""
    return round(instant.timestamp() * 1000)


def utc(epoch_ms: int) -> datetime:
    """The instant as an aware UTC datetime. Raises ValueError or OverflowError beyond the years 1 to 9999."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)


def utc_date(epoch_ms: int) -> date:
    """The UTC date of an instant."""
    return utc(epoch_ms).date()


def utc_text(epoch_ms: int) -> str:
    """An instant as ISO 8601 writes it: 2026-01-31T12:05:00Z."""
    return utc(epoch_ms).isoformat().replace("+00:00", "Z")
