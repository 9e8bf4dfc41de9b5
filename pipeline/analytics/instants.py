"""When rows were read. Rates and durations use this, as a snapshot may be read later than its scheduled instant."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def read_ms(captured_at: str = "captured_at") -> Column:
    """When a row was read, epoch ms; if not known, as for a row without a watermark, the scheduled instant."""
    return F.coalesce(F.unix_millis(captured_at), F.col("snapshot_id"))


def mean_read_ms(captured_at: str = "captured_at") -> Column:
    """The mean time at which the rows of a snapshot were read: the time of sums over these rows. NULL if unknown."""
    late_ms = F.unix_millis(captured_at) - F.col("snapshot_id")
    return F.col("snapshot_id") + F.round(F.avg(late_ms)).cast("bigint")
