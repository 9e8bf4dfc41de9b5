"""Reads the files in brokers' log directories, without asking a broker.

`register(spark)`, then `spark.read.format("kafka_log_segments").option("log_dirs", "/var/lib/kafka").load()`.
"""

from pyspark.sql import SparkSession

from pipeline.log_segments.source import LogSegmentsSource

SOURCES = (LogSegmentsSource,)


def register(spark: SparkSession) -> None:
    """Registers the data source of log segments in a session, classic or Connect."""
    for source in SOURCES:
        spark.dataSource.register(source)
