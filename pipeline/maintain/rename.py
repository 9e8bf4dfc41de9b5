"""Gives a cluster another name in all tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.identity import ids_in_cluster
from pipeline.common.errors import LakeError, first_line
from pipeline.common.rows import Rows
from pipeline.lake import FAILURES, Lake, of_cluster
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.tables import FINDING_HISTORY, FINDINGS, NOTIFICATIONS, SNAPSHOTS, TABLES, Table

LAST = (FINDINGS, SNAPSHOTS)
"""The tables that are renamed last: other tables of findings need the old ids in `findings`, and the new name in the
ledger means that all tables are done."""
_OF_IDS = ("finding_id", "kind", "cluster", "group_id", "client_id", "instance", "topic", "first_seen", "cause_id")
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
    # Of all findings, only what their ids are made from: the table grows for ever.
    ids = ids_in_cluster(lake.rows(FINDINGS, of_cluster(old), *_OF_IDS).collected(), new)
    for table in (*(table for table in TABLES if table not in LAST), *LAST):
        try:
            if _has(lake, table, old):
                # Rows under the new name are replaced as well: they are equal rows from a job that was killed.
                where = f"{of_cluster(old)} OR {of_cluster(new)}"
                lake.replace(table, _renamed(lake, table, old, new, ids), where)
                log.info("%s: cluster %s is called %s now", table.name, old, new)
        except FAILURES as exc:
            raise LakeError(f"{table.name} cannot be written, call the same command again: {first_line(exc)}") from exc


def _has(lake: Lake, table: Table, cluster: str) -> bool:
    statement = f"SELECT cluster FROM {{{table.name}}} WHERE {of_cluster(cluster)} LIMIT 1"
    return bool(lake.query(statement, table))


def _renamed(lake: Lake, table: Table, old: str, new: str, ids: Mapping[str, str]) -> Rows:
    rows = lake.rows(table, of_cluster(old))
    if table in (FINDINGS, FINDING_HISTORY, NOTIFICATIONS):
        return rows.mapped(partial(_with_ids, cluster=new, ids=ids), table.schema)
    if isinstance(rows.rows, DataFrame):  # a year of lag need not pass through Python
        return Rows(_frame_in_cluster(rows.rows, new))
    return Rows(_in_cluster(rows.rows, new))


def _frame_in_cluster(rows: DataFrame, cluster: str) -> DataFrame:
    """The same as `_in_cluster`, by Spark."""
    if "scope_value" in rows.columns:
        value = F.when(F.col("scope") == "cluster", F.lit(cluster)).otherwise(F.col("scope_value"))
        rows = rows.withColumn("scope_value", value)
    return rows.withColumn("cluster", F.lit(cluster))


def _in_cluster(rows: pa.Table, cluster: str) -> pa.Table:
    """The rows under another cluster name. Histograms of a whole cluster also have the name as their scope_value."""
    renamed = pa.repeat(pa.scalar(cluster, pa.string()), len(rows))
    if "scope_value" in rows.column_names:
        values = pc.if_else(pc.fill_null(pc.equal(rows["scope"], "cluster"), False), renamed, rows["scope_value"])
        rows = rows.set_column(rows.column_names.index("scope_value"), "scope_value", values)
    return rows.set_column(rows.column_names.index("cluster"), "cluster", renamed)


def _with_ids(rows: pa.Table, cluster: str, ids: Mapping[str, str]) -> pa.Table:
    """The rows under another cluster name, with the ids that their findings and causes have there."""
    for name in {"finding_id", "cause_id"} & {*rows.column_names}:
        new_ids = [ids.get(old_id, old_id) for old_id in rows[name].to_pylist()]
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(new_ids, pa.string()))
    return _in_cluster(rows, cluster)
