"""The report as Markdown, which must show every name as it is."""

import html
import re
from dataclasses import replace
from typing import Any

import markdown
import pytest

from pipeline.report.formats.markdown import MOST_POINTS, as_markdown, escaped
from pipeline.report.model.details import Change, Finding
from pipeline.report.model.report import Instant, Point, Report
from pipeline.report.model.selection import Selection
from pipeline.report.text.names import visible
from tests.helpers.reports import HOSTILE, MINUTE, NOON, cluster, group, partition, report

MARKUP = (
    *HOSTILE,
    *("*a*", "_a_", "__a__", "a_b_c", "`a`", "[a](http://b)", "![a](b)", "# a", "- a", "+ a", "1. a", "1) a"),
    *(
        "a | b",
        "https://evil.example.com",
        "www.example.com",
        "a#12",
        "~~a~~",
        "<b>a</b>",
        "&lt;",
        "a\\*b",
        "\\",
        "a_",
        "_",
    ),
)


def text_of(rendered: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", rendered)).strip()


@pytest.mark.parametrize("name", MARKUP)
def test_a_name_is_shown_as_it_is(name: str) -> None:
    assert text_of(markdown.markdown(escaped(name))) == visible(name)


@pytest.mark.parametrize("name", MARKUP)
def test_a_name_in_a_table_is_shown_as_it_is(name: str) -> None:
    table = f"| a | b |\n|---|---|\n| {escaped(name)} | x |\n"
    cells = re.findall(r"<td>(.*?)</td>", markdown.markdown(table, extensions=["tables"]))
    assert [text_of(cell) for cell in cells] == [visible(name), "x"]


def test_a_name_mentions_nobody() -> None:
    assert escaped("@everyone a@b.c") == "@\u200beveryone a@b.c"


def incident(**more: Any) -> Report:
    """A group that lost 1,000 offsets a minute from 12:02 on, and was healed at 12:06."""
    lags = [0, 0, 1_000, 2_000, 3_000, 4_000, 0]
    points = tuple(
        Point("east", NOON + n * MINUTE, "pay|ments", lag, 0, consumer_lag_bytes=lag * 100, consumer_age_ms=lag * 60)
        for n, lag in enumerate(lags)
    )
    found = Finding(
        kind="no_progress",
        cluster="east",
        group_id="pay|ments",
        client_id=None,
        topic="orders",
        partitions=(0, 1),
        severity="critical",
        first_seen_ms=NOON + 2 * MINUTE,
        last_seen_ms=NOON + 5 * MINUTE,
        resolved_ms=NOON + 6 * MINUTE,
        worst_ms=NOON + 5 * MINUTE,
        summary="Nothing has been committed.",
        evidence={"consumer_lag": 4_000, "reason": None, "groups": []},
        advice="Start it.",
        finding_id="ab12" * 16,
        owner="billing",
        tier="gold",
        channel="pager",
    )
    east = cluster(
        first_snapshot_id=NOON, last_snapshot_id=NOON + 6 * MINUTE, snapshots=8, complete=6, partial=1, failed=1
    )
    changes = (Change("east", NOON + 2 * MINUTE, "pay|ments", "left", 1, 0, "m", None, ("pay-1",)),)
    plain = report(
        group("pay|ments", 0, snapshot_id=NOON + 6 * MINUTE, owner="billing", tier="1", channel="chat"),
        clusters=(east,),
        points=points,
        findings=(found,),
        changes=changes,
        partitions=(partition("orders", 1, "pay|ments", consumer_lag=7, committed_offset=3, high_watermark=10),),
        incident=found,
    )
    return replace(plain, **more)


def test_an_incident_says_what_since_when_how_bad_why_and_what_to_do() -> None:
    text = as_markdown(incident())
    lines = text.splitlines()
    assert lines[0] == "# Incident: no progress, group pay&#124;ments"
    for line in (
        "Nothing has been committed.",
        "| Since | 2026-03-01 12:02:00 UTC |",
        "| Resolved | 2026-03-01 12:06:00 UTC |",
        "| Lasted | 4 min |",
        "| At its worst | 2026-03-01 12:05:00 UTC |",
        "| Owner | billing, tier gold |",
        "| Messages go to | channel pager |",
        "Owner: billing, tier 1. Messages go to channel chat.",
        "| Partitions | 0, 1 |",
        "Start it.",
        "- consumer lag: 4,000",
        "- 2026-03-01 12:02:00 UTC: 1 member left (pay-1)",
        "- 2026-03-01 12:06:00 UTC: no progress is resolved",
        "| 2026-03-01 12:05:00 | 4,000 | 400 kB | 4 min | 0 |",
        "| orders | 1 | 3 | 10 | 7 | unknown | – | ok |",
        "- east: 8 snapshots, 2026-03-01 12:00:00 UTC to 2026-03-01 12:06:00 UTC; 1 failed, 1 partial",
    ):
        assert line in lines, line
    assert [line for line in lines if line.startswith("## ")][-3:] == [
        "## Cause",
        "## What was done",
        "## What will be changed",
    ]
    assert "reason" not in text, "what is not known is left out"


def test_an_open_incident_of_a_deleted_group_has_its_own_timeline() -> None:
    whole = incident()
    assert whole.incident is not None
    lasting = replace(whole.incident, resolved_ms=None)
    lines = as_markdown(replace(whole, groups=(), incident=lasting, findings=(lasting,))).splitlines()
    assert "| Resolved | still open |" in lines
    assert "| Lasted | 3 min |" in lines
    assert "- 2026-03-01 12:02:00 UTC: no progress begins" in lines


def test_other_findings_of_the_time_are_named() -> None:
    whole = incident()
    assert whole.incident is not None
    other = replace(whole.incident, kind="open_transaction", group_id=None, finding_id="cd", summary="It hides *all*.")
    lines = as_markdown(replace(whole, findings=(whole.incident, other))).splitlines()
    since = "since 2026-03-01 12:02:00 UTC, until 2026-03-01 12:06:00 UTC"
    assert f"- open transaction of topic orders, {since}: It hides \\*all\\*." in lines


def test_a_long_time_is_thinned_but_keeps_its_ends_and_its_worst_moment() -> None:
    points = tuple(Point("east", NOON + n * MINUTE, "pay|ments", 5_000 if n == 777 else 1, 0) for n in range(1_000))
    lines = as_markdown(incident(points=points)).splitlines()
    rows = [line for line in lines if re.match(r"\| 2026-", line)]
    assert MOST_POINTS - 1 <= len(rows) <= MOST_POINTS
    assert rows[0].startswith("| 2026-03-01 12:00:00 ")
    assert rows[-1].startswith("| 2026-03-02 04:39:00 ")
    assert sum("5,000" in row for row in rows) == 1


def test_a_gap_in_the_history_is_named() -> None:
    instants = tuple(Instant("east", NOON + n * MINUTE, int(n > 3), 4) for n in (0, 1, 5, 6))
    lines = as_markdown(incident(instants=instants)).splitlines()
    gaps = [line for line in lines if "gap" in line]
    assert gaps == ["- east: there is a gap between 2026-03-01 12:01:00 UTC and 2026-03-01 12:05:00 UTC"]


def test_a_link_is_only_text() -> None:
    assert "://" not in escaped("https://evil.example.com")
    assert escaped("www.a.b") == "www&#46;a.b"


def test_without_an_incident_it_is_about_what_is_selected() -> None:
    selected = incident(incident=None, selection=Selection(group="pay"))
    lines = as_markdown(selected).splitlines()
    assert lines[0] == "# Kafka consumer lag: groups with pay"
    assert "## What needs attention" in lines
    assert "## Cause" not in lines
