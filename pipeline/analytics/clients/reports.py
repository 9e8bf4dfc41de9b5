"""What each process reports about each partition, and the group for which it reads the partition.

All that this needs of other clients and partitions is in the rows of the same client: so it is computed by client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.types import BooleanType, StructField, StructType

from pipeline.analytics.clients.counters import MOVED_SQL
from pipeline.analytics.clients.holders import with_holders_sql
from pipeline.analytics.clients.instances import observed
from pipeline.analytics.clients.known_names import BY_CLIENT, members_clients, with_known_names
from pipeline.analytics.clients.settings import settings_table, with_settings_sql
from pipeline.analytics.keys import CLIENT_AT, GROUP_AT, PROCESS_AT, READER_AT, TOPIC_PARTITION
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql, struct_sql
from pipeline.common.buckets import Bucket, Spread
from pipeline.common.data_source import arrow_schema
from pipeline.config.consumers import ConsumerSettings
from pipeline.tables import CLIENT_POSITIONS, GROUP_MEMBERS, LAG
from pipeline.tables.columns import LONG, STRING

MOST_ROWS = 200_000
"""The most reports, or members, that a query joins at a time. With 700,000 it had too little memory."""
_OWN_METRICS = ("reported_lag", "reported_lead", "reported_end", "reported_stable_end")
REPORTING = {
    "positions": CLIENT_POSITIONS.some(
        (
            *(*CLIENT_AT, *TOPIC_PARTITION, "captured_at", "as_of", "group_id", "host", "fetcher"),
            *("consumed_offset", "fetched_offset", *_OWN_METRICS, "queue_chunks", "requests_total", "bytes_total"),
            *("source", "endpoint", "error"),
        )
    ),
    "members": GROUP_MEMBERS.some((*READER_AT, "client_id", "host")),
    "before": LAG.some((*READER_AT, "client_id", "member_id")),
    "namesakes": LAG.some(CLIENT_AT),
}
"""What reports are computed from, see `client_reports`."""
REPORT_PARTS = {name: StructType([*schema]).add(BY_CLIENT[0], STRING) for name, schema in REPORTING.items()}
"""The same with the key of clients."""
_FLAGS = ("is_librdkafka", "is_old", "all_moved", "any_moved", "is_holder", "is_member")
REPORTS = StructType(
    [
        *LAG.some((*PROCESS_AT, *TOPIC_PARTITION, "group_id")),
        *CLIENT_POSITIONS.some(("as_of", *_OWN_METRICS)),
        *(StructField(name, LONG) for name in ("nth", "reported_consumed", "reported_fetched")),
        *(StructField(name, BooleanType()) for name in _FLAGS),
        StructField("isolation_level", STRING),
    ]
)
"""A partition that a process reports in a snapshot, by any of its agents, for a group.

`nth` is the number of the snapshot. is_librdkafka, is_old: it is a client of librdkafka, or an old consumer. all_moved
and any_moved are those of `client_counters`, is_holder and is_member those of `with_holders_sql`. isolation_level is
the configured one.
"""


def client_reports(
    bucket: Bucket, topics: pa.Table, snapshot_ids: Sequence[int], settings: Mapping[str, ConsumerSettings]
) -> pa.Table:
    """The rows of REPORTS from rows of REPORT_PARTS, in which all rows of a client are in one bucket.

    `topics` are rows of KNOWN_TOPICS. `snapshot_ids` are successive snapshots in order, `settings` those of consumers.
    `before` are the rows of `lag` of the first snapshot, if it was computed earlier. `namesakes` are all groups, each
    as the client of the same name.

    Left out are the reports of processes whose group is not known or is ambiguous. It is the first known of: the group
    that the process reports; the configured group; the group of the member with this client id that is assigned the
    partition, if the client id is used in several groups; the group of the members with this client id; the group that
    other processes with this client id report, if it is one. For an old consumer, which no broker knows, it is then the
    group with the same name as the client id, because that is the default.
    """
    parts = {name: rows.drop_columns([*BY_CLIENT]) for name, rows in bucket.items()}
    members = pa.concat_tables([parts["members"].select(CLIENT_AT), members_clients(parts["before"])])
    reported = with_known_names(observed(parts["positions"], snapshot_ids), topics, members)
    parts = {name: parts[name] for name in ("members", "before", "namesakes")} | {"reported": reported}
    found = [arrow_schema(REPORTS).empty_table()]
    with arrow_queries({**parts, "settings": settings_table(settings)}) as queries:
        for some in _of_some_partitions({name: parts[name] for name in _BY_PARTITION}):
            queries.add(**some)
            found.append(queries.rows(_REPORTS).select(REPORTS.names).cast(found[0].schema))
    return pa.concat_tables(found)


_BY_PARTITION = ("reported", "members", "before")


def _of_some_partitions(tables: Mapping[str, pa.Table]) -> Iterator[Bucket]:
    """The rows about some partitions at a time, as tables whose names begin with `some_`.

    All of an application's readers may have one client.id, such as librdkafka's default, and a query has 1 GB.
    """
    of_partitions = {f"some_{name}": rows.filter(rows["topic"].is_valid()) for name, rows in tables.items()}
    pieces = 1 + max(map(len, of_partitions.values())) // MOST_ROWS
    if pieces == 1:
        yield of_partitions
        return
    for some in Spread(tuple(TOPIC_PARTITION)).split_tables(of_partitions, pieces):
        yield some()


def _newest_sql(values: Mapping[str, str]) -> str:
    """The values in the newest report that has any of them, as a struct.

    If several reports are equally new, their sources and endpoints decide, so that the order of rows does not matter.
    """
    is_known = f"coalesce({', '.join(values.values())}) IS NOT NULL AND as_of IS NOT NULL"
    newest = struct_sql({name: name for name in ("as_of", "source", "endpoint")} | dict(values))
    return f"max({newest}) FILTER ({is_known})"


def _only_sql(key: Sequence[str], name: str, rows: str) -> str:
    """The query for the group of each key as column `name`; NULL if there are several, or none is known."""
    only = "CASE WHEN min(group_id) = max(group_id) THEN min(group_id) END"
    return f"SELECT {names_sql(key)}, {only} AS {name} FROM {rows} GROUP BY {names_sql(key)}"


_OF_PARTITION = {
    "as_of": "max(as_of)",
    "nth": "max(nth)",
    "host": "max(host)",
    "is_librdkafka": "bool_or(source = 'librdkafka_statistics')",
    "reported_consumed": f"({_newest_sql({'value': 'consumed_offset'})})['value']",
    "reported_fetched": f"({_newest_sql({'value': 'fetched_offset'})})['value']",
    # All of them come from one report, because a lag and a lead from different times do not add up.
    "newest": _newest_sql({name: name for name in _OWN_METRICS}),
}
_PARTITIONS = f"""
    SELECT * EXCLUDE (newest), {columns_sql({name: f"newest['{name}']" for name in _OWN_METRICS})}
    FROM (
        SELECT {names_sql((*PROCESS_AT, *TOPIC_PARTITION))}, {columns_sql(_OF_PARTITION)}
        FROM some_reported WHERE "partition" IS NOT NULL
        GROUP BY {names_sql((*PROCESS_AT, *TOPIC_PARTITION))}
    )
"""
_GROUP = """
    coalesce(own_group, settings['group_id'], assigned_group, members_group, reported_group,
        CASE WHEN counters.is_old AND is_namesake THEN client_id END)
"""
_GROUPED = f"""
    SELECT configured.* EXCLUDE (settings), coalesce(counters.is_old, false) AS is_old, all_moved, any_moved,
        {_GROUP} AS group_id
    FROM configured
    LEFT JOIN counters USING ({names_sql(PROCESS_AT)})
    LEFT JOIN ({_only_sql(PROCESS_AT, "own_group", "reported")}) USING ({names_sql(PROCESS_AT)})
    LEFT JOIN ({_only_sql(CLIENT_AT, "reported_group", "reported")}) USING ({names_sql(CLIENT_AT)})
    LEFT JOIN ({_only_sql([*CLIENT_AT, *TOPIC_PARTITION], "assigned_group", "some_known_members")})
        USING ({names_sql((*CLIENT_AT, *TOPIC_PARTITION))})
    LEFT JOIN ({_only_sql(CLIENT_AT, "members_group", "known_members")}) USING ({names_sql(CLIENT_AT)})
    LEFT JOIN (SELECT DISTINCT {names_sql(CLIENT_AT)}, true AS is_namesake FROM namesakes)
        USING ({names_sql(CLIENT_AT)})
"""
_CLIENT, _MEMBER = (names_sql((*GROUP_AT, "client_id", *more)) for more in ((), TOPIC_PARTITION))
_REPORTS = f"""
    WITH counters AS ({MOVED_SQL}), partitions AS ({_PARTITIONS}),
    configured AS ({with_settings_sql("partitions", "client_id")}),
    known_members AS (SELECT {_CLIENT} FROM members UNION ALL SELECT {_CLIENT} FROM before),
    some_known_members AS (SELECT {_MEMBER} FROM some_members UNION ALL SELECT {_MEMBER} FROM some_before),
    grouped AS (SELECT * FROM ({_GROUPED}) WHERE group_id IS NOT NULL),
    held AS ({with_holders_sql("grouped")}),
    all_configured AS ({with_settings_sql("held", "client_id", "group_id")})
    SELECT *, settings['isolation_level'] AS isolation_level FROM all_configured
"""
