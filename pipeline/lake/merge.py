"""How a few rows are merged into a table: the numbers, and Spark's statement and the view that has the rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from pipeline.lake.predicates import of_cluster, one_of
from pipeline.tables import Table


class Merged(NamedTuple):
    """How many rows a MERGE has inserted and updated."""

    inserted: int
    updated: int


def merge_statement(
    table: Table, identifier: str, view: str, rows: Sequence[tuple[Any, ...]], cluster: str, update_if: str
) -> str:
    """Inserts the rows whose key is absent. Replaces an existing row `t` by the new row `s` if `update_if` holds.

    `rows` are those of the view, with the columns of the table's schema.
    """
    on = " AND ".join(f"t.{column} <=> s.{column}" for column in table.key)
    if "snapshot_id" in table.key:  # as literals, so that Delta opens only the files of these snapshots
        place = table.schema.names.index("snapshot_id")
        on += f" AND t.{one_of('snapshot_id', sorted({row[place] for row in rows}))}"
    names = [f"`{name}`" for name in table.stored.names]  # a user may have added others
    assignments = ", ".join(f"t.{name} = s.{name}" for name in names)
    matched = f"WHEN MATCHED AND ({update_if}) THEN UPDATE SET {assignments}" if update_if else ""
    inserted = f"({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"
    return (
        f"MERGE INTO {identifier} t USING {view} s ON t.{of_cluster(cluster)} AND {on} "
        f"{matched} WHEN NOT MATCHED THEN INSERT {inserted}"
    )


@contextmanager
def temporary_view(rows: DataFrame) -> Iterator[str]:
    """The name of a view of the rows, as long as it is needed."""
    name = f"laglake_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        rows.sparkSession.catalog.dropTempView(name)
