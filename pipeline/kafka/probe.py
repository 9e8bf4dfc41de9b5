"""Finds out within seconds whether an address is a Kafka listener, and if not, what it is instead.

kafka-python reports only "Unable to bootstrap", after 30 s, whether the port is closed, silent or a web server's.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pipeline.common.errors import ClusterError
from pipeline.kafka.machine import tls_context
from pipeline.kafka.options import SourceOptions

_CORRELATION_ID = 0x4C414721
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
"""ApiVersions v0 without a client id: every broker since 0.10 answers it, before any authentication."""


def first_answering(servers: Sequence[str], options: SourceOptions) -> str:
    """The first of the servers, in their order, that answers as Kafka. All are tried at once.

    If none does, raises ClusterError with a reason for each server.
    """
    reasons: dict[str, str] = {}
    pool = ThreadPoolExecutor(max_workers=len(servers))
    try:
        for server, reason in zip(servers, pool.map(lambda s: why_not_kafka(s, options), servers), strict=True):
            if reason is None:
                return server
            reasons[server] = reason
    finally:
        pool.shutdown(wait=False)  # nobody waits for a silent server once another has answered
    raise ClusterError("; ".join(f"{server} {reason}" for server, reason in reasons.items()))


def why_not_kafka(server: str, options: SourceOptions) -> str | None:
    """None if a Kafka listener answers at host:port, else the reason in words. Waits at most `connect_timeout_ms`.

    Raises ClusterError if a file of an `ssl_` option cannot be used.
    """
    tls = tls_context(options)
    timeout_s = options.connect_timeout_ms / 3000  # to connect, to hear Kafka, to hear HTTP
    host, _, port = server.rpartition(":")
    address = (host.strip("[]"), int(port) if port.isascii() and port.isdigit() else 0)
    if not address[0] or not 0 < address[1] < 65536:
        return "is not of the form host:port"
    try:
        raw = socket.create_connection(address, timeout=timeout_s)
    except (OSError, UnicodeError) as exc:
        return f"cannot be reached: {_connection_reason(exc)}"
    with raw:
        reason = _ask_api_versions(raw, address[0], tls, timeout_s)
    if reason and _speaks_http(address, timeout_s):
        return "speaks HTTP, not Kafka"
    return reason


def _ask_api_versions(raw: socket.socket, host: str, tls: ssl.SSLContext | None, timeout_s: float) -> str | None:
    # Only finds out what listens there. The real client verifies certificates, and no secret is sent here.
    otherwise = "not a Kafka listener, or one without TLS" if tls else "not a Kafka listener, or one that wants TLS"
    try:
        with tls.wrap_socket(raw, server_hostname=host) if tls else raw as stream:
            stream.sendall(API_VERSIONS_V0)
            head = _read(stream, 8, timeout_s)
    except TimeoutError:
        return f"accepts the connection but stays silent: {otherwise}"
    except ssl.SSLError as exc:
        return f"fails the TLS handshake ({exc.reason or exc}): not a TLS listener, or a wrong certificate"
    except OSError as exc:
        return f"closes the connection ({_connection_reason(exc)}): {otherwise}"
    return _judge(head) if head else f"closes the connection on the first request: {otherwise}"


def _speaks_http(address: tuple[str, int], timeout_s: float) -> bool:
    try:
        with socket.create_connection(address, timeout=timeout_s) as raw:
            raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return _read(raw, 5, timeout_s) == b"HTTP/"
    except OSError:
        return False


def _judge(head: bytes) -> str | None:
    if head[:1] == b"\x15":
        return "speaks TLS: set security_protocol to SSL or SASL_SSL"
    if len(head) == 8 and struct.unpack(">i", head[4:])[0] == _CORRELATION_ID:
        return None
    return f"answers with something that is not Kafka ({head!r})"


def _read(stream: socket.socket, size: int, timeout_s: float) -> bytes:
    deadline = time.monotonic() + timeout_s
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
