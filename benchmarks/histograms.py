"""How fast the histograms of a large snapshot are computed: 1,000,000 rows of `lag`, not ordered by group."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.timing import computed
from pipeline.analytics.histograms.lag_histograms import histograms
from pipeline.tables import LAG

GROUPS = 2500
PARTITIONS = 400
TOPICS = (4, 10, 40, 100)
"""Over how many topics a group's partitions are spread; the groups use these numbers in turn."""
SNAPSHOT_ID = 1_769_860_800_000
MEDIANS = {
    "consumer_lag": 150,
    "consumer_lag_bytes": 160_000,
    "consumer_lag_ms": 8_000,
    "consumer_age_ms": 22_000,
    "kip532_bytes": 160_000,
    "kip532_ms": 8_000,
}
"""Log-normal with sigma 3: from 0 to a million times the median. The fetcher's measures are NULL."""


def rows(spark: SparkSession, groups: int = GROUPS) -> DataFrame:
    """Rows of `lag` for one snapshot, the same each time."""
    number = F.pmod(F.col("id") * 7919, F.lit(groups * PARTITIONS))  # scatters each group over all tasks
    group, partition = (number / PARTITIONS).cast("int"), (number % PARTITIONS).cast("int")
    topics = F.element_at(F.array(*(F.lit(n) for n in TOPICS)), (group % len(TOPICS) + 1).cast("int"))
    known = {
        "cluster": F.lit("bench"),
        "snapshot_id": F.lit(SNAPSHOT_ID),
        "snapshot_date": F.to_date(F.lit("2026-01-31")),
        "group_id": F.format_string("group-%05d", group),
        "topic": F.format_string("topic-%03d", partition % topics),
        "partition": partition,
        "leader": partition % 3 + 1,
        **{name: _log_normal(seed, median) for seed, (name, median) in enumerate(MEDIANS.items())},
    }
    return spark.range(0, groups * PARTITIONS, 1, 2).select(
        *(known.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in LAG.schema)
    )


def seconds(spark: SparkSession, directory: Path, runs: int = 7) -> list[float]:
    """The seconds of each run of `histograms` on rows read from Parquet, after two runs that are not counted."""
    path = str(directory.absolute() / "lag-rows")
    rows(spark).write.mode("overwrite").parquet(path)
    return computed(lambda: histograms(spark.read.parquet(path)), runs)


def _log_normal(seed: int, median: int) -> Column:
    return F.exp(F.randn(seed) * 3) * median
