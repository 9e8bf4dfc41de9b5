"""The gate: which rows it refuses, where they go, and what only looks odd."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import great_expectations as gx
import pytest
from chispa import assert_df_equality
from great_expectations.core.expectation_suite import ExpectationSuite
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.common.epoch import utc_date
from pipeline.kafka.snapshot import KIND, SnapshotSource
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.ledger import Claim
from pipeline.quality import is_suspect, quarantine_failing, with_marks
from pipeline.quality.expectations import expectation_of
from pipeline.quality.rules import MAX_PARTITION, RULES, oddities, offends, with_rows_of_key
from pipeline.snapshot.summary import Landed, counts, summarize
from pipeline.tables import BRONZE, COMMITTED_OFFSETS, GROUP_MEMBERS, QUARANTINE, WATERMARKS, Table
from tests.helpers.deltas import delta
from tests.helpers.quiet import config
from tests.helpers.rows import frame

T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
ID = 1_769_860_800_000
DATE = utc_date(ID)

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


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark, config(tmp_path_factory.mktemp("quality"), "any", {"east": "127.0.0.1:1"}).lake)
    lake.prepare()
    return lake


def land(lake: Lake, table: Table, names: str, rows: list[Sequence[Any]]) -> DataFrame:
    landed = frame(lake.spark, table, names, *rows)
    lake.replace(table, landed, of_snapshots("east", [ID]))
    return landed


def quarantined(lake: Lake, table: Table) -> list[tuple[str, dict[str, Any]]]:
    rows = lake.frame(QUARANTINE, of_snapshots("east", [ID])).where(F.col("table") == table.name).collect()
    return [(row["expectation"], json.loads(row["row"])) for row in rows]


@pytest.mark.parametrize(("table", "names", "good", "bad"), CASES)
def test_offending_rows_go_to_quarantine_by_name_and_the_rest_stay(
    lake: Lake, table: Table, names: str, good: list[Sequence[Any]], bad: Bad
) -> None:
    land(lake, table, names, good + [row for row, _ in bad])
    verdict = quarantine_failing(lake, table, "east", ID)
    kept = frame(lake.spark, table, names, *good)
    assert_df_equality(lake.frame(table, of_snapshots("east", [ID])), kept, ignore_row_order=True, ignore_metadata=True)
    assert verdict.quarantined == len(bad)
    assert {rule.name for rule in verdict.failed} == {reason for _, reasons in bad for reason in reasons}
    # JSON has no instants, so only their presence is compared.
    given = names.split()
    expected = [(reason, comparable(dict(zip(given, row, strict=True)))) for row, reasons in bad for reason in reasons]
    found = [(reason, comparable({name: row[name] for name in given})) for reason, row in quarantined(lake, table)]
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(("table", "names", "good", "bad"), CASES)
def test_rows_that_would_fail_are_suspect_before_they_land(
    spark: SparkSession, table: Table, names: str, good: list[Sequence[Any]], bad: Bad
) -> None:
    cases = {"none": good}
    for row, reasons in bad:
        cases.setdefault(str(reasons), [*good]).append(row)
    nothing = spark.createDataFrame([], SnapshotSource.observed)
    frames = [frame(spark, table, names, *rows).withColumn("case", F.lit(case)) for case, rows in cases.items()]
    read = reduce(DataFrame.unionByName, frames).withColumn(KIND, F.lit(table.name))
    marked = with_marks(nothing.unionByName(read, allowMissingColumns=True), KIND)
    judged = marked.groupBy("case").agg(is_suspect().alias("is_suspect")).collect()
    found = {row["case"]: row["is_suspect"] for row in judged}
    assert found == {case: case != "none" for case in cases}


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    row["captured_at"] = row["captured_at"] is not None
    row["snapshot_date"] = str(row["snapshot_date"])
    return row


def test_a_quarantined_row_is_whole_json(lake: Lake) -> None:
    land(lake, COMMITTED_OFFSETS, f"{COMMIT} metadata", [(*commit("g", "t", -1, 5), 'a "quoted"\nline')])
    quarantine_failing(lake, COMMITTED_OFFSETS, "east", ID)
    ((reason, row),) = quarantined(lake, COMMITTED_OFFSETS)
    assert reason == IN_RANGE
    assert row == {
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


def test_clean_rows_are_not_written_again(lake: Lake) -> None:
    land(lake, WATERMARKS, MARK, GOOD_MARKS)
    before = delta(lake, WATERMARKS).version()
    verdict = quarantine_failing(lake, WATERMARKS, "east", ID)
    assert (verdict.failed, verdict.quarantined) == ((), 0)
    assert delta(lake, WATERMARKS).version() == before


def test_a_snapshot_with_refused_rows_is_partial_and_the_ledger_counts_them(lake: Lake) -> None:
    rows = {
        COMMITTED_OFFSETS: land(lake, COMMITTED_OFFSETS, COMMIT, GOOD_COMMITS + [row for row, _ in BAD_COMMITS]),
        GROUP_MEMBERS: land(lake, GROUP_MEMBERS, MEMBER, GOOD_MEMBERS),
        WATERMARKS: land(lake, WATERMARKS, MARK, GOOD_MARKS),
    }
    refused = {t.name: quarantine_failing(lake, t, "east", ID).quarantined for t in BRONZE}
    landed = Landed(counts={t.name: counted(rows[t], t) for t in BRONZE}, quarantined=Counter(refused))
    summary = summarize(lake, Claim("east", ID, "run", T0), landed)
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


def counted(rows: DataFrame, table: Table) -> dict[str, int]:
    """What would have been counted while the rows landed."""
    row = rows.withColumn("requests", F.lit(None)).agg(*(c.alias(name) for name, c in counts(table).items()))
    return row.collect()[0].asDict()


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
def test_only_rungs_in_the_wrong_order_are_odd(spark: SparkSession, rungs: Sequence[int | None], odd: set[str]) -> None:
    row = frame(spark, WATERMARKS, MARK, mark("t", 0, *rungs, 0)).select(*(c.alias(n) for n, c in oddities().items()))
    assert {name for name, is_odd in row.collect()[0].asDict().items() if is_odd} == odd


@pytest.mark.parametrize(("table", "names", "good", "bad"), CASES)
@pytest.mark.slow
def test_a_rule_offends_as_many_rows_as_great_expectations_counts(
    spark: SparkSession, table: Table, names: str, good: list[Sequence[Any]], bad: Bad
) -> None:
    landed = frame(spark, table, names, *good, *(row for row, _ in bad)).where(F.col("error").isNull())
    rows = with_rows_of_key(landed, table)
    rules = RULES[table.name]
    context = gx.get_context(mode="ephemeral")
    source = context.data_sources.add_spark("rows", persist=False)
    batch = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
    suite = ExpectationSuite(name="all", expectations=[expectation_of(rule, n) for n, rule in enumerate(rules)])
    results = batch.get_batch({"dataframe": rows}).validate(suite, result_format="SUMMARY").results
    theirs = [r.result["unexpected_count"] for r in sorted(results, key=lambda r: r.expectation_config.meta["number"])]
    marked = rows.select(*(offends(e).cast("int").alias(str(i)) for i, e in enumerate(rules)))
    ours = list(marked.groupBy().sum().collect()[0])
    literal = Counter(reason for _, reasons in bad for reason in reasons)
    assert theirs == ours == [literal[rule.name] for rule in rules]
    assert [rule.name for rule in rules] == [
        f"{e.expectation_type}({rule.column})" for rule in rules for e in (expectation_of(rule, 0),)
    ]
