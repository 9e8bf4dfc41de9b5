"""What the page says, its chart, and the same groups as text for a terminal."""

import json
import re
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.report import format_groups, write_report
from pipeline.report.attention import needs_attention
from pipeline.report.chart import chart
from pipeline.report.model import Instant, Point, Problem, Snapshot, Totals
from pipeline.report.names import columns, cut, visible
from pipeline.report.page import render
from pipeline.tables import LAG, SNAPSHOTS
from tests.helpers.reports import (
    HOSTILE,
    MINUTE,
    NOON,
    NOW,
    chart_data,
    cluster,
    frame,
    group,
    report,
    snapshot,
    text_of,
)


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
