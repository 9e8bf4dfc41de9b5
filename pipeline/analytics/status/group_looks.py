"""What each group looked like in each snapshot: its values, and checksums of its members, assignments and commits.

Most groups do not change from one snapshot to the next. So each group is first reduced to one row for each snapshot,
by Spark or, if there are few rows, in plain Python. Then `changed_groups` finds the groups that differ.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipeline.analytics.keys import GROUP_AT
from pipeline.common.data_source import arrow_schema
from pipeline.tables import GROUP_MEMBERS
from pipeline.tables.columns import LONG, STRING

REBALANCING = ("PreparingRebalance", "CompletingRebalance")
"""The states in which Kafka does not report the assignments of a classic group."""
VALUES = {"state": "state", "type": "group_type", "assignor": "assignor", "epoch": "group_epoch"}
"""The values of a group that may change, each with its column in `group_members`."""
_COUNTS = ("rows", "errors", "unread", "checksum", "commits", "commits_unread", "commits_checksum")
LOOKS = StructType(
    [
        *(GROUP_MEMBERS.schema[name] for name in (*GROUP_AT, "captured_at")),
        *(StructField(name, STRING) for name in VALUES.values()),
        *(StructField(name, LONG) for name in _COUNTS),
    ]
)
"""Of each group in each snapshot: its values, and how many rows `group_members` has (`rows`), how many of them have an
error (`errors`), and how many say that the group could not be read (`unread`); how many partitions have a commit
(`commits`), and how many rows say that none could be read (`commits_unread`). The checksums are those of the members
with their partitions, and of the partitions with a commit; 0 if there are none."""


def looks(group_members: DataFrame, committed_offsets: DataFrame) -> DataFrame:
    """LOOKS of bronze rows."""
    # A group's values are the same in all of its rows. Grouping by them needs no sorting, unlike the max of a text.
    described = group_members.groupBy(*GROUP_AT, *VALUES.values()).agg(
        F.max("captured_at").alias("captured_at"),
        F.count(F.lit(1)).alias("rows"),
        F.count("error").alias("errors"),
        F.count_if(F.col("error").isNotNull() & F.col("member_id").isNull()).alias("unread"),
        F.bit_xor(F.xxhash64("member_id", "topic", "partition")).alias("checksum"),
    )
    committed = committed_offsets.groupBy(*GROUP_AT).agg(
        F.count_if(F.col("error").isNotNull() & F.col("topic").isNull()).alias("commits_unread"),
        F.count_if(has_commit()).alias("commits"),
        F.bit_xor(F.when(has_commit(), F.xxhash64("topic", "partition"))).alias("commits_checksum"),
    )
    rows = described.unionByName(committed, allowMissingColumns=True).where(F.col("group_id").isNotNull())
    checksums = [name for name in _COUNTS if name.endswith("checksum")]
    numbers = {name: F.bit_xor(name) if name in checksums else F.sum(name) for name in _COUNTS}
    return rows.groupBy(*GROUP_AT).agg(
        F.max("captured_at").alias("captured_at"),
        *(F.max(name).cast("string").alias(name) for name in VALUES.values()),
        *(F.coalesce(number, F.lit(0)).alias(name) for name, number in numbers.items()),
    )


def looks_of_few(group_members: pa.Table, committed_offsets: pa.Table) -> pa.Table:
    """The same of few rows, in plain Python. Its checksums are others, and those of each process are its own."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}

    def look_of(row: dict[str, Any]) -> dict[str, Any]:
        key = {name: row[name] for name in GROUP_AT}
        return found.setdefault((*key.values(),), {**dict.fromkeys(LOOKS.names), **key, **dict.fromkeys(_COUNTS, 0)})

    for row in _rows(group_members, *VALUES.values(), "captured_at", "error", "member_id", "topic", "partition"):
        look = look_of(row)
        for name in ("captured_at", *VALUES.values()):
            if look[name] is None or (row[name] is not None and row[name] > look[name]):
                look[name] = row[name]
        look["rows"] += 1
        look["errors"] += row["error"] is not None
        look["unread"] += row["error"] is not None and row["member_id"] is None
        look["checksum"] ^= hash((row["member_id"], row["topic"], row["partition"]))
    for row in _rows(committed_offsets, "error", "topic", "partition", "committed_offset"):
        look = look_of(row)
        look["commits_unread"] += row["error"] is not None and row["topic"] is None
        if row["error"] is None and row["committed_offset"] is not None:
            look["commits"] += 1
            look["commits_checksum"] ^= hash((row["topic"], row["partition"]))
    for look in found.values():
        look["group_epoch"] = None if look["group_epoch"] is None else str(look["group_epoch"])
    return pa.Table.from_pylist([*found.values()], arrow_schema(LOOKS))


def _rows(table: pa.Table, *names: str) -> list[dict[str, Any]]:
    """The rows of groups with their keys and some other columns."""
    return [row for row in table.select([*GROUP_AT, *names]).to_pylist() if row["group_id"] is not None]


def has_commit() -> Column:
    """Whether a row of `committed_offsets` has a commit."""
    return F.col("error").isNull() & F.col("committed_offset").isNotNull()
