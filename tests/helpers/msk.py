"""A stand-in for Amazon MSK's login: it checks the signature as AWS documents it; the rest is a real broker."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

HOST = "127.0.0.1"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
FAILED, NO_SUCH_MECHANISM = 58, 33
MECHANISM = "AWS_MSK_IAM"


class Authenticator:
    """Checks the messages of clients for one identity in one region. `messages` has all that have come."""

    def __init__(self, access_key: str, secret_key: str, token: str | None, region: str) -> None:
        self.credentials = Credentials(access_key, secret_key, token)
        self.region = region
        self.messages: list[dict[str, str]] = []

    def accepts(self, message: dict[str, str], host: str) -> bool:
        """Whether a message is signed by the identity, for this host, and now.

        The signature is made again with AWS's own signer from the parts that the message names: a presigned GET request
        for https://HOST/?Action=kafka-cluster:Connect, in which only the header `host` is signed.
        """
        self.messages.append(message)
        signed_at = datetime.strptime(message["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        scope = f"{self.credentials.access_key}/{signed_at:%Y%m%d}/{self.region}/kafka-cluster/aws4_request"
        expected = {
            "version": "2020_10_22",
            "host": host,
            "user-agent": message["user-agent"],
            "action": "kafka-cluster:Connect",
            "x-amz-algorithm": "AWS4-HMAC-SHA256",
            "x-amz-credential": scope,
            "x-amz-date": message["x-amz-date"],
            "x-amz-signedheaders": "host",
            "x-amz-expires": "900",
            "x-amz-signature": self._signature(host, message["x-amz-date"]),
        }
        if self.credentials.token:
            expected["x-amz-security-token"] = self.credentials.token
        is_now = abs(datetime.now(UTC) - signed_at) < timedelta(minutes=5)
        return message == expected and is_now

    def _signature(self, host: str, timestamp: str) -> str:
        signer = SigV4QueryAuth(self.credentials, "kafka-cluster", self.region, expires=900)
        request = AWSRequest("GET", f"https://{host}/", params={"Action": "kafka-cluster:Connect"})
        request.context["timestamp"] = timestamp
        signer._modify_request_before_signing(request)
        text = signer.string_to_sign(request, signer.canonical_request(request))
        signature: str = signer.signature(text, request)
        return signature


class Front:
    """A listener with TLS in front of a listener of a broker without TLS and login."""

    def __init__(self, host: str, certificate: Path, authenticator: Authenticator) -> None:
        self.host = host
        self.authenticator = authenticator
        self.broker = ""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._server = socket.create_server((HOST, 0))
        self.port: int = self._server.getsockname()[1]

    @contextmanager
    def serving(self) -> Iterator["Front"]:
        """Serves until the end of the block. `broker`, host:port, must be set before a client comes."""
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                raw, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        name, port = self.broker.rsplit(":", 1)
        with (
            suppress(OSError),
            raw,
            socket.create_connection((name, int(port))) as broker,
            self._context.wrap_socket(raw, server_side=True) as client,
        ):
            self._converse(client, broker)

    def _converse(self, client: socket.socket, broker: socket.socket) -> None:
        while frame := _frame(client):
            api_key, _, correlation_id, length = struct.unpack_from(">hhih", frame, 4)
            body = frame[14 + max(0, length) :]
            is_refused = False
            if api_key == SASL_HANDSHAKE:
                answer = _handshake(correlation_id, body)
            elif api_key == SASL_AUTHENTICATE:
                answer, is_refused = self._authenticate(correlation_id, body)
            else:
                broker.sendall(frame)
                answer = _frame(broker)
            client.sendall(answer)
            if not answer or is_refused:
                break

    def _authenticate(self, correlation_id: int, body: bytes) -> tuple[bytes, bool]:
        """Version 2 (flexible): a tagged header, and the message with its length as a varint."""
        start, end = body.index(b"{"), body.rindex(b"}") + 1
        message: dict[str, Any] = json.loads(body[start:end])
        is_accepted = self.authenticator.accepts(message, self.host)
        error = 0 if is_accepted else FAILED
        answered = b'{"version":"2020_10_22","request-id":"one"}' if is_accepted else b""
        said = b"\0" if is_accepted else _compact(b"Access denied")
        content = struct.pack(">h", error) + said + _compact(answered) + struct.pack(">q", 0) + b"\0"
        return _framed(struct.pack(">ib", correlation_id, 0) + content), not is_accepted


def _handshake(correlation_id: int, body: bytes) -> bytes:
    (length,) = struct.unpack_from(">h", body)
    error = 0 if body[2 : 2 + length] == MECHANISM.encode() else NO_SUCH_MECHANISM
    offered = struct.pack(">ih", 1, len(MECHANISM)) + MECHANISM.encode()
    return _framed(struct.pack(">ih", correlation_id, error) + offered)


def _compact(content: bytes) -> bytes:
    return bytes([len(content) + 1]) + content


def _framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def _frame(stream: socket.socket) -> bytes:
    head = _exactly(stream, 4)
    return head + _exactly(stream, struct.unpack(">i", head)[0]) if head else b""


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = stream.recv(size - len(data))
        if not more:
            return b""
        data += more
    return data
