"""The problems of groups and topics at each snapshot: rows of PROBLEMS.

One cause is one problem, however many partitions it concerns. If a topic is the cause, such as one that was recreated,
the problem has no group, and its evidence names the groups.
What groups have in common is decided later, when problems become findings (`causes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pipeline.analytics.findings.expiry import group_expires_in_ms
from pipeline.analytics.findings.problem import PROBLEMS, distinct_sql, problem_rows, some_sql
from pipeline.analytics.findings.rates import COMPARED, with_rates
from pipeline.analytics.findings.reader_finders import also_sql, magnitude_sql, severity_sql
from pipeline.analytics.findings.suspects import SUSPECTS
from pipeline.analytics.keys import GROUP_AT, SNAPSHOT
from pipeline.analytics.lag.ladder import DELETED_UNREAD_OFFSETS, counted_lag
from pipeline.analytics.series import read_ms_sql
from pipeline.analytics.status.rules import STATUSES
from pipeline.common.arrow_sql import arrow_queries, columns_sql, epoch_ms_sql, names_sql, struct_sql, sum_if_fits_sql
from pipeline.common.buckets import Bucket
from pipeline.common.rows import Rows, bucketed
from pipeline.config.status import StatusConfig
from pipeline.kinds import SHARED
from pipeline.kinds.reader_facts import ReaderFacts, WorstReader
from pipeline.tables import GROUP_STATUS
from pipeline.tables.columns import STRING

OF_GROUPS = GROUP_STATUS.some(
    (*GROUP_AT, "consumer_lag", "group_type", "members_seen_at", "commit_since", "offset_statuses", *COMPARED)
)
"""The columns of GROUP_STATUS that problems need."""
_PARTS = {"suspects": SUSPECTS, "groups": StructType([*OF_GROUPS, StructField("subject", STRING)])}


def find_group_problems(
    suspects: Rows,
    groups: Rows,
    before: Mapping[int, int],
    settings: StatusConfig,
    buckets: int | None = None,
) -> Rows:
    """The rows of PROBLEMS from rows of SUSPECTS and of GROUP_STATUS; see `group_problems`."""
    parts = {"suspects": suspects, "groups": groups.mapped(_with_subject, _PARTS["groups"])}
    compute = partial(group_problems, before=dict(before), settings=settings)
    return bucketed(parts, _PARTS, ["subject"], compute, PROBLEMS, buckets)


def _with_subject(groups: pa.Table) -> pa.Table:
    return groups.append_column("subject", groups["group_id"])


def group_problems(bucket: Bucket, before: Mapping[int, int], settings: StatusConfig) -> pa.Table:
    """The rows of PROBLEMS of some groups and topics, from all of their rows of SUSPECTS (`suspects`).

    `groups` are the rows of GROUP_STATUS of the same snapshots, and of those with which `before` compares them. A sum
    that exceeds a bigint is NULL. Of readers that are alike, the first one by topic, partition and group is shown.
    """
    expires_in_ms = group_expires_in_ms(settings.data_loss_within_ms)
    groups = with_rates(bucket["groups"], before)
    with arrow_queries({"suspects": bucket["suspects"], "groups": groups}) as queries:
        rows = queries.rows(f"""
            WITH summed AS ({_SUMMED}), whole AS ({_WHOLE}),
            timed AS (
                SELECT * REPLACE ({expires_in_ms} AS expires_in_ms)
                FROM summed LEFT JOIN whole USING ({names_sql(SNAPSHOT)}, of_group)
            )
            SELECT {columns_sql(_DESCRIBED)} FROM timed
            WHERE {also_sql()}
        """)
    return problem_rows(rows, ReaderFacts)


def _columns(*names: str) -> dict[str, str]:
    return {name: f'"{name}"' for name in names}


_WHOLE = f"""
    SELECT {names_sql(SNAPSHOT)}, group_id AS of_group, partitions AS of_partitions, consumer_lag AS group_lag,
        offset_statuses['no_commit'] AS uncommitted,
        group_type, greatest({epoch_ms_sql("members_seen_at")}, {epoch_ms_sql("commit_since")}) AS active_ms,
        written_per_s, committed_per_s
    FROM groups
"""
"""What is known of a whole group. With `active_ms`, its commits expire: see `group_expires_in_ms`."""
_UNREAD = "coalesce(consumer_lag, -1)"
_READABLE = "high_watermark - log_start_offset"
_EXISTING = f"CASE WHEN consumer_lag IS NOT NULL THEN least({counted_lag('consumer_lag')}, {_READABLE}) END"
# An earlier snapshot has seen the commit within the log if the reader got its status after the commit. A commit that
# was beyond the end when it was first seen may have been wrong from the beginning.
_WAS_WITHIN = "coalesce(since > commit_since, false)"
_WAS_CUT_OFF = f"offset_status IS NOT DISTINCT FROM 'truncated' OR {_WAS_WITHIN}"
"""Whether the log is known to have been cut off below a commit that was within it."""
_MOST_UNREAD = {
    # HUGEINT, because the least bigint has no opposite.
    "less_unread": f"-{_UNREAD}::HUGEINT",
    **_columns("topic", "partition", "group_id"),
}
_LOST_FIRST = {"first_lost": f"coalesce(deleted_in_ms, {2**62})", **_MOST_UNREAD}
_WORST = _columns(*WorstReader.model_fields)
_PLACE = {"topic": "topic", "partition": '"partition"', "since_ms": epoch_ms_sql("since")}
_SUMS = {
    "rows": "count(*)",
    "topics": distinct_sql("topic"),
    "partitions": distinct_sql("partition"),
    "groups": distinct_sql("group_id"),
    "status": f"arg_min(status, list_position({[*STATUSES]}, status))",
    # In a struct, because arg_min passes over NULL.
    "reason": f"arg_min({struct_sql({'reason': 'reason'})}, {struct_sql(_MOST_UNREAD)})['reason']",
    "since_ms": f"min({epoch_ms_sql('since')})",
    "latest_ms": f"max({epoch_ms_sql('since')})",
    "at_ms": f"max({read_ms_sql()})",
    "consumer_lag": sum_if_fits_sql(counted_lag("consumer_lag")),
    "consumer_lag_bytes": sum_if_fits_sql(counted_lag("consumer_lag_bytes")),
    "bytes_error": sum_if_fits_sql("bytes_error"),
    "existing": sum_if_fits_sql(_EXISTING),
    "consumer_age_ms": "max(consumer_age_ms)",
    "deleted": sum_if_fits_sql(DELETED_UNREAD_OFFSETS),
    "commits_cut_off": f"count(*) FILTER ({_WAS_CUT_OFF})",
    "readable": sum_if_fits_sql(_READABLE),
    "deleted_in_ms": "min(deleted_in_ms)",
    "expires_in_ms": "min(expires_in_ms)",
    "offsets_retention_ms": "min(offsets_retention_ms)",
    "members_seen_ms": f"max({epoch_ms_sql('members_seen_at')})",
    "places": f'list({struct_sql(_PLACE)} ORDER BY topic, "partition") FILTER (kind IN {(*SHARED,)})',
    # The partition that is lost first, or else the one with the most lag.
    "worst": f"arg_min({struct_sql(_WORST)}, {struct_sql(_LOST_FIRST)})",
}
"""What all partitions of a problem show together."""
_OF_PROBLEM = f"{names_sql(SNAPSHOT)}, kind, of_group, of_topic"
_SUMMED = f"SELECT {_OF_PROBLEM}, {columns_sql(_SUMS)} FROM suspects GROUP BY {_OF_PROBLEM}"
_FACTS = _columns(*ReaderFacts.model_fields) | {
    "topics": some_sql("topics"),
    "groups": some_sql("groups"),
    "groups_affected": "len(groups)",
    "partition_numbers": "len(partitions)",
}
_DESCRIBED = {
    "snapshot_id": "snapshot_id",
    "kind": "kind",
    "cluster": "cluster",
    "group_id": "of_group",
    "topic": "CASE WHEN len(topics) = 1 THEN topics[1] END",
    "partitions": "CASE WHEN len(topics) = 1 THEN partitions END",
    "severity": severity_sql(),
    "magnitude": magnitude_sql(),
    "places": "places",
    "facts": struct_sql(_FACTS),
}
