"""How many bytes each broker has written since a given age, summed over the rulers of its partitions.

A broker's page cache is shared by all partitions that it leads or follows. The reuse distance of a record is what the
broker has written to all of them since the record (Mattson's LRU stack distance, 1970): if it is less than the size of
the cache, the record is still there. A partition's two lines, offset → bytes and offset → time, give a curve: age →
bytes written since. The curves of a broker are added up; all are evaluated at the same ages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.analytics.log_index.ruler_lookup import Line, first_known
from pipeline.analytics.log_index.ruler_storage import LINES, Flags, Longs, Rulers

Floats = npt.NDArray[np.float64]

FIRST_AGE_MS, AGES_PER_DOUBLING, DOUBLINGS = 100, 8, 29
AGES_MS: Floats = np.append(0, FIRST_AGE_MS * 2 ** (np.arange(DOUBLINGS * AGES_PER_DOUBLING + 1) / AGES_PER_DOUBLING))
"""The ages at which curves are read: 0, and from a tenth of a second to 600 days."""


class Curves(NamedTuple):
    """By broker (row) and age (column): the bytes written since, and what they are at least and at most."""

    written: Floats
    least: Floats
    most: Floats


class Pieces(NamedTuple):
    """Straight pieces of curves: between two ages so many bytes were written, at an even rate.

    The ages may be off by stray_ms. doubt_bytes is how much less is known of the bytes since the older age than of
    those since the younger one.
    """

    ruler: Longs
    younger_ms: Longs
    older_ms: Longs
    written_bytes: Longs
    stray_ms: Longs
    doubt_bytes: Longs


def pieces(rulers: Rulers) -> tuple[Pieces, Floats]:
    """The curve of each ruler, and up to which age it is known: without end if it has all that was ever written."""
    ruler, offset = rulers.vertex_offsets()
    position, clocks = Line(rulers, LINES[0]), [Line(rulers, name) for name in LINES[1:]]
    at = position.at(ruler, offset)
    # Before the first record of all there is no other: its own time stands for both of its ends.
    timed = np.maximum(offset, 1)
    times = [clock.at(ruler, timed) for clock in clocks]
    time_ms, time_error_ms, has_time = first_known(*times)
    stray_ms = np.where(times[0].is_known, *(clock.stray(ruler, timed) for clock in clocks))
    end = position.newest()
    doubt = np.maximum(position.stray(ruler, offset), at.error) + (end.error + end.drift[1])[ruler] - at.drift[0]
    kept = at.is_known & has_time
    ruler, offset, time_ms, value, doubt = (x[kept] for x in (ruler, offset, time_ms, at.value, doubt))
    stray_ms, time_error_ms = stray_ms[kept], time_error_ms[kept]
    age_ms = rulers.seen("captured_ms")[ruler] - time_ms
    is_newest = np.append(ruler[1:] != ruler[:-1], True)[: len(ruler)]
    newer = np.arange(len(ruler)) + ~is_newest
    doubt = _greatest_since(doubt, is_newest)
    made = Pieces(
        ruler,
        age_ms[newer],
        age_ms,
        # After the newest point there is nothing, or what no clock has timed: that is newer.
        np.where(is_newest, end.value[ruler], value[newer]) - value,
        np.maximum(stray_ms, np.maximum(time_error_ms, time_error_ms[newer])),
        doubt - np.where(is_newest, 0, doubt[newer]),
    )
    return made, _known_ms(rulers, ruler, offset, age_ms - time_error_ms)


def summed(of: Pieces, broker: Longs, brokers: int) -> Curves:
    """The curves of brokers, numbered from 0; each piece is of one of them."""
    step = _summed_steps(of.younger_ms - of.stray_ms, of.doubt_bytes, broker, brokers)
    return Curves(
        _summed_ramps(of, 0, broker, brokers),
        np.maximum(_summed_ramps(of, 1, broker, brokers) - step, 0),
        _summed_ramps(of, -1, broker, brokers) + step,
    )


def _summed_ramps(of: Pieces, side: int, broker: Longs, brokers: int) -> Floats:
    """The sum of all pieces, each as old (1) or as young (-1) as it may be, or as it seems to be (0)."""
    begin, end = (age + side * of.stray_ms for age in (of.younger_ms, of.older_ms))
    # One between two of AGES_MS is there as a whole at the next, as if it were a step. Besides, a steep slope of long
    # ago is a small difference of large sums.
    is_step = np.searchsorted(AGES_MS, begin) == np.searchsorted(AGES_MS, end)
    slope = np.where(is_step, 0, of.written_bytes / np.maximum(1, end - begin))
    at = np.where(begin == end, begin + (side > 0), end)
    steps = _summed_steps(at, np.where(is_step, of.written_bytes, 0), broker, brokers)
    slopes = _summed_steps(begin, slope, broker, brokers) - _summed_steps(end, slope, broker, brokers)
    bases = _summed_steps(begin, slope * begin, broker, brokers) - _summed_steps(end, slope * end, broker, brokers)
    return slopes * AGES_MS - bases + steps


def _summed_steps(age_ms: Longs, height: npt.NDArray[Any], broker: Longs, brokers: int) -> Floats:
    """By broker and age: the heights of all steps up to that age."""
    cells = broker * (len(AGES_MS) + 1) + np.searchsorted(AGES_MS, age_ms)
    heights = np.bincount(cells, height, minlength=brokers * (len(AGES_MS) + 1))
    return heights.reshape(brokers, -1)[:, :-1].cumsum(axis=1)


def _greatest_since(values: Longs, is_newest: Flags) -> Longs:
    """The greatest value from each point to the newest of its ruler."""
    apart = np.cumsum(is_newest[::-1]) * (values.max(initial=0) + 1)
    greatest: Longs = (np.maximum.accumulate(values[::-1] + apart) - apart)[::-1]
    return greatest


def _known_ms(rulers: Rulers, ruler: Longs, offset: Longs, least_age_ms: Longs) -> Floats:
    is_empty = rulers.seen("log_start_offset") == rulers.seen("log_end_offset")
    known_ms = np.where(is_empty, np.inf, 0.0)
    is_oldest = np.append(True, ruler[1:] != ruler[:-1])[: len(ruler)]
    is_all = offset[is_oldest] == 0
    known_ms[ruler[is_oldest]] = np.where(is_all, np.inf, least_age_ms[is_oldest])
    return known_ms
