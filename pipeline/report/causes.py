"""What each kind of finding is, in a status word and a few words more: the headline of a card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from pipeline.common.epoch import to_epoch_ms
from pipeline.common.words import counted, spaced
from pipeline.report.details_model import Finding
from pipeline.report.units import duration

Clock = Callable[[int], str]
"""Writes an instant, epoch ms, as a time of day."""
_FROM_STATUS = (
    *("no_progress", "stopped_together", "falling_behind", "hot_partition"),
    *("rewound", "skipped", "open_transaction"),
)
"""The kinds whose evidence says since when it lasts. The finding is first seen later, when it is certain."""


class Cause(NamedTuple):
    """A finding in few words: `word` is a status such as "stopped", `text` says why and since when."""

    word: str
    text: str
    severity: str
    since_ms: int
    resolved_ms: int | None


def cause(finding: Finding, clock: Clock) -> Cause:
    """The words for a finding. A kind that is not known, such as one of a newer laglake, has its summary."""
    of_kind = _OF_KIND.get(finding.kind)
    word, text = of_kind(finding, clock) if of_kind else (spaced(finding.kind), finding.summary)
    if finding.resolved_ms is not None:
        text += f"; resolved at {clock(finding.resolved_ms)}"
    return Cause(word, text, finding.severity or "info", since_ms(finding), finding.resolved_ms)


def rank(finding: Finding) -> int:
    """The place of a finding among others that are as grave: what says most about the cause comes first."""
    kinds = [*_OF_KIND]
    return kinds.index(finding.kind) if finding.kind in kinds else len(kinds)


def since_ms(finding: Finding) -> int:
    """When the problem began: when its status began, if this is known, else when it was first seen."""
    known = (finding.evidence, finding.now or {}) if finding.kind in _FROM_STATUS else ()
    began = [instant_ms(facts.get("since")) for facts in known]
    return min([finding.first_seen_ms, *(ms for ms in began if ms is not None)])


def instant_ms(text: object) -> int | None:
    """An instant of the evidence as epoch ms; None if it has none."""
    try:
        return to_epoch_ms(datetime.fromisoformat(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def number(value: object) -> str:
    """A number of the evidence; a question mark if it has none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:,}" if is_number else "?"


def _how_many(value: object, noun: str) -> str:
    return counted(value, noun) if isinstance(value, int) else f"some {noun}s"


def _client(finding: Finding) -> str:
    return finding.client_id or "a client"


def _where(facts: Mapping[str, Any]) -> str:
    some, of = facts.get("partitions"), facts.get("partitions_of_group")
    is_part = isinstance(some, int) and isinstance(of, int) and some < of
    return f" in {number(some)} of {_how_many(of, 'partition')}" if is_part else ""


def _groups(finding: Finding) -> str:
    """Of which groups a finding of a topic is: " for 3 groups". Nothing if it is one of a group."""
    return "" if finding.group_id is not None else f" for {_how_many(finding.facts.get('groups_affected'), 'group')}"


def _no_progress(finding: Finding, clock: Clock) -> tuple[str, str]:
    facts = finding.facts
    status, since = facts.get("status"), clock(since_ms(finding))
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
    return word, members + what + _where(facts)


def _falling_behind(finding: Finding, clock: Clock) -> tuple[str, str]:
    facts = finding.facts
    if finding.group_id is None:
        groups = _how_many(facts.get("groups_affected"), "group")
        return "falling behind", f"unread records of {groups} have become older since {clock(since_ms(finding))}"
    rates = [facts.get("written_per_s"), facts.get("committed_per_s")]
    text = f"its oldest unread record has become older since {clock(since_ms(finding))}"
    if None not in rates:
        text = (
            f"{number(rates[0])} records/s are written, {number(rates[1])} committed, since {clock(since_ms(finding))}"
        )
    share = facts.get("worst_partition_lag_share")
    if isinstance(share, float):
        text += f"; partition {facts.get('worst_partition')} of {facts.get('worst_topic')} has {share:.0%} of the lag"
    return "falling behind", text + _where(facts)


def _hot_partition(finding: Finding, clock: Clock) -> tuple[str, str]:
    where = ", ".join(map(str, finding.place[1])) or number(finding.facts.get("worst_partition"))
    share = finding.facts.get("worst_partition_write_share")
    gets = f"{share:.0%} of the records" if isinstance(share, float) else "more records than the others"
    topic = finding.place[0] or "a topic"
    text = f"partition {where} of {topic} gets {gets}{_groups(finding)}"
    return "hot partition", f"{text}, since {clock(since_ms(finding))}"


def _rewound(finding: Finding, clock: Clock) -> tuple[str, str]:
    by = ", probably by a tool" if finding.facts.get("reason") == "offsets_reset" else ""
    return "rewound", f"commits went back at {clock(since_ms(finding))}{_where(finding.facts)}{by}"


def _skipped(finding: Finding, clock: Clock) -> tuple[str, str]:
    records = _how_many(finding.facts.get("skipped_offsets"), "record")
    return "skipped", f"commits were moved over {records} at {clock(since_ms(finding))}{_where(finding.facts)}"


def _deleted_unread(finding: Finding, clock: Clock) -> tuple[str, str]:
    deleted = _how_many(finding.facts.get("deleted_offsets"), "offset")
    where = f"{_where(finding.facts)}{_groups(finding)}"
    return "data lost", f"{deleted} deleted unread{where}, seen since {clock(finding.first_seen_ms)}"


def _data_loss_ahead(finding: Finding, clock: Clock) -> tuple[str, str]:
    deleted_ms = instant_ms(finding.facts.get("deleted_at"))
    when = "soon" if deleted_ms is None else f"from {clock(deleted_ms)} on"
    return "loss ahead", f"retention may delete unread records {when}{_where(finding.facts)}{_groups(finding)}"


def _commits_expire(finding: Finding, clock: Clock) -> tuple[str, str]:
    expire_ms = instant_ms(finding.facts.get("commits_expire_at"))
    when = "soon" if expire_ms is None else f"from {clock(expire_ms)} on"
    return "commits expire", f"Kafka may remove the commits {when}{_where(finding.facts)}"


def _budget_burn(finding: Finding, _: Clock) -> tuple[str, str]:
    facts = finding.facts
    names = ", ".join(map(str, facts.get("slos") or ())) or "not known"
    rate = facts.get("burn_rate_1h")
    return "budget burn", f"objective {names}" + (f", burn rate {number(rate)}" if rate is not None else "")


def _together(finding: Finding, clock: Clock) -> tuple[str, str]:
    groups = _how_many(finding.facts.get("groups_affected"), "group")
    return "stopped together", f"{groups} have made no progress since {clock(since_ms(finding))}"


def _open_transaction(finding: Finding, clock: Clock) -> tuple[str, str]:
    producer = finding.facts.get("transaction_producer_id")
    whose = "an unknown producer" if producer is None else f"producer {producer}"
    held = _how_many(finding.facts.get("partitions"), "partition")
    return "open transaction", f"{whose} holds back {held} since {clock(since_ms(finding))}"


def _recreated(finding: Finding, clock: Clock) -> tuple[str, str]:
    return "topic recreated", f"its groups have not committed since; seen since {clock(finding.first_seen_ms)}"


def _truncated(finding: Finding, clock: Clock) -> tuple[str, str]:
    since = clock(finding.first_seen_ms)
    if finding.facts.get("commits_never_within") and not finding.facts.get("commits_cut_off"):
        return "commit beyond the end", f"no snapshot has seen the commits within the log; seen since {since}"
    return "log truncated", f"commits are beyond what was cut off; seen since {since}"


def _storm(finding: Finding, clock: Clock) -> tuple[str, str]:
    stays, epochs = finding.facts.get("short_stays"), finding.facts.get("epochs")
    what = f"members left {number(stays)} times soon after they had joined"
    if not stays and epochs:
        what = f"the epoch rose by {number(epochs)}"
    return "rebalance storm", f"{what}, seen since {clock(finding.first_seen_ms)}"


def _flapping(finding: Finding, clock: Clock) -> tuple[str, str]:
    facts = finding.facts
    who = facts.get("group_instance_id") or facts.get("client_id") or "one member"
    times = _how_many(facts.get("short_stays_of_client"), "time")
    return "flapping member", f"{who} left {times} soon after it had joined, seen since {clock(finding.first_seen_ms)}"


def _uneven(finding: Finding, _: Clock) -> tuple[str, str]:
    facts = finding.facts
    most, of = facts.get("partitions_of_one_member"), _how_many(facts.get("partitions"), "partition")
    return "uneven assignment", f"one member has {number(most)} of {of}"


def _idle(finding: Finding, _: Clock) -> tuple[str, str]:
    return "idle member", f"{_how_many(finding.facts.get('members_without_partition'), 'member')} without a partition"


def _under_replicated(finding: Finding, clock: Clock) -> tuple[str, str]:
    facts = finding.facts
    of = _how_many(facts.get("partitions_of_broker"), "partition")
    return (
        "under-replicated",
        f"broker {facts.get('broker', '?')} is missing from {of}, seen since {clock(finding.first_seen_ms)}",
    )


def _clock_ahead(finding: Finding, clock: Clock) -> tuple[str, str]:
    ahead = finding.facts.get("ahead_ms")
    by = f" by up to {duration(ahead)}" if isinstance(ahead, int) else ""
    return "clock ahead", f"timestamps are in the future{by}, seen since {clock(finding.first_seen_ms)}"


def _clock_behind(finding: Finding, clock: Clock) -> tuple[str, str]:
    return "clock behind", f"timestamps are seconds, not milliseconds, seen since {clock(finding.first_seen_ms)}"


def _missing(finding: Finding, clock: Clock) -> tuple[str, str]:
    failed, missed = (finding.facts.get(name) for name in ("failed", "missed_instants"))
    said = f"{number(failed)} failed, {number(missed)} missed"
    return "snapshots missing", f"{said}, seen since {clock(finding.first_seen_ms)}"


def _unreadable(finding: Finding, clock: Clock) -> tuple[str, str]:
    errors = ", ".join(map(str, finding.facts.get("errors") or ())) or "the error is not known"
    return "unreadable", f"lag is not known since {clock(finding.first_seen_ms)}: {errors}"


def _blocked(finding: Finding, clock: Clock) -> tuple[str, str]:
    topics = ", ".join(map(str, finding.facts.get("culprit_topics") or ())) or "a thread"
    since = clock(finding.first_seen_ms)
    return "blocked client", f"{_client(finding)} waits for {topics}, whose queue is full, since {since}"


def _of_client(word: str, what: str) -> Callable[[Finding, Clock], tuple[str, str]]:
    def words(finding: Finding, clock: Clock) -> tuple[str, str]:
        topic = f" ({finding.topic})" if finding.topic else ""
        return word, f"{_client(finding)} {what}{topic}, seen since {clock(finding.first_seen_ms)}"

    return words


def _gauge(finding: Finding, clock: Clock) -> tuple[str, str]:
    shown, lag = (finding.facts.get(name) for name in ("max_lag", "max_consumer_lag"))
    reported = "no lag" if shown is None else f"a lag of {number(shown)}"
    true = "not known" if lag is None else number(lag)
    since = clock(finding.first_seen_ms)
    return "gauge wrong", f"{_client(finding)} reports {reported}, its lag is {true}; seen since {since}"


_OF_KIND: Mapping[str, Callable[[Finding, Clock], tuple[str, str]]] = {
    "deleted_unread": _deleted_unread,
    "data_loss_ahead": _data_loss_ahead,
    "no_progress": _no_progress,
    "stopped_together": _together,
    "hot_partition": _hot_partition,
    "falling_behind": _falling_behind,
    "rewound": _rewound,
    "skipped": _skipped,
    "commits_expire": _commits_expire,
    "budget_burn": _budget_burn,
    "open_transaction": _open_transaction,
    "recreated_topic": _recreated,
    "truncated_log": _truncated,
    "rebalance_storm": _storm,
    "flapping_member": _flapping,
    "uneven_assignment": _uneven,
    "idle_member": _idle,
    "under_replicated": _under_replicated,
    "clock_ahead": _clock_ahead,
    "clock_behind": _clock_behind,
    "snapshots_missing": _missing,
    "unreadable": _unreadable,
    "blocked_connector": _blocked,
    "slow_consumer": _of_client("slow client", "hardly asks for records"),
    "paused_partition": _of_client("paused", "reads nothing from some partitions"),
    "too_large_message": _of_client("too large message", "gets no records: a batch exceeds its fetch size"),
    "blind_gauge": _gauge,
    "buffer_too_large": _of_client("large buffer", "may buffer more than half of its heap"),
}
"""The words of each kind of finding."""
