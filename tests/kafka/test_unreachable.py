"""What `doctor` says of a cluster that cannot be used: what is wrong, where, and what to do. None needs a broker."""

import json
import os
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from jobs import doctor
from pipeline.common.errors import ClusterError
from pipeline.kafka.machine import tls_context
from pipeline.kafka.options import SourceOptions
from tests.helpers.network import HOST, certificate, free_port, listener

Said = Callable[..., tuple[str, str]]
SEE_DOCS = "docs/troubleshooting.md says more"


@pytest.fixture
def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Said:
    """What is wrong with a cluster, and what to do: two lines, and no more."""

    def said(server: str, **client: str) -> tuple[str, str]:
        for name in {"ssl_password", "sasl_plain_password", "proxy_url"} & client.keys():  # a file must not have them
            monkeypatch.setenv(f"CLIENT_{name}", client[name])
            client[name] = f"${{env:CLIENT_{name}}}"
        settings = "".join(f"{name} = {json.dumps(value)}\n" for name, value in client.items())
        (tmp_path / "c.toml").write_text(
            f'[lake]\nroot = "{tmp_path}/lake"\n[clusters.east]\nbootstrap_servers = ["{server}"]\n'
            f"[clusters.east.limits]\nconnect_timeout = '1s'\n[clusters.east.client]\n{settings}"
        )
        assert doctor.main(["--config", str(tmp_path / "c.toml")]) == 1
        _, what, todo, _ = capsys.readouterr().out.splitlines()
        return what.removeprefix("WRONG east: "), todo.strip()

    return said


@pytest.mark.parametrize("name", ["nowhere.invalid", "a..b"])
def test_for_an_unknown_host_the_name_is_to_be_corrected(said: Said, name: str) -> None:
    todo = "correct the name in bootstrap_servers, or in DNS; executors look it up as well"
    assert said(f"{name}:9092") == (f"{name}:9092 cannot be reached: unknown host", todo)


def test_for_a_closed_port_the_port_is_to_be_corrected(said: Said) -> None:
    server = f"{HOST}:{free_port()}"
    todo = "correct the port in bootstrap_servers, or start the broker: nothing listens there"
    assert said(server) == (f"{server} cannot be reached: connection refused", todo)


def test_for_plaintext_to_a_tls_port_tls_is_to_be_set(said: Said, tmp_path: Path) -> None:
    todo = "correct the port in bootstrap_servers, or set security_protocol to SSL or SASL_SSL"
    with listener(over_tls(certificate(tmp_path), lambda _: None)) as server:
        what, its_todo = said(server)
    # The TLS of Python closes the connection. That of Java sends an alert, as brokers do: see the test with a broker.
    assert what.startswith(f"{server} closes the connection")
    assert what.endswith(": not a Kafka listener, or one that wants TLS")
    assert its_todo == todo


def test_a_tls_alert_is_recognised(said: Said) -> None:
    with listener(answering(b"\x15\x03\x03\x00\x02\x02\x46")) as server:
        assert said(server) == (f"{server} speaks TLS: set security_protocol to SSL or SASL_SSL", SEE_DOCS)


def test_for_tls_to_a_port_that_answers_in_plaintext_the_protocol_is_to_be_corrected(said: Said) -> None:
    with listener(answering(b"HELLO" * 9)) as server:
        what, todo = said(server, security_protocol="SSL")
    assert what.startswith(f"{server} fails the TLS handshake (")
    assert what.endswith("): not a TLS listener, or a wrong certificate")
    assert todo == "correct the port in bootstrap_servers, security_protocol or ssl_certfile"


def test_for_tls_to_a_silent_port_plaintext_is_suggested(said: Said) -> None:
    todo = "correct the port in bootstrap_servers, or set security_protocol to PLAINTEXT or SASL_PLAINTEXT"
    silent = "accepts the connection but stays silent"
    what = f"{silent}: not a Kafka listener, or one without TLS, or a broker that is too busy"
    with listener() as server:
        assert said(server, security_protocol="SSL") == (f"{server} {what}", todo)


def test_a_web_server_is_named(said: Said) -> None:
    def serve(connection: socket.socket) -> None:
        if connection.recv(100).startswith(b"GET "):
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")

    with listener(serve) as server:
        what, todo = said(server)
    assert what.startswith(f"{server} closes the connection on the first request")
    assert todo == f"correct the port of {server} in bootstrap_servers: a web server listens there"


def test_a_tls_listener_that_is_not_kafka_is_not_reported_as_one_that_wants_tls(said: Said, tmp_path: Path) -> None:
    with listener(over_tls(certificate(tmp_path), lambda stream: stream.recv(100))) as server:
        what, _ = said(server, security_protocol="SSL")
    assert what == f"{server} closes the connection on the first request: not a Kafka listener, or one without TLS"


@pytest.mark.parametrize("option", ["ssl_cafile", "ssl_certfile", "ssl_keyfile"])
def test_a_missing_tls_file_is_reported_by_its_option(said: Said, option: str, tmp_path: Path) -> None:
    files = {"ssl_certfile": str(certificate(tmp_path)), option: "/nowhere/secret.pem"}
    what, _ = said(f"{HOST}:{free_port()}", security_protocol="SSL", **files)
    assert what == f"the file of {option} cannot be read (No such file or directory): it must be here and on executors"


@pytest.mark.parametrize(
    "value", ["-----BEGIN PRIVATE KEY-----\nsecret", "\0secret", "secret" * 1000], ids=["key", "NUL", "long"]
)
def test_a_value_that_is_not_a_path_is_not_shown(said: Said, value: str, tmp_path: Path) -> None:
    files = {"ssl_certfile": str(certificate(tmp_path)), "ssl_keyfile": value}
    what, _ = said(f"{HOST}:{free_port()}", security_protocol="SSL", **files)
    assert what.startswith("the file of ssl_keyfile cannot be read (")
    assert "secret" not in what


def test_a_key_without_a_certificate_is_ignored_as_kafka_python_does(said: Said) -> None:
    server = f"{HOST}:{free_port()}"
    what, _ = said(server, security_protocol="SSL", ssl_keyfile="/nowhere/secret.pem")
    assert what == f"{server} cannot be reached: connection refused"


def test_tls_files_are_loaded_again_only_if_they_have_changed(tmp_path: Path) -> None:
    file = certificate(tmp_path)
    options = SourceOptions.parse({"bootstrap_servers": HOST, "security_protocol": "SSL", "ssl_cafile": str(file)})
    context = tls_context(options)
    assert tls_context(options) is context
    whole = file.read_bytes()
    file.write_bytes(b"")
    with pytest.raises(ClusterError, match="no certificate in PEM format"):
        tls_context(options)
    file.write_bytes(whole)
    os.utime(file, (0, 0))
    assert tls_context(options) is not context


def test_a_ca_file_that_is_not_in_pem_format_is_reported(said: Said, tmp_path: Path) -> None:
    store = tmp_path / "truststore.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    what, _ = said(f"{HOST}:{free_port()}", security_protocol="SSL", ssl_cafile=str(store))
    assert what == "the file of ssl_cafile has no certificate in PEM format: convert it, if it is a Java truststore"


@pytest.mark.parametrize("password", [{}, {"ssl_password": "wrong"}], ids=["none", "wrong"])
def test_a_wrong_or_missing_password_of_a_key_is_reported(said: Said, tmp_path: Path, password: dict[str, str]) -> None:
    """Without a password, OpenSSL would ask the terminal for it, and wait."""
    file = certificate(tmp_path)
    key = serialization.load_pem_private_key(file.read_bytes(), None)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = tmp_path / "locked.pem"
    locked.write_bytes(key.private_bytes(pem, pkcs8, serialization.BestAvailableEncryption(b"right")))
    files = {"ssl_certfile": str(file), "ssl_keyfile": str(locked)}
    what, _ = said(f"{HOST}:{free_port()}", security_protocol="SSL", **files, **password)
    assert what == (
        "ssl_certfile and ssl_keyfile cannot be loaded: they must be a certificate and its key in PEM format, and "
        "ssl_password must be the password of that key"
    )


@pytest.mark.parametrize("url", ["ftp://me:p4ss@proxy:1", "me:p4ss@proxy:1", "p4ss", "http://me:p4ss@proxy:99999"])
def test_an_invalid_proxy_url_is_reported_without_its_password(said: Said, url: str) -> None:
    reason = "cannot be used: proxy_url must be the URL of a proxy, such as http://host:port or socks5://host:port"
    assert said("broker:9092", proxy_url=url) == (f"broker:9092 {reason}", SEE_DOCS)


def test_tls_files_are_ignored_without_tls(said: Said) -> None:
    what, _ = said(f"{HOST}:{free_port()}", ssl_cafile="/nowhere.pem")
    assert what.endswith("connection refused")


@pytest.mark.parametrize(("mechanism", "package"), [("AWS_MSK_IAM", "botocore"), ("GSSAPI", "gssapi")])
def test_a_missing_package_is_reported(
    said: Said, monkeypatch: pytest.MonkeyPatch, mechanism: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # how Python marks a module that cannot be imported
    what, _ = said(f"{HOST}:{free_port()}", security_protocol="SASL_SSL", sasl_mechanism=mechanism)
    assert what == f"{mechanism} needs the Python package {package}: install it here and on executors"


def answering(text: bytes) -> Callable[[socket.socket], None]:
    """What a listener does with a connection: it sends this once it has been asked."""

    def handle(connection: socket.socket) -> None:
        connection.recv(10_000)
        connection.sendall(text)

    return handle


def over_tls(file: Path, serve: Callable[[ssl.SSLSocket], object]) -> Callable[[socket.socket], None]:
    """What a listener does with a connection: TLS with this certificate, and then `serve`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    def handle(connection: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as stream:
            serve(stream)

    return handle
