"""Gives a cluster another name in all tables."""

from __future__ import annotations

import logging

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.identity import ids_in_cluster
from pipeline.common.errors import LakeError, first_line
from pipeline.lake import FAILURES, Lake, of_cluster
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.tables import FINDING_HISTORY, FINDINGS, LAG_HISTOGRAMS, NOTIFICATIONS, SNAPSHOTS, TABLES, Table

LAST = (FINDINGS, SNAPSHOTS)
"""The tables that are renamed last: other tables of findings need the old ids in `findings`, and the new name in the
ledger means that all tables are done."""
log = logging.getLogger(__name__)


def rename_cluster(lake: Lake, old: str, new: str) -> None:
    """Renames a cluster, table by table, the ledger last. If the job is killed, the next one continues from there.

    Raises LakeError if there is no cluster of the old name, if there is one of the new name, or if a table cannot be
    written.
    """
    lake.expect_rows(MANY_ROWS)
    if not _has(lake, SNAPSHOTS, old):
        raise LakeError(f"there is no cluster {old} in the lake")
    if _has(lake, SNAPSHOTS, new):
        raise LakeError(f"there is a cluster {new} in the lake already: two clusters cannot be joined")
    for table in (*(table for table in TABLES if table not in LAST), *LAST):
        try:
            if _has(lake, table, old):
                # Rows under the new name are replaced as well: they are equal rows from a job that was killed.
                where = f"{of_cluster(old)} OR {of_cluster(new)}"
                lake.replace(table, _renamed(lake, table, old, new), where)
                log.info("%s: cluster %s is called %s now", table.name, old, new)
        except FAILURES as exc:
            raise LakeError(f"{table.name} cannot be written, call the same command again: {first_line(exc)}") from exc


def _has(lake: Lake, table: Table, cluster: str) -> bool:
    return bool(lake.frame(table, of_cluster(cluster), "cluster").limit(1).collect())


def _renamed(lake: Lake, table: Table, old: str, new: str) -> DataFrame:
    rows = lake.read(table).where(of_cluster(old)).withColumn("cluster", F.lit(new))
    if table in (FINDINGS, FINDING_HISTORY, NOTIFICATIONS):
        ids = ids_in_cluster(lake.read(FINDINGS).where(of_cluster(old)), new)
        named = rows.join(F.broadcast(ids), "finding_id", how="left")
        return named.withColumn("finding_id", F.coalesce("new_id", "finding_id")).drop("new_id")
    if table == LAG_HISTOGRAMS:
        return rows.withColumn("scope_value", _scope_value(new))
    return rows


def _scope_value(new: str) -> Column:
    """The scope_value under the new name: histograms of a whole cluster have the cluster's name there."""
    return F.when(F.col("scope") == "cluster", F.lit(new)).otherwise(F.col("scope_value"))
