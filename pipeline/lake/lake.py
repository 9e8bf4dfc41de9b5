"""Reads and writes the tables of a lake: many rows with Spark, and few rows on the driver, without Spark.

With Spark it uses only SQL and the DataFrame writer, not DeltaTable or the JVM, so it also runs with Connect.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from pipeline.common.columns import columns_of
from pipeline.common.epoch import MINUTE_MS
from pipeline.common.rows import R, Rows
from pipeline.lake.conflicts import FAILURES
from pipeline.lake.driver_tables import STAGING, NotForDriverError, arrow_rows
from pipeline.lake.few_rows import FEW_FOR_SPARK, MANY_ROWS, ROWS_TO_COLLECT
from pipeline.lake.history import KEPT_FOR_A_WEEK, keeps_too_little
from pipeline.lake.lake_tables import LakeTables, stored_columns
from pipeline.lake.merge import Merged, merge_statement, temporary_view
from pipeline.lake.sorted_rows import write_sorted
from pipeline.lake.upgrade import prepare, schema_version
from pipeline.tables import Table

STAGED_OVER = "another run has staged its rows where this one had: do two runs work on this cluster at once?"
STAGES = 7
"""The number of staging areas that a cluster's snapshots, or its batches, use in turn: so a late run does not meet the
next one."""
_UNSUPPORTED = re.compile("SUPPORTED|not supported")
"""What a session says that has no checkpoints, like serverless compute."""
Clock = Callable[[], datetime]
"""Returns the current time. It is a parameter, so that tests and reruns can choose the time."""


class Lake(LakeTables):
    """One lake. If the driver can read and write its tables, it does so for few rows; Spark does the rest."""

    def prepare(self, before_new: Callable[[LakeTables], None] = lambda _: None) -> None:
        """Creates missing tables, and upgrades those of an older schema version: see `upgrade.prepare`."""
        prepare(self, before_new)

    def schema_version(self) -> int | None:
        """The schema version that the lake was written with; None if there is no lake yet."""
        return schema_version(self)

    def guarded(self, may_write: Callable[[], None]) -> Lake:
        """The same lake, for a run that may lose its right to write; it expects as many rows as this one.

        `may_write` is called before each try, and raises if the right is lost.
        """
        guarded = Lake(self._spark, self._config, may_write)
        guarded._expected = self._expected  # else the log index of a large cluster would be computed into the driver
        return guarded

    @property
    def reads_without_spark(self) -> bool:
        """Whether the driver reads the rows that are expected."""
        return self.is_on_driver and self._expects_fewer(MANY_ROWS)

    def for_one_cluster(self) -> Lake:
        """The same lake, for a cluster whose rows may be many while those of others are few."""
        return Lake(self._spark, self._config, self._may_write)

    def read(self, table: Table) -> DataFrame:
        """All rows of a table with the columns of its schema, by Spark, lazily. Callers filter by cluster and date."""
        return self.spark.table(self.identifier(table)).select(*table.columns)

    def rows(self, table: Table, where: str = "true", *columns: str) -> Rows:
        """The rows that satisfy a predicate, which Spark and DataFusion must both understand; some of their columns.

        If the rows are few, they are read immediately, without Spark.
        """
        names = columns or table.columns
        # If others of the same batch are many, rows of the driver would become part of a plan.
        return self._rows(table, where, names, MANY_ROWS if self._expects_fewer(MANY_ROWS) else FEW_FOR_SPARK)

    def frame(self, table: Table, where: str = "true", *columns: str) -> DataFrame:
        """The same rows as a DataFrame."""
        names = columns or table.columns
        return self._rows(table, where, names, FEW_FOR_SPARK).frame(self.spark, table.some(names))

    def query(self, statement: str, *tables: Table) -> list[dict[str, Any]]:
        """The rows of a query, as dictionaries. They must be few.

        Spark and DataFusion must both understand the statement, in which `{name}` stands for the table of that name.
        """
        with self.else_spark():
            if self._driver:
                return self._driver.query(statement.format_map({table.name: table.name for table in tables}), tables)
        names = {table.name: self.identifier(table) for table in tables}
        return [row.asDict() for row in self.spark.sql(statement.format_map(names)).collect()]

    def _rows(self, table: Table, where: str, names: Sequence[str], limit: int) -> Rows:
        """The rows, on the driver if it can read them, and if they are fewer than the limit."""
        with self.else_spark():
            are_few = self._expects_fewer(MANY_ROWS)
            limit = limit if self._spark else sys.maxsize
            few = self._driver.read(table, where, names, limit, are_few=are_few) if self._driver else None
            if few is not None:
                return Rows(few)
        return Rows(self.read(table).where(where).select(*names))

    def replace(self, table: Table, rows: DataFrame | Rows, where: str, most: int | None = None) -> None:
        """Replaces the rows that satisfy `where` by `rows`, which must all satisfy it. One commit.

        `most` is the greatest possible number of rows. If it is None, the job's own expectation decides whether the
        rows are few: see `few_rows`.
        """
        of = rows.rows if isinstance(rows, Rows) else rows
        are_few = self._expects_fewer(ROWS_TO_COLLECT) if most is None else most < ROWS_TO_COLLECT
        if isinstance(of, DataFrame) and not (self._driver and are_few):
            self._replace(table, lambda: of.select(*stored_columns(table)), where)
            return
        # Only once, because a source may return other rows the second time.
        few = of.select(*columns_of(table.schema)).toArrow() if isinstance(of, DataFrame) else of

        def frame() -> DataFrame:
            return Rows(few).frame(self.spark, table.schema).select(*stored_columns(table))

        self._replace(table, frame, where, few)

    def replace_counted(self, table: Table, rows: Rows, where: str) -> int:
        """Replaces rows like `replace`; returns how many rows were written."""
        if isinstance(rows.rows, pa.Table):
            self.replace(table, rows, where)
            return len(rows.rows)
        tries: list[Observation] = []

        def observed() -> DataFrame:
            # After a conflict, the rows are computed again, and an observation counts only once.
            tries.append(Observation())
            counted = rows.rows.observe(tries[-1], F.count(F.lit(1)).alias("rows"))
            return counted.select(*stored_columns(table))

        self._replace(table, observed, where)
        return int(tries[-1].get["rows"])

    def replace_rows(self, table: Table, rows: Sequence[tuple[Any, ...]], where: str) -> None:
        """Replaces rows like `replace`. The new rows are tuples with the columns of the table's schema."""
        found = arrow_rows(table, rows) if self._driver else None
        self._replace(table, lambda: self.frame_of(table, rows).select(*stored_columns(table)), where, found)

    def _replace(self, table: Table, rows: Callable[[], DataFrame], where: str, few: Any = None) -> None:
        """Writes `few` by the driver if they are given, else `rows` by Spark."""

        def by_spark() -> None:
            # saveAsTable with replaceWhere would do the same, but would lose the observations (`observe`) on the rows.
            rows().writeTo(self.identifier(table)).overwrite(F.expr(where))

        self.commit(table, by_spark, None if few is None else lambda driver: driver.overwrite(table, few, where))

    def frame_of(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
        """A DataFrame of a few tuples with the columns of the table's schema. It is written as one file."""
        return self.spark.createDataFrame([tuple(map(_aware, row)) for row in rows], table.schema).coalesce(1)

    def stage(self, name: str, rows: DataFrame) -> DataFrame:
        """Writes rows to the staging area of this name, in place of its old rows; returns a DataFrame that reads them.

        Without this, each query on a data source would read the source again. Caching is not possible in serverless
        sessions and with Connect.
        """
        self._may_write()
        if self._config.root is not None:
            path = f"{self._config.root}/{STAGING}/{name}"
            rows.write.mode("overwrite").parquet(path)
            return self.spark.read.schema(rows.schema).parquet(path)
        # Catalogs allow only letters, digits and underscores; the checksum distinguishes names that become equal.
        plain = f"staging_{re.sub('[^A-Za-z0-9]', '_', name)}_{crc32(name.encode()):08x}"
        table = f"`{self._config.catalog}`.`{self._config.schema_name}`.`{plain}`"
        rows.writeTo(table).using("delta").createOrReplace()
        return self.spark.table(table)

    def computed(self, rows: DataFrame | Rows) -> Rows:
        """The rows, computed only once for several queries: on the driver, if the job expects few.

        They are unchanged if the session cannot keep rows, like serverless compute.
        """
        found = rows.rows if isinstance(rows, Rows) else rows
        if isinstance(found, pa.Table):
            return Rows(found)
        try:
            if not (self._driver and self._expects_fewer(ROWS_TO_COLLECT)):
                return Rows(found.localCheckpoint())
            collected = Rows(found.toArrow())
        except FAILURES:
            return Rows(found)
        # There may be many all the same: the watermarks of a long tail of the log index.
        are_few = len(collected.collected_table()) < ROWS_TO_COLLECT
        return collected if are_few else Rows(collected.frame(self.spark, found.schema))

    def collected_if_few(self, rows: Rows) -> Rows:
        """The same, but on the driver also if they turn out to be few although the job expects many.

        If the driver cannot write them, they stay where they are.
        """
        kept = self.computed(rows)
        if self._driver is None or isinstance(kept.rows, pa.Table):
            return kept
        return kept if kept.rows.limit(FEW_FOR_SPARK).count() == FEW_FOR_SPARK else Rows(kept.collected_table())

    def computed_or_staged(self, rows: R, name: str, snapshot_id: int) -> R:
        """Many rows, computed only once for several queries, like `computed`; staged if the session cannot keep rows.

        Many rows of the driver are in a file from then on.

        The staging area is named by `name`, and by the snapshot: successive batches use different ones. If another job
        stages other rows there meanwhile, queries on these fail with STAGED_OVER.
        """
        if isinstance(rows, pa.Table):
            kept: R = self.in_file(rows)
            return kept
        try:
            return rows.localCheckpoint()
        except FAILURES as exc:
            if not _UNSUPPORTED.search(str(exc)):
                raise
        return self.staged_once(rows, f"{name}_{snapshot_id // MINUTE_MS % STAGES}")

    def staged_once(self, rows: DataFrame, name: str) -> DataFrame:
        """Computes rows once, and stages them. If another run stages other rows there, queries fail with STAGED_OVER.

        If it stages none for a query, the query finds none: count what must be there.
        """
        run = F.lit(uuid4().hex)
        staged = self.stage(name, rows.withColumn("run", run))
        is_own = F.when(F.col("run") == run, F.lit(True)).otherwise(F.raise_error(F.lit(STAGED_OVER)).cast("boolean"))
        return staged.where(is_own).drop("run")

    def in_file(self, rows: pa.Table) -> pa.Table:
        """Rows of the driver. If they are many, they are in a file from then on."""
        return self._driver.kept(rows) if self._driver else rows

    def delete(self, table: Table, where: str) -> None:
        """Removes the rows that satisfy `where`. One commit, or none if there are no such rows."""
        statement = f"DELETE FROM {self.identifier(table)} WHERE {where}"
        self.commit(table, lambda: self.spark.sql(statement).collect(), lambda driver: driver.delete(table, where))

    def compact(self, table: Table, where: str) -> tuple[int, int]:
        """Compacts small files in the partitions that satisfy `where`. One commit, or none if there is nothing to do.

        Returns the number of files that were compacted, and the number of new files.
        """
        statement = f"OPTIMIZE {self.identifier(table)} WHERE {where}"
        (done,) = self.commit(table, lambda: self.spark.sql(statement).collect())
        return done["metrics"]["numFilesRemoved"], done["metrics"]["numFilesAdded"]

    def compact_if_many(self, table: Table, where: str, most: int) -> bool:
        """Compacts the files with rows that satisfy `where` if they are more than `most`; returns whether they were.

        Unlike `compact`, it takes any predicate, and rewrites only these files. Files that the driver writes are
        compacted when it commits.
        """
        if self._driver:
            return False
        rows = self.spark.table(self.identifier(table)).where(where)
        if rows.select("_metadata.file_path").distinct().count() <= most:
            return False
        self._replace(table, lambda: self.spark.table(self.identifier(table)).where(where).coalesce(1), where)
        return True

    def rewrite_sorted(self, table: Table, where: str, files: int) -> None:
        """Rewrites partitions that satisfy `where` as sorted files, `files` in number; see `write_sorted`."""
        self.commit(table, partial(write_sorted, self.spark, self.identifier(table), table, where, files))

    def vacuum(self, table: Table) -> int:
        """Deletes the files that no version of the retention, at least a week, needs. Spark counts at most 1,000."""
        if self._driver:
            with suppress(NotForDriverError):
                return self._driver.vacuum(table)
        name = self.identifier(table)
        if keeps_too_little(self.properties(table) or {}):  # Delta 4.4 ignores `VACUUM … RETAIN`
            self.commit(table, lambda: self.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({KEPT_FOR_A_WEEK})"))
        found = self.spark.sql(f"VACUUM {name} DRY RUN").count()
        if found:  # VACUUM would write two commits even if there is nothing to delete
            self.commit(table, lambda: self.spark.sql(f"VACUUM {name}").collect())
        return found

    def checkpoint(self, table: Table) -> bool:
        """Writes a checkpoint if the last one is old; returns whether it did. Spark needs no call for that."""
        return self.commit(table, lambda: False, lambda driver: driver.checkpoint(table))

    def files(self, table: Table) -> list[str]:
        """The paths of a table's files. They contain the partition: `…/cluster=east/snapshot_date=2026-01-31/…`."""
        with self.else_spark():
            if self._driver:
                return self._driver.files(table)
        return self.spark.table(self.identifier(table)).inputFiles()

    def merge(self, table: Table, rows: Sequence[tuple[Any, ...]], cluster: str, update_if: str = "") -> Merged:
        """Inserts the rows whose key is absent. Replaces an existing row `t` by the new row `s` if `update_if` holds.

        One commit. `rows` are a few tuples with the columns of the table's schema, all of one cluster.
        """
        few = arrow_rows(table, rows) if self._driver else None
        return self.commit(
            table,
            lambda: self._merge_by_spark(table, rows, cluster, update_if),
            lambda driver: Merged(*driver.merge(table, few, cluster, update_if)),
        )

    def _merge_by_spark(self, table: Table, rows: Sequence[tuple[Any, ...]], cluster: str, update_if: str) -> Merged:
        with temporary_view(self.frame_of(table, rows).select(*stored_columns(table))) as view:
            statement = merge_statement(table, self.identifier(table), view, rows, cluster, update_if)
            counts = self.spark.sql(statement).collect()[0]
        return Merged(inserted=counts["num_inserted_rows"], updated=counts["num_updated_rows"])


def _aware(value: Any) -> Any:
    """An instant as Spark returns it, with the process's time zone added, because local times may be ambiguous."""
    return value.astimezone() if isinstance(value, datetime) and value.tzinfo is None else value
