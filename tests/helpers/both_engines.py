"""The queries of documentation pages, on the same rows in Spark and in DuckDB."""

import re
from collections.abc import Mapping
from datetime import UTC, date
from typing import Any

import duckdb
import pandas as pd
from pyspark.sql import SparkSession

from pipeline.lake.lake_tables import stored_columns
from pipeline.tables import Table
from tests.conftest import ROOT
from tests.helpers.reports import frame

Rows = Mapping[str, tuple[Table, list[dict[str, Any]]]]
Found = Mapping[str, tuple[list[str], list[tuple[Any, ...]]]]
"""Query → some columns of its answer, and their values."""


def queries_of(*pages: str) -> dict[str, str]:
    """The named queries of pages of docs/."""
    text = "".join((ROOT / "docs" / page).read_text("utf-8") for page in pages)
    return dict(re.findall(r"```sql\n-- (\w+)\n(.*?)```", text, re.DOTALL))


def code_of(page: str) -> list[str]:
    """The blocks of Python on a page of docs/, without files that it shows."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL)
    return [block for block in blocks if not block.startswith("--8<--")]


def with_views(spark: SparkSession, rows: Rows) -> duckdb.DuckDBPyConnection:
    """Makes each table a temporary view in Spark, and a view of the same name in the DuckDB that is returned."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    for name, (table, some) in rows.items():
        of_table = frame(spark, table, *some).select(*stored_columns(table))
        of_table.createOrReplaceTempView(name)
        duck.register(name, of_table.toArrow())
    if "findings" in rows:
        for name, query in queries_of("findings.md").items():
            spark.sql(query).createOrReplaceTempView(name)
            duck.execute(f"CREATE VIEW {name} AS {query}")
    return duck


def ask_both(spark: SparkSession, rows: Rows, queries: Mapping[str, str]) -> dict[str, list[pd.DataFrame]]:
    """What Spark and DuckDB answer to each query."""
    duck = with_views(spark, rows)
    return {name: [spark.sql(query).toPandas(), duck.sql(query).df()] for name, query in queries.items()}


def values(found: pd.DataFrame, columns: list[str]) -> list[tuple[Any, ...]]:
    """The values of some columns, sorted, in the same types whatever engine has found them."""
    rows = [tuple(map(_value, row)) for row in found[columns].astype(object).itertuples(index=False)]
    return sorted(rows, key=str)


def _value(found: Any) -> Any:
    if isinstance(found, list) or hasattr(found, "tolist"):
        return [*found]
    if pd.isna(found):
        return None
    if isinstance(found, date):  # a timestamp is one, too
        instant = pd.Timestamp(found)
        return (instant if instant.tzinfo else instant.tz_localize(UTC)).to_pydatetime()
    return found
