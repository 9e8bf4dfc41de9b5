"""What goes wrong on a broker, is put right again, and what must be found: a class for each fault.

A scenario has topics and groups of its own, whose names begin with its name. Before the snapshot of each minute, it
writes, commits and does what else its fault needs. What must be found follows from what it has done, and from the rules
in docs/findings.md.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from demo.workload.seeding import commit_offsets
from tests.helpers.minutes import T0

PREFIX = "faults-"


@dataclass(frozen=True)
class Expected:
    """A finding of a group or a topic.

    first, resolved: the minutes in which the data first shows it, and first shows it no more. later: how many snapshots
    later it may be found or resolved. evidence: a part of it, values or functions that check them.
    """

    kind: str
    first: int
    resolved: int
    evidence: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None
    topic: str | None = None
    severity: str = "warning"
    later: int = 0


class Broker:
    """What scenarios do on a broker. It remembers how many records were written."""

    def __init__(self, kafka: EmbeddedKafka, admin: KafkaAdminClient, producer: KafkaProducer) -> None:
        self.kafka, self.admin, self._producer = kafka, admin, producer
        self.written: Counter[tuple[str, int]] = Counter()

    def write(self, topic: str, records: int, partition: int = 0, timestamp_ms: int | None = None) -> int:
        """Writes records, and returns the end of the log."""
        for _ in range(records):
            self._producer.send(topic, b"x", partition=partition, timestamp_ms=timestamp_ms)
        self._producer.flush()
        self.written[topic, partition] += records
        return self.written[topic, partition]

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        commit_offsets(self.admin, group, {(topic, partition): offset})


class Scenario:
    """One fault. `topics` are the partitions of its topics, by the end of their names."""

    name: ClassVar[str]
    topics: ClassVar[Mapping[str, int]] = {"": 1}

    def __init__(self) -> None:
        self.group = f"{PREFIX}{self.name}"
        self.well = f"{self.group}-well"
        self.topic = self.group

    def begin(self, broker: Broker) -> None:
        """What is done before the first minute."""
        create_topics(broker.admin, {f"{self.topic}{end}": count for end, count in self.topics.items()})

    def members_at(self, minute: int) -> None:
        """Which members join and leave before the snapshot of this minute. Those of all scenarios do so together."""

    def at(self, minute: int, broker: Broker) -> None:
        """What is done before the snapshot of this minute."""
        raise NotImplementedError

    def end(self) -> None:
        """Ends what the scenario has begun."""

    def expected(self) -> Iterable[Expected]:
        """What must be found, after all minutes; of its groups and topics nothing else."""
        raise NotImplementedError


class FallingBehind(Scenario):
    """A group that reads everything in every other minute, and later a sixth of what is written."""

    name = "slow"
    begins, ends = 10, 25
    read = 0

    def at(self, minute: int, broker: Broker) -> None:
        end = broker.write(self.topic, 6)
        broker.commit(self.well, self.topic, end)
        if self.begins <= minute < self.ends:
            self.read += 1
        else:
            self.read = max(end - (12 if minute % 2 == 0 else 0), 0)
        broker.commit(self.group, self.topic, self.read)

    def expected(self) -> Iterable[Expected]:
        # The rise begins with the last minute in which everything was read. It must last for five minutes; the age must
        # rise by three: twice the usual rise of one, and one more.
        unread = 6 * self.ends - (6 * self.begins + self.ends - self.begins)
        evidence = {"status": "warning", "consumer_lag": unread, "worst_topic": self.topic}
        yield Expected("falling_behind", self.begins + 4, self.ends, evidence, self.group, self.topic, "warning", 2)


class HotPartition(FallingBehind):
    """The same group, but only in one of three partitions: that which gets six times as many records as the others."""

    name = "hot"
    topics: ClassVar[Mapping[str, int]] = {"": 3}

    def at(self, minute: int, broker: Broker) -> None:
        super().at(minute, broker)
        for partition in (1, 2):
            end = broker.write(self.topic, 1, partition)
            for group in (self.group, self.well):
                broker.commit(group, self.topic, end, partition)

    def expected(self) -> Iterable[Expected]:
        for one in super().expected():
            evidence = {**one.evidence, "worst_partition": 0, "worst_partition_lag_share": 1.0}
            shares = {"worst_partition_write_share": lambda share: 0.7 < share < 0.8}
            yield replace(one, kind="hot_partition", evidence=evidence | shares)


class DeletedUnread(Scenario):
    """A group stops, and DeleteRecords deletes what it has not read. Another group in the topic reads on."""

    name = "deleted"
    stops, deletes, ends = 10, 16, 22
    deleted = 5
    read = 0

    def at(self, minute: int, broker: Broker) -> None:
        end = broker.write(self.topic, 3)
        broker.commit(self.well, self.topic, end)
        if not self.stops <= minute < self.ends:
            self.read = end
            broker.commit(self.group, self.topic, end)
        if minute == self.deletes:
            broker.admin.delete_records({TopicPartition(self.topic, 0): self.read + self.deleted})

    def expected(self) -> Iterable[Expected]:
        unread = 3 * (self.ends - self.stops)
        # The third snapshot shows that the commit does not move.
        of = {"group": self.group, "topic": self.topic, "severity": "critical"}
        yield Expected("no_progress", self.stops + 2, self.ends, {"consumer_lag": unread}, **of)
        yield Expected("deleted_unread", self.deletes, self.ends, {"deleted_offsets": self.deleted}, **of)


class DeletedUnreadByAll(DeletedUnread):
    """Three groups stop at once, and lose the same records."""

    name = "deleted-by-all"

    def at(self, minute: int, broker: Broker) -> None:
        super().at(minute, broker)
        if not self.stops <= minute < self.ends:
            for group in self.others():
                broker.commit(group, self.topic, self.read)

    def others(self) -> list[str]:
        return [f"{self.group}-{number}" for number in (1, 2)]

    def expected(self) -> Iterable[Expected]:
        kinds = {"no_progress": "stopped_together"}
        for one in super().expected():
            sums = {name: 3 * value for name, value in one.evidence.items()}
            evidence = {**sums, "groups": [self.group, *self.others()], "groups_affected": 3}
            yield replace(one, kind=kinds.get(one.kind, one.kind), evidence=evidence, group=None)


class RecreatedTopic(Scenario):
    """A topic is deleted and made again; its consumer commits once more where it was, and continues much later.

    With the topic, the broker removes the commits. Another group begins anew at once.
    """

    name = "recreated"
    begins, ends = 10, 20
    read = 0

    def at(self, minute: int, broker: Broker) -> None:
        if minute == self.begins:
            broker.admin.delete_topics([self.topic])
            del broker.written[self.topic, 0]
            create_topics(broker.admin, {self.topic: 1})
            broker.commit(self.group, self.topic, self.read)
        end = broker.write(self.topic, 5)
        broker.commit(self.well, self.topic, end)
        if not self.begins <= minute < self.ends:
            self.read = end
            broker.commit(self.group, self.topic, end)

    def expected(self) -> Iterable[Expected]:
        evidence = {"groups": [self.group], "groups_affected": 1}
        yield Expected("recreated_topic", self.begins, self.ends, evidence, topic=self.topic, severity="warning")


class OpenTransaction(Scenario):
    """A transaction stays open, so that a read_committed group cannot read what other producers write after it."""

    name = "transaction"
    begins, ends = 10, 20
    read = 0

    def at(self, minute: int, broker: Broker) -> None:
        if minute == self.begins:
            self._begin(broker)
        if minute == self.ends:
            self.producer.commit_transaction()
            self.producer.close()
            broker.written[self.topic, 0] += 1  # its marker
        end = broker.write(self.topic, 3)
        broker.commit(self.well, self.topic, end)
        if not self.begins <= minute < self.ends:
            self.read = end
        broker.commit(self.group, self.topic, self.read)

    def _begin(self, broker: Broker) -> None:
        servers = broker.kafka.bootstrap_servers
        times = {"transaction_timeout_ms": 900_000}
        self.producer = KafkaProducer(bootstrap_servers=servers, transactional_id=self.group, **times)
        self.producer.init_transactions()
        self.producer.begin_transaction()
        self.producer.send(self.topic, b"x", partition=0)
        self.producer.flush()
        broker.written[self.topic, 0] += 1
        (described,) = broker.admin.describe_transactions([self.group]).values()
        self.producer_id = described.producer_id

    def expected(self) -> Iterable[Expected]:
        evidence = {
            "groups": [self.group],
            "transaction_producer_id": self.producer_id,
            "transaction_start_offset": 3 * self.begins,
            "consumer_lag": 1 + 3 * (self.ends - self.begins),
        }
        # The third snapshot shows that the commit does not move.
        yield Expected("open_transaction", self.begins + 2, self.ends, evidence, topic=self.topic, severity="warning")


class DataLossAhead(Scenario):
    """A group stops in a topic whose records are kept for two hours, and reads on in time."""

    name = "retention"
    begins, ends = 10, 22

    def begin(self, broker: Broker) -> None:
        create_topics(broker.admin, {self.topic: 1}, configs={"retention.ms": str(2 * 3_600_000)})

    def at(self, minute: int, broker: Broker) -> None:
        end = broker.write(self.topic, 3)
        broker.commit(self.well, self.topic, end)
        if not self.begins <= minute < self.ends:
            broker.commit(self.group, self.topic, end)

    def expected(self) -> Iterable[Expected]:
        of = {"group": self.group, "topic": self.topic, "severity": "critical"}
        unread = {"consumer_lag": 3 * (self.ends - self.begins)}
        yield Expected("no_progress", self.begins + 2, self.ends, unread, **of)
        # The oldest unread record was written in the minute before the first snapshot that the group missed.
        yield Expected("data_loss_ahead", self.begins + 2, self.ends, {"deleted_at": self._is_in_time}, **of)

    def _is_in_time(self, deleted_at: str) -> bool:
        written = datetime.fromisoformat(deleted_at) - timedelta(hours=2)
        return T0 + timedelta(minutes=self.begins - 1) <= written <= T0 + timedelta(minutes=self.begins, seconds=1)


class ClockAhead(Scenario):
    """A producer's clock is ten minutes ahead, for one record. As time passes, the record is less far in the future."""

    name = "clock"
    begins = 10

    def at(self, minute: int, broker: Broker) -> None:
        ahead_ms = round(time.time() * 1_000) + 600_000 if minute == self.begins else None
        end = broker.write(self.topic, 1, timestamp_ms=ahead_ms)
        broker.commit(self.well, self.topic, end)

    def expected(self) -> Iterable[Expected]:
        evidence = {"newest_offset": self.begins, "newest_partition": 0, "ahead_ms": self._is_ten_minutes}
        # Five minutes later, it is five minutes ahead, and no longer more.
        yield Expected("clock_ahead", self.begins, self.begins + 5, evidence, topic=self.topic, severity="info")

    def _is_ten_minutes(self, ahead_ms: int) -> bool:
        return 570_000 < ahead_ms <= 600_000
