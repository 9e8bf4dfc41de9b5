"""The kinds of problems of groups, topics and clusters: for which readers each holds, and its words.

The words use the columns that `group_problems` sums up over the partitions of a problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.analytics.findings import commits_expire, open_transaction, rewound
from pipeline.analytics.findings.problem import (
    command,
    counted,
    duration,
    for_streams,
    in_shell,
    instant,
    number,
    sentence,
    size_within,
)
from pipeline.analytics.status.rules import FALLING_BEHIND, WAITS
from pipeline.common.epoch import MINUTE_MS
from pipeline.common.kafka_tools import tool
from pipeline.tables import DATA_LOSS

NAMED = 20
"""How many groups, topics or errors a sentence or the evidence names."""
_RATES = ("written_per_s", "committed_per_s")


HOT_LAG, HOT_WRITES = 0.8, 0.5
"""From which share of the group's lag on its worst partition is hot, and which share of the records is most of them."""


@dataclass(frozen=True)
class Kind:
    """A kind of problem: for which readers it `holds`, and its words, from the columns of `_sums`."""

    holds: Callable[[], Column]
    severity: str
    magnitude: Callable[[], Column]
    summary: Callable[[], Column]
    advice: Callable[[], Column]


def _where() -> Column:
    """In 3 of 12 partitions; nothing if it is all of them."""
    some = F.concat(F.lit(" in "), number(F.col("rows")), F.lit(" of "), counted(F.col("of_partitions"), "partition"))
    return F.when(F.col("rows") < F.col("of_partitions"), some)


def _unread() -> Column:
    """What is unread: "; unread: 1,234 records (1.2 MB), the oldest 2 hours old". NULL if it is not known.

    Bytes and age are those of the records that still exist.
    """
    error = F.coalesce("bytes_error", F.lit(0))
    in_bytes = F.concat(F.lit(" ("), size_within(F.col("consumer_lag_bytes"), error), F.lit(")"))
    oldest = F.concat(F.lit(", the oldest "), duration(F.col("consumer_age_ms")), F.lit(" old"))
    exist = F.concat(F.lit(", of which "), number(F.col("existing")), F.lit(" still exist"))
    left = F.when(F.col("existing") < F.col("consumer_lag"), exist)
    text = sentence("; unread: ", counted(F.col("consumer_lag"), "record"), left, in_bytes, oldest)
    return F.when(F.col("consumer_lag").isNotNull(), text)


def _rates() -> Column:
    """How fast: " (12.5 records/s are written, 10 are committed)". NULL if it is not known."""
    written, committed = (F.regexp_replace(F.format_number(name, 1), r"\.0$", "") for name in _RATES)
    return F.concat(F.lit(" ("), written, F.lit(" records/s are written, "), committed, F.lit(" are committed)"))


def hot_partition() -> dict[str, Column]:
    """Columns for a group that falls behind because of one of its partitions; else NULL.

    hot_share is the partition's share of the group's lag, and hot_writes its share of the records that are written.
    """
    worst = F.col("worst")
    share = worst["consumer_lag"] / F.when(F.col("group_lag") > 0, F.col("group_lag"))
    is_hot = (F.col("kind") == "falling_behind") & (F.col("of_partitions") > 1) & (share >= HOT_LAG)
    writes = worst["records_per_s"] / F.when(F.col("written_per_s") > 0, F.col("written_per_s"))
    return {"hot_share": F.when(is_hot, share), "hot_writes": F.when(is_hot, F.when(writes > 1, 1.0).otherwise(writes))}


def _hot() -> Column:
    """Which partition has most of the lag; NULL if none has."""

    def percent(share: str) -> Column:
        return F.concat(F.format_number(100 * F.col(share), 0), F.lit(" % of "))

    partition = sentence("; partition ", F.col("worst.partition").cast("string"), " of topic ", F.col("worst.topic"))
    writes = F.concat(F.lit(", and gets "), percent("hot_writes"), F.lit("the records that are written"))
    text = sentence(partition, " has ", percent("hot_share"), "the lag", writes)
    return F.when(F.col("hot_share").isNotNull(), text)


def _falling_behind_advice() -> Column:
    faster = "Add consumers, up to one for each partition, or make the processing of a record faster."
    keys = (
        "More consumers do not help, because one partition gets most of the records. Look at their keys: spread the "
        "most frequent one over several keys, or over all partitions if the order of its records does not matter."
    )
    look = "More consumers do not help, because one partition has most of the lag. Look at the member that owns it"
    owner = F.concat(F.lit(": client "), F.col("worst.client_id"), F.concat(F.lit(" at "), F.col("worst.host")))
    member = sentence(look, owner, ". Its host may be slower, or the records of this partition take longer.")
    is_hot, gets_most = F.col("hot_share").isNotNull(), F.col("hot_writes") >= HOT_WRITES
    return F.when(~is_hot, faster).when(gets_most, keys).otherwise(member)


def groups_named() -> Column:
    """The groups, by number and name: "2 groups (a, b)"."""
    more = F.when(F.size("groups") > NAMED, F.lit(", …"))
    names = F.array_join(F.slice("groups", 1, NAMED), ", ")
    return sentence(counted(F.size("groups"), "group"), " (", names, more, ")")


def _no_progress() -> Column:
    latest = instant(F.col("latest_ms"))
    some_since = F.concat(latest, F.lit(", in some partitions since "), instant(F.col("since_ms")))
    since = F.when(F.col("since_ms") + MINUTE_MS < F.col("latest_ms"), some_since).otherwise(instant(F.col("since_ms")))
    what = (
        F.when(F.col("status") == "stopped", F.concat(F.lit("Nothing has been committed since "), since))
        .when(F.col("status") == "stalled", F.concat(F.lit("Commits are made, but have not moved since "), since))
        .otherwise(F.concat(F.lit("Commits have not moved since "), since))
    )
    had = F.concat(F.lit(" (it last had some at "), instant(F.col("members_seen_ms")), F.lit(")"))
    never = F.lit(" (none was ever seen)")
    no_members = F.concat(F.lit(", and the group has no members"), F.coalesce(had, never))
    return sentence(what, _where(), F.when(F.col("reason") == "no_members", no_members), _unread(), ".")


def _no_progress_advice() -> Column:
    delete = command(
        "Start the group's consumers. If nobody needs the group any more, delete it: "
        + tool("consumer-groups", "--delete --group %s"),
        in_shell("of_group", "GROUP"),
    )
    ask = (
        "The group may commit without being a member, as Spark and Flink may do. Ask its owner whether it runs, and "
        "look at the application's own log."
    )
    look = (
        "Look at the member that owns the worst partition: a record that it cannot process, a call that hangs, or an "
        "offset that it never commits. Restart it if it does not recover."
    )
    has_none = F.col("reason").eqNullSafe("no_members")
    return F.when(~has_none, look).when(F.col("members_seen_ms").isNull(), ask).otherwise(for_streams(delete))


def _data_loss_ahead() -> Column:
    lost_ms = F.col("at_ms") + F.col("deleted_in_ms")
    soon = F.when(F.col("deleted_in_ms") == 0, F.lit("at any moment")).otherwise(
        F.concat(F.lit("from "), instant(lost_ms), F.lit(" on, in "), duration(F.col("deleted_in_ms")))
    )
    partition = F.col("worst.partition").cast("string")
    first = F.concat(F.lit(", first of partition "), partition, F.lit(" of topic "), F.col("worst.topic"))
    return sentence("Retention may delete unread records ", soon, _where(), first, _unread(), ".")


def _as_text(words: str) -> Callable[[], Column]:
    return lambda: F.lit(words)


def _of(name: str) -> Callable[[], Column]:
    return lambda: F.col(name)


KINDS: dict[str, Kind] = {
    "no_progress": Kind(
        lambda: F.col("status").isin(*WAITS) & ~F.col("reason").eqNullSafe("open_transaction"),
        "critical",
        _of("consumer_lag"),
        _no_progress,
        _no_progress_advice,
    ),
    "falling_behind": Kind(
        lambda: F.col("status") == FALLING_BEHIND,
        "warning",
        _of("consumer_lag"),
        lambda: sentence(
            "The group makes progress but falls behind",
            _where(),
            ": its oldest unread record keeps getting older",
            _rates(),
            _unread(),
            _hot(),
            ".",
        ),
        _falling_behind_advice,
    ),
    "rewound": Kind(
        lambda: F.col("status") == "rewound",
        "warning",
        _of("consumer_lag"),
        lambda: sentence(
            "Commits went back at ",
            instant(F.col("since_ms")),
            _where(),
            ", and are still behind where they were",
            _unread(),
            ".",
            rewound.by_whom(),
        ),
        rewound.advice,
    ),
    "deleted_unread": Kind(
        lambda: F.col("offset_status") == DATA_LOSS,
        "critical",
        _of("deleted"),
        lambda: sentence(
            "Deleted before the group had read them: ",
            counted(F.col("deleted"), "offset"),
            _where(),
            F.concat(F.lit("; "), counted(F.col("readable"), "offset"), F.lit(" can still be read there")),
            ".",
        ),
        _as_text(
            "These records are lost for the group, unless another system still has them. Raise the topic's retention "
            "before the group starts again, so that no more are deleted."
        ),
    ),
    "data_loss_ahead": Kind(
        lambda: F.col("deleted_in_ms").isNotNull(),
        "critical",
        lambda: -F.col("deleted_in_ms"),
        _data_loss_ahead,
        lambda: command(
            "Raise the topic's retention now, watch the brokers' disks, and put it back when the group has caught up: "
            + tool("configs", "--alter --entity-type topics --entity-name %s")
            + " --add-config retention.ms=-1,retention.bytes=-1",
            in_shell("worst.topic", "TOPIC"),
        ),
    ),
    "commits_expire": Kind(
        lambda: F.col("expires_in_ms").isNotNull(),
        "warning",
        lambda: -F.col("expires_in_ms"),
        commits_expire.summary,
        commits_expire.advice,
    ),
    "open_transaction": Kind(
        lambda: F.col("status").isin(*WAITS) & (F.col("reason") == "open_transaction"),
        "warning",
        _of("consumer_lag"),
        lambda: sentence(
            "An open transaction",
            open_transaction.producer(),
            " hides all unread records of ",
            counted(F.size("partitions"), "partition"),
            " from read_committed readers since ",
            instant(F.col("since_ms")),
            "; waiting: ",
            groups_named(),
            ".",
        ),
        open_transaction.advice,
    ),
    "recreated_topic": Kind(
        lambda: F.col("offset_status") == "recreated",
        "warning",
        lambda: F.size("groups"),
        lambda: sentence("The topic was recreated; not committed since: ", groups_named(), "."),
        _as_text(
            "The commits belong to the deleted topic. Check where the groups read now; reset their offsets if they "
            "skip records of the new topic."
        ),
    ),
    "truncated_log": Kind(
        lambda: F.col("offset_status").isin("truncated", "beyond_end"),
        "critical",
        lambda: F.size("groups"),
        lambda: sentence(
            "The log of ",
            counted(F.size("partitions"), "partition"),
            " ends or was cut off before commits of ",
            groups_named(),
            ": other records may have these offsets now.",
        ),
        _as_text(
            "Look for an unclean leader election, or a topic that was recreated. Reset the groups to the offset from "
            "which they must read again."
        ),
    ),
}
