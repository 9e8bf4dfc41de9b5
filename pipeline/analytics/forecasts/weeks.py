"""What was written in the same hours of earlier weeks, from the rows that FORECASTS has of these hours."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.analytics.arrow_series import NONE, Bools, Floats, Ints
from pipeline.analytics.forecasts.same_hour import HOURS, WEEKS
from pipeline.common.epoch import HOUR_MS

LATEST_MS = 5 * 60_000
"""A snapshot shows what was written in an hour if it was due less than this after the end of the hour."""
WEEK_HOURS = 168
WEEKS_BACK = range(1, WEEKS + 1)


def spans_of(first: int, last: int) -> list[tuple[int, int]]:
    """For each earlier week, the time in which snapshots show what was written in the hours after some snapshots.

    These are those between the snapshots `first` and `last`. One more hour is needed if a snapshot is read in the hour
    after the one that it was due in.
    """
    hours = [(first // HOUR_MS - WEEK_HOURS * week, last // HOUR_MS - WEEK_HOURS * week) for week in WEEKS_BACK]
    return [(begin * HOUR_MS, (end + HOURS + 1) * HOUR_MS + LATEST_MS) for begin, end in hours]


def first_of_hours(snapshot_ids: Collection[int], spans: Collection[tuple[int, int]]) -> list[int]:
    """The first snapshot of each hour, of those that are due less than LATEST_MS after it began, within the spans."""
    found: dict[int, int] = {}
    for one in sorted(snapshot_ids):
        if one % HOUR_MS < LATEST_MS and any(begin <= one < end for begin, end in spans):
            found.setdefault(one // HOUR_MS, one)
    return [*found.values()]


def is_far_behind(rows: pa.Table, groups: Mapping[int, Collection[str]]) -> Bools:
    """Which rows belong to a group that is named for their snapshot."""
    named = pa.array(sorted({group for some in groups.values() for group in some}), pa.string())
    found = pc.is_in(rows["group_id"], value_set=named).to_numpy()
    at = np.flatnonzero(found)
    keys = zip(rows["snapshot_id"].take(at).to_pylist(), rows["group_id"].take(at).to_pylist(), strict=True)
    found = found.copy()
    found[at] = [group in groups.get(snapshot_id, ()) for snapshot_id, group in keys]
    return np.asarray(found)


def rates_of_weeks(ends_ms: Ints, series: Ints, known: tuple[Ints, Ints, Floats]) -> Floats:
    """The records that were written per second, as `by_same_hours` takes them, for series whose ends were read then.

    `known` are the series, the snapshots and the rates of the last hour of earlier rows.
    """
    of, ids, rates = known
    span = int(max(ids.max(initial=0), np.where(ends_ms != NONE, ends_ms, 0).max(initial=0))) // HOUR_MS + HOURS + 2
    keys = of * span + ids // HOUR_MS
    order = np.argsort(keys, kind="stable")
    keys, rates = keys[order], np.append(rates[order], np.nan)
    back = WEEK_HOURS * np.array(WEEKS_BACK)[:, None] - np.arange(HOURS + 1)
    hour = np.where(ends_ms != NONE, ends_ms, 0)[:, None, None] // HOUR_MS - back
    wanted = series[:, None, None] * span + hour
    at = np.searchsorted(keys, wanted)
    is_there = (hour > 0) & (np.append(keys, -1)[at] == wanted)
    return np.asarray(np.where(is_there, rates[np.where(is_there, at, len(keys))], np.nan))
