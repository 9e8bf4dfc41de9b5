"""The table `forecasts`: how fast each group reads each of its topics, and when it will have caught up.

Series are followed from snapshot to snapshot in Arrow columns: the memory after each, and the forecasts from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from pipeline.analytics.arrow_series import (
    NONE,
    Ints,
    bytes_of_rows,
    looked_up,
    numbers,
    or_null,
    rows_of_bytes,
    series_numbers,
    timestamps,
    where_part,
)
from pipeline.analytics.forecasts.band import REASONS, Forecast, forecast
from pipeline.analytics.forecasts.deletion import DELETED_REASONS, Deletion, deletion
from pipeline.analytics.forecasts.memory import IN_BYTES, NEEDED, OF_RETENTION, Bools, Floats, Memory, Sums, after
from pipeline.analytics.forecasts.rates import (
    BYTES_REASONS,
    SPANS_MS,
    committed_bytes_per_s,
    first_reason,
    rate_per_s,
    written_bytes_per_s,
)
from pipeline.analytics.forecasts.same_hour import by_same_hours
from pipeline.analytics.forecasts.weeks import is_far_behind, rates_of_weeks
from pipeline.common.epoch import DAY_MS
from pipeline.config.status import StatusConfig
from pipeline.tables import FORECASTS

SERIES = ("cluster", "group_id", "topic")
SUMS = (*NEEDED, "consumer_lag", "identity", *IN_BYTES, *OF_RETENTION)
"""The columns of an observation, in the order of `Sums`."""
RATES = {
    f"{name}_per_s_{span}": (of, read_ms, span_ms)
    for name, of, read_ms in (("written", "log_ends", "ends_ms"), ("committed", "commits", "commits_ms"))
    for span, span_ms in SPANS_MS.items()
}
"""The columns with rates: the value whose growth each is, when it was read, and over which time."""
BYTE_RATES = {
    f"{name}_bytes_per_s_{span}": (of, span_ms)
    for name, of in (("written", written_bytes_per_s), ("committed", committed_bytes_per_s))
    for span, span_ms in SPANS_MS.items()
}
"""The same in bytes."""
NET_RATES = ("net_per_s", "net_error_per_s")
DELETED = ("deleted_in_ms", "deleted_in_low_ms", "deleted_in_high_ms")
FORECAST_REASONS = tuple(map(REASONS.index, (None, "never_at_this_rate", "too_uncertain")))
SUM_ROWS, KNOWN_ROWS, WEEK_ROWS = "sums", "known", "weeks"
"""The values of `part`, which says what a row is."""
OF_SUMS = (*SERIES, "snapshot_id", "partitions", *SUMS)
OF_KNOWN = (*SERIES, "snapshot_id", "remembered")
OF_WEEK = (*SERIES, "snapshot_id", "written_per_s_1h")
BASES = (None, "now", "same_hour")
"""Which traffic the next hours are expected to have."""
TIMES = ("caught_up_in_ms", "caught_up_in_low_ms", "caught_up_in_high_ms", "observed_ms")


def forecasts(
    rows: pa.Table,
    settings: StatusConfig,
    reach: Mapping[int, int],
    far_behind: Mapping[int, Collection[str]] = MappingProxyType({}),
) -> pa.Table:
    """The rows of FORECASTS for some groups, in all snapshots of a batch.

    The column `part` of `rows` says what they are: SUM_ROWS are the `sums` of these snapshots; KNOWN_ROWS are rows of
    FORECASTS of earlier snapshots with OF_KNOWN, from the newest of which each series continues; WEEK_ROWS are those of
    earlier weeks, with OF_WEEK. `reach` maps a snapshot to the newest complete one before it: a group in no snapshot
    since then counts as new. `far_behind` maps a snapshot to the groups that are compared with earlier weeks.
    """
    series, all_ids = series_numbers(rows, SERIES), numbers(rows, "snapshot_id")
    observed, known, of_weeks = (where_part(rows, part) for part in (SUM_ROWS, KNOWN_ROWS, WEEK_ROWS))
    observed, known = (at[np.lexsort((all_ids[at], series[at]))] for at in (observed, known))
    was_written = rows["written_per_s_1h"].take(of_weeks).to_numpy() if len(of_weeks) else np.empty(0)
    weeks = (series[of_weeks], all_ids[of_weeks], was_written)
    count = int(series.max(initial=0)) + 1
    state, seen_at = np.full((count, Memory.width()), NONE), np.full(count, NONE)
    # If a series has several rows, the last one counts.
    state[series[known]] = rows_of_bytes(rows["remembered"].take(known), Memory.width())
    seen_at[series[known]] = all_ids[known]
    rows, series, ids = rows.select(OF_SUMS).take(observed), series[observed], all_ids[observed]
    seen = Sums(*(numbers(rows, name) for name in SUMS))
    memory = _after_each(series, ids, seen, (state, seen_at), looked_up(ids, reach))
    is_far = is_far_behind(rows, far_behind)
    rates = rates_of_weeks(memory.ends_ms[is_far, -1], series[is_far], weeks)
    return _table(rows, memory, seen, settings, (np.flatnonzero(is_far), rates))


def _after_each(series: Ints, ids: Ints, seen: Sums, state: tuple[Ints, Ints], reaches: Ints) -> Memory:
    """The memory after each row, in the order of series and snapshots: first after the first row of each series.

    `state` is the memory of each series, and the snapshot of which it is.
    """
    of_series, seen_at = state
    step = np.arange(len(series)) - np.searchsorted(series, series)
    found = np.full((len(series), Memory.width()), NONE)
    for number in range(step.max(initial=-1) + 1):
        at = np.flatnonzero(step == number)
        of = series[at]
        memory = np.where((seen_at[of] < reaches[at])[:, None], NONE, of_series[of])
        found[at] = after(Memory.of_rows(memory), Sums(*(values[at] for values in vars(seen).values()))).rows()
        of_series[of], seen_at[of] = found[at], ids[at]
    return Memory.of_rows(found)


def _table(rows: pa.Table, memory: Memory, seen: Sums, settings: StatusConfig, weeks: tuple[Ints, Floats]) -> pa.Table:
    lag = np.where(seen.is_known, seen.lag, NONE)
    markers = settings.markers * numbers(rows, "partitions")
    found = forecast(memory, lag, markers, settings.tolerance_ms, settings.window_ms)
    found, is_same_hour = by_same_hours(found, memory, *weeks, markers, settings.tolerance_ms, settings.window_ms)
    lost = deletion(memory, lag, seen.oldest_ms, markers, settings.tolerance_ms, settings.window_ms)
    days = (numbers(rows, "snapshot_id") // DAY_MS).astype(np.int32)
    columns = {name: rows[name] for name in OF_SUMS} | {
        "snapshot_date": pa.array(days).cast(pa.date32()),
        "captured_at": timestamps(seen.commits_ms),
        "ends_at": timestamps(seen.ends_ms),
        **_columns(memory, found, seen),
        "basis": _basis(found, is_same_hour),
        **_deleted(_with_groups(rows, lost)),
        "remembered": bytes_of_rows(memory.rows()),
    }
    return pa.Table.from_pydict({name: columns[name] for name in FORECASTS.columns})


def _columns(memory: Memory, found: Forecast, seen: Sums) -> dict[str, pa.Array]:
    columns = {}
    for name, (of, read_ms, span_ms) in RATES.items():
        rate = rate_per_s(getattr(memory, of), getattr(memory, read_ms), span_ms)
        columns[name] = _known(np.where(seen.is_known, rate, np.nan))
    columns |= _in_bytes(memory, seen)
    columns |= {name: _known(getattr(found, name)) for name in NET_RATES}
    times = (found.in_s, found.low_s, found.high_s, found.observed_s)
    columns |= {name: or_null(_ms(values)) for name, values in zip(TIMES, times, strict=True)}
    columns["reason"] = pa.array(REASONS, pa.string()).take(pa.array(found.reason))
    return columns


def _basis(found: Forecast, is_same_hour: Bools) -> pa.Array:
    has_caught_up = (found.in_s == 0) & (found.high_s == 0)
    is_forecast = np.isin(found.reason, FORECAST_REASONS) & ~has_caught_up
    number = np.where(is_same_hour, BASES.index("same_hour"), np.where(is_forecast, BASES.index("now"), 0))
    return pa.array(BASES, pa.string()).take(pa.array(number))


def _in_bytes(memory: Memory, seen: Sums) -> dict[str, pa.Array]:
    found = {name: of(memory, span_ms) for name, (of, span_ms) in BYTE_RATES.items()}
    columns = {name: _known(np.where(seen.is_known, rate, np.nan)) for name, (rate, _) in found.items()}
    reason = np.where(seen.is_known, first_reason([reason for _, reason in found.values()]), 0)
    return columns | {"bytes_reason": pa.array(BYTES_REASONS, pa.string()).take(pa.array(reason))}


def _with_groups(rows: pa.Table, found: Deletion) -> Deletion:
    """The same with each group as its topic from which records are deleted first."""
    is_group = rows["topic"].is_null().to_numpy()
    group_at = series_numbers(rows, (*SERIES[:2], "snapshot_id"))
    order = np.lexsort((found.reason, found.low_s, found.in_s, is_group, group_at))
    # The first of its topics comes first; a group has at least one.
    first = order[np.searchsorted(group_at[order], group_at)]
    at = np.where(is_group, first, np.arange(len(group_at)))
    return Deletion(*(values[at] for values in vars(found).values()))


def _deleted(found: Deletion) -> dict[str, pa.Array]:
    times = zip(DELETED, (found.in_s, found.low_s, found.high_s), strict=True)
    columns = {name: or_null(_ms(values)) for name, values in times}
    return columns | {"deleted_reason": pa.array(DELETED_REASONS, pa.string()).take(pa.array(found.reason))}


def _known(values: Floats) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))


def _ms(seconds: Floats) -> Ints:
    """Whole milliseconds; NONE for never, and if it is not known."""
    is_known = np.isfinite(seconds)
    return np.where(is_known, np.round(np.where(is_known, seconds, 0) * 1000), NONE).astype(np.int64)
