"""Which commits of one reader were resets, and what they skip: in plain Python, from all of its looks."""

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.common.epoch import DAY_MS, HOUR_MS


class Look(NamedTuple):
    """What a snapshot shows. `epoch` and `members`: 1, 0, or None if not known."""

    at_ms: int
    committed: int
    epoch: int | None
    members: int | None
    log_start: int = 0


class Skip(NamedTuple):
    """Since when records are skipped, and the offsets of those that can still be read again."""

    since_ms: int
    first: int
    end: int


def is_other(looks: Sequence[Look], number: int) -> bool:
    """Whether the commit is not that of the look before."""
    return number == 0 or looks[number].committed != looks[number - 1].committed


def is_new(looks: Sequence[Look], number: int) -> bool:
    """Whether the look before does not show this commit, or cannot show that it has no epoch."""
    return is_other(looks, number) or looks[number - 1].members != 0


def commits_with_epochs(looks: Sequence[Look]) -> int:
    """How many commits of members with an epoch were seen since one without, or of which it is not known."""
    count = 0
    for number, look in enumerate(looks):
        if look.epoch == 0 or (is_other(looks, number) and look.epoch is None):
            count = 0
        elif look.epoch == 1 and look.members == 1 and (is_other(looks, number) or count == 0):
            count += 1
    return count


def is_unexplained(looks: Sequence[Look], found: Sequence[bool], number: int) -> bool:
    """Whether the commit is new, and is not one of which `found` says that it was a reset, less than a day ago."""
    change = max((n for n in range(number) if is_other(looks, n)), default=0)
    was_reset = number > 0 and found[change] and looks[number].at_ms - looks[change].at_ms <= DAY_MS
    return is_other(looks, number) or (is_new(looks, number) and not was_reset)


def resets(looks: Sequence[Look]) -> list[bool]:
    """For each look whether its commit was made by a tool just before."""
    found: list[bool] = []
    plain_at = None
    for number, look in enumerate(looks):
        before = looks[:number]
        is_reset = False
        if before and look.epoch == 0 and is_other(looks, number) and (look.members, before[-1].members) == (0, 0):
            changes = [n for n in range(number) if is_other(looks, n)]
            follows = found[changes[-1]] and look.at_ms - looks[changes[-1]].at_ms <= DAY_MS
            follows = follows and look.committed < before[-1].committed
            is_quiet = plain_at is None or look.at_ms - plain_at > 7 * DAY_MS
            is_near = look.at_ms - before[-1].at_ms <= 2 * HOUR_MS
            is_reset = is_near and (follows or (commits_with_epochs(before) >= 3 and is_quiet))
            is_reset = is_reset and before[-1].committed >= look.log_start
        if look.epoch == 0 and not is_reset and (is_unexplained(looks, found, number) or commits_with_epochs(before)):
            plain_at = look.at_ms
        found.append(is_reset)
    return found


def skips(looks: Sequence[Look], markers: int = 1) -> list[Skip | None]:
    """What is skipped after each look."""
    found: list[Skip | None] = []
    was_reset, reset_ms, read_to, skip = False, 0, 0, None
    for number, (look, is_reset) in enumerate(zip(looks, resets(looks), strict=True)):
        if is_reset:
            was_reset = was_reset and look.at_ms - reset_ms <= DAY_MS
            read_to = read_to if was_reset else looks[number - 1].committed
            lasts = skip is not None and was_reset and look.at_ms - skip.since_ms <= DAY_MS
            skip = Skip(skip.since_ms if skip and lasts else look.at_ms, read_to, look.committed)
            reset_ms = look.at_ms
        elif skip is not None:
            has_run = commits_with_epochs(looks[:number]) > 0
            is_copied = look.epoch == 0 and is_new(looks, number) and look.committed > skip.end and not has_run
            is_over = is_copied or look.at_ms - skip.since_ms > DAY_MS
            skip = None if is_over else skip._replace(end=min(skip.end, look.committed))
        if skip is not None:
            skip = skip._replace(first=max(skip.first, look.log_start))
            skip = skip if skip.end - skip.first > markers else None
        was_reset = is_reset or (was_reset and not is_other(looks, number))
        found.append(skip)
    return found
