"""The members of the groups of the generated day: deployments each hour, jobs, one group that is scaled, and faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.day import FLAPPING, GROUPS, KINDS, LOSSES, MIDNIGHT_MS, PARTITIONS, STOPS, STORMS, WARM_UP, Day
from pipeline.common.epoch import MINUTE_MS, utc, utc_date
from pipeline.tables import GROUP_MEMBERS

SCALED, SCALED_AT = 16, range(WARM_UP + 600, WARM_UP + 640)
"""The group that has two members, and four in these minutes."""
EACH_RESTARTS_IN = 7
"""Minutes after which a member restarts again while its group has a fault."""


def member_rows(day: Day, minutes: range) -> list[tuple[Any, ...]]:
    """The rows of `group_members` for some minutes."""
    found = (row for minute in minutes for group in range(GROUPS) for row in _rows(day, minute, group))
    return [tuple(row.get(name) for name in GROUP_MEMBERS.columns) for row in found]


def _rows(day: Day, minute: int, group: int) -> Iterator[dict[str, Any]]:
    snapshot_id = MIDNIGHT_MS + minute * MINUTE_MS
    at = {"cluster": "day", "snapshot_id": snapshot_id, "snapshot_date": utc_date(snapshot_id)}
    at |= {"captured_at": utc(snapshot_id + 59_999), "group_id": f"g{group:02}"}
    shared = at | {"group_type": "classic", "protocol": "consumer", "assignor": "range"}
    if not day.has_members[minute, group]:
        yield shared | {"state": "Empty"}
        return
    members = 2 if group == SCALED and minute not in SCALED_AT else PARTITIONS
    for partition in range(PARTITIONS):
        own = _member(day, minute, group, partition % members)
        place = {"topic": f"t{group:02}", "partition": partition}
        yield shared | {"state": "Stable"} | own | place


def _member(day: Day, minute: int, group: int, number: int) -> dict[str, Any]:
    """One member. Every third group runs in pods with new addresses, the others on fixed hosts."""
    start = _starts(day, minute, group, number)
    in_pods = group % 3 == 0
    client = "app" if in_pods else f"client-{number}"
    host = f"10.{start // 250}.{start % 250}.{number}" if in_pods else f"10.0.0.{number}"
    member_id = f"{client}-{group:08x}-{number:04x}-0000-0000-{start:012x}"
    return {"member_id": member_id, "client_id": client, "host": host, "subscribed_topics": [f"t{group:02}"]}


def _starts(day: Day, minute: int, group: int, number: int) -> int:
    """How often the member has started so far."""
    is_job = group in KINDS["runs once an hour"]
    one_by_one = number if group % 5 == 0 else 0
    starts = minute // 60 if is_job else (minute - int(day.deployed_at[group]) - one_by_one) // 60 + 1
    starts += sum(fault.group == group and minute >= fault.ends for fault in (*STOPS, *LOSSES))
    for fault in (*STORMS, *FLAPPING):
        concerns = number == 0 if fault in FLAPPING else number < PARTITIONS - 1
        if fault.group == group and concerns:
            passed = min(max(minute, fault.begins), fault.ends) - fault.begins
            starts += (passed + 2 * number) // EACH_RESTARTS_IN
    return starts
