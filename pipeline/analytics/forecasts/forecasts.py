"""The table `forecasts`: how fast each group reads each of its topics, and when it will have caught up.

Series are followed from snapshot to snapshot in Arrow columns: the memory after each, and the forecasts from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from pipeline.analytics.arrow_series import (
    NONE,
    Bools,
    Floats,
    Ints,
    bytes_of_rows,
    looked_up,
    numbers,
    or_null,
    rows_of_bytes,
    series_numbers,
    series_numbers_of_each,
    timestamps,
)
from pipeline.analytics.forecasts.band import REASONS, Forecast, forecast
from pipeline.analytics.forecasts.deletion import DELETED_REASONS, Deletion, deletion
from pipeline.analytics.forecasts.memory import Memory, Sums, after
from pipeline.analytics.forecasts.rates import (
    BYTES_REASONS,
    SPANS_MS,
    committed_bytes_per_s,
    first_reason,
    rate_per_s,
    written_bytes_per_s,
)
from pipeline.analytics.forecasts.same_hour import by_same_hours
from pipeline.analytics.forecasts.sums import FORECAST_LAG, SERIES, SUMMED, SUMS, summed_lag
from pipeline.analytics.forecasts.weeks import is_far_behind, rates_of_weeks
from pipeline.analytics.keys import GROUP
from pipeline.analytics.remembered import followed, newest_of_each
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import DAY_MS
from pipeline.config.status import StatusConfig
from pipeline.tables import FORECASTS

FORECAST_PARTS: dict[str, StructType] = {
    "lag": FORECAST_LAG,
    "known": FORECASTS.some((*SERIES, "snapshot_id", "remembered")),
    "weeks": FORECASTS.some((*SERIES, "snapshot_id", "written_per_s_1h")),
}
"""What `forecasts` is computed from. There may be no part `weeks`."""
ROWS_AT_ONCE = 2_000
"""Sums that are followed at once: each needs 3 kB in each of some ten arrays. With 100,000, they took 3 GB, and three
times as long."""
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


def forecasts(
    bucket: Bucket,
    settings: StatusConfig,
    reach: Mapping[int, int],
    far_behind: Mapping[int, Collection[str]] = MappingProxyType({}),
) -> pa.Table:
    """The rows of FORECASTS for some groups, in all snapshots of a batch, from rows of FORECAST_PARTS.

    `lag` are the rows of these snapshots. `known` are rows of FORECASTS of earlier snapshots, from the newest of which
    each series continues; `weeks` are those of earlier weeks. `reach` maps a snapshot to the newest complete one before
    it: a group in no snapshot since then counts as new. `far_behind` maps a snapshot to the groups that are compared
    with earlier weeks. Raises BadValueError if a value fits no type.
    """
    no_weeks = arrow_schema(FORECAST_PARTS["weeks"]).empty_table()
    tables = (summed_lag(bucket["lag"]), bucket["known"], bucket.get("weeks", no_weeks))
    made = [arrow_schema(FORECASTS.schema).empty_table()]
    for summed, known, weeks in _some_groups(tables, ROWS_AT_ONCE):
        made.append(_of_sums(summed, known, weeks, settings, reach, far_behind))
    return pa.concat_tables(made)


def _some_groups(tables: Sequence[pa.Table], most: int) -> Iterator[list[pa.Table]]:
    """The rows of each table, for some groups at a time: about `most` rows of the first table."""
    groups = series_numbers_of_each(tables, GROUP)
    count = 1 + max(of.max(initial=0) for of in groups)
    part_of_group = np.cumsum(np.bincount(groups[0], minlength=count)) // most
    for part in np.unique(part_of_group[groups[0]]):
        yield [rows.filter(part_of_group[of] == part) for rows, of in zip(tables, groups, strict=True)]


def _of_sums(
    summed: pa.Table,
    known: pa.Table,
    weeks: pa.Table,
    settings: StatusConfig,
    reach: Mapping[int, int],
    far_behind: Mapping[int, Collection[str]],
) -> pa.Table:
    """The rows of `forecasts` from rows of SUMMED, in place of those of `lag`."""
    series, of_known, of_weeks = series_numbers_of_each((summed, known, weeks), SERIES)
    state = rows_of_bytes(known["remembered"], Memory.width())
    count = 1 + max(series.max(initial=0), of_known.max(initial=0))
    before = newest_of_each(state, of_known, numbers(known, "snapshot_id"), count)
    order = np.lexsort((numbers(summed, "snapshot_id"), series))
    rows, series = summed.take(order), series[order]
    ids, seen = numbers(rows, "snapshot_id"), Sums(*(numbers(rows, name) for name in SUMS))

    def step(memory: Ints, at: Ints) -> Ints:
        return after(Memory.of_rows(memory), Sums(*(values[at] for values in vars(seen).values()))).rows()

    remembered = followed(series, ids, before, looked_up(ids, reach), step)
    is_far = is_far_behind(rows, far_behind)
    written = (of_weeks, numbers(weeks, "snapshot_id"), weeks["written_per_s_1h"].to_numpy())
    rates = rates_of_weeks(Memory.of_rows(remembered).ends_ms[is_far, -1], series[is_far], written)
    return _table(rows, remembered, seen, settings, (np.flatnonzero(is_far), rates))


def _table(
    rows: pa.Table, remembered: Ints, seen: Sums, settings: StatusConfig, weeks: tuple[Ints, Floats]
) -> pa.Table:
    memory = Memory.of_rows(remembered)
    lag = np.where(seen.is_known, seen.lag, NONE)
    markers = settings.markers * numbers(rows, "partitions")
    found = forecast(memory, lag, markers, settings.tolerance_ms, settings.window_ms)
    found, is_same_hour = by_same_hours(found, memory, *weeks, markers, settings.tolerance_ms, settings.window_ms)
    lost = deletion(memory, lag, seen.oldest_ms, markers, settings.tolerance_ms, settings.window_ms)
    days = (numbers(rows, "snapshot_id") // DAY_MS).astype(np.int32)
    columns = {name: rows[name] for name in SUMMED.names} | {
        "snapshot_date": pa.array(days).cast(pa.date32()),
        "captured_at": timestamps(seen.commits_ms),
        "ends_at": timestamps(seen.ends_ms),
        **_columns(memory, found, seen),
        "basis": _basis(found, is_same_hour),
        **_deleted(_with_groups(rows, lost)),
        "remembered": bytes_of_rows(remembered),
    }
    types = arrow_schema(FORECASTS.schema)
    return pa.Table.from_pydict({name: columns[name] for name in types.names}).cast(types)


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
