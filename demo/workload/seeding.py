"""Creates many groups with many committed offsets, quickly, for benchmarks and for comparisons with other tools.

A committed offset is a pure function of group and partition, so a test knows it without asking Kafka.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import NoError

from demo.embedded_kafka.topics import create_topics
from demo.errors import WorkloadError

THREADS = 8


@dataclass(frozen=True)
class Seeding:
    """How much is seeded: every group commits in every partition of every topic.

    `partitions` is the total over all topics; `records` of `record_bytes` each are written to each partition.
    """

    groups: int = 500
    topics: int = 4
    partitions: int = 400
    records: int = 0
    record_bytes: int = 100
    prefix: str = "seed"

    @property
    def topic_partitions(self) -> dict[str, int]:
        """How many partitions each topic has; if they cannot be divided equally, the first topics have one more."""
        base, more = divmod(self.partitions, self.topics)
        return {f"{self.prefix}-topic-{number}": base + (number < more) for number in range(self.topics)}

    @property
    def group_ids(self) -> list[str]:
        """The names of the groups."""
        return [f"{self.prefix}-group-{number:04}" for number in range(self.groups)]

    def committed(self, group: int) -> dict[tuple[str, int], int]:
        """(topic, partition) → the offset that the group with this number commits: from 0 to `records`, in turn."""
        keys = ((topic, one) for topic, count in self.topic_partitions.items() for one in range(count))
        return {key: (group + number) % (self.records + 1) for number, key in enumerate(keys)}


def seed_offsets(bootstrap_servers: str, seeding: Seeding) -> None:
    """Creates topics, records and committed offsets. If they exist, offsets are committed again, and records are added.

    500 groups with 400 partitions take about 4 s on two cores, topics included.

    Raises:
        KafkaError: the cluster cannot be reached, or refused something.
        WorkloadError: an offset was refused.
    """
    # In kafka-python, requests beyond the limit of in-flight requests are not queued, but fail (NodeNotReadyError).
    with KafkaAdminClient(
        bootstrap_servers=bootstrap_servers, client_id="seeding", max_in_flight_requests_per_connection=THREADS * 4
    ) as admin:
        create_topics(admin, seeding.topic_partitions)
        _write_records(bootstrap_servers, seeding)
        with ThreadPoolExecutor(THREADS) as pool:
            commits = [
                pool.submit(commit_offsets, admin, group_id, seeding.committed(number))
                for number, group_id in enumerate(seeding.group_ids)
            ]
            for commit in commits:
                commit.result()


def commit_offsets(admin: KafkaAdminClient, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commits (topic, partition) → offset for a group without members, as when an administrator resets it.

    Raises:
        KafkaError: the coordinator cannot be reached.
        WorkloadError: an offset was refused.
    """
    wanted = {TopicPartition(*key): OffsetAndMetadata(offset, "", -1) for key, offset in offsets.items()}
    refused: dict[Any, Any] = {
        key: error for key, error in admin.alter_group_offsets(group_id, wanted).items() if error is not NoError
    }
    if refused:
        key, error = next(iter(refused.items()))
        raise WorkloadError(f"{group_id}: {len(refused)} offsets were refused, {key} with {error.__name__}")


def _write_records(bootstrap_servers: str, seeding: Seeding) -> None:
    if seeding.records == 0:
        return
    failures: list[Exception] = []
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, client_id="seeding", linger_ms=20)
    try:
        value = b"x" * seeding.record_bytes
        for _ in range(seeding.records):
            for topic, partitions in seeding.topic_partitions.items():
                for partition in range(partitions):
                    producer.send(topic, value, partition=partition).add_errback(failures.append)
        producer.flush()
    finally:
        producer.close(timeout=10)
    if failures:
        raise failures[0]
