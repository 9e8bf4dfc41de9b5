"""How much of its error budget each group has used: from sums that each snapshot continues, and their differences.

A snapshot speaks for the time since the snapshot before. Each row has the sums of this time since they began, so the
time in any window is the difference of two rows, and the cost of a snapshot does not depend on the length of windows.

An expression here is SQL text for DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from pipeline.analytics.keys import GROUP
from pipeline.analytics.slo.objectives import OBJECTIVE_LAG, objectives_met
from pipeline.common.arrow_sql import arrow_queries, columns_sql, epoch_ms_sql, names_sql, struct_sql
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import HOUR_MS
from pipeline.config.slo import SloConfig
from pipeline.tables import SLO

SHORT_MS = {"hour": HOUR_MS, "six_hours": 6 * HOUR_MS}
"""The times over which burn rates are computed, by the prefix of their columns."""
WINDOW = "window"
_PREFIXES = (*SHORT_MS, WINDOW)
_BUDGET = [*GROUP, "slo"]
_CHAIN = [*_BUDGET, "begun_ms"]
"""Rows whose sums continue each other."""
_DEFINITION = ("objective", "topics", "window_ms")
"""If one of these columns changes, the sums would mean something else. The target may change."""
_LAST = ("last_missed_at", "last_missed_ms", "last_known_is_met")
"""What each row knows of the newest rows of its chain, up to itself."""
SLO_PARTS: dict[str, StructType] = {
    "lag": OBJECTIVE_LAG,
    "known": SLO.some(
        [
            *(*_BUDGET, "snapshot_id", *_DEFINITION, "begun_at", "met_ms", "missed_ms", *_LAST),
            *(f"{prefix}_{name}" for prefix in _PREFIXES for name in ("from", "met_ms", "missed_ms")),
        ]
    ),
}
"""What `slo_of_groups` is computed from."""
_SLOS = pa.schema(
    {
        "slo": pa.string(),
        "objective": pa.string(),
        "topics": pa.string(),
        "window_ms": pa.int64(),
        "target": pa.float64(),
    }
)
_SNAPSHOTS = pa.schema(dict.fromkeys(("snapshot_id", "earlier_snapshot_id", "counted_ms", "reach"), pa.int64()))


@dataclass(frozen=True)
class Timeline:
    """The snapshots of a batch. Each mapping has a value for each of them.

    `earlier`: the snapshot of the cluster just before; the first of all has none. `counted_ms`: for how much of the
    time since then the snapshot speaks. `reach`: the oldest snapshot that it may continue from.
    """

    earlier: Mapping[int, int]
    counted_ms: Mapping[int, int]
    reach: Mapping[int, int]


def slo_of_groups(bucket: Bucket, slos: Mapping[str, SloConfig], markers: int, timeline: Timeline) -> pa.Table:
    """The rows of SLO for some groups, in all snapshots of a batch, from rows of SLO_PARTS: see the functions it calls.

    `lag` are all rows of these groups in the batch. Raises BadValueError if a value fits no type.
    """
    return budgets(objectives_met(bucket["lag"], slos, markers), bucket["known"], slos, timeline)


def budgets(met: pa.Table, known: pa.Table, slos: Mapping[str, SloConfig], timeline: Timeline) -> pa.Table:
    """The rows of SLO from rows of `objectives_met`.

    `known` are rows of SLO of snapshots before the batch: those from which groups continue, and those at which a window
    begins now that did not begin there before. Sums begin again if the objective, its topics or its window have
    changed; the target may change. Raises BadValueError if a value fits no type.
    """
    definitions = [slo.model_dump(include={*_SLOS.names}) | {"slo": name} for name, slo in slos.items()]
    tables = {
        "met": met,
        "known": known,
        "slos": pa.Table.from_pylist(definitions, _SLOS),
        "snapshots": pa.Table.from_pylist([*_snapshots(timeline)], _SNAPSHOTS),
    }
    with arrow_queries(tables) as queries:
        rows = queries.rows(_BUDGETS)
    return rows.select(SLO.columns).cast(arrow_schema(SLO.schema))


def _snapshots(timeline: Timeline) -> Iterator[dict[str, int | None]]:
    for snapshot_id, reach in timeline.reach.items():
        yield {
            "snapshot_id": snapshot_id,
            "earlier_snapshot_id": timeline.earlier.get(snapshot_id),
            "counted_ms": timeline.counted_ms[snapshot_id],
            "reach": reach,
        }


_IS_SAME = " AND ".join(f"known.{name} IS NOT DISTINCT FROM slos.{name}" for name in ("slo", *_DEFINITION))
_STORED = f"SELECT *, {epoch_ms_sql('begun_at')} AS begun_ms FROM known SEMI JOIN slos ON {_IS_SAME}"
"""The known rows whose sums mean the same as today's."""
_LATEST = f"SELECT {names_sql(_BUDGET)}, arg_max(stored, snapshot_id) AS latest FROM stored GROUP BY ALL"
"""The newest of these rows of each group."""
_SERIES = f"(PARTITION BY {names_sql(_BUDGET)} ORDER BY snapshot_id)"
_FOLLOWED = f"""
    SELECT met.*, earlier_snapshot_id, counted_ms, latest,
        coalesce(lag(snapshot_id) OVER {_SERIES}, latest['snapshot_id']) AS last_id,
        last_id IS NULL OR last_id < reach AS is_first
    FROM met JOIN snapshots USING (snapshot_id) LEFT JOIN latest USING ({names_sql(_BUDGET)})
"""
"""The new rows. `is_first`: whether sums begin there, because the row before is not in the reach."""
# The time of a first row is 0, because it is not known since when its state lasts.
_IN_RUNS = f"""
    SELECT * REPLACE (CASE WHEN is_first THEN 0 ELSE counted_ms END AS counted_ms),
        count(*) FILTER (is_first) OVER {_SERIES} AS run,
        CASE WHEN run = 0 THEN latest END AS continued
    FROM followed
"""
"""The new rows with their runs, over which sums go on. The first run continues the latest stored row."""


def _sum_sql(name: str, condition: str) -> str:
    added = f"sum(CASE WHEN {condition} THEN counted_ms ELSE 0 END) OVER by_run"
    return f"(coalesce(continued['{name}'], 0) + {added})::BIGINT"


_CONTINUED_MISS_MS = epoch_ms_sql("continued['last_missed_at']")
_MISS = struct_sql({"at_ms": "snapshot_id", "counted_ms": "counted_ms"})
_SUMS = {
    "begun_ms": "coalesce(continued['begun_ms'], first_value(snapshot_id) OVER by_run)",
    "met_ms": _sum_sql("met_ms", "is_met"),
    "missed_ms": _sum_sql("missed_ms", "NOT is_met"),
    "miss": f"last_value(CASE WHEN NOT is_met THEN {_MISS} END IGNORE NULLS) OVER by_run",
    "last_missed_at_ms": f"coalesce(miss['at_ms'], {_CONTINUED_MISS_MS})",
    "last_missed_ms": "coalesce(miss['counted_ms'], continued['last_missed_ms'])",
    "last_known_is_met": "coalesce(last_value(is_met IGNORE NULLS) OVER by_run, continued['last_known_is_met'])",
}
_SUMMED = f"""
    SELECT *, {columns_sql(_SUMS)} FROM in_runs
    WINDOW by_run AS (PARTITION BY {names_sql(_BUDGET)}, run ORDER BY snapshot_id)
"""
"""The new rows with the sums since their chains began."""


def _points_sql() -> str:
    """The query for the sums of each chain at some earlier snapshots.

    They are those of stored rows, and those where the windows of the latest row began: these rows are not read again.
    """
    points = [f"SELECT {names_sql(_CHAIN)}, snapshot_id, met_ms, missed_ms FROM stored"]
    for prefix in _PREFIXES:
        begin = {
            "begun_ms": "latest['begun_ms']",
            "snapshot_id": epoch_ms_sql(f"latest['{prefix}_from']"),
            **{name: f"latest['{name}'] - latest['{prefix}_{name}']" for name in ("met_ms", "missed_ms")},
        }
        points.append(f"SELECT {names_sql(_BUDGET)}, {columns_sql(begin)} FROM latest")
    return " UNION ALL ".join(points)


def _begin_sql(length_ms: str) -> str:
    """The sums at the newest point of the chain that is `length_ms` old or older; at its begin if there is none."""
    point = struct_sql({name: name for name in ("snapshot_id", "met_ms", "missed_ms")})
    first = struct_sql({"snapshot_id": "begun_ms", "met_ms": "0", "missed_ms": "0"})
    until = f"ORDER BY snapshot_id RANGE BETWEEN UNBOUNDED PRECEDING AND {length_ms} PRECEDING"
    # The greatest, because two points may be of the same snapshot; and a late one adds nothing to the sums.
    return f"coalesce(max({point}) OVER (PARTITION BY {names_sql(_CHAIN)} {until}), {first})"


_BEGINS = {
    **{f"{prefix}_begin": _begin_sql(str(length_ms)) for prefix, length_ms in SHORT_MS.items()},
    f"{WINDOW}_begin": _begin_sql("window_ms"),
}
_BEGUN = f"""
    SELECT *, {columns_sql(_BEGINS)}
    FROM (SELECT *, true AS is_new FROM summed UNION ALL BY NAME SELECT *, false AS is_new FROM points)
    JOIN slos USING (slo)
    QUALIFY is_new
"""
"""The new rows with the points at which their windows begin."""


def _instant_sql(at_ms: str) -> str:
    return f"make_timestamp({at_ms} * 1000)"


def _difference_columns() -> dict[str, str]:
    columns = {}
    for prefix in _PREFIXES:
        columns[f"{prefix}_from"] = _instant_sql(f"{prefix}_begin['snapshot_id']")
        for name in ("met_ms", "missed_ms"):
            columns[f"{prefix}_{name}"] = f"greatest({name} - {prefix}_begin['{name}'], 0)"
    return columns


def _burn_rate_sql(prefix: str) -> str:
    """The share of the time that was missed, divided by the share that may be missed. Unknown time is not missed."""
    length_ms = SHORT_MS[prefix]
    rate = f"least({prefix}_missed_ms, {length_ms}) / {length_ms} / (1 - target)"
    return f"CASE WHEN snapshot_id - begun_ms >= {length_ms} THEN {rate} END"


_KNOWN_MS = "window_met_ms + window_missed_ms"
# A window begins at a snapshot, so it may be a little longer than `window_ms`.
_PASSED_MS = "least(snapshot_id - window_begin['snapshot_id'], window_ms)"
_USED = "least(window_missed_ms, window_ms) / ((1 - target) * window_ms)"
_COLUMNS = {
    "begun_at": _instant_sql("begun_ms"),
    "last_missed_at": _instant_sql("last_missed_at_ms"),
    **_difference_columns(),
    "window_unknown_ms": f"greatest({_PASSED_MS} - ({_KNOWN_MS}), 0)",
    "attainment": f"CASE WHEN {_KNOWN_MS} > 0 THEN window_met_ms / ({_KNOWN_MS}) END",
    "budget_left": f"CASE WHEN {_KNOWN_MS} > 0 THEN 1 - {_USED} END",
    "burn_rate_1h": _burn_rate_sql("hour"),
    "burn_rate_6h": _burn_rate_sql("six_hours"),
}
_BUDGETS = f"""
    WITH stored AS ({_STORED}), latest AS ({_LATEST}), followed AS ({_FOLLOWED}), in_runs AS ({_IN_RUNS}),
    summed AS ({_SUMMED}), points AS ({_points_sql()}), begun AS ({_BEGUN})
    SELECT *, {columns_sql(_COLUMNS)} FROM begun
"""
