"""Aggregates of `snapshots` and `group_status` that are small enough for one page: Arrow tables in, Arrow tables out.

Columns are those of the classes in `model.report` and `model.ledger`; instants are epoch ms. NULL sums stay NULL.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from pipeline.analytics.keys import SNAPSHOT
from pipeline.common.arrow_sql import columns_sql, epoch_ms_sql, names_sql, queried, struct_sql, sum_if_fits_sql
from pipeline.report.model.report import NO_PROGRESS, Group, Point, names_of
from pipeline.tables import DATA_LOSS, GROUP_STATUS, LAG, READABLE

LEDGER_READ = (
    *("cluster", "snapshot_id", "status", "started_at", "finished_at", "schedule_ms", "groups", "partitions"),
    *("rows", "expected", "errors", "warnings"),
)
"""The columns of `snapshots` that are read."""
ERRORS_LISTED = 20
UNHURRIED_MS = 60_000
"""A shorter step between snapshots is never a gap, because such snapshots were probably not taken by a schedule."""


def ledger(snapshots: pa.Table, computed: pa.Table) -> pa.Table:
    """Adds `has_lag` to `snapshots`: it is readable, and `computed` has its (cluster, snapshot_id).

    A running or failed snapshot never has lag, even if a killed run has left rows.
    """
    return queried(
        f"""
        SELECT snapshots.*, status IN {READABLE} AND found IS NOT NULL AS has_lag
        FROM snapshots LEFT JOIN (SELECT DISTINCT {names_sql(SNAPSHOT)}, true AS found FROM computed)
        USING ({names_sql(SNAPSHOT)})
        """,
        snapshots=snapshots,
        computed=computed,
    )


def newest_snapshots(ledger: pa.Table, limit: int) -> pa.Table:
    """The `limit` newest rows of the ledger with any status, newest first, each with at most ERRORS_LISTED errors."""
    return queried(
        f"""
        SELECT cluster, snapshot_id, status, {epoch_ms_sql("started_at")} AS started_ms,
            {epoch_ms_sql("finished_at")} AS finished_ms, groups, partitions, expected, warnings,
            errors[:{ERRORS_LISTED}] AS errors, coalesce(len(errors), 0) AS errors_total
        FROM ledger ORDER BY snapshot_id DESC, cluster LIMIT {limit}
        """,
        ledger=ledger,
    )


_SHOWN = {name: name for name in ("snapshot_id", "status", "groups", "partitions", "expected")}
# A running snapshot has no result yet, and would hide that the one before it failed.
_NEWEST = struct_sql({"is_ended": "status <> 'running'", "snapshot_id": "snapshot_id"})
_PASSED_OVER = {
    "snapshots": "count(reason)",
    "first_id": "min(passed_id)",
    "last_id": "max(passed_id)",
    "reason": "arg_max(reason, passed_id)",
    "has_other_reasons": "min(reason) < max(reason)",
}


def clusters(ledger: pa.Table) -> pa.Table:
    """One row per cluster: its newest ended snapshot, its newest with lag, and how many snapshots have each status.

    `most_rows` is the number of bronze rows in its largest snapshot. `passed_over` has its snapshots without lag that
    have an error about LAG in the ledger, as `model.ledger.PassedOver`; NULL if there is none. Snapshots that still
    have the lag of an earlier run are not included.
    """
    newest = struct_sql(_SHOWN | {"error": "errors[1].error"})
    counts = {name: f"count(*) FILTER (status = '{name}')" for name in ("complete", "partial", "failed", "running")}
    return queried(
        f"""
        SELECT cluster, unnest(arg_max({newest}, {_NEWEST})),
            min(snapshot_id) AS first_snapshot_id, max(snapshot_id) AS last_snapshot_id,
            max(snapshot_id) FILTER (has_lag) AS lag_snapshot_id, count(*) AS snapshots,
            max(coalesce(list_sum(map_values(rows)), 0))::BIGINT AS most_rows, {columns_sql(counts)},
            CASE WHEN count(reason) > 0 THEN {struct_sql(_PASSED_OVER)} END AS passed_over
        FROM (SELECT *, CASE WHEN reason IS NOT NULL THEN snapshot_id END AS passed_id FROM (
            SELECT *, CASE WHEN NOT has_lag
                THEN list_filter(errors, lambda entry: entry.what = '{LAG.name}')[1].error END AS reason
            FROM ledger
        ))
        GROUP BY cluster ORDER BY cluster
        """,
        ledger=ledger,
    )


def instants(ledger: pa.Table, limit: int, newest: int = 1) -> pa.Table:
    """The snapshots with lag, at most `limit` per cluster, evenly thinned; the `newest` ones are always included.

    `segment` counts the gaps so far: a snapshot without lag, or a missed instant (a step at least twice as long as
    usual, and at least a minute). Thinning happens after the count, so that no gap is lost.
    """
    return queried(
        f"""
        WITH steps AS (
            SELECT *, snapshot_id - lag(snapshot_id) OVER (PARTITION BY cluster ORDER BY snapshot_id) AS step_ms
            FROM ledger
        ), judged AS (
            SELECT *, greatest(quantile_disc(step_ms, 0.5) OVER (PARTITION BY cluster), schedule_ms) AS usual_ms
            FROM steps
        ), counted AS (
            SELECT *, count(*) FILTER (
                NOT has_lag OR (step_ms >= 2 * usual_ms AND step_ms >= {UNHURRIED_MS})
            ) OVER (PARTITION BY cluster ORDER BY snapshot_id) AS segment
            FROM judged
        ), numbered AS (
            SELECT *, count(*) OVER (PARTITION BY cluster) AS total,
                row_number() OVER (PARTITION BY cluster ORDER BY snapshot_id) AS nth
            FROM counted WHERE has_lag
        )
        SELECT cluster, snapshot_id, segment, total FROM numbered
        WHERE total <= {limit} OR nth * {limit} % total < {limit} OR nth > total - {newest}
        ORDER BY cluster, snapshot_id
        """,
        ledger=ledger,
    )


_OF_GROUP = {name: f'"{name}"' for name in names_of(Group) if name in GROUP_STATUS.columns} | {
    "statuses": "offset_statuses",
    "status_since_ms": epoch_ms_sql("since"),
    "members_seen_ms": epoch_ms_sql("members_seen_at"),
    "status_reason": "reason",
    "status_partitions": "statuses[status]",
}
_OF_POINT = {name: f'"{name}"' for name in names_of(Point) if name in GROUP_STATUS.columns} | {
    "deleted": f"coalesce(offset_statuses['{DATA_LOSS}'], 0)",
    "captured_ms": epoch_ms_sql("ends_at"),
    "committed_captured_ms": epoch_ms_sql("captured_at"),
}
POINT_READ = (
    *(name for name in names_of(Point) if name in GROUP_STATUS.columns),
    *("snapshot_date", "offset_statuses", "ends_at", "captured_at"),
)
"""The columns of GROUP_STATUS that `points` and `all_groups` need."""


def worst_first(groups: pa.Table, limit: int, found: Collection[str] = ()) -> pa.Table:
    """The `limit` worst groups in rows of GROUP_STATUS, as `model.report.Group`.

    Those that lost data come first, so they are never left out; then those in `found`, those without progress, and then
    by lag. An unknown lag comes last.
    """
    return queried(
        f"""
        SELECT {columns_sql(_OF_GROUP)} FROM groups
        ORDER BY coalesce(offset_statuses['{DATA_LOSS}'], 0) > 0 DESC, group_id IN (FROM found) DESC,
            coalesce(groups.status IN {NO_PROGRESS}, false) DESC, consumer_lag DESC NULLS LAST, cluster, group_id
        LIMIT {limit}
        """,
        groups=groups,
        found=pa.table({"group_id": pa.array(found, pa.string())}),
    )


def points(groups: pa.Table) -> pa.Table:
    """Rows of GROUP_STATUS as `model.report.Point`."""
    found = queried(f"SELECT {columns_sql(_OF_POINT)} FROM groups", groups=groups)
    # Not by the query, whose memory is limited: names may have 32 KB.
    return found.sort_by([(name, "ascending") for name in ("snapshot_id", "cluster", "group_id")])


def all_groups(groups: pa.Table) -> pa.Table:
    """Rows of GROUP_STATUS, summed up by cluster and snapshot as `model.report.ClusterPoint`, without unknown lags."""
    return queried(
        f"""
        SELECT cluster, snapshot_id, count(*) AS groups,
            count(*) FILTER (partitions_unknown > 0) AS groups_unknown,
            {sum_if_fits_sql("consumer_lag")} AS consumer_lag,
            {sum_if_fits_sql("consumer_lag_bytes")} AS consumer_lag_bytes,
            count(*) FILTER (partitions_unknown + bytes_unknown > 0) AS bytes_unknown,
            max(consumer_age_ms) AS consumer_age_ms,
            count(*) FILTER (partitions_unknown + age_unknown > 0) AS age_unknown
        FROM given GROUP BY cluster, snapshot_id ORDER BY cluster, snapshot_id
        """,
        given=groups,
    )


def totals(groups: pa.Table) -> pa.Table:
    """Rows of GROUP_STATUS at one snapshot of each cluster, summed up as `model.report.Totals`."""
    is_not_committed = "offset_statuses['no_commit'] > 0"
    most = "not_committed_offsets"
    return queried(
        f"""
        SELECT cluster, count(*) AS groups,
            count(*) FILTER (partitions_unknown > 0) AS groups_unknown,
            count(*) FILTER (offset_statuses['{DATA_LOSS}'] > 0) AS groups_with_loss,
            count(*) FILTER (offset_statuses['deleted_uncommitted'] > 0) AS groups_deleted_uncommitted,
            count(*) FILTER ({is_not_committed}) AS groups_not_committed,
            CASE WHEN count(*) FILTER ({is_not_committed} AND {most} IS NULL) = 0
                THEN {sum_if_fits_sql(most)} END AS not_committed_offsets
        FROM given GROUP BY cluster ORDER BY cluster
        """,
        given=groups,
    )
