"""All Delta I/O: where tables are, and how they are created, read, replaced and merged.

It uses only SQL and the DataFrame writer, but not DeltaTable or the JVM, so the same code runs in a classic session and
in Connect.
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
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipeline.common.errors import LakeError, SchemaError, first_line
from pipeline.config import LakeConfig
from pipeline.config.databricks import is_databricks
from pipeline.lake.conflicts import FAILURES, retry_on_conflict
from pipeline.lake.driver_tables import DriverTables, NotForDriverError, arrow_rows, driver_tables
from pipeline.lake.few_rows import MANY_ROWS, expects_few
from pipeline.lake.predicates import of_cluster, of_dates, of_each, of_snapshots, quoted
from pipeline.lake.stores import local_folder, why_unsafe
from pipeline.lake.turns import Kind, Turns
from pipeline.tables import SCHEMA_VERSION, SNAPSHOT_AT, SNAPSHOTS, TABLES, Table

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
    VERSION_PROPERTY: str(SCHEMA_VERSION),
}

Clock = Callable[[], datetime]
"""Returns the current time. It is a parameter, so that tests and reruns can choose the time."""
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
        """The same tables, if the driver can read and write them without Spark; else None."""
        return driver_tables(self.spark, self._config.root, self._may_write)

    @cached_property
    def _folder(self) -> Path | None:
        """The lake's folder, if it is on this machine; there, writers take turns. Else None."""
        return local_folder(self.spark, self._config.root)

    def guarded(self, may_write: Callable[[], None]) -> Lake:
        """The same lake, for a run that may lose its right to write.

        `may_write` is called before each try, and raises if the right is lost.
        """
        return Lake(self.spark, self._config, may_write)

    def identifier(self, table: Table) -> str:
        """The table's name in SQL."""
        if self._config.root is not None:
            return f"delta.`{self._config.root}/{table.name}`"
        return f"`{self._config.catalog}`.`{self._config.schema_name}`.`{table.name}`"

    def prepare(self) -> None:
        """Creates missing tables, and upgrades those of an older schema version.

        Raises SchemaError if a newer laglake has written the lake; LakeError if it cannot be created, or if two jobs
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
            for table in TABLES:  # the ledger last: while it is missing or old, all of this is repeated
                self._create(table)
                if found is not None:
                    self._commit(table, partial(self._upgrade, table))
        except FAILURES as exc:
            raise LakeError(f"the lake cannot be made: {first_line(exc)}") from exc
        self._require_safe_store()
        log.info("lake of schema version %d at %s", SCHEMA_VERSION, self.identifier(SNAPSHOTS))

    def _require_safe_store(self) -> None:
        """Raises LakeError if two jobs that write at once would lose rows."""
        place = self._config.root or self._location()
        if place is not None and (reason := why_unsafe(self.spark, place)):
            raise LakeError(reason)

    def _location(self) -> str | None:
        """Where a catalog stores the ledger, and so the other tables; None if the ledger does not exist yet."""
        if is_databricks():
            return None  # Databricks commits safely everywhere
        try:
            found = self.spark.sql(f"DESCRIBE DETAIL {self.identifier(SNAPSHOTS)}").collect()
        except AnalysisException:
            return None
        location: str = found[0]["location"]
        return location

    def schema_version(self) -> int | None:
        """The schema version that the lake was written with; None if there is no lake yet."""
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

    def _upgrade(self, table: Table) -> None:
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
        """Copies the rows that a table has under its former name, once."""
        try:
            rows = self.spark.table(self.identifier(former))
        except AnalysisException:
            return
        lacking = {f.name: F.lit(None).cast(f.dataType) for f in table.schema if f.name not in rows.columns}
        aligned = rows.withColumns(lacking).select(*_aligned(table))
        # Delta commits a transaction with this name only once, even if several jobs try.
        once = {"txnAppId": f"laglake {former.name}", "txnVersion": "1"}
        aligned.writeTo(self.identifier(table)).options(**once).append()
        log.info(
            "table %s is now called %s: its rows have been copied, and the old table may be dropped",
            former.name,
            table.name,
        )

    def read(self, table: Table) -> DataFrame:
        """All rows of a table with the columns of its schema, lazily. Callers filter by cluster and date."""
        return self.spark.table(self.identifier(table)).select(*table.columns)

    def read_all(self, table: Table, *columns: str) -> DataFrame:
        """All rows of a table, as of now; of some `columns` if they are given.

        If the rows are few, this and the other methods below read them immediately, without Spark.
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
        """The rows of some snapshots of each cluster; in a table of windows, the windows of single snapshots."""
        return self._read(table, of_each(wanted, windows="window_start" in table.columns))

    def read_where(self, table: Table, where: str) -> DataFrame:
        """The rows that satisfy a predicate, which Spark and DataFusion must both understand."""
        return self._read(table, where)

    def query(self, text: str, *tables: Table) -> list[dict[str, Any]]:
        """The rows, which must be few, of a query that Spark and DataFusion understand; `{name}` stands for a table."""
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
        """A DataFrame of Arrow rows, which Spark keeps in its plan. Spark makes no arrays from an empty Arrow table."""
        return self.spark.createDataFrame(rows if rows.num_rows else [], schema)

    def replace(self, table: Table, rows: DataFrame, where: str, most: int | None = None) -> None:
        """Replaces the rows that satisfy `where` by `rows`, which must all satisfy it. One commit.

        `most` is the greatest possible number of rows; if it is not given, few or many are assumed as the job expects.
        """
        self._replace_by_size(table, lambda: rows, where, most)

    def replace_observed(
        self, table: Table, rows: Callable[[Observation], DataFrame], where: str, most: int | None = None
    ) -> dict[str, Any]:
        """The same for rows that are observed; returns what was observed in the rows that were committed.

        After a conflict, the rows are computed again and may be others. Spark never observes a second time, so `rows`
        is called for each try, and returns rows with the observation that it gets.
        """
        tries: list[Observation] = []

        def observed() -> DataFrame:
            tries.append(Observation())
            return rows(tries[-1])

        self._replace_by_size(table, observed, where, most)
        return tries[-1].get

    def _replace_by_size(self, table: Table, rows: Callable[[], DataFrame], where: str, most: int | None) -> None:
        def aligned() -> DataFrame:
            return rows().select(*_aligned(table))

        are_few = expects_few(self.spark) if most is None else most < MANY_ROWS
        if self._driver and are_few:
            found = aligned().toArrow()  # only once, because a source may return other rows the second time
            self._replace(table, lambda: self._local(found, table.stored), where, found)
        else:
            self._replace(table, aligned, where)

    def replace_rows(self, table: Table, rows: Sequence[tuple[Any, ...]], where: str) -> None:
        """The same for rows that the driver has, each with the columns of the table's schema."""
        found = arrow_rows(table, rows) if self._driver else None
        self._replace(table, lambda: self.rows(table, rows).select(*_aligned(table)), where, found)

    def _replace(self, table: Table, rows: Callable[[], DataFrame], where: str, few: Any = None) -> None:
        """Writes `few`, if given, by the driver, else `rows` by Spark."""

        def by_spark() -> None:
            # saveAsTable with replaceWhere would do the same, but would lose the observations (`observe`) on the rows.
            rows().writeTo(self.identifier(table)).overwrite(F.expr(where))

        self._commit(table, by_spark, None if few is None else lambda driver: driver.overwrite(table, few, where))

    def _commit(
        self, table: Table, by_spark: Callable[[], T], by_driver: Callable[[DriverTables], T] | None = None
    ) -> T:
        """Writes by the driver if possible, else by Spark. Retries after conflicts, if the run still may write."""
        lock = self._folder and self._folder / "_locks" / table.name

        def turn(kind: Kind, write: Callable[[], T]) -> T:
            with TURNS.writing(self.identifier(table), kind, lock):
                if kind == "spark":  # DriverTables calls it itself
                    self._may_write()  # again, because the wait may have been long
                return write()

        if self._driver and by_driver:
            with suppress(NotForDriverError):
                return retry_on_conflict(partial(turn, "driver", partial(by_driver, self._driver)))
        return retry_on_conflict(partial(turn, "spark", by_spark))

    def rows(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
        """A DataFrame of a few rows that the driver has, which is written as one file."""
        return self.spark.createDataFrame([tuple(map(_aware, row)) for row in rows], table.schema).coalesce(1)

    def stage(self, name: str, rows: DataFrame) -> DataFrame:
        """Writes rows to a staging place, replacing what had this name, and returns a DataFrame that reads them.

        Without this, each query on a data source would read the source again. Caching is not possible in serverless
        sessions and with Connect.
        """
        self._may_write()
        if self._config.root is not None:
            path = f"{self._config.root}/_staging/{name}"
            rows.write.mode("overwrite").parquet(path)
            few = self._driver.staged(name) if self._driver else None
            if few is not None:
                return self._local(few, rows.schema)
            return self.spark.read.schema(rows.schema).parquet(path)
        # Catalogs allow only letters, digits and underscores; the checksum distinguishes names that become equal.
        plain = f"staging_{re.sub('[^A-Za-z0-9]', '_', name)}_{crc32(name.encode()):08x}"
        table = f"`{self._config.catalog}`.`{self._config.schema_name}`.`{plain}`"
        rows.writeTo(table).using("delta").createOrReplace()
        return self.spark.table(table)

    def computed(self, rows: DataFrame) -> DataFrame:
        """Rows that several queries need, computed once if the session can keep rows, so that plans begin with them.

        Spark analyses a whole plan again with each step that is added, so a long plan that is used often takes seconds.
        """
        try:
            if self._driver and expects_few(self.spark):
                return self._local(rows.toArrow(), rows.schema)
            return rows.localCheckpoint()
        except FAILURES:  # serverless compute has no checkpoints
            return rows

    def delete(self, table: Table, where: str) -> None:
        """Removes the rows that satisfy `where`. One commit, or none if there are no such rows."""
        statement = f"DELETE FROM {self.identifier(table)} WHERE {where}"
        self._commit(table, lambda: self.spark.sql(statement).collect(), lambda driver: driver.delete(table, where))

    def compact(self, table: Table, where: str) -> tuple[int, int]:
        """Joins small files in the partitions that `where` names. One commit, or none if there is nothing to join.

        Returns the number of files that were joined, and the number of new files.
        """
        statement = f"OPTIMIZE {self.identifier(table)} WHERE {where}"
        (done,) = self._commit(table, lambda: self.spark.sql(statement).collect())
        return done["metrics"]["numFilesRemoved"], done["metrics"]["numFilesAdded"]

    def vacuum(self, table: Table) -> int:
        """Deletes files that no version of the last week needs (`delta.deletedFileRetentionDuration`).

        Returns their number, at most about 1,000 with Spark, which lists no more.
        """
        if self._driver:
            with suppress(NotForDriverError):
                return self._driver.vacuum(table)
        statement = f"VACUUM {self.identifier(table)}"
        found = self.spark.sql(f"{statement} DRY RUN").count()
        if found:  # VACUUM would write two commits even if there is nothing to delete
            self._commit(table, lambda: self.spark.sql(statement).collect())
        return found

    def files(self, table: Table) -> list[str]:
        """The paths of a table's files. They contain the partition: `…/cluster=east/snapshot_date=2026-01-31/…`."""
        return self.spark.table(self.identifier(table)).inputFiles()

    def merge(self, table: Table, rows: Sequence[tuple[Any, ...]], cluster: str, update_if: str = "") -> Merged:
        """Inserts the rows whose key is absent. Replaces an existing row `t` by the new row `s` if `update_if` holds.

        One commit. `rows` are few, each with the columns of the table's schema.
        """
        few = arrow_rows(table, rows) if self._driver else None
        return self._commit(
            table,
            lambda: self._merge_by_spark(table, rows, cluster, update_if),
            lambda driver: Merged(*driver.merge(table, few, cluster, update_if)),
        )

    def _merge_by_spark(self, table: Table, rows: Sequence[tuple[Any, ...]], cluster: str, update_if: str) -> Merged:
        on = " AND ".join(f"t.{column} <=> s.{column}" for column in table.key)
        if "snapshot_id" in table.key:  # as literals, so that Delta opens only the files of these snapshots
            place = table.schema.names.index("snapshot_id")
            on += f" AND t.snapshot_id IN ({', '.join(sorted({str(row[place]) for row in rows}))})"
        names = [f"`{name}`" for name in table.stored.names]  # a user may have added others
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
    """An instant as Spark returns it, with the process's time zone added, because local times may be ambiguous."""
    return value.astimezone() if isinstance(value, datetime) and value.tzinfo is None else value


def _declared(column: StructField) -> str:
    return f"`{column.name}` {column.dataType.simpleString()} COMMENT {quoted(column.metadata['comment'])}"


def _properties(table: Table) -> dict[str, str]:
    skipping = ",".join(f.name for f in table.stored if f.name in SKIPPING_COLUMNS)
    return PROPERTIES | {"delta.dataSkippingStatsColumns": skipping}


def _in_sql(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())


def _aligned(table: Table) -> list[Column]:
    """The stored columns of a table, for rows that have the columns of its schema."""
    columns = [F.col(f.name).cast(f.dataType).alias(f.name) for f in table.schema]
    at = [F.timestamp_millis("snapshot_id").alias(SNAPSHOT_AT.name)] if SNAPSHOT_AT in table.stored else []
    return columns + at
