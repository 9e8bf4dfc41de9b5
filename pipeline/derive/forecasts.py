"""Writes `forecasts` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from pipeline.analytics.forecasts.forecasts import (
    KNOWN_ROWS,
    OF_KNOWN,
    OF_SUMS,
    OF_WEEK,
    SERIES,
    SUM_ROWS,
    WEEK_ROWS,
    forecasts,
)
from pipeline.analytics.forecasts.same_hour import FEWEST_WEEKS
from pipeline.analytics.forecasts.sums import sums
from pipeline.analytics.forecasts.weeks import WEEK_HOURS
from pipeline.analytics.keys import GROUP
from pipeline.common.epoch import HOUR_MS
from pipeline.common.rows import Rows, together
from pipeline.config.status import StatusConfig
from pipeline.derive.backlog import Backlog
from pipeline.derive.lag import Readers
from pipeline.lake import Lake, of_snapshots, one_of
from pipeline.tables import FORECASTS, GROUP_STATUS, LAG

MOST_GROUPS, MOST_PARTITIONS = 200, 5_000
"""Of each snapshot, so many groups are compared with earlier weeks: those whose oldest unread record is oldest. They
are fewer if the first of them have so many partitions together: each of their topics has a hundred earlier rows."""
ROWS_A_BUCKET = 100_000
"""Rows that are followed together. More rows need more memory, fewer rows need more calls."""
_SUMS = StructType([StructField(n, LongType()) if n not in SERIES else FORECASTS.schema[n] for n in OF_SUMS])
_FAR_BEHIND = """
    WITH numbered AS (
        SELECT snapshot_id, group_id, partitions,
               row_number() OVER oldest AS number, sum(partitions) OVER oldest AS summed
        FROM {{group_status}}
        WHERE {of_batch} AND consumer_lag > 0 AND (consumer_age_ms IS NULL OR consumer_age_ms > {tolerance_ms})
        WINDOW oldest AS (
            PARTITION BY snapshot_id ORDER BY coalesce(consumer_age_ms, 0) DESC, consumer_lag DESC, group_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
    )
    SELECT snapshot_id, group_id FROM numbered WHERE number <= {most} AND summed - partitions < {most_partitions}
"""


def keep_forecasts(lake: Lake, cluster: str, backlog: Backlog, readers: Readers, settings: StatusConfig) -> None:
    """Forecasts the groups of a batch whose `lag` and status are written, continuing from the snapshots before it."""
    ids, earlier = [s.snapshot_id for s in backlog.batch], backlog.up_to_complete
    known = lake.read_few_or_many(FORECASTS, of_snapshots(cluster, earlier), *OF_KNOWN)
    summed = lake.few_or_many(sums(lake.read_snapshots(LAG, cluster, ids)).select(*OF_SUMS))
    groups = _far_behind(lake, cluster, ids, settings) if _has_weeks(ids, backlog.weeks) else {}
    weeks = _weeks(lake, cluster, backlog.weeks, groups) if groups else None
    most = backlog.buckets * ROWS_A_BUCKET
    rows = forecast_rows(lake.spark, summed, known, settings, most, backlog.reach, weeks, groups)
    lake.replace(FORECASTS, rows, of_snapshots(cluster, ids))


def forecast_rows(
    spark: SparkSession,
    summed: Rows,
    known: Rows,
    settings: StatusConfig,
    most: int,
    reach: Mapping[int, int],
    weeks: Rows | None = None,
    far_behind: Mapping[int, Collection[str]] = MappingProxyType({}),
) -> Rows:
    """The rows of FORECASTS from `sums` of snapshots; `most` is about how many these and the known ones are.

    The columns are those that `forecasts` needs of its parts. See there for `reach` and `far_behind`.
    """
    parts = {SUM_ROWS: (summed, _SUMS), KNOWN_ROWS: (known, FORECASTS.some(OF_KNOWN))}
    if weeks is not None:
        parts[WEEK_ROWS] = (weeks, FORECASTS.some(OF_WEEK))
    made = partial(forecasts, settings=settings, reach=dict(reach), far_behind=dict(far_behind))
    return together(spark, parts).grouped(GROUP, made, FORECASTS.schema, 1 + most // ROWS_A_BUCKET)


def _has_weeks(snapshot_ids: Sequence[int], weeks: Sequence[int]) -> bool:
    """Whether there may be enough earlier weeks for a snapshot. In a younger lake, nothing is read."""
    newest = max(snapshot_ids) // HOUR_MS - (FEWEST_WEEKS - 1) * WEEK_HOURS
    return any(one // HOUR_MS <= newest for one in weeks) and len(weeks) > FEWEST_WEEKS


def _far_behind(lake: Lake, cluster: str, snapshot_ids: Sequence[int], settings: StatusConfig) -> dict[int, list[str]]:
    """The groups of each snapshot whose forecasts may need what was written in earlier weeks."""
    of_batch = of_snapshots(cluster, snapshot_ids)
    statement = _FAR_BEHIND.format(
        of_batch=of_batch, tolerance_ms=settings.tolerance_ms, most=MOST_GROUPS, most_partitions=MOST_PARTITIONS
    )
    found: dict[int, list[str]] = {}
    for row in lake.query(statement, GROUP_STATUS):
        found.setdefault(row["snapshot_id"], []).append(row["group_id"])
    return found


def _weeks(lake: Lake, cluster: str, snapshot_ids: Sequence[int], groups: dict[int, list[str]]) -> Rows:
    """What was written for some groups in the hours before snapshots of earlier weeks."""
    named = one_of("group_id", sorted({group for some in groups.values() for group in some}))
    where = f"{of_snapshots(cluster, snapshot_ids)} AND {named} AND written_per_s_1h IS NOT NULL"
    return lake.read_few_or_many(FORECASTS, where, *OF_WEEK)
