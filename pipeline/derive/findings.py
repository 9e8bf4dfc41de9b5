"""Writes `finding_history` and `findings` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame

from pipeline.analytics.findings.findings import SO_FAR, finding_history, findings, findings_seen
from pipeline.analytics.findings.group_problems import OF_GROUPS, find_group_problems
from pipeline.analytics.findings.known_findings import KnownFindings, as_known
from pipeline.analytics.findings.problem import PROBLEMS, WORDED, with_words
from pipeline.common.rows import Rows
from pipeline.config.owners import Owners
from pipeline.derive.batch import Batch
from pipeline.derive.judged import snapshots_judged, subjects_judged, with_partly_read
from pipeline.derive.lag import Readers
from pipeline.derive.rare_problems import rare_problems
from pipeline.kinds import SHARED
from pipeline.lake import Lake, instant_literal, of_cluster, one_of
from pipeline.tables import (
    FINDING_HISTORY,
    FINDINGS,
    GROUP_STATUS,
)

_KEY = ("kind", f"IF({one_of('kind', SHARED)}, NULL, group_id)", "client_id", "instance")
"""What all problems have in common that belong to one finding, or to findings whose cause groups may share."""
IF_NOT_OLDER = "greatest(s.last_seen, s.resolved_at) >= greatest(t.last_seen, t.resolved_at)"
"""A finding is only updated if another job has not continued it since it was read."""


def keep_findings(batch: Batch, readers: Readers) -> None:
    """Writes the findings of a batch, from the problems that earlier steps have found, and from all others."""
    write_findings(batch, [_of_groups(batch, readers), *rare_problems(batch, readers), *batch.problems])


def write_findings(batch: Batch, problems: Sequence[Rows]) -> None:
    """Writes the findings of a batch from its problems, which are rows of PROBLEMS."""
    lake, cluster, backlog, settings = batch.lake, batch.cluster, batch.backlog, batch.settings
    first = min(batch.snapshot_ids)
    found = _worded(lake, problems)
    earlier = as_known(_earlier(lake, cluster, first))
    kinds = found.distinct("kind") | {row["kind"] for row in earlier}
    if not kinds:
        lake.delete(FINDING_HISTORY, batch.where)  # rows of the same batch, if it was computed with other settings
        return
    judged, incomplete = snapshots_judged(lake, cluster, backlog)
    others = subjects_judged(lake, cluster, judged, incomplete, kinds, has_clients=backlog.has_positions)
    others = with_partly_read(lake, cluster, others, earlier)
    past = KnownFindings(earlier, judged, others, settings.status.together_ms)
    history = found.grouped(_KEY, partial(finding_history, past=past), FINDING_HISTORY.schema)
    lake.replace(FINDING_HISTORY, history, batch.where)
    # Read again, because Spark would compute many rows a second time.
    history = lake.rows(FINDING_HISTORY, batch.where)
    # Collected, because a MERGE would compute them a second time: a few rows for each group or client at most.
    rows = findings(history.grouped(["finding_id"], findings_seen, SO_FAR).collected(), past)
    if rows:
        lake.merge(FINDINGS, [_owned(row, settings.owners) for row in rows], cluster, IF_NOT_OLDER)


def _of_groups(batch: Batch, readers: Readers) -> Rows:
    """The problems of the readers that may have one."""
    backlog, before = batch.backlog, batch.backlog.compared_with
    groups = batch.rows(GROUP_STATUS, sorted({*batch.snapshot_ids, *before.values()}), *OF_GROUPS.names)
    return find_group_problems(readers.suspects, groups, before, batch.settings.status, backlog.buckets)


def _worded(lake: Lake, problems: Sequence[Rows]) -> Rows:
    """The problems with their words. Those that Spark finds are one query."""
    by_spark = [rows.rows for rows in problems if isinstance(rows.rows, DataFrame)]
    found = [rows for rows in problems if not isinstance(rows.rows, DataFrame)]
    if by_spark:
        found.append(lake.computed(reduce(DataFrame.unionByName, by_spark)))
    return lake.computed(Rows.all_of(found, PROBLEMS).mapped(with_words, WORDED))


def _owned(row: Mapping[str, Any], owners: Owners) -> tuple[Any, ...]:
    """The row with the owner and the channel of the configuration; if no rule matches, with the owner that it has."""
    values = {**row, **owners.values_of(row)}
    return tuple(values[name] for name in FINDINGS.columns)


def _earlier(lake: Lake, cluster: str, first: int) -> list[dict[str, Any]]:
    """The findings that are open, or that ended after the batch began."""
    begin = instant_literal(first)
    ends = "coalesce(resolution_confirmed_at, resolved_at)"
    is_newer = f"resolved_at IS NULL OR {ends} >= {begin} OR last_seen >= {begin}"
    return lake.rows(FINDINGS, f"{of_cluster(cluster)} AND ({is_newer})").collected()
