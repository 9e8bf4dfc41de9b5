"""What each group looked like in each snapshot: its values, and checksums of its members, assignments and commits.

Most groups do not change from one snapshot to the next. So each group is first reduced to one row for each snapshot.
Then `changed_groups` finds the groups that differ.

An expression here is SQL text that DuckDB and Spark both understand. Only the function that hashes is different, so a
checksum may only be compared with others of the same query.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP_AT
from pipeline.common.arrow_sql import columns_sql, names_sql

REBALANCING = ("PreparingRebalance", "CompletingRebalance")
"""The states in which Kafka does not report the assignments of a classic group."""
VALUES = {"state": "state", "type": "group_type", "assignor": "assignor", "epoch": "group_epoch"}
"""The values of a group that may change, each with its column in `group_members`."""
HAS_COMMIT = "(error IS NULL AND committed_offset IS NOT NULL)"
"""Whether a row of `committed_offsets` has a commit."""


def _hash_of(columns: str) -> str:
    """The hash of several columns, with `{hash}` in place of the function that hashes."""
    # The hash is hashed again. DuckDB's hash of several values is a XOR with the hash of the last one. A XOR over rows
    # would split it up: members that exchange their partitions would have the same checksum as before.
    return f"{{hash}}({{hash}}({columns}))"


_OF_MEMBERS = {
    "rows": "count(1)",
    "errors": "count(error)",
    "unread": "count_if(error IS NOT NULL AND member_id IS NULL)",
    "checksum": f"bit_xor({_hash_of('member_id, topic, partition')})",
}
_OF_COMMITS = {
    "commits": f"count_if({HAS_COMMIT})",
    "commits_unread": "count_if(error IS NOT NULL AND topic IS NULL)",
    "commits_checksum": f"bit_xor(CASE WHEN {HAS_COMMIT} THEN {_hash_of('topic, partition')} END)",
}


def _sum_of_look(name: str) -> str:
    return f"bit_xor({name})" if name.endswith("checksum") else f"CAST(sum({name}) AS BIGINT)"


_OF_LOOKS = {
    **{name: f"CAST(max({name}) AS STRING)" for name in VALUES.values()},
    **{name: f"coalesce({_sum_of_look(name)}, 0)" for name in (*_OF_MEMBERS, *_OF_COMMITS)},
}
# The values of a group are the same in all of its rows. Spark groups by them without sorting all rows. For the max of a
# text, it would sort them.
_DESCRIBED = [*GROUP_AT, *VALUES.values()]


def looks_sql() -> str:
    """The query, for DuckDB, for a look at each group in each snapshot, from bronze rows in `members` and `commits`.

    A look has the group's values, as texts. `rows` is how many rows `group_members` has, `errors` how many of them have
    an error, and `unread` how many say that the group could not be read. `commits` is how many partitions have a
    commit, and `commits_unread` how many rows say that none could be read. `checksum` is that of the members with their
    partitions, and `commits_checksum` that of the partitions with a commit. Numbers and checksums are 0 if there are no
    rows.
    """
    described, committed = _hashed(_OF_MEMBERS, "hash"), _hashed(_OF_COMMITS, "hash")
    return f"""
        SELECT {names_sql(GROUP_AT)}, {columns_sql(_OF_LOOKS)}
        FROM (
            SELECT {names_sql(_DESCRIBED)}, {columns_sql(described)} FROM members GROUP BY {names_sql(_DESCRIBED)}
            UNION ALL BY NAME
            SELECT {names_sql(GROUP_AT)}, {columns_sql(committed)} FROM commits GROUP BY {names_sql(GROUP_AT)}
        )
        WHERE group_id IS NOT NULL
        GROUP BY {names_sql(GROUP_AT)}
    """


def looks(members: DataFrame, commits: DataFrame) -> DataFrame:
    """The same looks of many bronze rows, by Spark, which exchanges counts and checksums instead of these rows."""
    described = members.groupBy(*_DESCRIBED).agg(*_spark_columns(_OF_MEMBERS))
    committed = commits.groupBy(*GROUP_AT).agg(*_spark_columns(_OF_COMMITS))
    rows = described.unionByName(committed, allowMissingColumns=True).where(F.col("group_id").isNotNull())
    return rows.groupBy(*GROUP_AT).agg(*_spark_columns(_OF_LOOKS))


def _spark_columns(columns: Mapping[str, str]) -> list[Column]:
    return [F.expr(text).alias(name) for name, text in _hashed(columns, "xxhash64").items()]


def _hashed(columns: Mapping[str, str], function: str) -> dict[str, str]:
    return {name: text.format(hash=function) for name, text in columns.items()}
