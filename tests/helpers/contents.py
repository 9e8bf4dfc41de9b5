"""The rows of a lake, without what depends on when and by whom they were read."""

import json
from typing import Any

from pipeline.lake import Lake
from pipeline.tables import TABLES
from tests.helpers.rows import WHO_AND_WHEN

VARYING = WHO_AND_WHEN | {
    "seen_at",
    "requests",
    # The columns that depend on when it was read.
    "consumer_lag_ms",
    "time_error_ms",
    "age_error_ms",
    "reuse_bytes",
    "reuse_error_bytes",
    "reuse_method",
    "points",
    "ruler",
    "since",
    "waiting_since",
    "members_seen_at",
    "commit_since",
    "remembered",
}
"""The columns in which two runs for the same instant, on the same quiet cluster, may differ."""


def contents(lake: Lake) -> dict[str, list[str]]:
    """The rows of each table, sorted."""
    found = {}
    for table in TABLES:
        rows = lake.frame(table)
        if table.name == "lag_histograms":
            rows = rows.where("measure NOT LIKE '%_ms' AND measure <> 'reuse_bytes'")
        if table.name == "forecasts":
            rows = rows.drop("reason")  # what minutes of history show; on a busy machine, Spark's runs take minutes
        found[table.name] = sorted(
            json.dumps(_without_times(row.asDict(recursive=True)), sort_keys=True, default=str)
            for row in rows.drop(*VARYING).collect()
        )
    return found


def _without_times(row: dict[str, Any]) -> dict[str, Any]:
    """The row; its evidence has no `since`, which depends on when commits were read."""
    if row.get("evidence"):
        row["evidence"] = {name: value for name, value in json.loads(row["evidence"]).items() if name != "since"}
    return row
