"""Joins the configured settings of clients with what they report."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pipeline.common.arrow_sql import struct_sql
from pipeline.common.data_source import arrow_schema
from pipeline.config.consumers import ConsumerSettings
from pipeline.tables.columns import LONG, STRING

_STRINGS = ("group_id", "isolation_level")
SETTINGS = StructType(
    [StructField(name, STRING if name in _STRINGS else LONG) for name in ConsumerSettings.model_fields]
)
"""The settings of ConsumerSettings as columns; NULL where a setting is not given."""
_NAMED = arrow_schema(StructType([StructField("name", STRING), *SETTINGS]))


def settings_table(settings: Mapping[str, ConsumerSettings]) -> pa.Table:
    """The tables `[clients."NAME"]`: a row for each NAME, a client id or a group, with the columns of SETTINGS."""
    rows = [{"name": name} | {field: getattr(of, field) for field in SETTINGS.names} for name, of in settings.items()]
    return pa.Table.from_pylist(rows, _NAMED)


def with_settings_sql(rows: str, *names: str) -> str:
    """The query for the rows of a table, with the struct `settings` of their clients.

    For each setting, it is the first value configured under any of the names in the columns `names`. The query reads
    `settings`, a `settings_table`.
    """
    joins = [f'LEFT JOIN settings AS of_{name} ON of_{name}.name = {rows}."{name}"' for name in names]
    fields = {field: f"coalesce({', '.join(f'of_{name}.{field}' for name in names)})" for field in SETTINGS.names}
    return f"SELECT {rows}.*, {struct_sql(fields)} AS settings FROM {rows} {' '.join(joins)}"
