"""What is drawn beyond the last snapshot: the lag of a group as its forecast says, with a band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pipeline.report.model.details import Forecast
from pipeline.report.model.report import Group, Instant

SHARE = 1 / 3
"""At most this part of the time that is shown is added to it."""
MOST_TIMES = 2
"""If the lag may rise, its band is drawn up to so many times what the lag is, or will be in the middle of the band."""


class Ahead(NamedTuple):
    """A point of the forecast: the lag in offsets, at least, most likely and at most."""

    t_ms: int
    low: float
    middle: float
    high: float


def ahead(forecast: Forecast | None, group: Group, instants: Sequence[Instant]) -> list[Ahead]:
    """The points of a group's forecast, from the last snapshot on; none if there is nothing to draw.

    It ends when the group has caught up even at the latest, or after SHARE of the time of `instants`. Between two
    points the lag is taken to move evenly.
    """
    lag = group.consumer_lag or 0
    if forecast is None or forecast.ends_ms is None or lag <= 0 or not instants:
        return []
    span_ms = max(instants[-1].read_ms - instants[0].read_ms, 60_000)
    is_even = forecast.basis != "same_hour"  # else it falls faster or more slowly, or even rises first
    if forecast.caught_up_in_ms and is_even:
        return _falling(forecast, lag, forecast.ends_ms, span_ms * SHARE)
    has_rate = forecast.reason in ("never_at_this_rate", "too_uncertain") or bool(forecast.caught_up_in_ms)
    if has_rate and forecast.net_per_s is not None:
        return _at_rate(forecast, lag, forecast.ends_ms, span_ms * SHARE)
    return []


def _falling(forecast: Forecast, lag: int, from_ms: int, most_ms: float) -> list[Ahead]:
    low, middle, high = forecast.caught_up_in_low_ms, forecast.caught_up_in_ms, forecast.caught_up_in_high_ms
    bends = [t for t in (low, middle, high) if t is not None]
    end = min(max(bends), most_ms) if high is not None else most_ms
    times = sorted({0, *(t for t in bends if t < end), end})
    edges = _down(lag, low or 0), _down(lag, middle), _up(forecast, lag) if high is None else _down(lag, high)
    return [Ahead(round(from_ms + t), *(edge(t) for edge in edges)) for t in times]


def _down(lag: int, until_ms: int | None) -> Callable[[float], float]:
    """The lag that falls evenly to 0 until an instant."""
    return lambda t: lag if t == 0 else lag * max(0.0, 1 - t / until_ms) if until_ms else 0.0


def _up(forecast: Forecast, lag: int) -> Callable[[float], float]:
    """The most lag of a group that may never catch up: it does not fall."""
    rises = max((forecast.net_error_per_s or 0) - (forecast.net_per_s or 0), 0)
    return lambda t: min(lag + rises * t / 1000, MOST_TIMES * lag)


def _at_rate(forecast: Forecast, lag: int, from_ms: int, most_ms: float) -> list[Ahead]:
    """The lag of a group that does not catch up at its rate, give or take the error of the rate."""
    rises, error = -(forecast.net_per_s or 0), forecast.net_error_per_s or 0
    low, middle, high = (max(lag + rate * most_ms / 1000, 0) for rate in (rises - error, rises, rises + error))
    high = min(high, MOST_TIMES * max(middle, lag))
    first, last = Ahead(from_ms, lag, lag, lag), Ahead(round(from_ms + most_ms), low, middle, high)
    return [first, last]
