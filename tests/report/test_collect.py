"""What the report reads from the tables, and that a limited amount of it is collected to the driver."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.analytics.status.group_status import group_status
from pipeline.report.attention import needs_attention
from pipeline.report.collect import CELLS, INSTANTS_CHARTED, RECENT, collect
from pipeline.report.frames import Frames
from pipeline.report.payload import payload
from pipeline.report.selection import Selection
from pipeline.report.write import groups_table
from pipeline.tables import COMPUTED, LAG, PARTITION_STATUS, SNAPSHOTS
from tests.helpers.reports import MINUTE, NOON, NOW, at, frame, known, lag_row, snapshot


class TestCollect:
    def test_lag_is_that_of_the_newest_readable_snapshot_of_each_cluster(self, spark: SparkSession) -> None:
        statuses = ["complete", "complete", "failed", "running"]
        snapshots = frame(
            spark,
            SNAPSHOTS,
            *(snapshot(i, s) for i, s in enumerate(statuses)),
            snapshot(0, "partial", cluster="west"),
        )
        lag = frame(
            spark,
            LAG,
            *(known(i, "g", 10 * i) for i in range(4)),
            known(0, "g", 77, cluster="west"),
        )
        found = collect(Frames(snapshots, lag), NOW, "title")
        assert [(g.cluster, g.consumer_lag) for g in found.groups] == [("west", 77), ("east", 10)]
        assert {(p.cluster, p.snapshot_id, p.consumer_lag) for p in found.points} == {
            ("east", NOON, 0),
            ("east", NOON + 60_000, 10),
            ("west", NOON, 77),
        }
        assert [g.cluster for g in groups_table(Frames(snapshots, lag))] == ["west", "east"]

    def test_a_sum_that_overflows_is_unknown(self, spark: SparkSession) -> None:
        """Anyone who may commit can commit 2^63 − 1, in all partitions; logs end at 2^62 at most."""
        most = {"high_watermark": 2**62, "log_end_offset": 2**62, "consumer_lag_bytes": 2**62, "bytes_error": 2**62}
        lag = -(2**63 - 11)
        absurd = {"committed_offset": 2**63 - 1, "consumer_lag": lag, "consumer_lag_stable": lag}
        absurd |= {"offset_status": "beyond_end", "transaction_lag": 2**62}
        deleted = {"offset_status": "deleted_unread", "committed_offset": 0, "log_start_offset": 2**62}
        unread = {"offset_status": "no_commit", "log_start_offset": 0}
        rows = [
            lag_row(minute, group, number, **most | {"captured_at": at(minute)} | of_group)
            for minute in range(2)
            for group, of_group in (("absurd", absurd), ("deleted", deleted), ("unread", unread))
            for number in range(3)
        ]
        rows += [lag_row(1, group, 0, **most | unread) for group in ("one", "another")]
        found = collect(Frames(frame(spark, SNAPSHOTS, snapshot(0), snapshot(1)), frame(spark, LAG, *rows)), NOW, "t")
        groups = {g.group_id: g for g in found.groups}
        assert (groups["absurd"].consumer_lag, groups["absurd"].max_consumer_lag) == (0, lag)
        assert groups["absurd"].transaction_lag is None
        assert groups["deleted"].unread_offsets is None
        assert groups["unread"].not_committed_offsets is None
        assert groups["one"].not_committed_offsets == 2**62
        assert found.totals["east"].not_committed_offsets is None
        assert {p.consumer_lag_bytes for p in found.points if p.group_id == "absurd"} == {None}

    def test_rates_do_not_depend_on_how_late_a_snapshot_was_read(self, spark: SparkSession) -> None:
        """Per second, 60 records are written and 30 read. The first snapshot is 88 s late; commits are read first."""
        late_s = [88, 10, 25, 12, 2]

        def seen(minute: int, late: int) -> dict[str, Any]:
            ends_s, commits_s = 60 * minute + late, 60 * minute + late - 7 * (minute % 2)
            read = {"captured_at": at(0, seconds=ends_s), "committed_captured_at": at(0, seconds=commits_s)}
            rungs = {"high_watermark": 60 * ends_s, "committed_offset": 30 * commits_s}
            return known(minute, "g", rungs["high_watermark"] - rungs["committed_offset"], **rungs, **read)

        minutes = [0, 2, 3, 4, 5]
        lag = frame(spark, LAG, *map(seen, minutes, late_s))
        snapshots = frame(spark, SNAPSHOTS, *(snapshot(minute, schedule_ms=2 * MINUTE) for minute in minutes))
        found = collect(Frames(snapshots, lag), NOW, "title")
        assert [i.read_ms - i.snapshot_id for i in found.instants] == [1_000 * late for late in late_s]
        drawn = payload(found, found.groups)
        assert drawn
        (of_group,) = drawn["groups"]
        assert of_group["produced"] == [None, 60, 60, 60, 60]
        assert of_group["consumed"] == [None, 30, 30, 30, 30]

    def test_many_groups_are_shown_at_fewer_instants_and_at_all_of_the_newest(self, spark: SparkSession) -> None:
        minutes, groups = 60, 1_000
        last = minutes - 1
        rows = [known(minute, "g0", 1) for minute in range(last)]
        lag = frame(spark, LAG, *rows, *(known(last, f"g{number}", 1) for number in range(groups)))
        snapshots = frame(spark, SNAPSHOTS, *(snapshot(minute) for minute in range(minutes) if minute != 20))
        found = collect(Frames(snapshots, lag), NOW, "title")
        shown = [(i.snapshot_id - NOON) // MINUTE for i in found.instants]
        assert len(shown) <= CELLS // groups
        assert shown[-RECENT:] == list(range(minutes - RECENT, minutes))
        assert max(b - a for a, b in pairwise(shown)) <= 4
        assert {i.segment for i in found.instants if i.snapshot_id > NOON + 20 * MINUTE} == {1}
        assert {p.snapshot_id for p in found.points} == {i.snapshot_id for i in found.instants}

    def test_a_few_groups_are_shown_at_as_many_instants_as_a_chart_has(self, spark: SparkSession) -> None:
        minutes = 3 * INSTANTS_CHARTED
        snapshots = frame(spark, SNAPSHOTS, *(snapshot(minute) for minute in range(minutes)))
        found = collect(Frames(snapshots, frame(spark, LAG, *(known(m, "g", 1) for m in range(minutes)))), NOW, "title")
        shown = [(i.snapshot_id - NOON) // MINUTE for i in found.instants]
        assert INSTANTS_CHARTED - RECENT <= len(shown) <= INSTANTS_CHARTED
        assert max(b - a for a, b in pairwise(shown)) <= 4
        assert shown[-RECENT:] == list(range(minutes - RECENT, minutes))

    def test_a_snapshot_that_was_passed_over_is_shown_with_its_reason(self, spark: SparkSession) -> None:
        gone = ("lag", None, "some of the rows in watermarks are gone", 1)
        snapshots = frame(spark, SNAPSHOTS, snapshot(0, errors=[gone]), snapshot(1))
        found = collect(Frames(snapshots, frame(spark, LAG, known(1, "g", 0))), NOW, "title")
        (item,) = needs_attention(found)
        assert item.sentence == (
            "the lag of the snapshot of 2026-03-01 12:00:00 UTC is missing and can never be computed: some of the rows "
            "in watermarks are gone."
        )

    @pytest.mark.parametrize("minutes", [range(4), (0, 1), (2, 3), ()], ids=["all", "older", "newer", "none"])
    def test_groups_are_summed_from_lag_where_they_have_no_status(self, spark: SparkSession, minutes: range) -> None:
        """After an upgrade the older snapshots have none; late ones have it, and the newest of a cluster may not."""
        deleted = {"offset_status": "deleted_unread", "log_start_offset": 100, "committed_offset": 40}
        lag = frame(
            spark,
            LAG,
            *(known(m, f"g{n}", 10 * m + n, captured_at=at(m)) for m in range(4) for n in range(3)),
            lag_row(1, "g0", 1, **deleted),
            lag_row(2, "g1", 1, **deleted),
            *(known(m, "g1", m, cluster="west") for m in range(3)),
        )
        snapshots = frame(spark, SNAPSHOTS, *(snapshot(m, cluster=c) for c in ("east", "west") for m in range(4)))
        has_status = F.col("snapshot_id").isin([NOON + m * MINUTE for m in minutes])
        groups = group_status(lag.where(has_status))
        expected = collect(Frames(snapshots, lag), NOW, "title")
        assert (len(expected.points), len(expected.groups)) == (15, 4)
        found = collect(Frames(snapshots, lag, groups=groups), NOW, "title")
        assert {*found.points} == {*expected.points}
        assert found.points
        assert replace(found, points=()) == replace(expected, points=())

    def test_the_status_of_groups_is_that_of_the_topics_that_are_selected(self, spark: SparkSession) -> None:
        topics = {"a": ("ok", 5), "b": ("stopped", 70)}
        lag = frame(spark, LAG, *(lag_row(0, "g", 0, topic=t, consumer_lag=n) for t, (_, n) in topics.items()))
        judged = frame(
            spark,
            PARTITION_STATUS,
            *(lag_row(0, "g", 0, topic=t, status=s, consumer_lag=n) for t, (s, n) in topics.items()),
        )
        frames = Frames(frame(spark, SNAPSHOTS, snapshot(0)), lag, groups=group_status(lag, judged), partitions=judged)
        seen = {topic: collect(frames.selected(Selection(topic=topic)), NOW, "t").groups for topic in (None, "a", "b")}
        assert {
            topic: [(g.status, g.consumer_lag, g.partitions) for g in groups] for topic, groups in seen.items()
        } == {
            None: [("stopped", 75, 2)],
            "a": [("ok", 5, 1)],
            "b": [("stopped", 70, 1)],
        }

    def test_a_pattern_is_searched_in_the_first_characters_of_a_name(self, spark: SparkSession) -> None:
        """Anyone who may commit can give a group a name of 32 KB, on which an ordinary pattern takes seconds."""
        names = ["needle", "x" * 1_018 + "needle", "x" * 1_019 + "needle"]
        frames = Frames(frame(spark, SNAPSHOTS, snapshot(0)), frame(spark, LAG, *(known(0, name, 5) for name in names)))
        found = frames.selected(Selection(group="needle")).lag.collect()
        assert sorted(row["group_id"] for row in found) == sorted(names[:2])

    def test_computed_distinguishes_a_snapshot_without_groups_from_one_without_lag(self, spark: SparkSession) -> None:
        snapshots = frame(spark, SNAPSHOTS, snapshot(0), snapshot(1), snapshot(2))
        lag = frame(spark, LAG, known(0, "g", 5))
        computed = frame(
            spark, COMPUTED, snapshot(0, job="lag"), snapshot(1, job="lag"), snapshot(2, job="something else")
        )
        found = collect(Frames(snapshots, lag, computed), NOW, "title")
        assert found.clusters[0].lag_snapshot_id == NOON + 60_000
        assert found.groups == ()
        assert collect(Frames(snapshots, lag), NOW, "title").clusters[0].lag_snapshot_id == NOON
