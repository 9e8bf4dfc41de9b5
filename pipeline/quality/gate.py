"""Judges the rows of a snapshot, and moves those that fail to `quarantine`.

The rows that break a rule are counted in the same query as all rows, so a table without such rows costs no extra query.
Great Expectations judges the landed rows only if there are such rows, or if a key occurs twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.common.epoch import utc_text
from pipeline.lake import Lake, of_snapshots
from pipeline.quality.rules import ROWS_OF_KEY, RULES, Rule, offends, with_rows_of_key
from pipeline.tables import BRONZE, QUARANTINE, Table

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verdict:
    """The result of the gate: the rules that rows fail, and how many rows were moved to quarantine."""

    failed: tuple[Rule, ...]
    quarantined: int = 0


def with_marks(read: DataFrame, kind: str) -> DataFrame:
    """Adds judged_key and is_offending, which `is_suspect` needs, to rows that were read and are not landed yet.

    A row has the observed columns of the bronze table that its column `kind` names. judged_key and is_offending are
    NULL in rows of other kinds, and in rows with an error.
    """
    is_judged = F.col("error").isNull()
    marks = {"judged_key": _key, "is_offending": _is_offending}
    return read.withColumns({name: F.when(is_judged, _by_kind(kind, mark)) for name, mark in marks.items()})


def is_suspect() -> Column:
    """An aggregate, for rows by kind: whether some rows may fail. Different keys with equal hashes count as suspect."""
    has_twins = F.count_distinct("judged_key") < F.count("judged_key")
    return F.coalesce(F.max("is_offending"), F.lit(False)) | has_twins


def _by_kind(kind: str, column: Callable[[Table], Column]) -> Column:
    cases = [F.when(F.col(kind) == table.name, column(table)) for table in BRONZE]
    return F.coalesce(*cases)


def _key(table: Table) -> Column:
    return F.xxhash64(*(name for name in table.key if name in table.observed.names))


def _is_offending(table: Table) -> Column:
    own = [rule for rule in RULES[table.name] if rule.column in table.observed.names]
    return reduce(Column.__or__, map(offends, own))


def quarantine_failing(lake: Lake, table: Table, cluster: str, snapshot_id: int) -> Verdict:
    """Judges a table's landed rows of a snapshot, and moves those that fail to `quarantine`.

    A row that fails several rules has a row for each of them there.

    Rows with an error are not judged, because they only say what could not be read.
    """
    # It imports Great Expectations, which takes three seconds, and few snapshots have suspect rows.
    from pipeline.quality.expectations import judge

    landed = lake.frame(table, of_snapshots(cluster, [snapshot_id]))
    failed = judge(_judged(landed, table), RULES[table.name])
    if not failed:
        return Verdict(())
    where = of_snapshots(cluster, [snapshot_id])
    judged = _mark(landed, table, failed)
    offending = judged.where(F.size("failed") > 0)
    count = offending.count()
    quarantined = offending.select(
        "cluster",
        "snapshot_id",
        "snapshot_date",
        F.lit(table.name).alias("table"),
        F.explode("failed").alias("expectation"),
        F.to_json(F.struct(*table.columns), {"ignoreNullFields": "false"}).alias("row"),
    )
    lake.replace(QUARANTINE, quarantined, f"{where} AND `table` = '{table.name}'")
    lake.replace(table, judged.where(F.size("failed") == 0), where)
    log.warning("%s %s: %d rows of %s quarantined", cluster, utc_text(snapshot_id), count, table.name)
    return Verdict(failed, count)


def _judged(landed: DataFrame, table: Table) -> DataFrame:
    # Only the judged rows are counted: a row with an error must not make a valid row with its key a duplicate.
    return with_rows_of_key(landed.where(F.col("error").isNull()), table)


def _mark(landed: DataFrame, table: Table, failed: Sequence[Rule]) -> DataFrame:
    marks = [F.when(offends(rule), F.lit(rule.name)) for rule in failed]
    judged = _judged(landed, table).withColumn("failed", F.array_compact(F.array(*marks)))
    unjudged = landed.where(F.col("error").isNotNull()).withColumn("failed", F.array().cast("array<string>"))
    return judged.drop(ROWS_OF_KEY).unionByName(unjudged)
