"""Whether readers are served from their broker's page cache: what it has written since the record they read next.

KIP-532 asks how much memory a broker needs for its readers. A record is still cached if what the broker has written
since, to all partitions that it leads or follows, fits into its cache. Not counted are pages that readers of old
records bring back, and what other programs use. Bytes are those of the log, so compressed as they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from pipeline.analytics.readers import PARTITION
from pipeline.analytics.ruler_binary import Rulers, runs
from pipeline.analytics.ruler_replay import ends_of, listed
from pipeline.analytics.written_since import (
    AGES_MS,
    AGES_PER_DOUBLING,
    FIRST_AGE_MS,
    Curves,
    Floats,
    Pieces,
    pieces,
    summed,
)

BROKER = ["cluster", "snapshot_id", "broker"]
CURVES = StructType(
    [
        StructField("cluster", StringType()),
        StructField("snapshot_id", LongType()),
        StructField("broker", IntegerType()),
        StructField("known_ms", DoubleType()),
        *(StructField(name, ArrayType(DoubleType())) for name in Curves._fields),
    ]
)
"""What a broker has written since each of AGES_MS, at least and at most, and up to which age that is all."""


def with_reuse(lag: DataFrame, rulers: DataFrame, watermarks: DataFrame) -> DataFrame:
    """Rows of `lag` with reuse_bytes, reuse_error_bytes, reuse_method, of the broker that leads the partition.

    reuse_bytes is what the broker has written since the record that the reader reads next, 0 where nothing is unread,
    NULL where its time is not known. The method is `interpolated`, or `at_least` where the logs of some partitions do
    not reach back so far. `rulers` have PARTITION and ruler, `watermarks` the replicas; both of the same snapshots.
    Accurate to the time that the snapshot took.
    """
    curves = F.broadcast(broker_curves(rulers, watermarks).withColumnRenamed("broker", "leader"))
    age, error = F.col("consumer_age_ms"), F.coalesce("time_error_ms", F.lit(0))
    value, least, most = _read("written", age), _floor("least", age - error), _ceiling("most", age + error)
    is_tail = age <= 0
    columns = {
        "reuse_bytes": F.when(is_tail, 0).when(age > 0, F.round(value)),
        "reuse_error_bytes": F.when(is_tail, 0).when(age > 0, F.ceil(F.greatest(value - least, most - value))),
    }
    method = F.when(is_tail | (age <= F.col("known_ms")), "interpolated").otherwise("at_least")
    return (
        lag.join(curves, ["cluster", "snapshot_id", "leader"], how="left")
        .withColumns({name: column.cast("bigint") for name, column in columns.items()})
        .withColumn("reuse_method", F.when(F.col("reuse_bytes").isNotNull(), method))
        .drop("known_ms", *Curves._fields)
    )


def broker_curves(rulers: DataFrame, watermarks: DataFrame) -> DataFrame:
    """CURVES, of every broker that has a replica."""
    replicas = watermarks.where(F.col("replicas").isNotNull()).select(*PARTITION, "replicas")
    parts = rulers.join(replicas, PARTITION).select("cluster", "snapshot_id", "replicas", "ruler")
    return parts.mapInArrow(_partial_curves, CURVES).groupBy(*BROKER).applyInArrow(_total, CURVES)


def _partial_curves(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        made, known_ms = pieces(Rulers(batch["ruler"]))
        ends = ends_of(batch["replicas"])
        of_ruler = np.repeat(np.arange(len(batch)), np.diff(ends))
        snapshots = list(zip(batch["cluster"].to_pylist(), batch["snapshot_id"].to_pylist(), strict=True))
        keys = [
            (*snapshots[i], broker) for i, broker in zip(of_ruler, batch["replicas"].flatten().to_pylist(), strict=True)
        ]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        broker = np.array([numbers[key] for key in keys], np.int64)
        # Each piece once for every replica of its partition.
        each = np.repeat(np.arange(len(made.ruler)), np.diff(ends)[made.ruler])
        copies = runs(ends[made.ruler], ends[made.ruler + 1])
        curves = summed(Pieces(*(column[each] for column in made)), broker[copies], len(numbers))
        known = np.full(len(numbers), np.inf)
        np.minimum.at(known, broker, known_ms[of_ruler])
        yield _rows(list(numbers), known, curves)


def _total(parts: pa.Table) -> pa.Table:
    """The sum of one broker's partial curves."""
    key = tuple(parts[name][0].as_py() for name in BROKER)
    curves = Curves(
        *(
            np.array(parts[name].combine_chunks().flatten()).reshape(len(parts), -1).sum(axis=0, keepdims=True)
            for name in Curves._fields
        )
    )
    return pa.Table.from_batches([_rows([key], np.array(parts["known_ms"]).min(keepdims=True), curves)])


def _rows(keys: list[tuple[str, int, int]], known_ms: Floats, curves: Curves) -> pa.RecordBatch:
    cluster, snapshot_id, broker = zip(*keys, strict=True) if keys else ((), (), ())
    columns = [pa.array(cluster, pa.string()), pa.array(snapshot_id, pa.int64()), pa.array(broker, pa.int32())]
    ages = [len(AGES_MS)] * len(keys)
    columns += [pa.array(known_ms), *(listed(ages, pa.array(curve.ravel())) for curve in curves)]
    return pa.RecordBatch.from_arrays(columns, names=CURVES.names)


def _place(age_ms: Column) -> Column:
    """The number, from 0, of the last of AGES_MS that is not greater."""
    doublings = F.floor(F.log2(age_ms / FIRST_AGE_MS) * AGES_PER_DOUBLING) + 1
    return F.least(F.when(age_ms < FIRST_AGE_MS, 0).otherwise(doublings), F.lit(len(AGES_MS) - 2)).cast("int")


def _age_ms(place: Column) -> Column:
    return F.when(place == 0, 0.0).otherwise(FIRST_AGE_MS * F.pow(F.lit(2.0), (place - 1) / AGES_PER_DOUBLING))


def _read(curve: str, age_ms: Column) -> Column:
    """A curve at an age, straight between two of AGES_MS."""
    place = _place(age_ms)
    begin, end = F.get(curve, place), F.get(curve, place + 1)
    share = (age_ms - _age_ms(place)) / (_age_ms(place + 1) - _age_ms(place))
    return begin + (end - begin) * F.least(F.greatest(share, F.lit(0.0)), F.lit(1.0))


def _floor(curve: str, age_ms: Column) -> Column:
    return F.get(curve, _place(F.greatest(age_ms, F.lit(0))))


def _ceiling(curve: str, age_ms: Column) -> Column:
    return F.get(curve, _place(age_ms) + 1)
