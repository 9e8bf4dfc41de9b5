"""Whether each group meets its service-level objectives in a snapshot."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipeline.analytics.lag.group_sums import GROUP_ROW
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql
from pipeline.common.expressions import matches
from pipeline.config.slo import OBJECTIVE_COLUMNS, SloConfig
from pipeline.tables import LAG

OBJECTIVE_LAG = LAG.some(
    [
        *GROUP_ROW,
        *("topic", "offset_status", "headroom", "unread_markers"),
        *OBJECTIVE_COLUMNS,
    ]
)
"""The columns of `lag` that objectives need."""
KNOWN = ("ok", "deleted_unread", "deleted_uncommitted")
"""The offset_status of partitions whose lags can be compared with a limit. With others, commit and log do not fit."""
_LIMITS = pa.schema({"slo": pa.string(), "column": pa.string(), "most": pa.int64()})
_NAMES = pa.schema({"slo": pa.string(), "name": pa.string()})


def objectives_met(lag: pa.Table, slos: Mapping[str, SloConfig], markers: int) -> pa.Table:
    """A row for each objective and group that matches: GROUP_ROW, slo, and from partitions to is_met of SLO.

    `lag` has the columns of OBJECTIVE_LAG, and all rows of a group. A partition without a commit does not count,
    because it has no lag: many groups never commit in an empty partition. Where only transaction markers are unread,
    which no reader ever gets, the value is 0. Where unread_markers is not known, no more than `markers` unread offsets
    may all be markers, so it is not known whether such a partition misses its objective.
    """
    limits = [{"slo": name, "column": slo.limit.column, "most": slo.limit.most} for name, slo in slos.items()]
    tables = {
        "lag": lag,
        "limits": pa.Table.from_pylist(limits, _LIMITS),
        "groups": _matching_names(lag["group_id"], {name: slo.groups for name, slo in slos.items()}),
        "topics": _matching_names(lag["topic"], {name: slo.topics for name, slo in slos.items()}),
    }
    with arrow_queries(tables) as queries:
        return queries.rows(_objectives_sql(markers))


def _matching_names(names: pa.ChunkedArray, expressions: Mapping[str, str | None]) -> pa.Table:
    """The distinct names in which the expression of each objective is found.

    The expressions are Python's, as everywhere in the configuration; those of DuckDB and of Java are different.
    """
    found = []
    distinct = names.unique().to_pylist()
    for slo, expression in expressions.items():
        found += [{"slo": slo, "name": name} for name in distinct if matches(expression, name)]
    return pa.Table.from_pylist(found, _NAMES)


_LAG_OF_OBJECTIVE = " ".join(f"WHEN '{name}' THEN {name}" for name in OBJECTIVE_COLUMNS)
_READERS = f"""
    SELECT lag.*, slo, most,
        CASE "column" {_LAG_OF_OBJECTIVE} END AS lag_of_objective,
        -- What was deleted is not known.
        CASE WHEN headroom >= 0 THEN unread_markers END AS known_markers
    FROM lag
    JOIN groups ON lag.group_id = groups.name
    JOIN topics USING (slo)
    JOIN limits USING (slo)
    WHERE lag.topic = topics.name AND offset_status IS DISTINCT FROM 'no_commit'
"""
"""The readers, once for each objective that concerns the group at the topic."""
_VALUE = f"""
    CASE WHEN offset_status IN {KNOWN} THEN
        CASE WHEN consumer_lag <= known_markers THEN 0 ELSE lag_of_objective END
    END
"""
_COUNTS = {
    "partitions": "count(*)",
    "partitions_missed": "count(*) FILTER (NOT is_met)",
    "partitions_unknown": "count(*) FILTER (is_met IS NULL)",
    "worst": "max(value) FILTER (is_met IS NOT NULL)",
    "missed_topics": "list(DISTINCT topic) FILTER (NOT is_met)",
}
_OF_GROUP = {
    "topic": "CASE WHEN len(missed_topics) = 1 THEN missed_topics[1] END",
    # A group misses its objective if one partition does, whatever is not known of the others.
    "is_met": "CASE WHEN partitions_missed > 0 THEN false WHEN partitions_unknown = 0 THEN true END",
}


def _objectives_sql(markers: int) -> str:
    has_records = f"coalesce(consumer_lag > coalesce(known_markers, {markers}), true)"
    return f"""
        WITH readers AS ({_READERS}),
        valued AS (SELECT *, {_VALUE} AS value, value <= most AS is_low, {has_records} AS has_records FROM readers),
        judged AS (SELECT *, CASE WHEN is_low OR has_records THEN is_low END AS is_met FROM valued),
        counted AS (SELECT {names_sql(GROUP_ROW)}, slo, {columns_sql(_COUNTS)} FROM judged GROUP BY ALL)
        SELECT * EXCLUDE (missed_topics), {columns_sql(_OF_GROUP)} FROM counted
    """
