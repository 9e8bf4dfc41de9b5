"""The lag of single partitions over time, and when objectives were missed: Arrow tables in, Arrow tables out.

Columns are those of the classes in `model.heat`.
"""

from __future__ import annotations

import pyarrow as pa

from pipeline.analytics.keys import GROUP
from pipeline.analytics.lag.ladder import counted_lag
from pipeline.common.arrow_sql import columns_sql, names_sql, queried, sum_if_fits_sql

LAG_READ = (
    *("cluster", "snapshot_id", "group_id", "topic", "partition", "offset_status", "consumer_lag"),
    *("consumer_lag_bytes", "consumer_lag_ms", "consumer_age_ms", "member_id", "client_id", "host"),
)
"""The columns of `lag` that are read."""
_VALUES = {
    "records": "consumer_lag",
    "bytes": "consumer_lag_bytes",
    "ms": "consumer_lag_ms",
    "age": "consumer_age_ms",
}
_GROUP = names_sql(GROUP)
_SERIES = names_sql([*GROUP, "topic", "partition"])
_ADDRESS = "regexp_replace(host, '^/', '')"
_CELL = _VALUES | {
    "status": "offset_status",
    "member": "member_id",
    "client": f"CASE WHEN client_id IS NOT NULL THEN concat_ws(' at ', client_id, {_ADDRESS}) END",
}
_RANKED = f"""
    WITH partitions AS (
        SELECT {_SERIES}, max(consumer_lag) AS most, max(consumer_age_ms) AS oldest, count(*) OVER of_group AS total,
            CASE WHEN most > 0 THEN rank() OVER (of_group ORDER BY max(consumer_lag) DESC NULLS LAST) END AS by_lag,
            CASE WHEN oldest > 0 THEN rank() OVER (of_group ORDER BY max(consumer_age_ms) DESC NULLS LAST) END AS by_age
        FROM given WHERE topic IS NOT NULL GROUP BY {_SERIES}
        WINDOW of_group AS (PARTITION BY {_GROUP})
    ), ranked AS (
        SELECT {_SERIES}, total, row_number() OVER (
            PARTITION BY {_GROUP} ORDER BY least(by_lag, by_age) NULLS LAST, most DESC NULLS LAST, topic, "partition"
        ) AS nth
        FROM partitions
    ), cells AS (
        SELECT * FROM given JOIN ranked USING ({_SERIES})
    )
"""
"""The rows of `lag` as `cells`, with `nth`: 1 for those of the worst partition of its group, of `total`.

A partition is as bad as its greatest lag, or as the greatest age of its records if that is a worse rank. Those that
have never had any are the last.
"""


def partitions(lag: pa.Table, limit: int) -> pa.Table:
    """The `limit` worst partitions of each group, as `model.heat.PartitionSeries`."""
    lists = {name: f"list({value} ORDER BY snapshot_id)" for name, value in _CELL.items()}
    return queried(
        f"""
        {_RANKED}
        SELECT {_SERIES}, total, list(snapshot_id ORDER BY snapshot_id) AS snapshot_ids, {columns_sql(lists)}
        FROM cells WHERE nth <= {limit} GROUP BY {_SERIES}, total, nth ORDER BY {_GROUP}, nth
        """,
        given=lag,
    )


def others(lag: pa.Table, limit: int) -> pa.Table:
    """All other partitions of each group together, as `model.heat.OtherPartitions`.

    Offsets and bytes are sums, times are those of the partition that is furthest behind. Each leaves out the partitions
    where it is not known, which are counted in the column with `_unknown`.
    """
    sums = {
        "partitions": "count(*)",
        **{name: sum_if_fits_sql(counted_lag(_VALUES[name])) for name in ("records", "bytes")},
        **{name: f"max({_VALUES[name]})" for name in ("ms", "age")},
        **{f"{name}_unknown": f"count(*) FILTER ({value} IS NULL)" for name, value in _VALUES.items()},
    }
    lists = {name: f'list("{name}" ORDER BY snapshot_id)' for name in sums}
    return queried(
        f"""
        {_RANKED}, summed AS (
            SELECT {_GROUP}, snapshot_id, {columns_sql(sums)} FROM cells WHERE nth > {limit}
            GROUP BY {_GROUP}, snapshot_id
        )
        SELECT {_GROUP}, list(snapshot_id ORDER BY snapshot_id) AS snapshot_ids, {columns_sql(lists)}
        FROM summed GROUP BY {_GROUP} ORDER BY {_GROUP}
        """,
        given=lag,
    )


MISSED_READ = (*GROUP, "snapshot_id", "slo", "topic", "is_met")


def missed(slo: pa.Table) -> pa.Table:
    """When groups missed their objectives, or may have, as `model.heat.Missed`."""

    def when(condition: str) -> str:
        return f"coalesce(list(snapshot_id ORDER BY snapshot_id) FILTER ({condition}), [])"

    columns = {"missed_ids": when("is_met IS NOT NULL"), "unknown_ids": when("is_met IS NULL")}
    return queried(
        f"""
        SELECT {_GROUP}, slo, {columns_sql(columns)} FROM given WHERE NOT coalesce(is_met, false)
        GROUP BY {_GROUP}, slo ORDER BY {_GROUP}, slo
        """,
        given=slo,
    )
