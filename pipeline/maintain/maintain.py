"""Removes rows older than their retention, compacts the small files of past days, and deletes files no table needs.

Each step is one commit to one table and leaves the lake consistent, so a job that was killed can simply be repeated.
Removed rows can be read as a former version of the table, until its files are deleted, too.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline.analytics.keys import SNAPSHOT
from pipeline.common.arrow_sql import arrow_queries, names_sql
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import HOUR_MS, to_epoch_ms, utc_date
from pipeline.common.errors import first_line
from pipeline.config import RetentionConfig
from pipeline.derive import JOB, REMOVED, oldest_needed
from pipeline.lake import FAILURES, Clock, Lake, before_day, of_cluster, one_of
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.maintain.files import Done, tidy
from pipeline.maintain.rollup import keep_rollup
from pipeline.tables import (
    CLIENT_DIVERGENCE,
    CLIENT_POSITIONS,
    COMMITTED_OFFSETS,
    COMPUTED,
    FINDING_HISTORY,
    FORECASTS,
    GROUP_CHANGES,
    GROUP_MEMBERS,
    GROUP_STATUS,
    LAG,
    LAG_HISTOGRAMS,
    LAG_ROLLUP,
    LOG_SAMPLES,
    PARTITION_STATUS,
    QUARANTINE,
    SLO,
    TABLES,
    WATERMARKS,
    Table,
)

log = logging.getLogger(__name__)

BRONZE = (COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS, LOG_SAMPLES, CLIENT_POSITIONS, QUARANTINE)
_LIKE_LAG = (LAG, PARTITION_STATUS, GROUP_STATUS, FORECASTS, GROUP_CHANGES, SLO, CLIENT_DIVERGENCE, FINDING_HISTORY)


class Rule(NamedTuple):
    """How long rows of a table are kept, by the day of their snapshot. None means for ever. `only` selects the rows."""

    table: Table
    kept_ms: int | None
    only: str = "true"


def rules(retention: RetentionConfig) -> list[Rule]:
    """The configured retention of each table that grows with every snapshot."""
    return [
        *(Rule(table, retention.bronze_ms) for table in BRONZE),
        *(Rule(table, retention.lag_ms) for table in _LIKE_LAG),
        Rule(LAG_HISTOGRAMS, retention.lag_ms, "window_ms = 0"),
        Rule(LAG_HISTOGRAMS, retention.hours_ms, f"window_ms = {HOUR_MS}"),
        Rule(LAG_ROLLUP, retention.hours_ms, f"window_ms = {HOUR_MS}"),
    ]


def first_days(kept_ms: int, now_ms: int, needed: Mapping[str, int]) -> dict[str, date]:
    """The first day that is kept for each cluster: that of the retention, or of an older snapshot that is `needed`."""
    return {cluster: utc_date(min(now_ms - kept_ms, snapshot_id)) for cluster, snapshot_id in needed.items()}


def maintain(lake: Lake, retention: RetentionConfig, clusters: Collection[str], clock: Clock) -> Done:
    """Maintains a lake: the rows of these clusters, and all files.

    Rows that are still needed to compute snapshots without lag, or the next one, are kept however old they are.
    Raises LakeError if a table cannot be read or written.
    """
    lake.expect_rows(MANY_ROWS)
    now_ms = to_epoch_ms(clock())
    done = Done(_remove_old(lake, retention, now_ms, oldest_needed(lake, clusters)))
    for table in TABLES:
        try:
            tidy(lake, table, utc_date(now_ms), done)
        except FAILURES as exc:  # for example, too many conflicts with other writers; no row depends on it
            log.warning(
                "%s: its files could not be compacted or deleted; the next run tries again: %s",
                table.name,
                first_line(exc),
            )
    return done


def _remove_old(
    lake: Lake, retention: RetentionConfig, now_ms: int, needed: Mapping[str, int]
) -> dict[tuple[str, str], int]:
    days = {
        rule: first_days(rule.kept_ms, now_ms, needed)
        for rule in rules(retention)
        if rule.kept_ms is not None and needed
    }
    by_name = {_name(rule): rule for rule in days}
    removed: dict[tuple[str, str], int] = {}
    for row in _counted(lake, days):
        rule, cluster = by_name[row["name"]], row["cluster"]
        older = f"{before_day(cluster, days[rule][cluster])} AND {rule.only}"
        if rule.table is LAG:
            if retention.rollup:
                keep_rollup(lake, cluster, older)
            _mark_removed(lake, cluster, days[rule][cluster])
        lake.delete(rule.table, older)
        key = (rule.table.name, cluster)
        removed[key] = removed.get(key, 0) + row["rows"]
        log.info("%s: %s: %d rows removed, up to %s", cluster, rule.table.name, row["rows"], row["last_day"])
    return removed


def _name(rule: Rule) -> str:
    return f"{rule.table.name} where {rule.only}"


def _counted(lake: Lake, days: Mapping[Rule, Mapping[str, date]]) -> list[dict[str, Any]]:
    """How many rows each rule removes of each cluster: cluster, name, rows, last_day. Those of `lag` come first.

    They must also be removed first: their roll-up reads other tables. `days` has the first day that is kept.
    """
    if not days:
        return []

    def counts(rule: Rule) -> str:
        clusters: defaultdict[date, list[str]] = defaultdict(list)  # nearly all have the same day
        for cluster, day in days[rule].items():
            clusters[day].append(cluster)
        older = (f"({one_of('cluster', of)} AND snapshot_date < DATE'{day}')" for day, of in clusters.items())
        return (
            f"SELECT cluster, '{_name(rule)}' AS name, count(*) AS rows, max(snapshot_date) AS last_day "
            f"FROM {{{rule.table.name}}} WHERE ({' OR '.join(older)}) AND {rule.only} GROUP BY cluster"
        )

    rows = lake.query(" UNION ALL ".join(map(counts, days)), *{rule.table.name: rule.table for rule in days}.values())
    of_lag = {_name(rule) for rule in days if rule.table is LAG}
    return sorted(rows, key=lambda row: (row["name"] not in of_lag, row["name"], row["cluster"]))


def _mark_removed(lake: Lake, cluster: str, first_day: date) -> None:
    """Marks in `computed` that the lag of a cluster's snapshots before a day was removed, so that reports skip it."""
    first_ms = to_epoch_ms(datetime.combine(first_day, datetime.min.time(), UTC))
    where = f"{of_cluster(cluster)} AND {one_of('job', (JOB, REMOVED))} AND snapshot_id < {first_ms}"
    marks = lake.rows(COMPUTED, where)
    lake.replace(COMPUTED, marks.grouped(SNAPSHOT, _as_removed, COMPUTED.schema), where)


def _as_removed(marks: pa.Table) -> pa.Table:
    """The marks as those of removed lag. A job that was killed may have left two of a snapshot."""
    with arrow_queries({"marks": marks}) as queries:
        distinct = f"SELECT DISTINCT ON ({names_sql(SNAPSHOT)}) * REPLACE ('{REMOVED}' AS job) FROM marks"
        return queries.rows(distinct).cast(arrow_schema(COMPUTED.schema))
