"""Reads and writes few rows of tables in a folder of the driver's own machine, with delta-rs instead of Spark.

Spark and Delta take 0.1 to 0.5 s for each read and commit, even of few rows, and a run makes dozens. delta-rs takes
5 to 30 ms, and 0.15 s more for each 100,000 files of the table. A commit of delta-rs links a finished file to the name
of the next version; only one of two writers can do that, even if they are different processes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, TableNotFoundError
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from pipeline.common.epoch import utc
from pipeline.common.errors import LakeError, first_line
from pipeline.lake import history
from pipeline.lake.conflicts import ConflictError
from pipeline.lake.delta_rs import (
    arrow_schema,
    delete_rows,
    merge_rows,
    query_rows,
    replace_rows,
    select_batches,
    select_rows,
)
from pipeline.lake.durable import sync_checkpoint, sync_versions
from pipeline.lake.predicates import for_datafusion, of_cluster
from pipeline.lake.stores import has_links, local_folder
from pipeline.lake.table_files import table_in_file
from pipeline.tables import SNAPSHOT_AT, Table

log = logging.getLogger(__name__)

STAGING = "_staging"
"""The folder in a lake for rows that are not in a table yet."""
MOST_FILES = 25
"""Small files of one cluster in the ledger or in `computed`. Each snapshot adds a file, so if there are more than this,
they are joined into one."""
LARGE_FILE = 5_000
"""From this number of rows on, a file is not joined with others: the cost must not grow with the history."""


class NotForDriverError(LakeError):
    """The table has a feature that delta-rs does not support, so Spark must be used."""


class DriverTables:
    """The tables below a local folder."""

    def __init__(self, root: Path, may_write: Callable[[], None] = lambda: None) -> None:
        self._root = root
        self._may_write = may_write

    def properties(self, table: Table) -> Mapping[str, str] | None:
        """The table's properties; None if it does not exist."""
        try:
            with _errors(table):
                return dict(self._open(table).metadata().configuration)
        except _AbsentError:
            return None

    def create(self, table: Table, properties: Mapping[str, str]) -> None:
        """Creates the table if it does not exist."""
        folder = self._root / table.name
        with _errors(table):
            folder.mkdir(parents=True, exist_ok=True)  # if this fails, its error says why
            try:
                DeltaTable.create(
                    folder,
                    _delta_schema(table),
                    mode="error",
                    partition_by=[*table.partitioned_by],
                    description=table.about,
                    configuration=dict(properties),
                    raise_if_key_not_exists=False,
                )
            except DeltaError:
                if not DeltaTable.is_deltatable(str(folder)):  # else it exists; another job may have created it
                    raise
            sync_versions(folder, [0])

    def extend(self, table: Table, properties: Mapping[str, str]) -> None:
        """Adds the columns that the table lacks, and sets properties. Two commits at most."""
        with self._committing(table) as found:
            have = {field.name for field in found.schema().fields}
            lacking = [field for field in _delta_schema(table).fields if field.name not in have]
            if lacking:
                found.alter.add_columns(lacking)
            old = found.metadata().configuration  # delta-rs refuses some properties, even if they stay what they are
            new = {name: value for name, value in properties.items() if old.get(name) != value}
            if new:
                found.alter.set_table_properties(new, raise_if_not_exists=False)

    def read(self, table: Table, where: str, names: Sequence[str], limit: int, *, are_few: bool) -> pa.Table | None:
        """Some columns of the rows that satisfy `where`; None if they reach the limit.

        Unless `are_few`, the rows are counted first, so that many rows are not read only to be dropped.
        """
        columns = ", ".join(f'"{name}"' for name in names)
        with _errors(table):
            found = self._open(table)
            if not are_few:
                (count,) = select_rows(found, f"count(*) FROM rows WHERE {for_datafusion(where)}")[0].to_pylist()
                if count >= limit:
                    return None
            schema = arrow_schema(found, names)
            batches = (
                batch
                for some in select_batches(found, f"{columns} FROM rows WHERE {for_datafusion(where)} LIMIT {limit}")
                for batch in pa.Table.from_batches([some]).cast(schema).to_batches()
            )
            rows = table_in_file(batches, schema, self._root / STAGING)
            return rows if rows.num_rows < limit else None

    def kept(self, rows: pa.Table) -> pa.Table:
        """The rows; many are in a file instead of the memory."""
        return table_in_file(rows.to_batches(), rows.schema, self._root / STAGING)

    def query(self, text: str, tables: Sequence[Table]) -> list[dict[str, Any]]:
        """The rows of a query, in which the tables have their own names."""
        asked = QueryBuilder()
        for table in tables:
            with _errors(table):
                asked.register(table.name, self._open(table))
        with _errors(*tables):
            found: list[dict[str, Any]] = query_rows(asked, for_datafusion(text)).to_pylist(maps_as_pydicts="strict")
        return found

    def files(self, table: Table) -> list[str]:
        """The paths of the files with the table's rows."""
        with _errors(table):
            paths = pa.table(self._open(table).get_add_actions(flatten=True))["path"].to_pylist()
        return [f"{self._root / table.name / unquote(path)}" for path in paths]

    def overwrite(self, table: Table, rows: pa.Table, where: str) -> None:
        """Replaces the rows that satisfy `where` by `rows`, which all satisfy it. One commit."""
        if SNAPSHOT_AT in table.stored and SNAPSHOT_AT.name not in rows.column_names:
            at_ms = rows["snapshot_id"].cast(pa.timestamp("ms", "UTC"))
            rows = rows.append_column(SNAPSHOT_AT.name, at_ms.cast(pa.timestamp("us", "UTC")))
        with self._committing(table) as found:
            replace_rows(found, rows, for_datafusion(where))
            _compact(found, table, rows)

    def delete(self, table: Table, where: str) -> None:
        """Removes the rows that satisfy `where`. One commit, none if there are no such rows."""
        with self._committing(table) as found:
            delete_rows(found, for_datafusion(where))

    def vacuum(self, table: Table) -> int:
        """Deletes files that no version of the last week, or of the table's own longer retention, needs."""
        with _errors(table):
            return history.delete_unused(self._open(table), self._root / table.name)

    def checkpoint(self, table: Table) -> bool:
        """Writes a checkpoint if the last one is old, and then deletes expired files of the log."""
        with self._committing(table) as found:
            return history.write_checkpoint(found, self._root / table.name)

    def merge(self, table: Table, rows: pa.Table, cluster: str, update_if: str) -> tuple[int, int]:
        """Inserts the rows whose key is absent, and updates the others if `update_if` holds; returns both numbers."""
        with self._committing(table) as found:
            counts = merge_rows(found, table.key, rows, cluster, update_if, self._root / STAGING)
            _compact(found, table, rows)
            return counts

    def _open(self, table: Table) -> DeltaTable:
        return DeltaTable(self._root / table.name)

    @contextmanager
    def _committing(self, table: Table) -> Iterator[DeltaTable]:
        folder = self._root / table.name
        with _errors(table):
            found = self._open(table)
            before, checkpoint_before = found.version(), history.last_checkpoint(folder)
            self._may_write()  # after opening, so that a commit in between is a conflict
            yield found
            sync_versions(folder, range(before + 1, found.version() + 1))
            # delta-rs may have rewritten `_last_checkpoint`, and this is Spark's checksum of that file. If the two do
            # not agree, Spark retries for three seconds in all, as if the file were still being written.
            (folder / "_delta_log" / "._last_checkpoint.crc").unlink(missing_ok=True)
            checkpoint = history.last_checkpoint(folder)
            if checkpoint != checkpoint_before:  # also made by some commits
                sync_checkpoint(folder, checkpoint)
                _shorten_log(found, table)


_LACKING = re.compile("Unsupported table features|Unsupported: Feature|append-only|Column mapping is not supported")
"""The messages of delta-rs, in errors of several types, about a table with a feature that it does not support."""


class _AbsentError(LakeError):
    """The table does not exist."""


@contextmanager
def _errors(*tables: Table) -> Iterator[None]:
    """Turns an exception of delta-rs into ConflictError, _AbsentError, NotForDriverError or else LakeError."""
    names = ", ".join(table.name for table in tables)
    try:
        yield
    except CommitFailedError as exc:
        if _LACKING.search(str(exc)):
            raise NotForDriverError(first_line(exc)) from exc
        raise ConflictError(f"{names}: {first_line(exc)}") from exc
    except TableNotFoundError as exc:
        raise _AbsentError(f"{names}: is not there") from exc
    except DeltaProtocolError as exc:
        raise NotForDriverError(first_line(exc)) from exc
    except (DeltaError, pa.ArrowException, OSError) as exc:
        if _LACKING.search(str(exc)):
            raise NotForDriverError(first_line(exc)) from exc
        raise LakeError(f"{names}: {first_line(exc)}") from exc


def _compact(found: DeltaTable, table: Table, rows: pa.Table) -> None:
    """Compacts the small files of each cluster in `rows`, unless the table is partitioned by date, with few files."""
    if "snapshot_date" in table.partitioned_by:
        return
    for cluster in set(rows["cluster"].to_pylist()):
        try:
            where = _small_files(found, cluster)
            if where is not None:
                # Not `optimize.compact`: if two jobs call it at once, both add the rows (delta-rs 1.6).
                replace_rows(found, select_rows(found, f"* FROM rows WHERE {where}"), where)
        except CommitFailedError:  # another writer has committed meanwhile, and will join the files
            pass
        except (DeltaError, pa.ArrowException, OSError) as exc:  # the rows themselves are already written
            log.warning("%s: its small files could not be joined: %s", table.name, first_line(exc))


def _shorten_log(found: DeltaTable, table: Table) -> None:
    try:
        history.delete_expired(found)
    except (DeltaError, LakeError, OSError) as exc:  # the commit is made, and the log only longer than it need be
        log.warning("%s: expired files of its log could not be deleted: %s", table.name, first_line(exc))


def _small_files(found: DeltaTable, cluster: str) -> str | None:
    """The predicate for the rows of a cluster's small files; None if they are few.

    Of a table of snapshots, it begins with the oldest snapshot in these files, so large files are left as they are.
    """
    files = pa.table(found.get_add_actions(flatten=True)).to_pylist()
    small = [
        f
        for f in files
        if f["partition.cluster"] == cluster and (f["num_records"] is None or f["num_records"] < LARGE_FILE)
    ]
    if len(small) <= MOST_FILES:
        return None
    oldest = [f.get("min.snapshot_id") for f in small]
    return of_cluster(cluster) + ("" if None in oldest else f" AND snapshot_id >= {min(oldest)}")


def driver_tables(
    spark: SparkSession | None, root: str | None, may_write: Callable[[], None] = lambda: None
) -> DriverTables | None:
    """The tables below `root` if that is a local folder and all of Spark runs in this one process; else None."""
    folder = local_folder(spark, root)
    if folder is None or "%" in str(folder):  # delta-rs reads %20 as a blank
        return None
    is_one_process = spark is None or str(spark.sparkContext.master).startswith("local")
    return DriverTables(folder, may_write) if is_one_process and has_links(folder) else None


def arrow_rows(table: Table, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Arrow rows from Python values as Spark takes them: the table's columns, and snapshot_at if the table has it."""
    try:
        found = [{f.name: _arrow_value(v, f.dataType) for f, v in zip(table.schema, row, strict=True)} for row in rows]
        if SNAPSHOT_AT in table.stored:
            found = [row | {SNAPSHOT_AT.name: utc(row["snapshot_id"])} for row in found]
        return pa.Table.from_pylist(found, pa.schema(_delta_schema(table).to_arrow()))
    except (ValueError, OverflowError, TypeError) as exc:  # pyarrow's own are ValueError or TypeError
        raise LakeError(f"{table.name}: a value does not fit its column: {first_line(exc)}") from exc


def _arrow_value(value: Any, of: DataType) -> Any:
    if value is None:
        return None
    if isinstance(of, StructType):
        return {f.name: _arrow_value(v, f.dataType) for f, v in zip(of, value, strict=True)}
    if isinstance(of, ArrayType):
        return [_arrow_value(v, of.elementType) for v in value]
    if isinstance(of, MapType):
        return [(key, _arrow_value(v, of.valueType)) for key, v in value.items()]
    if isinstance(of, TimestampType):
        return value.astimezone(UTC)  # Spark returns instants without a zone, in the time zone of the process
    return value


def _delta_schema(table: Table) -> Schema:
    return Schema.from_json(table.stored.json())
