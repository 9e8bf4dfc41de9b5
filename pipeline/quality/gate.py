"""Judges the rows that a snapshot has read, before they land: those that fail a rule go to `quarantine` instead.

All rows are counted, and with them those that break a rule or share a key (`counts.py`). Great Expectations
judges only these: a table without such rows costs nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline.common.arrow_sql import arrow_queries, names_sql, row_numbers
from pipeline.common.data_source import MAX_BATCH_ROWS, arrow_schema
from pipeline.common.rows import Rows
from pipeline.quality.rules import ROWS_OF_KEY, RULES, Rule, observed_key, offends_sql
from pipeline.tables import QUARANTINE, Table
from pipeline.tables.columns import LONG

_MARKED = """
    WITH judged AS (
        SELECT *, CASE WHEN error IS NULL THEN count(*) OVER (PARTITION BY error IS NULL, {key}) END AS {rows_of_key}
        FROM rows
    )
    SELECT {rows_of_key}, error IS NULL AND ({fails}) AS is_failing FROM judged ORDER BY number
"""


class Verdict(NamedTuple):
    """The rules that some rows fail, the rows that meet all rules, and the others."""

    failed: tuple[Rule, ...]
    kept: Rows
    refused: pa.Table


def judge_rows(rows: Rows, table: Table) -> Verdict:
    """Judges rows with the observed columns of a bronze table, and takes those apart that fail.

    Rows with an error are not judged, because they only say what could not be read. Such a row does not make a valid
    row with the same key a duplicate.
    """
    key = ["group_id" if "group_id" in table.key else "topic"]  # rows with the same key are in the same bucket
    schema = table.observed.add(ROWS_OF_KEY, LONG)

    def chosen(rules: Sequence[Rule], *, is_failing: bool) -> Rows:
        return rows.grouped(key, partial(_chosen, table=table, rules=rules, is_failing=is_failing), schema)

    suspects = chosen(RULES[table.name], is_failing=True).collected_table()
    failed = _judge(suspects, table) if suspects.num_rows else ()
    if not failed:
        return Verdict((), rows, suspects.schema.empty_table())
    kept = chosen(failed, is_failing=False).chosen(table.observed)
    return Verdict(failed, kept, _where(suspects, failed))


def quarantine_rows(verdict: Verdict, table: Table, of_snapshot: Mapping[str, Any]) -> pa.Table:
    """Rows of `quarantine`: one for each row that was refused, and each rule that it fails."""
    schema = arrow_schema(QUARANTINE.schema)
    found = [schema.empty_table()]
    for rule in verdict.failed:
        for batch in _where(verdict.refused, [rule]).drop_columns([ROWS_OF_KEY]).to_batches(MAX_BATCH_ROWS):
            texts = [
                json.dumps({**of_snapshot, **row}, default=_as_text, ensure_ascii=False, separators=(",", ":"))
                for row in batch.to_pylist()
            ]
            failing = {**of_snapshot, "table": table.name, "expectation": rule.name}
            found.append(pa.Table.from_pylist([{**failing, "row": text} for text in texts], schema))
    return pa.concat_tables(found)


def fails_sql(rules: Sequence[Rule]) -> str:
    """The condition for rows that fail one of some rules."""
    return " OR ".join(map(offends_sql, rules))


def _judge(suspects: pa.Table, table: Table) -> tuple[Rule, ...]:
    # It imports Great Expectations, which takes three seconds, and few snapshots have suspect rows.
    from pipeline.quality.expectations import judge

    return judge(suspects, RULES[table.name])


def _chosen(rows: pa.Table, *, table: Table, rules: Sequence[Rule], is_failing: bool) -> pa.Table:
    """The rows that fail one of the rules, or those that meet all of them, with ROWS_OF_KEY."""
    key = observed_key(table)
    needed = {*key, "error", *(rule.column for rule in rules)} & {*rows.column_names}
    read = {name: _codes(rows[name]) for name in sorted(needed)}
    statement = _MARKED.format(key=names_sql(key), rows_of_key=ROWS_OF_KEY, fails=fails_sql(rules))
    with arrow_queries({"rows": pa.table({**read, "number": row_numbers(rows)})}) as queries:
        marks = queries.rows(statement)
    is_chosen = marks["is_failing"].to_numpy() == is_failing
    return rows.append_column(ROWS_OF_KEY, marks[ROWS_OF_KEY]).filter(pa.array(is_chosen))


def _codes(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers instead of texts, the same for equal ones: names may have 32 KB, and a query has a limit of memory."""
    if not pa.types.is_string(values.type):
        return values
    encoded = values.dictionary_encode()
    return pa.chunked_array([chunk.indices for chunk in encoded.unify_dictionaries().chunks], pa.int32())


def _where(rows: pa.Table, rules: Sequence[Rule]) -> pa.Table:
    """Of rows with ROWS_OF_KEY, those that fail one of the rules."""
    with arrow_queries({"rows": rows}) as queries:
        return queries.rows(f"SELECT * FROM rows WHERE {fails_sql(rules)}").cast(rows.schema)


def _as_text(value: Any) -> str:
    """An instant or a date as Spark's `to_json` writes it."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"a row of bronze has a {type(value).__name__}")
