"""The consumed rung of a Java consumer: its position, which no metric of its tells.

Its `records-lead` is position − log start, as of the last time that a poll handed records out; on a paused or slow
partition it stands still, as the position does. So the position is that lead from the log start of then. The log start
of now is another one if records have been deleted since: between the two readings of an unmoved log start all is clear.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

CLIENT_PARTITION = ["cluster", "client_id", "topic", "partition"]


def consumed_by_lead(positions: DataFrame, previous: DataFrame | None = None) -> DataFrame:
    """Positions with `consumed_offset`, NULL while the log start that the lead was measured from is not known.

    `positions` have CLIENT_PARTITION, snapshot_id, reported_lag, reported_lead and the partition's log_start_offset, of
    one or several snapshots; `previous` are what this made of the snapshot before them, so that what was known stays
    known. Whatever was read between two snapshots with one log start was measured from it; a log that starts at 0 has
    never moved. Where lead and lag have not changed nothing was read, and the position is what it was.
    """
    rows = positions.withColumns({"known_offset": F.lit(None).cast("bigint"), "is_asked": F.lit(True)})
    if previous is not None:
        known = previous.withColumnRenamed("consumed_offset", "known_offset")
        rows = rows.unionByName(known.withColumn("is_asked", F.lit(False)), allowMissingColumns=True)
    series = Window.partitionBy(*CLIENT_PARTITION).orderBy("snapshot_id")
    start, before = F.col("log_start_offset"), F.lag("log_start_offset").over(series)
    unread = [F.col(name).eqNullSafe(F.lag(name).over(series)) for name in ("reported_lag", "reported_lead")]
    is_clear = (start == 0) | (start == before)
    read = F.coalesce("known_offset", F.when(is_clear, start + F.col("reported_lead")))
    run = Window.partitionBy(*CLIENT_PARTITION, "run").orderBy("snapshot_id")
    return (
        rows.withColumns({"read": read, "is_unread": unread[0] & unread[1]})
        .withColumn("run", F.sum((~F.col("is_unread")).cast("int")).over(series))
        .withColumn("consumed_offset", F.first("read").over(run))
        .where("is_asked")
        .drop("known_offset", "is_asked", "read", "is_unread", "run")
    )
