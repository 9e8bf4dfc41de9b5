"""The groups as a plain table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.report.model import Group, by_lag
from pipeline.report.names import columns, cut, padded, visible

NAME_COLUMNS = 44
_HEADINGS = (
    "GROUP",
    "CLUSTER",
    "LAG",
    "MAX",
    "STABLE",
    "IN-TXN",
    "HEADROOM",
    "PARTITIONS",
    "STATE",
    "TYPE",
    "OFFSETS",
)
_NUMBERS = {"LAG", "MAX", "STABLE", "IN-TXN", "HEADROOM", "PARTITIONS"}


def format_groups(groups: Sequence[Group]) -> str:
    """A line per group, most lag first, in aligned columns; names longer than NAME_COLUMNS lose their middle.

    LAG sums the known partitions, `+?` says that some are unknown; `-` stands for none. HEADROOM is the smallest.
    """
    if not groups:
        return "No consumer group has lag yet."
    lines = [_HEADINGS, *map(_cells, by_lag(groups))]
    widths = [max(map(columns, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(cells, widths) for cells in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(
        padded(cell, width, right=heading in _NUMBERS)
        for cell, width, heading in zip(cells, widths, _HEADINGS, strict=True)
    ).rstrip()


def _cells(group: Group) -> tuple[str, ...]:
    return (
        cut(visible(group.group_id), NAME_COLUMNS),
        cut(visible(group.cluster), NAME_COLUMNS),
        _lag(group.consumer_lag, group.partitions_unknown, group.why_no_lag),
        _number(group.max_consumer_lag),
        _lag(group.consumer_lag_stable, group.stable_unknown, "-"),
        _number(group.transaction_lag),
        _number(group.min_headroom),
        str(group.partitions),
        group.group_state or "-",
        group.group_type or "-",
        ", ".join(f"{name} {count}" for name, count in group.statuses_by_severity),
    )


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _lag(value: int | None, unknown: int, none: str) -> str:
    if value is None:
        return none
    return f"{value:,} +?" if unknown else f"{value:,}"
