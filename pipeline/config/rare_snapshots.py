"""Which rules cannot do what their settings say, because snapshots are too rare for them."""

from collections.abc import Collection, Iterator

from pipeline.common.epoch import HOUR_MS

FEWEST_INTERVALS = 3
"""The rules of statuses need two to four intervals between snapshots."""


def too_rare(schedule_ms: int, window_ms: int, slos: Collection[str]) -> Iterator[str]:
    """A sentence for each setting that has not its full effect with this schedule.

    `window_ms` is that of `[status]`; `slos` are the names of the objectives.
    """
    if window_ms < FEWEST_INTERVALS * schedule_ms:
        yield (
            "status.window is less than three times snapshot.schedule: a status needs three to five snapshots, "
            "which may take longer than window says"
        )
    if slos and schedule_ms >= 6 * HOUR_MS:
        yield f"snapshot.schedule is six hours or more: budget_burn is never found ({_named(slos)})"
    elif slos and schedule_ms >= HOUR_MS:
        yield (
            "snapshot.schedule is an hour or more: budget_burn is never found by its rule for the last hour, only by "
            f"that for six hours ({_named(slos)})"
        )


def _named(slos: Collection[str]) -> str:
    return ", ".join(f"slo.{name}" for name in slos)
