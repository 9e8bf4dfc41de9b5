"""A problem at one snapshot: the columns that each kind of problem has.

The columns are snapshot_id, kind, cluster, group_id, client_id, instance (the process), topic (the cause, NULL while it
is not known), partitions, severity, magnitude (how bad it is compared with others of its kind), places, and facts: a
JSON object of the `Facts` of the kind (`pipeline.kinds`), without what is NULL. Instants in it are epoch ms.

places is only known of kinds that several groups may share. It is a JSON array with an object for each partition that
has the problem: topic, partition, and since_ms, from when on the status lasts there.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pipeline.common.rows import Rows
from pipeline.kinds import kind_named
from pipeline.kinds.kind import Facts
from pipeline.kinds.text import LISTED
from pipeline.tables import FINDING_HISTORY
from pipeline.tables.columns import STRING

_COLUMNS = (
    "snapshot_id",
    "kind",
    "cluster",
    "group_id",
    "client_id",
    "instance",
    "topic",
    "partitions",
    "severity",
    "magnitude",
)
_TEXTS = ("summary", "evidence", "advice")
_WHAT = (*(FINDING_HISTORY.schema[name] for name in _COLUMNS), StructField("places", STRING))
PROBLEMS = StructType([*_WHAT, StructField("facts", STRING)])
"""The columns of a problem."""
WORDED = StructType([*_WHAT, *(FINDING_HISTORY.schema[name] for name in _TEXTS)])
"""The columns of a problem with its words (`with_words`)."""


def distinct_sql(name: str) -> str:
    """The distinct values of a column, in order, as SQL text for DuckDB."""
    return f'coalesce(list(DISTINCT "{name}" ORDER BY "{name}") FILTER ("{name}" IS NOT NULL), [])'


def some_sql(names: str) -> str:
    """The first LISTED names of a list, as SQL text for DuckDB."""
    return f"({names})[1:{LISTED}]"


def problem_rows(rows: pa.Table, facts: type[Facts]) -> pa.Table:
    """Rows of PROBLEMS from rows whose `facts` are a struct, and whose `places` are a list of structs.

    A column that the rows lack is NULL. Raises ValueError if the fields of the struct are not those of `facts`.
    """
    if "facts" in rows.column_names:
        yielded, declared = {field.name for field in rows.schema.field("facts").type}, {*facts.model_fields}
        if yielded != declared:
            raise ValueError(f"a finder of {facts.__name__} has other facts: {sorted(yielded ^ declared)}")
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name in ("places", "facts"):
            rows = _replaced(rows, name, pa.array(map(_json, column.to_pylist()), pa.string()))
        elif name == "magnitude":
            # Not safe, because Arrow refuses to round: a timestamp in nanoseconds is beyond 2^53.
            rows = _replaced(rows, name, column.cast(pa.float64(), safe=False))
    return Rows(rows).chosen(PROBLEMS).collected_table()


def _replaced(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(_without_nulls(value), ensure_ascii=False, separators=(",", ":"))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return value


def with_words(problems: pa.Table) -> pa.Table:
    """Rows of PROBLEMS with summary, evidence and advice in place of their facts: rows of WORDED."""
    kinds, facts = (problems[name].to_pylist() for name in ("kind", "facts"))
    said = [kind_named(kind).texts(text) for kind, text in zip(kinds, facts, strict=True)]
    rows = problems.drop_columns("facts")
    for place, name in enumerate(_TEXTS):
        rows = rows.append_column(name, pa.array([texts[place] for texts in said], pa.string()))
    return rows
