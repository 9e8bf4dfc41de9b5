"""Which offsets are looked for in log files."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.analytics.lag.log_files import FILES, located_offsets
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS
from tests.helpers.lag_rows import BRACKETED, MEMBER, WATERMARK
from tests.helpers.rows import frame


def test_only_files_of_partitions_that_somebody_reads_are_opened(spark: SparkSession) -> None:
    commits = frame(spark, COMMITTED_OFFSETS, BRACKETED, (1, "g", "committed", 0, 40, 50, 90, 90))
    members = frame(spark, GROUP_MEMBERS, MEMBER, (1, "h", "consumer", "Stable", "m", "c", "/h", "assigned", 0))
    reported = spark.createDataFrame(
        [("east", 1, "reported", 0, 70, None)],
        "cluster string, snapshot_id long, topic string, partition int, consumed_offset long, fetched_offset long",
    )
    topics = ["committed", "assigned", "reported", "nobody"]
    logs = frame(spark, WATERMARKS, WATERMARK, *((1, topic, 0, "A", 10, 95, 95, 100, None) for topic in topics))

    def located(asked: DataFrame) -> DataFrame:
        return asked.withColumn("position_bytes", F.col("offset") * 10).withColumn("topic_id", F.lit("A"))

    found = located_offsets(commits, logs, members, reported, located)
    assert found.columns == FILES.names
    offsets: dict[str, set[int]] = {}
    for row in found.collect():
        assert (row.files_topic_id, row.position_bytes, row.markers_to_end) == ("A", row.offset * 10, None)
        offsets.setdefault(row.topic, set()).add(row.offset)
    ends = {10, 94, 95, 99, 100}
    assert offsets == {"committed": ends | {40, 50, 90}, "assigned": ends, "reported": ends | {70}}
