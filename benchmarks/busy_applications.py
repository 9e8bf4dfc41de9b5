"""The applications of a busy cluster, each in its own process, and the journals in which they record what they do.

    python -m benchmarks.busy_applications ROLE LOAD SERVERS JOURNAL

ROLE is a name in ROLES, LOAD is a `Load` as JSON. An application ends when its standard input is closed, so none
outlives the process that started it. A line of JOURNAL is `kind,partition,seconds since 1970,offset`; `busy_truth`
reads it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

TICK_S = 0.02
LINGER_MS = 200
"""So that batches have several records: with a batch for every record, three brokers on two cores do nothing else."""
COMMIT_EVERY_S = 0.2
TRANSACTION_TICK_S = 0.2
END_TIMEOUT_S = 15.0
_stopping = threading.Event()
PRODUCED, WRITTEN, READ, COMMITTING, COMMITTED, OPENED, CLOSING = (
    "produced",
    "written",
    "read",
    "committing",
    "committed",
    "opened",
    "closing",
)
"""The kinds of lines in a journal, each about a partition.

    produced    records are about to be sent: the log ends at this offset, or before it
    written     the leader has acknowledged records: its log ends at this offset, or after it
    read        records were received: the high watermark is this offset, or after it
    committing  this offset is about to be committed
    committed   the coordinator has acknowledged it
    opened      the first record of a transaction has this offset, and all replicas have it
    closing     the transaction whose first record has this offset is about to be ended
"""


@dataclass(frozen=True)
class Load:
    """What the applications do. Every group is named after its role and its topic."""

    orders: str = "orders"
    """The topic without transactions: records_per_s in total, acks=1."""
    ledger: str = "ledger"
    """The topic with one transaction after another, each open for `open_s`."""
    partitions: int = 12
    ledger_partitions: int = 3
    records_per_s: int = 2_000
    record_bytes: int = 200
    behind_s: float = 10.0
    """How old a record is before the late reader reads it."""
    open_s: float = 30.0

    @property
    def topics(self) -> dict[str, int]:
        """Each topic's partitions."""
        return {self.orders: self.partitions, self.ledger: self.ledger_partitions}

    @property
    def groups(self) -> dict[str, str]:
        """Reader → its group."""
        return {
            "prompt": f"prompt-{self.orders}",
            "late": f"late-{self.orders}",
            "read-committed": f"read-committed-{self.ledger}",
        }

    @property
    def partition_records_per_s(self) -> float:
        """The records per second that are written to each partition of `orders`."""
        return self.records_per_s / self.partitions


class Journal:
    """The journal that one application writes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def write(self, kind: str, at: float, offsets: Iterable[tuple[int, int]]) -> None:
        """Writes lines for (partition, offset) as of that instant."""
        self._file.writelines(f"{kind},{one},{at:.6f},{offset}\n" for one, offset in offsets)
        self._file.flush()


def is_stopping() -> bool:
    """Whether standard input was closed."""
    return _stopping.is_set()


def _wait_for_end() -> None:
    """Ends this process when it is asked to stop, even if a client waits for ever because there are no brokers."""
    sys.stdin.read()
    _stopping.set()
    time.sleep(END_TIMEOUT_S)
    os._exit(1)


class Writer:
    """A producer that knows the offset of every record before it is sent, because no one else writes to its topic."""

    def __init__(self, servers: str, topic: str, partitions: int, journal: Journal, **options: Any) -> None:
        self.producer = Producer({"bootstrap.servers": servers, "linger.ms": LINGER_MS, **options})
        self.ends = [0] * partitions
        self.written = [0] * partitions
        self._topic = topic
        self._journal = journal

    def send(self, counts: Mapping[int, int], value: bytes) -> None:
        """Sends some records to each partition; all have the timestamp of the journal's line."""
        at = round(time.time(), 6)  # rounded as in the journal, so that both give the same millisecond
        self._journal.write(PRODUCED, at, ((one, self.ends[one] + count) for one, count in counts.items()))
        for one, count in counts.items():
            for offset in range(self.ends[one], self.ends[one] + count):
                delivered = partial(self._delivered, offset)
                self.producer.produce(
                    self._topic, value, partition=one, timestamp=int(at * 1000), on_delivery=delivered
                )
            self.ends[one] += count

    def wait_for_answers(self, timeout_s: float) -> None:
        """Waits for the acknowledgements and writes them into the journal."""
        before = list(self.written)
        self.producer.poll(timeout_s)
        at = time.time()
        changed = [(one, end) for one, end in enumerate(self.written) if end != before[one]]
        self._journal.write(WRITTEN, at, changed)

    def _delivered(self, expected: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        partition = message.partition()
        if partition is None or message.offset() != expected:
            raise RuntimeError(f"a record of {self._topic} has offset {message.offset()} instead of {expected}")
        self.written[partition] = expected + 1


def produce(load: Load, servers: str, journal: Journal) -> None:
    """Writes to all partitions in turn, always all that is due since the start, so that late ticks are made up for."""
    # Without retries, which could write a record twice, or before an earlier one.
    writer = Writer(servers, load.orders, load.partitions, journal, acks=1, retries=0)
    started, sent = time.monotonic(), 0
    while not is_stopping():
        due = int((time.monotonic() - started) * load.records_per_s)
        writer.send(Counter(number % load.partitions for number in range(sent, due)), b"x" * load.record_bytes)
        sent = due
        time.sleep(TICK_S)
        writer.wait_for_answers(0)


def transact(load: Load, servers: str, journal: Journal) -> None:
    """Writes a few records per second to each partition, in transactions that are open for a long time."""
    options = {"transactional.id": f"{load.ledger}-writer", "transaction.timeout.ms": 600_000}
    writer = Writer(servers, load.ledger, load.ledger_partitions, journal, **options)
    partitions = range(load.ledger_partitions)
    writer.producer.init_transactions()
    while not is_stopping():
        firsts = [(one, writer.ends[one]) for one in partitions]
        writer.producer.begin_transaction()
        _write_for(load, writer, journal, firsts)
        journal.write(CLOSING, time.time(), firsts)
        for one in partitions:
            writer.ends[one] += 1  # the marker that ends the transaction takes an offset, too
        journal.write(PRODUCED, time.time(), enumerate(writer.ends))
        writer.producer.commit_transaction()


def _write_for(load: Load, writer: Writer, journal: Journal, firsts: list[tuple[int, int]]) -> None:
    """Writes until it is time to end the transaction. It counts as open when each partition has its first record."""
    deadline, is_open = time.monotonic() + load.open_s, False
    while time.monotonic() < deadline and not is_stopping():
        writer.send(dict.fromkeys(range(load.ledger_partitions), 1), b"x" * load.record_bytes)
        time.sleep(TRANSACTION_TICK_S)
        writer.wait_for_answers(0)
        if not is_open and all(writer.written[one] > first for one, first in firsts):
            journal.write(OPENED, time.time(), firsts)
            is_open = True


def follow(role: str, behind_s: float, load: Load, servers: str, journal: Journal) -> None:
    """Reads the role's topic, and commits, every 200 ms, all records that are at least `behind_s` old."""
    topic = load.ledger if role == "read-committed" else load.orders
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": load.groups[role],
            "isolation.level": "read_committed" if role == "read-committed" else "read_uncommitted",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "fetch.min.bytes": 2_000,
        }
    )
    partitions = range(load.topics[topic])
    consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
    unread: list[deque[tuple[int, int]]] = [deque() for _ in partitions]
    next_commit = time.monotonic()
    while not is_stopping():
        _receive(consumer, unread, journal)
        if time.monotonic() >= next_commit:
            next_commit += COMMIT_EVERY_S
            _commit(consumer, topic, _old_enough(unread, behind_s), journal)


def _receive(consumer: Any, unread: list[deque[tuple[int, int]]], journal: Journal) -> None:
    messages = consumer.consume(1_000, timeout=0.02)
    at = time.time()
    ends: dict[int, int] = {}
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
        ends[message.partition()] = message.offset() + 1
        unread[message.partition()].append((message.offset() + 1, message.timestamp()[1]))
    journal.write(READ, at, ends.items())


def _old_enough(unread: list[deque[tuple[int, int]]], behind_s: float) -> dict[int, int]:
    """Removes the records that are old enough; returns partition → the next offset."""
    until_ms = (time.time() - behind_s) * 1000
    positions = {}
    for one, records in enumerate(unread):
        while records and records[0][1] <= until_ms:
            positions[one] = records.popleft()[0]
    return positions


def _commit(consumer: Any, topic: str, positions: dict[int, int], journal: Journal) -> None:
    if not positions:
        return
    journal.write(COMMITTING, time.time(), positions.items())
    answers = consumer.commit(
        offsets=[TopicPartition(topic, *position) for position in positions.items()], asynchronous=False
    )
    for answer in answers:
        if answer.error:
            raise KafkaException(answer.error)
    journal.write(COMMITTED, time.time(), positions.items())


ROLES: dict[str, Callable[[Load, str, Journal], None]] = {
    "producer": produce,
    "transactions": transact,
    "prompt": partial(follow, "prompt", 0.0),
    "late": lambda load, servers, journal: follow("late", load.behind_s, load, servers, journal),
    "read-committed": partial(follow, "read-committed", 0.0),
}


class Applications:
    """Runs all applications in a `with` block. Their journals are `<role>.csv` in `folder`. The topics must exist."""

    def __init__(self, load: Load, servers: str, folder: Path) -> None:
        self.load = load
        self.folder = folder
        self._servers = servers

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        for role in ROLES:
            (self.folder / f"{role}.csv").unlink(missing_ok=True)
        self._processes = {role: self._start(role) for role in ROLES}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
        deadline = time.monotonic() + END_TIMEOUT_S
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.wait()

    def wait_until_settled(self, timeout_s: float = 120.0) -> None:
        """Waits until every reader has committed in every partition, and a transaction is open."""
        wanted = {
            "prompt": (COMMITTED, self.load.partitions),
            "late": (COMMITTED, self.load.partitions),
            "transactions": (OPENED, self.load.ledger_partitions),
            "read-committed": (COMMITTED, self.load.ledger_partitions),
        }
        deadline = time.monotonic() + timeout_s
        while any(_seen(self.folder / f"{role}.csv", kind) < count for role, (kind, count) in wanted.items()):
            self.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the applications have not settled after {timeout_s:g} s")
            time.sleep(0.2)

    def check(self) -> None:
        """Raises RuntimeError, with the end of its output, if an application has ended."""
        for role, process in self._processes.items():
            if process.poll() is not None:
                words = (self.folder / f"{role}.log").read_text()[-1000:]
                raise RuntimeError(f"application {role} has ended with {process.returncode}: {words}")

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", __name__, role, json.dumps(asdict(self.load)), self._servers]
        with (self.folder / f"{role}.log").open("wb") as log:
            return subprocess.Popen(
                [*words, str(self.folder / f"{role}.csv")],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def _seen(journal: Path, kind: str) -> int:
    """For how many partitions a journal has a line of this kind."""
    if not journal.exists():
        return 0
    with journal.open() as lines:
        return len({line.split(",")[1] for line in lines if line.startswith(f"{kind},")})


if __name__ == "__main__":
    threading.Thread(target=_wait_for_end, daemon=True).start()
    _, role, load, servers, path = sys.argv
    ROLES[role](Load(**json.loads(load)), servers, Journal(Path(path)))
