"""Finds out within seconds whether an address is a Kafka listener, and if not, what it is instead.

kafka-python reports only "Unable to bootstrap", after 30 s, whether the port is closed, silent or a web server's. None
of the requests here sends a password, and none relies on a server's certificate: the real client verifies it.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from typing import NamedTuple

from pipeline.common.errors import ClusterError
from pipeline.kafka.machine import bare_context, tls_context
from pipeline.kafka.options import SourceOptions

_CORRELATION_ID = 0x4C414721
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
"""ApiVersions v0 without a client id: every broker since 0.10 answers it, before any authentication."""
SASL_HANDSHAKE_V1 = struct.pack(">ihhihh", 12, 17, 1, _CORRELATION_ID, -1, 0)
"""SaslHandshake v1 for the mechanism "", which no listener has: the answer says which ones it has (KIP-43, KIP-152)."""
_TLS_ALERT = b"\x15"
_ILLEGAL_SASL_STATE = 34
_NO_SUCH_MECHANISM = 33
_LONGEST_ANSWER = 65_536
_MOST_MECHANISMS = 20
_OF_CERTIFICATES = ("CERTIFICATE", "ALERT_UNKNOWN_CA")
"""The words in OpenSSL's names of the alerts by which a server refuses a client's certificate (RFC 8446, 6.2)."""


class Listener(NamedTuple):
    """What a listener wants: the value for `security_protocol`, and the mechanisms of which `sasl_mechanism` is one."""

    protocol: str
    mechanisms: tuple[str, ...]

    def advice(self) -> str:
        """What the listener is, and what to set for it."""
        article = "an" if self.protocol == "SSL" else "a"
        sasl = f", and sasl_mechanism to {' or '.join(self.mechanisms)}" if self.mechanisms else ""
        return f"is {article} {self.protocol} listener: set security_protocol to {self.protocol}{sasl}"


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
    """None if a Kafka listener answers at host:port, else the reason in words.

    Waits at most `connect_timeout_ms`, and once more if what listens there speaks another protocol. Raises ClusterError
    if a file of an `ssl_` option cannot be used.
    """
    tls = tls_context(options)
    address = _address(server)
    if address is None:
        return "is not of the form host:port"
    otherwise = "not a Kafka listener, or one without TLS" if tls else "not a Kafka listener, or one that wants TLS"
    try:
        with _connected(address, tls, options) as stream:
            head = stream.ask(API_VERSIONS_V0, 8)
    except _CannotConnectError as error:
        return f"cannot be reached: {_connection_reason(error.reason)}"
    except TimeoutError:
        return f"accepts the connection but stays silent: {otherwise}, or a broker that is too busy"
    except ssl.SSLError as error:
        return _why_no_tls(server, error, options)
    except OSError as error:
        listener = find_listener(server, options) if tls else None
        if listener and not listener.protocol.endswith("SSL"):
            return listener.advice()
        return f"closes the connection ({_connection_reason(error)}): {otherwise}"
    if not head:
        return f"closes the connection on the first request: {otherwise}"
    return None if _is_answer(head) else _what_else(server, head, options)


def _what_else(server: str, head: bytes, options: SourceOptions) -> str:
    """What listens, by the first bytes of an answer that is not Kafka's."""
    if head[:1] != _TLS_ALERT:
        return f"answers with something that is not Kafka ({head!r})"
    listener = find_listener(server, options)
    return listener.advice() if listener else "speaks TLS: set security_protocol to SSL or SASL_SSL"


def _why_no_tls(server: str, error: ssl.SSLError, options: SourceOptions) -> str:
    """Why the TLS handshake fails. In TLS 1.3, an alert about our certificate comes with the first answer."""
    reason = error.reason or str(error)
    if any(word in reason for word in _OF_CERTIFICATES):
        if "ssl_certfile" not in options.client:
            return "wants the certificate of a client: set ssl_certfile and ssl_keyfile"
        return (
            f"refuses the certificate in ssl_certfile ({reason}): an authority that the brokers trust must have signed "
            "it, and it must not have expired"
        )
    listener = find_listener(server, options)
    if listener and not listener.protocol.endswith("SSL"):
        return listener.advice()
    return f"fails the TLS handshake ({reason}): not a TLS listener, or a wrong certificate"


def find_listener(server: str, options: SourceOptions) -> Listener | None:
    """What the Kafka listener at host:port wants, whatever `security_protocol` is; None if that is not certain.

    Asks with TLS and without it, first as the options say. A listener that wants a client's certificate, and does not
    get one that it trusts, does not say whether it also wants SASL: it counts as SSL. Some that are not Apache Kafka do
    not say which mechanisms they have: they are not certain.
    """
    address = _address(server)
    tls = tls_context(options)
    for context in (tls, None) if tls else (None, bare_context()):
        if address and (found := _listener(address, context, options)):
            return found
    return None


def _listener(address: tuple[str, int], tls: ssl.SSLContext | None, options: SourceOptions) -> Listener | None:
    protocol = "SSL" if tls else "PLAINTEXT"
    try:
        with _connected(address, tls, options) as stream:
            if not _is_answer(stream.ask(API_VERSIONS_V0, 8, rest=True)):
                return None
            answer = stream.ask(SASL_HANDSHAKE_V1, 8, rest=True)
    except ssl.SSLError as error:
        wants_certificate = any(word in (error.reason or "") for word in _OF_CERTIFICATES)
        return Listener("SSL", ()) if wants_certificate else None
    except (_CannotConnectError, OSError):
        return None
    try:
        (error_code,) = struct.unpack_from(">h", answer, 8)
        if error_code == _ILLEGAL_SASL_STATE:
            return Listener(protocol, ())
        mechanisms = _mechanisms(answer) if error_code == _NO_SUCH_MECHANISM else ()
    except (struct.error, UnicodeDecodeError):
        return None
    return Listener(f"SASL_{protocol}", mechanisms) if mechanisms else None


def _mechanisms(answer: bytes) -> tuple[str, ...]:
    """The mechanisms in an answer to SaslHandshake, if their names are as RFC 4422 has them: anybody may answer."""
    (count,) = struct.unpack_from(">i", answer, 10)
    found: list[str] = []
    position = 14
    for _ in range(min(count, _MOST_MECHANISMS)):
        (length,) = struct.unpack_from(">h", answer, position)
        position += 2
        found.append(answer[position : position + length].decode("ascii"))
        position += length
    return tuple(sorted(name for name in found if re.fullmatch("[A-Z0-9_-]{1,20}", name)))


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


class _CannotConnectError(Exception):
    """No connection was made; `reason` is the operating system's error."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class _Stream:
    """A connection that is asked until a deadline. Raises OSError, of which TimeoutError and SSLError are kinds."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def ask(self, request: bytes, head: int, rest: bool = False) -> bytes:
        """Sends a request; returns the first bytes of what comes back, and with `rest` the whole answer of Kafka."""
        self._connection.settimeout(max(0.001, self._deadline - time.monotonic()))
        self._connection.sendall(request)
        data = _read(self._connection, head, self._deadline)
        if rest and _is_answer(data):
            (length,) = struct.unpack_from(">i", data)
            data += _read(self._connection, min(length, _LONGEST_ANSWER) + 4 - len(data), self._deadline)
        return data


@contextmanager
def _connected(address: tuple[str, int], tls: ssl.SSLContext | None, options: SourceOptions) -> Iterator[_Stream]:
    """A connection, with TLS if there is a context. Raises _CannotConnectError, or OSError of the handshake."""
    timeout_s = options.connect_timeout_ms / 1000
    deadline = time.monotonic() + timeout_s
    try:
        raw = socket.create_connection(address, timeout=timeout_s)
    except (OSError, UnicodeError) as error:
        raise _CannotConnectError(error) from None
    with raw:
        raw.settimeout(max(0.001, deadline - time.monotonic()))
        with tls.wrap_socket(raw, server_hostname=address[0]) if tls else raw as stream:
            yield _Stream(stream, deadline)


def _is_answer(data: bytes) -> bool:
    return len(data) >= 8 and struct.unpack_from(">i", data, 4)[0] == _CORRELATION_ID


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
