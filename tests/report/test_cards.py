"""The cards: what they are about, which there are, and what each answer says."""

import json
from datetime import timedelta
from typing import Any

import pytest

from pipeline.common.quantities import clock
from pipeline.common.subject import Subject
from pipeline.config.notify import Silence
from pipeline.kinds import KINDS, kind_named
from pipeline.kinds.command_lines import CommandContext, in_shell
from pipeline.report.cards.attention import notes
from pipeline.report.cards.cards import CARDS, Card, cards, cause_of
from pipeline.report.formats.export import as_json
from pipeline.report.model.details import Finding
from pipeline.report.page.page import render
from pipeline.report.read import objects
from pipeline.report.text.names import visible
from tests.helpers.reports import HOSTILE, MINUTE, NOON, NOW, cards_of, finding, group, report

HOUR = 60 * MINUTE


def at(ms: int) -> str:
    return clock(ms, NOON)


def shown(*findings: Finding, **more: Any) -> list[Card]:
    is_open = sum(f.is_open for f in findings)
    return cards(report(group("payments", 55), **{"findings": findings, "findings_open": is_open, **more}))


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_a_finding_of_which_nothing_is_known_has_words_and_commands_without_a_value(kind: str) -> None:
    for about in ({}, {"group_id": None}, {"group_id": None, "topic": None}, {"client_id": "app"}):
        found = finding(kind, None, advice=None, **about)
        words = cause_of(found, at)
        lines = "".join(command.line for command in kind_named(kind).commands(found, CommandContext()))
        assert "None" not in f"{words.word} {words.text} {lines}"
        assert words.severity == "info"


def test_a_kind_of_a_newer_laglake_has_its_summary() -> None:
    assert cause_of(finding("new_kind"), at)[:2] == ("new kind", "So it is.")


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ({"commits_never_within": 2}, "commit beyond the end"),
        ({"commits_never_within": 1, "commits_cut_off": 1}, "log truncated"),
        ({"commits_cut_off": 1}, "log truncated"),
    ],
)
def test_a_commit_that_was_never_within_the_log_is_not_called_a_truncated_log(
    counts: dict[str, int], word: str
) -> None:
    assert cause_of(finding("truncated_log", evidence=counts), at).word == word


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
    assert len(card.commands) == 4


def test_groups_of_two_clusters_with_one_name_have_two_cards() -> None:
    assert [c.group for c in shown(finding(), finding(cluster="west"))] == [("east", "payments"), ("west", "payments")]


def test_information_alone_needs_nobody() -> None:
    assert shown(finding("idle_member", "info")) == []


def test_a_loss_that_is_over_has_a_card_without_anything_to_do() -> None:
    over = finding("deleted_unread", resolved_ms=NOON + 5 * MINUTE, evidence={"deleted_offsets": 7})
    (card,) = shown(over, finding("rewound", group_id="other", resolved_ms=NOON))
    assert card.causes[0].text == "7 offsets deleted unread, seen since 12:00; resolved at 12:05"
    assert (card.is_loss, card.advice, card.commands) == (True, (), ())


def test_open_losses_come_first_then_losses_ahead_then_what_is_critical_then_the_oldest() -> None:
    found = shown(
        finding("deleted_unread", group_id="over", first_seen_ms=NOON - HOUR, resolved_ms=NOON),
        finding("falling_behind", "warning", group_id="slow", first_seen_ms=NOON - HOUR),
        finding(group_id="new"),
        finding(group_id="old", first_seen_ms=NOON - MINUTE),
        finding("data_loss_ahead", group_id="ahead"),
        finding("deleted_unread", group_id="lost"),
    )
    assert [c.subject.name for c in found] == ["lost", "ahead", "old", "new", "slow", "over"]


def test_losses_that_are_over_do_not_take_the_place_of_an_open_problem() -> None:
    over = [finding("deleted_unread", group_id=f"g{n}", resolved_ms=NOON) for n in range(CARDS + 2)]
    assert shown(*over, finding(group_id="stopped"))[0].subject.name == "stopped"


def test_a_card_begins_with_the_first_of_its_open_causes() -> None:
    since = {"since": "2026-03-01T11:30:00Z"}
    later = {"since": "2026-03-01T11:40:00Z"}
    (card,) = shown(
        finding("deleted_unread", first_seen_ms=NOON - HOUR, resolved_ms=NOON - MINUTE),
        finding("deleted_unread"),
        finding(evidence=since, now=later),
    )
    assert (card.since_ms, at(card.since_ms)) == (NOON - 30 * MINUTE, "11:30")
    assert "nothing" not in card.causes[1].text
    assert card.causes[1].text == "commits have not moved since 11:30"


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
    assert [c.loss for c in shown(held)] == ["no finding of data loss for these groups"]
    assert shown(held, endangered)[1].loss == "yes, or ahead, for payments: see the card of the group"


def test_what_groups_share_is_on_the_card_of_its_topic_and_said_on_that_of_each_group() -> None:
    evidence = {"groups": ["payments", "web"], "groups_affected": 3, "deleted_offsets": 70, "consumer_lag": 90}
    lost = finding("deleted_unread", group_id=None, topic="clicks", evidence=evidence)
    smaller = finding("falling_behind", group_id=None, topic="clicks", evidence={**evidence, "consumer_lag": 5})
    of_topic, of_group = shown(lost, smaller, finding("budget_burn"))
    assert (of_topic.subject.name, of_topic.victims_total) == ("clicks", 3)
    assert [(one.word, one.text.split(",")[0]) for one in of_topic.causes] == [
        ("data lost", "70 offsets deleted unread for 3 groups"),
        ("falling behind", "unread records of 3 groups have become older since 12:00"),
    ]
    assert of_topic.behind == "90 records, of which 70 were deleted unread"
    assert of_topic.loss == of_group.loss == "yes: 70 offsets deleted unread, seen since 12:00"


def test_long_lists_of_the_evidence_are_cut_on_a_page() -> None:
    names = [f"g{number:04}" for number in range(1_000)]
    evidence = {"groups": names, "groups_affected": 1_001}
    found = finding("deleted_unread", group_id=None, topic="clicks", evidence=evidence)
    assert found.shown_evidence == {"groups": [*names[:20], "and 980 more"], "groups_affected": 1_001}
    page = render(report(group("payments"), findings=(found,), findings_open=1))
    assert "g0019" in page
    assert "g0020" not in page


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_shown_and_is_one_word_of_a_command(name: str) -> None:
    found = finding(group_id=name, topic=name, owner=name, advice=name, evidence={"errors": [name], "slos": [name]})
    page = render(report(group(name), findings=(found,), findings_open=1))
    assert "<img" not in page[: page.index("<script")]
    card = cards_of(page)[" ".join(visible(name).split())]
    first, *_ = card["commands"].splitlines()
    quoted = in_shell(name, "GROUP")
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


def test_what_is_silenced_comes_after_what_is_not_and_says_why() -> None:
    """A group is silenced only if all of its open findings are."""
    found = shown(
        finding("deleted_unread", group_id="known", silenced="being moved"),
        finding("falling_behind", "warning", group_id="half", silenced="being moved"),
        finding("rewound", "warning", group_id="half"),
        finding("deleted_unread", group_id="over", resolved_ms=NOON),
    )
    assert [(c.subject.name, c.silenced) for c in found] == [("half", None), ("known", "being moved"), ("over", None)]


@pytest.mark.parametrize(
    ("about", "silenced"),
    [
        ({}, "maintenance"),
        ({"group_id": "else"}, None),
        ({"cluster": "west"}, None),
        ({"kind": "rewound"}, "known bug"),
        ({"resolved_ms": NOON}, None),
        ({"group_id": None, "evidence": {"groups": ["pay-1", "pay-2"], "groups_affected": 2}}, "maintenance"),
        ({"group_id": None, "evidence": {"groups": ["pay-1", "else"], "groups_affected": 2}}, None),
        ({"group_id": None, "evidence": {"groups": ["pay-1", "pay-2"], "groups_affected": 3}}, None),
        ({"group_id": None}, None),
    ],
)
def test_an_open_finding_is_silenced_by_the_first_silence_that_covers_it(
    about: dict[str, Any], silenced: str | None
) -> None:
    silences = [
        Silence(cluster="east", group="^pay", kind="rewound", reason="known bug"),
        Silence(cluster="east", group="^pay", reason="maintenance", **{"from": NOW, "until": NOW + timedelta(hours=1)}),
    ]
    (found,) = objects.with_silences([finding(**about)], silences, NOW)
    assert found.silenced == silenced
    (later,) = objects.with_silences([finding(**about)], silences, NOW + timedelta(hours=1))
    assert later.silenced == (silenced if silenced == "known bug" else None)
