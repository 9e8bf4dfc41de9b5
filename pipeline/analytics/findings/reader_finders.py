"""How the problems of groups and topics are found: for which readers each kind holds, and how bad it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.analytics.findings.data_loss import IS_WRITTEN
from pipeline.analytics.lag.ladder import DELETED_UNREAD_OFFSETS
from pipeline.analytics.status.rules import FALLING_BEHIND, NOT_COMMITTED, OK, WAITS
from pipeline.common.arrow_sql import epoch_ms_sql
from pipeline.config.status import StatusConfig
from pipeline.kinds import kind_named
from pipeline.tables import DATA_LOSS

Holds = Callable[[StatusConfig], str]
"""The condition of a kind, as SQL text for DuckDB: see `suspects` for its columns, and `data_loss.time_left`.

It is only asked of readers that `suspects._SUSPECTS` lets through: most readers that keep up are left out before.
"""


_PARTS_OF_WINDOW = 6
"""After which part of the window a member that has come back should have committed: five minutes by default."""


@dataclass(frozen=True)
class ReaderFinder:
    """How a kind of problem is found: for which readers it `holds`, and its `magnitude`.

    The magnitude, and what must hold for all of its readers together (`also`), are SQL text for the sums of
    `group_problems`.
    """

    holds: Holds
    magnitude: str
    also: str = "true"


def _status_is(status: str) -> Holds:
    return lambda _settings: f"status = '{status}'"


def _offset_is(*statuses: str) -> Holds:
    names = ", ".join(f"'{status}'" for status in statuses)
    return lambda _settings: f"offset_status IN ({names})"


def _is_near(left_ms: str) -> Holds:
    return lambda _settings: f"{left_ms} IS NOT NULL"


def _has_lost_records(settings: StatusConfig) -> str:
    """Records were deleted that the group had not read, as far as this snapshot shows.

    If all records of a log are deleted, so is the transaction marker at its end, which no group reads. If log start
    was read later than the commit, a group that keeps up may have read on in between; Kafka Streams then deletes what
    it has read.
    """
    may_be_marker = f"{DELETED_UNREAD_OFFSETS} <= {settings.markers} AND log_start_offset >= high_watermark"
    keeps_up = f"status IS NOT DISTINCT FROM '{OK}' AND has_members"
    is_later = "consumer_lag_error IS NULL AND captured_at > committed_captured_at"
    is_doubtful = f"coalesce(({may_be_marker}) OR ({keeps_up} AND {is_later}), false)"
    return f"{_offset_is(DATA_LOSS)(settings)} AND NOT {is_doubtful}"


def _is_elsewhere(settings: StatusConfig) -> str:
    """The commit belongs to a deleted topic of the same name. At offset 0, that makes no difference."""
    return f"{_offset_is('recreated')(settings)} AND committed_offset <> 0"


def _never_commits(settings: StatusConfig) -> str:
    """A member has the partition, and no commit was seen there for a window, although records are written.

    The earlier snapshot must show records, too, or the first one may just have come. A member that crashes before its
    first commit is away in some snapshots, and its status begins again each time. So it is enough if it was there in
    the earlier snapshot, and its status began after that.
    """
    is_held = f"status = '{NOT_COMMITTED}' AND commit_since IS NULL AND member_id IS NOT NULL"
    was_held = "past['offset_status'] = 'no_commit' AND past['member_id'] IS NOT NULL"
    had_records = "past['high_watermark'] > past['log_start_offset']"
    since = epoch_ms_sql("since")
    is_later = f"past['ends_ms'] < {since} AND ends_ms - past['ends_ms'] >= {settings.window_ms // _PARTS_OF_WINDOW}"
    is_long = f"(ends_ms - {since} >= {settings.window_ms} OR {is_later})"
    return f"{is_held} AND {IS_WRITTEN} AND coalesce({was_held} AND {had_records} AND {is_long}, false)"


def _waits(*, for_transaction: bool) -> Holds:
    is_held = "reason IS NOT DISTINCT FROM 'open_transaction'"
    waits = ", ".join(f"'{status}'" for status in WAITS)
    return lambda _settings: f"status IN ({waits}) AND {'' if for_transaction else 'NOT '}({is_held})"


READER_FINDERS: dict[str, ReaderFinder] = {
    "no_progress": ReaderFinder(_waits(for_transaction=False), "consumer_lag"),
    "falling_behind": ReaderFinder(_status_is(FALLING_BEHIND), "consumer_lag"),
    "rewound": ReaderFinder(_status_is("rewound"), "consumer_lag"),
    "deleted_unread": ReaderFinder(_has_lost_records, "deleted"),
    "data_loss_ahead": ReaderFinder(_is_near("deleted_in_ms"), "-deleted_in_ms"),
    "commits_expire": ReaderFinder(_is_near("expires_in_ms"), "-expires_in_ms", also="expires_in_ms IS NOT NULL"),
    "never_commits": ReaderFinder(_never_commits, "readable", also="uncommitted = of_partitions"),
    "open_transaction": ReaderFinder(_waits(for_transaction=True), "consumer_lag"),
    "recreated_topic": ReaderFinder(_is_elsewhere, "len(groups)"),
    "truncated_log": ReaderFinder(_offset_is("truncated", "beyond_end"), "len(groups)"),
}
"""The finders of the kinds whose problems are those of readers."""


def severity_sql() -> str:
    """The severity of each kind, as SQL text for DuckDB."""
    return _case({name: f"'{kind_named(name).severity}'" for name in READER_FINDERS})


def magnitude_sql() -> str:
    """How bad a problem is, compared with others of its kind."""
    return _case({name: f"CAST({judged.magnitude} AS DOUBLE)" for name, judged in READER_FINDERS.items()})


def also_sql() -> str:
    """Whether a problem of some readers is one of their group or topic."""
    return _case({name: judged.also for name, judged in READER_FINDERS.items()})


def _case(values: dict[str, str]) -> str:
    cases = " ".join(f"WHEN '{name}' THEN {value}" for name, value in values.items())
    return f"CASE kind {cases} END"
