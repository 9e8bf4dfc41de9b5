"""Readers at one snapshot, and the problems that are found in them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.analytics.findings.group_problems import OF_GROUPS, find_group_problems
from pipeline.analytics.findings.suspects import find_suspects
from pipeline.common.rows import Rows
from pipeline.config.status import StatusConfig
from pipeline.tables import GROUP_STATUS, LAG, PARTITION_STATUS, WATERMARKS, Table
from tests.helpers.rows import few_rows
from tests.helpers.worded import worded_rows

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_769_860_800_000
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
THEN_MS = NOW_MS - 600_000
THEN = NOW - timedelta(minutes=10)
SINCE = NOW - timedelta(hours=2)
TRANSACTION = "transaction_producer_id transaction_start_offset transaction_timestamp_ms"
READER = "snapshot_id group_id topic partition"
Reader = tuple[str, str, int]
OK: Reader = ("fine", "t", 0)


class Scene:
    """Readers at one snapshot: each is `ok`, keeps up and has read all, unless said otherwise."""

    def __init__(self) -> None:
        self.lag: dict[Reader, dict[str, Any]] = {}
        self.status: dict[Reader, dict[str, Any]] = {}
        self.then: dict[Reader, dict[str, Any]] = {}
        self.topics: dict[str, tuple[str, int | None]] = {}
        self.retention_bytes: int | None = None
        self.newest_record_ms: int | None = None
        self.group_lag: dict[str, int] = {}
        self.held: dict[tuple[str, int], tuple[Any, ...]] = {}
        self.offsets_retention_ms: int | None = 7 * DAY_MS
        self.add(OK)

    def add(self, reader: Reader, status: str = "ok", reason: str | None = None, **lag: Any) -> None:
        rungs = {"log_start_offset": 0, "committed_offset": 100, "high_watermark": 100, "consumer_lag": 0}
        times = {"captured_at": NOW, "committed_captured_at": NOW, "offset_status": "ok"}
        self.lag[reader] = rungs | times | lag
        self.status[reader] = {"status": status, "reason": reason, "since": SINCE, "captured_at": NOW}

    def without_members(self, reader: Reader, seen: datetime | None, commit: datetime | None = None) -> None:
        self.status[reader] |= {"has_members": False, "members_seen_at": seen, "commit_since": commit}

    def newest(self, group: str, name: str) -> Any:
        """The newest of a group's times, as GROUP_STATUS has it."""
        values = (row.get(name) for reader, row in self.status.items() if reader[0] == group)
        return max((value for value in values if value is not None), default=None)

    def uncommitted(self, group: str) -> int:
        """In how many partitions a group has no commit."""
        return sum(reader[0] == group and row["offset_status"] == "no_commit" for reader, row in self.lag.items())

    def waiting(self, reader: Reader, unread: int, status: str = "stopped", **more: Any) -> None:
        end = {"high_watermark": 100 + unread, "consumer_lag": unread, "consumer_lag_bytes": 1_000 * unread}
        self.add(reader, status, **{**end, "consumer_age_ms": 2 * HOUR_MS, **more})


def groups_of(scene: Scene) -> Rows:
    """The groups now and ten minutes ago."""
    names = {reader[0] for reader in scene.lag}
    sizes = [(NOW_MS, group, sum(reader[0] == group for reader in scene.lag)) for group in sorted(names)]
    sums = "snapshot_id group_id partitions log_ends commits ends_at captured_at"
    types = {reader[0]: row.get("group_type") for reader, row in scene.lag.items()}
    of_members = ("members_seen_at", "commit_since")
    now = (
        (
            *(*size, 7_000, 5_000, NOW, NOW, scene.group_lag.get(size[1]), types[size[1]]),
            *(scene.newest(size[1], name) for name in of_members),
            [("no_commit", scene.uncommitted(size[1]))],
        )
        for size in sizes
    )
    then = ((THEN_MS, group, partitions, 1_000, 2_000, THEN, THEN, *(None,) * 5) for _, group, partitions in sizes)
    names = f"{sums} consumer_lag group_type {' '.join(of_members)} offset_statuses"
    return few_rows(GROUP_STATUS, names, *now, *then).chosen(OF_GROUPS)


def suspects_of(scene: Scene) -> Rows:
    """The readers that may have a problem."""

    def rows(table: Table, values: dict[Reader, dict[str, Any]], at_ms: int = NOW_MS) -> Rows:
        names = sorted({name for row in values.values() for name in row})
        found = [(at_ms, *reader, *(row.get(name) for name in names)) for reader, row in values.items()]
        return few_rows(table, " ".join([READER, *names]), *found)

    known = {(topic, partition) for _, topic, partition in scene.lag if topic is not None}
    unknown = (None,) * len(TRANSACTION.split())
    logs = [
        (
            *(NOW_MS, *log, scene.offsets_retention_ms),
            *scene.topics.get(str(log[0]), ("delete", 7 * DAY_MS)),
            scene.retention_bytes,
            scene.newest_record_ms,
            *scene.held.get(log, unknown),
        )
        for log in sorted(known, key=str)
    ]
    settings = "offsets_retention_ms cleanup_policy retention_ms retention_bytes max_timestamp_ms"
    parts = {
        "lag": rows(LAG, scene.lag),
        "statuses": rows(PARTITION_STATUS, scene.status),
        "watermarks": few_rows(WATERMARKS, f"snapshot_id topic partition {settings} {TRANSACTION}", *logs),
        "earlier": rows(LAG, scene.then, THEN_MS),
    }
    return find_suspects(parts, {NOW_MS: THEN_MS}, StatusConfig())


def problems(scene: Scene) -> dict[tuple[str, str | None, str | None], dict[str, Any]]:
    """The problems by kind, group and topic."""
    found = find_group_problems(suspects_of(scene), groups_of(scene), {NOW_MS: THEN_MS}, StatusConfig())
    texts = worded_rows(found.collected_table())
    whose = {(row["cluster"], row["snapshot_id"], row["client_id"], row["instance"]) for row in texts}
    assert whose <= {("east", NOW_MS, None, None)}
    by_key = {(row["kind"], row["group_id"], row["topic"]): row for row in texts}
    assert len(by_key) == len(texts)
    return {key: row | {"evidence": json.loads(row["evidence"])} for key, row in by_key.items()}


def moved(start: int, commit: int, **more: Any) -> dict[str, Any]:
    return {
        "topic_id": "A",
        "log_start_offset": start,
        "committed_offset": commit,
        "high_watermark": 800,
        "captured_at": THEN,
        "committed_captured_at": THEN,
    } | more
