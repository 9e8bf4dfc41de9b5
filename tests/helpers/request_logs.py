"""Reads request logs without Spark, and writes their files as log4j does."""

import gzip
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.client_positions.position_rows import POSITIONS
from pipeline.client_positions.request_log_source import RequestLogSource

Rows = list[dict[str, Any]]
CLIENTS = {"shop-agg-1", "ledger-rc", "ledger-ru"}


def reported(*paths: Path, state: Path | None = None, batch: object = None, **options: str) -> Rows:
    """What is read without Spark; sorted, because the order has no meaning."""
    options |= {"path": ",".join(map(str, paths))}
    if state:
        options |= {"state": str(state), "batch": str(batch)}
    reader = RequestLogSource(options).reader(POSITIONS)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(rows, key=str)


def errors(rows: Rows) -> list[str]:
    return [row["error"] for row in rows if row["error"]]


def positions(rows: Rows) -> dict[tuple[str, str, int], int]:
    return {(r["client_id"], r["topic"], r["partition"]): r["fetched_offset"] for r in rows if r["topic"]}


def written_at(line: str) -> datetime:
    """When a line was written, by its own time."""
    return datetime.fromisoformat(line[1:24].replace(",", ".")).replace(tzinfo=UTC)


def append(log: Path, content: bytes) -> None:
    with log.open("ab") as file:
        file.write(content)


def roll_over(log: Path, number: int, packed: bool) -> None:
    """Rolls the log over, as log4j does every hour; the file may then be compressed."""
    rolled = log.rename(log.with_name(f"{log.name}.2026-11-21-{number:02}"))
    if packed:
        rolled.with_name(f"{rolled.name}.gz").write_bytes(gzip.compress(rolled.read_bytes()))
        rolled.unlink()


def reported_of(lines: Sequence[str], folder: Path) -> Rows:
    """What is read from one file of lines."""
    (folder / "one.log").write_text("".join(lines))
    return reported(folder / "one.log")
