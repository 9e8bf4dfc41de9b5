"""A page with all that makes it wide: long names, numbers of ten digits, errors, every status."""

from collections.abc import Sequence
from typing import Any

from pipeline.report.model.details import Finding
from pipeline.report.model.report import Group, Instant, Point
from pipeline.report.page.page import render
from pipeline.tables import OFFSET_STATUSES, UNKNOWN_OFFSET
from tests.helpers.reports import MINUTE, NOON, group, report

STATUSES = ("stopped", "stalled", "not_progressing", "rewound", "warning", "unknown", "not_committed", "ok")


def points(groups: Sequence[Group], instants: Sequence[Instant]) -> tuple[Point, ...]:
    return tuple(
        Point(
            "east",
            at.snapshot_id,
            g.group_id,
            n * 100 + i,
            int(i == 2),
            2_000 * i,
            int(i == 3),
            90_000,
            log_ends=60 * i,
            commits=30 * i,
            consumer_age_ms=120_000,
        )
        for n, g in enumerate(groups)
        for i, at in enumerate(instants)
    )


def crowded() -> str:
    """A page with all that makes the table of groups wide: long names, lags of ten digits, errors, every status."""
    long_name = "payments-service-europe-west-" + "x" * 100
    known: dict[str, Any] = {
        "max_consumer_lag": 1_234_567_890,
        "consumer_lag_stable": 1_234_567_890,
        "min_headroom": 1_234_567_890,
        "partitions": 1_234,
        "consumer_lag_bytes": 1_200_000_000,
        "bytes_error": 3_000_000,
        "consumer_lag_ms": 90_000,
        "time_error_ms": 100,
        "consumer_age_ms": 7_200_000,
        "age_error_ms": 60_000,
        "clients": 12,
        "members": 12,
        "client_id": long_name,
        "group_state": "CompletingRebalance",
        "status_since_ms": NOON,
        "status_partitions": 1,
    }
    lost = {"statuses": {"deleted_unread": 3, "ok": 9}, "unread_offsets": 1_234_567_890, "status": "stopped"}
    odd = dict.fromkeys((*OFFSET_STATUSES, UNKNOWN_OFFSET), 12)
    unknown = dict.fromkeys(("partitions_unknown", "stable_unknown", "bytes_unknown", "ms_unknown", "age_unknown"), 12)
    error = {"error": "LEADER_NOT_AVAILABLE", "rows_with_error": 12, "transaction_lag": 1_234_567_890}
    groups = [group(f"{status} {long_name}", 1_234_567_890, status=status, **known) for status in STATUSES]
    groups.append(group("lost", 1_234_567_890, **{**known, **lost, "min_headroom": -1_234_567_890}))
    groups.append(group("odd", 1_234_567_890, **{**known, **unknown, **error, "statuses": odd}))
    instants = tuple(Instant("east", NOON + i * MINUTE, 1, 3) for i in range(3))
    found = tuple(_finding(group_id, long_name) for group_id in (*(g.group_id for g in groups), None))
    return render(report(*groups, instants=instants, points=points(groups, instants), findings=found))


def _finding(group_id: str | None, name: str) -> Finding:
    """A finding with long names in all of its places."""
    evidence = {"groups": [name], "groups_affected": 1_234_567, "errors": [name], "reason": "no_members"}
    about = ("no_progress", "east", group_id, None, name, (0, 1), "critical", NOON, NOON, None, name, evidence, name)
    return Finding(*about, owner=name, finding_id="ab" * 32)
