"""Which findings are sent, where and when."""

import json
import random
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from pipeline.config import Config
from pipeline.notify.due import Finding, Notification, Plan, notification_of, plan
from pipeline.tables import FINDINGS, NOTIFICATIONS
from tests.helpers.findings import HOUR, NOW, Row, config_of, finding, notified

Load = Callable[..., Config]
DAY = timedelta(days=1)
SILENCE = '[[silences]]\ngroup = "orders"\nreason = "known"\n'


def due(found: Plan) -> list[tuple[str, str, str]]:
    return [(one.channel, one.event, one.finding.finding_id) for several in found.due.values() for one in several]


def once(config: Config, *findings: Row, known: Iterable[Row] = (), now: datetime = NOW) -> Plan:
    return plan(findings, known, config, now)


def after(found: Plan, error: str | None = None, now: datetime = NOW) -> list[Row]:
    """The rows of `notifications` after all that is due was sent, or has failed."""
    sent = [one.outcome(now, error) for several in found.due.values() for one in several]
    return [row._asdict() for row in (*found.held, *sent)]


def test_rows_have_the_columns_of_their_tables() -> None:
    assert list(Notification._fields) == NOTIFICATIONS.columns
    assert Finding.__dataclass_fields__.keys() - {"channels"} <= set(FINDINGS.columns)
    assert notification_of(notified()) == Notification(
        "east", "f1", "chat", "opened", "sent", 1, NOW - HOUR, NOW - HOUR, None
    )


def test_a_finding_is_sent_once_when_it_opens_and_once_when_it_ends(load: Load) -> None:
    config = config_of(load)
    first = once(config, finding())
    assert due(first) == [("chat", "opened", "f1")]
    rows = after(first)
    assert due(once(config, finding(), known=rows)) == []
    ended = finding(resolved_at=NOW, resolution_confirmed_at=NOW)
    second = once(config, ended, known=rows)
    assert due(second) == [("chat", "resolved", "f1")]
    assert due(once(config, ended, known=rows + after(second))) == []


def test_what_has_failed_is_due_again_with_its_number_of_tries(load: Load) -> None:
    config, rows = config_of(load), []
    for number in range(3):
        found = once(config, finding(), known=rows, now=NOW + number * DAY)
        rows = after(found, "HTTP status 500", NOW + number * DAY)
    (row,) = rows
    assert (row["status"], row["attempts"], row["error"]) == ("failed", 3, "HTTP status 500")
    assert (row["first_tried_at"], row["last_tried_at"]) == (NOW, NOW + 2 * DAY)


@pytest.mark.parametrize("status", [None, "failed", "held"])
def test_a_finding_that_ended_before_it_was_sent_is_not_sent(load: Load, status: str | None) -> None:
    known = [notified(status=status)] if status else []
    assert due(once(config_of(load), finding(resolved_at=NOW), known=known)) == []


@pytest.mark.parametrize(
    ("evidence", "owner", "channel"),
    [
        ({"groups": ["pay-1", "pay-2"], "groups_affected": 2}, "pay", "other"),
        ({"groups": ["pay-1", "web-1"], "groups_affected": 2}, None, "chat"),
        ({"groups": ["pay-1", "else"], "groups_affected": 2}, None, "chat"),
        ({"groups": ["else", "pay-1"], "groups_affected": 2}, None, "chat"),
        ({"groups": ["pay-1", "pay-2"], "groups_affected": 3}, None, "chat"),
        ({}, None, "chat"),
    ],
)
def test_a_finding_about_a_topic_is_sent_to_the_owner_of_all_of_its_groups(
    load: Load, evidence: dict[str, Any], owner: str | None, channel: str
) -> None:
    text = '[channels.other]\ntype = "webhook"\nurl = "http://h"\n'
    text += (
        '[[owners]]\ngroup = "^pay-"\nowner = "pay"\nchannel = "other"\n[[owners]]\ngroup = "^web-"\nowner = "web"\n'
    )
    found = once(config_of(load, text), finding(group_id=None, client_id=None, evidence=json.dumps(evidence)))
    assert [(name, one.finding.owner) for name, several in found.due.items() for one in several] == [(channel, owner)]


def test_a_finding_about_a_cluster_is_not_that_of_the_groups_that_it_names(load: Load) -> None:
    """A broker that is gone concerns more than the groups whose partitions have no leader."""
    text = '[[owners]]\ngroup = "^pay-"\nowner = "pay"\n[[silences]]\ngroup = "^pay-"\nreason = "known"\n'
    evidence = json.dumps({"groups": ["pay-1"], "groups_affected": 1})
    of_topic, of_cluster = (
        finding(name, group_id=None, client_id=None, topic=topic, evidence=evidence)
        for name, topic in (("f1", "invoices"), ("f2", None))
    )
    found = once(config_of(load, text), of_topic, of_cluster)
    assert [(one.finding.finding_id, one.finding.owner) for one in found.due["chat"]] == [("f2", None)]
    assert [row.finding_id for row in found.held] == ["f1"]


def test_a_finding_about_a_topic_keeps_no_owner_when_other_groups_join(load: Load) -> None:
    text = '[[owners]]\ngroup = "^pay-"\nowner = "pay"\n'
    evidence = json.dumps({"groups": ["else", "pay-1"], "groups_affected": 2})
    row = finding(group_id=None, client_id=None, evidence=evidence, owner="pay", tier="1")
    ((due,),) = once(config_of(load, text), row).due.values()
    assert (due.finding.owner, due.finding.tier) == (None, None)


def test_an_end_goes_where_the_beginning_went_even_if_the_owner_has_changed(load: Load) -> None:
    other = '[channels.other]\ntype = "webhook"\nurl = "http://h"\n[[owners]]\ngroup = "orders"\nowner = "o"\n'
    config = config_of(load, f'{other}channel = "other"\n')
    known = [notified(), notified(channel="gone")]
    assert due(once(config, finding(), known=known)) == [("other", "opened", "f1")]
    assert due(once(config, finding(resolved_at=NOW), known=known)) == [("chat", "resolved", "f1")]


def test_an_end_is_sent_even_if_the_finding_is_silenced_by_now(load: Load) -> None:
    config = config_of(load, SILENCE)
    assert due(once(config, finding(resolved_at=NOW), known=[notified()])) == [("chat", "resolved", "f1")]


def test_a_finding_goes_to_the_channel_of_the_first_rule_or_to_the_default(load: Load) -> None:
    config = config_of(
        load,
        '[channels.a]\ntype = "webhook"\nurl = "http://h"\n'
        '[[owners]]\ntopic = "^invoices$"\nowner = "A"\ntier = "1"\nchannel = "a"\n'
        '[[owners]]\ngroup = "."\nowner = "B"\n',
    )
    # What the rows have is from an earlier configuration.
    old = {"tier": "9", "channel": "gone"}
    unruled = finding("f3", topic=None, group_id=None, owner="C", **old)
    found = once(config, finding(**old), finding("f2", topic=None, **old), unruled)
    assert due(found) == [("a", "opened", "f1"), ("chat", "opened", "f2"), ("chat", "opened", "f3")]
    owners = {one.finding.finding_id: one.finding.owner for several in found.due.values() for one in several}
    assert owners == {"f1": "A", "f2": "B", "f3": "C"}
    assert found.due["a"][0].finding.tier == "1"


def test_without_a_channel_nothing_is_sent_or_kept(load: Load) -> None:
    assert once(config_of(load, "[notifications]\n"), finding()) == Plan()


@pytest.mark.parametrize(
    ("severity", "least", "is_due"),
    [
        ("critical", "critical", True),
        ("warning", "critical", False),
        ("warning", "warning", True),
        ("info", "warning", False),
        ("info", "info", True),
        (None, "info", True),
        (None, "warning", False),
        ("dreadful", "warning", False),
    ],
)
def test_a_channel_gets_what_is_severe_enough(load: Load, severity: str | None, least: str, is_due: bool) -> None:
    config = config_of(load, f'[channels.chat]\ntype = "webhook"\nurl = "http://h"\nseverity = "{least}"\n')
    found = once(config, finding(severity=severity))
    assert bool(due(found)) is is_due
    assert [(row.status, row.attempts, row.error) for row in found.held] == (
        [] if is_due else [("held", 0, f"less severe than {least}")]
    )


def test_a_finding_that_gets_worse_after_days_is_sent_then(load: Load) -> None:
    config = config_of(load)
    rows = after(once(config, finding(severity="info")))
    later = NOW + 9 * DAY
    assert due(once(config, finding(severity="info"), known=rows, now=later)) == []
    assert due(once(config, finding(severity="warning"), known=rows, now=later)) == [("chat", "opened", "f1")]


def test_a_silenced_finding_is_sent_when_its_silence_ends_however_long_it_was(load: Load) -> None:
    ends = NOW + 9 * DAY
    config = config_of(load, f'{SILENCE}until = "{ends.isoformat()}"\n')
    first = once(config, finding())
    assert due(first) == []
    assert [(row.status, row.attempts, row.error, row.first_tried_at) for row in first.held] == [
        ("held", 0, "silenced: known", None)
    ]
    rows = after(first)
    again = once(config, finding(), known=rows, now=ends - HOUR)
    assert (due(again), again.held) == ([], [])
    assert due(once(config, finding(), known=rows, now=ends)) == [("chat", "opened", "f1")]
    assert due(once(config, finding(resolved_at=ends), known=rows, now=ends)) == []


def test_the_reason_of_a_held_finding_follows_the_config(load: Load) -> None:
    rows = after(once(config_of(load, SILENCE), finding()))
    changed = once(config_of(load, SILENCE.replace("known", "new reason")), finding(), known=rows)
    assert [row.error for row in changed.held] == ["silenced: new reason"]


def test_a_failed_finding_that_is_silenced_keeps_its_tries(load: Load) -> None:
    found = once(config_of(load, SILENCE), finding(), known=[notified(status="failed", attempts=4)])
    (row,) = found.held
    assert (row.status, row.attempts, row.first_tried_at) == ("held", 4, NOW - HOUR)


@pytest.mark.parametrize(("age", "is_due"), [(DAY, True), (DAY + timedelta(seconds=1), False), (365 * DAY, False)])
def test_old_findings_are_not_announced_by_a_new_channel(load: Load, age: timedelta, is_due: bool) -> None:
    found = once(config_of(load), finding(first_seen=NOW - age))
    assert bool(due(found)) is is_due
    assert found.held == []


def test_max_age_can_be_set(load: Load) -> None:
    config = config_of(load, '[notifications]\nchannel = "chat"\nmax_age = "30m"\n')
    assert due(once(config, finding())) == []
    assert due(once(config, finding(first_seen=NOW))) == [("chat", "opened", "f1")]


def test_the_graver_and_older_come_first_and_what_has_failed_last(load: Load) -> None:
    rows = [
        finding("warning", severity="warning"),
        finding("new", first_seen=NOW),
        finding("old"),
        finding("poison", first_seen=NOW - 2 * HOUR),
        finding("ended", resolved_at=NOW),
    ]
    random.Random(1).shuffle(rows)
    known = [notified("poison", status="failed"), notified("ended")]
    found = due(once(config_of(load), *rows, known=known))
    assert [finding_id for _, _, finding_id in found] == ["old", "new", "warning", "ended", "poison"]


def test_instants_may_be_local_as_those_of_spark(load: Load) -> None:
    local = (NOW - HOUR).astimezone().replace(tzinfo=None)
    elsewhere = (NOW - HOUR).astimezone(timezone(timedelta(hours=9)))
    for instant in (local, elsewhere):
        known = notified(first_tried_at=instant, last_tried_at=instant)
        found = once(config_of(load), finding(first_seen=instant), finding("f2"), known=[known])
        assert due(found) == [("chat", "opened", "f2")]
        assert notification_of(known).first_tried_at == NOW - HOUR


@pytest.mark.parametrize(
    ("type_", "attempts", "is_due"), [("pagerduty", 1, True), ("pagerduty", 0, False), ("webhook", 1, False)]
)
def test_the_end_of_what_pagerduty_may_have_opened_is_sent(load: Load, type_: str, attempts: int, is_due: bool) -> None:
    """It may have taken the event without an answer in time. An end that opened nothing does no harm there."""
    key = 'routing_key = "${env:KEY}"' if type_ == "pagerduty" else 'url = "http://h"'
    config = config_of(load, f'[channels.chat]\ntype = "{type_}"\n{key}\n', KEY="k")
    found = once(config, finding(resolved_at=NOW), known=[notified(status="failed", attempts=attempts)])
    assert due(found) == ([("chat", "resolved", "f1")] if is_due else [])


NULLABLE = [name for name in FINDINGS.columns if name not in ("finding_id", "cluster", "kind", "resolved_at")]


@pytest.mark.parametrize("rows", [[finding()], [finding(**dict.fromkeys(NULLABLE))]])
def test_every_column_may_be_null(load: Load, rows: list[dict[str, Any]]) -> None:
    config = config_of(
        load,
        '[channels.chat]\ntype = "webhook"\nurl = "http://h"\nseverity = "info"\n'
        '[[owners]]\ngroup = "."\ntopic = "."\nowner = "o"\n'
        '[[silences]]\ngroup = "."\ntopic = "no"\nreason = "r"\n',
    )
    assert due(once(config, *rows)) == [("chat", "opened", "f1")]


def test_only_alertmanager_gets_open_findings_again(load: Load) -> None:
    config = config_of(load, '[channels.chat]\ntype = "alertmanager"\nurl = "http://h"\n')
    known = [notified()]
    assert [one.finding_id for one in once(config, finding(), known=known).standing["chat"]] == ["f1"]
    assert once(config_of(load), finding(), known=known).standing == {}
    silenced = config_of(load, f'[channels.chat]\ntype = "alertmanager"\nurl = "http://h"\n{SILENCE}')
    assert once(silenced, finding(), known=known) == Plan()
