"""The kinds of problems of groups and topics: for which readers each holds, how severe it is, and how bad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.analytics.lag.ladder import DELETED_UNREAD_OFFSETS
from pipeline.analytics.status.rules import FALLING_BEHIND, OK, WAITS
from pipeline.config.status import StatusConfig
from pipeline.tables import DATA_LOSS

Holds = Callable[[StatusConfig], str]
"""The condition of a kind, as SQL text for DuckDB: see `suspects` for its columns."""


@dataclass(frozen=True)
class Kind:
    """A kind of problem: for which readers it `holds`, and its magnitude from the sums of `group_problems`, as SQL."""

    holds: Holds
    severity: str
    magnitude: str


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


def _waits(*, for_transaction: bool) -> Holds:
    is_held = "reason IS NOT DISTINCT FROM 'open_transaction'"
    waits = ", ".join(f"'{status}'" for status in WAITS)
    return lambda _settings: f"status IN ({waits}) AND {'' if for_transaction else 'NOT '}({is_held})"


KINDS: dict[str, Kind] = {
    "no_progress": Kind(_waits(for_transaction=False), "critical", "consumer_lag"),
    "falling_behind": Kind(_status_is(FALLING_BEHIND), "warning", "consumer_lag"),
    "rewound": Kind(_status_is("rewound"), "warning", "consumer_lag"),
    "deleted_unread": Kind(_has_lost_records, "critical", "deleted"),
    "data_loss_ahead": Kind(_is_near("deleted_in_ms"), "critical", "-deleted_in_ms"),
    "commits_expire": Kind(_is_near("expires_in_ms"), "warning", "-expires_in_ms"),
    "open_transaction": Kind(_waits(for_transaction=True), "warning", "consumer_lag"),
    "recreated_topic": Kind(_is_elsewhere, "warning", "len(groups)"),
    "truncated_log": Kind(_offset_is("truncated", "beyond_end"), "critical", "len(groups)"),
}


def severity_sql() -> str:
    """The severity of each kind, as SQL text for DuckDB."""
    return _case({name: f"'{kind.severity}'" for name, kind in KINDS.items()})


def magnitude_sql() -> str:
    """How bad a problem is, compared with others of its kind."""
    return _case({name: f"CAST({kind.magnitude} AS DOUBLE)" for name, kind in KINDS.items()})


def _case(values: dict[str, str]) -> str:
    cases = " ".join(f"WHEN '{name}' THEN {value}" for name, value in values.items())
    return f"CASE kind {cases} END"
