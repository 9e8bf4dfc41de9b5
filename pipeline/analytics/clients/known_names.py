"""The names of clients and topics as brokers know them, in place of names that agents have changed.

The metrics of a Java consumer before Kafka 4.1 have `_` for each `.` in a topic's name (KIP-1109). Kafka refuses two
topics whose names differ only in these characters, so it is certain which topic is meant.

If a rule of jmx_exporter makes a client.id part of a metric's name, only its letters, digits and `_` are left. The
member is meant whose client.id looks like this without the other characters, if there is only one. A name that no
broker knows stays as it was reported.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.keys import CLIENT_AT, SNAPSHOT

AGENTS_SOURCE = "kafka_client_metrics"
"""The source of what an agent such as jmx_exporter reports, by rules that may change names."""


def written_topic(topic: str) -> Column:
    """The name of a topic as Java consumers before Kafka 4.1 write it; no two topics of a cluster have the same."""
    return F.translate(topic, ".", "_")


def members_clients(lag: DataFrame) -> DataFrame:
    """CLIENT_AT of the members in rows of `lag`, where other clients are named as they were reported."""
    return lag.where(F.col("member_id").isNotNull()).select(*CLIENT_AT)


def with_known_names(reported: DataFrame, topics: DataFrame, clients: DataFrame) -> DataFrame:
    """`reported` (`observed` rows) with the clients and topics that brokers know.

    Only names from metrics change: statistics and request logs have the names themselves, and a client that is no
    member would otherwise get the name of a member.

    `topics` has TOPIC_AT, and `clients` has CLIENT_AT of the members of all groups.
    """
    topics = _only(topics.withColumn("written", written_topic("topic")), "topic")
    has_agent = F.col("source") == AGENTS_SOURCE
    named = _with_known(reported.withColumn("written", F.when(has_agent, F.col("topic"))), topics, "topic")
    # lowercaseOutputName writes names of metrics in lower case.
    written = F.array_distinct(F.array(_written_client(), F.lower(_written_client())))
    clients = _only(clients.withColumn("written", F.explode(written)), "client_id")
    # A name that has kept another character is not from the name of a metric.
    is_plain = F.col("client_id").rlike("^[A-Za-z0-9_]+$")
    changed = clients.where(~F.col("known_client_id").rlike("^[A-Za-z0-9_]+$"))
    return _with_known(
        named.withColumn("written", F.when(has_agent & is_plain, _written_client())), changed, "client_id"
    )


def _written_client() -> Column:
    """A client.id in the name of a metric; an underscore at its beginning or end may stand for a quotation mark."""
    return F.regexp_replace(F.regexp_replace("client_id", "[^A-Za-z0-9]+", "_"), "^_|_$", "")


def _only(names: DataFrame, name: str) -> DataFrame:
    """SNAPSHOT, written and known_`name`: the only name that is written like this."""
    is_one = F.min(name) == F.max(name)
    known = names.groupBy(*SNAPSHOT, "written").agg(F.when(is_one, F.min(name)).alias(f"known_{name}"))
    return known.where(F.col(f"known_{name}") != F.col("written"))


def _with_known(rows: DataFrame, known: DataFrame, name: str) -> DataFrame:
    """`rows` with the known name, if there is one, in the column `name`."""
    joined = rows.join(F.broadcast(known), [*SNAPSHOT, "written"], how="left")
    return joined.withColumn(name, F.coalesce(f"known_{name}", name)).drop("written", f"known_{name}")
