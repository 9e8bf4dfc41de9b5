"""Counts values into the buckets of base-2 exponential histograms, with numpy and Arrow, on the workers.

The buckets are OpenTelemetry's at a fixed scale: bucket i holds the values in (2^(i/8), 2^((i+1)/8)].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SCALE = 3
"""2^SCALE buckets for each power of two."""
MAX_BUCKET = 63 * 2**SCALE - 1
"""The bucket of the greatest bigint, 2^63 - 1."""

Longs = npt.NDArray[np.int64]

# Three square roots are an eighth root. Rounding down after each does not change the result: exact for every integer.
UPPER_BOUNDS: Longs = np.array([isqrt(isqrt(isqrt(2**k))) for k in range(MAX_BUCKET + 1)], dtype=np.int64)
"""The greatest integer of each bucket from -1 on, except the last one, whose upper bound is not a bigint."""

CHUNK_ROWS = 2**19
"""Rows that a worker counts at a time: about 100 MB. It must be at most 2^21, so that `_sums` is exact in float64."""

_LONG_MAX = np.iinfo(np.int64).max
_LOW_HALF = 0xFFFF_FFFF


class Scope(NamedTuple):
    """The histograms of a scope: their keys as Arrow columns, and the number of the histogram of each row (`codes`)."""

    keys: tuple[pa.Array, ...]
    codes: Longs

    @property
    def size(self) -> int:
        """How many histograms there are."""
        return len(self.keys[0])


class Values(NamedTuple):
    """The rows of a measure by kind of value; for the positive ones also the values and their buckets."""

    null: Longs
    negative: Longs
    zero: Longs
    positive: Longs
    values: Longs
    buckets: Longs


def bucket_of(values: Longs) -> Longs:
    """The bucket of each positive value. It is exact also near the bounds, where a logarithm in float64 is not."""
    return np.searchsorted(UPPER_BOUNDS, values) - 1


def tallies(
    batches: Iterator[pa.RecordBatch], scopes: dict[str, str], measures: Sequence[str], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Histograms of rows of `lag`, one for each chunk of rows, snapshot, scope, value of the scope and measure.

    `scopes` maps a scope to the column that has its values; NULL counts as a value. `names` are the names of the
    result's columns, in order: cluster, snapshot_id, scope, scope_value, measure, and those of `_tally`.
    """
    for rows in _chunks(batches):
        keyed = [_scope(rows, scope, column) for scope, column in scopes.items()]
        for measure in measures:
            values = _by_kind(rows[measure].combine_chunks())
            for scope in keyed:
                columns = [*scope.keys, pa.repeat(measure, scope.size), *_tally(values, scope)]
                yield pa.RecordBatch.from_arrays(columns, names=names)


def merged_counts(parts: pa.Array) -> pa.Array:
    """One dense array of counts for each list of (bucket_offset, bucket_counts); it begins at the smallest offset."""
    histograms = np.repeat(np.arange(len(parts)), np.diff(parts.offsets.to_numpy()))
    flat = parts.flatten()
    offsets, counts = flat.field(0).to_numpy(), flat.field(1)
    widths = np.diff(counts.offsets.to_numpy())
    starts = np.cumsum(widths) - widths
    first, last = _extremes(histograms, len(parts), offsets, offsets + widths - 1)
    within = np.arange(widths.sum()) - np.repeat(starts, widths)
    at, ends = _flat_indexes(np.repeat(histograms, widths), np.repeat(offsets, widths) + within, first, last)
    sums: Longs = np.zeros(ends[-1], dtype=np.int64)
    np.add.at(sums, at, counts.flatten().to_numpy())
    return _lists(sums, ends)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    kept: list[pa.RecordBatch] = []
    for batch in batches:
        kept.append(batch)
        if sum(b.num_rows for b in kept) >= CHUNK_ROWS:
            yield pa.Table.from_batches(kept)
            kept = []
    if kept:
        yield pa.Table.from_batches(kept)


def _scope(rows: pa.Table, scope: str, column: str) -> Scope:
    clusters, snapshots, values = (
        rows[c].combine_chunks().dictionary_encode(null_encoding="encode") for c in ("cluster", "snapshot_id", column)
    )
    shape = (len(clusters.dictionary), len(snapshots.dictionary), len(values.dictionary))
    flat = np.ravel_multi_index([e.indices.to_numpy() for e in (clusters, snapshots, values)], shape)
    distinct, codes = np.unique(flat, return_inverse=True)
    cluster, snapshot, value = np.unravel_index(distinct, shape)
    keys = (
        clusters.dictionary.take(pa.array(cluster)),
        snapshots.dictionary.take(pa.array(snapshot)),
        pa.repeat(scope, len(distinct)),
        values.dictionary.cast(pa.string()).take(pa.array(value)),
    )
    return Scope(keys, codes)


def _by_kind(column: pa.Array) -> Values:
    values = column.fill_null(0).to_numpy()
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    positive = np.flatnonzero(values > 0)
    return Values(
        np.flatnonzero(is_null),
        np.flatnonzero(values < 0),
        np.flatnonzero((values == 0) & ~is_null),
        positive,
        values[positive],
        bucket_of(values[positive]),
    )


def _tally(values: Values, scope: Scope) -> list[pa.Array]:
    """zero_count, negative_count, null_count, bucket_offset, bucket_counts, count, sum, min, max."""
    nulls, negatives, zeros, positives = (
        np.bincount(scope.codes[rows], minlength=scope.size)
        for rows in (values.null, values.negative, values.zero, values.positive)
    )
    codes = scope.codes[values.positive]
    least, greatest = _extremes(codes, scope.size, values.values, values.values)
    first = bucket_of(least)
    at, ends = _flat_indexes(codes, values.buckets, first, np.where(positives > 0, bucket_of(greatest), first - 1))
    count = zeros + positives
    return [
        pa.array(zeros),
        pa.array(negatives),
        pa.array(nulls),
        pa.array(first, mask=positives == 0),
        _lists(np.bincount(at, minlength=ends[-1]), ends),
        pa.array(count),
        _sums(codes, scope.size, values.values),
        pa.array(np.where(zeros > 0, 0, least), mask=count == 0),
        pa.array(np.where(positives > 0, greatest, 0), mask=count == 0),
    ]


def _extremes(codes: Longs, size: int, low: Longs, high: Longs) -> tuple[Longs, Longs]:
    """The minimum of `low` and the maximum of `high` for each code; _LONG_MAX and -2 for a code without values."""
    least, greatest = np.full(size, _LONG_MAX), np.full(size, -2)
    np.minimum.at(least, codes, low)
    np.maximum.at(greatest, codes, high)
    return least, greatest


def _flat_indexes(codes: Longs, buckets: Longs, first: Longs, last: Longs) -> tuple[Longs, Longs]:
    """The index of each bucket in the concatenated dense arrays of all codes, and where each array begins and ends."""
    ends = np.concatenate(([0], np.cumsum(np.maximum(last - first + 1, 0))))
    return (ends[:-1] - first)[codes] + buckets, ends


def _lists(flat: Longs, ends: Longs) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(flat))


def _sums(codes: Longs, size: int, values: Longs) -> pa.Array:
    """Exact sums by code as decimal(38, 0). Halves of 32 bits are summed and then combined to 128-bit integers."""
    high, low = (
        np.bincount(codes, weights=half, minlength=size).astype(np.int64) for half in (values >> 32, values & _LOW_HALF)
    )
    high += low >> 32
    words = np.stack([((high & _LOW_HALF) << 32) | (low & _LOW_HALF), high >> 32], axis=1)
    return pa.Array.from_buffers(pa.decimal128(38, 0), size, [None, pa.py_buffer(words)])
