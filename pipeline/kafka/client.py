"""The one user of kafka-python's inner API: raw requests to chosen brokers, with limits on every wait.

kafka-python's admin client loses a whole batch at the first error in it, keeps stale coordinators and waits without an
overall limit. Its connection manager has none of this, so requests are sent through that, and errors stay with their
items. `tests/test_kafka_client.py` is the contract that a new kafka-python must pass.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from pipeline.errors import ClusterError
from pipeline.kafka.options import SourceOptions
from pipeline.kafka.probe import first_answering

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Call = tuple[int | None, Any]
"""A broker id (None = any broker) and the request for it."""

_RENAMED = {
    -1: "UNKNOWN_SERVER_ERROR",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    39: "INVALID_REPLICA_ASSIGNMENT",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}
"""Error codes whose name in kafka-python is not the one in Kafka 4.3's `Errors` enum."""

_MOVED_OR_BUSY = {
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "NOT_COORDINATOR",
    "NOT_LEADER_OR_FOLLOWER",
    "OFFSET_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_LEADER_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNSTABLE_OFFSET_COMMIT",
}

_REFUSALS = (
    kafka_errors.IllegalSaslStateError,
    kafka_errors.KafkaConnectionError,
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
)

# At DEBUG, kafka-python logs every request in full: SASL's hold the password.
logging.getLogger("kafka").setLevel(logging.INFO)

CLIENT_ID = "laglake"
MAX_BACKOFF_S = 5.0
RECEIVE_MAX_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True)
class Failure:
    """Why an item could not be read: Kafka's error name. Final where a broker has said that there is no such thing."""

    error: str
    is_final: bool = False

    @property
    def is_retriable(self) -> bool:
        """The item may be answered when asked again, or elsewhere."""
        return self.error in _MOVED_OR_BUSY and not self.is_final


def error_name(code: int) -> str | None:
    """Kafka's name of an error code, None for 0."""
    if code == 0:
        return None
    if code in _RENAMED:
        return _RENAMED[code]
    error = kafka_errors.for_code(code)
    return error.message if error.message != "UNKNOWN" else f"UNKNOWN_ERROR_{code}"


def failure_of(error: BaseException) -> Failure:
    """The failure that stands for an exception of kafka-python."""
    if isinstance(error, kafka_errors.KafkaTimeoutError | kafka_errors.RequestTimedOutError):
        return Failure("REQUEST_TIMED_OUT")
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
        return Failure("UNSUPPORTED_VERSION")
    if isinstance(error, kafka_errors.BrokerResponseError) and error.errno:
        return Failure(error_name(error.errno) or "UNKNOWN_SERVER_ERROR")
    return Failure("NETWORK_EXCEPTION")


class _PatientManager(KafkaConnectionManager):  # type: ignore[misc]
    """Lets requests wait for a broker that throttles us; kafka-python refuses to send them (NodeNotReadyError)."""

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: float | None = None) -> Any:
        """A Future of the answer."""
        node_id = self.least_loaded_node() if node_id is None else node_id
        connection = self._conns.get(node_id)
        if connection is not None and connection.connected and connection.paused:
            timeout_at = connection._timeout_at(timeout_ms=request_timeout_ms)  # noqa: SLF001
            return connection._send_request(request, timeout_at=timeout_at)  # noqa: SLF001 - send_request refuses
        return super().send(request, node_id, request_timeout_ms)

    def least_loaded_node(self) -> Any:
        """A broker that is connected or can be; one that throttles us if there is no other."""
        node_id = super().least_loaded_node()
        if node_id is None:
            node_id = next((b.node_id for b in self.cluster.brokers() if b.node_id in self._conns), None)
        return node_id


class KafkaClient:
    """Connections to one cluster, made for one task and closed with it. Not to be pickled.

    `requests` counts what was sent, by broker id. Raises ClusterError where no bootstrap server answers as Kafka.
    """

    def __init__(self, options: SourceOptions, prefer: Sequence[str] = ()) -> None:
        self.options = options
        self.requests: Counter[int] = Counter()
        self._deadline = time.monotonic() + options.task_timeout_ms / 1000
        servers = list(dict.fromkeys([*prefer, *options.bootstrap_servers]))
        if "proxy_url" not in options.client:  # else only the proxy can tell
            servers = [first_answering(servers, options)]
        configs = {
            "client_id": CLIENT_ID,
            "request_timeout_ms": options.request_timeout_ms,
            "socket_connection_setup_timeout_ms": options.connect_timeout_ms,
            "socket_connection_setup_timeout_max_ms": options.connect_timeout_ms,
            "receive_message_max_bytes": RECEIVE_MAX_BYTES,
            # What is beyond the limit (5) when a connection is made would never be sent.
            "max_in_flight_requests_per_connection": 1_000_000,
            **options.client,
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
        """Close all connections and end the IO thread."""
        self._manager.call_soon(self._manager.close)
        self._net.stop(timeout_ms=1000)
        self._net.close()

    def _bootstrap(self, servers: Sequence[str]) -> None:
        """Connect and learn who the brokers are. Raises ClusterError with the reason why that cannot be."""
        # kafka-python's own bootstrap tries again until its time is up, and then says only that.
        reasons: dict[str, str] = {}
        for attempt in range(max(2, len(servers))):
            number = attempt % len(servers)
            failure = self._manager.run(self._connect, f"bootstrap-{number}")
            if failure is None:
                return
            reasons.setdefault(servers[number], _reason(failure, self.options))
            if not getattr(failure, "retriable", False):
                break
            self._back_off(attempt + 1)
        raise ClusterError("; ".join(f"{server} {reason}" for server, reason in reasons.items()))

    async def _connect(self, node: str) -> Exception | None:
        try:
            await self._manager.get_connection(node, self.options.connect_timeout_ms, refresh_metadata_on_err=False)
            await self._manager.cluster.refresh_metadata(node)
            await self._manager.bootstrap_async(self.options.connect_timeout_ms)
        except Exception as exc:  # noqa: BLE001 - each is a reason why the cluster cannot be used
            return exc
        return None

    def brokers(self) -> dict[int, str]:
        """The live brokers of the cluster: id → host:port as advertised."""
        return {b.node_id: f"{b.host}:{b.port}" for b in self._manager.cluster.brokers()}

    def cluster_id(self) -> str | None:
        """Kafka's id of the cluster, None before 0.10.1."""
        cluster_id: str | None = self._manager.cluster.cluster_id
        return cluster_id

    def version(self, request: Any) -> int | None:
        """Highest version of an API that both sides have, None where the broker lacks it."""
        try:
            version: int = self._manager.broker_version_data.api_version(request)
        except kafka_errors.IncompatibleBrokerVersion:
            return None
        return version

    def exchange(self, calls: Sequence[Call]) -> list[Any]:
        """Send all requests at once, then take all answers, in order; what failed is a Failure instead.

        A broker answers the requests of one connection one after the other, so their order is the order of reading.
        """
        answers: list[Any] = self._manager.run(self._exchange, calls)
        return answers

    def api_versions(self, broker: int) -> dict[int, int] | Failure:
        """What one broker supports: API key → highest version."""
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="0")
        answer = self.ask_each([broker], lambda: request)[broker]
        if isinstance(answer, Failure):
            return answer
        return {api.api_key: api.max_version for api in answer.api_keys}

    async def _exchange(self, calls: Sequence[Call]) -> list[Any]:
        timeout_ms = self._timeout_ms()
        deadline = time.monotonic() + timeout_ms / 1000
        futures = [self._send(broker, request, timeout_ms) for broker, request in calls]
        answers: list[Any] = []
        for future in futures:
            # What waits for a new connection has no time limit of its own.
            remaining_ms = max(0.0, deadline - time.monotonic()) * 1000
            try:
                answers.append(await self._manager.wait_for(future, remaining_ms))
            except Exception as exc:  # noqa: BLE001 - whatever it was, the other answers stay
                answers.append(failure_of(exc))
        return answers

    def _send(self, broker: int | None, request: Any, timeout_ms: float) -> Any:
        node = self._manager.least_loaded_node() if broker is None else broker
        if node is None or timeout_ms <= 0:
            return Future().failure(kafka_errors.KafkaTimeoutError())
        self.requests[node] += 1
        try:
            return self._manager.send(request, node, request_timeout_ms=timeout_ms)
        except kafka_errors.KafkaError as exc:  # an unknown broker id, a failed authentication
            self._manager.cluster.request_update()  # the broker may have joined after us
            return Future().failure(exc)

    def _timeout_ms(self) -> float:
        remaining_ms = (self._deadline - time.monotonic()) * 1000
        return min(float(self.options.request_timeout_ms), remaining_ms)

    def ask_any(self, request: Any) -> Any:
        """Ask any broker, another one where that fails. Returns the answer or the last Failure."""

        def ask(_: int | None, items: Sequence[str]) -> Mapping[str, Any]:
            return dict.fromkeys(items, self.exchange([(None, request)])[0])

        return self.ask_all({"any": None}, ask, dict.fromkeys)["any"]

    def ask_each(self, brokers: Iterable[int], request: Callable[[], Any]) -> dict[int, Any]:
        """Ask every broker the same, again where that fails. Returns its answer or the last Failure for each."""

        def ask(broker: int | None, items: Sequence[int]) -> Mapping[int, Any]:
            answer = self.exchange([(broker, request())])[0]
            if not isinstance(answer, Failure) and answer.error_code:
                answer = Failure(error_name(answer.error_code) or "")
            return dict.fromkeys(items, answer)

        return self.ask_all({b: b for b in brokers}, ask, lambda again: {b: b for b in again})

    def ask_all(
        self,
        items: Mapping[Item, int | Failure | None],
        ask: Callable[[int | None, Sequence[Item]], Mapping[Item, Any]],
        locate: Callable[[Sequence[Item]], Mapping[Item, int | Failure | None]],
    ) -> dict[Item, Any]:
        """Ask for every item at the broker that serves it; where that has moved or is busy, locate and ask again.

        `items` maps an item to its broker, `ask` gives an answer or a Failure for each item of one broker, `locate`
        gives the present broker or a Failure. Rounds are bounded by `retries` and by the task's time. A broker that
        let a request time out is not asked again. Returns an answer or the last Failure for each item.
        """
        answers: dict[Item, Any] = {}
        places: Mapping[Item, int | Failure | None] = items
        for attempt in range(self.options.retries + 1):
            if attempt:
                self._back_off(attempt)
                located = locate(list(places))
                places = {i: p for i, p in located.items() if not self._gave_up(answers[i], places[i], p)}
            answers |= self._ask_round(places, ask)
            places = {i: p for i, p in places.items() if _is_retriable(answers[i])}
            if not places or self._timeout_ms() <= 0:
                break
        return answers

    @staticmethod
    def _gave_up(answer: Failure, before: object, now: object) -> bool:
        return answer.error == "REQUEST_TIMED_OUT" and before == now and before is not None

    def _ask_round(
        self,
        places: Mapping[Item, int | Failure | None],
        ask: Callable[[int | None, Sequence[Item]], Mapping[Item, Any]],
    ) -> dict[Item, Any]:
        answers: dict[Item, Any] = {}
        by_broker: dict[int | None, list[Item]] = {}
        for item, place in places.items():
            if isinstance(place, Failure):
                answers[item] = place
            else:
                by_broker.setdefault(place, []).append(item)
        for broker, its in by_broker.items():
            answers |= ask(broker, its)
        return answers

    def _back_off(self, attempt: int) -> None:
        pause = self.options.retry_backoff_ms / 1000 * 2 ** (attempt - 1)
        time.sleep(max(0.0, min(pause, MAX_BACKOFF_S, self._timeout_ms() / 1000)))

    def metadata(self, topics: Sequence[str] | None) -> Any:
        """MetadataResponse for some topics or all (None), or a Failure."""
        names = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
        return self.ask_any(MetadataRequest(topics=names, allow_auto_topic_creation=False))

    def coordinators(self, groups: Sequence[str]) -> dict[str, int | Failure]:
        """The coordinator of each group (FindCoordinator, KIP-699: one request for all), or a Failure."""
        if (self.version(FindCoordinatorRequest) or 0) < 4:
            found = [self._coordinator(group) for group in groups]
            return dict(zip(groups, found, strict=True))
        answer = self.ask_any(FindCoordinatorRequest(key_type=0, coordinator_keys=list(groups), min_version=4))
        if isinstance(answer, Failure):
            return dict.fromkeys(groups, answer)
        return {c.key: _place(c.error_code, c.node_id) for c in answer.coordinators}

    def _coordinator(self, group: str) -> int | Failure:
        answer = self.ask_any(FindCoordinatorRequest(key=group, key_type=0, max_version=3))
        return answer if isinstance(answer, Failure) else _place(answer.error_code, answer.node_id)


def _place(error_code: int, broker: int) -> int | Failure:
    error = error_name(error_code)
    return Failure(error) if error else broker


def _is_retriable(answer: object) -> bool:
    return isinstance(answer, Failure) and answer.is_retriable


def _reason(error: Exception, options: SourceOptions) -> str:
    """Why a Kafka listener cannot be used, in words. Not the error's own: they may hold a URL with a password."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "shows a TLS certificate that is not trusted: check ssl_cafile, and that it names this host"
    if isinstance(error, _REFUSALS):
        # A broker says why it refuses and hangs up; where both arrive at once, kafka-python sees only the latter.
        if options.client.get("security_protocol", "").startswith("SASL"):
            return "does not authenticate us: check security_protocol and the SASL user, password and mechanism"
        if "proxy_url" in options.client:
            return "cannot be reached through the proxy, or closes the connection: check security_protocol"
        return "closes the connection: check security_protocol"
    if isinstance(error, FileNotFoundError):
        return "cannot be used: a file that an ssl_ option names does not exist"
    return f"answers, but cannot be used: {type(error).__name__}"


def in_chunks(items: Iterable[Item], size: int) -> Iterable[list[Item]]:
    """Lists of at most `size` items."""
    chunk: list[Item] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
