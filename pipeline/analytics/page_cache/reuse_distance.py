"""Whether readers are served from their broker's page cache: what the broker has written since their next record.

KIP-532 asks how much memory a broker needs for its readers. A record is still cached if everything that the broker
has written since, to all partitions that it leads or follows, fits into its cache. Pages that readers of old records
bring back, and the memory of other programs, are not counted. Bytes are those of the log, so they may be compressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pipeline.analytics.histograms.quantiles import BROKER_WINDOW, of_brokers, quantiles
from pipeline.analytics.keys import BROKER_AT, PARTITION_AT, SNAPSHOT
from pipeline.analytics.log_index.ruler_storage import Rulers
from pipeline.analytics.log_index.ruler_update import listed
from pipeline.analytics.page_cache.write_curves import (
    AGES_MS,
    AGES_PER_DOUBLING,
    FIRST_AGE_MS,
    Curves,
    Floats,
    pieces,
    summed,
)

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
_KEY = [
    StructField("cluster", StringType()),
    StructField("snapshot_id", LongType()),
    StructField("broker", IntegerType()),
]
_KNOWN = StructField("known_ms", DoubleType())
_PARTS = StructType([*_KEY, _KNOWN, *(StructField(name, ArrayType(DoubleType())) for name in Curves._fields)])
CURVES = StructType([*_KEY, _KNOWN, *(StructField(name, ArrayType(FloatType())) for name in ("written", "doubt"))])
"""A curve for each broker: `written` is the bytes that it has written since each of AGES_MS, `doubt` their error.

Up to the age `known_ms` the curve includes all partitions; beyond it, some logs do not reach back so far. The values
have single precision, because the join copies a curve into every reader's row. `doubt` includes the rounding.
"""


def with_reuse(readers: DataFrame, rulers: DataFrame, watermarks: DataFrame) -> DataFrame:
    """Adds reuse_bytes, reuse_error_bytes and reuse_method to readers, for the broker that leads the partition.

    A reader has cluster, snapshot_id, leader, is_tail_reader (nothing is unread), reader_age_ms (of the record that it
    reads next) and reader_age_error_ms. reuse_bytes is what the broker has written since that record, 0 if nothing is
    unread, NULL if the record's time is not known. The method is `interpolated`, or `at_least` if the logs of some
    partitions do not reach back so far. `rulers` have PARTITION_AT and ruler, `watermarks` have the replicas; both are
    of the same snapshots. The error does not include what was written while the snapshot was taken.
    """
    curves = F.broadcast(broker_curves(rulers, watermarks).withColumnRenamed("broker", "leader"))
    # If the record's timestamp is in the future, some clock is wrong by at least that much.
    ahead = F.greatest(-F.col("reader_age_ms"), F.lit(0))
    age, error = F.col("reader_age_ms") + ahead, F.coalesce("reader_age_error_ms", F.lit(0)) + ahead
    value = _read(F.col("written"), age)
    before, after = _age_index(F.greatest(age - error, F.lit(0))), _age_index(age + error) + 1
    least = F.get("written", before) - F.get("doubt", before)
    most = F.get("written", after) + F.get("doubt", after)
    is_tail = F.col("is_tail_reader")
    columns = {
        "reuse_bytes": F.when(is_tail, 0).when(age >= 0, F.round(value)),
        "reuse_error_bytes": F.when(is_tail, 0).when(age >= 0, F.ceil(F.greatest(value - least, most - value))),
    }
    reach_ms = F.least("known_ms", F.lit(float(AGES_MS[-1])))
    method = F.when(is_tail | (age + error <= reach_ms), "interpolated").otherwise("at_least")
    return (
        readers.join(curves, [*SNAPSHOT, "leader"], how="left")
        .withColumns({name: column.cast("bigint") for name, column in columns.items()})
        .withColumn("reuse_method", F.when(F.col("reuse_bytes").isNotNull(), method))
        .drop("known_ms", "written", "doubt")
    )


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


def broker_curves(rulers: DataFrame, watermarks: DataFrame) -> DataFrame:
    """The CURVES of every broker that has a replica.

    Ages count back from the instant at which a ruler last saw its partition. If a partition has no ruler in a snapshot,
    because it could not be read, the curve is only a lower bound. If its ruler is of another snapshot, as happens with
    a late batch, its brokers have no curve.
    """
    replicas = watermarks.where(F.size("replicas") > 0).select(
        *PARTITION_AT, "replicas", F.unix_millis("captured_at").alias("captured_ms")
    )
    parts = replicas.join(rulers, PARTITION_AT, how="left")
    parts = parts.select(*SNAPSHOT, "replicas", "captured_ms", "ruler")
    totals = parts.mapInArrow(_partial_curves, _PARTS).groupBy(*BROKER_AT).applyInArrow(_total, CURVES)
    return totals.where(F.col("known_ms") >= 0)


def _partial_curves(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rulers = Rulers(batch["ruler"])
        made, known_ms = pieces(rulers)
        is_there = batch["ruler"].is_valid().to_numpy(zero_copy_only=False)
        is_of_now = rulers.seen("captured_ms") == batch["captured_ms"].to_numpy(zero_copy_only=False)
        known_ms = np.where(is_there, np.where(is_of_now, known_ms, -1.0), 0.0)
        # Partitions with the same replicas are summed into one curve, which is then added to each of these brokers.
        keys = list(zip(*(batch[name].to_pylist() for name in (*SNAPSHOT, "replicas")), strict=True))
        numbers = {key: number for number, key in enumerate(dict.fromkeys((*key[:2], *key[2]) for key in keys))}
        of_ruler = np.array([numbers[*key[:2], *key[2]] for key in keys], np.int64)
        curves = summed(made, of_ruler[made.ruler], len(numbers))
        known = np.full(len(numbers), np.inf)
        np.minimum.at(known, of_ruler, known_ms)
        sets_of: dict[tuple[str, int, int], list[int]] = {}
        for (cluster, snapshot_id, *brokers), number in numbers.items():
            for broker in brokers:
                sets_of.setdefault((cluster, snapshot_id, broker), []).append(number)
        sums = (np.array([curve[sets].sum(axis=0) for sets in sets_of.values()]) for curve in curves)
        known_ms = np.array([known[sets].min() for sets in sets_of.values()])
        yield _rows(list(sets_of), known_ms, list(sums), _PARTS)


def _total(parts: pa.Table) -> pa.Table:
    """The sum of the partial curves of one broker."""
    key = tuple(parts[name][0].as_py() for name in BROKER_AT)
    written, least, most = (
        np.array(parts[name].combine_chunks().flatten()).reshape(len(parts), -1).sum(axis=0) for name in Curves._fields
    )
    doubt = np.maximum(most - written, written - least) + ROUNDING * (most + least)
    known_ms = np.array(parts["known_ms"]).min(keepdims=True)
    return pa.Table.from_batches([_rows([key], known_ms, [written, doubt], CURVES)])


def _rows(
    keys: list[tuple[str, int, int]], known_ms: Floats, curves: list[Floats], schema: StructType
) -> pa.RecordBatch:
    types = to_arrow_schema(schema)
    columns = [pa.array(column, types.field(n).type) for n, column in enumerate(zip(*keys, strict=True))]
    ages = [len(AGES_MS)] * len(keys)
    values = [
        pa.array(curve.ravel()).cast(types.field(f).type.value_type)
        for f, curve in zip(schema.names[4:], curves, strict=True)
    ]
    return pa.RecordBatch.from_arrays([*columns, pa.array(known_ms), *(listed(ages, v) for v in values)], schema.names)


def _age_index(age_ms: Column) -> Column:
    """The index in AGES_MS of the last age that is not greater than `age_ms`; the last but one at most."""
    doublings = F.floor(F.log2(age_ms / FIRST_AGE_MS) * AGES_PER_DOUBLING) + 1
    return F.least(F.when(age_ms < FIRST_AGE_MS, 0).otherwise(doublings), F.lit(len(AGES_MS) - 2)).cast("int")


def _read(curve: Column, age_ms: Column) -> Column:
    """The value of a curve at an age, interpolated between two of AGES_MS."""
    ages, index = F.array(*map(F.lit, AGES_MS.tolist())), _age_index(age_ms)
    begin, end = F.get(curve, index), F.get(curve, index + 1)
    share = (age_ms - F.get(ages, index)) / (F.get(ages, index + 1) - F.get(ages, index))
    return begin + (end - begin) * F.least(F.greatest(share, F.lit(0.0)), F.lit(1.0))
