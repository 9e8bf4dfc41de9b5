"""What the report reads from the tables, and that a limited amount of it is on the page."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipeline.analytics.status.group_status import group_rows
from pipeline.report.cards.attention import needs_attention
from pipeline.report.model.selection import Selection
from pipeline.report.page.payload import payload
from pipeline.report.read.collect import CELLS, INSTANTS_CHARTED, RECENT, collect
from pipeline.report.read.excerpt import Excerpt
from pipeline.report.write import groups_table
from pipeline.tables import LAG, PARTITION_STATUS
from tests.helpers.reports import MINUTE, NOON, NOW, at, known, lag_row, lake_of, snapshot, table_of


class TestCollect:
    def test_lag_is_that_of_the_newest_readable_snapshot_of_each_cluster(self, tmp_path: Path) -> None:
        statuses = ["complete", "complete", "failed", "running"]
        snapshots = [*(snapshot(i, s) for i, s in enumerate(statuses)), snapshot(0, "partial", cluster="west")]
        lag = [*(known(i, "g", 10 * i) for i in range(4)), known(0, "g", 77, cluster="west")]
        excerpt = Excerpt(lake_of(tmp_path, snapshots=snapshots, lag=lag))
        found = collect(excerpt, NOW, "title")
        assert [(g.cluster, g.consumer_lag) for g in found.groups] == [("west", 77), ("east", 10)]
        assert {(p.cluster, p.snapshot_id, p.consumer_lag) for p in found.points} == {
            ("east", NOON, 0),
            ("east", NOON + 60_000, 10),
            ("west", NOON, 77),
        }
        assert [g.cluster for g in groups_table(excerpt)] == ["west", "east"]

    def test_a_sum_that_overflows_is_unknown(self, tmp_path: Path) -> None:
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
        found = collect(Excerpt(lake_of(tmp_path, snapshots=[snapshot(0), snapshot(1)], lag=rows)), NOW, "t")
        groups = {g.group_id: g for g in found.groups}
        assert (groups["absurd"].consumer_lag, groups["absurd"].max_consumer_lag) == (0, lag)
        assert groups["absurd"].transaction_lag is None
        assert groups["deleted"].unread_offsets is None
        assert groups["unread"].not_committed_offsets is None
        assert groups["one"].not_committed_offsets == 2**62
        assert found.totals["east"].not_committed_offsets is None
        assert {p.consumer_lag_bytes for p in found.points if p.group_id == "absurd"} == {None}

    def test_rates_do_not_depend_on_how_late_a_snapshot_was_read(self, tmp_path: Path) -> None:
        """Per second, 60 records are written and 30 read. The first snapshot is 88 s late; commits are read first."""
        late_s = [88, 10, 25, 12, 2]

        def seen(minute: int, late: int) -> dict[str, Any]:
            ends_s, commits_s = 60 * minute + late, 60 * minute + late - 7 * (minute % 2)
            read = {"captured_at": at(0, seconds=ends_s), "committed_captured_at": at(0, seconds=commits_s)}
            rungs = {"high_watermark": 60 * ends_s, "committed_offset": 30 * commits_s}
            return known(minute, "g", rungs["high_watermark"] - rungs["committed_offset"], **rungs, **read)

        minutes = [0, 2, 3, 4, 5]
        lag = [*map(seen, minutes, late_s)]
        snapshots = [snapshot(minute, schedule_ms=2 * MINUTE) for minute in minutes]
        found = collect(Excerpt(lake_of(tmp_path, snapshots=snapshots, lag=lag)), NOW, "title")
        assert [i.read_ms - i.snapshot_id for i in found.instants] == [1_000 * late for late in late_s]
        drawn = payload(found, found.groups)
        assert drawn
        (of_group,) = drawn["groups"]
        assert of_group["written"] == [None, 60, 60, 60, 60]
        assert of_group["committed"] == [None, 30, 30, 30, 30]

    def test_many_groups_are_shown_at_fewer_instants_and_at_all_of_the_newest(self, tmp_path: Path) -> None:
        minutes, groups = 60, 1_000
        last = minutes - 1
        rows = [known(minute, "g0", 1) for minute in range(last)]
        lag = [*rows, *(known(last, f"g{number}", 1) for number in range(groups))]
        snapshots = [snapshot(minute) for minute in range(minutes) if minute != 20]
        found = collect(Excerpt(lake_of(tmp_path, snapshots=snapshots, lag=lag)), NOW, "title")
        shown = [(i.snapshot_id - NOON) // MINUTE for i in found.instants]
        assert len(shown) <= CELLS // groups
        assert shown[-RECENT:] == list(range(minutes - RECENT, minutes))
        assert max(b - a for a, b in pairwise(shown)) <= 4
        assert {i.segment for i in found.instants if i.snapshot_id > NOON + 20 * MINUTE} == {1}
        assert {p.snapshot_id for p in found.points} == {i.snapshot_id for i in found.instants}

    def test_a_few_groups_are_shown_at_as_many_instants_as_a_chart_has(self, tmp_path: Path) -> None:
        minutes = 3 * INSTANTS_CHARTED
        snapshots, lag = ([of(minute) for minute in range(minutes)] for of in (snapshot, lambda m: known(m, "g", 1)))
        found = collect(Excerpt(lake_of(tmp_path, snapshots=snapshots, lag=lag)), NOW, "title")
        shown = [(i.snapshot_id - NOON) // MINUTE for i in found.instants]
        assert INSTANTS_CHARTED - RECENT <= len(shown) <= INSTANTS_CHARTED
        assert max(b - a for a, b in pairwise(shown)) <= 4
        assert shown[-RECENT:] == list(range(minutes - RECENT, minutes))

    def test_a_snapshot_that_was_passed_over_is_shown_with_its_reason(self, tmp_path: Path) -> None:
        gone = ("lag", None, "some of the rows in watermarks are gone", 1)
        snapshots = [snapshot(0, errors=[gone]), snapshot(1)]
        found = collect(Excerpt(lake_of(tmp_path, snapshots=snapshots, lag=[known(1, "g", 0)])), NOW, "title")
        (item,) = needs_attention(found)
        assert item.sentence == (
            "the lag of the snapshot of 2026-03-01 12:00:00 UTC is missing and can never be computed: some of the rows "
            "in watermarks are gone."
        )

    @pytest.mark.parametrize("minutes", [range(4), (0, 1), (2, 3), ()], ids=["all", "older", "newer", "none"])
    def test_groups_are_summed_from_lag_where_they_have_no_status(self, tmp_path: Path, minutes: range) -> None:
        """After an upgrade the older snapshots have none; late ones have it, and the newest of a cluster may not."""
        deleted = {"offset_status": "deleted_unread", "log_start_offset": 100, "committed_offset": 40}
        lag = [
            *(known(m, f"g{n}", 10 * m + n, captured_at=at(m)) for m in range(4) for n in range(3)),
            lag_row(1, "g0", 1, **deleted),
            lag_row(2, "g1", 1, **deleted),
            *(known(m, "g1", m, cluster="west") for m in range(3)),
        ]
        snapshots = [snapshot(m, cluster=c) for c in ("east", "west") for m in range(4)]
        groups = group_rows(
            {"lag": table_of(LAG, *(row for row in lag if (row["snapshot_id"] - NOON) // MINUTE in minutes))}
        )
        without = lake_of(tmp_path / "without", snapshots=snapshots, lag=lag)
        having = lake_of(tmp_path / "having", snapshots=snapshots, lag=lag, group_status=groups)
        expected = collect(Excerpt(without), NOW, "title")
        assert (len(expected.points), len(expected.groups)) == (15, 4)
        assert collect(Excerpt(having), NOW, "title") == expected

    def test_the_status_of_groups_is_that_of_the_topics_that_are_selected(self, tmp_path: Path) -> None:
        topics = {"a": ("ok", 5), "b": ("stopped", 70)}
        lag = [lag_row(0, "g", 0, topic=t, consumer_lag=n) for t, (_, n) in topics.items()]
        judged = [row | {"status": status} for row, (status, _) in zip(lag, topics.values(), strict=True)]
        groups = group_rows({"lag": table_of(LAG, *lag), "statuses": table_of(PARTITION_STATUS, *judged)})
        lake = lake_of(tmp_path, snapshots=[snapshot(0)], lag=lag, partition_status=judged, group_status=groups)
        seen = {topic: collect(Excerpt(lake, Selection(topic=topic)), NOW, "t").groups for topic in (None, "a", "b")}
        assert {
            topic: [(g.status, g.consumer_lag, g.partitions) for g in groups] for topic, groups in seen.items()
        } == {
            None: [("stopped", 75, 2)],
            "a": [("ok", 5, 1)],
            "b": [("stopped", 70, 1)],
        }

    def test_a_pattern_is_searched_in_the_first_characters_of_a_name(self, tmp_path: Path) -> None:
        """Anyone who may commit can give a group a name of 32 KB, on which an ordinary pattern takes seconds."""
        names = ["needle", "x" * 1_018 + "needle", "x" * 1_019 + "needle"]
        lake = lake_of(tmp_path, snapshots=[snapshot(0)], lag=[known(0, name, 5) for name in names])
        found = collect(Excerpt(lake, Selection(group="needle")), NOW, "title")
        assert sorted(group.group_id for group in found.groups) == sorted(names[:2])

    def test_what_is_shown_of_groups_is_that_of_the_groups_that_are_listed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pipeline.report.read.collect.GROUPS_LISTED", 1)
        both = [known(0, name, lag, client_id="app") for name, lag in (("big", 9), ("small", 1))]
        of_both: dict[str, list[dict[str, Any]]] = {
            "forecasts": [row | {"topic": None} for row in both],
            "client_divergence": both,
            "group_changes": [row | {"change": "joined"} for row in both],
            "slo": [row | {"slo": "fresh", "is_met": False} for row in both],
        }
        found = collect(Excerpt(lake_of(tmp_path, snapshots=[snapshot(0)], lag=both, **of_both)), NOW, "title")
        of_groups = (found.groups, found.points, found.partitions, found.names, found.forecasts, found.verdicts)
        of_charts = (found.changes, found.missed, found.partition_series)
        assert [[row.group_id for row in rows] for rows in (*of_groups, *of_charts)] == [["big"]] * 9
        assert (found.totals["east"].groups, found.cluster_points[0].groups) == (2, 2)
        assert ([o.group_id for o in found.objectives], len(found.gauges)) == (["big", "small"], 2)

    def test_computed_distinguishes_a_snapshot_without_groups_from_one_without_lag(self, tmp_path: Path) -> None:
        computed = [snapshot(0, job="lag"), snapshot(1, job="lag"), snapshot(2, job="something else")]
        snapshots = [snapshot(minute) for minute in range(3)]
        lake = lake_of(tmp_path, snapshots=snapshots, lag=[known(0, "g", 5)], computed=computed)
        found = collect(Excerpt(lake), NOW, "title")
        assert found.clusters[0].lag_snapshot_id == NOON + 60_000
        assert found.groups == ()
