"""What a broker's request log tells: where each client fetches from, in the lines of kafka.request.logger at DEBUG.

A FETCH request has the offset that its client fetches next: the fetched rung itself. With incremental fetch sessions
(KIP-227) it lists only what has changed since the one before, so that the rest is remembered by session.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pipeline.positions.position import Position, whole

_LINE = re.compile(
    r"\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] \w+ Completed request:(?P<request>\{.*\})(?: \([\w.]+\))?\s*"
)
# Where most lines are those of producers, looking for three words saves reading them.
_READ = ('"requestApiKeyName":"FETCH"', '"requestApiKeyName":"OFFSET_COMMIT"', '"requestApiKeyName":"METADATA"')
_NEW_SESSION, _LAST_OF_SESSION = 0, -1
"""Session epochs of a full request: one that begins a session, and one that ends it or has none."""
Place = tuple[str, int]


@dataclass
class _Client:
    """What one client has asked for."""

    offsets: dict[Place, tuple[int, int]] = field(default_factory=dict)  # next offset to fetch, and as of when
    groups: set[str] = field(default_factory=set)
    requests: int = 0
    bytes: int = 0


class RequestLog:
    """The positions of all clients of one broker, from its log read line by line.

    A topic is known by id until a METADATA line gives its name; `topics` are names by id that are known already.
    """

    def __init__(self, topics: Mapping[str, str] | None = None) -> None:
        self.topics = dict(topics or {})
        self._clients: dict[str, _Client] = defaultdict(_Client)
        self._sessions: dict[int, tuple[str, dict[Place, int]]] = {}

    def read(self, line: str) -> None:
        """Take one line in. Raises ValueError where a line of a request is not what Kafka writes."""
        if not any(word in line for word in _READ):
            return
        parts = _LINE.fullmatch(line)
        if not parts:
            raise ValueError(f"no line of Kafka's request log: {line[:80]!r}")
        try:
            request = json.loads(parts["request"])
            header, ended_ms = request["requestHeader"], _epoch_ms(parts["at"])
            if header["requestApiKeyName"] == "FETCH":
                self._fetch(request, ended_ms - round(request["totalTimeMs"]))
            elif header["requestApiKeyName"] == "OFFSET_COMMIT":
                self._clients[header["clientId"]].groups.add(request["request"]["groupId"])
            else:
                known = (t for t in request["response"]["topics"] if t.get("name") and t.get("topicId"))
                self.topics |= {topic["topicId"]: topic["name"] for topic in known}
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError) as error:
            raise ValueError(f"no line of Kafka's request log: {error!r} is missing or wrong") from error

    def positions(self) -> list[Position]:
        """Where every client is: itself with its counters, and each partition that it has fetched, as of then.

        The group is NULL for a client that has not committed, or has for several groups.
        """
        found = []
        for client_id, client in self._clients.items():
            group = next(iter(client.groups)) if len(client.groups) == 1 else None
            if client.requests:
                requests, size = client.requests, client.bytes
                found.append(Position(client_id, group_id=group, requests_total=requests, bytes_total=size))
            # A topic that was recreated has another id, and one name: what was asked last counts.
            places: dict[Place, tuple[int, int]] = {}
            for (topic, partition), (offset, as_of_ms) in client.offsets.items():
                place = (self.topics.get(topic, topic), partition)
                if place not in places or as_of_ms >= places[place][1]:
                    places[place] = (offset, as_of_ms)
            found += [
                Position(client_id, None, topic, partition, offset, group_id=group, as_of_ms=as_of_ms)
                for (topic, partition), (offset, as_of_ms) in places.items()
            ]
        return found

    def _fetch(self, line: Mapping[str, Any], sent_ms: int) -> None:
        request, response = line["request"], line["response"]
        if _replica(request) >= 0:
            return  # a follower's
        client_id, epoch = str(line["requestHeader"]["clientId"]), request.get("sessionEpoch", _LAST_OF_SESSION)
        asked = {_place(topic, p): whole(p["fetchOffset"]) for topic, p in _partitions(request["topics"])}
        size = sum(whole(p.get("recordsSizeInBytes", 0)) for _, p in _partitions(response["responses"]))
        session = request.get("sessionId", 0)
        before: dict[Place, int] = {}
        if epoch in (_NEW_SESSION, _LAST_OF_SESSION):  # before KIP-227 there are no others
            self._sessions.pop(session, None)
            session = response.get("sessionId", 0)
        else:
            owner, before = self._sessions.get(session, (client_id, {}))
            before = before if owner == client_id else {}
            left = {(_topic(topic), p) for topic in request["forgottenTopicsData"] for p in topic["partitions"]}
            before = {place: offset for place, offset in before.items() if place not in left}
        # What a session still has and does not list is fetched from the offset that it had.
        offsets = before | asked
        if session:
            self._sessions[session] = (client_id, offsets)
        client = self._clients[client_id]
        client.offsets |= {place: (offset, sent_ms) for place, offset in offsets.items()}
        client.requests += 1
        client.bytes += size


def _partitions(topics: list[Any]) -> Iterator[tuple[Any, Any]]:
    return ((topic, partition) for topic in topics for partition in topic["partitions"])


def _place(topic: Mapping[str, Any], partition: Mapping[str, Any]) -> Place:
    return _topic(topic), whole(partition["partition"])


def _topic(topic: Mapping[str, Any]) -> str:
    """Its id; its name in versions before 13."""
    return str(topic.get("topicId") or topic["topic"])


def _replica(request: Mapping[str, Any]) -> int:
    """The follower that asks; -1 for a consumer, which version 15 and later leave out."""
    return int(request.get("replicaId", request.get("replicaState", {}).get("replicaId", -1)))


def _epoch_ms(text: str) -> int:
    """Kafka's log has the local time of its machine, which should be UTC."""
    return round(datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC).timestamp() * 1000)
