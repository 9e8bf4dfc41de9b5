"""The table `partition_status`: the rules applied to Arrow columns, for all readers at once, snapshot by snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.analytics.arrow_series import (
    NONE,
    Bools,
    Ints,
    bytes_of_rows,
    instants_ms,
    looked_up,
    numbers,
    rows_of_bytes,
    series_numbers_of_each,
    timestamps,
)
from pipeline.analytics.keys import READER, TOPIC_PARTITION
from pipeline.analytics.remembered import followed, newest_of_each
from pipeline.analytics.status.memory import Memory, after
from pipeline.analytics.status.observation import Observation
from pipeline.analytics.status.observed import OBSERVED_LAG, observed, why_unknown
from pipeline.analytics.status.rules import REASONS, STATUSES, Judged, begins, reasons, statuses
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, bucketed
from pipeline.config.status import StatusConfig
from pipeline.tables import COMMITTED_OFFSETS, LAG, PARTITION_STATUS

OF_KNOWN = (*READER, "snapshot_id", "status", "since", "members_seen_at", "remembered")
"""The columns of `partition_status` from which a judgement continues."""
STATUS_PARTS = {
    "lag": LAG.some(OBSERVED_LAG),
    "known": PARTITION_STATUS.some(OF_KNOWN),
    "commits": COMMITTED_OFFSETS.some((*READER, "snapshot_id", "committed_offset", "leader_epoch")),
}
"""What `partition_status` is computed from."""
_COPIED = (*READER, "snapshot_id", "snapshot_date", "consumer_lag", "consumer_age_ms")


_STATUS, _SINCE, _MEMBERS = -3, -2, -1
"""Where in a row of numbers, after what is remembered of a reader, its last status is (NONE if it has none), when that
began, and when its group was last seen with members."""


def statuses_of_readers(
    parts: Mapping[str, Rows], settings: StatusConfig, reach: Mapping[int, int], buckets: int | None = None
) -> Rows:
    """The rows of PARTITION_STATUS from rows of the tables that STATUS_PARTS names; see `partition_status`."""
    judge = partial(partition_status, settings=settings, reach=dict(reach))
    return bucketed(parts, STATUS_PARTS, TOPIC_PARTITION, judge, PARTITION_STATUS.schema, buckets)


def partition_status(bucket: Bucket, settings: StatusConfig, reach: Mapping[int, int]) -> pa.Table:
    """The rows of PARTITION_STATUS for some readers, in all snapshots of a batch.

    The rows of STATUS_PARTS are: `lag`, the rows to judge; `known`, rows of PARTITION_STATUS of earlier snapshots,
    where each reader continues from its newest; `commits`, those of the batch, with the leader epochs that are stored
    with them. `reach` maps a snapshot to the oldest earlier one that it may continue from: a reader in none of the
    snapshots since then counts as new.
    """
    plain = _plain_commits(bucket["commits"])
    lag, known = bucket["lag"], bucket["known"]
    readers, of_known, of_plain = series_numbers_of_each((lag, known, plain), READER)
    count = 1 + max((int(each.max()) for each in (readers, of_known) if len(each)), default=0)
    # `memory.after` ignores an observation that was read before its predecessor.
    before = newest_of_each(_rows(known), of_known, numbers(known, "snapshot_id"), count)
    order = np.lexsort((numbers(lag, "snapshot_id"), readers))
    lag, readers = lag.select(OBSERVED_LAG).take(order), readers[order]
    ids = numbers(lag, "snapshot_id")
    seen = observed(lag)
    has_plain = _has_plain((readers, ids), (of_plain, numbers(plain, "snapshot_id")))
    seen["has_epoch"] = _has_epoch(seen["has_members"], seen.pop("verified_epoch"), has_plain)
    found = _judged_rows(readers, ids, seen, before, settings, looked_up(ids, reach))
    return _table(lag, seen, found).cast(arrow_schema(PARTITION_STATUS.schema))


def _plain_commits(commits: pa.Table) -> pa.Table:
    """The commits with which no leader epoch is stored."""
    return commits.filter(pc.and_(commits["committed_offset"].is_valid(), commits["leader_epoch"].is_null()))


def _has_plain(looked: tuple[Ints, Ints], plain: tuple[Ints, Ints]) -> Bools:
    """Whether a reader in a snapshot is among the plain ones. Both are numbers of readers, and snapshots."""
    if not len(plain[0]):
        return np.zeros(len(looked[0]), bool)
    distinct = np.unique(np.concatenate([looked[1], plain[1]]))
    one, other = (of * len(distinct) + np.searchsorted(distinct, ids) for of, ids in (looked, plain))
    return np.isin(one, other)


def _has_epoch(has_members: Ints, verified_epoch: Ints, has_plain: Bools) -> Ints:
    """Whether a commit has a leader epoch, 1 or 0. That it has no epoch is only known if the group has no members."""
    return np.where(has_plain & (has_members == 0), 0, np.where(verified_epoch != NONE, 1, NONE))


class _Found(NamedTuple):
    """What was found about each row of `lag`: the state after it, and its reason.

    Also since when the reader waits, and when its commit was first seen.
    """

    state: Ints
    why: Ints
    waiting_ms: Ints
    moved_ms: Ints


def _judged_rows(
    readers: Ints, ids: Ints, seen: Mapping[str, Ints], before: tuple[Ints, Ints], settings: StatusConfig, reaches: Ints
) -> _Found:
    """Judges rows that are in the order of readers and snapshots."""
    why, waiting_ms, moved_ms = np.zeros(len(ids), np.int64), *np.full((2, len(ids)), NONE)
    width = Memory.width()

    def judge(state: Ints, at: Ints) -> Ints:
        judged = _judged({name: values[at] for name, values in seen.items()}, state[:, :width], settings)
        status = statuses(judged)
        members_ms = np.where(judged.seen.has_members == 1, judged.seen.at_ms, state[:, _MEMBERS])
        why[at], waiting_ms[at] = reasons(judged, status), judged.memory.waits.since_ms
        moved_ms[at] = judged.memory.commit.moved_ms
        return np.column_stack([*judged.memory.columns(), status, _since(judged, status, state), members_ms])

    return _Found(followed(readers, ids, before, reaches, judge), why, waiting_ms, moved_ms)


def _judged(seen: dict[str, Any], memory: Ints, settings: StatusConfig) -> Judged:
    others = {name: seen.pop(name) for name in ("stable_lag", "committed_at_ms", "is_not_committed")}
    looked = Observation(**seen)
    memory_after = after(Memory.of_rows(memory), looked, settings.window_ms, settings.markers)
    return Judged(seen=looked, memory=memory_after, settings=settings, **others)


def _since(judged: Judged, status: Ints, before: Ints) -> Ints:
    began = begins(judged, status)
    status_before, since_ms = before[:, _STATUS], before[:, _SINCE]
    # A commit that is beyond the end was unknown before for another reason, if at all: see `truncated_log`.
    was_beyond = Memory.of_rows(before[:, : Memory.width()]).commit.beyond_end != NONE
    is_just_beyond = judged.seen.is_new & (judged.memory.commit.beyond_end != NONE) & ~was_beyond
    goes_on = (status == status_before) & (since_ms != NONE) & ~is_just_beyond
    return np.where(began != NONE, began, np.where(goes_on, since_ms, judged.seen.at_ms))


def _rows(known: pa.Table) -> Ints:
    """The states from which the judgement continues: what rows of PARTITION_STATUS remember, and their statuses."""
    memory = rows_of_bytes(known["remembered"], Memory.width())
    since_ms, members_ms = (instants_ms(known, name) for name in ("since", "members_seen_at"))
    return np.column_stack([memory, _codes(known["status"]), since_ms, members_ms])


def _codes(names: pa.ChunkedArray) -> Ints:
    encoded = names.combine_chunks().dictionary_encode()
    numbers = {name: number for number, name in enumerate(STATUSES)}
    values = np.array([*(numbers.get(name, NONE) for name in encoded.dictionary.to_pylist()), NONE], np.int64)
    return np.asarray(values[encoded.indices.fill_null(-1).to_numpy()])


def _table(lag: pa.Table, seen: Mapping[str, Ints], found: _Found) -> pa.Table:
    status = pa.array(STATUSES).take(pa.array(found.state[:, _STATUS]))
    is_unknown = pc.equal(status, "unknown")
    reason = pa.array(REASONS, pa.string()).take(pa.array(found.why))
    why = why_unknown(lag).combine_chunks()
    columns = {name: lag[name] for name in _COPIED} | {
        "captured_at": timestamps(seen["at_ms"]),
        "status": status,
        "reason": pc.coalesce(reason, pc.if_else(is_unknown, why, pa.scalar(None, pa.string()))),
        "since": timestamps(found.state[:, _SINCE]),
        "waiting_since": timestamps(found.waiting_ms),
        "commit_since": timestamps(found.moved_ms),
        "has_members": pa.array(seen["has_members"] == 1, mask=seen["has_members"] == NONE),
        "members_seen_at": timestamps(found.state[:, _MEMBERS]),
        "remembered": bytes_of_rows(found.state[:, : Memory.width()]),
    }
    return pa.Table.from_pydict({name: columns[name] for name in PARTITION_STATUS.columns})
