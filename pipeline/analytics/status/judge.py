"""Applies the rules to Arrow columns, for all readers at once, snapshot by snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.analytics.arrow_series import (
    NONE,
    Ints,
    lists_as_rows,
    looked_up,
    numbers,
    or_null,
    rows_as_lists,
    series_numbers,
)
from pipeline.analytics.keys import READER
from pipeline.analytics.status.memory import STORED_WIDTH, Bools, Memory, Observation, after, of_stored
from pipeline.analytics.status.rules import REASONS, STATUSES, Judged, begins, reasons, statuses
from pipeline.config.status import StatusConfig

NUMBERS = (
    *("at_ms", "topic_hash", "committed", "end", "consumer_lag", "has_members", "consumer_age_ms", "stable_lag"),
    *("verified_epoch", "log_start", "position_bytes", "error_since", "error_until"),
)
TIMES = ("committed_at_ms",)
FLAGS = ("is_new", "is_not_committed")
_OBSERVED = (
    *("at_ms", "topic_hash", "committed", "end", "consumer_lag", "consumer_age_ms", "is_new", "has_members"),
    *("has_epoch", "log_start", "position_bytes", "error_since", "error_until"),
)
"""The fields of an observation, in their order."""
JUDGEMENT = ("status", "reason", "since_ms", "waiting_since_ms", "commit_since_ms", "members_seen_ms", "memory")
"""The columns that are added to a row when it is judged."""


class _State(NamedTuple):
    """For each reader: its memory, its last status (NONE if it has none), when that began, and its last snapshot.

    members_seen_ms is when its group was last seen with members.
    """

    memory: Ints
    status: Ints
    since_ms: Ints
    members_seen_ms: Ints
    snapshot_id: Ints

    @classmethod
    def empty(cls, count: int) -> _State:
        return cls(np.full((count, Memory.width()), NONE), *np.full((4, count), NONE))

    def of(self, readers: Ints, reach: Ints) -> _State:
        """The state of some readers; empty for those whose last snapshot is before `reach`."""
        is_gone = self.snapshot_id[readers] < reach
        return _State(*(np.where(_as_wide(is_gone, all_), NONE, all_[readers]) for all_ in self))

    def put(self, at: Ints, new: _State) -> None:
        """Sets the state of some readers or rows."""
        for whole, part in zip(self, new, strict=True):
            whole[at] = part


def _has_plain(readers: Ints, snapshot_ids: Ints, is_plain: Bools) -> Bools:
    """Whether the same reader has a plain row in the same snapshot."""
    if not is_plain.any():
        return is_plain
    snapshots = np.unique(snapshot_ids, return_inverse=True)[1]
    pairs = readers * (int(snapshots.max()) + 1) + snapshots
    return np.isin(pairs, pairs[is_plain])


def _has_epoch(columns: Mapping[str, Ints], has_plain: Bools) -> Ints:
    """Whether a commit has a leader epoch, 1 or 0. That it has no epoch is only known if the group has no members."""
    is_plain = has_plain & (columns["has_members"] == 0)
    return np.where(is_plain, 0, np.where(columns["verified_epoch"] != NONE, 1, NONE))


def _as_wide(mask: Bools, values: Ints) -> Bools:
    return mask[:, None] if values.ndim > 1 else mask


def judging(
    settings: StatusConfig, kept: Sequence[str], reach: Mapping[int, int]
) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    """A function for `applyInArrow` that judges all observations of some readers, and returns them with JUDGEMENT.

    Its input are observations (`is_observation`), which have NUMBERS, TIMES and FLAGS; earlier rows with `memory`, from
    which the judgement continues; and rows (`is_plain`) for those observations of groups without members whose commit
    has no leader epoch. `kept` are the columns that are returned, among them `snapshot_id`. `reach` maps
    a snapshot to the oldest earlier one that it may continue from: a reader in none of the snapshots since then counts
    as new.
    """

    # A plain function, because PySpark inspects its signature.
    def judge(_: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        return _judged(rows, settings, kept, reach)

    return judge


def _judged(rows: pa.Table, settings: StatusConfig, kept: Sequence[str], reach: Mapping[int, int]) -> pa.Table:
    readers = series_numbers(rows, READER)
    is_plain = rows["is_plain"].fill_null(False).to_numpy()
    has_plain = _has_plain(readers, numbers(rows, "snapshot_id"), is_plain)
    if is_plain.any():
        rows, readers, has_plain = rows.filter(pa.array(~is_plain)), readers[~is_plain], has_plain[~is_plain]
    is_observation = rows["is_observation"].to_numpy()
    # In the order of snapshots. `memory.after` ignores an observation that was read before its predecessor.
    order = np.lexsort((numbers(rows, "snapshot_id"), readers))
    observed, known = order[is_observation[order]], order[~is_observation[order]]
    state = _remembered(rows.take(known), readers[known], int(readers.max(initial=0)) + 1)
    rows, readers, has_plain = rows.take(observed), readers[observed], has_plain[observed]
    step = np.arange(len(readers)) - np.searchsorted(readers, readers)
    columns = {name: numbers(rows, name) for name in (*NUMBERS, *TIMES)}
    columns |= {name: rows[name].fill_null(False).to_numpy() for name in FLAGS}
    columns["has_epoch"] = _has_epoch(columns, has_plain)
    ids = numbers(rows, "snapshot_id")
    reaches = looked_up(ids, reach)
    found, why = _State.empty(len(ids)), np.zeros(len(ids), np.int64)
    waiting_ms, moved_ms = np.full((2, len(ids)), NONE)
    for number in range(step.max(initial=-1) + 1):
        at = np.flatnonzero(step == number)
        before = state.of(readers[at], reaches[at])
        judged = _with_memory({name: values[at] for name, values in columns.items()}, before.memory, settings)
        status = statuses(judged)
        members_ms = np.where(judged.seen.has_members == 1, judged.seen.at_ms, before.members_seen_ms)
        new = _State(judged.memory.rows(), status, _since(judged, status, before), members_ms, ids[at])
        state.put(readers[at], new)
        found.put(at, new)
        why[at], waiting_ms[at] = reasons(judged, status), judged.memory.waiting_ms
        moved_ms[at] = judged.memory.moved_ms
    times = {"waiting_since_ms": waiting_ms, "commit_since_ms": moved_ms, "members_seen_ms": found.members_seen_ms}
    return _table(rows.select(kept), found, why, times)


def _since(judged: Judged, status: Ints, before: _State) -> Ints:
    began = begins(judged, status)
    goes_on = (status == before.status) & (before.since_ms != NONE)
    return np.where(began != NONE, began, np.where(goes_on, before.since_ms, judged.seen.at_ms))


def _remembered(known: pa.Table, readers: Ints, count: int) -> _State:
    """The state from which the judgement continues; if a reader has several rows, the last one."""
    state = _State.empty(count)
    if len(known):
        values = (numbers(known, name) for name in ("since_ms", "members_seen_ms", "snapshot_id"))
        memory = of_stored(lists_as_rows(known["memory"], STORED_WIDTH))
        state.put(readers, _State(memory, _codes(known["status"]), *values))
    return state


def _codes(names: pa.ChunkedArray) -> Ints:
    encoded = names.combine_chunks().dictionary_encode()
    numbers = {name: number for number, name in enumerate(STATUSES)}
    values = np.array([numbers.get(name, NONE) for name in encoded.dictionary.to_pylist()], np.int64)
    return np.asarray(values[encoded.indices.to_numpy()])


def _with_memory(columns: dict[str, Ints], memory: Ints, settings: StatusConfig) -> Judged:
    seen = Observation(*(columns[name] for name in _OBSERVED))  # type: ignore[arg-type]
    return Judged(
        seen=seen,
        memory=after(Memory.of_rows(memory), seen, settings.window_ms, settings.markers),
        stable_lag=columns["stable_lag"],
        committed_at_ms=columns["committed_at_ms"],
        is_not_committed=columns["is_not_committed"].astype(bool),
        settings=settings,
    )


def _table(rows: pa.Table, found: _State, why: Ints, times: Mapping[str, Ints]) -> pa.Table:
    columns = {
        "status": pa.array(STATUSES).take(pa.array(found.status)),
        "reason": pa.array(REASONS, pa.string()).take(pa.array(why)),
        "since_ms": or_null(found.since_ms),
        **{name: or_null(values) for name, values in times.items()},
        "memory": rows_as_lists(found.memory, _lengths(found.memory)),
    }
    for name in JUDGEMENT:
        rows = rows.append_column(name, columns[name])
    return rows


def _lengths(memory: Ints) -> Ints:
    """How many numbers of each row are stored: those before the last ones that are NONE."""
    is_known = memory[:, ::-1] != NONE
    return np.where(is_known.any(axis=1), memory.shape[1] - is_known.argmax(axis=1), 0)
