"""Counts values into the buckets of base-2 exponential histograms, with numpy and Arrow.

The buckets are OpenTelemetry's at a fixed scale: bucket i holds the values in (2^(i/8), 2^((i+1)/8)].
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SCALE = 3
"""2^SCALE buckets for each power of two."""
MAX_BUCKET = 63 * 2**SCALE - 1
"""The bucket of the greatest bigint, 2^63 - 1."""

Longs = npt.NDArray[np.int64]

# Three square roots are an eighth root. Rounding down after each does not change the result: exact for every integer.
UPPER_BOUNDS: Longs = np.array([isqrt(isqrt(isqrt(2**k))) for k in range(MAX_BUCKET + 1)], dtype=np.int64)
"""The greatest integer of each bucket from -1 on, except the last one, whose upper bound is not a bigint."""

_LONG_MAX = np.iinfo(np.int64).max
_LOW_HALF = 0xFFFF_FFFF
_BELOW_AND_UP_TO: Longs = np.concatenate(([0], UPPER_BOUNDS, [_LONG_MAX]))
"""Bucket i - 1 holds the integers above the number at i, up to the number at i + 1."""


class Groups(NamedTuple):
    """The distinct keys of rows, one a row of `keys`, and for each of the rows the number of its key (`codes`)."""

    keys: pa.Table
    codes: Longs

    @property
    def size(self) -> int:
        """The number of keys."""
        return len(self.keys)


class Values(NamedTuple):
    """The rows of a measure by kind of value; for the positive ones also the values and their buckets."""

    null: Longs
    negative: Longs
    zero: Longs
    positive: Longs
    values: Longs
    buckets: Longs


def bucket_of(values: Longs) -> Longs:
    """The bucket of each positive value. It is exact for every bigint."""
    # A logarithm takes a fifth of the time of a binary search, but near a bound float64 may be off by one bucket.
    near: Longs = np.ceil(np.log2(values) * 2**SCALE).astype(np.int64)
    near -= values <= _BELOW_AND_UP_TO[near]
    near += values > _BELOW_AND_UP_TO[near + 1]
    near -= 1
    return near


def group_rows(rows: pa.Table, by: Sequence[str], aggregations: Sequence[tuple[object, ...]] = ()) -> Groups:
    """Groups the rows by some columns, in which NULL equals NULL.

    Arrow's `aggregations` of other columns are added to the keys, with Arrow's names, such as `min_min`.
    """
    numbered = rows.append_column("row", pa.array(np.arange(len(rows))))
    # With several threads, the groups would be in another order each time.
    grouped = numbered.group_by([*by], use_threads=False).aggregate([("row", "list"), *aggregations])
    members = grouped["row_list"].combine_chunks()
    codes = np.empty(len(rows), dtype=np.int64)
    codes[members.flatten().to_numpy()] = np.repeat(np.arange(len(grouped)), members.value_lengths().to_numpy())
    return Groups(grouped.drop_columns(["row_list"]), codes)


def values_by_kind(column: pa.Array) -> Values:
    """What all histograms of a measure need to know about its values, given as bigints."""
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


def tally_values(values: Values, groups: Groups) -> dict[str, pa.Array]:
    """A histogram of the values of each group, as columns of `lag_histograms`, in the order of the groups' keys."""
    nulls, negatives, zeros, positives = (
        np.bincount(groups.codes[rows], minlength=groups.size)
        for rows in (values.null, values.negative, values.zero, values.positive)
    )
    codes = groups.codes[values.positive]
    least, greatest = _extremes(codes, groups.size, values.values, values.values)
    first = bucket_of(least)
    last = np.where(positives > 0, bucket_of(np.maximum(greatest, 1)), first - 1)
    ends = _list_ends(first, last)
    at = (ends[:-1] - first)[codes] + values.buckets
    count = zeros + positives
    return {
        "zero_count": pa.array(zeros),
        "negative_count": pa.array(negatives),
        "null_count": pa.array(nulls),
        "bucket_offset": pa.array(first, mask=positives == 0),
        "bucket_counts": _lists(np.bincount(at, minlength=ends[-1]), ends),
        "count": pa.array(count),
        "sum": _sums(codes, groups.size, values.values),
        "min": pa.array(np.where(zeros > 0, 0, least), mask=count == 0),
        "max": pa.array(np.where(positives > 0, greatest, 0), mask=count == 0),
    }


def merge_counts(offsets: pa.ChunkedArray, lists: pa.ChunkedArray, groups: Groups) -> pa.Array:
    """The sums of the `bucket_counts` of each group, bucket by bucket, from its smallest `bucket_offset` on.

    `offsets` are NULL where the list is empty.
    """
    widths = pc.list_value_length(lists).fill_null(0).to_numpy()
    offset = offsets.fill_null(0).to_numpy()
    counted = np.flatnonzero(widths)
    first, last = _extremes(groups.codes[counted], groups.size, offset[counted], (offset + widths - 1)[counted])
    ends = _list_ends(first, last)
    begins = (ends[:-1] - first)[groups.codes] + offset
    sums: Longs = np.zeros(ends[-1], dtype=np.int64)
    done = 0
    for chunk in lists.chunks:  # all lists at once would take several times their memory
        some = slice(done, done + len(chunk))
        done += len(chunk)
        # The distance of a list's counts in the chunk from their places in `sums`.
        moves = begins[some] - (np.cumsum(widths[some]) - widths[some])
        at = np.arange(widths[some].sum()) + np.repeat(moves, widths[some])
        np.add.at(sums, at, chunk.flatten().to_numpy())
    return _lists(sums, ends)


def _extremes(codes: Longs, size: int, low: Longs, high: Longs) -> tuple[Longs, Longs]:
    """The minimum of `low` and the maximum of `high` for each code; _LONG_MAX and -2 for a code without values."""
    least, greatest = np.full(size, _LONG_MAX), np.full(size, -2)
    np.minimum.at(least, codes, low)
    np.maximum.at(greatest, codes, high)
    return least, greatest


def _list_ends(first: Longs, last: Longs) -> Longs:
    """Where each list begins and ends, if lists with a count for each bucket from `first` to `last` are concatenated.

    A list ends where the next one begins. It is empty if `last` is below `first`.
    """
    return np.concatenate(([0], np.cumsum(np.maximum(last - first + 1, 0))))


def _lists(flat: Longs, ends: Longs) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(flat))


def _sums(codes: Longs, size: int, values: Longs) -> pa.Array:
    """Exact sums by code as decimal(38, 0). Halves of 32 bits are summed and then combined to 128-bit integers."""
    high, low = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    np.add.at(high, codes, values >> 32)
    np.add.at(low, codes, values & _LOW_HALF)
    high += low >> 32
    words = np.stack([((high & _LOW_HALF) << 32) | (low & _LOW_HALF), high >> 32], axis=1)
    return pa.Array.from_buffers(pa.decimal128(38, 0), size, [None, pa.py_buffer(words)])
