"""The kinds of problems of groups and topics: for which readers each holds, how severe it is, and how bad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.analytics.status.rules import FALLING_BEHIND, WAITS
from pipeline.tables import DATA_LOSS


@dataclass(frozen=True)
class Kind:
    """A kind of problem: for which readers it `holds`, and the expression of its magnitude, with columns of `_sums`."""

    holds: Callable[[], Column]
    severity: str
    magnitude: str


def _status_is(status: str) -> Callable[[], Column]:
    return lambda: F.col("status") == status


def _offset_is(*statuses: str) -> Callable[[], Column]:
    return lambda: F.col("offset_status").isin(*statuses)


def _is_near(left_ms: str) -> Callable[[], Column]:
    return lambda: F.col(left_ms).isNotNull()


def _waits(*, for_transaction: bool) -> Callable[[], Column]:
    def holds() -> Column:
        is_held = F.col("reason").eqNullSafe("open_transaction")
        return F.col("status").isin(*WAITS) & (is_held if for_transaction else ~is_held)

    return holds


KINDS: dict[str, Kind] = {
    "no_progress": Kind(_waits(for_transaction=False), "critical", "consumer_lag"),
    "falling_behind": Kind(_status_is(FALLING_BEHIND), "warning", "consumer_lag"),
    "rewound": Kind(_status_is("rewound"), "warning", "consumer_lag"),
    "deleted_unread": Kind(_offset_is(DATA_LOSS), "critical", "deleted"),
    "data_loss_ahead": Kind(_is_near("deleted_in_ms"), "critical", "-deleted_in_ms"),
    "commits_expire": Kind(_is_near("expires_in_ms"), "warning", "-expires_in_ms"),
    "open_transaction": Kind(_waits(for_transaction=True), "warning", "consumer_lag"),
    "recreated_topic": Kind(_offset_is("recreated"), "warning", "cardinality(groups)"),
    "truncated_log": Kind(_offset_is("truncated", "beyond_end"), "critical", "cardinality(groups)"),
}


def severity() -> Column:
    """The severity of each kind."""
    return F.expr(_case({name: f"'{kind.severity}'" for name, kind in KINDS.items()}))


def magnitude() -> Column:
    """How bad a problem is, compared with others of its kind."""
    return F.expr(_case({name: f"CAST({kind.magnitude} AS DOUBLE)" for name, kind in KINDS.items()}))


def _case(values: dict[str, str]) -> str:
    cases = " ".join(f"WHEN '{name}' THEN {value}" for name, value in values.items())
    return f"CASE kind {cases} END"
