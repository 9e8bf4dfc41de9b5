"""A line: a value that never decreases with the offset, known at some offsets and linear in between, with its error.

Two such lines are the ruler of a partition: the bytes before an offset, and the greatest timestamp before it. A line is
built from observations, and thinned where one straight piece gives nearly the same values. Each piece keeps the error
that thinning has added. So the errors of repeated thinning never exceed the tolerance, and each value has a stated
error.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

TOLERANCE = 0.01
"""How far a thinned line may be from the observed values, as a part of the distance to the newest value."""
GAP_TOLERANCE = 5 * TOLERANCE
"""The largest gap (see Vertex), as a part of the same distance, that a joined piece may have if one of its parts had a
smaller one."""


class Vertex(NamedTuple):
    """A value that was observed, and the straight piece from here to the next vertex.

    error: the error of the value itself.
    below, above: how far the observed values that thinning has removed lie below and above the piece, at most.
    gap: how far the true value may be from the straight line between two observations.
    drift: the error that all values up to here share, because the line's growth was estimated. It never decreases. The
    distance between two vertices with the same drift is not affected.
    """

    offset: int
    value: int
    error: int = 0
    below: int = 0
    above: int = 0
    gap: int = 0
    drift: int = 0


class Reading(NamedTuple):
    """A value and its error: how far the true value may be from it. `drift` is that of the vertices on both sides."""

    value: int
    error: int
    drift: tuple[int, int] = (0, 0)


def distance(lower: Reading, upper: Reading) -> Reading:
    """The difference between two values. Its error is the sum of both errors and of the drift in between."""
    drift = max(0, upper.drift[1] - lower.drift[0])
    return Reading(upper.value - lower.value, lower.error + upper.error + drift, (0, drift))


@dataclass(frozen=True)
class Polyline:
    """Vertices in ascending order of their offsets. Their values never decrease."""

    vertices: tuple[Vertex, ...] = ()

    def extended(self, offset: int, value: int, error: int = 0, drift: int = 0) -> Polyline:
        """The line with a value observed at a later offset; `drift` is the error of the growth up to it.

        Raises ValueError if the offset or the value goes back.
        """
        if not self.vertices:
            return Polyline((Vertex(offset, value, error),))
        newest = self.vertices[-1]
        if offset <= newest.offset or value < newest.value:
            raise ValueError(f"{value} at offset {offset} cannot follow {newest.value} at offset {newest.offset}")
        looked = newest._replace(gap=value - newest.value + newest.error + error)
        return Polyline((*self.vertices[:-1], looked, Vertex(offset, value, error, drift=newest.drift + drift)))

    def raised(self, by: int) -> Polyline:
        """The line with its newest value raised by `by`; the error includes the case that it has not grown."""
        older, newest = self.vertices[:-1], self.vertices[-1]
        if older:
            older = (*older[:-1], older[-1]._replace(gap=older[-1].gap + 2 * by))
        return Polyline((*older, newest._replace(value=newest.value + by, error=newest.error + by)))

    def refined(self, offset: int, value: int, error: int = 0) -> Polyline:
        """The line with a value that was found later for an offset up to the newest one; it splits a piece in two.

        Raises ValueError if the value is not between its neighbours, or the offset is beyond the newest one.
        """
        right = bisect.bisect_left(self.vertices, offset, key=lambda v: v.offset)
        if right == len(self.vertices):
            raise ValueError(f"offset {offset} is beyond the line")
        high = self.vertices[right]
        if high.offset == offset:
            is_surer = error < high.error and right + 1 < len(self.vertices)
            return self._without(right).refined(offset, value, error) if is_surer else self
        low = self.vertices[right - 1] if right else None
        least, greatest = value - error, value + error
        if (low and greatest < low.value - low.error) or least > high.value + high.error:
            raise ValueError(f"{value} at offset {offset} is not between its neighbours")
        # The new value narrows a neighbour that was known less exactly.
        for i, vague in ((right, high), (right - 1, low)):
            if vague and error < vague.error and i < len(self.vertices) - 1:
                bounds = _within(vague, (least, math.inf) if vague is high else (-math.inf, greatest))
                if bounds != (vague.value, vague.error):
                    return self._without(i).refined(offset, value, error).refined(vague.offset, *bounds)
        inside = min(max(value, low.value if low else value), high.value)
        error += abs(inside - value)
        if low is None:
            first = Vertex(offset, inside, error, gap=high.value + high.error - inside + error, drift=high.drift)
            return Polyline((first, *self.vertices))
        # The two new pieces lie on one side of the old one, and nowhere farther from it than at the new vertex.
        stray = inside - (low.value + (high.value - low.value) * (offset - low.offset) / (high.offset - low.offset))
        low = low._replace(below=low.below + math.ceil(max(0, stray)), above=low.above + math.ceil(max(0, -stray)))
        split = low._replace(offset=offset, value=inside, error=error)
        pieces = (_surest(low, split), _surest(split, high))
        return Polyline((*self.vertices[: right - 1], *pieces, *self.vertices[right:]))

    def _without(self, i: int) -> Polyline:
        """The line without one vertex, which must not be the newest."""
        around = [_piece(self.vertices[i - 1 : i + 2])] if i else []
        return Polyline((*self.vertices[: max(0, i - 1)], *around, *self.vertices[i + 1 :]))

    def since(self, offset: int) -> Polyline:
        """The line without the pieces that end at or below an offset."""
        first = bisect.bisect_right(self.vertices, offset, key=lambda v: v.offset) - 1
        return self if first <= 0 else Polyline(self.vertices[first:])

    def at(self, offset: int) -> Reading | None:
        """The value at an offset; None outside of the line."""
        right = bisect.bisect_left(self.vertices, offset, key=lambda v: v.offset)
        if right == len(self.vertices):
            return None
        high = self.vertices[right]
        if high.offset == offset:
            return Reading(high.value, high.error, (high.drift, high.drift))
        if right == 0:
            return None
        low = self.vertices[right - 1]
        value = low.value + (high.value - low.value) * (offset - low.offset) // (high.offset - low.offset)
        bracket = max(value - low.value + low.error, high.value + high.error - value)
        error = min(bracket, max(low.below, low.above) + low.gap + 1)
        return Reading(value, error, (low.drift, high.drift))

    def thinned(self, prefer: Container[int] = ()) -> Polyline:
        """The line with few vertices: from the newest to the oldest, each piece is as long as the tolerance allows.

        The search is greedy: each vertex that a piece passes narrows the slopes that the piece may have (the cone of
        Sklansky and Gonzalez, 1980). A piece begins and ends at vertices, so it needs no tolerance there. It ends at an
        offset in `prefer` if this does not shorten it by more than half.
        """
        if len(self.vertices) <= 2:
            return self
        room = _room(self.vertices)
        kept = [len(self.vertices) - 1]
        while kept[-1] > 0:
            kept.append(_farthest(self.vertices, kept[-1], room, prefer))
        kept.reverse()
        pieces = [_piece(self.vertices[old : new + 1]) for old, new in pairwise(kept)]
        return Polyline((*pieces, self.vertices[-1]))


def _room(vertices: Sequence[Vertex]) -> list[tuple[float, float]]:
    """For each vertex, how far below (negative) and above a new piece it may lie, if the piece replaces it.

    The values that were removed earlier, on both sides of the vertex, then lie as much farther from the new piece, and
    they must stay within the tolerance, too.
    """
    end = vertices[-1].value
    sides = [
        (old.below - TOLERANCE * (end - new.value), TOLERANCE * (end - new.value) - old.above)
        for old, new in pairwise(vertices)
    ]
    inner = [(max(a[0], b[0]), min(a[1], b[1])) for a, b in pairwise(sides)]
    return [(0, 0), *inner, (0, 0)]


def _farthest(
    vertices: Sequence[Vertex], start: int, room: Sequence[tuple[float, float]], prefer: Container[int]
) -> int:
    """The oldest vertex from which a straight piece to `start` keeps the tolerance (`room`) at all vertices between."""
    anchor, end = vertices[start], vertices[-1].value
    best = preferred = start - 1
    least, greatest = -math.inf, math.inf
    gap, most_gap = 0, math.inf
    for i in range(start - 1, -1, -1):
        old = vertices[i]
        gap = max(gap, old.gap)
        most_gap = min(most_gap, max(old.gap, GAP_TOLERANCE * (end - vertices[i + 1].value)))
        if gap > most_gap:
            break
        run, rise = anchor.offset - old.offset, anchor.value - old.value
        if least <= rise / run <= greatest:
            best = i
            preferred = i if old.offset in prefer else preferred
        below, above = room[i]
        least, greatest = max(least, (rise + below) / run), min(greatest, (rise + above) / run)
        if below > above or least > greatest:
            break
    return preferred if start - preferred >= (start - best) / 2 else best


def _piece(vertices: Sequence[Vertex]) -> Vertex:
    """The first vertex, with one piece that leads to the last; it replaces the vertices between."""
    first, last = vertices[0], vertices[-1]
    slope = (last.value - first.value) / (last.offset - first.offset)
    strays = [v.value - first.value - slope * (v.offset - first.offset) for v in vertices]
    old_pieces = list(zip(vertices, strays, strays[1:], strict=False))
    return first._replace(
        below=max(0, math.ceil(max(v.below - min(a, b) for v, a, b in old_pieces))),
        above=max(0, math.ceil(max(v.above + max(a, b) for v, a, b in old_pieces))),
        gap=max(v.gap for v in vertices[:-1]),
    )


def _within(vertex: Vertex, bounds: tuple[float, float]) -> tuple[int, int]:
    """The value of a vertex and its error, now that the value is also known to be within `bounds`."""
    least, greatest = max(bounds[0], vertex.value - vertex.error), min(bounds[1], vertex.value + vertex.error)
    half = math.ceil((greatest - least) / 2)
    return int(greatest) - half, half


def _surest(piece: Vertex, high: Vertex) -> Vertex:
    """The piece with the error that follows from its two ends alone, if that is smaller than its own error."""
    width = high.value + high.error - piece.value + piece.error
    is_wider = max(piece.below, piece.above) + piece.gap > width
    return piece._replace(below=0, above=0, gap=width) if is_wider else piece
