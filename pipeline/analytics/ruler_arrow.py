"""Rulers in Arrow: their type in Spark, and from there to Python and back.

A ruler's three lines are stored as one array of points by rising offset. A point is a vertex of a line where it has
that line's value, and none where that is NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, BooleanType, LongType, StructField, StructType

from pipeline.analytics.polyline import Polyline, Vertex
from pipeline.analytics.ruler import Observation, Ruler, Sample, begun, continued
from pipeline.tables import LOG_INDEX

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
POINT: StructType = RULER["points"].dataType.elementType  # type: ignore[attr-defined]
SEEN = cast(StructType, RULER["seen"].dataType)
LOOK = StructType([*_longs("snapshot_id"), StructField("is_asked", BooleanType()), *SEEN.fields])
SAMPLE = StructType(_longs("snapshot_id", *Sample._fields))
RULERS = ArrayType(StructType([*_longs("snapshot_id"), StructField("ruler", RULER)]))


def rulers_after(states: pa.Array, looks: pa.Array, samples: pa.Array) -> pa.Array:
    """For each partition: the ruler as of each look that `is_asked`, and of the last one.

    `states` are RULERs or NULL, `looks` arrays of LOOK and `samples` arrays of SAMPLE by rising snapshot_id, or NULL.
    """
    results = [
        _replayed(*partition) for partition in zip(decoded(states), looks.to_pylist(), samples.to_pylist(), strict=True)
    ]
    return _encoded_series(results)


def _replayed(
    ruler: Ruler | None, looks: Sequence[dict[str, Any]], samples: Sequence[dict[str, Any]] | None
) -> list[tuple[int, Ruler]]:
    rest = list(samples or ())
    series: list[tuple[int, Ruler]] = []
    for number, look in enumerate(looks, 1):
        snapshot_id, is_asked = look.pop("snapshot_id"), look.pop("is_asked")
        seen = Observation(**look)
        ruler = continued(ruler, seen) if ruler else begun(seen)
        while rest and rest[0]["snapshot_id"] <= snapshot_id:
            sample = rest.pop(0)
            del sample["snapshot_id"]
            ruler = ruler.learnt(Sample(**sample))
        if is_asked or number == len(looks):
            series.append((snapshot_id, ruler))
    return series


def decoded(rulers: pa.Array) -> Iterator[Ruler | None]:
    """RULER values as rulers; NULL as None."""
    points = rulers.field("points")
    columns = {f.name: points.flatten().field(f.name).to_pylist() for f in points.type.value_type}
    ends = np.append(0, np.cumsum(points.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))).tolist()
    seen = rulers.field("seen").to_pylist()
    counters = zip(*(rulers.field(name).to_pylist() for name in COUNTERS), strict=True)
    lines = zip(*(_lines(line, columns, ends) for line in LINES), strict=True)
    for is_valid, look, counts, three in zip(rulers.is_valid().to_pylist(), seen, counters, lines, strict=True):
        own = dict(zip(LINES, three, strict=True)) | dict(zip(COUNTERS, counts, strict=True))
        yield Ruler(Observation(**look), **own) if is_valid else None


def _lines(line: str, columns: dict[str, list[Any]], ends: Sequence[int]) -> Iterator[Polyline]:
    names = ("offset", line, *(bound_name(line, b) for b in BOUNDS))
    vertices = list(map(Vertex._make, zip(*(columns[name] for name in names), strict=True)))
    for begin, end in pairwise(ends):
        yield Polyline(tuple(v for v in vertices[begin:end] if v.value is not None))


def _encoded_series(series: Sequence[Sequence[tuple[int, Ruler]]]) -> pa.Array:
    """Arrays of (snapshot_id, ruler) as RULERS."""
    flat = [item for one in series for item in one]
    values = pa.StructArray.from_arrays(
        [pa.array([i for i, _ in flat], pa.int64()), encoded([ruler for _, ruler in flat])],
        names=["snapshot_id", "ruler"],
    )
    offsets = np.append(0, np.cumsum([len(one) for one in series])).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def encoded(rulers: Sequence[Ruler]) -> pa.Array:
    """Rulers as RULER values."""
    seen = pa.array([r.last._asdict() for r in rulers], to_arrow_type(SEEN))
    counters = [pa.array([getattr(r, name) for r in rulers], pa.int64()) for name in COUNTERS]
    return pa.StructArray.from_arrays([seen, *counters, _points(rulers)], names=RULER.names)


def _points(rulers: Sequence[Ruler]) -> pa.Array:
    width = 1 + len(BOUNDS)
    nothing = (None,) * width
    rows, lengths = [], []
    for ruler in rulers:
        lines = [{v.offset: v for v in getattr(ruler, line).vertices} for line in LINES]
        offsets = sorted(set().union(*lines))
        lengths.append(len(offsets))
        for offset in offsets:
            parts = [line[offset][1:] if offset in line else nothing for line in lines]
            rows.append((offset, *(p[0] for p in parts), *(x for p in parts for x in p[1:])))
    columns = zip(*rows, strict=True) if rows else ([] for _ in POINT)
    points = pa.StructArray.from_arrays([pa.array(c, pa.int64()) for c in columns], names=POINT.names)
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32)), points)
