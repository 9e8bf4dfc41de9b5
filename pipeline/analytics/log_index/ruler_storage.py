"""Rulers as bytes, as `log_index.ruler` stores them and as Spark and Python exchange them.

A ruler consists of rows of seven little-endian 64-bit integers: three rows of state, then the vertices of its lines,
one line after the other. So numpy can read any number of rulers as one matrix, however many vertices each has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.analytics.log_index.polyline import Polyline, Vertex
from pipeline.analytics.log_index.ruler import Observation, Ruler

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

LINES = ("position_bytes", "timestamp_ms", "arrival_ms")
COUNTERS = ("settles_ms", "observations", "future_timestamps", "restarts")
NUMBERS = tuple(name for name in Observation._fields if name != "topic_id")
"""The fields of an Observation that are numbers. Its topic id is text, of 22 bytes in Kafka."""

_WIDTH = len(Vertex._fields)
_ROW_BYTES = 8 * _WIDTH
_TEXT = 32
_HEADER = struct.Struct(f"<{len(LINES) + len(COUNTERS) + len(NUMBERS)}q{_TEXT}s")
_ABOVE = _HEADER.size // _ROW_BYTES
"""The number of rows before the vertices."""
_NULL = -(2**63)
_counters, _numbers = attrgetter(*COUNTERS), attrgetter(*NUMBERS)


class Rulers:
    """Stored rulers: `rows` has the vertices of all of them; `is_known` is False for a ruler that is NULL."""

    def __init__(self, values: pa.Array) -> None:
        stored = values.cast(pa.large_binary())
        _, ends, data = stored.buffers()
        self._data = memoryview(data if data is not None else b"")
        begins = np.frombuffer(ends, np.int64)[stored.offset : stored.offset + len(stored) + 1] if ends else np.zeros(1)
        self.is_known: Flags = stored.is_valid().to_numpy(zero_copy_only=False)
        whole_rows = len(self._data) // _ROW_BYTES * _ROW_BYTES
        self.rows: Longs = np.frombuffer(self._data[:whole_rows], "<i8").reshape(-1, _WIDTH)
        self._first = np.where(self.is_known, begins[: len(stored)] // _ROW_BYTES, 0).astype(np.int64)
        self._above = np.zeros((len(stored), _ABOVE * _WIDTH), np.int64)
        rows = self._first[self.is_known, None] + np.arange(_ABOVE)
        self._above[self.is_known] = self.rows[rows].reshape(-1, _ABOVE * _WIDTH)

    def __len__(self) -> int:
        return len(self.is_known)

    def seen(self, name: str) -> Longs:
        """One of NUMBERS for each ruler; 0 for NULL."""
        values = self._above[:, len(LINES) + len(COUNTERS) + NUMBERS.index(name)]
        return np.where(values == _NULL, 0, values)

    def counter(self, name: str) -> Longs:
        """One of COUNTERS for each ruler."""
        return self._above[:, len(LINES) + COUNTERS.index(name)]

    def span(self, line: str) -> tuple[Longs, Longs]:
        """For each ruler, the index in `rows` of the line's first vertex, and the one after its last."""
        number = LINES.index(line)
        first = self._first + _ABOVE + self._above[:, :number].sum(axis=1)
        return first, first + self._above[:, number]

    @cached_property
    def topic_ids(self) -> list[str | None]:
        """The topic id of each ruler."""
        texts = np.ascontiguousarray(self._above[:, -_TEXT // 8 :]).view(f"S{_TEXT}").ravel().tolist()
        return [text.decode() or None for text in texts]

    @cached_property
    def _headers(self) -> list[list[int]]:
        words: list[list[int]] = self._above[:, : -_TEXT // 8].tolist()
        return words

    @cached_property
    def _spans(self) -> list[list[tuple[int, int]]]:
        return [list(zip(*(each.tolist() for each in self.span(line)), strict=True)) for line in LINES]

    @cached_property
    def _newest(self) -> list[list[list[int]]]:
        """The newest vertex by line and ruler; any row if a line has none."""
        last = [np.minimum(self.span(line)[1] - 1, len(self.rows) - 1) for line in LINES]
        return [self.rows[numbers].tolist() if len(self.rows) else [] for numbers in last]

    def whole(self, i: int) -> Ruler | None:
        """Ruler number `i`; None for NULL."""
        if not self.is_known[i]:
            return None
        lines = (self.rows[slice(*spans[i])].tolist() for spans in self._spans)
        return self._ruler(i, [Polyline(tuple(map(Vertex._make, rows))) for rows in lines])

    def tail(self, i: int) -> Ruler | None:
        """Ruler number `i` with only the newest vertex of each line."""
        if not self.is_known[i]:
            return None
        counts = self._headers[i][: len(LINES)]
        newest = (Vertex._make(rows[i]) if count else None for rows, count in zip(self._newest, counts, strict=True))
        return self._ruler(i, [Polyline((v,) if v else ()) for v in newest])

    def _ruler(self, i: int, lines: Sequence[Polyline]) -> Ruler:
        words = self._headers[i][len(LINES) :]
        captured_ms, *numbers, is_compacted = (None if w == _NULL else w for w in words[len(COUNTERS) :])
        seen: Sequence[Any] = (captured_ms, self.topic_ids[i], *numbers, bool(is_compacted))
        position_bytes, timestamp_ms, arrival_ms = lines
        return Ruler(Observation._make(seen), position_bytes, timestamp_ms, arrival_ms, *words[: len(COUNTERS)])

    def lengthened(self, i: int, tail: Ruler) -> bytes:
        """Ruler number `i` as it is stored after its `tail` was extended; the vertices before the tail stay."""
        older = []
        for line, spans, newest in zip(LINES, self._spans, self._newest, strict=True):
            first, end = spans[i]
            vertices = getattr(tail, line).vertices
            is_same = vertices and end > first and [*vertices[0][:2]] == newest[i][:2]
            older.append(self._data[first * _ROW_BYTES : (end - 1) * _ROW_BYTES] if is_same else b"")
        return to_bytes(tail, older)

    def vertex_offsets(self) -> tuple[Longs, Longs]:
        """The offsets at which any line of a ruler has a vertex: the ruler's number and the offset, both ascending."""
        of_ruler, _, vertices, is_first = self._by_offset(LINES)
        return of_ruler[is_first], vertices[is_first, 0]

    def points(self) -> tuple[Longs, Longs, list[pa.Array]]:
        """The vertices of bytes and timestamps by ruler and offset: counts per ruler, offsets, and each line's values.

        A value is NULL at an offset where the line has no vertex.
        """
        of_ruler, of_line, vertices, is_first = self._by_offset(LINES[:2])
        number = np.cumsum(is_first) - 1
        values = []
        for line in range(2):
            has, value = np.zeros(is_first.sum(), bool), np.zeros(is_first.sum(), np.int64)
            own = of_line == line
            has[number[own]], value[number[own]] = True, vertices[own, 1]
            values.append(pa.array(value, mask=~has))
        return np.bincount(of_ruler[is_first], minlength=len(self)), vertices[is_first, 0], values

    def _by_offset(self, lines: Sequence[str]) -> tuple[Longs, Longs, Longs, Flags]:
        """The vertices of some lines by ruler and offset: ruler, line, vertex, and whether it is the first there."""
        spans = [self.span(line) for line in lines]
        numbers = [np.repeat(np.arange(len(self)), end - first) for first, end in spans]
        vertices = np.concatenate([self.rows[runs(first, end)] for first, end in spans])
        of_ruler, of_line = np.concatenate(numbers), np.repeat(np.arange(len(lines)), [len(n) for n in numbers])
        order = np.lexsort((vertices[:, 0], of_ruler))
        of_ruler, of_line, vertices = of_ruler[order], of_line[order], vertices[order]
        is_first = np.append(True, (np.diff(of_ruler) != 0) | (np.diff(vertices[:, 0]) != 0))[: len(vertices)]
        return of_ruler, of_line, vertices, is_first


def to_bytes(ruler: Ruler, older: Sequence[bytes | memoryview] = (b"", b"", b"")) -> bytes:
    """A ruler as it is stored; `older` has, for each line, stored rows that come before its vertices."""
    lines = [getattr(ruler, line).vertices for line in LINES]
    counts = (len(rows) // _ROW_BYTES + len(line) for rows, line in zip(older, lines, strict=True))
    numbers = (_NULL if value is None else int(value) for value in _numbers(ruler.last))
    header = _HEADER.pack(*counts, *_counters(ruler), *numbers, (ruler.last.topic_id or "").encode())
    packed = (struct.pack(f"<{_WIDTH * len(line)}q", *chain.from_iterable(line)) for line in lines)
    return b"".join((header, *chain.from_iterable(zip(older, packed, strict=True))))


def encoded(rulers: Sequence[Ruler | None]) -> pa.Array:
    """Rulers as they are stored, None as NULL."""
    return pa.array([to_bytes(ruler) if ruler else None for ruler in rulers], pa.binary())


def decoded(values: pa.Array) -> Iterator[Ruler | None]:
    """Stored rulers, NULL as None."""
    rulers = Rulers(values)
    return (rulers.whole(i) for i in range(len(rulers)))


def runs(first: Longs, end: Longs) -> Longs:
    """The numbers from each `first` up to, not including, its `end`, one run after the other."""
    lengths = end - first
    return np.repeat(first - np.append(0, np.cumsum(lengths)[:-1]), lengths) + np.arange(lengths.sum())
