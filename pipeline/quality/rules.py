"""The rules that every row of a bronze table must meet, and oddities that are allowed.

Each rule is written once: `offends_sql` turns it into a condition for the rows that fail it, and `expectations` into an
expectation of Great Expectations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS, Table

MAX_PARTITION = 1_000_000
"""Far more partitions than a topic can have. A larger partition number was read wrongly."""
MAX_OFFSET = 2**62
"""No log has this many records or bytes. Below it, the distance from any committed offset to the end is a bigint."""
ROWS_OF_KEY = "rows_of_key"
"""A column for `judge`: the number of rows with the row's key."""


class Rule(NamedTuple):
    """The values of a column are between two numbers, or NULL. Without numbers, they are not NULL."""

    column: str
    least: int | None = None
    most: int | None = None

    @property
    def is_for_null(self) -> bool:
        """Whether the rule is that values are not NULL."""
        return self.least is None and self.most is None

    @property
    def name(self) -> str:
        """The name of the expectation and its column, as in `quarantine`."""
        return f"expect_column_values_to_{'not_be_null' if self.is_for_null else 'be_between'}({self.column})"


def observed_key(table: Table) -> list[str]:
    """What is unique in a table among the rows of one snapshot without an error."""
    return [name for name in table.key if name in table.observed.names]


def _not_null(*columns: str) -> list[Rule]:
    return [Rule(column) for column in columns]


def _ends(*columns: str) -> list[Rule]:
    return [Rule(column, 0, MAX_OFFSET) for column in columns]


_UNIQUE = Rule(ROWS_OF_KEY, most=1)
_PARTITION = Rule("partition", 0, MAX_PARTITION)

RULES: dict[str, Sequence[Rule]] = {
    COMMITTED_OFFSETS.name: [
        *_not_null(*observed_key(COMMITTED_OFFSETS), "captured_at"),
        _UNIQUE,
        _PARTITION,
        Rule("committed_offset", 0),
        Rule("earlier_offset", 0),
        *_ends("log_start_offset", "last_stable_offset", "high_watermark", "high_watermark_after"),
    ],
    WATERMARKS.name: [
        *_not_null(*observed_key(WATERMARKS), "captured_at"),
        _UNIQUE,
        _PARTITION,
        *_ends("log_start_offset", "local_log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset"),
        *_ends("high_watermark_after", "max_timestamp_offset", "log_bytes", "log_bytes_error"),
    ],
    GROUP_MEMBERS.name: [
        *_not_null("group_id", "captured_at"),
        _UNIQUE,
        _PARTITION,
    ],
}
ODDITIES = {
    "log_start_above_last_stable": "log_start_offset > last_stable_offset",
    "last_stable_above_high_watermark": "last_stable_offset > high_watermark",
    "high_watermark_above_log_end": "high_watermark > log_end_offset",
}
"""The oddities of watermarks, by name: rungs in the wrong order, as may be read during a failover."""


def offends_sql(rule: Rule) -> str:
    """The condition for rows that fail a rule. NULL fails only `not null`, as in Great Expectations."""
    if rule.is_for_null:
        return f'"{rule.column}" IS NULL'
    bounds = [] if rule.least is None else [f'"{rule.column}" < {rule.least}']
    bounds += [] if rule.most is None else [f'"{rule.column}" > {rule.most}']
    return f"coalesce({' OR '.join(bounds)}, false)"
