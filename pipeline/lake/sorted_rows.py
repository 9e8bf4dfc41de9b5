"""Writes rows sorted by series and time. Parquet then stores offsets as differences, and the rest with a dictionary.

A dictionary needs 8 bytes for each offset, because hardly any occurs twice; its difference from the one before needs a
few bits. These are settings of Parquet's writer, which takes them from Spark's session. If a server refuses them, the
files are correct, but larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.lake.conflicts import SPARK_ERRORS
from pipeline.tables import Table

REWRITTEN = {"dataChange": "false", "compression": "zstd"}
"""Delta's options of a commit that only rewrites rows. The compression is part of the names of the files."""
WITHOUT_DICTIONARY = {
    *("snapshot_id", "snapshot_at"),
    *("committed_offset", "earlier_offset", "consumed_offset", "fetched_offset", "max_timestamp_offset", "offset"),
    *("log_start_offset", "last_stable_offset", "high_watermark", "high_watermark_after", "log_end_offset"),
    *("headroom", "headroom_bytes", "min_headroom", "log_bytes", "reuse_bytes", "reuse_error_bytes"),
    *("high_watermark_bytes", "consumer_lag_ms", "consumer_age_ms", "kip532_ms", "log_ends", "commits"),
    *("max_timestamp_ms", "asked_ms", "timestamp_ms", "requests_total", "bytes_total"),
    "remembered",
}
"""Columns whose values seldom occur twice, but differ little from one snapshot to the next."""
SETTINGS = {"parquet.writer.version": "PARQUET_2_0", "parquet.compression.codec.zstd.level": "6"}


def write_sorted(spark: SparkSession, name: str, table: Table, where: str, files: int) -> None:
    """Rewrites the partitions of the table `name` that satisfy `where`, sorted by `sort_order`, as `files` files.

    One commit without a change of data, so streams do not return the rows again. If another writer removes one of the
    files meanwhile, that is a conflict; files that are added meanwhile stay.
    """
    rows = spark.table(name).where(where)  # all columns, because a user may have added others
    spread = rows.repartition(1) if files == 1 else rows.repartitionByRange(files, *table.sort_order)
    with _encoded(spark, table):
        spread.sortWithinPartitions(*table.sort_order).writeTo(name).options(**REWRITTEN).overwrite(F.expr(where))


def settings(table: Table) -> dict[str, str]:
    """The settings of Parquet's writer for sorted rows of a table."""
    found = dict(SETTINGS)
    for column in table.stored:
        if column.name in WITHOUT_DICTIONARY:
            found[f"parquet.enable.dictionary#{column.name}"] = "false"
    if "remembered" in table.columns:
        # Most of what is remembered is as in the row before. As plain bytes it compresses well, as differences from the
        # row before it does not.
        found["parquet.writer.version"] = "PARQUET_1_0"
    return found


@contextmanager
def _encoded(spark: SparkSession, table: Table) -> Iterator[None]:
    """Until the end, Spark writes the files of a table for sorted rows. Then the session has its own settings again."""
    own = {}
    try:
        with suppress(*SPARK_ERRORS):
            for name, value in settings(table).items():
                own[name] = spark.conf.get(name, None)
                spark.conf.set(name, value)
        yield
    finally:
        with suppress(*SPARK_ERRORS):
            for name, before in own.items():
                if before is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, before)
