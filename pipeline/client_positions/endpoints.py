"""Reads endpoints and files in bounded time and memory. If one cannot be read, its Content has an error."""

from __future__ import annotations

import os
import re
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple
from urllib.parse import quote
from zlib import crc32

import pyarrow as pa
import requests
from pyarrow import fs
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from pipeline.common.epoch import now_ms, to_epoch_ms
from pipeline.common.errors import ConfigError
from pipeline.common.files import NotAFileError, is_uri, open_filesystem, open_unpacked, redacted
from pipeline.common.reasons import why_unreadable

CHUNK_BYTES = 256 * 1024
JOLOKIA = re.compile(r"/jolokia/?$")
BEANS = (
    "kafka.consumer:type=consumer-fetch-manager-metrics,*",
    "kafka.consumer:type=ConsumerFetcherManager,*",
    "kafka.consumer:type=ZookeeperConsumerConnector,*",
    "kafka.server:type=FetcherLagMetrics,*",
    "kafka.server:type=FetcherStats,*",
)
"""The MBeans that are read from Jolokia, in one request."""
EPOCH_MS = re.compile(r"(?<!\d)(\d{13})(?!\d)")
"""The time of a file's content, as epoch ms in its name."""


class Content(NamedTuple):
    """The text of an endpoint or file and its time, or an `error` that says why there is none."""

    location: str
    captured_ms: int
    text: str
    error: str | None = None
    is_listed: bool = False
    """Whether it is a file of a folder. Its client may have ended; if it has not changed recently, it was not read."""


@dataclass(frozen=True)
class Access:
    """How endpoints are read. A complete answer must arrive within timeout_ms, and must not be longer than most_bytes.

    By default, there is room for a full file of laglake's reporters (20 MB). A listed file that has not changed for
    max_age_ms counts as empty; if all values of another location are older, this is an error. The password is not
    shown by `repr`.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_ms: int = 10_000
    most_bytes: int = 32 * 1024 * 1024
    max_age_ms: int | None = None


def endpoint_name(url: str) -> str:
    """The name of an endpoint: without its password, and with a checksum instead of its query.

    An exporter may have one address for many processes, which differ only in the query.
    """
    query = url.partition("?")[2].partition("#")[0]
    return f"{redacted(url)}?{crc32(query.encode()):08x}" if query else redacted(url)


def from_endpoint(url: str, access: Access) -> Content:
    """The current answer of an HTTP endpoint: a scrape; if the URL ends in /jolokia, Jolokia's answer about BEANS.

    Redirects are not followed, because an answer must not make this machine send requests to other hosts.
    """
    if unknown := _unknown_ca_file(access.ca_file):
        return Content(endpoint_name(url), now_ms(), "", unknown)
    session = _Hasty(access.timeout_ms / 1000)
    try:
        with session, _asked(session, url, access) as answer:
            if not 200 <= answer.status_code < 300:
                return Content(endpoint_name(url), now_ms(), "", f"HTTP status {answer.status_code}")
            # Bytes are read as they arrive: a slow endpoint could take for ever to fill a chunk.
            chunks = iter(lambda: answer.raw.read1(CHUNK_BYTES, decode_content=True), b"")
            text = _decoded(_read_within_limits(chunks, access, time.monotonic()))
        error = None
    except (requests.RequestException, HTTPError, OSError, ValueError) as failure:
        text, error = "", str(failure) if isinstance(failure, _RefusedError) else why_unreadable(failure)
    if session.is_late:
        text, error = "", _late(access)
    return Content(endpoint_name(url), now_ms(), text, error)


def from_file(path: str, access: Access, folder: str | None = None) -> Content:
    """The text of a file, unpacked if its name ends in .gz or another of PACKED.

    Its time is the epoch ms in the file's name, or else when the file was last changed.

    A file that was listed in a `folder` must not have become a link since then. A file that the configuration names
    may be a link.
    """
    try:
        files, inside = open_filesystem(path)
        info = files.get_file_info(inside)
        found = EPOCH_MS.findall(info.base_name)
        changed_ms = to_epoch_ms(info.mtime) if info.mtime else now_ms()
        captured_ms = int(found[-1]) if found else changed_ms
        oldest_ms = now_ms() - access.max_age_ms if folder and access.max_age_ms is not None else None
        if oldest_ms is not None and max(captured_ms, changed_ms) < oldest_ms:
            return Content(redacted(path), captured_ms, "", is_listed=True)
        root = open_filesystem(folder)[1] if folder else None
        with open_unpacked(files, inside, root) as stream:
            chunks = iter(lambda: stream.read(CHUNK_BYTES), b"")
            text = _decoded(_read_within_limits(chunks, access, time.monotonic()))
    except FileNotFoundError:
        return Content(redacted(path), now_ms(), "", "no such file or folder")
    except (ConfigError, OSError, ValueError, pa.ArrowException) as error:
        reason = str(error) if isinstance(error, (_RefusedError, NotAFileError)) else why_unreadable(error)
        return Content(redacted(path), now_ms(), "", reason)
    return Content(redacted(path), captured_ms, text, is_listed=folder is not None)


def files_in(path: str) -> list[str]:
    """The files of a folder or URI and of its subfolders, sorted; if it is not a folder, the path itself.

    Links in the folder are left out: otherwise, anyone who may write there could name any file that this process may
    read.
    """
    try:
        files, inside = open_filesystem(path)
        if isinstance(files, fs.LocalFileSystem):
            names = list(_regular_in(inside)) if Path(inside).is_dir() else None
        else:
            found = files.get_file_info(fs.FileSelector(inside, recursive=True))
            names = [_path(info).removeprefix(inside.rstrip("/")) for info in found if info.type == fs.FileType.File]
    except (OSError, ValueError, pa.ArrowException):
        names = None
    if names is None:
        return [path]
    # A URI's query, such as the endpoint of a store, comes after the name. What follows a scheme will be read as a URI
    # again, in which some characters have another meaning.
    root, mark, query = path.partition("?") if is_uri(path) else (path, "", "")
    names = [quote(name, errors="surrogateescape") if is_uri(path) else name for name in names if name]
    return [f"{root.rstrip('/')}{name}{mark}{query}" for name in sorted(names)]


def _regular_in(folder: str) -> Iterator[str]:
    for inside, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(inside, name)  # noqa: PTH118 - a Path of each would take longer than reading it
            if stat.S_ISREG(os.lstat(file).st_mode):
                yield file.removeprefix(folder.rstrip("/"))


def _path(info: fs.FileInfo) -> str:
    try:
        return str(info.path)
    except UnicodeDecodeError:
        return ""


class _RefusedError(ValueError):
    """An answer that is too long or too slow."""


class _Hasty(requests.Session):
    """A session whose connections are all closed after some seconds; then `is_late` is true.

    The timeout of requests is for a single read, so it never ends a connection to an endpoint that sends its headers
    byte by byte. Proxies, certificates and passwords from the environment are not used for endpoints.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.is_late = False
        self.trust_env = False
        self._opened: list[socket.socket] = []
        self._timer = Timer(seconds, self._end)
        self._timer.daemon = True
        for scheme in ("http", "https"):
            self.mount(f"{scheme}://", _Adapter(self._opened_now))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """None: otherwise requests reads the whole answer to prepare a redirect that is never followed."""

    def _opened_now(self, connection: socket.socket) -> None:
        self._opened.append(connection)
        if self.is_late:
            raise TimeoutError

    def __enter__(self) -> _Hasty:
        self._timer.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._timer.cancel()
        self._timer.join()
        super().__exit__(*failure)
        for connection in self._opened:
            connection.close()

    def _end(self) -> None:
        self.is_late = True
        for connection in self._opened:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Adapter(HTTPAdapter):
    """Keeps a second handle of each connection that it opens, because TLS takes over the first one."""

    def __init__(self, opened: Callable[[socket.socket], None]) -> None:
        self._opened = opened
        super().__init__()

    def init_poolmanager(self, *sizes: Any, **options: Any) -> None:
        """As requests calls it."""
        super().init_poolmanager(*sizes, **options)
        self.poolmanager.pool_classes_by_scheme = {
            "http": _kept(HTTPConnectionPool, HTTPConnection, self._opened),
            "https": _kept(HTTPSConnectionPool, HTTPSConnection, self._opened),
        }


def _kept(pool: type[Any], connection: type[Any], opened: Callable[[socket.socket], None]) -> type[Any]:
    def connect(self: Any) -> socket.socket:
        made: socket.socket = connection._new_conn(self)  # noqa: SLF001 - before TLS, only this method has the socket
        try:
            opened(made.dup())
        except TimeoutError:
            made.close()
            raise
        return made

    return type("Pool", (pool,), {"ConnectionCls": type("Connection", (connection,), {"_new_conn": connect})})


def _asked(session: requests.Session, url: str, access: Access) -> requests.Response:
    asked = [{"type": "read", "mbean": bean} for bean in BEANS] if JOLOKIA.search(url) else None
    return session.request(
        "POST" if asked else "GET",
        f"{url.rstrip('/')}/" if asked else url,  # Jolokia 2 needs the slash
        json=asked,
        auth=(access.user, access.password or "") if access.user is not None else None,
        verify=access.ca_file or True,
        timeout=access.timeout_ms / 1000,
        allow_redirects=False,
        stream=True,
    )


def _unknown_ca_file(path: str | None) -> str | None:
    """Why there is no such file or folder; None if there is. The message of requests would hide the reason."""
    try:
        if path:
            Path(path).stat()
    except (OSError, ValueError) as error:
        return f"ca_file: {why_unreadable(error)}"
    return None


def _read_within_limits(chunks: Iterator[bytes], access: Access, begun_s: float) -> bytes:
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) > access.most_bytes:
            raise _RefusedError(f"longer than {access.most_bytes} bytes")
        if time.monotonic() - begun_s > access.timeout_ms / 1000:
            raise _RefusedError(_late(access))
    return bytes(found)


def _late(access: Access) -> str:
    return f"not read completely within {access.timeout_ms} ms"


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")
