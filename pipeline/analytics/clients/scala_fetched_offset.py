"""The fetched rung of the old Scala consumer, which reports no offset: the end of the log minus its ConsumerLag.

AbstractFetcherThread sets the lag of a partition when a fetch is answered, as the distance to the high watermark in
that answer. So the lag counts to the current high watermark only while answers come in. While a fetcher waits for a
full queue, neither its lag nor its fetched offset changes. The counters of FetcherStats show whether answers have come
in.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipeline.analytics.keys import PROCESS_PARTITION
from pipeline.analytics.series import carried_forward, in_stretches

COUNTERS = ("requests_total", "bytes_total")


def fetched_by_lag(rows: DataFrame) -> DataFrame:
    """`rows` with `fetched_offset`, NULL until the fetchers of a client have been seen at work.

    `rows` have one row for each PROCESS_PARTITION and snapshot_id, in stretches (`in_stretches`), with reported_lag,
    high_watermark, and all_moved and any_moved from `client_counters`. known_fetched is the offset that this function
    returned for the snapshot before, if any.

    The log may have grown after the last answer; then the offset is too large, by at most this growth. If some of a
    client's fetchers make no progress and others do, it is not known which of them reads the partition, and the offset
    is NULL.
    """
    read = F.coalesce("known_fetched", F.when(F.col("all_moved"), F.col("high_watermark") - F.col("reported_lag")))
    series = Window.partitionBy(*PROCESS_PARTITION, "stretch").orderBy("snapshot_id")
    # A known offset stays only while no counter has moved.
    has_moved = F.coalesce("any_moved", F.lit(True))
    return rows.withColumn("fetched_offset", carried_forward(read, has_moved, series))


def with_moved(counters: DataFrame, by: list[str]) -> DataFrame:
    """Successive `counters`, by the key `by`, with has_moved; NULL at the first of a stretch, or without counters.

    Also adds is_new_report.
    """
    series = Window.partitionBy(*by, "stretch").orderBy("snapshot_id")
    moved = [F.col(name) != F.lag(name).over(series) for name in COUNTERS]
    either = F.greatest(*(m.cast("int") for m in moved))  # skips NULL
    return in_stretches(counters, by).withColumns({"has_moved": either == 1, "is_new_report": is_new_report(series)})


def is_new_report(series: WindowSpec) -> Column:
    """Whether a row is from a newer report than the row before. A file may be written less often than it is read."""
    return F.coalesce(F.col("captured_at") > F.lag("captured_at").over(series), F.lit(True))
