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


def commits_with_epochs(looks: Sequence[Look]) -> int:
    """How many commits of members with an epoch were seen since one without, or of which it is not known."""
    count = 0
    for number, look in enumerate(looks):
        if look.epoch == 0 or (is_other(looks, number) and look.epoch is None):
            count = 0
        elif look.epoch == 1 and look.members == 1 and (is_other(looks, number) or count == 0):
            count += 1
    return count


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
        if look.epoch == 0 and not is_reset and (is_other(looks, number) or commits_with_epochs(before) > 0):
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
            is_copied = was_reset and look.at_ms - reset_ms <= DAY_MS and look.epoch == 0
            is_copied = is_copied and look.committed > looks[number - 1].committed
            is_over = is_copied or look.at_ms - skip.since_ms > DAY_MS
            skip = None if is_over else skip._replace(end=min(skip.end, look.committed))
        if skip is not None:
            skip = skip._replace(first=max(skip.first, look.log_start))
            skip = skip if skip.end - skip.first > markers else None
        was_reset = is_reset or (was_reset and not is_other(looks, number))
        found.append(skip)
    return found
