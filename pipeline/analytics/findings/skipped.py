"""The problem `skipped`: a tool or an admin client has moved commits ahead, over records that were not read.

`pipeline.analytics.status.resets` recognises this, and remembers it in the memory of each reader.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.arrow_series import NONE, NUMBER_BYTES
from pipeline.analytics.findings.problem import problem, some
from pipeline.analytics.keys import READER_AT, SNAPSHOT
from pipeline.analytics.status.memory import Memory

MOST_OFFSETS = 100
"""For how many partitions, those with the most skipped records first, the evidence has the old offset."""
_REMEMBERED = ("skip_ms", "skip_from", "skip_to", "skip_written_ms", "skip_bytes", "skip_error")


def skipped(partitions: DataFrame, groups: DataFrame) -> DataFrame:
    """One problem for each group and snapshot, with the columns of `problem`.

    `partitions` and `groups` are the rows of PARTITION_STATUS and GROUP_STATUS of these snapshots. Bytes and the time
    of the first skipped record are left out if they are not known of all partitions.
    """
    place = Memory.place("skip_ms")
    readers = (
        # Few are so long, because what is unknown at the end is not stored.
        partitions.where(F.octet_length("remembered") > NUMBER_BYTES * place)
        .select(*READER_AT, *(_remembered(name).alias(name) for name in _REMEMBERED))
        .where(F.col("skip_ms").isNotNull())
    )
    whole = groups.select(*SNAPSHOT, "group_id", "group_type", F.col("partitions").alias("of_partitions"))
    found = readers.withColumn("records", F.col("skip_to") - F.col("skip_from"))
    rows = found.groupBy(*SNAPSHOT, "group_id").agg(*_sums())
    return _described(rows.join(F.broadcast(whole), [*SNAPSHOT, "group_id"], how="left"))


def _remembered(name: str) -> Column:
    stored = F.hex(F.substring("remembered", NUMBER_BYTES * Memory.place(name) + 1, NUMBER_BYTES))
    digits = F.regexp_replace(F.reverse(stored), "(.)(.)", "$2$1")  # the least byte is stored first
    number = F.conv(F.nullif(digits, F.lit("")), 16, -10).cast("bigint")
    return F.nullif(number, F.lit(NONE))


def _sums() -> list[Column]:
    def if_all(name: str, value: Column) -> Column:
        return F.when(F.count(name) == F.count(F.lit(1)), value)

    offset = F.struct("records", "topic", "partition", F.col("skip_from").alias("from"), F.col("skip_to").alias("to"))
    return [
        F.count(F.lit(1)).alias("rows"),
        F.sort_array(F.collect_set("topic")).alias("topics"),
        F.sort_array(F.collect_set("partition")).alias("partitions"),
        F.min("skip_ms").alias("since_ms"),
        F.try_sum("records").alias("records"),
        if_all("skip_bytes", F.try_sum("skip_bytes")).alias("bytes"),
        if_all("skip_bytes", F.try_sum("skip_error")).alias("bytes_error"),
        if_all("skip_written_ms", F.min("skip_written_ms")).alias("written_ms"),
        F.slice(F.sort_array(F.collect_list(offset), asc=False), 1, MOST_OFFSETS).alias("offsets"),
    ]


def _described(rows: DataFrame) -> DataFrame:
    topic = F.when(F.size("topics") == 1, F.col("topics")[0])
    return problem(
        rows,
        kind=F.lit("skipped"),
        group=F.col("group_id"),
        topic=topic,
        partitions=F.when(topic.isNotNull(), F.col("partitions")),
        severity=F.lit("warning"),
        magnitude=F.col("records"),
        facts=(
            "group_id",
            "group_type",
            "since_ms",
            "rows",
            "of_partitions",
            some("topics"),
            "records",
            "bytes",
            "bytes_error",
            "written_ms",
            "offsets",
        ),
    )
