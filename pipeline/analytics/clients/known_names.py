"""The names of clients and topics as brokers know them, in place of names that agents have changed.

The metrics of a Java consumer before Kafka 4.1 have `_` for each `.` in a topic's name (KIP-1109). Kafka refuses two
topics whose names differ only in these characters, so it is certain which topic is meant.

If a rule of jmx_exporter makes a client.id part of a metric's name, only its letters, digits and `_` are left. The
member is meant whose client.id looks like this without the other characters, if there is only one. A name that no
broker knows stays as it was reported.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from pipeline.analytics.keys import CLIENT_AT, SNAPSHOT
from pipeline.common.arrow_sql import arrow_queries, names_sql, row_numbers
from pipeline.common.data_source import arrow_schema
from pipeline.tables import WATERMARKS
from pipeline.tables.columns import STRING

AGENTS_SOURCE = "kafka_client_metrics"
"""The source of what an agent such as jmx_exporter reports, by rules that may change names."""
BY_CLIENT = ("client_key",)
"""The letters and digits of a client.id, in lower case: the same for all names that agents may give a client.

Rows are spread by this column, so that a bucket has all rows of a client. Few rows have it as well: those of another
table may be many, and then both are spread.
"""
KNOWN_TOPICS = StructType([WATERMARKS.schema[name] for name in SNAPSHOT]).add("written", STRING).add("known", STRING)
"""A topic (known) whose name is written differently, in a snapshot."""
MEMBERS = WATERMARKS.some(SNAPSHOT).add("client_id", STRING)
"""CLIENT_AT of the members of groups."""


def written_topic_sql(topic: str) -> str:
    """The name of a topic as Java consumers before Kafka 4.1 write it; no two topics of a cluster have the same."""
    return f"replace({topic}, '.', '_')"


def with_client_key(rows: pa.Table) -> pa.Table:
    """The rows with the column of BY_CLIENT."""
    letters = pc.replace_substring_regex(rows["client_id"], "[^A-Za-z0-9]+", "")
    return rows.append_column(BY_CLIENT[0], pc.ascii_lower(letters))


def known_topics(topics: pa.Table) -> pa.Table:
    """The rows of KNOWN_TOPICS from rows with SNAPSHOT and topic: all topics that are written in the same way."""
    with arrow_queries({"topics": topics}) as queries:
        known = queries.rows(_only_sql(f"SELECT *, {written_topic_sql('topic')} AS written FROM topics", "topic"))
    return known.cast(arrow_schema(KNOWN_TOPICS))


def members_clients(lag: pa.Table) -> pa.Table:
    """The rows of MEMBERS in rows of `lag`, where other clients are named as they were reported."""
    return lag.filter(lag["member_id"].is_valid()).select(CLIENT_AT)


def with_known_names(reported: pa.Table, topics: pa.Table, members: pa.Table) -> pa.Table:
    """`reported` (`observed` rows) with the clients and topics that brokers know.

    Only names from metrics change: statistics and request logs have the names themselves, and a client that is no
    member would otherwise get the name of a member.

    `topics` are rows of KNOWN_TOPICS, `members` those of MEMBERS of all groups. All members with the same letters and
    digits (BY_CLIENT) must be there.
    """
    needed = reported.select([*CLIENT_AT, "topic", "source"]).append_column("number", row_numbers(reported))
    with arrow_queries({"reports": needed, "topics": topics, "members": members}) as queries:
        named = queries.rows(_KNOWN)
    for name in ("topic", "client_id"):
        reported = reported.set_column(reported.column_names.index(name), name, named[name])
    return reported


def _only_sql(names: str, name: str) -> str:
    """The query for SNAPSHOT, written and known: the only name that is written like this, if it is another one."""
    return f"""
        SELECT {names_sql(SNAPSHOT)}, written, min({name}) AS known FROM ({names})
        GROUP BY {names_sql(SNAPSHOT)}, written HAVING min({name}) = max({name}) AND min({name}) <> written
    """


def _written_client_sql(client: str) -> str:
    """A client.id in the name of a metric; an underscore at its beginning or end may stand for a quotation mark."""
    return f"regexp_replace(regexp_replace({client}, '[^A-Za-z0-9]+', '_', 'g'), '^_|_$', '', 'g')"


def _is_plain_sql(client: str) -> str:
    """Whether a client.id has only characters that may be in the name of a metric."""
    return f"regexp_full_match({client}, '[A-Za-z0-9_]+')"


_WRITTEN = f"""
    SELECT *, {_written_client_sql("client_id")} AS written FROM members
    -- lowercaseOutputName writes names of metrics in lower case.
    UNION SELECT *, lower({_written_client_sql("client_id")}) AS written FROM members
"""
_KNOWN = f"""
    WITH written AS (
        SELECT *, CASE WHEN source = '{AGENTS_SOURCE}' THEN topic END AS written_topic,
            -- A name that has kept another character is not from the name of a metric.
            CASE WHEN source = '{AGENTS_SOURCE}' AND {_is_plain_sql("client_id")}
                THEN {_written_client_sql("client_id")} END AS written_client
        FROM reports
    ),
    clients AS (SELECT * FROM ({_only_sql(_WRITTEN, "client_id")}) WHERE NOT {_is_plain_sql("known")})
    SELECT coalesce(topics.known, topic) AS topic, coalesce(clients.known, client_id) AS client_id
    FROM written
    LEFT JOIN topics ON topics.written = written_topic
        AND topics.cluster = written.cluster AND topics.snapshot_id = written.snapshot_id
    LEFT JOIN clients ON clients.written = written_client
        AND clients.cluster = written.cluster AND clients.snapshot_id = written.snapshot_id
    ORDER BY number
"""
