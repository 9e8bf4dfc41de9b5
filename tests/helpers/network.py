"""Servers for tests: a proxy that inspects, counts and cuts connections, and listeners that are not Kafka."""

import gc
import logging
import socket
import struct
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple, Self

import trustme

from tests.helpers.certificates import signed

HOST = "127.0.0.1"


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a web server on this machine that answers each request with `handler`."""
    with ThreadingHTTPServer((HOST, 0), handler) as httpd:
        httpd.daemon_threads = True
        threading.Thread(target=httpd.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://{HOST}:{httpd.server_port}"
        httpd.shutdown()


class Request(NamedTuple):
    """One request that a client has sent: to host:port, the API's key and version, and the whole frame."""

    address: str
    api_key: int
    version: int
    frame: bytes


class Proxy:
    """An HTTP CONNECT proxy, for the client option `proxy_url`, that sees the requests to every broker.

    It forwards the requests of a connection one after the other, each after the one before is answered. `before` is
    called before a request is forwarded; if it returns True, the connection is closed instead. `names` maps host:port
    that only the proxy can resolve to real addresses.
    """

    def __init__(
        self, before: Callable[[Request], bool] = lambda _: False, names: Mapping[str, str] | None = None
    ) -> None:
        self.requests: list[Request] = []
        self._names = names or {}
        self._before = before
        self._sockets: list[socket.socket] = []

    @classmethod
    def cutting_first(cls, api_key: int) -> Self:
        """A proxy that closes the connection at the first request of this kind."""
        cut = iter([True])
        return cls(lambda request: request.api_key == api_key and next(cut, False))

    def __enter__(self) -> Self:
        self._listener = socket.create_server((HOST, 0))
        self._sockets.append(self._listener)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            _close(each)

    @property
    def url(self) -> str:
        """The value of the option."""
        return f"http://{HOST}:{self._listener.getsockname()[1]}"

    def api_keys(self) -> list[int]:
        """The API keys of the requests so far, in order."""
        return [request.api_key for request in self.requests]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        address = _head(client).split()[1].decode()
        address = self._names.get(address, address)
        try:
            broker = socket.create_connection(tuple(address.rsplit(":", 1)))  # type: ignore[arg-type]
        except OSError:
            client.close()
            return
        self._sockets.append(broker)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(OSError):
            while frame := _frame(client):
                request = Request(address, *struct.unpack(">hh", frame[4:8]), frame)
                self.requests.append(request)
                if self._before(request):
                    break
                broker.sendall(frame)
                answer = _frame(broker)
                if not answer:
                    break
                client.sendall(answer)
        _close(client)
        _close(broker)


def _head(stream: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += stream.recv(1)
    return head


def _frame(stream: socket.socket) -> bytes:
    head = stream.recv(4, socket.MSG_WAITALL)
    return head + stream.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL) if len(head) == 4 else b""


def _close(stream: socket.socket) -> None:
    with suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
    stream.close()


@contextmanager
def listener(serve: Callable[[socket.socket], None] | None = None) -> Iterator[str]:
    """host:port of a listener that calls `serve` with every connection, and then closes it; silent without `serve`."""
    with socket.create_server((HOST, 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while serve:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield f"{HOST}:{server.getsockname()[1]}"
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def certificate(folder: Path) -> Path:
    """A file with a key, a certificate for 127.0.0.1, and that of the authority that has signed it."""
    authority = trustme.CA()
    file = signed(authority, folder / "key-and-certificate.pem")
    file.write_bytes(file.read_bytes() + authority.cert_pem.bytes())
    return file


@contextmanager
def failed_handshakes() -> Iterator[None]:
    """kafka-python leaves the sockets of failed handshakes to the garbage collector, which warns of them.

    Its log would keep them for longer, so what it logs is left out.
    """
    kafka_log = logging.getLogger("kafka")
    level = kafka_log.level
    kafka_log.setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            yield
        finally:
            kafka_log.setLevel(level)
            gc.collect()
