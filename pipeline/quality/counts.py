"""Counts the rows that were read of a cluster: how many, with which errors and oddities, and whether some may fail."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql
from pipeline.common.data_source import arrow_schema
from pipeline.kafka.snapshot import KIND, REQUESTS, UNPROVEN
from pipeline.quality.gate import fails_sql
from pipeline.quality.rules import ODDITIES, RULES, observed_key
from pipeline.tables import BRONZE, COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS, Table
from pipeline.tables.columns import LONG

IN_FUTURE = "captured_in_future"
"""The warning that counts rows whose time is in the future, because an executor's clock is ahead of the driver's."""
METADATA_MISSING = "metadata_missing"
"""The warning that counts commits with unknown metadata: their group has too much of it, or was read only once."""
_TABLES = {table.name: table for table in BRONZE}
_OF_TABLE: Mapping[str, Mapping[str, str]] = {
    COMMITTED_OFFSETS.name: {
        METADATA_MISSING: "count(*) FILTER (error IS NULL AND committed_offset IS NOT NULL AND metadata IS NULL)"
    },
    GROUP_MEMBERS.name: {
        "groups": "count(DISTINCT group_id) FILTER (error IS NULL)",
        "all_groups": "count(DISTINCT group_id)",
    },
    WATERMARKS.name: {name: f"count(*) FILTER ({is_odd})" for name, is_odd in ODDITIES.items()},
}
_NUMBERS = [*("rows", "errors", IN_FUTURE, "failing", "judged", "keys"), *chain(*_OF_TABLE.values())]
COUNTS = StructType(
    [
        StructField(KIND, StringType()),
        StructField("request_broker", IntegerType()),
        StructField("requests", LONG),
        *(StructField(name, LONG) for name in _NUMBERS),
    ]
)
"""Counts of rows of one kind, or of the requests to one broker. Numbers that do not apply are NULL.

`rows` are all, `errors` those that say what could not be read. The others are judged: `failing` of them break a rule,
and `judged` have `keys` different keys, by their hashes. `groups` were read, `all_groups` are known.
"""


def count_rows(rows: pa.Table, now: datetime) -> pa.Table:
    """COUNTS of rows of the source `kafka_snapshot`. All rows of a group, and of a topic, must be there."""
    kinds = pc.unique(rows[KIND]).to_pylist()
    counted = [count_kind(rows.filter(pc.equal(rows[KIND], kind)), kind, now) for kind in kinds]
    return pa.concat_tables([arrow_schema(COUNTS).empty_table(), *counted])


def count_kind(rows: pa.Table, kind: str, now: datetime) -> pa.Table:
    """COUNTS of rows that are all of one kind, and have at least the columns of this kind."""
    if kind in _TABLES:
        selected = columns_sql(_counted(_TABLES[kind], now))
        statement = f"SELECT {selected} FROM rows"
    elif kind == REQUESTS:
        statement = "SELECT request_broker, sum(requests) AS requests FROM rows GROUP BY request_broker"
    else:
        statement = "SELECT count(*) AS rows FROM rows"
    with arrow_queries({"rows": rows}) as queries:
        found = queries.rows(statement)
    schema = arrow_schema(COUNTS)
    found = found.append_column(KIND, pa.array([kind] * len(found), pa.string()))
    lacking = [field for field in schema if field.name not in found.column_names]
    for field in lacking:
        found = found.append_column(field, pa.nulls(len(found), field.type))
    return found.select(schema.names).cast(schema)


def may_fail(counts: Mapping[str, int]) -> bool:
    """Whether some rows of a table may fail the gate. Different keys with equal hashes count as suspect."""
    return counts["failing"] > 0 or counts["keys"] < counts["judged"]


def sums_by_kind(counted: pa.Table) -> dict[str, dict[str, int]]:
    """The sums of COUNTS for each bronze table, and for UNPROVEN; 0 for what was not read."""
    sums = {kind: dict.fromkeys(_NUMBERS, 0) for kind in (*_TABLES, UNPROVEN)}
    for row in counted.to_pylist():
        for name in _NUMBERS:
            if row[KIND] in sums:
                sums[row[KIND]][name] += row[name] or 0
    return sums


def _counted(table: Table, now: datetime) -> dict[str, str]:
    own = [rule for rule in RULES[table.name] if rule.column in table.observed.names]
    return {
        "rows": "count(*)",
        "errors": "count(error)",
        IN_FUTURE: f"count(*) FILTER (epoch_us(captured_at) > {round(now.timestamp() * 1_000_000)})",
        "failing": f"count(*) FILTER (error IS NULL AND ({fails_sql(own)}))",
        "judged": "count(*) FILTER (error IS NULL)",
        "keys": f"count(DISTINCT hash({names_sql(observed_key(table))})) FILTER (error IS NULL)",
        **_OF_TABLE[table.name],
    }
