"""Follows series from snapshot to snapshot in Arrow columns: their memory after each, and the forecasts from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

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
from pipeline.config.status import StatusConfig

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
BASES = (None, "now", "same_hour")
"""Which traffic the next hours are expected to have."""
TIMES = ("caught_up_in_ms", "caught_up_in_low_ms", "caught_up_in_high_ms", "observed_ms")


def following(
    settings: StatusConfig, kept: Sequence[str], reach: Mapping[int, int], far_behind: Mapping[int, Collection[str]]
) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    """A function for `applyInArrow` that returns all observations of some series with their forecasts.

    Its input are observations (`is_observation`), which have SUMS; earlier rows with `memory`, from which the series
    continue; and rows of earlier weeks with `was_written_per_s`. `kept` are the columns that are returned, among them
    `partitions`; RATES, BYTE_RATES, bytes_reason, NET_RATES, TIMES, reason, basis, DELETED, deleted_reason and memory
    are added. `reach` maps a snapshot to the oldest one that it may continue from, `far_behind` to the groups that are
    compared with earlier weeks.
    """

    # A plain function, because PySpark inspects its signature.
    def follow(_: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        return _followed(rows, settings, kept, reach, far_behind)

    return follow


def _followed(
    rows: pa.Table,
    settings: StatusConfig,
    kept: Sequence[str],
    reach: Mapping[int, int],
    far_behind: Mapping[int, Collection[str]],
) -> pa.Table:
    series = series_numbers(rows, SERIES)
    is_observation, was = rows["is_observation"].to_numpy(), rows["was_written_per_s"].is_valid().to_numpy()
    order = np.lexsort((numbers(rows, "snapshot_id"), series))
    observed, known = order[is_observation[order]], order[(~is_observation & ~was)[order]]
    earlier = rows.filter(pa.array(was))
    weeks = (series[was], numbers(earlier, "snapshot_id"), earlier["was_written_per_s"].to_numpy())
    state, seen_at = np.full((int(series.max()) + 1, Memory.width()), NONE), np.full(int(series.max()) + 1, NONE)
    if len(known):  # if a series has several rows, the last one counts
        before = rows.take(known)
        state[series[known]] = lists_as_rows(before["memory"], Memory.width())
        seen_at[series[known]] = numbers(before, "snapshot_id")
    rows, series = rows.take(observed), series[observed]
    sums, ids = [numbers(rows, name) for name in SUMS], numbers(rows, "snapshot_id")
    reaches = looked_up(ids, reach)
    step = np.arange(len(series)) - np.searchsorted(series, series)
    found = np.full((len(rows), Memory.width()), NONE)
    for number in range(step.max(initial=-1) + 1):
        at = np.flatnonzero(step == number)
        of = series[at]
        memory = np.where((seen_at[of] < reaches[at])[:, None], NONE, state[of])
        found[at] = after(Memory.of_rows(memory), Sums(*(values[at] for values in sums))).rows()
        state[of], seen_at[of] = found[at], ids[at]
    is_far, after_all = is_far_behind(rows, far_behind), Memory.of_rows(found)
    rates = rates_of_weeks(after_all.ends_ms[is_far, -1], series[is_far], weeks)
    return _table(rows.select(kept), after_all, sums, settings, (np.flatnonzero(is_far), rates))


def _table(
    rows: pa.Table, memory: Memory, sums: Sequence[Ints], settings: StatusConfig, weeks: tuple[Ints, Floats]
) -> pa.Table:
    seen = Sums(*sums)
    lag = np.where(seen.is_known, seen.lag, NONE)
    markers = settings.markers * numbers(rows, "partitions")
    found = forecast(memory, lag, markers, settings.tolerance_ms, settings.window_ms)
    found, is_same_hour = by_same_hours(found, memory, *weeks, markers, settings.tolerance_ms, settings.window_ms)
    lost = deletion(memory, lag, seen.oldest_ms, markers, settings.tolerance_ms, settings.window_ms)
    columns = _columns(memory, found, seen) | {"basis": _basis(found, is_same_hour)}
    for name, column in (columns | _deleted(_with_groups(rows, lost))).items():
        rows = rows.append_column(name, column)
    memories = memory.rows()
    lengths = np.where(memories != NONE, np.arange(memories.shape[1]) + 1, 0).max(axis=1, initial=0)
    return rows.append_column("memory", rows_as_lists(memories, lengths))


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
