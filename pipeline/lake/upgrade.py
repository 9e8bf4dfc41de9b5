"""Creates the tables of a lake, and adds the columns that tables lack which an older laglake has made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pyspark.sql.types import StructField

from pipeline.common.errors import LakeError, NoLakeError, SchemaError, first_line
from pipeline.config.databricks import is_databricks
from pipeline.lake.conflicts import FAILURES
from pipeline.lake.delta import require_delta
from pipeline.lake.lake_tables import LakeTables
from pipeline.lake.predicates import quoted
from pipeline.lake.stores import why_unsafe
from pipeline.tables import OLDEST_VERSION, SCHEMA_VERSION, SNAPSHOTS, TABLES, Table

log = logging.getLogger(__name__)

VERSION_PROPERTY = "laglake.layout"
"""The table property with the schema version. Its name must never change: an older laglake must refuse a newer lake."""
SKIPPING_COLUMNS = ("snapshot_id", "snapshot_at", "window_start", "group_id", "topic")
"""The columns whose minimum and maximum Delta stores for each file. For all columns, this took a third of a write."""
PROPERTIES = {
    # So that delta-rs, DuckDB and older readers can open every table.
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
    "delta.enableTypeWidening": "false",
    "delta.checkpointPolicy": "classic",
    # Spark's own default; that of delta-rs is 100. Each reader reads all commits since the checkpoint, 0.2 ms each.
    "delta.checkpointInterval": "10",
    VERSION_PROPERTY: str(SCHEMA_VERSION),
}


def refuse_new(lake: LakeTables) -> None:
    """For a job that works only on what a lake has: raises NoLakeError.

    An empty lake in a wrong place would be taken for the right one.
    """
    raise NoLakeError(f"{lake.place}: there is no lake; run makes one with its first snapshot")


def prepare(lake: LakeTables, before_new: Callable[[LakeTables], None]) -> None:
    """Creates missing tables, and adds the columns that those of an older schema version lack: their rows are NULL.

    If there is no lake yet, `before_new` is called first, which may refuse it.

    Raises SchemaError if a newer laglake has written the lake, or one before OLDEST_VERSION; LakeError if it cannot be
    created, or if two jobs that write at once would lose rows.
    """
    if lake.has_spark:
        require_delta(lake.spark)
    _require_safe_store(lake)
    found = schema_version(lake)
    if found == SCHEMA_VERSION:
        return
    if found is None:
        before_new(lake)
    else:
        if (reason := why_refused(lake.identifier(SNAPSHOTS), found)) is not None:
            raise SchemaError(reason)
        log.info("upgrading the lake from schema version %d to %d (this happens only once)", found, SCHEMA_VERSION)
    try:
        for table in TABLES:  # the ledger last: while it is missing or old, all of this is repeated
            create(lake, table)
            if found is not None:
                _extend(lake, table)
    except FAILURES as exc:
        raise LakeError(f"the lake cannot be made: {lake.place}: {first_line(exc)}") from exc
    _require_safe_store(lake)
    log.info("lake of schema version %d at %s", SCHEMA_VERSION, lake.identifier(SNAPSHOTS))


def why_refused(place: str, version: int) -> str | None:
    """Why this laglake cannot upgrade a lake of a schema version; None if it can, or if there is nothing to upgrade."""
    if version > SCHEMA_VERSION:
        return (
            f"{place} has schema version {version}, this laglake knows {SCHEMA_VERSION}: install the laglake that "
            "wrote it, or a newer one"
        )
    if version < OLDEST_VERSION:
        return (
            f"{place} has schema version {version}, this laglake upgrades only lakes from {OLDEST_VERSION} on: begin a "
            "new lake"
        )
    return None


def schema_version(lake: LakeTables) -> int | None:
    """The schema version that the lake was written with; None if there is no lake yet."""
    properties = lake.properties(SNAPSHOTS)
    return None if properties is None else int(properties.get(VERSION_PROPERTY, 0))


def _require_safe_store(lake: LakeTables) -> None:
    """Raises LakeError if two jobs that write at once would lose rows."""
    if is_databricks() or not lake.has_spark:  # Databricks and delta-rs commit in their own ways
        return
    location = lake.location(SNAPSHOTS)
    if location is not None and (reason := why_unsafe(lake.spark, location)):
        raise LakeError(reason)


def create(lake: LakeTables, table: Table) -> None:
    """Creates a table with its properties if it does not exist."""
    columns = ", ".join(_declared(column) for column in table.stored)
    statement = (
        f"CREATE TABLE IF NOT EXISTS {lake.identifier(table)} ({columns}) USING delta "
        f"PARTITIONED BY ({', '.join(table.partitioned_by)}) COMMENT {quoted(table.about)} "
        f"TBLPROPERTIES ({_in_sql(_properties(table))})"
    )
    lake.commit(
        table, lambda: lake.spark.sql(statement).collect(), lambda driver: driver.create(table, _properties(table))
    )


def _extend(lake: LakeTables, table: Table) -> None:
    """Adds the columns that a table lacks, and sets its properties, with the schema version."""
    name, properties = lake.identifier(table), _properties(table)

    def by_spark() -> None:
        have = set(lake.spark.table(name).columns)
        for column in (f for f in table.stored if f.name not in have):
            lake.spark.sql(f"ALTER TABLE {name} ADD COLUMN {_declared(column)}")
        lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({_in_sql(properties)})")

    lake.commit(table, by_spark, lambda driver: driver.extend(table, properties))


def _declared(column: StructField) -> str:
    return f"`{column.name}` {column.dataType.simpleString()} COMMENT {quoted(column.metadata['comment'])}"


def _properties(table: Table) -> dict[str, str]:
    skipping = ",".join(f.name for f in table.stored if f.name in SKIPPING_COLUMNS)
    return PROPERTIES | {"delta.dataSkippingStatsColumns": skipping}


def _in_sql(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
