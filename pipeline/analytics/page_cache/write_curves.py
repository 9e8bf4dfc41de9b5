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
"""The ages at which curves are evaluated: 0, and from a tenth of a second to 600 days."""


class Curves(NamedTuple):
    """By broker (row) and age (column): the bytes written since then, and their lower and upper bounds."""

    written: Floats
    least: Floats
    most: Floats


class Pieces(NamedTuple):
    """Straight pieces of curves: between two ages, `written_bytes` were written at a constant rate.

    The error of both ages is stray_ms. doubt_bytes is by how much the error of the bytes written since the older age
    exceeds that of the bytes written since the younger one.
    """

    ruler: Longs
    younger_ms: Longs
    older_ms: Longs
    written_bytes: Longs
    stray_ms: Longs
    doubt_bytes: Longs


def pieces(rulers: Rulers) -> tuple[Pieces, Floats]:
    """The pieces of each ruler's curve, and the age up to which it is known: infinite if it goes back to offset 0."""
    ruler, offset = rulers.vertex_offsets()
    bytes_line, clocks = Line(rulers, LINES[0]), [Line(rulers, name) for name in LINES[1:]]
    at = bytes_line.at(ruler, offset)
    # No record comes before the very first one, so its own time is used for both ends of its piece.
    timed = np.maximum(offset, 1)
    times = [clock.at(ruler, timed) for clock in clocks]
    time_ms, time_error_ms, has_time = first_known(*times)
    stray_ms = np.where(times[0].is_known, *(clock.stray(ruler, timed) for clock in clocks))
    end = bytes_line.newest()
    doubt = np.maximum(bytes_line.stray(ruler, offset), at.error) + (end.error + end.drift[1])[ruler] - at.drift[0]
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
        # What follows the newest timed vertex has no known time and is newer; often there is nothing.
        np.where(is_newest, end.value[ruler], value[newer]) - value,
        np.maximum(stray_ms, np.maximum(time_error_ms, time_error_ms[newer])),
        doubt - np.where(is_newest, 0, doubt[newer]),
    )
    return made, _known_ms(rulers, ruler, offset, age_ms - time_error_ms)


def summed(of: Pieces, broker: Longs, brokers: int) -> Curves:
    """The curves of the brokers, which are numbered from 0. `broker` is the broker of each piece."""
    step = _summed_steps(of.younger_ms - of.stray_ms, of.doubt_bytes, broker, brokers)
    return Curves(
        _summed_ramps(of, 0, broker, brokers),
        np.maximum(_summed_ramps(of, 1, broker, brokers) - step, 0),
        _summed_ramps(of, -1, broker, brokers) + step,
    )


def _summed_ramps(of: Pieces, side: int, broker: Longs, brokers: int) -> Floats:
    """The sum of all pieces, with ages as old (`side` 1) or as young (-1) as the error allows, or as measured (0)."""
    begin, end = (age + side * of.stray_ms for age in (of.younger_ms, of.older_ms))
    # A piece that lies between two of AGES_MS is complete at the later one, so it is added as a step. This is also more
    # accurate: a steep slope at a great age would be a small difference between large sums.
    is_step = np.searchsorted(AGES_MS, begin) == np.searchsorted(AGES_MS, end)
    slope = np.where(is_step, 0, of.written_bytes / np.maximum(1, end - begin))
    at = np.where(begin == end, begin + (side > 0), end)
    steps = _summed_steps(at, np.where(is_step, of.written_bytes, 0), broker, brokers)
    slopes = _summed_steps(begin, slope, broker, brokers) - _summed_steps(end, slope, broker, brokers)
    bases = _summed_steps(begin, slope * begin, broker, brokers) - _summed_steps(end, slope * end, broker, brokers)
    return slopes * AGES_MS - bases + steps


def _summed_steps(age_ms: Longs, height: npt.NDArray[Any], broker: Longs, brokers: int) -> Floats:
    """By broker and age: the sum of the heights of all steps up to that age."""
    cells = broker * (len(AGES_MS) + 1) + np.searchsorted(AGES_MS, age_ms)
    heights = np.bincount(cells, height, minlength=brokers * (len(AGES_MS) + 1))
    return heights.reshape(brokers, -1)[:, :-1].cumsum(axis=1)


def _greatest_since(values: Longs, is_newest: Flags) -> Longs:
    """For each vertex, the greatest value from there to the newest vertex of its ruler."""
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
