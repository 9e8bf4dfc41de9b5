"""For notebooks: a lake whose tables SQL finds by their names alone."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipeline.analytics.page_cache import page_cache
from pipeline.analytics.quantiles import kip532, register_quantiles
from pipeline.config import lake_at
from pipeline.errors import LakeError
from pipeline.lake import Lake
from pipeline.tables import LAG_HISTOGRAMS, LAYOUT_VERSION, SNAPSHOTS, TABLES


def open_lake(spark: SparkSession, where: str) -> Lake:
    """The lake in a folder (a path, or a URI) or in a `catalog.schema`.

    The session gets a temporary view for each table, so that `SELECT * FROM lag` works; the views `kip532` and
    `page_cache` of the histograms by broker; and the SQL function `quantiles`. Raises LakeError where there is no lake.
    """
    lake = Lake(spark, lake_at(where))
    found = lake.layout()
    if found is None:
        raise LakeError(f"{lake.identifier(SNAPSHOTS)} is not there: run `make demo`, or name a lake of your own")
    if found != LAYOUT_VERSION:
        raise LakeError(f"{lake.identifier(SNAPSHOTS)} has layout {found}, not {LAYOUT_VERSION}: run a job on it first")
    for table in TABLES:
        lake.read(table).createOrReplaceTempView(table.name)
    histograms = lake.read(LAG_HISTOGRAMS)
    kip532(histograms).createOrReplaceTempView("kip532")
    page_cache(histograms).createOrReplaceTempView("page_cache")
    register_quantiles(spark)
    return lake
