"""What the page shows."""

import re
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from pipeline.report.cards.attention import needs_attention
from pipeline.report.model.details import Finding, Names
from pipeline.report.model.ledger import Snapshot, SnapshotError
from pipeline.report.model.report import Instant, Point, Totals
from pipeline.report.page.page import render
from pipeline.report.read.collect import CELLS, FINDINGS_LISTED, GROUPS_CHARTED, NAMES_SEARCHED, PARTITIONS_LISTED
from pipeline.report.text.names import visible
from tests.helpers.reports import HOSTILE, MINUTE, NOON, cluster, group, page_data, partition, report, text_of


def three_findings() -> tuple[Finding, ...]:
    """Two open findings and a resolved one."""

    def still_open(kind: str, severity: str, group_id: str | None, resolved_ms: int | None = None) -> Finding:
        reported = (f"{kind} is so.", {"culprit_topic": "clicks", "none": None}, "Do that.")
        return Finding(kind, "east", group_id, "c1", "clicks", (0, 1), severity, NOON, NOON, resolved_ms, *reported)

    return (
        still_open("blocked_connector", "critical", "payments"),
        replace(still_open("blind_gauge", "warning", None), last_seen_ms=NOON + MINUTE, worst_ms=NOON + MINUTE // 2),
        still_open("paused_partition", "warning", "payments", NOON),
    )


def four_instants() -> dict[str, Any]:
    """Instants and points of a group that commits nothing."""
    instants = tuple(Instant("east", NOON + i * MINUTE, 0, 4) for i in range(4))
    points = tuple(
        Point("east", NOON + i * MINUTE, "payments", 100 * (i + 1), 0, log_ends=200 * i, commits=10) for i in range(4)
    )
    return {"instants": instants, "points": points}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"consumer_lag": 1, "consumer_age_ms": 9_000}, "at most 1 record is unread; it may be a transaction marker"),
        ({"consumer_lag": 3}, "at most 3 records are unread; some may be transaction markers"),
        ({"consumer_lag": 1, "consumer_age_ms": 0}, "no record is unread: only transaction markers are left"),
        ({"consumer_lag": 1, "consumer_age_ms": 0, "age_unknown": 1}, "at most 1 record is unread; it may be a "),
        (
            {"consumer_lag": 1, "consumer_age_ms": 0, "partitions_unknown": 1},
            "at most 1 record is unread; it may be a ",
        ),
        ({"consumer_lag": 1, "consumer_age_ms": 0, "min_headroom": -1}, "at most 1 record is unread; it may be a "),
        ({"status_reason": "no_members"}, "no members"),
    ],
)
def test_the_reason_of_a_status_is_shown_as_a_fact_only_if_it_is_known(more: dict[str, Any], words: str) -> None:
    shown = group(**{"status": "ok", "status_reason": "transaction_marker", **more})
    assert f'<span class="pill ok" title="{words}' in render(report(shown))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_shown_and_does_nothing(name: str) -> None:
    error = SnapshotError("group", name, name, 2)
    listed = Snapshot(name, NOON, "partial", NOON, NOON + 1_500, 1, 1, {}, {name: 1}, (error,), 1)
    hostile = group(name, cluster=name, client_id=name, group_state=name, error=name, statuses={"deleted_unread": 1})
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
    assert page_data(page)["groups"][0]["name"] == visible(name)
    elements = re.sub(r"(<script\b.*?>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert elements.count("<script") == 3
    assert "<img" not in elements
    assert text_of(page).count(" ".join(visible(name).split())) >= 10
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_unknown_none_and_zero_are_three_different_things() -> None:
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


def test_a_failed_cluster_lost_data_and_old_lag_are_said_first() -> None:
    lost = group("payments", statuses={"deleted_unread": 2, "ok": 1}, unread_offsets=1_500, min_headroom=-900)
    west = cluster("west", "failed", error="not Kafka: speaks HTTP", lag_snapshot_id=None)
    old = cluster("east", "partial", snapshot_id=NOON + MINUTE, error="NOT_COORDINATOR", complete=1, snapshots=2)
    shown = report(lost, clusters=(old, west), totals={"east": Totals("east", 1, 1, 1)})
    sentences = [(i.level, i.subject, i.sentence) for i in needs_attention(shown)]
    assert sentences == [
        ("bad", "", "1 group lost data: records were deleted unread."),
        ("bad", "west", "the newest snapshot failed: not Kafka: speaks HTTP."),
        ("warn", "east", "the newest snapshot is partial: NOT_COORDINATOR."),
        ("warn", "east", "the lag shown is from the snapshot of 2026-03-01 12:00:00 UTC, not from the newest one."),
        ("warn", "west", "no lag was computed for it yet."),
        ("warn", "", "1 of 3 snapshots failed."),
        ("warn", "", "1 of 3 snapshots is partial."),
        ("warn", "", "1 group has partitions whose lag is unknown."),
    ]
    text = text_of(render(shown))
    assert all(sentence in text for _, _, sentence in sentences)
    assert "1,500 offsets deleted unread" in text
    assert "\N{MINUS SIGN}900" in text


def test_open_findings_come_with_their_group_and_its_picture() -> None:
    shown = report(group("payments", 400), findings=three_findings(), findings_open=9, **four_instants())
    reported = [(i.level, i.subject, i.sentence, i.group) for i in needs_attention(shown)]
    key = ("east", "payments")
    assert reported == [
        ("bad", "payments", "blocked_connector is so. Found in the snapshot of 2026-03-01 12:00:00 UTC.", key),
        (
            "warn",
            "c1",
            (
                "blind_gauge is so. Found in the snapshot of 2026-03-01 12:00:00 UTC, at its worst in that of "
                "2026-03-01 12:00:30 UTC."
            ),
            None,
        ),
        ("warn", "", "7 more findings are open.", None),
    ]
    page = render(shown)
    assert 'data-since="1772366400000"' in page
    text = text_of(page)
    assert "Do that." in text
    assert "culprit_topic clicks" in text
    assert "paused_partition is so." in text
    assert "worst 2026-03-01 12:00:30" in text


def test_a_finding_of_which_nothing_was_kept_has_neither_severity_nor_advice() -> None:
    unknown = Finding("k", "east", None, "c1", None, (), None, NOON, NOON, None, "Nothing was kept.", {}, None)
    text = text_of(render(report(findings=(unknown,), findings_open=1)))
    assert "Nothing was kept. Found in the snapshot of 2026-03-01 12:00:00" in text
    assert "None" not in text


def test_what_was_lost_before_is_data_loss_too() -> None:
    (finding, *_) = three_findings()
    lost = replace(finding, kind="deleted_unread", resolved_ms=NOON + MINUTE)
    text = text_of(render(report(group("payments"), findings=(lost,))))
    assert "data lost some offsets deleted unread, seen since 12:00; resolved at 12:01" in text
    assert "no records are known to have been deleted" not in text


def test_records_read_before_they_were_deleted_are_not_lost() -> None:
    went_on = group("payments", statuses={"deleted_uncommitted": 1}, min_headroom=-900)
    shown = report(went_on, totals={"east": Totals("east", 1, 0, 0, groups_deleted_uncommitted=1)})
    assert not went_on.has_lost_data
    assert [(i.level, i.is_loss, i.sentence) for i in needs_attention(shown)] == [
        (
            "warn",
            False,
            "1 group has read past log start, but committed before it: a restart could not use its commit.",
        )
    ]
    assert "deleted_uncommitted 1" in text_of(render(shown))


def test_partitions_without_a_commit_are_shown_beside_the_lag() -> None:
    new = group("new", None, statuses={"no_commit": 2}, not_committed_offsets=1_234)
    caught_up = group("caught up", 0, statuses={"ok": 1, "no_commit": 1}, not_committed_offsets=0)
    totals = {
        "east": Totals("east", 2, 0, 0, groups_not_committed=2, not_committed_offsets=1_234),
        "west": Totals("west", 1, 0, 0, groups_not_committed=1, not_committed_offsets=None),
    }
    shown = report(new, caught_up, totals=totals)
    assert [i.sentence for i in needs_attention(shown)] == [
        (
            "not committed yet: up to 1,234 offsets, in partitions of 2 groups without a commit. No lag counts "
            "them; with auto.offset.reset=earliest all of them are still to be read."
        )
    ]
    text = text_of(render(shown))
    assert "no_commit 2 not committed yet: up to 1,234 offsets" in text
    assert "up to 0 offsets" not in text


def test_with_one_unread_record_the_age_shows_how_late_a_group_is() -> None:
    text = text_of(render(report(group(lag=1, consumer_lag_ms=0, consumer_age_ms=3_600_000, age_error_ms=60_000))))
    assert "1 h ± 1.2 min 0 ms" in text


def test_an_error_without_a_location_has_only_its_reason() -> None:
    gone = SnapshotError("lag", None, "some of the rows in watermarks are gone", 1)
    listed = Snapshot("east", NOON, "complete", NOON, NOON, 1, 1, {}, {}, (gone,), 1)
    assert "lag: some of the rows in watermarks are gone" in text_of(render(report(group(), snapshots=(listed,))))


def test_the_owner_has_its_tier_wherever_it_is_shown() -> None:
    found = replace(three_findings()[0], owner="team", tier="1", channel="pager", finding_id="ab" * 32)
    shown = report(group("payments", owner="others", tier="2"), findings=(found,), findings_open=1, incident=found)
    text = text_of(render(shown))
    assert "owner others, tier 2" in text  # the table of groups
    assert "Owner team, tier 1 Messages go to channel pager" in text  # the incident
    assert "owner team, tier 1" in text  # the table of findings


def test_no_line_break_cuts_an_instant_in_a_sentence_in_two() -> None:
    (finding, *_) = three_findings()
    named = replace(finding, group_id="<time>2026-03-01 12:00:00", summary="Since 2026-03-01 12:00:00 UTC.")
    page = render(report(group("payments"), findings=(named,), findings_open=1))
    assert "Since <time>2026-03-01 12:00:00</time> UTC." in page
    assert "<bdi>&lt;time&gt;2026-03-01 12:00:00</bdi>" in page


def test_what_open_transactions_hide_is_below_the_stable_lag_if_there_is_any() -> None:
    text = text_of(render(report(group("hidden", 1_500, consumer_lag_stable=300, transaction_lag=1_200))))
    assert "300 1,200 in open transactions" in text
    assert "0 in open transactions" not in text_of(render(report(group("none", 1_500, transaction_lag=0))))


def test_groups_left_out_are_counted() -> None:
    shown = report(group("a"), totals={"east": Totals("east", 2_500, 0, 12)})
    text = text_of(render(shown))
    assert "The worst 1 of 2,500 groups" in text
    assert "12 groups lost data: records were deleted unread." in text


def test_the_page_says_how_many_snapshots_are_drawn() -> None:
    text = text_of(render(report(group(), instants=(Instant("east", NOON, 0, 900),))))
    assert "east: 1 of 900 snapshots are drawn" in text


def test_times_are_in_utc_whatever_the_zone_of_the_given_instant() -> None:
    shown = report(group(), generated_at=datetime.fromisoformat("2026-03-01T14:00:00+01:00"))
    assert "Generated by laglake at 2026-03-01 13:00:00 UTC." in text_of(render(shown))


def test_a_thousand_long_names_fit_into_6_mb() -> None:
    groups = [group(f"{i:05}" + "ж" * 244) for i in range(1_000)]
    instants = tuple(Instant("east", NOON + i * MINUTE, 0, 300) for i in range(CELLS // len(groups)))
    known = (123_456_789, 0, 123_456_789_012, 0, 123_456_789)
    late = {"consumer_age_ms": 123_456_789}
    points = tuple(Point("east", i.snapshot_id, g.group_id, *known, **late) for g in groups for i in instants)
    partitions = tuple(
        partition("т" * 249, n, g.group_id, committed_offset=1_234_567_890, high_watermark=1_234_567_890)
        for g in groups[:GROUPS_CHARTED]
        for n in range(PARTITIONS_LISTED)
    )
    longest = tuple("т" * 240 + f"{n:09}" for n in range(NAMES_SEARCHED))
    names = tuple(Names("east", g.group_id, longest, longest, longest, is_cut=True) for g in groups)
    found = tuple(
        Finding(
            "no_progress",
            "east",
            g.group_id,
            None,
            longest[0],
            (),
            "critical",
            NOON,
            NOON,
            None,
            "т" * 400,
            {},
            "т",
        )
        for g in groups[:FINDINGS_LISTED]
    )
    page = render(report(*groups, instants=instants, points=points, partitions=partitions, names=names, findings=found))
    assert len(page.encode()) < 6_000_000
