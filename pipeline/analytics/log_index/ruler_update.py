"""Extends the stored rulers of many partitions by later snapshots, in Arrow."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pipeline.analytics.log_index.ruler import Observation, Ruler, Sample, begun, continued, only_extends
from pipeline.analytics.log_index.ruler_storage import Longs, Rulers, to_bytes

Row = TypeVar("Row")

RULERS = ArrayType(StructType([StructField("snapshot_id", LongType()), StructField("ruler", BinaryType())]))
_OTHERS = {"topic_id": StringType(), "leader": IntegerType(), "is_compacted": BooleanType()}
_SEEN = [StructField(name, _OTHERS.get(name, LongType())) for name in Observation._fields]
OBSERVATION = StructType([*_SEEN, StructField("snapshot_id", LongType()), StructField("is_asked", BooleanType())])
"""An Observation. Its first field is when it was made, because observations are sorted by it: a late snapshot may have
been read after snapshots that were scheduled later."""
SAMPLE = StructType([StructField(name, LongType()) for name in ("snapshot_id", *Sample._fields)])


class _Made(NamedTuple):
    """A stored ruler as of a snapshot."""

    snapshot_id: int
    ruler: bytes


def rulers_after(states: pa.Array, observations: pa.Array, samples: pa.Array) -> pa.Array:
    """For each partition, the ruler as of each observation that `is_asked`, and as of the last one.

    `states` are stored rulers or NULL. `observations` are arrays of OBSERVATION in the order of captured_ms. `samples`
    are arrays of SAMPLE in the order of snapshot_id, or NULL. An observation that is older than the ruler changes
    nothing.
    """
    stored = Rulers(states)
    observed, learnt = _grouped(observations, _Observed), _grouped(samples, _Sampled)
    series = [_replayed(stored, i, observed[i], learnt[i]) for i in range(len(stored))]
    made = [one for each in series for one in each]
    ids = pa.array([one.snapshot_id for one in made], pa.int64())
    rulers = pa.array([one.ruler for one in made], pa.binary())
    values = pa.StructArray.from_arrays([ids, rulers], names=["snapshot_id", "ruler"])
    return listed([len(each) for each in series], values)


def _replayed(stored: Rulers, i: int, observations: Sequence[_Observed], samples: Sequence[_Sampled]) -> list[_Made]:
    """`rulers_after` for ruler number `i`. If the ruler only becomes longer, as most do, only its tail is decoded."""
    ruler = None if samples else stored.tail(i)
    made: list[_Made] = []
    for observation, is_last in _with_last(observations):
        if ruler is None or not only_extends(ruler, observation.seen):
            return _replayed_whole(stored.whole(i), observations, samples)
        ruler = continued(ruler, observation.seen)
        if observation.is_asked or is_last:
            made.append(_Made(observation.snapshot_id, stored.lengthened(i, ruler)))
    return made


def _replayed_whole(ruler: Ruler | None, observations: Sequence[_Observed], samples: Sequence[_Sampled]) -> list[_Made]:
    made, learnt = [], _by_observation(samples, observations)
    for observation, is_last in _with_last(observations):
        ruler = continued(ruler, observation.seen) if ruler else begun(observation.seen)
        ruler = reduce(Ruler.learnt, learnt[observation.snapshot_id], ruler)
        if observation.is_asked or is_last:
            made.append(_Made(observation.snapshot_id, to_bytes(ruler)))
    return made


def _by_observation(samples: Sequence[_Sampled], observations: Sequence[_Observed]) -> Mapping[int, list[Sample]]:
    """The look-ups by the snapshot of an observation. If their own snapshot has none, they belong to the next one."""
    ids = sorted(observation.snapshot_id for observation in observations)
    learnt: dict[int, list[Sample]] = defaultdict(list)
    for sampled in samples:
        nth = bisect_left(ids, sampled.snapshot_id)
        if nth < len(ids):
            learnt[ids[nth]].append(sampled.sample)
    return learnt


def _with_last(observations: Sequence[_Observed]) -> Iterator[tuple[_Observed, bool]]:
    return ((observation, number == len(observations)) for number, observation in enumerate(observations, 1))


class _Observed(tuple[Any, ...]):
    """An OBSERVATION."""

    seen = property(lambda self: Observation._make(self[:-2]))
    snapshot_id = property(lambda self: self[-2])
    is_asked = property(lambda self: self[-1])


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


def ends_of(lists: pa.ListArray) -> Longs:
    """Where each list begins in the flattened values, and where the last one ends. NULL counts as an empty list."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.append(0, np.cumsum(lengths)).astype(np.int64)


def listed(lengths: Sequence[int] | Longs, values: pa.Array) -> pa.ListArray:
    """The values, divided into lists of these lengths."""
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32)), values)
