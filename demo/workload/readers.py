"""The workload's consumer groups, each with one kind of behaviour."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import CommitFailedError, RebalanceInProgressError

from demo.workload.actors import Actor
from demo.workload.plan import TopicPlan
from laglake.reporters.kafka_python import PositionsFile

COMMIT_EVERY_S = 0.5
# Without it, a client waits for ever after the broker has ended.
CLIENT_TIMEOUT_MS = 5_000
# kafka-python 3.0.12 can lose its membership while it joins. If metadata arrives meanwhile, it joins a second time, and
# if `poll` returns before that is done, the answer is dropped: no partitions, no heartbeats, no error, no retry.
# Frequent heartbeats and long polls make that rare; `Reader.poll` notices it, and the reader starts again.
POLL_TIMEOUT_MS = 1_000
HEARTBEAT_MS = 300
LOST_AFTER_S = 6.0
# It also forgets a request for metadata that it wants while another answer is outstanding (default: 5 minutes).
METADATA_MAX_AGE_MS = 2_000


class LostMembershipError(Exception):
    """A consumer has had no partitions for so long that it will never get any."""


class Reader(Actor):
    """One member of a consumer group that reads one topic. Subclasses differ in how they `read`.

    `options` are the consumer's own options (isolation_level …). If the folder `positions` is given, it reports its
    positions there.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        topic: TopicPlan,
        member: int = 1,
        positions: Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(f"{group_id}-{member}", bootstrap_servers)
        self.group_id = group_id
        self.topic = topic
        self._options = options
        self._positions = positions
        self._assigned_at = 0.0

    def act(self) -> None:
        """Reads, with a new consumer whenever a membership is lost."""
        while not self.is_stopping:
            try:
                with self._consumer() as consumer:
                    self.read(consumer)
                return
            except LostMembershipError:
                continue

    def read(self, consumer: Any) -> None:
        """Shows the behaviour until `is_stopping`, or until there is nothing more to show."""
        raise NotImplementedError

    def poll(self, consumer: Any, max_records: int | None = None) -> int:
        """Reads what is available; returns the number of records.

        Raises:
            LostMembershipError: the consumer has had no partitions for 6 s.
        """
        batches = consumer.poll(timeout_ms=POLL_TIMEOUT_MS, max_records=max_records)
        if consumer.assignment():
            self._assigned_at = time.monotonic()
        elif time.monotonic() - self._assigned_at > LOST_AFTER_S:
            raise LostMembershipError(self.name)
        return sum(len(records) for records in batches.values())

    def commit(self, consumer: Any, offsets: Mapping[TopicPartition, int] | None = None) -> bool:
        """Commits `offsets`, by default every position; returns whether that was possible."""
        given = offsets and {partition: OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}
        try:
            consumer.commit(given, timeout_ms=CLIENT_TIMEOUT_MS)
        except (CommitFailedError, RebalanceInProgressError):
            return False  # rebalances are normal; the next commit will succeed
        return True

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        """A consumer that subscribes to the topic, begins at the earliest offset, and commits only on demand."""
        consumer = KafkaConsumer(
            self.topic.name,
            bootstrap_servers=self.bootstrap_servers,
            group_id=self.group_id,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            **self._options,
        )
        self._assigned_at = time.monotonic()
        if self._positions is not None:
            PositionsFile(self._positions / f"{self.name}.jsonl", interval_s=1.0).watch(consumer)
        try:
            yield consumer
        finally:
            consumer.close(autocommit=False, timeout_ms=CLIENT_TIMEOUT_MS)


class SteadyReader(Reader):
    """Reads everything as it arrives, and commits twice a second."""

    def read(self, consumer: Any) -> None:
        """Reads until asked to stop."""
        committed = time.monotonic()
        while not self.is_stopping:
            self.poll(consumer)
            if time.monotonic() - committed >= COMMIT_EVERY_S and consumer.assignment():
                if self.commit(consumer):
                    self.settled.set()
                committed = time.monotonic()


class SlowReader(Reader):
    """Works on each record for so long that it falls behind: it reads at a third of its producer's rate."""

    def read(self, consumer: Any) -> None:
        """Reads a few records, works on them, and commits; other fetched records wait in the client."""
        while not self.is_stopping:
            read = self.poll(consumer, max_records=10)
            self.wait(read / (self.topic.records_per_s / 3))
            if read and self.commit(consumer):
                self.settled.set()


class StoppingReader(Reader):
    """Reads and commits for a while, then leaves for good; its group is empty from then on."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: TopicPlan, stop_after_s: float) -> None:
        super().__init__(bootstrap_servers, group_id, topic)
        self._stop_after_s = stop_after_s
        self._has_committed = False

    def act(self) -> None:
        """Settled after it has left."""
        super().act()
        if self._has_committed:
            self.settled.set()

    def read(self, consumer: Any) -> None:
        """Reads for longer if no records have arrived so far, because it must leave a commit."""
        deadline = time.monotonic() + self._stop_after_s
        while not self.is_stopping and not (self._has_committed and time.monotonic() > deadline):
            if self.poll(consumer) and self.commit(consumer):
                self._has_committed = True


class RewindingReader(Reader):
    """Goes back to the beginning at an interval, commits that, and then reads a little faster than the producer."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: TopicPlan, rewind_every_s: float) -> None:
        super().__init__(bootstrap_servers, group_id, topic)
        self._rewind_every_s = rewind_every_s

    def read(self, consumer: Any) -> None:
        """Settled after it has rewound. Catching up takes as long as it had read before, so snapshots can see it."""
        while not self.is_stopping:
            self._read_for(self._rewind_every_s, consumer)
            if not self.is_stopping and self._rewind(consumer):
                self.settled.set()

    def _read_for(self, seconds: float, consumer: Any) -> None:
        deadline = time.monotonic() + seconds
        while not self.is_stopping and time.monotonic() < deadline:
            read = self.poll(consumer, max_records=10)
            self.wait(read / (self.topic.records_per_s * 1.5))
            if read:
                self.commit(consumer)

    def _rewind(self, consumer: Any) -> bool:
        if not consumer.assignment():
            return False
        consumer.seek_to_beginning()
        return self.commit(consumer, {one: _position(consumer, one) for one in consumer.assignment()})


class PartialReader(Reader):
    """Is assigned all partitions and reads them, but commits only partition 0."""

    def read(self, consumer: Any) -> None:
        """The other partitions never have a committed offset."""
        while not self.wait(COMMIT_EVERY_S):
            self.poll(consumer)
            first = {one: _position(consumer, one) for one in consumer.assignment() if one.partition == 0}
            if first and self.commit(consumer, first):
                self.settled.set()


def _position(consumer: Any, partition: TopicPartition) -> int:
    """The offset of the next record to read."""
    return int(consumer.position(partition, timeout_ms=CLIENT_TIMEOUT_MS))
