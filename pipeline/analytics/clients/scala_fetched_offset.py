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
from pipeline.analytics.runs import carried_forward, in_stretches

COUNTERS = ("requests_total", "bytes_total")


def fetched_by_lag(rows: DataFrame) -> DataFrame:
    """`rows` with `fetched_offset`, NULL until the fetchers of a client have been seen at work.

    `rows` have one for each PROCESS_PARTITION and snapshot_id, in stretches (`in_stretches`): reported_lag,
    high_watermark, and from `counters` all_moved and any_moved; known_fetched where this has given the offset before.

    Between two snapshots the log may have grown after the last answer: then the offset is too large by at most that.
    Where some of a client's fetchers stand still and others do not, whose the partition is is not known: NULL.
    """
    read = F.coalesce("known_fetched", F.when(F.col("all_moved"), F.col("high_watermark") - F.col("reported_lag")))
    series = Window.partitionBy(*PROCESS_PARTITION, "stretch").orderBy("snapshot_id")
    # What was known stays only while nothing has moved.
    has_moved = F.coalesce("any_moved", F.lit(True))
    return rows.withColumn("fetched_offset", carried_forward(read, has_moved, series))


def with_moved(counters: DataFrame, by: list[str]) -> DataFrame:
    """Successive `counters` of something named `by`, with has_moved; NULL at the first of a stretch, or without any.

    And is_read_anew: they are of another text than before.
    """
    series = Window.partitionBy(*by, "stretch").orderBy("snapshot_id")
    moved = [F.col(name) != F.lag(name).over(series) for name in COUNTERS]
    either = F.greatest(*(m.cast("int") for m in moved))  # skips NULL
    return in_stretches(counters, by).withColumns({"has_moved": either == 1, "is_read_anew": is_read_anew(series)})


def is_read_anew(series: WindowSpec) -> Column:
    """Whether a row is of another text than the one before it: a file may be written less often than it is read."""
    return F.coalesce(F.col("captured_at") > F.lag("captured_at").over(series), F.lit(True))
