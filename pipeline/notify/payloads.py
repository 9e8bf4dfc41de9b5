"""The JSON of a message for each kind of receiver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from pipeline.notify.due import OPENED, RESOLVED, Due, Finding
from pipeline.notify.message import (
    LONGEST_TEXT,
    SUMMARY,
    Message,
    evidence_in_words,
    in_words,
    message_of,
    report_link,
    shortened,
    shown,
)

VERSION = 1
"""The version of a webhook's JSON; raised when a key is removed or means something else."""
MOST_ALERTS = 100
"""The most alerts in one request to Alertmanager."""
_LONGEST_SUMMARY = 1024
"""PagerDuty refuses an event with a longer summary, or with more than 512 kB in all."""
_LONGEST_NAME = 1024
_MOST_PARTITIONS = 1_000
_MOST_LISTED = 200

Json = dict[str, Any]


def pagerduty(message: Message, routing_key: str, report_url: str | None) -> Json:
    """An event of PagerDuty's Events API v2: it triggers or resolves the alert that has the finding's id as its key."""
    event: Json = {
        "routing_key": routing_key,
        "event_action": "resolve" if message.event == RESOLVED else "trigger",
        "dedup_key": message.dedup_key,
    }
    if message.event == RESOLVED:
        return event
    finding = message.finding
    payload: Json = {
        "summary": shortened(message.title, _LONGEST_SUMMARY),
        "source": finding.cluster if finding else "laglake",
        "severity": message.severity if message.severity in ("critical", "warning") else "info",
        "custom_details": {"message": message.body, **(_values(finding) if finding else {})},
    }
    if finding:
        payload["class"] = finding.kind
        payload |= _given({"timestamp": _iso(finding.first_seen), "component": _name(finding.group_id)})
    event |= {"payload": payload, "client": "laglake"}
    if link := report_link(report_url, message.finding):
        event |= {"client_url": link, "links": [{"href": link, "text": "Report"}]}
    return event


def alerts(
    due: Sequence[Due], standing: Iterable[Finding], report_url: str | None, now: datetime, lasts_until: datetime
) -> list[Json]:
    """Alerts for Alertmanager: those that begin and end, and those that last.

    Alertmanager forgets an alert that is not sent again and again. So all open findings are in each request, and end by
    themselves at `lasts_until` if no later run repeats them.
    """
    lasting = [Due(finding, "", OPENED) for finding in standing]
    return [_alert(one, report_url, now, lasts_until) for one in (*due, *lasting)]


def _alert(due: Due, report_url: str | None, now: datetime, lasts_until: datetime) -> Json:
    finding = due.finding
    labels = {
        "alertname": finding.kind,
        "cluster": finding.cluster,
        "group": finding.group_id,
        "topic": finding.topic,
        "client_id": finding.client_id,
        "severity": finding.severity,
        "owner": finding.owner,
        "tier": finding.tier,
        "finding_id": finding.finding_id,
    }
    annotations = {
        "summary": shown(finding.summary or "", LONGEST_TEXT) or in_words(finding.kind),
        "description": message_of(due, report_url).body,
        "advice": shown(finding.advice or "", LONGEST_TEXT),
        "report": report_link(report_url, due.finding),
    }
    alert: Json = {
        "labels": {name: _name(value) for name, value in labels.items() if value},
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": _iso(finding.first_seen or now),
        "endsAt": _iso((due.event == RESOLVED and finding.resolved_at) or lasts_until),
    }
    return alert | _given({"generatorURL": report_link(report_url, due.finding)})


def test_alert(message: Message, now: datetime) -> Json:
    """An alert that ends by itself after five minutes."""
    labels = {"alertname": "laglake_test", "severity": "info"}
    times = {"startsAt": _iso(now), "endsAt": _iso(now + timedelta(minutes=5))}
    return {"labels": labels, "annotations": {"summary": message.title, "description": message.body}, **times}


def webhook(message: Message, report_url: str | None) -> Json:
    """What a webhook gets: the message in words, and all that is known of its finding."""
    finding = message.finding
    several = [_line(due) for due in message.of[:_MOST_LISTED]] if message.event == SUMMARY else None
    return {
        "version": VERSION,
        "event": message.event,
        "dedup_key": message.dedup_key,
        "severity": message.severity,
        "title": message.title,
        "text": message.text,
        "report_url": report_link(report_url, message.finding),
        "finding": _values(finding) if finding else None,
        "findings": several,
        "findings_total": len(message.of),
    }


def _values(finding: Finding) -> Json:
    """The columns of a finding, with long texts cut and without the channel."""
    return {
        "finding_id": finding.finding_id,
        "kind": finding.kind,
        "cluster": finding.cluster,
        "group_id": _name(finding.group_id),
        "client_id": _name(finding.client_id),
        "instance": _name(finding.instance),
        "topic": _name(finding.topic),
        "partitions": list(finding.partitions[:_MOST_PARTITIONS]),
        "owner": _name(finding.owner),
        "tier": _name(finding.tier),
        "severity": finding.severity,
        "magnitude": finding.magnitude if finding.magnitude is None or isfinite(finding.magnitude) else None,
        "first_seen": _iso(finding.first_seen),
        "last_seen": _iso(finding.last_seen),
        "worst_at": _iso(finding.worst_at),
        "resolved_at": _iso(finding.resolved_at),
        "summary": shortened(finding.summary or "", LONGEST_TEXT),
        "evidence": shortened(evidence_in_words(finding.evidence), LONGEST_TEXT),
        "advice": shortened(finding.advice or "", LONGEST_TEXT),
    }


def _line(due: Due) -> Json:
    found = _values(replace(due.finding, partitions=()))
    names = ("finding_id", "kind", "cluster", "group_id", "client_id", "topic", "owner", "severity", "first_seen")
    return {"event": due.event} | {name: found[name] for name in names}


def _given(values: Json) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def _name(text: str | None) -> str | None:
    return None if text is None else shortened(text, _LONGEST_NAME)


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat().replace("+00:00", "Z")
