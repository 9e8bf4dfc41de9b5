"""For confluent-kafka: writes the statistics of librdkafka into a file, which `librdkafka_statistics` reads.

Consumer({..., "statistics.interval.ms": 15000, "stats_cb": StatisticsFile("/var/log/app/statistics/app.jsonl")})
"""

from __future__ import annotations

import os
import time

from laglake.reporters.rotating import RotatingLines


class StatisticsFile:
    """A callback that appends `{"ts": epoch ms of the call, "statistics": the JSON from librdkafka}`.

    It is called only by `poll`: if an application does not poll, its statistics wait, and are all written at its next
    poll. The `time` in the statistics says when they were true. Path and limits are those of RotatingLines. Consumers
    in one process may share it.
    """

    def __init__(self, path: str | os.PathLike[str], most_bytes: int = 20_000_000, files: int = 5) -> None:
        self._lines = RotatingLines(path, most_bytes, files)

    def __call__(self, statistics: str) -> None:
        """Appends a line. Never raises an exception."""
        self._lines.append(f'{{"ts": {time.time_ns() // 1_000_000}, "statistics": {statistics}}}')
