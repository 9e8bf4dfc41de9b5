"""Which process a reported position belongs to: processes may share a client.id, and agents may report one process.

Java names the first consumer of every JVM consumer-<group>-1, and librdkafka names every client rdkafka. So counters,
positions and problems always belong to an *instance*, which is one process, and never to a client.id.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType

from pipeline.analytics.clients.known_names import written_topic_sql
from pipeline.analytics.keys import CLIENT_AT, GROUP_AT
from pipeline.common.arrow_sql import arrow_queries, names_sql, row_numbers
from pipeline.tables import CLIENT_POSITIONS
from pipeline.tables.columns import LONG, STRING

HERE = "."
"""The instance of a recording of one client, whose files are in the recording's own folder."""
OBSERVED = StructType(
    [
        *CLIENT_POSITIONS.schema,
        *(StructField(name, STRING) for name in ("origin", "agent", "instance")),
        StructField("nth", LONG),
    ]
)
"""The columns of `observed` rows."""
_URL = "^https?://"
_HOST = r"^https?://(\[[^\]]*\]|[^/:]*)"
# A recording has a folder for each process; in it, a folder for each agent; and in that, a file for each round.
_ROUND = r"(^|/)(jolokia|prom)/[^/]*[0-9]{13}[^/]*$"
_EPOCH_MS = "[0-9]{13}"
_ROLLED_OVER = r"(\.[0-9]{1,3})?(\.gz)?$"
_CHANGING = (_ROUND, _EPOCH_MS, _ROLLED_OVER)
"""The parts of a file's name that differ between successive rounds, or between the files of one rolling log."""


def _origin_sql() -> str:
    """The `endpoint`, with one name for all files of a series: those of successive rounds, or of one rolling log."""
    file = "endpoint"
    for changing in _CHANGING:
        file = f"regexp_replace({file}, '{changing}', '', 'g')"
    named = f"coalesce(nullif({file}, ''), '{HERE}')"
    return f"CASE WHEN regexp_matches(endpoint, '{_URL}') THEN endpoint ELSE {named} END"


def _is_newest_sql(oldest_ms: int) -> str:
    return f"""
        SELECT error IS NOT NULL OR coalesce(captured_at = max(captured_at) OVER of_client
            AND epoch_us(max(as_of) OVER of_client) >= {oldest_ms * 1000}, false) AS is_newest
        FROM (SELECT *, {_origin_sql()} AS origin FROM reports)
        WINDOW of_client AS (PARTITION BY source, origin, host, client_id) ORDER BY number
    """


def newest_of_clients(reports: pa.Table, oldest_ms: int) -> pa.Table:
    """Of rows of `client_positions` without the snapshot, the last report of each client, and all rows with an error.

    A client whose last report is older than `oldest_ms` (epoch ms) is left out. A report without a group gets the one
    in the column `default_group`. All rows of a client.id must be there.
    """
    names = CLIENT_POSITIONS.observed.names
    needed = reports.select([*("source", "endpoint", "host", "client_id", "captured_at", "as_of", "error")])
    with arrow_queries({"reports": needed.append_column("number", row_numbers(reports))}) as queries:
        marks = queries.rows(_is_newest_sql(oldest_ms))
    rows = reports.filter(marks["is_newest"])
    group = pc.coalesce(rows["group_id"], rows["default_group"])
    return rows.set_column(rows.column_names.index("group_id"), "group_id", group).select(names)


def observed(positions: pa.Table, snapshot_ids: Sequence[int] = ()) -> pa.Table:
    """The rows of `client_positions` that report something about a client, with four more columns.

    origin: see the function. agent: what reports the client; in a request log, the client's address. instance: the
    process that the row is about, named after one of its agents. nth: the number of the row's snapshot in
    `snapshot_ids`, which are successive snapshots in order; NULL if they are not given.

    Only one process of a group reads a partition. So agents on one host that report the same partition report the same
    process. An address in a request log belongs to the agent that reports the same partitions, if there is only one.

    All rows of a client.id must be there.
    """
    rows = positions.filter(pc.and_(positions["error"].is_null(), positions["client_id"].is_valid()))
    needed = rows.select([*CLIENT_AT, "topic", "partition", "host", "endpoint"])
    with arrow_queries({"reports": needed.append_column("number", row_numbers(rows))}) as queries:
        named = queries.rows(_NAMED)
    for name in ("origin", "agent", "instance"):
        rows = rows.append_column(name, named[name])
    return rows.append_column("nth", _nth(rows["snapshot_id"], snapshot_ids))


def _nth(ids: pa.ChunkedArray, snapshot_ids: Sequence[int]) -> pa.ChunkedArray:
    places = pc.index_in(ids, value_set=pa.array(snapshot_ids, pa.int64()))
    return pc.add(places.cast(pa.int64()), 1)


_PARTITION = f'{names_sql(CLIENT_AT)}, written, "partition"'
_NAMED = f"""
    WITH agents AS (
        -- A request log has a topic's own name, and the metrics of the same client may have `_` for each `.` in it.
        SELECT number, {names_sql(CLIENT_AT)}, {written_topic_sql("topic")} AS written, "partition",
            host IS NOT NULL AS is_address, {_origin_sql()} AS origin, coalesce(host, origin) AS agent
        FROM reports
    ),
    sited AS (
        -- The host of an agent that has a URL, else the file.
        SELECT *, coalesce(nullif(regexp_extract(agent, '{_HOST}', 1), ''), agent) AS site,
            CASE WHEN is_address THEN agent END AS address, CASE WHEN NOT is_address THEN agent END AS named_agent
        FROM agents
    ),
    reporters AS (
        SELECT *, CASE
            WHEN "partition" IS NULL THEN NULL
            WHEN NOT is_address THEN min(agent) OVER of_site
            WHEN min(address) OVER of_partition = max(address) OVER of_partition THEN min(named_agent) OVER of_partition
            END AS reporter
        FROM sited
        WINDOW of_partition AS (PARTITION BY {_PARTITION}), of_site AS (PARTITION BY {_PARTITION}, is_address, site)
    ),
    clear AS (
        SELECT *, min(reporter) OVER of_agent AS first_reporter,
            NOT bool_and(is_address) OVER of_agent OR first_reporter = max(reporter) OVER of_agent AS is_clear
        FROM reporters WINDOW of_agent AS (PARTITION BY {names_sql(CLIENT_AT)}, agent)
    )
    SELECT origin, agent, coalesce(CASE WHEN is_clear THEN first_reporter END, agent) AS instance
    FROM clear ORDER BY number
"""


def with_instance(lag: pa.Table, reported: pa.Table) -> pa.Table:
    """Rows of `lag`, with an `instance` also for partitions that no agent reports.

    If only one instance has the member's client.id, and only one member of the group, it is that instance, as long as
    the instance reports this group, or no other group has the client.id. Otherwise it is the instance that reports the
    member's other partitions, or NULL if that is not exactly one. `reported` are `observed` rows of the same snapshots.

    All rows of a client.id must be there.
    """
    with arrow_queries({"lag": lag, "reported": reported}) as queries:
        return queries.rows(_WITH_INSTANCE).select(lag.column_names).cast(lag.schema)


def _only_sql(name: str) -> str:
    """The value of a column if all rows that have a value have the same one, else NULL."""
    return f"CASE WHEN min({name}) = max({name}) THEN min({name}) END"


def _is_one_sql(name: str, window: str) -> str:
    """Whether all rows of a window that have a value have the same one; true if none has a value."""
    return f"min({name}) OVER {window} IS NOT DISTINCT FROM max({name}) OVER {window}"


_WITH_INSTANCE = f"""
    WITH of_client_id AS (
        SELECT {names_sql(CLIENT_AT)}, {_only_sql("instance")} AS only_instance, {_only_sql("group_id")} AS only_group
        FROM reported GROUP BY {names_sql(CLIENT_AT)}
    ),
    known AS (
        SELECT lag.*, only_instance,
            coalesce(only_group = group_id, {_is_one_sql("group_id", "of_client")})
                AND {_is_one_sql("member_id", "of_group")} AS is_alone,
            CASE WHEN min(instance) OVER of_member = max(instance) OVER of_member
                THEN min(instance) OVER of_member END AS members_instance
        FROM lag LEFT JOIN of_client_id USING ({names_sql(CLIENT_AT)})
        WINDOW of_client AS (PARTITION BY {names_sql(CLIENT_AT)}),
            of_group AS (PARTITION BY {names_sql(CLIENT_AT)}, group_id),
            of_member AS (PARTITION BY {names_sql(GROUP_AT)}, member_id)
    )
    SELECT * REPLACE (coalesce(
        instance,
        CASE WHEN is_alone THEN only_instance END,
        CASE WHEN member_id IS NOT NULL THEN members_instance END
    ) AS instance)
    FROM known
"""
