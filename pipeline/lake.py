"""All Delta I/O: where tables are, how they are made, read, replaced and merged.

SQL and the DataFrame writer only, no DeltaTable and no JVM: the same code runs in a classic session and in Connect.
"""

from __future__ import annotations

import logging
import random
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from pipeline.config import LakeConfig
from pipeline.errors import LaglakeError, LakeError, SchemaError, first_line
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

CONFLICT_TRIES = 6
CONFLICTS = (
    "DELTA_CONCURRENT",
    "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
    "DELTA_DUPLICATE_COLUMNS_FOUND",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "FIELD_ALREADY_EXISTS",
)
"""What Delta calls it when another writer was first: with rows, with a table or column that both were to make."""

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
"""What Spark raises. A classic session leaves most of the JVM's exceptions as they are: conflicts, aborted jobs."""
with suppress(ImportError):  # pyspark-client, which has Connect alone, comes without
    from py4j.protocol import Py4JError

    SPARK_ERRORS = (PySparkException, Py4JError)

FAILURES: tuple[type[Exception], ...] = (LaglakeError, *SPARK_ERRORS)
"""What may go wrong with one cluster and must not keep the others."""

T = TypeVar("T")
Clock = Callable[[], datetime]
"""Tells the time; passed in, so that tests and reruns decide it."""


def utc_date(snapshot_id: int) -> date:
    """The UTC date of an instant in epoch ms."""
    return datetime.fromtimestamp(snapshot_id / 1000, UTC).date()


def utc_text(snapshot_id: int) -> str:
    """An instant in epoch ms as ISO 8601 writes it: 2026-01-31T12:05:00Z."""
    return datetime.fromtimestamp(snapshot_id / 1000, UTC).isoformat().replace("+00:00", "Z")


def of_snapshots(cluster: str, snapshot_ids: Sequence[int]) -> str:
    """The predicate of some snapshots of one cluster; it names the partitions, so that other files are not read."""
    dates = ", ".join(f"DATE'{d}'" for d in sorted({utc_date(i) for i in snapshot_ids}))
    ids = ", ".join(str(i) for i in snapshot_ids)
    return f"cluster = '{cluster}' AND snapshot_date IN ({dates}) AND snapshot_id IN ({ids})"


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

        Raises SchemaError if a newer laglake has written the lake, LakeError if it cannot be made.
        """
        found = self.schema_version()
        if found == SCHEMA_VERSION:
            return
        if found is not None and found > SCHEMA_VERSION:
            raise SchemaError(
                f"{self.identifier(SNAPSHOTS)} has schema version {found}, this laglake knows {SCHEMA_VERSION}: "
                "install the laglake that wrote it, or a newer one"
            )
        if found is not None:
            log.info("the lake is upgraded, once, from schema version %d to %d", found, SCHEMA_VERSION)
        try:
            for table in TABLES:  # the ledger last: while it is absent or old, all this is done again
                through_conflicts(partial(self._create, table))
                if found is not None:
                    through_conflicts(partial(self._grow, table))
        except SPARK_ERRORS as exc:
            raise LakeError(f"the lake cannot be made: {first_line(exc)}") from exc
        log.info("lake of schema version %d at %s", SCHEMA_VERSION, self.identifier(SNAPSHOTS))

    def schema_version(self) -> int | None:
        """The schema version that the lake was written with, None where there is no lake yet."""
        try:
            rows = self.spark.sql(f"SHOW TBLPROPERTIES {self.identifier(SNAPSHOTS)}").collect()
        except AnalysisException:
            return None
        return next((int(r["value"]) for r in rows if r["key"] == VERSION_PROPERTY), 0)

    def _create(self, table: Table) -> None:
        columns = ", ".join(_declared(column) for column in table.stored)
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.identifier(table)} ({columns}) USING delta "
            f"PARTITIONED BY ({', '.join(table.partitioned_by)}) COMMENT {quoted(table.about)} "
            f"TBLPROPERTIES ({_properties(table)})"
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
        self.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({_properties(table)})")

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
        log.info("%s is called %s now: its rows have been copied, and it may be dropped", former.name, table.name)

    def read(self, table: Table) -> DataFrame:
        """All rows of a table in the columns of its schema; readers filter by cluster and date."""
        return self.spark.table(self.identifier(table)).drop(SNAPSHOT_AT.name)

    def read_snapshots(self, table: Table, cluster: str, snapshot_ids: Sequence[int]) -> DataFrame:
        """The rows of some snapshots of one cluster."""
        return self.read(table).where(of_snapshots(cluster, snapshot_ids) if snapshot_ids else F.lit(False))

    def replace(self, table: Table, rows: DataFrame, where: str) -> None:
        """Put `rows`, all of which satisfy `where`, in the place of the rows that did. One commit."""
        # saveAsTable with replaceWhere would do the same, but what is observed of the rows is lost on the way.
        writer = rows.select(*_aligned(table)).writeTo(self.identifier(table))

        def write() -> None:
            self._may_write()
            writer.overwrite(F.expr(where))

        through_conflicts(write)

    def rows(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
        """A few rows that the driver has, to be written as one file."""
        return self.spark.createDataFrame(list(rows), table.schema).coalesce(1)

    def stage(self, name: str, rows: DataFrame) -> DataFrame:
        """Write rows aside, in the place of what was there under this name, and return what reads them.

        A source is read again by each query on it. Caching would do, but Connect and serverless sessions have none.
        """
        self._may_write()
        if self._config.root is not None:
            path = f"{self._config.root}/_staging/{name}"
            rows.write.mode("overwrite").parquet(path)
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
            return rows.localCheckpoint()
        except FAILURES:  # on serverless compute
            return rows

    def delete(self, table: Table, where: str) -> None:
        """Remove the rows that satisfy `where`. One commit, none if there are no such rows."""

        def write() -> None:
            self._may_write()
            self.spark.sql(f"DELETE FROM {self.identifier(table)} WHERE {where}").collect()

        through_conflicts(write)

    def update(self, table: Table, assignments: str, where: str) -> None:
        """Set columns of the rows that satisfy `where`. One commit; after a conflict it is done again."""

        def write() -> None:
            self._may_write()
            self.spark.sql(f"UPDATE {self.identifier(table)} SET {assignments} WHERE {where}").collect()

        through_conflicts(write)

    def merge(self, table: Table, rows: Sequence[tuple[Any, ...]], cluster: str, matched: str = "") -> Merged:
        """Insert the rows whose key is absent; where it is there, do what the `matched` clause says. One commit."""
        on = " AND ".join(f"t.{column} <=> s.{column}" for column in table.key)
        with self._view(self.rows(table, rows).select(*_aligned(table))) as view:
            statement = (
                f"MERGE INTO {self.identifier(table)} t USING {view} s ON t.cluster = '{cluster}' AND {on} "
                f"{matched} WHEN NOT MATCHED THEN INSERT *"
            )
            counts = through_conflicts(lambda: self.spark.sql(statement).collect())[0]
        return Merged(inserted=counts["num_inserted_rows"], updated=counts["num_updated_rows"])

    @contextmanager
    def _view(self, rows: DataFrame) -> Iterator[str]:
        name = f"laglake_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(name)
        try:
            yield name
        finally:
            self.spark.catalog.dropTempView(name)


def _declared(column: StructField) -> str:
    return f"`{column.name}` {column.dataType.simpleString()} COMMENT {quoted(column.metadata['comment'])}"


def quoted(text: str) -> str:
    """A text as a literal in SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _properties(table: Table) -> str:
    skipping = ",".join(f.name for f in table.stored if f.name in SKIPPING_COLUMNS)
    pairs = PROPERTIES | {"delta.dataSkippingStatsColumns": skipping}
    return ", ".join(f"'{key}' = '{value}'" for key, value in pairs.items())


def _aligned(table: Table) -> list[Column]:
    """The columns of a table, of rows that have those of its schema."""
    columns = [F.col(f.name).cast(f.dataType).alias(f.name) for f in table.schema]
    at = [F.timestamp_millis("snapshot_id").alias(SNAPSHOT_AT.name)] if SNAPSHOT_AT in table.stored else []
    return columns + at


def through_conflicts(action: Callable[[], T]) -> T:
    """Do it again where another writer's commit came in between. Raises LakeError when it goes on losing."""
    for attempt in range(CONFLICT_TRIES):
        try:
            return action()
        except SPARK_ERRORS as exc:
            if not is_conflict(exc):
                raise
            conflict = first_line(exc)
            log.info("another writer was first, trying again: %s", conflict)
            time.sleep(random.uniform(0.1, 0.3) * 2**attempt)  # so that rivals do not meet again
    raise LakeError(f"gave up after {CONFLICT_TRIES} conflicts with other writers, the last: {conflict}")


def is_conflict(error: Exception) -> bool:
    """Delta's optimistic concurrency control refused the commit; classic and Connect name it alike in the message."""
    message = str(error)
    return any(name in message for name in CONFLICTS)
