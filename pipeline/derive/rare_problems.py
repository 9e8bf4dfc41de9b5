"""The problems that most batches do not have: of members, resets, brokers, clocks and of the history itself.

One query finds out which of them a batch may have, so that the plan of most batches has none of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from pyspark.sql import DataFrame

from pipeline.analytics.findings import replicas, skipped, unreadable
from pipeline.analytics.findings.assignments import STABLE_MS, assignment_problems
from pipeline.analytics.findings.clocks import AHEAD_MS, FIRST_SECOND, STAMPED, find_clocks
from pipeline.analytics.findings.member_stays import ENDINGS, READ_MS, ROUNDS
from pipeline.analytics.findings.missing_snapshots import TAKEN, WINDOW_MS, snapshots_missing
from pipeline.analytics.findings.rebalances import restless_groups
from pipeline.analytics.findings.replicas import IS_INCOMPLETE, seen_before
from pipeline.analytics.status.rules import FALLING_BEHIND, WAITS
from pipeline.common.epoch import DAY_MS, utc_date
from pipeline.common.rows import Rows
from pipeline.derive.backlog import MAX_LOOKBACK, Backlog
from pipeline.derive.log_index import LONGEST_TAIL
from pipeline.lake import Lake, of_cluster, of_snapshots, one_of
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
    ) UNION ALL SELECT 'shared' AS kind FROM (
        SELECT group_id FROM {{group_members}} WHERE {batch} AND protocol = 'consumer'
        AND member_id IS NOT NULL AND topic IS NULL AND error IS NULL LIMIT 1
    ) UNION ALL SELECT 'shared' AS kind FROM (
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


def rare_problems(lake: Lake, cluster: str, backlog: Backlog, watermarks: Rows) -> list[Rows]:
    """The problems in a batch whose other tables are written: rows of PROBLEMS. `watermarks` are those of the batch."""
    ids = [s.snapshot_id for s in backlog.batch]
    may_be = _may_be(lake, cluster, ids)
    found = [*map(Rows, _by_spark(lake, cluster, backlog, watermarks, may_be))]
    if "unreadable" in may_be and backlog.previous:
        found.append(_unreadable(lake, cluster, backlog))
    if "replicas" in may_be and backlog.previous:
        found.append(_under_replicated(lake, cluster, backlog))
    if "skipped" in may_be:
        found.append(_skipped(lake, cluster, ids, backlog.buckets))
    if "clocks" in may_be:
        found.append(_clocks(lake, cluster, ids))
    if "ledger" in may_be:
        found.append(_missing(lake, cluster, ids))
    return found


def _unreadable(lake: Lake, cluster: str, backlog: Backlog) -> Rows:
    """What cannot be read in the batch, nor in the snapshot before."""
    ids = {s.snapshot_id for s in backlog.batch}
    where = of_snapshots(cluster, sorted({*ids, *backlog.previous.values()}))
    of_batch = of_snapshots(cluster, sorted(ids))
    # Errors are also in complete snapshots: a topic that Kafka leaves out has none of its own.
    tables = {
        "lag": (LAG, f"{where} AND {unreadable.HAS_ERROR}"),
        "commits": (COMMITTED_OFFSETS, f"{where} AND {unreadable.IS_UNREAD_GROUP}"),
        "watermarks": (WATERMARKS, f"{of_batch} AND leader IS NULL"),
    }
    parts = {name: lake.rows(*table, *unreadable.PARTS[name].names) for name, table in tables.items()}
    return unreadable.find_unreadable(parts, backlog.previous, backlog.buckets)


def _by_spark(lake: Lake, cluster: str, backlog: Backlog, ends: Rows, may_be: Collection[str]) -> Iterator[DataFrame]:
    """The others that there may be. `ends` are the watermarks of the batch."""
    ids = [s.snapshot_id for s in backlog.batch]
    if "restless" in may_be:
        changes = lake.frame(GROUP_CHANGES, since(cluster, ids, READ_MS))
        yield restless_groups(changes, lake.frame(GROUP_MEMBERS, of_snapshots(cluster, ids)), ids)
    judged = settled_snapshots(backlog)
    of_batch = partial(lake.frame, where=of_snapshots(cluster, ids))
    if "shared" in may_be and judged:
        changes = lake.frame(GROUP_CHANGES, since(cluster, judged, STABLE_MS))
        members = lake.frame(GROUP_MEMBERS, of_snapshots(cluster, judged))
        watermarks = ends.frame(lake.spark, WATERMARKS.schema)
        yield assignment_problems(members, of_batch(GROUP_STATUS), of_batch(LAG), watermarks, changes)


def _under_replicated(lake: Lake, cluster: str, backlog: Backlog) -> Rows:
    """Replicas that are missing now, and were earlier."""
    ids, previous = [s.snapshot_id for s in backlog.batch], backlog.previous
    every = [s.snapshot_id for s in (*backlog.before[::-1], *backlog.batch)]
    before = seen_before(every, ids, MAX_LOOKBACK)
    seen = of_snapshots(cluster, sorted({*ids, *before.values(), *previous.values()}))
    watermarks = lake.rows(WATERMARKS, f"{seen} AND {IS_INCOMPLETE}", *replicas.PARTS["watermarks"].names)
    topics = sorted(watermarks.where_unknown("leader").distinct("topic"))
    read = f"{of_snapshots(cluster, ids)} AND {one_of('topic', topics)}" if topics else "false"
    lag = lake.rows(LAG, read, *replicas.PARTS["lag"].names)
    return replicas.find_under_replicated({"watermarks": watermarks, "lag": lag}, before, previous, backlog.buckets)


def _skipped(lake: Lake, cluster: str, ids: Sequence[int], buckets: int) -> Rows:
    where = of_snapshots(cluster, ids)
    tables = {"partitions": PARTITION_STATUS, "groups": GROUP_STATUS}
    parts = {name: lake.rows(table, where, *skipped.PARTS[name].names) for name, table in tables.items()}
    return skipped.find_skipped(parts, buckets)


def _clocks(lake: Lake, cluster: str, ids: Sequence[int]) -> Rows:
    where = f"{of_snapshots(cluster, ids)} AND {_has_wrong_clock(ids)}"
    return find_clocks(lake.rows(WATERMARKS, where, *STAMPED.names))


def _has_wrong_clock(ids: Sequence[int]) -> str:
    """The predicate for watermarks of these snapshots whose newest timestamp may be wrong.

    A snapshot is not read before its instant, so a timestamp that is not ahead of the instant by so much is not ahead.
    It may be read much later.
    """
    last_second = max(ids) // 1_000 + DAY_MS
    is_in_seconds = f"max_timestamp_ms BETWEEN {FIRST_SECOND} AND {last_second}"
    return f"(max_timestamp_ms > snapshot_id + {AHEAD_MS} OR {is_in_seconds})"


def _missing(lake: Lake, cluster: str, ids: Sequence[int]) -> Rows:
    """What is missing before the snapshots. An hour has few of them."""
    ledger = lake.rows(SNAPSHOTS, since(cluster, ids, WINDOW_MS), *TAKEN.names)
    return Rows(snapshots_missing(ledger.collected_table(), ids))


def settled_snapshots(backlog: Backlog) -> list[int]:
    """The snapshots of the batch before which changes are known for STABLE_MS: not the first ones of a cluster.

    If as many snapshots as are looked back for are closer together, they are enough.
    """
    every = [*backlog.history, *(s.snapshot_id for s in backlog.batch)]
    known = {i for number, i in enumerate(every) if every[0] <= i - STABLE_MS or number >= LONGEST_TAIL}
    return [i for i in backlog.compared_with if i in known]


def _may_be(lake: Lake, cluster: str, ids: Sequence[int]) -> set[str]:
    statement = _MAY_BE.format(
        changes=since(cluster, ids, READ_MS),
        is_ending=one_of("change", ENDINGS),
        rounds=ROUNDS,
        batch=of_snapshots(cluster, ids),
        may_fall_behind=one_of("status", (*WAITS, FALLING_BEHIND, "rewound")),
        is_incomplete=IS_INCOMPLETE,
        has_wrong_clock=_has_wrong_clock(ids),
        ledger=since(cluster, ids, WINDOW_MS),
        of_cluster=of_cluster(cluster),
        has_error=unreadable.HAS_ERROR,
        is_unread_group=unreadable.IS_UNREAD_GROUP,
    )
    tables = (GROUP_CHANGES, GROUP_MEMBERS, GROUP_STATUS, WATERMARKS, SNAPSHOTS, FINDINGS, LAG, COMMITTED_OFFSETS)
    rows = lake.query(statement, *tables)
    return {row["kind"] for row in rows}


def since(cluster: str, ids: Sequence[int], before_ms: int, of: str = "") -> str:
    """The predicate for some snapshots, and for this time before them. `of` is written before the names of columns."""
    after = min(ids) - before_ms
    return (
        f"{of}{of_cluster(cluster)} AND {of}snapshot_date >= DATE'{utc_date(after)}' "
        f"AND {of}snapshot_id > {after} AND {of}snapshot_id <= {max(ids)}"
    )
