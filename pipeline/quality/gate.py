"""Judges the rows of a snapshot that have just landed, and moves those that fail to `quarantine`.

Great Expectations gives the verdict, in one aggregate over the landed rows; only where it fails are the offending rows
looked for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import great_expectations as gx
from great_expectations.core.expectation_suite import ExpectationSuite
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.expectation import Expectation
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.errors import LakeError
from pipeline.lake import Lake, of_snapshots
from pipeline.quality.rules import EXPECTATIONS, ROWS_OF_KEY, label, offends, with_rows_of_key
from pipeline.tables import QUARANTINE, Table

log = logging.getLogger(__name__)

_ONE_AT_A_TIME = threading.Lock()
"""Great Expectations keeps the newest context in a global while it makes it."""


@dataclass(frozen=True)
class Verdict:
    """What a gate found: the failed expectations, and how many rows went to quarantine."""

    failed: tuple[Expectation, ...]
    quarantined: int = 0


def judge(rows: DataFrame, expectations: Sequence[Expectation]) -> tuple[Expectation, ...]:
    """The expectations that some row fails."""
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
    # Not by their order: Great Expectations groups results by column.
    success = {r.expectation_config.meta["number"]: r.success for r in result.results if r.expectation_config}
    return tuple(e for number, e in enumerate(expectations) if not success[number])


def quarantine_failing(lake: Lake, table: Table, cluster: str, snapshot_id: int) -> Verdict:
    """Judge one table's landed rows of a snapshot and move the offending ones, each once for each expectation it fails.

    Rows that carry an error are not judged: they say what could not be read.
    """
    landed = lake.read_snapshots(table, cluster, [snapshot_id])
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
    log.warning("%s %d: %d rows of %s quarantined", cluster, snapshot_id, count, table.name)
    return Verdict(failed, count)


def _judged(landed: DataFrame, table: Table) -> DataFrame:
    # A row with an error must not make its healthy twin a duplicate: the judged rows alone are counted.
    return with_rows_of_key(landed.where(F.col("error").isNull()), table)


def _mark(landed: DataFrame, table: Table, failed: Sequence[Expectation]) -> DataFrame:
    marks = [F.when(offends(e), F.lit(label(e))) for e in failed]
    judged = _judged(landed, table).withColumn("failed", F.array_compact(F.array(*marks)))
    unjudged = landed.where(F.col("error").isNotNull()).withColumn("failed", F.array().cast("array<string>"))
    return judged.drop(ROWS_OF_KEY).unionByName(unjudged)
