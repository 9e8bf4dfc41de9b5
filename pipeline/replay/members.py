"""Reads the members of groups from what `kafka-consumer-groups --describe --all-groups --members --verbose` prints.

It is a table for people for each group. Names may have blanks, so that a cell is what stands below its header, and not
a word of the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_TOPIC, _PARTITIONS = "[A-Za-z0-9._-]{1,249}", "[0-9]{1,9}(?:,[0-9]{1,9})*"
_ASSIGNED = re.compile(rf"{_TOPIC}:{_PARTITIONS}(?:;{_TOPIC}:{_PARTITIONS})*")
_ASSIGNED_BEFORE_4 = re.compile(rf"{_TOPIC}\({_PARTITIONS}\)(?:, {_TOPIC}\({_PARTITIONS}\))*")
_OF_TOPIC = re.compile(rf"({_TOPIC})[:(]({_PARTITIONS})")
_UNITS = "utf-16-le"
"""Java counts the characters of a cell in these: a character beyond U+FFFF, such as an emoji, counts as two."""
_NEEDED = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
_MAY_BE_EMPTY = ("GROUP", "CLIENT-ID")
"""The cells that are blank if the name is the empty text."""


class Member(NamedTuple):
    """A member of a group, and a partition that is assigned to it, or NULL."""

    group_id: str
    member_id: str
    client_id: str
    host: str
    topic: str | None = None
    partition: int | None = None


def members_of(lines: Iterable[str]) -> list[Member]:
    """The members in all tables. Raises ValueError, with the line's number, for a line that does not fit its table.

    A table ends with an empty line. What is printed outside of tables, such as a warning, is passed over.
    """
    found: list[Member] = []
    columns: dict[str, slice] = {}
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if {"CONSUMER-ID", "HOST"} <= {*text.split()}:
            columns = _columns_of(text, number)
        elif not text.strip():
            columns = {}
        elif columns:
            found += _members_in(_cells_of(text, columns, number), number)
    return found


def _columns_of(header: str, number: int) -> dict[str, slice]:
    """Where the columns of a table are in its lines, by name."""
    begins = {name[0]: name.start() for name in re.finditer(r"\S+", header)}
    missing = [name for name in _NEEDED if name not in begins]
    if missing:
        raise ValueError(f"line {number}: a table of members without the column {missing[0]}")
    ends = [*list(begins.values())[1:], None]
    return {name: slice(begin, end) for (name, begin), end in zip(begins.items(), ends, strict=True)}


def _cells_of(line: str, columns: dict[str, slice], number: int) -> dict[str, str]:
    units = line.encode(_UNITS, "surrogatepass")
    cells = {name: _text_of(units, place) for name, place in columns.items()}
    *inner, _ = cells.values()
    is_aligned = all(cell.endswith(" ") for cell in inner) and not any(
        c.startswith(" ") and c.strip() for c in cells.values()
    )
    stripped = {name: cell.rstrip() for name, cell in cells.items()}
    is_complete = all(stripped[name] for name in _NEEDED if name not in _MAY_BE_EMPTY)
    if not is_aligned or not is_complete or not stripped["#PARTITIONS"].isdecimal():
        raise ValueError(f"line {number}: does not fit the columns of its table")
    return stripped


def _text_of(units: bytes, place: slice) -> str:
    """What stands at a place, of which begin and end count UTF-16 units of two bytes each."""
    end = None if place.stop is None else 2 * place.stop
    return units[2 * place.start : end].decode(_UNITS, "surrogatepass")


def _members_in(cells: dict[str, str], number: int) -> list[Member]:
    """A row for each partition of a member; one without a partition if none is assigned, or none is printed."""
    member = Member(cells["GROUP"], cells["CONSUMER-ID"], cells["CLIENT-ID"], cells["HOST"])
    text = cells.get("CURRENT-ASSIGNMENT", cells.get("ASSIGNMENT", "-"))
    if text in ("-", ""):
        return [member]
    if not _ASSIGNED.fullmatch(text) and not _ASSIGNED_BEFORE_4.fullmatch(text):
        raise ValueError(f"line {number}: its assignment is not a list of topics and partitions")
    return [member._replace(topic=topic, partition=partition) for topic, partition in _partitions_in(text)]


def _partitions_in(text: str) -> Iterator[tuple[str, int]]:
    """The partitions in `orders:0,1;clicks:2`, or, before Kafka 4, in `orders(0,1), clicks(2)`."""
    for topic, partitions in _OF_TOPIC.findall(text):
        for partition in partitions.split(","):
            yield topic, int(partition)
