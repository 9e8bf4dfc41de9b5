"""Data sources of clients' positions: from their metrics, from librdkafka's statistics, from brokers' request logs.

`register(spark)`, then `spark.read.format("kafka_client_metrics").option("endpoints",
"http://app-1:9404/metrics").load()` or `spark.read.format("librdkafka_statistics").load("/var/log/app/statistics")`.
"""

from pyspark.sql import SparkSession

from pipeline.client_positions.metrics_source import ClientMetricsSource, StatisticsSource
from pipeline.client_positions.request_log_source import RequestLogSource

SOURCES = (ClientMetricsSource, StatisticsSource, RequestLogSource)


def register(spark: SparkSession) -> None:
    """Registers the data sources of positions in a session, classic or Connect."""
    for source in SOURCES:
        spark.dataSource.register(source)
