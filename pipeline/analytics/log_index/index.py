"""The table `log_index`: the ruler of every partition, extended from snapshot to snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.analytics.keys import PARTITION, PARTITION_AT, TOPIC_PARTITION
from pipeline.analytics.log_index.ruler_lookup import READINGS, read_rulers, what_is_known
from pipeline.analytics.log_index.ruler_update import OBSERVATION, SAMPLE, ends_of, listed, rulers_after
from pipeline.common.arrow_sql import (
    ArrowQueries,
    arrow_queries,
    columns_sql,
    epoch_ms_sql,
    names_sql,
    numbered,
    with_values,
)
from pipeline.common.arrow_udf import with_arrow_column
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import DAY_MS
from pipeline.common.rows import Rows, bucketed
from pipeline.tables import LOG_INDEX, LOG_SAMPLES, WATERMARKS
from pipeline.tables.columns import BINARY

FORGOTTEN_MS = 7 * DAY_MS
"""A partition that no snapshot has seen for this long is removed from the index."""
RULER_ROWS = WATERMARKS.some(PARTITION_AT).add("ruler", BINARY)
"""A ruler as of a snapshot."""
INDEX_PARTS = {
    "stored": LOG_INDEX.some((*PARTITION, "topic_id", "ruler")),
    "watermarks": WATERMARKS.some(
        (
            *(*PARTITION_AT, "captured_at", "topic_id", "leader", "log_start_offset", "local_log_start_offset"),
            *("high_watermark", "log_end_offset", "max_timestamp_ms", "max_timestamp_offset"),
            *("log_bytes", "log_bytes_error", "cleanup_policy", "error"),
        )
    ),
    "samples": LOG_SAMPLES.some((*PARTITION_AT, "asked_ms", "offset", "timestamp_ms")),
    "late": WATERMARKS.some((*PARTITION_AT, "topic_id")),
}
"""What rulers are made of: those in the index, and what later snapshots have seen. `late` are watermarks of snapshots
that the index already includes; there may be no such part."""
KNOWN_END = "coalesce(log_end_offset, high_watermark)"
"""The log end; the high watermark if the broker does not report the log end, like Redpanda."""
_IS_SEEN = f"error IS NULL AND captured_at IS NOT NULL AND log_start_offset IS NOT NULL AND {KNOWN_END} IS NOT NULL"
_OBSERVATION = {
    "captured_ms": epoch_ms_sql("captured_at"),
    "log_end_offset": KNOWN_END,
    "is_compacted": "coalesce(contains(cleanup_policy, 'compact'), false)",
}
_PARTITIONS = f"""
    WITH named AS (
        SELECT {names_sql(PARTITION)} FROM stored UNION SELECT {names_sql(PARTITION)} FROM watermarks WHERE {_IS_SEEN}
    )
    SELECT row_number() OVER () - 1 AS number, named.*, ruler
    FROM named LEFT JOIN stored USING ({names_sql(PARTITION)}) ORDER BY number
"""


def rulers(log_index: DataFrame, watermarks: DataFrame, log_samples: DataFrame, asked_from: int) -> DataFrame:
    """The ruler as of each snapshot since `asked_from`: PARTITION, snapshot_id, ruler.

    `log_index` are the rulers so far; `watermarks` and `log_samples` are what later snapshots have seen. A snapshot
    that could not read a partition has no row for it. The newest snapshot that saw a partition always has a row, even
    if it is older than `asked_from`.
    """
    seen = {"stored": Rows(log_index), "watermarks": Rows(watermarks), "samples": Rows(log_samples)}
    return rulers_of(seen, asked_from).frame(watermarks.sparkSession, RULER_ROWS)


def rulers_of(seen: Mapping[str, Rows], asked_from: int, buckets: int | None = None) -> Rows:
    """The rows of `rulers` from rows of the tables that INDEX_PARTS names.

    Those of the part `late` are watermarks of snapshots that the index already includes: see `known_rulers`.
    """
    compute = partial(rulers_in_bucket, asked_from=asked_from)
    return bucketed(seen, INDEX_PARTS, TOPIC_PARTITION, compute, RULER_ROWS, buckets)


def index_rows(
    log_index: DataFrame, watermarks: DataFrame, log_samples: DataFrame, through_snapshot_id: int
) -> DataFrame:
    """The rows of LOG_INDEX after a snapshot, including partitions last seen less than FORGOTTEN_MS before."""
    seen = {"stored": Rows(log_index), "watermarks": Rows(watermarks), "samples": Rows(log_samples)}
    return index_after(seen, through_snapshot_id).frame(watermarks.sparkSession, LOG_INDEX.schema)


def index_after(seen: Mapping[str, Rows], through_snapshot_id: int, buckets: int | None = None) -> Rows:
    """The rows of `index_rows` from rows of the tables that INDEX_PARTS names."""
    compute = partial(_index_in_bucket, through_snapshot_id=through_snapshot_id)
    return bucketed(seen, INDEX_PARTS, TOPIC_PARTITION, compute, LOG_INDEX.schema, buckets)


def rulers_in_bucket(bucket: Bucket, asked_from: int) -> pa.Table:
    """The rows of `rulers` for some partitions, from rows of INDEX_PARTS."""
    if not len(bucket["watermarks"]):  # a late snapshot has no tail, and the rulers in the index need not be decoded
        return _known_in_bucket(bucket)
    with arrow_queries(_without_rulers(bucket)) as queries:
        partitions, series = _carried_on(queries, bucket["stored"]["ruler"], asked_from)
    made = partitions.select(PARTITION).take(np.repeat(np.arange(len(series)), np.diff(ends_of(series))))
    for number, name in enumerate(("snapshot_id", "ruler")):
        made = made.append_column(name, series.flatten().field(number))
    types = arrow_schema(RULER_ROWS)
    made = made.select(types.names).cast(types)
    return pa.concat_tables([made, _known_in_bucket(bucket)])


def _known_in_bucket(bucket: Bucket) -> pa.Table:
    """The rulers for `late` snapshots: see `known_rulers`."""
    types = arrow_schema(RULER_ROWS)
    if "late" not in bucket:
        return types.empty_table()
    with arrow_queries(_without_rulers(bucket)) as queries:
        known = queries.rows(f"""
            SELECT {names_sql(PARTITION_AT)}, ruler FROM late JOIN stored USING ({names_sql(PARTITION)})
            WHERE late.topic_id IS NOT DISTINCT FROM stored.topic_id
        """)
    return with_values(known, "ruler", bucket["stored"]["ruler"]).select(types.names).cast(types)


def _without_rulers(bucket: Bucket) -> Bucket:
    """The bucket with the numbers of the rulers in the index, which are too large for queries."""
    return {**bucket, "stored": numbered(bucket["stored"], "ruler")}


def _index_in_bucket(bucket: Bucket, through_snapshot_id: int) -> pa.Table:
    with arrow_queries(_without_rulers(bucket)) as queries:
        partitions, series = _carried_on(queries, bucket["stored"]["ruler"], through_snapshot_id + 1)
        # Nothing is asked for, so a series has only the ruler as of the newest snapshot, or is empty.
        has_newer = series.value_lengths().to_numpy() > 0
        newer = pa.array(np.cumsum(has_newer) - 1, mask=~has_newer)
        rulers = pc.coalesce(series.flatten().field(1).take(newer), partitions["ruler"].combine_chunks())
        named = partitions.select(PARTITION).append_column("ruler", rulers)
        queries.add(rulers=numbered(named, "ruler").append_column("known", what_is_known(rulers)))
        rows = queries.rows(f"""
            SELECT {names_sql(PARTITION)}, ruler, known.*, {through_snapshot_id}::bigint AS through_snapshot_id,
                make_timestamptz(known.seen_ms * 1000) AS seen_at
            FROM rulers WHERE known.seen_ms >= {through_snapshot_id - FORGOTTEN_MS}
        """)
    return with_values(rows, "ruler", named["ruler"]).select(LOG_INDEX.columns).cast(arrow_schema(LOG_INDEX.schema))


def _carried_on(queries: ArrowQueries, stored: pa.ChunkedArray, asked_from: int) -> tuple[pa.Table, pa.Array]:
    """The partitions, with the `ruler` in the index or NULL; and the RULERS after it of each.

    `stored` are the rulers in the index, in the order of their numbers.
    """
    partitions = with_values(queries.rows(_PARTITIONS), "ruler", stored)
    queries.add(partitions=partitions.drop_columns(["ruler"]))
    observation = _OBSERVATION | {"is_asked": f"snapshot_id >= {asked_from}"}
    observed = queries.rows(f"""
        SELECT number, {columns_sql({name: observation.get(name, f'"{name}"') for name in OBSERVATION.names})}
        FROM watermarks JOIN partitions USING ({names_sql(PARTITION)}) WHERE {_IS_SEEN}
        ORDER BY ALL NULLS FIRST
    """)
    sampled = queries.rows(f"""
        SELECT number, {names_sql(SAMPLE.names)} FROM samples JOIN partitions USING ({names_sql(PARTITION)})
        ORDER BY ALL NULLS FIRST
    """)
    lists = [_listed(rows, of, len(partitions)) for rows, of in ((observed, OBSERVATION), (sampled, SAMPLE))]
    return partitions, rulers_after(partitions["ruler"].combine_chunks(), *lists)


def _listed(rows: pa.Table, of: StructType, count: int) -> pa.Array:
    """The rows as a list for each of the partitions, by their number, in the order of the rows."""
    lengths = np.bincount(rows["number"].to_numpy(), minlength=count)
    values = rows.select(of.names).cast(arrow_schema(of)).to_struct_array().combine_chunks()
    return listed(lengths, values)


def known_rulers(log_index: DataFrame, watermarks: DataFrame) -> DataFrame:
    """The rulers in the index for snapshots that it already includes: PARTITION, snapshot_id, ruler.

    A newer ruler also has the values of an older snapshot's offsets, within its error, unless the topic was recreated
    since. Then the snapshot's row in `watermarks` has another topic id, and there is no ruler.
    """
    rows = {"stored": Rows(log_index), "late": Rows(watermarks)}
    found = bucketed(rows, INDEX_PARTS, TOPIC_PARTITION, _known_in_bucket, RULER_ROWS)
    return found.frame(watermarks.sparkSession, RULER_ROWS)


def with_readings_at(rows: DataFrame, name: str, offsets: Column) -> DataFrame:
    """Adds column `name`: an array of READING, the row's `ruler` read at each of `offsets`."""
    return with_arrow_column(rows, name, read_rulers, READINGS, F.col("ruler"), offsets)
