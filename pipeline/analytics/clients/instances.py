"""Which process a reported position belongs to: processes may share a client.id, and agents may report one process.

Java names the first consumer of every JVM consumer-<group>-1, and librdkafka names every client rdkafka. So counters,
positions and problems always belong to an *instance*, which is one process, and never to a client.id.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipeline.analytics.clients.known_names import written_topic
from pipeline.analytics.keys import CLIENT_AT, GROUP_AT

HERE = "."
"""The instance of a recording of one client, whose files are in the recording's own folder."""
_AGENT = [*CLIENT_AT, "agent"]
_URL = "^https?://"
_HOST = r"^https?://(\[[^\]]*\]|[^/:]*)"
# A recording has a folder for each process; in it, a folder for each agent; and in that, a file for each round.
_ROUND = r"(^|/)(jolokia|prom)/[^/]*[0-9]{13}[^/]*$"
_EPOCH_MS = "[0-9]{13}"
_ROLLED_OVER = r"(\.[0-9]{1,3})?(\.gz)?$"


def origin() -> Column:
    """The `endpoint`, with one name for all files of a series: those of successive rounds, or of one rolling log."""
    endpoint = F.col("endpoint")
    file = endpoint
    for changing in (_ROUND, _EPOCH_MS, _ROLLED_OVER):
        file = F.regexp_replace(file, changing, "")
    named = F.coalesce(F.nullif(file, F.lit("")), F.lit(HERE))
    return F.when(endpoint.rlike(_URL), endpoint).otherwise(named)


def observed(positions: DataFrame, snapshot_ids: Sequence[int] = ()) -> DataFrame:
    """The rows of `client_positions` that report something about a client, with four more columns.

    origin: see the function. agent: what reports the client; in a request log, the client's address. instance: the
    process that the row is about, named after one of its agents. nth: the number of the row's snapshot in
    `snapshot_ids`, which are successive snapshots in order; NULL if they are not given.

    Only one process of a group reads a partition. So agents on one host that report the same partition report the same
    process. An address in a request log belongs to the agent that reports the same partitions, if there is only one.
    """
    is_observed = F.col("error").isNull() & F.col("client_id").isNotNull()
    is_address, agent = F.col("host").isNotNull(), F.col("agent")
    # A request log has a topic's own name, and the metrics of the same client may have `_` for each `.` in it.
    partition = [*map(F.col, CLIENT_AT), written_topic("topic"), F.col("partition")]
    of_partition = Window.partitionBy(*partition)
    address = F.when(is_address, agent)
    # Windows, because these rows are used often, and a join of the rows with their aggregates would double each plan.
    is_only = F.min(address).over(of_partition) == F.max(address).over(of_partition)
    reporter = (
        F.when(F.col("partition").isNull(), F.lit(None))
        .when(~is_address, F.min(agent).over(Window.partitionBy(*partition, F.col("site"))))
        .when(is_only, F.min(F.when(~is_address, agent)).over(of_partition))
    )
    of_agent = Window.partitionBy(*_AGENT)
    first = F.min("reporter").over(of_agent)
    is_clear = F.min(is_address).over(of_agent).eqNullSafe(F.lit(False)) | (first == F.max("reporter").over(of_agent))
    return (
        positions.where(is_observed)
        .withColumn("origin", origin())
        .withColumn("agent", F.coalesce("host", "origin"))
        .withColumn("site", F.struct(is_address, _site(agent)))
        .withColumn("reporter", reporter)
        .withColumn("instance", F.coalesce(F.when(is_clear, first), agent))
        .withColumn("nth", _nth(snapshot_ids))
        .drop("site", "reporter")
    )


def _nth(snapshot_ids: Sequence[int]) -> Column:
    if not snapshot_ids:
        return F.lit(None).cast("bigint")
    return F.array_position(F.array(*map(F.lit, snapshot_ids)), F.col("snapshot_id"))


def _site(agent: Column) -> Column:
    """The host of an agent that has a URL, else the file."""
    return F.coalesce(F.nullif(F.regexp_extract(agent, _HOST, 1), F.lit("")), agent)


def with_instance(lag: DataFrame, reported: DataFrame) -> DataFrame:
    """Rows of `lag`, with an `instance` also for partitions that no agent reports.

    If only one instance has the member's client.id, and only one member of the group, it is that instance, as long as
    the instance reports this group, or no other group has the client.id. Otherwise it is the instance that reports the
    member's other partitions, or NULL if that is not exactly one. `reported` are `observed` rows of the same snapshots.
    """
    only = reported.groupBy(*CLIENT_AT).agg(
        _only("instance").alias("only_instance"), _only("group_id").alias("only_group")
    )
    is_only_group = _is_one("group_id", Window.partitionBy(*CLIENT_AT))
    is_its_group = F.coalesce(F.col("only_group") == F.col("group_id"), is_only_group)
    is_alone = is_its_group & _is_one("member_id", Window.partitionBy(*CLIENT_AT, "group_id"))
    of_member = Window.partitionBy(*GROUP_AT, "member_id")
    members = F.when(
        F.min("instance").over(of_member) == F.max("instance").over(of_member), F.min("instance").over(of_member)
    )
    return (
        lag.join(F.broadcast(only), CLIENT_AT, how="left")
        .withColumn(
            "instance",
            F.coalesce(
                F.col("instance"),
                F.when(is_alone, F.col("only_instance")),
                F.when(F.col("member_id").isNotNull(), members),
            ),
        )
        .drop("only_instance", "only_group")
    )


def _is_one(name: str, window: WindowSpec) -> Column:
    """Whether all rows of a window that have a value have the same one; true if none has a value."""
    return F.min(name).over(window).eqNullSafe(F.max(name).over(window))


def _only(name: str) -> Column:
    """The value of a column if all rows that have a value have the same one, else NULL."""
    return F.when(F.min(name) == F.max(name), F.min(name))
