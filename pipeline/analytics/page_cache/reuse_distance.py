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
from pipeline.analytics.keys import PARTITION_AT
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

BROKER = ["cluster", "snapshot_id", "broker"]
ROUNDING = 2.0**-23
"""Of single precision, twice over."""
SERVED = {
    "cache_50_bytes": 0.5,
    "cache_90_bytes": 0.9,
    "cache_95_bytes": 0.95,
    "cache_99_bytes": 0.99,
    "cache_999_bytes": 0.999,
}
"""The columns of `page_cache`, and the part of the readers that so much cache serves."""
_KEY = [
    StructField("cluster", StringType()),
    StructField("snapshot_id", LongType()),
    StructField("broker", IntegerType()),
]
_KNOWN = StructField("known_ms", DoubleType())
_PARTS = StructType([*_KEY, _KNOWN, *(StructField(name, ArrayType(DoubleType())) for name in Curves._fields)])
CURVES = StructType([*_KEY, _KNOWN, *(StructField(name, ArrayType(FloatType())) for name in ("written", "doubt"))])
"""What a broker has written since each of AGES_MS, how far that may be off, and up to which age it is all there was.

Single precision, as every reader's row has a copy of them on its way; what that costs is in `doubt`.
"""


def with_reuse(readers: DataFrame, rulers: DataFrame, watermarks: DataFrame) -> DataFrame:
    """Readers with reuse_bytes, reuse_error_bytes, reuse_method, of the broker that leads the partition.

    A reader has cluster, snapshot_id, leader, is_tail_reader (nothing is unread), reader_age_ms (of the record that it
    reads next) and reader_age_error_ms. reuse_bytes is what the broker has written since that record, 0 where nothing
    is unread, NULL where its time is not known. The method is `interpolated`, or `at_least` where the logs of some
    partitions do not reach back so far. `rulers` have PARTITION_AT and ruler, `watermarks` the replicas; both of the
    same snapshots. Accurate to the time that the snapshot took.
    """
    curves = F.broadcast(broker_curves(rulers, watermarks).withColumnRenamed("broker", "leader"))
    # A record from the future: a clock is wrong by as much at least.
    ahead = F.greatest(-F.col("reader_age_ms"), F.lit(0))
    age, error = F.col("reader_age_ms") + ahead, F.coalesce("reader_age_error_ms", F.lit(0)) + ahead
    value = _read(F.col("written"), age)
    before, after = _place(F.greatest(age - error, F.lit(0))), _place(age + error) + 1
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
        readers.join(curves, ["cluster", "snapshot_id", "leader"], how="left")
        .withColumns({name: column.cast("bigint") for name, column in columns.items()})
        .withColumn("reuse_method", F.when(F.col("reuse_bytes").isNotNull(), method))
        .drop("known_ms", "written", "doubt")
    )


def page_cache(histograms: DataFrame) -> DataFrame:
    """How much page cache serves how many of a broker's readers, by window: from rows of `lag_histograms`.

    cluster, snapshot_date, window_start, window_ms, broker; readers (seen once per snapshot), of which tail_readers
    have read all there is, and the distance of unknown_readers is not known, or at least so far only; cache_<p>_bytes
    serves p % of the readers, ± 4.33 %. A reader of unknown distance counts as one that no cache serves: NULL where
    too many are unknown.
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
    """CURVES, of every broker that has a replica.

    Ages are from the last look of a ruler: without one of this snapshot for a partition that could not be read they are
    at least so much, and none where it is of another snapshot, as in a late batch.
    """
    replicas = watermarks.where(F.size("replicas") > 0).select(
        *PARTITION_AT, "replicas", F.unix_millis("captured_at").alias("captured_ms")
    )
    parts = replicas.join(rulers, PARTITION_AT, how="left")
    parts = parts.select("cluster", "snapshot_id", "replicas", "captured_ms", "ruler")
    totals = parts.mapInArrow(_partial_curves, _PARTS).groupBy(*BROKER).applyInArrow(_total, CURVES)
    return totals.where(F.col("known_ms") >= 0)


def _partial_curves(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rulers = Rulers(batch["ruler"])
        made, known_ms = pieces(rulers)
        is_there = batch["ruler"].is_valid().to_numpy(zero_copy_only=False)
        is_of_now = rulers.seen("captured_ms") == batch["captured_ms"].to_numpy(zero_copy_only=False)
        known_ms = np.where(is_there, np.where(is_of_now, known_ms, -1.0), 0.0)
        # Partitions with the same replicas add up to one curve, which then counts for each of them.
        keys = list(zip(*(batch[name].to_pylist() for name in ("cluster", "snapshot_id", "replicas")), strict=True))
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
    """The sum of one broker's partial curves."""
    key = tuple(parts[name][0].as_py() for name in BROKER)
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


def _place(age_ms: Column) -> Column:
    """The number, from 0, of the last of AGES_MS that is not greater."""
    doublings = F.floor(F.log2(age_ms / FIRST_AGE_MS) * AGES_PER_DOUBLING) + 1
    return F.least(F.when(age_ms < FIRST_AGE_MS, 0).otherwise(doublings), F.lit(len(AGES_MS) - 2)).cast("int")


def _read(curve: Column, age_ms: Column) -> Column:
    """A curve at an age, straight between two of AGES_MS."""
    ages, place = F.array(*map(F.lit, AGES_MS.tolist())), _place(age_ms)
    begin, end = F.get(curve, place), F.get(curve, place + 1)
    share = (age_ms - F.get(ages, place)) / (F.get(ages, place + 1) - F.get(ages, place))
    return begin + (end - begin) * F.least(F.greatest(share, F.lit(0.0)), F.lit(1.0))
