"""The words about a group that waits, falls behind or loses records.

They are those of no_progress, falling_behind, deleted_unread and data_loss_ahead.
"""

from __future__ import annotations

from pipeline.analytics.findings.words.parts import (
    Facts,
    Words,
    counted,
    duration,
    for_streams,
    in_shell,
    instant,
    iso,
    part,
    percent,
    quotient,
    sentence,
    tenths,
)
from pipeline.analytics.findings.words.readers import figures, unread, where
from pipeline.common.epoch import MINUTE_MS
from pipeline.common.kafka_tools import tool

MOST_LAG, HOT_WRITES = 0.8, 2
"""From which share of the group's lag on a partition is most of it, and from how many times as many records as the
others get on average a partition is hot."""
HOT_ADVICE = (
    "More consumers do not help, because one partition gets more records than the others. Look at their keys: spread "
    "the most frequent one over several keys, or over all partitions if the order of its records does not matter."
)
LOST_ADVICE = (
    "These records are lost for the group, unless another system still has them. Raise the topic's retention before "
    "the group starts again, so that no more are deleted."
)
_VERBS = {"stopped": "Nothing has been committed since", "stalled": "Commits are made, but have not moved since"}


def no_progress(facts: Facts) -> Words:
    """A group whose commits do not move."""
    since, latest = facts["since_ms"], facts["latest_ms"]
    when = instant(since)
    if since is not None and since + MINUTE_MS < latest:
        when = part(instant(latest), ", in some partitions since ", when)
    what = part(_VERBS.get(facts["status"], "Commits have not moved since"), " ", when)
    has_none, seen = facts["reason"] == "no_members", facts["members_seen_ms"]
    had = "none was ever seen" if seen is None else f"it last had some at {instant(seen)}"
    return Words(
        sentence(
            what, where(facts), f", and the group has no members ({had})" if has_none else None, unread(facts), "."
        ),
        {**figures(facts), "members_seen_at": iso(seen) if has_none else None},
        _no_progress_advice(facts),
    )


def _no_progress_advice(facts: Facts) -> str:
    if facts["reason"] != "no_members":
        return (
            "Look at the member that owns the worst partition: a record that it cannot process, a call that hangs, or "
            "an offset that it never commits. Restart it if it does not recover."
        )
    if facts["members_seen_ms"] is None:
        return (
            "The group may commit without being a member, as Spark and Flink may do. Ask its owner whether it runs, "
            "and look at the application's own log."
        )
    delete = tool("consumer-groups", f"--delete --group {in_shell(facts['of_group'], 'GROUP')}")
    start = f"Start the group's consumers. If nobody needs the group any more, delete it: {delete}"
    return for_streams(start, facts["group_type"])


def falling_behind(facts: Facts) -> Words:
    """A group that makes progress, but not enough."""
    share, writes = hot_shares(facts)
    written, committed = tenths(facts["written_per_s"]), tenths(facts["committed_per_s"])
    return Words(
        sentence(
            "The group makes progress but falls behind",
            where(facts),
            ": its oldest unread record keeps getting older",
            part(" (", written, " records/s are written, ", committed, " are committed)"),
            unread(facts),
            None if share is None else _hot(facts["worst"], share, writes),
            ".",
        ),
        {**figures(facts, share, writes), "is_hot_partition": is_hot(facts, writes) or None},
        _falling_behind_advice(facts, share, writes),
    )


def hot_shares(facts: Facts) -> tuple[float | None, float | None]:
    """The worst partition's share of the group's lag, if it has most of it, and of the records that are written.

    Both are None if it has not, or is the only one of the group.
    """
    worst = facts["worst"]
    share = quotient(worst["consumer_lag"], facts["group_lag"])
    if share is None or share < MOST_LAG or (facts["of_partitions"] or 0) <= 1:
        return None, None
    writes = quotient(worst["records_per_s"], facts["written_per_s"])
    return share, None if writes is None else min(writes, 1.0)


def is_hot(facts: Facts, writes: float | None) -> bool:
    """Whether a partition with this share of the records gets at least HOT_WRITES times as many as the others."""
    return writes is not None and writes * (facts["of_partitions"] - 1) >= HOT_WRITES * (1 - writes)


def _hot(worst: Facts, share: float, writes: float | None) -> str:
    gets = "" if writes is None else f", and gets {percent(writes)} of the records that are written"
    return f"; partition {worst['partition']} of topic {worst['topic']} has {percent(share)} of the lag{gets}"


def _falling_behind_advice(facts: Facts, share: float | None, writes: float | None) -> str:
    worst = facts["worst"]
    if share is None:
        return "Add consumers, up to one for each partition, or make the processing of a record faster."
    if is_hot(facts, writes):
        return HOT_ADVICE
    return sentence(
        "More consumers do not help, because one partition has most of the lag. Look at the member that owns it",
        part(": client ", worst["client_id"], " at ", worst["host"]),
        ". Its host may be slower, or the records of this partition take longer.",
    )


def deleted_unread(facts: Facts) -> Words:
    """A group whose next records were deleted before it had read them."""
    return Words(
        sentence(
            "Deleted before the group had read them: ",
            counted(facts["deleted"], "offset"),
            where(facts),
            part("; ", counted(facts["readable"], "offset"), " can still be read there"),
            ".",
        ),
        {**figures(facts), "deleted_offsets": facts["deleted"], "readable_offsets": facts["readable"]},
        LOST_ADVICE,
    )


def data_loss_ahead(facts: Facts) -> Words:
    """A group whose unread records retention may delete soon."""
    worst, left_ms = facts["worst"], facts["deleted_in_ms"]
    at_ms = facts["at_ms"] + left_ms
    return Words(
        sentence(
            f"Retention may delete unread records {soon(at_ms, left_ms)}",
            where(facts),
            f", first of partition {worst['partition']} of topic {worst['topic']}",
            unread(facts),
            ".",
        ),
        {**figures(facts), "deleted_at": iso(at_ms)},
        keep_records(worst["topic"]),
    )


def keep_records(topic: str | None) -> str:
    """The advice to delete nothing of a topic for now."""
    alter = tool("configs", f"--alter --entity-type topics --entity-name {in_shell(topic, 'TOPIC')}")
    return (
        "Raise the topic's retention now, watch the brokers' disks, and put it back when the group has caught up: "
        f"{alter} --add-config retention.ms=-1,retention.bytes=-1"
    )


def soon(at_ms: int, left_ms: int) -> str:
    """From when on something may happen, and in how long."""
    return "at any moment" if left_ms == 0 else f"from {instant(at_ms)} on, in {duration(left_ms)}"
