"""The workload's consumer groups, each with one habit of the kind people ask about."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import CommitFailedError, RebalanceInProgressError

from pipeline.local.actors import Actor
from pipeline.local.plan import TopicPlan

POLL_TIMEOUT_MS = 200
COMMIT_EVERY_S = 0.5
# Without it a client waits for ever once the broker is gone.
CLIENT_TIMEOUT_MS = 5_000
METADATA_MAX_AGE_MS = 2_000


class Reader(Actor):
    """One member of a consumer group that reads one topic; subclasses differ in what they do with it."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: TopicPlan, member: int = 1) -> None:
        super().__init__(f"{group_id}-{member}", bootstrap_servers)
        self.group_id = group_id
        self.topic = topic

    @contextmanager
    def consumer(self, **options: Any) -> Iterator[Any]:
        """A consumer that is subscribed to the topic, from its beginning, and commits only when told to."""
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | options
        # kafka-python forgets that it needs metadata if it asks while an answer is under way, is then assigned
        # nothing, and asks again only when the metadata is this old (default: 5 minutes).
        settings["metadata_max_age_ms"] = METADATA_MAX_AGE_MS
        consumer = KafkaConsumer(
            self.topic.name,
            bootstrap_servers=self.bootstrap_servers,
            group_id=self.group_id,
            client_id=self.name,
            **settings,
        )
        try:
            yield consumer
        finally:
            consumer.close(autocommit=False, timeout_ms=CLIENT_TIMEOUT_MS)

    def poll(self, consumer: Any, max_records: int | None = None) -> int:
        """Read what is there; return how many records that were."""
        batches = consumer.poll(timeout_ms=POLL_TIMEOUT_MS, max_records=max_records)
        return sum(len(records) for records in batches.values())

    def commit(self, consumer: Any, offsets: Mapping[TopicPartition, int] | None = None) -> bool:
        """Commit `offsets`, by default every position; return whether that was possible."""
        given = offsets and {partition: OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}
        try:
            consumer.commit(given, timeout_ms=CLIENT_TIMEOUT_MS)
        except (CommitFailedError, RebalanceInProgressError):
            return False  # a rebalance is a consumer's daily life: the next commit will do
        return True


class SteadyReader(Reader):
    """Reads everything as it comes and commits twice a second; `options` are the consumer's (isolation_level …)."""

    def __init__(
        self, bootstrap_servers: str, group_id: str, topic: TopicPlan, member: int = 1, **options: Any
    ) -> None:
        super().__init__(bootstrap_servers, group_id, topic, member)
        self._options = options

    def act(self) -> None:
        """Until asked to stop."""
        with self.consumer(**self._options) as consumer:
            committed = time.monotonic()
            while not self.is_stopping:
                self.poll(consumer)
                if time.monotonic() - committed >= COMMIT_EVERY_S and consumer.assignment():
                    if self.commit(consumer):
                        self.settled.set()
                    committed = time.monotonic()


class SlowReader(Reader):
    """Works on each record for so long that it falls behind its producer: a third of its rate."""

    def act(self) -> None:
        """Read a few, work on them, commit; what was fetched beyond them waits in the client."""
        with self.consumer() as consumer:
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

    def act(self) -> None:
        """Settled once it has left."""
        if self._read_for_a_while():
            self.settled.set()

    def _read_for_a_while(self) -> bool:
        """Whether there is a commit to leave behind; reads longer than it should if nothing came so far."""
        with self.consumer() as consumer:
            read = 0
            deadline = time.monotonic() + self._stop_after_s
            while not self.is_stopping and (read == 0 or time.monotonic() < deadline):
                read += self.poll(consumer)
            return read > 0 and self.commit(consumer)


class RewindingReader(Reader):
    """Goes back to its logs' beginning now and then, commits that, and reads on a little faster than the producer."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: TopicPlan, rewind_every_s: float) -> None:
        super().__init__(bootstrap_servers, group_id, topic)
        self._rewind_every_s = rewind_every_s

    def act(self) -> None:
        """Settled once it has rewound; catching up takes as long as it had read, so every snapshot can see it."""
        with self.consumer() as consumer:
            while not self.is_stopping:
                self._read(consumer, time.monotonic() + self._rewind_every_s)
                if not self.is_stopping and self._rewind(consumer):
                    self.settled.set()

    def _read(self, consumer: Any, deadline: float) -> None:
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
    """Is assigned every partition and reads them all, but commits only partition 0."""

    def act(self) -> None:
        """The others have no committed offset, ever."""
        with self.consumer() as consumer:
            while not self.wait(COMMIT_EVERY_S):
                self.poll(consumer)
                first = {one: _position(consumer, one) for one in consumer.assignment() if one.partition == 0}
                if first and self.commit(consumer, first):
                    self.settled.set()


def _position(consumer: Any, partition: TopicPartition) -> int:
    """The offset of the next record to read."""
    return int(consumer.position(partition, timeout_ms=CLIENT_TIMEOUT_MS))
