"""How groups are doing: their status, what has changed in them, and their objectives."""

from pyspark.sql.types import ArrayType, DoubleType, MapType

from pipeline.tables.columns import (
    BINARY,
    BOOLEAN,
    GROUP,
    INT,
    LONG,
    PARTITION,
    SNAPSHOT,
    STRING,
    TIMESTAMP,
    TOPIC,
    Column,
    Table,
    schema,
)

_STATUS: Column = (
    "status",
    STRING,
    "stopped | stalled | not_progressing | rewound | warning | unknown | not_committed | ok",
)

_MEMBERS: Column = (
    "has_members",
    BOOLEAN,
    "whether the group has members (if not, it may still be ok); NULL = not known",
)

_MEMBERS_SEEN: Column = (
    "members_seen_at",
    TIMESTAMP,
    "the newest time at which the group is known to have had members; NULL = no snapshot has seen any",
)

PARTITION_STATUS = Table(
    "partition_status",
    "The status of each group at each partition, at each snapshot. It also depends on earlier snapshots. The "
    "owner of a group is in group_status, at the same cluster, snapshot_id and group_id.",
    schema(
        *SNAPSHOT,
        ("captured_at", TIMESTAMP, "when the committed offset was read"),
        GROUP,
        TOPIC,
        PARTITION,
        _STATUS,
        (
            "reason",
            STRING,
            (
                "open_transaction | no_members | transaction_marker | too_few_snapshots | offsets_reset; for other "
                "rows with status unknown, the error or offset_status; else NULL"
            ),
        ),
        ("since", TIMESTAMP, "when the status began"),
        (
            "waiting_since",
            TIMESTAMP,
            "first snapshot with this commit and with unread records; NULL = no record is unread",
        ),
        ("commit_since", TIMESTAMP, "when the newest known commit was first seen"),
        _MEMBERS,
        _MEMBERS_SEEN,
        ("consumer_lag", LONG, "consumer_lag, as in the table lag"),
        ("consumer_age_ms", LONG, "consumer_age_ms, as in the table lag"),
        ("remembered", BINARY, "what laglake remembers for the next snapshot; for its own use"),
    ),
    key=("cluster", "snapshot_id", "group_id", "topic", "partition"),
    partitioned_by=("cluster", "snapshot_date"),
)

GROUP_STATUS = Table(
    "group_status",
    "Each group at each snapshot: its status, which is that of its worst partition, and its lag in all partitions.",
    schema(
        *SNAPSHOT,
        ("captured_at", TIMESTAMP, "when its committed offsets were read: the mean over its partitions"),
        ("ends_at", TIMESTAMP, "when the ends of its logs were read: the mean over its partitions"),
        GROUP,
        _STATUS,
        ("reason", STRING, "reason of the worst partition, see partition_status"),
        ("since", TIMESTAMP, "when the first of the partitions with this status got it; for ok, the last"),
        (
            "topic",
            STRING,
            (
                "topic of the worst partition: among those with the group's status, the one with most lag; of several, "
                "the first by topic and partition"
            ),
        ),
        ("partition", INT, "number of the worst partition"),
        ("partitions", LONG, "number of partitions that the group reads"),
        ("statuses", MapType(STRING, LONG), "number of these partitions with each status"),
        ("offset_statuses", MapType(STRING, LONG), "the same for lag.offset_status; unknown stands for NULL"),
        ("commit_since", TIMESTAMP, "when the newest of its commits was first seen"),
        _MEMBERS,
        _MEMBERS_SEEN,
        ("group_state", STRING, "group_state, as in the table lag"),
        ("group_type", STRING, "group_type, as in the table lag"),
        ("owner", STRING, "who owns the group, by the rules in [[owners]] that name no topic; NULL = no rule matches"),
        ("tier", STRING, "how important it is, by the same rule; NULL = no rule matches, or the rule has no tier"),
        (
            "channel",
            STRING,
            (
                "the [channels.X] that messages about it go to: those of the same rule, else those of [notifications]; "
                "several are separated by commas; NULL = none are sent"
            ),
        ),
        ("members", LONG, "number of members to which partitions are assigned"),
        ("clients", LONG, "number of their client ids"),
        ("client_id", STRING, "one of these"),
        ("consumer_lag", LONG, "sum of consumer_lag over the partitions where it is known; a negative lag counts as 0"),
        ("partitions_unknown", LONG, "number of partitions with a commit whose consumer_lag is not known"),
        ("max_consumer_lag", LONG, "the greatest consumer_lag of a partition"),
        ("consumer_lag_stable", LONG, "sum of consumer_lag_stable, like that of consumer_lag"),
        ("stable_unknown", LONG, "number of partitions with a commit whose consumer_lag_stable is not known"),
        ("transaction_lag", LONG, "sum of transaction_lag, like that of consumer_lag"),
        ("min_headroom", LONG, "the smallest headroom of a partition"),
        ("unread_offsets", LONG, "number of offsets that were deleted before the group had read them; NULL = none"),
        (
            "not_committed_offsets",
            LONG,
            "the most offsets that it may still read where it has no commit; NULL = no such partition, or unknown",
        ),
        ("consumer_lag_bytes", LONG, "sum of consumer_lag_bytes, like that of consumer_lag"),
        ("bytes_error", LONG, "stated error of consumer_lag_bytes: the sum"),
        ("bytes_unknown", LONG, "number of partitions whose consumer_lag is known, but not in bytes"),
        ("consumer_lag_ms", LONG, "the greatest consumer_lag_ms of a partition"),
        ("time_error_ms", LONG, "stated error of consumer_lag_ms"),
        ("ms_unknown", LONG, "number of partitions whose consumer_lag is known, but not in time"),
        ("consumer_age_ms", LONG, "age of the oldest record that is not committed"),
        ("age_error_ms", LONG, "stated error of consumer_age_ms"),
        ("age_unknown", LONG, "number of partitions whose consumer_lag is known, but not their consumer_age_ms"),
        ("log_ends", LONG, "sum of high_watermark over all partitions; NULL = one is not known"),
        (
            "commits",
            LONG,
            "sum of committed_offset over all partitions, a commit beyond the end as the end; NULL = one is unknown",
        ),
        ("rows_with_error", LONG, "number of rows of lag with an error"),
        ("error", STRING, "one of these errors"),
    ),
    key=("cluster", "snapshot_id", "group_id"),
    partitioned_by=("cluster", "snapshot_date"),
)

CHANGES = (
    *("appeared", "vanished", "state", "type", "assignor", "epoch", "joined", "left", "restarted"),
    *("moved", "assigned", "unassigned", "commits_removed"),
)
"""`group_changes.change`: what can happen to a group, to its members, and to its partitions."""

GROUP_CHANGES = Table(
    "group_changes",
    "What has changed in each group since an earlier snapshot: the group itself, its members, who has which "
    "partitions, and which commits are gone. There is no row if nothing has changed, or if this is not known.",
    schema(
        *SNAPSHOT,
        ("captured_at", TIMESTAMP, "when the group was described; NULL if it has vanished"),
        (
            "earlier_snapshot_id",
            LONG,
            "the snapshot that it was compared with: the newest before it in which this is known, at most ten back",
        ),
        GROUP,
        ("change", STRING, " | ".join(CHANGES)),
        (
            "before",
            STRING,
            (
                "what it was: the state, type, assignor or group epoch; for members and partitions the member id; "
                "NULL = nothing, or not known"
            ),
        ),
        ("after", STRING, "what it is now"),
        ("member_id", STRING, "member that the change is about: the one in after, or else in before"),
        ("client_id", STRING, "its client.id"),
        ("host", STRING, "its address"),
        ("instance_id", STRING, "its group.instance.id, if it is a static member"),
        ("topic", STRING, "topic of the partitions"),
        ("partitions", ArrayType(INT), "partitions of the topic that have moved or whose commits are gone, ascending"),
    ),
    key=("cluster", "snapshot_id", "group_id", "change", "member_id", "topic", "before"),
    partitioned_by=("cluster", "snapshot_date"),
    series=("group_id",),
)


def _of_time(prefix: str, what: str, begin: str = "begins") -> tuple[Column, ...]:
    """The columns of `slo` for a time that ends with the snapshot."""
    return (
        (
            f"{prefix}_from",
            TIMESTAMP,
            f"where {what} {begin}: the newest snapshot that is at least this old, or else begun_at",
        ),
        (f"{prefix}_met_ms", LONG, f"time in {what} in which the objective was met"),
        (f"{prefix}_missed_ms", LONG, f"time in {what} in which it was missed"),
    )


SLO = Table(
    "slo",
    "Each service-level objective of the configuration, for each group that matches, at each snapshot: whether it is "
    "met, and how much of its error budget is left.",
    schema(
        *SNAPSHOT,
        ("slo", STRING, "name of the objective in the configuration"),
        GROUP,
        ("objective", STRING, "what each partition must meet: a column of lag and its limit"),
        ("topics", STRING, "expression for the topics that count; NULL = all"),
        ("target", DoubleType(), "share of the time in which it must be met"),
        ("window_ms", LONG, "length of the window over which the target must be reached"),
        ("partitions", LONG, "number of partitions that count: those with a commit, or whose commit is not known"),
        ("partitions_missed", LONG, "number of these that miss the objective"),
        ("partitions_unknown", LONG, "number of these of which it is not known whether they miss it"),
        ("worst", LONG, "the greatest value in the column of the objective, of all partitions but the unknown ones"),
        ("topic", STRING, "topic of the partitions that miss it; NULL = none, or several topics"),
        ("is_met", BOOLEAN, "whether all of them meet it; NULL = some are not known, and no other one misses it"),
        ("earlier_snapshot_id", LONG, "the snapshot of the cluster just before; NULL = there was none"),
        ("counted_ms", LONG, "for how much of the time since then is_met counts; the rest is unknown"),
        ("begun_at", TIMESTAMP, "first snapshot of the sums"),
        ("met_ms", LONG, "time since begun_at in which the objective was met"),
        ("missed_ms", LONG, "time since begun_at in which it was missed"),
        ("last_missed_at", TIMESTAMP, "the newest snapshot since begun_at that misses the objective; NULL = none"),
        ("last_missed_ms", LONG, "counted_ms of that snapshot"),
        ("last_known_is_met", BOOLEAN, "the newest is_met since begun_at that is known; NULL = none is"),
        *_of_time("window", "the window"),
        ("window_unknown_ms", LONG, "time in the window in which neither is known"),
        ("attainment", DoubleType(), "share of the known time in the window in which it was met; NULL = none is known"),
        (
            "budget_left",
            DoubleType(),
            (
                "share of the error budget of a whole window that is left; negative = more was used than there is; "
                "NULL = nothing is known of the window"
            ),
        ),
        *_of_time("hour", "the last hour"),
        (
            "burn_rate_1h",
            DoubleType(),
            (
                "how fast the error budget was used in the last hour; 1 = the budget lasts exactly for the window; "
                "NULL = begun_at is too new"
            ),
        ),
        *_of_time("six_hours", "the last six hours", "begin"),
        ("burn_rate_6h", DoubleType(), "the same for the last six hours"),
    ),
    key=("cluster", "snapshot_id", "slo", "group_id"),
    partitioned_by=("cluster", "snapshot_date"),
)
