"""The tables of a lake: where they are, what Delta says of them, and how one commit to one of them is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from pipeline.common.columns import columns_of
from pipeline.common.errors import SparkNeededError
from pipeline.config import LakeConfig
from pipeline.lake.conflicts import retry_on_conflict
from pipeline.lake.driver_tables import DriverTables, NotForDriverError, driver_tables
from pipeline.lake.few_rows import expect_rows, expects_few
from pipeline.lake.stores import is_known
from pipeline.tables import SNAPSHOT_AT, Table

T = TypeVar("T")


class LakeTables:
    """The tables of one lake, at `<root>/<table>` or `catalog.schema.table`.

    Without a session (None), the lake must be in a local folder, and what only Spark can do raises SparkNeededError.
    """

    def __init__(
        self, spark: SparkSession | None, config: LakeConfig, may_write: Callable[[], None] = lambda: None
    ) -> None:
        self._spark = spark
        self._config = config
        self._may_write = may_write
        self._expected = 0

    @property
    def has_spark(self) -> bool:
        """Whether there is a session."""
        return self._spark is not None

    @contextmanager
    def else_spark(self) -> Iterator[None]:
        """Passes over what the driver cannot do with a table. Without a session, raises SparkNeededError with it."""
        try:
            yield
        except NotForDriverError as exc:
            if self._spark is None:
                raise SparkNeededError(f"{self.place}: {exc}: call the job without --local") from exc

    @property
    def spark(self) -> SparkSession:
        """The session. Raises SparkNeededError if there is none."""
        if self._spark is None:
            raise SparkNeededError(f"{self.place}: this needs Spark: call the job without --local")
        return self._spark

    @cached_property
    def _driver(self) -> DriverTables | None:
        """The same tables, if the driver can read and write them without Spark; else None."""
        return driver_tables(self._spark, self._config.root, self._may_write)

    @property
    def is_on_driver(self) -> bool:
        """Whether the lake and all of Spark are on this machine, so that the driver can do without Spark."""
        return self._driver is not None

    def expect_rows(self, rows: int) -> None:
        """Announces how many rows the next queries read. If these are many, Spark reads and writes them from now on.

        Another object for the same lake still expects few, unless it was made from this one by `guarded` after that.
        """
        self._expected = max(self._expected, rows)
        if self._spark is not None:
            expect_rows(self._spark, rows)

    def _expects_fewer(self, limit: int) -> bool:
        """Whether the driver may read, compute or write the rows, if these are fewer than a limit."""
        return self._spark is None or (expects_few(self._spark) and self._expected < limit)

    def identifier(self, table: Table) -> str:
        """The table's name in SQL."""
        if self._config.root is not None:
            return f"delta.`{self._config.root}/{table.name}`"
        return f"`{self._config.catalog}`.`{self._config.schema_name}`.`{table.name}`"

    @property
    def place(self) -> str:
        """Where the lake is, as the configuration says it: the root, or `catalog.schema`."""
        return self._config.root or f"{self._config.catalog}.{self._config.schema_name}"

    def location(self, table: Table) -> str | None:
        """Where a table and all others are stored: the root, or what Spark says; None if it does not exist."""
        root = self._config.root
        if root is not None and (self._spark is None or is_known(self._spark, root)):
            return root
        try:
            found = self.spark.sql(f"DESCRIBE DETAIL {self.identifier(table)}").collect()
        except AnalysisException:
            return None
        location: str = found[0]["location"]
        return location

    def properties(self, table: Table) -> Mapping[str, str] | None:
        """The table's properties; None if it does not exist."""
        if self._driver:
            return self._driver.properties(table)
        try:
            rows = self.spark.sql(f"SHOW TBLPROPERTIES {self.identifier(table)}").collect()
        except AnalysisException:
            return None
        return {row["key"]: row["value"] for row in rows}

    def commit(
        self, table: Table, by_spark: Callable[[], T], by_driver: Callable[[DriverTables], T] | None = None
    ) -> T:
        """Writes by the driver if possible, else by Spark. Retries after conflicts, if the run still may write."""

        def checked() -> T:
            self._may_write()  # DriverTables calls it itself
            return by_spark()

        if self._driver and by_driver:
            with self.else_spark():
                return retry_on_conflict(partial(by_driver, self._driver))
        return retry_on_conflict(checked)


def stored_columns(table: Table) -> list[Column]:
    """The columns that a table stores, to be selected from rows that have the columns of its schema."""
    at = [F.timestamp_millis("snapshot_id").alias(SNAPSHOT_AT.name)] if SNAPSHOT_AT in table.stored else []
    return columns_of(table.schema) + at
