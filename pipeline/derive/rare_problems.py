"""The problems that most batches do not have: of members, resets, brokers, clocks, errors, and of the history itself.

One query finds out which of them a batch may have. Only these are looked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.analytics.findings import replicas, skipped, unreadable
from pipeline.analytics.findings.assignments import ASSIGNMENT_PARTS, STABLE_MS, find_assignment_problems
from pipeline.analytics.findings.clocks import AHEAD_MS, FIRST_SECOND, STAMPED, find_clocks
from pipeline.analytics.findings.member_stays import COUNTED, ENDINGS, READ_MS, ROUNDS
from pipeline.analytics.findings.missing_snapshots import TAKEN, WINDOW_MS, snapshots_missing
from pipeline.analytics.findings.rebalances import RESTLESS_PARTS, find_restless_groups
from pipeline.analytics.findings.replicas import IS_INCOMPLETE, seen_before
from pipeline.analytics.status.rules import FALLING_BEHIND, WAITS
from pipeline.common.epoch import DAY_MS, utc_date
from pipeline.common.rows import Rows
from pipeline.derive.backlog import MAX_LOOKBACK, Backlog
from pipeline.derive.batch import Batch
from pipeline.derive.lag import Readers
from pipeline.derive.log_index import LONGEST_TAIL
from pipeline.lake import among, of_cluster, of_snapshots, one_of
from pipeline.tables import (
    COMMITTED_OFFSETS,
    FINDINGS,
    GROUP_CHANGES,
    GROUP_MEMBERS,
    GROUP_STATUS,
    LAG,
    PARTITION_STATUS,
    SNAPSHOTS,
    WATERMARKS,
)

_MAY_BE = """
    SELECT 'restless' AS kind FROM (
        SELECT group_id FROM {{group_changes}} WHERE {changes} AND {is_ending}
        GROUP BY group_id HAVING count(DISTINCT snapshot_id) >= {rounds} LIMIT 1
    ) UNION ALL SELECT 'assignments' AS kind FROM (
        SELECT group_id FROM {{group_members}} WHERE {batch} AND protocol = 'consumer'
        AND member_id IS NOT NULL AND topic IS NULL AND error IS NULL LIMIT 1
    ) UNION ALL SELECT 'assignments' AS kind FROM (
        SELECT group_id FROM {{group_status}} WHERE {batch} AND {may_fall_behind} LIMIT 1
    ) UNION ALL SELECT 'replicas' AS kind FROM (
        SELECT topic FROM {{watermarks}} WHERE {batch} AND {is_incomplete} LIMIT 1
    ) UNION ALL SELECT 'clocks' AS kind FROM (
        SELECT topic FROM {{watermarks}} WHERE {batch} AND {has_wrong_clock} LIMIT 1
    ) UNION ALL SELECT 'ledger' AS kind FROM (
        SELECT snapshot_id FROM {{snapshots}} WHERE {ledger}
        AND (status = 'failed' OR cardinality(map_keys(warnings)) > 0) LIMIT 1
    ) UNION ALL SELECT 'skipped' AS kind FROM (
        SELECT group_id FROM {{group_status}} WHERE {batch} AND NOT has_members
        AND commit_since >= snapshot_at - INTERVAL '1 minute' LIMIT 1
    ) UNION ALL SELECT 'skipped' AS kind FROM (
        SELECT group_id FROM {{findings}} WHERE {of_cluster} AND kind = 'skipped' AND resolved_at IS NULL LIMIT 1
    ) UNION ALL SELECT 'unreadable' AS kind FROM (
        SELECT group_id FROM {{lag}} WHERE {batch} AND {has_error} LIMIT 1
    ) UNION ALL SELECT 'unreadable' AS kind FROM (
        SELECT group_id FROM {{committed_offsets}} WHERE {batch} AND {is_unread_group} LIMIT 1
    )
"""
"""Which problems a batch may have. Whether it has them, the analytics decide.

Commits can only be reset in a group without members, which then has a new commit. Clocks may differ by a minute.
"""


def rare_problems(batch: Batch, readers: Readers) -> list[Rows]:
    """The problems of these kinds in a batch: rows of PROBLEMS. All other tables of the batch must be written."""
    may_be = _possible_kinds(batch)
    found = []
    if "restless" in may_be:
        found.append(_restless_groups(batch))
    judged = settled_snapshots(batch.backlog)
    if "assignments" in may_be and judged:
        found.append(_assignment_problems(batch, readers, judged))
    if "unreadable" in may_be and batch.backlog.previous:
        found.append(_unreadable(batch))
    if "replicas" in may_be and batch.backlog.previous:
        found.append(_missing_replicas(batch))
    if "skipped" in may_be:
        found.append(_skipped(batch))
    if "clocks" in may_be:
        where = f"{batch.where} AND {_has_wrong_clock(batch.snapshot_ids)}"
        found.append(find_clocks(batch.lake.rows(WATERMARKS, where, *STAMPED.names)))
    if "ledger" in may_be:
        found.append(_missing_snapshots(batch))
    return found


def _unreadable(batch: Batch) -> Rows:
    """What cannot be read in the batch, nor in the snapshot before."""
    previous = batch.backlog.previous
    where = of_snapshots(batch.cluster, sorted({*batch.snapshot_ids, *previous.values()}))
    # Errors are also in complete snapshots: a topic that Kafka leaves out has none of its own.
    tables = {
        "lag": (LAG, f"{where} AND {unreadable.HAS_ERROR}"),
        "commits": (COMMITTED_OFFSETS, f"{where} AND {unreadable.IS_UNREAD_GROUP}"),
        "watermarks": (WATERMARKS, f"{batch.where} AND leader IS NULL"),
    }
    parts = {name: batch.lake.rows(*table, *unreadable.UNREADABLE_PARTS[name].names) for name, table in tables.items()}
    return unreadable.find_unreadable(parts, previous, batch.backlog.buckets)


def _restless_groups(batch: Batch) -> Rows:
    """Groups whose members join and leave again and again."""
    counted = f"{since(batch.cluster, batch.snapshot_ids, READ_MS)} AND {one_of('change', COUNTED)}"
    changes = batch.lake.rows(GROUP_CHANGES, counted, *RESTLESS_PARTS["changes"].names)
    parts = {"changes": changes, "members": batch.members}
    return find_restless_groups(parts, batch.snapshot_ids, batch.backlog.buckets)


def _assignment_problems(batch: Batch, readers: Readers, judged: Sequence[int]) -> Rows:
    """How the partitions of groups are shared among their members, in the snapshots `judged`."""
    changes = since(batch.cluster, judged, STABLE_MS)
    parts = {
        "members": batch.members.where_in("snapshot_id", judged),
        "groups": batch.rows(GROUP_STATUS, judged, *ASSIGNMENT_PARTS["groups"].names),
        "lag": readers.lag,
        "changes": batch.lake.rows(GROUP_CHANGES, changes, *ASSIGNMENT_PARTS["changes"].names),
        "watermarks": batch.watermarks,
    }
    return find_assignment_problems(parts, batch.backlog.buckets)


def _missing_replicas(batch: Batch) -> Rows:
    """Replicas that are missing now, and were earlier."""
    lake, backlog, ids = batch.lake, batch.backlog, batch.snapshot_ids
    every = [s.snapshot_id for s in (*backlog.before[::-1], *backlog.batch)]
    before = seen_before(every, ids, MAX_LOOKBACK)
    seen = of_snapshots(batch.cluster, sorted({*ids, *before.values(), *backlog.previous.values()}))
    watermarks = lake.rows(WATERMARKS, f"{seen} AND {IS_INCOMPLETE}", *replicas.REPLICA_PARTS["watermarks"].names)
    topics = sorted(watermarks.where_unknown("leader").distinct("topic"))
    readers = lake.rows(LAG, f"{batch.where} AND {among('topic', topics)}", *replicas.REPLICA_PARTS["lag"].names)
    parts = {"watermarks": watermarks, "lag": readers.where_in("topic", topics)}
    return replicas.find_missing_replicas(parts, before, backlog.previous, backlog.buckets)


def _skipped(batch: Batch) -> Rows:
    tables = {"partitions": PARTITION_STATUS, "groups": GROUP_STATUS}
    parts = {
        name: batch.rows(table, batch.snapshot_ids, *skipped.SKIPPED_PARTS[name].names)
        for name, table in tables.items()
    }
    return skipped.find_skipped(parts, batch.backlog.buckets)


def _missing_snapshots(batch: Batch) -> Rows:
    """The missing snapshots. Collected, because an hour has few."""
    ids = batch.snapshot_ids
    ledger = batch.lake.rows(SNAPSHOTS, since(batch.cluster, ids, WINDOW_MS), *TAKEN.names)
    return Rows(snapshots_missing(ledger.collected_table(), ids))


def _has_wrong_clock(ids: Sequence[int]) -> str:
    """The predicate for watermarks of these snapshots whose newest timestamp may be wrong.

    A snapshot is not read before its instant, so a timestamp that is not ahead of the instant by so much is not ahead.
    It may be read much later.
    """
    last_second = max(ids) // 1_000 + DAY_MS
    is_in_seconds = f"max_timestamp_ms BETWEEN {FIRST_SECOND} AND {last_second}"
    return f"(max_timestamp_ms > snapshot_id + {AHEAD_MS} OR {is_in_seconds})"


def settled_snapshots(backlog: Backlog) -> list[int]:
    """The snapshots of the batch before which changes are known for STABLE_MS: not the first ones of a cluster.

    If as many snapshots as are looked back for are closer together, they are enough.
    """
    every = [*backlog.history, *(s.snapshot_id for s in backlog.batch)]
    known = {i for number, i in enumerate(every) if every[0] <= i - STABLE_MS or number >= LONGEST_TAIL}
    return [i for i in backlog.compared_with if i in known]


def _possible_kinds(batch: Batch) -> set[str]:
    """Which problems the batch may have."""
    cluster, ids = batch.cluster, batch.snapshot_ids
    statement = _MAY_BE.format(
        changes=since(cluster, ids, READ_MS),
        is_ending=one_of("change", ENDINGS),
        rounds=ROUNDS,
        batch=batch.where,
        may_fall_behind=one_of("status", (*WAITS, FALLING_BEHIND, "rewound")),
        is_incomplete=IS_INCOMPLETE,
        has_wrong_clock=_has_wrong_clock(ids),
        ledger=since(cluster, ids, WINDOW_MS),
        of_cluster=of_cluster(cluster),
        has_error=unreadable.HAS_ERROR,
        is_unread_group=unreadable.IS_UNREAD_GROUP,
    )
    tables = (GROUP_CHANGES, GROUP_MEMBERS, GROUP_STATUS, WATERMARKS, SNAPSHOTS, FINDINGS, LAG, COMMITTED_OFFSETS)
    rows = batch.lake.query(statement, *tables)
    return {row["kind"] for row in rows}


def since(cluster: str, ids: Sequence[int], before_ms: int, of: str = "") -> str:
    """The predicate for some snapshots, and for this time before them. `of` is written before the names of columns."""
    after = min(ids) - before_ms
    return (
        f"{of}{of_cluster(cluster)} AND {of}snapshot_date >= DATE'{utc_date(after)}' "
        f"AND {of}snapshot_id > {after} AND {of}snapshot_id <= {max(ids)}"
    )
