"""Groups and partitions as tables of plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.common.quantities import duration, size
from pipeline.report.model.details import Partition
from pipeline.report.model.report import Group, by_lag
from pipeline.report.text.names import columns, cut, padded, visible, visible_name
from pipeline.tables import DATA_LOSS

NAME_COLUMNS = 44
NO_LAG = "No consumer group has lag yet."
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
GROUPS_LEGEND = (
    "LAG with +?: some partitions are unknown, and not in the sum. "
    "HEADROOM: what retention may delete before it deletes unread records."
)
"""The line below `format_groups` for those who see it for the first time."""
GROUP_COLUMNS = """\
  LAG         from the committed offset to the high watermark, the sum over the partitions; `+?` means that some
              partitions are unknown, and not in the sum
  MAX         the largest lag of one partition
  STABLE      the lag up to the last stable offset, where a consumer with read_committed stops; again a sum
  IN-TXN      from the last stable offset to the high watermark: what open transactions hold back
  HEADROOM    how many records retention may delete in some partition before it deletes unread ones; if it is
              negative, that many records after the commit were already deleted
  PARTITIONS  the number of partitions that the group reads
  STATE, TYPE as Kafka names them: Stable, Empty; classic, consumer
  OFFSETS     how many partitions have which offset_status, the worst first (docs/tables.md, table lag)"""
"""What the columns of `format_groups` mean."""
_NUMBERS = {"LAG", "MAX", "STABLE", "IN-TXN", "HEADROOM", "PARTITIONS"}
SHORT_NAME_COLUMNS = 28
_PARTITION_HEADINGS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CLIENT-ID",
    "HOST",
    "LAG-BYTES",
    "LAG-TIME",
    "AGE",
    "HEADROOM",
    "FETCHER-LAG",
    "OFFSETS",
    "CLUSTER",
)
_PARTITION_NUMBERS = set(_PARTITION_HEADINGS) - {"GROUP", "TOPIC", "CLIENT-ID", "HOST", "OFFSETS", "CLUSTER"}


def format_groups(groups: Sequence[Group]) -> str:
    """A line for each group, most lag first, in aligned columns. Names longer than NAME_COLUMNS lose their middle.

    LAG is the sum over the known partitions; `+?` means that some are unknown, `-` that there is none. HEADROOM is the
    smallest. OFFSETS counts partitions; beside no_commit is how many offsets may still be read there, at most.
    """
    if not groups:
        return NO_LAG
    return "\n".join(_aligned([_HEADINGS, *map(_cells, by_lag(groups))], _NUMBERS))


def format_partitions(
    partitions: Sequence[Partition], *, left_out: int = 0, coloured: bool = False, nothing: str = NO_LAG
) -> str:
    """A line per partition, with the columns of kafka-consumer-groups first. `-` means unknown or absent.

    LAG-BYTES, LAG-TIME and AGE have their error beside them. Without a partition, the text is `nothing`. With
    `coloured`, unusual values have terminal colours.
    """
    if not partitions:
        return nothing
    lines = _aligned([_PARTITION_HEADINGS, *map(_partition_cells, partitions)], _PARTITION_NUMBERS)
    if coloured:
        lines[1:] = [_coloured(line, p) for line, p in zip(lines[1:], partitions, strict=True)]
    if left_out:
        lines.append(f"and {left_out:,} more")
    return "\n".join(lines)


def _aligned(lines: Sequence[Sequence[str]], numbers: set[str]) -> list[str]:
    """The lines in aligned columns. The first line has the headings; columns in `numbers` are right-aligned."""
    widths = [max(map(columns, column)) for column in zip(*lines, strict=True)]
    found = []
    for cells in lines:
        columns_of_line = zip(cells, widths, lines[0], strict=True)
        texts = [padded(cell, width, right=heading in numbers) for cell, width, heading in columns_of_line]
        found.append("  ".join(texts).rstrip())
    return found


def _coloured(line: str, partition: Partition) -> str:
    if partition.offset_status == "ok":
        return line
    return f"\x1b[{31 if partition.offset_status == DATA_LOSS else 33}m{line}\x1b[0m"


def _partition_cells(partition: Partition) -> tuple[str, ...]:
    def name(text: str | None) -> str:
        return "-" if text is None else cut(visible_name(text), SHORT_NAME_COLUMNS)

    return (
        name(partition.group_id),
        name(partition.topic),
        str(partition.partition),
        _number(partition.committed_offset),
        _number(partition.high_watermark),  # as in kafka-consumer-groups, so that the difference is LAG
        _number(partition.consumer_lag),
        name(partition.client_id),
        name(partition.host or None),
        "-" if partition.consumer_lag_bytes is None else size(partition.consumer_lag_bytes, partition.bytes_error),
        "-" if partition.consumer_lag_ms is None else duration(partition.consumer_lag_ms, partition.time_error_ms),
        "-" if partition.consumer_age_ms is None else duration(partition.consumer_age_ms, partition.time_error_ms),
        _number(partition.headroom),
        _number(partition.fetcher_lag),
        partition.offset_status or "unknown",
        name(partition.cluster),
    )


def _cells(group: Group) -> tuple[str, ...]:
    return (
        cut(visible_name(group.group_id), NAME_COLUMNS),
        cut(visible(group.cluster), NAME_COLUMNS),
        _lag(group.consumer_lag, group.partitions_unknown, group.why_no_lag),
        _number(group.max_consumer_lag),
        _lag(group.consumer_lag_stable, group.stable_unknown, "-"),
        _number(group.transaction_lag),
        _number(group.min_headroom),
        str(group.partitions),
        group.group_state or "-",
        group.group_type or "-",
        ", ".join(_status(group, name, count) for name, count in group.statuses_by_severity),
    )


def _status(group: Group, name: str, count: int) -> str:
    has_most = name == "no_commit" and group.not_committed_offsets is not None
    return f"{name} {count}" + (f" (up to {group.not_committed_offsets:,} offsets)" if has_most else "")


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _lag(value: int | None, unknown: int, none: str) -> str:
    if value is None:
        return none
    return f"{value:,} +?" if unknown else f"{value:,}"
