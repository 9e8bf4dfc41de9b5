"""The queries of docs/queries.md in Spark and in DuckDB, and the page's Python code on a lake."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from pipeline.lake import Lake
from pipeline.lake.lake_tables import stored_columns
from pipeline.tables import (
    CLIENT_DIVERGENCE,
    COMPUTED,
    FINDINGS,
    GROUP_STATUS,
    LAG,
    LAG_ROLLUP,
    PARTITION_STATUS,
    SNAPSHOTS,
)
from tests.conftest import ROOT
from tests.helpers.both_engines import Found, Rows, ask_both, code_of, queries_of, values
from tests.helpers.reports import MINUTE, frame

QUERIES = queries_of("queries.md")
BLOCKS = code_of("queries.md")
TUESDAY = datetime(2026, 3, 3, 12, tzinfo=UTC)


def at(minute: int) -> datetime:
    """An instant on that Tuesday, in minutes after noon."""
    return TUESDAY + timedelta(minutes=minute)


def row(minute: int, cluster: str = "east", **more: Any) -> dict[str, Any]:
    """The columns that name a snapshot, and others."""
    named = {"cluster": cluster, "snapshot_id": int(at(minute).timestamp() * 1000), "snapshot_at": at(minute)}
    return named | {"snapshot_date": at(minute).date(), "captured_at": at(minute)} | more


def group(minute: int, group_id: str, age: int | None, size: int | None = None, **more: Any) -> dict[str, Any]:
    """A row of group_status with an age in minutes and a lag in bytes."""
    age_ms = None if age is None else age * MINUTE
    known = {"consumer_age_ms": age_ms, "age_error_ms": 600, "age_unknown": int(age is None), "partitions_unknown": 0}
    return row(minute, group_id=group_id, consumer_lag_bytes=size, bytes_error=7, consumer_lag=size, **known, **more)


def reader(minute: int, group_id: str, partition: int = 0, **more: Any) -> dict[str, Any]:
    named = {"group_id": group_id, "topic": "t", "topic_id": "i", "partition": partition, "offset_status": "ok"}
    return row(minute, **(named | more))


def reader_status(minute: int, group_id: str, partition: int, status: str, **more: Any) -> dict[str, Any]:
    return row(minute, group_id=group_id, topic="t", partition=partition, status=status, **more)


def lost(minute: int, start: int, committed: int, consumed: int | None, **more: Any) -> dict[str, Any]:
    rungs = {"log_start_offset": start, "committed_offset": committed, "consumed_offset": consumed}
    return reader(minute, "late", offset_status="deleted_unread", **rungs, **more)


def finding(kind: str, first: int, last: int | None, **more: Any) -> dict[str, Any]:
    ends = {"first_seen": at(first), "resolved_at": None if last is None else at(last), "severity": "critical"}
    return {"cluster": "east", "finding_id": f"{kind}{first}{more}", "kind": kind, **ends} | more


def gauge(minute: int, verdict: str | None, hidden: int | None, client: str = "c", **more: Any) -> dict[str, Any]:
    named = {"group_id": "g", "client_id": client, "instance": "i"}
    return row(minute, verdict=verdict, hidden_lag=hidden, **named, **more)


def snapshots() -> list[dict[str, Any]]:
    """Of east, minute 1 is partial, 2 and 3 are missing, and 5 failed; the lag of 6 is not computed yet."""
    statuses = {0: "complete", 1: "partial", 4: "complete", 5: "failed", 6: "complete"}
    east = [row(minute, status=status, schedule_ms=MINUTE) for minute, status in statuses.items()]
    return [*east, row(0, "west", status="complete", schedule_ms=MINUTE)]


DAY = 24 * 60
ROLLED_UP = {"cluster": "east", "topic": "t", "snapshot_date": date(2025, 9, 2), "window_ms": 86_400_000}
JSON = '{"victim_topics":["a","b"]}'


def groups() -> list[dict[str, Any]]:
    """`late` gets later each minute and is not known at minute 5; `fine` keeps up; `dark` is never known."""
    return [
        *(group(minute, "late", minute, 1_000 * minute, owner="a", tier="1") for minute in range(5)),
        group(5, "late", None),
        *(group(minute, "fine", 0, 0) for minute in range(6)),
        group(3, "dark", None),
        group(-DAY, "before", 90, 1),
    ]


def readers() -> list[dict[str, Any]]:
    """`late` loses records for three snapshots; one of its partitions has no leader."""
    return [
        reader(2, "late", consumer_lag=5),
        reader(4, "late", consumer_lag=9_999),
        reader(
            3, "late", 0, consumer_lag=50, consumer_lag_bytes=500, bytes_error=3, consumer_age_ms=9, time_error_ms=1
        ),
        reader(3, "late", 1, offset_status="no_watermark", error="LEADER_NOT_AVAILABLE"),
        lost(10, start=100, committed=40, consumed=None),
        lost(11, start=120, committed=40, consumed=None),
        lost(12, start=120, committed=40, consumed=60),
        lost(-30 * DAY, start=9, committed=1, consumed=None),
    ]


def partitions() -> list[dict[str, Any]]:
    """One partition of `late` does not move, and that of a group without an owner."""
    return [
        reader_status(3, "late", 0, "stalled", since=at(1), consumer_lag=50),
        reader_status(3, "late", 1, "ok"),
        reader_status(3, "dark", 0, "stopped", consumer_lag=7),
        reader_status(2, "late", 1, "stalled"),
    ]


def gauges() -> list[dict[str, Any]]:
    """Of `c`, each verdict once, and one of eight days before."""
    return [
        gauge(0, "truthful", 0),
        gauge(1, "blind", 900, queue_records=40),
        gauge(2, "stale", 800, queue_records=50),
        gauge(3, None, None),
        gauge(-8 * DAY, "blind", 9_999),
        gauge(0, "truthful", 3, client="other"),
    ]


def findings() -> list[dict[str, Any]]:
    """Those of `a` have two culprits and a loss, that of `b` is still open; one has no owner."""
    return [
        finding("blocked_connector", -DAY, 5, topic="slow", client_id="c", magnitude=70.0, evidence=JSON, owner="a"),
        finding("slow_consumer", 3, None, topic="slower", client_id="d", magnitude=90.0, owner="b", severity="warning"),
        finding("slow_consumer", 4, None, client_id="e", magnitude=99.0),
        finding("slow_consumer", -3 * DAY, -2 * DAY, topic="old", magnitude=5.0, owner="a"),
        finding("deleted_unread", 10, 20, group_id="late", topic="t", partitions=[0, 2], magnitude=80.0, owner="a"),
        finding("idle_member", 10, 20, group_id="idle", owner="b", severity="info"),
    ]


def rolled_up() -> list[dict[str, Any]]:
    """A day of `late`, with an hour of it, and another day."""
    return [
        ROLLED_UP | {"group_id": "late", "partition": 0, "last_consumer_lag": 5, "max_consumer_age_ms": 90 * MINUTE},
        ROLLED_UP | {"group_id": "late", "partition": 1, "last_consumer_lag": 7, "max_consumer_age_ms": MINUTE},
        ROLLED_UP | {"group_id": "late", "partition": 2, "max_consumer_age_ms": None},
        ROLLED_UP | {"group_id": "late", "partition": 3, "last_consumer_lag": 5 - 2**63, "last_consumer_lag_bytes": -9},
        ROLLED_UP | {"group_id": "late", "partition": 0, "last_consumer_lag": 999, "window_ms": 3_600_000},
        ROLLED_UP | {"group_id": "late", "snapshot_date": date(2025, 9, 3), "last_consumer_lag": 999},
    ]


def rows() -> Rows:
    """The tables that the page asks."""
    done = [row(minute, job="lag") for minute in (0, 1, 4)] + [row(0, "west", job="lag")]
    return {
        "snapshots": (SNAPSHOTS, snapshots()),
        "computed": (COMPUTED, done),
        "group_status": (GROUP_STATUS, groups()),
        "partition_status": (PARTITION_STATUS, partitions()),
        "lag": (LAG, readers()),
        "client_divergence": (CLIENT_DIVERGENCE, gauges()),
        "findings": (FINDINGS, findings()),
        "lag_rollup": (LAG_ROLLUP, rolled_up()),
    }


FOUND: Found = {
    "newest": (["cluster", "snapshot_at"], [("east", at(4)), ("west", at(0))]),
    "missing": (
        ["cluster", "snapshot_at", "what", "instants"],
        [
            ("east", at(1), "no snapshot after it", 2),
            ("east", at(1), "partial", 1),
            ("east", at(4), "no snapshot after it", 1),
        ],
    ),
    "behind": (
        [
            *("cluster", "group_id", "minutes", "minutes_error", "worst_at", "bytes", "bytes_error", "records"),
            *("snapshots_behind", "unknown", "snapshots"),
        ],
        [("east", "late", 4, 0.01, at(4), 4_000, 7, 4_000, 3, 1, 6)],
    ),
    "at_instant": (
        ["group_id", "partition", "captured_at", "consumer_lag", "bytes_error", "offset_status", "error"],
        [
            ("late", 0, at(3), 50, 3, "ok", None),
            ("late", 1, at(3), None, None, "no_watermark", "LEADER_NOT_AVAILABLE"),
        ],
    ),
    "blocked": (
        ["client_id", "slow_topic", "kind", "resolved_at", "evidence"],
        [("c", "slow", "blocked_connector", at(5), JSON), ("d", "slower", "slow_consumer", None, None)],
    ),
    "trusted": (
        ["client_id", "snapshots", "truthful", "blind", "stale", "unjudged", "hidden_at_most", "queue_records"],
        [("c", 4, 1, 1, 1, 1, 900, 50), ("other", 1, 1, 0, 0, 0, 3, None)],
    ),
    "lost": (["group_id", "topic", "partitions", "owner", "records"], [("late", "t", [0, 2], "a", 80)]),
    "lost_offsets": (
        ["group_id", "partition", "first_lost", "last_lost", "first_seen"],
        [("late", 0, 40, 119, at(10)), ("late", 0, 60, 119, at(12))],
    ),
    "owners": (
        ["owner", "findings", "critical", "still_open", "groups"],
        [("a", 3, 3, 0, 1), ("b", 1, 0, 1, 0), ("no rule matches", 1, 1, 1, 0)],
    ),
    "partitions_of_owners": (
        ["owner", "tier", "group_id", "topic", "partition", "status", "since", "consumer_lag"],
        [("a", "1", "late", "t", 0, "stalled", at(1), 50), (None, None, "dark", "t", 0, "stopped", None, 7)],
    ),
    "long_ago": (
        ["group_id", "records_at_the_end", "bytes_at_the_end", "minutes", "unknown", "beyond_the_end"],
        [("late", 12, 0, 90, 1, 1)],
    ),
}


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> dict[str, list[pd.DataFrame]]:
    """What Spark and DuckDB answer to each query."""
    return ask_both(spark, rows(), QUERIES)


@pytest.fixture
def code(spark: SparkSession, lake: Lake, tmp_path: Path) -> list[str]:
    """The page's blocks of Python, about a lake that has the rows."""
    root = tmp_path / "lake"
    for name, (table, some) in rows().items():
        stored = frame(spark, table, *some).select(*stored_columns(table))
        write_deltalake(root / name, stored.toArrow(), mode="append")
    return [block.replace("/lake", str(root)) for block in BLOCKS]


def test_each_query_of_the_page_is_tested() -> None:
    assert QUERIES.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("engine", [0, 1], ids=["spark", "duckdb"])
def test_a_query_finds_what_it_should(answers: dict[str, list[pd.DataFrame]], name: str, engine: int) -> None:
    columns, expected = FOUND[name]
    assert values(answers[name][engine], columns) == sorted(expected, key=str)


def test_the_topics_in_the_evidence_can_be_taken_out(spark: SparkSession) -> None:
    in_spark, in_duckdb = "get_json_object(evidence, '$.victim_topics')", "evidence ->> '$.victim_topics'"
    page = (ROOT / "docs" / "queries.md").read_text("utf-8")
    assert in_spark in page
    assert in_duckdb in page
    of_one = f"SELECT '{JSON}' AS evidence"
    assert spark.sql(f"SELECT {in_spark} FROM ({of_one})").collect()[0][0] == '["a","b"]'
    assert duckdb.sql(f"SELECT {in_duckdb} FROM ({of_one})").fetchall() == [('["a","b"]',)]


@pytest.mark.thorough
def test_the_code_of_the_page_opens_a_lake_in_each_engine(code: list[str], spark: SparkSession) -> None:
    in_spark, in_duckdb, in_pandas = code
    made: dict[str, Any] = {}
    for block in (in_spark, in_duckdb, in_pandas):
        exec(block, made)
    assert made["spark"] is spark
    for name, (columns, expected) in FOUND.items():
        for found in (spark.sql(QUERIES[name]).toPandas(), made["duck"].sql(QUERIES[name]).df()):
            assert values(found, columns) == sorted(expected, key=str), name
    worst = made["worst"].set_index("group_id")
    assert worst.consumer_age_ms.to_dict() == {"late": 4 * MINUTE, "fine": 0}
    assert len(made["tuesday"]) == 13
