"""The JSON for each receiver, compared with what the receiver's own documentation asks for."""

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from pipeline.config import Config
from pipeline.notify import payloads
from pipeline.notify.due import Due, finding_of
from pipeline.notify.message import message_of, messages
from pipeline.notify.message import test_message as message_for_a_test
from tests.helpers.findings import HOUR, NOW, config_of, finding

Load = Callable[..., Config]
REPORT = "https://reports.example.com/r.html"
LONG = "x\n\"'👍" * 200_000
UNKNOWN = dict.fromkeys(set(finding()) - {"finding_id", "kind", "cluster", "resolved_at", "resolution_confirmed_at"})
FINDINGS: list[dict[str, Any]] = [
    finding(),
    finding(**UNKNOWN),
    finding(
        **dict.fromkeys(("group_id", "client_id", "instance", "topic", "owner", "summary", "evidence", "advice"), LONG),
        partitions=list(range(100_000)),
        magnitude=float("nan"),
    ),
]
EACH = pytest.mark.parametrize("row", FINDINGS, ids=["usual", "unknown", "long"])


def due(load: Load, row: dict[str, Any], event: str = "opened") -> Due:
    values = row | ({"resolved_at": NOW} if event == "resolved" else {})
    return Due(finding_of(values, config_of(load)), "chat", event)


def encoded(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False).encode()


def is_instant(text: str) -> bool:
    return bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text))


@EACH
def test_an_event_of_pagerduty_has_the_required_keys_and_sizes(load: Load, row: dict[str, Any]) -> None:
    event = payloads.pagerduty(message_of(due(load, row), REPORT), "k" * 32, REPORT)
    assert (event["routing_key"], event["event_action"], event["dedup_key"]) == ("k" * 32, "trigger", "f1")
    assert len(event["dedup_key"]) <= 255
    payload = event["payload"]
    assert {"summary", "source", "severity"} <= payload.keys()
    assert 0 < len(payload["summary"]) <= 1024
    assert payload["severity"] in ("critical", "error", "warning", "info")
    assert payload["source"] == "east"
    assert {*payload} <= {"summary", "source", "severity", "timestamp", "component", "group", "class", "custom_details"}
    assert {*event} <= {
        "routing_key",
        "event_action",
        "dedup_key",
        "payload",
        "client",
        "client_url",
        "links",
        "images",
    }
    is_short = row["group_id"] == "orders"
    assert event["links"] == [{"href": f"{REPORT}#group/east/orders" if is_short else REPORT, "text": "Report"}]
    assert all(value is not None for value in payload.values())
    assert "timestamp" not in payload or is_instant(payload["timestamp"])
    assert len(encoded(event)) < 512_000


def test_an_event_of_pagerduty_by_example(load: Load) -> None:
    event = payloads.pagerduty(message_of(due(load, finding()), None), "key", None)
    details = event["payload"].pop("custom_details")
    assert event == {
        "routing_key": "key",
        "event_action": "trigger",
        "dedup_key": "f1",
        "client": "laglake",
        "payload": {
            "summary": "Critical: slow consumer, group orders, cluster east",
            "source": "east",
            "severity": "critical",
            "class": "slow_consumer",
            "component": "orders",
            "timestamp": "2026-01-31T11:00:00Z",
        },
    }
    assert details["advice"] == "Hand records to workers."
    assert details["message"].startswith("Client orders-1 polls slowly.\n")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("critical", "critical"), ("warning", "warning"), ("info", "info"), ("x", "info"), (None, "info")],
)
def test_severities_are_those_of_pagerduty(load: Load, ours: str | None, theirs: str) -> None:
    message = message_of(due(load, finding(severity=ours)), None)
    assert payloads.pagerduty(message, "key", None)["payload"]["severity"] == theirs


@EACH
def test_an_end_resolves_the_same_key(load: Load, row: dict[str, Any]) -> None:
    event = payloads.pagerduty(message_of(due(load, row, "resolved"), REPORT), "key", REPORT)
    assert event == {"routing_key": "key", "event_action": "resolve", "dedup_key": "f1"}


def test_summaries_and_tests_are_events_of_pagerduty_too(load: Load) -> None:
    rest = [due(load, finding(f"f{n}", group_id=LONG)) for n in range(500)]
    for message in (messages(rest, REPORT)[-1], message_for_a_test("pager", None)):
        event = payloads.pagerduty(message, "key", None)
        assert event["event_action"] == "trigger"
        assert {"summary", "source", "severity"} <= event["payload"].keys()
        assert len(event["dedup_key"]) <= 255
        assert len(encoded(event)) < 512_000


@EACH
@pytest.mark.parametrize("event", ["opened", "resolved"])
def test_an_alert_is_one_that_alertmanager_accepts(load: Load, row: dict[str, Any], event: str) -> None:
    lasts = NOW + HOUR
    (alert,) = payloads.alerts([due(load, row, event)], [], REPORT, NOW - HOUR, lasts)
    assert {*alert} <= {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}
    for name, value in (*alert["labels"].items(), *alert["annotations"].items()):
        assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name)
        assert isinstance(value, str)
        assert value
        value.encode()
    assert alert["labels"]["alertname"] == "slow_consumer"
    assert is_instant(alert["endsAt"])
    assert is_instant(alert["startsAt"])
    assert alert["startsAt"] < alert["endsAt"]
    assert datetime.fromisoformat(alert["endsAt"]) == (NOW if event == "resolved" else lasts)
    assert len(encoded(alert)) < 100_000


def test_an_alert_by_example(load: Load) -> None:
    owners = '[[owners]]\ngroup = "orders"\nowner = "payments"\ntier = "1"\n'
    one = Due(finding_of(finding(), config_of(load, owners)), "chat", "opened")
    (alert,) = payloads.alerts([one], [], REPORT, NOW, NOW + HOUR)
    assert alert["labels"] == {
        "alertname": "slow_consumer",
        "cluster": "east",
        "group": "orders",
        "topic": "invoices",
        "client_id": "orders-1",
        "severity": "critical",
        "owner": "payments",
        "tier": "1",
        "finding_id": "f1",
    }
    assert alert["annotations"]["summary"] == "Client orders-1 polls slowly."
    assert alert["annotations"]["report"] == alert["generatorURL"] == f"{REPORT}#group/east/orders"


def test_an_open_finding_is_repeated_with_the_same_labels(load: Load) -> None:
    one = due(load, finding())
    (first,) = payloads.alerts([one], [], None, NOW, NOW + HOUR)
    (again,) = payloads.alerts([], [one.finding], None, NOW, NOW + 2 * HOUR)
    (end,) = payloads.alerts([due(load, finding(), "resolved")], [], None, NOW, NOW + 3 * HOUR)
    assert first["labels"] == again["labels"] == end["labels"]
    assert (again["startsAt"], again["endsAt"]) == (first["startsAt"], "2026-01-31T14:00:00Z")


def test_a_test_alert_ends_by_itself() -> None:
    alert = payloads.test_alert(message_for_a_test("alerts", None), NOW)
    assert alert["labels"]["alertname"] == "laglake_test"
    assert datetime.fromisoformat(alert["endsAt"]) - NOW == timedelta(minutes=5)


@EACH
def test_a_webhook_gets_every_column_that_describes_a_finding(load: Load, row: dict[str, Any]) -> None:
    content = payloads.webhook(message_of(due(load, row), REPORT), REPORT)
    others = {"channel", "resolution_confirmed_at", "cause_id", "cause_topic", "cause_since", "grouped_at"}
    assert {*content["finding"]} == {*row} - others
    assert (content["event"], content["dedup_key"], content["finding"]["finding_id"]) == ("opened", "f1", "f1")
    assert (content["findings"], content["findings_total"]) == (None, 1)
    assert all(len(f"{content['finding'][name]}") <= 1024 for name in ("group_id", "client_id", "instance", "topic"))
    assert len(encoded(content)) < 200_000


def test_a_webhook_by_example(load: Load) -> None:
    content = payloads.webhook(message_of(due(load, finding(group_id='a\n"b"')), None), None)
    text = content.pop("text")
    assert text.startswith('Critical: slow consumer, group a\\n"b", cluster east\n\nClient orders-1 polls')
    assert content == {
        "version": 1,
        "event": "opened",
        "dedup_key": "f1",
        "severity": "critical",
        "title": 'Critical: slow consumer, group a\\n"b", cluster east',
        "report_url": None,
        "finding": {
            "finding_id": "f1",
            "kind": "slow_consumer",
            "cluster": "east",
            "group_id": 'a\n"b"',
            "client_id": "orders-1",
            "instance": "10.0.0.1",
            "topic": "invoices",
            "partitions": [0, 1],
            "owner": None,
            "tier": None,
            "severity": "critical",
            "magnitude": 1567.0,
            "first_seen": "2026-01-31T11:00:00Z",
            "last_seen": "2026-01-31T12:00:00Z",
            "worst_at": "2026-01-31T12:00:00Z",
            "resolved_at": None,
            "summary": "Client orders-1 polls slowly.",
            "evidence": "records waiting: 1,567; hosts: 10.0.0.1",
            "advice": "Hand records to workers.",
        },
        "findings": None,
        "findings_total": 1,
    }


def test_a_summary_for_a_webhook_lists_findings(load: Load) -> None:
    rest = [due(load, finding(f"f{n}", group_id=LONG)) for n in range(500)]
    content = payloads.webhook(messages(rest, REPORT)[-1], REPORT)
    assert (content["event"], content["finding"]) == ("summary", None)
    assert (len(content["findings"]), content["findings_total"]) == (200, 480)
    assert content["findings"][0]["event"] == "opened"
    assert len(encoded(content)) < 2_000_000
    assert payloads.webhook(message_for_a_test("hook", None), None)["findings"] is None
