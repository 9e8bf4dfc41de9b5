"""The cards: what they are about, which there are, and what each answer says."""

import json
from dataclasses import replace
from typing import Any

import pytest

from pipeline.common.subject import Subject
from pipeline.report import causes, commands
from pipeline.report.answers import behind, caught_up_at, gauge, loss, members
from pipeline.report.attention import notes
from pipeline.report.cards import CARDS, Card, cards
from pipeline.report.causes import cause
from pipeline.report.details_model import Finding, Forecast, Verdict
from pipeline.report.export import as_json
from pipeline.report.names import visible
from pipeline.report.page import render
from pipeline.report.units import clock
from pipeline.tables import FINDINGS
from tests.helpers.reports import HOSTILE, MINUTE, NOON, cards_of, group, partition, report

HOUR = 60 * MINUTE


def at(ms: int) -> str:
    return clock(ms, NOON)


def finding(kind: str = "no_progress", severity: str | None = "critical", **more: Any) -> Finding:
    plain = Finding(
        kind=kind,
        cluster="east",
        group_id="payments",
        client_id=None,
        topic="orders",
        partitions=(0,),
        severity=severity,
        first_seen_ms=NOON,
        last_seen_ms=NOON,
        resolved_ms=None,
        summary="So it is.",
        evidence={},
        advice="Do that.",
    )
    return replace(plain, **more)


def shown(*findings: Finding, **more: Any) -> list[Card]:
    is_open = sum(f.is_open for f in findings)
    return cards(report(group("payments", 55), **{"findings": findings, "findings_open": is_open, **more}))


def kinds() -> set[str]:
    comment = FINDINGS.schema["kind"].metadata["comment"]
    return set(comment.split(" | "))


def test_every_kind_has_words_and_commands() -> None:
    assert set(causes._OF_KIND) == kinds()
    assert set(commands._OF_KIND) == kinds()


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_a_finding_of_which_nothing_is_known_has_words_and_commands_without_a_value(kind: str) -> None:
    for about in ({}, {"group_id": None}, {"group_id": None, "topic": None}, {"client_id": "app"}):
        found = finding(kind, None, advice=None, **about)
        words = cause(found, at)
        lines = "".join(command.line for command in commands.commands(found))
        assert "None" not in f"{words.word} {words.text} {lines}"
        assert words.severity == "info"


def test_a_kind_of_a_newer_laglake_has_its_summary() -> None:
    assert cause(finding("new_kind"), at)[:2] == ("new kind", "So it is.")


@pytest.mark.parametrize(
    ("about", "subject"),
    [
        ({}, Subject("group", "payments", "east")),
        ({"client_id": "app"}, Subject("group", "payments", "east")),
        ({"group_id": None, "client_id": "app"}, Subject("client", "app", "east")),
        ({"group_id": None}, Subject("topic", "orders", "east")),
        ({"group_id": None, "topic": None}, Subject("cluster", "east", "east")),
    ],
)
def test_a_card_is_about_a_group_or_else_about_the_cause(about: dict[str, Any], subject: Subject) -> None:
    (card,) = shown(finding(**about))
    assert card.subject == subject
    assert (card.group is None) == (subject.what != "group")


def test_the_findings_of_a_group_are_one_card_with_causes_before_symptoms() -> None:
    (card,) = shown(
        finding("idle_member", "info"),
        finding("blind_gauge", "warning", client_id="app"),
        finding("falling_behind", "warning"),
        finding("data_loss_ahead"),
    )
    assert [c.word for c in card.causes] == ["loss ahead", "falling behind", "gauge wrong", "idle member"]
    assert card.advice == ("Do that.",)
    assert len(card.commands) == 3


def test_groups_of_two_clusters_with_one_name_have_two_cards() -> None:
    assert [c.group for c in shown(finding(), finding(cluster="west"))] == [("east", "payments"), ("west", "payments")]


def test_information_alone_needs_nobody() -> None:
    assert shown(finding("idle_member", "info")) == []


def test_a_loss_that_is_over_has_a_card_without_anything_to_do() -> None:
    over = finding("deleted_unread", resolved_ms=NOON + 5 * MINUTE, evidence={"deleted_offsets": 7})
    (card,) = shown(over, finding("rewound", group_id="other", resolved_ms=NOON))
    assert card.causes[0].text == "7 offsets deleted unread, seen since 12:00; resolved at 12:05"
    assert (card.is_loss, card.advice, card.commands) == (True, (), ())


def test_losses_come_first_then_what_is_critical() -> None:
    found = shown(
        finding("falling_behind", "warning", group_id="a"),
        finding(group_id="b"),
        finding("deleted_unread", group_id="c"),
    )
    assert [c.subject.name for c in found] == ["c", "b", "a"]


def test_more_cards_than_a_page_shows_are_counted() -> None:
    found = tuple(finding(group_id=f"g{n}") for n in range(CARDS + 3))
    shown_report = report(group(), findings=found, findings_open=33)
    assert len(cards(shown_report)) == CARDS
    assert [n.sentence for n in notes(shown_report)] == [f"{33 - CARDS} more findings are open."]


def test_the_groups_of_a_topic_are_named_up_to_ten() -> None:
    names = [f"g{n:02}" for n in range(20)]
    (card,) = shown(finding("recreated_topic", group_id=None, evidence={"groups": names, "groups_affected": 47}))
    assert [v.key[1] for v in card.victims] == names[:10]
    assert card.victims_total == 47
    assert [c.line.split()[4:6] for c in card.commands] == [["--group", name] for name in names[:3]]


def test_a_topic_says_which_of_its_groups_loses_records() -> None:
    held = finding("open_transaction", "warning", group_id=None, evidence={"groups": ["payments", "other"]})
    endangered = finding("data_loss_ahead")
    assert [c.loss for c in shown(held)] == ["no finding says so for these groups"]
    assert shown(held, endangered)[1].loss == "yes, or ahead, for payments: see the card of the group"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "5 records, bytes not known, age not known"),
        ({"consumer_lag": 1, "consumer_lag_bytes": 0}, "1 record, 0 B, age not known"),
        ({"partitions_unknown": 2}, "5 records, bytes not known, age not known; 2 partitions not known"),
        ({"consumer_lag": None, "partitions_unknown": 1}, "not known"),
        ({"consumer_lag": None}, "not known: nothing was committed"),
    ],
)
def test_how_far_a_group_is_behind(more: dict[str, Any], words: str) -> None:
    assert behind(group(**more), ()) == words


def test_a_group_that_is_not_listed_has_the_lag_of_its_finding() -> None:
    assert behind(None, [finding(), finding(evidence={"consumer_lag": 1_234, "consumer_age_ms": 90_000})]) == (
        "1,234 records, the oldest 1.5 min old"
    )
    assert behind(None, [finding(evidence={"records_waiting": 1_567})]) == "1,567 records wait"
    assert behind(None, [finding()]) == "not known"


def test_data_loss_is_known_to_be_none_only_if_every_partition_is_known() -> None:
    assert loss(group(), (), None, at) == "none, and none is forecast; headroom 100 records"
    assert loss(group(min_headroom=None), (), None, at) == "none, and none is forecast"
    assert loss(group(partitions_unknown=1), (), None, at) == "not known for 1 partition"
    assert loss(group(statuses={"deleted_unread": 1}), (), None, at) == "yes: records were deleted unread"
    assert loss(None, (), None, at) == "not known"


def test_a_forecast_of_loss_has_a_time_of_day_with_its_band() -> None:
    times = {"deleted_in_ms": 150 * MINUTE, "deleted_in_low_ms": 110 * MINUTE, "deleted_in_high_ms": 13 * HOUR}
    forecast = replace(Forecast("east", "g", NOON, None, None, None, "never_at_this_rate"), **times)
    words = "forecast: retention deletes unread records at 14:30"
    assert loss(group(), (), forecast, at) == f"{words} (13:50 to 2026-03-02 01:00)"
    open_end = replace(forecast, deleted_in_low_ms=None, deleted_in_high_ms=None)
    assert loss(group(), (), open_end, at) == f"{words} (12:00 to never)"
    assert loss(group(), (), replace(forecast, deleted_in_ms=None), at).startswith("none, and none is forecast")
    lost = finding("deleted_unread", evidence={"deleted_offsets": 7})
    assert loss(group(), [lost], forecast, at) == (
        f"yes: 7 offsets deleted unread, seen since 12:00; {words} (13:50 to 2026-03-02 01:00)"
    )


def test_commits_that_expire_are_a_loss_ahead() -> None:
    expire = finding("commits_expire", "warning", now={"commits_expire_at": "2026-03-01T12:30:00Z"})
    words = "Kafka may remove the commits from 12:30 on"
    assert loss(group(), [expire], None, at) == f"ahead: {words}; the group then starts where auto.offset.reset says"
    assert cause(expire, at)[:2] == ("commits expire", words)


def test_a_forecast_of_loss_that_is_not_of_the_newest_snapshot_says_so() -> None:
    ahead = finding("data_loss_ahead", worst_ms=NOON - HOUR, evidence={"deleted_at": "2026-03-02T01:30:00Z"})
    words = "ahead: retention may delete unread records from 2026-03-02 01:30 on"
    assert loss(group(), [ahead], None, at) == f"{words} (forecast of 11:00)"
    assert loss(group(), [replace(ahead, now=ahead.evidence)], None, at) == words
    assert loss(group(), [replace(ahead, now={})], None, at) == "ahead: retention may delete unread records soon"


@pytest.mark.parametrize(
    ("in_ms", "low", "high", "reason", "words"),
    [
        (42 * MINUTE, 37 * MINUTE, 13 * HOUR, None, "at 12:42 (12:37 to 2026-03-02 01:00)"),
        (42 * MINUTE, 0, None, None, "at 12:42 (12:00 to never)"),
        (0, 0, 0, None, "it has caught up"),
        (None, 50 * MINUTE, None, "never_at_this_rate", "never at this rate, but not before 12:50"),
        (None, None, None, "never_at_this_rate", "never at this rate"),
        (None, 0, None, "too_uncertain", "not known: the rate of the group varies too much"),
        (None, None, None, "something new", "not known"),
    ],
)
def test_when_a_group_will_have_caught_up(
    in_ms: int | None, low: int | None, high: int | None, reason: str | None, words: str
) -> None:
    assert caught_up_at(Forecast("east", "g", NOON, in_ms, low, high, reason), at) == words


def test_without_a_forecast_it_is_not_known() -> None:
    assert caught_up_at(None, at) == "not known: there is no forecast"
    assert caught_up_at(Forecast("east", "g", None, 1, 1, 1, None), at) == "not known: there is no forecast"


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict("east", "g", 1, 0, "app", 5, 5, "truthful"), "right: that of app reads 5, its lag is 5"),
        (Verdict("east", "g", 1, 1, "app", None, 5, "stale"), "wrong: that of app reads nothing, its lag is 5 (stale)"),
        (
            Verdict("east", "g", 3, 2, "app", 0, None, "blind"),
            "wrong: that of app reads 0, its lag is not known (blind); 2 of 3 are wrong",
        ),
        (Verdict("east", "g", 1, 0, "app", 5, 5, None), "cannot be judged: that of app reads 5, its lag is 5"),
    ],
)
def test_whether_the_gauge_is_right(verdict: Verdict, words: str) -> None:
    assert gauge(verdict, (), at) == words


def test_a_gauge_that_is_not_reported_any_more_was_wrong() -> None:
    was = "wrong when it was last reported, at 12:00"
    assert gauge(None, [finding("blind_gauge", client_id="app")], at) == was
    assert gauge(None, [finding()], at) == "not known: no client of the group reports it"


def test_members_are_those_with_partitions_that_are_behind() -> None:
    owners = [partition("t", n, client_id=f"c{n}", host=f"/10.0.0.{n}", consumer_lag=n) for n in range(6)]
    assert members(group(), (), owners, at) == (
        "c1 at 10.0.0.1 (t 1); c2 at 10.0.0.2 (t 2); c3 at 10.0.0.3 (t 3); 2 more"
    )
    same = [partition("t", n, client_id="c", consumer_lag=None) for n in range(4)]
    assert members(group(), (), same, at) == "c (t 0, t 1, t 2, …)"
    assert members(group(members=0), (), (), at) == "none: the group has no members"
    left = group(members=0, members_seen_ms=NOON - HOUR)
    assert members(left, (), (), at) == "none: the group has no members; it last had some at 11:00"
    assert members(group(), (), [partition("t", 0, consumer_lag=1)], at) == "not known"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (finding("slow_consumer", client_id="app", instance="10.0.0.1:99"), "app at 10.0.0.1:99"),
        (finding("slow_consumer", client_id="app", evidence={"hosts": ["/10.0.0.1"]}), "app at 10.0.0.1"),
        (finding("flapping_member", evidence={"client_id": "app", "host": "/10.0.0.1"}), "app at 10.0.0.1"),
        (finding("under_replicated", evidence={"brokers": [3, 4]}), "broker 3; broker 4"),
        (finding("slow_consumer", client_id="app", resolved_ms=NOON), "not known"),
    ],
)
def test_a_finding_may_name_the_place(found: Finding, words: str) -> None:
    assert members(group(), [found], (), at) == words


def test_a_stuck_partition_comes_with_the_record_to_look_at() -> None:
    stuck = finding(evidence={"worst_topic": "orders", "worst_partition": 3})
    _, look = commands.commands(stuck, [partition("orders", 3, committed_offset=41), partition("orders", 4)])
    assert look.line.endswith("--topic orders --partition 3 --offset 41 --max-messages 1")
    assert len(commands.commands(stuck, [partition("orders", 4, committed_offset=41)])) == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_shown_and_is_one_word_of_a_command(name: str) -> None:
    found = finding(group_id=name, topic=name, owner=name, advice=name, evidence={"errors": [name], "slos": [name]})
    page = render(report(group(name), findings=(found,), findings_open=1))
    assert "<img" not in page[: page.index("<script")]
    card = cards_of(page)[" ".join(visible(name).split())]
    first, *_ = card["commands"].splitlines()
    quoted = commands.in_shell(name, "GROUP")
    assert first.endswith(f"--group {quoted} --members --verbose")
    assert quoted == "GROUP" if not name.isprintable() else visible(name) in quoted.replace("'\"'\"'", "'")


def test_cards_are_in_the_json_with_the_ids_of_their_findings() -> None:
    found = finding(finding_id="ab", evidence={"reason": "no_members", "status": "stopped"})
    (card,) = json.loads(as_json(report(group("payments"), findings=(found,), findings_open=1)))["cards"]
    assert card["subject"] == {"what": "group", "name": "payments", "cluster": "east"}
    assert card["findings"] == ["ab"]
    assert card["causes"][0]["word"] == "stopped"
    assert card["commands"][0]["line"].startswith("kafka-consumer-groups ")
    assert card["behind"] == "5 records, bytes not known, age not known"
