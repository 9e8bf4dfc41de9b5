"""The settings of owners, silences, channels and notifications: what matches, and the line for each mistake."""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config import Config
from pipeline.config.notify import PAGERDUTY_URL, Silence, is_web_url
from pipeline.config.owners import OwnerRule, Owners, owner_of
from pipeline.kinds import KINDS

SMALLEST = '[lake]\nroot = "/lake"\n[clusters.east]\nbootstrap_servers = ["10.0.0.1:9092"]\n'
CHAT = '[channels.chat]\ntype = "webhook"\nurl = "http://host"\n'
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECRET = "is secret and must not be written into the file: use ${env:NAME} or ${secret:SCOPE/KEY}"
LOGIN = "has a user or a password, which must not be written into the file: use ${env:NAME} or ${secret:SCOPE/KEY}"
Load = Callable[..., Config]


def rules(*tables: dict[str, str]) -> list[OwnerRule]:
    return [OwnerRule.model_validate({"owner": f"owner {n}"} | table) for n, table in enumerate(tables)]


def owner(found: OwnerRule | None) -> str | None:
    return found.owner if found else None


@pytest.mark.parametrize(
    ("group", "topic", "expected"),
    [
        ("orders-eu", "clicks", "owner 0"),
        ("orders-eu", "other", "owner 2"),
        ("billing", "clicks", "owner 1"),
        (None, "clicks", "owner 1"),
        ("orders-eu", None, "owner 2"),
        ("billing", None, None),
        (None, None, None),
        ("re-orders", "other", None),
        ("ORDERS", "other", "owner 3"),
    ],
)
def test_the_first_rule_that_matches_counts(group: str | None, topic: str | None, expected: str | None) -> None:
    ordered = rules(
        {"group": "^orders", "topic": "cl"}, {"topic": "^clicks$"}, {"group": "^orders"}, {"group": "^(?i:o)"}
    )
    assert owner(owner_of(ordered, group, topic)) == expected


def test_an_expression_for_everything_does_not_match_what_is_unknown() -> None:
    everything = rules({"group": ""})
    assert owner(owner_of(everything, "any", None)) == "owner 0"
    assert owner_of(everything, None, "any") is None


def test_an_expression_is_searched_only_at_the_beginning_of_a_long_name() -> None:
    assert owner_of(rules({"group": "end"}), "x" * 2_000_000 + "end", None) is None
    assert owner_of(rules({"group": "^(x+x+)+y"}), "x" * 20 + "y", None)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"cluster": "east"}, True),
        ({"cluster": "west"}, False),
        ({"cluster": "east", "group": "orders"}, False),
        ({"group": "."}, False),
        ({"topic": "^invoices$", "kind": "slow"}, True),
        ({"kind": "^blind_gauge$"}, False),
        ({"cluster": "east", "from": "2026-01-31T12:00:00Z"}, True),
        ({"cluster": "east", "from": "2026-01-31T12:00:01Z"}, False),
        ({"cluster": "east", "until": "2026-01-31T13:00:01+01:00"}, True),
        ({"cluster": "east", "until": "2026-01-31T12:00:00Z"}, False),
    ],
)
def test_a_silence_covers_what_all_of_its_expressions_match_in_its_time(table: dict[str, str], expected: bool) -> None:
    silence = Silence.model_validate({"reason": "known"} | table)
    assert silence.covers("east", None, "invoices", "slow_consumer", NOON) is expected


def test_instants_are_text_or_those_of_toml_in_any_zone(load: Load) -> None:
    text = '[[silences]]\ngroup = "a"\nreason = "r"\nfrom = 2026-01-31T13:00:00+01:00\nuntil = "2026-01-31 12:00:01Z"\n'
    (silence,) = load(SMALLEST + text).silences
    assert (silence.since, silence.until) == (NOON, NOON.replace(second=1))


def test_settings_have_defaults(load: Load) -> None:
    config = load(
        f'{SMALLEST}{CHAT}[channels.pager]\ntype = "pagerduty"\nrouting_key = "${{env:K}}"\n[notifications]\n', K="k"
    )
    pager = config.channels["pager"]
    assert (pager.address, pager.severity, pager.timeout_ms) == (PAGERDUTY_URL, "warning", 10_000)
    assert (config.notifications.channel, config.notifications.max_age_ms) == ((), 86_400_000)
    empty = load(SMALLEST)
    assert (empty.owners, empty.silences, empty.channels) == ((), (), {})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[[owners]]\nowner = "a"', "owners[0]: must have group or topic"),
        ('[[owners]]\ngroup = "a"', "owners[0].owner: is required"),
        ('[[owners]]\ngroup = "a"\nowner = ""', "owners[0].owner: must not be empty"),
        (
            '[[owners]]\ngroup = "a"\nowner = "a"\n[[owners]]\ntopic = "("\nowner = "b"',
            "owners[1].topic: is not a regular expression: missing ), unterminated subpattern at position 0",
        ),
        ('[[owners]]\ngroup = "a"\nownr = "a"\nowner = "b"', "owners[0].ownr: unknown key; did you mean owner?"),
        (
            f'{CHAT}[[owners]]\ngroup = "a"\nowner = "a"\n[[owners]]\ngroup = "b"\nowner = "b"\nchannel = "hunter2"',
            "owners[1].channel must be the name of a table [channels.X], of which there are: chat",
        ),
        (
            '[notifications]\nchannel = "hunter2"',
            "notifications.channel must be the name of a table [channels.X], of which there are: none",
        ),
        (
            f'{CHAT}[notifications]\nchannel = ["chat", "hunter2"]',
            "notifications.channel must be the name of a table [channels.X], of which there are: chat",
        ),
        ('[owners]\ngroup = "a"\nowner = "a"', "owners: must be a list of tables: begin each with [[owners]]"),
        ('[[owners]]\ngroup = "a"\nowner = "a"\nchannel = [1]', "owners[0].channel[0]: must be text"),
        ('[[owners]]\ngroup = "a"\nowner = "a"\nchannel = 1', "owners[0].channel: must be a list"),
        (
            '[[owners]]\ngroup = "*-batch"\nowner = "a"',
            "owners[0].group: is not a regular expression: nothing to repeat at position 0; any text is .*",
        ),
        (
            '[[owners]]\ngroup = "a{99999999999}"\nowner = "a"',
            "owners[0].group: is not a regular expression: a repeat or a nesting is too large",
        ),
        (
            f'[[owners]]\ngroup = "{"(" * 2_000 + ")" * 2_000}"\nowner = "a"',
            "owners[0].group: is not a regular expression: a repeat or a nesting is too large",
        ),
        ('[notifications]\nreport_url = "/r.html"', "notifications.report_url: must be a URL with http or https"),
        ('[[silences]]\ngroup = "a"', "silences[0].reason: is required"),
        ('[[silences]]\nreason = "r"', "silences[0]: must have cluster, group, topic or kind"),
        (
            '[[silences]]\ngroup = "a"\nreason = "r"\nuntil = 2026-01-31T12:00:00',
            "silences[0].until: must be an instant with Z or an offset, such as 2026-01-31T12:00:00Z",
        ),
        (
            '[[silences]]\ngroup = "a"\nreason = "r"\nfrom = 2026-01-31',
            "silences[0].from: must be an instant with Z or an offset, such as 2026-01-31T12:00:00Z",
        ),
        (
            '[[silences]]\ngroup = "a"\nreason = "r"\nfrom = "0001-01-01T00:00:00+14:00"',
            "silences[0].from: must be an instant with Z or an offset, such as 2026-01-31T12:00:00Z",
        ),
        (
            '[[silences]]\ngroup = "a"\nreason = "r"\nfrom = 2026-01-31T12:00:00Z\nuntil = 2026-01-31T13:00:00+01:00',
            "silences[0]: from must be before until",
        ),
        (
            '[[silences]]\nkind = "blokked"\nreason = "r"',
            f"silences[0].kind: matches no kind of finding; the kinds are {', '.join(kind.name for kind in KINDS)}",
        ),
        ('[channels.a]\nurl = "http://h"', "channels.a.type: is required"),
        ('[channels.a]\ntype = "pagerduty"\nrouting_key = "hunter2"', f"channels.a.routing_key: {SECRET}"),
        ('[channels.a]\ntype = "apprise"\nurl = "slack://hunter2"', f"channels.a.url: {SECRET}"),
        ('[channels.a]\ntype = "webhook"\nurl = "https://u:hunter2@h/"', f"channels.a.url: {LOGIN}"),
        ('[channels.a]\ntype = "alertmanager"\nurl = "https://hunter2@h"', f"channels.a.url: {LOGIN}"),
        (
            '[channels.a]\ntype = "slack"',
            "channels.a.type: must be 'pagerduty', 'alertmanager', 'webhook' or 'apprise'",
        ),
        ('[channels.a]\ntype = "pagerduty"', "channels.a: pagerduty needs routing_key"),
        ('[channels.a]\ntype = "webhook"', "channels.a: webhook needs url"),
        ('[channels.a]\ntype = "apprise"\nurl = ""', "channels.a: apprise needs url"),
        ('[channels.a]\ntype = "alertmanager"\nurl = "host:9093"', "channels.a: url must be a URL with http or https"),
        (
            '[channels.a]\ntype = "webhook"\nurl = "http://h"\nrouting_key = "${env:HUNTER}"',
            "channels.a: routing_key is not a setting of type webhook",
        ),
        (
            '[channels.a]\ntype = "apprise"\nurl = "json://${env:HUNTER}"\nca_file = "/f"',
            "channels.a: ca_file is not a setting of type apprise",
        ),
        (
            '[channels.a]\ntype = "webhook"\nurl = "http://h"\ntimeout = "0s"',
            'channels.a.timeout: must be a duration such as "500ms", "30s", "5m", "2h" or "1d"',
        ),
        (
            '[channels."a b"]\ntype = "webhook"\nurl = "http://h"',
            "channels.'a b': the name of a channel is 1 to 64 letters, digits, dots, dashes or underscores",
        ),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(load: Load, tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(SMALLEST + text, HUNTER="hunter2")
    assert str(caught.value) == f"{tmp_path}/c.toml: {line}"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://user:p%40ss@host:1/x?y=z", True),
        ("http://[::1]:9093", True),
        ("http://", False),
        ("http://host:port", False),
        ("http://host/a b", False),
        ("http://host/\nx", False),
        ("http://hōst/", False),
        ("http://[host", False),
        ("ftp://host", False),
        ("", False),
    ],
)
def test_a_url_must_be_complete(url: str, expected: bool) -> None:
    assert is_web_url(url) is expected


@pytest.mark.parametrize("kind", ["slow_consumer", "^blocked", "gauge|burn", "(?i)SLOW"])
def test_a_silence_may_be_about_any_part_of_a_kind(load: Load, kind: str) -> None:
    (silence,) = load(f'{SMALLEST}[[silences]]\nkind = "{kind}"\nreason = "r"\n').silences
    assert silence.kind == kind


@pytest.mark.parametrize("type_", ["webhook", "alertmanager"])
@pytest.mark.parametrize("url", ["https://h/a@b", "http://h:1/?to=a@b", "http://h/#@"])
def test_a_url_without_a_login_may_be_in_the_file(load: Load, type_: str, url: str) -> None:
    channel = load(f'{SMALLEST}[channels.a]\ntype = "{type_}"\nurl = "{url}"\n').channels["a"]
    assert channel.address == url


def test_secrets_come_from_the_environment_and_are_not_shown(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    text = '[channels.a]\ntype = "pagerduty"\nrouting_key = "${env:KEY}"\nurl = "https://u:${env:KEY}@h/${env:KEY}"\n'
    channel = load(SMALLEST + text, KEY="hunter2").channels["a"]
    assert channel.routing_key is not None
    assert channel.routing_key.get_secret_value() == "hunter2"
    assert channel.address == "https://u:hunter2@h/hunter2"
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").info("%s %r %s", channel, channel, channel.model_dump())
    assert "hunter2" not in f"{caplog.text}{channel!r}{channel}{channel.model_dump_json()}"


@pytest.mark.parametrize(
    ("channel", "default", "warned"), [(("chat",), (), True), ("chat", ("chat",), False), ((), (), False)]
)
def test_findings_that_go_to_nobody_although_others_are_sent_are_a_warning(
    channel: Any, default: tuple[str, ...], warned: bool
) -> None:
    owners = Owners([OwnerRule(group="a", owner="A", channel=channel)], default)
    assert ["notifications.channel" in warning for warning in owners.warnings()] == [True] * warned


def of_topic(*groups: str, topic: str = "clicks", affected: int | None = None) -> dict[str, Any]:
    evidence = {"groups": groups, "groups_affected": len(groups) if affected is None else affected}
    return {"kind": "recreated_topic", "group_id": None, "topic": topic, "evidence": json.dumps(evidence)}


OWNED = Owners(
    [
        OwnerRule(group="^payments-", owner="payments", channel=("pager", "pay")),
        OwnerRule(group="^web-", owner="web"),
        OwnerRule(topic="^clicks", owner="clicks", channel="low"),
    ],
    ("chat",),
)


@pytest.mark.parametrize(
    ("finding", "owner", "channels"),
    [
        pytest.param(of_topic("payments-1"), "clicks", ("low",), id="a rule for the topic is the first"),
        pytest.param(of_topic("payments-1", "payments-2", topic="t"), "payments", ("pager", "pay"), id="of its groups"),
        pytest.param(of_topic("payments-1", "web-1", topic="t"), None, ("chat",), id="of several owners"),
        pytest.param(of_topic("payments-1", topic="t", affected=2000), None, ("chat",), id="not all are named"),
        pytest.param({"kind": "no_progress", "group_id": "web-1", "topic": "t"}, "web", ("chat",), id="of a group"),
    ],
)
def test_who_owns_a_finding_of_a_topic(finding: dict[str, Any], owner: str | None, channels: tuple[str, ...]) -> None:
    assert OWNED.values_of(finding)["owner"] == owner
    assert OWNED.channels_of(finding) == channels
    assert OWNED.values_of(finding)["channel"] == ", ".join(channels)


UNHEARD = "channels.b: nothing is sent there, because neither [[owners]] nor [notifications] names it"
DEAF = (
    "owners[0].channel: takes only critical findings, so warnings about what A owns are sent to nobody; a list can "
    "name a channel for these, too"
)


@pytest.mark.parametrize(
    ("severity", "of_owner", "default", "warned"),
    [
        ("critical", '["a", "b"]', "a", []),
        ("critical", '"b"', "a", []),
        ("warning", '"a"', "b", []),
        ("warning", '"a"', "a", [UNHEARD]),
        ("critical", '"a"', "b", [DEAF]),
        ("critical", '["a"]', "a", [UNHEARD, DEAF]),
    ],
)
def test_settings_by_which_nobody_hears_of_something_are_warnings(
    load: Load, severity: str, of_owner: str, default: str, warned: list[str]
) -> None:
    channel = 'type = "webhook"\nurl = "http://host"\n'
    text = f'[channels.a]\n{channel}severity = "{severity}"\n[channels.b]\n{channel}'
    text += f'[[owners]]\ngroup = "a"\nowner = "A"\nchannel = {of_owner}\n[notifications]\nchannel = "{default}"\n'
    assert load(SMALLEST + text).warnings() == warned


@pytest.mark.parametrize(
    ("pattern", "kind", "covered"),
    [
        ("^falling_behind$", "hot_partition", True),
        ("^no_progress$", "stopped_together", True),
        ("^hot_partition$", "falling_behind", False),
        ("^stopped_together$", "no_progress", False),
    ],
)
def test_a_silence_covers_a_kind_that_says_more_about_the_cause(pattern: str, kind: str, covered: bool) -> None:
    silence = Silence(kind=pattern, reason="known")
    assert silence.covers("east", "g", "t", kind, datetime(2026, 1, 31, tzinfo=UTC)) is covered
