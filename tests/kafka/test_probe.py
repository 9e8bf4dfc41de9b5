"""What listens at an address: each answer in time, and a different one for everything that is not the right one."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread, Timer

import pytest
from kafka import KafkaAdminClient
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.common.errors import ClusterError
from pipeline.kafka.brokers import BrokersSource
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.committed_offsets import CommittedOffsetsSource
from pipeline.kafka.group_members import GroupMembersSource
from pipeline.kafka.probe import Listener, find_listener, first_answering, speaks_http, why_not_kafka
from pipeline.kafka.watermarks import WatermarksSource
from tests.helpers.kafka import frozen, login, parsed, plan, read, wait_for
from tests.helpers.network import HOST, certificate, free_port, listener

LIMIT_S = 5.0 + 1.0
"""The default of `connect_timeout`, and the time until a busy machine notices that it has passed."""
HURRY = {"connect_timeout_ms": "1200"}
SILENT = "accepts the connection but stays silent: not a Kafka listener, or"
SOURCES = (BrokersSource, CommittedOffsetsSource, GroupMembersSource, WatermarksSource)


@pytest.fixture
def http() -> Iterator[str]:
    """A web server without pages."""
    with HTTPServer((HOST, 0), BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"{HOST}:{server.server_port}"
        server.shutdown()


@pytest.fixture
def full() -> Iterator[str]:
    """A listener whose queue is full: a connection gets no answer, as behind a firewall that drops packets."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind((HOST, 0))
        server.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"{HOST}:{server.getsockname()[1]}"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A fresh broker, without any group, whose `sasl_bootstrap_servers` speak TLS instead."""
    folder = tmp_path_factory.mktemp("tls")
    properties = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate(folder)),
    }
    with EmbeddedKafka(folder, properties=properties) as kafka:
        yield kafka


def trickle(connection: socket.socket) -> None:
    """Sends a byte per second, for longer than a client should wait."""
    for _ in range(10):
        connection.sendall(b"\0")
        time.sleep(1)


def why(server: str, **options: str) -> str | None:
    """The result of the probe with the default limits, which it must keep."""
    started = time.monotonic()
    reason = why_not_kafka(server, parsed(server, **options))
    assert time.monotonic() - started < LIMIT_S
    return reason


def test_if_nothing_listens_the_reason_is_connection_refused() -> None:
    assert why(f"{HOST}:{free_port()}") == "cannot be reached: connection refused"


def test_if_packets_are_dropped_the_reason_is_no_answer_in_time(full: str) -> None:
    assert why(full) == "cannot be reached: no answer in time"


@pytest.mark.parametrize("server", ["kafka", ":9092", "kafka:", "kafka:http", "kafka:99999", "kafka:0", "kafka:²"])
def test_an_invalid_address_is_reported(server: str) -> None:
    assert why(server) == "is not of the form host:port"


@pytest.mark.parametrize("name", ["nowhere.invalid", "a..b"])
def test_an_unknown_host_is_reported(name: str) -> None:
    assert why(f"{name}:9092") == "cannot be reached: unknown host"


def test_a_silent_port_is_reported() -> None:
    with listener() as server:
        assert why(server, **HURRY) == f"{SILENT} one that wants TLS, or a broker that is too busy"


def test_a_port_that_answers_byte_by_byte_counts_as_silent() -> None:
    with listener(trickle) as server:
        assert str(why(server, **HURRY)).startswith("accepts the connection but stays silent")


def test_a_web_server_is_not_kafka_and_speaks_http(http: str) -> None:
    assert str(why(http)).startswith("answers with something that is not Kafka")
    assert speaks_http(http, parsed("-"))


def test_what_is_no_web_server_does_not_speak_http(kafka: EmbeddedKafka) -> None:
    with listener() as silent:
        for server in (silent, kafka.bootstrap_servers, f"{HOST}:{free_port()}", "nowhere.invalid:80", ":80"):
            assert not speaks_http(server, parsed("-", **HURRY))


def test_a_silent_server_only_gets_one_request_and_it_is_for_the_versions_of_kafka() -> None:
    received: list[bytes] = []
    with listener(lambda connection: received.append(connection.recv(1000))) as server:
        why(server)
    assert received == [bytes.fromhex("0000000a 0012 0000 4c414721 ffff")]


def test_a_broker_that_hangs_for_half_of_the_timeout_is_a_kafka_listener(kafka3: EmbeddedKafka) -> None:
    with frozen(kafka3, 3):
        thawing = Timer(2.5, kafka3.thaw, [3])
        thawing.start()
        reason = why(kafka3.address(3))
        thawing.join()
    assert reason is None


def test_a_port_that_closes_the_connection_is_reported() -> None:
    with listener(lambda connection: None) as server:
        assert str(why(server)).startswith("closes the connection")


def test_a_port_with_another_protocol_is_reported() -> None:
    with listener(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")) as server:
        assert why(server) == "answers with something that is not Kafka (b'SSH-2.0-')"


def test_a_port_that_is_silent_during_the_tls_handshake_is_reported() -> None:
    with listener() as server:
        reason = why(server, security_protocol="SSL", **HURRY)
    assert reason == f"{SILENT} one without TLS, or a broker that is too busy"


def test_a_kafka_listener_passes_whatever_the_password(kafka: EmbeddedKafka) -> None:
    assert why(kafka.bootstrap_servers) is None
    assert why(kafka.sasl_bootstrap_servers, **login(kafka, sasl_plain_password="wrong")) is None


def test_tls_to_a_plaintext_listener_is_reported(kafka: EmbeddedKafka) -> None:
    assert why(kafka.bootstrap_servers, security_protocol="SSL") == (
        "is a PLAINTEXT listener: set security_protocol to PLAINTEXT"
    )


def test_tls_to_something_else_than_kafka_is_reported() -> None:
    with listener(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")) as server:
        reason = why(server, security_protocol="SSL")
    assert str(reason).startswith("fails the TLS handshake (")
    assert str(reason).endswith("): not a TLS listener, or a wrong certificate")


def test_plaintext_to_a_tls_listener_is_reported(tls: EmbeddedKafka) -> None:
    assert why(tls.sasl_bootstrap_servers) == "is an SSL listener: set security_protocol to SSL"


def test_a_kafka_listener_with_tls_passes(tls: EmbeddedKafka) -> None:
    assert why(tls.sasl_bootstrap_servers, security_protocol="SSL") is None


def test_the_first_server_that_answers_as_kafka_is_used_without_waiting_for_the_rest(kafka: EmbeddedKafka) -> None:
    good = kafka.bootstrap_servers
    with listener() as silent:
        started = time.monotonic()
        assert first_answering([good, silent], parsed("-")) == good
        assert time.monotonic() - started < 1
        assert first_answering([silent, good], parsed("-")) == good
        assert time.monotonic() - started < LIMIT_S / 2


def test_the_error_gives_a_reason_for_each_server(http: str) -> None:
    closed = f"{HOST}:{free_port()}"
    with listener() as silent, pytest.raises(ClusterError) as caught:
        KafkaClient(parsed(f"{closed},{silent},{http}", **HURRY))
    reasons = str(caught.value).split("; ")
    assert [reason.split(" ")[0] for reason in reasons] == [closed, silent, http]
    assert len({reason.split(" ", 1)[1] for reason in reasons}) == 3


# --- how the client and the data sources use it


def refusal(kafka: str, **options: str) -> str:
    started = time.monotonic()
    with pytest.raises(ClusterError) as caught:
        KafkaClient(parsed(kafka, **options))
    assert time.monotonic() - started < LIMIT_S
    return str(caught.value).split(" ", 1)[1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param(
            {"sasl_plain_password": "wrong#secret"},
            "rejects the login: check sasl_plain_username and sasl_plain_password",
            id="a wrong password",
        ),
        pytest.param(
            {"sasl_mechanism": "SCRAM-SHA-256"},
            "does not offer SCRAM-SHA-256: set sasl_mechanism to PLAIN",
            id="a mechanism that is not offered",
        ),
    ],
)
def test_a_failed_login_is_reported_without_the_password(
    kafka: EmbeddedKafka, changes: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        said = refusal(kafka.sasl_bootstrap_servers, **login(kafka, **changes))
    assert said == reason
    # kafka-python's DEBUG log has it: as text, or as bytes that are easily read.
    assert "secret" not in caplog.text
    assert 'se"cret' not in caplog.text


def answering(*answers: bytes) -> Callable[[socket.socket], None]:
    """A listener that gives these answers to the first requests of a connection, and then closes it."""

    def serve(connection: socket.socket) -> None:
        for answer in answers:
            connection.recv(1000)
            connection.sendall(struct.pack(">ii", len(answer) + 4, 0x4C414721) + answer)
        connection.recv(1000)

    return serve


def handshake(error_code: int, *mechanisms: str) -> bytes:
    """An answer to SaslHandshake."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in mechanisms)
    return struct.pack(">hi", error_code, len(mechanisms)) + names


VERSIONS = b"\0" * 6


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param([VERSIONS, handshake(34)], Listener("PLAINTEXT", ()), id="no SASL"),
        pytest.param([VERSIONS, handshake(33, "B", "A")], Listener("SASL_PLAINTEXT", ("A", "B")), id="two mechanisms"),
        pytest.param([VERSIONS], None, id="it closes the connection"),
        pytest.param([VERSIONS, handshake(42)], None, id="another error"),
        pytest.param([VERSIONS, handshake(33)], None, id="no mechanism"),
        pytest.param([VERSIONS, handshake(33, "A")[:-1]], None, id="half an answer"),
        pytest.param([VERSIONS, handshake(33, "A\x1b[2J\nERROR", "x" * 3000)], None, id="no names of mechanisms"),
        pytest.param([], None, id="nothing"),
    ],
)
def test_what_a_listener_wants_is_known_only_if_it_says_so(answers: list[bytes], expected: Listener | None) -> None:
    with listener(answering(*answers)) as server:
        assert find_listener(server, parsed(server, **HURRY)) == expected


def test_a_listener_that_goes_away_is_not_said_to_reject_the_login() -> None:
    answers = iter([answering(VERSIONS)])

    def answer_once(connection: socket.socket) -> None:
        next(answers, lambda _: None)(connection)

    with listener(answer_once) as server:
        said = refusal(server, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", **HURRY)
    assert said == "closes the connection: check security_protocol and the login, unless it is restarting or overloaded"


def test_a_file_for_tls_that_is_missing_does_not_matter_without_tls(tls: EmbeddedKafka) -> None:
    said = refusal(tls.sasl_bootstrap_servers, ssl_cafile="/nowhere.pem")
    assert said == "is an SSL listener: set security_protocol to SSL"


def test_a_new_cluster_without_groups_is_read_over_tls_without_an_error(tls: EmbeddedKafka) -> None:
    options = {"security_protocol": "SSL", "ssl_cafile": str(tls.directory / "key-and-certificate.pem")}
    for source in (CommittedOffsetsSource, GroupMembersSource):
        assert read(source, tls.sasl_bootstrap_servers, **options) == []
    names = {row["topic"] for row in read(WatermarksSource, tls.sasl_bootstrap_servers, **options)}
    assert names == {"__consumer_offsets"}
    # As before the first group ever:
    with KafkaAdminClient(bootstrap_servers=tls.bootstrap_servers) as admin:
        admin.delete_topics(["__consumer_offsets"])
        wait_for(lambda: "__consumer_offsets" not in admin.list_topics())
    for source in (CommittedOffsetsSource, GroupMembersSource, WatermarksSource):
        assert read(source, tls.sasl_bootstrap_servers, **options) == []


@pytest.mark.parametrize("source", SOURCES[1:], ids=lambda source: source.name())
def test_a_source_of_an_unreachable_cluster_fails_while_planning(source: type) -> None:
    with pytest.raises(ClusterError, match=r"^127\.0\.0\.1:\d+ cannot be reached: connection refused$"):
        plan(source, f"{HOST}:{free_port()}")


def test_spark_shows_the_reason_of_an_unreachable_cluster(spark: SparkSession) -> None:
    frame = spark.read.format("kafka_watermarks").option("bootstrap_servers", f"{HOST}:{free_port()}").load()
    with pytest.raises(PySparkException, match="cannot be reached: connection refused"):
        frame.collect()
