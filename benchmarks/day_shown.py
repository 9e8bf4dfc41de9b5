"""When the rows of the generated day first show a fault: what a person would see who reads them, without laglake.

Delays are counted from there. A minute is that of the snapshot, which is taken in its last second.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from benchmarks.day import FLAPPING, MIDNIGHT_MS, STORMS, Day, Fault
from benchmarks.day_members import member_rows
from pipeline.tables import GROUP_MEMBERS

MINUTE_MS = 60_000
DEPLOYED_EACH = 60
"""Minutes from one deployment of a group to the next: in any hour, each client has one."""
THIRD = 3
"""Members restart now and then. Of one that has restarted three times, a person would say that something is wrong."""


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
