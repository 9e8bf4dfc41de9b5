"""Parses a line of a broker's request log: which request it has, and which offsets its FETCH request asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.client_positions.log_layouts import REQUEST
from pipeline.client_positions.position import count, integer, stored_name
from pipeline.client_positions.request_text import HEADER, request_of

API = '"requestApiKeyName"'
_API = re.compile(API + r'\s*:\s*"(\w+)"')
READ = ("FETCH", "OFFSET_COMMIT", "METADATA")
"""The requests that say something about a consumer. A log has many others, such as PRODUCE, which are not parsed."""
NEW_SESSION, _LAST_OF_SESSION = 0, -1
"""Session epochs of full requests: one that begins a session, and one that ends a session or has none."""
# The remote address in SocketServer's connection names, <local>:<port>-<remote>:<port>-<processor>-<number>.
_CONNECTION = re.compile(r".*:\d+-(.+):\d+(?:-\d+){1,2}")
_LONGEST_CONNECTION = 300
_INT32 = 2**31
Partition = tuple[str, int]
Instance = tuple[str, str | None]
"""A client.id and the address that it connects from: several processes may have the same client.id."""


@dataclass(frozen=True)
class Fetch:
    """A FETCH request. The session is the one that it begins or continues, or 0 for none."""

    session: int
    ends: int  # the session that it ends
    is_full: bool
    epoch: int
    sent_ms: int
    offsets: dict[Partition, int]
    forgotten: list[Partition]
    bytes: int | None  # None if the log does not have the size of the records


def api_of(text: str) -> str | None:
    """The API of the request in a line; None if the line has no request. Raises ValueError if its form is not known."""
    begin = text.find(REQUEST)
    if begin < 0:
        return None
    begin += len(REQUEST)
    # Searching for a word is cheaper than parsing, and most lines are those of producers.
    is_json = text.startswith("{", begin)
    found = _API.match(text, text.find(API, begin)) if is_json and API in text else HEADER.match(text, begin)
    if not found:
        raise ValueError("not a line of Kafka's request log: its request is neither Kafka's JSON nor Kafka's text")
    return found[1]


def request_in(text: str) -> Any:
    """The request in a line that has one, in the form of KIP-673. Raises RecursionError or ValueError."""
    begin = text.index(REQUEST) + len(REQUEST)
    if not text.startswith("{", begin):
        return request_of(text[begin:])
    # What follows the request depends on the layout: the logger, the thread.
    request, _ = json.JSONDecoder().raw_decode(text, begin)
    return request


def fetch_of(line: Mapping[str, Any], ended_ms: int) -> Fetch:
    """The request in a line that was written at `ended_ms`. Raises KeyError, TypeError or ValueError if it has none."""
    request, response, took_ms = line["request"], line["response"], round(line["totalTimeMs"])
    if not 0 <= took_ms <= ended_ms:
        raise ValueError("totalTimeMs")
    epoch = integer(request.get("sessionEpoch", _LAST_OF_SESSION))
    is_full = epoch in (NEW_SESSION, _LAST_OF_SESSION)  # before KIP-227 there are no others
    left = [] if is_full else request["forgottenTopicsData"]
    session = integer(request.get("sessionId", 0))
    return Fetch(
        session=integer(response.get("sessionId", 0)) if is_full else session,
        ends=session if is_full else 0,
        is_full=is_full,
        epoch=NEW_SESSION if is_full else epoch,
        sent_ms=ended_ms - took_ms,
        offsets={
            (_topic(topic), count(p["partition"], _INT32)): count(p["fetchOffset"])
            for topic, p in _partitions(request["topics"])
        },
        forgotten=[(_topic(topic), count(p, _INT32)) for topic, p in _partitions(left)],
        bytes=_bytes_of(response.get("responses")),
    )


def _bytes_of(responses: list[Any] | None) -> int | None:
    """The size of the records in an answer; None if the line does not have it."""
    if responses is None:
        return None
    return sum(max(0, integer(p.get("recordsSizeInBytes", 0), _INT32)) for _, p in _partitions(responses))


def _partitions(topics: list[Any]) -> Iterator[tuple[Any, Any]]:
    return ((topic, partition) for topic in topics for partition in topic["partitions"])


def _topic(topic: Mapping[str, Any]) -> str:
    """The topic's id, or in versions before 13 its name."""
    return stored_name(topic.get("topicId") or topic["topic"])


def remote_address(connection: str | None) -> str | None:
    """The remote address of a connection; None if the line does not have it in Kafka's format."""
    parts = _CONNECTION.fullmatch(connection or "") if len(connection or "") <= _LONGEST_CONNECTION else None
    return stored_name(parts[1]) if parts else None


def replica_id(request: Mapping[str, Any]) -> int:
    """The id of the follower that asks; -1 for a consumer, for which version 15 and later have no id."""
    return integer(request.get("replicaId", request.get("replicaState", {}).get("replicaId", -1)))
