"""For confluent-kafka: the statistics of librdkafka in a file, from which `librdkafka_statistics` reads them.

Consumer({..., "statistics.interval.ms": 15000, "stats_cb": StatisticsFile("/var/log/app/statistics/app.jsonl")})
"""

from __future__ import annotations

import os
import time

from laglake.reporters.rotating import RotatingLines


class StatisticsFile:
    """A callback that appends `{"ts": epoch ms of the call, "statistics": the JSON as librdkafka gave it}`.

    It is called by `poll` alone: in an application that does not poll, statistics wait, and are all reported at its
    next poll. Their own `time` says of when they are. Path and bounds are those of RotatingLines; consumers of one
    process may share it.
    """

    def __init__(self, path: str | os.PathLike[str], most_bytes: int = 20_000_000, files: int = 5) -> None:
        self._lines = RotatingLines(path, most_bytes, files)

    def __call__(self, statistics: str) -> None:
        """Append a line. Raises nothing."""
        self._lines.append(f'{{"ts": {time.time_ns() // 1_000_000}, "statistics": {statistics}}}')
