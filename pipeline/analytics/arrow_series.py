"""Arrow columns of series of rows as numpy arrays: which rows belong together, and integers with NULL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
NONE = np.iinfo(np.int64).min
"""Stands for NULL."""
NUMBER_BYTES = 8
_STORED = np.dtype(f"<i{NUMBER_BYTES}")
"""How bytes store a number. Its least byte comes first, because numbers differ most there: zstd finds more that is
equal."""


def compared_snapshots(before: Mapping[int, int]) -> pa.Table:
    """Each snapshot (snapshot_id) with the one that it is compared with (then_id)."""
    ids = {"snapshot_id": [*before], "then_id": [*before.values()]}
    return pa.Table.from_pydict(ids, pa.schema(dict.fromkeys(ids, pa.int64())))


def series_numbers(rows: pa.Table, key: Sequence[str]) -> Ints:
    """A number for the series of each row, by the columns of its key; rows of the same series have equal numbers."""
    found = np.zeros(len(rows), np.int64)
    for name in key:
        codes = rows[name].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        # Renumbered after each column, so that the product stays small.
        found = np.unique(found * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1]
    return found


def series_numbers_of_each(tables: Sequence[pa.Table], key: Sequence[str]) -> list[Ints]:
    """The numbers of `series_numbers` for each of several tables; rows of the same series in two tables have the same.

    The columns of the key have the same types in all tables.
    """
    found = series_numbers(pa.concat_tables([rows.select(key) for rows in tables]), key)
    return np.split(found, np.cumsum([len(rows) for rows in tables])[:-1])


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


def instants_ms(rows: pa.Table, name: str) -> Ints:
    """A column of timestamps as epoch ms; NONE where it is NULL."""
    us = rows[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return np.where(us.is_null().to_numpy(), NONE, us.fill_null(0).to_numpy() // 1_000)


def timestamps(values_ms: Ints) -> pa.Array:
    """The Arrow array of timestamps from epoch ms; NULL where they are NONE."""
    is_null = values_ms == NONE
    us = np.where(is_null, 0, values_ms) * 1_000
    return pa.array(us, pa.int64(), mask=is_null).cast(pa.timestamp("us", "UTC"))


def rows_of_bytes(column: pa.ChunkedArray, width: int) -> Ints:
    """A row of `width` numbers for each value that `bytes_of_rows` has made; NONE for numbers that are not stored."""
    stored = column.cast(pa.binary()).fill_null(b"").combine_chunks()
    _, ends, data = stored.buffers()
    at = np.frombuffer(ends, np.int32)[stored.offset : stored.offset + len(stored) + 1]
    values = np.frombuffer(data or b"", np.uint8)[at[0] : at[-1]].view(_STORED)
    lengths = np.diff(at) // NUMBER_BYTES
    found = np.full((len(stored), width), NONE)
    if (length := _only(lengths)) is not None:
        found[:, :length] = values.reshape(-1, length)
    else:
        found[np.arange(width) < lengths[:, None]] = values
    return found


def bytes_of_rows(rows: Ints) -> pa.Array:
    """The numbers of each row as bytes, without those at its end that are NONE.

    Spark sends arrays to Python number by number, but bytes as a whole.
    """
    is_known = rows[:, ::-1] != NONE
    lengths = np.where(is_known.any(axis=1), rows.shape[1] - is_known.argmax(axis=1), 0)
    length = _only(lengths)
    kept = rows[np.arange(rows.shape[1]) < lengths[:, None]] if length is None else rows[:, :length].ravel()
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32) * NUMBER_BYTES
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, *map(pa.py_buffer, (ends, kept.astype(_STORED)))])


def _only(lengths: Ints) -> int | None:
    """The length of all rows, if they are equally long, as most are: copying them is then much quicker."""
    length = int(lengths.max(initial=0))
    return length if length and (lengths == length).all() else None
