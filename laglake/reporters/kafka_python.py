"""For kafka-python: writes a consumer's positions and fetch metrics into a file, which `kafka_client_metrics` reads.

positions = PositionsFile("/var/log/app/metrics/app.jsonl")
positions.watch(consumer)
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import weakref

from kafka import KafkaConsumer

from laglake.reporters.rotating import RotatingLines


class PositionsFile:
    """Appends a line for each watched consumer every interval_s seconds, whether or not the application polls.

    {"ts": epoch ms, "client_id": …, "group_id": … or null,
     "metrics": {"records-lag-max": …, …},
     "partitions": [{"topic": …, "partition": …, "position": …, "highwater": … or null, "paused": …}, …]}

    Metrics are kafka-python's fetch metrics that are not about a single topic and have a value, with kafka-python's own
    names. It has no lag by partition and no totals. A position is the offset after the last record that was handed out;
    partitions without a position are left out. highwater is as of the last fetch, which may be long ago if a partition
    is paused. Path and limits are those of RotatingLines.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        interval_s: float = 15.0,
        most_bytes: int = 20_000_000,
        files: int = 5,
    ) -> None:
        self._lines = RotatingLines(path, most_bytes, files)
        self._interval_s = interval_s

    def watch(self, consumer: KafkaConsumer) -> None:
        """Reports a consumer until it is closed. Give it a `client_id`, because by default all have the same."""
        watched = weakref.ref(consumer)
        threading.Thread(target=self._report, args=(watched,), name="laglake-positions", daemon=True).start()

    def _report(self, watched: weakref.ref[KafkaConsumer]) -> None:
        while True:
            time.sleep(self._interval_s)
            if not self._reported(watched()):
                return

    def _reported(self, consumer: KafkaConsumer | None) -> bool:
        if consumer is None or consumer._closed:  # noqa: SLF001 - nothing public says so
            return False
        reported = {
            "ts": time.time_ns() // 1_000_000,
            "client_id": consumer.config["client_id"],
            "group_id": consumer.config["group_id"],
            "metrics": _metrics(consumer),
            "partitions": _partitions(consumer),
        }
        self._lines.append(json.dumps(reported))
        return True


def _metrics(consumer: KafkaConsumer) -> dict[str, float]:
    # A copy made for other threads, or None if metrics are switched off.
    registered = consumer.metrics(raw=True) or {}
    values = {
        name.name: metric.value()
        for name, metric in registered.items()
        if name.group.endswith("-fetch-manager-metrics") and "topic" not in name.tags
    }
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _partitions(consumer: KafkaConsumer) -> list[dict[str, str | int | None]]:
    """The assigned partitions that have a position.

    consumer.position() may only be called by the application's thread: it may ask brokers, and raise errors that poll()
    should raise. So this reads the state from which the consumer itself commits, under its lock.
    """
    subscription = consumer._subscription  # noqa: SLF001
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "position": position.offset,
            "highwater": state.highwater,
            "paused": state.paused,
        }
        for partition, position in subscription.all_consumed_offsets().items()
        if (state := subscription.assignment.get(partition))  # None if it was revoked just now
    ]
