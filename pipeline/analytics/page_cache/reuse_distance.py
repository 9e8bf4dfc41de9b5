"""Whether readers are served from their broker's page cache: what the broker has written since their next record.

KIP-532 asks how much memory a broker needs for its readers. A record is still cached if everything that the broker
has written since, to all partitions that it leads or follows, fits into its cache. Pages that readers of old records
bring back, and the memory of other programs, are not counted. Bytes are those of the log, so they may be compressed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, IntegerType, LongType, StringType, StructType

from pipeline.analytics.arrow_series import series_numbers
from pipeline.analytics.histograms.quantiles import BROKER_WINDOW, of_brokers, quantiles
from pipeline.analytics.keys import BROKER_AT, PARTITION_AT, SNAPSHOT, TOPIC_PARTITION
from pipeline.analytics.log_index.index import RULER_ROWS
from pipeline.analytics.log_index.ruler_storage import Longs, Rulers
from pipeline.analytics.log_index.ruler_update import listed
from pipeline.analytics.page_cache.write_curves import AGES_MS, Curves, Floats, pieces, summed
from pipeline.common.arrow_sql import arrow_queries, epoch_ms_sql, names_sql, numbered, with_values
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, bucketed
from pipeline.tables import WATERMARKS

ROUNDING = 2.0**-23
"""Twice the relative rounding error of single precision: a value is rounded when it is stored and when it is used."""
SERVED = {
    "cache_50_bytes": 0.5,
    "cache_90_bytes": 0.9,
    "cache_95_bytes": 0.95,
    "cache_99_bytes": 0.99,
    "cache_999_bytes": 0.999,
}
"""The columns of `page_cache`, and which part of the readers a cache of that size serves."""
PARTIAL_CURVES = (
    StructType()
    .add("cluster", StringType())
    .add("snapshot_id", LongType())
    .add("broker", IntegerType())
    .add("known_ms", DoubleType())
)
for _name in Curves._fields:
    PARTIAL_CURVES.add(_name, ArrayType(DoubleType()))
"""The part of a broker's curve that some of its partitions have. Up to the age `known_ms` it includes all of these."""


class BrokerCurves(NamedTuple):
    """A curve for each broker in a snapshot; `numbers` has the numbers of the curves by (cluster, snapshot_id, broker).

    `written` is the bytes that the broker has written since each of AGES_MS, `doubt` their error. Up to the age
    `known_ms` the curve includes all partitions; beyond it, some logs do not reach back so far.
    """

    numbers: Mapping[tuple[str, int, int], int]
    known_ms: Floats
    written: Floats
    doubt: Floats

    def numbers_of(self, readers: pa.Table) -> Longs:
        """The number of the curve for the leader of each reader; -1 if there is none."""
        key = ("cluster", "snapshot_id", "leader")
        _, first, of_reader = np.unique(series_numbers(readers, key), return_index=True, return_inverse=True)
        distinct = readers.select(key).take(first)
        keys = zip(*(distinct[name].to_pylist() for name in key), strict=True)
        return np.array([self.numbers.get(each, -1) for each in keys], np.int64)[of_reader]


def with_reuse(readers: pa.Table, curves: BrokerCurves) -> pa.Table:
    """Adds reuse_bytes, reuse_error_bytes and reuse_method to readers, for the broker that leads the partition.

    A reader has cluster, snapshot_id, leader, is_tail_reader (nothing is unread), reader_age_ms (of the record that it
    reads next) and reader_age_error_ms. reuse_bytes is what the broker has written since that record, 0 if nothing is
    unread, NULL if the record's time is not known. The method is `interpolated`, or `at_least` if the logs of some
    partitions do not reach back so far. The error does not include what was written while the snapshot was taken.
    """
    is_tail = np.asarray(readers["is_tail_reader"].fill_null(False))
    has_age = readers["reader_age_ms"].is_valid().to_numpy()
    age_ms, error_ms = (np.asarray(readers[name].fill_null(0)) for name in ("reader_age_ms", "reader_age_error_ms"))
    # If the record's timestamp is in the future, some clock is wrong by at least that much.
    ahead_ms = np.maximum(-age_ms, 0)
    age_ms, error_ms = age_ms + ahead_ms, error_ms + ahead_ms
    number = curves.numbers_of(readers)
    is_read = has_age & (number >= 0) & ~is_tail
    value, error, known_ms = np.zeros((3, len(readers)))
    of = number[is_read]
    value[is_read], error[is_read] = _read(curves, of, age_ms[is_read], error_ms[is_read])
    known_ms[number >= 0] = curves.known_ms[number[number >= 0]]
    is_within = has_age & (age_ms + error_ms <= np.minimum(known_ms, AGES_MS[-1]))
    is_known = is_tail | is_read
    method = pa.array(np.where(is_tail | is_within, "interpolated", "at_least"), mask=~is_known)
    for name, values in (("reuse_bytes", np.floor(value + 0.5)), ("reuse_error_bytes", np.ceil(error))):
        readers = readers.append_column(name, pa.array(values, pa.float64(), mask=~is_known).cast(pa.int64()))
    return readers.append_column("reuse_method", method)


def _read(curves: BrokerCurves, of: Longs, age_ms: Longs, error_ms: Longs) -> tuple[Floats, Floats]:
    """The bytes that brokers have written since ages, interpolated between two of AGES_MS; and their error."""
    at = _age_index(age_ms)
    begin, end = curves.written[of, at], curves.written[of, at + 1]
    share = np.clip((age_ms - AGES_MS[at]) / (AGES_MS[at + 1] - AGES_MS[at]), 0, 1)
    value = begin + (end - begin) * share
    before, after = _age_index(np.maximum(age_ms - error_ms, 0)), _age_index(age_ms + error_ms) + 1
    least = curves.written[of, before] - curves.doubt[of, before]
    most = curves.written[of, after] + curves.doubt[of, after]
    return value, np.maximum(value - least, most - value)


def _age_index(age_ms: Longs) -> Longs:
    """The index in AGES_MS of the last age that is not greater than `age_ms`; the last but one at most."""
    return np.minimum(np.searchsorted(AGES_MS, age_ms, side="right") - 1, len(AGES_MS) - 2)


def page_cache(histograms: DataFrame) -> DataFrame:
    """How much page cache a broker needs to serve a given part of its readers, by window: from `lag_histograms`.

    The columns are cluster, snapshot_date, window_start, window_ms and broker; readers (each counted once per
    snapshot); tail_readers, those that have read everything; unknown_readers, those whose reuse distance is not known
    or has only a lower bound (`at_least`); and cache_<p>_bytes, the cache that serves p % of the readers, ± 4.33 %.
    A reader with an unknown distance counts as one that no cache serves, so cache_<p>_bytes is NULL if too many are
    unknown.
    """
    readers = F.col("count") + F.col("null_count")
    everyone = F.struct("zero_count", "bucket_offset", "bucket_counts", "min", "max", readers.alias("count"))
    return (
        of_brokers(histograms, "reuse_bytes")
        .withColumn("everyone", everyone)
        .withColumn("quantiles", quantiles(list(SERVED.values()), "everyone"))
        .select(
            *BROKER_WINDOW,
            readers.alias("readers"),
            F.col("zero_count").alias("tail_readers"),
            F.col("null_count").alias("unknown_readers"),
            *(
                F.when(F.ceil(readers * part - 1) < F.col("count"), F.col("quantiles")[number].cast("bigint")).alias(
                    name
                )
                for number, (name, part) in enumerate(SERVED.items())
            ),
        )
    )


PARTITION_CURVES = {
    "watermarks": WATERMARKS.some((*PARTITION_AT, "captured_at", "replicas")),
    "rulers": RULER_ROWS,
}
"""What `partial_curves` is computed from."""


def broker_curves(watermarks: Rows, rulers: Rows, buckets: int | None = None) -> BrokerCurves:
    """The curves of every broker that has a replica, on the driver. The rows have the columns of PARTITION_CURVES.

    Ages count back from the instant at which a ruler last saw its partition. If a partition has no ruler in a snapshot,
    because it could not be read, the curve is only a lower bound. If its ruler is of another snapshot, as happens with
    a late batch, its brokers have no curve.
    """
    parts = {"watermarks": watermarks, "rulers": rulers}
    partial = bucketed(parts, PARTITION_CURVES, TOPIC_PARTITION, partial_curves, PARTIAL_CURVES, buckets)
    return curves_of(partial)


def partial_curves(bucket: Bucket) -> pa.Table:
    """The part of the curves of brokers that some partitions have, as PARTIAL_CURVES."""
    with arrow_queries({**bucket, "rulers": numbered(bucket["rulers"], "ruler")}) as queries:
        rows = queries.rows(f"""
            SELECT {names_sql(SNAPSHOT)}, replicas, {epoch_ms_sql("captured_at")} AS captured_ms, ruler
            FROM watermarks LEFT JOIN rulers USING ({names_sql(PARTITION_AT)}) WHERE len(replicas) > 0
        """)
    if not len(rows):
        return arrow_schema(PARTIAL_CURVES).empty_table()
    rulers = Rulers(with_values(rows, "ruler", bucket["rulers"]["ruler"])["ruler"].combine_chunks())
    made, known_ms = pieces(rulers)
    is_of_now = rulers.seen("captured_ms") == rows["captured_ms"].fill_null(0).to_numpy()
    known_ms = np.where(rulers.is_known, np.where(is_of_now, known_ms, -1.0), 0.0)
    # Partitions with the same replicas are summed into one curve, which is then added to each of these brokers.
    keys = list(zip(*(rows[name].to_pylist() for name in (*SNAPSHOT, "replicas")), strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys((*key[:2], *key[2]) for key in keys))}
    of_ruler = np.array([numbers[*key[:2], *key[2]] for key in keys], np.int64)
    curves = summed(made, of_ruler[made.ruler], len(numbers))
    known = np.full(len(numbers), np.inf)
    np.minimum.at(known, of_ruler, known_ms)
    sets_of: dict[tuple[str, int, int], list[int]] = {}
    for (cluster, snapshot_id, *brokers), number in numbers.items():
        for broker in brokers:
            sets_of.setdefault((cluster, snapshot_id, broker), []).append(number)
    columns = [pa.array([key[place] for key in sets_of]) for place in range(len(BROKER_AT))]
    columns.append(pa.array([known[sets].min() for sets in sets_of.values()]))
    for curve in curves:
        sums = np.array([curve[sets].sum(axis=0) for sets in sets_of.values()])
        columns.append(listed([len(AGES_MS)] * len(sets_of), pa.array(sums.ravel(), pa.float64())))
    return pa.Table.from_arrays(columns, PARTIAL_CURVES.names).cast(arrow_schema(PARTIAL_CURVES))


def summed_curves(parts: pa.Table) -> pa.Table:
    """One row of PARTIAL_CURVES for each broker, from several."""
    of_part = series_numbers(parts, BROKER_AT)
    distinct, first = np.unique(of_part, return_index=True)
    known_ms = np.full(len(distinct), np.inf)
    np.minimum.at(known_ms, of_part, np.asarray(parts["known_ms"]))
    columns = {name: parts[name].take(first) for name in BROKER_AT} | {"known_ms": pa.array(known_ms)}
    for name in Curves._fields:
        sums = _sums(_rows_of_ages(parts[name]), of_part, len(distinct))
        columns[name] = listed([len(AGES_MS)] * len(distinct), pa.array(sums.ravel()))
    return pa.Table.from_pydict(columns).cast(arrow_schema(PARTIAL_CURVES))


def curves_of(parts: Rows) -> BrokerCurves:
    """The curves of brokers from rows of PARTIAL_CURVES, on the driver.

    The values have single precision, so that they need half of the room.
    """
    # Each bucket has a part for each broker: in all, hundreds of times as many rows as there are curves.
    brokers = parts.grouped(BROKER_AT, summed_curves, PARTIAL_CURVES).collected_table()
    written, least, most = (_rows_of_ages(brokers[name]) for name in Curves._fields)
    doubt = np.maximum(most - written, written - least) + ROUNDING * (most + least)
    known_ms = np.asarray(brokers["known_ms"])
    keys = zip(*(brokers[name].to_pylist() for name in BROKER_AT), strict=True)
    numbers = {key: number for number, key in enumerate(keys) if known_ms[number] >= 0}
    return BrokerCurves(numbers, known_ms, written.astype(np.float32), doubt.astype(np.float32))


def _rows_of_ages(lists: pa.ChunkedArray) -> Floats:
    """Lists with a value for each of AGES_MS as rows."""
    return np.asarray(lists.combine_chunks().flatten()).reshape(-1, len(AGES_MS))


def _sums(values: Floats, of_row: Longs, count: int) -> Floats:
    """The sums of the rows with the same number."""
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, of_row, values)
    return sums
