"""Writes `forecasts` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline.analytics.forecasts.forecasts import FORECAST_PARTS, forecasts
from pipeline.analytics.forecasts.same_hour import FEWEST_WEEKS
from pipeline.analytics.forecasts.weeks import WEEK_HOURS
from pipeline.analytics.keys import GROUP
from pipeline.common.epoch import HOUR_MS
from pipeline.common.rows import Rows, bucketed
from pipeline.derive.batch import Batch
from pipeline.derive.lag import Readers
from pipeline.lake import among, of_snapshots
from pipeline.tables import FORECASTS, GROUP_STATUS

MOST_GROUPS, MOST_PARTITIONS = 200, 5_000
"""Of each snapshot, so many groups are compared with earlier weeks: those whose oldest unread record is oldest. They
are fewer if the first of them have so many partitions together: each of their topics has a hundred earlier rows."""
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


def keep_forecasts(batch: Batch, readers: Readers) -> None:
    """Writes `forecasts`, which continue from those of the snapshots before the batch."""
    backlog, settings = batch.backlog, batch.settings.status
    parts = {
        "lag": readers.lag,
        "known": batch.rows(FORECASTS, backlog.up_to_complete, *FORECAST_PARTS["known"].names),
    }
    groups = _far_behind(batch) if _has_weeks(batch.snapshot_ids, backlog.weeks) else {}
    if groups:
        parts["weeks"] = _weeks(batch, groups)
    compute = partial(forecasts, settings=settings, reach=dict(backlog.reach), far_behind=groups)
    keep = batch.lake.in_file
    rows = bucketed(parts, FORECAST_PARTS, GROUP, compute, FORECASTS.schema, backlog.buckets, keep)
    batch.lake.replace(FORECASTS, batch.lake.collected_if_few(rows), batch.where)


def _has_weeks(snapshot_ids: Sequence[int], weeks: Sequence[int]) -> bool:
    """Whether there may be enough earlier weeks for a snapshot. In a younger lake, nothing is read."""
    newest = max(snapshot_ids) // HOUR_MS - (FEWEST_WEEKS - 1) * WEEK_HOURS
    return any(one // HOUR_MS <= newest for one in weeks) and len(weeks) > FEWEST_WEEKS


def _far_behind(batch: Batch) -> dict[int, list[str]]:
    """The groups of each snapshot whose forecasts may need what was written in earlier weeks."""
    statement = _FAR_BEHIND.format(
        of_batch=batch.where,
        tolerance_ms=batch.settings.status.tolerance_ms,
        most=MOST_GROUPS,
        most_partitions=MOST_PARTITIONS,
    )
    found: dict[int, list[str]] = {}
    for row in batch.lake.query(statement, GROUP_STATUS):
        found.setdefault(row["snapshot_id"], []).append(row["group_id"])
    return found


def _weeks(batch: Batch, groups: dict[int, list[str]]) -> Rows:
    """What was written for some groups in the hours before snapshots of earlier weeks."""
    names = sorted({group for some in groups.values() for group in some})
    of_weeks = f"{of_snapshots(batch.cluster, batch.backlog.weeks)} AND written_per_s_1h IS NOT NULL"
    where = f"{of_weeks} AND {among('group_id', names)}"
    return batch.lake.rows(FORECASTS, where, *FORECAST_PARTS["weeks"].names).where_in("group_id", names)
