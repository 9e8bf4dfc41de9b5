"""Commits in logs that no longer exist: the topic was recreated, or the log was truncated below the commit."""

from datetime import timedelta

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from pipeline.analytics.lag.lag import lag_table
from pipeline.analytics.lag.recreated_topics import moved_topics
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, LAG, WATERMARKS
from tests.helpers.lag_rows import COMMITTED, MEMBER, PREVIOUS, RULED, START, WATERMARK, ruled, rulers_of
from tests.helpers.rows import frame

# Case → (snapshot, committed offset, topic id)…, and the statuses. A case is a topic.
RECREATED = {
    "the id changes, the commit does not": ([(1, 50, "A"), (2, 50, "B")], ["ok", "recreated"]),
    "it persists": ([(1, 50, "A"), (2, 50, "B"), (3, 50, "B")], ["ok", "recreated", "recreated"]),
    "a new commit ends it": ([(1, 50, "A"), (2, 50, "B"), (3, 3, "B")], ["ok", "recreated", "ok"]),
    "committed anew at once": ([(1, 50, "A"), (2, 3, "B")], ["ok", "ok"]),
    "the first commit is under the new id": ([(1, None, "A"), (2, 50, "B")], ["no_commit", "ok"]),
    "an id unknown in between": ([(1, 50, "A"), (2, 50, None), (3, 50, "B")], ["ok", "ok", "recreated"]),
    "an id unknown at first": ([(1, 50, None), (2, 50, "A"), (3, 50, "B")], ["ok", "ok", "recreated"]),
    "no ids before Kafka 2.8": ([(1, 50, None), (2, 50, None)], ["ok", "ok"]),
}


@pytest.mark.parametrize("computed_before", [0, 1])
def test_the_status_recreated_lasts_until_the_group_commits_again(spark: SparkSession, computed_before: int) -> None:
    def compute(snapshots: range, previous: DataFrame) -> DataFrame:
        seen = [(case, *row) for case, (history, _) in RECREATED.items() for row in history if row[0] in snapshots]
        watermarks = frame(
            spark, WATERMARKS, WATERMARK, *((s, case, 0, id_, 0, 60, 60, 60, None) for case, s, _, id_ in seen)
        )
        return lag_table(
            frame(
                spark, COMMITTED_OFFSETS, COMMITTED, *((s, "g", case, 0, offset, None) for case, s, offset, _ in seen)
            ),
            watermarks,
            frame(spark, GROUP_MEMBERS, MEMBER),
            previous,
            rulers_of(spark, watermarks),
        )

    none = frame(spark, LAG, PREVIOUS)
    first = compute(range(1, 1 + computed_before), none)
    rest = compute(range(1 + computed_before, 4), first)
    found: dict[str, list[str]] = {}
    for row in first.unionByName(rest).orderBy("snapshot_id").collect():
        found.setdefault(row.topic, []).append(row.offset_status)
    assert found == {case: statuses for case, (_, statuses) in RECREATED.items()}


@pytest.mark.parametrize(("reach", "status"), [({2: 1, 3: 2}, "ok"), ({2: 1, 3: 1}, "recreated")])
def test_a_commit_that_was_absent_from_a_complete_snapshot_counts_as_a_new_one(
    spark: SparkSession, reach: dict[int, int], status: str
) -> None:
    """Kafka removes the commits of a deleted topic; a new one may be at the same offset."""
    history = [(1, 50, "A"), (2, None, "B"), (3, 50, "B")]
    watermarks = frame(spark, WATERMARKS, WATERMARK, *((s, "t", 0, id_, 0, 60, 60, 60, None) for s, _, id_ in history))
    commits = frame(
        spark, COMMITTED_OFFSETS, COMMITTED, *((s, "g", "t", 0, offset, None) for s, offset, _ in history if offset)
    )
    members, previous = frame(spark, GROUP_MEMBERS, MEMBER), frame(spark, LAG, PREVIOUS)
    lag = lag_table(commits, watermarks, members, previous, rulers_of(spark, watermarks), reach=reach)
    assert [row.offset_status for row in lag.orderBy("snapshot_id").collect()] == ["ok", status]


def test_a_late_snapshot_that_was_read_after_its_successor_does_not_make_an_old_commit_new(spark: SparkSession) -> None:
    """The topic is recreated after snapshot 3 was read and before snapshot 2 is."""
    late, on_time = START + timedelta(minutes=5), START + timedelta(minutes=3)
    history = [(1, START, "A"), (2, late, "B"), (3, on_time, "A")]
    columns = f"captured_at {WATERMARK}"
    ends = [(read_at, s, "t", 0, id_, 0, 60, 60, 60, None) for s, read_at, id_ in history]
    watermarks = frame(spark, WATERMARKS, columns, *ends)
    commits = [(read_at, s, "g", "t", 0, 50, None) for s, read_at, _ in history]
    lag = lag_table(
        frame(spark, COMMITTED_OFFSETS, f"captured_at {COMMITTED}", *commits),
        watermarks,
        frame(spark, GROUP_MEMBERS, MEMBER),
        frame(spark, LAG, PREVIOUS),
        rulers_of(spark, watermarks),
        reach={1: 1, 2: 1, 3: 2},
    )
    found = [(row.offset_status, row.committed_topic_id) for row in lag.orderBy("snapshot_id").collect()]
    assert found == [("ok", "A"), ("recreated", "A"), ("ok", "A")]


def test_without_moved_topics_lag_does_not_need_the_previous_rows(spark: SparkSession) -> None:
    history = [(1, 50), (2, 50), (3, 55)]
    columns = "snapshot_id topic partition topic_id leader_epoch log_start_offset high_watermark log_end_offset"
    watermarks = frame(spark, WATERMARKS, columns, *((s, "t", 0, "A", 4, 0, 60, 60) for s, _ in history))
    named = "snapshot_id group_id topic partition committed_offset leader_epoch epoch_end_offset"
    commits = frame(spark, COMMITTED_OFFSETS, named, *((s, "g", "t", 0, offset, 3, 58) for s, offset in history))
    members = frame(spark, GROUP_MEMBERS, MEMBER, (3, "g", "consumer", "Stable", "m", "c", "/h", "t", 0))
    previous = frame(spark, LAG, PREVIOUS, (0, "g", "t", 0, "A", "A", 50, "ok"))
    assert moved_topics(commits, watermarks, previous).isEmpty()
    rulers = rulers_of(spark, watermarks).localCheckpoint()
    whole, short = (lag_table(commits, watermarks, members, rows, rulers) for rows in (previous, None))
    assert_df_equality(short, whole, ignore_row_order=True)
    assert [(r.offset_status, r.verified_epoch) for r in short.collect()] == [("ok", 3)] * 3


# Case → (snapshot, commit, its leader epoch, where that ends, the leader's epoch)…, and the statuses.
TRUNCATED = {
    "cut off after it was read": ([(1, 150, 3, None, 3), (2, 150, 3, 120, 4)], ["ok", "truncated"]),
    "it persists": ([(1, 150, 3, None, 3), (2, 150, 3, 120, 4), (3, 150, 3, 120, 4)], ["ok", "truncated", "truncated"]),
    "seen within an epoch that had ended": ([(1, 150, 3, 150, 4), (2, 150, 3, 120, 5)], ["ok", "truncated"]),
    "a new commit ends it": (
        [(1, 150, 3, None, 3), (2, 150, 3, 120, 4), (3, 151, 4, None, 4)],
        ["ok", "truncated", "ok"],
    ),
    "the client stores an older epoch": ([(1, 150, 2, 120, 4), (2, 150, 2, 120, 4)], ["ok", "ok"]),
    "the same offset, stored with an older epoch": ([(1, 150, 4, None, 4), (2, 150, 2, 120, 4)], ["ok", "ok"]),
    "the epoch has ended at the commit": ([(1, 150, 3, None, 3), (2, 150, 3, 150, 4)], ["ok", "ok"]),
    "the end is not known for a while": (
        [(1, 150, 3, None, 3), (2, 150, 3, None, 4), (3, 150, 3, 120, 4)],
        ["ok", "ok", "truncated"],
    ),
    "without an epoch": ([(1, 150, None, None, 3), (2, 150, None, None, 4)], ["ok", "ok"]),
}


@pytest.mark.parametrize("computed_before", [0, 1])
def test_a_commit_beyond_a_truncation_is_truncated_until_the_group_commits_again(
    spark: SparkSession, computed_before: int
) -> None:
    commit = "snapshot_id group_id topic partition committed_offset leader_epoch epoch_end_offset"
    watermark = f"{RULED} leader_epoch"

    def compute(snapshots: range, previous: DataFrame) -> DataFrame:
        seen = [(case, *row) for case, (history, _) in TRUNCATED.items() for row in history if row[0] in snapshots]
        logs = []
        for case, minute, *_, epoch in seen:
            log = dict(zip(RULED.split(), ruled(minute, 100, 185, 8_500), strict=True)) | {"topic": case}
            logs.append((*log.values(), epoch))
        watermarks = frame(spark, WATERMARKS, watermark, *logs)
        committed = [(minute, "g", case, 0, offset, epoch, end) for case, minute, offset, epoch, end, _ in seen]
        return lag_table(
            frame(spark, COMMITTED_OFFSETS, commit, *committed),
            watermarks,
            frame(spark, GROUP_MEMBERS, MEMBER),
            previous,
            rulers_of(spark, watermarks),
        )

    first = compute(range(1, 1 + computed_before), frame(spark, LAG, PREVIOUS))
    rest = compute(range(1 + computed_before, 4), first)
    rows = sorted(first.unionByName(rest).collect(), key=lambda r: (r.topic, r.snapshot_id))
    found = {case: [r.offset_status for r in rows if r.topic == case] for case in TRUNCATED}
    assert found == {case: statuses for case, (_, statuses) in TRUNCATED.items()}
    # If the records are gone, the commit's position in bytes and in time is not known.
    assert {r.offset_status for r in rows if r.consumer_lag_bytes is None} == {"truncated"}


def test_an_offset_of_a_recreated_topic_is_not_looked_up_on_the_ruler(spark: SparkSession) -> None:
    watermarks = frame(spark, WATERMARKS, RULED, ruled(2, 0, 200, 3_000))
    rows = lag_table(
        frame(spark, COMMITTED_OFFSETS, COMMITTED, (2, "g", "t", 0, 200, None)),
        watermarks,
        frame(spark, GROUP_MEMBERS, MEMBER),
        frame(spark, LAG, PREVIOUS, (1, "g", "t", 0, "OLD", "OLD", 200, "ok")),
        rulers_of(spark, watermarks),
    )
    row = rows.collect()[0]
    assert (row.offset_status, row.consumer_lag) == ("recreated", 0)
    assert [row.consumer_lag_bytes, row.consumer_lag_ms, row.bytes_method, row.headroom_bytes] == [None] * 4
