"""Every Delta table: its columns, key, partitioning and schema version.

The reader, the writer, the quality gate, the report and the tests share these constants; no schema is written anywhere
else. Columns end with their unit (`_ms` and `_bytes` are bigint), offsets are bigint, instants are UTC timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SCHEMA_VERSION = 12
"""Raised whenever a table, or a column of one, is added or renamed. A newer lake is refused, an older one upgraded."""

INT, LONG, STRING, BINARY, BOOLEAN = IntegerType(), LongType(), StringType(), BinaryType(), BooleanType()
DATE, TIMESTAMP = DateType(), TimestampType()

Column = tuple[str, DataType, str]


def _schema(*columns: Column) -> StructType:
    return StructType([StructField(name, type_, True, {"comment": comment}) for name, type_, comment in columns])


SNAPSHOT_AT = StructField("snapshot_at", TIMESTAMP, True, {"comment": "snapshot_id as a timestamp, for queries"})
"""Written with each row that has a `snapshot_id`."""


@dataclass(frozen=True)
class Table:
    """One Delta table. `about` says what it holds; `key` names what is unique among the rows without an error.

    `schema` is what laglake computes and reads. Where it has `snapshot_id`, the table has SNAPSHOT_AT as well.
    `former_name` is what the table was called in an earlier schema version. `series` names the columns whose rows
    belong together over time, where the key does not say so.
    """

    name: str
    about: str
    schema: StructType
    key: tuple[str, ...]
    partitioned_by: tuple[str, ...]
    former_name: str | None = None
    series: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The column names, in the order of the table."""
        return self.schema.names

    @property
    def stored(self) -> StructType:
        """The columns as people find them: `schema`, and the snapshot's instant as a timestamp."""
        return StructType([*self.schema, SNAPSHOT_AT]) if "snapshot_id" in self.columns else self.schema

    @property
    def sort_order(self) -> tuple[str, ...]:
        """How the job `maintain` sorts the rows of a past day: each series by itself, in the order of time.

        Neighbouring rows are then almost equal, so that they take little storage, and the rows of one group lie
        together. Partitions come first, because Spark would otherwise sort once more by them.
        """
        series = self.series or tuple(name for name in self.key if name not in (*self.partitioned_by, *_TIMES))
        return (*self.partitioned_by, *series, *(name for name in _TIMES if name in self.columns))

    @property
    def observed(self) -> StructType:
        """The columns that a data source observes: all but those that name the snapshot."""
        return StructType([f for f in self.schema.fields if f.name not in _SNAPSHOT_NAMES])


_CLUSTER: Column = ("cluster", STRING, "name of the cluster in the configuration")
_SNAPSHOT: tuple[Column, ...] = (
    _CLUSTER,
    ("snapshot_id", LONG, "the scheduled instant, epoch ms"),
    ("snapshot_date", DATE, "UTC date of snapshot_id"),
)
_TIMES = ("snapshot_id", "window_start")
_SNAPSHOT_NAMES = {name for name, _, _ in _SNAPSHOT}
_CAPTURED: Column = ("captured_at", TIMESTAMP, "when the broker's answer arrived")
_ERROR: Column = ("error", STRING, "Kafka's name of the error that kept the row from being read, or NULL")
_GROUP: Column = ("group_id", STRING, "consumer group")
_TOPIC: Column = ("topic", STRING, "topic")
_TOPIC_ID: Column = ("topic_id", STRING, "Kafka's topic id, base64url; it changes when a topic is recreated")
_PARTITION: Column = ("partition", INT, "partition")

_ERRORS = ArrayType(
    StructType(
        [
            StructField("what", STRING),
            StructField("where", STRING),
            StructField("error", STRING),
            StructField("count", LONG),
        ]
    )
)

SNAPSHOTS = Table(
    "snapshots",
    "The ledger: one row for each snapshot of a cluster, with how it ended, what was read and what was not. Of a "
    "snapshot with another status than `complete` or `partial`, other tables may have only some rows: join them with "
    "this one.",
    _schema(
        *_SNAPSHOT,
        ("run_id", STRING, "the run that holds or held the claim"),
        ("status", STRING, "running | complete | partial | failed"),
        ("started_at", TIMESTAMP, "when the snapshot was claimed"),
        ("finished_at", TIMESTAMP, "when the status became final"),
        ("schedule_ms", LONG, "the schedule to which snapshot_id was rounded down"),
        ("groups", LONG, "groups read without error"),
        ("partitions", LONG, "partitions read without error"),
        ("rows", MapType(STRING, LONG), "number of rows in each bronze table"),
        ("expected", MapType(STRING, LONG), "numbers of brokers, groups and partitions to read"),
        ("errors", _ERRORS, "what could not be read, where, why, how often"),
        (
            "warnings",
            MapType(STRING, LONG),
            (
                "counts of oddities, such as captured_in_future (a clock is ahead) and metadata_missing (commits whose "
                "metadata is not known), and of missed_instants just before"
            ),
        ),
        ("requests", MapType(STRING, LONG), "requests sent, by broker id"),
        ("capabilities", MapType(STRING, STRING), "highest version of each API, NULL where refused or lacking"),
        (
            "cluster_id",
            STRING,
            (
                "Kafka's own id of the cluster, as its brokers gave it; NULL if the snapshot is running or could not "
                "be taken (a configured cluster_id is only what is expected), or before Kafka 0.10.1"
            ),
        ),
    ),
    key=("cluster", "snapshot_id"),
    partitioned_by=("cluster",),
)

READABLE = ("complete", "partial")
"""The statuses of a snapshot whose rows readers may see."""

COMPUTED = Table(
    "computed",
    "Marks the snapshots whose lag, with all derived tables, was computed, can never be computed, or was removed.",
    _schema(
        _CLUSTER,
        (
            "job",
            STRING,
            "lag = computed | lag passed over = can never be computed | lag removed = removed by retention",
        ),
        *_SNAPSHOT[1:],
        ("run_id", STRING, "the snapshot run that was computed"),
        ("computed_at", TIMESTAMP, "when it was marked"),
    ),
    key=("cluster", "job", "snapshot_id"),
    partitioned_by=("cluster",),
)

COMMITTED_OFFSETS = Table(
    "committed_offsets",
    "The committed offsets of each group, as its coordinator reports them.",
    _schema(
        *_SNAPSHOT,
        _CAPTURED,
        _GROUP,
        _TOPIC,
        _PARTITION,
        ("committed_offset", LONG, "next offset that the group would read after a restart; NULL = no commit"),
        (
            "earlier_offset",
            LONG,
            "the commit just before the log's ends were read; committed_offset is the one just after",
        ),
        ("high_watermark", LONG, "high watermark, read between these two commits; NULL = not read with the commit"),
        ("last_stable_offset", LONG, "last stable offset, read after high_watermark, and at most that"),
        ("high_watermark_after", LONG, "the high watermark once more, read after last_stable_offset"),
        ("log_start_offset", LONG, "first offset of the log, read just before high_watermark"),
        ("ends_at", TIMESTAMP, "when high_watermark and last_stable_offset were read"),
        ("leader_epoch", INT, "leader epoch stored with the commit, or NULL"),
        (
            "epoch_end_offset",
            LONG,
            "where leader_epoch ends in the log (OffsetForLeaderEpoch, KIP-320); NULL = it has not ended, or not known",
        ),
        (
            "metadata",
            STRING,
            (
                "what the application stored with the commit, empty if nothing; NULL if the commit was not read twice, "
                "or if the group has more than 1 MiB in all"
            ),
        ),
        ("committed_at", TIMESTAMP, "when it was committed; NULL from OffsetFetch"),
        ("source", STRING, "offset_fetch | recording"),
        _ERROR,
    ),
    key=("cluster", "snapshot_id", "group_id", "topic", "partition"),
    partitioned_by=("cluster", "snapshot_date"),
)

WATERMARKS = Table(
    "watermarks",
    "Where each partition's log begins and ends, as its leader reports it.",
    _schema(
        *_SNAPSHOT,
        _CAPTURED,
        _TOPIC,
        _TOPIC_ID,
        _PARTITION,
        ("leader", INT, "broker id of the leader, NULL if there is none"),
        ("leader_epoch", INT, "epoch of the leader"),
        ("replicas", ArrayType(INT), "broker ids of the replicas"),
        ("isr", ArrayType(INT), "broker ids in sync"),
        ("log_start_offset", LONG, "ListOffsets EARLIEST"),
        ("local_log_start_offset", LONG, "ListOffsets EARLIEST_LOCAL (KIP-405), NULL where not supported"),
        ("last_stable_offset", LONG, "ListOffsets LATEST, read_committed; read after high_watermark, and at most that"),
        ("high_watermark", LONG, "ListOffsets LATEST, read_uncommitted"),
        ("log_end_offset", LONG, "ListOffsets LATEST with replica_id -2; NULL if the broker does not report it"),
        ("high_watermark_after", LONG, "the high watermark once more, read after log_end_offset"),
        ("max_timestamp_ms", LONG, "newest record timestamp, as the producer wrote it; NULL if the log is empty"),
        ("max_timestamp_offset", LONG, "offset of the record with the newest timestamp (KIP-734)"),
        ("log_bytes", LONG, "local size of the leader's log (DescribeLogDirs)"),
        ("log_bytes_error", LONG, "growth of log_bytes while log_end_offset was read"),
        ("cleanup_policy", STRING, "the topic's cleanup.policy"),
        ("timestamp_type", STRING, "the topic's message.timestamp.type"),
        ("retention_ms", LONG, "the topic's retention.ms; -1 = no limit, NULL = not known"),
        ("retention_bytes", LONG, "the topic's retention.bytes, for each partition; -1 = no limit, NULL = not known"),
        (
            "transaction_producer_id",
            LONG,
            (
                "producer id of the transaction that holds back last_stable_offset: the oldest one that is open "
                "(DescribeProducers, KIP-664); NULL = none, or not known"
            ),
        ),
        ("transaction_start_offset", LONG, "first offset of this transaction"),
        ("transaction_timestamp_ms", LONG, "newest record timestamp of its producer in this partition"),
        _ERROR,
    ),
    key=("cluster", "snapshot_id", "topic", "partition"),
    partitioned_by=("cluster", "snapshot_date"),
)

GROUP_MEMBERS = Table(
    "group_members",
    "The members of each group and their assignments: a row for each assigned partition, for each member without "
    "partitions, and for each group without members.",
    _schema(
        *_SNAPSHOT,
        _CAPTURED,
        _GROUP,
        ("group_type", STRING, "classic | consumer | share | streams"),
        ("state", STRING, "the group's state as Kafka names it"),
        ("protocol", STRING, "protocol type: consumer, connect, …"),
        ("assignor", STRING, "partition assignor in use"),
        ("member_id", STRING, "member; NULL in the row of a group without members"),
        ("instance_id", STRING, "group.instance.id of a static member"),
        ("client_id", STRING, "client.id"),
        ("host", STRING, "address that the member connects from"),
        ("coordinator", INT, "broker id of the group's coordinator"),
        ("group_epoch", INT, "epoch of the group (KIP-848); NULL for classic groups"),
        ("assignment_epoch", INT, "epoch of the target assignment (KIP-848)"),
        ("member_epoch", INT, "epoch of the member (KIP-848); below the group's until it has its new assignment"),
        ("rack", STRING, "rack of the member (KIP-848)"),
        ("subscribed_topics", ArrayType(STRING), "topics that the member subscribes to by name; NULL = not known"),
        ("subscribed_regex", STRING, "regular expression of the member's subscription (KIP-848)"),
        _TOPIC,
        _PARTITION,
        ("is_target", BOOLEAN, "whether the member is to keep the partition (KIP-848); NULL for classic groups"),
        _ERROR,
    ),
    key=("cluster", "snapshot_id", "group_id", "member_id", "topic", "partition"),
    partitioned_by=("cluster", "snapshot_date"),
)

CLIENT_POSITIONS = Table(
    "client_positions",
    "What clients report about themselves: a row for each partition, and one for each client or fetcher as a whole.",
    _schema(
        *_SNAPSHOT,
        ("captured_at", TIMESTAMP, "when it was reported"),
        ("as_of", TIMESTAMP, "when it was last true"),
        ("group_id", STRING, "consumer group, if the source has it; if NULL, it is found when lag is computed"),
        ("client_id", STRING, "client.id"),
        ("host", STRING, "address that the client connects from, if the source has it"),
        ("fetcher", STRING, "broker that is fetched from, or the old consumer's thread; NULL = the whole client"),
        _TOPIC,
        _PARTITION,
        ("fetched_offset", LONG, "next offset to fetch"),
        ("consumed_offset", LONG, "next offset to hand to the application"),
        ("reported_lag", LONG, "the client's own lag metric; in the row of a whole client, the largest"),
        ("reported_lead", LONG, "the client's own distance from log start (KIP-223)"),
        ("reported_end", LONG, "the high watermark that the client knows, if it reports it"),
        ("reported_stable_end", LONG, "the last stable offset that the client knows, if it reports it"),
        ("queue_chunks", LONG, "chunks in the queue of an old consumer's thread (FetchQueueSize)"),
        ("buffered_bytes", LONG, "bytes fetched and not yet handed to the application"),
        ("requests_total", LONG, "fetches answered since the client started"),
        ("bytes_total", LONG, "bytes fetched since the client started"),
        ("is_paused", BOOLEAN, "whether the application has paused the partition, if the client reports it"),
        ("source", STRING, "kafka_client_metrics | librdkafka_statistics | kafka_request_log"),
        ("endpoint", STRING, "where it was reported: a URL or a file, without a password"),
        ("error", STRING, "why an endpoint, file or line could not be read, or NULL"),
    ),
    # Several agents may report one client, so no combination of columns is unique.
    key=(),
    series=("group_id", "client_id", "host", "topic", "partition", "source", "endpoint"),
    partitioned_by=("cluster", "snapshot_date"),
    former_name="fetch_positions",
)

QUARANTINE = Table(
    "quarantine",
    "Rows that failed an expectation, kept as they were and taken out of their table.",
    _schema(
        *_SNAPSHOT,
        ("table", STRING, "the table that the row was meant for"),
        ("expectation", STRING, "the expectation that the row fails"),
        ("row", STRING, "the row, as JSON"),
    ),
    key=(),
    series=("table", "expectation"),
    partitioned_by=("cluster", "snapshot_date"),
)

LOG_SAMPLES = Table(
    "log_samples",
    "Timestamps of offsets, found by look-ups by time.",
    _schema(
        *_SNAPSHOT,
        _TOPIC,
        _TOPIC_ID,
        _PARTITION,
        ("asked_ms", LONG, "the timestamp that was looked up: every record before offset is older"),
        ("offset", LONG, "the first record that is not older; if there is none, the end of the log"),
        ("timestamp_ms", LONG, "its timestamp; NULL if there is no such record"),
        ("position_bytes", LONG, "bytes of the log before it; NULL from list_offsets_by_time"),
        ("source", STRING, "list_offsets_by_time"),
    ),
    key=("cluster", "snapshot_id", "topic", "partition", "asked_ms"),
    partitioned_by=("cluster", "snapshot_date"),
)

POINTS = ArrayType(StructType([StructField(name, LONG) for name in ("offset", "position_bytes", "timestamp_ms")]))

LOG_INDEX = Table(
    "log_index",
    "The rulers: for each partition, how many bytes lie before an offset and when it was written.",
    _schema(
        _CLUSTER,
        _TOPIC,
        _TOPIC_ID,
        _PARTITION,
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

LAG = Table(
    "lag",
    "The ladder of each group and partition at each snapshot, and every lag on it. An unknown value is NULL.",
    _schema(
        *_SNAPSHOT,
        ("captured_at", TIMESTAMP, "when the high watermark of this row was read"),
        ("committed_captured_at", TIMESTAMP, "when the committed offset was read"),
        _GROUP,
        _TOPIC,
        _TOPIC_ID,
        ("committed_topic_id", STRING, "topic id under which this committed offset was first seen"),
        _PARTITION,
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

PARTITION_STATUS = Table(
    "partition_status",
    "The status of each group at each partition, at each snapshot. It also depends on earlier snapshots.",
    _schema(
        *_SNAPSHOT,
        ("captured_at", TIMESTAMP, "when the committed offset was read"),
        _GROUP,
        _TOPIC,
        _PARTITION,
        _STATUS,
        (
            "reason",
            STRING,
            (
                "open_transaction | no_members | transaction_marker | too_few_snapshots; for other "
                "rows with status unknown, the error or offset_status; else NULL"
            ),
        ),
        ("since", TIMESTAMP, "when the status began"),
        (
            "waiting_since",
            TIMESTAMP,
            "first snapshot with this commit and with unread records; NULL = no record is unread",
        ),
        _MEMBERS,
        ("consumer_lag", LONG, "consumer_lag, as in the table lag"),
        ("consumer_age_ms", LONG, "consumer_age_ms, as in the table lag"),
        ("memory", ArrayType(LONG), "what laglake remembers for the next snapshot; for its own use"),
    ),
    key=("cluster", "snapshot_id", "group_id", "topic", "partition"),
    partitioned_by=("cluster", "snapshot_date"),
)

GROUP_STATUS = Table(
    "group_status",
    "Each group at each snapshot: its status, which is that of its worst partition, and its lag in all partitions.",
    _schema(
        *_SNAPSHOT,
        ("captured_at", TIMESTAMP, "when its committed offsets were read: the mean over its partitions"),
        ("ends_at", TIMESTAMP, "when the ends of its logs were read: the mean over its partitions"),
        _GROUP,
        _STATUS,
        ("reason", STRING, "reason of the worst partition, see partition_status"),
        ("since", TIMESTAMP, "when the first of the partitions with this status got it; for ok, the last"),
        ("topic", STRING, "topic of the worst partition: among those with the group's status, the one with most lag"),
        ("partition", INT, "number of the worst partition"),
        ("partitions", LONG, "number of partitions that the group reads"),
        ("statuses", MapType(STRING, LONG), "number of these partitions with each status"),
        ("offset_statuses", MapType(STRING, LONG), "the same for lag.offset_status; unknown stands for NULL"),
        _MEMBERS,
        ("group_state", STRING, "group_state, as in the table lag"),
        ("group_type", STRING, "group_type, as in the table lag"),
        ("owner", STRING, "who owns the group, by [[owners]]; NULL = no rule matches the group without a topic"),
        ("members", LONG, "number of members to which partitions are assigned"),
        ("clients", LONG, "number of their client ids"),
        ("client_id", STRING, "one of these"),
        ("consumer_lag", LONG, "sum of consumer_lag over the partitions where it is known"),
        ("partitions_unknown", LONG, "number of partitions with a commit whose consumer_lag is not known"),
        ("max_consumer_lag", LONG, "the greatest consumer_lag of a partition"),
        ("consumer_lag_stable", LONG, "sum of consumer_lag_stable over the partitions where it is known"),
        ("stable_unknown", LONG, "number of partitions with a commit whose consumer_lag_stable is not known"),
        ("transaction_lag", LONG, "sum of transaction_lag over the partitions where it is known"),
        ("min_headroom", LONG, "the smallest headroom of a partition"),
        ("unread_offsets", LONG, "number of offsets that were deleted before the group had read them; NULL = none"),
        (
            "not_committed_offsets",
            LONG,
            "the most offsets that it may still read where it has no commit; NULL = no such partition, or unknown",
        ),
        ("consumer_lag_bytes", LONG, "sum of consumer_lag_bytes over the partitions where it is known"),
        ("bytes_error", LONG, "stated error of consumer_lag_bytes: the sum"),
        ("bytes_unknown", LONG, "number of partitions whose consumer_lag is known, but not in bytes"),
        ("consumer_lag_ms", LONG, "the greatest consumer_lag_ms of a partition"),
        ("time_error_ms", LONG, "stated error of consumer_lag_ms"),
        ("ms_unknown", LONG, "number of partitions whose consumer_lag is known, but not in time"),
        ("consumer_age_ms", LONG, "age of the oldest record that is not committed"),
        ("age_error_ms", LONG, "stated error of consumer_age_ms"),
        ("age_unknown", LONG, "number of partitions whose consumer_lag is known, but not their consumer_age_ms"),
        ("log_ends", LONG, "sum of high_watermark over all partitions; NULL = one is not known"),
        ("commits", LONG, "sum of committed_offset over all partitions; NULL = one is not known"),
        ("rows_with_error", LONG, "number of rows of lag with an error"),
        ("error", STRING, "one of these errors"),
    ),
    key=("cluster", "snapshot_id", "group_id"),
    partitioned_by=("cluster", "snapshot_date"),
)

_REASON_OF_FORECAST = "not_known | paused | too_little_history | never_at_this_rate | too_uncertain"

FORECASTS = Table(
    "forecasts",
    "How fast each group reads each of its topics at each snapshot, and when it will have caught up. The rows with "
    "topic NULL are about all topics of the group together. A band holds for about nine of ten forecasts.",
    _schema(
        *_SNAPSHOT,
        ("captured_at", TIMESTAMP, "when the committed offsets were read: the mean over the partitions"),
        ("ends_at", TIMESTAMP, "when the ends of the logs were read: the mean over the partitions"),
        _GROUP,
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
        ("memory", ArrayType(LONG), "what laglake remembers for the next snapshot; for its own use"),
    ),
    key=("cluster", "snapshot_id", "group_id", "topic"),
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
    _schema(
        *_SNAPSHOT,
        ("captured_at", TIMESTAMP, "when the group was described; NULL if it has vanished"),
        (
            "earlier_snapshot_id",
            LONG,
            "the snapshot that it was compared with: the newest before it in which this is known, at most ten back",
        ),
        _GROUP,
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
    _schema(
        *_SNAPSHOT,
        ("slo", STRING, "name of the objective in the configuration"),
        _GROUP,
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

LAG_HISTOGRAMS = Table(
    "lag_histograms",
    "Histograms of columns of `lag` in OpenTelemetry's exponential buckets, by snapshot, hour and day.",
    _schema(
        _CLUSTER,
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

ROLLED_UP = (
    *("consumer_lag", "consumer_lag_bytes", "consumer_lag_ms", "consumer_age_ms"),
    *("fetcher_lag", "fetcher_lag_bytes", "headroom"),
)
"""The lags of which `lag_rollup` has the smallest, the greatest and the last value."""
_WITH_STATUS = {field.name: field for field in (*LAG.schema, PARTITION_STATUS.schema["status"])}
ROLLED_UP_ENDS = ("captured_at", "committed_offset", "high_watermark", "offset_status", "status")
"""The columns of which it has the first and the last value."""


def _of_window(which: str, about: str, names: tuple[str, ...]) -> Iterator[Column]:
    """The columns of a window for columns of `lag`: `max_consumer_lag`, for example."""
    return ((f"{which}_{name}", _WITH_STATUS[name].dataType, about.format(name)) for name in names)


LAG_ROLLUP = Table(
    "lag_rollup",
    "Hours and days of those rows that the job `maintain` has removed from `lag`, where `[retention] rollup` is set.",
    _schema(
        _CLUSTER,
        ("snapshot_date", DATE, "UTC date of window_start"),
        ("window_start", TIMESTAMP, "the beginning of the window"),
        ("window_ms", LONG, "length of the window: an hour or a day"),
        _GROUP,
        _TOPIC,
        _PARTITION,
        ("snapshots", LONG, "number of rows of lag in the window"),
        *_of_window("min", "smallest {} in the window; NULL = never known, here and below", ROLLED_UP),
        *_of_window("max", "greatest {} in the window", ROLLED_UP),
        *_of_window("last", "{} at the last snapshot of the window; NULL = not known then", ROLLED_UP),
        *_of_window("first", "{} at the first snapshot of the window", ROLLED_UP_ENDS),
        *_of_window("last", "{} at the last snapshot of the window", ROLLED_UP_ENDS),
    ),
    key=("cluster", "window_start", "window_ms", "group_id", "topic", "partition"),
    partitioned_by=("cluster", "snapshot_date"),
)

CLIENT_DIVERGENCE = Table(
    "client_divergence",
    "Each client process at each snapshot: its own lag gauge, its true lag, and the verdict on the gauge.",
    _schema(
        *_SNAPSHOT,
        ("captured_at", TIMESTAMP, "when the watermarks were read"),
        ("group_id", STRING, "the client's group; NULL = not known, or ambiguous"),
        ("client_id", STRING, "client.id"),
        ("instance", STRING, "process with that client.id: its endpoint, file or address"),
        ("max_lag", LONG, "the client's own gauge: MaxLag, records-lag-max, or the largest lag it reports"),
        ("max_fetcher_lag", LONG, "largest fetcher_lag of its partitions"),
        ("sum_fetcher_lag", LONG, "sum of fetcher_lag; NULL if one is not known, like all sums here"),
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

_FINDING_ID: Column = ("finding_id", STRING, "hash of kind, identity and first_seen")
_KIND: Column = (
    "kind",
    STRING,
    (
        "no_progress | falling_behind | rewound | deleted_unread | data_loss_ahead | open_transaction | "
        "recreated_topic | truncated_log | rebalance_storm | flapping_member | uneven_assignment | idle_member | "
        "under_replicated | clock_ahead | snapshots_missing | unreadable | blocked_connector | slow_consumer | "
        "paused_partition | blind_gauge | too_large_message | buffer_too_large | budget_burn"
    ),
)
_CONCERNED: Column = ("group_id", STRING, "consumer group; NULL = the cause is a topic, or the whole cluster")
_CLIENT: Column = ("client_id", STRING, "client.id; NULL = not the problem of a client")
_INSTANCE: Column = ("instance", STRING, "process with that client.id: its endpoint, file or address")
_CAUSE: Column = ("topic", STRING, "the topic that is the cause; NULL = not a single topic, or not known")
_PROBLEM: tuple[Column, ...] = (
    ("partitions", ArrayType(INT), "affected partitions of the topic"),
    ("severity", STRING, "critical | warning | info"),
    (
        "magnitude",
        DoubleType(),
        "how bad it is compared with others of its kind, see findings.md; for most kinds unread records",
    ),
    ("summary", STRING, "one sentence"),
    ("evidence", STRING, "the observations behind it, as JSON"),
    ("advice", STRING, "what to do"),
)

FINDINGS = Table(
    "findings",
    "What is wrong: one row for each problem, from its beginning to its end. It describes the problem at its "
    "worst moment, `worst_at`; `finding_history` has a row for every snapshot.",
    _schema(
        _FINDING_ID,
        _KIND,
        _CLUSTER,
        _CONCERNED,
        _CLIENT,
        _INSTANCE,
        _CAUSE,
        ("owner", STRING, "who should know, by [[owners]]; NULL if no rule matches"),
        ("first_seen", TIMESTAMP, "the first snapshot with the problem"),
        ("last_seen", TIMESTAMP, "the newest snapshot with the problem"),
        ("resolved_at", TIMESTAMP, "the first snapshot without the problem; NULL = still open"),
        (
            "resolution_confirmed_at",
            TIMESTAMP,
            "the third snapshot without the problem (slow_consumer: the fifth), which confirms resolved_at",
        ),
        ("worst_at", TIMESTAMP, "the snapshot in which it was worst, which the following columns describe"),
        *_PROBLEM,
    ),
    key=("cluster", "finding_id"),
    partitioned_by=("cluster",),
)

FINDING_HISTORY = Table(
    "finding_history",
    "Each finding at each snapshot with the problem, as it was then.",
    _schema(*_SNAPSHOT, _FINDING_ID, _KIND, _CONCERNED, _CLIENT, _INSTANCE, _CAUSE, *_PROBLEM),
    key=("cluster", "snapshot_id", "finding_id"),
    partitioned_by=("cluster", "snapshot_date"),
)

NOTIFICATIONS = Table(
    "notifications",
    "Which findings were sent to which channels. A finding that a channel has never seen has no row here.",
    _schema(
        _CLUSTER,
        _FINDING_ID,
        ("channel", STRING, "name of the channel in the configuration"),
        ("event", STRING, "opened | resolved"),
        (
            "status",
            STRING,
            "sent | failed = the next run tries again | held = silenced, or not severe enough for the channel",
        ),
        ("attempts", INT, "how often it was sent, or tried"),
        ("first_tried_at", TIMESTAMP, "when it was first tried; NULL = not yet"),
        ("last_tried_at", TIMESTAMP, "when it was last tried; NULL = not yet"),
        ("error", STRING, "why it was not sent; NULL = it was sent"),
    ),
    key=("cluster", "finding_id", "channel", "event"),
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
BRONZE = (COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS)
TABLES = (
    *BRONZE,
    CLIENT_POSITIONS,
    LOG_SAMPLES,
    QUARANTINE,
    LOG_INDEX,
    LAG,
    PARTITION_STATUS,
    GROUP_STATUS,
    FORECASTS,
    GROUP_CHANGES,
    SLO,
    LAG_HISTOGRAMS,
    LAG_ROLLUP,
    CLIENT_DIVERGENCE,
    FINDINGS,
    FINDING_HISTORY,
    NOTIFICATIONS,
    COMPUTED,
    SNAPSHOTS,
)
"""Every table, in the order of creation: the ledger last, so that a lake with a ledger has all the others."""
