"""Reads the lines that laglake/reporters/kafka_python.py has written about a consumer of kafka-python."""

from __future__ import annotations

import json
from typing import Any

from pipeline.client_positions.position import Position, count, stored_name
from pipeline.common.epoch import utc


def of_line(line: str) -> tuple[int, list[Position]]:
    """The epoch ms of a line, and its positions. Raises ValueError if the line is something else.

    The client's lag is records-lag-max, the largest lag of the last minute. A partition's lag counts to its high
    watermark as of the last fetch, as kafka-python itself computes it.
    """
    try:
        said = json.loads(line)
        at_ms = count(said["ts"])
        utc(at_ms)  # raises OverflowError if it is not a valid time
        client, group = stored_name(said["client_id"]), said["group_id"]
        group = None if group is None else stored_name(group)
        most = said["metrics"].get("records-lag-max")
        positions = [] if most is None else [Position(client, reported_lag=count(round(most)), group_id=group)]
        return at_ms, positions + [_position(client, group, partition) for partition in said["partitions"]]
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"not a line of a reporter: {error!r}") from error


def _position(client: str, group: str | None, partition: Any) -> Position:
    consumed, head, paused = count(partition["position"]), partition["highwater"], partition["paused"]
    if not isinstance(paused, bool):
        raise TypeError(f"{type(paused).__name__} instead of true or false")
    # A high watermark below the position is from before a seek, and is not used.
    is_known = head is not None and count(head) >= consumed
    return Position(
        client,
        topic=stored_name(partition["topic"]),
        partition=count(partition["partition"], below=2**31),
        consumed_offset=consumed,
        reported_lag=head - consumed if is_known else None,
        reported_end=head if is_known else None,
        is_paused=paused,
        group_id=group,
    )
