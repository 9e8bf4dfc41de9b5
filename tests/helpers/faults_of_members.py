"""Faults of groups with real members, beside those in `faults.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.structs import MemberState

from tests.helpers.faults import Broker, Expected, Scenario


class Members:
    """The members of a group, by client.id. They send heartbeats, but poll only while partitions are assigned."""

    def __init__(self, servers: str, group: str, topics: Mapping[str, int]) -> None:
        self.servers, self.group, self.topics = servers, group, topics
        self.consumers: dict[str, Any] = {}

    def join(self, *clients: str) -> None:
        """They join; those of the same name are replaced."""
        before = self.generation
        self._close(client for client in clients if client in self.consumers)
        self.consumers |= {client: self._consumer(client) for client in clients}
        self._settle(before)

    def leave(self, *clients: str) -> None:
        before = self.generation
        self._close(clients)
        self._settle(before)

    @property
    def generation(self) -> int:
        """That of the newest rebalance."""
        return max((consumer.group_metadata().generation_id for consumer in self.consumers.values()), default=-1)

    def _close(self, clients: Iterable[str]) -> None:
        for client in [*clients]:
            self.consumers.pop(client).close(autocommit=False)

    def _settle(self, before: int) -> None:
        """Polls until a newer generation has all members, and all partitions are assigned."""
        if self.consumers:
            with ThreadPoolExecutor(len(self.consumers)) as pool:
                list(pool.map(lambda consumer: self._poll(consumer, before), self.consumers.values()))

    def _poll(self, consumer: Any, before: int) -> None:
        for _ in range(30):
            if self._has_settled(before):
                return
            # A poll that ends between joining and being assigned loses the assignment for good (kafka-python 3.0.12).
            consumer.poll(timeout_ms=2_000)
        raise AssertionError(f"{self.group} never had all of its members")

    def _has_settled(self, before: int) -> bool:
        found = [*self.consumers.values()]
        known = [consumer.group_metadata() for consumer in found]
        is_stable = all(one.state is MemberState.STABLE and one.generation_id > before for one in known)
        is_same = len({one.generation_id for one in known}) == 1
        return is_stable and is_same and sum(len(c.assignment()) for c in found) == sum(self.topics.values())

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commits in the first partition of each topic, through the members that have them."""
        for consumer in self.consumers.values():
            own = {p: offsets[p.topic] for p in consumer.assignment() if p.topic in offsets and p.partition == 0}
            if own:
                consumer.commit({p: OffsetAndMetadata(offset, "", -1) for p, offset in own.items()})

    def _consumer(self, client: str) -> Any:
        consumer = KafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=self.group,
            client_id=client,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            max_poll_interval_ms=900_000,
            metrics_enabled=False,
        )
        for topic in self.topics:
            consumer.partitions_for_topic(topic)  # else it may assign, as the leader, before it knows them
        consumer.subscribe([*self.topics])
        return consumer


class NeverCommits(Scenario):
    """A consumer that crashes before its first commit: it comes back, and is gone again in every third minute.

    Much later it is repaired, and commits. Another group reads the same topic, and is well.
    """

    name = "never"
    shown, ends = 6, 61

    def begin(self, broker: Broker) -> None:
        super().begin(broker)
        self.members = Members(broker.kafka.bootstrap_servers, self.group, {self.topic: 1})

    def at(self, minute: int, broker: Broker) -> None:
        end = broker.write(self.topic, 5)
        broker.commit(self.well, self.topic, end)
        if minute >= self.ends:
            self.members.commit({self.topic: end})

    def members_at(self, minute: int) -> None:
        if minute >= self.ends:
            return
        if minute < 0 or minute % 3 == 0:
            self.members.join("reader")
        elif minute % 3 == 2:
            self.members.leave("reader")

    def end(self) -> None:
        self.members.leave("reader")

    def expected(self) -> Iterable[Expected]:
        evidence = {"worst_topic": self.topic, "worst_partition": 0}
        # The first snapshot with the consumer that is five minutes after another one with it.
        # It is away in the minute before the last one without a commit, for which the earlier snapshot lacks it.
        yield Expected("never_commits", self.shown, self.ends - 2, evidence, self.group, self.topic, "warning", 2)


class WithMembers(Scenario):
    """A scenario whose group has members. `clients` are those that join before the first minute."""

    clients: ClassVar[tuple[str, ...]]

    def at(self, minute: int, broker: Broker) -> None:
        pass

    def begin(self, broker: Broker) -> None:
        super().begin(broker)
        topics = {f"{self.topic}{end}": count for end, count in self.topics.items()}
        for topic, count in topics.items():
            for partition in range(count):
                end = broker.write(topic, 1, partition)
                broker.commit(self.group, topic, end, partition)
        self.members = Members(broker.kafka.bootstrap_servers, self.group, topics)

    def members_at(self, minute: int) -> None:
        if minute < 0:
            self.members.join(*self.clients)

    def end(self) -> None:
        self.members.leave(*self.members.consumers)


class IdleMember(WithMembers):
    """Two members of a topic with one partition, until one of them leaves."""

    name = "idle"
    clients = ("one", "other")
    ends = 40

    def members_at(self, minute: int) -> None:
        super().members_at(minute)
        if minute == self.ends:
            (idle,) = (client for client, member in self.members.consumers.items() if not member.assignment())
            self.members.leave(idle)

    def expected(self) -> Iterable[Expected]:
        # Assignments are judged when nothing has changed for 30 minutes: since the lake began, and since one has left.
        evidence = {"members": 2, "members_without_partition": 1, "partitions": 1}
        yield Expected("idle_member", 30, self.ends + 30, evidence, self.group, self.topic, "info")


class UnevenAssignment(WithMembers):
    """The RangeAssignor gives one of two members all four topics, and it then reads a sixth of what is written."""

    name = "uneven"
    topics: ClassVar[Mapping[str, int]] = {"-a": 1, "-b": 1, "-c": 1, "-d": 1}
    clients = ("one", "other")
    begins, ends = 34, 45
    read = 0

    def at(self, minute: int, broker: Broker) -> None:
        for topic in self.members.topics:
            end = broker.write(topic, 6)
            broker.commit(self.well, topic, end)
        if self.begins <= minute < self.ends:
            self.read += 1
        else:
            self.read = max(end - (12 if minute % 2 == 0 else 0), 1)
        self.members.commit(dict.fromkeys(self.members.topics, self.read))

    def expected(self) -> Iterable[Expected]:
        # As in FallingBehind; members have not changed for 30 minutes.
        yield Expected("falling_behind", self.begins + 4, self.ends, {"partitions": 4}, self.group, later=2)
        shared = {"members": 2, "members_without_partition": 1, "partitions": 4, "assignor": "range"}
        evidence = shared | {"partitions_of_one_member": 4, "their_lag_share": 1.0}
        yield Expected("uneven_assignment", self.begins + 4, self.ends, evidence, self.group, severity="info", later=2)


class Restless(WithMembers):
    """Some members are replaced by others with the same client.id, minute by minute."""

    topics: ClassVar[Mapping[str, int]] = {"": 4}
    clients = ("stays",)
    comes: ClassVar[tuple[str, ...]]
    kind: ClassVar[str]
    begins, ends = 11, 15

    def members_at(self, minute: int) -> None:
        super().members_at(minute)
        if self.begins <= minute < self.ends:
            self.members.join(*self.comes)

    def expected(self) -> Iterable[Expected]:
        # Each has joined in the first minute, and left for the third time three minutes later. 40 minutes after it has
        # left for the last time, it does not come and go any more.
        stays = self.ends - self.begins - 1
        evidence = {"flapping_members": len(self.comes), "clients": [*self.comes], "short_stays_of_client": stays}
        last = self.ends - 1
        yield Expected(self.kind, self.begins + 3, last + 40, evidence, self.group, severity="warning", later=1)


class RebalanceStorm(Restless):
    """Two of three members are replaced again and again."""

    name = "storm"
    comes = ("comes-1", "comes-2")
    kind = "rebalance_storm"


class FlappingMember(Restless):
    """One of two members is replaced again and again."""

    name = "flapping"
    comes = ("comes",)
    kind = "flapping_member"


class Skipped(WithMembers):
    """A consumer ends; an admin client moves its commit over records that it has not read, and later back again.

    Then the consumer reads them.
    """

    name = "skipped"
    clients = ("reader",)
    ends_consumer, begins, ends, reads = 10, 13, 20, 24
    records = 20

    def at(self, minute: int, broker: Broker) -> None:
        end = broker.written[self.topic, 0]
        if minute < self.ends_consumer:
            self._read(broker.write(self.topic, 3))
        elif minute == self.ends_consumer:
            self.members.leave("reader")
            self.read = end
            broker.write(self.topic, self.records)
        elif minute == self.begins:
            broker.commit(self.group, self.topic, end)
        elif minute == self.ends:
            broker.commit(self.group, self.topic, self.read)
        elif minute == self.reads:
            self.members.join("reader")
            self._read(end)

    def _read(self, end: int) -> None:
        """Reads to the end, and commits with the epoch of the last record."""
        (consumer,) = self.members.consumers.values()
        partition = TopicPartition(self.topic, 0)
        for _ in range(60):
            if consumer.position(partition) >= end:
                break
            consumer.poll(timeout_ms=1_000)
        assert consumer.position(partition) == end
        consumer.commit()

    def expected(self) -> Iterable[Expected]:
        evidence = {"skipped_offsets": self.records}
        yield Expected("skipped", self.begins, self.ends, evidence, self.group, self.topic, "warning")
