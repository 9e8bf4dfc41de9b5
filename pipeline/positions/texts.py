"""Texts from endpoints and files, in bounded time and memory. What cannot be had is a text with an error."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import requests
from pyarrow import fs
from urllib3.exceptions import HTTPError

from pipeline.kafka.log_dirs import resolved, shown

CHUNK_BYTES = 256 * 1024
JOLOKIA = re.compile(r"/jolokia/?$")
BEANS = (
    "kafka.consumer:type=consumer-fetch-manager-metrics,*",
    "kafka.consumer:type=ConsumerFetcherManager,*",
    "kafka.consumer:type=ZookeeperConsumerConnector,*",
    "kafka.server:type=FetcherLagMetrics,*",
    "kafka.server:type=FetcherStats,*",
)
"""What Jolokia is asked for, all in one request."""
EPOCH_MS = re.compile(r"(?<!\d)(\d{13})(?!\d)")
"""The epoch ms in the name of a file, as of which it is."""


class Text(NamedTuple):
    """What a place says and when it was read there, or in `error` why it says nothing."""

    place: str
    captured_ms: int
    text: str
    error: str | None = None


@dataclass(frozen=True)
class Access:
    """How endpoints are read. All of an answer must have come after timeout_ms, and be no longer than most_bytes.

    A password is kept out of the representation.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_ms: int = 10_000
    most_bytes: int = 100 * 1024 * 1024


def from_endpoint(url: str, access: Access) -> Text:
    """What an HTTP endpoint answers now: a scrape, or of one that ends in /jolokia, its answer to a read of BEANS."""
    begun_s = time.monotonic()
    try:
        with _asked(url, access) as answer:
            if not answer.ok:
                return Text(shown(url), _now_ms(), "", f"HTTP status {answer.status_code}")
            # As it comes: waiting for a chunk to be full, a slow endpoint's could take for ever.
            chunks = iter(lambda: answer.raw.read1(CHUNK_BYTES, decode_content=True), b"")
            text = _decoded(_bounded(chunks, access, begun_s))
    except (requests.RequestException, HTTPError, OSError, ValueError) as error:  # whose text may repeat a password
        reason = str(error) if isinstance(error, _RefusedError) else type(error).__name__
        return Text(shown(url), _now_ms(), "", reason)
    return Text(shown(url), _now_ms(), text)


def from_file(path: str, access: Access) -> Text:
    """What a file says, unpacked if its name says so; as of the epoch ms in its name, or of its last change."""
    try:
        files, inside = resolved(path)
        info = files.get_file_info(inside)
        found = EPOCH_MS.findall(info.base_name)
        changed_ms = int(info.mtime.timestamp() * 1000) if info.mtime else _now_ms()
        captured_ms = int(found[-1]) if found else changed_ms
        with files.open_input_stream(inside) as stream:
            chunks = iter(lambda: stream.read(CHUNK_BYTES), b"")
            text = _decoded(_bounded(chunks, access, time.monotonic()))
    except FileNotFoundError:
        return Text(shown(path), _now_ms(), "", "no such file or folder")
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = str(error) if isinstance(error, _RefusedError) else type(error).__name__
        return Text(shown(path), _now_ms(), "", reason)
    return Text(shown(path), captured_ms, text)


def files_in(path: str) -> list[str]:
    """The files of a folder or URI and of its folders, sorted; or what is no folder, as it is."""
    try:
        files, inside = resolved(path)
        found = files.get_file_info(fs.FileSelector(inside, recursive=True))
    except (OSError, ValueError, pa.ArrowException):
        return [path]
    root = path.rstrip("/")
    return sorted(root + info.path.removeprefix(inside.rstrip("/")) for info in found if info.type == fs.FileType.File)


class _RefusedError(ValueError):
    """An answer that is too long or too slow."""


def _asked(url: str, access: Access) -> requests.Response:
    asked = [{"type": "read", "mbean": bean} for bean in BEANS] if JOLOKIA.search(url) else None
    return requests.request(
        "POST" if asked else "GET",
        f"{url.rstrip('/')}/" if asked else url,  # Jolokia 2 knows no other form
        json=asked,
        auth=(access.user, access.password or "") if access.user is not None else None,
        verify=access.ca_file or True,
        timeout=access.timeout_ms / 1000,
        stream=True,
    )


def _bounded(chunks: Iterator[bytes], access: Access, begun_s: float) -> bytes:
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) > access.most_bytes:
            raise _RefusedError(f"longer than {access.most_bytes} bytes")
        if time.monotonic() - begun_s > access.timeout_ms / 1000:
            raise _RefusedError(f"not read whole within {access.timeout_ms} ms")
    return bytes(found)


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
