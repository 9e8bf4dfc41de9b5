"""Groups whose members join and leave again and again, and healthy groups in which much changes.

Each group is a function that says which members it has in a minute. The model of `group_changes` in plain Python finds
what has changed from snapshot to snapshot.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any
from uuid import UUID

from pipeline.analytics.findings.rebalances import find_restless_groups
from pipeline.tables import GROUP_CHANGES, GROUP_MEMBERS
from tests.helpers.group_model import Member, member_changes
from tests.helpers.rows import few_rows
from tests.helpers.worded import worded_rows

MINUTE_MS = 60_000
T0 = 1_769_860_800_000
MINUTES = 241
Members = Iterable[Member]
Found = dict[str, dict[int, dict[str, Any]]]


def member(client: str, number: int, host: str = "/10.0.0.1", instance: str | None = None) -> Member:
    """The member with this client.id that has joined for the nth time, of the classic protocol."""
    return Member(f"{instance or client}-{UUID(int=number)}", client, host, instance)


def steady(count: int) -> list[Member]:
    return [member(f"s{n}", 0, f"/10.0.1.{n}") for n in range(count)]


def rolling(minute: int, at: int, *, alike: bool = False, pods: int = 50, generation: int = 0) -> Iterator[Member]:
    """Pods that are replaced one by one, from a minute on."""
    for pod in range(pods):
        number = 1_000 * (generation + (minute >= at + pod)) + pod
        yield member("app", number, "/10.0.0.1" if alike else f"/10.0.{number // 250}.{number % 250}")


def hourly(minute: int, *, keeps_host: bool) -> Iterator[Member]:
    """Ten members that are replaced once an hour, at minute 7."""
    hour = (minute + 53) // 60
    for pod in range(10):
        yield member("app", 100 * hour + pod, f"/10.0.{0 if keeps_host else hour}.{pod}")


def scaled_once(minute: int, *, alike: bool) -> Iterator[Member]:
    yield from steady(2)
    for pod in range(10 if 150 <= minute < 180 else 0):
        yield member("app", pod, "/10.0.0.1" if alike else f"/10.0.2.{pod}")


def autoscaler(minute: int) -> Iterator[Member]:
    """For half of each 15 minutes, five more pods."""
    yield from steady(2)
    for pod in range(5 if minute % 15 < 8 else 0):
        yield member("app", 100 * (minute // 15) + pod, f"/10.{minute // 15}.2.{pod}")


def job(minute: int, *, keeps_host: bool = False) -> Iterator[Member]:
    """Three consumers that run for ten of each 15 minutes."""
    run = minute // 15
    for pod in range(3 if minute % 15 < 10 else 0):
        yield member(f"job-{pod}", run, f"/10.0.{0 if keeps_host else run}.{pod}")


def flapping(minute: int, every: int = 15, client: str = "bad", since: int = 0, until: int = MINUTES) -> Member:
    return member(client, (min(max(minute, since), until) - since) // every, "/10.0.9.9")


def twice_more(minute: int) -> Iterator[Member]:
    """A member of the group that is deployed each hour, which also restarts at minutes 150 and 200."""
    starts = (minute + 53) // 60 + (minute >= 150) + (minute >= 200)
    yield member("once-more", starts, "/10.0.0.11")


def then_deployed(minute: int) -> Iterator[Member]:
    """A member that restarts four times, and an hour later a deployment of all."""
    for pod in range(3):
        yield member("app", int(minute >= 235), f"/10.0.0.{pod}")
    yield member("bad", (min(max(minute, 120), 180) - 120) // 15 + (minute >= 235), "/10.0.0.9")


def leaving(minute: int, every: int = 30) -> list[Member]:
    """A member of KIP-848 that leaves for half of the time and joins with the same id."""
    return [Member("AAAA", "bad", "/10.0.9.9")] if minute % every < every // 2 else []


def all_flapping(minute: int) -> Iterator[Member]:
    return (flapping(minute + 5 * n, 15, f"bad-{n}") for n in range(3))


def alike(minute: int) -> Iterator[Member]:
    """Eight consumers of one process, each of which is replaced every 15 minutes, not at the same time."""
    return (member("app", 100 * pod + (minute + pod) // 15) for pod in range(8))


def one_more(minute: int, count: int) -> Iterator[Member]:
    """A large group, and a new pod for half of each 20 minutes."""
    yield from steady(count)
    for run in [minute // 20] if minute % 20 < 10 else []:
        yield member("app", run, f"/10.6.0.{run}")


def static(minute: int, pod: int = 0, every: int = 15, *, named_alike: bool = False) -> Member:
    """A static member that restarts, each time with another address."""
    number = (minute + 4 * pod) // every
    return member(f"pod-{pod}" if named_alike else "app", number, f"/10.3.{pod}.{number}", f"pod-{pod}")


def static_leaving(minute: int) -> list[Member]:
    """A static member that is away for longer than its session timeout."""
    return [static(minute, every=30)] if minute % 30 < 15 else []


HEALTHY: dict[str, Callable[[int], Members]] = {
    "steady": lambda _: steady(3),
    "one deployment": lambda m: rolling(m, 150),
    "one deployment of members that look alike": lambda m: rolling(m, 150, alike=True),
    "two deployments": lambda m: rolling(m, 130) if m < 185 else rolling(m, 185, generation=1),
    "hourly deployments on the same hosts": lambda m: hourly(m, keeps_host=True),
    "hourly deployments on new hosts": lambda m: hourly(m, keeps_host=False),
    "scaled up and down once": lambda m: scaled_once(m, alike=False),
    "scaled up and down once, alike": lambda m: scaled_once(m, alike=True),
    "a job": job,
    "one pod more, now and then": lambda m: one_more(m, 100),
    "a stateful set that is restarted again and again": lambda m: [static(m, pod, 30) for pod in range(5)],
    "alone": lambda m: [flapping(m)],
    "hourly deployments and two restarts": lambda m: [*hourly(m, keeps_host=True), *twice_more(m)],
    "three restarts": lambda m: [*steady(3), flapping(m, 20, since=130, until=190)],
}
EARLIER = {"a deployment afterwards": then_deployed}
FLAPPING: dict[str, Callable[[int], Members]] = {
    "four restarts": lambda m: [*steady(3), flapping(m, 15, since=120, until=180)],
    "one of twelve": lambda m: [*steady(11), flapping(m)],
    "one of two": lambda m: [*steady(1), *leaving(m)],
    "during a deployment": lambda m: [*rolling(m, 150), flapping(m)],
    "static": lambda m: [*steady(1), static(m)],
    "static, named like its client": lambda m: [*steady(1), static(m, named_alike=True)],
    "two static": lambda m: [*steady(2), static(m), static(m, 1)],
    "static, leaving": lambda m: [*steady(1), *static_leaving(m)],
}
STORM: dict[str, Callable[[int], Members]] = {
    "two of three": lambda m: [*steady(1), flapping(m), flapping(m + 5, 15, "worse")],
    "an autoscaler": autoscaler,
    "all of them": all_flapping,
    "all of them at once": lambda m: (flapping(m, 15, f"bad-{n}") for n in range(10)),
    "all of one process": alike,
}
OFTEN: dict[str, Callable[[int], Members]] = {
    "a job on the same hosts": lambda m: job(m, keeps_host=True),
    "every 35 minutes": lambda m: [*steady(3), flapping(m, 35)],
    "every 39 minutes": lambda m: [*steady(3), flapping(m, 39)],
    "every 45 minutes": lambda m: [*steady(3), flapping(m, 45)],
}
"""Groups that look different if snapshots are taken more often."""
GROUPS = HEALTHY | FLAPPING | STORM | OFTEN | EARLIER
READER_FINDERS = range(120, MINUTES, 15)


def found(every: int, groups: dict[str, Callable[[int], Members]], judged: Collection[int] = READER_FINDERS) -> Found:
    """The problems of each group in each of the minutes `judged`, where a snapshot is taken so often."""
    changes, described = [], []
    for group, members_at in groups.items():
        for minute in range(every, MINUTES, every):
            before, after = (dict.fromkeys(members_at(m), ()) for m in (minute - every, minute))
            at = (T0 + minute * MINUTE_MS, T0 + (minute - every) * MINUTE_MS, group)
            changes += [(*at, *row[:7]) for row in member_changes(before, after)]
            if bool(before) != bool(after):
                states = ("Stable", "Empty") if before else ("Empty", "Stable")
                changes.append((*at, "state", *states, None, None, None, None))
            if minute in judged:
                described += [(at[0], group, *m[:3], m.instance_id) for m in after]
    columns = "snapshot_id earlier_snapshot_id group_id change before after member_id client_id host instance_id"
    ids = [T0 + m * MINUTE_MS for m in judged]
    parts = {
        "changes": few_rows(GROUP_CHANGES, columns, *changes),
        "members": few_rows(GROUP_MEMBERS, "snapshot_id group_id member_id client_id host instance_id", *described),
    }
    result: Found = {}
    for row in worded_rows(find_restless_groups(parts, ids).collected_table()):
        values = row | {"evidence": json.loads(row["evidence"])}
        of_group = result.setdefault(row["group_id"], {})
        assert of_group.setdefault((row["snapshot_id"] - T0) // MINUTE_MS, values) is values
    return result
