"""The report as JSON, as CSV, and as text for a terminal."""

import csv
import json
import re
from pathlib import Path

import pytest

from pipeline.report.formats.export import as_json
from pipeline.report.formats.terminal import format_groups, format_partitions
from pipeline.report.read.excerpt import Excerpt
from pipeline.report.text.names import columns, cut, visible
from pipeline.report.write import write_report
from tests.helpers.reports import (
    HOSTILE,
    NOW,
    group,
    known,
    lake_of,
    partition,
    report,
    snapshot,
)


class TestExport:
    def test_json_contains_everything_on_the_page(self, tmp_path: Path) -> None:
        lag = [known(0, HOSTILE[0], 7, consumer_lag_bytes=70)]
        excerpt = Excerpt(lake_of(tmp_path / "lake", snapshots=[snapshot(0)], lag=lag))
        reported = json.loads(write_report(excerpt, tmp_path / "new" / "r.json", NOW, kind="json").read_text("utf-8"))
        assert reported["generated_at"] == "2026-03-01T13:00:00+00:00"
        (of_group,) = reported["groups"]
        assert (of_group["group_id"], of_group["consumer_lag"], of_group["consumer_lag_ms"]) == (HOSTILE[0], 7, None)
        assert reported["points"][0]["consumer_lag_bytes"] == 70
        assert reported["attention"] == []
        assert reported["cards"] == []

    def test_csv_has_every_partition_and_no_formula(self, tmp_path: Path) -> None:
        names = ["=1+1", "@x", *HOSTILE]
        lag = [known(0, name, n, topic=name, headroom=-5) for n, name in enumerate(names)]
        excerpt = Excerpt(lake_of(tmp_path / "lake", snapshots=[snapshot(0)], lag=lag))
        with write_report(excerpt, tmp_path / "r.csv", NOW, kind="csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert [r["group_id"] for r in reversed(rows)] == ["'=1+1", "'@x", *map(visible, HOSTILE)]
        assert {r["topic"].isprintable() for r in rows} == {True}
        assert {r["snapshot_at"] for r in rows} == {"2026-03-01T12:00:00+00:00"}
        assert rows[-1]["consumer_lag"] == "0"
        assert rows[-1]["headroom"] == "-5"
        assert rows[-1]["consumer_lag_bytes"] == ""


def test_json_has_no_control_characters_and_keeps_every_name() -> None:
    name = "pay\x9b31m\u2028\u202e\x1b[31mé"
    text = as_json(report(group(name)))
    assert all(character.isprintable() for character in text.replace("\n", ""))
    assert json.loads(text)["groups"][0]["group_id"] == name


class TestTerminalTable:
    def test_partitions_with_the_columns_of_kafkas_own_tool_first(self) -> None:
        lost = partition(
            "orders",
            3,
            "payments",
            committed_offset=1_000,
            high_watermark=12_345,
            log_end_offset=12_400,
            consumer_lag=11_345,
            client_id="c-1",
            host="10.0.0.1",
            consumer_lag_bytes=1_234_567,
            bytes_error=900,
            consumer_lag_ms=90_000,
            time_error_ms=500,
            consumer_age_ms=95_000,
            headroom=-7,
            offset_status="deleted_unread",
        )
        fine = partition("日本", 0, "g", consumer_lag=0)
        headings, *lines, more = format_partitions([lost, fine], left_out=1_200).split("\n")
        assert " ".join(headings.split()) == (
            "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CLIENT-ID HOST LAG-BYTES LAG-TIME AGE HEADROOM "
            "FETCHER-LAG OFFSETS CLUSTER"
        )
        assert re.sub("  +", "|", lines[0]) == (
            "payments|orders|3|1,000|12,345|11,345|c-1|10.0.0.1|1.23 MB ± 10 kB|1.5 min ± 600 ms|1.58 min ± 1.2 s|"
            "-7|-|deleted_unread|east"
        )
        assert lines[1].split() == ["g", "日本", "0", "-", "-", "0", *["-"] * 7, "ok", "east"]
        assert more == "and 1,200 more"
        plain, coloured = (format_partitions([lost, fine], coloured=c).split("\n") for c in (False, True))
        assert coloured == [plain[0], f"\x1b[31m{plain[1]}\x1b[0m", plain[2]]

    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_hostile_partition_stays_on_its_line(self, name: str) -> None:
        table = format_partitions([partition(name, 0, name, client_id=name, host=name)])
        assert table.count("\n") == 1
        assert table.replace("\n", "").isprintable()

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
    def test_a_hostile_name_stays_on_its_line_without_control_characters(self, name: str) -> None:
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

    def test_offsets_without_a_commit_are_shown_beside_their_partitions(self) -> None:
        counts = {"ok": 1, "no_commit": 2}
        table = format_groups([group(statuses=counts, not_committed_offsets=1_234)])
        assert table.endswith("no_commit 2 (up to 1,234 offsets), ok 1")

    def test_without_groups_a_line_says_so(self) -> None:
        assert format_groups([]) == "No consumer group has lag yet."
