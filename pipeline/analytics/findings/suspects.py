"""The readers that may have a problem: a row for each kind of problem that holds for a reader in a snapshot.

An expression here is SQL text for DuckDB. Its columns are those of a row of `lag` and of the reader's status; those of
the partition's settings; `start_then` and `past`, what an earlier snapshot has: see `suspects_in_bucket`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql.types import DoubleType, StructField, StructType

from pipeline.analytics.arrow_series import compared_snapshots
from pipeline.analytics.findings.data_loss import IS_WRITTEN, RETENTION, STATE, TRANSACTION, time_left
from pipeline.analytics.findings.expiry import commit_expires_in_ms
from pipeline.analytics.findings.identity import OF_A_TOPIC
from pipeline.analytics.findings.reader_finders import READER_FINDERS
from pipeline.analytics.keys import PARTITION, PARTITION_AT, READER, READER_AT, SNAPSHOT, TOPIC_PARTITION
from pipeline.analytics.lag.ladder import HAS_UNREAD
from pipeline.analytics.series import read_ms_sql
from pipeline.analytics.status.rules import NOT_COMMITTED, OK
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql, struct_sql
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, bucketed
from pipeline.config.status import StatusConfig
from pipeline.tables import LAG, PARTITION_STATUS, WATERMARKS
from pipeline.tables.columns import LONG, STRING

_OF_LAG = (
    *(*READER_AT, "captured_at", "committed_captured_at", "topic_id", "group_type", "member_id", "client_id", "host"),
    *("offset_status", "committed_offset", "consumed_offset", "log_start_offset", "high_watermark", "unread_markers"),
    *("consumer_lag", "consumer_lag_error", "consumer_lag_bytes", "bytes_error", "consumer_age_ms", "time_method"),
)
_OF_STATUS = ("status", "reason", "since", "has_members", "members_seen_at", "commit_since")
_OF_PARTITION = (*RETENTION, "offsets_retention_ms", "max_timestamp_ms", *TRANSACTION)
SUSPECT_PARTS = {
    "lag": LAG.some(_OF_LAG),
    "statuses": PARTITION_STATUS.some((*READER_AT, *_OF_STATUS)),
    "watermarks": WATERMARKS.some((*PARTITION_AT, *_OF_PARTITION)),
    "earlier": LAG.some((*READER_AT, *STATE, "captured_at", "committed_captured_at")),
}
"""What suspects are found from."""
_KEPT = (
    *(*READER_AT, "captured_at", "client_id", "host", "offset_status", "committed_offset", "consumed_offset"),
    *("log_start_offset", "high_watermark", "consumer_lag", "consumer_lag_bytes", "bytes_error", "consumer_age_ms"),
)
SUSPECTS = StructType(
    [
        *LAG.some(_KEPT),
        *PARTITION_STATUS.some(("status", "reason", "since", "members_seen_at", "commit_since")),
        *WATERMARKS.some(("offsets_retention_ms", *TRANSACTION)),
        StructField("deleted_in_ms", LONG),
        StructField("expires_in_ms", LONG),
        StructField("records_per_s", DoubleType()),
        StructField("kind", STRING),
        StructField("of_group", STRING),
        StructField("of_topic", STRING),
        StructField("subject", STRING),
    ]
)
"""A reader with a kind of problem. The problem is that of a group (`of_group`), or of a topic if that is its cause.

`subject` is the name of either.
"""


def find_suspects(
    parts: Mapping[str, Rows], before: Mapping[int, int], settings: StatusConfig, buckets: int | None = None
) -> Rows:
    """The rows of SUSPECTS from rows of the tables that SUSPECT_PARTS names; see `suspects_in_bucket`."""
    compute = partial(suspects_in_bucket, before=dict(before), settings=settings)
    return bucketed(parts, SUSPECT_PARTS, TOPIC_PARTITION, compute, SUSPECTS, buckets)


def suspects_in_bucket(bucket: Bucket, before: Mapping[int, int], settings: StatusConfig) -> pa.Table:
    """The rows of SUSPECTS for the readers of some partitions.

    The rows of SUSPECT_PARTS are: `lag`, `statuses` and `watermarks`, those of the snapshots that are judged;
    `earlier`, rows of `lag` of earlier snapshots. `before` maps a snapshot to the one with which it is compared: it is
    among `earlier`, or itself judged. More columns do no harm.
    """
    names = names_sql(SUSPECTS.names)
    kinds = ", ".join(f"CASE WHEN {kind.holds(settings)} THEN '{name}' END" for name, kind in READER_FINDERS.items())
    times = time_left(settings.data_loss_within_ms)
    times["expires_in_ms"] = commit_expires_in_ms(settings.data_loss_within_ms)
    is_of_topic = f"kind IN {(*OF_A_TOPIC,)}"
    needed = {name: bucket[name].select(schema.names) for name, schema in SUSPECT_PARTS.items()}
    with arrow_queries({**needed, "before": compared_snapshots(before)}) as queries:
        rows = queries.rows(f"""
            WITH rows AS ({_SUSPECTS}),
            timed AS (SELECT *, {columns_sql(times)} FROM rows),
            of_kinds AS (SELECT *, unnest([{kinds}]) AS kind FROM timed)
            SELECT {names} FROM (
                SELECT *, CASE WHEN NOT {is_of_topic} THEN group_id END AS of_group,
                    CASE WHEN {is_of_topic} THEN topic END AS of_topic, coalesce(of_group, of_topic) AS subject
                FROM of_kinds WHERE kind IS NOT NULL
            )
        """)
    return rows.cast(arrow_schema(SUSPECTS))


_IS_WELL = f"status IN {(OK, NOT_COMMITTED)} AND offset_status IN ('ok', 'no_commit')"
_HAS_READ_ALL = f"offset_status IS NOT DISTINCT FROM 'no_commit' OR NOT ({HAS_UNREAD})"
_NEVER_COMMITS = f"offset_status = 'no_commit' AND member_id IS NOT NULL AND {IS_WRITTEN}"
_HAS_MOVED = "coalesce(log_start_offset > start_then, false)"
_READ_AT = {"ends_ms": read_ms_sql(), "commits_ms": read_ms_sql("committed_captured_at")}
_STATES = f"""
    SELECT {names_sql(READER)}, snapshot_id AS then_id, {struct_sql({name: name for name in STATE} | _READ_AT)} AS past
    FROM (
        SELECT {names_sql(SUSPECT_PARTS["earlier"].names)} FROM earlier
        UNION ALL
        SELECT {names_sql(SUSPECT_PARTS["earlier"].names)} FROM lag WHERE snapshot_id IN (SELECT then_id FROM before)
    )
"""
_STARTS = f"""
    SELECT {names_sql(PARTITION)}, then_id, min(past['log_start_offset']) AS start_then FROM states GROUP BY ALL
"""
_SUSPECTS = f"""
    WITH states AS ({_STATES}), starts AS ({_STARTS})
    SELECT lag.*, {columns_sql(_READ_AT)}, {names_sql(_OF_STATUS)}, {names_sql(_OF_PARTITION)}, past
    FROM lag LEFT JOIN statuses USING ({names_sql(READER_AT)})
    LEFT JOIN before USING ({names_sql(SNAPSHOT[1:])})
    LEFT JOIN starts USING ({names_sql(PARTITION)}, then_id)
    LEFT JOIN watermarks USING ({names_sql(PARTITION_AT)})
    LEFT JOIN states USING ({names_sql(READER)}, then_id)
    WHERE topic IS NOT NULL
    AND NOT coalesce({_IS_WELL} AND NOT ({_NEVER_COMMITS})
        AND ({_HAS_READ_ALL} OR (has_members AND NOT {_HAS_MOVED})), false)
"""
"""The query for the readers that may have a problem. In a large cluster these are few, so that the rest is less work.

A reader that keeps up only has one if nothing reads on, or if what it has not read may be deleted soon, because the log
start has moved; one without a commit, if a member has its partition and the log grows.
"""
