"""One message about findings with a common cause: to whom, when, and under which key."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from pipeline.config import Config
from pipeline.notify import payloads
from pipeline.notify.due import Finding, Plan, findings_of, plan
from tests.helpers.findings import HOUR, NOW, Row, config_of, finding, notified

Load = Callable[..., Config]
DAY = timedelta(days=1)
PAGER = '[channels.pager]\ntype = "pagerduty"\nrouting_key = "${env:KEY}"\n'
ALERTS = '[channels.chat]\ntype = "alertmanager"\nurl = "http://127.0.0.1:9"\n'


def member(group: str, finding_id: str = "", cause: str | None = "c0ffee", **more: Any) -> Row:
    """A finding of a group that has stopped with others, an hour ago."""
    evidence = {"consumer_lag": 5, "partitions": 1, "topics": ["t"], "worst_topic": "t", "worst_partition": 0}
    grouped = None if cause is None else NOW - HOUR
    shared = {"cause_id": cause, "cause_topic": cause and "t", "cause_since": grouped, "grouped_at": grouped}
    of = {"kind": "no_progress", "client_id": None, "instance": None, "evidence": json.dumps(evidence)}
    of |= {"topic": "t", "partitions": [0]}
    return finding(finding_id or f"of {group}", group_id=group, magnitude=5.0, **(shared | of | more))


def due(found: Plan) -> list[tuple[str, str, str]]:
    rows = [(one.channel, one.event, one.finding.finding_id) for several in found.due.values() for one in several]
    return sorted(rows)


def groups_in(found: Plan, channel: str = "chat") -> list[str]:
    (one,) = found.due[channel]
    groups: list[str] = json.loads(one.finding.evidence or "")["groups"]
    return groups


class Runs:
    """Runs of one configuration, one after the other. Each sends what is due."""

    def __init__(self, config: Config) -> None:
        self.config, self.sent = config, {}

    def run(self, *findings: Row, now: datetime = NOW, known: Iterable[Row] = ()) -> Plan:
        self.sent |= {key(row): row for row in known}
        found = plan(findings, self.sent.values(), self.config, now)
        rows = [one.outcome(now, None)._asdict() for several in found.due.values() for one in several]
        self.sent |= {key(row): row for row in (*(row._asdict() for row in found.held), *rows)}
        return found


def key(row: Row) -> tuple[str, ...]:
    return row["cluster"], row["finding_id"], row["channel"], row["event"]


def owners(load: Load, *names: str, text: str = "") -> Config:
    """A channel of its own for each owner of groups such as `pay-1`, and `chat` for all others."""
    for name in names:
        text += f'[channels.{name}]\ntype = "webhook"\nurl = "http://h"\n'
        text += f'[[owners]]\ngroup = "^{name}-"\nowner = "{name}"\nchannel = "{name}"\n'
    return config_of(load, text, KEY="key")


def test_a_cause_is_sent_once_and_its_end_when_the_last_group_is_well(load: Load) -> None:
    runs = Runs(config_of(load))
    assert due(runs.run(*map(member, "abc"))) == [("chat", "opened", "c0ffee")]
    assert due(runs.run(*map(member, "abc"))) == []
    well = [member(group, resolved_at=NOW) for group in "ab"]
    assert due(runs.run(*well, member("c"))) == []
    ended = [*well, member("c", resolved_at=NOW + HOUR)]
    last = runs.run(*ended)
    assert due(last) == [("chat", "resolved", "c0ffee")]
    assert groups_in(last) == ["a", "b", "c"]
    assert due(runs.run(*ended)) == []


def test_a_group_that_joins_later_is_sent_to_its_owner_but_not_again_to_those_who_know(load: Load) -> None:
    """The groups join three days later, when a finding that is new to a channel would be too old to be sent."""
    runs = Runs(owners(load, "pay", "web"))
    first = [member("pay-1"), member("pay-2"), member("else")]
    assert due(runs.run(*first)) == [("chat", "opened", "c0ffee"), ("pay", "opened", "c0ffee")]
    late = NOW + 3 * DAY
    assert due(runs.run(*first, member("pay-3", grouped_at=late), now=late)) == []
    found = runs.run(*first, member("web-1", grouped_at=late), now=late)
    assert due(found) == [("web", "opened", "c0ffee")]
    assert groups_in(found, "web") == ["else", "pay-1", "pay-2", "web-1"]


def test_a_group_that_joins_later_is_sent_although_nobody_heard_of_the_others(load: Load) -> None:
    """The owner of the first groups has no channel."""
    text = '[channels.web]\ntype = "webhook"\nurl = "http://h"\n[notifications]\nreport_url = "http://r"\n'
    runs = Runs(config_of(load, f'{text}[[owners]]\ngroup = "^web-"\nowner = "web"\nchannel = "web"\n'))
    late = NOW + 3 * DAY
    assert due(runs.run(*map(member, "abc"))) == []
    assert due(runs.run(*map(member, "abc"), member("web-1", grouped_at=late), now=late)) == [
        ("web", "opened", "c0ffee")
    ]


def test_a_cause_that_is_older_than_a_channel_is_not_sent(load: Load) -> None:
    assert due(Runs(config_of(load)).run(*map(member, "abc"), now=NOW + 3 * DAY)) == []
    runs = Runs(owners(load, "pay"))
    runs.run(known=[notified("c0ffee")])
    assert due(runs.run(*map(member, "ab"), member("pay-1"), now=NOW + 3 * DAY)) == []


def test_a_cause_begins_again_for_a_group_that_is_late(load: Load) -> None:
    """Its snapshot was computed when the others were well, and the end was sent."""
    runs = Runs(config_of(load))
    runs.run(*map(member, "abc"))
    well = [member(group, resolved_at=NOW) for group in "abc"]
    assert due(runs.run(*well, now=NOW + HOUR)) == [("chat", "resolved", "c0ffee")]
    again = NOW + 2 * HOUR
    assert due(runs.run(*well, member("d", grouped_at=NOW), now=again)) == [("chat", "opened", "c0ffee")]
    assert due(runs.run(*well, member("d", grouped_at=NOW), now=again + HOUR)) == []
    ended = [*well, member("d", grouped_at=NOW, resolved_at=again)]
    assert due(runs.run(*ended, now=again + 2 * HOUR)) == [("chat", "resolved", "c0ffee")]
    assert due(runs.run(*ended, now=again + 3 * HOUR)) == []


def test_a_finding_that_was_sent_before_it_had_a_cause_also_ends_by_itself(load: Load) -> None:
    """It has been open for a week when two more groups stop: the cause is as new as they are."""
    runs = Runs(config_of(load))
    alone = member("a", cause=None, first_seen=NOW - 7 * DAY)
    runs.run(known=[notified("of a")])
    assert due(runs.run(alone)) == []
    early = member("a", first_seen=NOW - 7 * DAY)
    assert due(runs.run(early, member("b"), member("c"))) == [("chat", "opened", "c0ffee")]
    well = {"resolved_at": NOW}
    assert due(runs.run(early | well, member("b"), member("c"))) == [("chat", "resolved", "of a")]
    ended = [early | well, member("b", **well), member("c", **well)]
    assert due(runs.run(*ended)) == [("chat", "resolved", "c0ffee")]
    assert due(runs.run(*ended)) == []


def test_silenced_groups_are_left_out(load: Load) -> None:
    silence = '[[silences]]\ngroup = "^test-"\nreason = "of no importance"\n'
    runs = Runs(config_of(load, silence))
    found = runs.run(member("test-1"), member("test-2"), member("a"))
    assert groups_in(found) == ["a"]
    rows = [member("test-1"), member("a", resolved_at=NOW)]
    ended = runs.run(*rows, now=NOW + HOUR)
    assert (due(ended), groups_in(ended)) == ([("chat", "resolved", "c0ffee")], ["a"])
    assert due(runs.run(*rows, now=NOW + 2 * HOUR)) == []
    runs.config = config_of(load)  # the silence is removed
    assert due(runs.run(*rows, now=NOW + 3 * HOUR)) == [("chat", "opened", "c0ffee")]


def test_a_silence_of_the_topic_leaves_out_groups_that_have_stopped_nowhere_else(load: Load) -> None:
    runs = Runs(config_of(load, '[[silences]]\ntopic = "^t$"\nreason = "it is being moved"\n'))
    found = runs.run(member("a", topic=None, partitions=None), member("b"), member("c"))
    assert groups_in(found) == ["a"]


@pytest.mark.parametrize(
    ("silences", "why"),
    [
        (['group = "^[ab]$"', 'group = "c"'], "silenced: known 0"),
        (['kind = "^stopped_together$"'], "silenced: known 0"),
        (['kind = "^no_progress$"'], "silenced: known 0"),
        (['topic = "^t$"'], "silenced: known 0"),
        (['kind = "^hot_partition$"', 'group = "^[ab]$"'], None),
    ],
)
def test_a_cause_is_held_if_all_of_its_groups_are_silenced(load: Load, silences: list[str], why: str | None) -> None:
    text = "".join(f'[[silences]]\n{one}\nreason = "known {number}"\n' for number, one in enumerate(silences))
    runs = Runs(config_of(load, text))
    found = runs.run(*map(member, "abc"))
    assert [(row.finding_id, row.error) for row in found.held] == ([] if why is None else [("c0ffee", why)])
    assert due(found) == ([("chat", "opened", "c0ffee")] if why is None else [])


def test_the_kind_of_a_cause_silences_no_finding_that_stands_alone(load: Load) -> None:
    runs = Runs(config_of(load, '[[silences]]\nkind = "^stopped_together$"\nreason = "known"\n'))
    assert due(runs.run(member("a", cause=None))) == [("chat", "opened", "of a")]


def test_an_alert_keeps_its_key_whoever_joins_or_is_well(load: Load) -> None:
    """Alertmanager takes an alert with another label for another one; PagerDuty, one with another dedup_key."""
    config = owners(load, "web", text=ALERTS + PAGER + '[[owners]]\ngroup = "^pay-"\nowner = "pay"\n')
    runs = Runs(config)
    first = [member("pay-1"), member("pay-2"), member("pay-3")]
    (opened,) = runs.run(*first).due["chat"]
    late = member("web-1", grouped_at=NOW)
    well = member("pay-1", resolved_at=NOW)
    (standing,) = runs.run(well, *first[1:], late).standing["chat"]
    (still,) = runs.run(*(one | {"resolved_at": NOW} for one in first), late).standing["chat"]
    (end,) = runs.run(*(one | {"resolved_at": NOW} for one in (*first, late))).due["chat"]
    alerts = payloads.alerts([opened], [standing, still], None, NOW, NOW + HOUR)
    alerts += payloads.alerts([end], [], None, NOW, NOW + HOUR)
    assert {json.dumps(alert["labels"], sort_keys=True) for alert in alerts} == {
        json.dumps(alerts[0]["labels"], sort_keys=True)
    }
    assert alerts[0]["labels"]["owner"] == "pay"
    assert {alert["startsAt"] for alert in alerts} == {"2026-01-31T11:00:00Z"}


def test_an_owner_whose_groups_are_no_longer_silenced_is_told(load: Load) -> None:
    """Two days later, when a finding that is new to a channel would be too old to be sent."""
    silence = '[[silences]]\ngroup = "^web-"\nreason = "maintenance"\n'
    runs = Runs(owners(load, "pay", "web", text=silence))
    rows = [member("pay-1"), member("pay-2"), member("web-1")]
    found = runs.run(*rows)
    assert due(found) == [("pay", "opened", "c0ffee")]
    assert [(row.channel, row.error) for row in found.held] == [("web", "silenced: maintenance")]
    assert due(runs.run(*rows, now=NOW + HOUR)) == []
    runs.config = owners(load, "pay", "web")
    assert due(runs.run(*rows, now=NOW + 2 * DAY)) == [("web", "opened", "c0ffee")]


def test_only_owners_of_groups_that_last_hear_of_a_cause_again(load: Load) -> None:
    silence = '[[silences]]\ngroup = "^web-2"\nreason = "maintenance"\n'
    runs = Runs(owners(load, "pay", "web", text=silence))
    runs.run(member("pay-1"), member("web-1"), member("web-2"))
    rows = [member("pay-1", resolved_at=NOW), member("web-1", resolved_at=NOW), member("web-2")]
    both = [("pay", "resolved", "c0ffee"), ("web", "resolved", "c0ffee")]
    assert due(runs.run(*rows, now=NOW + HOUR)) == both
    runs.config = owners(load, "pay", "web")
    assert due(runs.run(*rows, now=NOW + 2 * HOUR)) == [("web", "opened", "c0ffee")]


def test_a_digest_has_one_line_for_a_cause(load: Load) -> None:
    rows = [member(f"pay-{number}") for number in range(5)] + [member("web-1"), member("x", cause=None)]
    found: dict[str, Finding] = {one.finding_id: one for one in findings_of(rows, owners(load, "pay", "web"))}
    assert [*found] == ["c0ffee", "of x"]
    assert found["c0ffee"].channels == ("pay", "web")
    over = [row | {"resolved_at": NOW} for row in rows]
    assert findings_of(over, owners(load, "pay", "web"))[0].channels == ("pay", "web")
    assert (found["c0ffee"].kind, found["c0ffee"].magnitude, found["c0ffee"].owner) == ("stopped_together", 30.0, None)


def test_of_many_groups_all_are_counted(load: Load) -> None:
    runs = Runs(config_of(load))
    (one,) = runs.run(*(member(f"g{number:05}") for number in range(3_000))).due["chat"]
    assert json.loads(one.finding.evidence or "")["groups_affected"] == 3_000
    assert one.finding.magnitude == 15_000
