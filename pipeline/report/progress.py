"""The report's sentences about the progress of single groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from pipeline.common.words import counted
from pipeline.report.model import Group
from pipeline.report.trends import Trend
from pipeline.report.units import at, duration, size

Level = Literal["bad", "warn"]


class Statement(NamedTuple):
    """A sentence about a group, its severity, and since when it has been true."""

    level: Level
    sentence: str
    since_ms: int | None


def _stopped(group: Group) -> str:
    members = ", and the group has no members" if group.status_reason == "no_members" else ""
    since = _status_since(group)
    return f"nothing has been committed since {since}, while records were written{members}; {_behind(group)}."


def _stalled(group: Group) -> str:
    return f"it commits, but has made no progress since {_status_since(group)}; {_behind(group)}."


def _not_progressing(group: Group) -> str:
    return f"its commits have not moved since {_status_since(group)}; {_behind(group)}."


def _hidden(group: Group) -> str:
    return (
        f"an open transaction hides all unread records from it: a read_committed reader has read all that it can. Its "
        f"commits have not moved since {_status_since(group)}; {_behind(group)}."
    )


def _rewound(group: Group) -> str:
    at_ms = group.snapshot_id if group.status_since_ms is None else group.status_since_ms
    return f"its commits went back before {at(at_ms)}, and are still behind where they were; {_behind(group)}."


def _falls_behind(group: Group, trend: Trend) -> str:
    rates = ""
    if trend.produced_per_s is not None and trend.consumed_per_s is not None:
        rates = f" ({_rate(trend.produced_per_s)} offsets/s are written, {_rate(trend.consumed_per_s)} are committed)"
    return f"it falls behind, as its oldest unread record keeps getting older{rates}; {_behind(group)}."


_WAITS: dict[str, Callable[[Group], str]] = {
    "stopped": _stopped,
    "stalled": _stalled,
    "not_progressing": _not_progressing,
}


def judged(group: Group, trend: Trend) -> Statement | None:
    """A sentence about the status in `group_status`, if someone should act on it."""
    if group.status == "warning":
        sentence = _falls_behind(group, trend)
    elif group.status in _WAITS:
        sentence = (_hidden if group.status_reason == "open_transaction" else _WAITS[group.status])(group)
    elif group.status == "rewound" and trend.set_back_ms is None:  # otherwise `set_back` gives a sentence about it
        sentence = _rewound(group)
    else:
        return None
    some = group.status_partitions
    if some is not None and some < group.partitions:
        sentence = f"in {some:,} of its {group.partitions:,} partitions {sentence}"
    return Statement("bad" if group.status in _WAITS else "warn", sentence, group.status_since_ms)


def _status_since(group: Group) -> str:
    return "a time that is not known" if group.status_since_ms is None else f"at least {at(group.status_since_ms)}"


def set_back(_: Group, trend: Trend) -> Statement | None:
    """A sentence if the commits of a group have gone back at any time shown."""
    if trend.set_back_ms is None or trend.set_back_by is None:
        return None
    times = f" {trend.set_backs} times, the last time" if trend.set_backs > 1 else ""
    sentence = (
        f"its commits went back{times} by {counted(trend.set_back_by, 'offset')} before {at(trend.set_back_ms)}: a "
        "reset, or a consumer that started again."
    )
    return Statement("warn", sentence, trend.set_back_ms)


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if abs(per_s) >= 100 else f"{per_s:.3g}"


def _behind(group: Group) -> str:
    """How far behind a group is, in all known units, and its age, because the time lag of one record is 0."""
    if group.consumer_lag is None:
        return "its lag is not known"
    parts = [counted(group.consumer_lag, "offset")]
    if group.consumer_lag_bytes is not None and not group.bytes_unknown:
        parts.append(size(group.consumer_lag_bytes, group.bytes_error))
    behind = f"it is behind by {', '.join(parts)}"
    if group.consumer_age_ms is None or group.age_unknown:
        return behind
    return f"{behind}, and its oldest record that is not committed is {_age(group)} old"


def _age(group: Group) -> str:
    return duration(group.consumer_age_ms or 0, group.age_error_ms)
