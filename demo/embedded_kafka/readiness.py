"""Waits until a broker answers. Each wait has a deadline, and ends early if the broker's process ends."""

import logging
import socket
import time
from collections.abc import Callable, Collection
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from demo.embedded_kafka.nodes import HOST
from demo.errors import BrokerError

POLL_S = 0.05
ATTEMPT_TIMEOUT_MS = 5_000
# With this many group names, it is nearly certain that all partitions of a small __consumer_offsets are included.
PROBE_GROUPS = [f"laglake-readiness-{number}" for number in range(60)]


def wait_until(description: str, is_true: Callable[[], bool], deadline: float) -> None:
    """Polls until `is_true` returns true. It may raise an exception to give up early.

    Raises:
        BrokerError: it is not true by `deadline` (as of time.monotonic()).
    """
    while not is_true():
        if time.monotonic() > deadline:
            raise BrokerError(f"gave up waiting for {description}")
        time.sleep(POLL_S)


def is_listening(port: int) -> bool:
    """Whether something accepts connections on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def wait_for_brokers(bootstrap_servers: str, broker_ids: Collection[int], deadline: float) -> None:
    """Waits until the cluster lists all of these brokers as alive (registered and not fenced)."""

    def registered(admin: Any) -> bool:
        brokers = admin.describe_cluster()["brokers"]
        alive = {broker["broker_id"] for broker in brokers if not broker.get("is_fenced", False)}
        return alive >= set(broker_ids)

    _wait_with_admin(f"brokers {sorted(broker_ids)} to register", bootstrap_servers, registered, deadline)


def wait_for_coordinators(bootstrap_servers: str, deadline: float) -> None:
    """Waits until every partition of __consumer_offsets, which the first request creates, has a coordinator."""

    def answered(admin: Any) -> bool:
        admin.list_group_offsets(PROBE_GROUPS)
        return True

    _wait_with_admin("the group coordinators", bootstrap_servers, answered, deadline)


def _wait_with_admin(description: str, bootstrap_servers: str, answer: Callable[[Any], bool], deadline: float) -> None:
    """Asks with a new client each time, because a client that has met a starting broker waits longer and longer."""

    def attempt() -> bool:
        try:
            with KafkaAdminClient(
                bootstrap_servers=bootstrap_servers,
                client_id="laglake-readiness",
                bootstrap_timeout_ms=ATTEMPT_TIMEOUT_MS,
                request_timeout_ms=ATTEMPT_TIMEOUT_MS,
            ) as admin:
                return answer(admin)
        except KafkaError as error:
            logging.getLogger(__name__).debug("%s: %s", description, error)
            return False

    wait_until(description, attempt, deadline)
