"""The queries of docs/alerts.md and docs/forecasts.md in Spark and in DuckDB: both find what is wrong, and only it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from pipeline.tables import FINDINGS, FORECASTS, GROUP_CHANGES, GROUP_STATUS, SNAPSHOTS
from tests.helpers.both_engines import Found, ask_both, queries_of, values
from tests.helpers.reports import MINUTE, NOON, at, snapshot

QUERIES = queries_of("alerts.md", "forecasts.md", "findings.md")
MINUTES = 5


def group(minute: int, group_id: str, status: str, cluster: str = "east", **more: Any) -> dict[str, Any]:
    """A row of group_status: each minute brings 100 records."""
    named = {"cluster": cluster, "group_id": group_id, "snapshot_id": NOON + minute * MINUTE, "since": at(0)}
    sums = {"status": status, "partitions": 1, "log_ends": 1_000 + 100 * minute, "consumer_age_ms": 1_000}
    sums |= {"age_unknown": 0, "partitions_unknown": 0}
    lag = 1_000 + 100 * minute - more.get("commits", 0)
    return {**named, **sums, "consumer_lag": lag, **more}


def groups(minute: int) -> list[dict[str, Any]]:
    """`dead` has stopped, `again` for two snapshots, `slow` reads 150 records a minute; west has no newer snapshots."""
    last, late = MINUTES - 1, {"consumer_age_ms": 90_000}
    rows = [
        group(minute, "fine", "ok", commits=1_000 + 100 * minute),
        group(minute, "dead", "stopped", commits=500, consumer_age_ms=60_000 * (minute + 1)),
        group(minute, "again", "stopped" if minute >= last - 1 else "ok", commits=900, consumer_age_ms=None),
        group(minute, "half", "ok", commits=1_000 + 100 * minute, **(late if minute == 1 else {"age_unknown": 1})),
        group(minute, "slow", "ok", commits=500 + 150 * minute),
    ]
    return rows if minute == last else [*rows, group(minute, "west-dead", "stalled", "west", commits=1)]


def change(minute: int, group_id: str, kind: str, after: str | None = None, cluster: str = "east") -> dict[str, Any]:
    named = {"cluster": cluster, "group_id": group_id, "snapshot_id": NOON + minute * MINUTE}
    return {**named, "change": kind, "after": after}


def changes() -> list[dict[str, Any]]:
    """`slow` and `again` rebalance all the time; `fine` once, `half` only seems to."""
    return [
        *(
            change(minute, "slow", kind)
            for minute, kind in ((0, "joined"), (1, "left"), (1, "moved"), (4, "restarted"))
        ),
        *(change(minute, "again", "state", state) for minute, state in ((1, "PreparingRebalance"), (2, "Stable"))),
        *(change(minute, "again", "state", "CompletingRebalance") for minute in (3, 4)),
        *(change(2, "fine", kind) for kind in ("left", "left", "moved", "epoch")),
        *(change(minute, "half", "commits_removed") for minute in range(MINUTES)),
        *(change(minute, "west-dead", "left", cluster="west") for minute in (0, 1)),
    ]


def forecasts() -> list[dict[str, Any]]:
    """Of the forecasts of the first snapshot, that of `soon` came true, `early` was too early, `open` is not known yet.

    `slow` and `stuck` do not catch up; west has no newer snapshots.
    """

    def of(
        minute: int, group_id: str, *in_minutes: int | None, reason: str | None = None, **more: Any
    ) -> dict[str, Any]:
        names = ("caught_up_in_ms", "caught_up_in_low_ms", "caught_up_in_high_ms")
        times = (None if value is None else value * MINUTE for value in in_minutes)
        lag = 0 if in_minutes[0] == 0 else 600
        named = {"cluster": "east", "group_id": group_id, "snapshot_id": NOON + minute * MINUTE, "consumer_lag": lag}
        rates = {"written_per_s_5m": 100.0, "committed_per_s_5m": 150.0, "reason": reason}
        return named | dict(zip(names, times, strict=True)) | rates | more

    never = {"reason": "never_at_this_rate"}
    return [
        of(0, "soon", 3, 2, 5),
        of(0, "early", 1, 1, 1),
        of(0, "open", 9, 2, 20),
        of(2, "early", 1, 1, 1),
        of(3, "soon", 0, 0, 0),
        of(4, "early", 3, 2, 5),
        of(4, "open", 9, 2, None),
        of(4, "open", 99, 90, None, topic="t"),
        of(4, "soon", 0, 0, 0),
        of(4, "slow", None, 300, None, **never),
        of(4, "stuck", None, None, None, **never),
        of(4, "stuck", None, None, None, **never, topic="t"),
        of(4, "new", None, None, None, reason="too_little_history"),
        of(4, "long", 90, 61, 200),
        of(3, "west-slow", None, 70, None, **never, cluster="west"),
    ]


def losing(group_id: str, kind: str, magnitude: float) -> dict[str, Any]:
    """A finding of a group."""
    return {"finding_id": group_id, "group_id": group_id, "kind": kind, "magnitude": magnitude, "first_seen": at(1)}


def stopped(group_id: str, magnitude: float, **more: Any) -> dict[str, Any]:
    """A finding of a group that has stopped with others in t."""
    grouped = {"cause_id": "c0ffee", "cause_since": at(0), "grouped_at": at(2), "topic": "t"}
    words = {"summary": f"{group_id} has stopped", "owner": "pay", "last_seen": at(4)}
    return losing(group_id, "no_progress", magnitude) | grouped | words | more


def rows() -> dict[str, Any]:
    now = datetime.now(UTC)
    ended = [("east", 2, 1), ("east", 1, 90), ("dead", 1, 60)]
    finding = {"cluster": "east", "client_id": "c", "kind": "slow_consumer", "first_seen": at(1)}
    of_group = {"cluster": "east", "severity": "critical", "resolved_at": None}
    return {
        "group_status": (GROUP_STATUS, [row for minute in range(MINUTES) for row in groups(minute)]),
        "group_changes": (GROUP_CHANGES, changes()),
        "forecasts": (FORECASTS, forecasts()),
        "findings": (
            FINDINGS,
            [
                finding | {"finding_id": "1", "severity": "critical", "resolved_at": None},
                finding | {"finding_id": "2", "severity": "critical", "resolved_at": at(2)},
                finding | {"finding_id": "3", "severity": "info", "resolved_at": None},
                of_group | losing("lost", "deleted_unread", 15.0),
                of_group | losing("past", "deleted_unread", 15.0) | {"resolved_at": at(2)},
                of_group | losing("soon", "data_loss_ahead", -90.0 * MINUTE),
                of_group | losing("without_members", "commits_expire", -60.0 * MINUTE) | {"severity": "warning"},
                of_group | losing("stuck", "no_progress", 15.0),
                of_group | stopped("a", 5.0) | {"resolved_at": at(3)},
                of_group | stopped("b", 7.0, owner=None),
                of_group | stopped("d", 6.0, first_seen=at(2)),
                of_group | stopped("late", 1.0, cause_id="d1ff", kind="data_loss_ahead") | {"resolved_at": at(3)},
                of_group | stopped("later", -1.0, cause_id="d1ff", kind="data_loss_ahead") | {"resolved_at": at(4)},
            ],
        ),
        "snapshots": (
            SNAPSHOTS,
            [
                *(snapshot(m, cluster=c) | {"finished_at": now - timedelta(minutes=ago)} for c, m, ago in ended),
                snapshot(2, "failed", cluster="dead") | {"finished_at": now},
                snapshot(2, "failed", cluster="never") | {"finished_at": now},
            ],
        ),
    }


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> dict[str, list[pd.DataFrame]]:
    """What Spark and DuckDB answer to each query."""
    return ask_both(spark, rows(), QUERIES)


FOUND: Found = {
    "stuck": (
        ["cluster", "group_id", "status"],
        [("east", "again", "stopped"), ("east", "dead", "stopped"), ("west", "west-dead", "stalled")],
    ),
    "lasting": (
        ["cluster", "group_id", "status"],
        [("east", "dead", "stopped"), ("west", "west-dead", "stalled")],
    ),
    "losing": (
        ["group_id", "kind", "records_lost", "minutes_left"],
        [
            ("lost", "deleted_unread", 15, None),
            ("soon", "data_loss_ahead", None, 90),
            ("without_members", "commits_expire", None, 60),
        ],
    ),
    "catching_up": (
        ["group_id", "written_per_s_5m", "in_minutes", "at_the_latest", "reason"],
        [
            ("early", 100, 3, 5, None),
            ("open", 100, 9, None, None),
            ("slow", 100, None, None, "never_at_this_rate"),
            ("stuck", 100, None, None, "never_at_this_rate"),
            ("new", 100, None, None, "too_little_history"),
            ("long", 100, 90, 200, None),
            ("west-slow", 100, None, None, "never_at_this_rate"),
        ],
    ),
    "too_late": (
        ["cluster", "group_id", "at_the_earliest", "reason"],
        [
            ("east", "slow", 300, "never_at_this_rate"),
            ("east", "stuck", None, "never_at_this_rate"),
            ("east", "long", 61, None),
            ("west", "west-slow", 70, "never_at_this_rate"),
        ],
    ),
    "came_true": (
        ["group_id", "came_ms", "held"],
        [("soon", 3 * MINUTE, True), ("early", None, False), ("open", None, None)],
    ),
    "promise": (["group_id", "kept", "unknown"], [("dead", 0, 0), ("half", 0, 4)]),
    "wrong": (
        ["kind", "severity", "group_id", "groups_open"],
        [
            ("slow_consumer", "critical", None, 0),
            ("deleted_unread", "critical", "lost", 1),
            ("data_loss_ahead", "critical", "soon", 1),
            ("commits_expire", "warning", "without_members", 1),
            ("no_progress", "critical", "stuck", 1),
            ("stopped_together", "critical", None, 2),
        ],
    ),
    "causes": (
        ["cause_id", "kind", "groups", "owner", "first_seen", "resolved_at", "magnitude", "worst_summary"],
        [
            ("1", "slow_consumer", 0, None, at(1), None, None, None),
            ("2", "slow_consumer", 0, None, at(1), at(2), None, None),
            ("3", "slow_consumer", 0, None, at(1), None, None, None),
            ("lost", "deleted_unread", 1, None, at(1), None, 15, None),
            ("past", "deleted_unread", 1, None, at(1), at(2), 15, None),
            ("soon", "data_loss_ahead", 1, None, at(1), None, -90 * MINUTE, None),
            ("without_members", "commits_expire", 1, None, at(1), None, -60 * MINUTE, None),
            ("stuck", "no_progress", 1, None, at(1), None, 15, None),
            ("c0ffee", "stopped_together", 3, None, at(2), None, 18, "b has stopped"),
            ("d1ff", "data_loss_ahead", 2, "pay", at(2), at(4), 1, "late has stopped"),
        ],
    ),
    "rebalancing": (
        ["group_id", "snapshots", "with_rebalance", "members_joined", "members_left", "members_restarted"],
        [("slow", 5, 3, 1, 1, 1), ("again", 5, 3, 0, 0, 0)],
    ),
    "silent": (["cluster", "last_status"], [("dead", "failed"), ("never", "failed")]),
}


def test_each_query_of_the_page_is_tested() -> None:
    assert QUERIES.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("engine", [0, 1], ids=["spark", "duckdb"])
def test_a_query_finds_only_what_it_should(answers: dict[str, list[pd.DataFrame]], name: str, engine: int) -> None:
    columns, expected = FOUND[name]
    assert values(answers[name][engine], columns) == sorted(expected, key=str)
