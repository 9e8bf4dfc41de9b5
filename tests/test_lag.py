"""The table `lag` from literal bronze rows. Every expected number is written out by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from pipeline.analytics.lag import compute_lag
from pipeline.analytics.log_index import rulers
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, LAG, LOG_INDEX, LOG_SAMPLES, WATERMARKS
from tests.helpers.rows import SNAPSHOT_DATE, frame

COMMITTED = "snapshot_id group_id topic partition committed_offset error"
WATERMARK = (
    "snapshot_id topic partition topic_id log_start_offset last_stable_offset high_watermark log_end_offset error"
)
MEMBER = "snapshot_id group_id group_type state member_id client_id host topic partition"
PREVIOUS = "snapshot_id group_id topic partition topic_id committed_topic_id committed_offset offset_status"


def lag_of(
    spark: SparkSession,
    committed: list[tuple[Any, ...]] = (),
    watermarks: list[tuple[Any, ...]] = (),
    members: list[tuple[Any, ...]] = (),
    previous: list[tuple[Any, ...]] = (),
    told: DataFrame | None = None,
    *,
    commit: str = COMMITTED,
    watermark: str = WATERMARK,
) -> DataFrame:
    """`lag` of such rows; `commit` and `watermark` name their columns."""
    seen = frame(spark, WATERMARKS, watermark, *watermarks)
    return compute_lag(
        frame(spark, COMMITTED_OFFSETS, commit, *committed),
        seen,
        frame(spark, GROUP_MEMBERS, MEMBER, *members),
        frame(spark, LAG, PREVIOUS, *previous),
        rulers_of(spark, seen),
        told=told,
    )


def rulers_of(spark: SparkSession, watermarks: DataFrame) -> DataFrame:
    return rulers(frame(spark, LOG_INDEX, "topic"), watermarks, frame(spark, LOG_SAMPLES, "topic"), asked_from=0)


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


BRACKETED = "snapshot_id group_id topic partition earlier_offset committed_offset high_watermark last_stable_offset"
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


def test_records_that_are_deleted_after_the_commit_was_read_were_not_lost(spark: SparkSession) -> None:
    """Kafka Streams deletes what it has committed; another task may read the partition's row a while later."""
    names = f"{BRACKETED} log_start_offset"
    seen = [(1, "t", 0, "A", 155, 180, 180, 185, None)]
    (row,) = lag_of(spark, [(1, "g", "t", 0, 150, 150, 180, 180, 140)], seen, commit=names).collect()
    assert (row.log_start_offset, row.headroom, row.offset_status) == (140, 10, "ok")


@pytest.mark.parametrize(
    ("late_s", "expected"),
    [
        # The ends could not be read with the commit: the partition's row is older than that, or newer.
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
    # stable, high watermark, log end, high watermark once more: as they were read, in another order
    "still": ((180, 180, 180, 180), (0, 0, 0, 0)),
    "moving, all replicated and stable": ((180, 180, 190, 195), (0, 0, 0, 0)),
    "not yet replicated": ((180, 180, 190, 187), (0, 0, 3, 7)),
    "nothing replicated meanwhile": ((180, 180, 190, 180), (0, 0, 10, 0)),
    "an open transaction": ((170, 180, 190, 190), (10, 10, 0, 0)),
    "an open transaction in a still log": ((170, 180, 180, 180), (10, 0, 0, 0)),
    "no log end": ((180, 180, None, None), (0, 0, None, None)),
    "the high watermark was read once": ((170, 180, 185, None), (10, None, 5, None)),
}


def test_transaction_and_replication_lag_are_zero_where_the_later_reading_has_caught_up(spark: SparkSession) -> None:
    names = "snapshot_id topic partition last_stable_offset high_watermark log_end_offset high_watermark_after"
    seen = [(1, case, 0, *read) for case, (read, _) in ENDS.items()]
    lag = lag_of(spark, [(1, "g", case, 0, 150, None) for case in ENDS], seen, watermark=names)
    found = {
        r.topic: (r.transaction_lag, r.transaction_lag_error, r.replication_lag, r.replication_lag_error)
        for r in lag.collect()
    }
    assert found == {case: expected for case, (_, expected) in ENDS.items()}


# Log start is 100, and 60 is committed: what a client has consumed.
CONSUMED = {
    "one below log start": (99, "deleted_unread"),
    "at log start": (100, "deleted_uncommitted"),
    "past log start": (150, "deleted_uncommitted"),
    "less than is committed": (10, "deleted_unread"),
    "not known": (None, "deleted_unread"),
}


def test_what_a_client_has_consumed_was_not_deleted_unread(spark: SparkSession) -> None:
    told = spark.createDataFrame(
        [("east", 1, case, 0, "g", SNAPSHOT_DATE, "c", offset, None, None) for case, (offset, _) in CONSUMED.items()],
        "cluster string, snapshot_id bigint, topic string, partition int, group_id string, told_date date, "
        "told_client_id string, consumed_offset bigint, fetched_offset bigint, stale_lag bigint",
    )
    committed = [(1, "g", case, 0, 60, None) for case in CONSUMED]
    lag = lag_of(spark, committed, [(1, case, 0, "A", 100, 170, 180, 185, None) for case in CONSUMED], told=told)
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
def test_recreated_holds_until_the_group_commits_anew(spark: SparkSession, computed_before: int) -> None:
    def compute(snapshots: range, previous: DataFrame) -> DataFrame:
        seen = [(case, *row) for case, (history, _) in RECREATED.items() for row in history if row[0] in snapshots]
        watermarks = frame(
            spark, WATERMARKS, WATERMARK, *((s, case, 0, id_, 0, 60, 60, 60, None) for case, s, _, id_ in seen)
        )
        return compute_lag(
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


RULED = (
    "snapshot_id captured_at topic partition topic_id leader log_start_offset last_stable_offset high_watermark "
    "log_end_offset max_timestamp_ms max_timestamp_offset log_bytes log_bytes_error"
)
START = datetime(2026, 1, 31, tzinfo=UTC)
START_MS = 1_769_817_600_000
MINUTE = 60_000


def ruled(minute: int, start: int, end: int, size: int | None, *, high_watermark: int | None = None) -> tuple[Any, ...]:
    """A look at a log whose newest record is of half a minute ago."""
    captured = START + timedelta(minutes=minute)
    newest_ms = START_MS + minute * MINUTE - 30_000
    up_to = high_watermark or end
    return (minute, captured, "t", 0, "A", 1, start, up_to, up_to, end, newest_ms, end - 1, size, 0)


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
def test_a_commit_whose_records_were_cut_off_is_truncated_until_the_group_commits_anew(
    spark: SparkSession, computed_before: int
) -> None:
    commit = "snapshot_id group_id topic partition committed_offset leader_epoch epoch_end_offset"
    watermark = f"{RULED} leader_epoch"

    def compute(snapshots: range, previous: DataFrame) -> DataFrame:
        seen = [(case, *row) for case, (history, _) in TRUNCATED.items() for row in history if row[0] in snapshots]
        logs = []
        for case, minute, *_, epoch in seen:
            look = dict(zip(RULED.split(), ruled(minute, 100, 185, 8_500), strict=True)) | {"topic": case}
            logs.append((*look.values(), epoch))
        watermarks = frame(spark, WATERMARKS, watermark, *logs)
        committed = [(minute, "g", case, 0, offset, epoch, end) for case, minute, offset, epoch, end, _ in seen]
        return compute_lag(
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
    # Where the records are gone, the place of the commit is not known, in bytes and in time.
    assert {r.offset_status for r in rows if r.consumer_lag_bytes is None} == {"truncated"}


UNITS: dict[str, tuple[int | None, dict[str, Any]]] = {
    "at a point of the ruler": (
        200,
        {
            "consumer_lag_bytes": 500,
            "bytes_error": 0,
            "headroom_bytes": 3_000,
            # The record at the offset came after the second snapshot's newest: half way to the third at most.
            "consumer_lag_ms": 59_400,
            "consumer_age_ms": 89_400,
            "time_error_ms": 59_400,
        },
    ),
    "between two points": (
        150,
        {
            "consumer_lag_bytes": 1_500,
            "bytes_error": 1_000,
            "headroom_bytes": 2_000,
            "consumer_lag_ms": 89_400,
            "consumer_age_ms": 119_400,
            "time_error_ms": 30_600,
            "bytes_method": "interpolated",
            "time_method": "interpolated",
            "kip532_from": "committed",
            "kip532_bytes": 1_500,
            "kip532_ms": 89_400,
        },
    ),
    "below the first point, times are not known": (
        50,
        {"consumer_lag_bytes": 3_000, "bytes_error": 500, "consumer_lag_ms": None, "time_method": None},
    ),
    "nothing unread": (
        300,
        {
            "consumer_lag_bytes": 0,
            "bytes_error": 0,
            "bytes_method": "exact",
            "consumer_lag_ms": 0,
            "consumer_age_ms": 0,
            "time_error_ms": 0,
            "kip532_bytes": 0,
            "headroom_bytes": 3_500,
        },
    ),
    "beyond the end": (301, {"consumer_lag_bytes": None, "bytes_error": None, "consumer_lag_ms": None}),
    "no commit": (None, {"consumer_lag_bytes": None, "consumer_age_ms": None, "bytes_method": None}),
}


@pytest.mark.parametrize(
    ("log_bytes", "expected"),
    [
        # 100 records in 1,000 bytes: ten more are 100, give or take as much.
        pytest.param(1_000, (1_100, 100), id="known"),
        pytest.param(None, (None, None), id="unknown"),
    ],
)
def test_bytes_beyond_the_end_that_the_ruler_knows_are_by_the_mean_size_of_a_record(
    spark: SparkSession, log_bytes: int | None, expected: tuple[int | None, int | None]
) -> None:
    seen = [ruled(1, 0, 100, log_bytes)]
    (row,) = lag_of(spark, [(1, "g", "t", 0, 0, 0, 110, 110)], seen, commit=BRACKETED, watermark=RULED).collect()
    assert (row.consumer_lag, row.consumer_lag_bytes, row.bytes_error) == (110, *expected)
    assert (row.bytes_method is None) == (log_bytes is None)


def test_lag_in_bytes_and_time_is_read_from_the_ruler(spark: SparkSession) -> None:
    looks = frame(spark, WATERMARKS, RULED, ruled(1, 0, 100, 1_000), ruled(2, 0, 200, 3_000), ruled(3, 0, 300, 3_500))
    commits = [(3, name, "t", 0, offset, None) for name, (offset, _) in UNITS.items()]
    rows = compute_lag(
        frame(spark, COMMITTED_OFFSETS, COMMITTED, *commits),
        looks.where("snapshot_id = 3"),
        frame(spark, GROUP_MEMBERS, MEMBER),
        frame(spark, LAG, PREVIOUS),
        rulers_of(spark, looks),
    )
    found = {row.group_id: row.asDict() for row in rows.collect()}
    for name, (_, expected) in UNITS.items():
        assert {column: found[name][column] for column in expected} == expected, name


def test_bytes_are_told_up_to_the_high_watermark_and_for_kip_532_to_the_log_end(spark: SparkSession) -> None:
    looks = frame(spark, WATERMARKS, RULED, ruled(1, 0, 100, 1_000), ruled(2, 0, 200, 3_000, high_watermark=150))
    rows = compute_lag(
        frame(spark, COMMITTED_OFFSETS, COMMITTED, (2, "g", "t", 0, 100, None)),
        looks.where("snapshot_id = 2"),
        frame(spark, GROUP_MEMBERS, MEMBER),
        frame(spark, LAG, PREVIOUS),
        rulers_of(spark, looks),
    )
    row = rows.collect()[0]
    assert (row.consumer_lag_bytes, row.bytes_error, row.kip532_bytes) == (1_000, 1_000, 2_000)
    assert (row.consumer_lag_ms, row.kip532_ms) == (29_400, 59_400)


def test_an_offset_of_a_topic_that_was_recreated_is_on_no_ruler(spark: SparkSession) -> None:
    looks = frame(spark, WATERMARKS, RULED, ruled(2, 0, 200, 3_000))
    rows = compute_lag(
        frame(spark, COMMITTED_OFFSETS, COMMITTED, (2, "g", "t", 0, 200, None)),
        looks,
        frame(spark, GROUP_MEMBERS, MEMBER),
        frame(spark, LAG, PREVIOUS, (1, "g", "t", 0, "OLD", "OLD", 200, "ok")),
        rulers_of(spark, looks),
    )
    row = rows.collect()[0]
    assert (row.offset_status, row.consumer_lag) == ("recreated", 0)
    assert [row.consumer_lag_bytes, row.consumer_lag_ms, row.bytes_method, row.headroom_bytes] == [None] * 4
