"""Everything that talks to Kafka: PySpark data sources, for jobs and notebooks alike.

`register(spark)`, then
`spark.read.format("kafka_watermarks").options(bootstrap_servers="…", topics_allow="^orders").load()`.
"""

from pyspark.sql import SparkSession

from pipeline.kafka.brokers import BrokersSource
from pipeline.kafka.committed_offsets import CommittedOffsetsSource
from pipeline.kafka.group_members import GroupMembersSource
from pipeline.kafka.snapshot import SnapshotSource
from pipeline.kafka.watermarks import WatermarksSource

SOURCES = (
    BrokersSource,
    CommittedOffsetsSource,
    GroupMembersSource,
    SnapshotSource,
    WatermarksSource,
)


def register(spark: SparkSession) -> None:
    """Registers the Kafka data sources in a session, classic or Connect."""
    for source in SOURCES:
        spark.dataSource.register(source)
