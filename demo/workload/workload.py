"""The demo's readers and writers, all real. Each group has its own behaviour.

    checkout-healthy        keeps up, with two members
    billing-slow            reads a third of what is produced, and retention follows close behind it
    search-stopped          reads for a while, then leaves
    ledger-read-committed   waits behind a transaction that stays open
    audit-rewound           goes back to the beginning repeatedly
    archive-truncated       its records are deleted unread
    orders-kip848           keeps up, with the new group protocol
    payments-partial        reads all partitions, but commits only one

How much is written, and when things happen, is in `demo.workload.plan`.
"""

import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka import KafkaAdminClient

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from demo.errors import WorkloadError
from demo.workload import plan
from demo.workload.actors import Actor
from demo.workload.console_reader import ConsoleReader
from demo.workload.readers import PartialReader, RewindingReader, SlowReader, SteadyReader, StoppingReader
from demo.workload.writers import CloseRetention, OpenTransaction, RecordDeleter, SteadyProducer

STOP_TIMEOUT_S = 15.0
LOOK_EVERY_S = 0.1


class Workload:
    """All topics, producers and groups of `demo.workload.plan` on one Kafka, from `start` to `stop`."""

    def __init__(self, kafka: EmbeddedKafka, pace: plan.Pace = plan.DEMO_PACE) -> None:
        self.bootstrap_servers = kafka.bootstrap_servers
        self._actors = _cast(kafka, pace)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Creates the topics and starts everything, without waiting until there is something to see."""
        self._create_topics()
        for actor in self._actors:
            actor.start()

    def stop(self) -> None:
        """Stops everything within 15 s; actors that do not stop by then are in `errors`. A second call does nothing."""
        for actor in self._actors:
            actor.ask_to_stop()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for actor in self._actors:
            actor.join(deadline - time.monotonic())

    def errors(self) -> dict[str, Exception]:
        """The errors so far, by actor; an actor with an error has ended."""
        return {actor.name: actor.error for actor in self._actors if actor.error is not None}

    def check(self) -> None:
        """Raises WorkloadError if there are errors."""
        if errors := self.errors():
            raise WorkloadError("; ".join(f"{name}: {error!r}" for name, error in errors.items()))

    def wait_until_settled(self, timeout_s: float = 90.0) -> None:
        """Waits until every behaviour can be seen in Kafka: with the default pace 30 s, until the first rewind.

        Raises:
            WorkloadError: an actor failed, or some actors were not settled in time.
        """
        deadline = time.monotonic() + timeout_s
        while waiting := [actor.name for actor in self._actors if not actor.settled.is_set()]:
            self.check()
            if time.monotonic() > deadline:
                raise WorkloadError(f"not settled after {timeout_s:g} s: {', '.join(waiting)}")
            time.sleep(LOOK_EVERY_S)

    def _create_topics(self) -> None:
        with KafkaAdminClient(bootstrap_servers=self.bootstrap_servers, client_id="workload") as admin:
            create_topics(admin, {topic.name: topic.partitions for topic in plan.TOPICS})


def _cast(kafka: EmbeddedKafka, pace: plan.Pace) -> list[Actor]:
    """One actor for each behaviour."""
    servers, positions = kafka.bootstrap_servers, positions_folder(kafka.directory)
    positions.mkdir(exist_ok=True)
    archive = StoppingReader(servers, plan.ARCHIVE_TRUNCATED, plan.ARCHIVE, pace.stop_after_s)
    console = ConsoleReader(kafka, plan.ORDERS_KIP848, plan.ORDERS)
    endpoint_file(kafka.directory).write_text(console.endpoint)
    return [
        SteadyProducer(servers, plan.TOPICS),
        OpenTransaction(servers, plan.LEDGER),
        SteadyReader(servers, plan.CHECKOUT_HEALTHY, plan.ORDERS, member=1),
        SteadyReader(servers, plan.CHECKOUT_HEALTHY, plan.ORDERS, member=2),
        SlowReader(servers, plan.BILLING_SLOW, plan.INVOICES, positions=positions),
        StoppingReader(servers, plan.SEARCH_STOPPED, plan.SEARCHES, pace.stop_after_s),
        SteadyReader(servers, plan.LEDGER_READ_COMMITTED, plan.LEDGER, isolation_level="read_committed"),
        RewindingReader(servers, plan.AUDIT_REWOUND, plan.AUDIT, pace.rewind_every_s),
        archive,
        RecordDeleter(servers, plan.ARCHIVE, pace.truncate_every_s, after=archive),
        CloseRetention(servers, plan.INVOICES, plan.BILLING_SLOW, pace.retain_s, pace.truncate_every_s),
        console,
        PartialReader(servers, plan.PAYMENTS_PARTIAL, plan.PAYMENTS, positions=positions),
    ]


def positions_folder(directory: Path) -> Path:
    """Where the workload's kafka-python clients report their positions."""
    return directory / "positions"


def endpoint_file(directory: Path) -> Path:
    """The file with the URL at which the workload's Java client serves its metrics."""
    return directory / "metrics-endpoint"
