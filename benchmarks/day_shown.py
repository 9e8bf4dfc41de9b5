"""When the rows of the generated day first show a fault: what a person would see who reads them, without laglake.

Delays are counted from there. A minute is that of the snapshot, which is taken in its last second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from benchmarks.day import FLAPPING, MIDNIGHT_MS, PARTITIONS, STORMS, Day, Fault
from benchmarks.day_members import member_rows
from pipeline.common.epoch import MINUTE_MS
from pipeline.tables import GROUP_MEMBERS

DEPLOYED_EACH = 60
"""Minutes from one deployment of a group to the next: in any hour, each client has one."""
THIRD = 3
"""Members restart now and then. Of one that has restarted three times, a person would say that something is wrong."""


TOLERATED_MS = MINUTE_MS
"""A wait or an age that exceeds all earlier ones by no more than this does not matter (`[status] tolerance`)."""


def shown(day: Day, kind: str, fault: Fault) -> int:
    """The first minute of the day whose snapshot shows this kind of finding. It is a ValueError if none does."""
    if fault in (*STORMS, *FLAPPING):
        return members_shown(day, fault)
    if kind == "unreadable":
        return fault.begins
    its = slice(fault.group * PARTITIONS, (fault.group + 1) * PARTITIONS)
    shows = np.asarray(_SHOWS[kind](day, its, fault.begins).any(axis=1))
    if not shows[fault.begins : fault.ends].any():
        raise ValueError(f"the rows do not show {kind} of {fault}")
    return fault.begins + int(shows[fault.begins :].argmax())


def _waits(day: Day, its: slice, begins: int) -> npt.NDArray[np.bool_]:
    """Records are unread, and the commit has been the same for longer than ever before the fault, if not tolerated."""
    committed, end = day.committed[:, its], day.end[:, its]
    is_same = np.diff(committed, axis=0, prepend=-1) == 0
    waited = np.zeros_like(committed)
    for minute in range(1, len(waited)):
        waits = is_same[minute] & (end[minute] > committed[minute])
        waited[minute] = np.where(waits, waited[minute - 1] + 1, 0)
    return np.asarray(waited > waited[:begins].max(axis=0) + TOLERATED_MS // MINUTE_MS)


def _gets_older(day: Day, its: slice, begins: int) -> npt.NDArray[np.bool_]:
    """The oldest unread record is older than ever before the fault, by more than is tolerated."""
    return np.asarray(day.age_ms[:, its] > day.age_ms[:begins, its].max(axis=0) + TOLERATED_MS)


def _goes_back(day: Day, its: slice, _: int) -> npt.NDArray[np.bool_]:
    return np.asarray(np.diff(day.committed[:, its], axis=0, prepend=0) < 0)


def _moves_without_members(day: Day, its: slice, _: int) -> npt.NDArray[np.bool_]:
    moves = np.diff(day.committed[:, its], axis=0, prepend=0) > 0
    return np.asarray(moves & ~day.has_members[:, [its.start // PARTITIONS]])


def _is_deleted(day: Day, its: slice, _: int) -> npt.NDArray[np.bool_]:
    return np.asarray(day.start[:, its] > day.committed[:, its])


_SHOWS: dict[str, Callable[[Day, slice, int], npt.NDArray[np.bool_]]] = {
    "no_progress": _waits,
    "stopped_together": _waits,
    "data_loss_ahead": _waits,  # retention keeps records for three hours, so from then on the rest follows
    "falling_behind": _gets_older,
    "hot_partition": _gets_older,
    "rewound": _goes_back,
    "skipped": _moves_without_members,
    "deleted_unread": _is_deleted,
}


def members_shown(day: Day, fault: Fault) -> int:
    """The first minute of the day whose snapshot shows a storm, or a flapping member.

    A client, known by its client.id and host, has restarted if it has another member id than in the minute before. So
    it does in a deployment, once an hour. Its own restarts are those of the last hour beyond the restarts of the
    client of its group that has the fewest: these are the deployments. If a client restarts in the minute of a
    deployment, the rows show one restart, not two.

    A flapping member is shown when one client has restarted three times by itself, a storm when two clients have. It
    is a ValueError if `fault` is of another kind, or if its rows never show it.
    """
    if fault not in (*STORMS, *FLAPPING):
        raise ValueError(f"not a fault of members: {fault}")
    least = 2 if fault in STORMS else 1
    first = fault.begins - DEPLOYED_EACH
    ids = _member_ids(day, fault.group, range(first, fault.ends))
    for passed in range(fault.ends - fault.begins):
        restarts = [_changes(of_client[passed : passed + DEPLOYED_EACH + 1]) for of_client in ids.values()]
        if sum(one >= min(restarts) + THIRD for one in restarts) >= least:
            return fault.begins + passed
    raise ValueError(f"the rows do not show {fault}")


def _member_ids(day: Day, group: int, minutes: range) -> dict[tuple[str, str], list[str]]:
    """The member id of each client of a group in each of some minutes."""
    name, columns = f"g{group:02}", GROUP_MEMBERS.columns
    found: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for values in member_rows(day, minutes):
        row = dict(zip(columns, values, strict=True))
        if row["group_id"] == name and row["member_id"] is not None:
            minute = (row["snapshot_id"] - MIDNIGHT_MS) // MINUTE_MS
            found[row["client_id"], row["host"]][minute] = row["member_id"]
    return {client: [ids[minute] for minute in minutes] for client, ids in found.items()}


def _changes(ids: list[str]) -> int:
    return sum(before != after for before, after in pairwise(ids))
