"""Parses a line of a broker's request log: when it was written, and which offsets its FETCH request asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import Any

from pipeline.client_positions.position import count, integer, stored_name
from pipeline.common.epoch import to_epoch_ms

LINE = re.compile(r"\[[^]]+\] \w+ Completed request:(\{.*\})(?: \([\w.]+\))?\s*")
_TIME = re.compile(r"\[(20\d\d-\d\d-\d\d \d\d:\d\d):(\d\d),(\d{3})\]")
API = '"requestApiKeyName":"'
# If most lines are those of producers, searching for three words is cheaper than parsing all lines.
READ = tuple(f'{API}{name}"' for name in ("FETCH", "OFFSET_COMMIT", "METADATA"))
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
    bytes: int


def times_ms(line: str, zone: tzinfo) -> tuple[int, int] | None:
    """When a line was written, epoch ms; None if it has no time.

    In the hour that occurs twice when summer time ends, the two results are those for its first and its second
    occurrence.
    """
    parts = _TIME.match(line)
    minutes = _minute_ms(parts[1], zone) if parts else None
    if not parts or not minutes:
        return None
    rest_ms = int(parts[2]) * 1_000 + int(parts[3])
    return minutes[0] + rest_ms, minutes[1] + rest_ms


@lru_cache(4_096)
def _minute_ms(minutes: str, zone: tzinfo) -> tuple[int, int] | None:
    try:
        minute = datetime.strptime(minutes, "%Y-%m-%d %H:%M").replace(tzinfo=zone)
    except ValueError:
        return None
    first, second = (to_epoch_ms(minute.replace(fold=fold)) for fold in (0, 1))
    # In the hour that does not exist when summer time begins, fold counts backwards; then there is no second result.
    return first, max(first, second)


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
        bytes=sum(
            max(0, integer(p.get("recordsSizeInBytes", 0), _INT32)) for _, p in _partitions(response["responses"])
        ),
    )


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
