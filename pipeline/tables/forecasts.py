"""Forecasts: how fast groups read, when they will have caught up, and when retention deletes unread records."""

from pyspark.sql.types import DoubleType

from pipeline.tables.columns import BINARY, GROUP, LONG, SNAPSHOT, STRING, TIMESTAMP, Table, schema

_REASON_OF_FORECAST = "not_known | paused | too_little_history | never_at_this_rate | too_uncertain"

_BASES = "now | same_hour = the same hours of earlier weeks; NULL = the group has caught up, or nothing is forecast"

_REASON_OF_DELETION = (
    "not_known | caught_up | no_deletion_seen | paused | too_little_history | never_at_this_rate | too_uncertain"
)

FORECASTS = Table(
    "forecasts",
    "How fast each group reads each of its topics at each snapshot, and when it will have caught up. The rows with "
    "topic NULL are about all topics of the group together. A band holds for about nine of ten forecasts.",
    schema(
        *SNAPSHOT,
        ("captured_at", TIMESTAMP, "when the committed offsets were read: the mean over the partitions"),
        ("ends_at", TIMESTAMP, "when the ends of the logs were read: the mean over the partitions"),
        GROUP,
        ("topic", STRING, "topic; NULL = all topics of the group"),
        ("partitions", LONG, "number of partitions with a commit, which the sums are about"),
        ("log_ends", LONG, "sum of high_watermark; NULL = one is not known, here and for the next two"),
        ("commits", LONG, "sum of committed_offset"),
        ("consumer_lag", LONG, "sum of consumer_lag"),
        ("worst_lag", LONG, "the greatest consumer_lag of a partition"),
        (
            "written_per_s_5m",
            DoubleType(),
            "records written per second in the last 5 to 10 minutes; NULL = no snapshot shows it, here and below",
        ),
        ("written_per_s_1h", DoubleType(), "the same in the last 1 to 2 hours"),
        ("written_per_s_1d", DoubleType(), "the same in the last 1 to 2 days"),
        ("committed_per_s_5m", DoubleType(), "records committed per second in the last 5 to 10 minutes"),
        ("committed_per_s_1h", DoubleType(), "the same in the last 1 to 2 hours"),
        ("committed_per_s_1d", DoubleType(), "the same in the last 1 to 2 days"),
        ("written_bytes_per_s_5m", DoubleType(), "written_per_s_5m in bytes; NULL: see bytes_reason"),
        ("written_bytes_per_s_1h", DoubleType(), "written_per_s_1h in bytes"),
        ("written_bytes_per_s_1d", DoubleType(), "written_per_s_1d in bytes"),
        ("committed_bytes_per_s_5m", DoubleType(), "committed_per_s_5m in bytes"),
        ("committed_bytes_per_s_1h", DoubleType(), "committed_per_s_1h in bytes"),
        ("committed_bytes_per_s_1d", DoubleType(), "committed_per_s_1d in bytes"),
        (
            "bytes_reason",
            STRING,
            "why a rate is known in records but not in bytes: not_known | too_little_history | too_uncertain",
        ),
        ("net_per_s", DoubleType(), "how fast the lag fell, in records per second: the rate of the forecast"),
        ("net_error_per_s", DoubleType(), "error of net_per_s, from how much it varied"),
        ("observed_ms", LONG, "over which time net_per_s was observed, at most 70 minutes"),
        (
            "caught_up_in_ms",
            LONG,
            "after which time no more is unread than is written within the tolerance; 0 = now; NULL: see reason",
        ),
        (
            "caught_up_in_low_ms",
            LONG,
            "the earliest time of the band; also for never_at_this_rate and too_uncertain; NULL = not known, or never",
        ),
        ("caught_up_in_high_ms", LONG, "the latest time of the band; NULL = the group may also never catch up"),
        ("reason", STRING, f"why caught_up_in_ms is NULL: {_REASON_OF_FORECAST}"),
        (
            "basis",
            STRING,
            f"whose traffic the next hours are expected to have: {_BASES}",
        ),
        (
            "deleted_in_ms",
            LONG,
            "after which time retention deletes the oldest unread record; NULL: see deleted_reason",
        ),
        ("deleted_in_low_ms", LONG, "the earliest time of the band; also where there is a reason; NULL = not known"),
        ("deleted_in_high_ms", LONG, "the latest time of the band; NULL = perhaps never"),
        ("deleted_reason", STRING, f"why deleted_in_ms is NULL: {_REASON_OF_DELETION}"),
        ("remembered", BINARY, "what laglake remembers for the next snapshot; for its own use"),
    ),
    key=("cluster", "snapshot_id", "group_id", "topic"),
    partitioned_by=("cluster", "snapshot_date"),
)
