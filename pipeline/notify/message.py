"""The messages about findings, in words. Names come from Kafka: they may contain anything, and be of any length."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pipeline.common.subject import Subject, subject_of
from pipeline.common.words import counted, group_address, named, spaced, visible
from pipeline.notify.due import OPENED, RESOLVED, Due, Finding

SUMMARY, TEST = "summary", "test"
MOST_MESSAGES = 20
"""The most messages that people get from one channel in a run; one more is about all other findings."""
LONGEST_NAME = 200
LONGEST_TEXT = 2_000
_LISTED = 20
"""The most findings, partitions or values that one message lists."""
_MENTION = re.compile(r"(?<!\w)@(?=\w)|@(?=all|channel|everyone|here|room)|<(?=[!@#])", re.IGNORECASE)
"""What could notify everybody in a chat, such as @here or <!channel>."""
_LINK = re.compile(r"(?<=:)(?=//)|(?<=\])(?=[(\[])|(?<=<)(?=https?:|mailto:)", re.IGNORECASE)
"""Where a chat could see a link in a name, such as [Report](https://...) or <mailto:...|Report>."""


class Message(NamedTuple):
    """One message about one finding, or about several that have no message of their own."""

    event: str
    severity: str
    dedup_key: str
    title: str
    body: str
    of: tuple[Due, ...] = ()

    @property
    def finding(self) -> Finding | None:
        """The finding, if the message is about a single one."""
        return self.of[0].finding if self.event in (OPENED, RESOLVED) else None

    @property
    def text(self) -> str:
        """Title and body together."""
        return f"{self.title}\n\n{self.body}"


def messages(due: Sequence[Due], report_url: str | None, *, single_ends: bool = False) -> list[Message]:
    """The messages of one channel in a run: at most MOST_MESSAGES, and one about all the rest.

    With `single_ends`, each end of a finding has a message of its own, because it closes something at the receiver.
    """
    alone = [one for one in due if single_ends and one.event == RESOLVED]
    others = [one for one in due if not (single_ends and one.event == RESOLVED)]
    first, rest = others[:MOST_MESSAGES], others[MOST_MESSAGES:]
    found = [message_of(one, report_url) for one in (*first, *alone)]
    return [*found, _summary(rest, report_url)] if rest else found


def message_of(due: Due, report_url: str | None) -> Message:
    """The message about one finding."""
    finding = due.finding
    lines = (f"{name}: {value}" for name, value in _facts(finding, due.event, report_url) if value)
    summary = shown(finding.summary or "", LONGEST_TEXT) or in_words(finding.kind)
    body = "\n".join([summary, "", *lines])
    title = title_of(finding, due.event)
    return Message(due.event, finding.severity or "info", finding.finding_id, title, body, (due,))


def title_of(finding: Finding, event: str = OPENED) -> str:
    """What happened to a finding, in one line."""
    what, *names = subject_of(finding)
    about = Subject(what, *(shown(name, LONGEST_NAME) for name in names)).with_cluster
    happened = "Resolved" if event == RESOLVED else shown(finding.severity or "info", LONGEST_NAME).capitalize()
    return f"{happened}: {in_words(finding.kind)}, {about}"


def _facts(finding: Finding, event: str, report_url: str | None) -> Iterator[tuple[str, str]]:
    is_over = event == RESOLVED
    yield "Since", _at(finding.first_seen)
    yield "Resolved", _at(finding.resolved_at) if is_over else ""
    at_worst = f", at its worst at {_at(finding.worst_at)}" if finding.worst_at else ""
    yield "Severity", f"{shown(finding.severity or 'unknown', LONGEST_NAME)}{at_worst}"
    yield "Cluster", shown(finding.cluster, LONGEST_NAME)
    yield "Group", "" if finding.group_id is None else shown(named(finding.group_id), LONGEST_NAME)
    yield "Client", shown(finding.client_id or "", LONGEST_NAME)
    yield "Process", shown(finding.instance or "", LONGEST_NAME)
    yield "Topic", shown(finding.topic or "", LONGEST_NAME)
    yield "Partitions", _listed([str(number) for number in finding.partitions])
    tier = f" (tier {shown(finding.tier, LONGEST_NAME)})" if finding.tier else ""
    yield "Owner", f"{shown(finding.owner, LONGEST_NAME)}{tier}" if finding.owner else ""
    yield "Evidence", shown(evidence_in_words(finding.evidence), LONGEST_TEXT)
    yield "What to do", "" if is_over else shown(finding.advice or "", LONGEST_TEXT)
    yield "Report", report_link(report_url, finding) or ""
    yield "Finding", finding.finding_id


def report_link(report_url: str | None, finding: Finding | None) -> str | None:
    """The address of the report, at the finding's group if it has one whose name is not too long."""
    if report_url is None or finding is None or finding.group_id is None or "#" in report_url:
        return report_url
    if len(finding.group_id) > LONGEST_NAME:
        return report_url
    return report_url + group_address(finding.cluster, finding.group_id)


def _summary(rest: Sequence[Due], report_url: str | None) -> Message:
    """One message about all findings that have none of their own."""
    begun = sum(due.event == OPENED for due in rest)
    numbers = [(begun, "opened"), (len(rest) - begun, "resolved")]
    said = " and ".join(f"{number:,} {what}" for number, what in numbers if number)
    lines = [title_of(due.finding, due.event) for due in rest[:_LISTED]]
    if more := len(rest) - len(lines):
        lines.append(f"and {more:,} more")
    lines += ["", f"Report: {report_url}"] if report_url else []
    worst = max(rest, key=lambda due: due.finding.gravity).finding.severity or "info"
    # The same findings again, after a failed try, are the same message.
    key = hashlib.sha256("".join(sorted(due.event + due.finding.finding_id for due in rest)).encode()).hexdigest()
    title = f"{counted(len(rest), 'more finding')}: {said}"
    return Message(SUMMARY, worst, key, title, "\n".join(lines), tuple(rest))


def test_message(channel: str, report_url: str | None) -> Message:
    """A message by which people see that a channel works."""
    body = f"This is a test of the channel {channel}. No finding is behind it."
    body += f"\nReport: {report_url}" if report_url else ""
    return Message(TEST, "info", "laglake-test", "laglake: a test message", body)


def evidence_in_words(evidence: str | None) -> str:
    """The observations behind a finding, from their JSON: `records waiting: 1,567; culprit topic: orders`."""
    if not evidence:
        return ""
    try:
        found = json.loads(evidence)
    except (ValueError, RecursionError):
        return evidence
    if not isinstance(found, dict):
        return evidence
    said = ((in_words(name), _value(value)) for name, value in found.items())
    return "; ".join(f"{name}: {value}" for name, value in said if value)


def _value(value: Any) -> str:
    if value is None or value in ([], {}, ""):
        return ""
    if isinstance(value, list):
        return _listed([_value(named(item) if isinstance(item, str) else item) for item in value])
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value)


def _listed(values: Sequence[str]) -> str:
    more = [f"and {len(values) - _LISTED:,} more"] if len(values) > _LISTED else []
    return ", ".join([*values[:_LISTED], *more])


def _at(instant: datetime | None) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC" if instant else ""


def in_words(name: str) -> str:
    """A name such as slow_consumer as words."""
    return shown(spaced(name), LONGEST_NAME)


def shown(text: str, most: int) -> str:
    """A text on one line, in at most `most` characters, that notifies nobody in a chat and has no links."""
    without_mentions = _MENTION.sub(lambda found: f"{found[0]}\N{ZERO WIDTH SPACE}", visible(shortened(text, most)))
    return shortened(_LINK.sub("\N{ZERO WIDTH SPACE}", without_mentions), most)


def shortened(text: str, most: int) -> str:
    """A text in at most `most` characters. The middle is cut out, because both ends of a name distinguish groups."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
