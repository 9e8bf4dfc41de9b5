"""The DataFrames that a report is made from: the tables that it reads, and which part of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.as_known import findings_as_known
from pipeline.analytics.status.group_status import group_status
from pipeline.common.data_source import MOST_SEARCHED
from pipeline.common.epoch import DAY_MS, now_ms, utc, utc_date
from pipeline.config.notify import Silence
from pipeline.lake import Lake, further_back, of_each, one_of, since_days
from pipeline.report.selection import Selection
from pipeline.tables import (
    CLIENT_DIVERGENCE,
    COMPUTED,
    FINDING_HISTORY,
    FINDINGS,
    FORECASTS,
    GROUP_CHANGES,
    GROUP_STATUS,
    LAG,
    LAG_HISTOGRAMS,
    PARTITION_STATUS,
    QUARANTINE,
    READABLE,
    SLO,
    SNAPSHOTS,
    Table,
)

DAYS = 7
"""How many days, up to each cluster's newest snapshot, are shown if no beginning is given."""
_DAYS_OF = {
    SNAPSHOTS: "snapshot_date",
    COMPUTED: "snapshot_date",
    QUARANTINE: "snapshot_date",
    FINDINGS: "CAST(last_seen AS DATE)",
    GROUP_CHANGES: "snapshot_date",
}
"""The tables that are read once for the whole report, with the expression for the day of a row. Others are read by
snapshot."""


@dataclass(frozen=True)
class Frames:
    """The tables that the page is made of. Those that are None are left out of the page.

    `computed` says which snapshots have lag. Without it, those with a row in `lag` are used: this is slower on a long
    history, and a snapshot without any group looks as if it had not been computed.
    """

    snapshots: DataFrame = field(metadata={"table": SNAPSHOTS})
    lag: DataFrame = field(metadata={"table": LAG})
    computed: DataFrame | None = field(default=None, metadata={"table": COMPUTED})
    findings: DataFrame | None = field(default=None, metadata={"table": FINDINGS})
    finding_history: DataFrame | None = field(default=None, metadata={"table": FINDING_HISTORY})
    divergence: DataFrame | None = field(default=None, metadata={"table": CLIENT_DIVERGENCE})
    histograms: DataFrame | None = field(default=None, metadata={"table": LAG_HISTOGRAMS})
    groups: DataFrame | None = field(default=None, metadata={"table": GROUP_STATUS})
    partitions: DataFrame | None = field(default=None, metadata={"table": PARTITION_STATUS})
    changes: DataFrame | None = field(default=None, metadata={"table": GROUP_CHANGES})
    forecasts: DataFrame | None = field(default=None, metadata={"table": FORECASTS})
    slo: DataFrame | None = field(default=None, metadata={"table": SLO})
    quarantine: DataFrame | None = field(default=None, metadata={"table": QUARANTINE})
    selection: Selection = field(default_factory=Selection)
    days: int | None = None
    """The tables have only this many days up to each cluster's newest snapshot; None if they have all that is selected.
    """
    silences: tuple[Silence, ...] = ()
    """Those of the configuration: a finding that is silenced is shown with the reason."""
    lake: Lake | None = None
    """Where more of the tables can be read; None if the DataFrames are all there is."""

    @classmethod
    def of(cls, lake: Lake, selection: Selection, silences: tuple[Silence, ...] = ()) -> Frames:
        """The selected part of the tables of a lake."""
        days = DAYS if selection.from_ms is None else None
        since = _first_days(lake, selection.to_ms, days) if days else {}

        def rows(table: Table) -> DataFrame:
            if table in _DAYS_OF:
                return lake.frame(table, since_days(since, _DAYS_OF[table]) if since else "true")
            is_read = table is FINDING_HISTORY and selection.to_ms is not None  # by `_findings_as_known`
            return lake.read(table) if is_read else lake.frame(table, "false")  # `at` reads it

        tables: dict[str, Any] = {
            name: rows(table)
            for name, table in cls._tables().items()
            if table is not PARTITION_STATUS or selection.topic is not None  # else group_status says all of it
        }
        return cls(**tables, days=days, silences=silences, lake=lake).selected(selection)

    def at(self, name: str, wanted: Mapping[str, Collection[int]], columns: Sequence[str] = ()) -> DataFrame:
        """The rows of a table at the wanted snapshots of each cluster, with some of its columns or with all."""
        table = self._tables()[name]
        where = of_each(wanted, windows="window_start" in table.columns)
        if self.lake is not None:
            return self.lake.frame(table, where, *columns).where(_is_in(table, self.selection))
        rows: DataFrame = getattr(self, name)
        return rows.where(where)

    @property
    def has_groups(self) -> bool:
        """Whether GROUP_STATUS can be used: its rows are of all topics, so not if only some topics are selected."""
        return self.groups is not None and self.selection.topic is None

    def groups_at(self, wanted: Mapping[str, Collection[int]]) -> DataFrame:
        """Rows of GROUP_STATUS at the wanted snapshots; of some topics, if only these are selected."""
        return self.at("groups", wanted) if self.has_groups else self.groups_from_lag(wanted)

    def groups_from_lag(self, wanted: Mapping[str, Collection[int]]) -> DataFrame:
        """The same, computed from `lag`: for snapshots that an older laglake has computed, without a status."""
        return group_status(self.at("lag", wanted), self.partitions and self.at("partitions", wanted))

    def until(self, now: datetime) -> datetime:
        """The end of the selected time; now if it has none."""
        to_ms = self.selection.to_ms
        return now if to_ms is None else utc(to_ms)

    def selected(self, selection: Selection) -> Frames:
        """The same tables with only the selected rows; findings as they were known at the end of the selected time."""
        found = {name: (getattr(self, name), table) for name, table in self._tables().items()}
        found["findings"] = self._findings_as_known(selection), FINDINGS
        rows = {name: df.where(_is_in(table, selection)) for name, (df, table) in found.items() if df is not None}
        return replace(self, selection=selection, **rows)

    def _findings_as_known(self, selection: Selection) -> DataFrame | None:
        if self.findings is None or selection.to_ms is None:
            return self.findings
        history = self.finding_history
        if history is None:
            history = self.findings.sparkSession.createDataFrame([], FINDING_HISTORY.schema)
        until_then = Selection(selection.clusters, to_ms=selection.to_ms)
        return findings_as_known(self.findings, history.where(_is_in(FINDING_HISTORY, until_then)), selection.to_ms)

    @classmethod
    def _tables(cls) -> dict[str, Table]:
        return {f.name: f.metadata["table"] for f in fields(cls) if "table" in f.metadata}


def _first_days(lake: Lake, to_ms: int | None, days: int) -> dict[str, date]:
    """The first day that is shown of each cluster: `days` before its newest readable snapshot up to `to_ms`.

    Clusters of which snapshots are still taken are found among the newest rows of the ledger. Of the others, such as
    recordings, all rows are read.
    """
    until_ms = now_ms() if to_ms is None else to_ms
    is_early = "true" if to_ms is None else f"snapshot_id <= {to_ms}"
    newest: dict[str, int] = {}
    for is_new in (further_back(until_ms)[0], "true"):
        is_other = f"NOT {one_of('cluster', sorted(newest))}" if newest else "true"
        statement = (
            f"SELECT cluster, max(CASE WHEN {one_of('status', READABLE)} THEN snapshot_id END) AS readable, "
            f"max(snapshot_id) AS newest FROM {{snapshots}} WHERE {is_new} AND {is_early} AND {is_other} "
            "GROUP BY cluster"
        )
        rows = lake.query(statement, SNAPSHOTS)
        newest |= {row["cluster"]: row["readable"] for row in rows if row["readable"] is not None}
        if is_new == "true":  # if a cluster has failed for a week, the week before that is shown: old lag is something
            newest |= {row["cluster"]: row["newest"] for row in rows if row["cluster"] not in newest}
    return {cluster: utc_date(snapshot_id - days * DAY_MS) for cluster, snapshot_id in newest.items()}


def _is_in(table: Table, selection: Selection) -> Column:
    """Whether a row is selected, as far as its columns show. If a name is selected, NULL does not match it."""
    conditions = [F.lit(True)]
    if selection.clusters is not None:
        conditions.append(F.col("cluster").isin(*selection.clusters))
    from_ms, to_ms = selection.from_ms, selection.to_ms
    if "snapshot_id" in table.columns:
        conditions += _between("snapshot_id", from_ms, to_ms)
    if "snapshot_date" in table.columns:  # so that files of other days are not opened
        conditions += _between("snapshot_date", *(None if ms is None else utc_date(ms) for ms in (from_ms, to_ms)))
    if table is FINDINGS:  # those that lasted at some time in between
        conditions += _between(F.unix_millis("last_seen"), from_ms, None)
        conditions += _between(F.unix_millis("first_seen"), None, to_ms)
    if selection.group_ids is not None and "group_id" in table.columns:
        is_of_all = F.lit(table is FINDINGS) & F.col("group_id").isNull()
        conditions.append(F.col("group_id").isin(*selection.group_ids) | is_of_all)  # or a topic is the cause
    conditions += [
        _has_name(table, name, pattern)
        for name, pattern in (("group_id", selection.group), ("topic", selection.topic))
        if pattern is not None and name in table.columns
    ]
    return reduce(and_, conditions)


def _has_name(table: Table, name: str, pattern: str) -> Column:
    """Whether a name matches. A finding about a topic or a cluster counts if it may concern a group that matches."""
    is_found = F.substring(name, 1, MOST_SEARCHED).rlike(pattern)
    if table is not FINDINGS:
        return is_found
    if name == "topic":
        return is_found | F.col(name).isNull()  # some findings are not about one topic
    facts = F.from_json("evidence", "groups array<string>, groups_affected bigint")
    names_one = F.exists(facts["groups"], lambda group: F.substring(group, 1, MOST_SEARCHED).rlike(pattern))
    may_concern = F.coalesce(names_one | (facts["groups_affected"] > F.size(facts["groups"])), F.lit(True))
    return is_found | (F.col(name).isNull() & F.col("client_id").isNull() & may_concern)


def _between(value: str | Column, least: int | date | None, most: int | date | None) -> list[Column]:
    column = F.col(value) if isinstance(value, str) else value
    conditions = [] if least is None else [column >= F.lit(least)]
    return conditions if most is None else [*conditions, column <= F.lit(most)]
