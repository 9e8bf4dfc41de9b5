"""The settings of silences, channels and notifications."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator

from pipeline.common.epoch import DAY_MS
from pipeline.common.expressions import matches
from pipeline.config.owners import ChannelNames, OwnerRule, all_groups
from pipeline.config.relative_paths import RELATIVE_TO_FILE
from pipeline.config.toml_file import Section
from pipeline.config.value_types import DurationMs, Instant, NotEmpty, Regex, Secret, not_literal, without_login
from pipeline.kinds import KINDS, kind_named

Severity = Literal["info", "warning", "critical"]
PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"


def _channel_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
        raise ValueError("the name of a channel is 1 to 64 letters, digits, dots, dashes or underscores")
    return text


def is_web_url(text: str) -> bool:
    """Whether a text is a URL with http or https and a host, and can be requested as it is."""
    try:
        url = urlsplit(text)
        is_complete = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return False
    return is_complete and text.isascii() and not re.search(r"[\s\x00-\x1f\x7f]", text)


def _web_url(text: str) -> str:
    if not is_web_url(text):
        raise ValueError("must be a URL with http or https")
    return text


ChannelName = Annotated[str, AfterValidator(_channel_name)]


class Silence(Section):
    """Findings that are known, or expected for some time: a silenced finding is kept and shown, but not sent.

    A silence is an acknowledgement or a maintenance window. If a finding is still open when its silence ends, it is
    sent then. At least one of the expressions is required, and all that are given must match.
    """

    cluster: Regex | None = None
    """The cluster of a finding."""
    group: Regex | None = None
    """Its group. A finding about a topic is covered if this matches all groups that its evidence names."""
    topic: Regex | None = None
    """Its topic."""
    kind: Regex | None = None
    """Its kind, such as `slow_consumer`. docs/findings.md has the kinds, and which of them are silenced together."""
    since: Instant | None = Field(default=None, alias="from")
    """When the silence begins; if unset, it has always begun."""
    until: Instant | None = None
    """When the silence ends; if unset, it ends when you remove it."""
    reason: Annotated[str, NotEmpty]
    """Why, for those who wonder later; the table `notifications` repeats it."""

    @field_validator("kind")
    @classmethod
    def _matches_a_kind(cls, expression: str | None) -> str | None:
        names = [kind.name for kind in KINDS]
        if not any(matches(expression, name) for name in names):
            raise ValueError(f"matches no kind of finding; the kinds are {', '.join(names)}")
        return expression

    @model_validator(mode="after")
    def _is_about_something(self) -> Self:
        if (self.cluster, self.group, self.topic, self.kind) == (None,) * 4:
            raise ValueError("must have cluster, group, topic or kind")
        if self.since and self.until and self.since >= self.until:
            raise ValueError("from must be before until")
        return self

    def covers(
        self,
        cluster: str,
        group_id: str | None,
        topic: str | None,
        kind: str,
        at: datetime,
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> bool:
        """Whether a finding is silenced at an instant. `facts` are its evidence.

        If it is about a topic, `group` must match all of the groups that it concerns.
        """
        is_on = (self.since is None or self.since <= at) and (self.until is None or at < self.until)
        named_in = all_groups(facts) if group_id is None and topic is not None else ()
        groups: Sequence[str | None] = named_in or (group_id,)
        named = ((self.cluster, cluster), (self.topic, topic), *((self.group, g) for g in groups))
        is_kind = any(matches(self.kind, one) for one in (kind, kind_named(kind).instead_of or kind))
        return is_on and is_kind and all(matches(pattern, name) for pattern, name in named)


class ChannelConfig(Section):
    """Where messages go. URLs and keys that are secret must be `${env:NAME}` or `${secret:SCOPE/KEY}`."""

    type: Literal["pagerduty", "alertmanager", "webhook", "apprise"]
    """What receives the messages. `apprise` stands for chat, mail and many others: it needs the Python package of that
    name, which `pip install 'apprise>=1.9'` installs."""
    url: SecretStr | None = None
    """The receiver: for `alertmanager` the address of its start page, for `webhook` any URL, for `apprise` one of its
    own URLs. Required, but for `pagerduty`: its default is `https://events.pagerduty.com/v2/enqueue`. A URL of
    `apprise`, or one with a user or password, must not be written into the file itself."""
    routing_key: Secret | None = None
    """The integration key of PagerDuty's Events API v2; required for `pagerduty`."""
    severity: Severity = "warning"
    """The least severity that is sent."""
    timeout_ms: DurationMs = Field(default=10_000, alias="timeout")
    """How long the receiver may take to answer one message."""
    ca_file: Annotated[Annotated[str, NotEmpty] | None, RELATIVE_TO_FILE] = None
    """A file with the CA certificates for the receiver, if the system does not have them; not for `apprise`."""

    @field_validator("url", mode="before")
    @classmethod
    def _has_no_secret(cls, url: Any, found: ValidationInfo) -> Any:
        # Only apprise knows which parts of its URLs are tokens.
        return not_literal(url) if found.data.get("type") == "apprise" else without_login(url)

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> Self:
        needed = {"pagerduty": "routing_key"}.get(self.type, "url")
        for name, others in (("routing_key", self.type != "pagerduty"), ("ca_file", self.type == "apprise")):
            if others and getattr(self, name):
                raise ValueError(f"{name} is not a setting of type {self.type}")
        value = getattr(self, needed)
        if value is None or not value.get_secret_value():
            raise ValueError(f"{self.type} needs {needed}")
        if self.type != "apprise" and not is_web_url(self.address):
            raise ValueError("url must be a URL with http or https")
        return self

    @property
    def address(self) -> str:
        """The URL, revealed: never log it."""
        return self.url.get_secret_value() if self.url else PAGERDUTY_URL


class NotificationsConfig(Section):
    """Which findings are sent, and where, if their owner has no channel."""

    channel: ChannelNames = ()
    """The `[channels.X]`, one or a list, for findings whose owner is unknown or has no channel. If unset, they are not
    sent."""
    report_url: Annotated[str, AfterValidator(_web_url)] | None = None
    """Where people find the report; messages have this link."""
    max_age_ms: DurationMs = Field(default=DAY_MS, alias="max_age")
    """Findings that began longer ago than this when their channel first sees them are not sent. So the first run with a
    new channel does not send the whole history."""


def unknown_channel(
    owners: Iterable[OwnerRule], notifications: NotificationsConfig, channels: Mapping[str, ChannelConfig]
) -> str | None:
    """The key of the first setting that names a channel which does not exist; None if all of them exist."""
    named = {f"owners[{n}].channel": rule.channel for n, rule in enumerate(owners)}
    named["notifications.channel"] = notifications.channel
    return next((key for key, names in named.items() if {*names} - channels.keys()), None)


def unheard(
    owners: Sequence[OwnerRule], notifications: NotificationsConfig, channels: Mapping[str, ChannelConfig]
) -> Iterator[str]:
    """A sentence for each channel that nothing is sent to, and for each owner of whom warnings are sent to nobody."""
    used = {*notifications.channel, *(name for rule in owners for name in rule.channel)}
    for name in channels:
        if name not in used:
            yield f"channels.{name}: nothing is sent there, because neither [[owners]] nor [notifications] names it"
    for number, rule in enumerate(owners):
        if rule.channel and all(channels[name].severity == "critical" for name in rule.channel):
            yield (
                f"owners[{number}].channel: takes only critical findings, so warnings about what {rule.owner} owns are "
                "sent to nobody; a list can name a channel for these, too"
            )
