"""The settings of owners: who is responsible for which groups and topics, and which channels their messages go to."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from pipeline.common.expressions import matches
from pipeline.config.toml_file import Section
from pipeline.config.value_types import NotEmpty, Regex


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


ChannelNames = Annotated[tuple[str, ...], BeforeValidator(_several)]
"""The name of a channel, or a list of names."""


class OwnerRule(Section):
    """Who owns a group or topic. The first rule that matches a finding counts.

    An expression may match anywhere in the first 1,024 characters of a name. A finding without a group matches no rule
    that has `group`; the same is true of topics.
    """

    group: Regex | None = None
    """The group that a finding is about. If a rule has both `group` and `topic`, both must match."""
    topic: Regex | None = None
    """The topic that is the cause of a finding."""
    owner: Annotated[str, NotEmpty]
    """The owner, as messages name them."""
    tier: Annotated[str, NotEmpty] | None = None
    """How important the group or topic is, in your own words; messages repeat it."""
    channel: ChannelNames = ()
    """The `[channels.X]` that the owner's messages go to, one or a list; if unset, that of `[notifications]`. A channel
    gets what its own `severity` allows."""

    @model_validator(mode="after")
    def _matches_something(self) -> Self:
        if self.group is None and self.topic is None:
            raise ValueError("must have group or topic")
        return self


def owner_of(rules: Iterable[OwnerRule], group_id: str | None, topic: str | None) -> OwnerRule | None:
    """The first rule that matches a group and a topic, of which either may be unknown."""
    return next((rule for rule in rules if matches(rule.group, group_id) and matches(rule.topic, topic)), None)


@dataclass(frozen=True)
class Owners:
    """The rules, and the channels of `[notifications]`, which count if no rule matches or the rule has no channel."""

    rules: Sequence[OwnerRule] = ()
    channels: tuple[str, ...] = ()

    def channels_of_rule(self, rule: OwnerRule | None) -> tuple[str, ...]:
        """The channels for what a rule matches, or for what none matches; empty if no messages are sent."""
        return (rule.channel if rule else ()) or self.channels

    def values_of(self, finding: Mapping[str, Any]) -> dict[str, str | None]:
        """The columns `owner`, `tier` and `channel` of a row of `findings`; without owner and tier if no rule matches.

        If no rule matches a finding about a topic, but the same owner has all of the groups that its evidence names,
        the rule for these groups counts. These groups may change, so such a finding does not keep an owner.
        """
        rule = self._rule(finding)
        is_of_topic = finding.get("group_id") is None and finding.get("topic") is not None
        named: dict[str, str | None] = {"owner": None, "tier": None} if is_of_topic else {}
        if rule:
            named = {"owner": rule.owner, "tier": rule.tier}
        return {**named, "channel": in_a_column(self.channels_of_rule(rule))}

    def channels_of(self, finding: Mapping[str, Any]) -> tuple[str, ...]:
        """The channels for a row of `findings`."""
        return (*dict.fromkeys(self.channels_of_rule(self._rule(finding))),)

    def _rule(self, finding: Mapping[str, Any]) -> OwnerRule | None:
        group_id, topic = finding.get("group_id"), finding.get("topic")
        if rule := owner_of(self.rules, group_id, topic):
            return rule
        is_of_topic = group_id is None and topic is not None
        return self._common(all_groups(evidence_of(finding)), topic) if is_of_topic else None

    def warnings(self) -> Iterator[str]:
        """A sentence if some findings are sent to nobody although others are sent."""
        if not self.channels and any(rule.channel for rule in self.rules):
            yield (
                "notifications.channel is not set: findings that no single owner has, such as those about groups of "
                "several owners or about a whole cluster, are sent to nobody"
            )

    def _common(self, groups: Iterable[str], topic: str | None) -> OwnerRule | None:
        """The rule for several groups; None if they have different owners or channels, or if one has none."""
        rules = (owner_of(self.rules, group_id, topic) for group_id in groups)
        first = next(rules, None)
        if first is None:
            return None
        same = (first.owner, self.channels_of_rule(first))
        return first if all(rule and (rule.owner, self.channels_of_rule(rule)) == same for rule in rules) else None


def in_a_column(channels: Sequence[str]) -> str | None:
    """Channels as the column `channel` of tables has them; None if there are none."""
    return ", ".join(channels) or None


def evidence_of(finding: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence of a finding; empty if it is not readable."""
    try:
        found = json.loads(finding.get("evidence") or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def all_groups(facts: Mapping[str, Any]) -> list[str]:
    """The groups that the evidence of a finding names; none if it does not name all of them."""
    groups: list[str] = facts.get("groups") or []
    return groups if len(groups) == facts.get("groups_affected") else []


NO_OWNERS = Owners()
