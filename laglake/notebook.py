"""For notebooks: the tables of a lake as views, which SQL can use by their names, and charts that need no browser."""

from __future__ import annotations

from typing import Any

import altair as alt
from pyspark.sql import SparkSession

from pipeline.analytics.histograms.quantiles import kip532, quantiles_function
from pipeline.analytics.page_cache.reuse_distance import page_cache
from pipeline.common.errors import LakeError
from pipeline.config import lake_at
from pipeline.lake import Lake, why_refused
from pipeline.lake.delta import require_delta
from pipeline.report.charts.vega import CLOCK
from pipeline.tables import LAG_HISTOGRAMS, SCHEMA_VERSION, SNAPSHOTS, TABLES
from pipeline.tables.views import VIEWS


def draw_as_svg() -> None:
    """Makes Altair draw charts in the notebook's own process, as SVG and with the 24-hour clock."""
    alt.renderers.enable("svg")
    config: Any = {"axisTemporal": {"format": CLOCK}}
    alt.theme.register("laglake", enable=True)(lambda: alt.theme.ThemeConfig(config=config))


def open_lake(spark: SparkSession, where: str) -> Lake:
    """The lake in a folder (a path, or a URI) or in a `catalog.schema`.

    The session gets a temporary view for each table, so that `SELECT * FROM lag` works; the view `causes`, what is
    wrong, with one row for all groups that share a cause; the views `kip532` and `page_cache` on the histograms by
    broker; and the SQL function `quantiles`. Raises LakeError if there is no lake, or if the session has no Delta.
    """
    require_delta(spark)
    lake = Lake(spark, lake_at(where))
    found = lake.schema_version()
    if found is None:
        raise LakeError(
            f"{lake.identifier(SNAPSHOTS)} does not exist: run `make demo`, or give the location of your own lake"
        )
    if found != SCHEMA_VERSION:
        place = lake.identifier(SNAPSHOTS)
        old = f"{place} has schema version {found}, this laglake knows {SCHEMA_VERSION}: call lag, which upgrades it"
        raise LakeError(why_refused(place, found) or old)
    for table in TABLES:
        spark.table(lake.identifier(table)).createOrReplaceTempView(table.name)
    for name, query in VIEWS.items():
        spark.sql(query).createOrReplaceTempView(name)
    histograms = lake.read(LAG_HISTOGRAMS)
    kip532(histograms).createOrReplaceTempView("kip532")
    page_cache(histograms).createOrReplaceTempView("page_cache")
    spark.sql(quantiles_function())
    return lake
