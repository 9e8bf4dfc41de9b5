"""What was observed at each snapshot, as brokers and clients gave it."""

from pyspark.sql.types import ArrayType

from pipeline.tables.columns import (
    BOOLEAN,
    CAPTURED,
    ERROR,
    GROUP,
    INT,
    LONG,
    PARTITION,
    SNAPSHOT,
    STRING,
    TIMESTAMP,
    TOPIC,
    TOPIC_ID,
    Column,
    Table,
    schema,
)

_PARTITION_OR_UNLISTED: Column = (
    "partition",
    INT,
    "partition; in a row without group and topic, the partition of __consumer_offsets whose groups could not be listed",
)

COMMITTED_OFFSETS = Table(
    "committed_offsets",
    "The committed offsets of each group, as its coordinator reports them.",
    schema(
        *SNAPSHOT,
        CAPTURED,
        GROUP,
        TOPIC,
        _PARTITION_OR_UNLISTED,
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
        (
            "ends_at",
            TIMESTAMP,
            "when high_watermark and last_stable_offset were read; without these, when a broker had no such partition",
        ),
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
        ERROR,
    ),
    key=("cluster", "snapshot_id", "group_id", "topic", "partition"),
    partitioned_by=("cluster", "snapshot_date"),
)

WATERMARKS = Table(
    "watermarks",
    "Where each partition's log begins and ends, as its leader reports it.",
    schema(
        *SNAPSHOT,
        CAPTURED,
        TOPIC,
        TOPIC_ID,
        PARTITION,
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
        (
            "max_timestamp_ms",
            LONG,
            "newest record timestamp, as the producer wrote it; NULL = no record has one (0 or less is no time)",
        ),
        (
            "max_timestamp_offset",
            LONG,
            "offset of the record with the newest timestamp (KIP-734), also if that is no time",
        ),
        ("log_bytes", LONG, "local size of the leader's log (DescribeLogDirs)"),
        ("log_bytes_error", LONG, "growth of log_bytes while log_end_offset was read"),
        ("cleanup_policy", STRING, "the topic's cleanup.policy"),
        ("timestamp_type", STRING, "the topic's message.timestamp.type"),
        ("retention_ms", LONG, "the topic's retention.ms; -1 = no limit, NULL = not known"),
        ("retention_bytes", LONG, "the topic's retention.bytes, for each partition; -1 = no limit, NULL = not known"),
        (
            "offsets_retention_ms",
            LONG,
            "the leader's offsets.retention.minutes: how long a group without members keeps commits; NULL = unknown",
        ),
        (
            "transaction_producer_id",
            LONG,
            (
                "producer id of the transaction that holds back last_stable_offset: the oldest one that is open "
                "(DescribeProducers, KIP-664); NULL = none, or not known"
            ),
        ),
        ("transaction_start_offset", LONG, "first offset of this transaction"),
        ("transaction_timestamp_ms", LONG, "newest record timestamp of its producer in this partition; NULL = none"),
        ERROR,
    ),
    key=("cluster", "snapshot_id", "topic", "partition"),
    partitioned_by=("cluster", "snapshot_date"),
)

GROUP_MEMBERS = Table(
    "group_members",
    "The members of each group and their assignments: a row for each assigned partition, for each member without "
    "partitions, and for each group without members.",
    schema(
        *SNAPSHOT,
        CAPTURED,
        GROUP,
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
        TOPIC,
        _PARTITION_OR_UNLISTED,
        ("is_target", BOOLEAN, "whether the member is to keep the partition (KIP-848); NULL for classic groups"),
        ERROR,
    ),
    key=("cluster", "snapshot_id", "group_id", "member_id", "topic", "partition"),
    partitioned_by=("cluster", "snapshot_date"),
)

CLIENT_POSITIONS = Table(
    "client_positions",
    "What clients report about themselves: a row for each partition, and one for each client or fetcher as a whole.",
    schema(
        *SNAPSHOT,
        ("captured_at", TIMESTAMP, "when it was reported"),
        ("as_of", TIMESTAMP, "when it was last true"),
        ("group_id", STRING, "consumer group, if the source has it; if NULL, it is found when lag is computed"),
        ("client_id", STRING, "client.id"),
        ("host", STRING, "address that the client connects from, if the source has it"),
        ("fetcher", STRING, "broker that is fetched from, or the old consumer's thread; NULL = the whole client"),
        TOPIC,
        PARTITION,
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
)

QUARANTINE = Table(
    "quarantine",
    "Rows that failed an expectation, kept as they were and taken out of their table.",
    schema(
        *SNAPSHOT,
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
    schema(
        *SNAPSHOT,
        TOPIC,
        TOPIC_ID,
        PARTITION,
        ("asked_ms", LONG, "the timestamp that was looked up: every record before offset is older"),
        ("offset", LONG, "the first record that is not older; if there is none, the end of the log"),
        ("timestamp_ms", LONG, "its timestamp; NULL if there is no such record"),
        ("position_bytes", LONG, "bytes of the log before it; NULL from list_offsets_by_time"),
        ("source", STRING, "list_offsets_by_time"),
    ),
    key=("cluster", "snapshot_id", "topic", "partition", "asked_ms"),
    partitioned_by=("cluster", "snapshot_date"),
)

BRONZE = (COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS)
