"""The excerpt of a lake that a report is made from: the tables that it reads, and which part of each."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.analytics.findings.as_known import findings_as_known, lasting_at
from pipeline.analytics.keys import FINDING, SNAPSHOT
from pipeline.analytics.lag.group_sums import SUMMED_LAG
from pipeline.analytics.status.group_status import GROUP_PARTS, group_status
from pipeline.common.data_source import NameFilter
from pipeline.common.epoch import DAY_MS, now_ms, to_epoch_ms, utc, utc_date, utc_now
from pipeline.common.rows import Rows
from pipeline.config.notify import Silence
from pipeline.kinds import SHARED
from pipeline.kinds.causes import with_causes_merged
from pipeline.lake import Lake, among, further_back, instant_literal, of_each, one_of, since_days
from pipeline.report.model.selection import Selection
from pipeline.report.read import aggregates, details
from pipeline.tables import (
    COMPUTED,
    FINDING_HISTORY,
    FINDINGS,
    GROUP_CHANGES,
    GROUP_STATUS,
    LAG,
    LAG_HISTOGRAMS,
    PARTITION_STATUS,
    QUARANTINE,
    READABLE,
    SNAPSHOTS,
    Table,
)

DAYS = 7
"""How many days, up to each cluster's newest snapshot, are shown if no beginning is given."""
Wanted = Mapping[str, Collection[int]]
"""Snapshots of each cluster."""


@dataclass(frozen=True)
class Excerpt:
    """What is selected of a lake. `silences` are those of the configuration: a finding is shown with their reason."""

    lake: Lake
    selection: Selection = field(default_factory=Selection)
    silences: tuple[Silence, ...] = ()

    @property
    def days(self) -> int | None:
        """How many days up to each cluster's newest snapshot it has; None if it has all that is selected."""
        return DAYS if self.selection.from_ms is None else None

    def until(self, now: datetime) -> datetime:
        """The end of the selected time; now if it has none."""
        to_ms = self.selection.to_ms
        return now if to_ms is None else utc(to_ms)

    def ledger(self) -> pa.Table:
        """The rows of `snapshots`, see `aggregates.ledger`."""
        snapshots = self.lake.rows(SNAPSHOTS, self._selected(SNAPSHOTS), *aggregates.LEDGER_READ)
        computed = self.lake.rows(COMPUTED, f"{self._selected(COMPUTED)} AND job = 'lag'", *SNAPSHOT)
        return aggregates.ledger(snapshots.collected_table(), computed.collected_table())

    def refused(self) -> int:
        """How many rows are in quarantine."""
        (row,) = self.lake.query(
            f"SELECT count(*) AS rows FROM {{quarantine}} WHERE {self._selected(QUARANTINE)}", QUARANTINE
        )
        return int(row["rows"])

    def findings(self) -> pa.Table:
        """The rows of `findings` as they were known at the end of the selected time, those with one cause as one."""
        causes = self._known.filter(self._is_selected)["cause_id"].unique()
        of_causes = pc.and_(pc.is_valid(self._known["cause_id"]), pc.is_in(self._known["cause_id"], causes))
        return _merged(self._known.filter(pc.or_(self._is_selected, of_causes)))

    @cached_property
    def _is_selected(self) -> pa.Array:
        """Which of the rows of findings may concern the selected groups, topics and time."""
        names = [*FINDING, "last_seen", "group_id", "client_id", "topic", "evidence"]
        concerns = _concerns(self.selection)
        return pa.array([concerns(row) for row in self._known.select(names).to_pylist()], pa.bool_())

    def with_causes(self, groups: Collection[str]) -> pa.Table:
        """The selected rows of findings that have causes, those of some groups."""
        found = self._known.filter(self._is_selected)
        is_among = pc.is_in(found["group_id"], pa.array(groups, pa.string()))
        return found.filter(pc.and_(pc.is_valid(found["cause_id"]), is_among))

    @cached_property
    def _known(self) -> pa.Table:
        """The rows of `findings` of the selected clusters and time, with all that have the same causes, as known then.

        `silenced` is why no messages are sent about one that has a cause.
        """
        selected = self._selected(FINDINGS)
        found = self.lake.rows(FINDINGS, selected).collected_table()
        causes = [name for name in found["cause_id"].unique().to_pylist() if name is not None]
        if causes:
            others = f"{self._of_clusters()} AND {among('cause_id', causes)} AND NOT ({selected})"
            of_causes = self.lake.rows(FINDINGS, others).where_in("cause_id", causes).collected_table()
            found = pa.concat_tables([found, of_causes.cast(found.schema)])
        to_ms = self.selection.to_ms
        if to_ms is not None:
            found = findings_as_known(found, self._history(lasting_at(found, to_ms), to_ms), to_ms)
        silenced = map(self._why_silenced, found.to_pylist()) if self.silences else [None] * len(found)
        return found.append_column("silenced", pa.array(silenced, pa.string()))

    def _why_silenced(self, finding: Mapping[str, Any]) -> str | None:
        if finding["cause_id"] is None:
            return None
        kinds = {finding["kind"], SHARED[finding["kind"]]}
        of = finding["cluster"], finding["group_id"], finding["topic"]
        at = self.until(utc_now())
        covering = (s.reason for s in self.silences if any(s.covers(*of, kind, at) for kind in kinds))
        return next(covering, None)

    def findings_at(self, wanted: Wanted) -> list[Mapping[str, Any]]:
        """The rows of `finding_history` at the wanted snapshots, one for those with the same cause."""
        return with_causes_merged(self.lake.rows(FINDING_HISTORY, of_each(wanted)).collected())

    def _history(self, findings: pa.Table, to_ms: int) -> Rows:
        """The rows of `finding_history` of some findings, up to the end of the selected time."""
        ids = findings["finding_id"].to_pylist()
        begin = min(findings["first_seen"].to_pylist(), default=utc(to_ms))
        time = f"snapshot_id <= {to_ms} AND snapshot_date >= DATE'{utc_date(to_epoch_ms(begin))}'"
        where = f"{time} AND {self._of_clusters()} AND {among('finding_id', ids)}"
        return self.lake.rows(FINDING_HISTORY, where).where_in("finding_id", ids)

    def changes(self, groups: Collection[str]) -> Rows:
        """The rows of `group_changes` of some groups."""
        return self._rows(GROUP_CHANGES, self._selected(GROUP_CHANGES), (), groups)

    def histograms(self, wanted: Wanted) -> pa.Table:
        """The rows of `lag_histograms` of brokers at the wanted snapshots, of the measures that are shown."""
        where = f"({of_each(wanted, windows=True)}) AND scope = 'broker' AND {one_of('measure', details.MEASURES)}"
        return self.lake.rows(LAG_HISTOGRAMS, where).collected_table()

    def at(
        self, table: Table, wanted: Wanted, columns: Sequence[str] = (), groups: Collection[str] | None = None
    ) -> Rows:
        """The rows at the wanted snapshots, of the selected groups and topics; if names are given, of these groups.

        They have some of the columns, with those by which rows are selected, or all of them.
        """
        return self._rows(table, f"({of_each(wanted)})", columns, groups)

    def groups_at(self, wanted: Wanted, columns: Sequence[str] = GROUP_STATUS.columns) -> Rows:
        """Rows of GROUP_STATUS at the wanted snapshots; of the selected topics alone, if some are selected.

        Where the table has none, they are computed from `lag`: it has none of topics, and none of a snapshot that an
        older laglake has computed.
        """
        where = "false" if self.selection.topic is not None else of_each(wanted)
        judged = self.lake.query(
            f"SELECT DISTINCT cluster, snapshot_id FROM {{group_status}} WHERE {where}", GROUP_STATUS
        )
        have = by_cluster((row["cluster"], row["snapshot_id"]) for row in judged)
        lacking = {cluster: {*ids} - {*have.get(cluster, ())} for cluster, ids in wanted.items()}
        parts = [self.at(GROUP_STATUS, have, columns)] if have else []
        if any(lacking.values()):
            parts.append(self._groups_from_lag(lacking))
        return Rows.all_of(parts, GROUP_STATUS.some(columns))

    def _groups_from_lag(self, wanted: Wanted) -> Rows:
        parts = {"lag": self.at(LAG, wanted, (*SUMMED_LAG, "topic"))}
        if self.selection.topic is not None:
            parts["statuses"] = self.at(PARTITION_STATUS, wanted, GROUP_PARTS["statuses"].names)
        return group_status(parts)

    def _rows(self, table: Table, where: str, columns: Sequence[str], groups: Collection[str] | None) -> Rows:
        named = dict(self._names(table, where, groups))
        predicates = [where, *(among(column, names) for column, names in named.items())]
        rows = self.lake.rows(table, " AND ".join(predicates), *columns)
        for column, names in named.items():
            rows = rows.where_in(column, [*names])
        return rows

    def _names(self, table: Table, where: str, groups: Collection[str] | None) -> Iterator[tuple[str, Collection[str]]]:
        """The names of groups and topics to which the rows of a table are limited."""
        patterns = {"topic": self.selection.topic}
        if groups is None:
            groups, patterns["group_id"] = self.selection.group_ids, self.selection.group
        if groups is not None and "group_id" in table.columns:
            yield "group_id", groups
        for column, pattern in patterns.items():
            if pattern is not None and column in table.columns:
                known = f"{{{table.name}}} WHERE {where} AND {column} IS NOT NULL"
                names = self.lake.query(f"SELECT DISTINCT {column} AS name FROM {known}", table)
                yield column, NameFilter(pattern).select(row["name"] for row in names)

    def _selected(self, table: Table) -> str:
        """The predicate for the selected clusters and time, in a table that is not read at single snapshots."""
        from_ms, to_ms = self.selection.from_ms, self.selection.to_ms
        parts = [self._of_clusters()]
        if table is FINDINGS:  # those that lasted at some time in between
            day = "CAST(last_seen AS DATE)"
            parts += [] if from_ms is None else [f"last_seen >= {instant_literal(from_ms)}"]
            parts += [] if to_ms is None else [f"first_seen < {instant_literal(to_ms + 1)}"]
        else:
            day = "snapshot_date"  # with the days, so that files of other days are not opened
            parts += [] if from_ms is None else [f"snapshot_id >= {from_ms} AND {day} >= DATE'{utc_date(from_ms)}'"]
            parts += [] if to_ms is None else [f"snapshot_id <= {to_ms} AND {day} <= DATE'{utc_date(to_ms)}'"]
        if self._first_days:
            parts.append(f"({since_days(self._first_days, day)})")
        return " AND ".join(parts)

    def _of_clusters(self) -> str:
        clusters = self.selection.clusters
        return "true" if clusters is None else one_of("cluster", clusters) if clusters else "false"

    @cached_property
    def _first_days(self) -> dict[str, date]:
        """The first day that is shown of each cluster: DAYS before its newest readable snapshot; empty if all are.

        Clusters of which snapshots are still taken are found among the newest rows of the ledger. Of the others, such
        as recordings, all rows are read.
        """
        to_ms = self.selection.to_ms
        if self.days is None:
            return {}
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
            rows = self.lake.query(statement, SNAPSHOTS)
            newest |= {row["cluster"]: row["readable"] for row in rows if row["readable"] is not None}
            if (
                is_new == "true"
            ):  # if a cluster has failed for a week, the week before that is shown: old lag is something
                newest |= {row["cluster"]: row["newest"] for row in rows if row["cluster"] not in newest}
        return {cluster: utc_date(snapshot_id - DAYS * DAY_MS) for cluster, snapshot_id in newest.items()}


def _merged(findings: pa.Table) -> pa.Table:
    """The rows of findings without a cause, and one for each cause; they have the same columns."""
    has_cause = pc.is_valid(findings["cause_id"])
    if not pc.any(has_cause).as_py():
        return findings
    of_causes = with_causes_merged(findings.filter(has_cause).to_pylist())
    return pa.concat_tables([findings.filter(pc.invert(has_cause)), pa.Table.from_pylist(of_causes, findings.schema)])


def by_cluster(snapshots: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The snapshots of each cluster, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for cluster, snapshot_id in sorted(snapshots):
        found[cluster].append(snapshot_id)
    return found


def _concerns(selection: Selection) -> Callable[[dict[str, Any]], bool]:
    """Whether a finding may concern the selected groups, topics and time; it is of the selected clusters."""
    is_group, is_topic = (None if p is None else NameFilter(p).matcher() for p in (selection.group, selection.topic))
    from_ms, ids = selection.from_ms, selection.group_ids

    def concerns(row: dict[str, Any]) -> bool:
        if from_ms is not None and row["last_seen"] < utc(from_ms):
            return False
        if is_topic and row["topic"] is not None and not is_topic(row["topic"]):
            return False  # some findings are not about one topic
        if row["group_id"] is not None:
            return (ids is None or row["group_id"] in ids) and (is_group is None or is_group(row["group_id"]))
        return is_group is None or (row["client_id"] is None and _may_name(row["evidence"], is_group))

    return concerns


def _may_name(evidence: str | None, is_group: Callable[[str], bool]) -> bool:
    """Whether a group that matches may be affected: if one is named, or if the evidence does not name all of them."""
    try:
        facts = json.loads(evidence or "{}")
        groups, affected = facts.get("groups"), facts.get("groups_affected")
        return groups is None or affected is None or affected > len(groups) or any(map(is_group, groups))
    except (ValueError, TypeError, AttributeError):  # another program has written it
        return True
