"""Predicates in SQL that Spark and DataFusion (delta-rs) both read, and instants as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime
from functools import partial


def utc_date(snapshot_id: int) -> date:
    """The UTC date of an instant in epoch ms."""
    return datetime.fromtimestamp(snapshot_id / 1000, UTC).date()


def utc_text(snapshot_id: int) -> str:
    """An instant in epoch ms as ISO 8601 writes it: 2026-01-31T12:05:00Z."""
    return datetime.fromtimestamp(snapshot_id / 1000, UTC).isoformat().replace("+00:00", "Z")


def quoted(text: str) -> str:
    """A text as a literal in SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def of_cluster(cluster: str) -> str:
    """The predicate of the rows of one cluster."""
    return f"cluster = '{cluster}'"


def of_dates(cluster: str, dates: Iterable[date]) -> str:
    """The predicate of some days of one cluster; it names the partitions, so that other files are not read."""
    days = ", ".join(f"DATE'{day}'" for day in sorted({*dates}))
    return f"{of_cluster(cluster)} AND snapshot_date IN ({days})" if days else "false"


def of_snapshots(cluster: str, snapshot_ids: Collection[int]) -> str:
    """The predicate of some snapshots of one cluster; it names the partitions, so that other files are not read."""
    if not snapshot_ids:
        return "false"
    ids = ", ".join(map(str, snapshot_ids))
    return f"{of_dates(cluster, map(utc_date, snapshot_ids))} AND snapshot_id IN ({ids})"


def of_windows(cluster: str, starts_ms: Iterable[int], window_ms: int) -> str:
    """The predicate of some windows of one cluster; it names the partitions, so that other files are not read."""
    starts = list(starts_ms)
    if not starts:
        return "false"
    instants = ", ".join(f"TIMESTAMP'{datetime.fromtimestamp(s / 1000, UTC).isoformat()}'" for s in starts)
    dates = of_dates(cluster, map(utc_date, starts))
    return f"{dates} AND window_ms = {window_ms} AND window_start IN ({instants})"


def of_each(wanted: Mapping[str, Collection[int]], *, windows: bool = False) -> str:
    """The predicate of some snapshots of each cluster; of a table of windows, of those that are a snapshot each."""
    of = partial(of_windows, window_ms=0) if windows else of_snapshots
    return " OR ".join(f"({of(cluster, ids)})" for cluster, ids in wanted.items()) or "false"
