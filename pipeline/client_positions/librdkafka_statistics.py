"""Reads the output of librdkafka's statistics callback: nearly the whole ladder of a client, in one JSON object.

The clients for C, Go, .NET and Rust, and confluent-kafka for Python, are built on librdkafka. See its STATISTICS.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.client_positions.position import Position, count, integer, stored_name

_UNKNOWN = -1
_GIVEN_UP = ("none", "stopping", "stopped")
"""The values of fetch_state of a partition that the client does not have, not yet or no longer."""


def parsed(line: str) -> Any:
    """The parsed JSON text. Raises ValueError if it is not JSON, or is nested too deeply."""
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("not librdkafka's statistics: nested too deeply") from None


def of_parsed(statistics: Any) -> list[Position]:
    """The positions in one consumer's parsed statistics. Raises ValueError if they are something else.

    The queue of fetched records is shared by all partitions, and librdkafka repeats it for each of them; here it is
    given once, for the client. An unknown lag is -1 there. The statistics do not say whether a partition is paused.
    """
    try:
        client = _client_id(statistics)
        if statistics["type"] != "consumer":
            return []
        partitions = list(_partitions(statistics))
        buffered = max((count(p["fetchq_size"]) for _, p in partitions), default=0)
        return [
            Position(client, buffered_bytes=buffered, bytes_total=_counted(statistics.get("rxmsg_bytes"))),
            *(_fetcher(client, broker) for broker in statistics["brokers"].values() if broker["nodeid"] >= 0),
            *(_position(client, topic, partition) for topic, partition in partitions),
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not librdkafka's statistics: {error!r} is missing or wrong") from error


def _client_id(statistics: Mapping[str, Any]) -> str:
    """The client.id. Before 0.11.5 it is only in the name of the instance, such as rdkafka#consumer-1."""
    if "client_id" in statistics:
        return stored_name(statistics["client_id"])
    name, mark, _ = stored_name(statistics["name"]).rpartition("#")
    if not mark:
        raise KeyError("client_id")
    return name


def _fetcher(client: str, broker: Mapping[str, Any]) -> Position:
    """A broker and the requests to it. Before 1.0 its address is only in its name, such as kafka-1:9092/1."""
    name = broker["nodename"] if "nodename" in broker else stored_name(broker["name"]).rpartition("/")[0]
    return Position(client, fetcher=stored_name(name), requests_total=_counted(broker.get("req", {}).get("Fetch")))


def _counted(number: Any) -> int | None:
    """A counter; None in a version that does not have it: an offset is true without it."""
    return None if number is None else count(number)


def _partitions(statistics: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The assigned partitions. Partition -1 is internal to librdkafka.

    librdkafka goes on listing a partition that was revoked, with the offset that it fetched last: a client that had
    given a partition away was once reported at offset 100, while its new owner had read up to 286.
    """
    for name, topic in statistics["topics"].items():
        for partition in topic["partitions"].values():
            is_assigned = partition.get("desired", True) and partition["fetch_state"] not in _GIVEN_UP
            if partition["partition"] >= 0 and is_assigned:
                yield name, partition


def _position(client: str, topic: str, partition: Mapping[str, Any]) -> Position:
    consumed = _known(partition["app_offset"])
    # Not consumer_lag: before version 1.7 it counts from another offset, and its end depends on isolation.level.
    return Position(
        client,
        topic=stored_name(topic),
        partition=count(partition["partition"], below=2**31),
        fetched_offset=_fetched(partition, consumed),
        consumed_offset=consumed,
        reported_lag=_known(partition["consumer_lag"]),
        reported_end=_known(partition.get("hi_offset", _UNKNOWN)),
        reported_stable_end=_known(partition.get("ls_offset", _UNKNOWN)),
        bytes_total=_counted(partition.get("rxbytes")),
    )


def _fetched(partition: Mapping[str, Any], consumed: int | None) -> int | None:
    """The next offset to fetch; None while the client looks up where to begin.

    Until then next_offset is 0, or is left from an earlier assignment (rd_kafka_toppar_fetch_decide).
    """
    fetched = _known(partition["next_offset"])
    if fetched is None or partition["fetch_state"] != "active":
        return None
    # next_offset is updated a moment later than app_offset, but what the application has got was fetched.
    return fetched if consumed is None else max(fetched, consumed)


def _known(offset: Any) -> int | None:
    """An offset or a lag; None if it is negative, which in librdkafka means unknown."""
    return integer(offset) if offset >= 0 else None
