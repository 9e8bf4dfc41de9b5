"""Who can be judged in a cluster that is never read completely: one of its topics may be denied for good."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.findings.identity import Key
from pipeline.analytics.findings.known_findings import KnownFindings
from pipeline.common.epoch import MINUTE_MS, to_epoch_ms, utc, utc_date
from pipeline.config import LakeConfig
from pipeline.derive import compute_cluster
from pipeline.derive.backlog import Backlog, Snapshot
from pipeline.derive.judged import snapshots_judged, subjects_judged, with_partly_read
from pipeline.derive.log_index import Index
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import COMMITTED_OFFSETS, FINDINGS, GROUP_MEMBERS, GROUP_STATUS, SNAPSHOTS, WATERMARKS, Table
from tests.helpers.stored import store, stored

T0 = 1_769_860_800_000
DENIED = {"error": "TOPIC_AUTHORIZATION_FAILED"}
Rows = Mapping[Table, Sequence[Mapping[str, Any]]]
Write = Callable[[Rows], Lake]


def at(minute: int) -> int:
    return T0 + minute * MINUTE_MS


@pytest.fixture(params=["spark", "driver"])
def write(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Write:
    """Writes rows, each with the `minute` of its snapshot."""

    def written(rows: Rows) -> Lake:
        with for_few_rows(spark):
            lake = Lake(spark, LakeConfig(root=str(tmp_path)))
            lake.prepare()
            for table, some in rows.items():
                if table is FINDINGS:
                    store(lake, table, [as_stored(row) for row in some], "true")
                    continue
                dated = [
                    {name: value for name, value in row.items() if name != "minute"}
                    | {"cluster": "east", "snapshot_id": at(row["minute"]), "snapshot_date": utc_date(T0)}
                    for row in some
                ]
                store(lake, table, dated, of_snapshots("east", [*map(at, range(20))]))
        if request.param == "spark":
            vars(lake)["_driver"] = None
        return lake

    return written


# What could not be read, as the ledger says; the rows with an error; whether all groups can be judged, and all topics.
CASES: dict[str, tuple[list[str], Rows, bool, bool]] = {
    "nothing": ([], {}, True, True),
    "a topic": (["watermarks"], {WATERMARKS: [DENIED | {"topic": "t"}]}, True, True),
    "a commit": (["committed_offsets"], {COMMITTED_OFFSETS: [DENIED | {"group_id": "g", "topic": "t"}]}, True, True),
    "a group": (["committed_offsets", "lag"], {COMMITTED_OFFSETS: [DENIED | {"group_id": "g"}]}, True, False),
    "members": (["group_members"], {GROUP_MEMBERS: [DENIED | {"group_id": "g"}]}, True, True),
    "clients and members": (["client_positions", "group_members"], {GROUP_MEMBERS: [{"group_id": "g"}]}, True, True),
    "groups without names": (
        ["committed_offsets"],
        {COMMITTED_OFFSETS: [DENIED, DENIED | {"group_id": "g"}]},
        False,
        False,
    ),
    "members without names": (["group_members"], {GROUP_MEMBERS: [DENIED]}, False, False),
    "topics without names": (["watermarks"], {WATERMARKS: [DENIED]}, True, False),
    "a broker": (["broker", "watermarks"], {WATERMARKS: [DENIED | {"topic": "t"}]}, False, False),
    "quarantined rows": (["quarantine"], {}, False, False),
}


def test_a_snapshot_shows_all_groups_and_topics_if_each_error_names_one(write: Write) -> None:
    rows: dict[Table, list[Mapping[str, Any]]] = {}
    snapshots = []
    for minute, (unread, errors, _, _) in enumerate(CASES.values()):
        for table, some in errors.items():
            rows.setdefault(table, []).extend(row | {"minute": minute} for row in some)
        status = "partial" if unread else "complete"
        snapshots.append(Snapshot(at(minute), "r", status, 0, 0, 0, 0, 0, 0, unread))
    backlog = Backlog(snapshots[2:], snapshots[1::-1], cast(Index, None), has_more=False)
    judged, incomplete = snapshots_judged(write(rows), "east", backlog)
    found = {case: (at(minute) in judged["group"], at(minute) in judged["topic"]) for minute, case in enumerate(CASES)}
    assert found == {case: (groups, topics) for case, (_, _, groups, topics) in CASES.items()}
    assert sorted(judged["cluster"]) == [s.snapshot_id for s in snapshots]
    assert sorted(incomplete) == [s.snapshot_id for s in snapshots if s.unread]


def status(group: str, minute: int, partitions: int = 3, errors: int = 0, unknown: int = 0) -> dict[str, Any]:
    of = {"group_id": group, "partitions": partitions, "rows_with_error": errors, "partitions_unknown": unknown}
    return of | {"group_state": "Stable", "minute": minute}


# Case → which of a group's partitions are unknown in each minute, of how many; the instants of its open finding; where
# it can be judged afterwards, of the minutes 13 and 14.
PARTLY: dict[str, tuple[Callable[[int], tuple[int, int]], tuple[int, int, int], list[int]]] = {
    "a deleted topic, always": (lambda _minute: (1, 3), (0, 5, 12), [13, 14]),
    "a broker fails after it was last seen": (lambda minute: (int(minute > 12), 3), (0, 5, 12), []),
    "a broker fails before that": (lambda minute: (int(minute > 0), 3), (0, 5, 12), []),
    "it was worst before that": (lambda minute: (int(minute > 1), 3), (2, 1, 12), []),
    "a denied topic is read after that": (lambda minute: (int(minute > 12), 3 + (minute > 12)), (0, 5, 12), [13, 14]),
    "partly again": (lambda minute: (int(minute == 13), 3), (0, 5, 12), [14]),
    "nothing is known of that time any more": (lambda minute: (int(minute > 12), 3), (-3, -3, -3), []),
    "never known": (lambda _minute: (3, 3), (0, 5, 12), []),
    "not even its partitions": (lambda minute: (0, 3) if minute < 13 else (1, 0), (0, 5, 12), []),
}


def test_a_group_that_is_partly_read_can_be_judged_if_its_findings_had_nothing_to_do_with_the_rest(
    write: Write,
) -> None:
    groups = [
        status(case, minute, partitions, errors=unknown, unknown=min(unknown, partitions))
        for case, (of, _, _) in PARTLY.items()
        for minute in range(15)
        for unknown, partitions in [of(minute)]
    ]
    findings = [finding(case, *at_) for case, (_, at_, _) in PARTLY.items()]
    lake = write({GROUP_STATUS: groups, FINDINGS: findings})
    judged = {"group": [at(13), at(14)], "topic": [], "cluster": [at(13), at(14)]}
    found = subjects_judged(lake, "east", judged, [], {"no_progress"}, has_clients=False)
    with_parts = with_partly_read(lake, "east", found, findings)
    past = KnownFindings(whole=judged, others=with_parts)
    of_groups = {case: Key("no_progress", "east", case, None, None, None) for case in PARTLY}
    assert {case: past.judged_at(key) for case, key in of_groups.items()} == {
        case: [*map(at, minutes)] for case, (_, _, minutes) in PARTLY.items()
    }


def finding(group: str | None, first: int, worst: int, last: int, **values: Any) -> dict[str, Any]:
    of = {"cluster": "east", "finding_id": f"of {group}", "group_id": group, "client_id": None, "resolved_at": None}
    return of | {"first_seen": at(first), "worst_at": at(worst), "last_seen": at(last)} | values


# Case → a finding; whether a group of it, which always has the same unknown partition, is judged in minute 14.
WHOSE = {
    "of another group": (finding("h", 0, 0, 0), False),
    "resolved": (finding("g", 0, 0, 0, resolved_at=at(3)), False),
    "of a client": (finding(None, 0, 0, 0, client_id="c"), False),
    "of the group": (finding("g", 0, 0, 0), True),
}


def as_stored(finding: dict[str, Any]) -> dict[str, Any]:
    times = ("first_seen", "worst_at", "last_seen", "resolved_at")
    return finding | {name: finding[name] and utc(finding[name]) for name in times}


def test_only_findings_of_the_group_count(write: Write) -> None:
    groups = [status("g", minute, unknown=1) for minute in (0, 14)]
    lake = write({GROUP_STATUS: groups, FINDINGS: [one for one, _ in WHOSE.values()]})
    others = {"group g": {at(14): False}}
    found = {case: with_partly_read(lake, "east", others, [one]) for case, (one, _) in WHOSE.items()}
    assert found == {case: {"group g": {at(14): is_judged}} for case, (_, is_judged) in WHOSE.items()}
    assert others == {"group g": {at(14): False}}


def test_what_could_not_be_read_of_a_partial_snapshot_is_not_judged(write: Write) -> None:
    rows: Rows = {
        COMMITTED_OFFSETS: [
            DENIED | {"group_id": "unread", "minute": 1},
            DENIED | {"group_id": "g", "topic": "not in the metadata", "minute": 1},
            {"error": "UNKNOWN_TOPIC_OR_PARTITION", "group_id": "g", "topic": "deleted", "minute": 1},
        ],
        GROUP_MEMBERS: [DENIED | {"group_id": "not described", "minute": 1}],
        WATERMARKS: [DENIED | {"topic": "denied", "partition": p, "minute": 1} for p in (0, 1)],
    }
    judged = {name: [at(0), at(1)] for name in ("group", "topic", "cluster")}
    found = subjects_judged(write(rows), "east", judged, [at(1)], {"idle_member"}, has_clients=False)
    unread = [f"{of} unread" for of in ("group", "members", "assignments")]
    not_described = [f"{of} not described" for of in ("members", "assignments")]
    denied = ["topic denied", "topic not in the metadata"]
    assert found == {subject: {at(1): False} for subject in (*unread, *not_described, *denied)}


STOP, AGAIN, LAST = 2, 8, 14
"""Both groups stop after the second snapshot. Then one reads on, the other is deleted."""


def snapshot(number: int) -> dict[Table, list[dict[str, Any]]]:
    """Both groups have a commit in a topic that was deleted, so no snapshot is complete."""
    of = {"cluster": "east", "snapshot_id": at(15 * number), "snapshot_date": utc_date(at(15 * number))}
    of |= {"captured_at": utc(at(15 * number))}
    groups = ["kept"] + ["deleted"] * (number < AGAIN)
    read = 100 * number if number >= AGAIN else 100 * min(number, STOP)
    commits = [{"topic": "t", "committed_offset": read}, {"topic": "gone", "error": "UNKNOWN_TOPIC_OR_PARTITION"}]
    ends = dict.fromkeys(("last_stable_offset", "high_watermark", "log_end_offset"), 100 * number)
    log = {"topic": "t", "topic_id": "id", "partition": 0, "log_start_offset": 0, "leader": 1}
    landed = {
        GROUP_MEMBERS: [of | {"group_id": group, "group_type": "classic", "state": "Empty"} for group in groups],
        COMMITTED_OFFSETS: [of | {"group_id": group, "partition": 0} | one for group in groups for one in commits],
        WATERMARKS: [of | log | ends],
    }
    errors = [("committed_offsets", "kept and others", "UNKNOWN_TOPIC_OR_PARTITION", len(groups))]
    ledger = {"run_id": "r", "status": "partial", "errors": errors, "groups": len(groups)}
    counts = {table.name: len(rows) for table, rows in landed.items()}
    return landed | {SNAPSHOTS: [of | ledger | {"rows": counts}]}


def test_findings_end_although_no_snapshot_is_complete(spark: SparkSession, tmp_path: Path) -> None:
    snapshots = [snapshot(number) for number in range(LAST + 1)]
    with for_few_rows(spark):
        lake = Lake(spark, LakeConfig(root=str(tmp_path)))
        lake.prepare()
        for table in snapshots[0]:
            rows = [row for landed in snapshots for row in landed[table]]
            store(lake, table, rows, of_snapshots("east", [*map(at, range(0, 300, 15))]))
        compute_cluster(lake, "east", lambda: utc(at(300)), most=5)
        found = stored(lake, FINDINGS)
    resolved = {row.group_id: to_epoch_ms(row.resolved_at) for row in found if row.kind == "no_progress"}
    assert resolved == dict.fromkeys(("kept", "deleted"), at(15 * AGAIN))
    assert len(resolved) == sum(row.kind == "no_progress" for row in found)
