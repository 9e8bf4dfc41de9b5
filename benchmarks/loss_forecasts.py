"""How often unread records were deleted within the band of the forecast, in generated days: a part of the back-test.

The days are those of `benchmarks.losses`. Each snapshot is remembered and forecast by the same functions as in a run,
without Spark. When records were really deleted is known from the generator.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.forecasts import BETWEEN_S, MIDNIGHT_MS, MINUTE_MS, Outcomes, following
from benchmarks.losses import GROUPS_OF_A_KIND, KINDS, PARTITIONS, Losses, generated
from pipeline.analytics.arrow_series import NONE, Ints
from pipeline.analytics.forecasts.deletion import DELETED_REASONS, deletion
from pipeline.analytics.forecasts.memory import Memory, Sums, after
from pipeline.config.status import StatusConfig

HEADING = "## Forecasts of deletion"
DAYS, WARM_UP = 7, 2_160
"""How many days, and how many minutes of the first are not judged: until then, little was deleted."""
HORIZONS_S = {"up to 2 h": 7_200, "up to 6 h": 21_600, "up to 1 d": 86_400, "longer": np.inf}


def outcomes(days: Losses) -> Outcomes:
    """All forecasts of groups that have not caught up, and what came. caught_up_s is when unread records were lost."""
    return Outcomes.joined(_forecasts(days))


def _forecasts(days: Losses) -> Iterator[Outcomes]:
    minutes, count = days.has_lost.shape
    settings, kind, nothing = StatusConfig(), np.array(days.kind), np.zeros((1, count), bool)
    lost_s, undisturbed_s = (following(np.concatenate([of[1:], nothing])) for of in (days.has_lost, days.events))
    memory, markers = Memory.empty(count), np.full(count, settings.markers * PARTITIONS)
    for minute in range(minutes):
        seen = _seen(days, minute, count)
        memory = after(memory, seen)
        if minute < WARM_UP:
            continue
        found = deletion(memory, seen.lag, seen.oldest_ms, markers, settings.tolerance_ms, settings.window_ms)
        every = Outcomes(
            kind=kind,
            in_s=found.in_s,
            low_s=found.low_s,
            high_s=found.high_s,
            reason=found.reason,
            naive_s=np.full(count, np.inf),
            caught_up_s=lost_s[minute] + BETWEEN_S,
            undisturbed_s=undisturbed_s[minute] + BETWEEN_S,
            left_s=np.full(count, (minutes - 1.0 - minute) * 60),
        )
        yield every.where(found.reason != DELETED_REASONS.index("caught_up"))


def _seen(days: Losses, minute: int, count: int) -> Sums:
    """What a snapshot shows, as `summed_lag` returns it. Times are read without an error."""
    by_group = {name: getattr(days, name)[minute].reshape(count, -1) for name in ("ends", "commits", "log_starts")}
    lag = by_group["ends"] - by_group["commits"]
    headroom = days.unread_at[minute] - days.started_at[minute]
    owner = np.repeat(np.arange(count), PARTITIONS)
    nearest = np.lexsort((headroom, lag.ravel() <= 0, owner))[::PARTITIONS]
    age_ms = ((minute - days.unread_at[minute][nearest]) * MINUTE_MS).astype(np.int64)
    at_ms, nothing = np.full(count, MIDNIGHT_MS + (minute + 1) * MINUTE_MS), np.full(count, NONE)
    return Sums(
        ends_ms=at_ms,
        log_ends=by_group["ends"].sum(axis=1),
        commits_ms=at_ms + 20,
        commits=by_group["commits"].sum(axis=1),
        worst_lag=lag.max(axis=1),
        lag=lag.sum(axis=1),
        identity=np.arange(count),
        log_end_bytes=nothing,
        log_end_error_bytes=nothing,
        commit_bytes=nothing,
        commit_error_bytes=nothing,
        oldest_ms=np.where(lag.ravel()[nearest] > 0, age_ms, 0),
        log_starts=by_group["log_starts"].sum(axis=1),
        start_ms=_instant_ms(days, minute, nearest),
    )


def _instant_ms(days: Losses, minute: int, partitions: Ints) -> Ints:
    return np.asarray(MIDNIGHT_MS + (days.started_at[minute][partitions] + 1) * MINUTE_MS).astype(np.int64)


def section() -> str:
    """Measures, and returns the section of the page."""
    return _section(outcomes(generated(DAYS)))


_ABOUT = """
{heading}

`make accuracy ARGS=forecasts` writes this section, too: {days} days of {groups} groups with {partitions} partitions
each, a snapshot each minute. Retention deletes whole segments, by time or by size. Some groups stop for 3 to 40 hours,
others read 3 to 40 % more slowly than is written. {forecasts:,} times a group has unread records and a forecast of when
the first of them will be deleted. If the group neither stops nor starts meanwhile, this happens within the band for
{inside:.1%} of them; 9 of 10 is what the band promises.

A group that has stopped is easy: its oldest record gets older by a minute each minute, and retention has deleted
records of a known age before. A group that is only a little too slow by the mean of a day is not: whether it falls
behind depends on the hour. Its band is wide.

| forecast | number | inside, undisturbed | inside, all | latest time known | latest / earliest | off |
|---|---|---|---|---|---|---|
{by_horizon}

| group | number | inside, undisturbed | inside, all | latest time known | latest / earliest | off |
|---|---|---|---|---|---|---|
{by_kind}

Without a forecast, there is a reason. How often did such a group lose records within a day, if nothing disturbed it?

| reason | number | lost records within a day, undisturbed |
|---|---|---|
{by_reason}
"""


def _section(found: Outcomes) -> str:
    said = found.where(np.isfinite(found.in_s))
    bounds = [-1.0, *HORIZONS_S.values()]
    horizons = {
        name: said.where((said.in_s > bounds[number]) & (said.in_s <= bounds[number + 1]))
        for number, name in enumerate(HORIZONS_S)
    }
    return _ABOUT.format(
        heading=HEADING,
        days=DAYS,
        groups=GROUPS_OF_A_KIND * len(KINDS),
        partitions=PARTITIONS,
        inside=np.mean(said.at_this_rate().inside()),
        forecasts=len(said.in_s),
        by_horizon="\n".join(_line(*one) for one in (horizons | {"all": said}).items()),
        by_kind="\n".join(_line(name, said.where(said.kind == name)) for name in KINDS),
        by_reason="\n".join(line for number in range(1, len(DELETED_REASONS)) for line in _reason(found, number)),
    )


def _line(name: str, some: Outcomes) -> str:
    undisturbed = some.at_this_rate()
    bounded = np.isfinite(some.high_s) & (some.low_s >= BETWEEN_S)
    lost = np.isfinite(undisturbed.caught_up_s) & (undisturbed.caught_up_s > 0)
    true_s = undisturbed.caught_up_s[lost]
    off = np.median(np.abs(undisturbed.in_s[lost] - true_s) / true_s)
    cells = (
        f"{len(some.in_s):,}",
        f"{np.mean(undisturbed.inside()):.1%}",
        f"{np.mean(some.inside()):.1%}",
        f"{np.mean(np.isfinite(some.high_s)):.0%}",
        f"{np.median(some.high_s[bounded] / some.low_s[bounded]):.1f}",
        f"{off:.0%}",
    )
    return f"| {name} | {' | '.join(cells)} |"


def _reason(found: Outcomes, number: int) -> Iterator[str]:
    some = found.where(found.reason == number).at_this_rate()
    known = (some.caught_up_s <= 86_400) | (some.left_s >= 86_400)
    if known.any():
        share = np.mean(some.caught_up_s[known] <= 86_400)
        yield f"| `{DELETED_REASONS[number]}` | {len(some.in_s):,} | {share:.1%} |"
