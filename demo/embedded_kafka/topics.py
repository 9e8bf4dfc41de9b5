"""Creates topics, and waits until they can be used."""

import time
from collections.abc import Mapping
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError

from demo.embedded_kafka.readiness import wait_until

READY_TIMEOUT_S = 60.0


def create_topics(
    admin: KafkaAdminClient, topics: Mapping[str, int], replicas: int = -1, configs: Mapping[str, str] | None = None
) -> None:
    """Creates the topics (name → partitions) that do not exist, and waits until their leaders answer.

    `replicas` -1 is the brokers' default: as many as there are brokers, at most 3.

    Raises:
        KafkaError: Kafka refused a topic.
        BrokerError: not all leaders answered within 60 s.
    """
    existing = set(admin.list_topics())
    missing = {name: partitions for name, partitions in topics.items() if name not in existing}
    if not missing:
        return
    options = {"replication_factor": replicas, "configs": dict(configs or {})}
    admin.create_topics({name: {"num_partitions": partitions} | options for name, partitions in missing.items()})
    everything = [TopicPartition(name, one) for name, partitions in missing.items() for one in range(partitions)]
    # The metadata names leaders before these know it themselves, so the leaders are asked.
    wait_until("leaders", lambda: _leaders_answer(admin, everything), time.monotonic() + READY_TIMEOUT_S)


def _leaders_answer(admin: Any, partitions: list[TopicPartition]) -> bool:
    try:
        admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    except KafkaError:
        return False
    return True
