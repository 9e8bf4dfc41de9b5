"""Applies the rules to Arrow columns, for all readers at once, snapshot by snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.analytics.status.memory import NONE, Bools, Ints, Memory, Observation, after
from pipeline.analytics.status.rules import REASONS, STATUSES, Judged, begins, reasons, statuses
from pipeline.config.status import StatusConfig

NUMBERS = ("at_ms", "topic_hash", "committed", "end", "consumer_lag", "has_members", "consumer_age_ms", "stable_lag")
TIMES = ("committed_at_ms",)
FLAGS = ("is_new", "is_not_committed")
JUDGEMENT = ("status", "reason", "since_ms", "waiting_since_ms", "memory")
"""The columns that are added to a row when it is judged."""


class _State(NamedTuple):
    """For each reader: its memory, its last status (NONE if it has none), when that began, and its last snapshot."""

    memory: Ints
    status: Ints
    since_ms: Ints
    snapshot_id: Ints

    @classmethod
    def empty(cls, count: int) -> _State:
        return cls(np.full((count, Memory.width()), NONE), *np.full((3, count), NONE))

    def of(self, readers: Ints, reach: Ints) -> _State:
        """The state of some readers; empty for those whose last snapshot is before `reach`."""
        is_gone = self.snapshot_id[readers] < reach
        return _State(*(np.where(_as_wide(is_gone, all_), NONE, all_[readers]) for all_ in self))

    def put(self, at: Ints, new: _State) -> None:
        """Sets the state of some readers or rows."""
        for whole, part in zip(self, new, strict=True):
            whole[at] = part


def _as_wide(mask: Bools, values: Ints) -> Bools:
    return mask[:, None] if values.ndim > 1 else mask


def judging(
    settings: StatusConfig, kept: Sequence[str], reach: Mapping[int, int]
) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    """A function for `applyInArrow` that judges all observations of some readers, and returns them with JUDGEMENT.

    Its input are observations (`is_observation`), which have NUMBERS, TIMES and FLAGS, and earlier rows with `memory`,
    from which the judgement continues. `kept` are the columns that are returned, among them `snapshot_id`. `reach` maps
    a snapshot to the oldest earlier one that it may continue from: a reader in none of the snapshots since then counts
    as new.
    """

    # A plain function, because PySpark inspects its signature.
    def judge(_: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        return _judged(rows, settings, kept, reach)

    return judge


def _judged(rows: pa.Table, settings: StatusConfig, kept: Sequence[str], reach: Mapping[int, int]) -> pa.Table:
    readers = _readers(rows)
    is_observation = rows["is_observation"].to_numpy()
    # In the order of snapshots. `memory.after` ignores an observation that was read before its predecessor.
    order = np.lexsort((_numbers(rows, "snapshot_id"), readers))
    observed, known = order[is_observation[order]], order[~is_observation[order]]
    state = _remembered(rows.take(known), readers[known], int(readers.max()) + 1)
    rows, readers = rows.take(observed), readers[observed]
    step = np.arange(len(readers)) - np.searchsorted(readers, readers)
    columns = {name: _numbers(rows, name) for name in (*NUMBERS, *TIMES)}
    columns |= {name: rows[name].fill_null(False).to_numpy() for name in FLAGS}
    ids = _numbers(rows, "snapshot_id")
    reaches = _looked_up(ids, reach)
    found, why, waiting_ms = _State.empty(len(ids)), np.zeros(len(ids), np.int64), np.full(len(ids), NONE)
    for number in range(step.max(initial=-1) + 1):
        at = np.flatnonzero(step == number)
        before = state.of(readers[at], reaches[at])
        judged = _with_memory({name: values[at] for name, values in columns.items()}, before.memory, settings)
        status = statuses(judged)
        new = _State(judged.memory.rows(), status, _since(judged, status, before), ids[at])
        state.put(readers[at], new)
        found.put(at, new)
        why[at], waiting_ms[at] = reasons(judged, status), judged.memory.waiting_ms
    return _table(rows.select(kept), found, why, waiting_ms)


def _since(judged: Judged, status: Ints, before: _State) -> Ints:
    began = begins(judged, status)
    goes_on = (status == before.status) & (before.since_ms != NONE)
    return np.where(began != NONE, began, np.where(goes_on, before.since_ms, judged.seen.at_ms))


def _looked_up(ids: Ints, reach: Mapping[int, int]) -> Ints:
    distinct, numbers = np.unique(ids, return_inverse=True)
    return np.array([reach.get(int(one), NONE) for one in distinct], np.int64)[numbers]


def _readers(rows: pa.Table) -> Ints:
    """A number for the reader of each row; equal readers have equal numbers."""
    found = np.zeros(len(rows), np.int64)
    for name in ("cluster", "group_id", "topic", "partition"):
        codes = rows[name].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        # Renumbered after each column, so that the product stays small.
        found = np.unique(found * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1]
    return found


def _remembered(known: pa.Table, readers: Ints, count: int) -> _State:
    """The state from which the judgement continues; if a reader has several rows, the last one."""
    state = _State.empty(count)
    if len(known):
        numbers = (_numbers(known, name) for name in ("since_ms", "snapshot_id"))
        state.put(readers, _State(_memories(known["memory"]), _codes(known["status"]), *numbers))
    return state


def _memories(column: pa.ChunkedArray) -> Ints:
    """A row of numbers for each list. Numbers that are missing at the end, as an older laglake kept fewer, are NONE."""
    lists = column.combine_chunks()
    lengths = np.diff(lists.offsets.to_numpy())
    found = np.full((len(lists), Memory.width()), NONE)
    found[np.arange(Memory.width()) < lengths[:, None]] = lists.flatten().to_numpy()
    return found


def _codes(names: pa.ChunkedArray) -> Ints:
    encoded = names.combine_chunks().dictionary_encode()
    numbers = {name: number for number, name in enumerate(STATUSES)}
    values = np.array([numbers.get(name, NONE) for name in encoded.dictionary.to_pylist()], np.int64)
    return np.asarray(values[encoded.indices.to_numpy()])


def _with_memory(columns: dict[str, Ints], memory: Ints, settings: StatusConfig) -> Judged:
    names = ("at_ms", "topic_hash", "committed", "end", "consumer_lag", "consumer_age_ms", "is_new")
    seen = Observation(*(columns[name] for name in names))  # type: ignore[arg-type]
    return Judged(
        seen=seen,
        memory=after(Memory.of_rows(memory), seen, settings.window_ms),
        has_members=columns["has_members"],
        stable_lag=columns["stable_lag"],
        committed_at_ms=columns["committed_at_ms"],
        is_not_committed=columns["is_not_committed"].astype(bool),
        settings=settings,
    )


def _numbers(rows: pa.Table, name: str) -> Ints:
    return np.asarray(rows[name].cast(pa.int64()).fill_null(NONE).to_numpy())


def _table(rows: pa.Table, found: _State, why: Ints, waiting_ms: Ints) -> pa.Table:
    width = Memory.width()
    ends = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * width)
    columns = {
        "status": pa.array(STATUSES).take(pa.array(found.status)),
        "reason": pa.array(REASONS, pa.string()).take(pa.array(why)),
        "since_ms": _or_null(found.since_ms),
        "waiting_since_ms": _or_null(waiting_ms),
        "memory": pa.ListArray.from_arrays(ends, pa.array(found.memory.ravel())),
    }
    for name in JUDGEMENT:
        rows = rows.append_column(name, columns[name])
    return rows


def _or_null(values: Ints) -> pa.Array:
    return pa.array(values, mask=values == NONE)
