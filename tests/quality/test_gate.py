"""The gate: which rows it refuses, where they go, and what only looks odd."""

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pipeline.common import arrow_sql
from pipeline.common.arrow_sql import arrow_queries
from pipeline.common.epoch import utc_date
from pipeline.common.rows import Rows
from pipeline.kafka.snapshot import KIND, SnapshotSource
from pipeline.kafka.source import REQUEST_COLUMNS
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.ledger import Claim
from pipeline.quality import judge_rows, quarantine_rows
from pipeline.quality.counts import count_kind, may_fail, sums_by_kind
from pipeline.quality.expectations import expectation_of, validate
from pipeline.quality.rules import MAX_PARTITION, ODDITIES, ROWS_OF_KEY, RULES, observed_key, offends_sql
from pipeline.snapshot.land import _land_table
from pipeline.snapshot.read_sources import ClusterRows
from pipeline.snapshot.summary import Landed, summarize
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, QUARANTINE, WATERMARKS, Table
from tests.helpers.quiet import config
from tests.helpers.rows import few_rows

T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
ID = 1_769_860_800_000
DATE = utc_date(ID)
OF_SNAPSHOT = {"cluster": "east", "snapshot_id": ID, "snapshot_date": DATE}

COMMIT = "cluster snapshot_id snapshot_date captured_at group_id topic partition committed_offset earlier_offset error"
UNIQUE = "expect_column_values_to_be_between(rows_of_key)"
IN_RANGE = "expect_column_values_to_be_between(partition)"


def commit(
    group: str | None, topic: str | None, partition: int | None, offset: int | None, **more: Any
) -> Sequence[Any]:
    cluster, error, captured_at = more.get("cluster", "east"), more.get("error"), more.get("captured_at", T0)
    return (cluster, ID, DATE, captured_at, group, topic, partition, offset, more.get("earlier"), error)


GOOD_COMMITS = [
    commit("g", "t", 0, 0),
    commit("g", "t", 1, None),
    commit("g", "t", MAX_PARTITION, 2**63 - 1),
    commit("none", None, None, None, error="GROUP_AUTHORIZATION_FAILED"),
    commit(None, None, None, None, error="COORDINATOR_NOT_AVAILABLE"),
    commit(None, None, None, None, error="COORDINATOR_NOT_AVAILABLE"),
    # The same key as a valid row, and an offset that would be refused; but a row with an error is not judged.
    commit("g", "t", 0, -7, error="UNKNOWN_TOPIC_OR_PARTITION"),
]
BAD_COMMITS = [
    (commit(None, "t", 2, 5), ["expect_column_values_to_not_be_null(group_id)"]),
    (commit("g", None, 3, 5), ["expect_column_values_to_not_be_null(topic)"]),
    (commit("g", "t", None, 5), ["expect_column_values_to_not_be_null(partition)"]),
    (commit("g", "t", 4, 5, captured_at=None), ["expect_column_values_to_not_be_null(captured_at)"]),
    (commit("g", "twin", 0, 5), [UNIQUE]),
    (commit("g", "twin", 0, 6), [UNIQUE]),
    (commit("g", "t", -1, 5), [IN_RANGE]),
    (commit("g", "t", MAX_PARTITION + 1, 5), [IN_RANGE]),
    (commit("g", "t", 5, -1), ["expect_column_values_to_be_between(committed_offset)"]),
    (commit("g", "t", 6, 1, earlier=-1), ["expect_column_values_to_be_between(earlier_offset)"]),
    (
        commit("g", None, -1, -1),
        [
            "expect_column_values_to_not_be_null(topic)",
            IN_RANGE,
            "expect_column_values_to_be_between(committed_offset)",
        ],
    ),
]

MARK = "cluster snapshot_id snapshot_date captured_at topic partition log_start_offset last_stable_offset"
MARK += " high_watermark log_end_offset log_bytes max_timestamp_offset error"


def mark(
    topic: str | None, partition: int, *rungs: int | None, newest: int | None = None, error: str | None = None
) -> Sequence[Any]:
    start, stable, high, end, log_bytes = rungs or (None,) * 5
    return ("east", ID, DATE, T0, topic, partition, start, stable, high, end, log_bytes, newest, error)


GOOD_MARKS = [
    mark("t", 0, 0, 0, 0, 0, 0),
    mark("t", 1, 1, 2, 3, 4, None),
    mark("t", 2, error="LEADER_NOT_AVAILABLE"),
    # It looks odd, but was read like this.
    mark("odd", 0, 9, 8, 8, 8, 1),
    mark("odd", 1, 1, 9, 8, 8, 1),
    mark("odd", 2, 1, 8, 9, 8, 1),
    mark("odd", 3, 9, 8, 7, 6, 1),
]
BAD_MARKS = [
    (mark(None, 0, 0, 0, 0, 0, 0), ["expect_column_values_to_not_be_null(topic)"]),
    (mark("t", -1, 0, 0, 0, 0, 0), [IN_RANGE]),
    (mark("t", 3, -1, 0, 0, 0, 0), ["expect_column_values_to_be_between(log_start_offset)"]),
    (mark("t", 4, 0, -1, 0, 0, 0), ["expect_column_values_to_be_between(last_stable_offset)"]),
    (mark("t", 5, 0, 0, -1, 0, 0), ["expect_column_values_to_be_between(high_watermark)"]),
    (mark("t", 6, 0, 0, 0, -1, 0), ["expect_column_values_to_be_between(log_end_offset)"]),
    (mark("t", 7, 0, 0, 0, 0, -1), ["expect_column_values_to_be_between(log_bytes)"]),
    (mark("t", 8, 0, 0, 0, 2**63 - 1, 0), ["expect_column_values_to_be_between(log_end_offset)"]),
    (mark("t", 9, 0, 0, 0, 0, 0, newest=2**63 - 1), ["expect_column_values_to_be_between(max_timestamp_offset)"]),
]

MEMBER = "cluster snapshot_id snapshot_date captured_at group_id member_id topic partition error"


def member(group: str | None, member_id: str | None, topic: str | None, partition: int | None) -> Sequence[Any]:
    return ("east", ID, DATE, T0, group, member_id, topic, partition, None)


GOOD_MEMBERS = [
    member("g", "m1", "t", 0),
    member("g", "m2", "t", 0),  # two members may hold a partition while it is handed over
    member("g", "m3", None, None),
    member("memberless", None, None, None),
]
BAD_MEMBERS = [
    (member(None, "m", "t", 1), ["expect_column_values_to_not_be_null(group_id)"]),
    (member("twins", None, None, None), [UNIQUE]),
    (member("twins", None, None, None), [UNIQUE]),
    (member("g", "m", "t", -1), [IN_RANGE]),
]

CASES = [
    pytest.param(COMMITTED_OFFSETS, COMMIT, GOOD_COMMITS, BAD_COMMITS, id="committed_offsets"),
    pytest.param(WATERMARKS, MARK, GOOD_MARKS, BAD_MARKS, id="watermarks"),
    pytest.param(GROUP_MEMBERS, MEMBER, GOOD_MEMBERS, BAD_MEMBERS, id="group_members"),
]
Bad = list[tuple[Sequence[Any], list[str]]]


def read(table: Table, names: str, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows as they were read, with the observed columns of a table."""
    return few_rows(table, names, *rows).chosen(table.observed).rows


def count(table: Table, rows: pa.Table) -> dict[str, int]:
    return sums_by_kind(count_kind(rows, table.name, T0))[table.name]


def as_spark(spark: SparkSession, rows: pa.Table, table: Table) -> Rows:
    """The same rows as Spark has them, in two partitions."""
    return Rows(Rows(rows).frame(spark, table.observed).repartition(2))


@pytest.mark.parametrize("by", ["driver", "Spark"])
@pytest.mark.parametrize(("table", "names", "good", "bad"), CASES)
def test_offending_rows_are_refused_by_name_and_the_rest_is_kept(
    spark: SparkSession, by: str, table: Table, names: str, good: list[Sequence[Any]], bad: Bad
) -> None:
    given = read(table, names, good + [row for row, _ in bad])
    verdict = judge_rows(Rows(given) if by == "driver" else as_spark(spark, given, table), table)
    kept, expected = (sorted(rows.collected(), key=str) for rows in (verdict.kept, Rows(read(table, names, good))))
    assert kept == expected
    assert len(verdict.refused) == len(bad)
    assert {rule.name for rule in verdict.failed} == {reason for _, reasons in bad for reason in reasons}
    refused = [
        (row["expectation"], comparable(json.loads(row["row"]), names))
        for row in quarantine_rows(verdict, table, OF_SNAPSHOT).to_pylist()
    ]
    assert sorted(refused, key=str) == sorted(
        (
            (reason, comparable(dict(zip(names.split(), row, strict=True)), names))
            for row, reasons in bad
            for reason in reasons
        ),
        key=str,
    )


@pytest.mark.parametrize(("table", "names", "good", "bad"), CASES)
def test_rows_that_would_fail_are_suspect_before_they_land(
    table: Table, names: str, good: list[Sequence[Any]], bad: Bad
) -> None:
    cases = {"none": good}
    for row, reasons in bad:
        cases.setdefault(str(reasons), [*good]).append(row)
    found = {case: may_fail(count(table, read(table, names, rows))) for case, rows in cases.items()}
    assert found == {case: case != "none" for case in cases}


@pytest.mark.parametrize(("table", "names", "good", "bad"), CASES)
def test_rows_are_counted_alike_by_the_driver_and_by_spark(
    spark: SparkSession, table: Table, names: str, good: list[Sequence[Any]], bad: Bad
) -> None:
    rows = read(table, names, good + [row for row, _ in bad])
    merged = as_spark(spark, rows, table).with_constants({KIND: table.name}, SnapshotSource.observed)
    requests = StructType([*SnapshotSource.observed, *REQUEST_COLUMNS])
    staged = ClusterRows({}, merged.chosen(requests).rows)
    assert sums_by_kind(staged.counted(T0))[table.name] == count(table, rows)


def comparable(row: dict[str, Any], names: str) -> dict[str, Any]:
    """The given columns of a row. JSON has no instants, so only their presence is compared."""
    row = {name: row[name] for name in names.split()}
    row["captured_at"] = row["captured_at"] is not None
    row["snapshot_date"] = str(row["snapshot_date"])
    return row


def test_a_quarantined_row_is_whole_json() -> None:
    rows = read(COMMITTED_OFFSETS, f"{COMMIT} metadata", [(*commit("g", "t", -1, 5), 'a "quoted"\nline')])
    found = quarantine_rows(judge_rows(Rows(rows), COMMITTED_OFFSETS), COMMITTED_OFFSETS, OF_SNAPSHOT)
    ((row),) = found.to_pylist()
    assert (row["table"], row["expectation"]) == (COMMITTED_OFFSETS.name, IN_RANGE)
    assert {name: row[name] for name in OF_SNAPSHOT} == OF_SNAPSHOT
    assert json.loads(row["row"]) == {
        "cluster": "east",
        "snapshot_id": ID,
        "snapshot_date": "2026-01-31",
        "captured_at": "2026-01-31T12:00:00.000Z",
        "group_id": "g",
        "topic": "t",
        "partition": -1,
        "committed_offset": 5,
        "earlier_offset": None,
        "high_watermark": None,
        "last_stable_offset": None,
        "high_watermark_after": None,
        "log_start_offset": None,
        "ends_at": None,
        "leader_epoch": None,
        "epoch_end_offset": None,
        "metadata": 'a "quoted"\nline',
        "committed_at": None,
        "source": None,
        "error": None,
    }


@pytest.mark.parametrize("offset", [2**62, 2**62 + 1])
def test_offsets_are_judged_to_the_last_digit(offset: int) -> None:
    rows = read(WATERMARKS, MARK, [mark("t", 0, 0, 0, 0, offset, 0), mark("t", 1, 0, 0, 0, None, 0)])
    assert may_fail(count(WATERMARKS, rows)) == (offset > 2**62)
    assert len(judge_rows(Rows(rows), WATERMARKS).refused) == (offset > 2**62)


def test_long_names_need_no_memory_to_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone who may commit can give thousands of groups a name of 32 KB."""
    commits = [commit(f"{number:010}" * 1_000, "t", 0, number) for number in range(3_000)]
    rows = read(COMMITTED_OFFSETS, COMMIT, [*commits, commit("g", "t", 0, -1), commit("g", "t", 0, 5)])
    monkeypatch.setitem(arrow_sql._SETTINGS, "memory_limit", "30MB")  # the names have as many bytes
    with ThreadPoolExecutor(1) as thread:  # which has a database of its own
        verdict = thread.submit(judge_rows, Rows(rows), COMMITTED_OFFSETS).result()
    assert verdict.refused["group_id"].to_pylist() == ["g", "g"]
    assert verdict.kept.count() == 3_000


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    lake = Lake(spark, config(tmp_path, "any", {"east": "127.0.0.1:1"}).lake)
    lake.prepare()
    return lake


def test_a_snapshot_with_refused_rows_is_partial_and_the_ledger_counts_them(lake: Lake) -> None:
    given = {
        COMMITTED_OFFSETS: (COMMIT, GOOD_COMMITS + [row for row, _ in BAD_COMMITS]),
        GROUP_MEMBERS: (MEMBER, GOOD_MEMBERS),
        WATERMARKS: (MARK, GOOD_MARKS),
    }
    landed, claim = Landed(), Claim("east", ID, "run", T0)
    for table, (names, rows) in given.items():
        landed.counts[table.name] = count(table, read(table, names, rows))
        _land_table(lake, claim, table, Rows(read(table, names, rows)), landed)
    assert len(lake.rows(QUARANTINE, of_snapshots("east", [ID])).collected()) == 13
    summary = summarize(lake, claim, landed)
    assert summary.status == "partial"
    landed_rows = {"committed_offsets": 7, "group_members": 4, "watermarks": 7}
    assert summary.rows == landed_rows | {"log_samples": 0, "client_positions": 0}
    assert (summary.groups, summary.partitions) == (2, 6)
    assert Counter((what, where, error, count) for what, where, error, count in summary.errors) == Counter(
        [
            ("committed_offsets", "unknown groups and others", "COORDINATOR_NOT_AVAILABLE", 2),
            ("committed_offsets", "none", "GROUP_AUTHORIZATION_FAILED", 1),
            ("committed_offsets", "g", "UNKNOWN_TOPIC_OR_PARTITION", 1),
            ("watermarks", "t-2", "LEADER_NOT_AVAILABLE", 1),
            ("quarantine", "committed_offsets", "failed an expectation", 11),
        ]
    )
    assert summary.warnings == {
        "metadata_missing": 13,
        "log_start_above_last_stable": 2,
        "last_stable_above_high_watermark": 2,
        "high_watermark_above_log_end": 2,
    }


@pytest.mark.parametrize(
    ("rungs", "odd"),
    [
        pytest.param((5, 5, 5, 5), set(), id="all equal"),
        pytest.param((6, 5, 5, 5), {"log_start_above_last_stable"}, id="start above"),
        pytest.param((5, 6, 5, 5), {"last_stable_above_high_watermark"}, id="stable above"),
        pytest.param((5, 5, 6, 5), {"high_watermark_above_log_end"}, id="high watermark above"),
        pytest.param((6, None, 5, None), set(), id="what is unknown is not odd"),
    ],
)
def test_only_rungs_in_the_wrong_order_are_odd(rungs: Sequence[int | None], odd: set[str]) -> None:
    counts = count(WATERMARKS, read(WATERMARKS, MARK, [mark("t", 0, *rungs, 0)]))
    assert {name for name in ODDITIES if counts[name]} == odd


@pytest.mark.parametrize(("table", "names", "good", "bad"), CASES)
@pytest.mark.slow
def test_a_rule_offends_as_many_rows_as_great_expectations_counts(
    table: Table, names: str, good: list[Sequence[Any]], bad: Bad
) -> None:
    rules = RULES[table.name]
    judged = [row for row in (*good, *(row for row, _ in bad)) if row[-1] is None]
    keys = Counter(tuple(row[names.split().index(name)] for name in observed_key(table)) for row in judged)
    of_key = [keys[tuple(row[names.split().index(name)] for name in observed_key(table))] for row in judged]
    rows = read(table, names, judged).append_column(ROWS_OF_KEY, pa.array(of_key, pa.int64()))
    results = validate(rows, rules, "SUMMARY").results
    theirs = [r.result["unexpected_count"] for r in sorted(results, key=lambda r: r.expectation_config.meta["number"])]
    with arrow_queries({"rows": rows}) as queries:
        ours = [
            queries.rows(f"SELECT count(*) FILTER ({offends_sql(rule)}) AS n FROM rows")["n"][0].as_py()
            for rule in rules
        ]
    literal = Counter(reason for _, reasons in bad for reason in reasons)
    assert theirs == ours == [literal[rule.name] for rule in rules]
    assert [rule.name for rule in rules] == [
        f"{e.expectation_type}({rule.column})" for rule in rules for e in (expectation_of(rule, 0),)
    ]
