"""How far consumed and fetched offsets are from the truth, in recordings of real clients.

The truth is the position that each application itself printed, about once a second. The error of a value is its
distance from the positions printed just before and just after it. For fetched offsets, the only independent truth is
their order: not before the position, and not beyond the log's end.
"""

from __future__ import annotations

import csv
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from pipeline.config import Config
from pipeline.lake import Lake
from pipeline.replay import replay
from pipeline.tables import LAG

ARCHIVES = Path("tests/data/recordings")
POSITIONS = {
    "modern-b": ("aggregator/positions.csv", "ledger/positions.csv"),
    "modern-b-slow": ("worker-1/positions.csv",),
    "librdkafka": ("positions.csv",),
    "request-log": ("positions.csv",),
}
"""The recordings, and where the positions of their applications are."""
AGENT_MS = 1_000
"""How long an agent may take to answer."""
Printed = dict[tuple[str, str, int], list[tuple[int, int]]]


@dataclass
class Rung:
    """The results for one rung in one recording: the errors of the known values, and how many could have been known."""

    asked: int = 0
    off: list[int] = field(default_factory=list)


def table(lake: Lake, config: Config, folder: Path) -> str:
    """The rows of docs/accuracy.md, in Markdown."""
    lines = [
        "| recording | rung | rows | known | off: median, p99, max (records) | exact |",
        "|---|---|---|---|---|---|",
    ]
    for recording, files in POSITIONS.items():
        with tarfile.open(ARCHIVES / f"{recording}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        replay(lake, config, folder / recording, recording, lambda: datetime.now(UTC))
        printed = _printed(folder / recording / file for file in files)
        rows = lake.read(LAG).where(F.col("cluster") == recording).collect()
        for name, rung in _rungs(rows, printed).items():
            if rung.off:
                exact = sum(off == 0 for off in rung.off) / len(rung.off)
                spread = ", ".join(str(_quantile(rung.off, q)) for q in (0.5, 0.99, 1.0))
                known = len(rung.off) / rung.asked
                lines.append(f"| {recording} | {name} | {rung.asked} | {known:.1%} | {spread} | {exact:.1%} |")
    return "\n".join(lines)


def _printed(files: Iterator[Path]) -> Printed:
    found: Printed = defaultdict(list)
    for file in files:
        with file.open() as lines:
            for row in csv.DictReader(lines):
                partition = row["client_id"], row["topic"], int(row["partition"])
                found[partition].append((int(row["ts"]), int(row["position"])))
    return {partition: sorted(positions) for partition, positions in found.items()}


def _rungs(rows: Sequence[Any], printed: Printed) -> dict[str, Rung]:
    rungs = {"consumed": Rung(), "fetched": Rung()}
    for row in rows:
        positions = printed.get((row["client_id"], row["topic"], row["partition"]), [])
        before = [p for at_ms, p in positions if at_ms <= row["snapshot_id"]]
        after = [p for at_ms, p in positions if at_ms >= row["snapshot_id"] + AGENT_MS]
        # A partition that was never polled has no position.
        if not before or not after or not before[-1]:
            continue
        consumed, fetched = row["consumed_offset"], row["fetched_offset"]
        earlier = [p for at_ms, p in positions if at_ms <= row["snapshot_id"] - AGENT_MS]
        for name, value, low, high in (
            ("consumed", consumed, before[-1], after[0]),
            ("fetched", fetched, earlier[-1] if earlier else 0, max(row["high_watermark"], after[0])),
        ):
            rungs[name].asked += 1
            if value is not None:
                rungs[name].off.append(max(low - value, value - high, 0))
    return rungs


def _quantile(values: Sequence[int], part: float) -> int:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
