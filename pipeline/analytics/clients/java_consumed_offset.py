"""The consumed rung of a Java consumer: its position, which none of its metrics gives.

Its `records-lead` is position − log start, its `records-lag` is log end − position. Both are set when a poll returns
records and, like the position, do not change on a paused or slow partition. Log start and log end are those of the
fetch response that had the records. So position = log start of that response + lead, and log end of that response =
its log start + lead + lag. The log start of the snapshot is used only if this sum can have been the log end; otherwise
the position is NULL.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.keys import PROCESS_PARTITION
from pipeline.analytics.series import carried_forward

_STILL = ("reported_lag", "reported_lead", "log_start_offset", "committed_offset")


def consumed_by_lead(rows: DataFrame) -> DataFrame:
    """`rows` with `consumed_offset`, NULL while the log start that the lead was measured from is not known.

    `rows` have one row for each PROCESS_PARTITION and snapshot_id, in stretches (`in_stretches`), with reported_lag,
    reported_lead, the group's committed_offset, and the partition's log_start_offset, last_stable_offset and
    high_watermark. known_consumed is the offset that this function returned for the snapshot before, if any; so an
    offset that is known stays known.

    If a log starts at 0, its start has never moved. Otherwise the log start must be the same as at the previous
    snapshot, and log start + lead + lag must be between the log's end at that snapshot (for a read_committed reader,
    its last stable offset) and its end now. If lead and lag have not changed, no records were handed out, and the
    position stays. If log start has moved meanwhile, it stays only if nothing was committed either, because a reader
    may have read exactly as much as was deleted.
    """
    series = Window.partitionBy(*PROCESS_PARTITION, "stretch").orderBy("snapshot_id")
    start, lead, lag = (F.col(name) for name in ("log_start_offset", "reported_lead", "reported_lag"))
    same = {name: F.col(name).eqNullSafe(F.lag(name).over(series)) for name in _STILL}
    is_unread = same["reported_lag"] & same["reported_lead"]
    is_unread &= same["log_start_offset"] | (same["committed_offset"] & F.col("committed_offset").isNotNull())
    end = start + lead + lag
    is_its_end = (end >= F.lag("last_stable_offset").over(series)) & (end <= F.col("high_watermark"))
    is_clear = (start == 0) | ((start == F.lag("log_start_offset").over(series)) & is_its_end)
    read = F.coalesce("known_consumed", F.when(is_clear, start + lead))
    return (
        rows.withColumns({"read": read, "is_unread": is_unread})
        .withColumn("consumed_offset", carried_forward(F.col("read"), ~F.col("is_unread"), series))
        .drop("read", "is_unread")
    )
