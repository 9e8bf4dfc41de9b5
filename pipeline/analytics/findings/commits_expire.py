"""When Kafka will remove the commits of a group without members, which then does not know any more where to read on."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.analytics.findings.problem import command, counted, duration, in_shell, instant, iso, sentence
from pipeline.analytics.series import read_ms


def expires_in_ms(within_ms: int) -> Column:
    """How long until the commit of a reader may be removed, if less than `within_ms`; else NULL. At least 0.

    Kafka removes the commits of a classic group `offsets.retention.minutes` after its last member has left (KIP-211,
    ClassicGroup.offsetExpirationCondition). In a group of another type, this time begins with each commit
    (ConsumerGroup.offsetExpirationCondition), so it is also compared with the first snapshot that shows this commit.
    A group that was never seen with members may commit without being one, and its commits may be older than the
    first snapshot, so nothing is known about it. If nothing is unread, the group loses nothing.

    Columns: has_members, members_seen_at, waiting_since, group_type, consumer_lag, offsets_retention_ms and those of
    `read_ms`.
    """
    left_ms = F.unix_millis("members_seen_at")
    is_classic = F.coalesce("group_type", F.lit("classic")) == "classic"
    begun_ms = F.when(is_classic, left_ms).otherwise(F.least(left_ms, F.unix_millis("waiting_since")))
    rest_ms = begun_ms + F.col("offsets_retention_ms") - read_ms("committed_captured_at")
    may_expire = ~F.col("has_members") & left_ms.isNotNull() & (F.col("consumer_lag") > 0) & (rest_ms <= within_ms)
    return F.when(may_expire, F.greatest(rest_ms, F.lit(0)))


def evidence() -> dict[str, Column]:
    """When the commits may be removed, and when the group last had members."""
    return {
        "commits_expire_at": iso(F.col("at_ms") + F.col("expires_in_ms")),
        "members_seen_at": iso(F.col("members_seen_ms")),
    }


def summary() -> Column:
    """When, and why."""
    soon = F.when(F.col("expires_in_ms") == 0, F.lit("at any moment")).otherwise(
        F.concat(
            F.lit("from "),
            instant(F.col("at_ms") + F.col("expires_in_ms")),
            F.lit(" on, in "),
            duration(F.col("expires_in_ms")),
        )
    )
    members = F.concat(F.lit("; the group last had members at "), instant(F.col("members_seen_ms")))
    unread = F.concat(F.lit(", and "), counted(F.col("consumer_lag"), "record"), F.lit(" are unread"))
    return sentence("Kafka may remove the group's committed offsets ", soon, members, unread, ".")


def advice() -> Column:
    """How to keep the position."""
    group = in_shell("of_group", "GROUP")
    return command(
        "Start the group's consumers before then, or keep its position in a file: kafka-consumer-groups --group %s "
        "--reset-offsets --to-current --all-topics --dry-run --export > offsets.csv. Later, kafka-consumer-groups "
        "--group %s --reset-offsets --from-file offsets.csv --execute restores it. Without its offsets, the group "
        "starts where auto.offset.reset says.",
        group,
        group,
    )
