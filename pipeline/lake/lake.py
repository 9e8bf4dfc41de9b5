"""All Delta I/O: where tables are, and how they are created, read, replaced and merged.

It uses only SQL and the DataFrame writer, no DeltaTable and no JVM: the same code runs in a classic session and in
Connect.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipeline.config import LakeConfig
from pipeline.databricks import is_databricks
from pipeline.errors import LakeError, SchemaError, first_line
from pipeline.lake.conflicts import FAILURES, through_conflicts
from pipeline.lake.driver_tables import DriverTables, NotForDriverError, arrow_rows, driver_tables
from pipeline.lake.few_rows import MANY_ROWS, expects_few
from pipeline.lake.predicates import of_cluster, of_dates, of_each, of_snapshots, quoted
from pipeline.lake.stores import local_folder, why_unsafe
from pipeline.lake.turns import Kind, Turns
from pipeline.tables import SCHEMA_VERSION, SNAPSHOT_AT, SNAPSHOTS, TABLES, Table

log = logging.getLogger(__name__)

VERSION_PROPERTY = "laglake.layout"
"""The schema version, under the name that every laglake looks for: an older one must refuse a newer lake."""
SKIPPING_COLUMNS = ("snapshot_id", "snapshot_at", "window_start", "group_id", "topic")
"""Where Delta keeps the least and the greatest value of each file. For all columns that took a third of a write."""
PROPERTIES = {
    # delta-rs, DuckDB and older readers must be able to open every table.
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
    "delta.enableTypeWidening": "false",
    "delta.checkpointPolicy": "classic",
    VERSION_PROPERTY: str(SCHEMA_VERSION),
}

Clock = Callable[[], datetime]
"""Tells the time; passed in, so that tests and reruns decide it."""
T = TypeVar("T")
TURNS = Turns()


class Merged(NamedTuple):
    """How many rows a MERGE has inserted and updated."""

    inserted: int
    updated: int


class Lake:
    """The tables of one lake, at `<root>/<table>` or `catalog.schema.table`."""

    def __init__(self, spark: SparkSession, config: LakeConfig, may_write: Callable[[], None] = lambda: None) -> None:
        self.spark = spark
        self._config = config
        self._may_write = may_write

    @cached_property
    def _driver(self) -> DriverTables | None:
        """The same tables, where the driver can read and write them without Spark."""
        return driver_tables(self.spark, self._config.root, self._may_write)

    @cached_property
    def _folder(self) -> Path | None:
        """The lake's folder, where it is one of this machine: there writers take turns."""
        return local_folder(self.spark, self._config.root)

    def guarded(self, may_write: Callable[[], None]) -> Lake:
        """The same lake for a run that may lose its right to write: asked before each try, `may_write` raises then."""
        return Lake(self.spark, self._config, may_write)

    def identifier(self, table: Table) -> str:
        """The table's name in SQL."""
        if self._config.root is not None:
            return f"delta.`{self._config.root}/{table.name}`"
        return f"`{self._config.catalog}`.`{self._config.schema_name}`.`{table.name}`"

    def prepare(self) -> None:
        """Make the tables that are absent, and upgrade those of an older schema version.

        Raises SchemaError if a newer laglake has written the lake, LakeError if it cannot be made or where two jobs
        that write at once would lose rows.
        """
        self._require_safe_store()
        found = self.schema_version()
        if found == SCHEMA_VERSION:
            return
        if found is not None and found > SCHEMA_VERSION:
            raise SchemaError(
                f"{self.identifier(SNAPSHOTS)} has schema version {found}, this laglake knows {SCHEMA_VERSION}: "
                "install the laglake that wrote it, or a newer one"
            )
        if found is not None:
            log.info("upgrading the lake from schema version %d to %d (this happens only once)", found, SCHEMA_VERSION)
        try:
            for table in TABLES:  # the ledger last: while it is absent or old, all this is done again
                self._create(table)
                if found is not None:
                    self._commit(table, partial(self._grow, table))
        except FAILURES as exc:
            raise LakeError(f"the lake cannot be made: {first_line(exc)}") from exc
        self._require_safe_store()
        log.info("lake of schema version %d at %s", SCHEMA_VERSION, self.identifier(SNAPSHOTS))

    def _require_safe_store(self) -> None:
        """Raises LakeError where two jobs that write at once would lose rows."""
        place = self._config.root or self._location()
        if place is not None and (reason := why_unsafe(self.spark, place)):
            raise LakeError(reason)

    def _location(self) -> str | None:
        """Where a catalog keeps the ledger, and with it the other tables; None while there is none."""
        if is_databricks():
            return None  # which commits safely wherever it is
        try:
            found = self.spark.sql(f"DESCRIBE DETAIL {self.identifier(SNAPSHOTS)}").collect()
        except AnalysisException:
            return None
        location: str = found[0]["location"]
        return location

    def schema_version(self) -> int | None:
        """The schema version that the lake was written with, None where there is no lake yet."""
        properties = self._driver.properties(SNAPSHOTS) if self._driver else self._properties_by_spark(SNAPSHOTS)
        return None if properties is None else int(properties.get(VERSION_PROPERTY, 0))

    def _properties_by_spark(self, table: Table) -> Mapping[str, str] | None:
        try:
            rows = self.spark.sql(f"SHOW TBLPROPERTIES {self.identifier(table)}").collect()
        except AnalysisException:
            return None
        return {row["key"]: row["value"] for row in rows}

    def _create(self, table: Table) -> None:
        columns = ", ".join(_declared(column) for column in table.stored)
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self.identifier(table)} ({columns}) USING delta "
            f"PARTITIONED BY ({', '.join(table.partitioned_by)}) COMMENT {quoted(table.about)} "
            f"TBLPROPERTIES ({_in_sql(_properties(table))})"
        )
        self._commit(
            table, lambda: self.spark.sql(statement).collect(), lambda driver: driver.create(table, _properties(table))
        )

    def _grow(self, table: Table) -> None:
        name = self.identifier(table)
        have = set(self.spark.table(name).columns)
        for column in (f for f in table.stored if f.name not in have):
            self.spark.sql(f"ALTER TABLE {name} ADD COLUMN {_declared(column)}")
        if table.former_name:
            self._copy_former(table, replace(table, name=table.former_name))
        if SNAPSHOT_AT in table.stored:
            self.spark.sql(f"UPDATE {name} SET snapshot_at = timestamp_millis(snapshot_id) WHERE snapshot_at IS NULL")
        self.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({_in_sql(_properties(table))})")

    def _copy_former(self, table: Table, former: Table) -> None:
        """Copy the rows that a table has under its former name, once."""
        try:
            rows = self.spark.table(self.identifier(former))
        except AnalysisException:
            return
        lacking = {f.name: F.lit(None).cast(f.dataType) for f in table.schema if f.name not in rows.columns}
        aligned = rows.withColumns(lacking).select(*_aligned(table))
        # Delta commits a transaction of this name once, whoever else is at it.
        once = {"txnAppId": f"laglake {former.name}", "txnVersion": "1"}
        aligned.writeTo(self.identifier(table)).options(**once).append()
        log.info(
            "table %s is now called %s: its rows have been copied, and the old table may be dropped",
            former.name,
            table.name,
        )

    def read(self, table: Table) -> DataFrame:
        """All rows of a table in the columns of its schema, lazily; readers filter by cluster and date."""
        return self.spark.table(self.identifier(table)).select(*table.columns)

    def read_all(self, table: Table, *columns: str) -> DataFrame:
        """All rows of a table, as of now: few of them are read at once, without Spark. So do all that follow.

        Those who name the columns that they need get no others.
        """
        return self._read(table, "true", columns)

    def read_cluster(self, table: Table, cluster: str, *columns: str) -> DataFrame:
        """The rows of one cluster."""
        return self._read(table, of_cluster(cluster), columns)

    def read_dates(self, table: Table, cluster: str, dates: Iterable[date]) -> DataFrame:
        """The rows of some days of one cluster."""
        return self._read(table, of_dates(cluster, dates))

    def read_snapshots(self, table: Table, cluster: str, snapshot_ids: Sequence[int]) -> DataFrame:
        """The rows of some snapshots of one cluster."""
        return self._read(table, of_snapshots(cluster, snapshot_ids))

    def read_each(self, table: Table, wanted: Mapping[str, Collection[int]]) -> DataFrame:
        """The rows of some snapshots of each cluster; of a table of windows, the windows that are a snapshot each."""
        return self._read(table, of_each(wanted, windows="window_start" in table.columns))

    def read_where(self, table: Table, where: str) -> DataFrame:
        """The rows that satisfy a predicate that Spark and DataFusion both read."""
        return self._read(table, where)

    def query(self, text: str, *tables: Table) -> list[dict[str, Any]]:
        """The rows, which must be few, of a query that Spark and DataFusion both read; `{name}` stands for a table."""
        if self._driver:
            with suppress(NotForDriverError):
                return self._driver.query(text.format_map({table.name: table.name for table in tables}), tables)
        names = {table.name: self.identifier(table) for table in tables}
        return [row.asDict() for row in self.spark.sql(text.format_map(names)).collect()]

    def _read(self, table: Table, where: str, columns: Sequence[str] = ()) -> DataFrame:
        names = columns or table.columns
        rows = None
        if self._driver:
            with suppress(NotForDriverError):
                rows = self._driver.read(table, where, names, are_few=expects_few(self.spark))
        if rows is None:
            return self.read(table).where(where).select(*names)
        return self._local(rows, StructType([table.schema[name] for name in names]))

    def _local(self, rows: Any, schema: StructType) -> DataFrame:
        """A frame of Arrow's rows, which Spark keeps in the plan; of none Spark makes no arrays."""
        return self.spark.createDataFrame(rows if rows.num_rows else [], schema)

    def replace(self, table: Table, rows: DataFrame, where: str, most: int | None = None) -> None:
        """Put `rows`, all of which satisfy `where`, in the place of the rows that did. One commit.

        There are `most` rows at most; where that is not known, few or many as the job expects.
        """
        aligned = rows.select(*_aligned(table))
        are_few = expects_few(self.spark) if most is None else most < MANY_ROWS
        if self._driver and are_few:
            found = aligned.toArrow()  # once, as a source may not give the same again
            self._replace(table, lambda: self._local(found, aligned.schema), where, found)
        else:
            self._replace(table, lambda: aligned, where)

    def replace_rows(self, table: Table, rows: Sequence[tuple[Any, ...]], where: str) -> None:
        """The same with rows that the driver has, each in the columns of the table's schema."""
        found = arrow_rows(table, rows) if self._driver else None
        self._replace(table, lambda: self.rows(table, rows).select(*_aligned(table)), where, found)

    def _replace(self, table: Table, rows: Callable[[], DataFrame], where: str, few: Any = None) -> None:
        """Write `few`, if there are such, by the driver, else `rows`."""

        def by_spark() -> None:
            # saveAsTable with replaceWhere would do the same, but what is observed of the rows is lost on the way.
            rows().writeTo(self.identifier(table)).overwrite(F.expr(where))

        self._commit(table, by_spark, None if few is None else lambda driver: driver.overwrite(table, few, where))

    def _commit(
        self, table: Table, by_spark: Callable[[], T], by_driver: Callable[[DriverTables], T] | None = None
    ) -> T:
        """Write by the driver where it can, else by Spark; again after conflicts, each time only if it still may."""
        lock = self._folder and self._folder / "_locks" / table.name

        def turn(kind: Kind, write: Callable[[], T]) -> T:
            with TURNS.writing(self.identifier(table), kind, lock):
                if kind == "spark":  # the driver's tables ask themselves
                    self._may_write()  # the wait may have been long
                return write()

        if self._driver and by_driver:
            with suppress(NotForDriverError):
                return through_conflicts(partial(turn, "driver", partial(by_driver, self._driver)))
        return through_conflicts(partial(turn, "spark", by_spark))

    def rows(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
        """A few rows that the driver has, to be written as one file."""
        return self.spark.createDataFrame([tuple(map(_aware, row)) for row in rows], table.schema).coalesce(1)

    def stage(self, name: str, rows: DataFrame) -> DataFrame:
        """Write rows aside, in the place of what was there under this name, and return what reads them.

        A source is read again by each query on it. Caching would do, but Connect and serverless sessions have none.
        """
        self._may_write()
        if self._config.root is not None:
            path = f"{self._config.root}/_staging/{name}"
            rows.write.mode("overwrite").parquet(path)
            few = self._driver.staged(name) if self._driver else None
            if few is not None:
                return self._local(few, rows.schema)
            return self.spark.read.schema(rows.schema).parquet(path)
        # Catalogs take letters, digits and underscores; the checksum keeps apart what these make equal.
        plain = f"staging_{re.sub('[^A-Za-z0-9]', '_', name)}_{crc32(name.encode()):08x}"
        table = f"`{self._config.catalog}`.`{self._config.schema_name}`.`{plain}`"
        rows.writeTo(table).using("delta").createOrReplace()
        return self.spark.table(table)

    def computed(self, rows: DataFrame) -> DataFrame:
        """Rows that several queries need, computed once, so that plans begin with them; where sessions can keep rows.

        Spark analyses a plan anew with each step that is added, so a long one that is used often takes seconds.
        """
        try:
            if self._driver and expects_few(self.spark):
                return self._local(rows.toArrow(), rows.schema)
            return rows.localCheckpoint()
        except FAILURES:  # on serverless compute
            return rows

    def delete(self, table: Table, where: str) -> None:
        """Remove the rows that satisfy `where`. One commit, none if there are no such rows."""
        statement = f"DELETE FROM {self.identifier(table)} WHERE {where}"
        self._commit(table, lambda: self.spark.sql(statement).collect(), lambda driver: driver.delete(table, where))

    def compact(self, table: Table, where: str) -> tuple[int, int]:
        """Join small files; `where` names partitions. One commit, none if there is nothing to join.

        How many files there were of those that were joined, and how many there are now.
        """
        statement = f"OPTIMIZE {self.identifier(table)} WHERE {where}"
        (done,) = self._commit(table, lambda: self.spark.sql(statement).collect())
        return done["metrics"]["numFilesRemoved"], done["metrics"]["numFilesAdded"]

    def vacuum(self, table: Table) -> int:
        """Delete files that no version of the last week needs (`delta.deletedFileRetentionDuration`).

        How many they were; of more than 1,000 Spark says only that.
        """
        if self._driver:
            with suppress(NotForDriverError):
                return self._driver.vacuum(table)
        statement = f"VACUUM {self.identifier(table)}"
        found = self.spark.sql(f"{statement} DRY RUN").count()
        if found:  # else it would write two commits that say so
            self._commit(table, lambda: self.spark.sql(statement).collect())
        return found

    def files(self, table: Table) -> list[str]:
        """The paths of a table's files, which name their partition: `…/cluster=east/snapshot_date=2026-01-31/…`."""
        return self.spark.table(self.identifier(table)).inputFiles()

    def merge(self, table: Table, rows: Sequence[tuple[Any, ...]], cluster: str, update_if: str = "") -> Merged:
        """Insert the rows whose key is absent; where row `t` is there and `update_if` holds, put `s` in its place.

        One commit. `rows` are few, each in the columns of the table's schema.
        """
        few = arrow_rows(table, rows) if self._driver else None
        return self._commit(
            table,
            lambda: self._merge_by_spark(table, rows, cluster, update_if),
            lambda driver: Merged(*driver.merge(table, few, cluster, update_if)),
        )

    def _merge_by_spark(self, table: Table, rows: Sequence[tuple[Any, ...]], cluster: str, update_if: str) -> Merged:
        on = " AND ".join(f"t.{column} <=> s.{column}" for column in table.key)
        names = [f"`{name}`" for name in table.stored.names]  # others are a user's
        assignments = ", ".join(f"t.{name} = s.{name}" for name in names)
        matched = f"WHEN MATCHED AND ({update_if}) THEN UPDATE SET {assignments}" if update_if else ""
        inserted = f"({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"
        with self._view(self.rows(table, rows).select(*_aligned(table))) as view:
            statement = (
                f"MERGE INTO {self.identifier(table)} t USING {view} s ON t.cluster = '{cluster}' AND {on} "
                f"{matched} WHEN NOT MATCHED THEN INSERT {inserted}"
            )
            counts = self.spark.sql(statement).collect()[0]
        return Merged(inserted=counts["num_inserted_rows"], updated=counts["num_updated_rows"])

    @contextmanager
    def _view(self, rows: DataFrame) -> Iterator[str]:
        name = f"laglake_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(name)
        try:
            yield name
        finally:
            self.spark.catalog.dropTempView(name)


def _aware(value: Any) -> Any:
    """An instant as Spark gives it, in the zone of the process, with that zone: an hour may come twice."""
    return value.astimezone() if isinstance(value, datetime) and value.tzinfo is None else value


def _declared(column: StructField) -> str:
    return f"`{column.name}` {column.dataType.simpleString()} COMMENT {quoted(column.metadata['comment'])}"


def _properties(table: Table) -> dict[str, str]:
    skipping = ",".join(f.name for f in table.stored if f.name in SKIPPING_COLUMNS)
    return PROPERTIES | {"delta.dataSkippingStatsColumns": skipping}


def _in_sql(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())


def _aligned(table: Table) -> list[Column]:
    """The columns of a table, of rows that have those of its schema."""
    columns = [F.col(f.name).cast(f.dataType).alias(f.name) for f in table.schema]
    at = [F.timestamp_millis("snapshot_id").alias(SNAPSHOT_AT.name)] if SNAPSHOT_AT in table.stored else []
    return columns + at
