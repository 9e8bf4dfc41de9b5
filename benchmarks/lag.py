"""How fast `lag` is computed and the log index carried on: 1,000,000 group-partitions over 100,000 partitions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.timing import timed
from pipeline.analytics.lag import compute_lag
from pipeline.analytics.log_index import PARTITION, index_rows, known_rulers, readings
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
POINTS = 20
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
RECORDS, BYTES = 1_000, 500_000
"""What a partition is written in a minute."""


_POINTS = """
create table points as select topic, partition, point.offset as first, point.position_bytes as bytes
from (select topic, partition, unnest(points) as point from '{folder}/index/*.parquet')
where bytes is not null"""
_COMMITTED = "create table committed as select topic, partition, committed_offset from '{folder}/committed/*.parquet'"
_ASOF = """
select count(*), sum(bytes) from committed asof join points
on committed.topic = points.topic and committed.partition = points.partition and committed_offset >= first"""


class Bronze:
    """Made-up bronze of two snapshots, and an index through the first of them with POINTS points a partition."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self._folder = folder

    def make(self) -> None:
        """Write the frames as Parquet, once."""
        for name, rows in self._frames():
            rows.repartition(8).write.mode("overwrite").parquet(str(self._folder / name))

    def read(self, name: str) -> DataFrame:
        """A frame as it was written."""
        return self.spark.read.parquet(str(self._folder / name))

    def _frames(self) -> Iterator[tuple[str, DataFrame]]:
        partitions = self.spark.range(PARTITIONS).select(
            F.format_string("topic-of-some-length-%04d", F.col("id") % 1_000).alias("topic"),
            (F.col("id") / 1_000).cast("int").alias("partition"),
        )
        readers = partitions.crossJoin(self.spark.range(READERS).withColumnRenamed("id", "reader")).select(
            "topic",
            "partition",
            F.format_string("group-%02d-%03d", "reader", F.abs(F.hash("topic")) % 250).alias("group_id"),
        )
        offset = (F.rand(1) * (POINTS + 1) * RECORDS).cast("bigint")
        for minute in (1, 2):
            yield f"watermarks-{minute}", _whole(WATERMARKS, _look(partitions, minute), minute)
        commits = readers.withColumn("committed_offset", offset)
        yield "committed", _whole(COMMITTED_OFFSETS, commits, 2)
        groups = readers.select("group_id").distinct().withColumn("state", F.lit("Stable"))
        members = {name: F.concat(F.lit(f"{name}-"), "group_id") for name in ("member_id", "client_id", "host")}
        assigned = readers.withColumns(members).withColumn("state", F.lit("Stable"))
        yield "groups", _whole(GROUP_MEMBERS, groups, 2)
        yield "members", _whole(GROUP_MEMBERS, assigned, 2)
        yield "previous", _whole(LAG, commits.withColumn("committed_topic_id", _topic_id()), 1)
        looks = [_whole(WATERMARKS, _look(partitions, minute), minute) for minute in range(2 - POINTS, 2)]
        seen = looks[0]
        for more in looks[1:]:
            seen = seen.unionByName(more)
        nothing = self.spark.createDataFrame([], LOG_INDEX.schema)
        yield "index", index_rows(nothing, seen, self.no_samples(), 1)

    def no_samples(self) -> DataFrame:
        """No look-ups."""
        return self.spark.createDataFrame([], LOG_SAMPLES.schema)

    def lag(self, members: str) -> DataFrame:
        """The rows of `lag` of the second snapshot, by the index as it is; `members` or nothing but the `groups`."""
        return compute_lag(
            self.read("committed"),
            self.read("watermarks-2"),
            self.read(members),
            self.read("previous"),
            known_rulers(self.read("index"), [2]),
        )

    def prepare_readings(self) -> None:
        """Write the offsets that are committed in each partition beside its ruler, once."""
        committed = self.read("committed").groupBy(*PARTITION).agg(F.collect_list("committed_offset").alias("offsets"))
        asked = self.read("index").select(*PARTITION, "ruler").join(committed, [*PARTITION])
        asked.write.mode("overwrite").parquet(str(self._folder / "asked"))

    def readings(self) -> DataFrame:
        """Every committed offset read on the index."""
        return self.read("asked").select(readings(F.col("ruler"), F.col("offsets")))

    def duckdb_s(self) -> float:
        """Seconds that DuckDB takes for its ASOF join of every committed offset with the points of the index."""
        with duckdb.connect() as connection:
            connection.execute(_POINTS.format(folder=self._folder))
            connection.execute(_COMMITTED.format(folder=self._folder))
            return min(timed(lambda: connection.execute(_ASOF).fetchall()) for _ in range(3))

    def index(self) -> DataFrame:
        """The index after the second snapshot."""
        return index_rows(self.read("index"), self.read("watermarks-2"), self.no_samples(), 2)


def _topic_id() -> Column:
    return F.sha1("topic").substr(1, 22)


def _look(partitions: DataFrame, minute: int) -> DataFrame:
    """Watermarks of a snapshot; rates vary from minute to minute, so that points stay."""
    number = minute + POINTS - 1
    varied = (F.abs(F.hash("topic", "partition", F.lit(minute))) % 900).cast("bigint")
    end = F.lit(number * RECORDS).cast("bigint") + varied
    return partitions.select(
        "*",
        _topic_id().alias("topic_id"),
        (F.abs(F.hash("topic", "partition")) % 6).cast("int").alias("leader"),
        *(F.lit(0).cast("bigint").alias(name) for name in ("log_start_offset", "log_bytes_error")),
        *(end.alias(name) for name in ("last_stable_offset", "high_watermark", "log_end_offset")),
        F.lit(int((NOON + timedelta(minutes=minute)).timestamp() * 1000)).alias("max_timestamp_ms"),
        (end - 1).alias("max_timestamp_offset"),
        (end * (BYTES // RECORDS)).alias("log_bytes"),
        F.lit("delete").alias("cleanup_policy"),
    )


def _whole(table: Table, rows: DataFrame, minute: int) -> DataFrame:
    """The rows of a snapshot, with all columns of the table."""
    at = NOON + timedelta(minutes=minute)
    known = rows.withColumns(
        {
            "cluster": F.lit("bench"),
            "snapshot_id": F.lit(minute).cast("bigint"),
            "snapshot_date": F.lit(at.date()),
            "captured_at": F.lit(at),
        }
    )
    return known.select(
        *(
            (F.col(f.name) if f.name in known.columns else F.lit(None)).cast(f.dataType).alias(f.name)
            for f in table.schema
        )
    )
