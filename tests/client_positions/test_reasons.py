"""Why an endpoint or a file cannot be read: words for each reason, and no password."""

import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import socket

import pytest
import trustme

from pipeline.client_positions.check_locations import check_locations
from pipeline.client_positions.endpoints import Access, from_endpoint, from_file
from tests.helpers.certificates import authority_file, signed
from tests.helpers.network import HOST, certificate, free_port, listener

HURRY = Access(timeout_ms=500)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://nowhere.invalid/metrics", "unknown host"),
        ("http://{closed}/metrics", "Connection refused"),
        ("http://user:p4ss@{closed}/metrics", "Connection refused"),
        ("ftp://{closed}/metrics", "is not a URL with http or https"),
        ("nowhere/metrics", "is not a URL with http or https"),
        ("http://[nowhere/metrics", "is not a URL with http or https"),
        ("http://a..b/metrics", "is not a URL with http or https"),
    ],
)
def test_the_reason_of_an_unreachable_endpoint(url: str, reason: str) -> None:
    found = from_endpoint(url.format(closed=f"{HOST}:{free_port()}"), HURRY)
    assert found.error == reason
    assert "p4ss" not in str(found)


def test_the_reason_of_an_endpoint_that_closes_the_connection() -> None:
    with listener(lambda connection: answer(connection, b"")) as server:
        assert from_endpoint(f"http://{server}/metrics", HURRY).error == "closes the connection without an answer"


def test_the_reason_of_tls_to_an_endpoint_without_tls() -> None:
    with listener(lambda connection: answer(connection, b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        error = from_endpoint(f"https://{server}/metrics", Access(timeout_ms=10_000)).error
    assert str(error).startswith("fails the TLS handshake (")


def test_the_reasons_of_an_untrusted_certificate_and_of_an_unusable_ca_file(tmp_path: Path) -> None:
    file = certificate(tmp_path)
    (tmp_path / "truststore.jks").write_bytes(b"\xfe\xed\xfe\xed")

    def error(ca_file: Path | None) -> str | None:
        access = Access(timeout_ms=2_000, ca_file=str(ca_file) if ca_file else None)
        return from_endpoint(f"https://{server}/metrics", access).error

    with listener(over_tls(file)) as server:
        assert error(file) is None
        assert (
            error(None)
            == "presents a TLS certificate that is not trusted: check ca_file, and that the certificate names this host"
        )
        assert error(tmp_path / "none.pem") == "ca_file: No such file or directory"
        assert error(tmp_path / ("n" * 300)) == "ca_file: File name too long"
        assert error(tmp_path / "\0") == "ca_file: ValueError"
        assert error(tmp_path / "truststore.jks") == "the file of ca_file has no certificate in PEM format"


def test_ca_file_may_be_a_folder_for_openssl(tmp_path: Path) -> None:
    authority = trustme.CA(organization_name="laglake", organization_unit_name="tests")
    access = Access(timeout_ms=2_000, ca_file=str(tmp_path))
    with listener(over_tls(signed(authority, tmp_path / "server.pem"))) as server:
        assert "is not trusted" in str(from_endpoint(f"https://{server}/metrics", access).error)
        authority_file(authority, tmp_path / "7b380c92.0")  # what `openssl x509 -hash` says for the authority's name
        assert from_endpoint(f"https://{server}/metrics", access).error is None


def test_the_reason_of_a_file_without_the_right_to_read_or_write_it(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert from_file(str(loop), HURRY).error == "Too many levels of symbolic links"
    (tmp_path / "file").touch()
    options = {"path": str(tmp_path), "state": f"{tmp_path}/file/state"}
    (wrong,) = [check for check in check_locations("kafka_request_log", options) if check.is_right is False]
    assert wrong.what == f"{tmp_path}/file/state: cannot be written: Not a directory"


def answer(connection: socket, text: bytes) -> None:
    connection.recv(10_000)
    connection.sendall(text)


def over_tls(file: Path) -> Callable[[socket], None]:
    """What a listener does with a connection: it answers over TLS with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    def handle(connection: socket) -> None:
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as stream:
            answer(stream, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx\n")

    return handle
