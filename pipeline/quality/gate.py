"""Judges the rows of a snapshot, and moves those that fail to `quarantine`.

The rows that break a rule are counted in the same query as all rows, so a table without such rows costs no extra query.
Great Expectations judges the landed rows only if there are such rows, or if a key occurs twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import great_expectations as gx
from great_expectations.core.expectation_suite import ExpectationSuite
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.expectation import Expectation
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.common.epoch import utc_text
from pipeline.common.errors import LakeError
from pipeline.lake import Lake, of_snapshots
from pipeline.quality.rules import EXPECTATIONS, ROWS_OF_KEY, label, offends, with_rows_of_key
from pipeline.tables import BRONZE, QUARANTINE, Table

log = logging.getLogger(__name__)

_ONE_AT_A_TIME = threading.Lock()
"""Great Expectations creates its context in a global variable, so only one may be created at a time."""


@dataclass(frozen=True)
class Verdict:
    """The result of the gate: the failed expectations, and how many rows were moved to quarantine."""

    failed: tuple[Expectation, ...]
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
    own = [e for e in EXPECTATIONS[table.name] if getattr(e, "column", "") in table.observed.names]
    return reduce(Column.__or__, map(offends, own))


def judge(rows: DataFrame, expectations: Sequence[Expectation]) -> tuple[Expectation, ...]:
    """The expectations that at least one row fails. Raises LakeError if Great Expectations itself fails."""
    with _ONE_AT_A_TIME:
        context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_spark("landed", persist=False)
    batch = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
    numbered = [e.copy(update={"meta": {"number": number}}) for number, e in enumerate(expectations)]
    suite = ExpectationSuite(name="gate", expectations=numbered)
    result = batch.get_batch({"dataframe": rows}).validate(suite, result_format="BOOLEAN_ONLY")
    broken = [r for r in result.results if r.exception_info.get("raised_exception")]
    if broken:
        raise LakeError(f"the gate itself failed: {broken[0].exception_info['exception_message']}")
    # By number, not by order, because Great Expectations groups results by column.
    success = {r.expectation_config.meta["number"]: r.success for r in result.results if r.expectation_config}
    return tuple(e for number, e in enumerate(expectations) if not success[number])


def quarantine_failing(lake: Lake, table: Table, cluster: str, snapshot_id: int) -> Verdict:
    """Judges a table's landed rows of a snapshot, and moves those that fail to `quarantine`.

    A row that fails several expectations has a row for each of them there.

    Rows with an error are not judged, because they only say what could not be read.
    """
    landed = lake.frame(table, of_snapshots(cluster, [snapshot_id]))
    failed = judge(_judged(landed, table), EXPECTATIONS[table.name])
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


def _mark(landed: DataFrame, table: Table, failed: Sequence[Expectation]) -> DataFrame:
    marks = [F.when(offends(e), F.lit(label(e))) for e in failed]
    judged = _judged(landed, table).withColumn("failed", F.array_compact(F.array(*marks)))
    unjudged = landed.where(F.col("error").isNotNull()).withColumn("failed", F.array().cast("array<string>"))
    return judged.drop(ROWS_OF_KEY).unionByName(unjudged)
