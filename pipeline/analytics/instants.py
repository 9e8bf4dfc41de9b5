"""When rows were read. Rates and times use this, because a snapshot may be read later than its scheduled instant."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def read_ms(captured_at: str = "captured_at") -> Column:
    """When a row was read, epoch ms; the scheduled instant where that is not known, as without a watermark."""
    return F.coalesce(F.unix_millis(captured_at), F.col("snapshot_id"))


def mean_read_ms(captured_at: str = "captured_at") -> Column:
    """When the rows of one snapshot_id were read, in the mean, which sums over them are as of; NULL if none says so."""
    late_ms = F.unix_millis(captured_at) - F.col("snapshot_id")
    return F.col("snapshot_id") + F.round(F.avg(late_ms)).cast("bigint")
