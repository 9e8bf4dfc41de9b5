"""Converts instants between Kafka's milliseconds since 1970 (epoch ms) and UTC datetimes, dates and texts."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_ms() -> int:
    """The time by this machine's clock, epoch ms."""
    return int(time.time() * 1000)


def utc_now() -> datetime:
    """The time by this machine's clock, as an aware UTC datetime."""
    return datetime.now(UTC)


def to_epoch_ms(instant: datetime) -> int:
    """The epoch ms of an aware datetime, rounded to whole milliseconds."""
    return round(instant.timestamp() * 1000)


def rounded_down(instant: datetime, every_ms: int) -> int:
    """The last multiple of `every_ms` (epoch ms) that an aware datetime has reached."""
    ms = (instant - _EPOCH) // timedelta(milliseconds=1)
    return ms - ms % every_ms


def record_time(timestamp_ms: int) -> int | None:
    """The timestamp of a record, epoch ms; None if it is 0 or less, because that is no time.

    Kafka has −1 for none. Some producers write 0: the ages of their records were 56 years, with an error of 0.
    """
    return timestamp_ms if timestamp_ms > 0 else None


def utc(epoch_ms: int) -> datetime:
    """The instant as an aware UTC datetime. Raises OverflowError for an instant outside of the years 1 to 9999."""
    return _EPOCH + timedelta(milliseconds=epoch_ms)


def utc_date(epoch_ms: int) -> date:
    """The UTC date of an instant. Raises OverflowError as `utc` does."""
    return utc(epoch_ms).date()


def utc_text(epoch_ms: int) -> str:
    """An instant in ISO 8601: 2026-01-31T12:05:00Z. Raises OverflowError as `utc` does."""
    return utc(epoch_ms).isoformat().replace("+00:00", "Z")
