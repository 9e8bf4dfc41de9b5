"""The queries of docs/dashboards.md and docs/faq.md in Spark and in DuckDB, and the script for Prometheus."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import write_deltalake
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from pipeline.lake.lake_tables import stored_columns
from pipeline.tables import FINDINGS, GROUP_STATUS, LAG_HISTOGRAMS, SNAPSHOTS
from tests.conftest import ROOT
from tests.helpers.both_engines import Found, Rows, ask_both, queries_of, values
from tests.helpers.reports import frame

QUERIES = queries_of("dashboards.md", "faq.md")
NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)
HOUR_MS = 3_600_000


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def row(when: datetime, cluster: str = "east", **more: Any) -> dict[str, Any]:
    """The columns that name a snapshot, and others."""
    named = {"cluster": cluster, "snapshot_id": int(when.timestamp() * 1000), "snapshot_at": when}
    return named | {"snapshot_date": when.date()} | more


def group(when: datetime, name: str, age: int | None, owner: str | None = None, **more: Any) -> dict[str, Any]:
    """A row of group_status with an age in seconds; if it is not known, one partition is not."""
    unknown = {"partitions_unknown": int(age is None), "age_unknown": 0, "bytes_unknown": 0}
    known = {"consumer_age_ms": age and 1_000 * age, "consumer_lag_bytes": age, "consumer_lag": age, "status": "ok"}
    return row(when, group_id=name, owner=owner, **(unknown | known | more))


def histogram(hour: int, zeros: int, count: int, window_ms: int = HOUR_MS, **more: Any) -> dict[str, Any]:
    counted = {"window_start": at(60 * hour), "window_ms": window_ms, "zero_count": zeros, "count": count}
    chosen = {"scope": "cluster", "measure": "consumer_lag", "null_count": 3}
    return {"cluster": "east", "snapshot_date": at(60 * hour).date()} | counted | chosen | more


def finding(number: int, kind: str, days: int, severity: str = "warning", cause: str | None = None) -> dict[str, Any]:
    of = {"cluster": "east", "finding_id": f"f{number}", "cause_id": cause, "kind": kind}
    return of | {"severity": severity, "first_seen": NOON - timedelta(days=days)}


def rows() -> Rows:
    """`slow` is 60 s late and then not known; `fine` is never late. West has only the first snapshot."""
    groups = [
        group(at(0), "slow", 60, "a", status="warning"),
        group(at(0), "fine", 0),
        group(at(0), "fine", 0, cluster="west"),
        group(at(5), "slow", None, "a", status="unknown"),
        group(at(5), "other", 7, "a"),
        group(at(5), "fine", 0),
    ]
    statuses = [(0, "complete"), (5, "partial"), (10, "failed"), (-24 * 60, "complete")]
    snapshots = [row(at(minute), status=status, finished_at=at(minute + 1)) for minute, status in statuses]
    snapshots = [one | {"requests": {"1": number}} for number, one in enumerate(snapshots)]
    histograms = [
        histogram(-1, 3, 4),
        histogram(0, 0, 0),
        histogram(0, 1, 1, window_ms=0),
        histogram(0, 1, 1, scope="topic"),
        histogram(0, 1, 1, measure="fetcher_lag"),
        histogram(-24 * 30, 1, 1),
    ]
    shared = ("no_progress", 1, "critical", "c0ffee")
    kinds = [("rewound", 0), ("rewound", 0), shared, shared, ("rewound", 90), ("idle_member", 0, "info")]
    findings = [finding(number, *of) for number, of in enumerate(kinds)]
    return {
        "group_status": (GROUP_STATUS, groups),
        "snapshots": (SNAPSHOTS, snapshots),
        "lag_histograms": (LAG_HISTOGRAMS, histograms),
        "findings": (FINDINGS, findings),
    }


FOUND: Found = {
    "status_now": (
        ["cluster", "status", "groups"],
        [("east", "ok", 2), ("east", "unknown", 1), ("west", "ok", 1)],
    ),
    "groups_now": (
        ["cluster", "group_id", "owner", "seconds", "bytes", "partitions_unknown"],
        [
            ("east", "other", "a", 7, 7, 0),
            ("east", "fine", None, 0, 0, 0),
            ("west", "fine", None, 0, 0, 0),
            ("east", "slow", "a", None, None, 1),
        ],
    ),
    "age_over_time": (
        ["time", "metric", "seconds"],
        [
            (at(0), "east slow", 60),
            (at(0), "east fine", 0),
            (at(0), "west fine", 0),
            (at(5), "east slow", None),
            (at(5), "east other", 7),
            (at(5), "east fine", 0),
        ],
    ),
    "bytes_by_owner": (
        ["time", "cluster", "owner", "bytes", "unknown"],
        [
            (at(0), "east", "a", 60, 0),
            (at(0), "east", "no rule matches", 0, 0),
            (at(0), "west", "no rule matches", 0, 0),
            (at(5), "east", "a", 7, 1),
            (at(5), "east", "no rule matches", 0, 0),
        ],
    ),
    "without_lag": (
        ["time", "cluster", "share_without_lag", "unknown"],
        [(at(-60), "east", 0.75, 3), (at(0), "east", None, 3)],
    ),
    "findings_by_day": (
        ["day", "kind", "findings"],
        [
            (datetime(2026, 3, 2, tzinfo=UTC), "no_progress", 1),
            (datetime(2026, 3, 3, tzinfo=UTC), "rewound", 2),
        ],
    ),
    "freshness": (["cluster", "newest", "complete", "partial", "failed"], [("east", at(6), 1, 1, 1)]),
    "requests": (["cluster", "snapshot_at"], [("east", at(0)), ("east", at(5)), ("east", at(-24 * 60))]),
}


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> dict[str, list[pd.DataFrame]]:
    """What Spark and DuckDB answer to each query."""
    return ask_both(spark, rows(), QUERIES)


def test_each_query_of_the_pages_is_tested() -> None:
    assert QUERIES.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("engine", [0, 1], ids=["spark", "duckdb"])
def test_a_query_finds_what_it_should(answers: dict[str, list[pd.DataFrame]], name: str, engine: int) -> None:
    columns, expected = FOUND[name]
    assert values(answers[name][engine], columns) == sorted(expected, key=str)


def test_the_script_writes_the_newest_values_of_each_cluster_for_prometheus(
    spark: SparkSession, tmp_path: Path
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    earlier = now - timedelta(minutes=5)
    groups = [
        group(earlier, "gone", 5),
        group(now, "slow", 60),
        group(now, "dark", None),
        group(earlier, 'a"b\n', 7, cluster="west"),
        group(now - timedelta(days=3), "old", 9, cluster="north"),
    ]
    stored = frame(spark, GROUP_STATUS, *groups).select(*stored_columns(GROUP_STATUS))
    write_deltalake(tmp_path / "group_status", stored.toArrow(), partition_by=[*GROUP_STATUS.partitioned_by])
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "dashboards.md").read_text("utf-8"), re.DOTALL)
    exec(script.replace("/lake", str(tmp_path)).replace("/var/lib/node_exporter", str(tmp_path)), {})
    families = text_string_to_metric_families((tmp_path / "laglake.prom").read_text())
    found = {
        (sample.name.removeprefix("laglake_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    assert found == {
        ("group_lag_records", "east", "slow"): 60,
        ("group_lag_records", "west", 'a"b\n'): 7,
        ("group_age_seconds", "east", "slow"): 60,
        ("group_age_seconds", "west", 'a"b\n'): 7,
        ("snapshot_timestamp_seconds", "east"): now.timestamp(),
        ("snapshot_timestamp_seconds", "west"): earlier.timestamp(),
    }
