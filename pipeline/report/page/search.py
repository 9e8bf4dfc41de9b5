"""What a group is found by, besides what its row shows: its topics, clients and hosts, within a limit for the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipeline.report.model.details import Names
from pipeline.report.model.report import Report
from pipeline.report.text.names import visible

BYTES = 400_000
"""How many bytes of names a page contains for the search: each group has an equal share."""
MOST_OF_A_GROUP = 4_000


class Searched(NamedTuple):
    """The names of a group, one a line; `is_cut` says that some are left out."""

    text: str
    is_cut: bool


def searched(report: Report) -> dict[tuple[str, str], Searched]:
    """The names of each group on the page."""
    share = min(BYTES // max(len(report.groups), 1), MOST_OF_A_GROUP)
    return {(names.cluster, names.group_id): _of_group(names, share) for names in report.names}


def _of_group(names: Names, most: int) -> Searched:
    lines = [visible(name) for name in _in_turn(names)]
    whole = "\n".join(lines)
    cut = whole.encode()[:most].decode(errors="ignore")
    return Searched(cut, names.is_cut or cut != whole)


def _in_turn(names: Names) -> Iterator[str]:
    """A topic, a client, a host, the next topic, and so on: what is cut is not all of one kind."""
    for nth in range(max(map(len, (names.topics, names.clients, names.hosts)))):
        for of_kind in (names.topics, names.clients, names.hosts):
            yield from of_kind[nth : nth + 1]
