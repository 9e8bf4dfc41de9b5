"""The problem `skipped`: a tool or an admin client has moved commits ahead, over records that were not read.

`pipeline.analytics.status.resets` recognises this, and remembers it in the memory of each reader.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.arrow_series import NONE
from pipeline.analytics.findings.group_kinds import NAMED
from pipeline.analytics.findings.problem import (
    command,
    counted,
    in_shell,
    instant,
    iso,
    number,
    problem,
    sentence,
    size_within,
)
from pipeline.analytics.findings.rewound import LOOKS_LIKE_A_RESET
from pipeline.analytics.keys import READER_AT, SNAPSHOT
from pipeline.analytics.status.memory import Memory
from pipeline.common.kafka_tools import tool

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
        partitions.where(F.size("memory") > place)  # few are so long, because what is unknown at the end is not stored
        .select(*READER_AT, *(_remembered(name).alias(name) for name in _REMEMBERED))
        .where(F.col("skip_ms").isNotNull())
    )
    whole = groups.select(*SNAPSHOT, "group_id", "group_type", F.col("partitions").alias("of_partitions"))
    found = readers.withColumn("records", F.col("skip_to") - F.col("skip_from"))
    rows = found.groupBy(*SNAPSHOT, "group_id").agg(*_sums())
    return _described(rows.join(F.broadcast(whole), [*SNAPSHOT, "group_id"], how="left"))


def _remembered(name: str) -> Column:
    return F.nullif(F.get("memory", F.lit(Memory.place(name))), F.lit(NONE))


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
    rows = rows.withColumn("worst", F.col("offsets")[0])
    topic = F.when(F.size("topics") == 1, F.col("topics")[0])
    return problem(
        rows,
        kind=F.lit("skipped"),
        group=F.col("group_id"),
        topic=topic,
        partitions=F.when(topic.isNotNull(), F.col("partitions")),
        severity=F.lit("warning"),
        magnitude=F.col("records"),
        summary=_summary(),
        evidence={
            "since": iso(F.col("since_ms")),
            "partitions": F.col("rows"),
            "partitions_of_group": F.col("of_partitions"),
            "topics": F.slice("topics", 1, NAMED),
            "worst_topic": F.col("worst.topic"),
            "worst_partition": F.col("worst.partition"),
            "skipped_offsets": F.col("records"),
            "skipped_bytes": F.col("bytes"),
            "bytes_error": F.col("bytes_error"),
            "first_written_at": iso(F.col("written_ms")),
            "offsets": F.sort_array(F.transform("offsets", lambda one: one.dropFields("records"))),
        },
        advice=_advice(),
    )


def _summary() -> Column:
    is_part = F.col("rows") < F.col("of_partitions")
    where = F.when(
        is_part,
        F.concat(F.lit(" in "), number(F.col("rows")), F.lit(" of "), counted(F.col("of_partitions"), "partition")),
    )
    in_bytes = F.concat(F.lit(" ("), size_within(F.col("bytes"), F.col("bytes_error")), F.lit(")"))
    written = F.concat(F.lit(", the first of them written at "), instant(F.col("written_ms")))
    return sentence(
        "Commits were moved ahead at ",
        instant(F.col("since_ms")),
        where,
        " while the group had no members, and skip up to ",
        counted(F.col("records"), "record"),
        in_bytes,
        written,
        ".",
        LOOKS_LIKE_A_RESET,
    )


def _advice() -> Column:
    back = (
        "If the group must read these records, stop its consumers and set its offsets back before retention deletes "
        "the records. It then also reads again what it has read since."
    )
    one = command(
        f"{back} For the partition with the most of them, this shows it, and --execute in place of --dry-run "
        "does it: " + tool("consumer-groups", "--reset-offsets --group %s --topic %s:%s --to-offset %s --dry-run"),
        in_shell("group_id", "GROUP"),
        in_shell("worst.topic", "TOPIC"),
        F.col("worst.partition").cast("string"),
        F.col("worst.from").cast("string"),
    )
    more = F.when(F.col("rows") > 1, ". The evidence has the old offset of each partition.").otherwise("")
    return F.when(F.col("group_type").eqNullSafe("streams"), F.lit(back)).otherwise(F.concat(one, more))
