"""Rulers in Arrow: their type in Spark, and from there to Python and back.

A ruler's three lines are stored as one array of points by rising offset. A point is a vertex of a line where it has
that line's value, and none where that is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, BooleanType, LongType, StructField, StructType

from pipeline.analytics.polyline import Polyline, Vertex
from pipeline.analytics.ruler import Observation, Ruler, Sample, begun, continued, only_extends
from pipeline.tables import LOG_INDEX

Longs = npt.NDArray[np.int64]
Row = TypeVar("Row")

LINES = {"position_bytes": "bytes", "timestamp_ms": "ms", "arrival_ms": "ms"}
"""The lines of a ruler, and the unit of their values."""
BOUNDS = ("error", "below", "above", "gap", "drift")
COUNTERS = ("settles_ms", "looks", "future_timestamps", "restarts")


def bound_name(line: str, bound: str) -> str:
    """The name of a vertex's bound in a point: `position_error_bytes`."""
    return f"{line.rsplit('_', 1)[0]}_{bound}_{LINES[line]}"


def _longs(*names: str) -> list[StructField]:
    return [StructField(name, LongType()) for name in names]


RULER = StructType([StructField(name, LOG_INDEX.schema[name].dataType) for name in ("seen", *COUNTERS, "points")])
"""A ruler: the last look that it stands on, and its points."""
POINT = cast(StructType, cast(ArrayType, RULER["points"].dataType).elementType)
SEEN = cast(StructType, RULER["seen"].dataType)
LOOK = StructType([*_longs("snapshot_id"), StructField("is_asked", BooleanType()), *SEEN.fields])
SAMPLE = StructType(_longs("snapshot_id", *Sample._fields))
VERTEX = {line: ("offset", line, *(bound_name(line, b) for b in BOUNDS)) for line in LINES}
RULERS = ArrayType(StructType([*_longs("snapshot_id"), StructField("ruler", RULER)]))


class _Stored:
    """Rulers as they are stored, decoded one by one, whole or only where they end."""

    def __init__(self, rulers: pa.StructArray) -> None:
        points = rulers.field("points")
        self.points = points.flatten()
        self.ends = ends_of(points)
        self._columns = {name: self.points.field(name).to_pylist() for name in POINT.names}
        self._tails = self._last_vertices()
        self._is_valid = rulers.is_valid().to_pylist()
        self._seen = _rows(rulers.field("seen"), Observation._make)
        self._counters = list(zip(*(rulers.field(name).to_pylist() for name in COUNTERS), strict=True))

    def _last_vertices(self) -> list[int]:
        """By ruler: the first of the points that hold the newest vertex of each line."""
        begins, number = self.ends[:-1], np.arange(len(self.points))
        tails = self.ends[1:].copy()
        for line in LINES:
            is_vertex = self.points.field(line).is_valid().to_numpy(zero_copy_only=False)
            newest = np.maximum.accumulate(np.where(is_vertex, number, -1)) if len(number) else number
            last = np.append(newest, -1)[self.ends[1:] - 1]
            tails = np.where(last >= begins, np.minimum(tails, last), tails)
        return [int(tail) for tail in tails]

    def __len__(self) -> int:
        return len(self._is_valid)

    def whole(self, i: int) -> Ruler | None:
        """A ruler, NULL as None."""
        return self._decoded(i, int(self.ends[i])) if self._is_valid[i] else None

    def tail(self, i: int) -> tuple[Ruler, tuple[int, int]] | None:
        """A ruler with the newest vertex of each line at least, and the points (from, to) that it leaves out."""
        if not self._is_valid[i]:
            return None
        return self._decoded(i, self._tails[i]), (int(self.ends[i]), self._tails[i])

    def _decoded(self, i: int, begin: int) -> Ruler:
        end = int(self.ends[i + 1])
        position_bytes, timestamp_ms, arrival_ms = (self._line(line, begin, end) for line in LINES)
        return Ruler(self._seen[i], position_bytes, timestamp_ms, arrival_ms, *self._counters[i])

    def _line(self, line: str, begin: int, end: int) -> Polyline:
        columns = [self._columns[name][begin:end] for name in VERTEX[line]]
        return Polyline(tuple(Vertex._make(v) for v in zip(*columns, strict=True) if v[1] is not None))


class _Made(NamedTuple):
    """A ruler as of a snapshot, and the stored points (from, to) that come before its own."""

    snapshot_id: int
    ruler: Ruler
    before: tuple[int, int] = (0, 0)


def rulers_after(states: pa.Array, looks: pa.Array, samples: pa.Array) -> pa.Array:
    """For each partition: the ruler as of each look that `is_asked`, and of the last one.

    `states` are RULERs or NULL, `looks` arrays of LOOK and `samples` arrays of SAMPLE by rising snapshot_id, or NULL.
    """
    stored = _Stored(states)
    looked, learnt = _grouped(looks, _Look), _grouped(samples, _Sampled)
    series = [_replayed(stored, i, looked[i], learnt[i]) for i in range(len(stored))]
    made = [one for each in series for one in each]
    values = pa.StructArray.from_arrays(
        [pa.array([one.snapshot_id for one in made], pa.int64()), _encoded(made, stored.points)],
        names=["snapshot_id", "ruler"],
    )
    return listed([len(each) for each in series], values)


def _replayed(stored: _Stored, i: int, looks: Sequence[_Look], samples: Sequence[_Sampled]) -> list[_Made]:
    """Most rulers are only made longer: then where they end is enough, and the rest is not even decoded."""
    tail = None if samples else stored.tail(i)
    if tail is not None:
        ruler, before = tail
        made: list[_Made] = []
        for look, is_last in _with_last(looks):
            if not only_extends(ruler, look.seen):
                break
            ruler = continued(ruler, look.seen)
            if look.is_asked or is_last:
                made.append(_Made(look.snapshot_id, ruler, before))
        else:
            return made
    return _replayed_whole(stored.whole(i), looks, list(samples))


def _replayed_whole(ruler: Ruler | None, looks: Sequence[_Look], samples: list[_Sampled]) -> list[_Made]:
    made = []
    for look, is_last in _with_last(looks):
        ruler = continued(ruler, look.seen) if ruler else begun(look.seen)
        while samples and samples[0].snapshot_id <= look.snapshot_id:
            ruler = ruler.learnt(samples.pop(0).sample)
        if look.is_asked or is_last:
            made.append(_Made(look.snapshot_id, ruler))
    return made


def _with_last(looks: Sequence[_Look]) -> Iterator[tuple[_Look, bool]]:
    return ((look, number == len(looks)) for number, look in enumerate(looks, 1))


class _Look(tuple[Any, ...]):
    """A LOOK."""

    snapshot_id = property(lambda self: self[0])
    is_asked = property(lambda self: self[1])
    seen = property(lambda self: Observation._make(self[2:]))


class _Sampled(tuple[Any, ...]):
    """A SAMPLE."""

    snapshot_id = property(lambda self: self[0])
    sample = property(lambda self: Sample._make(self[1:]))


def _grouped(lists: pa.ListArray, make: Callable[[tuple[Any, ...]], Row]) -> list[list[Row]]:
    rows, ends = _rows(lists.flatten(), make), ends_of(lists).tolist()
    return [rows[begin:end] for begin, end in pairwise(ends)]


def _rows(structs: pa.StructArray, make: Callable[[tuple[Any, ...]], Row]) -> list[Row]:
    columns = [structs.field(number).to_pylist() for number in range(structs.type.num_fields)]
    return [make(row) for row in zip(*columns, strict=True)]


def decoded(rulers: pa.Array) -> Iterator[Ruler | None]:
    """RULER values as rulers; NULL as None."""
    stored = _Stored(rulers)
    return (stored.whole(i) for i in range(len(stored)))


def encoded(rulers: Sequence[Ruler]) -> pa.Array:
    """Rulers as RULER values."""
    return _encoded([_Made(0, ruler) for ruler in rulers], pa.array([], to_arrow_type(POINT)))


def _encoded(made: Sequence[_Made], stored: pa.StructArray) -> pa.Array:
    """Rulers as RULER values, their points after those that are stored."""
    own, lengths = _points([one.ruler for one in made])
    befores = np.array([one.before for one in made], np.int64).reshape(-1, 2)
    kept = befores[:, 1] - befores[:, 0]
    total = kept + lengths
    # What is taken for each ruler: a run of the stored points, then a run of its own.
    begins = np.append(0, np.cumsum(total))[:-1]
    firsts = np.stack([befores[:, 0], len(stored) + np.append(0, np.cumsum(lengths))[:-1]], axis=1).ravel()
    runs = np.stack([kept, lengths], axis=1).ravel()
    starts = np.stack([begins, begins + kept], axis=1).ravel()
    taken = np.repeat(firsts - starts, runs) + np.arange(total.sum())
    points = pa.concat_arrays([stored, own]).take(pa.array(taken))
    seen = [
        pa.array(column, f.type)
        for column, f in zip(_columns([m.ruler.last for m in made], len(SEEN)), to_arrow_type(SEEN), strict=True)
    ]
    counters = [pa.array([getattr(one.ruler, name) for one in made], pa.int64()) for name in COUNTERS]
    return pa.StructArray.from_arrays(
        [pa.StructArray.from_arrays(seen, names=SEEN.names), *counters, listed(total, points)], names=RULER.names
    )


def _points(rulers: Sequence[Ruler]) -> tuple[pa.StructArray, Longs]:
    """The points of rulers one after the other, and how many each has."""
    nothing = (None,) * (1 + len(BOUNDS))
    rows, lengths = [], []
    for ruler in rulers:
        lines = [{v.offset: v for v in getattr(ruler, line).vertices} for line in LINES]
        offsets = sorted(set().union(*lines))
        lengths.append(len(offsets))
        for offset in offsets:
            position, timestamp, arrival = (line[offset][1:] if offset in line else nothing for line in lines)
            values = (position[0], timestamp[0], arrival[0])
            rows.append((offset, *values, *position[1:], *timestamp[1:], *arrival[1:]))
    columns = [pa.array(column, pa.int64()) for column in _columns(rows, len(POINT))]
    return pa.StructArray.from_arrays(columns, names=POINT.names), np.array(lengths, np.int64)


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def ends_of(lists: pa.ListArray) -> Longs:
    """Where each list begins in the flattened values, and where the last one ends; NULL is an empty list."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.append(0, np.cumsum(lengths)).astype(np.int64)


def listed(lengths: Sequence[int] | Longs, values: pa.Array) -> pa.ListArray:
    """Values as lists of such lengths."""
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32)), values)
