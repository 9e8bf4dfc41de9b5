"""Finds out within seconds whether an address is a Kafka listener, and if not, what it is instead.

kafka-python reports only "Unable to bootstrap", after 30 s, whether the port is closed, silent or a web server's.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress

from pipeline.common.errors import ClusterError
from pipeline.kafka.machine import tls_context
from pipeline.kafka.options import SourceOptions

_CORRELATION_ID = 0x4C414721
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
"""ApiVersions v0 without a client id: every broker since 0.10 answers it, before any authentication."""


def first_answering(servers: Sequence[str], options: SourceOptions) -> str:
    """The first of the servers, in their order, that answers as Kafka. All are tried at once.

    A server that has not answered after a third of `connect_timeout_ms` has lost its turn: from then on, it is the
    first one to answer. If none does, raises ClusterError with a reason for each server.
    """
    pool = ThreadPoolExecutor(max_workers=len(servers))
    try:
        reasons = {pool.submit(why_not_kafka, server, options): server for server in servers}
        turn_ends = time.monotonic() + options.connect_timeout_ms / 3000
        for answer, server in reasons.items():
            with suppress(TimeoutError):
                if answer.result(timeout=max(0.0, turn_ends - time.monotonic())) is None:
                    return server
        for answer in as_completed(reasons):
            if answer.result() is None:
                return reasons[answer]
    finally:
        pool.shutdown(wait=False)  # nobody waits for a silent server once another has answered
    raise ClusterError("; ".join(f"{server} {reason.result()}" for reason, server in reasons.items()))


def why_not_kafka(server: str, options: SourceOptions) -> str | None:
    """None if a Kafka listener answers at host:port, else the reason in words. Waits at most `connect_timeout_ms`.

    Raises ClusterError if a file of an `ssl_` option cannot be used.
    """
    tls = tls_context(options)
    deadline = time.monotonic() + options.connect_timeout_ms / 1000
    address = _address(server)
    if address is None:
        return "is not of the form host:port"
    try:
        raw = socket.create_connection(address, timeout=options.connect_timeout_ms / 1000)
    except (OSError, UnicodeError) as exc:
        return f"cannot be reached: {_connection_reason(exc)}"
    with raw:
        return _ask_api_versions(raw, address[0], tls, deadline)


def speaks_http(server: str, options: SourceOptions) -> bool:
    """Whether a web server listens at host:port.

    A snapshot must not ask this: a broker that is slow would log an invalid request of 1,195,725,856 bytes ("GET ").
    """
    timeout_s = options.connect_timeout_ms / 1000
    address = _address(server)
    try:
        with socket.create_connection(address or ("", 0), timeout=timeout_s) as raw:
            raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return _read(raw, 5, time.monotonic() + timeout_s) == b"HTTP/"
    except (OSError, UnicodeError):
        return False


def _address(server: str) -> tuple[str, int] | None:
    """Host and port; None if it is not of the form host:port."""
    host, _, port = server.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() else 0
    return (host.strip("[]"), number) if host and 0 < number < 65536 else None


def _ask_api_versions(raw: socket.socket, host: str, tls: ssl.SSLContext | None, deadline: float) -> str | None:
    # Only finds out what listens there. The real client verifies certificates, and no secret is sent here.
    otherwise = "not a Kafka listener, or one without TLS" if tls else "not a Kafka listener, or one that wants TLS"
    try:
        raw.settimeout(max(0.001, deadline - time.monotonic()))
        with tls.wrap_socket(raw, server_hostname=host) if tls else raw as stream:
            stream.sendall(API_VERSIONS_V0)
            head = _read(stream, 8, deadline)
    except TimeoutError:
        return f"accepts the connection but stays silent: {otherwise}, or a broker that is too busy"
    except ssl.SSLError as exc:
        return f"fails the TLS handshake ({exc.reason or exc}): not a TLS listener, or a wrong certificate"
    except OSError as exc:
        return f"closes the connection ({_connection_reason(exc)}): {otherwise}"
    return _judge(head) if head else f"closes the connection on the first request: {otherwise}"


def _judge(head: bytes) -> str | None:
    if head[:1] == b"\x15":
        return "speaks TLS: set security_protocol to SSL or SASL_SSL"
    if len(head) == 8 and struct.unpack(">i", head[4:])[0] == _CORRELATION_ID:
        return None
    return f"answers with something that is not Kafka ({head!r})"


def _read(stream: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        stream.settimeout(max(0.001, deadline - time.monotonic()))
        more = stream.recv(size - len(data))
        if not more:
            break
        data += more
    return data


def _connection_reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror | UnicodeError):  # the latter for a name that cannot be one
        return "unknown host"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return getattr(error, "strerror", None) or type(error).__name__
