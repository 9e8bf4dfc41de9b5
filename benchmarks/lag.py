"""How fast `lag` is computed and the log index extended: 1,000,000 group-partitions over 100,000 partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.timing import timed
from pipeline.analytics.keys import PARTITION
from pipeline.analytics.lag.lag import lag_table
from pipeline.analytics.log_index.index import index_rows, with_readings_at
from pipeline.common.columns import aligned
from pipeline.tables import (
    COMMITTED_OFFSETS,
    GROUP_MEMBERS,
    LAG,
    LOG_INDEX,
    LOG_SAMPLES,
    WATERMARKS,
    Table,
)

PARTITIONS, READERS = 100_000, 10
GROUPS = 2_500
POINTS = 20
BROKERS = 6
NOON_MS = 1_769_860_800_000
MINUTE_MS = 60_000
RECORDS, BYTES = 1_000, 500_000
"""How much is written to a partition in a minute."""


_POINTS = """
create table points as select topic, partition, point.offset as first, point.position_bytes as bytes
from (select topic, partition, unnest(points) as point from '{folder}/index/*.parquet')
where bytes is not null"""
_COMMITTED = "create table committed as select topic, partition, committed_offset from '{folder}/committed/*.parquet'"
_ASOF = """
select count(*), sum(bytes) from committed asof join points
on committed.topic = points.topic and committed.partition = points.partition and committed_offset >= first"""


class Bronze:
    """Generated bronze tables of two snapshots, and an index through the first one with POINTS points per partition."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self._folder = folder

    def make(self) -> None:
        """Writes the DataFrames as Parquet, once."""
        for name, rows in self._frames():
            rows.repartition(8).write.mode("overwrite").parquet(str(self._folder / name))

    def read(self, name: str) -> DataFrame:
        """A DataFrame as it was written."""
        return self.spark.read.parquet(str(self._folder / name))

    def _frames(self) -> Iterator[tuple[str, DataFrame]]:
        partitions = partitions_of(self.spark, PARTITIONS)
        for minute in (1, 2):
            yield f"watermarks-{minute}", whole(WATERMARKS, watermarks_of(at(partitions, minute)))
        commits = commits_of(partitions)
        readers = commits.drop("committed_offset")
        yield "committed", whole(COMMITTED_OFFSETS, at(commits, 2))
        groups = readers.select("group_id").distinct().withColumn("state", F.lit("Stable"))
        yield "groups", whole(GROUP_MEMBERS, at(groups, 2))
        yield "members", whole(GROUP_MEMBERS, at(members_of(readers), 2))
        yield "previous", whole(LAG, at(commits.withColumn("committed_topic_id", _topic_id()), 1))
        seen = whole(WATERMARKS, watermarks_of(at(partitions, *range(2 - POINTS, 2))))
        nothing = self.spark.createDataFrame([], LOG_INDEX.schema)
        yield "index", index_rows(nothing, seen, self.no_samples(), snapshot_id(1))

    def no_samples(self) -> DataFrame:
        """Look-ups without rows."""
        return self.spark.createDataFrame([], LOG_SAMPLES.schema)

    def lag(self, members: str) -> DataFrame:
        """The rows of `lag` for the second snapshot, by the index as it is; with `members`, or only with `groups`."""
        return lag_table(
            self.read("committed"),
            self.read("watermarks-2"),
            self.read(members),
            self.read("previous"),
            self.read("index").select(*PARTITION, F.lit(snapshot_id(2)).alias("snapshot_id"), "ruler"),
        )

    def prepare_readings(self) -> None:
        """Writes the ruler of each partition together with the offsets committed in it, once."""
        committed = self.read("committed").groupBy(*PARTITION).agg(F.collect_list("committed_offset").alias("offsets"))
        asked = self.read("index").select(*PARTITION, "ruler").join(committed, [*PARTITION])
        asked.write.mode("overwrite").parquet(str(self._folder / "asked"))

    def readings(self) -> DataFrame:
        """Every committed offset, looked up in the index."""
        return with_readings_at(self.read("asked"), "read", F.col("offsets")).select("read")

    def duckdb_s(self) -> float:
        """The seconds that DuckDB takes for an ASOF join of every committed offset with the points of the index."""
        with duckdb.connect() as connection:
            connection.execute(_POINTS.format(folder=self._folder))
            connection.execute(_COMMITTED.format(folder=self._folder))
            return min(timed(lambda: connection.execute(_ASOF).fetchall()) for _ in range(3))

    def index(self) -> DataFrame:
        """The index after the second snapshot."""
        return index_rows(self.read("index"), self.read("watermarks-2"), self.no_samples(), snapshot_id(2))


def snapshot_id(minute: int) -> int:
    """The id of the snapshot in a minute."""
    return NOON_MS + minute * MINUTE_MS


def at(rows: DataFrame, *minutes: int) -> DataFrame:
    """The rows, repeated for each minute."""
    return rows.withColumn("minute", F.explode(F.array(*(F.lit(m).cast("bigint") for m in minutes))))


def partitions_of(spark: SparkSession, number: int) -> DataFrame:
    """`number` partitions in a thousand topics."""
    return spark.range(number).select(
        F.format_string("topic-of-some-length-%04d", F.col("id") % 1_000).alias("topic"),
        (F.col("id") / 1_000).cast("int").alias("partition"),
    )


def commits_of(partitions: DataFrame) -> DataFrame:
    """READERS of each partition, somewhere in its log."""
    return partitions.withColumn("reader", F.explode(F.sequence(F.lit(0), F.lit(READERS - 1)))).select(
        "topic",
        "partition",
        F.format_string("group-%02d-%03d", "reader", F.abs(F.hash("topic")) % (GROUPS // READERS)).alias("group_id"),
        (F.rand(1) * (POINTS + 1) * RECORDS).cast("bigint").alias("committed_offset"),
    )


def read_on(commits: DataFrame) -> DataFrame:
    """Commits of a `minute` as those of groups of which one in ten has stopped and the others keep up."""
    near_end = _end() - F.abs(F.hash("group_id", "topic", "partition")) % 7
    is_stopped = F.col("group_id").startswith("group-00-")
    return commits.withColumn("committed_offset", F.when(is_stopped, F.col("committed_offset")).otherwise(near_end))


def members_of(readers: DataFrame) -> DataFrame:
    """Each group has one member, which reads all of its partitions."""
    members = {name: F.concat(F.lit(f"{name}-"), "group_id") for name in ("member_id", "client_id", "host")}
    return readers.withColumns(members).withColumn("state", F.lit("Stable"))


def watermarks_of(partitions: DataFrame) -> DataFrame:
    """Watermarks of partitions in a `minute`."""
    end = _end()
    leader = (F.abs(F.hash("topic", "partition")) % BROKERS).cast("int")
    return partitions.select(
        "*",
        _topic_id().alias("topic_id"),
        leader.alias("leader"),
        F.array(*((leader + n) % BROKERS for n in range(3))).alias("replicas"),
        *(F.lit(0).cast("bigint").alias(name) for name in ("log_start_offset", "log_bytes_error")),
        *(end.alias(name) for name in ("last_stable_offset", "high_watermark", "log_end_offset")),
        (NOON_MS + F.col("minute") * MINUTE_MS).alias("max_timestamp_ms"),
        (end - 1).alias("max_timestamp_offset"),
        (end * (BYTES // RECORDS)).alias("log_bytes"),
        F.lit("delete").alias("cleanup_policy"),
    )


def whole(table: Table, rows: DataFrame) -> DataFrame:
    """The rows of a `minute` with all columns of the table."""
    at_ms = NOON_MS + F.col("minute") * MINUTE_MS
    read_at = F.col("captured_at") if "captured_at" in rows.columns else F.timestamp_millis(at_ms)
    known = rows.withColumns(
        {
            "cluster": F.lit("bench"),
            "snapshot_id": at_ms,
            "snapshot_date": F.to_date(F.timestamp_millis(at_ms)),
            "captured_at": read_at,
        }
    )
    return aligned(known, table.schema)


def _end() -> Column:
    """The log end in a `minute`. Rates vary from minute to minute, so that thinning keeps the points."""
    varied = (F.abs(F.hash("topic", "partition", "minute")) % 900).cast("bigint")
    return (F.col("minute") + POINTS - 1) * RECORDS + varied


def _topic_id() -> Column:
    return F.sha1("topic").substr(1, 22)
