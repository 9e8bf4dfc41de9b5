"""Data source `kafka_brokers`: one row for each broker, with its capabilities or its error.

The job reads it first: if a cluster is down, the result is a row with the reason, not an exception inside Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, MapType, StringType, StructField, StructType

from pipeline.common.errors import ClusterError
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.failures import Failure
from pipeline.kafka.group_members import ConsumerGroupDescribeRequest
from pipeline.kafka.source import Chunk, Columns, KafkaReader, KafkaSource

APIS = {
    "ConsumerGroupDescribe": ConsumerGroupDescribeRequest,
    "DescribeConfigs": DescribeConfigsRequest,
    "DescribeGroups": DescribeGroupsRequest,
    "DescribeLogDirs": DescribeLogDirsRequest,
    "FindCoordinator": FindCoordinatorRequest,
    "ListGroups": ListGroupsRequest,
    "ListOffsets": ListOffsetsRequest,
    "Metadata": MetadataRequest,
    "OffsetFetch": OffsetFetchRequest,
}

BROKERS = StructType(
    [
        StructField("broker", IntegerType()),
        StructField("address", StringType()),
        StructField("cluster_id", StringType()),
        StructField("capabilities", MapType(StringType(), StringType())),
        StructField("error", StringType()),
    ]
)
"""`capabilities`: API → highest version that both sides have, NULL if the broker lacks or refuses the API. If the
cluster cannot be reached, there is one row: its `broker` is NULL, and its `error` says why in words."""


class BrokersReader(KafkaReader):
    """One task asks all brokers."""

    def partitions(self) -> Sequence[InputPartition]:
        """One chunk; the cluster is contacted in read(), where a failure becomes a row."""
        return [Chunk(None, None, ("all",))]

    def fetch(self, client: KafkaClient, chunk: Chunk) -> Iterator[Columns]:
        """One row for each broker that the cluster names before and after it was asked: not for one that leaves."""
        found = capabilities(client)
        brokers = {broker: address for broker, address in client.brokers().items() if broker in found}
        answers = [found[broker] for broker in brokers]
        yield {
            "broker": [*brokers],
            "address": [*brokers.values()],
            "cluster_id": [client.cluster_id()] * len(brokers),
            "capabilities": [None if isinstance(f, Failure) else [*f.items()] for f in answers],
            "error": [f.error if isinstance(f, Failure) else None for f in answers],
        }

    def unread(self, chunk: Chunk, reason: ClusterError) -> Iterator[Columns]:
        """One row, whose error says why in words."""
        yield {"error": [str(reason)]}


class BrokersSource(KafkaSource):
    """Columns: BROKERS."""

    observed = BROKERS
    reader_class = BrokersReader

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_brokers"


def capabilities(client: KafkaClient) -> dict[int, dict[str, str | None] | Failure]:
    """API → highest version that both sides have, for each broker. All brokers are asked at once."""
    supported = client.api_versions(client.brokers())
    answering = [b for b, versions in supported.items() if not isinstance(versions, Failure)]
    log_dirs = client.ask_each(answering, lambda: DescribeLogDirsRequest(topics=[]))
    return {
        broker: versions if isinstance(versions, Failure) else _versions(client, versions, log_dirs[broker])
        for broker, versions in supported.items()
    }


def _versions(client: KafkaClient, supported: dict[int, int], log_dirs: object) -> dict[str, str | None]:
    versions = {name: _version(client.version(api), supported.get(api.API_KEY)) for name, api in APIS.items()}
    if isinstance(log_dirs, Failure) and not log_dirs.is_retriable:
        versions["DescribeLogDirs"] = None
    return versions


def _version(ours: int | None, the_brokers: int | None) -> str | None:
    return None if ours is None or the_brokers is None else str(min(ours, the_brokers))
