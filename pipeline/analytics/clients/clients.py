"""Those rungs of the readers in a snapshot that no broker knows, from what their clients report.

Different clients report different rungs (docs/design-clients.md); a rung that is not reported is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.types import StructType

from pipeline.analytics.clients.holders import IS_BELIEVED
from pipeline.analytics.clients.java_consumed_offset import consumed_by_lead_sql
from pipeline.analytics.clients.known_names import (
    BY_CLIENT,
    KNOWN_TOPICS,
    known_topics,
    with_client_key,
    written_topic_sql,
)
from pipeline.analytics.clients.possible_offsets import possible_offsets_sql
from pipeline.analytics.clients.reports import REPORT_PARTS, REPORTING, REPORTS, client_reports
from pipeline.analytics.clients.scala_fetched_offset import fetched_by_lag_sql
from pipeline.analytics.keys import (
    CLIENT_AT,
    GROUP_AT,
    PARTITION_AT,
    PROCESS_PARTITION,
    READER_AT,
    SNAPSHOT,
    TOPIC_AT,
    TOPIC_PARTITION,
)
from pipeline.analytics.lag.lag import LAG_PARTS
from pipeline.analytics.series import stretch_sql
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql, struct_sql
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, bucketed
from pipeline.config.consumers import ConsumerSettings
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, LAG, WATERMARKS

_ENDS = ("log_start_offset", "last_stable_offset", "high_watermark")
_KNOWN = ("consumed_offset", "fetched_offset", "instance")
_OF_PARTITIONS = {
    "reports": REPORTS,
    "watermarks": WATERMARKS.some((*PARTITION_AT, *_ENDS)),
    "commits": COMMITTED_OFFSETS.some((*READER_AT, "committed_offset", "captured_at", *_ENDS)),
    "members": GROUP_MEMBERS.some(READER_AT),
    "before": LAG.some((*READER_AT, "committed_offset", *_ENDS, *_KNOWN)),
}
"""What the rungs of some partitions are computed from, see `reported_rungs`."""
POSITION_PARTS = {
    "positions": REPORTING["positions"],
    "watermarks": _OF_PARTITIONS["watermarks"],
    "commits": _OF_PARTITIONS["commits"],
    "members": REPORTING["members"],
    "before": StructType([*REPORTING["before"], *LAG.some(("committed_offset", *_ENDS, *_KNOWN))]),
}
"""What `reader_positions` is computed from."""
_TOPICS = LAG.some(TOPIC_AT)
_GROUPS = LAG.some(GROUP_AT)


def reader_positions(
    parts: Mapping[str, Rows],
    snapshot_ids: Sequence[int],
    settings: Mapping[str, ConsumerSettings],
    buckets: int | None = None,
) -> Rows:
    """What clients report about each reader in the snapshots of `watermarks`: rows of LAG_PARTS["reported"].

    If there are several reports, it is the newest of the member that has the partition, or else the newest. A client
    whose group is not known is left out, and so is a partition that `watermarks` does not have. stale_lag goes to the
    last stable offset if the client is read_committed.

    `parts` are rows of POSITION_PARTS. `before` are the rows of `lag` of the snapshot just before, of which `positions`
    has rows too: an offset that was known then stays known while the client reports no progress. `snapshot_ids` are
    this snapshot and those of `watermarks`, in order; if they are not given, the snapshots of `positions` are
    successive. `settings` are those of the consumers.
    """
    members = parts["members"].where_known("client_id")
    topics = Rows.all_of([parts["watermarks"], parts["before"]], _TOPICS)
    groups = Rows.all_of([parts["commits"], members, parts["before"]], _GROUPS)
    namesakes = groups.mapped(_as_clients, REPORTING["namesakes"])
    of_clients = {**parts, "members": members, "namesakes": namesakes}
    keyed = {
        name: of_clients[name].chosen(schema).mapped(with_client_key, REPORT_PARTS[name])
        for name, schema in REPORTING.items()
    }
    known = topics.grouped([*SNAPSHOT, written_topic_sql("topic")], known_topics, KNOWN_TOPICS).collected_table()
    compute = partial(client_reports, topics=known, snapshot_ids=[*snapshot_ids], settings=dict(settings))
    of_partitions = {
        **{name: parts[name].where_known("topic") for name in ("watermarks", "commits", "before")},
        "members": members.where_known("topic"),
        "reports": bucketed(keyed, REPORT_PARTS, BY_CLIENT, compute, REPORTS, buckets),
    }
    return bucketed(of_partitions, _OF_PARTITIONS, TOPIC_PARTITION, reported_rungs, LAG_PARTS["reported"], buckets)


def _as_clients(groups: pa.Table) -> pa.Table:
    """Each group once in a snapshot, as the client of the same name."""
    distinct = groups.group_by(GROUP_AT).aggregate([]).select(GROUP_AT)
    return distinct.rename_columns(CLIENT_AT)


def reported_rungs(bucket: Bucket) -> pa.Table:
    """The rows of LAG_PARTS["reported"] for some partitions, from all of their reports.

    As in `lag`, the ends of a log are those that were read with the commit, if there are any. So the result is the same
    whether the previous snapshot is computed in the same batch or its `lag` was written earlier. That `lag` is not
    changed even if more is known now: `watermarks` does not have the partition in that snapshot.

    Clients may also report partitions that the cluster does not have, or that the configuration leaves out.
    """
    with arrow_queries(bucket) as queries:
        return queries.rows(_RUNGS).cast(arrow_schema(LAG_PARTS["reported"]))


_BESIDE = {
    **{name: f'coalesce("before".{name}, commits.{name}, watermarks.{name})' for name in _ENDS},
    "committed_offset": 'coalesce("before".committed_offset, commits.committed_offset)',
    "committed_captured_at": "commits.captured_at",
    # What `lag` has for the same process in the previous snapshot.
    **{
        f"known_{name}": f'CASE WHEN known_instance = instance THEN "before".{name}_offset END'
        for name in ("consumed", "fetched")
    },
    "is_listed": "coalesce(is_listed, false)",
    "is_held": "coalesce(is_held, false)",
}
_IN_SERIES = f"""
    SELECT reports.*, {columns_sql(_BESIDE)}, {stretch_sql(PROCESS_PARTITION)} AS stretch
    FROM reports
    LEFT JOIN (SELECT *, true AS is_listed FROM watermarks) AS watermarks USING ({names_sql(PARTITION_AT)})
    LEFT JOIN commits USING ({names_sql(READER_AT)})
    LEFT JOIN (SELECT * RENAME (instance AS known_instance) FROM "before") AS "before" USING ({names_sql(READER_AT)})
    LEFT JOIN (SELECT DISTINCT {names_sql(READER_AT)}, true AS is_held FROM members) USING ({names_sql(READER_AT)})
"""
"""The reports with the ends of their logs, their groups' commits, and what is known from the previous snapshot."""
_OFFSETS = {
    "consumed_offset": "coalesce(reported_consumed, consumed_offset)",
    "fetched_offset": "coalesce(reported_fetched, CASE WHEN is_old THEN fetched_offset END)",
}
# By default librdkafka reads only committed records, and the Java consumer reads all.
_BY_DEFAULT = "CASE WHEN is_librdkafka THEN 'read_committed' ELSE 'read_uncommitted' END"
_STALE = {
    "is_stable": f"coalesce(isolation_level, {_BY_DEFAULT}) = 'read_committed'",
    "position": "CASE WHEN is_old THEN fetched_offset ELSE consumed_offset END",
    # librdkafka's lag is not used, because before version 1.7 it counts from another offset.
    "end_by_lag": "CASE WHEN NOT is_librdkafka THEN position + reported_lag END",
    "end_it_knows": "coalesce(CASE WHEN is_stable THEN reported_stable_end END, reported_end, end_by_lag)",
    "stale_lag": "CASE WHEN is_stable THEN last_stable_offset ELSE high_watermark END - end_it_knows",
}
"""stale_lag is the lag that a client's own metric does not show: from the log end that it counts to, to the current log
end. librdkafka reports the high watermark and the last stable offset that it knows.
"""


def _newest_sql(values: Mapping[str, str], is_known: str) -> str:
    """The values in the newest report of those for which a condition holds, as a struct.

    A report of the member that has the partition is newer than all others. If several reports are equally new, their
    processes decide, so that the order of rows does not matter.
    """
    newest = struct_sql({name: name for name in ("is_holder", "as_of", "client_id", "instance")} | dict(values))
    return f"max({newest}) FILTER (as_of IS NOT NULL AND {is_known})"


_NEWEST = {
    "reported_client_id": f"({_newest_sql({}, 'true')})['client_id']",
    "reported_instance": f"({_newest_sql({}, 'true')})['instance']",
    **{
        name: f"({_newest_sql({'value': name}, f'{name} IS NOT NULL')})['value']"
        for name in ("consumed_offset", "fetched_offset", "stale_lag")
    },
}
_RUNGS = f"""
    WITH in_series AS ({_IN_SERIES}), possible AS ({possible_offsets_sql("in_series")}),
    consumed AS ({consumed_by_lead_sql("possible")}), fetched AS ({fetched_by_lag_sql("consumed")}),
    rungs AS (SELECT * REPLACE ({columns_sql(_OFFSETS)}) FROM fetched WHERE is_listed AND {IS_BELIEVED})
    SELECT {names_sql(READER_AT)}, {columns_sql(_NEWEST)}
    FROM (SELECT *, {columns_sql(_STALE)} FROM rungs) GROUP BY {names_sql(READER_AT)}
"""
