"""The table `group_status`: the status of a group is that of its worst partition, its lag is the sum over all."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.types import StructType

from pipeline.analytics.keys import GROUP
from pipeline.analytics.lag.group_sums import GROUP_ROW, SUMMED_LAG, group_sums_sql
from pipeline.analytics.status.owners import NOBODY, Owned, Rules, owners_of
from pipeline.analytics.status.rules import OK, STATUSES
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql, struct_sql
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, bucketed
from pipeline.tables import GROUP_STATUS, LAG, PARTITION_STATUS

GROUP_PARTS: dict[str, StructType] = {
    "lag": LAG.some(SUMMED_LAG),
    "statuses": PARTITION_STATUS.some(
        (
            *(*GROUP_ROW, "topic", "partition", "status", "reason", "since", "commit_since", "has_members"),
            *("members_seen_at", "consumer_lag"),
        )
    ),
}
"""What `group_rows` is computed from. There may be no part `statuses`."""


def group_status(parts: Mapping[str, Rows]) -> Rows:
    """The rows of GROUP_STATUS for the snapshots of the rows of GROUP_PARTS. Nobody owns these groups."""
    return bucketed(parts, GROUP_PARTS, GROUP, group_rows, GROUP_STATUS.schema)


def group_rows(bucket: Bucket, rules: Rules = (), others: Owned = NOBODY) -> pa.Table:
    """The rows of GROUP_STATUS for the groups of a bucket, from rows of GROUP_PARTS: all rows of each of the groups.

    Topic, partition and reason are those of the partition with the most lag among those with the worst status; if
    several have as much lag, those of the first one by topic and number. A partition that waits for an open transaction
    is chosen only if all of these do. Without the part `statuses`, these columns and the status are NULL. The owner is
    that of the first of the `rules` that matches, else that of `others`. Raises BadValueError if a value fits no type.
    """
    no_statuses = arrow_schema(GROUP_PARTS["statuses"]).empty_table()
    with arrow_queries({"statuses": no_statuses, **bucket}) as queries:
        groups = queries.rows(_GROUPS)
    owned = owners_of(groups["group_id"], rules, others)
    for name in owned.column_names:
        groups = groups.append_column(name, owned[name])
    return groups.select(GROUP_STATUS.columns).cast(arrow_schema(GROUP_STATUS.schema))


_RANK = f"list_position({[*STATUSES]}, status)"
"""The number of a status among STATUSES, the worst of which is 1."""
_SHOWN = {name: f'"{name}"' for name in ("status", "topic", "partition", "reason")}
_WORST_FIRST = {
    "rank": _RANK,
    # An open transaction does not explain why other partitions wait.
    "is_open_transaction": "coalesce(reason = 'open_transaction', false)",
    # HUGEINT, because the least bigint has no opposite.
    "less_lag": "-coalesce(consumer_lag, -1)::HUGEINT",
    "topic": "topic",
    "partition": '"partition"',
}
_EARLIEST_OF_WORST = {"rank": _RANK, "since": "since"}
_OF_STATUSES = {
    "worst": f"arg_min({struct_sql(_SHOWN)}, {struct_sql(_WORST_FIRST)})",
    "earliest": f"min({struct_sql(_EARLIEST_OF_WORST)})['since']",
    "latest": "max(since)",
    "statuses": "histogram(status)::MAP(VARCHAR, BIGINT)",
    "has_members": "bool_or(has_members)",
    "members_seen_at": "max(members_seen_at)",
    "commit_since": "max(commit_since)",
}
# A group has been ok since its last partition became ok. It has another status since its first partition got it.
_SINCE = f"CASE WHEN worst['status'] = '{OK}' THEN latest ELSE earliest END"
_WORST = f"""
    SELECT * EXCLUDE (worst, earliest, latest), {_SINCE} AS since,
        {columns_sql({name: f"worst['{name}']" for name in _SHOWN})}
    FROM (
        SELECT {names_sql(GROUP_ROW)}, {columns_sql(_OF_STATUSES)} FROM statuses GROUP BY {names_sql(GROUP_ROW)}
    )
"""
"""The query for the status of each group: GROUP_ROW, and the columns that come from the statuses of its partitions."""
_GROUPS = f"SELECT * FROM ({group_sums_sql()}) LEFT JOIN ({_WORST}) USING ({names_sql(GROUP_ROW)})"
