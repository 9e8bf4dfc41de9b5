"""Quantiles of histograms, for DataFrames and SQL, and the metrics that brokers would report according to KIP-532."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.histograms.buckets import SCALE
from pipeline.tables import LAG_HISTOGRAMS

KIP532 = {"kip532_ms": "ConsumerFetchLagTimeInMs", "kip532_bytes": "ConsumerFetchLagBytes"}
"""The measures that KIP-532 proposes, and its names for them."""

PERCENTILES = {
    "50thPercentile": 0.5,
    "75thPercentile": 0.75,
    "95thPercentile": 0.95,
    "98thPercentile": 0.98,
    "99thPercentile": 0.99,
    "999thPercentile": 0.999,
}
"""Those attributes of a broker's histograms in JMX (Yammer's JmxReporter) that are quantiles."""

BROKER_WINDOW = ("cluster", "snapshot_date", "window_start", "window_ms", "broker")
"""The key of a row in the views by broker, and the first columns of each view."""

_GROWTH = 2**2**-SCALE
# The harmonic midpoint of a bucket is its lower bound times this. Its relative error is the same at both bounds.
_MIDPOINT = 2 * _GROWTH / (1 + _GROWTH)

# The index of a quantile among the sorted values. It is computed exactly as in numpy's `inverted_cdf`, to the last bit,
# so that both always choose the same value.
_RANK = "CAST(greatest(ceil(p * {h}count - 1), 0) AS BIGINT)"
# Subtracts the counts from the rank, bucket by bucket, until it is negative: the last bucket has the value. Packing
# both numbers into one would be about a quarter faster, but harder to read.
_BUCKET = f"""
    aggregate({{h}}bucket_counts,
        named_struct('rank', {_RANK} - {{h}}zero_count, 'bucket', {{h}}bucket_offset - 1),
        (at, n) -> IF(at.rank < 0, at, named_struct('rank', at.rank - n, 'bucket', at.bucket + 1)),
        at -> at.bucket)"""
_VALUE = f"least(greatest({_MIDPOINT!r}D * power(2D, {_BUCKET} / {2**SCALE}D), {{h}}min), {{h}}max)"
_QUANTILES = f"""
    IF({{h}}count > 0, transform({{probabilities}}, p ->
        IF(p BETWEEN 0 AND 1, IF({_RANK} < {{h}}zero_count, 0D, {_VALUE}), NULL)), NULL)"""


def quantiles(probabilities: Sequence[float], histogram: str = "") -> Column:
    """The quantiles at some probabilities, as array<double>; NULL if a histogram has counted nothing.

    The histogram is in the columns of the DataFrame, or of the struct or alias named `histogram`. A quantile is the
    smallest value that at least this part of the values does not exceed (numpy's `inverted_cdf`); negative values are
    not counted. Its relative error is at most 4.33 %, half of a bucket; a quantile of 0 is exact. Raises ValueError
    for a probability that is not between 0 and 1.
    """
    if not all(0 <= p <= 1 for p in probabilities):
        raise ValueError(f"probabilities must be from 0 to 1: {list(probabilities)}")
    listed = ", ".join(f"{float(p)!r}D" for p in probabilities)
    prefix = f"{histogram}." if histogram else ""
    return F.expr(_QUANTILES.format(h=prefix, probabilities=f"array({listed})"))


def quantiles_function() -> str:
    """The statement that creates the SQL function `quantiles(struct(*), array(0.5, 0.99))`, for `lag_histograms`.

    It returns NULL for a probability that is not between 0 and 1. After a join, use struct(h.*). Spark compares the
    types of the columns and not their names, so the columns must be those of the table, in its order.
    """
    body = _QUANTILES.format(h="histogram.", probabilities="probabilities")
    return (
        f"CREATE OR REPLACE TEMPORARY FUNCTION quantiles(histogram {LAG_HISTOGRAMS.schema.simpleString()}, "
        f"probabilities ARRAY<DOUBLE>) RETURNS ARRAY<DOUBLE> RETURN {body}"
    )


def of_brokers(histograms: DataFrame, *measures: str) -> DataFrame:
    """The histograms by broker of some measures; `broker` is the broker's id."""
    is_asked = (F.col("scope") == "broker") & F.col("measure").isin(*measures)
    return histograms.where(is_asked).withColumn("broker", F.col("scope_value").cast("int"))


def kip532(histograms: DataFrame) -> DataFrame:
    """KIP-532's metrics for each broker and window, with the attributes of Kafka's own histograms in JMX.

    Count is not the number of fetches, but of readers seen in the window, each counted once per snapshot. StdDev is
    left out, because it cannot be computed from buckets with a bounded error. All but Count are NULL if no value is
    known.
    """
    metric = F.element_at(F.create_map(*(F.lit(word) for pair in KIP532.items() for word in pair)), F.col("measure"))
    return (
        of_brokers(histograms, *KIP532)
        .withColumn("quantiles", quantiles(list(PERCENTILES.values())))
        .select(
            *BROKER_WINDOW,
            metric.alias("metric"),
            F.col("count").alias("Count"),
            F.col("min").alias("Min"),
            F.col("max").alias("Max"),
            F.when(F.col("count") > 0, F.col("sum").cast("double") / F.col("count")).alias("Mean"),
            *(F.col("quantiles")[number].alias(name) for number, name in enumerate(PERCENTILES)),
        )
    )
