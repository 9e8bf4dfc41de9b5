"""Arrow columns of series of rows as numpy arrays: which rows belong together, and integers with NULL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
NONE = np.iinfo(np.int64).min
"""Stands for NULL."""


def series_numbers(rows: pa.Table, key: Sequence[str]) -> Ints:
    """A number for the series of each row, by the columns of its key; rows of the same series have equal numbers."""
    found = np.zeros(len(rows), np.int64)
    for name in key:
        codes = rows[name].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        # Renumbered after each column, so that the product stays small.
        found = np.unique(found * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1]
    return found


def numbers(rows: pa.Table, name: str) -> Ints:
    """An integer column; NONE where it is NULL."""
    return np.asarray(rows[name].cast(pa.int64()).fill_null(NONE).to_numpy())


def or_null(values: Ints) -> pa.Array:
    """The Arrow array of integers; NULL where they are NONE."""
    return pa.array(values, mask=values == NONE)


def looked_up(ids: Ints, values: Mapping[int, int]) -> Ints:
    """The value for each id; NONE if there is none."""
    distinct, positions = np.unique(ids, return_inverse=True)
    return np.array([values.get(int(one), NONE) for one in distinct], np.int64)[positions]


def lists_as_rows(column: pa.ChunkedArray, width: int) -> Ints:
    """A row of `width` numbers for each list; numbers that are missing at its end are NONE."""
    lists = column.combine_chunks()
    lengths, values = np.diff(lists.offsets.to_numpy()), lists.flatten().to_numpy()
    found = np.full((len(lists), width), NONE)
    if (length := _only(lengths)) is not None:
        found[:, :length] = values.reshape(-1, length)
    else:
        found[np.arange(width) < lengths[:, None]] = values
    return found


def rows_as_lists(rows: Ints, lengths: Ints) -> pa.ListArray:
    """A list of the first numbers of each row, as many as `lengths` says."""
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    length = _only(lengths)
    kept = rows[np.arange(rows.shape[1]) < lengths[:, None]] if length is None else rows[:, :length].ravel()
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(kept))


def _only(lengths: Ints) -> int | None:
    """The length of all lists, if they are equally long, as most are: copying them is then much quicker."""
    length = int(lengths.max(initial=0))
    return length if length and (lengths == length).all() else None
