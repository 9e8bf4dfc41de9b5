"""What the page shows beside the lag of groups: partitions, findings, gauges, brokers.

Arrow tables in, Arrow tables out. Columns are those of the classes in `model.details`; instants are epoch ms.
"""

from __future__ import annotations

import pyarrow as pa

from pipeline.analytics.keys import GROUP, MEMBER
from pipeline.common.arrow_sql import columns_sql, epoch_ms_sql, list_sql, names_sql, queried, struct_sql
from pipeline.report.charts.timeline import CLIENTS_NAMED
from pipeline.report.model.details import Change, Forecast, Gauge, Objective, Partition
from pipeline.report.model.report import names_of
from pipeline.tables import FORECASTS, SEVERITIES

MEASURES = ("kip532_bytes", "kip532_ms", "reuse_bytes")
"""The measures that are shown by broker."""
CLIENTS_READ = CLIENTS_NAMED + 1
"""One more than is named, to know whether there are others."""
_IS_USUAL = "coalesce(offset_status IN ('ok', 'no_commit'), false)"
_WORST_FIRST = f"{_IS_USUAL}, consumer_lag DESC NULLS LAST, topic, rows.partition"
WORST_FIRST = f"{_WORST_FIRST}, group_id, cluster"
"""The order of partitions, for Spark and DuckDB: unusual offsets first, then by lag, unknown lag last.

The rows of `lag` are called `rows` in it.
"""


def partitions(lag: pa.Table, limit: int) -> pa.Table:
    """The `limit` worst partitions of each group, in the order of WORST_FIRST."""
    return queried(
        f"""
        SELECT {names_sql(names_of(Partition))} FROM (
            SELECT *, row_number() OVER (PARTITION BY {names_sql(GROUP)} ORDER BY {_WORST_FIRST}) AS nth
            FROM given AS rows WHERE topic IS NOT NULL
        )
        WHERE nth <= {limit} ORDER BY {names_sql(GROUP)}, nth
        """,
        given=lag,
    )


_OF_FINDING = {
    **{n: n for n in ("kind", "cluster", "group_id", "client_id", "topic", "partitions", "severity")},
    "first_seen_ms": epoch_ms_sql("first_seen"),
    "last_seen_ms": epoch_ms_sql("last_seen"),
    "resolved_ms": epoch_ms_sql("resolved_at"),
    **{n: n for n in ("summary", "evidence", "advice")},
    "worst_ms": epoch_ms_sql("worst_at"),
    **{n: n for n in ("owner", "tier", "channel", "finding_id", "instance", "silenced", "cause_id")},
}


def findings(findings: pa.Table, limit: int, first: str | None = None) -> pa.Table:
    """The `limit` most important findings: that with the id `first`, open ones, then by severity, then the newest."""
    return queried(
        f"""
        SELECT {columns_sql(_OF_FINDING)} FROM findings
        ORDER BY finding_id IN (FROM first) DESC, resolved_at IS NOT NULL,
            list_position({[*SEVERITIES[::-1]]}, severity) NULLS LAST, first_seen DESC, finding_id
        LIMIT {limit}
        """,
        findings=findings,
        first=pa.table({"id": pa.array([] if first is None else [first], pa.string())}),
    )


def changes(group_changes: pa.Table, limit: int) -> pa.Table:
    """What has changed in each group, at the `limit` newest snapshots of the group with a change, as `Change`."""
    columns = {
        "rows": "count(*)",
        "partitions": "coalesce(sum(len(partitions)), 0)::BIGINT",
        "before": "max(before)",
        "after": "max(after)",
        "clients": f"{list_sql('client_id')}[:{CLIENTS_READ}]",
    }
    key = names_sql([*GROUP, "snapshot_id", "change"])
    return queried(
        f"""
        SELECT {names_sql(names_of(Change))} FROM (
            SELECT {key}, {columns_sql(columns)},
                dense_rank() OVER (PARTITION BY {names_sql(GROUP)} ORDER BY snapshot_id DESC) AS nth
            FROM group_changes GROUP BY {key}
        )
        WHERE nth <= {limit} ORDER BY {key}
        """,
        group_changes=group_changes,
    )


FORECAST_READ = (*(n for n in names_of(Forecast) if n in FORECASTS.columns), "ends_at", "topic")


def forecasts(forecasts: pa.Table) -> pa.Table:
    """The forecasts of groups for all of their topics together, as `Forecast`."""
    rows = f"(SELECT *, {epoch_ms_sql('ends_at')} AS ends_ms FROM forecasts WHERE topic IS NULL)"
    return queried(
        f"SELECT {names_sql(names_of(Forecast))} FROM {rows} ORDER BY cluster, group_id", forecasts=forecasts
    )


def objectives(slo: pa.Table, limit: int) -> pa.Table:
    """The `limit` objectives with the least error budget left, as `Objective`; unknown ones come last."""
    worst = f"ORDER BY budget_left NULLS LAST, cluster, slo, group_id LIMIT {limit}"
    return queried(f"SELECT {names_sql(names_of(Objective))} FROM given {worst}", given=slo)


GAUGE_READ = (*names_of(Gauge), "hidden_lag")


def gauges(divergence: pa.Table, clients: int) -> pa.Table:
    """The rows, by time, of the `clients` clients whose gauge was the most misleading, with all columns."""
    member = ", ".join(f"{name} NULLS FIRST" for name in MEMBER)
    worst = f"count(*) FILTER (verdict <> 'truthful') DESC, max(hidden_lag) DESC NULLS LAST, {member}"
    return queried(
        f"""
        SELECT given.* FROM given SEMI JOIN (
            SELECT {names_sql(MEMBER)} FROM given GROUP BY ALL ORDER BY {worst} LIMIT {clients}
        ) AS worst ON {" AND ".join(f"given.{name} IS NOT DISTINCT FROM worst.{name}" for name in MEMBER)}
        ORDER BY snapshot_id, {names_sql(MEMBER)}
        """,
        given=divergence,
    )


def names(lag: pa.Table, limit: int) -> pa.Table:
    """The first `limit` topics, clients and hosts of each group, as `Names`."""
    sets = {"topics": list_sql("topic"), "clients": list_sql("client_id"), "hosts": list_sql("host")}
    return queried(
        f"""
        SELECT {names_sql(GROUP)}, {columns_sql({name: f"{name}[:{limit}]" for name in sets})},
            greatest({", ".join(f"len({name})" for name in sets)}) > {limit} AS is_cut
        FROM (SELECT {names_sql(GROUP)}, {columns_sql(sets)} FROM lag GROUP BY {names_sql(GROUP)})
        ORDER BY {names_sql(GROUP)}
        """,
        lag=lag,
    )


VERDICT_READ = (*GROUP, "client_id", "max_lag", "max_consumer_lag", "verdict", "hidden_lag")


def verdicts(divergence: pa.Table) -> pa.Table:
    """What the gauges of the clients of each group show, as `Verdict`: a row for each group with such clients."""
    is_misleading = "coalesce(verdict IN ('blind', 'stale'), false)"
    shown = {name: name for name in ("client_id", "max_lag", "max_consumer_lag", "verdict")}
    most = {
        "is_misleading": is_misleading,
        "hidden": "coalesce(hidden_lag, -1)",
        "is_known": "verdict IS NOT NULL",
        "client": "coalesce(client_id, '')",
    }
    return queried(
        f"""
        SELECT {names_sql(GROUP)}, count(*) AS clients, count(*) FILTER ({is_misleading}) AS misleading,
            unnest(arg_max({struct_sql(shown)}, {struct_sql(most)}))
        FROM divergence GROUP BY {names_sql(GROUP)} ORDER BY {names_sql(GROUP)}
        """,
        divergence=divergence,
    )


def distributions(histograms: pa.Table) -> pa.Table:
    """Histograms by broker: cluster, broker, measure, and the buckets."""
    return queried(
        """
        SELECT cluster, scope_value::INTEGER AS broker, measure, zero_count, negative_count, null_count, bucket_offset,
            bucket_counts, max
        FROM histograms ORDER BY cluster, broker, measure
        """,
        histograms=histograms,
    )
