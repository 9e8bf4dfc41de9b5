"""Findings as they were known at an earlier time."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.findings import SO_FAR, findings_seen
from pipeline.analytics.keys import FINDING
from pipeline.common.rows import Rows
from pipeline.tables import FINDINGS

_CHANGING = ("last_seen", "topic", "worst_at", "partitions", "severity", "magnitude", "summary", "evidence", "advice")


def findings_as_known(findings: DataFrame, history: DataFrame, at_ms: int) -> DataFrame:
    """The rows of `findings` as they were known at an instant, without anything that later snapshots added.

    `history` are the rows of `finding_history` up to then. If a finding is older than that table, what was known about
    it then was not kept: these columns are NULL, the summary says so, and last_seen is the instant itself, because the
    finding lasted at that time.
    """
    at = F.timestamp_millis(F.lit(at_ms))
    so_far = Rows(history.where(F.col("snapshot_id") <= at_ms)).grouped(["finding_id"], findings_seen, SO_FAR)
    seen = so_far.frame(findings.sparkSession, SO_FAR)
    instants = {name: F.timestamp_millis(name) for name in ("last_seen", "worst_at")}
    then = seen.withColumns(instants).select(*FINDING, F.struct(*_CHANGING).alias("then"))
    is_current = F.col("last_seen") <= at
    is_resolved = is_current & (F.coalesce("resolution_confirmed_at", "resolved_at") <= at)
    about = F.coalesce("client_id", "group_id", "topic", "cluster")
    unknown = F.format_string("%s of %s: nothing was kept from that time.", "kind", about)
    instead = {"last_seen": at, "summary": unknown}
    values = {
        name: F.when(is_current, F.col(name)).otherwise(F.coalesce(F.col("then")[name], instead.get(name, F.lit(None))))
        for name in _CHANGING
    }
    ends = {name: F.when(is_resolved, F.col(name)) for name in ("resolved_at", "resolution_confirmed_at")}
    known = findings.where(F.col("first_seen") <= at).join(then, FINDING, how="left")
    return known.withColumns(values | ends).select(*FINDINGS.columns)
