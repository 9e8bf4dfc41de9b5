"""What goes wrong on a broker, is put right again, and what must be found: a class for each fault.

A scenario has topics and groups of its own, whose names begin with its name. Before the snapshot of each minute, it
writes, commits and does what else its fault needs. What must be found follows from what it has done, and from the rules
in docs/findings.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from demo.workload.seeding import commit_offsets

PREFIX = "faults-"


@dataclass(frozen=True)
class Expected:
    """A finding: its kind, its group or topic, the minutes at which the data first shows it and first does not any
    more, and a part of its evidence. `later`: how many snapshots later it may be found or resolved."""

    kind: str
    first: int
    resolved: int | None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None
    topic: str | None = None
    severity: str | None = None
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

    def at(self, minute: int, broker: Broker) -> None:
        """What is done before the snapshot of this minute."""
        raise NotImplementedError

    def end(self) -> None:
        """Ends what the scenario has begun."""

    def expected(self) -> Iterable[Expected]:
        """What must be found, after all minutes; of its groups and topics nothing else."""
        raise NotImplementedError


class FallingBehind(Scenario):
    """A group that is one or two minutes late in turn, and then reads a sixth of what is written."""

    name = "slow"
    begins, ends = 10, 25
    read = 0

    def at(self, minute: int, broker: Broker) -> None:
        end = broker.write(self.topic, 6)
        broker.commit(self.well, self.topic, end)
        if self.begins <= minute < self.ends:
            self.read += 1
        else:
            self.read = max(end - (12 if minute % 2 == 0 else 6), 0)
        broker.commit(self.group, self.topic, self.read)

    def expected(self) -> Iterable[Expected]:
        # The oldest unread record was written when the rise began, in the minute before. The age then rises by 50 s in
        # each minute, and the rise must last for five minutes, by three: twice a usual rise of one, and one more.
        unread = 6 * self.ends - (6 * (self.begins - 1) + self.ends - self.begins)
        evidence = {"status": "warning", "consumer_lag": unread, "worst_topic": self.topic}
        yield Expected("falling_behind", self.begins + 4, self.ends, evidence, self.group, self.topic, "warning", 2)


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
        yield Expected("no_progress", self.stops + 2, self.ends, {"consumer_lag": unread}, self.group, self.topic)
        evidence = {"deleted_offsets": self.deleted}
        yield Expected("deleted_unread", self.deletes, self.ends, evidence, self.group, self.topic, "critical")


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
