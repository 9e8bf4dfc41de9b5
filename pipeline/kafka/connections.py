"""Connections to the brokers of one cluster. Every wait has a limit.

Only this module and `logins` use kafka-python's connections (`kafka.net`), which are private. Other modules build its
messages and parse them (`kafka.protocol`), which its documentation does not name either.

kafka-python's admin client loses a whole batch at the first error in it, keeps stale coordinators, and waits without an
overall limit. Its connection manager has none of these problems, so requests are sent through it, and an error affects
only its own item. A new version of kafka-python must pass `tests/kafka/test_client.py`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial, wraps
from threading import RLock
from types import TracebackType
from typing import Any, NamedTuple, Self

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.schemas.fields.struct import StructField

from pipeline.common.epoch import utc_now
from pipeline.common.errors import ClusterError, WrongClusterError
from pipeline.kafka.failures import Failure, UnreachableError, failure_of
from pipeline.kafka.logins import kafka_python_options, login_of
from pipeline.kafka.machine import check_machine
from pipeline.kafka.options import SourceOptions
from pipeline.kafka.probe import first_answering, why_not_kafka
from pipeline.kafka.refusals import why_unusable

Call = tuple[int | None, Any]
"""A broker id (None = any broker) and the request for it."""


def _limit_log() -> None:
    """At DEBUG, kafka-python logs every request in full; those of SASL contain the password. A job may hear less."""
    kafka_log = logging.getLogger("kafka")
    kafka_log.setLevel(max(kafka_log.level, logging.INFO))


def _one_at_a_time(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A method of kafka-python that makes a decoder when it is first needed, for several clients in threads."""
    lock = RLock()

    @wraps(compiled)
    def locked(*args: Any, **options: Any) -> Any:
        with lock:
            return compiled(*args, **options)

    return locked


# It changes the struct while it makes a decoder. Two threads at once could keep a broken one until the process ends.
StructField.compiled_decode_from = _one_at_a_time(StructField.compiled_decode_from)

CLIENT_ID = "laglake"
MAX_BACKOFF_S = 5.0
MOST_TIMEOUTS = 2
"""After this many exchanges without an answer, a broker is not asked any more."""
TIMED_OUT = Failure("REQUEST_TIMED_OUT")
OF_ANOTHER_CLUSTER = Failure("INCONSISTENT_CLUSTER_ID")
RECEIVE_MAX_BYTES = 512 * 1024 * 1024


class Reply(NamedTuple):
    """A broker's answer or a Failure, and when it arrived."""

    answer: Any
    arrived_at: datetime


class _PatientManager(KafkaConnectionManager):  # type: ignore[misc]
    """Lets requests wait while a broker throttles us; kafka-python would refuse to send them (NodeNotReadyError).

    Each connection finds out what its own broker supports, because brokers differ during a rolling upgrade.
    """

    def __init__(self, net: Any, **configs: Any) -> None:
        super().__init__(net, **configs)
        self.broker_version_data: Any
        self.unreachable: dict[int, Failure] = {}

    def get_connection(self, node_id: Any, *args: Any, **options: Any) -> Any:
        """The connection to a broker, new if there is none."""
        configured = self.config["api_version"] is not None
        of_bootstrap, self.broker_version_data = self.broker_version_data, None
        try:
            if configured:
                self.broker_version_data = of_bootstrap
            return super().get_connection(node_id, *args, **options)
        finally:
            self.broker_version_data = of_bootstrap

    def versions_of(self, node_id: Any) -> Any:
        """What a broker supports, by its connection; if there is none, what the bootstrap server supports."""
        connection = self._conns.get(node_id)
        own = connection.broker_version_data if connection is not None else None
        return own or self.broker_version_data

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: float | None = None) -> Any:
        """A Future of the answer."""
        node_id = self.least_loaded_node() if node_id is None else node_id
        connection = self._conns.get(node_id)
        # A request between the two steps of logging in again would end the connection: kafka-python keeps it back.
        is_logging_in = connection is not None and connection._reauth.is_reauthenticating  # noqa: SLF001
        if connection is not None and connection.connected and connection.paused and not is_logging_in:
            timeout_at = connection._timeout_at(timeout_ms=request_timeout_ms)  # noqa: SLF001
            return connection._send_request(request, timeout_at=timeout_at)  # noqa: SLF001 - send_request refuses
        return super().send(request, node_id, request_timeout_ms)

    def least_loaded_node(self) -> Any:
        """A broker that is connected or can be connected; one that throttles us only if there is no other."""
        node_id = super().least_loaded_node()
        if node_id in self.unreachable:
            node_id = next((b.node_id for b in self.cluster.brokers() if b.node_id not in self.unreachable), None)
        if node_id is None:
            node_id = next((b.node_id for b in self.cluster.brokers() if b.node_id in self._conns), None)
        return node_id


class Connections:
    """Connections to one cluster, made for one task and closed with it. They must not be pickled.

    `requests` counts the requests sent, by broker id. Raises ClusterError if this machine lacks a file or package, or
    if no bootstrap server answers as Kafka.
    """

    def __init__(self, options: SourceOptions, prefer: Sequence[str] = ()) -> None:
        check_machine(options)
        _limit_log()
        self.options = options
        self.requests: Counter[int] = Counter()
        self._timeouts: Counter[int] = Counter()
        self._cluster_id = options.cluster_id
        self._checked: dict[int, Any] = {}
        self._refusals: dict[int, Exception] = {}
        self._deadline = time.monotonic() + options.task_timeout_ms / 1000
        servers = list(dict.fromkeys([*prefer, *options.bootstrap_servers]))
        if "proxy_url" not in options.client:  # with a proxy, only the proxy can reach them
            servers = [first_answering(servers, options)]
        self._login = login_of(options)
        self._login.renew()
        configs = {
            "client_id": CLIENT_ID,
            "request_timeout_ms": options.request_timeout_ms,
            "socket_connection_setup_timeout_ms": options.connect_timeout_ms,
            "socket_connection_setup_timeout_max_ms": options.connect_timeout_ms,
            "receive_message_max_bytes": RECEIVE_MAX_BYTES,
            # Requests beyond the default limit (5) at the time of connecting would never be sent.
            "max_in_flight_requests_per_connection": 1_000_000,
            **kafka_python_options(options, self._login),
            "bootstrap_servers": servers,
        }
        self._net = NetworkSelector(client_id=configs["client_id"])
        self._manager = _PatientManager(self._net, **configs)
        self._net.start()
        try:
            self._bootstrap(servers)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections and ends the IO thread."""
        self._manager.call_soon(self._manager.close)
        self._net.stop(timeout_ms=1000)
        with suppress(RuntimeError):  # the IO thread is still busy, for example with the answers to other clients
            self._net.close()

    def _bootstrap(self, servers: Sequence[str]) -> None:
        """Connects and gets the list of brokers. Raises ClusterError with the reason if this fails."""
        # kafka-python's own bootstrap retries until its time is up, and then reports only the timeout.
        # Its node ids for the servers are in random order.
        nodes = {address(b.host, b.port): b.node_id for b in self._manager.cluster.bootstrap_brokers()}
        names = sorted(nodes, key=lambda name: servers.index(name) if name in servers else len(servers))
        failures: dict[str, Exception] = {}
        for attempt in range(max(2, len(names))):
            name = names[attempt % len(names)]
            failure = self._manager.run(self._connect, nodes[name])
            if failure is None:
                self._check_cluster(name)
                return
            failures.setdefault(name, failure)
            # A broker that rejects a login also closes the connection, and kafka-python may see only that.
            is_rejection = isinstance(
                failure, kafka_errors.SaslAuthenticationFailedError | kafka_errors.KafkaConnectionError
            )
            if is_rejection and self._login.forget():
                self._login.renew()
            elif not getattr(failure, "retriable", False):
                break
            self.back_off(attempt + 1)
        reasons = (f"{server} {why_unusable(failure, server, self.options)}" for server, failure in failures.items())
        raise ClusterError("; ".join(reasons))

    def _check_cluster(self, server: str) -> None:
        """Checks the cluster's id, as an address may lead elsewhere: a moved name, or `localhost` on another host."""
        wanted, found = self.options.cluster_id, self.cluster_id()
        if wanted and found and wanted != found:
            raise WrongClusterError(f"{server} belongs to cluster {found}, not to {wanted}")
        self._cluster_id = wanted or found

    async def _connect(self, node: str) -> Exception | None:
        try:
            await self._manager.get_connection(node, self.options.connect_timeout_ms, refresh_metadata_on_err=False)
            cluster = self._manager.cluster
            await cluster.refresh_metadata(node)
            # kafka-python chooses servers at random, and may choose those that are down until its time is up.
            servers = cluster._bootstrap_brokers  # noqa: SLF001
            cluster._bootstrap_brokers = {node: servers[node]}  # noqa: SLF001
            try:
                await self._manager.bootstrap_async(self.options.connect_timeout_ms)
            finally:
                cluster._bootstrap_brokers = servers  # noqa: SLF001
        except Exception as exc:  # noqa: BLE001 - each is a reason why the cluster cannot be used
            return exc
        return None

    def brokers(self) -> dict[int, str]:
        """The live brokers of the cluster: id → host:port as advertised."""
        return {b.node_id: address(b.host, b.port) for b in self._manager.cluster.brokers()}

    def unreachable(self) -> dict[int, str]:
        """The brokers that are not asked any more, and why: they cannot be reached, or belong to another cluster."""
        return {broker: failure.error for broker, failure in self._manager.unreachable.items()}

    def cluster_id(self) -> str | None:
        """Kafka's id of the cluster; None before 0.10.1."""
        cluster_id: str | None = self._manager.cluster.cluster_id
        return cluster_id

    def why_unreachable(self, broker: int) -> str | None:
        """Why a broker that answers has refused the connection, in words; None if it does not answer, or not known."""
        error, server = self._refusals.get(broker), self.brokers().get(broker)
        if error is None or server is None or "proxy_url" in self.options.client:
            return None
        if why := why_not_kafka(server, self.options):
            return None if why.startswith("cannot be reached") else why
        return why_unusable(error, server, self.options)

    def give_up(self, brokers: Mapping[int, str]) -> None:
        """Excludes these brokers, because another client of this snapshot found them `unreachable`."""
        is_other = OF_ANOTHER_CLUSTER.error
        self._manager.unreachable.update(
            {broker: OF_ANOTHER_CLUSTER if error == is_other else TIMED_OUT for broker, error in brokers.items()}
        )

    def version(self, request: Any, broker: int | None = None) -> int | None:
        """The highest version of an API that both sides have; None if the broker lacks it.

        For a broker that is not connected, or if no broker is given, it is the bootstrap server's version.
        """
        try:
            version: int = self._manager.versions_of(broker).api_version(request)
        except kafka_errors.IncompatibleBrokerVersion:
            return None
        return version

    def supported(self, broker: int | None) -> dict[int, int] | None:
        """The APIs of a broker: key → highest version; None if they are not known, or `api_version` is configured."""
        versions = self._manager.versions_of(broker)
        return (
            None
            if versions is None or "api_version" in self.options.client
            else {key: highest for key, (_, highest) in versions.api_versions.items()}
        )

    def exchange(self, calls: Sequence[Call]) -> list[Any]:
        """Sends all requests at once, then returns all answers in the same order, with a Failure for what failed.

        A broker answers the requests of a connection one after the other, so it reads in the order of the requests.
        """
        return [reply.answer for reply in self.replies(calls)]

    def replies(self, calls: Sequence[Call]) -> list[Reply]:
        """The same, each with the time at which it arrived."""
        self._renew_login()
        replies: list[Reply] = self._manager.run(self._exchange, calls)
        return replies

    def connect(self, brokers: Iterable[int | None]) -> None:
        """Connects to all of the brokers at once. A broker that does not connect in time is not tried again."""
        self._renew_login()
        self._manager.run(self._connect_all, [b for b in dict.fromkeys(brokers) if b is not None])

    def _renew_login(self) -> None:
        with suppress(ClusterError):  # the next login reports it, and connections that are open can still be used
            self._login.renew()

    def connect_any(self) -> None:
        """Connects to a broker that answers, so that a request to any broker does not wait for one that is down."""
        for _ in self.brokers():
            broker = self._manager.least_loaded_node()
            self.connect([broker])
            if broker not in self._manager.unreachable:
                return

    async def _connect_all(self, brokers: Sequence[int]) -> None:
        deadline = time.monotonic() + min(self.options.connect_timeout_ms, max(0.0, self.timeout_ms())) / 1000
        for broker in brokers:
            if broker not in self._manager.unreachable:
                with suppress(kafka_errors.KafkaError):  # the request will report it
                    self._manager.get_connection(broker)
        for broker in brokers:
            connection = self._manager._conns.get(broker)  # noqa: SLF001
            if connection is None or connection.connected or broker in self._manager.unreachable:
                continue
            remaining_ms = max(0.0, deadline - time.monotonic()) * 1000
            try:
                await self._manager.wait_for(connection.init_future, remaining_ms)
            except Exception as exc:  # noqa: BLE001 - the broker cannot be asked, the others can
                self._refusals[broker] = exc
                if time.monotonic() >= deadline:
                    self._manager.unreachable[broker] = failure_of(exc)
        if self._cluster_id:
            await self._check_brokers(brokers)

    async def _check_brokers(self, brokers: Sequence[int]) -> None:
        """Excludes brokers of another cluster: their advertised addresses lead elsewhere from this machine.

        Each connection is checked once; a new connection is checked before it is used. A broker that lets even this
        small request time out is excluded as well, because it would keep the next request waiting, too.
        """
        open_now = {b: c for b in brokers if (c := self._manager._conns.get(b)) is not None and c.connected}  # noqa: SLF001
        unknown = [b for b, connection in open_now.items() if self._checked.get(b) is not connection]
        # The smallest request whose answer has the cluster's id: metadata without topics.
        replies = await self._exchange([(b, MetadataRequest(topics=[])) for b in unknown])
        for broker, (answer, _) in zip(unknown, replies, strict=True):
            if isinstance(answer, Failure):
                if answer == TIMED_OUT:
                    self._manager.unreachable[broker] = answer
                continue
            self._checked[broker] = open_now[broker]
            if answer.cluster_id not in (None, self._cluster_id):
                self._manager.unreachable[broker] = OF_ANOTHER_CLUSTER

    async def _exchange(self, calls: Sequence[Call]) -> list[Reply]:
        timeout_ms = self.timeout_ms()
        deadline = time.monotonic() + timeout_ms / 1000
        arrivals: list[datetime | None] = [None] * len(calls)
        futures = [self._send(broker, request, timeout_ms) for broker, request in calls]
        for number, future in enumerate(futures):
            future.add_callback(partial(_note_arrival, arrivals, number))
        replies: list[Reply] = []
        timed_out: set[int | None] = set()
        for number, future in enumerate(futures):
            # A request that waits for a new connection has no time limit of its own.
            remaining_ms = max(0.0, deadline - time.monotonic()) * 1000
            try:
                answer = await self._manager.wait_for(future, remaining_ms)
            except Exception as exc:  # noqa: BLE001 - whatever it was, the other answers stay
                answer = failure_of(exc)
                timed_out.update([calls[number][0]] if answer == TIMED_OUT else ())
            replies.append(Reply(answer, arrivals[number] or utc_now()))
        self._remember(timed_out)
        return replies

    def _remember(self, timed_out: Iterable[int | None]) -> None:
        """Excludes brokers that have timed out several times, because the others have to wait for them."""
        self._timeouts.update(b for b in timed_out if b is not None)
        slow = (b for b, times in self._timeouts.items() if times >= MOST_TIMEOUTS)
        self._manager.unreachable.update({b: TIMED_OUT for b in slow if b not in self._manager.unreachable})

    def _send(self, broker: int | None, request: Any, timeout_ms: float) -> Any:
        node = self._manager.least_loaded_node() if broker is None else broker
        if node is None or timeout_ms <= 0:
            return Future().failure(kafka_errors.KafkaTimeoutError())
        if node in self._manager.unreachable:
            return Future().failure(UnreachableError(self._manager.unreachable[node]))
        self.requests[node] += 1
        try:
            return self._manager.send(request, node, request_timeout_ms=timeout_ms)
        except kafka_errors.KafkaError as exc:  # an unknown broker id, a failed authentication
            self._manager.cluster.request_update()  # the broker may have joined after us
            return Future().failure(exc)

    def timeout_ms(self) -> float:
        """How long a request may take now; 0 or less if the task's time is up."""
        remaining_ms = (self._deadline - time.monotonic()) * 1000
        return min(float(self.options.request_timeout_ms), remaining_ms)

    def back_off(self, attempt: int) -> None:
        """Waits before the next attempt; each wait is twice as long as the one before."""
        pause = self.options.retry_backoff_ms / 1000 * 2 ** (attempt - 1)
        time.sleep(max(0.0, min(pause, MAX_BACKOFF_S, self.timeout_ms() / 1000)))


def _note_arrival(arrivals: list[datetime | None], number: int, _: Any) -> None:
    arrivals[number] = utc_now()


def address(host: str, port: int) -> str:
    """host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
