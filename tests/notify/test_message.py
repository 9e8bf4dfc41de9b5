"""What a message says, and that names from Kafka cannot do anything in it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import Config
from pipeline.notify import message as module
from pipeline.notify.due import Due, finding_of, plan
from pipeline.notify.message import LONGEST_NAME, Message, evidence_in_words, message_of, messages, report_link, shown
from tests.helpers.findings import HOUR, NOW, config_of, finding

Load = Callable[..., Config]
REPORT = "https://reports.example.com/r.html"


@pytest.fixture
def config(load: Load) -> Config:
    return config_of(load, '[[owners]]\ntopic = "^invoices$"\nowner = "payments"\ntier = "gold"\n')


def due(config: Config, event: str = "opened", **values: Any) -> Due:
    return Due(finding_of(finding(**values), config), "chat", event)


def test_a_message_says_what_since_when_how_severe_on_what_evidence_and_what_to_do(config: Config) -> None:
    message = message_of(due(config), REPORT)
    assert message.title == "Critical: slow consumer, group orders, cluster east"
    assert message.body.split("\n") == [
        "Client orders-1 polls slowly.",
        "",
        "Since: 2026-01-31 11:00:00 UTC",
        "Severity: critical, at its worst at 2026-01-31 12:00:00 UTC",
        "Cluster: east",
        "Group: orders",
        "Client: orders-1",
        "Process: 10.0.0.1",
        "Topic: invoices",
        "Partitions: 0, 1",
        "Owner: payments (tier gold)",
        "Evidence: records waiting: 1,567; hosts: 10.0.0.1",
        "What to do: Hand records to workers.",
        f"Report: {REPORT}#group/east/orders",
        "Finding: f1",
    ]


@pytest.mark.parametrize(
    ("url", "values", "link"),
    [
        (None, {}, None),
        (REPORT, {"group_id": "a/b c"}, f"{REPORT}#group/east/a%2Fb%20c"),
        (REPORT, {"group_id": "@here\n"}, f"{REPORT}#group/east/%40here%5Cn"),
        (REPORT, {"group_id": "x" * 200}, f"{REPORT}#group/east/{'x' * 200}"),
        (REPORT, {"group_id": "x" * 201}, REPORT),
        (REPORT, {"group_id": None}, REPORT),
        (f"{REPORT}#findings", {}, f"{REPORT}#findings"),
    ],
)
def test_the_link_leads_to_the_group(config: Config, url: str | None, values: dict[str, Any], link: str | None) -> None:
    assert report_link(url, due(config, **values).finding) == link


def test_the_message_of_an_end_says_when_and_asks_for_nothing(config: Config) -> None:
    message = message_of(due(config, "resolved", resolved_at=NOW), None)
    assert message.title == "Resolved: slow consumer, group orders, cluster east"
    assert "\nSince: 2026-01-31 11:00:00 UTC\nResolved: 2026-01-31 12:00:00 UTC\n" in message.body
    assert "What to do" not in message.body
    assert "Report" not in message.body


@pytest.mark.parametrize(
    ("unknown", "about"),
    [
        (("group_id",), "client orders-1, "),
        (("group_id", "client_id"), "topic invoices, "),
        (("group_id", "client_id", "topic", "instance"), ""),
    ],
)
def test_a_finding_may_be_about_a_client_a_topic_or_a_whole_cluster(
    config: Config, unknown: tuple[str, ...], about: str
) -> None:
    assert (
        message_of(due(config, **dict.fromkeys(unknown)), None).title == f"Critical: slow consumer, {about}cluster east"
    )


def test_a_finding_of_which_nothing_is_known_has_a_message(config: Config) -> None:
    known = {"finding_id": "f", "cluster": "east", "kind": "odd_kind"}
    message = message_of(Due(finding_of(known, config), "chat", "opened"), None)
    assert message.title == "Info: odd kind, cluster east"
    assert message.body == "odd kind\n\nSeverity: unknown\nCluster: east\nFinding: f"


HOSTILE = [
    "a\nReport: https://evil.example.com",
    "a\r\n\x1b[31m\u2028\u202eb\x00",
    '"; DROP TABLE "',
    "<script>alert(1)</script> <b>*bold*</b> [x](y)",
    "@here @everyone <!channel> <@U123> <#C1>",
    "<https://evil.example/login|Report> [Report](https://evil.example) <mailto:x@evil.example|Report> [a][b]",
    "👍🏽 群组 é",
    "\ud800",
    "x" * 1_000_000,
    "\n" * 1_000_000,
    "a@HERE" * 200_000,
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_stays_on_its_line_is_short_and_notifies_nobody(config: Config, name: str) -> None:
    names = dict.fromkeys(("group_id", "client_id", "instance", "topic", "summary", "advice", "owner"), name)
    evidence = json.dumps({name[:1000]: name, "b": [name] * 30})
    message = message_of(due(config, evidence=evidence, **names), REPORT)
    assert len(message.title) < 1_000
    assert "\n" not in message.title
    assert len(message.body) < 10_000
    lines = [line.partition(": ")[0] for line in message.body.split("\n")[2:]]
    expected = ["Since", "Severity", "Cluster", "Group", "Client", "Process", "Topic", "Partitions"]
    assert [line for line in lines if line != "Owner"] == [*expected, "Evidence", "What to do", "Report", "Finding"]
    for text in (message.title, message.body):
        assert all(character.isprintable() or character in "\n\u200b" for character in text)
        assert not any(mention in text.lower() for mention in ("@here", "@everyone", "<!channel", "<@u", "<#c"))
        assert not any(link in text for link in ("https://evil", "](", "][", "<https", "<mailto"))


def test_an_address_in_a_name_is_left_as_it_is() -> None:
    assert shown("user@host < 5", LONGEST_NAME) == "user@host < 5"


@given(st.text(), st.integers(1, 50))
def test_a_text_is_never_longer_than_it_may_be(text: str, most: int) -> None:
    assert len(shown(text, most)) <= most


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (None, ""),
        ("", ""),
        ("{}", ""),
        ("no JSON", "no JSON"),
        ("[1]", "[1]"),
        ("[" * 100_000, "[" * 100_000),
        ('{"heap_share": 0.75, "is_new": true}', "heap share: 0.75; is new: true"),
        ('{"a": {"b": 1}, "c": [1, 2000, null]}', 'a: {"b": 1}; c: 1, 2,000, '),
    ],
)
def test_evidence_is_written_in_words(evidence: str | None, expected: str) -> None:
    assert evidence_in_words(evidence) == expected


def many(load: Load, opened: int, resolved: int = 0) -> list[Due]:
    rows = [finding(f"f{n:03}", first_seen=NOW - HOUR, severity="warning") for n in range(opened)]
    found = plan(rows, [], config_of(load), NOW).due.get("chat", [])
    ended = finding_of(finding("e", resolved_at=NOW), config_of(load))
    return found + [Due(ended, "chat", "resolved")] * resolved


def test_a_flood_becomes_twenty_messages_and_one_about_the_rest(load: Load) -> None:
    found = messages(many(load, 60, 3), REPORT)
    assert [message.event for message in found] == ["opened"] * 20 + ["summary"]
    summary = found[-1]
    assert summary.title == "43 more findings: 40 opened and 3 resolved"
    assert len(summary.of) == 43
    assert summary.severity == "critical"
    lines = summary.body.split("\n")
    assert lines[0] == "Warning: slow consumer, group orders, cluster east"
    assert lines[20:] == ["and 23 more", "", f"Report: {REPORT}"]
    assert len({due.finding.finding_id for message in found for due in message.of}) == 61
    assert len(messages(many(load, 20), None)) == 20
    assert messages([], None) == []


def test_ends_may_have_messages_of_their_own_in_a_flood(load: Load) -> None:
    found = messages(many(load, 25, 30), None, single_ends=True)
    assert [message.event for message in found] == ["opened"] * 20 + ["resolved"] * 30 + ["summary"]


def test_a_summary_that_is_sent_again_has_the_same_key(load: Load) -> None:
    rest = many(load, 60)
    first, again = messages(rest, None)[-1], messages(rest[:20] + rest[:19:-1], None)[-1]
    assert first.dedup_key == again.dedup_key
    assert first.dedup_key != messages(rest[:59], None)[-1].dedup_key


def test_a_test_message_says_that_it_is_one() -> None:
    message = module.test_message("chat", REPORT)
    assert isinstance(message, Message)
    assert message.finding is None
    assert "test of the channel chat" in message.text
