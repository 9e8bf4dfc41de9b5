"""The report: what is aggregated, what the page says, and how it looks to a real browser."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from pipeline.report import data, format_groups, groups_table, write_report
from pipeline.report.attention import needs_attention
from pipeline.report.chart import chart
from pipeline.report.collect import GROUPS_CHARTED, collect
from pipeline.report.model import Cluster, Group, Instant, Point, Problem, Report, Snapshot, Totals
from pipeline.report.names import columns, cut, visible
from pipeline.report.page import render
from pipeline.tables import COMPUTED, LAG, SNAPSHOTS, Table

NOON = 1_772_366_400_000  # 2026-03-01T12:00:00Z
MINUTE = 60_000
NOW = datetime(2026, 3, 1, 13, tzinfo=UTC)
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "\"quotes\" & 'apostrophes'",
    "two\nlines",
    "\x1b[31mred\u202egnp",
    "x" * 249,
    "группа-日本語-ü",
    "{{ 7 * 7 }}",
)


def frame(spark: SparkSession, table: Table, *rows: dict[str, Any]) -> DataFrame:
    """The rows as a frame of the table; what a row does not name is NULL."""
    return spark.createDataFrame([tuple(row.get(c) for c in table.columns) for row in rows], table.schema)


def snapshot(minute: int, status: str = "complete", cluster: str = "east", **more: Any) -> dict[str, Any]:
    at = datetime.fromtimestamp(NOON / 1000 + minute * 60, UTC)
    named = {"cluster": cluster, "snapshot_id": NOON + minute * MINUTE, "snapshot_date": date(2026, 3, 1)}
    finished_at = None if status == "running" else at
    timed = {"started_at": at, "finished_at": finished_at, "schedule_ms": MINUTE}
    return {**named, **timed, "status": status, "run_id": "r", **more}


def lag_row(minute: int, group_id: str, partition: int, **more: Any) -> dict[str, Any]:
    return {
        "cluster": "east",
        "snapshot_id": NOON + minute * MINUTE,
        "snapshot_date": date(2026, 3, 1),
        "group_id": group_id,
        "topic": "t",
        "partition": partition,
        "offset_status": "ok",
        **more,
    }


def known(minute: int, group_id: str, lag: int, **more: Any) -> dict[str, Any]:
    return lag_row(minute, group_id, 0, **{"consumer_lag": lag, "consumer_lag_stable": lag, **more})


def group(group_id: str = "g", lag: int | None = 5, **more: Any) -> Group:
    plain = Group(
        cluster="east",
        snapshot_id=NOON,
        group_id=group_id,
        partitions=1,
        partitions_unknown=0,
        consumer_lag=lag,
        max_consumer_lag=lag,
        consumer_lag_stable=lag,
        stable_unknown=0,
        transaction_lag=0,
        min_headroom=100,
        unread_offsets=None,
        statuses={"ok": 1},
        group_state="Stable",
        group_type="classic",
        members=1,
        clients=1,
        client_id="client",
        rows_with_error=0,
        error=None,
    )
    return replace(plain, **more)


def cluster(name: str = "east", status: str = "complete", **more: Any) -> Cluster:
    plain = Cluster(
        cluster=name,
        snapshot_id=NOON,
        status=status,
        error=None,
        groups=1,
        partitions=1,
        expected={"groups": 1},
        first_snapshot_id=NOON,
        last_snapshot_id=NOON,
        lag_snapshot_id=NOON,
        snapshots=1,
        complete=int(status == "complete"),
        partial=int(status == "partial"),
        failed=int(status == "failed"),
        running=int(status == "running"),
    )
    return replace(plain, **more)


def report(*groups: Group, clusters: tuple[Cluster, ...] = (), **more: Any) -> Report:
    """A report on one snapshot of the groups, all of them charted."""
    plain = Report(
        "Kafka consumer lag",
        NOW,
        clusters=clusters or (cluster(),),
        groups=groups,
        totals={"east": Totals("east", len(groups), 0, 0)},
        instants=(Instant("east", NOON, 0, 1),),
        points=tuple(Point("east", NOON, g.group_id, g.consumer_lag, g.partitions_unknown) for g in groups),
        charted=groups[:GROUPS_CHARTED],
    )
    return replace(plain, **more)


def chart_data(page: str) -> dict[str, Any]:
    """The chart's data as a browser finds it: up to the first end tag of a script element."""
    start = r'<script type="application/json" id="chart-data">'
    found = re.search(start + "(.*?)</script", page, re.DOTALL | re.IGNORECASE)
    assert found
    parsed: dict[str, Any] = json.loads(found[1])
    return parsed


def text_of(page: str) -> str:
    """What a reader of the page's body sees, without the scripts."""
    body = re.sub(r"<script.*?</script>", "", page[page.index("<body>") :], flags=re.DOTALL)
    body = re.sub(r"</?(bdi|b)>", "", body)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


class TestLedger:
    def test_a_snapshot_has_lag_only_if_it_is_readable_and_was_calculated(self, spark: SparkSession) -> None:
        statuses = ["complete", "partial", "failed", "running", "complete"]
        snapshots = frame(spark, SNAPSHOTS, *(snapshot(i, s) for i, s in enumerate(statuses)))
        calculated = frame(spark, COMPUTED, *(snapshot(i, job="lag") for i in range(4)), snapshot(0, job="lag"))
        expected = [(NOON, True), (NOON + 60_000, True), (NOON + 120_000, False)]
        expected += [(NOON + 180_000, False), (NOON + 240_000, False)]
        assert_df_equality(
            data.ledger(snapshots, calculated).select("snapshot_id", "has_lag"),
            spark.createDataFrame(expected, "snapshot_id bigint, has_lag boolean"),
            ignore_row_order=True,
            ignore_nullable=True,
            ignore_metadata=True,
        )

    def test_the_newest_snapshot_is_the_newest_that_has_ended(self, spark: SparkSession) -> None:
        refused = [("cluster", "east", "no route", 1), ("group", "g", "NOT_COORDINATOR", 2)]
        snapshots = frame(
            spark,
            SNAPSHOTS,
            snapshot(0, groups=3, partitions=9, expected={"groups": 3}),
            snapshot(1, "failed", errors=refused),
            snapshot(2, "running"),
            snapshot(0, "running", cluster="west"),
        )
        found = data.clusters(data.ledger(snapshots, frame(spark, LAG, known(0, "g", 1)))).collect()
        east = ["east", NOON + 60_000, "failed", "no route", None, None, None, NOON, NOON + 120_000, NOON]
        west = ["west", NOON, "running", None, None, None, None, NOON, NOON, None]
        assert [list(row) for row in found] == [[*east, 3, 1, 0, 1, 1], [*west, 1, 0, 0, 0, 1]]

    def test_lists_the_newest_snapshots_of_any_status_and_counts_the_errors_it_leaves_out(
        self, spark: SparkSession
    ) -> None:
        errors = [("group", f"g{i}", "NOT_COORDINATOR", 1) for i in range(25)]
        snapshots = frame(
            spark, SNAPSHOTS, snapshot(0), snapshot(2, "running"), snapshot(1, "partial", errors=errors, groups=7)
        )
        newest = data.newest_snapshots(snapshots, 2).collect()
        assert [(r["snapshot_id"], r["status"], r["errors_total"]) for r in newest] == [
            (NOON + 120_000, "running", 0),
            (NOON + 60_000, "partial", 25),
        ]
        assert [e["where"] for e in newest[1]["errors"]] == [f"g{i}" for i in range(20)]
        assert (newest[1]["started_ms"], newest[1]["finished_ms"]) == (NOON + 60_000, NOON + 60_000)
        assert newest[0]["finished_ms"] is None


class TestInstants:
    def test_a_hole_in_the_ledger_starts_a_new_segment(self, spark: SparkSession) -> None:
        ok = "complete"
        # Each case is a cluster: the minutes and statuses of its snapshots, and the segments expected.
        cases: dict[str, tuple[dict[float, str], list[tuple[float, int]]]] = {
            "nothing is missing": ({0: ok, 1: "partial"}, [(0, 0), (1, 0)]),
            "one failed": ({0: ok, 1: "failed", 2: ok}, [(0, 0), (2, 1)]),
            "one was killed": ({0: ok, 1: "running", 2: ok}, [(0, 0), (2, 1)]),
            "one was missed": ({0: ok, 1: ok, 3: ok, 4: ok}, [(0, 0), (1, 0), (3, 1), (4, 1)]),
            "called less often than scheduled": ({0: ok, 5: ok, 10: ok}, [(0, 0), (5, 0), (10, 0)]),
            "late, but not by another step": ({0: ok, 5: ok, 14.9: ok}, [(0, 0), (5, 0), (14.9, 0)]),
            "too hurried to miss one": ({0: ok, 0.1: ok, 0.9: ok}, [(0, 0), (0.1, 0), (0.9, 0)]),
        }
        rows = [
            {**snapshot(0, status, name, schedule_ms=1_000), "snapshot_id": NOON + int(minute * MINUTE)}
            for name, (statuses, _) in cases.items()
            for minute, status in statuses.items()
        ]
        snapshots = frame(spark, SNAPSHOTS, *rows)
        found: dict[str, list[tuple[float, int]]] = {name: [] for name in cases}
        for row in data.instants(data.ledger(snapshots, snapshots), 10).collect():
            found[row["cluster"]].append(((row["snapshot_id"] - NOON) / MINUTE, row["segment"]))
        assert found == {name: expected for name, (_, expected) in cases.items()}

    def test_thinning_keeps_the_newest_and_no_hole_is_lost(self, spark: SparkSession) -> None:
        rows = [snapshot(minute, "failed" if minute == 6 else "complete", "thinned") for minute in range(8)]
        rows += [snapshot(minute, cluster="just fits") for minute in range(3)]
        snapshots = frame(spark, SNAPSHOTS, *rows)
        found = data.instants(data.ledger(snapshots, snapshots), 3).collect()
        assert [tuple(row) for row in found] == [
            *(("just fits", NOON + m * MINUTE, 0, 3) for m in (0, 1, 2)),
            *(("thinned", NOON + m * MINUTE, int(m > 6), 7) for m in (2, 4, 7)),
        ]


class TestGroups:
    def test_sums_what_is_known_and_counts_what_is_not(self, spark: SparkSession) -> None:
        member = {"group_state": "Stable", "group_type": "consumer", "member_id": "m1"}
        lag = frame(
            spark,
            LAG,
            lag_row(
                0,
                "mixed",
                0,
                consumer_lag=7,
                consumer_lag_stable=4,
                transaction_lag=3,
                headroom=20,
                client_id="c2",
                **member,
            ),
            lag_row(0, "mixed", 1, consumer_lag=-2, headroom=50, offset_status="beyond_end", client_id="c1", **member),
            lag_row(0, "mixed", 2, offset_status="no_commit", transaction_lag=1, **member),
            lag_row(0, "mixed", 3, offset_status="no_watermark", error="LEADER_NOT_AVAILABLE", **member),
            lag_row(0, "unknown", 0, offset_status=None, error="NOT_COORDINATOR"),
            lag_row(0, "uncommitted", 0, offset_status="no_commit"),
            known(0, "lost", 90, headroom=-15, offset_status="deleted_unread"),
            lag_row(0, "lost", 1, consumer_lag=10, headroom=-5, offset_status="deleted_unread"),
            # The topic was recreated: what the old headroom says of the new topic is no loss.
            known(0, "recreated", 0, headroom=-7, offset_status="recreated"),
        )
        found = {row["group_id"]: Group(**row.asDict()) for row in data.groups(lag).collect()}
        assert found["mixed"] == Group(
            cluster="east",
            snapshot_id=NOON,
            group_id="mixed",
            partitions=4,
            partitions_unknown=1,
            consumer_lag=5,
            max_consumer_lag=7,
            consumer_lag_stable=4,
            stable_unknown=2,
            transaction_lag=4,
            min_headroom=20,
            unread_offsets=None,
            statuses={"ok": 1, "beyond_end": 1, "no_commit": 1, "no_watermark": 1},
            group_state="Stable",
            group_type="consumer",
            members=1,
            clients=2,
            client_id="c1",
            rows_with_error=1,
            error="LEADER_NOT_AVAILABLE",
        )
        assert {
            g.group_id: (g.consumer_lag, g.partitions_unknown, g.why_no_lag, g.unread_offsets, g.statuses)
            for g in found.values()
            if g.group_id != "mixed"
        } == {
            "unknown": (None, 1, "unknown", None, {"unknown": 1}),
            "uncommitted": (None, 0, "no commit", None, {"no_commit": 1}),
            "lost": (100, 0, "no commit", 20, {"deleted_unread": 2}),
            "recreated": (0, 0, "no commit", None, {"recreated": 1}),
        }
        assert (found["lost"].min_headroom, found["lost"].stable_unknown) == (-15, 1)
        assert (found["unknown"].members, found["unknown"].client_id, found["unknown"].error) == (
            0,
            None,
            "NOT_COORDINATOR",
        )

    def test_those_that_lost_data_come_first_and_unknown_lag_last(self, spark: SparkSession) -> None:
        lag = frame(
            spark,
            LAG,
            lag_row(0, "unknown", 0, offset_status="no_watermark"),
            known(0, "small", 1),
            known(0, "big", 1_000),
            known(0, "lost", 0, offset_status="deleted_unread", headroom=-1),
        )
        groups = data.groups(lag)
        assert [r["group_id"] for r in data.worst_first(groups, 3).collect()] == ["lost", "big", "small"]
        assert_df_equality(
            data.totals(groups),
            spark.createDataFrame(
                [("east", 4, 1, 1)],
                "cluster string, groups bigint, groups_unknown bigint, groups_with_loss bigint",
            ),
            ignore_nullable=True,
            ignore_metadata=True,
        )

    def test_history_keeps_an_unknown_lag_unknown(self, spark: SparkSession) -> None:
        lag = frame(
            spark,
            LAG,
            known(0, "g", 5),
            lag_row(0, "g", 1, consumer_lag=6),
            known(1, "g", 5),
            lag_row(1, "g", 1, offset_status=None),
            lag_row(2, "g", 0, offset_status="no_watermark"),
            known(0, "other", 9),
        )
        assert_df_equality(
            data.history(lag, {"g"}),
            spark.createDataFrame(
                [
                    ("east", NOON, "g", 11, 0),
                    ("east", NOON + 60_000, "g", 5, 1),
                    ("east", NOON + 120_000, "g", None, 1),
                ],
                "cluster string, snapshot_id bigint, group_id string, consumer_lag bigint, partitions_unknown bigint",
            ),
            ignore_row_order=True,
            ignore_nullable=True,
            ignore_metadata=True,
        )

    def test_rows_are_picked_by_cluster_and_snapshot(self, spark: SparkSession) -> None:
        east, west = known(0, "g", 1), known(1, "g", 2, cluster="west")
        lag = frame(spark, LAG, east, known(1, "g", 3), known(0, "g", 4, cluster="west"), west)
        picked = data.at(lag, {"east": [NOON], "west": [NOON + 60_000], "none": []})
        assert_df_equality(picked, frame(spark, LAG, east, west), ignore_row_order=True)
        assert data.at(lag, {}).count() == 0


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
        found = collect(snapshots, lag, None, NOW, "title")
        assert [(g.cluster, g.consumer_lag) for g in found.groups] == [("west", 77), ("east", 10)]
        assert {(p.cluster, p.snapshot_id, p.consumer_lag) for p in found.points} == {
            ("east", NOON, 0),
            ("east", NOON + 60_000, 10),
            ("west", NOON, 77),
        }
        assert [g.cluster for g in groups_table(lag, snapshots)] == ["west", "east"]

    def test_computed_tells_a_snapshot_without_groups_from_one_without_lag(self, spark: SparkSession) -> None:
        snapshots = frame(spark, SNAPSHOTS, snapshot(0), snapshot(1), snapshot(2))
        lag = frame(spark, LAG, known(0, "g", 5))
        computed = frame(
            spark, COMPUTED, snapshot(0, job="lag"), snapshot(1, job="lag"), snapshot(2, job="something else")
        )
        found = collect(snapshots, lag, computed, NOW, "title")
        assert found.clusters[0].lag_snapshot_id == NOON + 60_000
        assert found.groups == ()
        assert collect(snapshots, lag, None, NOW, "title").clusters[0].lag_snapshot_id == NOON


class TestChart:
    def lines(self, *points: Point, instants: tuple[Instant, ...]) -> list[list[tuple[int, int]]]:
        drawn = chart(report(group(), instants=instants, points=points))
        assert drawn
        lines: dict[int, list[tuple[int, int]]] = {}
        for _, t_ms, lag, _, line, _ in drawn["dots"]:
            lines.setdefault(line, []).append(((t_ms - NOON) // MINUTE, lag))
        return sorted(lines.values())

    def test_a_line_breaks_at_a_hole_an_unknown_lag_and_where_the_group_is_absent(self) -> None:
        segments = [0, 0, 1, 1, 1, 1, 1, 1]
        instants = tuple(Instant("east", NOON + i * MINUTE, s, 8) for i, s in enumerate(segments))
        lags = {0: 10, 1: 11, 2: 12, 3: None, 4: 14, 6: 16, 7: 0}
        points = [Point("east", NOON + i * MINUTE, "g", lag, 0) for i, lag in lags.items()]
        assert self.lines(*points, instants=instants) == [[(0, 10), (1, 11)], [(2, 12)], [(4, 14)], [(6, 16), (7, 0)]]

    def test_a_lone_point_and_an_incomplete_sum_are_drawn_as_dots_however_many_there_are(self) -> None:
        instants = tuple(Instant("east", NOON + i * MINUTE, int(i == 99), 100) for i in range(100))
        points = [Point("east", NOON + i * MINUTE, "g", 1, int(i == 50)) for i in range(100)]
        drawn = chart(report(group(), instants=instants, points=tuple(points)))
        assert drawn
        assert [(t - NOON) // MINUTE for _, t, _, _, _, is_drawn in drawn["dots"] if is_drawn] == [50, 99]

    def test_without_a_known_lag_there_is_no_chart(self) -> None:
        assert chart(report(group(lag=None))) is None

    def test_names_are_no_part_of_the_specification(self) -> None:
        drawn = chart(report(group("datum.secret")))
        assert drawn
        assert [g["name"] for g in drawn["groups"]] == ["datum.secret"]
        assert "secret" not in json.dumps([drawn["linear"], drawn["log"]])


class TestPage:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_hostile_name_is_shown_and_does_nothing(self, name: str) -> None:
        problem = Problem("group", name, name, 2)
        listed = Snapshot(name, NOON, "partial", NOON, NOON + 1_500, 1, 1, {}, {name: 1}, (problem,), 1)
        hostile = group(
            name, cluster=name, client_id=name, group_state=name, error=name, statuses={"deleted_unread": 1}
        )
        page = render(
            report(
                hostile,
                clusters=(cluster(name, "failed", error=name), cluster("other")),
                snapshots=(listed,),
                instants=(Instant(name, NOON, 0, 1),),
                points=(Point(name, NOON, name, 1, 0),),
                title=name,
            )
        )
        assert chart_data(page)["groups"][0]["name"] == visible(name)
        elements = re.sub(r"(<script\b.*?>).*?</script>", r"\1", page, flags=re.DOTALL)
        assert elements.count("<script") == 3
        assert "<img" not in elements
        assert text_of(page).count(" ".join(visible(name).split())) >= 10
        assert "\x1b" not in page
        assert "\u202e" not in page

    def test_unknown_none_and_zero_are_three_different_things(self) -> None:
        page = render(
            report(
                group("zero", 0),
                group("wholly unknown", None, partitions_unknown=1, statuses={"no_watermark": 1}),
                group("partly unknown", 1_234, partitions=3, partitions_unknown=2, statuses={"ok": 1, "unknown": 2}),
                group("never committed", None, statuses={"no_commit": 1}),
            )
        )
        lags = re.findall(r'<td class="n lag" data-v="([^"]*)">(.*?)</td>', page)
        assert [(value, re.sub("<[^>]*>", " ", shown).strip()) for value, shown in lags] == [
            ("1234", "1,234 + 2 unknown"),
            ("0", "0"),
            ("", "no commit"),
            ("", "unknown"),
        ]

    def test_a_failed_cluster_lost_data_and_old_lag_are_said_first(self) -> None:
        lost = group("payments", statuses={"deleted_unread": 2, "ok": 1}, unread_offsets=1_500, min_headroom=-900)
        west = cluster("west", "failed", error="not Kafka: speaks HTTP", lag_snapshot_id=None)
        old = cluster("east", "partial", snapshot_id=NOON + MINUTE, error="NOT_COORDINATOR", complete=1, snapshots=2)
        shown = report(lost, clusters=(old, west), totals={"east": Totals("east", 1, 1, 1)})
        sentences = [(i.level, i.subject, i.sentence) for i in needs_attention(shown)]
        assert sentences == [
            ("bad", "payments", "records of 2 partitions on cluster east were deleted unread, 1,500 offsets in all."),
            ("bad", "west", "the newest snapshot failed: not Kafka: speaks HTTP."),
            ("warn", "east", "the newest snapshot is partial: NOT_COORDINATOR."),
            ("warn", "east", "the lag shown is that of 2026-03-01 12:00:00 UTC, not the newest."),
            ("warn", "west", "no lag was computed for it yet."),
            ("warn", "", "1 of 3 snapshots is failed."),
            ("warn", "", "1 of 3 snapshots is partial."),
            ("warn", "", "1 group has partitions whose lag is unknown."),
        ]
        text = text_of(render(shown))
        assert all(sentence in text for _, _, sentence in sentences)
        assert "1,500 offsets deleted unread" in text
        assert "\N{MINUS SIGN}900" in text

    def test_groups_left_out_are_counted(self) -> None:
        shown = report(group("a"), totals={"east": Totals("east", 2_500, 0, 12)})
        text = text_of(render(shown))
        assert "The worst 1 of 2,500 groups" in text
        assert "12 more groups lost data." in text

    def test_thinned_snapshots_are_said(self) -> None:
        text = text_of(render(report(group(), instants=(Instant("east", NOON, 0, 900),))))
        assert "east: 1 of 900 snapshots are drawn" in text

    def test_an_empty_lake_gets_a_page_that_says_what_to_do(self, spark: SparkSession, tmp_path: Path) -> None:
        output = tmp_path / "new" / "folder" / "report.html"
        assert write_report(frame(spark, SNAPSHOTS), frame(spark, LAG), output, NOW) == output
        text = text_of(output.read_text(encoding="utf-8"))
        assert "There are no snapshots yet" in text
        assert "./spark-submit.sh run --config" in text
        assert [p.name for p in output.parent.iterdir()] == ["report.html"]

    def test_snapshots_without_lag_get_a_page_that_says_so(self, spark: SparkSession, tmp_path: Path) -> None:
        snapshots = frame(
            spark,
            SNAPSHOTS,
            snapshot(0, "failed", errors=[("cluster", "east", "no route", 1)]),
            snapshot(1, "running"),
        )
        page = write_report(snapshots, frame(spark, LAG), tmp_path / "report.html", NOW).read_text(encoding="utf-8")
        text = text_of(page)
        assert "There is no lag yet" in text
        assert "cluster east: no route" in text
        assert "not finished, so not used" in text

    def test_a_page_that_cannot_be_made_leaves_the_last_one_in_place(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        output = tmp_path / "report.html"
        output.write_text("the last one")

        def no_space(*_: object) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(Path, "replace", no_space)
        with pytest.raises(OSError, match="no space left"):
            write_report(frame(spark, SNAPSHOTS), frame(spark, LAG), output, NOW)
        assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("report.html", "the last one")]

    def test_times_are_in_utc_whatever_the_zone_of_the_given_instant(self) -> None:
        shown = report(group(), generated_at=datetime.fromisoformat("2026-03-01T14:00:00+01:00"))
        assert "Generated by laglake at 2026-03-01 13:00:00 UTC." in text_of(render(shown))

    def test_a_thousand_long_names_fit_into_5_mb(self) -> None:
        groups = [group(f"{i:05}" + "ж" * 244) for i in range(1_000)]
        instants = tuple(Instant("east", NOON + i * MINUTE, 0, 300) for i in range(300))
        points = tuple(Point("east", i.snapshot_id, g.group_id, 123_456_789, 0) for g in groups[:50] for i in instants)
        assert len(render(report(*groups, instants=instants, points=points)).encode()) < 5_000_000


class TestTerminalTable:
    def test_groups_by_lag_in_aligned_columns(self) -> None:
        groups = [
            group("никогда", None, statuses={"no_commit": 1}, transaction_lag=None, min_headroom=None),
            group("日本", 5, partitions_unknown=1, stable_unknown=1, partitions=2),
            group("payments", 12_345, min_headroom=-7, partitions=3),
        ]
        headings, *lines = format_groups(groups).split("\n")
        assert headings == (
            "GROUP     CLUSTER        LAG     MAX  STABLE  IN-TXN  HEADROOM  PARTITIONS  STATE   TYPE     OFFSETS"
        )
        assert lines == [
            "payments  east        12,345  12,345  12,345       0        -7           3  Stable  classic  ok 1",
            "日本      east          5 +?       5    5 +?       0       100           2  Stable  classic  ok 1",
            "никогда   east     no commit       -       -       -         -           1  Stable  classic  no_commit 1",
        ]

    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_hostile_name_stays_on_its_line_and_sends_the_terminal_nothing(self, name: str) -> None:
        table = format_groups([group(name)])
        assert table.count("\n") == 1
        assert table.replace("\n", "").isprintable()
        assert max(columns(line) for line in table.split("\n")) < 160

    @pytest.mark.parametrize(
        ("name", "width", "expected"),
        [
            pytest.param("abcdef", 6, "abcdef", id="fits"),
            pytest.param("abcdefg", 6, "ab…efg", id="one too many"),
            pytest.param("日本語日本語", 8, "日…本語", id="wide characters"),
        ],
    )
    def test_a_long_name_keeps_both_ends(self, name: str, width: int, expected: str) -> None:
        assert cut(name, width) == expected

    def test_the_worst_offset_status_is_named_first(self) -> None:
        counts = {"ok": 9, "unknown": 1, "no_commit": 2, "deleted_unread": 3}
        assert format_groups([group(statuses=counts)]).endswith("deleted_unread 3, unknown 1, no_commit 2, ok 9")

    def test_no_groups_is_said(self) -> None:
        assert format_groups([]) == "No consumer group has lag yet."


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

Browse = Callable[[str], tuple[str, str]]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Open a page from a file in headless Chromium: the document as it is in the end, and what the console said."""

    def browse(page: str) -> tuple[str, str]:
        path = tmp_path / "report.html"
        path.write_text(page, encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
        options += ["--window-size=1400,1000", "--virtual-time-budget=10000"]
        done = subprocess.run(
            [str(CHROMIUM), *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()],
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=True,
        )
        return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)

    return browse


def with_script(page: str, script: str) -> str:
    """The page with a script that acts as its reader would; the page's own policy would refuse it."""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    end = page.rindex("</body>")
    act = f"addEventListener('load', () => setTimeout(() => {{ {script} }}, 1000))"
    return f"{page[:end]}<script>{act}</script>{page[end:]}"


def names_in_order(document: str) -> list[str]:
    """The first column of the groups table as it stands in the document."""
    table = document[document.index('<table id="groups-table"') :]
    table = table[: table.index("</table>")]
    return [html.unescape(name) for name in re.findall(r'<th scope="row".*?<bdi>(.*?)</bdi>', table, re.DOTALL)]


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH; Debian's package is called chromium")
class TestInChromium:
    def page(self, instants_shown: int = 10) -> str:
        groups = [group(name, 10 - i, min_headroom=i * 7 % 5) for i, name in enumerate(HOSTILE)]
        instants = tuple(Instant("east", NOON + i * MINUTE, int(i > 4), instants_shown) for i in range(instants_shown))
        points = tuple(
            Point("east", at.snapshot_id, g.group_id, n * 100 + i, int(i == 2))
            for n, g in enumerate(groups)
            for i, at in enumerate(instants)
        )
        return render(report(*groups, instants=instants, points=points))

    def test_rows_and_lines_are_shown_without_a_word_on_the_console(self, browse: Browse) -> None:
        document, console = browse(self.page())
        assert console == ""
        assert names_in_order(document) == [visible(name) for name in HOSTILE]
        drawing = document[document.index('<div id="drawing"') : document.index('<ul class="legend"')]
        # A line's path has no arcs, a dot's has. One hole makes two lines of each group's ten points.
        for number in range(1, 9):
            strokes = re.findall(rf'<path[^>]*\bd="(M[^"]*)"[^>]*stroke="var\(--series-{number}\)"[^>]*>', drawing)
            assert sum("A" not in path for path in strokes) == 2
            assert sum("A" in path for path in strokes) == 10

    def test_a_click_on_a_heading_sorts(self, browse: Browse) -> None:
        click = "document.querySelectorAll('#groups-table thead button')[5].click();"
        document, console = browse(with_script(self.page(), click + click))
        ascending = sorted(range(len(HOSTILE)), key=lambda i: i * 7 % 5)
        assert console == ""
        assert names_in_order(document) == [visible(HOSTILE[i]) for i in ascending]

    def test_highlighting_a_group_lists_its_values_with_the_gap(self, browse: Browse) -> None:
        pick = "document.querySelector('#log').click(); document.querySelectorAll('.legend .pick')[1].click();"
        document, console = browse(with_script(self.page(), pick))
        values = document[document.index('<details id="values"') :]
        rows = re.findall(r"<tr><td>(.*?)</td><td class=\"n\">(.*?)</td><td class=\"n\">(.*?)</td></tr>", values)
        assert console == ""
        newest = [(f"2026-03-01 12:0{m}:00", str(100 + m), "0") for m in (9, 8, 7, 6, 5)]
        assert rows[:6] == [*newest, ("a gap", "", "")]
        assert rows[8] == ("2026-03-01 12:02:00", "102", "1")
        # In the legend and in the table.
        assert len(re.findall(r'<button [^>]*aria-pressed="true"', document)) == 2

    def test_the_page_lets_no_other_script_run(self, browse: Browse) -> None:
        page = self.page()
        foreign = '<script>document.title = "owned"</script><img src="https://example.invalid/x.png">'
        document, console = browse(page.replace("<main>", f"<main>{foreign}", 1))
        assert "<title>Kafka consumer lag</title>" in document
        assert console.count("Content Security Policy") == 2

    @pytest.mark.parametrize("instants_shown", [1, 61])
    def test_few_and_many_instants_say_nothing_on_the_console(self, browse: Browse, instants_shown: int) -> None:
        document, console = browse(self.page(instants_shown))
        assert console == ""
        assert "<svg" in document

    def test_an_empty_lake_says_nothing_on_the_console(self, browse: Browse) -> None:
        document, console = browse(render(Report("Kafka consumer lag", NOW)))
        assert console == ""
        assert "There are no snapshots yet" in document
