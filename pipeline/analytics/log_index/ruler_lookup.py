"""Looks up many offsets on rulers at once, with numpy: the results of `Ruler.bytes_before` and `timestamp_at`."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, BooleanType, LongType, StructField, StructType

from pipeline.analytics.log_index.ruler_storage import Flags, Longs, Rulers
from pipeline.analytics.log_index.ruler_update import ends_of, listed
from pipeline.tables import LOG_INDEX, POINTS

READING = StructType(
    [
        *(
            StructField(name, LongType())
            for name in (
                "position_bytes",
                "position_error_bytes",
                "drift_before_bytes",
                "drift_after_bytes",
                "timestamp_ms",
                "timestamp_error_ms",
                "newest_before_ms",
                "newest_before_error_ms",
            )
        ),
        StructField("is_arrival", BooleanType()),
        StructField("is_local", BooleanType()),
        StructField("is_exact", BooleanType()),
    ]
)
"""A rung on a ruler. `timestamp_ms` is that of the record at the offset, `newest_before_ms` the greatest before it.

At the end of the log there is no record yet, and both are the greatest timestamp so far. Values are NULL if the ruler
does not reach the offset, or the log begins after it. `is_arrival`: the times are those of snapshots (method
`arrival`). `is_local`: this part of the log is on the broker's disk. `is_exact`: the values were read from the log's
files, not from a ruler.
"""
READINGS = ArrayType(READING)
_SHOWN = ("topic_id", "points", "future_timestamps", "restarts")
KNOWN = StructType([StructField(name, LOG_INDEX.schema[name].dataType) for name in _SHOWN]).add("seen_ms", LongType())
"""The values of a ruler that `log_index` has as columns."""


class Values(NamedTuple):
    """Values of a line, with their errors, the drift of the vertices on both sides, and whether the value is known."""

    value: Longs
    error: Longs
    drift: tuple[Longs, Longs]
    is_known: Flags


class Line:
    """One line of many rulers."""

    def __init__(self, rulers: Rulers, line: str) -> None:
        self.first, self.end = rulers.span(line)
        self.offset, self.value, self.error, self.below, self.above, self.gap, self.drift = rulers.rows.T

    def at(self, rulers: Longs, offsets: Longs) -> Values:
        """`Polyline.at` for each pair of a ruler (its number) and an offset."""
        if (self.first == self.end).all():
            nothing = np.zeros(len(offsets), np.int64)
            return Values(nothing, nothing, (nothing, nothing), nothing.astype(bool))
        first, last = self.first[rulers], self.end[rulers] - 1
        low = np.minimum(self._newest_up_to(first, last, offsets), len(self.offset) - 1)
        is_known = (first <= last) & (self.offset[low] <= offsets)
        is_vertex = self.offset[low] == offsets
        is_known &= is_vertex | (low < last)
        high = np.where(is_known & ~is_vertex, np.minimum(low + 1, len(self.offset) - 1), low)
        part = (offsets - self.offset[low]) / np.maximum(1, self.offset[high] - self.offset[low])
        value = self.value[low] + np.floor((self.value[high] - self.value[low]) * part).astype(np.int64)
        bracket = np.maximum(value - self.value[low] + self.error[low], self.value[high] + self.error[high] - value)
        bounds = np.maximum(self.below[low], self.above[low]) + self.gap[low] + 1
        error = np.where(is_vertex, self.error[low], np.minimum(bracket, bounds))
        return Values(value, error, (self.drift[low], self.drift[high]), is_known)

    def stray(self, rulers: Longs, offsets: Longs) -> Longs:
        """For each pair: how far the true values may be from the piece that begins at or before the offset."""
        if (self.first == self.end).all():
            return np.zeros(len(offsets), np.int64)
        first, last = self.first[rulers], self.end[rulers] - 1
        low = np.minimum(self._newest_up_to(first, last, offsets), len(self.offset) - 1)
        high = np.minimum(low + 1, np.maximum(last, low))
        bracket = self.value[high] + self.error[high] - self.value[low] + self.error[low]
        bounds = np.maximum(self.below[low], self.above[low]) + self.gap[low] + 1
        return np.where(low < high, np.minimum(bracket, bounds), 0)

    def newest(self) -> Values:
        """The newest vertex of each ruler."""
        last = np.clip(self.end - 1, 0, max(len(self.offset) - 1, 0))
        columns = (self.value, self.error, self.drift)
        value, error, drift = (c[last] if len(c) else np.zeros(len(last), np.int64) for c in columns)
        return Values(value, error, (drift, drift), self.first < self.end)

    def _newest_up_to(self, first: Longs, last: Longs, offsets: Longs) -> Longs:
        """Each ruler's last vertex at or below the offset, or else its first. One binary search for all rulers."""
        low, high = first.copy(), np.maximum(first, last)
        while (low < high).any():
            middle = (low + high + 1) // 2
            is_below = self.offset[np.minimum(middle, len(self.offset) - 1)] <= offsets
            low, high = np.where(is_below & (low < high), middle, low), np.where(is_below, high, middle - 1)
            high = np.maximum(low, high)
        return low


def read_rulers(values: pa.Array, offsets: pa.Array) -> pa.Array:
    """READINGS for each stored ruler (or NULL) and its array of offsets; NULL for an offset that is NULL."""
    lengths = np.diff(ends_of(offsets))
    asked = offsets.flatten()
    is_asked = asked.is_valid().to_numpy(zero_copy_only=False)
    where = np.repeat(np.arange(len(lengths)), lengths)[is_asked]
    at = asked.drop_null().to_numpy()
    known = pa.StructArray.from_arrays(readings_at(Rulers(values), where, at).columns, names=READING.names)
    number = pa.array(np.cumsum(is_asked) - 1, mask=~is_asked)
    return listed(lengths, known.take(number))


def readings_at(rulers: Rulers, where: Longs, at: Longs) -> pa.RecordBatch:
    """The READING for each pair of a ruler (its number) and an offset."""
    bytes_at = Line(rulers, "position_bytes").at(where, at)
    clocks = [Line(rulers, name) for name in ("timestamp_ms", "arrival_ms")]
    before = [line.at(where, at) for line in clocks]
    up_to = [line.at(where, at + 1) for line in clocks]
    has_ruler = rulers.is_known[where]
    is_in_log = has_ruler & (at >= rulers.seen("log_start_offset")[where])
    is_local = is_in_log & (at >= rulers.seen("local_log_start_offset")[where])
    is_arrival = ~before[0].is_known
    before_ms, before_error, has_before = first_known(*before)
    up_to_ms, up_to_error, has_record = first_known(*up_to)
    is_end = has_before & ~has_record
    record_ms, record_error = np.where(is_end, before_ms, up_to_ms), np.where(is_end, before_error, up_to_error)
    has_bytes, has_before = bytes_at.is_known & is_local, has_before & is_in_log
    has_record = is_in_log & (has_record | is_end)
    longs = [(v, has_bytes) for v in (bytes_at.value, bytes_at.error, *bytes_at.drift)]
    longs += [(record_ms, has_record), (record_error, has_record), (before_ms, has_before), (before_error, has_before)]
    flags = [(is_arrival & ~up_to[0].is_known, has_record), (is_local, is_in_log), (~has_ruler, has_ruler)]
    columns = [pa.array(values, mask=~known) for values, known in (*longs, *flags)]
    return pa.RecordBatch.from_arrays(columns, names=READING.names)


def first_known(first: Values, second: Values) -> tuple[Longs, Longs, Flags]:
    """The values with their errors, and whether they are known: from `first`, or else from `second`."""
    pairs = ((first.value, second.value), (first.error, second.error))
    value, error = (np.where(first.is_known, a, b) for a, b in pairs)
    return value, error, first.is_known | second.is_known


def what_is_known(values: pa.Array) -> pa.Array:
    """KNOWN of each stored ruler."""
    rulers = Rulers(values)
    lengths, offsets, values_by_line = rulers.points()
    points = pa.StructArray.from_arrays(
        [pa.array(offsets), *values_by_line], names=cast(StructType, POINTS.elementType).names
    )
    columns = {
        "topic_id": pa.array(rulers.topic_ids, pa.string()),
        "points": listed(lengths, points),
        "future_timestamps": pa.array(rulers.counter("future_timestamps")),
        "restarts": pa.array(rulers.counter("restarts")),
        "seen_ms": pa.array(rulers.seen("captured_ms")),
    }
    return pa.StructArray.from_arrays([columns[name] for name in KNOWN.names], names=KNOWN.names)
