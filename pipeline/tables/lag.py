"""Lag: in records, bytes and time, at each snapshot and summed up."""

from pyspark.sql.types import ArrayType, DecimalType, DoubleType, StructField, StructType

from pipeline.tables.columns import (
    BINARY,
    CLUSTER,
    DATE,
    GROUP,
    INT,
    LONG,
    PARTITION,
    SNAPSHOT,
    STRING,
    TIMESTAMP,
    TOPIC,
    TOPIC_ID,
    Table,
    schema,
)

POINTS = ArrayType(StructType([StructField(name, LONG) for name in ("offset", "position_bytes", "timestamp_ms")]))

LOG_INDEX = Table(
    "log_index",
    "The rulers: for each partition, how many bytes lie before an offset and when it was written.",
    schema(
        CLUSTER,
        TOPIC,
        TOPIC_ID,
        PARTITION,
        ("through_snapshot_id", LONG, "the newest snapshot that the points include"),
        ("seen_at", TIMESTAMP, "when the partition was last seen"),
        ("points", POINTS, "for some offsets: the bytes of the log before it, and their greatest timestamp, or NULL"),
        ("future_timestamps", LONG, "number of ignored timestamps that were in the future"),
        ("restarts", LONG, "how often the points started again (topic recreated, truncated or compacted)"),
        ("ruler", BINARY, "the points with their errors, in laglake's own format"),
    ),
    key=("cluster", "topic", "partition"),
    partitioned_by=("cluster",),
)

OFFSET_STATUSES = (
    *("deleted_unread", "truncated", "beyond_end", "recreated", "no_watermark"),
    *("deleted_uncommitted", "no_commit", "ok"),
)
"""`lag.offset_status`, the worst first."""

DATA_LOSS = OFFSET_STATUSES[0]

UNKNOWN_OFFSET = "unknown"
"""Stands for an offset_status of NULL where statuses are counted."""

LAG = Table(
    "lag",
    "The ladder of each group and partition at each snapshot, and every lag on it. An unknown value is NULL.",
    schema(
        *SNAPSHOT,
        ("captured_at", TIMESTAMP, "when the high watermark of this row was read"),
        ("committed_captured_at", TIMESTAMP, "when the committed offset was read"),
        GROUP,
        TOPIC,
        TOPIC_ID,
        ("committed_topic_id", STRING, "topic id under which this committed offset was first seen"),
        PARTITION,
        ("leader", INT, "broker id of the leader"),
        (
            "verified_epoch",
            INT,
            "leader epoch stored with the commit, if a snapshot has seen that this epoch reaches the commit",
        ),
        ("group_state", STRING, "the group's state"),
        ("group_type", STRING, "classic | consumer | share | streams"),
        ("member_id", STRING, "member that the partition is assigned to"),
        ("client_id", STRING, "its client.id"),
        ("host", STRING, "its address"),
        ("instance", STRING, "process that reports the partition: its endpoint, file or address; NULL until observed"),
        ("log_start_offset", LONG, "rung: first offset of the log"),
        ("committed_offset", LONG, "rung: committed"),
        ("consumed_offset", LONG, "rung: handed to the application; NULL until observed"),
        ("fetched_offset", LONG, "rung: fetched by the client; NULL until observed"),
        ("last_stable_offset", LONG, "rung: end of what a read_committed reader can read"),
        ("high_watermark", LONG, "rung: end of what is replicated"),
        ("log_end_offset", LONG, "rung: end of the leader's log"),
        ("consumer_lag", LONG, "committed → high_watermark; 0 if the commit is past a high watermark read just before"),
        ("consumer_lag_error", LONG, "the true consumer_lag is larger by at most this; NULL = not known"),
        (
            "unread_markers",
            LONG,
            (
                "how many offsets of consumer_lag, from log start on, are transaction markers, which no reader gets; "
                "NULL = not known: only log_dirs shows it, and only within 1 MiB of the log's end"
            ),
        ),
        ("consumer_lag_stable", LONG, "committed → last_stable_offset"),
        ("fetcher_lag", LONG, "fetched → high_watermark"),
        ("divergence", LONG, "committed → fetched"),
        ("buffered", LONG, "consumed → fetched"),
        ("uncommitted", LONG, "committed → consumed"),
        ("transaction_lag", LONG, "last_stable_offset → high_watermark; 0 if no transaction was open"),
        ("transaction_lag_error", LONG, "the true transaction_lag is larger by at most this"),
        ("replication_lag", LONG, "high_watermark → log_end_offset; 0 if all was replicated a moment later"),
        ("replication_lag_error", LONG, "the true replication_lag is larger by at most this"),
        ("stale_lag", LONG, "the part of the lag that the client's own lag metric does not show"),
        ("headroom", LONG, "log_start_offset → committed; negative = records after the commit were deleted"),
        ("consumer_lag_bytes", LONG, "consumer_lag in bytes, for the records that still exist"),
        ("consumer_lag_ms", LONG, "consumer_lag in record time, for the records that still exist"),
        (
            "consumer_age_ms",
            LONG,
            "age, at captured_at, of the first existing record that is not committed; 0 = there is none",
        ),
        ("fetcher_lag_bytes", LONG, "fetcher_lag in bytes"),
        ("fetcher_lag_ms", LONG, "fetcher_lag in record time"),
        ("buffered_bytes", LONG, "buffered in bytes"),
        ("uncommitted_bytes", LONG, "uncommitted in bytes"),
        ("headroom_bytes", LONG, "headroom in bytes"),
        ("headroom_ms", LONG, "headroom in record time"),
        ("kip532_bytes", LONG, "KIP-532 byte lag, to the log end"),
        ("kip532_ms", LONG, "KIP-532 time lag, to the log end"),
        ("kip532_from", STRING, "the rung that these two count from: fetched | committed"),
        ("bytes_method", STRING, "how bytes were found: exact | interpolated | extrapolated | local_only"),
        ("bytes_error", LONG, "stated error of consumer_lag_bytes"),
        (
            "high_watermark_bytes",
            LONG,
            (
                "position of high_watermark in bytes, counted from where the partition's ruler begins, so that its "
                "growth is what was written; NULL if not known, or if the log is compacted"
            ),
        ),
        (
            "high_watermark_error_bytes",
            LONG,
            "error of high_watermark_bytes from growth that was estimated; between two snapshots, its growth counts",
        ),
        ("time_method", STRING, "how times were found: exact | interpolated | arrival"),
        ("time_error_ms", LONG, "stated error of consumer_lag_ms"),
        (
            "reuse_bytes",
            LONG,
            "bytes that the leader's broker has written since the reader's next record (kip532_from)",
        ),
        ("reuse_error_bytes", LONG, "stated error of reuse_bytes"),
        ("reuse_method", STRING, "how reuse_bytes was found: interpolated | at_least"),
        ("committed_at", TIMESTAMP, "when the offset was committed; NULL from OffsetFetch"),
        (
            "offset_status",
            STRING,
            (
                "no_watermark | no_commit | recreated | beyond_end | truncated | deleted_unread | "
                "deleted_uncommitted | ok; NULL if the commit is unknown"
            ),
        ),
        ("error", STRING, "why the watermark or the commit is unknown, or NULL"),
    ),
    key=("cluster", "snapshot_id", "group_id", "topic", "partition"),
    partitioned_by=("cluster", "snapshot_date"),
)

LAG_HISTOGRAMS = Table(
    "lag_histograms",
    "Histograms of columns of `lag` in OpenTelemetry's exponential buckets, by snapshot, hour and day.",
    schema(
        CLUSTER,
        ("snapshot_date", DATE, "UTC date of window_start"),
        ("window_start", TIMESTAMP, "the snapshot's instant, or the beginning of the window"),
        ("window_ms", LONG, "length of the window; 0 = one snapshot"),
        ("measure", STRING, "the column of lag whose values are counted"),
        ("scope", STRING, "cluster | broker | topic | group"),
        ("scope_value", STRING, "the cluster's name, the leader's broker id, the topic or the group"),
        ("scale", INT, "2^scale buckets for each power of two: always 3"),
        ("zero_count", LONG, "values that are 0"),
        ("negative_count", LONG, "values below 0; no other column here includes them"),
        ("null_count", LONG, "rows without a value; no other column here includes them"),
        ("bucket_offset", LONG, "bucket i of the first count: (2^(i/8), 2^((i+1)/8)]; NULL if no value is above 0"),
        ("bucket_counts", ArrayType(LONG), "values in each bucket, from the first to the last that is not empty"),
        ("count", LONG, "values that are not below 0: zero_count and all bucket_counts"),
        # Exact, so that merging in any order gives the same; bigint would overflow with a few million values.
        ("sum", DecimalType(38, 0), "sum of the values that are counted"),
        ("min", LONG, "smallest value that is counted, or NULL"),
        ("max", LONG, "greatest value that is counted, or NULL"),
    ),
    key=("cluster", "window_start", "window_ms", "measure", "scope", "scope_value"),
    partitioned_by=("cluster", "snapshot_date"),
)

CLIENT_DIVERGENCE = Table(
    "client_divergence",
    "Each client process at each snapshot: its own lag gauge, its true lag, and the verdict on the gauge.",
    schema(
        *SNAPSHOT,
        ("captured_at", TIMESTAMP, "when the watermarks were read"),
        ("group_id", STRING, "the client's group; NULL = not known, or ambiguous"),
        ("client_id", STRING, "client.id"),
        ("instance", STRING, "process with that client.id: its endpoint, file or address"),
        ("max_lag", LONG, "the client's own gauge: MaxLag, records-lag-max, or the largest lag it reports"),
        ("max_fetcher_lag", LONG, "largest fetcher_lag of its partitions"),
        (
            "sum_fetcher_lag",
            LONG,
            "sum of fetcher_lag; NULL if one is not known, like all sums here; a negative lag counts as 0",
        ),
        ("max_consumer_lag", LONG, "largest consumer_lag"),
        ("sum_consumer_lag", LONG, "sum of consumer_lag"),
        ("max_divergence", LONG, "largest divergence"),
        ("sum_divergence", LONG, "sum of divergence"),
        ("hidden_lag", LONG, "how far the gauge is below the largest lag of the application"),
        ("verdict", STRING, "truthful | blind | stale; NULL = not known"),
        ("since", TIMESTAMP, "when the current verdict began"),
        ("record_bytes", LONG, "mean record size in the client's topic with the smallest records"),
        ("queue_records", LONG, "records that a full queue of an old consumer's thread hides from MaxLag"),
        ("buffered_bytes", LONG, "bytes fetched and not yet handed to the application"),
        ("buffer_bound_bytes", LONG, "the most that the client's settings let it buffer"),
        ("heap_share", DoubleType(), "buffer_bound_bytes as a share of the client's heap, if heap_bytes is given"),
    ),
    key=("cluster", "snapshot_id", "group_id", "client_id", "instance"),
    partitioned_by=("cluster", "snapshot_date"),
)
