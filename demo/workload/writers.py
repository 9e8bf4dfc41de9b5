"""The workload's writers: steady producers, a transaction that stays open, and deletion of records."""

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec

from demo.workload.actors import Actor
from demo.workload.plan import TopicPlan

TICK_S = 0.1
CLOSE_TIMEOUT_S = 3.0
TRANSACTION_TIMEOUT_MS = 3_600_000


def record_value(number: int, size_bytes: int) -> bytes:
    """A small JSON document of exactly `size_bytes` bytes, or a few more if that is too small."""
    head = b'{"number": %d, "text": "' % number
    return head + b"x" * (size_bytes - len(head) - 2) + b'"}'


class SteadyProducer(Actor):
    """Writes to all topics at their rates, and to the partitions of each topic in turn."""

    def __init__(self, bootstrap_servers: str, topics: Sequence[TopicPlan]) -> None:
        super().__init__("producer", bootstrap_servers)
        self._topics = topics
        self._failures: list[Exception] = []

    def act(self) -> None:
        """At every tick, sends all that is due since the start, so that late ticks are made up for."""
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap_servers, client_id=self.name, enable_idempotence=False
        )
        try:
            numbers = {topic.name: itertools.count() for topic in self._topics}
            sent = dict.fromkeys(numbers, 0)
            started = time.monotonic()
            while not self.wait(TICK_S):
                for topic in self._topics:
                    due = int((time.monotonic() - started) * topic.records_per_s)
                    self._send(producer, topic, itertools.islice(numbers[topic.name], due - sent[topic.name]))
                    sent[topic.name] = due
                if self._failures:
                    raise self._failures[0]
                self.settled.set()
        finally:
            producer.close(timeout=CLOSE_TIMEOUT_S)

    def _send(self, producer: Any, topic: TopicPlan, numbers: Iterator[int]) -> None:
        for number in numbers:
            value = record_value(number, topic.record_bytes)
            future = producer.send(topic.name, value, partition=number % topic.partitions)
            future.add_errback(self._failures.append)


class OpenTransaction(Actor):
    """Commits a transaction on every partition, then opens another and never ends it, so that the LSO does not move."""

    def __init__(self, bootstrap_servers: str, topic: TopicPlan) -> None:
        super().__init__(f"{topic.name}-open-transaction", bootstrap_servers)
        self._topic = topic

    def act(self) -> None:
        """Leaves the transaction open until its timeout of an hour, or aborts it when asked to stop."""
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap_servers,
            client_id=self.name,
            transactional_id=self.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        try:
            producer.init_transactions()
            self._write(producer)
            producer.commit_transaction()
            self._write(producer)
            self.settled.set()
            self._stopping.wait()
            producer.abort_transaction()
        finally:
            producer.close(timeout=CLOSE_TIMEOUT_S)

    def _write(self, producer: Any) -> None:
        producer.begin_transaction()
        sent = [
            producer.send(self._topic.name, record_value(partition, self._topic.record_bytes), partition=partition)
            for partition in range(self._topic.partitions)
        ]
        producer.flush()
        for future in sent:
            future.get(timeout=CLOSE_TIMEOUT_S)


class RecordDeleter(Actor):
    """Deletes all but the newest records of a topic repeatedly, like a retention that is too short."""

    def __init__(self, bootstrap_servers: str, topic: TopicPlan, every_s: float, after: Actor) -> None:
        super().__init__(f"{topic.name}-deleter", bootstrap_servers)
        self._partitions = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
        self._keep = max(1, int(topic.records_per_s / topic.partitions))  # a second's worth
        self._every_s = every_s
        self._after = after

    def act(self) -> None:
        """Starts after the reader has stopped, because only then are records deleted unread."""
        with KafkaAdminClient(bootstrap_servers=self.bootstrap_servers, client_id=self.name) as admin:
            while not self._after.settled.is_set():
                if self.wait(TICK_S):
                    return
            while not self.wait(self._every_s):
                ends = admin.list_partition_offsets(dict.fromkeys(self._partitions, OffsetSpec.LATEST))
                admin.delete_records({partition: max(0, end.offset - self._keep) for partition, end in ends.items()})
                self.settled.set()


class CloseRetention(Actor):
    """Deletes what a slow group has read, like a retention that is nearly too short.

    From `begin_s` on, it repeatedly deletes a third of the records between log start and the group's commit. So log
    start comes close to the commit on any machine, but never passes it.
    """

    def __init__(self, bootstrap_servers: str, topic: TopicPlan, group_id: str, begin_s: float, every_s: float) -> None:
        super().__init__(f"{topic.name}-retention", bootstrap_servers)
        self._partitions = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
        self._group_id = group_id
        self._begin_s = begin_s
        self._every_s = every_s

    def act(self) -> None:
        """Settled at once, because nothing needs to wait for it."""
        self.settled.set()
        if self.wait(self._begin_s):
            return
        with KafkaAdminClient(bootstrap_servers=self.bootstrap_servers, client_id=self.name) as admin:
            while not self.wait(self._every_s):
                starts = admin.list_partition_offsets(dict.fromkeys(self._partitions, OffsetSpec.EARLIEST))
                commits = admin.list_group_offsets({self._group_id: self._partitions})[self._group_id]
                read = {p: max(0, commits[p].offset - start.offset) for p, start in starts.items()}
                admin.delete_records({p: start.offset + read[p] // 3 for p, start in starts.items()})
