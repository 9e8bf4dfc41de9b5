"""An admin client and a producer of the broker that the tests of a file share; a file may have its own instead."""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from demo.embedded_kafka.broker import EmbeddedKafka


@pytest.fixture(scope="module")
def admin(kafka: EmbeddedKafka) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


@pytest.fixture(scope="module")
def producer(kafka: EmbeddedKafka) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=False)
    yield producer
    producer.close(timeout=5)
