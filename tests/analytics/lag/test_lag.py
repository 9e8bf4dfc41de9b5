"""The table `lag` from literal bronze rows. Every expected number is written out by hand."""

from datetime import timedelta

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from pipeline.analytics.findings.unreadable import HAS_ERROR
from pipeline.analytics.status.group_status import group_status
from pipeline.common.rows import Rows
from pipeline.tables import LAG
from tests.helpers.lag_rows import BRACKETED, RULED, START, lag_of, ruled
from tests.helpers.rows import SNAPSHOT_DATE, frame


def test_every_lag_is_the_distance_between_its_two_rungs(spark: SparkSession) -> None:
    lag = lag_of(spark, [(1, "g", "t", 0, 130, None)], [(1, "t", 0, "A", 100, 170, 180, 185, None)])
    row = lag.collect()[0]
    assert (row.consumer_lag, row.consumer_lag_stable, row.transaction_lag) == (50, 40, 10)
    assert (row.replication_lag, row.headroom, row.offset_status) == (5, 30, "ok")
    assert [row.fetcher_lag, row.divergence, row.buffered, row.uncommitted, row.stale_lag] == [None] * 5


def test_the_frame_has_the_columns_of_the_table(spark: SparkSession) -> None:
    lag = lag_of(spark)
    assert [(f.name, f.dataType) for f in lag.schema] == [(f.name, f.dataType) for f in LAG.schema]


def test_lag_keeps_its_sign(spark: SparkSession) -> None:
    lag = lag_of(spark, [(1, "g", "t", 0, 190, None)], [(1, "t", 0, "A", 195, 180, 180, 200, None)])
    row = lag.collect()[0]
    assert (row.consumer_lag, row.headroom) == (-10, -5)


BOUNDARIES = {
    "one below log start": (99, "deleted_unread"),
    "at log start": (100, "ok"),
    "at log end, beyond the high watermark": (185, "ok"),
    "one beyond log end": (186, "beyond_end"),
    "none": (None, "no_commit"),
    "zero is an offset": (0, "deleted_unread"),
}


def test_offset_status_on_each_side_of_its_boundaries(spark: SparkSession) -> None:
    committed = [(1, "g", case, 0, offset, None) for case, (offset, _) in BOUNDARIES.items()]
    lag = lag_of(spark, committed, [(1, case, 0, "A", 100, 170, 180, 185, None) for case in BOUNDARIES])
    assert {r.topic: r.offset_status for r in lag.collect()} == {c: status for c, (_, status) in BOUNDARIES.items()}


BRACKETS = {
    # earlier, committed, high watermark and stable offset read between them
    "nothing moved": ((150, 150, 180, 170), (30, 0, 20, "ok")),
    "the group moved": ((150, 160, 180, 170), (20, 10, 10, "ok")),
    "it has just caught up": ((150, 180, 180, 180), (0, 30, 0, "ok")),
    "it has overtaken the end": ((175, 190, 180, 180), (0, 5, 0, "ok")),
    "it was at the end and has overtaken it": ((180, 190, 180, 180), (0, 0, 0, "ok")),
    "it was beyond the end before": ((181, 190, 180, 180), (-10, 0, -10, "ok")),
    "it has read beyond what is stable": ((165, 175, 180, 170), (5, 10, 0, "ok")),
    "it went back": ((170, 150, 180, 170), (30, 0, 20, "ok")),
    "the end is beyond the partition's own": ((150, 150, 200, 200), (50, 0, 50, "ok")),
    "only read once": ((None, 150, None, None), (30, None, 20, "ok")),
    "far beyond the end before": ((500, 500, 180, 180), (-320, 0, -320, "beyond_end")),
}


def test_consumer_lag_is_as_of_the_end_that_was_read_with_the_commit(spark: SparkSession) -> None:
    committed = [(1, case, "t", 0, *read) for case, (read, _) in BRACKETS.items()]
    lag = lag_of(spark, committed, [(1, "t", 0, "A", 100, 170, 180, 185, None)], commit=BRACKETED)
    found = {
        r.group_id: (r.consumer_lag, r.consumer_lag_error, r.consumer_lag_stable, r.offset_status)
        for r in lag.collect()
    }
    assert found == {case: expected for case, (_, expected) in BRACKETS.items()}


def test_records_deleted_after_the_commit_was_read_are_not_lost(spark: SparkSession) -> None:
    """Kafka Streams deletes records after it has committed; another task may read the partition's row later."""
    names = f"{BRACKETED} log_start_offset"
    seen = [(1, "t", 0, "A", 155, 180, 180, 185, None)]
    (row,) = lag_of(spark, [(1, "g", "t", 0, 150, 150, 180, 180, 140)], seen, commit=names).collect()
    assert (row.log_start_offset, row.headroom, row.offset_status) == (140, 10, "ok")


@pytest.mark.parametrize(
    ("late_s", "expected"),
    [
        # The ends could not be read with the commit; the partition's row is older than the commit, or newer.
        pytest.param(5, (0, None, "ok"), id="the commit is newer"),
        pytest.param(-5, (-20, None, "beyond_end"), id="the commit is older"),
    ],
)
def test_a_commit_beyond_an_end_that_is_older_has_overtaken_it(
    spark: SparkSession, late_s: int, expected: tuple[int, int | None, str]
) -> None:
    names = "snapshot_id captured_at group_id topic partition committed_offset"
    commit = (1, START + timedelta(seconds=60 + late_s), "g", "t", 0, 205)
    (row,) = lag_of(spark, [commit], [ruled(1, 0, 185, 1_000)], commit=names, watermark=RULED).collect()
    assert (row.consumer_lag, row.consumer_lag_error, row.offset_status) == expected


ENDS = {
    # stable, high watermark, log end, high watermark again; they were read in another order
    "still": ((180, 180, 180, 180), (0, 0, 0, 0)),
    "moving, all replicated and stable": ((180, 180, 190, 195), (0, 0, 0, 0)),
    "not yet replicated": ((180, 180, 190, 187), (0, 0, 3, 7)),
    "nothing replicated meanwhile": ((180, 180, 190, 180), (0, 0, 10, 0)),
    "an open transaction": ((170, 180, 190, 190), (10, 10, 0, 0)),
    "an open transaction in a still log": ((170, 180, 180, 180), (10, 0, 0, 0)),
    "no log end": ((180, 180, None, None), (0, 0, None, None)),
    "the high watermark was read once": ((170, 180, 185, None), (10, None, 5, None)),
}


def test_transaction_and_replication_lag_are_zero_if_the_later_read_has_caught_up(spark: SparkSession) -> None:
    names = "snapshot_id topic partition last_stable_offset high_watermark log_end_offset high_watermark_after"
    seen = [(1, case, 0, *read) for case, (read, _) in ENDS.items()]
    lag = lag_of(spark, [(1, "g", case, 0, 150, None) for case in ENDS], seen, watermark=names)
    found = {
        r.topic: (r.transaction_lag, r.transaction_lag_error, r.replication_lag, r.replication_lag_error)
        for r in lag.collect()
    }
    assert found == {case: expected for case, (_, expected) in ENDS.items()}


# Log start is 100, and 60 is committed. The key is what a client has consumed.
CONSUMED = {
    "one below log start": (99, "deleted_unread"),
    "at log start": (100, "deleted_uncommitted"),
    "past log start": (150, "deleted_uncommitted"),
    "less than is committed": (10, "deleted_unread"),
    "not known": (None, "deleted_unread"),
}


def test_records_that_a_client_has_consumed_are_not_deleted_unread(spark: SparkSession) -> None:
    reported = spark.createDataFrame(
        [("east", 1, case, 0, "g", SNAPSHOT_DATE, "c", offset, None, None) for case, (offset, _) in CONSUMED.items()],
        "cluster string, snapshot_id bigint, topic string, partition int, group_id string, reported_date date, "
        "reported_client_id string, consumed_offset bigint, fetched_offset bigint, stale_lag bigint",
    )
    committed = [(1, "g", case, 0, 60, None) for case in CONSUMED]
    lag = lag_of(
        spark, committed, [(1, case, 0, "A", 100, 170, 180, 185, None) for case in CONSUMED], reported=reported
    )
    assert {r.topic: r.offset_status for r in lag.collect()} == {c: status for c, (_, status) in CONSUMED.items()}
    assert {r.headroom for r in lag.collect()} == {-40}


def test_a_partition_that_is_assigned_but_not_committed_has_a_row_with_its_member(spark: SparkSession) -> None:
    lag = lag_of(
        spark,
        [(1, "g", "t", 0, 7, None)],
        [(1, "t", 0, "A", 0, 9, 9, 9, None), (1, "t", 1, "A", 0, 5, 5, 5, None)],
        [(1, "g", "classic", "Stable", "m", "c", "h", "t", 0), (1, "g", "classic", "Stable", "m", "c", "h", "t", 1)],
    )
    expected = frame(
        spark,
        LAG,
        "snapshot_id group_id topic partition group_state group_type member_id client_id host "
        "committed_offset consumer_lag offset_status",
        (1, "g", "t", 0, "Stable", "classic", "m", "c", "h", 7, 2, "ok"),
        (1, "g", "t", 1, "Stable", "classic", "m", "c", "h", None, None, "no_commit"),
    )
    assert_df_equality(lag.select(*_NAMED), expected.select(*_NAMED), ignore_row_order=True, ignore_metadata=True)


_NAMED = [
    "snapshot_id",
    "group_id",
    "topic",
    "partition",
    "group_state",
    "group_type",
    "member_id",
    "client_id",
    "host",
]
_NAMED += ["committed_offset", "consumer_lag", "offset_status"]


def test_a_watermark_that_could_not_be_read_gives_its_error_and_no_lag(spark: SparkSession) -> None:
    lag = lag_of(
        spark,
        [(1, "g", "t", 0, 7, None), (1, "g", "gone", 0, 7, None)],
        [(1, "t", 0, "A", None, None, None, None, "LEADER_NOT_AVAILABLE")],
    )
    found = {r.topic: (r.consumer_lag, r.offset_status, r.error) for r in lag.collect()}
    assert found == {
        "t": (None, "no_watermark", "LEADER_NOT_AVAILABLE"),
        "gone": (None, "no_watermark", "UNKNOWN_TOPIC_OR_PARTITION"),
    }


def test_a_deleted_topic_that_a_member_still_holds_leaves_its_group_known(spark: SparkSession) -> None:
    """The commit's row has a time at which its log was looked for, and no end: a broker had no such partition."""
    rows = [
        (1, "g", "t", 0, 7, 9, START, None),
        (1, "g", "deleted", 0, None, None, START, None),
        # Kafka has not removed this commit yet.
        (1, "g", "deleted", 1, 5, None, START, None),
        # In these cases it is not proven that the partition does not exist.
        (1, "denied", "hidden", 0, None, None, None, "TOPIC_AUTHORIZATION_FAILED"),
        (1, "listed", "listed", 0, 5, None, START, None),
    ]
    member = ("classic", "Stable", "m", "c", "h")
    held = [("g", "t", 0), ("g", "deleted", 0), ("g", "deleted", 1), ("denied", "hidden", 0), ("asked", "nobody", 0)]
    lag = lag_of(
        spark,
        rows,
        [(1, "t", 0, "A", 0, 9, 9, 9, None), (1, "listed", 0, "B", None, None, None, None, "LEADER_NOT_AVAILABLE")],
        [(1, group, *member, topic, partition) for group, topic, partition in held],
        commit="snapshot_id group_id topic partition committed_offset high_watermark ends_at error",
    )
    found = {(r.group_id, r.topic): (r.consumer_lag, r.error) for r in lag.collect()}
    assert found == {
        ("g", "t"): (2, None),
        ("denied", "hidden"): (None, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("listed", "listed"): (None, "LEADER_NOT_AVAILABLE"),
        ("asked", "nobody"): (None, "UNKNOWN_TOPIC_OR_PARTITION"),
    }
    groups = group_status({"lag": Rows(lag)}).collected_table().to_pylist()
    counts = ("partitions", "partitions_unknown", "rows_with_error")
    assert [[row[name] for name in counts] for row in groups if row["group_id"] == "g"] == [[1, 0, 0]]
    assert {row.group_id for row in lag.where(HAS_ERROR).collect()} == {"denied", "listed", "asked"}


def test_an_unknown_commit_is_not_called_no_commit(spark: SparkSession) -> None:
    lag = lag_of(
        spark,
        [
            (1, "g", None, None, None, "GROUP_AUTHORIZATION_FAILED"),
            (1, "h", "t", 0, None, "TOPIC_AUTHORIZATION_FAILED"),
        ],
        [(1, "t", 0, "A", 0, 9, 9, 9, None)],
        [(1, "g", "classic", "Stable", "m", "c", "h", "t", 0)],
    )
    found = {r.group_id: (r.committed_offset, r.offset_status, r.error) for r in lag.collect()}
    assert found == {
        "g": (None, None, "GROUP_AUTHORIZATION_FAILED"),
        "h": (None, None, "TOPIC_AUTHORIZATION_FAILED"),
    }


def test_a_group_that_could_not_be_read_and_has_no_assignment_has_no_row(spark: SparkSession) -> None:
    assert lag_of(spark, [(1, "g", None, None, None, "NOT_COORDINATOR"), (1, None, None, None, None, "X")]).count() == 0


def test_two_members_with_one_partition_make_one_row(spark: SparkSession) -> None:
    lag = lag_of(
        spark,
        [(1, "g", "t", 0, 7, None)],
        [(1, "t", 0, "A", 0, 9, 9, 9, None)],
        [(1, "g", "consumer", "Reconciling", m, "c-" + m, "h", "t", 0) for m in ("m2", "m1")],
    )
    assert [(r.member_id, r.client_id) for r in lag.collect()] == [("m1", "c-m1")]


def test_snapshots_do_not_mix(spark: SparkSession) -> None:
    lag = lag_of(
        spark,
        [(1, "g", "t", 0, 5, None), (2, "g", "t", 0, 8, None)],
        [(1, "t", 0, "A", 0, 10, 10, 10, None), (2, "t", 0, "A", 0, 20, 20, 20, None)],
    )
    assert {r.snapshot_id: r.consumer_lag for r in lag.collect()} == {1: 5, 2: 12}
