"""Which reports about a partition are those of the member that has it.

A client may go on reporting a partition that it has given away: a request log keeps its last offset, a file its last
line. Such a report may be newer than that of the new holder, by a millisecond, as each writes on a timer of its own.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP_AT, READER_AT

_CLIENT_OF_GROUP_AT = [*GROUP_AT, "client_id"]


def of_holders(rows: DataFrame, group_members: DataFrame) -> DataFrame:
    """`rows` without what members report about partitions of other members; adds is_holder.

    `rows` have READER_AT, client_id, and `host`, the address that the client connects from, NULL if it is not known. A
    client.id that no member has is kept: it may be another name of the holder. If no member has the partition, as in a
    group whose clients assign partitions themselves, all reports are kept.
    """
    members = group_members.where(F.col("client_id").isNotNull()).select(
        *GROUP_AT, "topic", "partition", "client_id", F.regexp_replace("host", "^/", "").alias("member_host")
    )
    holders = (
        members.where(F.col("topic").isNotNull())
        .groupBy(*READER_AT)
        .agg(F.collect_set(F.struct("client_id", "member_host")).alias("holders"))
    )
    hosts = members.groupBy(*_CLIENT_OF_GROUP_AT).agg(F.collect_set("member_host").alias("member_hosts"))
    return (
        rows.join(holders.hint("shuffle_hash"), READER_AT, how="left")
        .join(F.broadcast(hosts), _CLIENT_OF_GROUP_AT, how="left")
        .withColumn("is_holder", F.coalesce(_is_holder(), F.lit(False)))
        .where(F.col("holders").isNull() | F.col("is_holder") | ~_is_member())
        .drop("holders", "member_hosts")
    )


def _is_holder() -> Column:
    def is_this(holder: Column) -> Column:
        is_there = F.coalesce(holder["member_host"] == F.col("host"), F.lit(True))
        return (holder["client_id"] == F.col("client_id")) & is_there

    return F.exists("holders", is_this)


def _is_member() -> Column:
    """Whether the client is a member of the group. At another address, it may be the holder: hosts have several."""
    is_there = F.col("host").isNull() | (F.size("member_hosts") == 0) | F.array_contains("member_hosts", F.col("host"))
    return F.col("member_hosts").isNotNull() & is_there
