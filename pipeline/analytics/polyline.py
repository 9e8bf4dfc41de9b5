"""A quantity of a log that never falls, by offset: known at some offsets, straight in between, its error bounded.

Two such lines are the ruler of a partition: the bytes before an offset, and the greatest timestamp before it. A line is
made of what was seen, and thinned where a straight piece says nearly the same. What that costs is kept with each piece:
so thinning again and again never adds up to more than was allowed, and each value is told with its error.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

TOLERANCE = 0.01
"""How far a thinned line may be from what was seen, as a part of the distance to the newest value."""


class Vertex(NamedTuple):
    """A value that was seen, and the straight piece from here to the next vertex.

    error: how far the value itself may be off.
    below, above: how far what was seen, and is left out by now, lies at most on either side of the piece.
    gap: how far the truth may be, between two looks, from the straight line between them.
    """

    offset: int
    value: int
    error: int = 0
    below: int = 0
    above: int = 0
    gap: int = 0


class Reading(NamedTuple):
    """A value, and how far the truth may be from it at most."""

    value: int
    error: int


@dataclass(frozen=True)
class Polyline:
    """Vertices by rising offset, whose values do not fall."""

    vertices: tuple[Vertex, ...] = ()

    def extended(self, offset: int, value: int, error: int = 0) -> Polyline:
        """With what was seen at a later offset. Raises ValueError where the offset or the value goes back."""
        if not self.vertices:
            return Polyline((Vertex(offset, value, error),))
        newest = self.vertices[-1]
        if offset <= newest.offset or value < newest.value:
            raise ValueError(f"{value} at offset {offset} after {newest.value} at offset {newest.offset}")
        looked = newest._replace(gap=value - newest.value + newest.error + error)
        return Polyline((*self.vertices[:-1], looked, Vertex(offset, value, error)))

    def refined(self, offset: int, value: int) -> Polyline:
        """With an exact value that was learnt later, at an offset up to the newest; it splits a piece in two.

        Raises ValueError where the value is not between those around it, or the offset is beyond the newest.
        """
        right = bisect.bisect_left(self.vertices, offset, key=lambda v: v.offset)
        if right == len(self.vertices):
            raise ValueError(f"offset {offset} is beyond the line")
        high = self.vertices[right]
        low = self.vertices[right - 1] if right else None
        least = low.value - low.error if low else value
        if not least <= value <= high.value + high.error:
            raise ValueError(f"{value} at offset {offset} is not between its neighbours")
        if high.offset == offset:
            return self
        if low is None:
            first = Vertex(offset, value, gap=high.value + high.error - value)
            return Polyline((first, *self.vertices))
        # The two new pieces lie on one side of the old one, no farther from it than the new vertex does.
        stray = value - (low.value + (high.value - low.value) * (offset - low.offset) / (high.offset - low.offset))
        below, above = low.below + math.ceil(max(0, stray)), low.above + math.ceil(max(0, -stray))
        pieces = (low._replace(below=below, above=above), Vertex(offset, value, 0, below, above, low.gap))
        return Polyline((*self.vertices[: right - 1], *pieces, *self.vertices[right:]))

    def since(self, offset: int) -> Polyline:
        """Without the pieces that end at or below an offset."""
        first = bisect.bisect_right(self.vertices, offset, key=lambda v: v.offset) - 1
        return self if first <= 0 else Polyline(self.vertices[first:])

    def at(self, offset: int) -> Reading | None:
        """The value at an offset; None outside of the line."""
        right = bisect.bisect_left(self.vertices, offset, key=lambda v: v.offset)
        if right == len(self.vertices):
            return None
        high = self.vertices[right]
        if high.offset == offset:
            return Reading(high.value, high.error)
        if right == 0:
            return None
        low = self.vertices[right - 1]
        value = low.value + (high.value - low.value) * (offset - low.offset) // (high.offset - low.offset)
        bracket = max(value - low.value + low.error, high.value + high.error - value)
        return Reading(value, min(bracket, max(low.below, low.above) + low.gap + 1))

    def thinned(self, tolerance: float = TOLERANCE) -> Polyline:
        """With few vertices: from the newest to the oldest, each piece as long as the tolerance allows.

        The greedy search narrows the slopes that a piece may have with each vertex that it is to pass by (the cone of
        Sklansky and Gonzalez, 1980); a piece ends at vertices, so it needs no room at its own ends.
        """
        if len(self.vertices) <= 2:
            return self
        room = _room(self.vertices, tolerance)
        kept = [len(self.vertices) - 1]
        while kept[-1] > 0:
            kept.append(_farthest(self.vertices, kept[-1], room))
        kept.reverse()
        pieces = [_piece(self.vertices[old : new + 1]) for old, new in pairwise(kept)]
        return Polyline((*pieces, self.vertices[-1]))


def _room(vertices: Sequence[Vertex], tolerance: float) -> list[tuple[float, float]]:
    """By vertex: how far it may come to lie below (negative) and above a piece that passes it by.

    What lies around the pieces on both of its sides moves along with it, and must stay within the tolerance.
    """
    end = vertices[-1].value
    sides = [
        (old.below - tolerance * (end - new.value), tolerance * (end - new.value) - old.above)
        for old, new in pairwise(vertices)
    ]
    inner = [(max(a[0], b[0]), min(a[1], b[1])) for a, b in pairwise(sides)]
    return [(0, 0), *inner, (0, 0)]


def _farthest(vertices: Sequence[Vertex], start: int, room: Sequence[tuple[float, float]]) -> int:
    """The oldest vertex from which a straight piece to `start` has room at all vertices in between."""
    anchor, best = vertices[start], start - 1
    least, greatest = -math.inf, math.inf
    for i in range(start - 1, -1, -1):
        run, rise = anchor.offset - vertices[i].offset, anchor.value - vertices[i].value
        if least <= rise / run <= greatest:
            best = i
        below, above = room[i]
        least, greatest = max(least, (rise + below) / run), min(greatest, (rise + above) / run)
        if below > above or least > greatest:
            break
    return best


def _piece(vertices: Sequence[Vertex]) -> Vertex:
    """The first vertex, with one piece to the last."""
    first, last = vertices[0], vertices[-1]
    slope = (last.value - first.value) / (last.offset - first.offset)
    strays = [v.value - first.value - slope * (v.offset - first.offset) for v in vertices]
    old_pieces = list(zip(vertices, strays, strays[1:], strict=False))
    return Vertex(
        first.offset,
        first.value,
        first.error,
        below=max(0, math.ceil(max(v.below - min(a, b) for v, a, b in old_pieces))),
        above=max(0, math.ceil(max(v.above + max(a, b) for v, a, b in old_pieces))),
        gap=max(v.gap for v in vertices[:-1]),
    )
