"""The kinds of findings about groups that wait, fall behind or lose records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.common.epoch import MINUTE_MS
from pipeline.common.kafka_tools import tool
from pipeline.common.words import named
from pipeline.kinds.command_lines import Command, CommandContext, in_shell
from pipeline.kinds.group_commands import (
    EXECUTE,
    GROUPS_RESET,
    STOP_FIRST,
    Commands,
    ask_group,
    keep_records,
    partition_option,
    show_members,
    show_reset,
    topic_option,
)
from pipeline.kinds.kind import Clock, Finding, Headline, Kind, SubjectType, Words
from pipeline.kinds.reader_facts import (
    ReaderFacts,
    SharedFacts,
    WorstReader,
    figures,
    for_groups,
    groups_named,
    unread,
    where,
    where_in,
)
from pipeline.kinds.text import (
    counted,
    duration,
    figure,
    for_streams,
    instant,
    instant_ms,
    iso,
    part,
    percent,
    quotient,
    required,
    sentence,
    some,
    tenths,
)

MOST_LAG, HOT_WRITES = 0.8, 2
"""From which share of the group's lag on a partition is most of it, and from how many times as many records as the
others get on average a partition is hot."""
_IN_COMMON = "Look for what these groups have in common: "
_HOT_ADVICE = (
    "More consumers do not help, because one partition gets more records than the others. Look at their keys: spread "
    "the most frequent one over several keys, or over all partitions if the order of its records does not matter."
)
_LOST_ADVICE = (
    "These records are lost for the group, unless another system still has them. Raise the topic's retention before "
    "the group starts again, so that no more are deleted."
)
_VERBS = {"stopped": "Nothing has been committed since", "stalled": "Commits are made, but have not moved since"}


class DeletedUnread(Kind[ReaderFacts]):
    """Records were deleted before the group had read them."""

    name = "deleted_unread"
    severity = "critical"
    magnitude = "their number"
    keys = "`deleted_offsets`, and `readable_offsets` that still exist"
    facts = ReaderFacts
    shared_as = "deleted_unread"
    is_loss = True

    def words(self, facts: ReaderFacts) -> Words:
        return Words(
            sentence(
                "Deleted before the group had read them: ",
                counted(facts.deleted, "offset"),
                where(facts.rows, facts.of_partitions),
                part("; ", counted(facts.readable, "offset"), " can still be read there"),
                ".",
            ),
            {**figures(facts), "deleted_offsets": facts.deleted, "readable_offsets": facts.readable},
            _LOST_ADVICE,
        )

    def words_together(self, facts: SharedFacts) -> Words:
        return Words(
            sentence(
                f"Deleted before {groups_named(facts.groups, facts.groups_affected)} had read them: ",
                counted(facts.deleted, "offset"),
                _in_topic(facts),
                ", counted for each group",
                _well(facts),
                ".",
            ),
            {**_figures_together(facts), "deleted_offsets": facts.deleted},
            _LOST_ADVICE,
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        deleted = some(finding.newest_evidence.get("deleted_offsets"), "offset")
        of = f"{where_in(finding.newest_evidence)}{for_groups(finding.group_id, finding.newest_evidence)}"
        return Headline("data lost", f"{deleted} deleted unread{of}, seen since {clock(finding.first_seen_ms)}")

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield from keep_records(finding, around)
        if finding.group_id is None:  # it is not known which of these partitions each group has lost records of
            for group_id in finding.groups()[:GROUPS_RESET]:
                yield from ask_group(group_id, around, f"Shows which partitions group {named(group_id)} has not read")
            return
        what = f"{STOP_FIRST}Shows where the group begins if it reads all that is left of these partitions{EXECUTE}"
        yield from show_reset(finding, around, finding.group_id, what, "--to-earliest")

    def loss(self, finding: Finding, clock: Clock) -> str | None:
        deleted, readable = (finding.newest_evidence.get(name) for name in ("deleted_offsets", "readable_offsets"))
        how_many = "records" if deleted is None else counted(deleted, "offset")
        left = "" if readable is None else f", {figure(readable)} can still be read there"
        over = "" if finding.resolved_ms is None else f", until {clock(finding.resolved_ms)}"
        return f"yes: {how_many} deleted unread, seen since {clock(finding.first_seen_ms)}{over}{left}"


class DataLossAhead(Kind[ReaderFacts]):
    """Retention may delete unread records within `[status] data_loss_within` (a day)."""

    name = "data_loss_ahead"
    severity = "critical"
    magnitude = "the milliseconds that are left, negative"
    keys = "`deleted_at`: when unread records may be deleted"
    facts = ReaderFacts
    shared_as = "data_loss_ahead"
    is_loss_ahead = True

    def words(self, facts: ReaderFacts) -> Words:
        worst, left_ms = facts.worst, required(facts.deleted_in_ms)
        at_ms = required(facts.at_ms) + left_ms
        return Words(
            sentence(
                f"Retention may delete unread records {soon(at_ms, left_ms)}",
                where(facts.rows, facts.of_partitions),
                f", first of partition {worst.partition} of topic {worst.topic}",
                unread(facts),
                ".",
            ),
            {**figures(facts), "deleted_at": iso(at_ms)},
            _keep_advice(worst.topic),
        )

    def words_together(self, facts: SharedFacts) -> Words:
        worst, groups = facts.worst, groups_named(facts.groups, facts.groups_affected)
        first = f"partition {worst.partition}" + ("" if worst.topic == facts.of_topic else f" of topic {worst.topic}")
        topics = dict.fromkeys((facts.of_topic, worst.topic))
        return Words(
            sentence(
                f"Retention may delete records {soon(facts.deleted_ms, facts.left_ms)} that {groups} "
                f"have not read{_in_topic(facts)}, first of {first}",
                _unread_together(facts),
                ".",
            ),
            {**_figures_together(facts), "deleted_at": iso(facts.deleted_ms)},
            " ".join(_keep_advice(topic) for topic in topics if topic),
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        when = from_then(finding.newest_evidence.get("deleted_at"), clock)
        of = f"{where_in(finding.newest_evidence)}{for_groups(finding.group_id, finding.newest_evidence)}"
        return Headline("loss ahead", f"retention may delete unread records {when}{of}")

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield from keep_records(finding, around)

    def loss(self, finding: Finding, clock: Clock) -> str | None:
        if finding.resolved_ms is not None:
            return None
        facts = finding.newest_evidence
        when, topic = from_then(facts.get("deleted_at"), clock), facts.get("worst_topic")
        first = "" if topic is None else f", first of {topic} {figure(facts.get('worst_partition'))}"
        return f"ahead: retention may delete unread records {when}{first}{forecast_of(finding, clock)}"


class NoProgress(Kind[ReaderFacts]):
    """Partitions have one of the statuses `stopped`, `stalled` and `not_progressing`.

    They have [waited too long](concepts.md#how-a-group-is-doing).
    """

    name = "no_progress"
    severity = "critical"
    magnitude = "unread records"
    keys = "`members_seen_at`, if the group has no members"
    facts = ReaderFacts
    shared_as = "stopped_together"
    begins_in_status = True
    is_dated = True

    def words(self, facts: ReaderFacts) -> Words:
        since, latest = facts.since_ms, facts.latest_ms
        when = instant(since)
        if since is not None and since + MINUTE_MS < required(latest):
            when = part(instant(latest), ", in some partitions since ", when)
        what = part(_VERBS.get(facts.status or "", "Commits have not moved since"), " ", when)
        has_none, seen = facts.reason == "no_members", facts.members_seen_ms
        had = "none was ever seen" if seen is None else f"it last had some at {instant(seen)}"
        without = f", and the group has no members ({had})" if has_none else None
        return Words(
            sentence(what, where(facts.rows, facts.of_partitions), without, unread(facts), "."),
            {**figures(facts), "members_seen_at": iso(seen) if has_none else None},
            _no_progress_advice(facts),
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        facts = finding.newest_evidence
        status, since = facts.get("status"), clock(self.since_ms(finding))
        if status == "stopped":
            word, what = "stopped", f"nothing committed since {since}"
        elif status == "stalled":
            word, what = "stalled", f"commits are made, but have not moved since {since}"
        else:
            word, what = "no progress", f"commits have not moved since {since}"
        members = ""
        if facts.get("reason") == "no_members":
            # A group that was never seen with members may commit without being one.
            members = "no members seen, " if facts.get("members_seen_at") is None else "no members, "
        return Headline(word, members + what + where_in(facts))

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        facts = finding.newest_evidence
        if facts.get("reason") == "no_members":
            yield from ask_group(finding.group_id, around, "Shows whether the group has members again", "--state")
            # A group that was never seen with members may commit without being one, and may run.
            if facts.get("members_seen_at") is not None:
                what = "Only if the unread records of these partitions are not needed: shows how to skip them" + EXECUTE
                yield from show_reset(finding, around, finding.group_id, what, "--to-latest")
            return
        yield from show_members(finding, around)
        offset = around.commits.get((str(facts.get("worst_topic")), _number(facts, "worst_partition")))
        if offset is not None:
            words = (topic_option(finding), partition_option(finding), f"--offset {offset}", "--max-messages 1")
            yield Command("Shows the record that the group reads next", around.tool("console-consumer", *words))


class StoppedTogether(Kind[SharedFacts]):
    """[Three or more groups have stopped at about the same time](#what-do-groups-have-in-common)."""

    name = "stopped_together"
    subject = SubjectType.TOPIC
    severity = "critical"
    magnitude = "unread records"
    facts = SharedFacts
    instead_of = "no_progress"
    begins_in_status = True

    def words_together(self, facts: SharedFacts) -> Words:
        return Words(
            sentence(
                f"{groups_named(facts.groups, facts.groups_affected)} have stopped at about the same time",
                _in_topic(facts),
                part(": commits have not moved since ", instant(facts.since_ms)),
                _unread_together(facts),
                ".",
            ),
            _figures_together(facts),
            f"{_IN_COMMON}a record that none of them can process, the leader of these partitions, a right that was "
            "taken away, or a deployment.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        groups = some(finding.newest_evidence.get("groups_affected"), "group")
        return Headline("stopped together", f"{groups} have made no progress since {clock(self.since_ms(finding))}")

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield from show_members(finding, around)


class HotPartition(Kind[ReaderFacts]):
    """The status `warning`, because [one partition gets more records than the others](#is-it-one-partition)."""

    name = "hot_partition"
    severity = "warning"
    magnitude = "unread records"
    facts = ReaderFacts
    shared_as = "hot_partition"
    instead_of = "falling_behind"
    begins_in_status = True

    def words_together(self, facts: SharedFacts) -> Words:
        of = f"partition {', '.join(map(str, facts.partition_list))}"
        return Words(
            sentence(
                f"{groups_named(facts.groups, facts.groups_affected)} fall behind because of {of} of topic "
                f"{facts.of_topic}, which gets more records than the others",
                _unread_together(facts),
                ".",
            ),
            _figures_together(facts),
            _HOT_ADVICE,
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        partitions = ", ".join(map(str, finding.place[1])) or figure(finding.newest_evidence.get("worst_partition"))
        share = finding.newest_evidence.get("worst_partition_write_share")
        gets = f"{share:.0%} of the records" if isinstance(share, float) else "more records than the others"
        topic = finding.place[0] or "a topic"
        text = f"partition {partitions} of {topic} gets {gets}{for_groups(finding.group_id, finding.newest_evidence)}"
        return Headline("hot partition", f"{text}, since {clock(self.since_ms(finding))}")

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        words = (topic_option(finding), partition_option(finding), "--offset latest", "--max-messages 100")
        keys = "--property print.key=true --property print.value=false"
        what = "Shows the keys of the next 100 records of this partition: which of them is the most frequent?"
        yield Command(what, around.tool("console-consumer", *words, keys))


class FallingBehind(Kind[ReaderFacts]):
    """The status `warning`: the group makes progress, but its oldest unread record keeps getting older."""

    name = "falling_behind"
    severity = "warning"
    magnitude = "unread records"
    keys = (
        "`is_hot_partition`; `worst_partition_lag_share` of the group's lag and `worst_partition_write_share` of its "
        "records, if one partition has most of the lag"
    )
    facts = ReaderFacts
    shared_as = "falling_behind"
    begins_in_status = True

    def words(self, facts: ReaderFacts) -> Words:
        share, writes = _hot_shares(facts)
        written, committed = tenths(facts.written_per_s), tenths(facts.committed_per_s)
        return Words(
            sentence(
                "The group makes progress but falls behind",
                where(facts.rows, facts.of_partitions),
                ": its oldest unread record keeps getting older",
                part(" (", written, " records/s are written, ", committed, " are committed)"),
                unread(facts),
                None if share is None else _has_most(facts.worst, share, writes),
                ".",
            ),
            {**figures(facts, share, writes), "is_hot_partition": _is_hot(facts, writes) or None},
            _falling_behind_advice(facts, share, writes),
        )

    def words_together(self, facts: SharedFacts) -> Words:
        return Words(
            sentence(
                f"{groups_named(facts.groups, facts.groups_affected)} have begun to fall behind at about the same time",
                _in_topic(facts),
                ": their oldest unread records keep getting older",
                _unread_together(facts),
                ".",
            ),
            _figures_together(facts),
            f"{_IN_COMMON}more records than usual, the leader of these partitions, a quota, or a deployment.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        facts, since = finding.newest_evidence, clock(self.since_ms(finding))
        if finding.group_id is None:
            groups = some(facts.get("groups_affected"), "group")
            return Headline("falling behind", f"unread records of {groups} have become older since {since}")
        rates = [facts.get("written_per_s"), facts.get("committed_per_s")]
        text = f"its oldest unread record has become older since {since}"
        if None not in rates:
            text = f"{figure(rates[0])} records/s are written, {figure(rates[1])} committed, since {since}"
        share = facts.get("worst_partition_lag_share")
        if isinstance(share, float):
            worst = f"partition {facts.get('worst_partition')} of {facts.get('worst_topic')}"
            text += f"; {worst} has {share:.0%} of the lag"
        return Headline("falling behind", text + where_in(facts))

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield from show_members(finding, around)


def soon(at_ms: int | None, left_ms: int) -> str:
    """From when on something may happen, and in how long."""
    if at_ms is None:
        return "soon"
    return "at any moment" if left_ms == 0 else f"from {instant(at_ms)} on, in {duration(left_ms)}"


def from_then(instant_text: object, clock: Clock) -> str:
    """From when on something may happen, as a time of day."""
    at_ms = instant_ms(instant_text)
    return "soon" if at_ms is None else f"from {clock(at_ms)} on"


def forecast_of(finding: Finding, clock: Clock) -> str:
    """When a forecast was made, if not at the snapshot that is shown: it may have changed since."""
    seen_ms = finding.last_seen_ms if finding.worst_ms is None else finding.worst_ms
    return "" if finding.now is not None else f" (forecast of {clock(seen_ms)})"


def _number(facts: Mapping[str, Any], name: str) -> int:
    value = facts.get(name)
    return value if isinstance(value, int) else -1


def _in_topic(facts: SharedFacts) -> str:
    of = f"{counted(len(facts.partition_list), 'partition')} of " if facts.partition_list else ""
    return f" in {of}topic {facts.of_topic}"


def _figures_together(facts: SharedFacts) -> dict[str, Any]:
    return {**figures(facts), "groups_well": facts.groups_well or None}


def _well(facts: SharedFacts) -> str | None:
    """How many of the groups are well again; None if none is, or all are."""
    well = facts.groups_well
    return f"; {well:,} of them {'is' if well == 1 else 'are'} well again" if well else None


def _unread_together(facts: SharedFacts) -> str:
    return sentence(
        _well(facts), unread(facts, "unread by the others" if facts.groups_well else "unread by all of them together")
    )


def _no_progress_advice(facts: ReaderFacts) -> str:
    if facts.reason != "no_members":
        return (
            "Look at the member that owns the worst partition: a record that it cannot process, a call that hangs, or "
            "an offset that it never commits. Restart it if it does not recover."
        )
    if facts.members_seen_ms is None:
        return (
            "The group may commit without being a member, as Spark and Flink may do. Ask its owner whether it runs, "
            "and look at the application's own log."
        )
    delete = tool("consumer-groups", f"--delete --group {in_shell(facts.of_group, 'GROUP')}")
    start = f"Start the group's consumers. If nobody needs the group any more, delete it: {delete}"
    return for_streams(start, facts.group_type)


def _keep_advice(topic: str | None) -> str:
    """The advice to delete nothing of a topic for now."""
    alter = tool("configs", f"--alter --entity-type topics --entity-name {in_shell(topic, 'TOPIC')}")
    return (
        "Raise the topic's retention now, watch the brokers' disks, and put it back when the group has caught up: "
        f"{alter} --add-config retention.ms=-1,retention.bytes=-1"
    )


def _hot_shares(facts: ReaderFacts) -> tuple[float | None, float | None]:
    """The worst partition's share of the group's lag, if it has most of it, and of the records that are written.

    Both are None if it has not, or is the only one of the group.
    """
    share = quotient(facts.worst.consumer_lag, facts.group_lag)
    if share is None or share < MOST_LAG or (facts.of_partitions or 0) <= 1:
        return None, None
    writes = quotient(facts.worst.records_per_s, facts.written_per_s)
    return share, None if writes is None else min(writes, 1.0)


def _is_hot(facts: ReaderFacts, writes: float | None) -> bool:
    """Whether a partition with this share of the records gets at least HOT_WRITES times as many as the others."""
    return writes is not None and writes * (required(facts.of_partitions) - 1) >= HOT_WRITES * (1 - writes)


def _has_most(worst: WorstReader, share: float, writes: float | None) -> str:
    gets = "" if writes is None else f", and gets {percent(writes)} of the records that are written"
    return f"; partition {worst.partition} of topic {worst.topic} has {percent(share)} of the lag{gets}"


def _falling_behind_advice(facts: ReaderFacts, share: float | None, writes: float | None) -> str:
    if share is None:
        return "Add consumers, up to one for each partition, or make the processing of a record faster."
    if _is_hot(facts, writes):
        return _HOT_ADVICE
    return sentence(
        "More consumers do not help, because one partition has most of the lag. Look at the member that owns it",
        part(": client ", facts.worst.client_id, " at ", facts.worst.host),
        ". Its host may be slower, or the records of this partition take longer.",
    )
