"""How delta-rs queries a table and replaces its rows, with texts of the type that every reader can compare.

delta-rs reads texts and bytes as Arrow's `string_view` and `binary_view`. Its MERGE, DELETE and OPTIMIZE record these
types in the files that they write. DuckDB and pandas read a table with pyarrow, which cannot compare such texts:
"Function 'equal' has no kernel matching input types (string, string_view)". So the driver uses none of the three.
It only replaces the rows that satisfy a predicate, by rows with the types of the table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, PostCommitHookProperties, QueryBuilder, write_deltalake

from pipeline.common.errors import LakeError
from pipeline.lake.predicates import MOST_NAMED, for_datafusion, of_cluster, one_of

_KEEP_LOG = PostCommitHookProperties(cleanup_expired_logs=False)
"""Some commits make a checkpoint. delta-rs would at once delete commits that it replaces, before it is on the disk."""
SOURCE_ROW, IS_UPDATED = "_source_row", "_is_updated"


class Replacement(NamedTuple):
    """What a merge makes of the rows in the place that it replaces, and how many it has inserted and updated."""

    rows: pa.Table
    inserted: int
    updated: int


def arrow_schema(found: DeltaTable, columns: Sequence[str] = ()) -> pa.Schema:
    """The Arrow types of a table, with `string` and `binary` for texts and bytes; of some columns if they are given."""
    schema = pa.schema(found.schema().to_arrow())
    return pa.schema([schema.field(name) for name in columns]) if columns else schema


def query_rows(asked: QueryBuilder, text: str) -> pa.Table:
    """The rows of a query. Their texts may be views."""
    return query_batches(asked, text).read_all()


def query_batches(asked: QueryBuilder, text: str) -> pa.RecordBatchReader:
    """The same rows, in batches."""
    return pa.RecordBatchReader.from_stream(asked.execute(text))


def select_rows(found: DeltaTable, what: str) -> pa.Table:
    """The rows of `SELECT what`, in which the table is called `rows`."""
    return select_batches(found, what).read_all()


def select_batches(found: DeltaTable, what: str) -> pa.RecordBatchReader:
    """The same rows, in batches."""
    return query_batches(QueryBuilder().register("rows", found), f"SELECT {what}")


def replace_rows(found: DeltaTable, rows: pa.Table, where: str) -> None:
    """Replaces the rows that satisfy `where` by `rows`, in one commit. Columns that `rows` lack are NULL.

    Rows that stay, but are in a file with replaced ones, are written again, with the types of the table, too.
    """
    schema = arrow_schema(found)
    if lacking := [name for name in rows.column_names if name not in schema.names]:
        raise LakeError(f"the table has no column {', '.join(lacking)}")
    for column in schema:
        if column.name not in rows.column_names:
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
    write_deltalake(
        found,
        rows.select(schema.names).cast(schema),
        mode="overwrite",
        predicate=where,
        post_commithook_properties=_KEEP_LOG,
    )


def delete_rows(found: DeltaTable, where: str) -> None:
    """Removes the rows that satisfy `where`. One commit, none if there are no such rows."""
    (count,) = select_rows(found, f"count(*) FROM rows WHERE {where}")[0].to_pylist()
    if count:
        replace_rows(found, arrow_schema(found).empty_table(), where)


def merge_rows(
    found: DeltaTable, key: Sequence[str], rows: pa.Table, cluster: str, update_if: str, staging: Path
) -> tuple[int, int]:
    """Inserts the rows whose key is absent, and updates the others if `update_if` holds; returns both numbers.

    One commit, none if there is nothing to write. The place of the keys is replaced even if no row is there yet: if
    another writer has put a row there meanwhile, that is a conflict. `staging` is a folder for what the merge needs
    meanwhile.
    """
    where = _place(key, rows, cluster)
    done = merged(_matched(found, key, rows, where, update_if, staging), rows)
    if done.inserted or done.updated:
        replace_rows(found, done.rows, where)
    return done.inserted, done.updated


def merged(existing: pa.Table, rows: pa.Table) -> Replacement:
    """The rows that replace `existing`, which say with SOURCE_ROW and IS_UPDATED which of `rows` has their key.

    An updated row keeps the values of columns that `rows` lack: a user may have added them.
    """
    numbers = pa.array(range(rows.num_rows), pa.int64())
    inserted = rows.filter(pc.invert(pc.is_in(numbers, existing[SOURCE_ROW].combine_chunks())))
    old = existing.filter(existing[IS_UPDATED])
    updated = rows.take(old[SOURCE_ROW])
    kept = existing.filter(pc.invert(existing[IS_UPDATED])).drop_columns([SOURCE_ROW, IS_UPDATED])
    for name in kept.column_names:
        if name not in rows.column_names:
            updated = updated.append_column(kept.schema.field(name), old[name])
    whole = pa.concat_tables([kept, updated, inserted], promote_options="default")
    return Replacement(whole, inserted.num_rows, updated.num_rows)


def _place(key: Sequence[str], rows: pa.Table, cluster: str) -> str:
    """The predicate for the rows that may have one of the keys: each column has one of its values.

    A column with many values does not count: DataFusion ends the process at 22,000 of them in one predicate.
    """
    parts = [of_cluster(cluster)]
    for name in key:
        values = rows[name].unique().to_pylist()
        is_wide = len(values) > MOST_NAMED or not all(isinstance(value, str | int | None) for value in values)
        if name == "cluster" or is_wide:
            continue
        known = sorted(value for value in values if value is not None)
        either = [one_of(f'"{name}"', known)] if known else []
        either += [f'"{name}" IS NULL'] if None in values else []
        parts.append(f"({' OR '.join(either)})")
    return for_datafusion(" AND ".join(parts))


def _matched(
    found: DeltaTable, key: Sequence[str], rows: pa.Table, where: str, update_if: str, staging: Path
) -> pa.Table:
    """The rows in a place, each with the number of the new row that has its key, and whether that replaces it.

    delta-rs can only query tables, so the new rows are one for as long as the query takes. It is in the lake, and
    not in the machine's folder for temporary files, which may be full, or have a name with % that delta-rs misreads.
    """
    numbered = rows.append_column(SOURCE_ROW, pa.array(range(rows.num_rows), pa.int64()))
    # In parentheses, because delta-rs would read `a IS NOT DISTINCT FROM b AND c` as if `b AND c` were in them.
    has_key = " AND ".join(f'(t."{name}" IS NOT DISTINCT FROM s."{name}")' for name in key)
    is_updated = f"coalesce(({for_datafusion(update_if or 'false')}) AND s.{SOURCE_ROW} IS NOT NULL, false)"
    staging.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="merge_", dir=staging, ignore_cleanup_errors=True) as folder:
        write_deltalake(folder, numbered)
        asked = QueryBuilder().register("rows", found).register("s", DeltaTable(folder))
        text = (
            f"SELECT t.*, s.{SOURCE_ROW}, {is_updated} AS {IS_UPDATED} "
            f"FROM (SELECT * FROM rows WHERE {where}) AS t LEFT JOIN s ON {has_key}"
        )
        existing = query_rows(asked, text)
    names = [name for name in existing.column_names if name not in (SOURCE_ROW, IS_UPDATED)]
    own = [pa.field(SOURCE_ROW, pa.int64()), pa.field(IS_UPDATED, pa.bool_())]
    return existing.cast(pa.schema([*arrow_schema(found, names), *own]))
